/* SPDX-License-Identifier: MIT */
/* Loops, from the graph to the plan: what is refused, the text form, and results beside the reference
 * evaluator's, bit for bit, in every mode. Graphs compute in integers, or in floating point that is exact. */
#include "graph_room.h"

#include "ashlar/builder.h"
#include "ir/build.h"
#include "runtime/plan.h"

static ash_diag diag;

enum { MOST = 9, THREADS = 3 };

static int setup(void **state) {
    return room_open(state, THREADS);
}

static void parse(struct room *r, const char *text) {
    ash_plan_destroy(r->plan);
    ash_graph_destroy(r->g);
    r->plan = NULL;
    r->g = NULL;
    assert_ok(ash_graph_parse(r->context, text, strlen(text), &r->g, &diag));
}

static const struct way {
    ash_mode mode;
    unsigned streams, threads;
    bool poison, plain;
} ways[] = {
    {ASH_MODE_STREAM, 1, 1, false, false},      {ASH_MODE_STREAM, 1, 3, true, false},
    {ASH_MODE_STREAM, 1, 1, true, true},        {ASH_MODE_GRAPH, 1, 1, false, false},
    {ASH_MODE_GRAPH, 1, 3, true, false},        {ASH_MODE_MULTI_STREAM, 2, 2, true, false},
    {ASH_MODE_MULTI_STREAM, 3, 3, false, true},
};

static ash_plan_options options_of(const struct way *way) {
    ash_plan_options options = ash_plan_options_default();
    options.mode = way->mode;
    options.streams = way->streams;
    options.threads = way->threads;
    options.poison = way->poison;
    options.no_optimize = options.no_fuse = way->plain;
    return options;
}

/* Elements of a type with so much for each variable. */
static int64_t count_of(struct room *r, const ash_type *type, const int64_t *vars, int64_t *dims) {
    int64_t count = 1;
    for (unsigned d = 0; d < type->rank; d++)
        count *= dims[d] = ash_dims_eval(r->g->dims, type->dims[d], vars);
    return count;
}

/* Small numbers, a few of them large in the last input: conditions look for those. */
static void fill(ash_wide *wide, size_t input, int seed) {
    for (int64_t i = 0; i < wide->count; i++) {
        int64_t v = (i * 7 + (int64_t)input * 5 + seed * 13) % 11 - 4;
        if (ash_dtype_is_float(wide->dtype))
            wide->f[i] = (double)v / 4;
        else
            wide->i[i] = wide->dtype == ASH_BOOL ? v & 1 : v;
    }
}

/* Executes, and compares with the reference. `var`: the value of the only variable, if there is one. */
static void compare(struct room *r, ash_plan *plan, int64_t var, int seed) {
    enum { PARTS = 8 };
    const ash_allocator *a = ash_context__allocator(r->context);
    ash_wide in[PARTS], want[PARTS];
    size_t n_in = ash_graph_input_count(r->g), n_out = ash_graph_output_count(r->g);
    char bytes[65536];
    int64_t dims[ASH_MAX_RANK];
    if (ash_graph_var_count(r->g)) {
        const char *name = ash_dims_var(r->g->dims, 0)->name;
        assert_ok(ash_plan_set_vars(plan, &(ash_var_binding){name, var}, 1, &diag));
    }
    int64_t vars[] = {var, 0, 0, 0};
    for (size_t i = 0; i < n_in; i++) {
        const ash_type *type = ash_graph_type(r->g, ash_graph_input_at(r->g, i, NULL));
        count_of(r, type, vars, dims);
        assert_ok(ash_wide_alloc(a, type->dtype, type->rank, dims, &in[i], &diag));
        fill(&in[i], i, seed);
        ash_wide_store(&in[i], bytes);
        uint64_t size = (uint64_t)in[i].count * ash_dtype_size(type->dtype);
        assert_ok(ash_plan_set_input(plan, i, NULL, bytes, size, &diag));
    }
    assert_ok(ash_eval_graph(r->g, in, vars, ASH_EVAL_DTYPE, want, &diag));
    assert_ok(ash_plan_execute(plan, &diag));
    for (size_t i = 0; i < n_out; i++) {
        const ash_view *view;
        const void *data;
        assert_ok(ash_plan_output(plan, i, &view, &diag));
        assert_ok(ash_view_data(view, &data, &diag));
        ash_wide_store(&want[i], bytes);
        assert_int_equal(ash_view_bytes(view), (uint64_t)want[i].count * ash_dtype_size(want[i].dtype));
        assert_memory_equal(data, bytes, ash_view_bytes(view));
        ash_wide_free(a, &want[i]);
    }
    for (size_t i = 0; i < n_in; i++) ash_wide_free(a, &in[i]);
}

