/* SPDX-License-Identifier: MIT */
/* Plans of hand-made programs: inputs, outputs, intermediate results, variables, profile, poison,
 * threads. */
#include "plan_room.h"

#include <pthread.h>
#include <stdatomic.h>

static ash_diag diag;

static int setup(void **state) {
    room_open(state, 3);
    struct room *r = *state;
    maker_init(&r->m, r->context);
    return 0;
}

enum { N = 64 };

/* y = 2 * (x + 1), z = y + x; values: x 100, a 101, y 102, z 103 */
static void make_small(struct room *r, const ash_plan_options *options) {
    uint32_t x = maker_buffer(&r->m, ASH_BUFFER_INPUT, N, "x"),
             a = maker_buffer(&r->m, ASH_BUFFER_LOCAL, N, NULL),
             y = maker_buffer(&r->m, ASH_BUFFER_LOCAL, N, NULL),
             z = maker_buffer(&r->m, ASH_BUFFER_OUTPUT, N, "z");
    maker_step(&r->m, "add1", kernel_add1, N, 1, 2, LIST(a, x));
    maker_step(&r->m, "twice", kernel_twice, N, 1, 2, LIST(y, a));
    maker_step(&r->m, "add", kernel_add, N, 1, 3, LIST(z, y, x))->flops = 5;
    maker_output(&r->m, z, "z");
    maker_output(&r->m, y, "y");
    assert_ok(maker_build(&r->m, options, &r->plan, &diag));
}

static void numbers(float *x, float first) {
    for (int i = 0; i < N; i++) x[i] = first + (float)i;
}

static void check_output(struct room *r, size_t position, float factor, float plus, float first) {
    const ash_view *view;
    float out[N];
    assert_ok(ash_plan_output(r->plan, position, &view, &diag));
    assert_ok(ash_view_copy_out(view, out, sizeof out, &diag));
    for (int i = 0; i < N; i++) assert_true(out[i] == (first + (float)i) * factor + plus);
}

static void set_and_run(struct room *r, float first) {
    float x[N];
    numbers(x, first);
    assert_ok(ash_plan_set_input(r->plan, 0, NULL, x, sizeof x, &diag));
    assert_ok(ash_plan_execute(r->plan, &diag));
    check_output(r, 0, 3, 2, first);
    check_output(r, 1, 2, 2, first);
}

static void executes_again_and_again(void **state) {
    struct room *r = *state;
    make_small(r, NULL);
    for (int i = 0; i < 5; i++) set_and_run(r, (float)i * 10);
    /* An input stays until it is set again. */
    assert_ok(ash_plan_execute(r->plan, &diag));
    check_output(r, 0, 3, 2, 40);
}

static void every_mode_and_thread_count(void **state) {
    struct room *r = *state;
    ash_plan_options options = ash_plan_options_default();
    for (int mode = 0; mode < ASH_MEMORY_MODE_COUNT; mode++)
        for (unsigned threads = 1; threads <= 4; threads++)
            for (int poison = 0; poison < 2; poison++) {
                options.memory.mode = (ash_memory_mode)mode;
                options.threads = threads;
                options.poison = poison;
                make_small(r, &options);
                assert_int_equal(ash_plan_describe(r->plan).threads, ASH_MIN(threads, 3u));
                set_and_run(r, 3);
                set_and_run(r, 4);
                ash_plan_destroy(r->plan);
                maker_init(&r->m, r->context);
            }
    make_small(r, NULL);
}

static void no_allocation_when_executing(void **state) {
    struct room *r = *state;
    make_small(r, NULL);
    set_and_run(r, 0);
    ash_profile profile[3];
    long before = r->memory.count;
    for (int i = 0; i < 10; i++) {
        assert_ok(ash_plan_execute(r->plan, &diag));
        assert_ok(ash_plan_execute_profiled(r->plan, profile, 3, &diag));
    }
    assert_int_equal(r->memory.count, before);
}

