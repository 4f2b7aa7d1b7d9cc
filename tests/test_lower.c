/* SPDX-License-Identifier: MIT */
/* Fusion and lowering: compiled graphs against the reference evaluator, fused and not. */
#include "differential.h"
#include "test_graphs.h"

static ash_value pad_all(ash_graph *g, ash_value x, double fill, const int64_t *before,
                         const int64_t *after, const int64_t *interior) {
    unsigned rank = ash_graph_type(g, x)->rank;
    ash_attr attrs[] = {ASH_ATTR_LIST(BEFORE, before, rank), ASH_ATTR_LIST(AFTER, after, rank),
                        ASH_ATTR_LIST(INTERIOR, interior, rank)};
    ash_value ins[] = {x, ash_scalar(g, ASH_F32, fill)}, out;
    ash_graph_add(g, ASH_OP_PAD, ins, 2, attrs, 3, &out);
    return out;
}

static void finish(ash_graph *g, ash_value out, double tolerance) {
    static const int64_t vars[8];
    ash_graph_output(g, "y", out);
    test_differential(context, g, vars, tolerance);
    ash_graph_destroy(g);
}

static void test_elementwise(void **state) {
    (void)state;
    static const int64_t sizes[] = {1, 15, 16, 17, 100, 4096, 70000};
    for (size_t i = 0; i < ASH_COUNT(sizes); i++) {
        ash_graph *g = new_graph();
        ash_value x = INPUT(g, "x", sizes[i]), y = INPUT(g, "y", sizes[i]);
        finish(g, ash_relu(g, ash_mul(g, ash_add(g, x, y), ash_sub(g, x, y))), 1e-6);
    }
}

static void test_broadcast(void **state) {
    (void)state;
    ash_graph *g = new_graph();
    ash_value x = INPUT(g, "x", 2, 5, 7, 9), b = INPUT(g, "b", 5, 1, 1), c = INPUT(g, "c", 9),
              d = INPUT(g, "d", 1);
    finish(g, ash_add(g, ash_mul(g, ash_add(g, x, b), c), d), 1e-6);
}

static void test_movement(void **state) {
    (void)state;
    ash_graph *g = new_graph();
    ash_value x = INPUT(g, "x", 4, 6, 10);
    ash_value t = ash_transpose(g, x, (int64_t[]){2, 0, 1});
    ash_value r = ash_reshape(g, t, (int64_t[]){20, 12}, 2);
    ash_value s = ash_slice(g, r, (int64_t[]){19, 1}, (int64_t[]){-2, 3}, (int64_t[]){10, 4});
    ash_value p = pad_all(g, s, 0.5, (int64_t[]){1, 2}, (int64_t[]){3, 0}, (int64_t[]){0, 2});
    finish(g, ash_neg(g, p), 1e-6);
}

static void test_pack(void **state) {
    (void)state;
    ash_graph *g = new_graph();
    ash_value x = INPUT(g, "x", 2, 64, 5, 5);
    ash_value r = ash_reshape(g, x, (int64_t[]){2, 4, 16, 5, 5}, 5);
    ash_value packed = ash_transpose(g, r, (int64_t[]){0, 1, 3, 4, 2});
    ash_value y = ash_relu(g, packed);
    ash_value back =
        ash_reshape(g, ash_transpose(g, y, (int64_t[]){0, 1, 4, 2, 3}), (int64_t[]){2, 64, 5, 5}, 4);
    ash_graph_output(g, "packed", y);
    finish(g, back, 1e-6);
}

static void test_concat(void **state) {
    (void)state;
    for (int64_t axis = 0; axis < 3; axis++) {
        ash_graph *g = new_graph();
        int64_t dims[] = {3, 4, 5}, wide[] = {3, 4, 5};
        wide[axis] = 7;
        ash_value x = input(g, "x", ASH_F32, 3, dims), y = input(g, "y", ASH_F32, 3, wide);
        ash_value a = ash_relu(g, x), b = ash_exp(g, y), parts[] = {a, b, x};
        ash_value inner = ash_concat(g, parts, 3, axis), outer[] = {inner, ash_neg(g, a)};
        finish(g, ash_mul(g, ash_concat(g, outer, 2, axis), ash_scalar(g, ASH_F32, 2)), 1e-6);
    }
}

static void test_reduce(void **state) {
    (void)state;
    static const int64_t axes[][2] = {{0, 0}, {1, 1}, {2, 2}, {0, 1}, {1, 2}, {0, 2}};
    for (size_t i = 0; i < ASH_COUNT(axes); i++)
        for (int op = 0; op < 3; op++) {
            ash_graph *g = new_graph();
            ash_value x = INPUT(g, "x", 7, 33, 20);
            unsigned n = axes[i][0] == axes[i][1] ? 1 : 2;
            ash_op ops[] = {ASH_OP_REDUCE_SUM, ASH_OP_REDUCE_MAX, ASH_OP_REDUCE_MIN};
            finish(g, ash_neg(g, ash_reduce(g, ops[op], ash_mul(g, x, x), axes[i], n, false)), 1e-6);
        }
}

static void test_softmax(void **state) {
    (void)state;
    for (int64_t axis = 0; axis < 3; axis++) {
        ash_graph *g = new_graph();
        finish(g, ash_softmax(g, INPUT(g, "x", 5, 18, 37), axis), 1e-6);
    }
}

static void test_layer_norm(void **state) {
    (void)state;
    ash_graph *g = new_graph();
    ash_value x = INPUT(g, "x", 6, 48), s = INPUT(g, "s", 48), b = INPUT(g, "b", 48);
    finish(g, ash_layer_norm(g, x, s, b, 1, 1e-5), 1e-5);
}

