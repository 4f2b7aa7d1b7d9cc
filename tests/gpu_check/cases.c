/* SPDX-License-Identifier: MIT */
/* What is checked: graphs for each kind of kernel, of sizes, states and loops, and whole networks. */
#include <math.h>
#include <stdlib.h>

#include "ashlar/train.h"
#include "check.h"
#include "ir/build.h"
#include "nets.h"

/* Sizes come as `n`; the other one is for who wants to know which of the two it is. */
#define CASE(function) static void function(ash_graph *g, int64_t n, int64_t quick)

static ash_value input(ash_graph *g, const char *name, ash_dtype dtype, int64_t rows, int64_t columns) {
    return ash_graph_input(g, name, &(ash_type){dtype, 2, {rows, columns}});
}

static ash_value images(ash_graph *g, const char *name, int64_t a, int64_t b, int64_t c, int64_t d) {
    return ash_graph_input(g, name, &(ash_type){ASH_F32, 4, {a, b, c, d}});
}

/* --- elementwise ------------------------------------------------------------------------------------- */

CASE(arithmetic) {
    ash_value a = input(g, "a", ASH_F32, n, n), b = input(g, "b", ASH_F32, n, n);
    (void)quick;
    ash_value c =
        ash_add(g, ash_mul(g, a, b), ash_div(g, a, ash_add(g, ash_abs(g, b), ash_scalar(g, ASH_F32, 1))));
    ash_graph_output(
        g, "y",
        ash_max(g, ash_sqrt(g, ash_abs(g, c)), ash_floor(g, ash_mul(g, c, ash_scalar(g, ASH_F32, 8)))));
}

CASE(functions) {
    ash_value x = input(g, "x", ASH_F32, n, n);
    (void)quick;
    ash_graph_output(g, "exp", ash_exp(g, x));
    ash_graph_output(g, "tanh", ash_tanh(g, x));
    ash_graph_output(g, "erf", ash_erf(g, x));
    ash_graph_output(g, "log", ash_log(g, ash_abs(g, x)));
    ash_graph_output(g, "sin", ash_sin(g, x));
    ash_graph_output(g, "sigmoid", ash_sigmoid(g, x));
}

CASE(integers) {
    ash_value a = input(g, "a", ASH_I64, n, n), b = input(g, "b", ASH_I64, n, n);
    (void)quick;
    ash_value some = ash_add(g, ash_abs(g, b), ash_scalar(g, ASH_I64, 1));
    ash_graph_output(g, "quotient", ash_div(g, ash_mul(g, a, a), some));
    ash_graph_output(g, "narrow", ash_cast(g, ash_sub(g, a, b), ASH_I8));
    ash_graph_output(g, "less", ash_lt(g, a, b));
}

CASE(halves) {
    ash_value x = input(g, "x", ASH_F32, n, n);
    (void)quick;
    ash_graph_output(g, "f16", ash_add(g, ash_cast(g, x, ASH_F16), ash_scalar(g, ASH_F16, 0.5)));
    ash_graph_output(g, "bf16", ash_mul(g, ash_cast(g, x, ASH_BF16), ash_scalar(g, ASH_BF16, 3)));
}

/* --- products and convolutions ------------------------------------------------------------------------ */

CASE(square) {
    (void)quick;
    ash_graph_output(g, "y", ash_matmul(g, input(g, "a", ASH_F32, n, n), input(g, "b", ASH_F32, n, n)));
}

/* Sizes that no tile divides. */
CASE(odd) {
    (void)quick;
    ash_value y =
        ash_matmul(g, input(g, "a", ASH_F32, n - 1, n + 3), input(g, "b", ASH_F32, n + 3, n / 2 + 1));
    ash_graph_output(g, "y", ash_relu(g, y));
}

CASE(turned) {
    (void)quick;
    ash_value b = ash_transpose(g, input(g, "b", ASH_F32, n, n), (const int64_t[]){1, 0});
    ash_graph_output(g, "y", ash_matmul(g, input(g, "a", ASH_F32, n, n), b));
}

CASE(row) {
    (void)quick;
    ash_graph_output(g, "y", ash_matmul(g, input(g, "a", ASH_F32, 1, n), input(g, "b", ASH_F32, n, n)));
}

CASE(batch) {
    (void)quick;
    ash_value a = ash_graph_input(g, "a", &(ash_type){ASH_F32, 3, {12, n, 64}}),
              b = ash_graph_input(g, "b", &(ash_type){ASH_F32, 3, {12, 64, n}});
    ash_graph_output(g, "y", ash_matmul(g, a, b));
}

