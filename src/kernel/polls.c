/* SPDX-License-Identifier: MIT */
/* nest → the same nest, which looks now and then whether it is asked to stop, if one chunk of it is long
 *
 * Chunks are small as a rule, and launches run them in pieces. But a sum over one row of 2^36 numbers is
 * one chunk, and so is a sort, a scatter, a list of true elements. How long they can take is seen in the
 * nest itself: each loop's most iterations, by the bounds of the variables, times the work of its body. The
 * innermost loop whose whole is long is cut into runs of about `every` units,
 *
 *     for v = a .. b step s                  for t = a .. b step s * count
 *       body                          →        poll
 *                                              for v = t .. min(b, t + s * count) step s
 *                                                body
 *
 * which changes neither the order of anything nor a result. Bodies longer than that look each time. Nests
 * whose chunks are short, which is nearly all, stay as they are.
 *
 * Most iterations: the ends of a loop are taken apart into sums of multiples of other values, so that what
 * both have in common goes away; of what is left the bounds are known: of constants, variables, loop
 * variables, and of cells by all that is put into them. Where nothing is known, the loop counts as endless.
 * */
#include <math.h>

#include "kern.h"

#define FOREVER INT64_MAX
#define NEVER   INT64_MIN

enum {
    TERMS = 16,
    FUEL = 200,   /* values that are looked at for one difference */
    ROUNDS = 12,  /* over the nest, until the bounds of cells hold */
    PATIENCE = 4, /* of these, before a bound that still moves is given up */
};

/* Both ends inclusive; NEVER and FOREVER are no bounds. */
typedef struct range {
    int64_t low, high;
} range;

/* A multiple of a value, or of what a division of one leaves. */
typedef struct term {
    ash_ref ref;
    int64_t by; /* the remainder of ref, an IDIV, by this number; 0: ref itself */
    int64_t coef;
} term;

/* The sum of terms and a constant. */
typedef struct form {
    term at[TERMS];
    unsigned count, fuel;
    int64_t constant;
    bool lost; /* too long, or past 64 bits */
} form;

typedef struct block {
    ash_ref opener;
    double work;    /* of what it holds */
    double stretch; /* most of it without a look */
} block;

typedef struct survey {
    const ash_nest *nest;
    const ash_costs *costs;
    const ash_dims *dims;
    range *ranges;  /* per instruction: of an i64, of all lanes, or of what a cell of them holds */
    int64_t *every; /* per LOOP: iterations between two looks; 0: none */
    block *blocks;
    int64_t chunks; /* at most */
    ash_ref begin;  /* the BEGIN_ARG, or ASH_NO_REF */
    bool changed;
} survey;

/* --- numbers that saturate --------------------------------------------------------------------------- */

static bool is_end(int64_t x) {
    return x == FOREVER || x == NEVER;
}

/* `end` is what an overflow, or a sum with no bound, becomes. */
static int64_t add(int64_t a, int64_t b, int64_t end) {
    int64_t sum;
    return is_end(a) || is_end(b) || !ash_add_i64(a, b, &sum) ? end : sum;
}

static int64_t mul(int64_t a, int64_t b) {
    int64_t product;
    if (a == 0 || b == 0) return 0;
    if (!is_end(a) && !is_end(b) && ash_mul_i64(a, b, &product)) return product;
    return (a < 0) == (b < 0) ? FOREVER : NEVER;
}

static int64_t negate(int64_t a) {
    return a == FOREVER ? NEVER : a == NEVER ? FOREVER : -a;
}

static range join(range a, range b) {
    return (range){ASH_MIN(a.low, b.low), ASH_MAX(a.high, b.high)};
}

static range times(range a, range b) {
    int64_t p[] = {mul(a.low, b.low), mul(a.low, b.high), mul(a.high, b.low), mul(a.high, b.high)};
    range r = {p[0], p[0]};
    for (int i = 1; i < 4; i++) r = join(r, (range){p[i], p[i]});
    return r;
}

static const range anything = {NEVER, FOREVER};

