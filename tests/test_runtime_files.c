/* SPDX-License-Identifier: MIT */
/* Plans whose weights lie in mapped files, and what becomes of the files: cut short, emptied, replaced,
 * removed. */
#include "apart.h"
#include <fcntl.h>
#include <math.h>
#include <sys/stat.h>
#include <unistd.h>

#include "ashlar/builder.h"
#include "ashlar/onnx.h"
#include "ashlar/plan.h"

#define ROOM_MORE                                                                                          \
    char folder[64], model[96], weights[96];                                                               \
    float want;
#include "graph_room.h"

static ash_diag diag;

enum { WIDE = 6000, IN = 64, OUT = 96 };

/* y = sum(x * w) + sum(relu(u m)): w is read where it lies, m is packed. With a data file beside it, or in
 * one. */
static void write_model(struct room *r, bool external) {
    static float w[WIDE], m[IN * OUT];
    for (int i = 0; i < WIDE; i++) w[i] = (float)(i % 13) / 8;
    for (int i = 0; i < IN * OUT; i++) m[i] = (float)(i % 7) / 16;
    ash_graph *g;
    assert_ok(ash_graph_create(r->context, "net", &g, &diag));
    ash_type tw = {.dtype = ASH_F32, .rank = 1, .dims = {WIDE}};
    ash_type tm = {.dtype = ASH_F32, .rank = 2, .dims = {IN, OUT}};
    ash_type tu = {.dtype = ASH_F32, .rank = 2, .dims = {8, IN}};
    ash_value x = ash_graph_input(g, "x", &tw), u = ash_graph_input(g, "u", &tu);
    ash_value product = ash_mul(g, x, ash_graph_constant(g, &tw, w, sizeof w, ASH_DATA_COPY));
    ash_value hidden =
        ash_relu(g, ash_matmul(g, u, ash_graph_constant(g, &tm, m, sizeof m, ASH_DATA_COPY)));
    ash_value y = ash_add(g, ash_reduce_sum(g, product, (const int64_t[]){0}, 1, false),
                          ash_reduce_sum(g, hidden, (const int64_t[]){0, 1}, 2, false));
    ash_graph_output(g, "y", y);
    ash_onnx_write_options options = {.external = external ? "weights.bin" : NULL};
    assert_ok(ash_onnx_write(g, r->model, &options, &diag));
    ash_graph_destroy(g);
    double want = 0;
    for (int i = 0; i < WIDE; i++) want += (double)w[i];
    for (int i = 0; i < IN * OUT; i++) want += 8 * (double)m[i];
    r->want = (float)want;
}

static int setup(void **state) {
    room_open(state, 1);
    struct room *r = *state;
    strcpy(r->folder, "/tmp/ashlar-files-XXXXXX");
    assert_non_null(mkdtemp(r->folder));
    snprintf(r->model, sizeof r->model, "%s/model.onnx", r->folder);
    snprintf(r->weights, sizeof r->weights, "%s/weights.bin", r->folder);
    return 0;
}

static int leave(void **state) {
    struct room *r = *state;
    unlink(r->model);
    unlink(r->weights);
    rmdir(r->folder);
    return teardown(state);
}

static void set_inputs(struct room *r) {
    static float ones[WIDE];
    for (int i = 0; i < WIDE; i++) ones[i] = 1;
    assert_ok(ash_plan_set_input(r->plan, 0, NULL, ones, sizeof ones, &diag));
    assert_ok(ash_plan_set_input(r->plan, 1, NULL, ones, 8 * IN * sizeof *ones, &diag));
}

static void check_result(struct room *r) {
    const ash_view *view;
    float y;
    assert_ok(ash_plan_output(r->plan, 0, &view, &diag));
    assert_ok(ash_view_copy_out(view, &y, sizeof y, &diag));
    assert_true(fabsf(y - r->want) < 1e-3f * r->want);
}

static void prepare_and_run(struct room *r) {
    assert_ok(ash_onnx_read(r->context, r->model, NULL, &r->g, &diag));
    assert_ok(ash_plan_prepare(r->context, r->g, NULL, &r->plan, &diag));
    ash_plan_report report = ash_plan_describe(r->plan);
    assert_true(report.mapped >= WIDE * sizeof(float) && report.released >= IN * OUT * sizeof(float));
    set_inputs(r);
    assert_ok(ash_plan_execute(r->plan, &diag));
    check_result(r);
}

/* The bytes of a file, to write them back. */
static void *take(const char *path, size_t *size) {
    struct stat info;
    assert_int_equal(stat(path, &info), 0);
    void *bytes = malloc((size_t)info.st_size);
    FILE *f = fopen(path, "rb");
    assert_int_equal(fread(bytes, 1, (size_t)info.st_size, f), info.st_size);
    fclose(f);
    *size = (size_t)info.st_size;
    return bytes;
}

static void put(const char *path, const void *bytes, size_t size) {
    FILE *f = fopen(path, "r+b");
    assert_int_equal(fwrite(bytes, 1, size, f), size);
    fclose(f);
}

static void refused(struct room *r, ash_status status, const char *path) {
    (void)r;
    assert_int_equal(status, ASH_ERROR_IO);
    assert_non_null(strstr(diag.message, path));
    assert_non_null(strstr(diag.message, "shrank"));
}

static uint32_t constant_in_place(const ash_plan *plan) {
    ash_buffer_info info = ASH_INIT(ash_buffer_info);
    for (uint32_t b = 0;; b++) {
        assert_ok(ash_plan_buffer_at(plan, b, &info, &diag));
        if (info.role == ASH_ROLE_CONSTANT && info.bytes == WIDE * sizeof(float)) return b;
    }
}

