/* SPDX-License-Identifier: MIT */
/* Plans on several devices: the processor, and two whose memory and the host's do not reach each other
 * (apart.h). Results, what is copied and how often, where weights are, modes, and what is refused.
 * tests/fuzz has random graphs with random places. */
#include <math.h>

#include <stdatomic.h>
#include <time.h>

#include "placed_room.h"

#include "ashlar/onnx.h"
#include "ir/build.h"
#include "ir/divide.h"
#include "open_model.h"
#include "random.h"

static void a_diamond(void **state) {
    struct room *r = *state;
    float want[COUNT], have[COUNT];
    make_diamond(r);
    expect(r, want);
    for (int mode = 0; mode < 2; mode++)
        for (int poison = 0; poison < 2; poison++) {
            ash_plan_options options = several(r, 3);
            options.mode = mode ? ASH_MODE_MULTI_STREAM : ASH_MODE_STREAM;
            options.streams = mode ? 2 : 0;
            options.poison = poison;
            options.no_fuse = options.no_optimize = true;
            prepare(r, &options);
            assert_int_equal(ash_plan_device_count(r->plan), 3);
            assert_ptr_equal(ash_plan_device(r->plan), r->devices[0]);
            assert_copies(r->plan, 2, 1, 1); /* b and c; x; a */
            ash_plan_report report = ash_plan_describe(r->plan);
            assert_true(report.streams >= 3 + 4); /* each pair has its own */
            assert_true(report.events >= 4);
            for (reorder.seed = 1; reorder.seed < 12; reorder.seed++) {
                memset(have, 0, sizeof have);
                run(r, have);
                assert_memory_equal(have, want, sizeof want);
            }
        }
}

/* The main device need not be the host. */
static void from_the_outside(void **state) {
    struct room *r = *state;
    float want[COUNT], have[COUNT];
    make_diamond(r);
    expect(r, want);
    ash_device *devices[] = {r->devices[1], r->devices[0], r->devices[2]};
    ash_plan_options options = several(r, 3);
    options.devices = devices;
    prepare(r, &options);
    assert_ptr_equal(ash_plan_device(r->plan), devices[0]);
    const ash_view *view;
    assert_ok(ash_plan_output(r->plan, 0, &view, &diag));
    run(r, have);
    assert_ptr_equal(ash_storage_device(ash_view_storage(view)), devices[0]);
    for (int i = 0; i < COUNT; i++) assert_float_equal(have[i], want[i], 1e-5f * (1 + fabsf(want[i])));
}

/* A value that several nodes of a device read crosses once; each device has an arena of its own. */
static void crossings_and_arenas(void **state) {
    struct room *r = *state;
    ash_graph *g = r->g;
    float have[COUNT];
    ash_value x = ash_graph_input(g, "x", &matrix), a = ash_abs(g, x), s = a;
    for (int i = 0; i < 5; i++) s = on(r, 1, ash_mul(g, on(r, 1, ash_tanh(g, s)), a));
    ash_graph_output(g, "y", s);
    ash_plan_options options = several(r, 2);
    options.no_optimize = true;
    prepare(r, &options);
    assert_copies(r->plan, 1, 1, 0);
    assert_int_equal(info_of(r->plan, 1).copied, BYTES);
    size_t count;
    const ash_memory_arena *arenas = ash_memory_plan_arenas(ash_plan_memory(r->plan), &count);
    assert_int_equal(count, 2);
    assert_int_equal(arenas[0].size, info_of(r->plan, 0).arena);
    assert_int_equal(arenas[1].size, info_of(r->plan, 1).arena);
    assert_int_equal(ash_plan_arena_size(r->plan), arenas[0].size); /* what a caller's block holds */
    run(r, have);
    for (int i = 0; i < COUNT; i++) {
        double want = fabs(r->x[i]);
        for (int k = 0; k < 5; k++) want = tanh(want) * fabs(r->x[i]);
        assert_float_equal(have[i], (float)want, 1e-5f);
    }
    ash_plan_report report = ash_plan_describe(r->plan);
    assert_true(report.check.buffers > 0 && report.replay.operations > 0);
}

