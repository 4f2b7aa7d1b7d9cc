/* SPDX-License-Identifier: MIT */
/* Dim expressions: canonical form, simplification, bounds, text. */
#include "ir_fixture.h"

#include "base/text.h"

enum { VARS = 3, NODES = 9, SAMPLES = 24 };

typedef struct pool {
    ash_dims *dims;
    ash_dim var[VARS];
    int64_t min[VARS], max[VARS];
} pool;

static const char *const var_names[VARS] = {"a", "b", "odd name\"\\\n"};

static pool make_pool(int64_t max) {
    ash_diag diag;
    pool p = {.min = {0, 1, 2}, .max = {max, max, max}};
    assert_ok(ash_dims_create(&ash_allocator__libc, &p.dims, &diag));
    for (int i = 0; i < VARS; i++)
        assert_ok(ash_dims_add_var(p.dims, var_names[i], p.min[i], p.max[i], &p.var[i], &diag));
    return p;
}

/* A random expression: node i combines two earlier ones; the first are the variables and small numbers. */
typedef struct tree {
    struct {
        ash_dim_op op;
        int a, b; /* earlier nodes, or leaves when negative: -1 - variable, or -10 - number */
    } node[NODES];
    int n;
} tree;

static int random_leaf(uint64_t *seed) {
    uint64_t r = next_random(seed);
    return r % 3 ? -1 - (int)(r / 3 % VARS) : -10 - (int)(r / 3 % 7);
}

static tree random_tree(uint64_t *seed, int ops) {
    tree t = {.n = 1 + (int)(next_random(seed) % NODES)};
    for (int i = 0; i < t.n; i++) {
        t.node[i].op = (ash_dim_op)(next_random(seed) % (unsigned)ops);
        t.node[i].a =
            i && next_random(seed) % 4 ? (int)(next_random(seed) % (unsigned)i) : random_leaf(seed);
        t.node[i].b =
            i && next_random(seed) % 3 == 0 ? (int)(next_random(seed) % (unsigned)i) : random_leaf(seed);
    }
    return t;
}

static ash_dim leaf_dim(const pool *p, const ash_dim *done, int i) {
    return i >= 0 ? done[i] : i > -10 ? p->var[-1 - i] : -10 - i;
}

static ash_status build(const pool *p, const tree *t, ash_dim *out) {
    ash_dim done[NODES];
    for (int i = 0; i < t->n; i++) {
        ash_diag diag;
        ash_status status = ash_dims_combine(p->dims, t->node[i].op, leaf_dim(p, done, t->node[i].a),
                                             leaf_dim(p, done, t->node[i].b), &done[i], &diag);
        if (status != ASH_OK) {
            assert_int_equal(status, ASH_ERROR_OUT_OF_RANGE);
            return status;
        }
    }
    *out = done[t->n - 1];
    return ASH_OK;
}

static int64_t leaf_value(const int64_t *vars, const int64_t *done, int i) {
    return i >= 0 ? done[i] : i > -10 ? vars[-1 - i] : -10 - i;
}

static int64_t evaluate(const tree *t, const int64_t *vars) {
    int64_t done[NODES];
    for (int i = 0; i < t->n; i++) {
        int64_t a = leaf_value(vars, done, t->node[i].a), b = leaf_value(vars, done, t->node[i].b);
        switch (t->node[i].op) {
        case ASH_DIM_ADD: done[i] = (int64_t)((uint64_t)a + (uint64_t)b); break;
        case ASH_DIM_SUB: done[i] = (int64_t)((uint64_t)a - (uint64_t)b); break;
        case ASH_DIM_MUL: done[i] = (int64_t)((uint64_t)a * (uint64_t)b); break;
        case ASH_DIM_DIV: done[i] = a / b - (a % b < 0); break;
        case ASH_DIM_MIN: done[i] = ASH_MIN(a, b); break;
        case ASH_DIM_MAX: done[i] = ASH_MAX(a, b); break;
        }
    }
    return done[t->n - 1];
}

static void sample(const pool *p, uint64_t *seed, int64_t *vars) {
    for (int i = 0; i < VARS; i++)
        vars[i] = p->min[i] + (int64_t)(next_random(seed) % (uint64_t)(p->max[i] - p->min[i] + 1));
}

