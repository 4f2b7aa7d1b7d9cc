/* SPDX-License-Identifier: MIT */
/* Runs a launch: block after block in an order of the seed, each to its end; in a block, always those
 * threads that are at the lowest instruction, all of them at once, until they part, meet others, wait
 * or leave. */
#include <stdlib.h>

#include "machine.h"

/* --- rows that are filled before * ---------------------------------------------------------------- */

static uint64_t special_value(const ptx_block *b, ptx_special special, unsigned lane,
                              const unsigned *block) {
    const ptx_launch *l = b->launch;
    unsigned x = l->threads[0], y = l->threads[1], in_warp = lane % PTX_WARP;
    switch (special) {
    case TID_X: return lane % x;
    case TID_Y: return lane / x % y;
    case TID_Z: return lane / x / y;
    case NTID_X:
    case NTID_Y:
    case NTID_Z: return l->threads[special - NTID_X];
    case CTAID_X:
    case CTAID_Y:
    case CTAID_Z: return block[special - CTAID_X];
    case NCTAID_X:
    case NCTAID_Y:
    case NCTAID_Z: return l->grid[special - NCTAID_X];
    case LANEID: return in_warp;
    case WARPID: return lane / PTX_WARP;
    case NWARPID: return b->pad / PTX_WARP;
    case SMID: return b->number % (unsigned)ptx_is.multiprocessors;
    case NSMID: return (unsigned)ptx_is.multiprocessors;
    case GRIDID: return b->who.base;
    case LANEMASK_EQ: return UINT32_C(1) << in_warp;
    case LANEMASK_LT: return (UINT32_C(1) << in_warp) - 1;
    case LANEMASK_LE: return UINT32_MAX >> (31 - in_warp);
    case LANEMASK_GE: return ~((UINT32_C(1) << in_warp) - 1);
    case LANEMASK_GT: return ~(UINT32_MAX >> (31 - in_warp));
    case DYNAMIC_SMEM: return l->dynamic_bytes;
    case TOTAL_SMEM: return b->shared_bytes;
    default: return b->executed; /* clocks */
    }
}

/* Whether it differs from block to block; then all threads have the same. */
static bool is_of_block(ptx_special special) {
    switch (special) {
    case CTAID_X:
    case CTAID_Y:
    case CTAID_Z:
    case SMID:
    case CLOCK:
    case CLOCK64:
    case GLOBALTIMER: return true;
    default: return false;
    }
}

static void fill_row(ptx_block *b, ptx_operand o, uint64_t value) {
    void *row = ptx_row(b, o);
    for (unsigned l = 0; l < b->threads; l++) ptx_put(row, o.bytes, l, value);
}

/* Rows of constants and of what the threads of each block have, once a launch. */
static void fill_rows(ptx_block *b) {
    const ptx_kernel *k = b->kernel;
    for (uint32_t i = 0; i < k->n_constants; i++) {
        const ptx_constant *c = &k->constants[i];
        if (c->special == N_SPECIALS) {
            fill_row(b, c->row, c->value);
        } else if (!is_of_block(c->special)) {
            void *row = ptx_row(b, c->row);
            for (unsigned l = 0; l < b->threads; l++)
                ptx_put(row, c->row.bytes, l, special_value(b, c->special, l, NULL));
        }
    }
}

static void fill_block_rows(ptx_block *b, const unsigned *block) {
    const ptx_kernel *k = b->kernel;
    for (uint32_t i = 0; i < k->n_constants; i++) {
        const ptx_constant *c = &k->constants[i];
        if (is_of_block(c->special)) fill_row(b, c->row, special_value(b, c->special, 0, block));
    }
}

/* --- control -------------------------------------------------------------------------------------- */

/* Those of a list are active. */
static void activate(ptx_block *b, const uint16_t *lane, unsigned n) {
    b->lane = lane;
    b->n = n;
    b->dense = !n || lane[n - 1] - lane[0] == (int)n - 1;
    b->whole = n && b->dense && lane[0] % PTX_WARP == 0 ? n / PTX_WARP * PTX_WARP : 0;
}

/* Makes the threads at the lowest place active. Returns where the next others are; PTX_WAITS when none
 * are left to run. */
static uint32_t choose(ptx_block *b) {
    uint32_t least = PTX_LEFT, most = 0, next = PTX_WAITS;
    for (unsigned l = 0; l < b->threads; l++) {
        least = b->at[l] < least ? b->at[l] : least;
        most = b->at[l] > most ? b->at[l] : most;
    }
    b->pc = least < PTX_WAITS ? least : PTX_WAITS;
    unsigned n = 0;
    if (least == most) {
        for (unsigned l = 0; l < b->threads; l++) b->active[l] = (uint16_t)l;
        n = b->threads;
    } else {
        for (unsigned l = 0; l < b->threads; l++) {
            b->active[n] = (uint16_t)l;
            n += b->at[l] == least;
            next = b->at[l] != least && b->at[l] < next ? b->at[l] : next;
        }
    }
    activate(b, b->active, b->pc == PTX_WAITS ? 0 : n);
    return next;
}

