/* SPDX-License-Identifier: MIT */
/* Which bits of a GPU are those of the processor (docs/cuda.md has the list): every elementwise operator
 * on every dtype, casts between all of them, movement, extrema, integers. Functions of f64 for which a
 * processor takes the C library are none of them, nor are sums and products of floats, whose order is
 * that of the machine's schedule: they are close. The processor must have a fused multiply-add, as
 * formulas use it where there is one. */
#include "base/target.h"
#include "code/code.h"
#include "cuda_room.h"
#include "gpu_here.h"
#include "ir/ir.h"

static ash_diag diag;

typedef struct room {
    ash_context *context;
    ash_graph *graph;
    const char *names[ROOM_OUTPUTS];
    size_t n, compared, made;
    int64_t units; /* of the last place of an f64 that results may differ by */
    bool odd;      /* rows are no multiple of a vector: a thread has an element */
} room;

enum { COUNT = 3 * 332 };

static int open_room(void **state) {
    static room r;
    r = (room){0};
    assert_ok(ash_context_create(NULL, &r.context, &diag));
    *state = &r;
    return 0;
}

static int close_room(void **state) {
    room *r = *state;
    print_message("%zu results\n", r->compared);
    ash_context_destroy(r->context);
    return 0;
}

/* The graph under test; a new one after a comparison. */
static ash_graph *graph(room *r) {
    if (!r->graph) assert_ok(ash_graph_create(r->context, "bits", &r->graph, &diag));
    return r->graph;
}

/* Bits of every kind: small numbers, edges, anything. */
static ash_value numbers(room *r, ash_dtype dtype) {
    static const double edges[] = {0,    -0.0, 1,    -1,    0.5,      2,         3,   -7,
                                   1e-3, 100,  1e30, -1e30, INFINITY, -INFINITY, NAN, 1e-42};
    static unsigned char data[COUNT * 8];
    uint64_t seed = ++r->made;
    size_t size = ash_dtype_size(dtype);
    bool real = dtype == ASH_F32 || dtype == ASH_F64;
    for (size_t i = 0; i < COUNT; i++) {
        uint64_t bits = test_random(&seed);
        double x = edges[bits % 16];
        if (bits >> 60 < 8) x = (double)(int64_t)(test_random(&seed) >> 44) / 65536 - 8;
        float single = (float)x;
        if (bits >> 60 < 14 && real)
            memcpy(data + i * size, dtype == ASH_F32 ? (void *)&single : (void *)&x, size);
        else if (bits >> 60 < 12 && !ash_dtype_is_float(dtype))
            bits = (uint64_t)((int64_t)(bits % 41) - 20), memcpy(data + i * size, &bits, size);
        else
            memcpy(data + i * size, &bits, size);
        if (dtype == ASH_BOOL) data[i] &= 1;
    }
    ash_dim wide = COUNT / 3 - r->odd;
    ash_type type = {.dtype = dtype, .rank = 2, .dims = {3, wide}};
    char name[32];
    snprintf(name, sizeof name, "%zu", r->made);
    return ash_graph_parameter(graph(r), name, &type, data, 3 * (size_t)wide * size, ASH_DATA_COPY);
}

static bool is_nan(ash_dtype dtype, const unsigned char *at) {
    uint64_t bits = 0;
    memcpy(&bits, at, ash_dtype_size(dtype));
    switch (dtype) {
    case ASH_F16: return (bits & 0x7fff) > 0x7c00;
    case ASH_BF16: return (bits & 0x7fff) > 0x7f80;
    case ASH_F32: return (bits & 0x7fffffff) > 0x7f800000;
    case ASH_F64: return (bits & INT64_MAX) > UINT64_C(0x7ff) << 52;
    default: return false;
    }
}

