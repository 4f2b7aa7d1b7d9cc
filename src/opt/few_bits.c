/* SPDX-License-Identifier: MIT */
/* few_bits: products with constant weights of 2, 4 or 8 bits keep them packed.
 *
 *     matmul(a, (cast(q) - zero) * scale)  ->  matmul_bits(a, words of q, scale, zero)
 *
 * where q are integers of few bits, scale and zero are the same for `span` neighbours along the inner dim
 * (or for all of them), and each lies behind movement: as files spell MatMulNBits, DequantizeLinear by
 * blocks or by axis, and what they transpose. The form is in ops.def; packing is a computation on
 * constants, which the prologue does. So the weights take as much memory as in the file, at the price of
 * being unpacked by every execution; without the pass, the prologue unpacks them once, as floating point
 * numbers. On GPUs that is so for products that are known to have few rows (kernel/gpu/strip.c); tiles read
 * an operand many times, as numbers.
 *
 * Not exact: a sum's terms are scaled together, behind the sum, and may be taken as whole numbers
 * (kernel/bits_digits.c).
 *
 * Rows that are gathered from such weights (an embedding) are gathered from what these are computed from:
 * few_bits_rows.c.
 *
 * Which integers have few bits is known from a mask, or from a constant's values. The dims of the product's
 * second operand, [k, n], are followed through the movement as tags:
 *
 *     TERM, COLUMN    along k, along n                               [k, n]
 *     BLOCK, TERM     k as blocks of `span`, behind a reshape        [k / span, span, n] */
#include "few_bits.h"

#include "base/gpu_tile.h"
#include "layout.h"

enum { DEPTH = 16 /* nodes that are followed */ };

typedef enum tag { ONE, TERM, COLUMN, BLOCK } tag; /* ONE: the dim is 1, or its elements are alike */

/* A value behind movement, and what runs along its dims. */
typedef struct operand {
    ash_value value; /* ASH_NO_VALUE: none */
    tag tags[ASH_MAX_RANK];
    int64_t span; /* of a BLOCK; 0: no dim is one */
} operand;

typedef struct weights {
    operand q, scale, zero;
    int64_t k, n, span;
    int64_t bits;
    bool is_signed; /* q is i8: everything is shifted by half the range */
    double middle;  /* what zero is where it has no value */
} weights;

static const ash_node *producer(const ash_graph *from, ash_value value) {
    const ash_value_info *info = ash_graph__value(from, value);
    return info->kind == ASH_VALUE_NODE ? &from->nodes.at[info->node] : NULL;
}

static ash_dtype dtype_of(const ash_graph *from, ash_value value) {
    return ash_graph__type(from, value)->dtype;
}

/* --- movement ------------------------------------------------------------------------------------- */

/* [x, y] behind [p, q, r], where p q = x or q r = y runs along k. */
static bool split(const ash_type *in, operand *o) {
    bool first = o->tags[0] == TERM;
    if (in->rank != 3 || o->span || (!first && o->tags[1] != TERM)) return false;
    o->tags[2] = first ? o->tags[1] : TERM;
    o->tags[1] = first ? TERM : BLOCK;
    if (first) o->tags[0] = BLOCK;
    o->span = in->dims[first ? 1 : 2];
    return o->span > 0;
}

/* One reshape: of the same dims but for those of 1, or one that splits the inner dim into blocks. */
static bool through_reshape(const ash_type *in, const ash_type *out, operand *o) {
    operand from = *o;
    unsigned at = 0, d = 0;
    for (; d < in->rank; d++) {
        o->tags[d] = ONE;
        if (in->dims[d] == 1) continue;
        while (at < out->rank && out->dims[at] == 1) at++;
        if (at == out->rank || out->dims[at] != in->dims[d]) break;
        o->tags[d] = from.tags[at++];
    }
    while (at < out->rank && out->dims[at] == 1) at++;
    if (d == in->rank && at == out->rank) return true;
    *o = from;
    if (out->rank != 2 || in->rank != 3) return false;
    bool first = o->tags[0] == TERM;
    bool fits = first ? in->dims[2] == out->dims[1] && in->dims[0] * in->dims[1] == out->dims[0]
                      : in->dims[0] == out->dims[0] && in->dims[1] * in->dims[2] == out->dims[1];
    return fits && split(in, o);
}

