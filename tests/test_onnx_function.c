/* SPDX-License-Identifier: MIT */
/* Functions that a model defines: what a call becomes, and what is refused. Results are compared with
 * onnxruntime's by `conformance` on tests/data/onnx/functions. */

#include "ashlar/onnx.h"
#include "ir/ir.h"
#include "one_context.h"
#include "onnx_bytes.h"

static ash_diag diag;

/* --- models by hand ------------------------------------------------------------------------------- */

static bytes opset(const char *domain, int version) {
    bytes set = {.len = 0};
    put_text(&set, 1, domain);
    put_int(&set, 2, version);
    return set;
}

/* A FunctionProto of the domain "net" with operands a and b and the result c. */
static bytes make_function(const char *name, int version, const bytes *nodes, size_t n) {
    bytes f = {.len = 0}, net = opset("net", 1), usual = opset("", version);
    put_text(&f, 1, name);
    put_text(&f, 4, "a");
    put_text(&f, 4, "b");
    put_text(&f, 5, "c");
    for (size_t i = 0; i < n; i++) put_message(&f, 7, &nodes[i]);
    put_message(&f, 9, &net);
    put_message(&f, 9, &usual);
    put_text(&f, 10, "net");
    return f;
}

static bytes call(const char *name, const char *function, const char *a, const char *b, const char *out) {
    bytes node = make_node(name, function, a, b, out);
    put_text(&node, 7, "net");
    return node;
}

/* `name` of the node refers to the attribute `ref` of the function. */
static void put_reference(bytes *node, const char *name, const char *ref, int type) {
    bytes attr = {.len = 0};
    put_text(&attr, 1, name);
    put_int(&attr, 20, type);
    put_text(&attr, 21, ref);
    put_message(node, 5, &attr);
}

static void put_int_attr(bytes *node, const char *name, int64_t value) {
    bytes attr = {.len = 0};
    put_text(&attr, 1, name);
    put_int(&attr, 3, value);
    put_int(&attr, 20, 2);
    put_message(node, 5, &attr);
}

/* x f32[4], y f32[4] -> nodes -> z, of opset 18, with functions. */
static bytes make_calls(const bytes *nodes, size_t n, const bytes *functions, size_t n_functions) {
    static const int64_t four[] = {4};
    bytes graph = {.len = 0}, x = make_info("x", four, 1), y = make_info("y", four, 1);
    bytes z = make_info("z", four, 0), net = opset("net", 1);
    for (size_t i = 0; i < n; i++) put_message(&graph, 1, &nodes[i]);
    put_message(&graph, 11, &x);
    put_message(&graph, 11, &y);
    put_message(&graph, 12, &z);
    bytes model = make_model(&graph, 18);
    put_message(&model, 8, &net);
    for (size_t i = 0; i < n_functions; i++) put_message(&model, 25, &functions[i]);
    return model;
}

static ash_status parse(const bytes *model, ash_graph **graph) {
    return ash_onnx_parse(context, model->at, model->len, NULL, graph, &diag);
}

static ash_graph *parsed(const bytes *model) {
    ash_graph *graph;
    assert_ok(parse(model, &graph));
    assert_ok(ash_graph_verify(graph, &diag));
    return graph;
}

static void assert_refused(const bytes *model, ash_status code, const char *node, const char *message) {
    ash_graph *graph;
    assert_status(parse(model, &graph), code);
    assert_string_equal(diag.node, node);
    assert_non_null(strstr(diag.message, message));
}

/* --- what a call becomes -------------------------------------------------------------------------- */

/* Names inside a function are its own: "x" there is not the graph's, and two calls do not clash. Nodes are
 * named by the calls that they are in. */
static void test_calls_are_replaced(void **state) {
    (void)state;
    bytes inner[] = {make_node("first", "Sub", "a", "b", "x"), make_node(NULL, "Neg", "x", NULL, "c")};
    bytes outer[] = {call("deep", "Inner", "b", "a", "c")};
    bytes functions[] = {make_function("Outer", 18, outer, 1), make_function("Inner", 18, inner, 2)};
    bytes nodes[] = {call("one", "Inner", "x", "y", "c"), call("two", "Outer", "c", "y", "z")};
    bytes model = make_calls(nodes, 2, functions, 2);
    ash_graph *graph = parsed(&model);
    static const char *const names[] = {"one/first", "one/c", "two/deep/first", "two/deep/c"};
    assert_int_equal(graph->nodes.len, 4);
    for (size_t i = 0; i < 4; i++) assert_string_equal(graph->nodes.at[i].name, names[i]);
    ash_value x = ash_graph_input_at(graph, 0, NULL), y = ash_graph_input_at(graph, 1, NULL);
    assert_true(graph->nodes.at[0].ins[0] == x && graph->nodes.at[0].ins[1] == y);
    assert_true(graph->nodes.at[2].ins[0] == y && graph->nodes.at[2].ins[1] == graph->nodes.at[1].out);
    ash_graph_destroy(graph);
}

