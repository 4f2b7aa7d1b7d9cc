/* SPDX-License-Identifier: MIT */
/* Machines of other numbers on the stand-in: a driver that is too old, no GPU, a GPU that is too old; and
 * bytes that come to a GPU from a file. */
#include <unistd.h>

#include "ashlar/device.h"
#include "cuda_room.h"
#include "gpu_here.h"

static ash_diag diag;

/* That CUDA:0 of such a machine is refused with this reason, and leaves nothing. */
static void refuses(ptx_machine machine, const char *why) {
    ash_context *context;
    ash_device *device = NULL;
    cuda_room_driver(0);
    ptx_reset(&machine, 0);
    assert_ok(ash_context_create(NULL, &context, &diag));
    assert_status(ash_device_open(context, "CUDA:0", &device, &diag), ASH_ERROR_DEVICE);
    if (!strstr(diag.message, why)) fail_msg("\"%s\" instead of \"%s\"", diag.message, why);
    assert_null(device);
    ash_context_destroy(context);
    assert_int_equal(ptx_live(), 0);
}

static const ptx_machine usual = {.devices = 1,
                                  .capability = 90,
                                  .driver_version = 12080,
                                  .memory = (uint64_t)1 << 30,
                                  .multiprocessors = 132,
                                  .instruction_limit = (uint64_t)1 << 36};

static void machines_that_will_not_do(void **state) {
    (void)state;
    ptx_machine m = usual;
    m.driver_version = 11030;
    refuses(m, "the CUDA driver is too old: it knows CUDA 11.3, and 11.4 is needed");
    m = usual, m.devices = 0;
    refuses(m, "the CUDA driver finds no GPU");
    m = usual, m.capability = 61;
    refuses(m, "has compute capability 6.1, and 7.0 is needed");
}

/* The oldest of each that will. */
static void machines_that_just_do(void **state) {
    (void)state;
    ptx_machine m = usual;
    m.driver_version = 11040, m.capability = 70;
    ash_context *context;
    ash_device *device = NULL;
    cuda_room_driver(0);
    ptx_reset(&m, 0);
    assert_ok(ash_context_create(NULL, &context, &diag));
    assert_ok(ash_device_open(context, "CUDA:0", &device, &diag));
    ash_device_close(device);
    assert_status(ash_device_open(context, "CUDA:1", &device, &diag), ASH_ERROR_OUT_OF_RANGE);
    ash_context_destroy(context);
    assert_int_equal(ptx_live(), 0);
}

static void files_are_copied_to_a_gpu(void **state) {
    (void)state;
    enum { BYTES = 5000, FROM = 100, SOME = 4100 };
    static unsigned char bytes[BYTES], got[SOME];
    char path[] = "/tmp/ashlar_disk_XXXXXX", name[64];
    ash_context *context;
    ash_device *disk, *gpu;
    ash_storage *file, *memory;
    ash_view *from, *to;
    const ash_type type = {ASH_U8, 1, {SOME}};
    for (int i = 0; i < BYTES; i++) bytes[i] = (unsigned char)(i * 31 + i / 256);
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, bytes, BYTES), BYTES);
    close(fd);
    snprintf(name, sizeof name, "DISK:%s", path);
    cuda_room_driver(1);
    assert_ok(ash_context_create(NULL, &context, &diag));
    assert_ok(ash_device_open(context, name, &disk, &diag));
    assert_ok(ash_device_open(context, "CUDA:0", &gpu, &diag));
    assert_ok(ash_storage_create(disk, BYTES, 1, &file, &diag));
    assert_ok(ash_storage_create(gpu, SOME, 256, &memory, &diag));
    assert_ok(ash_view_create(file, FROM, SOME, &type, &from, &diag));
    assert_ok(ash_view_create(memory, 0, SOME, &type, &to, &diag));
    assert_ok(ash_view_copy(to, from, &diag));
    assert_ok(ash_view_copy_out(to, got, SOME, &diag));
    assert_memory_equal(got, bytes + FROM, SOME);
    assert_int_not_equal(ash_view_copy(from, to, &diag), ASH_OK); /* a file is read only */
    ash_view_release(from), ash_view_release(to);
    ash_storage_release(file), ash_storage_release(memory);
    ash_device_close(disk), ash_device_close(gpu);
    ash_context_destroy(context);
    unlink(path);
    assert_int_equal(ptx_live(), 0);
}

int main(void) {
    if (!gpu_is_compiled_for()) return GPU_SKIPPED;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(machines_that_will_not_do),
        cmocka_unit_test(machines_that_just_do),
        cmocka_unit_test(files_are_copied_to_a_gpu),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
