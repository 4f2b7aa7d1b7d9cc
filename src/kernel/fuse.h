/* SPDX-License-Identifier: MIT */
/* Fusion: which nodes become one kernel.
 *
 * Nodes are visited last to first, so that all users of a value are placed before its producer. A producer
 * joins its users' group when they are all in one group, reach the value at the same index, and the
 * group's shape of loop allows it; else it becomes the root of a group of its own, and its result is
 * stored. Since a group takes a node only when it holds all of the node's users, groups never depend on
 * each other in a circle, and their roots in node order are a valid schedule.
 *
 * A group has iteration axes: the dims of its root, then, when the root is smaller than what is reduced,
 * the reduced axes. Each value in the group is labelled with the axis that runs along each of its dims.
 * Movement (reshape, transpose, broadcast, slice, iota) is virtual: it belongs to no group, and is
 * resolved in the index wherever it is read. So is dequantisation, casts and scales of one byte, where
 * several groups read it: it is computed by each of them.
 *
 *   map      every element of the root from the same elements of the operands
 *   rows     reductions over one common set of axes, and what is computed from them: softmax, normalisation
 *   pool     a window reduction and what is computed from its result
 *   tile     a matrix product or convolution and what is computed from its result
 *   concat   parts that lie side by side; the parts' own kernels write them there where that is possible
 *   other    argreduce, cumsum, topk, nonzero, nms, scatter: a kernel of its own each;
 *            settle: a step that is none
 *
 * Numbers of a row that others read as well, the mean that a variance is taken from, the largest and the
 * sum of a softmax's row, are computed by the group of rows that is their first reader, and stored beside
 * its root: its readers' roots come later, so the order stays a schedule.
 *
 * The road not taken: merging groups pairwise until nothing improves finds more (several outputs,
 * horizontal fusion) but needs a cost model to be stable, and a cycle check for each step. */
#ifndef ASH_FUSE_H
#define ASH_FUSE_H

#include "base/costs.h"
#include "index.h"
#include "ir/ir.h"

enum { ASH_MAX_AXES = 2 * ASH_MAX_RANK, ASH_MAX_GROUP = 256 };

typedef enum ash_group_kind {
    ASH_GROUP_MAP,
    ASH_GROUP_ROWS,
    ASH_GROUP_POOL,
    ASH_GROUP_TILE,
    ASH_GROUP_CONCAT,
    ASH_GROUP_OTHER
} ash_group_kind;

#define ASH_NO_GROUP UINT32_MAX
#define ASH_NO_NODE  UINT32_MAX

typedef struct ash_group {
    ash_group_kind kind;
    uint32_t root;   /* node whose outputs are stored, in the end */
    uint32_t anchor; /* the pooling, product or convolution, or ASH_NO_NODE */
    uint32_t scores; /* of an anchor that attends: the product that its scores are made from, in tiles, or
                        ASH_NO_NODE */
    const uint32_t *nodes;      /* ascending */
    uint32_t n_nodes, n_beside; /* of which so many are stored beside the root */
    bool constant;              /* depends on constants and parameters alone: runs in the prologue */
    unsigned n_axes, n_root_axes;
    ash_dim extents[ASH_MAX_AXES];
    uint32_t reduced; /* rows: bit per axis that is reduced; 0 while there is none */
} ash_group;

enum { ASH_LABEL_NONE = -1 }; /* a dim of 1, or one that no axis runs along */

typedef struct ash_fusion {
    const ash_allocator *allocator;
    ASH_VEC(ash_group) groups;      /* in descending order of their roots */
    uint32_t *group_of;             /* per node; ASH_NO_GROUP for what is computed wherever it is read */
    int8_t (*labels)[ASH_MAX_RANK]; /* per node in a group: axis along each dim of its (first) output */
    bool *beside; /* per node in a group of rows: its result, one number for each row, is stored as well */
    bool *constant;    /* per value */
    bool *moved;       /* per value: a part of a state's new value, of its old one's elements elsewhere */
    uint32_t *members; /* what the groups' lists of nodes point into */
    size_t n_nodes, n_values;
    bool anew; /* something that is no movement is computed wherever it is read */
} ash_fusion;