static void inputs_are_checked(void **state) {
    struct room *r = *state;
    float x[N + 1] __attribute__((aligned(64)));
    make_small(r, NULL);
    assert_int_equal(ash_plan_input_count(r->plan), 1);
    assert_string_equal(ash_plan_input_name(r->plan, 0), "x");
    assert_null(ash_plan_input_name(r->plan, 1));
    size_t position = 9;
    assert_ok(ash_plan_input_position(r->plan, "x", &position, &diag));
    assert_int_equal(position, 0);
    assert_status(ash_plan_input_position(r->plan, "q", &position, &diag), ASH_ERROR_NOT_FOUND);
    assert_status(ash_plan_execute(r->plan, &diag), ASH_ERROR_STATE);
    assert_string_equal(diag.node, "x");
    assert_status(ash_plan_set_input(r->plan, 0, NULL, x, sizeof x, &diag), ASH_ERROR_INVALID_ARGUMENT);
    assert_non_null(strstr(diag.message, "260"));
    assert_non_null(strstr(diag.message, "256"));
    assert_status(ash_plan_set_input(r->plan, 1, NULL, x, 256, &diag), ASH_ERROR_NOT_FOUND);
    assert_status(ash_plan_set_input(r->plan, 0, NULL, NULL, 256, &diag), ASH_ERROR_INVALID_ARGUMENT);
    if (!apart_is_wished()) { /* what is copied may lie anywhere */
        assert_status(ash_plan_bind_input(r->plan, 0, NULL, (char *)x + 2, 256, &diag),
                      ASH_ERROR_INVALID_ARGUMENT);
        assert_non_null(strstr(diag.message, "multiple of 4"));
    }
    assert_status(ash_plan_execute(r->plan, &diag), ASH_ERROR_STATE);
}

static void inputs_bound_and_in_place(void **state) {
    struct room *r = *state;
    float x[N];
    make_small(r, NULL);
    numbers(x, 1);
    assert_ok(ash_plan_bind_input(r->plan, 0, NULL, x, sizeof x, &diag));
    assert_ok(ash_plan_execute(r->plan, &diag));
    check_output(r, 0, 3, 2, 1);
    numbers(x, 50); /* seen without another call */
    assert_ok(ash_plan_execute(r->plan, &diag));
    check_output(r, 0, 3, 2, 50);
    const ash_view *seen;
    const void *address;
    assert_ok(ash_plan_buffer(r->plan, 100, &seen, &diag));
    assert_ok(ash_view_data(seen, &address, &diag));
    if (!apart_is_wished()) assert_ptr_equal(address, x);

    ash_view *own;
    void *data;
    assert_ok(ash_plan_input(r->plan, 0, &own, &diag));
    assert_ok(ash_view_data_mut(own, &data, &diag));
    assert_ptr_not_equal(data, x);
    numbers(data, 7);
    assert_ok(ash_plan_execute(r->plan, &diag));
    check_output(r, 0, 3, 2, 7);
    set_and_run(r, 9);
}

static void outputs(void **state) {
    struct room *r = *state;
    make_small(r, NULL);
    assert_int_equal(ash_plan_output_count(r->plan), 2);
    assert_string_equal(ash_plan_output_name(r->plan, 1), "y");
    assert_null(ash_plan_output_name(r->plan, 2));
    const ash_view *views[2], *view;
    const void *data;
    size_t position;
    size_t index;
    assert_ok(ash_plan_output_position(r->plan, "y", &position, &diag));
    assert_int_equal(position, 1);
    assert_status(ash_plan_output_position(r->plan, "?", &position, &diag), ASH_ERROR_NOT_FOUND);
    assert_status(ash_plan_output(r->plan, 2, &view, &diag), ASH_ERROR_NOT_FOUND);
    assert_status(ash_plan_outputs(r->plan, views, 1, &diag), ASH_ERROR_OUT_OF_RANGE);
    assert_ok(ash_plan_outputs(r->plan, views, 2, &diag));
    assert_ok(ash_plan_output_index(r->plan, 1, &index, &diag));
    assert_int_equal(index, 2);
    /* Nothing to see before the first execution; the same view afterwards. */
    assert_status(ash_view_data(views[0], &data, &diag), ASH_ERROR_STATE);
    set_and_run(r, 1);
    assert_ok(ash_plan_output(r->plan, 0, &view, &diag));
    assert_ptr_equal(view, views[0]);
    assert_ok(ash_view_data(view, &data, &diag));
    assert_true(((const float *)data)[2] == 11);
    void *mut;
    assert_status(ash_view_data_mut((ash_view *)view, &mut, &diag), ASH_ERROR_STATE);
}

