/* SPDX-License-Identifier: MIT */
/* Variables that nodes settle: the order that they impose on a graph, what is known of them, their text,
 * and what the reference evaluator makes of them. */
#include "ir_fixture.h"

#include <time.h>

#include "ashlar/reference.h"
#include "opt/opt.h"

static ash_diag diag;

static void assert_refused(fixture *f, const char *why) {
    assert_int_not_equal(ash_graph_status(f->g, &diag), ASH_OK);
    if (!strstr(diag.message, why)) fail_msg("'%s' does not say '%s'", diag.message, why);
}

/* The elements of x above 0, as many as there are. */
static ash_value positive(ash_graph *g, ash_value x, const char *name, ash_dim *n) {
    if (x == ASH_NO_VALUE) return x;
    ash_type type = *ash_graph_type(g, x);
    ash_value count, zero = ash_scalar(g, ASH_F32, 0);
    ash_value at = ash_nonzero(g, ash_lt(g, zero, x), &count);
    *n = ash_settle(g, name, count, type.dims[0]);
    ash_dim none = 0;
    return ash_gather(g, x, ash_slice(g, at, &none, NULL, n), 0);
}

static void they_are_settled_before_they_are_used(void **state) {
    fixture *f = *state;
    ash_value x = INPUT(f->g, "x", F32, 8), count = add_input(f->g, "count", SCALAR(I64));
    ash_dim n = ash_graph_settled_var(f->g, "n", 8), none = 0;
    assert_ok(ash_graph_status(f->g, &diag));
    ash_slice(f->g, x, &none, NULL, &n);
    assert_refused(f, "variable n is used before a node settles it");

    x = INPUT(fresh(f), "x", F32, 8);
    n = ash_graph_settled_var(f->g, "n", 8);
    INPUT(f->g, "y", F32, n);
    assert_refused(f, "variable n is settled by a node");

    count = add_input(fresh(f), "count", SCALAR(I64));
    n = ash_graph_settled_var(f->g, "n", 8);
    const ash_attr attr = ASH_ATTR_I(N, n);
    ash_value out;
    assert_ok(ash_graph_add(f->g, ASH_OP_SETTLE, &count, 1, &attr, 1, &out));
    assert_int_equal(ash_graph__settler(f->g, 0), out);
    ash_graph_add(f->g, ASH_OP_SETTLE, &count, 1, &attr, 1, &out);
    assert_refused(f, "variable n is settled by another node already");

    count = add_input(fresh(f), "count", SCALAR(I64));
    ash_dim free_one = ash_graph_var(f->g, "n", 1, 8);
    const ash_attr wrong[] = {ASH_ATTR_I(N, free_one), ASH_ATTR_I(N, 8)};
    for (int i = 0; i < 2; i++) {
        ash_graph_add(f->g, ASH_OP_SETTLE, &count, 1, &wrong[i], 1, &out);
        assert_refused(f, "no variable that a node can settle");
        if (i == 0) count = add_input(fresh(f), "count", SCALAR(I64));
    }

    fresh(f);
    ash_graph_settled_var(f->g, "n", 8);
    ash_graph_var(f->g, "n", 0, 8);
    assert_refused(f, "variable n is there already");

    count = INPUT(fresh(f), "count", I64, 1);
    ash_settle(f->g, "n", count, 8);
    assert_refused(f, "i64 scalar");
}

/* A defect that building refuses is one of the verifier's as well. */
static void the_verifier_knows_them(void **state) {
    fixture *f = *state;
    ash_dim n;
    ash_graph_output(f->g, "y", positive(f->g, INPUT(f->g, "x", F32, 8), "n", &n));
    assert_ok(ash_graph_verify(f->g, &diag));
    ash_value settler = f->g->settlers.at[0];
    f->g->settlers.at[0] = ASH_NO_VALUE;
    assert_status(ash_graph_verify(f->g, &diag), ASH_ERROR_INTERNAL);
    f->g->settlers.at[0] = settler + 1;
    assert_status(ash_graph_verify(f->g, &diag), ASH_ERROR_INTERNAL);
    f->g->settlers.at[0] = settler;
    assert_ok(ash_graph_verify(f->g, &diag));
}

