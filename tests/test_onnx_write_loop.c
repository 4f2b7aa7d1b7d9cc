/* SPDX-License-Identifier: MIT */
/* Loops in written models: what is read again gives the same results, is as many loops as there were, with
 * the same dims, and as lazy. (tools/written.py holds written models against onnxruntime.) */
#include "onnx_round.h"

#include "ashlar/builder.h"
#include "ashlar/train.h"
#include "base/text.h"
#include "ir/build.h"
#include "loop_text.h"

static ash_graph *parse(const char *text) {
    ash_graph *graph;
    assert_ok(ash_graph_parse(context, text, strlen(text), &graph, &diag));
    return graph;
}

static size_t count(const ash_graph *graph, ash_op op) {
    size_t n = 0;
    for (size_t i = 0; i < graph->nodes.len; i++) n += graph->nodes.at[i].op == op;
    return n;
}

static const ash_node *first_loop(const ash_graph *graph) {
    size_t i = 0;
    while (graph->nodes.at[i].op != ASH_OP_LOOP) i++;
    return &graph->nodes.at[i];
}

/* Whether the file has an operator, by its name: a field of a node. */
static bool has(const char *path, const char *op) {
    static char bytes[1 << 16];
    char field[16];
    FILE *f = fopen(path, "rb");
    assert_non_null(f);
    size_t len = fread(bytes, 1, sizeof bytes, f), want = strlen(op) + 2;
    assert_true(len < sizeof bytes);
    fclose(f);
    snprintf(field, sizeof field, "\x22%c%s", (char)strlen(op), op);
    for (size_t i = 0; i + want <= len; i++)
        if (!memcmp(bytes + i, field, want)) return true;
    return false;
}

/* The text is written as `op`, and what is read has as many loops, as many variables and outputs of the
 * same dims; both agree for values of the variable from `least` to `most`. */
static void agree_from(const char *text, const char *op, int64_t least, int64_t most) {
    ash_graph *g = parse(text), *back;
    assert_ok(ash_onnx_write(g, in_folder("m.onnx"), NULL, &diag));
    if (!has(in_folder("m.onnx"), op)) fail_msg("no %s is written", op);
    back = written_and_read(g, NULL, least);
    assert_int_equal(count(back, ASH_OP_LOOP), count(g, ASH_OP_LOOP));
    assert_int_equal(ash_graph_var_count(back), ash_graph_var_count(g));
    for (size_t i = 0; i < g->outputs.len; i++) {
        ash_text texts[2];
        const ash_graph *graphs[] = {g, back};
        for (int k = 0; k < 2; k++) {
            ash_text_init(&texts[k], &ash_allocator__libc);
            ash_type_print(graphs[k]->dims, ash_graph__type(graphs[k], graphs[k]->outputs.at[i].value),
                           &texts[k]);
        }
        assert_string_equal(texts[0].at, texts[1].at);
        for (int k = 0; k < 2; k++) ash_text_free(&texts[k]);
    }
    for (int64_t var = least; var <= most; var++) assert_same_results(g, back, var);
    ash_graph_destroy(back);
    ash_graph_destroy(g);
}

/* The same where there may be no iteration, and where there is one at least, which is written as `op`. */
static void agree(const char *text, const char *op, int64_t most) {
    char from_one[8192];
    agree_from(text, "Loop", 0, most);
    snprintf(from_one, sizeof from_one, "%s", text);
    *strstr(from_one, "var n 0") = 0;
    snprintf(from_one + strlen(from_one), sizeof from_one - strlen(from_one), "var n 1%s",
             strstr(text, "var n 0") + strlen("var n 0"));
    agree_from(from_one, op, 1, most);
}

static void counted(void **state) {
    (void)state;
    static const char all[] =
        "$$ body=0 @\"sum\"\noutput \"last\" = %last\noutput \"t5\" = %all\noutput \"v12\" = %back\n";
    for (char backward[] = "0"; backward[0] < '8'; backward[0]++)
        agree(loop_text(all, (const char *const[]){loop_cumulate, backward}), "Scan", 9);
    /* nobody asks for the number, for what is stacked, for the last value */
    static const char *const asked[] = {"\"last\" = %last", "\"all\" = %all", "\"back\" = %back"};
    for (size_t i = 0; i < ASH_COUNT(asked); i++)
        agree(loop_text("$5 body=0\noutput $\n", (const char *const[]){loop_cumulate, asked[i]}), "Scan",
              4);
}

/* Carried values that change places, one that stays, one from outside, some of them stacked as well; no
 * slices, or one. */
