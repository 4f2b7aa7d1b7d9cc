/* SPDX-License-Identifier: MIT */
/* Plans on several streams: the same results as on one, on the processors and on streams that reorder all
 * they may; waits where they are needed, and each of them needed. */
#include "apart.h"
#include "plan_room.h"

#include <math.h>
#include <unistd.h>

static ash_diag diag;

static int setup(void **state) {
    return room_open(state, 3);
}

enum { N = 40, VALUES = 64 };

static uint32_t pick(struct room *r, uint32_t below) {
    r->random ^= r->random >> 12, r->random ^= r->random << 25, r->random ^= r->random >> 27;
    return (uint32_t)((r->random * 0x2545f4914f6cdd1dULL) >> 33) % below;
}

/* out = 2 a + b + 1: which of the two was wrong, and by how much, shows in what follows. */
static void kernel_mix(void *const *b, const int64_t *vars, int64_t begin, int64_t end, int64_t worker) {
    (void)vars, (void)worker;
    for (int64_t i = begin; i < end; i++) {
        float mixed = ((const float *)b[1])[i] * 2 + ((const float *)b[2])[i] + 1;
        ((float *)b[0])[i] = fmodf(mixed, 1009.0f); /* a NaN, read on purpose, stays one */
    }
}

/* Work enough to be worth a stream. */
static void weigh(struct room *r, ash_step *step) {
    step->flops = 64.0 * (2500 + pick(r, 20000));
}

static uint32_t mix(struct room *r, ash_buffer_kind kind, uint32_t a, uint32_t b, bool in_place) {
    uint32_t out = maker_buffer(&r->m, kind, N, kind == ASH_BUFFER_OUTPUT ? "y" : NULL);
    ash_step *step = maker_step(&r->m, "mix", kernel_mix, N, 1, 3, LIST(out, a, b));
    weigh(r, step);
    if (in_place) step->inplace = a;
    return out;
}

/* Two halves of one buffer, written apart, one by a copy, and read together. */
static uint32_t join(struct room *r, uint32_t a, uint32_t b) {
    uint32_t whole = maker_buffer(&r->m, ASH_BUFFER_LOCAL, 2 * N, NULL),
             left = maker_view(&r->m, whole, 0, N), right = maker_view(&r->m, whole, N, N),
             out = maker_buffer(&r->m, ASH_BUFFER_LOCAL, N, NULL);
    weigh(r, maker_copy(&r->m, a, left));
    weigh(r, maker_step(&r->m, "right", kernel_mix, N, 1, 3, LIST(right, b, a)));
    ash_step *step = maker_step(&r->m, "join", kernel_mix, N, 1, 3, LIST(out, left, right));
    weigh(r, step);
    return out;
}

/* A random program in which every value reaches the output. */
static void make_program(struct room *r, uint64_t seed, unsigned steps) {
    uint32_t values[VALUES], count = 0;
    bool used[VALUES] = {0};
    maker_init(&r->m, r->context);
    r->random = seed * 0x9e3779b97f4a7c15ULL + 12345;
    for (int i = 0; i < 4; i++) pick(r, 2);
    values[count++] = maker_buffer(&r->m, ASH_BUFFER_INPUT, N, "x");
    values[count++] = maker_buffer(&r->m, ASH_BUFFER_INPUT, N, "z");
    used[0] = used[1] = true;
    for (unsigned i = 0; i < steps; i++) {
        uint32_t a = pick(r, count), b = pick(r, count);
        values[count] = a != b && pick(r, 4) == 0
                            ? join(r, values[a], values[b])
                            : mix(r, ASH_BUFFER_LOCAL, values[a], values[b], a != b && pick(r, 2) == 0);
        used[a] = used[b] = true;
        count++;
    }
    uint32_t sum = values[0];
    for (uint32_t i = 0; i < count; i++)
        if (!used[i]) sum = mix(r, ASH_BUFFER_LOCAL, values[i], sum, true);
    maker_output(&r->m, mix(r, ASH_BUFFER_OUTPUT, sum, values[0], false), "y");
}

static void build(struct room *r, const ash_plan_options *options, bool apart) {
    ash_plan_destroy(r->plan);
    r->plan = NULL;
    r->m.apart = apart;
    assert_ok(maker_build(&r->m, options, &r->plan, &diag));
}

static void set_inputs(struct room *r) {
    for (size_t k = 0; k < 2; k++) {
        float x[N];
        for (int i = 0; i < N; i++) x[i] = (float)(i * 7 % 31) + 100 * (float)k;
        assert_ok(ash_plan_set_input(r->plan, k, NULL, x, sizeof x, &diag));
    }
}

