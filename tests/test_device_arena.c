/* SPDX-License-Identifier: MIT */
/* The caller's memory on a device as the arena, where the host does not reach it: in every mode, with bytes
 * around it that nobody touches; what is refused, and changes nothing. On APART, and on a GPU whose driver
 * is the stand-in (ASHLAR_TEST_DEVICE). */
#include "apart.h"
#include "device_graph.h"
#include "runtime/plan.h"

enum { GUARD = 512, MARK = 0x5c };

#define ROOM_MORE                                                                                          \
    float x[DEVICE_ROWS * DEVICE_COLUMNS];                                                                 \
    device_results want, got;
#include "graph_room.h"

static ash_diag diag;

static ash_status open_device(struct room *r, ash_device **out) {
    return cuda_is_wished() ? ash_device_open(r->context, "CUDA:0", out, &diag)
                            : apart_open(r->context, out, &diag);
}

static ash_plan_options in_mode(struct room *r, int mode, int planner) {
    ash_plan_options options = ash_plan_options_default();
    options.device = r->device;
    options.mode = (ash_mode)mode;
    options.streams = mode == ASH_MODE_MULTI_STREAM ? 3 : 1;
    options.memory.mode = (ash_memory_mode)planner;
    return options;
}

static void check_results(struct room *r, ash_plan *plan) {
    assert_ok(device_run(plan, NULL, 0, &r->got, &diag));
    assert_true(device_same(&r->want, &r->got));
}

static int setup(void **state) {
    ash_plan *plan;
    room_open(state, 2);
    struct room *r = *state;
    assert_ok(open_device(r, &r->device));
    device_input(r->x);
    assert_ok(ash_graph_create(r->context, "g", &r->g, &diag));
    device_graph(r->g);
    assert_ok(ash_graph_status(r->g, &diag));
    const ash_plan_options options = in_mode(r, ASH_MODE_STREAM, ASH_MEMORY_ARENA);
    assert_ok(ash_plan_prepare(r->context, r->g, &options, &plan, &diag));
    assert_ok(device_run(plan, NULL, 0, &r->want, &diag));
    ash_plan_destroy(plan);
    return 0;
}

static void prepare(struct room *r, const ash_plan_options *options) {
    ash_plan_destroy(r->plan);
    r->plan = NULL;
    assert_ok(ash_plan_prepare(r->context, r->g, options, &r->plan, &diag));
}

/* --- memory ------------------------------------------------------------------------------------------ */

/* Bytes of a device, all of them marked. */
static ash_view *marked(ash_device *device, uint64_t bytes) {
    const ash_type type = {ASH_U8, 1, {(int64_t)bytes}};
    ash_storage *storage;
    ash_view *view;
    char *marks = malloc(bytes);
    memset(marks, MARK, bytes);
    assert_ok(ash_storage_create(device, bytes, 256, &storage, &diag));
    assert_ok(ash_view_create(storage, 0, bytes, &type, &view, &diag));
    assert_ok(ash_view_copy_in(view, marks, bytes, &diag));
    ash_storage_release(storage);
    free(marks);
    return view;
}

static ash_view *part(const ash_view *view, uint64_t offset, uint64_t bytes) {
    const ash_type type = {ASH_U8, 1, {(int64_t)bytes}};
    ash_view *slice;
    assert_ok(ash_view_slice(view, offset, bytes, &type, &slice, &diag));
    return slice;
}

static void mark_again(const ash_view *view, uint64_t offset, uint64_t bytes) {
    ash_view *slice = part(view, offset, bytes);
    char *marks = malloc(bytes);
    memset(marks, MARK, bytes);
    assert_ok(ash_view_copy_in(slice, marks, bytes, &diag));
    ash_view_release(slice);
    free(marks);
}

/* How many bytes of a range are not as they were. */
static uint64_t touched(const ash_view *view, uint64_t offset, uint64_t bytes) {
    ash_view *slice = part(view, offset, bytes);
    char *data = malloc(bytes);
    uint64_t count = 0;
    assert_ok(ash_view_copy_out(slice, data, bytes, &diag));
    for (uint64_t i = 0; i < bytes; i++) count += data[i] != MARK;
    ash_view_release(slice);
    free(data);
    return count;
}

/* A block with an arena of exactly its size in the middle. */
typedef struct block {
    ash_view *whole, *arena;
    uint64_t offset, bytes;
} block;