/* Computed in halves of a kind, on tensor cores where there are some; the inputs have no more bits. */
static ash_value half(ash_graph *g, ash_value x, ash_dtype dtype) {
    return ash_cast(g, x, dtype);
}

CASE(f16) {
    (void)quick;
    ash_value y = ash_matmul(g, half(g, input(g, "a", ASH_F32, n, n), ASH_F16),
                             half(g, input(g, "b", ASH_F32, n, n), ASH_F16));
    ash_graph_output(g, "y", ash_cast(g, y, ASH_F32));
}

CASE(bf16) {
    (void)quick;
    ash_value y = ash_matmul(g, half(g, input(g, "a", ASH_F32, n - 1, n + 3), ASH_BF16),
                             half(g, input(g, "b", ASH_F32, n + 3, n), ASH_BF16));
    ash_graph_output(g, "y", ash_cast(g, ash_relu(g, y), ASH_F32));
}

/* Strips: the long operand is read once. */
CASE(few_rows) {
    (void)quick;
    ash_value b = input(g, "b", ASH_F32, n, n);
    ash_graph_output(g, "four", ash_matmul(g, input(g, "a", ASH_F32, 4, n), b));
    ash_graph_output(g, "sixteen", ash_matmul(g, input(g, "c", ASH_F32, 16, n), b));
}

/* Constant weights of 4 bits, in blocks of 32 with a scale each, as models for decoding have them. */
CASE(few_bits) {
    enum { BLOCK = 32 };
    (void)quick;
    const int64_t blocks = n / BLOCK, words = BLOCK / 2, two = 2;
    const ash_type packed = {ASH_U8, 3, {n, blocks, words}}, each = {ASH_F32, 3, {n, blocks, 1}};
    unsigned char *bytes = malloc((size_t)(n * blocks * words));
    float *scales = malloc((size_t)(n * blocks) * sizeof *scales);
    if (!bytes || !scales) abort();
    for (int64_t i = 0; i < n * blocks * words; i++) bytes[i] = (unsigned char)(i * 37 % 251);
    for (int64_t i = 0; i < n * blocks; i++) scales[i] = (float)(i % 7 + 1) / 64;
    ash_value x = ash_graph_constant(g, &packed, bytes, (size_t)(n * blocks * words), ASH_DATA_COPY),
              s = ash_graph_constant(g, &each, scales, (size_t)(n * blocks) * sizeof *scales,
                                     ASH_DATA_COPY);
    free(bytes);
    free(scales);
    ash_value shift = ash_build__with(g, ASH_OP_MUL, ash_iota(g, ASH_U8, &two, 1, 0), 4);
    x = ash_build__with(g, ASH_OP_AND, ash_shr(g, ash_build__insert_axis(g, x, 3), shift), 15);
    x = ash_cast(g, ash_reshape(g, x, (const ash_dim[]){n, blocks, BLOCK}, 3), ASH_F32);
    x = ash_reshape(g, ash_mul(g, ash_build__with(g, ASH_OP_SUB, x, 8), s), (const ash_dim[]){n, n}, 2);
    x = ash_build__swap(g, x, 0, 1);
    ash_graph_output(g, "one", ash_matmul(g, input(g, "a", ASH_F32, 1, n), x));
    ash_graph_output(g, "eight", ash_matmul(g, input(g, "b", ASH_F32, 8, n), x));
}

CASE(bytes) {
    (void)quick;
    ash_value a = ash_cast(g, input(g, "a", ASH_I8, n, n), ASH_I32),
              b = ash_cast(g, input(g, "b", ASH_I8, n, n), ASH_I32);
    ash_graph_output(g, "y", ash_matmul(g, a, b));
}

static void convolve(ash_graph *g, int64_t channels, int64_t side, int64_t out, int64_t kernel,
                     int64_t stride, int64_t groups) {
    ash_value x = images(g, "x", 2, channels, side, side),
              w = images(g, "w", out, channels / groups, kernel, kernel);
    ash_graph_output(g, "y", ash_relu(g, ash_conv2d(g, x, w, stride, kernel / 2, groups)));
}

CASE(window) {
    convolve(g, n, n == quick ? 9 : 56, n, 3, 1, 1);
}

CASE(point) {
    convolve(g, n, n == quick ? 7 : 56, 2 * n, 1, 1, 1);
}

