/* SPDX-License-Identifier: MIT */
/* States in the caller's memory: as a view on the plan's device, or as a bare pointer, which a device that
 * does not reach it copies from and to. */
#include "state_testing.h"

#include <fcntl.h>
#include <unistd.h>

enum { BYTES = CELLS * 4 };

/* A view on the plan's device with all cells at `value`. */
static ash_view *new_view(ash_plan *plan, int32_t value) {
    ash_type type = square();
    ash_storage *storage;
    ash_view *view;
    int32_t cells[CELLS];
    for (int i = 0; i < CELLS; i++) cells[i] = value;
    assert_ok(ash_storage_create(ash_plan_device(plan), BYTES, 64, &storage, &diag));
    assert_ok(ash_view_create(storage, 0, BYTES, &type, &view, &diag));
    ash_storage_release(storage);
    assert_ok(ash_view_copy_in(view, cells, sizeof cells, &diag));
    return view;
}

static void check_view(const ash_view *view, int32_t value) {
    int32_t cells[CELLS];
    assert_ok(ash_view_copy_out(view, cells, sizeof cells, &diag));
    assert_all(cells, value);
}

static void check_state(ash_plan *plan, size_t position, int32_t value) {
    int32_t cells[CELLS];
    read_state(plan, position, cells);
    assert_all(cells, value);
}

static void add(ash_plan *plan, int32_t value) {
    int32_t cells[CELLS];
    for (int i = 0; i < CELLS; i++) cells[i] = value;
    assert_ok(ash_plan_set_input(plan, 0, NULL, cells, sizeof cells, &diag));
    assert_ok(ash_plan_execute(plan, &diag));
}

static void set_all(int32_t *cells, int32_t value) {
    for (int i = 0; i < CELLS; i++) cells[i] = value;
}

static void prepare_counter(struct room *r, int mode) {
    ash_plan_options options = ash_plan_options_default();
    options.mode = (ash_mode)mode;
    options.streams = mode == ASH_MODE_MULTI_STREAM ? 2 : 1;
    options.poison = true;
    make_counter(r);
    prepare(r, &options);
    assert_int_equal(ash_plan_state_size(r->plan, 0), BYTES);
    assert_int_equal(ash_plan_state_align(r->plan, 0), 64);
}

/* Callers take turns with a plan, each with a state of its own. */
static void views_take_turns(void **state) {
    struct room *r = *state;
    for (int mode = 0; mode < ASH_MODE_COUNT; mode++)
        for (int warm = 0; warm < 2; warm++) {
            int32_t cells[CELLS];
            prepare_counter(r, mode);
            if (warm) add(r->plan, 1000);
            ash_view *first = new_view(r->plan, 10), *second = new_view(r->plan, 500);
            assert_ok(ash_plan_bind_state_view(r->plan, 0, first, &diag));
            check_state(r->plan, 0, 10);
            add(r->plan, 1);
            check_view(first, 11);
            read_output(r->plan, 0, cells);
            assert_all(cells, 10);
            read_output(r->plan, 1, cells); /* the new value, in the same bytes */
            assert_all(cells, 11);
            assert_ok(ash_plan_bind_state_view(r->plan, 0, second, &diag));
            add(r->plan, 2);
            assert_ok(ash_plan_execute(r->plan, &diag));
            check_view(second, 504);
            check_view(first, 11);
            check_state(r->plan, 0, 504);
            /* between executions it is the caller's to write */
            set_all(cells, 7);
            assert_ok(ash_view_copy_in(second, cells, sizeof cells, &diag));
            assert_ok(ash_plan_execute(r->plan, &diag));
            check_view(second, 9);
            /* setting and resetting write there */
            set_all(cells, -3);
            assert_ok(ash_plan_set_state(r->plan, 0, NULL, cells, sizeof cells, &diag));
            check_view(second, -3);
            assert_ok(ash_plan_reset_state(r->plan, 0, &diag));
            check_view(second, 0);
            add(r->plan, 5);
            /* the plan's memory again takes the value over */
            assert_ok(ash_plan_bind_state_view(r->plan, 0, NULL, &diag));
            check_state(r->plan, 0, 5);
            add(r->plan, 1);
            check_state(r->plan, 0, 6);
            check_view(second, 5);
            ash_view_release(first);
            ash_view_release(second);
        }
}