/* A slice may leave out what is behind the last terms. */
static bool through_slice(const ash_node *node, const ash_type *in, const ash_type *out, const operand *o) {
    for (unsigned d = 0; d < in->rank; d++) {
        if (ash_node_list(node, ASH_ATTR_STARTS)[d] || ash_node_list(node, ASH_ATTR_STEPS)[d] != 1)
            return false;
        if (in->dims[d] != out->dims[d] && (o->tags[d] != TERM || o->span)) return false;
    }
    return true;
}

/* Follows a value to what is no movement of it, or to what is the same along the dims that are left. */
static void follow(const ash_graph *from, operand *o) {
    const ash_node *node;
    for (unsigned depth = 0; depth < DEPTH && (node = producer(from, o->value)) && node->n_ins; depth++) {
        const ash_type *out = ash_graph__type(from, o->value), *in = ash_graph__type(from, node->ins[0]);
        operand next = *o;
        switch (node->op) {
        case ASH_OP_TRANSPOSE:
            for (unsigned d = 0; d < out->rank; d++)
                next.tags[ash_node_list(node, ASH_ATTR_PERM)[d]] = o->tags[d];
            break;
        case ASH_OP_BROADCAST:
            for (unsigned d = 0; d < in->rank; d++) {
                unsigned at = d + out->rank - in->rank;
                next.tags[d] = in->dims[d] == out->dims[at] ? o->tags[at] : ONE;
            }
            break;
        case ASH_OP_RESHAPE:
            if (!through_reshape(in, out, &next)) return;
            break;
        case ASH_OP_SLICE:
            if (!through_slice(node, in, out, o)) return;
            break;
        default: return;
        }
        *o = next;
        o->value = node->ins[0];
    }
}

/* Whether a scale or zero point, followed to its end, is the same along the terms of a span. */
static bool is_shared(const ash_graph *from, const operand *o) {
    const ash_type *type = ash_graph__type(from, o->value);
    for (unsigned d = 0; d < type->rank; d++)
        if (type->dims[d] != 1 && o->tags[d] == TERM) return false;
    return true;
}

static bool has_blocks(const ash_graph *from, const operand *o) {
    const ash_type *type = ash_graph__type(from, o->value);
    for (unsigned d = 0; d < type->rank; d++)
        if (type->dims[d] != 1 && o->tags[d] == BLOCK) return true;
    return false;
}

/* --- finding -------------------------------------------------------------------------------------- */

/* The number that a constant, or a broadcast of one, is everywhere. */
static bool number_of(const ash_graph *from, ash_value value, double *number) {
    const ash_node *node = producer(from, value);
    if (node && node->op == ASH_OP_BROADCAST) value = node->ins[0];
    const ash_value_info *info = ash_graph__value(from, value);
    if (info->kind != ASH_VALUE_CONSTANT || !info->blob) return false;
    size_t size = ash_dtype_size(info->type.dtype);
    const uint8_t *bytes = info->blob->data;
    if (info->blob->size < size || memcmp(bytes, bytes + size, info->blob->size - size) != 0) return false;
    union {
        uint8_t u8;
        int8_t i8;
        int32_t i32;
        float f32;
    } one;
    memcpy(&one, bytes, ASH_MIN(size, sizeof one));
    switch (info->type.dtype) {
    case ASH_U8: *number = one.u8; return true;
    case ASH_I8: *number = one.i8; return true;
    case ASH_I32: *number = one.i32; return true;
    case ASH_F32: *number = (double)one.f32; return true;
    default: return false;
    }
}

/* The bits that the bytes of a constant need: as they are, or, of i8, less the lowest number of as many
 * bits. Reading stops at the first that needs eight. */
