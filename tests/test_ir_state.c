/* SPDX-License-Identifier: MIT */
/* States of graphs: building, text, verifier, reference evaluator, and what has no states. */
#include "ir_fixture.h"

#include "ashlar/onnx.h"
#include "ashlar/reference.h"

static ash_diag diag;

static ash_value state_of(ash_graph *g, const char *name, ash_type type) {
    return ash_graph_state(g, name, &type, NULL, 0, ASH_DATA_COPY);
}

static void building(void **state) {
    fixture *f = *state;
    ash_graph *g = f->g;
    const char *name;
    ash_value update;
    ash_type type = TYPE(F32, 3);
    const float data[3] = {1, 2, 3};
    ash_value s = ash_graph_state(g, "s", &type, data, sizeof data, ASH_DATA_COPY),
              x = INPUT(g, "x", F32, 3);
    ash_value z = state_of(g, "z", TYPE(I64, ash_graph_var(g, "n", 0, 9)));
    ash_graph_update(g, s, ash_add(g, s, x));
    assert_ok(ash_graph_status(g, &diag));
    assert_ok(ash_graph_verify(g, &diag));
    assert_int_equal(ash_graph_state_count(g), 2);
    assert_int_equal(ash_graph_state_at(g, 0, &name, &update), s);
    assert_string_equal(name, "s");
    assert_int_equal(update, x + 2);
    assert_int_equal(ash_graph_state_at(g, 1, NULL, &update), z);
    assert_int_equal(update, ASH_NO_VALUE);
    assert_int_equal(ash_graph_state_at(g, 2, &name, &update), ASH_NO_VALUE);
    assert_null(name);
}

#define REFUSED(code, part, ...)                                                                           \
    do {                                                                                                   \
        ash_graph *g = fresh(f);                                                                           \
        ash_value s = state_of(g, "s", TYPE(F32, 3)), x = INPUT(g, "x", F32, 3);                           \
        (void)s, (void)x;                                                                                  \
        __VA_ARGS__;                                                                                       \
        assert_status(ash_graph_status(g, &diag), code);                                                   \
        assert_non_null(strstr(diag.message, part));                                                       \
    } while (0)

static void refusals(void **state) {
    fixture *f = *state;
    ash_type scalar = SCALAR(F32), boolean = TYPE(BOOL, 1), varies;
    REFUSED(ASH_ERROR_INVALID_ARGUMENT, "already", INPUT(g, "s", F32, 3));
    REFUSED(ASH_ERROR_INVALID_ARGUMENT, "already", state_of(g, "x", scalar));
    REFUSED(ASH_ERROR_INVALID_ARGUMENT, "name", state_of(g, NULL, scalar));
    REFUSED(ASH_ERROR_INVALID_ARGUMENT, "NULL", ash_graph_state(g, "t", NULL, NULL, 0, ASH_DATA_COPY));
    REFUSED(ASH_ERROR_INVALID_ARGUMENT, "bytes", ash_graph_state(g, "t", &scalar, "abc", 3, ASH_DATA_COPY));
    REFUSED(ASH_ERROR_INVALID_ARGUMENT, "NULL", ash_graph_state(g, "t", &scalar, NULL, 4, ASH_DATA_COPY));
    REFUSED(ASH_ERROR_INVALID_ARGUMENT, "0 nor 1",
            ash_graph_state(g, "t", &boolean, (char[]){2}, 1, ASH_DATA_COPY));
    REFUSED(ASH_ERROR_SHAPE, "variables", varies = TYPE(F32, ash_graph_var(g, "n", 1, 2)),
            ash_graph_state(g, "t", &varies, (float[]){1, 2}, 8, ASH_DATA_COPY));
    REFUSED(ASH_ERROR_INVALID_ARGUMENT, "no state", ash_graph_update(g, x, s));
    REFUSED(ASH_ERROR_INVALID_ARGUMENT, "no state", ash_graph_update(g, 99, s));
    REFUSED(ASH_ERROR_INVALID_ARGUMENT, "no value", ash_graph_update(g, s, 99));
    REFUSED(ASH_ERROR_INVALID_ARGUMENT, "already", ash_graph_update(g, s, x), ash_graph_update(g, s, x));
    REFUSED(ASH_ERROR_TYPE, "another type", ash_graph_update(g, s, INPUT(g, "i", I32, 3)));
    REFUSED(ASH_ERROR_TYPE, "another type", ash_graph_update(g, s, INPUT(g, "i", F32, 4)));
    assert_string_equal(diag.node, "s");
}

