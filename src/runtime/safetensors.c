/* SPDX-License-Identifier: MIT */
/* The header of a safetensors file. Its JSON has a fixed form, two objects deep, so that reading it is a
 * function for each kind of thing that may come next, and takes no stack. */
#include <stdlib.h>

#include "safetensors.h"

enum { LENGTH = 8 /* bytes before the header */, MOST_HEADER = 100000000 /* bytes, as the format says */ };

static const struct {
    const char *name;
    ash_dtype dtype;
} dtypes[] = {
    {"F32", ASH_F32}, {"F64", ASH_F64}, {"F16", ASH_F16},   {"BF16", ASH_BF16}, {"I8", ASH_I8},
    {"I16", ASH_I16}, {"I32", ASH_I32}, {"I64", ASH_I64},   {"U8", ASH_U8},     {"U16", ASH_U16},
    {"U32", ASH_U32}, {"U64", ASH_U64}, {"BOOL", ASH_BOOL},
};

const char *ash_safetensors__dtype(ash_dtype dtype) {
    for (size_t i = 0; i < ASH_COUNT(dtypes); i++)
        if (dtypes[i].dtype == dtype) return dtypes[i].name;
    return NULL;
}

typedef struct tensors_reader {
    const uint8_t *base, *at, *end; /* the file, the next byte, the end of the header */
    uint64_t size;                  /* bytes of the file */
    ash_arena *arena;
    ash_diag *diag;
    ASH_VEC(ash_safetensor) tensors;
    ASH_VEC(ash_safetext) texts;
} tensors_reader;

static ash_status malformed(const tensors_reader *r, const char *what) {
    return ash_fail_at(r->diag, ASH_ERROR_FORMAT, (uint64_t)(r->at - r->base), "%s in a safetensors file",
                       what);
}

/* --- words ------------------------------------------------------------------------------------------ */

static void skip_space(tensors_reader *r) {
    while (r->at < r->end && (*r->at == ' ' || *r->at == '\n' || *r->at == '\t' || *r->at == '\r')) r->at++;
}

static bool take(tensors_reader *r, char c) {
    skip_space(r);
    if (r->at == r->end || *r->at != (uint8_t)c) return false;
    r->at++;
    return true;
}

static ash_status expect(tensors_reader *r, char c) {
    const char what[] = {'n', 'o', ' ', '\'', c, '\'', 0};
    return take(r, c) ? ASH_OK : malformed(r, what);
}

/* Four hexadecimal digits; -1: something else. */
static int32_t hex4(tensors_reader *r) {
    int32_t value = 0;
    if (r->end - r->at < 4) return -1;
    for (int i = 0; i < 4; i++, r->at++) {
        const int c = *r->at, low = c | 0x20;
        const int digit = c >= '0' && c <= '9' ? c - '0' : low >= 'a' && low <= 'f' ? low - 'a' + 10 : -1;
        if (digit < 0) return -1;
        value = value * 16 + digit;
    }
    return value;
}

/* Appends a code point, of one escape or of two that are a pair of surrogates. */
static bool take_unicode(tensors_reader *r, char **to) {
    int32_t code = hex4(r);
    if (code >= 0xd800 && code < 0xdc00) {
        if (r->end - r->at < 6 || r->at[0] != '\\' || r->at[1] != 'u') return false;
        r->at += 2;
        int32_t low = hex4(r);
        if (low < 0xdc00 || low > 0xdfff) return false;
        code = 0x10000 + ((code - 0xd800) << 10) + (low - 0xdc00);
    } else if (code <= 0 || (code >= 0xdc00 && code < 0xe000)) {
        return false; /* a NUL would end the text */
    }
    const int more = code < 0x80 ? 0 : code < 0x800 ? 1 : code < 0x10000 ? 2 : 3;
    static const unsigned char first[] = {0, 0xc0, 0xe0, 0xf0};
    *(*to)++ = (char)(first[more] | (unsigned)(code >> (6 * more)));
    for (int i = more; i-- > 0;) *(*to)++ = (char)(0x80 | ((code >> (6 * i)) & 0x3f));
    return true;
}

