/* SPDX-License-Identifier: MIT */
/* Models that leave dims open: sizes come with the inputs, and a plan is then as one of fixed dims. */
#include "graph_room.h"

#include "apart.h"
#include <pthread.h>
#include <stdatomic.h>

#include "ashlar/onnx.h"
#include "ashlar/reference.h"
#include "open_model.h"

static ash_diag diag;

#define BERT ASH_SOURCE_DIR "/tests/data/onnx/bert_like/model.onnx"

enum { MOST = 64 };

static int setup(void **state) {
    return room_open(state, 2);
}

static ash_type f32(unsigned rank, int64_t a, int64_t b) {
    return (ash_type){ASH_F32, rank, {a, b}};
}

static uint64_t bytes_of(const ash_type *type) {
    uint64_t size = ash_dtype_size(type->dtype);
    for (unsigned i = 0; i < type->rank; i++) size *= (uint64_t)type->dims[i];
    return size;
}

static void parse(struct room *r, bytes model, const ash_onnx_options *options) {
    ash_graph_destroy(r->g);
    r->g = NULL;
    assert_ok(ash_onnx_parse(r->context, model.at, model.len, options, &r->g, &diag));
}

static void prepare(struct room *r, const ash_plan_options *options) {
    ash_plan_destroy(r->plan);
    r->plan = NULL;
    assert_ok(ash_plan_prepare(r->context, r->g, options, &r->plan, &diag));
}

static void set(ash_plan *plan, size_t position, ash_type type, const float *data) {
    assert_ok(ash_plan_set_input(plan, position, &type, data, bytes_of(&type), &diag));
}

static const float *output(ash_plan *plan, size_t position, const ash_type *want) {
    const ash_view *view;
    const void *data;
    assert_ok(ash_plan_output(plan, position, &view, &diag));
    assert_int_equal(ash_view_type(view)->rank, want->rank);
    for (unsigned i = 0; i < want->rank; i++) assert_int_equal(ash_view_type(view)->dims[i], want->dims[i]);
    assert_ok(ash_view_data(view, &data, &diag));
    return data;
}

static void expect_message(const char *const *parts) {
    for (; *parts; parts++)
        if (!strstr(diag.message, *parts)) fail_msg("\"%s\" is not in \"%s\"", *parts, diag.message);
}

#define EXPECT(...) expect_message((const char *const[]){__VA_ARGS__, NULL})

/* --- a small BERT with a batch and a sequence ------------------------------------------------------ */

static void ids_of(int64_t batch, int64_t sequence, int64_t *ids) {
    for (int64_t i = 0; i < batch * sequence; i++) ids[i] = (i * 5 + batch + sequence) % 7;
}

/* The same from a file with these numbers in it. */
static ash_plan *fixed_plan(struct room *r, int64_t batch, int64_t sequence,
                            const ash_plan_options *options) {
    const ash_onnx_var vars[] = {{"batch", batch, batch}, {"seq", sequence, sequence}};
    ash_graph *g;
    ash_plan *plan;
    assert_ok(ash_onnx_read(r->context, BERT, &(ash_onnx_options){.vars = vars, .n_vars = 2}, &g, &diag));
    assert_ok(ash_plan_prepare(r->context, g, options, &plan, &diag));
    ash_graph_destroy(g);
    return plan;
}

static void check_bert(struct room *r, ash_plan *plan, int64_t batch, int64_t sequence,
                       const ash_plan_options *options, const ash_view *held) {
    int64_t ids[MOST];
    const ash_type type = {ASH_I64, 2, {batch, sequence}};
    const ash_view *view, *other;
    const void *have, *want;
    ids_of(batch, sequence, ids);
    ash_plan *fixed = fixed_plan(r, batch, sequence, options);
    assert_ok(ash_plan_set_input(plan, 0, &type, ids, bytes_of(&type), &diag));
    assert_ok(ash_plan_ready(plan, &diag));
    assert_int_equal(ash_plan_arena_size(plan), ash_plan_arena_size(fixed));
    assert_int_equal(ash_plan_op_count(plan), ash_plan_op_count(fixed));
    assert_ok(ash_plan_set_input(fixed, 0, &type, ids, bytes_of(&type), &diag));
    assert_ok(ash_plan_execute(plan, &diag));
    assert_ok(ash_plan_execute(fixed, &diag));
    assert_ok(ash_plan_output(plan, 0, &view, &diag));
    if (held) assert_ptr_equal(view, held);
    assert_ok(ash_plan_output(fixed, 0, &other, &diag));
    assert_memory_equal(ash_view_type(view), ash_view_type(other), sizeof(ash_type));
    assert_ok(ash_view_data(view, &have, &diag));
    assert_ok(ash_view_data(other, &want, &diag));
    assert_memory_equal(have, want, ash_view_bytes(other));
    ash_plan_destroy(fixed);
}

