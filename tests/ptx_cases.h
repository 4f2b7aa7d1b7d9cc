/* SPDX-License-Identifier: MIT */
/* The table of tests/data/ptx_cases.txt (tools/ptx_cases.py): instructions with operands, and results that
 * were computed elsewhere. Text in, cases out; a kernel for each, and whether what came of it is right. */
#ifndef ASH_PTX_CASES_H
#define ASH_PTX_CASES_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PTX_CASE_ROWS = 256, PTX_CASE_OPERANDS = 3, PTX_CASE_WORDS = 10, PTX_CASE_RESULTS = 4 };

typedef struct ptx_case {
    char name[64], text[256];
    char types[PTX_CASE_OPERANDS + 1][8];  /* of the result, then of the operands; empty: there is none */
    unsigned words[PTX_CASE_OPERANDS + 1]; /* of matrices: how many of 32 bits each of them is, in place of
                                              types */
    int needs;                             /* the least sm */
    unsigned n_rows;
    uint64_t in[PTX_CASE_ROWS][PTX_CASE_WORDS], out[PTX_CASE_ROWS][PTX_CASE_RESULTS];
    bool any_nan[PTX_CASE_ROWS];
} ptx_case;

typedef struct ptx_cases {
    ptx_case *at;
    unsigned n, rows; /* rows of all cases */
} ptx_cases;

static inline bool ptx_case_row(ptx_case *c, char *line) {
    char *sign = strstr(line, " = "), *at = line;
    if (!sign || c->n_rows == PTX_CASE_ROWS) return false;
    for (unsigned i = 0; at < sign && i < PTX_CASE_WORDS; i++) c->in[c->n_rows][i] = strtoull(at, &at, 16);
    c->any_nan[c->n_rows] = !strncmp(sign + 3, "nan", 3);
    at = sign + 3;
    for (unsigned i = 0; *at && i < PTX_CASE_RESULTS; i++) c->out[c->n_rows][i] = strtoull(at, &at, 16);
    c->n_rows++;
    return true;
}

static inline bool ptx_case_line(ptx_cases *cases, char *line) {
    ptx_case *c = cases->n ? &cases->at[cases->n - 1] : NULL;
    if (!strncmp(line, "case ", 5)) {
        if (!(cases->n & (cases->n - 1))) { /* room for the next power of two */
            c = realloc(cases->at, (cases->n ? 2 * cases->n : 1) * sizeof *c);
            if (!c) return false;
            cases->at = c;
        }
        c = &cases->at[cases->n++];
        *c = (ptx_case){.needs = 80};
        snprintf(c->name, sizeof c->name, "%.63s", line + 5);
    } else if (!*line) {
        return true;
    } else if (!c) {
        return false;
    } else if (!strncmp(line, "do ", 3)) {
        snprintf(c->text, sizeof c->text, "%.255s", line + 3);
    } else if (!strncmp(line, "needs sm_", 9)) {
        c->needs = atoi(line + 9);
    } else if (!strncmp(line, "types ", 6)) {
        sscanf(line + 6, "%7s %7s %7s %7s", c->types[0], c->types[1], c->types[2], c->types[3]);
    } else if (!strncmp(line, "words ", 6)) {
        sscanf(line + 6, "%u %u %u %u", &c->words[0], &c->words[1], &c->words[2], &c->words[3]);
    } else {
        cases->rows++;
        return ptx_case_row(c, line);
    }
    return true;
}

/* The cases of a text of so many bytes, whose `at` the caller frees; false: it is none, or no memory. */
static inline bool ptx_cases_read(const char *text, size_t len, ptx_cases *out) {
    char line[512];
    *out = (ptx_cases){.at = NULL};
    for (const char *end = text + len; text < end;) {
        const char *next = memchr(text, '\n', (size_t)(end - text));
        size_t n = (size_t)((next ? next : end) - text);
        if (n >= sizeof line) return false;
        memcpy(line, text, n);
        line[n] = 0;
        if (!ptx_case_line(out, line)) return false;
        text += n + 1;
    }
    return true;
}

