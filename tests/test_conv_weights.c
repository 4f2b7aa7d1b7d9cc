/* SPDX-License-Identifier: MIT */
/* The kernel of convolutions' gradients by their weights: strides, dilations and paddings in one and
 * two dims, operands in blocks and plain, tiles and strips that are not whole, images of several slabs
 * and slabs of several images, a batch that is a variable and may be 0. Against the sums in double
 * precision, on all levels of processors that this machine has. */
#include "ashlar/builder.h"
#include "differential.h"
#include "one_context.h"

static ash_compiler *compiler;

static int setup(void **state) {
    (void)state;
    if (open_context(1)) return 1;
    return ash_compiler__get(context, &compiler, NULL) != ASH_OK;
}

typedef struct shape {
    int64_t n, c, x_block, o, y_block; /* n 0: a variable up to 5 */
    unsigned space;
    int64_t in[2], out[2], stride[2], dilation[2], before[2], kernel[2];
} shape;

static const shape shapes[] = {
    {2, 16, 16, 32, 16, 2, {9, 11}, {9, 11}, {1, 1}, {1, 1}, {1, 1}, {3, 3}},
    {8, 32, 16, 80, 16, 2, {7, 7}, {7, 7}, {1, 1}, {1, 1}, {1, 1}, {3, 3}},   /* slabs of images; strips */
    {3, 3, 0, 32, 16, 2, {33, 41}, {17, 21}, {2, 2}, {1, 1}, {3, 3}, {7, 7}}, /* plain */
    {2, 24, 8, 40, 8, 2, {30, 31}, {15, 16}, {2, 2}, {1, 1}, {1, 1}, {3, 3}},
    {1, 5, 0, 4, 4, 2, {13, 60}, {13, 60}, {1, 1}, {3, 2}, {3, 2}, {3, 3}},
    {2, 96, 8, 24, 8, 2, {14, 14}, {14, 14}, {1, 1}, {1, 1}, {0, 0}, {1, 1}},
    {2, 16, 16, 16, 16, 2, {15, 15}, {8, 8}, {2, 2}, {1, 1}, {0, 0}, {1, 1}},
    {0, 8, 8, 16, 8, 2, {12, 12}, {12, 12}, {1, 1}, {1, 1}, {1, 1}, {3, 3}},  /* any batch */
    {2, 8, 4, 8, 4, 1, {1000, 0}, {333, 0}, {3, 0}, {2, 0}, {2, 0}, {4, 0}},  /* one dim */
    {1, 2, 0, 8, 8, 2, {3, 3}, {5, 5}, {1, 1}, {1, 1}, {4, 4}, {5, 5}},       /* places outside */
    {1, 272, 16, 272, 16, 2, {5, 6}, {5, 6}, {1, 1}, {1, 1}, {1, 1}, {3, 3}}, /* chunks of several blocks */
};

static ash_value operand(ash_graph *g, const char *name, ash_dim n, int64_t channels, int64_t block,
                         const shape *s, const int64_t *sizes) {
    ash_type type = {.dtype = ASH_F32, .rank = 2, .dims = {n, block ? channels / block : channels}};
    for (unsigned d = 0; d < s->space; d++) type.dims[type.rank++] = sizes[d];
    if (block) type.dims[type.rank++] = block;
    return ash_graph_input(g, name, &type);
}

/* With what follows in the same kernel, stored in another order, and the same gradient as it is. */
static ash_graph *make(const shape *s) {
    ash_graph *g;
    ash_diag diag;
    ash_value y;
    assert_ok(ash_graph_create(context, "test", &g, &diag));
    const ash_dim n = s->n ? s->n : ash_graph_var(g, "n", 0, 5);
    const ash_value ins[] = {operand(g, "x", n, s->c, s->x_block, s, s->in),
                             operand(g, "g", n, s->o, s->y_block, s, s->out)};
    const ash_attr attrs[] = {ASH_ATTR_LIST(STRIDES, s->stride, s->space),
                              ASH_ATTR_LIST(DILATIONS, s->dilation, s->space),
                              ASH_ATTR_LIST(BEFORE, s->before, s->space),
                              ASH_ATTR_LIST(KERNEL, s->kernel, s->space),
                              ASH_ATTR_I(X_BLOCK, s->x_block),
                              ASH_ATTR_I(Y_BLOCK, s->y_block)};
    g->internal = true;
    assert_ok(ash_graph_add(g, ASH_OP_CONV_WEIGHTS, ins, 2, attrs, ASH_COUNT(attrs), &y));
    int64_t perm[ASH_MAX_RANK] = {s->space + 1, s->space};
    for (unsigned d = 0; d < s->space; d++) perm[2 + d] = d;
    ash_graph_output(g, "turned", ash_mul(g, ash_transpose(g, y, perm), ash_scalar(g, ASH_F32, 0.5)));
    assert_ok(ash_graph_add(g, ASH_OP_CONV_WEIGHTS, ins, 2, attrs, ASH_COUNT(attrs), &y));
    ash_graph_output(g, "y", y);
    return g;
}

static void sums_are_those_of_the_definition(void **state) {
    (void)state;
    static const char *const names[] = {"x86-64", "x86-64-v3", "x86-64-v4"};
    for (size_t i = 0; i < ASH_COUNT(shapes); i++)
        for (int64_t batch = 0; batch <= (shapes[i].n ? 0 : 3); batch += 3) {
            ash_graph *g = make(&shapes[i]);
            ash_wide *inputs = test_inputs(g, &batch), *expected = test_expected(g, inputs, &batch);
            for (size_t l = 0; l < ASH_COUNT(names); l++) {
                ash_target target;
                ash_program *p;
                ash_diag diag;
                assert_ok(ash_target__named(names[l], &target, &diag));
                if (ash_target__check_runs(ash_compiler__target(compiler), &target, &diag) != ASH_OK ||
                    ash_target_lanes(&target, sizeof(float)) < (unsigned)shapes[i].y_block)
                    continue;
                assert_ok(ash_program__lower(g, &target, NULL, &p, &diag));
                void **memory = calloc(p->buffers.len, sizeof *memory);
                test_run_program(context, p, inputs, &batch, memory);
                test_compare_outputs(p, memory, expected, 1e-5);
                for (size_t b = 0; b < p->buffers.len; b++) free(memory[b]);
                free(memory);
                ash_program__free(p);
            }
            test_free_expected(g, expected);
            test_free_inputs(g, inputs);
            ash_graph_destroy(g);
        }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(sums_are_those_of_the_definition)};
    return cmocka_run_group_tests(tests, setup, tear_down);
}
