/* SPDX-License-Identifier: MIT */
/* On several devices: mode graph and its counters, late capture, replicas, inputs that are used up,
 * capacities, training in one plan and in pairs, and copies between devices that are peers. Everything has
 * the bits of one device. */
#include <math.h>

#include "ashlar/train.h"
#include "placed_room.h"
#include "random.h"

/* The options of a mode on several devices, with kernels whose bits are those of one device. */
static ash_plan_options in_mode(struct room *r, size_t count, ash_mode mode, bool poison) {
    ash_plan_options options = several(r, count);
    options.mode = mode;
    options.streams = mode == ASH_MODE_MULTI_STREAM ? 2 : 0;
    options.poison = poison;
    options.no_fuse = options.no_optimize = true;
    return options;
}

/* Executes with several orders of what nothing orders. */
static void expect_always(struct room *r, const float *want) {
    float have[COUNT];
    for (reorder.seed = 1; reorder.seed < 8; reorder.seed++) {
        memset(have, 0, sizeof have);
        run(r, have);
        assert_memory_equal(have, want, sizeof have);
    }
}

static size_t crossing_count(const ash_plan *plan) {
    size_t count = 0;
    for (size_t d = 0; d < ash_plan_device_count(plan); d++) count += info_of(plan, d).copies;
    return count;
}

/* --- mode graph ----------------------------------------------------------------------------------- */

/* Each device's operations are captured, all but the copies between them; replays see other inputs. */
static void mode_graph(void **state) {
    struct room *r = *state;
    float want[2][COUNT], xs[2][COUNT];
    make_diamond(r);
    for (int k = 0; k < 2; k++) {
        for (int i = 0; i < COUNT; i++) xs[k][i] = r->x[i] *= k ? -1 : 1;
        expect(r, want[k]);
    }
    for (int poison = 0; poison < 2; poison++) {
        const ash_plan_options options = in_mode(r, 3, ASH_MODE_GRAPH, poison);
        ash_profile profile[64];
        prepare(r, &options);
        ash_plan_report report = ash_plan_describe(r->plan);
        assert_int_equal(report.mode, ASH_MODE_GRAPH);
        assert_int_equal(report.captured, report.ops - crossing_count(r->plan));
        assert_int_equal(report.captured, 4);
        assert_int_equal(report.graphs, 4); /* relu and neg are each read elsewhere */
        assert_true(report.waits >= 4 && report.events >= 4 && !report.captured_late);
        for (int k = 0; k < 4; k++) {
            assert_ok(ash_plan_set_input(r->plan, 0, NULL, xs[k % 2], BYTES, &diag));
            expect_always(r, want[k % 2]);
        }
        assert_status(ash_plan_execute_profiled(r->plan, profile, 64, &diag), ASH_ERROR_UNSUPPORTED);
    }
}

/* What a device cannot capture, the plan does not do otherwise. */
static void a_mode_that_is_refused(void **state) {
    struct room *r = *state;
    make_diamond(r);
    ash_plan_options options = in_mode(r, 3, ASH_MODE_GRAPH, false);
    reorder.refuse = true;
    assert_refused(r, &options, ASH_ERROR_UNSUPPORTED, "asked to capture nothing");
    options.late_capture = true;
    prepare(r, &options);
    assert_status(ash_plan_execute(r->plan, &diag), ASH_ERROR_UNSUPPORTED);
    assert_non_null(strstr(diag.message, "asked to capture nothing"));
    reorder.refuse = false;
    float want[COUNT];
    run(r, want);
    assert_true(ash_plan_describe(r->plan).captured_late);
}

/* Replicas share what was compiled, and are captured when the plan was. */
static void late_capture_and_replicas(void **state) {
    struct room *r = *state;
    float want[COUNT];
    make_diamond(r);
    expect(r, want);
    for (int late = 0; late < 2; late++) {
        ash_plan_options options = in_mode(r, 3, ASH_MODE_GRAPH, false);
        options.late_capture = late;
        prepare(r, &options);
        assert_int_equal(ash_plan_describe(r->plan).captured, late ? 0 : 4);
        if (late) expect_always(r, want);
        ash_plan *twin, *first = r->plan;
        assert_ok(ash_plan_replicate(first, &twin, &diag));
        assert_int_equal(ash_plan_describe(twin).captured, 4);
        assert_false(twin->streams->class->compiled(twin->capture));
        assert_ok(ash_plan_set_input(twin, 0, NULL, r->x, BYTES, &diag));
        r->plan = twin;
        expect_always(r, want);
        r->plan = first;
        expect_always(r, want);
        ash_plan_destroy(first);
        r->plan = twin;
        expect_always(r, want);
    }
}