static void a_plan_without_outputs_says_so(void **state) {
    struct room *r = *state;
    assert_ok(maker_build(&r->m, NULL, &r->plan, &diag));
    const ash_view *view;
    assert_int_equal(ash_plan_output_count(r->plan), 0);
    assert_status(ash_plan_output(r->plan, 0, &view, &diag), ASH_ERROR_NOT_FOUND);
    assert_non_null(strstr(diag.message, "no outputs"));
    assert_ok(ash_plan_execute(r->plan, &diag));
    assert_int_equal(ash_plan_arena_size(r->plan), 0);
}

/* In a chain of five, the first result's bytes go to the third. */
static void make_chain(struct room *r, const ash_plan_options *options) {
    uint32_t last = maker_buffer(&r->m, ASH_BUFFER_INPUT, N, "x");
    for (int i = 0; i < 5; i++) {
        uint32_t next =
            maker_buffer(&r->m, i == 4 ? ASH_BUFFER_OUTPUT : ASH_BUFFER_LOCAL, N, i == 4 ? "out" : NULL);
        maker_step(&r->m, "add1", kernel_add1, N, 1, 2, LIST(next, last));
        last = next;
    }
    maker_output(&r->m, last, "out");
    assert_ok(maker_build(&r->m, options, &r->plan, &diag));
    float x[N];
    numbers(x, 0);
    assert_ok(ash_plan_set_input(r->plan, 0, NULL, x, sizeof x, &diag));
    assert_ok(ash_plan_execute(r->plan, &diag));
}

static void intermediate_results(void **state) {
    struct room *r = *state;
    make_chain(r, NULL);
    const ash_view *view;
    float out[N];
    size_t index;
    assert_ok(ash_plan_buffer_index(r->plan, 104, &index, &diag));
    assert_int_equal(index, 4);
    /* Value 104 is the last but one: still there. Values 101 to 103 are not all. */
    assert_ok(ash_plan_buffer(r->plan, 104, &view, &diag));
    assert_ok(ash_view_copy_out(view, out, sizeof out, &diag));
    assert_true(out[5] == 9);
    assert_status(ash_plan_buffer(r->plan, 101, &view, &diag), ASH_ERROR_STATE);
    assert_non_null(strstr(diag.message, "taken over by buffer 3"));
    assert_non_null(strstr(diag.message, "operation 2 (add1)"));
    assert_status(ash_plan_buffer(r->plan, 77, &view, &diag), ASH_ERROR_NOT_FOUND);
    assert_status(ash_plan_buffer(r->plan, ASH_NO_VALUE, &view, &diag), ASH_ERROR_NOT_FOUND);
    assert_status(ash_plan_buffer_view(r->plan, 99, &view, &diag), ASH_ERROR_NOT_FOUND);
    ash_buffer_info info = ASH_INIT(ash_buffer_info);
    assert_ok(ash_plan_buffer_at(r->plan, 5, &info, &diag));
    assert_true(info.role == ASH_ROLE_OUTPUT && info.bytes == 256 && info.value == 105 && info.root == 5);
    assert_string_equal(info.name, "out");
    assert_string_equal(ash_role_text(info.role), "output");
}

static void kept_results(void **state) {
    struct room *r = *state;
    ash_plan_options options = ash_plan_options_default();
    const ash_value keep[] = {101, 103};
    options.keep = keep;
    options.keep_count = 2;
    options.poison = true;
    make_chain(r, &options);
    const ash_view *view;
    float out[N];
    for (int i = 0; i < 2; i++) {
        assert_ok(ash_plan_buffer(r->plan, keep[i], &view, &diag));
        assert_ok(ash_view_copy_out(view, out, sizeof out, &diag));
        assert_true(out[5] == 5 + (float)(keep[i] - 100));
    }
    assert_status(ash_plan_buffer(r->plan, 104, &view, &diag), ASH_ERROR_STATE);
}