/* --- differences ------------------------------------------------------------------------------------- */

static const ash_inst *at(const survey *s, ash_ref ref) {
    return ash_nest_at(s->nest, ref);
}

static bool computes(const ash_inst *inst, ash_op op) {
    return inst->op == ASH_NEST_COMPUTE && inst->i == op && inst->dtype == ASH_I64 && inst->lanes == 1;
}

static void add_term(form *f, ash_ref ref, int64_t by, int64_t coef) {
    for (unsigned i = 0; i < f->count; i++)
        if (f->at[i].ref == ref && f->at[i].by == by) {
            f->lost |= !ash_add_i64(f->at[i].coef, coef, &f->at[i].coef);
            return;
        }
    f->lost |= f->count == TERMS;
    if (!f->lost) f->at[f->count++] = (term){ref, by, coef};
}

static void add_value(const survey *s, form *f, ash_ref ref, int64_t coef);

/* c * (x / c) is x less the remainder. */
static bool add_whole_part(const survey *s, form *f, ash_ref ref, int64_t by, int64_t coef) {
    const ash_inst *inst = at(s, ref);
    if (inst->op != ASH_NEST_IDIV || by <= 0 || coef == NEVER) return false;
    const ash_inst *divisor = at(s, inst->b);
    if (divisor->op != ASH_NEST_INT || divisor->i != by) return false;
    add_value(s, f, inst->a, coef);
    add_term(f, ref, by, -coef);
    return true;
}

static void add_value(const survey *s, form *f, ash_ref ref, int64_t coef) {
    const ash_inst *inst = at(s, ref);
    int64_t product;
    if (f->fuel == 0) f->lost = true;
    if (f->lost) return;
    f->fuel--;
    if (inst->op == ASH_NEST_INT) {
        f->lost |=
            !ash_mul_i64(inst->i, coef, &product) || !ash_add_i64(f->constant, product, &f->constant);
    } else if (inst->op == ASH_NEST_END_ARG) { /* of one chunk */
        f->lost |= s->begin == ASH_NO_REF || !ash_add_i64(f->constant, coef, &f->constant);
        if (!f->lost) add_term(f, s->begin, 0, coef);
    } else if (computes(inst, ASH_OP_ADD) || computes(inst, ASH_OP_SUB)) {
        f->lost |= coef == NEVER;
        add_value(s, f, inst->a, coef);
        if (!f->lost) add_value(s, f, inst->b, inst->i == ASH_OP_ADD ? coef : -coef);
    } else if (computes(inst, ASH_OP_MUL)) {
        for (int turn = 0; turn < 2; turn++) {
            ash_ref factor = turn ? inst->a : inst->b, other = turn ? inst->b : inst->a;
            if (at(s, factor)->op != ASH_NEST_INT) continue;
            if (add_whole_part(s, f, other, at(s, factor)->i, coef)) return;
            f->lost |= !ash_mul_i64(at(s, factor)->i, coef, &product);
            if (!f->lost) add_value(s, f, other, product);
            return;
        }
        add_term(f, ref, 0, coef);
    } else {
        add_term(f, ref, 0, coef);
    }
}

static int64_t most_of_term(const survey *s, const term *t) {
    range r = t->by ? (range){0, t->by - 1} : s->ranges[t->ref];
    return mul(t->coef > 0 ? r.high : r.low, t->coef);
}

static int64_t most_of(const survey *s, const form *f);

/* A minimum that counts upwards is at most either of its operands, a maximum that counts downwards as
 * well. */
static int64_t most_by_choice(const survey *s, const form *f, unsigned i) {
    const ash_inst *inst = at(s, f->at[i].ref);
    int64_t most = FOREVER;
    for (int turn = 0; turn < 2; turn++) {
        form choice = *f;
        choice.fuel /= 2;
        choice.at[i].coef = 0;
        add_value(s, &choice, turn ? inst->b : inst->a, f->at[i].coef);
        int64_t value = choice.lost ? FOREVER : most_of(s, &choice);
        most = ASH_MIN(most, value);
    }
    return most;
}

