/* SPDX-License-Identifier: MIT */
/* Nodes at the edge of what their operator allows: an attribute or an index that cannot be is an error that
 * names the node, never a guess; and powers of mixed types are exact. */

#include "ashlar/onnx.h"
#include "base/base.h"
#include "ir/ir.h"
#include "one_context.h"
#include "onnx_bytes.h"

static ash_diag diag;

/* --- nodes ---------------------------------------------------------------------------------------- */

/* The node `culprit` and its graph: operands "a", "b", ... are added one by one. */
typedef struct one {
    bytes graph, node;
    char next[2];
} one;

static one begin(void) {
    one o = {.next = "a"};
    return o;
}

static void operand_input(one *o, const int64_t *dims, size_t rank) {
    bytes info = make_info(o->next, dims, rank);
    put_message(&o->graph, 11, &info);
    put_text(&o->node, 1, o->next);
    o->next[0]++;
}

static void operand_tensor(one *o, int dtype, const int64_t *dims, size_t rank, const void *data,
                           size_t size) {
    bytes tensor = make_tensor(o->next, dtype, dims, rank, data, size);
    put_message(&o->graph, 5, &tensor);
    put_text(&o->node, 1, o->next);
    o->next[0]++;
}

static void operand_int(one *o, int64_t number) {
    static const int64_t dims[] = {1};
    operand_tensor(o, 7, dims, 1, &number, sizeof number);
}

static void attr_text(one *o, const char *name, const char *text) {
    bytes attr = {.len = 0};
    put_text(&attr, 1, name);
    put_text(&attr, 4, text);
    put_int(&attr, 20, 3);
    put_message(&o->node, 5, &attr);
}

static void attr_int(one *o, const char *name, int64_t number) {
    bytes attr = {.len = 0};
    put_text(&attr, 1, name);
    put_int(&attr, 3, number);
    put_int(&attr, 20, 2);
    put_message(&o->node, 5, &attr);
}

static void attr_ints(one *o, const char *name, const int64_t *numbers, size_t n) {
    bytes attr = {.len = 0};
    put_text(&attr, 1, name);
    for (size_t i = 0; i < n; i++) put_int(&attr, 8, numbers[i]);
    put_int(&attr, 20, 7);
    put_message(&o->node, 5, &attr);
}

static ash_status finish(one *o, const char *op, int opset, ash_graph **graph) {
    bytes y = make_info("y", NULL, 0);
    put_text(&o->node, 2, "y");
    put_text(&o->node, 3, "culprit");
    put_text(&o->node, 4, op);
    put_message(&o->graph, 1, &o->node);
    put_message(&o->graph, 12, &y);
    bytes model = make_model(&o->graph, opset);
    *graph = NULL;
    return ash_onnx_parse(context, model.at, model.len, &(ash_onnx_options){.var_min = 1, .var_max = 4096},
                          graph, &diag);
}

static void refused(one *o, const char *op, int opset, const char *message) {
    ash_graph *graph;
    if (finish(o, op, opset, &graph) == ASH_OK || strcmp(diag.node, "culprit") != 0 ||
        !strstr(diag.message, message))
        fail_msg("%s: node '%s', \"%s\" instead of \"%s\"", op, diag.node, diag.message, message);
}

/* --- attributes ----------------------------------------------------------------------------------- */

/* Every text attribute with a list of values: on operands f32[2, 3, 4, 4] as many as `operands`. */
static const struct text_case {
    const char *op, *attr;
    int opset, operands;
} texts[] = {
    {"Conv", "auto_pad", 17, 2},
    {"MaxPool", "auto_pad", 17, 1},
    {"AveragePool", "auto_pad", 17, 1},
    {"LpPool", "auto_pad", 18, 1},
    {"ConvTranspose", "auto_pad", 17, 2},
    {"BitShift", "direction", 17, 2},
    {"Gelu", "approximate", 20, 1},
    {"ScatterElements", "reduction", 18, 3},
    {"ScatterND", "reduction", 18, 3},
    {"SoftmaxCrossEntropyLoss", "reduction", 13, 2},
    {"NegativeLogLikelihoodLoss", "reduction", 13, 2},
    {"Resize", "mode", 18, 1},
    {"Resize", "coordinate_transformation_mode", 18, 1},
    {"Resize", "nearest_mode", 18, 1},
    {"Upsample", "mode", 9, 1},
    {"LSTM", "direction", 14, 3},
    {"GridSample", "mode", 20, 2},
    {"GridSample", "padding_mode", 20, 2},
    {"RoiAlign", "mode", 16, 3},
    {"RoiAlign", "coordinate_transformation_mode", 16, 3},
    {"DepthToSpace", "mode", 13, 1},
    {"Pad", "mode", 17, 1},
    {"TensorScatter", "mode", 24, 2},
};

