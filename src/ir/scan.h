/* SPDX-License-Identifier: MIT */
/* The scanner of the text form: positions in a text of given length, which need not be terminated. Space,
 * line ends and comments from # to the end of the line may stand between any two tokens. */
#ifndef ASH_IR_SCAN_H
#define ASH_IR_SCAN_H

#include "base/text.h"
#include "ir.h"

typedef struct ash_scan {
    const char *text;
    size_t len, pos; /* bytes */
    ash_diag *diag;
} ash_scan;

/* Skips space; the next byte, or 0 at the end of the text. */
char ash_scan__peek(ash_scan *s);
/* Skips space and reads `token` when it comes next; a token that is a word must end there. */
bool ash_scan__accept(ash_scan *s, const char *token);
ash_status ash_scan__expect(ash_scan *s, const char *token);
/* Reads letters, digits, "_" and "." that do not start with a digit; borrowed from the text. */
bool ash_scan__word(ash_scan *s, const char **word, size_t *len);
/* Reads decimal digits, with a minus in front where the value is negative. */
ash_status ash_scan__integer(ash_scan *s, int64_t *out);
/* Reads a string as ash_text_add_quoted writes it; appends it to `out`. It holds no NUL. */
ash_status ash_scan__quoted(ash_scan *s, ash_text *out);
/* A malformed text, at the present position. */
ash_status ash_scan__fail(ash_scan *s, const char *fmt, ...) ASH_PRINTF(2, 3);

/* Reads a number in decimal or with an exponent, or "inf", rounded once to f32 or f64; finite unless it
 * says inf. */
ash_status ash_scan__float(ash_scan *s, bool single, double *out);

/* Letters, digits, "_" and ".". */
bool ash_scan__is_word_byte(char c);
/* Whether a name may stand without quotes. */
bool ash_text__is_word(const char *name);
/* The shortest text that ash_scan__float reads back as the same bits; `value` is no NaN. */
void ash_text__add_float(ash_text *text, double value, bool single);

#endif
