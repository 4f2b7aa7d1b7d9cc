/* SPDX-License-Identifier: MIT */
/* Layout: lifetimes from accesses, views, in-place classes, homes, and what the checkers refuse. */
#include "programs.h"

#define ROOM_MORE                                                                                          \
    maker m;                                                                                               \
    ash_schedule schedule;                                                                                 \
    ash_layout layout;
#include "graph_room.h"

static ash_diag diag;

static int setup(void **state) {
    room_open(state, 3);
    struct room *r = *state;
    maker_init(&r->m, r->context);
    return 0;
}

static int leave(void **state) {
    struct room *r = *state;
    ash_layout__free(&r->layout);
    ash_schedule__free(&r->schedule);
    ash_program__free(r->m.p);
    return teardown(state);
}

static ash_status create(struct room *r, const ash_memory_options *options, unsigned threads,
                         const ash_value *keep, size_t keeps) {
    ash_schedule__free(&r->schedule);
    assert_ok(ash_schedule__create(r->m.a, r->m.p, 1, &r->schedule, &diag));
    ash_plan_options plan = {.memory = *options, .keep = keep, .keep_count = keeps};
    const ash_layout_job job = {.program = r->m.p,
                                .schedule = &r->schedule,
                                .options = &plan,
                                .threads = threads,
                                .in_place = true};
    return ash_layout__create(r->context, &job, &r->layout, &diag);
}

static void lay_out(struct room *r, ash_memory_mode mode, const ash_value *keep, size_t keeps) {
    ash_memory_options options = ash_memory_options_inference();
    options.mode = mode;
    assert_ok(create(r, &options, 3, keep, keeps));
}

#define PLACE(b)  r->layout.places[b]
#define STEP(...) maker_step(&r->m, "s", kernel_add1, 4, 1, __VA_ARGS__)
static void chain_of_lifetimes(void **state) {
    struct room *r = *state;
    uint32_t x = maker_buffer(&r->m, ASH_BUFFER_INPUT, 100, "x"),
             a = maker_buffer(&r->m, ASH_BUFFER_LOCAL, 100, NULL),
             b = maker_buffer(&r->m, ASH_BUFFER_LOCAL, 100, NULL),
             c = maker_buffer(&r->m, ASH_BUFFER_LOCAL, 100, NULL),
             y = maker_buffer(&r->m, ASH_BUFFER_OUTPUT, 100, "y");
    STEP(2, LIST(a, x));
    STEP(2, LIST(b, a));
    STEP(2, LIST(c, b));
    STEP(2, LIST(y, c));
    maker_output(&r->m, y, "y");
    lay_out(r, ASH_MEMORY_ARENA, NULL, 0);
    assert_int_equal(PLACE(x).begin, 0);
    assert_int_equal(PLACE(x).end, 10);
    assert_int_equal(PLACE(a).begin, 0);
    assert_int_equal(PLACE(a).end, 4);
    assert_int_equal(PLACE(b).begin, 2);
    assert_int_equal(PLACE(b).end, 6);
    assert_int_equal(PLACE(y).begin, 6);
    assert_int_equal(PLACE(y).end, 10);
    /* x and two others are live together at any time; 400 bytes are 448 in whole lines. */
    ash_memory_summary s = ash_memory_plan_summary(r->layout.main);
    assert_int_equal(s.size, 3 * 448);
    assert_int_equal(s.lower_bound, 3 * 448);
    assert_int_equal(s.unshared, 5 * 400);
    assert_int_equal(PLACE(a).offset, PLACE(c).offset);
    assert_true(r->layout.check.buffers == 5 && r->layout.replay.accesses == 8);
}

