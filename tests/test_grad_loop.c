/* SPDX-License-Identifier: MIT */
/* Gradients of loops, from the graph to the plan: recurrent networks of models; a network of 64 steps that
 * learns as it does in PyTorch (tests/data/train_torch.txt, by tools/grad_fixtures.py --train), with the
 * same bits in every mode, on any number of threads and from a pair; what a step keeps in memory; what is
 * refused, and by which name. The rule itself: test_grad_rules.c, test_grad_torch.c. */
#include "ir_fixture.h"

#include "ashlar/onnx.h"
#include "ashlar/reference.h"
#include "ashlar/train.h"
#include "ir/build.h"
#include "onnx_bytes.h"
#include "torch_losses.h"

static ash_diag diag;

enum { STEPS = 20, TIME = 64, BATCH = 4, LETTERS = 12, IN = 8, WIDE = 16, NUMBERS = 8192 };

static int setup_threads(void **state) {
    return setup_with(state, 2);
}

static bytes made_tensor(const char *name, int number, double scale, const int64_t *dims, size_t rank) {
    static float data[4096];
    size_t count = 1;
    for (size_t d = 0; d < rank; d++) count *= (size_t)dims[d];
    assert_true(count <= ASH_COUNT(data));
    for (size_t k = 0; k < count; k++) data[k] = made(number, scale, (int64_t)k);
    return make_tensor(name, 1, dims, rank, data, count * sizeof *data);
}

#define TENSOR(name, number, scale, ...)                                                                   \
    made_tensor(name, number, scale, (const int64_t[]){__VA_ARGS__},                                       \
                sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t))

/* --- a network that learns -------------------------------------------------------------------------- */

/* Letters [64, 4] -> a table -> LSTM -> numbers for each letter, as a model. */
static void read_network(fixture *f, ash_graph **out) {
    static bytes graph, model;
    static const char *const names[] = {"x", "w", "r", "b"};
    graph.len = 0;
    bytes pick = make_node("pick", "Gather", "table", "letters", "x"), lstm = {.len = 0}, attr = {.len = 0},
          drop = make_node("drop", "Squeeze", "y", "axis", "h"),
          numbers = make_node("numbers", "MatMul", "h", "out", "logits"), result, letters, axis;
    for (size_t i = 0; i < ASH_COUNT(names); i++) put_text(&lstm, 1, names[i]);
    put_text(&lstm, 2, "y");
    put_text(&lstm, 3, "memory");
    put_text(&lstm, 4, "LSTM");
    put_text(&attr, 1, "hidden_size");
    put_int(&attr, 3, WIDE);
    put_int(&attr, 20, 2);
    put_message(&lstm, 5, &attr);
    put_message(&graph, 1, &pick);
    put_message(&graph, 1, &lstm);
    put_message(&graph, 1, &drop);
    put_message(&graph, 1, &numbers);
    const int64_t one = 1;
    axis = make_tensor("axis", 7, &one, 1, &one, sizeof one);
    bytes weights[] = {TENSOR("table", 0, 0.5, LETTERS, IN), TENSOR("w", 1, 0.3, 1, 4 * WIDE, IN),
                       TENSOR("r", 2, 0.3, 1, 4 * WIDE, WIDE), TENSOR("b", 3, 0.1, 1, 8 * WIDE),
                       TENSOR("out", 4, 0.3, WIDE, LETTERS)};
    for (size_t i = 0; i < ASH_COUNT(weights); i++) put_message(&graph, 5, &weights[i]);
    put_message(&graph, 5, &axis);
    letters = make_info("letters", (const int64_t[]){TIME, BATCH}, 2);
    for (size_t i = 0; i + 2 < letters.len; i++) /* of i64: the type is behind the field's number */
        if (letters.at[i] == 0x08 && letters.at[i + 1] == 1 && letters.at[i + 2] == 0x12) {
            letters.at[i + 1] = 7;
            break;
        }
    result = make_info("logits", NULL, 0);
    put_message(&graph, 11, &letters);
    put_message(&graph, 12, &result);
    model = make_model(&graph, 17);
    const ash_onnx_options options = {.size = sizeof options, .parameters = true};
    assert_ok(ash_onnx_parse(f->context, model.at, model.len, &options, out, &diag));
}

