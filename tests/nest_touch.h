/* SPDX-License-Identifier: MIT */
/* The state of the interpreter of loop nests (nest_interp.h), and memory as it sees it: who has touched
 * what. */
#ifndef ASH_NEST_TOUCH_H
#define ASH_NEST_TOUCH_H

#include <math.h>

#include "ir/eval.h"
#include "kernel/program.h"
#include "testing.h"

TEST_NOT_SANITIZED

/* One storage: bytes, and what is known of each, or of each piece: what no access of a step cuts. */
typedef struct interp_memory {
    unsigned char *data;
    bool *undefined; /* per byte: nobody wrote it, or what was written has no value */
    int32_t *writer,
        *reader; /* per piece: chunk of the present step that wrote or read it, plus 1; 0: none;
                                 -1: several read it */
    int64_t bytes;
    unsigned shift; /* bytes of a piece: 1 << shift */
} interp_memory;

/* A buffer of the nest as the step binds it: part of a storage, and the intervals that may be touched. */
typedef struct interp_buffer {
    interp_memory *memory;
    int64_t offset; /* bytes into the storage */
    int64_t base;   /* the same where variables do not move it: what the intervals count from */
    bool scratch;
    const ash_access *accesses; /* of the step; those of `id` count */
    uint32_t n_accesses, id;
} interp_buffer;

/* Buffer number i of a step, at its place in a storage, which nobody has touched in this step. */
static inline interp_buffer interp_bind(const ash_program *p, const ash_step *step, uint32_t i,
                                        const int64_t *vars, interp_memory *m) {
    const ash_buffer *b = &p->buffers.at[step->buffers[i]];
    const bool scratch = b->kind == ASH_BUFFER_SCRATCH;
    memset(m->writer, 0, (size_t)m->bytes * sizeof *m->writer);
    memset(m->reader, 0, (size_t)m->bytes * sizeof *m->reader);
    if (scratch) memset(m->undefined, 1, (size_t)m->bytes);
    return (interp_buffer){m,
                           ash_buffer__begin(b, p->dims, vars),
                           b->offset,
                           scratch,
                           step->accesses,
                           step->n_accesses,
                           step->buffers[i]};
}

/* What the threads of the block have done to a piece since the barrier before `epoch`. */
typedef struct interp_piece {
    int32_t writer, reader; /* thread plus 1; 0: none; of readers -1: several */
    int32_t write_epoch, read_epoch;
    bool pending; /* a copy is under way */
} interp_piece;

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

/* A register for sums of tiles, and whether these have no value. */
typedef struct interp_tile {
    uint32_t sums[ASH_NEST_TILE_LINES][16];
    bool bad[ASH_NEST_TILE_LINES][16];
} interp_tile;

typedef struct interp {
    const ash_nest *nest;
    const interp_buffer *buffers;
    const int64_t *vars;
    int64_t begin, end, worker;
    int32_t chunk;            /* number of the present chunk, plus 1 */
    int32_t threads;          /* of a block; 1 where there is none */
    int32_t thread;           /* the present one */
    int32_t epoch;            /* barriers that were passed, plus 1 */
    interp_lane *lanes;       /* of all results: of each the lanes of all threads, one after the other */
    bool *poison;             /* per lane: it has no value */
    interp_memory *shared;    /* the block's */
    interp_piece **of_shared; /* per memory, per piece */
    interp_piece **of_buffer; /* per buffer, per piece of its storage; NULL without a block */
    ASH_VEC(interp_copy) copies;
    int32_t *groups; /* per thread: that it has committed */
    interp_tile tiles[ASH_NEST_TILES];
    int64_t tile_lines;  /* that count; 0: all */
    uint32_t tiles_like; /* the unroll of the TILE_ZERO that they are from, but for its terms; 0: none */
    struct interp_place {
        size_t first;     /* of the first thread */
        unsigned lanes;   /* of a thread */
    } *places;            /* per instruction */
    uint32_t *match;      /* LOOP, IF, ELSE: what closes them */
    char *error;          /* 256 bytes; empty: none */
    ash_wide ins[3], out; /* of arithmetic */
    ash_node node;
    interp_lane *spare; /* of reductions: room for thrice 1024 */
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
    return in->lanes + in->places[ref].first + (size_t)in->thread * in->places[ref].lanes;
}

static inline bool *interp_poison(const interp *in, ash_ref ref) {
    return in->poison + in->places[ref].first + (size_t)in->thread * in->places[ref].lanes;
}

