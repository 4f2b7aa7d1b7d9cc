/* SPDX-License-Identifier: MIT */
/* Gathers by tables: indices that are constants of the graph, as resizing and padding have them.
 *
 * A table that is a line (every second element) or stairs (each element twice) becomes an expression, and
 * nothing is loaded. Of others it is known that they name elements that there are, so that nothing is
 * brought inside; and where a long part of one counts up (what lies between reflected ends), vectors of
 * that part are loaded as neighbours, where the others are gathered. Where neighbours are one apart at most
 * (an image that grows, short reflected rows), one vector has all that another's lanes want, in other
 * places; of tables that are computed and have more entries than there are elements that is tested. */
#include "kern.h"

enum {
    MOST = 1 << 20,  /* entries that are looked at */
    LEAST_RUN = 2,   /* vectors of a part that counts up, so that it is worth a branch */
    MOST_STAIR = 16, /* entries in a row that are the same */
};

typedef struct table {
    const void *data;
    ash_dtype dtype; /* i32 or i64 */
    int64_t count;
} table;

static int64_t entry(const table *t, int64_t i) {
    return t->dtype == ASH_I32 ? ((const int32_t *)t->data)[i] : ((const int64_t *)t->data)[i];
}

/* Reads a table whose entries all lie in [0, size). */
static bool read_table(const ash_kern *k, ash_value value, int64_t size, table *t) {
    const ash_value_info *info = ash_graph__value(k->graph, value);
    if (info->kind != ASH_VALUE_CONSTANT || info->type.rank != 1 || !ash_dim_is_const(info->type.dims[0]) ||
        (info->type.dtype != ASH_I32 && info->type.dtype != ASH_I64))
        return false;
    *t = (table){info->blob->data, info->type.dtype, info->type.dims[0]};
    if (t->count == 0 || t->count > MOST) return false;
    for (int64_t i = 0; i < t->count; i++)
        if (entry(t, i) < 0 || entry(t, i) >= size) return false;
    return true;
}

/* Entries from i on that are the same. */
static int64_t same_from(const table *t, int64_t i) {
    int64_t end = i + 1;
    while (end < t->count && entry(t, end) == entry(t, i)) end++;
    return end - i;
}

/* Whether entry i is first + (step * i + shift) / by for all i. */
static bool is_line(const table *t, int64_t step, int64_t shift, int64_t by) {
    for (int64_t i = 0; i < t->count; i++)
        if (entry(t, i) != entry(t, 0) + (step * i + shift) / by) return false;
    return true;
}

/* The longest part that counts up by one: [*from, *to). */
static void longest_run(const table *t, int64_t *from, int64_t *to) {
    *from = *to = 0;
    for (int64_t i = 0, end; i < t->count; i = end) {
        for (end = i + 1; end < t->count && entry(t, end) == entry(t, end - 1) + 1;) end++;
        if (end - i > *to - *from) *from = i, *to = end;
    }
}

/* Whether neighbours are one apart at most. *up: none is less than the one before it. */
static bool is_gentle(const table *t, bool *up) {
    *up = true;
    for (int64_t i = 1; i < t->count; i++) {
        const int64_t step = entry(t, i) - entry(t, i - 1);
        if (step < -1 || step > 1) return false;
        *up = *up && step >= 0;
    }
    return true;
}

/* Whether lanes have neighbours of a table. */
static bool are_in_line(const ash_kern *k, ash_ix at) {
    int64_t stride;
    return k->lanes > 1 && k->guard == ASH_NO_REF &&
           ash_ix_lane_stride(&k->ixs, at, k->vsym, k->lanes, k->aligned, &stride) && stride == 1;
}

enum { DEPTH = 8 /* nodes that are looked through for what is known of indices */ };

/* Whether no element of a tensor of integers is seen to be negative: where each is the larger of itself and
 * another such one. */
