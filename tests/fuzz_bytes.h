/* SPDX-License-Identifier: MIT */
/* Layers of quantised networks, as files spell them, for random graphs: passes make products of bytes and
 * tables of them. Scales are powers of two and sums are short, so that all of it is exact. */
#ifndef ASH_FUZZ_BYTES_H
#define ASH_FUZZ_BYTES_H

#include "fuzz_graph.h"
#include "ir/build.h"

static inline ash_dtype fuzz_byte(fuzz *f) {
    return chance(f, 60) ? ASH_U8 : ASH_I8;
}

static inline int64_t fuzz_zero(fuzz *f, ash_dtype dtype) {
    return pick(f, 256) - (dtype == ASH_U8 ? 0 : 128);
}

/* Less a zero point, in i32. */
static inline ash_value fuzz_centred(fuzz *f, ash_value x, unsigned percent) {
    ash_dtype dtype = type_of(f, x)->dtype;
    x = ash_cast(f->g, x, ASH_I32);
    if (!chance(f, percent)) return x;
    return ash_build__with(f->g, ASH_OP_SUB, x, (double)fuzz_zero(f, dtype));
}

static inline ash_value fuzz_quantised(fuzz *f, ash_value x, int shift) {
    ash_dtype dtype = fuzz_byte(f);
    x = ash_round(f->g, ash_build__with(f->g, chance(f, 50) ? ASH_OP_MUL : ASH_OP_DIV, x, ldexp(1, shift)));
    x = ash_build__with(f->g, ASH_OP_ADD, x, chance(f, 30) ? 0 : (double)fuzz_zero(f, dtype));
    return ash_cast(f->g, x, dtype);
}

/* A function of a byte with values around its range. */
static inline ash_value fuzz_function(fuzz *f, ash_value x) {
    ash_graph *g = f->g;
    x = ash_build__with(g, ASH_OP_MUL, ash_cast(g, fuzz_centred(f, x, 70), ASH_F32), 0.25);
    if (chance(f, 50)) x = ash_build__with(g, ASH_OP_MAX, x, (double)pick(f, 4) - 2);
    ash_value y = chance(f, 50) ? ash_mul(g, x, ash_abs(g, x)) : ash_neg(g, x);
    return fuzz_quantised(f, y, -(int)pick(f, 5));
}

static inline ash_value fuzz_byte_product(fuzz *f, bool *made) {
    ash_type a = {.dtype = fuzz_byte(f), .rank = 2 + (unsigned)chance(f, 30)}, b = {.dtype = fuzz_byte(f)};
    if (a.rank == 3) a.dims[0] = 1 + pick(f, 3);
    a.dims[a.rank - 2] = random_dim(f), a.dims[a.rank - 1] = 1 + pick(f, 100);
    b.rank = a.rank, b.dims[0] = a.dims[0];
    b.dims[b.rank - 2] = a.dims[a.rank - 1], b.dims[b.rank - 1] = 1 + pick(f, 80);
    uint32_t i = new_leaf(f, &a, 0), k = i == FUZZ_NONE ? i : new_leaf(f, &b, 0);
    *made = k != FUZZ_NONE;
    if (!*made) return ASH_NO_VALUE;
    f->values[i].used = f->values[k].used = true;
    ash_value x = fuzz_centred(f, f->values[i].id, 70), w = fuzz_centred(f, f->values[k].id, 30);
    return ash_matmul(f->g, x, w);
}

static inline ash_value fuzz_byte_window(fuzz *f, bool *made) {
    static const int64_t channels[] = {1, 3, 4, 8, 16, 20, 32};
    bool depthwise = chance(f, 30);
    int64_t size = 1 + pick(f, 3), c = channels[pick(f, (int64_t)ASH_COUNT(channels) - 2 * (size > 2))];
    ash_type x = {.dtype = fuzz_byte(f), .rank = 4}, w = {.dtype = fuzz_byte(f), .rank = 4};
    x.dims[0] = 1 + pick(f, 2), x.dims[1] = c, x.dims[2] = size + pick(f, 9),
    x.dims[3] = size + pick(f, 40);
    w.dims[0] = depthwise ? c : 1 + pick(f, 40), w.dims[1] = depthwise ? 1 : c;
    w.dims[2] = w.dims[3] = size;
    uint32_t i = new_leaf(f, &x, 0), k = i == FUZZ_NONE ? i : new_leaf(f, &w, 0);
    *made = k != FUZZ_NONE;
    if (!*made) return ASH_NO_VALUE;
    f->values[i].used = f->values[k].used = true;
    ash_window along[2];
    for (unsigned d = 0; d < 2; d++)
        along[d] = (ash_window){
            .stride = 1 + pick(f, 2), .dilation = 1, .before = pick(f, size), .after = pick(f, size)};
    ash_value y = fuzz_centred(f, f->values[i].id, 70), v = fuzz_centred(f, f->values[k].id, 20);
    return ash_conv(f->g, y, v, along, 2, depthwise ? c : 1);
}

static inline void fuzz_layer(fuzz *f) {
    bool made;
    ash_value y = chance(f, 50) ? fuzz_byte_product(f, &made) : fuzz_byte_window(f, &made);
    if (!made || ash_type_max_count(f->g->dims, type_of(f, y)) > most_elements(f)) return;
    if (chance(f, 30)) keep(f, y, 0, 0, 0, false);
    y = fuzz_quantised(f, ash_cast(f->g, y, ASH_F32), -(int)pick(f, 16));
    if (chance(f, 40)) keep(f, y, 0, 0, 0, false);
    if (chance(f, 70)) y = fuzz_function(f, y);
    keep(f, y, 0, 0, 0, false);
}

#endif
