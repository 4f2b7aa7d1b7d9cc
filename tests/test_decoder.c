/* SPDX-License-Identifier: MIT */
/* The decoder of the examples: N steps with caches equal one pass over N tokens without, in every mode; a
 * step reads the caches up to its position and no further, allocates nothing, and takes as long whatever
 * the caches could hold. */
int example_main(void);
#define main example_main
#include "../examples/decoder.c"
#undef main

#include <math.h>

#include "apart.h"
#include "base/clock.h"
#include "graph_room.h"

static ash_diag diag;

enum { TOKENS = 20, VOCABULARY = 96 };

static const int64_t text[TOKENS] = {5,  17, 80, 3,  3,  41, 95, 0,  62, 7,
                                     19, 28, 33, 90, 71, 1,  5,  54, 12, 88};

static int setup(void **state) {
    return room_open(state, 2);
}

static void prepare(struct room *r, int64_t longest, int64_t count, const ash_plan_options *options) {
    const decoder d = {VOCABULARY, 64, 4, 3, 160, longest, count};
    ash_graph *g;
    ash_plan_destroy(r->plan);
    r->plan = NULL;
    assert_ok(ash_graph_create(r->context, "decoder", &g, &diag));
    decoder_build(&d, g);
    assert_ok(ash_graph_status(g, &diag));
    assert_ok(ash_plan_prepare(r->context, g, options, &r->plan, &diag));
    ash_graph_destroy(g);
}

static void read_logits(struct room *r, float *logits, size_t tokens) {
    const ash_view *view;
    assert_ok(ash_plan_output(r->plan, 0, &view, &diag));
    assert_ok(ash_view_copy_out(view, logits, tokens * VOCABULARY * sizeof *logits, &diag));
}

/* One pass over all tokens; the likeliest next token. */
static int64_t pass(struct room *r, float (*logits)[VOCABULARY]) {
    int64_t next;
    const ash_view *view;
    prepare(r, 0, TOKENS, NULL);
    assert_ok(ash_plan_set_input(r->plan, 0, NULL, text, sizeof text, &diag));
    assert_ok(ash_plan_execute(r->plan, &diag));
    read_logits(r, logits[0], TOKENS);
    assert_ok(ash_plan_output(r->plan, 1, &view, &diag));
    assert_ok(ash_view_copy_out(view, &next, sizeof next, &diag));
    return next;
}

static int64_t walk(struct room *r, float (*logits)[VOCABULARY]) {
    int64_t next = -1;
    for (int64_t i = 0; i < TOKENS; i++) {
        assert_ok(step(r->plan, i, text[i], &next, &diag));
        read_logits(r, logits[i], 1);
    }
    return next;
}

static double apart(float (*a)[VOCABULARY], float (*b)[VOCABULARY]) {
    double difference = 0, size = 0;
    for (int i = 0; i < TOKENS; i++)
        for (int k = 0; k < VOCABULARY; k++) {
            difference += ((double)a[i][k] - (double)b[i][k]) * ((double)a[i][k] - (double)b[i][k]);
            size += (double)b[i][k] * (double)b[i][k];
        }
    assert_true(size > 1);
    return sqrt(difference / size);
}

static void steps_equal_one_pass(void **state) {
    struct room *r = *state;
    float whole[TOKENS][VOCABULARY], first[TOKENS][VOCABULARY], logits[TOKENS][VOCABULARY];
    int64_t next = pass(r, whole);
    for (int way = 0; way < 24; way++) {
        ash_plan_options options = ash_plan_options_default();
        options.mode = (ash_mode)(way % 3);
        options.streams = options.mode == ASH_MODE_MULTI_STREAM ? 3 : 1;
        options.poison = way % 2;
        options.threads = 1 + (unsigned)(way / 3 % 2);
        options.no_fuse = way >= 18;
        options.memory.mode = way < 6 ? ASH_MEMORY_ARENA : (ash_memory_mode)(way / 6 - 1);
        options.order = way / 12 ? ASH_PLAN_ORDER_ON : ASH_PLAN_ORDER_OFF;
        prepare(r, TOKENS + 4, 1, &options);
        assert_int_equal(ash_plan_state_count(r->plan), 6);
        assert_int_equal(ash_plan_describe(r->plan).states_in_place, 6);
        assert_int_equal(walk(r, logits), next);
        assert_true(apart(logits, whole) < 2e-6);
        if (way == 0) memcpy(first, logits, sizeof first);
        if (!options.no_fuse) assert_memory_equal(logits, first, sizeof first);
        assert_ok(ash_plan_reset_states(r->plan, &diag)); /* another sequence: the same once more */
        assert_int_equal(walk(r, logits), next);
        if (!options.no_fuse) assert_memory_equal(logits, first, sizeof first);
    }
}

