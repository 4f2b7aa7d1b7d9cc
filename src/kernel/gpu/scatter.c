/* SPDX-License-Identifier: MIT */
/* Updates on a GPU. Those of one element have an order, in which a processor makes them; here
 *
 *     rows      of scatter_elements a chunk has the updates that differ along the axis alone, which no
 *               other chunk's meet: all of them, in their order
 *     winners   where elements are set the last update of a target wins: one kernel puts "none" into a
 *               number for each target, the next one the largest number of an update that goes there,
 *               and then each update that has won is made
 *     atomics   sums and extrema of integers of 4 and 8 bytes are the same in every order
 *
 * and else columns, or one chunk (other.c). */
#include "kernel/scatter.h"
#include "kernel/tile.h"
#include "places.h"

enum {
    SHORT = 16 /* of an axis that a thread goes along */,
    FEW = 8 /* updates */,
    VECTOR = 4,
    UNROLL = 4
};

#define WRITER     ash_kern
#define NEST_OF(w) (&(w)->nest)
#include "kernel/positions.h"

static unsigned axis_of(const ash_node *node) {
    return (unsigned)ash_node_int(node, ASH_ATTR_AXIS);
}

/* Dims of the updates that number them; what is behind is a window of the result. */
static unsigned outer_of(const ash_kern *k, const ash_node *node) {
    if (node->op == ASH_OP_SCATTER_ELEMENTS) return ash_graph__type(k->graph, node->ins[2])->rank;
    return ash_graph__type(k->graph, node->ins[1])->rank - 1;
}

/* Dims of the result that an update's target is a number among. */
static unsigned depth_of(const ash_kern *k, const ash_node *node) {
    const ash_type *indices = ash_graph__type(k->graph, node->ins[1]);
    if (node->op == ASH_OP_SCATTER_ELEMENTS) return ash_graph__type(k->graph, node->ins[0])->rank;
    return (unsigned)indices->dims[indices->rank - 1];
}

static ash_dim product_of(ash_kern *k, const ash_dim *dims, unsigned rank) {
    ash_dim all = 1;
    for (unsigned d = 0; d < rank; d++) all = ash_kern_product(k, all, dims[d]);
    return all;
}

ash_gpu_scatter_form ash_gpu_form_of(ash_kern *k) {
    const ash_node *node = &k->graph->nodes.at[k->group->root];
    const ash_type *updates = ash_graph__type(k->graph, node->ins[2]),
                   *x = ash_graph__type(k->graph, node->ins[0]);
    const ash_scatter mode = (ash_scatter)ash_node_int(node, ASH_ATTR_MODE);
    const bool elements = node->op == ASH_OP_SCATTER_ELEMENTS;
    if (k->low->target->kind != ASH_TARGET_GPU) return ASH_GPU_SCATTER_PLAIN;
    const ash_dim count = product_of(k, updates->dims, outer_of(k, node)),
                  targets = product_of(k, x->dims, depth_of(k, node));
    const int64_t most = ash_kern_max(k, count), places = ash_kern_max(k, targets);
    if (elements && ash_kern_max(k, updates->dims[axis_of(node)]) <= SHORT) return ASH_GPU_SCATTER_ROWS;
    if (most >= FEW && most <= INT32_MAX && places <= INT32_MAX) {
        if (mode == ASH_SCATTER_SET) return ASH_GPU_SCATTER_WINNERS;
        if (mode != ASH_SCATTER_MUL && !ash_dtype_is_float(x->dtype) && x->dtype != ASH_BOOL &&
            ash_dtype_size(x->dtype) >= 4)
            return ASH_GPU_SCATTER_ATOMICS;
    }
    return elements ? ASH_GPU_SCATTER_ROWS : ASH_GPU_SCATTER_PLAIN;
}

/* Opens the loop over updates, or of all elements of them; the number of one. */
static ash_ref open_updates(ash_scattered *s, unsigned dims) {
    ash_kern *k = s->k;
    const ash_type *updates = ash_graph__type(k->graph, s->node->ins[2]);
    ash_sym syms[ASH_MAX_RANK];
    ash_ref number = ash_nest_loop(&k->nest, ash_kern_argument(k, ASH_NEST_BEGIN_ARG),
                                   ash_kern_argument(k, ASH_NEST_END_ARG), 1, 1);
    for (unsigned d = 0; d < updates->rank; d++) {
        syms[d] = ash_kern_sym(k, updates->dims[d]);
        s->idx[d] = ash_ix_sym(&k->ixs, syms[d]);
    }
    ash_kern_decode(k, updates->dims, dims, syms, number);
    for (unsigned d = dims; d < updates->rank; d++)
        ash_kern_set_sym(k, syms[d], ash_nest_index(&k->nest, 0));
    return number;
}