/* Inputs: letters, those that follow, the seed. Outputs: the loss before the step. */
static ash_value make_network(fixture *f) {
    enum { WEIGHTS = 5 };
    ash_graph *read;
    ash_value w[WEIGHTS], grads[WEIGHTS], seed;
    read_network(f, &read);
    ash_graph_destroy(f->g);
    f->g = NULL;
    assert_ok(ash_graph_trainable(read, &f->g, &diag));
    ash_graph_destroy(read);
    ash_graph *g = f->g;
    assert_int_equal(ash_graph_state_count(g), WEIGHTS);
    for (size_t i = 0; i < WEIGHTS; i++) w[i] = ash_graph_state_at(g, i, NULL, NULL);
    ash_value labels = INPUT(g, "labels", I64, TIME, BATCH);
    ash_value loss = ash_cross_entropy(g, ash_graph_output_at(g, 0, NULL), labels);
    seed = add_input(g, "seed", SCALAR(F32));
    assert_ok(ash_graph_gradients(g, &loss, &seed, 1, w, WEIGHTS, NULL, grads, &diag));
    ash_value rate = ash_scalar(g, ASH_F32, 0.5);
    assert_ok(ash_graph_optimize(g, w, grads, WEIGHTS, rate, NULL, &diag));
    ash_graph_output(g, "loss", loss);
    assert_ok(ash_graph_verify(g, &diag));
    return seed;
}

static void give(ash_plan *plan, const char *name, const void *data, uint64_t size) {
    size_t at;
    if (ash_plan_input_position(plan, name, &at, NULL) == ASH_OK)
        assert_ok(ash_plan_set_input(plan, at, NULL, data, size, &diag));
}

static void fill_letters(int64_t (*letters)[BATCH]) {
    for (int64_t t = 0; t <= TIME; t++)
        for (int64_t b = 0; b < BATCH; b++) letters[t][b] = (t * t + 5 * b * t + b) % LETTERS;
}

static void give_letters(ash_plan *plan) {
    int64_t letters[TIME + 1][BATCH];
    const float one = 1;
    fill_letters(letters);
    give(plan, "letters", letters, sizeof letters - sizeof *letters);
    give(plan, "labels", letters + 1, sizeof letters - sizeof *letters);
    give(plan, "seed", &one, sizeof one);
}

/* The losses of all steps, and then the weights, into `out`. One plan, or a pair. */
static size_t learn(const fixture *f, const ash_plan_options *options, ash_value seed, float *out) {
    ash_plan *plan, *second = NULL;
    const ash_view *view;
    size_t at;
    if (seed != ASH_NO_VALUE) {
        const ash_pair_options pair = {
            .size = sizeof pair, .seeds = &seed, .n_seeds = 1, .first = options, .second = options};
        assert_ok(ash_plan_prepare_pair(f->context, f->g, &pair, &plan, &second, &diag));
    } else {
        assert_ok(ash_plan_prepare(f->context, f->g, options, &plan, &diag));
    }
    give_letters(plan);
    if (second) give_letters(second);
    for (int step = 0; step < STEPS; step++) {
        assert_ok(ash_plan_execute(plan, &diag));
        assert_ok(ash_plan_output_position(plan, "loss", &at, &diag));
        assert_ok(ash_plan_output(plan, at, &view, &diag));
        assert_ok(ash_view_copy_out(view, &out[step], sizeof *out, &diag));
        if (second) assert_ok(ash_plan_execute(second, &diag));
    }
    size_t used = copy_states(second ? second : plan, out, STEPS, NUMBERS);
    ash_plan_destroy(second);
    ash_plan_destroy(plan);
    return used;
}

static void losses_are_those_of_torch(void **state) {
    fixture *f = *state;
    static float out[NUMBERS], other[NUMBERS];
    ash_value seed = make_network(f);
    ash_plan_options options = ash_plan_options_default();
    size_t used = learn(f, &options, ASH_NO_VALUE, out);
    assert_losses_of_torch("lstm of 64 steps", out, STEPS);
    assert_true(out[STEPS - 1] < out[0]);
    for (int i = 0; i < 2 * 2 * 2 * ASH_MODE_COUNT; i++) { /* pairs have no mode eager */
        bool pair = i & 4;
        options.mode = (ash_mode)(i / 8);
        options.streams = options.mode == ASH_MODE_MULTI_STREAM ? 3 : 1;
        options.threads = 1 + (i & 1);
        options.poison = i & 2;
        assert_int_equal(learn(f, &options, pair ? seed : ASH_NO_VALUE, other), used);
        assert_memory_equal(out, other, used * sizeof *out);
    }
}

