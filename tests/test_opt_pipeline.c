/* SPDX-License-Identifier: MIT */
/* The pipeline as a whole: what it keeps, what it refuses, that it fails cleanly, and that its time is
 * linear. */
#include <time.h>

#include "opt_testing.h"

/* --- options -------------------------------------------------------------------------------------- */

typedef struct dumps {
    char names[256];
} dumps;

static void note(void *user, const char *pass, const ash_graph *graph) {
    dumps *d = user;
    ash_diag diag;
    assert_ok(ash_graph_verify(graph, &diag));
    strcat(strcat(d->names, d->names[0] ? " " : ""), pass);
}

static ash_value small_net(fixture *f) {
    ash_graph *g = f->g;
    ash_value x = INPUT(f, "x", ASH_F32, 1, 4, 5, 5);
    ash_value y = ash_conv2d(g, x, CONSTANT(f, ASH_F32, 8, 4, 3, 3), 1, 1, 1);
    y = ash_relu(g, ash_mul(g, y, CONSTANT(f, ASH_F32, 8, 1, 1)));
    ash_graph_output(g, "y", y);
    return y;
}

static void dumps_come_in_order(void **state) {
    fixture *f = *state;
    ash_diag diag;
    ash_target target = target_of(8);
    target.dot4 = 1;
    dumps all = {""}, exact = {""}, none = {""};
    small_net(f);
    assert_ok(optimise(f, NULL, &target, (ash_opt_options){.dump = note, .dump_user = &all}, &diag));
    assert_string_equal(all.names,
                        "dce fold cse simplify cse affine fold simplify cse widen layout winograd "
                        "simplify cse dce");
    assert_ok(optimise(f, NULL, &target,
                       (ash_opt_options){ASH_OPT_EXACT, .dump = note, .dump_user = &exact}, &diag));
    assert_string_equal(exact.names, "dce fold cse simplify cse fold simplify cse simplify cse dce");
    assert_ok(optimise(f, NULL, &target, (ash_opt_options){ASH_OPT_NONE, .dump = note, .dump_user = &none},
                       &diag));
    assert_string_equal(none.names, "dce dce");
}

static void passes_are_left_out(void **state) {
    fixture *f = *state;
    ash_diag diag;
    ash_target target = target_of(8);
    dumps d = {""};
    const char *off[] = {"layout", "simplify"};
    small_net(f);
    ash_opt_options options = {.off = off, .n_off = 2, .dump = note, .dump_user = &d};
    assert_ok(ash_opt__run(f->g, &target, &options, &f->out, &diag));
    assert_string_equal(d.names,
                        "dce fold cse cse fold cse widen winograd cse dce"); /* affine requires simplify */
}

/* A pass runs where the graph has an operator that it rewrites around. */
static void passes_go_by_what_does_not_concern_them(void **state) {
    fixture *f = *state;
    ash_diag diag;
    ash_target target = target_of(8);
    target.dot4 = 1;
    dumps plain = {""}, some = {""};
    ash_value x = ash_relu(f->g, INPUT(f, "x", ASH_F32, 1, 4, 5, 5));
    ash_graph_output(f->g, "y", x);
    assert_ok(optimise(f, NULL, &target, (ash_opt_options){.dump = note, .dump_user = &plain}, &diag));
    assert_string_equal(plain.names, "dce fold cse simplify cse fold simplify cse layout simplify cse dce");
    ash_value quotient = ash_div(f->g, x, ash_cast(f->g, INPUT(f, "i", ASH_I32, 5), ASH_F32));
    ash_graph_output(f->g, "z", quotient);
    assert_ok(optimise(f, NULL, &target, (ash_opt_options){.dump = note, .dump_user = &some}, &diag));
    assert_string_equal(
        some.names,
        "dce quantize few_bits fold cse simplify cse reciprocal fold simplify cse layout simplify cse dce");
}

