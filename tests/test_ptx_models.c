/* SPDX-License-Identifier: MIT */
/* Whole models on the stand-in for the driver, with every check on, beside the processor: SqueezeNet,
 * MobileNet v2 and BERT mini, layer by layer as they were published, with made-up weights and small
 * images. Two seeds for the order of blocks and streams, each of which gives the same bits. */
#include "cuda_room.h"
#include "gpu_here.h"
#include "nets_run.h"

static ash_diag diag;

static void the_same(void **state) {
    net_room room;
    ash_device *device;
    cuda_results want, got[2];
    net_open(&room, *state);
    assert_ok(cuda_room_run(room.context, room.n.g, NULL, ash_plan_options_default(), false, &want, &diag));
    for (unsigned seed = 0; seed < 2; seed++) {
        ptx_counters counters;
        size_t equal, count;
        cuda_room_driver(seed + 1);
        ash_plan_options options = cuda_room_mode(seed ? ASH_MODE_MULTI_STREAM : ASH_MODE_GRAPH);
        assert_ok(ash_device_open(room.context, "CUDA:0", &device, &diag));
        assert_ok(cuda_room_run(room.context, room.n.g, device, options, false, &got[seed], &diag));
        ptx_counters_read(NULL, &counters);
        ash_device_close(device);
        double error = cuda_room_error(&want, &got[seed], &equal, &count);
        print_message(
            "%s, %s, seed %u: %zu of %zu numbers equal, error %.1e; %.2f G instructions, %llu launches\n",
            room.name, ash_mode_text(options.mode), seed + 1, equal, count, error,
            (double)counters.lane_instructions * 1e-9, (unsigned long long)counters.launches);
        assert_true(error < 1e-5);
        assert_int_equal(ptx_live(), 0);
    }
    for (size_t i = 0; i < want.n; i++) assert_memory_equal(got[0].data[i], got[1].data[i], want.bytes[i]);
    cuda_results_free(&want), cuda_results_free(&got[0]), cuda_results_free(&got[1]);
    net_close(&room);
}

int main(void) {
    return gpu_is_compiled_for() ? nets_run(the_same) : GPU_SKIPPED;
}
