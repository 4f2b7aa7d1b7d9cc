/* SPDX-License-Identifier: MIT */
/* Packing: which values have to lie in memory in their own order.
 *
 * What movement makes of a stored value is read where that lies, through the index. A kernel that takes
 * neighbours together, or reads an element often, has to find them side by side: the operands of products,
 * channels in blocks, what a window or a gather goes over. Where it would not, the value is stored as it
 * is named, by a kernel of its own; where neighbours lie evenly, or close, that would be a copy for
 * nothing. */
#include "fuse.h"

#include "index.h"

/* Begins with an index of a value, in a symbol for each dim. */
static void any_index(const ash_packing *p, ash_value value, ash_ixs *ixs, ash_sym *syms, ash_ix *at) {
    ash_ixs_init(ixs, p->graph->allocator, p->graph->dims);
    const ash_type *type = ash_graph__type(p->graph, value);
    for (unsigned d = 0; d < type->rank; d++) {
        syms[d] = ash_ix_new_sym(ixs, type->dims[d]);
        at[d] = ash_ix_sym(ixs, syms[d]);
    }
}

/* Where the element at an index lies of what movement makes of a stored value: an address. Changes `at`. */
static ash_ix address_behind(const ash_packing *p, ash_value value, ash_ixs *ixs, ash_ix *at) {
    const ash_graph *g = p->graph;
    ash_ix to[ASH_MAX_RANK] = {0}, linear = ash_ix_const(ixs, 0);
    unsigned depth = 0, turns = 0;
    while (ash_graph__value(g, value)->kind == ASH_VALUE_NODE && !p->packed[value]) {
        const ash_node *node = &g->nodes.at[ash_graph__value(g, value)->node];
        turns += ash_fuse__regroups(g, node);
        if (!ash_op_is_virtual(node->op) || node->op == ASH_OP_IOTA) break;
        if (++depth > ASH_FUSE_MAX_DEPTH || turns > ASH_FUSE_MAX_TURNS) break;
        ash_ix_behind(ixs, g, node, at, to);
        memcpy(at, to, sizeof to);
        value = node->ins[0];
    }
    const ash_type *type = ash_graph__type(g, value);
    for (unsigned d = 0; d < type->rank; d++)
        linear = ash_ix_add(ixs, ash_ix_mul(ixs, linear, type->dims[d]), at[d]);
    return linear;
}

/* Whether neighbours along a dim of what movement makes of a stored value lie at one distance: everywhere,
 * or in runs. */
static bool stride_along(ash_packing *p, ash_value value, unsigned dim, bool runs, int64_t *stride) {
    const unsigned lanes = runs ? (unsigned)p->costs->read_run : 2;
    ash_sym syms[ASH_MAX_RANK];
    ash_ix at[ASH_MAX_RANK] = {0};
    ash_ixs ixs;
    any_index(p, value, &ixs, syms, at);
    bool even =
        ash_ix_lane_stride(&ixs, address_behind(p, value, &ixs, at), syms[dim], lanes, runs, stride);
    p->failed |= ixs.failed && !ixs.too_large;
    ash_ixs_free(&ixs);
    return even;
}

/* Whether so many neighbours, at one distance in bytes, stay near until the next tile reads beside them, in
 * the same lines: the more of their lowest bits addresses share, the fewer sets of a cache they have. */
static bool lines_stay(const ash_packing *p, int64_t distance, int64_t count) {
    const int64_t line = p->costs->line_bytes, apart = distance < 0 ? -distance : distance;
    if (!p->near_bytes || apart <= line) return true;
    /* so many sets' worth of lines; a number with one bit, or a line */
    const int64_t each = ASH_MAX(apart & -apart, line);
    return each <= 0 || count <= p->near_bytes / each;
}

/* Whether neighbours along the last dim of what movement makes of a stored value lie at one distance, at
 * least in runs, and rows at one distance everywhere: then a product steps through them with an addition,
 * and a copy would gain nothing. Without the second there are no tiles of rows. Neighbours whose
 * distance is that of one set of the cache do not stay there until the next tile reads beside them; nor do
 * many of other distances in the second-level one, which is worth a copy where `columns` are many. */
static bool lies_evenly(ash_packing *p, ash_value value, ash_dim columns) {
    const ash_type *type = ash_graph__type(p->graph, value);
    unsigned rank = type->rank;
    int64_t stride;
    if (rank == 0) return true;
    if (!stride_along(p, value, rank - 1, true, &stride)) return false;
    if (rank == 1) return true;
    const int64_t apart = stride * (int64_t)ash_dtype_size(type->dtype);
    int64_t least, most;
    if (apart && apart % p->costs->set_bytes == 0) return false;
    ash_dims_bounds(p->graph->dims, columns, &least, &most);
    if (most >= p->costs->far_columns) {
        ash_dims_bounds(p->graph->dims, type->dims[rank - 1], &least, &most);
        if (!lines_stay(p, apart, most)) return false;
    }
    return stride_along(p, value, rank - 2, false, &stride);
}

/* Whether neighbours along a dim are neighbours in memory, in runs, or one element. */
static bool lies_close(ash_packing *p, ash_value value, unsigned dim) {
    int64_t stride;
    return stride_along(p, value, dim, true, &stride) && stride <= 1;
}

/* Whether what a window or a gather reads often should lie in memory as it is named: where the vectors of
 * its group, which run along the root's last axis, would not find neighbours. */
