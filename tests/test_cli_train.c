/* SPDX-License-Identifier: MIT */
/* `ashlar train` on the digits of examples/digits: what it learns, what it writes, and that a run which was
 * interrupted or killed and resumed ends with the bytes of one that was not. */
#include "cli_fixture.h"

#include <math.h>

#include "ashlar/builder.h"
#include "ashlar/onnx.h"
#include "ashlar/plan.h"
#include "ashlar/tensor.h"

static ash_diag diag;

#define DIGITS ASH_SOURCE_DIR "/examples/digits/digits"
#define TRAIN  "train " DIGITS ".onnx --data " DIGITS ".npz --hold-out 0.2 --cache %s/cache --threads 1 "

static int setup(void **state) {
    (void)state;
    make_folder();
    assert_ok(ash_context_create(NULL, &room.context, &diag));
    return 0;
}

/* The whole file, whose bytes the caller frees. */
static char *bytes_of(const char *name, size_t *size) {
    FILE *f = fopen(path_of(name), "rb");
    assert_non_null(f);
    assert_int_equal(fseek(f, 0, SEEK_END), 0);
    *size = (size_t)ftell(f);
    rewind(f);
    char *data = malloc(*size + 1);
    assert_int_equal(fread(data, 1, *size, f), *size);
    fclose(f);
    return data;
}

static void same_files(const char *a, const char *b) {
    size_t m, n;
    char *x = bytes_of(a, &m), *y = bytes_of(b, &n);
    assert_int_equal(m, n);
    assert_memory_equal(x, y, n);
    free(x);
    free(y);
}

/* The last number in front of "% right". */
static double right(void) {
    const char *at = room.out, *last = NULL;
    while ((at = strstr(at, "% right"))) last = at++;
    assert_non_null(last);
    while (last[-1] == ' ') last--;
    while (last[-1] != ' ') last--;
    return strtod(last, NULL);
}

/* The command of the README; the model that it writes says the same in a plan of all images at once. */
static void digits_are_learned(void **state) {
    (void)state;
    assert_int_equal(ashlar(TRAIN "-o %s/trained.onnx --epochs 20 --lr 2e-3 --schedule cosine "
                                  "--curve %s/curve.csv"),
                     0);
    says("1797 examples, 359 held out");
    says("weights of epoch");
    assert_true(right() >= 97);
    assert_int_equal(ashlar("run %s/trained.onnx --no-cache --repeat 1 --var batch=3"), 0);
    says("logits: f32[3, 10]");
    read_back("curve.csv");
    says("epoch,loss,held_out_loss,held_out_right,rate,seconds\n1,");
    says("\n20,");
    ash_graph *g;
    const ash_onnx_var all = {"batch", 1797, 1797};
    const ash_onnx_options options = {.size = sizeof options, .vars = &all, .n_vars = 1};
    assert_ok(ash_onnx_read(room.context, path_of("trained.onnx"), &options, &g, &diag));
    assert_int_equal(ash_graph_type(g, ash_graph_input_at(g, 0, NULL))->dims[0], 1797);
    ash_graph_destroy(g);
}

/* Mean losses of the first epochs, on the examples trained on and on the others, as PyTorch has them
 * (tools/digits_torch.py). */
static void losses_are_those_of_torch(void **state) {
    (void)state;
    static const double want[3][2] = {
        {1.71361434, 0.92293638}, {0.487918791, 0.322849602}, {0.204379725, 0.196079895}};
    assert_int_equal(ashlar(TRAIN "-o %s/torch.onnx --epochs 3 --curve %s/torch.csv"), 0);
    read_back("torch.csv");
    const char *line = room.out;
    for (unsigned i = 0; i < 3; i++) {
        unsigned epoch;
        double loss, held;
        line = strchr(line, '\n');
        assert_non_null(line);
        assert_int_equal(sscanf(++line, "%u,%lf,%lf", &epoch, &loss, &held), 3);
        assert_int_equal(epoch, i + 1);
        assert_true(fabs(loss - want[i][0]) < 1e-5 * want[i][0]);
        assert_true(fabs(held - want[i][1]) < 1e-5 * want[i][1]);
    }
}

