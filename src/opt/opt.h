/* SPDX-License-Identifier: MIT */
/* The graph optimiser: from the graph that a caller built to one that computes the same and is cheaper to
 * run.
 *
 * It is a list of passes (the table in opt.c). Each reads a graph and builds another; after each the graph
 * is verified, and may be dumped. The caller's graph is never changed. */
#ifndef ASH_OPT_H
#define ASH_OPT_H

#include "base/progress.h"
#include "base/target.h"
#include "ir/ir.h"

typedef enum ash_opt_level {
    ASH_OPT_FULL,  /* every pass */
    ASH_OPT_EXACT, /* only what rounds nothing differently */
    ASH_OPT_NONE   /* dead nodes go, nothing else */
} ash_opt_level;

/* All zero is the default: every pass, nothing kept. */
typedef struct ash_opt_options {
    ash_opt_level level;
    const char *const *off; /* names of passes to leave out */
    size_t n_off;
    const ash_value *keep; /* values of the caller's graph that must survive: one value of the result has
                              each as its origin, with the type that it had */
    size_t n_keep;
    void (*dump)(void *user, const char *pass,
                 const ash_graph *graph); /* called after every pass; may be NULL */
    void *dump_user;
    const ash_progress *progress; /* told before every pass; may be NULL */
} ash_opt_options;

/* Optimises `graph` for `target`; NULL: for none, and passes that are some target's business are left out.
 * Inputs, parameters and outputs keep their names, types and order; the origin of a value of *out is the id
 * of the same value in `graph`. `options` may be NULL. An unknown pass in `off` is ASH_ERROR_NOT_FOUND. The
 * caller destroys *out. */
ash_status ash_opt__run(const ash_graph *graph, const ash_target *target, const ash_opt_options *options,
                        ash_graph **out, ash_diag *diag);

/* The rows of the pipeline by position: the name of the pass, NULL past the end. A pass may stand in
 * several rows. */
const char *ash_opt__pass_at(size_t row);

#endif
