/* SPDX-License-Identifier: MIT */
/* Winograd convolutions: the transforms, the kernel against direct convolutions in double precision, where
 * the pass takes them, and what plans with them promise. */
#include "ashlar/plan.h"
#include "code/code.h"
#include "ir/winograd.h"
#include "kernel/program.h"
#include "opt_testing.h"

/* --- transforms ------------------------------------------------------------------------------------- */

/* A^T ((G g) . (B^T d)) is the convolution of d and g. */
static void transforms_convolve(void **state) {
    fixture *f = *state;
    for (unsigned m = 2; m <= ASH_WINOGRAD_TILE; m += 2) {
        ash_winograd w;
        double d[ASH_WINOGRAD_SIZE], g[3];
        assert_true(ash_winograd_make(m, &w));
        assert_int_equal(w.tile, m);
        for (unsigned i = 0; i < w.size; i++) d[i] = uniform(&f->random);
        for (unsigned i = 0; i < 3; i++) g[i] = uniform(&f->random);
        for (unsigned k = 0; k < m; k++) {
            double y = 0;
            for (unsigned p = 0; p < w.size; p++) {
                double u = 0, v = 0;
                for (unsigned i = 0; i < 3; i++) u += w.kernel[p][i] * g[i];
                for (unsigned i = 0; i < w.size; i++) v += w.input[p][i] * d[i];
                y += w.output[k][p] * u * v;
            }
            double direct = d[k] * g[0] + d[k + 1] * g[1] + d[k + 2] * g[2];
            assert_true(fabs(y - direct) < 1e-13);
        }
    }
    ash_winograd none;
    assert_false(ash_winograd_make(3, &none));
    assert_false(ash_winograd_make(8, &none));
}

/* --- the kernel ------------------------------------------------------------------------------------- */

typedef struct shape {
    int64_t n, c, o, rows, columns;
    ash_dim before[2], after[2];
    int64_t x_block, y_block, w_block, tile;
    unsigned epilogue;
} shape;

/* [n, c, h, w] to [n, c/B, h, w, B] and back. */
static ash_value pack(ash_graph *g, ash_value x, int64_t block) {
    const ash_dim *d = ash_graph__type(g, x)->dims;
    x = ash_reshape(g, x, (ash_dim[]){d[0], d[1] / block, block, d[2], d[3]}, 5);
    return ash_transpose(g, x, (int64_t[]){0, 1, 3, 4, 2});
}
static ash_value unpack(ash_graph *g, ash_value x) {
    x = ash_transpose(g, x, (int64_t[]){0, 1, 4, 2, 3});
    const ash_dim *d = ash_graph__type(g, x)->dims;
    return ash_reshape(g, x, (ash_dim[]){d[0], d[1] * d[2], d[3], d[4]}, 4);
}

/* [o, c, 3, 3] -> [1, ceil(o/B), c/I, 3, 3, I, B] */
static ash_value packed(ash_graph *g, ash_value w, const shape *s) {
    int64_t blocks = (s->o + s->w_block - 1) / s->w_block;
    int64_t none[4] = {0}, after[4] = {blocks * s->w_block - s->o, 0, 0, 0};
    ash_attr attrs[] = {ASH_ATTR_LIST(BEFORE, none, 4), ASH_ATTR_LIST(AFTER, after, 4),
                        ASH_ATTR_LIST(INTERIOR, none, 4)};
    ash_value ins[] = {w, ash_scalar(g, ASH_F32, 0)};
    ash_graph_add(g, ASH_OP_PAD, ins, 2, attrs, 3, &w);
    w = ash_reshape(g, w, (ash_dim[]){1, blocks, s->w_block, s->c / s->x_block, s->x_block, 3, 3}, 7);
    return ash_transpose(g, w, (int64_t[]){0, 1, 3, 5, 6, 4, 2});
}

