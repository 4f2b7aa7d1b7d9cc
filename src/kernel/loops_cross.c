/* SPDX-License-Identifier: MIT */
/* Transposing in the memory of a block of threads, on GPUs.
 *
 * Where a result is written along one axis and an operand lies along another, neighbours would read far
 * apart. A block takes a square of both axes:
 *
 *     for each chunk                         a square of 32 x 32
 *         memory[line][x] = operand          x runs along the operand's axis: neighbours read neighbours
 *         meet
 *         evaluate and store the root        x runs along the result's: the operand is memory[x][line]
 *         meet
 *
 * Thread t is x = t % 32 of the lines t / 32, t / 32 + 8, ... A line of the memory is one word longer, so
 * that neighbours are in different banks both ways. What is read under a condition of its own (padding), or
 * where a loaded number says, is read where it lies. */
#include "loops.h"

enum { SIDE = 32, THREADS = 256, LINES = THREADS / SIDE };

/* --- what is crossed ------------------------------------------------------------------------------ */

/* Elements from one line to the next. */
static unsigned pitch_of(ash_dtype dtype) {
    enum { WORD = 4 };
    return SIDE + (unsigned)ASH_MAX(WORD / ash_dtype_size(dtype), 1);
}

/* Whether a number that is loaded is part of it. */
static bool has_loaded(const ash_ixs *ixs, ash_ix ix) {
    ash_sum sum = ash_ix_sum(ixs, ix);
    for (uint32_t i = 0; i < sum.n; i++) {
        const ash_atom *atom = &ixs->atoms.at[ixs->terms.at[sum.first + i].atom];
        bool nested = atom->kind == ASH_ATOM_DIV || atom->kind == ASH_ATOM_MOD;
        if (atom->kind == ASH_ATOM_LOADED || (nested && has_loaded(ixs, atom->ref))) return true;
    }
    return false;
}

/* Where element x of a line is. */
static ash_ref memory_at(ash_kern *k, uint16_t memory, ash_ref line, ash_ref x) {
    ash_nest *n = &k->nest;
    ash_ref pitch = ash_nest_index(n, pitch_of(ash_nest_dtype(n, memory)));
    return ash_nest_binary(n, ASH_OP_ADD, ash_nest_binary(n, ASH_OP_MUL, line, pitch), x);
}

void ash_kern_cross(ash_kern *k, ash_value value, ash_ix linear) {
    ash_kern_crossing *c = k->crossing;
    const ash_type *type = ash_graph__type(k->graph, value);
    if (k->guard != ASH_NO_REF || c->n == ASH_COUNT(c->at) || k->ixs.failed ||
        has_loaded(&k->ixs, linear) || !ash_kern_is_turned(&k->ixs, linear, c->line, c->along, c->lanes))
        return;
    uint16_t buf = ash_kern_buffer(k, ash_kern_buffer_of(k, value), type->dtype, false);
    for (unsigned i = 0; i < c->n; i++)
        if (c->at[i].buf == buf && c->at[i].linear == linear) return;
    c->at[c->n].buf = buf;
    c->at[c->n].linear = linear;
    c->at[c->n++].memory = ash_nest_shared_add(&k->nest, type->dtype, SIDE * pitch_of(type->dtype));
}

bool ash_kern_crossed_load(ash_kern *k, uint16_t buf, ash_ix linear, ash_ref *out) {
    const ash_kern_crossing *c = k->crossing;
    for (unsigned i = 0; i < c->n; i++) {
        if (c->at[i].buf != buf || c->at[i].linear != linear) continue;
        *out = ash_nest_load(&k->nest, c->at[i].memory, memory_at(k, c->at[i].memory, c->x, c->y), 1,
                             ASH_NO_REF);
        return true;
    }
    return false;
}

/* --- the loops ------------------------------------------------------------------------------------ */

typedef struct square {
    ash_loops *l;
    const ash_axis *line, *along; /* the result lies along the first, operands along the second */
    ash_ref x, y, line0, along0;
} square;

static ash_ref add(ash_nest *n, ash_ref a, ash_ref b) {
    return ash_nest_binary(n, ASH_OP_ADD, a, b);
}

/* Sets an axis to element `at` of the square; the condition that it has one is added to *inside. */
static void place(const square *s, const ash_axis *axis, ash_ref first, ash_ref at, ash_ref *inside) {
    ash_kern *k = s->l->k;
    ash_nest *n = &k->nest;
    ash_ref number = add(n, first, at);
    ash_kern_set_sym(k, axis->sym, number);
    if (ash_dim_is_const(axis->extent) && axis->extent % SIDE == 0) return;
    ash_ref below = ash_nest_binary(n, ASH_OP_LT, number, ash_kern_dim(k, axis->extent));
    *inside = ash_nest_both(n, *inside, below);
}