static void replays_take_no_memory(void **state) {
    struct room *r = *state;
    float have[COUNT];
    make_diamond(r);
    const ash_plan_options options = in_mode(r, 3, ASH_MODE_GRAPH, false);
    prepare(r, &options);
    run(r, have);
    long count = r->memory.count;
    for (int i = 0; i < 3; i++) assert_ok(ash_plan_execute(r->plan, &diag));
    assert_int_equal(r->memory.count, count);
}

/* A product of many rows on the processor is shared out among the threads, in a capture as well; a device
 * that fails meanwhile stops all others, and the plan works again. */
static void threads_and_failures(void **state) {
    struct room *r = *state;
    enum { N = 256 };
    static float x[N * N], want[N * N], have[N * N];
    const ash_type square = {.dtype = ASH_F32, .rank = 2, .dims = {N, N}};
    ash_graph *g = r->g;
    for (int i = 0; i < N * N; i++) x[i] = (float)(i * 7 % 13) - 6;
    ash_value v = ash_graph_input(g, "x", &square), w = ash_graph_constant(g, &square, x, sizeof x, 0);
    ash_value y = ash_matmul(g, on(r, 1, ash_neg(g, v)), w);
    ash_graph_output(g, "y", ash_add(g, y, on(r, 1, ash_abs(g, v))));
    for (int mode = 0; mode < 2; mode++) {
        const ash_plan_options options = in_mode(r, 2, mode ? ASH_MODE_GRAPH : ASH_MODE_STREAM, false);
        const ash_view *view;
        ash_plan_destroy(r->plan);
        r->plan = NULL;
        assert_ok(ash_plan_prepare(r->context, g, &options, &r->plan, &diag));
        assert_ok(ash_plan_set_input(r->plan, 0, NULL, x, sizeof x, &diag));
        for (int i = 0; i < 4; i++) {
            reorder.fail = i == 2;
            ash_status status = ash_plan_execute(r->plan, &diag);
            assert_status(status, i == 2 ? ASH_ERROR_DEVICE : ASH_OK);
            if (i == 2) continue;
            assert_ok(ash_plan_output(r->plan, 0, &view, &diag));
            assert_ok(ash_view_copy_out(view, mode || i ? have : want, sizeof want, &diag));
            if (mode || i) assert_memory_equal(have, want, sizeof want);
        }
        uint64_t done, total;
        ash_plan_progress(r->plan, &done, &total);
        assert_int_equal(done, total);
    }
}

/* --- inputs that are used up ---------------------------------------------------------------------- */

static void reused_inputs(void **state) {
    struct room *r = *state;
    ash_graph *g = r->g;
    float want[COUNT];
    ash_value v = ash_graph_input(g, "x", &matrix);
    v = on(r, 1, ash_tanh(g, v));
    for (int i = 0; i < 3; i++) v = ash_mul(g, ash_sin(g, v), ash_exp(g, v));
    ash_graph_output(g, "y", v);
    expect(r, want);
    for (int mode = 0; mode < ASH_MODE_COUNT; mode++) {
        ash_plan_options options = in_mode(r, 2, (ash_mode)mode, true);
        prepare(r, &options);
        uint64_t kept = info_of(r->plan, 0).arena;
        options.reuse_inputs = true;
        prepare(r, &options);
        assert_true(info_of(r->plan, 0).arena < kept);
        for (reorder.seed = 1; reorder.seed < 5; reorder.seed++) {
            float have[COUNT];
            assert_ok(ash_plan_set_input(r->plan, 0, NULL, r->x, BYTES, &diag));
            run(r, have);
            assert_memory_equal(have, want, sizeof want);
            assert_status(ash_plan_execute(r->plan, &diag), ASH_ERROR_STATE);
            assert_non_null(strstr(diag.message, "used up"));
            assert_string_equal(diag.node, "x");
        }
    }
}

/* --- capacities ------------------------------------------------------------------------------------- */

/* Two devices, each with more alive in the given order than in the best one: `n` values are made, and then
 * summed up from the last to the first, though each could be summed as it comes. */
