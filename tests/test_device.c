/* SPDX-License-Identifier: MIT */
/* Devices, storage and views: registry, lazy and once-only memory, mapped files and what files do, bounds,
 * copies. */
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <unistd.h>

#include "base/base.h"
#include "device/device.h"

#define ROOM_MORE char path[64]; /* of a file with 10000 bytes: i % 251 */
#include "graph_room.h"

static ash_diag diag;

static void write_file(const char *path, size_t size) {
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    for (size_t i = 0; i < size; i++) fputc((int)(i % 251), f);
    fclose(f);
}

static int setup(void **state) {
    room_open(state, 1);
    struct room *r = *state;
    assert_ok(ash_device_open(r->context, "CPU", &r->device, &diag));
    strcpy(r->path, "/tmp/ashlar-test-XXXXXX");
    int fd = mkstemp(r->path);
    assert_true(fd >= 0);
    close(fd);
    write_file(r->path, 10000);
    return 0;
}

static int leave(void **state) {
    unlink(((struct room *)*state)->path);
    return teardown(state);
}

static ash_type type_of(ash_dtype dtype, int64_t n) {
    return (ash_type){.dtype = dtype, .rank = 1, .dims = {n}};
}

static void devices_by_name(void **state) {
    struct room *r = *state;
    ash_device *d, *again;
    assert_ok(ash_device_open(r->context, "CPU", &d, &diag));
    assert_ptr_equal(d, r->device);
    ash_device_info info = ash_device_describe(d);
    assert_string_equal(info.name, "CPU");
    assert_true(info.cpu_accessible && info.writable);
    ash_device_close(d);

    char name[100];
    snprintf(name, sizeof name, "DISK:%s", r->path);
    assert_ok(ash_device_open(r->context, name, &d, &diag));
    assert_ok(ash_device_open(r->context, name, &again, &diag));
    assert_ptr_equal(d, again);
    info = ash_device_describe(d);
    assert_true(info.cpu_accessible && !info.writable);
    assert_int_equal(info.capacity, 10000);
    ash_device_close(d);
    ash_device_close(again);
}

static void devices_that_are_not_there(void **state) {
    struct room *r = *state;
    ash_device *d;
    setenv("ASHLAR_CUDA_DRIVER", "/no/such/library.so", 1);
    assert_status(ash_device_open(r->context, "CUDA:0", &d, &diag), ASH_ERROR_DEVICE);
    assert_non_null(strstr(diag.message, "no CUDA driver: /no/such/library.so"));
    assert_null(d);
    unsetenv("ASHLAR_CUDA_DRIVER");
    static const char *const none[] = {"CUDA", "CUDA:", "CUDA:x", "CUDA:1x", "CUDA:-1"};
    for (size_t i = 0; i < ASH_COUNT(none); i++) {
        assert_status(ash_device_open(r->context, none[i], &d, &diag), ASH_ERROR_DEVICE);
        assert_non_null(strstr(diag.message, "write CUDA:n"));
    }
    assert_status(ash_device_open(r->context, "TPU:3", &d, &diag), ASH_ERROR_DEVICE);
    assert_non_null(strstr(diag.message, "TPU:3"));
    assert_status(ash_device_open(r->context, "CPU:1", &d, &diag), ASH_ERROR_DEVICE);
    assert_status(ash_device_open(r->context, "", &d, &diag), ASH_ERROR_DEVICE);
    assert_status(ash_device_open(r->context, "DISK:", &d, &diag), ASH_ERROR_DEVICE);
    assert_status(ash_device_open(r->context, "DISK:/nowhere/at/all", &d, &diag), ASH_ERROR_NOT_FOUND);
    assert_status(ash_device_open(r->context, "DISK:/tmp", &d, &diag), ASH_ERROR_IO);
    assert_status(ash_device_open(r->context, NULL, &d, &diag), ASH_ERROR_INVALID_ARGUMENT);
    assert_status(ash_device_open(NULL, "CPU", &d, &diag), ASH_ERROR_INVALID_ARGUMENT);
    assert_status(ash_device_open(r->context, "CPU", NULL, &diag), ASH_ERROR_INVALID_ARGUMENT);
    ash_device_close(NULL);
}

