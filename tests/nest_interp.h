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

#include "nest_compute.h"

TEST_NOT_SANITIZED

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
