/* SPDX-License-Identifier: MIT */
/* Control flow: what a small file may make of it in memory and time where import lays it out, names of
 * bodies, cancellation, conditions that are computed, and loops that stay loops. */
#include "testing.h"

#include "ashlar/onnx.h"
#include "ashlar/reference.h"
#include "base/base.h"
#include "ir/ir.h"
#include "onnx_bytes.h"

static ash_diag diag;

static ash_context *open_metered(test_memory *m) {
    ash_context_options options = {.allocator = test_memory_allocator(m)};
    ash_context *context;
    *m = (test_memory){0};
    assert_ok(ash_context_create(&options, &context, &diag));
    return context;
}

/* --- messages of any length ----------------------------------------------------------------------- */

typedef struct text {
    uint8_t *at;
    size_t len, cap;
} text;

static void add(text *t, const void *data, size_t len) {
    if (t->len + len > t->cap) {
        t->cap = 2 * (t->len + len);
        t->at = realloc(t->at, t->cap);
        assert_non_null(t->at);
    }
    if (len) memcpy(t->at + t->len, data, len);
    t->len += len;
}

static void add_field(text *t, uint32_t field, const void *data, size_t len) {
    bytes head = {.len = 0};
    put_varint(&head, (uint64_t)field << 3 | 2);
    put_varint(&head, len);
    add(t, head.at, head.len);
    add(t, data, len);
}

static void add_bytes(text *t, uint32_t field, const bytes *b) {
    add_field(t, field, b->at, b->len);
}

static void add_name(text *t, uint32_t field, const char *name) {
    add_field(t, field, name, strlen(name));
}

/* An attribute with a graph. */
static void add_graph(text *node, const char *name, const text *graph) {
    text attr = {0};
    bytes type = {.len = 0};
    add_name(&attr, 1, name);
    add_field(&attr, 6, graph->at, graph->len);
    put_int(&type, 20, 5);
    add(&attr, type.at, type.len);
    add_field(node, 5, attr.at, attr.len);
    free(attr.at);
}

static void add_number(text *graph, const char *name, int dtype, int64_t number) {
    bytes tensor = make_tensor(name, dtype, NULL, 0, &number, dtype == 9 ? 1 : 8);
    add_bytes(graph, 5, &tensor);
}

/* The inputs iteration, condition and state of a loop's body, and its outputs. */
static void add_body_names(text *body) {
    static const char *const ins[] = {"i", "c", "s"}, *const outs[] = {"co", "so"};
    for (size_t k = 0; k < ASH_COUNT(ins); k++) {
        bytes info = make_info(ins[k], NULL, 0);
        add_bytes(body, 11, &info);
    }
    for (size_t k = 0; k < ASH_COUNT(outs); k++) {
        bytes info = make_info(outs[k], NULL, 0);
        add_bytes(body, 12, &info);
    }
    bytes same = make_node(NULL, "Identity", "c", NULL, "co");
    add_bytes(body, 1, &same);
}

/* A node Loop(trips, "", state) -> out with this body. */
static void add_loop(text *graph, const char *trips, const char *state, const char *out, const text *body) {
    text node = {0};
    add_name(&node, 1, trips);
    add_name(&node, 1, "");
    add_name(&node, 1, state);
    add_name(&node, 2, out);
    add_name(&node, 3, "loop");
    add_name(&node, 4, "Loop");
    add_graph(&node, "body", body);
    add_field(graph, 1, node.at, node.len);
    free(node.at);
}

static text model_of(const text *graph) {
    text model = {0};
    bytes head = {.len = 0}, set = {.len = 0};
    put_int(&head, 1, 8);
    put_int(&set, 2, 17);
    put_message(&head, 8, &set);
    add(&model, head.at, head.len);
    add_field(&model, 7, graph->at, graph->len);
    return model;
}

/* y = x after `trips` of the body on x f32[4]; 0: as often as x says, and loops within 2000 times. */
static text looping(int64_t trips, const text *body) {
    static const int64_t four[] = {4};
    text graph = {0};
    bytes x = make_info("x", four, 1), y = make_info("y", NULL, 0),
          often = make_node(NULL, "ArgMax", "x", NULL, "often");
    add_bytes(&graph, 11, &x);
    add_bytes(&graph, 12, &y);
    add_number(&graph, "n", 7, trips ? trips : 2000);
    if (!trips) add_bytes(&graph, 1, &often);
    add_loop(&graph, trips ? "n" : "often", "x", "y", body);
    text model = model_of(&graph);
    free(graph.at);
    return model;
}