static void memory_is_lazy_zeroed_aligned(void **state) {
    struct room *r = *state;
    static const uint64_t aligns[] = {0, 64, 4096, 1 << 16}, sizes[] = {0, 1, 63, 1000003};
    for (size_t a = 0; a < ASH_COUNT(aligns); a++)
        for (size_t s = 0; s < ASH_COUNT(sizes); s++) {
            ash_storage *storage;
            assert_ok(ash_storage_create(r->device, sizes[s], aligns[a], &storage, &diag));
            assert_false(ash_storage_allocated(storage));
            assert_int_equal(ash_storage_size(storage), sizes[s]);
            ash_type type = type_of(ASH_U8, (int64_t)sizes[s]);
            ash_view *view;
            assert_ok(ash_view_create(storage, 0, sizes[s], &type, &view, &diag));
            assert_false(ash_storage_allocated(storage));
            const void *data;
            assert_ok(ash_view_data(view, &data, &diag));
            assert_true(ash_storage_allocated(storage));
            assert_int_equal((uintptr_t)data % ASH_MAX(aligns[a], (uint64_t)ASH_STORAGE_ALIGN), 0);
            for (uint64_t i = 0; i < sizes[s]; i++) assert_int_equal(((const char *)data)[i], 0);
            ash_storage_release(storage);
            ash_view_release(view);
        }
    ash_storage *storage;
    assert_status(ash_storage_create(r->device, 8, 48, &storage, &diag), ASH_ERROR_INVALID_ARGUMENT);
    assert_status(ash_storage_create(NULL, 8, 0, &storage, &diag), ASH_ERROR_INVALID_ARGUMENT);
    assert_ok(ash_storage_create(r->device, UINT64_MAX, 0, &storage, &diag));
    assert_status(ash_storage_allocate(storage, &diag), ASH_ERROR_OUT_OF_MEMORY);
    assert_non_null(strstr(diag.message, "18446744073709551615"));
    ash_storage_release(storage);
}

/* Without an allocator of the caller's, large blocks come page by page. */
static void large_blocks(void **state) {
    (void)state;
    ash_context *context;
    ash_device *cpu;
    assert_ok(ash_context_create(NULL, &context, &diag));
    assert_ok(ash_device_open(context, "CPU", &cpu, &diag));
    static const uint64_t sizes[] = {(1 << 20) - 1, 1 << 20, (1 << 21) + 5, 50000001};
    for (size_t i = 0; i < ASH_COUNT(sizes); i++) {
        ash_storage *storage;
        assert_ok(ash_storage_create(cpu, sizes[i], 1 << 14, &storage, &diag));
        ash_type type = type_of(ASH_U8, (int64_t)sizes[i]);
        ash_view *view;
        assert_ok(ash_view_create(storage, 0, sizes[i], &type, &view, &diag));
        void *data;
        assert_ok(ash_view_data_mut(view, &data, &diag));
        assert_int_equal((uintptr_t)data % (1 << 14), 0);
        assert_int_equal(((char *)data)[sizes[i] - 1], 0);
        memset(data, 1, sizes[i]);
        ash_view_release(view);
        ash_storage_release(storage);
    }
    ash_device_close(cpu);
    ash_context_destroy(context);
}

struct racer {
    pthread_t thread;
    pthread_barrier_t *start;
    ash_view *view;
    const void *seen;
};

static void *race(void *arg) {
    struct racer *racer = arg;
    pthread_barrier_wait(racer->start);
    if (ash_view_data(racer->view, &racer->seen, NULL) != ASH_OK) racer->seen = NULL;
    return NULL;
}

static atomic_int slow_allocations;

/* Large allocations take their time, so that the others come while one is at it. */
static void *slow_alloc(void *user, size_t size, size_t align) {
    (void)user;
    if (size == 4000) {
        atomic_fetch_add(&slow_allocations, 1);
        usleep(300);
    }
    return ash_allocator__libc.alloc(NULL, size, align);
}

