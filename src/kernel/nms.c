/* SPDX-License-Identifier: MIT */
/* Greedy choice among boxes. A chunk is one class of one batch entry.
 *
 *   candidates = boxes whose score exceeds the threshold, in order
 *   k times:     the best candidate is chosen; it and those that overlap it leave the list, which stays
 *                in order
 *
 * The list is scratch of the worker. Most boxes score below the threshold, and each choice removes
 * neighbours: so the passes over the list are short, and none goes over all boxes again. Sorting first
 * would order many candidates that never come up. */
#include "tile.h"

typedef struct list {
    uint16_t scores, numbers; /* buffers */
    ash_ref first_score, first_number;
    ash_ref count; /* cell */
} list;

typedef struct box {
    ash_ref low[2], high[2], area;
} box;

static ash_ref at(ash_nest *n, ash_ref first, ash_ref i) {
    return ash_nest_binary(n, ASH_OP_ADD, first, i);
}

static void put(ash_kern *k, const list *l, ash_ref i, ash_ref score, ash_ref number) {
    ash_nest_store(&k->nest, l->scores, at(&k->nest, l->first_score, i), score, ASH_NO_REF);
    ash_nest_store(&k->nest, l->numbers, at(&k->nest, l->first_number, i), number, ASH_NO_REF);
}

static ash_ref score_at(ash_kern *k, const list *l, ash_ref i) {
    return ash_nest_load(&k->nest, l->scores, at(&k->nest, l->first_score, i), 1, ASH_NO_REF);
}

static ash_ref number_at(ash_kern *k, const list *l, ash_ref i) {
    return ash_nest_load(&k->nest, l->numbers, at(&k->nest, l->first_number, i), 1, ASH_NO_REF);
}

/* Adds 1 to a cell where the condition holds. */
static void step_on(ash_nest *n, ash_ref cell, ash_ref condition) {
    ash_nest_set(
        n, cell,
        ash_nest_binary(n, ASH_OP_ADD, ash_nest_get(n, cell), ash_nest_cast(n, ASH_I64, condition)));
}

static ash_ref both(ash_nest *n, ash_ref a, ash_ref b) {
    return ash_nest_binary(n, ASH_OP_AND, a, b);
}

static box load_box(ash_kern *k, ash_value boxes, ash_ix batch, ash_ref number) {
    ash_nest *n = &k->nest;
    ash_ix idx[] = {batch, ash_ix_loaded(&k->ixs, number, INT64_MAX, 0), 0};
    ash_ref corner[4];
    for (int i = 0; i < 4; i++) {
        idx[2] = ash_ix_const(&k->ixs, i);
        corner[i] = ash_kern_eval(k, boxes, idx);
    }
    box b = {.low = {corner[0], corner[1]}, .high = {corner[2], corner[3]}};
    ash_ref height = ash_nest_binary(n, ASH_OP_SUB, b.high[0], b.low[0]);
    ash_ref width = ash_nest_binary(n, ASH_OP_SUB, b.high[1], b.low[1]);
    b.area = ash_nest_binary(n, ASH_OP_MUL, height, width);
    return b;
}

/* Whether two boxes have more than `most` of their union in common; one without an area has nothing. */
static ash_ref overlap(ash_nest *n, const box *a, const box *b, ash_ref most, ash_ref zero) {
    ash_ref size[2], yes[2];
    for (int i = 0; i < 2; i++) {
        ash_ref low = ash_nest_binary(n, ASH_OP_MAX, a->low[i], b->low[i]);
        ash_ref high = ash_nest_binary(n, ASH_OP_MIN, a->high[i], b->high[i]);
        size[i] = ash_nest_binary(n, ASH_OP_SUB, high, low);
        yes[i] = ash_nest_binary(n, ASH_OP_LT, zero, size[i]);
    }
    ash_ref common = ash_nest_binary(n, ASH_OP_MUL, size[0], size[1]);
    ash_ref all = ash_nest_binary(n, ASH_OP_SUB, ash_nest_binary(n, ASH_OP_ADD, a->area, b->area), common);
    ash_ref areas =
        both(n, ash_nest_binary(n, ASH_OP_LT, zero, a->area), ash_nest_binary(n, ASH_OP_LT, zero, b->area));
    ash_ref share = ash_nest_binary(n, ASH_OP_LT, most, ash_nest_binary(n, ASH_OP_DIV, common, all));
    ash_ref some = both(n, areas, ash_nest_binary(n, ASH_OP_LT, zero, all));
    return both(n, both(n, yes[0], yes[1]), both(n, some, share));
}

/* The place of the best score in the list, of equals the first. */
static ash_ref find_best(ash_kern *k, const list *l, ash_ref count) {
    ash_nest *n = &k->nest;
    ash_ref zero = ash_nest_index(n, 0);
    ash_ref best = ash_nest_cell(n, score_at(k, l, zero)), place = ash_nest_cell(n, zero);
    ash_ref i = ash_nest_loop(n, ash_nest_index(n, 1), count, 1, 1);
    ash_ref score = score_at(k, l, i), held = ash_nest_get(n, best);
    ash_ref better = ash_nest_binary(n, ASH_OP_LT, held, score);
    ash_nest_set(n, best, ash_nest_select(n, better, score, held));
    ash_nest_set(n, place, ash_nest_select(n, better, i, ash_nest_get(n, place)));
    ash_nest_end(n);
    return ash_nest_get(n, place);
}

