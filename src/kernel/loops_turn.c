/* SPDX-License-Identifier: MIT */
/* Transposing in registers.
 *
 * Where a result is written along one axis and an operand lies along another, a vector along the first
 * would have to be gathered, element by element. Instead a block of rows along the second axis is made at
 * once:
 *
 *     for a block of the other axis             a line's worth of elements, so that each line is read once
 *       for v in the vector axis, a vector at a time
 *         load `lanes` vectors along the other axis, one for each lane of v; transpose them
 *         for each row of the block: evaluate and store the root, with the operand's vector known
 *
 * At the ends of either axis squares are there in part: loaded and stored under masks, where elements of
 * that size have them, and gathered where they do not. */
#include "loops.h"

/* --- the block ------------------------------------------------------------------------------------ */

/* One bit of the row number changes places with one bit of the lane number. */
static void swap_bit(ash_nest *n, ash_ref *rows, unsigned lanes, unsigned bit) {
    int32_t keep_low[ASH_MAX_TURNED], keep_high[ASH_MAX_TURNED];
    for (unsigned i = 0; i < lanes; i++) {
        keep_low[i] = (int32_t)(i & bit ? lanes + (i ^ bit) : i);
        keep_high[i] = (int32_t)(i & bit ? lanes + i : i ^ bit);
    }
    for (unsigned r = 0; r < lanes; r++) {
        if (r & bit) continue;
        ash_ref low = rows[r], high = rows[r | bit];
        rows[r] = ash_nest_shuffle(n, low, high, lanes, keep_low);
        rows[r | bit] = ash_nest_shuffle(n, low, high, lanes, keep_high);
    }
}

/* Perfect shuffles of `part` rows, each part of a register by itself: as often as `part` has bits they
 * transpose its squares, in one instruction each. */
static void interleave(ash_nest *n, ash_ref *rows, unsigned lanes, unsigned part) {
    int32_t low[ASH_MAX_TURNED], high[ASH_MAX_TURNED];
    for (unsigned i = 0; i < lanes; i++) {
        int32_t at = (int32_t)(i / part * part + i % part / 2 + i % 2 * lanes);
        low[i] = at;
        high[i] = at + (int32_t)part / 2;
    }
    for (unsigned first = 0; first < lanes; first += part) {
        ash_ref out[ASH_MAX_TURNED];
        for (unsigned i = 0; i < part / 2; i++) {
            ash_ref a = rows[first + i], b = rows[first + part / 2 + i];
            out[2 * i] = ash_nest_shuffle(n, a, b, lanes, low);
            out[2 * i + 1] = ash_nest_shuffle(n, a, b, lanes, high);
        }
        memcpy(rows + first, out, part * sizeof *out);
    }
}

void ash_kern_transpose(ash_kern *k, ash_ref *rows, unsigned lanes, size_t element) {
    ash_nest *n = &k->nest;
    unsigned part = (unsigned)k->low->target->costs.turn_part_bytes / (unsigned)element; /* of a register */
    part = ASH_MIN(part, lanes);
    for (unsigned bit = 1; bit < part; bit *= 2) interleave(n, rows, lanes, part);
    for (unsigned bit = part; bit < lanes; bit *= 2) swap_bit(n, rows, lanes, bit);
}

/* Whether an address has neighbours along another symbol, and one distance along the vector symbol, a
 * number or an expression: so no number that was loaded for each lane is part of it. */
bool ash_kern_is_turned(ash_ixs *ixs, ash_ix at, ash_sym vsym, ash_sym along, unsigned lanes) {
    int64_t stride;
    ash_ix apart;
    bool even = ash_ix_lane_stride(ixs, at, vsym, lanes, true, &stride);
    if (even ? stride == 0 || stride == 1 : !ash_ix_stride(ixs, at, vsym, &apart)) return false;
    return ash_ix_lane_stride(ixs, at, along, lanes, true, &stride) && stride == 1;
}

/* Where the row of a square at `at` is read, and under which mask: `part`: a row may lie in the padding in
 * part. A row that is there lies wholly in the buffer, and stays where it is; of one that is there in part
 * what lies in the buffer is read, and what is not there dropped. */
