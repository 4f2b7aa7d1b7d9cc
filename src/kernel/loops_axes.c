/* SPDX-License-Identifier: MIT */
/* Which axes a group's loops have: merging, and the vector axis. */
#include "loops.h"

/* --- axes ----------------------------------------------------------------------------------------- */

/* Merges axes into runs: bit i of `joined` says that axis i continues the run of the axis before it that is
 * of its kind (reduced or not). Makes the symbols and expresses each axis in them. */
static void make_axes(ash_loops *l, uint32_t joined) {
    ash_kern *k = l->k;
    l->n_outer = l->n_inner = 0;
    for (unsigned kind = 0; kind < 2; kind++) {
        ash_axis *list = kind ? l->inner : l->outer;
        unsigned *n = kind ? &l->n_inner : &l->n_outer;
        unsigned members[ASH_MAX_AXES], count = 0;
        for (unsigned i = 0; i < l->n_axes; i++)
            if ((l->reduced >> i & 1) == kind) members[count++] = i;
        for (unsigned first = 0, last; first < count; first = last + 1) {
            ash_dim extent = l->extents[members[first]];
            for (last = first; last + 1 < count && (joined >> members[last + 1] & 1); last++)
                extent = ash_kern_product(k, extent, l->extents[members[last + 1]]);
            ash_sym sym = ash_kern_sym(k, extent);
            list[(*n)++] = (ash_axis){.sym = sym, .extent = extent, .merged = last > first};
            ash_ix rest = ash_ix_sym(&k->ixs, sym);
            for (unsigned i = last + 1; i-- > first;) {
                unsigned a = members[i];
                l->index[a] = i == first ? rest : ash_ix_mod(&k->ixs, rest, l->extents[a]);
                rest = ash_ix_div(&k->ixs, rest, l->extents[a]);
            }
        }
    }
}

/* Evaluates everything once, without emitting, to see the addresses. */
static void collect(ash_loops *l) {
    ash_kern *k = l->k;
    ash_ix idx[ASH_MAX_RANK];
    k->collecting = true;
    if (l->anchor) {
        ash_loops__accumulate(l, l->anchor, 0, ASH_OP_ADD, 0);
        ash_kern_know(k, l->anchor->out, 0);
    }
    for (uint32_t i = 0; l->reduced && !l->anchor && i < k->group->n_nodes; i++) {
        const ash_node *node = &k->graph->nodes.at[k->group->nodes[i]];
        if (!ash_loops__is_reduction(k, node)) continue;
        for (unsigned o = 0; o < node->n_outs; o++) {
            ash_loops__accumulate(l, node, o, ASH_OP_ADD, 0);
            ash_kern_know(k, node->out + o, 0);
        }
    }
    ash_loops__root_index(l, idx);
    for (unsigned i = 0; i < l->n_values; i++) {
        ash_kern_eval(k, l->value + i, idx);
        ash_kern_store(k, l->target + i, idx, 0);
    }
}

/* An evaluation with some axes merged, to see the addresses. */
typedef struct dry_run {
    ash_kern kern;
    ash_loops loops;
} dry_run;

/* The caller frees `run->kern`. */
static void make_run(const ash_loops *l, dry_run *run, uint32_t joined) {
    ash_kern_init(&run->kern, l->k->low, l->k->group_id);
    run->loops = *l;
    run->loops.k = &run->kern;
    make_axes(&run->loops, joined);
    collect(&run->loops);
}

/* Whether every address is linear in every axis; where nothing is summed, and of windows, in those that are
 * merged: groups of channels have one quotient, whatever else is merged. */
static bool is_linear(const dry_run *run) {
    const ash_kern *dry = &run->kern;
    const ash_loops *l = &run->loops;
    bool linear = !dry->failed && !dry->ixs.failed;
    bool merged = l->anchor ? ash_op_infos[l->anchor->op].class != ASH_CLASS_MATMUL : !l->reduced;
    for (unsigned a = 0; a < l->n_outer + l->n_inner && linear; a++) {
        const ash_axis *axis = a < l->n_outer ? &l->outer[a] : &l->inner[a - l->n_outer];
        for (size_t i = 0; i < dry->leaves.len && linear && (axis->merged || !merged); i++)
            linear = ash_ix_is_linear(&dry->ixs, dry->leaves.at[i].at, axis->sym);
    }
    return linear;
}

/* Merges axes as long as that works. Returns the evaluation with what has been merged, which is one of the
 * two rooms, and which the caller frees. */
