/* SPDX-License-Identifier: MIT */
/* A plan's memory: arenas of the caller's, releasing, packed weights, parameters, mapped constants, failing
 * allocations. */
#include "plan_room.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

static ash_diag diag;

static int setup(void **state) {
    room_open(state, 2);
    struct room *r = *state;
    maker_init(&r->m, r->context);
    return 0;
}

enum { N = 64 };

/* Prologue: t = p + 1, w = 2 t. Main: a = x + w, y = a + q, with parameters p and q. */
static void make_weights(struct room *r, const ash_plan_options *options) {
    maker_weights(&r->m, N, "add1", kernel_add1);
    assert_ok(maker_build(&r->m, options, &r->plan, &diag));
}

static void set_x(struct room *r, float value) {
    float x[N];
    for (int i = 0; i < N; i++) x[i] = value;
    assert_ok(ash_plan_set_input(r->plan, 0, NULL, x, sizeof x, &diag));
}

static float read_y(struct room *r) {
    const ash_view *view;
    float out[N];
    assert_ok(ash_plan_output(r->plan, 0, &view, &diag));
    assert_ok(ash_view_copy_out(view, out, sizeof out, &diag));
    for (int i = 1; i < N; i++) assert_true(out[i] == out[0]);
    return out[0];
}

static void the_prologue_runs_once(void **state) {
    struct room *r = *state;
    make_weights(r, NULL);
    set_x(r, 100);
    assert_ok(ash_plan_execute(r->plan, &diag));
    assert_true(read_y(r) == 114);
    long before = r->memory.count;
    set_x(r, 200);
    assert_ok(ash_plan_execute(r->plan, &diag));
    assert_true(read_y(r) == 214);
    assert_int_equal(r->memory.count, before);
    ash_plan_report report = ash_plan_describe(r->plan);
    uint64_t here = apart_is_wished() ? 0 : 256; /* a constant that is read where it lies, or copied */
    assert_true(report.weights == 512 - here && report.staging == 512 - here && report.constants == here &&
                report.mapped == 0);
    assert_true(report.ops == 2 && report.prologue_ops == 2 && report.kernels == 4);
    const ash_view *view;
    float w[N];
    assert_ok(ash_plan_buffer(r->plan, 103, &view, &diag));
    assert_ok(ash_view_copy_out(view, w, sizeof w, &diag));
    assert_true(w[7] == 4);
    assert_status(ash_plan_buffer(r->plan, 102, &view, &diag), ASH_ERROR_STATE);
    assert_non_null(strstr(diag.message, "prepare"));
}

static void parameters_are_rebound(void **state) {
    struct room *r = *state;
    make_weights(r, NULL);
    assert_int_equal(ash_plan_parameter_count(r->plan), 2);
    assert_string_equal(ash_plan_parameter_name(r->plan, 1), "q");
    assert_null(ash_plan_parameter_name(r->plan, 2));
    set_x(r, 0);
    assert_ok(ash_plan_execute(r->plan, &diag));
    assert_true(read_y(r) == 14);
    const ash_view *view;
    float values[N];
    assert_ok(ash_plan_buffer(r->plan, 101, &view, &diag));
    for (int i = 0; i < N; i++) values[i] = 3;
    assert_status(ash_plan_set_parameter(r->plan, "p", NULL, values, 252, &diag),
                  ASH_ERROR_INVALID_ARGUMENT);
    assert_string_equal(diag.node, "p");
    assert_status(ash_plan_set_parameter(r->plan, "x", NULL, values, 256, &diag), ASH_ERROR_NOT_FOUND);
    assert_ok(ash_plan_execute(r->plan, &diag));
    assert_true(read_y(r) == 14);
    assert_ok(ash_plan_set_parameter(r->plan, "p", NULL, values, 256, &diag)); /* by way of the prologue */
    values[0] = values[1] = -1;                                                /* it was copied */
    assert_ok(ash_plan_execute(r->plan, &diag));
    assert_true(read_y(r) == 18);
    for (int i = 0; i < N; i++) values[i] = 1000;
    assert_ok(ash_plan_set_parameter(r->plan, "q", NULL, values, 256, &diag)); /* read where it lies */
    assert_ok(ash_plan_execute(r->plan, &diag));
    assert_true(read_y(r) == 1008);
    assert_ok(ash_view_copy_out(view, values, sizeof values, &diag));
    assert_true(values[3] == 1000);
    for (int i = 0; i < N; i++) values[i] = 2000;
    assert_ok(ash_plan_set_parameter(r->plan, "q", NULL, values, 256, &diag));
    assert_ok(ash_plan_execute(r->plan, &diag));
    assert_true(read_y(r) == 2008);
}

