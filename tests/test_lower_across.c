/* SPDX-License-Identifier: MIT */
/* Kernels that work on rows with axes in front of the row's and behind it: running sums, places of extrema,
 * the few best, and scatters of whole rows. Axes are merged where that is one address, and not where the
 * operand is turned or looked up; lengths around the widths of vectors, as numbers and as variables, none
 * among them; equal elements and NaNs; for several targets, beside the evaluator. */
#include "ashlar/builder.h"
#include "interpreted.h"
#include "one_context.h"

static const char *const levels[] = {"x86-64", "x86-64-v3", "x86-64-v4"};
static ash_target targets[ASH_COUNT(levels) + 1];

static int setup(void **state) {
    (void)state;
    for (size_t i = 0; i < ASH_COUNT(levels); i++)
        if (ash_target__named(levels[i], &targets[i], NULL) != ASH_OK) return 1;
    if (!ash_target__gpu(80, &targets[ASH_COUNT(levels)])) return 1;
    return open_context(1);
}

/* --- operands ------------------------------------------------------------------------------------- */

typedef enum kind { LOADED, TURNED, LOOKED_UP, COMPUTED, KINDS } kind;

typedef struct shape {
    unsigned rank;
    ash_dim dims[4];
} shape;

static ash_value input(ash_graph *g, const char *name, ash_dtype dtype, const shape *s) {
    ash_type type = {.dtype = dtype, .rank = s->rank};
    memcpy(type.dims, s->dims, sizeof s->dims);
    return ash_graph_input(g, name, &type);
}

/* A few numbers, so that many are equal; and NaNs among floating point ones. */
static ash_value rounded(ash_graph *g, ash_value x, ash_dtype dtype) {
    if (!ash_dtype_is_float(dtype)) return x;
    x = ash_floor(g, ash_mul(g, x, ash_scalar(g, dtype, 4)));
    return ash_select(g, ash_eq(g, x, ash_scalar(g, dtype, 3)), ash_scalar(g, dtype, NAN), x);
}

static ash_value operand(ash_graph *g, kind which, ash_dtype dtype, const shape *s) {
    const unsigned rank = s->rank;
    shape other = *s;
    int64_t perm[4] = {0, 1, 2, 3};
    switch (which) {
    case TURNED: /* the last two axes */
        other.dims[rank - 1] = s->dims[rank - 2], other.dims[rank - 2] = s->dims[rank - 1];
        perm[rank - 1] = rank - 2, perm[rank - 2] = rank - 1;
        return ash_transpose(g, input(g, "x", dtype, &other), perm);
    case LOOKED_UP: {
        ash_value at = ash_iota(g, ASH_I64, &s->dims[rank - 1], 1, 0);
        at = ash_mod(g, ash_mul(g, at, at), ash_scalar(g, ASH_I64, 3));
        return ash_gather(g, input(g, "x", dtype, s), at, (int64_t)rank - 1);
    }
    case COMPUTED: return rounded(g, input(g, "x", dtype, s), dtype);
    default: return input(g, "x", dtype, s);
    }
}

/* Fused and not, interpreted for each target; and every few compiled for one that runs here. */
static void check(const ash_graph *g, const int64_t *vars, double tolerance) {
    enum { COMPILED = 5 };
    static unsigned checked;
    ash_diag diag;
    ash_wide *inputs = test_inputs(g, vars), *expected = test_expected(g, inputs, vars);
    for (size_t t = 0; t < ASH_COUNT(targets); t++)
        test_interpreted(g, &targets[t], &(ash_lower_options){.fuse = t % 2 == 0}, vars, inputs, expected,
                         tolerance);
    test_free_expected(g, expected);
    const ash_target *target = &targets[1 + checked / COMPILED % 2];
    if (checked++ % COMPILED == 0 && ash_target__check_runs(test_host(context), target, &diag) == ASH_OK)
        test_differential_for(context, target, g, &(ash_lower_options){.fuse = true}, vars, inputs,
                              tolerance);
    test_free_inputs(g, inputs);
}

static ash_graph *new_graph(void) {
    ash_graph *g;
    ash_diag diag;
    assert_ok(ash_graph_create(context, "test", &g, &diag));
    return g;
}

/* --- rows ----------------------------------------------------------------------------------------- */

