/* SPDX-License-Identifier: MIT */
/* Loops, from the graph to the plan: what is refused, the text form, and results beside the reference
 * evaluator's, bit for bit, in every mode. Graphs compute in integers, or in floating point that is
 * exact. */
#include "apart.h"
#include "graph_room.h"

#include <pthread.h>
#include <time.h>

#include "ashlar/builder.h"
#include "ashlar/onnx.h"
#include "code/code.h"
#include "functions.h"
#include "ir/build.h"
#include "loop_text.h"
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
static void agree_here(struct room *r, int64_t most) {
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

static void agree(struct room *r, const char *text, int64_t most) {
    parse(r, text);
    agree_here(r, most);
}

static void summed(void **state) {
    char text[2048];
    for (int backward = 0; backward < 8; backward++) {
        snprintf(text, sizeof text,
                 "%s%d body=0 @\"sum\"\noutput \"last\" = %%last\noutput \"all\" = %%all\n"
                 "output \"back\" = %%back\n",
                 loop_cumulate, backward);
        agree(*state, text, MOST);
    }
}

static void round_trip(void **state) {
    struct room *r = *state;
    char text[2048], *printed, *again;
    uint64_t size, more;
    snprintf(text, sizeof text, "%s0 body=0\noutput \"last\" = %%last\n", loop_cumulate);
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
          "%p: i32[4], %q: i32[4], %r: i32[4], %t: i32[4], %all: i32[n, 4], %olds: i32[n, 4], %ys: i32[n, "
          "4] = "
          "loop(%i, %a, %b, %c, %d, %x, %y, %x, %y, %b, %s, %c, %y, %s, %a, %y)"
          " trips=n carried=4 scanned=0 given=0 until=0 backward=2 body=0\n"
          "output \"p\" = %p\noutput \"q\" = %q\noutput \"r\" = %r\noutput \"t\" = %t\n"
          "output \"all\" = %all\noutput \"olds\" = %olds\noutput \"ys\" = %ys\n",
          5);
}

/* Ends when a sum is large enough, which may be at once or never; what is stacked is zero from there on. */
static void until(void **state) {
    agree(*state,
          "graph \"until\"\n"
          "var n 0 9\n"
          "var m settled n\n"
          "%x: i32[n, 4] = input \"x\"\n"
          "%k: i32[] = input \"k\"\n"
          "%zero: i32[4] = constant {0, 0, 0, 0}\n"
          "%limit: i32[] = constant {9}\n"
          "%none: i32[] = constant {2}\n"
          "%go: bool[] = le(%k, %none)\n" LOOP_NUMBER "%c: i32[4] = argument() dtype=i32 dims=[4]\n"
          "%s: i32[4] = argument() dtype=i32 dims=[4]\n"
          "%a: i32[4] = abs(%s)\n"
          "%d: i32[4] = add(%c, %a)\n"
          "%sum: i32[] = reduce_sum(%d) axes=[0]\n"
          "%on: bool[] = lt(%sum, %limit)\n"
          "%count: i64[], %last: i32[4], %all: i32[n, 4] = loop(%i, %c, %s, %go, %zero, %x, %on, %d, %d)"
          " trips=n carried=1 scanned=1 given=0 until=1 backward=1 body=0\n"
          "%settled: i64[] = settle(%count) n=m\n"
          "%found: i32[m, 4] = slice(%all) starts=[0, 0] steps=[1, 1] dims=[m, 4]\n"
          "%twice: i32[m, 4] = add(%found, %found)\n"
          "%total: i32[4] = reduce_sum(%twice) axes=[0]\n"
          "output \"count\" = %count\noutput \"last\" = %last\noutput \"all\" = %all\n"
          "output \"total\" = %total\n",
          MOST);
}