static bool needs_order(ash_packing *p, const ash_node *node, const ash_group *g, const int8_t *labels) {
    unsigned rank = ash_graph__type(p->graph, node->out)->rank, d = 0;
    if (!labels || g->n_root_axes == 0) return false;
    while (d < rank && labels[d] != (int)g->n_root_axes - 1) d++;
    if (d == rank) return false;
    if (node->op == ASH_OP_GATHER) {
        unsigned axis = (unsigned)ash_node_int(node, ASH_ATTR_AXIS),
                 indices = ash_graph__type(p->graph, node->ins[1])->rank;
        if (d >= axis && d < axis + indices) return false;
        if (d >= axis) d = d + 1 - indices;
    }
    return !lies_close(p, node->ins[0], d);
}

/* Whether a gather has as many elements as its operand, or more. */
static bool reads_all(const ash_packing *p, const ash_node *node) {
    const ash_type *x = ash_graph__type(p->graph, node->ins[0]);
    return ash_type_max_count(p->graph->dims, ash_graph__type(p->graph, node->out)) >=
           ash_type_max_count(p->graph->dims, x);
}

/* What an operand with channels in blocks lies in, where it is nothing but some blocks of that. */
static ash_value behind_blocks(const ash_packing *p, ash_value value) {
    for (;;) {
        const ash_value_info *info = ash_graph__value(p->graph, value);
        const ash_node *node = info->kind == ASH_VALUE_NODE ? &p->graph->nodes.at[info->node] : NULL;
        if (!node || node->op != ASH_OP_SLICE || ash_node_list(node, ASH_ATTR_STEPS)[1] != 1) return value;
        const ash_type *all = ash_graph__type(p->graph, node->ins[0]);
        for (unsigned d = 0; d < all->rank; d++)
            if (d != 1 && info->type.dims[d] != all->dims[d]) return value;
        value = node->ins[0];
    }
}

/* Whether a value that movement makes is taken out of dims that lie otherwise, as channels are out of
 * blocks: then what a window reads beside the edge of an image has no address of its own. */
static bool is_regrouped(const ash_packing *p, ash_value value) {
    const ash_graph *g = p->graph;
    while (ash_graph__value(g, value)->kind == ASH_VALUE_NODE && !p->packed[value]) {
        const ash_node *node = &g->nodes.at[ash_graph__value(g, value)->node];
        if (!ash_op_is_virtual(node->op) || node->op == ASH_OP_IOTA) return false;
        if (node->op == ASH_OP_RESHAPE && ash_fuse__regroups(g, node)) return true;
        value = node->ins[0];
    }
    return false;
}

ash_value ash_fuse__query_as_it_lies(ash_packing *p, const ash_node *node) {
    const unsigned rank = ash_graph__type(p->graph, node->ins[1])->rank;
    int64_t stride;
    ash_sym syms[ASH_MAX_RANK];
    ash_ix at[ASH_MAX_RANK] = {0};
    ash_ixs ixs;
    if (!ash_node_int(node, ASH_ATTR_B_BLOCK) || p->constant[node->ins[1]] ||
        ash_graph__type(p->graph, node->ins[1])->dims[rank - 2] < 1)
        return ASH_NO_VALUE;
    any_index(p, node->ins[1], &ixs, syms, at);
    ash_value query = ash_attend__query(p->graph, &ixs, node, at);
    ash_ix linear = address_behind(p, query, &ixs, at);
    bool close =
        ash_ix_lane_stride(&ixs, linear, syms[rank - 2], (unsigned)p->costs->read_run, true, &stride) &&
        stride == 1;
    p->failed |= ixs.failed && !ixs.too_large;
    ash_ixs_free(&ixs);
    return close ? query : ASH_NO_VALUE;
}

void ash_fuse__pack_operands(ash_packing *p, const ash_node *node, const ash_group *g, const int8_t *labels,
                             ash_value query) {
    for (unsigned i = 0; node->op == ASH_OP_MATMUL_BITS && i < node->n_ins; i++)
        p->packed[node->ins[i]] = true;
    const bool product = ash_op__is_matmul(node->op), conv = ash_op__is_conv(node->op),
               by_packed = product && ash_node_int(node, ASH_ATTR_B_BLOCK);
    if (by_packed && query == ASH_NO_VALUE) p->packed[node->ins[1]] = true;
    if (product) {
        const ash_type *out = ash_graph__type(p->graph, node->out);
        if (!lies_evenly(p, node->ins[0], out->dims[out->rank - 1])) p->packed[node->ins[0]] = true;
    }
    if (by_packed && ash_node__terms(p->graph, node) > 1 && /* neighbours to a step */
        !lies_close(p, node->ins[0], ash_graph__type(p->graph, node->ins[0])->rank - 1))
        p->packed[node->ins[0]] = true;
    if (node->op == ASH_OP_ATTEND &&
        !lies_close(p, node->ins[1], ash_graph__type(p->graph, node->out)->rank - 1))
        p->packed[node->ins[1]] = true;
    bool often = g->kind == ASH_GROUP_POOL || (node->op == ASH_OP_GATHER && reads_all(p, node));
    if (often && needs_order(p, node, g, labels)) p->packed[node->ins[0]] = true;
    bool tiled = conv && ash_node_int(node, ASH_ATTR_W_BLOCK);
    if (tiled) p->packed[node->ins[1]] = true;
    if (conv && (ash_node_int(node, ASH_ATTR_X_BLOCK) || (tiled && is_regrouped(p, node->ins[0]))))
        p->packed[behind_blocks(p, node->ins[0])] = true;
    if (node->op == ASH_OP_WINOGRAD)
        p->packed[behind_blocks(p, node->ins[0])] = p->packed[node->ins[1]] = true;
    if (node->op == ASH_OP_CONV_WEIGHTS) p->packed[node->ins[0]] = p->packed[node->ins[1]] = true;
}