static block block_of(const ash_plan *plan, uint64_t more) {
    block b = {.bytes = ash_plan_arena_size(plan)};
    uint64_t align = ash_plan_arena_align(plan);
    assert_true(b.bytes > 0 && align > 0 && 256 % align == 0);
    b.offset = GUARD + align; /* a multiple of no more than that */
    b.whole = marked(ash_plan_device(plan), b.offset + b.bytes + GUARD + more);
    b.arena = part(b.whole, b.offset, b.bytes);
    return b;
}

static void block_is_used(const block *b, const ash_plan *plan) {
    const ash_view *view;
    ash_address begin, at;
    assert_int_equal(touched(b->whole, 0, b->offset), 0);
    assert_int_equal(touched(b->whole, b->offset + b->bytes, GUARD), 0);
    assert_true(touched(b->whole, b->offset, b->bytes) > 0);
    assert_ok(ash_storage__address(ash_view_storage(b->whole), &begin, &diag));
    for (size_t o = 0; o < DEVICE_OUTPUTS; o++) { /* outputs lie in it */
        assert_ok(ash_plan_output((ash_plan *)plan, o, &view, &diag));
        assert_ok(ash_storage__address(ash_view_storage(view), &at, &diag));
        at += ash_view_offset(view);
        assert_true(at >= begin + b->offset && at + ash_view_bytes(view) <= begin + b->offset + b->bytes);
    }
}

static void block_drop(block *b) {
    ash_view_release(b->arena);
    ash_view_release(b->whole);
    *b = (block){0};
}

/* --- tests ------------------------------------------------------------------------------------------- */

static void in_every_mode(void **state) {
    struct room *r = *state;
    for (int i = 0; i < ASH_MODE_COUNT * ASH_MEMORY_MODE_COUNT * 2; i++) {
        ash_plan_options options =
            in_mode(r, i % ASH_MODE_COUNT, i / ASH_MODE_COUNT % ASH_MEMORY_MODE_COUNT);
        options.poison = i / ASH_MODE_COUNT / ASH_MEMORY_MODE_COUNT;
        prepare(r, &options);
        block b = block_of(r->plan, 0), other = block_of(r->plan, 0);
        assert_ok(ash_plan_bind_arena_view(r->plan, b.arena, &diag));
        check_results(r, r->plan);
        block_is_used(&b, r->plan);
        /* Another block, which what was captured has to follow. */
        assert_ok(ash_plan_release_intermediates(r->plan, NULL, &diag));
        assert_ok(ash_plan_bind_arena_view(r->plan, other.arena, &diag));
        mark_again(b.whole, b.offset, b.bytes);
        check_results(r, r->plan);
        block_is_used(&other, r->plan);
        assert_int_equal(touched(b.whole, b.offset, b.bytes), 0);
        /* Memory of its own again. */
        assert_ok(ash_plan_release_all(r->plan, NULL, &diag));
        assert_ok(ash_plan_bind_arena_view(r->plan, NULL, &diag));
        mark_again(other.whole, other.offset, other.bytes);
        check_results(r, r->plan);
        assert_int_equal(touched(other.whole, other.offset, other.bytes), 0);
        block_drop(&b), block_drop(&other);
    }
}

/* Refused, with a word of the reason; the plan goes on in the block that it has. */
static void refused(ash_plan *plan, ash_view *view, ash_status status, const char *why) {
    assert_status(ash_plan_bind_arena_view(plan, view, &diag), status);
    if (!strstr(diag.message, why)) fail_msg("\"%s\" is not in: %s", why, diag.message);
    ash_view_release(view);
}

