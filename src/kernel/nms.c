/* SPDX-License-Identifier: MIT */
/* Greedy choice among boxes. A chunk is one class of one batch entry.
 *
 *   candidates = boxes whose score exceeds the threshold, a binary heap with the best on top
 *   until k are chosen, or no candidate is left:
 *       the best leaves the heap, and is chosen unless one that was chosen before overlaps it
 *
 * Heap and chosen boxes are scratch of the worker. Only candidates that come up are put in order; each is
 * compared with a vector of chosen boxes at a time. On a GPU: gpu/nms.c. */
#include "nms.h"

#include "heap.h"
#include "kernel/gpu/places.h"
#include "tile.h"

/* Boxes that were chosen, a list for each of their numbers. The last vector is filled with boxes that have
 * no area, and overlap nothing. */
typedef struct chosen {
    uint16_t buffers[ASH_NMS_NUMBERS];
    ash_ref first[ASH_NMS_NUMBERS];
    ash_ref count; /* cell */
    unsigned lanes;
    ash_dtype dtype;
} chosen;

static ash_ref at(ash_nest *n, ash_ref first, ash_ref i) {
    return ash_nest_binary(n, ASH_OP_ADD, first, i);
}

static ash_ref both(ash_nest *n, ash_ref a, ash_ref b) {
    return ash_nest_binary(n, ASH_OP_AND, a, b);
}

ash_nms_box ash_nms__load(ash_kern *k, ash_value boxes, ash_ix batch, ash_ref number) {
    ash_nest *n = &k->nest;
    ash_ix idx[] = {batch, ash_ix_loaded(&k->ixs, number, INT64_MAX, 0), 0};
    ash_ref corner[4];
    for (int i = 0; i < 4; i++) {
        idx[2] = ash_ix_const(&k->ixs, i);
        corner[i] = ash_kern_eval(k, boxes, idx);
    }
    ash_ref height = ash_nest_binary(n, ASH_OP_SUB, corner[2], corner[0]);
    ash_ref width = ash_nest_binary(n, ASH_OP_SUB, corner[3], corner[1]);
    return (ash_nms_box){
        {corner[0], corner[1], corner[2], corner[3], ash_nest_binary(n, ASH_OP_MUL, height, width)}};
}

ash_ref ash_nms__overlap(ash_nest *n, const ash_nms_box *a, const ash_nms_box *b, ash_ref most,
                         ash_ref zero) {
    ash_ref size[2], yes[2];
    for (int i = 0; i < 2; i++) {
        ash_ref low = ash_nest_binary(n, ASH_OP_MAX, a->is[ASH_NMS_LOW_0 + i], b->is[ASH_NMS_LOW_0 + i]);
        ash_ref high = ash_nest_binary(n, ASH_OP_MIN, a->is[ASH_NMS_HIGH_0 + i], b->is[ASH_NMS_HIGH_0 + i]);
        size[i] = ash_nest_binary(n, ASH_OP_SUB, high, low);
        yes[i] = ash_nest_binary(n, ASH_OP_LT, zero, size[i]);
    }
    ash_ref common = ash_nest_binary(n, ASH_OP_MUL, size[0], size[1]);
    ash_ref all = ash_nest_binary(
        n, ASH_OP_SUB, ash_nest_binary(n, ASH_OP_ADD, a->is[ASH_NMS_AREA], b->is[ASH_NMS_AREA]), common);
    ash_ref areas = both(n, ash_nest_binary(n, ASH_OP_LT, zero, a->is[ASH_NMS_AREA]),
                         ash_nest_binary(n, ASH_OP_LT, zero, b->is[ASH_NMS_AREA]));
    ash_ref share = ash_nest_binary(n, ASH_OP_LT, most, ash_nest_binary(n, ASH_OP_DIV, common, all));
    ash_ref some = both(n, areas, ash_nest_binary(n, ASH_OP_LT, zero, all));
    return both(n, both(n, yes[0], yes[1]), both(n, some, share));
}

/* The better score, of equals the first box. No score of a candidate is NaN. */
static ash_ref comes_first(const ash_heap *h, ash_heap_entry a, ash_heap_entry b) {
    ash_nest *n = &h->k->nest;
    ash_ref better = ash_nest_binary(n, ASH_OP_LT, b.key, a.key);
    ash_ref first = both(n, ash_nest_binary(n, ASH_OP_EQ, a.key, b.key),
                         ash_nest_binary(n, ASH_OP_LT, a.number, b.number));
    return ash_nest_binary(n, ASH_OP_OR, better, first);
}

