/* SPDX-License-Identifier: MIT */
/* Slices whose bounds are computed: every pair of the bounds below, over sizes that are numbers and sizes
 * that are variables, against the specification's words. And scales that are quotients of such sizes. */

#include "ashlar/onnx.h"
#include "ashlar/reference.h"
#include "base/base.h"
#include "one_context.h"
#include "onnx_bytes.h"

static ash_diag diag;

/* --- bounds --------------------------------------------------------------------------------------- */

/* Words in postfix order: n (the size of x), m (the size of t), a number, or an operator on the last two.
 * */
static const char *const bounds[] = {
    "0",         "2",         "-1",        "-3",    "100",   "-100",   "9223372036854775807",
    "m",         "0 m -",     "n m -",     "m n -", "n 1 -", "m -1 *", "m 3 - 2 /",
    "0 m - 2 %", "m 2 * n <", "0 m - 3 >", "3 m -",
};

static const struct operation {
    char word;
    const char *op;
} operations[] = {{'+', "Add"}, {'-', "Sub"}, {'*', "Mul"}, {'/', "Div"},
                  {'%', "Mod"}, {'<', "Min"}, {'>', "Max"}};

static const struct operation *operation(const char *word) {
    for (size_t i = 0; i < ASH_COUNT(operations) && word[1] == 0; i++)
        if (operations[i].word == word[0]) return &operations[i];
    return NULL;
}

static int64_t apply(char op, int64_t a, int64_t b) {
    switch (op) {
    case '+': return a + b;
    case '-': return a - b;
    case '*': return a * b;
    case '/': return a / b;
    case '%': return (a % b + b) % b;
    case '<': return ASH_MIN(a, b);
    default: return ASH_MAX(a, b);
    }
}

static int64_t value_of(const char *bound, int64_t n, int64_t m) {
    char text[64], *rest = text;
    int64_t stack[8];
    size_t top = 0;
    snprintf(text, sizeof text, "%s", bound);
    for (const char *word; (word = strsep(&rest, " "));) {
        const struct operation *op = operation(word);
        if (op)
            top--, stack[top - 1] = apply(op->word, stack[top - 1], stack[top]);
        else
            stack[top++] = *word == 'n' ? n : *word == 'm' ? m : strtoll(word, NULL, 10);
    }
    return stack[0];
}

static void put_number(bytes *graph, const char *name, int64_t number) {
    static const int64_t one[] = {1};
    bytes tensor = make_tensor(name, 7, one, 1, &number, sizeof number);
    put_message(graph, 5, &tensor);
}

/* Nodes that compute the bound under the name `prefix`, one letter. */
static void put_bound(bytes *graph, const char *bound, char prefix) {
    char text[64], names[8][4], *rest = text;
    size_t top = 0;
    int made = 0;
    snprintf(text, sizeof text, "%s", bound);
    for (const char *word; (word = strsep(&rest, " "));) {
        const struct operation *op = operation(word);
        char name[4] = {prefix, (char)('a' + made++), 0, 0};
        bytes node = {.len = 0};
        if (op) {
            top -= 2;
            node = make_node(NULL, op->op, names[top], names[top + 1], name);
        } else if (*word == 'n' || *word == 'm') {
            node = make_node(NULL, "Shape", *word == 'n' ? "x" : "t", NULL, name);
        } else {
            put_number(graph, name, strtoll(word, NULL, 10));
        }
        if (node.len) put_message(graph, 1, &node);
        memcpy(names[top++], name, sizeof name);
    }
    bytes last = make_node(NULL, "Identity", names[0], NULL, (char[]){prefix, 0});
    put_message(graph, 1, &last);
}

/* --- Slice ---------------------------------------------------------------------------------------- */

enum { MOST = 7 };

/* y = x[s:e:step], x f32[n], t f32[m]. */
static bytes make_slice(const char *start, const char *end, int64_t step, int64_t n, int64_t m) {
    bytes graph = {.len = 0}, node = {.len = 0};
    bytes x = make_info("x", &n, 1), t = make_info("t", &m, 1), y = make_info("y", NULL, 0);
    put_message(&graph, 11, &x);
    put_message(&graph, 11, &t);
    put_bound(&graph, start, 's');
    put_bound(&graph, end, 'e');
    put_number(&graph, "axes", 0);
    put_number(&graph, "steps", step);
    static const char *const ins[] = {"x", "s", "e", "axes", "steps"};
    for (size_t i = 0; i < ASH_COUNT(ins); i++) put_text(&node, 1, ins[i]);
    put_text(&node, 2, "y");
    put_text(&node, 4, "Slice");
    put_message(&graph, 1, &node);
    put_message(&graph, 12, &y);
    return make_model(&graph, 18);
}