/* --- memory and work ------------------------------------------------------------------------------ */

static void test_initializers_are_read_once(void **state) {
    (void)state;
    enum { TRIPS = 16, WEIGHTS = 5000 };
    test_memory m;
    ash_context *context = open_metered(&m);
    text body = {0};
    ash_graph *graph;
    bytes sum = make_node(NULL, "Add", "s", "w7", "so");
    static const int64_t four[] = {4};
    static const float ones[] = {1, 1, 1, 1};
    add_body_names(&body);
    add_bytes(&body, 1, &sum);
    for (int i = 0; i < WEIGHTS; i++) {
        char name[16];
        snprintf(name, sizeof name, "w%d", i);
        bytes w = make_tensor(name, 1, four, 1, ones, sizeof ones);
        add_bytes(&body, 5, &w);
    }
    text model = looping(TRIPS, &body);
    assert_ok(ash_onnx_parse(context, model.at, model.len, NULL, &graph, &diag));
    assert_true(m.most < 16 << 20);
    assert_int_equal(ash_graph_node_count(graph), TRIPS);
    ash_graph_destroy(graph);
    ash_context_destroy(context);
    free(body.at);
    free(model.at);
}

/* Two loops around a node with long attributes, of which one is a constant. */
static void test_attributes_are_read_once(void **state) {
    (void)state;
    enum { TRIPS = 16, NUMBERS = 100000 };
    test_memory m;
    ash_context *context = open_metered(&m);
    text inner = {0}, outer = {0}, node = {0}, attr = {0}, list = {0};
    ash_graph *graph;
    bytes type = {.len = 0}, cut = make_node(NULL, "Neg", "s", NULL, "so");
    for (int i = 0; i < NUMBERS; i++) add(&list, &(uint8_t){(uint8_t)(i & 127)}, 1);
    add_name(&attr, 1, "value_ints");
    add_field(&attr, 8, list.at, list.len);
    put_int(&type, 20, 7);
    add(&attr, type.at, type.len);
    add_name(&node, 2, "k");
    add_name(&node, 4, "Constant");
    add_field(&node, 5, attr.at, attr.len);
    add_body_names(&inner);
    add_field(&inner, 1, node.at, node.len);
    add_bytes(&inner, 1, &cut);
    add_body_names(&outer);
    add_loop(&outer, "n", "s", "so", &inner);
    text model = looping(TRIPS, &outer);
    assert_ok(ash_onnx_parse(context, model.at, model.len, NULL, &graph, &diag));
    assert_true(m.most < 64 << 20);
    assert_int_equal(ash_graph_node_count(graph), TRIPS * TRIPS);
    ash_graph_destroy(graph);
    ash_context_destroy(context);
    free(inner.at), free(outer.at), free(node.at), free(attr.at), free(list.at), free(model.at);
}

/* What a loop makes counts: here the constants of a pad by index. */
static void test_memory_is_bounded(void **state) {
    (void)state;
    enum { MOST = 2 << 20 };
    test_memory m;
    ash_context *context = open_metered(&m);
    ash_onnx_options options = {.max_bytes = MOST};
    text body = {0};
    ash_graph *graph = NULL;
    static const int64_t two[] = {2}, pads[] = {0, 30000};
    bytes pad = make_node("culprit", "Pad", "s", "p", "t"), cut = make_node(NULL, "Slice", "t", "a", "so");
    bytes p = make_tensor("p", 7, two, 1, pads, sizeof pads), type = {.len = 0};
    static const int64_t one[] = {1}, zero = 0, four = 4;
    bytes a = make_tensor("a", 7, one, 1, &zero, 8), b = make_tensor("b", 7, one, 1, &four, 8);
    bytes mode = {.len = 0};
    put_text(&mode, 1, "mode");
    put_text(&mode, 4, "edge");
    put_int(&mode, 20, 3);
    put_message(&pad, 5, &mode);
    put_text(&cut, 1, "b");
    put_message(&type, 1, &a);
    add_body_names(&body);
    add_bytes(&body, 5, &p);
    add_bytes(&body, 5, &a);
    add_bytes(&body, 5, &b);
    add_bytes(&body, 1, &pad);
    add_bytes(&body, 1, &cut);
    text model = looping(16, &body);
    assert_status(ash_onnx_parse(context, model.at, model.len, &options, &graph, &diag), ASH_ERROR_BUDGET);
    assert_non_null(strstr(diag.message, "bytes of graph"));
    assert_true(m.most < 2 * MOST);
    ash_context_destroy(context);
    free(body.at);
    free(model.at);
}

