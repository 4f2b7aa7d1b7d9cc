/* SPDX-License-Identifier: MIT */
/* Runs loop nests by reading them: slow, and strict about everything that a nest must not do. It knows no
 * machine, so a few thousand kernels run in the time that compiling some dozens takes, for any target.
 *
 * Checked on the way: every access lies in its buffer and in an interval that the step declares; no chunk
 * reads or writes a byte that another chunk of the step writes; what has no value (bytes that nobody wrote,
 * lanes that are off in a quotient of a negative number) never decides, never is an address, and never is
 * in a result.
 *
 * Where a block of threads takes a chunk, each instruction runs for all threads that come by before the
 * next one does: arithmetic in one call, as the lanes of all threads lie side by side. Between two barriers
 * no thread touches a byte that another one writes, in the block's memory or in a buffer; all come by at a
 * barrier; what is copied is touched by nobody before the thread that copies has waited, and by others not
 * before a barrier after that. */
#ifndef ASH_NEST_INTERP_H
#define ASH_NEST_INTERP_H

#include "nest_touch.h"

TEST_NOT_SANITIZED

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

/* --- blocks of threads ---------------------------------------------------------------------------- */

/* Threads that come by: all of the block, or some of them. */
typedef struct interp_threads {
    int32_t n, *at;
} interp_threads;

/* The tree of ash_nest.h: thread j with j ^ half, the lower one first. */
static inline void interp_reduce(interp *in, ash_ref ref, const ash_inst *inst, const interp_threads *all) {
    interp_lane *held = in->spare, *low = held + 1024, *high = low + 1024;
    bool bad[1024] = {false}; /* of each group */
    const int32_t group = (int32_t)inst->unroll;
    for (int32_t t = 0; t < in->threads; t++) {
        in->thread = t;
        held[t] = *interp_at(in, inst->a);
        bad[t / group] |= *interp_poison(in, inst->a);
    }
    for (int32_t half = group / 2; half; half /= 2) {
        for (int32_t t = 0; t < in->threads; t++) {
            low[t] = held[t & ~half];
            high[t] = held[t | half];
        }
        interp_binary(in, inst, low, high, held, in->threads);
    }
    for (int32_t i = 0; i < all->n; i++) {
        in->thread = all->at[i];
        *interp_at(in, ref) = held[in->thread];
        *interp_poison(in, ref) = bad[in->thread / group];
    }
}

/* Element `j` of the word that lane `lane` of a thread's operand of MMA has; e of them to a word. */
static inline double interp_element(const interp *in, ash_ref ref, int32_t thread, unsigned lane,
                                    unsigned j, ash_dtype dtype) {
    const struct interp_place *place = &in->places[ref];
    const interp_lane *v = &in->lanes[place->first + (size_t)thread * place->lanes + lane];
    uint32_t word = (uint32_t)v->i;
    double value;
    if (dtype == ASH_F32) { /* of which 13 bits are not looked at */
        float rounded = (float)v->f;
        memcpy(&word, &rounded, sizeof word);
        word &= ~UINT32_C(0x1fff);
        memcpy(&rounded, &word, sizeof word);
        return rounded;
    }
    if (dtype == ASH_I8) return (int8_t)(word >> 8 * j);
    if (dtype == ASH_U8) return (uint8_t)(word >> 8 * j);
    uint16_t bits = (uint16_t)(word >> 16 * j);
    ash_wide one = {.dtype = dtype, .count = 1, .f = &value};
    ash_wide_load(&one, &bits);
    return value;
}

