/* SPDX-License-Identifier: MIT */
#include "fuse.h"

/* What the users of a value ask of it, as far as they have been visited. */
typedef enum request_state {
    UNUSED,
    LABELLED,   /* read by one group, always at `labels` */
    REARRANGED, /* read by one group, each element at most once, at some other index */
    STORED,     /* read by several groups or at several indices: in a buffer, unless it is light */
    OPERAND     /* in a buffer: a reader needs one, or reads an element many times */
} request_state;

typedef struct request {
    request_state state;
    uint32_t group;
    bool repeated; /* LABELLED: the group reads an element more than once, along axes without a label */
    uint8_t depth, turns; /* the most nodes that a group goes back through to come here, and reshapes that
                             regroup dims among them */
    int8_t labels[ASH_MAX_RANK];
} request;

typedef struct fuser {
    const ash_graph *graph;
    const ash_costs *costs;
    ash_fusion *fusion;
    const bool *late;  /* per value, or NULL: see ash_fusion_build */
    request *requests; /* per value */
    request *nearest;  /* per value: what is asked of it by the group that has the first root, alone */
    /* Per value: computed element by element from a reduction's result. Such a value is taken into a group
     * that repeats it along some axes before the reduction itself is seen: most often that one follows, and
     * makes the group rows. */
    bool *from_reduction;
    bool *meets; /* per value: computed element by element from results of several reductions */
    bool *light; /* per value: made of one byte, of positions, or of one number that is stored beside it,
                     and computed anew by each group that reads it */
    ash_packing packing; /* what has to lie in memory in its own order */
    bool fuse, alone;
} fuser;

bool ash_op_is_virtual(ash_op op) {
    return op == ASH_OP_RESHAPE || op == ASH_OP_TRANSPOSE || op == ASH_OP_BROADCAST || op == ASH_OP_SLICE ||
           op == ASH_OP_IOTA;
}

bool ash_node_reduces_dim(const ash_node *node, unsigned dim) {
    const ash_attr *axes = ash_node_attr(node, ASH_ATTR_AXES);
    for (uint32_t i = 0; i < axes->count; i++)
        if (axes->list[i] == dim) return true;
    return false;
}

bool ash_node_reduces_nothing(const ash_graph *graph, const ash_node *node) {
    if (!ash_op_is_reduction(node->op)) return false;
    const ash_type *in = ash_graph__type(graph, node->ins[0]);
    for (unsigned d = 0; d < in->rank; d++)
        if (in->dims[d] != 1 && ash_node_reduces_dim(node, d)) return false;
    return true;
}

static bool is_pointwise(const fuser *f, const ash_node *node) {
    return ash_op_is_elementwise(node->op) || node->op == ASH_OP_PAD ||
           ash_op_infos[node->op].class == ASH_CLASS_GATHER || ash_node_reduces_nothing(f->graph, node);
}

/* --- requests ------------------------------------------------------------------------------------- */

/* Adds a request to what has been asked before. */
static void add_request(request *r, const request *wanted) {
    if (r->state == UNUSED) {
        *r = *wanted;
        return;
    }
    r->depth = ASH_MAX(r->depth, wanted->depth);
    r->turns = ASH_MAX(r->turns, wanted->turns);
    bool same = r->state == LABELLED && wanted->state == LABELLED && r->group == wanted->group &&
                !memcmp(r->labels, wanted->labels, sizeof r->labels);
    if (!same)
        r->state = ASH_MAX(STORED, ASH_MAX(r->state, wanted->state));
    else
        r->repeated |= wanted->repeated;
}

/* The same among those of the group with the first root, which is the one that was made last. */
static void add_nearest(request *r, const request *wanted) {
    if (r->state == UNUSED || wanted->group > r->group)
        *r = *wanted;
    else if (wanted->state != UNUSED && wanted->group == r->group)
        add_request(r, wanted);
}

static void ask(fuser *f, ash_value value, const request *wanted) {
    add_request(&f->requests[value], wanted);
    add_nearest(&f->nearest[value], wanted);
}

/* What a node that is asked for so asks of its operands. */
static request one_further(request r) {
    r.depth++;
    return r;
}

static void ask_stored(fuser *f, ash_value value, const request *of_result) {
    const request wanted = {
        .state = OPERAND, .group = of_result->group, .depth = of_result->depth, .turns = of_result->turns};
    ask(f, value, &wanted);
    f->requests[value].state = OPERAND;
}