static void refusals_change_nothing(void **state) {
    struct room *r = *state;
    ash_device *cpu, *another;
    const ash_type row = {ASH_F32, 2, {DEVICE_ROWS, DEVICE_COLUMNS}};
    assert_ok(ash_device_open(r->context, "CPU", &cpu, &diag));
    assert_ok(apart_open_another(r->context, 7, &another, &diag));
    for (int mode = 0; mode < ASH_MODE_COUNT; mode++) {
        const ash_plan_options options = in_mode(r, mode, ASH_MEMORY_ARENA);
        prepare(r, &options);
        uint64_t bytes = ash_plan_arena_size(r->plan), align = ash_plan_arena_align(r->plan),
                 weights = ash_plan_weights_size(r->plan);
        block b = block_of(r->plan, bytes + weights + sizeof r->x + 1024);
        assert_true(weights > 0);
        assert_ok(ash_plan_bind_arena_view(r->plan, b.arena, &diag));
        refused(r->plan, part(b.whole, b.offset, bytes - 1), ASH_ERROR_OUT_OF_RANGE, "are needed");
        refused(r->plan, part(b.whole, b.offset + align / 2, bytes), ASH_ERROR_INVALID_ARGUMENT,
                "no multiple");
        refused(r->plan, marked(cpu, bytes), ASH_ERROR_DEVICE, "out of the reach");
        refused(r->plan, marked(another, bytes), ASH_ERROR_DEVICE, "out of the reach");
        /* over the weights, over an input that is read where it lies, by its last bytes */
        uint64_t behind = ash_align_up(b.offset + bytes + GUARD, 256),
                 in = ash_align_up(behind + weights, 256);
        ash_view *packed = part(b.whole, behind, weights), *x;
        assert_ok(ash_plan_bind_weights_view(r->plan, packed, &diag));
        assert_ok(ash_view_slice(b.whole, in, sizeof r->x, &row, &x, &diag));
        assert_ok(ash_view_copy_in(x, r->x, sizeof r->x, &diag));
        const ash_var_binding rows = {"rows", DEVICE_ROWS};
        assert_ok(ash_plan_set_vars(r->plan, &rows, 1, &diag));
        assert_ok(ash_plan_bind_input_view(r->plan, 0, x, &diag));
        refused(r->plan, part(b.whole, behind + (weights - 1) / 256 * 256, bytes),
                ASH_ERROR_INVALID_ARGUMENT, "overlaps");
        refused(r->plan, part(b.whole, in + (sizeof r->x - 1) / 256 * 256, bytes),
                ASH_ERROR_INVALID_ARGUMENT, "overlaps");
        assert_ok(ash_plan_execute(r->plan, &diag));
        refused(r->plan, part(b.whole, b.offset, bytes), ASH_ERROR_STATE, "in use");
        refused(r->plan, NULL, ASH_ERROR_STATE, "in use");
        /* an input in the arena, and across either end */
        for (int at = -1; at < 2; at++) {
            ash_view *over;
            uint64_t first = at < 0   ? b.offset - 256
                             : at > 0 ? b.offset + (bytes - 1) / 256 * 256
                                      : b.offset;
            assert_ok(ash_view_slice(b.whole, first, sizeof r->x, &row, &over, &diag));
            assert_status(ash_plan_bind_input_view(r->plan, 0, over, &diag), ASH_ERROR_INVALID_ARGUMENT);
            ash_view_release(over);
        }
        assert_ok(ash_plan_execute(r->plan, &diag));
        check_results(r, r->plan);
        assert_int_equal(touched(b.whole, 0, b.offset) + touched(b.whole, b.offset + bytes, GUARD), 0);
        ash_view_release(packed), ash_view_release(x);
        block_drop(&b); /* the plan holds what it uses */
        check_results(r, r->plan);
    }
    ash_device_close(another);
    ash_device_close(cpu);
}

/* Replicas: each its part of a block, or one part that they take turns in. */
static void replicas_have_blocks(void **state) {
    struct room *r = *state;
    for (int mode = 0; mode < ASH_MODE_COUNT; mode++) {
        const ash_plan_options options = in_mode(r, mode, ASH_MEMORY_ARENA);
        ash_plan *twin;
        prepare(r, &options);
        uint64_t bytes = ash_plan_arena_size(r->plan);
        block b = block_of(r->plan, bytes + GUARD);
        uint64_t second = ash_align_up(b.offset + bytes, 256);
        ash_view *next = part(b.whole, second, bytes);
        assert_ok(ash_plan_replicate(r->plan, &twin, &diag));
        assert_int_equal(ash_plan_arena_size(twin), bytes);
        assert_ok(ash_plan_bind_arena_view(r->plan, b.arena, &diag));
        assert_ok(ash_plan_bind_arena_view(twin, next, &diag));
        check_results(r, r->plan);
        assert_int_equal(touched(b.whole, second, bytes), 0);
        check_results(r, twin);
        assert_true(touched(b.whole, second, bytes) > 0);
        check_results(r, r->plan);
        assert_ok(ash_plan_release_all(twin, NULL, &diag));
        assert_ok(ash_plan_bind_arena_view(twin, b.arena, &diag));
        check_results(r, twin);
        check_results(r, r->plan);
        assert_int_equal(touched(b.whole, 0, b.offset) + touched(b.whole, second + bytes, GUARD), 0);
        ash_view_release(next);
        block_drop(&b);
        check_results(r, twin);
        ash_plan_destroy(r->plan);
        r->plan = twin;
        check_results(r, twin);
    }
}

