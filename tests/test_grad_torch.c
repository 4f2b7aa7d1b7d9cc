/* SPDX-License-Identifier: MIT */
/* Gradients against numbers that PyTorch's autograd made: tests/data/grad_torch.txt
 * (tools/grad_fixtures.py says what is in it), by the reference evaluator in double precision. */
#include "ir_fixture.h"

#include <math.h>

#include "ashlar/reference.h"
#include "ashlar/train.h"
#include "ir/ir.h"

static ash_diag diag;

enum { MOST = 9, LEAST = 20 }; /* inputs of a case; cases of a rule */

static char *read_all(const char *path) {
    FILE *file = fopen(path, "rb");
    if (!file) fail_msg("%s is not there", path);
    fseek(file, 0, SEEK_END);
    long size = ftell(file);
    rewind(file);
    char *text = calloc((size_t)size + 1, 1);
    assert_int_equal(fread(text, 1, (size_t)size, file), size);
    fclose(file);
    return text;
}

/* The next line without its end; *at moves behind it. */
static char *take_line(char **at) {
    char *line = *at, *end = strchr(line, '\n');
    assert_non_null(end);
    *end = 0;
    *at = end + 1;
    return line;
}

static double *take_numbers(char **at, size_t count) {
    char *line = take_line(at);
    double *numbers = calloc(count + 1, sizeof *numbers);
    for (size_t i = 0; i < count; i++) {
        char *end;
        numbers[i] = strtod(line, &end);
        assert_true(end != line);
        line = end;
    }
    assert_int_equal(strspn(line, " "), strlen(line));
    return numbers;
}

static size_t count_of(const ash_graph *g, ash_value value) {
    int64_t count;
    assert_true(ash_type_static_count(ash_graph_type(g, value), &count));
    return (size_t)count;
}

/* The numbers of an input, in its dtype. */
static void *take_input(char **at, const ash_graph *g, ash_value value) {
    size_t count = count_of(g, value);
    double *numbers = take_numbers(at, count);
    if (ash_graph_type(g, value)->dtype == ASH_I64)
        for (size_t i = 0; i < count; i++) {
            int64_t n = (int64_t)numbers[i];
            memcpy(&numbers[i], &n, sizeof n);
        }
    return numbers;
}

static void compare(const char *name, size_t input, const double *got, const double *want, size_t count) {
    for (size_t i = 0; i < count; i++)
        if (!(fabs(got[i] - want[i]) <= 1e-9 * (1 + fabs(want[i]))))
            fail_msg("%s: gradient %zu of input %zu is %.12g, not %.12g", name, i, input, got[i], want[i]);
}

/* Adds one to the count of each operator that the graph has. */
static void count_ops(const ash_graph *g, size_t *counts) {
    bool has[ASH_OP_COUNT] = {false};
    for (size_t i = 0; i < g->nodes.len; i++) has[g->nodes.at[i].op] = true;
    for (size_t op = 0; op < ASH_OP_COUNT; op++) counts[op] += has[op];
}

/* A case from its name's line to the end of its gradients. */
static void run_case(ash_context *context, char **at, size_t *counts) {
    ash_graph *g;
    void *data[MOST] = {NULL};
    ash_value xs[MOST], grads[MOST];
    const char *name = take_line(at) + strlen("=== ");
    char *text = *at, *end = strstr(text, "--- in\n");
    assert_non_null(end);
    assert_ok(ash_graph_parse(context, text, (size_t)(end - text), &g, &diag));
    *at = end + strlen("--- in\n");
    count_ops(g, counts);
    size_t n = ash_graph_input_count(g), n_xs = 0;
    assert_in_range(n, 2, MOST);
    for (size_t i = 0; i < n; i++) data[i] = take_input(at, g, ash_graph_input_at(g, i, NULL));
    assert_string_equal(take_line(at), "--- gradients");
    for (size_t i = 0; i + 1 < n; i++) {
        ash_value x = ash_graph_input_at(g, i, NULL);
        if (ash_graph_type(g, x)->dtype == ASH_F64) xs[n_xs++] = x;
    }
    ash_value y = ash_graph_output_at(g, 0, NULL), seed = ash_graph_input_at(g, n - 1, NULL);
    assert_ok(ash_graph_gradients(g, &y, &seed, 1, xs, n_xs, NULL, grads, &diag));
    for (size_t i = 0; i < n_xs; i++)
        ash_graph_output(g, (const char[]){'g', (char)('0' + i), 0}, grads[i]);
    assert_ok(ash_graph_verify(g, &diag));
    ash_reference *r;
    assert_ok(ash_reference_run(g, (const void *const *)data, n, NULL, NULL, 0, &r, &diag));
    for (size_t i = 0, k = 1; i + 1 < n; i++) {
        if (ash_graph_type(g, ash_graph_input_at(g, i, NULL))->dtype != ASH_F64) {
            assert_string_equal(take_line(at), "-");
            continue;
        }
        size_t count;
        const double *got = ash_reference_output(r, k++, NULL, &count);
        assert_int_equal(count, count_of(g, ash_graph_input_at(g, i, NULL)));
        double *want = take_numbers(at, count);
        compare(name, i, got, want, count);
        free(want);
    }
    ash_reference_destroy(r);
    ash_graph_destroy(g);
    for (size_t i = 0; i < n; i++) free(data[i]);
}

/* Every rule, but those of functions of the caller and of stacks, which are no caller's, on so many
 * shapes. */
static void test_torch(void **state) {
    fixture *f = *state;
    char *text = read_all(ASH_SOURCE_DIR "/tests/data/grad_torch.txt"), *at = text;
    size_t counts[ASH_OP_COUNT] = {0};
    while (*at) run_case(f->context, &at, counts);
#define RULE(ID, rule)                                                                                     \
    if (ASH_OP_##ID != ASH_OP_CUSTOM && ASH_OP_##ID != ASH_OP_STACK && counts[ASH_OP_##ID] < LEAST)        \
        fail_msg("too few: %s", #rule);
#define ZERO(ID, why)
#define NONE(ID, why)
#include "grad/gradients.def"
#undef NONE
#undef ZERO
#undef RULE
    free(text);
}

int main(void) {
    const struct CMUnitTest tests[] = {IR_TEST(test_torch)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
