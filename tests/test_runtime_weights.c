/* SPDX-License-Identifier: MIT */
/* Packed weights: which steps of the prologue run again when parameters are set, and weights in the
 * caller's memory. */
#include "plan_room.h"
#include "random.h"

static ash_diag diag;

enum { N = 16, PARAMETERS = 5 };

static int setup(void **state) {
    return room_open(state, 1);
}

static uint32_t pick(struct room *r, uint32_t below) {
    return (uint32_t)test_congruent(&r->random) % below;
}

/* Half of the result, so that two steps make one. */
static void mix_part(void *const *b, int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; i++) {
        float x = ((const float *)b[1])[i] * 3 + ((const float *)b[2])[i] + 1;
        ((float *)b[0])[i] = x - 1021.0f * (float)(int)(x / 1021.0f);
    }
}

static void kernel_mix(void *const *b, const int64_t *vars, int64_t begin, int64_t end, int64_t worker) {
    (void)vars, (void)worker;
    mix_part(b, begin, end);
}

static void kernel_left(void *const *b, const int64_t *vars, int64_t begin, int64_t end, int64_t worker) {
    (void)vars, (void)worker;
    if (begin < end) mix_part(b, 0, N / 2);
}

static void kernel_right(void *const *b, const int64_t *vars, int64_t begin, int64_t end, int64_t worker) {
    (void)vars, (void)worker;
    if (begin < end) mix_part(b, N / 2, N);
}

/* Adds to what is there: a step that must not run twice on one result. */
static void kernel_more(void *const *b, const int64_t *vars, int64_t begin, int64_t end, int64_t worker) {
    (void)vars, (void)worker;
    for (int64_t i = begin; i < end; i++) ((float *)b[0])[i] += ((const float *)b[1])[i];
}

static void add_more(struct room *r, uint32_t to, uint32_t what) {
    ash_step *step = maker_step(&r->m, "more", kernel_more, N, 1, 2, LIST(to, what));
    ash_access *accesses = ash_arena_alloc(&r->m.p->arena, 3, sizeof *accesses);
    memcpy(accesses, step->accesses, 2 * sizeof *accesses);
    accesses[2] = (ash_access){to, false, 0, N * 4};
    step->accesses = accesses;
    step->n_accesses = 3;
}

static void values_of(uint32_t parameter, uint32_t version, float *out) {
    for (uint32_t i = 0; i < N; i++) out[i] = (float)((parameter * 37 + version * 11 + i * 5) % 97);
}

/* A random prologue of `steps` results over parameters with the versions given; all weights reach y. */
static void make_program(struct room *r, uint64_t seed, unsigned steps, const uint32_t *versions) {
    uint32_t values[64], count = 0, sum;
    float data[N];
    maker_init(&r->m, r->context);
    r->random = seed * 77 + 5;
    for (uint32_t p = 0; p < PARAMETERS; p++) {
        static const char *const names[PARAMETERS] = {"p0", "p1", "p2", "p3", "p4"};
        values_of(p, versions[p], data);
        values[count++] = maker_data(&r->m, ASH_BUFFER_PARAMETER, data, N, names[p]);
    }
    for (unsigned i = 0; i < steps; i++) {
        uint32_t a = values[pick(r, count)], b = values[pick(r, count)];
        uint32_t out = maker_buffer(&r->m, pick(r, 2) ? ASH_BUFFER_STAGING : ASH_BUFFER_WEIGHT, N, NULL);
        if (pick(r, 3) == 0) {
            maker_step(&r->m, "left", kernel_left, 1, 1, 3, LIST(out, a, b));
            maker_step(&r->m, "right", kernel_right, 1, 1, 3, LIST(out, b, a));
        } else {
            maker_step(&r->m, "mix", kernel_mix, N, 1, 3, LIST(out, a, b));
        }
        if (pick(r, 3) == 0) add_more(r, out, values[pick(r, count)]);
        values[count++] = out;
    }
    r->m.p->prologue = r->m.p->steps.len;
    sum = maker_buffer(&r->m, ASH_BUFFER_INPUT, N, "x");
    for (uint32_t i = 0; i < count; i++) {
        if (r->m.p->buffers.at[values[i]].kind == ASH_BUFFER_STAGING) continue;
        uint32_t next = maker_buffer(&r->m, ASH_BUFFER_LOCAL, N, NULL);
        maker_step(&r->m, "sum", kernel_mix, N, 1, 3, LIST(next, sum, values[i]));
        sum = next;
    }
    uint32_t y = maker_buffer(&r->m, ASH_BUFFER_OUTPUT, N, "y");
    maker_step(&r->m, "y", kernel_add1, N, 1, 2, LIST(y, sum));
    maker_output(&r->m, y, "y");
}

