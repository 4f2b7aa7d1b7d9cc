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
 * next one does. Between two barriers no thread touches a byte that another one writes, in the block's
 * memory or in a buffer; all come by at a barrier; what is copied is touched by nobody before the thread
 * that copies has waited, and by others not before a barrier after that. */
#ifndef ASH_NEST_INTERP_H
#define ASH_NEST_INTERP_H

#include <math.h>

#include "ir/eval.h"
#include "kernel/program.h"
#include "testing.h"

/* One storage: bytes, and for each byte what is known of it. */
typedef struct interp_memory {
    unsigned char *data;
    bool *undefined; /* nobody wrote it, or what was written has no value */
    int32_t *writer,
        *reader; /* chunk of the present step that wrote or read it, plus 1; 0: none; -1: several read it */
    int64_t bytes;
} interp_memory;

/* A buffer of the nest as the step binds it: part of a storage, and the intervals that may be touched. */
typedef struct interp_buffer {
    interp_memory *memory;
    int64_t offset; /* bytes into the storage */
    bool scratch;
    const ash_access *accesses; /* of the step; those of `id` count */
    uint32_t n_accesses, id;
} interp_buffer;

/* What the threads of the block have done to a byte since the barrier before `epoch`. */
typedef struct interp_byte {
    int32_t writer, reader; /* thread plus 1; 0: none; of readers -1: several */
    int32_t write_epoch, read_epoch;
    bool pending; /* a copy is under way */
} interp_byte;

/* A copy that is under way. */
typedef struct interp_copy {
    int32_t thread, group;
    uint16_t memory;
    int64_t at; /* byte of the block's memory */
    uint8_t bytes, data[16];
    bool undefined[16];
} interp_copy;

typedef union interp_lane {
    int64_t i;
    double f;
} interp_lane;

typedef struct interp {
    const ash_nest *nest;
    const interp_buffer *buffers;
    const int64_t *vars;
    int64_t begin, end, worker;
    int32_t chunk;           /* number of the present chunk, plus 1 */
    int32_t threads;         /* of a block; 1 where there is none */
    int32_t thread;          /* the present one */
    int32_t epoch;           /* barriers that were passed, plus 1 */
    size_t per_thread;       /* lanes of all results */
    interp_lane *lanes;      /* of all results of all threads */
    bool *poison;            /* per lane: it has no value */
    interp_memory *shared;   /* the block's */
    interp_byte **of_shared; /* per memory, per byte */
    interp_byte **of_buffer; /* per buffer, per byte of its storage; NULL without a block */
    ASH_VEC(interp_copy) copies;
    int32_t *groups; /* per thread: that it has committed */
    size_t *first;   /* per instruction: its first lane */
    uint32_t *match; /* LOOP, IF, ELSE: what closes them */
    char *error;     /* 256 bytes; empty: none */
} interp;

static inline void interp_fail(interp *in, ash_ref ref, const char *fmt, ...) ASH_PRINTF(3, 4);
static inline void interp_fail(interp *in, ash_ref ref, const char *fmt, ...) {
    if (in->error[0]) return;
    int len = snprintf(in->error, 256, "instruction %u: ", ref);
    va_list args;
    va_start(args, fmt);
    vsnprintf(in->error + len, (size_t)(256 - len), fmt, args);
    va_end(args);
}

static inline interp_lane *interp_at(const interp *in, ash_ref ref) {
    return in->lanes + (size_t)in->thread * in->per_thread + in->first[ref];
}

static inline bool *interp_poison(const interp *in, ash_ref ref) {
    return in->poison + (size_t)in->thread * in->per_thread + in->first[ref];
}

static inline ash_wide interp_wide(const interp *in, ash_ref ref, int64_t count) {
    return (ash_wide){.dtype = (ash_dtype)in->nest->code.at[ref].dtype,
                      .rank = 1,
                      .dims = {count},
                      .count = count,
                      .i = &interp_at(in, ref)->i};
}