/* The operand's labels behind a broadcast: a dim that is repeated has none. */
static void through_broadcast(const ash_type *in, const ash_type *out, request *r) {
    request from = *r;
    unsigned skip = out->rank - in->rank;
    for (unsigned d = 0; d < out->rank; d++) {
        bool kept = d >= skip && in->dims[d - skip] == out->dims[d];
        if (!kept && out->dims[d] != 1) r->repeated = true;
        if (d >= skip) r->labels[d - skip] = kept ? from.labels[d] : ASH_LABEL_NONE;
    }
}

/* Movement of which no axis runs along a dim of the operand. */
static void rearrange(request *r) {
    r->state = r->repeated ? STORED : REARRANGED;
    memset(r->labels, ASH_LABEL_NONE, sizeof r->labels);
}

/* The operand's labels behind a reshape that only adds or drops dims of 1; otherwise the elements are
 * rearranged. */
static void through_reshape(const ash_type *in, const ash_type *out, request *r) {
    request from = *r;
    unsigned o = 0;
    for (unsigned i = 0; i < in->rank; i++) {
        r->labels[i] = ASH_LABEL_NONE;
        if (in->dims[i] == 1) continue;
        while (o < out->rank && out->dims[o] == 1) o++;
        if (o == out->rank || out->dims[o] != in->dims[i]) {
            rearrange(r);
            return;
        }
        r->labels[i] = from.labels[o++];
    }
}

bool ash_fuse__regroups(const ash_graph *graph, const ash_node *node) {
    if (node->op != ASH_OP_RESHAPE) return false;
    request r = {.state = LABELLED};
    through_reshape(ash_graph__type(graph, node->ins[0]), ash_graph__type(graph, node->out), &r);
    return r.state != LABELLED;
}

/* What a request for a virtual node's result asks of its operand. */
static request behind(const fuser *f, const ash_node *node, request r) {
    const ash_type *in = ash_graph__type(f->graph, node->ins[0]),
                   *out = ash_graph__type(f->graph, node->out);
    r = one_further(r);
    r.turns += ash_fuse__regroups(f->graph, node);
    if (r.state == LABELLED) {
        request from = r;
        memset(r.labels, ASH_LABEL_NONE, sizeof r.labels);
        memcpy(r.labels, from.labels, sizeof r.labels);
        if (node->op == ASH_OP_BROADCAST) {
            through_broadcast(in, out, &r);
            for (unsigned d = in->rank; d < ASH_MAX_RANK; d++) r.labels[d] = ASH_LABEL_NONE;
        } else if (node->op == ASH_OP_RESHAPE) {
            through_reshape(in, out, &r);
            for (unsigned d = in->rank; d < ASH_MAX_RANK; d++) r.labels[d] = ASH_LABEL_NONE;
        } else if (node->op == ASH_OP_TRANSPOSE) {
            const int64_t *perm = ash_node_list(node, ASH_ATTR_PERM);
            for (unsigned d = 0; d < out->rank; d++) r.labels[perm[d]] = from.labels[d];
        } else {
            rearrange(&r);
        }
    } else if (r.state == REARRANGED && node->op == ASH_OP_BROADCAST && !ash_type_equal(in, out)) {
        r.state = STORED;
    }
    return r;
}

/* Hands the requests for a virtual node's result on to its operand. */
static void pass_on(fuser *f, const ash_node *node) {
    if (node->n_ins == 0 || f->requests[node->out].state == UNUSED) return;
    const request all = behind(f, node, f->requests[node->out]),
                  nearest = behind(f, node, f->nearest[node->out]);
    add_request(&f->requests[node->ins[0]], &all);
    add_nearest(&f->nearest[node->ins[0]], &nearest);
}

/* The same for a value that each of its readers computes. */
static void pass_anew(fuser *f, const ash_node *node) {
    const request all = one_further(f->requests[node->out]), nearest = one_further(f->nearest[node->out]);
    const request wanted = {.state = STORED, .depth = all.depth, .turns = all.turns};
    for (unsigned i = 0; i < node->n_ins; i++) {
        add_request(&f->requests[node->ins[i]], &wanted);
        add_nearest(&f->nearest[node->ins[i]], &nearest);
    }
}

/* --- joining -------------------------------------------------------------------------------------- */

static uint32_t label_mask(const int8_t *labels, unsigned rank) {
    uint32_t mask = 0;
    for (unsigned d = 0; d < rank; d++)
        if (labels[d] >= 0) mask |= 1u << labels[d];
    return mask;
}

