/* SPDX-License-Identifier: MIT */
/* Copies between the host and the GPU, and on it; more memory than there is. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "check.h"
#include "random.h"

static double now_us(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e6 + (double)t.tv_nsec / 1e3;
}

typedef enum way { IN, OUT, ON, WAYS } way;

/* From `data` to the GPU, there to another place, and back to `back`; microseconds of each. */
static ash_status travel(const check_run *run, const char *data, char *back, uint64_t bytes, double *us,
                         ash_diag *diag) {
    ash_storage *storage;
    ash_view *from = NULL, *to = NULL;
    const ash_type type = {ASH_U8, 1, {(int64_t)bytes}};
    uint64_t apart = (bytes + 255) / 256 * 256;
    ash_status status = ash_storage_create(run->device, 2 * apart, 256, &storage, diag);
    if (status != ASH_OK) return status;
    status = ash_view_create(storage, 0, bytes, &type, &from, diag);
    if (status == ASH_OK) status = ash_view_create(storage, apart, bytes, &type, &to, diag);
    for (int again = 0; again < 2 && status == ASH_OK;
         again++) { /* the second time is the one that counts */
        double start = now_us();
        status = ash_view_copy_in(from, data, bytes, diag);
        us[IN] = now_us() - start;
        start = now_us();
        if (status == ASH_OK) status = ash_view_copy(to, from, diag);
        us[ON] = now_us() - start;
        start = now_us();
        if (status == ASH_OK) status = ash_view_copy_out(to, back, bytes, diag);
        us[OUT] = now_us() - start;
    }
    ash_view_release(from);
    ash_view_release(to);
    ash_storage_release(storage);
    return status;
}

static void check_size(const check_run *run, uint64_t bytes) {
    static const char *const names[WAYS] = {
        [IN] = "to the GPU", [OUT] = "from the GPU", [ON] = "on the GPU"};
    char *data = malloc(bytes + 1), *back = calloc(bytes + 1, 1), name[64];
    double us[WAYS] = {0};
    uint64_t seed = bytes;
    ash_diag diag = {0};
    for (uint64_t i = 0; data && i < bytes; i++) data[i] = (char)test_random(&seed);
    ash_status status = data && back ? travel(run, data, back, bytes, us, &diag) : ASH_ERROR_OUT_OF_MEMORY;
    for (way w = IN; w < WAYS; w++) {
        snprintf(name, sizeof name, "%llu bytes %s", (unsigned long long)bytes, names[w]);
        bool same = status == ASH_OK && memcmp(data, back, bytes) == 0;
        check_row row = {.group = "copies",
                         .name = name,
                         .mode = "",
                         .passed = same,
                         .bits = same,
                         .us = us[w],
                         .predicted = -1,
                         .kernels = -1,
                         .gbytes = us[w] > 0 ? (double)bytes / us[w] / 1000 : 0};
        if (status != ASH_OK)
            snprintf(row.why, sizeof row.why, "%s: %.200s", ash_status_text(status), diag.message);
        else if (!same)
            snprintf(row.why, sizeof row.why, "other bytes came back");
        table_add(&row);
    }
    free(data);
    free(back);
}

void check_copies(check_run *run) {
    static const uint64_t full[] = {1, 4095, 20000003, 256 << 20}, quick[] = {1, 4095, 9 << 20};
    if (run->options.quick)
        for (size_t i = 0; i < sizeof quick / sizeof *quick; i++) check_size(run, quick[i]);
    else
        for (size_t i = 0; i < sizeof full / sizeof *full; i++) check_size(run, full[i]);
}

void check_exhaustion(check_run *run) {
    ash_device_info info = ash_device_describe(run->device);
    ash_storage *some = NULL, *all = NULL, *after = NULL;
    ash_diag diag = {0};
    check_row row = {.group = "memory",
                     .name = "all that there is, beside 1 MiB",
                     .mode = "",
                     .bits = true,
                     .us = -1,
                     .predicted = -1,
                     .kernels = -1};
    ash_status status = ash_storage_create(run->device, 1 << 20, 0, &some, &diag);
    if (status == ASH_OK) status = ash_storage_allocate(some, &diag);
    if (status == ASH_OK) status = ash_storage_create(run->device, info.capacity, 0, &all, &diag);
    if (status == ASH_OK) status = ash_storage_allocate(all, &diag);
    row.passed = status == ASH_ERROR_OUT_OF_MEMORY;
    if (!row.passed)
        snprintf(row.why, sizeof row.why, "%s instead of running out: %.200s", ash_status_text(status),
                 diag.message);
    table_add(&row);
    row.name = "1 MiB more, after that";
    status = ash_storage_create(run->device, 1 << 20, 0, &after, &diag);
    if (status == ASH_OK) status = ash_storage_allocate(after, &diag);
    row.passed = status == ASH_OK;
    row.why[0] = 0;
    if (!row.passed) snprintf(row.why, sizeof row.why, "%s: %.200s", ash_status_text(status), diag.message);
    table_add(&row);
    ash_storage_release(some);
    ash_storage_release(all);
    ash_storage_release(after);
}