static void execute(struct room *r, float y[N]) {
    const ash_view *view;
    assert_ok(ash_plan_execute(r->plan, &diag));
    assert_ok(ash_plan_output(r->plan, 0, &view, &diag));
    assert_ok(ash_view_copy_out(view, y, N * sizeof *y, &diag));
}

/* What mode stream says. */
static void expect(struct room *r, uint64_t seed, unsigned steps, float y[N]) {
    make_program(r, seed, steps);
    build(r, NULL, false);
    set_inputs(r);
    execute(r, y);
}

static ash_plan_options many(unsigned streams, unsigned threads) {
    ash_plan_options options = ash_plan_options_default();
    options.mode = ASH_MODE_MULTI_STREAM;
    options.streams = streams;
    options.threads = threads;
    options.poison = true;
    return options;
}

static void the_same_on_any_number_of_streams(void **state) {
    struct room *r = *state;
    for (uint64_t seed = 0; seed < 12; seed++) {
        float want[N], have[N];
        expect(r, seed, 24, want);
        for (unsigned streams = 1; streams <= 5; streams++)
            for (unsigned threads = 1; threads <= 3; threads++)
                for (int memory = 0; memory < ASH_MEMORY_MODE_COUNT; memory++) {
                    ash_plan_options options = many(streams, threads);
                    options.memory.mode = (ash_memory_mode)memory;
                    options.poison = seed % 2;
                    make_program(r, seed, 24);
                    build(r, &options, false);
                    set_inputs(r);
                    for (int i = 0; i < 3; i++) {
                        execute(r, have);
                        assert_memory_equal(have, want, sizeof want);
                    }
                    ash_plan_report report = ash_plan_describe(r->plan);
                    assert_int_equal(report.mode, ASH_MODE_MULTI_STREAM);
                    assert_true(report.streams <= streams && report.threads == threads);
                    assert_true(streams == 1 || (report.streams > 1 && report.waits >= report.events));
                    assert_true(report.replay.comparisons > 0);
                }
    }
}

/* Chunks that take their time, so that a second thread has time to come. */
static void kernel_slow(void *const *b, const int64_t *vars, int64_t begin, int64_t end, int64_t worker) {
    int64_t until = ash_clock__now() + 200000;
    while (ash_clock__now() < until) {
    }
    kernel_mix(b, vars, begin * N, end * N, worker); /* a chunk is a whole buffer */
}

/* Two independent chains of operations that cannot be split run at the same time. */
static void independent_work_overlaps(void **state) {
    struct room *r = *state;
    uint32_t ends[2];
    float y[N];
    maker_init(&r->m, r->context);
    uint32_t x = maker_buffer(&r->m, ASH_BUFFER_INPUT, N, "x");
    for (int chain = 0; chain < 2; chain++) {
        ends[chain] = x;
        for (int i = 0; i < 10; i++) {
            uint32_t next = maker_buffer(&r->m, ASH_BUFFER_LOCAL, N, NULL);
            weigh(r, maker_step(&r->m, "slow", kernel_slow, 1, 1, 3, LIST(next, ends[chain], x)));
            ends[chain] = next;
        }
    }
    maker_output(&r->m, mix(r, ASH_BUFFER_OUTPUT, ends[0], ends[1], false), "y");
    ash_plan_options options = many(2, 2);
    build(r, &options, false);
    for (int i = 0; i < N; i++) y[i] = (float)i;
    assert_ok(ash_plan_set_input(r->plan, 0, NULL, y, sizeof y, &diag));
    if (sysconf(_SC_NPROCESSORS_ONLN) < 2) skip(); /* nothing can overlap on one processor */
    NOT_APART("one thread runs everything");
    uint64_t overlapped = 0;
    for (int i = 0; i < 2000 && overlapped == 0; i++) {
        execute(r, y);
        overlapped = ash_plan_describe(r->plan).overlapped;
    }
    assert_true(overlapped > 0);
}

static void reordering_changes_nothing(void **state) {
    struct room *r = *state;
    for (uint64_t seed = 100; seed < 130; seed++) {
        float want[N], have[N];
        ash_plan_options options = many(2 + seed % 4, 2);
        expect(r, seed, 28, want);
        make_program(r, seed, 28);
        build(r, &options, true);
        set_inputs(r);
        for (reorder.seed = 0; reorder.seed < 40; reorder.seed++) {
            execute(r, have);
            assert_memory_equal(have, want, sizeof want);
        }
    }
}

