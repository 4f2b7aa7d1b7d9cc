/* SPDX-License-Identifier: MIT */
/* What the tests of the optimiser share: a graph under test, one or several passes over it, and the
 * comparison of what both graphs compute. */
#ifndef ASH_TESTS_OPT_TESTING_H
#define ASH_TESTS_OPT_TESTING_H

#include <math.h>

#include "ashlar/builder.h"
#include "graph_room.h"
#include "opt/opt.h"
#include "random.h"

typedef struct room fixture;

static inline int setup(void **state) {
    ash_diag diag;
    room_open(state, 1);
    fixture *f = *state;
    f->random = 1;
    assert_ok(ash_graph_create(f->context, "test", &f->g, &diag));
    return 0;
}

/* On the usual allocator: what the evaluator hands out is freed with it. */
static inline int begin(void **state) {
    ash_diag diag;
    fixture *f = calloc(1, sizeof *f);
    ash_context_options options = {.threads = 1};
    assert_ok(ash_context_create(&options, &f->context, &diag));
    assert_ok(ash_graph_create(f->context, "test", &f->g, &diag));
    *state = f;
    return 0;
}

/* A fresh graph under test. */
static inline void restart(fixture *f) {
    ash_diag diag;
    ash_graph_destroy(f->g);
    ash_graph_destroy(f->out);
    f->out = NULL;
    assert_ok(ash_graph_create(f->context, "test", &f->g, &diag));
}

/* --- data ----------------------------------------------------------------------------------------- */

static inline unsigned below(uint64_t *state, unsigned n) {
    return (unsigned)(test_random(state) % n);
}
static inline double uniform(uint64_t *state) { /* in [-1, 1) */
    return (double)(int64_t)test_random(state) / 9223372036854775808.0;
}

static inline ash_type type_of(ash_dtype dtype, unsigned rank, const ash_dim *dims) {
    ash_type type = {.dtype = dtype, .rank = rank};
    if (rank) memcpy(type.dims, dims, rank * sizeof *dims);
    return type;
}
#define RANK_OF(...)     (sizeof((ash_dim[]){__VA_ARGS__}) / sizeof(ash_dim))
#define TYPE(dtype, ...) type_of(dtype, RANK_OF(__VA_ARGS__), (ash_dim[]){__VA_ARGS__})

static inline ash_value input(fixture *f, const char *name, ash_type type) {
    return ash_graph_input(f->g, name, &type);
}
#define INPUT(f, name, dtype, ...) input(f, name, TYPE(dtype, __VA_ARGS__))

/* A constant (or a parameter, if named) of random numbers in [-1, 1), or [-4, 4] for integers. */
static inline ash_value random_leaf(fixture *f, const char *name, ash_type type) {
    int64_t count;
    assert_true(ash_type_static_count(&type, &count));
    ash_wide wide = {.dtype = type.dtype, .count = count};
    size_t size = (size_t)count * ash_dtype_size(type.dtype);
    void *data = calloc(1, size + 8);
    wide.f = calloc((size_t)count + 1, 8);
    for (int64_t i = 0; i < count; i++) {
        if (ash_dtype_is_float(type.dtype))
            wide.f[i] = uniform(&f->random);
        else
            wide.i[i] = type.dtype == ASH_BOOL ? below(&f->random, 2) : (int64_t)below(&f->random, 9) - 4;
    }
    ash_wide_store(&wide, data);
    ash_value v = name ? ash_graph_parameter(f->g, name, &type, data, size, ASH_DATA_COPY)
                       : ash_graph_constant(f->g, &type, data, size, ASH_DATA_COPY);
    free(data);
    free(wide.f);
    return v;
}
#define CONSTANT(f, dtype, ...)        random_leaf(f, NULL, TYPE(dtype, __VA_ARGS__))
#define PARAMETER(f, name, dtype, ...) random_leaf(f, name, TYPE(dtype, __VA_ARGS__))

/* --- running passes ------------------------------------------------------------------------------- */

/* A machine whose vectors hold so many f32. */
static inline ash_target target_of(unsigned lanes) {
    return (ash_target){
        .vector_bytes = 4 * lanes, .vector_registers = 32, .fma = true, .costs = ash_costs__cpu};
}

/* Runs the passes named in `passes` ("fold cse"), or all for NULL. */
static inline ash_status optimise(fixture *f, const char *passes, const ash_target *target,
                                  ash_opt_options options, ash_diag *diag) {
    const char *off[32];
    size_t n = 0;
    const char *name;
    for (size_t row = 0; passes && (name = ash_opt__pass_at(row)); row++)
        if (!strstr(passes, name)) off[n++] = name;
    options.off = off;
    options.n_off = n;
    ash_graph_destroy(f->out);
    f->out = NULL;
    return ash_opt__run(f->g, target, &options, &f->out, diag);
}

/* --- comparing ------------------------------------------------------------------------------------ */

typedef struct results {
    size_t n;
    ash_wide at[16];
} results;

/* Evaluates a graph with inputs that depend on their position and the seed alone. With `specials`, zeros of
 * both signs, infinities and NaN are among them. */