/* Allocation 1, 2, 3, ... fails, until the import succeeds. */
static void test_refused_memory(void **state) {
    (void)state;
    static const int64_t four[] = {4};
    static const float ones[] = {1, 1, 1, 1};
    test_memory m;
    ash_context *context = open_metered(&m);
    text inner = {0}, outer = {0};
    bytes sum = make_node(NULL, "Add", "s", "w", "so"), w = make_tensor("w", 1, four, 1, ones, sizeof ones);
    add_body_names(&inner);
    add_bytes(&inner, 1, &sum);
    add_bytes(&inner, 5, &w);
    add_body_names(&outer);
    add_loop(&outer, "n", "s", "so", &inner);
    text model = looping(3, &outer);
    long long live = m.live;
    ash_graph *graph = NULL;
    for (long k = 1; !graph; k++) {
        m.count = 0;
        m.fail_at = k;
        ash_status status = ash_onnx_parse(context, model.at, model.len, NULL, &graph, &diag);
        m.fail_at = 0;
        assert_true(status == ASH_OK || status == ASH_ERROR_OUT_OF_MEMORY);
        if (status != ASH_OK) assert_int_equal(m.live, live);
    }
    assert_int_equal(ash_graph_node_count(graph), 9);
    ash_graph_destroy(graph);
    ash_context_destroy(context);
    free(inner.at), free(outer.at), free(model.at);
}

/* --- cancelling ----------------------------------------------------------------------------------- */

typedef struct teller {
    long calls, stop_at;
    uint64_t done, total;
    bool well;
} teller;

static bool tell(void *user, ash_stage stage, uint64_t done, uint64_t total) {
    teller *t = user;
    t->well &= stage == ASH_STAGE_IMPORT && done >= t->done && done <= total;
    t->done = done, t->total = total;
    return ++t->calls != t->stop_at;
}

static void test_import_stops_at_every_call(void **state) {
    (void)state;
    test_memory m;
    ash_context *context = open_metered(&m);
    text body = {0};
    bytes sum = make_node(NULL, "Neg", "s", NULL, "so");
    add_body_names(&body);
    add_bytes(&body, 1, &sum);
    text model = looping(16, &body);
    teller t = {.well = true};
    ash_onnx_options options = {.progress = {.report = tell, .user = &t}};
    ash_graph *graph;
    assert_ok(ash_onnx_parse(context, model.at, model.len, &options, &graph, &diag));
    ash_graph_destroy(graph);
    long calls = t.calls;
    long long live = m.live;
    assert_true(calls == 1 + 16 * 2 && t.well && t.total == 1);
    for (long k = 1; k <= calls; k++) {
        t = (teller){.well = true, .stop_at = k};
        assert_status(ash_onnx_parse(context, model.at, model.len, &options, &graph, &diag),
                      ASH_ERROR_CANCELLED);
        assert_null(graph);
        assert_int_equal(t.calls, k);
        assert_int_equal(m.live, live);
    }
    ash_cancel cancel = {0};
    options.progress = (ash_progress){.cancel = &cancel};
    ash_cancel_set(&cancel, true);
    assert_status(ash_onnx_parse(context, model.at, model.len, &options, &graph, &diag),
                  ASH_ERROR_CANCELLED);
    ash_context_destroy(context);
    free(body.at);
    free(model.at);
}

/* --- names ---------------------------------------------------------------------------------------- */