/* A branch: at most one iteration over values from outside, so that nothing of it is computed elsewhere. */
static void branch(void **state) {
    struct room *r = *state;
    agree(r,
          "graph \"branch\"\n"
          "%x: i32[3, 4] = input \"x\"\n"
          "%k: i32[] = input \"k\"\n"
          "%zero: i32[] = constant {0}\n"
          "%off: bool[] = constant {0}\n"
          "%go: bool[] = lt(%k, %zero)\n"
          "%y: i32[3, 4] = add(%x, %x)\n" LOOP_NUMBER "%g: i32[3, 4] = argument() dtype=i32 dims=[3, 4]\n"
          "%t: i32[4, 3] = transpose(%g) perm=[1, 0]\n"
          "%p: i32[4, 4] = matmul(%t, %g) b_block=0 n=0\n"
          "%count: i64[], %all: i32[1, 4, 4] = loop(%i, %g, %go, %y, %off, %p)"
          " trips=1 carried=0 scanned=0 given=1 until=1 backward=0 body=0 @\"branch\"\n"
          "output \"count\" = %count\noutput \"all\" = %all\noutput \"y\" = %y\n",
          0);
    ash_plan_options options = options_of(&ways[0]);
    assert_ok(ash_plan_prepare(r->context, r->g, &options, &r->plan, &diag));
    assert_int_equal(r->plan->program->loops.len, 1);
    bool inside = false; /* the product */
    const ash_program *body = r->plan->program->loops.at[0].body;
    for (size_t s = 0; s < body->steps.len; s++) inside |= strstr(body->steps.at[s].name, "matmul") != NULL;
    assert_true(inside);
}

static void nested(void **state) {
    for (int until = 0; until < 2; until++) agree(*state, loop_nested(until), 5);
}

/* --- the same bits as laid out -------------------------------------------------------------------- */

enum { STEPS = 21, BATCH = 3, WIDE = 24 };

/* h' = tanh(x + h w + b), gated: what an LSTM does, more or less. */
static ash_value cell(ash_graph *g, ash_value h, ash_value x, ash_value w, ash_value b) {
    ash_value fresh = ash_tanh(g, ash_add(g, ash_add(g, x, ash_matmul(g, h, w)), b));
    ash_value gate = ash_sigmoid(g, ash_sub(g, ash_matmul(g, h, w), x));
    return ash_add(g, ash_mul(g, gate, fresh), ash_mul(g, ash_sub(g, ash_scalar(g, ASH_F32, 1), gate), h));
}

static void make_recurrence(struct room *r, bool loop) {
    static float weights[WIDE * WIDE], bias[WIDE];
    const ash_type sequence = {.dtype = ASH_F32, .rank = 3, .dims = {STEPS, BATCH, WIDE}},
                   square = {.dtype = ASH_F32, .rank = 2, .dims = {WIDE, WIDE}},
                   row = {.dtype = ASH_F32, .rank = 1, .dims = {WIDE}},
                   first = {.dtype = ASH_F32, .rank = 2, .dims = {BATCH, WIDE}};
    for (int i = 0; i < WIDE * WIDE; i++) weights[i] = (float)((i * 29) % 61 - 30) / 100;
    for (int i = 0; i < WIDE; i++) bias[i] = (float)(i % 5) / 10;
    ash_plan_destroy(r->plan);
    ash_graph_destroy(r->g);
    r->plan = NULL;
    assert_ok(ash_graph_create(r->context, "recurrence", &r->g, &diag));
    ash_graph *g = r->g;
    ash_value x = ash_graph_input(g, "x", &sequence), h = ash_graph_input(g, "h", &first);
    ash_value w = ash_graph_constant(g, &square, weights, sizeof weights, ASH_DATA_COPY);
    ash_value b = ash_graph_constant(g, &row, bias, sizeof bias, ASH_DATA_COPY), ys[STEPS], outs[2];
    if (loop) {
        ash_value arguments[3], next;
        ash_loop l = {.trips = STEPS,
                      .carried = 1,
                      .scanned = 1,
                      .stacked = 1,
                      .go = ASH_NO_VALUE,
                      .init = &h,
                      .xs = &x,
                      .arguments = arguments,
                      .next = &next,
                      .ys = &next};
        assert_true(ash_build__begin_loop(g, &l));
        next = cell(g, arguments[1], arguments[2], w, b);
        assert_ok(ash_build__end_loop(g, &l, outs));
    } else {
        for (int t = 0; t < STEPS; t++) {
            h = cell(g, h, ash_build__at(g, x, 0, t), w, b);
            ys[t] = ash_build__insert_axis(g, h, 0);
        }
        outs[0] = h;
        outs[1] = ash_concat(g, ys, STEPS, 0);
    }
    ash_graph_output(g, "last", outs[0]);
    ash_graph_output(g, "all", outs[1]);
    assert_ok(ash_graph_status(g, &diag));
}

