/* SPDX-License-Identifier: MIT */
/* The command line, as a user meets it: exit statuses, what is printed, files in and out. */
#include "cli_fixture.h"
#include "gpu_here.h"
#include "open_model.h"

#include <math.h>
#include <sys/stat.h>

#include "ashlar/builder.h"
#include "ashlar/onnx.h"
#include "ashlar/plan.h"
#include "ashlar/version.h"

static ash_diag diag;

enum { ROWS = 3, COLUMNS = 12 };

static void write_tensor(const char *name, const char *file, ash_dtype dtype, int64_t rows,
                         const void *data) {
    ash_type type = {.dtype = dtype, .rank = 2, .dims = {rows, COLUMNS}};
    ash_tensor *tensor;
    assert_ok(ash_tensor_create(room.context, name, &type, data,
                                (size_t)rows * COLUMNS * ash_dtype_size(dtype), &tensor, &diag));
    assert_ok(ash_tensor_write(tensor, path_of(file), &diag));
    ash_tensor_destroy(tensor);
}

/* y = softmax(x * 2), and data to check it with. */
static int setup(void **state) {
    (void)state;
    make_folder();
    assert_ok(ash_context_create(NULL, &room.context, &diag));
    ash_graph *g;
    assert_ok(ash_graph_create(room.context, "net", &g, &diag));
    ash_type type = {.dtype = ASH_F32, .rank = 2, .dims = {ROWS, COLUMNS}};
    ash_value x = ash_graph_input(g, "x", &type);
    ash_graph_output(g, "y", ash_softmax(g, ash_mul(g, x, ash_scalar(g, ASH_F32, 2)), -1));
    assert_ok(ash_onnx_write(g, path_of("model.onnx"), NULL, &diag));
    ash_graph_destroy(g);
    float in[ROWS * COLUMNS], out[ROWS * COLUMNS];
    for (int r = 0; r < ROWS; r++) {
        double sum = 0;
        for (int c = 0; c < COLUMNS; c++) {
            in[r * COLUMNS + c] = (float)((r * 7 + c * 5) % 11) / 4;
            sum += exp(2 * (double)in[r * COLUMNS + c]);
        }
        for (int c = 0; c < COLUMNS; c++)
            out[r * COLUMNS + c] = (float)(exp(2 * (double)in[r * COLUMNS + c]) / sum);
    }
    assert_int_equal(mkdir(path_of("test_data_set_0"), 0777), 0);
    write_tensor("x", "test_data_set_0/input_0.pb", ASH_F32, ROWS, in);
    write_tensor("y", "test_data_set_0/output_0.pb", ASH_F32, ROWS, out);
    write_tensor("x", "x.npy", ASH_F32, ROWS, in);
    write_tensor("x", "short.npy", ASH_F32, ROWS - 1, in);
    write_tensor("x", "ints.npy", ASH_I32, ROWS, in);
    return 0;
}

static void help(void **state) {
    (void)state;
    assert_int_equal(ashlar(""), 2);
    assert_int_equal(ashlar("--help"), 0);
    says("inspect");
    static const char *const commands[] = {"run", "plan", "profile", "bench", "inspect"};
    for (size_t i = 0; i < 5; i++) {
        char words[64];
        snprintf(words, sizeof words, "%s --help", commands[i]);
        assert_int_equal(ashlar(words), 0);
        says("usage: ashlar");
        says("--threads");
    }
}

static void wrong_command_lines(void **state) {
    (void)state;
    assert_int_equal(ashlar("frobnicate"), 2);
    says("frobnicate");
    assert_int_equal(ashlar("run"), 2);
    assert_int_equal(ashlar("run --colour %s/model.onnx"), 2);
    says("--colour");
    assert_int_equal(ashlar("run %s/model.onnx --threads"), 2);
    assert_int_equal(ashlar("run %s/model.onnx --threads many"), 2);
    assert_int_equal(ashlar("run %s/model.onnx --planner hope"), 2);
    assert_int_equal(ashlar("run %s/model.onnx --mode sideways"), 2);
    assert_int_equal(ashlar("run %s/model.onnx --mode multi_stream"), 2);
    assert_int_equal(ashlar("run %s/model.onnx --mode stream=2"), 2);
    assert_int_equal(ashlar("run %s/model.onnx --max-memory lots"), 2);
    assert_int_equal(ashlar("inspect graph"), 2);
    assert_int_equal(ashlar("bench"), 2);
}

static void run(void **state) {
    (void)state;
    assert_int_equal(ashlar("run %s/model.onnx --cache %s/cache --repeat 2"), 0);
    says("latency");
    says("lower bound");
    says("y: f32[3, 12]");
    assert_int_equal(ashlar("run %s/model.onnx --cache=%s/cache --repeat 2 --threads 1 --planner disabled"),
                     0);
    says("1 thread");
    says(" 0 compiled");
}

