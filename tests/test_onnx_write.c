/* SPDX-License-Identifier: MIT */
/* Writing: a graph with every core operator is written, read again, and gives the same results.
 * (`conformance -w` does the same with all backend tests, and keeps the files for other readers.) */
#include "onnx_round.h"

#include "ashlar/builder.h"

static ash_graph *new_graph(void) {
    ash_graph *graph;
    assert_ok(ash_graph_create(context, "test", &graph, &diag));
    return graph;
}

static ash_value input(ash_graph *g, const char *name, ash_dtype dtype, unsigned rank,
                       const ash_dim *dims) {
    ash_type type = {.dtype = dtype, .rank = rank};
    memcpy(type.dims, dims, rank * sizeof *dims);
    return ash_graph_input(g, name, &type);
}

static void output(ash_graph *g, ash_value v) {
    char name[32];
    snprintf(name, sizeof name, "out%zu", ash_graph_output_count(g));
    ash_graph_output(g, name, v);
}

static ash_value node(ash_graph *g, ash_op op, const ash_value *ins, size_t n_ins, const ash_attr *attrs,
                      size_t n_attrs) {
    ash_value outs[2] = {ASH_NO_VALUE, ASH_NO_VALUE};
    ash_graph_add(g, op, ins, n_ins, attrs, n_attrs, outs);
    return outs[0];
}

static void test_every_elementwise_operator(void **state) {
    (void)state;
    static const ash_dim dims[] = {3, 4};
    static const ash_dtype dtypes[] = {ASH_F32, ASH_I32, ASH_U32, ASH_BOOL};
    for (size_t t = 0; t < ASH_COUNT(dtypes); t++) {
        ash_graph *g = new_graph();
        ash_value x = input(g, "x", dtypes[t], 2, dims), y = input(g, "y", dtypes[t], 2, dims);
        ash_value c = input(g, "c", ASH_BOOL, 2, dims);
        const ash_value ins[] = {x, y}, chosen[] = {c, x, y};
        for (int op = 0; op < ASH_OP_COUNT; op++) {
            ash_type type = *ash_graph_type(g, x), types[] = {type, type}, out;
            if (ash_op_infos[op].class > ASH_CLASS_COMPARE) continue;
            size_t n = ash_op_infos[op].ins_min;
            const ash_node made = {.op = (ash_op)op, .n_ins = (uint16_t)n};
            if (ash_infer(g->dims, &made, types, &out, NULL) != ASH_OK) continue;
            output(g, node(g, (ash_op)op, ins, n, NULL, 0));
        }
        output(g, node(g, ASH_OP_SELECT, chosen, 3, NULL, 0));
        for (int d = 0; d < ASH_DTYPE_COUNT; d++) output(g, ash_cast(g, x, (ash_dtype)d));
        round_trip(g, NULL, 0);
        ash_graph_destroy(g);
    }
}

/* Divisors that are infinite, and zeros with their signs, which a quotient shows. */
static void test_remainders(void **state) {
    (void)state;
    static const float xs[] = {5, -5, 5, -5, 0, -4, 4, 7.5f, -7.5f, INFINITY, NAN, 3e38f};
    static const float ys[] = {INFINITY, INFINITY, -INFINITY, -INFINITY, INFINITY, 2,
                               -2,       2,        2,         3,         1,        1e-3f};
    const ash_type type = {.dtype = ASH_F32, .rank = 1, .dims = {ASH_COUNT(xs)}};
    ash_graph *g = new_graph();
    ash_value x = ash_graph_constant(g, &type, xs, sizeof xs, ASH_DATA_COPY),
              y = ash_graph_constant(g, &type, ys, sizeof ys, ASH_DATA_COPY);
    const ash_value ins[] = {x, y};
    ash_value mod = node(g, ASH_OP_MOD, ins, 2, NULL, 0);
    output(g, mod);
    output(g, ash_div(g, x, mod));
    output(g, node(g, ASH_OP_REM, ins, 2, NULL, 0));
    round_trip(g, NULL, 0);
    ash_graph_destroy(g);
}