static ash_value winograd(ash_graph *g, ash_value x, ash_value w, const shape *s) {
    ash_attr attrs[] = {ASH_ATTR_LIST(BEFORE, s->before, 2), ASH_ATTR_LIST(AFTER, s->after, 2),
                        ASH_ATTR_I(Y_BLOCK, s->y_block), ASH_ATTR_I(O, s->o), ASH_ATTR_I(TILE, s->tile)};
    ash_value ins[] = {pack(g, x, s->x_block), packed(g, w, s)}, y;
    g->internal = true;
    ash_graph_add(g, ASH_OP_WINOGRAD, ins, 2, attrs, 5, &y);
    return y;
}

static ash_value direct(ash_graph *g, ash_value x, ash_value w, const shape *s) {
    ash_window windows[2];
    for (unsigned i = 0; i < 2; i++) windows[i] = (ash_window){0, 1, 1, s->before[i], s->after[i]};
    return pack(g, ash_conv(g, x, w, windows, 2, 1), s->y_block);
}

/* What follows in the same kernel, in the blocked form. */
static ash_value epilogue(fixture *f, ash_value y, unsigned which) {
    ash_graph *g = f->g;
    ash_type type = *ash_graph__type(g, y), bias = TYPE(ASH_F32, type.dims[1], 1, 1, type.dims[4]);
    switch (which) {
    case 1: return ash_relu(g, ash_add(g, y, random_leaf(f, NULL, bias)));
    case 2: return ash_relu(g, ash_add(g, ash_add(g, y, random_leaf(f, NULL, bias)), input(f, "r", type)));
    case 3: return ash_mul(g, y, ash_sigmoid(g, y));
    case 4: {
        ash_value parts[] = {ash_relu(g, y), ash_neg(g, input(f, "r", type)), y};
        return ash_concat(g, parts, 3, 1);
    }
    default: return y;
    }
}

static void build(fixture *f, const shape *s, ash_dim batch, bool tiled) {
    restart(f);
    f->random = 5;
    ash_value x = INPUT(f, "x", ASH_F32, batch, s->c, s->rows, s->columns);
    ash_value w = CONSTANT(f, ASH_F32, s->o, s->c, 3, 3);
    ash_value y = tiled ? winograd(f->g, x, w, s) : direct(f->g, x, w, s);
    ash_graph_output(f->g, "y", unpack(f->g, epilogue(f, y, s->epilogue)));
}

/* Gives a plan the inputs that `evaluate` gives the evaluator. */
static void set_inputs(ash_plan *plan, uint64_t seed) {
    ash_diag diag;
    for (size_t i = 0; i < ash_plan_input_count(plan); i++) {
        ash_type type;
        int64_t count;
        uint64_t random = seed + i;
        assert_ok(ash_plan_input_type(plan, i, &type, &diag));
        assert_true(ash_type_static_count(&type, &count));
        float *data = malloc((size_t)count * sizeof *data + 1);
        for (int64_t e = 0; e < count; e++) data[e] = (float)uniform(&random);
        assert_ok(ash_plan_set_input(plan, i, NULL, data, (size_t)count * sizeof *data, &diag));
        free(data);
    }
}

static const float *output_of(ash_plan *plan, size_t *size) {
    ash_diag diag;
    const ash_view *view;
    const void *data;
    assert_ok(ash_plan_output(plan, 0, &view, &diag));
    assert_ok(ash_view_data(view, &data, &diag));
    *size = (size_t)ash_view_bytes(view);
    return data;
}

/* Errors of what the plan has computed: in the 2-norm, and the largest one relative to the largest
 * element. */
typedef struct errors {
    double norm, most;
} errors;

static errors errors_of(ash_plan *plan, const ash_wide *want) {
    size_t size;
    const float *got = output_of(plan, &size);
    double error = 0, norm = 0, most = 0, largest = 0;
    assert_int_equal(size, (size_t)want->count * sizeof *got);
    for (int64_t i = 0; i < want->count; i++) {
        double e = got[i] - want->f[i];
        assert_true(isfinite(e));
        error += e * e;
        norm += want->f[i] * want->f[i];
        most = fmax(most, fabs(e));
        largest = fmax(largest, fabs(want->f[i]));
    }
    return (errors){sqrt(error) / sqrt(norm), most / largest};
}