static void check(void **state) {
    (void)state;
    for (int i = 0; i < 4; i++) {
        static const char *const ways[] = {"", "--no-fuse", "--no-optimize --poison", "--planner remap"};
        char words[128];
        snprintf(words, sizeof words, "run --check %%s --no-cache --repeat 1 %s", ways[i]);
        assert_int_equal(ashlar(words), 0);
        says("agrees");
    }
    static const char *const modes[] = {"stream", "graph", "eager", "multi_stream=2"};
    for (int i = 0; i < 4; i++) {
        char words[128];
        snprintf(words, sizeof words, "run --check %%s --no-cache --repeat 1 --reference --mode %s",
                 modes[i]);
        assert_int_equal(ashlar(words), 0);
        says("output y f32[3, 12]: agrees");
        says("output y agrees with the reference");
        says("lower bound");
    }
    float wrong[ROWS * COLUMNS] = {0};
    write_tensor("y", "test_data_set_0/output_0.pb", ASH_F32, ROWS, wrong);
    assert_int_equal(ashlar("run --check %s --no-cache"), 1);
    says("DIFFERS");
    write_tensor("y", "test_data_set_0/output_0.pb", ASH_F32, ROWS - 1, wrong);
    assert_int_equal(ashlar("run --check %s --no-cache"), 1);
    says("expected f32[2, 12]");
    write_tensor("y", "test_data_set_0/output_0.pb", ASH_I32, ROWS, wrong);
    assert_int_equal(ashlar("run --check %s --no-cache"), 1);
    says("expected i32[3, 12]");
    assert_int_equal(unlink(path_of("test_data_set_0/output_0.pb")), 0);
    assert_int_equal(ashlar("run --check %s --no-cache"), 1);
    says("no expected outputs");
    assert_int_equal(unlink(path_of("test_data_set_0/input_0.pb")), 0);
    assert_int_equal(ashlar("run --check %s --no-cache"), 1);
    says("0 inputs");
}

/* Sizes of dynamic dims come from the inputs of each set. */
static void check_dynamic_dims(void **state) {
    (void)state;
    enum { SETS = 2 };
    float in[ROWS * COLUMNS], out[ROWS * COLUMNS];
    ash_graph *g;
    assert_int_equal(mkdir(path_of("dynamic"), 0777), 0);
    assert_ok(ash_graph_create(room.context, "net", &g, &diag));
    ash_type type = {.dtype = ASH_F32, .rank = 2, .dims = {ash_graph_var(g, "rows", 1, 64), COLUMNS}};
    ash_graph_output(g, "y", ash_neg(g, ash_graph_input(g, "x", &type)));
    assert_ok(ash_onnx_write(g, path_of("dynamic/model.onnx"), NULL, &diag));
    ash_graph_destroy(g);
    for (int i = 0; i < ROWS * COLUMNS; i++) in[i] = (float)i, out[i] = -(float)i;
    for (int set = 0; set < SETS; set++) {
        char name[64];
        snprintf(name, sizeof name, "dynamic/test_data_set_%d", set);
        assert_int_equal(mkdir(path_of(name), 0777), 0);
        snprintf(name, sizeof name, "dynamic/test_data_set_%d/input_0.pb", set);
        write_tensor("x", name, ASH_F32, ROWS - set, in);
        snprintf(name, sizeof name, "dynamic/test_data_set_%d/output_0.pb", set);
        write_tensor("y", name, ASH_F32, ROWS - set, out);
    }
    assert_int_equal(ashlar("run --check %s/dynamic --no-cache --repeat 1"), 0);
    says("output y f32[3, 12]: agrees");
    says("output y f32[2, 12]: agrees");
    assert_int_equal(ashlar("run --check %s/dynamic --no-cache --repeat 1 --mode eager"), 0);
    says("output y f32[2, 12]: agrees");
    assert_int_equal(ashlar("run %s/dynamic/model.onnx --no-cache --repeat 1 --input x=%s/short.npy"), 0);
    says("y: f32[2, 12]");
    assert_null(strstr(room.out, "nothing says"));
    assert_int_equal(ashlar("run --check %s/dynamic --no-cache --repeat 1 --var rows=2"), 1);
    says("f32[3, 12]");
    /* A range stays one, and each set says its value. */
    for (int eager = 0; eager < 2; eager++) {
        assert_int_equal(
            ashlar(eager ? "run --check %s/dynamic --no-cache --repeat 1 --var rows=1..9 --mode eager"
                         : "run --check %s/dynamic --no-cache --repeat 1 --var rows=1..9 --reference"),
            0);
        says("output y f32[3, 12]: agrees");
        says("output y f32[2, 12]: agrees");
    }
    assert_int_equal(
        ashlar("run %s/dynamic/model.onnx --no-cache --repeat 1 --var rows=1..9 --input x=%s/short.npy"),
        0);
    says("y: f32[2, 12]");
    assert_int_equal(
        ashlar(
            "profile %s/dynamic/model.onnx --no-cache --repeat 1 --var rows=1..9 --input x=%s/short.npy"),
        0);
    says("bytes count the work at rows=9 (now ");
    assert_int_equal(ashlar("profile %s/dynamic/model.onnx --no-cache --repeat 1 --var rows=5"), 0);
    assert_null(strstr(room.out, "count the work at"));
    assert_int_equal(ashlar("run --check %s/dynamic --no-cache --repeat 1 --var rows=4..9"), 1);
    says("f32[3, 12]");
    /* Of what is not said there is one element, and the output says so. */
    assert_int_equal(ashlar("run %s/dynamic/model.onnx --no-cache --repeat 1"), 0);
    says("y: f32[1, 12]");
    says("nothing says those of rows, and they are 1");
    assert_int_equal(ashlar("run %s/dynamic/model.onnx --no-cache --repeat 1 --var rows=5"), 0);
    says("y: f32[5, 12]");
    assert_null(strstr(room.out, "nothing says"));
}

