/* SPDX-License-Identifier: MIT */
/* Convolutions of bytes. The graph convolves i32, which ONNX does not; but what is convolved are bytes less
 * their zero points, as import makes them of ConvInteger and its kin, and that ONNX has. */
#include "write.h"

static const ash_node *node_of(const ash_graph *g, ash_value v) {
    const ash_value_info *info = ash_graph__value(g, v);
    return info->kind == ASH_VALUE_NODE ? &g->nodes.at[info->node] : NULL;
}

/* The bytes that a value is a cast of, or ASH_NO_VALUE. */
static ash_value cast_bytes(const ash_graph *g, ash_value v) {
    const ash_node *node = node_of(g, v);
    if (!node || node->op != ASH_OP_CAST) return ASH_NO_VALUE;
    ash_dtype dtype = ash_graph__type(g, node->ins[0])->dtype;
    return dtype == ASH_U8 || dtype == ASH_I8 ? node->ins[0] : ASH_NO_VALUE;
}

/* The zero points that `v` repeats: one, or, where `rows`, one for each along dim 0. */
static ash_value zero_points(const ash_graph *g, ash_value v, bool rows) {
    bool good = true;
    ash_value bytes;
    while ((bytes = cast_bytes(g, v)) == ASH_NO_VALUE) {
        const ash_node *node = node_of(g, v);
        if (!node || (node->op != ASH_OP_BROADCAST && node->op != ASH_OP_RESHAPE)) return ASH_NO_VALUE;
        v = node->ins[0];
        const ash_type *type = ash_graph__type(g, v);
        bool column = type->rank > 1;
        for (unsigned d = 1; d < type->rank; d++) column &= type->dims[d] == 1;
        good &= type->rank <= 1 || column;
    }
    int64_t count;
    const ash_type *type = ash_graph__type(g, bytes);
    bool one = ash_type_static_count(type, &count) && count == 1;
    return good && (one || (rows && type->rank == 1)) ? bytes : ASH_NO_VALUE;
}

/* v as bytes and zero points. */
static bool is_centred(const ash_graph *g, ash_value v, bool rows, ash_value *bytes, ash_value *zero) {
    const ash_node *node = node_of(g, v);
    *zero = ASH_NO_VALUE;
    if ((*bytes = cast_bytes(g, v)) != ASH_NO_VALUE) return true;
    if (!node || node->op != ASH_OP_SUB) return false;
    *bytes = cast_bytes(g, node->ins[0]);
    *zero = zero_points(g, node->ins[1], rows);
    return *bytes != ASH_NO_VALUE && *zero != ASH_NO_VALUE &&
           ash_graph__type(g, *bytes)->dtype == ash_graph__type(g, *zero)->dtype;
}

bool ash_writer__bytes(const ash_graph *g, const ash_node *node, ash_value operands[4]) {
    return node->op == ASH_OP_CONV && ash_graph__type(g, node->out)->dtype == ASH_I32 &&
           is_centred(g, node->ins[0], false, &operands[0], &operands[2]) &&
           is_centred(g, node->ins[1], true, &operands[1], &operands[3]);
}
