/* SPDX-License-Identifier: MIT */
/* Conversions between element types: Cast, CastLike, BitCast.
 *
 * The narrow types are bytes in a graph, and no operator of the core knows of them. Codes become numbers by
 * a table with a number for each code; numbers become codes by arithmetic on their bits: rounded to the
 * mantissa, halves to even, as IEEE 754 rounds, which is an addition and a shift. What is too small for a
 * mantissa with a leading one is scaled and rounded to an integer, which is the code. */
#include <math.h>
#include <strings.h>

#include "ops.h"

/* A scalar of an unsigned dtype. */
static ash_value unsigned_scalar(ash_graph *g, ash_dtype dtype, uint64_t number) {
    const ash_type type = {.dtype = dtype};
    const int64_t bits = (int64_t)number;
    return ash_build__ints(g, &type, &bits);
}

/* --- floating point codes ------------------------------------------------------------------------- */

/* A floating point dtype that holds the numbers of x, as its bits are looked at. */
typedef struct binary {
    ash_value x, bits, size; /* the number, its bits, those of its absolute value */
    ash_dtype dtype;         /* of the bits */
    int width, mantissa, bias;
} binary;

static binary binary_of(ash_graph *g, ash_value x) {
    const ash_type *type = ash_graph_type(g, x);
    ash_dtype from = type ? type->dtype : ASH_F32;
    bool wide = from == ASH_F64 || (!ash_dtype_is_float(from) && ash_dtype_size(from) >= 4);
    binary b = wide ? (binary){.dtype = ASH_U64, .width = 64, .mantissa = 52, .bias = 1023}
                    : (binary){.dtype = ASH_U32, .width = 32, .mantissa = 23, .bias = 127};
    b.x = ash_cast(g, x, wide ? ASH_F64 : ASH_F32);
    b.bits = ash_bitcast(g, b.x, b.dtype);
    b.size = ash_bitcast(g, ash_abs(g, b.x), b.dtype);
    return b;
}

static ash_value with(ash_graph *g, ash_op op, const binary *b, ash_value x, uint64_t number) {
    return ash_build__binary(g, op, x, unsigned_scalar(g, b->dtype, number));
}

static ash_value is_nan(ash_graph *g, const binary *b) {
    uint64_t infinity = (2 * (uint64_t)b->bias + 1) << b->mantissa;
    return ash_lt(g, unsigned_scalar(g, b->dtype, infinity), b->size);
}

/* Codes with a sign. */
static ash_value encode(ash_graph *g, const binary *b, const ash_narrow_float *f, bool saturate) {
    int drop = b->mantissa - f->mantissa;
    uint64_t smallest = (uint64_t)(b->bias - f->bias + 1) << b->mantissa; /* with a leading one */
    ash_value odd = with(g, ASH_OP_AND, b, with(g, ASH_OP_SHR, b, b->size, (uint64_t)drop), 1);
    ash_value code = with(g, ASH_OP_ADD, b, ash_add(g, b->size, odd), (UINT64_C(1) << (drop - 1)) - 1);
    code = with(g, ASH_OP_SHR, b, code, (uint64_t)drop);
    code = with(g, ASH_OP_SUB, b, code, (uint64_t)(b->bias - f->bias) << f->mantissa);
    ash_value small = ash_build__with(g, ASH_OP_MUL, ash_abs(g, b->x), ldexp(1, f->bias - 1 + f->mantissa));
    small = ash_cast(g, ash_round(g, small), b->dtype);
    code = ash_select(g, ash_lt(g, b->size, unsigned_scalar(g, b->dtype, smallest)), small, code);
    if (saturate)
        code = with(g, ASH_OP_MIN, b, code, f->largest);
    else
        code = ash_select(g, ash_lt(g, unsigned_scalar(g, b->dtype, f->largest), code),
                          unsigned_scalar(g, b->dtype, f->overflow), code);
    code = ash_select(g, is_nan(g, b), unsigned_scalar(g, b->dtype, f->nan), code);
    ash_value sign = with(g, ASH_OP_SHR, b, b->bits, (uint64_t)(b->width - 1));
    sign = with(g, ASH_OP_SHL, b, sign, (uint64_t)(f->bits - 1));
    if (f->unsigned_zero)
        sign = ash_select(g, with(g, ASH_OP_EQ, b, code, 0), unsigned_scalar(g, b->dtype, 0), sign);
    return ash_cast(g, ash_or(g, code, sign), ASH_U8);
}

/* Exponents. Below 2^-127 there is nothing: those numbers are it where conversion saturates, and NaN else;
 * of negative ones, which the specification leaves open, the absolute value counts. In f32 the smallest
 * two exponents share the field 0. */
