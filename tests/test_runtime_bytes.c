/* SPDX-License-Identifier: MIT */
/* Every byte of a plan is accounted for: originals of packed weights are reported and can be released;
 * code, tables and caches have numbers; and while weights are packed, a window of their file is resident at
 * most. */
#include "apart.h"
#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

#include "ashlar/builder.h"
#include "ashlar/onnx.h"

static ash_diag diag;

enum { SIDE = 192, BYTES = SIDE * SIDE * 4 };

#define ROOM_MORE float want[SIDE];
#include "graph_room.h"

/* y = s' = s + x w, where w is packed: a constant or a parameter, which the graph has copied. */
static void make_graph(struct room *r, bool parameter) {
    static float w[SIDE * SIDE], start[SIDE];
    for (int i = 0; i < SIDE * SIDE; i++) w[i] = (float)(i % 29) / 16 - 1;
    for (int i = 0; i < SIDE; i++) start[i] = (float)i;
    assert_ok(ash_graph_create(r->context, "net", &r->g, &diag));
    ash_type tx = {.dtype = ASH_F32, .rank = 2, .dims = {1, SIDE}};
    ash_type tw = {.dtype = ASH_F32, .rank = 2, .dims = {SIDE, SIDE}};
    ash_value x = ash_graph_input(r->g, "x", &tx);
    ash_value s = ash_graph_state(r->g, "s", &tx, start, sizeof start, ASH_DATA_COPY);
    ash_value k = parameter ? ash_graph_parameter(r->g, "w", &tw, w, sizeof w, ASH_DATA_COPY)
                            : ash_graph_constant(r->g, &tw, w, sizeof w, ASH_DATA_COPY);
    ash_value next = ash_add(r->g, s, ash_matmul(r->g, x, k));
    ash_graph_update(r->g, s, next);
    ash_graph_output(r->g, "y", next);
    assert_ok(ash_graph_status(r->g, &diag));
}

static int setup(void **state) {
    return room_open(state, 1);
}

static void run(ash_plan *plan, float *out) {
    float x[SIDE];
    const ash_view *view;
    for (int i = 0; i < SIDE; i++) x[i] = (float)(i % 5) - 2;
    assert_ok(ash_plan_reset_states(plan, &diag));
    assert_ok(ash_plan_set_input(plan, 0, NULL, x, sizeof x, &diag));
    assert_ok(ash_plan_execute(plan, &diag));
    assert_ok(ash_plan_output(plan, 0, &view, &diag));
    assert_ok(ash_view_copy_out(view, out, SIDE * sizeof *out, &diag));
}

static void check(struct room *r, ash_plan *plan) {
    float got[SIDE];
    run(plan, got);
    assert_memory_equal(got, r->want, sizeof got);
}

static void prepare(struct room *r, bool parameter) {
    make_graph(r, parameter);
    assert_ok(ash_plan_prepare(r->context, r->g, NULL, &r->plan, &diag));
    run(r->plan, r->want);
}

static void originals_are_released(void **state) {
    struct room *r = *state;
    prepare(r, false);
    ash_plan_report before = ash_plan_describe(r->plan);
    assert_true(before.weights >= BYTES && before.originals >= BYTES + SIDE * 4);
    long long live = r->memory.live;
    uint64_t released = 0;
    assert_ok(ash_plan_release_originals(r->plan, &released, &diag));
    assert_int_equal(released, before.originals - SIDE * 4); /* what the state begins with stays */
    assert_int_equal(ash_plan_describe(r->plan).originals, SIDE * 4);
    check(r, r->plan);
    /* The graph has them too, and is as it was. */
    ash_plan *other;
    assert_ok(ash_plan_prepare(r->context, r->g, NULL, &other, &diag));
    check(r, other);
    ash_plan_destroy(other);
    ash_graph_destroy(r->g);
    r->g = NULL;
    assert_true(r->memory.live + BYTES <= live);
    check(r, r->plan);
    assert_ok(ash_plan_release_originals(r->plan, &released, &diag));
    assert_int_equal(released, 0);
    /* Weights stay where they would be made again. */
    assert_ok(ash_plan_release_all(r->plan, &released, &diag));
    assert_true(released < BYTES);
    check(r, r->plan);
    assert_ok(ash_plan_replicate(r->plan, &other, &diag));
    check(r, other);
    assert_ok(ash_plan_release_all(other, &released, &diag));
    check(r, other);
    check(r, r->plan);
    ash_plan_destroy(r->plan);
    r->plan = other;
    check(r, r->plan);
    assert_int_equal(ash_plan_describe(r->plan).prologue_runs, before.prologue_runs);
}

static void parameters_stay(void **state) {
    struct room *r = *state;
    static float w[SIDE * SIDE];
    ash_plan *other;
    uint64_t released;
    prepare(r, true);
    assert_ok(ash_plan_replicate(r->plan, &other, &diag));
    assert_int_equal(ash_plan_release_originals(r->plan, NULL, &diag), ASH_ERROR_STATE);
    assert_non_null(strstr(diag.message, "replicas"));
    ash_plan_destroy(other);
    assert_ok(ash_plan_set_parameter(r->plan, "w", NULL, w, sizeof w, &diag));
    assert_ok(ash_plan_release_originals(r->plan, &released, &diag)); /* makes the weights first */
    assert_int_equal(released, 2 * BYTES);                            /* and what was set in their place */
    assert_int_equal(ash_plan_set_parameter(r->plan, "w", NULL, w, sizeof w, &diag), ASH_ERROR_STATE);
    float got[SIDE];
    run(r->plan, got);
    for (int i = 0; i < SIDE; i++) assert_true(got[i] == (float)i);
}

