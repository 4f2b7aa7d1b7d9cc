/* The command line, as a user meets it: exit statuses, what is printed, files in and out. */
#include "cli_fixture.h"

#include <math.h>
#include <sys/stat.h>

#include "ashlar/builder.h"
#include "ashlar/onnx.h"
#include "ashlar/plan.h"

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

static int teardown(void **state) {
    (void)state;
    remove_folder();
    ash_context_destroy(room.context);
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
    assert_int_equal(ashlar("run --check %s/dynamic --no-cache --repeat 1 --var rows=2"), 1);
    says("f32[3, 12]");
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
        TEST(files_in_and_out),
        TEST(environment),
        TEST(errors),
        TEST(other_commands),
        TEST(mode_eager),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
