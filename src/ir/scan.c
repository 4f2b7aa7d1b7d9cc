/* SPDX-License-Identifier: MIT */
/* The scanner of the text form. */
#include "scan.h"

#include <stdio.h>

static bool is_digit(char c) {
    return c >= '0' && c <= '9';
}

static bool is_word_start(char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
}

bool ash_scan__is_word_byte(char c) {
    return is_word_start(c) || is_digit(c) || c == '.';
}

bool ash_text__is_word(const char *name) {
    if (!is_word_start(*name)) return false;
    while (ash_scan__is_word_byte(*name)) name++;
    return *name == 0;
}

ash_status ash_scan__fail(ash_scan *s, const char *fmt, ...) {
    char message[sizeof s->diag->message];
    va_list args;
    va_start(args, fmt);
    vsnprintf(message, sizeof message, fmt, args);
    va_end(args);
    return ash_fail_at(s->diag, ASH_ERROR_FORMAT, s->pos, "%s", message);
}

char ash_scan__peek(ash_scan *s) {
    while (s->pos < s->len) {
        char c = s->text[s->pos];
        if (c == '#')
            while (s->pos < s->len && s->text[s->pos] != '\n') s->pos++;
        else if (c == ' ' || c == '\n' || c == '\t' || c == '\r')
            s->pos++;
        else
            return c;
    }
    return 0;
}

bool ash_scan__accept(ash_scan *s, const char *token) {
    size_t len = strlen(token);
    ash_scan__peek(s);
    if (s->len - s->pos < len || memcmp(s->text + s->pos, token, len) != 0) return false;
    if (ash_scan__is_word_byte(token[len - 1]) && s->pos + len < s->len &&
        ash_scan__is_word_byte(s->text[s->pos + len]))
        return false;
    s->pos += len;
    return true;
}

ash_status ash_scan__expect(ash_scan *s, const char *token) {
    return ash_scan__accept(s, token) ? ASH_OK : ash_scan__fail(s, "expected %s", token);
}

bool ash_scan__word(ash_scan *s, const char **word, size_t *len) {
    if (!is_word_start(ash_scan__peek(s))) return false;
    size_t start = s->pos;
    while (s->pos < s->len && ash_scan__is_word_byte(s->text[s->pos])) s->pos++;
    *word = s->text + start;
    *len = s->pos - start;
    return true;
}

ash_status ash_scan__integer(ash_scan *s, int64_t *out) {
    size_t start = (ash_scan__peek(s), s->pos);
    bool negative = ash_scan__accept(s, "-");
    if (!is_digit(ash_scan__peek(s))) return ash_scan__fail(s, "expected a number");
    int64_t value = 0;
    for (; s->pos < s->len && is_digit(s->text[s->pos]); s->pos++) {
        int digit = s->text[s->pos] - '0';
        if (ash_mul_i64(value, 10, &value) && ash_add_i64(value, negative ? -digit : digit, &value))
            continue;
        s->pos = start;
        return ash_scan__fail(s, "a number exceeds 64 bits");
    }
    *out = value;
    return ASH_OK;
}

static int hex_digit(char c) {
    if (is_digit(c)) return c - '0';
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

/* What follows a backslash; -1 when it is no escape. */
static int read_escape(ash_scan *s) {
    size_t left = s->len - s->pos;
    const char *at = s->text + s->pos;
    if (left >= 1 && (at[0] == '"' || at[0] == '\\')) {
        s->pos++;
        return at[0];
    }
    if (left < 3 || at[0] != 'x' || hex_digit(at[1]) < 0 || hex_digit(at[2]) < 0) return -1;
    s->pos += 3;
    return hex_digit(at[1]) * 16 + hex_digit(at[2]);
}

ash_status ash_scan__quoted(ash_scan *s, ash_text *out) {
    if (ash_scan__peek(s) != '"') return ash_scan__fail(s, "expected a string in double quotes");
    s->pos++;
    ash_text_add_bytes(out, "", 0); /* an empty string is a string, too */
    for (;;) {
        size_t start = s->pos;
        while (s->pos < s->len && s->text[s->pos] != '"' && s->text[s->pos] != '\\' && s->text[s->pos])
            s->pos++;
        ash_text_add_bytes(out, s->text + start, s->pos - start);
        if (s->pos == s->len) return ash_scan__fail(s, "the text ends within a string");
        char c = s->text[s->pos];
        if (c == 0) return ash_scan__fail(s, "a string holds a NUL byte");
        s->pos++;
        if (c == '"') return ash_text_status(out, s->diag);
        int value = read_escape(s);
        if (value <= 0)
            return ash_scan__fail(s,
                                  "a backslash starts no escape here: \\\", \\\\ and \\x01 to \\xff are");
        ash_text_add_bytes(out, &(char){(char)value}, 1);
    }
}
