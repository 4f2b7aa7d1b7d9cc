/* SPDX-License-Identifier: MIT */
/* A training step as one plan: loss, gradients and update. The losses of 20 steps against PyTorch's
 * (tests/data/train_torch.txt, by tools/grad_fixtures.py --train), for every optimiser; the same bits in
 * every mode and on any number of threads. */
#include "ir_fixture.h"

#include "ashlar/reference.h"
#include "ashlar/train.h"
#include "torch_losses.h"

static ash_diag diag;

enum { STEPS = 20, IN = 20, WIDE = 32, OUT = 5, ROWS = 16, WEIGHTS = 6, NUMBERS = 8192 };

typedef struct config {
    const char *name;
    ash_optimizer_options options;
    float rate;
    double clip; /* 0: none */
} config;

static const config configs[] = {
    {"sgd", {.kind = ASH_OPTIMIZER_SGD}, 0.1f, 0},
    {"sgd momentum", {.kind = ASH_OPTIMIZER_SGD, .momentum = 0.9}, 0.05f, 0},
    {"sgd nesterov decay",
     {.kind = ASH_OPTIMIZER_SGD, .momentum = 0.8, .nesterov = true, .weight_decay = 0.01},
     0.05f,
     0},
    {"sgd clip", {.kind = ASH_OPTIMIZER_SGD}, 0.5f, 0.25},
    {"adam", {.kind = ASH_OPTIMIZER_ADAM}, 0.01f, 0},
    {"adam decay",
     {.kind = ASH_OPTIMIZER_ADAM, .beta1 = 0.8, .beta2 = 0.99, .epsilon = 1e-6, .weight_decay = 0.05},
     0.01f,
     0},
    {"adamw",
     {.kind = ASH_OPTIMIZER_ADAMW, .beta1 = 0.9, .beta2 = 0.999, .epsilon = 1e-8, .weight_decay = 0.01},
     0.01f,
     0},
};

static ash_value make_state(ash_graph *g, int number, ash_type type) {
    static float data[WIDE * WIDE];
    const char name[] = {'w', (char)('0' + number), 0};
    int64_t count;
    assert_true(ash_type_static_count(&type, &count) && count <= WIDE * WIDE);
    for (int64_t k = 0; k < count; k++) data[k] = type.rank == 2 ? made(number, 0.3, k) : 0;
    return ash_graph_state(g, name, &type, data, (size_t)count * sizeof *data, ASH_DATA_COPY);
}

static ash_value layer(ash_graph *g, ash_value x, const ash_value *w) {
    return ash_add(g, ash_matmul(g, x, w[0]), w[1]);
}

/* Inputs: x, labels, rate. Output: the loss before the step. */
static void make_step(ash_graph *g, const config *c) {
    const ash_type types[WEIGHTS] = {TYPE(F32, IN, WIDE), TYPE(F32, WIDE),      TYPE(F32, WIDE, WIDE),
                                     TYPE(F32, WIDE),     TYPE(F32, WIDE, OUT), TYPE(F32, OUT)};
    ash_value w[WEIGHTS], grads[WEIGHTS];
    for (int i = 0; i < WEIGHTS; i++) w[i] = make_state(g, i, types[i]);
    ash_dim rows = ash_graph_var(g, "rows", 1, ROWS);
    ash_value x = INPUT(g, "x", F32, rows, IN), labels = INPUT(g, "labels", I64, rows);
    ash_value rate = add_input(g, "rate", SCALAR(F32));
    ash_value h = ash_relu(g, layer(g, ash_relu(g, layer(g, x, w)), w + 2));
    ash_value loss = ash_cross_entropy(g, layer(g, h, w + 4), labels);
    assert_ok(ash_graph_gradients(g, &loss, NULL, 1, w, WEIGHTS, NULL, grads, &diag));
    if (c->clip != 0) ash_graph_clip_norm(g, grads, WEIGHTS, c->clip);
    assert_ok(ash_graph_optimize(g, w, grads, WEIGHTS, rate, &c->options, &diag));
    ash_graph_output(g, "loss", loss);
    assert_ok(ash_graph_verify(g, &diag));
}

