/* SPDX-License-Identifier: MIT */
/* Loops over rows whose length, or number, is a variable: pools, groups of channels, rows that are
 * repeated, sums, columns that are picked. Every size has the values of the reference and the bits of the
 * same size as a number. */
#include "kernel/tile.h"
#include "vary.h"

/* --- pools -------------------------------------------------------------------------------------------- */

/* A pool of x [2, 3, h, w], or of channels in blocks; variables up to `most` where the numbers are 0. */
static ash_graph *pool_up_to(const window_shape *s, ash_op op, int64_t lanes, int64_t h, int64_t w,
                             int64_t most) {
    ash_graph *g = new_graph();
    const ash_dim high = size(g, "h", least_size(s, 0), WIDEST, h),
                  wide = size(g, "w", least_size(s, 1), most, w);
    ash_value x = lanes ? INPUT(g, "x", 2, 2, high, wide, lanes) : INPUT(g, "x", 2, 3, high, wide);
    ash_window windows[2];
    for (unsigned d = 0; d < 2; d++) {
        const ash_dim along = d ? wide : high;
        windows[d] = (ash_window){s->window[d], s->stride, s->dilation, pad(g, s, d, along, false),
                                  pad(g, s, d, along, true)};
    }
    ash_graph_output(g, "y", ash_pool(g, op, x, (int64_t[]){2, 3}, windows, 2));
    return g;
}

static ash_graph *pool(const window_shape *s, ash_op op, int64_t lanes, int64_t h, int64_t w) {
    return pool_up_to(s, op, lanes, h, w, WIDEST);
}

static const window_shape pools[] = {
    {.window = {3, 3}, .stride = 2, .before = 1, .after = 1, .dilation = 1},
    {.window = {2, 2}, .stride = 2, .dilation = 1},
    {.window = {3, 3}, .stride = 1, .before = 1, .after = 1, .dilation = 1},
    {.window = {3, 3}, .stride = 2, .before = SAME, .after = SAME, .dilation = 1},
    {.window = {2, 5}, .stride = 1, .before = 3, .after = 4, .dilation = 2},
    {.window = {3, 2}, .stride = 3, .after = 1, .dilation = 1},
    {.window = {1, 12},
     .stride = 1,
     .before = 5,
     .after = 6,
     .dilation = 1}, /* more columns than are laid out */
    {.window = {1, 14},
     .stride = 2,
     .before = SAME,
     .after = SAME,
     .dilation = 3}, /* long ends that vary */
};

static void pools_of_every_width(void **state) {
    (void)state;
    for (size_t i = 0; i < ASH_COUNT(pools); i++)
        for (int64_t w = least_size(&pools[i], 1), turn = 0; w <= WIDEST; w += w < 20 ? FINE : 3, turn++) {
            ash_target target;
            target_of(levels[(size_t)turn % 3], &target);
            const int64_t lanes = turn % 4 == 3 ? ash_target_lanes(&target, sizeof(float)) : 0,
                          h = ASH_MIN(least_size(&pools[i], 0) + turn % 5, WIDEST);
            const ash_op op = turn % 2 ? ASH_OP_POOL_MAX : ASH_OP_POOL_SUM;
            /* under a large bound, or rows that are less than a vector under any */
            const int64_t most = w < 15 && turn % 2 ? ASH_MAX(15, least_size(&pools[i], 1)) : WIDEST;
            ash_graph *open = pool_up_to(&pools[i], op, lanes, 0, 0, most),
                      *known = pool(&pools[i], op, lanes, h, w);
            ash_program *p = lowered(open, &target);
            compare(open, p, known, (int64_t[]){h, w});
            ash_program__free(p);
            ash_graph_destroy(open);
            ash_graph_destroy(known);
        }
}

/* Comparisons of vectors, as masks are. */
static bool is_mask(const ash_nest *n, const ash_inst *inst) {
    (void)n;
    return inst->op == ASH_NEST_COMPUTE && inst->i == ASH_OP_LT && inst->lanes > 1;
}

static bool is_division(const ash_nest *n, const ash_inst *inst) {
    (void)n;
    return inst->op == ASH_NEST_IDIV || inst->op == ASH_NEST_IMOD;
}

