/* SPDX-License-Identifier: MIT */
/* What lowering does for vectors: rows that are kept, blocks that are transposed in registers, what full
 * vectors leave over, extrema and lists of the best. The code is asserted (by the nests, for several
 * targets), the results are compared with the reference evaluator. */
#include "differential.h"
#include "test_graphs.h"

/* What the nests of a lowered graph have. */
typedef struct survey {
    unsigned gathers, shuffles, widest; /* lanes */
    unsigned exps;                      /* EXP with the most lanes */
    unsigned selects;                   /* of vectors */
    unsigned roots, hreduces;           /* square roots of any lanes; reductions of all lanes */
    int64_t scratch;                    /* bytes for each worker */
} survey;

static survey lower(ash_graph *g, ash_value out, const char *level) {
    survey s = {0};
    ash_target target;
    ash_program *p;
    ash_diag diag;
    ash_graph_output(g, "y", out);
    assert_ok(ash_target__named(level, &target, &diag));
    assert_ok(ash_program__lower(g, &target, NULL, &p, &diag));
    for (size_t i = 0; i < p->buffers.len; i++)
        if (p->buffers.at[i].kind == ASH_BUFFER_SCRATCH) s.scratch += p->buffers.at[i].bytes;
    for (size_t i = 0; i < p->nests.len; i++)
        for (ash_ref k = 0; k < p->nests.at[i].code.len; k++) {
            const ash_inst *inst = &p->nests.at[i].code.at[k];
            s.gathers += inst->op == ASH_NEST_GATHER;
            s.shuffles += inst->op == ASH_NEST_SHUFFLE;
            s.roots += inst->op == ASH_NEST_COMPUTE && inst->i == ASH_OP_SQRT;
            s.selects += inst->op == ASH_NEST_COMPUTE && inst->i == ASH_OP_SELECT && inst->lanes > 1;
            s.hreduces += inst->op == ASH_NEST_HREDUCE;
            if (inst->lanes > s.widest) s.widest = inst->lanes;
        }
    for (size_t i = 0; i < p->nests.len; i++)
        for (ash_ref k = 0; k < p->nests.at[i].code.len; k++) {
            const ash_inst *inst = &p->nests.at[i].code.at[k];
            s.exps += inst->op == ASH_NEST_COMPUTE && inst->i == ASH_OP_EXP && inst->lanes == s.widest;
        }
    ash_program__free(p);
    ash_graph_destroy(g);
    return s;
}

static void compare_at(ash_graph *g, ash_value out, int64_t var, double tolerance) {
    const int64_t vars[8] = {var};
    ash_graph_output(g, "y", out);
    test_differential(context, g, vars, tolerance);
    ash_graph_destroy(g);
}

static void compare(ash_graph *g, ash_value out, double tolerance) {
    compare_at(g, out, 0, tolerance);
}

/* A softmax computes its exponentials once; rows past the second level of cache are not kept. */
static void test_kept_rows(void **state) {
    (void)state;
    static const char *const levels[] = {"x86-64", "x86-64-v3", "x86-64-v4"};
    for (size_t l = 0; l < ASH_COUNT(levels); l++) {
        ash_graph *g = new_graph();
        survey s = lower(g, ash_softmax(g, INPUT_OF(g, "x", ASH_F32, 6, 1024), 1), levels[l]);
        assert_int_equal(s.scratch, 1024 * sizeof(float));
        assert_int_equal(s.exps, 1);
        g = new_graph();
        s = lower(g, ash_softmax(g, INPUT_OF(g, "x", ASH_F32, 2, 1 << 22), 1), levels[l]);
        assert_int_equal(s.scratch, 0);
        assert_int_equal(s.exps, 2);
    }
    static const int64_t dims[][3] = {{3, 5, 1000}, {2, 77, 9}, {4, 40, 67}, {1, 3, 129}};
    for (size_t i = 0; i < ASH_COUNT(dims); i++)
        for (int64_t axis = 0; axis < 3; axis++) {
            ash_graph *g = new_graph();
            compare(g, ash_softmax(g, input(g, "x", ASH_F32, 3, dims[i]), axis), 1e-6);
        }
    /* the mean of a computed operand, and the operand less its mean: the sum is kept */
    ash_graph *g = new_graph();
    ash_value x = INPUT_OF(g, "x", ASH_F32, 7, 96), y = INPUT_OF(g, "y", ASH_F32, 7, 96),
              z = INPUT_OF(g, "z", ASH_F32, 7, 96), one = INPUT_OF(g, "s", ASH_F32, 96);
    compare(g, ash_layer_norm(g, ash_add(g, ash_mul(g, x, y), z), one, one, 1, 1e-5), 1e-5);
}

