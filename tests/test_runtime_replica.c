/* SPDX-License-Identifier: MIT */
/* Replicas in mode graph run one compiled entry, each at its own place; captures that differ in what is
 * compiled have entries of their own. */
#include "plan_room.h"

#include "code/code.h"

static ash_diag diag;

enum { N = 24, LENGTH = 100 };

static int setup(void **state) {
    return room_open(state, 3);
}

/* y = 2 ((x + 1) + w) over and over, with a copy in between; w is a weight that belongs to a parameter. */
static void make_plan(struct room *r, unsigned threads, bool work) {
    ash_plan_options options = ash_plan_options_default();
    options.mode = ASH_MODE_GRAPH;
    options.threads = threads;
    float p[N];
    for (int i = 0; i < N; i++) p[i] = (float)i;
    maker_init(&r->m, r->context);
    uint32_t parameter = maker_data(&r->m, ASH_BUFFER_PARAMETER, p, N, "p"),
             w = maker_buffer(&r->m, ASH_BUFFER_WEIGHT, N, NULL);
    maker_step(&r->m, "add1", kernel_add1, N, 1, 2, LIST(w, parameter));
    r->m.p->prologue = 1;
    uint32_t x = maker_buffer(&r->m, ASH_BUFFER_INPUT, N, "x"), last = x;
    for (int i = 0; i < 8; i++) {
        uint32_t a = maker_buffer(&r->m, ASH_BUFFER_LOCAL, N, NULL),
                 b = maker_buffer(&r->m, ASH_BUFFER_LOCAL, N, NULL),
                 c = maker_buffer(&r->m, ASH_BUFFER_LOCAL, N, NULL);
        maker_step(&r->m, "add1", kernel_add1, N, 1, 2, LIST(a, last));
        if (work) r->m.p->steps.at[r->m.p->steps.len - 1].flops = 1e7; /* parts, and the pool */
        maker_step(&r->m, "add", kernel_add, N, 1, 3, LIST(b, a, w));
        maker_copy(&r->m, b, c);
        last = c;
    }
    uint32_t y = maker_buffer(&r->m, ASH_BUFFER_OUTPUT, N, "y");
    maker_step(&r->m, "twice", kernel_twice, N, 1, 2, LIST(y, last));
    maker_output(&r->m, y, "y");
    assert_ok(maker_build(&r->m, &options, &r->plan, &diag));
}

/* Sets x to `first`, first + 1, ... and expects what a parameter of 0, 1, ... times `scale` gives. */
static void check(ash_plan *plan, float first, float scale) {
    const ash_view *view;
    float x[N], y[N];
    for (int i = 0; i < N; i++) x[i] = first + (float)i;
    assert_ok(ash_plan_set_input(plan, 0, NULL, x, sizeof x, &diag));
    for (int round = 0; round < 3; round++) {
        assert_ok(ash_plan_execute(plan, &diag));
        assert_ok(ash_plan_output(plan, 0, &view, &diag));
        assert_ok(ash_view_copy_out(view, y, sizeof y, &diag));
        for (int i = 0; i < N; i++) assert_true(y[i] == 2 * (x[i] + 8 * (2 + scale * (float)i)));
    }
}

static void replicas_share_the_entry(void **state) {
    struct room *r = *state;
    for (unsigned threads = 1; threads <= 3; threads++)
        for (int work = 0; work < 2; work++) {
            ash_plan *twin, *third;
            float p[N];
            make_plan(r, threads, work);
            assert_ok(ash_plan_replicate(r->plan, &twin, &diag));
            assert_int_equal(r->plan->streams->class->compiled(r->plan->capture), !apart_is_wished());
            assert_false(twin->streams->class->compiled(twin->capture));
            check(r->plan, 3, 1);
            check(twin, 50, 1);
            for (int i = 0; i < N; i++) p[i] = 5 * (float)i;
            assert_ok(ash_plan_set_parameter(twin, "p", NULL, p, sizeof p, &diag));
            check(twin, 7, 5);
            check(r->plan, 8, 1);
            uint64_t done, total;
            ash_plan_progress(twin, &done, &total);
            assert_int_equal(done, total);
            assert_int_equal(ash_plan_describe(twin).captured, ash_plan_op_count(twin));
            ash_plan_destroy(r->plan); /* who compiled it goes first */
            assert_ok(ash_plan_replicate(twin, &third, &diag));
            assert_false(third->streams->class->compiled(third->capture));
            ash_plan_destroy(twin);
            check(third, -9, 5);
            r->plan = third;
            ash_plan_destroy(r->plan);
            r->plan = NULL;
        }
}