/* Weights are where they are read; a parameter that two devices read is set on both. */
static void weights(void **state) {
    struct room *r = *state;
    ash_graph *g = r->g;
    static float w[COLUMNS * COLUMNS], b[COLUMNS];
    ash_type tw = {.dtype = ASH_F32, .rank = 2, .dims = {COLUMNS, COLUMNS}},
             tb = {.dtype = ASH_F32, .rank = 1, .dims = {COLUMNS}};
    float first[COUNT], have[COUNT], other[COLUMNS];
    for (int i = 0; i < COLUMNS * COLUMNS; i++) w[i] = (float)(i * 7 % 13) / 8 - 0.75f;
    for (int i = 0; i < COLUMNS; i++) b[i] = (float)i / 4, other[i] = (float)(i % 5);
    ash_value x = ash_graph_input(g, "x", &matrix),
              p = ash_graph_parameter(g, "b", &tb, b, sizeof b, ASH_DATA_COPY),
              q = ash_graph_constant(g, &tw, w, sizeof w, ASH_DATA_COPY);
    ash_value bias = ash_mul(g, p, ash_scalar(g, ASH_F32, 2));
    ash_value h = ash_add(g, ash_matmul(g, x, q), bias);
    ash_value y = on(r, 1, ash_matmul(g, h, q));
    ash_graph_output(g, "y", on(r, 1, ash_add(g, y, bias)));
    ash_plan_options options = ash_plan_options_default();
    options.device = r->devices[0];
    for (size_t n = 0; n < g->nodes.len; n++) g->nodes.at[n].place += 0;
    options = several(r, 2);
    prepare(r, &options);
    assert_true(info_of(r->plan, 0).weights + info_of(r->plan, 0).originals > 0);
    assert_true(info_of(r->plan, 1).weights > 0);
    assert_true(info_of(r->plan, 1).twice >= sizeof w);
    assert_int_equal(info_of(r->plan, 0).twice, 0);
    assert_int_equal(ash_plan_parameter_count(r->plan), 1);
    assert_copies(r->plan, 1, 1, 0); /* h there, y back: no weight crosses */
    for (int round = 0; round < 3; round++) {
        const float *now = round == 1 ? other : b;
        if (round) assert_ok(ash_plan_set_parameter(r->plan, "b", NULL, now, sizeof b, &diag));
        run(r, have);
        if (round == 0) memcpy(first, have, sizeof have);
        for (int i = 0; i < ROWS; i++)
            for (int j = 0; j < COLUMNS; j++) {
                double want = 2.0 * now[j];
                for (int k = 0; k < COLUMNS; k++) {
                    double mid = 2.0 * now[k];
                    for (int l = 0; l < COLUMNS; l++)
                        mid += (double)r->x[i * COLUMNS + l] * w[l * COLUMNS + k];
                    want += mid * w[k * COLUMNS + j];
                }
                assert_float_equal(have[i * COLUMNS + j], (float)want, 1e-3f);
            }
    }
    assert_memory_equal(first, have, sizeof have);
    ash_plan *twin;
    assert_ok(ash_plan_replicate(r->plan, &twin, &diag));
    assert_ok(ash_plan_release_all(r->plan, NULL, &diag));
    ash_plan_destroy(r->plan);
    r->plan = twin;
    assert_ok(ash_plan_set_input(r->plan, 0, NULL, r->x, BYTES, &diag));
    run(r, have);
    assert_memory_equal(first, have, sizeof have);
}

