/* SPDX-License-Identifier: MIT */
/* layout: convolutions compute in blocked channels, and the values around them stay blocked as long as that
 * costs nothing; weights and the second operands of matrix products are packed. Forms are described in
 * layout.h and ops.def.
 *
 * One walk in order. A convolution takes and gives blocked values. Elementwise nodes, spatial pools,
 * slices, pads, reshapes and reductions, and concats go blocked when an operand exists in blocked form only
 * (or in both forms, and no other operand in plain form only). Everything else asks for the plain form, and
 * so do outputs and kept values: conversions appear where a blocked value meets a plain one, once per value
 * and form.
 *
 * Greedy on purpose: which form a value should have is a cut problem, but in real networks convolutions
 * feed on each other through nodes that take either form, and the greedy answer has the least conversions.
 * Known limit: a lone convolution between plain neighbours pays for two conversions. */
#include "layout.h"

/* True when a value takes any form at no cost at run time: constants, and broadcasts. */
static bool is_neutral(const ash_layout_pass *l, ash_value value) {
    return l->deferred[value] || l->constant[value];
}

/* The form in which a node is computed when either will do: the block, or 0 for plain. */
static int64_t choose(const ash_layout_pass *l, const ash_node *node) {
    int64_t block = 0;
    bool plain_only = false, blocked_only = false;
    for (size_t k = 0; k < node->n_ins; k++) {
        ash_value in = node->ins[k];
        int64_t has = ash_layout__has_blocked(l, in);
        bool plain = ash_layout__has_plain(l, in);
        block = ASH_MAX(block, has);
        blocked_only = blocked_only || (has && !plain);
        plain_only = plain_only || (!has && plain && !is_neutral(l, in));
    }
    return plain_only && !blocked_only ? 0 : block;
}

/* The node over blocked operands (the first `n_data` of them), with other attributes where `attrs` is not
 * NULL. */
static ash_value add_blocked(ash_layout_pass *l, const ash_node *node, int64_t block, size_t n_data,
                             const ash_attr *attrs) {
    ash_rewrite *rw = &l->rw;
    ash_value *ins = ash_arena_alloc(&rw->scratch, node->n_ins, sizeof *ins);
    if (!ins) {
        ash_graph__fail(rw->to, ASH_ERROR_OUT_OF_MEMORY, "out of memory");
        return ASH_NO_VALUE;
    }
    for (size_t k = 0; k < node->n_ins; k++)
        ins[k] =
            k < n_data ? ash_layout__blocked(l, node->ins[k], block) : ash_layout__plain(l, node->ins[k]);
    ash_rewrite__name(rw, node);
    return ash_build(rw->to, node->op, ins, node->n_ins, attrs ? attrs : node->attrs, node->n_attrs);
}

static void copy_blocked(ash_layout_pass *l, const ash_node *node, int64_t block, size_t n_data,
                         const ash_attr *attrs) {
    ash_value y = add_blocked(l, node, block, n_data, attrs);
    ash_layout__set_blocked(l, node->out, block, y);
}

static bool layout_elementwise(ash_layout_pass *l, const ash_node *node) {
    int64_t block = choose(l, node);
    if (!block) return false;
    copy_blocked(l, node, block, node->n_ins, NULL);
    return true;
}

/* Indices along a spatial dim, as resizing has them. */
static bool layout_gather(ash_layout_pass *l, const ash_node *node) {
    int64_t block = ash_layout__has_blocked(l, node->ins[0]);
    if (!block || ash_node_int(node, ASH_ATTR_AXIS) < 2) return false;
    if (ash_graph__type(l->rw.from, node->ins[1])->rank != 1) return false;
    copy_blocked(l, node, block, 1, NULL);
    return true;
}

/* A lookup is one number for another. */
static bool layout_lookup(ash_layout_pass *l, const ash_node *node) {
    int64_t block = choose(l, node);
    if (!block || ash_node__looked_up(l->rw.from, node) == ASH_NO_VALUE) return false;
    const ash_value ins[] = {ash_layout__plain(l, node->ins[0]),
                             ash_layout__blocked(l, node->ins[1], block)};
    ash_rewrite__name(&l->rw, node);
    ash_value y = ash_build(l->rw.to, node->op, ins, 2, node->attrs, node->n_attrs);
    ash_layout__set_blocked(l, node->out, block, y);
    return true;
}

/* A pool's windows, and the axes that they lie along. */
typedef struct pool_windows {
    int64_t axes[ASH_MAX_RANK];
    ash_window at[ASH_MAX_RANK];
    size_t n;
} pool_windows;