static void wrong_options_are_refused(void **state) {
    fixture *f = *state;
    ash_diag diag;
    ash_target target = target_of(8);
    const char *off[] = {"polish"};
    ash_value keep[] = {100};
    small_net(f);
    ash_opt_options unknown = {.off = off, .n_off = 1}, missing = {.keep = keep, .n_keep = 1};
    assert_status(ash_opt__run(f->g, &target, &unknown, &f->out, &diag), ASH_ERROR_NOT_FOUND);
    assert_non_null(strstr(diag.message, "polish"));
    assert_status(ash_opt__run(f->g, &target, &missing, &f->out, &diag), ASH_ERROR_NOT_FOUND);
    ash_add(f->g, 0, ASH_NO_VALUE);
    assert_int_not_equal(ash_opt__run(f->g, &target, NULL, &f->out, &diag), ASH_OK);
    assert_null(f->out);
}

static void without_a_target_there_is_no_layout(void **state) {
    fixture *f = *state;
    ash_diag diag;
    small_net(f);
    assert_ok(optimise(f, NULL, NULL, (ash_opt_options){0}, &diag));
    assert_int_equal(ash_node_int(find_op(f->out, ASH_OP_CONV, 0), ASH_ATTR_W_BLOCK), 0);
    ash_target narrow = target_of(2);
    assert_ok(optimise(f, NULL, &narrow, (ash_opt_options){0}, &diag));
    assert_int_equal(ash_node_int(find_op(f->out, ASH_OP_CONV, 0), ASH_ATTR_W_BLOCK), 0);
}

static void what_is_blocked_is_not_blocked_again(void **state) {
    fixture *f = *state;
    ash_diag diag;
    ash_target target = target_of(8);
    dumps d = {""};
    small_net(f);
    assert_ok(optimise(f, NULL, &target, (ash_opt_options){0}, &diag));
    ash_graph *blocked = f->out, *again = NULL;
    ash_opt_options options = {.dump = note, .dump_user = &d};
    assert_ok(ash_opt__run(blocked, &target, &options, &again, &diag));
    assert_null(strstr(d.names, "layout"));
    assert_int_equal(again->nodes.len, blocked->nodes.len);
    ash_graph_destroy(again);
}

/* Passes that are one kind of machine's business are left out for others, and nothing but them makes
 * forms. */
static void forms_are_the_business_of_vectors(void **state) {
    fixture *f = *state;
    ash_diag diag;
    ash_target target = target_of(8), narrow = target_of(2), gpu = target_of(32);
    gpu.kind = ASH_TARGET_GPU;
    const ash_target *const others[] = {NULL, &narrow, &gpu};
    small_net(f);
    for (size_t i = 0; i < ASH_COUNT(others); i++) {
        dumps d = {""};
        assert_ok(optimise(f, NULL, others[i], (ash_opt_options){.dump = note, .dump_user = &d}, &diag));
        assert_null(strstr(d.names, "layout"));
        assert_null(strstr(d.names, "winograd"));
        assert_non_null(strstr(d.names, "widen"));
        const ash_node *conv = find_op(f->out, ASH_OP_CONV, 0);
        bool filters = others[i] == &gpu; /* weights alone, of constants in whole blocks */
        int64_t o = ash_graph__type(f->out, conv->out)->dims[1];
        assert_int_equal(f->out->internal, filters);
        assert_int_equal(strstr(d.names, "filters") != NULL, filters);
        assert_int_equal(ash_node_int(conv, ASH_ATTR_W_BLOCK), filters && o >= 32 ? 32 : 0);
        assert_int_equal(ash_node_int(conv, ASH_ATTR_X_BLOCK), 0);
        assert_int_equal(ash_node_int(conv, ASH_ATTR_Y_BLOCK), 0);
    }
    const char *const off[] = {"layout"};
    const ash_opt_options plain = {.off = off, .n_off = 1};
    ash_graph_destroy(f->out);
    assert_ok(ash_opt__run(f->g, &target, &plain, &f->out, &diag));
    assert_false(f->out->internal);
    assert_ok(optimise(f, NULL, &target, (ash_opt_options){0}, &diag));
    assert_true(f->out->internal);
    assert_int_equal(ash_node_int(find_op(f->out, ASH_OP_CONV, 0), ASH_ATTR_W_BLOCK), 8);
}

