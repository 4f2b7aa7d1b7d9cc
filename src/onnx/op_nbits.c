/* SPDX-License-Identifier: MIT */
/* Weights of a few bits each, several to a byte, with a scale and a zero point for each block of them:
 * com.microsoft's MatMulNBits and GatherBlockQuantized; and codes of 4 bits with a table: MatMulBnb4. A
 * graph spells unpacking out; the pass few_bits makes products of it that read packed weights, where the
 * target has such kernels, and elsewhere the prologue unpacks them to floating point numbers. Rows are
 * gathered packed, and unpacked then. */
#include "ops.h"

static bool read_bits(ash_import *im, int64_t *bits, int64_t *block) {
    *bits = ash_import__attr_int(im, "bits", 4), *block = ash_import__attr_int(im, "block_size", 128);
    if (*bits != 2 && *bits != 4 && *bits != 8)
        ash_import__fail(im, ASH_ERROR_UNSUPPORTED, "weights of %lld bits", (long long)*bits);
    else if (*block < 16 || *block > 1 << 20 || (*block & (*block - 1)))
        ash_import__fail(im, ASH_ERROR_FORMAT, "blocks of %lld", (long long)*block);
    return ash_import__ok(im);
}

ash_value ash_onnx__unpack(ash_import *im, ash_value x, int64_t bits) {
    ash_type t = ash_import__type(im, x);
    const ash_dim per_byte = 8 / bits;
    if (t.dtype != ASH_U8 || t.rank == 0 || t.rank == ASH_MAX_RANK)
        return ash_import__fail(im, ASH_ERROR_UNSUPPORTED, "packed weights that are not bytes");
    if (bits == 8) return x;
    ash_value shift =
        ash_build__with(im->graph, ASH_OP_MUL, ash_iota(im->graph, ASH_U8, &per_byte, 1, 0), (double)bits);
    x = ash_shr(im->graph, ash_build__insert_axis(im->graph, x, t.rank), shift);
    x = ash_build__with(im->graph, ASH_OP_AND, x, (double)((1 << bits) - 1));
    t.dims[t.rank - 1] = ash_graph_dim_mul(im->graph, t.dims[t.rank - 1], per_byte);
    return ash_reshape(im->graph, x, t.dims, t.rank);
}

ash_value ash_onnx__from_bits(ash_import *im, ash_value x, ash_value scales, ash_value zero, int64_t bits,
                              int64_t middle) {
    ash_type t = ash_import__type(im, x);
    ash_dtype dtype = ash_import__type(im, scales).dtype;
    const ash_dim each[] = {t.dims[0], t.dims[1], 1};
    x = ash_cast(im->graph, x, dtype);
    if (zero != ASH_NO_VALUE) {
        if (ash_import__type(im, zero).dtype == ASH_U8) {
            const ash_dim bytes[] = {t.dims[0], (t.dims[1] * bits + 7) / 8};
            zero = ash_onnx__unpack(im, ash_reshape(im->graph, zero, bytes, 2), bits);
            zero = ash_slice_axis(im->graph, zero, 1, 0, t.dims[1]);
        }
        zero = ash_reshape(im->graph, ash_cast(im->graph, zero, dtype), each, 3);
        x = ash_sub(im->graph, x, zero);
    } else {
        x = ash_build__with(im->graph, ASH_OP_SUB, x, (double)middle);
    }
    return ash_mul(im->graph, x, ash_reshape(im->graph, scales, each, 3));
}

static ash_value zero_points(ash_import *im, size_t k) {
    return ash_import__has(im, k) ? ash_import__in(im, k) : ASH_NO_VALUE;
}

/* a [..., k] times the transpose of b [n, k], whose blocks lie along k. The attribute accuracy_level allows
 * less precision than this has. */