/* A step in one call. */
static void eagerly(void **state) {
    fixture *f = *state;
    enum { OUTPUTS = 2 };
    static float out[NUMBERS];
    int64_t letters[TIME + 1][BATCH];
    const float one = 1;
    const ash_type types[] = {TYPE(I64, TIME, BATCH), TYPE(I64, TIME, BATCH), SCALAR(F32)};
    const void *data[] = {letters, letters + 1, &one};
    const uint64_t sizes[] = {TIME * BATCH * sizeof(int64_t), TIME * BATCH * sizeof(int64_t), sizeof one};
    ash_tensor *inputs[3], *outputs[OUTPUTS];
    ash_plan_options options = ash_plan_options_default();
    make_network(f);
    learn(f, &options, ASH_NO_VALUE, out);
    fill_letters(letters);
    for (int i = 0; i < 3; i++)
        assert_ok(ash_tensor_create(f->context, NULL, &types[i], data[i], sizes[i], &inputs[i], &diag));
    const ash_eager_call call = {.size = sizeof call,
                                 .inputs = (const ash_tensor *const *)inputs,
                                 .input_count = 3,
                                 .outputs = outputs,
                                 .output_count = OUTPUTS};
    assert_ok(ash_eager(f->context, f->g, NULL, &call, &diag));
    assert_int_equal(ash_tensor_size(outputs[1]), sizeof *out);
    assert_memory_equal(ash_tensor_data(outputs[1]), out, sizeof *out);
    for (int i = 0; i < 3; i++) ash_tensor_destroy(inputs[i]);
    for (int i = 0; i < OUTPUTS; i++) ash_tensor_destroy(outputs[i]);
}

/* What the backward loop reads of each iteration is planned, and counted. */
static void report_counts_stacks(void **state) {
    fixture *f = *state;
    ash_plan *plan;
    ash_plan_options options = ash_plan_options_default();
    make_network(f);
    assert_ok(ash_plan_prepare(f->context, f->g, &options, &plan, &diag));
    const ash_plan_training t = ash_plan_describe(plan).training;
    const uint64_t state_bytes = (uint64_t)TIME * BATCH * WIDE * sizeof(float);
    /* Both carried values and four products. */
    assert_in_range(t.activations, 6 * state_bytes, 20 * state_bytes);
    ash_plan_destroy(plan);
}

/* --- recurrent networks of models ------------------------------------------------------------------- */

/* A node of a recurrent operator over x [11, 3, 2]. */
static void read_recurrent(fixture *f, const char *op, int64_t gates, bool lengths, bool both) {
    enum { H = 3 };
    static bytes graph;
    const int64_t d = both ? 2 : 1;
    graph.len = 0;
    bytes node = {.len = 0}, size = {.len = 0}, way = {.len = 0}, lens, weights[3], y, x;
    static const char *const ins[] = {"x", "w", "r", "b"};
    for (size_t i = 0; i < ASH_COUNT(ins); i++) put_text(&node, 1, ins[i]);
    if (lengths) put_text(&node, 1, "lens");
    put_text(&node, 2, "y");
    put_text(&node, 4, op);
    put_text(&size, 1, "hidden_size");
    put_int(&size, 3, H);
    put_int(&size, 20, 2);
    put_message(&node, 5, &size);
    put_text(&way, 1, "direction");
    put_text(&way, 4, both ? "bidirectional" : "forward");
    put_int(&way, 20, 3);
    put_message(&node, 5, &way);
    put_message(&graph, 1, &node);
    weights[0] = TENSOR("w", 1, 0.5, d, gates * H, 2);
    weights[1] = TENSOR("r", 2, 0.5, d, gates * H, H);
    weights[2] = TENSOR("b", 3, 0.2, d, 2 * gates * H);
    for (size_t i = 0; i < 3; i++) put_message(&graph, 5, &weights[i]);
    const int32_t numbers[] = {11, 1, 6};
    const int64_t three = 3;
    lens = make_tensor("lens", 6, &three, 1, numbers, sizeof numbers);
    if (lengths) put_message(&graph, 5, &lens);
    x = make_info("x", (const int64_t[]){11, 3, 2}, 3);
    y = make_info("y", NULL, 0);
    put_message(&graph, 11, &x);
    put_message(&graph, 12, &y);
    static bytes model;
    model = make_model(&graph, 17);
    const ash_onnx_options options = {.size = sizeof options, .parameters = true};
    ash_graph *read;
    assert_ok(ash_onnx_parse(f->context, model.at, model.len, &options, &read, &diag));
    ash_graph_destroy(f->g);
    f->g = NULL;
    assert_ok(ash_graph_trainable(read, &f->g, &diag));
    ash_graph_destroy(read);
}

