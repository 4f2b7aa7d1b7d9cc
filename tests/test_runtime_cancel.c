/* SPDX-License-Identifier: MIT */
/* Stopping long work: preparing at every call of the progress function, executions from inside a kernel and
 * from another thread, in every mode; what was stopped leaves nothing behind, and what comes after it is
 * right. */
#include "plan_room.h"
#include "ways.h"

#include <pthread.h>
#include <sched.h>

#include "ashlar/builder.h"
#include "ashlar/memory_report.h"

static ash_diag diag;

enum { N = 24, STEPS = 12, ROUNDS = 60 };

static int setup(void **state) {
    return room_open(state, 3);
}

static ash_plan_options cancellable(const struct way *way, const ash_cancel *cancel) {
    ash_plan_options options = options_of(way);
    options.progress.cancel = cancel;
    return options;
}

/* --- preparing ---------------------------------------------------------------------------------- */

struct teller {
    long calls, stop_at; /* 0: never */
    bool seen[ASH_STAGE_COUNT];
    bool well;
};

static bool tell(void *user, ash_stage stage, uint64_t done, uint64_t total) {
    struct teller *t = user;
    t->calls++;
    t->seen[stage] = true;
    t->well &= done <= total;
    return t->calls != t->stop_at;
}

/* Two products with weights that are packed at prepare, branches, and something to fuse. */
static ash_graph *make_graph(struct room *r) {
    static float weights[16 * 40];
    ash_graph *g;
    for (size_t i = 0; i < ASH_COUNT(weights); i++) weights[i] = (float)(i % 17) / 16 - 0.5f;
    assert_ok(ash_graph_create(r->context, "net", &g, &diag));
    ash_type x_type = {.dtype = ASH_F32, .rank = 2, .dims = {3, 16}};
    ash_type w_type = {.dtype = ASH_F32, .rank = 2, .dims = {16, 40}};
    ash_value x = ash_graph_input(g, "x", &x_type);
    ash_value w = ash_graph_constant(g, &w_type, weights, sizeof weights, ASH_DATA_COPY);
    ash_value a = ash_relu(g, ash_matmul(g, x, w)), b = ash_tanh(g, ash_matmul(g, ash_neg(g, x), w));
    ash_graph_output(g, "y", ash_add(g, a, b));
    return g;
}

static void run_net(struct room *r, float y[3 * 40]) {
    float x[3 * 16];
    const ash_view *view;
    for (int i = 0; i < 3 * 16; i++) x[i] = (float)(i % 7) / 4 - 1;
    assert_ok(ash_plan_set_input(r->plan, 0, NULL, x, sizeof x, &diag));
    assert_ok(ash_plan_execute(r->plan, &diag));
    assert_ok(ash_plan_output(r->plan, 0, &view, &diag));
    assert_ok(ash_view_copy_out(view, y, 3 * 40 * sizeof *y, &diag));
}

static void preparing_stops_at_every_call(void **state) {
    struct room *r = *state;
    float want[3 * 40], have[3 * 40];
    ash_graph *g = make_graph(r);
    bool seen[ASH_STAGE_COUNT] = {false};
    assert_ok(ash_plan_prepare(r->context, g, NULL, &r->plan, &diag));
    run_net(r, want);
    ash_plan_destroy(r->plan);
    r->plan = NULL;
    for (size_t i = 0; i < ASH_COUNT(ways); i++) {
        ash_plan_options options = cancellable(&ways[i], NULL);
        struct teller t = {.well = true};
        options.progress.report = tell;
        options.progress.user = &t;
        options.order = i % 2 ? ASH_PLAN_ORDER_ON : ASH_PLAN_ORDER_AUTO;
        assert_ok(ash_plan_prepare(r->context, g, &options, &r->plan, &diag));
        long calls = t.calls;
        run_net(r, have);
        assert_memory_equal(have, want, sizeof want);
        assert_int_equal(t.calls, calls); /* executions do not call it */
        assert_true(calls > 10);
        ash_plan_destroy(r->plan);
        r->plan = NULL;
        for (int s = 0; s < ASH_STAGE_COUNT; s++) seen[s] |= t.seen[s];
        long long live = r->memory.live;
        /* How often it is called varies with the threads that compile: until it is not called so often. */
        for (long k = 1; !r->plan; k++) {
            t.calls = 0;
            t.stop_at = k;
            ash_status status = ash_plan_prepare(r->context, g, &options, &r->plan, &diag);
            if (t.calls < k) break;
            assert_status(status, ASH_ERROR_CANCELLED);
            assert_null(r->plan);
            assert_int_equal(t.calls, k); /* it is asked no more */
            assert_int_equal(r->memory.live, live);
            assert_non_null(strstr(diag.message, "cancelled at stage"));
        }
        assert_true(t.well && r->plan);
        run_net(r, have);
        assert_memory_equal(have, want, sizeof want);
        ash_plan_destroy(r->plan);
        r->plan = NULL;
    }
    seen[ASH_STAGE_IMPORT] = true; /* that is told before there is a graph */
    for (int s = 0; s < ASH_STAGE_COUNT; s++)
        if (!seen[s]) fail_msg("stage %s was never told", ash_stage_text((ash_stage)s));
    ash_graph_destroy(g);
}