static void test_matmul(void **state) {
    (void)state;
    static const int64_t shapes[][3] = {{1, 5, 7}, {3, 64, 64}, {17, 33, 40}, {64, 100, 96}, {128, 64, 16}};
    for (size_t i = 0; i < ASH_COUNT(shapes); i++) {
        ash_graph *g = new_graph();
        ash_value a = INPUT(g, "a", shapes[i][0], shapes[i][1]),
                  b = INPUT(g, "b", shapes[i][1], shapes[i][2]);
        finish(g, ash_relu(g, ash_add(g, ash_matmul(g, a, b), INPUT(g, "c", shapes[i][2]))), 1e-6);
        g = new_graph();
        a = INPUT(g, "a", 2, shapes[i][0], shapes[i][1]), b = INPUT(g, "b", 2, shapes[i][2], shapes[i][1]);
        finish(g, ash_matmul(g, a, ash_transpose(g, b, (int64_t[]){0, 2, 1})), 1e-6);
    }
}

static void test_packed_matmul(void **state) {
    (void)state;
    static const int64_t ns[] = {16, 40, 96, 100};
    for (size_t i = 0; i < ASH_COUNT(ns); i++) {
        ash_graph *g = new_graph();
        int64_t n = ns[i], blocks = (n + 15) / 16;
        ash_value a = INPUT(g, "a", 3, 30, 20), b = INPUT(g, "b", 3, 20, n);
        ash_value p = pad_all(g, b, 0, (int64_t[]){0, 0, 0}, (int64_t[]){0, 0, blocks * 16 - n},
                              (int64_t[]){0, 0, 0});
        p = ash_transpose(g, ash_reshape(g, p, (int64_t[]){3, 20, blocks, 16}, 4), (int64_t[]){0, 2, 1, 3});
        ash_value ins[] = {a, p}, y;
        ash_attr attrs[] = {ASH_ATTR_I(N, n), ASH_ATTR_I(B_BLOCK, 16)};
        g->internal = true;
        ash_graph_add(g, ASH_OP_MATMUL, ins, 2, attrs, 2, &y);
        ash_value moved = ash_transpose(g, ash_sigmoid(g, y), (int64_t[]){1, 0, 2});
        finish(g, ash_reshape(g, moved, (int64_t[]){30, 3 * n}, 2), 1e-6);
    }
}

static void test_plain_conv(void **state) {
    (void)state;
    ash_graph *g = new_graph();
    ash_value x = INPUT(g, "x", 2, 6, 9, 11), w = INPUT(g, "w", 8, 3, 3, 3);
    finish(g, ash_relu(g, ash_conv2d(g, x, w, 2, 1, 2)), 1e-6);
}

typedef struct shape {
    int64_t n, c, o, size, kernel, stride, pad, dilation, groups;
} shape;

/* A convolution in blocked form, packed by movement as the layout pass does. */
static void blocked_conv(const shape *s, int64_t xb, int64_t yb) {
    ash_graph *g = new_graph();
    int64_t og = s->o / s->groups, cg = s->c / s->groups, wb = 16, blocks = (og + wb - 1) / wb;
    ash_value x = INPUT(g, "x", s->n, s->c, s->size, s->size),
              w = INPUT(g, "w", s->o, cg, s->kernel, s->kernel);
    if (xb)
        x = ash_transpose(g, ash_reshape(g, x, (int64_t[]){s->n, s->c / xb, xb, s->size, s->size}, 5),
                          (int64_t[]){0, 1, 3, 4, 2});
    if (cg == 1 && og == 1) {
        w = ash_transpose(g, ash_reshape(g, w, (int64_t[]){s->o / wb, wb, s->kernel, s->kernel}, 4),
                          (int64_t[]){0, 2, 3, 1});
    } else {
        int64_t ib = xb ? xb : 1, zero[5] = {0};
        w = ash_reshape(g, w, (int64_t[]){s->groups, og, cg, s->kernel, s->kernel}, 5);
        w = pad_all(g, w, 0, zero, (int64_t[]){0, blocks * wb - og, 0, 0, 0}, zero);
        w = ash_reshape(g, w, (int64_t[]){s->groups, blocks, wb, cg / ib, ib, s->kernel, s->kernel}, 7);
        w = ash_transpose(g, w, (int64_t[]){0, 1, 3, 5, 6, 4, 2});
    }
    int64_t strides[] = {s->stride, s->stride}, dilations[] = {s->dilation, s->dilation},
            pads[] = {s->pad, s->pad};
    ash_attr attrs[] = {ASH_ATTR_LIST(STRIDES, strides, 2),
                        ASH_ATTR_LIST(DILATIONS, dilations, 2),
                        ASH_ATTR_LIST(BEFORE, pads, 2),
                        ASH_ATTR_LIST(AFTER, pads, 2),
                        ASH_ATTR_I(GROUPS, s->groups),
                        ASH_ATTR_I(X_BLOCK, xb),
                        ASH_ATTR_I(Y_BLOCK, yb),
                        ASH_ATTR_I(W_BLOCK, wb),
                        ASH_ATTR_I(O, s->o)};
    ash_value ins[] = {x, w}, y;
    g->internal |= xb || yb || wb;
    ash_graph_add(g, ASH_OP_CONV, ins, 2, attrs, 9, &y);
    const ash_type *t = ash_graph_type(g, y);
    if (t) {
        ash_value other = input(g, "r", ASH_F32, t->rank, t->dims);
        y = ash_relu(g, ash_add(g, y, other));
    }
    finish(g, y, 1e-6);
}

