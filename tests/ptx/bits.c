/* SPDX-License-Identifier: MIT */
/* Bits, comparisons and moves on rows. */
#include "forms.h"

/* clang-format off */
#define BY_BYTES(form, expr)                                                                               \
    switch (in->op[0].bytes) {                                                                             \
    case 1: form(uint8_t, expr)                                                                            \
    case 2: form(uint16_t, expr)                                                                           \
    case 4: form(uint32_t, expr)                                                                           \
    default: form(uint64_t, expr)                                                                          \
    }
/* clang-format on */

void ptx_run_and(ptx_block *b, const ptx_insn *in) {
    BY_BYTES(BINARY, x & y)
}
void ptx_run_or(ptx_block *b, const ptx_insn *in) {
    BY_BYTES(BINARY, x | y)
}
void ptx_run_xor(ptx_block *b, const ptx_insn *in) {
    BY_BYTES(BINARY, x ^ y)
}
void ptx_run_not(ptx_block *b, const ptx_insn *in) {
    if (in->type[0] == PRED) {
        do UNARY(uint8_t, !x) while (0);
        return;
    }
    BY_BYTES(UNARY, ~x)
}

/* Amounts past the width shift everything out. */
#define SHIFT(T, inside, outside)                                                                          \
    {                                                                                                      \
        T *d = ptx_row(b, in->op[0]);                                                                      \
        const T *p = ptx_row(b, in->op[1]);                                                                \
        const uint32_t *q = ptx_row(b, in->op[2]);                                                         \
        PTX_LANES(b, l, T x = p[l]; uint32_t n = q[l];                                                     \
                  d[l] = (T)(n < sizeof(T) * 8 ? (inside) : (outside)));                                   \
        break;                                                                                             \
    }
void ptx_run_shl(ptx_block *b, const ptx_insn *in) {
    switch (in->op[0].bytes) {
    case 2: SHIFT(uint16_t, x << n, 0)
    case 4: SHIFT(uint32_t, x << n, 0)
    default: SHIFT(uint64_t, x << n, 0)
    }
}
void ptx_run_shr(ptx_block *b, const ptx_insn *in) {
    bool is_signed = ptx_type_kind((ptx_type)in->type[0]) == 's';
    switch (in->op[0].bytes | is_signed) {
    case 2: SHIFT(uint16_t, x >> n, 0)
    case 3: SHIFT(int16_t, x >> n, x < 0 ? -1 : 0)
    case 4: SHIFT(uint32_t, x >> n, 0)
    case 5: SHIFT(int32_t, x >> n, x < 0 ? -1 : 0)
    case 8: SHIFT(uint64_t, x >> n, 0)
    default: SHIFT(int64_t, x >> n, x < 0 ? -1 : 0)
    }
}

/* The high or low half of b:a, shifted. */
void ptx_run_shf(ptx_block *b, const ptx_insn *in) {
    uint32_t *d = ptx_row(b, in->op[0]);
    const uint32_t *p = ptx_row(b, in->op[1]), *q = ptx_row(b, in->op[2]), *s = ptx_row(b, in->op[3]);
    bool left = in->word[G_WAY] == WAY_LEFT, wrap = in->word[G_CLAMP] == 2;
    PTX_LANES(b, l, {
        uint64_t both = (uint64_t)q[l] << 32 | p[l];
        uint32_t n = wrap ? s[l] & 31 : s[l] < 32 ? s[l] : 32;
        d[l] = left ? (uint32_t)(both << n >> 32) : (uint32_t)(both >> n);
    });
}

void ptx_run_bfe(ptx_block *b, const ptx_insn *in) {
    unsigned bytes = in->op[0].bytes, width = 8 * bytes;
    bool is_signed = ptx_type_kind((ptx_type)in->type[0]) == 's';
    void *d = ptx_row(b, in->op[0]);
    const void *p = ptx_row(b, in->op[1]);
    const uint32_t *q = ptx_row(b, in->op[2]), *s = ptx_row(b, in->op[3]);
    PTX_LANES(b, l, {
        unsigned from = q[l] & 0xff, len = s[l] & 0xff;
        uint64_t x = ptx_get(p, bytes, l);
        uint64_t mask = len >= 64 ? UINT64_MAX : (UINT64_C(1) << len) - 1;
        uint64_t field = from < width ? x >> from & mask : 0;
        unsigned last = from + len - 1 < width - 1 ? from + len - 1 : width - 1;
        if (is_signed && len && (x >> last & 1)) {
            unsigned have = from < width ? last - from + 1 : 0; /* the rest is the sign's */
            field |= have >= 64 ? 0 : UINT64_MAX << have;
        }
        ptx_put(d, bytes, l, field);
    });
}