/* Loss, with x and three states as `at` says, element k of tensor i moved. */
static double loss_at(const fixture *f, float *const *at, double *const *gradients) {
    ash_reference *r;
    const void *inputs[] = {at[0]};
    float *kept[3];
    for (int i = 0; i < 3; i++) {
        int64_t count;
        ash_value s = ash_graph_state_at(f->g, (size_t)i, NULL, NULL);
        assert_true(ash_type_static_count(ash_graph_type(f->g, s), &count));
        kept[i] = malloc((size_t)count * sizeof(float));
        memcpy(kept[i], at[1 + i], (size_t)count * sizeof(float));
    }
    assert_ok(ash_reference_step(f->g, inputs, 1, (void *const *)kept, NULL, NULL, 0, &r, &diag));
    double loss = ash_reference_output(r, 1, NULL, NULL)[0];
    for (size_t i = 0; gradients && i < 4; i++) {
        size_t count;
        const double *numbers = ash_reference_output(r, 2 + i, NULL, &count);
        memcpy(gradients[i], numbers, count * sizeof *numbers);
    }
    ash_reference_destroy(r);
    for (int i = 0; i < 3; i++) free(kept[i]);
    return loss;
}

static void recurrent_networks(void **state) {
    static const struct {
        const char *op;
        int64_t gates;
    } all[] = {{"LSTM", 4}, {"GRU", 3}, {"RNN", 1}};
    static float data[4][512];
    static double found[4][512];
    float *at[] = {data[0], data[1], data[2], data[3]};
    double *gradients[] = {found[0], found[1], found[2], found[3]};
    fixture *f = *state;
    for (int turn = 0; turn < 4 * (int)ASH_COUNT(all); turn++) {
        read_recurrent(f, all[turn / 4].op, all[turn / 4].gates, turn & 1, turn & 2);
        ash_graph *g = f->g;
        ash_value y = ash_graph_output_at(g, 0, NULL), xs[4] = {ash_graph_input_at(g, 0, NULL)}, grads[4];
        for (size_t i = 0; i < 3; i++) xs[1 + i] = ash_graph_state_at(g, i, NULL, NULL);
        const ash_type type = *ash_graph_type(g, y);
        ash_value weight = ash_cast(g, ash_iota(g, ASH_I64, type.dims, type.rank, 0), ASH_F32);
        for (unsigned d = 1; d < type.rank; d++)
            weight = ash_add(g, ash_build__with(g, ASH_OP_MUL, weight, 1.7),
                             ash_cast(g, ash_iota(g, ASH_I64, type.dims, type.rank, d), ASH_F32));
        ash_value loss = ash_build__reduce(g, ASH_OP_REDUCE_SUM, ash_mul(g, y, ash_sin(g, weight)),
                                           (1u << type.rank) - 1, false);
        assert_ok(ash_graph_gradients(g, &loss, NULL, 1, xs, 4, NULL, grads, &diag));
        ash_graph_output(g, "loss", loss);
        for (size_t i = 0; i < 4; i++)
            ash_graph_output(g, (const char[]){'g', (char)('0' + i), 0}, grads[i]);
        assert_ok(ash_graph_verify(g, &diag));
        assert_true(ash_graph__has_stacks(g));
        for (int i = 0; i < 4; i++)
            for (int k = 0; k < 512; k++) data[i][k] = made(i, 0.5, k);
        loss_at(f, at, gradients);
        for (size_t i = 0; i < 4; i++) {
            int64_t count;
            const float h = 0x1p-9f;
            assert_true(ash_type_static_count(ash_graph_type(g, xs[i]), &count));
            for (int64_t k = 0; k < count; k += 1 + count / 12) {
                float kept = data[i][k], up = kept + h, down = kept - h;
                data[i][k] = up;
                double high = loss_at(f, at, NULL);
                data[i][k] = down;
                double slope = (high - loss_at(f, at, NULL)) / ((double)up - (double)down);
                data[i][k] = kept;
                if (!(fabs(slope - found[i][k]) <= 2e-4 * (1 + fabs(slope))))
                    fail_msg("%s, turn %d: gradient %lld of %zu is %.9g, not %.9g", all[turn / 4].op, turn,
                             (long long)k, i, found[i][k], slope);
            }
        }
    }
}

