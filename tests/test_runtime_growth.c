/* SPDX-License-Identifier: MIT */
/* Plans of many inputs, outputs, parameters, states: what is done with all of them takes time in proportion
 * to their number, and streams that nothing runs on take no memory. */
#include <time.h>

#include "ashlar/builder.h"
#include "graph_room.h"
#include "programs.h"

static ash_diag diag;

enum { FEW = 1000, TIMES = 8, WIDTH = 4 };

static const ash_type row = {.dtype = ASH_F32, .rank = 1, .dims = {WIDTH}};
static const float zeros[WIDTH] __attribute__((aligned(64)));

static int setup(void **state) {
    return room_open(state, 2);
}

/* Seconds of this thread, whatever else the machine does. */
static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static const char *name_of(int i) {
    static char name[16];
    snprintf(name, sizeof name, "v%d", i);
    return name;
}

/* --- graphs of n parts ------------------------------------------------------------------------ */

static ash_plan *prepare(struct room *r, ash_graph *g) {
    ash_plan *plan;
    ash_plan_options options = ash_plan_options_default();
    options.no_optimize = options.no_fuse = true;
    options.memory.strategy = ASH_MEMORY_BEST_FIT;
    assert_ok(ash_plan_prepare(r->context, g, &options, &plan, &diag));
    ash_graph_destroy(g);
    assert_ok(ash_plan_set_input(plan, 0, NULL, zeros, sizeof zeros, &diag));
    return plan;
}

static ash_graph *new_graph(struct room *r, ash_value *x) {
    ash_graph *g;
    assert_ok(ash_graph_create(r->context, "g", &g, &diag));
    *x = ash_graph_input(g, "x", &row);
    return g;
}

static ash_plan *with_outputs(struct room *r, int n) {
    ash_value x;
    ash_graph *g = new_graph(r, &x);
    for (int i = 0; i < n; i++) ash_graph_output(g, name_of(i), ash_neg(g, x));
    return prepare(r, g);
}

static ash_plan *with_inputs(struct room *r, int n) {
    ash_value x;
    ash_graph *g = new_graph(r, &x);
    for (int i = 0; i < n; i++) x = ash_add(g, x, ash_graph_input(g, name_of(i), &row));
    ash_graph_output(g, "y", x);
    return prepare(r, g);
}

static ash_plan *with_parameters(struct room *r, int n) {
    ash_value x;
    ash_graph *g = new_graph(r, &x);
    for (int i = 0; i < n; i++)
        x = ash_add(g, x, ash_graph_parameter(g, name_of(i), &row, zeros, sizeof zeros, ASH_DATA_COPY));
    ash_graph_output(g, "y", x);
    return prepare(r, g);
}

/* --- what is done with all of them ------------------------------------------------------------ */

static void read_outputs(ash_plan *plan, int n) {
    const ash_view **views = calloc((size_t)n, sizeof *views);
    assert_ok(ash_plan_execute(plan, &diag));
    assert_ok(ash_plan_outputs(plan, views, (size_t)n, &diag));
    assert_ok(ash_plan_release_intermediates(plan, NULL, &diag));
    for (int i = 0; i < n; i++) {
        size_t position;
        const void *data;
        assert_ok(ash_plan_output_position(plan, name_of(i), &position, &diag));
        assert_ok(ash_view_data(views[position], &data, &diag));
        assert_true(*(const float *)data == 0);
    }
    free(views);
}

static void set_inputs(ash_plan *plan, int n) {
    for (int bind = 0; bind < 2; bind++)
        for (int i = 0; i < n; i++) {
            size_t position;
            const ash_view *view;
            assert_ok(ash_plan_input_position(plan, name_of(i), &position, &diag));
            assert_ok((bind ? ash_plan_bind_input : ash_plan_set_input)(plan, position, NULL, zeros,
                                                                        sizeof zeros, &diag));
            assert_ok(ash_plan_buffer_view(plan, (uint32_t)position, &view, &diag));
        }
    assert_ok(ash_plan_execute(plan, &diag));
}

static void set_parameters(ash_plan *plan, int n) {
    for (int i = 0; i < n; i++)
        assert_ok(ash_plan_set_parameter(plan, ash_plan_parameter_name(plan, (size_t)i), NULL, zeros,
                                         sizeof zeros, &diag));
    for (ash_value v = 1; v <= (ash_value)n; v++) {
        size_t index;
        assert_ok(ash_plan_buffer_index(plan, v, &index, &diag));
    }
    assert_ok(ash_plan_execute(plan, &diag));
}

