/* SPDX-License-Identifier: MIT */
/* What operators share whose results are places that data say. */
#include "places.h"

#include "kernel/tile.h"

enum { WARP = 32 };

#define WRITER     ash_kern
#define NEST_OF(w) (&(w)->nest)
#include "kernel/positions.h"

static ash_ref chosen(ash_kern *k, ash_ref condition, ash_ref x) {
    return ash_nest_select(&k->nest, condition, x, ash_nest_int(&k->nest, ASH_I32, 0));
}

/* Within a warp the sum of the threads before is that of the groups that lie before in a group of twice the
 * size: groups of 1, 2, 4, ... 16 whose bit is set in the thread's number. Over warps it goes through the
 * block's memory, in their order. */
ash_ref ash_gpu_before(ash_kern *k, uint16_t memory, ash_ref own, ash_ref *all) {
    ash_nest *n = &k->nest;
    ash_ref thread = ash_kern_argument(k, ASH_NEST_THREAD), sum = own;
    ash_ref before = ash_nest_int(n, ASH_I32, 0), zero = number(k, 0);
    const unsigned warps = n->threads / WARP;
    ash_nest_barrier(n);
    for (int64_t size = 1; size < WARP; size *= 2) {
        ash_ref twice = ash_nest_reduce(n, ASH_OP_ADD, own, (unsigned)(2 * size));
        ash_ref bit = rest_of(k, div_by(k, thread, size), 2);
        ash_ref other = ash_nest_binary(n, ASH_OP_SUB, twice, sum);
        before = add(k, before, chosen(k, ash_nest_binary(n, ASH_OP_LT, zero, bit), other));
        sum = twice;
    }
    ash_ref warp = div_by(k, thread, WARP);
    ash_nest_if(n, ash_nest_binary(n, ASH_OP_EQ, rest_of(k, thread, WARP), zero));
    ash_nest_store(n, memory, warp, sum, ASH_NO_REF);
    ash_nest_end(n);
    ash_nest_barrier(n);
    *all = ash_nest_int(n, ASH_I32, 0);
    for (unsigned w = 0; w < warps; w++) {
        ash_ref one = ash_nest_load(n, memory, number(k, w), 1, ASH_NO_REF);
        before = add(k, before, chosen(k, ash_nest_binary(n, ASH_OP_LT, number(k, w), warp), one));
        *all = add(k, *all, one);
    }
    return before;
}

uint16_t ash_gpu_between(ash_kern *k, unsigned which, ash_dtype dtype, ash_dim count, bool write) {
    ash_program *p = k->low->program;
    int64_t bytes;
    if (!ash_mul_i64(ash_kern_max(k, count), (int64_t)ash_dtype_size(dtype), &bytes)) {
        k->failed = k->too_large = true;
        return 0;
    }
    if (ash_kern_lost(k)) return 0;
    if (k->between[which] == ASH_NO_BUFFER) {
        const ash_buffer buffer = {.kind = k->group->constant ? ASH_BUFFER_STAGING : ASH_BUFFER_LOCAL,
                                   .type = {.dtype = dtype, .rank = 1, .dims = {count}},
                                   .bytes = ASH_MAX(bytes, 1),
                                   .align = (uint32_t)k->low->target->costs.align_bytes,
                                   .value = ASH_NO_VALUE,
                                   .origin = ASH_NO_VALUE,
                                   .root = ASH_NO_BUFFER};
        k->between[which] = (uint32_t)p->buffers.len;
        if (!ash_vec_push(p->allocator, &p->buffers, buffer)) k->failed = true;
    }
    if (k->failed) return 0;
    const ash_access access = {k->between[which], write, 0, p->buffers.at[k->between[which]].bytes};
    if (!ash_vec_push(k->low->allocator, &k->accesses, access)) k->failed = true;
    uint16_t buf = ash_kern_buffer(k, k->between[which], dtype, write);
    if (!ash_kern_lost(k)) k->uses.at[buf].single = false, k->uses.at[buf].read |= !write;
    return buf;
}

bool ash_gpu_lower_ahead(ash_kern *k, unsigned number, ash_dim *chunks, const char **name) {
    if (k->low->target->kind != ASH_TARGET_GPU || k->group->kind != ASH_GROUP_OTHER) return false;
    switch (ash_op_infos[k->graph->nodes.at[k->group->root].op].class) {
    case ASH_CLASS_ARGREDUCE: *name = "parts"; return number == 0 && ash_rows__lower_parts(k, chunks);
    case ASH_CLASS_NONZERO: *name = "counts"; return number == 0 && ash_gpu_lower_counts(k, chunks);
    case ASH_CLASS_SCATTER: return ash_gpu_lower_updates(k, number, chunks, name);
    case ASH_CLASS_TOPK: *name = "candidates"; return number == 0 && ash_gpu_lower_candidates(k, chunks);
    case ASH_CLASS_SCAN: *name = "sums"; return number == 0 && ash_gpu_lower_sums(k, chunks);
    default: return false;
    }
}