static void test_movement_reduction_access(void **state) {
    (void)state;
    ash_graph *g = new_graph();
    static const ash_dim dims[] = {2, 3, 4}, flat[] = {6, 4}, wide[] = {5, 2, 3, 4}, part[] = {2, 2, 2};
    static const int64_t perm[] = {2, 0, 1}, starts[] = {0, 2, 3}, steps[] = {1, -1, -2},
                         interior[] = {0, 2, 1};
    static const ash_dim before[] = {1, 0, 2}, after[] = {0, 1, 0};
    static const int64_t axes[] = {0, 2}, ids[] = {3, -1, 0};
    ash_value x = input(g, "x", ASH_F32, 3, dims), b = input(g, "b", ASH_BOOL, 3, dims);
    const ash_type three = {.dtype = ASH_I64, .rank = 1, .dims = {3}};
    ash_value index = ash_graph_constant(g, &three, ids, sizeof ids, ASH_DATA_COPY);
    output(g, ash_reshape(g, x, flat, 2));
    output(g, ash_transpose(g, x, perm));
    output(g, ash_broadcast_to(g, x, wide, 4));
    output(g, ash_slice(g, x, starts, steps, part));
    const ash_value padded[] = {x, ash_scalar(g, ASH_F32, 7)}, both[] = {x, x}, taken[] = {x, index};
    const ash_attr pad[] = {ASH_ATTR_LIST(BEFORE, before, 3), ASH_ATTR_LIST(AFTER, after, 3),
                            ASH_ATTR_LIST(INTERIOR, interior, 3)};
    output(g, node(g, ASH_OP_PAD, padded, 2, pad, 3));
    output(g, ash_concat(g, both, 2, 1));
    output(g, ash_iota(g, ASH_F32, dims, 3, 1));
    const ash_attr reduced[] = {ASH_ATTR_LIST(AXES, axes, 2)},
                   first[] = {ASH_ATTR_I(AXIS, 1), ASH_ATTR_I(LAST, 1)};
    for (int op = ASH_OP_REDUCE_SUM; op <= ASH_OP_REDUCE_MIN; op++)
        output(g, node(g, (ash_op)op, &x, 1, reduced, 1));
    output(g, node(g, ASH_OP_REDUCE_MAX, &b, 1, reduced, 1));
    output(g, node(g, ASH_OP_ARGMAX, &x, 1, first, 2));
    output(g, node(g, ASH_OP_ARGMIN, &x, 1, first, 2));
    const ash_attr last[] = {ASH_ATTR_I(AXIS, 2)},
                   scan[] = {ASH_ATTR_I(AXIS, 2), ASH_ATTR_I(EXCLUSIVE, 1), ASH_ATTR_I(REVERSE, 1)};
    output(g, node(g, ASH_OP_GATHER, taken, 2, last, 1));
    output(g, node(g, ASH_OP_CUMSUM, &x, 1, scan, 3));
    const ash_attr top[] = {ASH_ATTR_I(AXIS, 2), ASH_ATTR_I(K, 2), ASH_ATTR_I(LARGEST, 0)};
    ash_value sorted[2];
    assert_ok(ash_graph_add(g, ASH_OP_TOPK, &x, 1, top, 3, sorted));
    output(g, sorted[0]);
    output(g, sorted[1]);
    output(g, x);
    output(g, x);
    round_trip(g, NULL, 0);
    ash_graph_destroy(g);
}

