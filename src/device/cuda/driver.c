/* SPDX-License-Identifier: MIT */
#include "driver.h"

#include <dlfcn.h>
#include <string.h>

enum { LEAST_VERSION = 11040 }; /* R470: graphs that are instantiated with flags */

static void *find(void *library, const char *name, const char *older) {
    void *found = dlsym(library, name);
    return found || !older ? found : dlsym(library, older);
}

static ash_status look_up(cu_driver *driver, void *library, ash_diag *diag) {
    const char *missing = NULL;
    void *found;
#define FUNCTION(field, name, params)     LOOK_UP(field, #name, NULL)
#define OLDER(field, name, older, params) LOOK_UP(field, #name, #older)
#define LOOK_UP(field, name, older)                                                                        \
    found = find(library, name, older);                                                                    \
    memcpy(&driver->field, &found, sizeof found);                                                          \
    if (!found && !missing) missing = name;
#include "driver.def"
#undef FUNCTION
#undef OLDER
#undef LOOK_UP
    ASH_FAIL_IF(missing, diag, ASH_ERROR_DEVICE, "the CUDA driver is too old: it has no %s", missing);
    return ASH_OK;
}

ash_status ash_cu_driver__open(cu_driver *out, ash_diag *diag) {
    const char *path = ash_environment__get("ASHLAR_CUDA_DRIVER");
    if (!path || !*path) path = "libcuda.so.1";
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    ASH_FAIL_IF(!library, diag, ASH_ERROR_DEVICE, "no CUDA driver: %.200s", dlerror());
    ASH_TRY(look_up(out, library, diag));
    int result = out->init(0), version = 0;
    ASH_FAIL_IF(result == CU_STUB, diag, ASH_ERROR_DEVICE,
                "no CUDA driver: %.200s is a stub, to link with where there is none", path);
    ASH_FAIL_IF(result == CU_NO_DEVICE, diag, ASH_ERROR_DEVICE, "the CUDA driver finds no GPU");
    ASH_TRY(ash_cu_driver__check(out, result, "the CUDA driver does not start", diag));
    ASH_TRY(ash_cu_driver__check(out, out->driver_version(&version), "the CUDA driver's version", diag));
    ASH_FAIL_IF(version < LEAST_VERSION, diag, ASH_ERROR_DEVICE,
                "the CUDA driver is too old: it knows CUDA %d.%d, and %d.%d is needed", version / 1000,
                version % 1000 / 10, LEAST_VERSION / 1000, LEAST_VERSION % 1000 / 10);
    return ASH_OK;
}

ash_status ash_cu_driver__check(const cu_driver *driver, int result, const char *what, ash_diag *diag) {
    if (result == CU_OK) return ASH_OK;
    const char *name = NULL, *text = NULL;
    driver->error_name(result, &name);
    driver->error_text(result, &text);
    ash_status status = result == CU_NO_MEMORY ? ASH_ERROR_OUT_OF_MEMORY : ASH_ERROR_DEVICE;
    return ash_fail(diag, status, "%s: %s (%s)", what, text ? text : "unknown", name ? name : "no name");
}

bool ash_cu_driver__is_lost(int result) {
    return result == CU_ILLEGAL_ADDRESS || result == CU_TIMEOUT || result == CU_DESTROYED ||
           result == CU_ASSERT || result == CU_ECC ||
           (result >= CU_HARDWARE_STACK && result <= CU_LAUNCH_FAILED);
}
