/* SPDX-License-Identifier: MIT */
/* Programs: what a graph becomes when it is fused and lowered. Buffers, and the steps that read and write
 * them, in an order that respects every dependence. This is all that the memory planner's accesses, code
 * generation and the runtime see of a model; nothing in it depends on threads, streams or addresses.
 *
 *   prologue steps   run once at prepare (and again when a parameter is rebound): folded and packed weights
 *   main steps       run at every execution
 *
 * The access record (buffer, byte interval, read or write) of a step is the one source of dependencies,
 * lifetimes, stream edges and the checker's proof. */
#ifndef ASH_PROGRAM_H
#define ASH_PROGRAM_H

#include "base/gpu_tile.h"
#include "base/progress.h"
#include "base/target.h"
#include "ir/ir.h"
#include "nest.h"

typedef enum ash_buffer_kind {
    ASH_BUFFER_INPUT,     /* given by the caller at each execution */
    ASH_BUFFER_CONSTANT,  /* data of `blob` */
    ASH_BUFFER_PARAMETER, /* data of `blob` until it is rebound */
    ASH_BUFFER_WEIGHT,    /* written by the prologue, read by main steps: lives as long as the plan */
    ASH_BUFFER_STAGING,   /* written and read by the prologue alone */
    ASH_BUFFER_LOCAL,     /* written and read by main steps */
    ASH_BUFFER_STATE,  /* kept between executions, read and written by main steps; begins as `blob`, or as
                          zeros */
    ASH_BUFFER_OUTPUT, /* written by main steps (unless it has no bytes), read by the caller */
    ASH_BUFFER_SCRATCH /* of one step: `bytes` for each worker, contents undefined before and after */
} ash_buffer_kind;

#define ASH_NO_BUFFER UINT32_MAX

typedef struct ash_buffer {
    ash_buffer_kind kind;
    ash_type type;    /* dims as the graph has them; row-major */
    int64_t bytes;    /* at the variables' maxima; of one worker for scratch */
    uint32_t align;   /* bytes that the base address must be a multiple of */
    ash_value value;  /* in the graph that was lowered, or ASH_NO_VALUE */
    ash_value origin; /* in the caller's graph, or ASH_NO_VALUE */
    const char *name; /* of an input, parameter, state or output; else NULL */
    ash_blob *blob;   /* constants and parameters; states that do not begin as zeros; NULL in the core of a
                         plan, which keeps the bytes beside it */
    uint32_t root;   /* a view: the buffer whose bytes it lies in (never itself a view), or ASH_NO_BUFFER */
    int64_t offset;  /* of a view: bytes into the root */
    ash_dim shift;   /* of a view: bytes further, which may depend on variables, none that data settle. What
                        access records say of the view counts from before it. */
    uint8_t phase;   /* of what it holds: an ash_phase */
    bool one_worker; /* scratch of a step that runs on one thread: it has one worker's */
    bool bound; /* of a loop's body: its bytes are where the loop's step says, perhaps elsewhere at each
                        iteration */
    uint32_t device; /* whose memory it is in; of views: that of the root */
    uint32_t twin; /* of a constant: the parameter whose bytes it has on another device, its number plus 1;
                      or 0 */
} ash_buffer;

/* Where it begins in its root, at the present sizes. */
static inline int64_t ash_buffer__begin(const ash_buffer *b, const ash_dims *dims, const int64_t *vars) {
    if (b->root == ASH_NO_BUFFER) return 0;
    return b->offset + (b->shift ? ash_dims_eval(dims, b->shift, vars) : 0);
}

/* Bytes of a buffer where so many workers run its step. */
static inline uint64_t ash_buffer__bytes(const ash_buffer *b, unsigned workers) {
    return (uint64_t)b->bytes * (b->kind == ASH_BUFFER_SCRATCH && !b->one_worker ? workers : 1);
}

typedef struct ash_access {
    uint32_t buffer;
    bool write;
    int64_t begin, end; /* bytes of the buffer, half-open, at the variables' maxima */
} ash_access;

typedef enum ash_step_kind {
    ASH_STEP_KERNEL, /* a generated kernel */
    ASH_STEP_COPY,   /* accesses[0] is read, accesses[1] written, byte for byte */
    ASH_STEP_CALL,   /* a function of the caller */
    ASH_STEP_LOOP,   /* a program of its own, as often as the loop runs; see ash_program_loop */
    ASH_STEP_SETTLE  /* the i64 in accesses[0] is read, brought within 0 and the limit of variable `var`,
                        becomes  its value, and is written to accesses[1]; steps that mention the variable
                        read that */
} ash_step_kind;

typedef struct ash_step {
    ash_step_kind kind;
    const char *name; /* of what it computes: "conv+add+relu" */
    uint32_t nest;    /* index of its nest, for kernels; among the calls, for calls; among the loops */
    uint32_t var;     /* what it settles */
    ash_dim chunks;   /* independent pieces of work */
    const uint32_t *buffers; /* per buffer of the nest; operands, results and scratch of a call */
    uint32_t n_buffers, n_accesses;
    const ash_access *accesses; /* one or more per buffer; scratch included */
    uint32_t inplace; /* a buffer that this step reads and its output may take the place of, element on
                         element, or ASH_NO_BUFFER */
    bool moves;       /* it only moves elements: in the place of `inplace` there is nothing to do */
    bool one_worker;  /* it runs on one thread, as worker 0, for its scratch to take less */
    const char *const *nodes; /* names of the graph nodes it holds, for diagnostics */
    uint32_t n_nodes;
    double flops, bytes; /* work and least traffic at the variables' maxima */
    uint32_t parts;      /* a product whose sums a later step adds: how many there are of each; or 0 */
    const ash_gpu_job
        *job;          /* of a GPU's kernel: what it does of a product, for forecasts; NULL: it is none */
    double chunk_work; /* units of work that one chunk can take at most, of `unit_ns` each */
    double work;       /* nanoseconds that the arithmetic is taken to need on one core; 0: not estimated */
    uint32_t device;   /* that runs it; of a copy between two devices: where it goes */
} ash_step;

