/* SPDX-License-Identifier: MIT */
/* Import: what becomes of a model, and what the errors say. Results are compared with onnxruntime's by the
 * program `conformance`, which also runs tests/data/onnx. */

#include <unistd.h>

#include "ashlar/onnx.h"
#include "base/text.h"
#include "ir/ir.h"
#include "one_context.h"
#include "onnx/import.h"
#include "open_model.h"

static ash_diag diag;

static ash_status parse(const bytes *model, const ash_onnx_options *options, ash_graph **graph) {
    return ash_onnx_parse(context, model->at, model->len, options, graph, &diag);
}

static const int64_t four[] = {4};

static ash_graph *fixture(const char *name, const ash_onnx_options *options) {
    char path[256];
    ash_graph *graph;
    snprintf(path, sizeof path, "%s/tests/data/onnx/%s/model.onnx", ASH_SOURCE_DIR, name);
    assert_ok(ash_onnx_read(context, path, options, &graph, &diag));
    assert_ok(ash_graph_verify(graph, &diag));
    return graph;
}

static size_t count_ops(const ash_graph *graph, ash_op op) {
    size_t n = 0;
    for (size_t i = 0; i < graph->nodes.len; i++) n += graph->nodes.at[i].op == op;
    return n;
}

/* --- what an import makes ------------------------------------------------------------------------- */

static void test_one_node(void **state) {
    (void)state;
    bytes model = make_unary("gate", "Sigmoid", four, 1, 13);
    ash_graph *graph;
    assert_ok(parse(&model, NULL, &graph));
    const char *in, *out;
    assert_int_equal(ash_graph_input_count(graph), 1);
    assert_int_equal(ash_graph_node_count(graph), 1);
    ash_graph_input_at(graph, 0, &in);
    ash_value y = ash_graph_output_at(graph, 0, &out);
    assert_string_equal(in, "x");
    assert_string_equal(out, "y");
    assert_int_equal(graph->nodes.at[0].op, ASH_OP_SIGMOID);
    assert_string_equal(graph->nodes.at[0].name, "gate");
    assert_int_equal(ash_graph_type(graph, y)->dims[0], 4);
    ash_graph_destroy(graph);
}

static void test_table_is_sorted(void **state) {
    (void)state;
    assert_true(ash_import__table_is_sorted());
}

static void test_table_knows_opsets(void **state) {
    (void)state;
    bool known;
    const ash_span none = {NULL, 0}, scatter = {(const uint8_t *)"Scatter", 7},
                   other = {(const uint8_t *)"com.acme", 8};
    assert_non_null(ash_import__find(none, scatter, 10, &known));
    assert_null(ash_import__find(none, scatter, 11, &known));
    assert_true(known);
    assert_null(ash_import__find(other, scatter, 10, &known));
    assert_false(known);
}

static void test_named_dim_becomes_a_variable(void **state) {
    (void)state;
    static const int64_t dims[] = {-1, 3};
    bytes model = make_unary(NULL, "Relu", dims, 2, 13);
    ash_graph *graph;
    assert_ok(parse(&model, NULL, &graph));
    assert_int_equal(ash_dims_var_count(graph->dims), 1);
    const ash_var *var = ash_dims_var(graph->dims, 0);
    assert_string_equal(var->name, "n");
    assert_true(ash_graph_is_open(graph) && var->open); /* nobody has said its size */
    ash_graph_destroy(graph);
    assert_ok(parse(&model, &(ash_onnx_options){.var_min = 1, .var_max = 4096}, &graph));
    assert_false(ash_graph_is_open(graph));
    assert_int_equal(ash_dims_var(graph->dims, 0)->max, 4096);
    assert_true(ash_graph_type(graph, ash_graph_output_at(graph, 0, NULL))->dims[0] < 0);
    ash_graph_destroy(graph);

    const ash_onnx_var bounds[] = {{"n", 2, 64}}, fixed[] = {{"n", 5, 5}};
    assert_ok(parse(&model, &(ash_onnx_options){.vars = bounds, .n_vars = 1}, &graph));
    assert_int_equal(ash_dims_var(graph->dims, 0)->max, 64);
    ash_graph_destroy(graph);
    assert_ok(parse(&model, &(ash_onnx_options){.vars = fixed, .n_vars = 1}, &graph));
    assert_int_equal(ash_dims_var_count(graph->dims), 0);
    assert_int_equal(ash_graph_type(graph, ash_graph_output_at(graph, 0, NULL))->dims[0], 5);
    ash_graph_destroy(graph);
}