CASE(first_layer) {
    convolve(g, 3, n, n == quick ? 16 : 64, 7, 2, 1);
}

/* Channels in blocks, padding: what tensor cores take of windows. */
CASE(half_window) {
    ash_value x = half(g, images(g, "x", 2, n, n == quick ? 9 : 56, n == quick ? 9 : 56), ASH_F16),
              w = half(g, images(g, "w", n, n, 3, 3), ASH_F16);
    ash_graph_output(g, "y", ash_cast(g, ash_relu(g, ash_conv2d(g, x, w, 1, 1, 1)), ASH_F32));
}

CASE(depthwise) {
    convolve(g, n, n == quick ? 8 : 56, n, 3, 1, n);
}

CASE(pools) {
    ash_value x = images(g, "x", 2, n == quick ? 3 : 64, n, n);
    const ash_window windows[] = {{.kernel = 3, .stride = 2, .before = 1, .after = 1},
                                  {.kernel = 3, .stride = 2, .before = 1, .after = 1}};
    ash_graph_output(g, "max", ash_pool(g, ASH_OP_POOL_MAX, x, (const int64_t[]){2, 3}, windows, 2));
}

/* --- rows --------------------------------------------------------------------------------------------- */

CASE(softmax) {
    (void)quick;
    ash_graph_output(g, "y", ash_softmax(g, input(g, "x", ASH_F32, n, 2 * n), 1));
}

/* So many scores that they are never stored; which keys a row sees, its position says. */
CASE(long_attention) {
    const int64_t heads = n == quick ? 1 : 16, rows = n == quick ? 64 : n, size = n == quick ? 4 : 64;
    ash_value q = ash_graph_input(g, "q", &(ash_type){ASH_F32, 3, {heads, rows, size}}),
              k = ash_graph_input(g, "k", &(ash_type){ASH_F32, 3, {heads, size, n}}),
              v = ash_graph_input(g, "v", &(ash_type){ASH_F32, 3, {heads, n, size}});
    ash_value scores = ash_mul(g, ash_matmul(g, q, k), ash_scalar(g, ASH_F32, 1 / sqrt((double)size)));
    const ash_dim dims[] = {rows, n};
    ash_value row = ash_iota(g, ASH_I64, dims, 2, 0), key = ash_iota(g, ASH_I64, dims, 2, 1);
    ash_value past = ash_le(g, key, ash_build__with(g, ASH_OP_ADD, row, (double)(n - rows)));
    scores = ash_select(g, past, scores, ash_scalar(g, ASH_F32, -(double)INFINITY));
    ash_graph_output(g, "y", ash_matmul(g, ash_softmax(g, scores, 2), v));
}

CASE(normal_rows) {
    (void)quick;
    ash_value scale = ash_graph_input(g, "scale", &(ash_type){ASH_F32, 1, {n}}),
              bias = ash_graph_input(g, "bias", &(ash_type){ASH_F32, 1, {n}});
    ash_graph_output(g, "y", ash_layer_norm(g, input(g, "x", ASH_F32, n, n), scale, bias, 1, 1e-5));
}

CASE(sums) {
    (void)quick;
    ash_value x = input(g, "x", ASH_F32, n, n);
    ash_graph_output(g, "rows", ash_reduce(g, ASH_OP_REDUCE_SUM, x, (const int64_t[]){1}, 1, false));
    ash_graph_output(g, "columns", ash_reduce(g, ASH_OP_REDUCE_SUM, x, (const int64_t[]){0}, 1, false));
    ash_graph_output(g, "all", ash_reduce(g, ASH_OP_REDUCE_SUM, x, (const int64_t[]){0, 1}, 2, false));
}

CASE(extrema) {
    (void)quick;
    ash_value x = input(g, "x", ASH_F32, n, n), where;
    ash_value most = ash_topk(g, x, 1, 5, true, &where);
    ash_graph_output(g, "max", ash_reduce(g, ASH_OP_REDUCE_MAX, x, (const int64_t[]){1}, 1, false));
    ash_graph_output(g, "most", most);
    ash_graph_output(g, "where", where);
}

CASE(running) {
    (void)quick;
    ash_graph_output(g, "y", ash_cumsum(g, input(g, "x", ASH_I64, n, n), 1, false, false));
}

/* --- movement ----------------------------------------------------------------------------------------- */

CASE(transpose) {
    (void)quick;
    ash_graph_output(g, "y", ash_transpose(g, input(g, "x", ASH_F32, n, 2 * n), (const int64_t[]){1, 0}));
}