/* The axes of a group that have more than one step. */
static uint32_t long_axes(const ash_group *g) {
    uint32_t mask = 0;
    for (unsigned i = 0; i < g->n_axes; i++)
        if (g->extents[i] != 1) mask |= 1u << i;
    return mask;
}

/* The labels of a reduction's operand in a group, given those of its result: the reduced dims run along the
 * group's axes that the result lacks, in order. A group whose axes the result has all gets new axes. False
 * when they do not fit; the group is changed only on success. */
static bool label_reduction(const fuser *f, const ash_node *node, ash_group *g, const int8_t *out_labels,
                            int8_t *in_labels) {
    const ash_type *in = ash_graph__type(f->graph, node->ins[0]),
                   *out = ash_graph__type(f->graph, node->out);
    uint32_t missing = long_axes(g) & ~label_mask(out_labels, out->rank);
    if (g->reduced && missing != g->reduced) return false;
    ash_group grown = *g;
    unsigned o = 0, axis = 0;
    memset(in_labels, ASH_LABEL_NONE, ASH_MAX_RANK);
    for (unsigned d = 0; d < in->rank; d++) {
        if (!ash_node_reduces_dim(node, d)) {
            in_labels[d] = out_labels[o++];
            continue;
        }
        if (in->dims[d] == 1) continue;
        if (!missing) {
            if (grown.n_axes == ASH_MAX_AXES) return false;
            grown.extents[grown.n_axes] = in->dims[d];
            grown.reduced |= 1u << grown.n_axes;
            in_labels[d] = (int8_t)grown.n_axes++;
            continue;
        }
        while (axis < g->n_axes && !(missing >> axis & 1)) axis++;
        if (axis == g->n_axes || g->extents[axis] != in->dims[d]) return false;
        in_labels[d] = (int8_t)axis++;
    }
    while (missing && axis < g->n_axes)
        if (missing >> axis++ & 1) return false;
    if (missing) grown.reduced = missing;
    *g = grown;
    return true;
}

/* Whether a group reads a value in the value's own order. Bytes are padded in theirs, line by line: in
 * another one they would be gathered under masks, which no processor does at once. */
static bool is_in_order(const request *r, unsigned rank) {
    int8_t last = ASH_LABEL_NONE;
    for (unsigned d = 0; d < rank; d++) {
        if (r->labels[d] == ASH_LABEL_NONE) continue;
        if (r->labels[d] < last) return false;
        last = r->labels[d];
    }
    return r->state == LABELLED;
}

/* Whether a node makes bytes of wider numbers. */
static bool narrows(const fuser *f, const ash_node *node) {
    if (node->op != ASH_OP_CAST) return false;
    ash_dtype to = ash_graph__type(f->graph, node->out)->dtype;
    return (to == ASH_U8 || to == ASH_I8) &&
           ash_dtype_size(ash_graph__type(f->graph, node->ins[0])->dtype) > 1;
}

static const ash_node *anchor_that_attends(const fuser *f, const ash_group *g) {
    const ash_node *anchor = g->anchor == ASH_NO_NODE ? NULL : &f->graph->nodes.at[g->anchor];
    return anchor && anchor->op == ASH_OP_ATTEND ? anchor : NULL;
}

/* Whether a node is the product that the scores of a group that attends are made from, and computes their
 * tiles: [batch..., keys, rows], with the rows in blocks, or [batch..., rows, keys]. */
static bool is_scores(const fuser *f, const ash_node *node, const ash_group *g, const request *r) {
    const ash_node *anchor = anchor_that_attends(f, g);
    bool turned = f->costs->attend_turned;
    if (!anchor || g->scores != ASH_NO_NODE || node->op != ASH_OP_MATMUL || r->repeated ||
        turned != (ash_node_int(node, ASH_ATTR_B_BLOCK) != 0) || ash_node__is_bytes(f->graph, node))
        return false;
    const int8_t *labels = f->fusion->labels[g->anchor];
    unsigned rank = ash_graph__type(f->graph, anchor->out)->rank,
             last = ash_graph__type(f->graph, node->out)->rank - 1;
    uint32_t missing = long_axes(g) & ~label_mask(r->labels, last + 1);
    int8_t row = labels[rank - 2], column = labels[rank - 1];
    return row != ASH_LABEL_NONE && r->labels[last - !turned] == row &&
           r->labels[last - turned] == (int8_t)g->n_root_axes &&
           !(missing & ~(column == ASH_LABEL_NONE ? 0 : 1u << column));
}