/* "n + 1" is one more than "n", wherever it stands; an option that names the whole makes it a variable. */
static void test_dims_that_are_expressions(void **state) {
    (void)state;
    static const struct {
        const char *text, *shown;
    } cases[] = {
        {"n + 1", "(n + 1)"}, {"2*n+past", "(2*n + past)"}, {"n-1", "\"n-1\""}, {"a b", "\"a b\""}};
    static const ash_onnx_var whole[] = {{"n + 1", 7, 7}};
    ash_graph *graph;
    for (size_t i = 0; i <= ASH_COUNT(cases); i++) {
        bytes graph_message = {.len = 0}, node = make_node(NULL, "Relu", "x", NULL, "y"),
              y = make_info("y", four, 0);
        bytes dim = {.len = 0}, shape = {.len = 0}, tensor = {.len = 0}, type = {.len = 0}, x = {.len = 0};
        put_text(&dim, 2, cases[i % ASH_COUNT(cases)].text);
        put_message(&shape, 1, &dim);
        put_int(&tensor, 1, 1);
        put_message(&tensor, 2, &shape);
        put_message(&type, 1, &tensor);
        put_text(&x, 1, "x");
        put_message(&x, 2, &type);
        put_message(&graph_message, 1, &node);
        put_message(&graph_message, 11, &x);
        put_message(&graph_message, 12, &y);
        bytes model = make_model(&graph_message, 13);
        bool is_whole = i == ASH_COUNT(cases);
        assert_ok(parse(&model, is_whole ? &(ash_onnx_options){.vars = whole, .n_vars = 1} : NULL, &graph));
        ash_dim have = ash_graph_type(graph, ash_graph_input_at(graph, 0, NULL))->dims[0];
        if (is_whole) {
            assert_int_equal(have, 7);
        } else {
            ash_text shown;
            ash_text_init(&shown, ash_context__allocator(context));
            ash_dims_print(graph->dims, have, &shown);
            assert_string_equal(shown.at, cases[i].shown);
            ash_text_free(&shown);
        }
        ash_graph_destroy(graph);
    }
}

/* What is going to be given says what a name stands for; one name is one number. */
static void test_shapes_of_inputs_settle_dims(void **state) {
    (void)state;
    static const int64_t dims[] = {-1, 3};
    bytes model = make_unary(NULL, "Relu", dims, 2, 13);
    const ash_type good = {.dtype = ASH_F32, .rank = 2, .dims = {7, 3}},
                   other_n = {.dtype = ASH_F32, .rank = 2, .dims = {8, 3}},
                   flat = {.dtype = ASH_F32, .rank = 1, .dims = {7}};
    const ash_onnx_shape shapes[] = {{"x", &good}, {"stranger", &flat}}, short_of[] = {{"x", &flat}};
    const ash_onnx_var range[] = {{"n", 2, 64}};
    ash_graph *graph;
    assert_ok(parse(&model, &(ash_onnx_options){.shapes = shapes, .n_shapes = 2}, &graph));
    assert_int_equal(ash_dims_var_count(graph->dims), 0);
    assert_int_equal(ash_graph_type(graph, ash_graph_output_at(graph, 0, NULL))->dims[0], 7);
    ash_graph_destroy(graph);
    assert_ok(parse(
        &model, &(ash_onnx_options){.vars = range, .n_vars = 1, .shapes = shapes, .n_shapes = 1}, &graph));
    assert_int_equal(ash_dims_var(graph->dims, 0)->max, 64);
    ash_graph_destroy(graph);
    bytes two = {.len = 0}, node = make_node(NULL, "Add", "x", "z", "y"), x = make_info("x", dims, 2),
          z = make_info("z", dims, 2), y = make_info("y", dims, 2);
    put_message(&two, 1, &node);
    put_message(&two, 11, &x);
    put_message(&two, 11, &z);
    put_message(&two, 12, &y);
    bytes sum = make_model(&two, 13);
    const ash_onnx_shape equal[] = {{"z", &good}}, apart[] = {{"x", &good}, {"z", &other_n}};
    assert_ok(parse(&sum, &(ash_onnx_options){.shapes = equal, .n_shapes = 1}, &graph));
    assert_int_equal(ash_graph_type(graph, ash_graph_output_at(graph, 0, NULL))->dims[0], 7);
    ash_graph_destroy(graph);
    assert_status(parse(&sum, &(ash_onnx_options){.shapes = apart, .n_shapes = 2}, &graph),
                  ASH_ERROR_INVALID_ARGUMENT);
    assert_status(parse(&model, &(ash_onnx_options){.shapes = short_of, .n_shapes = 1}, &graph),
                  ASH_ERROR_INVALID_ARGUMENT);
}

