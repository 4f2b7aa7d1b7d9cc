/* SPDX-License-Identifier: MIT */
/* A growing string. The first failed allocation makes it `failed`, after which appending does nothing:
 * writers check once, at the end. */
#ifndef ASH_TEXT_H
#define ASH_TEXT_H

#include "base.h"

typedef struct ash_text {
    const ash_allocator *allocator;
    char *at; /* terminated, or NULL while empty */
    size_t len, cap;
    bool failed; /* an allocation failed; the text is incomplete */
} ash_text;

void ash_text_init(ash_text *text, const ash_allocator *allocator);
void ash_text_free(ash_text *text);
void ash_text_add(ash_text *text, const char *fmt, ...) ASH_PRINTF(2, 3);
void ash_text_add_bytes(ash_text *text, const void *bytes, size_t len);
/* In double quotes, with quotes, backslashes and control characters escaped. */
void ash_text_add_quoted(ash_text *text, const char *s, size_t len);
/* ASH_OK, or out of memory. */
ash_status ash_text_status(const ash_text *text, ash_diag *diag);

#endif