/* An operand's lanes, and whether they have no value; NULL where there is no such operand. */
typedef struct interp_operand {
    const interp_lane *lane;
    const bool *bad;
} interp_operand;

static inline interp_operand interp_of(const interp *in, ash_ref ref) {
    if (ref >= in->nest->code.len) return (interp_operand){NULL, NULL};
    return (interp_operand){interp_at(in, ref), interp_poison(in, ref)};
}

/* Lanes of results as the evaluator has elements: a call for a few of them takes no time to prepare. */
static inline void interp_view(ash_wide *view, uint16_t dtype, interp_lane *lanes, int64_t count) {
    view->dtype = (ash_dtype)dtype;
    view->count = count;
    view->i = &lanes->i;
}

/* Of `count` bytes, a size of elements or several of them. */
static inline bool interp_any(const bool *flags, int64_t count) {
    bool any = false;
    for (int64_t k = 0; k < count; k++) any |= flags[k];
    return any;
}

/* --- memory --------------------------------------------------------------------------------------- */

/* Notes that the present thread touches the piece from byte `at` on; false: another one does at the same
 * time. */
static inline bool interp_race(interp *in, ash_ref ref, interp_piece *b, bool write, int64_t at) {
    int32_t own = in->thread + 1;
    bool written = b->writer && b->writer != own && b->write_epoch == in->epoch;
    bool read = b->reader && b->reader != own && b->read_epoch == in->epoch;
    if (b->pending) {
        interp_fail(in, ref, "thread %d touches byte %lld, which is being copied", in->thread,
                    (long long)at);
        return false;
    }
    if (written || (write && read)) {
        interp_fail(in, ref, "threads %d and %d touch byte %lld without a barrier in between", in->thread,
                    (written ? b->writer : b->reader) - 1, (long long)at);
        return false;
    }
    if (write) {
        b->writer = own;
        b->write_epoch = in->epoch;
    } else if (read) {
        b->reader = -1;
    } else {
        b->reader = own;
        b->read_epoch = in->epoch;
    }
    return true;
}

/* The storage of a buffer or a memory of the block, and what its bytes begin at. */
static inline interp_memory *interp_storage(const interp *in, uint16_t buf, int64_t *offset) {
    *offset = buf & ASH_NEST_SHARED ? 0 : in->buffers[buf].offset;
    return buf & ASH_NEST_SHARED ? &in->shared[buf & ~ASH_NEST_SHARED] : in->buffers[buf].memory;
}

/* The same for elements of the block's memory. */
static inline bool interp_touch_shared(interp *in, ash_ref ref, uint16_t buf, int64_t index, int64_t count,
                                       bool write) {
    unsigned number = buf & ~(unsigned)ASH_NEST_SHARED;
    const ash_nest_shared *s = &in->nest->shared.at[number];
    if (index < 0 || index + count > s->count) {
        interp_fail(in, ref, "element %lld of %u in memory %u", (long long)index, s->count, number);
        return false;
    }
    for (int64_t k = index; k < index + count; k++)
        if (!interp_race(in, ref, &in->of_shared[number][k], write, k << in->shared[number].shift))
            return false;
    return true;
}

/* Whether one interval that the step declares has them all. */
static inline bool interp_declared(const interp_buffer *b, int64_t begin, int64_t end, bool write) {
    begin -= b->base, end -= b->base;
    for (uint32_t a = 0; a < b->n_accesses; a++)
        if (b->accesses[a].buffer == b->id && (b->scratch || b->accesses[a].write == write) &&
            b->accesses[a].begin <= begin && end <= b->accesses[a].end)
            return true;
    return false;
}

/* The bytes of elements that lie side by side, once it is sure that they may be touched; NULL otherwise.
 * They are in *memory. */