/* A state is on the main device, also where another one computes its update; variables are of all. */
static void states_and_variables(void **state) {
    struct room *r = *state;
    ash_graph *g = r->g;
    ash_dim n = ash_graph_var(g, "n", 1, ROWS);
    ash_type tx = {.dtype = ASH_F32, .rank = 2, .dims = {n, COLUMNS}},
             ts = {.dtype = ASH_F32, .rank = 1, .dims = {COLUMNS}};
    ash_value x = ash_graph_input(g, "x", &tx), s = ash_graph_state(g, "s", &ts, NULL, 0, ASH_DATA_COPY);
    int64_t axes[] = {0};
    ash_value sum = on(r, 1, ash_reduce_sum(g, x, axes, 1, false));
    ash_value next = on(r, 1, ash_add(g, s, sum));
    ash_graph_update(g, s, next);
    ash_graph_output(g, "y", on(r, 2, ash_mul(g, x, next)));
    assert_ok(ash_graph_status(g, &diag));
    ash_plan_options options = several(r, 3);
    ash_plan_destroy(r->plan);
    assert_ok(ash_plan_prepare(r->context, g, &options, &r->plan, &diag));
    float total[COLUMNS] = {0}, have[COUNT];
    for (int64_t rows = 1; rows <= ROWS; rows += 3) {
        const ash_var_binding binding = {"n", rows};
        assert_ok(ash_plan_set_vars(r->plan, &binding, 1, &diag));
        assert_ok(ash_plan_set_input(r->plan, 0, NULL, r->x, (uint64_t)rows * COLUMNS * 4, &diag));
        run(r, have);
        for (int j = 0; j < COLUMNS; j++)
            for (int64_t i = 0; i < rows; i++) total[j] += r->x[i * COLUMNS + j];
        for (int64_t i = 0; i < rows * COLUMNS; i++)
            assert_float_equal(have[i], r->x[i] * total[i % COLUMNS], 1e-3f);
    }
}

/* Views of what another device holds, where it is kept. */
static void kept_elsewhere(void **state) {
    struct room *r = *state;
    ash_graph *g = r->g;
    float have[COUNT];
    ash_value x = ash_graph_input(g, "x", &matrix), a = on(r, 1, ash_neg(g, x));
    ash_graph_output(g, "y", on(r, 1, ash_exp(g, a)));
    ash_plan_options options = several(r, 2);
    options.keep = &a;
    options.keep_count = 1;
    prepare(r, &options);
    run(r, have);
    const ash_view *view;
    assert_ok(ash_plan_buffer(r->plan, a, &view, &diag));
    assert_ptr_equal(ash_storage_device(ash_view_storage(view)), r->devices[1]);
    assert_ok(ash_view_copy_out(view, have, BYTES, &diag));
    for (int i = 0; i < COUNT; i++) assert_true(have[i] == -r->x[i]);
}

/* Rules by name; what the graph says comes first, and of rules the last. */
static void rules(void **state) {
    struct room *r = *state;
    ash_graph *g = r->g;
    static const char *const names[] = {"layer1.a", "layer1.b", "layer2.a", "layer12.c"};
    ash_value v = ash_graph_input(g, "x", &matrix);
    for (int i = 0; i < 4; i++) {
        ash_graph_name_next(g, names[i]);
        v = i % 2 ? ash_tanh(g, v) : ash_exp(g, v);
    }
    ash_graph_output(g, "y", v);
    const ash_place_rule places[] = {{"layer?.*", 1}, {"*.b", 2}, {"nobody", 7}};
    ash_plan_options options = several(r, 3);
    options.places = places;
    options.place_count = 3;
    options.no_fuse = true;
    prepare(r, &options);
    assert_int_equal(info_of(r->plan, 0).ops, 1); /* layer12.c */
    assert_int_equal(info_of(r->plan, 1).ops, 2);
    assert_int_equal(info_of(r->plan, 2).ops, 1);
    assert_copies(r->plan, 1, 2, 1);
    assert_ok(ash_graph_place(g, v, 2, &diag));
    prepare(r, &options);
    assert_int_equal(info_of(r->plan, 0).ops, 0);
    assert_int_equal(info_of(r->plan, 2).ops, 2);
}

/* A part of a concatenation goes to another device, and what is made of it comes back as another part,
 * whose bytes lie between those of the first. Channels in blocks are brought in order behind all else. */