/* Nothing but the program of the readme: no options anywhere. */
static void sizes_come_with_the_first_input(void **state) {
    struct room *r = *state;
    int64_t ids[MOST];
    const ash_type small = {ASH_I64, 2, {2, 5}};
    const ash_view *view;
    ash_type type;
    ash_plan_var var = ASH_INIT(ash_plan_var);
    ids_of(2, 5, ids);
    assert_ok(ash_onnx_read(r->context, BERT, NULL, &r->g, &diag));
    assert_true(ash_graph_is_open(r->g));
    prepare(r, NULL);
    ash_graph_destroy(r->g); /* plans do not need it */
    r->g = NULL;
    assert_int_equal(ash_plan_arena_size(r->plan), 0);
    assert_int_equal(ash_plan_op_count(r->plan), 0);
    assert_int_equal(ash_plan_input_count(r->plan), 1);
    assert_int_equal(ash_plan_output_count(r->plan), 1);
    assert_non_null(ash_plan_output_name(r->plan, 0));
    assert_null(ash_plan_output_name(r->plan, 1));
    assert_ok(ash_plan_input_type(r->plan, 0, &type, &diag));
    assert_true(type.dtype == ASH_I64 && type.rank == 2 && type.dims[0] == -1 && type.dims[1] == -1);
    assert_int_equal(ash_plan_var_count(r->plan), 2);
    assert_ok(ash_plan_var_at(r->plan, 0, &var, &diag));
    assert_true(var.open && var.value == -1 && !var.settled);
    assert_string_equal(var.name, "batch");
    assert_status(ash_plan_execute(r->plan, &diag), ASH_ERROR_STATE);
    EXPECT("'batch', 'seq'");
    assert_status(ash_plan_output(r->plan, 0, &view, &diag), ASH_ERROR_STATE);
    EXPECT("'batch', 'seq'");
    assert_status(ash_plan_ready(r->plan, &diag), ASH_ERROR_STATE);
    assert_status(ash_plan_bind_arena(r->plan, ids, sizeof ids, &diag), ASH_ERROR_STATE);
    assert_status(ash_plan_set_parameter(r->plan, "w", NULL, ids, 8, &diag), ASH_ERROR_STATE);
    assert_status(ash_plan_buffer(r->plan, 0, &view, &diag), ASH_ERROR_STATE);
    assert_status(ash_plan_set_input(r->plan, 0, NULL, ids, 80, &diag), ASH_ERROR_INVALID_ARGUMENT);
    assert_ok(ash_plan_set_input(r->plan, 0, &small, ids, 80, &diag));
    assert_ok(ash_plan_input_type(r->plan, 0, &type, &diag));
    assert_memory_equal(&type, &small, sizeof type);
    assert_status(ash_plan_output(r->plan, 0, &view, &diag), ASH_ERROR_STATE);
    EXPECT("ash_plan_ready");
    assert_ok(ash_plan_execute(r->plan, &diag));
    assert_ok(ash_plan_output(r->plan, 0, &view, &diag));
    for (int64_t i = 0; i < 4; i++) check_bert(r, r->plan, 1 + i % 3, 7 - i % 2, NULL, view);
    check_bert(r, r->plan, 2, 5, NULL, view);
}

static void sizes_change_in_every_mode(void **state) {
    struct room *r = *state;
    assert_ok(ash_onnx_read(r->context, BERT, NULL, &r->g, &diag));
    for (int way = 0; way < 6; way++) {
        ash_plan_options options = {.mode = (ash_mode)(way % 3), .threads = 1 + (unsigned)way / 3};
        options.streams = options.mode == ASH_MODE_MULTI_STREAM ? 2 : 1;
        options.poison = way < 3;
        prepare(r, &options);
        check_bert(r, r->plan, 1, 3, &options, NULL);
        check_bert(r, r->plan, 2, 6, &options, NULL);
        check_bert(r, r->plan, 2, 6, &options, NULL);
    }
}

/* Kernels that are in memory are not compiled again, and what is ready allocates nothing more. */
static void a_ready_plan_is_as_any_other(void **state) {
    struct room *r = *state;
    int64_t ids[MOST];
    const ash_type type = {ASH_I64, 2, {2, 5}};
    ids_of(2, 5, ids);
    assert_ok(ash_onnx_read(r->context, BERT, NULL, &r->g, &diag));
    prepare(r, NULL);
    assert_ok(ash_plan_set_input(r->plan, 0, &type, ids, bytes_of(&type), &diag));
    assert_ok(ash_plan_execute(r->plan, &diag));
    long before = r->memory.count;
    for (int i = 0; i < 3; i++) {
        assert_ok(ash_plan_set_input(r->plan, 0, &type, ids, bytes_of(&type), &diag));
        assert_ok(ash_plan_set_input(r->plan, 0, NULL, ids, bytes_of(&type), &diag));
        assert_ok(ash_plan_ready(r->plan, &diag));
        assert_ok(ash_plan_execute(r->plan, &diag));
    }
    assert_int_equal(r->memory.count, before);
    ash_plan *fixed = fixed_plan(r, 2, 5, NULL);
    assert_int_equal(kernels_made(ash_plan_describe(fixed)), 0);
    ash_plan_destroy(fixed);
}

/* --- several inputs, expressions -------------------------------------------------------------------- */

static float numbers[MOST];