static void swapped(void **state) {
    (void)state;
    for (int slices = 0; slices < 2; slices++) {
        static const char text[] =
            "graph \"swap\"\n"
            "var n 0 5\n"
            "%x: i32[4] = input \"x\"\n"
            "%y: i32[4] = input \"y\"\n"
            "%z: i32[n] = input \"z\"\n" LOOP_NUMBER "%a: i32[4] = argument() dtype=i32 dims=[4]\n"
            "%b: i32[4] = argument() dtype=i32 dims=[4]\n"
            "%c: i32[4] = argument() dtype=i32 dims=[4]\n"
            "%d: i32[4] = argument() dtype=i32 dims=[4]\n"
            "$"
            "%s: i32[4] = add(%a, %b)\n"
            "%p: i32[4], %q: i32[4], %r: i32[4], %t: i32[4], %all: i32[n, 4], %olds: i32[n, 4], "
            "%ys: i32[n, 4] = loop(%i, %a, %b, %c, %d$, %x, %y, %x, %y$, %b, %s, %c, %y, "
            "%s, %a, %y)"
            " trips=n carried=4 scanned=$ given=0 until=0 backward=2 body=0\n"
            "output \"p\" = %p\noutput \"q\" = %q\noutput \"r\" = %r\noutput \"t\" = %t\n"
            "output \"all\" = %all\noutput \"olds\" = %olds\noutput \"ys\" = %ys\n";
        const char *const parts[] = {slices ? "%e: i32[] = argument() dtype=i32 dims=[]\n" : "",
                                     slices ? ", %e" : "", slices ? ", %z" : "", slices ? "1" : "0"};
        agree(loop_text(text, parts), slices ? "Scan" : "Loop", 5);
    }
}

/* Ends when a sum is large enough, which may be at once or never: zeros from there on. at the end, what is
 * asked for. */
static const char ends[] =
    "graph \"until\"\n"
    "var n 0 9\n"
    "$"
    "%x: i32[n, 4] = input \"x\"\n"
    "%k: i32[] = input \"k\"\n"
    "%zero: i32[4] = constant {0, 0, 0, 0}\n"
    "%limit: i32[] = constant {9}\n"
    "%one: i32[] = constant {1}\n"
    "%go: bool[] = lt(%k, %one)\n" LOOP_NUMBER LOOP_CARRIED(c)
        LOOP_CARRIED(e) "%a: i32[4] = abs(%e)\n"
                        "%d: i32[4] = add(%c, %a)\n"
                        "%sum: i32[] = reduce_sum(%d) axes=[0]\n"
                        "%on: bool[] = lt(%sum, %limit)\n"
                        "%count: i64[], %last: i32[4], %all: i32[n, 4], %again: i32[n, 4] ="
                        " loop(%i, %c, %e, %go, %zero, %x, %on, %d, %d, %e)"
                        " trips=n carried=1 scanned=1 given=0 until=1 backward=$ body=0 @\"until\"\n$";

static void until(void **state) {
    (void)state;
    static const char *const asked[] = {
        "output \"last\" = %last\n",
        "output \"last\" = %last\noutput \"count\" = %count\n",
        "output \"all\" = %all\noutput \"again\" = %again\n",
        "output \"count\" = %count\noutput \"all\" = %all\n",
        "%n: i64[] = settle(%count) n=s\n%found: i32[s, 4] = slice(%all) starts=[0, 0] steps=[1, 1] "
        "dims=[s, 4]\n"
        "%twice: i32[s, 4] = add(%found, %found)\noutput \"twice\" = %twice\n",
    };
    for (size_t i = 0; i < ASH_COUNT(asked); i++) {
        for (char backward[] = "0"; backward[0] < '8'; backward[0] = (char)(backward[0] + 3)) {
            bool settles = strstr(asked[i], "settle") != NULL;
            ash_graph *g, *back;
            const char *const parts[] = {settles ? "var s settled n\n" : "", backward, asked[i]};
            g = parse(loop_text(ends, parts));
            back = written_and_read(g, NULL, 0);
            assert_int_equal(count(back, ASH_OP_LOOP), 1);
            for (int64_t var = 0; var <= 9; var++) assert_same_results(g, back, var);
            ash_graph_destroy(back);
            ash_graph_destroy(g);
        }
    }
}

/* Nothing bounds it but its condition. */
static void unbounded(void **state) {
    (void)state;
    agree_from("graph \"unbounded\"\n"
               "%x: i32[4] = input \"x\"\n"
               "%limit: i32[] = constant {900}\n"
               "%go: bool[] = constant {1}\n"
               "%one: i32[4] = constant {1, 2, 3, 4}\n" LOOP_NUMBER LOOP_CARRIED(
                   c) "%d: i32[4] = add(%c, %one)\n"
                      "%sum: i32[] = reduce_sum(%d) axes=[0]\n"
                      "%on: bool[] = lt(%sum, %limit)\n"
                      "%count: i64[], %last: i32[4] = loop(%i, %c, %go, %x, %on, %d)"
                      " trips=2147483647 carried=1 scanned=0 given=0 until=1 backward=0 body=0\n"
                      "output \"last\" = %last\n",
               "Loop", 0, 0);
}

