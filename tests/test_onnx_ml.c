/* SPDX-License-Identifier: MIT */
/* Attributes of ai.onnx.ml that are wrong, on purpose or not, and what needs strings or maps: each is an
 * error that says what, and names the node. And support vectors whose terms cancel. */

#include "ashlar/onnx.h"
#include "ashlar/plan.h"
#include "base/base.h"
#include "one_context.h"
#include "onnx_bytes.h"

static ash_diag diag;

/* --- attributes ----------------------------------------------------------------------------------- */

enum { INT = 2, FLOATS = 6, INTS = 7, STRINGS = 8, TENSOR = 4, LONGEST = 1040 };

/* A list as a text: numbers, or modes. */
typedef struct attribute {
    const char *name, *items;
} attribute;

static size_t parse(const char *items, double *out) {
    size_t n = 0;
    for (char *end; *items; items = end) {
        out[n] = strtod(items, &end);
        if (end == items) break;
        n++;
    }
    return n;
}

static void put_attr(bytes *node, const char *name, int type, const bytes *content) {
    bytes attr = {.len = 0};
    put_text(&attr, 1, name);
    put(&attr, content->at, content->len);
    put_int(&attr, 20, type);
    put_message(node, 5, &attr);
}

static void put_ints(bytes *node, const char *name, const double *numbers, size_t n) {
    bytes packed = {.len = 0}, content = {.len = 0};
    for (size_t i = 0; i < n; i++) put_varint(&packed, (uint64_t)(int64_t)numbers[i]);
    put_bytes(&content, 8, packed.at, packed.len);
    put_attr(node, name, INTS, &content);
}

static void put_floats(bytes *node, const char *name, const double *numbers, size_t n) {
    bytes content = {.len = 0};
    float list[LONGEST];
    for (size_t i = 0; i < n; i++) list[i] = (float)numbers[i];
    put_bytes(&content, 7, list, n * sizeof *list);
    put_attr(node, name, FLOATS, &content);
}

static void put_strings(bytes *node, const char *name, const char *items) {
    bytes content = {.len = 0};
    char text[32];
    for (int len; sscanf(items, "%31s%n", text, &len) == 1; items += len) put_text(&content, 9, text);
    put_attr(node, name, STRINGS, &content);
}

/* f32, or u8 where `modes`. */
static void put_tensor(bytes *node, const char *name, const double *numbers, size_t n, bool modes) {
    float list[LONGEST];
    uint8_t small[LONGEST];
    const int64_t dims[] = {(int64_t)n};
    for (size_t i = 0; i < n; i++) list[i] = (float)numbers[i], small[i] = (uint8_t)numbers[i];
    bytes tensor = modes ? make_tensor(name, 2, dims, 1, small, n)
                         : make_tensor(name, 1, dims, 1, list, n * sizeof *list),
          content = {.len = 0};
    put_message(&content, 5, &tensor);
    put_attr(node, name, TENSOR, &content);
}

/* --- models --------------------------------------------------------------------------------------- */

/* One node "culprit" on x [2, 3]. */
static ash_status parse_node(bytes *node, const char *op, ash_graph **out) {
    static const int64_t dims[] = {2, 3};
    bytes graph = {.len = 0}, x = make_info("x", dims, 2), y = make_info("y", dims, 0), set = {.len = 0};
    put_text(node, 1, "x");
    put_text(node, 2, "y");
    put_text(node, 3, "culprit");
    put_text(node, 4, op);
    put_text(node, 7, "ai.onnx.ml");
    put_message(&graph, 1, node);
    put_message(&graph, 11, &x);
    put_message(&graph, 12, &y);
    bytes model = make_model(&graph, 17);
    put_text(&set, 1, "ai.onnx.ml");
    put_int(&set, 2, 5);
    put_message(&model, 8, &set);
    *out = NULL;
    return ash_onnx_parse(context, model.at, model.len, NULL, out, &diag);
}

static ash_status import(bytes *node, const char *op) {
    ash_graph *out;
    ash_status status = parse_node(node, op, &out);
    ash_graph_destroy(out);
    return status;
}

static void refused(bytes *node, const char *op, const char *message) {
    if (import(node, op) == ASH_OK || strcmp(diag.node, "culprit") != 0 || !strstr(diag.message, message))
        fail_msg("%s: node '%s', \"%s\" instead of \"%s\"", op, diag.node, diag.message, message);
}

/* --- trees by name -------------------------------------------------------------------------------- */

enum { NODE_IDS, TREE_IDS, FEATURES, YES, NO, VALUES, MODES, TARGETS, LEAVES, LISTS };