static int64_t most_of(const survey *s, const form *f) {
    int64_t sum = f->constant;
    for (unsigned i = 0; i < f->count; i++)
        if (f->at[i].coef) sum = add(sum, most_of_term(s, &f->at[i]), FOREVER);
    for (unsigned i = 0; i < f->count; i++) {
        const term *t = &f->at[i];
        if (t->by || t->coef == 0 || !computes(at(s, t->ref), t->coef > 0 ? ASH_OP_MIN : ASH_OP_MAX))
            continue;
        int64_t chosen = most_by_choice(s, f, i);
        return ASH_MIN(sum, chosen);
    }
    return sum;
}

/* The most that a - b can be. */
static int64_t most_difference(const survey *s, ash_ref a, ash_ref b) {
    form f = {.fuel = FUEL};
    add_value(s, &f, a, 1);
    add_value(s, &f, b, -1);
    int64_t plain = add(s->ranges[a].high, negate(s->ranges[b].low), FOREVER);
    if (f.lost) return plain;
    int64_t apart = most_of(s, &f);
    return ASH_MIN(plain, apart);
}

/* --- bounds of values -------------------------------------------------------------------------------- */

static range range_of_dtype(ash_dtype dtype) {
    unsigned bits = (unsigned)ash_dtype_size(dtype) * 8;
    if (dtype == ASH_BOOL) return (range){0, 1};
    if (ash_dtype_is_float(dtype) || bits == 64) return anything;
    if (ash_dtype_kind(dtype) == ASH_KIND_UNSIGNED) return (range){0, (INT64_C(1) << bits) - 1};
    return (range){-(INT64_C(1) << (bits - 1)), (INT64_C(1) << (bits - 1)) - 1};
}

static range range_of_compute(const survey *s, const ash_inst *inst) {
    range a = s->ranges[inst->a], b = inst->b == ASH_NO_REF ? anything : s->ranges[inst->b];
    switch (inst->i) {
    case ASH_OP_ADD: return (range){add(a.low, b.low, NEVER), add(a.high, b.high, FOREVER)};
    case ASH_OP_SUB:
        return (range){negate(most_difference(s, inst->b, inst->a)), most_difference(s, inst->a, inst->b)};
    case ASH_OP_MUL: return times(a, b);
    case ASH_OP_MIN: return (range){ASH_MIN(a.low, b.low), ASH_MIN(a.high, b.high)};
    case ASH_OP_MAX: return (range){ASH_MAX(a.low, b.low), ASH_MAX(a.high, b.high)};
    case ASH_OP_SELECT: return join(b, s->ranges[inst->c]);
    case ASH_OP_CAST: return range_of_dtype((ash_dtype)at(s, inst->a)->dtype);
    default: return anything;
    }
}

/* Of operands as IDIV and IMOD want them: not negative, and positive. */
static range range_of_division(const survey *s, const ash_inst *inst) {
    range a = s->ranges[inst->a], b = s->ranges[inst->b];
    int64_t by = ASH_MAX(b.low, 1);
    if (inst->op == ASH_NEST_IDIV) return (range){0, a.high == FOREVER ? FOREVER : a.high / by};
    return (range){0, ASH_MIN(a.high, add(b.high, -1, FOREVER))};
}

static range range_of_var(const survey *s, int64_t index) {
    if ((uint64_t)index >= ash_dims_var_count(s->dims)) return anything;
    const ash_var *var = ash_dims_var(s->dims, (size_t)index);
    return (range){var->min, var->max};
}

