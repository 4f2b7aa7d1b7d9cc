/* SPDX-License-Identifier: MIT */
/* What a caller says of a model when it is read: lowerings of unknown operators, names of dims that are
 * expressions of others, sequences; and elements of few bits, in files and in graphs. */
#include "onnx_folder.h"

#include <math.h>

#include "ashlar/builder.h"
#include "ashlar/onnx.h"
#include "ashlar/plan.h"
#include "ashlar/reference.h"
#include "base/text.h"
#include "ir/ir.h"
#include "open_model.h"

static ash_status parse(const bytes *model, const ash_onnx_options *options, ash_graph **graph) {
    return ash_onnx_parse(context, model->at, model->len, options, graph, &diag);
}

static void expect_type(const ash_graph *graph, ash_value value, const char *text) {
    ash_text shown;
    ash_text_init(&shown, ash_context__allocator(context));
    ash_type_print(graph->dims, ash_graph_type(graph, value), &shown);
    assert_string_equal(shown.at, text);
    ash_text_free(&shown);
}

/* --- operators of the caller ------------------------------------------------------------------------ */

/* y = Scaled(x, <left out>), of the domain "mine", with attributes of every type. */
static bytes scaled_model(const char *dims) {
    bytes graph = {.len = 0}, node = make_node("culprit", "Scaled", "x", "", "y"), set = {.len = 0};
    bytes x = open_info("x", dims), y = open_info("y", dims), attrs[3] = {{.len = 0}};
    const float floats[] = {0.5F, 0.25F};
    put_text(&node, 7, "mine");
    put_text(&attrs[0], 1, "by");
    put_int(&attrs[0], 3, 6);
    put_int(&attrs[0], 20, 2);
    put_text(&attrs[1], 1, "parts");
    put_bytes(&attrs[1], 7, floats, sizeof floats);
    put_int(&attrs[1], 20, 6);
    put_text(&attrs[2], 1, "how");
    put_bytes(&attrs[2], 4, "up", 2);
    put_int(&attrs[2], 20, 3);
    for (int i = 0; i < 3; i++) put_message(&node, 5, &attrs[i]);
    put_message(&graph, 1, &node);
    put_message(&graph, 11, &x);
    put_message(&graph, 12, &y);
    bytes model = make_model(&graph, 18);
    put_text(&set, 1, "mine");
    put_int(&set, 2, 3);
    put_message(&model, 8, &set);
    return model;
}

/* x * by * parts[1]. */
static ash_status lower_scaled(void *user, const ash_onnx_call *call, ash_diag *why) {
    size_t n, len;
    const float *parts = ash_onnx_call_floats(call, "parts", &n);
    const char *how = ash_onnx_call_text(call, "how", &len);
    ++*(int *)user;
    (void)why;
    assert_string_equal(call->op, "Scaled");
    assert_int_equal(call->version, 3);
    assert_int_equal(call->n_ins, 2);
    assert_int_equal(call->ins[1], ASH_NO_VALUE);
    assert_int_equal(call->n_outs, 1);
    assert_int_equal(n, 2);
    assert_memory_equal(how, "up", len);
    assert_null(ash_onnx_call_ints(call, "by", &n)); /* of another type */
    assert_int_equal(n, 0);
    assert_true(ash_onnx_call_float(call, "none", 2.5) == 2.5);
    double factor = (double)ash_onnx_call_int(call, "by", 1) * (double)parts[1];
    call->outs[0] = ash_mul(call->graph, call->ins[0], ash_scalar(call->graph, ASH_F32, factor));
    return ASH_OK;
}

static ash_status lower_nothing(void *user, const ash_onnx_call *call, ash_diag *why) {
    (void)user, (void)call, (void)why;
    return ASH_OK;
}

static ash_status lower_badly(void *user, const ash_onnx_call *call, ash_diag *why) {
    (void)user;
    call->outs[0] = 12345;
    return why ? ASH_OK : ASH_ERROR_TYPE;
}

static ash_status refuse(void *user, const ash_onnx_call *call, ash_diag *why) {
    (void)user, (void)call, (void)why;
    return ASH_ERROR_UNSUPPORTED;
}