static void check_cache(ash_plan *plan, int64_t b, int64_t past, int64_t seq) {
    const ash_type type = f32(2, b, past + seq);
    const float *y = output(plan, 0, &type), *z = output(plan, 1, &type);
    for (int64_t i = 0; i < b; i++)
        for (int64_t k = 0; k < past + seq; k++) {
            float from = k < past ? numbers[i * past + k] : numbers[i * seq + k - past];
            float want = from * numbers[i * (past + seq) + k];
            assert_true(y[i * (past + seq) + k] == want);
            assert_true(z[i * (past + seq) + k] == want * numbers[0]);
        }
}

enum { X, MASK, PAST, SCALE };

static void open_cache(struct room *r) {
    for (int i = 0; i < MOST; i++) numbers[i] = (float)(i % 13) - 5;
    parse(r, cache_model(), NULL);
    prepare(r, NULL);
}

static void set_cache(ash_plan *plan, int64_t b, int64_t past, int64_t seq) {
    set(plan, MASK, f32(2, b, past + seq), numbers);
    set(plan, X, f32(2, b, seq), numbers);
    set(plan, PAST, f32(2, b, past), numbers);
}

static void inputs_share_sizes(void **state) {
    struct room *r = *state;
    ash_type type;
    open_cache(r);
    set(r->plan, SCALE, f32(1, 1, 0), numbers);
    set(r->plan, MASK, f32(2, 2, 7), numbers);
    assert_ok(ash_plan_input_type(r->plan, X, &type, &diag));
    assert_true(type.dims[0] == 2 && type.dims[1] == -1);
    assert_status(ash_plan_execute(r->plan, &diag), ASH_ERROR_STATE);
    EXPECT("'seq', 'past'");
    set(r->plan, X, f32(2, 2, 3), numbers); /* then past is 4: the expression has one unknown */
    assert_ok(ash_plan_ready(r->plan, &diag));
    assert_ok(ash_plan_input_type(r->plan, PAST, &type, &diag));
    assert_true(type.dims[0] == 2 && type.dims[1] == 4);
    assert_status(ash_plan_execute(r->plan, &diag), ASH_ERROR_STATE);
    assert_string_equal(diag.node, "past");
    set(r->plan, PAST, type, numbers);
    assert_ok(ash_plan_execute(r->plan, &diag));
    check_cache(r->plan, 2, 4, 3);
    /* Other sizes; the scale stays as it was set. A size may be 0. */
    for (int64_t i = 0; i < 4; i++) {
        set_cache(r->plan, 1 + i % 3, i, 2);
        assert_ok(ash_plan_execute(r->plan, &diag));
        check_cache(r->plan, 1 + i % 3, i, 2);
    }
}

static void inputs_that_contradict_are_named(void **state) {
    struct room *r = *state;
    open_cache(r);
    set(r->plan, SCALE, f32(1, 1, 0), numbers);
    set(r->plan, X, f32(2, 2, 3), numbers);
    set(r->plan, PAST, f32(2, 2, 1), numbers);
    set(r->plan, MASK, f32(2, 2, 5), numbers);
    long compiled = (long)kernels_made(ash_plan_describe(r->plan));
    assert_status(ash_plan_execute(r->plan, &diag), ASH_ERROR_STATE);
    assert_string_equal(diag.node, "m");
    EXPECT("f32[2, 5] was set", "f32[b, (seq + past)]", "b = 2", "seq = 3", "past = 1", "f32[2, 4]");
    assert_int_equal(kernels_made(ash_plan_describe(r->plan)), compiled);
    set(r->plan, MASK, f32(2, 2, 4), numbers);
    assert_ok(ash_plan_execute(r->plan, &diag));
    check_cache(r->plan, 2, 1, 3);
    set(r->plan, X, f32(2, 3, 3), numbers); /* another batch, of this one input */
    assert_status(ash_plan_execute(r->plan, &diag), ASH_ERROR_STATE);
    EXPECT("b = 3");
    check_cache(r->plan, 2, 1, 3); /* nothing has happened */
    set(r->plan, X, f32(2, 2, 3), numbers);
    assert_ok(ash_plan_execute(r->plan, &diag));
    check_cache(r->plan, 2, 1, 3);
}