static void counts_are_its_own(void **state) {
    struct room *r = *state;
    ash_plan *twin;
    make_plan(r, 2, false);
    assert_ok(ash_plan_replicate(r->plan, &twin, &diag));
    check(r->plan, 1, 1);
    uint64_t done, total;
    ash_plan_progress(twin, &done, &total); /* counts of its own */
    assert_int_equal(done, 0);
    ash_plan_destroy(twin);
}

/* --- captures of streams ------------------------------------------------------------------------ */

static void put(void *const *buffers, const int64_t *vars, int64_t begin, int64_t end, int64_t worker) {
    int64_t *sum = buffers[0];
    (void)worker;
    *sum += 100 * vars[0] + end - begin;
}

static void put_ten(void *const *buffers, const int64_t *vars, int64_t begin, int64_t end, int64_t worker) {
    int64_t *sum = buffers[0];
    (void)vars, (void)begin, (void)end, (void)worker;
    *sum += 10;
}

/* Some launches and copies, the tables and variables that they have, and the capture. */
struct work {
    ash_streams *streams;
    ash_capture *capture;
    ash_launch launches[LENGTH];
    ash_transfer copy;
    int64_t var, sum, target;
    ash_address table[2];
};

static const ash_kernel *loaded(ash_kernel_fn fn) {
    ash_kernel_image image = {.host = fn};
    ash_kernel *kernel;
    assert_ok(ash_device__cpu.load(NULL, &image, &kernel, &diag));
    return kernel;
}

static void capture(struct room *r, struct work *w, const struct work *like) {
    ash_streams_options options = {
        .streams = 1, .commands = LENGTH + 1, .threads = 1, .maker = ash_code__entry};
    ash_command commands[LENGTH + 1];
    ash_device *cpu;
    assert_ok(ash_device_open(r->context, "CPU", &cpu, &diag));
    assert_ok(ash_streams__create(cpu, &options, &w->streams, &diag));
    ash_device_close(cpu); /* the context's plan keeps it open */
    for (int i = 0; i < LENGTH; i++)
        commands[i] = (ash_command){.kind = ASH_COMMAND_LAUNCH, .launch = &w->launches[i]};
    commands[LENGTH] = (ash_command){.kind = ASH_COMMAND_COPY, .copy = &w->copy};
    assert_ok(w->streams->class->instantiate(w->streams, commands, LENGTH + 1, like ? like->capture : NULL,
                                             &w->capture, &diag));
}

static void make_work(struct work *w, int64_t var) {
    *w = (struct work){.var = var};
    w->table[0] = (ash_address)&w->sum;
    w->table[1] = (ash_address)&w->target;
    for (int i = 0; i < LENGTH; i++)
        w->launches[i] = (ash_launch){
            .kernel = loaded(put), .buffers = w->table, .vars = &w->var, .chunks = {.begin = 1, .end = 3}};
    w->copy = (ash_transfer){.buffers = w->table, .bytes = sizeof w->sum};
}

static void drop(struct work *w) {
    w->streams->class->capture_free(w->streams, w->capture);
    ash_streams__destroy(w->streams);
}

static void only_the_same_work_is_shared(void **state) {
    struct room *r = *state;
    struct work first, other;
    make_work(&first, 1);
    capture(r, &first, NULL);
    for (int kind = 0; kind < 7; kind++) {
        int64_t want = LENGTH * (100 * 7 + 2);
        make_work(&other, 7);
        switch (kind) {
        case 1:
            other.launches[50].kernel = loaded(put_ten), want += 10 - 702;
            break; /* read when it runs, */
        case 2: other.launches[50].chunks.begin = 2, want -= 1; break;
        case 3: other.launches[50].chunks.parallel = true; break;
        case 4: other.launches[50].chunks.end = 5, want += 2; break; /* so is this, */
        case 5: other.copy.bytes = 4; break;                         /* and this */
        case 6: other.copy.to = 4, other.copy.bytes = 4; break;
        default: break;
        }
        capture(r, &other, &first);
        bool same = kind == 0 || kind == 1 || kind == 4 || kind == 5;
        assert_int_equal(other.streams->class->compiled(other.capture), !same);
        assert_ok(other.streams->class->replay(other.streams, other.capture, &diag));
        assert_int_equal(other.sum, want);
        assert_int_equal(first.sum, 0);
        assert_int_equal(other.target, kind == 6 ? want << 32 : want);
        drop(&other);
    }
    assert_ok(first.streams->class->replay(first.streams, first.capture, &diag));
    assert_int_equal(first.target, LENGTH * 102);
    drop(&first);
}

int main(void) {
#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(replicas_share_the_entry),
        TEST(counts_are_its_own),
        TEST(only_the_same_work_is_shared),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
