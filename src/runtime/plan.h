/* The inside of an execution plan.
 *
 *   prepare.c   graph → program → kernels → plan          layout.h    where buffers lie
 *   build.c     program + kernels → plan                  bind.c      memory, addresses, inputs, parameters
 *   prologue.c  packed weights                            execute.c   the loop, variables, profile, poison
 *   buffers.c   outputs and intermediate results          report.c    operations, numbers
 *   source.c    text of the kernels
 *
 * Every buffer's address is base[its root] + offset. Steps have tables of addresses, made ahead; when a
 * base changes, the entries that depend on it are written anew, so that executing looks nothing up. */
#ifndef ASH_PLAN_INSIDE_H
#define ASH_PLAN_INSIDE_H

#include <pthread.h>

#include "ashlar/plan.h"
#include "base/pool.h"
#include "device/device.h"
#include "kernel/program.h"
#include "layout.h"

/* A main step, ready to run: 64 bytes that the loop reads in order. */
typedef struct ash_plan_step {
    ash_kernel_fn fn;     /* NULL: a copy */
    void *const *buffers; /* per buffer of the nest; of a copy, source and target */
    const int64_t *vars;
    int64_t chunks;   /* with the present variables */
    bool parallel;    /* worth more than the calling thread */
    uint32_t index;   /* in the program */
    int64_t bytes;    /* of a copy, with the present variables */
    int64_t from, to; /* of a copy: first byte in source and target */
} ash_plan_step;

/* A table entry that depends on the base of a root. */
typedef struct ash_plan_entry {
    uint32_t root, slot; /* buffer, index in the table */
    uint64_t offset;     /* bytes */
} ash_plan_entry;

typedef struct ash_plan_arena {
    ash_storage *storage; /* of the plan, or around a part of the block that the caller handed in */
    uint64_t size, align; /* bytes */
} ash_plan_arena;

/* Dead bytes, filled when the step is over. */
typedef struct ash_plan_poison {
    uint32_t step, arena;
    uint64_t offset, bytes;
} ash_plan_poison;

typedef struct ash_plan_input_state {
    uint64_t set; /* bytes that were given, or ASH_INPUT_UNSET */
    const void *bound;
} ash_plan_input_state;

#define ASH_INPUT_UNSET UINT64_MAX

/* Where kernels come from: code.h in earnest, C functions in tests. Texts may be NULL. */
typedef struct ash_kernel_source {
    ash_kernel_fn *fns; /* per nest of the program; copied */
    void *owner;        /* keeps the functions alive; released by the plan, also when building it fails */
    void (*release)(void *owner);
} ash_kernel_source;

struct ash_plan {
    ash_context *context;
    const ash_allocator *allocator;
    ash_program *program; /* owned */
    ash_kernel_source kernels;
    ash_layout layout;
    ash_pool *pool; /* NULL for one thread */
    unsigned threads;
    bool poison;
    pthread_mutex_t lock; /* held by every call that changes or runs the plan */

    /* fixed after building */
    uint32_t n_buffers, n_arenas;
    size_t n_steps, n_entries, n_table, n_vars, n_inputs, n_poison;
    ash_plan_step *steps;
    void **table;             /* all steps' addresses, one after the other */
    ash_plan_entry *entries;  /* sorted by root */
    uint32_t *first_entry;    /* per buffer and one more: the first entry of that root */
    ash_plan_poison *poisons; /* by step */
    ash_device *cpu;
    ash_kernel_fn *fns;               /* per nest */
    uint64_t block_size, block_align; /* bytes of all arenas in one block */

    /* what changes */
    int64_t *vars, *old_vars; /* present values; those before a call that may fail */
    char **base;              /* per root buffer: its first byte, or NULL while there is none */
    ash_plan_arena *arenas;
    bool arenas_ready;    /* allocated, and the bases point into them */
    void *block;          /* arena of the caller's, or NULL */
    ash_storage *weights; /* of the packed weights; NULL when released */
    bool weights_ready;   /* the prologue has run on the present parameters */
    ash_storage *saved;   /* the outputs' bytes while the arenas are released */
    ash_storage **blobs;  /* per buffer with a blob that was asked for: storage around its bytes */
    ash_storage *
        *own; /* per buffer: bytes of a parameter that was set, storage around an input that was bound */
    ash_plan_input_state *inputs;
    ash_view **views; /* per buffer, made when asked for */
    uint32_t *viewed; /* the buffers that have one */
    uint32_t n_viewed;
    bool executed; /* the buffers hold results */
    ash_plan_report report;
};

int64_t ash_plan__now(void); /* nanoseconds, monotonic */

/* --- build.c ---------------------------------------------------------------------------------- */

/* Builds a plan around a program, which it takes over, also when it fails. Nothing runs yet but the checks.
 */
ash_status ash_plan__build(ash_context *context, ash_program *program, const ash_kernel_source *kernels,
                           const ash_plan_options *options, ash_plan **out, ash_diag *diag);
/* Chunk counts and copy sizes for the present variables. */
void ash_plan__refresh_steps(ash_plan *plan);
/* Whether a step is worth more than one thread. */
bool ash_plan__is_parallel(const ash_plan *plan, const ash_step *step);
/* "conv+add+relu" or what describes the step, never NULL. */
const char *ash_plan__step_name(const ash_step *step);

/* --- bind.c; under the lock ------------------------------------------------------------------- */

/* Gives a root another base, and writes the table entries that depend on it. */
void ash_plan__set_base(ash_plan *plan, uint32_t root, void *base);
/* Memory for the arenas, if there is none yet. */
ash_status ash_plan__need_arenas(ash_plan *plan, ash_diag *diag);
/* The type and the bytes of a buffer with the present variables. */
void ash_plan__present_type(const ash_plan *plan, uint32_t buffer, ash_type *type, uint64_t *bytes);
/* The input lies in its own place, which is allocated, from now on. */
ash_status ash_plan__unbind_input(ash_plan *plan, size_t position, ash_diag *diag);
/* Every input is given in its present shape. */
ash_status ash_plan__check_inputs(const ash_plan *plan, ash_diag *diag);

/* --- prologue.c; under the lock --------------------------------------------------------------- */

/* Runs the prologue if its results are not there, or not of the present parameters. */
ash_status ash_plan__need_weights(ash_plan *plan, ash_diag *diag);

/* --- buffers.c; under the lock ---------------------------------------------------------------- */

/* A storage around what an input was bound to, if a view of it has been handed out. */
ash_status ash_plan__wrap_bound(ash_plan *plan, uint32_t root, ash_diag *diag);
/* Points every view that was handed out at where its bytes are now, with its present type. */
void ash_plan__refresh_views(ash_plan *plan);
/* Where an output's bytes are within `saved`; with the number of outputs, the bytes of all. */
uint64_t ash_plan__saved_offset(const ash_plan *plan, size_t output);

#endif