static void wrong_types_name_both_sides(void **state) {
    struct room *r = *state;
    int32_t whole[MOST] = {0};
    const ash_type ints = {ASH_I32, 2, {2, 3}}, two = f32(2, 2, 3), flat = f32(1, 6, 0),
                   wrong = f32(2, 2, 4), negative = f32(2, -1, 3);
    for (int closed = 0; closed < 2; closed++) {
        const ash_onnx_var var = {"n", 1, 5};
        parse(r, relu_model("n;3"), closed ? &(ash_onnx_options){.vars = &var, .n_vars = 1} : NULL);
        prepare(r, NULL);
        if (closed) assert_ok(ash_plan_set_vars(r->plan, &(ash_var_binding){"n", 2}, 1, &diag));
        if (!closed) set(r->plan, 0, two, numbers);
        assert_status(ash_plan_set_input(r->plan, 0, &ints, whole, 24, &diag), ASH_ERROR_TYPE);
        EXPECT("i32[2, 3] was given, the input is f32[n, 3] with n = 2, which is f32[2, 3]");
        assert_string_equal(diag.node, "x");
        assert_status(ash_plan_bind_input(r->plan, 0, &ints, whole, 24, &diag), ASH_ERROR_TYPE);
        assert_status(ash_plan_set_input(r->plan, 0, &flat, whole, 24, &diag), ASH_ERROR_SHAPE);
        EXPECT("f32[6] was given", "f32[n, 3]");
        assert_status(ash_plan_set_input(r->plan, 0, &wrong, whole, 32, &diag), ASH_ERROR_SHAPE);
        EXPECT("f32[2, 4] was given", "f32[n, 3]", "n = 2");
        assert_status(ash_plan_set_input(r->plan, 0, &negative, whole, 32, &diag),
                      ASH_ERROR_INVALID_ARGUMENT);
        assert_status(ash_plan_set_input(r->plan, 0, &two, whole, 23, &diag), ASH_ERROR_INVALID_ARGUMENT);
        EXPECT("23 bytes given, f32[2, 3] has 24");
        assert_status(ash_plan_set_input(r->plan, 0, NULL, whole, 23, &diag), ASH_ERROR_INVALID_ARGUMENT);
        assert_status(ash_plan_set_input(r->plan, 0, &two, NULL, 24, &diag), ASH_ERROR_INVALID_ARGUMENT);
        set(r->plan, 0, two, numbers);
        assert_ok(ash_plan_execute(r->plan, &diag));
    }
    const ash_type three = f32(2, 3, 3); /* of a plan with bounds: the variable has to be set first */
    assert_status(ash_plan_set_input(r->plan, 0, &three, numbers, 36, &diag), ASH_ERROR_SHAPE);
    assert_ok(ash_plan_set_vars(r->plan, &(ash_var_binding){"n", 3}, 1, &diag));
    assert_status(ash_plan_execute(r->plan, &diag), ASH_ERROR_STATE);
    EXPECT("f32[2, 3] was set, the input is now f32[n, 3] with n = 3, which is f32[3, 3]");
}

/* "?", -1 and nothing at all are unknown, each for itself; one name is one size. */
static void unnamed_dims_are_apart(void **state) {
    struct room *r = *state;
    const ash_type type = {ASH_F32, 3, {2, 3, 4}}, other = {ASH_F32, 3, {2, 3, 3}};
    static const char *const dims[] = {"?;?;?", "-1;-1;-1", ";;", "a;?;-1", "a;b;c"};
    for (size_t i = 0; i < sizeof dims / sizeof *dims; i++) {
        parse(r, relu_model(dims[i]), NULL);
        prepare(r, NULL);
        assert_int_equal(ash_plan_var_count(r->plan), 3);
        set(r->plan, 0, type, numbers);
        assert_ok(ash_plan_execute(r->plan, &diag));
        output(r->plan, 0, &type);
        set(r->plan, 0, other, numbers);
        assert_ok(ash_plan_execute(r->plan, &diag));
        output(r->plan, 0, &other);
    }
    parse(r, relu_model("a;a;b"), NULL);
    prepare(r, NULL);
    assert_int_equal(ash_plan_var_count(r->plan), 2);
    assert_status(ash_plan_set_input(r->plan, 0, &type, numbers, 96, &diag), ASH_ERROR_SHAPE);
    EXPECT("'a'", "2 and 3");
    ash_plan_var var = ASH_INIT(ash_plan_var);
    assert_ok(ash_plan_var_at(r->plan, 0, &var, &diag));
    assert_int_equal(var.value, -1); /* nothing was learned */
}

/* Dims with bounds stay variables beside those that are open. */
static void bounds_and_open_dims(void **state) {
    struct room *r = *state;
    const ash_onnx_var bounds = {"past", 0, 8};
    ash_type type;
    ash_plan_var var = ASH_INIT(ash_plan_var);
    open_cache(r);
    parse(r, cache_model(), &(ash_onnx_options){.vars = &bounds, .n_vars = 1});
    prepare(r, NULL);
    set(r->plan, SCALE, f32(1, 1, 0), numbers);
    set(r->plan, X, f32(2, 2, 2), numbers);
    assert_ok(ash_plan_set_vars(r->plan, &(ash_var_binding){"past", 3}, 1, &diag));
    assert_ok(ash_plan_input_type(r->plan, MASK, &type, &diag));
    assert_true(type.dims[0] == 2 && type.dims[1] == 5);
    assert_ok(ash_plan_ready(r->plan, &diag));
    uint64_t size = ash_plan_arena_size(r->plan);
    for (int64_t past = 0; past <= 8; past += 4) {
        assert_ok(ash_plan_set_vars(r->plan, &(ash_var_binding){"past", past}, 1, &diag));
        set(r->plan, PAST, f32(2, 2, past), numbers);
        set(r->plan, MASK, f32(2, 2, past + 2), numbers);
        assert_ok(ash_plan_execute(r->plan, &diag));
        check_cache(r->plan, 2, past, 2);
        assert_int_equal(ash_plan_arena_size(r->plan), size);
    }
    assert_status(ash_plan_set_vars(r->plan, &(ash_var_binding){"past", 9}, 1, &diag),
                  ASH_ERROR_OUT_OF_RANGE);
    assert_status(ash_plan_set_vars(r->plan, &(ash_var_binding){"pasta", 1}, 1, &diag),
                  ASH_ERROR_NOT_FOUND);
    /* in another batch the variable has the value that it had */
    set(r->plan, X, f32(2, 1, 2), numbers);
    set(r->plan, PAST, f32(2, 1, 8), numbers);
    set(r->plan, MASK, f32(2, 1, 10), numbers);
    assert_ok(ash_plan_execute(r->plan, &diag));
    check_cache(r->plan, 1, 8, 2);
    assert_int_equal(ash_plan_var_count(r->plan), 3);
    for (size_t i = 0; i < 3; i++) {
        assert_ok(ash_plan_var_at(r->plan, i, &var, &diag));
        assert_int_equal(var.open, strcmp(var.name, "past") != 0);
        if (!var.open) assert_true(var.value == 8 && var.max == 8);
    }
}

