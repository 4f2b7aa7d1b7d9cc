/* SPDX-License-Identifier: MIT */
/* Running sums on a GPU, of the bits that a processor has: its partial sums (partial.h) say where a row is
 * cut, a thread has a block of up to 256 terms, and adds in the same order:
 *
 *     sums      of each block, from 0 on
 *     cumsum    what lies above a block, from the sums of the blocks before it, level by level; then its
 *               elements one after the other
 *
 * Two levels above the blocks are as many as rows of 2^24 elements have. Longer ones are a thread's. */
#include "kernel/loops.h"
#include "places.h"

/* Threads of a row are neighbours, and what they read is not: many rows are better off with a thread
 * each. */
enum { MOST_ROWS = 4096, LEVELS = 2, UNROLL = 8 };

#define WRITER     ash_kern
#define NEST_OF(w) (&(w)->nest)
#include "kernel/positions.h"

typedef struct cumsum {
    ash_rows r;
    ash_partial_blocks blocks;
    ash_dim parts; /* blocks of a row */
    ash_dtype dtype;
    ash_ref part, first, end; /* of the thread: its block, and elements in the order that they are added */
} cumsum;

static ash_dim count_of(const ash_kern *k) {
    const ash_node *node = &k->graph->nodes.at[k->group->root];
    return ash_graph__type(k->graph, node->ins[0])->dims[ash_node_int(node, ASH_ATTR_AXIS)];
}

static ash_partial_blocks blocks_of(const ash_kern *k) {
    int64_t terms = 1;
    unsigned top = 0;
    return ash_blocks_plan(ash_kern_max(k, count_of(k)), ASH_PARTIAL_TERMS, &terms, &top);
}

static ash_dim rows_of(ash_kern *k) {
    const ash_node *node = &k->graph->nodes.at[k->group->root];
    const ash_type *in = ash_graph__type(k->graph, node->ins[0]);
    ash_dim rows = 1;
    for (unsigned d = 0; d < in->rank; d++)
        if (d != (unsigned)ash_node_int(node, ASH_ATTR_AXIS)) rows = ash_kern_product(k, rows, in->dims[d]);
    return rows;
}

bool ash_gpu_has_cumsum(ash_kern *k) {
    const ash_partial_blocks blocks = blocks_of(k);
    if (ash_kern_max(k, rows_of(k)) > MOST_ROWS) return false;
    return k->low->target->kind == ASH_TARGET_GPU && blocks.n >= 1 && blocks.n <= LEVELS;
}

static uint16_t sums_of(const cumsum *c, ash_kern *k, bool write) {
    return ash_gpu_between(k, 0, c->dtype, ash_kern_product(k, c->parts, rows_of(k)), write);
}

/* Opens the loop over chunks, blocks of rows: those of a row are neighbours. */
static ash_dim open_cumsum(cumsum *c, ash_kern *k, bool write, uint16_t *sums) {
    const ash_node *node = &k->graph->nodes.at[k->group->root];
    *c = (cumsum){.blocks = blocks_of(k)};
    c->dtype = ash_kern_dtype(ash_graph__type(k->graph, node->out)->dtype);
    c->parts = ash_kern_ceil_div(k, count_of(k), c->blocks.size[0]);
    *sums = sums_of(c, k, write);
    ash_dim total = ash_rows_begin(&c->r, k, c->parts, &c->part);
    c->first = times(k, c->part, c->blocks.size[0]);
    c->end = lesser(k, plus(k, c->first, c->blocks.size[0]), ash_kern_dim(k, count_of(k)));
    return total;
}

/* Opens the loop over the block's elements; the present one. */
static ash_ref open_elements(cumsum *c) {
    ash_kern *k = c->r.k;
    ash_nest *n = &k->nest;
    ash_ref i = ash_nest_loop(n, c->first, c->end, 1, UNROLL);
    if (ash_node_int(c->r.node, ASH_ATTR_REVERSE))
        i = minus(k, plus(k, ash_kern_dim(k, c->r.count), -1), i);
    ash_kern_set_sym(k, c->r.step, i);
    return ash_kern_eval(k, c->r.node->ins[0], c->r.idx);
}

bool ash_gpu_lower_sums(ash_kern *k, ash_dim *chunks) {
    if (!ash_gpu_has_cumsum(k)) return false;
    cumsum c;
    ash_nest *n = &k->nest;
    uint16_t sums;
    *chunks = open_cumsum(&c, k, true, &sums);
    ash_ref sum = ash_nest_cell(n, ash_kern_neutral(k, ASH_OP_ADD, c.dtype));
    size_t mark = ash_kern_mark(k);
    ash_ref x = open_elements(&c);
    ash_nest_set(n, sum, add(k, ash_nest_get(n, sum), x));
    ash_nest_end(n);
    ash_kern_forget(k, mark);
    ash_nest_store(n, sums, c.r.number, ash_nest_get(n, sum), ASH_NO_REF);
    ash_nest_end(n);
    return true;
}

/* What lies above the block: the levels as they are when a single thread comes to it. The last block of
 * level 2 that is not over is added as if it were, to nothing but what is added to it next. */
static ash_ref above_of(const cumsum *c, uint16_t sums) {
    ash_kern *k = c->r.k;
    ash_nest *n = &k->nest;
    ash_ref zero = ash_kern_neutral(k, ASH_OP_ADD, c->dtype), from = number(k, 0), to = c->part;
    ash_ref low = ash_nest_cell(n, zero), high = ash_nest_cell(n, zero);
    ash_ref row = minus(k, c->r.number, c->part);
    const bool levels = c->blocks.n == LEVELS;
    if (levels) {
        const int64_t size = c->blocks.size[1] / c->blocks.size[0];
        from = ash_nest_loop(n, from, to, size, 1);
        to = lesser(k, plus(k, from, size), to);
    }
    ash_ref i = ash_nest_loop(n, from, to, 1, UNROLL);
    ash_ref one = ash_nest_load(n, sums, add(k, row, i), 1, ASH_NO_REF);
    ash_nest_set(n, low, add(k, ash_nest_get(n, low), one));
    ash_nest_end(n);
    if (!levels) return ash_nest_get(n, low);
    ash_nest_set(n, high, add(k, ash_nest_get(n, high), ash_nest_get(n, low)));
    ash_nest_set(n, low, zero);
    ash_nest_end(n);
    return ash_nest_get(n, high);
}

ash_dim ash_gpu_lower_cumsum(ash_kern *k) {
    cumsum c;
    ash_nest *n = &k->nest;
    uint16_t sums;
    const ash_dim chunks = open_cumsum(&c, k, false, &sums);
    ash_ref above = above_of(&c, sums);
    ash_ref sum = ash_nest_cell(n, ash_kern_neutral(k, ASH_OP_ADD, c.dtype));
    size_t mark = ash_kern_mark(k);
    ash_ref x = open_elements(&c), before = ash_nest_get(n, sum), after = add(k, before, x);
    ash_nest_set(n, sum, after);
    ash_ref own = ash_node_int(c.r.node, ASH_ATTR_EXCLUSIVE) ? before : after;
    ash_kern_store(k, c.r.node->out, c.r.idx, add(k, above, own));
    ash_nest_end(n);
    ash_kern_forget(k, mark);
    ash_nest_end(n);
    return chunks;
}