/* What a row's numbers come to is computed once for all loops over vectors of several widths, and what full
 * vectors and single registers have summed goes through the lanes as one register. Rows that may be less
 * than a vector have code of their own, in which it is computed once for so many rows, and of what rows are
 * left under a mask or one by one. */
static void test_shared_numbers(void **state) {
    (void)state;
    static const char *const levels[] = {"x86-64-v3", "x86-64-v4"};
    for (size_t l = 0; l < ASH_COUNT(levels); l++)
        for (int variable = 0; variable < 2; variable++) {
            ash_graph *g = new_graph();
            const ash_dim n = variable ? ash_graph_var(g, "n", 1, 200) : 157;
            ash_value x = input(g, "x", ASH_F32, 2, (ash_dim[]){9, n}),
                      one = input(g, "s", ASH_F32, 1, (ash_dim[]){n});
            survey s = lower(g, ash_layer_norm(g, x, one, one, 1, 1e-5), levels[l]);
            assert_int_equal(s.roots, !variable ? 1 : l ? 2 : 3);
            assert_int_equal(s.hreduces, 2);
        }
    for (int64_t n = 1; n <= 200; n += n < 20 ? 3 : 17) {
        ash_graph *g = new_graph();
        const ash_dim length = ash_graph_var(g, "n", 1, 200);
        ash_value x = input(g, "x", ASH_F32, 2, (ash_dim[]){9, length}),
                  one = input(g, "s", ASH_F32, 1, (ash_dim[]){length});
        ash_graph_output(g, "soft", ash_softmax(g, x, 1));
        compare_at(g, ash_layer_norm(g, x, one, one, 1, 1e-5), n, 1e-5);
    }
}

/* x [3, n], each element twice, without `cut` of them at the beginning, times y. */
static ash_value twice(ash_graph *g, ash_dim n, ash_dim cut, ash_dtype dtype) {
    const ash_dim dims[] = {3, n}, apart[] = {3, n, 1}, side[] = {3, n, 2},
                  both[] = {3, ash_graph_dim_mul(g, n, 2)}, from[] = {0, cut}, steps[] = {1, 1},
                  left[] = {3, ash_graph_dim_sub(g, both[1], cut)};
    ash_value x = ash_reshape(g, input(g, "x", dtype, 2, dims), apart, 3);
    x = ash_reshape(g, ash_broadcast_to(g, x, side, 3), both, 2);
    if (cut) x = ash_slice(g, x, from, steps, left);
    return ash_mul(g, x, input(g, "y", dtype, 2, left));
}

/* Elements that are repeated are loaded as often as they lie in memory, where a vector is full in part,
 * too; none beside them is touched. */
static void test_repeated_elements(void **state) {
    (void)state;
    static const ash_dtype dtypes[] = {ASH_F32, ASH_F64, ASH_I32};
    for (ash_dim cut = 0; cut < 2; cut++)
        for (size_t d = 0; d < ASH_COUNT(dtypes); d++) {
            ash_graph *g = new_graph();
            survey s = lower(g, twice(g, ash_graph_var(g, "n", 1, 40), cut, dtypes[d]), "x86-64-v4");
            assert_int_equal(s.gathers, 0);
            for (int64_t n = 1; n <= 40; n += n < 18 ? 1 : 11) {
                g = new_graph();
                compare_at(g, twice(g, ash_graph_var(g, "n", 1, 40), cut, dtypes[d]), n, 1e-6);
                g = new_graph();
                compare_at(g, twice(g, n, cut, dtypes[d]), n, 1e-6);
            }
        }
}