static void make_wide(struct room *r, int n) {
    ash_graph *g = r->g;
    ash_value x = ash_graph_input(g, "x", &matrix), sums[2], made[2][8];
    for (uint32_t d = 0; d < 2; d++)
        for (int i = 0; i < n; i++)
            made[d][i] = on(r, d, ash_mul(g, on(r, d, ash_sin(g, x)), ash_scalar(g, ASH_F32, i + 1)));
    for (uint32_t d = 0; d < 2; d++) {
        sums[d] = made[d][n - 1];
        for (int i = n - 1; i-- > 0;) sums[d] = on(r, d, ash_add(g, made[d][i], sums[d]));
    }
    ash_graph_output(g, "y", on(r, 0, ash_add(g, sums[0], sums[1])));
    assert_ok(ash_graph_status(g, &diag));
}

/* The number behind a word of the message. */
static uint64_t number_behind(const char *word) {
    const char *at = strstr(diag.message, word);
    assert_non_null(at);
    return strtoull(at + strlen(word), NULL, 10);
}

/* Each device has its own limit, which is met, or refused with the smallest size for that device. */
static void capacities(void **state) {
    struct room *r = *state;
    float want[COUNT];
    make_wide(r, 6);
    expect(r, want);
    ash_plan_options options = in_mode(r, 2, ASH_MODE_STREAM, true);
    prepare(r, &options);
    const uint64_t whole[] = {info_of(r->plan, 0).arena, info_of(r->plan, 1).arena};
    for (uint32_t d = 0; d < 2; d++) {
        uint64_t limits[2] = {0, 0}, least;
        const char *name = ash_device_describe(r->devices[d]).name;
        limits[d] = 64;
        options.capacities = limits;
        assert_refused(r, &options, ASH_ERROR_BUDGET, name);
        least = number_behind("needs ");
        assert_int_equal(number_behind("the limit is "), 64);
        assert_true(least < whole[d]);
        limits[d] = least;
        prepare(r, &options);
        assert_true(info_of(r->plan, d).arena <= least);
        expect_always(r, want);
        limits[d] = least - 1;
        assert_refused(r, &options, ASH_ERROR_BUDGET, name);
        assert_int_equal(number_behind("needs "), least);
        options.capacities = NULL; /* one number for all */
        options.memory.capacity = ASH_MAX(whole[0], whole[1]);
        prepare(r, &options);
        options.memory.capacity = 64;
        assert_refused(r, &options, ASH_ERROR_BUDGET, "on ");
        options.memory.capacity = 0;
    }
    uint64_t both[2] = {whole[0] - 1, whole[1] - 1};
    options.capacities = both;
    for (int mode = 0; mode < ASH_MODE_COUNT; mode++) {
        options.mode = (ash_mode)mode;
        options.streams = mode == ASH_MODE_MULTI_STREAM ? 1 : 0;
        prepare(r, &options);
        for (uint32_t d = 0; d < 2; d++) assert_true(info_of(r->plan, d).arena <= both[d]);
        expect_always(r, want);
    }
}

/* Fused kernels are split on the device that exceeds its limit, and nowhere else. */
static void split_where_it_is_too_much(void **state) {
    struct room *r = *state;
    enum { N = 64, BRANCHES = 8 };
    static float w[N * N], x[N * N], want[N * N], have[N * N];
    const ash_type square = {.dtype = ASH_F32, .rank = 2, .dims = {N, N}};
    ash_graph *g = r->g;
    for (int i = 0; i < N * N; i++) w[i] = (float)(i * 7 % 9) / 4 - 1, x[i] = (float)(i * 5 % 7) - 3;
    ash_value v = ash_graph_input(g, "x", &square), sums[2];
    ash_value c = ash_graph_constant(g, &square, w, sizeof w, ASH_DATA_COPY);
    for (uint32_t d = 0; d < 2; d++) {
        sums[d] = v;
        for (int i = 0; i < BRANCHES; i++) {
            ash_value branch =
                on(r, d, ash_matmul(g, on(r, d, ash_add(g, v, ash_scalar(g, ASH_F32, i))), c));
            sums[d] = on(r, d, ash_add(g, sums[d], on(r, d, ash_relu(g, branch))));
        }
    }
    ash_graph_output(g, "y", on(r, 0, ash_sub(g, sums[0], sums[1])));
    ash_plan_options options = several(r, 2);
    options.fuse_freely = true;
    for (int way = 0; way < 2; way++) {
        const ash_view *view;
        uint64_t limits[2] = {0, way ? info_of(r->plan, 1).arena / 2 : 0};
        options.capacities = limits;
        options.fuse_freely = !way;
        ash_plan_destroy(r->plan);
        r->plan = NULL;
        assert_ok(ash_plan_prepare(r->context, g, &options, &r->plan, &diag));
        if (way) assert_true(info_of(r->plan, 1).arena <= limits[1]);
        assert_ok(ash_plan_set_input(r->plan, 0, NULL, x, sizeof x, &diag));
        assert_ok(ash_plan_execute(r->plan, &diag));
        assert_ok(ash_plan_output(r->plan, 0, &view, &diag));
        assert_ok(ash_view_copy_out(view, way ? have : want, sizeof want, &diag));
    }
    assert_memory_equal(have, want, sizeof want);
}

