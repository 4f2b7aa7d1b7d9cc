/* SPDX-License-Identifier: MIT */
/* What a caller hands in: memory that overlaps memory of the plan is refused, with both names and nothing
 * changed; bytes in a mapped file that was cut short are an error of the call, whichever way they came;
 * views say more than pointers; contexts are not mixed. */
#include "apart.h"
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "ashlar/builder.h"
#include "ashlar/onnx.h"
#include "ashlar/plan.h"
#include "ashlar/reference.h"

#define ROOM_MORE                                                                                          \
    ash_context *other;                                                                                    \
    float *x; /* N elements, aligned */                                                                    \
    char path[64];                                                                                         \
    ash_view *view; /* of the file, which the device is: N elements */
#include "graph_room.h"

static ash_diag diag;

enum { N = 4096, BYTES = N * 4, DEEP = 64 };

static int setup(void **state) {
    room_open(state, 1);
    struct room *r = *state;
    ash_context_options options = {.allocator = test_memory_allocator(&r->memory), .threads = 1};
    assert_ok(ash_context_create(&options, &r->other, &diag));
    r->x = aligned_alloc(64, BYTES);
    for (int i = 0; i < N; i++) r->x[i] = (float)(i % 17) - 8;
    return 0;
}

static int leave(void **state) {
    struct room *r = *state;
    ash_view_release(r->view);
    ash_context_destroy(r->other);
    if (r->path[0]) unlink(r->path);
    free(r->x);
    return teardown(state);
}

static ash_type vector(int64_t n) {
    return (ash_type){.dtype = ASH_F32, .rank = 1, .dims = {n}};
}

/* y = relu(x) * p + x . (m m), a packed weight; s = s + x, a state; p is read where it lies. */
static void make_graph(struct room *r, ash_context *context, const void *constant, ash_data_mode mode) {
    static float p[N], m[DEEP * DEEP];
    ash_type type = vector(N), square = {.dtype = ASH_F32, .rank = 2, .dims = {DEEP, DEEP}};
    ash_graph *g;
    for (int i = 0; i < N; i++) p[i] = 1;
    for (int i = 0; i < DEEP * DEEP; i++) m[i] = (float)(i % 5);
    assert_ok(ash_graph_create(context, "g", &g, &diag));
    ash_value x = ash_graph_input(g, "x", &type),
              q = ash_graph_parameter(g, "p", &type, p, sizeof p, ASH_DATA_COPY),
              w = ash_graph_parameter(g, "m", &square, m, sizeof m, ASH_DATA_COPY),
              s = ash_graph_state(g, "s", &type, NULL, 0, ASH_DATA_COPY),
              c = constant ? ash_graph_constant(g, &type, constant, BYTES, mode) : q;
    ash_value rows = ash_reshape(g, x, (const int64_t[]){N / DEEP, DEEP}, 2);
    ash_value product = ash_reshape(g, ash_matmul(g, rows, ash_matmul(g, w, w)), (const int64_t[]){N}, 1);
    ash_value y = ash_add(g, ash_mul(g, ash_relu(g, x), c), product);
    ash_graph_update(g, s, ash_add(g, s, x));
    ash_graph_output(g, "y", ash_mul(g, y, q));
    assert_ok(ash_graph_status(g, &diag));
    r->g = g;
}

static void make_plan(struct room *r, const ash_plan_options *options) {
    make_graph(r, r->context, NULL, ASH_DATA_COPY);
    assert_ok(ash_plan_prepare(r->context, r->g, options, &r->plan, &diag));
    assert_true(ash_plan_weights_size(r->plan) > 64);
}

static const float *output(ash_plan *plan) {
    const ash_view *view;
    const void *data;
    assert_ok(ash_plan_output(plan, 0, &view, &diag));
    assert_ok(ash_view_data(view, &data, &diag));
    return data;
}

static void *block(uint64_t size) {
    return aligned_alloc(64, (size_t)((size + 127) / 64 * 64));
}

/* The last call was refused: the diagnostic has both names, and addresses. */
static void check_refusal(const char *name, const char *other) {
    assert_int_equal(diag.code, ASH_ERROR_INVALID_ARGUMENT);
    if (!strstr(diag.message, name) || !strstr(diag.message, other)) print_message("%s\n", diag.message);
    assert_non_null(strstr(diag.message, name));
    assert_non_null(strstr(diag.message, other));
    assert_non_null(strstr(diag.message, "0x"));
}

#define REFUSED(call) assert_status(call, ASH_ERROR_INVALID_ARGUMENT)

/* --- overlaps ------------------------------------------------------------------------------------- */