static double error_of(ash_plan *plan, const ash_wide *want) {
    return errors_of(plan, want).norm;
}

/* Tiles of 2 are as exact as the direct convolution, those of 4 lose a bit, those of 6 three more. */
static double bound(int64_t tile) {
    return tile == 2 ? 1e-6 : tile == 4 ? 2e-6 : 2e-5;
}

static void check(fixture *f, const shape *s, const ash_plan_options *options) {
    ash_diag diag;
    ash_plan *plan;
    build(f, s, s->n, true);
    assert_ok(ash_plan_prepare(f->context, f->g, options, &plan, &diag));
    set_inputs(plan, 7);
    assert_ok(ash_plan_execute(plan, &diag));
    build(f, s, s->n, false);
    results want = evaluate(f->g, ASH_EVAL_DOUBLE, 7, false, NULL);
    double error = error_of(plan, &want.at[0]);
    if (!(error <= bound(s->tile)))
        fail_msg("n %d c %d o %d, %d x %d, before %d %d, after %d %d, blocks %d %d %d, tile %d, epilogue "
                 "%u: error "
                 "%g",
                 (int)s->n, (int)s->c, (int)s->o, (int)s->rows, (int)s->columns, (int)s->before[0],
                 (int)s->before[1], (int)s->after[0], (int)s->after[1], (int)s->x_block, (int)s->y_block,
                 (int)s->w_block, (int)s->tile, s->epilogue, error);
    free_results(f->g, &want);
    ash_plan_destroy(plan);
}

static void random_shapes(void **state) {
    fixture *f = *state;
    uint64_t random = 11;
    ash_plan_options options = ash_plan_options_default();
    for (int i = 0; i < 36; i++) {
        int64_t xb = INT64_C(4) << below(&random, 3), yb = INT64_C(2) << below(&random, 4);
        shape s = {.n = 1 + below(&random, 3),
                   .c = xb * (1 + below(&random, 5)),
                   .o = yb * (1 + below(&random, 6)),
                   .rows = 1 + below(&random, 20),
                   .columns = 1 + below(&random, 20),
                   .x_block = xb,
                   .y_block = yb,
                   .w_block = ASH_MAX(yb, 4) * (1 + below(&random, 2)),
                   .tile = 2 + 2 * below(&random, 3),
                   .epilogue = below(&random, 5)};
        for (unsigned d = 0; d < 2; d++) {
            int64_t size = d ? s.columns : s.rows;
            s.before[d] = below(&random, 3), s.after[d] = below(&random, 4);
            if (size + s.before[d] + s.after[d] < 3) s.after[d] = 3 - size;
        }
        check(f, &s, &options);
    }
}

/* The figures of docs/codegen.md: 256 channels, all numbers uniform in [-1, 1). */
static void errors_by_tile(void **state) {
    fixture *f = *state;
    ash_diag diag;
    ash_plan_options options = ash_plan_options_default();
    options.no_winograd = true;
    for (int64_t tile = 0; tile <= 6; tile += 2) { /* 0: direct */
        shape s = {1, 256, 64, 24, 24, {1, 1}, {1, 1}, 8, 8, 8, tile, 0};
        ash_plan *plan;
        build(f, &s, s.n, tile != 0);
        assert_ok(ash_plan_prepare(f->context, f->g, &options, &plan, &diag));
        set_inputs(plan, 7);
        assert_ok(ash_plan_execute(plan, &diag));
        build(f, &s, s.n, false);
        results want = evaluate(f->g, ASH_EVAL_DOUBLE, 7, false, NULL);
        errors e = errors_of(plan, &want.at[0]);
        print_message("tiles of %d: error %.2e, largest %.2e\n", (int)tile, e.norm, e.most);
        assert_true(e.norm <= bound(tile ? tile : 2) && e.most <= 4 * bound(tile ? tile : 2));
        free_results(f->g, &want);
        ash_plan_destroy(plan);
    }
}

