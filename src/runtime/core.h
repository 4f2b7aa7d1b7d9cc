/* SPDX-License-Identifier: MIT */
/* The core of a plan: all that is decided when a graph is prepared, and nothing that changes afterwards.
 *
 *     program    buffers, steps with their access records, loop nests        kernel/program.h
 *     schedule   streams, waits, events                                      assign.h
 *     layout     homes and offsets                                           layout.h
 *     index      what is looked up by name                                   index.h
 *     commands   the list that an execution issues, and what it is made of   below
 *
 * It is a value. All of it lies in one arena, the structure itself included, and once it is made nobody
 * writes to it: every replica reads the same one, at the same time. It has no address of anything that runs
 * or is computed with: memory is buffers and offsets, kernels are nests, work is steps and fills by number,
 * and functions of the caller are what the context knows them by. So cores of the same graph, target and
 * options are the same text (ash_plan_core__print), whoever made them and where.
 *
 * What belongs to it and is no value lies beside it (ash_plan_shared in plan.h): the device, loaded
 * kernels, the bytes of constants, files. What a plan has for itself (addresses, chunks, variables,
 * memory) is in the plan, laid out as the core says. */
#ifndef ASH_PLAN_CORE_H
#define ASH_PLAN_CORE_H

#include "ashlar/plan.h"
#include "assign.h"
#include "device/stream.h"
#include "index.h"
#include "kernel/program.h"
#include "layout.h"

/* What a step is to the streams, whatever the variables. */
typedef struct ash_plan_work {
    ash_command_kind kind;
    bool parallel;  /* worth more than one thread */
    int64_t piece;  /* chunks to run at once, so that a thread looks at the switch every few milliseconds;
                       0: all */
    uint32_t slot;  /* of a main step: its table begins here in the table of all */
    uint32_t count; /* entries of its table: its buffers, and what can stop a kernel */
    uint32_t ahead; /* of a parallel kernel: the entry, in the table of all, of the weights that the next
                       parallel kernel with many of them reads */
    int64_t ahead_bytes, ahead_most; /* how many they are, and most for one thread to ask for; 0: none */
} ash_plan_work;

/* A table entry that depends on the base of a root. */
typedef struct ash_plan_entry {
    uint32_t root, slot; /* buffer, index in the table */
    uint64_t offset;     /* bytes */
    ash_dim shift;       /* and bytes that depend on variables */
} ash_plan_entry;

/* A variable that a main step settles, and the main steps whose chunks or bytes mention it. */
typedef struct ash_plan_settled {
    uint32_t var, first, count; /* in `resized` */
} ash_plan_settled;

/* A run of bytes of a main arena in which there is no input. */
typedef struct ash_plan_gap {
    uint32_t arena;
    uint64_t offset, bytes;
} ash_plan_gap;

/* A command of an execution, in the order of issue. */
typedef struct ash_plan_command {
    ash_command_kind kind;
    uint32_t stream;
    uint32_t subject; /* the main step, the fill or the event */
} ash_plan_command;

typedef struct ash_plan_core {
    ash_arena arena;         /* of all that follows, this included */
    ash_allocator allocator; /* of the parts: the arena's while they are made, the heap's for who reads */
    ash_program program;     /* blobs are not in it: what has one is an `original` */
    ash_schedule schedule;
    ash_layout layout;
    ash_plan_index index;

    const char *device; /* name of the device that it was made for */
    ash_mode mode;
    unsigned threads; /* that run a step, at most */
    bool poison;      /* dead bytes are filled */
    bool keep_denormals;
    bool late; /* mode graph is captured by an execution */

    uint32_t first; /* main steps of the program before those of the plan: not 0 for the second of a pair */
    uint32_t n_buffers, n_steps; /* all buffers, main steps of the plan */
    bool *original; /* per buffer: a constant or parameter, or a state that does not begin as zeros: its
                       bytes are beside the core */
    bool *outputs;  /* per root: an output lies in it */
    bool *reads;    /* per root: an execution or a caller reads it; others are the prologue's */
    double weight_reads; /* bytes that the main steps read of constants, parameters and weights */

    ash_plan_work *work;     /* per step, those of the prologue first */
    ash_plan_entry *entries; /* sorted by root */
    uint32_t *first_entry;   /* per buffer and one more: the first entry of that root */
    uint32_t *shifted;       /* roots with entries that variables move */
    uint32_t n_entries, n_table, n_shifted;

    ash_plan_settled *settled; /* per step that settles a variable, in the program's order */
    uint32_t *resized;         /* main steps, by the variables that they mention */
    uint32_t n_settled, n_resized;

    uint32_t *fills;      /* roots, step by step, that poison fills behind it */
    uint32_t *first_fill; /* per main step and one more: its first fill */
    uint32_t *touches;    /* per root: fills of it */
    uint32_t n_fills;
    ash_plan_gap *gaps; /* of the arenas beside the inputs: dead before the first step, if it poisons */
    uint32_t n_gaps;

    ash_plan_command *commands;
    uint32_t n_commands;
} ash_plan_core;

/* What a core is made of. A program that is cut (kernel/cut.h) is that of two cores: the first part's,
 * which has all that belongs to both, and then the second's, which lies beside it and must not outlive it.
 * Lives of places are those of one clock for both parts. */
typedef struct ash_plan_parts {
    ash_program *program;    /* NULL: that of `of` */
    const ash_plan_core *of; /* the first part's core, or NULL */
    const ash_schedule *schedule;
    const ash_layout *layout;
    const char *device; /* its name */
    ash_mode mode;
    unsigned threads;
    bool poison, late, keep_denormals;
} ash_plan_parts;

/* A main step of the plan, as a step of the program. */
static inline size_t ash_plan_core__step(const ash_plan_core *core, uint32_t i) {
    return core->program.prologue + core->first + i;
}

/* The half step, on the clock of the places, at which the plan's executions are over. */
static inline int64_t ash_plan_core__end(const ash_plan_core *core) {
    return 2 * ((int64_t)core->first + core->n_steps);
}

/* Makes a core of its parts. The program's lists become the core's also when this fails; what is left of it
 * is its blobs, which belong to the caller as before, buffer by buffer. */
ash_status ash_plan_core__create(const ash_plan_parts *parts, ash_plan_core **out, ash_diag *diag);
void ash_plan_core__free(ash_plan_core *core); /* NULL is allowed */

/* Whether a root's bytes are poisoned when they are dead: those of inputs stay between executions, or lie
 * where the caller has bound them. */
bool ash_plan_core__is_mortal(const ash_plan_core *core, uint32_t root);

/* Whether this reads what is the same in every execution: constants, parameters, weights. */
bool ash_plan_core__reads_weights(const ash_program *program, const ash_access *access);

/* Whether a step of a program is worth more than one of so many threads. */
bool ash_plan_core__is_parallel(const ash_program *program, unsigned threads, const ash_step *step);

/* All of it as text, the same for equal cores: see core_print.c. */
ash_status ash_plan_core__print(const ash_plan_core *core, struct ash_text *out, ash_diag *diag);

/* Bytes between the work of the first command of an execution that does something, and of this one. A plan
 * lays its steps and fills out like this, and captured entries find them by it. */
uint64_t ash_plan_core__distance(const ash_plan_core *core, const ash_plan_command *command);

#endif