static void test_blocked_conv(void **state) {
    (void)state;
    static const shape shapes[] = {
        {1, 32, 64, 14, 1, 1, 0, 1, 1},  {1, 32, 32, 14, 3, 1, 1, 1, 1},  {2, 16, 48, 15, 3, 2, 1, 1, 1},
        {1, 16, 16, 7, 1, 2, 0, 1, 1},   {1, 64, 64, 9, 5, 1, 2, 1, 2},   {1, 32, 208, 7, 3, 1, 2, 2, 1},
        {1, 48, 48, 12, 3, 1, 1, 1, 48}, {2, 32, 32, 11, 5, 2, 2, 1, 32}, {1, 16, 32, 3, 7, 1, 3, 1, 1},
    };
    for (size_t i = 0; i < ASH_COUNT(shapes); i++) blocked_conv(&shapes[i], 16, 16);
    blocked_conv(&(shape){1, 3, 64, 30, 7, 2, 3, 1, 1}, 0, 16);
    blocked_conv(&(shape){1, 3, 20, 21, 3, 1, 1, 1, 1}, 0, 0);
    blocked_conv(&(shape){1, 32, 24, 10, 1, 1, 0, 1, 1}, 16, 8);
    blocked_conv(&(shape){1, 24, 32, 10, 3, 1, 1, 1, 1}, 8, 16);
    blocked_conv(&(shape){1, 32, 48, 9, 3, 1, 1, 1, 2}, 16, 8); /* 24 a group: a vector and a half */
    blocked_conv(&(shape){1, 16, 20, 9, 1, 1, 0, 1, 1}, 16, 4);
}

static void test_pool(void **state) {
    (void)state;
    ash_window w = {3, 2, 1, 1, 1}, windows[] = {w, w};
    for (int blocked = 0; blocked < 2; blocked++) {
        for (int op = 0; op < 2; op++) {
            ash_graph *g = new_graph();
            ash_value x = blocked ? INPUT(g, "x", 1, 2, 13, 14, 16) : INPUT(g, "x", 2, 5, 13, 14);
            ash_value y =
                ash_pool(g, op ? ASH_OP_POOL_SUM : ASH_OP_POOL_MAX, x, (int64_t[]){2, 3}, windows, 2);
            finish(g, ash_mul(g, y, ash_scalar(g, ASH_F32, 3)), 1e-6);
        }
    }
    ash_graph *g = new_graph();
    ash_window across = {5, 1, 1, 2, 2};
    ash_value x = INPUT(g, "x", 1, 20, 6, 6);
    finish(g, ash_pool(g, ASH_OP_POOL_SUM, ash_mul(g, x, x), (int64_t[]){1}, &across, 1), 1e-6);
}

static void test_indexed(void **state) {
    (void)state;
    ash_graph *g = new_graph();
    ash_type it = {ASH_I64, 2, {3, 5}};
    ash_value x = INPUT(g, "x", 10, 24), i = ash_graph_input(g, "i", &it);
    ash_graph_output(g, "a", ash_relu(g, ash_gather(g, x, i, 0)));
    ash_graph_output(g, "b", ash_gather(g, x, i, 1));
    ash_value updates = INPUT(g, "u", 3, 5);
    ash_graph_output(g, "c", ash_scatter_elements(g, x, i, updates, 0, ASH_SCATTER_ADD));
    finish(g, ash_gather_elements(g, x, i, 1), 1e-6);
}

static void test_rows(void **state) {
    (void)state;
    ash_graph *g = new_graph();
    ash_value x = INPUT(g, "x", 4, 9, 6), at;
    ash_graph_output(g, "v", ash_topk(g, x, 1, 4, true, &at));
    ash_graph_output(g, "i", at);
    ash_graph_output(g, "m", ash_argmax(g, x, 1, false));
    ash_graph_output(g, "n", ash_argmin(g, x, 2, true));
    finish(g, ash_cumsum(g, x, 1, true, true), 1e-6);
}

/* So many of a row that it is sorted: with equals, and with a NaN. */
static void test_sorted_rows(void **state) {
    (void)state;
    static const int64_t counts[] = {25, 32, 33, 64, 100};
    for (size_t i = 0; i < ASH_COUNT(counts); i++) {
        ash_graph *g = new_graph();
        ash_value x = INPUT(g, "x", 3, counts[i], 2), at, few;
        ash_value equals = ash_floor(g, ash_mul(g, x, ash_scalar(g, ASH_F32, 4)));
        ash_value holes = ash_sqrt(g, ash_sub(g, x, ash_scalar(g, ASH_F32, -0.5))); /* of negatives: NaN */
        ash_graph_output(g, "v", ash_topk(g, equals, 1, counts[i], i % 2, &at));
        ash_graph_output(g, "i", at);
        ash_topk(g, holes, 1, counts[i] - 1, i % 2 == 0, &few);
        ash_graph_output(g, "j", few);
        finish(g, ash_topk(g, ash_transpose(g, x, (int64_t[]){1, 0, 2}), 0, counts[i], true, NULL), 1e-6);
    }
}

/* So many of a long row that they are found and sorted by digits: with equals, zeros of both signs, NaNs
 * and infinities, all the same; of integers at the ends of their range, of four and eight bytes, and of
 * half floats. */