/* A text in quotes; it is never longer than it stands in the file. *at is the offset of its first byte. */
static ash_status take_text(tensors_reader *r, const char **out, uint64_t *at) {
    static const char escapes[] = "\"\\/bfnrt", meant[] = "\"\\/\b\f\n\r\t";
    ASH_TRY(expect(r, '"'));
    *at = (uint64_t)(r->at - r->base);
    const uint8_t *close = r->at;
    while (close < r->end && *close != '"') close += *close == '\\' && r->end - close > 1 ? 2 : 1;
    if (close >= r->end) return malformed(r, "a text without an end");
    char *text = ash_arena_alloc(r->arena, (size_t)(close - r->at) + 1, 1), *to = text;
    if (!text) return ASH_NO_MEMORY(r->diag);
    while (r->at < close) {
        const uint8_t c = *r->at;
        if (c < 0x20) return malformed(r, "a control character");
        r->at++;
        if (c != '\\') {
            *to++ = (char)c;
            continue;
        }
        const uint8_t kind = *r->at++;
        const char *found = kind ? strchr(escapes, kind) : NULL;
        if (found)
            *to++ = meant[found - escapes];
        else if (kind != 'u' || !take_unicode(r, &to))
            return malformed(r, "an escape that is none");
    }
    r->at = close + 1;
    *out = text;
    return ASH_OK;
}

static ash_status take_number(tensors_reader *r, uint64_t *out) {
    skip_space(r);
    const uint8_t *first = r->at;
    for (*out = 0; r->at < r->end && *r->at >= '0' && *r->at <= '9'; r->at++) {
        if (*out > (INT64_MAX - 9) / 10) return malformed(r, "a number that is too large");
        *out = *out * 10 + (uint64_t)(*r->at - '0');
    }
    return r->at == first ? malformed(r, "no number") : ASH_OK;
}

/* At most `most` numbers in brackets. */
static ash_status take_numbers(tensors_reader *r, uint64_t *out, unsigned most, unsigned *count) {
    ASH_TRY(expect(r, '['));
    for (*count = 0; !take(r, ']');) {
        if (*count) ASH_TRY(expect(r, ','));
        if (*count == most) return malformed(r, "a list that is too long");
        ASH_TRY(take_number(r, &out[(*count)++]));
    }
    return ASH_OK;
}

/* --- objects ---------------------------------------------------------------------------------------- */

static ash_status take_metadata(tensors_reader *r) {
    ASH_TRY(expect(r, '{'));
    for (size_t first = r->texts.len; !take(r, '}');) {
        ash_safetext text;
        uint64_t at;
        if (r->texts.len > first) ASH_TRY(expect(r, ','));
        ASH_TRY(take_text(r, &text.key, &at));
        ASH_TRY(expect(r, ':'));
        ASH_TRY(take_text(r, &text.text, &text.at));
        if (!ash_vec_push(r->arena->allocator, &r->texts, text)) return ASH_NO_MEMORY(r->diag);
    }
    return ASH_OK;
}

enum { HAS_DTYPE = 1, HAS_SHAPE = 2, HAS_OFFSETS = 4, HAS_ALL = 7 };

/* One of the three that say what a tensor is; which. */
static ash_status take_field(tensors_reader *r, ash_safetensor *t, unsigned *has) {
    const char *key, *dtype;
    uint64_t at, numbers[ASH_MAX_RANK];
    unsigned count, which;
    ASH_TRY(take_text(r, &key, &at));
    ASH_TRY(expect(r, ':'));
    if (!strcmp(key, "dtype")) {
        which = HAS_DTYPE;
        ASH_TRY(take_text(r, &dtype, &at));
        size_t i = 0;
        while (i < ASH_COUNT(dtypes) && strcmp(dtypes[i].name, dtype) != 0) i++;
        if (i == ASH_COUNT(dtypes)) return malformed(r, "an unknown dtype");
        t->type.dtype = dtypes[i].dtype;
    } else if (!strcmp(key, "shape")) {
        which = HAS_SHAPE;
        ASH_TRY(take_numbers(r, numbers, ASH_MAX_RANK, &t->type.rank));
        for (unsigned d = 0; d < t->type.rank; d++) t->type.dims[d] = (ash_dim)numbers[d];
    } else if (!strcmp(key, "data_offsets")) {
        which = HAS_OFFSETS;
        ASH_TRY(take_numbers(r, numbers, 2, &count));
        if (count != 2) return malformed(r, "a tensor without its two offsets");
        t->begin = numbers[0], t->end = numbers[1];
    } else {
        return malformed(r, "an unknown field of a tensor");
    }
    if (*has & which) return malformed(r, "a field that is there twice");
    *has |= which;
    return ASH_OK;
}

