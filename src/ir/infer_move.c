/* SPDX-License-Identifier: MIT */
/* Shape inference of the operators that move elements. */
#include "infer.h"

/* The failure, followed by the dims that an attribute asks for and the operands' types. */
static ash_status fail_dims(const ash_inference *c, const char *what, const ash_attr *dims) {
    ash_text text;
    ash_text_init(&text, c->dims->allocator);
    ash_dims__print_list(c->dims, dims->list, dims->count, &text);
    ash_infer__fail(c, ASH_ERROR_SHAPE, "%s %s", what, text.at && !text.failed ? text.at : "dims");
    ash_text_free(&text);
    return ASH_ERROR_SHAPE;
}

static void set_dims(ash_type *type, ash_dtype dtype, const ash_attr *dims) {
    *type = (ash_type){.dtype = dtype, .rank = dims->count};
    if (dims->count) memcpy(type->dims, dims->list, dims->count * sizeof *dims->list);
}

static ash_status multiply(const ash_inference *c, const ash_type *type, ash_dim *count) {
    *count = 1;
    for (unsigned i = 0; i < type->rank; i++)
        ASH_TRY(ash_infer__dim(c, ASH_DIM_MUL, *count, type->dims[i], count));
    return ASH_OK;
}

static ash_status infer_reshape(const ash_inference *c) {
    const ash_attr *dims = ash_infer__attr(c, ASH_ATTR_DIMS);
    ash_dim before, after;
    set_dims(&c->outs[0], c->ins[0].dtype, dims);
    ASH_TRY(ash_type__check(c->dims, &c->outs[0], c->diag));
    ASH_TRY(multiply(c, &c->ins[0], &before));
    ASH_TRY(multiply(c, &c->outs[0], &after));
    return before == after ? ASH_OK : fail_dims(c, "another number of elements than", dims);
}

static ash_status infer_transpose(const ash_inference *c) {
    const ash_type *in = &c->ins[0];
    const int64_t *perm;
    uint32_t seen = 0;
    ASH_TRY(ash_infer__list(c, ASH_ATTR_PERM, in->rank, 0, &perm));
    c->outs[0] = *in;
    for (unsigned i = 0; i < in->rank; i++) {
        ASH_INFER_FAIL_IF(perm[i] >= in->rank || seen >> perm[i] & 1, c, ASH_ERROR_SHAPE,
                          "perm is no permutation of %u dims", in->rank);
        seen |= UINT32_C(1) << perm[i];
        c->outs[0].dims[i] = in->dims[perm[i]];
    }
    return ASH_OK;
}

static ash_status infer_broadcast(const ash_inference *c) {
    const ash_type *in = &c->ins[0];
    const ash_attr *dims = ash_infer__attr(c, ASH_ATTR_DIMS);
    if (in->rank > dims->count) return fail_dims(c, "the rank exceeds that of", dims);
    for (unsigned i = 0; i < in->rank; i++) {
        ash_dim to = dims->list[dims->count - in->rank + i];
        if (in->dims[i] != to && in->dims[i] != 1) return fail_dims(c, "cannot be broadcast to", dims);
    }
    set_dims(&c->outs[0], in->dtype, dims);
    return ASH_OK;
}

/* All of start + i * step for 0 <= i < count lie in [0, size). */
static ash_status check_slice(const ash_inference *c, unsigned axis, ash_dim size, ash_dim start,
                              int64_t step, ash_dim count) {
    ash_dim reach, last;
    bool fits;
    if (count == 0) return ASH_OK;
    ASH_INFER_FAIL_IF(step == 0 || step == INT64_MIN, c, ASH_ERROR_INVALID_ARGUMENT,
                      "step %lld along dim %u", (long long)step, axis);
    ASH_TRY(ash_infer__dim(c, ASH_DIM_SUB, count, 1, &reach));
    ASH_TRY(ash_infer__dim(c, ASH_DIM_MUL, reach, step < 0 ? -step : step, &reach));
    if (step > 0) {
        ASH_TRY(ash_infer__dim(c, ASH_DIM_ADD, start, reach, &last));
        ASH_TRY(ash_infer__dim(c, ASH_DIM_ADD, last, 1, &last));
        ASH_TRY(ash_infer__at_least(c, size, last, &fits));
    } else {
        ASH_TRY(ash_infer__at_least(c, start, reach, &fits));
        /* A slice of nothing may start anywhere. */
        ASH_TRY(ash_infer__dim(c, ASH_DIM_MIN, count, 1, &last));
        ASH_TRY(ash_infer__dim(c, ASH_DIM_ADD, start, last, &last));
        bool inside;
        ASH_TRY(ash_infer__at_least(c, size, last, &inside));
        fits = fits && inside;
    }
    ASH_INFER_FAIL_IF(!fits, c, ASH_ERROR_SHAPE, "the slice can leave dim %u", axis);
    return ASH_OK;
}

