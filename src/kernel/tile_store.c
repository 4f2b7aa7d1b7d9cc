/* SPDX-License-Identifier: MIT */
/* Tiles of results: what follows the sums, and where it is stored.
 *
 * Vectors of a tile lie along columns (or channels), and are stored so where columns are neighbours. In
 * results in which rows are, as those of a convolution in plain order, each of a vector's lanes would go to
 * a line of its own, again for each row. There the vectors of all rows are kept in the kernel's memory,
 * squares of them transposed, and stored along the rows. */
#include "tile.h"

/* The kernel's own memory for vectors of a tile, which all its tiles use in turn: vector v of row p lies at
 * v * rows + p. */
static uint16_t memory_of(ash_tile *t, uint16_t *memory, ash_dtype dtype, unsigned rows) {
    ash_nest *n = &t->k->nest;
    const uint32_t count = rows * t->vectors * t->lanes;
    if (!*memory) *memory = ash_nest_shared_add(n, dtype, count);
    const size_t at = *memory & ~(unsigned)ASH_NEST_SHARED;
    if (at < n->shared.len) n->shared.at[at].count = ASH_MAX(n->shared.at[at].count, count);
    return *memory;
}

static uint16_t memory_of_sums(ash_tile *t, unsigned rows) {
    return memory_of(t, &t->k->sums, ash_tile_dtype(t->math), rows);
}

/* Where vector v of row p lies, of `rows`. */
static ash_ref place_of(const ash_tile *t, ash_ref v, ash_ref p, int64_t rows) {
    ash_nest *n = &t->k->nest;
    ash_ref at = ash_nest_binary(n, ASH_OP_MUL, v, ash_nest_index(n, rows * t->lanes));
    return ash_nest_binary(n, ASH_OP_ADD, at,
                           ash_nest_binary(n, ASH_OP_MUL, p, ash_nest_index(n, t->lanes)));
}

/* How many lanes of the present block are stored; ASH_NO_REF: all. */
static ash_ref lanes_left(ash_tile *t, ash_ref block) {
    ash_kern *k = t->k;
    ash_nest *n = &k->nest;
    if (!ash_dim_is_const(t->columns) || t->columns % t->lanes) {
        ash_ref first = ash_nest_binary(n, ASH_OP_MUL, block, ash_nest_index(n, t->store_lanes));
        return ash_nest_binary(n, ASH_OP_SUB, ash_kern_dim(k, t->columns), first);
    }
    if (!t->n_ends || !ash_ix_depends(&k->ixs, t->ends[t->n_ends - 1].at, t->lane)) return ASH_NO_REF;
    ash_dim end = t->ends[t->n_ends - 1].end;
    if (ash_dim_is_const(end) && end % t->lanes == 0) return ASH_NO_REF;
    return ash_nest_binary(n, ASH_OP_SUB, ash_kern_dim(k, end),
                           ash_kern_index(k, t->ends[t->n_ends - 1].at));
}

/* --- results that are turned ---------------------------------------------------------------------- */

static ash_value root_of(const ash_tile *t) {
    return t->k->graph->nodes.at[t->k->group->root].out;
}

/* Whether rows are neighbours in the result, and columns, at the same distance each, are not. */
static bool is_turned(const ash_tile *t, ash_sym row) {
    ash_kern *k = t->k;
    int64_t stride;
    ash_ix apart;
    if (k->low->target->kind != ASH_TARGET_CPU || k->collecting || t->store_lanes != t->lanes ||
        t->lanes < 2 || t->lanes > ASH_MAX_TURNED || t->n_ends || t->rows_end || t->columns_end || t->run)
        return false;
    const ash_ix at = ash_kern_linear(k, root_of(t), t->root);
    const bool even = ash_ix_lane_stride(&k->ixs, at, t->lane, t->lanes, true, &stride);
    if (even ? stride == 0 || stride == 1 : !ash_ix_stride(&k->ixs, at, t->lane, &apart)) return false;
    return ash_ix_lane_stride(&k->ixs, at, row, t->lanes, false, &stride) && stride == 1;
}

/* The rows of a tile as squares have them. */
static int64_t turned_rows(const ash_tile *t) {
    return (int64_t)ash_ceil_div(t->rows, t->lanes) * t->lanes;
}

static void keep(ash_tile *t, ash_ref place, ash_ref result) {
    ash_nest *n = &t->k->nest;
    const ash_dtype dtype = ash_graph__type(t->k->graph, root_of(t))->dtype;
    if (ash_nest_at(n, result)->dtype != dtype) result = ash_nest_cast(n, dtype, result);
    ash_nest_store(n, memory_of(t, &t->k->results, dtype, (unsigned)turned_rows(t)), place,
                   ash_kern_splat(t->k, result), ASH_NO_REF);
}