/* Of each warp: its threads name the rows, and get what MMA wants. */
static inline void interp_tile_load(interp *in, ash_ref ref, const ash_inst *inst,
                                    const interp_threads *all) {
    enum { ROW = 16 }; /* bytes */
    uint16_t rows[32][8];
    bool bad[32];
    int64_t size = (int64_t)ash_dtype_size(ash_nest_dtype(in->nest, inst->buf)), in_row = ROW / size;
    for (int32_t first = 0; first < all->n && !in->error[0]; first += 32) {
        for (int32_t l = 0; l < 32 && !in->error[0]; l++) {
            interp_memory *m;
            in->thread = first + l;
            int64_t index = interp_at(in, inst->a)->i;
            bad[l] = *interp_poison(in, inst->a);
            if (bad[l] || index % in_row)
                interp_fail(in, ref, "a row of a matrix at element %lld", (long long)index);
            const unsigned char *bytes = interp_touch(in, ref, inst->buf, index, in_row, false, &m);
            if (!bytes) return;
            memcpy(rows[l], bytes, ROW);
            bad[l] |= interp_any(m->undefined + (bytes - m->data), ROW);
        }
        for (int32_t l = 0; l < 32 && !in->error[0]; l++)
            for (int32_t matrix = 0; matrix < 4; matrix++) {
                uint32_t word = 0;
                bool undefined = false;
                for (int32_t j = 0; j < 2; j++) {
                    int32_t row = inst->i ? 2 * (l % 4) + j : l / 4, k = inst->i ? l / 4 : 2 * (l % 4) + j;
                    word |= (uint32_t)rows[8 * matrix + row][k] << 16 * j;
                    undefined |= bad[8 * matrix + row];
                }
                in->thread = first + l;
                interp_at(in, ref)[matrix].i = (int32_t)word;
                interp_poison(in, ref)[matrix] = undefined;
            }
    }
}

/* Sums in double, rounded once; of integers exact. */
static inline void interp_mma(interp *in, ash_ref ref, const ash_inst *inst, const interp_threads *all) {
    ash_dtype dtype = (ash_dtype)(inst->i & 0xff), of_a = dtype, of_b = dtype;
    if (inst->i & ASH_NEST_MMA_UNSIGNED_A) of_a = ASH_U8;
    if (inst->i & ASH_NEST_MMA_UNSIGNED_B) of_b = ASH_U8;
    unsigned e = 4 / (unsigned)ash_dtype_size(dtype), terms = 8 * e;
    for (int32_t first = 0; first < all->n; first += 32) {
        double x[16][32], y[32][8];
        bool bad = false;
        for (int32_t l = 0; l < 32; l++) {
            unsigned g = (unsigned)l / 4, u = (unsigned)l % 4;
            in->thread = first + l;
            for (unsigned r = 0; r < 4; r++) bad |= interp_poison(in, inst->a)[r];
            for (unsigned r = 0; r < 2; r++) bad |= interp_poison(in, inst->b)[r];
            for (unsigned r = 0; r < 4; r++)
                for (unsigned j = 0; j < e; j++) {
                    x[g + 8 * (r % 2)][e * (u + 4 * (r / 2)) + j] =
                        interp_element(in, inst->a, first + l, r, j, of_a);
                    if (r < 2)
                        y[e * (u + 4 * r) + j][g] = interp_element(in, inst->b, first + l, r, j, of_b);
                }
        }
        for (int32_t l = 0; l < 32; l++)
            for (unsigned r = 0; r < 4; r++) {
                int32_t row = l / 4 + 8 * (int32_t)(r / 2), column = 2 * (l % 4) + (int32_t)(r % 2);
                in->thread = first + l;
                double sum =
                    dtype == ASH_I8 ? (double)interp_at(in, inst->c)[r].i : interp_at(in, inst->c)[r].f;
                for (unsigned k = 0; k < terms; k++) sum += x[row][k] * y[k][column];
                if (dtype == ASH_I8)
                    interp_at(in, ref)[r].i = (int32_t)(int64_t)sum;
                else
                    interp_at(in, ref)[r].f = (float)sum;
                interp_poison(in, ref)[r] = bad || interp_poison(in, inst->c)[r];
            }
    }
}

