/* SPDX-License-Identifier: MIT */
/* Runs loop nests by reading them: slow, and strict about everything that a nest must not do. It knows no
 * machine, so a few thousand kernels run in the time that compiling some dozens takes, for any target.
 *
 * Checked on the way: every access lies in its buffer and in an interval that the step declares; no chunk
 * reads or writes a byte that another chunk of the step writes; what has no value (bytes that nobody wrote,
 * lanes that are off in a quotient of a negative number) never decides, never is an address, and never is
 * in a result. */
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

typedef union interp_lane {
    int64_t i;
    double f;
} interp_lane;

typedef struct interp {
    const ash_nest *nest;
    const interp_buffer *buffers;
    const int64_t *vars;
    int64_t begin, end, worker;
    int32_t chunk;      /* number of the present chunk, plus 1 */
    interp_lane *lanes; /* of all results */
    bool *poison;       /* per lane: it has no value */
    size_t *first;      /* per instruction: its first lane */
    uint32_t *match;    /* LOOP, IF, ELSE: what closes them */
    char *error;        /* 256 bytes; empty: none */
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
    return in->lanes + in->first[ref];
}

static inline bool *interp_poison(const interp *in, ash_ref ref) {
    return in->poison + in->first[ref];
}

static inline ash_wide interp_wide(const interp *in, ash_ref ref, int64_t count) {
    return (ash_wide){.dtype = (ash_dtype)in->nest->code.at[ref].dtype,
                      .rank = 1,
                      .dims = {count},
                      .count = count,
                      .i = &interp_at(in, ref)->i};
}

/* --- memory --------------------------------------------------------------------------------------- */

/* The bytes of one element, once it is sure that they may be touched; NULL otherwise. */
static inline unsigned char *interp_touch(interp *in, ash_ref ref, const ash_inst *inst, int64_t index,
                                          bool write, int64_t *at) {
    const interp_buffer *b = &in->buffers[inst->buf];
    interp_memory *m = b->memory;
    int64_t size = (int64_t)ash_dtype_size(in->nest->buffers.at[inst->buf].dtype);
    if (index < 0 || index > (m->bytes - b->offset) / size - 1) {
        interp_fail(in, ref, "element %lld of %lld in buffer %u", (long long)index,
                    (long long)((m->bytes - b->offset) / size), inst->buf);
        return NULL;
    }
    bool declared = false;
    for (uint32_t a = 0; a < b->n_accesses && !declared; a++)
        declared = b->accesses[a].buffer == b->id && (b->scratch || b->accesses[a].write == write) &&
                   b->accesses[a].begin <= index * size && (index + 1) * size <= b->accesses[a].end;
    if (!declared) {
        interp_fail(in, ref, "%s element %lld of buffer %u, which the step does not declare",
                    write ? "writes" : "reads", (long long)index, inst->buf);
        return NULL;
    }
    *at = b->offset + index * size;
    for (int64_t k = *at; k < *at + size && !b->scratch; k++) {
        bool foreign = m->writer[k] && m->writer[k] != in->chunk;
        if (write) foreign |= m->reader[k] && m->reader[k] != in->chunk;
        if (foreign) {
            interp_fail(in, ref, "byte %lld of buffer %u belongs to two chunks", (long long)k, inst->buf);
            return NULL;
        }
        if (write)
            m->writer[k] = in->chunk;
        else
            m->reader[k] = m->reader[k] == 0 || m->reader[k] == in->chunk ? in->chunk : -1;
    }
    return m->data + *at;
}

static inline void interp_load(interp *in, ash_ref ref, const ash_inst *inst, int64_t index,
                               unsigned lane) {
    int64_t at, size = (int64_t)ash_dtype_size(in->nest->buffers.at[inst->buf].dtype);
    unsigned char *bytes = interp_touch(in, ref, inst, index, false, &at);
    if (!bytes) return;
    ash_wide one = {.dtype = (ash_dtype)inst->dtype, .count = 1, .i = &interp_at(in, ref)[lane].i};
    ash_wide_load(&one, bytes);
    bool undefined = false;
    for (int64_t k = at; k < at + size; k++) undefined |= in->buffers[inst->buf].memory->undefined[k];
    interp_poison(in, ref)[lane] = undefined;
}