/* The body of a loop names its values as later nodes of the graph around it name theirs. */
static void test_names_of_bodies_hide(void **state) {
    (void)state;
    static const int64_t four[] = {4};
    static const float data[] = {1, 2, 3, 4};
    test_memory m;
    ash_context *context = open_metered(&m);
    text body = {0}, graph_ = {0};
    bytes x = make_info("x", four, 1), y = make_info("y", NULL, 0);
    bytes sum = make_node(NULL, "Add", "s", "s", "h"), out = make_node(NULL, "Identity", "h", NULL, "so");
    bytes later = make_node(NULL, "Neg", "r", NULL, "h"), last = make_node(NULL, "Abs", "h", NULL, "s"),
          end = make_node(NULL, "Add", "h", "s", "y");
    add_body_names(&body);
    add_bytes(&body, 1, &sum);
    add_bytes(&body, 1, &out);
    add_bytes(&graph_, 11, &x);
    add_bytes(&graph_, 12, &y);
    add_number(&graph_, "n", 7, 3);
    add_loop(&graph_, "n", "x", "r", &body);
    add_bytes(&graph_, 1, &later);
    add_bytes(&graph_, 1, &last);
    add_bytes(&graph_, 1, &end);
    text model = model_of(&graph_);
    ash_graph *graph;
    assert_ok(ash_onnx_parse(context, model.at, model.len, NULL, &graph, &diag));
    ash_reference *run;
    const void *ins[] = {data};
    assert_ok(ash_reference_run(graph, ins, 1, NULL, NULL, 0, &run, &diag));
    size_t count;
    const double *got = ash_reference_output(run, 0, NULL, &count);
    for (size_t i = 0; i < 4; i++) assert_true(got[i] == 0); /* -8 x + |-8 x| */
    ash_reference_destroy(run);
    ash_graph_destroy(graph);
    ash_context_destroy(context);
    free(body.at), free(graph_.at), free(model.at);
}

/* --- conditions ----------------------------------------------------------------------------------- */

/* If on the largest element of an input f32 [dims...], through Cast to bool: the input, or exp of it. The
 * condition is computed when the graph runs, and both ways are taken. `second`, in place of Exp, may be a
 * product that these dims do not allow: what takes it fails. Or a maximum, whose size is another. Or, of
 * one element, a scalar: the result is one then, whichever is taken; of more, what is of another rank, and
 * fails where it is taken. Or a sequence in either, which wants a condition that is known, as does a result
 * of another type. */
static void check_condition(ash_context *context, const int64_t *dims, size_t rank, const char *second) {
    bool unfit = !strcmp(second, "MatMul"), ranks = !strcmp(second, "Squeeze") && rank > 1,
         scalar = !strcmp(second, "Squeeze") && !ranks, smaller = scalar || !strcmp(second, "ReduceMax"),
         list = !strcmp(second, "SequenceEmpty");
    const char *refusal = list ? "must be known at import"
                          : !strcmp(second, "IsNaN")
                              ? "result 0 is f32[2, 3] in one branch and bool[2, 3] in the other"
                              : NULL;
    text graph_ = {0}, branch = {0}, other = {0}, node = {0};
    bytes x = make_info("flag", dims, rank), y = make_info("y", NULL, 0), o = make_info("o", NULL, 0);
    bytes same = make_node(NULL, list ? second : "Identity", list ? NULL : "flag", NULL, "o"),
          sum = {.len = 0}, cast = {.len = 0}, to = {.len = 0},
          grown = make_node("unfit", second,
                            list    ? NULL
                            : unfit ? "e"
                                    : "flag",
                            unfit ? "e" : NULL, "o"),
          before = make_node(NULL, "Exp", "flag", NULL, "e");
    if (unfit) add_bytes(&other, 1, &before);
    add_bytes(&other, 1, &grown);
    add_bytes(&other, 12, &o);
    add_bytes(&branch, 1, &same);
    add_bytes(&branch, 12, &o);
    put_text(&sum, 1, "flag");
    put_text(&sum, 2, "sum");
    put_text(&sum, 4, "ReduceMax");
    put_text(&cast, 1, "sum");
    put_text(&cast, 2, "c");
    put_text(&cast, 4, "Cast");
    put_text(&to, 1, "to");
    put_int(&to, 3, 9);
    put_int(&to, 20, 2);
    put_message(&cast, 5, &to);
    add_bytes(&graph_, 11, &x);
    add_bytes(&graph_, 12, &y);
    add_bytes(&graph_, 1, &sum);
    add_bytes(&graph_, 1, &cast);
    add_name(&node, 1, "c");
    add_name(&node, 2, "y");
    add_name(&node, 3, "culprit");
    add_name(&node, 4, "If");
    add_graph(&node, "then_branch", &branch);
    add_graph(&node, "else_branch", &other);
    add_field(&graph_, 1, node.at, node.len);
    text model = model_of(&graph_);
    ash_graph *graph = NULL;
    size_t count = 1, got;
    if (refusal) { /* no size says which */
        assert_status(ash_onnx_parse(context, model.at, model.len, NULL, &graph, &diag),
                      ASH_ERROR_UNSUPPORTED);
        assert_non_null(strstr(diag.message, refusal));
        assert_string_equal(diag.node, "culprit");
        free(graph_.at), free(branch.at), free(other.at), free(node.at), free(model.at);
        return;
    }
    assert_ok(ash_onnx_parse(context, model.at, model.len, NULL, &graph, &diag));
    for (size_t d = 0; d < rank; d++) count *= (size_t)dims[d];
    float *data = calloc(count, sizeof *data);
    for (int value = 0; value < 3; value++) {
        ash_reference *run;
        const void *ins[] = {data};
        data[count / 2] = (float)value;
        if ((unfit || ranks) && !value) {
            assert_status(ash_reference_run(graph, ins, 1, NULL, NULL, 0, &run, &diag), ASH_ERROR_SHAPE);
            assert_non_null(strstr(diag.message, "else_branch is taken"));
            assert_non_null(strstr(diag.message, unfit ? "unfit (MatMul"
                                                       : "result 0 is f32[2, 1, 3] in one branch and "
                                                         "f32[2, 3] in the other"));
            assert_string_equal(diag.node, "culprit");
            continue;
        }
        assert_ok(ash_reference_run(graph, ins, 1, NULL, NULL, 0, &run, &diag));
        ash_type type;
        const double *result = ash_reference_output(run, 0, &type, &got);
        assert_int_equal(got, smaller && !value ? 1 : count);
        assert_int_equal(type.rank, scalar ? 0 : rank);
        for (size_t i = 0; i < got; i++) assert_true(result[i] == (value || smaller ? (double)data[i] : 1));
        ash_reference_destroy(run);
    }
    ash_graph_destroy(graph);
    free(data), free(graph_.at), free(branch.at), free(other.at), free(node.at), free(model.at);
}

