/* SPDX-License-Identifier: MIT */
/* Functions of the caller in graphs: the registry, building, inference, text form, verifier, the reference
 * evaluator, and what passes may do with calls. */
#include "functions.h"
#include "ir_fixture.h"
#include "opt/opt.h"

static ash_diag diag;

static void registry(void **state) {
    fixture *f = *state;
    static counted c; /* here and below: as long as the context */
    char name[] = "first";
    assert_int_equal(ash_context_find_function(f->context, "first"), -1);
    add_function(f->context, name, plus_one, &c, true);
    memset(name, 'x', sizeof name - 1); /* it was copied */
    add_function(f->context, "second", tick, &c, false);
    assert_int_equal(ash_context_find_function(f->context, "first"), 0);
    assert_int_equal(ash_context_find_function(f->context, "second"), 1);
    assert_int_equal(ash_context_find_function(f->context, "third"), -1);
    assert_int_equal(ash_context_find_function(f->context, NULL), -1);
    const ash_function bad[] = {
        {.name = "second", .run = tick}, {.name = "", .run = tick}, {.run = tick}, {.name = "x"}};
    for (size_t i = 0; i < ASH_COUNT(bad); i++)
        assert_status(ash_context_add_function(f->context, &bad[i], &diag), ASH_ERROR_INVALID_ARGUMENT);
    assert_status(ash_context_add_function(f->context, NULL, &diag), ASH_ERROR_INVALID_ARGUMENT);
    assert_status(ash_context_add_function(NULL, &bad[0], &diag), ASH_ERROR_INVALID_ARGUMENT);
    ash_graph_destroy(f->g);
    ash_context_destroy(f->context);
    assert_int_equal(c.released, 2); /* what was refused is still the caller's */
    assert_int_equal(f->memory.live, 0);
    ash_context_options options = {.allocator = test_memory_allocator(&f->memory)};
    assert_ok(ash_context_create(&options, &f->context, &diag));
    assert_ok(ash_graph_create(f->context, "test", &f->g, &diag));
}

static void registry_without_memory(void **state) {
    fixture *f = *state;
    static counted c;
    ash_function function = {.name = "f", .run = tick, .user = &c};
    for (long at = 1;; at++) {
        f->memory.count = 0;
        f->memory.fail_at = at;
        ash_status status = ash_context_add_function(f->context, &function, &diag);
        f->memory.fail_at = 0;
        if (status == ASH_OK) break;
        assert_int_equal(status, ASH_ERROR_OUT_OF_MEMORY);
        assert_int_equal(ash_context_find_function(f->context, "f"), -1);
        assert_true(at < 100);
    }
    assert_int_equal(ash_context_find_function(f->context, "f"), 0);
}

/* The types of sort_rows' results, for n rows. */
static void sorted_types(ash_dim n, ash_dim wide, ash_type types[2]) {
    types[0] = TYPE(F32, n, wide);
    types[1] = TYPE(I64, n, wide);
}

static void calls_are_nodes(void **state) {
    fixture *f = *state;
    static counted c;
    add_function(f->context, "sort", sort_rows, &c, true);
    ash_dim n = ash_graph_var(f->g, "n", 0, 7);
    ash_value x = INPUT(f->g, "x", F32, n, 5), outs[2];
    ash_type types[2];
    sorted_types(n, 5, types);
    ash_custom_options options = {.chunks = n, .scratch = 20, .duration = 1500};
    ash_graph_name_next(f->g, "sorting");
    assert_int_equal(ash_custom(f->g, "sort", &x, 1, types, 2, &options, outs), ASH_OK);
    assert_int_equal(outs[1], outs[0] + 1);
    assert_true(ash_type_equal(ash_graph_type(f->g, outs[0]), &types[0]));
    assert_true(ash_type_equal(ash_graph_type(f->g, outs[1]), &types[1]));
    ash_graph_output(f->g, "y", outs[0]);
    ash_graph_output(f->g, "at", outs[1]);
    assert_ok(ash_graph_verify(f->g, &diag));

    char *text, *again;
    size_t len, len_again;
    ash_graph *parsed;
    assert_ok(ash_graph_print(f->g, true, &text, &len, &diag));
    assert_non_null(
        strstr(text, "%1: f32[n, 5], %2: i64[n, 5] = custom(%0) function=\"sort\" chunks=n scratch=20 "
                     "duration=1500 @\"sorting\""));
    assert_ok(ash_graph_parse(f->context, text, len, &parsed, &diag));
    assert_ok(ash_graph_verify(parsed, &diag));
    assert_ok(ash_graph_print(parsed, true, &again, &len_again, &diag));
    assert_string_equal(text, again);
    ash_context_free_text(f->context, again, len_again);
    ash_graph_destroy(parsed);
    ash_context_free_text(f->context, text, len);

    f->g->nodes.at[0].n_outs = 1; /* planted defects */
    assert_status(ash_graph_verify(f->g, &diag), ASH_ERROR_INTERNAL);
    f->g->nodes.at[0].n_outs = 2;
    f->g->values.at[outs[1]].type.dtype = ASH_I32;
    assert_status(ash_graph_verify(f->g, &diag), ASH_ERROR_INTERNAL);
    f->g->values.at[outs[1]].type.dtype = ASH_I64;
    ((ash_attr *)f->g->nodes.at[0].attrs)[0].i = 9;
    assert_status(ash_graph_verify(f->g, &diag), ASH_ERROR_INTERNAL);
    ((ash_attr *)f->g->nodes.at[0].attrs)[0].i = 0;
    assert_ok(ash_graph_verify(f->g, &diag));
}