static void go(ptx_block *b, uint32_t to) {
    PTX_LANES(b, l, b->at[l] = to);
}

/* Nobody runs: those who wait go on, if everybody waits at the same place. */
static bool release(ptx_block *b) {
    unsigned first = PTX_THREADS, waiting = 0;
    for (unsigned l = 0; l < b->threads; l++) {
        if (b->at[l] != PTX_WAITS) continue;
        if (first == PTX_THREADS) first = l;
        waiting++;
    }
    if (!waiting) return false;
    b->n = 0;
    b->pc = b->barrier[first];
    for (unsigned l = 0; l < b->threads && ptx_checks(PTX_BARRIER); l++) {
        if (b->at[l] == PTX_LEFT) {
            ptx_found_at(b, PTX_BARRIER, first, "waits; thread %u has left, and never comes", l);
            return false;
        }
        if (b->barrier[l] != b->pc) {
            ptx_found_at(b, PTX_BARRIER, first, "waits; thread %u waits in line %u", l,
                         b->kernel->insns[b->barrier[l]].line);
            return false;
        }
    }
    for (unsigned l = 0; l < b->threads; l++)
        if (b->at[l] == PTX_WAITS) b->at[l] = b->barrier[l] + 1;
    b->counters->barriers++;
    ptx_shared_barrier(b);
    return true;
}

static unsigned warps(const ptx_block *b) {
    if (!b->n) return 0;
    if (b->dense) return b->lane[b->n - 1] / PTX_WARP - b->lane[0] / PTX_WARP + 1;
    unsigned n = 0, last = PTX_WARP;
    for (unsigned i = 0; i < b->n; i++) {
        n += b->lane[i] / PTX_WARP != last;
        last = b->lane[i] / PTX_WARP;
    }
    return n;
}

/* The active threads whose guard holds are active alone. */
static void narrow(ptx_block *b, ptx_operand guard) {
    const uint8_t *row = ptx_row(b, guard);
    unsigned n = 0;
    PTX_LANES(b, l, n += row[l] != guard.negated);
    if (n == b->n) return;
    unsigned at = 0;
    for (unsigned i = 0; n && i < b->n; i++) {
        b->some[at] = b->lane[i];
        at += row[b->lane[i]] != guard.negated;
    }
    activate(b, b->some, n);
}

/* An instruction that says where threads go on. */
static void control(ptx_block *b, const ptx_insn *in) {
    switch ((ptx_control)in->control) {
    case BRANCH: go(b, in->target); break;
    case BRANCH_TABLE: {
        const uint32_t *which = ptx_row(b, in->op[0]);
        for (unsigned i = 0; i < b->n; i++) {
            unsigned l = b->lane[i];
            if (which[l] >= in->n_targets) {
                ptx_found_at(b, PTX_TRAP, l, "entry %u of a table of %u branches", which[l], in->n_targets);
                return;
            }
            b->at[l] = b->kernel->targets[in->target + which[l]];
        }
        break;
    }
    case LEAVE: go(b, PTX_LEFT); break;
    default:
        PTX_LANES(b, l, b->barrier[l] = b->pc);
        go(b, PTX_WAITS);
        break;
    }
}

/* The active threads have been through these, all of them RUN. */
static void count(ptx_block *b, const ptx_insn *from, const ptx_insn *to, unsigned n_warps) {
    const uint64_t n = (uint64_t)(to - from);
    b->executed += n * b->n;
    b->counters->warp_instructions += n * n_warps;
    b->counters->multiply_adds += (uint64_t)(to->multiply_adds - from->multiply_adds) * b->n;
    b->counters->matrix += (uint64_t)(to->matrices - from->matrices) * n_warps;
}

/* One instruction, which may have a guard. False: the active threads must be chosen anew. */
static bool run_one(ptx_block *b, const ptx_insn *in, uint32_t *pc, unsigned n_warps) {
    const uint16_t *lane = b->lane;
    const unsigned n = b->n;
    b->pc = *pc;
    if (in->guard.slot != PTX_NONE) {
        narrow(b, in->guard);
        n_warps = warps(b);
    }
    if (in->control == RUN) {
        count(b, in, in + 1, n_warps);
        if (b->n) in->run(b, in);
        ++*pc;
        activate(b, lane, n);
        return true;
    }
    b->executed += b->n;
    b->counters->warp_instructions += n_warps;
    if (in->control == BRANCH && (!b->n || b->n == n)) {
        *pc = b->n ? in->target : *pc + 1;
        activate(b, lane, n);
        return true;
    }
    /* The others go on behind it. */
    const uint16_t *those = b->lane;
    const unsigned some = b->n;
    activate(b, lane, n);
    go(b, *pc + 1);
    activate(b, those, some);
    control(b, in);
    return false;
}