/* The specification: negative bounds count from the end; then starts are cut to [0, n], or to [0, n - 1]
 * for a negative step, and ends to [0, n], or to [-1, n - 1]. */
static size_t expected(int64_t start, int64_t end, int64_t step, int64_t n, double *out) {
    size_t count = 0;
    if (start < 0) start += n;
    if (end < 0) end += n;
    int64_t low = step < 0 ? -1 : 0, high = step < 0 ? n - 1 : n;
    start = ASH_MAX(ASH_MIN(start, high), 0);
    end = ASH_MAX(ASH_MIN(end, high), low);
    step = ASH_MAX(ASH_MIN(step, MOST), -MOST); /* more takes one element as well */
    for (int64_t i = start; n && (step > 0 ? i < end : i > end); i += step) out[count++] = (double)i;
    return count;
}

static void check_slice(const ash_graph *graph, const char *start, const char *end, int64_t step, int64_t n,
                        int64_t m) {
    static const float data[MOST] = {0, 1, 2, 3, 4, 5, 6};
    const void *ins[] = {data, data};
    const char *const names[] = {"n", "m"};
    const int64_t values[] = {n, m};
    double want[MOST];
    size_t count, n_want = expected(value_of(start, n, m), value_of(end, n, m), step, n, want);
    ash_reference *run;
    ash_type type;
    if (ash_reference_run(graph, ins, 2, names, values, 2, &run, &diag) != ASH_OK)
        fail_msg("%s : %s : %lld, n = %lld, m = %lld: %s", start, end, (long long)step, (long long)n,
                 (long long)m, diag.message);
    const double *got = ash_reference_output(run, 0, &type, &count);
    if (count != n_want || type.dims[0] != (int64_t)n_want || memcmp(got, want, count * sizeof *got) != 0)
        fail_msg("x[%s : %s : %lld] has %zu elements, not %zu, for n = %lld, m = %lld", start, end,
                 (long long)step, count, n_want, (long long)n, (long long)m);
    ash_reference_destroy(run);
}

static ash_graph *parse(const bytes *model, int64_t least) {
    const ash_onnx_options options = {.var_min = least, .var_max = MOST};
    ash_graph *graph = NULL;
    if (ash_onnx_parse(context, model->at, model->len, &options, &graph, &diag) != ASH_OK) return NULL;
    return graph;
}

static void check_pair(const char *start, const char *end, int64_t step) {
    for (int64_t least = 0; least < 2; least++) {
        bytes model = make_slice(start, end, step, -1, -2);
        ash_graph *graph = parse(&model, least);
        if (!graph) fail_msg("x[%s : %s : %lld]: %s", start, end, (long long)step, diag.message);
        for (int64_t n = least; n <= MOST; n += 2)
            for (int64_t m = least; m <= MOST; m += 3) check_slice(graph, start, end, step, n, m);
        ash_graph_destroy(graph);
    }
}

static void test_bounds_with_variables(void **state) {
    (void)state;
    static const int64_t steps[] = {1, 2, -1, -3};
    for (size_t i = 0; i < ASH_COUNT(bounds); i++)
        for (size_t k = 0; k < ASH_COUNT(bounds); k++)
            for (size_t s = 0; s < ASH_COUNT(steps); s++) check_pair(bounds[i], bounds[k], steps[s]);
}

static void check_numbers(const char *start, const char *end, int64_t step, int64_t n, int64_t m) {
    static const float data[MOST] = {0, 1, 2, 3, 4, 5, 6};
    bytes model = make_slice(start, end, step, n, m);
    ash_graph *graph = parse(&model, 0);
    if (!graph) fail_msg("x[%s : %s : %lld]: %s", start, end, (long long)step, diag.message);
    const void *ins[] = {data, data};
    double want[MOST];
    size_t count, n_want = expected(value_of(start, n, m), value_of(end, n, m), step, n, want);
    ash_reference *run;
    assert_int_equal(ash_reference_run(graph, ins, 2, NULL, NULL, 0, &run, &diag), ASH_OK);
    const double *got = ash_reference_output(run, 0, NULL, &count);
    if (count != n_want || memcmp(got, want, count * sizeof *got) != 0)
        fail_msg("x[%s : %s : %lld] has %zu elements, not %zu, for %lld and %lld", start, end,
                 (long long)step, count, n_want, (long long)n, (long long)m);
    ash_reference_destroy(run);
    ash_graph_destroy(graph);
}