static void test_operators_of_the_caller(void **state) {
    (void)state;
    int calls = 0;
    ash_onnx_operator op = {"mine", "Scaled", lower_scaled, &calls};
    ash_onnx_options options = {.operators = &op, .n_operators = 1};
    bytes model = scaled_model("4"), open = scaled_model("n");
    ash_graph *graph, *closed;
    assert_status(parse(&model, NULL, &graph), ASH_ERROR_UNSUPPORTED);
    assert_non_null(strstr(diag.message, "ash_onnx_options.operators"));
    assert_ok(parse(&model, &options, &graph));
    assert_int_equal(calls, 1);
    const float x[] = {1, 2, 3, 4};
    ash_reference *y;
    assert_ok(ash_reference_run(graph, (const void *const[]){x}, 1, NULL, NULL, 0, &y, &diag));
    const double *numbers = ash_reference_output(y, 0, NULL, NULL);
    for (int i = 0; i < 4; i++) assert_true(numbers[i] == (double)x[i] * 1.5);
    ash_reference_destroy(y);
    ash_graph_destroy(graph);

    assert_ok(parse(&open, &options, &graph)); /* lowered for each set of sizes */
    assert_true(ash_graph_is_open(graph));
    assert_int_equal(calls, 1);
    const ash_type *seven = &(ash_type){.dtype = ASH_F32, .rank = 1, .dims = {7}};
    assert_ok(ash_graph_close(graph, &seven, 1, &closed, &diag));
    assert_int_equal(calls, 2);
    expect_type(closed, ash_graph_output_at(closed, 0, NULL), "f32[7]");
    ash_graph_destroy(closed);
    ash_graph_destroy(graph);

    static const struct {
        ash_onnx_lower lower;
        ash_status status;
        const char *message;
    } bad[] = {{lower_nothing, ASH_ERROR_UNSUPPORTED, "result 0"},
               {lower_badly, ASH_ERROR_INVALID_ARGUMENT, "result 0 is no value"},
               {refuse, ASH_ERROR_UNSUPPORTED, "the caller's lowering"}};
    for (size_t i = 0; i < ASH_COUNT(bad); i++) {
        op.lower = bad[i].lower;
        assert_status(parse(&model, &options, &graph), bad[i].status);
        assert_string_equal(diag.node, "culprit");
        assert_non_null(strstr(diag.message, bad[i].message));
    }
    const ash_onnx_operator twice[] = {op, op}, none[] = {{"mine", "Scaled", NULL, NULL}};
    assert_status(parse(&model, &(ash_onnx_options){.operators = twice, .n_operators = 2}, &graph),
                  ASH_ERROR_INVALID_ARGUMENT);
    assert_status(parse(&model, &(ash_onnx_options){.operators = none, .n_operators = 1}, &graph),
                  ASH_ERROR_INVALID_ARGUMENT);
}

/* --- dims ------------------------------------------------------------------------------------------- */

/* y = Concat(past, x) * m, in which m has a name of its own for the length. */
static bytes total_model(const char *total) {
    bytes graph = {.len = 0}, axis = {.len = 0}, join = make_node("join", "Concat", "past", "x", "c"),
          mask = make_node("mask", "Mul", "c", "m", "y");
    bytes infos[] = {open_info("x", "seq"), open_info("m", total), open_info("past", "past")};
    bytes y = open_info("y", "q");
    put_text(&axis, 1, "axis");
    put_int(&axis, 3, 0);
    put_int(&axis, 20, 2);
    put_message(&join, 5, &axis);
    put_message(&graph, 1, &join);
    put_message(&graph, 1, &mask);
    for (size_t i = 0; i < ASH_COUNT(infos); i++) put_message(&graph, 11, &infos[i]);
    put_message(&graph, 12, &y);
    return make_model(&graph, 13);
}