static void parts_that_leave(void **state) {
    struct room *r = *state;
    enum { IMAGE = 4 * ROWS * 5 * 8 };
    static const ash_dim image[] = {1, ROWS, 5, 8};
    static const ash_type type = {.dtype = ASH_F32, .rank = 4, .dims = {4 * ROWS, ROWS, 1, 1}};
    const ash_window window = {.kernel = 1, .stride = 1, .dilation = 1};
    for (int way = 0; way < 4; way++) {
        float want[2 * IMAGE], have[2 * IMAGE];
        ash_graph_destroy(r->g);
        assert_ok(ash_graph_create(r->context, "g", &r->g, &diag));
        ash_graph *g = r->g;
        ash_value x = ash_reshape(g, ash_graph_input(g, "x", &matrix), image, 4);
        ash_value w = ash_graph_constant(g, &type, r->x, 4 * ROWS * ROWS * 4, ASH_DATA_BORROW);
        ash_value a = ash_relu(g, ash_conv(g, x, w, (ash_window[]){window, window}, 2, 1));
        ash_value b = on(r, 1, ash_neg(g, a));
        const ash_value parts[] = {way & 1 ? a : b, way & 1 ? b : a};
        ash_graph_output(g, "y", ash_concat(g, parts, 2, way / 2 + 1));
        assert_ok(ash_graph_status(g, &diag));
        expect(r, want);
        for (int mode = 0; mode < ASH_MODE_COUNT; mode++) {
            ash_plan_options options = several(r, 2);
            options.mode = (ash_mode)mode;
            options.streams = mode == ASH_MODE_MULTI_STREAM ? 2 : 0;
            prepare(r, &options);
            assert_copies(r->plan, 1, 1, 0);
            run(r, have);
            for (int i = 0; i < 2 * IMAGE; i++)
                assert_float_equal(have[i], want[i], 1e-5f * (1 + fabsf(want[i])));
        }
    }
}

static void one_call(void **state) {
    struct room *r = *state;
    float want[COUNT];
    make_diamond(r);
    expect(r, want);
    ash_plan_options options = several(r, 3);
    options.no_fuse = options.no_optimize = true;
    ash_tensor *in, *out;
    assert_ok(ash_tensor_create(r->context, "x", &matrix, r->x, BYTES, &in, &diag));
    ash_eager_call call = {
        .inputs = (const ash_tensor *const *)&in, .input_count = 1, .outputs = &out, .output_count = 1};
    assert_ok(ash_eager(r->context, r->g, &options, &call, &diag));
    assert_memory_equal(ash_tensor_data(out), want, sizeof want);
    ash_tensor_destroy(in);
    ash_tensor_destroy(out);
}

static void what_is_refused(void **state) {
    struct room *r = *state;
    ash_graph *g = r->g;
    ash_value x = ash_graph_input(g, "x", &matrix);
    ash_graph_name_next(g, "first");
    ash_value y = on(r, 1, ash_exp(g, x));
    ash_graph_output(g, "y", y);
    assert_status(ash_graph_place(g, x, 1, &diag), ASH_ERROR_INVALID_ARGUMENT);
    assert_non_null(strstr(diag.message, "x"));
    assert_status(ash_graph_place(g, y, ASH_MOST_DEVICES, &diag), ASH_ERROR_OUT_OF_RANGE);
    assert_status(ash_graph_place(g, 1000, 0, &diag), ASH_ERROR_INVALID_ARGUMENT);
    ash_plan_options options = ash_plan_options_default();
    options.device = r->devices[0];
    assert_refused(r, &options, ASH_ERROR_INVALID_ARGUMENT, "device 1");
    assert_string_equal(diag.node, "first");
    options = several(r, 2);
    options.memory.omit_params = true;
    assert_refused(r, &options, ASH_ERROR_UNSUPPORTED, "omit_params");
    options = several(r, 2);
    options.device = r->devices[1];
    assert_refused(r, &options, ASH_ERROR_INVALID_ARGUMENT, "APART:1");
    ash_device *twice[] = {r->devices[0], r->devices[1], r->devices[0]};
    options = several(r, 3);
    options.devices = twice;
    assert_refused(r, &options, ASH_ERROR_INVALID_ARGUMENT, "twice");
    options = several(r, 3);
    options.mode = ASH_MODE_MULTI_STREAM;
    options.streams = 40;
    assert_refused(r, &options, ASH_ERROR_OUT_OF_RANGE, "streams");
    const ash_place_rule far = {"*", 5};
    g->nodes.at[0].place = 0;
    options = several(r, 2);
    options.places = &far;
    options.place_count = 1;
    assert_refused(r, &options, ASH_ERROR_INVALID_ARGUMENT, "device 5");
    assert_string_equal(diag.node, "first");
}