static void kernel_reads_dead(void *const *b, const int64_t *vars, int64_t begin, int64_t end,
                              int64_t worker) {
    (void)vars, (void)worker;
    const float *dead = b[1];
    for (int64_t i = begin; i < end; i++) ((float *)b[0])[i] = dead[i - 64];
}

/* A kernel that reads a neighbour's dead bytes gets what was there, or NaN when they are poisoned. */
static void poison_shows_reads_of_the_dead(void **state) {
    struct room *r = *state;
    for (int poison = 0; poison < 2; poison++) {
        ash_plan_options options = ash_plan_options_default();
        options.poison = poison;
        options.memory.arena_no_reuse = true; /* so that nothing else is written over them */
        uint32_t x = maker_buffer(&r->m, ASH_BUFFER_INPUT, N, "x"),
                 a = maker_buffer(&r->m, ASH_BUFFER_LOCAL, N, NULL),
                 b = maker_buffer(&r->m, ASH_BUFFER_LOCAL, N, NULL),
                 y = maker_buffer(&r->m, ASH_BUFFER_OUTPUT, N, "y");
        maker_step(&r->m, "a", kernel_add1, N, 1, 2, LIST(a, x));
        maker_step(&r->m, "b", kernel_add1, N, 1, 2, LIST(b, a));
        maker_step(&r->m, "y", kernel_reads_dead, N, 1, 2, LIST(y, b));
        maker_output(&r->m, y, "y");
        assert_ok(maker_build(&r->m, &options, &r->plan, &diag));
        ash_buffer_info at = ASH_INIT(ash_buffer_info), bt = ASH_INIT(ash_buffer_info);
        assert_ok(ash_plan_buffer_at(r->plan, a, &at, &diag));
        assert_ok(ash_plan_buffer_at(r->plan, b, &bt, &diag));
        assert_int_equal(bt.offset, at.offset + 256);
        float in[N], out[N];
        numbers(in, 0);
        assert_ok(ash_plan_set_input(r->plan, 0, NULL, in, sizeof in, &diag));
        assert_ok(ash_plan_execute(r->plan, &diag));
        const ash_view *view;
        assert_ok(ash_plan_output(r->plan, 0, &view, &diag));
        assert_ok(ash_view_copy_out(view, out, sizeof out, &diag));
        for (int i = 0; i < N; i++) assert_true(poison ? out[i] != out[i] : out[i] == in[i] + 1);
        ash_plan_destroy(r->plan);
        maker_init(&r->m, r->context);
    }
    make_small(r, NULL);
}

/* --- variables -------------------------------------------------------------------------------- */

static void make_variable(struct room *r) {
    ash_dim n;
    assert_ok(ash_dims_add_var(r->m.p->dims, "n", 1, N, &n, &diag));
    uint32_t x = maker_buffer(&r->m, ASH_BUFFER_INPUT, n, "x"),
             a = maker_buffer(&r->m, ASH_BUFFER_LOCAL, n, NULL),
             y = maker_buffer(&r->m, ASH_BUFFER_OUTPUT, n, "y"),
             s = maker_buffer(&r->m, ASH_BUFFER_OUTPUT, 1, "s"),
             c = maker_buffer(&r->m, ASH_BUFFER_OUTPUT, n, "c");
    maker_step(&r->m, "add1", kernel_add1, n, 1, 2, LIST(a, x));
    maker_step(&r->m, "twice", kernel_twice, n, 1, 2, LIST(y, a));
    maker_step(&r->m, "sum", kernel_sum_var, 1, 1, 2, LIST(s, x));
    maker_copy(&r->m, x, c);
    maker_output(&r->m, y, "y");
    maker_output(&r->m, s, "s");
    maker_output(&r->m, c, "c");
    assert_ok(maker_build(&r->m, NULL, &r->plan, &diag));
}

