/* SPDX-License-Identifier: MIT */
/* ai.onnx.ml: the attributes of tree ensembles, in their two spellings, and what becomes of their scores. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "ml.h"
#include "ops.h"
#include "trees.h"

static void *room(ash_import *im, size_t n, size_t size) {
    void *at = ash_arena_alloc(im->scratch, n, size);
    if (!at) ash_import__fail(im, ASH_ERROR_OUT_OF_MEMORY, "out of memory");
    return at;
}

/* The list `name` must have n entries. */
static bool fits(ash_import *im, const char *name, size_t have, size_t n) {
    if (have != n)
        ash_import__fail(im, ASH_ERROR_FORMAT, "attribute '%s' has %zu entries for %zu", name, have, n);
    return ash_import__ok(im);
}

/* The type that rows are compared in: that of the operand, and that of the attributes if it is wider. */
static ash_dtype compared_in(ash_import *im, bool wide) {
    return wide || ash_import__in_type(im, 0).dtype == ASH_F64 ? ASH_F64 : ASH_F32;
}

/* --- versions 1 and 3: nodes by tree and number ---------------------------------------------------- */

typedef struct key {
    int64_t tree, id;
    uint32_t at; /* position in the file */
} key;

static int by_name(const void *a, const void *b) {
    const key *x = a, *y = b;
    if (x->tree != y->tree) return x->tree < y->tree ? -1 : 1;
    return (x->id > y->id) - (x->id < y->id);
}

/* The position of a node; NULL and a failure when there is none. */
static const key *find(ash_import *im, const key *keys, size_t n, int64_t tree, int64_t id,
                       const char *name) {
    const key wanted = {tree, id, 0}, *hit = bsearch(&wanted, keys, n, sizeof *keys, by_name);
    if (!hit)
        ash_import__fail(im, ASH_ERROR_FORMAT,
                         "attribute '%s' names node %lld of tree %lld, which is not there", name,
                         (long long)id, (long long)tree);
    return hit;
}

static bool mode_of(ash_import *im, ash_span text, ash_tree_mode *mode) {
    static const char *const names[] = {"BRANCH_LEQ", "BRANCH_LT",  "BRANCH_GTE",    "BRANCH_GT",
                                        "BRANCH_EQ",  "BRANCH_NEQ", "BRANCH_MEMBER", "LEAF"};
    for (size_t i = 0; i < ASH_COUNT(names); i++) {
        *mode = (ash_tree_mode)i;
        if (i != TREE_MEMBER && ash_span_is(text, names[i])) return true;
    }
    ash_import__fail(im, ASH_ERROR_UNSUPPORTED, "a node of mode '%.*s'", (int)ASH_MIN(text.len, (size_t)40),
                     text.len ? (const char *)text.at : "");
    return false;
}

static const key *read_names(ash_import *im, size_t n, ash_ml_ints trees, ash_ml_ints ids) {
    key *keys = room(im, n, sizeof *keys);
    if (!keys) return NULL;
    for (size_t i = 0; i < n; i++) keys[i] = (key){trees.at[i], ids.at[i], (uint32_t)i};
    if (n) qsort(keys, n, sizeof *keys, by_name);
    for (size_t i = 1; i < n; i++)
        if (by_name(&keys[i - 1], &keys[i]) == 0)
            ash_import__fail(im, ASH_ERROR_FORMAT, "node %lld of tree %lld is there twice",
                             (long long)keys[i].id, (long long)keys[i].tree);
    return ash_import__ok(im) ? keys : NULL;
}

/* The root of a tree is its first node in the file; trees come in the order of their roots. */
static bool read_roots(ash_import *im, const key *keys, ash_trees *t) {
    bool *is_root = room(im, t->n_nodes, sizeof *is_root);
    t->roots = room(im, t->n_nodes, sizeof *t->roots);
    if (!is_root || !t->roots) return false;
    for (size_t i = 0; i < t->n_nodes;) {
        size_t first = i;
        uint32_t root = keys[i].at;
        for (; i < t->n_nodes && keys[i].tree == keys[first].tree; i++) root = ASH_MIN(root, keys[i].at);
        is_root[root] = true;
    }
    for (size_t i = 0; i < t->n_nodes; i++)
        if (is_root[i]) t->roots[t->n_roots++] = (uint32_t)i;
    return true;
}