static void the_switch_refuses(void **state) {
    struct room *r = *state;
    float want[3 * 40], have[3 * 40];
    const ash_view *view;
    ash_graph *g = make_graph(r);
    ash_plan_options options = cancellable(&ways[0], &r->cancel);
    ash_cancel_set(&r->cancel, true);
    assert_true(ash_cancel_is_on(&r->cancel) && !ash_cancel_is_on(NULL));
    assert_status(ash_plan_prepare(r->context, g, &options, &r->plan, &diag), ASH_ERROR_CANCELLED);
    ash_tensor *out;
    ash_eager_call call = {.inputs = (const ash_tensor *const[]){NULL}, .input_count = 1};
    call.outputs = &out;
    call.output_count = 1;
    assert_status(ash_eager(r->context, g, &options, &call, &diag), ASH_ERROR_CANCELLED);
    assert_null(out);
    ash_cancel_set(&r->cancel, false);
    assert_ok(ash_plan_prepare(r->context, g, &options, &r->plan, &diag));
    run_net(r, want);
    ash_cancel_set(&r->cancel, true);
    assert_status(ash_plan_execute(r->plan, &diag), ASH_ERROR_CANCELLED);
    assert_ok(ash_plan_output(r->plan, 0, &view, &diag)); /* the last results */
    assert_ok(ash_view_copy_out(view, have, sizeof have, &diag));
    assert_memory_equal(have, want, sizeof want);
    ash_cancel_set(&r->cancel, false);
    run_net(r, have);
    assert_memory_equal(have, want, sizeof want);
    ash_graph_destroy(g);
    assert_string_equal(ash_stage_text(ASH_STAGE_WEIGHTS), "weights");
    assert_string_equal(ash_stage_text(ASH_STAGE_COUNT), "?");
}

/* --- executing ---------------------------------------------------------------------------------- */

/* What the kernels of the programs below do besides computing. Static: kernels have no argument for it. */
static struct {
    ash_cancel *cancel;
    _Atomic int runs;    /* chunks that were begun */
    int turn_on_at;      /* the run with this number turns the switch on; 0: none */
    _Atomic bool turned; /* the switch is on, for certain */
    _Atomic int late;    /* chunks that were begun after that */
    int hold_at;         /* chunks from this number on wait until the switch is on; 0: none do */
} watch;

static void kernel_watched(void *const *b, const int64_t *vars, int64_t begin, int64_t end,
                           int64_t worker) {
    (void)vars, (void)worker;
    for (int64_t i = begin; i < end; i++) {
        if (watch.turned) watch.late++;
        if (++watch.runs == watch.turn_on_at) ash_cancel_set(watch.cancel, true);
        while (watch.hold_at && watch.runs >= watch.hold_at && !watch.turned) sched_yield();
        ((float *)b[0])[i] = ((const float *)b[1])[i] * 2 + ((const float *)b[2])[i];
    }
}