static void the_verifier_sees_defects(void **state) {
    fixture *f = *state;
#define DEFECT(change)                                                                                     \
    do {                                                                                                   \
        ash_graph *g = fresh(f);                                                                           \
        ash_value s = state_of(g, "s", TYPE(F32, 3)), t = state_of(g, "t", TYPE(F32, 2));                  \
        ash_graph_update(g, s, ash_neg(g, s));                                                             \
        assert_ok(ash_graph_verify(g, &diag));                                                             \
        (void)t;                                                                                           \
        change;                                                                                            \
        assert_status(ash_graph_verify(g, &diag), ASH_ERROR_INTERNAL);                                     \
    } while (0)
    DEFECT(g->states.at[0].update = 77);
    DEFECT(g->states.at[1].update = s);
    DEFECT(g->states.at[1].value = s);
    DEFECT(g->states.len = 1);
    DEFECT(g->states.at[0].value = t);
    DEFECT(g->values.at[s].name = NULL);
    DEFECT(g->values.at[s].kind = ASH_VALUE_INPUT);
    DEFECT(g->states.len = 0);
}

static const char text[] = "graph \"cache\"\n"
                           "var pos 0 7\n"
                           "%0: f32[2] = state \"a\" {1, -2}\n"
                           "%1: f16[8, pos] = state \"b\" zero\n"
                           "%2: f32[2] = state \"c\" zero\n"
                           "%3: f32[2] = neg(%0)\n"
                           "update %0 = %3\n"
                           "update %2 = %0\n"
                           "output \"y\" = %3\n";

static void text_comes_back(void **state) {
    fixture *f = *state;
    ash_graph *g;
    char *back;
    size_t len;
    assert_ok(ash_graph_parse(f->context, text, strlen(text), &g, &diag));
    assert_ok(ash_graph_verify(g, &diag));
    assert_ok(ash_graph_print(g, true, &back, &len, &diag));
    assert_string_equal(back, text);
    ash_context_free_text(f->context, back, len);
    assert_ok(ash_graph_print(g, false, &back, &len, &diag));
    assert_non_null(strstr(back, "state \"a\" ...\n"));
    assert_non_null(strstr(back, "state \"b\" zero\n"));
    ash_context_free_text(f->context, back, len);
    ash_graph_destroy(g);
    static const struct {
        const char *text, *part;
    } broken[] = {
        {"graph \"\" %0: f32[2] = state \"s\" %1", "expected"},
        {"graph \"\" %0: f32[2] = state zero", "expected"},
        {"graph \"\" %0: f32[2] = state \"s\" ...", "left out"},
        {"graph \"\" var n 1 2 %0: f32[n] = state \"s\" {1}", "variables"},
        {"graph \"\" %0: f32[2] = state \"s\" zero update %0 = %1", "no value is called"},
        {"graph \"\" %0: f32[2] = input \"x\" update %0 = %0", "no state"},
        {"graph \"\" %0: f32[2] = state \"s\" zero update %0 = %0 update %0 = %0", "already"},
    };
    for (size_t i = 0; i < ASH_COUNT(broken); i++) {
        assert_true(ash_graph_parse(f->context, broken[i].text, strlen(broken[i].text), &g, &diag) !=
                    ASH_OK);
        assert_non_null(strstr(diag.message, broken[i].part));
        assert_null(g);
    }
}