static pool_windows windows_of(const ash_node *node) {
    const ash_attr *axes = ash_node_attr(node, ASH_ATTR_AXES);
    pool_windows w = {.n = axes->count};
    for (size_t i = 0; i < w.n; i++) {
        w.axes[i] = axes->list[i];
        w.at[i] = (ash_window){.kernel = ash_node_list(node, ASH_ATTR_KERNEL)[i],
                               .stride = ash_node_list(node, ASH_ATTR_STRIDES)[i],
                               .dilation = ash_node_list(node, ASH_ATTR_DILATIONS)[i],
                               .before = ash_node_list(node, ASH_ATTR_BEFORE)[i],
                               .after = ash_node_list(node, ASH_ATTR_AFTER)[i]};
    }
    return w;
}

/* Which axis is taken first where a pool goes axis by axis: one that leaves few lines for those behind it.
 * i goes before j where k_i s_j + k_j is less than k_j s_i + k_i. Among equals the last one. */
static size_t first_axis(const pool_windows *w) {
    size_t first = w->n ? w->n - 1 : 0;
    for (size_t i = first; i-- > 0;) {
        const ash_window *a = &w->at[i], *b = &w->at[first];
        if ((double)a->kernel * (double)(b->stride - 1) < (double)b->kernel * (double)(a->stride - 1))
            first = i;
    }
    return first;
}

/* Whether that axis by itself and then the others are fewer comparisons or additions, with a store and a
 * load more. Sums of half floats would be rounded once more. */
static bool goes_apart(const ash_layout_pass *l, const ash_node *node, const pool_windows *w,
                       size_t first) {
    const ash_dtype dtype = ash_graph__type(l->rw.from, node->out)->dtype;
    if (w->n < 2 || (node->op == ASH_OP_POOL_SUM && ash_dtype_size(dtype) < sizeof(float))) return false;
    double lines = 1, repeated = 1, kernel = (double)w->at[first].kernel;
    for (size_t i = 0; i < w->n; i++) {
        if (i == first) continue;
        lines *= (double)w->at[i].kernel, repeated *= (double)w->at[i].stride;
    }
    return lines + kernel * repeated + (double)l->rw.opt->target->costs.work_keep < lines * kernel;
}

static void take_axis(pool_windows *w, size_t i) {
    for (w->n--; i < w->n; i++) w->axes[i] = w->axes[i + 1], w->at[i] = w->at[i + 1];
}

/* Whether blocks of whole vectors pay for a plain operand, too, of a pool that goes axis by axis: where
 * lines are shorter than a vector, and where the first pass takes long windows along them with a step,
 * whose vectors are put together, and the operand stays near meanwhile. */
static bool wants_blocks(const ash_layout_pass *l, const ash_type *type, const pool_windows *w,
                         size_t first) {
    const ash_target *target = l->rw.opt->target;
    const ash_dim width = type->dims[type->rank - 1];
    int64_t count;
    if (target->kind != ASH_TARGET_CPU || type->rank == ASH_MAX_RANK ||
        ash_dtype_size(type->dtype) != sizeof(float) || ash_layout__block(l, type->dims[1]) < l->lanes)
        return false;
    if (ash_dim_is_const(width) && width < l->lanes) return true;
    if (w->axes[first] + 1 != type->rank || w->at[first].stride < 2 ||
        w->at[first].kernel <= target->costs.long_window || !ash_type_static_count(type, &count))
        return false;
    const int64_t near = ash_share_of(target->l2_bytes, target->costs.near_share);
    return count <= near / 2 / (int64_t)sizeof(float); /* in both forms */
}

/* Windows over spatial axes: the same axes in both forms. The maximum over a large one, or the sum, is that
 * of the maxima of its lines; of zeros with either sign it may be another one. */
static bool layout_pool(ash_layout_pass *l, const ash_node *node) {
    int64_t block = choose(l, node);
    pool_windows w = windows_of(node);
    const ash_type *type = ash_graph__type(l->rw.from, node->ins[0]);
    if (w.n && w.axes[0] < 2)
        block = 0;
    else if (!block && goes_apart(l, node, &w, first_axis(&w)) && wants_blocks(l, type, &w, first_axis(&w)))
        block = ash_layout__block(l, type->dims[1]);
    ash_value y = block ? ash_layout__blocked(l, node->ins[0], block) : ash_layout__plain(l, node->ins[0]);
    if (!ash_rewrite__ok(&l->rw)) return true;
    ash_rewrite__name(&l->rw, node);
    for (size_t i; i = first_axis(&w), goes_apart(l, node, &w, i); take_axis(&w, i))
        y = ash_pool(l->rw.to, node->op, y, &w.axes[i], &w.at[i], 1);
    y = ash_pool(l->rw.to, node->op, y, w.axes, w.at, w.n);
    if (block)
        ash_layout__set_blocked(l, node->out, block, y);
    else
        ash_rewrite__bind(&l->rw, node->out, y);
    return true;
}