/* What is no number has other bits on a GPU; that it is none is the same. */
static void same_bits(const room *r, const cuda_results *want, const cuda_results *got, size_t i) {
    ash_dtype dtype = want->types[i].dtype;
    const unsigned char *a = want->data[i], *b = got->data[i];
    size_t size = ash_dtype_size(dtype);
    assert_int_equal(want->bytes[i], got->bytes[i]);
    for (size_t k = 0; k < want->bytes[i]; k += size) {
        if (memcmp(a + k, b + k, size) == 0 || (is_nan(dtype, a + k) && is_nan(dtype, b + k))) continue;
        int64_t x = 0, y = 0;
        memcpy(&x, a + k, size), memcpy(&y, b + k, size);
        if (r->units && llabs(x - y) <= r->units) continue; /* of one sign, or it overflows */
        fail_msg("%s of %s, element %zu: 0x%llx on the processor, 0x%llx on the GPU", r->names[i],
                 ash_dtype_name(dtype), k / size, (unsigned long long)x, (unsigned long long)y);
    }
}

/* Both machines, and the comparison of all that was wanted; the graph is gone. */
static void compare(room *r) {
    cuda_results want, got;
    ash_device *device;
    if (!r->n) return;
    assert_ok(ash_graph_status(r->graph, &diag));
    ash_plan_options options = ash_plan_options_default();
    options.no_optimize = true;    /* the operators as they are: nothing is evaluated beforehand */
    options.keep_denormals = true; /* as a GPU does */
    cuda_room_driver(r->compared);
    assert_ok(cuda_room_run(r->context, r->graph, NULL, options, false, &want, &diag));
    assert_ok(ash_device_open(r->context, "CUDA:0", &device, &diag));
    assert_ok(cuda_room_run(r->context, r->graph, device, options, false, &got, &diag));
    ash_device_close(device);
    for (size_t i = 0; i < r->n; i++) same_bits(r, &want, &got, i);
    r->compared += r->n;
    cuda_results_free(&want);
    cuda_results_free(&got);
    ash_graph_destroy(r->graph);
    r->graph = NULL;
    r->n = 0;
}

static void wants(room *r, const char *name, ash_value value) {
    char text[32];
    snprintf(text, sizeof text, "%s%zu", name, r->n);
    ash_graph_output(graph(r), text, value);
    r->names[r->n++] = name;
    if (r->n == ROOM_OUTPUTS) compare(r);
}