/* Sums are cut where a GPU would have little to do else, and nowhere else. */
static void long_sums_are_cut(void **state) {
    fixture *f = *state;
    ash_diag diag;
    ash_target gpu;
    static const struct {
        int64_t m, k, n;
        bool cut;
    } cases[] = {{9, 4096, 8, true},
                 {9, 4092, 8, true},
                 {9, 4093, 8, false},
                 {9, 48, 8, false},
                 {1100, 256, 1100, false}};
    assert_true(ash_target__gpu(80, &gpu));
    for (size_t i = 0; i < ASH_COUNT(cases); i++)
        for (int batched = 0; batched < 2; batched++) {
            const int64_t m = cases[i].m, k = cases[i].k, n = cases[i].n;
            restart(f);
            ash_value a = batched ? INPUT(f, "a", ASH_F32, 2, 1, m, k) : INPUT(f, "a", ASH_F32, m, k),
                      b = batched ? INPUT(f, "b", ASH_F32, 2, 1, k, n) : INPUT(f, "b", ASH_F32, k, n);
            ash_graph_output(f->g, "y", ash_matmul(f->g, a, b));
            assert_ok(optimise(f, NULL, &gpu, (ash_opt_options){0}, &diag));
            assert_int_equal(count_op(f->out, ASH_OP_REDUCE_SUM), cases[i].cut);
            assert_int_equal(count_op(f->out, ASH_OP_MATMUL), 1);
            if (cases[i].cut) assert_true(same_results(f->g, f->out, ASH_EVAL_DOUBLE, false, 1e-12, NULL));
            assert_ok(optimise(f, NULL, &gpu, (ash_opt_options){.level = ASH_OPT_EXACT}, &diag));
            assert_int_equal(count_op(f->out, ASH_OP_REDUCE_SUM), 0);
        }
    for (int64_t groups = 1; groups <= 2; groups++) {
        restart(f);
        ash_value x = INPUT(f, "x", ASH_F32, 2, 128, 5, 4),
                  w = CONSTANT(f, ASH_F32, 40, 128 / groups, 3, 3);
        ash_graph_output(f->g, "y", ash_conv2d(f->g, x, w, 1, 1, groups));
        assert_ok(optimise(f, NULL, &gpu, (ash_opt_options){0}, &diag));
        assert_int_equal(count_op(f->out, ASH_OP_REDUCE_SUM), groups == 1);
        assert_true(same_results(f->g, f->out, ASH_EVAL_DOUBLE, false, 1e-12, NULL));
    }
}

/* What such passes have made is no graph of a caller's: the verifier finds it before their rows. */
static void forms_before_their_rows_are_defects(void **state) {
    fixture *f = *state;
    ash_diag diag;
    ash_target target = target_of(8);
    small_net(f);
    assert_ok(optimise(f, NULL, &target, (ash_opt_options){0}, &diag));
    f->out->internal = false;
    assert_status(ash_graph_verify(f->out, &diag), ASH_ERROR_INTERNAL);
    assert_non_null(strstr(diag.message, "_block is "));
    assert_string_equal(diag.op, "conv");
    f->out->internal = true;
    assert_ok(ash_graph_verify(f->out, &diag));
}

/* --- origins -------------------------------------------------------------------------------------- */

/* Every value with an origin has its type. */
static void check_origins(const ash_graph *from, const ash_graph *to) {
    for (ash_value v = 0; v < to->values.len; v++) {
        ash_value origin = to->values.at[v].origin;
        if (origin == ASH_NO_VALUE) continue;
        assert_true(origin < from->values.len);
        assert_true(ash_type_equal(ash_graph__type(from, origin), ash_graph__type(to, v)));
    }
}