static void check_variable(struct room *r, int n, float first) {
    const ash_view *y, *s, *c;
    float out[N], sum = 0, seen;
    assert_ok(ash_plan_output(r->plan, 0, &y, &diag));
    assert_ok(ash_plan_output(r->plan, 1, &s, &diag));
    assert_ok(ash_plan_output(r->plan, 2, &c, &diag));
    assert_int_equal(ash_view_type(y)->dims[0], n);
    assert_int_equal(ash_view_bytes(y), n * 4);
    assert_ok(ash_view_copy_out(y, out, (uint64_t)n * 4, &diag));
    for (int i = 0; i < n; i++) assert_true(out[i] == (first + (float)i + 1) * 2);
    for (int i = 0; i < n; i++) sum += first + (float)i;
    assert_ok(ash_view_copy_out(s, &seen, 4, &diag));
    assert_true(seen == sum);
    assert_ok(ash_view_copy_out(c, out, (uint64_t)n * 4, &diag));
    assert_true(out[n - 1] == first + (float)n - 1);
}

static void variables(void **state) {
    struct room *r = *state;
    float x[N];
    make_variable(r);
    ash_plan_var var = ASH_INIT(ash_plan_var);
    assert_int_equal(ash_plan_var_count(r->plan), 1);
    assert_ok(ash_plan_var_at(r->plan, 0, &var, &diag));
    assert_true(strcmp(var.name, "n") == 0 && var.min == 1 && var.max == N && var.value == N);
    assert_status(ash_plan_var_at(r->plan, 1, &var, &diag), ASH_ERROR_NOT_FOUND);
    ash_prepared_op op = ASH_INIT(ash_prepared_op);
    assert_ok(ash_plan_op_at(r->plan, 3, &op, &diag));
    assert_true(op.kind == ASH_PREPARED_COPY && op.kernel == UINT32_MAX && op.name != NULL);
    assert_string_equal(ash_prepared_kind_text(op.kind), "copy");

    numbers(x, 1);
    assert_ok(ash_plan_set_input(r->plan, 0, NULL, x, sizeof x, &diag));
    assert_ok(ash_plan_execute(r->plan, &diag));
    check_variable(r, N, 1);

    assert_ok(ash_plan_set_vars(r->plan, &(ash_var_binding){"n", 10}, 1, &diag));
    ash_type type;
    assert_ok(ash_plan_input_type(r->plan, 0, &type, &diag));
    assert_int_equal(type.dims[0], 10);
    assert_status(ash_plan_execute(r->plan, &diag), ASH_ERROR_STATE); /* set in another shape */
    assert_status(ash_plan_set_input(r->plan, 0, NULL, x, sizeof x, &diag), ASH_ERROR_INVALID_ARGUMENT);
    numbers(x, 5);
    assert_ok(ash_plan_set_input(r->plan, 0, NULL, x, 40, &diag));
    ash_profile profile[4];
    assert_ok(ash_plan_execute_vars_profiled(r->plan, &(ash_var_binding){"n", 10}, 1, profile, 4, &diag));
    check_variable(r, 10, 5);
    assert_ok(ash_plan_execute(r->plan, &diag)); /* unbound: keeps its value */
    check_variable(r, 10, 5);

    /* Caller's memory of exactly the present size: a copy must not read past it. */
    float *small = malloc(40);
    numbers(x, 8);
    memcpy(small, x, 40);
    assert_ok(ash_plan_bind_input(r->plan, 0, NULL, small, 40, &diag));
    assert_ok(ash_plan_execute_vars(r->plan, &(ash_var_binding){"n", 10}, 1, &diag));
    check_variable(r, 10, 8);
    free(small);
}