/* --- refusals ----------------------------------------------------------------------------------------- */

/* A loop over x [n, 3] with a condition or without one: what `step` makes of a value and a slice. */
static ash_value make_loop(ash_graph *g, ash_value x, ash_value first, ash_dim trips, bool until,
                           ash_value (*step)(ash_graph *, ash_value, ash_value)) {
    ash_value a[3], next, outs[3];
    ash_loop loop = {.trips = trips,
                     .carried = 1,
                     .scanned = x != ASH_NO_VALUE,
                     .stacked = x != ASH_NO_VALUE,
                     .go = until ? ash_scalar(g, ASH_BOOL, 1) : ASH_NO_VALUE,
                     .init = &first,
                     .xs = &x,
                     .arguments = a,
                     .next = &next,
                     .ys = &next};
    assert_true(ash_build__begin_loop(g, &loop));
    ash_graph_name_next(g, "within");
    next = step(g, a[1], x != ASH_NO_VALUE ? a[2] : a[1]);
    if (until) loop.next_go = ash_lt(g, a[0], ash_scalar(g, ASH_I64, 5));
    ash_graph_name_next(g, "again");
    assert_ok(ash_build__end_loop(g, &loop, outs));
    ash_graph_name_next(g, NULL);
    return outs[until];
}

static ash_value smooth(ash_graph *g, ash_value s, ash_value x) {
    return ash_sin(g, ash_mul(g, s, x));
}

static ash_value positions(ash_graph *g, ash_value s, ash_value x) {
    ash_value at = ash_cast(g, ash_argmax(g, ash_mul(g, s, x), 0, false), ASH_F64);
    return ash_broadcast_to(g, at, (const ash_dim[]){3}, 1);
}

static ash_value mixed(ash_graph *g, ash_value s, ash_value x) {
    return ash_add(g, ash_sin(g, s), ash_cast(g, ash_argmax(g, x, 0, false), ASH_F64));
}

/* Gradients, and gradients of these, of a loop of variable length, with a condition or without: the same
 * bits in every mode and on any number of threads, and what the reference evaluator finds. */