/* Until the active threads must be chosen anew. */
static void run_active(ptx_block *b, uint32_t next) {
    const ptx_insn *insns = b->kernel->insns;
    const unsigned n_warps = warps(b);
    uint32_t pc = b->pc;
    do {
        const uint32_t from = pc, straight = insns[pc].straight, end = straight < next ? straight : next;
        if (from >= end) {
            if (!run_one(b, &insns[pc], &pc, n_warps)) return;
            continue;
        }
        for (; pc < end && !b->failed; pc++) {
            b->pc = pc;
            insns[pc].run(b, &insns[pc]);
        }
        count(b, &insns[from], &insns[pc], n_warps);
    } while (!b->failed && pc < next && b->executed < b->until);
    go(b, pc);
}

static void begin_block(ptx_block *b) {
    for (unsigned l = 0; l < b->threads; l++) b->at[l] = 0;
    memset(b->async_group, 0, b->pad * sizeof *b->async_group);
    b->async_bytes = 0;
    ptx_shared_begin(b);
}

/* False: it goes on later. */
static bool run_block(ptx_block *b) {
    while (!b->failed) {
        if (b->executed >= b->until) return false;
        uint32_t next = choose(b);
        if (b->pc == PTX_WAITS) {
            if (!release(b)) return true;
        } else {
            run_active(b, next);
            if (b->executed > ptx_is.instruction_limit)
                ptx_found_at(b, PTX_ENDLESS, b->lane[0], "%llu instructions, and no end",
                             (unsigned long long)b->executed);
        }
    }
    return true;
}

static uint64_t common_divisor(uint64_t a, uint64_t b) {
    while (b) {
        uint64_t rest = a % b;
        a = b;
        b = rest;
    }
    return a;
}

static void *aligned(size_t bytes) {
    void *data = NULL;
    if (posix_memalign(&data, 128, bytes ? bytes : 128)) abort();
    memset(data, 0xa5, bytes);
    return data;
}

ptx_block *ptx_launch_begin(const ptx_launch *launch, ptx_who who) {
    const ptx_kernel *k = launch->kernel;
    ptx_block *b = ptx_alloc(1, sizeof *b);
    b->kernel = k;
    b->launch = launch;
    b->threads = launch->threads[0] * launch->threads[1] * launch->threads[2];
    b->pad = (b->threads + PTX_WARP - 1) / PTX_WARP * PTX_WARP;
    b->who = who;
    b->counters = ptx_counters_of(k->name);
    b->patterns = ptx_alloc(k->n_patterns, sizeof *b->patterns);
    b->frame = aligned((size_t)(k->frame_bytes + 8) * b->pad);
    b->local = aligned((size_t)k->local_bytes * b->threads);
    b->shared_bytes = k->shared_bytes + launch->dynamic_bytes;
    b->shared = aligned(b->shared_bytes);
    if (b->shared_bytes)
        b->shadow = (ptx_shadow){ptx_alloc(b->shared_bytes / 4 + 2, sizeof(ptx_cell)), b->shared_bytes, 2};
    fill_rows(b);
    uint64_t n = launch->n_blocks;
    b->step = ptx_random() % n + 1;
    b->number = ptx_random() % n;
    while (common_divisor(b->step, n) != 1) b->step++;
    return b;
}

bool ptx_launch_run(ptx_block *b, uint64_t most) {
    const ptx_launch *launch = b->launch;
    uint64_t n = launch->n_blocks, limit = ptx_is.instruction_limit;
    b->until = b->executed + most <= limit ? b->executed + most : limit + 1;
    for (; b->over < n && !b->failed; b->over++, b->number = (b->number + b->step) % n) {
        if (!b->within) {
            uint64_t at = b->number;
            b->who.me = b->who.base + 2 + (uint32_t)at;
            ptx_word_unlearn(b);
            unsigned block[3] = {(unsigned)(at % launch->grid[0]),
                                 (unsigned)(at / launch->grid[0] % launch->grid[1]),
                                 (unsigned)(at / launch->grid[0] / launch->grid[1])};
            fill_block_rows(b, block);
            begin_block(b);
            b->within = true;
        }
        if (!run_block(b)) return false;
        b->within = false;
    }
    return true;
}

void ptx_launch_end(ptx_block *b) {
    b->counters->launches++;
    b->counters->blocks += b->launch->n_blocks;
    b->counters->lane_instructions += b->executed;
    free(b->frame);
    free(b->local);
    free(b->shared);
    free(b->shadow.cells);
    free(b->warp_of_group);
    free(b->async);
    free(b->patterns);
    ptx_word_unlearn(b);
    free(b);
}
