/* SPDX-License-Identifier: MIT */
/* parts: long sums are cut into parts where a product has too few tiles to keep a GPU busy.
 *
 *     matmul(a, b)  ->  reduce_sum(matmul(a', b'))     a' [parts, batch..., m, k / parts]
 *     conv(x, w)    ->  reduce_sum(conv(x, w'))        a group for each part of the channels
 *
 * All parts are tiles of one kernel, so that large tiles, which are quick, are enough of them; a second
 * kernel adds what they have summed, one part after the other, and does what comes behind. So the sums lie
 * in a buffer like any other, and the order in which they are added is the graph's: the same bits every
 * time, and others than those of one chain.
 *
 * Half floats are summed in f32 and rounded once, so the sums of the parts are f32 (ops.def, matmul_wide).
 *
 * Whether, and into how many, says base/gpu_tile.h. Left alone: convolutions in groups, which have tiles
 * for each, and few channels, of which a k-tile has none to spare. */
#include "base/gpu_tile.h"
#include "rewrite.h"

static int64_t most_of(const ash_graph *graph, ash_dim dim) {
    int64_t least, most;
    ash_dims_bounds(graph->dims, dim, &least, &most);
    return most;
}

/* [..., k, ...] -> [parts, ..., k / parts, ...] */
static ash_value cut(ash_graph *to, ash_value x, unsigned axis, int64_t parts) {
    ash_type type = *ash_graph__type(to, x);
    ash_dim dims[ASH_MAX_RANK];
    int64_t perm[ASH_MAX_RANK] = {axis};
    for (unsigned d = 0; d <= type.rank; d++) {
        dims[d] = type.dims[d > axis ? d - 1 : d];
        if (d < type.rank) perm[d + 1] = d + (d >= axis);
    }
    dims[axis] = parts;
    dims[axis + 1] = type.dims[axis] / parts;
    return ash_transpose(to, ash_reshape(to, x, dims, type.rank + 1), perm);
}

static int64_t known(ash_dim lines) {
    return ash_dim_is_const(lines) ? lines : 0;
}

/* How numbers are multiplied that tiles take as they are; false: they take none such. */
static bool math_of(const ash_rewrite *rw, ash_dtype dtype, ash_gpu_math *out) {
    const ash_target *target = rw->opt->target;
    *out = dtype == ASH_F32 ? target->singles : ASH_GPU_HALVES;
    return dtype == ASH_F32 || (target->adds[ASH_GPU_HALVES] && (dtype == ASH_F16 || dtype == ASH_BF16));
}

/* The node over operands that are cut, whose sums are f32. */
static ash_value sums_of(ash_rewrite *rw, const ash_node *node, const ash_value *ins,
                         const ash_attr *attrs) {
    ash_op op = node->op;
    if (ash_graph__type(rw->from, node->out)->dtype != ASH_F32)
        op = op == ASH_OP_CONV ? ASH_OP_CONV_WIDE : ASH_OP_MATMUL_WIDE;
    return ash_build(rw->to, op, ins, 2, attrs, node->n_attrs);
}

/* The sum over an axis of the parts, as the node's result. */
static ash_value add_up(ash_rewrite *rw, const ash_node *node, ash_value sums, unsigned axis) {
    ash_value y = ash_build__reduce(rw->to, ASH_OP_REDUCE_SUM, sums, 1u << axis, false);
    ash_dtype dtype = ash_graph__type(rw->from, node->out)->dtype;
    return dtype == ASH_F32 ? y : ash_cast(rw->to, y, dtype);
}

/* --- products ------------------------------------------------------------------------------------- */

static int64_t parts_of_product(const ash_rewrite *rw, const ash_node *node) {
    const ash_type *a = ash_graph__type(rw->from, node->ins[0]), *y = ash_graph__type(rw->from, node->out);
    ash_gpu_math math;
    if (!math_of(rw, y->dtype, &math) || y->rank == ASH_MAX_RANK || !ash_dim_is_const(a->dims[a->rank - 1]))
        return 1;
    ash_gpu_work work = {.rows = most_of(rw->from, y->dims[y->rank - 2]),
                         .columns = most_of(rw->from, y->dims[y->rank - 1]),
                         .batches = 1,
                         .terms = a->dims[a->rank - 1],
                         .runs = 1,
                         .math = math,
                         .few = ash_gpu_few_of(known(y->dims[y->rank - 2]), known(y->dims[y->rank - 1]))};
    for (unsigned d = 0; d + 2 < y->rank; d++) work.batches *= (double)most_of(rw->from, y->dims[d]);
    return ash_gpu_parts(rw->opt->target, &work);
}

static ash_value product(ash_rewrite *rw, const ash_node *node, int64_t parts) {
    ash_graph *to = rw->to;
    ash_value a = ash_rewrite__get(rw, node->ins[0]), b = ash_rewrite__get(rw, node->ins[1]);
    if (!ash_rewrite__ok(rw)) return ASH_NO_VALUE;
    unsigned rank = ash_graph__type(to, a)->rank;
    const ash_value ins[] = {cut(to, a, rank - 1, parts), cut(to, b, rank - 2, parts)};
    return add_up(rw, node, sums_of(rw, node, ins, node->attrs), 0);
}