static ash_ref row_address(ash_kern *k, ash_ref at, bool part, ash_ref end, bool small, ash_ref *mask) {
    const ash_kern_turn *t = k->turn;
    ash_nest *n = &k->nest;
    *mask = ASH_NO_REF;
    if (t->count != ASH_NO_REF) *mask = ash_kern_first_lanes(k, t->count);
    if (part) {
        *mask = ash_nest_both(n, *mask, ash_kern_lanes_in_bounds(k, at, true, end, small));
    } else if (end != ASH_NO_REF) {
        const ash_ref count = t->count == ASH_NO_REF ? ash_nest_index(n, k->lanes) : t->count;
        const ash_ref last = ash_nest_binary(n, ASH_OP_SUB, end, count);
        at = ash_nest_binary(n, ASH_OP_MIN, at, last);
        at = ash_nest_binary(n, ASH_OP_MAX, at, ash_nest_index(n, 0));
    }
    return at;
}

bool ash_kern_turned_load(ash_kern *k, uint16_t buf, ash_ix linear, ash_ref end, int64_t most,
                          ash_ref *out) {
    ash_kern_turn *t = k->turn;
    ash_nest *n = &k->nest;
    for (unsigned i = 0; i < t->n_loads; i++) {
        if (t->loads[i].buf != buf || t->loads[i].linear != linear) continue;
        *out = t->loads[i].rows[t->row];
        return true;
    }
    const size_t element = ash_dtype_size(k->nest.buffers.at[buf].dtype);
    bool part = false; /* whether a row may lie in the padding in part */
    for (size_t i = 0; i < k->ixs.facts.len; i++)
        part |= ash_ix_depends(&k->ixs, k->ixs.facts.at[i].ix, t->along);
    if (t->n_loads == ASH_MAX_TURNED_LOADS || t->row || ash_kern_lost(k) ||
        !ash_kern_is_turned(&k->ixs, linear, k->vsym, t->along, k->lanes) ||
        (part && (end == ASH_NO_REF || !ash_target__masks(k->low->target, element))))
        return false;
    const ash_sum sum = ash_ix_sum(&k->ixs, linear);
    const bool small = most <= INT32_MAX && sum.min > INT32_MIN && sum.max < INT32_MAX;
    ash_ref v = k->sym_refs.at[k->vsym], *rows = t->loads[t->n_loads].rows;
    for (unsigned i = 0; i < k->lanes; i++) {
        ash_ref here = ash_nest_binary(n, ASH_OP_ADD, v, ash_nest_index(n, i)), mask;
        if (t->last != ASH_NO_REF && i) here = ash_nest_binary(n, ASH_OP_MIN, here, t->last);
        ash_kern_set_sym(k, k->vsym, here);
        const ash_ref at = row_address(k, ash_kern_index(k, linear), part, end, small, &mask);
        rows[i] = ash_nest_load(n, buf, at, k->lanes, mask);
    }
    ash_kern_set_sym(k, k->vsym, v);
    if (n->failed) return false;
    ash_kern_transpose(k, rows, k->lanes, element);
    t->loads[t->n_loads].buf = buf;
    t->loads[t->n_loads++].linear = linear;
    *out = rows[0];
    return true;
}

/* --- the loops ------------------------------------------------------------------------------------ */

/* The axis along which most operands lie, with at least `least` elements, in squares of `lanes`; or -1. */
static int turned_axis(ash_kern *dry, const ash_loops *trial, unsigned lanes, unsigned least) {
    const ash_axis *v = &trial->outer[trial->n_outer - 1];
    int found = -1;
    unsigned most = 0;
    for (unsigned a = 0; a + 1 < trial->n_outer; a++) {
        const ash_axis *other = &trial->outer[a];
        if (ash_kern_max(dry, other->extent) < least) continue;
        unsigned count = 0;
        for (size_t i = 0; i + 1 < dry->leaves.len; i++) /* the last is where the root is stored */
            count += ash_kern_is_turned(&dry->ixs, dry->leaves.at[i].at, v->sym, other->sym, lanes);
        if (count > most) most = count, found = (int)a;
    }
    return found;
}

/* Whether all that is read and written has masks, so that squares may be there in part. */
static bool has_masks(const ash_kern *dry) {
    bool masks = dry->low->target->kind == ASH_TARGET_CPU;
    for (size_t i = 0; i < dry->leaves.len && masks; i++) {
        const ash_value value = dry->leaves.at[i].value;
        masks =
            value == ASH_NO_VALUE ||
            ash_target__masks(dry->low->target, ash_dtype_size(ash_graph__type(dry->graph, value)->dtype));
    }
    return masks;
}

