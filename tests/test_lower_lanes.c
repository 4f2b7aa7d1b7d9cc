/* SPDX-License-Identifier: MIT */
/* Lanes beyond the end of what is reduced never count: every reduction of every kind of operand, whose
 * lanes that are off are no neutral elements (a number that is repeated, one that is counted, a function
 * of 0), for lengths around the widths of vectors, as numbers and as variables, for several targets. */
#include "ashlar/builder.h"
#include "interpreted.h"
#include "one_context.h"

enum { LONGEST = 67 };

static ash_target targets[5];

static int setup(void **state) {
    (void)state;
    static const char *const names[] = {"x86-64", "x86-64-v3", "x86-64-v4"};
    for (size_t i = 0; i < ASH_COUNT(names); i++)
        if (ash_target__named(names[i], &targets[i], NULL) != ASH_OK) return 1;
    targets[3] = targets[0]; /* short vectors with masks */
    targets[3].masks = 1;
    if (!ash_target__gpu(80, &targets[4])) return 1;
    return open_context(1);
}

/* --- operands ------------------------------------------------------------------------------------- */

typedef enum kind { LOADED, REPEATED, CONSTANT, COUNTED, FUNCTION, QUOTIENT, LARGE, MIXED, KINDS } kind;
static const char *const kind_names[] = {"loaded",   "repeated", "constant", "counted",
                                         "function", "quotient", "large",    "mixed"};

typedef struct net {
    ash_graph *g;
    ash_dtype dtype;
    ash_value one; /* an input of one element */
    unsigned n_inputs;
    bool is_float, is_bool;
} net;

static ash_value new_input(net *f, unsigned rank, const ash_dim *dims) {
    ash_type type = {.dtype = f->dtype, .rank = rank};
    char name[16];
    if (rank) memcpy(type.dims, dims, rank * sizeof *dims);
    snprintf(name, sizeof name, "x%u", f->n_inputs++);
    return ash_graph_input(f->g, name, &type);
}

/* The number along `axis`, small enough for the sums of a half float. */
static ash_value counted(net *f, const ash_dim *dims, int64_t axis) {
    ash_value number = ash_iota(f->g, f->dtype, dims, 2, axis);
    return f->is_float ? ash_mul(f->g, number, ash_scalar(f->g, f->dtype, 1.0 / 64)) : number;
}

/* An operand of the given dims; COUNTED runs along `axis`. */
static ash_value operand(net *f, kind which, const ash_dim *dims, int64_t axis) {
    ash_graph *g = f->g;
    ash_value x;
    if (f->is_bool) { /* nothing but what is loaded, repeated, and not what is loaded */
        if (which == REPEATED) return ash_broadcast_to(g, f->one, dims, 2);
        if (which == CONSTANT) return ash_broadcast_to(g, ash_scalar(g, ASH_BOOL, 1), dims, 2);
        x = new_input(f, 2, dims);
        return which == LOADED ? x : ash_not(g, x);
    }
    switch (which) {
    case LOADED: return new_input(f, 2, dims);
    case REPEATED: return ash_broadcast_to(g, f->one, dims, 2);
    case CONSTANT: return ash_broadcast_to(g, ash_scalar(g, f->dtype, 3), dims, 2);
    case COUNTED: return counted(f, dims, axis);
    case FUNCTION:
        x = new_input(f, 2, dims);
        if (f->is_float) return ash_add(g, ash_cos(g, x), ash_scalar(g, f->dtype, 0.4));
        return ash_add(g, x, ash_scalar(g, f->dtype, 2));
    case QUOTIENT: /* 0 / 0 where nothing is loaded */
        x = new_input(f, 2, dims);
        if (!f->is_float)
            return ash_div(g, ash_scalar(g, f->dtype, 20), ash_max(g, x, ash_scalar(g, f->dtype, 1)));
        return ash_div(g, x, x);
    case LARGE:
        return ash_broadcast_to(
            g, ash_div(g, f->one, f->is_float ? ash_sub(g, f->one, f->one) : ash_scalar(g, f->dtype, 1)),
            dims, 2);
    default: /* repeated times counted, plus what is loaded */
        x = ash_mul(g, ash_broadcast_to(g, f->one, dims, 2), counted(f, dims, axis));
        return ash_add(g, x, new_input(f, 2, dims));
    }
}