static void test_conditions(void **state) {
    (void)state;
    static const int64_t one[] = {1}, image[] = {3, 64, 64}, matrix[] = {2, 3}, column[] = {2, 1, 3};
    test_memory m;
    ash_context *context = open_metered(&m);
    check_condition(context, one, 1, "Exp");
    check_condition(context, one, 1, "Squeeze");
    check_condition(context, column, 3, "Squeeze");
    check_condition(context, image, 3, "Exp");
    check_condition(context, matrix, 2, "MatMul");
    check_condition(context, matrix, 2, "ReduceMax");
    check_condition(context, matrix, 2, "SequenceEmpty");
    check_condition(context, matrix, 2, "IsNaN");
    ash_context_destroy(context);
}

/* A flag's element where it is not 0, without the axis that says how many there are: the model says one. */
static void test_one_of_a_computed_number(void **state) {
    (void)state;
    static const int64_t one[] = {1};
    test_memory m;
    ash_context *context = open_metered(&m);
    text graph_ = {0};
    bytes x = make_info("x", one, 1), y = make_info("y", NULL, 0), to = {.len = 0},
          flag = make_node(NULL, "Cast", "x", NULL, "flag"),
          found = make_node(NULL, "Compress", "x", "flag", "found"),
          axis = make_tensor("axis", 7, one, 1, &(int64_t){0}, 8),
          last = make_node(NULL, "Squeeze", "found", "axis", "y");
    put_text(&to, 1, "to");
    put_int(&to, 3, 9);
    put_int(&to, 20, 2);
    put_message(&flag, 5, &to);
    add_bytes(&graph_, 11, &x);
    add_bytes(&graph_, 12, &y);
    add_bytes(&graph_, 5, &axis);
    add_bytes(&graph_, 1, &flag);
    add_bytes(&graph_, 1, &found);
    add_bytes(&graph_, 1, &last);
    text model = model_of(&graph_);
    ash_graph *graph = NULL;
    assert_ok(ash_onnx_parse(context, model.at, model.len, NULL, &graph, &diag));
    for (int value = 0; value < 3; value++) {
        const float data = (float)value;
        const void *ins[] = {&data};
        ash_reference *run;
        ash_type type;
        size_t count;
        assert_ok(ash_reference_run(graph, ins, 1, NULL, NULL, 0, &run, &diag));
        const double *result = ash_reference_output(run, 0, &type, &count);
        assert_int_equal(type.rank, 0);
        assert_true(*result == value); /* what is not there is 0 */
        ash_reference_destroy(run);
    }
    ash_graph_destroy(graph);
    ash_context_destroy(context);
    free(graph_.at), free(model.at);
}