static dry_run *merge_axes(const ash_loops *l, dry_run *run, dry_run *spare, uint32_t *joined) {
    int last[2] = {-1, -1};
    bool made = false;
    *joined = 0;
    for (unsigned i = 0; i < l->n_axes; i++) {
        int *before = &last[l->reduced >> i & 1];
        bool window_axis = l->anchor && i >= l->n_root_axes;
        bool first = *before < 0;
        *before = (int)i;
        if (first || window_axis) continue;
        make_run(l, spare, *joined | 1u << i);
        if (!is_linear(spare)) {
            ash_kern_free(&spare->kern);
            continue;
        }
        if (made) ash_kern_free(&run->kern);
        dry_run *works = spare;
        spare = run;
        run = works;
        made = true;
        *joined |= 1u << i;
    }
    if (!made) make_run(l, run, 0);
    return run;
}

enum { NONE = INT32_MIN, ROW_MOST = 16 }; /* more steps of a row than that are many */

/* How often an address is read for each row: once, where no step of it moves it. */
static int times_of(const dry_run *run, ash_ix address) {
    const ash_loops *l = &run->loops;
    int64_t stride, steps = 1;
    for (unsigned a = 0; a < l->n_inner && !l->anchor; a++) {
        const ash_axis *axis = &l->inner[a];
        bool same = ash_ix_lane_stride(&run->kern.ixs, address, axis->sym, ROW_MOST, true, &stride);
        if (!same || stride) steps *= ASH_MIN(ash_kern_max(&run->kern, axis->extent), ROW_MOST);
    }
    return (int)ASH_MAX(ASH_MIN(steps, ROW_MOST), 1);
}

/* Addresses that are neighbours along a symbol, less those that are neither neighbours nor equal, as often
 * as they are read. */
static int score(const dry_run *run, ash_sym sym, ash_dim extent) {
    const ash_kern *dry = &run->kern;
    int points = 0;
    int64_t stride;
    if (extent == 1) return NONE;
    for (size_t i = 0; i < dry->leaves.len; i++) {
        int times = times_of(run, dry->leaves.at[i].at);
        if (!ash_ix_lane_stride(&dry->ixs, dry->leaves.at[i].at, sym, 16, true, &stride))
            points -= 2 * times;
        else
            points += stride == 1 ? 2 * times : stride == 0 ? 0 : -2 * times;
    }
    return points;
}

/* Several registers to a vector, where the axis is long enough and every address stays as simple:
 * independent chains of instructions that hide each other's latency, and several partial results for a
 * reduction. A short reduction across rows takes half of all registers: the more of a row is read at
 * once, the fewer pages are gone through. `sums` that are taken at once share them. */
static unsigned widen(const ash_kern *dry, const ash_axis *a, unsigned lanes, bool across, unsigned sums) {
    enum { WINDOW_CHAINS = 2 };
    int64_t narrow, wide;
    const ash_target *target = dry->low->target;
    unsigned chains = target->chains;
    if (ash_loops__work(dry) <= target->costs.overlap_body)
        chains = across ? ASH_MAX(chains, target->vector_registers / 2)
                        : ASH_MIN(chains, (unsigned)target->costs.overlap_chains);
    /* a window's sums, and what is computed of them, are so long that more have no use */
    if (dry->group->kind == ASH_GROUP_POOL && dry->group->n_nodes > 1)
        chains = ASH_MIN(chains, WINDOW_CHAINS);
    while (chains > 1 && chains * sums > ASH_MAX(target->vector_registers / 2, target->chains)) chains /= 2;
    for (unsigned factor = chains; factor > 1; factor /= 2) {
        unsigned trial = factor * lanes;
        bool fits = ash_kern_max(dry, a->extent) >= trial;
        for (size_t i = 0; i < dry->leaves.len && fits; i++) {
            bool before = ash_ix_lane_stride(&dry->ixs, dry->leaves.at[i].at, a->sym, lanes, true, &narrow);
            bool after = ash_ix_lane_stride(&dry->ixs, dry->leaves.at[i].at, a->sym, trial, true, &wide);
            fits = before && after && narrow == wide && (narrow == 0 || narrow == 1);
        }
        if (fits) return trial;
    }
    return lanes;
}

/* The length of parts of the last axis within which an address is linear that is not along the whole
 * axis, as columns that are repeated are; 0 where there is none. */