static void the_output_as_input(void **state) {
    NOT_APART("bytes of the host's that kernels read where they lie");
    struct room *r = *state;
    make_plan(r, NULL);
    float want[N], *y;
    assert_ok(ash_plan_bind_input(r->plan, 0, NULL, r->x, BYTES, &diag));
    assert_ok(ash_plan_execute(r->plan, &diag));
    y = (float *)output(r->plan);
    memcpy(want, y, sizeof want);
    REFUSED(ash_plan_bind_input(r->plan, 0, NULL, y, BYTES, &diag));
    check_refusal("input \"x\"", "the plan's arena");
    assert_string_equal(diag.node, "x");
    /* Copying it in is another matter, and the caller's bytes are bound still. */
    assert_ok(ash_plan_execute(r->plan, &diag));
    assert_memory_equal(output(r->plan), want, sizeof want);
    assert_ok(ash_plan_set_input(r->plan, 0, NULL, output(r->plan), BYTES, &diag));
    assert_ok(ash_plan_execute(r->plan, &diag));
    /* The state, and what is kept of the outputs. */
    const ash_view *view;
    const void *data;
    assert_ok(ash_plan_state(r->plan, 0, &view, &diag));
    assert_ok(ash_view_data(view, &data, &diag));
    REFUSED(ash_plan_bind_input(r->plan, 0, NULL, data, BYTES, &diag));
    check_refusal("input \"x\"", "the plan's states");
    assert_ok(ash_plan_release_intermediates(r->plan, NULL, &diag));
    REFUSED(ash_plan_bind_input(r->plan, 0, NULL, output(r->plan), BYTES, &diag));
    check_refusal("input \"x\"", "outputs that the plan has kept");
    assert_ok(ash_plan_bind_input(r->plan, 0, NULL, r->x, BYTES, &diag));
    assert_ok(ash_plan_execute(r->plan, &diag));
    assert_memory_equal(output(r->plan), want, sizeof want);
}

/* In every memory mode: by a few bytes at either end, and not at all beside it. */
static void an_input_in_the_arena(void **state) {
    NOT_APART("memory of the host's for the arena or the weights");
    struct room *r = *state;
    for (int mode = 0; mode < ASH_MEMORY_MODE_COUNT; mode++) {
        ash_plan_options options = ash_plan_options_default();
        options.memory.mode = (ash_memory_mode)mode;
        make_plan(r, &options);
        uint64_t size = ash_plan_arena_size(r->plan), align = ash_plan_arena_align(r->plan);
        char *memory = aligned_alloc(4096, (size_t)((size + 2 * BYTES + 8191) / 4096 * 4096));
        char *arena = memory + (BYTES + align - 1) / align * align;
        assert_ok(ash_plan_bind_arena(r->plan, arena, size, &diag));
        REFUSED(ash_plan_bind_input(r->plan, 0, NULL, arena + 64, BYTES, &diag)); /* before it is in use */
        check_refusal("input \"x\"", "the arena that was bound");
        REFUSED(ash_plan_bind_input(r->plan, 0, NULL, arena - BYTES + 64, BYTES, &diag));
        REFUSED(ash_plan_bind_input(r->plan, 0, NULL, arena + (size - 1) / 64 * 64, BYTES, &diag));
        assert_status(ash_plan_execute(r->plan, &diag), ASH_ERROR_STATE); /* there is no input */
        memcpy(arena - BYTES, r->x, BYTES);
        assert_ok(ash_plan_bind_input(r->plan, 0, NULL, arena - BYTES, BYTES, &diag));
        assert_ok(ash_plan_execute(r->plan, &diag));
        REFUSED(ash_plan_bind_input(r->plan, 0, NULL, arena + 64, BYTES, &diag)); /* in use */
        assert_ok(ash_plan_execute(r->plan, &diag));
        /* The other way round. */
        assert_ok(ash_plan_release_all(r->plan, NULL, &diag));
        assert_ok(ash_plan_bind_arena(r->plan, NULL, 0, &diag));
        char *over = arena - (BYTES + align - 1) / align * align;
        REFUSED(ash_plan_bind_arena(r->plan, over, size, &diag));
        check_refusal("the arena at", "input \"x\"");
        assert_ok(ash_plan_bind_arena(r->plan, arena, size, &diag));
        assert_ok(ash_plan_execute(r->plan, &diag));
        ash_plan_destroy(r->plan);
        r->plan = NULL;
        ash_graph_destroy(r->g);
        r->g = NULL;
        free(memory);
    }
}