/* Whether a node is a step of a mask over keys and rows that is the same for several matrices: computed for
 * each of them, it takes an instruction, and no matrix in memory. */
static bool is_mask(const fuser *f, const ash_node *node, const ash_group *g, const request *r) {
    const ash_node *anchor = anchor_that_attends(f, g);
    if (!anchor || !ash_op_is_elementwise(node->op) ||
        ash_node__work(f->costs, node) > f->costs->work_simple)
        return false;
    int8_t row = f->fusion->labels[g->anchor][ash_graph__type(f->graph, anchor->out)->rank - 2];
    uint32_t mask = label_mask(r->labels, ash_graph__type(f->graph, node->out)->rank);
    return row != ASH_LABEL_NONE && mask >> row & mask >> g->n_root_axes & 1;
}

/* Whether a node whose result the group reads as `r` says may be computed inside it. */
static bool may_join(const fuser *f, const ash_node *node, const request *r) {
    if (!f->fuse || (r->state != LABELLED && r->state != REARRANGED)) return false;
    const ash_group *g = &f->fusion->groups.at[r->group];
    const ash_type *out = ash_graph__type(f->graph, node->out);
    if (g->n_nodes == ASH_MAX_GROUP || g->constant != f->fusion->constant[node->out]) return false;
    if (g->kind == ASH_GROUP_CONCAT || g->kind == ASH_GROUP_OTHER) return false;
    uint32_t mask = label_mask(r->labels, out->rank), missing = long_axes(g) & ~mask;
    if (is_pointwise(f, node)) {
        if (node->op == ASH_OP_PAD && ash_dtype_size(out->dtype) == 1 && !g->constant &&
            !is_in_order(r, out->rank))
            return false;
        if (r->state == REARRANGED) return g->kind == ASH_GROUP_MAP;
        /* rows are gone over several times: bytes are read, and not what a product has summed */
        if (g->kind == ASH_GROUP_ROWS && narrows(f, node)) return false;
        /* what was summed along other axes is better put together where it was summed */
        if (g->kind == ASH_GROUP_ROWS && !f->alone && f->meets[node->out] && mask & g->reduced)
            return false;
        if (!r->repeated || (missing & ~g->reduced) == 0 || is_mask(f, node, g, r)) return true;
        return !g->reduced && g->anchor == ASH_NO_NODE && f->from_reduction[node->out];
    }
    if (r->state != LABELLED) return false;
    switch (ash_op_infos[node->op].class) {
    case ASH_CLASS_REDUCE: return g->kind == ASH_GROUP_MAP || g->kind == ASH_GROUP_ROWS;
    case ASH_CLASS_MATMUL:
    case ASH_CLASS_CONV:
    case ASH_CLASS_POOL:
        return is_scores(f, node, g, r) ||
               (g->kind == ASH_GROUP_MAP && g->anchor == ASH_NO_NODE && !missing && !r->repeated &&
                /* along another axis than its own a window would be gathered */
                (ash_op_infos[node->op].class != ASH_CLASS_POOL || is_in_order(r, out->rank)));
    default: return false;
    }
}

static ash_group_kind kind_of(const fuser *f, const ash_node *node) {
    if (node->op == ASH_OP_CONCAT) return ASH_GROUP_CONCAT;
    if (is_pointwise(f, node)) return ASH_GROUP_MAP;
    switch (ash_op_infos[node->op].class) {
    case ASH_CLASS_REDUCE:
    case ASH_CLASS_SUMS: return ASH_GROUP_ROWS;
    case ASH_CLASS_POOL: return ASH_GROUP_POOL;
    case ASH_CLASS_MATMUL:
    case ASH_CLASS_CONV: return ASH_GROUP_TILE;
    case ASH_CLASS_ARGREDUCE:
    case ASH_CLASS_SCAN:
    case ASH_CLASS_TOPK:
    case ASH_CLASS_NONZERO:
    case ASH_CLASS_NMS:
    case ASH_CLASS_SETTLE:
    case ASH_CLASS_SCATTER:
    case ASH_CLASS_LOOP:
    case ASH_CLASS_CUSTOM: return ASH_GROUP_OTHER;
    default: return ASH_GROUP_MAP;
    }
}

