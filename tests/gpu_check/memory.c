/* SPDX-License-Identifier: MIT */
/* Copies between the host and the GPU, and on it; more memory than there is. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"
#include "random.h"

static double now_us(void) {
    return (double)check_now() / 1000;
}

typedef enum way { IN, OUT, ON, WAYS } way;

/* From `data` to the GPU, there to another place, and back to `back`; microseconds of each. Twice: it is
 * the second time that counts, with other bytes, so that none is there already. */
static ash_status travel(const check_run *run, char *data, char *back, uint64_t bytes, double *us,
                         ash_diag *diag) {
    ash_storage *storage;
    ash_view *from = NULL, *to = NULL;
    const ash_type type = {ASH_U8, 1, {(int64_t)bytes}};
    uint64_t apart = (bytes + 255) / 256 * 256;
    ash_status status = ash_storage_create(run->device, 2 * apart, 256, &storage, diag);
    if (status != ASH_OK) return status;
    status = ash_view_create(storage, 0, bytes, &type, &from, diag);
    if (status == ASH_OK) status = ash_view_create(storage, apart, bytes, &type, &to, diag);
    for (int again = 0; again < 2 && status == ASH_OK; again++) {
        for (uint64_t i = 0; i < bytes; i++) data[i] = (char)~data[i];
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
        check_row row = check_row_of("copies", name, "");
        row.us = us[w];
        row.gbytes = us[w] > 0 ? (double)bytes / us[w] / 1000 : 0;
        row.bits = status == ASH_OK && memcmp(data, back, bytes) == 0;
        if (status == ASH_OK && !row.bits) check_row_fail(&row, "other bytes came back");
        check_row_end(&row, status, false, &diag);
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
    check_row row = check_row_of("memory", "all that there is, beside 1 MiB", "");
    ash_status status = ash_storage_create(run->device, 1 << 20, 0, &some, &diag);
    if (status == ASH_OK) status = ash_storage_allocate(some, &diag);
    if (status == ASH_OK) status = ash_storage_create(run->device, info.capacity, 0, &all, &diag);
    if (status == ASH_OK) status = ash_storage_allocate(all, &diag);
    if (status != ASH_ERROR_OUT_OF_MEMORY)
        check_row_fail(&row, "%s instead of running out: %.200s", ash_status_text(status), diag.message);
    table_add(&row);
    row = check_row_of("memory", "1 MiB more, after that", "");
    status = ash_storage_create(run->device, 1 << 20, 0, &after, &diag);
    if (status == ASH_OK) status = ash_storage_allocate(after, &diag);
    check_row_end(&row, status, false, &diag);
    ash_storage_release(some);
    ash_storage_release(all);
    ash_storage_release(after);
}