static void weights_in_the_arena(void **state) {
    NOT_APART("memory of the host's for the arena or the weights");
    struct room *r = *state;
    make_plan(r, NULL);
    float want[N];
    uint64_t arena = ash_plan_arena_size(r->plan), weights = ash_plan_weights_size(r->plan);
    assert_ok(ash_plan_bind_input(r->plan, 0, NULL, r->x, BYTES, &diag));
    assert_ok(ash_plan_execute(r->plan, &diag));
    memcpy(want, output(r->plan), sizeof want);
    assert_ok(ash_plan_release_all(r->plan, NULL, &diag));
    char *memory = block(arena + weights + 128);
    assert_ok(ash_plan_bind_arena(r->plan, memory, arena, &diag));
    REFUSED(ash_plan_bind_weights(r->plan, memory + 64, weights, &diag));
    check_refusal("the packed weights", "the arena that was bound");
    assert_ok(ash_plan_execute(r->plan, &diag));
    assert_memory_equal(output(r->plan), want, sizeof want);
    REFUSED(
        ash_plan_bind_weights(r->plan, memory + 64, weights, &diag)); /* which are there, and would move */
    REFUSED(ash_plan_bind_weights(r->plan, r->x, weights, &diag));
    check_refusal("the packed weights", "input \"x\"");
    char *after = memory + (arena + 63) / 64 * 64;
    assert_ok(ash_plan_bind_weights(r->plan, after, weights, &diag));
    assert_ok(ash_plan_execute(r->plan, &diag));
    assert_memory_equal(output(r->plan), want, sizeof want);
    REFUSED(ash_plan_bind_input(r->plan, 0, NULL, after, BYTES, &diag));
    check_refusal("input \"x\"", "the packed weights");
    /* An arena over weights that are there, and over those that will be. */
    for (int gone = 0; gone < 2; gone++) {
        assert_ok(ash_plan_release_all(r->plan, NULL, &diag));
        if (!gone) assert_ok(ash_plan_execute(r->plan, &diag));
        if (!gone) assert_ok(ash_plan_release_intermediates(r->plan, NULL, &diag));
        REFUSED(ash_plan_bind_arena(r->plan, memory + 64, arena, &diag));
        check_refusal("the arena at", "the packed weights");
    }
    assert_ok(ash_plan_execute(r->plan, &diag));
    assert_memory_equal(output(r->plan), want, sizeof want);
    ash_plan_destroy(r->plan);
    r->plan = NULL;
    free(memory);
}

/* A constant that is borrowed is read where it lies, by executions or by the prologue; so is what a state
 * begins with. */
static void blocks_over_constants(void **state) {
    NOT_APART("memory of the host's for the arena or the weights");
    struct room *r = *state;
    make_graph(r, r->context, r->x, ASH_DATA_BORROW);
    assert_ok(ash_plan_prepare(r->context, r->g, NULL, &r->plan, &diag));
    REFUSED(ash_plan_bind_arena(r->plan, r->x, UINT64_MAX, &diag));
    check_refusal("the arena at", "overlaps"); /* the constant, or what lies behind it */
    REFUSED(ash_plan_bind_weights(r->plan, r->x, UINT64_MAX, &diag));
    check_refusal("the packed weights", "overlaps");
    const void *own;
    const ash_view *view;
    float p[N] = {0};
    uint32_t buffer = 0;
    ash_buffer_info info = ASH_INIT(ash_buffer_info);
    assert_ok(ash_plan_set_parameter(r->plan, "p", NULL, p, sizeof p, &diag));
    while (ash_plan_buffer_at(r->plan, buffer, &info, &diag) == ASH_OK &&
           !(info.name && !strcmp(info.name, "p")))
        buffer++;
    assert_ok(ash_plan_buffer_view(r->plan, buffer, &view, &diag));
    assert_ok(ash_view_data(view, &own, &diag));
    REFUSED(ash_plan_bind_arena(r->plan, (void *)own, UINT64_MAX, &diag));
    check_refusal("the arena at", "overlaps"); /* the parameter, or what lies behind it */
}

/* Replicas go on using weights in a block that another of them leaves. */
static void a_block_that_replicas_use(void **state) {
    NOT_APART("memory of the host's for the arena or the weights");
    struct room *r = *state;
    ash_plan *twin;
    make_plan(r, NULL);
    uint64_t size = ash_plan_weights_size(r->plan);
    char *memory = block(size + 64);
    float want[N];
    assert_ok(ash_plan_bind_weights(r->plan, memory, size, &diag));
    assert_ok(ash_plan_bind_weights(r->plan, memory + 64, size, &diag)); /* nobody else: they move */
    assert_ok(ash_plan_bind_weights(r->plan, memory, size, &diag));
    assert_ok(ash_plan_replicate(r->plan, &twin, &diag));
    assert_ok(ash_plan_bind_input(twin, 0, NULL, r->x, BYTES, &diag));
    assert_ok(ash_plan_execute(twin, &diag));
    memcpy(want, output(twin), sizeof want);
    REFUSED(ash_plan_bind_weights(r->plan, memory + 64, size, &diag));
    check_refusal("the packed weights", "the packed weights");
    REFUSED(ash_plan_bind_input(twin, 0, NULL, memory, BYTES, &diag));
    assert_ok(ash_plan_reset_states(twin, &diag));
    assert_ok(ash_plan_execute(twin, &diag));
    assert_memory_equal(output(twin), want, sizeof want);
    ash_plan_destroy(twin);
    ash_plan_destroy(r->plan);
    r->plan = NULL;
    free(memory);
}