/* A tree of two tests and three leaves, in which single lists are replaced. */
static const attribute sound[LISTS] = {{"nodes_nodeids", "0 1 2 3 4"},
                                       {"nodes_treeids", "0 0 0 0 0"},
                                       {"nodes_featureids", "0 2 0 0 0"},
                                       {"nodes_truenodeids", "1 2 0 0 0"},
                                       {"nodes_falsenodeids", "4 3 0 0 0"},
                                       {"nodes_values", "0.5 1 0 0 0"},
                                       {"nodes_modes", "BRANCH_LEQ BRANCH_GT LEAF LEAF LEAF"},
                                       {"target_ids", "0 0 0"},
                                       {"target_nodeids", "2 3 4"}};

static bytes tree(int replaced, const char *items) {
    bytes node = {.len = 0};
    double numbers[LONGEST], zeros[LONGEST] = {0};
    for (int k = 0; k < LISTS; k++) {
        const char *list = k == replaced ? items : sound[k].items;
        size_t n = parse(list, numbers);
        if (k == MODES)
            put_strings(&node, sound[k].name, list);
        else if (k == VALUES)
            put_floats(&node, sound[k].name, numbers, n);
        else
            put_ints(&node, sound[k].name, numbers, n);
    }
    put_ints(&node, "target_treeids", zeros, 3);
    put_floats(&node, "target_weights", zeros, 3);
    return node;
}

static void test_trees(void **state) {
    (void)state;
    static const struct {
        int list;
        const char *items, *message;
    } wrong[] = {
        {YES, "0 2 0 0 0", "node 0 of tree 0 leads back to itself"},
        {YES, "1 0 0 0 0", "node 0 of tree 0 leads back to itself"},
        {NO, "4 1 0 0 0", "node 1 of tree 0 leads back to itself"},
        {YES, "1 7 0 0 0", "'nodes_truenodeids' names node 7 of tree 0"},
        {NO, "-1 3 0 0 0", "'nodes_falsenodeids' names node -1 of tree 0"},
        {NODE_IDS, "0 1 2 3 3", "node 3 of tree 0 is there twice"},
        {TREE_IDS, "0 0 0 0 1", "'nodes_falsenodeids' names node 4 of tree 0"},
        {TREE_IDS, "0 0 0 0", "'nodes_nodeids' has 5 entries for 4"},
        {FEATURES, "0 3 0 0 0", "node 1 of tree 0 tests feature 3 of 3"},
        {FEATURES, "-1 0 0 0 0", "node 0 of tree 0 tests feature -1 of 3"},
        {FEATURES, "0 0", "'nodes_featureids' has 2 entries for 5"},
        {VALUES, "0 1", "'nodes_values' has 2 entries for 5"},
        {MODES, "BRANCH_LEQ BRANCH_SIDEWAYS LEAF LEAF LEAF", "a node of mode 'BRANCH_SIDEWAYS'"},
        {MODES, "BRANCH_LEQ", "'nodes_modes' has 1 entries for 5"},
        {TARGETS, "0 1 0", "'target_ids' has 1 among 1"},
        {TARGETS, "0 -1 0", "'target_ids' has -1 among 1"},
        {LEAVES, "2 3 9", "'target_nodeids' names node 9 of tree 0"},
    };
    bytes node = tree(-1, NULL);
    assert_int_equal(import(&node, "TreeEnsembleRegressor"), ASH_OK);
    for (size_t i = 0; i < ASH_COUNT(wrong); i++) {
        node = tree(wrong[i].list, wrong[i].items);
        refused(&node, "TreeEnsembleRegressor", wrong[i].message);
    }
    node = (bytes){.len = 0};
    refused(&node, "TreeEnsembleRegressor", "0 trees for 1 targets");
    /* a small file that asks for much memory */
    bytes targets = {.len = 0};
    put_int(&targets, 3, INT32_MAX);
    node = tree(-1, NULL);
    put_attr(&node, "n_targets", INT, &targets);
    refused(&node, "TreeEnsembleRegressor", "weights for 2147483647 targets");
    /* two tests with the same children: shared, not a cycle */
    node = tree(NO, "2 3 0 0 0");
    assert_int_equal(import(&node, "TreeEnsembleRegressor"), ASH_OK);
}

/* --- trees by position ---------------------------------------------------------------------------- */

enum { LEAVES_OF_CHAIN = 4 };