/* At most one iteration over values from outside: a branch, of which nothing is computed where it is not
 * taken. */
static void branch(void **state) {
    (void)state;
    static const char text[] =
        "graph \"branch\"\n"
        "%x: i32[3, 4] = input \"x\"\n"
        "%k: i32[] = input \"k\"\n"
        "%one: i32[] = constant {1}\n"
        "%off: bool[] = constant {0}\n"
        "%go: bool[] = lt(%k, %one)\n"
        "%y: i32[3, 4] = add(%x, %x)\n"
        "%first: i32[3] = constant {7, 8, 9}\n" LOOP_NUMBER "%c: i32[3] = argument() dtype=i32 dims=[3]\n"
        "%g: i32[3, 4] = argument() dtype=i32 dims=[3, 4]\n"
        "%t: i32[4, 3] = transpose(%g) perm=[1, 0]\n"
        "%p: i32[4, 4] = matmul(%t, %g) b_block=0 n=0\n"
        "%s: i32[3] = reduce_sum(%g) axes=[1]\n"
        "%j: i32[] = cast(%i) dtype=i32\n"
        "%js: i32[3] = broadcast(%j) dims=[3]\n"
        "%d: i32[3] = add(%c, %s)\n"
        "%e: i32[3] = add(%d, %js)\n"
        "%count: i64[], %end: i32[3], %all: i32[1, 4, 4] = loop(%i, %c, %g, %go, %first, %y, %off, %e, %p)"
        " trips=1 carried=1 scanned=0 given=1 until=1 backward=0 body=0 @\"branch\"\n"
        "output \"count\" = %count\noutput \"all\" = %all\noutput \"end\" = %end\noutput \"y\" = %y\n";
    ash_graph *g = parse(text);
    for (int again = 0; again < 2; again++) {
        assert_ok(ash_onnx_write(g, in_folder("m.onnx"), NULL, &diag));
        assert_true(has(in_folder("m.onnx"), "If"));
        ash_graph *back = written_and_read(g, NULL, 0);
        assert_same_results(g, back, 0);
        assert_int_equal(count(back, ASH_OP_LOOP), 1);           /* what is not taken computes nothing */
        assert_true(ash_node__loop(first_loop(back)).given > 0); /* the product is inside */
        ash_graph_destroy(g);
        g = back;
    }
    ash_graph_destroy(g);
}

static void nested(void **state) {
    (void)state;
    for (int until = 0; until < 2; until++) agree(loop_nested(until), until ? "Loop" : "Scan", 5);
}

/* What gradients ask of a loop's body is stacked for them. */
static void gradients(void **state) {
    (void)state;
    ash_graph *g, *back;
    assert_ok(ash_graph_create(context, "gradients", &g, &diag));
    ash_dim n = ash_graph_var(g, "n", 1, 64);
    const ash_type sequence = {.dtype = ASH_F32, .rank = 2, .dims = {n, 3}},
                   row = {.dtype = ASH_F32, .rank = 1, .dims = {3}};
    ash_value x = ash_graph_input(g, "x", &sequence), h = ash_graph_input(g, "h", &row), arguments[3], next,
              outs[2];
    const ash_loop loop = {.trips = n,
                           .carried = 1,
                           .scanned = 1,
                           .stacked = 1,
                           .go = ASH_NO_VALUE,
                           .init = &h,
                           .xs = &x,
                           .arguments = arguments,
                           .next = &next,
                           .ys = &next};
    assert_true(ash_build__begin_loop(g, &loop));
    next = ash_tanh(
        g, ash_mul(g, ash_exp(g, ash_mul(g, arguments[1], ash_scalar(g, ASH_F32, 0.25))), arguments[2]));
    assert_ok(ash_build__end_loop(g, &loop, outs));
    ash_value loss = ash_reduce_sum(g, ash_mul(g, outs[1], outs[1]), (int64_t[]){0, 1}, 2, false), grads[2];
    const ash_value xs[] = {x, h};
    assert_ok(ash_graph_gradients(g, &loss, NULL, 1, xs, 2, NULL, grads, &diag));
    ash_graph_output(g, "loss", loss);
    ash_graph_output(g, "dx", grads[0]);
    ash_graph_output(g, "dh", grads[1]);
    back = written_and_read(g, NULL, 1);
    assert_int_equal(count(back, ASH_OP_LOOP), 2);
    for (int64_t var = 1; var < 20; var += 6) assert_same_results(g, back, var);
    ash_graph_destroy(back);
    ash_graph_destroy(g);
}