void ptx_run_bfi(ptx_block *b, const ptx_insn *in) {
    unsigned bytes = in->op[0].bytes, width = 8 * bytes;
    void *d = ptx_row(b, in->op[0]);
    const void *p = ptx_row(b, in->op[1]), *into = ptx_row(b, in->op[2]);
    const uint32_t *q = ptx_row(b, in->op[3]), *s = ptx_row(b, in->op[4]);
    PTX_LANES(b, l, {
        unsigned at = q[l] & 0xff, len = s[l] & 0xff;
        uint64_t mask = len >= 64 ? UINT64_MAX : (UINT64_C(1) << len) - 1;
        uint64_t x = ptx_get(p, bytes, l), y = ptx_get(into, bytes, l);
        if (at < width) y = (y & ~(mask << at)) | ((x & mask) << at);
        ptx_put(d, bytes, l, y);
    });
}

/* Which byte of b:a goes to byte i. */
static unsigned permuted(int mode, uint32_t control, unsigned i) {
    unsigned c = control & 3;
    switch (mode) {
    case 1: return c + i;                 /* f4e */
    case 2: return (c - i) & 7;           /* b4e */
    case 3: return c;                     /* rc8 */
    case 4: return i > c ? i : c;         /* ecl */
    case 5: return i < c ? i : c;         /* ecr */
    case 6: return 2 * (c & 1) + (i & 1); /* rc16 */
    default: return control >> 4 * i & 15;
    }
}

void ptx_run_prmt(ptx_block *b, const ptx_insn *in) {
    uint32_t *d = ptx_row(b, in->op[0]);
    const uint32_t *p = ptx_row(b, in->op[1]), *q = ptx_row(b, in->op[2]), *s = ptx_row(b, in->op[3]);
    int mode = in->word[G_PERMUTE];
    PTX_LANES(b, l, {
        uint64_t both = (uint64_t)q[l] << 32 | p[l];
        uint32_t result = 0;
        for (unsigned i = 0; i < 4; i++) {
            unsigned from = permuted(mode, s[l], i);
            uint8_t byte = (uint8_t)(both >> 8 * (from & 7));
            if (from & 8) byte = byte & 0x80 ? 0xff : 0; /* its sign */
            result |= (uint32_t)byte << 8 * i;
        }
        d[l] = result;
    });
}

void ptx_run_lop3(ptx_block *b, const ptx_insn *in) {
    uint32_t *d = ptx_row(b, in->op[0]);
    const uint32_t *p = ptx_row(b, in->op[1]), *q = ptx_row(b, in->op[2]), *s = ptx_row(b, in->op[3]),
                   *table = ptx_row(b, in->op[4]);
    PTX_LANES(b, l, {
        uint32_t x = p[l], y = q[l], z = s[l], result = 0;
        for (unsigned i = 0; i < 8; i++)
            if (table[l] >> i & 1) result |= (i & 4 ? x : ~x) & (i & 2 ? y : ~y) & (i & 1 ? z : ~z);
        d[l] = result;
    });
}

#define COUNTS(name, of32, of64)                                                                           \
    void ptx_run_##name(ptx_block *b, const ptx_insn *in) {                                                \
        uint32_t *d = ptx_row(b, in->op[0]);                                                               \
        const void *p = ptx_row(b, in->op[1]);                                                             \
        unsigned bytes = in->op[1].bytes;                                                                  \
        PTX_LANES(b, l, uint64_t x = ptx_get(p, bytes, l);                                                 \
                  d[l] = (uint32_t)(bytes == 8 ? (of64) : (of32)));                                        \
    }
COUNTS(popc, __builtin_popcountll(x), __builtin_popcountll(x))
COUNTS(clz, x ? __builtin_clz((uint32_t)x) : 32, x ? __builtin_clzll(x) : 64)