static bool read_nodes(ash_import *im, const key *keys, ash_ml_numbers values, ash_trees *t) {
    ash_ml_ints features = ash_ml__ints(im, "nodes_featureids"),
                yes = ash_ml__ints(im, "nodes_truenodeids"), no = ash_ml__ints(im, "nodes_falsenodeids"),
                trees = ash_ml__ints(im, "nodes_treeids"), ids = ash_ml__ints(im, "nodes_nodeids"),
                missing = ash_ml__ints(im, "nodes_missing_value_tracks_true");
    const ash_onnx_attr *modes = ash_import__attr(im, "nodes_modes", ONNX_ATTR_STRINGS);
    size_t n = t->n_nodes;
    if (!fits(im, "nodes_featureids", features.n, n) || !fits(im, "nodes_truenodeids", yes.n, n) ||
        !fits(im, "nodes_falsenodeids", no.n, n) || !fits(im, "nodes_values", values.n, n) ||
        !fits(im, "nodes_modes", modes ? modes->n : 0, n))
        return false;
    t->nodes = room(im, n, sizeof *t->nodes);
    if (!t->nodes) return false;
    for (size_t i = 0; i < n; i++) {
        ash_tree_node *node = &t->nodes[i];
        *node = (ash_tree_node){.missing = i < missing.n && missing.at[i] == 1,
                                .feature = features.at[i],
                                .threshold = values.at[i],
                                .tree = trees.at[i],
                                .id = ids.at[i]};
        if (!mode_of(im, modes->strings[i], &node->mode)) return false;
        if (node->mode == TREE_LEAF) continue;
        const key *to_yes = find(im, keys, n, node->tree, yes.at[i], "nodes_truenodeids"),
                  *to_no = find(im, keys, n, node->tree, no.at[i], "nodes_falsenodeids");
        if (!to_yes || !to_no) return false;
        node->yes = to_yes->at, node->no = to_no->at;
    }
    return true;
}

/* The weights of leaves; `what` is "target" or "class". */
static bool read_weights(ash_import *im, const key *keys, const char *what, ash_ml_numbers weights,
                         ash_trees *t) {
    char id_name[24], tree_name[24], node_name[24];
    snprintf(id_name, sizeof id_name, "%s_ids", what);
    snprintf(tree_name, sizeof tree_name, "%s_treeids", what);
    snprintf(node_name, sizeof node_name, "%s_nodeids", what);
    ash_ml_ints ids = ash_ml__ints(im, id_name), trees = ash_ml__ints(im, tree_name),
                nodes = ash_ml__ints(im, node_name);
    size_t n = t->n_weights = weights.n;
    if (!fits(im, id_name, ids.n, n) || !fits(im, tree_name, trees.n, n) ||
        !fits(im, node_name, nodes.n, n))
        return false;
    t->weights = room(im, n, sizeof *t->weights);
    for (size_t i = 0; i < n && t->weights; i++) {
        const key *leaf = find(im, keys, t->n_nodes, trees.at[i], nodes.at[i], node_name);
        if (!leaf) return false;
        if (ids.at[i] < 0 || (uint64_t)ids.at[i] >= t->targets) {
            ash_import__fail(im, ASH_ERROR_OUT_OF_RANGE, "attribute '%s' has %lld among %zu", id_name,
                             (long long)ids.at[i], t->targets);
            return false;
        }
        t->weights[i] = (ash_tree_weight){leaf->at, ids.at[i], weights.at[i]};
    }
    return t->weights != NULL;
}

/* What all versions of the two older operators have, for `targets` targets. */
static bool read_ensemble(ash_import *im, const char *what, size_t targets, ash_trees *t,
                          ash_ml_numbers *base) {
    char name[24];
    snprintf(name, sizeof name, "%s_weights", what);
    ash_ml_numbers values = ash_ml__floats(im, "nodes_values"), weights = ash_ml__floats(im, name);
    ash_ml_ints trees = ash_ml__ints(im, "nodes_treeids"), ids = ash_ml__ints(im, "nodes_nodeids");
    *base = ash_ml__floats(im, "base_values");
    if (!fits(im, "nodes_nodeids", ids.n, trees.n)) return false;
    if (trees.n > INT32_MAX / 4) {
        ash_import__fail(im, ASH_ERROR_BUDGET, "trees of %zu nodes", trees.n);
        return false;
    }
    *t = (ash_trees){.dtype = compared_in(im, values.wide || weights.wide || base->wide),
                     .n_nodes = trees.n,
                     .targets = targets,
                     .aggregate = TREE_SUM};
    const key *keys = read_names(im, t->n_nodes, trees, ids);
    return keys && read_roots(im, keys, t) && read_nodes(im, keys, values, t) &&
           read_weights(im, keys, what, weights, t);
}