static ash_value encode_exponent(ash_graph *g, ash_value x, bool saturate, ash_onnx_rounding rounding) {
    enum { LEAST = 0x400000 /* bits of 2^-127 */, MOST = 254, NOT_A_NUMBER = 255 };
    const binary b = binary_of(g, ash_cast(g, x, ASH_F32));
    const uint64_t from[] = {[ONNX_UP] = 1, [ONNX_DOWN] = 1 << 23, [ONNX_NEAREST] = 1 << 22};
    const uint64_t small_from[] = {
        [ONNX_UP] = LEAST + 1, [ONNX_DOWN] = 1 << 23, [ONNX_NEAREST] = LEAST + (1 << 21)};
    ash_value zero = unsigned_scalar(g, ASH_U32, 0), one = unsigned_scalar(g, ASH_U32, 1);
    ash_value exponent = with(g, ASH_OP_SHR, &b, b.size, 23);
    ash_value rest = with(g, ASH_OP_AND, &b, b.size, (1 << 23) - 1);
    ash_value least =
        ash_select(g, ash_eq(g, exponent, zero), unsigned_scalar(g, ASH_U32, small_from[rounding]),
                   unsigned_scalar(g, ASH_U32, from[rounding]));
    ash_value code = ash_add(g, exponent, ash_select(g, ash_le(g, least, rest), one, zero));
    if (saturate) {
        code = with(g, ASH_OP_MIN, &b, code, MOST);
    } else {
        ash_value none = unsigned_scalar(g, ASH_U32, NOT_A_NUMBER);
        code = ash_build__binary(g, ASH_OP_MIN, code, none);
        code = ash_select(g, ash_lt(g, b.size, unsigned_scalar(g, ASH_U32, LEAST)), none, code);
    }
    code = ash_select(g, is_nan(g, &b), unsigned_scalar(g, ASH_U32, NOT_A_NUMBER), code);
    return ash_cast(g, code, ASH_U8);
}

ash_value ash_onnx__to_codes(ash_import *im, ash_value x, ash_narrow to, bool saturate,
                             ash_onnx_rounding rounding) {
    const ash_narrow_float *f = ash_narrow__float(to);
    if (!f) return encode_exponent(im->graph, x, saturate, rounding);
    const binary b = binary_of(im->graph, x);
    return encode(im->graph, &b, f, saturate);
}

/* --- conversions ---------------------------------------------------------------------------------- */

ash_value ash_onnx__from_narrow(ash_import *im, ash_value x, ash_narrow from, ash_dtype dtype) {
    double numbers[256];
    if (from == ASH_NARROW_NONE || ash_onnx__is_narrow_int(from)) return x;
    const ash_type type = {.dtype = ASH_F32, .rank = 1, .dims = {1 << ash_narrow_bits(from)}};
    for (int i = 0; i < type.dims[0]; i++) numbers[i] = ash_narrow_value(from, (uint8_t)i);
    ash_value table = ash_build__floats(im->graph, &type, numbers);
    x = ash_gather(im->graph, table, ash_cast(im->graph, x, ASH_I32), 0);
    return ash_cast(im->graph, x, dtype);
}

/* The low bits of a number, whose fraction is cut off, as two's complement where the type has a sign. */
static ash_value to_int(ash_import *im, ash_value x, ash_narrow to) {
    ash_graph *g = im->graph;
    int range = 1 << ash_narrow_bits(to);
    bool is_signed = ash_narrow_dtype(to) == ASH_I8;
    if (ash_dtype_is_float(ash_import__type(im, x).dtype)) x = ash_cast(g, x, ASH_I32);
    x = ash_build__with(g, ASH_OP_AND, ash_cast(g, x, ash_narrow_dtype(to)), range - 1);
    if (!is_signed) return x;
    return ash_build__with(g, ASH_OP_SUB, ash_build__with(g, ASH_OP_XOR, x, range / 2), range / 2);
}

ash_value ash_onnx__convert(ash_import *im, ash_value x, ash_narrow from, ash_onnx_element to,
                            bool saturate, ash_onnx_rounding rounding) {
    if (from == to.narrow && from != ASH_NARROW_NONE) return x;
    x = ash_onnx__from_narrow(im, x, from, ash_dtype_is_float(to.dtype) ? to.dtype : ASH_F32);
    if (to.narrow == ASH_NARROW_NONE) return ash_cast(im->graph, x, to.dtype);
    if (ash_onnx__is_narrow_int(to.narrow)) return to_int(im, x, to.narrow);
    return ash_onnx__to_codes(im, x, to.narrow, saturate, rounding);
}

static void cast_to(ash_import *im, ash_onnx_element to) {
    bool saturate = ash_import__attr_int(im, "saturate", 1) != 0;
    ash_onnx_rounding rounding =
        (ash_onnx_rounding)ASH_IMPORT_CHOICE(im, "round_mode", "up", "down", "nearest");
    ash_value x = ash_import__in(im, 0);
    if (!ash_import__ok(im)) return;
    x = ash_onnx__convert(im, x, ash_import__in_narrow(im, 0), to, saturate, rounding);
    ash_import__out_narrow(im, 0, x, to.narrow);
}

/* The type of a name as "FLOAT", which files had before set 6. */
static int64_t type_named(ash_import *im) {
    const ash_onnx_attr *attr = ash_import__attr(im, "to", ONNX_ATTR_STRING);
    for (int64_t i = ONNX_UNDEFINED; attr && i <= ONNX_BFLOAT16; i++) {
        const char *name = ash_onnx__dtype_name(i);
        if (strlen(name) == attr->s.len && !strncasecmp(name, (const char *)attr->s.at, attr->s.len))
            return i;
    }
    return ONNX_UNDEFINED;
}

