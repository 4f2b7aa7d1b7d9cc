/* SPDX-License-Identifier: MIT */
/* The kernels that copy and fill, and copies between memory of the process and of the GPU, on the stand-in:
 * bytes wherever they begin and end, sectors, and how often the host waits. */
#include "cuda_room.h"
#include "device/device.h"
#include "gpu_here.h"

static ash_diag diag;

enum { MOST = 70000, AROUND = 64, ROOM = 64 << 10, LARGEST = 8 << 20 };

typedef struct room {
    ash_context *context;
    ash_device *device;
    ash_streams *streams;
    ash_block from, to;
} room;

static ash_block block_of(room *r, uint64_t size) {
    ash_block b = {.size = size, .align = 256};
    assert_ok(ash_device__cuda.allocate(r->device, &b, &diag));
    return b;
}

static void open_room(room *r) {
    cuda_room_driver(3);
    assert_ok(ash_context_create(NULL, &r->context, &diag));
    assert_ok(ash_device_open(r->context, "CUDA:0", &r->device, &diag));
    const ash_streams_options options = {.streams = 1, .commands = 8, .threads = 1};
    assert_ok(ash_streams__create(r->device, &options, &r->streams, &diag));
    r->from = block_of(r, MOST + 2 * AROUND);
    r->to = block_of(r, MOST + 2 * AROUND);
}

static void close_room(room *r) {
    ash_streams__destroy(r->streams);
    ash_device__cuda.free(r->device, &r->from);
    ash_device__cuda.free(r->device, &r->to);
    ash_device_close(r->device);
    ash_context_destroy(r->context);
    assert_int_equal(ptx_live(), 0);
}

/* The command by its kernel, whose counters come back. */
static ptx_counters run(room *r, const char *name, const ash_command *command) {
    ptx_counters counters;
    ash_streams *s = r->streams;
    ash_capture *capture;
    assert_ok(s->class->instantiate(s, command, 1, NULL, &capture, &diag));
    ptx_counters_reset();
    assert_ok(s->class->replay(s, capture, &diag));
    assert_string_equal(ptx_finding(), "");
    ptx_counters_read(name, &counters);
    assert_int_equal(counters.launches, 1);
    s->class->capture_free(s, capture);
    return counters;
}

/* Bytes from the first block on, beside those that are to be there: others are as they were. */
static void expect(room *r, uint64_t to, const unsigned char *want, uint64_t bytes) {
    static unsigned char got[MOST + 2 * AROUND];
    assert_ok(ash_device__cuda.copy_out(r->device, got, r->to.address, sizeof got, &diag));
    for (uint64_t i = 0; i < sizeof got; i++) {
        const unsigned char here = i < to || i >= to + bytes ? 0xee : want[i - to];
        if (got[i] != here)
            fail_msg("%llu bytes to %llu: byte %llu", (unsigned long long)bytes, (unsigned long long)to,
                     (unsigned long long)i);
    }
}

static const uint64_t sizes[] = {0, 1, 3, 15, 16, 17, 33, 255, 4096, 4099, MOST};

/* A kernel moves `unit` bytes to a thread from the first multiple of that on; one request has the bytes
 * that are left at both ends. They lie in sectors of their own, each end's: how many more these are than
 * those of as many bytes side by side. `to` is what is aligned, `at` the address that is asked for. */
static uint64_t apart_at_ends(uint64_t to, uint64_t at, uint64_t bytes, uint64_t unit) {
    const uint64_t head = ASH_MIN((unit - to % unit) % unit, bytes), tail = (bytes - head) % unit;
    if (!head || !tail) return 0;
    const uint64_t last = at + bytes - 1;
    const uint64_t low = (at + head - 1) / 32, high = (last + 1 - tail) / 32;
    const uint64_t sectors = low - at / 32 + 1 + (last / 32 - high + 1) - (low == high);
    const uint64_t filled = (at % 32 + head + tail + 31) / 32;
    return sectors > filled ? sectors - filled : 0;
}

/* What a kernel with a vector of 16 bytes to a thread asks for: whole sectors, no byte twice, and requests
 * for as many as a warp has threads but where bytes are left at both ends. */
static void check_stores(const ptx_counters *n, uint64_t to, uint64_t bytes) {
    const uint64_t head = ASH_MIN((16 - to % 16) % 16, bytes), vectors = (bytes - head) / 16,
                   ends = (bytes - 16 * vectors + 31) / 32 + 1;
    assert_int_equal(n->blocks, ASH_MAX((bytes + 4095) / 4096, 1u));
    assert_int_equal(n->global_store.bytes, bytes);
    assert_int_equal(n->global_store.scattered, apart_at_ends(to, to, bytes, 16));
    assert_true(n->global_store.requests <= (vectors + 31) / 32 + ends);
    if (to % 32 == 0 && bytes % 16 == 0) assert_int_equal(n->global_store.sectors, (bytes + 31) / 32);
}