static void arenas_of_the_caller(void **state) {
    struct room *r = *state;
    static char memory[4096] __attribute__((aligned(64)));
    for (int mode = 0; mode < ASH_MEMORY_MODE_COUNT; mode++) {
        ash_plan_options options = ash_plan_options_default();
        options.memory.mode = (ash_memory_mode)mode;
        make_weights(r, &options);
        NOT_APART("memory of the host's for the arena or the weights");
        uint64_t size = ash_plan_arena_size(r->plan);
        assert_int_equal(size, 3 * 256);
        assert_int_equal(ash_plan_arena_align(r->plan), 64);
        assert_status(ash_plan_bind_arena(r->plan, memory, size - 1, &diag), ASH_ERROR_OUT_OF_RANGE);
        assert_status(ash_plan_bind_arena(r->plan, memory + 4, sizeof memory - 4, &diag),
                      ASH_ERROR_INVALID_ARGUMENT);
        memset(memory, 0x55, sizeof memory);
        assert_ok(ash_plan_bind_arena(r->plan, memory, size, &diag));
        set_x(r, 5);
        assert_ok(ash_plan_execute(r->plan, &diag));
        assert_true(read_y(r) == 19);
        const ash_view *view;
        const void *data;
        assert_ok(ash_plan_output(r->plan, 0, &view, &diag));
        assert_ok(ash_view_data(view, &data, &diag));
        assert_true((const char *)data >= memory && (const char *)data + 256 <= memory + size);
        for (size_t i = size; i < sizeof memory; i++) assert_int_equal(memory[i], 0x55);
        assert_status(ash_plan_bind_arena(r->plan, NULL, 0, &diag), ASH_ERROR_STATE);
        assert_ok(ash_plan_release_all(r->plan, NULL, &diag));
        assert_ok(ash_plan_bind_arena(r->plan, NULL, 0, &diag));
        set_x(r, 6);
        assert_ok(ash_plan_execute(r->plan, &diag));
        assert_true(read_y(r) == 20);
        assert_ok(ash_view_data(view, &data, &diag));
        assert_false((const char *)data >= memory && (const char *)data < memory + size);
        ash_plan_destroy(r->plan);
        maker_init(&r->m, r->context);
    }
    make_weights(r, NULL);
}

static void intermediates_are_released(void **state) {
    struct room *r = *state;
    make_weights(r, NULL);
    uint64_t released = 7;
    assert_ok(ash_plan_release_intermediates(r->plan, &released, &diag)); /* nothing there yet */
    assert_int_equal(released, 0);
    set_x(r, 1);
    assert_ok(ash_plan_execute(r->plan, &diag));
    const ash_view *a, *y;
    const void *data;
    assert_ok(ash_plan_buffer(r->plan, 105, &a, &diag));
    assert_ok(ash_plan_output(r->plan, 0, &y, &diag));
    long long live = r->memory.live;
    assert_ok(ash_plan_release_intermediates(r->plan, &released, &diag));
    assert_int_equal(released, 512);
    assert_true(live - r->memory.live >= 512);
    assert_true(read_y(r) == 15);
    assert_status(ash_view_data(a, &data, &diag), ASH_ERROR_STATE);
    assert_status(ash_plan_execute(r->plan, &diag), ASH_ERROR_STATE); /* the input went, too */
    assert_true(read_y(r) == 15);
    set_x(r, 2);
    assert_true(read_y(r) == 15);
    assert_ok(ash_plan_execute(r->plan, &diag));
    assert_true(read_y(r) == 16);
    assert_ok(ash_view_data(a, &data, &diag));
    assert_true(*(const float *)data == 6);
}