/* Rows from `first` on that are stored: below `rows`, and not before `again` of registers for tiles. */
static ash_ref mask_of_rows(ash_tile *t, ash_ref first, ash_ref rows, bool whole) {
    ash_nest *n = &t->k->nest;
    ash_ref lanes = ash_nest_lanes(n, t->lanes), mask = ASH_NO_REF;
    if (!whole)
        mask = ash_nest_binary(n, ASH_OP_LT, lanes,
                               ash_nest_splat(n, ash_nest_binary(n, ASH_OP_SUB, rows, first), t->lanes));
    if (!t->tiles.height) return mask;
    ash_ref again = ash_nest_splat(n, ash_nest_binary(n, ASH_OP_SUB, t->again, first), t->lanes);
    return ash_nest_both(n, mask, ash_nest_binary(n, ASH_OP_LE, again, lanes));
}

/* Stores what was kept of so many rows, square by square. */
static void turn(ash_tile *t, ash_sym row, ash_ref row0, ash_ref rows) {
    ash_kern *k = t->k;
    ash_nest *n = &k->nest;
    const ash_value root = root_of(t);
    const ash_dtype dtype = ash_graph__type(k->graph, root)->dtype;
    const ash_inst *known = ash_nest_at(n, rows);
    const bool whole = known->op == ASH_NEST_INT && known->i % t->lanes == 0;
    const uint16_t results = memory_of(t, &k->results, dtype, (unsigned)turned_rows(t));
    size_t mark = ash_kern_mark(k);
    ash_ref v = ash_nest_loop(n, ash_nest_index(n, 0), ash_nest_index(n, t->vectors), 1, 1);
    ash_ref first = ash_nest_loop(n, ash_nest_index(n, 0), rows, t->lanes, 1), square[ASH_MAX_TURNED];
    for (unsigned i = 0; i < t->lanes; i++) {
        ash_ref p = ash_nest_binary(n, ASH_OP_ADD, first, ash_nest_index(n, i));
        square[i] = ash_nest_load(n, results, place_of(t, v, p, turned_rows(t)), t->lanes, ASH_NO_REF);
    }
    ash_kern_transpose(k, square, t->lanes, ash_dtype_size(dtype));
    ash_ref number = ash_nest_binary(n, ASH_OP_ADD, t->first, v), left = lanes_left(t, number);
    ash_kern_set_sym(k, t->block, number);
    ash_kern_set_sym(k, row, ash_nest_binary(n, ASH_OP_ADD, row0, first));
    k->vsym = row;
    k->aligned = false;
    k->mask = mask_of_rows(t, first, rows, whole);
    for (unsigned i = 0; i < t->lanes; i++) {
        if (left != ASH_NO_REF) ash_nest_if(n, ash_nest_binary(n, ASH_OP_LT, ash_nest_index(n, i), left));
        size_t here = ash_kern_mark(k);
        ash_kern_set_sym(k, t->lane, ash_nest_index(n, i));
        ash_kern_store(k, root, t->root, square[i]);
        ash_kern_forget(k, here);
        if (left != ASH_NO_REF) ash_nest_end(n);
    }
    k->mask = ASH_NO_REF;
    ash_nest_end(n);
    ash_nest_end(n);
    ash_kern_forget(k, mark);
}

/* --- one vector ----------------------------------------------------------------------------------- */

/* The part of an accumulator from lane `from` on, `count` lanes. */
static ash_ref lanes_of(ash_nest *n, ash_ref vector, unsigned from, unsigned count, unsigned lanes) {
    int32_t pick[64];
    if (count == lanes) return vector;
    for (unsigned i = 0; i < count; i++) pick[i] = (int32_t)(from + i);
    return ash_nest_shuffle(n, vector, ASH_NO_REF, count, pick);
}

/* Evaluates and stores the root for one run of neighbouring lanes; where results are turned, keeps it at
 * `place` until they are. */
static void store_run(ash_tile *t, ash_ref block, ash_ref value, ash_ref place) {
    ash_kern *k = t->k;
    ash_nest *n = &k->nest;
    ash_value root = root_of(t);
    size_t mark = ash_kern_mark(k), known = k->known.len;
    ash_kern_set_sym(k, t->block, block);
    ash_ref left = lanes_left(t, block);
    /* a run behind the last one has no place in what is read once for all of its lanes either */
    const bool asks = left != ASH_NO_REF && t->store_lanes < t->lanes,
               whole = asks && ash_dim_is_const(t->columns) && t->columns % t->lanes &&
                       t->columns % t->store_lanes == 0;
    if (asks) ash_nest_if(n, ash_nest_binary(n, ASH_OP_LT, ash_nest_index(n, 0), left));
    if (left != ASH_NO_REF && !whole)
        k->mask =
            ash_nest_binary(n, ASH_OP_LT, ash_nest_lanes(n, k->lanes), ash_nest_splat(n, left, k->lanes));
    ash_kern_know(k, t->anchor->out, value);
    ash_ref result = ash_kern_eval(k, root, t->root);
    if (place == ASH_NO_REF)
        ash_kern_store(k, root, t->root, result);
    else
        keep(t, place, result);
    k->known.len = known;
    k->mask = ASH_NO_REF;
    if (asks) ash_nest_end(n);
    ash_kern_forget(k, mark);
}