/* Of the update at the present position: its target's number; what is written next is for those that have
 * one, if *inside is not ASH_NO_REF within an IF. */
static ash_ref open_target(const ash_scattered *s, ash_ref *inside) {
    ash_kern *k = s->k;
    const ash_type *x = ash_graph__type(k->graph, s->node->ins[0]);
    ash_ix to[ASH_MAX_RANK], all = ash_ix_const(&k->ixs, 0);
    *inside = ASH_NO_REF;
    ash_scatter__target(s, to, inside);
    if (*inside != ASH_NO_REF) ash_nest_if(&k->nest, *inside);
    for (unsigned d = 0; d < depth_of(k, s->node); d++)
        all = ash_ix_add(&k->ixs, ash_ix_mul(&k->ixs, all, x->dims[d]), to[d]);
    return ash_kern_index(k, all);
}

static uint16_t winners_of(const ash_scattered *s, bool write) {
    ash_kern *k = s->k;
    const ash_type *x = ash_graph__type(k->graph, s->node->ins[0]);
    const ash_dim targets = product_of(k, x->dims, depth_of(k, s->node));
    const ash_dim vectors = ash_kern_ceil_div(k, targets, VECTOR);
    return ash_gpu_between(k, 0, ASH_I32, ash_kern_product(k, vectors, VECTOR), write);
}

static void lower_none(ash_scattered *s, ash_dim *chunks) {
    ash_kern *k = s->k;
    ash_nest *n = &k->nest;
    const ash_type *x = ash_graph__type(k->graph, s->node->ins[0]);
    uint16_t winners = winners_of(s, true);
    *chunks = ash_kern_ceil_div(k, product_of(k, x->dims, depth_of(k, s->node)), VECTOR);
    ash_ref chunk = ash_nest_loop(n, ash_kern_argument(k, ASH_NEST_BEGIN_ARG),
                                  ash_kern_argument(k, ASH_NEST_END_ARG), 1, 1);
    ash_nest_store(n, winners, times(k, chunk, VECTOR),
                   ash_nest_splat(n, ash_nest_int(n, ASH_I32, -1), VECTOR), ASH_NO_REF);
    ash_nest_end(n);
}

static void lower_last(ash_scattered *s, ash_dim *chunks) {
    ash_kern *k = s->k;
    ash_nest *n = &k->nest;
    const ash_type *updates = ash_graph__type(k->graph, s->node->ins[2]);
    const unsigned outer = outer_of(k, s->node);
    (void)winners_of(s, false); /* it is read and written */
    const uint16_t winners = winners_of(s, true);
    *chunks = product_of(k, updates->dims, outer);
    ash_ref number = open_updates(s, outer), inside;
    ash_ref target = open_target(s, &inside);
    ash_nest_atomic(n, ASH_OP_MAX, winners, target, ash_nest_cast(n, ASH_I32, number));
    if (inside != ASH_NO_REF) ash_nest_end(n);
    ash_nest_end(n);
}

bool ash_gpu_lower_winners(ash_kern *k, unsigned number, ash_dim *chunks, const char **name) {
    ash_scattered s = {.k = k, .node = &k->graph->nodes.at[k->group->root]};
    if (number > 1 || ash_gpu_form_of(k) != ASH_GPU_SCATTER_WINNERS) return false;
    *name = number ? "last" : "none";
    if (number)
        lower_last(&s, chunks);
    else
        lower_none(&s, chunks);
    return true;
}