/* Zeros around an image are what a masked load leaves; other numbers are chosen. */
static void test_padding_is_masked(void **state) {
    (void)state;
    static const double fills[] = {0, -0.0, 2};
    for (size_t i = 0; i < ASH_COUNT(fills); i++)
        for (int64_t n = 1; n <= 40; n += 13) {
            const ash_dim around[] = {0, 1, 1}, none[3] = {0};
            const ash_attr pads[] = {ASH_ATTR_LIST(BEFORE, around, 3), ASH_ATTR_LIST(AFTER, around, 3),
                                     ASH_ATTR_LIST(INTERIOR, none, 3)};
            for (int turn = 0; turn < 2; turn++) { /* its code; its results */
                ash_graph *g = new_graph();
                const ash_dim wide = ash_graph_var(g, "w", 1, 40);
                const ash_value ins[] = {input(g, "x", ASH_F32, 3, (ash_dim[]){3, 5, wide}),
                                         ash_scalar(g, ASH_F32, fills[i])};
                ash_value y;
                ash_graph_add(g, ASH_OP_PAD, ins, 2, pads, 3, &y);
                if (turn)
                    compare_at(g, y, n, 0);
                else
                    assert_int_equal(lower(g, y, "x86-64-v4").selects > 0, i > 0);
            }
        }
}

/* No element of a transposed operand is gathered where whole blocks fit. */
static void test_transposed_blocks(void **state) {
    (void)state;
    static const char *const levels[] = {"x86-64", "x86-64-v3", "x86-64-v4"};
    for (size_t l = 0; l < ASH_COUNT(levels); l++) {
        ash_graph *g = new_graph();
        ash_value x = INPUT_OF(g, "x", ASH_F32, 64, 128), y = INPUT_OF(g, "z", ASH_F32, 128, 64);
        ash_value sum = ash_add(g, ash_transpose(g, x, (int64_t[]){1, 0}), y);
        survey s = lower(g, sum, levels[l]);
        assert_int_equal(s.gathers, 0);
        assert_true(s.shuffles > 0);
        /* where a line's size is a variable as well, from channels in blocks and to them */
        for (int packs = 0; packs < 2; packs++) {
            g = new_graph();
            ash_dim high = ash_graph_var(g, "h", 1, 64), wide = ash_graph_var(g, "w", 1, 64);
            const ash_dim plain[] = {2, 32, high, wide}, split[] = {2, 2, 16, high, wide},
                          blocked[] = {2, 2, high, wide, 16};
            if (packs) {
                x = ash_reshape(g, input(g, "x", ASH_F32, 4, plain), split, 5);
                s = lower(g, ash_transpose(g, x, (int64_t[]){0, 1, 3, 4, 2}), levels[l]);
            } else {
                x = ash_transpose(g, input(g, "x", ASH_F32, 5, blocked), (int64_t[]){0, 1, 4, 2, 3});
                s = lower(g, ash_reshape(g, x, plain, 4), levels[l]);
            }
            if (!s.shuffles) fail_msg("%s, packing %d: nothing is turned", levels[l], packs);
        }
    }
    static const int64_t dims[][3] = {{1, 64, 48}, {3, 17, 33}, {5, 16, 8}, {20, 30, 50}};
    static const int64_t perms[][3] = {{0, 2, 1}, {2, 1, 0}, {1, 2, 0}};
    static const ash_dtype dtypes[] = {ASH_F32, ASH_F16, ASH_I32, ASH_F64, ASH_U8};
    for (size_t i = 0; i < ASH_COUNT(dims); i++)
        for (size_t k = 0; k < ASH_COUNT(perms); k++)
            for (size_t d = 0; d < ASH_COUNT(dtypes); d++) {
                ash_graph *g = new_graph();
                ash_value x = input(g, "x", dtypes[d], 3, dims[i]);
                ash_value turned = ash_transpose(g, x, perms[k]);
                ash_value y = ash_graph_input(g, "z", ash_graph_type(g, turned));
                compare(g, ash_mul(g, turned, y), dtypes[d] == ASH_F16 ? 1e-3 : 1e-6);
            }
}

/* [n, 40] padded to whole blocks of 16 rows, as columns of blocks; `wide`: 40 is padded to 48 as well;
 * `flat`: the rows behind the last are padded as elements of one long dim. */
static ash_value padded_blocks(ash_graph *g, ash_dim n, bool wide, bool flat) {
    const ash_dim blocks = ash_graph_dim_div(g, ash_graph_dim_add(g, n, 15), 16);
    const ash_dim missing = ash_graph_dim_sub(g, ash_graph_dim_mul(g, blocks, 16), n),
                  columns = wide ? 48 : 40;
    const ash_dim more[] = {flat ? ash_graph_dim_mul(g, missing, 40) : missing, wide ? 8 : 0},
                  none[2] = {0};
    ash_value x = input(g, "x", ASH_F32, 2, (ash_dim[]){n, 40});
    if (flat) x = ash_reshape(g, x, (ash_dim[]){ash_graph_dim_mul(g, n, 40)}, 1);
    const unsigned rank = flat ? 1 : 2;
    const ash_attr pads[] = {ASH_ATTR_LIST(BEFORE, none, rank), ASH_ATTR_LIST(AFTER, more, rank),
                             ASH_ATTR_LIST(INTERIOR, none, rank)};
    const ash_value ins[] = {x, ash_scalar(g, ASH_F32, -3)};
    ash_graph_add(g, ASH_OP_PAD, ins, 2, pads, 3, &x);
    x = ash_reshape(g, x, (ash_dim[]){blocks, 16, columns}, 3);
    return ash_transpose(g, x, (int64_t[]){0, 2, 1});
}

