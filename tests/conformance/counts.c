/* SPDX-License-Identifier: MIT */
/* Lines of a file: NAME OPSET CASES PASSED UNSUPPORTED DEFECTIVE, where OPSET may be "any"; '#' begins a
 * comment. */
#include "counts.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "onnx/model.h"
#include "onnx/wire.h"

static long long newest;

void counts_see(const char *path) {
    ash_context *context;
    ash_file *file;
    ash_arena arena;
    ash_onnx_model model;
    if (ash_context_create(NULL, &context, NULL) != ASH_OK) return;
    if (ash_file_map(context, path, &file, NULL) == ASH_OK) {
        ash_diag unused;
        ash_arena_init(&arena, ash_context__allocator(context));
        ash_wire wire = ash_wire__open(file->data, file->size, &unused);
        bool read = ash_onnx__model_read(wire, &arena, &model) == ASH_OK;
        for (size_t i = 0; read && i < model.opsets.n; i++)
            if (ash_onnx__is_default_domain(model.opsets.at[i].domain) &&
                model.opsets.at[i].version > newest)
                newest = model.opsets.at[i].version;
        ash_arena_free(&arena);
        ash_file_release(file);
    }
    ash_context_destroy(context);
}

static bool same(counts a, counts b) {
    return a.cases == b.cases && a.passed == b.passed && a.unsupported == b.unsupported &&
           a.defective == b.defective;
}

bool counts_hold(const char *path, const char *name, counts found) {
    char line[256], set[64], opset[16];
    FILE *file = fopen(path, "r");
    if (!file) return printf("counts: cannot read %s\n", path), false;
    bool known = false, holds = true;
    while (fgets(line, sizeof line, file)) {
        counts want;
        if (sscanf(line, "%63s %15s %d %d %d %d", set, opset, &want.cases, &want.passed, &want.unsupported,
                   &want.defective) != 6 ||
            set[0] == '#' || strcmp(set, name) != 0)
            continue;
        if (strcmp(opset, "any") != 0 && atoll(opset) != newest) continue;
        known = true;
        holds = same(want, found);
        if (!holds)
            printf(
                "counts: %s was, up to now: %d cases, %d passed, %d unsupported, %d with defective data\n",
                name, want.cases, want.passed, want.unsupported, want.defective);
    }
    fclose(file);
    if (!holds || !known)
        printf("counts: %s%s %lld %d %d %d %d\n",
               known ? "a line for what it is now: " : "not known before: ", name, newest, found.cases,
               found.passed, found.unsupported, found.defective);
    return holds;
}