/* An input in place, of sizes that variables say. */
static void open_dims_are_variables(void **state) {
    struct room *r = *state;
    ash_view *view;
    void *data;
    parse(r, relu_model("n;3"), NULL);
    prepare(r, NULL);
    assert_status(ash_plan_input(r->plan, 0, &view, &diag), ASH_ERROR_STATE);
    for (int64_t n = 4; n > 0; n -= 2) {
        const ash_type type = f32(2, n, 3);
        assert_ok(ash_plan_set_vars(r->plan, &(ash_var_binding){"n", n}, 1, &diag));
        assert_ok(ash_plan_input(r->plan, 0, &view, &diag));
        assert_int_equal(ash_view_type(view)->dims[0], n);
        assert_ok(ash_view_data_mut(view, &data, &diag));
        for (int64_t i = 0; i < 3 * n; i++) ((float *)data)[i] = (float)(i - 4);
        assert_ok(ash_plan_execute(r->plan, &diag));
        const float *y = output(r->plan, 0, &type);
        for (int64_t i = 0; i < 3 * n; i++) assert_true(y[i] == (i < 4 ? 0 : (float)(i - 4)));
    }
    assert_status(ash_plan_execute_vars(r->plan, &(ash_var_binding){"n", 7}, 1, &diag), ASH_ERROR_STATE);
    EXPECT("f32[2, 3] was set", "n = 7");
    assert_status(ash_plan_set_vars(r->plan, &(ash_var_binding){"n", -1}, 1, &diag),
                  ASH_ERROR_OUT_OF_RANGE);
}

/* --- what goes over into other sizes --------------------------------------------------------------- */

static void memory_of_the_caller_goes_over(void **state) {
    NOT_APART("memory of the host's for the arena or the weights");
    struct room *r = *state;
    static _Alignas(64) char block[1 << 20], weights[1 << 20];
    static _Alignas(64) float mine[MOST];
    const ash_type type = {ASH_I64, 2, {2, 5}}, small = {ASH_I64, 2, {1, 2}}, large = {ASH_I64, 2, {2, 8}};
    int64_t ids[MOST];
    const ash_view *view;
    const void *data;
    ids_of(4, 16, ids);
    assert_ok(ash_onnx_read(r->context, BERT, NULL, &r->g, &diag));
    prepare(r, NULL);
    assert_ok(ash_plan_set_input(r->plan, 0, &type, ids, bytes_of(&type), &diag));
    assert_ok(ash_plan_ready(r->plan, &diag));
    uint64_t size = ash_plan_arena_size(r->plan);
    assert_true(size < sizeof block && ash_plan_weights_size(r->plan) < sizeof weights);
    assert_ok(ash_plan_release_intermediates(r->plan, NULL, &diag));
    assert_ok(ash_plan_bind_arena(r->plan, block, size, &diag));
    assert_ok(ash_plan_bind_weights(r->plan, weights, sizeof weights, &diag));
    for (int i = 0; i < 3; i++) {
        const ash_type *now = i == 1 ? &small : &type;
        assert_ok(ash_plan_set_input(r->plan, 0, now, ids, bytes_of(now), &diag));
        assert_ok(ash_plan_execute(r->plan, &diag));
        assert_ok(ash_plan_output(r->plan, 0, &view, &diag));
        assert_ok(ash_view_data(view, &data, &diag));
        assert_true((const char *)data >= block && (const char *)data < block + size);
    }
    assert_ok(ash_plan_set_input(r->plan, 0, &large, ids, bytes_of(&large), &diag));
    assert_status(ash_plan_execute(r->plan, &diag), ASH_ERROR_OUT_OF_RANGE); /* as it was, with results */
    EXPECT("the arena that was bound");
    assert_ok(ash_view_data(view, &data, &diag));
    assert_ok(ash_plan_set_input(r->plan, 0, &type, ids, bytes_of(&type), &diag));
    assert_ok(ash_plan_execute(r->plan, &diag));
    /* An input of the caller's stays bound. */
    open_cache(r);
    mine[0] = numbers[0];
    const ash_type one = f32(1, 1, 0);
    assert_ok(ash_plan_bind_input(r->plan, SCALE, &one, mine, sizeof *mine, &diag));
    for (int64_t b = 1; b < 3; b++) {
        set_cache(r->plan, b, 2, 3);
        assert_ok(ash_plan_execute(r->plan, &diag));
        check_cache(r->plan, b, 2, 3);
    }
}

