/* SPDX-License-Identifier: MIT */
/* Index expressions against plain arithmetic: random expressions are built twice, as ash_ix and as a tree
 * that is computed naively for all values of the symbols; what is claimed of them is checked by trying. */
#include "kernel/index.h"
#include "random.h"
#include "testing.h"

enum { SYMS = 3, NODES = 24, VARS = 2, CASES = 4000 };

typedef enum tree_op { CONST, DIM, SYM, ADD, SUB, SCALE, MUL, DIV, MOD } tree_op;

typedef struct tree {
    tree_op op;
    int a, b;      /* operands: earlier nodes */
    int64_t value; /* CONST, SCALE */
    ash_dim dim;   /* DIM, MUL, DIV, MOD */
    ash_sym sym;
    ash_ix ix;
} tree;

typedef struct fixture {
    ash_dims *dims;
    ash_ixs ixs;
    ash_dim vars[VARS], extents[SYMS];
    ash_sym syms[SYMS];
    tree nodes[NODES];
    int n;
    uint64_t state;
} fixture;

typedef struct point {
    int64_t vars[VARS], syms[SYMS];
} point;

static int64_t pick(fixture *f, int64_t n) {
    return (int64_t)(test_congruent(&f->state) % (uint64_t)n);
}

static ash_dim combine(fixture *f, ash_dim_op op, ash_dim a, ash_dim b) {
    ash_dim out;
    ash_diag diag;
    assert_ok(ash_dims_combine(f->dims, op, a, b, &out, &diag));
    return out;
}

static ash_dim random_dim(fixture *f) {
    static const int64_t numbers[] = {1, 2, 3, 4, 6, 8, 12, 16};
    if (pick(f, 3)) return numbers[pick(f, 8)];
    ash_dim v = f->vars[pick(f, VARS)];
    switch (pick(f, 4)) {
    case 0: return combine(f, ASH_DIM_ADD, v, 1);
    case 1: return combine(f, ASH_DIM_MUL, v, 2 + pick(f, 2));
    default: return v;
    }
}

static void open_fixture(fixture *f, uint64_t seed) {
    ash_diag diag;
    *f = (fixture){.state = seed};
    assert_ok(ash_dims_create(&ash_allocator__libc, &f->dims, &diag));
    assert_ok(ash_dims_add_var(f->dims, "p", 1, 5, &f->vars[0], &diag));
    assert_ok(ash_dims_add_var(f->dims, "q", 0, 4, &f->vars[1], &diag));
    ash_ixs_init(&f->ixs, &ash_allocator__libc, f->dims);
    for (int s = 0; s < SYMS; s++) {
        f->extents[s] = random_dim(f);
        f->syms[s] = ash_ix_new_sym(&f->ixs, f->extents[s]);
    }
}

static void close_fixture(fixture *f) {
    ash_ixs_free(&f->ixs);
    ash_dims_release(f->dims);
}

static void grow(fixture *f) {
    tree *t = &f->nodes[f->n];
    ash_ixs *ixs = &f->ixs;
    *t = (tree){.op = f->n < SYMS ? SYM : (tree_op)pick(f, 9), .dim = 1};
    if (f->n >= SYMS) t->a = (int)pick(f, f->n), t->b = (int)pick(f, f->n);
    ash_ix a = f->nodes[t->a].ix, b = f->nodes[t->b].ix;
    switch (t->op) {
    case CONST: t->ix = ash_ix_const(ixs, t->value = pick(f, 20) - 4); break;
    case DIM: t->ix = ash_ix_dim(ixs, t->dim = random_dim(f)); break;
    case SYM:
        t->sym = (ash_sym)(f->n < SYMS ? f->n : pick(f, SYMS)), t->ix = ash_ix_sym(ixs, f->syms[t->sym]);
        break;
    case ADD: t->ix = ash_ix_add(ixs, a, b); break;
    case SUB: t->ix = ash_ix_sub(ixs, a, b); break;
    case SCALE: t->ix = ash_ix_scale(ixs, a, t->value = pick(f, 18) - 1); break;
    case MUL: t->ix = ash_ix_mul(ixs, a, t->dim = random_dim(f)); break;
    case DIV: t->ix = ash_ix_div(ixs, a, t->dim = random_dim(f)); break;
    case MOD: t->ix = ash_ix_mod(ixs, a, t->dim = random_dim(f)); break;
    }
    f->n++;
}