static void of_any_length(void **state) {
    fixture *f = *state;
    enum { MOST = 7, PLACES = 3 * (1 + MOST) * 2 };
    double x[MOST * 3], first[3] = {0.5, -1, 2};
    for (int k = 0; k < MOST * 3; k++) x[k] = sin(1 + 3.0 * k);
    for (int until = 0; until < 2; until++) {
        ash_graph *g = fresh(f);
        ash_dim n = ash_graph_var(g, "n", 0, MOST);
        ash_value xs[] = {INPUT(g, "x", F64, n, 3), INPUT(g, "first", F64, 3)}, grads[2];
        ash_value y = make_loop(g, xs[0], xs[1], n, until, smooth);
        for (int round = 0; round < 2; round++) {
            assert_ok(ash_graph_gradients(g, &y, NULL, 1, xs, 2, NULL, grads, &diag));
            for (int i = 0; i < 2; i++)
                ash_graph_output(g, (const char[]){'g', (char)('0' + 2 * round + i), 0}, grads[i]);
            y = ash_exp(g, grads[1]);
        }
        assert_ok(ash_graph_verify(g, &diag));
        double want[MOST + 1][PLACES];
        for (int turn = 0; turn < 2 * ASH_MODE_COUNT; turn++) {
            ash_plan_options options = ash_plan_options_default();
            ash_plan *plan;
            options.mode = (ash_mode)(turn / 2);
            options.streams = options.mode == ASH_MODE_MULTI_STREAM ? 3 : 1;
            options.threads = 1 + turn % 2;
            options.poison = true;
            assert_ok(ash_plan_prepare(f->context, g, &options, &plan, &diag));
            for (int64_t length = MOST; length >= 0; length--) {
                double got[PLACES];
                size_t used = 0;
                const uint64_t size = (uint64_t)length * 3 * sizeof *x;
                assert_ok(ash_plan_set_vars(plan, &(ash_var_binding){"n", length}, 1, &diag));
                assert_ok(ash_plan_set_input(plan, 0, NULL, x, size, &diag));
                assert_ok(ash_plan_set_input(plan, 1, NULL, first, sizeof first, &diag));
                assert_ok(ash_plan_execute(plan, &diag));
                ash_reference *r;
                const void *inputs[] = {x, first};
                assert_ok(
                    ash_reference_run(g, inputs, 2, (const char *const[]){"n"}, &length, 1, &r, &diag));
                for (size_t i = 0; i < 4; i++) {
                    const ash_view *view;
                    size_t count;
                    const double *wide = ash_reference_output(r, i, NULL, &count);
                    assert_ok(ash_plan_output(plan, i, &view, &diag));
                    assert_ok(ash_view_copy_out(view, got + used, count * sizeof *got, &diag));
                    for (size_t k = 0; k < count; k++)
                        assert_true(fabs(got[used + k] - wide[k]) <= 1e-10 * (1 + fabs(wide[k])));
                    used += count;
                }
                ash_reference_destroy(r);
                if (turn == 0) memcpy(want[length], got, used * sizeof *got);
                assert_memory_equal(want[length], got, used * sizeof *got);
            }
            ash_plan_destroy(plan);
        }
    }
}

/* The derivative of y by x, and by another value beside it unless that is ASH_NO_VALUE. */
static void refuses(ash_graph *g, ash_value y, ash_value x, ash_value beside, ash_status code,
                    const char *what, const char *path) {
    ash_value grads[2];
    const ash_value xs[] = {x, beside};
    ash_status status =
        ash_graph_gradients(g, &y, NULL, 1, xs, 1 + (beside != ASH_NO_VALUE), NULL, grads, &diag);
    if (status != code || !strstr(diag.message, what) || !strstr(diag.message, path))
        fail_msg("%d, \"%s\" does not say \"%s\" and \"%s\"", (int)status, diag.message, what, path);
    assert_int_equal(grads[0], ASH_NO_VALUE);
}

static void refusals(void **state) {
    fixture *f = *state;
    ash_graph *g = fresh(f);
    ash_value first = INPUT(g, "first", F64, 3), x = INPUT(g, "x", F64, 4, 3);
    ash_value y = make_loop(g, x, first, 4, false, positions);
    refuses(g, y, x, ASH_NO_VALUE, ASH_ERROR_UNSUPPORTED, "loop has no derivative", "'x' -> loop 'again'");
    assert_string_equal(diag.node, "again");

    g = fresh(f), first = INPUT(g, "first", F64, 3), x = INPUT(g, "x", F64, 4, 3);
    y = make_loop(g, x, first, 4, false, mixed);
    refuses(g, y, x, first, ASH_ERROR_UNSUPPORTED,
            "in the body of the loop 'again': argmax has no derivative (a position)",
            "'sliced value 0' -> argmax 'within'");
    assert_string_equal(diag.node, "within");

    g = fresh(f), first = INPUT(g, "first", F64, 3);
    y = make_loop(g, ASH_NO_VALUE, first, ASH_OPEN_MOST, true, smooth);
    refuses(g, y, first, ASH_NO_VALUE, ASH_ERROR_UNSUPPORTED, "a number of iterations that nothing bounds",
            "'first' -> loop 'again'");
    assert_string_equal(diag.node, "again");

    g = fresh(f), first = INPUT(g, "first", F64, 3), x = INPUT(g, "x", F64, 4, 3);
    y = make_loop(g, x, first, 4, false, smooth);
    ash_value inside = g->nodes.at[g->nodes.len - 2].out;
    refuses(g, y, inside, ASH_NO_VALUE, ASH_ERROR_INVALID_ARGUMENT, "x 0 is in the body of a loop", "");

    /* Stacks are of a loop and a value of its body. */
    for (int turn = 0; turn < 3; turn++) {
        g = fresh(f), first = INPUT(g, "first", F64, 3), x = INPUT(g, "x", F64, 4, 3);
        y = make_loop(g, x, first, 4, false, smooth);
        const ash_value ins[] = {turn == 0 ? x : y, turn == 1 ? first : g->nodes.at[g->nodes.len - 2].out};
        const ash_attr trips = ASH_ATTR_I(TRIPS, turn == 2 ? 3 : 4);
        ash_value stack = ash_build(g, ASH_OP_STACK, ins, 2, &trips, 1);
        ash_graph_output(g, "stack", stack);
        assert_status(ash_graph_verify(g, &diag), ASH_ERROR_INTERNAL);
        assert_non_null(strstr(diag.message, "a value of its body"));
    }
}

