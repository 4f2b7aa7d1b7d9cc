/* SPDX-License-Identifier: MIT */
/* Functions of the caller as operators: what the core operators cannot say, or somebody else's kernel says
 * better.
 *
 * A function is registered with a context, under a name, and then used in graphs like an operator
 * (ash_custom). A plan calls it where the schedule says so: its operands and results are buffers of the
 * plan, it takes part in dependences, memory planning, streams, captures, profiles and cancellation as
 * kernels do, and what it fails with becomes the failure of the execution. */
#ifndef ASHLAR_FUNCTION_H
#define ASHLAR_FUNCTION_H

#include "graph.h"
#include "progress.h"

#ifdef __cplusplus
extern "C" {
#endif

/* What a call works on. Everything is borrowed for the time of the call. The library makes it, and later
 * versions have more at its end. */
typedef struct ash_call {
    /* Row-major elements, at a multiple of 64 bytes; those of constants in mapped files at a multiple of
     * the element's size at least. Operands are only read; results hold nothing yet, and every element of
     * the call's chunks is to be written. NULL is possible where there are no elements. */
    const void *const *ins;
    void *const *outs;
    const ash_type *in_types, *out_types; /* with the present dims, as numbers */
    size_t n_ins, n_outs;
    void *scratch;              /* bytes of this call alone, as many as the node asked for, at a multiple of
                                   64; contents undefined. NULL: it asked for none */
    int64_t begin, end, chunks; /* do the chunks [begin, end) of so many */
    const ash_cancel *cancel;   /* long calls may look at it and return ASH_ERROR_CANCELLED; or NULL */
} ash_call;

/* Does the chunks of a call. A failure is returned, described in `diag` where there is more to say than the
 * status does; then the operations that have not begun are left out, and the execution fails with it. */
typedef ash_status (*ash_function_run)(void *user, const ash_call *call, ash_diag *diag);

/* A node of which gradients are asked for (ash_graph_gradients, train.h). Everything is borrowed for the
 * time of the call. */
typedef struct ash_gradient_call {
    ash_graph *graph;            /* to append nodes to */
    const ash_value *ins, *outs; /* operands and results of the node */
    const ash_value *out_grads;  /* the results' gradients; ASH_NO_VALUE: 0 */
    uint32_t n_ins, n_outs;
} ash_gradient_call;

/* Appends what computes the gradients of the operands, and writes them to `in_grads`, where all are
 * ASH_NO_VALUE: 0. Each is of its operand's type; those that nobody asked for are dropped. */
typedef ash_status (*ash_function_gradient)(void *user, const ash_gradient_call *call, ash_value *in_grads,
                                            ash_diag *diag);

typedef struct ash_function {
    size_t size;      /* bytes that the caller knows, or 0: ASH_INIT */
    const char *name; /* copied */
    /* May be called from any thread, and by several at once: for chunks of one node, for several nodes, and
     * from several plans. It must not use the plan that calls it. */
    ash_function_run run;
    /* The results depend on nothing but the operands, and nothing else happens. Then equal calls may become
     * one, calls on constants are made once, at prepare, and results may be computed again. Otherwise each
     * execution calls it exactly once for each chunk of each node whose results are needed. */
    bool pure;
    void *user;
    void (*release)(void *user);    /* called when the context is destroyed; NULL: nothing */
    ash_function_gradient gradient; /* NULL: it has none */
} ash_function;

/* Registers a function with the context. ASH_ERROR_INVALID_ARGUMENT when the name is empty or taken, or
 * `run` is NULL. */
ASH_API ash_status ash_context_add_function(ash_context *context, const ash_function *function,
                                            ash_diag *diag);
/* The number of a function: the attribute ASH_ATTR_FUNCTION of nodes. -1 when no function has the name. */
ASH_API int64_t ash_context_find_function(ash_context *context, const char *name);

enum { ASH_CUSTOM_MOST_RESULTS = 16 };

/* How a node calls its function. All zero is a good start. */
typedef struct ash_custom_options {
    size_t size;     /* bytes that the caller knows, or 0: ASH_INIT */
    ash_dim chunks;  /* pieces of the work that may run at the same time, each of which writes elements that
                        no other does; what belongs to which must not depend on the threads. 0: one */
    int64_t scratch; /* bytes of scratch memory for each call */
    int64_t duration; /* nanoseconds that all chunks take on one core, about: what streams are chosen by. 0:
                         as long as moving the operands' and results' bytes */
} ash_custom_options;

/* Appends a node that calls a function: operator `custom`. `types` says what the results are: 1 to
 * ASH_CUSTOM_MOST_RESULTS, with dims that may be expressions of variables. `options` may be NULL. Fills
 * `outs`, with ASH_NO_VALUE on failure; the failure is sticky, as for all nodes, and is returned. */
ASH_API ash_status ash_custom(ash_graph *graph, const char *function, const ash_value *ins, size_t n_ins,
                              const ash_type *types, size_t n_outs, const ash_custom_options *options,
                              ash_value *outs);

#ifdef __cplusplus
}
#endif
#endif
