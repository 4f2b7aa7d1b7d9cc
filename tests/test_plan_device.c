/* SPDX-License-Identifier: MIT */
/* A plan on a device that the host does not reach (apart.h): the same bits in every mode, memory of the
 * caller's as views on it, and what is refused. */
#include "apart.h"
#include "ashlar/builder.h"
#include "runtime/plan.h"

enum { ROWS = 6, INNER = 40, COLUMNS = 24, BYTES = ROWS * INNER * 4, RESULT = ROWS * COLUMNS };

#define ROOM_MORE float x[ROWS * INNER];
#include "graph_room.h"

static ash_diag diag;

static int setup(void **state) {
    room_open(state, 2);
    struct room *r = *state;
    assert_ok(apart_open(r->context, &r->device, &diag));
    return 0;
}

/* y = relu(x w) + b, with a parameter b; w is packed. */
static void make_graph(struct room *r) {
    static float w[INNER * COLUMNS], b[COLUMNS];
    ash_type tx = {.dtype = ASH_F32, .rank = 2, .dims = {ROWS, INNER}},
             tw = {.dtype = ASH_F32, .rank = 2, .dims = {INNER, COLUMNS}},
             tb = {.dtype = ASH_F32, .rank = 1, .dims = {COLUMNS}};
    for (int i = 0; i < INNER * COLUMNS; i++) w[i] = (float)(i * 7 % 13) - 6;
    for (int i = 0; i < COLUMNS; i++) b[i] = (float)i / 4;
    for (int i = 0; i < ROWS * INNER; i++) r->x[i] = (float)(i * 5 % 11) - 5;
    assert_ok(ash_graph_create(r->context, "g", &r->g, &diag));
    ash_graph *g = r->g;
    ash_value x = ash_graph_input(g, "x", &tx), p = ash_graph_constant(g, &tw, w, sizeof w, ASH_DATA_COPY);
    ash_value y = ash_add(g, ash_relu(g, ash_matmul(g, x, p)),
                          ash_graph_parameter(g, "b", &tb, b, sizeof b, ASH_DATA_COPY));
    ash_graph_output(g, "y", y);
    assert_ok(ash_graph_status(g, &diag));
}

static void prepare(struct room *r, ash_device *device, ash_mode mode) {
    ash_plan_options options = ash_plan_options_default();
    options.device = device;
    options.mode = mode;
    options.streams = mode == ASH_MODE_MULTI_STREAM ? 2 : 1;
    ash_plan_destroy(r->plan);
    r->plan = NULL;
    assert_ok(ash_plan_prepare(r->context, r->g, &options, &r->plan, &diag));
}

static void run(struct room *r, float y[RESULT]) {
    const ash_view *view;
    assert_ok(ash_plan_execute(r->plan, &diag));
    assert_ok(ash_plan_output(r->plan, 0, &view, &diag));
    assert_ok(ash_view_copy_out(view, y, RESULT * sizeof *y, &diag));
}

static void expect(struct room *r, float want[RESULT]) {
    ash_device *cpu;
    make_graph(r);
    assert_ok(ash_device_open(r->context, "CPU", &cpu, &diag));
    prepare(r, cpu, ASH_MODE_STREAM);
    assert_ptr_equal(ash_plan_device(r->plan), cpu);
    ash_device_close(cpu);
    assert_ok(ash_plan_set_input(r->plan, 0, NULL, r->x, BYTES, &diag));
    run(r, want);
}

/* A view of so many bytes on the device. */
static ash_view *new_view(struct room *r, uint64_t bytes) {
    ash_type type = {.dtype = ASH_U8, .rank = 1, .dims = {(int64_t)bytes}};
    ash_storage *storage;
    ash_view *view;
    assert_ok(ash_storage_create(r->device, bytes, 64, &storage, &diag));
    assert_ok(ash_view_create(storage, 0, bytes, &type, &view, &diag));
    ash_storage_release(storage);
    return view;
}

