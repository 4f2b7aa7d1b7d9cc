/* SPDX-License-Identifier: MIT */
#include "trees.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>

#include "ml.h"

enum {
    DEEPEST = 1024, /* tests from a root to a leaf */
    NONE = UINT32_MAX
};

/* A slot to be: one test, or a leaf. Those that a test leads to come before it. */
typedef struct test {
    int32_t feature;     /* past the last one: negated */
    uint32_t fail, pass; /* tests; of a leaf NONE */
    uint32_t leaf;       /* its node */
    uint32_t depth;      /* tests on the longest way to a leaf */
    uint32_t pair;       /* slot of the children, once they have one, or NONE */
    double threshold;
} test;

typedef struct builder {
    ash_import *im;
    ash_trees *t;
    ash_dim features;
    ASH_VEC(test) tests;
    uint32_t *entry;     /* per node: its first test, or NONE */
    uint32_t *end;       /* per node that compares for equality: the one behind the chain that it begins */
    size_t chained;      /* members that chains have made of tests for equality */
    bool plain, negated; /* some test reads the row; the negated row */
    bool failed;         /* out of memory */
} builder;

/* --- tests ---------------------------------------------------------------------------------------- */

static uint32_t add_test(builder *b, test t) {
    t.pair = NONE;
    b->failed |= !ash_vec_push(b->im->allocator, &b->tests, t);
    return (uint32_t)(b->failed ? 0 : b->tests.len - 1);
}

/* The largest number below x, or the largest that is not above it. Denormal ones are zero where the test
 * runs, so there is none of them between 0 and the least of the others. */
static double number_before(const builder *b, double x, bool below) {
    bool wide = b->t->dtype == ASH_F64;
    double least = wide ? DBL_MIN : (double)FLT_MIN;
    if (!(fabs(x) < least) && (x != least || !below)) {
        if (!below) return x;
        return wide ? nextafter(x, -INFINITY) : (double)nextafterf((float)x, -INFINITY);
    }
    return x > 0 || (x == 0 && !below) ? 0 : -least;
}

/* `x mode threshold`, which a NaN fails, whatever the mode; an ordered one. */
static uint32_t compare(builder *b, int64_t feature, ash_tree_mode mode, double threshold, uint32_t pass,
                        uint32_t fail) {
    bool negated = mode == TREE_GTE || mode == TREE_GT;
    if (pass == fail) return pass;
    if (negated) threshold = -threshold;
    bool below = mode == TREE_LT || mode == TREE_GT;
    threshold = below && threshold == -INFINITY ? NAN : number_before(b, threshold, below);
    if (negated)
        b->negated = true;
    else
        b->plain = true;
    return add_test(b, (test){.feature = (int32_t)(negated ? feature + b->features : feature),
                              .threshold = threshold,
                              .pass = pass,
                              .fail = fail,
                              .leaf = NONE,
                              .depth = 1 + ASH_MAX(b->tests.at[pass].depth, b->tests.at[fail].depth)});
}

/* The same where a NaN goes to `yes` when it is `missing`. */
static uint32_t ordered(builder *b, int64_t feature, ash_tree_mode mode, double threshold, bool missing,
                        uint32_t yes, uint32_t no) {
    static const ash_tree_mode opposite[] = {
        [TREE_LEQ] = TREE_GT, [TREE_LT] = TREE_GTE, [TREE_GTE] = TREE_LT, [TREE_GT] = TREE_LEQ};
    if (isnan(threshold)) /* never; and at most infinity is what is a number */
        return missing ? compare(b, feature, TREE_LEQ, INFINITY, no, yes) : no;
    if (missing) return compare(b, feature, opposite[mode], threshold, no, yes);
    return compare(b, feature, mode, threshold, yes, no);
}