/* One that takes long: not by a number. */
static bool is_long_division(const ash_nest *n, const ash_inst *inst) {
    return is_division(n, inst) && ash_nest_at(n, inst->b)->op != ASH_NEST_INT;
}

/* How many such instructions there are in more than so many loops, of which the first is over chunks. */
static unsigned count_below(const ash_nest *n, unsigned least,
                            bool (*is)(const ash_nest *, const ash_inst *)) {
    unsigned found = 0, depth = 0, loops[64] = {0};
    for (ash_ref k = 0; k < n->code.len; k++) {
        const ash_inst *inst = &n->code.at[k];
        if (inst->op == ASH_NEST_LOOP || inst->op == ASH_NEST_IF) {
            loops[depth + 1] = loops[depth] + (inst->op == ASH_NEST_LOOP);
            depth++;
        }
        depth -= inst->op == ASH_NEST_END;
        found += is(n, inst) && loops[depth] > least;
    }
    return found;
}

static unsigned count_in_rows(const ash_nest *n, bool (*is)(const ash_nest *, const ash_inst *)) {
    return count_below(n, 1, is);
}

/* Where rows are less than a vector, the vector goes down them, and its mask is there once. */
static void short_rows_have_one_mask(void **state) {
    (void)state;
    ash_target target;
    target_of("x86-64-v4", &target);
    for (int64_t most = 31; most <= 32; most++) { /* rows of at most 15, and of 16 */
        ash_graph *g = pool_up_to(&pools[1], ASH_OP_POOL_MAX, 0, 0, 0, most);
        ash_program *p = lowered(g, &target);
        assert_int_equal(p->nests.len, 1);
        assert_int_equal(count_in_rows(&p->nests.at[0], is_mask) != 0, most == 32);
        ash_program__free(p);
        ash_graph_destroy(g);
    }
}

/* A load of half a vector under a mask. */
static bool is_masked_half(const ash_nest *n, const ash_inst *inst) {
    (void)n;
    return inst->op == ASH_NEST_LOAD && inst->lanes == 8 && inst->b != ASH_NO_REF;
}

/* Every second element for half a vector is one load of a whole one, under a mask; where it is known that
 * they are no more than half of that, of half a one. */
static void halves_are_one_load(void **state) {
    (void)state;
    ash_target target;
    target_of("x86-64-v4", &target);
    for (int64_t size = 0; size <= 14; size += 7) {
        ash_graph *g = pool_up_to(&pools[1], ASH_OP_POOL_SUM, 0, size, size, 30);
        ash_program *p = lowered(g, &target);
        assert_int_equal(p->nests.len, 1);
        assert_int_equal(count_below(&p->nests.at[0], 0, is_masked_half) != 0, size == 7);
        ash_program__free(p);
        ash_graph_destroy(g);
    }
}

/* Sums of four rows, which each row looks up, and by which numbers they are multiplied. */
static ash_graph *looked_up(int64_t most, int64_t h, int64_t w) {
    ash_graph *g = new_graph();
    const ash_dim rows = size(g, "h", 1, 9, h), wide = size(g, "w", 1, most, w);
    ash_value x = INPUT(g, "x", 3, 11, wide), sum = ASH_NO_VALUE;
    for (unsigned t = 0; t < 4; t++) {
        const char at[] = {'a', 't', (char)('0' + t), 0}, by[] = {'b', 'y', (char)('0' + t), 0};
        ash_value row = ash_gather(g, x, INPUT_OF(g, at, ASH_I64, rows), 1);
        row = ash_mul(g, row, ash_broadcast_to(g, INPUT(g, by, rows, 1), (ash_dim[]){3, rows, wide}, 3));
        sum = t ? ash_add(g, sum, row) : row;
    }
    ash_graph_output(g, "y", sum);
    return g;
}