static void test_rows_by_digits(void **state) {
    (void)state;
    static const int64_t sizes[][2] = {{200, 200}, {200, 199}, {1000, 700}, {3000, 1500}, {5000, 800}};
    for (size_t i = 0; i < ASH_COUNT(sizes); i++)
        for (int largest = 0; largest < 2; largest++) {
            const int64_t n = sizes[i][0], k = sizes[i][1];
            ash_graph *g = new_graph();
            ash_value x = INPUT(g, "x", 2, n), at;
            ash_value one = ash_scalar(g, ASH_F32, 1),
                      few = ash_floor(g, ash_mul(g, x, ash_scalar(g, ASH_F32, 2)));
            ash_value zeros = ash_mul(g, few, ash_scalar(g, ASH_F32, -0.0));
            ash_value wide = ash_mul(g, x, ash_scalar(g, ASH_F32, 0x1p34)); /* past i32, which saturates */
            ash_value wider = ash_mul(g, wide, ash_scalar(g, ASH_F32, 0x1p31));
            const ash_value kinds[] = {x,
                                       few,
                                       zeros,
                                       ash_div(g, few, few),
                                       ash_div(g, one, few),
                                       ash_cast(g, wide, ASH_I32),
                                       ash_cast(g, few, ASH_BF16),
                                       ash_cast(g, few, ASH_I64),
                                       ash_cast(g, wider, ASH_I64),
                                       ash_cast(g, wider, ASH_U64),
                                       ash_cast(g, wide, ASH_U32),
                                       ash_cast(g, ash_div(g, few, few), ASH_F64),
                                       ash_cast(g, ash_div(g, one, few), ASH_F64),
                                       ash_mul(g, ash_cast(g, x, ASH_F64), ash_cast(g, x, ASH_F64)),
                                       ash_sub(g, ash_cast(g, few, ASH_I64), ash_cast(g, few, ASH_I64))};
            for (size_t j = 0; j < ASH_COUNT(kinds); j++) {
                char name[8];
                ash_value best = ash_topk(g, kinds[j], 1, k, largest, &at);
                snprintf(name, sizeof name, "v%zu", j);
                ash_graph_output(g, name, j == 2 ? ash_div(g, one, best) : best);
                snprintf(name, sizeof name, "i%zu", j);
                ash_graph_output(g, name, at);
            }
            finish(g, ash_topk(g, ash_reshape(g, x, (int64_t[]){1, 2 * n}, 2), 1, k, largest, NULL), 0);
        }
}

static void test_nonzero(void **state) {
    (void)state;
    static const int64_t shapes[][3] = {{1, 1, 1}, {2, 3, 5}, {7, 1, 40}, {1, 4000, 1}, {0, 3, 2}};
    for (size_t i = 0; i < ASH_COUNT(shapes); i++)
        for (int way = 0; way < 3; way++) { /* some, all, none */
            ash_graph *g = new_graph();
            ash_value x = input(g, "x", ASH_F32, 3, shapes[i]), count;
            ash_value least = ash_scalar(g, ASH_F32, way == 0 ? 0.1 : way == 1 ? -1e9 : 1e9);
            ash_graph_output(g, "at", ash_nonzero(g, ash_lt(g, least, x), &count));
            finish(g, count, 0);
        }
}

static void test_nms(void **state) {
    (void)state;
    static const int64_t sizes[][4] = {
        {1, 1, 1, 1}, {2, 3, 50, 7}, {1, 2, 200, 200}, {1, 1, 64, 0}}; /* b c n k */
    for (size_t i = 0; i < ASH_COUNT(sizes); i++)
        for (int way = 0; way < 2; way++) {
            int64_t b = sizes[i][0], c = sizes[i][1], n = sizes[i][2], k = sizes[i][3];
            ash_graph *g = new_graph();
            ash_value center = INPUT(g, "center", b, n, 2), size = ash_abs(g, INPUT(g, "size", b, n, 2)),
                      counts;
            ash_value sides[] = {ash_sub(g, center, size), ash_add(g, center, size)};
            ash_value scores = INPUT(g, "scores", b, c, n); /* with equals, or not */
            if (way) scores = ash_floor(g, ash_mul(g, scores, ash_scalar(g, ASH_F32, 3)));
            ash_graph_output(g, "chosen",
                             ash_nms(g, ash_concat(g, sides, 2, 2), scores, ash_scalar(g, ASH_F32, 0.3),
                                     ash_scalar(g, ASH_F32, -0.2), k, &counts));
            finish(g, counts, 0);
        }
}

static void test_variables(void **state) {
    (void)state;
    for (int64_t batch = 1; batch <= 20; batch += 19) {
        ash_graph *g = new_graph();
        ash_dim b = ash_graph_var(g, "batch", 1, 32);
        ash_type type = {ASH_F32, 3, {b, 6, 40}};
        ash_value x = ash_graph_input(g, "x", &type), w = INPUT(g, "w", 40, 40);
        ash_dim rows = ash_graph_dim_mul(g, b, 6);
        ash_value y = ash_matmul(g, ash_reshape(g, x, (ash_dim[]){rows, 40}, 2), w);
        y = ash_softmax(g, ash_reshape(g, y, (ash_dim[]){b, 6, 40}, 3), -1);
        ash_graph_output(g, "y", ash_add(g, y, x));
        test_differential(context, g, &batch, 1e-6);
        ash_graph_destroy(g);
    }
}

