/* SPDX-License-Identifier: MIT */
/* Plans that allocate no bytes for parameters, or for constants: their weights lie in the caller's block or
 * nowhere. */
#include "plan_room.h"

#include "ashlar/builder.h"

static ash_diag diag;

enum { CELLS = 256, BYTES = CELLS * 4 };

static int setup(void **state) {
    return room_open(state, 1);
}

enum { PARAMETER = 1, CONSTANT = 2, PLAIN = 4, ALL = 7 };

/* y = x + (p + 1) + (c + 1) + q: a weight of a parameter, a weight of a constant, and a parameter that is
 * read where it lies. */
static ash_plan *prepare(struct room *r, unsigned parts, bool params, bool constants) {
    ash_plan_options options = {.memory = {.omit_params = params, .omit_constants = constants}};
    uint32_t added[3], count = 0;
    float data[CELLS];
    ash_plan *plan;
    maker *m = &r->m;
    maker_init(m, r->context);
    for (int i = 0; i < CELLS; i++) data[i] = (float)(i % 7);
    for (int kind = 0; kind < 2; kind++) {
        if (!(parts & (kind ? CONSTANT : PARAMETER))) continue;
        uint32_t from = maker_data(m, kind ? ASH_BUFFER_CONSTANT : ASH_BUFFER_PARAMETER, data, CELLS,
                                   kind ? NULL : "p");
        added[count] = maker_buffer(m, ASH_BUFFER_WEIGHT, CELLS, NULL);
        maker_step(m, "pack", kernel_add1, CELLS, 1, 2, LIST(added[count++], from));
    }
    m->p->prologue = m->p->steps.len;
    if (parts & PLAIN) added[count++] = maker_data(m, ASH_BUFFER_PARAMETER, data, CELLS, "q");
    uint32_t y = maker_buffer(m, ASH_BUFFER_INPUT, CELLS, "x");
    for (uint32_t i = 0; i < count; i++) {
        uint32_t sum = maker_buffer(m, ASH_BUFFER_LOCAL, CELLS, NULL);
        maker_step(m, "add", kernel_add, CELLS, 1, 3, LIST(sum, y, added[i]));
        y = sum;
    }
    uint32_t out = maker_buffer(m, ASH_BUFFER_OUTPUT, CELLS, "y");
    maker_step(m, "twice", kernel_twice, CELLS, 1, 2, LIST(out, y));
    maker_output(m, out, "y");
    assert_ok(maker_build(m, &options, &plan, &diag));
    return plan;
}

static ash_view *block(ash_plan *plan) {
    ash_storage *storage;
    ash_view *view;
    uint64_t size = ash_plan_weights_size(plan);
    ash_type type = {.dtype = ASH_U8, .rank = 1, .dims = {(int64_t)size}};
    assert_ok(
        ash_storage_create(ash_plan_device(plan), size, ash_plan_weights_align(plan), &storage, &diag));
    assert_ok(ash_view_create(storage, 0, size, &type, &view, &diag));
    ash_storage_release(storage);
    return view;
}

static ash_status run(ash_plan *plan, int seed, float y[CELLS]) {
    float x[CELLS];
    const ash_view *view;
    for (int i = 0; i < CELLS; i++) x[i] = (float)((i * 3 + seed) % 11) - 5;
    assert_ok(ash_plan_set_input(plan, 0, NULL, x, sizeof x, &diag));
    ash_status status = ash_plan_execute(plan, &diag);
    if (status != ASH_OK) return status;
    assert_ok(ash_plan_output(plan, 0, &view, &diag));
    assert_ok(ash_view_copy_out(view, y, BYTES, &diag));
    return ASH_OK;
}

static void refused(ash_plan *plan) {
    float y[CELLS];
    assert_status(run(plan, 0, y), ASH_ERROR_STATE);
    if (!strstr(diag.message, "no bytes for its weights")) fail_msg("%s", diag.message);
}

static void the_block_is_the_callers(void **state) {
    struct room *r = *state;
    float want[CELLS], have[CELLS];
    ash_plan *plain = prepare(r, ALL, false, false);
    for (int way = 1; way < 4; way++) {
        ash_plan *plan = prepare(r, ALL, way & 1, way & 2);
        uint64_t size = ash_plan_weights_size(plan), released;
        assert_true(size >= BYTES && size == ash_plan_weights_size(plain));
        assert_int_equal(ash_plan_describe(plan).prologue_runs, 0); /* it has nowhere to go yet */
        refused(plan);
        refused(plan);
        ash_view *first = block(plan), *second = block(plan);
        assert_ok(ash_plan_bind_weights_view(plan, first, &diag));
        for (int seed = 0; seed < 3; seed++) {
            assert_ok(run(plain, seed, want));
            assert_ok(run(plan, seed, have));
            assert_memory_equal(have, want, sizeof want);
        }
        uint64_t runs = ash_plan_describe(plan).prologue_runs;
        assert_true(runs > 0);
        /* They move, and cannot go nowhere. */
        assert_ok(ash_plan_bind_weights_view(plan, second, &diag));
        assert_status(ash_plan_bind_weights_view(plan, NULL, &diag), ASH_ERROR_STATE);
        assert_ok(run(plan, 2, have));
        assert_memory_equal(have, want, sizeof want);
        assert_int_equal(ash_plan_describe(plan).prologue_runs, runs);
        /* Released, they are made again in the block, or refused without one. */
        assert_ok(ash_plan_release_all(plan, &released, &diag));
        assert_ok(run(plan, 2, have));
        assert_memory_equal(have, want, sizeof want);
        assert_ok(ash_plan_release_all(plan, &released, &diag));
        assert_ok(ash_plan_bind_weights_view(plan, NULL, &diag));
        refused(plan);
        assert_ok(ash_plan_bind_weights_view(plan, first, &diag));
        assert_ok(run(plan, 2, have));
        assert_memory_equal(have, want, sizeof want);
        ash_plan_destroy(plan);
        ash_view_release(first);
        ash_view_release(second);
    }
    ash_plan_destroy(plain);
}

