/* SPDX-License-Identifier: MIT */
/* `ashlar train` on the digits of examples/digits: what it learns, what it writes, and that a run which was
 * interrupted or killed and resumed ends with the bytes of one that was not. */
#include "cli_fixture.h"

#include <math.h>

#include "ashlar/builder.h"
#include "ashlar/onnx.h"
#include "ashlar/plan.h"
#include "ashlar/tensor.h"
#include "base/base.h"
#include "onnx_bytes.h"

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

/* --- loops ---------------------------------------------------------------------------------------- */

enum { ROWS = 48, STEPS = 12, IN = 3, HIDDEN = 5, CLASSES = 2 };

static void put_attr(bytes *node, const char *name, int64_t number) {
    bytes attr = {.len = 0};
    put_text(&attr, 1, name);
    put_int(&attr, 3, number);
    put_int(&attr, 20, 2);
    put_message(node, 5, &attr);
}

static void put_floats(bytes *graph, const char *name, const int64_t *dims, size_t rank) {
    static float data[4 * HIDDEN * HIDDEN];
    size_t count = 1;
    for (size_t i = 0; i < rank; i++) count *= (size_t)dims[i];
    for (size_t i = 0; i < count; i++) data[i] = (float)((i * 29 + rank) % 17) / 16 - 0.5F;
    bytes tensor = make_tensor(name, 1, dims, rank, data, count * sizeof *data);
    put_message(graph, 5, &tensor);
}

/* x [n, m, 3] -> the last state of an LSTM over m steps -> logits [n, 2], as an ONNX file; with `codes`,
 * the bits of x are an output as well. */
static void write_lstm(const char *path, bool codes) {
    static const int64_t x[] = {-1, -2, IN}, w[] = {1, 4 * HIDDEN, IN}, r[] = {1, 4 * HIDDEN, HIDDEN},
                         b[] = {1, 8 * HIDDEN}, dense[] = {HIDDEN, CLASSES}, out[] = {-1, CLASSES},
                         one[] = {1};
    static const int64_t none[] = {0};
    bytes graph = {.len = 0}, turn = make_node("turn", "Transpose", "x", NULL, "xt"), perm = {.len = 0};
    put_text(&perm, 1, "perm");
    put_int(&perm, 8, 1), put_int(&perm, 8, 0), put_int(&perm, 8, 2);
    put_int(&perm, 20, 7);
    put_message(&turn, 5, &perm);
    bytes lstm = {.len = 0};
    static const char *const ins[] = {"xt", "w", "r", "b"}, *const outs[] = {"", "h"};
    for (size_t i = 0; i < ASH_COUNT(ins); i++) put_text(&lstm, 1, ins[i]);
    for (size_t i = 0; i < ASH_COUNT(outs); i++) put_text(&lstm, 2, outs[i]);
    put_text(&lstm, 3, "lstm");
    put_text(&lstm, 4, "LSTM");
    put_attr(&lstm, "hidden_size", HIDDEN);
    bytes flat = make_node("flat", "Squeeze", "h", "zero", "state"),
          last = make_node("dense", "MatMul", "state", "dense_w", "logits"),
          bits = make_node("codes", "BitCast", "x", NULL, "codes");
    put_attr(&bits, "to", 6);
    const bytes *const nodes[] = {&turn, &lstm, &flat, &last, &bits};
    for (size_t i = 0; i < ASH_COUNT(nodes) - !codes; i++) put_message(&graph, 1, nodes[i]);
    put_floats(&graph, "w", w, 3);
    put_floats(&graph, "r", r, 3);
    put_floats(&graph, "b", b, 2);
    put_floats(&graph, "dense_w", dense, 2);
    bytes zero = make_tensor("zero", 7, one, 1, none, sizeof none), in = make_info("x", x, 3),
          logits = make_info("logits", out, 2), more = make_info("codes", x, 0);
    put_message(&graph, 5, &zero);
    put_message(&graph, 11, &in);
    put_message(&graph, 12, &logits);
    if (codes) put_message(&graph, 12, &more);
    bytes model = make_model(&graph, 26);
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(model.at, 1, model.len, f), model.len);
    fclose(f);
}