/* What is long is a loop of the graph: its size does not depend on the number of iterations. */
static void test_long_loops_stay_small(void **state) {
    (void)state;
    test_memory m;
    ash_context *context = open_metered(&m);
    text body = {0};
    bytes change = make_node(NULL, "Neg", "s", NULL, "so");
    add_body_names(&body);
    add_bytes(&body, 1, &change);
    for (int64_t trips = 17; trips <= 1000003; trips += 999986) {
        text model = looping(trips, &body);
        ash_graph *graph;
        ash_reference *run;
        static const float data[] = {1, 2, 3, 4};
        const void *ins[] = {data};
        size_t count;
        assert_ok(ash_onnx_parse(context, model.at, model.len, NULL, &graph, &diag));
        assert_int_equal(ash_graph_node_count(graph), 4); /* two arguments, the operator, the loop */
        if (trips < 100) {
            assert_ok(ash_reference_run(graph, ins, 1, NULL, NULL, 0, &run, &diag));
            assert_true(ash_reference_output(run, 0, NULL, &count)[3] == -4);
            ash_reference_destroy(run);
        }
        ash_graph_destroy(graph);
        free(model.at);
    }
    ash_context_destroy(context);
    free(body.at);
}

/* x = concat(x, x), so often: it is as long as few iterations make it, or as the caller says. */
static ash_status double_often(ash_context *context, int64_t trips, int64_t most, size_t *count) {
    static const float data[] = {1, 2, 3, 4};
    const ash_onnx_options options = {
        .size = sizeof options, .vars = (ash_onnx_var[]){{"y.0", 0, most}}, .n_vars = most != 0};
    const void *ins[] = {data};
    text body = {0};
    bytes twice = make_node(NULL, "Concat", "s", "s", "so"), attr = {.len = 0};
    ash_graph *graph;
    ash_reference *run = NULL;
    put_text(&attr, 1, "axis");
    put_int(&attr, 3, 0);
    put_int(&attr, 20, 2);
    put_message(&twice, 5, &attr);
    add_body_names(&body);
    add_bytes(&body, 1, &twice);
    text model = looping(trips, &body);
    assert_ok(ash_onnx_parse(context, model.at, model.len, &options, &graph, &diag));
    assert_true(ash_graph_node_count(graph) < 60);
    ash_status status = ash_reference_run(graph, ins, 1, NULL, NULL, 0, &run, &diag);
    if (status == ASH_OK) assert_true(ash_reference_output(run, 0, NULL, count)[*count - 1] == 4);
    ash_reference_destroy(run);
    ash_graph_destroy(graph);
    free(model.at);
    free(body.at);
    return status;
}

static void test_states_are_bounded(void **state) {
    (void)state;
    test_memory m;
    ash_context *context = open_metered(&m);
    size_t count = 0;
    assert_ok(double_often(context, 17, 0, &count));
    assert_int_equal(count, 4 << 17);
    assert_status(double_often(context, 17, 1 << 16, &count), ASH_ERROR_BUDGET);
    assert_non_null(strstr(diag.message, "131072 elements, whose size is computed, and bounded by 65536"));
    assert_status(double_often(context, 1000003, 0, &count), ASH_ERROR_BUDGET);
    assert_non_null(strstr(diag.message, "8192 elements, whose size is computed, and bounded by 4096: give "
                                         "the dim 'y.0' a larger bound"));
    assert_string_equal(diag.node, "loop");
    ash_context_destroy(context);
}

/* What no loop can have says so, and not what was tried last; depth, too. */
static void test_refused_loops_say_why(void **state) {
    (void)state;
    static const char *const states[] = {"state 0 has another type after the second iteration",
                                         "graphs nest more than 8 deep"};
    test_memory m;
    ash_context *context = open_metered(&m);
    for (int deep = 0; deep < 2; deep++) {
        text body = {0};
        bytes change = make_node(NULL, deep ? "Neg" : "Unsqueeze", "s", deep ? NULL : "first", "so");
        bytes first = make_tensor("first", 7, (const int64_t[]){1}, 1, &(int64_t){0}, 8);
        ash_graph *graph;
        add_body_names(&body);
        add_bytes(&body, 5, &first);
        add_bytes(&body, 1, &change);
        for (int d = 0; deep && d < 8; d++) {
            text outer = {0};
            add_body_names(&outer);
            add_loop(&outer, "n", "s", "so", &body);
            free(body.at);
            body = outer;
        }
        text model = looping(deep ? 0 : 2000, &body);
        assert_status(ash_onnx_parse(context, model.at, model.len, NULL, &graph, &diag),
                      ASH_ERROR_UNSUPPORTED);
        if (!strstr(diag.message, states[deep])) fail_msg("%s", diag.message);
        free(model.at);
        free(body.at);
    }
    ash_context_destroy(context);
}