void ash_onnx__op_matmul_nbits(ash_import *im) {
    enum { A, B, SCALES, ZEROS, GROUPS, BIAS };
    int64_t bits, block, n = ash_import__attr_int(im, "N", 0), k = ash_import__attr_int(im, "K", 0);
    if (ash_import__has(im, GROUPS))
        ash_import__fail(im, ASH_ERROR_UNSUPPORTED, "columns in groups (g_idx)");
    if (ash_import__attr_int(im, "weight_prepacked", 0))
        ash_import__fail(im, ASH_ERROR_UNSUPPORTED,
                         "weights in the layout of one device (weight_prepacked)");
    if (!read_bits(im, &bits, &block)) return;
    if (n <= 0 || k <= 0 || n > INT32_MAX || k > INT32_MAX) {
        ash_import__fail(im, ASH_ERROR_FORMAT, "a weight of %lld by %lld", (long long)n, (long long)k);
        return;
    }
    ash_dim blocks = (k + block - 1) / block;
    const ash_dim bytes[] = {n, blocks, block * bits / 8}, flat[] = {n, blocks * block};
    ash_value b = ash_onnx__unpack(im, ash_reshape(im->graph, ash_import__in(im, B), bytes, 3), bits);
    b = ash_onnx__from_bits(im, b, ash_import__in(im, SCALES), zero_points(im, ZEROS), bits,
                            1 << (bits - 1));
    b = ash_slice_axis(im->graph, ash_reshape(im->graph, b, flat, 2), 1, 0, k);
    ash_value y = ash_matmul(im->graph, ash_import__in(im, A), ash_build__swap(im->graph, b, 0, 1));
    if (ash_import__has(im, BIAS)) y = ash_add(im->graph, y, ash_import__in(im, BIAS));
    ash_import__out(im, 0, y);
}

/* What the codes of bitsandbytes' types of 4 bits stand for, in blocks whose largest number is 1: of FP4 (a
 * sign, two bits of exponent, one of mantissa) and NF4 (quantiles of the normal distribution). */
static const float bnb4_values[2][16] = {
    {0.00000000F, 5.208333333e-03F, 0.66666667F, 1.00000000F, 0.33333333F, 0.50000000F, 0.16666667F,
     0.25000000F, -0.00000000F, -5.208333333e-03F, -0.66666667F, -1.00000000F, -0.33333333F, -0.50000000F,
     -0.16666667F, -0.25000000F},
    {-1.0F, -0.6961928009986877F, -0.5250730514526367F, -0.39491748809814453F, -0.28444138169288635F,
     -0.18477343022823334F, -0.09105003625154495F, 0.0F, 0.07958029955625534F, 0.16093020141124725F,
     0.24611230194568634F, 0.33791524171829224F, 0.44070982933044434F, 0.5626170039176941F,
     0.7229568362236023F, 1.0F}};

/* a [..., k] times the transpose of b [n, k], codes of 4 bits, the first of two in the upper half of a
 * byte; blocks of b's elements, row after row, have a factor each. */
void ash_onnx__op_matmul_bnb4(ash_import *im) {
    enum { A, B, FACTORS };
    const int64_t n = ash_import__attr_int(im, "N", 0), k = ash_import__attr_int(im, "K", 0),
                  block = ash_import__attr_int(im, "block_size", 0),
                  kind = ash_import__attr_int(im, "quant_type", 0);
    if (n <= 0 || k <= 0 || n > INT32_MAX || k > INT32_MAX || block <= 0 || block > INT32_MAX || kind < 0 ||
        kind >= (int64_t)ASH_COUNT(bnb4_values)) {
        ash_import__fail(im, ASH_ERROR_FORMAT, "a weight of %lld by %lld in blocks of %lld, of type %lld",
                         (long long)n, (long long)k, (long long)block, (long long)kind);
        return;
    }
    ash_graph *g = im->graph;
    const ash_dim count = n * k, bytes = (count + 1) / 2, blocks = (count + block - 1) / block, two = 2;
    const ash_dim halves[] = {bytes, 2}, codes = 2 * bytes, apart[] = {blocks, block}, matrix[] = {n, k};
    ash_dim low = 0, high = ASH_MAX(blocks * block - codes, 0), all = blocks * block;
    double table[16];
    for (size_t i = 0; i < ASH_COUNT(table); i++) table[i] = (double)bnb4_values[kind][i];
    ash_value shift = ash_build__from(g, ASH_OP_SUB, 4,
                                      ash_build__with(g, ASH_OP_MUL, ash_iota(g, ASH_U8, &two, 1, 0), 4));
    ash_value b = ash_build__insert_axis(g, ash_reshape(g, ash_import__in(im, B), &bytes, 1), 1);
    b = ash_build__with(g, ASH_OP_AND, ash_shr(g, ash_broadcast_to(g, b, halves, 2), shift), 15);
    b = ash_build__pad(g, ash_reshape(g, b, &codes, 1), 0, &low, &high, NULL);
    b = ash_reshape(g, ash_slice_axis(g, b, 0, 0, all), apart, 2);
    ash_value factors = ash_build__insert_axis(g, ash_import__in(im, FACTORS), 1);
    const ash_dtype dtype = ash_import__type(im, factors).dtype;
    ash_value values = ash_build__floats(g, &(ash_type){dtype, 1, {ASH_COUNT(table)}}, table);
    b = ash_gather(g, values, ash_cast(g, b, ASH_I64), 0);
    b = ash_slice_axis(g, ash_reshape(g, ash_mul(g, b, factors), &all, 1), 0, 0, count);
    b = ash_reshape(g, b, matrix, 2);
    if (ash_import__attr_int(im, "transB", 1)) b = ash_build__swap(g, b, 0, 1);
    ash_import__out(im, 0, ash_matmul(g, ash_import__in(im, A), b));
}

