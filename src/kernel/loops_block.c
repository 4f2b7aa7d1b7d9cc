/* SPDX-License-Identifier: MIT */
/* Rows on a GPU: a warp takes a row, or a block of several warps a long one. Neighbouring threads read
 * neighbouring vectors, each has accumulators of its own, and in the end these are put together by a fixed
 * tree: within the warps by exchange, then one number of each warp through the block's memory.
 *
 *     thread t of T:   vectors t, t + T, t + 2 T, ...   then elements t, t + T, ... of what is left
 *
 * Short rows stay a thread's own: most of a warp would have nothing to do; so do those that take so long
 * that they have to look whether they are to stop, which a thread of a block may not do. */
#include "loops.h"

enum { WARP = 32, BLOCK = 256 };                     /* threads */
enum { SHORT = 32, LONG = 4096, LONGEST = 1 << 26 }; /* elements of a row */

void ash_loops__choose_threads(ash_loops *l) {
    const ash_kern *k = l->k;
    l->threads = 0;
    if (k->low->target->kind != ASH_TARGET_GPU || !l->reduced || l->anchor || !l->vector_inner) return;
    int64_t length = ash_kern_max(k, l->inner[l->n_inner - 1].extent);
    if (length < SHORT || length > LONGEST) return;
    l->threads = length < LONG ? WARP : BLOCK;
    l->lanes = l->narrow; /* one access each */
    l->turn = -1;
}

ash_ref ash_loops__own(const ash_loops *l, ash_ref from) {
    ash_nest *n = &l->k->nest;
    if (!l->threads) return from;
    ash_ref thread = ash_kern_argument(l->k, ASH_NEST_THREAD);
    return ash_nest_binary(n, ASH_OP_ADD, from,
                           ash_nest_binary(n, ASH_OP_MUL, thread, ash_nest_index(n, l->k->lanes)));
}

int64_t ash_loops__apart(const ash_loops *l) {
    return (int64_t)l->k->lanes * ASH_MAX(l->threads, 1u);
}

ash_ref ash_loops__together(ash_loops *l, ash_op combine, ash_ref own) {
    ash_nest *n = &l->k->nest;
    if (!l->threads) return own;
    ash_nest_barrier(n); /* where some had an element more than others, all go on together */
    ash_ref warp_has = ash_nest_reduce(n, combine, own, WARP);
    if (l->threads == WARP || n->failed) return warp_has;
    unsigned warps = l->threads / WARP;
    uint16_t memory = ash_nest_shared_add(n, (ash_dtype)ash_nest_at(n, warp_has)->dtype, warps);
    ash_ref thread = ash_kern_argument(l->k, ASH_NEST_THREAD), size = ash_nest_index(n, WARP);
    ash_nest_if(n, ash_nest_binary(n, ASH_OP_EQ, ash_nest_imod(n, thread, size), ash_nest_index(n, 0)));
    ash_nest_store(n, memory, ash_nest_idiv(n, thread, size), warp_has, ASH_NO_REF);
    ash_nest_end(n);
    ash_nest_barrier(n);
    ash_ref one =
        ash_nest_load(n, memory, ash_nest_imod(n, thread, ash_nest_index(n, warps)), 1, ASH_NO_REF);
    ash_ref all = ash_nest_reduce(n, combine, one, warps);
    ash_nest_barrier(n); /* before it is written again */
    return all;
}