static void a_plan_that_is_made_again_keeps_them(void **state) {
    struct room *r = *state;
    assert_ok(ash_graph_create(r->context, "net", &r->g, &diag));
    ash_type tx = {.dtype = ASH_F32, .rank = 1, .dims = {4}};
    ash_graph_output(r->g, "y", ash_relu(r->g, ash_graph_input(r->g, "x", &tx)));
    assert_ok(ash_plan_prepare(r->context, r->g, NULL, &r->plan, &diag));
    assert_ok(ash_plan_release_originals(r->plan, NULL, &diag)); /* there are none */
    assert_int_equal(ash_plan_release_originals(NULL, NULL, &diag), ASH_ERROR_INVALID_ARGUMENT);
}

static void all_has_a_number(void **state) {
    NOT_APART("blocks that the CPU keeps");
    struct room *r = *state;
    ash_context *keeper;
    ash_context_options options = {.allocator = test_memory_allocator(&r->memory), .keep_bytes = 1 << 20};
    prepare(r, false);
    ash_plan_report report = ash_plan_describe(r->plan);
    assert_true(report.code > 0 && report.tables > sizeof report && report.caches == 0);
    assert_int_equal(report.state, SIDE * 4);
    assert_ok(ash_context_create(&options, &keeper, &diag));
    struct room kept = {.context = keeper};
    prepare(&kept, false);
    ash_plan *other;
    assert_ok(ash_plan_prepare(keeper, kept.g, NULL, &other, &diag));
    assert_int_equal(ash_plan_describe(other).code, 0); /* the first plan's */
    uint64_t weights = ash_plan_describe(other).weights;
    ash_plan_destroy(other);
    assert_true(ash_plan_describe(kept.plan).caches >= weights);
    ash_plan_destroy(kept.plan);
    ash_graph_destroy(kept.g);
    ash_context_destroy(keeper);
}

/* --- resident ----------------------------------------------------------------------------------------- */

static uint64_t peak(void) {
    struct rusage usage;
    assert_int_equal(getrusage(RUSAGE_SELF, &usage), 0);
    return (uint64_t)usage.ru_maxrss * 1024;
}

/* y = x w^T with w of so many rows and columns, in the file: packed from one end to the other. */
static void prepare_file(ash_context *context, const char *path, int64_t rows, int64_t columns) {
    ash_device *disk;
    ash_storage *storage;
    ash_graph *g;
    ash_plan *plan;
    char name[128];
    const void *data;
    ash_view *view;
    uint64_t bytes = (uint64_t)(rows * columns) * 4;
    int file = open(path, O_WRONLY); /* zeros and a one: the optimiser knows constants of equal elements */
    assert_true(file >= 0 && ftruncate(file, (off_t)bytes) == 0 && write(file, &(float){1}, 4) == 4);
    close(file);
    snprintf(name, sizeof name, "DISK:%s", path);
    assert_ok(ash_device_open(context, name, &disk, &diag));
    assert_ok(ash_storage_create(disk, bytes, 0, &storage, &diag));
    ash_type tw = {.dtype = ASH_F32, .rank = 2, .dims = {rows, columns}};
    ash_type tx = {.dtype = ASH_F32, .rank = 2, .dims = {8, columns}};
    assert_ok(ash_view_create(storage, 0, bytes, &tw, &view, &diag));
    assert_ok(ash_view_data(view, &data, &diag));
    assert_ok(ash_graph_create(context, "file", &g, &diag));
    ash_value w = ash_graph_constant(g, &tw, data, bytes, ASH_DATA_BORROW);
    w = ash_transpose(g, w, (const int64_t[]){1, 0});
    ash_graph_output(g, "y", ash_matmul(g, ash_graph_input(g, "x", &tx), w));
    assert_ok(ash_plan_prepare(context, g, NULL, &plan, &diag));
    ash_plan_report report = ash_plan_describe(plan);
    assert_true(report.weights >= bytes && report.weights < bytes + bytes / 8);
    assert_int_equal(report.released, bytes);
    ash_plan_destroy(plan);
    ash_graph_destroy(g);
    ash_view_release(view);
    ash_storage_release(storage);
    ash_device_close(disk);
}

static void a_window_of_the_file_is_resident(void **state) {
    (void)state;
    if (TEST_WATCHED) skip();
    NOT_APART("weights that are the host's");
    enum { SMALL = 1 << 20, LARGE = 64 << 20, MORE = 16 << 20 };
    char path[] = "/tmp/ashlar-bytes-XXXXXX";
    int file = mkstemp(path);
    ash_context *context;
    assert_true(file >= 0);
    assert_ok(ash_context_create(&(ash_context_options){.threads = 1}, &context, &diag));
    prepare_file(context, path, 512, SMALL / 512 / 4);
    uint64_t before = peak();
    prepare_file(context, path, 4096, LARGE / 4096 / 4);
    print_message("%.1f MB more than before, for %.1f MB of weights\n", (double)(peak() - before) / 1e6,
                  LARGE / 1e6);
    assert_true(peak() - before < LARGE + MORE);
    ash_context_destroy(context);
    close(file);
    unlink(path);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(originals_are_released, setup, teardown),
        cmocka_unit_test_setup_teardown(parameters_stay, setup, teardown),
        cmocka_unit_test_setup_teardown(a_plan_that_is_made_again_keeps_them, setup, teardown),
        cmocka_unit_test_setup_teardown(all_has_a_number, setup, teardown),
        cmocka_unit_test(a_window_of_the_file_is_resident),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