static void kept_values_survive(void **state) {
    fixture *f = *state;
    ash_graph *g = f->g;
    ash_diag diag;
    ash_target target = target_of(8);
    ash_value x = INPUT(f, "x", ASH_F32, 1, 4, 5, 5);
    ash_value same = ash_mul(g, x, ash_scalar(g, ASH_F32, 1)); /* becomes x */
    ash_value twice = ash_neg(g, ash_neg(g, same));            /* becomes x too */
    ash_value folded = ash_add(g, CONSTANT(f, ASH_F32, 3), CONSTANT(f, ASH_F32, 3));
    ash_value left = ash_exp(g, twice), right = ash_exp(g, same); /* become one */
    ash_value inner = ash_conv2d(g, x, CONSTANT(f, ASH_F32, 8, 4, 3, 3), 1, 1, 1);
    ash_value scaled = ash_mul(g, inner, CONSTANT(f, ASH_F32, 8, 1, 1));
    ash_value dead = ash_sqrt(g, x);
    ash_graph_output(g, "y", ash_add(g, scaled, CONSTANT(f, ASH_F32, 8, 1, 1)));
    ash_value keep[] = {x, same, twice, folded, left, right, inner, dead};
    ash_opt_options options = {.keep = keep, .n_keep = ASH_COUNT(keep)};
    assert_ok(ash_graph_status(g, &diag));
    assert_ok(optimise(f, NULL, &target, options, &diag));
    check_origins(g, f->out);
    for (size_t i = 0; i < ASH_COUNT(keep); i++)
        assert_int_not_equal(find_origin(f->out, keep[i]), ASH_NO_VALUE);
    assert_true(same_results(g, f->out, ASH_EVAL_DOUBLE, false, 1e-6, NULL));

    /* and only for that reason: nothing else is in the way of the passes */
    assert_ok(optimise(f, NULL, &target, (ash_opt_options){0}, &diag));
    assert_int_equal(find_origin(f->out, dead), ASH_NO_VALUE);
    assert_int_equal(find_origin(f->out, inner), ASH_NO_VALUE);
    assert_int_equal(count_op(f->out, ASH_OP_EXP), 0);
    check_origins(g, f->out);
}

static void names_stay_with_what_they_name(void **state) {
    fixture *f = *state;
    ash_graph *g = f->g;
    ash_diag diag;
    ash_target target = target_of(8);
    ash_value x = INPUT(f, "x", ASH_F32, 1, 4, 5, 5);
    ash_graph_name_next(g, "stem");
    ash_value y = ash_conv2d(g, x, CONSTANT(f, ASH_F32, 8, 4, 3, 3), 1, 1, 1);
    ash_graph_name_next(g, "norm");
    y = ash_add(g, ash_mul(g, y, CONSTANT(f, ASH_F32, 8, 1, 1)), CONSTANT(f, ASH_F32, 8, 1, 1));
    ash_graph_output(g, "y", y);
    assert_ok(optimise(f, NULL, &target, (ash_opt_options){0}, &diag));
    assert_string_equal(find_op(f->out, ASH_OP_CONV, 0)->name, "stem");
    assert_string_equal(find_op(f->out, ASH_OP_ADD, 0)->name, "norm");
}

/* --- failure -------------------------------------------------------------------------------------- */

static void every_allocation_may_fail(void **state) {
    fixture *f = *state;
    ash_graph *g = f->g;
    ash_diag diag;
    ash_target target = target_of(4);
    ash_value h = small_net(f);
    h = ash_concat(g, (ash_value[]){h, ash_sigmoid(g, h)}, 2, 1);
    h = ash_slice(g, h, (ash_dim[]){0, 4, 1, 0}, NULL, (ash_dim[]){1, 8, 4, 5});
    h = ash_reduce_mean(g, h, (int64_t[]){2, 3}, 2, false);
    h = ash_matmul(g, ash_reshape(g, h, (ash_dim[]){8, 1}, 2), CONSTANT(f, ASH_F32, 1, 5));
    ash_graph_output(g, "z", ash_topk(g, h, 1, 2, true, NULL));
    ash_value keep[] = {h};
    ash_opt_options options = {.keep = keep, .n_keep = 1};
    long long before = f->memory.live;
    ash_status status = ASH_ERROR_OUT_OF_MEMORY;
    long n = 0;
    while (status != ASH_OK) {
        f->memory.count = 0;
        f->memory.fail_at = ++n;
        status = ash_opt__run(g, &target, &options, &f->out, &diag);
        f->memory.fail_at = 0;
        if (status == ASH_OK) break;
        assert_int_equal(status, ASH_ERROR_OUT_OF_MEMORY);
        assert_null(f->out);
        assert_int_equal(f->memory.live, before);
    }
    assert_true(n > 100);
}

/* --- time ----------------------------------------------------------------------------------------- */

