/* SPDX-License-Identifier: MIT */
/* The text form: what is printed is parsed back as an equal graph, and no text does harm. */
#include "ir_fixture.h"

#include <locale.h>
#include <math.h>

static char *print(const ash_graph *g, size_t *len) {
    ash_diag diag;
    char *text;
    assert_ok(ash_graph_print(g, true, &text, len, &diag));
    assert_int_equal(strlen(text), *len);
    return text;
}

static void assert_same_value(const ash_graph *a, const ash_graph *b, ash_value v) {
    const ash_value_info *x = ash_graph__value(a, v), *y = ash_graph__value(b, v);
    assert_true(ash_type_equal(&x->type, &y->type) || x->type.dims[0] < 0);
    assert_int_equal(x->kind, y->kind);
    assert_int_equal(!x->name, !y->name);
    if (x->name) assert_string_equal(x->name, y->name);
    assert_int_equal(!x->blob, !y->blob);
    if (!x->blob) return;
    assert_int_equal(x->blob->size, y->blob->size);
    assert_memory_equal(x->blob->data, y->blob->data, x->blob->size);
}

/* Prints, parses and prints again; the two texts and the two graphs are the same. Returns the text, to be
 * freed. */
static char *round_trip(ash_context *context, const ash_graph *g, size_t *len) {
    ash_diag diag;
    ash_graph *back;
    size_t again_len;
    char *text = print(g, len);
    assert_ok(ash_graph_verify(g, &diag));
    assert_ok(ash_graph_parse(context, text, *len, &back, &diag));
    assert_ok(ash_graph_verify(back, &diag));
    char *again = print(back, &again_len);
    assert_string_equal(again, text);
    assert_int_equal(ash_graph_value_count(back), ash_graph_value_count(g));
    assert_int_equal(ash_graph_node_count(back), ash_graph_node_count(g));
    for (size_t v = 0; v < ash_graph_value_count(g); v++) assert_same_value(g, back, (ash_value)v);
    ash_context_free_text(context, again, again_len);
    ash_graph_destroy(back);
    return text;
}

static const char names_text[] =
    "graph \"a \\\"name\\\"\\x0a\xc3\xa9\"\n"
    "var batch 1 64\n"
    "var \"min\" 0 1000\n"
    "var \"odd name\" 2 3\n"
    "equal batch div(\"min\", 2)\n"
    "equal (2*batch + 1) \"odd name\"\n"
    "%0: f32[batch, 3] = input \"x\\\\\"\n"
    "%1: f32[3, 4] = parameter \"w\" hex \"0000803f000000400000404000008040000080bf000000c0000040c0000080c0"
    "00000000000000800000c07f0000807f\"\n"
    "%2: f32[] = constant {0.1}\n"
    "%3: f64[3] = constant {1e+100, -inf, -0}\n"
    "%4: i8[2] = constant {-128, 127}\n"
    "%5: u64[1] = constant hex \"ffffffffffffffff\"\n"
    "%6: f16[1] = constant hex \"003c\"\n"
    "%7: bool[3] = constant {0, 1, 1}\n"
    "%8: f32[0, 5] = constant {}\n"
    "%9: f32[batch, 4] = matmul(%0, %1) n=0 b_block=0 @\"fc \\\"1\\\"\"\n"
    "%10: f32[batch, 2], %11: i64[batch, 2] = topk(%9) axis=1 k=2 largest=1\n"
    "%12: i64[(batch + 2*\"odd name\"), div(\"min\", 2)] = iota() axis=0 "
    "dims=[(batch + 2*\"odd name\"), div(\"min\", 2)] dtype=i64\n"
    "%13: f32[2] = state \"s\" {1, 2}\n"
    "%14: f64[batch] = state \"t\" zero\n"
    "%15: f32[2] = neg(%13)\n"
    "update %13 = %15\n"
    "output \"y\" = %10\n"
    "output \"same\" = %10\n"
    "output \"z\\xff\" = %0\n";