/* True when some order gives another result without the wait `drop`. */
static bool is_found(struct room *r, uint32_t drop, const float want[N]) {
    bool found = false;
    float have[N];
    reorder.drop = drop;
    for (reorder.seed = 0; reorder.seed < 400 && !found; reorder.seed++) {
        execute(r, have);
        found = memcmp(have, want, sizeof have) != 0;
    }
    reorder.drop = UINT32_MAX;
    return found;
}

/* Every wait that is left out is found, one after the other, in several programs: none is missing, and none
 * is there without need. */
static void every_edge_is_needed(void **state) {
    struct room *r = *state;
    uint32_t removed = 0;
    for (uint64_t seed = 200; seed < 206; seed++) {
        float want[N], have[N];
        ash_plan_options options = many(2 + seed % 3, 1);
        expect(r, seed, 20, want);
        make_program(r, seed, 20);
        build(r, &options, true);
        set_inputs(r);
        uint32_t waits = ash_plan_describe(r->plan).waits;
        for (uint32_t drop = 0; drop < waits; drop++, removed++) assert_true(is_found(r, drop, want));
        for (reorder.seed = 0; reorder.seed < 400; reorder.seed++) {
            execute(r, have);
            assert_memory_equal(have, want, sizeof want);
        }
    }
    assert_true(removed >= 10);
}

/* A buffer that is read, and then added to: the reader must be over before. */
static void what_is_read_is_not_overwritten(void **state) {
    struct room *r = *state;
    float want[N] = {0}, have[N];
    for (int several = 0; several < 2; several++) {
        maker_init(&r->m, r->context);
        uint32_t x = maker_buffer(&r->m, ASH_BUFFER_INPUT, N, "x"),
                 z = maker_buffer(&r->m, ASH_BUFFER_INPUT, N, "z");
        uint32_t a = mix(r, ASH_BUFFER_LOCAL, x, z, false), b = a, c = z;
        for (int i = 0; i < 2; i++) b = mix(r, ASH_BUFFER_LOCAL, b, a, false); /* reads a */
        for (int i = 0; i < 2; i++) c = mix(r, ASH_BUFFER_LOCAL, c, x, false);
        weigh(r, maker_step(&r->m, "again", kernel_mix, N, 1, 3, LIST(a, c, x))); /* and a is another */
        uint32_t d = mix(r, ASH_BUFFER_LOCAL, a, c, false);
        maker_output(&r->m, mix(r, ASH_BUFFER_OUTPUT, b, d, false), "y");
        ash_plan_options options = many(2, 1);
        build(r, several ? &options : NULL, several);
        set_inputs(r);
        if (!several) execute(r, want);
    }
    assert_int_equal(ash_plan_describe(r->plan).streams, 2);
    for (reorder.seed = 0; reorder.seed < 200; reorder.seed++) {
        execute(r, have);
        assert_memory_equal(have, want, sizeof want);
    }
}

/* Two chains that meet: one event, one wait, and what the one waits for is known to those after it. */
static void implied_waits_are_left_out(void **state) {
    struct room *r = *state;
    maker_init(&r->m, r->context);
    uint32_t x = maker_buffer(&r->m, ASH_BUFFER_INPUT, N, "x"), a = x, b = x, list[3];
    for (int i = 0; i < 3; i++) {
        a = mix(r, ASH_BUFFER_LOCAL, a, x, false);
        list[i] = b = mix(r, ASH_BUFFER_LOCAL, b, x, false);
    }
    a = mix(r, ASH_BUFFER_LOCAL, a, list[2], false);
    a = mix(r, ASH_BUFFER_LOCAL, a, list[1], false);
    maker_output(&r->m, mix(r, ASH_BUFFER_OUTPUT, a, list[0], false), "y");
    ash_plan_options options = many(2, 2);
    build(r, &options, false);
    ash_plan_report report = ash_plan_describe(r->plan);
    assert_int_equal(report.streams, 2);
    assert_int_equal(report.events, 1);
    assert_int_equal(report.waits, 1);
}

static void a_chain_stays_on_one_stream(void **state) {
    struct room *r = *state;
    maker_init(&r->m, r->context);
    uint32_t x = maker_buffer(&r->m, ASH_BUFFER_INPUT, N, "x"), a = x;
    for (int i = 0; i < 8; i++) a = mix(r, ASH_BUFFER_LOCAL, a, x, false);
    maker_output(&r->m, mix(r, ASH_BUFFER_OUTPUT, a, x, false), "y");
    ash_plan_options options = many(4, 2);
    build(r, &options, false);
    ash_plan_report report = ash_plan_describe(r->plan);
    assert_int_equal(report.streams, 1);
    assert_int_equal(report.events, 0);
}

