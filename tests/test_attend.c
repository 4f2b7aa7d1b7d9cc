/* SPDX-License-Identifier: MIT */
/* Attention whose weights are not stored: which graphs become it, and what they compute, against the same
 * graph in double precision. Lengths are those around blocks of keys, tiles and vectors, 0 and 1, numbers
 * and variables; masks hide some keys, or all of a row. */
#include "differential.h"
#include "interpreted.h"
#include "ir/build.h"
#include "opt_testing.h"

enum { KEYS = 16 /* of a block, or nearly */, MOST = 48 /* of a length that is a variable */ };

typedef enum mask {
    NONE,
    PADDING,   /* added, for each key of a sequence */
    CAUSAL,    /* of positions: -inf where a query comes before a key */
    WINDOW,    /* the same, and a key may not be far behind */
    BIAS,      /* added, for each row and key, the same for all heads */
    HEAD_BIAS, /* added, for each head, row and key */
    SOFTCAP,   /* a tanh of the scores */
    SOME_ROWS, /* every third row sees nothing */
    NO_KEYS,   /* nobody sees anything */
    MASKS
} mask;

typedef struct attention {
    ash_dim batch, heads, shared; /* shared: heads of keys and values */
    ash_dim rows, keys, size, columns;
    mask mask;
    bool empty;  /* rows that see nothing are zeros */
    bool merged; /* heads are put side by side behind it */
    bool turned; /* the queries are a result as well, their terms along columns */
} attention;

static ash_value heads_of(fixture *f, const char *name, const attention *a, ash_dim heads, ash_dim length,
                          ash_dim size) {
    ash_graph *g = f->g;
    ash_value x = INPUT(f, name, ASH_F32, a->batch, length, heads * size);
    const ash_dim apart[] = {a->batch, length, heads, size}, all[] = {a->batch, a->heads, length, size};
    x = ash_build__swap(g, ash_reshape(g, x, apart, 4), 1, 2);
    if (heads == a->heads) return x;
    const ash_dim wide[] = {a->batch, heads, a->heads / heads, length, size};
    return ash_reshape(g, ash_broadcast_to(g, ash_build__insert_axis(g, x, 2), wide, 5), all, 4);
}

static ash_value positions(ash_graph *g, const attention *a, unsigned axis) {
    const ash_dim dims[] = {a->rows, a->keys};
    return ash_iota(g, ASH_I64, dims, 2, axis);
}

static ash_value masked(fixture *f, const attention *a, ash_value s) {
    ash_graph *g = f->g;
    ash_value row = positions(g, a, 0), key = positions(g, a, 1), seen = ASH_NO_VALUE;
    ash_value hidden = ash_scalar(g, ASH_F32, -INFINITY);
    switch (a->mask) {
    case PADDING: return ash_add(g, s, INPUT(f, "padding", ASH_F32, a->batch, 1, 1, a->keys));
    case BIAS: return ash_add(g, s, INPUT(f, "bias", ASH_F32, 1, 1, a->rows, a->keys));
    case HEAD_BIAS: return ash_add(g, s, INPUT(f, "bias", ASH_F32, 1, a->heads, a->rows, a->keys));
    case SOFTCAP: return ash_build__with(g, ASH_OP_MUL, ash_tanh(g, s), 3);
    case CAUSAL: seen = ash_le(g, key, row); break;
    case WINDOW:
        seen = ash_and(g, ash_le(g, key, row), ash_lt(g, row, ash_build__with(g, ASH_OP_ADD, key, 5)));
        break;
    case SOME_ROWS:
        seen = ash_lt(g, ash_scalar(g, ASH_I64, 0), ash_build__with(g, ASH_OP_MOD, row, 3));
        break;
    case NO_KEYS: seen = ash_lt(g, key, ash_scalar(g, ASH_I64, 0)); break;
    default: return s;
    }
    return ash_select(g, seen, s, hidden);
}

static ash_value weights(ash_graph *g, ash_value s, bool empty) {
    ash_value most = ash_build__reduce(g, ASH_OP_REDUCE_MAX, s, 1u << 3, true), none = ASH_NO_VALUE;
    if (empty) {
        none = ash_build__with(g, ASH_OP_EQ, most, -INFINITY);
        most = ash_select(g, none, ash_scalar(g, ASH_F32, 0), most);
    }
    ash_value e = ash_exp(g, ash_sub(g, s, most));
    ash_value sum = ash_build__reduce(g, ASH_OP_REDUCE_SUM, e, 1u << 3, true);
    if (empty) sum = ash_select(g, none, ash_scalar(g, ASH_F32, 1), sum);
    return ash_div(g, e, sum);
}