/* As often as it takes to hit it under way: it starts in some tenths of a second, and runs for some
 * seconds, each time from where it was stopped, and a twentieth of a second longer. */
static void stopped_and_resumed_has_the_same_bytes(void **state) {
    (void)state;
    static const char *const signals[] = {"INT", "KILL"};
    assert_int_equal(ashlar(TRAIN "-o %s/a.onnx --epochs 24 --accumulate 3 --curve %s/a.csv"), 0);
    for (int i = 0; i < 2; i++) {
        bool stopped = false;
        for (int wait = 5; wait < 600; wait += 5) { /* hundredths of a second */
            char words[512], command[1024];
            snprintf(words, sizeof words,
                     TRAIN "-o %s/b.onnx --epochs 24 --accumulate 3 --curve %s/b.csv --resume", room.folder,
                     room.folder, room.folder);
            snprintf(command, sizeof command, "timeout --preserve-status -s %s %d.%02d %s %s 2>&1",
                     signals[i], wait / 100, wait % 100, ASH_CLI, words);
            const int status = shell(command);
            if (status == 0) break;
            if (!i && status == 130) continue; /* before it catches anything */
            assert_int_equal(status, i ? 137 : 1);
            stopped |= i ? said("epoch ") : said("interrupted; all is in");
        }
        if (!stopped) fail_msg("SIG%s came too early or too late each time", signals[i]);
        same_files("a.onnx.safetensors", "b.onnx.safetensors");
        same_files("a.onnx", "b.onnx");
        read_back("b.csv");
        says("\n1,");
        says("\n24,");
        assert_int_equal(unlink(path_of("b.onnx.safetensors")), 0);
    }
}

static void damaged_checkpoints_are_refused(void **state) {
    (void)state;
    assert_int_equal(ashlar(TRAIN "-o %s/d.onnx --epochs 1"), 0);
    assert_int_equal(ashlar(TRAIN "-o %s/d.onnx --epochs 2 --batch 16 --resume"), 1);
    says("was made with --seed 1 --batch 32");
    assert_int_equal(ashlar(TRAIN "-o %s/d.onnx --epochs 2 --optimizer sgd --resume"), 1);
    says("no state of the plan");
    FILE *f = fopen(path_of("d.onnx.safetensors"), "r+b");
    assert_non_null(f);
    assert_int_equal(fseek(f, -100, SEEK_END), 0);
    assert_int_equal(fputc('~', f), '~');
    fclose(f);
    assert_int_equal(ashlar(TRAIN "-o %s/d.onnx --epochs 2 --resume"), 1);
    says("damaged");
    says("at byte 4");
}

static void other_options(void **state) {
    (void)state;
    assert_int_equal(ashlar(TRAIN "-o %s/o.onnx --epochs 200 --lr 0.02 --patience 1 --curve %s/o.html"), 0);
    says("no better for 1 epochs: over");
    read_back("o.html");
    says("<svg");
    says("held out");
    assert_int_equal(ashlar(TRAIN
                            "-o %s/o.onnx --epochs 2 --optimizer sgd --momentum 0.9 --nesterov --lr 0.02 "
                            "--freeze 'conv*' --clip 1 --warmup 10 --schedule linear --mode graph"),
                     0);
    says(" 4 weights");
    assert_true(right() > 70);
    assert_int_equal(ashlar(TRAIN "-o %s/o.onnx --epochs 1 --lr 1e30 --optimizer sgd"), 1);
    says("the loss is");
    assert_int_equal(ashlar(TRAIN "-o %s/o.onnx --epochs 1 --freeze '*'"), 1);
    says("no weights");
    assert_int_equal(ashlar(TRAIN "-o %s/o.onnx --epochs 1 --batch 2000"), 1);
    says("less than one batch");
    assert_int_equal(ashlar(TRAIN "-o %s/o.onnx --labels images"), 1);
    says("and the model wants");
    assert_int_equal(ashlar(TRAIN "-o %s/o.onnx --labels nothing"), 1);
    says("nothing");
    assert_int_equal(ashlar(TRAIN "-o %s/missing/o.onnx --epochs 1"), 1);
    says("missing");
}

