/* SPDX-License-Identifier: MIT */
/* Whole models on the stand-in for the driver, with every check on, beside the processor and onnxruntime:
 * SqueezeNet, MobileNet v2 and BERT mini, layer by layer as they were published, with made-up weights and
 * small images. Two seeds for the order of blocks and streams, each of which gives the same bits.
 *
 *     test_ptx_models --write FOLDER      writes the models and their inputs, for tools/nets_expected.py
 */
#include "ashlar/onnx.h"
#include "cuda_room.h"
#include "gpu_here.h"
#include "nets_run.h"

static ash_diag diag;

/* How far an output is from onnxruntime's, as a part of the largest number: of every so many numbers, which
 * are a line of tests/data/nets.txt ("NET; OUTPUT; STEP; numbers"). */
static double error_of(const char *name, const char *output, const float *got, size_t count) {
    static char line[1 << 14];
    char begin[128];
    double most = 0, error = 0;
    size_t at = 0, step = 0, length = (size_t)snprintf(begin, sizeof begin, "%s; %s; ", name, output);
    FILE *file = fopen(ASH_SOURCE_DIR "/tests/data/nets.txt", "r");
    assert_non_null(file);
    while (!step && fgets(line, sizeof line, file)) {
        if (strncmp(line, begin, length) != 0) continue;
        char *text = line + length, *end;
        step = strtoul(text, &end, 10);
        assert_true(step > 0 && *end == ';');
        for (text = end + 1; at < count; at += step, text = end) {
            const double want = strtod(text, &end);
            assert_true(end > text);
            most = fmax(most, fabs(want));
            error = fmax(error, isnan(got[at]) ? INFINITY : fabs(want - got[at]));
        }
        assert_string_equal(text, "\n"); /* and no number more */
    }
    fclose(file);
    if (!step) fail_msg("tests/data/nets.txt has no line \"%s\"", begin);
    return error / most;
}

static double error_beside_onnxruntime(const net_room *room, const cuda_results *got) {
    double worst = 0;
    for (size_t i = 0; i < got->n; i++) {
        const char *name;
        ash_graph_output_at(room->n.g, i, &name);
        worst = fmax(worst, error_of(room->name, name, got->data[i], got->bytes[i] / sizeof(float)));
    }
    return worst;
}

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
        double error = cuda_room_error(&want, &got[seed], &equal, &count),
               other = error_beside_onnxruntime(&room, &got[seed]);
        print_message("%s, %s, seed %u: %zu of %zu numbers equal, error %.1e, beside onnxruntime %.1e; "
                      "%.2f G instructions, %llu launches\n",
                      room.name, ash_mode_text(options.mode), seed + 1, equal, count, error, other,
                      (double)counters.lane_instructions * 1e-9, (unsigned long long)counters.launches);
        assert_true(error < 1e-5);
        assert_true(other < 1e-4);
        assert_int_equal(ptx_live(), 0);
    }
    for (size_t i = 0; i < want.n; i++) assert_memory_equal(got[0].data[i], got[1].data[i], want.bytes[i]);
    cuda_results_free(&want), cuda_results_free(&got[0]), cuda_results_free(&got[1]);
    net_close(&room);
}

/* FOLDER/NET.onnx, and FOLDER/NET.INPUT: an input's bytes. */
static void write_net(const char *folder, const net_row *row) {
    char path[1024];
    net_room room;
    ash_plan *plan;
    net_open(&room, row);
    snprintf(path, sizeof path, "%s/%s.onnx", folder, row->name);
    assert_ok(ash_onnx_write(room.n.g, path, NULL, &diag));
    assert_ok(ash_plan_prepare(room.context, room.n.g, NULL, &plan, &diag));
    assert_ok(cuda_room_fill(plan, &diag));
    for (size_t i = 0; i < ash_plan_input_count(plan); i++) {
        ash_view *view;
        const void *data;
        snprintf(path, sizeof path, "%s/%s.%s", folder, row->name, ash_plan_input_name(plan, i));
        FILE *file = fopen(path, "wb");
        assert_non_null(file);
        assert_ok(ash_plan_input(plan, i, &view, &diag));
        assert_ok(ash_view_data(view, &data, &diag));
        assert_int_equal(fwrite(data, 1, ash_view_bytes(view), file), ash_view_bytes(view));
        assert_int_equal(fclose(file), 0);
    }
    ash_plan_destroy(plan);
    net_close(&room);
}

int main(int argc, char **argv) {
    if (argc == 3 && strcmp(argv[1], "--write") == 0) {
        for (size_t i = 0; i < ASH_COUNT(nets); i++) write_net(argv[2], &nets[i]);
        return 0;
    }
    return gpu_is_compiled_for() ? nets_run(the_same) : GPU_SKIPPED;
}
