/* SPDX-License-Identifier: MIT */
/* Whole models on the stand-in for the driver, with every check on, beside the processor: SqueezeNet,
 * MobileNet v2 and BERT mini, layer by layer as they were published, with made-up weights and small
 * images. Two seeds for the order of blocks and streams, each of which gives the same bits. */
#include "code/llvm.h"
#include "cuda_room.h"
#include "nets.h"

static ash_diag diag;

/* --- both machines ---------------------------------------------------------------------------------- */

/* The largest difference, as a part of the largest number. */
static double error_of(const cuda_results *want, const cuda_results *got, size_t *equal, size_t *count) {
    double worst = 0;
    for (size_t i = 0; i < want->n; i++) {
        const float *a = want->data[i], *b = got->data[i];
        double most = 0, error = 0;
        assert_int_equal(want->bytes[i], got->bytes[i]);
        for (size_t k = 0; k < want->bytes[i] / 4; k++) {
            most = fmax(most, fabs(a[k]));
            error = fmax(error, isnan(b[k]) ? INFINITY : fabs(a[k] - b[k]));
            *equal += a[k] == b[k];
            ++*count;
        }
        worst = fmax(worst, error / most);
    }
    return worst;
}

static void check(void (*build)(net *n), const char *name) {
    ash_context *context;
    ash_device *device;
    net n = {.seed = 1, .side = 64, .length = 32};
    cuda_results want, got[2];
    assert_ok(ash_context_create(NULL, &context, &diag));
    assert_ok(ash_graph_create(context, name, &n.g, &diag));
    build(&n);
    assert_ok(ash_graph_status(n.g, &diag));
    assert_ok(cuda_room_run(context, n.g, NULL, ash_plan_options_default(), false, &want, &diag));
    for (unsigned seed = 0; seed < 2; seed++) {
        ptx_counters counters;
        size_t equal = 0, count = 0;
        cuda_room_driver(seed + 1);
        ash_plan_options options = cuda_room_mode(seed ? ASH_MODE_MULTI_STREAM : ASH_MODE_GRAPH);
        assert_ok(ash_device_open(context, "CUDA:0", &device, &diag));
        assert_ok(cuda_room_run(context, n.g, device, options, false, &got[seed], &diag));
        ptx_counters_read(NULL, &counters);
        ash_device_close(device);
        double error = error_of(&want, &got[seed], &equal, &count);
        print_message(
            "%s, %s, seed %u: %zu of %zu numbers equal, error %.1e; %.2f G instructions, %llu launches\n",
            name, ash_mode_text(options.mode), seed + 1, equal, count, error,
            (double)counters.lane_instructions * 1e-9, (unsigned long long)counters.launches);
        assert_true(error < 1e-5);
        assert_int_equal(ptx_live(), 0);
    }
    for (size_t i = 0; i < want.n; i++) assert_memory_equal(got[0].data[i], got[1].data[i], want.bytes[i]);
    cuda_results_free(&want), cuda_results_free(&got[0]), cuda_results_free(&got[1]);
    ash_graph_destroy(n.g);
    ash_context_destroy(context);
}

static void squeezenet_is_the_same(void **state) {
    (void)state;
    check(squeezenet, "SqueezeNet");
}

static void mobilenet_is_the_same(void **state) {
    (void)state;
    check(mobilenet, "MobileNet v2");
}

static void bert_mini_is_the_same(void **state) {
    (void)state;
    check(bert_mini, "BERT mini");
}

int main(void) {
    if (ash_llvm__init(ASH_TARGET_GPU, &diag) != ASH_OK) {
        fprintf(stderr, "SKIP: %s\n", diag.message);
        return 77;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(squeezenet_is_the_same),
        cmocka_unit_test(mobilenet_is_the_same),
        cmocka_unit_test(bert_mini_is_the_same),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