/* They have code for less than a vector, which goes down them: what a row begins with is felt. */
static void looked_up_rows_are_short(void **state) {
    (void)state;
    for (int64_t most = 15; most <= 40; most += 25)
        for (int64_t w = 1, turn = 0; w <= most; w += 7, turn++) {
            ash_target target;
            target_of(levels[(size_t)turn % 3], &target);
            const int64_t h = 1 + turn % 9;
            ash_graph *open = looked_up(most, 0, 0), *known = looked_up(most, h, w);
            ash_program *p = lowered(open, &target);
            assert_int_equal(p->nests.len, 1);
            if (target.masks == 1)
                assert_int_equal(count_in_rows(&p->nests.at[0], is_mask) != 0, most > 15);
            compare(open, p, known, (int64_t[]){h, w});
            ash_program__free(p);
            ash_graph_destroy(open);
            ash_graph_destroy(known);
        }
}

/* Lines that are no longer than a chunk are whole: no number is divided to find them, whatever varies; nor
 * is that of a row, though sizes are numbers. */
static void chunks_have_whole_lines(void **state) {
    (void)state;
    ash_target target;
    target_of("x86-64-v4", &target);
    for (int64_t size = 0; size <= 14; size += 14) {
        ash_graph *g = pool_up_to(&pools[1], ASH_OP_POOL_MAX, 0, size, size, 30);
        ash_program *p = lowered(g, &target);
        assert_int_equal(p->nests.len, 1);
        assert_int_equal(count_below(&p->nests.at[0], 0, is_long_division), 0);
        if (size) assert_int_equal(count_in_rows(&p->nests.at[0], is_division), 0);
        ash_program__free(p);
        ash_graph_destroy(g);
    }
}

/* Vectors of several registers go along the middle of rows, where nothing is tested; the ends of rows are
 * outside of them, on whatever place of a vector they lie. */
static void middles_of_rows(void **state) {
    (void)state;
    const int64_t most = 140, widths[] = {31, 47, 48, 49, 63, 64, 65, 79, 80, 81, 97, 139};
    const size_t some[] = {2, 4, 0, 6, 7};
    for (size_t i = 0; i < ASH_COUNT(some) * 3; i++) {
        const window_shape *s = &pools[some[i / 3]];
        ash_target target;
        target_of(levels[i % 3], &target);
        const ash_op op = i % 2 ? ASH_OP_POOL_MAX : ASH_OP_POOL_SUM;
        ash_graph *open = pool_up_to(s, op, 0, 0, 0, most);
        ash_program *p = lowered(open, &target);
        bool middle = false;
        const ash_nest *n = &p->nests.at[0];
        for (ash_ref k = 0; k < n->code.len && target.masks; k++) {
            const ash_inst *loop = &n->code.at[k];
            if (loop->op != ASH_NEST_LOOP || loop->i <= (int64_t)ash_target_lanes(&target, sizeof(float)))
                continue;
            unsigned masks = 0, depth = 0;
            do {
                const ash_inst *inst = &n->code.at[k++];
                depth += inst->op == ASH_NEST_LOOP || inst->op == ASH_NEST_IF;
                depth -= inst->op == ASH_NEST_END;
                masks += is_mask(n, inst);
            } while (depth);
            middle = middle || masks == 0;
        }
        assert_int_equal(middle, target.masks && s->stride == 1);
        for (size_t k = 0; k < ASH_COUNT(widths); k++) {
            ash_graph *known = pool_up_to(s, op, 0, 7, widths[k], most);
            compare(open, p, known, (int64_t[]){7, widths[k]});
            ash_graph_destroy(known);
        }
        ash_program__free(p);
        ash_graph_destroy(open);
    }
}

/* As many chunks as with a number, whatever the bound is: up to four times as much. */
static void chunks_follow_the_size(void **state) {
    (void)state;
    ash_target target;
    target_of("x86-64-v4", &target);
    for (int64_t most = WIDEST; most <= 4 * WIDEST; most *= 2) {
        ash_graph *g = new_graph(), *same = new_graph();
        for (unsigned known = 0; known < 2; known++) {
            ash_graph *to = known ? same : g;
            const ash_dim w = known ? WIDEST : ash_graph_var(to, "w", 1, most);
            ash_value x = INPUT(to, "x", 900, 3, w);
            ash_graph_output(to, "y", ash_reduce_sum(to, x, (int64_t[]){1}, 1, false));
        }
        ash_program *p = lowered(g, &target), *q = lowered(same, &target);
        assert_int_equal(ash_dims_eval(p->dims, p->steps.at[0].chunks, (int64_t[]){WIDEST}),
                         q->steps.at[0].chunks);
        assert_true(q->steps.at[0].chunks > 1);
        ash_program__free(p);
        ash_program__free(q);
        ash_graph_destroy(g);
        ash_graph_destroy(same);
    }
}