/* Many blocks of tiles, many parts of output channels, on several threads. */
static void large_shapes(void **state) {
    fixture *f = *state;
    ash_plan_options options = ash_plan_options_default();
    static const shape shapes[] = {
        {2, 96, 40, 30, 45, {1, 1}, {1, 1}, 8, 8, 8, 4, 2},    /* five vectors */
        {1, 64, 296, 19, 14, {1, 1}, {1, 1}, 16, 8, 16, 4, 1}, /* parts of parts */
        {1, 520, 72, 12, 12, {0, 1}, {1, 0}, 8, 8, 8, 2, 0},
    };
    for (size_t i = 0; i < ASH_COUNT(shapes); i++) check(f, &shapes[i], &options);
}

/* Rows, columns and images that are known when it runs. */
static void variable_sizes(void **state) {
    fixture *f = *state;
    ash_diag diag;
    shape s = {1, 64, 48, 11, 14, {1, 1}, {1, 1}, 8, 8, 8, 4, 1};
    restart(f);
    f->random = 5;
    ash_dim n = ash_graph_var(f->g, "n", 1, 4), h = ash_graph_var(f->g, "h", 1, 40),
            w = ash_graph_var(f->g, "w", 1, 30);
    ash_value x = INPUT(f, "x", ASH_F32, n, s.c, h, w), k = CONSTANT(f, ASH_F32, s.o, s.c, 3, 3);
    ash_graph_output(f->g, "y", unpack(f->g, epilogue(f, winograd(f->g, x, k, &s), s.epilogue)));
    ash_graph *tiled = f->g;
    f->g = NULL;
    ash_plan *plan;
    assert_ok(ash_plan_prepare(f->context, tiled, NULL, &plan, &diag));
    static const int64_t sizes[][3] = {{1, 1, 1}, {2, 24, 30}, {2, 7, 9}, {3, 13, 4}, {1, 2, 29}};
    for (size_t i = 0; i < ASH_COUNT(sizes); i++) {
        ash_var_binding vars[] = {{"n", sizes[i][0]}, {"h", sizes[i][1]}, {"w", sizes[i][2]}};
        s.rows = sizes[i][1], s.columns = sizes[i][2];
        assert_ok(ash_plan_set_vars(plan, vars, 3, &diag));
        set_inputs(plan, 7);
        assert_ok(ash_plan_execute(plan, &diag));
        build(f, &s, sizes[i][0], false);
        results want = evaluate(f->g, ASH_EVAL_DOUBLE, 7, false, NULL);
        assert_true(error_of(plan, &want.at[0]) <= bound(s.tile));
        free_results(f->g, &want);
    }
    ash_plan_destroy(plan);
    ash_graph_destroy(tiled);
}

/* Where it depends on sizes whether the algorithm pays, the kernel sees when it runs: as it is decided
 * where the size is a number. Tiles of 4 lose a bit, which tells the two from each other. */