static void expect_dims(ash_graph *graph, size_t input, const char *text) {
    ash_text shown;
    ash_text_init(&shown, ash_context__allocator(context));
    ash_type_print(graph->dims, ash_graph_type(graph, ash_graph_input_at(graph, input, NULL)), &shown);
    assert_string_equal(shown.at, text);
    ash_text_free(&shown);
}

/* A shape says what its expressions leave unknown; a variable in one stays a variable, and what cannot be
 * is refused. Inputs x [b, seq], m [b, past + seq], past [b, past], s [1]. */
static void test_shapes_of_expressions(void **state) {
    (void)state;
    bytes model = cache_model();
    ash_graph *graph;
    const ash_type nine = {ASH_F32, 2, {1, 9}}, two = {ASH_F32, 2, {1, 2}};
    const ash_onnx_shape mask[] = {{"m", &nine}}, both[] = {{"m", &nine}, {"x", &two}};
    const ash_onnx_var range[] = {{"past", 0, 8}}, fixed[] = {{"past", 8, 8}}, wrong[] = {{"past", 3, 3}};
    ash_onnx_options options = {.vars = range, .n_vars = 1, .shapes = mask, .n_shapes = 1};
    assert_ok(parse(&model, &options, &graph)); /* seq is nobody's, and open */
    assert_true(ash_graph_is_open(graph));
    expect_dims(graph, 1, "f32[1, (seq + past)]");
    ash_graph_destroy(graph);
    options.var_min = options.var_max = 1;
    assert_ok(parse(&model, &options, &graph));
    assert_false(ash_graph_is_open(graph));
    expect_dims(graph, 1, "f32[1, (past + 1)]");
    ash_graph_destroy(graph);
    options = (ash_onnx_options){.vars = fixed, .n_vars = 1, .shapes = mask, .n_shapes = 1};
    assert_ok(parse(&model, &options, &graph)); /* 9 - 8 */
    expect_dims(graph, 0, "f32[1, 1]");
    ash_graph_destroy(graph);
    options = (ash_onnx_options){.shapes = both, .n_shapes = 2};
    assert_ok(parse(&model, &options, &graph)); /* 9 - 2 */
    expect_dims(graph, 2, "f32[1, 7]");
    ash_graph_destroy(graph);
    options = (ash_onnx_options){.vars = range, .n_vars = 1, .shapes = both, .n_shapes = 2};
    assert_ok(parse(&model, &options, &graph)); /* within 0 + 2 and 8 + 2 */
    expect_dims(graph, 1, "f32[1, (past + 2)]");
    ash_graph_destroy(graph);
    options.vars = wrong;
    assert_status(parse(&model, &options, &graph), ASH_ERROR_INVALID_ARGUMENT);
    assert_non_null(strstr(diag.message, "'m'"));
    assert_non_null(strstr(diag.message, "9"));
}

/* An input that is bound, or has an initializer, says the sizes of names too. */
static void test_fixed_inputs_settle_dims(void **state) {
    (void)state;
    const ash_type row = {ASH_F32, 2, {4, 1}};
    const float ones[4] = {1, 1, 1, 1};
    for (int way = 0; way < 2; way++) {
        bytes graph = {.len = 0}, node = make_node("add", "Add", "x", "w", "y"), x = open_info("x", "n;3"),
              w = open_info("w", "n;1"), y = open_info("y", "n;3"),
              tensor = make_tensor("w", 1, row.dims, 2, ones, sizeof ones);
        ash_tensor *bound;
        ash_graph *made;
        put_message(&graph, 1, &node);
        if (way) put_message(&graph, 5, &tensor);
        put_message(&graph, 11, &x);
        put_message(&graph, 11, &w);
        put_message(&graph, 12, &y);
        bytes model = make_model(&graph, 13);
        assert_ok(ash_tensor_create(context, NULL, &row, ones, sizeof ones, &bound, &diag));
        const ash_onnx_bind bind[] = {{"w", bound}};
        assert_ok(parse(&model, way ? NULL : &(ash_onnx_options){.binds = bind, .n_binds = 1}, &made));
        assert_false(ash_graph_is_open(made));
        expect_dims(made, 0, "f32[4, 3]");
        ash_graph_destroy(made);
        ash_tensor_destroy(bound);
    }
}