static void evaluation_agrees(void **state) {
    (void)state;
    uint64_t seed = 1;
    long built = 0;
    for (int round = 0; round < 200; round++) {
        pool p = make_pool(round % 2 ? 12 : 1000);
        for (int i = 0; i < 100; i++) {
            tree t = random_tree(&seed, 6);
            ash_dim dim;
            if (build(&p, &t, &dim) != ASH_OK) continue;
            built++;
            int64_t min, max, vars[VARS];
            ash_dims_bounds(p.dims, dim, &min, &max);
            for (int k = 0; k < SAMPLES; k++) {
                sample(&p, &seed, vars);
                int64_t value = evaluate(&t, vars);
                assert_int_equal(ash_dims_eval(p.dims, dim, vars), value);
                assert_true(min <= value && value <= max);
            }
        }
        ash_dims_release(p.dims);
    }
    assert_true(built > 10000);
}

static void polynomials_are_equal_exactly_when_their_dims_are(void **state) {
    (void)state;
    uint64_t seed = 2;
    long equal = 0, same_text = 0;
    for (int round = 0; round < 40; round++) {
        enum { TREES = 80 };
        pool p = make_pool(1000);
        tree trees[TREES];
        ash_dim dims[TREES];
        int n = 0;
        while (n < TREES) {
            trees[n] = random_tree(&seed, 3);
            if (trees[n].n <= 5 && build(&p, &trees[n], &dims[n]) == ASH_OK) n++;
        }
        int64_t vars[SAMPLES][VARS];
        for (int k = 0; k < SAMPLES; k++) sample(&p, &seed, vars[k]);
        for (int i = 0; i < n; i++) {
            for (int j = 0; j < i; j++) {
                bool same = true;
                for (int k = 0; k < SAMPLES; k++)
                    same = same && evaluate(&trees[i], vars[k]) == evaluate(&trees[j], vars[k]);
                assert_int_equal(same, dims[i] == dims[j]);
                equal += same;
                same_text += same && memcmp(&trees[i], &trees[j], sizeof trees[i]) != 0;
            }
        }
        ash_dims_release(p.dims);
    }
    assert_true(equal > 1000 && same_text > 100);
}

static ash_dim parse_all(ash_dims *dims, const char *text) {
    ash_diag diag;
    ash_dim dim = 0;
    size_t pos = 0;
    assert_ok(ash_dims_parse(dims, text, strlen(text), &pos, &dim, &diag));
    assert_int_equal(pos, strlen(text));
    return dim;
}

static void text_comes_back(void **state) {
    (void)state;
    uint64_t seed = 3;
    for (int round = 0; round < 100; round++) {
        pool p = make_pool(50), q = make_pool(50);
        for (int i = 0; i < 60; i++) {
            tree t = random_tree(&seed, 6);
            ash_dim dim;
            if (build(&p, &t, &dim) != ASH_OK) continue;
            ash_text text, again;
            ash_text_init(&text, &ash_allocator__libc);
            ash_text_init(&again, &ash_allocator__libc);
            ash_dims_print(p.dims, dim, &text);
            assert_int_equal(parse_all(p.dims, text.at), dim);
            ash_dims_print(q.dims, parse_all(q.dims, text.at), &again);
            assert_string_equal(again.at, text.at);
            ash_text_free(&text);
            ash_text_free(&again);
        }
        ash_dims_release(p.dims);
        ash_dims_release(q.dims);
    }
}