static void sizes_decide_when_it_runs(void **state) {
    fixture *f = *state;
    ash_diag diag;
    enum { MOST = 30, CASES = 2 };
    const double between = 4.2e-7;
    static const int64_t channels[CASES][2] = {{64, 64}, {64, 96}}, sizes[] = {0, 4, 8, 13, 17, 24, 28};
    for (size_t i = 0; i < CASES; i++) {
        ash_plan *open = NULL, *known;
        unsigned taken[2] = {0};
        for (size_t k = 0; k < ASH_COUNT(sizes); k++) { /* 0: variables */
            const int64_t s = sizes[k];
            restart(f);
            f->random = 5;
            ash_dim h = s ? s : ash_graph_var(f->g, "h", 1, MOST),
                    w = s ? s : ash_graph_var(f->g, "w", 1, MOST);
            ash_value x = INPUT(f, "x", ASH_F32, 1, channels[i][0], h, w),
                      weights = CONSTANT(f, ASH_F32, channels[i][1], channels[i][0], 3, 3);
            ash_value y = ash_conv2d(f->g, x, weights, 1, 1, 1);
            ash_graph_output(f->g, "y", ash_add(f->g, y, INPUT(f, "r", ASH_F32, 1, channels[i][1], h, w)));
            assert_ok(ash_plan_prepare(f->context, f->g, NULL, s ? &known : &open, &diag));
            if (!s) continue;
            const ash_var_binding vars[] = {{"h", s}, {"w", s}};
            assert_ok(ash_plan_set_vars(open, vars, 2, &diag));
            results want = evaluate(f->g, ASH_EVAL_DOUBLE, 7, false, NULL);
            ash_plan *plans[] = {known, open};
            double error[2];
            for (unsigned p = 0; p < 2; p++) {
                set_inputs(plans[p], 7);
                assert_ok(ash_plan_execute(plans[p], &diag));
                error[p] = error_of(plans[p], &want.at[0]);
            }
            if ((error[0] > between) != (error[1] > between))
                fail_msg("%d channels, %d rows: %g as a number, %g as a variable", (int)channels[i][0],
                         (int)s, error[0], error[1]);
            taken[error[0] > between]++;
            free_results(f->g, &want);
            ash_plan_destroy(known);
        }
        assert_true(taken[0] && taken[1]); /* both are met */
        ash_plan_destroy(open);
    }
}

/* --- the pass --------------------------------------------------------------------------------------- */

enum { CHANNELS = 64, SIZE = 28 };

static ash_value conv3(fixture *f, ash_value x, ash_value w) {
    return ash_conv2d(f->g, x, w, 1, 1, 1);
}

/* The tiles of the n-th Winograd convolution of the optimised graph; 0: there is none. */
static int64_t tile_of(fixture *f, ash_opt_options options, size_t n) {
    ash_diag diag;
    ash_target target = target_of(8);
    assert_ok(optimise(f, NULL, &target, options, &diag));
    const ash_node *node = find_op(f->out, ASH_OP_WINOGRAD, n);
    return node ? ash_node_int(node, ASH_ATTR_TILE) : 0;
}

static void where_it_pays(void **state) {
    fixture *f = *state;
    static const struct {
        int64_t c, o, rows, columns, tile;
    } rows[] = {{64, 64, 56, 56, 4},  {256, 256, 14, 14, 4}, {96, 208, 14, 14, 4}, {512, 512, 7, 7, 0},
                {3, 64, 224, 224, 0}, {8, 8, 40, 40, 4},     {8, 8, 6, 6, 0},      {64, 64, 2, 2, 0}};
    for (size_t i = 0; i < ASH_COUNT(rows); i++) {
        restart(f);
        ash_value x = INPUT(f, "x", ASH_F32, 1, rows[i].c, rows[i].rows, rows[i].columns);
        ash_graph_output(f->g, "y", conv3(f, x, CONSTANT(f, ASH_F32, rows[i].o, rows[i].c, 3, 3)));
        if (tile_of(f, (ash_opt_options){0}, 0) != rows[i].tile)
            fail_msg("%d to %d channels of %d x %d: tiles of %d", (int)rows[i].c, (int)rows[i].o,
                     (int)rows[i].rows, (int)rows[i].columns, (int)tile_of(f, (ash_opt_options){0}, 0));
    }
}

typedef ash_value build_net(fixture *f, ash_value x, ash_value w);