/* Sizes that depend on data, and what was begun and is of no use. */
static void found(void **state) {
    (void)state;
    ash_graph *g = parse("graph \"found\"\n"
                         "var n 0 64\n"
                         "var s settled (3*n)\n"
                         "var r settled 2\n"
                         "%x: f32[n, 3] = input \"x\"\n"
                         "%k: i64[] = input \"k\"\n"
                         "%zero: f32[] = constant {0}\n" LOOP_NUMBER "%gone: i64[] = neg(%i)\n"
                         "%zeros: f32[n, 3] = broadcast(%zero) dims=[n, 3]\n"
                         "%mask: bool[n, 3] = lt(%zeros, %x)\n"
                         "%at: i64[(3*n)], %count: i64[] = nonzero(%mask)\n"
                         "%c: i64[] = settle(%count) n=s\n"
                         "%few: i64[] = settle(%k) n=r\n"
                         "%where: i64[s] = slice(%at) starts=[0] steps=[1] dims=[s]\n"
                         "%line: f32[(3*n)] = reshape(%x) dims=[(3*n)]\n"
                         "%those: f32[s] = gather(%line, %where) axis=0\n"
                         "%squares: f32[s, r] = broadcast(%zero) dims=[s, r]\n"
                         "output \"those\" = %those\noutput \"at\" = %at\noutput \"count\" = %count\n"
                         "output \"few\" = %few\noutput \"squares\" = %squares\n");
    ash_graph *back = written_and_read(g, NULL, 0);
    assert_int_equal(ash_graph_var_count(back), 3);
    for (int64_t var = 0; var < 7; var++) assert_same_results(g, back, var);
    ash_graph_destroy(back);
    ash_graph_destroy(g);
}

/* What is chosen among boxes, of several batches and classes. */
static void chosen(void **state) {
    (void)state;
    ash_graph *g =
        parse("graph \"chosen\"\n"
              "%a: f32[2, 6, 2] = input \"a\"\n"
              "%b: f32[2, 6, 2] = input \"b\"\n"
              "%scores: f32[2, 3, 6] = input \"scores\"\n"
              "%size: f32[2, 6, 2] = abs(%b)\n"
              "%high: f32[2, 6, 2] = add(%a, %size)\n"
              "%boxes: f32[2, 6, 4] = concat(%a, %high) axis=2\n"
              "%overlap: f32[] = constant {0.1}\n"
              "%least: f32[] = constant {-0.5}\n"
              "%at: i64[2, 3, 4], %count: i64[2, 3] = nms(%boxes, %scores, %overlap, %least) k=4\n"
              "output \"at\" = %at\noutput \"count\" = %count\n");
    ash_graph *back = written_and_read(g, NULL, 0);
    assert_same_results(g, back, 0);
    ash_graph_destroy(back);
    ash_graph_destroy(g);
}

static ash_status nothing(void *user, const ash_call *call, ash_diag *out) {
    return (void)user, (void)call, (void)out, ASH_OK;
}

/* The node is named, also one of a body; nobody minds what is not needed. */
static void refusals(void **state) {
    (void)state;
    static const char head[] =
        "graph \"bad\"\n%x: f32[4] = input \"x\"\n" LOOP_NUMBER
        "%c: f32[4] = argument() dtype=f32 dims=[4]\n"
        "%s: f32[4] = custom(%c) function=\"nothing\" chunks=1 scratch=0 duration=0 @\"mine\"\n"
        "%last: f32[4], %all: f32[9, 4] = loop(%i, %c, %x, %c, %s)"
        " trips=9 carried=1 scanned=0 given=0 until=0 backward=0 body=0\n";
    const ash_function function = {
        .size = sizeof function, .name = "nothing", .run = nothing, .pure = true};
    assert_ok(ash_context_add_function(context, &function, &diag));
    for (int needed = 0; needed < 2; needed++) {
        const char *const parts[] = {head, needed ? "%all" : "%last"};
        ash_graph *g = parse(loop_text("$output \"y\" = $\n", parts));
        assert_status(ash_onnx_check(g, &diag), needed ? ASH_ERROR_UNSUPPORTED : ASH_OK);
        if (needed) {
            assert_string_equal(diag.node, "mine");
            assert_non_null(strstr(diag.message, "\"nothing\""));
            assert_status(ash_onnx_write(g, in_folder("m.onnx"), NULL, &diag), ASH_ERROR_UNSUPPORTED);
            assert_int_not_equal(access(in_folder("m.onnx"), F_OK), 0);
        }
        ash_graph_destroy(g);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(counted),   cmocka_unit_test(swapped), cmocka_unit_test(until),
        cmocka_unit_test(unbounded), cmocka_unit_test(branch),  cmocka_unit_test(nested),
        cmocka_unit_test(gradients), cmocka_unit_test(found),   cmocka_unit_test(chosen),
        cmocka_unit_test(refusals),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