/* --- reductions ----------------------------------------------------------------------------------- */

static void output(net *f, ash_value v, const char *what, kind which, int64_t axis) {
    char name[64];
    snprintf(name, sizeof name, "%s of %s along %lld", what, kind_names[which], (long long)axis);
    ash_graph_output(f->g, name, v);
}

/* Everything that reduces one operand of 3 x n or n x 3 along n. */
static void reduce_all(net *f, kind which, ash_dim n, int64_t axis) {
    ash_graph *g = f->g;
    const ash_dim dims[2] = {axis ? 3 : n, axis ? n : 3};
    ash_value x = operand(f, which, dims, axis), at;
    const int64_t both[2] = {0, 1};
    if (!f->is_bool) {
        output(f, ash_reduce_sum(g, x, &axis, 1, false), "sum", which, axis);
        if (!f->is_float ||
            ash_dtype_size(f->dtype) > 2) /* others have too few digits, and too few numbers */
            output(f, ash_reduce_prod(g, x, &axis, 1, false), "product", which, axis);
        output(f, ash_cumsum(g, x, axis, which & 1, which & 2), "running sum", which, axis);
        output(f, ash_reduce_sum(g, x, both, 2, false), "whole sum", which, axis);
        bool half = f->is_float && ash_dtype_size(f->dtype) == 2;
        output(f, ash_topk(g, x, axis, 1, true, &at), "best", which, axis);
        if (!half || which <= COUNTED) { /* else what is stored in between is rounded, and equal then */
            output(f, at, "place of the best", which, axis);
            output(f, ash_argmax(g, x, axis, false), "place of the maximum", which, axis);
            output(f, ash_argmin(g, x, axis, true), "place of the minimum", which, axis);
        }
        const ash_window window = {2, 1, 1, 1, 0};
        output(f, ash_pool_sum(g, x, &axis, &window, 1), "sum in windows", which, axis);
        output(f, ash_pool_max(g, x, &axis, &window, 1), "maximum in windows", which, axis);
    }
    output(f, ash_reduce_max(g, x, &axis, 1, false), "maximum", which, axis);
    output(f, ash_reduce_min(g, x, &axis, 1, false), "minimum", which, axis);
    ash_value parts[2] = {ash_reduce_max(g, x, &axis, 1, true), ash_reduce_min(g, x, &axis, 1, true)};
    output(f, ash_concat(g, parts, 2, 1 - axis), "both extrema", which, axis);
    if (f->is_float && which != LARGE) output(f, ash_softmax(g, x, axis), "softmax", which, axis);
}

/* Products whose sum runs along n, of every kind with every other. */
static void multiply_all(net *f, ash_dim n) {
    ash_graph *g = f->g;
    for (int64_t rows = 1; rows <= 2; rows++)
        for (unsigned a = 0; a < KINDS; a++)
            for (unsigned b = 0; b < KINDS; b++) {
                ash_value x = operand(f, (kind)a, (ash_dim[]){rows, n}, 1);
                ash_value y = operand(f, (kind)b, (ash_dim[]){n, rows}, 0);
                char name[64];
                snprintf(name, sizeof name, "%lld x n, %s times %s", (long long)rows, kind_names[a],
                         kind_names[b]);
                ash_graph_output(g, name, ash_matmul(g, x, y));
            }
}

typedef enum part { REDUCTIONS, PRODUCTS } part;

static net make(ash_dtype dtype, part which, int64_t length, bool variable) {
    net f = {.dtype = dtype, .is_float = ash_dtype_is_float(dtype), .is_bool = dtype == ASH_BOOL};
    ash_diag diag;
    assert_ok(ash_graph_create(context, "test", &f.g, &diag));
    ash_dim n = variable ? ash_graph_var(f.g, "n", 1, length) : length;
    f.one = new_input(&f, 0, NULL);
    if (which == REDUCTIONS)
        for (unsigned i = 0; i < 2u * KINDS; i++) reduce_all(&f, (kind)(i / 2), n, i % 2);
    else
        multiply_all(&f, n);
    assert_ok(ash_graph_status(f.g, &diag));
    return f;
}