/* y = x * w, where w may be rebound. */
static void parameters_go_over(void **state) {
    struct room *r = *state;
    static const float w[] = {1, 2, 3}, other[] = {5, 6, 7};
    static const int64_t dims[] = {3};
    bytes graph = {.len = 0}, node = make_node("mul", "Mul", "x", "w", "y"), x = open_info("x", "n;3"),
          y = open_info("y", "n;3"), tensor = make_tensor("w", 1, dims, 1, w, sizeof w);
    put_message(&graph, 1, &node);
    put_message(&graph, 5, &tensor);
    put_message(&graph, 11, &x);
    put_message(&graph, 12, &y);
    parse(r, make_model(&graph, 13), &(ash_onnx_options){.parameters = true});
    prepare(r, NULL);
    for (int64_t n = 1; n < 4; n++) {
        const ash_type type = f32(2, n, 3);
        set(r->plan, 0, type, numbers);
        assert_ok(ash_plan_ready(r->plan, &diag));
        assert_int_equal(ash_plan_parameter_count(r->plan), 1);
        const ash_type three = f32(1, 3, 0), ints = {ASH_I32, 1, {3}};
        assert_status(ash_plan_set_parameter(r->plan, "w", &ints, other, sizeof other, &diag),
                      ASH_ERROR_TYPE);
        EXPECT("i32[3] was given, the parameter is f32[3]");
        if (n == 2) assert_ok(ash_plan_set_parameter(r->plan, "w", &three, other, sizeof other, &diag));
        assert_ok(ash_plan_execute(r->plan, &diag));
        const float *have = output(r->plan, 0, &type);
        for (int64_t i = 0; i < 3 * n; i++)
            assert_true(have[i] == numbers[i] * (n == 1 ? w : other)[i % 3]);
    }
}

static void replicas_have_sizes_of_their_own(void **state) {
    struct room *r = *state;
    ash_plan *twin[2];
    open_cache(r);
    assert_ok(ash_plan_replicate(r->plan, &twin[0], &diag));
    set(r->plan, SCALE, f32(1, 1, 0), numbers);
    set_cache(r->plan, 2, 1, 2);
    assert_ok(ash_plan_execute(r->plan, &diag));
    assert_ok(ash_plan_replicate(r->plan, &twin[1], &diag));
    for (int i = 0; i < 2; i++) {
        set(twin[i], SCALE, f32(1, 1, 0), numbers);
        set_cache(twin[i], 2, 1, 2);
        assert_ok(ash_plan_execute(twin[i], &diag));
        check_cache(twin[i], 2, 1, 2);
        set_cache(twin[i], 3, 2, 2);
        assert_ok(ash_plan_execute(twin[i], &diag));
    }
    check_cache(r->plan, 2, 1, 2);
    ash_plan_destroy(r->plan);
    r->plan = NULL;
    for (int i = 0; i < 2; i++) {
        check_cache(twin[i], 3, 2, 2);
        ash_plan_destroy(twin[i]);
    }
}

static void releasing(void **state) {
    struct room *r = *state;
    uint64_t size;
    open_cache(r);
    assert_ok(ash_plan_release_all(r->plan, &size, &diag));
    assert_int_equal(size, 0);
    set(r->plan, SCALE, f32(1, 1, 0), numbers);
    set_cache(r->plan, 2, 1, 2);
    assert_ok(ash_plan_release_all(r->plan, &size, &diag)); /* what was copied in is lost */
    assert_status(ash_plan_execute(r->plan, &diag), ASH_ERROR_STATE);
    EXPECT("has not been set");
    set(r->plan, SCALE, f32(1, 1, 0), numbers);
    set_cache(r->plan, 2, 1, 2);
    assert_ok(ash_plan_execute(r->plan, &diag));
    assert_ok(ash_plan_release_intermediates(r->plan, &size, &diag));
    check_cache(r->plan, 2, 1, 2);
    set(r->plan, SCALE, f32(1, 1, 0), numbers);
    set_cache(r->plan, 1, 1, 2);
    assert_ok(ash_plan_execute(r->plan, &diag));
    check_cache(r->plan, 1, 1, 2);
}

/* --- graphs ------------------------------------------------------------------------------------------ */