static const shape shapes[] = {
    {4, {2, 9, 1, 3}},  {4, {9, 2, 1, 2}},  {3, {2, 10, 5}},    {3, {3, 7, 16}},    {3, {2, 17, 1}},
    {4, {5, 3, 3, 11}}, {4, {1, 12, 2, 8}}, {4, {6, 1, 1, 67}}, {4, {2, 3, 4, 64}}, {3, {2, 8, 300}},
};

static void add_rows(ash_graph *g, ash_value x, const shape *s, unsigned axis, ash_dtype dtype) {
    static const int64_t best[] = {1, 2, 3, 5, 16};
    ash_value at;
    char name[32];
    if (!ash_dtype_is_float(dtype))
        for (unsigned way = 0; way < 4; way++) {
            snprintf(name, sizeof name, "sum %u", way);
            ash_graph_output(g, name, ash_cumsum(g, x, axis, way & 1, way & 2));
        }
    ash_graph_output(g, "first", ash_argmax(g, x, axis, false));
    ash_graph_output(g, "last", ash_argmin(g, x, axis, true));
    for (size_t i = 0; i < ASH_COUNT(best); i++) {
        if (!ash_dim_is_const(s->dims[axis]) || best[i] > s->dims[axis]) continue;
        snprintf(name, sizeof name, "best %zu", i);
        ash_graph_output(g, name, ash_topk(g, x, axis, best[i], i % 2, &at));
        snprintf(name, sizeof name, "places %zu", i);
        ash_graph_output(g, name, at);
    }
}

static void rows(void **state) {
    (void)state;
    static const ash_dtype dtypes[] = {ASH_F32, ASH_F64, ASH_I32, ASH_I64, ASH_U8};
    for (size_t i = 0; i < ASH_COUNT(shapes); i++)
        for (unsigned axis = 0; axis < shapes[i].rank; axis++)
            for (kind which = LOADED; which < KINDS; which++) {
                const ash_dtype dtype = dtypes[(i + axis + which) % ASH_COUNT(dtypes)];
                ash_graph *g = new_graph();
                add_rows(g, operand(g, which, dtype, &shapes[i]), &shapes[i], axis, dtype);
                check(g, NULL, 0);
                ash_graph_destroy(g);
            }
}

/* A sum has the order of its terms, wherever its row lies: floats are the same, up to what a sum in f64
 * differs. */
static void sums(void **state) {
    (void)state;
    for (size_t i = 0; i < ASH_COUNT(shapes); i++)
        for (unsigned axis = 0; axis < shapes[i].rank; axis++) {
            ash_graph *g = new_graph();
            ash_value x = operand(g, (kind)(i % COMPUTED), ASH_F32, &shapes[i]);
            ash_graph_output(g, "y", ash_cumsum(g, x, axis, i & 1, axis & 1));
            check(g, NULL, 1e-5);
            ash_graph_destroy(g);
        }
}

/* The row's axis, those in front and those behind are variables; any may be 0. */
static void variables(void **state) {
    (void)state;
    static const int64_t values[][2] = {{5, 3}, {1, 1}, {4, 0}, {17, 16}, {2, 37}, {9, 2}, {16, 5}};
    for (unsigned axis = 0; axis < 4; axis++)
        for (kind which = LOADED; which < KINDS; which++) {
            ash_graph *g = new_graph();
            const ash_dim n = ash_graph_var(g, "n", 1, 20), m = ash_graph_var(g, "m", 0, 40);
            shape s = {4, {2, 3, 2, m}};
            s.dims[axis] = axis == 3 ? n : axis == 0 ? 6 : s.dims[axis];
            if (axis < 3) s.dims[axis ? 0 : 1] = n;
            const ash_dtype dtype = which % 2 ? ASH_F32 : ASH_I32;
            add_rows(g, operand(g, which, dtype, &s), &s, axis, dtype);
            for (size_t v = 0; v < ASH_COUNT(values); v++) check(g, values[v], 0);
            ash_graph_destroy(g);
        }
}

/* --- scatters ------------------------------------------------------------------------------------- */

