/* SPDX-License-Identifier: MIT */
/* The reference evaluator: a function of the caller sees its operands in their own dtypes, in either
 * precision, and all chunks in one call. */
#include "eval.h"

struct call {
    const ash_allocator *allocator;
    void **data;     /* operands, then results, then scratch */
    ash_type *types; /* operands, then results */
    size_t *sizes;   /* bytes, of each in `data` */
    size_t n_ins, n_outs;
    ash_diag *diag;
};

static size_t slots(const struct call *c) {
    return c->n_ins + c->n_outs + 1;
}

static ash_status allocate(struct call *c, size_t slot, size_t size) {
    c->sizes[slot] = ASH_MAX(size, (size_t)1);
    c->data[slot] = c->allocator->alloc(c->allocator->user, c->sizes[slot], 64);
    return c->data[slot] ? ASH_OK : ASH_NO_MEMORY(c->diag);
}

static ash_status add_tensor(struct call *c, size_t slot, const ash_wide *tensor) {
    c->types[slot] = (ash_type){.dtype = tensor->dtype, .rank = tensor->rank};
    memcpy(c->types[slot].dims, tensor->dims, tensor->rank * sizeof *tensor->dims);
    return allocate(c, slot, (size_t)tensor->count * ash_dtype_size(tensor->dtype));
}

static ash_status call(struct call *c, const ash_eval *e) {
    const ash_function *function = ash_node__function(e->graph, e->node);
    size_t scratch = (size_t)ash_node_int(e->node, ASH_ATTR_SCRATCH);
    int64_t chunks = ash_eval__dim(e, ash_node_int(e->node, ASH_ATTR_CHUNKS));
    for (size_t i = 0; i < c->n_ins; i++) {
        ASH_TRY(add_tensor(c, i, &e->ins[i]));
        ash_wide_store(&e->ins[i], c->data[i]);
    }
    for (size_t i = 0; i < c->n_outs; i++) {
        ASH_TRY(add_tensor(c, c->n_ins + i, &e->outs[i]));
        memset(c->data[c->n_ins + i], 0, c->sizes[c->n_ins + i]);
    }
    if (scratch) ASH_TRY(allocate(c, c->n_ins + c->n_outs, scratch));
    ash_call made = {.ins = (const void *const *)c->data,
                     .outs = c->data + c->n_ins,
                     .in_types = c->types,
                     .out_types = c->types + c->n_ins,
                     .n_ins = (uint32_t)c->n_ins,
                     .n_outs = (uint32_t)c->n_outs,
                     .scratch = c->data[c->n_ins + c->n_outs],
                     .end = chunks,
                     .chunks = chunks};
    if (chunks > 0) ASH_TRY(ash_function__run(function, &made, c->diag));
    for (size_t i = 0; i < c->n_outs; i++) ash_wide_load(&e->outs[i], c->data[c->n_ins + i]);
    return ASH_OK;
}

ash_status ash_eval__custom(const ash_eval *e) {
    const ash_allocator *a = e->graph->allocator;
    struct call c = {.allocator = a, .n_ins = e->node->n_ins, .n_outs = e->node->n_outs, .diag = e->diag};
    size_t n = slots(&c);
    c.data = ash_mem_calloc(a, n, sizeof *c.data);
    c.types = ash_mem_calloc(a, n, sizeof *c.types);
    c.sizes = ash_mem_calloc(a, n, sizeof *c.sizes);
    ash_status status = c.data && c.types && c.sizes ? call(&c, e) : ASH_NO_MEMORY(e->diag);
    for (size_t i = 0; c.data && i < n; i++)
        if (c.data[i]) a->free(a->user, c.data[i], c.sizes[i]);
    ash_mem_free(a, c.data, n, sizeof *c.data);
    ash_mem_free(a, c.types, n, sizeof *c.types);
    ash_mem_free(a, c.sizes, n, sizeof *c.sizes);
    return status;
}
