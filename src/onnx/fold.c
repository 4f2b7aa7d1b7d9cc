/* SPDX-License-Identifier: MIT */
/* Elements of values that are computed from constants alone.
 *
 * Attributes of core operators must be known at import, but a model may compute them: a Resize takes its
 * scales through a Cast and a Mul, say. When a lowering asks for such a value, the nodes that it comes from
 * are evaluated with the reference evaluator and the result is kept as a constant. Nothing is folded that
 * nobody asks for; that is the optimiser's work. What one question may cost is bounded. */
#include <stdlib.h>

#include "import.h"

enum { MAX_NODES = 4096, MAX_ELEMENTS = 1 << 16 /* of one value */ };

typedef struct fold {
    ash_import *im;
    ash_value *inputs; /* graph inputs that are taken for constants: room for `most`; NULL: none is */
    size_t n_inputs, most;
    ASH_VEC(uint32_t) nodes; /* needed ones; in topological order once they are collected */
    ash_map seen;            /* nodes */
    ash_map wides;           /* value -> index of `made` */
    ASH_VEC(ash_wide) made;
} fold;

static bool small(const ash_type *type) {
    int64_t count;
    return ash_type_static_count(type, &count) && count <= MAX_ELEMENTS;
}

/* The same of an operand of the fold; where inputs are taken for constants, dims are what they can be. */
static bool is_small(const fold *f, const ash_type *type) {
    return f->inputs ? ash_type_max_count(f->im->graph->dims, type) <= MAX_ELEMENTS : small(type);
}

static bool suppose(fold *f, ash_value input) {
    for (size_t i = 0; i < f->n_inputs; i++)
        if (f->inputs[i] == input) return true;
    if (f->n_inputs == f->most) return false;
    f->inputs[f->n_inputs++] = input;
    return true;
}

/* Adds the node of a value, if it has not been added; false when the value is not made of constants, or too
 * large. */
static bool need(fold *f, ash_value value) {
    const ash_value_info *info = ash_graph__value(f->im->graph, value);
    uint64_t index;
    if (!is_small(f, &info->type)) return false;
    if (info->kind == ASH_VALUE_CONSTANT) return true;
    if (info->kind == ASH_VALUE_INPUT && f->inputs) return suppose(f, value);
    if (info->kind != ASH_VALUE_NODE || f->nodes.len == MAX_NODES) return false;
    if (ash_map_get(&f->seen, info->node, &index)) return true;
    return ash_map_put(&f->seen, info->node, 0) && ash_vec_push(f->im->allocator, &f->nodes, info->node);
}

static int by_number(const void *a, const void *b) {
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return (x > y) - (x < y);
}

static bool collect(fold *f, ash_value value) {
    if (!need(f, value)) return false;
    for (size_t i = 0; i < f->nodes.len; i++) {
        const ash_node *node = &f->im->graph->nodes.at[f->nodes.at[i]];
        for (size_t k = 0; k < node->n_ins; k++)
            if (!need(f, node->ins[k])) return false;
        /* A window over a small operand can still be a long loop; nobody computes shapes with one. */
        ash_class class = ash_op_infos[node->op].class;
        if (class == ASH_CLASS_CONV || class == ASH_CLASS_POOL || class == ASH_CLASS_MATMUL) return false;
    }
    if (f->nodes.len) qsort(f->nodes.at, f->nodes.len, sizeof *f->nodes.at, by_number);
    return true;
}

/* A wide tensor of the value's type, entered under the value; SIZE_MAX when there is no memory. */
static size_t make(fold *f, ash_value value) {
    const ash_type *type = ash_graph__type(f->im->graph, value);
    ash_wide wide;
    if (!ash_vec_reserve(f->im->allocator, &f->made, 1) ||
        ash_wide_alloc(f->im->allocator, type->dtype, type->rank, type->dims, &wide, NULL) != ASH_OK)
        return SIZE_MAX;
    f->made.at[f->made.len] = wide;
    return ash_map_put(&f->wides, value, f->made.len) ? f->made.len++
                                                      : (ash_wide_free(f->im->allocator, &wide), SIZE_MAX);
}