static void run_recurrence(struct room *r, float *last, float *all) {
    static float x[STEPS * BATCH * WIDE], h[BATCH * WIDE];
    const ash_view *view;
    for (size_t i = 0; i < ASH_COUNT(x); i++) x[i] = (float)((i * 37) % 101) / 50 - 1;
    for (size_t i = 0; i < ASH_COUNT(h); i++) h[i] = (float)(i % 7) / 7;
    assert_ok(ash_plan_set_input(r->plan, 0, NULL, x, sizeof x, &diag));
    assert_ok(ash_plan_set_input(r->plan, 1, NULL, h, sizeof h, &diag));
    assert_ok(ash_plan_execute(r->plan, &diag));
    assert_ok(ash_plan_output(r->plan, 0, &view, &diag));
    assert_ok(ash_view_copy_out(view, last, sizeof h, &diag));
    assert_ok(ash_plan_output(r->plan, 1, &view, &diag));
    assert_ok(ash_view_copy_out(view, all, sizeof x, &diag));
}

static void same_bits(void **state) {
    struct room *r = *state;
    static float want[STEPS * BATCH * WIDE], last[BATCH * WIDE], have[STEPS * BATCH * WIDE],
        end[BATCH * WIDE];
    ash_plan_options options = ash_plan_options_default();
    make_recurrence(r, false);
    assert_ok(ash_plan_prepare(r->context, r->g, &options, &r->plan, &diag));
    run_recurrence(r, last, want);
    make_recurrence(r, true);
    for (size_t w = 0; w < ASH_COUNT(ways); w++) {
        if (ways[w].plain) continue; /* it sums in another order */
        options = options_of(&ways[w]);
        assert_ok(ash_plan_prepare(r->context, r->g, &options, &r->plan, &diag));
        run_recurrence(r, end, have);
        assert_memory_equal(end, last, sizeof last);
        assert_memory_equal(have, want, sizeof want);
        assert_true(r->plan->program->loops.at[0].body->steps.len <= 3); /* the state is written in place */
        assert_true(r->plan->program->steps.len - r->plan->program->prologue <= 3);
        ash_plan_destroy(r->plan);
        r->plan = NULL;
    }
}

/* What loops stack lies where a concatenation begins with it, whatever else is behind it, before it is
 * computed (`early`) or after, or reads it; that of a second one, and one that ends early, too. */
static void what_is_stacked_has_its_place(void **state) {
    struct room *r = *state;
    agree(r,
          "graph \"behind\"\n"
          "var n 0 9\n"
          "%x: i32[n, 4] = input \"x\"\n"
          "%z: i32[3, 4] = input \"z\"\n"
          "%k: i32[] = input \"k\"\n"
          "%zero: i32[4] = constant {0, 0, 0, 0}\n"
          "%limit: i32[] = constant {9}\n"
          "%early: i32[3, 4] = neg(%z)\n"
          "%go: bool[] = le(%k, %limit)\n" LOOP_NUMBER "%c: i32[4] = argument() dtype=i32 dims=[4]\n"
          "%s: i32[4] = argument() dtype=i32 dims=[4]\n"
          "%d: i32[4] = add(%c, %s)\n"
          "%sum: i32[] = reduce_sum(%d) axes=[0]\n"
          "%on: bool[] = lt(%sum, %limit)\n"
          "%count: i64[], %last: i32[4], %all: i32[n, 4] = loop(%i, %c, %s, %go, %zero, %x, %on, %d, %d)"
          " trips=n carried=1 scanned=1 given=0 until=1 backward=2 body=0\n"
          "%behind: i32[(n + 3), 4] = concat(%all, %early) axis=0\n"
          "%both: i32[(2*n), 4] = concat(%all, %all) axis=0\n"
          "%beside: i32[n, 8] = concat(%all, %x) axis=1\n"
          "%more: i32[(n + 3), 4] = mul(%behind, %behind)\n"
          "%reads: i32[n, 4] = mul(%all, %all)\n"
          "output \"count\" = %count\noutput \"last\" = %last\noutput \"both\" = %both\n"
          "output \"beside\" = %beside\noutput \"reads\" = %reads\noutput \"more\" = %more\n",
          MOST);
    const ash_plan_options options = ash_plan_options_default();
    assert_ok(ash_plan_prepare(r->context, r->g, &options, &r->plan, &diag));
    const ash_program *p = r->plan->program;
    size_t views = 0;
    for (size_t s = 0; s < p->steps.len; s++)
        for (uint32_t i = 0; i < p->steps.at[s].n_buffers && p->steps.at[s].kind == ASH_STEP_LOOP; i++)
            views += p->buffers.at[p->steps.at[s].buffers[i]].root != ASH_NO_BUFFER;
    assert_int_equal(views, 1);
}

