/* SPDX-License-Identifier: MIT */
/* Attention whose scores are not stored, on the stand-in for the driver: with every check on, beside the
 * processor, the same bits in every mode, no bank conflicts; and the memory of plans for long sequences. */
#include "cuda_room.h"
#include "gpu_here.h"

static ash_diag diag;

/* Heads share keys and values by `shared`; with a mask of positions, or of what a sequence has. */
typedef struct shape {
    int64_t heads, shared, rows, keys, size;
    bool causal;
} shape;

static ash_value heads_of(ash_graph *g, const char *name, const shape *s, int64_t heads, int64_t length) {
    const int64_t per = s->heads / heads;
    ash_value x = ash_graph_input(g, name, &(ash_type){ASH_F32, 3, {length, heads, s->size}});
    x = ash_transpose(g, x, (int64_t[]){1, 0, 2});
    if (per == 1) return x;
    x = ash_reshape(g, x, (ash_dim[]){heads, 1, length, s->size}, 4);
    x = ash_broadcast_to(g, x, (ash_dim[]){heads, per, length, s->size}, 4);
    return ash_reshape(g, x, (ash_dim[]){s->heads, length, s->size}, 3);
}

static void build(ash_graph *g, const shape *s) {
    ash_value q = heads_of(g, "q", s, s->heads, s->rows), k = heads_of(g, "k", s, s->shared, s->keys),
              v = heads_of(g, "v", s, s->shared, s->keys);
    ash_value scores = ash_matmul(g, q, ash_transpose(g, k, (int64_t[]){0, 2, 1}));
    scores = ash_mul(g, scores, ash_scalar(g, ASH_F32, 1 / sqrt((double)s->size)));
    const ash_dim dims[] = {s->rows, s->keys};
    ash_value row = ash_iota(g, ASH_I64, dims, 2, 0), key = ash_iota(g, ASH_I64, dims, 2, 1);
    if (s->causal) scores = ash_select(g, ash_le(g, key, row), scores, ash_scalar(g, ASH_F32, -INFINITY));
    ash_value y = ash_matmul(g, ash_softmax(g, scores, 2), v);
    ash_graph_output(g, "y", ash_transpose(g, y, (int64_t[]){1, 0, 2}));
}

static ash_graph *new_graph(ash_context *context, const shape *s) {
    ash_graph *g;
    assert_ok(ash_graph_create(context, "attention", &g, &diag));
    build(g, s);
    assert_ok(ash_graph_status(g, &diag));
    return g;
}

static void modes_have_the_same_bits(void **state) {
    (void)state;
    static const int modes[] = {ASH_MODE_STREAM, ASH_MODE_GRAPH, ASH_MODE_MULTI_STREAM};
    static const shape shapes[] = {{2, 1, 1500, 1500, 16, true}, {1, 1, 2100, 2050, 12, false}};
    for (size_t i = 0; i < ASH_COUNT(shapes); i++) {
        ash_context *context;
        assert_ok(ash_context_create(NULL, &context, &diag));
        ash_graph *g = new_graph(context, &shapes[i]);
        cuda_results want, got[ASH_COUNT(modes)];
        assert_ok(cuda_room_run(context, g, NULL, ash_plan_options_default(), false, &want, &diag));
        for (size_t m = 0; m < ASH_COUNT(modes); m++) {
            ash_device *device;
            ptx_counters c;
            cuda_room_driver(m + 1);
            assert_ok(ash_device_open(context, "CUDA:0", &device, &diag));
            assert_ok(cuda_room_run(context, g, device, cuda_room_mode(modes[m]), false, &got[m], &diag));
            ptx_counters_read(NULL, &c);
            ash_device_close(device);
            assert_int_equal(c.launches, 2); /* one kernel, twice */
            assert_int_equal(c.shared_load.conflicts + c.shared_store.conflicts, 0);
            double error = cuda_room_error(&want, &got[m], NULL, NULL);
            print_message("%s: error %.1e, %.2f G instructions\n", ash_mode_text((ash_mode)modes[m]), error,
                          (double)c.lane_instructions * 1e-9);
            assert_true(error < 1e-5);
            assert_memory_equal(got[m].data[0], got[0].data[0], got[0].bytes[0]);
            assert_int_equal(ptx_live(), 0);
        }
        cuda_results_free(&want);
        for (size_t m = 0; m < ASH_COUNT(modes); m++) cuda_results_free(&got[m]);
        ash_graph_destroy(g);
        ash_context_destroy(context);
    }
}

/* 4096 positions: of 12 heads the scores would take 768 MiB. Nothing but the result is in memory. */
static void scores_lie_nowhere(void **state) {
    (void)state;
    for (int kind = 0; kind < 2; kind++) {
        ash_context *context;
        ash_plan_options options = ash_plan_options_default();
        ash_plan *plan;
        assert_ok(ash_context_create(NULL, &context, &diag));
        ash_graph *g = new_graph(context, &(shape){12, 12, 4096, 4096, 64, kind});
        assert_ok(ash_device_open(context, kind ? "CUDA:sm_90" : "CUDA:sm_80", &options.device, &diag));
        assert_ok(ash_plan_prepare(context, g, &options, &plan, &diag));
        assert_int_equal(ash_plan_op_count(plan), 1);
        assert_true(ash_plan_arena_size(plan) <= 4 * (uint64_t)(12 * 4096 * 64 * 4));
        ash_plan_destroy(plan);
        ash_device_close(options.device);
        ash_graph_destroy(g);
        ash_context_destroy(context);
    }
}

int main(void) {
    if (!gpu_is_compiled_for()) return GPU_SKIPPED;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(scores_lie_nowhere),
        cmocka_unit_test(modes_have_the_same_bits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
