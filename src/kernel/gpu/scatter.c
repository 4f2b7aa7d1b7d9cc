/* SPDX-License-Identifier: MIT */
/* Updates on a GPU. Those of one element have an order, in which a processor makes them; here
 *
 *     rows      of scatter_elements a chunk has the updates that differ along the axis alone, which no
 *               other chunk's meet: all of them, in their order
 *     winners   where elements are set the last update of a target wins: one kernel puts "none" into a
 *               number for each target, the next one the largest number of an update that goes there,
 *               and then each update that has won is made
 *     atomics   sums and extrema of integers of 4 and 8 bytes are the same in every order
 *     sorted    all others: blocks sort the updates by their targets, tile by tile; then an update has a
 *               thread for each element of its window, and that of a target's first one makes all of them,
 *               in their order, which it finds in each tile
 *
 * and of a few columns, or one chunk (other.c). */
#include "kernel/scatter.h"
#include "kernel/tile.h"
#include "places.h"
#include "sort.h"

enum {
    SHORT = 16 /* of an axis that a thread goes along */,
    FEW = 8 /* updates */,
    MANY_ROWS = 4096 /* which are threads enough */,
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

/* Rows of the updates, whose updates meet none of another's. */
static ash_dim rows_of(ash_kern *k, const ash_node *node) {
    const ash_type *updates = ash_graph__type(k->graph, node->ins[2]);
    return node->op == ASH_OP_SCATTER_ELEMENTS ? ash_kern_rows(k, updates, axis_of(node)) : 1;
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
        if (!elements || ash_kern_max(k, rows_of(k, node)) <= MANY_ROWS) return ASH_GPU_SCATTER_SORTED;
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
    ash_nest_atomic(n, ash_scatter__combine(s->node), buf, ash_kern_index(k, ash_kern_linear(k, out, to)),
                    value);
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

/* --- in the order of targets ------------------------------------------------------------------------ */

/* Updates of a row in the order of their targets, and of one target in their own: a key has what the
 * target's number lacks to 2^31 above what the update's lacks to 2^32. Outside is none. */
static const int64_t low_bits = UINT32_MAX, high_one = INT64_C(1) << 32;

typedef struct sorted {
    ash_scattered s;
    unsigned outer;
    ash_dim count, rows, tiles; /* updates of a row; rows; what is sorted at once, of a row */
    int64_t size;               /* of a tile */
    ash_sym at[ASH_MAX_RANK];   /* position in the updates */
} sorted;

static sorted sorted_of(ash_kern *k) {
    const ash_node *node = &k->graph->nodes.at[k->group->root];
    const ash_type *updates = ash_graph__type(k->graph, node->ins[2]);
    sorted o = {.s = {.k = k, .node = node}, .outer = outer_of(k, node), .rows = rows_of(k, node)};
    o.count = node->op == ASH_OP_SCATTER_ELEMENTS ? updates->dims[axis_of(node)]
                                                  : product_of(k, updates->dims, o.outer);
    o.size = ash_gpu_sort_size(ash_kern_max(k, o.count));
    o.tiles = ash_kern_ceil_div(k, o.count, o.size);
    for (unsigned d = 0; d < updates->rank; d++) {
        o.at[d] = ash_kern_sym(k, updates->dims[d]);
        o.s.idx[d] = ash_ix_sym(&k->ixs, o.at[d]);
    }
    return o;
}

static ash_gpu_list list_of(const sorted *o, bool write) {
    ash_kern *k = o->s.k;
    const ash_dim count = ash_kern_product(k, ash_kern_product(k, o->rows, o->tiles), o->size);
    return ash_gpu_list_between(k, count, false, write);
}

/* The present position becomes one of a row. */
static void go_to_row(const sorted *o, ash_ref row) {
    ash_kern *k = o->s.k;
    const ash_type *updates = ash_graph__type(k->graph, o->s.node->ins[2]);
    ash_dim dims[ASH_MAX_RANK];
    if (o->s.node->op != ASH_OP_SCATTER_ELEMENTS) return;
    memcpy(dims, updates->dims, sizeof dims);
    dims[axis_of(o->s.node)] = 1;
    ash_kern_decode(k, dims, updates->rank, o->at, row);
}

/* The present position, of which row and window are there, becomes that of an update. */
static void go_to(const sorted *o, ash_ref update) {
    ash_kern *k = o->s.k;
    if (o->s.node->op == ASH_OP_SCATTER_ELEMENTS)
        ash_kern_set_sym(k, o->at[axis_of(o->s.node)], update);
    else
        ash_kern_decode(k, ash_graph__type(k->graph, o->s.node->ins[2])->dims, o->outer, o->at, update);
}

/* The key of the update at the present position, into a cell. */
static void set_key(const sorted *o, ash_ref cell, ash_ref update) {
    ash_kern *k = o->s.k;
    ash_nest *n = &k->nest;
    ash_ref inside;
    for (unsigned d = o->outer; d < ash_graph__type(k->graph, o->s.node->ins[2])->rank; d++)
        ash_kern_set_sym(k, o->at[d], number(k, 0));
    ash_ref above = minus(k, number(k, INT32_MAX), open_target(&o->s, &inside));
    ash_nest_set(n, cell, add(k, times(k, above, high_one), minus(k, number(k, low_bits), update)));
    if (inside != ASH_NO_REF) ash_nest_end(n);
}

/* A chunk is a tile of a row, of a block. */
static ash_dim sort_updates(ash_kern *k) {
    sorted o = sorted_of(k);
    ash_nest *n = &k->nest;
    const ash_gpu_list memory = ash_gpu_list_shared(k, o.size, false), to = list_of(&o, true);
    ash_ref thread = ash_kern_argument(k, ASH_NEST_THREAD), tiles = ash_kern_dim(k, o.tiles);
    ash_ref chunk = ash_nest_loop(n, ash_kern_argument(k, ASH_NEST_BEGIN_ARG),
                                  ash_kern_argument(k, ASH_NEST_END_ARG), 1, 1);
    ash_ref row = ash_nest_idiv(n, chunk, tiles), first = times(k, ash_nest_imod(n, chunk, tiles), o.size);
    ash_ref i = ash_nest_loop(n, thread, number(k, o.size), n->threads, 1), update = add(k, first, i);
    ash_ref key = ash_nest_cell(n, ash_gpu_entry_none(k, false).key);
    ash_nest_if(n, ash_nest_binary(n, ASH_OP_LT, update, ash_kern_dim(k, o.count)));
    size_t mark = ash_kern_mark(k);
    go_to_row(&o, row);
    go_to(&o, update);
    set_key(&o, key, update);
    ash_kern_forget(k, mark);
    ash_nest_end(n);
    ash_gpu_entry_store(k, &memory, i, (ash_gpu_entry){ash_nest_get(n, key), ASH_NO_REF});
    ash_nest_end(n);
    ash_gpu_sort(k, &memory, o.size);
    ash_gpu_list_copy(k, &to, times(k, chunk, o.size), &memory, o.size);
    ash_nest_end(n);
    return ash_kern_product(k, o.rows, o.tiles);
}

/* The target of an update in the list of its row. */
typedef struct target {
    ash_gpu_list list;
    ash_gpu_entry top, bottom; /* none of its updates comes before the one, or behind the other */
    ash_ref row, column;       /* of the updates */
    ash_ref entry;             /* the update's place in the list */
    ash_ref tile, first, end;  /* where its tile begins, its row begins and ends */
} target;

static target target_of(const sorted *o, const ash_gpu_list *list, ash_ref chunk, ash_dim window) {
    ash_kern *k = o->s.k;
    ash_nest *n = &k->nest;
    ash_ref columns = ash_kern_dim(k, window), tiles = ash_kern_dim(k, o->tiles);
    target t = {.list = *list, .column = ash_nest_imod(n, chunk, columns)};
    t.entry = ash_nest_idiv(n, chunk, columns);
    t.tile = times(k, div_by(k, t.entry, o->size), o->size);
    t.row = ash_nest_idiv(n, div_by(k, t.entry, o->size), tiles);
    ash_ref each = times(k, tiles, o->size);
    t.first = ash_nest_binary(n, ASH_OP_MUL, t.row, each);
    t.end = add(k, t.first, each);
    return t;
}

/* Whether no update before goes to the same target. */
static ash_ref is_first(const sorted *o, const target *t) {
    ash_kern *k = o->s.k;
    ash_nest *n = &k->nest;
    ash_ref before = ash_nest_binary(n, ASH_OP_MAX, plus(k, t->entry, -1), t->tile);
    ash_ref other = ash_gpu_entry_load(k, &t->list, before).key;
    ash_ref begins = ash_nest_binary(n, ASH_OP_EQ, t->entry, t->tile);
    ash_ref first = ash_nest_cell(
        n, ash_nest_binary(n, ASH_OP_OR, begins, ash_nest_binary(n, ASH_OP_LT, t->top.key, other)));
    if (ash_kern_max(k, o->tiles) <= 1) return ash_nest_get(n, first);
    ash_ref tile = ash_nest_loop(n, t->first, t->tile, o->size, 1);
    ash_nest_if(n, ash_nest_get(n, first));
    ash_ref place = ash_gpu_sorted_before(k, &t->list, tile, o->size, t->top);
    place = add(k, tile, lesser(k, place, number(k, o->size - 1)));
    ash_ref key = ash_gpu_entry_load(k, &t->list, place).key;
    ash_ref above = ash_nest_binary(n, ASH_OP_LT, t->top.key, key),
            below = ash_nest_binary(n, ASH_OP_LT, key, t->bottom.key);
    ash_nest_set(n, first, ash_nest_binary(n, ASH_OP_OR, above, below));
    ash_nest_end(n);
    ash_nest_end(n);
    return ash_nest_get(n, first);
}

/* What an element of the result becomes by an update, with the digits that it has where it lies. */
static ash_ref updated(ash_kern *k, const ash_node *node, ash_ref old, ash_ref value) {
    const ash_dtype dtype = ash_graph__type(k->graph, node->out)->dtype, kept = ash_kern_dtype(dtype);
    ash_ref result = ash_nest_binary(&k->nest, ash_scatter__combine(node), old, value);
    return dtype == kept ? result : ash_nest_cast(&k->nest, kept, ash_nest_cast(&k->nest, dtype, result));
}

/* All updates of a target, of one element each. */
static void update_all(const sorted *o, const target *t, ash_ref element) {
    ash_kern *k = o->s.k;
    ash_nest *n = &k->nest;
    const bool one = ash_kern_max(k, o->tiles) <= 1;
    ash_ref tile = one ? t->tile : ash_nest_loop(n, t->tile, t->end, o->size, 1);
    ash_ref from = one ? t->entry : add(k, tile, ash_gpu_sorted_before(k, &t->list, tile, o->size, t->top));
    ash_ref to = add(k, tile, ash_gpu_sorted_before(k, &t->list, tile, o->size, t->bottom));
    ash_ref i = ash_nest_loop(n, from, to, 1, UNROLL), last = number(k, low_bits);
    ash_ref key = ash_gpu_entry_load(k, &t->list, i).key;
    size_t mark = ash_kern_mark(k);
    go_to(o, minus(k, last, ash_nest_binary(n, ASH_OP_AND, key, last)));
    ash_ref value = ash_kern_eval(k, o->s.node->ins[2], o->s.idx);
    ash_nest_set(n, element, updated(k, o->s.node, ash_nest_get(n, element), value));
    ash_kern_forget(k, mark);
    ash_nest_end(n);
    if (!one) ash_nest_end(n);
}

/* A chunk is an element of an update, as they are sorted. */
static ash_dim apply_sorted(ash_kern *k) {
    sorted o = sorted_of(k);
    ash_nest *n = &k->nest;
    const ash_node *node = o.s.node;
    const ash_type *x = ash_graph__type(k->graph, node->ins[0]),
                   *updates = ash_graph__type(k->graph, node->ins[2]);
    const ash_gpu_list list = list_of(&o, false);
    const ash_dim window = product_of(k, updates->dims + o.outer, updates->rank - o.outer);
    const unsigned depth = depth_of(k, node);
    ash_sym at[ASH_MAX_RANK];
    ash_ix to[ASH_MAX_RANK];
    ash_ref chunk = ash_nest_loop(n, ash_kern_argument(k, ASH_NEST_BEGIN_ARG),
                                  ash_kern_argument(k, ASH_NEST_END_ARG), 1, 1);
    target t = target_of(&o, &list, chunk, window);
    const ash_gpu_entry entry = ash_gpu_entry_load(k, &list, t.entry);
    ash_nest_if(n, ash_nest_unary(n, ASH_OP_NOT, ash_gpu_entry_is_none(k, entry)));
    ash_ref above = ash_nest_idiv(n, entry.key, number(k, high_one));
    t.bottom = (ash_gpu_entry){times(k, above, high_one), ASH_NO_REF};
    t.top = (ash_gpu_entry){plus(k, t.bottom.key, low_bits), ASH_NO_REF};
    ash_nest_if(n, is_first(&o, &t));
    for (unsigned d = 0; d < x->rank; d++) at[d] = ash_kern_sym(k, x->dims[d]);
    go_to_row(&o, t.row);
    ash_kern_decode(k, updates->dims + o.outer, updates->rank - o.outer, o.at + o.outer, t.column);
    ash_kern_decode(k, x->dims, depth, at, minus(k, number(k, INT32_MAX), above));
    for (unsigned d = 0; d < x->rank; d++)
        to[d] = d < depth ? ash_ix_sym(&k->ixs, at[d]) : o.s.idx[o.outer + d - depth];
    size_t mark = ash_kern_mark(k);
    ash_ref element = ash_nest_cell(n, ash_kern_load(k, node->out, to));
    update_all(&o, &t, element);
    ash_kern_store(k, node->out, to, ash_nest_get(n, element));
    ash_kern_forget(k, mark);
    ash_nest_end(n);
    ash_nest_end(n);
    ash_nest_end(n);
    const ash_dim entries = ash_kern_product(k, ash_kern_product(k, o.rows, o.tiles), o.size);
    return ash_kern_product(k, entries, window);
}

bool ash_gpu_lower_updates(ash_kern *k, unsigned number, ash_dim *chunks, const char **name) {
    ash_scattered s = {.k = k, .node = &k->graph->nodes.at[k->group->root]};
    const ash_gpu_scatter_form form = ash_gpu_form_of(k);
    if (form == ASH_GPU_SCATTER_SORTED && number == 0) {
        *name = "order";
        *chunks = sort_updates(k);
        return true;
    }
    if (form != ASH_GPU_SCATTER_WINNERS || number > 1) return false;
    *name = number ? "last" : "none";
    if (number)
        lower_last(&s, chunks);
    else
        lower_none(&s, chunks);
    return true;
}

bool ash_gpu_lower_scatter(ash_kern *k, ash_dim *chunks) {
    ash_scattered s = {.k = k, .node = &k->graph->nodes.at[k->group->root]};
    switch (ash_gpu_form_of(k)) {
    case ASH_GPU_SCATTER_ROWS: *chunks = go_along(&s); return true;
    case ASH_GPU_SCATTER_WINNERS: *chunks = apply(&s); return true;
    case ASH_GPU_SCATTER_ATOMICS: *chunks = add_at_once(&s); return true;
    case ASH_GPU_SCATTER_SORTED: *chunks = apply_sorted(k); return true;
    default: return false;
    }
}