static bool is_from_zero(const ash_kern *k, ash_value value, unsigned depth) {
    const ash_value_info *info = ash_graph__value(k->graph, value);
    int64_t count, number;
    if (info->kind == ASH_VALUE_CONSTANT) {
        ash_wide one = {.dtype = info->type.dtype, .count = 1, .i = &number};
        if (!ash_type_static_count(&info->type, &count) || count != 1) return false;
        ash_wide_load(&one, info->blob->data);
        return number >= 0;
    }
    if (info->kind != ASH_VALUE_NODE || depth == DEPTH) return false;
    const ash_node *node = &k->graph->nodes.at[info->node];
    switch (node->op) {
    case ASH_OP_RESHAPE:
    case ASH_OP_BROADCAST: return is_from_zero(k, node->ins[0], depth + 1);
    case ASH_OP_MAX:
        return is_from_zero(k, node->ins[0], depth + 1) || is_from_zero(k, node->ins[1], depth + 1);
    case ASH_OP_MIN:
        return is_from_zero(k, node->ins[0], depth + 1) && is_from_zero(k, node->ins[1], depth + 1);
    default: return false;
    }
}

bool ash_kern_is_from_zero(const ash_kern *k, ash_value indices) {
    return is_from_zero(k, indices, 0);
}

/* The most that neighbours of a list of integers are apart, as far as that is seen, else -1: of a number
 * that is repeated none, of what counts up one, and by what is computed from these. *up: none is less than
 * the one before it. */
static int64_t step_of(const ash_kern *k, ash_value value, unsigned depth, bool *up) {
    enum { MOST_STEP = 1 << 16 };
    const ash_value_info *info = ash_graph__value(k->graph, value);
    bool a_up = true, b_up = true;
    int64_t count;
    *up = true;
    if (ash_type_static_count(&info->type, &count) && count == 1) return 0;
    if (info->kind != ASH_VALUE_NODE || depth == DEPTH || info->type.rank > 1 ||
        (info->type.dtype != ASH_I32 && info->type.dtype != ASH_I64))
        return -1;
    const ash_node *node = &k->graph->nodes.at[info->node];
    if (node->op == ASH_OP_IOTA) return 1;
    const int64_t a = node->n_ins ? step_of(k, node->ins[0], depth + 1, &a_up) : -1,
                  b = node->n_ins > 1 ? step_of(k, node->ins[1], depth + 1, &b_up) : 0;
    if (a < 0 || b < 0 || a + b > MOST_STEP) return -1;
    *up = a_up && b_up;
    switch (node->op) {
    case ASH_OP_RESHAPE: return a;
    case ASH_OP_ABS: *up = !a; return a;
    case ASH_OP_BROADCAST: return a ? -1 : 0;
    case ASH_OP_ADD: return a + b;
    case ASH_OP_SUB: *up = a_up && !b; return a + b;
    case ASH_OP_MIN:
    case ASH_OP_MAX: return ASH_MAX(a, b);
    case ASH_OP_DIV: *up = !a || (a_up && is_from_zero(k, node->ins[1], 0)); return b ? -1 : a;
    default: return -1;
    }
}

bool ash_kern_is_close(const ash_kern *k, ash_value indices, bool *up) {
    const int64_t step = step_of(k, indices, 0, up);
    return step == 0 || step == 1;
}

/* The first of the elements that the lanes which count name. */
static ash_ref least_of(ash_kern *k, ash_ref loaded) {
    ash_nest *n = &k->nest;
    if (k->mask != ASH_NO_REF) { /* lane 0 counts always */
        ash_ref one = ash_nest_splat(n, ash_nest_extract(n, loaded, 0), k->lanes);
        loaded = ash_nest_select(n, k->mask, loaded, one);
    }
    return ash_nest_hreduce(n, ASH_OP_MIN, loaded);
}

