/* SPDX-License-Identifier: MIT */
/* Structs that grow at their end, between callers and a library that know more or less of them. */
#include "sized.h"

enum { MOST = 1 << 16 }; /* bytes that no struct will have: a size that was never set */

/* The bytes that the caller knows. */
static ash_status read_size(const ash_sized *of, const void *given, size_t *out, ash_diag *diag) {
    memcpy(out, given, sizeof *out);
    if (*out == 0) *out = of->first;
    ASH_FAIL_IF(*out < of->first || *out > MOST, diag, ASH_ERROR_INVALID_ARGUMENT,
                "the size in %s is %zu, which is none that it can have: begin it as ASH_INIT(%s)", of->name,
                *out, of->name);
    return ASH_OK;
}

ash_status ash_sized__take(const ash_sized *of, const void *given, void *own, ash_diag *diag) {
    size_t size = 0;
    if (given) ASH_TRY(read_size(of, given, &size, diag));
    for (size_t i = of->known; i < size; i++)
        ASH_FAIL_IF(((const char *)given)[i], diag, ASH_ERROR_UNSUPPORTED,
                    "%s has something set at byte %zu, which ashlar " ASH_VERSION
                    " does not know: it has %zu bytes",
                    of->name, i, of->known);
    memset(own, 0, of->known);
    if (given) memcpy(own, given, ASH_MIN(size, of->known));
    memcpy(own, &of->known, sizeof of->known);
    return ASH_OK;
}

ash_status ash_sized__give(const ash_sized *of, const void *own, void *given, ash_diag *diag) {
    size_t size;
    ASH_TRY(read_size(of, given, &size, diag));
    memcpy((char *)given + sizeof size, (const char *)own + sizeof size,
           ASH_MIN(size, of->known) - sizeof size);
    return ASH_OK;
}