/* --- version 5: nodes and leaves by position ------------------------------------------------------- */

typedef struct positions {
    ash_ml_ints yes, no, yes_leaf, no_leaf;
    size_t nodes, leaves;
} positions;

/* The node that a position stands for: leaves follow the nodes. */
static bool node_at(ash_import *im, const positions *p, int64_t at, bool leaf, uint32_t *out) {
    size_t count = leaf ? p->leaves : p->nodes;
    if (at < 0 || (uint64_t)at >= count) {
        ash_import__fail(im, ASH_ERROR_OUT_OF_RANGE, "%s %lld of %zu", leaf ? "leaf" : "node",
                         (long long)at, count);
        return false;
    }
    *out = (uint32_t)((leaf ? p->nodes : 0) + (size_t)at);
    return true;
}

/* Sets are listed in the order of the nodes that ask for them, and end with a NaN. */
static bool read_sets(ash_import *im, ash_trees *t, size_t n, ash_ml_numbers members) {
    size_t at = 0;
    t->members = room(im, members.n, sizeof *t->members);
    if (!t->members) return false;
    if (members.n) memcpy(t->members, members.at, members.n * sizeof *t->members);
    for (size_t i = 0; i < n; i++) {
        if (t->nodes[i].mode != TREE_MEMBER) continue;
        if (at >= members.n) {
            ash_import__fail(im, ASH_ERROR_FORMAT, "attribute 'membership_values' has no set for node %zu",
                             i);
            return false;
        }
        t->nodes[i].first = at;
        while (at < members.n && members.at[at] == members.at[at]) at++;
        t->nodes[i].n = at++ - t->nodes[i].first;
    }
    return true;
}

static bool read_positions(ash_import *im, const positions *p, ash_trees *t, ash_ml_numbers splits,
                           ash_ml_numbers modes) {
    ash_ml_ints features = ash_ml__ints(im, "nodes_featureids"),
                missing = ash_ml__ints(im, "nodes_missing_value_tracks_true");
    if (!fits(im, "nodes_modes", modes.n, p->nodes) || !fits(im, "nodes_splits", splits.n, p->nodes) ||
        !fits(im, "nodes_truenodeids", p->yes.n, p->nodes) ||
        !fits(im, "nodes_falsenodeids", p->no.n, p->nodes) ||
        !fits(im, "nodes_trueleafs", p->yes_leaf.n, p->nodes) ||
        !fits(im, "nodes_falseleafs", p->no_leaf.n, p->nodes) ||
        !fits(im, "nodes_featureids", features.n, p->nodes))
        return false;
    t->n_nodes = p->nodes + p->leaves;
    t->nodes = room(im, t->n_nodes, sizeof *t->nodes);
    if (!t->nodes) return false;
    for (size_t i = 0; i < p->nodes; i++) {
        ash_tree_node *node = &t->nodes[i];
        if (!(modes.at[i] >= TREE_LEQ && modes.at[i] <= TREE_MEMBER)) {
            ash_import__fail(im, ASH_ERROR_UNSUPPORTED, "node %zu has the mode %g", i, modes.at[i]);
            return false;
        }
        *node = (ash_tree_node){.mode = (ash_tree_mode)modes.at[i],
                                .missing = i < missing.n && missing.at[i] == 1,
                                .feature = features.at[i],
                                .threshold = splits.at[i],
                                .id = (int64_t)i};
        if (!node_at(im, p, p->yes.at[i], p->yes_leaf.at[i] != 0, &node->yes) ||
            !node_at(im, p, p->no.at[i], p->no_leaf.at[i] != 0, &node->no))
            return false;
    }
    for (size_t i = p->nodes; i < t->n_nodes; i++) t->nodes[i].mode = TREE_LEAF;
    return true;
}

