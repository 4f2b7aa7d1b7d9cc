/* SPDX-License-Identifier: MIT */
/* Plans of open graphs: see open.c. All under the plan's lock, unless said otherwise. */
#ifndef ASH_PLAN_OPEN_H
#define ASH_PLAN_OPEN_H

#include <pthread.h>

#include "ashlar/plan.h"
#include "device/device.h"
#include "ir/ir.h"

/* Bytes that a caller has given: as an address of the host's, or as a view. */
typedef struct ash_given {
    const ash_type *type; /* NULL: as it is */
    uint64_t size;        /* bytes */
    const void *data;     /* where the host finds them, or NULL */
    ash_address address;  /* where the plan's device finds them, or 0 */
    ash_storage *storage; /* of the view that has them, or NULL; */
    uint64_t offset;      /* where they begin in it */
    bool room;            /* for an input whatever the variables are: as many bytes as its place has */
} ash_given;

/* What was given to an input and is in no buffer yet. */
typedef struct ash_waiting {
    bool given, bound;
    ash_type type;  /* dims are numbers */
    void *copy;     /* of the plan's memory, of what is not bound */
    ash_given what; /* its storage is held */
} ash_waiting;

typedef struct ash_opening {
    const ash_allocator *allocator;
    ash_graph *graph;         /* open: the inputs' types, the variables, the names of the outputs */
    ash_plan_options options; /* of prepare; `keep` and what is said of devices are copies */
    size_t n_vars, n_inputs;
    int64_t *sizes;         /* per variable of the graph: as the inputs were given, -1: not known yet */
    int64_t *ready;         /* the same, of what the plan is ready for */
    int64_t *room;          /* for a set of sizes that may be refused */
    bool is_ready;          /* there is a plan for some sizes; before, it is that of an empty graph */
    ash_waiting *waiting;   /* per input */
    uint64_t block_bytes;   /* of the arena that the caller handed in */
    uint64_t weights_bytes; /* and of the block for weights */
    bool *taken;            /* per buffer of the next plan: a view of the present one goes over into it */
    size_t n_taken;
    ASH_VEC(ash_view *) strays; /* views of inputs and outputs that have no buffer of their own any more */
    pthread_mutex_t changed;    /* held while the plan is replaced, by who must not wait for executions */
} ash_opening;

/* A plan of an open graph, without sizes. Not under a lock: nobody else has it. */
ash_status ash_open__create(ash_context *context, const ash_graph *graph, const ash_plan_options *options,
                            ash_plan **out, ash_diag *diag);
/* The same sizes and options for a replica, and nothing given. */
ash_status ash_open__copy(const ash_opening *opening, ash_opening **out, ash_diag *diag);
void ash_open__free(ash_opening *opening); /* NULL is allowed */

/* ASH_ERROR_STATE names the dims without a size, while the plan of an open graph is ready for none. */
ash_status ash_open__check(const ash_plan *plan, ash_diag *diag);
/* Makes the plan ready for the present sizes, and gives it the inputs that wait. Those that were given must
 * fit the sizes, and all must be given when `all`. Nothing to do for other plans. */
ash_status ash_open__ready(ash_plan *plan, bool all, ash_diag *diag);
/* Inputs that were copied in are lost. */
void ash_open__forget(ash_plan *plan);

/* An input of a plan of an open graph, with sizes of its own. *direct: the plan is ready for it, and has
 * not been given it yet. */
ash_status ash_open__give(ash_plan *plan, size_t position, const ash_given *given, bool bind, bool *direct,
                          ash_diag *diag);
/* The type with the present sizes; -1 for those that are not known. */
void ash_open__input_type(const ash_plan *plan, size_t position, ash_type *out);
ash_status ash_open__set_vars(ash_plan *plan, const ash_var_binding *vars, size_t count, ash_diag *diag);

/* Not under the lock: what does not change. */
const char *ash_open__input_name(const ash_plan *plan, size_t position);
ash_status ash_open__find(const ash_plan *plan, bool output, const char *name, size_t *out, ash_diag *diag);

#endif