/* What a step of kind ASH_STEP_CALL calls. */
typedef struct ash_program_call {
    const ash_function *function; /* of the context */
    uint32_t n_ins, n_outs;
    int64_t scratch; /* bytes of each call; what a worker has is this, rounded up to the buffer's bytes */
} ash_program_call;

/* What a step of kind ASH_STEP_LOOP runs. The step's buffers: the node's operands (ash_loop_parts, in the
 * form that names a body), constants of the body, the node's results, scratch memory for what the body
 * computes. Of the body's buffers, bound ones lie where loop.c says. */
typedef struct ash_program_loop {
    struct ash_program
        *body; /* without prologue and nests: its steps name those of the outermost program */
    ash_loop_parts parts;
    ash_dim trips;
    uint64_t backward;   /* a bit for each scanned, then each stacked value */
    uint32_t *constants; /* of the body: n_constants buffers */
    uint32_t n_constants;
    bool *direct;     /* per stacked value: the body computes it where it is stacked; else it is copied */
    int64_t *offsets; /* per buffer of the body that is a root and not bound: bytes into the scratch memory;
                         the runtime's to fill in */
    int64_t number;   /* bytes into it at which an i64 is the iteration's number; -1: nobody reads that */
    int64_t bytes;    /* of that memory */
    unsigned workers; /* threads that it has room for */
    bool laid_out;    /* it has */
} ash_program_loop;

/* A device beside the main one. */
typedef struct ash_program_device {
    ash_target target; /* what its steps were lowered for */
    size_t first_nest; /* its nests begin here, and end with the next one's */
} ash_program_device;

typedef struct ash_program {
    const ash_allocator *allocator;
    ash_target target; /* what it was lowered for (on the main device); its nests are compiled for nothing
                          else */
    ASH_VEC(ash_program_device) others; /* devices 1, 2, ...: see join.h */
    ash_arena arena;                    /* lists and names */
    ash_dims *dims;                     /* a copy of the graph's */
    ASH_VEC(ash_buffer) buffers;
    ASH_VEC(ash_step) steps;
    size_t prologue;         /* the first so many steps run at prepare */
    ASH_VEC(ash_nest) nests; /* distinct */
    ASH_VEC(ash_program_call) calls;
    ASH_VEC(ash_program_loop) loops;
    ASH_VEC(uint32_t)
    inputs, states, outputs;  /* buffers, in the graph's order; an output may be any kind of buffer */
    uint32_t updated, copied; /* states that are computed in their own bytes; that are copied there last */
    ASH_VEC(const char *) output_names;
    uint32_t splits; /* values that are stored between groups so that the peak is lower: see split.h */
    const uint32_t *seeds; /* inputs that are known after the first part has run, n_seeds of them; none: the
                              program is one part */
    size_t n_seeds;
    struct {
        size_t steps, inputs, outputs;
    } cut; /* how many main steps, inputs and outputs, the first ones, the first of two parts has: cut.h */
} ash_program;

/* What a device's steps were lowered for. */
static inline const ash_target *ash_program__target(const ash_program *p, uint32_t device) {
    return device ? &p->others.at[device - 1].target : &p->target;
}

/* The device that a nest is for. */
static inline uint32_t ash_program__nest_device(const ash_program *p, size_t nest) {
    uint32_t device = (uint32_t)p->others.len;
    while (device && p->others.at[device - 1].first_nest > nest) device--;
    return device;
}

/* Whether a step copies from one device to another. */
static inline bool ash_step__crosses(const ash_program *p, const ash_step *step) {
    return step->kind == ASH_STEP_COPY &&
           p->buffers.at[step->accesses[0].buffer].device != p->buffers.at[step->accesses[1].buffer].device;
}

typedef struct ash_lower_options {
    bool fuse;              /* false: one kernel per node */
    bool fuse_freely;       /* whatever it does to the peak of live bytes: see split.h */
    int64_t room;           /* bytes that this peak is to stay within; 0: what the rule there allows */
    const uint32_t *aligns; /* per value: what its address is a multiple of, where that is less than usual;
                               or NULL */
    const int64_t *scratch; /* per node, where it is known: see split.h; or NULL */
    const ash_value *keep;  /* values (of the caller's graph) that must exist in a buffer of their own */
    size_t n_keep;
    const bool *seeds; /* per input of the graph: the program is cut (cut.h), and this is known after its
                          first part; or NULL */
    bool apart; /* new values of states and parts of concatenations are computed apart, and copied there */
    bool uncut; /* with seeds: steps, inputs and outputs keep their order, for who joins programs */
    const ash_progress *progress; /* told between kernels; NULL: nobody asks */
} ash_lower_options;

/* Fuses and lowers a graph for a target. The program shares the graph's blobs and is otherwise independent
 * of it. ASH_ERROR_UNSUPPORTED names a node that has no lowering. The caller frees *out. */
ash_status ash_program__lower(const ash_graph *graph, const ash_target *target,
                              const ash_lower_options *options, ash_program **out, ash_diag *diag);
void ash_program__free(ash_program *program); /* NULL is allowed */

/* A program that is not changed any more, in one arena: that in which the lists and names of `program` lie
 * already, which by now is the caller's, and which `inside` takes from. It has no blobs: they stay with
 * `program`. It is gone with the arena, and is not freed. */
ash_status ash_program__keep(const ash_program *program, ash_arena *arena, const ash_allocator *inside,
                             ash_program *out, ash_diag *diag);

#endif