/* A chain of `n` tests, each with a leaf on one side; the first entry of a list may be replaced. */
static bytes chain(size_t n, double mode, const char *replaced, double first) {
    bytes node = {.len = 0};
    double ones[LONGEST], zeros[LONGEST] = {0}, next[LONGEST], leaf[LONGEST], last[LONGEST] = {0},
                          modes[LONGEST];
    for (size_t i = 0; i < n; i++)
        ones[i] = 1, next[i] = (double)(i + 1 < n ? i + 1 : 0), leaf[i] = (double)(i % LEAVES_OF_CHAIN),
        modes[i] = mode;
    last[n - 1] = 1;
    double root = 0;
    struct {
        const char *name;
        double *items;
    } lists[] = {{"nodes_featureids", zeros},  {"nodes_truenodeids", leaf}, {"nodes_trueleafs", ones},
                 {"nodes_falsenodeids", next}, {"nodes_falseleafs", last},  {"leaf_targetids", zeros}};
    for (size_t k = 0; k < ASH_COUNT(lists); k++) {
        double keep = lists[k].items[0];
        if (replaced && strcmp(replaced, lists[k].name) == 0) lists[k].items[0] = first;
        put_ints(&node, lists[k].name, lists[k].items, k == 5 ? LEAVES_OF_CHAIN : n);
        lists[k].items[0] = keep;
    }
    if (replaced && strcmp(replaced, "tree_roots") == 0) root = first;
    put_ints(&node, "tree_roots", &root, 1);
    put_tensor(&node, "nodes_modes", modes, n, true);
    put_tensor(&node, "nodes_splits", leaf, n, false);
    put_tensor(&node, "leaf_weights", leaf, LEAVES_OF_CHAIN, false);
    return node;
}

static void test_positions(void **state) {
    (void)state;
    static const struct {
        const char *list;
        double first;
        const char *message;
    } wrong[] = {
        {"nodes_truenodeids", 4, "leaf 4 of 4"},
        {"nodes_truenodeids", -1, "leaf -1 of 4"},
        {"nodes_falsenodeids", 4, "node 4 of 4"},
        {"nodes_falsenodeids", 0, "node 0 of tree 0 leads back"},
        {"tree_roots", 4, "node 4 of 4"},
        {"leaf_targetids", 1, "leaf 0 adds to target 1 of 1"},
        {"nodes_featureids", 3, "tests feature 3 of 3"},
    };
    bytes node = chain(4, 0, NULL, 0);
    assert_int_equal(import(&node, "TreeEnsemble"), ASH_OK);
    for (size_t i = 0; i < ASH_COUNT(wrong); i++) {
        node = chain(4, 0, wrong[i].list, wrong[i].first);
        refused(&node, "TreeEnsemble", wrong[i].message);
    }
    node = chain(4, 7, NULL, 0);
    refused(&node, "TreeEnsemble", "node 0 has the mode 7");
    node = chain(4, 6, NULL, 0);
    refused(&node, "TreeEnsemble", "'membership_values' has no set for node 0");
    node = chain(1030, 0, NULL, 0);
    refused(&node, "TreeEnsemble", "a tree of 1030 tests behind each other");
}

/* --- other operators ------------------------------------------------------------------------------ */

static void test_strings(void **state) {
    (void)state;
    static const struct {
        const char *op, *list, *message;
    } wrong[] = {
        {"DictVectorizer", NULL, "make the rows of features before the model"},
        {"CastMap", NULL, "it reads a map"},
        {"CategoryMapper", NULL, "map them to integers before the model"},
        {"TreeEnsembleClassifier", "classlabels_strings", "strings in attribute 'classlabels_strings'"},
        {"LinearClassifier", "classlabels_strings", "strings in attribute 'classlabels_strings'"},
        {"SVMClassifier", "classlabels_strings", "strings in attribute 'classlabels_strings'"},
        {"OneHotEncoder", "cats_strings", "strings in attribute 'cats_strings'"},
        {"LabelEncoder", "classes_strings", "strings in attribute 'classes_strings'"},
        {"LabelEncoder", "keys_strings", "strings in attribute 'keys_strings'"},
    };
    for (size_t i = 0; i < ASH_COUNT(wrong); i++) {
        bytes node = {.len = 0};
        if (wrong[i].list) put_strings(&node, wrong[i].list, "a b");
        refused(&node, wrong[i].op, wrong[i].message);
    }
    bytes maps = {.len = 0}; /* the table of scores in place of maps with strings for keys */
    put_strings(&maps, "classlabels_strings", "a b");
    assert_int_equal(import(&maps, "ZipMap"), ASH_OK);
}

