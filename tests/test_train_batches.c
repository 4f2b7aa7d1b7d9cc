/* SPDX-License-Identifier: MIT */
/* Between gradients and an optimiser: a batch in pieces makes the step that the whole batch makes, and
 * nothing in between; a scaled loss makes the step that it makes without, or none where gradients overflow,
 * with the scales of PyTorch's GradScaler; rates along the steps; graphs with other parameters. */
#include "ir_fixture.h"

#include <math.h>

#include "ashlar/plan.h"
#include "ashlar/train.h"

static ash_diag diag;

enum { ROWS = 8, PIECES = 4, IN = 3, OUT = 2, BATCHES = 5 };

static const ash_optimizer_options optimizers[] = {
    {.kind = ASH_OPTIMIZER_SGD, .momentum = 0.9, .nesterov = true},
    {.kind = ASH_OPTIMIZER_ADAM, .weight_decay = 0.01},
    {.kind = ASH_OPTIMIZER_ADAMW, .weight_decay = 0.1},
};

/* One step of y = x w on `rows` rows; with pieces, where rows are not all. State 0 is w. */
static void make_step(ash_graph *g, int64_t rows, const ash_optimizer_options *chosen) {
    const ash_type type = TYPE(F32, IN, OUT);
    ash_optimizer_options options = *chosen;
    ash_value w = ash_graph_state(g, "w", &type, (const float[IN * OUT]){0.5f, -1, 2, 0.25f, 1, -0.75f},
                                  sizeof(float) * IN * OUT, ASH_DATA_COPY);
    ash_value x = INPUT(g, "x", F32, rows, IN), y = INPUT(g, "y", F32, rows, OUT), grad, due;
    ash_value away = ash_sub(g, ash_matmul(g, x, w), y);
    ash_value loss = ash_reduce_mean(g, ash_mul(g, away, away), (const int64_t[]){0, 1}, 2, false);
    assert_ok(ash_graph_gradients(g, &loss, NULL, 1, &w, 1, NULL, &grad, &diag));
    if (rows != ROWS) {
        due = ash_graph_accumulate(g, &grad, 1, PIECES, NULL);
        options.when = &due;
        ash_graph_output(g, "due", due);
    }
    ash_graph_clip_norm(g, &grad, 1, 0.5);
    assert_ok(ash_graph_optimize(g, &w, &grad, 1, ash_scalar(g, ASH_F32, 0.05), &options, &diag));
    ash_graph_output(g, "loss", loss);
    assert_ok(ash_graph_verify(g, &diag));
}

static ash_plan *prepare(const fixture *f) {
    ash_plan *plan;
    ash_plan_options options = ash_plan_options_default();
    options.poison = true;
    assert_ok(ash_plan_prepare(f->context, f->g, &options, &plan, &diag));
    return plan;
}

static void state_of(ash_plan *plan, const char *name, void *out, size_t size) {
    const ash_view *view;
    size_t position;
    assert_ok(ash_plan_state_position(plan, name, &position, &diag));
    assert_ok(ash_plan_state(plan, position, &view, &diag));
    assert_int_equal(ash_view_bytes(view), size);
    assert_ok(ash_view_copy_out(view, out, size, &diag));
}

/* Rows [first, first + rows) of the data, executed. */
static void step(ash_plan *plan, int first, int rows) {
    float x[ROWS * IN], y[ROWS * OUT];
    for (int i = 0; i < rows; i++) {
        for (int k = 0; k < IN; k++) x[i * IN + k] = (float)sin((first + i) * 1.7 + k);
        for (int k = 0; k < OUT; k++) y[i * OUT + k] = (float)cos((first + i) * 0.9 - k);
    }
    assert_ok(ash_plan_set_input(plan, 0, NULL, x, (size_t)rows * IN * sizeof *x, &diag));
    assert_ok(ash_plan_set_input(plan, 1, NULL, y, (size_t)rows * OUT * sizeof *y, &diag));
    assert_ok(ash_plan_execute(plan, &diag));
}

static void pieces_make_the_step_of_a_batch(void **state) {
    fixture *f = *state;
    for (size_t i = 0; i < ASH_COUNT(optimizers); i++) {
        float whole[IN * OUT], pieces[IN * OUT], before[IN * OUT];
        fresh(f);
        make_step(f->g, ROWS, &optimizers[i]);
        ash_plan *a = prepare(f);
        fresh(f);
        make_step(f->g, ROWS / PIECES, &optimizers[i]);
        ash_plan *b = prepare(f);
        for (int batch = 0; batch < BATCHES; batch++) {
            state_of(b, "w", before, sizeof before);
            step(a, batch * ROWS, ROWS);
            for (int piece = 0; piece < PIECES; piece++) {
                const ash_view *view;
                bool due;
                state_of(b, "w", pieces, sizeof pieces);
                assert_memory_equal(pieces, before, sizeof before);
                step(b, batch * ROWS + piece * (ROWS / PIECES), ROWS / PIECES);
                assert_ok(ash_plan_output(b, 0, &view, &diag));
                assert_ok(ash_view_copy_out(view, &due, sizeof due, &diag));
                assert_int_equal(due, piece == PIECES - 1);
            }
            state_of(a, "w", whole, sizeof whole);
            state_of(b, "w", pieces, sizeof pieces);
            assert_memory_not_equal(pieces, before, sizeof before);
            for (int k = 0; k < IN * OUT; k++)
                assert_true(fabs((double)whole[k] - (double)pieces[k]) < 2e-6);
        }
        ash_plan_destroy(a);
        ash_plan_destroy(b);
    }
}