static void test_constants(void **state) {
    (void)state;
    ash_graph *g = new_graph();
    float data[32 * 32];
    for (int i = 0; i < 32 * 32; i++) data[i] = (float)(i % 17) / 17;
    ash_type type = {ASH_F32, 2, {32, 32}};
    ash_value w = ash_graph_constant(g, &type, data, sizeof data, ASH_DATA_COPY);
    ash_value packed = ash_mul(g, ash_transpose(g, w, (int64_t[]){1, 0}), ash_scalar(g, ASH_F32, 2));
    ash_value y = ash_matmul(g, INPUT(g, "x", 8, 32), packed);
    ash_graph_output(g, "w", packed);
    finish(g, y, 1e-6);
}

/* --- what random graphs found --------------------------------------------------------------------- */

static ash_value typed(ash_graph *g, const char *name, ash_dtype dtype, unsigned rank,
                       const ash_dim *dims) {
    ash_type type = {.dtype = dtype, .rank = rank};
    memcpy(type.dims, dims, rank * sizeof *dims);
    return ash_graph_input(g, name, &type);
}

/* A reduction over no axis, or over dims of 1, is no loop; it may lie in a group that has one. */
static void test_reduces_nothing(void **state) {
    (void)state;
    ash_graph *g = new_graph();
    ash_value x = INPUT(g, "x", 6, 1, 20);
    ash_value sum = ash_reduce_sum(g, ash_softmax(g, ash_reduce_max(g, x, (int64_t[]){1}, 1, false), 1),
                                   NULL, 0, false);
    ash_graph_output(g, "sum", ash_neg(g, sum));
    finish(g, ash_reduce_sum(g, x, (int64_t[]){1}, 1, true), 1e-6);
}

static void test_no_elements(void **state) {
    (void)state;
    ash_graph *g = new_graph();
    ash_value none = INPUT(g, "none", 0, 5), x = INPUT(g, "x", 3, 5),
              parts[] = {ash_neg(g, none), ash_neg(g, x), none};
    ash_graph_output(g, "pad",
                     pad_all(g, none, 2, (int64_t[]){1, 0}, (int64_t[]){2, 1}, (int64_t[]){0, 0}));
    ash_graph_output(
        g, "sum", ash_reduce_sum(g, ash_transpose(g, none, (int64_t[]){1, 0}), (int64_t[]){1}, 1, false));
    ash_graph_output(g, "product", ash_matmul(g, ash_reshape(g, none, (int64_t[]){5, 0}, 2), none));
    ash_graph_output(g, "none", ash_softmax(g, ash_reshape(g, none, (int64_t[]){5, 0, 3}, 3), 0));
    finish(g, ash_concat(g, parts, 3, 0), 1e-6);
}

/* A dim that is 0 for some values of its variable, also as a divisor and as an axis that is indexed. */
static void test_variable_may_be_zero(void **state) {
    (void)state;
    for (int64_t v = 0; v < 5; v += 4) {
        ash_graph *g = new_graph();
        ash_dim n = ash_graph_var(g, "n", 0, 4);
        ash_value x = typed(g, "x", ASH_F32, 4, (ash_dim[]){2, 32, n, 3}),
                  i = typed(g, "i", ASH_I64, 1, (ash_dim[]){7});
        ash_value blocks =
            ash_transpose(g, ash_reshape(g, x, (ash_dim[]){2, 2, 16, n, 3}, 5), (int64_t[]){0, 1, 3, 4, 2});
        ash_graph_output(g, "blocks", ash_exp(g, blocks));
        ash_graph_output(g, "gather", ash_neg(g, ash_gather(g, x, i, 2)));
        ash_graph_output(g, "never negative",
                         ash_neg(g, ash_gather(g, x, ash_max(g, i, ash_scalar(g, ASH_I64, 0)), 2)));
        ash_window w = {3, 1, 1, 1, 1};
        ash_graph_output(g, "pool", ash_pool(g, ASH_OP_POOL_SUM, ash_neg(g, x), (int64_t[]){2}, &w, 1));
        ash_value rows = ash_reshape(g, ash_abs(g, x), (ash_dim[]){64, ash_graph_dim_mul(g, n, 3)}, 2);
        ash_graph_output(g, "rows", ash_gather(g, ash_transpose(g, rows, (int64_t[]){1, 0}), i, 0));
        ash_value updates = typed(g, "updates", ASH_F32, 4, (ash_dim[]){1, 1, 7, 1});
        ash_value at = ash_reshape(g, i, (ash_dim[]){1, 1, 7, 1}, 4);
        ash_graph_output(g, "scatter", ash_scatter_elements(g, x, at, updates, 2, ASH_SCATTER_MAX));
        test_differential(context, g, &v, 1e-6);
        ash_graph_destroy(g);
    }
}

/* The loaded index differs from lane to lane while the rest of the address counts up. */
static void test_gather_rows(void **state) {
    (void)state;
    for (int64_t axis = 0; axis < 2; axis++) {
        ash_graph *g = new_graph();
        ash_value x = INPUT(g, "x", 7, 40), i = typed(g, "i", ASH_I32, 2, (ash_dim[]){7, 40});
        finish(g, ash_relu(g, ash_gather_elements(g, x, i, axis)), 1e-6);
    }
}

/* Indices of which it is seen that they never count from the end, or only nearly: with a negative number, a
 * larger one of which one may be negative, the smaller one of two. */