static range range_of(const survey *s, ash_ref ref) {
    const ash_inst *inst = at(s, ref);
    if (inst->dtype != ASH_I64) return anything;
    switch ((ash_nest_op)inst->op) {
    case ASH_NEST_LANES: return (range){0, inst->lanes - 1};
    case ASH_NEST_SPLAT: return s->ranges[inst->a];
    case ASH_NEST_BEGIN_ARG: return (range){0, s->chunks};
    case ASH_NEST_END_ARG: return (range){0, s->chunks};
    case ASH_NEST_WORKER: return (range){0, INT32_MAX};
    case ASH_NEST_THREAD: return (range){0, s->nest->threads};
    case ASH_NEST_VAR: return range_of_var(s, inst->i);
    case ASH_NEST_INT: return (range){inst->i, inst->i};
    case ASH_NEST_LOOP: return (range){s->ranges[inst->a].low, add(s->ranges[inst->b].high, -1, FOREVER)};
    case ASH_NEST_GET: return s->ranges[inst->a];
    case ASH_NEST_COMPUTE: return range_of_compute(s, inst);
    case ASH_NEST_IDIV:
    case ASH_NEST_IMOD: return range_of_division(s, inst);
    default: return anything;
    }
}

/* A cell may hold this as well. */
static void widen(survey *s, ash_ref cell, range by, bool patient) {
    range *have = &s->ranges[cell], all = join(*have, by);
    if (all.low == have->low && all.high == have->high) return;
    if (!patient && all.low < have->low) all.low = NEVER;
    if (!patient && all.high > have->high) all.high = FOREVER;
    *have = all;
    s->changed = true;
}

static void bound_values(survey *s) {
    s->changed = true;
    for (unsigned round = 0; s->changed; round++) {
        s->changed = false;
        for (ash_ref ref = 0; ref < s->nest->code.len; ref++) {
            const ash_inst *inst = at(s, ref);
            if (inst->op == ASH_NEST_SET)
                widen(s, inst->a, round < ROUNDS ? s->ranges[inst->b] : anything, round < PATIENCE);
            else if (inst->op != ASH_NEST_CELL)
                s->ranges[ref] = range_of(s, ref);
            else if (round == 0)
                s->ranges[ref] = s->ranges[inst->a];
        }
    }
}

/* --- work -------------------------------------------------------------------------------------------- */

static double work_of(const survey *s, const ash_inst *inst) {
    const ash_costs *c = s->costs;
    double bytes = (double)inst->lanes * (double)ash_dtype_size((ash_dtype)inst->dtype);
    double registers = ASH_MAX(bytes / c->unit_bytes, 1);
    switch ((ash_nest_op)inst->op) {
    case ASH_NEST_GATHER: return c->unit_gather * inst->lanes;
    case ASH_NEST_SCATTER: return c->unit_gather * at(s, inst->c)->lanes;
    case ASH_NEST_ATOMIC: return c->unit_gather;
    case ASH_NEST_LOAD:
    case ASH_NEST_SHUFFLE:
    case ASH_NEST_FMA:
    case ASH_NEST_WHOLE:
    case ASH_NEST_DOT4:
    case ASH_NEST_DOT2:
    case ASH_NEST_TILE_LOAD:
    case ASH_NEST_TF32:
    case ASH_NEST_MMA: return registers;
    case ASH_NEST_TILE_DOT:
    case ASH_NEST_TILE_PUT: {
        const ash_nest_tiles t = ash_nest_tiles_of(inst);
        return ASH_NEST_TILE_LINES * t.tall * t.wide;
    }
    case ASH_NEST_STORE:
    case ASH_NEST_PREFETCH:
    case ASH_NEST_LOOP:
    case ASH_NEST_IF: return 1;
    case ASH_NEST_IDIV:
    case ASH_NEST_IMOD: return c->unit_index * registers;
    case ASH_NEST_LOOKUP:
    case ASH_NEST_HREDUCE: return c->unit_reduce;
    case ASH_NEST_COMPUTE: break;
    default: return 0;
    }
    switch (inst->i) {
    case ASH_OP_DIV:
    case ASH_OP_SQRT: return c->unit_divide * registers;
    case ASH_OP_ADD:
    case ASH_OP_SUB:
    case ASH_OP_MUL:
    case ASH_OP_MIN:
    case ASH_OP_MAX:
    case ASH_OP_SELECT: return registers;
    default: break;
    }
    bool function = ash_op_infos[inst->i].class == ASH_CLASS_UNARY;
    return (function ? (double)c->work_function : c->unit_other) * registers;
}