/* What an expression is simplified to, as texts; variables: a from 0, b from 1, n from 8, to 1000. */
static const char *const simplifications[][2] = {
    {"(a + b - a)", "b"},
    {"((a + 1)*(a - 1))", "(a*a - 1)"},
    {"(3 - 5)", "(-2)"},
    {"div((6*a), 3)", "(2*a)"},
    {"div((6*a + 5), 3)", "(2*a + 1)"},
    {"div((6*a + 4), 4)", "(a + div(a, 2) + 1)"},
    {"div((a*b), b)", "a"},
    {"div((a*a*b*4), (2*a*b))", NULL}, /* the divisor can be 0 */
    {"div((b*b*n*4), (2*b*n))", "(2*b)"},
    {"div((768*b*n + 768*b), (12*n + 12))", "(64*b)"},
    {"div((b*n - b), (n - 1))", "b"},
    {"div(div(a, 2), 3)", "div(a, 6)"},
    {"div((div((a + 1), 2) + 1), 2)", "div((a + 3), 4)"},
    {"div(7, 2)", "3"},
    {"div(b, 0)", NULL},
    {"min(a, a)", "a"},
    {"min(b, (b + 1))", "b"},
    {"max((n - 3), 0)", "(n - 3)"},
    {"max((a - 3), 0)", "max(0, (a - 3))"},
    {"max((n - min(n, 10)), 0)", "(n - min(10, n))"},
    {"min((n - div(n, 3)), n)", "(n - div(n, 3))"},
    {"(n - div(n, 2))", "div((n + 1), 2)"},
    {"div((2*n - 2*div(n, 2) + 1), 2)", "div((n + 1), 2)"},
    {"(div(n, 4) - div(n, 8))", "div((n + 4), 8)"},
    {"(div(n, 4) - div((n + 4), 8) + 7)", "(div(n, 8) + 7)"},
    {"(3*n - 2*div(n, 2))", "(n + 2*div((n + 1), 2))"},
    {"(div(n, 2) + a + div((n + 1), 2))", "(a + n)"},
    {"div((1 - n), 2)", "(-div(n, 2))"},
    {"div((7 - 5*n - a), 3)", "(-n - div((a + 2*n + 1), 3) + 2)"},
    {"(a - 2*div(n, 2) - 3*div((n + 1), 2))", "(a - 2*n - div((n + 1), 2))"},
    {"max((n + 1 - 2*div((n + 1), 2)), 0)", "(n - 2*div((n + 1), 2) + 1)"},
    {"min(max(a, b), a)", "a"},
    {"max(2000, n)", "2000"},
    {"(a*a*a*a*a*a*a)", NULL}, /* 1000^7 exceeds 64 bits */
    {"(9223372036854775807 + b)", NULL},
    {"(0 - 9223372036854775807 - 1 - b)", NULL},
    /* the other half, div((s + 4), 4), is a number, and no partner */
    {"(s - 4*div((s + 2), 4))", "(s - 4*div((s + 2), 4))"},
    {"(4*div((s + 2), 4) - s)", "(-s + 4*div((s + 2), 4))"},
    /* what is cut again needs no bound between */
    {"max(0, (max(0, (a - 2)) - 2))", "max(0, (a - 4))"},
    {"max(0, (max(0, (max(2, a) - 5)) - b))", "max(0, (a - b - 5))"},
    {"max(2, (max(1, a) + 1))", "max(2, (a + 1))"},
    {"max(1, (max(1, a) + 1))", "(max(1, a) + 1)"},
    {"max(0, (2*max(0, (a - 2)) - 2))", "max(0, (2*max(0, (a - 2)) - 2))"},
    {"max(3, (max(1, a) + div(b, 2)))", "max(3, (div(b, 2) + max(1, a)))"},
    {"min(9, (min(12, a) + 3))", "min(9, (a + 3))"},
    {"min(9, (min(5, a) + 3))", "(min(5, a) + 3)"},
    {"min(9, (min(5, a) + 5))", "min(9, (a + 5))"},
    {"min(9, (min(5, a) + b))", "min(9, (b + min(5, a)))"},
};

static void simplifies(void **state) {
    (void)state;
    ash_diag diag;
    ash_dims *dims;
    ash_dim var;
    assert_ok(ash_dims_create(&ash_allocator__libc, &dims, &diag));
    assert_ok(ash_dims_add_var(dims, "a", 0, 1000, &var, &diag));
    assert_ok(ash_dims_add_var(dims, "b", 1, 1000, &var, &diag));
    assert_ok(ash_dims_add_var(dims, "n", 8, 1000, &var, &diag));
    assert_ok(ash_dims_add_var(dims, "s", 4, 6, &var, &diag));
    for (size_t i = 0; i < ASH_COUNT(simplifications); i++) {
        const char *in = simplifications[i][0], *expected = simplifications[i][1];
        if (!expected) {
            size_t pos = 0;
            ash_status status = ash_dims_parse(dims, in, strlen(in), &pos, &var, &diag);
            assert_true(status == ASH_ERROR_OUT_OF_RANGE || status == ASH_ERROR_FORMAT);
            assert_int_not_equal(diag.file_offset, ASH_NO_OFFSET);
            continue;
        }
        ash_text text;
        ash_text_init(&text, &ash_allocator__libc);
        ash_dims_print(dims, parse_all(dims, in), &text);
        assert_string_equal(text.at, expected);
        ash_text_free(&text);
    }
    ash_dims_release(dims);
}

