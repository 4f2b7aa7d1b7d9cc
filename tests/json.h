/* SPDX-License-Identifier: MIT */
/* A strict reader of JSON (RFC 8259) for tests: one text in, a tree out, or the place of the first
 * offence. */
#ifndef ASH_JSON_H
#define ASH_JSON_H

#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

typedef enum json_kind {
    JSON_NULL,
    JSON_BOOL,
    JSON_NUMBER,
    JSON_STRING,
    JSON_ARRAY,
    JSON_OBJECT
} json_kind;

typedef struct json {
    json_kind kind;
    double number;             /* also of a truth value: 0 or 1 */
    char *text;                /* of a string, decoded */
    char *key;                 /* of a member of an object, decoded */
    struct json *first, *next; /* members or elements; the next of the same list */
} json;

enum { JSON_DEPTH = 64 }; /* most lists within lists */

struct json_reader {
    const char *at;
    int depth;
};

static inline void json_free(json *value) {
    while (value) {
        json *next = value->next;
        json_free(value->first);
        free(value->text);
        free(value->key);
        free(value);
        value = next;
    }
}

static inline void json_blank(struct json_reader *r) {
    r->at += strspn(r->at, " \n\r\t");
}

static inline bool json_take(struct json_reader *r, char c) {
    json_blank(r);
    if (*r->at != c) return false;
    r->at++;
    return true;
}

static inline bool json_hex(struct json_reader *r, unsigned *out) {
    *out = 0;
    for (int i = 0; i < 4; i++) {
        static const char digits[] = "0123456789abcdef";
        char c = *r->at >= 'A' && *r->at <= 'F' ? (char)(*r->at + 32) : *r->at;
        const char *digit = c ? strchr(digits, c) : NULL;
        if (!digit) return false;
        *out = *out * 16 + (unsigned)(digit - digits);
        r->at++;
    }
    return true;
}

/* Appends a character as UTF-8. */
static inline char *json_put(char *to, unsigned c) {
    if (c < 0x80) {
        *to++ = (char)c;
    } else if (c < 0x800) {
        *to++ = (char)(0xc0 | c >> 6);
        *to++ = (char)(0x80 | (c & 0x3f));
    } else {
        *to++ = (char)(0xe0 | c >> 12);
        *to++ = (char)(0x80 | (c >> 6 & 0x3f));
        *to++ = (char)(0x80 | (c & 0x3f));
    }
    return to;
}

/* A string without surrogates, which nothing here writes. */
static inline bool json_string(struct json_reader *r, char **out) {
    static const char escaped[] = "\"\\/bfnrt", meant[] = "\"\\/\b\f\n\r\t";
    *out = NULL;
    if (!json_take(r, '"')) return false;
    char *text = malloc(strlen(r->at) + 1), *to = text;
    for (; *r->at != '"';) {
        unsigned c = (unsigned char)*r->at;
        if (c < 0x20) break; /* the end of the text, too */
        r->at++;
        if (c != '\\') {
            *to++ = (char)c;
            continue;
        }
        const char *escape = *r->at ? strchr(escaped, *r->at) : NULL;
        if (escape) {
            *to++ = meant[escape - escaped];
            r->at++;
        } else if (*r->at++ != 'u' || !json_hex(r, &c) || (c >= 0xd800 && c < 0xe000) || c == 0) {
            r->at--;
            break;
        } else {
            to = json_put(to, c);
        }
    }
    *to = 0;
    *out = text;
    if (*r->at != '"') return false;
    r->at++;
    return true;
}

static inline bool json_digits(struct json_reader *r) {
    size_t n = strspn(r->at, "0123456789");
    r->at += n;
    return n > 0;
}

static inline bool json_number(struct json_reader *r, double *out) {
    const char *start = r->at;
    r->at += *r->at == '-';
    if (*r->at == '0')
        r->at++;
    else if (!json_digits(r))
        return false;
    if (*r->at == '.') {
        r->at++;
        if (!json_digits(r)) return false;
    }
    if (*r->at == 'e' || *r->at == 'E') {
        r->at++;
        r->at += *r->at == '+' || *r->at == '-';
        if (!json_digits(r)) return false;
    }
    *out = strtod(start, NULL);
    return true;
}

static inline bool json_value(struct json_reader *r, json *out);

static inline bool json_list(struct json_reader *r, json *out, char end) {
    json **last = &out->first;
    out->kind = end == '}' ? JSON_OBJECT : JSON_ARRAY;
    if (json_take(r, end)) return true;
    if (++r->depth > JSON_DEPTH) return false;
    do {
        json *member = *last = calloc(1, sizeof *member);
        last = &member->next;
        if (end == '}' && (!json_string(r, &member->key) || !json_take(r, ':'))) return false;
        if (!json_value(r, member)) return false;
    } while (json_take(r, ','));
    r->depth--;
    return json_take(r, end);
}

static inline bool json_value(struct json_reader *r, json *out) {
    static const char *const words[] = {"null", "false", "true"};
    json_blank(r);
    for (int i = 0; i < 3; i++) {
        size_t len = strlen(words[i]);
        if (strncmp(r->at, words[i], len) != 0) continue;
        r->at += len;
        out->kind = i ? JSON_BOOL : JSON_NULL;
        out->number = i == 2;
        return true;
    }
    if (json_take(r, '{')) return json_list(r, out, '}');
    if (json_take(r, '[')) return json_list(r, out, ']');
    out->kind = *r->at == '"' ? JSON_STRING : JSON_NUMBER;
    return *r->at == '"' ? json_string(r, &out->text) : json_number(r, &out->number);
}

/* The tree of a text, freed with json_free; NULL when it is no JSON, and *offence is then where. */
static inline json *json_read(const char *text, const char **offence) {
    struct json_reader r = {.at = text};
    json *value = calloc(1, sizeof *value);
    bool good = json_value(&r, value);
    json_blank(&r);
    *offence = r.at;
    if (good && *r.at == 0) return value;
    json_free(value);
    return NULL;
}

/* A member of an object, or NULL. */
static inline const json *json_member(const json *object, const char *key) {
    if (!object || object->kind != JSON_OBJECT) return NULL;
    for (const json *m = object->first; m; m = m->next)
        if (!strcmp(m->key, key)) return m;
    return NULL;
}

static inline const char *json_text(const json *object, const char *key) {
    const json *m = json_member(object, key);
    return m && m->kind == JSON_STRING ? m->text : NULL;
}

/* A member's number, or `otherwise` where it has none. */
static inline double json_double(const json *object, const char *key, double otherwise) {
    const json *m = json_member(object, key);
    return m && m->kind == JSON_NUMBER ? m->number : otherwise;
}

#endif