/* The output of one plan is the input of the next; two inputs have the same bytes; two plans have one
 * arena. */
static void what_is_allowed(void **state) {
    struct room *r = *state;
    ash_plan *next;
    make_plan(r, NULL);
    assert_ok(ash_plan_replicate(r->plan, &next, &diag));
    assert_ok(ash_plan_bind_input(r->plan, 0, NULL, r->x, BYTES, &diag));
    assert_ok(ash_plan_execute(r->plan, &diag));
    assert_ok(ash_plan_bind_input(next, 0, NULL, output(r->plan), BYTES, &diag));
    for (int i = 0; i < 3; i++) {
        assert_ok(ash_plan_execute(r->plan, &diag));
        assert_ok(ash_plan_execute(next, &diag));
    }
    ash_plan_destroy(next);
    ash_graph *g;
    ash_type type = vector(N);
    assert_ok(ash_graph_create(r->context, "two", &g, &diag));
    ash_graph_output(g, "y", ash_mul(g, ash_graph_input(g, "a", &type), ash_graph_input(g, "b", &type)));
    ash_plan *plans[2];
    for (int i = 0; i < 2; i++) assert_ok(ash_plan_prepare(r->context, g, NULL, &plans[i], &diag));
    if (apart_is_wished() || cuda_is_wished()) { /* memory of the host is out of its reach */
        for (int i = 0; i < 2; i++) ash_plan_destroy(plans[i]);
        ash_graph_destroy(g);
        return;
    }
    char *memory = block(ash_plan_arena_size(plans[0]));
    for (int i = 0; i < 2; i++) {
        assert_ok(ash_plan_bind_arena(plans[i], memory, ash_plan_arena_size(plans[i]), &diag));
        assert_ok(ash_plan_bind_input(plans[i], 0, NULL, r->x, BYTES, &diag));
        assert_ok(ash_plan_bind_input(plans[i], 1, NULL, r->x, BYTES, &diag));
        assert_ok(ash_plan_execute(plans[i], &diag));
        for (int k = 0; k < N; k++) assert_true(output(plans[i])[k] == r->x[k] * r->x[k]);
        ash_plan_destroy(plans[i]);
    }
    ash_graph_destroy(g);
    free(memory);
}

/* An allocator that gives out what the caller has bound: memory that appears is checked, too. */
static char pool[BYTES * 8] __attribute__((aligned(4096)));
static bool from_pool;

static void *pool_alloc(void *user, size_t size, size_t align) {
    (void)user;
    if (from_pool && size >= BYTES) return size <= sizeof pool ? pool : NULL;
    align = align < 16 ? 16 : align;
    return aligned_alloc(align, (size + align - 1) / align * align);
}

static void pool_free(void *user, void *ptr, size_t size) {
    (void)user, (void)size;
    if ((char *)ptr != pool) free(ptr);
}

static void memory_that_appears(void **state) {
    NOT_APART("bytes of the host's that kernels read where they lie");
    struct room *r = *state;
    ash_context *context;
    ash_plan *plan;
    ash_context_options options = {.allocator = {pool_alloc, pool_free, NULL}, .threads = 1};
    assert_ok(ash_context_create(&options, &context, &diag));
    make_graph(r, context, NULL, ASH_DATA_COPY);
    assert_ok(ash_plan_prepare(context, r->g, NULL, &plan, &diag));
    assert_ok(ash_plan_bind_input(plan, 0, NULL, pool + 64, BYTES, &diag));
    from_pool = true;
    REFUSED(ash_plan_execute(plan, &diag));
    check_refusal("input \"x\"", "the plan's");
    from_pool = false;
    assert_ok(ash_plan_execute(plan, &diag));
    ash_plan_destroy(plan);
    ash_graph_destroy(r->g);
    r->g = NULL;
    ash_context_destroy(context);
}

/* --- files ---------------------------------------------------------------------------------------- */

static void make_file(struct room *r) {
    ash_storage *storage;
    char name[80];
    ash_type type = vector(N);
    strcpy(r->path, "/tmp/ashlar_lent_XXXXXX");
    int fd = mkstemp(r->path);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, r->x, BYTES), BYTES);
    close(fd);
    snprintf(name, sizeof name, "DISK:%s", r->path);
    assert_ok(ash_device_open(r->context, name, &r->device, &diag));
    assert_ok(ash_storage_create(r->device, BYTES, 0, &storage, &diag));
    assert_ok(ash_view_create(storage, 0, BYTES, &type, &r->view, &diag));
    ash_storage_release(storage);
}

static const void *file_data(struct room *r) {
    const void *data;
    assert_ok(ash_view_data(r->view, &data, &diag));
    return data;
}