static ash_view *slice(const ash_view *view, uint64_t offset, ash_type type, uint64_t bytes) {
    ash_view *part;
    assert_ok(ash_view_slice(view, offset, bytes, &type, &part, &diag));
    return part;
}

static void every_mode_has_the_same_bits(void **state) {
    struct room *r = *state;
    float want[RESULT], have[RESULT];
    expect(r, want);
    for (int mode = 0; mode < ASH_MODE_COUNT; mode++) {
        prepare(r, r->device, (ash_mode)mode);
        assert_ptr_equal(ash_plan_device(r->plan), r->device);
        assert_ok(ash_plan_set_input(r->plan, 0, NULL, r->x, BYTES, &diag));
        run(r, have);
        assert_memory_equal(have, want, sizeof want);
        const ash_view *view;
        assert_ok(ash_plan_output(r->plan, 0, &view, &diag));
        assert_ptr_equal(ash_storage_device(ash_view_storage(view)), r->device);
        assert_false(ash_device_describe(ash_plan_device(r->plan)).cpu_accessible);
    }
    assert_null(ash_plan_device(NULL));
}

/* Memory of the host is copied at each execution; a view on the device is read where it is. */
static void inputs_of_the_caller(void **state) {
    struct room *r = *state;
    float want[RESULT], other[RESULT], have[RESULT];
    ash_type type = {.dtype = ASH_F32, .rank = 2, .dims = {ROWS, INNER}};
    expect(r, want);
    r->x[7] += 1;
    assert_ok(ash_plan_set_input(r->plan, 0, NULL, r->x, BYTES, &diag));
    run(r, other);
    r->x[7] -= 1;
    prepare(r, r->device, ASH_MODE_GRAPH);
    assert_ok(ash_plan_bind_input(r->plan, 0, NULL, r->x, BYTES, &diag));
    run(r, have);
    assert_memory_equal(have, want, sizeof want);
    r->x[7] += 1;
    run(r, have);
    assert_memory_equal(have, other, sizeof want);
    ash_view *block = new_view(r, 128 + BYTES), *x = slice(block, 128, type, BYTES);
    ash_view *seen;
    assert_ok(ash_view_copy_in(x, r->x, BYTES, &diag));
    assert_ok(ash_plan_bind_input_view(r->plan, 0, x, &diag));
    r->x[7] -= 1;
    run(r, have);
    assert_memory_equal(have, other, sizeof want);
    assert_ok(ash_view_copy_in(x, r->x, BYTES, &diag));
    run(r, have);
    assert_memory_equal(have, want, sizeof want);
    assert_ok(ash_plan__view(r->plan, r->plan->program->inputs.at[0], &seen, &diag));
    assert_ptr_equal(ash_view_storage(seen), ash_view_storage(x));
    assert_int_equal(ash_view_offset(seen), 128);
    assert_ok(ash_plan_set_input_view(r->plan, 0, x, &diag)); /* copied on the device */
    ash_view_release(x);
    ash_view_release(block);
    run(r, have);
    assert_memory_equal(have, want, sizeof want);
}

