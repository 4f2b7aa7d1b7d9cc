/* SPDX-License-Identifier: MIT */
/* Types: equality, sizes, what makes one valid. */
#include "inside.h"

bool ash_type_equal(const ash_type *a, const ash_type *b) {
    return a->dtype == b->dtype && a->rank == b->rank &&
           !memcmp(a->dims, b->dims, a->rank * sizeof *a->dims);
}

bool ash_type_static_count(const ash_type *type, int64_t *count) {
    *count = 1;
    for (unsigned i = 0; i < type->rank; i++) {
        if (!ash_dim_is_const(type->dims[i])) return false;
        *count *= type->dims[i];
    }
    return true;
}

int64_t ash_type_max_count(const ash_dims *dims, const ash_type *type) {
    int64_t count = 1, min, max;
    for (unsigned i = 0; i < type->rank; i++) {
        ash_dims_bounds(dims, type->dims[i], &min, &max);
        count *= max;
    }
    return count;
}

int64_t ash_type_max_bytes(const ash_dims *dims, const ash_type *type) {
    return ash_type_max_count(dims, type) * (int64_t)ash_dtype_size(type->dtype);
}

int64_t ash_type_count(const ash_dims *dims, const ash_type *type, const int64_t *vars) {
    int64_t count = 1;
    for (unsigned i = 0; i < type->rank; i++) count *= ash_dims_eval(dims, type->dims[i], vars);
    return count;
}

void ash_dims__print_list(const ash_dims *dims, const ash_dim *list, size_t n, ash_text *out) {
    ash_text_add(out, "[");
    for (size_t i = 0; i < n; i++) {
        if (i) ash_text_add(out, ", ");
        ash_dims_print(dims, list[i], out);
    }
    ash_text_add(out, "]");
}

void ash_type_print(const ash_dims *dims, const ash_type *type, ash_text *out) {
    ash_text_add(out, "%s", ash_dtype_name(type->dtype));
    ash_dims__print_list(dims, type->dims, ASH_MIN(type->rank, (unsigned)ASH_MAX_RANK), out);
}

/* A failure about one type, which ends with the type. */
static ash_status fail_type(const ash_dims *dims, const ash_type *type, ash_diag *diag, ash_status code,
                            const char *what) {
    ash_text text;
    ash_text_init(&text, dims->allocator);
    ash_type_print(dims, type, &text);
    ash_fail(diag, code, "%s: %s", what, text.at && !text.failed ? text.at : "a type");
    ash_text_free(&text);
    return code;
}

ash_status ash_type__check(const ash_dims *dims, const ash_type *type, ash_diag *diag) {
    ASH_FAIL_IF((unsigned)type->dtype >= ASH_DTYPE_COUNT, diag, ASH_ERROR_INVALID_ARGUMENT,
                "no dtype has the number %d", (int)type->dtype);
    ASH_FAIL_IF(type->rank > ASH_MAX_RANK, diag, ASH_ERROR_SHAPE, "rank %u, at most %d", type->rank,
                ASH_MAX_RANK);
    int64_t bytes = (int64_t)ash_dtype_size(type->dtype), min, max;
    for (unsigned i = 0; i < type->rank; i++) {
        ASH_FAIL_IF(!ash_dims__valid(dims, type->dims[i]), diag, ASH_ERROR_INVALID_ARGUMENT,
                    "dim %u is %lld, neither a size nor a dim of this graph", i, (long long)type->dims[i]);
        ash_dims_bounds(dims, type->dims[i], &min, &max);
        if (min < 0) return fail_type(dims, type, diag, ASH_ERROR_SHAPE, "a dim can be negative");
        if (type->dims[i] < 0 && ash_dims_has_open(dims)) continue; /* of an open graph: nobody knows yet */
        if (max && !ash_mul_i64(bytes, max, &bytes))
            return fail_type(dims, type, diag, ASH_ERROR_OUT_OF_RANGE, "a tensor can exceed 2^63 bytes");
    }
    return ASH_OK;
}