static inline unsigned char *interp_touch(interp *in, ash_ref ref, uint16_t buf, int64_t index,
                                          int64_t count, bool write, interp_memory **memory) {
    int64_t offset, size = (int64_t)ash_dtype_size(ash_nest_dtype(in->nest, buf));
    interp_memory *m = *memory = interp_storage(in, buf, &offset);
    if (buf & ASH_NEST_SHARED)
        return interp_touch_shared(in, ref, buf, index, count, write) ? m->data + index * size : NULL;
    const interp_buffer *b = &in->buffers[buf];
    const int64_t begin = offset + index * size, end = begin + count * size;
    if (index < 0 || end > m->bytes) {
        interp_fail(in, ref, "element %lld of %lld in buffer %u", (long long)index,
                    (long long)((m->bytes - offset) / size), buf);
        return NULL;
    }
    if (!interp_declared(b, begin, end, write)) {
        if (count == 1) {
            interp_fail(in, ref, "%s element %lld of buffer %u, which the step does not declare",
                        write ? "writes" : "reads", (long long)index, buf);
            return NULL;
        }
        for (int64_t k = 0; k < count; k++) /* in several intervals? */
            if (!interp_touch(in, ref, buf, index + k, 1, write, memory)) return NULL;
        return m->data + begin;
    }
    for (int64_t k = begin >> m->shift; k < end >> m->shift && !b->scratch; k++) {
        bool foreign = m->writer[k] && m->writer[k] != in->chunk;
        if (write) foreign |= m->reader[k] && m->reader[k] != in->chunk;
        if (foreign) {
            interp_fail(in, ref, "byte %lld of buffer %u belongs to two chunks", (long long)(k << m->shift),
                        buf);
            return NULL;
        }
        if (in->nest->threads && !interp_race(in, ref, &in->of_buffer[buf][k], write, k << m->shift))
            return NULL;
        if (write)
            m->writer[k] = in->chunk;
        else
            m->reader[k] = m->reader[k] == 0 || m->reader[k] == in->chunk ? in->chunk : -1;
    }
    return m->data + begin;
}

/* Elements from `index` on as the lanes from `lane` on. */
static inline void interp_load(interp *in, ash_ref ref, const ash_inst *inst, int64_t index, unsigned lane,
                               unsigned lanes) {
    const int64_t size = (int64_t)ash_dtype_size(ash_nest_dtype(in->nest, inst->buf));
    interp_memory *m;
    const unsigned char *bytes = interp_touch(in, ref, inst->buf, index, lanes, false, &m);
    if (!bytes) return;
    const bool *undefined = m->undefined + (bytes - m->data);
    bool *poison = interp_poison(in, ref) + lane;
    interp_view(&in->out, inst->dtype, interp_at(in, ref) + lane, lanes);
    ash_wide_load(&in->out, bytes);
    for (unsigned i = 0; i < lanes; i++) poison[i] = interp_any(undefined + i * size, size);
}

static inline void interp_store(interp *in, ash_ref ref, const ash_inst *inst, int64_t index, unsigned lane,
                                unsigned lanes) {
    const int64_t size = (int64_t)ash_dtype_size(ash_nest_dtype(in->nest, inst->buf));
    interp_memory *m;
    unsigned char *bytes = interp_touch(in, ref, inst->buf, index, lanes, true, &m);
    if (!bytes) return;
    bool *undefined = m->undefined + (bytes - m->data);
    const bool *poison = interp_poison(in, inst->c) + lane;
    interp_view(&in->out, in->nest->code.at[inst->c].dtype, interp_at(in, inst->c) + lane, lanes);
    ash_wide_store(&in->out, bytes);
    for (unsigned i = 0; i < lanes; i++)
        for (int64_t k = 0; k < size; k++) undefined[i * size + k] = poison[i];
}

static inline void interp_access(interp *in, ash_ref ref, const ash_inst *inst) {
    bool store = inst->op == ASH_NEST_STORE || inst->op == ASH_NEST_SCATTER;
    bool indexed = inst->op == ASH_NEST_GATHER || inst->op == ASH_NEST_SCATTER;
    unsigned lanes = store ? in->nest->code.at[inst->c].lanes : inst->lanes;
    unsigned together = indexed || inst->b != ASH_NO_REF ? 1 : lanes;
    for (unsigned lane = 0; lane < lanes && !in->error[0]; lane += together) {
        if (inst->b != ASH_NO_REF) {
            if (!store) interp_at(in, ref)[lane].i = 0, interp_poison(in, ref)[lane] = false;
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
            interp_store(in, ref, inst, index, lane, together);
        else
            interp_load(in, ref, inst, index, lane, together);
    }
}

static inline void interp_lookup(interp *in, ash_ref ref, const ash_inst *inst) {
    for (unsigned lane = 0; lane < inst->lanes && !in->error[0]; lane++) {
        if (interp_poison(in, inst->a)[lane]) /* any byte is there to be looked up by */
            interp_poison(in, ref)[lane] = true;
        else
            interp_load(in, ref, inst, interp_at(in, inst->b)->i + (interp_at(in, inst->a)[lane].i & 255),
                        lane, 1);
    }
}

TEST_SANITIZED_AGAIN

#endif