/* --- two ways to compute -------------------------------------------------------------------------- */

static int64_t floor_div(int64_t a, int64_t b) {
    return a / b - (a % b != 0 && (a < 0) != (b < 0));
}

/* The value of a node; false where the contract says nothing of it. */
static bool naive(const fixture *f, int node, const point *p, int64_t *out) {
    const tree *t = &f->nodes[node];
    int64_t a = 0, b = 0, d = ash_dims_eval(f->dims, t->dim, p->vars);
    if (t->op >= ADD && !naive(f, t->a, p, &a)) return false;
    if ((t->op == ADD || t->op == SUB) && !naive(f, t->b, p, &b)) return false;
    if ((t->op == DIV || t->op == MOD) && (d == 0 || (a < 0 && t->dim < 0))) return false;
    switch (t->op) {
    case CONST: *out = t->value; break;
    case DIM: *out = d; break;
    case SYM: *out = p->syms[t->sym]; break;
    case ADD: *out = a + b; break;
    case SUB: *out = a - b; break;
    case SCALE: *out = a * t->value; break;
    case MUL: *out = a * d; break;
    case DIV: *out = floor_div(a, d); break;
    case MOD: *out = a - floor_div(a, d) * d; break;
    }
    return true;
}

/* What a kernel would compute; divides only what is not negative. */
static int64_t computed(const fixture *f, ash_ix ix, const point *p) {
    ash_sum sum = ash_ix_sum(&f->ixs, ix);
    int64_t total = 0;
    for (uint32_t i = 0; i < sum.n; i++) {
        ash_term t = f->ixs.terms.at[sum.first + i];
        ash_atom atom = f->ixs.atoms.at[t.atom];
        int64_t value = 1;
        if (atom.kind == ASH_ATOM_SYM) {
            for (int s = 0; s < SYMS; s++)
                if (f->syms[s] == atom.ref) value = p->syms[s];
        } else if (atom.kind != ASH_ATOM_ONE) {
            int64_t a = computed(f, atom.ref, p), by = ash_dims_eval(f->dims, atom.by, p->vars);
            assert_true(a >= 0);
            assert_true(by > 0);
            value = atom.kind == ASH_ATOM_DIV ? a / by : a % by;
        }
        total += t.c * ash_dims_eval(f->dims, t.d, p->vars) * value;
    }
    return total;
}

/* --- all values ----------------------------------------------------------------------------------- */

static bool next_point(const fixture *f, point *p) {
    for (int s = 0; s < SYMS; s++) {
        if (++p->syms[s] < ash_dims_eval(f->dims, f->extents[s], p->vars)) return true;
        p->syms[s] = 0;
    }
    for (int v = 0; v < VARS; v++) {
        const ash_var *var = ash_dims_var(f->dims, (size_t)v);
        if ((p->vars[v] += 1 + (var->max - var->min) / 2) <= var->max) return true;
        p->vars[v] = var->min;
    }
    return false;
}

static point first_point(const fixture *f) {
    point p = {0};
    for (int v = 0; v < VARS; v++) p.vars[v] = ash_dims_var(f->dims, (size_t)v)->min;
    return p;
}

/* Whether there is such a point: every symbol below its extent. */
static bool exists(const fixture *f, const point *p) {
    for (int s = 0; s < SYMS; s++)
        if (p->syms[s] >= ash_dims_eval(f->dims, f->extents[s], p->vars)) return false;
    return true;
}

