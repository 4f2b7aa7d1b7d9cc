/* SPDX-License-Identifier: MIT */
/* What the instructions of a loop nest compute, for the interpreter of nests (nest_interp.h): the lanes of
 * a result and whether they have a value, from those of the operands. Operators are the evaluator's; sums
 * in registers for tiles, reductions of lanes, and updates that several chunks make at once are computed
 * here. What is said to fit 32 bits has to. */
#ifndef ASH_NEST_COMPUTE_H
#define ASH_NEST_COMPUTE_H

#include "nest_touch.h"

TEST_NOT_SANITIZED

/* --- sums in tiles -------------------------------------------------------------------------------- */

/* A byte as what its buffer says it is. */
static inline int32_t interp_byte(const interp *in, uint16_t buf, unsigned char byte) {
    return ash_nest_dtype(in->nest, buf) == ASH_I8 ? (signed char)byte : byte;
}

static inline float interp_bf16(const unsigned char *at) {
    uint32_t bits = (uint32_t)at[0] << 16 | (uint32_t)at[1] << 24;
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

/* One line of a tile's sums by 16 columns of y. Sums of pairs are the bits of f32. */
static inline void interp_tile_line(interp *in, ash_ref ref, ash_nest_tiles t, int64_t x_at, int64_t y_at,
                                    interp_tile *tile, unsigned line) {
    enum { COLUMNS = 16 };
    interp_memory *of_x, *of_y;
    const bool pairs = ash_nest_dtype(in->nest, t.x) == ASH_BF16;
    const unsigned size = pairs ? 2 : 1, beside = 4 / size;
    const unsigned char *x = interp_touch(in, ref, t.x, x_at, t.terms, false, &of_x),
                        *y = interp_touch(in, ref, t.y, y_at, t.terms * COLUMNS, false, &of_y);
    for (unsigned column = 0; x && y && column < COLUMNS; column++)
        for (unsigned i = 0; i < t.terms; i++) {
            const unsigned char *one = x + i * size,
                                *other = y + ((i / beside * COLUMNS + column) * beside + i % beside) * size;
            uint32_t *sum = &tile->sums[line][column];
            float single;
            memcpy(&single, sum, sizeof single);
            if (pairs)
                single = fmaf(interp_bf16(one), interp_bf16(other), single),
                memcpy(sum, &single, sizeof *sum);
            else
                *sum += (uint32_t)(interp_byte(in, t.x, *one) * interp_byte(in, t.y, *other));
            tile->bad[line][column] |=
                of_x->undefined[one - of_x->data] || of_y->undefined[other - of_y->data];
        }
}

static inline bool interp_has_line(const interp *in, unsigned line) {
    return !in->tile_lines || line < in->tile_lines;
}

static inline void interp_tile_dot(interp *in, ash_ref ref, const ash_inst *inst, ash_nest_tiles t) {
    if (*interp_poison(in, inst->b) || *interp_poison(in, inst->c))
        interp_fail(in, ref, "a product of tiles without an address");
    if (in->error[0]) return;
    int64_t x = interp_at(in, inst->b)->i, y = interp_at(in, inst->c)->i, far = interp_at(in, inst->a)->i;
    for (unsigned l = 0; l < (unsigned)t.tall * t.height; l++)
        for (unsigned v = 0; v < t.wide && interp_has_line(in, l % t.height); v++)
            interp_tile_line(in, ref, t, x + (int64_t)l * t.apart, y + v * far,
                             &in->tiles[l / t.height * t.wide + v], l % t.height);
}

static inline void interp_tile_put(interp *in, ash_ref ref, const ash_inst *inst, ash_nest_tiles t) {
    enum { COLUMNS = 16 };
    interp_memory *of;
    if (*interp_poison(in, inst->a)) interp_fail(in, ref, "tiles without an address");
    if ((ash_nest_dtype(in->nest, t.x) == ASH_BF16) != (ash_nest_dtype(in->nest, inst->buf) == ASH_F32))
        interp_fail(in, ref, "sums of another dtype");
    if (in->error[0]) return;
    const unsigned lines = (unsigned)t.tall * t.height;
    unsigned char *to = interp_touch(in, ref, inst->buf, interp_at(in, inst->a)->i,
                                     (int64_t)t.wide * lines * COLUMNS, true, &of);
    for (unsigned i = 0; to && i < t.wide * lines; i++) {
        if (!interp_has_line(in, i % t.height)) continue;
        const interp_tile *tile = &in->tiles[i % lines / t.height * t.wide + i / lines];
        unsigned char *at = to + i * sizeof tile->sums[0];
        memcpy(at, tile->sums[i % t.height], sizeof tile->sums[0]);
        for (unsigned c = 0; c < COLUMNS; c++)
            memset(of->undefined + (at - of->data) + c * sizeof(uint32_t), tile->bad[i % t.height][c],
                   sizeof(uint32_t));
    }
}

/* Registers for tiles: nothing but zero comes first, and all are of one shape until the next one. */
static inline void interp_tiles(interp *in, ash_ref ref, const ash_inst *inst) {
    const ash_nest_tiles t = ash_nest_tiles_of(inst);
    const uint32_t like = inst->unroll & ~(uint32_t)UINT8_MAX;
    if (inst->op == ASH_NEST_TILE_LINES_ARE) {
        if (*interp_poison(in, inst->a) || interp_at(in, inst->a)->i < 1 || in->tiles_like)
            interp_fail(in, ref, "so many lines of tiles");
        in->tile_lines = interp_at(in, inst->a)->i;
        return;
    }
    if (inst->op == ASH_NEST_TILE_ZERO) {
        memset(in->tiles, 0, sizeof in->tiles);
        in->tiles_like = like;
    }
    if (in->tiles_like != like) interp_fail(in, ref, "tiles of another shape");
    if (in->error[0]) return;
    if (inst->op == ASH_NEST_TILE_DOT) interp_tile_dot(in, ref, inst, t);
    if (inst->op == ASH_NEST_TILE_PUT) interp_tile_put(in, ref, inst, t);
}

/* --- arithmetic ----------------------------------------------------------------------------------- */

/* Of `lanes` lanes from those of the present thread on. */
static inline void interp_compute(interp *in, ash_ref ref, const ash_inst *inst, unsigned lanes) {
    ash_op op = (ash_op)inst->i;
    ash_class class = ash_op_infos[op].class;
    unsigned count = ash_op_infos[op].ins_min;
    const ash_ref from[3] = {inst->a, inst->b, inst->c};
    bool *poison = interp_poison(in, ref);
    const bool *bad[3];
    for (unsigned i = 0; i < count; i++) {
        interp_view(&in->ins[i], in->nest->code.at[from[i]].dtype, interp_at(in, from[i]), lanes);
        bad[i] = interp_poison(in, from[i]);
    }
    interp_view(&in->out, inst->dtype, interp_at(in, ref), lanes);
    if (class == ASH_CLASS_SELECT)
        for (unsigned lane = 0; lane < lanes; lane++)
            poison[lane] = bad[0][lane] || bad[in->ins[0].i[lane] ? 1 : 2][lane];
    else
        for (unsigned lane = 0; lane < lanes; lane++)
            poison[lane] = bad[0][lane] || (count > 1 && bad[1][lane]);
    /* false AND x, true OR x: conditions are put together from parts that may have no value */
    if (inst->dtype == ASH_BOOL && (op == ASH_OP_AND || op == ASH_OP_OR))
        for (unsigned lane = 0; lane < lanes; lane++)
            for (unsigned i = 0; i < 2; i++)
                if (!bad[i][lane] && in->ins[i].i[lane] == (op == ASH_OP_OR)) poison[lane] = false;
    in->node.op = op;
    const ash_eval e = {.node = &in->node, .ins = in->ins, .outs = &in->out};
    switch (class) {
    case ASH_CLASS_UNARY: ash_eval__unary(&e); break;
    case ASH_CLASS_BINARY: ash_eval__binary(&e); break;
    case ASH_CLASS_COMPARE: ash_eval__compare(&e); break;
    case ASH_CLASS_SELECT: ash_eval__select(&e); break;
    default: ash_eval__cast(&e); break;
    }
    ash_wide__round(&in->out);
}

/* The operator of a reduction on lanes; `to` may be `a`. */
static inline void interp_binary(interp *in, const ash_inst *inst, interp_lane *a, interp_lane *b,
                                 interp_lane *to, int64_t count) {
    in->node.op = (ash_op)inst->i;
    interp_view(&in->ins[0], inst->dtype, a, count);
    interp_view(&in->ins[1], inst->dtype, b, count);
    interp_view(&in->out, inst->dtype, to, count);
    ash_eval__binary(&(ash_eval){.node = &in->node, .ins = in->ins, .outs = &in->out});
    ash_wide__round(&in->out);
}

/* Of several chunks, which otherwise leave the element alone. */
static inline void interp_atomic(interp *in, ash_ref ref, const ash_inst *inst) {
    enum { AT_ONCE = -2 };
    const interp_buffer *b = &in->buffers[inst->buf];
    const int64_t index = interp_at(in, inst->a)->i, size = (int64_t)ash_dtype_size(inst->dtype);
    interp_memory *m = b->memory;
    const int64_t begin = b->offset + index * size, end = begin + size;
    if (interp_poison(in, inst->a)[0] || interp_poison(in, inst->c)[0]) {
        interp_fail(in, ref, "an operand has no value");
        return;
    }
    if (index < 0 || end > m->bytes || !interp_declared(b, begin, end, true) ||
        !interp_declared(b, begin, end, false)) {
        interp_fail(in, ref, "element %lld of buffer %u", (long long)index, inst->buf);
        return;
    }
    for (int64_t k = begin >> m->shift; k < end >> m->shift; k++) {
        if ((m->writer[k] && m->writer[k] != AT_ONCE) || m->reader[k]) {
            interp_fail(in, ref, "byte %lld of buffer %u is used otherwise", (long long)(k << m->shift),
                        inst->buf);
            return;
        }
        m->writer[k] = AT_ONCE;
    }
    if (interp_any(m->undefined + begin, size)) {
        interp_fail(in, ref, "element %lld of buffer %u has no value", (long long)index, inst->buf);
        return;
    }
    interp_lane old, new;
    interp_view(&in->out, inst->dtype, &old, 1);
    ash_wide_load(&in->out, m->data + begin);
    interp_binary(in, inst, &old, interp_at(in, inst->c), &new, 1);
    interp_view(&in->out, inst->dtype, &new, 1);
    ash_wide_store(&in->out, m->data + begin);
}

/* Lane j with lane j + ceil(n/2), until one is left. */
static inline void interp_hreduce(interp *in, ash_ref ref, const ash_inst *inst) {
    unsigned n = in->nest->code.at[inst->a].lanes;
    interp_lane *held = in->spare;
    bool bad = false;
    for (unsigned i = 0; i < n; i++) {
        held[i] = interp_at(in, inst->a)[i];
        bad |= interp_poison(in, inst->a)[i];
    }
    while (n > 1) {
        unsigned half = (n + 1) / 2;
        interp_binary(in, inst, held, held + half, held, n / 2);
        n = half;
    }
    interp_at(in, ref)[0] = held[0];
    interp_poison(in, ref)[0] = bad;
}

/* Between which numbers the sums of some of an index's terms lie, as code generation may add them up. */
static inline void interp_sums(interp *in, ash_ref ref, unsigned lane, int64_t sums[2]) {
    const ash_inst *inst = &in->nest->code.at[ref];
    const int64_t value = interp_at(in, ref)[in->places[ref].lanes > 1 ? lane : 0].i;
    sums[0] = ASH_MIN(value, 0);
    sums[1] = ASH_MAX(value, 0);
    if (inst->op != ASH_NEST_COMPUTE || inst->dtype != ASH_I64) return;
    if (inst->i != ASH_OP_ADD && inst->i != ASH_OP_SUB && inst->i != ASH_OP_MUL) return;
    int64_t a[2], b[2];
    interp_sums(in, inst->a, lane, a);
    interp_sums(in, inst->b, lane, b);
    const int64_t x = a[0] + a[1], y = b[0] + b[1]; /* the values: what is positive and what is negative */
    for (int end = 0; end < 2; end++) {
        const int64_t of_a = y < 0 ? a[!end] * y : a[end] * y, of_b = x < 0 ? b[!end] * x : b[end] * x;
        sums[end] = inst->i == ASH_OP_ADD   ? a[end] + b[end]
                    : inst->i == ASH_OP_SUB ? a[end] - b[!end]
                    : end                   ? ASH_MAX(of_a, of_b)
                                            : ASH_MIN(of_a, of_b);
    }
}

/* What is said to be narrow is. */
static inline void interp_width(interp *in, ash_ref ref, const ash_inst *inst, unsigned lanes) {
    const interp_lane *v = interp_at(in, ref);
    const bool *bad = interp_poison(in, ref);
    for (unsigned lane = 0; lane < lanes && inst->width; lane++)
        if (!bad[lane] && v[lane].i != (int32_t)v[lane].i)
            interp_fail(in, ref, "%lld does not fit 32 bits", (long long)v[lane].i);
}

/* So are the sums of which an address is made. */
static inline void interp_index(interp *in, ash_ref ref, ash_ref index) {
    if (in->nest->code.at[index].width != ASH_NEST_NARROW_SUMS) return;
    for (unsigned lane = 0; lane < in->places[index].lanes; lane++) {
        int64_t sums[2];
        if (interp_poison(in, index)[lane]) continue;
        interp_sums(in, index, lane, sums);
        if (sums[0] < INT32_MIN || sums[1] > INT32_MAX)
            interp_fail(in, ref, "sums from %lld to %lld do not fit 32 bits", (long long)sums[0],
                        (long long)sums[1]);
    }
}

/* Of `lanes` lanes from those of the present thread on; what asks for the lane or the thread takes a
 * thread at a time. */
static inline void interp_value(interp *in, ash_ref ref, const ash_inst *inst, unsigned lanes) {
    interp_lane *to = interp_at(in, ref);
    bool *bad = interp_poison(in, ref);
    const interp_operand a = interp_of(in, inst->a), b = interp_of(in, inst->b), c = interp_of(in, inst->c);
    for (unsigned lane = 0; lane < lanes; lane++) {
        bad[lane] = false;
        switch ((ash_nest_op)inst->op) {
        case ASH_NEST_BEGIN_ARG: to[lane].i = in->begin; break;
        case ASH_NEST_END_ARG: to[lane].i = in->end; break;
        case ASH_NEST_WORKER: to[lane].i = in->worker; break;
        case ASH_NEST_THREAD: to[lane].i = in->thread; break;
        case ASH_NEST_VAR: to[lane].i = in->vars[inst->i]; break;
        case ASH_NEST_INT: to[lane].i = inst->i; break;
        case ASH_NEST_FLOAT: to[lane].f = inst->f; break;
        case ASH_NEST_LANES: to[lane].i = lane; break;
        case ASH_NEST_SPLAT:
        case ASH_NEST_EXTRACT: {
            unsigned from = inst->op == ASH_NEST_EXTRACT ? (unsigned)inst->i : 0;
            to[lane] = a.lane[from];
            bad[lane] = a.bad[from];
            break;
        }
        case ASH_NEST_SHUFFLE: {
            unsigned pick = (unsigned)in->nest->shuffles.at[inst->i + lane], n = in->places[inst->a].lanes;
            const interp_operand *from = pick < n ? &a : &b;
            to[lane] = from->lane[pick % n];
            bad[lane] = from->bad[pick % n];
            break;
        }
        case ASH_NEST_PERMUTE: {
            unsigned pick = (unsigned)b.lane[lane].i & (inst->lanes - 1u);
            to[lane] = a.lane[b.bad[lane] ? 0 : pick];
            bad[lane] = b.bad[lane] || a.bad[pick];
            break;
        }
        case ASH_NEST_CELL:
        case ASH_NEST_GET:
            to[lane] = a.lane[lane];
            bad[lane] = a.bad[lane];
            break;
        case ASH_NEST_IDIV:
        case ASH_NEST_IMOD: {
            int64_t x = a.lane[lane].i, y = b.lane[lane].i;
            bad[lane] = a.bad[lane] || b.bad[lane] || x < 0;
            if (y <= 0) {
                interp_fail(in, ref, "a division by %lld", (long long)y);
                return;
            }
            to[lane].i = bad[lane] ? INT64_MIN / 3 : inst->op == ASH_NEST_IDIV ? x / y : x % y;
            break;
        }
        case ASH_NEST_FMA:
            to[lane].f = fma(a.lane[lane].f, b.lane[lane].f, c.lane[lane].f);
            bad[lane] = a.bad[lane] || b.bad[lane] || c.bad[lane];
            break;
        case ASH_NEST_DOT4:
        case ASH_NEST_DOT2: {
            const bool bytes = inst->op == ASH_NEST_DOT4;
            const unsigned terms = bytes ? 4 : 2;
            bool a_shared = in->places[inst->a].lanes == terms,
                 b_shared = in->places[inst->b].lanes == terms;
            to[lane] = c.lane[lane];
            bad[lane] = c.bad[lane];
            for (unsigned i = 0; i < terms; i++) {
                unsigned p = a_shared ? i : terms * lane + i, q = b_shared ? i : terms * lane + i;
                if (bytes)
                    to[lane].i += a.lane[p].i * b.lane[q].i;
                else
                    to[lane].f += a.lane[p].f * b.lane[q].f;
                bad[lane] |= a.bad[p] || b.bad[q];
            }
            break;
        }
        case ASH_NEST_WHOLE: {
            double x = a.lane[lane].f;
            bad[lane] = a.bad[lane];
            if (!bad[lane] && (x != floor(x) || fabs(x) > 0x1p30))
                interp_fail(in, ref, "%g is not whole, or large", x);
            to[lane].i = bad[lane] ? 0 : (int64_t)x;
            break;
        }
        case ASH_NEST_TF32: {
            float x = (float)a.lane[lane].f;
            uint32_t bits;
            memcpy(&bits, &x, sizeof bits);
            bits = (bits + 0x1000) & ~UINT32_C(0x1fff);
            if (!isnan(x)) memcpy(&x, &bits, sizeof x);
            to[lane].f = x;
            bad[lane] = a.bad[lane];
            break;
        }
        default: interp_fail(in, ref, "operation %u is unknown", inst->op); return;
        }
    }
    if (inst->op == ASH_NEST_FMA || inst->op == ASH_NEST_FLOAT || inst->op == ASH_NEST_INT ||
        inst->op == ASH_NEST_DOT4 || inst->op == ASH_NEST_DOT2) {
        interp_view(&in->out, inst->dtype, to, lanes);
        ash_wide__round(&in->out);
    }
}

TEST_SANITIZED_AGAIN

#endif