static void slow_free(void *user, void *data, size_t size) {
    (void)user;
    ash_allocator__libc.free(NULL, data, size);
}

static void racing_threads_allocate_once(void **state) {
    (void)state;
    ash_context *context;
    ash_device *cpu;
    ash_context_options options = {.allocator = {slow_alloc, slow_free, NULL}, .threads = 1};
    assert_ok(ash_context_create(&options, &context, &diag));
    assert_ok(ash_device_open(context, "CPU", &cpu, &diag));
    for (int round = 0; round < 50; round++) {
        ash_storage *storage;
        ash_view *view;
        ash_type type = type_of(ASH_F32, 1000);
        assert_ok(ash_storage_create(cpu, 4000, 0, &storage, &diag));
        assert_ok(ash_view_create(storage, 0, 4000, &type, &view, &diag));
        atomic_store(&slow_allocations, 0);
        pthread_barrier_t start;
        pthread_barrier_init(&start, NULL, 4);
        struct racer racers[4];
        for (int i = 0; i < 4; i++) {
            racers[i] = (struct racer){.start = &start, .view = view};
            pthread_create(&racers[i].thread, NULL, race, &racers[i]);
        }
        for (int i = 0; i < 4; i++) pthread_join(racers[i].thread, NULL);
        pthread_barrier_destroy(&start);
        for (int i = 0; i < 4; i++) assert_ptr_equal(racers[i].seen, racers[0].seen);
        assert_non_null(racers[0].seen);
        assert_int_equal(atomic_load(&slow_allocations), 1);
        ash_view_release(view);
        ash_storage_release(storage);
    }
    ash_device_close(cpu);
    ash_context_destroy(context);
}

struct opener {
    pthread_t thread;
    pthread_barrier_t *start;
    ash_context *context;
    const char *disk;
    int failures;
};

static void *open_and_close(void *arg) {
    struct opener *o = arg;
    pthread_barrier_wait(o->start);
    for (int i = 0; i < 200; i++) {
        const char *name = i % 3 == 0 ? "CPU" : o->disk;
        ash_device *device = NULL;
        ash_storage *storage = NULL;
        ash_view *view = NULL;
        uint8_t bytes[100] = {1};
        ash_type type = type_of(ASH_U8, 100);
        bool good = ash_device_open(o->context, name, &device, NULL) == ASH_OK &&
                    strcmp(ash_device_describe(device).name, name) == 0 &&
                    ash_storage_create(device, 100, 0, &storage, NULL) == ASH_OK &&
                    ash_view_create(storage, 0, 100, &type, &view, NULL) == ASH_OK &&
                    ash_view_copy_out(view, bytes, 100, NULL) == ASH_OK && bytes[0] == 0;
        o->failures += !good;
        ash_device_close(device);
        ash_view_release(view);
        ash_storage_release(storage);
    }
    return NULL;
}

/* The registry under threads that open, use and close the same devices. */
static void racing_threads_open_devices(void **state) {
    struct room *r = *state;
    char disk[100];
    snprintf(disk, sizeof disk, "DISK:%s", r->path);
    pthread_barrier_t start;
    pthread_barrier_init(&start, NULL, 4);
    struct opener openers[4];
    for (int i = 0; i < 4; i++) {
        openers[i] = (struct opener){.start = &start, .context = r->context, .disk = disk};
        pthread_create(&openers[i].thread, NULL, open_and_close, &openers[i]);
    }
    for (int i = 0; i < 4; i++) {
        pthread_join(openers[i].thread, NULL);
        assert_int_equal(openers[i].failures, 0);
    }
    pthread_barrier_destroy(&start);
}

static void failed_allocation_can_be_tried_again(void **state) {
    struct room *r = *state;
    ash_storage *storage;
    assert_ok(ash_storage_create(r->device, 400, 0, &storage, &diag));
    r->memory.fail_at = r->memory.count + 1;
    assert_status(ash_storage_allocate(storage, &diag), ASH_ERROR_OUT_OF_MEMORY);
    assert_non_null(strstr(diag.message, "400"));
    assert_false(ash_storage_allocated(storage));
    r->memory.fail_at = 0;
    assert_ok(ash_storage_allocate(storage, &diag));
    ash_storage_release(storage);
}