static ash_status infer_slice(const ash_inference *c) {
    const ash_type *in = &c->ins[0];
    const int64_t *starts, *steps, *dims;
    ASH_TRY(ash_infer__list(c, ASH_ATTR_STARTS, in->rank, 0, &starts));
    ASH_TRY(ash_infer__list(c, ASH_ATTR_STEPS, in->rank, INT64_MIN, &steps));
    ASH_TRY(ash_infer__list(c, ASH_ATTR_DIMS, in->rank, 0, &dims));
    for (unsigned i = 0; i < in->rank; i++)
        ASH_TRY(check_slice(c, i, in->dims[i], starts[i], steps[i], dims[i]));
    set_dims(&c->outs[0], in->dtype, ash_infer__attr(c, ASH_ATTR_DIMS));
    return ASH_OK;
}

static ash_status infer_pad(const ash_inference *c) {
    const ash_type *in = &c->ins[0];
    const int64_t *before, *after, *interior;
    ASH_INFER_FAIL_IF(c->ins[1].rank != 0, c, ASH_ERROR_SHAPE, "the padding value must be a scalar");
    ASH_TRY(ash_infer__same_dtype(c, 0, 1));
    ASH_TRY(ash_infer__list(c, ASH_ATTR_BEFORE, in->rank, 0, &before));
    ASH_TRY(ash_infer__list(c, ASH_ATTR_AFTER, in->rank, 0, &after));
    ASH_TRY(ash_infer__list(c, ASH_ATTR_INTERIOR, in->rank, 0, &interior));
    c->outs[0] = *in;
    for (unsigned i = 0; i < in->rank; i++) {
        ash_dim dim = in->dims[i], gaps = 0;
        if (interior[i]) {
            ASH_TRY(ash_infer__dim(c, ASH_DIM_SUB, dim, 1, &gaps));
            ASH_TRY(ash_infer__dim(c, ASH_DIM_MAX, gaps, 0, &gaps));
            ASH_TRY(ash_infer__dim(c, ASH_DIM_MUL, gaps, interior[i], &gaps));
        }
        ASH_TRY(ash_infer__dim(c, ASH_DIM_ADD, dim, gaps, &dim));
        ASH_TRY(ash_infer__dim(c, ASH_DIM_ADD, dim, before[i], &dim));
        ASH_TRY(ash_infer__dim(c, ASH_DIM_ADD, dim, after[i], &c->outs[0].dims[i]));
    }
    return ASH_OK;
}

static ash_status infer_concat(const ash_inference *c) {
    unsigned axis;
    ASH_TRY(ash_infer__axis(c, &axis));
    ASH_TRY(ash_infer__same_dtype(c, 0, c->n_ins - 1));
    c->outs[0] = c->ins[0];
    for (size_t i = 1; i < c->n_ins; i++) {
        bool fits = c->ins[i].rank == c->ins[0].rank;
        for (unsigned k = 0; fits && k < c->ins[0].rank; k++)
            fits = k == axis || c->ins[i].dims[k] == c->ins[0].dims[k];
        ASH_INFER_FAIL_IF(!fits, c, ASH_ERROR_SHAPE, "operands 0 and %zu differ outside axis %u", i, axis);
        ASH_TRY(ash_infer__dim(c, ASH_DIM_ADD, c->outs[0].dims[axis], c->ins[i].dims[axis],
                               &c->outs[0].dims[axis]));
    }
    return ASH_OK;
}

static ash_status infer_iota(const ash_inference *c) {
    const ash_attr *dims = ash_infer__attr(c, ASH_ATTR_DIMS);
    int64_t axis = ash_infer__attr(c, ASH_ATTR_AXIS)->i;
    ash_dtype dtype = (ash_dtype)ash_infer__attr(c, ASH_ATTR_DTYPE)->i;
    ASH_FAIL_IF(dtype == ASH_BOOL, c->diag, ASH_ERROR_TYPE, "an index is no bool");
    ASH_FAIL_IF(axis < 0 || axis >= dims->count, c->diag, ASH_ERROR_SHAPE, "axis %lld in rank %u",
                (long long)axis, dims->count);
    set_dims(&c->outs[0], dtype, dims);
    return ASH_OK;
}

ash_status ash_infer__move(const ash_inference *c) {
    switch (c->op) {
    case ASH_OP_RESHAPE: return infer_reshape(c);
    case ASH_OP_TRANSPOSE: return infer_transpose(c);
    case ASH_OP_BROADCAST: return infer_broadcast(c);
    case ASH_OP_SLICE: return infer_slice(c);
    case ASH_OP_PAD: return infer_pad(c);
    case ASH_OP_CONCAT: return infer_concat(c);
    case ASH_OP_IOTA: return infer_iota(c);
    default: return ash_fail(c->diag, ASH_ERROR_INTERNAL, "movement without inference");
    }
}