/* --- memory --------------------------------------------------------------------------------------- */

/* Notes that the present thread touches a byte; false: another one does at the same time. */
static inline bool interp_race(interp *in, ash_ref ref, interp_byte *b, bool write, int64_t at) {
    int32_t own = in->thread + 1;
    bool written = b->writer && b->writer != own && b->write_epoch == in->epoch;
    bool read = b->reader && b->reader != own && b->read_epoch == in->epoch;
    if (b->pending) {
        interp_fail(in, ref, "thread %d touches byte %lld, which is being copied", in->thread,
                    (long long)at);
    } else if (written || (write && read)) {
        interp_fail(in, ref, "threads %d and %d touch byte %lld without a barrier in between", in->thread,
                    (written ? b->writer : b->reader) - 1, (long long)at);
    }
    if (write) {
        b->writer = own;
        b->write_epoch = in->epoch;
    } else if (b->read_epoch == in->epoch && b->reader && b->reader != own) {
        b->reader = -1;
    } else {
        b->reader = own;
        b->read_epoch = in->epoch;
    }
    return !in->error[0];
}

/* The storage of a buffer or a memory of the block, and what its bytes begin at. */
static inline interp_memory *interp_storage(const interp *in, uint16_t buf, int64_t *offset) {
    *offset = buf & ASH_NEST_SHARED ? 0 : in->buffers[buf].offset;
    return buf & ASH_NEST_SHARED ? &in->shared[buf & ~ASH_NEST_SHARED] : in->buffers[buf].memory;
}

/* The same for an element of the block's memory. */
static inline unsigned char *interp_touch_shared(interp *in, ash_ref ref, uint16_t buf, int64_t index,
                                                 bool write, int64_t *at) {
    unsigned number = buf & ~(unsigned)ASH_NEST_SHARED;
    const ash_nest_shared *s = &in->nest->shared.at[number];
    int64_t size = (int64_t)ash_dtype_size(s->dtype);
    if (index < 0 || index >= s->count) {
        interp_fail(in, ref, "element %lld of %u in memory %u", (long long)index, s->count, number);
        return NULL;
    }
    *at = index * size;
    for (int64_t k = *at; k < *at + size; k++)
        if (!interp_race(in, ref, &in->of_shared[number][k], write, k)) return NULL;
    return in->shared[number].data + *at;
}

/* The bytes of one element, once it is sure that they may be touched; NULL otherwise. */
static inline unsigned char *interp_touch(interp *in, ash_ref ref, uint16_t buf, int64_t index, bool write,
                                          int64_t *at) {
    if (buf & ASH_NEST_SHARED) return interp_touch_shared(in, ref, buf, index, write, at);
    const interp_buffer *b = &in->buffers[buf];
    interp_memory *m = b->memory;
    int64_t size = (int64_t)ash_dtype_size(in->nest->buffers.at[buf].dtype);
    if (index < 0 || index > (m->bytes - b->offset) / size - 1) {
        interp_fail(in, ref, "element %lld of %lld in buffer %u", (long long)index,
                    (long long)((m->bytes - b->offset) / size), buf);
        return NULL;
    }
    bool declared = false;
    for (uint32_t a = 0; a < b->n_accesses && !declared; a++)
        declared = b->accesses[a].buffer == b->id && (b->scratch || b->accesses[a].write == write) &&
                   b->accesses[a].begin <= index * size && (index + 1) * size <= b->accesses[a].end;
    if (!declared) {
        interp_fail(in, ref, "%s element %lld of buffer %u, which the step does not declare",
                    write ? "writes" : "reads", (long long)index, buf);
        return NULL;
    }
    *at = b->offset + index * size;
    for (int64_t k = *at; k < *at + size && !b->scratch; k++) {
        bool foreign = m->writer[k] && m->writer[k] != in->chunk;
        if (write) foreign |= m->reader[k] && m->reader[k] != in->chunk;
        if (foreign) {
            interp_fail(in, ref, "byte %lld of buffer %u belongs to two chunks", (long long)k, buf);
            return NULL;
        }
        if (in->nest->threads && !interp_race(in, ref, &in->of_buffer[buf][k], write, k)) return NULL;
        if (write)
            m->writer[k] = in->chunk;
        else
            m->reader[k] = m->reader[k] == 0 || m->reader[k] == in->chunk ? in->chunk : -1;
    }
    return m->data + *at;
}