/* The claims on how an expression goes along a symbol, at one point. */
static void check_along(fixture *f, int node, const point *p, int64_t value) {
    ash_ixs *ixs = &f->ixs;
    ash_ix ix = f->nodes[node].ix;
    for (int s = 0; s < SYMS; s++) {
        bool depends = ash_ix_depends(ixs, ix, f->syms[s]), linear = ash_ix_is_linear(ixs, ix, f->syms[s]);
        if (depends) assert_true(ash_ix_syms(ixs, ix) >> (f->syms[s] % 64) & 1);
        for (unsigned lanes = 2; lanes <= 8; lanes *= 2)
            for (int aligned = 0; aligned < 2; aligned++) {
                int64_t stride, other;
                if (aligned && p->syms[s] % lanes) continue;
                if (!ash_ix_lane_stride(ixs, ix, f->syms[s], lanes, aligned, &stride)) continue;
                point q = *p;
                for (unsigned lane = 1; lane < lanes; lane++) {
                    q.syms[s]++;
                    if (!exists(f, &q) || !naive(f, node, &q, &other)) break;
                    assert_int_equal(other, value + stride * lane);
                }
            }
        point q = *p, r = *p;
        int64_t one, two;
        q.syms[s] += 1, r.syms[s] += 2;
        if (!exists(f, &q) || !naive(f, node, &q, &one)) continue;
        if (!depends) assert_int_equal(one, value);
        ash_ix apart;
        if (ash_ix_stride(ixs, ix, f->syms[s], &apart))
            assert_int_equal(one - value, computed(f, apart, p));
        if (!linear || !exists(f, &r) || !naive(f, node, &r, &two)) continue;
        assert_int_equal(two - one, one - value);
    }
}

static void test_random_expressions(void **state) {
    (void)state;
    uint64_t checked = 0, strides = 0;
    for (uint64_t seed = 1; seed <= CASES; seed++) {
        fixture f;
        open_fixture(&f, seed * 977);
        int n = SYMS + 2 + (int)pick(&f, NODES - SYMS - 2);
        while (f.n < n && !f.ixs.failed) grow(&f);
        assert_false(f.ixs.failed && !f.ixs.too_large);
        point p = first_point(&f);
        int points = 0;
        do {
            if (!exists(&f, &p) || points++ > 300) continue;
            for (int node = 0; node < f.n && !f.ixs.failed; node++) {
                int64_t want;
                if (!naive(&f, node, &p, &want)) continue;
                ash_sum sum = ash_ix_sum(&f.ixs, f.nodes[node].ix);
                assert_int_equal(computed(&f, f.nodes[node].ix, &p), want);
                assert_true(sum.min <= want && want <= sum.max);
                checked++;
                if (points % 7 == 1) check_along(&f, node, &p, want), strides++;
            }
        } while (next_point(&f, &p));
        close_fixture(&f);
    }
    print_message("%llu values, %llu claims\n", (unsigned long long)checked, (unsigned long long)strides);
}

/* --- forms that lowering relies on ---------------------------------------------------------------- */

static void test_rejoin(void **state) {
    (void)state;
    fixture f;
    open_fixture(&f, 5);
    ash_ixs *ixs = &f.ixs;
    const ash_dim extents[] = {100, f.vars[0], combine(&f, ASH_DIM_MUL, f.vars[0], 12)};
    const ash_dim divisors[] = {2, 7, 16, f.vars[0]};
    for (size_t e = 0; e < ASH_COUNT(extents); e++)
        for (size_t d = 0; d < ASH_COUNT(divisors); d++) {
            ash_ix x =
                ash_ix_add(ixs, ash_ix_scale(ixs, ash_ix_sym(ixs, ash_ix_new_sym(ixs, extents[e])), 3),
                           ash_ix_const(ixs, 5));
            ash_ix div = ash_ix_div(ixs, x, divisors[d]), mod = ash_ix_mod(ixs, x, divisors[d]);
            assert_int_equal(ash_ix_add(ixs, ash_ix_mul(ixs, div, divisors[d]), mod), x);
            ash_ix scaled = ash_ix_add(ixs, ash_ix_scale(ixs, ash_ix_mul(ixs, div, divisors[d]), 6),
                                       ash_ix_scale(ixs, mod, 6));
            assert_int_equal(scaled, ash_ix_scale(ixs, x, 6));
        }
    close_fixture(&f);
}