static void test_bounds_of_numbers(void **state) {
    (void)state;
    static const int64_t steps[] = {1, 3, -1, -2, INT64_MAX, INT64_MIN};
    for (size_t i = 0; i < ASH_COUNT(bounds); i++)
        for (size_t k = 0; k < ASH_COUNT(bounds); k++)
            for (size_t s = 0; s < ASH_COUNT(steps); s++)
                for (int64_t n = 0; n <= MOST; n += 3) check_numbers(bounds[i], bounds[k], steps[s], n, 2);
}

/* --- scales --------------------------------------------------------------------------------------- */

/* y = x f32[n] resized by `above` over `below`, of which one depends on the sizes of x and t f32[m]. */
static bytes make_resize(const char *above, const char *below, int opset) {
    bytes graph = {.len = 0}, to = {.len = 0}, mode = {.len = 0}, node = {.len = 0};
    bytes x = make_info("x", (int64_t[]){-1}, 1), t = make_info("t", (int64_t[]){-2}, 1),
          y = make_info("y", NULL, 0);
    bytes up = make_node(NULL, "Cast", "a", NULL, "af"), down = make_node(NULL, "Cast", "b", NULL, "bf"),
          scale = make_node(NULL, "Div", "af", "bf", "scale");
    put_message(&graph, 11, &x);
    put_message(&graph, 11, &t);
    put_bound(&graph, above, 'a');
    put_bound(&graph, below, 'b');
    put_text(&to, 1, "to");
    put_int(&to, 3, 1);
    put_int(&to, 20, 2);
    put_message(&up, 5, &to);
    put_message(&down, 5, &to);
    put_message(&graph, 1, &up);
    put_message(&graph, 1, &down);
    put_message(&graph, 1, &scale);
    put_text(&node, 1, "x");
    if (opset > 10) put_text(&node, 1, "");
    put_text(&node, 1, "scale");
    put_text(&node, 2, "y");
    put_text(&node, 4, opset > 9 ? "Resize" : "Upsample");
    static const char *const choices[][2] = {{"coordinate_transformation_mode", "asymmetric"},
                                             {"nearest_mode", "floor"}};
    for (size_t i = 0; i < ASH_COUNT(choices) && opset > 10; i++) {
        mode.len = 0;
        put_text(&mode, 1, choices[i][0]);
        put_text(&mode, 4, choices[i][1]);
        put_int(&mode, 20, 3);
        put_message(&node, 5, &mode);
    }
    put_message(&graph, 1, &node);
    put_message(&graph, 12, &y);
    return make_model(&graph, opset);
}

/* Element i is the operand's at i / scale, downwards: quotients of small numbers are exact enough. */
static void check_resize(const char *above, const char *below, int opset) {
    static const float data[MOST] = {0, 1, 2, 3, 4, 5, 6};
    static const char *const names[] = {"n", "m"};
    const void *ins[] = {data, data};
    bytes model = make_resize(above, below, opset);
    ash_graph *graph = parse(&model, 1);
    if (!graph) fail_msg("%s over %s: %s", above, below, diag.message);
    for (int64_t n = 1; n <= MOST; n++)
        for (int64_t m = 1; m <= MOST; m++) {
            const int64_t values[] = {n, m}, a = value_of(above, n, m), b = value_of(below, n, m);
            ash_reference *run;
            size_t count;
            assert_int_equal(ash_reference_run(graph, ins, 2, names, values, 2, &run, &diag), ASH_OK);
            const double *got = ash_reference_output(run, 0, NULL, &count);
            assert_int_equal(count, n * a / b);
            for (size_t i = 0; i < count; i++)
                if (got[i] != (double)ASH_MIN((int64_t)i * b / a, n - 1))
                    fail_msg("%s over %s, n = %lld, m = %lld: element %zu is %g", above, below,
                             (long long)n, (long long)m, i, got[i]);
            ash_reference_destroy(run);
        }
    ash_graph_destroy(graph);
}

static void test_scales_of_sizes(void **state) {
    (void)state;
    static const int opsets[] = {9, 10, 17};
    for (size_t i = 0; i < ASH_COUNT(opsets); i++) {
        check_resize("m", "n", opsets[i]);
        check_resize("m 2 *", "n", opsets[i]);
        check_resize("m", "2", opsets[i]);
        check_resize("4", "m", opsets[i]);
        check_resize("n 2 *", "n", opsets[i]);
        check_resize("2", "1", opsets[i]);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bounds_with_variables),
        cmocka_unit_test(test_bounds_of_numbers),
        cmocka_unit_test(test_scales_of_sizes),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