/* Two chains that meet, by the time of a step and the bytes that go from one to the next. */
static ash_plan_report two_chains(struct room *r, double ns, int64_t elements) {
    uint32_t ends[2];
    maker_init(&r->m, r->context);
    uint32_t x = maker_buffer(&r->m, ASH_BUFFER_INPUT, elements, "x");
    for (int chain = 0; chain < 2; chain++) {
        ends[chain] = x;
        for (int i = 0; i < 3; i++) {
            uint32_t next = maker_buffer(&r->m, ASH_BUFFER_LOCAL, elements, NULL);
            ash_step *step =
                maker_step(&r->m, "mix", kernel_mix, elements, 1, 3, LIST(next, ends[chain], x));
            step->work = ns;
            ends[chain] = next;
        }
    }
    uint32_t y = maker_buffer(&r->m, ASH_BUFFER_OUTPUT, elements, "y");
    maker_step(&r->m, "mix", kernel_mix, elements, 1, 3, LIST(y, ends[0], ends[1]))->work = ns;
    maker_output(&r->m, y, "y");
    ash_plan_options options = many(2, 2);
    build(r, &options, false);
    return ash_plan_describe(r->plan);
}

/* Branches go to another stream when they are worth the edge, and the bytes that cross it. */
static void small_branches_stay(void **state) {
    struct room *r = *state;
    assert_int_equal(two_chains(r, 60, 16).streams, 1);
    assert_int_equal(two_chains(r, 60, 16).events, 0);
    assert_int_equal(two_chains(r, 2000, 16).streams, 2);
    assert_int_equal(two_chains(r, 2000, 1 << 15).streams, 1); /* 128 kB: 28 us */
    assert_int_equal(two_chains(r, 50000, 1 << 15).streams, 2);
}

static void nothing_is_allocated(void **state) {
    struct room *r = *state;
    float y[N];
    for (int poison = 0; poison < 2; poison++) {
        ash_plan_options options = many(3, 3);
        options.poison = poison;
        make_program(r, 7, 24);
        build(r, &options, false);
        set_inputs(r);
        execute(r, y);
        long before = r->memory.count;
        for (int i = 0; i < 10; i++) assert_ok(ash_plan_execute(r->plan, &diag));
        assert_int_equal(r->memory.count, before);
    }
}

static void profiles_name_the_stream(void **state) {
    struct room *r = *state;
    ash_plan_options options = many(3, 2);
    make_program(r, 7, 24);
    build(r, &options, false);
    set_inputs(r);
    size_t count = ash_plan_op_count(r->plan);
    ash_profile *profile = calloc(count, sizeof *profile);
    assert_ok(ash_plan_execute_profiled(r->plan, profile, count, &diag));
    uint32_t streams = 0;
    int64_t last[3] = {0};
    for (size_t i = 0; i < count; i++) {
        const ash_profile *p = &profile[i];
        assert_true(p->op == i && p->stream < 3 && p->threads >= 1 && p->threads <= 2);
        assert_true(p->start >= last[p->stream] && p->duration >= 0);
        last[p->stream] = p->start + p->duration;
        streams |= 1u << p->stream;
    }
    assert_int_equal(__builtin_popcount(streams), ash_plan_describe(r->plan).streams);
    free(profile);
}

static void the_same_plan_every_time(void **state) {
    struct room *r = *state;
    ash_plan_options options = many(4, 2);
    make_program(r, 11, 24);
    build(r, &options, false);
    ash_plan *first = r->plan;
    r->plan = NULL;
    make_program(r, 11, 24);
    build(r, &options, false);
    const ash_schedule *a = first->schedule, *b = r->plan->schedule;
    assert_int_equal(a->n_waits, b->n_waits);
    assert_memory_equal(a->stream, b->stream, a->n_steps * sizeof *a->stream);
    assert_memory_equal(a->waits, b->waits, a->n_waits * sizeof *a->waits);
    for (uint32_t i = 0; i < first->n_buffers; i++)
        assert_int_equal(first->layout->places[i].offset, r->plan->layout->places[i].offset);
    ash_plan_destroy(first);
}

static ash_plan_options graph(unsigned threads) {
    ash_plan_options options = ash_plan_options_default();
    options.mode = ASH_MODE_GRAPH;
    options.threads = threads;
    return options;
}

