/* SPDX-License-Identifier: MIT */
/* Greedy choice among boxes on a GPU: a class of one batch entry is a block's, and of its boxes a thread
 * has every so many. Those whose score exceeds the threshold are its candidates, a list in scratch memory
 * that nobody else touches:
 *
 *     until k are chosen, or no thread has a candidate left:
 *         the best of all threads' best is chosen, of equals the first box
 *         each thread leaves out of its list what that one overlaps, and finds its best of the others
 *
 * So each box that is chosen meets all candidates at once. It is compared in the processor's arithmetic,
 * and what is chosen depends on no order of threads. */
#include "kernel/nms.h"

#include "kernel/tile.h"
#include "places.h"

enum {
    WARP = 32,
    MOST_THREADS = 1024,
    EACH = 8 /* boxes of a thread, where that makes a block */,
    RUN = 32
};

#define WRITER     ash_kern
#define NEST_OF(w) (&(w)->nest)
#include "kernel/positions.h"

typedef struct nms {
    ash_rows block;
    const ash_node *node;
    ash_ix idx[3];           /* batch entry, class, box */
    uint16_t scores, places; /* candidates */
    ash_dtype dtype, place;  /* of those */
    ash_ref thread, first;   /* of the class: its candidates' first place */
    ash_ref count;           /* cell: the thread's candidates */
    ash_ref best, at;        /* cells: of these the best score, and its box; -infinity and any number */
} nms;

static ash_ref op(ash_kern *k, ash_op what, ash_ref a, ash_ref b) {
    return ash_nest_binary(&k->nest, what, a, b);
}

static ash_ref worst(const nms *s) {
    return ash_nest_float(&s->block.k->nest, s->dtype, -__builtin_inf());
}

/* Of the thread's candidates number i. */
static ash_ref place_of(const nms *s, ash_ref i) {
    return add(s->block.k, add(s->block.k, s->first, s->thread), times(s->block.k, i, s->block.threads));
}

static void forget_all(const nms *s) {
    ash_nest *n = &s->block.k->nest;
    ash_nest_set(n, s->count, number(s->block.k, 0));
    ash_nest_set(n, s->best, worst(s));
}

/* One more for the thread, whose boxes come in order: the first of equals stays the best. */
static void keep(const nms *s, ash_ref score, ash_ref box) {
    ash_kern *k = s->block.k;
    ash_nest *n = &k->nest;
    ash_ref count = ash_nest_get(n, s->count), at = place_of(s, count);
    ash_nest_store(n, s->scores, at, score, ASH_NO_REF);
    ash_nest_store(n, s->places, at, box, ASH_NO_REF);
    ash_nest_set(n, s->count, plus(k, count, 1));
    ash_ref held = ash_nest_get(n, s->best), better = op(k, ASH_OP_LT, held, score);
    ash_nest_set(n, s->best, ash_nest_select(n, better, score, held));
    ash_nest_set(n, s->at, ash_nest_select(n, better, box, ash_nest_get(n, s->at)));
}

static void collect(nms *s, ash_ref least) {
    ash_kern *k = s->block.k;
    ash_nest *n = &k->nest;
    const ash_dim boxes = ash_graph__type(k->graph, s->node->ins[1])->dims[2];
    size_t mark = ash_kern_mark(k);
    ash_sym each = ash_kern_sym(k, boxes);
    ash_ref i = ash_kern_loop(k, each, s->thread, ash_kern_dim(k, boxes), s->block.threads, 1);
    s->idx[2] = ash_ix_sym(&k->ixs, each);
    ash_ref score = ash_kern_eval(k, s->node->ins[1], s->idx);
    ash_nest_if(n, op(k, ASH_OP_LT, least, score));
    keep(s, score, ash_nest_cast(n, s->place, i));
    ash_nest_end(n);
    ash_nest_end(n);
    ash_kern_forget(k, mark);
}

/* Leaves out the chosen box, and what it overlaps. */
static void suppress(nms *s, ash_ref chosen, ash_ref most) {
    ash_kern *k = s->block.k;
    ash_nest *n = &k->nest;
    ash_ref zero = ash_nest_float(n, s->dtype, 0), count = ash_nest_get(n, s->count);
    const ash_nms_box first = ash_nms__load(k, s->node->ins[0], s->idx[0], chosen);
    forget_all(s);
    size_t mark = ash_kern_mark(k);
    ash_ref at = place_of(s, ash_nest_loop(n, number(k, 0), count, 1, 1));
    ash_ref score = ash_nest_load(n, s->scores, at, 1, ASH_NO_REF),
            box = ash_nest_load(n, s->places, at, 1, ASH_NO_REF), place = ash_nest_cast(n, ASH_I64, box);
    const ash_nms_box other = ash_nms__load(k, s->node->ins[0], s->idx[0], place);
    ash_ref gone =
        op(k, ASH_OP_OR, ash_nms__overlap(n, &first, &other, most, zero), op(k, ASH_OP_EQ, place, chosen));
    ash_nest_if(n, ash_nest_unary(n, ASH_OP_NOT, gone));
    keep(s, score, box);
    ash_nest_end(n);
    ash_nest_end(n);
    ash_kern_forget(k, mark);
}

/* The best candidate of the block, to all of its threads, or -1: there is none. It goes through `memory`,
 * so that it is known to be the same. */