static void test_gather_from_zero(void **state) {
    (void)state;
    const int64_t sizes[] = {1, 3, 9};
    for (size_t s = 0; s < ASH_COUNT(sizes); s++) {
        ash_graph *g = new_graph();
        ash_dim n = ash_graph_var(g, "n", 1, 9);
        ash_value x = typed(g, "x", ASH_F32, 2, (ash_dim[]){3, n}),
                  i = typed(g, "i", ASH_I64, 1, (ash_dim[]){37});
        ash_value most = ash_max(g, i, ash_scalar(g, ASH_I64, 0)),
                  less = ash_max(g, i, ash_scalar(g, ASH_I64, -2)),
                  both = ash_min(g, most, ash_max(g, i, ash_scalar(g, ASH_I64, 1))),
                  one = ash_min(g, most, i);
        const ash_value at[] = {most, less, both, one, ash_neg(g, most)};
        static const char *const names[] = {"most", "less", "both", "one", "neg"};
        for (size_t k = 0; k < ASH_COUNT(at); k++)
            ash_graph_output(g, names[k], ash_neg(g, ash_gather(g, x, at[k], 1)));
        test_differential(context, g, &sizes[s], 1e-6);
        ash_graph_destroy(g);
    }
}

/* Indices past the end: a gather and scatter_elements clamp them, scatter_nd skips the update. */
static void test_indices_outside(void **state) {
    (void)state;
    ash_graph *g = new_graph();
    ash_value x = INPUT(g, "x", 4, 3), i = typed(g, "i", ASH_I64, 2, (ash_dim[]){9, 3}),
              u = INPUT(g, "u", 9, 3);
    i = ash_sub(g, i, ash_scalar(g, ASH_I64, 5)); /* -5 ... 4 */
    ash_graph_output(g, "set", ash_scatter_elements(g, x, i, u, 0, ASH_SCATTER_SET));
    ash_graph_output(g, "add", ash_scatter_elements(g, x, i, u, 0, ASH_SCATTER_ADD));
    ash_value rows = ash_slice(g, i, (int64_t[]){0, 0}, NULL, (int64_t[]){9, 1});
    ash_graph_output(g, "nd", ash_scatter_nd(g, x, rows, u, ASH_SCATTER_ADD));
    finish(g, ash_gather_nd(g, x, rows, 0), 1e-6);
}

/* The dim of the result that vectors run along is 1. */
static void test_one_column(void **state) {
    (void)state;
    for (int64_t m = 1; m < 40; m += 19) {
        ash_graph *g = new_graph();
        finish(g, ash_relu(g, ash_matmul(g, INPUT(g, "a", 2, m, 24), INPUT(g, "b", 2, 24, 1))), 1e-6);
    }
    blocked_conv(&(shape){1, 16, 1, 9, 3, 1, 1, 1, 1}, 16, 0);
    blocked_conv(&(shape){1, 3, 1, 9, 1, 1, 0, 1, 1}, 0, 0);
}

/* Padding adds nothing to a convolution, even where the weight is no finite number. */
static void test_odd_weights(void **state) {
    (void)state;
    ash_graph *g = new_graph();
    float data[2 * 2 * 3 * 3];
    for (int i = 0; i < 36; i++) data[i] = i == 0 ? INFINITY : i == 35 ? NAN : (float)i;
    ash_type type = {ASH_F32, 4, {2, 2, 3, 3}};
    ash_value w = ash_graph_constant(g, &type, data, sizeof data, ASH_DATA_COPY);
    finish(g, ash_conv2d(g, INPUT(g, "x", 1, 2, 8, 19), w, 1, 1, 1), 1e-6);
}

/* A window that begins before the input, whose index is taken apart by a reshape: quotients of negative
 * numbers. */
static void test_window_over_reshape(void **state) {
    (void)state;
    ash_graph *g = new_graph();
    ash_window w = {2, 1, 2, 1, 1};
    ash_value x = ash_transpose(g, INPUT(g, "x", 6, 3, 4), (int64_t[]){1, 0, 2});
    ash_graph_output(
        g, "sum",
        ash_pool(g, ASH_OP_POOL_SUM, ash_reshape(g, x, (int64_t[]){72}, 1), (int64_t[]){0}, &w, 1));
    ash_value spread = pad_all(g, INPUT(g, "y", 10), 3, (int64_t[]){3}, (int64_t[]){1}, (int64_t[]){3});
    finish(g, ash_neg(g, ash_slice(g, spread, (int64_t[]){0}, (int64_t[]){4}, (int64_t[]){10})), 1e-6);
}

/* A window that begins before the input and slides along lines that a reshape made: the neighbours of some
 * window columns lie at one distance, those of others do not. */
static void test_blocked_conv_over_reshape(void **state) {
    (void)state;
    for (int64_t before = 0; before < 4; before++)
        for (int64_t window = 2; window < 5; window++) {
            ash_graph *g = new_graph();
            int64_t strides[] = {1}, befores[] = {before}, afters[] = {1}, zero[ASH_MAX_RANK] = {0};
            ash_value x = ash_reshape(g, INPUT(g, "x", 16, 3, 5), (int64_t[]){20, 4, 3}, 3),
                      w = ash_reshape(g, INPUT(g, "w", 16, 2, window), (int64_t[]){2, 8, 2, window}, 4);
            w = pad_all(g, w, 0, zero, (int64_t[]){0, 8, 0, 0}, zero);
            w = ash_reshape(g, w, (int64_t[]){2, 1, 16, 2, 1, window}, 6);
            w = ash_transpose(g, w, (int64_t[]){0, 1, 3, 5, 4, 2});
            ash_attr attrs[] = {ASH_ATTR_LIST(STRIDES, strides, 1),
                                ASH_ATTR_LIST(DILATIONS, strides, 1),
                                ASH_ATTR_LIST(BEFORE, befores, 1),
                                ASH_ATTR_LIST(AFTER, afters, 1),
                                ASH_ATTR_I(GROUPS, 2),
                                ASH_ATTR_I(X_BLOCK, 0),
                                ASH_ATTR_I(Y_BLOCK, 8),
                                ASH_ATTR_I(W_BLOCK, 16),
                                ASH_ATTR_I(O, 16)};
            ash_value y;
            g->internal = true;
            ash_graph_add(g, ASH_OP_CONV, (ash_value[]){x, w}, 2, attrs, 9, &y);
            finish(g, ash_relu(g, y), 1e-6);
        }
}