/* The mean's axes are an attribute up to operator set 17, which is the function's, and an operand in the
 * model's. */
static void test_functions_have_their_own_opsets(void **state) {
    (void)state;
    bytes mean = make_node("m", "ReduceMean", "a", NULL, "c"), attr = {.len = 0}, axes = {.len = 0};
    put_varint(&axes, 0);
    put_text(&attr, 1, "axes");
    put_message(&attr, 8, &axes);
    put_int(&attr, 20, 7);
    put_message(&mean, 5, &attr);
    put_int_attr(&mean, "keepdims", 0);
    bytes function = make_function("Mean", 13, &mean, 1), node = call("n", "Mean", "x", NULL, "z");
    bytes model = make_calls(&node, 1, &function, 1);
    ash_graph *graph = parsed(&model);
    assert_int_equal(ash_graph_type(graph, ash_graph_output_at(graph, 0, NULL))->rank, 0);
    ash_graph_destroy(graph);

    bytes without = {.len = 0};
    put_text(&without, 1, "Mean");
    put_text(&without, 4, "a");
    put_text(&without, 5, "c");
    put_message(&without, 7, &mean);
    put_text(&without, 10, "net");
    model = make_calls(&node, 1, &without, 1);
    assert_refused(&model, ASH_ERROR_FORMAT, "n/m", "the function does not import the operator set");
}

/* The call's attribute, else the function's default, else the operator's own. */
static void test_attributes_by_reference(void **state) {
    (void)state;
    static const struct {
        int given, usual, rank;
    } cases[] = {{0, -1, 0}, {-1, 0, 0}, {1, 0, 1}, {-1, -1, 1}};
    for (size_t i = 0; i < ASH_COUNT(cases); i++) {
        bytes max = make_node("m", "ReduceMax", "a", NULL, "c"), node = call("n", "Max", "x", NULL, "z");
        put_reference(&max, "keepdims", "keep", 2);
        bytes function = make_function("Max", 18, &max, 1);
        if (cases[i].given >= 0) put_int_attr(&node, "keep", cases[i].given);
        if (cases[i].usual >= 0) {
            bytes attr = {.len = 0};
            put_text(&attr, 1, "keep");
            put_int(&attr, 3, cases[i].usual);
            put_message(&function, 11, &attr);
        }
        bytes model = make_calls(&node, 1, &function, 1);
        ash_graph *graph = parsed(&model);
        assert_int_equal(ash_graph_type(graph, ash_graph_output_at(graph, 0, NULL))->rank, cases[i].rank);
        ash_graph_destroy(graph);
    }
}

/* An operand that a call leaves out is missing inside. */
static void test_operands_may_be_left_out(void **state) {
    (void)state;
    bytes clip[] = {make_node("m", "Clip", "a", "b", "c")}, node = call("n", "Low", "x", NULL, "z");
    bytes function = make_function("Low", 18, clip, 1), model = make_calls(&node, 1, &function, 1);
    ash_graph *graph = parsed(&model);
    assert_int_equal(graph->nodes.len, 0);
    ash_graph_destroy(graph);
    bytes add[] = {make_node("m", "Add", "a", "b", "c")};
    function = make_function("Low", 18, add, 1), model = make_calls(&node, 1, &function, 1);
    assert_refused(&model, ASH_ERROR_FORMAT, "n/m", "operand 1 is missing");
}

/* A function of a domain that is known here is for those who do not know its operator. */
static void test_known_operators_come_first(void **state) {
    (void)state;
    bytes neg = make_node(NULL, "Neg", "a", NULL, "c"), function = {.len = 0}, usual = opset("", 18);
    put_text(&function, 1, "Relu");
    put_text(&function, 4, "a");
    put_text(&function, 5, "c");
    put_message(&function, 7, &neg);
    put_message(&function, 9, &usual);
    bytes node = make_node(NULL, "Relu", "x", NULL, "z"), model = make_calls(&node, 1, &function, 1);
    ash_graph *graph = parsed(&model);
    assert_int_equal(graph->nodes.at[graph->nodes.len - 1].op, ASH_OP_MAX);
    ash_graph_destroy(graph);
}

/* --- what is refused ------------------------------------------------------------------------------ */