static void cut(struct room *r) {
    assert_int_equal(truncate(r->path, 5000), 0);
}

#define CUT(call)                                                                                          \
    do {                                                                                                   \
        assert_status(call, ASH_ERROR_IO);                                                                 \
        assert_non_null(strstr(diag.message, r->path));                                                    \
    } while (0)

/* Bound by address and by view: cut between binding and executing, and before. */
static void bound_inputs_in_a_file(void **state) {
    struct room *r = *state;
    float want[N];
    make_plan(r, NULL);
    make_file(r);
    const void *data = file_data(r);
    assert_ok(ash_plan_bind_input(r->plan, 0, NULL, r->x, BYTES, &diag));
    assert_ok(ash_plan_execute(r->plan, &diag));
    memcpy(want, output(r->plan), sizeof want);
    for (int by_view = 0; by_view < 2; by_view++) {
        if (by_view)
            assert_ok(ash_plan_bind_input_view(r->plan, 0, r->view, &diag));
        else
            assert_ok(ash_plan_bind_input(r->plan, 0, NULL, data, BYTES, &diag));
        assert_ok(ash_plan_reset_states(r->plan, &diag));
        assert_ok(ash_plan_execute(r->plan, &diag));
        assert_memory_equal(output(r->plan), want, sizeof want);
        cut(r);
        CUT(ash_plan_execute(r->plan, &diag));
        assert_string_equal(diag.node, "x");
        CUT(ash_plan_bind_input(r->plan, 0, NULL, data, BYTES, &diag));
        assert_int_not_equal(ash_plan_bind_input_view(r->plan, 0, r->view, &diag), ASH_OK);
        CUT(ash_plan_execute(r->plan, &diag));
        int fd = open(r->path, O_WRONLY); /* it is whole again */
        assert_int_equal(write(fd, r->x, BYTES), BYTES);
        close(fd);
        assert_ok(ash_plan_execute(r->plan, &diag));
    }
    cut(r);
    assert_ok(ash_plan_bind_input(r->plan, 0, NULL, r->x, BYTES, &diag)); /* no longer bound to it */
    assert_ok(ash_plan_execute(r->plan, &diag));
    assert_memory_equal(output(r->plan), want, sizeof want);
}

/* What is bound keeps the file mapped when the view and the device go. */
static void a_file_is_held(void **state) {
    struct room *r = *state;
    make_plan(r, NULL);
    for (int by_view = 0; by_view < 2; by_view++) {
        make_file(r);
        if (by_view)
            assert_ok(ash_plan_bind_input_view(r->plan, 0, r->view, &diag));
        else
            assert_ok(ash_plan_bind_input(r->plan, 0, NULL, file_data(r), BYTES, &diag));
        ash_view_release(r->view);
        ash_device_close(r->device);
        r->view = NULL;
        r->device = NULL;
        unlink(r->path);
        assert_ok(ash_plan_execute(r->plan, &diag));
    }
}

/* Calls that copy: at once, or not at all. */
static void copies_from_a_file(void **state) {
    struct room *r = *state;
    float before[N];
    ash_type type = vector(N);
    make_plan(r, NULL);
    make_file(r);
    const void *data = file_data(r);
    ash_tensor *tensor = NULL;
    ash_graph *g;
    assert_ok(ash_plan_set_input(r->plan, 0, NULL, r->x, BYTES, &diag));
    assert_ok(ash_plan_execute(r->plan, &diag));
    memcpy(before, output(r->plan), sizeof before);
    cut(r);
    CUT(ash_plan_set_input(r->plan, 0, NULL, data, BYTES, &diag));
    CUT(ash_plan_set_parameter(r->plan, "p", NULL, data, BYTES, &diag));
    CUT(ash_plan_set_state(r->plan, 0, NULL, data, BYTES, &diag));
    assert_int_not_equal(ash_plan_set_input_view(r->plan, 0, r->view, &diag), ASH_OK);
    assert_int_not_equal(ash_plan_set_parameter_view(r->plan, "p", r->view, &diag), ASH_OK);
    assert_int_not_equal(ash_plan_set_state_view(r->plan, 0, r->view, &diag), ASH_OK);
    CUT(ash_tensor_create(r->context, "t", &type, data, BYTES, &tensor, &diag));
    assert_null(tensor);
    ash_view *input;
    assert_ok(ash_plan_input(r->plan, 0, &input, &diag));
    CUT(ash_view_copy_in(input, data, BYTES, &diag));
    CUT(ash_onnx_parse(r->context, data, BYTES, NULL, &g, &diag));
    CUT(ash_graph_parse(r->context, data, BYTES, &g, &diag));
    const void *inputs[] = {data};
    ash_reference *reference;
    CUT(ash_reference_run(r->g, inputs, 1, NULL, NULL, 0, &reference, &diag));
    for (int borrow = 0; borrow < 2; borrow++) {
        assert_ok(ash_graph_create(r->context, "g", &g, &diag));
        ash_graph_constant(g, &type, data, BYTES, borrow ? ASH_DATA_BORROW : ASH_DATA_COPY);
        CUT(ash_graph_status(g, &diag));
        ash_graph_destroy(g);
    }
    assert_ok(ash_plan_reset_states(r->plan, &diag));
    assert_ok(ash_plan_execute(r->plan, &diag));
    assert_memory_equal(output(r->plan), before, sizeof before);
    /* The part of it that is still there can be copied. */
    assert_ok(ash_tensor_create(r->context, "t", &(ash_type){.dtype = ASH_F32, .rank = 1, .dims = {1000}},
                                data, 4000, &tensor, &diag));
    ash_tensor_destroy(tensor);
}

