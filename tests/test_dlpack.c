/* SPDX-License-Identifier: MIT */
/* Views as DLPack's tensors and back: the same bytes, the right holder, and refusals that leave the tensor
 * to the caller. */
#include "testing.h"

#include "ashlar/dlpack.h"
#include "device/dlpack_abi.h"

static ash_diag diag;
static test_memory memory;
static ash_context *context;
static ash_device *cpu;
static int deleted; /* of the tensors below */

static int set_up(void **state) {
    (void)state;
    memory = (test_memory){0};
    ash_context_options options = {.allocator = test_memory_allocator(&memory), .threads = 1};
    assert_ok(ash_context_create(&options, &context, &diag));
    assert_ok(ash_device_open(context, "CPU", &cpu, &diag));
    deleted = 0;
    return 0;
}

static int tear_down(void **state) {
    (void)state;
    ash_device_close(cpu);
    ash_context_destroy(context);
    assert_int_equal(memory.live, 0);
    return 0;
}

static void count(struct DLManagedTensorVersioned *self) {
    deleted += self->manager == &deleted;
}

static void count_unversioned(struct DLManagedTensor *self) {
    deleted += self->manager == &deleted;
}

static float numbers[24];
static int64_t shape[3], strides[3];

/* f32[2, 3, 4] with strides. */
static struct DLManagedTensorVersioned tensor(void) {
    for (int i = 0; i < 24; i++) numbers[i] = (float)i;
    shape[0] = 2, shape[1] = 3, shape[2] = 4;
    strides[0] = 12, strides[1] = 4, strides[2] = 1;
    return (struct DLManagedTensorVersioned){
        .major = 1,
        .minor = 1,
        .manager = &deleted,
        .deleter = count,
        .tensor = {numbers, {DLPACK_CPU, 0}, 3, {DLPACK_FLOAT, 32, 1}, shape, strides, 0}};
}

static void in_by_address(void **state) {
    (void)state;
    struct DLManagedTensorVersioned t = tensor();
    ash_view *view;
    const void *data;
    void *mut;
    assert_ok(ash_view_from_dlpack(context, &t, &view, &diag));
    assert_ok(ash_view_data(view, &data, &diag));
    assert_ptr_equal(data, numbers);
    assert_ok(ash_view_data_mut(view, &mut, &diag));
    const ash_type *type = ash_view_type(view);
    assert_true(type->dtype == ASH_F32 && type->rank == 3 && type->dims[1] == 3 && type->dims[2] == 4);
    /* The storage has it, whoever holds that. */
    ash_storage *storage = ash_storage_retain(ash_view_storage(view));
    ash_view_release(view);
    assert_int_equal(deleted, 0);
    ash_storage_release(storage);
    assert_int_equal(deleted, 1);

    t = tensor(), t.tensor.byte_offset = 16, t.tensor.strides = NULL, t.tensor.shape[0] = 1;
    t.flags = DLPACK_READ_ONLY, t.deleter = NULL;
    assert_ok(ash_view_from_dlpack(context, &t, &view, &diag));
    assert_ok(ash_view_data(view, &data, &diag));
    assert_ptr_equal(data, numbers + 4);
    assert_status(ash_view_data_mut(view, &mut, &diag), ASH_ERROR_STATE);
    ash_view_release(view);

    struct DLManagedTensor old = {tensor().tensor, &deleted, count_unversioned};
    assert_ok(ash_view_from_dlpack_unversioned(context, &old, &view, &diag));
    assert_int_equal(ash_view_bytes(view), sizeof numbers);
    ash_view_release(view);
    assert_int_equal(deleted, 2);
}

/* Strides where they say nothing; no elements; no dims. */
static void shapes_without_gaps(void **state) {
    (void)state;
    ash_view *view;
    struct DLManagedTensorVersioned t = tensor();
    shape[1] = 1, strides[1] = 99, strides[0] = 4;
    assert_ok(ash_view_from_dlpack(context, &t, &view, &diag));
    assert_int_equal(ash_view_bytes(view), 32);
    ash_view_release(view);
    t = tensor(), shape[2] = 0, strides[0] = 7, t.tensor.data = NULL;
    assert_ok(ash_view_from_dlpack(context, &t, &view, &diag));
    assert_int_equal(ash_view_bytes(view), 0);
    ash_view_release(view);
    t = tensor(), t.tensor.rank = 0, t.tensor.shape = t.tensor.strides = NULL;
    assert_ok(ash_view_from_dlpack(context, &t, &view, &diag));
    assert_int_equal(ash_view_bytes(view), 4);
    ash_view_release(view);
    assert_int_equal(deleted, 3);
}