/* Runs all steps: the losses, and then what the states of f32 are, into `out`. */
static size_t run_steps(const fixture *f, const config *c, ash_mode mode, unsigned threads, float *out) {
    static float x[ROWS * IN];
    int64_t labels[ROWS];
    ash_plan_options options = ash_plan_options_default();
    ash_plan *plan;
    const ash_view *view;
    options.mode = mode;
    options.threads = threads;
    options.poison = true;
    if (mode == ASH_MODE_MULTI_STREAM) options.streams = 3;
    assert_ok(ash_plan_prepare(f->context, f->g, &options, &plan, &diag));
    assert_int_equal(ash_plan_describe(plan).states_in_place, ash_graph_state_count(f->g));
    for (int k = 0; k < ROWS * IN; k++) x[k] = made(10, 1, k);
    for (int k = 0; k < ROWS; k++) labels[k] = k * k % OUT;
    assert_ok(ash_plan_set_vars(plan, &(ash_var_binding){"rows", ROWS}, 1, &diag));
    assert_ok(ash_plan_set_input(plan, 0, NULL, x, sizeof x, &diag));
    assert_ok(ash_plan_set_input(plan, 1, NULL, labels, sizeof labels, &diag));
    assert_ok(ash_plan_set_input(plan, 2, NULL, &c->rate, sizeof c->rate, &diag));
    for (int step = 0; step < STEPS; step++) {
        assert_ok(ash_plan_execute(plan, &diag));
        assert_ok(ash_plan_output(plan, 0, &view, &diag));
        assert_ok(ash_view_copy_out(view, &out[step], sizeof *out, &diag));
    }
    size_t used = copy_states(plan, out, STEPS, NUMBERS);
    ash_plan_destroy(plan);
    return used;
}

/* What waits for the backward phase, gradients, and what an optimiser has, node by node: h = relu(x w + b)
 * once in each layer, and nothing of it in a graph without gradients. */
static void report_tells_phases(void **state) {
    fixture *f = *state;
    const config *adam = &configs[ASH_COUNT(configs) - 1];
    ash_plan_options options = ash_plan_options_default();
    ash_plan *plan;
    make_step(f->g, adam);
    assert_ok(ash_plan_prepare(f->context, f->g, &options, &plan, &diag));
    const ash_plan_report report = ash_plan_describe(plan);
    const ash_plan_training *t = &report.training;
    const uint64_t hidden = ROWS * WIDE * sizeof(float), line = 64;
    const uint64_t weights = (IN * WIDE + WIDE + WIDE * WIDE + WIDE + WIDE * OUT + OUT) * sizeof(float);
    assert_in_range(t->activations, 2 * hidden, 8 * hidden); /* both layers' results */
    assert_in_range(t->gradients, hidden, 8 * hidden + weights);
    assert_in_range(t->optimizer, 2 * weights,
                    2 * weights + (2 * WEIGHTS + 1) * line); /* mean, square, count */
    assert_in_range(t->peak_activations, 1, t->activations);
    assert_in_range(t->peak_gradients, 0, t->gradients);
    uint64_t fullest = t->peak_activations + t->peak_gradients + t->peak_others;
    assert_in_range(fullest, 1, report.memory.size - report.state);
    bool seen[ASH_PHASE_COUNT] = {false};
    for (size_t b = 0; b < ash_plan_buffer_count(plan); b++) {
        ash_buffer_info info = ASH_INIT(ash_buffer_info);
        assert_ok(ash_plan_buffer_at(plan, b, &info, &diag));
        seen[info.phase] = true;
        if (info.role == ASH_ROLE_STATE && info.name && strchr(info.name, '.')) /* "w0.mean" */
            assert_int_equal(info.phase, ASH_PHASE_UPDATE);
    }
    assert_true(seen[ASH_PHASE_FORWARD] && seen[ASH_PHASE_BACKWARD] && seen[ASH_PHASE_UPDATE]);
    ash_plan_destroy(plan);

    ash_graph *g = fresh(f);
    ash_graph_output(g, "y", ash_relu(g, INPUT(g, "x", F32, ROWS)));
    assert_ok(ash_plan_prepare(f->context, g, &options, &plan, &diag));
    const ash_plan_training none = {0}, plain = ash_plan_describe(plan).training;
    assert_memory_equal(&plain, &none, sizeof none);
    ash_plan_destroy(plan);
}

static void losses_are_those_of_torch(void **state) {
    fixture *f = *state;
    static float out[NUMBERS], other[NUMBERS];
    for (size_t i = 0; i < ASH_COUNT(configs); i++) {
        const config *c = &configs[i];
        fresh(f);
        make_step(f->g, c);
        size_t used = run_steps(f, c, ASH_MODE_STREAM, 1, out);
        assert_losses_of_torch(c->name, out, STEPS);
        assert_true(out[STEPS - 1] < 0.5f * out[0]); /* it learns */
        for (int mode = 0; mode < ASH_MODE_COUNT; mode++)
            for (unsigned threads = 1; threads <= 2; threads++) {
                assert_int_equal(run_steps(f, c, (ash_mode)mode, threads, other), used);
                assert_memory_equal(out, other, used * sizeof *out);
            }
    }
}