/* A constant that was borrowed by address: cut before preparing, and before executing; written, printed,
 * evaluated. */
static void a_borrowed_constant(void **state) {
    NOT_APART("bytes of the host's that kernels read where they lie");
    struct room *r = *state;
    ash_type type = vector(N);
    const void *inputs[] = {r->x};
    char *text;
    size_t len;
    ash_reference *reference;
    make_file(r);
    for (int before = 0; before < 2; before++) {
        if (before) {
            ash_view_release(r->view);
            ash_device_close(r->device);
            unlink(r->path);
            make_file(r);
        }
        make_graph(r, r->context, file_data(r), ASH_DATA_BORROW);
        if (!before) {
            assert_ok(ash_plan_prepare(r->context, r->g, NULL, &r->plan, &diag));
            assert_ok(ash_plan_bind_input(r->plan, 0, NULL, r->x, BYTES, &diag));
            assert_ok(ash_plan_execute(r->plan, &diag));
            assert_true(ash_plan_describe(r->plan).mapped >= BYTES);
        }
        cut(r);
        if (!before) CUT(ash_plan_execute(r->plan, &diag));
        ash_plan_destroy(r->plan);
        r->plan = NULL;
        CUT(ash_plan_prepare(r->context, r->g, NULL, &r->plan, &diag));
        CUT(ash_reference_run(r->g, inputs, 1, NULL, NULL, 0, &reference, &diag));
        CUT(ash_graph_print(r->g, true, &text, &len, &diag));
        CUT(ash_graph_verify(r->g, &diag));
        ash_graph_destroy(r->g);
        r->g = NULL;
    }
    ash_graph *g;
    ash_view_release(r->view);
    ash_device_close(r->device);
    unlink(r->path);
    make_file(r);
    assert_ok(ash_graph_create(r->context, "g", &g, &diag));
    ash_graph_output(g, "y",
                     ash_neg(g, ash_graph_constant(g, &type, file_data(r), BYTES, ASH_DATA_BORROW)));
    cut(r);
    CUT(ash_onnx_write(g, "/tmp/ashlar_lent_never.onnx", NULL, &diag));
    assert_int_not_equal(access("/tmp/ashlar_lent_never.onnx", F_OK), 0);
    ash_graph_destroy(g);
}

/* What a state begins with lies in a file that is cut when it is needed again. */
static void the_beginning_of_a_state(void **state) {
    struct room *r = *state;
    ash_graph *g;
    ash_type type = vector(N);
    make_file(r);
    assert_ok(ash_graph_create(r->context, "g", &g, &diag));
    ash_value s = ash_graph_state(g, "s", &type, file_data(r), BYTES, ASH_DATA_BORROW);
    ash_graph_update(g, s, ash_add(g, s, s));
    ash_graph_output(g, "y", ash_neg(g, s));
    assert_ok(ash_plan_prepare(r->context, g, NULL, &r->plan, &diag));
    ash_graph_destroy(g);
    assert_ok(ash_plan_execute(r->plan, &diag));
    assert_ok(ash_plan_execute(r->plan, &diag));
    cut(r);
    CUT(ash_plan_reset_state(r->plan, 0, &diag));
    CUT(ash_plan_reset_states(r->plan, &diag));
    assert_ok(ash_plan_execute(r->plan, &diag)); /* it is what it was */
    assert_true(output(r->plan)[0] == -4 * r->x[0]);
    assert_ok(ash_plan_release_all(r->plan, NULL, &diag));
    CUT(ash_plan_execute(r->plan, &diag));
}