static void everything_is_released(void **state) {
    struct room *r = *state;
    make_weights(r, NULL);
    set_x(r, 1);
    assert_ok(ash_plan_execute(r->plan, &diag));
    const ash_view *y;
    const void *data;
    uint64_t released;
    assert_ok(ash_plan_output(r->plan, 0, &y, &diag));
    assert_ok(ash_plan_release_all(r->plan, &released, &diag));
    assert_int_equal(released, 768 + (apart_is_wished() ? 512 : 256)); /* constants are among the weights */
    assert_status(ash_view_data(y, &data, &diag), ASH_ERROR_STATE);
    assert_ok(ash_plan_release_all(r->plan, &released, &diag));
    assert_int_equal(released, 0);
    set_x(r, 4);
    assert_ok(ash_plan_execute(r->plan, &diag));
    assert_true(read_y(r) == 18);
}

static void views_outlive_their_plan(void **state) {
    struct room *r = *state;
    make_weights(r, NULL);
    set_x(r, 1);
    assert_ok(ash_plan_execute(r->plan, &diag));
    const ash_view *y;
    const void *data;
    assert_ok(ash_plan_output(r->plan, 0, &y, &diag));
    ash_view *held = ash_view_retain((ash_view *)y);
    ash_plan_destroy(r->plan);
    r->plan = NULL;
    assert_status(ash_view_data(held, &data, &diag), ASH_ERROR_STATE);
    ash_view_release(held);
}

/* --- outputs that are no result of a step ----------------------------------------------------- */

static void outputs_of_every_kind(void **state) {
    struct room *r = *state;
    float tens[N];
    for (int i = 0; i < N; i++) tens[i] = 10 + (float)i;
    uint32_t c = maker_data(&r->m, ASH_BUFFER_CONSTANT, tens, N, NULL),
             w = maker_buffer(&r->m, ASH_BUFFER_WEIGHT, N, NULL),
             x = maker_buffer(&r->m, ASH_BUFFER_INPUT, N, "x"), part = maker_view(&r->m, x, 8, 16),
             some = maker_view(&r->m, c, 4, 16);
    maker_step(&r->m, "add1", kernel_add1, N, 1, 2, LIST(w, c));
    r->m.p->prologue = 1;
    maker_output(&r->m, c, "constant");
    maker_output(&r->m, w, "weight");
    maker_output(&r->m, x, "input");
    maker_output(&r->m, part, "view");
    maker_output(&r->m, some, "part");
    assert_ok(maker_build(&r->m, NULL, &r->plan, &diag));
    float in[N];
    for (int i = 0; i < N; i++) in[i] = (float)i;
    for (int bound = 0; bound < 3; bound++) {
        in[9] = (float)bound;
        if (bound == 1) assert_ok(ash_plan_bind_input(r->plan, 0, NULL, in, sizeof in, &diag));
        if (bound != 1) assert_ok(ash_plan_set_input(r->plan, 0, NULL, in, sizeof in, &diag));
        assert_ok(ash_plan_execute(r->plan, &diag));
        if (bound == 2) assert_ok(ash_plan_release_intermediates(r->plan, NULL, &diag));
        const ash_view *views[5];
        const void *data[5];
        assert_ok(ash_plan_outputs(r->plan, views, 5, &diag));
        for (int i = 0; i < 5; i++) assert_ok(ash_view_data(views[i], &data[i], &diag));
        assert_true(((const float *)data[0])[2] == 12);
        assert_true(((const float *)data[1])[2] == 13);
        assert_true(((const float *)data[2])[9] == (float)bound);
        assert_true(((const float *)data[3])[1] == (float)bound);
        assert_true(((const float *)data[4])[0] == 14);
        if (bound == 1 && !apart_is_wished()) assert_ptr_equal(data[2], in);
    }
}