/* The same by a bare pointer: in place, or copied by a device that does not reach it. */
static void bare_pointers(void **state) {
    struct room *r = *state;
    static _Alignas(64) int32_t memory[CELLS], other[CELLS];
    for (int mode = 0; mode < ASH_MODE_COUNT; mode++)
        for (int warm = 0; warm < 2; warm++) {
            prepare_counter(r, mode);
            if (warm) add(r->plan, 1000);
            set_all(memory, 10);
            assert_ok(ash_plan_bind_state(r->plan, 0, memory, sizeof memory, &diag));
            check_state(r->plan, 0, 10);
            add(r->plan, 1);
            assert_all(memory, 11);
            set_all(memory, 20);
            check_state(r->plan, 0, 20);
            assert_ok(ash_plan_execute(r->plan, &diag));
            assert_all(memory, 21);
            set_all(other, 33);
            assert_ok(ash_plan_set_state(r->plan, 0, NULL, other, sizeof other, &diag));
            assert_all(memory, 33);
            assert_ok(ash_plan_bind_state(r->plan, 0, other, sizeof other, &diag));
            assert_ok(ash_plan_reset_states(r->plan, &diag));
            assert_all(other, 0);
            assert_all(memory, 33);
            add(r->plan, 4);
            long before = r->memory.count;
            add(r->plan, 4);
            assert_int_equal(r->memory.count, before);
            assert_ok(ash_plan_bind_state(r->plan, 0, NULL, 0, &diag));
            add(r->plan, 1);
            assert_all(other, 8);
            check_state(r->plan, 0, 9);
        }
}

/* A reset before anything is there, and what releasing and replicas leave. */
static void it_is_the_callers(void **state) {
    struct room *r = *state;
    static _Alignas(64) int32_t memory[CELLS];
    ash_plan *twin;
    uint64_t released;
    prepare_counter(r, 0);
    set_all(memory, 10);
    assert_ok(ash_plan_bind_state(r->plan, 0, memory, sizeof memory, &diag));
    assert_ok(ash_plan_reset_state(r->plan, 0, &diag));
    assert_all(memory, 0);
    add(r->plan, 3);
    assert_ok(ash_plan_release_all(r->plan, &released, &diag));
    assert_all(memory, 3);
    check_state(r->plan, 0, 3);
    add(r->plan, 3);
    assert_all(memory, 6);
    assert_ok(ash_plan_replicate(r->plan, &twin, &diag));
    add(twin, 1);
    check_state(twin, 0, 1);
    assert_all(memory, 6);
    ash_plan_destroy(twin);
    /* bound before there is any memory, and taken back: the value is the caller's */
    assert_ok(ash_plan_release_all(r->plan, &released, &diag));
    assert_ok(ash_plan_bind_state(r->plan, 0, NULL, 0, &diag));
    set_all(memory, 99);
    check_state(r->plan, 0, 6);
    ash_view *view = new_view(r->plan, 40); /* the plan holds what a view has */
    ash_storage *storage = ash_storage_retain(ash_view_storage(view));
    assert_ok(ash_plan_bind_state_view(r->plan, 0, view, &diag));
    ash_view_release(view);
    assert_true(ash_storage__is_shared(storage));
    add(r->plan, 2);
    check_state(r->plan, 0, 42);
    ash_plan_destroy(r->plan);
    r->plan = NULL;
    assert_false(ash_storage__is_shared(storage));
    ash_storage_release(storage);
}

/* An execution that ends on the way leaves it undefined, until it is set, reset, or bound. */
static void failed_executions(void **state) {
    struct room *r = *state;
    static _Alignas(64) int32_t memory[CELLS];
    prepare_counter(r, 0);
    set_all(memory, 10);
    assert_ok(ash_plan_bind_state(r->plan, 0, memory, sizeof memory, &diag));
    add(r->plan, 1);
    ash_plan__note_incomplete(r->plan);
    assert_status(ash_plan_execute(r->plan, &diag), ASH_ERROR_STATE);
    assert_string_equal(diag.node, "count");
    assert_ok(ash_plan_release_all(r->plan, NULL, &diag));
    set_input(r->plan, 0, 1);
    assert_status(ash_plan_execute(r->plan, &diag), ASH_ERROR_STATE); /* it is no other memory */
    set_all(memory, 70);
    assert_ok(ash_plan_bind_state(r->plan, 0, memory, sizeof memory, &diag));
    add(r->plan, 1);
    assert_all(memory, 71);
}