static void test_dims_that_are_tied(void **state) {
    (void)state;
    static const ash_onnx_var vars[] = {{"past", 0, 8}, {"seq", 1, 4}}, all[] = {{"total", 1, 12}};
    ash_onnx_tie tie = {"total", "past + seq"};
    ash_onnx_options options = {.vars = vars, .n_vars = 2, .var_min = 1, .var_max = 12};
    bytes model = total_model("total");
    ash_graph *graph;
    ash_plan *plan;
    assert_ok(parse(&model, &options, &graph)); /* nothing says that they are equal: an execution finds */
    assert_int_equal(ash_dims_var_count(graph->dims), 3);
    assert_int_equal(ash_dims_equality_count(graph->dims), 1);
    assert_ok(ash_dims_check(graph->dims, (int64_t[]){2, 5, 3}, &diag)); /* seq, total, past */
    assert_status(ash_dims_check(graph->dims, (int64_t[]){2, 6, 3}, &diag), ASH_ERROR_SHAPE);
    assert_non_null(strstr(diag.message, "(seq + past) and total must be equal, and are 5 and 6"));
    ash_graph_destroy(graph);
    options.ties = &tie, options.n_ties = 1;
    static const char *const same[] = {"past + seq", "seq+past", "(past) + 1*seq", " ( seq + (past) ) "};
    for (size_t i = 0; i < ASH_COUNT(same); i++) {
        tie.expression = same[i];
        assert_ok(parse(&model, &options, &graph));
        assert_int_equal(ash_dims_var_count(graph->dims), 2);
        expect_type(graph, ash_graph_input_at(graph, 1, NULL), "f32[(seq + past)]");
        expect_type(graph, ash_graph_output_at(graph, 0, NULL), "f32[(seq + past)]");
        if (i + 1 < ASH_COUNT(same)) ash_graph_destroy(graph);
    }
    /* What is set is held to it. */
    const float numbers[12] = {0};
    const ash_type five = {ASH_F32, 1, {5}}, six = {ASH_F32, 1, {6}};
    assert_ok(ash_plan_prepare(context, graph, NULL, &plan, &diag));
    const ash_var_binding now[] = {{"past", 3}, {"seq", 2}};
    assert_ok(ash_plan_set_vars(plan, now, 2, &diag));
    assert_ok(ash_plan_set_input(plan, 1, &five, numbers, 5 * sizeof *numbers, &diag));
    assert_status(ash_plan_set_input(plan, 1, &six, numbers, 6 * sizeof *numbers, &diag), ASH_ERROR_SHAPE);
    ash_plan_destroy(plan);
    ash_graph_destroy(graph);

    options.vars = NULL, options.n_vars = 0, options.var_min = options.var_max = 0;
    assert_ok(parse(&model, &options, &graph)); /* open: the inputs say what is in the expression */
    assert_true(ash_graph_is_open(graph));
    expect_type(graph, ash_graph_input_at(graph, 1, NULL), "f32[(seq + past)]");
    ash_graph_destroy(graph);

    static const char *const bad[] = {"past +", "past - seq", "(past", "past)",
                                      "",       "2 total",    "total", "total + 1"};
    for (size_t i = 0; i < ASH_COUNT(bad); i++) {
        tie.expression = bad[i];
        assert_status(parse(&model, &options, &graph), ASH_ERROR_INVALID_ARGUMENT);
        assert_non_null(strstr(diag.message, "'total'"));
    }
    tie = (ash_onnx_tie){"elsewhere", "past"};
    assert_status(parse(&model, &options, &graph), ASH_ERROR_NOT_FOUND);
    tie = (ash_onnx_tie){"total", "past + seq"};
    options.vars = all, options.n_vars = 1;
    assert_status(parse(&model, &options, &graph), ASH_ERROR_INVALID_ARGUMENT);
}

/* Dims of which one is never more than the other are taken to be equal, and variables are held to it. */
static void test_dims_that_must_be_equal(void **state) {
    (void)state;
    static const ash_onnx_var vars[] = {{"past", 0, 8}, {"seq", 1, 4}, {"more", 0, 2}},
                              other[] = {{"past", 0, 8}, {"seq", 1, 4}, {"more", 1, 2}};
    ash_onnx_options options = {.vars = vars, .n_vars = 3};
    bytes model = total_model("past + seq + more");
    ash_graph *graph;
    ash_plan *plan;
    assert_ok(parse(&model, &options, &graph));
    expect_type(graph, ash_graph_output_at(graph, 0, NULL), "f32[(seq + past)]");
    assert_int_equal(ash_dims_equality_count(graph->dims), 1);
    const float numbers[14] = {0};
    const ash_type two = {ASH_F32, 1, {2}}, three = {ASH_F32, 1, {3}};
    assert_ok(ash_plan_prepare(context, graph, NULL, &plan, &diag));
    for (int64_t more = 0; more < 2; more++) {
        const ash_type all = {ASH_F32, 1, {5 + more}};
        const ash_var_binding now[] = {{"past", 3}, {"seq", 2}, {"more", more}};
        assert_ok(ash_plan_set_vars(plan, now, 3, &diag));
        assert_ok(ash_plan_set_input(plan, 0, &two, numbers, 2 * sizeof *numbers, &diag));
        assert_ok(ash_plan_set_input(plan, 1, &all, numbers, (size_t)(5 + more) * sizeof *numbers, &diag));
        assert_ok(ash_plan_set_input(plan, 2, &three, numbers, 3 * sizeof *numbers, &diag));
        assert_status(ash_plan_execute(plan, &diag), more ? ASH_ERROR_SHAPE : ASH_OK);
    }
    assert_non_null(strstr(diag.message, "must be equal, and are"));
    ash_plan_destroy(plan);
    ash_graph_destroy(graph);
    options.vars = other; /* they cannot be */
    assert_status(parse(&model, &options, &graph), ASH_ERROR_SHAPE);
}