/* A group of its own for node `n`, with the dims of its first output as axes. */
static bool new_group(fuser *f, uint32_t n) {
    const ash_node *node = &f->graph->nodes.at[n];
    const ash_type *out = ash_graph__type(f->graph, node->out);
    ash_group g = {.kind = kind_of(f, node),
                   .root = n,
                   .anchor = ASH_NO_NODE,
                   .scores = ASH_NO_NODE,
                   .n_axes = out->rank,
                   .n_root_axes = out->rank,
                   .constant = f->fusion->constant[node->out]};
    request *r = &f->requests[node->out];
    memset(r->labels, ASH_LABEL_NONE, sizeof r->labels);
    /* ranks are bounded, which compilers do not see */
    for (unsigned d = 0; d < ASH_MIN(out->rank, ASH_MAX_RANK); d++) {
        g.extents[d] = out->dims[d];
        if (out->dims[d] != 1)
            r->labels[d] = (int8_t)d; /* dims of 1 have no label, however they are reached */
    }
    r->group = (uint32_t)f->fusion->groups.len;
    r->repeated = false;
    r->depth = r->turns = 0;
    f->nearest[node->out] = *r;
    return ash_vec_push(f->fusion->allocator, &f->fusion->groups, g);
}

/* Whether a value is picked from another one along one axis, at constant indices, or at those of a list,
 * which lies in memory: a gather from it then goes through to that one, for one more index. */
static bool picks(const fuser *f, ash_value value) {
    const ash_value_info *info = ash_graph__value(f->graph, value);
    if (info->kind != ASH_VALUE_NODE) return false;
    const ash_node *node = &f->graph->nodes.at[info->node];
    return node->op == ASH_OP_GATHER &&
           (f->fusion->constant[node->ins[1]] || ash_graph__type(f->graph, node->ins[1])->rank == 1) &&
           ash_node__looked_up(f->graph, node) == ASH_NO_VALUE;
}

/* Asks for the scores of a group that attends, whose keys are one axis more: the group reads each of them
 * once, for all columns. False when there are too many axes. */
static bool ask_scores(fuser *f, const ash_node *node, ash_group *g, const request *of_result) {
    const ash_type *scores = ash_graph__type(f->graph, node->ins[0]);
    request r = {.state = LABELLED, .group = of_result->group};
    if (g->n_axes != g->n_root_axes || g->n_axes == ASH_MAX_AXES) return false;
    memset(r.labels, ASH_LABEL_NONE, sizeof r.labels);
    memcpy(r.labels, of_result->labels, (scores->rank - 1) * sizeof *r.labels);
    if (scores->dims[scores->rank - 1] != 1) r.labels[scores->rank - 1] = (int8_t)g->n_axes;
    g->extents[g->n_axes++] = scores->dims[scores->rank - 1];
    ask(f, node->ins[0], &r);
    return true;
}

/* Whether a value is computed from a product or a convolution, or from one of `pools`, too, element by
 * element. */
static bool follows_tile(const fuser *f, ash_value value, bool pools) {
    enum { SEEN = 16 }; /* values that are looked at */
    ash_value seen[SEEN] = {value};
    for (unsigned i = 0, n = 1; i < n; i++) {
        const ash_value_info *info = ash_graph__value(f->graph, seen[i]);
        if (info->kind != ASH_VALUE_NODE || f->fusion->constant[seen[i]]) continue;
        const ash_node *node = &f->graph->nodes.at[info->node];
        const ash_class class = ash_op_infos[node->op].class;
        if (class == ASH_CLASS_MATMUL || class == ASH_CLASS_CONV || (class == ASH_CLASS_POOL && pools))
            return true;
        if (!ash_op_is_elementwise(node->op)) continue;
        for (unsigned k = 0; k < node->n_ins && n < SEEN; k++) seen[n++] = node->ins[k];
    }
    return false;
}

/* A root that has the elements of its operand in other dims. It is a view of that, where these dims would
 * be no axes of what computes it: what follows a product or a window, and what is in another order, which
 * takes a kernel by itself then. */
static bool is_seen_in_other_dims(fuser *f, const ash_node *node) {
    if (!f->fuse || !ash_fuse__regroups(f->graph, node)) return false;
    const ash_value seen = node->ins[0];
    const ash_value_info *info = ash_graph__value(f->graph, seen);
    const ash_node *turn = info->kind == ASH_VALUE_NODE ? &f->graph->nodes.at[info->node] : NULL;
    if (turn && turn->op == ASH_OP_TRANSPOSE) {
        const ash_value_info *in = ash_graph__value(f->graph, turn->ins[0]);
        const bool moved = in->kind == ASH_VALUE_NODE && ash_op_is_virtual(f->graph->nodes.at[in->node].op);
        if (moved) return false;
        f->packing.packed[seen] = true;
        f->packing.packed[turn->ins[0]] |= follows_tile(f, turn->ins[0], false);
    } else if (!follows_tile(f, seen, true)) {
        return false;
    }
    const request wanted = {.state = STORED, .group = f->requests[node->out].group};
    ask(f, seen, &wanted);
    return true;
}