/* What lies past the position is not read: not-a-numbers there change nothing. */
static void the_rest_of_the_cache_is_not_read(void **state) {
    struct room *r = *state;
    float clean[TOKENS][VOCABULARY], logits[TOKENS][VOCABULARY];
    prepare(r, 64, 1, NULL);
    walk(r, clean);
    for (size_t s = 0; s < ash_plan_state_count(r->plan); s++) {
        const ash_view *view;
        assert_ok(ash_plan_state(r->plan, s, &view, &diag));
        void *nan = malloc(ash_view_bytes(view));
        memset(nan, 0xff, ash_view_bytes(view));
        assert_ok(ash_plan_set_state(r->plan, s, NULL, nan, ash_view_bytes(view), &diag));
        free(nan);
    }
    walk(r, logits);
    assert_memory_equal(logits, clean, sizeof clean);
}

/* Two sequences at once, and one that goes back. */
static void sequences_are_independent(void **state) {
    struct room *r = *state;
    float clean[TOKENS][VOCABULARY], logits[2][VOCABULARY];
    int64_t next;
    ash_plan *twin;
    prepare(r, 64, 1, NULL);
    walk(r, clean);
    assert_ok(ash_plan_replicate(r->plan, &twin, &diag));
    ash_plan *plans[2] = {r->plan, twin};
    for (int64_t i = 0; i < 8; i++)
        for (int p = 0; p < 2; p++) assert_ok(step(plans[p], i, text[p ? 7 - i : i], &next, &diag));
    for (int64_t i = 8; i > 4; i--) assert_ok(step(r->plan, i, text[i], &next, &diag));
    assert_ok(step(r->plan, 5, text[5], &next, &diag)); /* rows 0 to 4 are those of the text */
    read_logits(r, logits[0], 1);
    assert_memory_equal(logits[0], clean[5], sizeof clean[5]);
    ash_plan_destroy(twin);
}

static int64_t fastest(struct room *r, int64_t longest, const ash_plan_options *options) {
    int64_t best = INT64_MAX, next;
    prepare(r, longest, 1, options);
    for (int64_t i = 0; i < 60; i++) assert_ok(step(r->plan, i, 1, &next, &diag));
    long before = r->memory.count;
    for (int round = 0; round < 400; round++) {
        int64_t start = ash_clock__now();
        assert_ok(step(r->plan, 60, 1, &next, &diag));
        int64_t took = ash_clock__now() - start;
        if (took < best) best = took;
    }
    assert_int_equal(r->memory.count, before); /* and nothing is allocated */
    return best;
}

/* Caches of 4096 rows take 6.3 MB: a copy of one would show. */
static void a_step_does_not_grow_with_the_cache(void **state) {
    struct room *r = *state;
    NOT_CUDA("no time is measured on the stand-in");
    for (int mode = 0; mode < ASH_MODE_COUNT; mode++) {
        ash_plan_options options = ash_plan_options_default();
        options.mode = (ash_mode)mode;
        options.streams = mode == ASH_MODE_MULTI_STREAM ? 2 : 1;
        options.threads = 1;
        int64_t small = fastest(r, 64, &options), large = fastest(r, 4096, &options);
        print_message("%s: %lld ns a step with 64 rows, %lld with 4096\n", ash_mode_text((ash_mode)mode),
                      (long long)small, (long long)large);
        assert_true(large < 2 * small);
    }
}

int main(void) {
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(steps_equal_one_pass),
        TEST(the_rest_of_the_cache_is_not_read),
        TEST(sequences_are_independent),
        TEST(a_step_does_not_grow_with_the_cache),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
