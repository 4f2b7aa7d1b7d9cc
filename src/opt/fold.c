/* SPDX-License-Identifier: MIT */
/* fold: nodes whose operands are constants are evaluated now, by the reference evaluator, with every result
 * rounded to its dtype: bit for bit what the graph says. And constants that hold one number many times
 * become a broadcast of it, the form in which rules and code generation see a number rather than an array.
 *
 * Only small work is done here. Larger constant subgraphs stay in the graph: they run once, in the prologue
 * of the plan, as compiled kernels. Parameters are not constants: they may be rebound. A broadcast or an
 * iota stays a node, because an array of repeated numbers is worth less than the knowledge that it is one;
 * it is evaluated when its reader is. */
#include "rewrite.h"

enum {
    MAX_ELEMENTS = 65536,   /* operands and results of one node together */
    MAX_PRODUCTS = 1 << 20, /* multiplications of one contraction */
    MAX_DEPTH = 4,          /* broadcasts of broadcasts that are looked through */
    GROWTH_ELEMENTS =
        1024, /* a result with more elements than its operands store is kept as a node past this */
};

/* A constant of `to`, or a broadcast or iota that is one once it is evaluated. Takes its elements from
 * *budget, and adds those that are stored somewhere to *stored. */
static bool is_known(const ash_rewrite *rw, ash_value value, unsigned depth, int64_t *budget,
                     int64_t *stored) {
    const ash_value_info *info = ash_graph__value(rw->to, value);
    int64_t count;
    if (!ash_type_static_count(&info->type, &count) || count > *budget) return false;
    *budget -= count;
    if (info->kind == ASH_VALUE_CONSTANT) {
        *stored += count;
        return true;
    }
    if (info->kind != ASH_VALUE_NODE || depth == MAX_DEPTH) return false;
    const ash_node *node = &rw->to->nodes.at[info->node];
    return node->op == ASH_OP_IOTA ||
           (node->op == ASH_OP_BROADCAST && is_known(rw, node->ins[0], depth + 1, budget, stored));
}

/* Multiplications for one element of a contraction's or window's result. */
static int64_t products(const ash_rewrite *rw, const ash_node *node) {
    int64_t count = 1;
    if (node->op == ASH_OP_MATMUL) {
        const ash_type *a = ash_graph__type(rw->from, node->ins[0]);
        return a->dims[a->rank - 1];
    }
    if (node->op == ASH_OP_CONV) {
        const ash_type *w = ash_graph__type(rw->from, node->ins[1]);
        for (unsigned d = 1; d < w->rank; d++) count *= w->dims[d];
    } else if (ash_op_infos[node->op].class == ASH_CLASS_POOL) {
        const ash_attr *kernel = ash_node_attr(node, ASH_ATTR_KERNEL);
        for (size_t d = 0; d < kernel->count; d++)
            if (!ash_mul_i64(count, kernel->list[d], &count)) return INT64_MAX;
    }
    return count;
}

/* Quantised weights in a wider type would take more memory, and products of bytes want them as they are. */
static bool widens_bytes(const ash_rewrite *rw, const ash_node *node) {
    return node->op == ASH_OP_CAST && ash_dtype_size(ash_graph__type(rw->from, node->ins[0])->dtype) == 1 &&
           ash_dtype_size(ash_graph__type(rw->from, node->out)->dtype) > 1;
}

static bool is_foldable(ash_rewrite *rw, const ash_node *node) {
    int64_t budget = MAX_ELEMENTS, stored = 0, largest = 0, work;
    if (node->op == ASH_OP_BROADCAST || node->op == ASH_OP_IOTA) return false;
    if (!ash_node__is_pure(rw->from, node) || !ash_node_has_numbers(node)) return false;
    for (size_t k = 0; k < node->n_ins; k++) {
        ash_value in = ash_rewrite__get(rw, node->ins[k]);
        if (in == ASH_NO_VALUE || !is_known(rw, in, 0, &budget, &stored)) return false;
    }
    for (size_t k = 0; k < node->n_outs; k++) {
        int64_t count;
        if (!ash_type_static_count(ash_graph__type(rw->from, node->out + (ash_value)k), &count))
            return false;
        if (count > budget || count > ASH_MAX(stored, GROWTH_ELEMENTS)) return false;
        if (count > GROWTH_ELEMENTS && widens_bytes(rw, node)) return false;
        budget -= count;
        largest = ASH_MAX(largest, count);
    }
    return largest == 0 || (ash_mul_i64(largest, products(rw, node), &work) && work <= MAX_PRODUCTS);
}

static ash_status alloc_like(const ash_rewrite *rw, const ash_type *type, ash_wide *out) {
    return ash_wide_alloc(rw->from->allocator, type->dtype, type->rank, type->dims, out, rw->diag);
}