/* Opens the loop over a thread's lines and the condition that its element exists. *line: its number. */
static bool open_loops(const square *s, const ash_axis *outer, ash_ref outer0, const ash_axis *inner,
                       ash_ref inner0, ash_ref *line) {
    ash_nest *n = &s->l->k->nest;
    ash_ref inside = ASH_NO_REF,
            step = ash_nest_loop(n, ash_nest_index(n, 0), ash_nest_index(n, SIDE), LINES, SIDE / LINES);
    *line = add(n, s->y, step);
    place(s, outer, outer0, *line, &inside);
    place(s, inner, inner0, s->x, &inside);
    if (inside != ASH_NO_REF) ash_nest_if(n, inside);
    return inside != ASH_NO_REF;
}

static void close(ash_kern *k, bool limited, size_t mark) {
    if (limited) ash_nest_end(&k->nest);
    ash_nest_end(&k->nest);
    ash_kern_forget(k, mark);
}

/* Finds what is crossed: the root is evaluated, and nothing emitted. */
static void look(ash_loops *l, ash_kern_crossing *c) {
    ash_kern *k = l->k;
    ash_ix idx[ASH_MAX_RANK];
    size_t mark = ash_kern_mark(k);
    k->crossing = c;
    k->collecting = true;
    ash_loops__root_index(l, idx);
    ash_kern_eval(k, l->value, idx);
    k->collecting = false;
    ash_kern_forget(k, mark);
}

static void cross(const square *s, ash_kern_crossing *c) {
    ash_kern *k = s->l->k;
    ash_nest *n = &k->nest;
    ash_ref line;
    size_t mark = ash_kern_mark(k);
    bool limited = open_loops(s, s->line, s->line0, s->along, s->along0, &line);
    for (unsigned i = 0; i < c->n; i++) {
        ash_ref element = ash_nest_load(n, c->at[i].buf, ash_kern_index(k, c->at[i].linear), 1, ASH_NO_REF);
        ash_nest_store(n, c->at[i].memory, memory_at(k, c->at[i].memory, line, s->x), element, ASH_NO_REF);
    }
    close(k, limited, mark);
    ash_nest_barrier(n);
    limited = open_loops(s, s->along, s->along0, s->line, s->line0, &line);
    c->x = s->x;
    c->y = line;
    ash_loops__store(s->l, NULL);
    close(k, limited, mark);
    ash_nest_barrier(n); /* before it is written again */
}

ash_dim ash_loops__emit_crossed(ash_loops *l) {
    ash_kern *k = l->k;
    ash_nest *n = &k->nest;
    unsigned last = l->n_outer - 1;
    square s = {.l = l, .line = &l->outer[last], .along = &l->outer[l->turn]};
    ash_kern_crossing c = {.line = s.line->sym, .along = s.along->sym, .lanes = l->narrow};
    ash_dim total = 1;
    n->threads = THREADS;
    k->lanes = 1;
    k->vsym = ASH_NO_SYM;
    look(l, &c);
    ash_ref thread = ash_kern_argument(k, ASH_NEST_THREAD), side = ash_nest_index(n, SIDE);
    s.x = ash_nest_imod(n, thread, side);
    s.y = ash_nest_idiv(n, thread, side);
    ash_ref number = ash_nest_loop(n, ash_kern_argument(k, ASH_NEST_BEGIN_ARG),
                                   ash_kern_argument(k, ASH_NEST_END_ARG), 1, 1);
    for (unsigned i = l->n_outer; i-- > 0;) {
        bool squares = i == last || (int)i == l->turn;
        ash_dim extent = squares ? ash_kern_ceil_div(k, l->outer[i].extent, SIDE) : l->outer[i].extent;
        ash_ref size = ash_kern_dim(k, extent), at = i ? ash_nest_imod(n, number, size) : number;
        if (i) number = ash_nest_idiv(n, number, size);
        total = ash_kern_product(k, total, extent);
        if (!squares)
            ash_kern_set_sym(k, l->outer[i].sym, at);
        else if (i == last)
            s.line0 = ash_nest_binary(n, ASH_OP_MUL, at, side);
        else
            s.along0 = ash_nest_binary(n, ASH_OP_MUL, at, side);
    }
    cross(&s, &c);
    ash_nest_end(n);
    k->crossing = NULL;
    return total;
}