/* With the norm below the limit nothing changes, and the norm is what it is. */
static void clipping(void **state) {
    fixture *f = *state;
    ash_graph *g = f->g;
    ash_value grads[] = {INPUT(g, "a", F64, 2), INPUT(g, "b", F64, 1)}, same[] = {grads[0], grads[1]};
    ash_graph_output(g, "norm", ash_graph_clip_norm(g, grads, 2, 6.5));
    ash_graph_clip_norm(g, same, 2, 100);
    for (int i = 0; i < 2; i++) {
        ash_graph_output(g, (const char[]){'a', (char)('0' + i), 0}, grads[i]);
        ash_graph_output(g, (const char[]){'b', (char)('0' + i), 0}, same[i]);
    }
    const double a[] = {3, -4}, b[] = {12}, want[] = {1.5, -2, 3, -4, 6, 12};
    ash_reference *r;
    assert_ok(ash_reference_run(g, (const void *const[]){a, b}, 2, NULL, NULL, 0, &r, &diag));
    assert_true(ash_reference_output(r, 0, NULL, NULL)[0] == 13);
    size_t at = 0;
    for (size_t i = 1; i < 5; i++) {
        size_t count;
        const double *got = ash_reference_output(r, i, NULL, &count);
        for (size_t k = 0; k < count; k++, at++) assert_true(fabs(got[k] - want[at]) < 1e-5);
    }
    assert_int_equal(at, 6);
    ash_reference_destroy(r);
    assert_int_equal(ash_graph_clip_norm(g, grads, 0, 1), ASH_NO_VALUE);
}

static void refuse(ash_graph *g, ash_value state, ash_value grad, ash_value rate, ash_optimizer kind,
                   ash_status code, const char *why) {
    const ash_optimizer_options options = {.size = sizeof options, .kind = kind};
    assert_status(ash_graph_optimize(g, &state, &grad, 1, rate, &options, &diag), code);
    assert_int_equal(ash_graph_status(g, NULL), code);
    if (!strstr(diag.message, why)) fail_msg("\"%s\" does not say \"%s\"", diag.message, why);
}

static void refusals(void **state) {
    fixture *f = *state;
    for (int turn = 0; turn < 6; turn++) {
        ash_graph *g = fresh(f);
        ash_type two = TYPE(F32, 2);
        ash_value w = ash_graph_state(g, "w", &two, NULL, 0, ASH_DATA_COPY), x = INPUT(g, "x", F32, 2);
        ash_value rate = ash_scalar(g, ASH_F32, 1), short_one = INPUT(g, "y", F32, 1);
        switch (turn) {
        case 0: refuse(g, x, x, rate, 0, ASH_ERROR_INVALID_ARGUMENT, "is no state"); break;
        case 1: refuse(g, w, short_one, rate, 0, ASH_ERROR_TYPE, "another type"); break;
        case 2: refuse(g, w, x, x, 0, ASH_ERROR_TYPE, "rate"); break;
        case 3:
            refuse(g, w, x, rate, ASH_OPTIMIZER_COUNT, ASH_ERROR_INVALID_ARGUMENT, "no optimiser");
            break;
        case 4: refuse(g, w, 99, rate, 0, ASH_ERROR_INVALID_ARGUMENT, "gradient 0 is no value"); break;
        default:
            ash_graph_update(g, w, x);
            refuse(g, w, x, rate, 0, ASH_ERROR_INVALID_ARGUMENT, "update already");
        }
    }
}