/* Work enough for streams of its own, and for pieces of a chunk. */
static uint32_t watched(struct room *r, ash_buffer_kind kind, uint32_t a, uint32_t b, int64_t chunks,
                        double ns) {
    uint32_t out = maker_buffer(&r->m, kind, N, kind == ASH_BUFFER_OUTPUT ? "y" : NULL);
    ash_step *step =
        maker_step(&r->m, "watched", kernel_watched, chunks, 1, 3, (const uint32_t[]){out, a, b});
    step->flops = 140 * ns;
    return out;
}

static void set_input(struct room *r) {
    float x[N];
    for (int i = 0; i < N; i++) x[i] = (float)i / 8;
    assert_ok(ash_plan_set_input(r->plan, 0, NULL, x, sizeof x, &diag));
}

static void read_output(struct room *r, float y[N]) {
    const ash_view *view;
    assert_ok(ash_plan_output(r->plan, 0, &view, &diag));
    assert_ok(ash_view_copy_out(view, y, N * sizeof *y, &diag));
}

static void expect_none(struct room *r) {
    const ash_view *view;
    float y[N];
    assert_ok(ash_plan_output(r->plan, 0, &view, &diag));
    assert_status(ash_view_copy_out(view, y, sizeof y, &diag), ASH_ERROR_STATE);
}

/* Two chains of steps that meet at the end; with one chunk per step each run is a step. */
static void build_watched(struct room *r, const struct way *way, int chains, int64_t chunks, double ns) {
    ash_plan_options options = cancellable(way, &r->cancel);
    uint32_t ends[2];
    ash_plan_destroy(r->plan);
    r->plan = NULL;
    maker_init(&r->m, r->context);
    uint32_t x = maker_buffer(&r->m, ASH_BUFFER_INPUT, N, "x");
    for (int c = 0; c < chains; c++) {
        ends[c] = x;
        for (int i = 0; i < STEPS; i++) ends[c] = watched(r, ASH_BUFFER_LOCAL, ends[c], x, chunks, ns);
    }
    maker_output(&r->m, watched(r, ASH_BUFFER_OUTPUT, ends[0], ends[chains - 1], chunks, ns), "y");
    assert_ok(maker_build(&r->m, &options, &r->plan, &diag));
    set_input(r);
    watch.cancel = &r->cancel;
    watch.turn_on_at = watch.runs = watch.late = 0;
    watch.turned = false;
    watch.hold_at = 0;
}

/* The switch goes on while step k of a chain runs: the steps after it do not. */
static void a_chain_stops_after_each_step(void **state) {
    struct room *r = *state;
    for (size_t i = 0; i < ASH_COUNT(ways); i++) {
        float want[N], have[N];
        uint64_t done, total;
        build_watched(r, &ways[i], 1, 1, 2000);
        assert_ok(ash_plan_execute(r->plan, &diag));
        read_output(r, want);
        for (int k = 1; k <= STEPS + 1; k++) {
            watch.runs = 0;
            watch.turn_on_at = k;
            ash_status status = ash_plan_execute(r->plan, &diag);
            assert_int_equal(watch.runs, k);
            ash_plan_progress(r->plan, &done, &total);
            assert_int_equal(total, STEPS + 1);
            assert_int_equal(done, k);
            if (k <= STEPS || ways[i].poison) { /* the poison comes after the last step */
                assert_status(status, ASH_ERROR_CANCELLED);
                expect_none(r);
                assert_status(ash_plan_execute(r->plan, &diag), ASH_ERROR_CANCELLED);
                assert_int_equal(watch.runs, k);
            } else {
                assert_status(status, ASH_OK); /* all of it was over */
            }
            ash_cancel_set(&r->cancel, false);
            watch.turn_on_at = 0;
            assert_ok(ash_plan_execute(r->plan, &diag));
            read_output(r, have);
            assert_memory_equal(have, want, sizeof want);
            ash_plan_progress(r->plan, &done, &total);
            assert_int_equal(done, total);
        }
    }
}

