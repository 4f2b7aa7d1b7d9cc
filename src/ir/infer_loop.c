/* SPDX-License-Identifier: MIT */
/* Types of loops and of their arguments. What depends on what is checked in loops.c. */
#include "infer.h"

static int64_t number(const ash_attr *attrs, size_t n_attrs, ash_attr_key key) {
    for (size_t i = 0; i < n_attrs; i++)
        if (attrs[i].key == key) return attrs[i].i;
    return -1;
}

bool ash_loop__parts(const ash_attr *attrs, size_t n_attrs, size_t n_ins, size_t n_outs,
                     ash_loop_parts *out) {
    int64_t until = number(attrs, n_attrs, ASH_ATTR_UNTIL), most = ASH_MANY,
            carried = number(attrs, n_attrs, ASH_ATTR_CARRIED),
            scanned = number(attrs, n_attrs, ASH_ATTR_SCANNED),
            given = number(attrs, n_attrs, ASH_ATTR_GIVEN), own = (int64_t)n_outs - until - carried;
    if (until < 0 || carried < 0 || scanned < 0 || given < 0 || own < 0) return false;
    if (carried > most || scanned > most || given > most) return false;
    *out = (ash_loop_parts){.body = number(attrs, n_attrs, ASH_ATTR_BODY) > 0,
                            .until = (uint32_t)until,
                            .carried = (uint32_t)carried,
                            .scanned = (uint32_t)scanned,
                            .stacked = (uint32_t)own};
    out->given = out->body ? 0 : (uint32_t)given;
    out->go = out->body ? 0 : 1 + out->carried + out->scanned + out->given;
    out->init = out->go + out->until;
    out->xs = out->init + out->carried;
    out->gives = out->xs + out->scanned;
    out->next_go = out->captures = out->gives + out->given;
    out->next = out->next_go + out->until;
    out->ys = out->next + out->carried;
    out->finals = out->until;
    out->stacks = out->finals + out->carried;
    if (scanned + own > ASH_LOOP_PARTS) return false;
    if (!out->body) return n_ins == out->ys + out->stacked;
    if (n_ins < out->captures) return false;
    out->captured = (uint32_t)n_ins - out->captures;
    return true;
}

ash_status ash_infer__argument(const ash_inference *c) {
    const ash_attr *dims = ash_infer__attr(c, ASH_ATTR_DIMS);
    c->outs[0] = (ash_type){.dtype = (ash_dtype)ash_infer__attr(c, ASH_ATTR_DTYPE)->i, .rank = dims->count};
    memcpy(c->outs[0].dims, dims->list, dims->count * sizeof *dims->list);
    return ASH_OK;
}

ash_status ash_infer__stack(const ash_inference *c) {
    ash_type *out = &c->outs[0];
    *out = c->ins[1];
    ASH_INFER_FAIL_IF(out->rank == ASH_MAX_RANK, c, ASH_ERROR_UNSUPPORTED,
                      "values of rank %u are stacked, which makes a rank above %d", out->rank,
                      ASH_MAX_RANK);
    memmove(out->dims + 1, out->dims, out->rank++ * sizeof *out->dims);
    out->dims[0] = ash_infer__attr(c, ASH_ATTR_TRIPS)->i;
    return ASH_OK;
}

static bool is_scalar(const ash_type *type, ash_dtype dtype) {
    return type->rank == 0 && type->dtype == dtype;
}

/* The type of one of `count` slices along dim 0. */
static bool is_slice(const ash_type *slice, const ash_type *whole, ash_dim count) {
    return whole->rank == slice->rank + 1 && whole->dtype == slice->dtype && whole->dims[0] == count &&
           !memcmp(whole->dims + 1, slice->dims, slice->rank * sizeof *slice->dims);
}

static ash_status check_operands(const ash_inference *c, const ash_loop_parts *p, ash_dim trips) {
    for (unsigned k = 0; k < p->until; k++)
        ASH_INFER_FAIL_IF(!is_scalar(&c->ins[p->go], ASH_BOOL), c, ASH_ERROR_TYPE,
                          "operand %u, whether to begin, must be a bool scalar", p->go);
    for (uint32_t k = 0; k < p->scanned; k++)
        ASH_INFER_FAIL_IF(c->ins[p->xs + k].rank == 0 || c->ins[p->xs + k].dims[0] != trips, c,
                          ASH_ERROR_SHAPE, "dim 0 of operand %u, which is scanned, is not `trips`",
                          p->xs + k);
    return ASH_OK;
}