/* --- what was chosen -------------------------------------------------------------------------------- */

static chosen chosen_begin(ash_kern *k, ash_dtype dtype, ash_dim most) {
    chosen c = {.lanes = ash_target_lanes(k->low->target, ash_dtype_size(dtype)), .dtype = dtype};
    ash_dim vectors = ash_kern_ceil_div(k, most, c.lanes);
    for (unsigned i = 0; i < ASH_NMS_NUMBERS; i++)
        c.buffers[i] = ash_kern_scratch(k, dtype, ash_kern_product(k, vectors, c.lanes), &c.first[i]);
    return c;
}

static void choose(ash_kern *k, const chosen *c, const ash_nms_box *b) {
    ash_nest *n = &k->nest;
    ash_ref count = ash_nest_get(n, c->count), lanes = ash_nest_index(n, c->lanes);
    ash_ref zero = ash_nest_splat(n, ash_nest_float(n, c->dtype, 0), c->lanes);
    ash_nest_if(n, ash_nest_binary(n, ASH_OP_EQ, ash_nest_imod(n, count, lanes), ash_nest_index(n, 0)));
    for (unsigned i = 0; i < ASH_NMS_NUMBERS; i++)
        ash_nest_store(n, c->buffers[i], at(n, c->first[i], count), zero, ASH_NO_REF);
    ash_nest_end(n);
    for (unsigned i = 0; i < ASH_NMS_NUMBERS; i++)
        ash_nest_store(n, c->buffers[i], at(n, c->first[i], count), b->is[i], ASH_NO_REF);
    ash_nest_set(n, c->count, ash_nest_binary(n, ASH_OP_ADD, count, ash_nest_index(n, 1)));
}

/* Whether one of the chosen boxes overlaps this one. */
static ash_ref is_covered(ash_kern *k, const chosen *c, const ash_nms_box *b, ash_ref most) {
    ash_nest *n = &k->nest;
    ash_ref zero = ash_nest_splat(n, ash_nest_float(n, c->dtype, 0), c->lanes);
    ash_ref found = ash_nest_cell(n, ash_nest_splat(n, ash_nest_int(n, ASH_BOOL, 0), c->lanes));
    ash_nms_box wide, other;
    for (unsigned i = 0; i < ASH_NMS_NUMBERS; i++) wide.is[i] = ash_nest_splat(n, b->is[i], c->lanes);
    most = ash_nest_splat(n, most, c->lanes);
    ash_ref i = ash_nest_loop(n, ash_nest_index(n, 0), ash_nest_get(n, c->count), c->lanes, 1);
    for (unsigned d = 0; d < ASH_NMS_NUMBERS; d++)
        other.is[d] = ash_nest_load(n, c->buffers[d], at(n, c->first[d], i), c->lanes, ASH_NO_REF);
    ash_ref covers = ash_nms__overlap(n, &other, &wide, most, zero);
    ash_nest_set(n, found, ash_nest_binary(n, ASH_OP_OR, ash_nest_get(n, found), covers));
    ash_nest_end(n);
    ash_ref all = ash_nest_get(n, found);
    return c->lanes == 1 ? all : ash_nest_hreduce(n, ASH_OP_OR, all);
}

/* --- the kernel ------------------------------------------------------------------------------------- */

/* The candidates of the class at idx[0], idx[1]. */
static void collect(ash_kern *k, const ash_heap *h, const ash_node *node, ash_ix *idx, ash_ref least) {
    ash_nest *n = &k->nest;
    ash_dim boxes = ash_graph__type(k->graph, node->ins[1])->dims[2];
    size_t mark = ash_kern_mark(k);
    ash_sym each = ash_kern_sym(k, boxes);
    ash_ref i = ash_kern_loop(k, each, ash_nest_index(n, 0), ash_kern_dim(k, boxes), 1, 1);
    idx[2] = ash_ix_sym(&k->ixs, each);
    ash_ref score = ash_kern_eval(k, node->ins[1], idx), count = ash_nest_get(n, h->count);
    ash_heap_put(h, count, (ash_heap_entry){score, i});
    ash_ref counts = ash_nest_cast(n, ASH_I64, ash_nest_binary(n, ASH_OP_LT, least, score));
    ash_nest_set(n, h->count, ash_nest_binary(n, ASH_OP_ADD, count, counts));
    ash_nest_end(n);
    ash_kern_forget(k, mark);
}