static uint32_t equal(builder *b, int64_t feature, double x, bool missing, uint32_t yes, uint32_t no) {
    if (isnan(x) || yes == no) return ordered(b, feature, TREE_LEQ, NAN, missing, yes, no);
    uint32_t inner = ordered(b, feature, TREE_GTE, x, missing, yes, no);
    if (missing) return compare(b, feature, TREE_GT, x, no, inner);
    return compare(b, feature, TREE_LEQ, x, inner, no);
}

/* Of n sorted numbers, at least one. */
static uint32_t among(builder *b, int64_t feature, const double *set, size_t n, bool missing, uint32_t yes,
                      uint32_t no) {
    if (n == 1) return equal(b, feature, set[0], missing, yes, no);
    size_t half = n / 2;
    uint32_t low = among(b, feature, set, half, missing, yes, no),
             high = among(b, feature, set + half, n - half, missing, yes, no);
    return b->failed ? 0 : compare(b, feature, TREE_LEQ, set[half - 1], low, high);
}

static int by_number(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static uint32_t member(builder *b, int64_t feature, double *set, size_t n, bool missing, uint32_t yes,
                       uint32_t no) {
    size_t kept = 0;
    for (size_t i = 0; i < n; i++)
        if (!isnan(set[i])) set[kept++] = set[i];
    n = kept, kept = 0;
    if (n) qsort(set, n, sizeof *set, by_number);
    for (size_t i = 0; i < n; i++)
        if (!kept || set[kept - 1] != set[i]) set[kept++] = set[i];
    if (kept == 0) return ordered(b, feature, TREE_LEQ, NAN, missing, yes, no);
    return among(b, feature, set, kept, missing, yes, no);
}

/* --- nodes ---------------------------------------------------------------------------------------- */

/* Whether a test for equality goes on with `b`, and both together ask for a set: converters write sets as
 * chains. */
static bool goes_on(const ash_tree_node *a, const ash_tree_node *b) {
    return b->mode == TREE_EQ && b->feature == a->feature && b->yes == a->yes && b->missing == a->missing;
}

/* The node behind the chain that a node begins. All chains together are no longer than there are nodes. */
static uint32_t end_of_chain(builder *b, uint32_t n) {
    const ash_tree_node *nodes = b->t->nodes;
    uint32_t end = nodes[n].no;
    while (goes_on(&nodes[n], &nodes[end]) && b->chained < b->t->n_nodes) end = nodes[end].no, b->chained++;
    return end;
}

static uint32_t chain(builder *b, uint32_t n) {
    const ash_tree_node *nodes = b->t->nodes, *node = &nodes[n];
    uint32_t yes = b->entry[node->yes], no = b->entry[b->end[n]];
    size_t count = 1, i = 0;
    for (uint32_t m = node->no; m != b->end[n]; m = nodes[m].no) count++;
    double *set = ash_arena_alloc(b->im->scratch, count, sizeof *set);
    b->failed |= !set;
    if (b->failed) return 0;
    for (uint32_t m = n; i < count; m = nodes[m].no) set[i++] = nodes[m].threshold;
    return member(b, node->feature, set, count, node->missing, yes, no);
}

/* The tests of a node whose children have theirs. */
static uint32_t expand(builder *b, uint32_t n) {
    const ash_tree_node *node = &b->t->nodes[n];
    if (node->mode == TREE_LEAF) return add_test(b, (test){.leaf = n, .pass = NONE, .fail = NONE});
    uint32_t yes = b->entry[node->yes], no = b->entry[node->no];
    switch (node->mode) {
    case TREE_EQ: return chain(b, n);
    case TREE_NEQ: return equal(b, node->feature, node->threshold, false, no, yes); /* as NaN is */
    case TREE_MEMBER:
        return member(b, node->feature, b->t->members + node->first, node->n, node->missing, yes, no);
    default: return ordered(b, node->feature, node->mode, node->threshold, node->missing, yes, no);
    }
}

static bool check_node(builder *b, uint32_t n) {
    const ash_tree_node *node = &b->t->nodes[n];
    if (node->mode == TREE_LEAF || (node->feature >= 0 && node->feature < b->features)) return true;
    ash_import__fail(b->im, ASH_ERROR_OUT_OF_RANGE, "node %lld of tree %lld tests feature %lld of %lld",
                     (long long)node->id, (long long)node->tree, (long long)node->feature,
                     (long long)b->features);
    return false;
}

/* Makes the tests of all nodes that a root leads to, children first, each once. */
static bool expand_from(builder *b, uint32_t root, uint8_t *state, uint32_t *stack) {
    enum { NEW, OPEN, DONE };
    size_t depth = 0;
    stack[depth++] = root;
    while (depth && !b->failed) {
        uint32_t n = stack[depth - 1];
        const ash_tree_node *node = &b->t->nodes[n];
        if (state[n] == NEW) {
            state[n] = OPEN;
            if (!check_node(b, n)) return false;
            b->end[n] = node->mode == TREE_EQ ? end_of_chain(b, n) : node->no;
        }
        uint32_t next = NONE;
        if (state[n] == OPEN && node->mode != TREE_LEAF)
            next = state[b->end[n]] != DONE ? b->end[n] : state[node->yes] != DONE ? node->yes : NONE;
        if (next == NONE) {
            if (state[n] == OPEN) b->entry[n] = expand(b, n);
            state[n] = DONE, depth--;
        } else if (state[next] == OPEN) {
            ash_import__fail(b->im, ASH_ERROR_FORMAT, "node %lld of tree %lld leads back to itself",
                             (long long)b->t->nodes[next].id, (long long)b->t->nodes[next].tree);
            return false;
        } else {
            stack[depth++] = next; /* each open node once: no deeper than there are nodes */
        }
    }
    return !b->failed;
}

static bool expand_all(builder *b) {
    const ash_trees *t = b->t;
    uint8_t *state = ash_arena_alloc(b->im->scratch, t->n_nodes, 1);
    uint32_t *stack = ash_arena_alloc(b->im->scratch, t->n_nodes + 1, sizeof *stack);
    b->entry = ash_arena_alloc(b->im->scratch, t->n_nodes, sizeof *b->entry);
    b->end = ash_arena_alloc(b->im->scratch, t->n_nodes, sizeof *b->end);
    b->failed |= !state || !stack || !b->entry || !b->end;
    for (size_t r = 0; r < t->n_roots && !b->failed; r++)
        if (!expand_from(b, t->roots[r], state, stack)) return false;
    return !b->failed;
}

/* --- weights -------------------------------------------------------------------------------------- */

static bool sums(const ash_trees *t) {
    return t->aggregate == TREE_SUM || t->aggregate == TREE_AVERAGE;
}

static double neutral(const ash_trees *t) {
    return sums(t) ? 0 : t->aggregate == TREE_MIN ? INFINITY : -INFINITY;
}

static double aggregate(const ash_trees *t, double a, double b) {
    return sums(t) ? a + b : t->aggregate == TREE_MIN ? fmin(a, b) : fmax(a, b);
}

/* A row of weights per leaf, and in `row` which one is a node's. */
static double *leaf_rows(builder *b, uint32_t *row, size_t columns) {
    const ash_trees *t = b->t;
    size_t leaves = 0;
    for (size_t i = 0; i < t->n_nodes; i++)
        if (t->nodes[i].mode == TREE_LEAF) row[i] = (uint32_t)leaves++;
    double *rows = ash_arena_alloc(b->im->scratch, leaves * columns, sizeof *rows);
    if (!rows) return NULL;
    for (size_t i = 0; i < leaves * columns; i++) rows[i] = neutral(t);
    for (size_t i = 0; i < t->n_weights; i++) {
        const ash_tree_weight *w = &t->weights[i];
        if (t->nodes[w->node].mode != TREE_LEAF) continue; /* old converters write such */
        double *at = &rows[row[w->node] * columns + (columns == 1 ? 0 : (size_t)w->target)];
        *at = aggregate(t, *at, w->weight);
    }
    return rows;
}

/* --- slots ---------------------------------------------------------------------------------------- */

typedef struct slots {
    int64_t *feature, *pair;
    double *threshold, *weights;
    size_t n;
} slots;

/* Gives the children of the tests that a root leads to their slots, level by level. `slots->n` slots are
 * taken; `test_of` says whose they are. */
static void place(builder *b, size_t root, uint32_t *test_of, size_t *n) {
    for (size_t at = *n, s = root;; s = at++) {
        test *t = &b->tests.at[test_of[s]];
        if (t->pass != NONE && t->pair == NONE) {
            t->pair = (uint32_t)*n;
            test_of[(*n)++] = t->fail;
            test_of[(*n)++] = t->pass;
        }
        if (at == *n) break;
    }
}

static bool make_slots(builder *b, size_t columns, slots *out) {
    ash_import *im = b->im;
    const ash_trees *t = b->t;
    uint64_t most = im->options->max_bytes ? im->options->max_bytes : (uint64_t)1 << 30;
    size_t room = t->n_roots + 2 * b->tests.len, n = t->n_roots;
    if ((room + t->n_nodes) * (uint64_t)columns > most / sizeof(double) || room > INT32_MAX) {
        ash_import__fail(im, ASH_ERROR_BUDGET, "trees with %zu nodes and weights for %zu targets",
                         t->n_nodes, t->targets);
        return false;
    }
    uint32_t *test_of = ash_arena_alloc(im->scratch, room, sizeof *test_of);
    uint32_t *row = ash_arena_alloc(im->scratch, t->n_nodes, sizeof *row);
    double *rows = row ? leaf_rows(b, row, columns) : NULL;
    if (!test_of || !rows) return false;
    for (size_t r = 0; r < t->n_roots; r++) test_of[r] = b->entry[t->roots[r]];
    for (size_t r = 0; r < t->n_roots; r++) place(b, r, test_of, &n);
    *out = (slots){ash_arena_alloc(im->scratch, n, sizeof *out->feature),
                   ash_arena_alloc(im->scratch, n, sizeof *out->pair),
                   ash_arena_alloc(im->scratch, n, sizeof *out->threshold),
                   ash_arena_alloc(im->scratch, n * columns, sizeof *out->weights), n};
    if (!out->feature || !out->pair || !out->threshold || !out->weights) return false;
    int64_t first = b->plain ? 0 : b->features; /* of what the tests read */
    for (size_t s = 0; s < n; s++) {
        const test *is = &b->tests.at[test_of[s]];
        bool leaf = is->pass == NONE;
        out->feature[s] = leaf ? 0 : is->feature - first;
        out->threshold[s] = leaf ? NAN : is->threshold;
        out->pair[s] = leaf ? (int64_t)s : is->pair;
        if (leaf)
            memcpy(&out->weights[s * columns], &rows[row[is->leaf] * columns],
                   columns * sizeof *out->weights);
    }
    return true;
}

/* --- core operators ------------------------------------------------------------------------------- */

static ash_value table(ash_import *im, ash_dtype dtype, size_t n, const int64_t *ints,
                       const double *floats) {
    const ash_type type = {.dtype = dtype, .rank = 1, .dims = {(ash_dim)n}};
    return ints ? ash_build__ints(im->graph, &type, ints) : ash_build__floats(im->graph, &type, floats);
}

enum { WORD = 32 }; /* bits of a feature with a pair */

/* Of all slots: thresholds; and feature and pair in one number, the pair in its low bits, or a table of
 * each. */
typedef struct tables {
    ash_value threshold;
    ash_value places; /* u32; ASH_NO_VALUE: there are the others */
    unsigned pair_bits;
    ash_value feature, pair;
} tables;

/* Looking up costs more than arithmetic, and large tables are in no cache: feature and pair are one number
 * where they fit one. */
static tables make_tables(builder *b, const slots *s, int64_t features) {
    ash_import *im = b->im;
    tables t = {.threshold = table(im, b->t->dtype, s->n, NULL, s->threshold), .places = ASH_NO_VALUE};
    while (t.pair_bits < WORD && (uint64_t)s->n > UINT64_C(1) << t.pair_bits) t.pair_bits++;
    if ((uint64_t)features > UINT64_C(1) << (WORD - t.pair_bits)) {
        t.feature = table(im, ASH_I32, s->n, s->feature, NULL);
        t.pair = table(im, ASH_I32, s->n, s->pair, NULL);
        return t;
    }
    int64_t *places = ash_arena_alloc(im->scratch, s->n, sizeof *places);
    if (!places) {
        ash_import__fail(im, ASH_ERROR_OUT_OF_MEMORY, "out of memory");
        return t;
    }
    for (size_t i = 0; i < s->n; i++)
        places[i] = (int64_t)((uint64_t)s->feature[i] << t.pair_bits | (uint64_t)s->pair[i]);
    t.places = table(im, ASH_U32, s->n, places, NULL);
    return t;
}

/* What the tests read: the rows, the negated rows, or both side by side. */
static ash_value read_rows(builder *b, ash_value x) {
    ash_import *im = b->im;
    if (!b->negated) return x;
    const ash_value both[] = {x, ash_neg(im->graph, x)};
    return b->plain ? ash_concat(im->graph, both, 2, 1) : both[1];
}

/* A step of all trees whose slots these are. */
static ash_value step(ash_import *im, ash_value x, ash_value slot, const tables *t) {
    ash_graph *g = im->graph;
    ash_value feature, pair;
    if (t->places == ASH_NO_VALUE) {
        feature = ash_gather(g, t->feature, slot, 0);
        pair = ash_gather(g, t->pair, slot, 0);
    } else {
        const double pairs = (double)((UINT64_C(1) << t->pair_bits) - 1);
        ash_value place = ash_gather(g, t->places, slot, 0);
        feature = ash_cast(g, ash_build__with(g, ASH_OP_SHR, place, t->pair_bits), ASH_I32);
        pair = ash_cast(g, ash_build__with(g, ASH_OP_AND, place, pairs), ASH_I32);
    }
    ash_value number = ash_gather_elements(g, x, feature, 2);
    ash_value passes = ash_le(g, number, ash_gather(g, t->threshold, slot, 0));
    return ash_add(g, pair, ash_cast(g, passes, ASH_I32));
}

/* How many trees of a group, the deepest of which are its first, have more tests than `depth` behind each
 * other: the most of all groups. */
static size_t deeper(const builder *b, size_t groups, size_t n, unsigned depth) {
    const ash_trees *t = b->t;
    size_t each = t->n_roots / groups, most = 0;
    for (size_t g = 0; g < groups; g++)
        while (most < n && b->tests.at[b->entry[t->roots[g * each + most]]].depth > depth) most++;
    return most;
}

/* The leaves' slots, [rows, groups, each]: trees are numbered through the groups. Trees that have come to
 * their leaves are left behind, where they are many. */
static ash_value walk(builder *b, ash_value x, const slots *s, size_t groups) {
    enum { MOST_PARTS = 64, MANY = 64 /* trees */ };
    ash_import *im = b->im;
    const ash_dim trees = (ash_dim)b->t->n_roots, each = trees / (ash_dim)groups;
    const ash_dim apart[] = {1, (ash_dim)groups, each};
    const ash_dim all[] = {ash_import__type(im, x).dims[0], (ash_dim)groups, each};
    x = read_rows(b, x);
    const ash_dim wide[] = {all[0], (ash_dim)groups, ash_import__type(im, x).dims[1]};
    x = ash_broadcast_to(im->graph, ash_build__insert_axis(im->graph, x, 1), wide, 3);
    const tables t = make_tables(b, s, ash_import__type(im, x).dims[2]);
    ash_value slot = ash_iota(im->graph, ASH_I32, &trees, 1, 0), parts[MOST_PARTS];
    slot = ash_broadcast_to(im->graph, ash_reshape(im->graph, slot, apart, 3), all, 3);
    size_t n = (size_t)each, first = MOST_PARTS; /* trees that go on; the first of `parts` */
    for (unsigned depth = 0; n && ash_import__ok(im); depth++) {
        size_t left = deeper(b, groups, n, depth);
        if (left == 0 || (left <= n - n / 4 && (n - left) * groups >= MANY && first > 1)) {
            parts[--first] = ash_slice_axis(im->graph, slot, 2, (ash_dim)left, (ash_dim)(n - left));
            slot = left ? ash_slice_axis(im->graph, slot, 2, 0, (ash_dim)left) : slot;
            n = left;
        }
        if (n) slot = step(im, x, slot, &t);
    }
    return ash_import__ok(im) ? ash_concat(im->graph, &parts[first], MOST_PARTS - first, 2) : ASH_NO_VALUE;
}

/* --- trees for one target each -------------------------------------------------------------------- */

/* Puts trees that add to the same target next to each other, when each tree has one target and each target
 * equally many trees: then the sum over a group of trees is that of its target, and no weight of another
 * one is read. */
static bool group_by_target(builder *b) {
    ash_trees *t = b->t;
    ash_arena *arena = b->im->scratch;
    if (t->targets == 1) return true;
    if (t->n_roots % t->targets) return false;
    int64_t *target = ash_arena_alloc(arena, t->n_nodes, sizeof *target); /* of a node's tree, or -1 */
    uint32_t *ordered_roots = ash_arena_alloc(arena, t->n_roots, sizeof *ordered_roots);
    size_t *filled = ash_arena_alloc(arena, t->targets, sizeof *filled), each = t->n_roots / t->targets;
    b->failed |= !target || !ordered_roots || !filled;
    if (b->failed) return false;
    for (size_t i = 0; i < t->n_nodes; i++) target[i] = -1;
    for (size_t i = 0; i < t->n_weights; i++) {
        const ash_tree_weight *w = &t->weights[i];
        if (t->nodes[w->node].mode != TREE_LEAF) continue;
        if (target[w->node] >= 0 && target[w->node] != w->target) return false;
        target[w->node] = w->target;
    }
    /* Tests come after those that they lead to: what is known of both children is known of them. */
    int64_t *of_test = ash_arena_alloc(arena, b->tests.len, sizeof *of_test);
    if (!of_test) return b->failed = true, false;
    for (size_t i = 0; i < b->tests.len; i++) {
        const test *is = &b->tests.at[i];
        if (is->pass == NONE) {
            of_test[i] = target[is->leaf];
            continue;
        }
        int64_t fail = of_test[is->fail], pass = of_test[is->pass];
        if (fail >= 0 && pass >= 0 && fail != pass) return false;
        of_test[i] = ASH_MAX(fail, pass);
    }
    for (size_t r = 0; r < t->n_roots; r++) {
        int64_t k = of_test[b->entry[t->roots[r]]];
        if (k < 0 || filled[k] == each) return false;
        ordered_roots[(size_t)k * each + filled[k]++] = t->roots[r];
    }
    t->roots = ordered_roots;
    return true;
}

typedef struct ranked {
    uint32_t root, depth;
    size_t position;
} ranked;

static int by_depth(const void *a, const void *b) {
    const ranked *x = a, *y = b;
    if (x->depth != y->depth) return x->depth < y->depth ? 1 : -1;
    return x->position < y->position ? -1 : x->position > y->position;
}

/* Puts the deepest trees of each group first. */
static void sort_by_depth(builder *b, size_t groups) {
    ash_trees *t = b->t;
    size_t each = t->n_roots / groups;
    ranked *list = ash_arena_alloc(b->im->scratch, t->n_roots, sizeof *list);
    b->failed |= !list;
    if (b->failed) return;
    for (size_t r = 0; r < t->n_roots; r++)
        list[r] = (ranked){t->roots[r], b->tests.at[b->entry[t->roots[r]]].depth, r};
    for (size_t g = 0; g < groups; g++) qsort(&list[g * each], each, sizeof *list, by_depth);
    for (size_t r = 0; r < t->n_roots; r++) t->roots[r] = list[r].root;
}

static ash_value aggregated(builder *b, const slots *s, ash_value leaves, size_t groups) {
    ash_import *im = b->im;
    const ash_trees *t = b->t;
    ash_value weights = ash_ml__constant(im, t->dtype, s->weights, s->n, t->targets / groups), y;
    uint32_t trees = 4; /* the axis of a group's trees */
    if (groups == t->targets)
        weights = ash_build__drop_axis(im->graph, weights, 1);
    else
        trees |= 2;
    weights = ash_gather(im->graph, weights, leaves, 0);
    if (sums(t)) {
        /* In f64, where equally many equal weights have the same sum in any order: votes that are tied stay
         * tied, and the class is that of the training program. */
        weights = ash_cast(im->graph, weights, ASH_F64);
        y = ash_build__reduce(im->graph, ASH_OP_REDUCE_SUM, weights, trees, false);
        y = ash_cast(im->graph, y, t->dtype);
        return t->aggregate == TREE_SUM ? y : ash_build__with(im->graph, ASH_OP_DIV, y, (double)t->n_roots);
    }
    y = ash_build__reduce(im->graph, t->aggregate == TREE_MIN ? ASH_OP_REDUCE_MIN : ASH_OP_REDUCE_MAX,
                          weights, trees, false);
    ash_value nothing = ash_build__with(im->graph, ASH_OP_EQ, y, neutral(t));
    return ash_select(im->graph, nothing, ash_scalar(im->graph, t->dtype, 0), y);
}

static ash_value lower(builder *b) {
    ash_import *im = b->im;
    ash_trees *t = b->t;
    ash_value x = ash_ml__rows(im, t->dtype, 0);
    if (!ash_import__ok(im)) return ASH_NO_VALUE;
    b->features = ash_import__type(im, x).dims[1];
    if (!ash_dim_is_const(b->features) || b->features > INT32_MAX / 2)
        return ash_import__fail(im, ASH_ERROR_UNSUPPORTED, "rows whose number of features is not known");
    if (!expand_all(b)) return ASH_NO_VALUE;
    unsigned depth = 0;
    for (size_t r = 0; r < t->n_roots; r++)
        depth = ASH_MAX(depth, b->tests.at[b->entry[t->roots[r]]].depth);
    if (depth > DEEPEST)
        return ash_import__fail(im, ASH_ERROR_BUDGET, "a tree of %u tests behind each other, more than %d",
                                depth, DEEPEST);
    size_t groups = group_by_target(b) ? t->targets : 1, columns = t->targets / groups;
    slots s;
    sort_by_depth(b, groups);
    if (b->failed) return ASH_NO_VALUE;
    if (!make_slots(b, columns, &s)) {
        b->failed = true;
        return ASH_NO_VALUE;
    }
    return aggregated(b, &s, walk(b, x, &s, groups), groups);
}

ash_value ash_trees__lower(ash_import *im, ash_trees *trees) {
    builder b = {.im = im, .t = trees};
    if (!ash_import__ok(im)) return ASH_NO_VALUE;
    if (trees->n_roots == 0 || trees->targets == 0)
        return ash_import__fail(im, ASH_ERROR_FORMAT, "%zu trees for %zu targets", trees->n_roots,
                                trees->targets);
    ash_value y = lower(&b);
    ash_vec_free(im->allocator, &b.tests);
    if (b.failed) return ash_import__fail(im, ASH_ERROR_OUT_OF_MEMORY, "out of memory");
    return y;
}