/* A condition that compares a count says how many iterations there can be, which is the room of what grows,
 * also where it is part of another one; none at all stack nothing. */
static void test_condition_limits_loop(void **state) {
    (void)state;
    static const char path[] = ASH_SOURCE_DIR "/tests/data/onnx/scripted/model.onnx";
    static const struct {
        size_t output;
        unsigned axis;
        int64_t most;
    } limits[] = {{2, 1, 9}, {5, 0, 6}, {7, 1, 4}, {9, 1, 4}};
    static const float x[4] = {1, 2, 3, 4}, far = 9;
    const ash_onnx_var vars[] = {{"b", 1, 2}, {"s", 1, 7}, {"b", 1, 1}, {"s", 1, 1}};
    test_memory m;
    ash_context *context = open_metered(&m);
    for (unsigned one = 0; one < 2; one++) {
        const ash_onnx_options options = {.size = sizeof options, .vars = vars + 2 * one, .n_vars = 2};
        ash_graph *graph;
        assert_ok(ash_onnx_read(context, path, &options, &graph, &diag));
        for (size_t i = 0; i < ASH_COUNT(limits) && !one; i++) {
            const ash_type *type = ash_graph__type(graph, graph->outputs.at[limits[i].output].value);
            int64_t least, most;
            ash_dims_bounds(graph->dims, type->dims[limits[i].axis], &least, &most);
            assert_int_equal(most, limits[i].most);
        }
        if (one) {
            ash_reference *run;
            size_t count;
            assert_ok(ash_reference_run(graph, (const void *[]){x, &far}, 2, NULL, NULL, 0, &run, &diag));
            const double *steps = ash_reference_output(run, 3, NULL, &count);
            assert_true(*steps == 1);
            ash_reference_output(run, 5, NULL, &count);
            assert_int_equal(count, 0);
            ash_reference_destroy(run);
        }
        ash_graph_destroy(graph);
    }
    ash_context_destroy(context);
}

/* A size that a range settles has the bound that the caller gives it: what exceeds it is no result. */
static void test_ranges_are_bounded(void **state) {
    (void)state;
    static const float durations[][2] = {{1, 4}, {3, 17}, {3, 18}}, letters[8] = {1, 2, 3, 4, 5, 6, 7, 8};
    static const char path[] = ASH_SOURCE_DIR "/tests/data/onnx/speech/model.onnx";
    ash_onnx_var vars[] = {{"n", 2, 2}, {"frames.0", 0, 20}};
    ash_onnx_options options = {.size = sizeof options, .vars = vars, .n_vars = 2};
    const void *ins[] = {NULL, letters};
    test_memory m;
    ash_context *context = open_metered(&m);
    ash_reference *run;
    ash_graph *graph;
    size_t count;
    assert_ok(ash_onnx_read(context, path, &options, &graph, &diag));
    for (size_t i = 0; i < ASH_COUNT(durations); i++) {
        ins[0] = durations[i];
        if (i == 2) {
            assert_status(ash_reference_run(graph, ins, 2, NULL, NULL, 0, &run, &diag), ASH_ERROR_BUDGET);
            assert_string_equal(diag.node, "frames");
            assert_non_null(strstr(diag.message, "21 elements, whose size is computed, and bounded by 20"));
            assert_non_null(strstr(diag.message, "'frames.0'"));
            continue;
        }
        assert_ok(ash_reference_run(graph, ins, 2, NULL, NULL, 0, &run, &diag));
        ash_reference_output(run, 1, NULL, &count);
        assert_int_equal(count, 2 * (size_t)(durations[i][0] + durations[i][1]));
        ash_reference_destroy(run);
    }
    ash_graph_destroy(graph);
    vars[1].name = "frame.0";
    assert_status(ash_onnx_read(context, path, &options, &graph, &diag), ASH_ERROR_NOT_FOUND);
    options.n_vars = 2, vars[0].name = "frames.0", vars[1].name = "ends.0"; /* open, with such a name */
    assert_status(ash_onnx_read(context, path, &options, &graph, &diag), ASH_ERROR_NOT_FOUND);
    options.n_vars = 1;
    assert_ok(ash_onnx_read(context, path, &options, &graph, &diag));
    ash_graph_destroy(graph);
    ash_context_destroy(context);
}