/* A tensor that was read, and one call for all: of this context and of another. */
static void a_tensor_that_was_read(void **state) {
    struct room *r = *state;
    for (int other = 0; other < 2; other++) {
        ash_type type = vector(N);
        ash_tensor *tensor, *result = NULL;
        char path[] = "/tmp/ashlar_lent_XXXXXX.npy";
        int fd = mkstemps(path, 4);
        close(fd);
        assert_ok(ash_tensor_create(r->context, "t", &type, r->x, BYTES, &tensor, &diag));
        assert_ok(ash_tensor_write(tensor, path, &diag));
        ash_tensor_destroy(tensor);
        make_graph(r, r->context, NULL, ASH_DATA_COPY);
        assert_ok(ash_tensor_read(other ? r->other : r->context, path, &tensor, &diag));
        ash_eager_call call = {.inputs = (const ash_tensor *const[]){tensor},
                               .input_count = 1,
                               .outputs = &result,
                               .output_count = 1};
        assert_ok(ash_eager(r->context, r->g, NULL, &call, &diag));
        ash_tensor_destroy(result);
        assert_int_equal(truncate(path, 300), 0);
        assert_status(ash_eager(r->context, r->g, NULL, &call, &diag), ASH_ERROR_IO);
        assert_null(result);
        char copy[] = "/tmp/ashlar_lent_copy.npy";
        assert_status(ash_tensor_write(tensor, copy, &diag), ASH_ERROR_IO);
        ash_tensor_destroy(tensor);
        ash_graph_destroy(r->g);
        r->g = NULL;
        unlink(path);
    }
}

/* A storage around bytes that only happen to lie in a mapped file. */
static void wrapped_bytes_of_a_file(void **state) {
    NOT_APART("memory of the host's for the arena or the weights");
    struct room *r = *state;
    ash_storage *storage;
    ash_view *view;
    ash_type type = vector(N);
    float copy[N];
    make_file(r);
    void *data = (void *)file_data(r);
    REFUSED(ash_storage_wrap(r->context, data, BYTES, true, &storage, &diag));
    assert_non_null(strstr(diag.message, r->path));
    assert_ok(ash_storage_wrap(r->context, data, BYTES, false, &storage, &diag));
    assert_ok(ash_view_create(storage, 0, BYTES, &type, &view, &diag));
    ash_storage_release(storage);
    ash_view_release(r->view);
    ash_device_close(r->device);
    r->view = NULL;
    r->device = NULL;
    assert_ok(ash_view_copy_out(view, copy, sizeof copy, &diag)); /* which holds the file */
    assert_memory_equal(copy, r->x, sizeof copy);
    cut(r);
    CUT(ash_view_copy_out(view, copy, sizeof copy, &diag));
    ash_view_release(view);
    /* Blocks that a plan would write. */
    make_plan(r, NULL);
    make_file(r);
    REFUSED(ash_plan_bind_arena(r->plan, (void *)file_data(r), UINT64_MAX, &diag));
    check_refusal("the arena", r->path);
    REFUSED(ash_plan_bind_weights(r->plan, (void *)file_data(r), UINT64_MAX, &diag));
    check_refusal("the weights", r->path);
}

/* --- views ---------------------------------------------------------------------------------------- */

static ash_view *make_view(struct room *r, ash_context *context, const ash_type *type, const void *data) {
    ash_storage *storage;
    ash_device *cpu;
    ash_view *view;
    (void)r;
    assert_ok(ash_device_open(context, "CPU", &cpu, &diag));
    assert_ok(ash_storage_create(cpu, BYTES, 0, &storage, &diag));
    assert_ok(ash_view_create(storage, 0, BYTES, type, &view, &diag));
    assert_ok(ash_view_copy_in(view, data, BYTES, &diag));
    ash_storage_release(storage);
    ash_device_close(cpu);
    return view;
}

static void views_have_types(void **state) {
    struct room *r = *state;
    make_plan(r, NULL);
    ash_type types[] = {vector(N),
                        {.dtype = ASH_I32, .rank = 1, .dims = {N}},
                        {.dtype = ASH_F32, .rank = 2, .dims = {2, N / 2}}};
    static const ash_status want[] = {ASH_OK, ASH_ERROR_TYPE, ASH_ERROR_SHAPE};
    for (int i = 2; i >= 0; i--) {
        ash_view *view = make_view(r, r->context, &types[i], r->x);
        assert_status(ash_plan_bind_input_view(r->plan, 0, view, &diag), want[i]);
        if (i == 2) {
            assert_string_equal(diag.message, "f32[2, 2048] was given, the input is f32[4096]");
            assert_string_equal(diag.node, "x");
        }
        assert_status(ash_plan_set_parameter_view(r->plan, "p", view, &diag), want[i]);
        assert_status(ash_plan_set_state_view(r->plan, 0, view, &diag), want[i]);
        assert_status(ash_plan_set_input_view(r->plan, 0, view, &diag), want[i]);
        if (i) assert_status(ash_plan_execute(r->plan, &diag), ASH_ERROR_STATE);
        ash_view_release(view);
    }
    assert_ok(ash_plan_execute(r->plan, &diag));
    const ash_view *s;
    float now[N];
    assert_ok(ash_plan_state(r->plan, 0, &s, &diag));
    assert_ok(ash_view_copy_out(s, now, sizeof now, &diag));
    for (int i = 0; i < N; i++) assert_true(now[i] == 2 * r->x[i]);
    assert_status(ash_plan_set_parameter_view(r->plan, "none", s, &diag), ASH_ERROR_NOT_FOUND);
    assert_status(ash_plan_set_state_view(r->plan, 1, s, &diag), ASH_ERROR_NOT_FOUND);
    assert_status(ash_plan_set_input_view(r->plan, 1, s, &diag), ASH_ERROR_NOT_FOUND);
    assert_status(ash_plan_bind_input_view(r->plan, 1, s, &diag), ASH_ERROR_NOT_FOUND);
}