static ash_dim part_of(const dry_run *run) {
    const ash_kern *dry = &run->kern;
    const ash_loops *l = &run->loops;
    const ash_axis *axis = &l->outer[l->n_outer - 1];
    const ash_ixs *ixs = &dry->ixs;
    const ash_ix whole = ash_ix_sym(&run->loops.k->ixs, axis->sym);
    for (size_t i = 0; i < dry->leaves.len; i++) {
        const ash_sum sum = ash_ix_sum(ixs, dry->leaves.at[i].at);
        for (uint32_t t = 0; t < sum.n; t++) {
            const ash_atom *atom = &ixs->atoms.at[ixs->terms.at[sum.first + t].atom];
            if (atom->kind == ASH_ATOM_MOD && atom->ref == whole) return atom->by;
        }
    }
    return 0;
}

/* Whether a loop along each part is fewer instructions than one along the whole axis: there each vector
 * computes and gathers; here each computes, and the last one of a part is full in part alone. */
static bool parts_are_less(const dry_run *run, const dry_run *parted) {
    const ash_kern *dry = &run->kern;
    const ash_costs *costs = &dry->low->target->costs;
    const ash_axis *axis = &run->loops.outer[run->loops.n_outer - 1];
    const ash_axis *part = &parted->loops.outer[parted->loops.n_outer - 1];
    const int64_t lanes = ash_kern_lanes(run->loops.k), length = ash_kern_max(dry, part->extent);
    const int64_t work = ash_loops__work(dry) + (int64_t)dry->leaves.len;
    const int gained = score(parted, part->sym, part->extent) - score(run, axis->sym, axis->extent);
    if (gained <= 0 || length < 1) return false;
    return ash_ceil_div(length, lanes) * lanes * work <= length * (work + costs->work_gather);
}

/* Cuts the last axis into parts where that spares gathers: the result is the same memory in the same order.
 * Where threads are the lanes, a gather of neighbours costs them what a load does. */
static dry_run *cut_axis(ash_loops *l, dry_run *run, dry_run *spare, uint32_t joined) {
    ash_kern *dry = &run->kern;
    ash_dim count, part;
    if (l->reduced || l->anchor || l->k->low->target->kind != ASH_TARGET_CPU || !run->loops.n_outer ||
        l->n_axes == ASH_MAX_AXES || l->n_axes != l->n_root_axes || dry->failed ||
        (part = part_of(run)) == 0)
        return run;
    ash_loops cut = *l;
    const ash_dim whole = l->extents[l->n_axes - 1];
    if (run->loops.outer[run->loops.n_outer - 1].merged || part == whole ||
        !ash_ix_is_multiple(&dry->ixs, whole, part, &count))
        return run;
    cut.parts = true;
    cut.extents[cut.n_axes - 1] = count;
    cut.extents[cut.n_axes++] = part;
    make_run(&cut, spare, joined);
    if (spare->kern.failed || spare->kern.ixs.failed || !parts_are_less(run, spare)) {
        ash_kern_free(&spare->kern);
        return run;
    }
    ash_kern_free(&run->kern);
    *l = cut;
    return spare;
}

/* Whether what full vectors leave along an axis is one under a mask. Where masks have no registers, a
 * gather under one is slower than its elements one by one. */
static bool are_masked(const ash_kern *dry, const ash_axis *a, unsigned lanes) {
    const ash_target *target = dry->low->target;
    bool masked = target->masks != 0;
    int64_t stride;
    for (size_t i = 0; i < dry->leaves.len && masked && target->masks > 1; i++) {
        const ash_kern_leaf *leaf = &dry->leaves.at[i];
        if (leaf->value == ASH_NO_VALUE) continue;
        const size_t bytes = ash_dtype_size(ash_graph__type(dry->graph, leaf->value)->dtype);
        masked = ash_target__masks(target, bytes) &&
                 ash_ix_lane_stride(&dry->ixs, leaf->at, a->sym, lanes, true, &stride);
    }
    return masked;
}

/* Whether an address has a number that is loaded for each element along an axis, and for nothing else. */
static bool is_by_table(const ash_kern *dry, const ash_axis *a) {
    const ash_ixs *ixs = &dry->ixs;
    for (size_t i = 0; i < dry->leaves.len; i++) {
        const ash_sum sum = ash_ix_sum(ixs, dry->leaves.at[i].at);
        for (uint32_t t = 0; t < sum.n; t++) {
            const ash_atom *atom = &ixs->atoms.at[ixs->terms.at[sum.first + t].atom];
            if (atom->kind == ASH_ATOM_LOADED && atom->syms == UINT64_C(1) << a->sym) return true;
        }
    }
    return false;
}

/* What is read once for a row: numbers of its own, and the indices by which it is looked up. */
static int64_t own_reads(const ash_kern *dry, ash_sym along) {
    int64_t own = 0;
    for (size_t i = 0; i < dry->leaves.len; i++)
        own += !ash_ix_depends(&dry->ixs, dry->leaves.at[i].at, along);
    return own;
}