void ash_kern_note_close(ash_kern *k, ash_ix at, ash_ref loaded, ash_dim size, ash_kern_closeness how) {
    const ash_target *target = k->low->target;
    ash_nest *n = &k->nest;
    int64_t least, most;
    ash_dims_bounds(k->ixs.dims, size, &least, &most);
    if (!are_in_line(k, at) || !target->masks || k->lanes != ash_target_lanes(target, sizeof(float)) ||
        n->failed || ash_nest_at(n, loaded)->lanes != k->lanes || most > INT32_MAX)
        return;
    const bool all = most <= k->lanes; /* of the axis */
    ash_ref first = all                       ? ash_nest_index(n, 0)
                    : how == ASH_CLOSE_BY_ONE ? least_of(k, loaded)
                                              : ash_nest_extract(n, loaded, 0);
    ash_ref left = ash_nest_cast(n, ASH_I32, ash_nest_binary(n, ASH_OP_SUB, ash_kern_dim(k, size), first));
    ash_ref places = ash_nest_binary(n, ASH_OP_SUB, ash_nest_cast(n, ASH_I32, loaded),
                                     ash_nest_splat(n, ash_nest_cast(n, ASH_I32, first), k->lanes));
    ash_ref lanes = ash_nest_cast(n, ASH_I32, ash_nest_lanes(n, k->lanes));
    ash_kern_run run = {.loaded = loaded,
                        .holds = ASH_NO_REF,
                        .places = places,
                        .there = ash_nest_binary(n, ASH_OP_LT, lanes, ash_nest_splat(n, left, k->lanes)),
                        .line = ash_ix_loaded(&k->ixs, first, most - 1, ash_ix_syms(&k->ixs, at))};
    if (how == ASH_CLOSE_PERHAPS && !all) {
        ash_ref far = ash_nest_splat(n, ash_nest_int(n, ASH_U32, k->lanes), k->lanes);
        far = ash_nest_binary(n, ASH_OP_LE, far, ash_nest_bitcast(n, ASH_U32, places));
        if (k->mask != ASH_NO_REF) far = ash_nest_binary(n, ASH_OP_AND, far, k->mask);
        run.holds = ash_nest_unary(n, ASH_OP_NOT, ash_nest_hreduce(n, ASH_OP_OR, far));
    }
    if (!ash_vec_push(k->low->allocator, &k->runs, run)) k->failed = true;
}

bool ash_kern_expects_close(ash_kern *k, ash_dim count, ash_dim size) {
    ash_dim more;
    int64_t least, most;
    ash_dims_bounds(k->ixs.dims, size, &least, &most);
    if (most <= ash_kern_lanes(k)) return true;
    if (ash_dim_is_const(size) || count == size ||
        ash_dims_combine(k->ixs.dims, ASH_DIM_SUB, count, size, &more, NULL) != ASH_OK)
        return false;
    ash_dims_bounds(k->ixs.dims, more, &least, &most);
    return least >= 0;
}

/* Notes where the entries that were just loaded for the lanes of a vector are neighbours. */
static void note_run(ash_kern *k, ash_ix at, ash_ref loaded, int64_t from, int64_t to, int64_t shift) {
    ash_nest *n = &k->nest;
    if (!are_in_line(k, at) || k->mask != ASH_NO_REF || to - from < LEAST_RUN * (int64_t)k->lanes) return;
    ash_ref first = ash_kern_index(k, at);
    ash_ref end = ash_nest_binary(n, ASH_OP_ADD, first, ash_nest_index(n, k->lanes));
    ash_ref above = ash_nest_binary(n, ASH_OP_LE, ash_nest_index(n, from), first);
    ash_ref below = ash_nest_binary(n, ASH_OP_LE, end, ash_nest_index(n, to));
    const ash_kern_run run = {.loaded = loaded,
                              .places = ASH_NO_REF,
                              .there = ASH_NO_REF,
                              .holds = ash_nest_binary(n, ASH_OP_AND, above, below),
                              .line = ash_ix_add(&k->ixs, at, ash_ix_const(&k->ixs, shift))};
    if (!ash_vec_push(k->low->allocator, &k->runs, run)) k->failed = true;
}