static void test_options_name_what_is_there(void **state) {
    (void)state;
    bytes model = make_unary(NULL, "Relu", four, 1, 13);
    const ash_onnx_var var[] = {{"height", 1, 2}};
    const ash_type type = {.dtype = ASH_F32};
    float one = 1;
    ash_tensor *tensor;
    ash_graph *graph;
    assert_ok(ash_tensor_create(context, NULL, &type, &one, sizeof one, &tensor, &diag));
    const ash_onnx_bind bind[] = {{"z", tensor}};
    assert_status(parse(&model, &(ash_onnx_options){.vars = var, .n_vars = 1}, &graph),
                  ASH_ERROR_NOT_FOUND);
    assert_status(parse(&model, &(ash_onnx_options){.binds = bind, .n_binds = 1}, &graph),
                  ASH_ERROR_NOT_FOUND);
    ash_tensor_destroy(tensor);
}

/* y = Reshape(x, shape), where the shape is a graph input. */
static void test_bound_input_is_a_constant(void **state) {
    (void)state;
    bytes graph_ = {.len = 0}, node = make_node("r", "Reshape", "x", "shape", "y"),
          x = make_info("x", four, 1);
    static const int64_t two[] = {2}, target[] = {2, 2};
    bytes shape = make_info("shape", two, 1), y = make_info("y", two, 0);
    put_message(&graph_, 1, &node);
    put_message(&graph_, 11, &x);
    put_message(&graph_, 11, &shape);
    put_message(&graph_, 12, &y);
    bytes model = make_model(&graph_, 13);
    ash_graph *graph;
    assert_status(parse(&model, NULL, &graph), ASH_ERROR_UNSUPPORTED);
    assert_non_null(strstr(diag.message, "'shape'"));
    assert_string_equal(diag.node, "r");
    const ash_type type = {.dtype = ASH_I64, .rank = 1, .dims = {2}};
    ash_tensor *tensor;
    assert_ok(ash_tensor_create(context, NULL, &type, target, sizeof target, &tensor, &diag));
    const ash_onnx_bind bind[] = {{"shape", tensor}};
    assert_ok(parse(&model, &(ash_onnx_options){.binds = bind, .n_binds = 1}, &graph));
    assert_int_equal(ash_graph_input_count(graph), 1);
    assert_int_equal(ash_graph_type(graph, ash_graph_output_at(graph, 0, NULL))->rank, 2);
    ash_graph_destroy(graph);
    ash_tensor_destroy(tensor);
}

/* Shape computations leave no trace: the reshapes of the fixture have dims that are expressions. */
static void test_computed_shapes_become_attributes(void **state) {
    (void)state;
    ash_graph *graph = fixture("bert_like", &(ash_onnx_options){.var_min = 1, .var_max = 64});
    assert_int_equal(ash_dims_var_count(graph->dims), 2);
    assert_int_equal(count_ops(graph, ASH_OP_CONCAT), 0);
    assert_int_equal(count_ops(graph, ASH_OP_GATHER), 1); /* the embedding */
    for (size_t i = 0; i < graph->nodes.len; i++) {
        const ash_type *type = ash_graph_type(graph, graph->nodes.at[i].out);
        assert_true(type->dtype == ASH_F32 || type->dtype == ASH_I64 || type->dtype == ASH_BOOL);
    }
    ash_graph_destroy(graph);
}

/* --- weights -------------------------------------------------------------------------------------- */

static const ash_value_info *largest_constant(const ash_graph *graph) {
    const ash_value_info *best = NULL;
    for (size_t i = 0; i < graph->values.len; i++) {
        const ash_value_info *info = &graph->values.at[i];
        if (info->blob && (!best || info->blob->size > best->blob->size)) best = info;
    }
    return best;
}

static void test_external_data_stay_in_their_file(void **state) {
    (void)state;
    ash_graph *graph = fixture("mlp_external", NULL);
    const ash_value_info *info = largest_constant(graph);
    assert_int_equal(info->blob->size, 32 * 32 * 4);
    assert_true(info->blob->mapped);
    ash_graph_destroy(graph);
}

