/* SPDX-License-Identifier: MIT */
/* Operands of integer products as bytes. */
#include "bytes.h"

enum { DEPTH = 16 }; /* nodes that are followed */

static const ash_node *producer(const ash_graph *from, ash_value value) {
    const ash_value_info *info = ash_graph__value(from, value);
    return info->kind == ASH_VALUE_NODE ? &from->nodes.at[info->node] : NULL;
}

static bool is_byte(ash_dtype dtype) {
    return dtype == ASH_U8 || dtype == ASH_I8;
}

static int64_t lowest(ash_dtype dtype) {
    return dtype == ASH_U8 ? 0 : -128;
}

/* --- finding -------------------------------------------------------------------------------------- */

bool ash_bytes__range(const ash_value_info *info, int64_t *low, int64_t *high) {
    int64_t count;
    if (info->kind != ASH_VALUE_CONSTANT || info->type.dtype != ASH_I32 || !info->blob ||
        !ash_type_static_count(&info->type, &count))
        return false;
    *low = *high = 0;
    for (int64_t i = 0; i < count; i++) {
        int32_t v;
        memcpy(&v, (const uint8_t *)info->blob->data + (size_t)i * sizeof v, sizeof v);
        *low = ASH_MIN(*low, v), *high = ASH_MAX(*high, v);
    }
    return true;
}

/* The number of a constant with one element. */
static bool number_of(const ash_graph *from, ash_value value, int64_t *number) {
    const ash_value_info *info = ash_graph__value(from, value);
    int64_t low, high;
    if (!ash_type_is_one(&info->type) || !ash_bytes__range(info, &low, &high)) return false;
    *number = low + high; /* one of them is the 0 that is included */
    return true;
}

/* Takes what is added to the source, by way of its broadcast. */
static void take_zero(const ash_graph *from, ash_value zero, int64_t sign, ash_bytes *out) {
    const ash_node *node = producer(from, zero);
    int64_t number;
    if (node && node->op == ASH_OP_BROADCAST) zero = node->ins[0];
    if (number_of(from, zero, &number)) {
        out->offset += sign * number;
        return;
    }
    out->zero = zero, out->sign = sign;
    ash_dtype dtype = ash_graph__type(from, out->source)->dtype;
    while ((node = producer(from, zero)) && node->op == ASH_OP_RESHAPE) zero = node->ins[0];
    out->zero_is_byte =
        sign < 0 && node && node->op == ASH_OP_CAST && ash_graph__type(from, node->ins[0])->dtype == dtype;
}

/* A cast of bytes, or a constant. */
static bool find_source(const ash_graph *from, ash_value value, ash_bytes *out) {
    const ash_node *node = producer(from, value);
    if (!node) {
        out->source = value;
        return ash_bytes__range(ash_graph__value(from, value), &out->low, &out->high) &&
               out->high - out->low <= 255;
    }
    if (node->op != ASH_OP_CAST || !is_byte(ash_graph__type(from, node->ins[0])->dtype)) return false;
    out->source = node->ins[0];
    out->low = lowest(ash_graph__type(from, out->source)->dtype);
    out->high = out->low + 255;
    return true;
}

static bool find(const ash_graph *from, ash_value value, unsigned depth, ash_bytes *out) {
    const ash_node *node = producer(from, value);
    if (!node) return find_source(from, value, out);
    if (depth == DEPTH) return false;
    switch (node->op) {
    case ASH_OP_CAST: return find_source(from, value, out);
    case ASH_OP_RESHAPE:
    case ASH_OP_TRANSPOSE:
    case ASH_OP_SLICE:
    case ASH_OP_BROADCAST:
        if (!find(from, node->ins[0], depth + 1, out)) return false;
        out->moved = true;
        return out->zero == ASH_NO_VALUE || ash_type_is_one(ash_graph__type(from, out->zero));
    case ASH_OP_ADD:
    case ASH_OP_SUB: {
        bool first = find_source(from, node->ins[0], out);
        if (!first && (node->op == ASH_OP_SUB || !find_source(from, node->ins[1], out))) return false;
        take_zero(from, node->ins[first ? 1 : 0], node->op == ASH_OP_SUB ? -1 : 1, out);
        return true;
    }
    default: return false;
    }
}

bool ash_bytes__find(const ash_graph *from, ash_value operand, ash_bytes *out) {
    *out = (ash_bytes){.operand = operand, .zero = ASH_NO_VALUE, .sign = 1};
    return ash_graph__type(from, operand)->dtype == ASH_I32 && find(from, operand, 0, out);
}

int64_t ash_bytes__shift(const ash_bytes *b, ash_dtype dtype) {
    int64_t least = lowest(dtype);
    return b->low >= least && b->high <= least + 255 ? 0 : b->low - least;
}

bool ash_bytes__is_centred(const ash_bytes *b, ash_dtype dtype) {
    return b->zero == ASH_NO_VALUE && ash_bytes__shift(b, dtype) + b->offset == 0;
}

/* Whether the zero point is the same along all axes of the operand but those in the set. */
static bool is_shared(const ash_graph *from, const ash_bytes *b, uint32_t but) {
    if (b->zero == ASH_NO_VALUE) return true;
    const ash_type *zero = ash_graph__type(from, b->zero), *all = ash_graph__type(from, b->operand);
    for (unsigned d = 0; d < zero->rank; d++)
        if (zero->dims[d] != 1 && !(but >> (d + all->rank - zero->rank) & 1)) return false;
    return true;
}