/* The elements of a known value of `to`; on success the caller frees *out. */
static ash_status load(const ash_rewrite *rw, ash_value value, ash_wide *out) {
    const ash_allocator *a = rw->from->allocator;
    const ash_value_info *info = ash_graph__value(rw->to, value);
    ASH_TRY(alloc_like(rw, &info->type, out));
    if (info->kind == ASH_VALUE_CONSTANT) {
        ash_wide_load(out, info->blob->data);
        return ASH_OK;
    }
    const ash_node *node = &rw->to->nodes.at[info->node];
    ash_wide in = {0};
    ash_status status = node->n_ins ? load(rw, node->ins[0], &in) : ASH_OK;
    if (status == ASH_OK) {
        status = ash_eval_node(rw->to, node, NULL, &in, out, ASH_EVAL_DTYPE, rw->diag);
        if (node->n_ins) ash_wide_free(a, &in);
    }
    if (status != ASH_OK) ash_wide_free(a, out);
    return status;
}

/* True when the bytes are one element, again and again. */
static bool is_uniform(const void *data, size_t size, size_t element) {
    const char *bytes = data;
    return size > element && !memcmp(bytes, bytes + element, size - element);
}

static ash_value uniform(ash_rewrite *rw, const ash_type *type, const void *element) {
    ash_type scalar = {.dtype = type->dtype};
    ash_value x = ash_graph_constant(rw->to, &scalar, element, ash_dtype_size(type->dtype), ASH_DATA_COPY);
    return ash_broadcast_to(rw->to, x, type->dims, type->rank);
}

/* A constant with the elements of `t`, as the image of `value`. */
static ash_status store(ash_rewrite *rw, ash_value value, const ash_wide *t) {
    ash_type type = *ash_graph__type(rw->from, value);
    ash_blob *blob;
    size_t element = ash_dtype_size(type.dtype), size = (size_t)t->count * element;
    ASH_TRY(ash_blob_create_owned(rw->from->allocator, size, &blob, rw->diag));
    ash_wide_store(t, (void *)blob->data);
    if (is_uniform(blob->data, size, element)) {
        ash_rewrite__bind(rw, value, uniform(rw, &type, blob->data));
        ash_blob_release(blob);
    } else {
        ash_rewrite__bind(rw, value, ash_graph__constant_blob(rw->to, &type, blob));
    }
    return ash_graph_status(rw->to, rw->diag);
}

static ash_status evaluate(ash_rewrite *rw, const ash_node *node) {
    const ash_allocator *a = rw->from->allocator;
    size_t n_outs = node->n_outs, ready = 0;
    ash_wide outs[ASH_OP_OUTS] = {0};
    ash_status status = ASH_OK;
    ash_wide *ins = ash_mem_calloc(a, node->n_ins, sizeof *ins);
    if (!ins) return ASH_NO_MEMORY(rw->diag);
    for (; ready < node->n_ins; ready++)
        ASH_TRY_DONE(load(rw, ash_rewrite__get(rw, node->ins[ready]), &ins[ready]));
    for (size_t k = 0; k < n_outs; k++)
        ASH_TRY_DONE(alloc_like(rw, ash_graph__type(rw->from, node->out + (ash_value)k), &outs[k]));
    ASH_TRY_DONE(ash_eval_node(rw->from, node, NULL, ins, outs, ASH_EVAL_DTYPE, rw->diag));
    for (size_t k = 0; k < n_outs; k++) ASH_TRY_DONE(store(rw, node->out + (ash_value)k, &outs[k]));
done:
    for (size_t k = 0; k < ready; k++) ash_wide_free(a, &ins[k]);
    for (size_t k = 0; k < n_outs; k++)
        if (outs[k].f) ash_wide_free(a, &outs[k]);
    ash_mem_free(a, ins, node->n_ins, sizeof *ins);
    return status;
}

/* Constants of one number. Reading stops at the first element that differs, so mapped weights stay
 * untouched. */
static void spot_uniform(ash_rewrite *rw) {
    const ash_graph *from = rw->from;
    for (ash_value v = 0; v < from->values.len && ash_rewrite__ok(rw); v++) {
        const ash_value_info *info = &from->values.at[v];
        if (info->kind != ASH_VALUE_CONSTANT || !rw->uses[v]) continue;
        if (is_uniform(info->blob->data, info->blob->size, ash_dtype_size(info->type.dtype)))
            ash_rewrite__bind(rw, v, uniform(rw, &info->type, info->blob->data));
    }
}

ash_status ash_opt__fold(const ash_opt *opt, const ash_graph *from, ash_graph **out, ash_diag *diag) {
    ash_rewrite rw;
    ASH_TRY(ash_rewrite__begin(&rw, opt, from, diag));
    spot_uniform(&rw);
    for (size_t i = 0; i < from->nodes.len && ash_rewrite__ok(&rw); i++) {
        const ash_node *node = &from->nodes.at[i];
        if (!ash_rewrite__is_live(&rw, node)) continue;
        ash_rewrite__name(&rw, node);
        if (is_foldable(&rw, node)) {
            ash_status status = ash_opt__report(opt, diag);
            if (status == ASH_OK) status = evaluate(&rw, node);
            if (status != ASH_OK) return ash_rewrite__abandon(&rw, status);
        } else {
            ash_rewrite__copy(&rw, node);
        }
    }
    return ash_rewrite__end(&rw, out);
}