static inline void interp_copy_async(interp *in, ash_ref ref, const ash_inst *inst) {
    unsigned number = inst->buf & ~(unsigned)ASH_NEST_SHARED;
    int64_t size = (int64_t)ash_dtype_size(ash_nest_dtype(in->nest, inst->buf));
    int64_t to = interp_at(in, inst->a)->i, from = interp_at(in, inst->b)->i;
    bool reads = inst->c == ASH_NO_REF || interp_at(in, inst->c)->i;
    interp_memory *m;
    interp_copy copy = {.thread = in->thread,
                        .group = in->groups[in->thread],
                        .memory = (uint16_t)number,
                        .at = to * size,
                        .bytes = (uint8_t)(inst->unroll * size)};
    if (*interp_poison(in, inst->a) || (reads && *interp_poison(in, inst->b)) ||
        (inst->c != ASH_NO_REF && *interp_poison(in, inst->c)))
        interp_fail(in, ref, "a copy without an address or a condition");
    if (copy.at % copy.bytes) interp_fail(in, ref, "a copy to byte %lld", (long long)copy.at);
    if (in->error[0] || !interp_touch(in, ref, inst->buf, to, inst->unroll, true, &m)) return;
    if (reads) {
        const unsigned char *bytes =
            interp_touch(in, ref, (uint16_t)inst->i, from, inst->unroll, false, &m);
        if (!bytes) return;
        const int64_t at = bytes - m->data;
        if (at % copy.bytes) interp_fail(in, ref, "a copy from byte %lld", (long long)at);
        memcpy(copy.data, bytes, copy.bytes);
        memcpy(copy.undefined, m->undefined + at, copy.bytes);
    }
    for (unsigned i = 0; i < inst->unroll; i++) in->of_shared[number][to + i].pending = true;
    if (!ash_vec_push(&ash_allocator__libc, &in->copies, copy)) abort();
}

/* What the present thread has waited for arrives. */
static inline void interp_copy_wait(interp *in, ash_ref ref, int64_t left) {
    size_t kept = 0;
    for (size_t i = 0; i < in->copies.len; i++) {
        const interp_copy *copy = &in->copies.at[i];
        if (copy->thread != in->thread || copy->group >= in->groups[in->thread] - left) {
            in->copies.at[kept++] = *copy;
            continue;
        }
        const interp_memory *m = &in->shared[copy->memory];
        memcpy(m->data + copy->at, copy->data, copy->bytes);
        memcpy(m->undefined + copy->at, copy->undefined, copy->bytes);
        for (int64_t k = copy->at >> m->shift; k < (copy->at + copy->bytes) >> m->shift; k++) {
            in->of_shared[copy->memory][k].pending = false;
            interp_race(in, ref, &in->of_shared[copy->memory][k], true, k << m->shift);
        }
    }
    in->copies.len = kept;
}

/* --- structure ------------------------------------------------------------------------------------ */

static inline void interp_block(interp *in, ash_ref from, ash_ref to, const interp_threads *who);

static inline void interp_loop(interp *in, ash_ref ref, const ash_inst *inst, const interp_threads *who) {
    bool chunks = in->nest->code.at[inst->a].op == ASH_NEST_BEGIN_ARG;
    int64_t *v = calloc((size_t)in->threads, sizeof *v);
    int32_t *at = calloc((size_t)who->n, sizeof *at);
    interp_threads some = {who->n, at};
    memcpy(at, who->at, (size_t)who->n * sizeof *at);
    for (int32_t i = 0; i < who->n; i++) {
        int32_t t = in->thread = who->at[i];
        if (*interp_poison(in, inst->a) || *interp_poison(in, inst->b))
            interp_fail(in, ref, "a bound of the loop has no value");
        v[t] = interp_at(in, inst->a)->i;
    }
    while (!in->error[0]) {
        int32_t n = 0;
        for (int32_t i = 0; i < some.n; i++) {
            int32_t t = in->thread = at[i];
            if (v[t] >= interp_at(in, inst->b)->i) continue;
            interp_at(in, ref)->i = v[t];
            *interp_poison(in, ref) = false;
            if (inst->width && v[t] + inst->i * ASH_MAX(inst->unroll, 1u) > INT32_MAX)
                interp_fail(in, ref, "32 bits do not count past %lld", (long long)v[t]);
            interp_width(in, ref, inst, 1);
            if (chunks) in->chunk = (int32_t)(v[t] + 1);
            v[t] += inst->i;
            at[n++] = t;
        }
        some.n = n;
        if (!n) break;
        interp_block(in, ref + 1, in->match[ref], &some);
    }
    free(v);
    free(at);
}