static void text_comes_back_as_it_was(void **state) {
    fixture *f = *state;
    ash_diag diag;
    ash_graph *g;
    size_t len;
    /* "\xff" in a name is a byte past 0x7f, which is printed as it is */
    char expected[sizeof names_text];
    strcpy(expected, names_text);
    char *escape = strstr(expected, "z\\xff");
    escape[1] = (char)0xff;
    memmove(escape + 2, escape + 5, strlen(escape + 5) + 1);
    ash_status status = ash_graph_parse(f->context, names_text, strlen(names_text), &g, &diag);
    if (status == ASH_ERROR_OUT_OF_RANGE) fail_msg("%s at %d", diag.message, (int)diag.file_offset);
    assert_ok(status);
    char *text = round_trip(f->context, g, &len);
    assert_string_equal(text, expected);
    ash_context_free_text(f->context, text, len);
    assert_string_equal(ash_graph_name(g), "a \"name\"\n\xc3\xa9");
    ash_graph_destroy(g);
}

/* Forms that passes choose for a target are printed and read, in texts that say so alone. */
static void internal_forms_need_their_mark(void **state) {
    fixture *f = *state;
    static const char *const nodes[] = {
        "%2: f32[3, 5] = matmul(%0, %1) n=5 b_block=4\n",
        ("%2: f32[1, 1, 2, 2, 4] = conv(%0, %1) before=[0, 0] after=[0, 0] strides=[1, 1] dilations=[1, 1] "
         "groups=1 o=0 x_block=0 y_block=4 w_block=0\n"),
        "%2: f32[1, 1, 4, 4, 4] = winograd(%0, %1) before=[1, 1] after=[1, 1] o=4 y_block=4 tile=2\n",
    };
    static const char *const leaves[] = {
        "%0: f32[3, 6] = input \"x\"\n%1: f32[2, 6, 4] = input \"w\"\n",
        "%0: f32[1, 3, 4, 4] = input \"x\"\n%1: f32[4, 3, 3, 3] = input \"w\"\n",
        "%0: f32[1, 1, 4, 4, 4] = input \"x\"\n%1: f32[1, 1, 1, 3, 3, 4, 4] = input \"w\"\n",
    };
    for (size_t i = 0; i < ASH_COUNT(nodes); i++) {
        char text[512];
        ash_graph *g = NULL;
        ash_diag diag;
        size_t len;
        snprintf(text, sizeof text, "graph \"g\"\n%s%soutput \"y\" = %%2\n", leaves[i], nodes[i]);
        assert_status(ash_graph_parse(f->context, text, strlen(text), &g, &diag), ASH_ERROR_UNSUPPORTED);
        assert_null(g);
        snprintf(text, sizeof text, "graph \"g\" internal\n%s%soutput \"y\" = %%2\n", leaves[i], nodes[i]);
        assert_ok(ash_graph_parse(f->context, text, strlen(text), &g, &diag));
        char *back = round_trip(f->context, g, &len);
        assert_string_equal(back, text);
        ash_context_free_text(f->context, back, len);
        ash_graph_destroy(g);
    }
}

static void floats_come_back_to_the_bit(void **state) {
    fixture *f = *state;
    uint64_t seed = 5;
    setlocale(LC_ALL, "de_DE.UTF-8"); /* a decimal comma, where the machine has it */
    for (int round = 0; round < 300; round++) {
        ash_graph *g = fresh(f);
        double wide[4];
        float narrow[5];
        for (int i = 0; i < 4; i++) {
            uint64_t bits = next_random(&seed);
            memcpy(&wide[i], &bits, sizeof bits);
            if (round % 3 == 0) wide[i] = (double)(int64_t)(bits % 2000) / 8;
        }
        for (int i = 0; i < 5; i++) {
            uint32_t bits = (uint32_t)(next_random(&seed) >> 20);
            memcpy(&narrow[i], &bits, sizeof bits);
            if (round % 3 == 0) narrow[i] = (float)bits / 3;
        }
        ash_type wides = TYPE(F64, 4), narrows = TYPE(F32, 5);
        ash_graph_constant(g, &wides, wide, sizeof wide, ASH_DATA_COPY);
        ash_graph_constant(g, &narrows, narrow, sizeof narrow, ASH_DATA_BORROW);
        size_t len;
        char *text = round_trip(f->context, g, &len);
        ash_context_free_text(f->context, text, len);
    }
    setlocale(LC_ALL, "C");
}