static ash_value plain(fixture *f, ash_value x, ash_value w) {
    return conv3(f, x, w);
}
static ash_value weights_of_input(fixture *f, ash_value x, ash_value w) {
    return conv3(f, x, ash_add(f->g, w, INPUT(f, "v", ASH_F32, 1)));
}
static ash_value strided(fixture *f, ash_value x, ash_value w) {
    return ash_conv2d(f->g, x, w, 2, 1, 1);
}
static ash_value dilated(fixture *f, ash_value x, ash_value w) {
    ash_window window = {0, 1, 2, 2, 2}, windows[] = {window, window};
    return ash_conv(f->g, x, w, windows, 2, 1);
}
static ash_value grouped(fixture *f, ash_value x, ash_value w) {
    (void)w;
    return ash_conv2d(f->g, x, CONSTANT(f, ASH_F32, CHANNELS, CHANNELS / 2, 3, 3), 1, 1, 2);
}
static ash_value doubles(fixture *f, ash_value x, ash_value w) {
    return conv3(f, ash_cast(f->g, x, ASH_F64), ash_cast(f->g, w, ASH_F64));
}
static ash_value halves(fixture *f, ash_value x, ash_value w) { /* computed in f32 */
    return ash_relu(f->g, conv3(f, ash_cast(f->g, x, ASH_F16), ash_cast(f->g, w, ASH_F16)));
}
/* As a quantised network does: scaled, shifted, rounded, cut. */
static ash_value quantised(fixture *f, ash_value x, ash_value w) {
    ash_value y = ash_relu(f->g, conv3(f, x, w));
    y = ash_round(f->g, ash_div(f->g, y, CONSTANT(f, ASH_F32, 1)));
    return ash_cast(f->g, ash_min(f->g, y, CONSTANT(f, ASH_F32, 1)), ASH_I8);
}
static ash_value pooled_and_cast(fixture *f, ash_value x, ash_value w) {
    ash_window window = {2, 2, 1, 0, 0}, windows[] = {window, window};
    ash_value y = ash_mul(f->g, conv3(f, x, w), CONSTANT(f, ASH_F32, 1));
    return ash_cast(f->g, ash_pool(f->g, ASH_OP_POOL_MAX, y, (int64_t[]){2, 3}, windows, 2), ASH_I32);
}
/* The second convolution stands between the first and the rounding. */
static ash_value rounded_later(fixture *f, ash_value x, ash_value w) {
    return quantised(f, conv3(f, x, w), CONSTANT(f, ASH_F32, CHANNELS, CHANNELS, 3, 3));
}
static ash_value compared(fixture *f, ash_value x, ash_value w) { /* a leaky relu */
    ash_value y = conv3(f, x, w), zero = ash_mul(f->g, y, ash_scalar(f->g, ASH_F32, 0));
    return ash_select(f->g, ash_lt(f->g, zero, y), y, ash_mul(f->g, y, ash_scalar(f->g, ASH_F32, 0.1)));
}

static void where_it_is_exact_enough(void **state) {
    fixture *f = *state;
    static const struct {
        const char *name;
        build_net *build;
        bool taken;
    } nets[] = {{"plain", plain, true},
                {"weights_of_input", weights_of_input, false},
                {"strided", strided, false},
                {"dilated", dilated, false},
                {"grouped", grouped, false},
                {"doubles", doubles, false},
                {"halves", halves, false},
                {"quantised", quantised, false},
                {"pooled_and_cast", pooled_and_cast, false},
                {"rounded_later", rounded_later, true},
                {"compared", compared, true}};
    for (size_t i = 0; i < ASH_COUNT(nets); i++) {
        restart(f);
        ash_value x = INPUT(f, "x", ASH_F32, 1, CHANNELS, SIZE, SIZE);
        ash_value y = nets[i].build(f, x, CONSTANT(f, ASH_F32, CHANNELS, CHANNELS, 3, 3));
        ash_graph_output(f->g, "y", y);
        if ((tile_of(f, (ash_opt_options){0}, 0) != 0) != nets[i].taken) fail_msg("%s", nets[i].name);
        assert_int_equal(tile_of(f, (ash_opt_options){0}, 1), 0);
        assert_int_equal(tile_of(f, (ash_opt_options){.level = ASH_OPT_EXACT}, 0), 0);
    }
}