/* What the body takes and makes, and the loop's results, with the types of the operands. */
static ash_status check_body(const ash_inference *c, const ash_loop_parts *p, ash_dim trips) {
    ASH_INFER_FAIL_IF(!is_scalar(&c->ins[ASH_LOOP_ITERATION], ASH_I64), c, ASH_ERROR_TYPE,
                      "operand 0, the iteration's number, must be an i64 scalar");
    ASH_INFER_FAIL_IF(p->until && !is_scalar(&c->ins[p->next_go], ASH_BOOL), c, ASH_ERROR_TYPE,
                      "operand %u, whether to go on, must be a bool scalar", p->next_go);
    for (uint32_t k = 0; k < p->carried; k++) {
        uint32_t argument = ASH_LOOP_CARRIED + k, first = p->init + k, next = p->next + k;
        ASH_INFER_FAIL_IF(!ash_type_equal(&c->ins[argument], &c->ins[first]), c, ASH_ERROR_SHAPE,
                          "operands %u and %u, an argument and what it begins with, differ in type",
                          argument, first);
        ASH_INFER_FAIL_IF(!ash_type_equal(&c->ins[argument], &c->ins[next]), c, ASH_ERROR_SHAPE,
                          "operands %u and %u, a carried value before and after an iteration, differ "
                          "in type",
                          argument, next);
    }
    for (uint32_t k = 0; k < p->scanned; k++) {
        uint32_t slice = ASH_LOOP_CARRIED + p->carried + k;
        ASH_INFER_FAIL_IF(!is_slice(&c->ins[slice], &c->ins[p->xs + k], trips), c, ASH_ERROR_SHAPE,
                          "operand %u is no slice of operand %u", slice, p->xs + k);
    }
    for (uint32_t k = 0; k < p->given; k++) {
        uint32_t argument = ASH_LOOP_CARRIED + p->carried + p->scanned + k, outer = p->gives + k;
        ASH_INFER_FAIL_IF(!ash_type_equal(&c->ins[argument], &c->ins[outer]), c, ASH_ERROR_SHAPE,
                          "operands %u and %u, an argument and the value that it is, differ in type",
                          argument, outer);
    }
    return ASH_OK;
}

static ash_status check_results(const ash_inference *c, const ash_loop_parts *p, ash_dim trips) {
    for (uint32_t k = 0; k < p->until; k++)
        ASH_INFER_FAIL_IF(!is_scalar(&c->outs[k], ASH_I64), c, ASH_ERROR_TYPE,
                          "result 0, the number of iterations, is an i64 scalar");
    for (uint32_t k = 0; k < p->carried; k++)
        ASH_INFER_FAIL_IF(!ash_type_equal(&c->outs[p->finals + k], &c->ins[p->init + k]), c,
                          ASH_ERROR_SHAPE, "result %u has another type than operand %u", p->finals + k,
                          p->init + k);
    for (uint32_t k = 0; k < p->stacked; k++) {
        const ash_type *whole = &c->outs[p->stacks + k];
        bool fits = whole->rank && whole->dims[0] == trips &&
                    (p->body || is_slice(&c->ins[p->ys + k], whole, trips));
        ASH_INFER_FAIL_IF(!fits, c, ASH_ERROR_SHAPE, "result %u does not consist of `trips` slices",
                          p->stacks + k);
    }
    return ASH_OK;
}

ash_status ash_infer__loop(const ash_inference *c) {
    const ash_attr *results = ash_infer__attr(c, ASH_ATTR_RESULTS);
    const ash_dim trips = ash_infer__attr(c, ASH_ATTR_TRIPS)->i;
    uint32_t pos = 0;
    size_t count = 0;
    ash_loop_parts p;
    for (; count < ASH_OP_OUTS && ash_results__next(results, &pos, &c->outs[count]);) count++;
    ASH_FAIL_IF(count == 0 || pos != results->count, c->diag, ASH_ERROR_INVALID_ARGUMENT,
                "a loop has the types of 1 to %d results", (int)ASH_OP_OUTS);
    ASH_FAIL_IF(!ash_loop__parts(c->attrs, c->n_attrs, c->n_ins, count, &p), c->diag,
                ASH_ERROR_INVALID_ARGUMENT,
                "%zu operands and %zu results do not fit what the attributes say is carried and scanned",
                c->n_ins, count);
    for (size_t i = 0; i < count; i++)
        for (unsigned d = c->outs[i].rank; d < ASH_MAX_RANK; d++) c->outs[i].dims[d] = 0;
    ASH_TRY(check_operands(c, &p, trips));
    if (!p.body) ASH_TRY(check_body(c, &p, trips));
    return check_results(c, &p, trips);
}