static inline results evaluate(const ash_graph *g, ash_eval_precision precision, uint64_t seed,
                               bool specials, const int64_t *vars) {
    static const double special[] = {0.0, -0.0, INFINITY, -INFINITY, NAN, 1, -1, 2};
    ash_diag diag;
    results r = {.n = g->outputs.len};
    ash_wide *inputs = calloc(g->inputs.len + 1, sizeof *inputs);
    assert_true(r.n <= 16);
    for (size_t i = 0; i < g->inputs.len; i++) {
        const ash_type *type = ash_graph__type(g, g->inputs.at[i]);
        uint64_t state = seed + i;
        int64_t dims[ASH_MAX_RANK] = {0};
        for (unsigned d = 0; d < type->rank; d++) dims[d] = ash_dims_eval(g->dims, type->dims[d], vars);
        assert_ok(ash_wide_alloc(g->allocator, type->dtype, type->rank, dims, &inputs[i], &diag));
        for (int64_t e = 0; e < inputs[i].count; e++) {
            double value = uniform(&state);
            if (specials && below(&state, 4) == 0) value = special[below(&state, ASH_COUNT(special))];
            if (ash_dtype_is_float(type->dtype))
                inputs[i].f[e] = (float)value;
            else
                inputs[i].i[e] = type->dtype == ASH_BOOL ? below(&state, 2) : below(&state, 100);
        }
    }
    assert_ok(ash_eval_graph(g, inputs, vars, precision, r.at, &diag));
    for (size_t i = 0; i < g->inputs.len; i++) ash_wide_free(g->allocator, &inputs[i]);
    free(inputs);
    return r;
}

static inline void free_results(const ash_graph *g, results *r) {
    for (size_t i = 0; i < r->n; i++) ash_wide_free(g->allocator, &r->at[i]);
}

/* Equal to `tolerance` relative to the largest element; with 0, bit for bit but for the bits of a NaN. */
static inline bool close_enough(const ash_wide *a, const ash_wide *b, double tolerance) {
    double largest = 0;
    if (a->dtype != b->dtype || a->rank != b->rank || memcmp(a->dims, b->dims, a->rank * sizeof *a->dims))
        return false;
    if (!ash_dtype_is_float(a->dtype)) return !memcmp(a->i, b->i, (size_t)a->count * sizeof *a->i);
    for (int64_t i = 0; i < a->count; i++)
        if (isfinite(a->f[i])) largest = fmax(largest, fabs(a->f[i]));
    for (int64_t i = 0; i < a->count; i++) {
        double x = a->f[i], y = b->f[i];
        if (isnan(x) && isnan(y)) continue;
        if (tolerance == 0 ? memcmp(&x, &y, sizeof x) != 0
                           : !(x == y || fabs(x - y) <= tolerance * largest)) {
            print_message("element %lld: %.17g and %.17g\n", (long long)i, x, y);
            return false;
        }
    }
    return true;
}

/* True when two graphs compute the same from the same inputs. */
static inline bool same_results(const ash_graph *a, const ash_graph *b, ash_eval_precision precision,
                                bool specials, double tolerance, const int64_t *vars) {
    results of_a = evaluate(a, precision, 7, specials, vars),
            of_b = evaluate(b, precision, 7, specials, vars);
    bool same = of_a.n == of_b.n;
    for (size_t i = 0; same && i < of_a.n; i++) {
        same = close_enough(&of_a.at[i], &of_b.at[i], tolerance);
        if (!same) print_message("output %zu differs\n", i);
    }
    free_results(a, &of_a);
    free_results(b, &of_b);
    return same;
}

/* True when inputs and outputs have the same names and types, in the same order. */
static inline bool same_boundary(const ash_graph *a, const ash_graph *b) {
    bool same = a->inputs.len == b->inputs.len && a->outputs.len == b->outputs.len;
    for (size_t i = 0; same && i < a->inputs.len; i++)
        same = !strcmp(a->values.at[a->inputs.at[i]].name, b->values.at[b->inputs.at[i]].name) &&
               ash_type_equal(ash_graph__type(a, a->inputs.at[i]), ash_graph__type(b, b->inputs.at[i]));
    for (size_t i = 0; same && i < a->outputs.len; i++)
        same = !strcmp(a->outputs.at[i].name, b->outputs.at[i].name) &&
               ash_type_equal(ash_graph__type(a, a->outputs.at[i].value),
                              ash_graph__type(b, b->outputs.at[i].value));
    return same;
}

static inline size_t count_op(const ash_graph *g, ash_op op) {
    size_t n = 0;
    for (size_t i = 0; i < g->nodes.len; i++) n += g->nodes.at[i].op == op;
    return n;
}

/* The n-th node of an operator, from 0; NULL when there are fewer. */
static inline const ash_node *find_op(const ash_graph *g, ash_op op, size_t n) {
    for (size_t i = 0; i < g->nodes.len; i++)
        if (g->nodes.at[i].op == op && n-- == 0) return &g->nodes.at[i];
    return NULL;
}

/* The value that has that origin, or ASH_NO_VALUE. */
static inline ash_value find_origin(const ash_graph *g, ash_value origin) {
    for (ash_value v = 0; v < g->values.len; v++)
        if (g->values.at[v].origin == origin) return v;
    return ASH_NO_VALUE;
}

/* --- targets -------------------------------------------------------------------------------------- */

/* What lowering sees of a machine with these features; the interpreter runs its nests on any. */
static inline ash_target made(const char *features) {
    ash_target t = {0};
    snprintf(t.triple, sizeof t.triple, "x86_64-pc-linux-gnu");
    snprintf(t.features, sizeof t.features, "%s", features);
    ash_target__fill(&t);
    t.l1_bytes = 32 << 10, t.l2_bytes = 512 << 10;
    return t;
}

#endif