/* --- training ------------------------------------------------------------------------------------- */

enum { LAYERS = 4 };

/* A chain of products, of which the middle ones are on device 1: the loss, its gradients by the weights,
 * and a step of an optimiser. `seed`: of the loss's gradient, or NULL. */
static void make_training(struct room *r, ash_value *seed) {
    ash_graph *g = r->g;
    static float numbers[COLUMNS * COLUMNS];
    const ash_type scalar = {.dtype = ASH_F32},
                   square = {.dtype = ASH_F32, .rank = 2, .dims = {COLUMNS, COLUMNS}};
    static const char *const names[LAYERS] = {"w0", "w1", "w2", "w3"};
    ash_value w[LAYERS], grads[LAYERS], h = ash_graph_input(g, "x", &matrix);
    const int64_t both[] = {0, 1};
    for (int i = 0; i < COLUMNS * COLUMNS; i++) numbers[i] = (float)(i * 11 % 17) / 64 - 0.125f;
    for (int i = 0; i < LAYERS; i++) {
        w[i] = ash_graph_state(g, names[i], &square, numbers, sizeof numbers, ASH_DATA_COPY);
        ash_value y = ash_matmul(g, h, w[i]), z = ash_tanh(g, y);
        if (i == 1 || i == 2) on(r, 1, y), on(r, 1, z);
        h = i == 2 ? on(r, 1, ash_add(g, z, h)) : z;
    }
    ash_value loss = ash_reduce_sum(g, ash_mul(g, h, h), both, 2, false);
    if (seed) *seed = ash_graph_input(g, "seed", &scalar);
    size_t before = g->nodes.len;
    assert_ok(ash_graph_gradients(g, &loss, seed, 1, w, LAYERS, NULL, grads, &diag));
    size_t follow = 0;
    for (size_t n = before; n < g->nodes.len; n++) follow += g->nodes.at[n].place == 2;
    assert_true(follow >= 8); /* of the middle layers, and their sum */
    const ash_optimizer_options options = {
        .size = sizeof options, .kind = ASH_OPTIMIZER_SGD, .momentum = 0.5};
    assert_ok(ash_graph_optimize(g, w, grads, LAYERS, ash_scalar(g, ASH_F32, 0x1p-10), &options, &diag));
    ash_graph_output(g, "loss", loss);
    ash_graph_output(g, "y", h);
    assert_ok(ash_graph_status(g, &diag));
}

/* The losses of some steps, and the last layer's result. */
typedef struct trained {
    float losses[4], y[COUNT], w[COLUMNS * COLUMNS];
} trained;

static void read_output(ash_plan *plan, size_t position, void *to) {
    const ash_view *view;
    assert_ok(ash_plan_output(plan, position, &view, &diag));
    assert_ok(ash_view_copy_out(view, to, ash_view_bytes(view), &diag));
}

static void read_state(ash_plan *plan, const char *name, float *to) {
    const ash_view *view;
    size_t position;
    assert_ok(ash_plan_state_position(plan, name, &position, &diag));
    assert_ok(ash_plan_state(plan, position, &view, &diag));
    assert_ok(ash_view_copy_out(view, to, ash_view_bytes(view), &diag));
}

static void train(struct room *r, const ash_plan_options *options, trained *out) {
    ash_plan *plan;
    assert_ok(ash_plan_prepare(r->context, r->g, options, &plan, &diag));
    assert_ok(ash_plan_set_input(plan, 0, NULL, r->x, BYTES, &diag));
    for (int i = 0; i < 4; i++) {
        reorder.seed = (uint64_t)i + 1;
        assert_ok(ash_plan_execute(plan, &diag));
        read_output(plan, 0, &out->losses[i]);
    }
    read_output(plan, 1, out->y);
    read_state(plan, "w1", out->w);
    ash_plan_destroy(plan);
}