static void refusals(void **state) {
    (void)state;
    ash_view *view;
    struct DLManagedTensorVersioned good = tensor(), t;
#define REFUSED(code, change)                                                                              \
    do {                                                                                                   \
        t = good;                                                                                          \
        tensor();                                                                                          \
        change;                                                                                            \
        assert_status(ash_view_from_dlpack(context, &t, &view, &diag), code);                              \
        assert_null(view);                                                                                 \
    } while (0)
    REFUSED(ASH_ERROR_UNSUPPORTED, t.major = 2);
    REFUSED(ASH_ERROR_UNSUPPORTED, t.tensor.device.type = DLPACK_CUDA);
    REFUSED(ASH_ERROR_UNSUPPORTED, t.tensor.dtype.lanes = 4);
    REFUSED(ASH_ERROR_UNSUPPORTED, t.tensor.dtype.bits = 4);
    REFUSED(ASH_ERROR_UNSUPPORTED, t.tensor.dtype.code = 5 /* complex */);
    REFUSED(ASH_ERROR_UNSUPPORTED, t.tensor.dtype.code = 200);
    REFUSED(ASH_ERROR_UNSUPPORTED, t.tensor.rank = ASH_MAX_RANK + 1);
    REFUSED(ASH_ERROR_UNSUPPORTED, strides[1] = 5);
    REFUSED(ASH_ERROR_UNSUPPORTED, strides[2] = -1);
    REFUSED(ASH_ERROR_INVALID_ARGUMENT, t.tensor.rank = -1);
    REFUSED(ASH_ERROR_INVALID_ARGUMENT, t.tensor.shape = NULL);
    REFUSED(ASH_ERROR_INVALID_ARGUMENT, shape[1] = -3);
    REFUSED(ASH_ERROR_INVALID_ARGUMENT, t.tensor.data = NULL);
    REFUSED(ASH_ERROR_OUT_OF_RANGE, (shape[0] = shape[1] = INT64_MAX, t.tensor.strides = NULL));
    REFUSED(ASH_ERROR_OUT_OF_RANGE,
            (shape[0] = INT64_MAX, shape[1] = shape[2] = 1, t.tensor.strides = NULL));
    assert_int_equal(deleted, 0); /* the caller's, still */
#undef REFUSED
}

/* Out and in again: the tensor holds the bytes when the view is gone. */
static void out_and_back(void **state) {
    (void)state;
    static const ash_dtype dtypes[] = {ASH_F32, ASH_BF16, ASH_BOOL, ASH_U8, ASH_I64};
    static const uint8_t want[][2] = {{DLPACK_FLOAT, 32},
                                      {DLPACK_BFLOAT, 16},
                                      {DLPACK_BOOL, 8},
                                      {DLPACK_UNSIGNED, 8},
                                      {DLPACK_SIGNED, 64}};
    for (size_t i = 0; i < sizeof dtypes / sizeof *dtypes; i++) {
        const ash_type type = {.dtype = dtypes[i], .rank = 2, .dims = {3, 5}};
        uint64_t bytes = 15 * ash_dtype_size(dtypes[i]);
        ash_storage *storage;
        ash_view *view, *back;
        struct DLManagedTensorVersioned *t;
        const void *data;
        assert_ok(ash_storage_create(cpu, bytes + 64, 0, &storage, &diag));
        assert_ok(ash_view_create(storage, 64, bytes, &type, &view, &diag));
        ash_storage_release(storage);
        assert_ok(ash_view_to_dlpack(view, &t, &diag));
        assert_ok(ash_view_data(view, &data, &diag));
        ash_view_release(view);
        assert_true(t->major == 1 && t->flags == 0 && t->tensor.device.type == DLPACK_CPU);
        assert_true(t->tensor.dtype.code == want[i][0] && t->tensor.dtype.bits == want[i][1]);
        assert_true(t->tensor.dtype.lanes == 1 && t->tensor.rank == 2);
        assert_true(t->tensor.strides[0] == 5 && t->tensor.strides[1] == 1);
        assert_ptr_equal((char *)t->tensor.data + t->tensor.byte_offset, data);
        assert_ok(ash_view_from_dlpack(context, t, &back, &diag));
        memset(t->tensor.data, 1, bytes);
        ash_view_release(back); /* calls our own deleter */
    }
}

static void out_read_only(void **state) {
    (void)state;
    static const char bytes[4] = "abc";
    const ash_type type = {.dtype = ASH_U8, .rank = 1, .dims = {4}};
    ash_storage *storage;
    ash_view *view;
    struct DLManagedTensorVersioned *t;
    struct DLManagedTensor *old;
    assert_ok(ash_storage_wrap(context, (void *)bytes, 4, false, &storage, &diag));
    assert_ok(ash_view_create(storage, 0, 4, &type, &view, &diag));
    ash_storage_release(storage);
    assert_ok(ash_view_to_dlpack(view, &t, &diag));
    assert_true(t->flags & DLPACK_READ_ONLY);
    t->deleter(t);
    assert_status(ash_view_to_dlpack_unversioned(view, &old, &diag), ASH_ERROR_STATE);
    assert_null(old);
    ash_view_release(view);
    assert_ok(ash_storage_create(cpu, 4, 0, &storage, &diag));
    assert_ok(ash_view_create(storage, 0, 4, &type, &view, &diag));
    ash_storage_release(storage);
    assert_ok(ash_view_to_dlpack_unversioned(view, &old, &diag));
    ash_view_release(view);
    old->deleter(old);
}

/* An allocation that fails leaves the tensor to the caller, too. */
static void without_memory(void **state) {
    (void)state;
    ash_view *view;
    int failures = 0;
    for (long after = 0;; after++, failures++) {
        struct DLManagedTensorVersioned t = tensor();
        memory.fail_at = memory.count + after + 1;
        ash_status status = ash_view_from_dlpack(context, &t, &view, &diag);
        memory.fail_at = 0;
        if (status == ASH_OK) break;
        assert_int_equal(status, ASH_ERROR_OUT_OF_MEMORY);
        assert_int_equal(deleted, 0);
    }
    assert_true(failures >= 3);
    ash_view_release(view);
    assert_int_equal(deleted, 1);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(in_by_address, set_up, tear_down),
        cmocka_unit_test_setup_teardown(shapes_without_gaps, set_up, tear_down),
        cmocka_unit_test_setup_teardown(refusals, set_up, tear_down),
        cmocka_unit_test_setup_teardown(out_and_back, set_up, tear_down),
        cmocka_unit_test_setup_teardown(out_read_only, set_up, tear_down),
        cmocka_unit_test_setup_teardown(without_memory, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