static int64_t bits_of_bytes(const ash_value_info *info) {
    const uint8_t *bytes = info->blob->data;
    uint8_t half = info->type.dtype == ASH_I8 ? 8 : 0, as_four = 0, as_two = 0;
    for (size_t i = 0; i < info->blob->size; i++) {
        as_four |= (uint8_t)(bytes[i] + half), as_two |= (uint8_t)(bytes[i] + half / 4);
        if (as_four > 15) return 8;
    }
    return as_two > 3 ? 4 : 2;
}

/* The operand x of (x ^ half) - half, which gives numbers of few bits their sign; else ASH_NO_VALUE. */
static ash_value before_sign(const ash_graph *from, const ash_node *node, double *half) {
    double flipped;
    if (node->op != ASH_OP_SUB || !number_of(from, node->ins[1], half)) return ASH_NO_VALUE;
    const ash_node *cast = producer(from, node->ins[0]);
    const ash_node *flip = cast && cast->op == ASH_OP_BITCAST ? producer(from, cast->ins[0]) : NULL;
    if (!flip || flip->op != ASH_OP_XOR || !number_of(from, flip->ins[1], &flipped) || flipped != *half)
        return ASH_NO_VALUE;
    return flip->ins[0];
}

/* The bits of integers: what a mask leaves, with a sign or without, or a constant's values need. */
static int64_t bits_of(const ash_graph *from, ash_value q, unsigned depth) {
    const ash_node *node;
    double mask, half;
    for (; depth < DEPTH && (node = producer(from, q)); depth++) {
        if (node->op == ASH_OP_AND && number_of(from, node->ins[1], &mask) && (mask == 15 || mask == 3))
            return mask == 15 ? 4 : 2;
        ash_value masked = before_sign(from, node, &half);
        if (masked != ASH_NO_VALUE) {
            int64_t bits = bits_of(from, masked, depth + 1);
            return bits < 8 && half == (double)(1 << (bits - 1)) ? bits : 8;
        }
        if (node->op != ASH_OP_RESHAPE && node->op != ASH_OP_TRANSPOSE && node->op != ASH_OP_SLICE)
            return 8;
        q = node->ins[0];
    }
    const ash_value_info *info = ash_graph__value(from, q);
    return info->kind == ASH_VALUE_CONSTANT && info->blob ? bits_of_bytes(info) : 8;
}

static bool is_byte(const ash_graph *from, ash_value value) {
    return dtype_of(from, value) == ASH_U8 || dtype_of(from, value) == ASH_I8;
}

/* The operand of a cast, or the value itself. */
static ash_value before_cast(const ash_graph *from, ash_value value) {
    const ash_node *node = producer(from, value);
    return node && node->op == ASH_OP_CAST ? node->ins[0] : value;
}

/* Takes cast(q) - zero apart, where the cast may be one to i32 first: `value` has the tags of w->q. */
static bool find_integers(const ash_graph *from, ash_value value, weights *w) {
    ash_value x = value, zero = ASH_NO_VALUE;
    for (unsigned step = 0; step < 3 && !is_byte(from, x); step++) {
        const ash_node *node = producer(from, x);
        if (!node) return false;
        if (node->op == ASH_OP_SUB && zero == ASH_NO_VALUE)
            x = node->ins[0], zero = node->ins[1];
        else if (node->op == ASH_OP_CAST)
            x = node->ins[0];
        else
            return false;
    }
    if (!is_byte(from, x)) return false;
    w->q.value = x;
    w->is_signed = dtype_of(from, x) == ASH_I8;
    w->middle = 0;
    if (zero == ASH_NO_VALUE || number_of(from, zero, &w->middle)) return true;
    w->zero = w->q;
    w->zero.value = before_cast(from, zero);
    follow(from, &w->zero);
    w->zero.value = before_cast(from, w->zero.value);
    follow(from, &w->zero);
    if (!number_of(from, w->zero.value, &w->middle)) return is_shared(from, &w->zero);
    w->zero.value = ASH_NO_VALUE;
    return true;
}

