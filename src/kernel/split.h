/* SPDX-License-Identifier: MIT */
/* Fusion with the peak in view: groups that hold too much are split.
 *
 * A group keeps its operands until its root is computed: a sum of many branches in one kernel needs all of
 * them at once, where sum after sum needs two. So the rule is
 *
 *     the peak of live bytes is no higher than that of one kernel per node, or than a limit below it
 *
 * and where fusing as much as possible breaks it, groups are split at the moments that are too high: what
 * their nodes have computed by then is stored, and what only these needed dies.
 *
 *     x0 x1 x2 x3 ... xn           ((x0 + x1) + x2) + x3 ...      a group that spans the moment of x3:
 *        |  |  |                                                  x0, x1, x2 are held, and need not be
 *        +--+--+-- stored here: (x0 + x1) + x2, and x0, x1, x2 die
 *
 * Where that is not enough, groups store nothing beside their roots, and hold no rows' numbers (`alone` in
 * fuse.h), if the peak is lower then: they are live for longer.
 *
 * What a split costs is a store and a load of what is stored, and a kernel more. Nothing is split while the
 * rule holds, and a group that frees less than it would store is not split.
 *
 * Lives are those that the plan will have: of stored values, in the order of the groups' roots, with
 * results in place, parts in their concatenation, and views. The scratch memory of kernels is known when
 * they are lowered: who has done that may hand it in. The waits of several streams are not in it. */
#ifndef ASH_SPLIT_H
#define ASH_SPLIT_H

#include "fuse.h"

typedef struct ash_split_options {
    const ash_costs *costs; /* of the target */
    int64_t near_bytes;     /* see ash_fusion_options */
    const bool *stored;     /* per value: must be in a buffer */
    const bool *kept;       /* per value: is read after the last step */
    const bool *late;       /* per value, or NULL: see ash_fusion_options */
    bool fuse;              /* false: a group per node */
    bool freely;            /* nothing is split */
    int64_t room;           /* bytes that the peak is to stay within, below what the rule allows; 0: none */
    const int64_t *scratch; /* per node, of the whole group whose root it is: bytes of all workers; NULL */
} ash_split_options;

typedef struct ash_split_report {
    uint32_t splits;                /* values that are stored for the sake of the peak */
    int64_t fused, unfused, chosen; /* peaks of live bytes: with all groups whole, with a group per node, as
                                       it is; 0: not looked at */
} ash_split_report;

/* Groups the nodes of a graph (see ash_fusion_build) and splits groups. Takes n log n in the nodes. Freed
 * with ash_fusion_free, also after a failure. */
ash_status ash_fusion_split(const ash_graph *graph, const ash_split_options *options, ash_fusion *out,
                            ash_split_report *report, ash_diag *diag);

#endif
