/* SPDX-License-Identifier: MIT */
/* Callers that were compiled with another version of the headers, for each public struct that grows: with
 * fewer fields than this library knows, with more, and with a size that none ever had. The structs come
 * from the public headers (tools/api.sh writes a row for each that begins with its size), and one without a
 * call here that takes or fills it does not compile. */
#include <unistd.h>

#include "ashlar/builder.h"
#include "ashlar/function.h"
#include "ashlar/onnx.h"
#include "ashlar/plan.h"
#include "ashlar/train.h"
#include "base/sized.h"
#include "gpu_here.h"
#include "testing.h"

static struct {
    ash_context *context;
    ash_graph *graph;
    ash_plan *plan, *paper; /* paper: for a kind of GPU */
    ash_device *device;
    char path[64]; /* of a model */
} made;

static ash_diag diag;

/* --- a call for each struct ------------------------------------------------------------------- */

#define OPTIONS(T)                                                                                         \
    enum { fills_##T = false };                                                                            \
    static ash_status call_##T(T *s)
#define REPORT(T)                                                                                          \
    enum { fills_##T = true };                                                                             \
    static ash_status call_##T(T *s)

OPTIONS(ash_context_options) {
    ash_context *context;
    ash_status status = ash_context_create(s, &context, &diag);
    ash_context_destroy(context);
    return status;
}

OPTIONS(ash_plan_options) {
    ash_plan *plan;
    ash_status status = ash_plan_prepare(made.context, made.graph, s, &plan, &diag);
    ash_plan_destroy(plan);
    return status;
}

OPTIONS(ash_eager_call) {
    ash_type type = {ASH_F32, 1, {4}};
    ash_tensor *x, *y;
    assert_ok(ash_tensor_create(made.context, NULL, &type, (float[4]){0}, 16, &x, NULL));
    s->inputs = (const ash_tensor *const[]){x};
    s->outputs = &y;
    s->input_count = s->output_count = 1;
    ash_status status = ash_eager(made.context, made.graph, NULL, s, &diag);
    if (status == ASH_OK) ash_tensor_destroy(y);
    ash_tensor_destroy(x);
    return status;
}

OPTIONS(ash_onnx_write_options) {
    return ash_onnx_write(made.graph, made.path, s, &diag);
}

OPTIONS(ash_onnx_options) {
    ash_graph *graph;
    ash_status status = ash_onnx_read(made.context, made.path, s, &graph, &diag);
    ash_graph_destroy(graph);
    return status;
}

/* A graph with a state, which the call may leave failed. */
static ash_graph *fresh_graph(ash_value *state) {
    const ash_type type = {ASH_F32, 1, {4}};
    ash_graph *graph;
    assert_ok(ash_graph_create(made.context, NULL, &graph, NULL));
    *state = ash_graph_state(graph, "s", &type, NULL, 0, ASH_DATA_COPY);
    return graph;
}

OPTIONS(ash_gradient_options) {
    ash_value x, grad;
    ash_graph *graph = fresh_graph(&x);
    ash_status status = ash_graph_gradients(graph, &x, NULL, 1, &x, 1, s, &grad, &diag);
    ash_graph_destroy(graph);
    return status;
}

OPTIONS(ash_optimizer_options) {
    ash_value x;
    ash_graph *graph = fresh_graph(&x);
    ash_status status = ash_graph_optimize(graph, &x, &x, 1, ash_scalar(graph, ASH_F32, 1), s, &diag);
    ash_graph_destroy(graph);
    return status;
}

OPTIONS(ash_loss_scale_options) {
    const ash_type type = {ASH_F32, 0, {0}};
    ash_value x;
    ash_graph *graph = fresh_graph(&x);
    ash_value scale = ash_graph_state(graph, "scale", &type, NULL, 0, ASH_DATA_COPY);
    ash_graph_unscale(graph, &x, 1, scale, s);
    ash_status status = ash_graph_status(graph, &diag);
    ash_graph_destroy(graph);
    return status;
}

OPTIONS(ash_pair_options) {
    const ash_type type = {ASH_F32, 1, {4}};
    ash_value x, seed;
    ash_graph *graph = fresh_graph(&x);
    ash_plan *first, *second;
    x = ash_exp(graph, x);
    seed = ash_graph_input(graph, "seed", &type);
    ash_graph_output(graph, "y", x);
    ash_graph_output(graph, "z", ash_mul(graph, x, seed));
    s->seeds = &seed;
    s->n_seeds = 1;
    ash_status status = ash_plan_prepare_pair(made.context, graph, s, &first, &second, &diag);
    ash_plan_destroy(first);
    ash_plan_destroy(second);
    ash_graph_destroy(graph);
    return status;
}

OPTIONS(ash_rate_schedule) {
    double rate;
    return ash_rate_at(s, 0, &rate, &diag);
}

static ash_status nothing(void *user, const ash_call *call, ash_diag *unused) {
    return (void)user, (void)call, (void)unused, ASH_OK;
}

OPTIONS(ash_function) {
    static int number;
    char name[16];
    snprintf(name, sizeof name, "f%d", number++);
    s->name = name;
    s->run = nothing;
    return ash_context_add_function(made.context, s, &diag);
}

OPTIONS(ash_custom_options) {
    ash_type type = {ASH_F32, 1, {4}};
    ash_graph *graph;
    ash_value out;
    assert_ok(ash_graph_create(made.context, "g", &graph, NULL));
    ash_status status = ash_custom(graph, "nothing", NULL, 0, &type, 1, s, &out);
    ash_graph_status(graph, &diag);
    ash_graph_destroy(graph);
    return status;
}

OPTIONS(ash_run) {
    ash_status status = ash_plan_run(made.plan, s, &diag);
    return status == ASH_ERROR_STATE ? ASH_OK : status; /* nothing is wrong but that inputs are missing */
}

REPORT(ash_plan_report) {
    return ash_plan_describe_to(made.plan, s, &diag);
}

REPORT(ash_plan_var) {
    return ash_plan_var_at(made.plan, 0, s, &diag);
}

REPORT(ash_buffer_info) {
    return ash_plan_buffer_at(made.plan, 0, s, &diag);
}

REPORT(ash_plan_device_info) {
    return ash_plan_device_at(made.plan, 0, s, &diag);
}

REPORT(ash_prepared_op) {
    return ash_plan_op_at(made.plan, 0, s, &diag);
}

REPORT(ash_op_forecast) {
    return ash_plan_op_forecast(made.paper, 0, 0, s, &diag);
}

REPORT(ash_op_access) {
    return ash_plan_op_access(made.plan, 0, 0, s, &diag);
}

REPORT(ash_graph_variable) {
    return ash_graph_var_at(made.graph, 0, s, &diag);
}

REPORT(ash_device_info) {
    return ash_device_describe_to(made.device, s, &diag);
}

REPORT(ash_memory_order_report) {
    ash_memory_schedule schedule = {.op_count = 1};
    uint32_t order;
    return ash_memory_order_search(made.context, &schedule, NULL, 0, 0, NULL, &order, s, &diag);
}

/* --- the table -------------------------------------------------------------------------------- */

#define STATUS(...)
#define VALUE(...)
#define NOTHING(...)
#define SIZED(header, T)                                                                                   \
    static ash_status any_##T(void *s) {                                                                   \
        return call_##T(s);                                                                                \
    }
#include "api_rows.h"
#undef SIZED

typedef struct row {
    const char *name;
    size_t size;
    bool fills; /* a report */
    ash_status (*call)(void *s);
} row;

#define SIZED(header, T) {#T, sizeof(T), fills_##T, any_##T},
static const row rows[] = {
#include "api_rows.h"
};

enum { MORE = 32, MARK = 0xa5 };
static _Alignas(16) unsigned char room[4096];

/* The struct of a caller that knows `size` bytes and says `tag`; MARK lies behind them. */
static void *make(size_t size, size_t tag) {
    assert_true(size + MORE <= sizeof room);
    memset(room, MARK, sizeof room);
    memset(room, 0, size);
    memcpy(room, &tag, sizeof tag);
    return room;
}

static bool all_are(const unsigned char *bytes, size_t count, int value) {
    for (size_t i = 0; i < count; i++)
        if (bytes[i] != value) return false;
    return true;
}

#define assert_refused(r, status, expected)                                                                \
    (assert_status(status, expected), assert_non_null(strstr(diag.message, (r)->name)))

/* --- tests ------------------------------------------------------------------------------------ */

static void the_library_is_called_with_any_size(void **state) {
    (void)state;
    assert_in_range(sizeof rows / sizeof *rows, 15, 100);
    for (const row *r = rows; r < rows + sizeof rows / sizeof *rows; r++) {
        size_t tag;
        if (r->call == any_ash_op_forecast && !made.paper) continue; /* nobody can make code for GPUs */
        assert_ok(r->call(make(r->size, 0)));
        assert_ok(r->call(make(r->size, r->size)));
        assert_ok(r->call(make(r->size + MORE, r->size + MORE)));
        memcpy(&tag, room, sizeof tag);
        assert_int_equal(tag, r->size + MORE);
        assert_true(all_are(room + r->size, MORE, 0)); /* also a report's */
        assert_true(all_are(room + r->size + MORE, 16, MARK));
        make(r->size + MORE, r->size + MORE);
        room[r->size + MORE - 1] = 1;
        if (r->fills)
            assert_ok(r->call(room));
        else
            assert_refused(r, r->call(room), ASH_ERROR_UNSUPPORTED);
        assert_int_equal(room[r->size + MORE - 1], 1);
        assert_refused(r, r->call(make(r->size, sizeof(size_t))), ASH_ERROR_INVALID_ARGUMENT);
        assert_refused(r, r->call(make(r->size, SIZE_MAX)), ASH_ERROR_INVALID_ARGUMENT);
    }
}

/* Each struct as if its second half were fields of a later version than the first. */
static void callers_of_the_first_release_are_understood(void **state) {
    (void)state;
    for (const row *r = rows; r < rows + sizeof rows / sizeof *rows; r++) {
        unsigned char own[2048];
        size_t tag, first = r->size / 2 & ~(size_t)7;
        first = first > sizeof tag ? first : sizeof tag;
        const ash_sized of = {r->name, first, r->size};
        for (size_t known = first; known <= r->size; known += 8)
            for (int zero = known == first; zero >= 0; zero--) {
                make(known, zero ? 0 : known);
                memset(room + sizeof tag, 7, known - sizeof tag);
                memset(own, MARK, sizeof own);
                assert_ok(ash_sized__take(&of, room, own, &diag));
                memcpy(&tag, own, sizeof tag);
                assert_int_equal(tag, r->size);
                assert_true(all_are(own + sizeof tag, known - sizeof tag, 7));
                assert_true(all_are(own + known, r->size - known, 0));
                assert_int_equal(own[r->size], MARK);

                memset(own + sizeof tag, 9, r->size - sizeof tag);
                assert_ok(ash_sized__give(&of, own, room, &diag));
                memcpy(&tag, room, sizeof tag);
                assert_int_equal(tag, zero ? 0 : known);
                assert_true(all_are(room + sizeof tag, known - sizeof tag, 9));
                assert_true(all_are(room + known, r->size - known + MORE, MARK));
            }
        assert_refused(r, ash_sized__take(&of, make(first, first - 1), own, &diag),
                       ASH_ERROR_INVALID_ARGUMENT);
    }
}

static void no_options_are_zeros(void **state) {
    (void)state;
    unsigned char own[64];
    size_t tag;
    const ash_sized of = {"options", 24, 40};
    memset(own, MARK, sizeof own);
    assert_ok(ash_sized__take(&of, NULL, own, &diag));
    memcpy(&tag, own, sizeof tag);
    assert_int_equal(tag, 40);
    assert_true(all_are(own + sizeof tag, 40 - sizeof tag, 0));
    assert_int_equal(own[40], MARK);
}

/* What other structs contain has no size, but room that must be zero. */
static void room_within_a_struct_is_zero(void **state) {
    (void)state;
    ash_plan *plan;
    ash_plan_options options = ASH_INIT(ash_plan_options);
    for (size_t i = 0; i < ASH_COUNT(options.memory.reserved); i++) {
        options.memory.reserved[i] = 1;
        assert_status(ash_plan_prepare(made.context, made.graph, &options, &plan, &diag),
                      ASH_ERROR_UNSUPPORTED);
        assert_non_null(strstr(diag.message, "ash_memory_options"));
        options.memory.reserved[i] = 0;
    }
    assert_ok(ash_plan_prepare(made.context, made.graph, &options, &plan, &diag));
    ash_plan_destroy(plan);
}

static void an_initialiser_says_what_its_caller_knows(void **state) {
    (void)state;
    static const ash_plan_options options = ASH_INIT(ash_plan_options);
    assert_int_equal(options.size, sizeof options);
    assert_int_equal(ash_plan_options_default().size, sizeof options);
    assert_true(ash_plan_describe(made.plan).ops > 0);
    assert_true(ash_device_describe(made.device).cpu_accessible);
}

/* --- the objects ------------------------------------------------------------------------------ */

static int setup(void **state) {
    (void)state;
    ash_type type = {ASH_F32, 1, {4}};
    ash_function function = {.name = "nothing", .run = nothing};
    snprintf(made.path, sizeof made.path, "/tmp/ash_sized_%d.onnx", (int)getpid());
    assert_ok(ash_context_create(&(ash_context_options){.threads = 1}, &made.context, &diag));
    assert_ok(ash_context_add_function(made.context, &function, &diag));
    assert_ok(ash_graph_create(made.context, "g", &made.graph, &diag));
    ash_graph_var(made.graph, "n", 1, 4);
    ash_graph_output(made.graph, "y", ash_exp(made.graph, ash_graph_input(made.graph, "x", &type)));
    assert_ok(ash_plan_prepare(made.context, made.graph, NULL, &made.plan, &diag));
    ash_plan_options paper = ash_plan_options_default();
    if (gpu_is_compiled_for()) {
        assert_ok(ash_device_open(made.context, "CUDA:sm_80", &paper.device, &diag));
        assert_ok(ash_plan_prepare(made.context, made.graph, &paper, &made.paper, &diag));
        ash_device_close(paper.device);
    }
    assert_ok(ash_onnx_write(made.graph, made.path, NULL, &diag));
    assert_ok(ash_device_open(made.context, "CPU", &made.device, &diag));
    return 0;
}

static int teardown(void **state) {
    (void)state;
    unlink(made.path);
    ash_device_close(made.device);
    ash_plan_destroy(made.plan);
    ash_plan_destroy(made.paper);
    ash_graph_destroy(made.graph);
    ash_context_destroy(made.context);
    return 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_library_is_called_with_any_size),
        cmocka_unit_test(callers_of_the_first_release_are_understood),
        cmocka_unit_test(no_options_are_zeros),
        cmocka_unit_test(room_within_a_struct_is_zero),
        cmocka_unit_test(an_initialiser_says_what_its_caller_knows),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