void ash_loops__choose_turn(ash_loops *l, ash_kern *dry, const ash_loops *trial) {
    enum {
        LEAST = 16, /* of an axis that is worth squares of 32 */
        NEAR = 6    /* of fewer elements apart, loads and shuffles are quicker (table.c) */
    };
    const ash_target *target = dry->low->target;
    const bool gpu = target->kind == ASH_TARGET_GPU;
    const unsigned full = ASH_MIN(l->narrow, (unsigned)ASH_MAX_TURNED);
    const unsigned fewest = gpu ? full : ASH_MAX(full / 2, (unsigned)ASH_LEAST_TURNED);
    if (l->vector_inner || l->anchor || trial->n_inner || full < 2 || (full & (full - 1)) ||
        ash_loops__work(dry) > target->costs.turn_body)
        return;
    const int64_t extent = ash_kern_max(dry, trial->outer[trial->n_outer - 1].extent);
    const bool parts = has_masks(dry);
    for (unsigned lanes = full; l->turn < 0 && (lanes == full || lanes >= fewest); lanes /= 2) {
        const unsigned least = gpu ? ASH_MAX(lanes, (unsigned)LEAST) : parts ? NEAR : lanes;
        if (extent >= (parts ? 2 : least)) l->turn = turned_axis(dry, trial, lanes, least);
        if (l->turn < 0) continue;
        const int64_t shorter = ASH_MIN(extent, ash_kern_max(dry, trial->outer[l->turn].extent));
        l->narrow = lanes;
        while (parts && l->narrow > ASH_LEAST_TURNED && l->narrow / 2 >= shorter) l->narrow /= 2;
        l->turn_parts = parts;
        l->masked |= parts;
    }
}

typedef struct turned_block {
    ash_sym along;
    ash_ref from;
    ash_ref count; /* rows: a number, a multiple of the lanes unless they are the last */
    ash_ref last;  /* of the vector axis */
} turned_block;

/* So many rows from `base` on, of the present vector. ASH_NO_REF: a square of them. */
static void turn_square(ash_loops *l, const turned_block *b, ash_ref base, ash_ref count) {
    ash_kern *k = l->k;
    ash_nest *n = &k->nest;
    const size_t mark = ash_kern_mark(k);
    const bool known = count == ASH_NO_REF || ash_nest_at(n, count)->op == ASH_NEST_INT;
    const int64_t rows = count == ASH_NO_REF || !known ? k->lanes : ash_nest_at(n, count)->i;
    ash_kern_turn turn = {.along = b->along,
                          .base = base,
                          .count = count,
                          .mask = k->mask,
                          .last = k->mask == ASH_NO_REF ? ASH_NO_REF : b->last};
    k->turn = &turn;
    for (; turn.row < rows; turn.row++) {
        const ash_ref row = ash_nest_index(n, turn.row);
        const bool asked = !known && turn.row;
        if (asked) ash_nest_if(n, ash_nest_binary(n, ASH_OP_LT, row, count));
        ash_kern_set_sym(k, b->along, ash_nest_binary(n, ASH_OP_ADD, base, row));
        ash_loops__store(l, NULL);
        ash_kern_forget(k, mark);
        if (asked) ash_nest_end(n);
    }
    k->turn = NULL;
}

static void block_body(ash_loops *l, void *arg) {
    const turned_block *b = arg;
    ash_kern *k = l->k;
    ash_nest *n = &k->nest;
    if (n->failed) return;
    const size_t mark = ash_kern_mark(k);
    const bool known = ash_nest_at(n, b->count)->op == ASH_NEST_INT;
    const int64_t rows = known ? ash_nest_at(n, b->count)->i : 0, lanes = k->lanes;
    const ash_ref end = ash_nest_binary(n, ASH_OP_ADD, b->from, b->count);
    if (lanes == 1 || (!l->turn_parts && (k->mask != ASH_NO_REF || !known || rows % lanes))) {
        ash_kern_loop(k, b->along, b->from, end, 1, 1);
        ash_loops__store(l, NULL);
        ash_nest_end(n);
        ash_kern_forget(k, mark);
        return;
    }
    for (int64_t first = 0; first < rows; first += lanes)
        turn_square(l, b, ash_nest_binary(n, ASH_OP_ADD, b->from, ash_nest_index(n, first)),
                    rows - first < lanes ? ash_nest_index(n, rows - first) : ASH_NO_REF);
    if (known) return;
    const ash_ref step = ash_nest_index(n, lanes);
    const ash_ref squares = ash_nest_binary(n, ASH_OP_MUL, ash_nest_idiv(n, b->count, step), step);
    const ash_ref behind = ash_nest_binary(n, ASH_OP_ADD, b->from, squares);
    turn_square(l, b, ash_nest_loop(n, b->from, behind, lanes, 1), ASH_NO_REF);
    ash_nest_end(n);
    ash_nest_if(n, ash_nest_binary(n, ASH_OP_LT, behind, end));
    turn_square(l, b, behind, ash_nest_binary(n, ASH_OP_SUB, end, behind));
    ash_nest_end(n);
}