static const ash_program *prepare_model(struct room *r, const char *name) {
    const ash_onnx_options sizes = {.var_min = 1, .var_max = 8};
    const ash_plan_options options = ash_plan_options_default();
    char path[256];
    ash_graph *g;
    snprintf(path, sizeof path, "%s/tests/data/onnx/%s/model.onnx", ASH_SOURCE_DIR, name);
    assert_ok(ash_onnx_read(r->context, path, &sizes, &g, &diag));
    assert_ok(ash_plan_prepare(r->context, g, &options, &r->plan, &diag));
    ash_graph_destroy(g);
    return r->plan->program;
}

/* What a decoder appends to its states is written where it is to lie, and their rest is not touched. */
static void what_grows_is_written_in_place(void **state) {
    const ash_program *decoder = prepare_model(*state, "grown")->loops.at[0].body;
    assert_int_equal(decoder->updated, 4);
    assert_int_equal(decoder->copied, 0);
    assert_true(decoder->steps.len <= 20); /* with zeros as the rest, 4 more fill it */
}

/* What is left of states whose size changes is moved within their bytes, however much room there is. */
static void what_changes_moves_what_is_left(void **state) {
    /* copied are one of two states that change places, which is read for the other, and one that changes
     * along two dims */
    static const uint32_t copied[] = {0, 1, 0, 0, 1, 0, 0, 0};
    const ash_program *all = prepare_model(*state, "uneven");
    assert_int_equal(all->loops.len, ASH_COUNT(copied));
    for (size_t i = 0; i < ASH_COUNT(copied); i++)
        assert_int_equal(all->loops.at[i].body->copied, copied[i]);
}

/* Conditions that say no more than the number of iterations does are none, and what iterations give back
 * is not carried: the loops of the model in order, of which some end early. */
static void what_counts_steps_is_no_condition(void **state) {
    static const bool until[] = {false, true, true, false, true};
    struct room *r = *state;
    const ash_onnx_options sizes = {.var_min = 1, .var_max = 40};
    ash_graph *g;
    size_t found = 0;
    assert_ok(
        ash_onnx_read(r->context, ASH_SOURCE_DIR "/tests/data/onnx/counted/model.onnx", &sizes, &g, &diag));
    for (size_t n = 0; n < g->nodes.len; n++) {
        const ash_node *node = &g->nodes.at[n];
        if (node->op != ASH_OP_LOOP) continue;
        assert_true(found < ASH_COUNT(until));
        assert_int_equal(ash_node_int(node, ASH_ATTR_UNTIL), until[found++]);
        assert_int_equal(ash_node_int(node, ASH_ATTR_CARRIED), 3); /* a, h, b; t is the number */
    }
    assert_int_equal(found, ASH_COUNT(until));
    ash_graph_destroy(g);
}

/* --- what is refused ------------------------------------------------------------------------------ */