void ash_onnx__op_ml_tree_ensemble(ash_import *im) {
    ash_ml_numbers splits = ash_ml__tensor(im, "nodes_splits"), modes = ash_ml__tensor(im, "nodes_modes"),
                   weights = ash_ml__tensor(im, "leaf_weights"),
                   members = ash_ml__tensor(im, "membership_values");
    ash_ml_ints roots = ash_ml__ints(im, "tree_roots"), targets = ash_ml__ints(im, "leaf_targetids");
    int64_t n = ash_import__attr_int(im, "n_targets", 1), transform,
            aggregate = ash_import__attr_int(im, "aggregate_function", TREE_SUM);
    transform = ash_import__attr_int(im, "post_transform", ML_NONE);
    const positions p = {ash_ml__ints(im, "nodes_truenodeids"),
                         ash_ml__ints(im, "nodes_falsenodeids"),
                         ash_ml__ints(im, "nodes_trueleafs"),
                         ash_ml__ints(im, "nodes_falseleafs"),
                         modes.n,
                         weights.n};
    if (n < 1 || n > INT32_MAX || aggregate < TREE_AVERAGE || aggregate > TREE_MAX || transform < ML_NONE ||
        transform > ML_PROBIT || p.nodes + p.leaves > INT32_MAX / 4)
        ash_import__fail(im, ASH_ERROR_FORMAT, "%lld targets, aggregated by %lld, transformed by %lld",
                         (long long)n, (long long)aggregate, (long long)transform);
    ash_trees t = {.dtype = compared_in(im, splits.wide || weights.wide || members.wide),
                   .roots = room(im, roots.n, sizeof *t.roots),
                   .n_roots = roots.n,
                   .weights = room(im, p.leaves, sizeof *t.weights),
                   .n_weights = p.leaves,
                   .targets = (size_t)n,
                   .aggregate = (ash_tree_aggregate)aggregate};
    if (!ash_import__ok(im) || !fits(im, "leaf_targetids", targets.n, p.leaves)) return;
    if (!read_positions(im, &p, &t, splits, modes) || !read_sets(im, &t, p.nodes, members)) return;
    for (size_t r = 0; r < roots.n; r++)
        if (!node_at(im, &p, roots.at[r], false, &t.roots[r])) return;
    for (size_t i = 0; i < p.leaves; i++) {
        if (targets.at[i] < 0 || targets.at[i] >= n) {
            ash_import__fail(im, ASH_ERROR_OUT_OF_RANGE, "leaf %zu adds to target %lld of %lld", i,
                             (long long)targets.at[i], (long long)n);
            return;
        }
        t.weights[i] = (ash_tree_weight){(uint32_t)(p.nodes + i), targets.at[i], weights.at[i]};
    }
    ash_value y = ash_ml__transform(im, ash_trees__lower(im, &t), (ash_ml_transform)transform, ML_ALONE);
    ash_import__out(im, 0, ash_cast(im->graph, y, ash_import__in_type(im, 0).dtype));
}

/* --- regression ----------------------------------------------------------------------------------- */

static ash_value plus(ash_import *im, ash_value y, ash_ml_numbers base) {
    ash_dtype dtype = ash_import__type(im, y).dtype;
    if (base.n == 0) return y;
    return ash_add(im->graph, y, ash_ml__constant(im, dtype, base.at, 1, base.n));
}

void ash_onnx__op_ml_tree_regressor(ash_import *im) {
    static const ash_tree_aggregate aggregates[] = {TREE_SUM, TREE_AVERAGE, TREE_MIN, TREE_MAX};
    int64_t n = ash_import__attr_int(im, "n_targets", 1);
    ash_ml_transform transform = ash_ml__transform_of(im);
    ash_trees t;
    ash_ml_numbers base;
    if (n < 1 || n > INT32_MAX) ash_import__fail(im, ASH_ERROR_FORMAT, "%lld targets", (long long)n);
    if (!ash_import__ok(im) || !read_ensemble(im, "target", (size_t)n, &t, &base)) return;
    t.aggregate = aggregates[ASH_IMPORT_CHOICE(im, "aggregate_function", "SUM", "AVERAGE", "MIN", "MAX")];
    if (base.n && !fits(im, "base_values", base.n, (size_t)n)) return;
    ash_value y = plus(im, ash_trees__lower(im, &t), base);
    ash_import__out(im, 0, ash_cast(im->graph, ash_ml__transform(im, y, transform, ML_ALONE), ASH_F32));
}

/* --- classification ------------------------------------------------------------------------------- */