/* What is shown of dims: n <= limit, also through what is computed from it. */
static void limits_are_known(void **state) {
    fixture *f = *state;
    ash_graph *g = f->g;
    ash_dim batch = ash_graph_var(g, "batch", 1, 16), ten = ash_graph_dim_mul(g, batch, 10), n, few,
            none = 0;
    ash_value x = INPUT(g, "x", F32, ten), y = positive(g, x, "n", &n);
    int64_t least, most;
    ash_graph_dim_bounds(g, n, &least, &most);
    assert_true(least == 0 && most == 160);
    assert_int_equal(ash_graph_dim_max(g, ten, n), ten);
    assert_int_equal(ash_graph_dim_min(g, ten, n), n);
    ash_graph_dim_bounds(g, ash_graph_dim_sub(g, ten, n), &least, &most);
    assert_true(least == 0 && most == 160);
    few = ash_graph_dim_min(g, n, 3);
    ash_slice(g, y, &none, NULL, &few); /* refused unless few <= n is seen */
    ash_topk(g, x, 0, n, true, NULL);
    ash_slice(g, x, &none, NULL, &n);
    positive(g, y, "m", &few); /* its limit is n, whose own is 10 batch */
    ash_slice(g, x, &none, NULL, &few);
    assert_ok(ash_graph_status(g, &diag));
    ash_dim more = ash_graph_dim_add(g, n, 1);
    ash_slice(g, x, &none, NULL, &more);
    assert_int_equal(ash_graph_status(g, &diag), ASH_ERROR_SHAPE);
}

static void they_have_a_text(void **state) {
    fixture *f = *state;
    ash_dim batch = ash_graph_var(f->g, "batch", 1, 16), n, m;
    ash_value x = INPUT(f->g, "x", F32, ash_graph_dim_mul(f->g, batch, 10));
    ash_graph_output(f->g, "y", positive(f->g, positive(f->g, x, "n", &n), "m m", &m));
    char *text, *again;
    size_t len, len_again;
    assert_ok(ash_graph_print(f->g, true, &text, &len, &diag));
    assert_non_null(strstr(text, "\nvar n settled (10*batch)\nvar \"m m\" settled n\n"));
    assert_non_null(strstr(text, " = settle("));
    ash_graph *parsed;
    assert_ok(ash_graph_parse(f->context, text, len, &parsed, &diag));
    assert_ok(ash_graph_verify(parsed, &diag));
    assert_ok(ash_graph_print(parsed, true, &again, &len_again, &diag));
    assert_true(len == len_again && !memcmp(text, again, len));
    ash_context_free_text(f->context, again, len_again);
    ash_graph_destroy(parsed);
    ash_context_free_text(f->context, text, len);
    static const char *const broken[] = {
        "graph \"\" var n settled k",
        "graph \"\" var n settled -1",
        "graph \"\" var n settled",
        "graph \"\" var n settled 4 var n settled 4",
        "graph \"\" var n settled 4 %0: f32[n] = input \"x\"",
        "graph \"\" var n settled 4 %0: f32[n] = iota() dtype=f32 dims=[n] axis=0",
        "graph \"\" var n 0 4 %0: i64[] = constant {3} %1: i64[] = settle(%0) n=n"};
    for (size_t i = 0; i < ASH_COUNT(broken); i++)
        assert_int_not_equal(ash_graph_parse(f->context, broken[i], strlen(broken[i]), &parsed, &diag),
                             ASH_OK);
}

/* A node that only a shape depends on is needed, by the evaluator and by passes; one that nothing depends
 * on is not. */