/* --- convolutions --------------------------------------------------------------------------------- */

/* The window of a convolution over images, as tiles may have pieces of these. */
static bool window_of(const ash_rewrite *rw, const ash_node *node, ash_gpu_window *out) {
    enum { SPACE = 2 };
    const ash_type *w = ash_graph__type(rw->from, node->ins[1]), *y = ash_graph__type(rw->from, node->out);
    if (w->rank != 2 + SPACE) return false;
    *out = (ash_gpu_window){.channels = w->dims[1],
                            .images = (double)most_of(rw->from, y->dims[0]),
                            .memory = rw->opt->target->block_memory};
    for (unsigned s = 0; s < SPACE; s++) {
        if (!ash_dim_is_const(y->dims[2 + s]) || y->dims[2 + s] < 1) return false;
        out->out[s] = y->dims[2 + s];
        out->kernel[s] = w->dims[2 + s];
        out->strides[s] = ash_node_list(node, ASH_ATTR_STRIDES)[s];
        out->dilations[s] = ash_node_list(node, ASH_ATTR_DILATIONS)[s];
    }
    return true;
}

static int64_t parts_of_conv(const ash_rewrite *rw, const ash_node *node) {
    const ash_type *w = ash_graph__type(rw->from, node->ins[1]), *y = ash_graph__type(rw->from, node->out);
    ash_gpu_math math;
    if (!math_of(rw, y->dtype, &math) || y->rank == ASH_MAX_RANK ||
        ash_node_int(node, ASH_ATTR_GROUPS) != 1)
        return 1;
    for (unsigned d = 0; d < w->rank; d++)
        if (!ash_dim_is_const(w->dims[d])) return 1;
    ash_gpu_work work = {.rows = w->dims[0],
                         .columns = 1,
                         .batches = 1,
                         .terms = w->dims[1],
                         .runs = 1,
                         .packed = true, /* as constants will be (filters.c) */
                         .math = math};
    double columns = 1;
    for (unsigned d = 0; d < y->rank; d++)
        if (d != 1) columns *= (double)most_of(rw->from, y->dims[d]);
    for (unsigned d = 2; d < w->rank; d++) work.runs *= w->dims[d];
    if (columns > INT32_MAX) return 1; /* tiles enough */
    work.columns = (int64_t)columns;
    ash_gpu_window window;
    if (window_of(rw, node, &window)) work.window = &window;
    return ash_gpu_parts(rw->opt->target, &work);
}

/* A group for each part: [o, c, k...] -> [parts * o, c / parts, k...], and its result [n, parts * o, s...]
 * -> [n, parts, o, s...]. */
static ash_value convolution(ash_rewrite *rw, const ash_node *node, int64_t parts) {
    ash_graph *to = rw->to;
    ash_attr attrs[ASH_ATTR_COUNT];
    ash_value ins[] = {ash_rewrite__get(rw, node->ins[0]), ash_rewrite__get(rw, node->ins[1])};
    if (!ash_rewrite__ok(rw)) return ASH_NO_VALUE;
    ash_type w = ash_rewrite__type(rw, ins[1]), y = *ash_graph__type(rw->from, node->out);
    w.dims[0] *= parts;
    w.dims[1] /= parts;
    ins[1] = ash_reshape(to, cut(to, ins[1], 1, parts), w.dims, w.rank);
    for (size_t i = 0; i < node->n_attrs; i++) {
        attrs[i] = node->attrs[i];
        if (attrs[i].key == ASH_ATTR_GROUPS) attrs[i].i = parts;
    }
    ash_value sums = sums_of(rw, node, ins, attrs);
    memmove(y.dims + 2, y.dims + 1, (y.rank - 1) * sizeof *y.dims);
    y.dims[1] = parts;
    return add_up(rw, node, ash_reshape(to, sums, y.dims, y.rank + 1), 1);
}

ash_status ash_opt__parts(const ash_opt *opt, const ash_graph *from, ash_graph **out, ash_diag *diag) {
    ash_rewrite rw;
    ASH_TRY(ash_rewrite__begin(&rw, opt, from, diag));
    for (size_t i = 0; i < from->nodes.len && ash_rewrite__ok(&rw); i++) {
        const ash_node *node = &from->nodes.at[i];
        if (!ash_rewrite__is_live(&rw, node)) continue;
        bool is_product = node->op == ASH_OP_MATMUL;
        int64_t parts = is_product                ? parts_of_product(&rw, node)
                        : node->op == ASH_OP_CONV ? parts_of_conv(&rw, node)
                                                  : 1;
        if (parts == 1) {
            ash_rewrite__copy(&rw, node);
            continue;
        }
        ash_rewrite__name(&rw, node);
        ash_value y = is_product ? product(&rw, node, parts) : convolution(&rw, node, parts);
        ash_rewrite__bind(&rw, node->out, y);
    }
    return ash_rewrite__end(&rw, out);
}