/* Against its definition, with logits that overflow without a shift, and a label that is no class. */
static void cross_entropy(void **state) {
    fixture *f = *state;
    ash_graph *g = f->g;
    const double logits[2][3] = {{1000.25, 999, -5}, {0.5, -1, 2}};
    const int64_t labels[] = {1, 2}, wrong[] = {1, 3};
    ash_value x = INPUT(g, "x", F64, 2, 3), y = INPUT(g, "y", I64, 2), loss = ash_cross_entropy(g, x, y),
              grad;
    assert_ok(ash_graph_gradients(g, &loss, NULL, 1, &x, 1, NULL, &grad, &diag));
    ash_graph_output(g, "loss", loss);
    ash_graph_output(g, "grad", grad);
    double first = log(1 + exp(-1.25)) + 1.25, total = exp(0.5) + exp(-1) + exp(2);
    for (int turn = 0; turn < 2; turn++) {
        ash_reference *r;
        const void *inputs[] = {logits, turn ? wrong : labels};
        assert_ok(ash_reference_run(g, inputs, 2, NULL, NULL, 0, &r, &diag));
        double second = log(total) - (turn ? 0 : 2);
        assert_true(fabs(ash_reference_output(r, 0, NULL, NULL)[0] - (first + second) / 2) < 1e-12);
        const double *got = ash_reference_output(r, 1, NULL, NULL);
        assert_true(fabs(got[1] - (exp(-1.25) / (1 + exp(-1.25)) - 1) / 2) < 1e-12);
        assert_true(fabs(got[5] - (exp(2) / total - !turn) / 2) < 1e-12);
        ash_reference_destroy(r);
    }
    g = fresh(f);
    assert_int_equal(ash_cross_entropy(g, INPUT(g, "x", F32, 2, 3), INPUT(g, "y", I64, 3)), ASH_NO_VALUE);
    assert_status(ash_graph_status(g, NULL), ASH_ERROR_SHAPE);
}

/* Parameters of floats become states with the same ids; everything else stays. */
static void parameters_become_states(void **state) {
    fixture *f = *state;
    ash_graph *g = f->g, *t;
    const float weights[] = {1, 2, 3}, rate = 1;
    const int64_t place = 2;
    ash_type three = TYPE(F32, 3), one = SCALAR(I64), rows = TYPE(F32, ash_graph_var(g, "n", 1, 4), 3);
    ash_value x = ash_graph_input(g, "x", &rows);
    ash_value w = ash_graph_parameter(g, "w", &three, weights, sizeof weights, ASH_DATA_COPY);
    ash_value count = ash_graph_parameter(g, "count", &one, &place, sizeof place, ASH_DATA_COPY);
    ash_value s = ash_graph_state(g, "s", &one, NULL, 0, ASH_DATA_COPY), at;
    ash_topk(g, ash_mul(g, x, w), 1, 1, true, &at);
    ash_value picked = ash_gather(g, ash_mul(g, x, w), count, 1);
    ash_graph_update(g, s, count);
    ash_graph_output(g, "y", picked);
    ash_graph_output(g, "at", at);
    assert_ok(ash_graph_trainable(g, &t, &diag));
    assert_ok(ash_graph_verify(t, &diag));
    assert_int_equal(ash_graph_value_count(t), ash_graph_value_count(g));
    for (ash_value v = 0; v < ash_graph_value_count(g); v++) {
        assert_true(ash_type_equal(ash_graph_type(g, v), ash_graph_type(t, v)));
        assert_int_equal(t->values.at[v].kind, v == w ? ASH_VALUE_STATE : g->values.at[v].kind);
    }
    assert_int_equal(ash_graph_state_count(t), 2);
    assert_int_equal(ash_graph_output_at(t, 0, NULL), picked);
    ash_value loss = ash_reduce_sum(t, picked, (const int64_t[]){0}, 1, false), grad;
    assert_ok(ash_graph_gradients(t, &loss, NULL, 1, &w, 1, NULL, &grad, &diag));
    assert_ok(ash_graph_optimize(
        t, &w, &grad, 1, ash_graph_constant(t, &(ash_type){.dtype = ASH_F32}, &rate, 4, ASH_DATA_COPY),
        NULL, &diag));
    const float data[12] = {1, 1, 5, 1, 1, 7};
    float kept[3];
    int64_t seen = 0;
    ash_reference *r;
    memcpy(kept, weights, sizeof kept);
    const int64_t two = 2;
    void *states[] = {kept, &seen};
    assert_ok(ash_reference_step(t, (const void *const[]){data}, 1, states, (const char *const[]){"n"},
                                 &two, 1, &r, &diag));
    ash_reference_destroy(r);
    assert_true(kept[0] == 1 && kept[1] == 2 && kept[2] == 3 - 12 && seen == 2);
    ash_graph_destroy(t);
}

static int setup_threads(void **state) {
    return setup_with(state, 2);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(losses_are_those_of_torch, setup_threads, teardown),
        IR_TEST(report_tells_phases),
        IR_TEST(clipping),
        IR_TEST(refusals),
        IR_TEST(cross_entropy),
        IR_TEST(parameters_become_states),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
