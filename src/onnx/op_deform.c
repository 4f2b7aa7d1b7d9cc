/* SPDX-License-Identifier: MIT */
/* DeformConv: a convolution whose window has, for every result, positions of its own. The image is read at
 * them, between its elements and with zeros around it, and what is read is multiplied with the weights as
 * a matrix. */
#include "sample.h"

enum { X, WEIGHT, OFFSET, BIAS, MASK };

/* Where the windows' elements lie along one spatial dim without offsets: out * stride + k * dilation -
 * pad, as [kernel..., out...] with extents of 1 along all other dims. */
static ash_value ramp(const ash_sampler *s, const ash_onnx_window *w, unsigned axis, ash_dim out) {
    ash_graph *g = s->graph;
    ash_dim dims[2 * ASH_SAMPLE_SPACE];
    ash_value at[2];
    for (int part = 0; part < 2; part++) {
        const ash_dim count = part ? out : w->kernel[axis];
        for (unsigned i = 0; i < 2 * s->rank; i++) dims[i] = 1;
        dims[(part ? s->rank : 0) + axis] = count;
        at[part] = ash_reshape(g, ash_iota(g, s->dtype, &count, 1, 0), dims, 2 * s->rank);
        at[part] = ash_build__with(g, ASH_OP_MUL, at[part],
                                   (double)(part ? w->strides[axis] : w->dilations[axis]));
    }
    ash_value pad = ash_cast(g, ash_build__dim(g, w->before[axis]), s->dtype);
    return ash_sub(g, ash_add(g, at[0], at[1]), pad);
}

/* [n, c, kernel..., out...] read from the image, a mask applied, as [n, groups, c / groups * kernel,
 * out]. */
static ash_value columns(ash_import *im, ash_sampler *s, const ash_onnx_window *w, int64_t offset_groups,
                         int64_t groups) {
    ash_graph *g = im->graph;
    ash_value offset = ash_import__in(im, OFFSET), at[ASH_SAMPLE_SPACE];
    ash_type type = ash_import__type(im, offset);
    unsigned rank = s->rank;
    ash_dim kernel = 1, outs = 1;
    if (type.rank != rank + 2)
        return ash_import__fail(im, ASH_ERROR_SHAPE, "offsets of rank %u", type.rank);
    for (unsigned i = 0; i < rank; i++) {
        kernel = ash_graph_dim_mul(g, kernel, w->kernel[i]);
        outs = ash_graph_dim_mul(g, outs, type.dims[2 + i]);
    }
    s->points = ash_graph_dim_mul(g, kernel, outs);
    const ash_dim split[] = {s->n, kernel, rank, outs}, list[] = {s->n, s->points};
    offset = ash_reshape(g, offset, split, 4); /* s->n counts offset groups */
    for (unsigned i = 0; i < rank; i++) {
        ash_dim full[2 * ASH_SAMPLE_SPACE], whole[] = {1, kernel, outs}, each[] = {s->n, kernel, outs};
        for (unsigned k = 0; k < rank; k++) full[k] = w->kernel[k], full[rank + k] = type.dims[2 + k];
        ash_value base = ash_broadcast_to(g, ramp(s, w, i, type.dims[2 + i]), full, 2 * rank);
        at[i] = ash_reshape(g, ash_build__at(g, offset, 2, i), each, 3);
        at[i] = ash_add(g, ash_reshape(g, base, whole, 3), ash_cast(g, at[i], s->dtype));
        at[i] = ash_reshape(g, at[i], list, 2);
    }
    ash_value read = ash_sample__interpolate(s, at, 2, ASH_OP_ADD);
    if (ash_import__has(im, MASK))
        read = ash_sample__weigh(s, read, ash_reshape(g, ash_import__in(im, MASK), list, 2));
    ash_dim images = ash_graph_dim_div(g, s->n, offset_groups);
    ash_dim channels = ash_graph_dim_mul(g, s->c, offset_groups);
    const ash_dim grouped[] = {images, groups,
                               ash_graph_dim_mul(g, ash_graph_dim_div(g, channels, groups), kernel), outs};
    return ash_reshape(g, read, grouped, 4);
}

void ash_onnx__op_deform_conv(ash_import *im) {
    ash_graph *g = im->graph;
    ash_value x = ash_import__in(im, X), weight = ash_import__in(im, WEIGHT);
    ash_type type = ash_import__type(im, x), wt = ash_import__type(im, weight),
             offsets = ash_import__in_type(im, OFFSET);
    int64_t groups = ash_import__attr_int(im, "group", 1),
            offset_groups = ash_import__attr_int(im, "offset_group", 1);
    ash_onnx_window window;
    ash_sampler s;
    if (!ash_import__ok(im) || !ash_onnx__conv_window(im, &type, &wt, &window)) return;
    if (groups < 1 || offset_groups < 1 || !ash_dim_is_const(type.dims[1]) ||
        type.dims[1] % offset_groups || !ash_dim_is_const(wt.dims[0]) || wt.dims[0] % groups ||
        type.dims[1] % groups) {
        ash_import__fail(im, ASH_ERROR_SHAPE, "%lld groups and %lld of offsets do not fit the channels",
                         (long long)groups, (long long)offset_groups);
        return;
    }
    ash_type per_group = type; /* offset groups count as images of their own */
    per_group.dims[0] = ash_graph_dim_mul(g, type.dims[0], offset_groups);
    per_group.dims[1] = type.dims[1] / offset_groups;
    if (!ash_sample__open(im, ash_reshape(g, x, per_group.dims, type.rank), &s)) return;
    s.padding = 'z';
    ash_value read = columns(im, &s, &window, offset_groups, groups);
    if (read == ASH_NO_VALUE) return;
    const ash_dim matrix[] = {1, groups, wt.dims[0] / groups, ash_build__product(g, &wt, 1, wt.rank)};
    ash_type rt = ash_import__type(im, read);
    const ash_dim many[] = {rt.dims[0], matrix[1], matrix[2], matrix[3]};
    weight = ash_broadcast_to(g, ash_reshape(g, weight, matrix, 4), many, 4);
    ash_dim out[2 + ASH_SAMPLE_SPACE] = {type.dims[0], wt.dims[0]};
    for (unsigned i = 2; i < type.rank; i++) out[i] = offsets.dims[i];
    ash_value y = ash_reshape(g, ash_matmul(g, weight, read), out, type.rank);
    if (ash_import__has(im, BIAS))
        y = ash_add(g, y, ash_build__channels(g, ash_import__in(im, BIAS), s.rank));
    ash_import__out(im, 0, y);
}