static void views_are_bounded(void **state) {
    struct room *r = *state;
    ash_storage *storage;
    assert_ok(ash_storage_create(r->device, 1000, 0, &storage, &diag));
    ash_view *view, *part, *other;
    ash_type t10 = type_of(ASH_F32, 10), t250 = type_of(ASH_F32, 250), none = type_of(ASH_F32, 0);
    assert_ok(ash_view_create(storage, 0, 1000, &t250, &view, &diag));
    assert_status(ash_view_create(storage, 1, 1000, &t250, &other, &diag), ASH_ERROR_OUT_OF_RANGE);
    assert_null(other);
    assert_status(ash_view_create(storage, 961, 40, &t10, &other, &diag), ASH_ERROR_OUT_OF_RANGE);
    assert_status(ash_view_create(storage, UINT64_MAX - 8, 40, &t10, &other, &diag),
                  ASH_ERROR_OUT_OF_RANGE);
    assert_status(ash_view_create(storage, 0, 41, &t10, &other, &diag), ASH_ERROR_SHAPE);
    ash_type huge = {.dtype = ASH_F32, .rank = 3, .dims = {INT64_MAX, INT64_MAX, 4}};
    assert_status(ash_view_create(storage, 0, 0, &huge, &other, &diag), ASH_ERROR_SHAPE);
    ash_type symbolic = {.dtype = ASH_F32, .rank = 1, .dims = {-3}};
    assert_status(ash_view_create(storage, 0, 0, &symbolic, &other, &diag), ASH_ERROR_SHAPE);
    ash_type strange = {.dtype = (ash_dtype)99, .rank = 1, .dims = {1}};
    assert_status(ash_view_create(storage, 0, 0, &strange, &other, &diag), ASH_ERROR_SHAPE);
    assert_ok(ash_view_create(storage, 1000, 0, &none, &other, &diag));
    ash_view_release(other);

    assert_ok(ash_view_slice(view, 40, 40, &t10, &part, &diag));
    assert_int_equal(ash_view_offset(part), 40);
    assert_int_equal(ash_view_bytes(part), 40);
    assert_ptr_equal(ash_view_storage(part), storage);
    assert_true(ash_view_id(part) != ash_view_id(view));
    /* Inside of the storage, but not of the view. */
    assert_status(ash_view_slice(part, 8, 40, &t10, &other, &diag), ASH_ERROR_OUT_OF_RANGE);
    const void *whole, *piece;
    assert_ok(ash_view_data(view, &whole, &diag));
    assert_ok(ash_view_data(part, &piece, &diag));
    assert_ptr_equal((const char *)whole + 40, piece);
    ash_view_release(part);
    ash_view_release(view);
    ash_storage_release(storage);
}

static void copies_are_exact(void **state) {
    struct room *r = *state;
    ash_storage *storage;
    assert_ok(ash_storage_create(r->device, 64, 0, &storage, &diag));
    ash_type f4 = type_of(ASH_F32, 4), i4 = type_of(ASH_I32, 4), f5 = type_of(ASH_F32, 5);
    ash_view *a, *b, *c, *d;
    assert_ok(ash_view_create(storage, 0, 16, &f4, &a, &diag));
    assert_ok(ash_view_create(storage, 8, 16, &f4, &b, &diag));
    assert_ok(ash_view_create(storage, 32, 16, &i4, &c, &diag));
    assert_ok(ash_view_create(storage, 32, 20, &f5, &d, &diag));
    const float in[4] = {1, 2, 3, 4};
    float out[4];
    assert_ok(ash_view_copy_in(a, in, sizeof in, &diag));
    assert_status(ash_view_copy_in(a, in, 12, &diag), ASH_ERROR_INVALID_ARGUMENT);
    assert_non_null(strstr(diag.message, "12"));
    assert_non_null(strstr(diag.message, "16"));
    assert_status(ash_view_copy_out(a, out, 20, &diag), ASH_ERROR_INVALID_ARGUMENT);
    assert_status(ash_view_copy_in(a, NULL, 16, &diag), ASH_ERROR_INVALID_ARGUMENT);
    assert_ok(ash_view_copy(b, a, &diag)); /* overlapping */
    assert_ok(ash_view_copy_out(b, out, sizeof out, &diag));
    assert_memory_equal(out, in, sizeof in);
    assert_status(ash_view_copy(c, a, &diag), ASH_ERROR_TYPE);
    assert_status(ash_view_copy(d, a, &diag), ASH_ERROR_INVALID_ARGUMENT);
    assert_non_null(strstr(diag.message, "16"));
    assert_non_null(strstr(diag.message, "20"));
    ash_view_release(a), ash_view_release(b), ash_view_release(c), ash_view_release(d);
    ash_storage_release(storage);
}