bool ash_kern_table_index(ash_kern *k, ash_value indices, const ash_ix *at, ash_dim size, ash_ix *out) {
    table t;
    int64_t least, most;
    ash_ixs *ixs = &k->ixs;
    ash_dims_bounds(ixs->dims, size, &least, &most);
    if (!read_table(k, indices, least, &t)) return false;
    int64_t first = entry(&t, 0), step = t.count > 1 ? entry(&t, 1) - first : 0;
    if (is_line(&t, step, 0, 1)) {
        *out = ash_ix_add(ixs, ash_ix_scale(ixs, at[0], step), ash_ix_const(ixs, first));
        return true;
    }
    int64_t begin = same_from(&t, 0), by = begin < t.count ? same_from(&t, begin) : 1;
    if (by > 1 && by <= MOST_STAIR && begin <= by && is_line(&t, 1, by - begin, by)) {
        ash_ix up = ash_ix_add(ixs, at[0], ash_ix_const(ixs, by - begin));
        *out = ash_ix_add(ixs, ash_ix_div(ixs, up, by), ash_ix_const(ixs, first));
        return true;
    }
    int64_t from, to;
    longest_run(&t, &from, &to);
    const int64_t lanes = ash_kern_lanes(k);
    bool up, gentle = is_gentle(&t, &up);
    const bool close = most <= lanes || (gentle && to - from < LEAST_RUN * lanes);
    k->close |= close;
    ash_ref raw = ash_kern_eval(k, indices, at);
    if (ash_kern_lost(k) || k->collecting) return false;
    if (ash_nest_at(&k->nest, raw)->dtype != ASH_I64) raw = ash_nest_cast(&k->nest, ASH_I64, raw);
    *out = ash_ix_loaded(ixs, raw, most - 1, ash_ix_syms(ixs, at[0]));
    if (close)
        ash_kern_note_close(k, at[0], raw, size, gentle && !up ? ASH_CLOSE_BY_ONE : ASH_CLOSE_UP);
    else
        note_run(k, at[0], raw, from, to, entry(&t, from) - from);
    return true;
}

/* The noted run that an address contains, and the address where it holds; NULL when there is none. */
static const ash_kern_run *run_of(ash_kern *k, ash_ix linear, ash_ix *even) {
    ash_ixs *ixs = &k->ixs;
    ash_sum sum = ash_ix_sum(ixs, linear);
    for (uint32_t i = 0; i < sum.n; i++) {
        ash_term term = ixs->terms.at[sum.first + i];
        const ash_atom *atom = &ixs->atoms.at[term.atom];
        for (size_t r = 0; atom->kind == ASH_ATOM_LOADED && r < k->runs.len; r++) {
            const ash_kern_run *run = &k->runs.at[r];
            if (run->loaded != atom->ref || term.d != 1) continue;
            if (run->places != ASH_NO_REF && term.c != 1) continue;
            ash_ix loaded = ash_ix_loaded(ixs, atom->ref, atom->max, atom->syms);
            ash_ix without = ash_ix_sub(ixs, linear, ash_ix_scale(ixs, loaded, term.c));
            *even = ash_ix_add(ixs, without, ash_ix_scale(ixs, run->line, term.c));
            return &k->runs.at[r];
        }
    }
    return NULL;
}

/* The elements where a run holds. */
static ash_ref held(ash_kern *k, const ash_kern_run *run, uint16_t buf, ash_ix start) {
    ash_nest *n = &k->nest;
    ash_ref all = ash_nest_load(n, buf, ash_kern_index(k, start), k->lanes, run->there);
    return run->places == ASH_NO_REF ? all : ash_nest_permute(n, all, run->places);
}