/* Rows that are padded are turned all the same, and nothing is read behind them, however many there are;
 * where a row itself ends in padding it is gathered. */
static void test_padded_blocks(void **state) {
    (void)state;
    static const int64_t sizes[] = {1, 15, 16, 17, 50};
    for (int variable = 0; variable < 2; variable++)
        for (int wide = 0; wide < 2; wide++) {
            ash_graph *g = new_graph();
            survey s = lower(g, padded_blocks(g, variable ? ash_graph_var(g, "n", 1, 64) : 50, wide, false),
                             "x86-64-v4");
            if (!wide) assert_true(s.shuffles > 0);
        }
    for (size_t i = 0; i < ASH_COUNT(sizes); i++)
        for (int turn = 0; turn < 6; turn++) {
            ash_graph *g = new_graph();
            ash_dim n = turn % 2 ? ash_graph_var(g, "n", 1, 64) : sizes[i];
            compare_at(g, padded_blocks(g, n, turn / 2 == 1, turn / 2 == 2), sizes[i], 0);
        }
}

/* Numbers that were loaded for each lane are no address along another axis. */
static void test_gathers_stay(void **state) {
    (void)state;
    ash_graph *g = new_graph();
    ash_value x = INPUT_OF(g, "x", ASH_F32, 4, 8, 5), i = INPUT_OF(g, "i", ASH_I64, 64);
    compare(g, ash_gather(g, ash_transpose(g, x, (int64_t[]){2, 0, 1}), i, 0), 0);
    g = new_graph();
    x = INPUT_OF(g, "x", ASH_F32, 4, 8, 1), i = INPUT_OF(g, "i", ASH_I64, 64);
    compare(g, ash_gather(g, x, i, 2), 0);
}

/* Full vectors, single registers, single elements. */
static void test_what_is_left(void **state) {
    (void)state;
    for (int64_t n = 1; n <= 150; n += n < 20 ? 1 : 13) {
        ash_graph *g = new_graph();
        ash_value x = INPUT_OF(g, "x", ASH_F32, 3, n);
        ash_graph_output(g, "sum",
                         ash_reduce(g, ASH_OP_REDUCE_SUM, ash_exp(g, x), (int64_t[]){1}, 1, false));
        ash_graph_output(g, "max", ash_reduce(g, ASH_OP_REDUCE_MAX, x, (int64_t[]){1}, 1, false));
        compare(g, ash_tanh(g, ash_sigmoid(g, ash_exp(g, x))), 1e-6);
    }
}

/* Along the last axis and others, with ties: the input has few values. Some last axes are short. */
static void test_extrema_and_lists(void **state) {
    (void)state;
    static const ash_dtype dtypes[] = {ASH_F32, ASH_I32, ASH_I64, ASH_U8};
    static const int64_t widths[] = {2, 3, 7, 12, 15, 28, 49, 70};
    for (size_t d = 0; d < ASH_COUNT(dtypes); d++)
        for (int64_t axis = 0; axis < 3; axis++)
            for (size_t i = 0; i < ASH_COUNT(widths); i++) {
                const int64_t n = widths[i];
                ash_graph *g = new_graph();
                ash_value at, x = INPUT_OF(g, "x", dtypes[d], 3, 37, n);
                int64_t size = ash_graph_type(g, x)->dims[axis];
                ash_graph_output(g, "max", ash_argmax(g, x, axis, false));
                ash_graph_output(g, "min", ash_argmin(g, x, axis, true));
                ash_graph_output(g, "sum", ash_cumsum(g, x, axis, true, n % 2));
                ash_graph_output(g, "top", ash_topk(g, x, axis, (size + 1) / 2, n % 2, &at));
                compare(g, at, 1e-6);
            }
}

/* Rows that are added to rows, some of them several times: columns in vectors and chunks, whatever is left
 * of the last one; indices of one and of two coordinates, some outside; and the dim may be a variable. */