/* An error wherever the bytes are read next, instead of a signal; and as before when they are there
 * again. */
static void cut_short(void **state) {
    NOT_APART("bytes of the host's that kernels read where they lie");
    struct room *r = *state;
    for (int external = 0; external < 2; external++) {
        write_model(r, external);
        prepare_and_run(r);
        const char *path = external ? r->weights : r->model;
        size_t size;
        ash_plan *second;
        void *bytes = take(path, &size);
        uint32_t w = constant_in_place(r->plan);
        const ash_view *view;
        assert_ok(ash_plan_buffer_view(r->plan, w, &view, &diag));
        for (int emptied = 0; emptied < 2; emptied++) {
            assert_int_equal(truncate(path, emptied ? 0 : 4096), 0);
            refused(r, ash_plan_execute(r->plan, &diag), path);
            check_result(r); /* of the last execution */
            refused(r, ash_plan_buffer_view(r->plan, w, &view, &diag), path);
            refused(r, ash_plan_prepare(r->context, r->g, NULL, &second, &diag), path);
            assert_null(second);
            put(path, bytes, size);
            assert_ok(ash_plan_execute(r->plan, &diag));
            check_result(r);
        }
        /* What was packed is read again after everything was released. */
        assert_ok(ash_plan_release_all(r->plan, NULL, &diag));
        set_inputs(r);
        assert_int_equal(truncate(path, 100), 0);
        refused(r, ash_plan_execute(r->plan, &diag), path);
        put(path, bytes, size);
        assert_ok(ash_plan_execute(r->plan, &diag));
        check_result(r);
        free(bytes);
        ash_plan_destroy(r->plan);
        ash_graph_destroy(r->g);
        r->plan = NULL, r->g = NULL;
    }
}

/* Of weights that are all packed, only the prologue reads the file. */
static void cut_short_behind_packed_weights(void **state) {
    struct room *r = *state;
    static float m[IN * OUT], ones[8 * IN];
    for (int i = 0; i < IN * OUT; i++) m[i] = (float)(i % 7) / 16;
    for (int i = 0; i < 8 * IN; i++) ones[i] = 1;
    ash_graph *g;
    assert_ok(ash_graph_create(r->context, "net", &g, &diag));
    ash_type tm = {.dtype = ASH_F32, .rank = 2, .dims = {IN, OUT}};
    ash_type tu = {.dtype = ASH_F32, .rank = 2, .dims = {8, IN}};
    ash_value u = ash_graph_input(g, "u", &tu);
    ash_graph_output(g, "y", ash_matmul(g, u, ash_graph_constant(g, &tm, m, sizeof m, ASH_DATA_COPY)));
    assert_ok(ash_onnx_write(g, r->model, NULL, &diag));
    ash_graph_destroy(g);
    assert_ok(ash_onnx_read(r->context, r->model, NULL, &r->g, &diag));
    assert_ok(ash_plan_prepare(r->context, r->g, NULL, &r->plan, &diag));
    assert_int_equal(ash_plan_describe(r->plan).mapped, 0);
    size_t size;
    void *bytes = take(r->model, &size);
    assert_int_equal(truncate(r->model, 64), 0);
    assert_ok(ash_plan_set_input(r->plan, 0, NULL, ones, sizeof ones, &diag));
    assert_ok(ash_plan_execute(r->plan, &diag)); /* which does not need it */
    assert_ok(ash_plan_release_all(r->plan, NULL, &diag));
    assert_ok(ash_plan_set_input(r->plan, 0, NULL, ones, sizeof ones, &diag));
    refused(r, ash_plan_execute(r->plan, &diag), r->model);
    put(r->model, bytes, size);
    assert_ok(ash_plan_execute(r->plan, &diag));
    free(bytes);
}

/* Another file under the name, or none: the plan goes on with the one that it opened. */
static void replaced_and_removed(void **state) {
    NOT_APART("bytes of the host's that kernels read where they lie");
    struct room *r = *state;
    write_model(r, true);
    prepare_and_run(r);
    char other[128];
    snprintf(other, sizeof other, "%s/other", r->folder);
    FILE *f = fopen(other, "wb");
    fputs("short", f);
    fclose(f);
    assert_int_equal(rename(other, r->weights), 0);
    assert_ok(ash_plan_execute(r->plan, &diag));
    check_result(r);
    assert_ok(ash_plan_release_all(r->plan, NULL, &diag));
    set_inputs(r);
    assert_ok(ash_plan_execute(r->plan, &diag));
    check_result(r);
    /* What is opened now is the new one, which promises too little. */
    ash_graph *g;
    assert_status(ash_onnx_read(r->context, r->model, NULL, &g, &diag), ASH_ERROR_FORMAT);
    assert_int_equal(unlink(r->weights), 0);
    assert_ok(ash_plan_execute(r->plan, &diag));
    check_result(r);
    assert_status(ash_onnx_read(r->context, r->model, NULL, &g, &diag), ASH_ERROR_NOT_FOUND);
    f = fopen(r->weights, "wb"); /* empty */
    fclose(f);
    assert_status(ash_onnx_read(r->context, r->model, NULL, &g, &diag), ASH_ERROR_FORMAT);
}

int main(void) {
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, leave)
    const struct CMUnitTest tests[] = {
        TEST(cut_short),
        TEST(cut_short_behind_packed_weights),
        TEST(replaced_and_removed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