CASE(pieces) {
    (void)quick;
    ash_value x = input(g, "x", ASH_F32, n, n), y = input(g, "y", ASH_F32, n, n);
    ash_value parts[] = {ash_slice_axis(g, x, 1, 1, n / 2), ash_neg(g, y),
                         ash_slice_axis(g, y, 1, 0, n / 4)};
    ash_graph_output(g, "y", ash_concat(g, parts, 3, 1));
}

CASE(lookups) {
    (void)quick;
    ash_value x = input(g, "x", ASH_F32, n, n), at = ash_graph_input(g, "at", &(ash_type){ASH_I64, 1, {n}});
    ash_value index = ash_mod(g, ash_abs(g, at), ash_scalar(g, ASH_I64, (double)n));
    ash_graph_output(g, "rows", ash_gather(g, x, index, 0));
    ash_graph_output(g, "set",
                     ash_scatter_nd(g, x, ash_reshape(g, index, (const ash_dim[]){n, 1}, 2), ash_neg(g, x),
                                    ASH_SCATTER_SET));
}

/* --- variables, states, loops ------------------------------------------------------------------------- */

CASE(variables) {
    (void)quick;
    ash_dim rows = ash_graph_var(g, "rows", 0, n);
    ash_value x = ash_graph_input(g, "x", &(ash_type){ASH_F32, 2, {rows, 24}}),
              w = input(g, "w", ASH_F32, 24, 40);
    ash_graph_output(g, "y", ash_softmax(g, ash_matmul(g, x, w), 1));
}

CASE(settled) {
    (void)quick;
    ash_value x = ash_graph_input(g, "x", &(ash_type){ASH_F32, 1, {n}}), count;
    ash_value where = ash_nonzero(g, ash_gt(g, x, ash_scalar(g, ASH_F32, 0)), &count);
    ash_dim found = ash_settle(g, "found", count, n);
    ash_graph_output(g, "where", ash_neg(g, ash_slice_axis(g, where, 0, 0, found)));
    ash_graph_output(g, "count", count);
}

CASE(states) {
    (void)quick;
    ash_value x = input(g, "x", ASH_I64, 4, n);
    ash_value sum = ash_graph_state(g, "sum", &(ash_type){ASH_I64, 2, {4, n}}, NULL, 0, ASH_DATA_COPY);
    ash_value next = ash_add(g, ash_add(g, sum, sum), x);
    ash_graph_update(g, sum, next);
    ash_graph_output(g, "y", ash_neg(g, next));
}

/* A cache that grows by a row, and what a decoder reads of it. */
CASE(cache) {
    (void)quick;
    ash_value q = input(g, "q", ASH_F32, 8, 64), x = input(g, "x", ASH_F32, 1, 64);
    ash_value old = ash_graph_state(g, "cache", &(ash_type){ASH_F32, 2, {n, 64}}, NULL, 0, ASH_DATA_COPY);
    ash_value next = ash_write_axis(g, old, x, 0, n / 2);
    ash_graph_update(g, old, next);
    ash_value scores = ash_softmax(g, ash_matmul(g, q, ash_build__swap(g, next, 0, 1)), 1);
    ash_graph_output(g, "y", ash_matmul(g, scores, next));
}

/* A step of Adam on two layers: what is read of it is the loss of the last of three. */
CASE(adam) {
    const ash_type square = {ASH_F32, 2, {n, n}};
    float *zeros = calloc((size_t)(n * n), sizeof *zeros);
    if (!zeros) abort();
    for (int64_t i = 0; i < n * n; i++) zeros[i] = (float)(i * 7 % 23 - 11) / (float)(8 * n);
    ash_value w[2], grads[2], x = input(g, "x", ASH_F32, n == quick ? 12 : 256, n);
    for (int i = 0; i < 2; i++)
        w[i] = ash_graph_state(g, i ? "v" : "w", &square, zeros, (size_t)(n * n) * sizeof *zeros,
                               ASH_DATA_COPY);
    free(zeros);
    ash_value y = ash_sub(g, ash_matmul(g, ash_tanh(g, ash_matmul(g, x, w[0])), w[1]), x);
    ash_value loss = ash_reduce_sum(g, ash_mul(g, y, y), (const int64_t[]){0, 1}, 2, false);
    ash_optimizer_options adam = ASH_INIT(ash_optimizer_options);
    adam.kind = ASH_OPTIMIZER_ADAM;
    if (ash_graph_gradients(g, &loss, NULL, 1, w, 2, NULL, grads, NULL) != ASH_OK) return;
    if (ash_graph_optimize(g, w, grads, 2, ash_scalar(g, ASH_F32, 0.01), &adam, NULL) != ASH_OK) return;
    ash_graph_output(g, "loss", loss);
}

