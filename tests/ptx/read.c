/* SPDX-License-Identifier: MIT */
/* Reads PTX text: tokens, and what stands outside of functions. Bodies are passed over at first, since
 * calls are read in place, where their function's text is wanted. What is not known is refused with its
 * line; nothing is guessed. */
#include <errno.h>
#include <stdio.h>

#include "read.h"

struct ptx_piece {
    struct ptx_piece *next;
    max_align_t data[];
};

void *ptx_keep(ptx_module *module, size_t bytes) {
    struct ptx_piece *piece = ptx_alloc(1, sizeof *piece + bytes);
    piece->next = module->pieces;
    module->pieces = piece;
    return piece->data;
}

void *ptx_grow(ptx_module *module, void *array, size_t n, size_t size) {
    if (n & (n - 1)) return array; /* room for the next power of two is there */
    void *grown = ptx_keep(module, (n ? 2 * n : 1) * size);
    if (n) memcpy(grown, array, n * size);
    return grown;
}

_Noreturn void ptx_fail(ptx_reader *r, const char *fmt, ...) {
    char why[400];
    va_list args;
    va_start(args, fmt);
    vsnprintf(why, sizeof why, fmt, args);
    va_end(args);
    ptx_refuse("line %u: %s", r->token.line, why);
    longjmp(r->failed, 1);
}

/* --- tokens --------------------------------------------------------------------------------------- */

static bool is_digit(char c) {
    return c >= '0' && c <= '9';
}

static bool is_name(char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || is_digit(c) || c == '_' || c == '$' ||
           c == '%' || c == '.';
}

static void skip_blanks(ptx_reader *r) {
    for (;; r->at++) {
        if (*r->at == '\n') {
            r->line++;
        } else if (r->at[0] == '/' && r->at[1] == '/') {
            r->at += strcspn(r->at, "\n") - 1;
        } else if (r->at[0] == '/' && r->at[1] == '*') {
            for (r->at += 2; *r->at && !(r->at[0] == '*' && r->at[1] == '/'); r->at++)
                r->line += *r->at == '\n';
            if (!*r->at) return;
            r->at++;
        } else if (*r->at != ' ' && *r->at != '\t' && *r->at != '\r') {
            return;
        }
    }
}

/* 0f3F800000 and 0d3FF0000000000000 are bits, 1.5 is a number, and so are 17, 017, 0x1F, 0b11, each
 * with a U or without. */
static void number(ptx_reader *r, ptx_token *t) {
    char *end = NULL;
    char second = r->at[0] == '0' ? r->at[1] : 0;
    t->kind = T_INTEGER;
    errno = 0;
    if (second == 'f' || second == 'F' || second == 'd' || second == 'D') {
        t->kind = second == 'f' || second == 'F' ? T_FLOAT32 : T_FLOAT64;
        t->value = strtoull(r->at + 2, &end, 16);
        if (end - r->at != (t->kind == T_FLOAT32 ? 10 : 18))
            ptx_fail(r, "a float of %d digits", (int)(end - r->at - 2));
    } else if (second == 'b' || second == 'B') {
        t->value = strtoull(r->at + 2, &end, 2);
    } else {
        t->value = strtoull(r->at, &end, 0);
        if (*end == '.') {
            double value = strtod(r->at, &end);
            memcpy(&t->value, &value, 8);
            t->kind = T_FLOAT64;
        }
    }
    if (t->kind == T_INTEGER && *end == 'U') end++;
    t->len = (size_t)(end - r->at);
    if (errno || is_name(*end)) ptx_fail(r, "not a number: %.*s", (int)t->len + 1, t->at);
}

void ptx_next(ptx_reader *r) {
    skip_blanks(r);
    ptx_token *t = &r->token;
    *t = (ptx_token){.kind = T_SIGN, .at = r->at, .len = 1, .line = r->line};
    if (!*r->at) {
        t->kind = T_END;
        t->len = 0;
    } else if (*r->at == '"') {
        t->kind = T_STRING;
        t->len = strcspn(r->at + 1, "\"\n") + 2;
        if (r->at[t->len - 1] != '"') ptx_fail(r, "a string without an end");
    } else if (is_digit(*r->at)) {
        number(r, t);
    } else if (is_name(*r->at)) {
        t->kind = T_NAME;
        while (is_name(t->at[t->len]) || (t->at[t->len] == ':' && t->at[t->len + 1] == ':')) {
            t->len += t->at[t->len] == ':' ? 2 : 1;
        }
    }
    r->at = t->at + t->len;
}