/* Places node `n` in group `group` and hands the request for its result on to its operands. */
static void place(fuser *f, uint32_t n, uint32_t group) {
    const ash_node *node = &f->graph->nodes.at[n];
    ash_group *g = &f->fusion->groups.at[group];
    request r = f->requests[node->out];
    if (r.state != REARRANGED) r.state = LABELLED;
    r.group = group;
    f->fusion->group_of[n] = group;
    memcpy(f->fusion->labels[n], r.labels, sizeof r.labels);
    g->n_nodes++;
    if (ash_op_is_virtual(node->op)) {
        f->requests[node->out] = f->nearest[node->out] = r;
        if (g->root != n || !is_seen_in_other_dims(f, node)) pass_on(f, node);
        return;
    }
    r = one_further(r);
    if (ash_op_is_elementwise(node->op)) {
        for (unsigned i = 0; i < node->n_ins; i++) ask(f, node->ins[i], &r);
        return;
    }
    if (ash_node_reduces_nothing(f->graph, node)) {
        request in = r;
        const ash_type *type = ash_graph__type(f->graph, node->ins[0]);
        memset(in.labels, ASH_LABEL_NONE, sizeof in.labels);
        for (unsigned d = 0, o = 0; d < type->rank; d++)
            if (!ash_node_reduces_dim(node, d)) in.labels[d] = r.labels[o++];
        ask(f, node->ins[0], &in);
        return;
    }
    ash_value bytes = ash_node__looked_up(f->graph, node);
    if (bytes != ASH_NO_VALUE) { /* without the cast to an index */
        ask_stored(f, node->ins[0], &r);
        ask(f, bytes, &r);
        return;
    }
    switch (ash_op_infos[node->op].class) {
    case ASH_CLASS_MATMUL:
    case ASH_CLASS_CONV:
        if (anchor_that_attends(f, g))
            g->scores = n;
        else
            g->kind = ASH_GROUP_TILE, g->anchor = n;
        break;
    case ASH_CLASS_POOL: g->kind = ASH_GROUP_POOL, g->anchor = n; break;
    default: break;
    }
    bool attends = node->op == ASH_OP_ATTEND && ask_scores(f, node, g, &r);
    const ash_value query = g->scores == n ? ash_fuse__query_as_it_lies(&f->packing, node) : ASH_NO_VALUE;
    for (unsigned i = attends; i < node->n_ins; i++) {
        request through = {.state = REARRANGED, .group = group, .depth = r.depth, .turns = r.turns};
        memset(through.labels, ASH_LABEL_NONE, sizeof through.labels);
        if (node->op == ASH_OP_GATHER && i == 0 && picks(f, node->ins[0]))
            ask(f, node->ins[0], &through);
        else
            ask_stored(f, i == 1 && query != ASH_NO_VALUE ? query : node->ins[i], &r);
    }
    ash_fuse__pack_operands(&f->packing, node, g, r.state == LABELLED ? r.labels : NULL, query);
}

/* The same for a reduction, whose operand has labels of its own. Fails when the group's axes do not fit. */
static bool place_reduction(fuser *f, uint32_t n, uint32_t group) {
    const ash_node *node = &f->graph->nodes.at[n];
    ash_group *g = &f->fusion->groups.at[group];
    request *r = &f->requests[node->out];
    int8_t in_labels[ASH_MAX_RANK];
    if (!label_reduction(f, node, g, r->labels, in_labels)) return false;
    g->kind = ASH_GROUP_ROWS;
    g->n_nodes++;
    f->fusion->group_of[n] = group;
    memcpy(f->fusion->labels[n], r->labels, sizeof r->labels);
    request in = {.state = LABELLED, .group = group};
    memcpy(in.labels, in_labels, sizeof in.labels);
    for (unsigned i = 0; i < node->n_ins; i++) ask(f, node->ins[i], &in);
    return true;
}

/* Whether a group of rows may compute a node, and store the result for those who read it later: one number
 * for each row, made of what the group goes over anyway. It is the first of all that read it, so what it
 * stores is there in time. */