static void test_windows_over_any_axes(void **state) {
    (void)state;
    ash_graph *g = new_graph();
    static const ash_dim dims[] = {2, 4, 5, 6}, one[] = {1}, two[] = {1, 0};
    static const int64_t channel[] = {1}, ends[] = {0, 3}, spatial[] = {2, 3}, k3[] = {3}, k22[] = {2, 2},
                         s1[] = {1, 1}, d2[] = {2, 2};
    ash_value x = input(g, "x", ASH_F32, 4, dims);
    for (int op = ASH_OP_POOL_MAX; op <= ASH_OP_POOL_SUM; op++) {
        const ash_attr a[] = {ASH_ATTR_LIST(AXES, channel, 1), ASH_ATTR_LIST(KERNEL, k3, 1),
                              ASH_ATTR_LIST(STRIDES, s1, 1),   ASH_ATTR_LIST(DILATIONS, s1, 1),
                              ASH_ATTR_LIST(BEFORE, one, 1),   ASH_ATTR_LIST(AFTER, one, 1)};
        const ash_attr b[] = {ASH_ATTR_LIST(AXES, ends, 2),  ASH_ATTR_LIST(KERNEL, k22, 2),
                              ASH_ATTR_LIST(STRIDES, s1, 2), ASH_ATTR_LIST(DILATIONS, s1, 2),
                              ASH_ATTR_LIST(BEFORE, two, 2), ASH_ATTR_LIST(AFTER, two, 2)};
        const ash_attr c[] = {ASH_ATTR_LIST(AXES, spatial, 2), ASH_ATTR_LIST(KERNEL, k22, 2),
                              ASH_ATTR_LIST(STRIDES, d2, 2),   ASH_ATTR_LIST(DILATIONS, d2, 2),
                              ASH_ATTR_LIST(BEFORE, two, 2),   ASH_ATTR_LIST(AFTER, two, 2)};
        output(g, node(g, (ash_op)op, &x, 1, a, 6));
        output(g, node(g, (ash_op)op, &x, 1, b, 6));
        output(g, node(g, (ash_op)op, &x, 1, c, 6));
    }
    round_trip(g, NULL, 0);
    ash_graph_destroy(g);
}

/* Dims that are expressions are computed in the file from the shapes of its inputs. */
static void test_variable_dims(void **state) {
    (void)state;
    ash_graph *g = new_graph();
    ash_dim n = ash_graph_var(g, "n", 2, 64);
    const ash_dim dims[] = {n, 6}, split[] = {n, 2, 3}, line[] = {ash_graph_dim_mul(g, n, 6)};
    const ash_dim rows = ash_graph_dim_div(g, ash_graph_dim_add(g, n, 1), 2),
                  starts[] = {ash_graph_dim_sub(g, n, 1), 0};
    const ash_dim half[] = {rows, 6}, wide[] = {4, n, 6};
    static const int64_t down[] = {-2, 1};
    ash_value x = input(g, "x", ASH_F32, 2, dims);
    output(g, ash_reshape(g, x, split, 3));
    output(g, ash_reshape(g, x, line, 1));
    output(g, ash_slice(g, x, starts, down, half));
    output(g, ash_broadcast_to(g, x, wide, 3));
    output(g, ash_iota(g, ASH_I64, dims, 2, 0));
    /* every second element from 16 on, of the 6 n that there are: (1 - min(16, 6 n)) / 2 is rounded down */
    const ash_dim from = ash_graph_dim_min(g, 16, line[0]);
    const ash_dim rest = ash_graph_dim_add(g, ash_graph_dim_sub(g, line[0], from), 1),
                  every = ash_graph_dim_div(g, rest, 2);
    output(g, ash_slice(g, ash_reshape(g, x, line, 1), &from, (int64_t[]){2}, &every));
    for (int64_t var = 2; var < 6; var++) round_trip(g, NULL, var);
    ash_graph_destroy(g);
}