static inline void interp_load(interp *in, ash_ref ref, const ash_inst *inst, int64_t index,
                               unsigned lane) {
    int64_t at, offset, size = (int64_t)ash_dtype_size(ash_nest_dtype(in->nest, inst->buf));
    unsigned char *bytes = interp_touch(in, ref, inst->buf, index, false, &at);
    const interp_memory *m = interp_storage(in, inst->buf, &offset);
    if (!bytes) return;
    ash_wide one = {.dtype = (ash_dtype)inst->dtype, .count = 1, .i = &interp_at(in, ref)[lane].i};
    ash_wide_load(&one, bytes);
    bool undefined = false;
    for (int64_t k = at; k < at + size; k++) undefined |= m->undefined[k];
    interp_poison(in, ref)[lane] = undefined;
}

static inline void interp_store(interp *in, ash_ref ref, const ash_inst *inst, int64_t index,
                                unsigned lane) {
    int64_t at, offset, size = (int64_t)ash_dtype_size(ash_nest_dtype(in->nest, inst->buf));
    unsigned char *bytes = interp_touch(in, ref, inst->buf, index, true, &at);
    interp_memory *m = interp_storage(in, inst->buf, &offset);
    if (!bytes) return;
    ash_wide one = {.dtype = (ash_dtype)in->nest->code.at[inst->c].dtype,
                    .count = 1,
                    .i = &interp_at(in, inst->c)[lane].i};
    ash_wide_store(&one, bytes);
    for (int64_t k = at; k < at + size; k++) m->undefined[k] = interp_poison(in, inst->c)[lane];
}

static inline void interp_access(interp *in, ash_ref ref, const ash_inst *inst) {
    bool store = inst->op == ASH_NEST_STORE || inst->op == ASH_NEST_SCATTER;
    bool indexed = inst->op == ASH_NEST_GATHER || inst->op == ASH_NEST_SCATTER;
    unsigned lanes = store ? in->nest->code.at[inst->c].lanes : inst->lanes;
    for (unsigned lane = 0; lane < lanes && !in->error[0]; lane++) {
        if (!store) interp_at(in, ref)[lane].i = 0, interp_poison(in, ref)[lane] = false;
        if (inst->b != ASH_NO_REF) {
            if (interp_poison(in, inst->b)[lane]) {
                interp_fail(in, ref, "lane %u of the mask has no value", lane);
                return;
            }
            if (!interp_at(in, inst->b)[lane].i) continue;
        }
        unsigned from = indexed ? lane : 0;
        if (interp_poison(in, inst->a)[from]) {
            interp_fail(in, ref, "lane %u of the address has no value", lane);
            return;
        }
        int64_t index = interp_at(in, inst->a)[from].i + (indexed ? 0 : lane);
        if (store)
            interp_store(in, ref, inst, index, lane);
        else
            interp_load(in, ref, inst, index, lane);
    }
}

static inline void interp_lookup(interp *in, ash_ref ref, const ash_inst *inst) {
    for (unsigned lane = 0; lane < inst->lanes && !in->error[0]; lane++) {
        if (interp_poison(in, inst->a)[lane]) /* any byte is there to be looked up by */
            interp_poison(in, ref)[lane] = true;
        else
            interp_load(in, ref, inst, interp_at(in, inst->b)->i + (interp_at(in, inst->a)[lane].i & 255),
                        lane);
    }
}