/* A bound view keeps its storage; one of the input itself is copied. */
static void bound_views_hold(void **state) {
    struct room *r = *state;
    float want[N];
    ash_type type = vector(N);
    make_plan(r, NULL);
    assert_ok(ash_plan_set_input(r->plan, 0, NULL, r->x, BYTES, &diag));
    assert_ok(ash_plan_execute(r->plan, &diag));
    memcpy(want, output(r->plan), sizeof want);
    long long live = r->memory.live;
    ash_view *view = make_view(r, r->context, &type, r->x), *own;
    assert_ok(ash_plan_bind_input_view(r->plan, 0, view, &diag));
    assert_ok(ash_plan_bind_input_view(r->plan, 0, view, &diag));
    ash_view_release(view);
    assert_true(r->memory.live >= live + BYTES);
    assert_ok(ash_plan_reset_states(r->plan, &diag));
    assert_ok(ash_plan_execute(r->plan, &diag));
    assert_memory_equal(output(r->plan), want, sizeof want);
    assert_ok(ash_plan_set_input(r->plan, 0, NULL, r->x, BYTES, &diag));
    assert_true(r->memory.live < live + BYTES);
    view = make_view(r, r->context, &type, r->x);
    assert_ok(ash_plan_input(r->plan, 0, &own, &diag));
    assert_ok(ash_plan_bind_input_view(r->plan, 0, view, &diag));
    ash_view_release(view);
    assert_ok(ash_plan_set_input_view(r->plan, 0, own, &diag)); /* from where it is to its own place */
    assert_ok(ash_plan_reset_states(r->plan, &diag));
    assert_ok(ash_plan_execute(r->plan, &diag));
    assert_memory_equal(output(r->plan), want, sizeof want);
    assert_ok(ash_plan_bind_input_view(r->plan, 0, own, &diag)); /* where it is already */
    assert_ok(ash_plan_execute(r->plan, &diag));
}

/* --- contexts ------------------------------------------------------------------------------------- */

static void contexts_are_not_mixed(void **state) {
    struct room *r = *state;
    ash_type type = vector(N);
    ash_tensor *result = NULL, *tensor;
    make_graph(r, r->other, NULL, ASH_DATA_COPY);
    REFUSED(ash_plan_prepare(r->context, r->g, NULL, &r->plan, &diag));
    assert_non_null(strstr(diag.message, "another context"));
    assert_null(r->plan);
    assert_ok(ash_tensor_create(r->context, "x", &type, r->x, BYTES, &tensor, &diag));
    ash_eager_call call = {.inputs = (const ash_tensor *const[]){tensor},
                           .input_count = 1,
                           .outputs = &result,
                           .output_count = 1};
    REFUSED(ash_eager(r->context, r->g, NULL, &call, &diag));
    ash_tensor_destroy(tensor);
    ash_graph_destroy(r->g);
    r->g = NULL;
    make_plan(r, NULL);
    ash_view *view = make_view(r, r->other, &type, r->x);
    REFUSED(ash_plan_bind_input_view(r->plan, 0, view, &diag));
    assert_non_null(strstr(diag.message, "another context"));
    assert_ok(ash_plan_set_input_view(r->plan, 0, view, &diag)); /* a copy */
    ash_view_release(view);
    ash_context_destroy(r->other);
    r->other = NULL;
    assert_ok(ash_plan_execute(r->plan, &diag));
}

int main(void) {
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, leave)
    const struct CMUnitTest tests[] = {
        TEST(the_output_as_input),    TEST(an_input_in_the_arena),     TEST(weights_in_the_arena),
        TEST(blocks_over_constants),  TEST(a_block_that_replicas_use), TEST(what_is_allowed),
        TEST(memory_that_appears),    TEST(bound_inputs_in_a_file),    TEST(a_file_is_held),
        TEST(copies_from_a_file),     TEST(a_borrowed_constant),       TEST(the_beginning_of_a_state),
        TEST(a_tensor_that_was_read), TEST(wrapped_bytes_of_a_file),   TEST(views_have_types),
        TEST(bound_views_hold),       TEST(contexts_are_not_mixed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