static void open_graphs_have_inputs_alone(void **state) {
    struct room *r = *state;
    char *text;
    size_t len;
    const char *name;
    int64_t least, greatest;
    const void *data[4] = {numbers, numbers, numbers, numbers};
    ash_reference *reference;
    ash_graph *closed;
    parse(r, cache_model(), NULL);
    assert_int_equal(ash_graph_input_count(r->g), 4);
    assert_int_equal(ash_graph_output_count(r->g), 2);
    assert_true(ash_graph_output_at(r->g, 1, &name) == ASH_NO_VALUE);
    assert_string_equal(name, "z");
    ash_graph_output_at(r->g, 2, &name);
    assert_null(name);
    assert_int_equal(ash_graph_node_count(r->g), 0);
    ash_value x = ash_graph_input_at(r->g, 0, NULL);
    ash_graph_dim_bounds(r->g, ash_graph_type(r->g, x)->dims[0], &least, &greatest);
    assert_true(least == 0 && greatest == INT32_MAX);
    assert_ok(ash_graph_verify(r->g, &diag));
    assert_status(ash_graph_print(r->g, false, &text, &len, &diag), ASH_ERROR_STATE);
    EXPECT("'b', 'seq', 'past'");
    assert_status(ash_onnx_write(r->g, "/tmp/none.onnx", NULL, &diag), ASH_ERROR_STATE);
    assert_status(ash_reference_run(r->g, data, 4, NULL, NULL, 0, &reference, &diag), ASH_ERROR_STATE);
    const ash_type mask = f32(2, 2, 5), seq = f32(2, 2, 3), other = f32(2, 1, 3);
    const ash_type *few[] = {&seq, NULL, NULL, NULL}, *all[] = {&seq, &mask, NULL, NULL},
                   *apart[] = {&other, &mask, NULL, NULL};
    assert_status(ash_graph_close(r->g, few, 4, &closed, &diag), ASH_ERROR_STATE);
    EXPECT("'past'");
    assert_status(ash_graph_close(r->g, apart, 4, &closed, &diag), ASH_ERROR_SHAPE);
    EXPECT("'b'", "1", "2");
    assert_status(ash_graph_close(r->g, all, 3, &closed, &diag), ASH_ERROR_INVALID_ARGUMENT);
    assert_ok(ash_graph_close(r->g, all, 4, &closed, &diag));
    assert_false(ash_graph_is_open(closed));
    assert_int_equal(ash_graph_type(closed, ash_graph_input_at(closed, PAST, NULL))->dims[1], 2);
    assert_int_equal(ash_graph_type(closed, ash_graph_output_at(closed, 0, NULL))->dims[1], 5);
    ash_graph *again;
    assert_status(ash_graph_close(closed, all, 4, &again, &diag), ASH_ERROR_STATE);
    assert_null(again);
    ash_graph_destroy(closed);
}

/* In `open_graphs_have_inputs_alone` the graph is still good; here it is not any more. */
static void open_graphs_are_not_built_on(void **state) {
    struct room *r = *state;
    for (int i = 0; i < 3; i++) {
        ash_value out;
        const ash_type type = f32(1, 4, 0);
        parse(r, relu_model("n;3"), NULL);
        ash_value x = ash_graph_input_at(r->g, 0, NULL);
        if (i == 0) ash_graph_input(r->g, "more", &type);
        if (i == 1) ash_graph_output(r->g, "more", x);
        if (i == 2) ash_graph_add(r->g, ASH_OP_NEG, &x, 1, NULL, 0, &out);
        assert_status(ash_graph_status(r->g, &diag), ASH_ERROR_STATE);
        EXPECT("'n'");
        assert_status(ash_plan_prepare(r->context, r->g, NULL, &r->plan, &diag), ASH_ERROR_STATE);
    }
}

static void eager_takes_sizes_from_its_tensors(void **state) {
    struct room *r = *state;
    ash_tensor *ins[4], *outs[2];
    open_cache(r);
    const ash_type types[] = {f32(2, 2, 3), f32(2, 2, 4), f32(2, 2, 1), f32(1, 1, 0)};
    for (size_t i = 0; i < 4; i++)
        assert_ok(
            ash_tensor_create(r->context, NULL, &types[i], numbers, bytes_of(&types[i]), &ins[i], &diag));
    const ash_eager_call call = {
        .inputs = (const ash_tensor *const *)ins, .input_count = 4, .outputs = outs, .output_count = 2};
    assert_ok(ash_eager(r->context, r->g, NULL, &call, &diag));
    assert_int_equal(ash_tensor_type(outs[1])->dims[1], 4);
    for (size_t i = 0; i < 2; i++) ash_tensor_destroy(outs[i]);
    for (size_t i = 0; i < 4; i++) ash_tensor_destroy(ins[i]);
}

/* A model that cannot be is refused when it is read, as far as that can be told without sizes, and else
 * when they are known, by the call that needs the nodes. */
static void defects_are_told(void **state) {
    struct room *r = *state;
    bytes graph = {.len = 0}, node = make_node("odd", "NoSuchOperator", "x", NULL, "y"),
          x = open_info("x", "n;3"), y = open_info("y", "n;3");
    put_message(&graph, 1, &node);
    put_message(&graph, 11, &x);
    put_message(&graph, 12, &y);
    bytes model = make_model(&graph, 13);
    assert_status(ash_onnx_parse(r->context, model.at, model.len, NULL, &r->g, &diag),
                  ASH_ERROR_UNSUPPORTED);
    assert_string_equal(diag.node, "odd");
    graph.len = 0;
    node = make_node("sum", "Add", "x", "z", "y");
    bytes z = open_info("z", "2;3");
    put_message(&graph, 1, &node);
    put_message(&graph, 11, &x);
    put_message(&graph, 11, &z);
    put_message(&graph, 12, &y);
    parse(r, make_model(&graph, 13), NULL);
    prepare(r, NULL);
    set(r->plan, 1, f32(2, 2, 3), numbers);
    set(r->plan, 0, f32(2, 4, 3), numbers);
    assert_status(ash_plan_execute(r->plan, &diag), ASH_ERROR_SHAPE);
    assert_string_equal(diag.node, "sum");
    set(r->plan, 0, f32(2, 2, 3), numbers);
    assert_ok(ash_plan_execute(r->plan, &diag));
    set(r->plan, 0, f32(2, 5, 3), numbers); /* as it was before, with the last results */
    assert_status(ash_plan_execute(r->plan, &diag), ASH_ERROR_SHAPE);
    const ash_type two = f32(2, 2, 3);
    output(r->plan, 0, &two);
}