static void a_network_comes_back(void **state) {
    fixture *f = *state;
    ash_graph *g = f->g;
    ash_dim batch = ash_graph_var(g, "batch", 1, 64), seq = ash_graph_var(g, "seq", 1, 512);
    ash_graph_name_next(g, "layer");
    ash_value x = INPUT(g, "x", F32, batch, seq, 32);
    ash_value w = INPUT(g, "w", F32, 32, 32);
    ash_value h = ash_layer_norm(g, ash_gelu(g, ash_matmul(g, x, w)), ASH_NO_VALUE, ASH_NO_VALUE, -1, 1e-5);
    h = ash_softmax(g, ash_reduce_mean(g, h, (int64_t[]){1}, 1, false), -1);
    ash_value half = ash_slice_axis(g, x, 1, 0, ash_graph_dim_div(g, seq, 2));
    ash_dim rows = ash_graph_dim_mul(g, batch, ash_graph_dim_div(g, seq, 2));
    ash_graph_name_next(g, NULL);
    ash_graph_output(g, "y", h);
    ash_graph_output(g, "z", ash_reshape(g, half, (ash_dim[]){rows, 32}, 2));
    size_t len;
    char *text = round_trip(f->context, g, &len);
    ash_context_free_text(f->context, text, len);
}

static void data_can_be_left_out(void **state) {
    fixture *f = *state;
    ash_diag diag;
    ash_graph *back;
    char *text;
    size_t len;
    ash_scalar(f->g, ASH_F32, 1);
    assert_ok(ash_graph_print(f->g, false, &text, &len, &diag));
    assert_string_equal(text, "graph \"test\"\n%0: f32[] = constant ...\n");
    assert_status(ash_graph_parse(f->context, text, len, &back, &diag), ASH_ERROR_FORMAT);
    assert_null(back);
    assert_string_equal(diag.message, "the data is left out of this text");
    assert_int_equal(diag.file_offset, strlen("graph \"test\"\n%0: f32[] = constant "));
    ash_context_free_text(f->context, text, len);
}

static void people_may_write_it(void **state) {
    fixture *f = *state;
    ash_diag diag;
    ash_graph *g;
    static const char text[] = "# a small one\n"
                               "graph \"t\" var n 1 9 %x:f32[n]=input\"x\" # by hand\n"
                               "%x.2 = mul(%x,%x)%half: f32 [ ] = constant { 5e-1 }\n"
                               "%hb = broadcast(%half)dims=[n]  %y = mul( %x.2 , %hb ) output \"y\"=%y";
    assert_ok(ash_graph_parse(f->context, text, strlen(text), &g, &diag));
    assert_int_equal(ash_graph_node_count(g), 3);
    assert_int_equal(ash_graph_output_at(g, 0, NULL), 4);
    ash_graph_destroy(g);
}