static void test_packing_vanishes(void **state) {
    (void)state;
    fixture f;
    open_fixture(&f, 5);
    ash_ixs *ixs = &f.ixs;
    ash_ix i = ash_ix_sym(ixs, ash_ix_new_sym(ixs, f.vars[0])),
           j = ash_ix_sym(ixs, ash_ix_new_sym(ixs, 16));
    ash_ix x = ash_ix_add(ixs, ash_ix_scale(ixs, i, 16), j);
    assert_int_equal(ash_ix_div(ixs, x, 16), i);
    assert_int_equal(ash_ix_mod(ixs, x, 16), j);
    assert_int_equal(ash_ix_div(ixs, ash_ix_mul(ixs, i, f.vars[1]), f.vars[1]), i);
    assert_int_equal(ash_ix_mod(ixs, ash_ix_mod(ixs, x, 48), 16), j);
    assert_int_equal(ash_ix_sub(ixs, x, j), ash_ix_scale(ixs, i, 16));
    /* a line of p * 12 positions as rows of p: the number of a row is below 12 */
    ash_ix all = ash_ix_sym(ixs, ash_ix_new_sym(ixs, combine(&f, ASH_DIM_MUL, f.vars[0], 12)));
    ash_ix row = ash_ix_div(ixs, all, f.vars[0]);
    assert_int_equal(ash_ix_mod(ixs, row, 12), row);
    assert_int_equal(ash_ix_div(ixs, row, 12), ash_ix_const(ixs, 0));
    assert_false(ixs->failed);
    close_fixture(&f);
}

/* [c, h, w] read as [groups, 4 * h * w], and back: what is left are quotients of the channel. */
static void test_groups_cancel(void **state) {
    (void)state;
    fixture f;
    open_fixture(&f, 5);
    ash_ixs *ixs = &f.ixs;
    ash_dim h = combine(&f, ASH_DIM_ADD, f.vars[1], 1), w = f.vars[0],
            image = combine(&f, ASH_DIM_MUL, h, w), group = combine(&f, ASH_DIM_MUL, image, 4);
    ash_ix c = ash_ix_sym(ixs, ash_ix_new_sym(ixs, 32)), row = ash_ix_sym(ixs, ash_ix_new_sym(ixs, h)),
           column = ash_ix_sym(ixs, ash_ix_new_sym(ixs, w)),
           at = ash_ix_sym(ixs, ash_ix_new_sym(ixs, image));
    ash_ix whole = ash_ix_mul(ixs, c, image), lines = ash_ix_add(ixs, ash_ix_mul(ixs, row, w), column);
    const ash_ix positions[] = {at, lines};
    for (size_t i = 0; i < ASH_COUNT(positions); i++) {
        ash_ix x = ash_ix_add(ixs, whole, positions[i]), rest = ash_ix_mod(ixs, x, group);
        assert_int_equal(ash_ix_div(ixs, x, group), ash_ix_div(ixs, c, 4));
        assert_int_equal(ash_ix_div(ixs, rest, image), ash_ix_mod(ixs, c, 4));
        assert_int_equal(ash_ix_mod(ixs, rest, image), positions[i]);
        assert_int_equal(ash_ix_add(ixs, ash_ix_mul(ixs, ash_ix_div(ixs, x, group), group), rest), x);
    }
    /* (x / w) % h and x % w, put together, are x % (h w) */
    ash_ix x = ash_ix_sym(ixs, ash_ix_new_sym(ixs, combine(&f, ASH_DIM_MUL, group, 8)));
    ash_ix high = ash_ix_mod(ixs, ash_ix_div(ixs, x, w), h), low = ash_ix_mod(ixs, x, w);
    assert_int_equal(ash_ix_add(ixs, ash_ix_mul(ixs, high, w), low), ash_ix_mod(ixs, x, image));
    /* the same of numbers */
    ash_ix y = ash_ix_add(ixs, ash_ix_scale(ixs, c, 12), ash_ix_sym(ixs, ash_ix_new_sym(ixs, 12)));
    assert_int_equal(ash_ix_div(ixs, y, 48), ash_ix_div(ixs, c, 4));
    assert_false(ixs->failed);
    close_fixture(&f);
}

