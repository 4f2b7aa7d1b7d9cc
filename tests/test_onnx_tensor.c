/* SPDX-License-Identifier: MIT */
/* Tensor files: .npy and .pb, written, read, and refused. */
#include "onnx_folder.h"

#include "ashlar/device.h"
#include "ashlar/tensor.h"
#include "base/base.h"
#include "onnx_bytes.h"

static void write_file(const char *path, const void *data, size_t size) {
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(data, 1, size, f), size);
    assert_int_equal(fclose(f), 0);
}

static ash_status read_back(const char *name, const void *data, size_t size, ash_tensor **out) {
    write_file(in_folder(name), data, size);
    ash_status status = ash_tensor_read(context, in_folder(name), out, &diag);
    unlink(in_folder(name));
    return status;
}

static void test_round_trip_of_every_dtype(void **state) {
    (void)state;
    static const char *const names[] = {"t.npy", "t.pb"};
    for (int d = 0; d < ASH_DTYPE_COUNT; d++) {
        for (size_t k = 0; k < 2; k++) {
            const ash_type type = {.dtype = (ash_dtype)d, .rank = 2, .dims = {3, 5}};
            uint8_t data[15 * 8];
            for (size_t i = 0; i < sizeof data; i++) data[i] = d == ASH_BOOL ? i & 1 : (uint8_t)(i * 7 + 1);
            size_t size = 15 * ash_dtype_size(type.dtype);
            ash_tensor *tensor, *back;
            assert_ok(ash_tensor_create(context, "weights", &type, data, size, &tensor, &diag));
            ash_status status = ash_tensor_write(tensor, in_folder(names[k]), &diag);
            ash_tensor_destroy(tensor);
            if (d == ASH_BF16 && k == 0) {
                assert_status(status, ASH_ERROR_UNSUPPORTED);
                continue;
            }
            assert_int_equal(status, ASH_OK);
            assert_ok(ash_tensor_read(context, in_folder(names[k]), &back, &diag));
            assert_memory_equal(ash_tensor_type(back), &type, sizeof type);
            assert_int_equal(ash_tensor_size(back), size);
            assert_memory_equal(ash_tensor_data(back), data, size);
            assert_int_equal((uintptr_t)ash_tensor_data(back) % ash_dtype_size(type.dtype), 0);
            assert_string_equal(ash_tensor_name(back), k ? "weights" : "");
            ash_tensor_destroy(back);
            unlink(in_folder(names[k]));
        }
    }
}

static void test_scalars_and_empty_tensors(void **state) {
    (void)state;
    static const ash_type types[] = {{.dtype = ASH_F32}, {.dtype = ASH_I64, .rank = 3, .dims = {2, 0, 4}}};
    static const float one = 1;
    for (size_t i = 0; i < ASH_COUNT(types); i++) {
        ash_tensor *tensor, *back;
        assert_ok(ash_tensor_create(context, NULL, &types[i], i ? NULL : &one, i ? 0 : sizeof one, &tensor,
                                    &diag));
        assert_ok(ash_tensor_write(tensor, in_folder("e.npy"), &diag));
        assert_ok(ash_tensor_read(context, in_folder("e.npy"), &back, &diag));
        assert_memory_equal(ash_tensor_type(back), &types[i], sizeof types[i]);
        ash_tensor_destroy(tensor);
        ash_tensor_destroy(back);
        unlink(in_folder("e.npy"));
    }
}

/* A tensor is a view with a name: of its own bytes, or of those of a view that exists. */
static void test_tensors_are_views(void **state) {
    (void)state;
    const ash_type type = {.dtype = ASH_F32, .rank = 2, .dims = {2, 3}}, row = {ASH_F32, 1, {3}};
    float data[6] = {1, 2, 3, 4, 5, 6}, out[6];
    ash_tensor *tensor, *back;
    ash_storage *storage;
    ash_view *view;
    void *address;
    assert_ok(ash_tensor_create(context, "own", &type, data, sizeof data, &tensor, &diag));
    assert_memory_equal(ash_view_type(ash_tensor_view(tensor)), &type, sizeof type);
    assert_ok(ash_view_copy_out(ash_tensor_view(tensor), out, sizeof out, &diag));
    assert_memory_equal(out, data, sizeof data);
    assert_status(ash_view_data_mut((ash_view *)ash_tensor_view(tensor), &address, &diag), ASH_ERROR_STATE);
    ash_tensor_destroy(tensor);

    assert_ok(ash_storage_wrap(context, data, sizeof data, true, &storage, &diag));
    assert_ok(ash_view_create(storage, 3 * sizeof *data, 3 * sizeof *data, &row, &view, &diag));
    assert_ok(ash_tensor_from_view(view, "row", &tensor, &diag));
    ash_view_release(view);
    ash_storage_release(storage);
    assert_ptr_equal(ash_tensor_data(tensor), data + 3);
    assert_string_equal(ash_tensor_name(tensor), "row");
    assert_ok(ash_tensor_write(tensor, in_folder("row.pb"), &diag));
    assert_ok(ash_tensor_read(context, in_folder("row.pb"), &back, &diag));
    assert_memory_equal(ash_tensor_data(back), data + 3, 3 * sizeof *data);
    assert_string_equal(ash_tensor_name(back), "row");
    ash_tensor_destroy(back);
    ash_tensor_destroy(tensor);
    unlink(in_folder("row.pb"));
}