static void train_in_turns(struct room *r, ash_value seed, const ash_plan_options *options,
                           const ash_plan_options *second, trained *out) {
    const ash_pair_options pair = {
        .size = sizeof pair, .seeds = &seed, .n_seeds = 1, .first = options, .second = second};
    const float one = 1;
    ash_plan *forward, *backward;
    assert_ok(ash_plan_prepare_pair(r->context, r->g, &pair, &forward, &backward, &diag));
    assert_int_equal(ash_plan_input_count(forward), 1);
    assert_int_equal(ash_plan_input_count(backward), 1);
    assert_int_equal(ash_plan_output_count(forward), 2);
    assert_ok(ash_plan_set_input(forward, 0, NULL, r->x, BYTES, &diag));
    for (int i = 0; i < 4; i++) {
        reorder.seed = (uint64_t)i + 1;
        assert_ok(ash_plan_execute(forward, &diag));
        read_output(forward, 0, &out->losses[i]);
        read_output(forward, 1, out->y);
        assert_ok(ash_plan_set_input(backward, 0, NULL, &one, sizeof one, &diag));
        assert_ok(ash_plan_execute(backward, &diag));
        assert_status(ash_plan_execute(backward, &diag), ASH_ERROR_STATE);
    }
    read_state(forward, "w1", out->w);
    if (options->device_count > 1) {
        size_t ops = 0;
        for (int k = 0; k < 2; k++)
            for (size_t d = 0; d < 2; d++) {
                ash_plan_device_info info = info_of(k ? backward : forward, d);
                assert_true(info.ops > 0);
                ops += info.ops + info.copies;
            }
        assert_int_equal(ops, ash_plan_op_count(forward) + ash_plan_op_count(backward));
        assert_true(ash_plan_describe(forward).check.buffers > 0);
    }
    ash_plan_destroy(forward);
    ash_plan_destroy(backward);
}

static ash_plan_options alone(struct room *r) {
    ash_plan_options options = ash_plan_options_default();
    options.device = r->devices[0];
    options.no_fuse = options.no_optimize = true;
    return options;
}

static void forget_places(ash_graph *g, uint32_t *places, bool restore) {
    for (size_t n = 0; n < g->nodes.len; n++) {
        if (!restore) places[n] = g->nodes.at[n].place;
        g->nodes.at[n].place = restore ? places[n] : 0;
    }
}

/* Training in one plan: gradients are computed where the forward pass is, states stay on the main device.
 *  */
static void training_in_one_plan(void **state) {
    struct room *r = *state;
    static trained want, have;
    uint32_t places[256];
    make_training(r, NULL);
    forget_places(r->g, places, false);
    ash_plan_options options = alone(r);
    train(r, &options, &want);
    forget_places(r->g, places, true);
    assert_true(want.losses[3] < want.losses[0]);
    for (int mode = 0; mode < ASH_MODE_COUNT; mode++)
        for (int poison = 0; poison < 2; poison++) {
            options = in_mode(r, 2, (ash_mode)mode, poison);
            train(r, &options, &have);
            assert_memory_equal(&have, &want, sizeof want);
        }
}

static void training_in_pairs(void **state) {
    struct room *r = *state;
    static trained want, have;
    uint32_t places[256];
    ash_value seed;
    make_training(r, &seed);
    forget_places(r->g, places, false);
    ash_plan_options options = alone(r);
    train_in_turns(r, seed, &options, NULL, &want);
    forget_places(r->g, places, true);
    for (int mode = 0; mode < ASH_MODE_COUNT; mode++)
        for (int late = 0; late < ASH_MODE_COUNT; late++) {
            ash_plan_options second = in_mode(r, 2, (ash_mode)late, mode == late);
            options = in_mode(r, 2, (ash_mode)mode, mode == late);
            train_in_turns(r, seed, &options, &second, &have);
            assert_memory_equal(&have, &want, sizeof want);
        }
    for (int fuse = 0; fuse < 2; fuse++) { /* as callers have it: close, and both plans are whole */
        options = several(r, 2);
        options.no_fuse = !fuse;
        train_in_turns(r, seed, &options, NULL, &have);
        for (int i = 0; i < 4; i++)
            assert_float_equal(have.losses[i], want.losses[i], 1e-4f * fabsf(want.losses[i]));
    }
}