/* "?" is a name for nothing: each is a dim of its own. Parentheses are part of expressions. */
static void test_placeholders_and_parentheses(void **state) {
    (void)state;
    const ash_onnx_options wide = {.var_min = 1, .var_max = 64};
    bytes model = relu_model("?;?"), product = total_model("2*(past + seq)");
    ash_graph *graph;
    assert_ok(parse(&model, &wide, &graph));
    expect_type(graph, ash_graph_input_at(graph, 0, NULL), "f32[x.0, x.1]");
    ash_graph_destroy(graph);
    assert_ok(parse(&product, &(ash_onnx_options){0}, &graph)); /* open */
    expect_type(graph, ash_graph_input_at(graph, 1, NULL), "f32[(2*seq + 2*past)]");
    ash_graph_destroy(graph);
}

/* --- sequences -------------------------------------------------------------------------------------- */

static ash_status read_sequences(const ash_onnx_sequence *sequences, size_t n, ash_graph **graph) {
    const ash_onnx_options options = {.sequences = sequences, .n_sequences = n};
    return ash_onnx_read(context, ASH_SOURCE_DIR "/tests/data/onnx/sequences/model.onnx", &options, graph,
                         &diag);
}

static void test_sequences(void **state) {
    (void)state;
    const ash_type rows[] = {{ASH_F32, 2, {2, 3}}, {ASH_F32, 2, {7, 3}}}, half = {ASH_F16, 2, {2, 3}};
    const ash_type narrow_rows = {ASH_F32, 2, {2, 4}}, open_row = {ASH_F32, 2, {-1, 3}};
    ash_onnx_sequence s = {"parts", rows, 2, false};
    const char *name;
    ash_graph *graph;
    assert_status(read_sequences(NULL, 0, &graph), ASH_ERROR_UNSUPPORTED);
    assert_string_equal(diag.node, "parts");
    assert_non_null(strstr(diag.message, "ash_onnx_options.sequences"));
    assert_ok(read_sequences(&s, 1, &graph));
    assert_int_equal(ash_graph_input_count(graph), 3);
    expect_type(graph, ash_graph_input_at(graph, 1, &name), "f32[7, 3]");
    assert_string_equal(name, "parts.1");
    assert_int_equal(ash_graph_output_count(graph), 2 + 3 + 2 + 2 + 4); /* two tensors; sequences */
    expect_type(graph, ash_graph_output_at(graph, 6, &name), "f32[7, 2]");
    assert_non_null(strchr(name, '.'));
    ash_graph_destroy(graph);
    const struct {
        ash_onnx_sequence s;
        ash_status status;
    } bad[] = {{{"parts", &half, 1, false}, ASH_ERROR_TYPE},
               {{"parts", &narrow_rows, 1, false}, ASH_ERROR_SHAPE},
               {{"parts", &open_row, 1, false}, ASH_ERROR_INVALID_ARGUMENT},
               {{"parts", NULL, 1, false}, ASH_ERROR_INVALID_ARGUMENT},
               {{"parts", NULL, 0, true}, ASH_ERROR_INVALID_ARGUMENT}, /* no optional */
               {{"x", rows, 2, false}, ASH_ERROR_INVALID_ARGUMENT},
               {{"others", rows, 2, false}, ASH_ERROR_NOT_FOUND}};
    for (size_t i = 0; i < ASH_COUNT(bad); i++) {
        const ash_onnx_sequence both[] = {bad[i].s, s};
        if (read_sequences(both, strcmp(bad[i].s.input, "parts") == 0 ? 1 : 2, &graph) != bad[i].status)
            fail_msg("case %zu: status %d, %s", i, (int)diag.code, diag.message);
    }
    assert_status(read_sequences((const ash_onnx_sequence[]){s, s}, 2, &graph), ASH_ERROR_INVALID_ARGUMENT);
}

