/* SPDX-License-Identifier: MIT */
#include "text.h"

#include <stdio.h>

void ash_text_init(ash_text *text, const ash_allocator *allocator) {
    *text = (ash_text){.allocator = allocator};
}

void ash_text_free(ash_text *text) {
    ash_mem_free(text->allocator, text->at, text->cap, 1);
    ash_text_init(text, text->allocator);
}

/* Room for `more` bytes and the terminator. */
static bool room(ash_text *text, size_t more) {
    if (!text->failed && more < text->cap - text->len) return true;
    if (!text->failed && (more == SIZE_MAX || !ash_vec__grow(text->allocator, (void **)&text->at,
                                                             &text->cap, text->len, more + 1, 1)))
        text->failed = true;
    return !text->failed;
}

void ash_text_add_bytes(ash_text *text, const void *bytes, size_t len) {
    if (!room(text, len)) return;
    if (len) memcpy(text->at + text->len, bytes, len);
    text->len += len;
    text->at[text->len] = 0;
}

void ash_text_add(ash_text *text, const char *fmt, ...) {
    va_list args;
    va_start(args, fmt);
    int need = vsnprintf(NULL, 0, fmt, args);
    va_end(args);
    if (need < 0 || !room(text, (size_t)need)) return;
    va_start(args, fmt);
    vsnprintf(text->at + text->len, (size_t)need + 1, fmt, args);
    va_end(args);
    text->len += (size_t)need;
}

void ash_text_add_quoted(ash_text *text, const char *s, size_t len) {
    ash_text_add_bytes(text, "\"", 1);
    for (size_t i = 0; i < len; i++) {
        unsigned char c = (unsigned char)s[i];
        if (c == '"' || c == '\\')
            ash_text_add(text, "\\%c", c);
        else if (c < 0x20 || c == 0x7f)
            ash_text_add(text, "\\x%02x", c);
        else
            ash_text_add_bytes(text, &s[i], 1);
    }
    ash_text_add_bytes(text, "\"", 1);
}

ash_status ash_text_status(const ash_text *text, ash_diag *diag) {
    return text->failed ? ASH_NO_MEMORY(diag) : ASH_OK;
}