/* A plan that has no bytes for its inputs takes the caller's, and nothing else. */
static void inputs_left_to_the_caller(void **state) {
    struct room *r = *state;
    ash_plan_options options = ash_plan_options_default();
    options.memory.omit_inputs = true;
    make_weights(r, &options);
    assert_int_equal(ash_plan_arena_size(r->plan), 2 * 256);
    float x[N];
    ash_view *view;
    for (int i = 0; i < N; i++) x[i] = 1;
    if (apart_is_wished())
        assert_status(ash_plan_bind_input(r->plan, 0, NULL, x, sizeof x, &diag), ASH_ERROR_DEVICE);
    NOT_APART("bytes of the host's that kernels read where they lie");
    assert_status(ash_plan_set_input(r->plan, 0, NULL, x, sizeof x, &diag), ASH_ERROR_STATE);
    assert_status(ash_plan_input(r->plan, 0, &view, &diag), ASH_ERROR_STATE);
    assert_status(ash_plan_execute(r->plan, &diag), ASH_ERROR_STATE);
    assert_ok(ash_plan_bind_input(r->plan, 0, NULL, x, sizeof x, &diag));
    assert_ok(ash_plan_execute(r->plan, &diag));
    assert_true(read_y(r) == 15);
    assert_ok(ash_plan_release_intermediates(r->plan, NULL, &diag)); /* what is bound stays bound */
    assert_ok(ash_plan_execute(r->plan, &diag));
    assert_true(read_y(r) == 15);
}

/* Binding another address costs no allocation, and views that were handed out follow. */
static void rebinding(void **state) {
    struct room *r = *state;
    make_weights(r, NULL);
    float x[3][N];
    for (int k = 0; k < 3; k++)
        for (int i = 0; i < N; i++) x[k][i] = (float)k;
    set_x(r, 9);
    assert_ok(ash_plan_execute(r->plan, &diag));
    assert_true(read_y(r) == 23);
    long before = r->memory.count;
    for (int k = 0; k < 6; k++) {
        assert_ok(ash_plan_bind_input(r->plan, 0, NULL, x[k % 3], sizeof x[0], &diag));
        assert_ok(ash_plan_execute(r->plan, &diag));
        assert_true(read_y(r) == 14 + (float)(k % 3));
    }
    assert_int_equal(r->memory.count, before);
    const ash_view *view;
    const void *data;
    assert_ok(ash_plan_buffer(r->plan, 104, &view, &diag));
    for (int k = 0; k < 3; k++) {
        assert_ok(ash_plan_bind_input(r->plan, 0, NULL, x[k], sizeof x[0], &diag));
        assert_ok(ash_view_data(view, &data, &diag));
        if (!apart_is_wished()) assert_ptr_equal(data, x[k]);
    }
    set_x(r, 9);
    assert_ok(ash_view_data(view, &data, &diag));
    assert_true(*(const float *)data == 9);
    assert_ok(ash_plan_execute(r->plan, &diag));
    assert_true(read_y(r) == 23);
}

/* --- mapped constants ------------------------------------------------------------------------- */

static size_t resident(const void *data, size_t size) {
    long page = sysconf(_SC_PAGESIZE);
    FILE *f = fopen("/proc/self/pagemap", "rb");
    size_t count = 0;
    if (!f) return 0;
    for (size_t at = 0; at < size; at += (size_t)page) {
        uint64_t entry = 0;
        fseek(f, (long)(((uintptr_t)data + at) / (size_t)page * 8), SEEK_SET);
        if (fread(&entry, 8, 1, f) == 1 && entry >> 63) count += (size_t)page;
    }
    fclose(f);
    return count;
}

/* A constant of 96 MB in a mapped file is packed in pieces: what the prologue has read is given back on the
 * way. */
static size_t most_resident;
static const void *mapped;