/* Spans of scales and zero points are one, and whole words. */
static bool agree(const ash_graph *from, weights *w) {
    const operand *both[] = {&w->scale, &w->zero};
    int64_t terms = 32 / w->bits;
    for (unsigned i = 0; i < 2; i++) {
        if (both[i]->value == ASH_NO_VALUE || !has_blocks(from, both[i])) continue;
        if (w->span && both[i]->span != w->span) return false;
        w->span = both[i]->span;
    }
    if (!w->span) w->span = ash_ceil_div(w->k, terms) * terms;
    return w->span % terms == 0;
}

/* Takes the second operand of a product apart; false when it is no such weight. */
static bool find(const ash_graph *from, const ash_node *node, const bool *constant, weights *w) {
    const ash_type *type = ash_graph__type(from, node->ins[1]);
    ash_dtype dtype = type->dtype;
    if (node->op != ASH_OP_MATMUL || !constant[node->ins[1]] || ash_node_int(node, ASH_ATTR_B_BLOCK) ||
        type->rank != 2 || type->dims[0] == 0 || type->dims[1] == 0)
        return false;
    if (dtype != ASH_F32 && dtype != ASH_F16 && dtype != ASH_BF16) return false;
    *w = (weights){.k = type->dims[0], .n = type->dims[1]};
    w->scale.value = w->zero.value = ASH_NO_VALUE;
    operand b = {.value = node->ins[1], .tags = {TERM, COLUMN}};
    follow(from, &b);
    const ash_node *product = producer(from, b.value);
    if (!product || product->op != ASH_OP_MUL) return false;
    for (unsigned i = 0; i < 2; i++) {
        w->q = w->scale = b;
        w->scale.value = product->ins[1 - i];
        if (!find_integers(from, product->ins[i], w)) continue;
        w->bits = bits_of(from, w->q.value, 0);
        follow(from, &w->scale);
        return is_shared(from, &w->scale) && agree(from, w);
    }
    return false;
}

/* --- building ------------------------------------------------------------------------------------- */

/* The operand as [rows, n]: its dims in the order BLOCK, TERM, COLUMN, as often as it takes. Rows past the
 * last are cut. */
static ash_value matrix(ash_rewrite *rw, const operand *o, ash_value x, int64_t rows, int64_t n) {
    static const tag order[] = {BLOCK, TERM, COLUMN};
    if (x == ASH_NO_VALUE) return x;
    ash_type type = ash_rewrite__type(rw, x);
    int64_t perm[ASH_MAX_RANK], own = 1;
    unsigned at = 0;
    bool columns = false;
    for (unsigned i = 0; i < ASH_COUNT(order); i++)
        for (unsigned d = 0; d < type.rank; d++) {
            if (o->tags[d] != order[i] || type.dims[d] == 1) continue;
            perm[at++] = d;
            if (order[i] == COLUMN)
                columns = true;
            else
                own *= type.dims[d];
        }
    for (unsigned d = 0; d < type.rank; d++)
        if (type.dims[d] == 1) perm[at++] = d;
    const ash_dim dims[] = {own, columns ? n : 1}, all[] = {own == 1 ? rows : own, n};
    x = ash_reshape(rw->to, ash_transpose(rw->to, x, perm), dims, 2);
    return ash_slice_axis(rw->to, ash_broadcast_to(rw->to, x, all, 2), 0, 0, rows);
}

/* Bytes of i8 as u8 with the lowest number of `bits` bits as 0. */
static ash_value unsigned_bytes(ash_graph *to, ash_value x, int64_t bits) {
    const ash_type *type = ash_graph_type(to, x);
    if (!type || type->dtype != ASH_I8) return x;
    return ash_build__with(to, ASH_OP_ADD, ash_bitcast(to, x, ASH_U8), (double)(1 << (bits - 1)));
}

/* The bytes that a value unpacks, as the file has them: their numbers of `bits` bits along the last
 * axis, the lowest bits first,
 *
 *     reshape((bytes[..., 1] >> bits * iota) & mask)
 *
 * ASH_NO_VALUE: it is nothing of the kind. Then words are made of numbers one by one. */
