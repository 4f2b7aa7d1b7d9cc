/* SPDX-License-Identifier: MIT */
/* Rows of dequantised weights:
 *
 *     gather((cast(q) - zero) * scale, i)  ->  (cast(gather(q, i)) - gather(zero, i)) * gather(scale, i)
 *
 * through all that treats the rows alike, elementwise operators and movement along the other dims, down to
 * constants. So the table stays as small as in the file; dequantised in the prologue it would be several
 * times as large. Exact. Small tables, which stay in a cache, are left to the prologue. */
#include "few_bits.h"

enum { MOST_NODES = 64 /* that are computed for the rows */ };

typedef struct rows {
    ash_rewrite *rw;
    ash_dim all, count; /* rows of the table, and of the indices */
    ash_value at;       /* the indices, [count] */
    int64_t bytes;      /* of the constants that are gathered */
    unsigned nodes;
} rows;

static const ash_node *producer(const ash_graph *from, ash_value value) {
    const ash_value_info *info = ash_graph__value(from, value);
    return info->kind == ASH_VALUE_NODE ? &from->nodes.at[info->node] : NULL;
}

/* Whether a broadcast's operand has the rows, and not one for all. */
static bool has_rows(const rows *r, const ash_type *in, const ash_type *out) {
    return in->rank == out->rank && in->dims[0] == r->all;
}

static bool keeps_rows(const rows *r, const ash_node *node, const ash_type *in, const ash_type *out) {
    switch (node->op) {
    case ASH_OP_RESHAPE: return in->rank > 0 && in->dims[0] == out->dims[0];
    case ASH_OP_BROADCAST: return true;
    case ASH_OP_SLICE:
        return in->dims[0] == r->all && ash_node_list(node, ASH_ATTR_STARTS)[0] == 0 &&
               ash_node_list(node, ASH_ATTR_STEPS)[0] == 1;
    default: return false;
    }
}

/* Whether the rows of a value of `from` can be computed alone; adds up what is gathered. */
static bool measure(rows *r, ash_value value) {
    const ash_graph *from = r->rw->from;
    const ash_type *out = ash_graph__type(from, value);
    const ash_node *node = producer(from, value);
    int64_t count;
    if (out->rank == 0 || out->dims[0] != r->all || !ash_type_static_count(out, &count)) return false;
    if (!node) {
        r->bytes += count * (int64_t)ash_dtype_size(out->dtype);
        return true;
    }
    if (++r->nodes > MOST_NODES) return false;
    if (ash_op_is_elementwise(node->op)) {
        for (unsigned i = 0; i < node->n_ins; i++)
            if (!measure(r, node->ins[i])) return false;
        return true;
    }
    if (node->n_ins != 1) return false;
    const ash_type *in = ash_graph__type(from, node->ins[0]);
    if (!keeps_rows(r, node, in, out)) return false;
    return (node->op == ASH_OP_BROADCAST && !has_rows(r, in, out)) || measure(r, node->ins[0]);
}

/* The rows of what measure has seen. */
static ash_value rows_of(rows *r, ash_value value) {
    ash_rewrite *rw = r->rw;
    ash_graph *to = rw->to;
    const ash_node *node = producer(rw->from, value);
    ash_type type = *ash_graph__type(rw->from, value);
    ash_value ins[3];
    if (!node) return ash_gather(to, ash_rewrite__get(rw, value), r->at, 0);
    type.dims[0] = r->count;
    if (ash_op_is_elementwise(node->op)) {
        for (unsigned i = 0; i < node->n_ins; i++) ins[i] = rows_of(r, node->ins[i]);
        return ash_build(to, node->op, ins, node->n_ins, node->attrs, node->n_attrs);
    }
    if (node->op == ASH_OP_BROADCAST) {
        bool each = has_rows(r, ash_graph__type(rw->from, node->ins[0]), &type);
        ash_value x = each ? rows_of(r, node->ins[0]) : ash_rewrite__get(rw, node->ins[0]);
        return ash_broadcast_to(to, x, type.dims, type.rank);
    }
    ash_value x = rows_of(r, node->ins[0]);
    if (node->op == ASH_OP_RESHAPE) return ash_reshape(to, x, type.dims, type.rank);
    return ash_slice(to, x, ash_node_list(node, ASH_ATTR_STARTS), ash_node_list(node, ASH_ATTR_STEPS),
                     type.dims);
}

ash_value ash_few_bits__rows(ash_rewrite *rw, const ash_node *node, const bool *constant) {
    int64_t count;
    if (node->op != ASH_OP_GATHER || ash_node_int(node, ASH_ATTR_AXIS) != 0 || !constant[node->ins[0]])
        return ASH_NO_VALUE;
    const ash_type *table = ash_graph__type(rw->from, node->ins[0]);
    rows r = {.rw = rw, .all = table->dims[0]};
    if (!ash_type_static_count(table, &count) || !measure(&r, node->ins[0])) return ASH_NO_VALUE;
    int64_t bytes = count * (int64_t)ash_dtype_size(table->dtype);
    if (bytes <= rw->opt->target->costs.pack_bytes || r.bytes > bytes / 2) return ASH_NO_VALUE;
    ash_graph *to = rw->to;
    ash_value indices = ash_rewrite__get(rw, node->ins[1]);
    if (!ash_rewrite__ok(rw)) return ASH_NO_VALUE;
    ash_rewrite__name(rw, node);
    ash_type type = ash_rewrite__type(rw, indices), all = *ash_graph__type(rw->from, node->out);
    r.count = ash_build__product(to, &type, 0, type.rank);
    r.at = ash_reshape(to, indices, &r.count, 1);
    return ash_reshape(to, rows_of(&r, node->ins[0]), all.dims, all.rank);
}