void ptx_seek(ptx_reader *r, const char *at, uint32_t line) {
    r->at = at;
    r->line = line;
    ptx_next(r);
}

bool ptx_at(const ptx_reader *r, const char *text) {
    return r->token.kind != T_STRING && strlen(text) == r->token.len &&
           !memcmp(text, r->token.at, r->token.len);
}

bool ptx_accept(ptx_reader *r, const char *text) {
    if (!ptx_at(r, text)) return false;
    ptx_next(r);
    return true;
}

void ptx_expect(ptx_reader *r, const char *text) {
    if (!ptx_accept(r, text))
        ptx_fail(r, "%s expected before \"%.*s\"", text, (int)r->token.len, r->token.at);
}

uint64_t ptx_expect_number(ptx_reader *r) {
    if (r->token.kind != T_INTEGER)
        ptx_fail(r, "a number expected before \"%.*s\"", (int)r->token.len, r->token.at);
    uint64_t value = r->token.value;
    ptx_next(r);
    return value;
}

/* --- declarations * ------------------------------------------------------------------------------- */

ptx_declared ptx_declaration(ptx_reader *r) {
    ptx_declared d = {.sized = true};
    for (;;) {
        if (ptx_accept(r, ".align")) {
            uint64_t align = ptx_expect_number(r);
            /* Behind .ptr it is what a pointer points to that is aligned. */
            if (!d.type) d.align = (uint32_t)align;
        } else if (ptx_accept(r, ".ptr")) {
            if (r->token.len > 1 && !ptx_at(r, ".align") && *r->token.at == '.') ptx_next(r);
        } else if (r->token.kind == T_NAME && *r->token.at == '.') {
            d.type = ptx_type_find(r->token.at + 1, r->token.len - 1);
            if (!d.type) ptx_fail(r, "no type: %.*s", (int)r->token.len, r->token.at);
            ptx_next(r);
        } else {
            break;
        }
    }
    if (!d.type || r->token.kind != T_NAME) ptx_fail(r, "a declaration without type and name");
    if (!d.align) d.align = ptx_type_bytes(d.type);
    if (d.align & (d.align - 1)) ptx_fail(r, "an alignment of %u", d.align);
    d.name = r->token.at;
    d.len = r->token.len;
    d.bytes = ptx_type_bytes(d.type);
    ptx_next(r);
    while (ptx_accept(r, "[")) {
        d.sized = !ptx_at(r, "]");
        if (d.sized) {
            uint64_t n = ptx_expect_number(r);
            if (n > UINT32_MAX || d.bytes * n > UINT32_MAX) ptx_fail(r, "an array past 4 GiB");
            d.bytes *= n;
        }
        ptx_expect(r, "]");
    }
    return d;
}

/* {1, -2, other+4, {3}}: numbers, in order, and addresses of variables. */
static void initial_values(ptx_reader *r, const ptx_declared *d, unsigned char *data, uint64_t *filled) {
    unsigned size = ptx_type_bytes(d->type);
    bool list = ptx_accept(r, "{");
    do {
        if (ptx_at(r, "{")) {
            initial_values(r, d, data, filled);
            continue;
        }
        bool generic = ptx_accept(r, "generic");
        if (generic) ptx_expect(r, "(");
        bool minus = ptx_accept(r, "-");
        uint64_t value = r->token.value;
        if (r->token.kind == T_NAME) {
            const ptx_symbol *s = ptx_look_up(r, r->token.at, r->token.len);
            if (!s || s->kind != IS_GLOBAL)
                ptx_fail(r, "%.*s is no variable", (int)r->token.len, r->token.at);
            value = s->value;
        } else if (r->token.kind == T_FLOAT64 && size == 4) {
            double wide;
            memcpy(&wide, &value, 8);
            float narrow = (float)wide;
            value = 0;
            memcpy(&value, &narrow, 4);
        } else if (r->token.kind != T_INTEGER && r->token.kind != T_FLOAT32 && r->token.kind != T_FLOAT64) {
            ptx_fail(r, "a value expected before \"%.*s\"", (int)r->token.len, r->token.at);
        }
        ptx_next(r);
        if (minus) value = -value;
        if (ptx_accept(r, "+")) value += ptx_expect_number(r);
        if (generic) ptx_expect(r, ")");
        if (*filled + size > d->bytes)
            ptx_fail(r, "more values than %.*s has room for", (int)d->len, d->name);
        memcpy(data + *filled, &value, size);
        *filled += size;
    } while (list && ptx_accept(r, ","));
    if (list) ptx_expect(r, "}");
}