static void modes(void **state) {
    struct room *r = *state;
    uint32_t x = maker_buffer(&r->m, ASH_BUFFER_INPUT, 100, "x"),
             a = maker_buffer(&r->m, ASH_BUFFER_LOCAL, 100, NULL),
             b = maker_buffer(&r->m, ASH_BUFFER_LOCAL, 100, NULL),
             y = maker_buffer(&r->m, ASH_BUFFER_OUTPUT, 100, "y");
    STEP(2, LIST(a, x));
    STEP(2, LIST(b, a));
    STEP(2, LIST(y, b));
    maker_output(&r->m, y, "y");
    lay_out(r, ASH_MEMORY_DISABLED, NULL, 0);
    size_t arenas;
    ash_memory_plan_arenas(r->layout.main, &arenas);
    assert_int_equal(arenas, 4);
    ash_layout__free(&r->layout);
    ash_schedule__free(&r->schedule);
    lay_out(r, ASH_MEMORY_REMAP, NULL, 0);
    ash_memory_plan_arenas(r->layout.main, &arenas);
    assert_int_equal(arenas, 3);
    assert_int_equal(PLACE(a).arena, PLACE(y).arena);
}

static void views_follow_their_root(void **state) {
    struct room *r = *state;
    uint32_t x = maker_buffer(&r->m, ASH_BUFFER_INPUT, 100, "x"),
             a = maker_buffer(&r->m, ASH_BUFFER_LOCAL, 100, NULL), left = maker_view(&r->m, a, 0, 50),
             right = maker_view(&r->m, a, 50, 50), y = maker_buffer(&r->m, ASH_BUFFER_OUTPUT, 100, "y");
    STEP(2, LIST(left, x));
    STEP(2, LIST(right, x));
    STEP(2, LIST(y, a));
    maker_output(&r->m, y, "y");
    lay_out(r, ASH_MEMORY_ARENA, NULL, 0);
    assert_int_equal(PLACE(a).begin, 0);
    assert_int_equal(PLACE(a).end, 6);
    assert_int_equal(PLACE(left).root, a);
    assert_int_equal(PLACE(left).offset, PLACE(a).offset);
    assert_int_equal(PLACE(right).offset, PLACE(a).offset + 200);
    assert_int_equal(PLACE(right).home, ASH_HOME_MAIN);
}

/* x -> a -> b (in place of a) -> y (in place of b): one place for all three. */
static void results_take_over_dying_operands(void **state) {
    struct room *r = *state;
    uint32_t x = maker_buffer(&r->m, ASH_BUFFER_INPUT, 64, "x"),
             a = maker_buffer(&r->m, ASH_BUFFER_LOCAL, 64, NULL),
             b = maker_buffer(&r->m, ASH_BUFFER_LOCAL, 64, NULL),
             y = maker_buffer(&r->m, ASH_BUFFER_OUTPUT, 64, "y");
    STEP(2, LIST(a, x))->inplace = x; /* an input is not taken over */
    STEP(2, LIST(b, a))->inplace = a;
    STEP(2, LIST(y, b))->inplace = b;
    maker_output(&r->m, y, "y");
    lay_out(r, ASH_MEMORY_ARENA, NULL, 0);
    assert_int_equal(PLACE(a).root, a);
    assert_int_equal(PLACE(b).root, a);
    assert_int_equal(PLACE(y).root, a);
    assert_int_equal(PLACE(y).offset, PLACE(a).offset);
    assert_int_equal(PLACE(a).end, 8);
    assert_int_equal(r->layout.inplace, 2 * 256);
    assert_int_equal(ash_memory_plan_summary(r->layout.main).size, 2 * 256);
}

static void no_takeover_of_what_is_needed(void **state) {
    struct room *r = *state;
    uint32_t x = maker_buffer(&r->m, ASH_BUFFER_INPUT, 64, "x"),
             a = maker_buffer(&r->m, ASH_BUFFER_LOCAL, 64, NULL),
             b = maker_buffer(&r->m, ASH_BUFFER_LOCAL, 64, NULL),
             c = maker_buffer(&r->m, ASH_BUFFER_LOCAL, 64, NULL),
             d = maker_buffer(&r->m, ASH_BUFFER_LOCAL, 32, NULL),
             e = maker_buffer(&r->m, ASH_BUFFER_LOCAL, 64, NULL), part = maker_view(&r->m, c, 0, 64),
             y = maker_buffer(&r->m, ASH_BUFFER_OUTPUT, 64, "y");
    STEP(2, LIST(a, x));
    STEP(2, LIST(b, a))->inplace = a;       /* a is read later */
    STEP(3, LIST(c, b, a))->inplace = b;    /* b dies: taken */
    STEP(2, LIST(d, a))->inplace = a;       /* another size */
    STEP(3, LIST(e, c, part))->inplace = c; /* read through a view as well */
    STEP(3, LIST(y, e, d))->inplace = e;
    maker_output(&r->m, y, "y");
    maker_output(&r->m, e, "e"); /* read by the caller */
    lay_out(r, ASH_MEMORY_ARENA, NULL, 0);
    assert_int_equal(PLACE(b).root, b);
    assert_int_equal(PLACE(c).root, b);
    assert_int_equal(PLACE(part).root, b);
    assert_int_equal(PLACE(d).root, d);
    assert_int_equal(PLACE(e).root, e);
    assert_int_equal(PLACE(y).root, y);
}

