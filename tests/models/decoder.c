/* SPDX-License-Identifier: MIT */
/* Twenty steps of a decoder of some 25 million weights on the stand-in for the driver, with every
 * check on, in three modes and three orders of blocks and streams: the processor's tokens, its logits
 * within 1e-5 of the largest, and all modes the same bits. Minutes: `make test-models`. */
int example_main(void);
#define main example_main
#include "../../examples/decoder.c"
#undef main

#include "cuda_room.h"
#include "gpu_here.h"

static ash_diag diag;

enum { TOKENS = 20, PROMPT = 4, VOCABULARY = 4000 };

typedef struct walked {
    int64_t tokens[TOKENS];
    float logits[TOKENS][VOCABULARY];
} walked;

/* What it says when the first words are given. device: NULL is the processor. */
static void walk(ash_context *context, ash_device *device, ash_plan_options options, walked *out) {
    static const decoder d = {VOCABULARY, 512, 8, 6, 2048, 256, 1};
    static const int64_t prompt[PROMPT] = {17, 4, 2560, 99};
    ash_graph *g;
    ash_plan *plan;
    int64_t token = 0;
    assert_ok(ash_graph_create(context, "decoder", &g, &diag));
    decoder_build(&d, g);
    assert_ok(ash_graph_status(g, &diag));
    options.device = device;
    assert_ok(ash_plan_prepare(context, g, &options, &plan, &diag));
    for (int64_t i = 0; i < TOKENS; i++) {
        const ash_view *view;
        if (i < PROMPT) token = prompt[i];
        assert_ok(step(plan, i, token, &token, &diag));
        out->tokens[i] = token;
        assert_ok(ash_plan_output(plan, 0, &view, &diag));
        assert_ok(ash_view_copy_out(view, out->logits[i], sizeof out->logits[i], &diag));
    }
    ash_plan_destroy(plan);
    ash_graph_destroy(g);
}

static void twenty_steps(void **state) {
    (void)state;
    static walked want, got[ASH_MODE_COUNT];
    static const int modes[] = {ASH_MODE_STREAM, ASH_MODE_GRAPH, ASH_MODE_MULTI_STREAM};
    ash_context *context;
    assert_ok(ash_context_create(NULL, &context, &diag));
    walk(context, NULL, ash_plan_options_default(), &want);
    for (unsigned i = 0; i < 3; i++) {
        ash_device *device;
        ptx_counters counters;
        cuda_room_driver(i);
        assert_ok(ash_device_open(context, "CUDA:0", &device, &diag));
        walk(context, device, cuda_room_mode(modes[i]), &got[i]);
        ash_device_close(device);
        ptx_counters_read(NULL, &counters);
        double most = 0, error = 0;
        for (size_t t = 0; t < TOKENS; t++)
            for (size_t k = 0; k < VOCABULARY; k++) {
                most = fmax(most, fabs((double)want.logits[t][k]));
                error = fmax(error, fabs((double)want.logits[t][k] - (double)got[i].logits[t][k]));
            }
        print_message("%s, seed %u: error %.1e, %.2f G instructions, %llu launches\n",
                      ash_mode_text((ash_mode)modes[i]), i, error / most,
                      (double)counters.lane_instructions * 1e-9, (unsigned long long)counters.launches);
        assert_true(error < 1e-5 * most);
        assert_memory_equal(got[i].tokens, want.tokens, sizeof want.tokens);
        assert_memory_equal(&got[i], &got[0], sizeof got[0]);
        assert_int_equal(ptx_live(), 0);
    }
    ash_context_destroy(context);
}

int main(void) {
    if (!gpu_is_compiled_for()) return GPU_SKIPPED;
    const struct CMUnitTest tests[] = {cmocka_unit_test(twenty_steps)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