static void ids_are_unique(void **state) {
    struct room *r = *state;
    uint64_t last = 0;
    ash_type type = type_of(ASH_U8, 8);
    for (int i = 0; i < 10; i++) {
        ash_storage *storage;
        ash_view *view, *same;
        assert_ok(ash_storage_create(r->device, 8, 0, &storage, &diag));
        assert_true(ash_storage_id(storage) > last);
        last = ash_storage_id(storage);
        for (int k = 0; k < 2; k++) { /* handles of one storage have ids of their own */
            assert_ok(ash_view_create(storage, 0, 8, &type, &view, &diag));
            assert_true(ash_view_id(view) > last);
            last = ash_view_id(view);
            same = ash_view_retain(view);
            assert_int_equal(ash_view_id(same), last);
            assert_int_equal(ash_storage_id(ash_view_storage(view)), ash_storage_id(storage));
            ash_view_release(view), ash_view_release(same);
        }
        ash_storage_release(storage);
    }
}

static void wrapped_memory(void **state) {
    struct room *r = *state;
    static int numbers[4] __attribute__((aligned(64))) = {1, 2, 3, 4};
    ash_storage *storage;
    ash_view *view;
    ash_type i2 = type_of(ASH_I32, 2);
    assert_ok(ash_storage_wrap(r->context, numbers, sizeof numbers, false, &storage, &diag));
    assert_true(ash_storage_allocated(storage));
    assert_true(ash_storage_align(storage) >= 64);
    assert_ok(ash_view_create(storage, 8, 8, &i2, &view, &diag));
    const void *data;
    void *mut;
    assert_ok(ash_view_data(view, &data, &diag));
    assert_ptr_equal(data, numbers + 2);
    assert_status(ash_view_data_mut(view, &mut, &diag), ASH_ERROR_STATE);
    ash_view_release(view);
    ash_storage_release(storage);
    assert_status(ash_storage_wrap(r->context, NULL, 4, true, &storage, &diag), ASH_ERROR_INVALID_ARGUMENT);
    assert_ok(ash_storage_wrap(r->context, NULL, 0, true, &storage, &diag));
    ash_storage_release(storage);
}

static void files_are_mapped_read_only(void **state) {
    struct room *r = *state;
    char name[100];
    snprintf(name, sizeof name, "DISK:%s", r->path);
    ash_device *disk;
    ash_storage *storage, *other, *memory;
    ash_view *view, *copy;
    assert_ok(ash_device_open(r->context, name, &disk, &diag));
    assert_ok(ash_storage_create(disk, 10000, 0, &storage, &diag));
    assert_status(ash_storage_create(disk, 10001, 0, &other, &diag), ASH_ERROR_OUT_OF_RANGE);
    assert_non_null(strstr(diag.message, "10001"));
    assert_non_null(strstr(diag.message, "10000"));
    ash_device_close(disk); /* the storage keeps it */
    ash_type type = type_of(ASH_U8, 500);
    assert_ok(ash_view_create(storage, 4999, 500, &type, &view, &diag));
    uint8_t bytes[500];
    assert_ok(ash_view_copy_out(view, bytes, 500, &diag));
    const void *address;
    assert_ok(ash_view_data(view, &address, &diag));
    assert_int_equal((uintptr_t)address % 4096, 4999 % 4096); /* where it lies in the file */
    for (int i = 0; i < 500; i++) assert_int_equal(bytes[i], (4999 + i) % 251);
    void *data;
    assert_status(ash_view_copy_in(view, bytes, 500, &diag), ASH_ERROR_STATE);
    assert_status(ash_view_data_mut(view, &data, &diag), ASH_ERROR_STATE);

    assert_ok(ash_storage_create(r->device, 500, 0, &memory, &diag));
    assert_ok(ash_view_create(memory, 0, 500, &type, &copy, &diag));
    assert_ok(ash_view_copy(copy, view, &diag));
    assert_status(ash_view_copy(view, copy, &diag), ASH_ERROR_STATE);
    memset(bytes, 0, sizeof bytes);
    assert_ok(ash_view_copy_out(copy, bytes, 500, &diag));
    assert_int_equal(bytes[499], 5498 % 251);
    ash_view_release(view), ash_view_release(copy);
    ash_storage_release(storage), ash_storage_release(memory);
}