/* Each text is refused at the byte where ^ stands (which is taken out). */
static const struct {
    const char *text;
    ash_status status;
    const char *message;
} refusals[] = {
    {"^", ASH_ERROR_FORMAT, "expected graph"},
    {"graph ^x", ASH_ERROR_FORMAT, "expected a string in double quotes"},
    {"graph \"x^", ASH_ERROR_FORMAT, "the text ends within a string"},
    {"graph \"\" ^hello", ASH_ERROR_FORMAT, "expected a value, var, update or output"},
    {"graph \"\" var a 1 ^99999999999999999999", ASH_ERROR_FORMAT, "a number exceeds 64 bits"},
    {"graph \"\" ^var a 3 2", ASH_ERROR_INVALID_ARGUMENT,
     "variable a: bounds 3 to 2 do not satisfy 0 <= min <= max"},
    {"graph \"\" var a 1 2 ^var a 1 2", ASH_ERROR_FORMAT, "a variable is called a already"},
    {"graph \"\" %0: f32[^q] = input \"x\"", ASH_ERROR_FORMAT, "no variable is called q"},
    {"graph \"\" %0: ^f99[1] = input \"x\"", ASH_ERROR_FORMAT, "expected a dtype"},
    {"graph \"\" %0 = input^ \"x\"", ASH_ERROR_FORMAT, "this is one value, and needs a type"},
    {"graph \"\" ^%0: f32[] = input \"\"", ASH_ERROR_INVALID_ARGUMENT,
     "an input, parameter or state needs a name"},
    {"graph \"\" %0: f32[] = input \"x\" ^%1: f32[] = input \"x\"", ASH_ERROR_INVALID_ARGUMENT,
     "there is an input, parameter or state of this name already"},
    {"graph \"\" %0: f32[] = input \"x\" ^%0: f32[] = input \"y\"", ASH_ERROR_FORMAT,
     "a value is called %0 already"},
    {"graph \"\" %0: f32[1] = constant hex \"^0000\"", ASH_ERROR_FORMAT,
     "the text ends within 4 bytes of data"},
    {"graph \"\" %0: f32[1] = constant hex \"0000^0g00\"", ASH_ERROR_FORMAT,
     "byte 2 of 4 is not two hexadecimal digits"},
    {"graph \"\" %0: f32[1] = constant hex \"00000000^00\"", ASH_ERROR_FORMAT, "expected \" after 4 bytes"},
    {"graph \"\" %0: f32[1099511627776] = constant hex \"^00\"", ASH_ERROR_FORMAT, NULL},
    {"graph \"\" %0: f32[1099511627776] = constant {^1}", ASH_ERROR_FORMAT, NULL},
    {"graph \"\" %0: f32[2] = constant {1^}                ", ASH_ERROR_FORMAT, "expected ,"},
    {"graph \"\" %0: u8[1] = constant {^256}", ASH_ERROR_FORMAT, "256 does not fit u8"},
    {"graph \"\" %0: i8[1] = constant {^-129}", ASH_ERROR_FORMAT, "-129 does not fit i8"},
    {"graph \"\" %0: bool[1] = constant {^2}", ASH_ERROR_FORMAT, "2 does not fit bool"},
    {"graph \"\" ^%0: bool[1] = constant hex \"02\"", ASH_ERROR_INVALID_ARGUMENT,
     "bool element 0 is 2, neither 0 nor 1"},
    {"graph \"\" %0: f16[1] = constant {^1}", ASH_ERROR_FORMAT, "f16 data is written as hex"},
    {"graph \"\" %0: f32[1] = constant {^1e39}", ASH_ERROR_FORMAT, "a number exceeds its dtype"},
    {"graph \"\" %0 = exp(^%1)", ASH_ERROR_FORMAT, "no value is called %1"},
    {"graph \"\" %0 = ^frob()", ASH_ERROR_FORMAT, "no operator is called frob"},
    {"graph \"\" %0: f32[2] = input \"x\" %1 = exp(%0) ^frob=1", ASH_ERROR_FORMAT,
     "no attribute is called frob"},
    {"graph \"\" %0: f32[2] = input \"x\" ^%1 = exp(%0, %0) @\"n\"", ASH_ERROR_INVALID_ARGUMENT,
     "exp takes 1 operand, not 2"},
    {"graph \"\" %0: f32[2] = input \"x\" ^%1: f32[3] = exp(%0)", ASH_ERROR_FORMAT,
     "the type of this value is f32[2]"},
    {"graph \"\" %0: f32[2] = input \"x\" %1, %2 = exp^(%0)", ASH_ERROR_FORMAT, "exp has 1 outputs, not 2"},
    {"graph \"\" %0: f32[2] = input \"x\" output \"y\" = %0 ^output \"y\" = %0", ASH_ERROR_INVALID_ARGUMENT,
     "there is an output of this name already"},
};