static const struct {
    const char *name;
    uint8_t class;
} operators[ASH_OP_COUNT] = {
#define OP(ID, name, CLASS, inputs_min, inputs_max, outputs, attributes)                                   \
    [ASH_OP_##ID] = {#name, ASH_CLASS_##CLASS},
#include "ashlar/ops.def"
#undef OP
};

/* Those for which a processor takes the C library. */
static bool from_library(ash_op op, ash_dtype dtype) {
    return dtype == ASH_F64 && ((op >= ASH_OP_SIN && op <= ASH_OP_ERF) || op == ASH_OP_POW);
}

static bool has_fma(room *r) {
    ash_compiler *compiler;
    assert_ok(ash_compiler__get(r->context, &compiler, &diag));
    return ash_compiler__target(compiler)->fma;
}

/* Whether the operator takes this dtype, as the builder says on a graph of its own. */
static bool takes(room *r, ash_op op, ash_dtype dtype, size_t n) {
    ash_graph *g;
    ash_type type = {.dtype = dtype, .rank = 1, .dims = {4}};
    assert_ok(ash_graph_create(r->context, "one", &g, &diag));
    ash_value x = ash_graph_input(g, "x", &type), ins[] = {x, x};
    ash_build(g, op, ins, n, NULL, 0);
    bool fine = ash_graph_status(g, &diag) == ASH_OK;
    ash_graph_destroy(g);
    return fine;
}

static void elementwise(void **state) {
    room *r = *state;
    if (!has_fma(r)) skip();
    for (ash_dtype dtype = 0; dtype < ASH_DTYPE_COUNT; dtype++) {
        for (ash_op op = 0; op < ASH_OP_COUNT; op++) {
            size_t n = operators[op].class == ASH_CLASS_UNARY ? 1 : 2;
            if (operators[op].class > ASH_CLASS_COMPARE || from_library(op, dtype) ||
                !takes(r, op, dtype, n))
                continue;
            ash_value ins[2];
            for (size_t i = 0; i < n; i++) ins[i] = numbers(r, dtype);
            wants(r, operators[op].name, ash_build(graph(r), op, ins, n, NULL, 0));
        }
        compare(r);
    }
}

static void one_by_one(void **state) {
    ((room *)*state)->odd = true;
    elementwise(state);
}

/* What code generation knows of a number it uses: operators with one beside all others, on either side,
 * and the choice between the two of those that are compared. */
static void beside_a_number(void **state) {
    room *r = *state;
    static const double some[] = {0, -0.0, 0.25, -1, 3, INFINITY, NAN};
    static const ash_dtype dtypes[] = {ASH_F32, ASH_F64, ASH_F16, ASH_I32};
    if (!has_fma(r)) skip();
    for (size_t i = 0; i < 4 * sizeof some / sizeof *some; i++) {
        const ash_dtype dtype = dtypes[i % 4];
        const double number = some[i / 4];
        if (dtype == ASH_I32 && (isinf(number) || number != floor(number))) continue;
        for (ash_op op = 0; op < ASH_OP_COUNT; op++) {
            if (operators[op].class != ASH_CLASS_BINARY && operators[op].class != ASH_CLASS_COMPARE)
                continue;
            if (from_library(op, dtype) || !takes(r, op, dtype, 2)) continue;
            for (int side = 0; side < 2; side++) {
                if (r->n + 2 > ROOM_OUTPUTS) compare(r);
                ash_value x = numbers(r, dtype), c = ash_scalar_like(graph(r), x, number);
                c = ash_broadcast_to(graph(r), c, ash_graph_type(graph(r), x)->dims, 2);
                const ash_value ins[] = {side ? c : x, side ? x : c};
                ash_value y = ash_build(graph(r), op, ins, 2, NULL, 0);
                if (operators[op].class == ASH_CLASS_COMPARE) /* which the choice alone reads */
                    y = ash_select(graph(r), y, ins[0], ins[1]);
                wants(r, operators[op].name, y);
                if (operators[op].class != ASH_CLASS_COMPARE) continue;
                y = ash_build(graph(r), op, ins, 2, NULL, 0);
                wants(r, operators[op].name, ash_select(graph(r), y, ins[1], ins[0]));
            }
        }
        compare(r);
    }
}

/* Within some units of the last place: each side has an error of its own. */
static void functions_of_f64(void **state) {
    room *r = *state;
    enum { UNITS = 4 };
    if (!has_fma(r)) skip();
    r->units = UNITS;
    for (ash_op op = 0; op < ASH_OP_COUNT; op++) {
        ash_value ins[2];
        if (!from_library(op, ASH_F64)) continue;
        size_t n = operators[op].class == ASH_CLASS_UNARY ? 1 : 2;
        for (size_t i = 0; i < n; i++) ins[i] = numbers(r, ASH_F64);
        wants(r, operators[op].name, ash_build(graph(r), op, ins, n, NULL, 0));
    }
    compare(r);
}

static void casts(void **state) {
    room *r = *state;
    if (!has_fma(r)) skip();
    for (ash_dtype from = 0; from < ASH_DTYPE_COUNT; from++) {
        ash_dtype to = 0;
        for (; to < ASH_DTYPE_COUNT; to++)
            wants(r, ash_dtype_name(from), ash_cast(graph(r), numbers(r, from), to));
        compare(r);
    }
}

/* Each element is one of an operand's, or is chosen among them. */
static void movement_and_choice(void **state) {
    room *r = *state;
    static const ash_dtype dtypes[] = {ASH_U8, ASH_F16, ASH_F32, ASH_I32, ASH_I64, ASH_F64};
    enum { WIDE = COUNT / 3 };
    for (size_t i = 0; i < sizeof dtypes / sizeof *dtypes; i++) {
        ash_dtype t = dtypes[i];
        ash_value at;
        wants(r, "transpose", ash_transpose(graph(r), numbers(r, t), (const int64_t[]){1, 0}));
        wants(r, "reshape",
              ash_neg(graph(r), ash_reshape(graph(r), numbers(r, t), (const ash_dim[]){WIDE, 3}, 2)));
        wants(r, "slice", ash_slice_axis(graph(r), numbers(r, t), 1, 17, 100));
        wants(r, "pad",
              ash_pad(graph(r), numbers(r, t), ash_scalar(graph(r), t, 1), (const ash_dim[]){1, 3},
                      (const ash_dim[]){0, 5}));
        ash_value two[] = {numbers(r, t), numbers(r, t)};
        wants(r, "concat", ash_concat(graph(r), two, 2, 1));
        wants(r, "gather",
              ash_gather(graph(r), numbers(r, t), ash_iota(graph(r), ASH_I64, (const ash_dim[]){200}, 1, 0),
                         1));
        ash_value four[4];
        for (int k = 0; k < 4; k++) four[k] = numbers(r, t);
        wants(r, "select", ash_select(graph(r), ash_lt(graph(r), four[0], four[1]), four[2], four[3]));
        compare(r);
        wants(r, "reduce_max",
              ash_reduce(graph(r), ASH_OP_REDUCE_MAX, numbers(r, t), (const int64_t[]){1}, 1, false));
        wants(r, "reduce_min",
              ash_reduce(graph(r), ASH_OP_REDUCE_MIN, numbers(r, t), (const int64_t[]){0}, 1, false));
        if (t != ASH_F16) {
            ash_value best = ash_topk(graph(r), numbers(r, t), 1, 20, true, &at);
            wants(r, "topk", best);
            wants(r, "topk's places", at);
        }
        ash_value image = ash_reshape(graph(r), numbers(r, t), (const ash_dim[]){1, 3, WIDE}, 3);
        ash_window window = {.kernel = 3, .stride = 2, .before = 1, .after = 1};
        wants(r, "pool_max", ash_pool(graph(r), ASH_OP_POOL_MAX, image, (const int64_t[]){2}, &window, 1));
        compare(r);
    }
}

static void integers(void **state) {
    room *r = *state;
    static const ash_dtype dtypes[] = {ASH_I32, ASH_I64, ASH_U8, ASH_U32};
    for (size_t i = 0; i < sizeof dtypes / sizeof *dtypes; i++) {
        ash_dtype t = dtypes[i];
        ash_value a = numbers(r, t), count;
        wants(r, "reduce_sum", ash_reduce(graph(r), ASH_OP_REDUCE_SUM, a, (const int64_t[]){1}, 1, false));
        wants(r, "reduce_prod",
              ash_reduce(graph(r), ASH_OP_REDUCE_PROD, a, (const int64_t[]){1}, 1, false));
        wants(r, "cumsum", ash_cumsum(graph(r), a, 1, false, true));
        if (t == ASH_I32)
            wants(r, "matmul",
                  ash_matmul(graph(r), a, ash_transpose(graph(r), a, (const int64_t[]){1, 0})));
        ash_value zero = ash_scalar(graph(r), t, 0),
                  flat = ash_reshape(graph(r), a, (const ash_dim[]){COUNT}, 1);
        wants(r, "nonzero", ash_nonzero(graph(r), ash_gt(graph(r), flat, zero), &count));
        wants(r, "nonzero's count", count);
        compare(r);
    }
}

int main(void) {
    if (!gpu_is_compiled_for()) return GPU_SKIPPED;
#define TEST(name) cmocka_unit_test_setup_teardown(name, open_room, close_room)
    const struct CMUnitTest tests[] = {TEST(elementwise),      TEST(one_by_one), TEST(beside_a_number),
                                       TEST(functions_of_f64), TEST(casts),      TEST(movement_and_choice),
                                       TEST(integers)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
