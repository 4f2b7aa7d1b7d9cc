/* SPDX-License-Identifier: MIT */
/* States on any of a plan's devices: where they are, what is copied, and all that callers do with them,
 * with the bits of one device. */
#include <stdio.h>
#include <unistd.h>

#include "ashlar/train.h"
#include "placed_room.h"
#include "random.h"

enum { STATES = 4, STEPS = 3 };

static ash_plan_options in_mode(struct room *r, ash_mode mode, bool plain) {
    ash_plan_options options = several(r, DEVICES);
    options.mode = mode;
    options.streams = mode == ASH_MODE_MULTI_STREAM ? 2 : 0;
    options.poison = plain;
    options.no_fuse = options.no_optimize = plain;
    return options;
}

static ash_device *device_of_state(ash_plan *plan, size_t position) {
    const ash_view *view;
    assert_ok(ash_plan_state(plan, position, &view, &diag));
    return ash_storage_device(ash_view_storage(view));
}

static void read_state(ash_plan *plan, size_t position, void *to) {
    const ash_view *view;
    assert_ok(ash_plan_state(plan, position, &view, &diag));
    assert_ok(ash_view_copy_out(view, to, ash_view_bytes(view), &diag));
}

static void set_state(ash_plan *plan, size_t position, const float *to) {
    assert_ok(ash_plan_set_state(plan, position, NULL, to, BYTES, &diag));
}

/* s' = s + x, where `add` is computed, and y = s. */
static ash_value make_counter(struct room *r, int home, uint32_t add) {
    ash_graph *g = r->g;
    ash_value x = ash_graph_input(g, "x", &matrix),
              s = ash_graph_state(g, "s", &matrix, r->x, BYTES, ASH_DATA_COPY);
    ash_value next = on(r, add, ash_add(g, s, x));
    ash_graph_update(g, s, next);
    ash_graph_output(g, "y", next);
    if (home >= 0) on(r, (uint32_t)home, s);
    assert_ok(ash_graph_status(g, &diag));
    return s;
}

/* Takes all places from a graph, of values and then of nodes; and gives them back. */
static void take_places(ash_graph *g, uint32_t *places) {
    for (size_t v = 0; v < g->values.len; v++) {
        *places++ = g->values.at[v].place;
        g->values.at[v].place = 0;
    }
    for (size_t n = 0; n < g->nodes.len; n++) {
        *places++ = g->nodes.at[n].place;
        g->nodes.at[n].place = 0;
    }
}

static void put_places(ash_graph *g, const uint32_t *places) {
    for (size_t v = 0; v < g->values.len; v++) g->values.at[v].place = (uint8_t)*places++;
    for (size_t n = 0; n < g->nodes.len; n++) g->nodes.at[n].place = *places++;
}

/* --- where they are -------------------------------------------------------------------------------- */