static void kernel_pack(void *const *b, const int64_t *vars, int64_t begin, int64_t end, int64_t worker) {
    (void)vars;
    for (int64_t i = begin; i < end; i++)
        for (int64_t k = 0; k < 65536; k += 4096)
            ((volatile char *)b[0])[0] += ((const char *)b[1])[i * 65536 + k];
    if (worker == 0 && end % 16 == 0) {
        size_t now = resident(mapped, (size_t)96 << 20);
        most_resident = ASH_MAX(most_resident, now);
    }
}

static void mapped_constants_are_given_back(void **state) {
    struct room *r = *state;
    char path[] = "/tmp/ashlar-test-XXXXXX";
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    size_t size = (size_t)96 << 20;
    assert_int_equal(ftruncate(fd, (off_t)size), 0);
    unlink(path);
    mapped = mmap(NULL, size, PROT_READ, MAP_PRIVATE, fd, 0);
    assert_true(mapped != MAP_FAILED);
    uint32_t c = maker_buffer(&r->m, ASH_BUFFER_CONSTANT, (int64_t)size / 4, NULL),
             w = maker_buffer(&r->m, ASH_BUFFER_WEIGHT, 16, NULL),
             y = maker_buffer(&r->m, ASH_BUFFER_OUTPUT, 16, "y");
    assert_ok(ash_blob_create(r->m.a, &(ash_blob){.data = mapped, .size = size, .mapped = true},
                              &r->m.p->buffers.at[c].blob, &diag));
    maker_step(&r->m, "pack", kernel_pack, (int64_t)size / 65536, 1, 2, LIST(w, c));
    r->m.p->prologue = 1;
    maker_step(&r->m, "add1", kernel_add1, 16, 1, 2, LIST(y, w));
    maker_output(&r->m, y, "y");
    ash_plan_options options = ash_plan_options_default();
    options.threads = 1;
    assert_ok(maker_build(&r->m, &options, &r->plan, &diag));
    assert_ok(ash_plan_execute(r->plan, &diag));
    bool seen = access("/proc/self/pagemap", R_OK) == 0 && !apart_is_wished(); /* copies are no kernels */
    if (seen) assert_true(most_resident >= (size_t)8 << 20);
    assert_true(most_resident <= (size_t)34 << 20);
    assert_int_equal(resident(mapped, size), 0);
    ash_plan_report report = ash_plan_describe(r->plan);
    assert_int_equal(report.released, size);
    assert_int_equal(report.constants, 0);
    ash_plan_destroy(r->plan);
    r->plan = NULL;
    munmap((void *)mapped, size);
    close(fd);
}

/* Constants that do not lie as kernels need them are copied. */
static void unaligned_constants(void **state) {
    struct room *r = *state;
    static char bytes[N * 4 + 1];
    float ones[N];
    for (int i = 0; i < N; i++) ones[i] = (float)i;
    memcpy(bytes + 1, ones, sizeof ones);
    uint32_t c = maker_buffer(&r->m, ASH_BUFFER_CONSTANT, N, NULL),
             d = maker_buffer(&r->m, ASH_BUFFER_PARAMETER, N, "d"),
             w = maker_buffer(&r->m, ASH_BUFFER_WEIGHT, N, NULL),
             x = maker_buffer(&r->m, ASH_BUFFER_INPUT, N, "x"),
             a = maker_buffer(&r->m, ASH_BUFFER_LOCAL, N, NULL),
             y = maker_buffer(&r->m, ASH_BUFFER_OUTPUT, N, "y");
    const ash_blob numbers = {.data = bytes + 1, .size = N * 4};
    assert_ok(ash_blob_create(r->m.a, &numbers, &r->m.p->buffers.at[c].blob, &diag));
    assert_ok(ash_blob_create(r->m.a, &numbers, &r->m.p->buffers.at[d].blob, &diag));
    maker_step(&r->m, "twice", kernel_twice, N, 1, 2, LIST(w, c));
    r->m.p->prologue = 1;
    maker_step(&r->m, "add", kernel_add, N, 1, 3, LIST(a, x, w));
    maker_step(&r->m, "add", kernel_add, N, 1, 3, LIST(y, a, d));
    maker_output(&r->m, y, "y");
    assert_ok(maker_build(&r->m, NULL, &r->plan, &diag));
    set_x(r, 0);
    assert_ok(ash_plan_execute(r->plan, &diag));
    const ash_view *view;
    float out[N];
    assert_ok(ash_plan_output(r->plan, 0, &view, &diag));
    assert_ok(ash_view_copy_out(view, out, sizeof out, &diag));
    assert_true(out[5] == 15);
    for (int i = 0; i < N; i++) ones[i] = 100;
    assert_ok(ash_plan_set_parameter(r->plan, "d", NULL, ones, sizeof ones, &diag));
    assert_ok(ash_plan_execute(r->plan, &diag));
    assert_ok(ash_view_copy_out(view, out, sizeof out, &diag));
    assert_true(out[5] == 110);
}