/* The result is bound to be no output of the kernel alone: something follows it. */
static ash_value build(fixture *f, const attention *a) {
    ash_graph *g = f->g;
    ash_value q = heads_of(f, "q", a, a->heads, a->rows, a->size),
              k = heads_of(f, "k", a, a->shared, a->keys, a->size),
              v = heads_of(f, "v", a, a->shared, a->keys, a->columns);
    q = ash_build__with(g, ASH_OP_MUL, q, 0.7);
    if (a->turned) ash_graph_output(g, "turned", ash_build__swap(g, q, 2, 3));
    ash_value s = ash_matmul(g, q, ash_build__swap(g, k, 2, 3));
    ash_value y = ash_matmul(g, weights(g, masked(f, a, s), a->empty), v);
    if (a->merged) {
        const ash_dim dims[] = {a->batch, a->rows, a->heads * a->columns};
        y = ash_reshape(g, ash_build__swap(g, y, 1, 2), dims, 3);
    }
    ash_graph_output(g, "y", ash_build__with(g, ASH_OP_ADD, y, 0.25));
    return s;
}

static ash_target target_named(const char *name) {
    ash_target t;
    ash_diag diag;
    if (!strcmp(name, "sm_80"))
        assert_true(ash_target__gpu(80, &t)); /* also where LLVM makes no code for it */
    else
        assert_ok(ash_target__named(name, &t, &diag));
    return t;
}

static ash_target target_with_blocks(const char *name, int64_t keys) {
    ash_target t = target_named(name);
    t.costs.attend_share = 0;
    t.costs.pack_rows = 2;
    t.costs.attend_keys = keys;
    t.costs.position_bytes = 64;
    return t;
}

static unsigned number_of(const ash_graph *g, ash_op op) {
    unsigned n = 0;
    for (size_t i = 0; i < g->nodes.len; i++) n += g->nodes.at[i].op == op;
    return n;
}

/* Optimised for a target; the caller destroys it. */
static ash_graph *optimised(fixture *f, const ash_target *target) {
    ash_graph *out;
    ash_diag diag;
    assert_ok(ash_graph_status(f->g, &diag));
    assert_ok(ash_opt__run(f->g, target, NULL, &out, &diag));
    return out;
}

enum { CALLS = 3 };

/* For every width of vectors and for GPUs, interpreted, and compiled where this machine runs it; with each
 * of `count` lists of variables, at most CALLS; so many keys to a block, or nearly. */
static void compare_blocks(fixture *f, int64_t keys, const int64_t (*vars)[8], size_t count, bool attends) {
    test_values values[CALLS];
    ash_wide *inputs[CALLS], *expected[CALLS];
    for (size_t n = 0; n < count; n++) {
        inputs[n] = test_inputs(f->g, vars[n]);
        values[n] = (test_values){vars[n], inputs[n], NULL};
        expected[n] = test_expected(f->g, inputs[n], vars[n]);
    }
    for (size_t i = 0; i < 4; i++) {
        ash_target target = target_with_blocks(i < 3 ? compiled_levels[i] : "sm_80", keys), here;
        ash_graph *fast = optimised(f, &target);
        const ash_lower_options fused = {.fuse = true}, single = {.fuse = false};
        assert_int_equal(number_of(fast, ASH_OP_ATTEND), attends);
        test_interpreted_each(fast, &target, &fused, values, expected, count, 1e-5);
        test_interpreted_each(fast, &target, &single, values, expected, count, 1e-5);
        if (i < 3 && runs_here(f->context, compiled_levels[i], &here))
            test_differential_each(f->context, &target, fast, NULL, values, count, 1e-5);
        ash_graph_destroy(fast);
    }
    for (size_t n = 0; n < count; n++) {
        test_free_expected(f->g, expected[n]);
        test_free_inputs(f->g, inputs[n]);
    }
}

static void compare(fixture *f, const int64_t (*vars)[8], size_t count, bool attends) {
    compare_blocks(f, KEYS, vars, count, attends);
}

/* The greatest local buffer of a program for a target, in bytes. */
static int64_t largest(const ash_graph *g, const ash_target *target, size_t *steps) {
    ash_program *p;
    ash_diag diag;
    int64_t most = 0;
    assert_ok(ash_program__lower(g, target, NULL, &p, &diag));
    for (size_t i = 0; i < p->buffers.len; i++)
        if (p->buffers.at[i].kind == ASH_BUFFER_LOCAL || p->buffers.at[i].kind == ASH_BUFFER_WEIGHT)
            most = ASH_MAX(most, p->buffers.at[i].bytes);
    *steps = p->steps.len - p->prologue;
    ash_program__free(p);
    return most;
}