static bool may_lie_beside(const fuser *f, const ash_node *node, const request *r) {
    enum { MOST = 8 };
    const ash_value out = node->out;
    if (!f->fuse || f->alone || r->state != LABELLED || !f->from_reduction[out]) return false;
    const ash_group *g = &f->fusion->groups.at[r->group];
    const ash_node *root = &f->graph->nodes.at[g->root];
    const ash_value_info *own = ash_graph__value(f->graph, out),
                         *whole = ash_graph__value(f->graph, root->out);
    if (g->kind != ASH_GROUP_ROWS || g->anchor != ASH_NO_NODE || root->n_outs != 1 ||
        g->n_nodes == ASH_MAX_GROUP || g->n_beside == MOST || g->constant != f->fusion->constant[out] ||
        own->phase != whole->phase || (f->late && f->late[out] != f->late[root->out]) ||
        ash_type_max_count(f->graph->dims, &whole->type) == 0)
        return false;
    if ((long_axes(g) & ~label_mask(r->labels, own->type.rank)) != g->reduced) return false;
    return ash_op_is_elementwise(node->op) || ash_op_is_reduction(node->op);
}

/* Whether too many nodes would be gone back through to compute a value. Only a group's own nodes count: a
 * chain of them that goes through a value in a buffer ends there. */
static bool is_deep(const fuser *f, const ash_node *node) {
    const request *r = &f->requests[node->out];
    return node->n_ins && (ash_op_is_virtual(node->op) || is_pointwise(f, node)) &&
           (r->depth >= ASH_FUSE_MAX_DEPTH ||
            r->turns + ash_fuse__regroups(f->graph, node) > ASH_FUSE_MAX_TURNS);
}

static ash_status visit(fuser *f, uint32_t n, const bool *stored, ash_diag *diag) {
    const ash_node *node = &f->graph->nodes.at[n];
    bool must_store = f->packing.packed[node->out] || f->fusion->moved[node->out] || is_deep(f, node) ||
                      node->n_outs > 1 || node->op == ASH_OP_MATMUL_LIBRARY; /* which does that alone */
    for (unsigned i = 0; i < node->n_outs; i++) must_store |= stored[node->out + i];
    request *r = &f->requests[node->out];
    bool reduces = ash_op_is_reduction(node->op) && !ash_node_reduces_nothing(f->graph, node);
    if ((node->op == ASH_OP_CAST || node->op == ASH_OP_PAD) && r->state == UNUSED && !must_store)
        return ASH_OK; /* of a lookup alone; of queries that are read as they lie */
    if (ash_op_is_virtual(node->op) && !must_store) {
        pass_on(f, node);
        return ASH_OK;
    }
    if (!must_store && may_join(f, node, r)) {
        uint32_t group = r->group;
        if (!reduces) {
            place(f, n, group);
            return ASH_OK;
        }
        if (place_reduction(f, n, group)) return ASH_OK;
    }
    if (!must_store && f->fuse && f->light[node->out] && r->state != UNUSED && r->state != OPERAND) {
        pass_anew(f, node);
        f->fusion->anew = true;
        return ASH_OK;
    }
    if (!must_store && may_lie_beside(f, node, &f->nearest[node->out])) {
        const request all = *r;
        uint32_t group = f->nearest[node->out].group;
        *r = f->nearest[node->out];
        bool placed = !reduces || place_reduction(f, n, group);
        if (!reduces) place(f, n, group);
        f->fusion->beside[n] = placed;
        f->fusion->groups.at[group].n_beside += placed;
        if (placed) return ASH_OK;
        *r = all;
    }
    if (!new_group(f, n)) return ASH_NO_MEMORY(diag);
    if (!reduces)
        place(f, n, r->group);
    else if (!place_reduction(f, n, r->group))
        return ash_fail(diag, ASH_ERROR_UNSUPPORTED, "a reduction over more than %d axes in all",
                        ASH_MAX_AXES);
    return ASH_OK;
}

/* Lists the nodes of each group. */
static bool list_members(ash_fusion *fusion) {
    size_t groups = fusion->groups.len, total = 0;
    uint32_t *next = ash_mem_alloc(fusion->allocator, groups, sizeof *next);
    fusion->members = ash_mem_alloc(fusion->allocator, fusion->n_nodes, sizeof *fusion->members);
    if (next && fusion->members) {
        for (size_t g = 0; g < groups; g++) {
            fusion->groups.at[g].nodes = fusion->members + total;
            next[g] = (uint32_t)total;
            total += fusion->groups.at[g].n_nodes;
        }
        for (size_t n = 0; n < fusion->n_nodes; n++)
            if (fusion->group_of[n] != ASH_NO_GROUP)
                fusion->members[next[fusion->group_of[n]]++] = (uint32_t)n;
    }
    bool ok = next && fusion->members;
    ash_mem_free(fusion->allocator, next, groups, sizeof *next);
    return ok;
}

