/* SPDX-License-Identifier: MIT */
/* Rebuilding: the one mechanism by which a pass reads a graph and builds another.
 *
 * A pass walks the live nodes of `from` in order and gives each value an image in `to`: a copy of its node
 * over the images of the operands, or whatever computes the same. Every step is constant time but for the
 * operands, so passes are linear.
 *
 *     ash_rewrite rw;
 *     ASH_TRY(ash_rewrite__begin(&rw, opt, from, diag));
 *     for (size_t i = 0; i < from->nodes.len && ash_rewrite__ok(&rw); i++)
 *         if (ash_rewrite__is_live(&rw, &from->nodes.at[i])) ash_rewrite__copy(&rw, &from->nodes.at[i]);
 *     return ash_rewrite__end(&rw, out);
 *
 * What computes the same is built in `to` with the functions of ir/build.h; a pass that looks at nodes as
 * they are added, as simplify does, sets `emit` of `to`.
 *
 * Failures are the sticky error of `to`: building functions return ASH_NO_VALUE and accept it, and the end
 * reports. A pointer into the values or nodes of `to` is good until the next node is added; lists of
 * operands and attributes stay. */
#ifndef ASH_OPT_REWRITE_H
#define ASH_OPT_REWRITE_H

#include "ir/build.h"
#include "opt.h"

/* What all passes of one run share. */
typedef struct ash_opt {
    const ash_graph *source;      /* the caller's graph: values of it are their own origin */
    const ash_target *target;     /* NULL: none */
    bool exact;                   /* leave out what may round differently */
    bool internal;                /* the present pass may make forms of the target */
    bool *kept;                   /* per value of `source`: it must survive */
    const ash_progress *progress; /* or NULL */
    uint64_t pass, passes;        /* the present one, and how many there are */
} ash_opt;

/* To be called within a pass between pieces of work that may take milliseconds. */
ash_status ash_opt__report(const ash_opt *opt, ash_diag *diag);

typedef ash_status ash_pass(const ash_opt *opt, const ash_graph *from, ash_graph **out, ash_diag *diag);

ash_pass ash_opt__dce, ash_opt__cse, ash_opt__fold, ash_opt__simplify, ash_opt__affine, ash_opt__reciprocal,
    ash_opt__quantize, ash_opt__few_bits, ash_opt__lookup, ash_opt__widen, ash_opt__layout, ash_opt__stacks,
    ash_opt__winograd, ash_opt__parts, ash_opt__filters, ash_opt__sums, ash_opt__attention, ash_opt__ranges,
    ash_opt__library, ash_opt__close;

typedef struct ash_rewrite ash_rewrite;
struct ash_rewrite {
    const ash_opt *opt;
    const ash_graph *from;
    ash_graph *to;
    ash_value *map; /* per value of `from`: its image, or ASH_NO_VALUE while it has none */
    uint32_t *
        uses; /* per value of `from`: operands of live nodes, outputs, updates and kept values that it is */
    ash_arena scratch; /* long lists of operands */
    ash_diag *diag;
};

/* Starts `to`, with the images of all inputs, parameters and states. On failure there is nothing to end. */
ash_status ash_rewrite__begin(ash_rewrite *rw, const ash_opt *opt, const ash_graph *from, ash_diag *diag);
/* Makes the updates and outputs and hands out `to`, or the sticky error. */
ash_status ash_rewrite__end(ash_rewrite *rw, ash_graph **out);
/* Ends a pass that fails for a reason that is not the sticky error; returns `status`. */
ash_status ash_rewrite__abandon(ash_rewrite *rw, ash_status status);

static inline bool ash_rewrite__ok(const ash_rewrite *rw) {
    return rw->to->status == ASH_OK;
}
/* True when a result of the node reaches an output, an update or a kept value. */
bool ash_rewrite__is_live(const ash_rewrite *rw, const ash_node *node);
/* The id that `value` of `from` has in the caller's graph, or ASH_NO_VALUE. */
ash_value ash_rewrite__origin(const ash_rewrite *rw, ash_value value);
/* True when `value` of `from` is one that the caller keeps. */
bool ash_rewrite__is_kept(const ash_rewrite *rw, ash_value value);
/* Fills constant[v], for each value of `from`: it depends on constants and parameters alone, and so is
 * computed once, in the prologue of a plan. */
void ash_rewrite__find_constants(const ash_rewrite *rw, bool *constant);
/* Fills stepped[v], for each value of `from`: some use of it reaches a step, a rounding, a cast to an
 * integer or a comparison, through sums, extremes, movement and multiples by whole numbers alone. Its last
 * bit may decide about a whole unit there, so it is not computed in another way. False when memory
 * lacked. */
bool ash_rewrite__find_stepped(ash_rewrite *rw, bool *stepped);
/* The image of `value`; constants are copied when they are first asked for. */
ash_value ash_rewrite__get(ash_rewrite *rw, ash_value value);
/* Makes `image` the image of `value` and hands on its origin. When two kept values have become one, a copy
 * of it (a reshape to its own dims) becomes the image of the second, so that both are still found. */
void ash_rewrite__bind(ash_rewrite *rw, ash_value value, ash_value image);
/* Adds the node over the images of its operands, and binds its results. */
void ash_rewrite__copy(ash_rewrite *rw, const ash_node *node);
/* Names what is added from now on like this node of `from`. */
void ash_rewrite__name(ash_rewrite *rw, const ash_node *node);

/* --- reading `to` --------------------------------------------------------------------------------- */

/* A copy of the type of a value of `to`. */
static inline ash_type ash_rewrite__type(const ash_rewrite *rw, ash_value value) {
    return *ash_graph__type(rw->to, value);
}
/* True when `value` comes from a node of that operator, which is copied to *node. */
bool ash_rewrite__def(const ash_rewrite *rw, ash_value value, ash_op op, ash_node *node);

/* One element; its dtype decides which field counts. Integers as ash_wide has them. */
typedef struct ash_number {
    ash_dtype dtype;
    union {
        double f;
        int64_t i;
    };
} ash_number;

/* True when every element of `value` is the same constant, known from the graph: a constant of one element,
 * or a broadcast of one. */
bool ash_rewrite__splat(const ash_rewrite *rw, ash_value value, ash_number *out);
static inline bool ash_type_same_dims(const ash_type *a, const ash_type *b) {
    return a->rank == b->rank && !memcmp(a->dims, b->dims, a->rank * sizeof a->dims[0]);
}
/* True when every dim is 1. */
bool ash_type_is_one(const ash_type *type);

#endif