static void variables_in_the_pass(void **state) {
    fixture *f = *state;
    for (unsigned last = 0; last < 2; last++) {
        restart(f);
        ash_dim v = ash_graph_var(f->g, "v", 1, SIZE);
        ash_value x = INPUT(f, "x", ASH_F32, 1, CHANNELS, last ? SIZE : v, last ? v : SIZE);
        ash_graph_output(f->g, "y", conv3(f, x, CONSTANT(f, ASH_F32, CHANNELS, CHANNELS, 3, 3)));
        assert_int_equal(tile_of(f, (ash_opt_options){0}, 0), 4);
    }
}

/* The largest scratch memory of the kernel of 128 channels of images of n x n, or of up to four times as
 * many. */
static int64_t scratch_of(fixture *f, int64_t n, bool varies) {
    ash_diag diag;
    ash_program *p;
    ash_target target;
    int64_t most = 0;
    assert_ok(ash_target__named("x86-64-v4", &target, &diag));
    target.l2_bytes = 2 << 20;
    restart(f);
    const ash_dim h = varies ? ash_graph_var(f->g, "h", 1, 4 * n) : n,
                  w = varies ? ash_graph_var(f->g, "w", 1, 4 * n) : n;
    ash_graph_output(f->g, "y",
                     conv3(f, INPUT(f, "x", ASH_F32, 1, 128, h, w), CONSTANT(f, ASH_F32, 128, 128, 3, 3)));
    assert_ok(optimise(f, NULL, &target, (ash_opt_options){0}, &diag));
    assert_ok(ash_program__lower(f->out, &target, NULL, &p, &diag));
    for (size_t i = 0; i < p->buffers.len; i++)
        if (p->buffers.at[i].kind == ASH_BUFFER_SCRATCH) most = ASH_MAX(most, p->buffers.at[i].bytes);
    ash_program__free(p);
    return most;
}

/* Blocks of tiles are as large for an image under four times its size as where that is a number: with
 * blocks for the largest alone, its weights would be transformed more often. */
static void blocks_suit_smaller_images(void **state) {
    const int64_t known = scratch_of(*state, 31, false);
    assert_true(known > 0);
    assert_int_equal(scratch_of(*state, 31, true), known);
}

/* --- plans ------------------------------------------------------------------------------------------ */

/* Two convolutions that the pass takes, the second with a residual; weights are parameters. */
static void two_layers(fixture *f) {
    restart(f);
    ash_value x = INPUT(f, "x", ASH_F32, 2, 40, 23, 30);
    ash_value w = PARAMETER(f, "w", ASH_F32, 56, 40, 3, 3), v = CONSTANT(f, ASH_F32, 56, 56, 3, 3);
    ash_value y = ash_relu(f->g, conv3(f, x, w));
    ash_graph_output(f->g, "y", ash_relu(f->g, ash_add(f->g, conv3(f, y, v), y)));
}

static unsigned winograd_steps(ash_plan *plan) {
    unsigned n = 0;
    for (size_t i = 0; i < ash_plan_op_count(plan); i++) {
        ash_prepared_op op = ASH_INIT(ash_prepared_op);
        ash_diag diag;
        assert_ok(ash_plan_op_at(plan, i, &op, &diag));
        n += strstr(op.name, "winograd") != NULL;
    }
    return n;
}