/* Takes candidates until k are chosen. As loops end where they said at first, there are two: the inner one
 * is left out when nothing is to be done any more. */
static void choose_all(ash_kern *k, const ash_heap *h, const chosen *c, const ash_node *node, ash_ix *idx,
                       ash_ref most, ash_ref limit) {
    const int64_t run = 32;
    ash_nest *n = &k->nest;
    ash_ref zero = ash_nest_index(n, 0), count = ash_nest_get(n, h->count);
    ash_nest_loop(n, zero, count, run, 1);
    ash_ref left = ash_nest_get(n, h->count);
    ash_ref wanted = ash_nest_binary(n, ASH_OP_LT, ash_nest_get(n, c->count), limit);
    ash_nest_loop(
        n, zero,
        ash_nest_select(n, wanted, ash_nest_binary(n, ASH_OP_MIN, left, ash_nest_index(n, run)), zero), 1,
        1);
    ash_ref taken = ash_nest_get(n, c->count);
    ash_nest_if(n, ash_nest_binary(n, ASH_OP_LT, taken, limit));
    size_t mark = ash_kern_mark(k);
    ash_ref best = ash_heap_take(h).number;
    ash_nms_box b = ash_nms__load(k, node->ins[0], idx[0], best);
    ash_nest_if(n, ash_nest_unary(n, ASH_OP_NOT, is_covered(k, c, &b, most)));
    idx[2] = ash_ix_loaded(&k->ixs, taken, INT64_MAX, 0);
    ash_kern_store(k, node->out, idx, best);
    choose(k, c, &b);
    ash_nest_end(n);
    ash_kern_forget(k, mark);
    ash_nest_end(n);
    ash_nest_end(n);
    ash_nest_end(n);
}

ash_dim ash_kern_lower_nms(ash_kern *k) {
    if (k->low->target->kind == ASH_TARGET_GPU) return ash_gpu_lower_nms(k);
    ash_nest *n = &k->nest;
    const ash_node *node = &k->graph->nodes.at[k->group->root];
    const ash_type *scores = ash_graph__type(k->graph, node->ins[1]);
    ash_dtype dtype = ash_kern_dtype(scores->dtype);
    ash_dim boxes = scores->dims[2], most_chosen = ash_node_int(node, ASH_ATTR_K);
    ash_heap h = {.above = comes_first};
    ash_heap_init(&h, k, dtype, boxes, boxes);
    chosen c = chosen_begin(k, dtype, most_chosen);
    ash_ref none = ash_nest_index(n, 0);
    ash_ref share = ash_kern_eval(k, node->ins[2], NULL), least = ash_kern_eval(k, node->ins[3], NULL);
    ash_sym batch = ash_kern_sym(k, scores->dims[0]), class = ash_kern_sym(k, scores->dims[1]);
    ash_ref row = ash_nest_loop(n, ash_kern_argument(k, ASH_NEST_BEGIN_ARG),
                                ash_kern_argument(k, ASH_NEST_END_ARG), 1, 1);
    ash_ref classes = ash_kern_dim(k, scores->dims[1]), limit = ash_kern_dim(k, most_chosen);
    ash_kern_set_sym(k, batch, ash_nest_idiv(n, row, classes));
    ash_kern_set_sym(k, class, ash_nest_imod(n, row, classes));
    ash_ix idx[] = {ash_ix_sym(&k->ixs, batch), ash_ix_sym(&k->ixs, class), 0};
    size_t mark = ash_kern_mark(k);
    h.count = ash_nest_cell(n, none);
    c.count = ash_nest_cell(n, none);
    collect(k, &h, node, idx, least);
    ash_heap_make(&h);
    choose_all(k, &h, &c, node, idx, share, limit);
    ash_kern_forget(k, mark);
    ash_ref count = ash_nest_get(n, c.count);
    ash_kern_store(k, node->out + 1, idx, count);
    ash_sym rest = ash_kern_sym(k, most_chosen);
    ash_kern_loop(k, rest, count, limit, 1, 1);
    idx[2] = ash_ix_sym(&k->ixs, rest);
    ash_kern_store(k, node->out, idx, none);
    ash_nest_end(n);
    ash_kern_forget(k, mark);
    ash_nest_end(n);
    return ash_kern_product(k, scores->dims[0], scores->dims[1]);
}