/* Fibonacci in two states, each updated with what the other was. */
static void the_evaluator_hands_states_on(void **state) {
    fixture *f = *state;
    ash_graph *g = f->g;
    ash_type type = TYPE(I32, 1);
    ash_value a = state_of(g, "a", type),
              b = ash_graph_state(g, "b", &type, (int32_t[]){1}, 4, ASH_DATA_COPY);
    ash_graph_update(g, a, b);
    ash_graph_update(g, b, ash_add(g, a, b));
    ash_graph_output(g, "a", a);
    int32_t in_a = 0, in_b = 1;
    void *states[] = {&in_a, &in_b};
    ash_reference *r;
    size_t count;
    static const int expected[] = {0, 1, 1, 2, 3, 5, 8, 13};
    for (size_t i = 0; i < ASH_COUNT(expected); i++) {
        assert_int_equal(in_a, expected[i]);
        assert_ok(ash_reference_step(g, NULL, 0, states, NULL, NULL, 0, &r, &diag));
        assert_true(*ash_reference_output(r, 0, NULL, &count) == expected[i]);
        ash_reference_destroy(r);
        assert_ok(ash_reference_run(g, NULL, 0, NULL, NULL, 0, &r, &diag)); /* from the beginning */
        assert_true(*ash_reference_output(r, 0, NULL, &count) == 0);
        ash_reference_destroy(r);
    }
    states[1] = NULL;
    assert_status(ash_reference_step(g, NULL, 0, states, NULL, NULL, 0, &r, &diag),
                  ASH_ERROR_INVALID_ARGUMENT);
    states[1] = &in_b;
    int32_t before = in_b;
    for (long fail = 1;; fail++) { /* a failure leaves the states as they were */
        f->memory.fail_at = f->memory.count + fail;
        ash_status status = ash_reference_step(g, NULL, 0, states, NULL, NULL, 0, &r, &diag);
        f->memory.fail_at = 0;
        if (status == ASH_OK) break;
        assert_status(status, ASH_ERROR_OUT_OF_MEMORY);
        assert_int_equal(in_b, before);
    }
    ash_reference_destroy(r);
}

static void onnx_has_no_states(void **state) {
    fixture *f = *state;
    ash_value s = state_of(f->g, "cache", TYPE(F32, 3));
    ash_graph_output(f->g, "y", ash_neg(f->g, s));
    assert_status(ash_onnx_write(f->g, "/nonexistent/x.onnx", NULL, &diag), ASH_ERROR_UNSUPPORTED);
    assert_non_null(strstr(diag.message, "\"cache\""));
}

static void writing_along_an_axis(void **state) {
    fixture *f = *state;
    ash_graph *g = f->g;
    ash_dim pos = ash_graph_var(g, "pos", 0, 7);
    ash_value x = INPUT(g, "x", F32, 8, 2), row = INPUT(g, "row", F32, 1, 2);
    ash_value y = ash_write_axis(g, x, row, 0, pos);
    assert_ok(ash_graph_status(g, &diag));
    assert_true(ash_type_equal(ash_graph_type(g, y), ash_graph_type(g, x)));
    assert_int_equal(ash_write_axis(g, x, x, 0, 0) != ASH_NO_VALUE, true); /* all of it */
    assert_ok(ash_graph_status(g, &diag));
    ash_write_axis(g, x, row, 0, 8); /* past the end */
    assert_status(ash_graph_status(g, &diag), ASH_ERROR_OUT_OF_RANGE);
    g = fresh(f);
    x = INPUT(g, "x", F32, 8, 2);
    ash_write_axis(g, x, INPUT(g, "row", F32, 1, 3), 0, 1);
    assert_status(ash_graph_status(g, &diag), ASH_ERROR_SHAPE);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        IR_TEST(building),
        IR_TEST(refusals),
        IR_TEST(the_verifier_sees_defects),
        IR_TEST(text_comes_back),
        IR_TEST(the_evaluator_hands_states_on),
        IR_TEST(onnx_has_no_states),
        IR_TEST(writing_along_an_axis),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