static void test_unknown_texts(void **state) {
    (void)state;
    static const int64_t dims[] = {2, 3, 4, 4}, grid[] = {2, 3, 4, 2};
    static const int64_t pads[8] = {0}, eight[] = {8}, kernel[] = {4, 4};
    for (size_t i = 0; i < ASH_COUNT(texts); i++) {
        const struct text_case *t = &texts[i];
        one o = begin();
        bool sample = strcmp(t->op, "GridSample") == 0, pad = strcmp(t->op, "Pad") == 0;
        for (int k = 0; k < t->operands; k++) operand_input(&o, sample && k == 1 ? grid : dims, 4);
        if (pad) operand_tensor(&o, 7, eight, 1, pads, sizeof pads);
        if (strcmp(t->op, "DepthToSpace") == 0) attr_int(&o, "blocksize", 1);
        attr_ints(&o, "kernel_shape", kernel, 2);
        attr_text(&o, t->attr, "mea");
        char message[96];
        snprintf(message, sizeof message, "attribute '%s' is 'mea', which is none of ", t->attr);
        refused(&o, t->op, t->opset, message);
    }
}

static void test_window_attributes(void **state) {
    (void)state;
    static const int64_t x[] = {1, 1, 4}, w[] = {1, 1, 3}, huge[] = {INT64_C(1) << 62}, two[] = {0, 0},
                         minus[] = {-1}, spread[] = {INT32_MAX};
    static const struct {
        const char *name;
        const int64_t *list;
        size_t n;
        const char *message;
    } cases[] = {
        {"output_padding", huge, 1, "'output_padding' has the entry 4611686018427387904"},
        {"output_padding", minus, 1, "'output_padding' has the entry -1"},
        {"output_padding", two, 2, "'output_padding' has 2 entries"},
        {"output_shape", huge, 1, "'output_shape' has the entry 4611686018427387904"},
        {"dilations", spread, 1, "a window that spans more than 2^31 elements"},
    };
    for (size_t i = 0; i < ASH_COUNT(cases); i++) {
        one o = begin();
        operand_input(&o, x, 3);
        operand_input(&o, w, 3);
        attr_ints(&o, cases[i].name, cases[i].list, cases[i].n);
        refused(&o, "ConvTranspose", 17, cases[i].message);
    }
}

/* Numbers that would be sizes: a negative one is no dim, whatever dims the graph has. */
static void test_negative_sizes(void **state) {
    (void)state;
    static const int64_t theta[] = {-1, 2, 3}, x[] = {-1, 4}, values[] = {2}, four[] = {4};
    static const int64_t size[] = {1, 1, -1, 3};
    one o = begin();
    operand_input(&o, theta, 3);
    operand_tensor(&o, 7, four, 1, size, sizeof size);
    refused(&o, "AffineGrid", 20, "a size that is -1");
    o = begin();
    operand_input(&o, x, 2);
    operand_int(&o, -1);
    operand_input(&o, values, 1);
    refused(&o, "OneHot", 13, "a size that is -1");
    o = begin();
    operand_input(&o, x, 2);
    operand_int(&o, -1);
    refused(&o, "TopK", 13, "a size that is -1");
}

/* --- indices -------------------------------------------------------------------------------------- */

static void test_known_indices(void **state) {
    (void)state;
    static const int64_t x[] = {3, 4}, any[] = {-1, 4}, two[] = {1, 2}, square[] = {1, 1};
    static const int64_t outside[] = {0, 4}, inside[] = {-3, -4}, far = -4, near = -3;
    static const struct {
        const char *op;
        int operands; /* the third is updates */
        bool nd;
    } cases[] = {{"Gather", 2, false},
                 {"GatherElements", 2, false},
                 {"GatherND", 2, true},
                 {"ScatterElements", 3, false},
                 {"ScatterND", 3, true}};
    ash_graph *graph;
    for (size_t i = 0; i < ASH_COUNT(cases); i++) {
        for (int good = 0; good < 2; good++) {
            one o = begin();
            operand_input(&o, x, 2);
            if (cases[i].nd)
                operand_tensor(&o, 7, two, 2, good ? inside : outside, sizeof inside);
            else
                operand_tensor(&o, 7, square, 2, good ? &near : &far, sizeof far);
            if (cases[i].operands == 3) operand_input(&o, square, cases[i].nd ? 1 : 2);
            if (good) {
                assert_ok(finish(&o, cases[i].op, 16, &graph));
                ash_graph_destroy(graph);
            } else {
                refused(&o, cases[i].op, 16,
                        cases[i].nd ? "the index 4 into a dim of 4" : "the index -4 into a dim of 3");
            }
        }
    }
    /* Against the most that a variable can be. */
    one o = begin();
    operand_input(&o, any, 2);
    operand_int(&o, 4096);
    refused(&o, "Gather", 16, "the index 4096 into a dim of 4096");
    o = begin();
    operand_input(&o, any, 2);
    operand_int(&o, 100);
    assert_ok(finish(&o, "Gather", 16, &graph));
    ash_graph_destroy(graph);
}

