/* SPDX-License-Identifier: MIT */
/* Reads the cases that tools/eval_golden.py writes: one node with operands, attributes and expected results
 * each. */
#ifndef ASH_TESTS_GOLDEN_H
#define ASH_TESTS_GOLDEN_H

#include <ctype.h>
#include <math.h>

#include "ir/ir.h"
#include "testing.h"

enum { GOLDEN_TENSORS = 4, GOLDEN_ATTRS = 9, GOLDEN_LIST = 16 };

typedef struct golden_case {
    char name[128];
    ash_op op;
    size_t n_attrs, n_ins, n_outs;
    ash_attr attrs[GOLDEN_ATTRS]; /* ascending keys */
    int64_t lists[GOLDEN_ATTRS][GOLDEN_LIST];
    ash_wide ins[GOLDEN_TENSORS], outs[GOLDEN_TENSORS]; /* outs: what is expected */
    double tolerance;                                   /* relative; negative: bit for bit */
} golden_case;

typedef struct golden_file {
    char *text, *at;
} golden_file;

static inline golden_file golden_open(const char *name) {
    char path[512];
    snprintf(path, sizeof path, "%s/tests/data/%s", ASH_SOURCE_DIR, name);
    FILE *file = fopen(path, "rb");
    if (!file) fail_msg("%s is missing", path);
    fseek(file, 0, SEEK_END);
    long size = ftell(file);
    rewind(file);
    char *text = malloc((size_t)size + 1);
    assert_non_null(text);
    assert_int_equal(fread(text, 1, (size_t)size, file), size);
    fclose(file);
    text[size] = 0;
    return (golden_file){text, text};
}

static inline void golden_close(golden_file *file) {
    free(file->text);
}

/* The next word of the present line, terminated in place, or NULL at its end. */
static inline char *golden_word(char **line) {
    while (**line == ' ') ++*line;
    if (!**line) return NULL;
    char *word = *line;
    while (**line && **line != ' ') ++*line;
    if (**line) *(*line)++ = 0;
    return word;
}

static inline int64_t golden_int(const char *word) {
    return word[0] == '-' ? strtoll(word, NULL, 10) : (int64_t)strtoull(word, NULL, 10);
}

static inline ash_dtype golden_dtype(const char *word) {
    for (int d = 0; d < ASH_DTYPE_COUNT; d++)
        if (!strcmp(word, ash_dtype_name((ash_dtype)d))) return (ash_dtype)d;
    fail_msg("no dtype %s", word);
    return ASH_F32;
}

static inline void golden_attr(golden_case *c, char *line) {
    char *name = golden_word(&line), *word;
    int key = 0;
    while (key < ASH_ATTR_COUNT && strcmp(name, ash_attr_infos[key].name) != 0) key++;
    assert_int_not_equal(key, ASH_ATTR_COUNT);
    size_t at = c->n_attrs++;
    assert_true(at < GOLDEN_ATTRS);
    for (; at > 0 && c->attrs[at - 1].key > (ash_attr_key)key; at--) {
        c->attrs[at] = c->attrs[at - 1];
        memcpy(c->lists[at], c->lists[at - 1], sizeof c->lists[at]);
    }
    ash_attr *attr = &c->attrs[at];
    *attr = (ash_attr){.key = (ash_attr_key)key};
    while ((word = golden_word(&line))) {
        assert_true(attr->count < GOLDEN_LIST);
        c->lists[at][attr->count++] =
            isalpha((unsigned char)word[0]) ? (int64_t)golden_dtype(word) : golden_int(word);
    }
    attr->i = attr->count ? c->lists[at][0] : 0;
    for (size_t i = 0; i < c->n_attrs; i++) c->attrs[i].list = c->lists[i];
}

static inline void golden_tensor(ash_wide *t, char *line) {
    ash_diag diag;
    ash_dtype dtype = golden_dtype(golden_word(&line));
    int64_t dims[ASH_MAX_RANK];
    unsigned rank = 0;
    for (char *word; (word = golden_word(&line)) && word[0] != ':';) {
        assert_true(rank < ASH_MAX_RANK);
        dims[rank++] = golden_int(word);
    }
    assert_ok(ash_wide_alloc(&ash_allocator__libc, dtype, rank, dims, t, &diag));
    for (int64_t i = 0; i < t->count; i++) {
        const char *word = golden_word(&line);
        assert_non_null(word);
        if (ash_dtype_is_float(dtype))
            t->f[i] = strtod(word, NULL);
        else
            t->i[i] = golden_int(word);
    }
    assert_null(golden_word(&line));
}

/* Reads the next case; false at the end of the file. */
static inline bool golden_next(golden_file *file, golden_case *c) {
    *c = (golden_case){.tolerance = -1, .op = ASH_OP_COUNT};
    while (*file->at) {
        char *line = file->at, *end = strchr(line, '\n');
        *end = 0;
        file->at = end + 1;
        const char *word = golden_word(&line);
        if (!strcmp(word, "end")) return true;
        if (!strcmp(word, "case")) {
            snprintf(c->name, sizeof c->name, "%s", line);
        } else if (!strcmp(word, "op")) {
            for (c->op = 0; c->op < ASH_OP_COUNT && strcmp(line, ash_op_name(c->op)) != 0;) c->op++;
            assert_int_not_equal(c->op, ASH_OP_COUNT);
        } else if (!strcmp(word, "attr")) {
            golden_attr(c, line);
        } else if (!strcmp(word, "in")) {
            assert_true(c->n_ins < GOLDEN_TENSORS);
            golden_tensor(&c->ins[c->n_ins++], line);
        } else if (!strcmp(word, "out")) {
            assert_true(c->n_outs < GOLDEN_TENSORS);
            golden_tensor(&c->outs[c->n_outs++], line);
        } else {
            assert_string_equal(word, "tol");
            c->tolerance = strtod(line, NULL);
        }
    }
    return false;
}

static inline void golden_free(golden_case *c) {
    for (size_t i = 0; i < c->n_ins; i++) ash_wide_free(&ash_allocator__libc, &c->ins[i]);
    for (size_t i = 0; i < c->n_outs; i++) ash_wide_free(&ash_allocator__libc, &c->outs[i]);
}

static inline bool golden_close_enough(double got, double want, double tolerance) {
    if (isnan(want) || isnan(got)) return isnan(want) && isnan(got);
    if (tolerance < 0) return got == want && (signbit(got) != 0) == (signbit(want) != 0);
    return got == want || fabs(got - want) <= tolerance * fabs(want);
}

/* Fails the test, naming the case, where a result is not what it should be. */
static inline void golden_check(const golden_case *c, size_t out, const ash_wide *got) {
    const ash_wide *want = &c->outs[out];
    if (got->dtype != want->dtype || got->rank != want->rank ||
        memcmp(got->dims, want->dims, want->rank * sizeof *want->dims) != 0)
        fail_msg("%s: output %zu has another type", c->name, out);
    for (int64_t i = 0; i < want->count; i++)
        if (ash_dtype_is_float(want->dtype)) {
            if (!golden_close_enough(got->f[i], want->f[i], c->tolerance))
                fail_msg("%s: output %zu, element %lld is %a, not %a", c->name, out, (long long)i,
                         got->f[i], want->f[i]);
        } else if (got->i[i] != want->i[i]) {
            fail_msg("%s: output %zu, element %lld is %lld, not %lld", c->name, out, (long long)i,
                     (long long)got->i[i], (long long)want->i[i]);
        }
}

#endif