static void refused(void **state) {
    struct room *r = *state;
    static const char head[] =
        "graph \"bad\"\n%x: i32[4] = input \"x\"\n%z: i32[3, 4] = input \"z\"\n" LOOP_NUMBER
        "%c: i32[4] = argument() dtype=i32 dims=[4]\n"
        "%s: i32[4] = argument() dtype=i32 dims=[4]\n"
        "%d: i32[4] = add(%c, %s)\n";
    static const char loop[] = "%last: i32[4], %all: i32[3, 4] = loop(%i, %c, %s, %x, %z, %d, %d) trips=3 "
                               "carried=1 scanned=1 given=0 until=0 backward=0 body=0\n";
    static const struct {
        const char *rest, *want;
        bool added; /* it can be built, and is a defect of the whole */
    } cases[] = {
        {"%l: i32[4] = loop(%i, %c, %s, %x, %z, %d) trips=2 carried=1 scanned=1 given=0 until=0 backward=0 "
         "body=0\n",
         "is not `trips`", false},
        {"%n: i64[4] = cast(%d) dtype=i64\n%l: i32[4] = loop(%i, %c, %s, %x, %z, %n) trips=3 carried=1 "
         "scanned=1 "
         "given=0 until=0 backward=0 body=0\n",
         "differ in type", false},
        {"%l: i32[3] = loop(%i, %c, %s, %x, %z, %d) trips=3 carried=1 scanned=1 given=0 until=0 backward=0 "
         "body=0\n",
         "another type", false},
        {"%l: i32[4] = loop(%i, %c, %x, %z, %d) trips=3 carried=1 scanned=1 given=0 until=0 backward=0 "
         "body=0\n",
         "do not fit", false},
        {"%l: i32[4] = loop(%x, %z, %d) trips=3 carried=1 scanned=1 given=0 until=0 backward=0 body=1\n",
         "chooses such forms", false},
        {"output \"u\" = %d\n", "an output is in the body", true},
        {"%e: i32[4] = neg(%last)\n%f: i32[4] = add(%e, %c)\noutput \"f\" = %f\n",
         "used outside of its body", true},
        {"%k: i32[4] = loop(%i, %c, %s, %x, %z, %d) trips=3 carried=1 scanned=1 given=0 until=0 backward=0 "
         "body=0\n",
         "argument of another loop", true},
    };
    for (size_t i = 0; i < ASH_COUNT(cases); i++) {
        char text[2048];
        snprintf(text, sizeof text, "%s%s%soutput \"x\" = %%x\n", head, cases[i].added ? loop : "",
                 cases[i].rest);
        ash_graph_destroy(r->g);
        r->g = NULL;
        ash_status status = ash_graph_parse(r->context, text, strlen(text), &r->g, &diag);
        if (cases[i].added) {
            assert_status(status, ASH_OK);
            status = ash_graph_verify(r->g, &diag);
        }
        assert_true(status != ASH_OK);
        if (!strstr(diag.message, cases[i].want))
            fail_msg("case %zu: \"%s\" instead of \"%s\"", i, diag.message, cases[i].want);
    }
}

/* Sizes that depend on data, settled outside of a body that mentions them, or by each iteration; not where
 * one of an iteration is mentioned outside, which names who does. */
