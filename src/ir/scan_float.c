/* SPDX-License-Identifier: MIT */
/* Floating point numbers in the text form, whatever the locale of the program is. */
#include "scan.h"

#include <locale.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum { LONGEST = 64 }; /* bytes of a number; one that was printed has at most 24 */

/* A thread's locale while numbers are read or written: the standard "C" one, which the C library keeps and
 * does not allocate. */
typedef struct c_locale {
    locale_t c, before;
} c_locale;

static c_locale enter_c_locale(void) {
    locale_t c = newlocale(LC_ALL_MASK, "C", (locale_t)0);
    return (c_locale){c, c ? uselocale(c) : (locale_t)0};
}

static void leave_c_locale(c_locale locale) {
    if (!locale.c) return;
    uselocale(locale.before);
    freelocale(locale.c);
}

/* The whole of `text` as a number. */
static bool convert(const char *text, bool single, double *out) {
    char *end;
    c_locale locale = enter_c_locale();
    *out = single ? strtof(text, &end) : strtod(text, &end);
    leave_c_locale(locale);
    return end != text && *end == 0;
}

static bool is_number_byte(char c) {
    return (c >= '0' && c <= '9') || c == '.' || c == 'e' || c == 'E' || c == '+' || c == '-';
}

ash_status ash_scan__float(ash_scan *s, bool single, double *out) {
    char text[LONGEST];
    size_t len = 0;
    bool negative = ash_scan__accept(s, "-");
    if (ash_scan__accept(s, "inf")) {
        *out = negative ? -(double)INFINITY : (double)INFINITY;
        return ASH_OK;
    }
    char c = ash_scan__peek(s);
    if (c != '.' && (c < '0' || c > '9')) return ash_scan__fail(s, "expected a number");
    if (negative) text[len++] = '-';
    size_t start = s->pos, pos = start;
    while (pos < s->len && len < LONGEST - 1 && is_number_byte(s->text[pos])) text[len++] = s->text[pos++];
    text[len] = 0;
    if (len == LONGEST - 1 || !convert(text, single, out)) return ash_scan__fail(s, "expected a number");
    if (!isfinite(*out)) return ash_scan__fail(s, "a number exceeds its dtype");
    s->pos = pos;
    return ASH_OK;
}

void ash_text__add_float(ash_text *text, double value, bool single) {
    char digits[LONGEST];
    if (isinf(value)) {
        ash_text_add(text, "%s", value < 0 ? "-inf" : "inf");
        return;
    }
    c_locale locale = enter_c_locale();
    for (int precision = single ? 6 : 15; precision <= 17; precision++) {
        snprintf(digits, sizeof digits, "%.*g", precision, value);
        if ((single ? strtof(digits, NULL) : strtod(digits, NULL)) == value) break;
    }
    leave_c_locale(locale);
    ash_text_add(text, "%s", digits);
}