static void global_variable(ptx_reader *r, bool constant, bool external) {
    do {
        ptx_declared d = ptx_declaration(r);
        if (external) ptx_fail(r, "%.*s is extern: there is nothing to link with", (int)d.len, d.name);
        ptx_module *m = r->module;
        unsigned char *data = ptx_keep(m, d.bytes);
        uint64_t filled = 0;
        ptx_allocation *a =
            ptx_allocation_new(d.bytes, constant ? CONSTANT_MEMORY : DEVICE_MEMORY, r->device, NULL);
        m->variables = ptx_grow(r->module, m->variables, m->n_variables, sizeof *m->variables);
        char *name = ptx_keep(m, d.len + 1);
        memcpy(name, d.name, d.len);
        m->variables[m->n_variables++] = (ptx_variable){name, a->address, d.bytes};
        ptx_symbol *s = ptx_declare(r, d.name, d.len, IS_GLOBAL);
        s->value = a->address;
        s->bytes = d.bytes;
        if (ptx_accept(r, "=")) initial_values(r, &d, data, &filled);
        memcpy(a->data, data, d.bytes); /* the rest is zero */
        uint32_t other;
        ptx_note_write(a, 0, d.bytes, NULL, &other);
    } while (ptx_accept(r, ","));
    ptx_expect(r, ";");
}

/* Its place is that of the kernel which names it first. */
static void shared_variable(ptx_reader *r) {
    do {
        ptx_declared d = ptx_declaration(r);
        ptx_symbol *s = ptx_declare(r, d.name, d.len, IS_SHARED);
        s->bytes = d.sized ? d.bytes : 0;
        s->align = d.align;
        s->dynamic = !d.sized;
        s->value = UINT64_MAX;
    } while (ptx_accept(r, ","));
    ptx_expect(r, ";");
}

/* From an opening brace or parenthesis past the one that closes it. */
static void skip_nested(ptx_reader *r) {
    int depth = 0;
    do {
        if (r->token.kind == T_END) ptx_fail(r, "the text ends in the midst of a function");
        depth += ptx_at(r, "{") || ptx_at(r, "(");
        depth -= ptx_at(r, "}") || ptx_at(r, ")");
        ptx_next(r);
    } while (depth > 0);
}

static void function(ptx_reader *r, bool entry) {
    ptx_function f = {.entry = entry};
    if (ptx_at(r, "(")) {
        f.returns = r->token.at;
        f.returns_line = r->token.line;
        skip_nested(r);
    }
    f.name = r->token.at;
    f.len = r->token.len;
    ptx_next(r);
    if (ptx_at(r, "(")) {
        f.params = r->token.at;
        f.params_line = r->token.line;
        skip_nested(r);
    }
    while (!ptx_at(r, "{") && !ptx_at(r, ";")) {
        if (ptx_at(r, ".maxntid") || ptx_at(r, ".reqntid")) {
            bool required = ptx_at(r, ".reqntid");
            ptx_next(r);
            uint64_t threads = 1, n = 0;
            uint32_t extents[3] = {1, 1, 1};
            do {
                extents[n] = (uint32_t)ptx_expect_number(r);
                threads *= extents[n++];
            } while (n < 3 && ptx_accept(r, ","));
            f.most_threads = (uint32_t)threads;
            if (required) memcpy(f.required, extents, sizeof extents);
        } else if (ptx_accept(r, ".minnctapersm") || ptx_accept(r, ".maxnreg")) {
            ptx_expect_number(r);
        } else if (!ptx_accept(r, ".noreturn")) {
            ptx_fail(r, "not known: %.*s", (int)r->token.len, r->token.at);
        }
    }
    if (ptx_at(r, "{")) {
        f.body = r->token.at;
        f.body_line = r->token.line;
        skip_nested(r);
    } else {
        ptx_expect(r, ";");
    }
    ptx_symbol *s = ptx_look_up(r, f.name, f.len);
    if (s && !f.body) return; /* declared once more */
    r->functions = ptx_grow(r->module, r->functions, r->n_functions, sizeof *r->functions);
    r->functions[r->n_functions++] = f;
    s = ptx_declare(r, f.name, f.len, IS_FUNCTION);
    s->value = r->n_functions - 1;
}