/* The element type that an attribute names. */
static bool wanted(ash_import *im, const char *what, ash_onnx_element *to) {
    int64_t want = im->opset < 6 ? type_named(im) : ash_import__attr_int(im, "to", ONNX_UNDEFINED);
    if (ash_onnx__element(want, to)) return true;
    ash_import__fail(im, ASH_ERROR_UNSUPPORTED, "%s to %s (%lld)%s", what, ash_onnx__dtype_name(want),
                     (long long)want,
                     want == ONNX_STRING ? ": make texts of the numbers outside of the model" : "");
    return false;
}

void ash_onnx__op_cast(ash_import *im) {
    ash_onnx_element to;
    if (wanted(im, "a cast", &to)) cast_to(im, to);
}

void ash_onnx__op_cast_like(ash_import *im) {
    cast_to(im, (ash_onnx_element){ash_import__in_type(im, 1).dtype, ash_import__in_narrow(im, 1)});
}

/* Bits that both have; those of narrow types, whose bytes do not lie side by side here, are their bytes. */
void ash_onnx__op_bit_cast(ash_import *im) {
    ash_onnx_element to;
    ash_value x = ash_import__in(im, 0);
    ash_narrow from = ash_import__in_narrow(im, 0);
    ash_dtype dtype = ash_import__type(im, x).dtype;
    if (!ash_import__ok(im) || !wanted(im, "a bit cast", &to)) return;
    unsigned bits = from ? ash_narrow_bits(from) : 8 * (unsigned)ash_dtype_size(dtype);
    unsigned want = to.narrow ? ash_narrow_bits(to.narrow) : 8 * (unsigned)ash_dtype_size(to.dtype);
    if (bits != want) {
        ash_import__fail(im, ASH_ERROR_TYPE, "%u bits as %u", bits, want);
        return;
    }
    if (dtype == ASH_BOOL) x = ash_cast(im->graph, x, ASH_U8);
    if (to.dtype == ASH_BOOL)
        x = ash_cast(im->graph, x, ASH_BOOL);
    else if (ash_onnx__is_narrow_int(to.narrow))
        x = to_int(im, x, to.narrow);
    else if (from && bits < 8)
        x = ash_build__with(im->graph, ASH_OP_AND, ash_bitcast(im->graph, x, ASH_U8), (1 << bits) - 1);
    else
        x = ash_bitcast(im->graph, x, to.dtype);
    ash_import__out_narrow(im, 0, x, to.narrow);
}

/* --- who takes bytes that stand for something ----------------------------------------------------- */

static ash_import_fn *const movers[] = {
    ash_onnx__op_center_crop_pad, ash_onnx__op_compress,
    ash_onnx__op_concat,          ash_onnx__op_depth_to_space,
    ash_onnx__op_expand,          ash_onnx__op_flatten,
    ash_onnx__op_gather,          ash_onnx__op_gather_elements,
    ash_onnx__op_gather_nd,       ash_onnx__op_pad,
    ash_onnx__op_reshape,         ash_onnx__op_reverse_sequence,
    ash_onnx__op_slice,           ash_onnx__op_space_to_depth,
    ash_onnx__op_split,           ash_onnx__op_squeeze,
    ash_onnx__op_tensor_scatter,  ash_onnx__op_tile,
    ash_onnx__op_transpose,       ash_onnx__op_trilu,
    ash_onnx__op_unsqueeze,       ash_onnx__op_where,
};

/* These look at what the bytes are. Those of control flow bind values under other names. */
static ash_import_fn *const readers[] = {
    ash_onnx__op_bit_cast,
    ash_onnx__op_cast,
    ash_onnx__op_cast_like,
    ash_onnx__op_constant,
    ash_onnx__op_constant_of_shape,
    ash_onnx__op_dequantize,
    ash_onnx__op_gather_block_quantized,
    ash_onnx__op_quantize,
    ash_onnx__op_sequence_construct,
    ash_onnx__op_sequence_insert,
    ash_onnx__op_shape,
    ash_onnx__op_size,
};

static bool among(ash_import_fn *const *list, size_t n, const ash_import_row *row) {
    for (size_t i = 0; i < n; i++)
        if (list[i] == row->lower) return true;
    return false;
}

bool ash_import__moves_narrow(const ash_import_row *row) {
    return among(movers, ASH_COUNT(movers), row);
}

bool ash_import__takes_narrow(const ash_import_row *row) {
    return ash_import__moves_narrow(row) || among(readers, ASH_COUNT(readers), row);
}

ash_narrow ash_import__moved_narrow(ash_import *im) {
    ash_narrow narrow = ASH_NARROW_NONE;
    if (!im->row || !ash_import__moves_narrow(im->row)) return narrow;
    for (size_t k = 0; k < im->node->n_ins && !narrow; k++) narrow = ash_import__in_narrow(im, k);
    return narrow;
}