/* Whether a tensor has so many bytes; products do not overflow, since they are never above `bytes`. */
static bool has_bytes(const ash_type *type, uint64_t bytes) {
    uint64_t product = ash_dtype_size(type->dtype);
    for (unsigned d = 0; d < type->rank; d++)
        if (type->dims[d] == 0) return bytes == 0;
    for (unsigned d = 0; d < type->rank; d++) {
        if ((uint64_t)type->dims[d] > bytes / product) return false;
        product *= (uint64_t)type->dims[d];
    }
    return product == bytes;
}

static ash_status take_tensor(tensors_reader *r, const char *name) {
    ash_safetensor t = {.name = name};
    unsigned has = 0;
    ASH_TRY(expect(r, '{'));
    while (!take(r, '}')) {
        if (has) ASH_TRY(expect(r, ','));
        ASH_TRY(take_field(r, &t, &has));
    }
    if (has != HAS_ALL) return malformed(r, "a tensor without dtype, shape or offsets");
    const uint64_t room = r->size - (uint64_t)(r->end - r->base);
    if (t.begin > t.end || t.end > room) return malformed(r, "a tensor past the end of the file");
    if (!has_bytes(&t.type, t.end - t.begin))
        return malformed(r, "a tensor whose bytes are not those of its shape");
    t.begin += (uint64_t)(r->end - r->base), t.end += (uint64_t)(r->end - r->base);
    return ash_vec_push(r->arena->allocator, &r->tensors, t) ? ASH_OK : ASH_NO_MEMORY(r->diag);
}

static ash_status take_header(tensors_reader *r) {
    bool any = false;
    ASH_TRY(expect(r, '{'));
    while (!take(r, '}')) {
        const char *name;
        uint64_t at;
        if (any) ASH_TRY(expect(r, ','));
        any = true;
        ASH_TRY(take_text(r, &name, &at));
        ASH_TRY(expect(r, ':'));
        ASH_TRY(strcmp(name, "__metadata__") ? take_tensor(r, name) : take_metadata(r));
    }
    skip_space(r);
    return r->at == r->end ? ASH_OK : malformed(r, "something behind the header's object");
}

/* --- the file --------------------------------------------------------------------------------------- */

static int by_place(const void *a, const void *b) {
    const ash_safetensor *x = a, *y = b;
    if (x->begin != y->begin) return x->begin < y->begin ? -1 : 1;
    return x->end < y->end ? -1 : x->end > y->end;
}

/* Whether the tensors lie one behind the other, from the header to the end of the file. */
static bool is_whole(tensors_reader *r) {
    uint64_t at = (uint64_t)(r->end - r->base);
    if (r->tensors.len) qsort(r->tensors.at, r->tensors.len, sizeof *r->tensors.at, by_place);
    for (size_t i = 0; i < r->tensors.len; i++) {
        if (r->tensors.at[i].begin != at) return false;
        at = r->tensors.at[i].end;
    }
    return at == r->size;
}

static ash_status read_all(tensors_reader *r, ash_safetensors *out) {
    uint64_t length = 0;
    ASH_FAIL_IF(r->size < LENGTH, r->diag, ASH_ERROR_FORMAT, "%llu bytes are no safetensors file",
                (unsigned long long)r->size);
    for (int i = LENGTH; i-- > 0;) length = length << 8 | r->base[i];
    if (length > MOST_HEADER || length > r->size - LENGTH)
        return malformed(r, "a header that is longer than the file, or than 100 MB,");
    r->at = r->base + LENGTH, r->end = r->at + length;
    ASH_TRY(take_header(r));
    if (!is_whole(r)) return malformed(r, "tensors that overlap or leave bytes over");
    *out = (ash_safetensors){
        .header = LENGTH + length,
        .n_tensors = r->tensors.len,
        .n_texts = r->texts.len,
        .tensors = ash_arena_copy(r->arena, r->tensors.at, r->tensors.len, sizeof *r->tensors.at),
        .texts = ash_arena_copy(r->arena, r->texts.at, r->texts.len, sizeof *r->texts.at)};
    return out->tensors && out->texts ? ASH_OK : ASH_NO_MEMORY(r->diag);
}

ash_status ash_safetensors__read(const void *data, uint64_t size, ash_arena *arena, ash_safetensors *out,
                                 ash_diag *diag) {
    tensors_reader r = {.base = data, .at = data, .end = data, .size = size, .arena = arena, .diag = diag};
    ash_status status = read_all(&r, out);
    ash_vec_free(arena->allocator, &r.tensors);
    ash_vec_free(arena->allocator, &r.texts);
    return status;
}