static void refused_variables_change_nothing(void **state) {
    struct room *r = *state;
    float x[N];
    make_variable(r);
    numbers(x, 1);
    assert_ok(ash_plan_set_vars(r->plan, &(ash_var_binding){"n", 20}, 1, &diag));
    assert_ok(ash_plan_set_input(r->plan, 0, NULL, x, 80, &diag));
    static const ash_var_binding bad[][2] = {
        {{"n", 30}, {"m", 1}}, {{"n", 30}, {"n", 65}}, {{"n", 30}, {"n", 0}}, {{"n", 30}, {NULL, 3}}};
    static const ash_status why[] = {ASH_ERROR_NOT_FOUND, ASH_ERROR_OUT_OF_RANGE, ASH_ERROR_OUT_OF_RANGE,
                                     ASH_ERROR_INVALID_ARGUMENT};
    ash_plan_var var = ASH_INIT(ash_plan_var);
    for (size_t i = 0; i < ASH_COUNT(bad); i++) {
        assert_status(ash_plan_execute_vars(r->plan, bad[i], 2, &diag), why[i]);
        assert_status(ash_plan_set_vars(r->plan, bad[i], 2, &diag), why[i]);
        assert_ok(ash_plan_var_at(r->plan, 0, &var, &diag));
        assert_int_equal(var.value, 20);
    }
    /* Good variables that an input does not fit: refused as a whole as well. */
    assert_status(ash_plan_execute_vars(r->plan, &(ash_var_binding){"n", 30}, 1, &diag), ASH_ERROR_STATE);
    assert_ok(ash_plan_var_at(r->plan, 0, &var, &diag));
    assert_int_equal(var.value, 20);
    assert_ok(ash_plan_execute(r->plan, &diag));
    check_variable(r, 20, 1);
}

/* --- profile, operations, threads ------------------------------------------------------------- */

static void profile(void **state) {
    struct room *r = *state;
    make_small(r, NULL);
    set_and_run(r, 0);
    ash_profile p[3];
    assert_status(ash_plan_execute_profiled(r->plan, p, 2, &diag), ASH_ERROR_OUT_OF_RANGE);
    assert_status(ash_plan_execute_profiled(r->plan, NULL, 3, &diag), ASH_ERROR_INVALID_ARGUMENT);
    int64_t begun = ash_clock__now();
    assert_ok(ash_plan_execute_profiled(r->plan, p, 3, &diag));
    int64_t all = ash_clock__now() - begun;
    assert_true(p[2].start + p[2].duration <= all); /* times count from the execution's begin */
    for (uint32_t i = 0; i < 3; i++) {
        assert_int_equal(p[i].op, i);
        assert_true(p[i].duration >= 0 && p[i].threads >= 1 && p[i].threads <= 3);
        assert_true(p[i].start >= (i ? p[i - 1].start + p[i - 1].duration : 0));
        assert_int_equal(p[i].stream, 0);
    }
    check_output(r, 0, 3, 2, 0);
}

static void operations(void **state) {
    struct room *r = *state;
    make_small(r, NULL);
    assert_int_equal(ash_plan_op_count(r->plan), 3);
    assert_int_equal(ash_plan_prologue_count(r->plan), 0);
    assert_int_equal(ash_plan_kernel_count(r->plan), 3);
    ash_prepared_op op = ASH_INIT(ash_prepared_op);
    assert_ok(ash_plan_op_at(r->plan, 1, &op, &diag));
    assert_string_equal(op.name, "twice");
    assert_true(op.kind == ASH_PREPARED_KERNEL && op.kernel == 1 && op.chunks == N && op.parallel);
    assert_ok(ash_plan_op_at(r->plan, 2, &op, &diag));
    assert_false(op.parallel); /* 5 operations are not worth a thread */
    assert_status(ash_plan_op_at(r->plan, 3, &op, &diag), ASH_ERROR_NOT_FOUND);
    assert_status(ash_plan_prologue_at(r->plan, 0, &op, &diag), ASH_ERROR_NOT_FOUND);
}

struct thread {
    pthread_t id;
    ash_plan *plan;
    int failures;
};

static void *execute_often(void *arg) {
    struct thread *t = arg;
    for (int i = 0; i < 300; i++) t->failures += ash_plan_execute(t->plan, NULL) != ASH_OK;
    return NULL;
}

static atomic_int inside, together;

/* One chunk that takes its time, and notes whether another execution is at it, too. */
static void kernel_alone(void *const *b, const int64_t *vars, int64_t begin, int64_t end, int64_t worker) {
    (void)vars, (void)worker;
    if (begin >= end) return;
    if (atomic_fetch_add(&inside, 1) != 0) atomic_fetch_add(&together, 1);
    int64_t until = ash_clock__now() + 20000;
    while (ash_clock__now() < until) {
    }
    for (int i = 0; i < N; i++) ((float *)b[0])[i] = ((const float *)b[1])[i] * 3 + 2;
    atomic_fetch_sub(&inside, 1);
}

