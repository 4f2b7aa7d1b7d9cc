/* SPDX-License-Identifier: MIT */
/* Shape inference of indexed access: gather, scatter, top-k. */
#include "infer.h"

static ash_status check_indices(const ash_inference *c) {
    ash_dtype dtype = c->ins[1].dtype;
    ASH_INFER_FAIL_IF(dtype != ASH_I32 && dtype != ASH_I64, c, ASH_ERROR_TYPE,
                      "indices must be i32 or i64");
    return ASH_OK;
}

/* Clamping an index needs an element to clamp to, unless there is no index. */
static ash_status check_some(const ash_inference *c, unsigned axis) {
    bool any = true;
    for (unsigned i = 0; i < c->ins[1].rank; i++) any = any && c->ins[1].dims[i] != 0;
    ASH_INFER_FAIL_IF(any && c->ins[0].dims[axis] == 0, c, ASH_ERROR_SHAPE,
                      "no element along axis %u to index", axis);
    return ASH_OK;
}

static ash_status push_dims(const ash_inference *c, ash_type *type, const ash_dim *dims, unsigned n) {
    ASH_INFER_FAIL_IF(type->rank + n > ASH_MAX_RANK, c, ASH_ERROR_SHAPE, "the result's rank exceeds %d",
                      ASH_MAX_RANK);
    memcpy(type->dims + type->rank, dims, n * sizeof *dims);
    type->rank += n;
    return ASH_OK;
}

static ash_status infer_gather(const ash_inference *c) {
    unsigned axis;
    const ash_type *x = &c->ins[0], *indices = &c->ins[1];
    ash_type *out = &c->outs[0];
    ASH_TRY(ash_infer__axis(c, &axis));
    ASH_TRY(check_some(c, axis));
    *out = (ash_type){.dtype = x->dtype};
    ASH_TRY(push_dims(c, out, x->dims, axis));
    ASH_TRY(push_dims(c, out, indices->dims, indices->rank));
    return push_dims(c, out, x->dims + axis + 1, x->rank - axis - 1);
}

/* Indices of the operand's rank, no larger than it but along `axis`. */
static ash_status check_elements(const ash_inference *c, unsigned axis) {
    const ash_type *x = &c->ins[0], *indices = &c->ins[1];
    ASH_INFER_FAIL_IF(x->rank != indices->rank, c, ASH_ERROR_SHAPE, "operands 0 and 1 differ in rank");
    for (unsigned i = 0; i < x->rank; i++) {
        bool inside = true;
        if (i != axis) ASH_TRY(ash_infer__at_least(c, x->dims[i], indices->dims[i], &inside));
        ASH_INFER_FAIL_IF(!inside, c, ASH_ERROR_SHAPE, "the indices can exceed the operand along dim %u",
                          i);
    }
    return ASH_OK;
}

static ash_status infer_gather_elements(const ash_inference *c) {
    unsigned axis;
    ASH_TRY(ash_infer__axis(c, &axis));
    ASH_TRY(check_elements(c, axis));
    ASH_TRY(check_some(c, axis));
    c->outs[0] = c->ins[1];
    c->outs[0].dtype = c->ins[0].dtype;
    return ASH_OK;
}

/* The number of coordinates that the indices' last dim holds, at most `most`. */
static ash_status coordinates(const ash_inference *c, unsigned most, unsigned *count) {
    const ash_type *indices = &c->ins[1];
    ASH_INFER_FAIL_IF(indices->rank == 0, c, ASH_ERROR_SHAPE, "the indices have no last dim");
    ash_dim last = indices->dims[indices->rank - 1];
    ASH_INFER_FAIL_IF(last < 1 || last > most, c, ASH_ERROR_SHAPE,
                      "the indices' last dim must be a number from 1 to %u: coordinates", most);
    *count = (unsigned)last;
    return ASH_OK;
}

static ash_status infer_gather_nd(const ash_inference *c) {
    const ash_type *x = &c->ins[0], *indices = &c->ins[1];
    ash_type *out = &c->outs[0];
    int64_t batch = ash_infer__attr(c, ASH_ATTR_BATCH)->i;
    unsigned count = 0;
    ASH_INFER_FAIL_IF(batch < 0 || batch >= x->rank || batch >= indices->rank, c, ASH_ERROR_SHAPE,
                      "%lld batch dims are too many", (long long)batch);
    for (int64_t i = 0; i < batch; i++)
        ASH_INFER_FAIL_IF(x->dims[i] != indices->dims[i], c, ASH_ERROR_SHAPE, "batch dim %lld differs",
                          (long long)i);
    ASH_TRY(coordinates(c, x->rank - (unsigned)batch, &count));
    for (unsigned i = 0; i < count; i++) ASH_TRY(check_some(c, (unsigned)batch + i));
    *out = (ash_type){.dtype = x->dtype};
    ASH_TRY(push_dims(c, out, indices->dims, indices->rank - 1));
    return push_dims(c, out, x->dims + batch + count, x->rank - (unsigned)batch - count);
}