static void run(ash_plan *plan, float y[N]) {
    float x[N];
    const ash_view *view;
    for (int i = 0; i < N; i++) x[i] = (float)i;
    assert_ok(ash_plan_set_input(plan, 0, NULL, x, sizeof x, &diag));
    assert_ok(ash_plan_execute(plan, &diag));
    assert_ok(ash_plan_output(plan, 0, &view, &diag));
    assert_ok(ash_view_copy_out(view, y, N * sizeof *y, &diag));
}

static void drop_plan(struct room *r) {
    ash_plan_destroy(r->plan);
    r->plan = NULL;
}

/* Whatever is set, the results are those of a plan that has had these parameters from the start; and on the
 * whole far fewer steps run. */
static void what_depends_runs_again(void **state) {
    struct room *r = *state;
    uint64_t ran = 0, all = 0;
    for (uint64_t seed = 0; seed < 60; seed++) {
        uint32_t versions[PARAMETERS] = {0};
        ash_plan_options options = ash_plan_options_default();
        float have[N], want[N], data[N];
        options.poison = seed % 2;
        make_program(r, seed, 12, versions);
        ash_plan *plan;
        assert_ok(maker_build(&r->m, &options, &plan, &diag));
        run(plan, have);
        uint64_t prologue = ash_plan_prologue_count(plan);
        assert_int_equal(ash_plan_describe(plan).prologue_runs, prologue);
        for (int round = 1; round < 6; round++) {
            for (uint32_t k = 0; k < 1 + (round == 5); k++) {
                uint32_t p = (uint32_t)(seed + (uint64_t)round * 3 + k) % PARAMETERS;
                char name[4];
                snprintf(name, sizeof name, "p%u", p);
                versions[p] += 1 + (uint32_t)round;
                values_of(p, versions[p], data);
                assert_ok(ash_plan_set_parameter(plan, name, NULL, data, sizeof data, &diag));
            }
            uint64_t before = ash_plan_describe(plan).prologue_runs;
            run(plan, have);
            ran += ash_plan_describe(plan).prologue_runs - before;
            all += prologue;
            make_program(r, seed, 12, versions);
            assert_ok(maker_build(&r->m, &options, &r->plan, &diag));
            run(r->plan, want);
            assert_memory_equal(have, want, sizeof want);
            drop_plan(r);
        }
        ash_plan_destroy(plan);
    }
    assert_true(ran > all / 10 && ran < all * 3 / 4);
}