/* z = 3 x + 2, by a step that can tell whether it runs alone. */
static void make_alone(struct room *r) {
    uint32_t x = maker_buffer(&r->m, ASH_BUFFER_INPUT, N, "x"),
             z = maker_buffer(&r->m, ASH_BUFFER_OUTPUT, N, "z");
    maker_step(&r->m, "alone", kernel_alone, 1, 1, 2, LIST(z, x));
    maker_output(&r->m, z, "z");
    assert_ok(maker_build(&r->m, NULL, &r->plan, &diag));
}

/* Threads that execute one plan wait for each other: no step is ever run by two of them. */
static void threads_are_serialised(void **state) {
    struct room *r = *state;
    atomic_store(&together, 0);
    make_alone(r);
    float x[N];
    numbers(x, 2);
    assert_ok(ash_plan_set_input(r->plan, 0, NULL, x, sizeof x, &diag));
    struct thread threads[4];
    for (int i = 0; i < 4; i++) {
        threads[i] = (struct thread){.plan = r->plan};
        assert_int_equal(pthread_create(&threads[i].id, NULL, execute_often, &threads[i]), 0);
    }
    for (int i = 0; i < 4; i++) {
        pthread_join(threads[i].id, NULL);
        assert_int_equal(threads[i].failures, 0);
    }
    check_output(r, 0, 3, 2, 2);
    assert_int_equal(atomic_load(&together), 0);
}

/* Plans of one context share its threads: who finds them busy runs on its own, with the same results. */
static void plans_run_side_by_side(void **state) {
    struct room *r = *state;
    struct thread threads[3];
    float x[N];
    for (int i = 0; i < 3; i++) {
        if (i) maker_init(&r->m, r->context);
        make_small(r, NULL);
        numbers(x, (float)i);
        assert_ok(ash_plan_set_input(r->plan, 0, NULL, x, sizeof x, &diag));
        threads[i] = (struct thread){.plan = r->plan};
    }
    for (int i = 0; i < 3; i++)
        assert_int_equal(pthread_create(&threads[i].id, NULL, execute_often, &threads[i]), 0);
    for (int i = 0; i < 3; i++) pthread_join(threads[i].id, NULL);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(threads[i].failures, 0);
        r->plan = threads[i].plan;
        check_output(r, 0, 3, 2, (float)i);
        ash_plan_destroy(r->plan);
    }
    r->plan = NULL;
}

static void broken_programs_are_refused(void **state) {
    struct room *r = *state;
    for (int defect = 0; defect < 7; defect++) {
        uint32_t x = maker_buffer(&r->m, ASH_BUFFER_INPUT, N, "x"),
                 y = maker_buffer(&r->m, ASH_BUFFER_OUTPUT, N, "y");
        ash_step *step = maker_step(&r->m, "add1", kernel_add1, N, 1, 2, LIST(y, x));
        ash_access *accesses = (ash_access *)step->accesses;
        if (defect == 0) accesses[0].buffer = 17;
        if (defect == 1) accesses[0].end = 257;
        if (defect == 2) accesses[1].write = true;
        if (defect == 3) step->nest = 3;
        if (defect == 4) r->m.p->prologue = 9;
        if (defect == 5) r->m.p->buffers.at[y].root = y;
        if (defect == 6) step->n_accesses = 1;
        maker_output(&r->m, y, "y");
        assert_status(maker_build(&r->m, NULL, &r->plan, &diag), ASH_ERROR_INTERNAL);
        assert_null(r->plan);
        maker_init(&r->m, r->context);
    }
    make_small(r, NULL);
}

int main(void) {
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(executes_again_and_again),
        TEST(every_mode_and_thread_count),
        TEST(no_allocation_when_executing),
        TEST(inputs_are_checked),
        TEST(inputs_bound_and_in_place),
        TEST(outputs),
        TEST(a_plan_without_outputs_says_so),
        TEST(intermediate_results),
        TEST(kept_results),
        TEST(poison_shows_reads_of_the_dead),
        TEST(variables),
        TEST(refused_variables_change_nothing),
        TEST(profile),
        TEST(operations),
        TEST(threads_are_serialised),
        TEST(plans_run_side_by_side),
        TEST(broken_programs_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