/* A profiled execution stops as any other does. */
static void a_profile_stops(void **state) {
    struct room *r = *state;
    ash_profile profile[2 * STEPS + 1];
    for (size_t i = 0; i < ASH_COUNT(ways); i++) {
        if (ways[i].mode == ASH_MODE_GRAPH) continue;
        build_watched(r, &ways[i], 2, 1, 2000);
        watch.turn_on_at = 3;
        assert_status(ash_plan_execute_profiled(r->plan, profile, ASH_COUNT(profile), &diag),
                      ASH_ERROR_CANCELLED);
        expect_none(r);
        ash_cancel_set(&r->cancel, false);
        watch.turn_on_at = 0;
        assert_ok(ash_plan_execute_profiled(r->plan, profile, ASH_COUNT(profile), &diag));
    }
}

/* Waits until some of the execution is over, and stops it. */
static void *stop_it(void *arg) {
    struct room *r = arg;
    uint64_t done, total;
    do ash_plan_progress(r->plan, &done, &total);
    while (watch.runs < watch.hold_at);
    ash_cancel_set(&r->cancel, true);
    watch.turned = true;
    return NULL;
}

/* After the switch is on, each thread begins at most the one piece that it had decided on. */
static void another_thread_stops_it(void **state) {
    NOT_APART("one thread runs everything");
    struct room *r = *state;
    for (size_t i = 0; i < ASH_COUNT(ways); i++)
        for (int shape = 0; shape < 2; shape++) {
            float want[N], have[N];
            pthread_t thread[1];
            uint64_t done, total;
            /* steps of one chunk, or long ones of many that are run in pieces */
            build_watched(r, &ways[i], 2, shape ? N : 1, shape ? 1e6 * N : 3000);
            assert_ok(ash_plan_execute(r->plan, &diag));
            read_output(r, want);
            watch.runs = 0;
            watch.hold_at = shape ? 30 : STEPS;
            assert_int_equal(pthread_create(&thread[0], NULL, stop_it, r), 0);
            assert_status(ash_plan_execute(r->plan, &diag), ASH_ERROR_CANCELLED);
            pthread_join(thread[0], NULL);
            assert_true(watch.late <= (int)ways[i].threads);
            ash_plan_progress(r->plan, &done, &total);
            assert_true(done < total);
            if (shape) assert_true(done <= (uint64_t)watch.runs / N); /* whole ones alone */
            expect_none(r);
            ash_cancel_set(&r->cancel, false);
            watch.hold_at = 0;
            watch.turned = false;
            assert_ok(ash_plan_execute(r->plan, &diag));
            read_output(r, have);
            assert_memory_equal(have, want, sizeof want);
        }
}

/* The switch goes on and off again in the middle: what was left out stays left out, whatever is needed. */
static void *flicker(void *arg) {
    struct room *r = arg;
    for (int i = 0; i < 4000; i++) ash_cancel_set(&r->cancel, i % 2 == 0);
    ash_cancel_set(&r->cancel, false);
    return NULL;
}

static void results_are_whole_or_none(void **state) {
    struct room *r = *state;
    for (size_t i = 0; i < ASH_COUNT(ways); i++) {
        float want[N], have[N];
        build_watched(r, &ways[i], 2, 1, 3000);
        assert_ok(ash_plan_execute(r->plan, &diag));
        read_output(r, want);
        for (int round = 0; round < ROUNDS; round++) {
            pthread_t thread[1];
            assert_int_equal(pthread_create(&thread[0], NULL, flicker, r), 0);
            ash_status status = ash_plan_execute(r->plan, &diag);
            pthread_join(thread[0], NULL);
            assert_true(status == ASH_OK || status == ASH_ERROR_CANCELLED);
            if (status == ASH_ERROR_CANCELLED) continue;
            read_output(r, have);
            assert_memory_equal(have, want, sizeof want);
        }
    }
}