/* Opens a block where a number is below a limit, if there is one. */
static bool open_below(ash_tile *t, bool limited, ash_ref number, ash_dim limit) {
    ash_nest *n = &t->k->nest;
    if (limited) ash_nest_if(n, ash_nest_binary(n, ASH_OP_LT, number, ash_kern_dim(t->k, limit)));
    return limited;
}

static int64_t row_of(const ash_tile *t, unsigned p) {
    return t->run ? p / t->run * t->rows_apart + p % t->run : p;
}

/* Stores vector `v` of the present row, or keeps it, from its sums. */
static void store_vector(ash_tile *t, ash_ref v, ash_ref vector, ash_ref place) {
    ash_kern *k = t->k;
    ash_nest *n = &k->nest;
    unsigned runs = t->lanes / t->store_lanes;
    if (t->math == ASH_TILE_WIDENED) vector = ash_nest_whole(n, vector);
    ash_ref number = ash_nest_binary(n, ASH_OP_ADD, t->first, v);
    ash_ref first =
        t->columns_end ? ash_nest_binary(n, ASH_OP_MUL, number, ash_nest_index(n, t->lanes)) : number;
    bool limited = open_below(t, t->columns_end, first, t->columns);
    size_t mark = ash_kern_mark(k);
    ash_kern_set_sym(k, t->block, number);
    ash_ref inside = ash_tile_inside(t);
    ash_kern_forget(k, mark);
    if (inside != ASH_NO_REF) ash_nest_if(n, inside);
    for (unsigned r = 0; r < runs; r++) {
        ash_ref block = ash_nest_binary(n, ASH_OP_MUL, number, ash_nest_index(n, runs));
        store_run(t, ash_nest_binary(n, ASH_OP_ADD, block, ash_nest_index(n, r)),
                  lanes_of(n, vector, r * t->store_lanes, t->store_lanes, t->lanes), place);
    }
    if (inside != ASH_NO_REF) ash_nest_end(n);
    if (limited) ash_nest_end(n);
}

/* Row by row and vector by vector, laid out. */
static void store_laid_out(ash_tile *t, ash_sym row, ash_ref row0) {
    ash_nest *n = &t->k->nest;
    int64_t apart = t->vectors_apart ? t->vectors_apart : 1;
    for (unsigned p = 0; p < t->rows; p++) {
        ash_ref at = ash_nest_binary(n, ASH_OP_ADD, row0, ash_nest_index(n, row_of(t, p)));
        ash_kern_set_sym(t->k, row, at);
        bool limited = open_below(t, t->rows_end != 0, at, t->rows_end);
        for (unsigned v = 0; v < t->vectors; v++) {
            ash_ref place = !t->turned
                                ? ASH_NO_REF
                                : place_of(t, ash_nest_index(n, v), ash_nest_index(n, p), turned_rows(t));
            store_vector(t, ash_nest_index(n, v * apart),
                         ash_nest_get(n, t->cells[t->top][p * t->vectors + v]), place);
        }
        if (limited) ash_nest_end(n);
    }
}

void ash_tile_put(ash_tile *t, unsigned rows) {
    ash_nest *n = &t->k->nest;
    const uint16_t sums = memory_of_sums(t, rows);
    if (t->tiles.height) ash_nest_tile_put(n, t->tiles, sums, ash_nest_index(n, 0));
    for (unsigned v = 0; v < t->vectors && !t->tiles.height; v++)
        for (unsigned p = 0; p < t->rows; p++)
            ash_nest_store(n, sums, ash_nest_index(n, (v * rows + p) * t->lanes),
                           ash_nest_get(n, t->cells[t->top][p * t->vectors + v]), ASH_NO_REF);
}

