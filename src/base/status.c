/* SPDX-License-Identifier: MIT */
/* Statuses and diagnostics as text. The lowest layer writes a diagnostic, upper layers add the node. */
#include <stdio.h>

#include "ashlar/version.h"
#include "base.h"

const char *ash_status_text(ash_status status) {
    static const char *const names[ASH_STATUS_COUNT] = {
        [ASH_OK] = "ok",
        [ASH_ERROR_OUT_OF_MEMORY] = "out of memory",
        [ASH_ERROR_INVALID_ARGUMENT] = "invalid argument",
        [ASH_ERROR_NOT_FOUND] = "not found",
        [ASH_ERROR_OUT_OF_RANGE] = "out of range",
        [ASH_ERROR_SHAPE] = "shape mismatch",
        [ASH_ERROR_TYPE] = "type mismatch",
        [ASH_ERROR_FORMAT] = "malformed input",
        [ASH_ERROR_IO] = "input/output error",
        [ASH_ERROR_UNSUPPORTED] = "unsupported",
        [ASH_ERROR_DEVICE] = "device error",
        [ASH_ERROR_STATE] = "wrong state",
        [ASH_ERROR_BUDGET] = "budget cannot be met",
        [ASH_ERROR_CANCELLED] = "cancelled",
        [ASH_ERROR_INTERNAL] = "internal error",
    };
    return (unsigned)status < ASH_STATUS_COUNT ? names[status] : "unknown status";
}

void ash_diag_clear(ash_diag *diag) {
    if (!diag) return;
    *diag = (ash_diag){.code = ASH_OK, .file_offset = ASH_NO_OFFSET};
}

/* The message behind `phrase`, when that is how it begins; NULL: it begins otherwise. */
static const char *after_phrase(const char *message, const char *phrase) {
    size_t length = strlen(phrase);
    if (strncmp(message, phrase, length) != 0) return NULL;
    return !message[length] || strchr(" ,:", message[length]) ? message + length : NULL;
}

int ash_diag_format(const ash_diag *diag, char *out, uint64_t size) {
    char where[64] = "";
    if (!out) size = 0;
    if (!diag) return snprintf(out, size, "%s", "");
    if (diag->file_offset != ASH_NO_OFFSET)
        snprintf(where, sizeof where, " at byte %llu", (unsigned long long)diag->file_offset);
    /* A message that begins with the status is not led by it once more. */
    const char *text = ash_status_text(diag->code), *rest = after_phrase(diag->message, text);
    bool placed = diag->node[0] || diag->op[0] || where[0], stands = rest && (!placed || !*rest);
    return snprintf(out, size, "%s%s%s%s%s%s%s%s%s", text, diag->node[0] ? ", node " : "", diag->node,
                    diag->op[0] ? " (" : "", diag->op, diag->op[0] ? ")" : "", where, stands ? "" : ": ",
                    stands ? rest : diag->message);
}

static ash_status fail(ash_diag *diag, ash_status code, uint64_t offset, const char *fmt, va_list args) {
    if (diag) {
        ash_diag_clear(diag);
        diag->code = code;
        diag->file_offset = offset;
        vsnprintf(diag->message, sizeof diag->message, fmt, args);
    }
    return code;
}

/* In parentheses, for the analyser's macro of this name. */
ash_status(ash_fail)(ash_diag *diag, ash_status code, const char *fmt, ...) {
    va_list args;
    va_start(args, fmt);
    fail(diag, code, ASH_NO_OFFSET, fmt, args);
    va_end(args);
    return code;
}

ash_status ash_fail_at(ash_diag *diag, ash_status code, uint64_t offset, const char *fmt, ...) {
    va_list args;
    va_start(args, fmt);
    fail(diag, code, offset, fmt, args);
    va_end(args);
    return code;
}

void ash_fail_null(ash_diag *diag, const char *names, size_t position) {
    for (; position; position--) {
        names += strcspn(names, ",");
        names += strspn(names, ", ");
    }
    ash_fail(diag, ASH_ERROR_INVALID_ARGUMENT, "the argument `%.*s` is NULL", (int)strcspn(names, ","),
             names);
}

void ash_diag__add_node(ash_diag *diag, const char *node, const char *op, uint64_t offset) {
    if (!diag) return;
    if (!diag->node[0] && node) snprintf(diag->node, sizeof diag->node, "%s", node);
    if (!diag->op[0] && op) snprintf(diag->op, sizeof diag->op, "%s", op);
    if (diag->file_offset == ASH_NO_OFFSET) diag->file_offset = offset;
}

const char *ash_version(void) {
    return ASH_VERSION;
}