static void captures_do_the_same(void **state) {
    struct room *r = *state;
    for (uint64_t seed = 300; seed < 306; seed++)
        for (unsigned threads = 1; threads <= 3; threads++) {
            float want[N], have[N];
            ash_plan_options options = graph(threads);
            expect(r, seed, 24, want);
            make_program(r, seed, 24);
            build(r, &options, false);
            set_inputs(r);
            for (int i = 0; i < 3; i++) {
                execute(r, have);
                assert_memory_equal(have, want, sizeof want);
            }
            ash_plan_report report = ash_plan_describe(r->plan);
            assert_int_equal(report.mode, ASH_MODE_GRAPH);
            assert_int_equal(report.captured, ash_plan_op_count(r->plan));
            long before = r->memory.count;
            execute(r, have);
            assert_int_equal(r->memory.count, before);
        }
}

static void what_cannot_be_captured(void **state) {
    struct room *r = *state;
    ash_plan_options options = graph(2);
    make_program(r, 3, 8);
    build(r, &options, false);
    set_inputs(r);
    ash_profile profile[64];
    assert_status(ash_plan_execute_profiled(r->plan, profile, 64, &diag), ASH_ERROR_UNSUPPORTED);
    assert_ok(ash_plan_execute(r->plan, &diag));
    assert_int_equal(ash_plan_describe(r->plan).captured, ash_plan_op_count(r->plan));
}

static void the_device_fails(void **state) {
    struct room *r = *state;
    float want[N], have[N];
    const ash_view *view;
    ash_plan_options options = many(2, 1);
    make_program(r, 9, 8);
    build(r, &options, true);
    set_inputs(r);
    execute(r, want);
    reorder.fail = true;
    assert_status(ash_plan_execute(r->plan, &diag), ASH_ERROR_DEVICE);
    reorder.fail = false;
    assert_ok(ash_plan_output(r->plan, 0, &view, &diag));
    assert_status(ash_view_copy_out(view, have, sizeof have, &diag), ASH_ERROR_STATE);
    execute(r, have);
    assert_memory_equal(have, want, sizeof want);
}

static void options_are_checked(void **state) {
    struct room *r = *state;
    ash_plan_options options = many(0, 1);
    make_program(r, 1, 4);
    assert_status(maker_build(&r->m, &options, &r->plan, &diag), ASH_ERROR_INVALID_ARGUMENT);
    options.streams = ASH_PLAN_MOST_STREAMS + 1;
    make_program(r, 1, 4);
    assert_status(maker_build(&r->m, &options, &r->plan, &diag), ASH_ERROR_INVALID_ARGUMENT);
    options.mode = ASH_MODE_STREAM;
    make_program(r, 1, 4);
    assert_status(maker_build(&r->m, &options, &r->plan, &diag), ASH_ERROR_INVALID_ARGUMENT);
    options.mode = ASH_MODE_COUNT;
    make_program(r, 1, 4);
    assert_status(maker_build(&r->m, &options, &r->plan, &diag), ASH_ERROR_INVALID_ARGUMENT);
    assert_string_equal(ash_mode_text(ASH_MODE_MULTI_STREAM), "multi_stream");
    assert_string_equal(ash_mode_text(ASH_MODE_COUNT), "?");
}

static void failing_allocations(void **state) {
    struct room *r = *state;
    ash_plan_options options = many(3, 2);
    make_program(r, 5, 12);
    build(r, &options, false); /* the pool is there from now on */
    ash_status status = ASH_ERROR_OUT_OF_MEMORY;
    for (long n = 1; status != ASH_OK; n++) {
        ash_plan_destroy(r->plan);
        r->plan = NULL;
        make_program(r, 5, 12);
        r->memory.fail_at = r->memory.count + n;
        status = maker_build(&r->m, &options, &r->plan, &diag);
        r->memory.fail_at = 0;
        assert_true(status == ASH_OK || status == ASH_ERROR_OUT_OF_MEMORY);
        assert_true(n < 10000);
    }
}

int main(void) {
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(the_same_on_any_number_of_streams),
        TEST(independent_work_overlaps),
        TEST(reordering_changes_nothing),
        TEST(every_edge_is_needed),
        TEST(what_is_read_is_not_overwritten),
        TEST(implied_waits_are_left_out),
        TEST(a_chain_stays_on_one_stream),
        TEST(nothing_is_allocated),
        TEST(profiles_name_the_stream),
        TEST(the_same_plan_every_time),
        TEST(captures_do_the_same),
        TEST(what_cannot_be_captured),
        TEST(small_branches_stay),
        TEST(the_device_fails),
        TEST(options_are_checked),
        TEST(failing_allocations),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
