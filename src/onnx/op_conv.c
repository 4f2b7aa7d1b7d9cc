/* SPDX-License-Identifier: MIT */
/* Convolutions: window attributes, Conv, ConvTranspose. */
#include "ops.h"

/* --- attributes of windows ------------------------------------------------------------------------ */

static bool window_list(ash_import *im, const char *name, unsigned n, int64_t absent, int64_t *out) {
    const int64_t *list;
    size_t count;
    for (unsigned i = 0; i < n; i++) out[i] = absent;
    if (!ash_import__attr_ints(im, name, &list, &count)) return false;
    if (count != n)
        ash_import__fail(im, ASH_ERROR_SHAPE, "'%s' has %zu entries for %u spatial dims", name, count, n);
    for (unsigned i = 0; i < n && count == n; i++) {
        out[i] = list[i];
        if (list[i] <= 0 || list[i] > INT32_MAX)
            ash_import__fail(im, ASH_ERROR_SHAPE, "'%s' has the entry %lld", name, (long long)list[i]);
    }
    return true;
}

static void window_pads(ash_import *im, ash_onnx_window *w) {
    const int64_t *pads;
    size_t count;
    if (!ash_import__attr_ints(im, "pads", &pads, &count)) return;
    if (count != 2 * w->n) {
        ash_import__fail(im, ASH_ERROR_SHAPE, "'pads' has %zu entries for %u spatial dims", count, w->n);
        return;
    }
    for (size_t i = 0; i < count; i++) {
        if (pads[i] < 0 || pads[i] > INT32_MAX)
            ash_import__fail(im, ASH_ERROR_UNSUPPORTED, "a padding of %lld elements", (long long)pads[i]);
        *(i < w->n ? &w->before[i] : &w->after[i - w->n]) = pads[i];
    }
}

bool ash_onnx__window(ash_import *im, unsigned rank, const int64_t *kernel, ash_onnx_window *out) {
    *out = (ash_onnx_window){0};
    if (rank < 3) {
        ash_import__fail(im, ASH_ERROR_SHAPE, "an operand of rank %u, without spatial dims", rank);
        return false;
    }
    out->n = rank - 2;
    bool has = window_list(im, "kernel_shape", out->n, 1, out->kernel);
    if (!has && !kernel) ash_import__fail(im, ASH_ERROR_FORMAT, "'kernel_shape' is missing");
    for (unsigned i = 0; i < out->n && kernel; i++) {
        if (has && out->kernel[i] != kernel[i])
            ash_import__fail(im, ASH_ERROR_SHAPE, "'kernel_shape' differs from the weight's dim %u", i + 2);
        out->kernel[i] = kernel[i];
    }
    window_list(im, "strides", out->n, 1, out->strides);
    window_list(im, "dilations", out->n, 1, out->dilations);
    for (unsigned i = 0; i < out->n; i++)
        if ((out->kernel[i] - 1) * out->dilations[i] >= INT32_MAX)
            ash_import__fail(im, ASH_ERROR_UNSUPPORTED, "a window that spans more than 2^31 elements");
    enum { NOTSET, SAME_UPPER, SAME_LOWER, VALID };
    unsigned pad = ASH_IMPORT_CHOICE(im, "auto_pad", "NOTSET", "SAME_UPPER", "SAME_LOWER", "VALID");
    out->same_upper = pad == SAME_UPPER;
    out->same_lower = pad == SAME_LOWER;
    out->valid = pad == VALID;
    if (pad == NOTSET) window_pads(im, out);
    return ash_import__ok(im);
}

/* As many results as ceil(dim / stride): the padding that this needs, the odd element at the end (upper) or
 * the start. */
void ash_onnx__window_auto_pad(ash_import *im, const ash_type *type, ash_onnx_window *w) {
    if (!w->same_upper && !w->same_lower) return;
    ash_graph *g = im->graph;
    for (unsigned i = 0; i < w->n; i++) {
        int64_t span = (w->kernel[i] - 1) * w->dilations[i] + 1, stride = w->strides[i];
        /* max(span - stride + the rest of dim to a whole number of strides, 0) */
        ash_dim dim = type->dims[i + 2], up = ash_graph_dim_add(g, dim, stride - 1);
        ash_dim total = ash_graph_dim_mul(g, ash_graph_dim_div(g, up, stride), stride);
        total = ash_graph_dim_sub(g, total, dim);
        if (span < stride)
            total = ash_graph_dim_sub(g, ash_graph_dim_max(g, total, stride - span), stride - span);
        else
            total = ash_graph_dim_add(g, total, span - stride);
        ash_dim half = ash_graph_dim_div(g, total, 2),
                rest = ash_graph_dim_div(g, ash_graph_dim_add(g, total, 1), 2);
        w->before[i] = w->same_upper ? half : rest;
        w->after[i] = w->same_upper ? rest : half;
    }
}

/* --- Conv ----------------------------------------------------------------------------------------- */

ash_value ash_onnx__conv(ash_import *im, ash_value x, ash_value w, const ash_onnx_window *window,
                         int64_t groups) {
    ash_window windows[ASH_MAX_RANK];
    for (unsigned i = 0; i < window->n; i++) windows[i] = ash_onnx__window_at(window, i);
    return ash_conv(im->graph, x, w, windows, window->n, groups);
}

/* Spatial dims of a weight, which must be numbers. */
static bool weight_kernel(ash_import *im, const ash_type *w, unsigned rank, int64_t *kernel) {
    if (w->rank != rank) {
        ash_import__fail(im, ASH_ERROR_SHAPE, "a weight of rank %u for an operand of rank %u", w->rank,
                         rank);
        return false;
    }
    for (unsigned i = 2; i < rank; i++) {
        kernel[i - 2] = w->dims[i];
        if (w->dims[i] <= 0 || w->dims[i] > INT32_MAX) {
            ash_import__fail(im, ASH_ERROR_SHAPE, "a kernel of %lld elements", (long long)w->dims[i]);
            return false;
        }
    }
    return true;
}

