/* SPDX-License-Identifier: MIT */
/* The wire format: what the reader accepts and refuses, byte by byte. */
#include "testing.h"

#include "onnx/model.h"
#include "onnx/wire.h"
#include "onnx_bytes.h"

static ash_diag diag;

static ash_wire open_bytes(const void *data, size_t size) {
    ash_diag_clear(&diag);
    return ash_wire__open(data, size, &diag);
}

#define OPEN(...)                                                                                          \
    static const uint8_t data[] = {__VA_ARGS__};                                                           \
    ash_wire wire = open_bytes(data, sizeof data);                                                         \
    ash_field field;                                                                                       \
    bool more

static void test_fields_of_each_type(void **state) {
    (void)state;
    OPEN(0x08, 0x96, 0x01, 0x15, 0, 0, 0x80, 0x3f, 0x1a, 2, 'a', 'b', 0x21, 1, 0, 0, 0, 0, 0, 0, 0);
    assert_ok(ash_wire__next(&wire, &field, &more));
    assert_true(more && field.number == 1 && field.type == ASH_WIRE_VARINT && field.value == 150 &&
                field.offset == 0);
    assert_ok(ash_wire__next(&wire, &field, &more));
    float f;
    assert_ok(ash_wire__float(&wire, &field, &f));
    assert_true(f == 1.0f && field.offset == 3);
    assert_ok(ash_wire__next(&wire, &field, &more));
    assert_true(ash_span_is(field.bytes, "ab") && field.offset == 8);
    assert_ok(ash_wire__next(&wire, &field, &more));
    assert_true(field.type == ASH_WIRE_FIXED64 && field.value == 1);
    assert_ok(ash_wire__next(&wire, &field, &more));
    assert_false(more);
}

static void test_negative_number_takes_ten_bytes(void **state) {
    (void)state;
    OPEN(0x08, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01);
    int64_t value;
    assert_ok(ash_wire__next(&wire, &field, &more));
    assert_ok(ash_wire__int(&wire, &field, &value));
    assert_int_equal(value, -1);
}

#define REFUSED(name, at, ...)                                                                             \
    static void test_##name(void **state) {                                                                \
        (void)state;                                                                                       \
        OPEN(__VA_ARGS__);                                                                                 \
        assert_status(ash_wire__next(&wire, &field, &more), ASH_ERROR_FORMAT);                             \
        assert_int_equal(diag.file_offset, at);                                                            \
    }

REFUSED(number_cut_off, 1, 0x08, 0x80)
REFUSED(number_too_long, 1, 0x08, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x02)
REFUSED(length_past_the_end, 0, 0x0a, 3, 'a', 'b')
REFUSED(huge_length, 0, 0x0a, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01)
REFUSED(fixed_cut_off, 1, 0x0d, 1, 2, 3)
REFUSED(field_number_zero, 0, 0x02, 0)
REFUSED(field_number_too_large, 0, 0x80, 0x80, 0x80, 0x80, 0x80, 0x01)
REFUSED(group, 0, 0x0b, 0x0c)

static void test_wrong_type_is_refused(void **state) {
    (void)state;
    OPEN(0x08, 1);
    ash_wire sub;
    ash_span span;
    assert_ok(ash_wire__next(&wire, &field, &more));
    assert_status(ash_wire__enter(&wire, &field, &sub), ASH_ERROR_FORMAT);
    assert_status(ash_wire__bytes(&wire, &field, &span), ASH_ERROR_FORMAT);
}

static void test_inner_message_ends_where_it_says(void **state) {
    (void)state;
    OPEN(0x0a, 2, 0x12, 1, 0x08, 1); /* the inner field claims the byte behind its message */
    ash_wire sub;
    assert_ok(ash_wire__next(&wire, &field, &more));
    assert_ok(ash_wire__enter(&wire, &field, &sub));
    assert_status(ash_wire__next(&sub, &field, &more), ASH_ERROR_FORMAT);
    assert_int_equal(diag.file_offset, 2);
}

static void test_nesting_is_bounded(void **state) {
    (void)state;
    static const uint8_t data[] = {0x0a, 0};
    ash_wire wire = open_bytes(data, sizeof data), sub;
    ash_field field;
    bool more;
    wire.depth = 0;
    assert_ok(ash_wire__next(&wire, &field, &more));
    assert_status(ash_wire__enter(&wire, &field, &sub), ASH_ERROR_FORMAT);
}

static void test_packed_and_single_numbers(void **state) {
    (void)state;
    OPEN(0x0a, 3, 1, 0x96, 0x01, 0x08, 7);
    static const uint64_t want[] = {1, 150, 7};
    size_t n = 0;
    for (;;) {
        ash_packed packed;
        assert_ok(ash_wire__next(&wire, &field, &more));
        if (!more) break;
        assert_ok(ash_wire__packed(&wire, &field, ASH_WIRE_VARINT, &packed));
        for (uint64_t value;;) {
            bool another;
            assert_ok(ash_packed__next(&packed, &value, &another));
            if (!another) break;
            assert_int_equal(value, want[n++]);
        }
    }
    assert_int_equal(n, 3);
}