/* y = x w to y = 2 x, with another optimiser's formula and all examples; the labels are f64. */
static void squares(void **state) {
    (void)state;
    enum { ROWS = 64, IN = 3 };
    const ash_type type = {ASH_F32, 2, {8, IN}}, w = {ASH_F32, 2, {IN, IN}}, all = {ASH_F32, 2, {ROWS, IN}};
    const ash_type wide = {ASH_F64, 2, {ROWS, IN}};
    static float x[ROWS * IN];
    static double y[ROWS * IN];
    static const float zeros[IN * IN];
    ash_graph *g;
    ash_tensor *tensor;
    for (int i = 0; i < ROWS * IN; i++) x[i] = (float)(i * 7 % 11) / 5 - 1, y[i] = 2 * (double)x[i];
    assert_ok(ash_graph_create(room.context, "net", &g, &diag));
    ash_value weights = ash_graph_parameter(g, "w", &w, zeros, sizeof zeros, ASH_DATA_COPY);
    ash_graph_output(g, "out", ash_matmul(g, ash_graph_input(g, "x", &type), weights));
    assert_ok(ash_onnx_write(g, path_of("net.onnx"), NULL, &diag));
    ash_graph_destroy(g);
    assert_ok(ash_tensor_create(room.context, "x", &all, x, sizeof x, &tensor, &diag));
    assert_ok(ash_tensor_write(tensor, path_of("x.npy"), &diag));
    ash_tensor_destroy(tensor);
    assert_ok(ash_tensor_create(room.context, "y", &wide, y, sizeof y, &tensor, &diag));
    assert_ok(ash_tensor_write(tensor, path_of("y.npy"), &diag));
    ash_tensor_destroy(tensor);
    char command[512];
    snprintf(command, sizeof command, "cd %s && python3 -m zipfile -c data.npz x.npy y.npy", room.folder);
    if (shell(command) != 0) skip(); /* a zip archive without numpy's help */
    assert_int_equal(
        ashlar("train %s/net.onnx --data %s/data.npz -o %s/fit.onnx --loss mse --labels y --lr 0.1 "
               "--batch 8 --epochs 60 --optimizer adam --hold-out 0 --no-cache"),
        0);
    says("weights of the last epoch");
    const char *last = strstr(room.out, "epoch   60  loss ");
    assert_non_null(last);
    assert_true(strtod(last + 17, NULL) < 1e-4);
    assert_int_equal(
        ashlar("train %s/net.onnx --data %s/data.npz -o %s/fit.onnx --loss mse --labels y --batch 4"), 1);
    says("is not the batch of 4");
}

static void wrong_command_lines(void **state) {
    (void)state;
    assert_int_equal(ashlar("train"), 2);
    assert_int_equal(ashlar("train %s/net.onnx"), 2);
    says("--data");
    assert_int_equal(ashlar(TRAIN "-o %s/x.onnx --loss hope"), 2);
    says("cross_entropy, mse");
    assert_int_equal(ashlar(TRAIN "-o %s/x.onnx --lr -1"), 2);
    assert_int_equal(ashlar(TRAIN "-o %s/x.onnx --lr nan"), 2);
    assert_int_equal(ashlar(TRAIN "-o %s/x.onnx --batch 0"), 2);
    assert_int_equal(ashlar(TRAIN "-o %s/x.onnx --mode eager"), 2);
    assert_int_equal(ashlar("train --help"), 0);
    says("--accumulate");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(digits_are_learned),
        cmocka_unit_test(losses_are_those_of_torch),
        cmocka_unit_test(stopped_and_resumed_has_the_same_bytes),
        cmocka_unit_test(damaged_checkpoints_are_refused),
        cmocka_unit_test(other_options),
        cmocka_unit_test(squares),
        cmocka_unit_test(wrong_command_lines),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