/* --- powers --------------------------------------------------------------------------------------- */

static double power(int base_type, const void *base, size_t base_size, int type, const void *exponent,
                    size_t size) {
    one o = begin();
    ash_graph *graph;
    ash_wide out;
    operand_tensor(&o, base_type, NULL, 0, base, base_size);
    operand_tensor(&o, type, NULL, 0, exponent, size);
    assert_ok(finish(&o, "Pow", 15, &graph));
    assert_ok(ash_eval_graph(graph, NULL, NULL, ASH_EVAL_DTYPE, &out, &diag));
    double result = ash_dtype_is_float(out.dtype) ? *out.f : (double)*out.i;
    ash_wide_free(&ash_allocator__libc, &out);
    ash_graph_destroy(graph);
    return result;
}

/* As onnxruntime and numpy have them: computed in double precision and cut to the base's type. */
static void test_powers(void **state) {
    (void)state;
    enum { F32 = 1, I32 = 6, I64 = 7, F64 = 11 };
    const int64_t three = 3, seven = 7, big = 16777217, n20 = 20;
    const int32_t two = 2;
    const float f20 = 20, half = 0.5f, f2 = 2, near = 1.0000001f;
    const double d = 16777217;
    const int64_t many = 1 << 25 | 1;
    assert_true(power(I64, &three, 8, F32, &f20, 4) == 3486784401.0);
    assert_true(power(I64, &three, 8, I64, &n20, 8) == 3486784401.0);
    assert_true(power(I64, &seven, 8, F32, &f2, 4) == 49);
    assert_true(power(I64, &big, 8, F32, &f2, 4) == 281475010265089.0);
    assert_true(power(I64, &three, 8, F32, &half, 4) == 1);
    assert_true(power(I32, &two, 4, I64, &n20, 8) == 1048576);
    assert_true(power(F64, &d, 8, F32, &f2, 4) == 281475010265089.0);
    double want = 1;
    for (int64_t bits = many, step = 0; bits >> step; step++) {
        double square = (double)near;
        for (int64_t i = 0; i < step; i++) square *= square;
        if (bits >> step & 1) want *= square;
    }
    assert_true(power(F32, &near, 4, I64, &many, 8) / want - 1 < 1e-6); /* 1 << 25 | 1 is no f32 */
    assert_true(power(F32, &near, 4, I64, &many, 8) / want - 1 > -1e-6);
}

/* Lists are tracked up to a length, and constants are read whatever theirs is. */
static void test_long_lists(void **state) {
    (void)state;
    enum { N = 1100, I64 = 7 };
    static int64_t sizes[N];
    const int64_t dims[] = {N * 2}, n[] = {N};
    for (size_t i = 0; i < N; i++) sizes[i] = 2;
    one o = begin();
    operand_input(&o, dims, 1);
    operand_tensor(&o, I64, n, 1, sizes, sizeof sizes);
    for (size_t i = 1; i < N; i++) put_text(&o.node, 2, "");
    ash_graph *graph;
    assert_ok(finish(&o, "Split", 13, &graph));
    ash_graph_destroy(graph);
}

/* --- files of the first operator sets -------------------------------------------------------------- */

static void attr_floats(one *o, const char *name, const float *numbers, size_t n) {
    bytes attr = {.len = 0};
    put_text(&attr, 1, name);
    for (size_t i = 0; i < n; i++) {
        put_varint(&attr, (uint64_t)(n == 1 ? 2 : 7) << 3 | 5);
        put(&attr, &numbers[i], sizeof numbers[i]);
    }
    put_int(&attr, 20, n == 1 ? 1 : 6);
    put_message(&o->node, 5, &attr);
}

static char *text_of(one *o, const char *op, int opset, uint64_t *size) {
    ash_graph *graph;
    char *text;
    assert_ok(finish(o, op, opset, &graph));
    assert_ok(ash_graph_print(graph, true, &text, size, &diag));
    ash_graph_destroy(graph);
    return text;
}