/* Of a plan on several devices the block is the main device's; the others have their own. */
static void beside_other_devices(void **state) {
    struct room *r = *state;
    ash_device *devices[2] = {NULL, r->device};
    ash_plan *own;
    float x[2][DEVICE_ROWS * DEVICE_COLUMNS];
    ash_graph_destroy(r->g);
    assert_ok(ash_graph_create(r->context, "g", &r->g, &diag));
    const ash_type tx = {ASH_F32, 2, {DEVICE_ROWS, DEVICE_COLUMNS}};
    ash_value v = ash_graph_input(r->g, "x", &tx);
    ash_value there = ash_softmax(r->g, ash_neg(r->g, v), 1);
    ash_graph_output(r->g, "y", ash_add(r->g, ash_softmax(r->g, ash_abs(r->g, there), 1), v));
    assert_ok(ash_graph_place(r->g, there, 1, &diag));
    assert_ok(ash_device_open(r->context, "CPU", &devices[0], &diag));
    for (int i = 0; i < 2 * ASH_MODE_COUNT; i++) {
        ash_device *const order[] = {devices[i % 2], devices[1 - i % 2]};
        ash_plan_options options = in_mode(r, i / 2, ASH_MEMORY_ARENA);
        options.device = NULL;
        options.devices = order;
        options.device_count = 2;
        prepare(r, &options);
        assert_ok(ash_plan_prepare(r->context, r->g, &options, &own, &diag));
        uint64_t bytes = ash_plan_arena_size(r->plan);
        ash_view *whole = marked(order[0], bytes + 2 * 4096), *arena = part(whole, 4096, bytes);
        ash_view *wrong = marked(order[1], bytes);
        refused(r->plan, wrong, ASH_ERROR_DEVICE, "out of the reach");
        assert_ok(ash_plan_bind_arena_view(r->plan, arena, &diag));
        ash_plan *plans[] = {own, r->plan};
        for (int p = 0; p < 2; p++) {
            const ash_view *view;
            assert_ok(ash_plan_set_input(plans[p], 0, NULL, r->x, sizeof r->x, &diag));
            for (int k = 0; k < 2; k++) assert_ok(ash_plan_execute(plans[p], &diag));
            assert_ok(ash_plan_output(plans[p], 0, &view, &diag));
            assert_ok(ash_view_copy_out(view, x[p], sizeof x[p], &diag));
        }
        assert_memory_equal(x[0], x[1], sizeof x[0]);
        assert_int_equal(touched(whole, 0, 4096) + touched(whole, 4096 + bytes, 4096), 0);
        assert_true(touched(whole, 4096, bytes) > 0);
        ash_view_release(arena), ash_view_release(whole);
        ash_plan_destroy(own);
    }
    ash_device_close(devices[0]);
}

/* Whatever allocation fails: the plan says so, and goes on in the block. */
static void failing_allocations(void **state) {
    struct room *r = *state;
    for (int mode = 0; mode < ASH_MODE_COUNT; mode++) {
        const ash_plan_options options = in_mode(r, mode, ASH_MEMORY_ARENA);
        prepare(r, &options);
        block b = block_of(r->plan, 0);
        ash_status status = ASH_ERROR_OUT_OF_MEMORY;
        for (long n = 1; status != ASH_OK && n < 2000; n++) {
            assert_ok(ash_plan_release_all(r->plan, NULL, &diag));
            assert_ok(ash_plan_bind_arena_view(r->plan, NULL, &diag));
            r->memory.fail_at = r->memory.count + n;
            status = ash_plan_bind_arena_view(r->plan, b.arena, &diag);
            if (status == ASH_OK) status = device_run(r->plan, NULL, 0, &r->got, &diag);
            r->memory.fail_at = 0;
            if (status != ASH_OK && status != ASH_ERROR_OUT_OF_MEMORY)
                fail_msg("allocation %ld: status %d: %s", n, (int)status, diag.message);
        }
        assert_ok(status);
        assert_true(device_same(&r->want, &r->got));
        block_is_used(&b, r->plan);
        block_drop(&b);
    }
}

int main(void) {
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(in_every_mode),        TEST(refusals_change_nothing), TEST(replicas_have_blocks),
        TEST(beside_other_devices), TEST(failing_allocations),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