#define REFUSED(call, code, name)                                                                          \
    do {                                                                                                   \
        assert_status(call, code);                                                                         \
        if (!strstr(diag.message, name)) fail_msg("%s", diag.message);                                     \
    } while (0)

/* One state's memory is nobody else's. */
static void overlaps(void **state) {
    struct room *r = *state;
    enum { X = 96 }; /* where the input is: at a multiple of 64 bytes */
    static _Alignas(64) int32_t memory[X + CELLS];
    ash_plan *plan;
    fresh_graph(r);
    ash_value a = zero_state(r->g, "a"), b = zero_state(r->g, "b"), x = square_input(r->g, "x");
    ash_graph_update(r->g, a, ash_add(r->g, a, x));
    ash_graph_update(r->g, b, ash_sub(r->g, b, x));
    prepare(r, NULL);
    plan = r->plan;
    assert_ok(ash_plan_bind_state(plan, 0, memory, BYTES, &diag));
    REFUSED(ash_plan_bind_state(plan, 1, memory + 16, BYTES, &diag), ASH_ERROR_INVALID_ARGUMENT,
            "state \"b\"");
    assert_non_null(strstr(diag.message, "state \"a\""));
    assert_string_equal(diag.node, "b");
    assert_ok(ash_plan_bind_state(plan, 0, memory, BYTES, &diag)); /* the same again is none */
    REFUSED(ash_plan_bind_input(plan, 0, NULL, memory, BYTES, &diag), ASH_ERROR_INVALID_ARGUMENT,
            "state \"a\"");
    assert_ok(ash_plan_bind_input(plan, 0, NULL, memory + X, BYTES, &diag));
    REFUSED(ash_plan_bind_state(plan, 1, memory + X - 16, BYTES, &diag), ASH_ERROR_INVALID_ARGUMENT,
            "input \"x\"");
    if (!apart_is_wished() && !cuda_is_wished()) {
        int32_t *block = aligned_alloc(64, ash_plan_arena_size(plan) + 64);
        assert_ok(ash_plan_bind_arena(plan, block, ash_plan_arena_size(plan), &diag));
        REFUSED(ash_plan_bind_state(plan, 1, block, BYTES, &diag), ASH_ERROR_INVALID_ARGUMENT,
                "the arena that was bound");
        assert_ok(ash_plan_bind_arena(plan, NULL, 0, &diag));
        REFUSED(ash_plan_bind_arena(plan, memory, sizeof memory, &diag), ASH_ERROR_INVALID_ARGUMENT,
                "state \"a\"");
        free(block);
    }
    /* What was refused has changed nothing. */
    for (int i = 0; i < CELLS; i++) memory[i] = 0, memory[X + i] = 4;
    assert_ok(ash_plan_execute(plan, &diag));
    assert_all(memory, 4);
    check_state(plan, 1, -4);
}