/* What older sets say in another way is the same graph. */
static void test_old_spellings(void **state) {
    (void)state;
    static const int64_t image[] = {1, 2, 4, 6}, kernel[] = {2, 2}, steps[] = {5, 1, 3},
                         weights[] = {1, 16, 3}, recurrent[] = {1, 16, 4}, repeats[] = {1, 1, 3, 1},
                         four[] = {4};
    static const float two = 2, half = 1.5f, three = 3, scales[] = {1, 1, 2, 1.5f};
    static const struct {
        const char *op;
        int old, now;
    } cases[] = {{"Cast", 5, 6},   {"Tile", 5, 6},         {"Upsample", 6, 7},
                 {"LpPool", 1, 2}, {"GlobalLpPool", 1, 2}, {"LSTM", 6, 7}};
    for (size_t i = 0; i < ASH_COUNT(cases); i++) {
        char *printed[2];
        uint64_t sizes[2];
        for (int old = 0; old < 2; old++) {
            one o = begin();
            operand_input(&o, i == 5 ? steps : image, i == 5 ? 3 : 4);
            switch (i) {
            case 0:
                if (old)
                    attr_text(&o, "to", "INT32");
                else
                    attr_int(&o, "to", 6);
                break;
            case 1:
                if (old)
                    operand_int(&o, 3), operand_int(&o, 2);
                else
                    operand_tensor(&o, 7, four, 1, repeats, sizeof repeats);
                break;
            case 2:
                if (old)
                    attr_floats(&o, "height_scale", &two, 1), attr_floats(&o, "width_scale", &half, 1);
                else
                    attr_floats(&o, "scales", scales, 4);
                break;
            case 3:
            case 4:
                if (i == 3) attr_ints(&o, "kernel_shape", kernel, 2);
                if (old)
                    attr_floats(&o, "p", &three, 1);
                else
                    attr_int(&o, "p", 3);
                break;
            default:
                operand_input(&o, weights, 3);
                operand_input(&o, recurrent, 3);
                attr_int(&o, "hidden_size", 4);
                if (old) attr_int(&o, "output_sequence", 1);
            }
            printed[old] = text_of(&o, cases[i].op, old ? cases[i].old : cases[i].now, &sizes[old]);
        }
        if (i == 1) /* other constants, and so other numbers */
            assert_non_null(strstr(printed[1], "broadcast(%3) dims=[1, 2, 3, 4, 6]"));
        else
            assert_string_equal(printed[1], printed[0]);
        for (int old = 0; old < 2; old++) ash_context_free_text(context, printed[old], sizes[old]);
    }
}

/* --- outputs -------------------------------------------------------------------------------------- */

/* A value that the model lists as an output again is one under another name, with dims that are known and
 * with open ones. */
static void test_outputs_that_repeat(void **state) {
    (void)state;
    static const char *const listed[] = {"y", "x", "y", "y#2", "y"}, *const names[] = {"y", "x", "y#2",
                                                                                       "y#2#2", "y#3"};
    static const int64_t dims[][2] = {{2, 3}, {-1, 3}};
    for (int open = 0; open < 2; open++) {
        bytes graph = {.len = 0}, node = make_node("n", "Relu", "x", NULL, "y"),
              other = make_node("m", "Neg", "x", NULL, "y#2");
        bytes x = make_info("x", dims[open], 2);
        put_message(&graph, 1, &node);
        put_message(&graph, 1, &other);
        put_message(&graph, 11, &x);
        for (size_t i = 0; i < ASH_COUNT(listed); i++) {
            bytes y = make_info(listed[i], NULL, 0);
            put_message(&graph, 12, &y);
        }
        bytes model = make_model(&graph, 17);
        ash_graph *g;
        assert_ok(ash_onnx_parse(context, model.at, model.len, &(ash_onnx_options){0}, &g, &diag));
        assert_int_equal(ash_graph_output_count(g), ASH_COUNT(names));
        for (size_t i = 0; i < ASH_COUNT(names); i++) {
            const char *name;
            ash_value value = ash_graph_output_at(g, i, &name);
            assert_string_equal(name, names[i]);
            if (!open && i == 4) assert_int_equal(value, ash_graph_output_at(g, 0, NULL));
        }
        ash_graph_destroy(g);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_unknown_texts),  cmocka_unit_test(test_window_attributes),
        cmocka_unit_test(test_negative_sizes), cmocka_unit_test(test_known_indices),
        cmocka_unit_test(test_powers),         cmocka_unit_test(test_long_lists),
        cmocka_unit_test(test_old_spellings),  cmocka_unit_test(test_outputs_that_repeat),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
