/* SPDX-License-Identifier: MIT */
/* Modes of operators that are not supported: each is an error that says what, and names the node. */

#include "ashlar/onnx.h"
#include "base/base.h"
#include "one_context.h"
#include "onnx_bytes.h"

static ash_diag diag;

/* Operands are f32[2, 4, 8]; a digit says which of the first ten there are. */
typedef struct refusal {
    const char *op, *operands;
    struct {
        const char *name;
        int64_t value;
    } attrs[4];
    const char *message;
} refusal;

static const refusal refusals[] = {
    {"MatMulNBits", "01", {{"bits", 3}, {"block_size", 32}, {"K", 8}, {"N", 8}}, "weights of 3 bits"},
    {"MatMulNBits", "01", {{"bits", 4}, {"block_size", 24}, {"K", 8}, {"N", 8}}, "blocks of 24"},
    {"MatMulNBits", "0124", {{"block_size", 32}, {"K", 8}, {"N", 8}}, "columns in groups (g_idx)"},
    {"MatMulNBits", "012", {{"weight_prepacked", 1}}, "the layout of one device"},
    {"MatMulNBits", "012", {{"block_size", 32}, {"K", 0}, {"N", 8}}, "a weight of 8 by 0"},
    {"GatherBlockQuantized", "012", {{"block_size", 32}}, "other weights than rows of bytes"},
    {"MultiHeadAttention", "0", {{"num_heads", 2}}, "values of rank 3 that are not packed"},
    {"MultiHeadAttention", "0128", {{"num_heads", 2}}, "a cache that is shared with the results"},
    {"MultiHeadAttention", "012", {{"num_heads", 3}}, "does not split into 3 heads"},
    {"MultiHeadAttention", "0124", {{"num_heads", 2}}, "a mask of another length than the keys"},
    {"GroupQueryAttention", "012345", {{"sliding_window_cache", 1}}, "sliding_window_cache"},
    {"GroupQueryAttention", "0123", {{"num_heads", 2}}, "half of a cache"},
    {"GroupQueryAttention", "01", {{"num_heads", 2}}, "keys without values"},
    {"GroupQueryAttention", "0126", {{"num_heads", 2}, {"kv_num_heads", 1}}, "must be known at import"},
    {"RotaryEmbedding", "0123", {{"is_packed_batching", 1}}, "is_packed_batching"},
    {"MatMulBnb4", "012", {{"block_size", 0}, {"K", 8}, {"N", 8}}, "in blocks of 0"},
    {"MatMulBnb4", "012", {{"block_size", 32}, {"K", 8}, {"N", 8}, {"quant_type", 2}}, "of type 2"},
    {"CausalConvWithState", "01", {{"channels_last", 1}}, "channels_last = 1"},
    {"CausalConvWithState", "01", {{"ndim", 2}}, "ndim = 2"},
    {"LinearAttention", "012", {{"state_window", 3}}, "state_window = 3"},
    {"LinearAttention",
     "012",
     {{"q_num_heads", 2}, {"kv_num_heads", 4}},
     "2 heads of queries for 4 of keys"},
    {"GroupNorm", "012", {{"activation", 2}, {"groups", 2}}, "the activation 2"},
    {"GroupNorm", "012", {{"groups", 3}}, "3 groups of a tensor of rank 3"},
    {"MoE", "0124", {{"use_sparse_mixer", 1}}, "(use_sparse_mixer)"},
    {"MoE", "0124", {{"none", 0}}, "scores of rank 3 for 1 of 0 experts"},
    {"QMoE", "0123456", {{"weights_prepacked", 1}}, "the layout of one device (weights_prepacked)"},
    {"QMoE", "0123456", {{"expert_weight_bits", 3}}, "other than 2, 4 or 8 bits"},
    {"QMoE", "0123456", {{"block_size", 24}}, "blocks of 24"},
    {"CDist", "01", {{"none", 0}}, "operands that are not matrices"},
};

static bytes make(const refusal *r) {
    static const int64_t dims[] = {2, 4, 8};
    bytes graph = {.len = 0}, node = {.len = 0}, out = make_info("y", dims, 0), set = {.len = 0};
    for (int k = 0, last = r->operands[strlen(r->operands) - 1] - '0'; k <= last; k++) {
        char name[] = {(char)('0' + k), 0};
        bool given = strchr(r->operands, name[0]) != NULL;
        put_text(&node, 1, given ? name : "");
        if (!given) continue;
        bytes in = make_info(name, dims, 3);
        put_message(&graph, 11, &in);
    }
    put_text(&node, 2, "y");
    put_text(&node, 3, "culprit");
    put_text(&node, 4, r->op);
    put_text(&node, 7, "com.microsoft");
    for (size_t i = 0; i < ASH_COUNT(r->attrs) && r->attrs[i].name; i++) {
        bytes attr = {.len = 0};
        put_text(&attr, 1, r->attrs[i].name);
        put_int(&attr, 3, r->attrs[i].value);
        put_int(&attr, 20, 2);
        put_message(&node, 5, &attr);
    }
    put_message(&graph, 1, &node);
    put_message(&graph, 12, &out);
    bytes model = make_model(&graph, 17);
    put_text(&set, 1, "com.microsoft");
    put_int(&set, 2, 1);
    put_message(&model, 8, &set);
    return model;
}

static void test_modes(void **state) {
    (void)state;
    for (size_t i = 0; i < ASH_COUNT(refusals); i++) {
        bytes model = make(&refusals[i]);
        ash_graph *graph = NULL;
        if (ash_onnx_parse(context, model.at, model.len, NULL, &graph, &diag) == ASH_OK ||
            strcmp(diag.node, "culprit") != 0 || !strstr(diag.message, refusals[i].message))
            fail_msg("%s: node '%s', \"%s\" instead of \"%s\"", refusals[i].op, diag.node, diag.message,
                     refusals[i].message);
    }
}

/* Data of four bits become bytes, and only DequantizeLinear forgets the difference. */
static void test_four_bits(void **state) {
    (void)state;
    static const int64_t dims[] = {3};
    bytes graph = {.len = 0}, node = make_node("culprit", "Neg", "w", NULL, "y"),
          y = make_info("y", dims, 1);
    bytes weight = make_tensor("w", 22, dims, 1, "\x21\x03", 2), out = make_info("w", dims, 1);
    put_message(&graph, 1, &node);
    put_message(&graph, 5, &weight);
    put_message(&graph, 12, &y);
    bytes model = make_model(&graph, 21);
    ash_graph *graph_out = NULL;
    assert_int_equal(ash_onnx_parse(context, model.at, model.len, NULL, &graph_out, &diag),
                     ASH_ERROR_UNSUPPORTED);
    assert_string_equal(diag.node, "culprit");
    assert_non_null(strstr(diag.message, "type int4"));

    graph.len = 0; /* an output may be of such a type: the graph has bytes, and says so */
    put_message(&graph, 5, &weight);
    put_message(&graph, 12, &out);
    model = make_model(&graph, 21);
    assert_ok(ash_onnx_parse(context, model.at, model.len, NULL, &graph_out, &diag));
    assert_int_equal(ash_graph_output_narrow(graph_out, 0), ASH_NARROW_I4);
    assert_int_equal(ash_graph_output_narrow(graph_out, 1), ASH_NARROW_NONE);
    assert_int_equal(ash_graph_type(graph_out, ash_graph_output_at(graph_out, 0, NULL))->dtype, ASH_I8);
    ash_graph_destroy(graph_out);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_modes),
        cmocka_unit_test(test_four_bits),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