static ash_ref best_of_all(const nms *s, uint16_t memory) {
    ash_kern *k = s->block.k;
    ash_nest *n = &k->nest;
    ash_ref best = ash_nest_get(n, s->best), at = ash_nest_get(n, s->at), zero = number(k, 0);
    ash_rows__together(&s->block, true, false, &best, &at);
    ash_nest_if(n, op(k, ASH_OP_EQ, s->thread, zero));
    at = ash_nest_select(n, op(k, ASH_OP_LT, worst(s), best), ash_nest_cast(n, ASH_I64, at), number(k, -1));
    ash_nest_store(n, memory, zero, at, ASH_NO_REF);
    ash_nest_end(n);
    ash_nest_barrier(n);
    return ash_nest_load(n, memory, zero, 1, ASH_NO_REF);
}

/* By one thread. */
static void store_chosen(nms *s, ash_ref count, ash_ref box) {
    ash_kern *k = s->block.k;
    ash_nest *n = &k->nest;
    ash_nest_if(n, op(k, ASH_OP_EQ, s->thread, number(k, 0)));
    s->idx[2] = ash_ix_loaded(&k->ixs, count, INT64_MAX, 0);
    ash_kern_store(k, s->node->out, s->idx, box);
    ash_nest_end(n);
}

/* The number of boxes that are chosen. As loops end where they said at first, there are two: the inner
 * one is left out when nothing is left. */
static ash_ref choose_all(nms *s, ash_ref most, ash_ref limit) {
    ash_kern *k = s->block.k;
    ash_nest *n = &k->nest;
    const uint16_t memory = ash_nest_shared_add(n, ASH_I64, 1);
    ash_ref zero = number(k, 0), chosen = ash_nest_cell(n, zero), end = ash_nest_cell(n, limit);
    ash_ref from = ash_nest_loop(n, zero, limit, RUN, 1);
    ash_ref i = ash_nest_loop(n, from, lesser(k, plus(k, from, RUN), ash_nest_get(n, end)), 1, 1);
    ash_nest_if(n, op(k, ASH_OP_LT, i, ash_nest_get(n, end)));
    ash_ref box = best_of_all(s, memory);
    ash_nest_if(n, op(k, ASH_OP_LE, zero, box));
    size_t mark = ash_kern_mark(k);
    store_chosen(s, i, box);
    ash_nest_set(n, chosen, plus(k, i, 1));
    suppress(s, box, most);
    ash_kern_forget(k, mark);
    ash_nest_else(n);
    ash_nest_set(n, end, zero);
    ash_nest_end(n);
    ash_nest_barrier(n); /* before the memory is written again */
    ash_nest_end(n);
    ash_nest_end(n);
    ash_nest_end(n);
    return ash_nest_get(n, chosen);
}

static void store_rest(nms *s, ash_ref chosen, ash_ref limit) {
    ash_kern *k = s->block.k;
    ash_nest *n = &k->nest;
    ash_sym rest = ash_kern_sym(k, ash_node_int(s->node, ASH_ATTR_K));
    ash_kern_loop(k, rest, add(k, chosen, s->thread), limit, s->block.threads, 1);
    s->idx[2] = ash_ix_sym(&k->ixs, rest);
    ash_kern_store(k, s->node->out, s->idx, number(k, 0));
    ash_nest_end(n);
    ash_nest_if(n, op(k, ASH_OP_EQ, s->thread, number(k, 0)));
    ash_kern_store(k, s->node->out + 1, s->idx, chosen);
    ash_nest_end(n);
}

ash_dim ash_gpu_lower_nms(ash_kern *k) {
    ash_nest *n = &k->nest;
    nms s = {.block.k = k, .node = &k->graph->nodes.at[k->group->root]};
    const ash_type *scores = ash_graph__type(k->graph, s.node->ins[1]);
    const ash_dim boxes = scores->dims[2], rows = ash_kern_product(k, scores->dims[0], scores->dims[1]);
    const ash_dim all = ash_kern_product(k, rows, boxes);
    const int64_t most = ash_kern_max(k, boxes);
    for (n->threads = WARP; n->threads < MOST_THREADS && n->threads < most / EACH;) n->threads *= 2;
    s.block.threads = n->threads;
    s.dtype = ash_kern_dtype(scores->dtype);
    s.place = most <= INT32_MAX ? ASH_I32 : ASH_I64;
    s.scores = ash_kern_scratch_of_all(k, s.dtype, all);
    s.places = ash_kern_scratch_of_all(k, s.place, all);
    s.thread = ash_kern_argument(k, ASH_NEST_THREAD);
    ash_ref share = ash_kern_eval(k, s.node->ins[2], NULL), least = ash_kern_eval(k, s.node->ins[3], NULL);
    ash_sym batch = ash_kern_sym(k, scores->dims[0]), class = ash_kern_sym(k, scores->dims[1]);
    ash_ref row = ash_nest_loop(n, ash_kern_argument(k, ASH_NEST_BEGIN_ARG),
                                ash_kern_argument(k, ASH_NEST_END_ARG), 1, 1);
    ash_ref classes = ash_kern_dim(k, scores->dims[1]),
            limit = ash_kern_dim(k, ash_node_int(s.node, ASH_ATTR_K));
    ash_kern_set_sym(k, batch, ash_nest_idiv(n, row, classes));
    ash_kern_set_sym(k, class, ash_nest_imod(n, row, classes));
    s.idx[0] = ash_ix_sym(&k->ixs, batch);
    s.idx[1] = ash_ix_sym(&k->ixs, class);
    s.first = op(k, ASH_OP_MUL, row, ash_kern_dim(k, boxes));
    size_t mark = ash_kern_mark(k);
    s.count = ash_nest_cell(n, number(k, 0));
    s.best = ash_nest_cell(n, worst(&s));
    s.at = ash_nest_cell(n, ash_nest_int(n, s.place, 0));
    collect(&s, least);
    store_rest(&s, choose_all(&s, share, limit), limit);
    ash_kern_forget(k, mark);
    ash_nest_end(n);
    return rows;
}