static void test_create_checks_the_size(void **state) {
    (void)state;
    const ash_type type = {.dtype = ASH_F32, .rank = 1, .dims = {3}};
    const ash_type huge = {.dtype = ASH_F32, .rank = 2, .dims = {INT64_MAX, INT64_MAX}};
    const ash_type open = {.dtype = ASH_F32, .rank = 1, .dims = {-1}};
    float data[3] = {0};
    ash_tensor *tensor;
    assert_status(ash_tensor_create(context, NULL, &type, data, 8, &tensor, &diag),
                  ASH_ERROR_INVALID_ARGUMENT);
    assert_status(ash_tensor_create(context, NULL, &huge, data, 8, &tensor, &diag), ASH_ERROR_OUT_OF_RANGE);
    assert_status(ash_tensor_create(context, NULL, &open, data, 8, &tensor, &diag), ASH_ERROR_SHAPE);
    assert_null(tensor);
}

/* A .npy file of version `version` with this header. */
static ash_status npy(uint8_t version, const char *header, const void *data, size_t size,
                      ash_tensor **out) {
    bytes b = {.len = 0};
    uint32_t len = (uint32_t)strlen(header);
    put(&b, "\x93NUMPY", 6);
    put(&b, &version, 1);
    put(&b, "\0", 1);
    put(&b, &len, version == 1 ? 2 : 4);
    put(&b, header, len);
    put(&b, data, size);
    return read_back("h.npy", b.at, b.len, out);
}

static void test_npy_big_endian_and_fortran_order(void **state) {
    (void)state;
    static const uint8_t data[] = {0, 1, 0, 4, 0, 2, 0, 5, 0, 3, 0, 6}; /* columns of [[1,2,3],[4,5,6]] */
    static const int16_t want[] = {1, 2, 3, 4, 5, 6};
    ash_tensor *t;
    assert_ok(npy(2, "{'shape': (2, 3), 'fortran_order': True, 'descr': '>i2'}", data, sizeof data, &t));
    assert_int_equal(ash_tensor_type(t)->dtype, ASH_I16);
    assert_memory_equal(ash_tensor_data(t), want, sizeof want);
    ash_tensor_destroy(t);
}

static void test_npy_refusals(void **state) {
    (void)state;
    static const struct {
        const char *header;
        ash_status status;
    } cases[] = {
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (2,), }", ASH_OK},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (3,), }", ASH_ERROR_FORMAT},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (99999999999999999999,), }", ASH_ERROR_FORMAT},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (9223372036854775807, 9223372036854775807), }",
         ASH_ERROR_OUT_OF_RANGE},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (-2,), }", ASH_ERROR_FORMAT},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (1,1,1,1,1,1,1,1,1,1,2), }", ASH_ERROR_FORMAT},
        {"{'descr': '<c8', 'fortran_order': False, 'shape': (1,), }", ASH_ERROR_UNSUPPORTED},
        {"{'descr': '|O', 'fortran_order': False, 'shape': (1,), }", ASH_ERROR_UNSUPPORTED},
        {"{'descr': '<f4', 'fortran_order': Maybe, 'shape': (2,), }", ASH_ERROR_FORMAT},
        {"{'descr': '<f4', 'shape': (2,), }", ASH_ERROR_FORMAT},
        {"{'descr': '<f4', 'descr': '<f4', 'fortran_order': False, 'shape': (2,), }", ASH_ERROR_FORMAT},
        {"{'descr': '<f4", ASH_ERROR_FORMAT},
        {"", ASH_ERROR_FORMAT},
    };
    for (size_t i = 0; i < ASH_COUNT(cases); i++) {
        ash_tensor *t = NULL;
        assert_int_equal(npy(1, cases[i].header, "abcdefgh", 8, &t), cases[i].status);
        ash_tensor_destroy(t);
    }
    ash_tensor *t = NULL;
    assert_status(npy(4, cases[0].header, "abcdefgh", 8, &t), ASH_ERROR_UNSUPPORTED);
    assert_status(read_back("h.npy", "\x93NUMPY\x01", 7, &t), ASH_ERROR_FORMAT);
    assert_status(read_back("h.npy", "\x93NUMPY\x01\x00\xff\xff{", 11, &t), ASH_ERROR_FORMAT);
}