static void blocks_of_the_caller(void **state) {
    struct room *r = *state;
    float want[RESULT], have[RESULT], b[COLUMNS] = {0};
    ash_type type = {.dtype = ASH_F32, .rank = 2, .dims = {ROWS, INNER}};
    static char host[1 << 16] __attribute__((aligned(4096)));
    expect(r, want);
    prepare(r, r->device, ASH_MODE_STREAM);
    uint64_t arena = ash_plan_arena_size(r->plan), weights = ash_plan_weights_size(r->plan);
    assert_true(arena > 0 && weights > 0 && arena < sizeof host && weights < sizeof host);
    assert_status(ash_plan_bind_arena(r->plan, host, sizeof host, &diag), ASH_ERROR_DEVICE);
    assert_non_null(strstr(diag.message, "APART"));
    assert_status(ash_plan_bind_weights(r->plan, host, sizeof host, &diag), ASH_ERROR_DEVICE);
    uint64_t second = ash_align_up(arena, 64);
    ash_type bytes = {.dtype = ASH_U8, .rank = 1, .dims = {(int64_t)arena}};
    ash_view *block = new_view(r, second + weights), *small = new_view(r, arena - 1);
    ash_view *first = slice(block, 0, bytes, arena);
    bytes.dims[0] = (int64_t)weights;
    ash_view *last = slice(block, second, bytes, weights),
             *over = slice(block, second - 64, bytes, weights);
    assert_status(ash_plan_bind_arena_view(r->plan, small, &diag), ASH_ERROR_OUT_OF_RANGE);
    assert_ok(ash_plan_bind_arena_view(r->plan, first, &diag));
    assert_status(ash_plan_bind_weights_view(r->plan, over, &diag), ASH_ERROR_INVALID_ARGUMENT);
    assert_non_null(strstr(diag.message, "overlaps"));
    assert_ok(ash_plan_bind_weights_view(r->plan, last, &diag)); /* they move */
    ash_view *x = slice(block, 0, type, BYTES);
    assert_status(ash_plan_bind_input_view(r->plan, 0, x, &diag), ASH_ERROR_INVALID_ARGUMENT);
    assert_non_null(strstr(diag.message, "overlaps"));
    ash_view_release(x);
    assert_ok(ash_plan_set_input(r->plan, 0, NULL, r->x, BYTES, &diag));
    run(r, have);
    assert_memory_equal(have, want, sizeof want);
    assert_ok(ash_plan_set_parameter(r->plan, "b", NULL, b, sizeof b, &diag));
    run(r, have);
    assert_memory_not_equal(have, want, sizeof want);
    /* The plan holds the memory. */
    ash_view_release(first), ash_view_release(last), ash_view_release(over);
    ash_view_release(small), ash_view_release(block);
    run(r, have);
    assert_ok(ash_plan_release_all(r->plan, NULL, &diag));
    assert_ok(ash_plan_bind_arena_view(r->plan, NULL, &diag));
    assert_ok(ash_plan_bind_weights_view(r->plan, NULL, &diag));
    assert_ok(ash_plan_set_input(r->plan, 0, NULL, r->x, BYTES, &diag));
    run(r, have);
}

static void where_nothing_is_computed(void **state) {
    struct room *r = *state;
    ash_plan_options options = ash_plan_options_default();
    ash_plan *plan;
    make_graph(r);
    assert_ok(
        ash_device_open(r->context, "DISK:" ASH_SOURCE_DIR "/CMakeLists.txt", &options.device, &diag));
    assert_status(ash_plan_prepare(r->context, r->g, &options, &plan, &diag), ASH_ERROR_DEVICE);
    assert_non_null(strstr(diag.message, "computes nothing"));
    assert_null(plan);
    ash_device_close(options.device);
}

/* Whatever allocation fails, nothing is left behind, on the device either. */
static void failing_allocations(void **state) {
    struct room *r = *state;
    ash_plan_options options = ash_plan_options_default();
    ash_status status = ASH_ERROR_OUT_OF_MEMORY;
    options.device = r->device;
    make_graph(r);
    prepare(r, r->device, ASH_MODE_STREAM); /* the compiler and its kernels are there from now on */
    for (long n = 1; status != ASH_OK && n < 20000; n += 1 + n / 16) {
        ash_plan *plan = NULL;
        r->memory.fail_at = r->memory.count + n;
        status = ash_plan_prepare(r->context, r->g, &options, &plan, &diag);
        r->memory.fail_at = 0;
        ash_plan_destroy(plan);
    }
    assert_ok(status);
}

int main(void) {
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(every_mode_has_the_same_bits), TEST(inputs_of_the_caller), TEST(blocks_of_the_caller),
        TEST(where_nothing_is_computed),    TEST(failing_allocations),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