static double seconds(void) {
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* A graph of about n nodes with what rules look for: constants, movement, equal nodes, long chains. */
static void build_large(fixture *f, size_t n) {
    ash_graph *g = f->g;
    ash_value recent[64], x = INPUT(f, "x", ASH_F32, 4, 8), scale = CONSTANT(f, ASH_F32, 8);
    for (size_t i = 0; i < 64; i++) recent[i] = x;
    while (g->nodes.len < n) {
        ash_value a = recent[below(&f->random, 64)], b = recent[below(&f->random, 64)], y;
        switch (below(&f->random, 8)) {
        case 0: y = ash_mul(g, a, scale); break;
        case 1: y = ash_transpose(g, ash_reshape(g, a, (ash_dim[]){8, 4}, 2), (int64_t[]){1, 0}); break;
        case 2: y = ash_relu(g, a); break;
        case 3: y = ash_neg(g, a); break;
        case 4: y = ash_slice_axis(g, ash_concat(g, (ash_value[]){a, b}, 2, 1), 1, 4, 8); break;
        case 5: y = ash_div(g, a, ash_scalar(g, ASH_F32, 4)); break;
        default: y = ash_add(g, a, b); break;
        }
        recent[below(&f->random, 64)] = y;
    }
    ash_graph_output(g, "y", ash_concat(g, recent, 64, 0));
}

static double time_of(fixture *f, size_t n) {
    ash_diag diag;
    ash_target target = target_of(8);
    double best = 1e9;
    restart(f);
    build_large(f, n);
    assert_ok(ash_graph_status(f->g, &diag));
    for (int i = 0; i < 3; i++) {
        double start = seconds();
        assert_ok(optimise(f, NULL, &target, (ash_opt_options){0}, &diag));
        best = fmin(best, seconds() - start);
    }
    return best;
}

static void time_is_linear(void **state) {
    fixture *f = *state;
    double small = time_of(f, 12500), large = time_of(f, 100000);
    print_message("12500 nodes: %.0f ms, 100000 nodes: %.0f ms\n", small * 1e3, large * 1e3);
    assert_true(large < 8 * small * 3);
}

/* One value after another, each of which the next one looks through. */
static void chains_are_linear_too(void **state) {
    enum { N = 50000 };
    fixture *f = *state;
    ash_graph *g = f->g;
    ash_diag diag;
    ash_target target = target_of(8);
    ash_value x = INPUT(f, "x", ASH_F32, 4, 8), h = x, c = x, b = INPUT(f, "b", ASH_F32, 1);
    for (int i = 0; i < N; i++) h = ash_transpose(g, h, (int64_t[]){1, 0});
    for (int i = 0; i < 2000; i++) c = ash_concat(g, (ash_value[]){c, x}, 2, 0);
    for (int i = 0; i < 5; i++)
        b = ash_broadcast_to(g, b, (ash_dim[]){1, 1, 1, 1, 1, 1, 1, 1, 1, 1}, 2 + (unsigned)i);
    ash_graph_output(g, "h", h);
    ash_graph_output(g, "c", c);
    ash_graph_output(g, "b", b);
    assert_ok(ash_graph_status(g, &diag));
    double start = seconds();
    assert_ok(optimise(f, NULL, &target, (ash_opt_options){0}, &diag));
    double first = seconds() - start;
    print_message("%d transposes in a row, 2000 concats: %.0f ms\n", N, first * 1e3);
    assert_int_equal(f->out->outputs.at[0].value, f->out->inputs.at[0]);
    assert_true(first < 10);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(dumps_come_in_order, setup, teardown),
        cmocka_unit_test_setup_teardown(passes_are_left_out, setup, teardown),
        cmocka_unit_test_setup_teardown(passes_go_by_what_does_not_concern_them, setup, teardown),
        cmocka_unit_test_setup_teardown(wrong_options_are_refused, setup, teardown),
        cmocka_unit_test_setup_teardown(without_a_target_there_is_no_layout, setup, teardown),
        cmocka_unit_test_setup_teardown(forms_are_the_business_of_vectors, setup, teardown),
        cmocka_unit_test_setup_teardown(long_sums_are_cut, setup, teardown),
        cmocka_unit_test_setup_teardown(forms_before_their_rows_are_defects, setup, teardown),
        cmocka_unit_test_setup_teardown(what_is_blocked_is_not_blocked_again, setup, teardown),
        cmocka_unit_test_setup_teardown(kept_values_survive, setup, teardown),
        cmocka_unit_test_setup_teardown(names_stay_with_what_they_name, setup, teardown),
        cmocka_unit_test_setup_teardown(every_allocation_may_fail, setup, teardown),
        cmocka_unit_test_setup_teardown(time_is_linear, setup, teardown),
        cmocka_unit_test_setup_teardown(chains_are_linear_too, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