/* The half float that an operator computes is cast as the number that it would be in memory: with fusion
 * and without. */
static void test_half_floats_are_rounded_before_casts(void **state) {
    (void)state;
    static const ash_dtype halves[] = {ASH_F16, ASH_BF16}, wide[] = {ASH_F32, ASH_F64, ASH_I32};
    static const int64_t vars[8];
    for (size_t h = 0; h < ASH_COUNT(halves); h++)
        for (size_t w = 0; w < ASH_COUNT(wide); w++) {
            ash_graph *g = new_graph();
            ash_diag diag;
            ash_value x =
                ash_graph_input(g, "x", &(ash_type){.dtype = halves[h], .rank = 2, .dims = {7, 37}});
            ash_value turned = ash_transpose(g, x, (int64_t[]){1, 0});
            ash_value y = ash_mul(g, turned, turned), z = ash_reduce_sum(g, x, (int64_t[]){0}, 1, false);
            ash_graph_output(g, "y", ash_cast(g, ash_transpose(g, y, (int64_t[]){1, 0}), wide[w]));
            ash_graph_output(g, "z", ash_cast(g, z, wide[w]));
            ash_wide *inputs = test_inputs(g, vars), *stored = NULL;
            for (int fuse = 0; fuse < 2; fuse++) {
                ash_program *p;
                ash_compiler *compiler;
                assert_ok(ash_compiler__get(context, &compiler, &diag));
                assert_ok(ash_program__lower(g, ash_compiler__target(compiler),
                                             &(ash_lower_options){.fuse = fuse}, &p, &diag));
                void **memory = calloc(p->buffers.len, sizeof *memory);
                test_run_program(context, p, inputs, vars, memory);
                if (!fuse) {
                    stored = calloc(p->outputs.len, sizeof *stored);
                    for (size_t o = 0; o < p->outputs.len; o++) {
                        const ash_type *type = ash_graph__type(g, g->outputs.at[o].value);
                        assert_ok(ash_wide_alloc(&ash_allocator__libc, type->dtype, type->rank, type->dims,
                                                 &stored[o], &diag));
                        ash_wide_load(&stored[o], memory[p->outputs.at[o]]);
                    }
                }
                test_compare_outputs(p, memory, stored, 0);
                for (size_t i = 0; i < p->buffers.len; i++) free(memory[i]);
                free(memory);
                ash_program__free(p);
            }
            test_free_expected(g, stored);
            test_free_inputs(g, inputs);
            ash_graph_destroy(g);
        }
}

/* Bits as every other dtype of their size, in the midst of arithmetic on both sides. */
static void test_bits_as_another_dtype(void **state) {
    (void)state;
    static const int64_t vars[8];
    for (int from = 0; from < ASH_DTYPE_COUNT; from++)
        for (int to = 0; to < ASH_DTYPE_COUNT; to++) {
            if (from == to || from == ASH_BOOL || to == ASH_BOOL ||
                ash_dtype_size((ash_dtype)from) != ash_dtype_size((ash_dtype)to))
                continue;
            ash_graph *g = new_graph();
            const ash_type type = {.dtype = (ash_dtype)from, .rank = 2, .dims = {7, 37}};
            ash_value x = ash_graph_input(g, "x", &type);
            ash_value y = ash_bitcast(g, ash_mul(g, x, x), (ash_dtype)to);
            ash_graph_output(g, "plain", y);
            ash_graph_output(g, "turned", ash_abs(g, ash_transpose(g, y, (int64_t[]){1, 0})));
            test_differential(context, g, vars, 0);
            ash_graph_destroy(g);
        }
}

/* What is dequantised is computed by both of its readers, from the byte; what a product reads is stored. */
static void test_dequantisation_is_not_stored(void **state) {
    (void)state;
    for (unsigned products = 0; products < 2; products++) {
        ash_diag diag;
        ash_program *p;
        ash_compiler *compiler;
        ash_graph *g = new_graph();
        ash_type bytes = {.dtype = ASH_U8, .rank = 2, .dims = {20, 36}};
        ash_value x = ash_cast(g, ash_graph_input(g, "x", &bytes), ASH_I32);
        x = ash_cast(g, ash_sub(g, x, ash_scalar(g, ASH_I32, 7)), ASH_F32);
        x = ash_mul(g, x, ash_scalar(g, ASH_F32, 0.25));
        ash_graph_output(g, "rows", ash_reduce_sum(g, x, (int64_t[]){1}, 1, false));
        ash_value y = products ? ash_matmul(g, x, INPUT(g, "w", 36, 5))
                               : ash_reduce_max(g, x, (int64_t[]){0}, 1, false);
        ash_graph_output(g, "other", y);
        assert_ok(ash_compiler__get(context, &compiler, &diag));
        assert_ok(ash_program__lower(g, ash_compiler__target(compiler), &(ash_lower_options){.fuse = true},
                                     &p, &diag));
        assert_int_equal(p->steps.len, 2 + products);
        ash_program__free(p);
        static const int64_t vars[8];
        test_differential(context, g, vars, 1e-6);
        ash_graph_destroy(g);
    }
}