/* Rules on names place gradients as they place the forward pass. */
static void gradients_by_rules(void **state) {
    struct room *r = *state;
    ash_graph *g = r->g;
    const int64_t both[] = {0, 1};
    ash_value x = ash_graph_input(g, "x", &matrix), dx;
    ash_graph_name_next(g, "far");
    ash_value y = ash_sin(g, ash_exp(g, x));
    ash_graph_name_next(g, "near");
    ash_value loss = ash_reduce_sum(g, ash_mul(g, y, y), both, 2, false);
    assert_ok(ash_graph_gradients(g, &loss, NULL, 1, &x, 1, NULL, &dx, &diag));
    ash_graph_output(g, "dx", dx);
    float want[COUNT];
    expect(r, want);
    const ash_place_rule rule = {"far", 1};
    ash_plan_options options = in_mode(r, 2, ASH_MODE_STREAM, false);
    options.places = &rule;
    options.place_count = 1;
    prepare(r, &options);
    assert_true(info_of(r->plan, 1).ops >= 5); /* exp, sin, cos, and two products */
    expect_always(r, want);
}

/* --- peers ---------------------------------------------------------------------------------------- */

static void peers(void **state) {
    struct room *r = *state;
    float want[COUNT];
    make_diamond(r);
    expect(r, want);
    for (int peers = 0; peers < 2; peers++)
        for (int mode = 0; mode < ASH_MODE_COUNT; mode++) {
            reorder.peers = peers;
            const ash_plan_options options = in_mode(r, 3, (ash_mode)mode, false);
            prepare(r, &options);
            assert_int_equal(info_of(r->plan, 2).copies, 1); /* from device 1 */
            assert_int_equal(info_of(r->plan, 2).direct, peers);
            assert_int_equal(info_of(r->plan, 0).direct + info_of(r->plan, 1).direct, 0);
            expect_always(r, want);
        }
    ash_storage *storages[2];
    ash_view *views[2];
    float have[COUNT];
    for (int i = 0; i < 2; i++) {
        assert_ok(ash_storage_create(r->devices[1 + i], BYTES, 64, &storages[i], &diag));
        assert_ok(ash_view_create(storages[i], 0, BYTES, &matrix, &views[i], &diag));
    }
    assert_ok(ash_view_copy_in(views[0], r->x, BYTES, &diag));
    assert_ok(ash_view_copy(views[1], views[0], &diag));
    assert_ok(ash_view_copy_out(views[1], have, BYTES, &diag));
    assert_memory_equal(have, r->x, BYTES);
    for (int i = 0; i < 2; i++) {
        ash_view_release(views[i]);
        ash_storage_release(storages[i]);
    }
    reorder.peers = false;
}

/* Whatever allocation fails, nothing is left behind. */
static void failing_allocations(void **state) {
    struct room *r = *state;
    ash_status status = ASH_ERROR_OUT_OF_MEMORY;
    uint64_t limits[] = {0, 0, 0};
    make_diamond(r);
    reorder.peers = true;
    ash_plan_options options = in_mode(r, 3, ASH_MODE_GRAPH, false);
    prepare(r, &options);
    limits[0] = info_of(r->plan, 0).arena;
    options.capacities = limits;
    for (long n = 1; status != ASH_OK && n < 60000; n += 1 + n / 24) {
        ash_plan *plan = NULL;
        r->memory.fail_at = r->memory.count + n;
        status = ash_plan_prepare(r->context, r->g, &options, &plan, &diag);
        r->memory.fail_at = 0;
        ash_plan_destroy(plan);
    }
    reorder.peers = false;
    assert_ok(status);
}

int main(void) {
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, close_room)
    const struct CMUnitTest tests[] = {
        TEST(mode_graph),
        cmocka_unit_test_setup_teardown(mode_graph, setup_alone, close_room),
        TEST(a_mode_that_is_refused),
        TEST(late_capture_and_replicas),
        TEST(replays_take_no_memory),
        TEST(threads_and_failures),
        TEST(reused_inputs),
        TEST(capacities),
        TEST(split_where_it_is_too_much),
        TEST(training_in_one_plan),
        TEST(training_in_pairs),
        TEST(gradients_by_rules),
        TEST(peers),
        TEST(failing_allocations),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