ash_status ash_infer__gather(const ash_inference *c) {
    ASH_TRY(check_indices(c));
    switch (c->op) {
    case ASH_OP_GATHER: return infer_gather(c);
    case ASH_OP_GATHER_ELEMENTS: return infer_gather_elements(c);
    case ASH_OP_GATHER_ND: return infer_gather_nd(c);
    default: return ash_fail(c->diag, ASH_ERROR_INTERNAL, "gather without inference");
    }
}

static ash_status check_updates(const ash_inference *c, const ash_type *expected) {
    const ash_type *updates = &c->ins[2];
    bool same = updates->rank == expected->rank &&
                !memcmp(updates->dims, expected->dims, expected->rank * sizeof *expected->dims);
    ASH_INFER_FAIL_IF(!same, c, ASH_ERROR_SHAPE,
                      "the updates' shape does not follow from operands 0 and 1");
    return ASH_OK;
}

ash_status ash_infer__scatter(const ash_inference *c) {
    const ash_type *x = &c->ins[0], *indices = &c->ins[1];
    int64_t mode = ash_infer__attr(c, ASH_ATTR_MODE)->i;
    ASH_TRY(check_indices(c));
    ASH_INFER_FAIL_IF(x->dtype != c->ins[2].dtype, c, ASH_ERROR_TYPE, "operands 0 and 2 differ in dtype");
    ASH_INFER_FAIL_IF(mode < ASH_SCATTER_SET || mode > ASH_SCATTER_MAX, c, ASH_ERROR_INVALID_ARGUMENT,
                      "no scatter mode has the number %lld", (long long)mode);
    if (mode != ASH_SCATTER_SET) ASH_TRY(ash_infer__kind(c, 0, ASH_KINDS_NUMBER, "a number"));
    ash_type expected = {.dtype = x->dtype};
    if (c->op == ASH_OP_SCATTER_ELEMENTS) {
        unsigned axis;
        ASH_TRY(ash_infer__axis(c, &axis));
        ASH_TRY(check_elements(c, axis));
        ASH_TRY(check_some(c, axis));
        ASH_TRY(push_dims(c, &expected, indices->dims, indices->rank));
    } else {
        unsigned count = 0;
        ASH_TRY(coordinates(c, x->rank, &count));
        ASH_TRY(push_dims(c, &expected, indices->dims, indices->rank - 1));
        ASH_TRY(push_dims(c, &expected, x->dims + count, x->rank - count));
    }
    ASH_TRY(check_updates(c, &expected));
    c->outs[0] = *x;
    return ASH_OK;
}

ash_status ash_infer__topk(const ash_inference *c) {
    unsigned axis;
    ash_dim k = ash_infer__attr(c, ASH_ATTR_K)->i;
    bool enough;
    ASH_TRY(ash_infer__kind(c, 0, ASH_KINDS_NUMBER, "a number"));
    ASH_TRY(ash_infer__axis(c, &axis));
    ASH_TRY(ash_infer__at_least(c, c->ins[0].dims[axis], k, &enough));
    ASH_INFER_FAIL_IF(!enough, c, ASH_ERROR_SHAPE, "k can exceed the elements along axis %u", axis);
    c->outs[0] = c->ins[0];
    c->outs[0].dims[axis] = k;
    c->outs[1] = c->outs[0];
    c->outs[1].dtype = ASH_I64;
    return ASH_OK;
}

ash_status ash_infer__nms(const ash_inference *c) {
    const ash_type *boxes = &c->ins[0], *scores = &c->ins[1];
    ash_dim k = ash_infer__attr(c, ASH_ATTR_K)->i;
    bool enough;
    ASH_TRY(ash_infer__kind(c, 0, ASH_KINDS_FLOAT, "floating point"));
    ASH_TRY(ash_infer__same_dtype(c, 0, 3));
    ASH_INFER_FAIL_IF(boxes->rank != 3 || scores->rank != 3 || boxes->dims[2] != 4 ||
                          boxes->dims[0] != scores->dims[0] || boxes->dims[1] != scores->dims[2],
                      c, ASH_ERROR_SHAPE, "boxes must be [b, n, 4] and scores [b, c, n]");
    ASH_INFER_FAIL_IF(c->ins[2].rank || c->ins[3].rank, c, ASH_ERROR_SHAPE,
                      "operands 2 and 3 must be scalars");
    ASH_TRY(ash_infer__at_least(c, boxes->dims[1], k, &enough));
    ASH_INFER_FAIL_IF(!enough, c, ASH_ERROR_SHAPE, "k can exceed the number of boxes");
    c->outs[0] = (ash_type){.dtype = ASH_I64, .rank = 3, .dims = {scores->dims[0], scores->dims[1], k}};
    c->outs[1] = (ash_type){.dtype = ASH_I64, .rank = 2, .dims = {scores->dims[0], scores->dims[1]}};
    return ASH_OK;
}