static void files_that_change(void **state) {
    struct room *r = *state;
    char name[100];
    snprintf(name, sizeof name, "DISK:%s", r->path);
    ash_device *disk, *fresh;
    ash_storage *early, *late;
    ash_view *view;
    ash_type type = type_of(ASH_U8, 10000);
    uint8_t bytes[10000];
    assert_ok(ash_device_open(r->context, name, &disk, &diag));
    assert_ok(ash_storage_create(disk, 10000, 0, &early, &diag));
    assert_ok(ash_storage_create(disk, 10000, 0, &late, &diag));
    assert_ok(ash_view_create(early, 0, 10000, &type, &view, &diag));
    assert_ok(ash_view_copy_out(view, bytes, 10000, &diag));

    /* Cut off: an error, mapped before or not, and no signal. */
    assert_int_equal(truncate(r->path, 100), 0);
    assert_status(ash_view_copy_out(view, bytes, 10000, &diag), ASH_ERROR_OUT_OF_RANGE);
    assert_non_null(strstr(diag.message, "100"));
    assert_status(ash_storage_allocate(late, &diag), ASH_ERROR_OUT_OF_RANGE);
    assert_ok(ash_device_open(r->context, name, &fresh, &diag));
    assert_ptr_not_equal(fresh, disk);
    assert_int_equal(ash_device_describe(fresh).capacity, 100);
    ash_device_close(fresh);
    write_file(r->path, 10000);
    assert_ok(ash_view_copy_out(view, bytes, 10000, &diag));

    /* Replaced: the old mapping stays what it was. */
    assert_int_equal(unlink(r->path), 0);
    write_file(r->path, 7);
    assert_ok(ash_view_copy_out(view, bytes, 10000, &diag));
    assert_int_equal(bytes[9999], 9999 % 251);
    assert_ok(ash_device_open(r->context, name, &fresh, &diag));
    assert_int_equal(ash_device_describe(fresh).capacity, 7);
    ash_device_close(fresh);
    ash_view_release(view);
    ash_storage_release(early), ash_storage_release(late);
    ash_device_close(disk);
}

static void empty_files(void **state) {
    struct room *r = *state;
    write_file(r->path, 0);
    char name[100];
    snprintf(name, sizeof name, "DISK:%s", r->path);
    ash_device *disk;
    ash_storage *storage;
    ash_view *view;
    const void *data;
    ash_type none = type_of(ASH_F32, 0);
    assert_ok(ash_device_open(r->context, name, &disk, &diag));
    assert_ok(ash_storage_create(disk, 0, 0, &storage, &diag));
    assert_ok(ash_view_create(storage, 0, 0, &none, &view, &diag));
    assert_ok(ash_view_data(view, &data, &diag));
    assert_ok(ash_view_copy_out(view, NULL, 0, &diag));
    ash_view_release(view);
    ash_storage_release(storage);
    ash_device_close(disk);
}