/* Each is refused with a status, and the graph has no node. */
static void bad_calls(void **state) {
    fixture *f = *state;
    static counted c;
    add_function(f->context, "sort", sort_rows, &c, true);
    enum { MANY = ASH_CUSTOM_MOST_RESULTS + 1 };
    ash_type types[MANY];
    for (int i = 0; i < MANY; i++) types[i] = TYPE(F32, 2, 3);
    ash_type deep = types[0], odd = types[0], negative = types[0];
    deep.rank = 11;
    odd.dtype = (ash_dtype)99;
    negative.dims[0] = -5;
    const struct {
        const char *function;
        const ash_type *types;
        size_t count;
        ash_custom_options options;
        ash_status status;
    } bad[] = {
        {"none", types, 1, {0}, ASH_ERROR_NOT_FOUND},
        {NULL, types, 1, {0}, ASH_ERROR_INVALID_ARGUMENT},
        {"sort", types, 0, {0}, ASH_ERROR_INVALID_ARGUMENT},
        {"sort", types, MANY, {0}, ASH_ERROR_INVALID_ARGUMENT},
        {"sort", NULL, 1, {0}, ASH_ERROR_INVALID_ARGUMENT},
        {"sort", &deep, 1, {0}, ASH_ERROR_INVALID_ARGUMENT},
        {"sort", &odd, 1, {0}, ASH_ERROR_INVALID_ARGUMENT},
        {"sort", &negative, 1, {0}, ASH_ERROR_INVALID_ARGUMENT},
        {"sort", types, 1, {.scratch = -1}, ASH_ERROR_INVALID_ARGUMENT},
        {"sort", types, 1, {.duration = -1}, ASH_ERROR_INVALID_ARGUMENT},
        {"sort", types, 1, {.chunks = -77}, ASH_ERROR_INVALID_ARGUMENT},
    };
    for (size_t i = 0; i < ASH_COUNT(bad); i++) {
        ash_graph *g = fresh(f);
        ash_value x = INPUT(g, "x", F32, 2, 3), outs[MANY];
        assert_status(
            ash_custom(g, bad[i].function, &x, 1, bad[i].types, bad[i].count, &bad[i].options, outs),
            bad[i].status);
        assert_status(ash_graph_status(g, &diag), bad[i].status);
        for (size_t k = 0; k < bad[i].count; k++) assert_int_equal(outs[k], ASH_NO_VALUE);
        assert_int_equal(ash_graph_node_count(g), 0);
    }
    ash_graph *g = fresh(f);
    ash_value x = INPUT(g, "x", F32, 2, 3), y;
    int64_t list[] = {ASH_F32, 1};
    ash_attr attrs[] = {ASH_ATTR_I(FUNCTION, 0), ASH_ATTR_LIST(RESULTS, list, 2), ASH_ATTR_I(CHUNKS, 1),
                        ASH_ATTR_I(SCRATCH, 0), ASH_ATTR_I(DURATION, 0)};
    assert_status(ash_graph_add(g, ASH_OP_CUSTOM, &x, 1, attrs, 5, &y), ASH_ERROR_INVALID_ARGUMENT);
    g = fresh(f);
    x = INPUT(g, "x", F32, 2, 3);
    list[1] = 0;
    attrs[0].i = 1;
    assert_status(ash_graph_add(g, ASH_OP_CUSTOM, &x, 1, attrs, 5, &y), ASH_ERROR_NOT_FOUND);
    assert_int_equal(y, ASH_NO_VALUE);
}

static void bad_texts(void **state) {
    fixture *f = *state;
    static counted c;
    add_function(f->context, "one", plus_one, &c, true);
    static const char *const texts[] = {
        "graph \"g\" %0: f32[2] = input \"x\" %1: f32[2] = custom(%0) function=\"two\" chunks=1 scratch=0 "
        "duration=0",
        "graph \"g\" %0: f32[2] = input \"x\" %1: f32[2] = custom(%0) function=\"\" chunks=1 scratch=0 "
        "duration=0",
        "graph \"g\" %0: f32[2] = input \"x\" %1 = custom(%0) function=\"one\" chunks=1 scratch=0 "
        "duration=0",
        "graph \"g\" %0: f32[2] = input \"x\" %1: f32[2] = custom(%0) function=\"one\" chunks=1 scratch=0",
        "graph \"g\" %0: f32[2] = input \"x\" %1: f32[2] = custom(%0) function=\"one\" chunks=1 "
        "results=[1] scratch=0 duration=0",
        "graph \"g\" %0: f32[2] = input \"x\" %1: f32[2] = custom(%0) function=one chunks=1 scratch=0 "
        "duration=0",
        "graph \"g\" %0: f32[2] = input \"x\" %1: f32[2] = custom(%0) function=\"one\" chunks=-1 scratch=0 "
        "duration=0",
    };
    for (size_t i = 0; i < ASH_COUNT(texts); i++) {
        ash_graph *parsed = f->g;
        assert_true(ash_graph_parse(f->context, texts[i], strlen(texts[i]), &parsed, &diag) != ASH_OK);
        assert_null(parsed);
        assert_true(diag.file_offset < strlen(texts[i]));
    }
}