/* A cell for the elements, and which of two ways to have them is taken at run time. */
static ash_ref either(ash_kern *k, const ash_kern_run *run, uint16_t buf, ash_ix start, ash_ix linear,
                      ash_ref mask) {
    ash_nest *n = &k->nest;
    ash_ref cell = ash_nest_cell(
        n, ash_nest_splat(n, ash_kern_neutral(k, ASH_OP_ADD, n->buffers.at[buf].dtype), k->lanes));
    size_t mark = ash_kern_mark(k);
    ash_nest_if(n, run->holds);
    ash_nest_set(n, cell, held(k, run, buf, start));
    ash_nest_else(n);
    ash_nest_set(n, cell, ash_nest_gather(n, buf, ash_kern_vector_index(k, linear), mask));
    ash_nest_end(n);
    ash_kern_forget(k, mark);
    return ash_nest_get(n, cell);
}

bool ash_kern_load_run(ash_kern *k, uint16_t buf, ash_ix linear, ash_ref mask, ash_ref *out) {
    ash_nest *n = &k->nest;
    ash_ix start;
    int64_t stride;
    const size_t bytes = ash_dtype_size(n->buffers.at[buf].dtype);
    if (k->guard != ASH_NO_REF) return false;
    const ash_kern_run *found = run_of(k, linear, &start);
    if (!found) return false;
    const ash_kern_run run = *found; /* more may be noted */
    if (run.places == ASH_NO_REF) {
        if (bytes < sizeof(float) || mask != ASH_NO_REF ||
            !ash_ix_lane_stride(&k->ixs, start, k->vsym, k->lanes, k->aligned, &stride) || stride != 1)
            return false;
    } else if (bytes != sizeof(float) || ash_kern_is_vector(k, start)) {
        return false;
    }
    *out = run.holds == ASH_NO_REF ? held(k, &run, buf, start) : either(k, &run, buf, start, linear, mask);
    if (mask == ASH_NO_REF) return true;
    ash_ref zero = ash_kern_neutral(k, ASH_OP_ADD, n->buffers.at[buf].dtype);
    *out = ash_nest_select(n, mask, *out, ash_nest_splat(n, zero, k->lanes));
    return true;
}

/* --- lanes that lie close together ---------------------------------------------------------------- */

/* The distance of each lane's element from the first one's: false when it is not the same for all
 * vectors. */
static bool lane_offsets(const ash_kern *k, ash_ix linear, int64_t *offsets) {
    const ash_ixs *ixs = &k->ixs;
    ash_sum sum = ash_ix_sum(ixs, linear);
    memset(offsets, 0, k->lanes * sizeof *offsets);
    for (uint32_t i = 0; i < sum.n; i++) {
        const ash_term *t = &ixs->terms.at[sum.first + i];
        const ash_atom *atom = &ixs->atoms.at[t->atom];
        bool single = atom->kind == ASH_ATOM_ONE || (atom->kind == ASH_ATOM_SYM && atom->ref != k->vsym);
        if (single) continue;
        if (atom->kind == ASH_ATOM_LOADED) {
            if (ash_nest_at(&k->nest, atom->ref)->lanes > 1) return false;
            continue;
        }
        bool quotient = atom->kind == ASH_ATOM_DIV || atom->kind == ASH_ATOM_MOD;
        if (quotient && !ash_ix_depends(ixs, atom->ref, k->vsym)) continue;
        int64_t rest = 0;
        if (t->d != 1 || (quotient && !ash_ix_rest(ixs, atom->ref, k->vsym, k->lanes, atom->by, &rest)))
            return false;
        for (int64_t lane = 0; lane < k->lanes; lane++)
            offsets[lane] += t->c * (atom->kind == ASH_ATOM_SYM   ? lane
                                     : atom->kind == ASH_ATOM_DIV ? (rest + lane) / atom->by
                                                                  : (rest + lane) % atom->by - rest);
    }
    return true;
}