ash_dim ash_loops__emit_turned(ash_loops *l) {
    ash_kern *k = l->k;
    ash_nest *n = &k->nest;
    const ash_costs *c = &k->low->target->costs;
    unsigned last = l->n_outer - 1, width = l->narrow;
    const ash_axis *v = &l->outer[last], *other = &l->outer[l->turn];
    size_t element = ash_dtype_size(ash_graph__type(k->graph, l->target)->dtype);
    int64_t rows = ASH_MAX((int64_t)width, c->line_bytes / (int64_t)element);
    if (ash_loops__work(k) * rows > c->turn_block_body || ash_kern_max(k, other->extent) < rows)
        rows = width;
    bool v_whole = ash_dim_is_const(v->extent) && v->extent % width == 0;
    bool whole = ash_dim_is_const(other->extent) && other->extent % rows == 0;
    ash_dim blocks = ash_kern_ceil_div(k, other->extent, rows), total = 1;
    for (unsigned i = 0; i < last; i++)
        total = ash_kern_product(k, total, (int)i == l->turn ? blocks : l->outer[i].extent);
    int64_t work = ASH_MAX(ash_kern_max(k, v->extent), 1) * rows * ASH_MAX(k->group->n_nodes, 1u);
    int64_t per = ASH_MAX(c->chunk_elements / work, 1);
    ash_ref chunk = ash_nest_loop(n, ash_kern_argument(k, ASH_NEST_BEGIN_ARG),
                                  ash_kern_argument(k, ASH_NEST_END_ARG), 1, 1);
    ash_ref first = ash_nest_binary(n, ASH_OP_MUL, chunk, ash_nest_index(n, per));
    ash_ref end =
        ash_nest_binary(n, ASH_OP_MIN, ash_nest_binary(n, ASH_OP_ADD, first, ash_nest_index(n, per)),
                        ash_kern_dim(k, total));
    ash_ref number = ash_nest_loop(n, first, end, 1, 1), from = ASH_NO_REF;
    for (unsigned i = last; i-- > 0;) {
        bool is_other = (int)i == l->turn;
        ash_ref extent = ash_kern_dim(k, is_other ? blocks : l->outer[i].extent);
        ash_ref at = i ? ash_nest_imod(n, number, extent) : number;
        if (i) number = ash_nest_idiv(n, number, extent);
        if (is_other)
            from = ash_nest_binary(n, ASH_OP_MUL, at, ash_nest_index(n, rows));
        else
            ash_kern_set_sym(k, l->outer[i].sym, at);
    }
    ash_ref zero = ash_nest_index(n, 0), v_end = ash_kern_dim(k, v->extent);
    turned_block b = {.along = other->sym,
                      .from = from,
                      .count = ash_nest_index(n, rows),
                      .last = ash_nest_binary(n, ASH_OP_SUB, v_end, ash_nest_index(n, 1))};
    ash_ref limit = ash_kern_dim(k, other->extent),
            next = ash_nest_binary(n, ASH_OP_ADD, from, ash_nest_index(n, rows));
    /* some blocks are whole; of a variable's, squares are a loop anyway */
    const bool some =
        ash_kern_max(k, other->extent) >= rows && (ash_dim_is_const(other->extent) || !l->turn_parts);
    if (!whole && some) ash_nest_if(n, ash_nest_binary(n, ASH_OP_LE, next, limit));
    if (some)
        ash_loops__vector(l, v, zero, v_end, v_whole, &(ash_loops_inner){.body = block_body, .arg = &b});
    if (!whole) {
        if (some) ash_nest_else(n);
        /* what is left, which is a number where the axis is one; that it is less than a block is said */
        b.count = ash_dim_is_const(other->extent)
                      ? ash_nest_index(n, other->extent % rows)
                      : ash_nest_binary(n, ASH_OP_SUB, ash_nest_binary(n, ASH_OP_MIN, next, limit), from);
        ash_loops__vector(l, v, zero, v_end, v_whole, &(ash_loops_inner){.body = block_body, .arg = &b});
        if (some) ash_nest_end(n);
    }
    ash_nest_end(n);
    ash_nest_end(n);
    return ash_kern_ceil_div(k, total, per);
}