/* Eight times as many may take four times eight times as long, as caches hold them no more, but not eight
 * times. */
static void check_growth(struct room *r, ash_plan *make(struct room *r, int n),
                         void use(ash_plan *plan, int n)) {
    double least[2] = {1e9, 1e9};
    for (int k = 0; k < 6; k++) {
        int n = k % 2 ? FEW * TIMES : FEW;
        ash_plan *plan = make(r, n);
        double start = now();
        use(plan, n);
        double took = now() - start;
        least[k % 2] = ASH_MIN(least[k % 2], took);
        ash_plan_destroy(plan);
    }
    if (least[1] > 4 * TIMES * least[0])
        fail_msg("%d took %.2f ms, %d took %.2f", FEW, 1e3 * least[0], FEW * TIMES, 1e3 * least[1]);
}

static void outputs(void **state) {
    check_growth(*state, with_outputs, read_outputs);
}

static void inputs(void **state) {
    check_growth(*state, with_inputs, set_inputs);
}

static void parameters(void **state) {
    check_growth(*state, with_parameters, set_parameters);
}

/* --- streams ---------------------------------------------------------------------------------- */

/* Bytes that a plan of four independent chains holds. */
static long long bytes_held(struct room *r, ash_graph *g, unsigned streams) {
    ash_plan *plan;
    ash_plan_options options = ash_plan_options_default();
    options.no_optimize = options.no_fuse = true;
    options.mode = ASH_MODE_MULTI_STREAM;
    options.streams = streams;
    long long before = r->memory.live;
    assert_ok(ash_plan_prepare(r->context, g, &options, &plan, &diag));
    assert_int_equal(ash_plan_describe(plan).streams, 4);
    long long held = r->memory.live - before;
    ash_plan_destroy(plan);
    return held;
}

/* Seconds to find the n buffers whose values are kept, which are all. */
static double time_kept(struct room *r, int n) {
    maker m;
    ash_value *keep = calloc((size_t)n, sizeof *keep);
    bool *pinned = calloc((size_t)n, sizeof *pinned);
    maker_init(&m, r->context);
    for (int i = 0; i < n; i++) {
        uint32_t b = maker_buffer(&m, ASH_BUFFER_LOCAL, WIDTH, NULL);
        keep[n - 1 - i] = m.p->buffers.at[b].origin;
    }
    double start = now();
    assert_true(ash_layout__find_pinned(m.p, keep, (size_t)n, pinned));
    double took = now() - start;
    for (int i = 0; i < n; i++) assert_true(pinned[i]);
    ash_program__free(m.p);
    free(pinned);
    free(keep);
    return took;
}

static void kept_values(void **state) {
    double least[2] = {1e9, 1e9};
    for (int k = 0; k < 10; k++) {
        double took = time_kept(*state, k % 2 ? 4 * FEW * TIMES : 4 * FEW);
        least[k % 2] = ASH_MIN(least[k % 2], took);
    }
    if (least[1] > 4 * TIMES * least[0])
        fail_msg("%d took %.2f ms, %d times as many %.2f", 4 * FEW, 1e3 * least[0], TIMES, 1e3 * least[1]);
}

static void streams_without_work_take_nothing(void **state) {
    struct room *r = *state;
    ash_graph *g;
    ash_type type = {.dtype = ASH_F32, .rank = 2, .dims = {64, 256}};
    assert_ok(ash_graph_create(r->context, "g", &g, &diag));
    ash_value x = ash_graph_input(g, "x", &type);
    for (int k = 0; k < 4; k++) {
        ash_value y = x;
        for (int i = 0; i < 250; i++) y = i % 2 ? ash_neg(g, y) : ash_add(g, y, x);
        ash_graph_output(g, name_of(k), y);
    }
    bytes_held(r, g, 4); /* kernels are there from now on */
    long long four = bytes_held(r, g, 4), most = bytes_held(r, g, ASH_PLAN_MOST_STREAMS);
    assert_int_equal(four, most);
    ash_graph_destroy(g);
}

int main(void) {
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {TEST(outputs), TEST(inputs), TEST(parameters), TEST(kept_values),
                                       TEST(streams_without_work_take_nothing)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