/* A dim, one that may divide it, and the quotient; the same variables. */
static const char *const quotients[][3] = {
    {"(a*a*b*4)", "(2*a*b)", "(2*a)"},
    {"(a*b + 3*a)", "a", "(b + 3)"},
    {"(3*a)", "3", "a"},
    {"(div(b, 2)*a)", "div(b, 2)", "a"},
    {"0", "a", "0"},
    {"(a*b + 1)", "a", NULL},
    {"(3*a)", "2", NULL},
    {"b", "a", NULL},
    {"b", "0", NULL},
};

static void exact_quotients_where_the_divisor_may_be_0(void **state) {
    (void)state;
    ash_diag diag;
    ash_dims *dims;
    ash_dim var, quotient;
    assert_ok(ash_dims_create(&ash_allocator__libc, &dims, &diag));
    assert_ok(ash_dims_add_var(dims, "a", 0, 1000, &var, &diag));
    assert_ok(ash_dims_add_var(dims, "b", 1, 1000, &var, &diag));
    for (size_t i = 0; i < ASH_COUNT(quotients); i++) {
        const char *expected = quotients[i][2];
        bool divides = ash_dims_divides(dims, parse_all(dims, quotients[i][0]),
                                        parse_all(dims, quotients[i][1]), &quotient);
        assert_int_equal(divides, expected != NULL);
        if (expected) assert_int_equal(quotient, parse_all(dims, expected));
    }
    ash_dims_release(dims);
}

static void numbers_never_touch_the_pool(void **state) {
    (void)state;
    ash_diag diag;
    test_memory memory = {0};
    ash_allocator a = test_memory_allocator(&memory);
    ash_dims *dims;
    ash_dim out;
    assert_ok(ash_dims_create(&a, &dims, &diag));
    long count = memory.count;
    static const struct {
        ash_dim_op op;
        ash_dim a, b, result;
    } cases[] = {{ASH_DIM_ADD, 2, 3, 5}, {ASH_DIM_SUB, 3, 3, 0}, {ASH_DIM_MUL, 4, 5, 20},
                 {ASH_DIM_DIV, 9, 2, 4}, {ASH_DIM_MIN, 9, 2, 2}, {ASH_DIM_MAX, 9, 2, 9}};
    for (size_t i = 0; i < ASH_COUNT(cases); i++) {
        assert_ok(ash_dims_combine(dims, cases[i].op, cases[i].a, cases[i].b, &out, &diag));
        assert_int_equal(out, cases[i].result);
    }
    assert_int_equal(memory.count, count);
    assert_status(ash_dims_combine(dims, ASH_DIM_ADD, INT64_MAX, 1, &out, &diag), ASH_ERROR_OUT_OF_RANGE);
    assert_status(ash_dims_combine(dims, ASH_DIM_MUL, INT64_MAX, 2, &out, &diag), ASH_ERROR_OUT_OF_RANGE);
    assert_status(ash_dims_combine(dims, ASH_DIM_DIV, 1, 0, &out, &diag), ASH_ERROR_OUT_OF_RANGE);
    assert_status(ash_dims_combine(dims, ASH_DIM_ADD, 1, -7, &out, &diag), ASH_ERROR_INVALID_ARGUMENT);
    ash_dims_release(dims);
    assert_int_equal(memory.live, 0);
}