/* Two functions, each of which waits until the other has begun. */
typedef struct meeting {
    atomic_int begun, met;
} meeting;

static ash_status meet(void *user, const ash_call *call, ash_diag *why) {
    meeting *m = user;
    (void)why;
    atomic_fetch_add(&m->begun, 1);
    for (int i = 0; i < 5000 && atomic_load(&m->begun) < 2; i++)
        nanosleep(&(struct timespec){0, 1000000}, NULL);
    if (atomic_load(&m->begun) >= 2) atomic_fetch_add(&m->met, 1);
    memcpy(call->outs[0], call->ins[0], BYTES);
    return ASH_OK;
}

/* What nothing orders runs at the same time on two devices. */
static void devices_overlap(void **state) {
    struct room *r = *state;
    ash_graph *g = r->g;
    static meeting m;
    atomic_store(&m.begun, 0);
    atomic_store(&m.met, 0);
    const ash_function function = {.size = sizeof function, .name = "meet", .run = meet, .user = &m};
    assert_ok(ash_context_add_function(r->context, &function, &diag));
    ash_value x = ash_graph_input(g, "x", &matrix), a, b;
    assert_ok(ash_custom(g, "meet", &x, 1, &matrix, 1, NULL, &a));
    assert_ok(ash_custom(g, "meet", &x, 1, &matrix, 1, NULL, &b));
    ash_graph_output(g, "y", ash_add(g, a, on(r, 1, b)));
    ash_plan_options options = several(r, 2);
    float have[COUNT];
    prepare(r, &options);
    run(r, have);
    assert_int_equal(atomic_load(&m.met), 2);
    assert_true(ash_plan_describe(r->plan).overlapped > 0);
    for (int i = 0; i < COUNT; i++) assert_true(have[i] == 2 * r->x[i]);
}

/* The caller's block is for the main device's arenas, and its block of weights for the weights there. */
static void blocks_of_the_caller(void **state) {
    struct room *r = *state;
    float want[COUNT], have[COUNT];
    static char block[1 << 14] __attribute__((aligned(4096))),
        weights_block[1 << 14] __attribute__((aligned(4096)));
    make_diamond(r);
    ash_plan_options options = several(r, 3);
    prepare(r, &options);
    run(r, want);
    uint64_t size = ash_plan_arena_size(r->plan), released = 0;
    assert_true(size > 0 && size <= sizeof block && ash_plan_weights_size(r->plan) <= sizeof weights_block);
    assert_ok(ash_plan_release_all(r->plan, &released, &diag));
    assert_true(released >= size + info_of(r->plan, 1).arena + info_of(r->plan, 2).arena);
    assert_ok(ash_plan_bind_arena(r->plan, block, size, &diag));
    assert_ok(ash_plan_bind_weights(r->plan, weights_block, sizeof weights_block, &diag));
    assert_ok(ash_plan_set_input(r->plan, 0, NULL, r->x, BYTES, &diag));
    run(r, have);
    assert_memory_equal(have, want, sizeof want);
    ash_status status = ash_plan_bind_input(r->plan, 0, NULL, block + 64, BYTES, &diag);
    assert_status(status, ASH_ERROR_INVALID_ARGUMENT);
    assert_non_null(strstr(diag.message, "overlaps"));
}

/* A graph whose sizes come with its inputs has no nodes to place, but rules. */
static void sizes_that_come_later(void **state) {
    struct room *r = *state;
    static bytes model;
    ash_graph *open;
    model = relu_model("b;5");
    assert_ok(ash_onnx_parse(r->context, model.at, model.len, NULL, &open, &diag));
    char pattern[] = "re*";
    const ash_place_rule rule = {pattern, 1};
    ash_plan_options options = several(r, 2);
    options.places = &rule;
    options.place_count = 1;
    assert_ok(ash_plan_prepare(r->context, open, &options, &r->plan, &diag));
    memset(pattern, 'x', 3); /* the plan has its own */
    for (int64_t n = 1; n < 4; n++) {
        const ash_type type = {.dtype = ASH_F32, .rank = 2, .dims = {n, 5}};
        float have[15];
        assert_ok(ash_plan_set_input(r->plan, 0, &type, r->x, (uint64_t)n * 20, &diag));
        run(r, have);
        assert_int_equal(info_of(r->plan, 1).ops, 1);
        for (int64_t i = 0; i < n * 5; i++) assert_true(have[i] == (r->x[i] > 0 ? r->x[i] : 0));
    }
    ash_graph_destroy(open);
}