ash_status ash_fusion_build(const ash_graph *graph, const ash_fusion_options *options, ash_fusion *out,
                            ash_diag *diag) {
    const ash_costs *costs = options->costs;
    const bool *stored = options->stored;
    const ash_allocator *a = graph->allocator;
    size_t nodes = graph->nodes.len, values = graph->values.len;
    *out = (ash_fusion){.allocator = a, .n_nodes = nodes, .n_values = values};
    out->group_of = ash_mem_alloc(a, nodes, sizeof *out->group_of);
    out->labels = ash_mem_calloc(a, nodes, sizeof *out->labels);
    out->constant = ash_mem_calloc(a, values, sizeof *out->constant);
    out->moved = ash_mem_calloc(a, values, sizeof *out->moved);
    fuser f = {.graph = graph,
               .costs = costs,
               .fusion = out,
               .late = options->late,
               .packing = {.graph = graph,
                           .costs = costs,
                           .near_bytes = options->near_bytes,
                           .constant = out->constant},
               .fuse = options->fuse,
               .alone = options->alone};
    f.requests = ash_mem_calloc(a, values, sizeof *f.requests);
    f.from_reduction = ash_mem_calloc(a, values, sizeof *f.from_reduction);
    f.packing.packed = ash_mem_calloc(a, values, sizeof *f.packing.packed);
    f.light = ash_mem_calloc(a, values, sizeof *f.light);
    f.nearest = ash_mem_calloc(a, values, sizeof *f.nearest);
    f.meets = ash_mem_calloc(a, values, sizeof *f.meets);
    out->beside = ash_mem_calloc(a, nodes, sizeof *out->beside);
    ash_status status = ASH_OK;
    if (!out->group_of || !out->labels || !out->constant || !out->moved || !f.requests ||
        !f.from_reduction || !f.packing.packed || !f.light || !f.nearest || !f.meets || !out->beside) {
        status = ASH_NO_MEMORY(diag);
        goto done;
    }
    ash_fuse__mark_constants(graph, out->constant);
    ash_fuse__mark_from_reduction(graph, f.from_reduction);
    if (!ash_fuse__mark_moved(graph, out->moved) ||
        !ash_fuse__mark_light(graph, options, out->constant, f.light, f.meets)) {
        status = ASH_NO_MEMORY(diag);
        goto done;
    }
    for (size_t n = 0; n < nodes; n++) out->group_of[n] = ASH_NO_GROUP;
    for (size_t n = nodes; n-- > 0;) {
        status = visit(&f, (uint32_t)n, stored, diag);
        if (status != ASH_OK) {
            ash_diag__add_node(diag, graph->nodes.at[n].name, ash_op_name(graph->nodes.at[n].op),
                               ASH_NO_OFFSET);
            goto done;
        }
    }
    if (f.packing.failed || !list_members(out)) status = ASH_NO_MEMORY(diag);
done:
    ash_mem_free(a, f.nearest, values, sizeof *f.nearest);
    ash_mem_free(a, f.meets, values, sizeof *f.meets);
    ash_mem_free(a, f.light, values, sizeof *f.light);
    ash_mem_free(a, f.packing.packed, values, sizeof *f.packing.packed);
    ash_mem_free(a, f.from_reduction, values, sizeof *f.from_reduction);
    ash_mem_free(a, f.requests, values, sizeof *f.requests);
    return status;
}

void ash_fusion_free(ash_fusion *fusion) {
    ash_mem_free(fusion->allocator, fusion->group_of, fusion->n_nodes, sizeof *fusion->group_of);
    ash_mem_free(fusion->allocator, fusion->labels, fusion->n_nodes, sizeof *fusion->labels);
    ash_mem_free(fusion->allocator, fusion->beside, fusion->n_nodes, sizeof *fusion->beside);
    ash_mem_free(fusion->allocator, fusion->constant, fusion->n_values, sizeof *fusion->constant);
    ash_mem_free(fusion->allocator, fusion->moved, fusion->n_values, sizeof *fusion->moved);
    ash_mem_free(fusion->allocator, fusion->members, fusion->n_nodes, sizeof *fusion->members);
    ash_vec_free(fusion->allocator, &fusion->groups);
    *fusion = (ash_fusion){.allocator = fusion->allocator};
}