static void variables_keep_their_bounds(void **state) {
    (void)state;
    ash_diag diag;
    pool p = make_pool(10);
    ash_dim again;
    assert_ok(ash_dims_add_var(p.dims, "a", 0, 10, &again, &diag));
    assert_int_equal(again, p.var[0]);
    assert_status(ash_dims_add_var(p.dims, "a", 1, 10, &again, &diag), ASH_ERROR_INVALID_ARGUMENT);
    assert_status(ash_dims_add_var(p.dims, "c", 5, 4, &again, &diag), ASH_ERROR_INVALID_ARGUMENT);
    assert_status(ash_dims_add_var(p.dims, "c", -1, 4, &again, &diag), ASH_ERROR_INVALID_ARGUMENT);
    assert_status(ash_dims_add_var(p.dims, "", 0, 4, &again, &diag), ASH_ERROR_INVALID_ARGUMENT);
    assert_int_equal(ash_dims_var_count(p.dims), VARS);
    ash_dims_release(p.dims);
}

/* A maximum that is shown to be one of the two is at least the other, which its own terms do not say. */
static void orders_that_are_shown_are_bounds(void **state) {
    (void)state;
    ash_diag diag;
    pool p = make_pool(100);
    int64_t min, max;
    ash_dim kept = parse_all(p.dims, "(b - min(1, (b - 1)))"), larger, quotient; /* b is 1 at least */
    ash_dims_bounds(p.dims, kept, &min, &max);
    assert_int_equal(min, 0);
    assert_status(ash_dims_combine(p.dims, ASH_DIM_DIV, 1000, kept, &quotient, &diag),
                  ASH_ERROR_OUT_OF_RANGE);
    assert_ok(ash_dims_combine(p.dims, ASH_DIM_MAX, kept, 1, &larger, &diag));
    assert_int_equal(larger, kept);
    ash_dims_bounds(p.dims, kept, &min, &max);
    assert_int_equal(min, 1);
    assert_ok(ash_dims_combine(p.dims, ASH_DIM_DIV, 1000, larger, &quotient, &diag));
    ash_dims_release(p.dims);
}

/* What quotients have in common with the rest of an expression. */
static void quotients_narrow_bounds(void **state) {
    (void)state;
    static const struct {
        const char *text;
        int64_t min, max;
    } rows[] = {{"(2*div((b + 1), 2) - b)", 0, 1},
                {"(b - 3*div(b, 3))", 0, 2},
                {"(4*div((b + 3), 4) + 3 - b)", 3, 6},
                {"(2*div((b + 1), 2) - b + div((2*a - 2*div((a + 1), 2)), 2))", 0, 51},
                {"(div((b + 1), 2) + div((1 - b), 2))", 0, 1},
                {"(div((b + 1), 2) + 1 - b - div((1 - b), 2))", 1, 1},
                {"(div(b, 2) + a)", 0, 150},
                {"(2*div((b + 31), 32) - div((b + 15), 16))", 0, 1},
                {"(8*div((b + 31), 32) - 4*div((b + 15), 16) + 1)", 1, 5},
                {"(6*div(b, 4) - 3*div(b, 2) - 1)", -4, -1},
                {"(a*b - a + b - 1)", 0, 101 * 99}};
    pool p = make_pool(100);
    for (size_t i = 0; i < ASH_COUNT(rows); i++) {
        int64_t min, max;
        ash_dims_bounds(p.dims, parse_all(p.dims, rows[i].text), &min, &max);
        if (min != rows[i].min || max != rows[i].max)
            fail_msg("%s: %lld to %lld", rows[i].text, (long long)min, (long long)max);
    }
    ash_dims_release(p.dims);
}

/* Conditions: dims that must have one value. */
static void dims_must_be_equal(void **state) {
    (void)state;
    ash_diag diag;
    pool p = make_pool(100);
    ash_dim even = parse_all(p.dims, "(2*div((b + 1), 2))"), more = parse_all(p.dims, "(a + 1)");
    assert_true(ash_dims_may_equal(p.dims, even, p.var[1]));
    assert_false(ash_dims_may_equal(p.dims, more, p.var[0]));
    assert_ok(ash_dims_require(p.dims, even, p.var[1], &diag));
    assert_ok(ash_dims_require(p.dims, p.var[1], even, &diag));
    assert_ok(ash_dims_require(p.dims, more, more, &diag));
    assert_int_equal(ash_dims_equality_count(p.dims), 1);
    assert_ok(ash_dims_check(p.dims, (int64_t[]){3, 8, 5}, &diag));
    assert_status(ash_dims_check(p.dims, (int64_t[]){3, 7, 5}, &diag), ASH_ERROR_SHAPE);
    assert_non_null(strstr(diag.message, "8"));
    assert_non_null(strstr(diag.message, "b = 7"));
    ash_dims_release(p.dims);
}

