/* SPDX-License-Identifier: MIT */
/* A context and a folder of its own for the tests of one file. */
#ifndef ASH_ONNX_FOLDER_H
#define ASH_ONNX_FOLDER_H

#include <unistd.h>

#include "testing.h"

static ash_diag diag;
static ash_context *context;
static char folder[] = "/tmp/ashlar_onnx_XXXXXX";

static inline int set_up(void **state) {
    (void)state;
    return !mkdtemp(folder) || ash_context_create(NULL, &context, &diag) != ASH_OK;
}

static inline int tear_down(void **state) {
    (void)state;
    ash_context_destroy(context);
    return rmdir(folder);
}

static inline const char *in_folder(const char *name) {
    static char path[256];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    return path;
}

#endif