/* The place of the highest bit that is not the sign; all ones: there is none. */
void ptx_run_bfind(ptx_block *b, const ptx_insn *in) {
    uint32_t *d = ptx_row(b, in->op[0]);
    const void *p = ptx_row(b, in->op[1]);
    unsigned bytes = in->op[1].bytes;
    bool is_signed = ptx_type_kind((ptx_type)in->type[0]) == 's';
    PTX_LANES(b, l, {
        uint64_t x = ptx_get(p, bytes, l), mask = bytes == 8 ? UINT64_MAX : UINT32_MAX;
        if (is_signed && x >> (8 * bytes - 1) & 1) x = ~x & mask;
        d[l] = x ? 63u - (uint32_t)__builtin_clzll(x) : UINT32_MAX;
    });
}

void ptx_run_brev(ptx_block *b, const ptx_insn *in) {
    unsigned bytes = in->op[0].bytes;
    void *d = ptx_row(b, in->op[0]);
    const void *p = ptx_row(b, in->op[1]);
    PTX_LANES(b, l, {
        uint64_t x = ptx_get(p, bytes, l), y = 0;
        for (unsigned i = 0; i < 8 * bytes; i++) y |= (x >> i & 1) << (8 * bytes - 1 - i);
        ptx_put(d, bytes, l, y);
    });
}

/* --- comparisons * -------------------------------------------------------------------------------- */

/* Where a number of one side is none, only NE, NAN and those with U hold. */
#define COMPARE(T)                                                                                         \
    {                                                                                                      \
        const T *p = ptx_row(b, in->op[first]), *q = ptx_row(b, in->op[first + 1]);                        \
        switch (in->word[G_COMPARE]) {                                                                     \
        case CMP_EQ: PTX_LANES(b, l, holds[l] = p[l] == q[l]); return;                                     \
        case CMP_NE: PTX_LANES(b, l, holds[l] = p[l] < q[l] || p[l] > q[l]); return;                       \
        case CMP_LT: PTX_LANES(b, l, holds[l] = p[l] < q[l]); return;                                      \
        case CMP_LE: PTX_LANES(b, l, holds[l] = p[l] <= q[l]); return;                                     \
        case CMP_GT: PTX_LANES(b, l, holds[l] = p[l] > q[l]); return;                                      \
        case CMP_GE: PTX_LANES(b, l, holds[l] = p[l] >= q[l]); return;                                     \
        case CMP_EQU: PTX_LANES(b, l, holds[l] = !(p[l] < q[l]) && !(p[l] > q[l])); return;                \
        case CMP_NEU: PTX_LANES(b, l, holds[l] = p[l] != q[l]); return;                                    \
        case CMP_LTU: PTX_LANES(b, l, holds[l] = !(p[l] >= q[l])); return;                                 \
        case CMP_LEU: PTX_LANES(b, l, holds[l] = !(p[l] > q[l])); return;                                  \
        case CMP_GTU: PTX_LANES(b, l, holds[l] = !(p[l] <= q[l])); return;                                 \
        case CMP_GEU: PTX_LANES(b, l, holds[l] = !(p[l] < q[l])); return;                                  \
        case CMP_NUM: PTX_LANES(b, l, holds[l] = p[l] == p[l] && q[l] == q[l]); return;                    \
        default: PTX_LANES(b, l, holds[l] = p[l] != p[l] || q[l] != q[l]); return;                         \
        }                                                                                                  \
    }

static bool half_holds(int compare, double x, double y) {
    bool ordered = !isnan(x) && !isnan(y);
    switch (compare) {
    case CMP_EQ: return x == y;
    case CMP_NE: return ordered && x != y;
    case CMP_LT: return x < y;
    case CMP_LE: return x <= y;
    case CMP_GT: return x > y;
    case CMP_GE: return x >= y;
    case CMP_EQU: return !ordered || x == y;
    case CMP_NEU: return x != y;
    case CMP_LTU: return !ordered || x < y;
    case CMP_LEU: return !ordered || x <= y;
    case CMP_GTU: return !ordered || x > y;
    case CMP_GEU: return !ordered || x >= y;
    case CMP_NUM: return ordered;
    default: return !ordered;
    }
}

