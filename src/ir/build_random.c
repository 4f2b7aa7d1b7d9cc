/* SPDX-License-Identifier: MIT */
/* Random numbers from a key and a counter, of core operators: nothing is kept from one number to the
 * next, so that any element can be computed anywhere, and fusion makes it a part of the kernel that asks
 * for it.
 *
 * Words are held in u64 below 2^32, so that a product has all of its 64 bits. */
#include <math.h>

#include "build.h"

enum { ROUNDS = 10, WORD = 32 /* bits */ };

static ash_value with(ash_graph *graph, ash_op op, ash_value x, double number) {
    return ash_build__with(graph, op, x, number);
}

static ash_value low(ash_graph *graph, ash_value x) {
    return with(graph, ASH_OP_AND, x, 0xffffffff);
}

static ash_value high(ash_graph *graph, ash_value x) {
    return with(graph, ASH_OP_SHR, x, WORD);
}

/* The words of Philox in `counter`, in the place of the counter. */
static void philox(ash_graph *graph, ash_value key[2], ash_value counter[4]) {
    for (int round = 0; round < ROUNDS; round++) {
        ash_value a = with(graph, ASH_OP_MUL, counter[0], 0xD2511F53);
        ash_value b = with(graph, ASH_OP_MUL, counter[2], 0xCD9E8D57);
        counter[0] = ash_xor(graph, ash_xor(graph, high(graph, b), counter[1]), key[0]);
        counter[2] = ash_xor(graph, ash_xor(graph, high(graph, a), counter[3]), key[1]);
        counter[1] = low(graph, b);
        counter[3] = low(graph, a);
        key[0] = low(graph, with(graph, ASH_OP_ADD, key[0], 0x9E3779B9));
        key[1] = low(graph, with(graph, ASH_OP_ADD, key[1], 0xBB67AE85));
    }
}

ash_value ash_philox(ash_graph *graph, const ash_value *key, const ash_value *counter, ash_value *words) {
    ash_value k[2], w[4];
    ASH_BUILD_NEED(graph, key, counter, words);
    for (int i = 0; i < 2; i++) k[i] = ash_cast(graph, key[i], ASH_U64);
    for (int i = 0; i < 4; i++) w[i] = ash_cast(graph, counter[i], ASH_U64);
    philox(graph, k, w);
    for (int i = 0; i < 4; i++) words[i] = ash_cast(graph, w[i], ASH_U32);
    return words[0];
}

/* The first two words of each element of a tensor, u64. */
static bool draw(ash_graph *graph, ash_value seed, ash_value stream, const ash_dim *dims, unsigned rank,
                 ash_value words[2]) {
    const ash_value given[] = {seed, stream};
    ash_value halves[4];
    for (int i = 0; i < 2; i++) {
        ash_type type;
        if (!ash_build__take(graph, ASH_OP_XOR, given[i], &type)) return false;
        if (type.rank || (type.dtype != ASH_I64 && type.dtype != ASH_U64)) {
            ash_build__fail(graph, ASH_OP_XOR, ASH_ERROR_TYPE,
                            "a seed or stream that is no i64 or u64 scalar");
            return false;
        }
        ash_value whole = ash_cast(graph, given[i], ASH_U64);
        halves[2 * i] = low(graph, whole), halves[2 * i + 1] = high(graph, whole);
    }
    ash_value number = ash_scalar(graph, ASH_U64, 0);
    for (unsigned d = 0; d < rank; d++) {
        number = ash_mul(graph, number, ash_cast(graph, ash_build__dim(graph, dims[d]), ASH_U64));
        number = ash_add(graph, number, ash_iota(graph, ASH_U64, dims, rank, d));
    }
    ash_value counter[] = {low(graph, number), high(graph, number), halves[2], halves[3]};
    philox(graph, halves, counter);
    words[0] = counter[0], words[1] = counter[1];
    return counter[0] != ASH_NO_VALUE;
}

/* Binary digits of a number in [1/2, 1), at most those that two words have. */
static int digits_of(ash_dtype dtype) {
    switch (dtype) {
    case ASH_F64: return 53;
    case ASH_F32: return 24;
    case ASH_F16: return 11;
    case ASH_BF16: return 8;
    default: return 0;
    }
}

/* The upper digits of a word, or of two, as a fraction. */
static ash_value fraction(ash_graph *graph, ash_dtype dtype, ash_value word, ash_value further) {
    const int digits = digits_of(dtype);
    if (digits > WORD) {
        word = ash_or(graph, with(graph, ASH_OP_SHL, word, WORD), further);
        word = with(graph, ASH_OP_SHR, word, 2 * WORD - digits);
    } else {
        word = with(graph, ASH_OP_SHR, word, WORD - digits);
    }
    return with(graph, ASH_OP_MUL, ash_cast(graph, word, dtype), ldexp(1, -digits));
}

static bool has_digits(ash_graph *graph, ash_dtype dtype) {
    if (digits_of(dtype)) return true;
    ash_build__fail(graph, ASH_OP_CAST, ASH_ERROR_TYPE, "random numbers that are not floating point");
    return false;
}

ash_value ash_random_uniform(ash_graph *graph, ash_dtype dtype, ash_value seed, ash_value stream,
                             const ash_dim *dims, unsigned rank) {
    ash_value words[2];
    if (rank) ASH_BUILD_NEED(graph, dims);
    if (!graph || !has_digits(graph, dtype) || !draw(graph, seed, stream, dims, rank, words))
        return ASH_NO_VALUE;
    return fraction(graph, dtype, words[0], words[1]);
}

/* Of two uniform numbers one normal one (Box and Muller 1958), in f32 at least. The first is not 0: its
 * logarithm is finite. */
ash_value ash_random_normal(ash_graph *graph, ash_dtype dtype, ash_value seed, ash_value stream,
                            const ash_dim *dims, unsigned rank) {
    ash_value words[2];
    const ash_dtype wide = dtype == ASH_F64 ? ASH_F64 : ASH_F32;
    if (rank) ASH_BUILD_NEED(graph, dims);
    if (!graph || !has_digits(graph, dtype) || !draw(graph, seed, stream, dims, rank, words))
        return ASH_NO_VALUE;
    const ash_value zero = ash_scalar(graph, ASH_U64, 0);
    ash_value radius = ash_build__from(graph, ASH_OP_SUB, 1, fraction(graph, wide, words[0], zero));
    ash_value angle =
        with(graph, ASH_OP_MUL, fraction(graph, wide, words[1], zero), 6.28318530717958647693);
    radius = ash_sqrt(graph, with(graph, ASH_OP_MUL, ash_log(graph, radius), -2));
    return ash_cast(graph, ash_mul(graph, radius, ash_cos(graph, angle)), dtype);
}

ash_value ash_dropout(ash_graph *graph, ash_value x, double rate, ash_value seed, ash_value stream) {
    ash_type type;
    if (!graph || !ash_build__take(graph, ASH_OP_SELECT, x, &type)) return ASH_NO_VALUE;
    if (!(rate >= 0 && rate < 1))
        return ash_build__fail(graph, ASH_OP_SELECT, ASH_ERROR_INVALID_ARGUMENT,
                               "a rate of %g, not from 0 to less than 1", rate);
    if (rate == 0) return x;
    ash_value drawn = ash_random_uniform(graph, ASH_F32, seed, stream, type.dims, type.rank);
    ash_value kept = ash_build__with(graph, ASH_OP_MUL, x, 1 / (1 - rate));
    return ash_select(graph, with(graph, ASH_OP_LT, drawn, rate), ash_scalar_like(graph, x, 0), kept);
}