static int64_t any_length(fixture *f) {
    static const int64_t lengths[] = {2, 5, 12, 13, 14, 15, 16, 17, 28, 29, 33, 45, MOST};
    return lengths[below(&f->random, ASH_COUNT(lengths))];
}

static attention any_attention(fixture *f) {
    attention a = {0}; /* one after the other: a list of initialisers has no order */
    a.batch = 1 + below(&f->random, 2);
    a.heads = 2 << below(&f->random, 2);
    a.rows = any_length(f);
    a.keys = any_length(f);
    a.size = 1 + below(&f->random, 20);
    a.columns = 1 + below(&f->random, 40);
    a.mask = (mask)below(&f->random, MASKS);
    a.empty = below(&f->random, 3) == 0;
    a.merged = below(&f->random, 2);
    a.turned = below(&f->random, 4) == 0;
    a.shared = below(&f->random, 2) ? a.heads : 2;
    return a;
}

static void test_lengths(void **state) {
    fixture *f = *state;
    static const int64_t none[1][8];
    for (unsigned i = 0; i < (TEST_WATCHED ? MASKS : 24); i++) {
        restart(f);
        attention a = any_attention(f);
        if (i < MASKS) a.mask = (mask)i;
        build(f, &a);
        compare(f, none, 1, a.mask != NO_KEYS); /* which is known when nothing is a variable */
    }
}

/* Blocks longer than a tile of scores with one vector of rows, which is higher than those with two: several
 * of them, and a rest, for an odd number of vectors. */
static void test_lone_vectors(void **state) {
    fixture *f = *state;
    static const int64_t none[1][8], keys[] = {32, 64}, rows[] = {3, 20, 33, 44};
    for (unsigned i = 0; i < ASH_COUNT(keys) * ASH_COUNT(rows); i++) {
        restart(f);
        const attention a = {.batch = 1,
                             .heads = 2,
                             .shared = 2,
                             .rows = rows[i / 2],
                             .keys = 2 * keys[i % 2] + 3 + i,
                             .size = 12,
                             .columns = 9,
                             .mask = i % 3 ? NONE : CAUSAL};
        build(f, &a);
        compare_blocks(f, keys[i % 2], none, 1, true);
    }
}

/* Lengths that are variables, from 0 on; past their bound there is nothing to read. */
static void test_variable_lengths(void **state) {
    fixture *f = *state;
    static const int64_t lengths[] = {0, 1, 2, 5, 6, 7, 13, 14, 16, 27, 28, 29, 47, MOST};
    for (unsigned i = 0; i < (TEST_WATCHED ? MASKS : 12); i++) {
        restart(f);
        attention a = any_attention(f);
        if (i < MASKS) a.mask = (mask)i;
        a.size = 4 + a.size % 5, a.columns = 1 + a.columns % 19;
        a.batch = ash_graph_var(f->g, "batch", 0, 2);
        a.rows = ash_graph_var(f->g, "rows", 0, MOST);
        a.keys = below(&f->random, 3) ? ash_graph_var(f->g, "keys", 0, MOST) : a.rows;
        build(f, &a);
        int64_t vars[CALLS][8] = {{0}};
        for (unsigned k = 0; k < CALLS; k++) {
            vars[k][0] = 1 + below(&f->random, 2);
            vars[k][1] = lengths[below(&f->random, ASH_COUNT(lengths))];
            vars[k][2] = lengths[(i + 4 * k) % ASH_COUNT(lengths)];
        }
        compare(f, vars, CALLS, true);
    }
}

/* One kernel, beside those that scale the queries and put the heads side by side; the scores are nowhere,
 * nor is a mask of positions. */
static void test_nothing_large_is_stored(void **state) {
    fixture *f = *state;
    for (unsigned i = 0; i <= 2 * CAUSAL + 1; i++) {
        ash_target target = target_named(i & 1 ? "sm_80" : "x86-64-v3");
        mask m = (mask)(i / 2);
        restart(f);
        size_t steps;
        const attention a = {1, 4, 2, 2048, 2048, 32, 32, m, m == CAUSAL, true, false};
        build(f, &a);
        ash_graph *fast = optimised(f, &target);
        assert_int_equal(number_of(fast, ASH_OP_ATTEND), 1);
        assert_in_range(largest(fast, &target, &steps), 1, 4 * 2048 * 32 * sizeof(float));
        assert_int_equal(steps, 3);
        ash_graph_destroy(fast);
    }
}