/* Of gradients that are inputs, some not finite: what GradScaler does with its defaults, but for the
 * interval. */
static void scales_follow_overflows(void **state) {
    fixture *f = *state;
    ash_graph *g = f->g;
    enum { INTERVAL = 3, STEPS = 24 };
    const float first = 1024, bad[] = {(float)INFINITY, -(float)INFINITY, (float)NAN};
    const ash_type scalar = SCALAR(F32), two = TYPE(F32, 2);
    ash_value scale = ash_graph_state(g, "scale", &scalar, &first, sizeof first, ASH_DATA_COPY);
    ash_value w = ash_graph_state(g, "w", &two, NULL, 0, ASH_DATA_COPY);
    ash_value grads[] = {INPUT(g, "a", F32, 2), INPUT(g, "b", F16, 3)};
    const ash_loss_scale_options options = {.size = sizeof options, .interval = INTERVAL};
    ash_value finite = ash_graph_unscale(g, grads, 2, scale, &options);
    const ash_optimizer_options sgd = {.size = sizeof sgd, .when = &finite};
    assert_ok(ash_graph_optimize(g, &w, grads, 1, ash_scalar(g, ASH_F32, -1), &sgd, &diag));
    ash_graph_output(g, "b", grads[1]);
    ash_plan *plan = prepare(f);
    double scale_now = first, w_now = 0;
    int good = 0;
    for (int i = 0; i < STEPS; i++) {
        float a[2] = {3, -(float)i}, w_is[2], scale_is;
        uint16_t b[3] = {0x3c00, 0x4000, 0x7bff}; /* 1, 2, 65504 */
        bool overflow = i == 1 || i == 9 || i == 10 || i == 17;
        if (i == 1 || i == 9) a[1] = bad[i % 3];
        if (i == 10) a[0] = bad[2];
        if (i == 17) b[1] = 0xfc00;
        assert_ok(ash_plan_set_input(plan, 0, NULL, a, sizeof a, &diag));
        assert_ok(ash_plan_set_input(plan, 1, NULL, b, sizeof b, &diag));
        assert_ok(ash_plan_execute(plan, &diag));
        if (!overflow) w_now += 3 / scale_now;
        good = overflow ? 0 : good + 1;
        if (overflow) scale_now *= 0.5;
        if (good == INTERVAL) scale_now *= 2, good = 0;
        state_of(plan, "w", w_is, sizeof w_is);
        state_of(plan, "scale", &scale_is, sizeof scale_is);
        assert_true((double)scale_is == scale_now);
        assert_true(fabs((double)w_is[0] - w_now) < 1e-6);
        assert_true(isfinite(w_is[1]));
    }
    ash_plan_destroy(plan);
}

static void unscale_refusals(void **state) {
    fixture *f = *state;
    for (int turn = 0; turn < 5; turn++) {
        ash_graph *g = fresh(f);
        const ash_type scalar = SCALAR(F32), wide = SCALAR(F64);
        ash_value x = INPUT(g, "x", F32, 2),
                  scale = ash_graph_state(g, "s", &scalar, NULL, 0, ASH_DATA_COPY);
        ash_value twice = ash_graph_state(g, "t", &wide, NULL, 0, ASH_DATA_COPY), got;
        const ash_loss_scale_options when = {.size = sizeof when, .when = &x};
        const ash_optimizer_options step_when = {.size = sizeof step_when, .when = &x};
        switch (turn) {
        case 0: got = ash_graph_unscale(g, &x, 1, x, NULL); break;
        case 1: got = ash_graph_unscale(g, &x, 1, twice, NULL); break;
        case 2: got = ash_graph_unscale(g, &x, 1, scale, &when); break;
        case 3: got = ash_graph_accumulate(g, &x, 1, 0, NULL); break;
        default:
            assert_status(ash_graph_optimize(g, &scale, &scale, 1, scale, &step_when, &diag),
                          ASH_ERROR_TYPE);
            got = ASH_NO_VALUE;
        }
        assert_int_equal(got, ASH_NO_VALUE);
        assert_int_equal(ash_graph_status(g, NULL),
                         turn == 3 ? ASH_ERROR_INVALID_ARGUMENT : ASH_ERROR_TYPE);
    }
}