static void skip_line(ptx_reader *r) {
    r->at += strcspn(r->at, "\n");
    ptx_next(r);
}

static void head(ptx_reader *r) {
    ptx_expect(r, ".version");
    double version;
    if (r->token.kind != T_FLOAT64) ptx_fail(r, "a version expected");
    memcpy(&version, &r->token.value, 8);
    r->module->version = (int)(version * 10 + 0.5);
    ptx_next(r);
    ptx_expect(r, ".target");
    if (r->token.len < 5 || memcmp(r->token.at, "sm_", 3)) ptx_fail(r, "a target expected");
    r->module->target = atoi(r->token.at + 3);
    ptx_next(r);
    while (ptx_accept(r, ",")) ptx_next(r);
    if (ptx_accept(r, ".address_size") && ptx_expect_number(r) != 64)
        ptx_fail(r, "addresses of other than 64 bits");
}

static void everything(ptx_reader *r) {
    ptx_next(r);
    head(r);
    while (r->token.kind != T_END) {
        bool external = false;
        while (ptx_at(r, ".visible") || ptx_at(r, ".weak") || ptx_at(r, ".common") ||
               ptx_at(r, ".extern")) {
            external |= ptx_at(r, ".extern");
            ptx_next(r);
        }
        if (ptx_accept(r, ".entry")) {
            function(r, true);
        } else if (ptx_accept(r, ".func")) {
            function(r, false);
        } else if (ptx_accept(r, ".global")) {
            global_variable(r, false, external);
        } else if (ptx_accept(r, ".const")) {
            global_variable(r, true, external);
        } else if (ptx_accept(r, ".shared")) {
            shared_variable(r);
        } else if (ptx_at(r, ".file") || ptx_at(r, ".loc")) {
            skip_line(r);
        } else if (ptx_accept(r, ".section")) {
            ptx_next(r);
            skip_nested(r);
        } else {
            ptx_fail(r, "not known: %.*s", (int)r->token.len, r->token.at);
        }
    }
    for (size_t i = 0; i < r->n_functions; i++)
        if (r->functions[i].entry && r->functions[i].body) ptx_read_kernel(r, &r->functions[i]);
}

ptx_module *ptx_module_read(const char *text, size_t len, int device) {
    ptx_module *m = ptx_alloc(1, sizeof *m);
    m->device = device;
    m->text = ptx_alloc(len + 1, 1);
    memcpy(m->text, text, len);
    ptx_reader *r = ptx_alloc(1, sizeof *r);
    *r = (ptx_reader){.module = m, .at = m->text, .line = 1, .device = device};
    bool refused = setjmp(r->failed) != 0;
    if (!refused) everything(r);
    free(r);
    if (refused) {
        ptx_module_free(m);
        return NULL;
    }
    return m;
}

void ptx_module_free(ptx_module *m) {
    if (!m) return;
    for (uint32_t i = 0; i < m->n_variables; i++) {
        ptx_allocation *a = ptx_allocation_find(m->variables[i].address);
        if (a) ptx_allocation_free(a);
    }
    free(m->text);
    while (m->pieces) {
        struct ptx_piece *next = m->pieces->next;
        free(m->pieces);
        m->pieces = next;
    }
    free(m);
}