/* What several matrices share, a mask of positions and of something else, is computed for each of them. */
static void test_mask_of_positions_and_padding(void **state) {
    fixture *f = *state;
    ash_graph *g = f->g;
    ash_target target;
    size_t steps;
    enum { N = 1024 };
    target = target_named("x86-64-v3");
    const attention a = {2, 4, 4, N, N, 16, 16, NONE, true, false, false};
    ash_value q = heads_of(f, "q", &a, 4, N, 16), k = heads_of(f, "k", &a, 4, N, 16),
              v = heads_of(f, "v", &a, 4, N, 16), kept = INPUT(f, "kept", ASH_BOOL, 2, 1, 1, N);
    ash_value seen = ash_and(g, ash_le(g, positions(g, &a, 1), positions(g, &a, 0)), kept);
    ash_value s = ash_matmul(g, q, ash_build__swap(g, k, 2, 3));
    s = ash_select(g, seen, s, ash_scalar(g, ASH_F32, -INFINITY));
    ash_graph_output(g, "y", ash_matmul(g, weights(g, s, true), v));
    ash_graph *fast = optimised(f, &target);
    assert_int_equal(number_of(fast, ASH_OP_ATTEND), 1);
    assert_int_equal(largest(fast, &target, &steps),
                     0); /* not even queries, which are packed in scratch memory */
    ash_graph_destroy(fast);
}

/* --- what stays as it is ------------------------------------------------------------------------------ */

static void expect_none(fixture *f, const ash_target *target) {
    ash_graph *fast = optimised(f, target);
    assert_int_equal(number_of(fast, ASH_OP_ATTEND), 0);
    ash_graph_destroy(fast);
}

static void test_what_stays(void **state) {
    fixture *f = *state;
    ash_target target = target_with_blocks("x86-64-v3", KEYS), plain;
    const attention a = {1, 2, 2, 40, 40, 8, 8, NONE, false, false, false};
    plain = target_named("x86-64-v3");
    plain.costs.attend_rows = 40;
    build(f, &a);
    expect_none(f, &plain); /* scores that stay in the cache */
    for (unsigned i = 0; i < 4; i++) {
        restart(f);
        ash_graph *g = f->g;
        ash_value s = build(f, &a), e = ASH_NO_VALUE, most = ASH_NO_VALUE;
        for (size_t n = 0; n < g->nodes.len; n++) {
            if (g->nodes.at[n].op == ASH_OP_EXP) e = g->nodes.at[n].out;
            if (g->nodes.at[n].op == ASH_OP_DIV) most = g->nodes.at[n].out;
        }
        if (i == 0) ash_graph_output(g, "scores", s);
        if (i == 1) ash_graph_output(g, "exponentials", e);
        if (i == 2) ash_graph_output(g, "weights", most);
        if (i == 3) ash_graph_output(g, "more", ash_neg(g, s));
        expect_none(f, &target);
    }
    restart(f);
    const attention few = {1, 2, 2, 5, 40, 8, 8, NONE, false, false, false};
    build(f, &few);
    expect_none(f, &plain); /* rows so few that nothing is packed for them */
    ash_target gpu;
    assert_true(ash_target__gpu(80, &gpu));
    gpu.costs.attend_share = 0;
    expect_none(f, &gpu);
}

/* The maximum is that of other axes, or the sum that of something else. */
static void test_no_softmax(void **state) {
    fixture *f = *state;
    ash_target target = target_with_blocks("x86-64-v3", KEYS);
    for (unsigned i = 0; i < 4; i++) {
        restart(f);
        ash_graph *g = f->g;
        ash_value q = INPUT(f, "q", ASH_F32, 2, 32, 8), k = INPUT(f, "k", ASH_F32, 2, 8, 32),
                  v = INPUT(f, "v", ASH_F32, 2, 32, 8), s = ash_matmul(g, q, k);
        ash_value most =
            ash_build__reduce(g, ASH_OP_REDUCE_MAX, i == 0 ? ash_neg(g, s) : s, i == 1 ? 2u : 4u, true);
        ash_value e = ash_exp(g, ash_sub(g, s, most));
        ash_value sum = ash_build__reduce(g, i == 2 ? ASH_OP_REDUCE_PROD : ASH_OP_REDUCE_SUM, e,
                                          i == 3 ? 2u : 4u, true);
        ash_graph_output(g, "y", ash_matmul(g, ash_div(g, e, sum), v));
        expect_none(f, &target);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_lengths, begin, teardown),
        cmocka_unit_test_setup_teardown(test_lone_vectors, begin, teardown),
        cmocka_unit_test_setup_teardown(test_variable_lengths, begin, teardown),
        cmocka_unit_test_setup_teardown(test_nothing_large_is_stored, begin, teardown),
        cmocka_unit_test_setup_teardown(test_mask_of_positions_and_padding, begin, teardown),
        cmocka_unit_test_setup_teardown(test_what_stays, begin, teardown),
        cmocka_unit_test_setup_teardown(test_no_softmax, begin, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