/* A byte of an operand of TILE_DOT; *undefined is set where it has no value. */
static inline int64_t interp_byte_at(interp *in, ash_ref ref, uint16_t buf, int64_t index,
                                     bool *undefined) {
    int64_t at, offset;
    const unsigned char *byte = interp_touch(in, ref, buf, index, false, &at);
    if (!byte) return 0;
    *undefined |= interp_storage(in, buf, &offset)->undefined[at];
    return (signed char)*byte;
}

static inline void interp_tile_dot(interp *in, ash_ref ref, const ash_inst *inst) {
    enum { LINES = 16, COLUMNS = 16 };
    const ash_nest_tiles tiles = ash_nest_tiles_of(inst);
    if (*interp_poison(in, inst->a) || *interp_poison(in, inst->b) || *interp_poison(in, inst->c))
        interp_fail(in, ref, "a product of tiles without an address");
    int64_t to = interp_at(in, inst->a)->i, x = interp_at(in, inst->b)->i, y = interp_at(in, inst->c)->i;
    for (int64_t i = 0; i < LINES * COLUMNS && !in->error[0]; i++) {
        int64_t row = i / COLUMNS, column = i % COLUMNS, at, offset;
        uint32_t sum = 0;
        bool bad = false;
        for (int64_t t = 0; t < inst->unroll; t++)
            sum += (uint32_t)(interp_byte_at(in, ref, tiles.x, x + row * tiles.apart + t, &bad) *
                              interp_byte_at(in, ref, tiles.y, y + (t / 4 * COLUMNS + column) * 4 + t % 4,
                                             &bad));
        unsigned char *bytes = interp_touch(in, ref, inst->buf, to + i, true, &at);
        if (!bytes) return;
        memcpy(bytes, &sum, sizeof sum);
        memset(interp_storage(in, inst->buf, &offset)->undefined + at, bad, sizeof sum);
    }
}

/* --- arithmetic ----------------------------------------------------------------------------------- */

static inline void interp_compute(interp *in, ash_ref ref, const ash_inst *inst) {
    ash_op op = (ash_op)inst->i;
    ash_class class = ash_op_infos[op].class;
    unsigned lanes = inst->lanes, count = ash_op_infos[op].ins_min;
    const ash_ref from[3] = {inst->a, inst->b, inst->c};
    ash_wide ins[3], out = interp_wide(in, ref, lanes);
    ash_node node = {.op = op, .n_ins = (uint16_t)count};
    ash_eval e = {.node = &node, .ins = ins, .outs = &out};
    for (unsigned i = 0; i < count; i++) ins[i] = interp_wide(in, from[i], lanes);
    for (unsigned lane = 0; lane < lanes; lane++) {
        bool bad = interp_poison(in, from[0])[lane];
        if (class == ASH_CLASS_SELECT)
            bad |= interp_poison(in, from[ins[0].i[lane] ? 1 : 2])[lane];
        else
            for (unsigned i = 1; i < count; i++) bad |= interp_poison(in, from[i])[lane];
        /* false AND x, true OR x: conditions are put together from parts that may have no value */
        if (inst->dtype == ASH_BOOL && (op == ASH_OP_AND || op == ASH_OP_OR))
            for (unsigned i = 0; i < 2; i++)
                if (!interp_poison(in, from[i])[lane] && ins[i].i[lane] == (op == ASH_OP_OR)) bad = false;
        interp_poison(in, ref)[lane] = bad;
    }
    switch (class) {
    case ASH_CLASS_UNARY: ash_eval__unary(&e); break;
    case ASH_CLASS_BINARY: ash_eval__binary(&e); break;
    case ASH_CLASS_COMPARE: ash_eval__compare(&e); break;
    case ASH_CLASS_SELECT: ash_eval__select(&e); break;
    default: ash_eval__cast(&e); break;
    }
    ash_wide__round(&out);
}