static void kept_values_live_to_the_end(void **state) {
    struct room *r = *state;
    uint32_t x = maker_buffer(&r->m, ASH_BUFFER_INPUT, 64, "x"),
             a = maker_buffer(&r->m, ASH_BUFFER_LOCAL, 64, NULL),
             b = maker_buffer(&r->m, ASH_BUFFER_LOCAL, 64, NULL),
             y = maker_buffer(&r->m, ASH_BUFFER_OUTPUT, 64, "y");
    STEP(2, LIST(a, x));
    STEP(2, LIST(b, a))->inplace = a;
    STEP(2, LIST(y, b));
    maker_output(&r->m, y, "y");
    ash_value keep = r->m.p->buffers.at[a].origin;
    lay_out(r, ASH_MEMORY_ARENA, &keep, 1);
    assert_int_equal(PLACE(b).root, b);
    assert_int_equal(PLACE(a).end, 8);
}

static void scratch_is_for_all_workers(void **state) {
    struct room *r = *state;
    uint32_t x = maker_buffer(&r->m, ASH_BUFFER_INPUT, 64, "x"),
             s = maker_buffer(&r->m, ASH_BUFFER_SCRATCH, 64, NULL),
             y = maker_buffer(&r->m, ASH_BUFFER_OUTPUT, 64, "y");
    maker_step(&r->m, "s", kernel_add1, 4, 2, 3, LIST(y, s, x));
    maker_output(&r->m, y, "y");
    lay_out(r, ASH_MEMORY_ARENA, NULL, 0);
    assert_int_equal(PLACE(s).bytes, 3 * 256);
    assert_int_equal(PLACE(s).begin, 0);
    assert_int_equal(PLACE(s).end, 2);
}

static void homes(void **state) {
    struct room *r = *state;
    const float data[16] = {0};
    uint32_t c = maker_data(&r->m, ASH_BUFFER_CONSTANT, data, 16, NULL),
             off = maker_data(&r->m, ASH_BUFFER_CONSTANT, data, 15, NULL),
             early = maker_data(&r->m, ASH_BUFFER_CONSTANT, data, 15, NULL),
             w = maker_buffer(&r->m, ASH_BUFFER_WEIGHT, 16, NULL),
             t = maker_buffer(&r->m, ASH_BUFFER_STAGING, 16, NULL),
             x = maker_buffer(&r->m, ASH_BUFFER_INPUT, 16, "x"),
             y = maker_buffer(&r->m, ASH_BUFFER_OUTPUT, 16, "y"),
             unused = maker_buffer(&r->m, ASH_BUFFER_LOCAL, 9, NULL);
    /* Data that does not lie at a multiple of what kernels need is copied: to the weights, or for the
     * prologue alone. */
    for (int i = 0; i < 2; i++) {
        ash_blob *blob = r->m.p->buffers.at[i ? off : early].blob;
        r->m.p->buffers.at[i ? off : early].align = 64;
        blob->data = (const char *)blob->data + 4;
    }
    STEP(2, LIST(t, c));
    STEP(3, LIST(w, t, early));
    r->m.p->prologue = 2;
    maker_step(&r->m, "s", kernel_add, 4, 1, 4, LIST(y, x, w, off));
    maker_output(&r->m, y, "y");
    lay_out(r, ASH_MEMORY_ARENA, NULL, 0);
    assert_int_equal(PLACE(c).home, ASH_HOME_BLOB);
    assert_int_equal(PLACE(off).home, ASH_HOME_WEIGHTS);
    assert_int_equal(PLACE(early).home, ASH_HOME_STAGING);
    assert_int_equal(PLACE(w).home, ASH_HOME_WEIGHTS);
    assert_int_equal(PLACE(t).home, ASH_HOME_STAGING);
    assert_int_equal(PLACE(x).home, ASH_HOME_MAIN);
    assert_int_equal(PLACE(unused).home, ASH_HOME_NONE);
    assert_int_equal(r->layout.weights_size[0], 128);
    assert_int_equal(r->layout.staging_size[0], 128);
    for (int i = 0; i < 2; i++) {
        ash_blob *blob = r->m.p->buffers.at[i ? off : early].blob;
        blob->data = (const char *)blob->data - 4;
    }
}