/* --- failures --------------------------------------------------------------------------------- */

/* Every allocation from building to the second round fails once. What was refused can be tried again, and
 * no byte is lost. */
static void allocation_failures(void **state) {
    struct room *r = *state;
    for (int fail = 1, done = 0; !done; fail++) {
        make_weights(r, NULL);
        ash_plan_destroy(r->plan);
        maker_init(&r->m, r->context);
        uint32_t x = maker_buffer(&r->m, ASH_BUFFER_INPUT, N, "x"),
                 y = maker_buffer(&r->m, ASH_BUFFER_OUTPUT, N, "y"),
                 w = maker_buffer(&r->m, ASH_BUFFER_WEIGHT, N, NULL),
                 c = maker_data(&r->m, ASH_BUFFER_PARAMETER, (float[N]){1}, N, "c");
        maker_step(&r->m, "twice", kernel_twice, N, 1, 2, LIST(w, c));
        r->m.p->prologue = 1;
        maker_step(&r->m, "add", kernel_add, N, 1, 3, LIST(y, x, w));
        maker_output(&r->m, y, "y");
        float in[N] = {0};
        const ash_view *view;
        r->memory.fail_at = r->memory.count + fail;
        ash_status status = maker_build(&r->m, NULL, &r->plan, &diag);
        bool built = status == ASH_OK;
        if (status == ASH_OK) status = ash_plan_set_input(r->plan, 0, NULL, in, sizeof in, &diag);
        if (status == ASH_OK) status = ash_plan_execute(r->plan, &diag);
        if (status == ASH_OK) status = ash_plan_output(r->plan, 0, &view, &diag);
        if (status == ASH_OK) status = ash_plan_set_parameter(r->plan, "c", NULL, in, sizeof in, &diag);
        if (status == ASH_OK) status = ash_plan_execute(r->plan, &diag);
        if (status == ASH_OK) status = ash_plan_release_intermediates(r->plan, NULL, &diag);
        if (status == ASH_OK) status = ash_plan_bind_input(r->plan, 0, NULL, in, sizeof in, &diag);
        if (status == ASH_OK) status = ash_plan_execute(r->plan, &diag);
        done = status == ASH_OK;
        if (!done) assert_int_equal(status, ASH_ERROR_OUT_OF_MEMORY);
        r->memory.fail_at = 0;
        if (built) {
            assert_ok(ash_plan_set_input(r->plan, 0, NULL, in, sizeof in, &diag));
            assert_ok(ash_plan_execute(r->plan, &diag));
        }
        ash_plan_destroy(r->plan);
        r->plan = NULL;
        maker_init(&r->m, r->context);
    }
    make_weights(r, NULL);
}

int main(void) {
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(the_prologue_runs_once),
        TEST(parameters_are_rebound),
        TEST(arenas_of_the_caller),
        TEST(intermediates_are_released),
        TEST(everything_is_released),
        TEST(views_outlive_their_plan),
        TEST(outputs_of_every_kind),
        TEST(inputs_left_to_the_caller),
        TEST(rebinding),
        TEST(mapped_constants_are_given_back),
        TEST(unaligned_constants),
        TEST(allocation_failures),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