static void rates(void **state) {
    (void)state;
    static const struct {
        ash_rate_schedule schedule;
        uint64_t step;
        double want;
    } cases[] = {
        {{.rate = 0.5}, 1000, 0.5},
        {{.rate = 0.5, .warmup = 4}, 0, 0.125},
        {{.rate = 0.5, .warmup = 4}, 3, 0.5},
        {{.kind = ASH_RATE_LINEAR, .rate = 2, .warmup = 10, .steps = 110}, 60, 1},
        {{.kind = ASH_RATE_LINEAR, .rate = 2, .steps = 100, .least = 0.1}, 50, 1.1},
        {{.kind = ASH_RATE_LINEAR, .rate = 2, .steps = 100, .least = 0.1}, 1000, 0.2},
        {{.kind = ASH_RATE_COSINE, .rate = 2, .steps = 100}, 0, 2},
        {{.kind = ASH_RATE_COSINE, .rate = 2, .steps = 100}, 50, 1},
        {{.kind = ASH_RATE_COSINE, .rate = 2, .steps = 90, .least = 0.5}, 30, 1.75},
        {{.kind = ASH_RATE_COSINE, .rate = 2, .steps = 5, .warmup = 9}, 9, 0},
        {{.kind = ASH_RATE_DECAY, .rate = 1, .every = 10, .factor = 0.5}, 35, 0.125},
        {{.kind = ASH_RATE_DECAY, .rate = 1}, 35, 1},
    };
    for (size_t i = 0; i < ASH_COUNT(cases); i++) {
        ash_rate_schedule schedule = cases[i].schedule;
        double rate;
        schedule.size = sizeof schedule;
        assert_ok(ash_rate_at(&schedule, cases[i].step, &rate, &diag));
        if (!(fabs(rate - cases[i].want) < 1e-12)) fail_msg("case %zu: a rate of %g", i, rate);
    }
    double rate;
    const ash_rate_schedule none = {.size = sizeof none, .kind = ASH_RATE_COUNT};
    assert_status(ash_rate_at(&none, 0, &rate, &diag), ASH_ERROR_INVALID_ARGUMENT);
    assert_string_equal(ash_rate_text(ASH_RATE_COSINE), "cosine");
    assert_string_equal(ash_rate_text(ASH_RATE_COUNT), "?");
}

/* What was trained goes back into the graph that was read. */
static void other_parameters(void **state) {
    fixture *f = *state;
    ash_graph *g = f->g, *t;
    const ash_type two = TYPE(F32, 2);
    const float old[] = {1, 2}, new[] = {3, 4}, x[] = {10, 20};
    ash_value a = ash_graph_parameter(g, "a", &two, old, sizeof old, ASH_DATA_COPY);
    ash_value b = ash_graph_parameter(g, "b", &two, old, sizeof old, ASH_DATA_COPY);
    ash_graph_output(g, "y", ash_add(g, ash_mul(g, INPUT(g, "x", F32, 2), a), b));
    const ash_parameter_bytes bytes = {"b", new, sizeof new}, wrong = {"b", new, 4}, none = {"c", new, 8};
    const ash_parameter_bytes twice[] = {bytes, bytes};
    assert_status(ash_graph_with_parameters(g, &wrong, 1, &t, &diag), ASH_ERROR_INVALID_ARGUMENT);
    assert_null(t);
    assert_status(ash_graph_with_parameters(g, &none, 1, &t, &diag), ASH_ERROR_NOT_FOUND);
    assert_non_null(strstr(diag.message, "\"c\""));
    assert_status(ash_graph_with_parameters(g, twice, 2, &t, &diag), ASH_ERROR_INVALID_ARGUMENT);
    assert_ok(ash_graph_with_parameters(g, &bytes, 1, &t, &diag));
    assert_ok(ash_graph_verify(t, &diag));
    ash_plan *plan;
    const ash_view *view;
    float y[2];
    assert_ok(ash_plan_prepare(f->context, t, NULL, &plan, &diag));
    ash_graph_destroy(t);
    assert_ok(ash_plan_set_input(plan, 0, NULL, x, sizeof x, &diag));
    assert_ok(ash_plan_execute(plan, &diag));
    assert_ok(ash_plan_output(plan, 0, &view, &diag));
    assert_ok(ash_view_copy_out(view, y, sizeof y, &diag));
    assert_true(y[0] == 13 && y[1] == 44);
    ash_plan_destroy(plan);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        IR_TEST(pieces_make_the_step_of_a_batch),
        IR_TEST(scales_follow_overflows),
        IR_TEST(unscale_refusals),
        cmocka_unit_test(rates),
        IR_TEST(other_parameters),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