/* w0 = f(p0), w1 = f(s) with s = f(p1), w2 = f(p2, s): counted step by step. */
static void counted(void **state) {
    struct room *r = *state;
    float data[N] = {1}, y[N], first[N];
    uint32_t p[3], w[3];
    maker_init(&r->m, r->context);
    for (uint32_t i = 0; i < 3; i++) {
        static const char *const names[] = {"p0", "p1", "p2"};
        p[i] = maker_data(&r->m, ASH_BUFFER_PARAMETER, data, N, names[i]);
        w[i] = maker_buffer(&r->m, ASH_BUFFER_WEIGHT, N, NULL);
    }
    uint32_t s = maker_buffer(&r->m, ASH_BUFFER_STAGING, N, NULL),
             q = maker_data(&r->m, ASH_BUFFER_PARAMETER, data, N, "read_in_place"),
             x = maker_buffer(&r->m, ASH_BUFFER_INPUT, N, "x"), sum = x;
    maker_step(&r->m, "w0", kernel_mix, N, 1, 3, LIST(w[0], p[0], p[0]));
    maker_step(&r->m, "s", kernel_mix, N, 1, 3, LIST(s, p[1], p[1]));
    maker_step(&r->m, "w1", kernel_mix, N, 1, 3, LIST(w[1], s, s));
    maker_step(&r->m, "w2", kernel_mix, N, 1, 3, LIST(w[2], p[2], s));
    r->m.p->prologue = 4;
    for (int i = 0; i < 4; i++) {
        uint32_t next = maker_buffer(&r->m, i < 3 ? ASH_BUFFER_LOCAL : ASH_BUFFER_OUTPUT, N, "y");
        maker_step(&r->m, "sum", kernel_mix, N, 1, 3, LIST(next, sum, i < 3 ? w[i] : q));
        sum = next;
    }
    maker_output(&r->m, sum, "y");
    assert_ok(maker_build(&r->m, NULL, &r->plan, &diag));
    run(r->plan, first);
    static const struct {
        const char *name;
        uint64_t runs;
    } cases[] = {{"p0", 1}, {"p1", 3}, {"p2", 2}, {"read_in_place", 0}};
    uint64_t before = 4;
    for (size_t i = 0; i < ASH_COUNT(cases); i++) {
        data[0] = 7;
        assert_ok(ash_plan_set_parameter(r->plan, cases[i].name, NULL, data, sizeof data, &diag));
        run(r->plan, y);
        assert_true(y[0] != first[0] && y[1] == first[1]);
        assert_int_equal(ash_plan_describe(r->plan).prologue_runs, before + cases[i].runs);
        before += cases[i].runs;
        data[0] = 1; /* and back */
        assert_ok(ash_plan_set_parameter(r->plan, cases[i].name, NULL, data, sizeof data, &diag));
        run(r->plan, y);
        assert_memory_equal(y, first, sizeof y);
        before += cases[i].runs;
    }
    run(r->plan, y);
    assert_int_equal(ash_plan_describe(r->plan).prologue_runs, before); /* nothing was set */
    assert_ok(ash_plan_release_all(r->plan, NULL, &diag));
    run(r->plan, y);
    assert_int_equal(ash_plan_describe(r->plan).prologue_runs, before + 4); /* all are gone */
    /* Weights that a replica shares are made anew as a whole. */
    ash_plan *twin;
    assert_ok(ash_plan_replicate(r->plan, &twin, &diag));
    data[0] = 7;
    assert_ok(ash_plan_set_parameter(r->plan, "p2", NULL, data, sizeof data, &diag));
    run(r->plan, y);
    assert_int_equal(ash_plan_describe(r->plan).prologue_runs, before + 8);
    run(twin, y);
    assert_memory_equal(y, first, sizeof y);
    ash_plan_destroy(twin);
}

/* Every allocation of a round that runs a part of the prologue fails once; the next round makes it good. */
static void failures(void **state) {
    struct room *r = *state;
    uint32_t versions[PARAMETERS] = {0};
    float have[N], want[N], data[N];
    versions[2] = 9;
    make_program(r, 3, 12, versions);
    assert_ok(maker_build(&r->m, NULL, &r->plan, &diag));
    run(r->plan, want);
    drop_plan(r);
    versions[2] = 0;
    make_program(r, 3, 12, versions);
    assert_ok(maker_build(&r->m, NULL, &r->plan, &diag));
    run(r->plan, have);
    values_of(2, 9, data);
    bool done = false;
    for (long n = 1; !done; n++) {
        assert_ok(ash_plan_set_parameter(r->plan, "p2", NULL, data, sizeof data, &diag));
        r->memory.fail_at = r->memory.count + n;
        ash_status status = ash_plan_execute(r->plan, &diag);
        r->memory.fail_at = 0;
        done = status == ASH_OK;
        if (!done) assert_int_equal(status, ASH_ERROR_OUT_OF_MEMORY);
        run(r->plan, have);
        assert_memory_equal(have, want, sizeof want);
        assert_true(n < 100);
    }
}