/* Executing takes nothing from the heap. */
static void executions_take_no_memory(void **state) {
    struct room *r = *state;
    float have[COUNT];
    make_diamond(r);
    ash_plan_options options = several(r, 3);
    prepare(r, &options);
    run(r, have);
    long count = r->memory.count;
    for (int i = 0; i < 3; i++) assert_ok(ash_plan_execute(r->plan, &diag));
    assert_int_equal(r->memory.count, count);
}

/* A device that fails stops all others; the plan works again afterwards. */
static void a_device_fails(void **state) {
    struct room *r = *state;
    float want[COUNT], have[COUNT];
    make_diamond(r);
    ash_plan_options options = several(r, 3);
    prepare(r, &options);
    run(r, want);
    reorder.fail = true;
    assert_status(ash_plan_execute(r->plan, &diag), ASH_ERROR_DEVICE);
    assert_non_null(strstr(diag.message, "asked to fail"));
    reorder.fail = false;
    run(r, have);
    assert_memory_equal(have, want, sizeof want);
    ash_profile profile[64];
    assert_ok(ash_plan_execute_profiled(r->plan, profile, 64, &diag));
    for (size_t i = 0; i < ash_plan_op_count(r->plan); i++) assert_true(profile[i].duration >= 0);
    uint64_t done, total;
    ash_plan_progress(r->plan, &done, &total);
    assert_int_equal(done, total);
    assert_int_equal(total, ash_plan_op_count(r->plan));
}

static void cancelled(void **state) {
    struct room *r = *state;
    float want[COUNT], have[COUNT];
    static ash_cancel cancel;
    make_diamond(r);
    ash_plan_options options = several(r, 3);
    options.progress.cancel = &cancel;
    prepare(r, &options);
    run(r, want);
    ash_cancel_set(&cancel, true);
    assert_status(ash_plan_execute(r->plan, &diag), ASH_ERROR_CANCELLED);
    ash_cancel_set(&cancel, false);
    run(r, have);
    assert_memory_equal(have, want, sizeof want);
}

/* Whatever allocation fails, nothing is left behind. */
static void failing_allocations(void **state) {
    struct room *r = *state;
    ash_status status = ASH_ERROR_OUT_OF_MEMORY;
    make_diamond(r);
    ash_plan_options options = several(r, 3);
    prepare(r, &options);
    for (long n = 1; status != ASH_OK && n < 40000; n += 1 + n / 24) {
        ash_plan *plan = NULL;
        r->memory.fail_at = r->memory.count + n;
        status = ash_plan_prepare(r->context, r->g, &options, &plan, &diag);
        r->memory.fail_at = 0;
        ash_plan_destroy(plan);
    }
    assert_ok(status);
}

/* A printed graph says where its nodes are. */
static void the_text(void **state) {
    struct room *r = *state;
    char *text, *again;
    uint64_t size, second;
    ash_graph_name_next(r->g, "named");
    make_diamond(r);
    assert_ok(ash_graph_print(r->g, true, &text, &size, &diag));
    assert_non_null(strstr(text, " @2 @\"named\"\n"));
    assert_ok(ash_graph_parse(r->context, text, size, &r->out, &diag));
    for (size_t n = 0; n < r->g->nodes.len; n++)
        assert_int_equal(r->out->nodes.at[n].place, r->g->nodes.at[n].place);
    assert_ok(ash_graph_print(r->out, true, &again, &second, &diag));
    assert_string_equal(text, again);
    ash_context_free_text(r->context, text, size);
    ash_context_free_text(r->context, again, second);
    static const char wrong[] = "graph \"g\"\n%0: f32[2] = input \"x\"\n%1: f32[2] = exp(%0) @8\n";
    ash_graph *none = r->g;
    assert_status(ash_graph_parse(r->context, wrong, sizeof wrong - 1, &none, &diag), ASH_ERROR_FORMAT);
    assert_non_null(strstr(diag.message, "device"));
}