static void sizes_in_bodies(void **state) {
    struct room *r = *state;
    ash_plan_options options = ash_plan_options_default();
    char text[2048];
    static const char body[] =
        "%y: i32[4] = add(%c, %s)\n"
        "%last: i32[4] = loop(%i, %c, %zero, %y) trips=3 carried=1 scanned=0 given=0 "
        "until=0 backward=0 body=0 @\"unsized\"\noutput \"last\" = %last\n";
    static const char *const sums[] = {
        "%settled: i64[] = settle(%k) n=m\n%p: i32[m, 4] = slice(%x) starts=[0, 0] steps=[1, 1] dims=[m, "
        "4]\n" LOOP_NUMBER "%c: i32[4] = argument() dtype=i32 dims=[4]\n"
        "%b: i32[4] = argument() dtype=i32 dims=[4]\n"
        "%j: i64[1] = reshape(%i) dims=[1]\n%w: i32[1, 4] = gather(%p, %j) axis=0\n"
        "%s: i32[4] = reshape(%w) dims=[4]\n",
        LOOP_NUMBER
        "%c: i32[4] = argument() dtype=i32 dims=[4]\n"
        "%settled: i64[] = settle(%i) n=m\n%p: i32[m, 4] = slice(%x) starts=[0, 0] steps=[1, 1] "
        "dims=[m, 4]\n"
        "%s: i32[4] = reduce_sum(%p) axes=[0]\n"};
    for (size_t i = 0; i < ASH_COUNT(sums); i++) {
        snprintf(
            text, sizeof text,
            "graph \"sizes\"\nvar m settled 5\n%%x: i32[5, 4] = input \"x\"\n%%k: i64[] = input \"k\"\n"
            "%%zero: i32[4] = constant {0, 0, 0, 0}\n%s%s",
            sums[i], body);
        parse(r, text);
        assert_ok(ash_plan_prepare(r->context, r->g, &options, &r->plan, &diag));
        int32_t x[20];
        const void *sum;
        const ash_view *view;
        for (int e = 0; e < 20; e++) x[e] = 1 << e;
        for (int64_t rows = 0; rows < 5; rows += 2) {
            assert_ok(ash_plan_set_input(r->plan, 0, NULL, x, sizeof x, &diag));
            assert_ok(ash_plan_set_input(r->plan, 1, NULL, &rows, sizeof rows, &diag));
            assert_ok(ash_plan_execute(r->plan, &diag));
            assert_ok(ash_plan_output(r->plan, 0, &view, &diag));
            assert_ok(ash_view_data(view, &sum, &diag));
            for (int e = 0; e < 4 && (i || rows); e++) {
                int second = rows > 1 ? 4 : 0, third = rows > 2 ? 8 : second;
                int want = i ? 2 * x[e] + x[4 + e] : x[e] + x[second + e] + x[third + e];
                assert_int_equal(((const int32_t *)sum)[e], want);
            }
        }
    }
    snprintf(text, sizeof text,
             "graph \"sizes\"\nvar m settled 5\n%%x: i32[5, 4] = input \"x\"\n%%k: i64[] = input \"k\"\n"
             "%%zero: i32[4] = constant {0, 0, 0, 0}\n%s%s"
             "%%o: i64[m] = iota() dtype=i64 dims=[m] axis=0 @\"beyond\"\noutput \"o\" = %%o\n",
             sums[1], body);
    parse(r, text);
    assert_true(ash_graph_verify(r->g, &diag) != ASH_OK);
    assert_string_equal(diag.node, "beyond");
    assert_non_null(strstr(diag.message, "the size m is found in the body of a loop"));
}

enum { FOUND = 6 };

/* In the body of the loop in it: i32[4] of the rows of a table that are fewer than an element says. */
static ash_value rows_below(ash_graph *g, ash_value element, ash_value table, ash_value sum) {
    ash_dim k = ash_settle(g, "k", ash_cast(g, element, ASH_I64), FOUND);
    ash_value rows = ash_slice_axis(g, table, 0, 0, k);
    return ash_add(g, sum, ash_reduce(g, ASH_OP_REDUCE_SUM, rows, (const int64_t[]){0}, 1, false));
}

/* Each iteration finds which elements of its row are above 0, and calls a function with them; for each of
 * them, a loop in it finds how many rows of a table it sums. */
static void make_finding(struct room *r, bool until, counted *one) {
    ash_graph *g;
    if (one) add_function(r->context, "one", plus_one, one, true);
    ash_plan_destroy(r->plan);
    ash_graph_destroy(r->g);
    r->plan = NULL;
    assert_ok(ash_graph_create(r->context, "finding", &r->g, &diag));
    g = r->g;
    ash_dim n = ash_graph_var(g, "n", 0, MOST);
    ash_value x = ash_graph_input(g, "x", &(ash_type){ASH_I32, 2, {n, FOUND}}),
              init = ash_graph_input(g, "init", &(ash_type){ASH_I32, 1, {4}}),
              zero = ash_scalar(g, ASH_I32, 0),
              table = ash_graph_input(g, "table", &(ash_type){ASH_I32, 2, {FOUND, 4}});
    ash_value outer[3], inner[3], next, sum, ys[2], outs[4], count, end;
    ash_loop loop = {.trips = n,
                     .carried = 1,
                     .scanned = 1,
                     .stacked = 2,
                     .go = until ? ash_scalar(g, ASH_BOOL, 1) : ASH_NO_VALUE,
                     .init = &init,
                     .xs = &x,
                     .arguments = outer,
                     .next = &next,
                     .ys = ys};
    assert_true(ash_build__begin_loop(g, &loop));
    ash_value at = ash_nonzero(g, ash_lt(g, zero, outer[2]), &count);
    ash_dim m = ash_settle(g, "m", count, FOUND);
    ash_value found = ash_gather(g, outer[2], ash_slice_axis(g, at, 0, 0, m), 0),
              more = ash_cast(g, found, ASH_F32);
    ash_type type = *ash_graph_type(g, more);
    assert_ok(ash_custom(g, "one", &more, 1, &type, 1, NULL, &more));
    more = ash_cast(g, more, ASH_I32);
    ash_loop within = {.trips = m,
                       .carried = 1,
                       .scanned = 1,
                       .go = ASH_NO_VALUE,
                       .init = &outer[1],
                       .xs = &more,
                       .arguments = inner,
                       .next = &sum};
    assert_true(ash_build__begin_loop(g, &within));
    sum = rows_below(g, inner[2], table, inner[1]);
    assert_ok(ash_build__end_loop(g, &within, &end));
    next = ash_sub(g, end, ash_reduce(g, ASH_OP_REDUCE_SUM, more, (const int64_t[]){0}, 1, false));
    ys[0] = ash_neg(g, end);
    ys[1] = count;
    loop.next_go = ash_lt(g, ash_reduce(g, ASH_OP_REDUCE_MAX, next, (const int64_t[]){0}, 1, false),
                          ash_scalar(g, ASH_I32, 20));
    assert_ok(ash_build__end_loop(g, &loop, outs));
    ash_graph_output(g, "last", outs[until]);
    ash_graph_output(g, "ends", ash_neg(g, outs[until + 1]));
    ash_graph_output(g, "counts", outs[until + 2]);
    assert_ok(ash_graph_status(g, &diag));
}