/* --- kernels ------------------------------------------------------------------------------------------ */

static inline unsigned ptx_case_bits(const char *type) {
    if (!strcmp(type, "p") || !strcmp(type, "tf32")) return 32;
    return (unsigned)atoi(type + strcspn(type, "0123456789"));
}

/* The body of a product of matrices, of registers d0, ..., a0, ..., b0, ..., c0, ... */
static inline void ptx_case_matrices(FILE *file, const ptx_case *c) {
    unsigned at = 0;
    fprintf(file, ".reg .b32 d<%u>, a<%u>, b<%u>, c<%u>;\n", c->words[0], c->words[1], c->words[2],
            c->words[3]);
    for (unsigned o = 1; o <= PTX_CASE_OPERANDS; o++)
        for (unsigned i = 0; i < c->words[o]; i++)
            fprintf(file, "ld.global.b32 %c%u, [%%from+%u];\n", 'a' + (int)o - 1, i, 8 * at++);
    fprintf(file, "%s\n", c->text);
    for (unsigned i = 0; i < c->words[0]; i++) fprintf(file, "st.global.b32 [%%to+%u], d%u;\n", 8 * i, i);
}

/* What a module for GPUs of this kind begins with: by the least version that has it. */
static inline void ptx_case_head(FILE *file, int sm) {
    fprintf(file, ".version %s\n.target sm_%d\n.address_size 64\n", sm < 90 ? "7.0" : "7.8", sm);
}

/* k<number>(in, out), a thread per row: operands from in[row], results to out[row]. */
static inline void ptx_case_kernel(FILE *file, const ptx_case *c, unsigned number) {
    bool predicate = !strcmp(c->types[0], "p");
    fprintf(file,
            ".visible .entry k%u(.param .u64 in, .param .u64 out) {\n"
            ".reg .b64 %%from, %%to, %%at; .reg .b32 %%row;\n"
            "ld.param.u64 %%from, [in]; ld.param.u64 %%to, [out]; mov.u32 %%row, %%tid.x;\n"
            "mad.wide.u32 %%from, %%row, %u, %%from; mad.wide.u32 %%to, %%row, %u, %%to;\n",
            number, 8u * PTX_CASE_WORDS, 8u * PTX_CASE_RESULTS);
    if (c->words[0]) {
        ptx_case_matrices(file, c);
        fprintf(file, "ret; }\n");
        return;
    }
    if (predicate)
        fprintf(file, ".reg .pred d; .reg .b32 %%d;\n");
    else
        fprintf(file, ".reg .b%u d;\n", ptx_case_bits(c->types[0]));
    for (unsigned i = 0; i < PTX_CASE_OPERANDS && c->types[i + 1][0]; i++) {
        unsigned bits = ptx_case_bits(c->types[i + 1]);
        fprintf(file, ".reg .b%u %c; ld.global.b%u %c, [%%from+%u];\n", bits, 'a' + i, bits, 'a' + i,
                8 * i);
    }
    fprintf(file, "%s\n", c->text);
    if (predicate)
        fprintf(file, "selp.u32 %%d, 1, 0, d; st.global.b32 [%%to], %%d;\n");
    else
        fprintf(file, "st.global.b%u [%%to], d;\n", ptx_case_bits(c->types[0]));
    fprintf(file, "ret; }\n");
}

/* --- results ------------------------------------------------------------------------------------------ */

/* The first row whose results are others, n_rows where there is none, and in *word which of them. What is
 * any NaN is one of f64. */
static inline unsigned ptx_case_wrong(const ptx_case *c, const uint64_t results[][PTX_CASE_RESULTS],
                                      unsigned *word) {
    unsigned row = 0;
    for (; row < c->n_rows; row++) {
        *word = 0;
        if (c->any_nan[row]) {
            if ((results[row][0] << 1) > UINT64_C(0xffe0000000000000)) continue;
            return row;
        }
        for (; *word < PTX_CASE_RESULTS; ++*word)
            if (results[row][*word] != c->out[row][*word]) return row;
    }
    return row;
}

#endif