/* --- elements of few bits --------------------------------------------------------------------------- */

static void test_what_codes_stand_for(void **state) {
    (void)state;
    static const struct {
        ash_narrow narrow;
        uint8_t code;
        double value;
    } cases[] = {{ASH_NARROW_U4, 0xf9, 9},
                 {ASH_NARROW_I4, 0x09, -7},
                 {ASH_NARROW_I2, 0xfe, -2},
                 {ASH_NARROW_F4E2M1, 0x01, 0.5},
                 {ASH_NARROW_F4E2M1, 0x0f, -6},
                 {ASH_NARROW_F6E2M3, 0x1f, 7.5},
                 {ASH_NARROW_F6E3M2, 0x1f, 28},
                 {ASH_NARROW_F8E4M3FN, 0x7e, 448},
                 {ASH_NARROW_F8E4M3FNUZ, 0x7f, 240},
                 {ASH_NARROW_F8E4M3FNUZ, 0x80, (double)NAN},
                 {ASH_NARROW_F8E5M2, 0xfc, -(double)INFINITY},
                 {ASH_NARROW_F8E5M2, 0x01, 0x1p-16},
                 {ASH_NARROW_F8E5M2FNUZ, 0x7f, 57344},
                 {ASH_NARROW_F8E8M0, 0x00, 0x1p-127},
                 {ASH_NARROW_F8E8M0, 0xff, (double)NAN},
                 {ASH_NARROW_NONE, 0x80, 128}};
    for (size_t i = 0; i < ASH_COUNT(cases); i++) {
        double have = ash_narrow_value(cases[i].narrow, cases[i].code);
        if (isnan(cases[i].value) ? !isnan(have) : have != cases[i].value)
            fail_msg("%s 0x%02x is %g", ash_narrow_name(cases[i].narrow), cases[i].code, have);
    }
    assert_string_equal(ash_narrow_name(ASH_NARROW_COUNT), "?");
    assert_int_equal(ash_narrow_bits(ASH_NARROW_COUNT), 0);
}

/* Packed in the file, as many bytes as it takes, and the same again when it is read. */
static void test_tensor_files(void **state) {
    (void)state;
    for (int n = ASH_NARROW_NONE; n < ASH_NARROW_COUNT; n++) {
        ash_narrow narrow = (ash_narrow)n;
        const ash_type type = {ash_narrow_dtype(narrow), 1, {13}};
        uint8_t codes[13];
        unsigned bits = ash_narrow_bits(narrow);
        ash_tensor *tensor, *back;
        for (int i = 0; i < 13; i++) {
            codes[i] = (uint8_t)(i * 37 + 11);
            if (bits && bits < 8) codes[i] &= (uint8_t)((1u << bits) - 1);
            if (type.dtype == ASH_I8) codes[i] = (uint8_t)(int)ash_narrow_value(narrow, codes[i]);
        }
        assert_ok(ash_tensor_create(context, "t", &type, codes, sizeof codes, &tensor, &diag));
        assert_int_equal(ash_tensor_narrow(tensor), ASH_NARROW_NONE);
        assert_ok(ash_tensor_set_narrow(tensor, narrow, &diag));
        assert_ok(ash_tensor_write(tensor, in_folder("t.pb"), &diag));
        assert_ok(ash_tensor_read(context, in_folder("t.pb"), &back, &diag));
        assert_int_equal(ash_tensor_narrow(back), narrow);
        assert_int_equal(ash_tensor_type(back)->dtype, type.dtype);
        assert_memory_equal(ash_tensor_data(back), codes, sizeof codes);
        ash_tensor_destroy(tensor);
        ash_tensor_destroy(back);
        unlink(in_folder("t.pb"));
    }
    const ash_type floats = {ASH_F32, 0, {0}};
    ash_tensor *tensor;
    assert_ok(ash_tensor_create(context, NULL, &floats, &(float){1}, 4, &tensor, &diag));
    assert_status(ash_tensor_set_narrow(tensor, ASH_NARROW_I4, &diag), ASH_ERROR_TYPE);
    assert_status(ash_tensor_set_narrow(tensor, ASH_NARROW_COUNT, &diag), ASH_ERROR_INVALID_ARGUMENT);
    ash_tensor_destroy(tensor);
}