static void found_in_bodies(void **state) {
    static counted one; /* the context releases it */
    for (int until = 0; until < 2; until++) {
        make_finding(*state, until, until ? NULL : &one);
        agree_here(*state, MOST);
    }
}

/* A function in a body fails, or turns the switch on: what is behind it is left out, it says why, and the
 * plan goes on. */
static void functions_in_bodies_stop(void **state) {
    struct room *r = *state;
    static counted one = {.status = ASH_ERROR_OUT_OF_RANGE, .why = "that is enough"};
    ash_cancel cancel = {0};
    make_finding(r, false, &one);
    for (size_t w = 0; w < ASH_COUNT(ways); w++) {
        ash_plan_options options = options_of(&ways[w]);
        options.progress.cancel = &cancel;
        assert_ok(ash_plan_prepare(r->context, r->g, &options, &r->plan, &diag));
        for (int at = 1; at <= MOST; at += 4) {
            compare(r, r->plan, MOST, at);
            one.fail_at = one.calls + at;
            assert_status(ash_plan_execute(r->plan, &diag), ASH_ERROR_OUT_OF_RANGE);
            assert_non_null(strstr(diag.message, "that is enough"));
            assert_int_equal(one.calls, one.fail_at);
        }
        int calls = one.calls;
        one.cancel = &cancel;
        assert_status(ash_plan_execute(r->plan, &diag), ASH_ERROR_CANCELLED);
        assert_int_equal(one.calls, calls + 1);
        one.cancel = NULL;
        ash_cancel_set(&cancel, false);
        compare(r, r->plan, MOST, 2);
        ash_plan_destroy(r->plan);
        r->plan = NULL;
    }
}

/* --- stopping, and failures ----------------------------------------------------------------------- */

static bool turn_on(void *user, ash_stage stage, uint64_t done, uint64_t total) {
    (void)user, (void)stage, (void)done, (void)total;
    return true;
}

static void *switch_later(void *user) {
    struct timespec some = {.tv_nsec = 20000000};
    nanosleep(&some, NULL);
    ash_cancel_set(user, true);
    return NULL;
}