/* Whether rows may be shorter than two vectors, which is worth code of its own: what a row begins with is
 * felt where it computes little. `dry` has the addresses. */
static bool has_short_rows(const ash_loops *l, const ash_kern *dry, const ash_loops *trial,
                           const ash_axis *a, bool inner) {
    const ash_kern *k = l->k;
    const bool pool = l->anchor && ash_op_infos[l->anchor->op].class == ASH_CLASS_POOL;
    return k->low->target->kind == ASH_TARGET_CPU && l->masked && l->narrow > 1 && l->turn < 0 && !inner &&
           !l->by_columns && trial->n_outer > 1 && !ash_dim_is_const(a->extent) &&
           (pool || (!l->reduced && !l->anchor)) &&
           ash_loops__work(k) - own_reads(dry, a->sym) <= k->low->target->costs.overlap_body;
}

/* Whether what is reduced may be less than a vector, along the only inner axis, and rows are along the only
 * outer one, so that a vector can go across them instead. Where masks have no registers, what is gathered
 * costs more than lanes that come together, unless much is computed of it. */
static bool has_short_sums(const ash_loops *l, const ash_loops *trial, const ash_axis *a, bool inner) {
    const ash_kern *k = l->k;
    const ash_target *target = k->low->target;
    return inner && target->kind == ASH_TARGET_CPU && l->masked && l->narrow > 1 && l->turn < 0 &&
           l->reduced && !l->anchor && trial->n_outer == 1 && trial->n_inner == 1 &&
           !ash_dim_is_const(a->extent) && ash_kern_max(k, trial->outer[0].extent) > 1 &&
           (target->masks == 1 || ash_loops__work(k) > target->costs.work_gather);
}

enum { SHORT_LANES = 4 }; /* of the shortest vectors that are worth having */

void ash_loops__choose_axes(ash_loops *l) {
    uint32_t joined;
    dry_run rooms[2], *run = merge_axes(l, &rooms[0], &rooms[1], &joined);
    run = cut_axis(l, run, run == rooms ? rooms + 1 : rooms, joined);
    ash_kern *dry = &run->kern;
    const ash_loops *trial = &run->loops;
    int best = NONE;
    bool inner = false;
    for (unsigned kind = 0; kind < 2; kind++) {
        unsigned n = kind ? trial->n_inner : trial->n_outer;
        const ash_axis *list = kind ? trial->inner : trial->outer;
        /* A vector along a window, or along the channels that a convolution sums, has no use. */
        if (kind && l->anchor && ash_op_infos[l->anchor->op].class != ASH_CLASS_MATMUL) continue;
        if (!n) continue;
        int points = score(run, list[n - 1].sym, list[n - 1].extent);
        if (points > best) best = points, inner = kind;
    }
    l->packed = l->k->packed = ash_loops__rows_are_packed(l, dry, trial);
    if (l->packed) inner = false, best = 0;
    l->vector_inner = inner;
    l->lanes = l->narrow = 1;
    l->turn = -1;
    if (best > NONE) {
        const ash_axis *a = inner ? &trial->inner[trial->n_inner - 1] : &trial->outer[trial->n_outer - 1];
        l->narrow = ash_kern_lanes(l->k);
        /* windows begin anywhere: there neighbouring threads read neighbouring elements, not vectors */
        if (l->anchor && !inner && l->k->low->target->kind == ASH_TARGET_GPU) l->narrow = 1;
        /* what is computed element by element has vectors as long as a short axis, and needs no mask */
        bool short_axis = ash_dim_is_const(a->extent) && a->extent < l->narrow && ash_is_pow2(a->extent);
        if (short_axis && a->extent >= SHORT_LANES && !l->reduced && !l->anchor)
            l->narrow = (unsigned)a->extent;
        l->across = l->reduced && !l->anchor && !inner && l->k->low->target->kind == ASH_TARGET_CPU;
        l->masked = are_masked(dry, a, l->narrow);
        ash_loops__choose_turn(l, dry, trial);
        l->by_columns = l->turn < 0 && !inner && !l->reduced && !l->anchor && trial->n_outer > 1 &&
                        l->k->low->target->kind == ASH_TARGET_CPU && dry->close && is_by_table(dry, a);
        l->short_rows = has_short_rows(l, dry, trial, a, inner);
        l->short_sums = has_short_sums(l, trial, a, inner);
        l->lanes = l->turn >= 0 ? l->narrow : widen(dry, a, l->narrow, l->across, l->n_values);
    }
    ash_kern_free(&run->kern);
    make_axes(l, joined);
    ash_loops__choose_threads(l);
}