static void compare_all(struct room *r, ash_plan *plan, int64_t most) {
    for (int64_t n = most; n >= 0; n--)
        for (int seed = 0; seed < 3; seed++) compare(r, plan, n, seed);
}

/* Every way, a replica among them. `most`: of the variable. */
static void agree(struct room *r, const char *text, int64_t most) {
    parse(r, text);
    for (size_t w = 0; w < ASH_COUNT(ways); w++) {
        ash_plan_options options = options_of(&ways[w]);
        ash_plan *twin;
        assert_ok(ash_plan_prepare(r->context, r->g, &options, &r->plan, &diag));
        compare_all(r, r->plan, most);
        assert_ok(ash_plan_replicate(r->plan, &twin, &diag));
        compare(r, twin, most, 5);
        compare(r, r->plan, most, 6);
        ash_plan_destroy(twin);
        ash_plan_destroy(r->plan);
        r->plan = NULL;
    }
}

static const char cumulate[] = "graph \"cumulate\"\n"
                               "var n 0 9\n"
                               "%x: i32[n, 4] = input \"x\"\n"
                               "%k: i32[4] = input \"k\"\n"
                               "%zero: i32[4] = constant {0, 1, 2, 3}\n"
                               "%i: i64[] = argument() dtype=i64 dims=[]\n"
                               "%c: i32[4] = argument() dtype=i32 dims=[4]\n"
                               "%s: i32[4] = argument() dtype=i32 dims=[4]\n"
                               "%j: i32[] = cast(%i) dtype=i32\n"
                               "%b: i32[4] = broadcast(%j) dims=[4]\n"
                               "%n: i32[4] = neg(%k)\n"
                               "%m: i32[4] = mul(%s, %n)\n"
                               "%d: i32[4] = add(%c, %m)\n"
                               "%y: i32[4] = add(%c, %b)\n"
                               "%last: i32[4], %all: i32[n, 4], %back: i32[n, 4] ="
                               " loop(%i, %c, %s, %zero, %x, %d, %d, %y)"
                               " trips=n carried=1 scanned=1 given=0 until=0 backward=";

static void counted(void **state) {
    char text[2048];
    for (int backward = 0; backward < 8; backward++) {
        snprintf(text, sizeof text, "%s%d body=0 @\"sum\"\noutput \"last\" = %%last\noutput \"all\" = %%all\n"
                                    "output \"back\" = %%back\n",
                 cumulate, backward);
        agree(*state, text, MOST);
    }
}

static void round_trip(void **state) {
    struct room *r = *state;
    char text[2048], *printed, *again;
    uint64_t size, more;
    snprintf(text, sizeof text, "%s0 body=0\noutput \"last\" = %%last\n", cumulate);
    parse(r, text);
    assert_ok(ash_graph_verify(r->g, &diag));
    assert_ok(ash_graph_print(r->g, true, &printed, &size, &diag));
    parse(r, printed);
    assert_ok(ash_graph_print(r->g, true, &again, &more, &diag));
    assert_string_equal(printed, again);
    ash_context_free_text(r->context, printed, size);
    ash_context_free_text(r->context, again, more);
}

/* Carried values that change places, one that stays, one that is an operand: none of them is in place. */
static void swapped(void **state) {
    agree(*state,
          "graph \"swap\"\n"
          "var n 0 5\n"
          "%x: i32[4] = input \"x\"\n"
          "%y: i32[4] = input \"y\"\n"
          "%i: i64[] = argument() dtype=i64 dims=[]\n"
          "%a: i32[4] = argument() dtype=i32 dims=[4]\n"
          "%b: i32[4] = argument() dtype=i32 dims=[4]\n"
          "%c: i32[4] = argument() dtype=i32 dims=[4]\n"
          "%d: i32[4] = argument() dtype=i32 dims=[4]\n"
          "%s: i32[4] = add(%a, %b)\n"
          "%p: i32[4], %q: i32[4], %r: i32[4], %t: i32[4], %all: i32[n, 4], %olds: i32[n, 4], %ys: i32[n, 4] = "
          "loop(%i, %a, %b, %c, %d, %x, %y, %x, %y, %b, %s, %c, %y, %s, %a, %y)"
          " trips=n carried=4 scanned=0 given=0 until=0 backward=2 body=0\n"
          "output \"p\" = %p\noutput \"q\" = %q\noutput \"r\" = %r\noutput \"t\" = %t\n"
          "output \"all\" = %all\noutput \"olds\" = %olds\noutput \"ys\" = %ys\n",
          5);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(counted, setup, teardown),
        cmocka_unit_test_setup_teardown(round_trip, setup, teardown),
        cmocka_unit_test_setup_teardown(swapped, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