/* A loop that never ends by itself, in every mode. */
static void cancelled(void **state) {
    struct room *r = *state;
    parse(r,
          "graph \"forever\"\n"
          "%x: i32[4] = input \"x\"\n"
          "%on: bool[] = constant {1}\n"
          "%one: i32[4] = constant {1, 1, 1, 1}\n" LOOP_NUMBER
          "%c: i32[4] = argument() dtype=i32 dims=[4]\n"
          "%d: i32[4] = add(%c, %one)\n"
          "%n: i64[], %last: i32[4] = loop(%i, %c, %on, %x, %on, %d) trips=2147483647 carried=1 scanned=0"
          " given=0 until=1 backward=0 body=0 @\"forever\"\n"
          "%y: i32[4] = neg(%last)\n"
          "output \"y\" = %y\noutput \"n\" = %n\n");
    for (size_t w = 0; w < ASH_COUNT(ways); w++) {
        ash_cancel cancel = {0};
        pthread_t thread;
        static const int32_t x[4];
        ash_plan_options options = options_of(&ways[w]);
        options.progress = (ash_progress){.cancel = &cancel, .report = turn_on};
        assert_ok(ash_plan_prepare(r->context, r->g, &options, &r->plan, &diag));
        assert_ok(ash_plan_set_input(r->plan, 0, NULL, x, sizeof x, &diag));
        assert_int_equal(pthread_create(&thread, NULL, switch_later, &cancel), 0);
        assert_status(ash_plan_execute(r->plan, &diag), ASH_ERROR_CANCELLED);
        pthread_join(thread, NULL);
        ash_plan_destroy(r->plan);
        r->plan = NULL;
    }
}

/* Every allocation of reading, splitting, evaluating and lowering fails once. */
static void failed_allocations(void **state) {
    struct room *r = *state;
    const ash_allocator *a = ash_context__allocator(r->context);
    char text[2048];
    int64_t vars[] = {3};
    ash_wide in[2], want[3];
    ash_target target;
    assert_ok(ash_target__named("x86-64-v3", &target, &diag));
    snprintf(text, sizeof text,
             "%s5 body=0\noutput \"last\" = %%last\noutput \"all\" = %%all\n"
             "output \"back\" = %%back\n",
             loop_cumulate);
    assert_ok(ash_wide_alloc(a, ASH_I32, 2, (const int64_t[]){3, 4}, &in[0], &diag));
    assert_ok(ash_wide_alloc(a, ASH_I32, 1, (const int64_t[]){4}, &in[1], &diag));
    fill(&in[0], 0, 0);
    fill(&in[1], 1, 0);
    long long live = r->memory.live;
    for (long fail = 1;; fail++) {
        ash_graph *g = NULL;
        ash_program *p = NULL;
        r->memory.fail_at = r->memory.count + fail;
        ash_status status = ash_graph_parse(r->context, text, strlen(text), &g, &diag);
        if (status == ASH_OK) {
            status = ash_eval_graph(g, in, vars, ASH_EVAL_DTYPE, want, &diag);
            for (int i = 0; status == ASH_OK && i < 3; i++) ash_wide_free(a, &want[i]);
        }
        if (status == ASH_OK) status = ash_program__lower(g, &target, NULL, &p, &diag);
        ash_program__free(p);
        ash_graph_destroy(g);
        r->memory.fail_at = 0;
        assert_int_equal(r->memory.live, live);
        if (status == ASH_OK) break;
        assert_status(status, ASH_ERROR_OUT_OF_MEMORY);
    }
    ash_wide_free(a, &in[0]);
    ash_wide_free(a, &in[1]);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(summed, setup, teardown),
        cmocka_unit_test_setup_teardown(round_trip, setup, teardown),
        cmocka_unit_test_setup_teardown(swapped, setup, teardown),
        cmocka_unit_test_setup_teardown(until, setup, teardown),
        cmocka_unit_test_setup_teardown(branch, setup, teardown),
        cmocka_unit_test_setup_teardown(nested, setup, teardown),
        cmocka_unit_test_setup_teardown(same_bits, setup, teardown),
        cmocka_unit_test_setup_teardown(what_is_stacked_has_its_place, setup, teardown),
        cmocka_unit_test_setup_teardown(what_grows_is_written_in_place, setup, teardown),
        cmocka_unit_test_setup_teardown(what_changes_moves_what_is_left, setup, teardown),
        cmocka_unit_test_setup_teardown(what_counts_steps_is_no_condition, setup, teardown),
        cmocka_unit_test_setup_teardown(refused, setup, teardown),
        cmocka_unit_test_setup_teardown(sizes_in_bodies, setup, teardown),
        cmocka_unit_test_setup_teardown(found_in_bodies, setup, teardown),
        cmocka_unit_test_setup_teardown(functions_in_bodies_stop, setup, teardown),
        cmocka_unit_test_setup_teardown(cancelled, setup, teardown),
        cmocka_unit_test_setup_teardown(failed_allocations, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