/* Every element of the updates that have won. */
static ash_dim apply(ash_scattered *s) {
    ash_kern *k = s->k;
    ash_nest *n = &k->nest;
    const ash_type *updates = ash_graph__type(k->graph, s->node->ins[2]);
    const unsigned outer = outer_of(k, s->node);
    const uint16_t winners = winners_of(s, false);
    ash_ref number = open_updates(s, updates->rank), inside, target = open_target(s, &inside);
    ash_ref window = ash_kern_dim(k, product_of(k, updates->dims + outer, updates->rank - outer));
    ash_ref own = outer < updates->rank ? ash_nest_idiv(n, number, window) : number;
    ash_ref won = ash_nest_load(n, winners, target, 1, ASH_NO_REF);
    ash_nest_if(n, ash_nest_binary(n, ASH_OP_EQ, won, ash_nest_cast(n, ASH_I32, own)));
    ash_scatter__update(s);
    ash_nest_end(n);
    if (inside != ASH_NO_REF) ash_nest_end(n);
    ash_nest_end(n);
    return product_of(k, updates->dims, updates->rank);
}

static ash_dim add_at_once(ash_scattered *s) {
    static const ash_op combine[] = {
        [ASH_SCATTER_ADD] = ASH_OP_ADD, [ASH_SCATTER_MIN] = ASH_OP_MIN, [ASH_SCATTER_MAX] = ASH_OP_MAX};
    ash_kern *k = s->k;
    ash_nest *n = &k->nest;
    const ash_value out = s->node->out;
    const ash_type *updates = ash_graph__type(k->graph, s->node->ins[2]);
    ash_ix to[ASH_MAX_RANK];
    open_updates(s, updates->rank);
    ash_ref inside = ASH_NO_REF;
    ash_scatter__target(s, to, &inside);
    if (inside != ASH_NO_REF) ash_nest_if(n, inside);
    ash_ref value = ash_kern_eval(k, s->node->ins[2], s->idx);
    const uint16_t buf =
        ash_kern_buffer(k, k->low->places[out].buffer, ash_graph__type(k->graph, out)->dtype, true);
    ash_kern_access(k, out, false);
    ash_kern_access(k, out, true);
    if (!ash_kern_lost(k)) k->uses.at[buf].single = false, k->uses.at[buf].read = true;
    ash_nest_atomic(n, combine[ash_node_int(s->node, ASH_ATTR_MODE)], buf,
                    ash_kern_index(k, ash_kern_linear(k, out, to)), value);
    if (inside != ASH_NO_REF) ash_nest_end(n);
    ash_nest_end(n);
    return product_of(k, updates->dims, updates->rank);
}

/* A chunk for each position but along the axis. */
static ash_dim go_along(ash_scattered *s) {
    ash_kern *k = s->k;
    ash_nest *n = &k->nest;
    const ash_type *updates = ash_graph__type(k->graph, s->node->ins[2]);
    const unsigned axis = axis_of(s->node);
    ash_dim dims[ASH_MAX_RANK], all;
    memcpy(dims, updates->dims, sizeof dims);
    ash_sym syms[ASH_MAX_RANK];
    dims[axis] = 1;
    all = product_of(k, dims, updates->rank);
    ash_ref row = ash_nest_loop(n, ash_kern_argument(k, ASH_NEST_BEGIN_ARG),
                                ash_kern_argument(k, ASH_NEST_END_ARG), 1, 1);
    for (unsigned d = 0; d < updates->rank; d++) {
        syms[d] = ash_kern_sym(k, updates->dims[d]);
        s->idx[d] = ash_ix_sym(&k->ixs, syms[d]);
    }
    ash_kern_decode(k, dims, updates->rank, syms, row);
    size_t mark = ash_kern_mark(k);
    ash_kern_loop(k, syms[axis], number(k, 0), ash_kern_dim(k, updates->dims[axis]), 1, UNROLL);
    ash_scatter__update(s);
    ash_nest_end(n);
    ash_kern_forget(k, mark);
    ash_nest_end(n);
    return all;
}

bool ash_gpu_lower_scatter(ash_kern *k, ash_dim *chunks) {
    ash_scattered s = {.k = k, .node = &k->graph->nodes.at[k->group->root]};
    switch (ash_gpu_form_of(k)) {
    case ASH_GPU_SCATTER_ROWS: *chunks = go_along(&s); return true;
    case ASH_GPU_SCATTER_WINNERS: *chunks = apply(&s); return true;
    case ASH_GPU_SCATTER_ATOMICS: *chunks = add_at_once(&s); return true;
    default: return false;
    }
}
