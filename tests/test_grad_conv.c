/* SPDX-License-Identifier: MIT */
/* The gradient of convolutions by their weights on images as large as networks have them, where the rule
 * lays them flat. A convolution is linear in its weights: the sum of their gradient times any weights u is
 * the sum of the result's gradient times the convolution with u. And by the rule for small images, one by
 * one. */
#include "ir_fixture.h"

#include <math.h>

#include "ashlar/plan.h"
#include "ashlar/reference.h"
#include "ashlar/train.h"

static ash_diag diag;

typedef struct shape {
    int64_t n, ins, outs, groups; /* channels of a group */
    unsigned space;
    int64_t size[3], kernel[3], stride[3], dilation[3], before[3], after[3];
} shape;

static const shape shapes[] = {
    {2, 3, 5, 1, 2, {12, 13}, {3, 3}, {1, 1}, {1, 1}, {1, 1}, {1, 1}},
    {1, 9, 4, 1, 2, {16, 12}, {3, 3}, {1, 1}, {1, 1}, {0, 0}, {0, 0}},
    {2, 9, 3, 2, 2, {12, 13}, {3, 2}, {1, 1}, {1, 1}, {1, 0}, {1, 1}}, /* groups */
    {2, 2, 3, 3, 2, {13, 12}, {1, 3}, {1, 1}, {1, 1}, {0, 2}, {0, 0}},
    {2, 3, 4, 1, 2, {29, 31}, {7, 7}, {2, 2}, {1, 1}, {3, 3}, {3, 3}}, /* strides */
    {1, 8, 4, 1, 2, {35, 32}, {3, 3}, {3, 2}, {1, 1}, {1, 1}, {1, 1}},
    {2, 8, 4, 1, 2, {24, 25}, {1, 1}, {2, 2}, {1, 1}, {0, 0}, {0, 0}},
    {1, 8, 3, 1, 2, {30, 30}, {3, 3}, {1, 1}, {3, 2}, {3, 2}, {3, 2}}, /* dilations */
    {1, 4, 3, 1, 2, {40, 30}, {3, 2}, {2, 1}, {3, 5}, {0, 4}, {4, 1}},
    {1, 4, 3, 1, 2, {26, 24}, {2, 2}, {2, 2}, {4, 4}, {0, 0}, {5, 5}},
    {2, 2, 3, 1, 1, {150}, {5}, {1}, {1}, {2}, {2}}, /* one axis, and three */
    {1, 8, 2, 1, 1, {400}, {4}, {3}, {2}, {0}, {7}},
    {1, 3, 2, 1, 3, {6, 7, 8}, {2, 3, 2}, {1, 1, 1}, {1, 1, 1}, {1, 1, 0}, {0, 1, 1}},
    {1, 9, 2, 1, 3, {9, 11, 12}, {3, 3, 3}, {2, 1, 2}, {1, 2, 1}, {1, 2, 1}, {1, 2, 1}},
    {1, 1, 2, 1, 1, {9001}, {3}, {1}, {1}, {1}, {1}}, /* runs in pieces */
    {1, 2, 2, 1, 2, {70, 130}, {3, 3}, {1, 1}, {1, 1}, {1, 1}, {1, 1}},
    {1, 1, 3, 1, 2, {140, 131}, {5, 2}, {1, 1}, {1, 1}, {0, 0}, {0, 0}},
};

static ash_type type_of(ash_dim first, ash_dim second, const shape *s, const int64_t *sizes) {
    ash_type type = {.dtype = ASH_F64, .rank = s->space + 2, .dims = {first, second}};
    memcpy(type.dims + 2, sizes, s->space * sizeof *sizes);
    return type;
}

static ash_value total(ash_graph *g, ash_value a, ash_value b) {
    int64_t axes[ASH_MAX_RANK];
    const unsigned rank = ash_graph_type(g, a)->rank;
    for (unsigned d = 0; d < rank; d++) axes[d] = d;
    return ash_reduce_sum(g, ash_mul(g, a, b), axes, rank, false);
}

static double *numbers(const ash_graph *g, ash_value v, unsigned seed) {
    int64_t count;
    assert_true(ash_type_static_count(ash_graph_type(g, v), &count));
    double *at = malloc(((size_t)count + 1) * sizeof *at);
    for (int64_t i = 0; i < count; i++) at[i] = sin((double)(i * i % 1009) * 0.7 + (double)i + seed);
    return at;
}