static void a_shape_keeps_its_settler(void **state) {
    fixture *f = *state;
    ash_graph *g = f->g, *made;
    ash_dim n, unused;
    ash_value x = INPUT(g, "x", F32, 6);
    positive(g, x, "unused", &unused);
    positive(g, x, "n", &n);
    ash_graph_output(g, "y", ash_iota(g, ASH_I32, &n, 1, 0));
    const ash_opt_level levels[] = {ASH_OPT_FULL, ASH_OPT_EXACT, ASH_OPT_NONE};
    for (size_t i = 0; i < ASH_COUNT(levels); i++) {
        const ash_opt_options options = {.level = levels[i]};
        assert_ok(ash_opt__run(g, NULL, &options, &made, &diag));
        size_t settles = 0;
        for (size_t k = 0; k < made->nodes.len; k++) settles += made->nodes.at[k].op == ASH_OP_SETTLE;
        assert_int_equal(settles, 1);
        ash_graph_destroy(made);
    }
    const float numbers[][6] = {{1, -1, 2, 0, 3, -5}, {-1, -1, -1, -1, -1, -1}, {1, 1, 1, 1, 1, 1}};
    const size_t want[] = {3, 0, 6};
    for (size_t i = 0; i < 3; i++) {
        const void *in[] = {numbers[i]};
        ash_reference *r;
        ash_type type;
        size_t count;
        assert_ok(ash_reference_run(g, in, 1, NULL, NULL, 0, &r, &diag));
        const double *y = ash_reference_output(r, 0, &type, &count);
        assert_true(count == want[i] && type.dims[0] == (ash_dim)want[i]);
        for (size_t k = 0; k < count; k++) assert_true(y[k] == (double)k);
        ash_reference_destroy(r);
    }
    const void *in[] = {numbers[0]};
    const char *name = "n";
    const int64_t value = 2;
    ash_reference *r;
    assert_status(ash_reference_run(g, in, 1, &name, &value, 1, &r, &diag), ASH_ERROR_INVALID_ARGUMENT);
    assert_non_null(strstr(diag.message, "depends on data"));
}

/* Counts outside of 0 and the limit are brought within. */
static void counts_are_brought_within(void **state) {
    fixture *f = *state;
    ash_value count = add_input(f->g, "count", SCALAR(I64));
    ash_dim n = ash_settle(f->g, "n", count, 5);
    ash_graph_output(f->g, "y", ash_iota(f->g, ASH_I32, &n, 1, 0));
    const int64_t counts[] = {-3, 0, 4, 5, 6, INT64_MAX, INT64_MIN};
    const size_t want[] = {0, 0, 4, 5, 5, 5, 0};
    for (size_t i = 0; i < ASH_COUNT(counts); i++) {
        const void *in[] = {&counts[i]};
        ash_reference *r;
        size_t got;
        assert_ok(ash_reference_run(f->g, in, 1, NULL, NULL, 0, &r, &diag));
        ash_reference_output(r, 0, NULL, &got);
        assert_int_equal(got, want[i]);
        ash_reference_destroy(r);
    }
}

static double seconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

/* `count` sizes, each of what the one before has left. Chains of limits are not followed to their start. */
static double build_chain(fixture *f, unsigned count) {
    char name[16];
    ash_graph *made;
    ash_value x = INPUT(fresh(f), "x", F32, 64);
    double start = seconds();
    for (unsigned i = 0; i < count; i++) {
        ash_dim n;
        snprintf(name, sizeof name, "n%u", i);
        x = positive(f->g, x, name, &n);
    }
    ash_graph_output(f->g, "y", x);
    assert_ok(ash_graph_verify(f->g, &diag));
    assert_ok(ash_opt__run(f->g, NULL, NULL, &made, &diag));
    ash_graph_destroy(made);
    return seconds() - start;
}

static void work_grows_with_the_sizes(void **state) {
    build_chain(*state, 100);
    double few = build_chain(*state, 400), many = build_chain(*state, 3200);
    print_message("400 sizes: %.3f s, 3200: %.3f s\n", few, many);
    assert_true(many < 24 * few + 0.2);
}

/* Allocation 1, 2, 3, ... fails until the graph is there. */
static void every_allocation_may_fail(void **state) {
    fixture *f = *state;
    for (long n = 1;; n++) {
        ash_dim m;
        ash_graph_destroy(f->g);
        f->g = NULL;
        f->memory.fail_at = f->memory.count + n;
        ash_status status = ash_graph_create(f->context, "test", &f->g, &diag);
        if (status == ASH_OK) {
            ash_value x = INPUT(f->g, "x", F32, 8);
            ash_graph_output(f->g, "y", positive(f->g, positive(f->g, x, "n", &m), "m", &m));
            status = ash_graph_status(f->g, &diag);
        }
        f->memory.fail_at = 0;
        if (status == ASH_OK) break;
        assert_int_equal(status, ASH_ERROR_OUT_OF_MEMORY);
    }
    assert_ok(ash_graph_verify(f->g, &diag));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        IR_TEST(they_are_settled_before_they_are_used),
        IR_TEST(the_verifier_knows_them),
        IR_TEST(limits_are_known),
        IR_TEST(they_have_a_text),
        IR_TEST(a_shape_keeps_its_settler),
        IR_TEST(counts_are_brought_within),
        IR_TEST(work_grows_with_the_sizes),
        IR_TEST(every_allocation_may_fail),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