/* Reductions of all elements, wherever they lie: in the order in which they do. */
static bool reduce_all(ash_layout_pass *l, const ash_node *node) {
    ash_value x = node->ins[0];
    for (;;) {
        const ash_value_info *info = ash_graph__value(l->rw.from, x);
        if (info->kind != ASH_VALUE_NODE) break;
        const ash_node *before = &l->rw.from->nodes.at[info->node];
        if (before->op != ASH_OP_RESHAPE && before->op != ASH_OP_TRANSPOSE) break;
        x = before->ins[0];
    }
    int64_t block = ash_layout__has_blocked(l, x), dims[ASH_MAX_RANK];
    if (!block) return false;
    ash_value y = ash_layout__blocked(l, x, block);
    if (!ash_rewrite__ok(&l->rw)) return true;
    unsigned rank = ash_rewrite__type(&l->rw, y).rank;
    for (unsigned d = 0; d < rank; d++) dims[d] = d;
    const ash_attr axes = ASH_ATTR_LIST(AXES, dims, rank);
    ash_rewrite__name(&l->rw, node);
    ash_rewrite__bind(&l->rw, node->out, ash_build(l->rw.to, node->op, &y, 1, &axes, 1));
    return true;
}

/* Reductions over images and space, of sums per channel: over space first, so that there are as many rows
 * as images and blocks of channels, and then over the images: [n, c/B, s..., B] -> [n, c/B, B] -> [c]. */
static bool reduce_to_channels(ash_layout_pass *l, const ash_node *node, int64_t block) {
    static const int64_t images = 0;
    const unsigned rank = ash_graph__type(l->rw.from, node->ins[0])->rank;
    const ash_type type = *ash_graph__type(l->rw.from, node->out);
    const ash_attr *axes = ash_node_attr(node, ASH_ATTR_AXES);
    if (rank < 3 || axes->count != rank - 1 || type.rank != 1 || axes->list[0] != 0 || axes->list[1] != 2)
        return false;
    const ash_attr space = ASH_ATTR_LIST(AXES, axes->list + 1, rank - 2),
                   rest = ASH_ATTR_LIST(AXES, &images, 1);
    ash_value y = ash_layout__blocked(l, node->ins[0], block);
    ash_rewrite__name(&l->rw, node);
    y = ash_build(l->rw.to, node->op, &y, 1, &space, 1);
    y = ash_build(l->rw.to, node->op, &y, 1, &rest, 1);
    ash_rewrite__bind(&l->rw, node->out, ash_reshape(l->rw.to, y, type.dims, type.rank));
    return true;
}

/* Reductions over spatial axes. When none of those is left, [n, c/B, B] is [n, c] already. */
static bool layout_reduce(ash_layout_pass *l, const ash_node *node) {
    int64_t block = choose(l, node);
    const ash_attr *axes = ash_node_attr(node, ASH_ATTR_AXES);
    ash_type type = *ash_graph__type(l->rw.from, node->out);
    if (axes->count == ash_graph__type(l->rw.from, node->ins[0])->rank && reduce_all(l, node)) return true;
    if (block && reduce_to_channels(l, node, block)) return true;
    if (!block || (axes->count && axes->list[0] < 2)) return false;
    ash_value y = add_blocked(l, node, block, 1, NULL);
    if (type.rank == 2)
        ash_rewrite__bind(&l->rw, node->out, ash_reshape(l->rw.to, y, type.dims, type.rank));
    else
        ash_layout__set_blocked(l, node->out, block, y);
    return true;
}

/* The widest block, no wider than `block`, in which all operands of a concat along channels can be
 * joined. */
static int64_t common_block(const ash_layout_pass *l, const ash_node *node, int64_t block) {
    for (; block >= ASH_MIN_BLOCK; block /= 2) {
        size_t k = 0;
        while (k < node->n_ins && ash_layout__can_block(l, node->ins[k], block)) k++;
        if (k == node->n_ins) return block;
    }
    return 0;
}