static ash_value bytes_of(const ash_graph *from, ash_value value, int64_t bits) {
    static const ash_op down[] = {ASH_OP_RESHAPE, ASH_OP_AND, ASH_OP_SHR, ASH_OP_BROADCAST, ASH_OP_RESHAPE};
    static const ash_op shift[] = {ASH_OP_BROADCAST, ASH_OP_MUL, ASH_OP_IOTA};
    const ash_node *shr = NULL, *mul = NULL, *node;
    ash_value x = value, by;
    ash_type t = *ash_graph__type(from, value), one = {0};
    double number;
    for (unsigned i = 0; i < ASH_COUNT(down); i++, x = node->ins[0]) {
        if (!(node = producer(from, x)) || node->op != down[i]) return ASH_NO_VALUE;
        if (node->op == ASH_OP_SHR) shr = node;
        one = *ash_graph__type(from, x);
    }
    by = shr->ins[1];
    for (unsigned i = 0; i < ASH_COUNT(shift); i++, by = node->n_ins ? node->ins[0] : by) {
        if (!(node = producer(from, by)) || node->op != shift[i]) return ASH_NO_VALUE;
        if (node->op == ASH_OP_MUL) mul = node;
    }
    const ash_type *bytes = ash_graph__type(from, x), *steps = ash_graph__type(from, by);
    if (bytes->rank != t.rank || one.rank != t.rank + 1 || one.dims[t.rank] != 1 || steps->rank != 1 ||
        steps->dims[0] * bits != 8 || !number_of(from, mul->ins[1], &number) || number != (double)bits)
        return ASH_NO_VALUE;
    t.dims[t.rank - 1] = t.dims[t.rank - 1] * bits / 8;
    return ash_type_same_dims(bytes, &t) && !memcmp(one.dims, t.dims, t.rank * sizeof *t.dims)
               ? x
               : ASH_NO_VALUE;
}

/* Units of some bits as words, [ceil(k / T), n] of u32: of [rows, n] bytes, that may be i8. */
static ash_value words_of(ash_rewrite *rw, ash_value units, int64_t unit, bool whole, const weights *w) {
    ash_graph *to = rw->to;
    int64_t each = 32 / unit, count = ash_ceil_div(w->k, 32 / w->bits);
    if (units == ASH_NO_VALUE) return units;
    ash_dim rows = ash_rewrite__type(rw, units).dims[0];
    units = ash_layout__pad_zero(rw, units, 0, count * each - rows);
    ash_value words = ASH_NO_VALUE;
    for (int64_t t = 0; t < each; t++) {
        const ash_dim starts[] = {t, 0}, dims[] = {count, w->n};
        const int64_t steps[] = {each, 1};
        ash_value one = ash_slice(to, units, starts, steps, dims);
        one = ash_cast(to, whole ? one : unsigned_bytes(to, one, w->bits), ASH_U32);
        if (t) one = ash_build__with(to, ASH_OP_SHL, one, (double)(t * unit));
        words = t ? ash_build__binary(to, ASH_OP_OR, words, one) : one;
    }
    return words;
}

/* q as words. Bytes of a file are taken four at a time; numbers with a sign have its bit turned round. */
static ash_value words(ash_rewrite *rw, const weights *w) {
    const ash_graph *from = rw->from;
    const ash_node *node = producer(from, w->q.value);
    double half = 0;
    ash_value plain = node && w->is_signed ? before_sign(from, node, &half) : ASH_NO_VALUE;
    ash_value bytes = bytes_of(from, plain == ASH_NO_VALUE ? w->q.value : plain, w->bits);
    unsigned last = ash_graph__type(from, w->q.value)->rank - 1;
    if (bytes == ASH_NO_VALUE || w->q.tags[last] != TERM || (w->is_signed && plain == ASH_NO_VALUE))
        return words_of(rw, matrix(rw, &w->q, ash_rewrite__get(rw, w->q.value), w->k, w->n), w->bits, false,
                        w);
    ash_value x = matrix(rw, &w->q, ash_rewrite__get(rw, bytes), ash_ceil_div(w->k * w->bits, 8), w->n);
    x = words_of(rw, x, 8, true, w);
    uint32_t signs = UINT32_MAX / ((1u << w->bits) - 1) << (w->bits - 1);
    return w->is_signed ? ash_build__with(rw->to, ASH_OP_XOR, x, (double)signs) : x;
}