/* h' = tanh(x + h w), n steps of it. */
CASE(recurrence) {
    enum { WIDE = 32 };
    (void)quick;
    ash_value x = ash_graph_input(g, "x", &(ash_type){ASH_F32, 3, {n, 4, WIDE}}),
              h = input(g, "h", ASH_F32, 4, WIDE), w = input(g, "w", ASH_F32, WIDE, WIDE);
    ash_value small = ash_mul(g, w, ash_scalar(g, ASH_F32, 0.1)), arguments[3], next, outs[2];
    ash_loop loop = {.trips = n,
                     .carried = 1,
                     .scanned = 1,
                     .stacked = 1,
                     .go = ASH_NO_VALUE,
                     .init = &h,
                     .xs = &x,
                     .arguments = arguments,
                     .next = &next,
                     .ys = &next};
    if (!ash_build__begin_loop(g, &loop)) return;
    next = ash_tanh(g, ash_add(g, arguments[2], ash_matmul(g, arguments[1], small)));
    ash_build__end_loop(g, &loop, outs);
    ash_graph_output(g, "last", outs[0]);
    ash_graph_output(g, "all", outs[1]);
}

/* Each iteration sums the elements above 0 of its row: the host finds how many there are. */
CASE(found) {
    (void)quick;
    ash_value x = ash_graph_input(g, "x", &(ash_type){ASH_I64, 2, {n, 64}}),
              zero = ash_scalar(g, ASH_I64, 0), arguments[3], next, count, outs[2];
    ash_loop loop = {.trips = n,
                     .carried = 1,
                     .scanned = 1,
                     .stacked = 1,
                     .go = ASH_NO_VALUE,
                     .init = &zero,
                     .xs = &x,
                     .arguments = arguments,
                     .next = &next,
                     .ys = &count};
    if (!ash_build__begin_loop(g, &loop)) return;
    ash_value at = ash_nonzero(g, ash_lt(g, zero, arguments[2]), &count);
    ash_dim m = ash_settle(g, "m", count, 64);
    ash_value above = ash_gather(g, arguments[2], ash_slice_axis(g, at, 0, 0, m), 0);
    next =
        ash_sub(g, ash_reduce(g, ASH_OP_REDUCE_SUM, above, (const int64_t[]){0}, 1, false), arguments[1]);
    ash_build__end_loop(g, &loop, outs);
    ash_graph_output(g, "last", outs[0]);
    ash_graph_output(g, "counts", outs[1]);
}

/* Until a sum is past a limit: the host reads a byte in each iteration. */
CASE(condition) {
    (void)quick;
    ash_value x = ash_graph_input(g, "x", &(ash_type){ASH_I64, 1, {64}}), start = ash_abs(g, x),
              arguments[2], next, outs[3], go = ash_scalar(g, ASH_BOOL, 1);
    ash_loop loop = {.trips = n,
                     .carried = 1,
                     .stacked = 1,
                     .go = go,
                     .init = &start,
                     .arguments = arguments,
                     .next = &next,
                     .ys = &next};
    if (!ash_build__begin_loop(g, &loop)) return;
    next = ash_add(g, ash_add(g, arguments[1], arguments[1]), arguments[0]);
    loop.next_go = ash_lt(g, ash_reduce(g, ASH_OP_REDUCE_MAX, next, (const int64_t[]){0}, 1, false),
                          ash_scalar(g, ASH_I64, 100000));
    ash_build__end_loop(g, &loop, outs);
    ash_graph_output(g, "count", outs[0]);
    ash_graph_output(g, "last", outs[1]);
    ash_graph_output(g, "all", outs[2]);
}

/* --- networks ----------------------------------------------------------------------------------------- */

CASE(net_squeezenet) {
    (void)quick;
    squeezenet(&(net){.g = g, .seed = 1, .side = n});
}

CASE(net_mobilenet) {
    (void)quick;
    mobilenet(&(net){.g = g, .seed = 1, .side = n});
}

CASE(net_bert) {
    (void)quick;
    bert_mini(&(net){.g = g, .seed = 1, .length = n});
}