static inline ash_ref interp_if(interp *in, ash_ref ref, const ash_inst *inst, const interp_threads *who) {
    ash_ref close = in->match[ref], other = close;
    if (in->nest->code.at[close].op == ASH_NEST_ELSE) close = in->match[close];
    int32_t *sides = calloc(2 * (size_t)who->n, sizeof *sides);
    interp_threads some[2] = {{0, sides}, {0, sides + who->n}};
    for (int32_t i = 0; i < who->n; i++) {
        in->thread = who->at[i];
        if (*interp_poison(in, inst->a)) interp_fail(in, ref, "the condition has no value");
        interp_threads *side = &some[!interp_at(in, inst->a)->i];
        side->at[side->n++] = in->thread;
    }
    if (some[0].n) interp_block(in, ref + 1, other, &some[0]);
    if (some[1].n) interp_block(in, other + 1, close, &some[1]);
    free(sides);
    return close;
}

static inline void interp_set(interp *in, const ash_inst *inst, unsigned lanes) {
    interp_lane *to = interp_at(in, inst->a), *from = interp_at(in, inst->b);
    bool *poison = interp_poison(in, inst->a), *bad = interp_poison(in, inst->b);
    for (unsigned lane = 0; lane < lanes; lane++) {
        to[lane] = from[lane];
        poison[lane] = bad[lane];
    }
}

/* One instruction without blocks, by the present thread. */
static inline void interp_alone(interp *in, ash_ref ref, const ash_inst *inst) {
    switch (inst->op) {
    case ASH_NEST_SET: interp_set(in, inst, in->places[inst->b].lanes); break;
    case ASH_NEST_LOAD:
    case ASH_NEST_STORE:
    case ASH_NEST_GATHER:
    case ASH_NEST_SCATTER: interp_access(in, ref, inst); break;
    case ASH_NEST_ATOMIC: interp_atomic(in, ref, inst); break;
    case ASH_NEST_LOOKUP: interp_lookup(in, ref, inst); break;
    case ASH_NEST_TILE_LINES_ARE:
    case ASH_NEST_TILE_ZERO:
    case ASH_NEST_TILE_DOT:
    case ASH_NEST_TILE_PUT: interp_tiles(in, ref, inst); break;
    case ASH_NEST_PREFETCH:
    case ASH_NEST_POLL: break; /* nobody asks */
    case ASH_NEST_COMPUTE: interp_compute(in, ref, inst, inst->lanes); break;
    case ASH_NEST_HREDUCE: interp_hreduce(in, ref, inst); break;
    case ASH_NEST_COPY_ASYNC: interp_copy_async(in, ref, inst); break;
    case ASH_NEST_COPY_COMMIT: in->groups[in->thread]++; break;
    case ASH_NEST_COPY_WAIT: interp_copy_wait(in, ref, inst->i); break;
    default: interp_value(in, ref, inst, inst->lanes);
    }
}

static inline void interp_one(interp *in, ash_ref ref, const ash_inst *inst) {
    switch (inst->op) {
    case ASH_NEST_LOAD:
    case ASH_NEST_STORE:
    case ASH_NEST_GATHER:
    case ASH_NEST_SCATTER:
    case ASH_NEST_ATOMIC: interp_index(in, ref, inst->a); break;
    case ASH_NEST_COPY_ASYNC:
        interp_index(in, ref, inst->a);
        interp_index(in, ref, inst->b);
        break;
    default: break;
    }
    interp_alone(in, ref, inst);
    if (!in->error[0]) interp_width(in, ref, inst, inst->lanes);
}