/* --- which nodes ---------------------------------------------------------------------------------- */

/* Whether what the padding is, 0 less the offset, is one of u8. */
static bool can_pad(const ash_bytes *x) {
    int64_t pad = -(ash_bytes__shift(x, ASH_U8) + x->offset);
    if (x->zero != ASH_NO_VALUE) return x->zero_is_byte && x->offset == 0;
    return pad >= 0 && pad <= 255;
}

static bool takes_conv(const ash_graph *from, const ash_node *node, const ash_bytes *x,
                       const ash_bytes *w) {
    const ash_type *in = ash_graph__type(from, node->ins[0]), *by = ash_graph__type(from, node->ins[1]);
    int64_t groups = ash_node_int(node, ASH_ATTR_GROUPS);
    if (in->rank >= ASH_MAX_RANK || by->rank + 4 > ASH_MAX_RANK || !ash_dim_is_const(in->dims[1]) ||
        !ash_dim_is_const(by->dims[0]) || in->dims[1] == 0 || by->dims[0] == 0)
        return false;
    if (!is_shared(from, x, 0) || !is_shared(from, w, 1) || (ash_layout__is_padded(node) && !can_pad(x)))
        return false;
    if (groups == 1) return true;
    bool depthwise = in->dims[1] == groups && by->dims[0] == groups;
    int64_t channels = depthwise ? groups : in->dims[1] / groups; /* that lie side by side */
    return channels % ASH_BYTE_TERMS == 0 && ash_bytes__is_centred(w, ASH_I8);
}

static bool takes_matmul(const ash_graph *from, const ash_node *node, const ash_bytes *a,
                         const ash_bytes *b) {
    unsigned rank = ash_graph__type(from, node->out)->rank;
    uint32_t all = (1u << rank) - 1;
    if (ash_node_int(node, ASH_ATTR_B_BLOCK) || rank + 1 >= ASH_MAX_RANK) return false;
    return is_shared(from, a, all & ~(1u << (rank - 1))) && is_shared(from, b, all & ~(1u << (rank - 2)));
}

bool ash_bytes__takes(const ash_target *target, const ash_graph *from, const ash_node *node, ash_bytes *x,
                      ash_bytes *w) {
    enum { LEAST_FILTERS = 8 }; /* of a group: fewer are no tile on a GPU */
    if (!target || !(target->kind == ASH_TARGET_CPU ? target->dot4 : target->adds[ASH_GPU_HALVES]))
        return false;
    if (node->op != ASH_OP_CONV && node->op != ASH_OP_MATMUL) return false;
    if (!ash_bytes__find(from, node->ins[0], x) || !ash_bytes__find(from, node->ins[1], w)) return false;
    if (node->op == ASH_OP_MATMUL) return takes_matmul(from, node, x, w);
    if (!takes_conv(from, node, x, w)) return false;
    int64_t filters = ash_graph__type(from, node->ins[1])->dims[0] / ash_node_int(node, ASH_ATTR_GROUPS);
    return target->kind == ASH_TARGET_CPU || filters >= LEAST_FILTERS;
}

/* --- building ------------------------------------------------------------------------------------- */

/* Numbers of another dtype as `dtype`, less `shift`. */
static ash_value in_dtype(ash_graph *to, ash_value x, int64_t shift, ash_dtype dtype) {
    if (shift) x = ash_build__with(to, ASH_OP_SUB, ash_cast(to, x, ASH_I32), (double)shift);
    return ash_cast(to, x, dtype);
}

/* The source, with the movement that lies between it and a value. */
static ash_value moved(ash_layout_pass *l, const ash_bytes *b, ash_value value) {
    const ash_graph *from = l->rw.from;
    if (value == b->source) return ash_layout__plain(l, value);
    const ash_node *node = producer(from, value);
    if (ash_op_infos[node->op].class != ASH_CLASS_MOVE) return ash_layout__plain(l, b->source);
    ash_value x = moved(l, b, node->ins[0]);
    return ash_build(l->rw.to, node->op, &x, 1, node->attrs, node->n_attrs);
}

ash_value ash_bytes__image(ash_layout_pass *l, const ash_bytes *b, ash_dtype dtype) {
    return in_dtype(l->rw.to, moved(l, b, b->operand), ash_bytes__shift(b, dtype), dtype);
}

ash_value ash_bytes__blocked(ash_layout_pass *l, const ash_bytes *b, ash_dtype dtype, int64_t block) {
    ash_value x = b->moved ? ash_layout__pack(&l->rw, moved(l, b, b->operand), block)
                           : ash_layout__blocked(l, b->source, block);
    return in_dtype(l->rw.to, x, ash_bytes__shift(b, dtype), dtype);
}

ash_value ash_bytes__offset(ash_layout_pass *l, const ash_bytes *b, ash_dtype dtype) {
    ash_graph *to = l->rw.to;
    int64_t known = ash_bytes__shift(b, dtype) + b->offset;
    if (b->zero == ASH_NO_VALUE)
        return known ? ash_build__fill(to, ASH_I32, (double)known, NULL, 0) : ASH_NO_VALUE;
    ash_value zero = ash_layout__plain(l, b->zero);
    if (ash_type_is_one(ash_graph__type(l->rw.from, b->zero))) zero = ash_reshape(to, zero, NULL, 0);
    return b->sign > 0 ? ash_build__with(to, ASH_OP_ADD, zero, (double)known)
                       : ash_build__from(to, ASH_OP_SUB, (double)known, zero);
}
