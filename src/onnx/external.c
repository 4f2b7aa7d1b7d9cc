/* SPDX-License-Identifier: MIT */
/* Files of external data, which must lie in the model's folder.
 *
 * A location is a relative path. By its words it may not climb out of the folder; then it is resolved,
 * links and all, and what it resolves to must lie below the folder that the model was named in or below the
 * one that the model's file really lies in. The second is for caches in which the model and its data are
 * links to files that lie beside each other under other names (Hugging Face: snapshots/REV/model.onnx ->
 * ../../blobs/HASH). onnxruntime has the same rule; onnx.load refuses links altogether. Hard links cannot
 * be told from files. */
#include <errno.h>
#include <limits.h>
#include <stdlib.h>

#include "base/text.h"
#include "data.h"

/* A path of words that stay in the folder and end with the name of a file. */
static bool stays_inside(ash_span location) {
    long depth = 0; /* folders below the model's */
    size_t start = 0;
    bool file = false;
    if (location.len == 0 || location.at[0] == '/') return false;
    for (size_t i = 0; i <= location.len; i++) {
        if (i < location.len && (location.at[i] == 0 || location.at[i] == '\\')) return false;
        if (i < location.len && location.at[i] != '/') continue;
        const ash_span word = {location.at + start, i - start};
        bool up = ash_span_is(word, "..");
        file = word.len > 0 && !up && !ash_span_is(word, ".");
        depth += file - up;
        if (depth < 0) return false;
        start = i + 1;
    }
    return file;
}

/* The path that `text` resolves to, in `out` of PATH_MAX bytes. */
static ash_status resolve(const char *text, char *out, ash_diag *diag) {
    if (realpath(text, out)) return ASH_OK;
    ash_status code = errno == ENOENT || errno == ENOTDIR ? ASH_ERROR_NOT_FOUND : ASH_ERROR_IO;
    return ash_fail(diag, code, "cannot open '%.200s': %s", text, strerror(errno));
}

/* Whether a resolved path lies below the folder of another path that is resolved: that of `len` bytes, its
 * last slash included. */
static bool lies_below(const char *path, const char *folder, size_t len) {
    return strncmp(path, folder, len) == 0;
}

static size_t folder_length(const char *path) {
    const char *slash = strrchr(path, '/');
    return slash ? (size_t)(slash - path) + 1 : 0;
}

/* The resolved path of the file at `location`, with `model` the model's file as it was named. */
static ash_status find(const char *model, ash_text *text, ash_span location, char *path, ash_diag *diag) {
    char around[PATH_MAX + 1], really[PATH_MAX];
    ash_text_add(text, "%.*s", (int)folder_length(model), model);
    size_t len = text->len;
    ash_text_add_bytes(text, location.at, location.len);
    ASH_TRY(ash_text_status(text, diag));
    ASH_TRY(resolve(text->at, path, diag));
    text->at[len] = 0;
    ASH_TRY(resolve(len ? text->at : ".", around, diag));
    ASH_TRY(resolve(model, really, diag));
    len = strlen(around);
    if (around[len - 1] != '/') around[len++] = '/';
    ASH_FAIL_IF(!lies_below(path, around, len) && !lies_below(path, really, folder_length(really)), diag,
                ASH_ERROR_FORMAT, "external data location '%.*s' leads out of the model's folder",
                ASH_SPAN_ARG(location));
    return ASH_OK;
}

/* The mapping of a resolved path: each file is mapped once, however often and under whatever location it is
 * named. */
static ash_status map(ash_onnx_source *source, const char *path, ash_file **out, ash_diag *diag) {
    for (size_t i = 0; i < source->externals.len; i++) {
        *out = source->externals.at[i].file;
        if (strcmp((*out)->path, path) != 0) continue;
        ash_file_retain(*out);
        return ASH_OK;
    }
    return ash_file_map(source->context, path, out, diag);
}

ash_status ash_onnx__external_file(ash_onnx_source *source, ash_span location, ash_file **out,
                                   ash_diag *diag) {
    char path[PATH_MAX];
    ash_text text;
    ASH_FAIL_IF(!source->path, diag, ASH_ERROR_UNSUPPORTED, "external data of a model that is not a file");
    ASH_FAIL_IF(!stays_inside(location), diag, ASH_ERROR_FORMAT,
                "external data location '%.*s' leads out of the model's folder", ASH_SPAN_ARG(location));
    for (size_t i = 0; i < source->externals.len; i++) {
        *out = source->externals.at[i].file;
        if (ash_span_equal(source->externals.at[i].location, location)) return ASH_OK;
    }
    ash_text_init(&text, source->allocator);
    ash_status status = find(source->path, &text, location, path, diag);
    ash_text_free(&text);
    if (status != ASH_OK) return status;
    ASH_TRY(map(source, path, out, diag));
    if (ash_vec_push(source->allocator, &source->externals, (ash_onnx_external){location, *out}))
        return ASH_OK;
    ash_file_release(*out);
    return ASH_NO_MEMORY(diag);
}