static void test_recursion(void **state) {
    (void)state;
    bytes a[] = {call("p", "B", "a", "b", "c")}, b[] = {call("q", "A", "a", "b", "c")};
    bytes functions[] = {make_function("A", 18, a, 1), make_function("B", 18, b, 1)};
    bytes node = call("n", "A", "x", "y", "z"), model = make_calls(&node, 1, functions, 2);
    assert_refused(&model, ASH_ERROR_FORMAT, "n/p/q", "the function 'A' calls itself");
}

/* Each calls the one before twice: 2^30 nodes would be there. */
static void test_expansion_is_bounded(void **state) {
    (void)state;
    static bytes functions[30];
    char name[2][8] = {"F0"};
    bytes neg = make_node(NULL, "Neg", "a", NULL, "c");
    functions[0] = make_function("F0", 18, &neg, 1);
    bytes model = {.len = 0};
    for (int i = 1; i < 30; i++) {
        snprintf(name[i % 2], sizeof name[0], "F%d", i);
        bytes twice[] = {call(NULL, name[1 - i % 2], "a", NULL, "m"),
                         call(NULL, name[1 - i % 2], "m", NULL, "c")};
        functions[i] = make_function(name[i % 2], 18, twice, 2);
    }
    bytes node = call("n", "F29", "x", NULL, "z");
    model = make_calls(&node, 1, functions, ASH_COUNT(functions));
    ash_graph *graph;
    assert_status(parse(&model, &graph), ASH_ERROR_BUDGET);
}

static void test_refusals(void **state) {
    (void)state;
    bytes neg = make_node("m", "Neg", "a", NULL, "c"), other = make_node("m", "Neg", "a", NULL, "d");
    bytes outside = make_node("m", "Neg", "x", NULL, "c");
    bytes function = make_function("F", 18, &neg, 1), twice[] = {function, function};
    bytes node = call("n", "F", "x", NULL, "z"), model = make_calls(&node, 1, twice, 2);
    assert_refused(&model, ASH_ERROR_FORMAT, "", "the function 'F' is defined twice");

    function = make_function("F", 18, &other, 1), model = make_calls(&node, 1, &function, 1);
    assert_refused(&model, ASH_ERROR_FORMAT, "n", "no node of the function computes its result 'c'");

    function = make_function("F", 18, &outside, 1), model = make_calls(&node, 1, &function, 1);
    assert_refused(&model, ASH_ERROR_FORMAT, "n/m", "'x', is not defined");

    function = make_function("F", 29, &neg, 1), model = make_calls(&node, 1, &function, 1);
    assert_refused(&model, ASH_ERROR_UNSUPPORTED, "", "newer than");

    bytes many = call("n", "F", "x", "y", "z");
    put_text(&many, 1, "x");
    function = make_function("F", 18, &neg, 1), model = make_calls(&many, 1, &function, 1);
    assert_refused(&model, ASH_ERROR_FORMAT, "n",
                   "3 operands and 1 results of a function that has 2 and 1");

    bytes lost = make_node("n", "ReduceMax", "x", NULL, "z");
    put_reference(&lost, "keepdims", "keep", 2);
    model = make_calls(&lost, 1, NULL, 0);
    assert_refused(&model, ASH_ERROR_FORMAT, "n", "refers to an attribute of a function, and is in none");
}

/* Long paths lose their beginning in a diagnostic. */
static void test_long_paths(void **state) {
    (void)state;
    char name[81] = {0};
    memset(name, 'l', 80);
    bytes bad = make_node("bad", "NoSuchOperator", "a", NULL, "c");
    bytes outer = call(name, "G", "a", NULL, "c");
    bytes functions[] = {make_function("F", 18, &outer, 1), make_function("G", 18, &bad, 1)};
    bytes node = call(name, "F", "x", NULL, "z"), model = make_calls(&node, 1, functions, 2);
    ash_graph *graph;
    assert_status(parse(&model, &graph), ASH_ERROR_UNSUPPORTED);
    assert_int_equal(strlen(diag.node), sizeof diag.node - 1);
    assert_memory_equal(diag.node, "...l", 4);
    assert_string_equal(diag.node + sizeof diag.node - 1 - 5, "l/bad");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_calls_are_replaced),
        cmocka_unit_test(test_functions_have_their_own_opsets),
        cmocka_unit_test(test_attributes_by_reference),
        cmocka_unit_test(test_operands_may_be_left_out),
        cmocka_unit_test(test_known_operators_come_first),
        cmocka_unit_test(test_recursion),
        cmocka_unit_test(test_expansion_is_bounded),
        cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_long_paths),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