static void test_parameters_have_names(void **state) {
    (void)state;
    ash_graph *graph = fixture("mlp_external", &(ash_onnx_options){.parameters = true});
    const ash_value_info *info = largest_constant(graph);
    assert_int_equal(info->kind, ASH_VALUE_PARAMETER);
    assert_non_null(info->name);
    ash_graph_destroy(graph);
}

/* Large tensors stay in the mapped model, aligned or not; small misaligned ones are copied. */
static void test_mapping_and_alignment(void **state) {
    (void)state;
    enum { LARGE = 20000, SMALL = 16 };
    static float data[LARGE];
    char path[] = "/tmp/ashlar_import_XXXXXX";
    int fd = mkstemp(path);
    FILE *f = fdopen(fd, "wb");
    for (int pad = 0; pad < 4; pad++) {
        bytes head = {.len = 0}, graph_ = {.len = 0}, node = make_node(NULL, "Add", "x", "w", "y");
        int64_t dims[] = {LARGE};
        bytes x = make_info("x", dims, 1), y = make_info("y", dims, 0), tensor = {.len = 0},
              set = {.len = 0};
        put_int(&tensor, 1, LARGE);
        put_int(&tensor, 2, 1);
        put_text(&tensor, 8, "w");
        put_bytes(&tensor, 12, "    ", (size_t)pad);
        put_varint(&tensor, 9 << 3 | 2);
        put_varint(&tensor, sizeof data);
        put_message(&graph_, 1, &node);
        put_message(&graph_, 11, &x);
        put_message(&graph_, 12, &y);
        put_varint(&graph_, 5 << 3 | 2);
        put_varint(&graph_, tensor.len + sizeof data);
        put(&graph_, tensor.at, tensor.len);
        put_int(&set, 2, 13);
        put_message(&head, 8, &set);
        put_varint(&head, 7 << 3 | 2);
        put_varint(&head, graph_.len + sizeof data);
        put(&head, graph_.at, graph_.len);
        rewind(f);
        fwrite(head.at, 1, head.len, f);
        fwrite(data, 1, sizeof data, f);
        fflush(f);
        assert_int_equal(ftruncate(fd, (off_t)(head.len + sizeof data)), 0);
        ash_graph *graph;
        assert_ok(ash_onnx_read(context, path, NULL, &graph, &diag));
        const ash_blob *blob = largest_constant(graph)->blob;
        assert_true(blob->mapped);
        assert_int_equal((uintptr_t)blob->data % 4, head.len % 4);
        ash_graph_destroy(graph);
    }
    fclose(f);
    unlink(path);
}

/* --- errors --------------------------------------------------------------------------------------- */

static void test_unknown_operator_is_named(void **state) {
    (void)state;
    bytes model = make_unary("strange", "Frobnicate", four, 1, 15);
    ash_graph *graph;
    assert_status(parse(&model, NULL, &graph), ASH_ERROR_UNSUPPORTED);
    assert_null(graph);
    assert_string_equal(diag.node, "strange");
    assert_string_equal(diag.op, "Frobnicate, ai.onnx 15");
    assert_true(memcmp(model.at + diag.file_offset, "\x0a\x01x\x12\x01y", 6) ==
                0); /* where the node's fields begin */
    model = make_unary(NULL, "Frobnicate", four, 1, 15);
    assert_status(parse(&model, NULL, &graph), ASH_ERROR_UNSUPPORTED);
    assert_string_equal(diag.node, "y");
}

/* Operators of the compiler's own, and forms that it chooses for a target, have no name in a file. */
static void test_internal_operators_have_no_name(void **state) {
    (void)state;
    static const char *const names[] = {"winograd", "Winograd", "conv", "matmul", "custom"};
    ash_graph *graph;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        bytes model = make_unary("node", names[i], four, 1, 15);
        assert_status(parse(&model, NULL, &graph), ASH_ERROR_UNSUPPORTED);
        assert_null(graph);
        assert_string_equal(diag.node, "node");
    }
    bytes model = make_unary("node", "Relu", four, 1, 15);
    assert_ok(parse(&model, NULL, &graph));
    static const ash_attr attrs[] = {ASH_ATTR_I(N, 4), ASH_ATTR_I(B_BLOCK, 4)};
    ash_type types[] = {{ASH_F32, 2, {3, 4}}, {ASH_F32, 3, {1, 4, 4}}};
    ash_value ins[] = {ash_graph_input(graph, "a", &types[0]), ash_graph_input(graph, "b", &types[1])}, out;
    assert_status(ash_graph_add(graph, ASH_OP_MATMUL, ins, 2, attrs, 2, &out), ASH_ERROR_UNSUPPORTED);
    ash_graph_destroy(graph);
}