static double iterations(const survey *s, const ash_inst *loop) {
    int64_t most = most_difference(s, loop->b, loop->a);
    if (most == FOREVER) return INFINITY;
    return most <= 0 ? 0 : (double)((most - 1) / loop->i + 1);
}

/* What a loop that ends adds to the block around it, and where it has to look. */
static void close_loop(survey *s, const block *body, block *around) {
    double times_ = iterations(s, at(s, body->opener)), stretch = ASH_MAX(body->stretch, 1);
    double whole = times_ > 0 ? times_ * stretch : 0;
    if (whole > s->costs->look_most_units) {
        double run = ASH_MAX(s->costs->look_units / stretch, 1);
        s->every[body->opener] = (int64_t)run;
        whole = (double)(int64_t)run * stretch;
    }
    around->stretch += whole;
    around->work += times_ > 0 ? times_ * ASH_MAX(body->work, 1) : 0;
}

/* The work of one chunk. */
static double measure(survey *s) {
    block *top = s->blocks;
    *top = (block){.opener = ASH_NO_REF};
    for (ash_ref ref = 0; ref < s->nest->code.len; ref++) {
        const ash_inst *inst = at(s, ref);
        if (inst->op == ASH_NEST_ELSE || inst->op == ASH_NEST_END) {
            const block *body = top--;
            if (at(s, body->opener)->op == ASH_NEST_LOOP)
                close_loop(s, body, top);
            else
                top->work += body->work, top->stretch += body->stretch;
        }
        if (inst->op == ASH_NEST_LOOP || inst->op == ASH_NEST_IF || inst->op == ASH_NEST_ELSE)
            *++top = (block){.opener = ref};
        double work = work_of(s, inst);
        top->work += work;
        top->stretch += work;
    }
    return top->work;
}

/* --- rewriting --------------------------------------------------------------------------------------- */

static ash_ref mapped(const ash_ref *map, ash_ref ref) {
    return ref == ASH_NO_REF ? ref : map[ref];
}

/* Opens a loop that looks every `count` iterations; returns the loop's variable. */
static ash_ref open_loop(ash_nest *to, const ash_inst *loop, int64_t count) {
    int64_t step;
    if (count == 1 || !ash_mul_i64(loop->i, count, &step)) {
        ash_ref v = ash_nest_add(to, *loop);
        ash_nest_poll(to);
        return v;
    }
    ash_ref run = ash_nest_index(to, step), from = ash_nest_loop(to, loop->a, loop->b, step, 1);
    ash_nest_poll(to);
    ash_ref end = ash_nest_binary(to, ASH_OP_MIN, loop->b, ash_nest_binary(to, ASH_OP_ADD, from, run));
    return ash_nest_loop(to, from, end, loop->i, loop->unroll);
}

/* Writes the nest with its looks to `to`; `map` and `twice` have a place per instruction. */
static void rewrite(const survey *s, ash_ref *map, bool *twice, ash_nest *to) {
    size_t depth = 0;
    for (ash_ref ref = 0; ref < s->nest->code.len; ref++) {
        ash_inst inst = *at(s, ref);
        inst.a = mapped(map, inst.a);
        inst.b = mapped(map, inst.b);
        inst.c = mapped(map, inst.c);
        bool opens = inst.op == ASH_NEST_LOOP || inst.op == ASH_NEST_IF;
        if (inst.op == ASH_NEST_END && twice[--depth]) ash_nest_end(to);
        bool looks = inst.op == ASH_NEST_LOOP && s->every[ref];
        size_t before = to->code.len;
        map[ref] = looks ? open_loop(to, &inst, s->every[ref]) : ash_nest_add(to, inst);
        if (opens) twice[depth++] = looks && map[ref] != before;
    }
}

static bool looks_anywhere(const survey *s) {
    for (size_t i = 0; i < s->nest->code.len; i++)
        if (s->every[i]) return true;
    return false;
}