/* --- groups of channels ------------------------------------------------------------------------------- */

/* x [2, 32, h, w] less a number for each of 8 groups of channels, in blocks of channels or not. */
static ash_graph *groups(int64_t lanes, bool blocked, int64_t h, int64_t w) {
    ash_graph *g = new_graph();
    const ash_dim high = size(g, "h", 1, WIDEST, h), wide = size(g, "w", 1, WIDEST, w),
                  image = ash_graph_dim_mul(g, high, wide), row = ash_graph_dim_mul(g, image, 4);
    ash_value x = INPUT(g, "x", 2, 32, high, wide);
    ash_value rows = ash_reshape(g, x, (ash_dim[]){2, 8, row}, 3);
    ash_value means = ash_broadcast_to(g, INPUT(g, "m", 2, 8, 1), (ash_dim[]){2, 8, row}, 3);
    ash_value y = ash_sub(g, rows, means);
    if (blocked) {
        y = ash_reshape(g, y, (ash_dim[]){2, 32 / lanes, lanes, high, wide}, 5);
        y = ash_transpose(g, y, (int64_t[]){0, 1, 3, 4, 2});
    } else {
        y = ash_reshape(g, y, (ash_dim[]){2, 32, high, wide}, 4);
    }
    ash_graph_output(g, "y", ash_relu(g, y));
    return g;
}

/* What is read through a reshape to groups takes no division for each lane. */
static void groups_are_read_in_order(void **state) {
    (void)state;
    for (size_t l = 1; l < ASH_COUNT(levels); l++)
        for (int blocked = 0; blocked < 2; blocked++) {
            ash_target target;
            target_of(levels[l], &target);
            const int64_t lanes = ash_target_lanes(&target, sizeof(float));
            ash_graph *open = groups(lanes, blocked, 0, 0);
            ash_program *p = lowered(open, &target);
            for (size_t i = 0; i < p->nests.len; i++)
                for (size_t k = 0; k < p->nests.at[i].code.len; k++) {
                    const ash_inst *inst = &p->nests.at[i].code.at[k];
                    if (inst->op != ASH_NEST_IDIV && inst->op != ASH_NEST_IMOD) continue;
                    assert_true(
                        inst->lanes == 1 || ash_nest_at(&p->nests.at[i], inst->b)->op != ASH_NEST_SPLAT ||
                        ash_nest_at(&p->nests.at[i], ash_nest_at(&p->nests.at[i], inst->b)->a)->op ==
                            ASH_NEST_INT);
                }
            static const int64_t sizes[][2] = {{1, 1}, {3, 5}, {4, 16}, {7, 33}};
            for (size_t i = 0; i < ASH_COUNT(sizes); i++) {
                ash_graph *known = groups(lanes, blocked, sizes[i][0], sizes[i][1]);
                compare(open, p, known, sizes[i]);
                ash_graph_destroy(known);
            }
            ash_program__free(p);
            ash_graph_destroy(open);
        }
}

/* --- parts of rows ------------------------------------------------------------------------------------ */

/* Rows of w columns, three times side by side. */
static ash_graph *repeated(int64_t h, int64_t w) {
    ash_graph *g = new_graph();
    const ash_dim rows = size(g, "h", 1, WIDEST, h), columns = size(g, "w", 1, WIDEST, w);
    ash_value x = INPUT(g, "x", rows, 1, columns);
    x = ash_broadcast_to(g, x, (ash_dim[]){rows, 3, columns}, 3);
    ash_graph_output(g, "y", ash_reshape(g, x, (ash_dim[]){rows, ash_graph_dim_mul(g, columns, 3)}, 2));
    return g;
}