/* Both addresses at every distance from a multiple of 16; of the same distance vectors are moved. */
static void copies(void **state) {
    (void)state;
    room r;
    open_room(&r);
    static unsigned char data[MOST + 2 * AROUND];
    for (size_t i = 0; i < sizeof data; i++) data[i] = (unsigned char)(i * 37 + i / 256);
    assert_ok(ash_device__cuda.copy_in(r.device, r.from.address, data, sizeof data, &diag));
    for (size_t i = 0; i < ASH_COUNT(sizes); i++)
        for (int64_t to = 0; to < 16; to++)
            for (int64_t apart = 0; apart < 16; apart += to % 5 ? 4 : 1) {
                const int64_t from = (to + apart) % 16;
                const uint64_t bytes = sizes[i];
                if (bytes == MOST && to > 1) continue;
                assert_ok(ash_device__cuda.fill(r.device, r.to.address, 0xee, r.to.size, &diag));
                const ash_address buffers[] = {r.from.address, r.to.address};
                const ash_transfer copy = {
                    .buffers = buffers, .from = from, .to = to, .bytes = (int64_t)bytes};
                const ash_command command = {.kind = ASH_COMMAND_COPY, .copy = &copy};
                ptx_counters n = run(&r, "ash_copy", &command);
                expect(&r, (uint64_t)to, data + from, bytes);
                const uint64_t unit = apart == 0 ? 16 : apart % 4 == 0 ? 4 : 1;
                assert_int_equal(n.global_load.scattered,
                                 apart_at_ends((uint64_t)to, (uint64_t)from, bytes, unit));
                if (apart == 0) check_stores(&n, (uint64_t)to, bytes);
                if (apart % 4 == 0) assert_true(n.global_store.requests <= (bytes + 127) / 128 + 4);
            }
    close_room(&r);
}

static void fills(void **state) {
    (void)state;
    room r;
    open_room(&r);
    static unsigned char want[MOST];
    memset(want, 0xa5, sizeof want);
    for (size_t i = 0; i < ASH_COUNT(sizes); i++)
        for (uint64_t to = 0; to < 17; to++) {
            const uint64_t bytes = sizes[i];
            assert_ok(ash_device__cuda.fill(r.device, r.to.address, 0xee, r.to.size, &diag));
            const ash_address address = r.to.address + to;
            const ash_fill fill = {.buffer = &address, .bytes = bytes, .value = 0xa5};
            const ash_command command = {.kind = ASH_COMMAND_FILL, .fill = &fill};
            ptx_counters n = run(&r, "ash_fill", &command);
            expect(&r, to, want, bytes);
            check_stores(&n, to, bytes);
        }
    close_room(&r);
}

/* Copies that are larger than a buffer travel in pieces, by two buffers in turn: the host waits for the
 * stream once, in the end, and otherwise for the piece before the one that is on its way. */
static void pieces(void **state) {
    (void)state;
    room r;
    open_room(&r);
    static const uint64_t lengths[] = {1, ROOM, LARGEST, LARGEST + 1, 2 * LARGEST, 3 * LARGEST + 7};
    ash_block block = block_of(&r, 3 * LARGEST + 7);
    unsigned char *data = malloc(block.size), *got = malloc(block.size);
    assert_non_null(data);
    assert_non_null(got);
    for (size_t i = 0; i < block.size; i++) data[i] = (unsigned char)(i * 37 + i / 65536);
    for (size_t i = 0; i < ASH_COUNT(lengths); i++) {
        const uint64_t bytes = lengths[i], n = (bytes + LARGEST - 1) / LARGEST;
        for (int out = 0; out < 2; out++) {
            const uint64_t copies = ptx_calls(out ? "cuMemcpyDtoHAsync_v2" : "cuMemcpyHtoDAsync_v2"),
                           waits = ptx_calls("cuStreamSynchronize"),
                           events = ptx_calls("cuEventSynchronize");
            if (out) {
                memset(got, 0, bytes);
                assert_ok(ash_device__cuda.copy_out(r.device, got, block.address, bytes, &diag));
                assert_memory_equal(got, data, bytes);
            } else {
                assert_ok(ash_device__cuda.copy_in(r.device, block.address, data, bytes, &diag));
            }
            assert_int_equal(ptx_calls(out ? "cuMemcpyDtoHAsync_v2" : "cuMemcpyHtoDAsync_v2") - copies, n);
            assert_int_equal(ptx_calls("cuStreamSynchronize") - waits, 1);
            assert_int_equal(ptx_calls("cuEventSynchronize") - events, out ? n - 1 : n > 2 ? n - 2 : 0);
        }
    }
    assert_string_equal(ptx_finding(), "");
    free(data);
    free(got);
    ash_device__cuda.free(r.device, &block);
    close_room(&r);
}

int main(void) {
    if (!gpu_is_compiled_for()) return GPU_SKIPPED;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(copies),
        cmocka_unit_test(fills),
        cmocka_unit_test(pieces),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