/* Whether 32 bits hold it. */
static bool is_narrow(const survey *s, ash_ref ref) {
    range r = s->ranges[ref];
    return at(s, ref)->dtype == ASH_I64 && r.low >= INT32_MIN && r.high <= INT32_MAX;
}

static bool divides(const ash_inst *inst) {
    return inst->op == ASH_NEST_IDIV || inst->op == ASH_NEST_IMOD;
}

static bool is_comparison(const ash_inst *inst) {
    return inst->op == ASH_NEST_COMPUTE && ash_op_infos[inst->i].class == ASH_CLASS_COMPARE;
}

/* Whether 32 bits make a difference. */
static bool wants_narrow(const ash_inst *inst, bool scalars) {
    if ((inst->lanes == 1) != scalars) return false;
    bool multiplies = inst->op == ASH_NEST_COMPUTE && inst->i == ASH_OP_MUL && inst->dtype == ASH_I64;
    return divides(inst) || (scalars ? is_comparison(inst) : multiplies);
}

ash_status ash_nest_narrow(ash_nest *nest, const ash_dims *dims, int64_t chunks, bool scalars,
                           ash_diag *diag) {
    size_t n = nest->code.len, first = 0;
    survey s = {.nest = nest, .dims = dims, .chunks = chunks, .begin = ASH_NO_REF};
    while (!scalars && first < n && !wants_narrow(at(&s, first), scalars)) first++;
    if (first == n) return ASH_OK; /* most have none */
    s.ranges = ash_mem_calloc(nest->allocator, n, sizeof *s.ranges);
    if (!s.ranges) return ASH_NO_MEMORY(diag);
    bound_values(&s);
    for (ash_ref ref = first; ref < n; ref++) {
        ash_inst *inst = &nest->code.at[ref];
        if (wants_narrow(inst, scalars) && is_narrow(&s, inst->a) && is_narrow(&s, inst->b))
            inst->unroll = ASH_NEST_NARROW;
    }
    ash_mem_free(nest->allocator, s.ranges, n, sizeof *s.ranges);
    return ASH_OK;
}

ash_status ash_nest_add_polls(ash_nest *nest, const ash_costs *costs, const ash_dims *dims, int64_t chunks,
                              double *work, ash_diag *diag) {
    const ash_allocator *a = nest->allocator;
    size_t n = nest->code.len;
    ash_ref *map = NULL;
    bool *twice = NULL;
    ash_nest to;
    survey s = {.nest = nest, .costs = costs, .dims = dims, .chunks = chunks};
    ash_nest_init(&to, a);
    s.ranges = ash_mem_calloc(a, n, sizeof *s.ranges);
    s.every = ash_mem_calloc(a, n, sizeof *s.every);
    s.blocks = ash_mem_alloc(a, n + 1, sizeof *s.blocks);
    ash_status status = s.ranges && s.every && s.blocks ? ASH_OK : ASH_NO_MEMORY(diag);
    if (status != ASH_OK) goto done;
    s.begin = ASH_NO_REF;
    for (ash_ref ref = 0; ref < n && s.begin == ASH_NO_REF; ref++)
        if (at(&s, ref)->op == ASH_NEST_BEGIN_ARG) s.begin = ref;
    bound_values(&s);
    *work = measure(&s);
    if (nest->threads || !looks_anywhere(&s)) goto done; /* a thread may not leave its block */
    map = ash_mem_alloc(a, n, sizeof *map);
    twice = ash_mem_alloc(a, n, sizeof *twice);
    if (map && twice) rewrite(&s, map, twice, &to);
    if (map && twice && !to.failed) {
        ash_nest__exchange_code(nest, &to);
        nest->polls = true;
    } else {
        status = ASH_NO_MEMORY(diag);
    }
done:
    ash_nest_free(&to);
    ash_mem_free(a, s.ranges, n, sizeof *s.ranges);
    ash_mem_free(a, s.every, n, sizeof *s.every);
    ash_mem_free(a, s.blocks, n + 1, sizeof *s.blocks);
    ash_mem_free(a, map, n, sizeof *map);
    ash_mem_free(a, twice, n, sizeof *twice);
    return status;
}