/* What is not known to be enough is, on a condition; what cannot be, stays as it is. */
static void dims_must_be_enough(void **state) {
    (void)state;
    ash_diag diag;
    int64_t min, max;
    pool p = make_pool(10);
    ash_dim area, least;
    assert_ok(ash_dims_combine(p.dims, ASH_DIM_MUL, p.var[1], p.var[2], &area, &diag));
    assert_ok(ash_dims_require_least(p.dims, area, 2, &diag)); /* which it is */
    assert_ok(ash_dims_require_least(p.dims, area, 101, &diag));
    assert_int_equal(ash_dims_equality_count(p.dims), 0);
    assert_ok(ash_dims_require_least(p.dims, area, 12, &diag));
    assert_ok(ash_dims_require_least(p.dims, area, 12, &diag));
    assert_int_equal(ash_dims_equality_count(p.dims), 1);
    ash_dims_bounds(p.dims, area, &min, &max);
    assert_int_equal(min, 12);
    assert_int_equal(max, 100);
    assert_ok(ash_dims_combine(p.dims, ASH_DIM_MIN, area, 9, &least, &diag));
    assert_int_equal(least, 9);
    assert_ok(ash_dims_combine(p.dims, ASH_DIM_MAX, 12, area, &least, &diag));
    assert_int_equal(least, area);
    assert_ok(ash_dims_check(p.dims, (int64_t[]){0, 3, 4}, &diag));
    assert_status(ash_dims_check(p.dims, (int64_t[]){0, 3, 3}, &diag), ASH_ERROR_SHAPE);
    assert_non_null(strstr(diag.message, "12 and 9"));
    ash_dims_release(p.dims);
    p = make_pool(10); /* the same as a graph's text says it */
    assert_ok(ash_dims_combine(p.dims, ASH_DIM_MUL, p.var[1], p.var[2], &area, &diag));
    assert_ok(ash_dims_combine(p.dims, ASH_DIM_MIN, area, 12, &least, &diag));
    assert_ok(ash_dims_require(p.dims, 12, least, &diag));
    ash_dims_bounds(p.dims, area, &min, &max);
    assert_int_equal(min, 12);
    ash_dims_release(p.dims);
}

/* The terms, evaluated as a code generator would. */
static int64_t evaluate_terms(const pool *p, ash_dim dim, const int64_t *vars) {
    int64_t sum = 0;
    for (size_t t = 0; t < ash_dims_term_count(p->dims, dim); t++) {
        size_t atoms;
        int64_t product = ash_dims_term(p->dims, dim, t, &atoms);
        for (size_t i = 0; i < atoms; i++) {
            ash_dim_atom atom = ash_dims_atom(p->dims, dim, t, i);
            if (atom.is_var) {
                product *= vars[atom.var];
                continue;
            }
            int64_t a = evaluate_terms(p, atom.a, vars), b = evaluate_terms(p, atom.b, vars);
            product *= atom.op == ASH_DIM_DIV   ? a / b - (a % b < 0)
                       : atom.op == ASH_DIM_MIN ? ASH_MIN(a, b)
                                                : ASH_MAX(a, b);
        }
        sum += product;
    }
    return sum;
}

static void terms_spell_the_expression_out(void **state) {
    (void)state;
    uint64_t seed = 4;
    pool p = make_pool(9);
    for (int i = 0; i < 2000; i++) {
        tree t = random_tree(&seed, 6);
        ash_dim dim;
        int64_t vars[VARS];
        if (build(&p, &t, &dim) != ASH_OK) continue;
        sample(&p, &seed, vars);
        assert_int_equal(evaluate_terms(&p, dim, vars), evaluate(&t, vars));
    }
    ash_dims_release(p.dims);
}