/* --- the caller's memory ------------------------------------------------------------------------ */

static bool lies_in(ash_plan *plan, const void *memory, uint64_t size) {
    bool any = false;
    for (uint32_t b = 0; b < ash_plan_buffer_count(plan); b++) {
        ash_buffer_info info = ASH_INIT(ash_buffer_info);
        const ash_view *view;
        const void *data;
        assert_ok(ash_plan_buffer_at(plan, b, &info, &diag));
        if (info.role != ASH_ROLE_WEIGHT) continue;
        assert_ok(ash_plan_buffer_view(plan, b, &view, &diag));
        assert_ok(ash_view_data(view, &data, &diag));
        bool in =
            (const char *)data >= (const char *)memory && (const char *)data < (const char *)memory + size;
        assert_true(!any || in);
        any |= in;
    }
    return any;
}

static void weights_of_the_caller(void **state) {
    NOT_APART("memory of the host's for the arena or the weights");
    struct room *r = *state;
    static char memory[8192] __attribute__((aligned(64))), other[8192] __attribute__((aligned(64)));
    uint32_t versions[PARAMETERS] = {0};
    float first[N], y[N], data[N];
    make_program(r, 1, 12, versions);
    assert_ok(maker_build(&r->m, NULL, &r->plan, &diag));
    uint64_t size = ash_plan_weights_size(r->plan);
    assert_true(size > 0 && size < sizeof memory && ash_plan_weights_align(r->plan) == 64);
    assert_status(ash_plan_bind_weights(r->plan, memory, size - 1, &diag), ASH_ERROR_OUT_OF_RANGE);
    assert_status(ash_plan_bind_weights(r->plan, memory + 8, sizeof memory - 8, &diag),
                  ASH_ERROR_INVALID_ARGUMENT);
    assert_status(ash_plan_bind_weights(NULL, memory, size, &diag), ASH_ERROR_INVALID_ARGUMENT);
    run(r->plan, first);
    assert_false(lies_in(r->plan, memory, size));
    /* What is there moves, without running anything. */
    uint64_t runs = ash_plan_describe(r->plan).prologue_runs;
    memset(memory, 0x55, sizeof memory);
    long long live = r->memory.live;
    assert_ok(ash_plan_bind_weights(r->plan, memory, size, &diag));
    assert_true(r->memory.live < live);
    assert_true(lies_in(r->plan, memory, size));
    run(r->plan, y);
    assert_memory_equal(y, first, sizeof y);
    assert_int_equal(ash_plan_describe(r->plan).prologue_runs, runs);
    for (size_t i = size; i < sizeof memory; i++) assert_int_equal(memory[i], 0x55);
    /* It stays the place of the weights, whatever happens to them. */
    assert_ok(ash_plan_release_all(r->plan, NULL, &diag));
    run(r->plan, y);
    assert_memory_equal(y, first, sizeof y);
    assert_true(lies_in(r->plan, memory, size));
    assert_ok(ash_plan_release_all(r->plan, NULL, &diag));
    assert_ok(ash_plan_bind_weights(r->plan, other, sizeof other, &diag));
    memset(memory, 0x77, sizeof memory);
    run(r->plan, y);
    assert_memory_equal(y, first, sizeof y);
    assert_true(lies_in(r->plan, other, size));
    /* A replica shares it, until one of the two has a parameter of its own. */
    ash_plan *twin;
    assert_ok(ash_plan_replicate(r->plan, &twin, &diag));
    values_of(0, 5, data);
    assert_ok(ash_plan_set_parameter(r->plan, "p0", NULL, data, sizeof data, &diag));
    run(r->plan, y);
    assert_memory_not_equal(y, first, sizeof y);
    assert_false(lies_in(r->plan, other, size));
    assert_true(lies_in(twin, other, size));
    run(twin, y);
    assert_memory_equal(y, first, sizeof y);
    /* And back to memory of its own. */
    assert_ok(ash_plan_bind_weights(twin, memory, size, &diag));
    assert_ok(ash_plan_bind_weights(twin, NULL, 0, &diag));
    memset(memory, 0x77, sizeof memory);
    memset(other, 0x77, sizeof other);
    run(twin, y);
    assert_memory_equal(y, first, sizeof y);
    ash_plan_destroy(twin);
}