/* Zero points as [rows, n], bytes where they were integers; ASH_NO_VALUE where they are the middle. */
static ash_value zeros_of(ash_rewrite *rw, const weights *w, int64_t rows) {
    ash_graph *to = rw->to;
    double half = w->is_signed ? (double)(1 << (w->bits - 1)) : 0;
    const ash_dim dims[] = {rows, w->n};
    if (w->zero.value == ASH_NO_VALUE) {
        double zero = w->middle + half;
        if (zero == (double)(1 << (w->bits - 1))) return ASH_NO_VALUE;
        bool whole = zero >= 0 && zero <= 255 && zero == (double)(int)zero;
        return ash_build__fill(to, whole ? ASH_U8 : ASH_F32, zero, dims, 2);
    }
    ash_value zero = matrix(rw, &w->zero, ash_rewrite__get(rw, w->zero.value), rows, w->n);
    if (is_byte(rw->from, w->zero.value) && w->is_signed == (dtype_of(rw->from, w->zero.value) == ASH_I8))
        return unsigned_bytes(to, zero, w->bits);
    zero = ash_cast(to, zero, ASH_F32);
    return half != 0 ? ash_build__with(to, ASH_OP_ADD, zero, half) : zero;
}

/* A second operand, and its image in `to`. */
typedef struct operands {
    bool found;
    weights w;
    int64_t block; /* columns */
    ash_value words, scale, zeros;
} operands;

/* Whether a half float has the number: its digits, and its range, down to subnormal ones. */
static bool is_half(float x) {
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    int exponent = (int)(bits >> 23 & 255) - 127, lost = exponent < -14 ? 13 - 14 - exponent : 13;
    if ((bits & 0x7fffffff) == 0) return true;
    return exponent <= 15 && exponent >= -24 && (bits & ((1u << lost) - 1)) == 0;
}

/* Columns of a block: as many vectors as a kernel of few rows takes at a time, fewer where the last block
 * would be padded by more than an eighth of all columns. */
static int64_t block_of(const ash_target *target, int64_t lanes, int64_t n) {
    int64_t vectors = 1, have = ash_ceil_div(n, lanes);
    while (2 * vectors <= target->vector_registers / 8) vectors *= 2;
    while (vectors > 1 && 8 * (ash_ceil_div(have, vectors) * vectors - have) > have) vectors /= 2;
    return vectors * lanes;
}

/* Scales as half floats, where these have all of their numbers, as those have that were half floats before
 * they came into the file: each execution reads them. */
static ash_value shorten(ash_rewrite *rw, const operand *scale) {
    ash_value image = ash_rewrite__get(rw, scale->value);
    const ash_value_info *info = ash_graph__value(rw->from, scale->value);
    int64_t count;
    if (info->kind != ASH_VALUE_CONSTANT || info->type.dtype != ASH_F32 ||
        !ash_type_static_count(&info->type, &count))
        return image;
    for (int64_t i = 0; i < count; i++) {
        float number;
        memcpy(&number, (const char *)info->blob->data + (size_t)i * sizeof number, sizeof number);
        if (!is_half(number)) return image;
    }
    return ash_cast(rw->to, image, ASH_F16);
}

/* What becomes of the second operand of a product; the same for all products that read it. */
static void pack(ash_rewrite *rw, const ash_node *node, int64_t lanes, operands *o) {
    const weights *w = &o->w;
    o->block = block_of(rw->opt->target, lanes, w->n);
    int64_t rows = ash_ceil_div(w->k, w->span), blocks = ash_ceil_div(w->n, o->block);
    const ash_layout_columns c = {.n = w->n, .blocks = blocks, .missing = blocks * o->block - w->n};
    ash_rewrite__name(rw, node);
    ash_value scale = shorten(rw, &w->scale);
    o->words = ash_layout__pack_columns(rw, words(rw, w), &c, o->block);
    o->scale = ash_layout__pack_columns(rw, matrix(rw, &w->scale, scale, rows, w->n), &c, o->block);
    o->zeros = ash_layout__pack_columns(rw, zeros_of(rw, w, rows), &c, o->block);
}