/* A loop and its body are where it is placed, and read what other devices compute. */
static void a_loop(void **state) {
    struct room *r = *state;
    ash_graph *g = r->g;
    ash_value x = ash_graph_input(g, "x", &matrix), outside = on(r, 2, ash_abs(g, x)), arguments[2], next,
              out;
    ash_loop loop = {
        .trips = 4, .carried = 1, .go = ASH_NO_VALUE, .init = &x, .arguments = arguments, .next = &next};
    assert_true(ash_build__begin_loop(g, &loop));
    ash_graph_name_next(g, "inside");
    next = ash_add(g, ash_add(g, arguments[1], arguments[1]), outside);
    assert_ok(ash_build__end_loop(g, &loop, &out));
    on(r, 1, out);
    ash_graph_output(g, "y", out);
    float have[COUNT];
    ash_plan_options options = several(r, 3);
    prepare(r, &options);
    assert_copies(r->plan, 1, 2, 1); /* y; x, |x|; x */
    assert_int_equal(info_of(r->plan, 0).ops, 0);
    for (reorder.seed = 1; reorder.seed < 4; reorder.seed++) {
        run(r, have);
        for (int i = 0; i < COUNT; i++) assert_true(have[i] == 16 * r->x[i] + 15 * fabsf(r->x[i]));
    }
    on(r, 2, next);
    ash_plan *plan;
    assert_status(ash_plan_prepare(r->context, g, &options, &plan, &diag), ASH_ERROR_INVALID_ARGUMENT);
    assert_non_null(strstr(diag.message, "loop"));
    assert_string_equal(diag.node, "inside");
}

/* What depends on parameters alone, and what a loop is made of, is divided as is said. */
static void the_division(void **state) {
    struct room *r = *state;
    ash_graph *g = r->g;
    static float w[COLUMNS];
    ash_type tw = {.dtype = ASH_F32, .rank = 1, .dims = {COLUMNS}};
    ash_value x = ash_graph_input(g, "x", &matrix),
              p = ash_graph_parameter(g, "p", &tw, w, sizeof w, ASH_DATA_COPY);
    ash_value q = ash_exp(g, p), dead = ash_neg(g, x), a = ash_mul(g, x, q), b = ash_mul(g, a, q);
    ash_graph_output(g, "y", b);
    assert_ok(ash_graph_status(g, &diag));
    uint32_t where[16] = {0};
    where[g->values.at[b].node] = 1;
    ash_division d;
    assert_ok(ash_graph__divide(g, &(ash_placement){where, NULL, 2}, NULL, 0, &d, &diag));
    assert_int_equal(d.crossings.len, 2);
    assert_int_equal(d.crossings.at[0].value, a);
    assert_int_equal(d.crossings.at[0].to, 1);
    assert_int_equal(d.crossings.at[1].value, b);
    assert_int_equal(d.crossings.at[1].to, 0);
    for (int t = 0; t < 2; t++) {
        assert_true(d.images[t][q] != ASH_NO_VALUE);
        assert_true(d.images[t][dead] == ASH_NO_VALUE);
    }
    assert_true(d.images[1][x] == ASH_NO_VALUE);
    ash_division__free(&d);
}

int main(void) {
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, close_room)
    const struct CMUnitTest tests[] = {
        TEST(a_diamond),
        cmocka_unit_test_setup_teardown(a_diamond, setup_alone, close_room),
        TEST(from_the_outside),
        TEST(crossings_and_arenas),
        TEST(weights),
        TEST(states_and_variables),
        TEST(kept_elsewhere),
        TEST(rules),
        TEST(parts_that_leave),
        TEST(one_call),
        TEST(what_is_refused),
        TEST(devices_overlap),
        TEST(blocks_of_the_caller),
        TEST(sizes_that_come_later),
        TEST(executions_take_no_memory),
        TEST(a_device_fails),
        TEST(cancelled),
        TEST(failing_allocations),
        TEST(the_division),
        TEST(the_text),
        TEST(a_loop),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