/* In the arithmetic of f32. */
#define IEEE(...) {__VA_ARGS__, ASH_PRECISION_IEEE, false}

const check_case check_cases[] = {
    IEEE("elementwise", "arithmetic", arithmetic, 2048, 20, 0, 1),
    IEEE("elementwise", "functions", functions, 2048, 20, 0, 1),
    IEEE("elementwise", "integers", integers, 1024, 20, 0, 1),
    IEEE("elementwise", "halves", halves, 2048, 20, 0, 1),
    IEEE("products", "square", square, 4096, 70, 1e-5, 1),
    IEEE("products", "square, small", square, 256, 33, 1e-5, 1),
    IEEE("products", "odd", odd, 1000, 45, 1e-5, 1),
    IEEE("products", "transposed", turned, 2048, 40, 1e-5, 1),
    IEEE("products", "one row", row, 4096, 48, 1e-5, 1),
    IEEE("products", "batch of 12", batch, 512, 12, 1e-5, 1),
    IEEE("products", "4 and 16 rows", few_rows, 4096, 96, 1e-5, 1),
    IEEE("products", "weights of 4 bits", few_bits, 4096, 96, 1e-5, 1),
    IEEE("products", "f16", f16, 4096, 48, 2e-3, 1),
    IEEE("products", "bf16, odd", bf16, 2048, 45, 2e-2, 1),
    {"products", "tf32", square, 4096, 70, 5e-3, 1, ASH_PRECISION_TF32, false},
    {"products", "tf32x3", square, 4096, 70, 1e-5, 1, ASH_PRECISION_TF32X3, false},
    {"products", "square, cuBLAS", square, 4096, 70, 1e-5, 1, ASH_PRECISION_IEEE, true},
    {"products", "tf32, cuBLAS", square, 4096, 70, 5e-3, 1, ASH_PRECISION_TF32, true},
    {"products", "f16, cuBLAS", f16, 4096, 48, 2e-3, 1, ASH_PRECISION_IEEE, true},
    IEEE("products", "bytes", bytes, 512, 20, 0, 1),
    IEEE("convolutions", "3x3", window, 128, 16, 1e-5, 1),
    IEEE("convolutions", "1x1", point, 256, 24, 1e-5, 1),
    IEEE("convolutions", "7x7 of 3 channels", first_layer, 224, 20, 1e-5, 1),
    IEEE("convolutions", "3x3, f16", half_window, 128, 16, 2e-3, 1),
    {"convolutions", "3x3, tf32", window, 128, 16, 5e-3, 1, ASH_PRECISION_TF32, false},
    IEEE("convolutions", "depthwise", depthwise, 256, 8, 1e-5, 1),
    IEEE("convolutions", "pool", pools, 112, 9, 0, 1),
    IEEE("rows", "softmax", softmax, 2048, 20, 1e-5, 1),
    IEEE("rows", "attention", long_attention, 4096, 66000, 5e-5, 1),
    IEEE("rows", "layer norm", normal_rows, 2048, 40, 1e-5, 1),
    IEEE("rows", "sums", sums, 2048, 40, 1e-5, 1),
    IEEE("rows", "extrema", extrema, 1024, 20, 0, 1),
    IEEE("rows", "running sums", running, 1024, 20, 0, 1),
    IEEE("movement", "transpose", transpose, 2048, 35, 0, 1),
    IEEE("movement", "pieces", pieces, 2048, 24, 0, 1),
    IEEE("movement", "lookups", lookups, 1024, 12, 0, 1),
    IEEE("variables", "rows", variables, 64, 9, 1e-5, 1),
    IEEE("variables", "settled", settled, 4096, 50, 0, 1),
    IEEE("states", "sum", states, 4096, 20, 0, 3),
    IEEE("states", "cache", cache, 4096, 24, 1e-5, 3),
    IEEE("states", "training", adam, 512, 16, 1e-4, 3),
    IEEE("loops", "recurrence", recurrence, 64, 5, 1e-5, 1),
    IEEE("loops", "condition", condition, 40, 20, 0, 1),
    IEEE("loops", "sizes that iterations find", found, 40, 20, 0, 1),
    IEEE("networks", "squeezenet", net_squeezenet, 224, 32, 1e-5, 1),
    IEEE("networks", "mobilenet_v2", net_mobilenet, 224, 32, 1e-5, 1),
    IEEE("networks", "bert_mini", net_bert, 128, 8, 1e-5, 1),
};
const unsigned check_case_count = sizeof check_cases / sizeof *check_cases;