static void inputs_may_be_left_to_the_caller(void **state) {
    struct room *r = *state;
    uint32_t x = maker_buffer(&r->m, ASH_BUFFER_INPUT, 64, "x"), v = maker_view(&r->m, x, 8, 8),
             y = maker_buffer(&r->m, ASH_BUFFER_OUTPUT, 64, "y");
    STEP(3, LIST(y, x, v));
    maker_output(&r->m, y, "y");
    ash_memory_options options = ash_memory_options_inference();
    options.omit_inputs = true;
    assert_ok(create(r, &options, 1, NULL, 0));
    assert_int_equal(PLACE(x).home, ASH_HOME_CALLER);
    assert_int_equal(PLACE(v).home, ASH_HOME_CALLER);
    assert_int_equal(PLACE(v).offset, 32);
    assert_int_equal(ash_memory_plan_summary(r->layout.main).size, 256);
}

/* A step that reads what no step has written is a defect of the program, and the replay finds it. */
static void reads_without_a_writer_are_found(void **state) {
    struct room *r = *state;
    uint32_t x = maker_buffer(&r->m, ASH_BUFFER_INPUT, 64, "x"),
             a = maker_buffer(&r->m, ASH_BUFFER_LOCAL, 64, NULL),
             y = maker_buffer(&r->m, ASH_BUFFER_OUTPUT, 64, "y");
    ash_step *half = STEP(2, LIST(a, x));
    ((ash_access *)half->accesses)[0].end = 128; /* writes a half, */
    STEP(2, LIST(y, a));                         /* and all of it is read */
    maker_output(&r->m, y, "y");
    ash_memory_options options = ash_memory_options_inference();
    assert_status(create(r, &options, 1, NULL, 0), ASH_ERROR_INTERNAL);
}

static void a_budget_is_met_or_refused(void **state) {
    struct room *r = *state;
    uint32_t x = maker_buffer(&r->m, ASH_BUFFER_INPUT, 64, "x"),
             y = maker_buffer(&r->m, ASH_BUFFER_OUTPUT, 64, "y");
    STEP(2, LIST(y, x));
    maker_output(&r->m, y, "y");
    ash_memory_options options = ash_memory_options_inference();
    options.capacity = 511;
    assert_status(create(r, &options, 1, NULL, 0), ASH_ERROR_BUDGET);
    options.capacity = 512;
    assert_ok(create(r, &options, 1, NULL, 0));
}

static void an_empty_program(void **state) {
    struct room *r = *state;
    lay_out(r, ASH_MEMORY_ARENA, NULL, 0);
    assert_int_equal(ash_memory_plan_summary(r->layout.main).size, 0);
}

int main(void) {
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, leave)
    const struct CMUnitTest tests[] = {
        TEST(chain_of_lifetimes),
        TEST(modes),
        TEST(views_follow_their_root),
        TEST(results_take_over_dying_operands),
        TEST(no_takeover_of_what_is_needed),
        TEST(kept_values_live_to_the_end),
        TEST(scratch_is_for_all_workers),
        TEST(homes),
        TEST(inputs_may_be_left_to_the_caller),
        TEST(reads_without_a_writer_are_found),
        TEST(a_budget_is_met_or_refused),
        TEST(an_empty_program),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