static void errors_have_their_place(void **state) {
    fixture *f = *state;
    for (size_t i = 0; i < ASH_COUNT(refusals); i++) {
        char text[256];
        const char *mark = strchr(refusals[i].text, '^');
        size_t at = (size_t)(mark - refusals[i].text), len = strlen(refusals[i].text) - 1;
        memcpy(text, refusals[i].text, at);
        strcpy(text + at, mark + 1);
        ash_diag diag;
        ash_graph *g;
        ash_status status = ash_graph_parse(f->context, text, len, &g, &diag);
        if (status != refusals[i].status || diag.file_offset != at ||
            (refusals[i].message && strcmp(diag.message, refusals[i].message)))
            fail_msg("%s\nstatus %d at byte %lld: %s", refusals[i].text, (int)status,
                     (long long)diag.file_offset, diag.message);
        assert_null(g);
    }
}

/* Cuts, flips, copies and drops bytes of a valid text: every outcome is a graph that verifies or an error
 * with a place. */
static void mutations_do_no_harm(void **state) {
    fixture *f = *state;
    uint64_t seed = 6;
    enum { SIZE = sizeof names_text - 1, ROUNDS = 20000 };
    static const char alphabet[] = "%[]{}()*+-=:,.\"\\#@ \n0179aefhxz";
    long parsed = 0;
    for (int round = 0; round < ROUNDS; round++) {
        char text[2 * SIZE];
        size_t len = SIZE;
        memcpy(text, names_text, SIZE);
        for (int edits = 1 + (int)(next_random(&seed) % 3); edits && len; edits--) {
            size_t at = next_random(&seed) % len, from = next_random(&seed) % len,
                   count = next_random(&seed) % 12;
            switch (next_random(&seed) % 5) {
            case 0: text[at] = (char)next_random(&seed); break;
            case 1: text[at] = alphabet[next_random(&seed) % (sizeof alphabet - 1)]; break;
            case 2: len = at; break;
            case 3:
                count = ASH_MIN(count, len - at);
                memmove(text + at, text + at + count, len - at - count);
                len -= count;
                break;
            default:
                count = ASH_MIN(count, len - ASH_MAX(at, from));
                memmove(text + at, text + from, count);
            }
        }
        char *exact = malloc(len ? len : 1); /* so that a sanitizer sees a read past the end */
        memcpy(exact, text, len);
        ash_diag diag;
        ash_graph *g;
        ash_status status = ash_graph_parse(f->context, exact, len, &g, &diag);
        if (status == ASH_OK) {
            size_t printed;
            char *again = round_trip(f->context, g, &printed);
            ash_context_free_text(f->context, again, printed);
            ash_graph_destroy(g);
            parsed++;
        } else {
            assert_null(g);
            assert_true(diag.file_offset <= len);
        }
        free(exact);
    }
    assert_in_range(parsed, ROUNDS / 100, ROUNDS);
}

static void failed_allocations_are_errors(void **state) {
    (void)state;
    for (long fail_at = 1;; fail_at++) {
        test_memory memory = {.fail_at = fail_at};
        ash_context_options options = {.allocator = test_memory_allocator(&memory), .threads = 1};
        ash_context *context = NULL;
        ash_graph *g = NULL;
        ash_diag diag;
        char *text = NULL;
        size_t len = 0;
        ash_status status = ash_context_create(&options, &context, &diag);
        if (status == ASH_OK) status = ash_graph_parse(context, names_text, strlen(names_text), &g, &diag);
        if (status == ASH_OK) status = ash_graph_print(g, true, &text, &len, &diag);
        ash_context_free_text(context, text, len);
        ash_graph_destroy(g);
        ash_context_destroy(context);
        assert_int_equal(memory.live, 0);
        if (status == ASH_OK) break;
        assert_int_equal(status, ASH_ERROR_OUT_OF_MEMORY);
        assert_int_equal(diag.code, ASH_ERROR_OUT_OF_MEMORY);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        IR_TEST(text_comes_back_as_it_was),
        IR_TEST(internal_forms_need_their_mark),
        IR_TEST(floats_come_back_to_the_bit),
        IR_TEST(a_network_comes_back),
        IR_TEST(data_can_be_left_out),
        IR_TEST(people_may_write_it),
        IR_TEST(errors_have_their_place),
        IR_TEST(mutations_do_no_harm),
        cmocka_unit_test(failed_allocations_are_errors),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