static void test_numbers(void **state) {
    (void)state;
    static const double numbers[8] = {1, 2, 3, 4, 5, 6, 7, 8};
    static const struct {
        const char *op, *floats;
        size_t n;
        const char *ints;
        size_t n_ints;
        const char *message;
    } wrong[] = {
        {"Scaler", "offset", 2, NULL, 0, "2 numbers in attribute 'offset'"},
        {"Scaler", "offset", 1, NULL, 0, "0 numbers in attribute 'scale'"},
        {"Imputer", "imputed_value_floats", 4, NULL, 0, "4 numbers in attribute 'imputed_value_floats'"},
        {"LinearRegressor", "coefficients", 4, NULL, 0,
         "rows of too many or too few features in place of 4"},
        {"LinearRegressor", NULL, 0, NULL, 0, "0 coefficients for 1 results"},
        {"LinearClassifier", "coefficients", 8, "classlabels_ints", 3, "8 coefficients for 3 results"},
        {"SVMRegressor", "coefficients", 3, NULL, 0, "attribute 'rho' is missing"},
        {"SVMClassifier", "rho", 1, NULL, 0, "0 classes"},
        {"SVMClassifier", "rho", 1, "classlabels_ints", 2, "0 numbers in attribute 'coefficients'"},
        {"OneHotEncoder", NULL, 0, NULL, 0, "'cats_int64s' is missing"},
        {"LabelEncoder", "values_floats", 2, "keys_int64s", 3, "3 keys for 2 values"},
        {"LabelEncoder", "values_floats", 2, NULL, 0, "no list of keys"},
        {"FeatureVectorizer", NULL, 0, "inputdimensions", 2, "1 operands, and sizes for 2"},
    };
    for (size_t i = 0; i < ASH_COUNT(wrong); i++) {
        bytes node = {.len = 0};
        if (wrong[i].floats) put_floats(&node, wrong[i].floats, numbers, wrong[i].n);
        if (wrong[i].ints) put_ints(&node, wrong[i].ints, numbers, wrong[i].n_ints);
        refused(&node, wrong[i].op, wrong[i].message);
    }
}

/* --- values --------------------------------------------------------------------------------------- */

/* A vector that is there twice, with coefficients whose sum is 1: the kernel itself, though the terms are
 * four million times as large. All numbers are whole, and known. */
static void check_cancelling(const char *kernel, bool classifier) {
    static const double vectors[] = {257, 211, 293, 257, 211, 293}, weights[] = {1 << 22 | 1, -(1 << 22)},
                        rho[] = {-3}, params[] = {1, 0, 1}, ones[] = {1, 1}, labels[] = {4, 9};
    static const float x[] = {1, -2, 3, 2, -1, -1};
    static const float wanted[] = {257 - 2 * 211 + 3 * 293 - 3, 2 * 257 - 211 - 293 - 3};
    bytes node = {.len = 0}, text = {.len = 0}, supports = {.len = 0};
    put_floats(&node, "support_vectors", vectors, ASH_COUNT(vectors));
    put_floats(&node, "coefficients", weights, ASH_COUNT(weights));
    put_floats(&node, "rho", rho, 1);
    put_floats(&node, "kernel_params", params, ASH_COUNT(params));
    put_text(&text, 4, kernel);
    put_attr(&node, "kernel_type", 3, &text);
    if (classifier) {
        put_ints(&node, "vectors_per_class", ones, 2);
        put_ints(&node, "classlabels_ints", labels, 2);
        put_text(&node, 2, "label");
    } else {
        put_int(&supports, 3, 2);
        put_attr(&node, "n_supports", INT, &supports);
    }
    ash_graph *graph;
    ash_plan *plan;
    const ash_view *view;
    const void *data;
    assert_ok(parse_node(&node, classifier ? "SVMClassifier" : "SVMRegressor", &graph));
    assert_ok(ash_plan_prepare(context, graph, NULL, &plan, &diag));
    assert_ok(ash_plan_set_input(plan, 0, NULL, x, sizeof x, &diag));
    assert_ok(ash_plan_execute(plan, &diag));
    assert_ok(ash_plan_output(plan, 0, &view, &diag));
    assert_int_equal(ash_view_bytes(view), (classifier ? 4 : 2) * sizeof *x);
    assert_ok(ash_view_data(view, &data, &diag));
    const float *got = data;
    for (size_t row = 0; row < 2; row++) {
        assert_true(got[classifier ? 2 * row + 1 : row] == wanted[row]);
        if (classifier) assert_true(got[2 * row] == -wanted[row]);
    }
    ash_plan_destroy(plan);
    ash_graph_destroy(graph);
}

static void test_cancelling(void **state) {
    (void)state;
    for (int classifier = 0; classifier < 2; classifier++) {
        check_cancelling("LINEAR", classifier);
        check_cancelling("POLY", classifier);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_trees),   cmocka_unit_test(test_positions),  cmocka_unit_test(test_strings),
        cmocka_unit_test(test_numbers), cmocka_unit_test(test_cancelling),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
