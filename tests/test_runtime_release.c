/* SPDX-License-Identifier: MIT */
/* Who asks is told of each buffer whose bytes are given back, and of each block of the caller's when
 * neither a plan nor a replica touches it any more. */
#include "plan_room.h"

static ash_diag diag;

enum { N = 64, BYTES = N * 4, MOST = 64 };

/* What was told since the last question. */
static struct {
    ash_release at[MOST];
    size_t count;
} told;

static void note(void *user, const ash_release *what) {
    assert_ptr_equal(user, &told);
    assert_true(told.count < MOST && what->bytes > 0);
    told.at[told.count++] = *what;
}

/* How often a kind was told of by that name; NULL: by any. */
static size_t times(ash_release_kind kind, const char *name) {
    size_t count = 0;
    for (size_t i = 0; i < told.count; i++) {
        const ash_release *r = &told.at[i];
        count += r->kind == kind && (!name || (r->name && !strcmp(r->name, name)));
    }
    return count;
}

#define BUFFERS(name) times(ASH_RELEASE_BUFFER, name)
#define BLOCKS(name)  times(ASH_RELEASE_BLOCK, name)

static void check(size_t buffers, size_t blocks) {
    if (BUFFERS(NULL) != buffers || BLOCKS(NULL) != blocks)
        for (size_t i = 0; i < told.count; i++)
            print_message("%s %s\n", ash_release_text(told.at[i].kind), told.at[i].name);
    assert_int_equal(BUFFERS(NULL), buffers);
    assert_int_equal(BLOCKS(NULL), blocks);
    told.count = 0;
}

static int setup(void **state) {
    told.count = 0;
    return room_open(state, 1);
}

/* y = 2 (x + (p + 1) + s), s = x: an input, a weight, a state, three results, an output. */
static void make_plan(struct room *r) {
    maker *m = &r->m;
    float p[N] = {0};
    maker_init(m, r->context);
    uint32_t parameter = maker_data(m, ASH_BUFFER_PARAMETER, p, N, "p"),
             w = maker_buffer(m, ASH_BUFFER_WEIGHT, N, NULL);
    maker_step(m, "pack", kernel_add1, N, 1, 2, LIST(w, parameter));
    m->p->prologue = 1;
    uint32_t x = maker_buffer(m, ASH_BUFFER_INPUT, N, "x"), s = maker_buffer(m, ASH_BUFFER_STATE, N, "s"),
             a = maker_buffer(m, ASH_BUFFER_LOCAL, N, NULL), b = maker_buffer(m, ASH_BUFFER_LOCAL, N, NULL),
             y = maker_buffer(m, ASH_BUFFER_OUTPUT, N, "y");
    maker_step(m, "add", kernel_add, N, 1, 3, LIST(a, x, w));
    maker_step(m, "add", kernel_add, N, 1, 3, LIST(b, a, s));
    maker_copy(m, x, s);
    maker_step(m, "twice", kernel_twice, N, 1, 2, LIST(y, b));
    maker_output(m, y, "y");
    assert_ok(maker_build(m, NULL, &r->plan, &diag));
    assert_ok(ash_plan_on_release(r->plan, &(ash_release_hook){note, &told}, &diag));
}

static void run(ash_plan *plan) {
    float x[N];
    const ash_view *view;
    for (int i = 0; i < N; i++) x[i] = (float)i;
    assert_ok(ash_plan_set_input(plan, 0, NULL, x, sizeof x, &diag));
    assert_ok(ash_plan_execute(plan, &diag));
    assert_ok(ash_plan_output(plan, 0, &view, &diag));
}

static void buffers_are_told_of(void **state) {
    struct room *r = *state;
    uint64_t released;
    make_plan(r);
    assert_ok(ash_plan_release_all(r->plan, &released, &diag));
    check(0, 0); /* nothing was there */
    run(r->plan);
    check(0, 0);
    assert_ok(ash_plan_release_intermediates(r->plan, &released, &diag));
    assert_int_equal(BUFFERS("x"), 1);
    assert_int_equal(BUFFERS("y"), 0); /* kept */
    for (size_t i = 0; i < told.count; i++) {
        ash_buffer_info info = ASH_INIT(ash_buffer_info);
        assert_ok(ash_plan_buffer_at(r->plan, told.at[i].buffer, &info, &diag));
        assert_int_equal(told.at[i].bytes, info.bytes);
        assert_ptr_equal(told.at[i].device, ash_plan_device(r->plan));
        assert_null(told.at[i].memory);
        assert_true(info.role == ASH_ROLE_INPUT || info.role == ASH_ROLE_LOCAL);
    }
    check(3, 0);
    assert_ok(ash_plan_release_intermediates(r->plan, &released, &diag));
    check(0, 0);
    assert_ok(ash_plan_release_all(r->plan, &released, &diag)); /* the rest */
    assert_int_equal(BUFFERS("y") + BUFFERS("s"), 2);
    check(3, 0);
    run(r->plan);
    ash_plan_destroy(r->plan);
    r->plan = NULL;
    assert_int_equal(BUFFERS("y") + BUFFERS("s") + BUFFERS("x"), 3);
    check(6, 0);
    make_plan(r);
    run(r->plan);
    assert_ok(ash_plan_on_release(r->plan, NULL, &diag));
    assert_ok(ash_plan_release_all(r->plan, &released, &diag));
    check(0, 0);
}