/* The steps of a graph's kernels, which compute what they should. */
static size_t count_steps(ash_graph *g) {
    static const int64_t vars[8];
    ash_diag diag;
    ash_program *p;
    ash_compiler *compiler;
    assert_ok(ash_compiler__get(context, &compiler, &diag));
    assert_ok(ash_program__lower(g, ash_compiler__target(compiler), &(ash_lower_options){.fuse = true}, &p,
                                 &diag));
    const size_t steps = p->steps.len;
    ash_program__free(p);
    test_differential(context, g, vars, 1e-5);
    ash_graph_destroy(g);
    return steps;
}

/* What is scaled and shifted of a value that is reduced as well is computed by each of its readers; so is
 * not what has two operands as large, or a function in between. */
static void test_what_is_normalised_is_not_stored(void **state) {
    (void)state;
    for (unsigned kind = 0; kind < 3; kind++) {
        ash_graph *g = new_graph();
        ash_value w = INPUT(g, "w", 33, 128), x = ash_matmul(g, INPUT(g, "x", 129, 33), w);
        ash_graph_output(g, "sums", ash_reduce_sum(g, x, (int64_t[]){0}, 1, false));
        ash_value y = ash_add(g, ash_mul(g, x, INPUT(g, "s", 128)), INPUT(g, "t", 128));
        if (kind == 1) y = ash_add(g, y, INPUT(g, "z", 129, 128));
        if (kind == 2) y = ash_tanh(g, y);
        y = ash_max(g, y, ash_scalar(g, ASH_F32, 0.25));
        ash_graph_output(g, "rows", ash_reduce_sum(g, y, (int64_t[]){1}, 1, false));
        ash_graph_output(g, "columns", ash_reduce_max(g, y, (int64_t[]){0}, 1, false));
        assert_int_equal(count_steps(g), kind ? 5 : 4); /* the product, a sum, two more, and y */
    }
}

/* What is scaled of a value that others read as well is not stored beside it, whoever reads it: what an
 * activation and its gradient have in common. With a second operand as large it is. */
static void test_what_is_scaled_is_not_stored(void **state) {
    (void)state;
    for (unsigned large = 0; large < 2; large++) {
        ash_graph *g = new_graph();
        ash_value x = ash_matmul(g, INPUT(g, "x", 129, 33), INPUT(g, "w", 33, 128));
        ash_value half = ash_mul(g, x, large ? INPUT(g, "z", 129, 128) : ash_scalar(g, ASH_F32, 0.5)),
                  bent = ash_tanh(g, ash_mul(g, x, ash_scalar(g, ASH_F32, 0.75)));
        ash_graph_output(g, "rows", ash_reduce_sum(g, ash_mul(g, half, bent), (int64_t[]){1}, 1, false));
        ash_graph_output(g, "columns", ash_reduce_max(g, ash_sub(g, half, bent), (int64_t[]){0}, 1, false));
        assert_int_equal(count_steps(g), 4 + large); /* the product, the function, two readers */
    }
}

/* A transposed first operand is read where it lies, unless its neighbours share one set of the cache. */
static void test_neighbours_that_share_a_set(void **state) {
    (void)state;
    for (unsigned apart = 0; apart < 2; apart++) {
        ash_graph *g = new_graph();
        ash_value a = ash_transpose(g, INPUT(g, "a", 40, apart ? 1040 : 1024), (int64_t[]){1, 0});
        ash_graph_output(g, "y", ash_matmul(g, a, INPUT(g, "b", 40, 48)));
        assert_int_equal(count_steps(g), apart ? 1 : 2);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_what_is_normalised_is_not_stored),
        cmocka_unit_test(test_what_is_scaled_is_not_stored),
        cmocka_unit_test(test_neighbours_that_share_a_set),
        cmocka_unit_test(test_elementwise),
        cmocka_unit_test(test_broadcast),
        cmocka_unit_test(test_movement),
        cmocka_unit_test(test_pack),
        cmocka_unit_test(test_concat),
        cmocka_unit_test(test_reduce),
        cmocka_unit_test(test_softmax),
        cmocka_unit_test(test_layer_norm),
        cmocka_unit_test(test_matmul),
        cmocka_unit_test(test_packed_matmul),
        cmocka_unit_test(test_plain_conv),
        cmocka_unit_test(test_blocked_conv),
        cmocka_unit_test(test_pool),
        cmocka_unit_test(test_indexed),
        cmocka_unit_test(test_rows),
        cmocka_unit_test(test_sorted_rows),
        cmocka_unit_test(test_rows_by_digits),
        cmocka_unit_test(test_nonzero),
        cmocka_unit_test(test_nms),
        cmocka_unit_test(test_variables),
        cmocka_unit_test(test_constants),
        cmocka_unit_test(test_reduces_nothing),
        cmocka_unit_test(test_no_elements),
        cmocka_unit_test(test_variable_may_be_zero),
        cmocka_unit_test(test_gather_rows),
        cmocka_unit_test(test_gather_from_zero),
        cmocka_unit_test(test_indices_outside),
        cmocka_unit_test(test_one_column),
        cmocka_unit_test(test_odd_weights),
        cmocka_unit_test(test_window_over_reshape),
        cmocka_unit_test(test_blocked_conv_over_reshape),
        cmocka_unit_test(test_half_floats_are_rounded_before_casts),
        cmocka_unit_test(test_bits_as_another_dtype),
        cmocka_unit_test(test_dequantisation_is_not_stored),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