static inline void interp_store(interp *in, ash_ref ref, const ash_inst *inst, int64_t index,
                                unsigned lane) {
    int64_t at, size = (int64_t)ash_dtype_size(in->nest->buffers.at[inst->buf].dtype);
    unsigned char *bytes = interp_touch(in, ref, inst, index, true, &at);
    if (!bytes) return;
    ash_wide one = {.dtype = (ash_dtype)in->nest->code.at[inst->c].dtype,
                    .count = 1,
                    .i = &interp_at(in, inst->c)[lane].i};
    ash_wide_store(&one, bytes);
    for (int64_t k = at; k < at + size; k++)
        in->buffers[inst->buf].memory->undefined[k] = interp_poison(in, inst->c)[lane];
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

static inline void interp_value(interp *in, ash_ref ref, const ash_inst *inst) {
    interp_lane *to = interp_at(in, ref);
    bool *bad = interp_poison(in, ref);
    for (unsigned lane = 0; lane < inst->lanes; lane++) {
        bad[lane] = false;
        switch ((ash_nest_op)inst->op) {
        case ASH_NEST_BEGIN_ARG: to[lane].i = in->begin; break;
        case ASH_NEST_END_ARG: to[lane].i = in->end; break;
        case ASH_NEST_WORKER: to[lane].i = in->worker; break;
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
            bool shared = in->nest->code.at[inst->a].lanes == 4;
            to[lane] = interp_at(in, inst->c)[lane];
            bad[lane] = interp_poison(in, inst->c)[lane];
            for (unsigned i = 0; i < 4; i++) {
                unsigned at = 4 * lane + i, from = shared ? i : at;
                to[lane].i += interp_at(in, inst->a)[from].i * interp_at(in, inst->b)[at].i;
                bad[lane] |= interp_poison(in, inst->a)[from] || interp_poison(in, inst->b)[at];
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
        default: interp_fail(in, ref, "operation %u is unknown", inst->op); return;
        }
    }
    if (inst->op == ASH_NEST_FMA || inst->op == ASH_NEST_FLOAT || inst->op == ASH_NEST_INT ||
        inst->op == ASH_NEST_DOT4) {
        ash_wide out = interp_wide(in, ref, inst->lanes);
        ash_wide__round(&out);
    }
}

/* --- structure ------------------------------------------------------------------------------------ */

static inline void interp_block(interp *in, ash_ref from, ash_ref to);

static inline void interp_loop(interp *in, ash_ref ref, const ash_inst *inst) {
    if (*interp_poison(in, inst->a) || *interp_poison(in, inst->b)) {
        interp_fail(in, ref, "a bound of the loop has no value");
        return;
    }
    int64_t to = interp_at(in, inst->b)->i;
    bool chunks = in->nest->code.at[inst->a].op == ASH_NEST_BEGIN_ARG;
    for (int64_t v = interp_at(in, inst->a)->i; v < to && !in->error[0]; v += inst->i) {
        interp_at(in, ref)->i = v;
        *interp_poison(in, ref) = false;
        if (chunks) in->chunk = (int32_t)(v + 1);
        interp_block(in, ref + 1, in->match[ref]);
    }
}

static inline void interp_block(interp *in, ash_ref from, ash_ref to) {
    for (ash_ref ref = from; ref < to && !in->error[0]; ref++) {
        const ash_inst *inst = &in->nest->code.at[ref];
        switch (inst->op) {
        case ASH_NEST_LOOP:
            interp_loop(in, ref, inst);
            ref = in->match[ref];
            break;
        case ASH_NEST_IF: {
            if (*interp_poison(in, inst->a)) interp_fail(in, ref, "the condition has no value");
            ash_ref close = in->match[ref], other = close;
            if (in->nest->code.at[close].op == ASH_NEST_ELSE) close = in->match[close];
            if (interp_at(in, inst->a)->i)
                interp_block(in, ref + 1, other);
            else
                interp_block(in, other + 1, close);
            ref = close;
            break;
        }
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
        case ASH_NEST_PREFETCH:
        case ASH_NEST_POLL: break; /* nobody asks */
        case ASH_NEST_COMPUTE: interp_compute(in, ref, inst); break;
        case ASH_NEST_HREDUCE: interp_hreduce(in, ref, inst); break;
        default: interp_value(in, ref, inst);
        }
    }
}

/* Runs the chunks [begin, end). `error` (256 bytes) receives what went wrong, or "". */
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
    in.lanes = calloc(total + 1, sizeof *in.lanes);
    in.poison = calloc(total + 1, sizeof *in.poison);
    error[0] = 0;
    interp_block(&in, 0, (ash_ref)n);
    free(in.lanes);
    free(in.poison);
    free(in.first);
    free(in.match);
    free(stack);
}

#endif