/* A block on the plan's device, as a view. */
static ash_view *block(ash_plan *plan, uint64_t size, ash_dtype dtype) {
    ash_type type = {.dtype = dtype, .rank = 1, .dims = {(int64_t)(size / ash_dtype_size(dtype))}};
    ash_storage *storage;
    ash_view *view;
    assert_ok(ash_storage_create(ash_plan_device(plan), size, 64, &storage, &diag));
    assert_ok(ash_view_create(storage, 0, size, &type, &view, &diag));
    ash_storage_release(storage);
    return view;
}

/* When each may be freed: not while the plan may touch it, and once. */
static void blocks_are_told_of(void **state) {
    struct room *r = *state;
    ash_view *views[8];
    make_plan(r);
    for (int i = 0; i < 2; i++) {
        views[i] = block(r->plan, ash_plan_arena_size(r->plan), ASH_U8);
        views[2 + i] = block(r->plan, ash_plan_weights_size(r->plan), ASH_U8);
        views[4 + i] = block(r->plan, BYTES, ASH_F32);
        views[6 + i] = block(r->plan, BYTES, ASH_F32);
    }
    for (int i = 0; i < 2; i++) {
        if (i) assert_ok(ash_plan_release_all(r->plan, NULL, &diag)); /* they stay bound */
        assert_int_equal(BLOCKS(NULL), 0);
        told.count = 0;
        assert_ok(ash_plan_bind_arena_view(r->plan, views[i], &diag));
        assert_int_equal(BLOCKS("arena"), i);
        assert_ok(ash_plan_bind_weights_view(r->plan, views[2 + i], &diag));
        assert_int_equal(BLOCKS("weights"), i);
        assert_ok(ash_plan_bind_state_view(r->plan, 0, views[4 + i], &diag));
        assert_int_equal(BLOCKS("s"), i);
        assert_ok(ash_plan_bind_input_view(r->plan, 0, views[6 + i], &diag));
        assert_int_equal(BLOCKS("x"), i);
        assert_int_equal(BLOCKS(NULL), i ? 4 : 0);
        told.count = 0;
        assert_ok(ash_plan_bind_input_view(r->plan, 0, views[6 + i], &diag)); /* the same again ends none */
        assert_ok(ash_plan_bind_state_view(r->plan, 0, views[4 + i], &diag));
        assert_ok(ash_plan_bind_weights_view(r->plan, views[2 + i], &diag));
        assert_ok(ash_plan_execute(r->plan, &diag));
        check(0, 0);
    }
    run(r->plan); /* which copies the input in */
    check(0, 1);
    ash_plan_destroy(r->plan);
    r->plan = NULL;
    assert_int_equal(BLOCKS("arena") + BLOCKS("weights") + BLOCKS("s"), 3);
    assert_int_equal(BLOCKS(NULL), 3);
    for (int i = 0; i < 8; i++) ash_view_release(views[i]);
}

/* Weights that replicas share lie there until the last of them goes. */
static void replicas_keep_a_block(void **state) {
    struct room *r = *state;
    ash_plan *twin;
    make_plan(r);
    ash_view *view = block(r->plan, ash_plan_weights_size(r->plan), ASH_U8);
    assert_ok(ash_plan_bind_weights_view(r->plan, view, &diag));
    run(r->plan);
    assert_ok(ash_plan_replicate(r->plan, &twin, &diag));
    run(twin);
    ash_plan_destroy(r->plan);
    r->plan = NULL;
    assert_int_equal(BLOCKS(NULL), 0);
    assert_int_equal(BUFFERS("y"), 1);
    told.count = 0;
    run(twin);
    ash_plan_destroy(twin);
    assert_int_equal(BLOCKS("weights"), 1);
    assert_int_equal(BLOCKS(NULL), 1);
    assert_int_equal(BUFFERS("y"), 1); /* replicas tell the same function */
    ash_view_release(view);
}

/* What came as a pointer is told as one, and can be freed at once. */
static void pointers_can_be_freed(void **state) {
    struct room *r = *state;
    make_plan(r);
    float *x = aligned_alloc(64, BYTES), *s = aligned_alloc(64, BYTES);
    for (int i = 0; i < N; i++) x[i] = s[i] = 1;
    assert_ok(ash_plan_bind_input(r->plan, 0, NULL, x, BYTES, &diag));
    assert_ok(ash_plan_bind_state(r->plan, 0, s, BYTES, &diag));
    assert_ok(ash_plan_execute(r->plan, &diag));
    assert_ok(ash_plan_bind_state(r->plan, 0, NULL, 0, &diag));
    assert_int_equal(told.count, 1);
    assert_ptr_equal(told.at[0].memory, s);
    assert_int_equal(told.at[0].bytes, BYTES);
    free(s);
    run(r->plan);
    assert_int_equal(told.count, 2);
    assert_ptr_equal(told.at[1].memory, x);
    assert_string_equal(told.at[1].name, "x");
    free(x);
    run(r->plan);
    if (apart_is_wished()) return; /* blocks of the host's are out of its reach */
    void *arena = aligned_alloc(64, (ash_plan_arena_size(r->plan) + 63) / 64 * 64);
    assert_ok(ash_plan_release_all(r->plan, NULL, &diag));
    told.count = 0;
    assert_ok(ash_plan_bind_arena(r->plan, arena, ash_plan_arena_size(r->plan), &diag));
    run(r->plan);
    assert_ok(ash_plan_release_all(r->plan, NULL, &diag));
    assert_int_equal(BLOCKS(NULL), 0);
    told.count = 0;
    assert_ok(ash_plan_bind_arena(r->plan, NULL, 0, &diag));
    check(0, 1);
    free(arena);
    run(r->plan);
}

int main(void) {
#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(buffers_are_told_of),
        TEST(blocks_are_told_of),
        TEST(replicas_keep_a_block),
        TEST(pointers_can_be_freed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