/* Which classes have weights; room for one more. */
static bool *weighted(ash_import *im, const ash_trees *t) {
    bool *has = room(im, t->targets + 1, sizeof *has);
    for (size_t i = 0; i < t->n_weights && has; i++) has[t->weights[i].target] = true;
    return has;
}

/* Two classes: one score decides, and which, and against what, depends on the classes that have weights and
 * on the number of base values. A score without weights is 0, whatever its base value. */
static void two_classes(ash_import *im, ash_value scores, const ash_trees *t, ash_ml_numbers base,
                        ash_ml_ints labels, ash_ml_transform transform) {
    const bool *has = weighted(im, t);
    bool positive = true;
    if (!has) return;
    for (size_t i = 0; i < t->n_weights; i++) positive &= t->weights[i].weight >= 0;
    bool one = has[0] != has[1];
    ash_value first = ash_slice_axis(im->graph, scores, 1, 0, 1),
              second = ash_slice_axis(im->graph, scores, 1, 1, 1);
    ash_type column = ash_import__type(im, first);
    ash_value zero = ash_build__fill(im->graph, column.dtype, 0, column.dims, column.rank);
    ash_ml_second other = one ? positive ? ML_COMPLEMENT : ML_OPPOSITE : ML_ALONE;
    if (base.n == 2 && has[1]) { /* the first base value is not used, nor the second score */
        second = ash_build__with(im->graph, ASH_OP_ADD, first, base.at[1]);
        first = ash_neg(im->graph, second);
    } else if (base.n) {
        first = ash_build__with(im->graph, ASH_OP_ADD, first, base.at[0]);
    }
    ash_value deciding = ash_build__drop_axis(im->graph, has[1] ? second : first, 1);
    ash_value chosen = ash_build__from(im->graph, ASH_OP_LT, one && positive ? 0.5 : 0, deciding);
    const ash_value both[] = {has[0] ? first : zero, has[1] ? second : zero};
    ash_value z = has[1] || base.n == 2 ? ash_concat(im->graph, both, 2, 1) : first;
    ash_import__out(im, 0, ash_ml__either(im, chosen, one ? labels.at[0] : 0, one ? labels.at[1] : 1));
    ash_import__out(im, 1, ash_cast(im->graph, ash_ml__transform(im, z, transform, other), ASH_F32));
}

/* The class with the largest score, among those that have weights or base values. */
static ash_value best_class(ash_import *im, ash_value scores, const ash_trees *t, ash_ml_numbers base) {
    const bool *has = weighted(im, t);
    double *mask = room(im, t->targets, sizeof *mask);
    size_t count = 0;
    if (!has || !mask) return ASH_NO_VALUE;
    for (size_t k = 0; k < t->targets; k++) count += has[k], mask[k] = has[k] ? INFINITY : -INFINITY;
    if (base.n == 0 && count < t->targets)
        scores = ash_min(im->graph, scores,
                         ash_ml__constant(im, ash_import__type(im, scores).dtype, mask, 1, t->targets));
    return ash_ml__best(im, scores);
}

void ash_onnx__op_ml_tree_classifier(ash_import *im) {
    if (!ash_ml__no_strings(im, "classlabels_strings")) return;
    ash_ml_ints labels = ash_ml__ints(im, "classlabels_int64s");
    ash_ml_transform transform = ash_ml__transform_of(im);
    ash_trees t;
    ash_ml_numbers base;
    if (!ash_import__ok(im) || !read_ensemble(im, "class", labels.n, &t, &base)) return;
    if (base.n && !(labels.n == 2 && base.n == 1) && !fits(im, "base_values", base.n, labels.n)) return;
    ash_value scores = ash_trees__lower(im, &t), y;
    if (labels.n == 2) {
        two_classes(im, scores, &t, base, labels, transform);
        return;
    }
    scores = plus(im, scores, base);
    if (labels.n == 1) {
        ash_value positive =
            ash_build__from(im->graph, ASH_OP_LT, 0, ash_build__drop_axis(im->graph, scores, 1));
        y = ash_ml__either(im, positive, 0, 1);
    } else {
        y = ash_ml__labels(im, best_class(im, scores, &t, base), labels);
    }
    ash_import__out(im, 0, y);
    ash_import__out(im, 1,
                    ash_cast(im->graph, ash_ml__transform(im, scores, transform, ML_ALONE), ASH_F32));
}