/* The same by dims that are 0 for some values of the variables, as halves of an image are. */
static void test_groups_cancel_where_they_may_be_empty(void **state) {
    (void)state;
    fixture f;
    open_fixture(&f, 5);
    ash_ixs *ixs = &f.ixs;
    ash_dim h = combine(&f, ASH_DIM_DIV, f.vars[0], 2), w = f.vars[1],
            image = combine(&f, ASH_DIM_MUL, h, w);
    ash_ix c = ash_ix_sym(ixs, ash_ix_new_sym(ixs, 32)), row = ash_ix_sym(ixs, ash_ix_new_sym(ixs, h)),
           column = ash_ix_sym(ixs, ash_ix_new_sym(ixs, w));
    ash_ix lines = ash_ix_add(ixs, ash_ix_mul(ixs, c, h), row),
           x = ash_ix_add(ixs, ash_ix_mul(ixs, lines, w), column);
    assert_int_equal(ash_ix_div(ixs, x, w), lines);
    assert_int_equal(ash_ix_mod(ixs, x, w), column);
    assert_int_equal(ash_ix_mod(ixs, lines, h), row);
    assert_int_equal(ash_ix_div(ixs, x, image), c);
    assert_int_equal(ash_ix_mod(ixs, x, image), ash_ix_add(ixs, ash_ix_mul(ixs, row, w), column));
    assert_false(ixs->failed);
    close_fixture(&f);
}

static void test_too_large(void **state) {
    (void)state;
    fixture f;
    open_fixture(&f, 5);
    ash_ix x = ash_ix_sym(&f.ixs, ash_ix_new_sym(&f.ixs, INT64_MAX / 2));
    ash_ix_scale(&f.ixs, ash_ix_scale(&f.ixs, x, INT64_MAX / 2), 5);
    assert_true(f.ixs.failed && f.ixs.too_large);
    assert_int_equal(ash_ix_sum(&f.ixs, ash_ix_add(&f.ixs, x, x)).n, 0);
    close_fixture(&f);
}

/* A loaded number is a neighbour of nothing along the symbols that its address depends on. */
static void test_loaded(void **state) {
    (void)state;
    fixture f;
    open_fixture(&f, 5);
    ash_ixs *ixs = &f.ixs;
    int64_t stride;
    ash_sym s = ash_ix_new_sym(ixs, 64), other = ash_ix_new_sym(ixs, 64);
    ash_ix at = ash_ix_sym(ixs, s), loaded = ash_ix_loaded(ixs, 7, 63, ash_ix_syms(ixs, at));
    ash_ix x = ash_ix_add(ixs, ash_ix_scale(ixs, loaded, 16), at);
    assert_false(ash_ix_lane_stride(ixs, x, s, 8, true, &stride));
    assert_true(
        ash_ix_lane_stride(ixs, ash_ix_add(ixs, x, ash_ix_sym(ixs, other)), other, 8, true, &stride));
    assert_int_equal(stride, 1);
    assert_true(ash_ix_depends(ixs, loaded, s));
    close_fixture(&f);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_random_expressions),
                                       cmocka_unit_test(test_rejoin),
                                       cmocka_unit_test(test_packing_vanishes),
                                       cmocka_unit_test(test_groups_cancel),
                                       cmocka_unit_test(test_groups_cancel_where_they_may_be_empty),
                                       cmocka_unit_test(test_too_large),
                                       cmocka_unit_test(test_loaded)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