/* Windows beside variables and over them, padding that depends on them, gaps. */
static void test_variable_windows(void **state) {
    (void)state;
    ash_graph *g = new_graph();
    ash_dim n = ash_graph_var(g, "n", 2, 64), m = ash_graph_var(g, "m", 2, 64);
    const ash_dim dims[] = {n, 4, m, 6}, none[] = {0, 0}, wide[] = {ash_graph_dim_div(g, m, 2), 1},
                  one[] = {1};
    const ash_dim inner[] = {0, 0, 1, 0}, outer[] = {1, 0, ash_graph_dim_sub(g, m, 1), 0};
    static const int64_t spatial[] = {2, 3}, channel[] = {1}, k22[] = {2, 2}, k3[] = {3}, ones[] = {1, 1},
                         gaps[] = {1, 0, 2, 0};
    const ash_type filter = {.dtype = ASH_F32, .rank = 4, .dims = {2, 4, 2, 2}};
    ash_value x = input(g, "x", ASH_F32, 4, dims), y = input(g, "y", ASH_I32, 4, dims);
    for (int op = ASH_OP_POOL_MAX; op <= ASH_OP_POOL_SUM; op++) {
        const ash_attr a[] = {ASH_ATTR_LIST(AXES, spatial, 2), ASH_ATTR_LIST(KERNEL, k22, 2),
                              ASH_ATTR_LIST(STRIDES, ones, 2), ASH_ATTR_LIST(DILATIONS, ones, 2),
                              ASH_ATTR_LIST(BEFORE, none, 2),  ASH_ATTR_LIST(AFTER, wide, 2)};
        const ash_attr b[] = {ASH_ATTR_LIST(AXES, channel, 1), ASH_ATTR_LIST(KERNEL, k3, 1),
                              ASH_ATTR_LIST(STRIDES, ones, 1), ASH_ATTR_LIST(DILATIONS, ones, 1),
                              ASH_ATTR_LIST(BEFORE, one, 1),   ASH_ATTR_LIST(AFTER, one, 1)};
        output(g, node(g, (ash_op)op, &x, 1, a, 6));
        output(g, node(g, (ash_op)op, &x, 1, b, 6));
    }
    const ash_attr most[] = {ASH_ATTR_LIST(AXES, spatial, 2), ASH_ATTR_LIST(KERNEL, k22, 2),
                             ASH_ATTR_LIST(STRIDES, ones, 2), ASH_ATTR_LIST(DILATIONS, ones, 2),
                             ASH_ATTR_LIST(BEFORE, wide, 2),  ASH_ATTR_LIST(AFTER, none, 2)};
    output(g, node(g, ASH_OP_POOL_MAX, &y, 1, most, 6));
    const ash_attr conv[] = {ASH_ATTR_LIST(STRIDES, ones, 2),
                             ASH_ATTR_LIST(DILATIONS, ones, 2),
                             ASH_ATTR_LIST(BEFORE, none, 2),
                             ASH_ATTR_LIST(AFTER, wide, 2),
                             ASH_ATTR_I(GROUPS, 1),
                             ASH_ATTR_I(X_BLOCK, 0),
                             ASH_ATTR_I(Y_BLOCK, 0),
                             ASH_ATTR_I(W_BLOCK, 0),
                             ASH_ATTR_I(O, 0)};
    const ash_value filtered[] = {x, ash_broadcast_to(g, ash_scalar(g, ASH_F32, 0.5), filter.dims, 4)};
    output(g, node(g, ASH_OP_CONV, filtered, 2, conv, 9));
    const ash_value padded[] = {x, ash_scalar(g, ASH_F32, 7)};
    const ash_attr pad[] = {ASH_ATTR_LIST(BEFORE, inner, 4), ASH_ATTR_LIST(AFTER, outer, 4),
                            ASH_ATTR_LIST(INTERIOR, gaps, 4)};
    output(g, node(g, ASH_OP_PAD, padded, 2, pad, 3));
    for (int64_t var = 2; var < 6; var++) round_trip(g, NULL, var);
    ash_graph_destroy(g);
}