/* By all threads of the block in one call, where that makes no difference; false: it may. */
static inline bool interp_all(interp *in, ash_ref ref, const ash_inst *inst) {
    const unsigned lanes = inst->lanes * (unsigned)in->threads;
    in->thread = 0;
    switch (inst->op) {
    case ASH_NEST_COMPUTE:
        interp_compute(in, ref, inst, lanes);
        interp_width(in, ref, inst, lanes);
        return true;
    case ASH_NEST_SET: interp_set(in, inst, in->places[inst->b].lanes * (unsigned)in->threads); return true;
    case ASH_NEST_BEGIN_ARG:
    case ASH_NEST_END_ARG:
    case ASH_NEST_VAR:
    case ASH_NEST_INT:
    case ASH_NEST_FLOAT:
    case ASH_NEST_CELL:
    case ASH_NEST_GET:
    case ASH_NEST_FMA:
    case ASH_NEST_WHOLE:
    case ASH_NEST_TF32:
    case ASH_NEST_IDIV:
    case ASH_NEST_IMOD:
        interp_value(in, ref, inst, lanes);
        interp_width(in, ref, inst, lanes);
        return true;
    default: return false;
    }
}

static inline void interp_block(interp *in, ash_ref from, ash_ref to, const interp_threads *who) {
    for (ash_ref ref = from; ref < to && !in->error[0]; ref++) {
        const ash_inst *inst = &in->nest->code.at[ref];
        bool together = inst->op == ASH_NEST_BARRIER || inst->op == ASH_NEST_REDUCE ||
                        inst->op == ASH_NEST_TILE_LOAD || inst->op == ASH_NEST_MMA;
        if (together && who->n != in->threads)
            interp_fail(in, ref, "%d of %d threads come by", who->n, in->threads);
        switch (inst->op) {
        case ASH_NEST_LOOP:
            interp_loop(in, ref, inst, who);
            ref = in->match[ref];
            break;
        case ASH_NEST_IF: ref = interp_if(in, ref, inst, who); break;
        case ASH_NEST_BARRIER: in->epoch++; break;
        case ASH_NEST_REDUCE: interp_reduce(in, ref, inst, who); break;
        case ASH_NEST_TILE_LOAD: interp_tile_load(in, ref, inst, who); break;
        case ASH_NEST_MMA: interp_mma(in, ref, inst, who); break;
        default:
            if (who->n == in->threads && in->threads > 1 && interp_all(in, ref, inst)) break;
            for (int32_t i = 0; i < who->n && !in->error[0]; i++) {
                in->thread = who->at[i];
                interp_one(in, ref, inst);
            }
        }
    }
}

/* The pieces of each storage, which are as small as the smallest element that the nest has there. */
static inline void interp_cut(const ash_nest *n, const interp_buffer *buffers) {
    for (size_t i = 0; i < n->buffers.len; i++) buffers[i].memory->shift = 3;
    for (size_t i = 0; i < n->buffers.len; i++) {
        const uint64_t cut = ash_dtype_size(n->buffers.at[i].dtype) | (uint64_t)buffers[i].offset;
        const unsigned shift = (unsigned)__builtin_ctzll(cut);
        if (shift < buffers[i].memory->shift) buffers[i].memory->shift = shift;
    }
}