/* y = Cast(x), f8e4m3fn to f32: the input says what its bytes are, and a call is held to it. */
static void test_inputs_of_few_bits(void **state) {
    (void)state;
    static const int64_t two[] = {2};
    bytes graph_message = {.len = 0}, node = make_node("cast", "Cast", "x", NULL, "y"), to = {.len = 0};
    bytes tensor_type = {.len = 0}, shape = {.len = 0}, dim = {.len = 0}, type = {.len = 0}, x = {.len = 0};
    bytes y = make_info("y", two, 1);
    put_text(&to, 1, "to");
    put_int(&to, 3, 1);
    put_int(&to, 20, 2);
    put_message(&node, 5, &to);
    put_int(&dim, 1, 2);
    put_message(&shape, 1, &dim);
    put_int(&tensor_type, 1, 17);
    put_message(&tensor_type, 2, &shape);
    put_message(&type, 1, &tensor_type);
    put_text(&x, 1, "x");
    put_message(&x, 2, &type);
    put_message(&graph_message, 1, &node);
    put_message(&graph_message, 11, &x);
    put_message(&graph_message, 12, &y);
    bytes model = make_model(&graph_message, 21);
    const ash_type row = {ASH_U8, 1, {2}};
    const uint8_t codes[] = {0x38, 0xb8};
    ash_graph *graph;
    ash_tensor *in, *out = NULL;
    assert_ok(parse(&model, NULL, &graph));
    assert_int_equal(ash_graph_input_narrow(graph, 0), ASH_NARROW_F8E4M3FN);
    assert_int_equal(ash_graph_input_narrow(graph, 1), ASH_NARROW_NONE);
    assert_int_equal(ash_graph_output_narrow(graph, 0), ASH_NARROW_NONE);
    assert_status(ash_onnx_write(graph, in_folder("m.onnx"), NULL, &diag), ASH_ERROR_UNSUPPORTED);
    assert_ok(ash_tensor_create(context, "x", &row, codes, sizeof codes, &in, &diag));
    const ash_eager_call call = {.size = sizeof call,
                                 .inputs = (const ash_tensor *const *)&in,
                                 .input_count = 1,
                                 .outputs = &out,
                                 .output_count = 1};
    assert_status(ash_eager(context, graph, NULL, &call, &diag), ASH_ERROR_TYPE);
    assert_ok(ash_tensor_set_narrow(in, ASH_NARROW_F8E4M3FN, &diag));
    assert_ok(ash_eager(context, graph, NULL, &call, &diag));
    const float *numbers = ash_tensor_data(out);
    assert_true(numbers[0] == 1 && numbers[1] == -1);
    ash_tensor_destroy(in);
    ash_tensor_destroy(out);
    ash_graph_destroy(graph);
}

/* docs/onnx.md has every operator, as the table has it. */
static void test_document(void **state) {
    (void)state;
    static const struct {
        const char *name;
        int64_t first, last;
    } rows[] = {
#define ROW(domain, name, first, last, fn, arg) {name, first, last},
#include "onnx/operators.def"
#undef ROW
    };
    static char text[1 << 17];
    FILE *f = fopen(ASH_SOURCE_DIR "/docs/onnx.md", "rb");
    assert_non_null(f);
    text[fread(text, 1, sizeof text - 1, f)] = 0;
    assert_true(feof(f));
    fclose(f);
    for (size_t i = 0; i < ASH_COUNT(rows); i++) {
        char line[128], to[32];
        snprintf(to, sizeof to, rows[i].last == INT64_MAX ? "and later" : "to %lld",
                 (long long)rows[i].last);
        snprintf(line, sizeof line, "\n| %s | %lld %s |", rows[i].name, (long long)rows[i].first, to);
        if (!strstr(text, line))
            fail_msg("no line \"%s\": conformance -o docs/onnx.md writes it anew", line + 1);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_operators_of_the_caller),
        cmocka_unit_test(test_dims_that_are_tied),
        cmocka_unit_test(test_dims_that_must_be_equal),
        cmocka_unit_test(test_placeholders_and_parentheses),
        cmocka_unit_test(test_sequences),
        cmocka_unit_test(test_what_codes_stand_for),
        cmocka_unit_test(test_tensor_files),
        cmocka_unit_test(test_inputs_of_few_bits),
        cmocka_unit_test(test_document),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