static ash_value product(ash_rewrite *rw, const ash_node *node, const operands *o) {
    ash_graph *to = rw->to;
    ash_value a = ash_rewrite__get(rw, node->ins[0]);
    if (!ash_rewrite__ok(rw)) return ASH_NO_VALUE;
    ash_rewrite__name(rw, node);
    ash_dtype dtype = ash_rewrite__type(rw, a).dtype;
    const ash_value ins[] = {ash_cast(to, a, ASH_F32), o->words, o->scale, o->zeros};
    const ash_attr attrs[] = {ASH_ATTR_I(N, o->w.n), ASH_ATTR_I(B_BLOCK, o->block),
                              ASH_ATTR_I(BITS, o->w.bits), ASH_ATTR_I(SPAN, o->w.span)};
    size_t n = o->zeros == ASH_NO_VALUE ? 3 : 4;
    return ash_cast(to, ash_build(to, ASH_OP_MATMUL_BITS, ins, n, attrs, 4), dtype);
}

/* The pass: what is known of each value of `from` as a second operand, NULL: not looked at yet. */
typedef struct few_bits {
    ash_rewrite rw;
    int64_t lanes;
    bool *constant;
    operands **known;
} few_bits;

/* The image of a node's result where it has a form here, else ASH_NO_VALUE. */
static ash_value image_of(few_bits *p, const ash_node *node) {
    ash_rewrite *rw = &p->rw;
    if (node->op != ASH_OP_MATMUL) return ash_few_bits__rows(rw, node, p->constant);
    ash_dim rows = ash_graph__type(rw->from, node->out)->dims[0];
    bool gpu = rw->opt->target->kind == ASH_TARGET_GPU;
    if (gpu && (!ash_dim_is_const(rows) || rows > ASH_GPU_STRIP)) return ASH_NO_VALUE;
    operands **known = &p->known[node->ins[1]];
    if (!*known) {
        *known = ash_arena_alloc(&rw->scratch, 1, sizeof **known);
        if (!*known) return ash_graph__fail(rw->to, ASH_ERROR_OUT_OF_MEMORY, "out of memory"), ASH_NO_VALUE;
        (*known)->found = find(rw->from, node, p->constant, &(*known)->w);
        if ((*known)->found) pack(rw, node, p->lanes, *known);
    }
    return (*known)->found ? product(rw, node, *known) : ASH_NO_VALUE;
}

ash_status ash_opt__few_bits(const ash_opt *opt, const ash_graph *from, ash_graph **out, ash_diag *diag) {
    few_bits p = {.lanes = ASH_MIN_BLOCK};
    ash_rewrite *rw = &p.rw;
    while (2 * p.lanes <= ASH_MIN((int64_t)ash_target_lanes(opt->target, 4), ASH_MAX_BLOCK)) p.lanes *= 2;
    ASH_TRY(ash_rewrite__begin(rw, opt, from, diag));
    p.constant = ash_arena_alloc(&rw->scratch, from->values.len, sizeof *p.constant);
    p.known = ash_arena_alloc(&rw->scratch, from->values.len, sizeof *p.known);
    if (!p.constant || !p.known) return ash_rewrite__abandon(rw, ASH_NO_MEMORY(diag));
    memset(p.known, 0, from->values.len * sizeof *p.known);
    ash_rewrite__find_constants(rw, p.constant);
    for (size_t i = 0; i < from->nodes.len && ash_rewrite__ok(rw); i++) {
        const ash_node *node = &from->nodes.at[i];
        if (!ash_rewrite__is_live(rw, node)) continue;
        ash_value image = image_of(&p, node);
        if (image != ASH_NO_VALUE)
            ash_rewrite__bind(rw, node->out, image);
        else if (ash_rewrite__ok(rw))
            ash_rewrite__copy(rw, node);
    }
    return ash_rewrite__end(rw, out);
}