static void test_scattered_rows(void **state) {
    (void)state;
    static const int64_t widths[] = {1, 7, 16, 33, 64, 65, 130, 200};
    static const ash_dtype dtypes[] = {ASH_F32, ASH_F64, ASH_I64, ASH_U8, ASH_F16};
    for (size_t i = 0; i < ASH_COUNT(widths); i++)
        for (int turn = 0; turn < 5; turn++) {
            ash_graph *g = new_graph();
            const int64_t columns = turn == 4 ? ash_graph_var(g, "columns", 1, widths[i]) : widths[i];
            const bool deep = turn % 2;
            ash_value x = deep ? input(g, "x", dtypes[turn], 3, (ash_dim[]){3, 4, columns})
                               : input(g, "x", dtypes[turn], 2, (ash_dim[]){4, columns});
            ash_value at = input(g, "at", ASH_I64, 2, (ash_dim[]){9, deep ? 2 : 1});
            ash_value u = input(g, "u", dtypes[turn], 2, (ash_dim[]){9, columns});
            at = ash_sub(g, at, ash_scalar(g, ASH_I64, 5)); /* -5 ... 4 */
            static const ash_scatter modes[] = {ASH_SCATTER_ADD, ASH_SCATTER_SET, ASH_SCATTER_MIN};
            compare_at(g, ash_scatter_nd(g, x, at, u, modes[(i + (size_t)turn) % 3]), (widths[i] + 1) / 2,
                       dtypes[turn] == ASH_F16 ? 1e-2 : 1e-6);
        }
}

/* Rows of few elements side by side: a vector takes one of each of several rows, nothing is gathered; with
 * rows left over, numbers of rows that are variables, and halves. */
static void test_packed_rows(void **state) {
    (void)state;
    static const int64_t columns[] = {2, 3, 5, 7, 10, 15, 16};
    for (size_t i = 0; i < ASH_COUNT(columns); i++)
        for (int turn = 0; turn < 6; turn++) {
            ash_graph *g = new_graph();
            const ash_dim rows = turn % 2 ? ash_graph_var(g, "rows", 1, 100) : 53;
            ash_value x =
                input(g, "x", turn == 2 || turn == 3 ? ASH_F16 : ASH_F32, 2, (ash_dim[]){rows, columns[i]});
            if (turn >= 4) x = ash_exp(g, x);
            compare_at(g, ash_softmax(g, x, 1), turn == 1 ? 5 : 37, turn == 2 || turn == 3 ? 1e-2 : 1e-6);
        }
    ash_graph *g = new_graph();
    survey s = lower(g, ash_softmax(g, INPUT_OF(g, "x", ASH_F32, 64, 3), 1), "x86-64-v4");
    assert_int_equal(s.gathers, 0);
    assert_true(s.shuffles > 0);
}

/* The first NaN is the extremum, and comes first among the largest. */
static void test_not_a_number(void **state) {
    (void)state;
    enum { N = 300 };
    for (int at = 0; at < N; at += 37) {
        double data[N];
        for (int i = 0; i < N; i++) data[i] = i * 7 % 31;
        data[at] = data[N - 1] = NAN;
        ash_graph *g = new_graph();
        ash_value places, x = INPUT_OF(g, "x", ASH_F32, 1, N);
        ash_graph_output(g, "max", ash_argmax(g, x, 1, false));
        ash_graph_output(g, "min", ash_argmin(g, x, 1, true));
        ash_topk(g, x, 1, 5, true, &places);
        ash_graph_output(g, "y", places);
        ash_wide in = {.dtype = ASH_F32, .rank = 2, .dims = {1, N}, .count = N, .f = data};
        static const int64_t vars[8];
        test_differential_inputs(context, g, NULL, vars, &in, 0);
        ash_graph_destroy(g);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_kept_rows),         cmocka_unit_test(test_transposed_blocks),
        cmocka_unit_test(test_padded_blocks),     cmocka_unit_test(test_gathers_stay),
        cmocka_unit_test(test_what_is_left),      cmocka_unit_test(test_extrema_and_lists),
        cmocka_unit_test(test_not_a_number),      cmocka_unit_test(test_scattered_rows),
        cmocka_unit_test(test_packed_rows),       cmocka_unit_test(test_shared_numbers),
        cmocka_unit_test(test_repeated_elements), cmocka_unit_test(test_padding_is_masked),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