/* m [b, past + seq]: what --var keeps variable stays so, whatever file is given for the expression. */
static void expressions_of_variables(void **state) {
    (void)state;
    static const int64_t shape[] = {1, 9};
    const ash_type type = {.dtype = ASH_F32, .rank = 2, .dims = {shape[0], shape[1]}};
    float ones[9] = {1, 1, 1, 1, 1, 1, 1, 1, 1};
    bytes model = cache_model();
    ash_tensor *tensor;
    FILE *f = fopen(path_of("cache.onnx"), "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(model.at, 1, model.len, f), model.len);
    fclose(f);
    assert_ok(ash_tensor_create(room.context, "m", &type, ones, sizeof ones, &tensor, &diag));
    assert_ok(ash_tensor_write(tensor, path_of("m.npy"), &diag));
    ash_tensor_destroy(tensor);
    assert_int_equal(ashlar("inspect graph %s/cache.onnx --var past=0..8 --input m=%s/m.npy"), 0);
    says("f32[1, (past + 1)] = input \"m\"");
    assert_int_equal(ashlar("run %s/cache.onnx --no-cache --repeat 1 --var past=0..8 --input m=%s/m.npy"),
                     0);
    assert_int_equal(ashlar("run %s/cache.onnx --no-cache --repeat 1 --var past=4 --input m=%s/m.npy"), 0);
    says("y: f32[1, 9]"); /* seq is 5 */
}

static void files_in_and_out(void **state) {
    (void)state;
    assert_int_equal(
        ashlar("run %s/model.onnx --no-cache --repeat 1 --input x=%s/x.npy --output-dir %s/out"), 0);
    ash_tensor *y;
    assert_ok(ash_tensor_read(room.context, path_of("out/output_0.npy"), &y, &diag));
    const float *data = ash_tensor_data(y);
    double sum = 0;
    for (int c = 0; c < COLUMNS; c++) sum += (double)data[c];
    assert_true(fabs(sum - 1) < 1e-5);
    ash_tensor_destroy(y);
    assert_int_equal(ashlar("run %s/model.onnx --no-cache --input x=%s/short.npy"), 1);
    says("f32[3, 12]");
    says("f32[2, 12]");
    assert_int_equal(ashlar("run %s/model.onnx --no-cache --input x=%s/ints.npy"), 1);
    assert_int_equal(ashlar("run %s/model.onnx --no-cache --input q=%s/x.npy"), 1);
    says("no input \"q\"");
    assert_int_equal(ashlar("run %s/model.onnx --no-cache --input x=%s/none.npy"), 1);
}

/* Mode eager has no plan that lasts: what runs a model runs, what looks at a plan says why not. */
static void mode_eager(void **state) {
    (void)state;
    assert_int_equal(ashlar("run %s/model.onnx --mode eager --no-cache --repeat 2 --threads 1 --poison "
                            "--input x=%s/x.npy --output-dir %s/eager"),
                     0);
    says("eager: prepared and dropped at every call");
    says("1 thread,");
    says("y: f32[3, 12]");
    assert_int_equal(ashlar("run %s/model.onnx --no-cache --input x=%s/x.npy --output-dir %s/stream"), 0);
    assert_int_equal(ashlar("run %s/model.onnx --mode eager --no-cache --seed 7 --output-dir %s/eager7"),
                     0);
    assert_int_equal(ashlar("run %s/model.onnx --no-cache --seed 7 --output-dir %s/stream7"), 0);
    char command[512];
    snprintf(command, sizeof command,
             "cd %s && cmp eager/output_0.npy stream/output_0.npy && "
             "cmp eager7/output_0.npy stream7/output_0.npy",
             room.folder);
    assert_int_equal(system(command), 0);
    assert_int_equal(ashlar("run %s/model.onnx --mode eager --no-cache --input x=%s/short.npy"), 1);
    says("f32[2, 12]");
    assert_int_equal(ashlar("run %s/model.onnx --mode eager --no-cache --max-memory 100"), 1);
    says("budget");
    assert_int_equal(ashlar("bench %s/model.onnx --mode eager --cache %s/cache --repeat 2 --csv"), 0);
    static const char *const refused[] = {"profile", "plan", "inspect kernels"};
    for (int i = 0; i < 3; i++) {
        char words[128];
        snprintf(words, sizeof words, "%s %%s/model.onnx --no-cache --mode eager", refused[i]);
        assert_int_equal(ashlar(words), 1);
        says("mode eager");
        says("use mode stream");
    }
    assert_int_equal(ashlar("run %s/model.onnx --mode eager=2"), 2);
}

static void environment(void **state) {
    (void)state;
    assert_int_equal(setenv("ASHLAR_MEMORY_MODE", "disabled", 1), 0);
    assert_int_equal(ashlar("plan %s/model.onnx --no-cache"), 0);
    says("disabled");
    assert_int_equal(ashlar("plan %s/model.onnx --no-cache --planner arena"), 0);
    says("arena, auto");
    assert_int_equal(setenv("ASHLAR_MEMORY_MODE", "perhaps", 1), 0);
    assert_int_equal(ashlar("plan %s/model.onnx --no-cache"), 1);
    says("ASHLAR_MEMORY_MODE");
    assert_int_equal(unsetenv("ASHLAR_MEMORY_MODE"), 0);
}

static void errors(void **state) {
    (void)state;
    assert_int_equal(ashlar("run %s/none.onnx"), 1);
    says("none.onnx");
    assert_int_equal(ashlar("run %s/model.onnx --no-cache --max-memory 100"), 1);
    says("budget");
    FILE *f = fopen(path_of("broken.onnx"), "wb");
    fputs("this is no model", f);
    fclose(f);
    assert_int_equal(ashlar("plan %s/broken.onnx"), 1);
    says("broken.onnx");
}

/* The option, what it was given, and what it takes. */
static void errors_name_the_values(void **state) {
    (void)state;
    static const struct {
        const char *words, *says;
    } cases[] = {
        {"run %s/model.onnx --mode grahp",
         "--mode grahp: one of stream, graph, multi_stream=N, eager is expected"},
        {"run %s/model.onnx --mode=multi_stream=x", "--mode multi_stream=x: one of"},
        {"run %s/model.onnx --threads many", "--threads many: a whole number"},
        {"run %s/model.onnx --repeat -3", "--repeat -3: a whole number"},
        {"run %s/model.onnx --max-memory lots", "--max-memory lots: a number of bytes"},
        {"plan %s/model.onnx --planner hope", "--planner hope: one of arena, remap, disabled is expected"},
        {"plan %s/model.onnx --strategy luck", "--strategy luck: one of auto, tlsf, best_fit, search is"},
        {"plan %s/model.onnx --order later", "--order later: one of auto, off, on is expected"},
        {"pack --strategy luck %s/model.onnx", "--strategy luck: one of auto, tlsf, best_fit, search is"},
        {"pack --format png %s/model.onnx", "--format png: one of csv, text, svg, html is expected"},
        {"pack --capacity -1 %s/model.onnx", "--capacity -1: a whole number above 0"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        assert_int_equal(ashlar(cases[i].words), 2);
        says(cases[i].says);
    }
    assert_int_equal(ashlar("inspect soul %s/model.onnx --no-cache"), 1);
    says("there are graph, plan, kernels, buffers, nest, llvm, asm");
}

/* What there is, where something is named that there is not. */
static void errors_list_what_there_is(void **state) {
    (void)state;
    ash_graph *g;
    assert_ok(ash_graph_create(room.context, "net", &g, &diag));
    ash_type type = {.dtype = ASH_F32, .rank = 2, .dims = {ash_graph_var(g, "rows", 1, 64), COLUMNS}};
    ash_value x = ash_graph_input(g, "left", &type), y = ash_graph_input(g, "right", &type);
    ash_graph_output(g, "sum", ash_add(g, x, y));
    assert_ok(ash_onnx_write(g, path_of("dynamic.onnx"), NULL, &diag));
    ash_graph_destroy(g);
    assert_int_equal(ashlar("run %s/dynamic.onnx --no-cache --var lines=3"), 1);
    says("'lines'");
    says("its inputs are \"left\" f32[rows, 12], \"right\" f32[rows, 12]");
    assert_int_equal(ashlar("run %s/dynamic.onnx --no-cache --bind middle=%s/x.npy"), 1);
    says("its inputs are \"left\" f32[rows, 12], \"right\" f32[rows, 12]");
    assert_int_equal(ashlar("run %s/dynamic.onnx --no-cache --input middle=%s/x.npy"), 1);
    says("has no input \"middle\"; it has \"left\" f32[");
    assert_int_equal(ashlar("plan %s/x.npy"), 1);
    says("is this an ONNX file?");
}

/* .npz as numpy writes it: stored members here; tests/data/npz has deflated and broken ones. */
static void arrays_from_npz(void **state) {
    (void)state;
    assert_int_equal(
        ashlar("run %s/model.onnx --no-cache --repeat 1 --output-dir %s/one --input x=%s/x.npy"), 0);
    static const char *const good[] = {"deflated.npz", "stored.npz:x", "only.npz"};
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        char words[256], command[700];
        snprintf(words, sizeof words,
                 "run %%s/model.onnx --no-cache --repeat 1 --output-dir %%s/two --input x=" ASH_SOURCE_DIR
                 "/tests/data/npz/%s",
                 good[i]);
        assert_int_equal(ashlar(words), 0);
        snprintf(command, sizeof command, "cmp %s/one/output_0.npy %s/two/output_0.npy", room.folder,
                 room.folder);
        assert_int_equal(shell(command), 0);
    }
    static const struct {
        const char *file, *says;
    } bad[] = {
        {"stored.npz:nope", "has no array \"nope\"; it has: other, x"},
        {"others.npz", "has no array \"x\"; it has: a, b"},
        {"cut.npz", "no directory in a .npz file"},
        {"checksum.npz", "a wrong checksum"},
        {"huge.npz", "an impossible size"},
        {"short.npz", "does not inflate to its size"},
        {"method.npz", "compression method 12"},
        {"text.npz", "no directory in a .npz file"},
        {"none.npz", "none.npz"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        char words[256];
        snprintf(words, sizeof words,
                 "run %%s/model.onnx --no-cache --input x=" ASH_SOURCE_DIR "/tests/data/npz/%s",
                 bad[i].file);
        assert_int_equal(ashlar(words), 1);
        says(bad[i].says);
    }
}

/* A result that could not be written is an error, wherever it was to go. */
static void a_full_disk(void **state) {
    (void)state;
    static const char *const to_output[] = {"run %s/model.onnx --no-cache --repeat 1",
                                            "bench %s/model.onnx --no-cache --repeat 1 --csv",
                                            "plan %s/model.onnx --no-cache",
                                            "profile %s/model.onnx --no-cache",
                                            "inspect graph %s/model.onnx --no-cache",
                                            "pack %s/buffers.csv",
                                            "run --help",
                                            "--version"};
    assert_int_equal(ashlar("plan %s/model.onnx --no-cache --csv %s/buffers.csv"), 0);
    for (size_t i = 0; i < sizeof to_output / sizeof *to_output; i++) {
        char words[128];
        snprintf(words, sizeof words, "%s >/dev/full", to_output[i]);
        assert_int_equal(ashlar(words), 1);
    }
    /* the name of a file is a link to the device, which must not be replaced by a file */
    static const char *const to_file[] = {
        "plan %s/model.onnx --no-cache --csv %s/full", "plan %s/model.onnx --no-cache --html %s/full",
        "profile %s/model.onnx --no-cache --trace %s/full", "pack %s/buffers.csv -o %s/full",
        "run %s/model.onnx --no-cache --repeat 1 --output-dir %s"};
    assert_int_equal(symlink("/dev/full", path_of("full")), 0);
    assert_int_equal(symlink("/dev/full", path_of("output_0.npy")), 0);
    for (size_t i = 0; i < sizeof to_file / sizeof *to_file; i++) {
        assert_int_equal(ashlar(to_file[i]), 1);
        says("No space left");
    }
    struct stat st;
    assert_int_equal(lstat(path_of("output_0.npy"), &st), 0);
    assert_true(S_ISLNK(st.st_mode));
    assert_int_equal(stat(path_of("output_0.npy"), &st), 0);
    assert_true(S_ISCHR(st.st_mode));
}

/* Names that a terminal would obey are printed as text by every command. */
static void names_are_harmless(void **state) {
    (void)state;
    static const char evil[] = "a\033]0;title\007\033[31m\302\233b\rc\177";
    ash_graph *g;
    assert_ok(ash_graph_create(room.context, evil, &g, &diag));
    ash_type type = {.dtype = ASH_F32, .rank = 2, .dims = {ROWS, COLUMNS}};
    ash_value x = ash_graph_input(g, evil, &type);
    ash_graph_name_next(g, evil);
    ash_graph_output(g, evil + 1, ash_softmax(g, x, -1));
    assert_ok(ash_onnx_write(g, path_of("evil.onnx"), NULL, &diag));
    ash_graph_destroy(g);
    static const char *const words[] = {"run %s/evil.onnx --no-cache --repeat 1",
                                        "run %s/evil.onnx --no-cache --input q=1 --repeat 1",
                                        "plan %s/evil.onnx --no-cache --buffers --timeline",
                                        "profile %s/evil.onnx --no-cache",
                                        "profile %s/evil.onnx --no-cache --trace %s/trace",
                                        "inspect kernels %s/evil.onnx --no-cache",
                                        "inspect graph %s/evil.onnx --no-cache",
                                        "inspect nest %s/evil.onnx --no-cache",
                                        "run %s/evil.onnx --no-cache --max-memory 10",
                                        "run %s/evil.onnx --no-cache --var \"$(printf '\\033[31mx=1')\""};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        ashlar(words[i]);
        for (const char *c = room.out; *c; c++)
            if ((unsigned char)*c < ' ' ? *c != '\n' && *c != '\t'
                                        : *c == 0x7f || (!memcmp(c, "\302\233", 2)))
                fail_msg("%s printed byte %d", words[i], *c);
    }
    assert_int_equal(ashlar("run %s/evil.onnx --no-cache --repeat 1"), 0);
    says("\\x1b]0;title\\x07\\x1b[31m");
}

/* How far a long preparation is, on a terminal and nowhere else. */
static void progress(void **state) {
    (void)state;
    char command[900];
    if (shell("script -qec true /dev/null") != 0) skip(); /* no such program, or no pseudo-terminals */
    snprintf(command, sizeof command, "%s %s/net.onnx", ASH_EXAMPLE_RESNET50, room.folder);
    assert_int_equal(shell(command), 0);
    snprintf(command, sizeof command, "script -qec '%s plan %s/net.onnx --no-cache --threads 1' %s/typed",
             ASH_CLI, room.folder, room.folder);
    assert_int_equal(shell(command), 0);
    says("\r\033[Kcompile: ");
    says(" of ");
    says("\r\033[Kmodel");
    assert_int_equal(ashlar("plan %s/net.onnx --no-cache"), 0);
    assert_false(said("compile: "));
}

static void version(void **state) {
    (void)state;
    assert_int_equal(ashlar("--version"), 0);
    says("ashlar " ASH_VERSION "\n");
    assert_string_equal(ash_version(), ASH_VERSION);
    char text[32];
    snprintf(text, sizeof text, "%d.%d.%d", ASH_VERSION_MAJOR, ASH_VERSION_MINOR, ASH_VERSION_PATCH);
    assert_string_equal(ASH_VERSION, text);
    assert_true(ASH_VERSION_NUMBER >= ASH_VERSION_OF(0, 1, 0));
}

/* Kernels are kept where the environment or the option says, and what is not to be trusted is not taken. */
static void kernels_are_kept(void **state) {
    (void)state;
    assert_int_equal(setenv("ASHLAR_CACHE_DIR", path_of("kernels"), 1), 0);
    assert_int_equal(ashlar("run %s/model.onnx --repeat 1"), 0);
    says(" 0 from the cache on disk");
    assert_int_equal(ashlar("run %s/model.onnx --repeat 1"), 0);
    says(" 0 compiled");
    assert_int_equal(ashlar("run %s/model.onnx --repeat 1 --no-cache"), 0);
    says(" 0 from the cache on disk");
    assert_int_equal(ashlar("run %s/model.onnx --repeat 1 --cache %s/kernels"), 0);
    says(" 0 compiled");
    assert_int_equal(chmod(path_of("kernels"), 0777), 0);
    assert_int_equal(ashlar("run %s/model.onnx --repeat 1"), 0);
    says("can be written by others");
    says("on disk refused");
    assert_int_equal(ashlar("run %s/model.onnx --repeat 1 --cache ''"), 1);
    says("--cache");
    assert_int_equal(setenv("ASHLAR_CACHE_DIR", "", 1), 0);
    assert_int_equal(ashlar("run %s/model.onnx --repeat 1"), 0);
    says(" 0 from the cache on disk");
}

/* What there is, with its numbers; or in one line why there is none, everywhere in the same words. */
static void devices(void **state) {
    (void)state;
    assert_int_equal(setenv("ASHLAR_CUDA_DRIVER", "/nowhere/libcuda.so.1", 1), 0);
    assert_int_equal(ashlar("devices"), 0);
    assert_non_null(strstr(room.out, "CPU"));
    assert_non_null(strstr(room.out, "no GPU    no CUDA driver: /nowhere/libcuda.so.1"));
    assert_int_equal(ashlar("run %s/model.onnx --device CUDA:0"), 1);
    assert_non_null(strstr(room.out, "no CUDA driver: /nowhere/libcuda.so.1"));
    assert_ptr_equal(strchr(room.out, '\n'), room.out + strlen(room.out) - 1);
    assert_int_equal(setenv("ASHLAR_CUDA_DRIVER", PTX_DRIVER, 1), 0);
    assert_int_equal(ashlar("devices"), 0);
    if (!gpu_is_compiled_for()) { /* one that nobody can make code for */
        static const char why[] = "no code for this kind of machine: LLVM was built without NVPTX\n";
        says("CUDA:0    not usable: ");
        says(why);
        static const char *const calls[] = {"run %s/model.onnx --device CUDA:0",
                                            "plan %s/model.onnx --device CUDA:sm_80 --explain"};
        for (size_t i = 0; i < 2; i++) {
            assert_int_equal(ashlar(calls[i]), 1);
            says(why);
            assert_ptr_equal(strchr(room.out, '\n'), room.out + strlen(room.out) - 1);
        }
        assert_int_equal(unsetenv("ASHLAR_CUDA_DRIVER"), 0);
        return;
    }
    assert_non_null(strstr(
        room.out, "CUDA:0    PTX interpreter sm_90, sm_90, 132 multiprocessors, 1.50 GHz, 3200 GB/s, "
                  "40 MiB L2, driver for CUDA 12.8, 16.0 GiB\n"));
    assert_null(strstr(room.out, "CUDA:1"));
    assert_int_equal(unsetenv("ASHLAR_CUDA_DRIVER"), 0);
}

/* A product that is large. */
static void write_large(void) {
    ash_graph *g;
    const ash_type type = {ASH_F32, 2, {4096, 4096}};
    assert_ok(ash_graph_create(room.context, "large", &g, &diag));
    ash_value a = ash_graph_input(g, "a", &type), b = ash_graph_input(g, "b", &type);
    ash_graph_output(g, "y", ash_matmul(g, a, b));
    assert_ok(ash_onnx_write(g, path_of("large.onnx"), NULL, &diag));
    ash_graph_destroy(g);
}

/* A forecast needs no GPU; on a processor it is refused. */
static void explain(void **state) {
    (void)state;
    if (!gpu_is_compiled_for()) skip();
    assert_int_equal(setenv("PTXAS", "/nowhere/ptxas", 1), 0);
    assert_int_equal(ashlar("plan %s/model.onnx --device CUDA:sm_80 --explain"), 0);
    assert_non_null(strstr(room.out, "expected on A100"));
    says("in mode graph\n");
    says("registers: estimated");
    says("records        "); /* what such a GPU would hold beside the arena */
    says(" on CUDA:sm_80, ");
    assert_int_equal(ashlar("plan %s/model.onnx --explain"), 1);
    assert_non_null(strstr(room.out, "predictions are for GPUs"));
    assert_int_equal(ashlar("plan %s/model.onnx --device CUDA:sm_80 --precision tf32x3"), 0);
    assert_int_not_equal(ashlar("plan %s/model.onnx --device CUDA:sm_80 --precision half"), 0);
    assert_int_not_equal(ashlar("plan %s/model.onnx --precision tf32"), 0);
    assert_non_null(strstr(room.out, "products in tf32 are for GPUs from sm_80 on, and CPU is none"));
    write_large(); /* what cuBLAS does is named, where that is asked for; a processor has none */
    assert_int_equal(ashlar("plan %s/large.onnx --device CUDA:sm_90 --cublas --explain"), 0);
    assert_non_null(strstr(room.out, "0  matmul@cublas"));
    assert_non_null(strstr(room.out, "expected on H100"));
    assert_int_equal(ashlar("plan %s/large.onnx --device CUDA:sm_90"), 0);
    assert_null(strstr(room.out, "cublas"));
    assert_int_equal(ashlar("inspect nest %s/large.onnx --device CUDA:sm_90 --cublas"), 0);
    assert_non_null(strstr(room.out, "product 4096 x 4096 x 4096 times 1 f32"));
    assert_int_not_equal(ashlar("inspect asm %s/large.onnx --device CUDA:sm_90 --cublas --kernel 0"), 0);
    assert_non_null(strstr(room.out, "is a product of cuBLAS"));
    assert_int_equal(ashlar("plan %s/large.onnx --cublas"), 1);
    assert_non_null(strstr(room.out, "products by cuBLAS are for GPUs, and CPU is none"));
    assert_int_equal(unsetenv("PTXAS"), 0);
}

static void write_program(const char *name, const char *text) {
    FILE *file = fopen(path_of(name), "w");
    assert_non_null(file);
    assert_true(fputs(text, file) >= 0);
    assert_int_equal(fclose(file), 0);
    assert_int_equal(chmod(path_of(name), 0700), 0);
}

/* What the toolkit's programs say of machine code, in words of their own; without the second, or the first,
 * it is estimated. */
static void explain_by_tools(void **state) {
    (void)state;
    if (!gpu_is_compiled_for()) skip();
    ash_graph *g;
    assert_ok(ash_graph_create(room.context, "net", &g, &diag));
    const ash_type a = {.dtype = ASH_F32, .rank = 2, .dims = {128, 2048}},
                   b = {.dtype = ASH_F32, .rank = 2, .dims = {2048, 128}};
    ash_graph_output(g, "y", ash_matmul(g, ash_graph_input(g, "a", &a), ash_graph_input(g, "b", &b)));
    assert_ok(ash_onnx_write(g, path_of("product.onnx"), NULL, &diag));
    ash_graph_destroy(g);
    write_program("ptxas", "#!/bin/sh\necho 'ptxas info : Used 77 registers, used 1 barriers'\n"
                           "echo ' 16 bytes stack frame, 12 bytes spill stores, 8 bytes spill loads'\n");
    write_program("nvdisasm",
                  "#!/bin/sh\nprintf '.text:\\n.L_x_0:\\n'\n"
                  "for i in 1 2 3 4; do echo ' /*0000*/ LDS R1, [R2] ;'; done\n"
                  "printf '.L_x_1:\\n'\n"
                  "for i in 1 2 3 4 5 6 7 8 9; do echo ' /*0010*/ @P0 FFMA R1, R2, R3, R1 ;'; done\n"
                  "echo ' /*0020*/ @P1 BRA `(.L_x_1) ;'\necho ' /*0030*/ BRA `(.L_x_0) ;'\n");
    assert_int_equal(setenv("PTXAS", path_of("ptxas"), 1), 0);
    assert_int_equal(setenv("NVDISASM", path_of("nvdisasm"), 1), 0);
    assert_int_equal(ashlar("plan %s/product.onnx --device CUDA:H200 --explain"), 0);
    says("expected on H200");
    says("tile split threads   blocks registers spills  shared  fit   waves   loop");
    says("        77     12"); /* registers, bytes */
    says("  90.0%");           /* 9 of 10 */
    says("registers: of ptxas; 24 bytes spilled; loop, multiply-adds among its instructions: of nvdisasm");
    assert_int_equal(setenv("NVDISASM", "/nowhere/nvdisasm", 1), 0);
    assert_int_equal(ashlar("plan %s/product.onnx --device CUDA:sm_90 --explain"), 0);
    says("        77     12");
    says("   ~95%");
    says("its instructions: estimated (~)");
    assert_int_equal(setenv("PTXAS", "/nowhere/ptxas", 1), 0);
    assert_int_equal(ashlar("plan %s/product.onnx --device CUDA:sm_90 --explain"), 0);
    assert_null(strstr(room.out, "        77     12"));
    says("registers: estimated (~), there is no ptxas; 0 bytes spilled");
    says("   ~95%");
    assert_int_equal(ashlar("plan %s/product.onnx --device CUDA:H20 --explain"), 1);
    says("one of V100");
    assert_int_equal(unsetenv("NVDISASM"), 0);
    assert_int_equal(unsetenv("PTXAS"), 0);
}

/* A file of the room is one that begins so and has this. */
static void file_has(const char *name, const char *begin, const char *word) {
    static char text[1 << 20];
    FILE *file = fopen(path_of(name), "r");
    assert_non_null(file);
    text[fread(text, 1, sizeof text - 1, file)] = 0;
    fclose(file);
    assert_int_equal(strncmp(text, begin, strlen(begin)), 0);
    assert_non_null(strstr(text, word));
}

/* Of a plan on a GPU: the picture of its arena, and an execution of it as a trace. */
static void pictures_of_a_gpu(void **state) {
    (void)state;
    if (!gpu_is_compiled_for()) skip();
    assert_int_equal(setenv("ASHLAR_CUDA_DRIVER", PTX_DRIVER, 1), 0);
    assert_int_equal(ashlar("plan %s/model.onnx --no-cache --device CUDA:0 --svg %s/gpu.svg"), 0);
    file_has("gpu.svg", "<svg", "</svg>");
    assert_int_equal(
        ashlar("profile %s/model.onnx --no-cache --repeat 1 --device CUDA:0 --trace %s/gpu.json"), 0);
    file_has("gpu.json", "{", "\"traceEvents\"");
    assert_int_equal(
        ashlar("profile %s/model.onnx --no-cache --repeat 1 --device CUDA:0 --mode multi_stream=3 "
               "--trace %s/gpu.json"),
        0);
    file_has("gpu.json", "{", "\"ph\": \"X\"");
    assert_int_equal(unsetenv("ASHLAR_CUDA_DRIVER"), 0);
}

/* Nodes on a GPU by their names, the others on the processor. */
static void places(void **state) {
    (void)state;
    if (!gpu_is_compiled_for()) skip();
    assert_int_equal(setenv("ASHLAR_CUDA_DRIVER", PTX_DRIVER, 1), 0);
    assert_int_equal(ashlar("plan %s/model.onnx --no-cache --place '*=CUDA:0'"), 0);
    says("devices");
    says("     0  CPU  ");
    says("     1  CUDA:0  ");
    assert_int_equal(ashlar("plan %s/model.onnx --no-cache --place 'nobody=CUDA:0'"), 0);
    assert_null(strstr(room.out, "devices"));
    assert_int_equal(ashlar("run %s/model.onnx --no-cache --repeat 1 --place '*=CUDA:0' --mode graph"), 0);
    assert_int_equal(ashlar("plan %s/model.onnx --no-cache --place '*=CUDA:0' --max-memory 0,16"), 1);
    says("the arena on CUDA:0 needs");
    assert_int_equal(ashlar("plan %s/model.onnx --no-cache --place '*=CUDA:0' --max-memory 1G,1G"), 0);
    assert_int_equal(ashlar("plan %s/model.onnx --place '*=CUDA:0' --max-memory 1G,"), 2);
    assert_int_equal(ashlar("plan %s/model.onnx --place 'x'"), 1);
    says("PATTERN=DEVICE");
    assert_int_equal(ashlar("plan %s/model.onnx --place '*=CUDA:9'"), 1);
    says("out of range");
    assert_int_equal(unsetenv("ASHLAR_CUDA_DRIVER"), 0);
}

static void other_commands(void **state) {
    (void)state;
    assert_int_equal(ashlar("plan %s/model.onnx --no-cache"), 0);
    says("operations");
    says("arenas");
    static const char *const modes[] = {"stream", "graph", "multi_stream=3"};
    for (int i = 0; i < 3; i++) {
        char words[64];
        snprintf(words, sizeof words, "run %%s/model.onnx --no-cache --repeat 1 --mode %s", modes[i]);
        assert_int_equal(ashlar(words), 0);
    }
    assert_int_equal(ashlar("bench %s/model.onnx --no-cache --repeat 3 --csv"), 0);
    int commas = 0;
    for (const char *c = room.out; *c; c++) commas += *c == ',';
    assert_int_equal(commas, 8);
    static const char *const stages[] = {"graph", "kernels", "nest", "llvm", "asm"};
    static const char *const marks[] = {"mul", "kernel 0", "buffer b0", "define", "ret"};
    for (int i = 0; i < 5; i++) {
        char words[64];
        snprintf(words, sizeof words, "inspect %s %%s/model.onnx --no-cache", stages[i]);
        assert_int_equal(ashlar(words), 0);
        says(marks[i]);
    }
    assert_int_equal(ashlar("inspect soul %s/model.onnx --no-cache"), 1);
}

int main(void) {
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(help),
        TEST(wrong_command_lines),
        TEST(run),
        TEST(check),
        TEST(check_dynamic_dims),
        TEST(expressions_of_variables),
        TEST(files_in_and_out),
        TEST(environment),
        TEST(errors),
        TEST(kernels_are_kept),
        TEST(devices),
        TEST(explain),
        TEST(explain_by_tools),
        TEST(places),
        TEST(pictures_of_a_gpu),
        TEST(other_commands),
        TEST(mode_eager),
        TEST(errors_name_the_values),
        TEST(errors_list_what_there_is),
        TEST(arrays_from_npz),
        TEST(a_full_disk),
        TEST(names_are_harmless),
        TEST(progress),
        TEST(version),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