static void parameters_are_transformed_again(void **state) {
    fixture *f = *state;
    ash_diag diag;
    ash_plan *plan;
    two_layers(f);
    assert_ok(ash_plan_prepare(f->context, f->g, NULL, &plan, &diag));
    assert_int_equal(winograd_steps(plan), 2);
    set_inputs(plan, 7);
    for (unsigned turn = 0; turn < 3; turn++) {
        assert_ok(ash_plan_execute(plan, &diag));
        results want = evaluate(f->g, ASH_EVAL_DOUBLE, 7, false, NULL);
        assert_true(error_of(plan, &want.at[0]) <= 2 * bound(4));
        free_results(f->g, &want);
        ash_value_info *w = &f->g->values.at[1]; /* the same graph with other weights */
        assert_int_equal(w->kind, ASH_VALUE_PARAMETER);
        float data[56 * 40 * 9];
        for (size_t i = 0; i < ASH_COUNT(data); i++) data[i] = (float)uniform(&f->random);
        assert_ok(ash_plan_set_parameter(plan, "w", NULL, data, sizeof data, &diag));
        memcpy((void *)w->blob->data, data, sizeof data);
    }
    ash_plan_destroy(plan);
}

static void same_bits_everywhere(void **state) {
    fixture *f = *state;
    ash_diag diag;
    float *first = NULL;
    size_t size = 0;
    two_layers(f);
    for (unsigned mode = 0; mode < ASH_MODE_COUNT; mode++)
        for (unsigned threads = 1; threads <= 3; threads++) {
            ash_plan_options options = ash_plan_options_default();
            ash_plan *plan;
            options.mode = (ash_mode)mode;
            options.streams = mode == ASH_MODE_MULTI_STREAM ? 2 : 0;
            options.threads = threads;
            options.poison = true;
            assert_ok(ash_plan_prepare(f->context, f->g, &options, &plan, &diag));
            set_inputs(plan, 7);
            for (unsigned turn = 0; turn < 2; turn++) assert_ok(ash_plan_execute(plan, &diag));
            const float *got = output_of(plan, &size);
            if (!first) first = memcpy(malloc(size), got, size);
            assert_memory_equal(first, got, size);
            ash_plan_destroy(plan);
        }
    free(first);
}

/* Weights are kept as the direct convolution has them. */
static void weights_do_not_grow(void **state) {
    fixture *f = *state;
    ash_diag diag;
    uint64_t size[2];
    for (unsigned tiled = 0; tiled < 2; tiled++) {
        ash_plan *plan;
        ash_plan_options options = ash_plan_options_default();
        options.no_winograd = !tiled;
        two_layers(f);
        assert_ok(ash_plan_prepare(f->context, f->g, &options, &plan, &diag));
        assert_int_equal(winograd_steps(plan), tiled ? 2 : 0);
        size[tiled] = ash_plan_weights_size(plan);
        ash_plan_destroy(plan);
    }
    assert_int_equal(size[0], size[1]);
}

static void plans_do_without(void **state) {
    fixture *f = *state;
    ash_diag diag;
    ash_plan *plan;
    ash_plan_options options = ash_plan_options_default();
    options.no_winograd = true;
    two_layers(f);
    assert_ok(ash_plan_prepare(f->context, f->g, &options, &plan, &diag));
    assert_int_equal(winograd_steps(plan), 0);
    ash_plan_destroy(plan);
}

static int setup_threads(void **state) {
    ash_diag diag;
    setup(state);
    fixture *f = *state;
    ash_graph_destroy(f->g);
    ash_context_destroy(f->context);
    ash_context_options options = {.allocator = test_memory_allocator(&f->memory), .threads = 3};
    assert_ok(ash_context_create(&options, &f->context, &diag));
    assert_ok(ash_graph_create(f->context, "test", &f->g, &diag));
    return 0;
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup_threads, teardown)

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(transforms_convolve),
        TEST(random_shapes),
        TEST(errors_by_tile),
        TEST(large_shapes),
        TEST(variable_sizes),
        TEST(sizes_decide_when_it_runs),
        TEST(where_it_pays),
        TEST(where_it_is_exact_enough),
        TEST(variables_in_the_pass),
        TEST(blocks_suit_smaller_images),
        TEST(parameters_are_transformed_again),
        TEST(same_bits_everywhere),
        TEST(weights_do_not_grow),
        TEST(plans_do_without),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