static void what_does_not_fit(void **state) {
    struct room *r = *state;
    static _Alignas(64) int32_t memory[CELLS + 16];
    ash_context *elsewhere;
    ash_storage *storage;
    ash_view *view;
    ash_device *other;
    ash_type type = square(), floats = {.dtype = ASH_F32, .rank = 2, .dims = {N, N}};
    prepare_counter(r, 0);
    REFUSED(ash_plan_bind_state(r->plan, 0, memory, BYTES - 4, &diag), ASH_ERROR_OUT_OF_RANGE, "140 bytes");
    REFUSED(ash_plan_bind_state(r->plan, 1, memory, BYTES, &diag), ASH_ERROR_NOT_FOUND, "no state 1");
    if (!apart_is_wished() && !cuda_is_wished()) /* what is copied may lie anywhere */
        REFUSED(ash_plan_bind_state(r->plan, 0, memory + 1, BYTES, &diag), ASH_ERROR_INVALID_ARGUMENT,
                "no multiple of 64");
    assert_ok(ash_storage_wrap(r->context, memory, BYTES, false, &storage, &diag));
    assert_ok(ash_view_create(storage, 0, BYTES, &type, &view, &diag));
    REFUSED(ash_plan_bind_state_view(r->plan, 0, view, &diag), ASH_ERROR_STATE, "read-only");
    ash_view_release(view);
    ash_storage_release(storage);
    assert_ok(ash_storage_wrap(r->context, memory, BYTES, true, &storage, &diag));
    assert_ok(ash_view_create(storage, 0, BYTES, &floats, &view, &diag));
    REFUSED(ash_plan_bind_state_view(r->plan, 0, view, &diag), ASH_ERROR_TYPE, "f32");
    ash_view_release(view);
    ash_storage_release(storage);
    assert_ok(ash_context_create(NULL, &elsewhere, &diag));
    assert_ok(ash_device_open(elsewhere, "CPU", &other, &diag));
    assert_ok(ash_storage_create(other, BYTES, 0, &storage, &diag));
    assert_ok(ash_view_create(storage, 0, BYTES, &type, &view, &diag));
    REFUSED(ash_plan_bind_state_view(r->plan, 0, view, &diag), ASH_ERROR_INVALID_ARGUMENT,
            "another context");
    ash_view_release(view);
    ash_storage_release(storage);
    ash_device_close(other);
    ash_context_destroy(elsewhere);
}

/* A mapped file can be read as a state's value, and nothing can be written there; one that was cut short
 * is not read either. */
static void files(void **state) {
    struct room *r = *state;
    static const int32_t cells[CELLS] = {1, 2, 3};
    char path[] = "/tmp/ashlar_state_XXXXXX", name[64];
    ash_device *disk;
    ash_storage *storage;
    ash_view *view;
    const void *data;
    ash_type type = square();
    int file = mkstemp(path);
    assert_int_equal(write(file, cells, sizeof cells), sizeof cells);
    snprintf(name, sizeof name, "DISK:%s", path);
    assert_ok(ash_device_open(r->context, name, &disk, &diag));
    assert_ok(ash_storage_create(disk, BYTES, 0, &storage, &diag));
    assert_ok(ash_view_create(storage, 0, BYTES, &type, &view, &diag));
    assert_ok(ash_view_data(view, &data, &diag));
    prepare_counter(r, 0);
    assert_ok(ash_plan_set_state_view(r->plan, 0, view, &diag));
    assert_status(ash_plan_bind_state_view(r->plan, 0, view, &diag), ASH_ERROR_STATE);
    REFUSED(ash_plan_bind_state(r->plan, 0, (void *)data, BYTES, &diag), ASH_ERROR_INVALID_ARGUMENT,
            "is mapped and cannot be written");
    assert_int_equal(ftruncate(file, 0), 0);
    assert_int_not_equal(ash_plan_set_state_view(r->plan, 0, view, &diag), ASH_OK);
    REFUSED(ash_plan_bind_state(r->plan, 0, (void *)data, BYTES, &diag), ASH_ERROR_INVALID_ARGUMENT,
            "is mapped and cannot be written");
    ash_view_release(view);
    ash_storage_release(storage);
    ash_device_close(disk);
    close(file);
    unlink(path);
}

/* No memory is taken for states that all lie elsewhere. */
static void the_plan_needs_none(void **state) {
    struct room *r = *state;
    uint64_t own = 0, without = 0;
    NOT_APART("states that the device reaches in the host's memory");
    static _Alignas(64) int32_t memory[CELLS];
    for (int bound = 0; bound < 2; bound++) {
        prepare_counter(r, 0);
        if (bound) assert_ok(ash_plan_bind_state(r->plan, 0, memory, sizeof memory, &diag));
        add(r->plan, 1);
        assert_ok(ash_plan_release_all(r->plan, bound ? &without : &own, &diag));
    }
    assert_true(without + BYTES <= own);
}

int main(void) {
#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(views_take_turns),
        TEST(bare_pointers),
        TEST(it_is_the_callers),
        TEST(failed_executions),
        TEST(overlaps),
        TEST(what_does_not_fit),
        TEST(files),
        TEST(the_plan_needs_none),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