static void each_option_means_its_own(void **state) {
    struct room *r = *state;
    float y[CELLS];
    for (unsigned parts = 0; parts < 8; parts++)
        for (int way = 0; way < 4; way++) {
            ash_plan *plan = prepare(r, parts, way & 1, way & 2);
            /* what is read where it lies needs no bytes, where the device reaches it */
            bool of_parameter = parts & PARAMETER || (parts & PLAIN && apart_is_wished());
            bool of_constant = parts & CONSTANT;
            assert_int_equal(ash_plan_weights_size(plan) > 0, of_parameter || of_constant);
            if ((of_parameter && way & 1) || (of_constant && way & 2))
                refused(plan);
            else
                assert_ok(run(plan, 1, y));
            ash_plan_destroy(plan);
        }
}

static void parameters_and_replicas(void **state) {
    struct room *r = *state;
    float p[CELLS], want[CELLS], have[CELLS];
    ash_plan *twin, *other;
    ash_plan *plain = prepare(r, ALL, false, false);
    r->plan = prepare(r, ALL, true, true);
    for (int i = 0; i < CELLS; i++) p[i] = (float)(i % 4);
    assert_ok(ash_plan_set_parameter(plain, "p", NULL, p, sizeof p, &diag));
    assert_ok(ash_plan_set_parameter(r->plan, "p", NULL, p, sizeof p, &diag)); /* before there is a block */
    assert_ok(ash_plan_replicate(r->plan, &twin, &diag));
    refused(twin);
    refused(r->plan);
    ash_view *first = block(r->plan), *second = block(twin);
    assert_ok(ash_plan_bind_weights_view(r->plan, first, &diag));
    assert_ok(run(plain, 3, want));
    assert_ok(run(r->plan, 3, have));
    assert_memory_equal(have, want, sizeof want);
    refused(twin); /* a block of its own, */
    assert_ok(ash_plan_bind_weights_view(twin, second, &diag));
    assert_ok(run(twin, 3, have));
    assert_memory_equal(have, want, sizeof want);
    assert_ok(ash_plan_replicate(r->plan, &other, &diag)); /* or weights that are there */
    assert_ok(run(other, 3, have));
    assert_memory_equal(have, want, sizeof want);
    p[5] = 9;
    assert_ok(ash_plan_set_parameter(plain, "p", NULL, p, sizeof p, &diag));
    assert_ok(ash_plan_set_parameter(twin, "p", NULL, p, sizeof p, &diag));
    assert_ok(run(plain, 4, want));
    assert_ok(run(twin, 4, have));
    assert_memory_equal(have, want, sizeof want);
    /* those that a replica has stay its own: others need a block */
    assert_status(ash_plan_set_parameter(other, "p", NULL, p, sizeof p, &diag), ASH_ERROR_STATE);
    ash_plan_destroy(other);
    ash_plan_destroy(twin);
    ash_plan_destroy(plain);
    ash_view_release(first);
    ash_view_release(second);
}

/* In plans of graphs, whose prologue runs while they are prepared; in one call there is no place for it. */
static void prepare_leaves_it(void **state) {
    struct room *r = *state;
    static const float p[CELLS] = {1, 2, 3};
    float want[CELLS], have[CELLS];
    ash_type square = {.dtype = ASH_F32, .rank = 2, .dims = {16, 16}};
    ash_plan_options options = {.memory.omit_params = true};
    ash_graph *g;
    ash_plan *plain;
    assert_ok(ash_graph_create(r->context, "g", &g, &diag));
    ash_value x = ash_graph_input(g, "x", &square),
              w = ash_graph_parameter(g, "p", &square, p, sizeof p, ASH_DATA_COPY);
    ash_graph_output(g, "y", ash_matmul(g, x, ash_matmul(g, w, w)));
    assert_ok(ash_plan_prepare(r->context, g, NULL, &plain, &diag));
    assert_ok(ash_plan_prepare(r->context, g, &options, &r->plan, &diag));
    assert_true(ash_plan_describe(plain).prologue_runs > 0);
    assert_int_equal(ash_plan_describe(r->plan).prologue_runs, 0);
    refused(r->plan);
    ash_view *view = block(r->plan);
    assert_ok(ash_plan_bind_weights_view(r->plan, view, &diag));
    assert_ok(run(plain, 6, want));
    assert_ok(run(r->plan, 6, have));
    assert_memory_equal(have, want, sizeof want);
    ash_view_release(view);
    ash_plan_destroy(plain);
    ash_tensor *input, *output;
    assert_ok(ash_tensor_create(r->context, "x", &square, want, sizeof want, &input, &diag));
    ash_eager_call call = {
        .inputs = (const ash_tensor *[]){input}, .input_count = 1, .outputs = &output, .output_count = 1};
    assert_status(ash_eager(r->context, g, &options, &call, &diag), ASH_ERROR_STATE);
    ash_tensor_destroy(input);
    ash_graph_destroy(g);
}

int main(void) {
#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(the_block_is_the_callers),
        TEST(each_option_means_its_own),
        TEST(parameters_and_replicas),
        TEST(prepare_leaves_it),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