/* Columns that are repeated are copied, a row of them at a time. */
static void parts_are_copied(void **state) {
    (void)state;
    for (size_t l = 0; l < ASH_COUNT(levels); l++) {
        ash_target target;
        target_of(levels[l], &target);
        ash_graph *open = repeated(0, 0);
        ash_program *p = lowered(open, &target);
        for (size_t i = 0; i < p->nests.len; i++)
            for (size_t k = 0; k < p->nests.at[i].code.len; k++)
                assert_int_not_equal(p->nests.at[i].code.at[k].op, ASH_NEST_GATHER);
        for (int64_t w = 1; w <= WIDEST; w += w < 20 ? FINE : 5) {
            ash_graph *known = repeated(1 + w % 4, w);
            compare(open, p, known, (int64_t[]){1 + w % 4, w});
            ash_graph_destroy(known);
        }
        ash_program__free(p);
        ash_graph_destroy(open);
    }
}

/* --- sums of rows ------------------------------------------------------------------------------------- */

enum { SQUARES, MEANS, SOFT, TURNED, SUMS };

/* Of h rows of w numbers their sums of squares, their means, whose count is no kernel of its own, their
 * softmax, or the numbers times the exponentials of what those from the other end lack to the greatest: so
 * each is read in two places. */
static ash_graph *summed(int kind, int64_t h, int64_t w) {
    ash_graph *g = new_graph();
    const ash_dim rows = size(g, "h", 1, 300, h), columns = size(g, "w", 1, WIDEST, w);
    const ash_dim dims[] = {rows, columns}, last[] = {0, ash_graph_dim_sub(g, columns, 1)};
    ash_value x = INPUT(g, "x", rows, columns), y;
    if (kind == SQUARES) {
        y = ash_reduce_sum(g, ash_mul(g, x, x), (int64_t[]){1}, 1, false);
    } else if (kind == MEANS) {
        y = ash_reduce_mean(g, x, (int64_t[]){1}, 1, false);
    } else if (kind == SOFT) {
        y = ash_softmax(g, x, 1);
    } else {
        ash_value turned = ash_slice(g, x, last, (int64_t[]){1, -1}, dims);
        y = ash_sub(g, turned, ash_reduce_max(g, x, (int64_t[]){1}, 1, true));
        y = ash_mul(g, ash_exp(g, y), x);
    }
    ash_graph_output(g, "y", y);
    return g;
}

/* Rows of less than a vector are side by side, and the vector goes across them; longer ones go along it. */
static void short_sums_go_across(void **state) {
    (void)state;
    static const int64_t rows[] = {1, 15, 16, 17, 100};
    for (size_t l = 0; l < ASH_COUNT(levels); l++)
        for (int kind = 0; kind < SUMS; kind++) {
            ash_target target;
            target_of(levels[l], &target);
            ash_graph *open = summed(kind, 0, 0);
            ash_program *p = lowered(open, &target);
            size_t across = 0, along = 0;
            for (size_t k = 0; k < p->nests.at[0].code.len; k++) {
                across += p->nests.at[0].code.at[k].op == ASH_NEST_GATHER;
                along += p->nests.at[0].code.at[k].op == ASH_NEST_HREDUCE;
            }
            assert_int_equal(p->nests.len, 1);
            assert_true(along > 0);
            if (kind != TURNED) /* whose vectors are read by gathers anyhow */
                assert_int_equal(across > 0, target.masks == 1 || (target.masks && kind == SOFT));
            for (int64_t w = 1; w <= WIDEST; w += w < 18 ? 1 : 11) {
                const int64_t vars[] = {rows[w % 5], w};
                ash_wide *inputs = test_inputs(open, vars), *expected = test_expected(open, inputs, vars);
                void **memory = interpret(p, vars, inputs);
                test_compare_outputs(p, memory, expected, 1e-6);
                free_memory(p, memory);
                test_free_expected(open, expected);
                test_free_inputs(open, inputs);
            }
            ash_program__free(p);
            ash_graph_destroy(open);
        }
}