static bool layout_concat(ash_layout_pass *l, const ash_node *node) {
    int64_t block = choose(l, node);
    if (block) block = common_block(l, node, block);
    if (!block) return false;
    copy_blocked(l, node, block, node->n_ins, NULL);
    return true;
}

/* A list with one entry per plain dim as one per blocked dim: `channels` for dim 1, and `inside` for the
 * last. */
static ash_attr blocked_list(ash_rewrite *rw, const ash_attr *attr, int64_t channels, int64_t inside) {
    ash_attr blocked = *attr;
    int64_t *list = ash_arena_alloc(&rw->scratch, attr->count + 1u, sizeof *list);
    if (!list) {
        ash_graph__fail(rw->to, ASH_ERROR_OUT_OF_MEMORY, "out of memory");
        return blocked;
    }
    memcpy(list, attr->list, attr->count * sizeof *list);
    list[1] = channels;
    list[attr->count] = inside;
    blocked.list = list;
    blocked.count++;
    return blocked;
}

/* Slices that take whole blocks of channels. */
static bool layout_slice(ash_layout_pass *l, const ash_node *node) {
    int64_t block = choose(l, node);
    const ash_attr *dims = ash_node_attr(node, ASH_ATTR_DIMS),
                   *starts = ash_node_attr(node, ASH_ATTR_STARTS);
    const ash_attr *steps = ash_node_attr(node, ASH_ATTR_STEPS);
    if (!block || steps->list[1] != 1 || !ash_dim_is_const(starts->list[1]) ||
        !ash_dim_is_const(dims->list[1]))
        return false;
    if (starts->list[1] % block || dims->list[1] % block || dims->list[1] == 0) return false;
    ash_attr attrs[] = {blocked_list(&l->rw, dims, dims->list[1] / block, block),
                        blocked_list(&l->rw, starts, starts->list[1] / block, 0),
                        blocked_list(&l->rw, steps, 1, 1)};
    copy_blocked(l, node, block, 1, attrs);
    return true;
}

/* Pads of spatial dims. */
static bool layout_pad(ash_layout_pass *l, const ash_node *node) {
    ash_value x = node->ins[0];
    int64_t block = ash_layout__has_blocked(l, x);
    const ash_attr *before = ash_node_attr(node, ASH_ATTR_BEFORE),
                   *after = ash_node_attr(node, ASH_ATTR_AFTER);
    const ash_attr *interior = ash_node_attr(node, ASH_ATTR_INTERIOR);
    if (!block || before->list[1] || after->list[1] || interior->list[1]) return false;
    ash_attr attrs[] = {blocked_list(&l->rw, before, 0, 0), blocked_list(&l->rw, after, 0, 0),
                        blocked_list(&l->rw, interior, 0, 0)};
    copy_blocked(l, node, block, 1, attrs);
    return true;
}

/* A broadcast waits for the form that is asked for, unless its operand waits too: then this one is made
 * now, so that no long chain is ever waiting. */
static bool layout_broadcast(ash_layout_pass *l, const ash_node *node) {
    bool waits = !l->deferred[node->ins[0]] || ash_layout__has_plain(l, node->ins[0]);
    l->deferred[node->out] = waits;
    return waits;
}

/* The form of what a broadcast that waits repeats in space, or of a value itself. */
static int64_t repeated_block(const ash_layout_pass *l, ash_value value) {
    if (!l->deferred[value] || ash_layout__has_plain(l, value)) return ash_layout__has_blocked(l, value);
    const ash_graph *from = l->rw.from;
    const ash_value source = from->nodes.at[ash_graph__value(from, value)->node].ins[0];
    const ash_type *type = ash_graph__type(from, value), *its = ash_graph__type(from, source);
    return type->rank == its->rank && type->dims[1] == its->dims[1] ? ash_layout__has_blocked(l, source)
                                                                    : 0;
}

/* Reshapes that regroup space alone, as repeating elements has them. */
static bool layout_reshape(ash_layout_pass *l, const ash_node *node) {
    ash_value x = node->ins[0];
    const ash_type *type = ash_graph__type(l->rw.from, x);
    ash_type out = *ash_graph__type(l->rw.from, node->out);
    int64_t block = repeated_block(l, x);
    if (!block || ash_layout__has_plain(l, x) || out.rank < 3 || out.rank == ASH_MAX_RANK ||
        type->dims[0] != out.dims[0] || type->dims[1] != out.dims[1])
        return false;
    out.dims[1] /= block;
    out.dims[out.rank++] = block;
    x = ash_layout__blocked(l, x, block);
    ash_rewrite__name(&l->rw, node);
    ash_layout__set_blocked(l, node->out, block, ash_reshape(l->rw.to, x, out.dims, out.rank));
    return true;
}