/* Rows of a matrix of packed bytes, or of int4 or uint4, with blocks along its columns: an embedding. */
void ash_onnx__op_gather_block_quantized(ash_import *im) {
    enum { DATA, INDICES, SCALES, ZEROS };
    int64_t bits, block;
    ash_type data = ash_import__in_type(im, DATA), scales = ash_import__in_type(im, SCALES);
    const ash_narrow narrow = ash_import__in_narrow(im, DATA);
    if (!read_bits(im, &bits, &block)) return;
    unsigned rank = data.rank,
             along = ash_import__axis(im, ash_import__attr_int(im, "quantize_axis", 1), rank);
    if (ash_import__axis(im, ash_import__attr_int(im, "gather_axis", 0), rank) != 0 || rank != 2 ||
        along != 1 || (narrow ? !ash_onnx__is_narrow_int(narrow) : data.dtype != ASH_U8) ||
        !ash_dim_is_const(data.dims[1]) || !ash_dim_is_const(scales.dims[1]) || scales.rank != 2 ||
        ash_import__in_type(im, INDICES).rank == ASH_MAX_RANK) {
        ash_import__fail(im, ASH_ERROR_UNSUPPORTED,
                         "other weights than rows of bytes with blocks along them");
        return;
    }
    ash_dim columns = data.dims[1] * (narrow ? 1 : 8 / bits), blocks = scales.dims[1];
    if (blocks != (columns + block - 1) / block) {
        ash_import__fail(im, ASH_ERROR_SHAPE, "scales that do not fit the blocks");
        return;
    }
    ash_type ids = ash_import__in_type(im, INDICES);
    ash_dim count = ash_build__product(im->graph, &ids, 0, ids.rank), low[2] = {0};
    ash_dim high[2] = {0, blocks * block - columns};
    const ash_dim apart[] = {count, blocks, block}, flat[] = {count, blocks * block};
    ash_value at = ash_reshape(im->graph, ash_import__in(im, INDICES), &count, 1);
    ash_value rows = ash_gather(im->graph, ash_import__in(im, DATA), at, 0);
    if (!narrow) rows = ash_onnx__unpack(im, rows, bits);
    rows = ash_build__pad(im->graph, rows, 0, low, high, NULL);
    ash_value scale = ash_gather(im->graph, ash_import__in(im, SCALES), at, 0),
              zero = zero_points(im, ZEROS);
    const ash_dim bytes[] = {data.dims[0], (blocks * bits + 7) / 8};
    if (zero != ASH_NO_VALUE && narrow)
        zero = ash_gather(im->graph, ash_cast(im->graph, zero, ash_import__type(im, scale).dtype), at, 0);
    else if (zero != ASH_NO_VALUE)
        zero = ash_gather(im->graph, ash_reshape(im->graph, zero, bytes, 2), at, 0);
    rows = ash_onnx__from_bits(im, ash_reshape(im->graph, rows, apart, 3), scale, zero, bits,
                               narrow ? 0 : 1 << (bits - 1));
    rows = ash_slice_axis(im->graph, ash_reshape(im->graph, rows, flat, 2), 1, 0, columns);
    ids.dims[ids.rank] = columns;
    ash_import__out(im, 0, ash_reshape(im->graph, rows, ids.dims, ids.rank + 1));
}