/* What does not depend on an x, or reaches no y, costs nothing; a stop within a body stops. */
static void stops(void **state) {
    fixture *f = *state;
    ash_graph *g = fresh(f);
    ash_value first = INPUT(g, "first", F64, 3), x = INPUT(g, "x", F64, 4, 3),
              apart = INPUT(g, "apart", F64, 3);
    ash_value y = make_loop(g, x, first, 4, false, smooth), grads[2];
    size_t nodes = ash_graph_node_count(g);
    assert_ok(ash_graph_gradients(g, &y, NULL, 1, &apart, 1, NULL, grads, &diag));
    assert_true(ash_graph_node_count(g) <= nodes + 3);
    const ash_value all[] = {x, first}, stop = g->nodes.at[nodes - 2].out;
    assert_ok(ash_graph_gradients(g, &y, NULL, 1, all, 2,
                                  &(ash_gradient_options){.stops = &stop, .n_stops = 1}, grads, &diag));
    ash_graph_output(g, "gx", grads[0]);
    ash_graph_output(g, "gf", grads[1]);
    const double numbers[12] = {1, 2, 3, 4};
    const void *inputs[] = {numbers, numbers, numbers};
    ash_reference *r;
    assert_ok(ash_reference_run(g, inputs, 3, NULL, NULL, 0, &r, &diag));
    for (size_t i = 0; i < 2; i++) {
        size_t count;
        const double *got = ash_reference_output(r, i, NULL, &count);
        for (size_t k = 0; k < count; k++) assert_true(got[k] == 0);
    }
    ash_reference_destroy(r);
}

static void without_memory(void **state) {
    fixture *f = *state;
    for (long at = 1;; at++) {
        ash_graph *g = fresh(f);
        ash_value first = INPUT(g, "first", F64, 3), x = INPUT(g, "x", F64, 4, 3), grads[2];
        ash_value y = make_loop(g, x, first, 4, true, smooth);
        assert_ok(ash_graph_status(g, &diag));
        f->memory.count = 0;
        f->memory.fail_at = at;
        ash_status status =
            ash_graph_gradients(g, &y, NULL, 1, (const ash_value[]){x, first}, 2, NULL, grads, &diag);
        ash_graph *split = NULL;
        if (status == ASH_OK) {
            ash_graph_output(g, "gx", grads[0]);
            status = ash_graph_status(g, &diag);
            if (status == ASH_OK) status = ash_graph__split_loops(g, &split, NULL, &diag);
        }
        f->memory.fail_at = 0;
        ash_graph_destroy(split);
        if (status == ASH_OK) break;
        assert_int_equal(status, ASH_ERROR_OUT_OF_MEMORY);
        assert_true(at < 100000);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(losses_are_those_of_torch, setup_threads, teardown),
        IR_TEST(eagerly),
        cmocka_unit_test_setup_teardown(of_any_length, setup_threads, teardown),
        IR_TEST(report_counts_stacks),
        IR_TEST(recurrent_networks),
        IR_TEST(refusals),
        IR_TEST(stops),
        IR_TEST(without_memory)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