/* Weights in the caller's memory that a replica has too: each can go elsewhere, and none writes there while
 * the other reads. */
static void a_block_that_replicas_share(void **state) {
    NOT_APART("memory of the host's for the arena or the weights");
    struct room *r = *state;
    static char memory[8192] __attribute__((aligned(64)));
    uint32_t versions[PARAMETERS] = {0};
    float first[N], y[N], data[N];
    ash_plan *twin;
    make_program(r, 1, 12, versions);
    assert_ok(maker_build(&r->m, NULL, &r->plan, &diag));
    uint64_t size = ash_plan_weights_size(r->plan);
    assert_ok(ash_plan_bind_weights(r->plan, memory, sizeof memory, &diag));
    run(r->plan, first);
    assert_ok(ash_plan_replicate(r->plan, &twin, &diag));
    assert_true(lies_in(twin, memory, size));
    /* One makes its weights anew, of another parameter: elsewhere. */
    values_of(0, 5, data);
    assert_ok(ash_plan_release_all(r->plan, NULL, &diag));
    assert_ok(ash_plan_set_parameter(r->plan, "p0", NULL, data, sizeof data, &diag));
    run(r->plan, y);
    assert_memory_not_equal(y, first, sizeof y);
    assert_false(lies_in(r->plan, memory, size));
    run(twin, y);
    assert_memory_equal(y, first, sizeof y);
    /* The other leaves the block, too, which the caller may use again. */
    assert_ok(ash_plan_bind_weights(twin, NULL, 0, &diag));
    memset(memory, 0x77, sizeof memory);
    assert_false(lies_in(twin, memory, size));
    run(twin, y);
    assert_memory_equal(y, first, sizeof y);
    ash_plan_destroy(twin);
}

/* Who looks at weights does not share them: they stay where they are, and only what depends runs again. */
static void views_of_weights(void **state) {
    NOT_APART("memory of the host's for the arena or the weights");
    struct room *r = *state;
    static char memory[8192] __attribute__((aligned(64)));
    uint32_t versions[PARAMETERS] = {0};
    float y[N], data[N];
    uint64_t runs[2];
    for (int looked = 0; looked < 2; looked++) {
        make_program(r, 1, 12, versions);
        assert_ok(maker_build(&r->m, NULL, &r->plan, &diag));
        uint64_t size = ash_plan_weights_size(r->plan);
        assert_ok(ash_plan_bind_weights(r->plan, memory, sizeof memory, &diag));
        run(r->plan, y);
        if (looked) assert_true(lies_in(r->plan, memory, size));
        uint64_t before = ash_plan_describe(r->plan).prologue_runs;
        values_of(1, 5, data);
        assert_ok(ash_plan_set_parameter(r->plan, "p1", NULL, data, sizeof data, &diag));
        run(r->plan, y);
        runs[looked] = ash_plan_describe(r->plan).prologue_runs - before;
        assert_true(runs[looked] < ash_plan_prologue_count(r->plan));
        assert_true(lies_in(r->plan, memory, size));
        drop_plan(r);
    }
    assert_int_equal(runs[0], runs[1]);
}

int main(void) {
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(what_depends_runs_again),
        TEST(counted),
        TEST(failures),
        TEST(weights_of_the_caller),
        TEST(a_block_that_replicas_share),
        TEST(views_of_weights),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