/* A loop over the vectors, and in it one over the rows: what belongs to columns is loaded once. */
static void store_in_loops(ash_tile *t, ash_sym row, ash_ref row0, ash_ref rows) {
    ash_kern *k = t->k;
    ash_nest *n = &k->nest;
    const uint16_t sums = memory_of_sums(t, t->rows);
    ash_ref zero = ash_nest_index(n, 0);
    if (t->rows_end)
        rows = ash_nest_binary(n, ASH_OP_MIN, rows,
                               ash_nest_binary(n, ASH_OP_SUB, ash_kern_dim(k, t->rows_end), row0));
    size_t mark = ash_kern_mark(k);
    ash_ref v = ash_nest_loop(n, zero, ash_nest_index(n, t->vectors), 1, 1);
    ash_ref p = ash_nest_loop(n, t->tiles.height ? t->again : zero, rows, 1, 1);
    ash_kern_set_sym(k, row, ash_nest_binary(n, ASH_OP_ADD, row0, p));
    store_vector(t, v, ash_nest_load(n, sums, place_of(t, v, p, t->rows), t->lanes, ASH_NO_REF),
                 t->turned ? place_of(t, v, p, turned_rows(t)) : ASH_NO_REF);
    ash_nest_end(n);
    ash_nest_end(n);
    ash_kern_forget(k, mark);
}

/* Sums go to memory and come back, and the loop counts, which little work would feel. */
bool ash_tile_is_worth_a_loop(const ash_tile *t) {
    const ash_kern *k = t->k;
    const ash_costs *c = &k->low->target->costs;
    int64_t work = 0;
    if (k->nest.threads || t->rows < 2) return false;
    for (uint32_t i = 0; i < k->group->n_nodes; i++) {
        const ash_node *node = &k->graph->nodes.at[k->group->nodes[i]];
        if (node != t->anchor) work += ash_node__work(c, node);
    }
    return work >= c->loop_work && work * t->rows * t->vectors >= c->loop_body;
}

static void open_results(ash_tile *t, ash_sym row, bool low) {
    ash_kern *k = t->k;
    k->vsym = t->lane;
    k->lanes = t->store_lanes;
    k->aligned = true;
    ash_kern_set_sym(k, t->lane, ash_nest_index(&k->nest, 0));
    t->turned = !low && is_turned(t, row);
}

static void close_results(ash_tile *t) {
    t->k->vsym = ASH_NO_SYM;
    t->k->lanes = 1;
}

void ash_tile_store_put(ash_tile *t, ash_sym row, ash_ref row0, ash_ref rows) {
    open_results(t, row, false);
    store_in_loops(t, row, row0, rows);
    if (t->turned) turn(t, row, row0, rows);
    close_results(t);
}

bool ash_tile_is_low(unsigned rows, int64_t lanes) {
    return 4 * (int64_t)rows <= lanes;
}

static void store_results(ash_tile *t, ash_sym row, ash_ref row0) {
    const bool loops = t->tiles.height || ash_tile_is_worth_a_loop(t);
    ash_ref rows = ash_nest_index(&t->k->nest, t->rows);
    if (loops) ash_tile_put(t, t->rows);
    open_results(t, row, ash_tile_is_low(t->rows, t->lanes));
    if (loops)
        store_in_loops(t, row, row0, rows);
    else
        store_laid_out(t, row, row0);
    if (t->turned) turn(t, row, row0, rows);
    close_results(t);
}

/* Where accumulator i of a tile lies between two slices. */
static ash_ref sum_at(const ash_tile *t, const ash_tile_slices *s, ash_ref slot, unsigned i) {
    ash_nest *n = &t->k->nest;
    return ash_nest_binary(n, ASH_OP_ADD, ash_nest_binary(n, ASH_OP_ADD, s->part, slot),
                           ash_nest_index(n, i * t->lanes));
}

void ash_tile_store(ash_tile *t, ash_sym row, ash_ref row0, const ash_tile_slices *slices, ash_ref slot) {
    ash_nest *n = &t->k->nest;
    if (!slices || slices->count == 1) {
        store_results(t, row, row0);
        return;
    }
    const ash_ref *cells = t->cells[t->top];
    ash_nest_if(n, ash_nest_binary(n, ASH_OP_LT, ash_nest_index(n, 0), slices->from));
    for (unsigned i = 0; i < t->rows * t->vectors; i++) {
        ash_ref before = ash_nest_load(n, slices->buf, sum_at(t, slices, slot, i), t->lanes, ASH_NO_REF);
        ash_nest_set(n, cells[i], ash_nest_binary(n, ASH_OP_ADD, before, ash_nest_get(n, cells[i])));
    }
    ash_nest_end(n);
    ash_nest_if(n, ash_nest_binary(n, ASH_OP_LT, slices->to, ash_nest_index(n, slices->total)));
    for (unsigned i = 0; i < t->rows * t->vectors; i++)
        ash_nest_store(n, slices->buf, sum_at(t, slices, slot, i), ash_nest_get(n, cells[i]), ASH_NO_REF);
    ash_nest_else(n);
    store_results(t, row, row0);
    ash_nest_end(n);
}