/* --- messages ------------------------------------------------------------------------------------- */

static void test_node_message(void **state) {
    (void)state;
    bytes node = make_node("first", "Conv", "x", "w", "y"), attr = {.len = 0};
    put_text(&attr, 1, "pads");
    put_bytes(&attr, 8, "\x01\x02\x03", 3);
    put_int(&attr, 8, -4);
    put_int(&attr, 20, ONNX_ATTR_INTS);
    put_message(&node, 5, &attr);
    put_text(&node, 99, "a field of the future");
    ash_arena arena;
    ash_onnx_node out;
    ash_arena_init(&arena, &ash_allocator__libc);
    assert_ok(ash_onnx__node_read(open_bytes(node.at, node.len), &arena, &out));
    assert_true(ash_span_is(out.name, "first") && ash_span_is(out.op, "Conv") && out.domain.len == 0);
    assert_true(out.n_ins == 2 && ash_span_is(out.ins[1], "w") && out.n_outs == 1 && out.n_attrs == 1);
    assert_true(out.attrs[0].n == 4 && out.attrs[0].ints[2] == 3 && out.attrs[0].ints[3] == -4);
    ash_arena_free(&arena);
}

static void test_tensor_message(void **state) {
    (void)state;
    static const int64_t dims[] = {2, 3};
    bytes t = make_tensor("w", ONNX_FLOAT, dims, 2, "abcd", 4);
    ash_onnx_tensor out;
    assert_ok(ash_onnx__tensor_read(open_bytes(t.at, t.len), &out));
    assert_true(out.rank == 2 && out.dims[1] == 3 && out.dtype == ONNX_FLOAT && out.raw.len == 4 &&
                !out.external);
    put_int(&t, 1, -1);
    assert_status(ash_onnx__tensor_read(open_bytes(t.at, t.len), &out), ASH_ERROR_FORMAT);
}

static void test_tensor_of_too_many_dims(void **state) {
    (void)state;
    bytes t = {.len = 0};
    for (int i = 0; i < ASH_MAX_RANK + 1; i++) put_int(&t, 1, 1);
    ash_onnx_tensor out;
    assert_status(ash_onnx__tensor_read(open_bytes(t.at, t.len), &out), ASH_ERROR_UNSUPPORTED);
}

static void test_external_numbers_are_digits(void **state) {
    (void)state;
    static const char *const bad[] = {"", "-1", "0x10", "99999999999999999999", "1 "};
    for (size_t i = 0; i < ASH_COUNT(bad); i++) {
        bytes t = {.len = 0}, entry = {.len = 0};
        put_text(&entry, 1, "offset");
        put_text(&entry, 2, bad[i]);
        put_message(&t, 13, &entry);
        ash_onnx_tensor out;
        assert_status(ash_onnx__tensor_read(open_bytes(t.at, t.len), &out), ASH_ERROR_FORMAT);
    }
}

static void test_dtypes_go_both_ways(void **state) {
    (void)state;
    for (int i = 0; i < ASH_DTYPE_COUNT; i++) {
        ash_dtype back;
        assert_true(ash_onnx__dtype(ash_onnx__dtype_of((ash_dtype)i), &back));
        assert_int_equal(back, i);
    }
    ash_dtype unused;
    assert_false(ash_onnx__dtype(ONNX_STRING, &unused));
    assert_false(ash_onnx__dtype(-1, &unused));
    assert_false(ash_onnx__dtype(1000, &unused));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_fields_of_each_type),
        cmocka_unit_test(test_negative_number_takes_ten_bytes),
        cmocka_unit_test(test_number_cut_off),
        cmocka_unit_test(test_number_too_long),
        cmocka_unit_test(test_length_past_the_end),
        cmocka_unit_test(test_huge_length),
        cmocka_unit_test(test_fixed_cut_off),
        cmocka_unit_test(test_field_number_zero),
        cmocka_unit_test(test_field_number_too_large),
        cmocka_unit_test(test_group),
        cmocka_unit_test(test_wrong_type_is_refused),
        cmocka_unit_test(test_inner_message_ends_where_it_says),
        cmocka_unit_test(test_nesting_is_bounded),
        cmocka_unit_test(test_packed_and_single_numbers),
        cmocka_unit_test(test_node_message),
        cmocka_unit_test(test_tensor_message),
        cmocka_unit_test(test_tensor_of_too_many_dims),
        cmocka_unit_test(test_external_numbers_are_digits),
        cmocka_unit_test(test_dtypes_go_both_ways),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