/* Sizes that a model makes equal: an execution in which they are not is no result. */
static void test_computed_sizes_are_held(void **state) {
    (void)state;
    static const char path[] = ASH_SOURCE_DIR "/tests/data/onnx/computed/model.onnx";
    static const float letters[8] = {1, 2, 3, 4, 5, 6, 7, 8}, fits[] = {20, 40}, exceeds[] = {20, 41},
                       image[40];
    const ash_onnx_options options = {
        .size = sizeof options, .vars = (ash_onnx_var[]){{"n", 2, 2}, {"frames.0", 0, 100}}, .n_vars = 2};
    const void *ins[] = {fits, letters, image};
    test_memory m;
    ash_context *context = open_metered(&m);
    ash_reference *run;
    ash_graph *graph;
    assert_ok(ash_onnx_read(context, path, &options, &graph, &diag));
    assert_ok(ash_reference_run(graph, ins, 3, NULL, NULL, 0, &run, &diag));
    ash_reference_destroy(run);
    ins[0] = exceeds;
    assert_status(ash_reference_run(graph, ins, 3, NULL, NULL, 0, &run, &diag), ASH_ERROR_SHAPE);
    ash_graph_destroy(graph);
    ash_context_destroy(context);
}

/* y = ConstantOfShape(sizes) of an input of so many sizes. */
static bytes filled_by_input(int64_t sizes) {
    bytes graph = {.len = 0}, shape = {.len = 0}, dim = {.len = 0},
          node = make_node("fill", "ConstantOfShape", "sizes", NULL, "y"), y = make_info("y", &sizes, 0);
    put_int(&dim, 1, sizes);
    put_message(&shape, 1, &dim);
    bytes info = typed_info("sizes", ONNX_I64, &shape);
    put_message(&graph, 1, &node);
    put_message(&graph, 11, &info);
    put_message(&graph, 12, &y);
    return make_model(&graph, 13);
}

static void fills(ash_context *context, int64_t sizes, const ash_onnx_options *options) {
    static const int64_t some[] = {3, 2, 5};
    const bytes model = filled_by_input(sizes);
    const void *ins[] = {some};
    ash_graph *graph;
    ash_reference *run;
    assert_ok(ash_onnx_parse(context, model.at, model.len, options, &graph, &diag));
    assert_int_equal(ash_graph_type(graph, ash_graph_output_at(graph, 0, NULL))->rank, sizes);
    assert_ok(ash_reference_run(graph, ins, 1, NULL, NULL, 0, &run, &diag));
    ash_reference_destroy(run);
    ash_graph_destroy(graph);
}

/* Sizes that an input says need not be bound, unless their limits together are too many elements. */
static void test_sizes_of_inputs(void **state) {
    (void)state;
    const ash_onnx_options bounded = {.size = sizeof bounded,
                                      .vars = (ash_onnx_var[]){{"y.0", 0, 8}, {"y.1", 0, 8}, {"y.2", 0, 8}},
                                      .n_vars = 3};
    const bytes model = filled_by_input(3);
    test_memory m;
    ash_context *context = open_metered(&m);
    ash_graph *graph;
    fills(context, 1, NULL);
    fills(context, 2, NULL);
    assert_status(ash_onnx_parse(context, model.at, model.len, NULL, &graph, &diag), ASH_ERROR_UNSUPPORTED);
    assert_non_null(strstr(diag.message, "bound the dims 'y.0'"));
    fills(context, 3, &bounded);
    ash_context_destroy(context);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sizes_of_inputs),          cmocka_unit_test(test_initializers_are_read_once),
        cmocka_unit_test(test_attributes_are_read_once), cmocka_unit_test(test_refused_memory),
        cmocka_unit_test(test_memory_is_bounded),        cmocka_unit_test(test_import_stops_at_every_call),
        cmocka_unit_test(test_names_of_bodies_hide),     cmocka_unit_test(test_conditions),
        cmocka_unit_test(test_one_of_a_computed_number), cmocka_unit_test(test_long_loops_stay_small),
        cmocka_unit_test(test_states_are_bounded),       cmocka_unit_test(test_refused_loops_say_why),
        cmocka_unit_test(test_ranges_are_bounded),       cmocka_unit_test(test_computed_sizes_are_held),
        cmocka_unit_test(test_condition_limits_loop),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