/* The block's memory, and what is known of the pieces that its threads touch. */
static inline void interp_open_block(interp *in) {
    const ash_nest *n = in->nest;
    in->threads = n->threads ? (int32_t)n->threads : 1;
    in->epoch = 1;
    in->groups = calloc((size_t)in->threads, sizeof *in->groups);
    in->shared = calloc(n->shared.len + 1, sizeof *in->shared);
    in->of_shared = calloc(n->shared.len + 1, sizeof *in->of_shared);
    in->of_buffer = calloc(n->buffers.len + 1, sizeof *in->of_buffer);
    for (size_t i = 0; i < n->shared.len; i++) {
        size_t size = ash_dtype_size(n->shared.at[i].dtype), bytes = n->shared.at[i].count * size;
        in->shared[i] = (interp_memory){.data = calloc(bytes, 1),
                                        .undefined = malloc(bytes),
                                        .bytes = (int64_t)bytes,
                                        .shift = (unsigned)__builtin_ctzll(size)};
        memset(in->shared[i].undefined, 1, bytes);
        in->of_shared[i] = calloc(n->shared.at[i].count, sizeof **in->of_shared);
    }
    for (size_t i = 0; i < n->buffers.len && n->threads;
         i++) /* buffers of one storage share what is known */
        for (size_t k = 0; k <= i && !in->of_buffer[i]; k++)
            in->of_buffer[i] =
                k == i ? calloc((size_t)(in->buffers[i].memory->bytes >> in->buffers[i].memory->shift) + 1,
                                sizeof **in->of_buffer)
                : in->buffers[k].memory == in->buffers[i].memory ? in->of_buffer[k]
                                                                 : NULL;
}

static inline void interp_close_block(interp *in) {
    const ash_nest *n = in->nest;
    if (in->copies.len) interp_fail(in, (ash_ref)n->code.len, "a copy that nobody has waited for");
    for (size_t i = 0; i < n->shared.len; i++) {
        free(in->shared[i].data);
        free(in->shared[i].undefined);
        free(in->of_shared[i]);
    }
    for (size_t i = n->buffers.len; i-- > 0;) {
        bool last = true;
        for (size_t k = 0; k < i; k++) last &= in->of_buffer[k] != in->of_buffer[i];
        if (last) free(in->of_buffer[i]);
    }
    free(in->groups);
    free(in->shared);
    free(in->of_shared);
    free(in->of_buffer);
    ash_vec_free(&ash_allocator__libc, &in->copies);
}

/* Runs the chunks [begin, end), one after the other. `error` (256 bytes) receives what went wrong, or "".
 * */
static inline void interp_run(const ash_nest *nest, const interp_buffer *buffers, const int64_t *vars,
                              int64_t begin, int64_t end, int64_t worker, char *error) {
    interp in = {.nest = nest,
                 .buffers = buffers,
                 .vars = vars,
                 .begin = begin,
                 .end = end,
                 .worker = worker,
                 .error = error};
    size_t n = nest->code.len, total = 0;
    interp_cut(nest, buffers);
    interp_open_block(&in);
    in.places = calloc(n + 1, sizeof *in.places);
    in.match = calloc(n + 1, sizeof *in.match);
    ash_ref *stack = calloc(n + 1, sizeof *stack);
    size_t depth = 0;
    for (ash_ref ref = 0; ref < n; ref++) {
        uint16_t op = nest->code.at[ref].op;
        in.places[ref].first = total * (size_t)in.threads;
        in.places[ref].lanes = nest->code.at[ref].lanes;
        total += nest->code.at[ref].lanes;
        if (op == ASH_NEST_ELSE || op == ASH_NEST_END) in.match[stack[--depth]] = ref;
        if (op == ASH_NEST_ELSE || op == ASH_NEST_LOOP || op == ASH_NEST_IF) stack[depth++] = ref;
    }
    error[0] = 0;
    in.spare = malloc(3 * 1024 * sizeof *in.spare);
    in.lanes = calloc(total * (size_t)in.threads + 1, sizeof *in.lanes);
    in.poison = calloc(total * (size_t)in.threads + 1, sizeof *in.poison);
    int32_t *everybody = calloc((size_t)in.threads, sizeof *everybody);
    for (int32_t t = 0; t < in.threads; t++) everybody[t] = t;
    interp_block(&in, 0, (ash_ref)n, &(interp_threads){in.threads, everybody});
    interp_close_block(&in);
    free(in.spare);
    free(in.lanes);
    free(in.poison);
    free(in.places);
    free(in.match);
    free(stack);
    free(everybody);
}

TEST_SANITIZED_AGAIN

#endif