/* Lane j with lane j + ceil(n/2), until one is left. */
static inline void interp_hreduce(interp *in, ash_ref ref, const ash_inst *inst) {
    unsigned n = in->nest->code.at[inst->a].lanes;
    interp_lane held[1024];
    bool bad = false;
    for (unsigned i = 0; i < n; i++) {
        held[i] = interp_at(in, inst->a)[i];
        bad |= interp_poison(in, inst->a)[i];
    }
    while (n > 1) {
        unsigned half = (n + 1) / 2;
        ash_node node = {.op = (ash_op)inst->i, .n_ins = 2};
        interp_lane result[1024];
        ash_wide ins[2] = {{.dtype = (ash_dtype)inst->dtype, .count = n / 2, .i = &held[0].i},
                           {.dtype = (ash_dtype)inst->dtype, .count = n / 2, .i = &held[half].i}};
        ash_wide out = {.dtype = (ash_dtype)inst->dtype, .count = n / 2, .i = &result[0].i};
        ash_eval__binary(&(ash_eval){.node = &node, .ins = ins, .outs = &out});
        ash_wide__round(&out);
        for (unsigned i = 0; i < n / 2; i++) held[i] = result[i];
        n = half;
    }
    interp_at(in, ref)[0] = held[0];
    interp_poison(in, ref)[0] = bad;
}

/* What is said to be narrow is. */
static inline void interp_narrow(interp *in, ash_ref ref, const ash_inst *inst, int64_t a, int64_t b) {
    if (inst->unroll != ASH_NEST_NARROW || *interp_poison(in, inst->a) || *interp_poison(in, inst->b))
        return;
    if (a != (int32_t)a || b != (int32_t)b)
        interp_fail(in, ref, "%lld and %lld do not fit 32 bits", (long long)a, (long long)b);
}

static inline void interp_value(interp *in, ash_ref ref, const ash_inst *inst) {
    interp_lane *to = interp_at(in, ref);
    bool *bad = interp_poison(in, ref);
    for (unsigned lane = 0; lane < inst->lanes; lane++) {
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
            to[lane] = interp_at(in, inst->a)[from];
            bad[lane] = interp_poison(in, inst->a)[from];
            break;
        }
        case ASH_NEST_SHUFFLE: {
            unsigned pick = (unsigned)in->nest->shuffles.at[inst->i + lane],
                     n = in->nest->code.at[inst->a].lanes;
            ash_ref from = pick < n ? inst->a : inst->b;
            to[lane] = interp_at(in, from)[pick % n];
            bad[lane] = interp_poison(in, from)[pick % n];
            break;
        }
        case ASH_NEST_CELL:
        case ASH_NEST_GET:
            to[lane] = interp_at(in, inst->a)[lane];
            bad[lane] = interp_poison(in, inst->a)[lane];
            break;
        case ASH_NEST_IDIV:
        case ASH_NEST_IMOD: {
            int64_t a = interp_at(in, inst->a)[lane].i, b = interp_at(in, inst->b)[lane].i;
            interp_narrow(in, ref, inst, a, b);
            bad[lane] = interp_poison(in, inst->a)[lane] || interp_poison(in, inst->b)[lane] || a < 0;
            if (b <= 0) {
                interp_fail(in, ref, "a division by %lld", (long long)b);
                return;
            }
            to[lane].i = bad[lane] ? INT64_MIN / 3 : inst->op == ASH_NEST_IDIV ? a / b : a % b;
            break;
        }
        case ASH_NEST_FMA: {
            double x = interp_at(in, inst->a)[lane].f, y = interp_at(in, inst->b)[lane].f;
            to[lane].f = fma(x, y, interp_at(in, inst->c)[lane].f);
            bad[lane] = interp_poison(in, inst->a)[lane] || interp_poison(in, inst->b)[lane] ||
                        interp_poison(in, inst->c)[lane];
            break;
        }
        case ASH_NEST_DOT4: {
            bool a_shared = in->nest->code.at[inst->a].lanes == 4;
            bool b_shared = in->nest->code.at[inst->b].lanes == 4;
            to[lane] = interp_at(in, inst->c)[lane];
            bad[lane] = interp_poison(in, inst->c)[lane];
            for (unsigned i = 0; i < 4; i++) {
                unsigned a = a_shared ? i : 4 * lane + i, b = b_shared ? i : 4 * lane + i;
                to[lane].i += interp_at(in, inst->a)[a].i * interp_at(in, inst->b)[b].i;
                bad[lane] |= interp_poison(in, inst->a)[a] || interp_poison(in, inst->b)[b];
            }
            break;
        }
        case ASH_NEST_WHOLE: {
            double x = interp_at(in, inst->a)[lane].f;
            bad[lane] = interp_poison(in, inst->a)[lane];
            if (!bad[lane] && (x != floor(x) || fabs(x) > 0x1p30))
                interp_fail(in, ref, "%g is not whole, or large", x);
            to[lane].i = bad[lane] ? 0 : (int64_t)x;
            break;
        }
        case ASH_NEST_TF32: {
            float x = (float)interp_at(in, inst->a)[lane].f;
            uint32_t bits;
            memcpy(&bits, &x, sizeof bits);
            bits = (bits + 0x1000) & ~UINT32_C(0x1fff);
            if (!isnan(x)) memcpy(&x, &bits, sizeof x);
            to[lane].f = x;
            bad[lane] = interp_poison(in, inst->a)[lane];
            break;
        }
        default: interp_fail(in, ref, "operation %u is unknown", inst->op); return;
        }
    }
    if (inst->op == ASH_NEST_FMA || inst->op == ASH_NEST_FLOAT || inst->op == ASH_NEST_INT ||
        inst->op == ASH_NEST_DOT4) {
        ash_wide out = interp_wide(in, ref, inst->lanes);
        ash_wide__round(&out);
    }
}