/* A step of the prologue turns the switch on, while it runs again because of a new parameter. */
static void the_prologue_stops(void **state) {
    struct room *r = *state;
    float p[N], want[N], have[N];
    ash_plan_options options = cancellable(&ways[1], &r->cancel);
    for (int i = 0; i < N; i++) p[i] = (float)i;
    maker_init(&r->m, r->context);
    uint32_t weight = maker_data(&r->m, ASH_BUFFER_PARAMETER, p, N, "p");
    uint32_t w = watched(r, ASH_BUFFER_WEIGHT, weight, weight, N, 2000);
    w = watched(r, ASH_BUFFER_WEIGHT, w, weight, N, 2000);
    r->m.p->prologue = 2;
    uint32_t x = maker_buffer(&r->m, ASH_BUFFER_INPUT, N, "x");
    maker_output(&r->m, watched(r, ASH_BUFFER_OUTPUT, x, w, N, 2000), "y");
    assert_ok(maker_build(&r->m, &options, &r->plan, &diag));
    watch.cancel = &r->cancel;
    watch.turned = false;
    watch.hold_at = watch.runs = watch.turn_on_at = 0;
    set_input(r);
    assert_ok(ash_plan_execute(r->plan, &diag));
    read_output(r, want);
    for (int at = 1; at <= N; at += 5) {
        assert_ok(ash_plan_set_parameter(r->plan, "p", NULL, p, sizeof p, &diag));
        watch.runs = 0;
        watch.turn_on_at = at;
        assert_status(ash_plan_execute(r->plan, &diag), ASH_ERROR_CANCELLED);
        assert_true(watch.runs <= N); /* the second step did not begin */
        ash_cancel_set(&r->cancel, false);
        watch.turn_on_at = 0;
        assert_ok(ash_plan_execute(r->plan, &diag));
        read_output(r, have);
        assert_memory_equal(have, want, sizeof want);
    }
}

static void replicas_share_the_switch(void **state) {
    struct room *r = *state;
    ash_plan *twin;
    build_watched(r, &ways[0], 1, 1, 2000);
    assert_ok(ash_plan_replicate(r->plan, &twin, &diag));
    ash_cancel_set(&r->cancel, true);
    assert_status(ash_plan_execute(twin, &diag), ASH_ERROR_CANCELLED);
    ash_cancel_set(&r->cancel, false);
    ash_plan_destroy(twin);
}

/* --- memory searches ---------------------------------------------------------------------------- */

/* A hard instance of MiniMalloc's. */
static ash_memory_csv *read_problem(struct room *r, const char *name) {
    static char text[1 << 16];
    char path[512];
    ash_memory_csv *csv;
    snprintf(path, sizeof path, "%s/tests/data/planner/%s", ASH_SOURCE_DIR, name);
    FILE *f = fopen(path, "rb");
    assert_non_null(f);
    size_t size = fread(text, 1, sizeof text, f);
    assert_true(feof(f));
    fclose(f);
    assert_ok(ash_memory_csv_read(r->context, text, size, &csv, &diag));
    return csv;
}

static void searches_stop(void **state) {
    struct room *r = *state;
    ash_memory_plan *plan;
    ash_memory_csv *csv = read_problem(r, "K.1048576.csv");
    struct teller t = {.well = true};
    ash_memory_options options = ash_memory_options_inference();
    options.strategy = ASH_MEMORY_SEARCH;
    options.node_budget = 6000;
    options.progress = (ash_progress){.report = tell, .user = &t};
    long long live = r->memory.live;
    long k = 1;
    for (ash_status status = ASH_ERROR_CANCELLED; status != ASH_OK; k += 1 + k / 8) {
        t.calls = 0;
        t.stop_at = k;
        status = ash_memory_plan_create(r->context, ash_memory_csv_problem(csv), &options, &plan, &diag);
        assert_true(status == ASH_OK || status == ASH_ERROR_CANCELLED);
        assert_int_equal(status == ASH_OK, t.calls < k);
        if (status != ASH_OK) assert_null(plan);
        if (status != ASH_OK) assert_int_equal(t.calls, k); /* it is asked no more */
        if (status != ASH_OK) assert_int_equal(r->memory.live, live);
    }
    assert_true(k > 8 && t.well && t.seen[ASH_STAGE_MEMORY]);
    ash_memory_plan_destroy(plan);
    ash_memory_csv_destroy(csv);
}

int main(void) {
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(preparing_stops_at_every_call),
        TEST(the_switch_refuses),
        TEST(a_chain_stops_after_each_step),
        TEST(a_profile_stops),
        TEST(another_thread_stops_it),
        TEST(results_are_whole_or_none),
        TEST(the_prologue_stops),
        TEST(replicas_share_the_switch),
        TEST(searches_stop),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