/* Weights of f32 beside an operand of bf16, which the standard does not allow, are rounded to it: torch
 * 2.15 leaves them so where it folds a normalisation into a convolution of a model in bf16. */
static ash_value as_operand(ash_import *im, ash_value weight, ash_dtype dtype) {
    bool folded = dtype == ASH_BF16 && ash_import__type(im, weight).dtype == ASH_F32;
    return folded ? ash_cast(im->graph, weight, dtype) : weight;
}

static ash_value add_bias(ash_import *im, ash_value y, size_t k, unsigned spatial) {
    if (!ash_import__has(im, k)) return y;
    ash_value bias = as_operand(im, ash_import__in(im, k), ash_import__type(im, y).dtype);
    return ash_add(im->graph, y, ash_build__channels(im->graph, bias, spatial));
}

/* Attributes and padding for operand 0 and the weight at operand k. */
bool ash_onnx__conv_window(ash_import *im, const ash_type *x, const ash_type *w, ash_onnx_window *window) {
    int64_t kernel[ASH_MAX_RANK];
    if (!weight_kernel(im, w, x->rank, kernel) || !ash_onnx__window(im, x->rank, kernel, window))
        return false;
    ash_onnx__window_auto_pad(im, x, window);
    return ash_import__ok(im);
}

ash_value ash_onnx__conv_on(ash_import *im, ash_value x, ash_value w) {
    ash_type type = ash_import__type(im, x), weight = ash_import__type(im, w);
    ash_onnx_window window;
    if (!ash_onnx__conv_window(im, &type, &weight, &window)) return ASH_NO_VALUE;
    w = as_operand(im, w, type.dtype);
    ash_value y = ash_onnx__conv(im, x, w, &window, ash_import__attr_int(im, "group", 1));
    return add_bias(im, y, 2, window.n);
}

ash_value ash_onnx__conv_of(ash_import *im) {
    return ash_onnx__conv_on(im, ash_import__in(im, 0), ash_import__in(im, 1));
}

void ash_onnx__op_conv(ash_import *im) {
    ash_import__out(im, 0, ash_onnx__conv_of(im));
}

/* --- ConvTranspose -------------------------------------------------------------------------------- */

/* What ConvTranspose cuts off at each end of the full result: pads, or what output_shape and auto_pad ask
 * for. */
static void transposed_pads(ash_import *im, const ash_type *x, ash_onnx_window *w, int64_t *extra) {
    const int64_t *shape;
    size_t n = 0;
    bool has = ash_import__attr_ints(im, "output_shape", &shape, &n), same = w->same_upper || w->same_lower;
    if (!has && !same) return;
    if (has && n < w->n) {
        ash_import__fail(im, ASH_ERROR_SHAPE, "'output_shape' has %zu entries", n);
        return;
    }
    for (unsigned i = 0; i < w->n; i++) {
        ash_dim dim = x->dims[i + 2];
        int64_t span = (w->kernel[i] - 1) * w->dilations[i] + 1, full = extra[i] + span - w->strides[i];
        if (has && (!ash_dim_is_const(dim) || dim > INT32_MAX)) {
            ash_import__fail(im, ASH_ERROR_UNSUPPORTED, "output_shape over a dim that is not a number");
            return;
        }
        if (has && (shape[n - w->n + i] < 0 || shape[n - w->n + i] > INT32_MAX)) {
            ash_import__fail(im, ASH_ERROR_SHAPE, "'output_shape' has the entry %lld",
                             (long long)shape[n - w->n + i]);
            return;
        }
        /* auto_pad asks for dim * stride */
        int64_t total = has ? full + w->strides[i] * dim - shape[n - w->n + i] : full;
        if (total < 0) extra[i] -= total, total = 0;
        w->before[i] = w->same_upper ? total / 2 : total - total / 2;
        w->after[i] = total - w->before[i];
    }
}

void ash_onnx__op_conv_transpose(ash_import *im) {
    ash_value x = ash_import__in(im, 0), w = ash_import__in(im, 1);
    ash_type type = ash_import__type(im, x), weight = ash_import__type(im, w);
    int64_t kernel[ASH_MAX_RANK], extra[ASH_MAX_RANK] = {0};
    const int64_t *list;
    size_t n;
    ash_onnx_window window;
    ash_window windows[ASH_MAX_RANK];
    if (!weight_kernel(im, &weight, type.rank, kernel) || !ash_onnx__window(im, type.rank, kernel, &window))
        return;
    bool padded = ash_import__attr_ints(im, "output_padding", &list, &n);
    if (padded && n != window.n)
        ash_import__fail(im, ASH_ERROR_SHAPE, "'output_padding' has %zu entries for %u spatial dims", n,
                         window.n);
    for (unsigned i = 0; padded && i < window.n && ash_import__ok(im); i++) {
        extra[i] = list[i];
        if (list[i] < 0 || list[i] > INT32_MAX)
            ash_import__fail(im, ASH_ERROR_SHAPE, "'output_padding' has the entry %lld",
                             (long long)list[i]);
    }
    if (!ash_import__ok(im)) return;
    transposed_pads(im, &type, &window, extra);
    for (unsigned i = 0; i < window.n; i++) windows[i] = ash_onnx__window_at(&window, i);
    ash_value y =
        ash_conv_transpose(im->graph, x, w, windows, extra, window.n, ash_import__attr_int(im, "group", 1));
    ash_import__out(im, 0, add_bias(im, y, 2, window.n));
}