static void test_node_without_any_name_has_a_number(void **state) {
    (void)state;
    bytes graph_ = {.len = 0}, node = make_node(NULL, "Frobnicate", "x", NULL, NULL),
          x = make_info("x", four, 1);
    put_message(&graph_, 1, &node);
    put_message(&graph_, 11, &x);
    bytes model = make_model(&graph_, 13);
    ash_graph *graph;
    assert_status(parse(&model, NULL, &graph), ASH_ERROR_UNSUPPORTED);
    assert_string_equal(diag.node, "#0");
}

static void test_use_before_definition(void **state) {
    (void)state;
    bytes graph_ = {.len = 0}, node = make_node("n", "Add", "x", "later", "y"), x = make_info("x", four, 1);
    put_message(&graph_, 1, &node);
    put_message(&graph_, 11, &x);
    bytes model = make_model(&graph_, 13);
    ash_graph *graph;
    assert_status(parse(&model, NULL, &graph), ASH_ERROR_FORMAT);
    assert_non_null(strstr(diag.message, "'later'"));
}

static void test_name_defined_twice(void **state) {
    (void)state;
    bytes graph_ = {.len = 0}, node = make_node("n", "Relu", "x", NULL, "x"), x = make_info("x", four, 1);
    put_message(&graph_, 1, &node);
    put_message(&graph_, 11, &x);
    bytes model = make_model(&graph_, 13);
    ash_graph *graph;
    assert_status(parse(&model, NULL, &graph), ASH_ERROR_FORMAT);
}

static void test_shape_error_names_the_node(void **state) {
    (void)state;
    bytes model = make_unary("flat", "MaxPool", four, 1, 13);
    ash_graph *graph;
    assert_status(parse(&model, NULL, &graph), ASH_ERROR_SHAPE);
    assert_string_equal(diag.node, "flat");
    assert_true(diag.file_offset != ASH_NO_OFFSET);
}

/* What the graph refuses is told of the model's node, and says which core operator it was. */
static void test_core_refusal_names_the_node(void **state) {
    (void)state;
    static const int64_t three[] = {3};
    bytes graph_ = {.len = 0}, node = make_node("sum", "Add", "x", "z", "y"), x = make_info("x", four, 1),
          z = make_info("z", three, 1), y = make_info("y", four, 1);
    put_message(&graph_, 1, &node);
    put_message(&graph_, 11, &x);
    put_message(&graph_, 11, &z);
    put_message(&graph_, 12, &y);
    bytes model = make_model(&graph_, 13);
    ash_graph *graph;
    assert_status(parse(&model, NULL, &graph), ASH_ERROR_SHAPE);
    assert_string_equal(diag.node, "sum");
    assert_string_equal(diag.op, "Add, ai.onnx 13");
    assert_string_equal(diag.message, "add: operands 0 and 1 differ in shape; operands f32[4], f32[3]");
    assert_true(diag.file_offset != ASH_NO_OFFSET);
}

static void test_newer_operator_sets_are_refused(void **state) {
    (void)state;
    bytes model = make_unary("n", "Relu", four, 1, 1000);
    ash_graph *graph;
    assert_status(parse(&model, NULL, &graph), ASH_ERROR_UNSUPPORTED);
}

static void test_files_that_are_no_models(void **state) {
    (void)state;
    ash_graph *graph;
    assert_status(ash_onnx_parse(context, "", 0, NULL, &graph, &diag), ASH_ERROR_FORMAT);
    assert_status(ash_onnx_parse(context, "hello world", 11, NULL, &graph, &diag), ASH_ERROR_FORMAT);
    assert_status(ash_onnx_read(context, "/no/such/model.onnx", NULL, &graph, &diag), ASH_ERROR_NOT_FOUND);
    assert_status(ash_onnx_read(context, "/tmp", NULL, &graph, &diag), ASH_ERROR_IO);
    assert_status(ash_onnx_read(NULL, "x", NULL, &graph, &diag), ASH_ERROR_INVALID_ARGUMENT);
}

