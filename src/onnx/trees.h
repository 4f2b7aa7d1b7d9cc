/* SPDX-License-Identifier: MIT */
/* Ensembles of decision trees: from nodes, as the operators of ai.onnx.ml have them, to core operators.
 *
 * Every test of a node becomes one or two of a single kind, `x'[feature] <= threshold`, where x' is the row
 * or the negated row behind it. Which of the two, and which child comes first, is chosen so that a NaN,
 * which never is at most anything, goes where the node says:
 *
 *   x <= t    x <= t                       x > t     -x <= the number before -t
 *   x < t     x <= the number before t     x == t    x <= t, then -x <= -t
 *   x >= t    -x <= -t                     in a set  a balanced tree of such tests over the sorted set
 *
 * What is left is a table of slots: feature, threshold, and where the pair of children is. The child of a
 * test that fails is the first of the pair. A leaf leads to itself, and its threshold is NaN: its test
 * fails for ever. So a step is the same for each node of each tree,
 *
 *   slot = pair[slot] + (x'[feature[slot]] <= threshold[slot])
 *
 * and as many steps as the deepest tree has tests lead all trees of all rows to their leaves. Import takes
 * O(n log n) for n nodes; nodes that several others lead to are shared. */
#ifndef ASH_ONNX_TREES_H
#define ASH_ONNX_TREES_H

#include "import.h"

typedef enum ash_tree_mode { /* as TreeEnsemble numbers them */
                             TREE_LEQ,
                             TREE_LT,
                             TREE_GTE,
                             TREE_GT,
                             TREE_EQ,
                             TREE_NEQ,
                             TREE_MEMBER,
                             TREE_LEAF
} ash_tree_mode;

typedef struct ash_tree_node {
    ash_tree_mode mode;
    bool missing;     /* a NaN goes to `yes` */
    int64_t feature;  /* not of leaves */
    double threshold; /* not of leaves and sets */
    uint32_t yes, no; /* nodes; not of leaves */
    size_t first, n;  /* a set: its members */
    int64_t tree, id; /* what messages call the node */
} ash_tree_node;

/* What a leaf adds to one of the targets. */
typedef struct ash_tree_weight {
    uint32_t node;
    int64_t target;
    double weight;
} ash_tree_weight;

typedef enum ash_tree_aggregate { TREE_AVERAGE, TREE_SUM, TREE_MIN, TREE_MAX } ash_tree_aggregate;

typedef struct ash_trees {
    ash_dtype dtype; /* f32 or f64, in which rows are compared and weights are summed */
    ash_tree_node *nodes;
    size_t n_nodes;
    uint32_t *roots; /* nodes */
    size_t n_roots;
    ash_tree_weight *weights;
    size_t n_weights;
    double *members;
    size_t n_members;
    size_t targets;
    ash_tree_aggregate aggregate;
} ash_trees;

/* The weights of the leaves that each row of operand 0 reaches, aggregated: [rows, targets]. A target that
 * no leaf adds to is 0. Refuses cycles, features that the rows lack, and trees too deep. */
ash_value ash_trees__lower(ash_import *im, ash_trees *trees);

#endif
