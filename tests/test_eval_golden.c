/* Every operator against values that numpy and exact arithmetic gave (tools/eval_golden.py). */
#include "golden.h"

static const char *const files[] = {"eval_elementwise.txt", "eval_movement.txt", "eval_reduce.txt",
                                    "eval_contract.txt", "eval_index.txt"};

/* Evaluates the case's node alone, with results allocated as large as expected and filled with a pattern.
 */
static void run_node(golden_case *c, ash_eval_precision precision) {
    ash_diag diag;
    ash_graph graph = {.allocator = &ash_allocator__libc};
    ash_value ins[GOLDEN_TENSORS] = {0, 1, 2, 3};
    ash_node node = {.op = c->op,
                     .n_ins = (uint16_t)c->n_ins,
                     .n_attrs = (uint16_t)c->n_attrs,
                     .ins = ins,
                     .attrs = c->attrs,
                     .out = (ash_value)c->n_ins};
    ash_wide outs[GOLDEN_TENSORS];
    assert_int_equal(c->n_outs, ash_op_infos[c->op].outs);
    for (size_t i = 0; i < c->n_outs; i++) {
        const ash_wide *want = &c->outs[i];
        assert_ok(
            ash_wide_alloc(&ash_allocator__libc, want->dtype, want->rank, want->dims, &outs[i], &diag));
        memset(outs[i].f, 0xa5, (size_t)outs[i].count * sizeof *outs[i].f);
    }
    assert_ok(ash_eval_node(&graph, &node, NULL, c->ins, outs, precision, &diag));
    for (size_t i = 0; i < c->n_outs; i++) {
        golden_check(c, i, &outs[i]);
        ash_wide_free(&ash_allocator__libc, &outs[i]);
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
        if (!seen[op]) fail_msg("no case for %s", ash_op_name((ash_op)op));
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

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_nodes), cmocka_unit_test(test_nodes_double)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