enum { MOST_LANES = 64, MOST_SAME = 2 };

/* The mask of `count` elements that are loaded from element `first` on, where the lanes that `mask` has
 * want those at `offsets`, which never go down; at most `same` of them want one. */
static ash_ref mask_of_elements(ash_kern *k, ash_ref mask, const int64_t *offsets, int64_t first,
                                unsigned count, unsigned same) {
    ash_nest *n = &k->nest;
    int32_t pick[MOST_LANES];
    ash_ref wanted = ASH_NO_REF;
    if (mask == ASH_NO_REF) return mask;
    ash_ref nobody = ash_nest_splat(n, ash_nest_int(n, ASH_BOOL, 0), k->lanes);
    for (unsigned turn = 0; turn < same; turn++) { /* of those that want one element, the next */
        for (unsigned i = 0; i < count; i++) pick[i] = (int32_t)k->lanes;
        for (unsigned lane = 0, before = 0; lane < k->lanes; lane++) {
            before = lane && offsets[lane] == offsets[lane - 1] ? before + 1 : 0;
            if (before == turn && offsets[lane] >= first && offsets[lane] - first < count)
                pick[offsets[lane] - first] = (int32_t)lane;
        }
        ash_ref some = ash_nest_shuffle(n, mask, nobody, count, pick);
        wanted = turn ? ash_nest_binary(n, ASH_OP_OR, wanted, some) : some;
    }
    return wanted;
}

/* So many of its first lanes a mask has at most. */
static unsigned first_lanes(const ash_nest *n, ash_ref mask, unsigned lanes) {
    const ash_inst *below = ash_nest_at(n, mask);
    if (below->op != ASH_NEST_COMPUTE || below->i != ASH_OP_LT) return lanes;
    const ash_inst *from = ash_nest_at(n, below->a), *to = ash_nest_at(n, below->b);
    if (from->op != ASH_NEST_LANES || to->op != ASH_NEST_SPLAT) return lanes;
    const ash_inst *count = ash_nest_at(n, to->a);
    return count->op == ASH_NEST_INT && count->i > 0 && count->i < lanes ? (unsigned)count->i : lanes;
}

/* Elements that lie several vectors apart, in as many loads as that takes, of which the last ends where
 * the last lane does. */
static ash_ref load_spread(ash_kern *k, uint16_t buf, ash_ref at, ash_ref mask, const int64_t *offsets,
                           int64_t span) {
    ash_nest *n = &k->nest;
    const int64_t lanes = k->lanes;
    ash_ref all = ASH_NO_REF;
    int32_t pick[MOST_LANES];
    for (int64_t begin = 0; begin <= span; begin += lanes) {
        const int64_t first = ASH_MIN(begin, span + 1 - lanes);
        ash_ref piece = ash_nest_load(n, buf, ash_nest_binary(n, ASH_OP_ADD, at, ash_nest_index(n, first)),
                                      k->lanes, mask_of_elements(k, mask, offsets, first, k->lanes, 1));
        for (unsigned i = 0; i < lanes; i++) {
            const bool here = offsets[i] >= begin && offsets[i] - first < lanes;
            const int64_t before = begin != lanes ? (int64_t)i : offsets[i] < lanes ? offsets[i] : 0;
            pick[i] = (int32_t)(here ? lanes + offsets[i] - first : before);
        }
        all = begin ? ash_nest_shuffle(n, all, piece, k->lanes, pick) : piece;
    }
    return all;
}