/* --- columns that are picked -------------------------------------------------------------------------- */

/* Twice w columns of h rows: column i takes column i * step / by, modulo w. */
static ash_graph *picked(int64_t step, int64_t by, int64_t h, int64_t w) {
    ash_graph *g = new_graph();
    const ash_dim rows = size(g, "h", 1, 300, h), columns = size(g, "w", 1, WIDEST, w);
    const ash_dim twice = ash_graph_dim_mul(g, columns, 2);
    ash_value x = ash_relu(g, INPUT(g, "x", rows, columns)), at = ash_iota(g, ASH_I64, &twice, 1, 0);
    at = ash_build__with(g, ASH_OP_DIV, ash_build__with(g, ASH_OP_MUL, at, (double)step), (double)by);
    at = ash_rem(g, at, ash_build__dim(g, columns));
    ash_graph_output(g, "y", ash_neg(g, ash_gather(g, x, at, 1)));
    return g;
}

/* Of columns that grow, one vector has all that another's lanes take: that is seen at run time, also that
 * it is not so. */
static void picked_columns(void **state) {
    (void)state;
    static const int64_t steps[][2] = {{1, 2}, {3, 4}, {7, 1}, {-1, 1}};
    for (size_t l = 0; l < ASH_COUNT(levels); l++)
        for (size_t i = 0; i < ASH_COUNT(steps); i++) {
            ash_target target;
            target_of(levels[l], &target);
            ash_graph *open = picked(steps[i][0], steps[i][1], 0, 0);
            ash_program *p = lowered(open, &target);
            size_t permutations = 0;
            for (size_t n = 0; n < p->nests.len; n++)
                for (size_t k = 0; k < p->nests.at[n].code.len; k++)
                    permutations += p->nests.at[n].code.at[k].op == ASH_NEST_PERMUTE;
            assert_int_equal(permutations != 0, target.masks != 0);
            for (int64_t w = 1; w <= WIDEST; w += w < 20 ? 3 : 7) {
                const int64_t h = w % 2 ? 3 : 290;
                ash_graph *known = picked(steps[i][0], steps[i][1], h, w);
                compare(open, p, known, (int64_t[]){h, w});
                ash_graph_destroy(known);
            }
            ash_program__free(p);
            ash_graph_destroy(open);
        }
}

/* --- compiled ----------------------------------------------------------------------------------------- */

/* What is interpreted above is what code generation makes. */
static void compiled(void **state) {
    (void)state;
    const int64_t lanes = ash_target_lanes(test_host(context), sizeof(float));
    for (size_t i = 0; i < 2 * ASH_COUNT(pools); i++) {
        ash_graph *g = pool(&pools[i / 2], ASH_OP_POOL_MAX, i % 2 ? lanes : 0, 0, 0);
        test_differential(context, g, (int64_t[]){17, 39}, 1e-6);
        ash_graph_destroy(g);
    }
    ash_graph *g = repeated(0, 0);
    test_differential(context, g, (int64_t[]){17, 39}, 0);
    ash_graph_destroy(g);
    for (int64_t w = 5; w < WIDEST; w += 11) {
        g = summed((int)(w % SUMS), 0, 0);
        test_differential(context, g, (int64_t[]){37, w}, 1e-6);
        ash_graph_destroy(g);
    }
    for (int64_t step = 1; step < 12; step += 10) {
        g = picked(step, 2, 0, 0);
        test_differential(context, g, (int64_t[]){290, 39}, 0);
        ash_graph_destroy(g);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pools_of_every_width),     cmocka_unit_test(short_rows_have_one_mask),
        cmocka_unit_test(looked_up_rows_are_short), cmocka_unit_test(halves_are_one_load),
        cmocka_unit_test(chunks_have_whole_lines),  cmocka_unit_test(middles_of_rows),
        cmocka_unit_test(chunks_follow_the_size),   cmocka_unit_test(groups_are_read_in_order),
        cmocka_unit_test(parts_are_copied),         cmocka_unit_test(short_sums_go_across),
        cmocka_unit_test(picked_columns),           cmocka_unit_test(compiled),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