/* Every allocation on the way fails once, and nothing is lost. */
static void allocation_failures(void **state) {
    struct room *r = *state;
    char name[100];
    snprintf(name, sizeof name, "DISK:%s", r->path);
    const char *names[] = {"CPU", name};
    for (int which = 0; which < 2; which++) {
        long long live = r->memory.live;
        bool done = false;
        for (int fail = 1; !done; fail++) {
            r->memory.fail_at = r->memory.count + fail;
            ash_device *device = NULL;
            ash_storage *storage = NULL;
            ash_view *view = NULL;
            const void *data;
            ash_type type = type_of(ASH_U8, 100);
            ash_status status = ash_device_open(r->context, names[which], &device, &diag);
            if (status == ASH_OK) status = ash_storage_create(device, 100, 0, &storage, &diag);
            if (status == ASH_OK) status = ash_view_create(storage, 0, 100, &type, &view, &diag);
            if (status == ASH_OK) status = ash_view_data(view, &data, &diag);
            done = status == ASH_OK;
            if (!done) assert_int_equal(status, ASH_ERROR_OUT_OF_MEMORY);
            ash_view_release(view);
            ash_storage_release(storage);
            ash_device_close(device);
            assert_int_equal(r->memory.live, live);
        }
        r->memory.fail_at = 0;
    }
}

/* Freed blocks are kept up to the cap, come back cleared, and are given up when memory runs out. */
static void freed_blocks_are_kept(void **state) {
    (void)state;
    test_memory memory = {0};
    ash_context *context;
    ash_context_options options = {.allocator = test_memory_allocator(&memory), .keep_bytes = 10000};
    assert_ok(ash_context_create(&options, &context, &diag));
    ash_device *cpu;
    ash_storage *storage;
    ash_address first, again;
    assert_ok(ash_device_open(context, "CPU", &cpu, &diag));
    assert_ok(ash_storage_create(cpu, 6000, 0, &storage, &diag));
    assert_ok(ash_storage__address(storage, &first, &diag));
    memset((void *)first, 7, 6000);
    ash_storage_release(storage);
    assert_true(memory.live >= 6000);
    assert_ok(ash_storage_create(cpu, 6000, 0, &storage, &diag));
    assert_ok(ash_storage__address(storage, &again, &diag));
    assert_int_equal(first, again);
    for (int i = 0; i < 6000; i++) assert_int_equal(((char *)again)[i], 0);
    ash_storage_release(storage);
    /* A second block would exceed the cap: the first goes. One that is larger than the cap is not kept. */
    long long before = memory.live;
    for (uint64_t size = 5000; size <= 20000; size += 15000) {
        assert_ok(ash_storage_create(cpu, size, 0, &storage, &diag));
        assert_ok(ash_storage_allocate(storage, &diag));
        ash_storage_release(storage);
        assert_int_equal(memory.live, before - 1000);
    }
    /* Failure: what is kept goes back, and the attempt is made again. */
    assert_ok(ash_storage_create(cpu, 300, 0, &storage, &diag));
    memory.fail_at = memory.count + 1;
    assert_status(ash_storage_allocate(storage, &diag), ASH_ERROR_OUT_OF_MEMORY);
    memory.fail_at = 0;
    assert_true(memory.live <= before - 6000 + 400);
    assert_ok(ash_storage_allocate(storage, &diag));
    ash_storage_release(storage);
    ash_device_close(cpu);
    ash_context_destroy(context);
    assert_int_equal(memory.live, 0);
}

int main(void) {
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, leave)
    const struct CMUnitTest tests[] = {
        TEST(devices_by_name),
        TEST(devices_that_are_not_there),
        TEST(memory_is_lazy_zeroed_aligned),
        TEST(large_blocks),
        TEST(racing_threads_allocate_once),
        TEST(racing_threads_open_devices),
        TEST(failed_allocation_can_be_tried_again),
        TEST(freed_blocks_are_kept),
        TEST(views_are_bounded),
        TEST(copies_are_exact),
        TEST(ids_are_unique),
        TEST(wrapped_memory),
        TEST(files_are_mapped_read_only),
        TEST(files_that_change),
        TEST(empty_files),
        TEST(allocation_failures),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
