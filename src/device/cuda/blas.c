/* SPDX-License-Identifier: MIT */
#include "blas.h"

#include <dlfcn.h>
#include <string.h>

enum { LEAST_VERSION = 110400 }; /* of CUDA 11.4, as of the driver */

/* CUDA 12.3: 120304; of CUDA 11: 110400 and more. */
static ash_status check_version(size_t version, ash_diag *diag) {
    ASH_FAIL_IF(version < LEAST_VERSION, diag, ASH_ERROR_DEVICE,
                "cuBLASLt is too old: it is %zu.%zu, and %d.%d is needed", version / 10000,
                version % 10000 / 100, LEAST_VERSION / 10000, LEAST_VERSION % 10000 / 100);
    return ASH_OK;
}

static ash_status look_up(cu_blas *blas, void *library, ash_diag *diag) {
    const char *missing = NULL;
    void *found;
#define FUNCTION(field, name, result, params)                                                              \
    found = dlsym(library, name);                                                                          \
    memcpy(&blas->field, &found, sizeof found);                                                            \
    if (!found && !missing) missing = name;
#include "blas.def"
#undef FUNCTION
    ASH_FAIL_IF(missing, diag, ASH_ERROR_DEVICE, "cuBLASLt is too old: it has no %s", missing);
    return check_version(blas->version(), diag);
}

ash_status ash_cu_blas__open(cu_blas *out, ash_diag *diag) {
    const char *own = ash_environment__get("ASHLAR_CUBLASLT"), *why = NULL;
    const char *const names[] = {"libcublasLt.so.13", "libcublasLt.so.12", "libcublasLt.so.11"};
    const bool named = own && *own;
    void *library = NULL;
    for (size_t i = 0; i < (named ? 1 : ASH_COUNT(names)) && !library; i++) {
        library = dlopen(named ? own : names[i], RTLD_NOW | RTLD_LOCAL);
        if (!library) why = dlerror();
    }
    ASH_FAIL_IF(!library, diag, ASH_ERROR_DEVICE,
                "products by cuBLAS are asked for, and there is no cuBLASLt: %.200s", why);
    return look_up(out, library, diag);
}

ash_status ash_cu_blas__check(const cu_blas *blas, int result, const char *what, ash_diag *diag) {
    if (result == BLAS_OK) return ASH_OK;
    const char *text = blas->status_text(result);
    return ash_fail(diag, result == BLAS_NO_MEMORY ? ASH_ERROR_OUT_OF_MEMORY : ASH_ERROR_DEVICE,
                    "cuBLASLt: %s: %s (%d)", what, text ? text : "unknown", result);
}