/* Drops the chosen one and what overlaps it; the others move up. */
static void drop(ash_kern *k, const list *l, ash_ref count, ash_ref chosen, ash_value boxes, ash_ix batch,
                 ash_ref most, ash_ref zero) {
    ash_nest *n = &k->nest;
    size_t mark = ash_kern_mark(k);
    box a = load_box(k, boxes, batch, number_at(k, l, chosen));
    ash_nest_set(n, l->count, ash_nest_index(n, 0));
    ash_ref i = ash_nest_loop(n, ash_nest_index(n, 0), count, 1, 1);
    ash_ref number = number_at(k, l, i), score = score_at(k, l, i);
    size_t inner = ash_kern_mark(k);
    box b = load_box(k, boxes, batch, number);
    ash_ref same = ash_nest_binary(n, ASH_OP_EQ, i, chosen);
    ash_ref goes = ash_nest_binary(n, ASH_OP_OR, same, overlap(n, &a, &b, most, zero));
    put(k, l, ash_nest_get(n, l->count), score, number);
    step_on(n, l->count, ash_nest_unary(n, ASH_OP_NOT, goes));
    ash_kern_forget(k, inner);
    ash_nest_end(n);
    ash_kern_forget(k, mark);
}

ash_dim ash_kern_lower_nms(ash_kern *k) {
    ash_nest *n = &k->nest;
    const ash_node *node = &k->graph->nodes.at[k->group->root];
    const ash_type *scores = ash_graph__type(k->graph, node->ins[1]);
    ash_dtype dtype = ash_kern_dtype(scores->dtype);
    ash_dim boxes = scores->dims[2], most_chosen = ash_node_int(node, ASH_ATTR_K);
    list l;
    l.scores = ash_kern_scratch(k, dtype, boxes, &l.first_score);
    l.numbers = ash_kern_scratch(k, ASH_I64, boxes, &l.first_number);
    ash_ref none = ash_nest_index(n, 0), zero = ash_nest_float(n, dtype, 0);
    ash_ref share = ash_kern_eval(k, node->ins[2], NULL), least = ash_kern_eval(k, node->ins[3], NULL);
    ash_sym batch = ash_kern_sym(k, scores->dims[0]), class = ash_kern_sym(k, scores->dims[1]);
    ash_ref row = ash_nest_loop(n, ash_kern_argument(k, ASH_NEST_BEGIN_ARG),
                                ash_kern_argument(k, ASH_NEST_END_ARG), 1, 1);
    ash_ref classes = ash_kern_dim(k, scores->dims[1]);
    ash_kern_set_sym(k, batch, ash_nest_idiv(n, row, classes));
    ash_kern_set_sym(k, class, ash_nest_imod(n, row, classes));
    ash_ix idx[] = {ash_ix_sym(&k->ixs, batch), ash_ix_sym(&k->ixs, class), 0};
    size_t mark = ash_kern_mark(k);
    l.count = ash_nest_cell(n, none);
    ash_sym each = ash_kern_sym(k, boxes);
    ash_ref i = ash_kern_loop(k, each, none, ash_kern_dim(k, boxes), 1, 1);
    idx[2] = ash_ix_sym(&k->ixs, each);
    ash_ref score = ash_kern_eval(k, node->ins[1], idx);
    put(k, &l, ash_nest_get(n, l.count), score, i);
    step_on(n, l.count, ash_nest_binary(n, ASH_OP_LT, least, score));
    ash_nest_end(n);
    ash_kern_forget(k, mark);
    ash_ref chosen = ash_nest_cell(n, none);
    ash_sym turn = ash_kern_sym(k, most_chosen);
    ash_kern_loop(k, turn, none, ash_kern_dim(k, most_chosen), 1, 1);
    idx[2] = ash_ix_sym(&k->ixs, turn);
    ash_ref count = ash_nest_get(n, l.count), some = ash_nest_binary(n, ASH_OP_LT, none, count);
    ash_nest_if(n, some);
    ash_ref best = find_best(k, &l, count);
    ash_kern_store(k, node->out, idx, number_at(k, &l, best));
    drop(k, &l, count, best, node->ins[0], idx[0], share, zero);
    ash_nest_else(n);
    ash_kern_store(k, node->out, idx, none);
    ash_nest_end(n);
    step_on(n, chosen, some);
    ash_nest_end(n);
    ash_kern_forget(k, mark);
    ash_kern_store(k, node->out + 1, idx, ash_nest_get(n, chosen));
    ash_nest_end(n);
    return ash_kern_product(k, scores->dims[0], scores->dims[1]);
}