/* True when the node was built in blocked form, or waits. */
static bool layout_node(ash_layout_pass *l, const ash_node *node) {
    if (ash_op_is_elementwise(node->op)) return layout_elementwise(l, node);
    switch (ash_op_infos[node->op].class) {
    case ASH_CLASS_POOL: return layout_pool(l, node);
    case ASH_CLASS_REDUCE: return layout_reduce(l, node);
    default: break;
    }
    switch (node->op) {
    case ASH_OP_GATHER: return layout_lookup(l, node) || layout_gather(l, node);
    case ASH_OP_CONCAT: return layout_concat(l, node);
    case ASH_OP_SLICE: return layout_slice(l, node);
    case ASH_OP_PAD: return layout_pad(l, node);
    case ASH_OP_RESHAPE: return layout_reshape(l, node);
    case ASH_OP_BROADCAST: return layout_broadcast(l, node);
    default: return false;
    }
}

static void copy_plain(ash_layout_pass *l, const ash_node *node) {
    for (size_t k = 0; k < node->n_ins; k++) ash_layout__plain(l, node->ins[k]);
    if (ash_rewrite__ok(&l->rw)) ash_rewrite__copy(&l->rw, node);
}

static void rebuild(ash_layout_pass *l) {
    ash_rewrite *rw = &l->rw;
    for (size_t i = 0; i < rw->from->nodes.len && ash_rewrite__ok(rw); i++) {
        const ash_node *node = &rw->from->nodes.at[i];
        if (!ash_rewrite__is_live(rw, node)) continue;
        if (ash_layout__bytes(l, node) || ash_layout__pairs(l, node)) continue;
        if (node->op == ASH_OP_CONV)
            ash_layout__conv(l, node);
        else if (node->op == ASH_OP_MATMUL)
            ash_layout__matmul(l, node);
        else if (!layout_node(l, node))
            copy_plain(l, node);
    }
}

/* Outputs, updates and kept values are plain: what the caller sees has the dims that it gave. */
static void finish(ash_layout_pass *l) {
    ash_rewrite *rw = &l->rw;
    for (size_t i = 0; i < rw->from->outputs.len && ash_rewrite__ok(rw); i++)
        ash_layout__plain(l, rw->from->outputs.at[i].value);
    for (size_t i = 0; i < rw->from->states.len && ash_rewrite__ok(rw); i++)
        if (rw->from->states.at[i].update != ASH_NO_VALUE)
            ash_layout__plain(l, rw->from->states.at[i].update);
    for (ash_value v = 0; v < rw->from->values.len && ash_rewrite__ok(rw); v++)
        if (ash_rewrite__is_kept(rw, v)) ash_layout__plain(l, v);
}

ash_status ash_opt__layout(const ash_opt *opt, const ash_graph *from, ash_graph **out, ash_diag *diag) {
    ash_layout_pass l = {.lanes = ASH_MIN_BLOCK};
    ash_arena arena;
    while (2 * l.lanes <= ASH_MIN((int64_t)ash_target_lanes(opt->target, 4), ASH_MAX_BLOCK)) l.lanes *= 2;
    ASH_TRY(ash_rewrite__begin(&l.rw, opt, from, diag));
    ash_arena_init(&arena, from->allocator);
    l.forms = ash_arena_alloc(&arena, from->values.len, sizeof *l.forms);
    l.deferred = ash_arena_alloc(&arena, from->values.len, sizeof *l.deferred);
    l.constant = ash_arena_alloc(&arena, from->values.len, sizeof *l.constant);
    if (!l.forms || !l.deferred || !l.constant) {
        ash_arena_free(&arena);
        return ash_rewrite__abandon(&l.rw, ASH_NO_MEMORY(diag));
    }
    for (size_t v = 0; v < from->values.len; v++)
        for (unsigned s = 0; s < ASH_BLOCKS; s++) l.forms[v].blocked[s] = ASH_NO_VALUE;
    ash_rewrite__find_constants(&l.rw, l.constant);
    rebuild(&l);
    if (ash_rewrite__ok(&l.rw)) finish(&l);
    ash_arena_free(&arena);
    return ash_rewrite__end(&l.rw, out);
}