/* Which of two products is never more than the other, where each factor of it is one's of the other. */
static void products_are_ordered_by_their_factors(void **state) {
    (void)state;
    static const struct {
        const char *small, *large;
        bool shown;
    } rows[] = {{"(div((a + 1), 2)*div((b + 1), 2))", "(4*div((a + 3), 4)*div((b + 3), 4))", true},
                {"(div((a + 1), 2)*div((b + 1), 2))", "(8*div((b + 3), 4)*div((a + 7), 8))", true},
                {"(3*div((a + 1), 2)*div((b + 1), 2))", "(12*div((a + 3), 4)*div((b + 3), 4))", true},
                {"(div((a + 1), 2)*div((b + 1), 2))", "(2*div((a + 3), 4)*div((b + 3), 4))", false},
                {"(div((a + 1), 2)*div((b + 1), 2))", "(4*div((a + 3), 4)*div((a + 3), 4))", false},
                {"(div((a + 1), 2)*div((b + 1), 2))", "(4*div((a + 3), 4)*div(b, 4))", false}};
    uint64_t seed = 7;
    for (size_t i = 0; i < 2 * ASH_COUNT(rows); i++) {
        pool p = make_pool(40);
        ash_dim small = parse_all(p.dims, rows[i / 2].small), large = parse_all(p.dims, rows[i / 2].large),
                least, more;
        int64_t min, max, vars[VARS];
        ash_diag diag;
        assert_ok(ash_dims_combine(p.dims, ASH_DIM_MIN, i % 2 ? small : large, i % 2 ? large : small,
                                   &least, &diag));
        assert_int_equal(least == small, rows[i / 2].shown);
        assert_int_not_equal(least, large);
        assert_ok(ash_dims_combine(p.dims, ASH_DIM_SUB, large, small, &more, &diag));
        ash_dims_bounds(p.dims, more, &min, &max);
        assert_int_equal(min >= 0, rows[i / 2].shown);
        for (int k = 0; k < 500; k++) {
            sample(&p, &seed, vars);
            assert_true(evaluate_terms(&p, more, vars) >= min);
        }
        ash_dims_release(p.dims);
    }
}

static void hostile_texts_are_refused(void **state) {
    (void)state;
    ash_diag diag;
    pool p = make_pool(1000);
    static const char *const texts[] = {
        "",        "(",        ")",    "a b", "(a",  "(a +",    "div(a)",
        "div(a,)", "min(a, b", "q",    "\"",  "\"a", "\"\\q\"", "99999999999999999999",
        "-1",      "(a**b)",   "(*a)", "()"};
    for (size_t i = 0; i < ASH_COUNT(texts); i++) {
        ash_dim dim;
        size_t pos = 0;
        ash_status status = ash_dims_parse(p.dims, texts[i], strlen(texts[i]), &pos, &dim, &diag);
        if (status == ASH_OK) { /* what follows a dim is not its matter */
            assert_true(pos < strlen(texts[i]));
            continue;
        }
        assert_int_equal(status, ASH_ERROR_FORMAT);
        assert_true(diag.file_offset <= strlen(texts[i]));
    }
    enum { DEEP = 100000 };
    char *deep = malloc(DEEP);
    memset(deep, '(', DEEP);
    ash_dim dim;
    size_t pos = 0;
    assert_status(ash_dims_parse(p.dims, deep, DEEP, &pos, &dim, &diag), ASH_ERROR_FORMAT);
    for (size_t i = 0; i + 4 <= DEEP; i += 4) memcpy(deep + i, "min(", 4);
    assert_status(ash_dims_parse(p.dims, deep, DEEP, &pos, &dim, &diag), ASH_ERROR_FORMAT);
    free(deep);
    ash_dims_release(p.dims);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(evaluation_agrees),
        cmocka_unit_test(polynomials_are_equal_exactly_when_their_dims_are),
        cmocka_unit_test(text_comes_back),
        cmocka_unit_test(simplifies),
        cmocka_unit_test(exact_quotients_where_the_divisor_may_be_0),
        cmocka_unit_test(numbers_never_touch_the_pool),
        cmocka_unit_test(variables_keep_their_bounds),
        cmocka_unit_test(orders_that_are_shown_are_bounds),
        cmocka_unit_test(quotients_narrow_bounds),
        cmocka_unit_test(dims_must_be_equal),
        cmocka_unit_test(dims_must_be_enough),
        cmocka_unit_test(terms_spell_the_expression_out),
        cmocka_unit_test(products_are_ordered_by_their_factors),
        cmocka_unit_test(hostile_texts_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