/* Weights in the model lie at multiples of 64, and so do those in a file of their own. */
static void test_alignment_and_external_data(void **state) {
    (void)state;
    static float weights[3][700];
    const ash_dim dims[] = {700};
    for (int external = 0; external < 2; external++) {
        ash_graph *g = new_graph(), *back;
        ash_value x = input(g, "x", ASH_F32, 1, dims);
        const ash_type type = {.dtype = ASH_F32, .rank = 1, .dims = {700}};
        for (int i = 0; i < 3; i++) {
            char name[16];
            snprintf(name, sizeof name, "weight%.*s", i, "abc");
            for (int k = 0; k < 700; k++) weights[i][k] = (float)(i * 700 + k);
            x = ash_add(
                g, x, ash_graph_parameter(g, name, &type, weights[i], sizeof weights[i], ASH_DATA_BORROW));
        }
        output(g, x);
        const ash_onnx_write_options options = {.external = external ? "w.bin" : NULL};
        assert_ok(ash_onnx_write(g, in_folder("m.onnx"), &options, &diag));
        assert_ok(ash_onnx_read(context, in_folder("m.onnx"), &(ash_onnx_options){.parameters = true},
                                &back, &diag));
        assert_same_results(g, back, 0);
        size_t found = 0;
        for (size_t v = 0; v < back->values.len; v++) {
            const ash_value_info *info = &back->values.at[v];
            if (!info->blob || info->kind != ASH_VALUE_PARAMETER) continue;
            assert_true(info->blob->mapped);
            assert_int_equal((uintptr_t)info->blob->data % 64, 0);
            found++;
        }
        assert_int_equal(found, 3);
        ash_graph_destroy(back);
        ash_graph_destroy(g);
        unlink(in_folder("m.onnx"));
        unlink(in_folder("w.bin"));
    }
}

static void test_refusals_leave_no_file(void **state) {
    (void)state;
    ash_graph *g = new_graph();
    static const ash_dim dims[] = {4};
    output(g, input(g, "x", ASH_F32, 1, dims));
    const ash_onnx_write_options outside = {.external = "../w.bin"};
    assert_status(ash_onnx_write(g, in_folder("m.onnx"), &outside, &diag), ASH_ERROR_INVALID_ARGUMENT);
    assert_status(ash_onnx_write(g, in_folder("no/m.onnx"), NULL, &diag), ASH_ERROR_NOT_FOUND);
    static const int64_t pads[] = {1, 1};
    const ash_attr attrs[] = {ASH_ATTR_LIST(BEFORE, pads, 2), ASH_ATTR_LIST(AFTER, pads, 2),
                              ASH_ATTR_I(O, 4), ASH_ATTR_I(Y_BLOCK, 4), ASH_ATTR_I(TILE, 4)};
    const ash_value tiled[] = {input(g, "t", ASH_F32, 5, (ash_dim[]){1, 1, 9, 9, 4}),
                               input(g, "w", ASH_F32, 7, (ash_dim[]){1, 1, 1, 3, 3, 4, 4})};
    g->internal = true;
    output(g, node(g, ASH_OP_WINOGRAD, tiled, 2, attrs, 5));
    assert_status(ash_onnx_check(g, &diag), ASH_ERROR_UNSUPPORTED);
    assert_string_equal(diag.op, "winograd");
    assert_status(ash_onnx_write(g, in_folder("m.onnx"), NULL, &diag), ASH_ERROR_UNSUPPORTED);
    assert_int_not_equal(access(in_folder("m.onnx"), F_OK), 0);
    assert_int_not_equal(access(in_folder("m.onnx.part"), F_OK), 0);
    ash_graph_destroy(g);
}

/* In a file an input and an output of one name are one value. */
static void test_names_of_two_values(void **state) {
    (void)state;
    static const ash_dim dims[] = {4};
    ash_graph *g = new_graph();
    ash_graph_output(g, "x", input(g, "x", ASH_F32, 1, dims));
    round_trip(g, NULL, 0);
    ash_graph_destroy(g);
    g = new_graph();
    ash_graph_output(g, "x", ash_neg(g, input(g, "x", ASH_F32, 1, dims)));
    assert_status(ash_onnx_write(g, in_folder("m.onnx"), NULL, &diag), ASH_ERROR_UNSUPPORTED);
    assert_non_null(strstr(diag.message, "\"x\""));
    ash_graph_destroy(g);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_elementwise_operator),
        cmocka_unit_test(test_names_of_two_values),
        cmocka_unit_test(test_remainders),
        cmocka_unit_test(test_movement_reduction_access),
        cmocka_unit_test(test_windows_over_any_axes),
        cmocka_unit_test(test_variable_dims),
        cmocka_unit_test(test_variable_windows),
        cmocka_unit_test(test_alignment_and_external_data),
        cmocka_unit_test(test_refusals_leave_no_file),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
