/* SPDX-License-Identifier: MIT */
/* Kernels of their own on a GPU, a row to a block of threads: an element, or a vector, to each in turn.
 *
 * The best of a row and its place is a tree over threads, by exchange: first the best value, then, of the
 * threads that have one as good, the first place (or the last). So it does not depend on who had which
 * elements, and is what a single thread finds. */
#include "rows.h"
#include "tile.h"

enum { WARP = 32, BLOCK = 256, WHOLE = 1024 };                         /* threads */
enum { SHORT = 32, LONG = 4096, LONGER = 1 << 15, LONGEST = 1 << 26 }; /* elements of a row */
/* Rows across: neighbours along them are far apart, so that threads are better off with a row each where
 * there are many. And rows that leave most multiprocessors without one are cut, where they are so long that
 * a second kernel is sooner done. */
enum { FEW_ROWS = 2048, FEW_BLOCKS = 64, CUT = 1 << 17, PART = 1 << 13 };

void ash_rows__choose_threads(ash_kern *k) {
    const ash_node *node = &k->graph->nodes.at[k->group->root];
    const ash_type *in = ash_graph__type(k->graph, node->ins[0]);
    const unsigned axis = (unsigned)ash_node_int(node, ASH_ATTR_AXIS);
    if (k->low->target->kind != ASH_TARGET_GPU) return;
    const ash_dim rows = ash_kern_rows(k, in, axis);
    const int64_t length = ash_kern_max(k, in->dims[axis]);
    if (length < SHORT || length > LONGEST) return;
    if (axis + 1 < in->rank && ash_kern_max(k, rows) > FEW_ROWS) return;
    k->nest.threads = length < LONG ? WARP : length < LONGER ? BLOCK : WHOLE;
}

int64_t ash_rows__part(ash_kern *k) {
    const ash_node *node = &k->graph->nodes.at[k->group->root];
    const ash_type *in = ash_graph__type(k->graph, node->ins[0]);
    const unsigned axis = (unsigned)ash_node_int(node, ASH_ATTR_AXIS);
    if (k->low->target->kind != ASH_TARGET_GPU || ash_kern_max(k, in->dims[axis]) <= CUT) return 0;
    return ash_kern_max(k, ash_kern_rows(k, in, axis)) <= FEW_BLOCKS ? PART : 0;
}

int64_t ash_rows__apart(const ash_rows *r, int64_t each) {
    return each * ASH_MAX(r->threads, 1u);
}

ash_ref ash_rows__own(const ash_rows *r, ash_ref from, int64_t each) {
    ash_nest *n = &r->k->nest;
    if (!r->threads) return from;
    ash_ref thread = ash_kern_argument(r->k, ASH_NEST_THREAD);
    return ash_nest_binary(n, ASH_OP_ADD, from,
                           ash_nest_binary(n, ASH_OP_MUL, thread, ash_nest_index(n, each)));
}

/* Among so many neighbours. */
static void among(ash_kern *k, unsigned threads, bool largest, bool last, ash_ref *best, ash_ref *at) {
    ash_nest *n = &k->nest;
    if (n->failed) return;
    const ash_dtype dtype = (ash_dtype)ash_nest_at(n, *best)->dtype,
                    place = (ash_dtype)ash_nest_at(n, *at)->dtype;
    const ash_op combine =
        dtype == ASH_BOOL ? (largest ? ASH_OP_OR : ASH_OP_AND) : (largest ? ASH_OP_MAX : ASH_OP_MIN);
    ash_ref all = ash_nest_reduce(n, combine, *best, threads);
    ash_ref behind = ash_rows_precedes(k, largest, true, all, *best);
    ash_ref none = ash_nest_int(n, place, last ? -1 : place == ASH_I32 ? INT32_MAX : INT64_MAX);
    *best = all;
    *at =
        ash_nest_reduce(n, last ? ASH_OP_MAX : ASH_OP_MIN, ash_nest_select(n, behind, none, *at), threads);
}

void ash_rows__together(const ash_rows *r, bool largest, bool last, ash_ref *best, ash_ref *at) {
    ash_kern *k = r->k;
    ash_nest *n = &k->nest;
    if (!r->threads) return;
    ash_nest_barrier(n); /* where some had an element more than others, all go on together */
    among(k, WARP, largest, last, best, at);
    if (r->threads == WARP || n->failed) return;
    const unsigned warps = r->threads / WARP;
    ash_ref *values[] = {best, at};
    uint16_t memory[2];
    ash_ref thread = ash_kern_argument(k, ASH_NEST_THREAD), size = ash_nest_index(n, WARP);
    for (unsigned i = 0; i < 2; i++)
        memory[i] = ash_nest_shared_add(n, (ash_dtype)ash_nest_at(n, *values[i])->dtype, warps);
    ash_nest_if(n, ash_nest_binary(n, ASH_OP_EQ, ash_nest_imod(n, thread, size), ash_nest_index(n, 0)));
    for (unsigned i = 0; i < 2; i++)
        ash_nest_store(n, memory[i], ash_nest_idiv(n, thread, size), *values[i], ASH_NO_REF);
    ash_nest_end(n);
    ash_nest_barrier(n);
    ash_ref own = ash_nest_imod(n, thread, ash_nest_index(n, warps));
    for (unsigned i = 0; i < 2; i++) *values[i] = ash_nest_load(n, memory[i], own, 1, ASH_NO_REF);
    among(k, warps, largest, last, best, at);
    ash_nest_barrier(n); /* before it is written again */
}