static void write_npy(const char *name, const char *file, const ash_type *type, const void *data,
                      size_t size) {
    ash_tensor *tensor;
    assert_ok(ash_tensor_create(room.context, name, type, data, size, &tensor, &diag));
    assert_ok(ash_tensor_write(tensor, path_of(file), &diag));
    ash_tensor_destroy(tensor);
}

/* Sequences whose sum is positive, or not. False without Python, which makes an archive of two arrays. */
static bool write_sequences(void) {
    static float x[ROWS * STEPS * IN];
    static int64_t labels[ROWS];
    char command[256];
    for (int i = 0; i < ROWS; i++) {
        float sum = 0;
        for (int k = 0; k < STEPS * IN; k++)
            sum += x[i * STEPS * IN + k] = (float)((i * 53 + k * 31 + i * k) % 23) / 11 - 1;
        labels[i] = sum > 0;
    }
    const ash_type all = {ASH_F32, 3, {ROWS, STEPS, IN}}, row = {ASH_I64, 1, {ROWS}};
    write_npy("x", "x.npy", &all, x, sizeof x);
    write_npy("labels", "labels.npy", &row, labels, sizeof labels);
    snprintf(command, sizeof command, "cd %s && python3 -m zipfile -c data.npz x.npy labels.npy",
             room.folder);
    return shell(command) == 0;
}

/* Of the model that was written. */
static double held_out(void) {
    const char *at = strstr(room.out, "held out loss ");
    assert_non_null(at);
    return strtod(at + strlen("held out loss "), NULL);
}

#define TRAIN_LSTM "train %s/lstm.onnx --data %s/data.npz --batch 8 --hold-out 0.25 --no-cache "

/* A network over sequences of any length is trained, and written as one: it says of the examples held out
 * what was said in training, can be trained on, and takes other batches and lengths. */
static void loops_are_written(void **state) {
    (void)state;
    ash_graph *g;
    write_lstm(path_of("lstm.onnx"), false);
    if (!write_sequences()) skip();
    assert_int_equal(ashlar(TRAIN_LSTM "-o %s/trained.onnx --epochs 2 --lr 0.02"), 0);
    says("4 weights");
    says("epoch    2");
    const double first = held_out();
    assert_int_equal(
        ashlar("train %s/trained.onnx --data %s/data.npz --batch 8 --hold-out 0.25 --no-cache --epochs 1 "
               "--lr 1e-30 --weight-decay 0 -o %s/again.onnx"),
        0);
    assert_true(fabs(held_out() - first) < 1e-4 * first);
    for (int i = 0; i < 2; i++) {
        const ash_onnx_options wide = {.size = sizeof wide, .var_min = 1, .var_max = 64};
        assert_ok(
            ash_onnx_read(room.context, path_of(i ? "again.onnx" : "trained.onnx"), &wide, &g, &diag));
        assert_int_equal(ash_graph_var_count(g), 2); /* n and m */
        ash_graph_destroy(g);
    }
    assert_int_equal(ashlar("run %s/trained.onnx --no-cache --repeat 1 --var n=3 --var m=31"), 0);
    says("logits: f32[3, 2]");
}

/* What could not be written is refused before the first step, by the name of its node. */
static void unwritable_models_are_refused_at_once(void **state) {
    (void)state;
    write_lstm(path_of("lstm.onnx"), true);
    if (!write_sequences()) skip();
    assert_int_equal(ashlar(TRAIN_LSTM "-o %s/never.onnx --epochs 2"), 1);
    says("node codes (bitcast)");
    says("must be one that can be written");
    assert_false(said("epoch"));
    assert_int_not_equal(access(path_of("never.onnx"), F_OK), 0);
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
        cmocka_unit_test(loops_are_written),
        cmocka_unit_test(unwritable_models_are_refused_at_once),
        cmocka_unit_test(wrong_command_lines),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
