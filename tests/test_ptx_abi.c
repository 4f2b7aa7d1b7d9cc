/* SPDX-License-Identifier: MIT */
/* The stand-in's own declarations (tests/ptx/functions.def, abi.def) against the toolkit's headers,
 * where there are some: prototypes, numbers, structs. Most of it is decided when this file is compiled. */
#include "testing.h"

#ifdef PTX_TOOLKIT
#include <cuda.h>
#endif

#if defined(PTX_TOOLKIT) && CUDA_VERSION >= 12000
#include <cudaTypedefs.h>

#define FUNCTION(name, base, version, params)                                                              \
    _Static_assert(__builtin_types_compatible_p(PFN_##base##_v##version, CUresult(*) params), #name);
#include "ptx/functions.def"
#undef FUNCTION

#define RESULT(name, value) _Static_assert((int)name == value, #name);
#include "ptx/abi.def"
#undef RESULT
#define ENUM(name, value) _Static_assert((int)name == value, #name);
#include "ptx/abi.def"
#undef ENUM

#define STRUCT(name)                         struct our_##name {
#define FIELD(name, type, field)             type field;
#define FIELD_OF(name, type, field, extents) type field extents;
#define STRUCT_END(name)                                                                                   \
    }                                                                                                      \
    ;                                                                                                      \
    _Static_assert(sizeof(struct our_##name) == sizeof(name), #name);
#include "ptx/abi.def"
#undef STRUCT
#undef FIELD
#undef FIELD_OF
#undef STRUCT_END

static void test_fields(void **state) {
    (void)state;
    unsigned n = 0;
#define STRUCT(name)
#define FIELD(name, type, field)                                                                           \
    _Static_assert(__builtin_types_compatible_p(__typeof__(((name *)0)->field), type), #field);            \
    assert_int_equal(offsetof(name, field), offsetof(struct our_##name, field));                           \
    n++;
#define FIELD_OF(name, type, field, extents) FIELD(name, type extents, field)
#define STRUCT_END(name)
#include "ptx/abi.def"
    assert_true(n > 40);
}
#else
static void test_fields(void **state) {
    (void)state;
    skip(); /* no toolkit */
}
#endif

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_fields)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