/* Of the operands `first` and the one after it. */
static void compare(ptx_block *b, const ptx_insn *in, ptx_type type, unsigned first, uint8_t *holds) {
    switch (type) {
    case B16:
    case U16: COMPARE(uint16_t)
    case S16: COMPARE(int16_t)
    case B32:
    case U32: COMPARE(uint32_t)
    case S32: COMPARE(int32_t)
    case B64:
    case U64: COMPARE(uint64_t)
    case S64: COMPARE(int64_t)
    case F32: COMPARE(float)
    case F64: COMPARE(double)
    case F16:
    case BF16: {
        const uint16_t *p = ptx_row(b, in->op[first]), *q = ptx_row(b, in->op[first + 1]);
        PTX_LANES(b, l,
                  holds[l] =
                      half_holds(in->word[G_COMPARE], ptx_decode(type, p[l]), ptx_decode(type, q[l])));
        return;
    }
    default: ptx_found_at(b, PTX_TRAP, b->lane[0], "the stand-in does not compare this type");
    }
}

static bool combined(int logic, bool x, bool y) {
    return logic == LOGIC_AND ? x && y : logic == LOGIC_OR ? x || y : logic == LOGIC_XOR ? x != y : x;
}

void ptx_run_setp(ptx_block *b, const ptx_insn *in) {
    uint8_t holds[PTX_THREADS];
    bool two = in->count[0] == 2, with = in->n_arguments > 3;
    uint8_t *p = ptx_row(b, in->op[0]), *q = two ? ptx_row(b, in->op[1]) : NULL;
    if (!two && !with) {
        compare(b, in, (ptx_type)in->type[0], 1, p);
        return;
    }
    compare(b, in, (ptx_type)in->type[0], in->first[1], holds);
    ptx_operand third = with ? in->op[in->first[3]] : in->op[0];
    const uint8_t *r = ptx_row(b, third);
    PTX_LANES(b, l, {
        bool other = r[l] != third.negated;
        p[l] = combined(with ? in->word[G_LOGIC] : 0, holds[l], other);
        if (q) q[l] = combined(with ? in->word[G_LOGIC] : 0, !holds[l], other);
    });
}

void ptx_run_set(ptx_block *b, const ptx_insn *in) {
    uint8_t holds[PTX_THREADS];
    compare(b, in, (ptx_type)in->type[1], 1, holds);
    bool with = in->n_arguments > 3;
    ptx_operand third = with ? in->op[3] : in->op[0];
    const uint8_t *r = ptx_row(b, third);
    void *d = ptx_row(b, in->op[0]);
    unsigned bytes = in->op[0].bytes;
    ptx_type type = (ptx_type)in->type[0];
    uint64_t yes = ptx_type_kind(type) == 'f' ? ptx_encode(type, 1, ROUND_RN) : UINT64_MAX;
    PTX_LANES(b, l, {
        bool other = with && r[l] != third.negated;
        ptx_put(d, bytes, l, combined(with ? in->word[G_LOGIC] : 0, holds[l], other) ? yes : 0);
    });
}

void ptx_run_selp(ptx_block *b, const ptx_insn *in) {
    const uint8_t *c = ptx_row(b, in->op[3]);
    const bool negated = in->op[3].negated;
    BY_BYTES(BINARY, c[l] != negated ? x : y)
}

/* --- moves ---------------------------------------------------------------------------------------- */

void ptx_run_mov(ptx_block *b, const ptx_insn *in) {
    if (in->count[0] == 1 && in->count[1] == 1) {
        BY_BYTES(UNARY, x)
        return;
    }
    for (unsigned i = 0; i < b->n; i++) {
        unsigned l = b->lane[i], shift = 0;
        uint64_t whole = 0;
        for (unsigned j = 0; j < in->count[1]; j++) {
            ptx_operand o = in->op[in->first[1] + j];
            whole |= ptx_get(ptx_row(b, o), o.bytes, l) << shift;
            shift += 8u * o.bytes;
        }
        shift = 0;
        for (unsigned j = 0; j < in->count[0]; j++) {
            ptx_operand o = in->op[in->first[0] + j];
            ptx_put(ptx_row(b, o), o.bytes, l, whole >> shift);
            shift += 8u * o.bytes;
        }
    }
}

void ptx_run_nothing(ptx_block *b, const ptx_insn *in) {
    (void)b, (void)in;
}

void ptx_run_trap(ptx_block *b, const ptx_insn *in) {
    (void)in;
    if (b->n) ptx_found_at(b, PTX_TRAP, b->lane[0], "trap");
}