/* --- blocks of threads ---------------------------------------------------------------------------- */

/* Threads that come by: all of the block, or some of them. */
typedef struct interp_threads {
    int32_t n, *at;
} interp_threads;

/* The tree of ash_nest.h: thread j with j ^ half, the lower one first. */
static inline void interp_reduce(interp *in, ash_ref ref, const ash_inst *inst, const interp_threads *all) {
    interp_lane held[1024], next[1024];
    bool bad[1024] = {false};
    for (int32_t t = 0; t < in->threads; t++) {
        in->thread = t;
        held[t] = *interp_at(in, inst->a);
        for (int32_t other = 0; other < in->threads; other++)
            if (other / (int32_t)inst->unroll == t / (int32_t)inst->unroll)
                bad[other] |= *interp_poison(in, inst->a);
    }
    for (int32_t half = (int32_t)inst->unroll / 2; half; half /= 2) {
        for (int32_t t = 0; t < in->threads; t++) {
            int32_t low = t & ~half;
            ash_node node = {.op = (ash_op)inst->i, .n_ins = 2};
            ash_wide ins[2] = {{.dtype = (ash_dtype)inst->dtype, .count = 1, .i = &held[low].i},
                               {.dtype = (ash_dtype)inst->dtype, .count = 1, .i = &held[low | half].i}};
            ash_wide out = {.dtype = (ash_dtype)inst->dtype, .count = 1, .i = &next[t].i};
            ash_eval__binary(&(ash_eval){.node = &node, .ins = ins, .outs = &out});
            ash_wide__round(&out);
        }
        memcpy(held, next, sizeof held);
    }
    for (int32_t i = 0; i < all->n; i++) {
        in->thread = all->at[i];
        *interp_at(in, ref) = held[in->thread];
        *interp_poison(in, ref) = bad[in->thread];
    }
}