/* The evaluator gives a function its operands as they are in memory, and takes its results. */
static void evaluating(void **state) {
    fixture *f = *state;
    static counted c = {.fail_at = 3, .status = ASH_ERROR_DEVICE, .why = "the sensor is off"};
    add_function(f->context, "sort", sort_rows, &c, true);
    ash_dim n = ash_graph_var(f->g, "n", 0, 7);
    ash_value x = INPUT(f->g, "x", F32, n, 3), outs[2];
    ash_type types[2];
    sorted_types(n, 3, types);
    ash_custom_options options = {.chunks = n, .scratch = 12};
    ash_graph_name_next(f->g, "sorting");
    ash_custom(f->g, "sort", &x, 1, types, 2, &options, outs);
    ash_graph_output(f->g, "y", ash_neg(f->g, outs[0]));
    ash_graph_output(f->g, "at", outs[1]);
    assert_ok(ash_graph_status(f->g, &diag));
    const ash_allocator *a = ash_context__allocator(f->context);
    float data[] = {3, 1, 2, -1, -1, -7};
    int64_t rows = 2;
    ash_wide in, got[2];
    assert_ok(ash_wide_alloc(a, ASH_F32, 2, (const int64_t[]){2, 3}, &in, &diag));
    ash_wide_load(&in, data);
    for (int precision = ASH_EVAL_DTYPE; precision <= ASH_EVAL_DOUBLE; precision++) {
        assert_ok(ash_eval_graph(f->g, &in, &rows, (ash_eval_precision)precision, got, &diag));
        static const double y[] = {-1, -2, -3, 7, 1, 1};
        static const int64_t at[] = {1, 2, 0, 2, 0, 1};
        for (int i = 0; i < 6; i++) assert_true(got[0].f[i] == y[i] && got[1].i[i] == at[i]);
        ash_wide_free(a, &got[0]);
        ash_wide_free(a, &got[1]);
    }
    assert_int_equal(c.chunks, 4);
    assert_status(ash_eval_graph(f->g, &in, &rows, ASH_EVAL_DTYPE, got, &diag), ASH_ERROR_DEVICE);
    assert_string_equal(diag.message, "the sensor is off");
    assert_string_equal(diag.node, "sorting");
    ash_wide_free(a, &in);
}

static size_t optimised_nodes(fixture *f, const ash_opt_options *options) {
    ash_graph *better;
    assert_ok(ash_opt__run(f->g, NULL, options, &better, &diag));
    assert_ok(ash_graph_verify(better, &diag));
    size_t nodes = ash_graph_node_count(better);
    ash_graph_destroy(better);
    return nodes;
}

/* Equal calls become one, and calls on constants are made at once, of pure functions alone; what nobody
 * needs is not called at all. */
static void what_passes_do(void **state) {
    fixture *f = *state;
    static counted of[2];
    for (int pure = 0; pure < 2; pure++) {
        char name[] = "f0";
        name[1] = (char)('0' + pure);
        add_function(f->context, name, plus_one, &of[pure], pure);
        ash_graph *g = fresh(f);
        ash_type type = TYPE(F32, 2);
        const float data[] = {1, 2};
        ash_value k = ash_graph_constant(g, &type, data, sizeof data, ASH_DATA_COPY),
                  x = INPUT(g, "x", F32, 2);
        ash_value outs[5];
        ash_custom(g, name, &x, 1, &type, 1, NULL, &outs[0]);
        ash_custom(g, name, &x, 1, &type, 1, NULL, &outs[1]);
        ash_custom(g, name, &k, 1, &type, 1, NULL, &outs[2]);
        ash_custom(g, name, &k, 1, &type, 1, NULL, &outs[3]);
        ash_custom(g, name, &x, 1, &type, 1, NULL, &outs[4]); /* unused */
        static const char *const names[] = {"a", "b", "c", "d"};
        for (int i = 0; i < 4; i++) ash_graph_output(g, names[i], outs[i]);
        assert_ok(ash_graph_status(g, &diag));
        assert_int_equal(optimised_nodes(f, NULL), pure ? 1 : 4);
        assert_int_equal(of[pure].calls > 0, pure);
        fresh(f);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        IR_TEST(registry),        IR_TEST(registry_without_memory),
        IR_TEST(calls_are_nodes), IR_TEST(bad_calls),
        IR_TEST(bad_texts),       IR_TEST(evaluating),
        IR_TEST(what_passes_do),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