/* Placed, or where their new value is computed; which is computed there or copied there. */
static void places(void **state) {
    struct room *r = *state;
    static const struct {
        int home;
        uint32_t add, want;
        uint64_t copies[DEVICES];
    } rows[] = {
        {-1, 0, 0, {0, 0, 0}}, {-1, 1, 1, {1, 1, 0}}, {0, 1, 0, {1, 2, 0}},
        {1, 1, 1, {1, 1, 0}},  {1, 0, 1, {1, 1, 0}},  {2, 1, 2, {1, 2, 1}},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        for (int mode = 0; mode < ASH_MODE_COUNT; mode++) {
            float have[COUNT], old[COUNT];
            ash_graph_destroy(r->g);
            assert_ok(ash_graph_create(r->context, "g", &r->g, &diag));
            make_counter(r, rows[i].home, rows[i].add);
            ash_plan_options options = in_mode(r, (ash_mode)mode, mode == 0);
            ash_plan_destroy(r->plan);
            assert_ok(ash_plan_prepare(r->context, r->g, &options, &r->plan, &diag));
            if (rows[i].want || rows[i].add)
                assert_copies(r->plan, rows[i].copies[0], rows[i].copies[1], rows[i].copies[2]);
            assert_ptr_equal(device_of_state(r->plan, 0), r->devices[rows[i].want]);
            assert_int_equal(ash_plan_describe(r->plan).state, BYTES);
            assert_ok(ash_plan_set_input(r->plan, 0, NULL, r->x, BYTES, &diag));
            for (int step = 0; step < 3; step++) {
                reorder.seed = (uint64_t)step + 1;
                run(r, have);
                read_state(r->plan, 0, old);
                assert_memory_equal(old, have, BYTES);
                for (int k = 0; k < COUNT; k++) assert_true(have[k] == (float)(step + 2) * r->x[k]);
            }
            ash_plan_destroy(r->plan);
            r->plan = NULL;
        }
}

/* Rules place states by their names; the graph's own word counts more. */
static void rules(void **state) {
    struct room *r = *state;
    make_counter(r, -1, 0);
    const ash_place_rule rule[] = {{"s*", 2}, {"nothing", 1}};
    ash_plan_options options = several(r, DEVICES);
    options.places = rule;
    options.place_count = 2;
    prepare(r, &options);
    assert_ptr_equal(device_of_state(r->plan, 0), r->devices[2]);
    on(r, 1, r->g->states.at[0].value);
    prepare(r, &options);
    assert_ptr_equal(device_of_state(r->plan, 0), r->devices[1]);
    options.device_count = 1;
    assert_refused(r, &options, ASH_ERROR_INVALID_ARGUMENT, "it is placed on device 1");
    assert_non_null(strstr(diag.node, "s"));
}

static void the_text(void **state) {
    struct room *r = *state;
    const ash_type small = {.dtype = ASH_I32, .rank = 1, .dims = {2}};
    const int32_t two[] = {5, 6};
    ash_value a = ash_graph_state(r->g, "a", &small, two, sizeof two, ASH_DATA_COPY),
              b = ash_graph_state(r->g, "b", &small, NULL, 0, ASH_DATA_COPY);
    ash_value p = ash_graph_parameter(r->g, "p", &small, two, sizeof two, ASH_DATA_COPY);
    on(r, 1, a), on(r, 2, b), on(r, 3, p);
    ash_graph_update(r->g, a, ash_add(r->g, a, p));
    char *text, *again;
    uint64_t size, second;
    assert_ok(ash_graph_print(r->g, true, &text, &size, &diag));
    assert_non_null(strstr(text, "state \"a\" {5, 6} @1\n"));
    assert_non_null(strstr(text, "state \"b\" zero @2\n"));
    assert_non_null(strstr(text, "parameter \"p\" {5, 6} @3\n"));
    assert_ok(ash_graph_parse(r->context, text, size, &r->out, &diag));
    assert_ok(ash_graph_print(r->out, true, &again, &second, &diag));
    assert_string_equal(text, again);
    char *at = strstr(again, "@3");
    at[1] = '9';
    ash_graph *none;
    assert_status(ash_graph_parse(r->context, again, second, &none, &diag), ASH_ERROR_FORMAT);
    ash_context_free_text(r->context, text, size);
    ash_context_free_text(r->context, again, second);
}

/* --- what callers do --------------------------------------------------------------------------------- */

static void calls(void **state) {
    struct room *r = *state;
    float have[COUNT], zeros[COUNT] = {0}, memory[COUNT + 16];
    const ash_view *view;
    ash_view *own, *wrong;
    ash_storage *storages[2];
    make_counter(r, 1, 1);
    ash_plan_options options = several(r, DEVICES);
    prepare(r, &options);
    set_state(r->plan, 0, zeros);
    run(r, have);
    assert_memory_equal(have, r->x, BYTES);
    assert_ok(ash_plan_reset_state(r->plan, 0, &diag));
    read_state(r->plan, 0, have);
    assert_memory_equal(have, r->x, BYTES);
    for (int i = 0; i < 2; i++) {
        assert_ok(ash_storage_create(r->devices[1 + i], BYTES, 64, &storages[i], &diag));
        assert_ok(ash_view_create(storages[i], 0, BYTES, &matrix, i ? &wrong : &own, &diag));
    }
    assert_ok(ash_view_copy_in(own, zeros, BYTES, &diag));
    assert_ok(ash_plan_set_state_view(r->plan, 0, own, &diag)); /* from its device, and from another */
    assert_status(ash_plan_set_state_view(r->plan, 0, wrong, &diag), ASH_ERROR_UNSUPPORTED);
    read_state(r->plan, 0, have);
    assert_memory_equal(have, zeros, BYTES);
    assert_ok(ash_plan_bind_state_view(r->plan, 0, own, &diag));
    assert_status(ash_plan_bind_state_view(r->plan, 0, wrong, &diag), ASH_ERROR_UNSUPPORTED);
    for (int i = 0; i < 2; i++) run(r, have);
    assert_ok(ash_view_copy_out(own, have, BYTES, &diag));
    for (int k = 0; k < COUNT; k++) assert_true(have[k] == 2 * r->x[k]);
    assert_ok(ash_plan_state(r->plan, 0, &view, &diag));
    assert_ptr_equal(ash_storage_device(ash_view_storage(view)), r->devices[1]);
    assert_ok(ash_plan_bind_state_view(r->plan, 0, NULL, &diag)); /* takes the value over */
    run(r, have);
    for (int k = 0; k < COUNT; k++) assert_true(have[k] == 3 * r->x[k]);
    float *block = (float *)(((uintptr_t)memory + 63) / 64 * 64); /* out of the reach of its device */
    memcpy(block, zeros, BYTES);
    assert_ok(ash_plan_bind_state(r->plan, 0, block, BYTES, &diag));
    run(r, have);
    assert_memory_equal(block, r->x, BYTES);
    memcpy(block, zeros, BYTES);
    assert_ok(ash_plan_state(r->plan, 0, &view, &diag));
    assert_ok(ash_view_copy_out(view, have, BYTES, &diag));
    assert_memory_equal(have, zeros, BYTES);
    assert_ok(ash_plan_reset_states(r->plan, &diag));
    assert_memory_equal(block, r->x, BYTES);
    assert_ok(ash_plan_bind_state(r->plan, 0, NULL, 0, &diag));
    ash_plan *twin;
    run(r, have);
    assert_ok(ash_plan_replicate(r->plan, &twin, &diag));
    assert_ptr_equal(device_of_state(twin, 0), r->devices[1]);
    read_state(twin, 0, have); /* begins anew */
    assert_memory_equal(have, r->x, BYTES);
    ash_plan_destroy(twin);
    uint64_t released;
    assert_ok(ash_plan_release_all(r->plan, &released, &diag));
    assert_true(released >= BYTES);
    assert_ok(ash_plan_set_input(r->plan, 0, NULL, r->x, BYTES, &diag));
    run(r, have);
    for (int k = 0; k < COUNT; k++) assert_true(have[k] == 2 * r->x[k]);
    ash_view_release(own), ash_view_release(wrong);
    for (int i = 0; i < 2; i++) ash_storage_release(storages[i]);
}

/* Memory that is handed in for states of two devices; what overlaps on one is refused. */
static void memory_for_two(void **state) {
    struct room *r = *state;
    ash_graph *g = r->g;
    float have[COUNT];
    ash_value x = ash_graph_input(g, "x", &matrix), y = x;
    static const char *const names[] = {"a", "b", "c"};
    for (uint32_t i = 0; i < 3; i++) {
        ash_value s = ash_graph_state(g, names[i], &matrix, NULL, 0, ASH_DATA_COPY);
        y = on(r, i ? 1 : 0, ash_add(g, s, y));
        ash_graph_update(g, s, y);
    }
    ash_graph_output(g, "y", y);
    ash_plan_options options = several(r, 2);
    prepare(r, &options);
    ash_storage *storage;
    ash_view *views[2];
    assert_ok(ash_storage_create(r->devices[1], 2 * BYTES, 64, &storage, &diag));
    for (int i = 0; i < 2; i++)
        assert_ok(ash_view_create(storage, (uint64_t)i * BYTES, BYTES, &matrix, &views[i], &diag));
    assert_ok(ash_plan_bind_state_view(r->plan, 1, views[0], &diag));
    assert_status(ash_plan_bind_state_view(r->plan, 2, views[0], &diag), ASH_ERROR_INVALID_ARGUMENT);
    assert_non_null(strstr(diag.message, "overlaps state \"b\""));
    assert_ok(ash_plan_bind_state_view(r->plan, 2, views[1], &diag));
    assert_status(ash_plan_bind_state_view(r->plan, 0, views[1], &diag), ASH_ERROR_UNSUPPORTED);
    for (int i = 0; i < 3; i++) run(r, have);
    for (int k = 0; k < COUNT; k++) assert_true(have[k] == 10 * r->x[k]);
    for (int i = 0; i < 2; i++) ash_view_release(views[i]);
    ash_storage_release(storage);
}

/* A checkpoint of one device is one of another; states are shared where they are on one device. */
static void checkpoints_and_sharing(void **state) {
    struct room *r = *state;
    float have[COUNT];
    char path[64], note[8];
    ash_plan *second;
    size_t shared;
    snprintf(path, sizeof path, "/tmp/ashlar_placed_state.%d", (int)getpid());
    make_counter(r, 1, 1);
    ash_plan_options options = several(r, DEVICES);
    prepare(r, &options);
    run(r, have);
    assert_ok(ash_plan_save_states(r->plan, path, "one", &diag));
    ash_plan_options alone = ash_plan_options_default();
    uint32_t places[16];
    take_places(r->g, places); /* the same graph, all on the main device */
    alone.device = r->devices[0];
    assert_ok(ash_plan_prepare(r->context, r->g, &alone, &second, &diag));
    assert_ok(ash_plan_load_states(second, path, note, sizeof note, &diag));
    assert_string_equal(note, "one");
    assert_status(ash_plan_share_states(second, r->plan, &shared, &diag), ASH_ERROR_INVALID_ARGUMENT);
    read_state(second, 0, have);
    for (int k = 0; k < COUNT; k++) assert_true(have[k] == 2 * r->x[k]);
    assert_ok(ash_plan_load_states(r->plan, path, NULL, 0, &diag));
    ash_plan_destroy(second);
    alone.device = r->devices[1]; /* whose main device is the one that the state is on */
    assert_ok(ash_plan_prepare(r->context, r->g, &alone, &second, &diag));
    assert_ok(ash_plan_share_states(second, r->plan, &shared, &diag));
    assert_int_equal(shared, 1);
    assert_ok(ash_plan_set_input(second, 0, NULL, r->x, BYTES, &diag));
    assert_ok(ash_plan_execute(second, &diag));
    run(r, have);
    for (int k = 0; k < COUNT; k++) assert_true(have[k] == 4 * r->x[k]);
    ash_plan_destroy(second);
    assert_int_equal(unlink(path), 0);
}

/* --- training --------------------------------------------------------------------------------------- */

/* Weights, and what an optimiser remembers of them, are where gradients are computed; nothing of them is
 * copied in an execution, but what the optimiser has in common. Trained parameters as well. */
static void trained_where_used(void **state) {
    struct room *r = *state;
    ash_graph *g = r->g;
    static float w[COLUMNS * COLUMNS], have[COLUMNS * COLUMNS], want[COLUMNS * COLUMNS];
    const ash_type square = {.dtype = ASH_F32, .rank = 2, .dims = {COLUMNS, COLUMNS}};
    const int64_t both[] = {0, 1};
    for (int i = 0; i < COLUMNS * COLUMNS; i++) w[i] = (float)(i * 11 % 17) / 64 - 0.125f;
    ash_value x = ash_graph_input(g, "x", &matrix),
              a = ash_graph_parameter(g, "a", &square, w, sizeof w, ASH_DATA_COPY),
              b = ash_graph_parameter(g, "b", &square, w, sizeof w, ASH_DATA_COPY);
    ash_graph_name_next(g, "far");
    ash_value h = ash_tanh(g, ash_matmul(g, x, a));
    ash_graph_name_next(g, "near");
    ash_value y = ash_matmul(g, h, b), grads[2], ws[2];
    on(r, 2, b); /* as a state */
    ash_graph_name_next(g, NULL);
    ash_graph_output(g, "loss", ash_reduce_sum(g, ash_mul(g, y, y), both, 2, false));
    assert_ok(ash_graph_trainable(g, &r->out, &diag));
    ash_graph_destroy(g);
    g = r->g = r->out;
    r->out = NULL;
    ash_value loss = g->outputs.at[0].value;
    for (int i = 0; i < 2; i++) ws[i] = g->states.at[i].value;
    assert_ok(ash_graph_gradients(g, &loss, NULL, 1, ws, 2, NULL, grads, &diag));
    const ash_optimizer_options adamw = {.size = sizeof adamw, .kind = ASH_OPTIMIZER_ADAMW};
    assert_ok(ash_graph_optimize(g, ws, grads, 2, ash_scalar(g, ASH_F32, 0x1p-10), &adamw, &diag));
    static const ash_place_rule rule = {"far", 1};
    uint32_t places[512];
    take_places(g, places);
    for (int mode = -1; mode < ASH_MODE_COUNT; mode++) {
        ash_plan_options options = in_mode(r, (ash_mode)ASH_MAX(mode, 0), true);
        if (mode < 0) { /* all of it on one device */
            options = ash_plan_options_default();
            options.device = r->devices[0];
            options.no_fuse = options.no_optimize = true;
        } else {
            options.places = &rule;
            options.place_count = 1;
            put_places(g, places);
        }
        prepare(r, &options);
        float loss_now;
        for (int i = 0; i < 3; i++) run(r, &loss_now);
        for (size_t i = 0; mode >= 0 && i < ash_plan_state_count(r->plan); i++) {
            const char *name = ash_plan_state_name(r->plan, i);
            uint32_t home = name[0] == 'a' ? 1 : name[0] == 'b' ? 2 : 0;
            assert_ptr_equal(device_of_state(r->plan, i), r->devices[home]);
        }
        read_state(r->plan, 0, mode < 0 ? want : have);
        if (mode >= 0) assert_memory_equal(have, want, sizeof want);
    }
}

/* --- random graphs ------------------------------------------------------------------------------------ */

/* A graph of integers, over which states change: sums, products, rows that are written, old values and new
 * ones as outputs and as each other's updates; everything anywhere. */
static ash_value pick(struct room *r, const ash_value *pool, size_t n) {
    return pool[test_random(&r->random) % n];
}

static void make_random(struct room *r, const ash_type *type) {
    ash_graph *g = r->g;
    ash_value pool[64], s[STATES];
    size_t n = 0, states = 1 + test_random(&r->random) % STATES;
    static const char *const names[STATES] = {"s0", "s1", "s2", "s3"};
    pool[n++] = ash_graph_input(g, "x", type);
    for (size_t i = 0; i < states; i++)
        pool[n++] = s[i] = ash_graph_state(g, names[i], type, NULL, 0, ASH_DATA_COPY);
    for (int i = 0; i < 14; i++) {
        ash_value a = pick(r, pool, n), b = pick(r, pool, n), y = ASH_NO_VALUE;
        switch (test_random(&r->random) % 5) {
        case 0: y = ash_add(g, a, b); break;
        case 1: y = ash_sub(g, a, b); break;
        case 2: y = ash_max(g, a, ash_neg(g, b)); break;
        case 3: y = ash_mul(g, a, ash_min(g, b, a)); break;
        default: {
            int64_t row = (int64_t)(test_random(&r->random) % ROWS);
            y = ash_write_axis(g, a, ash_slice_axis(g, b, 0, 0, 1), 0, row);
        }
        }
        if (g->values.at[y].kind == ASH_VALUE_NODE && test_random(&r->random) % 3)
            on(r, (uint32_t)(test_random(&r->random) % DEVICES), y);
        pool[n++] = y;
    }
    for (size_t i = 0; i < states; i++) {
        if (test_random(&r->random) % 2) on(r, (uint32_t)(test_random(&r->random) % DEVICES), s[i]);
        if (test_random(&r->random) % 8) ash_graph_update(g, s[i], pick(r, pool, n));
    }
    ash_graph_output(g, "y", pool[n - 1]);
    ash_graph_output(g, "z", pick(r, pool, n));
    ash_graph_output(g, "old", s[0]);
    assert_ok(ash_graph_status(g, &diag));
}

typedef struct random_results {
    int32_t outputs[STEPS][3][COUNT], states[STEPS][STATES][COUNT];
} random_results;

static void run_random(struct room *r, const ash_plan_options *options, random_results *out) {
    memset(out, 0, sizeof *out);
    ash_plan_destroy(r->plan);
    r->plan = NULL;
    assert_ok(ash_plan_prepare(r->context, r->g, options, &r->plan, &diag));
    for (int step = 0; step < STEPS; step++) {
        int32_t x[COUNT];
        for (int i = 0; i < COUNT; i++) x[i] = i * 7 % 11 + step;
        reorder.seed = (uint64_t)step * 3 + 1;
        assert_ok(ash_plan_set_input(r->plan, 0, NULL, x, BYTES, &diag));
        assert_ok(ash_plan_execute(r->plan, &diag));
        for (size_t i = 0; i < 3; i++) {
            const ash_view *view;
            assert_ok(ash_plan_output(r->plan, i, &view, &diag));
            assert_ok(ash_view_copy_out(view, out->outputs[step][i], BYTES, &diag));
        }
        for (size_t i = 0; i < ash_plan_state_count(r->plan); i++)
            read_state(r->plan, i, out->states[step][i]);
    }
}

static void random_graphs(void **state) {
    struct room *r = *state;
    static random_results want, have;
    const ash_type type = {.dtype = ASH_I32, .rank = 2, .dims = {ROWS, COLUMNS}};
    size_t elsewhere = 0;
    for (uint64_t seed = 0; seed < 60; seed++) {
        r->random = seed + 1;
        ash_graph_destroy(r->g);
        assert_ok(ash_graph_create(r->context, "g", &r->g, &diag));
        make_random(r, &type);
        ash_plan_options alone = ash_plan_options_default();
        alone.device = r->devices[0];
        uint32_t places[512];
        take_places(r->g, places);
        run_random(r, &alone, &want);
        put_places(r->g, places);
        for (int way = 0; way < 2 * ASH_MODE_COUNT; way++) {
            ash_plan_options options = in_mode(r, (ash_mode)(way / 2), way % 2);
            run_random(r, &options, &have);
            if (memcmp(&have, &want, sizeof want)) fail_msg("seed %d, way %d", (int)seed, way);
        }
        for (size_t i = 0; i < ash_plan_state_count(r->plan); i++)
            elsewhere += device_of_state(r->plan, i) != r->devices[0];
    }
    assert_true(elsewhere >= 40);
}

/* --- memory ----------------------------------------------------------------------------------------- */

static void failing_allocations(void **state) {
    struct room *r = *state;
    ash_status status = ASH_ERROR_OUT_OF_MEMORY;
    make_counter(r, 2, 1);
    ash_plan_options options = several(r, DEVICES);
    for (long n = 1; status != ASH_OK && n < 60000; n += 1 + n / 24) {
        ash_plan *plan = NULL;
        r->memory.fail_at = r->memory.count + n;
        status = ash_plan_prepare(r->context, r->g, &options, &plan, &diag);
        if (status == ASH_OK) status = ash_plan_set_input(plan, 0, NULL, r->x, BYTES, &diag);
        if (status == ASH_OK) status = ash_plan_execute(plan, &diag);
        r->memory.fail_at = 0;
        ash_plan_destroy(plan);
    }
    assert_ok(status);
}

int main(void) {
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, close_room)
    const struct CMUnitTest tests[] = {
        TEST(places),
        TEST(rules),
        TEST(the_text),
        TEST(calls),
        TEST(memory_for_two),
        TEST(checkpoints_and_sharing),
        TEST(trained_where_used),
        TEST(random_graphs),
        cmocka_unit_test_setup_teardown(random_graphs, setup_alone, close_room),
        TEST(failing_allocations),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