bool ash_kern_load_near(ash_kern *k, uint16_t buf, ash_ix linear, ash_ref mask, ash_ref *out) {
    ash_nest *n = &k->nest;
    int64_t offsets[MOST_LANES], span = 0, lanes = k->lanes;
    int32_t pick[MOST_LANES];
    const ash_target *target = k->low->target;
    const int64_t pieces = k->packed                        ? ASH_MAX_PACKED
                           : target->kind == ASH_TARGET_CPU ? target->costs.gather_loads
                                                            : 2;
    bool up = true, down = false; /* each lane has an element of its own; one that lies before another's */
    unsigned same = 1, most = 1;  /* lanes that have one element */
    if (!k->aligned || lanes > MOST_LANES || !lane_offsets(k, linear, offsets)) return false;
    for (unsigned i = 0; i < lanes; i++) {
        if (offsets[i] < 0 || offsets[i] > pieces * lanes) return false;
        if (i) up = up && offsets[i] > offsets[i - 1], down = down || offsets[i] < offsets[i - 1];
        same = i && offsets[i] == offsets[i - 1] ? same + 1 : 1;
        most = ASH_MAX(most, same);
        span = ASH_MAX(span, offsets[i]);
    }
    /* some of a vector's elements, one behind the other */
    const bool repeats = span && span < lanes && !down && most <= MOST_SAME;
    const size_t bytes = ash_dtype_size(n->buffers.at[buf].dtype);
    if (mask != ASH_NO_REF) {
        if (!ash_target__masks(target, bytes) || bytes < sizeof(float)) return false;
        if (!repeats && (!up || span < lanes)) return false;
    }
    ash_ref at = ash_kern_index(k, linear);
    if (mask != ASH_NO_REF && repeats) {
        unsigned few = 1;
        while (few <= span) few *= 2;
        for (unsigned i = 0; i < lanes; i++) pick[i] = (int32_t)offsets[i];
        ash_ref all = ash_nest_load(n, buf, at, few, mask_of_elements(k, mask, offsets, 0, few, most));
        *out = ash_nest_shuffle(n, all, ASH_NO_REF, k->lanes, pick);
        return true;
    }
    if (span < lanes) { /* as few as there are, in two loads that overlap where that is no power of two */
        int64_t few = 1;
        while (2 * few <= span + 1) few *= 2;
        const int64_t second = span + 1 - few;
        for (unsigned i = 0; i < lanes; i++)
            pick[i] = (int32_t)(offsets[i] < few ? offsets[i] : few + offsets[i] - second);
        ash_ref low = ash_nest_load(n, buf, at, (unsigned)few, ASH_NO_REF), high = ASH_NO_REF;
        if (second)
            high = ash_nest_load(n, buf, ash_nest_binary(n, ASH_OP_ADD, at, ash_nest_index(n, second)),
                                 (unsigned)few, ASH_NO_REF);
        *out = span ? ash_nest_shuffle(n, low, high, k->lanes, pick) : ash_nest_splat(n, low, k->lanes);
        return true;
    }
    if (span >= 2 * lanes) {
        if (!up || span >= pieces * lanes) return false;
        *out = load_spread(k, buf, at, mask, offsets, span);
        return true;
    }
    if (mask != ASH_NO_REF && 2 * lanes <= ash_target_lanes(target, bytes) &&
        offsets[first_lanes(n, mask, k->lanes) - 1] >= lanes) { /* one register has them all */
        const unsigned twice = 2 * k->lanes;
        for (unsigned i = 0; i < lanes; i++) pick[i] = (int32_t)offsets[i];
        ash_ref all = ash_nest_load(n, buf, at, twice, mask_of_elements(k, mask, offsets, 0, twice, 1));
        *out = ash_nest_shuffle(n, all, ASH_NO_REF, k->lanes, pick);
        return true;
    }
    if (span == 2 * lanes - 1 && !k->packed) return false;
    int64_t second = span + 1 - lanes; /* so that both end where the last lane does */
    for (unsigned i = 0; i < lanes; i++)
        pick[i] = (int32_t)(offsets[i] < lanes ? offsets[i] : lanes + offsets[i] - second);
    ash_ref low = ash_nest_load(n, buf, at, k->lanes, mask_of_elements(k, mask, offsets, 0, k->lanes, 1));
    ash_ref behind = ash_nest_binary(n, ASH_OP_ADD, at, ash_nest_index(n, second));
    ash_ref high =
        ash_nest_load(n, buf, behind, k->lanes, mask_of_elements(k, mask, offsets, second, k->lanes, 1));
    *out = ash_nest_shuffle(n, low, high, k->lanes, pick);
    return true;
}

