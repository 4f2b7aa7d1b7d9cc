/* SPDX-License-Identifier: MIT */
/* What is given to a plan has the type that is expected, or the failure names both. */
#include <stdio.h>

#include "base/text.h"
#include "plan.h"

/* What is refused costs no memory from the heap either: messages are short, and are written here. */
typedef struct scratch {
    size_t used;
    _Alignas(16) char bytes[8192];
} scratch;

static void *take(void *user, size_t size, size_t align) {
    scratch *s = user;
    size_t at = (size_t)ash_align_up(s->used, align);
    if (size > sizeof s->bytes || at > sizeof s->bytes - size) return NULL;
    s->used = at + size;
    return s->bytes + at;
}

static void leave(void *user, void *ptr, size_t size) {
    (void)user, (void)ptr, (void)size;
}

/* "f32[batch, 3] with batch = 2, which is f32[2, 3]" */
static void print_expected(const ash_dims *dims, const ash_type *shape, const int64_t *vars,
                           ash_text *out) {
    ash_type now = *shape;
    bool fixed = true, known = true;
    for (unsigned i = 0; i < shape->rank; i++) {
        now.dims[i] = ash_dims_present(dims, shape->dims[i], vars);
        fixed = fixed && shape->dims[i] >= 0;
        known = known && now.dims[i] >= 0;
    }
    ash_type_print(dims, shape, out);
    if (fixed) return;
    ash_text_add(out, " with ");
    ash_type_print_vars(dims, shape, vars, out);
    if (!known) return;
    ash_text_add(out, ", which is ");
    ash_type_print(dims, &now, out);
}

ash_status ash_plan__mismatch(const ash_dims *dims, const ash_type *shape, const int64_t *vars,
                              const ash_type *given, ash_status code, const char *verb, ash_diag *diag) {
    scratch room = {.used = 0};
    const ash_allocator allocator = {take, leave, &room};
    ash_text text;
    ash_text_init(&text, &allocator);
    ash_type_print(dims, given, &text);
    ash_text_add(&text, " %s ", verb);
    print_expected(dims, shape, vars, &text);
    ash_fail(diag, code, "%s", text.at ? text.at : "another type is expected");
    ash_text_free(&text);
    return code;
}

ash_status ash_plan__check_numbers(const ash_type *type, ash_diag *diag) {
    ASH_FAIL_IF((unsigned)type->dtype >= ASH_DTYPE_COUNT, diag, ASH_ERROR_INVALID_ARGUMENT,
                "no dtype has the number %d", (int)type->dtype);
    ASH_FAIL_IF(type->rank > ASH_MAX_RANK, diag, ASH_ERROR_INVALID_ARGUMENT, "rank %u, at most %d",
                type->rank, ASH_MAX_RANK);
    for (unsigned i = 0; i < type->rank; i++)
        ASH_FAIL_IF(type->dims[i] < 0, diag, ASH_ERROR_INVALID_ARGUMENT,
                    "dim %u of the type that is given is %lld, not a size", i, (long long)type->dims[i]);
    return ASH_OK;
}

ash_status ash_plan__check_bytes(const ash_type *type, const ash_given *given, ash_diag *diag) {
    uint64_t bytes;
    if (!ash_view__type_bytes(type, &bytes)) bytes = UINT64_MAX;
    if (given->size != bytes) {
        char dims[ASH_MAX_RANK * 22] = "";
        for (size_t i = 0, at = 0; i < type->rank; i++)
            at += (size_t)snprintf(dims + at, sizeof dims - at, "%s%lld", i ? ", " : "",
                                   (long long)type->dims[i]);
        return ash_fail(diag, ASH_ERROR_INVALID_ARGUMENT, "%llu bytes given, %s[%s] has %llu",
                        (unsigned long long)given->size, ash_dtype_name(type->dtype), dims,
                        (unsigned long long)bytes);
    }
    ASH_FAIL_IF(!given->data && !given->address && bytes, diag, ASH_ERROR_INVALID_ARGUMENT,
                "%llu bytes at the address NULL", (unsigned long long)bytes);
    return ASH_OK;
}

ash_status ash_plan__check_given(const ash_plan *plan, uint32_t buffer, const ash_given *given,
                                 const char *verb, ash_diag *diag) {
    const ash_type *type = given->type;
    ash_type now;
    uint64_t bytes;
    if (given->room) return ASH_OK;
    ash_plan__present_type(plan, buffer, &now, &bytes);
    if (type) {
        ASH_TRY(ash_plan__check_numbers(type, diag));
        bool same_type = type->dtype == now.dtype;
        if (!same_type || type->rank != now.rank ||
            memcmp(type->dims, now.dims, now.rank * sizeof *now.dims) != 0)
            return ash_plan__mismatch(plan->program->dims, &plan->program->buffers.at[buffer].type,
                                      plan->vars, type, same_type ? ASH_ERROR_SHAPE : ASH_ERROR_TYPE, verb,
                                      diag);
    }
    return ash_plan__check_bytes(&now, given, diag);
}