/* Numbers around 1, so that neither products nor sums lose what a lane would change. */
static ash_wide *inputs_of(const net *f, const int64_t *vars) {
    ash_wide *inputs = test_inputs(f->g, vars);
    for (unsigned i = 0; i < f->n_inputs && f->is_float; i++) {
        for (int64_t e = 0; e < inputs[i].count; e++) inputs[i].f[e] = 1 + inputs[i].f[e] / 4;
        ash_wide__round(&inputs[i]);
    }
    return inputs;
}

static double tolerance(ash_dtype dtype) {
    return dtype == ASH_F64 ? 1e-12 : dtype == ASH_F32 ? 1e-5 : dtype == ASH_F16 ? 1e-2 : 5e-2;
}

/* Interpreted for one target, fused and not. */
static void interpret(const net *f, const ash_target *target, int64_t length) {
    ash_wide *inputs = inputs_of(f, &length), *expected = test_expected(f->g, inputs, &length);
    for (int fuse = 0; fuse < 2; fuse++)
        test_interpreted(f->g, target, &(ash_lower_options){.fuse = fuse}, &length, inputs, expected,
                         tolerance(f->dtype));
    test_free_expected(f->g, expected);
    test_free_inputs(f->g, inputs);
}

static const ash_dtype dtypes[] = {ASH_F32, ASH_F64, ASH_F16, ASH_BF16, ASH_I32,
                                   ASH_I64, ASH_U8,  ASH_I8,  ASH_BOOL};

/* Every length, each for one target in turn; variable lengths, too. Watched, every other type: it takes
 * eight times as long. */
static void test_reductions(void **state) {
    (void)state;
    for (unsigned d = 0; d < ASH_COUNT(dtypes); d += 1 + TEST_WATCHED)
        for (int64_t n = 1; n <= LONGEST; n += n > 20 ? 3 : 1) {
            const ash_target *target = &targets[(n + d) % ASH_COUNT(targets)];
            net f = make(dtypes[d], REDUCTIONS, n, false);
            interpret(&f, target, n);
            ash_graph_destroy(f.g);
        }
    for (unsigned d = 0; d < ASH_COUNT(dtypes); d += 1 + TEST_WATCHED) {
        net f = make(dtypes[d], REDUCTIONS, LONGEST, true);
        for (int64_t n = 1; n <= LONGEST; n += n > 9 ? 7 : 2)
            interpret(&f, &targets[(n + d) % ASH_COUNT(targets)], n);
        ash_graph_destroy(f.g);
    }
}

static void test_products(void **state) {
    (void)state;
    for (unsigned d = 0; d < ASH_COUNT(dtypes); d += 1 + TEST_WATCHED) {
        if (dtypes[d] == ASH_BOOL) continue;
        for (int64_t n = 1; n <= LONGEST; n += n > 20 ? 7 : n > 4 ? 2 : 1) {
            net f = make(dtypes[d], PRODUCTS, n, false);
            interpret(&f, &targets[(n + d) % ASH_COUNT(targets)], n);
            ash_graph_destroy(f.g);
        }
        net f = make(dtypes[d], PRODUCTS, LONGEST, true);
        for (int64_t n = 1; n <= LONGEST; n += 11)
            interpret(&f, &targets[(n / 11 + d) % ASH_COUNT(targets)], n);
        ash_graph_destroy(f.g);
    }
}

/* Compiled for each level that this machine has, with a variable length: what is interpreted above is what
 * code generation makes. */
static void test_compiled(void **state) {
    (void)state;
    ash_diag diag;
    for (unsigned t = 0; t < 3; t++) {
        if (ash_target__check_runs(test_host(context), &targets[t], &diag) != ASH_OK) continue;
        for (unsigned which = 0; which < 2; which++)
            for (unsigned d = 0; d < ASH_COUNT(dtypes); d += 4) {
                if (dtypes[d] == ASH_BOOL && which == PRODUCTS) continue;
                net f = make(dtypes[d], (part)which, LONGEST, true);
                int64_t n = 17;
                ash_wide *inputs = inputs_of(&f, &n);
                test_differential_for(context, &targets[t], f.g, NULL, &n, inputs, tolerance(dtypes[d]));
                test_free_inputs(f.g, inputs);
                ash_graph_destroy(f.g);
            }
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_reductions),
        cmocka_unit_test(test_products),
        cmocka_unit_test(test_compiled),
    };
    return cmocka_run_group_tests(tests, setup, tear_down);
}