/* Windows of one to three dims, of which updates go to some rows more than once, and to none. */
static void scatters(void **state) {
    (void)state;
    static const shape results[] = {{3, {6, 5, 3}},    {3, {6, 4, 16}}, {4, {3, 2, 1, 7}},
                                    {4, {4, 2, 3, 9}}, {3, {5, 1, 70}}, {2, {7, 33}}};
    static const ash_scatter modes[] = {ASH_SCATTER_SET, ASH_SCATTER_ADD, ASH_SCATTER_MUL, ASH_SCATTER_MIN,
                                        ASH_SCATTER_MAX};
    for (size_t i = 0; i < ASH_COUNT(results); i++)
        for (size_t m = 0; m < ASH_COUNT(modes); m++)
            for (unsigned variable = 0; variable < 2; variable++)
                for (kind which = LOADED; which <= TURNED; which++) {
                    ash_graph *g = new_graph();
                    shape to = results[i], from = {to.rank, {5}};
                    const unsigned depth = to.rank > 2 ? 1 + (unsigned)(m % 2) : 1;
                    if (variable) to.dims[to.rank - 1] = ash_graph_var(g, "m", 0, 70);
                    for (unsigned d = depth; d < to.rank; d++) from.dims[d - depth + 1] = to.dims[d];
                    from.rank = to.rank - depth + 1;
                    ash_value x, y;
                    if (which == TURNED && from.rank > 2) { /* axes of the updates that are no one */
                        const int64_t perm[] = {0, 2, 1, 3};
                        shape turned = from;
                        turned.dims[1] = from.dims[2], turned.dims[2] = from.dims[1];
                        x = ash_transpose(g, input(g, "from", ASH_F32, &turned), perm);
                    } else {
                        x = input(g, "from", ASH_F32, &from);
                    }
                    const shape at = {2, {5, depth}};
                    ash_value numbers = input(g, "at", ASH_I64, &at);
                    numbers = ash_sub(g, ash_mod(g, numbers, ash_scalar(g, ASH_I64, 4)),
                                      ash_scalar(g, ASH_I64, 1));
                    y = ash_scatter_nd(g, input(g, "to", ASH_F32, &to), numbers, x, modes[m]);
                    ash_graph_output(g, "y", y);
                    static const int64_t sizes[] = {0, 1, 3, 8, 17, 70};
                    if (!variable) check(g, NULL, 1e-6);
                    for (size_t v = 0; variable && v < ASH_COUNT(sizes); v++) check(g, &sizes[v], 1e-6);
                    ash_graph_destroy(g);
                }
}

/* --- code ----------------------------------------------------------------------------------------- */

/* Loads, of vectors of so many lanes, in what a graph is lowered to. */
static unsigned loads_of(const ash_graph *g, unsigned lanes) {
    ash_program *p;
    ash_diag diag;
    unsigned found = 0;
    assert_ok(ash_program__lower(g, &targets[2], &(ash_lower_options){.fuse = true}, &p, &diag));
    for (size_t i = 0; i < p->nests.len; i++)
        for (ash_ref k = 0; k < p->nests.at[i].code.len; k++) {
            const ash_inst *inst = &p->nests.at[i].code.at[k];
            found += inst->op == ASH_NEST_LOAD && inst->lanes == lanes;
        }
    ash_program__free(p);
    return found;
}

/* Axes behind the row's are one, of 192 elements: four registers at once. */
static void merged(void **state) {
    (void)state;
    static const shape s = {4, {10, 64, 1, 3}};
    for (unsigned op = 0; op < 3; op++) {
        ash_graph *g = new_graph();
        ash_value x = input(g, "x", ASH_F32, &s), at;
        x = op == 0   ? ash_cumsum(g, x, 0, false, false)
            : op == 1 ? ash_argmax(g, x, 0, false)
                      : ash_topk(g, x, 0, 1, true, &at);
        ash_graph_output(g, "y", x);
        assert_int_not_equal(loads_of(g, 64), 0);
        ash_graph_destroy(g);
    }
    ash_graph *g = new_graph();
    const shape from = {3, {7, 50, 8}}, at = {2, {7, 1}}, to = {3, {9, 50, 8}};
    ash_value y = ash_scatter_nd(g, input(g, "to", ASH_F32, &to), input(g, "at", ASH_I64, &at),
                                 input(g, "from", ASH_F32, &from), ASH_SCATTER_ADD);
    ash_graph_output(g, "y", y);
    assert_int_not_equal(loads_of(g, 64), 0);
    ash_graph_destroy(g);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows),     cmocka_unit_test(sums),   cmocka_unit_test(variables),
        cmocka_unit_test(scatters), cmocka_unit_test(merged),
    };
    return cmocka_run_group_tests(tests, setup, tear_down);
}