static void test_pb_typed_fields(void **state) {
    (void)state;
    bytes t = {.len = 0};
    static const int32_t want[] = {5, -1, 70000};
    put_int(&t, 1, 3);
    put_int(&t, 2, 6);
    put_int(&t, 5, 5); /* one unpacked, two packed */
    bytes packed = {.len = 0};
    put_varint(&packed, (uint64_t)-1);
    put_varint(&packed, 70000);
    put_message(&t, 5, &packed);
    ash_tensor *out;
    assert_int_equal(read_back("t.pb", t.at, t.len, &out), ASH_OK);
    assert_memory_equal(ash_tensor_data(out), want, sizeof want);
    ash_tensor_destroy(out);
    put_int(&t, 5, 1);
    assert_status(read_back("t.pb", t.at, t.len, &out), ASH_ERROR_FORMAT);
}

static void test_pb_refusals(void **state) {
    (void)state;
    static const int64_t two[] = {2}, huge[] = {INT64_MAX, INT64_MAX}, many[] = {1 << 30};
    ash_tensor *out = NULL;
    bytes t = make_tensor("t", 1, two, 1, "abcd", 4);
    assert_status(read_back("t.pb", t.at, t.len, &out), ASH_ERROR_FORMAT);
    assert_string_equal(diag.node, "t");
    t = make_tensor("t", 1, huge, 2, "abcd", 4);
    assert_status(read_back("t.pb", t.at, t.len, &out), ASH_ERROR_FORMAT);
    t = make_tensor("t", 8, two, 1, "abcd", 4);
    assert_status(read_back("t.pb", t.at, t.len, &out), ASH_ERROR_UNSUPPORTED);
    bytes typed = {.len = 0}; /* more elements than bytes: refused before anything is allocated */
    put_int(&typed, 1, many[0]);
    put_int(&typed, 2, 7);
    put_int(&typed, 7, 1);
    assert_status(read_back("t.pb", typed.at, typed.len, &out), ASH_ERROR_FORMAT);
}

static void test_bools_become_zero_and_one(void **state) {
    (void)state;
    static const int64_t three[] = {3};
    bytes t = make_tensor("t", 9, three, 1, "\x00\x02\xff", 3);
    ash_tensor *out;
    assert_int_equal(read_back("t.pb", t.at, t.len, &out), ASH_OK);
    assert_memory_equal(ash_tensor_data(out), "\0\1\1", 3);
    ash_tensor_destroy(out);
}

static void test_files_that_are_none(void **state) {
    (void)state;
    ash_tensor *out;
    assert_status(ash_tensor_read(context, in_folder("missing.npy"), &out, &diag), ASH_ERROR_NOT_FOUND);
    assert_status(ash_tensor_read(context, folder, &out, &diag), ASH_ERROR_IO);
    const ash_type type = {.dtype = ASH_F32};
    float one = 1;
    assert_ok(ash_tensor_create(context, NULL, &type, &one, sizeof one, &out, &diag));
    assert_status(ash_tensor_write(out, in_folder("t.txt"), &diag), ASH_ERROR_INVALID_ARGUMENT);
    assert_status(ash_tensor_write(out, in_folder("no/such/t.npy"), &diag), ASH_ERROR_NOT_FOUND);
    ash_tensor_destroy(out);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_round_trip_of_every_dtype),
        cmocka_unit_test(test_scalars_and_empty_tensors),
        cmocka_unit_test(test_tensors_are_views),
        cmocka_unit_test(test_create_checks_the_size),
        cmocka_unit_test(test_npy_big_endian_and_fortran_order),
        cmocka_unit_test(test_npy_refusals),
        cmocka_unit_test(test_pb_typed_fields),
        cmocka_unit_test(test_pb_refusals),
        cmocka_unit_test(test_bools_become_zero_and_one),
        cmocka_unit_test(test_files_that_are_none),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