static void a_switch_stops_what_comes_late(void **state) {
    struct room *r = *state;
    ash_cancel cancel = {0};
    ash_plan_options options = {.progress = {.cancel = &cancel}};
    const ash_type type = f32(2, 2, 3);
    parse(r, relu_model("n;3"), NULL);
    prepare(r, &options);
    set(r->plan, 0, type, numbers);
    ash_cancel_set(&cancel, true);
    assert_status(ash_plan_execute(r->plan, &diag), ASH_ERROR_CANCELLED);
    ash_cancel_set(&cancel, false);
    assert_ok(ash_plan_execute(r->plan, &diag));
    output(r->plan, 0, &type);
}

/* Allocation 1, 2, 3, ... fails until other sizes succeed; what fails leaves the plan usable. */
static void refused_memory(void **state) {
    struct room *r = *state;
    const ash_type two = f32(2, 2, 3), four = f32(2, 4, 3);
    bool failed = true;
    for (long n = 1; failed; n++) {
        parse(r, relu_model("n;3"), NULL);
        prepare(r, NULL);
        set(r->plan, 0, two, numbers);
        assert_ok(ash_plan_execute(r->plan, &diag));
        output(r->plan, 0, &two);
        r->memory.fail_at = r->memory.count + n;
        ash_status status = ash_plan_set_input(r->plan, 0, &four, numbers, bytes_of(&four), &diag);
        bool is_set = status == ASH_OK;
        if (is_set) status = ash_plan_execute(r->plan, &diag);
        failed = r->memory.count >= r->memory.fail_at;
        r->memory.fail_at = 0;
        assert_int_equal(status, failed ? ASH_ERROR_OUT_OF_MEMORY : ASH_OK);
        if (!is_set) set(r->plan, 0, four, numbers);
        assert_ok(ash_plan_execute(r->plan, &diag));
        output(r->plan, 0, &four);
    }
}

/* Who asks how far an execution is neither waits for it nor meets a plan that goes away. */
static atomic_bool over;

static void *ask(void *plan) {
    uint64_t done, total;
    while (!atomic_load(&over)) {
        ash_plan_progress(plan, &done, &total);
        if (done > total) abort();
    }
    return NULL;
}

static void progress_while_sizes_change(void **state) {
    struct room *r = *state;
    pthread_t thread;
    open_cache(r);
    set(r->plan, SCALE, f32(1, 1, 0), numbers);
    assert_int_equal(pthread_create(&thread, NULL, ask, r->plan), 0);
    for (int64_t i = 0; i < 6; i++) {
        set_cache(r->plan, 1 + i % 2, 1, 2);
        assert_ok(ash_plan_execute(r->plan, &diag));
        check_cache(r->plan, 1 + i % 2, 1, 2);
    }
    atomic_store(&over, true);
    pthread_join(thread, NULL);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(sizes_come_with_the_first_input, setup, teardown),
        cmocka_unit_test_setup_teardown(sizes_change_in_every_mode, setup, teardown),
        cmocka_unit_test_setup_teardown(a_ready_plan_is_as_any_other, setup, teardown),
        cmocka_unit_test_setup_teardown(inputs_share_sizes, setup, teardown),
        cmocka_unit_test_setup_teardown(inputs_that_contradict_are_named, setup, teardown),
        cmocka_unit_test_setup_teardown(wrong_types_name_both_sides, setup, teardown),
        cmocka_unit_test_setup_teardown(unnamed_dims_are_apart, setup, teardown),
        cmocka_unit_test_setup_teardown(bounds_and_open_dims, setup, teardown),
        cmocka_unit_test_setup_teardown(open_dims_are_variables, setup, teardown),
        cmocka_unit_test_setup_teardown(memory_of_the_caller_goes_over, setup, teardown),
        cmocka_unit_test_setup_teardown(parameters_go_over, setup, teardown),
        cmocka_unit_test_setup_teardown(replicas_have_sizes_of_their_own, setup, teardown),
        cmocka_unit_test_setup_teardown(releasing, setup, teardown),
        cmocka_unit_test_setup_teardown(open_graphs_have_inputs_alone, setup, teardown),
        cmocka_unit_test_setup_teardown(open_graphs_are_not_built_on, setup, teardown),
        cmocka_unit_test_setup_teardown(eager_takes_sizes_from_its_tensors, setup, teardown),
        cmocka_unit_test_setup_teardown(defects_are_told, setup, teardown),
        cmocka_unit_test_setup_teardown(a_switch_stops_what_comes_late, setup, teardown),
        cmocka_unit_test_setup_teardown(refused_memory, setup, teardown),
        cmocka_unit_test_setup_teardown(progress_while_sizes_change, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
