/* SPDX-License-Identifier: MIT */
/* Every operator against values that numpy and exact arithmetic gave (tools/eval_golden.py). */
#include "ashlar/graph.h"
#include "golden.h"

static const char *const files[] = {"eval_elementwise.txt", "eval_movement.txt", "eval_reduce.txt",
                                    "eval_contract.txt", "eval_index.txt"};

enum { GUARD = 16 };

/* Room for a result as large as expected, filled with a pattern, and guards after it. */
static ash_wide guarded(const ash_wide *want) {
    ash_wide t = *want;
    size_t bytes = ((size_t)want->count + GUARD) * sizeof *t.f;
    t.f = malloc(bytes);
    assert_non_null(t.f);
    memset(t.f, 0xa5, bytes);
    return t;
}

static void check_guards(const golden_case *c, const ash_wide *t) {
    const unsigned char *bytes = (const unsigned char *)(t->f + t->count);
    for (size_t i = 0; i < GUARD * sizeof *t->f; i++)
        if (bytes[i] != 0xa5) fail_msg("%s: written past the end", c->name);
}

/* Evaluates the case's node alone. */
static void run_node(const golden_case *c, ash_eval_precision precision) {
    ash_diag diag;
    ash_graph graph = {.allocator = &ash_allocator__libc};
    ash_node node = {.op = c->op,
                     .n_ins = (uint16_t)c->n_ins,
                     .n_attrs = (uint16_t)c->n_attrs,
                     .n_outs = (uint16_t)c->n_outs,
                     .ins = (const ash_value[]){0, 1, 2, 3},
                     .attrs = c->attrs,
                     .out = (ash_value)c->n_ins};
    ash_wide outs[GOLDEN_TENSORS];
    assert_int_equal(c->n_outs, ash_op__out_count(c->op, c->attrs, c->n_attrs));
    for (size_t i = 0; i < c->n_outs; i++) outs[i] = guarded(&c->outs[i]);
    assert_ok(ash_eval_node(&graph, &node, NULL, c->ins, outs, precision, &diag));
    for (size_t i = 0; i < c->n_outs; i++) {
        golden_check(c, i, &outs[i]);
        check_guards(c, &outs[i]);
        free(outs[i].f);
    }
}

static void test_nodes(void **state) {
    (void)state;
    size_t cases = 0, seen[ASH_OP_COUNT] = {0};
    for (size_t f = 0; f < ASH_COUNT(files); f++) {
        golden_file file = golden_open(files[f]);
        for (golden_case c; golden_next(&file, &c); golden_free(&c), cases++) {
            run_node(&c, ASH_EVAL_DTYPE);
            seen[c.op]++;
        }
        golden_close(&file);
    }
    for (int op = 0; op < ASH_OP_COUNT; op++)
        if (!seen[op] && op != ASH_OP_CUSTOM && op != ASH_OP_SETTLE && op != ASH_OP_ARGUMENT &&
            op != ASH_OP_LOOP && op != ASH_OP_STACK) /* test_function, test_ir_settled, test_loop */
            fail_msg("no case for %s", ash_op_name((ash_op)op));
    print_message("%zu cases, %d operators\n", cases, (int)ASH_OP_COUNT);
}

/* The f64 and integer cases hold in double precision too: what is not narrow floating point is rounded
 * either way. */
static void test_nodes_double(void **state) {
    (void)state;
    for (size_t f = 0; f < ASH_COUNT(files); f++) {
        golden_file file = golden_open(files[f]);
        for (golden_case c; golden_next(&file, &c); golden_free(&c)) {
            bool narrow = false;
            for (size_t i = 0; i < c.n_outs; i++)
                narrow |= ash_dtype_is_float(c.outs[i].dtype) && c.outs[i].dtype != ASH_F64;
            if (!narrow) run_node(&c, ASH_EVAL_DOUBLE);
        }
        golden_close(&file);
    }
}

static ash_type type_of(const ash_wide *t) {
    ash_type type = {.dtype = t->dtype, .rank = t->rank};
    memcpy(type.dims, t->dims, sizeof type.dims);
    return type;
}

/* An operand as a constant of the graph, through the bytes of its dtype. */
static ash_value add_constant(ash_graph *g, const ash_wide *t) {
    ash_type type = type_of(t);
    size_t size = (size_t)t->count * ash_dtype_size(t->dtype);
    void *bytes = malloc(size + 1);
    assert_non_null(bytes);
    ash_wide_store(t, bytes);
    ash_value value = ash_graph_constant(g, &type, bytes, size, ASH_DATA_COPY);
    free(bytes);
    return value;
}

/* The case as a graph: shapes come from shape inference, the first operand is an input, the others are
 * constants. */
static void run_graph(ash_context *context, const golden_case *c) {
    ash_diag diag;
    ash_graph *g;
    assert_ok(ash_graph_create(context, c->name, &g, &diag));
    ash_value ins[GOLDEN_TENSORS], outs[GOLDEN_TENSORS];
    for (size_t i = 0; i < c->n_ins; i++) {
        ash_type type = type_of(&c->ins[i]);
        ins[i] = i ? add_constant(g, &c->ins[i]) : ash_graph_input(g, "x", &type);
    }
    g->internal = true; /* in any form of ops.def */
    ash_graph_add(g, c->op, ins, c->n_ins, c->attrs, c->n_attrs, outs);
    static const char *const names[GOLDEN_TENSORS] = {"first", "second", "third", "fourth"};
    for (size_t i = 0; i < c->n_outs; i++) ash_graph_output(g, names[i], outs[i]);
    if (ash_graph_status(g, &diag) != ASH_OK) fail_msg("%s: %s", c->name, diag.message);
    ash_wide results[GOLDEN_TENSORS];
    assert_ok(ash_eval_graph(g, c->ins, NULL, ASH_EVAL_DTYPE, results, &diag));
    for (size_t i = 0; i < c->n_outs; i++) {
        golden_check(c, i, &results[i]);
        ash_wide_free(g->allocator, &results[i]);
    }
    ash_graph_destroy(g);
}

static void test_graphs(void **state) {
    (void)state;
    ash_diag diag;
    test_memory memory = {0};
    ash_context_options options = {.allocator = test_memory_allocator(&memory), .threads = 1};
    ash_context *context;
    assert_ok(ash_context_create(&options, &context, &diag));
    for (size_t f = 0; f < ASH_COUNT(files); f++) {
        golden_file file = golden_open(files[f]);
        for (golden_case c; golden_next(&file, &c); golden_free(&c)) run_graph(context, &c);
        golden_close(&file);
    }
    ash_context_destroy(context);
    assert_int_equal(memory.live, 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_nodes),
        cmocka_unit_test(test_nodes_double),
        cmocka_unit_test(test_graphs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
