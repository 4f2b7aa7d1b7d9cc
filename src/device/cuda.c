/* SPDX-License-Identifier: MIT */
/* CUDA devices. This library has no CUDA driver yet: opening one says so, and nothing else can happen to
 * it. */
#include "device.h"

static ash_status cuda_open(ash_device *device, const char *rest, ash_diag *diag) {
    ASH_FAIL_IF(!rest || !*rest || rest[strspn(rest, "0123456789")], diag, ASH_ERROR_DEVICE,
                "\"%.100s\" names no GPU: write CUDA:n", device->name);
    return ash_fail(diag, ASH_ERROR_DEVICE, "%.100s: no driver: this build of ashlar runs on the CPU alone",
                    device->name);
}

const ash_device_class ash_device__cuda = {.kind = "CUDA", .open = cuda_open};