/* A weight whose data lie at `location`. */
static ash_status external(const char *location, int64_t offset, ash_graph **graph) {
    bytes graph_ = {.len = 0}, node = make_node("n", "Add", "x", "w", "y"), x = make_info("x", four, 1),
          t = {.len = 0};
    bytes place = {.len = 0}, where = {.len = 0}, y = make_info("y", four, 0);
    char number[32], path[] = "/tmp/ashlar_import_XXXXXX";
    put_text(&place, 1, "location");
    put_text(&place, 2, location);
    put_text(&where, 1, "offset");
    snprintf(number, sizeof number, "%lld", (long long)offset);
    put_text(&where, 2, number);
    put_int(&t, 1, 4);
    put_int(&t, 2, 1);
    put_text(&t, 8, "w");
    put_message(&t, 13, &place);
    put_message(&t, 13, &where);
    put_int(&t, 14, 1);
    put_message(&graph_, 1, &node);
    put_message(&graph_, 5, &t);
    put_message(&graph_, 11, &x);
    put_message(&graph_, 12, &y);
    bytes model = make_model(&graph_, 13);
    int fd = mkstemp(path);
    assert_int_equal(write(fd, model.at, model.len), model.len);
    close(fd);
    ash_status status = ash_onnx_read(context, path, NULL, graph, &diag);
    unlink(path);
    if (status != ASH_OK) assert_string_equal(diag.node, "n");
    assert_status(parse(&model, NULL, graph), ASH_ERROR_UNSUPPORTED); /* memory has no folder */
    return status;
}

static void test_external_data_must_stay_in_the_folder(void **state) {
    (void)state;
    static const char *const bad[] = {"/etc/passwd", "../x", "a/../../x", "a/..", "", ".", "a/", "a\\b"};
    ash_graph *graph;
    for (size_t i = 0; i < ASH_COUNT(bad); i++)
        assert_status(external(bad[i], 0, &graph), ASH_ERROR_FORMAT);
    assert_status(external("ashlar_no_such_file", 0, &graph), ASH_ERROR_NOT_FOUND);
}

static void test_external_data_must_fit_their_file(void **state) {
    (void)state;
    static const char name[] = "/tmp/ashlar_weights.bin";
    ash_graph *graph;
    FILE *f = fopen(name, "wb");
    assert_int_equal(fwrite("0123456789abcdef0123", 1, 20, f), 20);
    fclose(f);
    assert_status(external("ashlar_weights.bin", 8, &graph), ASH_ERROR_FORMAT);
    assert_status(external("ashlar_weights.bin", 21, &graph), ASH_ERROR_FORMAT);
    assert_status(external("ashlar_weights.bin", INT64_MAX, &graph), ASH_ERROR_FORMAT);
    unlink(name);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_one_node),
        cmocka_unit_test(test_table_is_sorted),
        cmocka_unit_test(test_table_knows_opsets),
        cmocka_unit_test(test_named_dim_becomes_a_variable),
        cmocka_unit_test(test_dims_that_are_expressions),
        cmocka_unit_test(test_shapes_of_inputs_settle_dims),
        cmocka_unit_test(test_shapes_of_expressions),
        cmocka_unit_test(test_fixed_inputs_settle_dims),
        cmocka_unit_test(test_options_name_what_is_there),
        cmocka_unit_test(test_bound_input_is_a_constant),
        cmocka_unit_test(test_computed_shapes_become_attributes),
        cmocka_unit_test(test_external_data_stay_in_their_file),
        cmocka_unit_test(test_parameters_have_names),
        cmocka_unit_test(test_mapping_and_alignment),
        cmocka_unit_test(test_unknown_operator_is_named),
        cmocka_unit_test(test_internal_operators_have_no_name),
        cmocka_unit_test(test_node_without_any_name_has_a_number),
        cmocka_unit_test(test_use_before_definition),
        cmocka_unit_test(test_name_defined_twice),
        cmocka_unit_test(test_shape_error_names_the_node),
        cmocka_unit_test(test_core_refusal_names_the_node),
        cmocka_unit_test(test_newer_operator_sets_are_refused),
        cmocka_unit_test(test_files_that_are_no_models),
        cmocka_unit_test(test_external_data_must_stay_in_the_folder),
        cmocka_unit_test(test_external_data_must_fit_their_file),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