/* Movement that exists only in indices. */
bool ash_op_is_virtual(ash_op op);

/* Whether a reduction is over a dim of its operand. */
bool ash_node_reduces_dim(const ash_node *node, unsigned dim);
/* Whether a node is a reduction over nothing but dims of 1 (or over no axis): it only drops dims, and is
 * computed like an elementwise operator. */
bool ash_node_reduces_nothing(const ash_graph *graph, const ash_node *node);

typedef struct ash_fusion_options {
    const ash_costs *costs; /* of the target */
    int64_t near_bytes;     /* of the target: what of a product's first operand stays near; 0: all of it */
    const bool *stored;     /* per value: must be in a buffer (outputs, kept values) */
    const bool *late;       /* per value, or NULL: the first part need not have it (cut.h). Nothing
                               else is stored beside such a root */
    bool fuse;              /* false: each node that is not virtual is a group */
    bool alone; /* groups store nothing beside their roots, and rows' numbers are not held so that what is
                   made of them can be computed anew */
} ash_fusion_options;

/* Groups the nodes of a graph. Freed with ash_fusion_free, also after a failure. */
ash_status ash_fusion_build(const ash_graph *graph, const ash_fusion_options *options, ash_fusion *out,
                            ash_diag *diag);
void ash_fusion_free(ash_fusion *fusion);

/* A value is computed by going back through the nodes that are evaluated by demand, one call deeper for
 * each, and its index is rewritten by each of them. Both are bounded, so that lowering needs little stack
 * and time that grows with the nodes: past these numbers a value is stored. */
enum {
    ASH_FUSE_MAX_DEPTH = 96, /* nodes one behind the other */
    ASH_FUSE_MAX_TURNS = 3   /* reshapes that regroup dims: each multiplies the terms of an address by the
                                rank */
};

/* fuse.c: whether a reshape does more than add and drop dims of 1; false for all other nodes. */
bool ash_fuse__regroups(const ash_graph *graph, const ash_node *node);

/* fuse_pack.c: which values have to lie in memory in their own order, as far as their readers have been
 * placed. */
typedef struct ash_packing {
    const ash_graph *graph;
    const ash_costs *costs;
    int64_t near_bytes;   /* see ash_fusion_options */
    const bool *constant; /* per value */
    bool *packed; /* per value: must lie in memory in its own order, also as the result of movement */
    bool failed;  /* out of memory */
} ash_packing;

/* The queries that a product of scores reads as they lie, terms side by side, and packs itself, or
 * ASH_NO_VALUE: it finds them packed, which costs nothing where they are constants. */
ash_value ash_fuse__query_as_it_lies(ash_packing *p, const ash_node *node);
/* Marks what a node of a group reads and has to find packed. `labels`: the group's axes along the dims of
 * its result, or NULL where the group rearranges that; `query`: what the function above says of a product
 * of scores, else ASH_NO_VALUE. */
void ash_fuse__pack_operands(ash_packing *p, const ash_node *node, const ash_group *g, const int8_t *labels,
                             ash_value query);

/* fuse_light.c: marks the values that are the same in every execution, and those that are made of
 * reductions' results element by element; per value. */
void ash_fuse__mark_constants(const ash_graph *graph, bool *constant);
void ash_fuse__mark_from_reduction(const ash_graph *graph, bool *from);
/* fuse_light.c: marks the values that are computed by each group that reads them rather than stored, and
 * those that are made of the results of several reductions, element by element. Both are zeroed before.
 * False: no memory. */
bool ash_fuse__mark_light(const ash_graph *graph, const ash_fusion_options *options, const bool *constant,
                          bool *light, bool *meets);

/* fuse_old.c: marks `moved` of ash_fusion, which is zeroed before. False: no memory. */
bool ash_fuse__mark_moved(const ash_graph *graph, bool *moved);

/* attend_query.c: what the queries of a product that makes scores are packed from, at an index of the
 * product's second operand, which becomes one of theirs; or that operand itself, where it is not seen to be
 * blocks of rows with nothing but more rows behind them. */
ash_value ash_attend__query(const ash_graph *graph, ash_ixs *ixs, const ash_node *product, ash_ix *at);

#endif