/* Element `j` of the word that lane `lane` of a thread's operand of MMA has; e of them to a word. */
static inline double interp_element(const interp *in, ash_ref ref, int32_t thread, unsigned lane,
                                    unsigned j, ash_dtype dtype) {
    const interp_lane *v = &in->lanes[(size_t)thread * in->per_thread + in->first[ref] + lane];
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
            int64_t at, offset;
            in->thread = first + l;
            int64_t index = interp_at(in, inst->a)->i;
            const interp_memory *m = interp_storage(in, inst->buf, &offset);
            bad[l] = *interp_poison(in, inst->a);
            if (bad[l] || index % in_row)
                interp_fail(in, ref, "a row of a matrix at element %lld", (long long)index);
            for (int64_t k = 0; k < in_row && !in->error[0]; k++) {
                const unsigned char *bytes = interp_touch(in, ref, inst->buf, index + k, false, &at);
                if (!bytes) return;
                memcpy((unsigned char *)rows[l] + k * size, bytes, (size_t)size);
                for (int64_t i = 0; i < size; i++) bad[l] |= m->undefined[at + i];
            }
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
    int64_t size = (int64_t)ash_dtype_size(ash_nest_dtype(in->nest, inst->buf)), at, offset;
    int64_t to = interp_at(in, inst->a)->i, from = interp_at(in, inst->b)->i;
    bool reads = inst->c == ASH_NO_REF || interp_at(in, inst->c)->i;
    interp_copy copy = {.thread = in->thread,
                        .group = in->groups[in->thread],
                        .memory = (uint16_t)number,
                        .at = to * size,
                        .bytes = (uint8_t)(inst->unroll * size)};
    if (*interp_poison(in, inst->a) || (reads && *interp_poison(in, inst->b)) ||
        (inst->c != ASH_NO_REF && *interp_poison(in, inst->c)))
        interp_fail(in, ref, "a copy without an address or a condition");
    for (unsigned i = 0; i < inst->unroll && !in->error[0]; i++) {
        if (!interp_touch(in, ref, inst->buf, to + i, true, &at) || !reads) continue;
        const unsigned char *bytes = interp_touch(in, ref, (uint16_t)inst->i, from + i, false, &at);
        const interp_memory *m = interp_storage(in, (uint16_t)inst->i, &offset);
        if (!bytes) return;
        memcpy(copy.data + i * size, bytes, (size_t)size);
        memcpy(copy.undefined + i * size, m->undefined + at, (size_t)size);
        if (i == 0 && at % copy.bytes) interp_fail(in, ref, "a copy from byte %lld", (long long)at);
    }
    if (copy.at % copy.bytes) interp_fail(in, ref, "a copy to byte %lld", (long long)copy.at);
    for (unsigned i = 0; i < copy.bytes && !in->error[0]; i++)
        in->of_shared[number][copy.at + i].pending = true;
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
        memcpy(in->shared[copy->memory].data + copy->at, copy->data, copy->bytes);
        memcpy(in->shared[copy->memory].undefined + copy->at, copy->undefined, copy->bytes);
        for (unsigned k = 0; k < copy->bytes; k++) {
            in->of_shared[copy->memory][copy->at + k].pending = false;
            interp_race(in, ref, &in->of_shared[copy->memory][copy->at + k], true, copy->at + k);
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

/* One instruction without blocks, by the present thread. */
static inline void interp_one(interp *in, ash_ref ref, const ash_inst *inst) {
    switch (inst->op) {
    case ASH_NEST_SET:
        for (unsigned lane = 0; lane < in->nest->code.at[inst->b].lanes; lane++) {
            interp_at(in, inst->a)[lane] = interp_at(in, inst->b)[lane];
            interp_poison(in, inst->a)[lane] = interp_poison(in, inst->b)[lane];
        }
        break;
    case ASH_NEST_LOAD:
    case ASH_NEST_STORE:
    case ASH_NEST_GATHER:
    case ASH_NEST_SCATTER: interp_access(in, ref, inst); break;
    case ASH_NEST_LOOKUP: interp_lookup(in, ref, inst); break;
    case ASH_NEST_TILE_DOT: interp_tile_dot(in, ref, inst); break;
    case ASH_NEST_PREFETCH:
    case ASH_NEST_POLL: break; /* nobody asks */
    case ASH_NEST_COMPUTE:
        if (inst->unroll == ASH_NEST_NARROW)
            interp_narrow(in, ref, inst, interp_at(in, inst->a)->i, interp_at(in, inst->b)->i);
        interp_compute(in, ref, inst);
        break;
    case ASH_NEST_HREDUCE: interp_hreduce(in, ref, inst); break;
    case ASH_NEST_COPY_ASYNC: interp_copy_async(in, ref, inst); break;
    case ASH_NEST_COPY_COMMIT: in->groups[in->thread]++; break;
    case ASH_NEST_COPY_WAIT: interp_copy_wait(in, ref, inst->i); break;
    default: interp_value(in, ref, inst);
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
            for (int32_t i = 0; i < who->n && !in->error[0]; i++) {
                in->thread = who->at[i];
                interp_one(in, ref, inst);
            }
        }
    }
}

/* The block's memory, and what is known of the bytes that its threads touch. */
static inline void interp_open_block(interp *in) {
    const ash_nest *n = in->nest;
    in->threads = n->threads ? (int32_t)n->threads : 1;
    in->epoch = 1;
    in->groups = calloc((size_t)in->threads, sizeof *in->groups);
    in->shared = calloc(n->shared.len + 1, sizeof *in->shared);
    in->of_shared = calloc(n->shared.len + 1, sizeof *in->of_shared);
    in->of_buffer = calloc(n->buffers.len + 1, sizeof *in->of_buffer);
    for (size_t i = 0; i < n->shared.len; i++) {
        size_t bytes = n->shared.at[i].count * ash_dtype_size(n->shared.at[i].dtype);
        in->shared[i] =
            (interp_memory){.data = calloc(bytes, 1), .undefined = malloc(bytes), .bytes = (int64_t)bytes};
        memset(in->shared[i].undefined, 1, bytes);
        in->of_shared[i] = calloc(bytes, sizeof **in->of_shared);
    }
    for (size_t i = 0; i < n->buffers.len && n->threads;
         i++) /* buffers of one storage share what is known */
        for (size_t k = 0; k <= i && !in->of_buffer[i]; k++)
            in->of_buffer[i] =
                k == i ? calloc((size_t)in->buffers[i].memory->bytes + 1, sizeof **in->of_buffer)
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
    in.first = calloc(n + 1, sizeof *in.first);
    in.match = calloc(n + 1, sizeof *in.match);
    ash_ref *stack = calloc(n + 1, sizeof *stack);
    size_t depth = 0;
    for (ash_ref ref = 0; ref < n; ref++) {
        uint16_t op = nest->code.at[ref].op;
        in.first[ref] = total;
        total += nest->code.at[ref].lanes;
        if (op == ASH_NEST_ELSE || op == ASH_NEST_END) in.match[stack[--depth]] = ref;
        if (op == ASH_NEST_ELSE || op == ASH_NEST_LOOP || op == ASH_NEST_IF) stack[depth++] = ref;
    }
    error[0] = 0;
    interp_open_block(&in);
    in.per_thread = total;
    in.lanes = calloc(total * (size_t)in.threads + 1, sizeof *in.lanes);
    in.poison = calloc(total * (size_t)in.threads + 1, sizeof *in.poison);
    int32_t *everybody = calloc((size_t)in.threads, sizeof *everybody);
    for (int32_t t = 0; t < in.threads; t++) everybody[t] = t;
    interp_block(&in, 0, (ash_ref)n, &(interp_threads){in.threads, everybody});
    interp_close_block(&in);
    free(in.lanes);
    free(in.poison);
    free(in.first);
    free(in.match);
    free(stack);
    free(everybody);
}

#endif