static size_t operand(fold *f, ash_value value) {
    uint64_t index;
    if (ash_map_get(&f->wides, value, &index)) return (size_t)index;
    size_t made = make(f, value);
    if (made != SIZE_MAX)
        ash_wide_load(&f->made.at[made], ash_graph__value(f->im->graph, value)->blob->data);
    return made;
}

static bool evaluate(fold *f, const ash_node *node) {
    ash_arena *scratch = f->im->scratch;
    size_t n_outs = node->n_outs;
    ash_wide *ins = ash_arena_alloc(scratch, node->n_ins, sizeof *ins), outs[2];
    if (!ins || n_outs > ASH_COUNT(outs)) return false;
    for (size_t k = 0; k < node->n_ins; k++)
        if (operand(f, node->ins[k]) == SIZE_MAX) return false;
    for (size_t k = 0; k < n_outs; k++) {
        if (!small(ash_graph__type(f->im->graph, node->out + (ash_value)k))) return false;
        if (make(f, node->out + (ash_value)k) == SIZE_MAX) return false;
    }
    for (size_t k = 0; k < node->n_ins; k++) ins[k] = f->made.at[operand(f, node->ins[k])];
    for (size_t k = 0; k < n_outs; k++) outs[k] = f->made.at[f->made.len - n_outs + k];
    return ash_eval_node(f->im->graph, node, NULL, ins, outs, ASH_EVAL_DTYPE, NULL) == ASH_OK;
}

/* True when no attribute of the needed nodes holds a variable. */
static bool attributes_known(const fold *f) {
    for (size_t i = 0; i < f->nodes.len; i++) {
        const ash_node *node = &f->im->graph->nodes.at[f->nodes.at[i]];
        if (!ash_node__is_pure(f->im->graph, node) || !ash_node_has_numbers(node)) return false;
    }
    return true;
}

static ash_value run(fold *f, ash_value value) {
    ash_import *im = f->im;
    uint64_t index;
    ash_blob *blob;
    if (!collect(f, value) || !attributes_known(f)) return ASH_NO_VALUE;
    for (size_t i = 0; i < f->nodes.len; i++)
        if (!evaluate(f, &im->graph->nodes.at[f->nodes.at[i]])) return ASH_NO_VALUE;
    if (!ash_map_get(&f->wides, value, &index)) return ASH_NO_VALUE;
    const ash_wide *wide = &f->made.at[index];
    ash_type type = ash_import__type(im, value);
    if (ash_blob_create_owned(im->allocator, (size_t)wide->count * ash_dtype_size(type.dtype), &blob,
                              NULL) != ASH_OK)
        return ASH_NO_VALUE;
    im->kept += blob->size;
    ash_wide_store(wide, (void *)blob->data);
    return ash_graph__constant_blob(im->graph, &type, blob);
}

bool ash_import__inputs_of(ash_import *im, ash_value value, ash_value *inputs, size_t most, size_t *count) {
    fold f = {.im = im, .inputs = inputs, .most = most};
    ash_map_init(&f.seen, im->allocator);
    bool known = value != ASH_NO_VALUE && collect(&f, value);
    ash_vec_free(im->allocator, &f.nodes);
    ash_map_free(&f.seen);
    *count = f.n_inputs;
    return known && f.n_inputs > 0;
}

ash_value ash_import__fold(ash_import *im, ash_value value) {
    uint64_t known;
    if (value == ASH_NO_VALUE || ash_graph__value(im->graph, value)->kind == ASH_VALUE_CONSTANT)
        return value;
    if (ash_map_get(&im->folded, value, &known)) return (ash_value)known;
    fold f = {.im = im};
    ash_map_init(&f.seen, im->allocator);
    ash_map_init(&f.wides, im->allocator);
    ash_value result = run(&f, value);
    for (size_t i = 0; i < f.made.len; i++) ash_wide_free(im->allocator, &f.made.at[i]);
    ash_vec_free(im->allocator, &f.made);
    ash_vec_free(im->allocator, &f.nodes);
    ash_map_free(&f.seen);
    ash_map_free(&f.wides);
    if (!ash_map_put(&im->folded, value, result))
        return ash_import__fail(im, ASH_ERROR_OUT_OF_MEMORY, "out of memory");
    return result;
}