/* How many runs lanes take their elements from in turn, as a pixel shuffle's do: lane i the next one of
 * run i % p, so that each run has neighbours. 0: that is not so. */
static unsigned runs_in_turn(ash_kern *k, ash_ix linear) {
    enum { LEAST = 4, MOST_RUNS = 4 }; /* elements of a load; loads */
    const ash_ixs *ixs = &k->ixs;
    const ash_ix whole = ash_ix_sym(&k->ixs, k->vsym);
    const ash_sum sum = ash_ix_sum(ixs, linear);
    int64_t runs = 0;
    for (uint32_t t = 0; t < sum.n; t++) { /* that which counts up says their number */
        const ash_term *term = &ixs->terms.at[sum.first + t];
        const ash_atom *atom = &ixs->atoms.at[term->atom];
        if (atom->kind == ASH_ATOM_DIV && atom->ref == whole && term->c == 1 && term->d == 1)
            runs = ash_dim_is_const(atom->by) ? atom->by : 0;
    }
    if (runs < 2 || runs > MOST_RUNS || !ash_is_pow2(runs) || k->lanes / (unsigned)runs < LEAST) return 0;
    for (uint32_t t = 0; t < sum.n; t++) { /* and nothing else goes along them */
        const ash_term *term = &ixs->terms.at[sum.first + t];
        const ash_atom *atom = &ixs->atoms.at[term->atom];
        const bool up = atom->kind == ASH_ATOM_DIV && term->c == 1 && term->d == 1;
        if (!(atom->syms & ash_ix_syms(ixs, whole))) continue;
        if (atom->ref != whole || atom->by != runs || (atom->kind != ASH_ATOM_MOD && !up)) return 0;
    }
    return (unsigned)runs;
}

bool ash_kern_load_in_turn(ash_kern *k, uint16_t buf, ash_ix linear, ash_ref mask, ash_ref *out) {
    ash_nest *n = &k->nest;
    ash_ref run[MOST_LANES];
    int32_t pick[MOST_LANES];
    if (!k->aligned || k->lanes > MOST_LANES || k->low->target->kind != ASH_TARGET_CPU ||
        ash_kern_lost(k) ||
        (mask != ASH_NO_REF &&
         !ash_target__masks(k->low->target, ash_dtype_size(n->buffers.at[buf].dtype))))
        return false;
    unsigned runs = runs_in_turn(k, linear), length = runs ? k->lanes / runs : 0;
    if (!runs || k->ixs.failed) return false;
    ash_ref v = k->sym_refs.at[k->vsym];
    for (unsigned r = 0; r < runs; r++) {
        for (unsigned i = 0; i < length; i++) pick[i] = (int32_t)(r + i * runs);
        ash_ref some = mask == ASH_NO_REF ? mask : ash_nest_shuffle(n, mask, ASH_NO_REF, length, pick);
        ash_kern_set_sym(k, k->vsym, ash_nest_binary(n, ASH_OP_ADD, v, ash_nest_index(n, r)));
        run[r] = ash_nest_load(n, buf, ash_kern_index(k, linear), length, some);
    }
    ash_kern_set_sym(k, k->vsym, v);
    for (; runs > 1; runs /= 2, length *= 2) {
        for (unsigned i = 0; i < 2 * length; i++) pick[i] = (int32_t)(i % 2 * length + i / 2);
        for (unsigned r = 0; r < runs / 2; r++)
            run[r] = ash_nest_shuffle(n, run[r], run[r + runs / 2], 2 * length, pick);
    }
    *out = run[0];
    return !n->failed;
}