static void both_sums_agree(void **state) {
    fixture *f = *state;
    for (size_t i = 0; i < ASH_COUNT(shapes); i++) {
        const shape *s = &shapes[i];
        ash_graph *g = fresh(f);
        ash_window windows[3];
        for (unsigned d = 0; d < s->space; d++)
            windows[d] = (ash_window){.stride = s->stride[d],
                                      .dilation = s->dilation[d],
                                      .before = s->before[d],
                                      .after = s->after[d]};
        ash_value x = add_input(g, "x", type_of(s->n, s->groups * s->ins, s, s->size));
        ash_value w = add_input(g, "w", type_of(s->groups * s->outs, s->ins, s, s->kernel));
        ash_value u = add_input(g, "u", *ash_graph_type(g, w)), grad;
        ash_value y = ash_conv(g, x, w, windows, s->space, s->groups);
        ash_value seed = add_input(g, "seed", *ash_graph_type(g, y));
        assert_ok(ash_graph_gradients(g, &y, &seed, 1, &w, 1, NULL, &grad, &diag));
        ash_graph_output(g, "a", total(g, grad, u));
        ash_graph_output(g, "b", total(g, seed, ash_conv(g, x, u, windows, s->space, s->groups)));
        assert_ok(ash_graph_status(g, &diag));
        double *data[] = {numbers(g, x, 1), numbers(g, w, 2), numbers(g, u, 3), numbers(g, seed, 4)}, b;
        ash_reference *r;
        ash_plan *plan;
        const ash_view *view;
        assert_ok(ash_reference_run(g, (const void *const *)data, 4, NULL, NULL, 0, &r, &diag));
        const double a = ash_reference_output(r, 0, NULL, NULL)[0],
                     want = ash_reference_output(r, 1, NULL, NULL)[0];
        assert_true(fabs(want) > 1e-3);
        if (!(fabs(a - want) < 1e-9 * (1 + fabs(want))))
            fail_msg("shape %zu: %.15g, not %.15g", i, a, want);
        assert_ok(ash_plan_prepare(f->context, g, NULL, &plan, &diag));
        for (size_t k = 0; k < 4; k++) {
            const ash_type *type = ash_graph_type(g, ash_graph_input_at(g, k, NULL));
            int64_t count;
            assert_true(ash_type_static_count(type, &count));
            assert_ok(ash_plan_set_input(plan, k, NULL, data[k], (size_t)count * sizeof **data, &diag));
            free(data[k]);
        }
        assert_ok(ash_plan_execute(plan, &diag));
        assert_ok(ash_plan_output(plan, 0, &view, &diag));
        assert_ok(ash_view_copy_out(view, &b, sizeof b, &diag));
        assert_true(fabs(b - want) < 1e-9 * (1 + fabs(want)));
        ash_plan_destroy(plan);
        ash_reference_destroy(r);
    }
}

/* Nodes of a kind in the gradient. */
static size_t count_ops(const ash_graph *g, ash_op op) {
    size_t count = 0;
    for (size_t i = 0; i < g->nodes.len; i++) count += g->nodes.at[i].op == op;
    return count;
}

/* One group: a convolution more, whatever the batch is. Groups of large images: a product for each
 * position of the kernel, or for a row of it where channels are few. Nothing is gathered. */
static void what_it_is_made_of(void **state) {
    fixture *f = *state;
    static const struct {
        int64_t ins, groups;
        size_t convs, products;
    } cases[] = {{16, 1, 2, 0}, {3, 1, 2, 0}, {16, 2, 1, 9}, {3, 2, 1, 3}};
    for (size_t i = 0; i < ASH_COUNT(cases); i++) {
        ash_graph *g = fresh(f);
        const ash_dim n = ash_graph_var(g, "n", 1, 8);
        ash_value x = INPUT(g, "x", F32, n, cases[i].ins * cases[i].groups, 20, 20),
                  w = INPUT(g, "w", F32, 8, cases[i].ins, 3, 3);
        const ash_window window[] = {{.stride = 1, .dilation = 1, .before = 1, .after = 1},
                                     {.stride = 1, .dilation = 1, .before = 1, .after = 1}};
        ash_value y = ash_conv(g, x, w, window, 2, cases[i].groups), grad;
        assert_ok(ash_graph_gradients(g, &y, NULL, 1, &w, 1, NULL, &grad, &diag));
        assert_int_equal(count_ops(g, ASH_OP_CONV), cases[i].convs);
        assert_int_equal(count_ops(g, ASH_OP_MATMUL), cases[i].products);
        assert_int_equal(count_ops(g, ASH_OP_GATHER), 0);
        assert_ok(ash_graph_verify(g, &diag));
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {IR_TEST(both_sums_agree), IR_TEST(what_it_is_made_of)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
