/* SPDX-License-Identifier: MIT */
/* Windows and Fourier transforms: products with constant matrices of cosines and sines. */
#include <math.h>

#include "ops.h"

enum { MAX_WINDOW = 1 << 20, MAX_TRANSFORM = 2048 };

static bool scalar_int(ash_import *im, size_t k, int64_t *out) {
    const double *list;
    size_t n;
    if (!ash_import__floats(im, k, &list, &n)) return false;
    if (n != 1 || !(fabs(list[0]) < 0x1p31)) {
        ash_import__fail(im, ASH_ERROR_SHAPE, "operand %zu is not one small number", k);
        return false;
    }
    *out = (int64_t)list[0];
    return true;
}

/* a0 - a1 cos(2 pi i / n) + a2 cos(4 pi i / n); n is one less for a symmetric window. */
void ash_onnx__op_window(ash_import *im) {
    static const double weights[][3] = {[ONNX_HANN] = {0.5, 0.5, 0},
                                        [ONNX_HAMMING] = {25.0 / 46, 21.0 / 46, 0},
                                        [ONNX_BLACKMAN] = {0.42, 0.5, 0.08}};
    const double *w = weights[im->row->arg];
    int64_t size, wanted = ash_import__attr_int(im, "output_datatype", ONNX_FLOAT);
    ash_type type = {.rank = 1};
    if (!scalar_int(im, 0, &size)) return;
    if (size < 0 || size > MAX_WINDOW || !ash_onnx__dtype(wanted, &type.dtype)) {
        ash_import__fail(im, ASH_ERROR_UNSUPPORTED, "a window of %lld elements of type %s", (long long)size,
                         ash_onnx__dtype_name(wanted));
        return;
    }
    double n = (double)size - (ash_import__attr_int(im, "periodic", 1) ? 0 : 1);
    double *numbers = ash_arena_alloc(im->scratch, (size_t)size, sizeof *numbers);
    if (!numbers) {
        ash_import__fail(im, ASH_ERROR_OUT_OF_MEMORY, "out of memory");
        return;
    }
    for (int64_t i = 0; i < size; i++) {
        double turn = n > 0 ? 2 * M_PI * (double)i / n : 0;
        numbers[i] = w[0] - w[1] * cos(turn) + w[2] * cos(2 * turn);
    }
    type.dims[0] = size;
    ash_import__out(im, 0, ash_build__floats(im->graph, &type, numbers));
}

/* --- DFT ------------------------------------------------------------------------------------------ */

/* [n, bins] matrices of cos and -sin (inverse: +sin, over n) of 2 pi i k / n. */
static bool fourier(ash_import *im, ash_dtype dtype, int64_t n, int64_t bins, bool inverse, ash_value *re,
                    ash_value *im_) {
    if (n <= 0 || n > MAX_TRANSFORM || bins > n) {
        ash_import__fail(im, ASH_ERROR_UNSUPPORTED, "a transform of %lld elements", (long long)n);
        return false;
    }
    const ash_type type = {.dtype = dtype, .rank = 2, .dims = {n, bins}};
    double *c = ash_arena_alloc(im->scratch, (size_t)(n * bins), sizeof *c);
    double *s = ash_arena_alloc(im->scratch, (size_t)(n * bins), sizeof *s);
    if (!c || !s) return ash_import__fail(im, ASH_ERROR_OUT_OF_MEMORY, "out of memory"), false;
    for (int64_t i = 0; i < n; i++) {
        for (int64_t k = 0; k < bins; k++) {
            double turn = 2 * M_PI * (double)(i * k % n) / (double)n;
            c[i * bins + k] = inverse ? cos(turn) / (double)n : cos(turn);
            s[i * bins + k] = inverse ? sin(turn) / (double)n : -sin(turn);
        }
    }
    *re = ash_build__floats(im->graph, &type, c);
    *im_ = ash_build__floats(im->graph, &type, s);
    return ash_import__ok(im);
}

/* The same where n is no number: computed when the graph runs. */
static bool fourier_variable(ash_import *im, ash_dtype dtype, ash_dim n, ash_dim bins, bool inverse,
                             ash_value *re, ash_value *im_) {
    ash_graph *g = im->graph;
    const ash_dim dims[] = {n, bins};
    ash_value count = ash_cast(g, ash_build__dim(g, n), ASH_F64);
    ash_value all = ash_mul(g, ash_iota(g, ASH_F64, dims, 2, 0), ash_iota(g, ASH_F64, dims, 2, 1));
    ash_value rounds = ash_mul(g, ash_floor(g, ash_div(g, all, count)), count);
    ash_value turn = ash_div(g, ash_build__with(g, ASH_OP_MUL, ash_sub(g, all, rounds), 2 * M_PI), count);
    *re = ash_cos(g, turn), *im_ = ash_sin(g, turn);
    *re = ash_cast(g, inverse ? ash_div(g, *re, count) : *re, dtype);
    *im_ = ash_cast(g, inverse ? ash_div(g, *im_, count) : ash_neg(g, *im_), dtype);
    return ash_import__ok(im);
}

/* x [..., n, 1 or 2], real or complex, transformed along its second to last axis: [..., bins, 2]. */
static ash_value transform(ash_import *im, ash_value x, ash_dim bins, bool inverse) {
    if (x == ASH_NO_VALUE) return x;
    ash_type type = ash_import__type(im, x);
    unsigned last = type.rank - 1;
    ash_value re, turn, parts[2];
    const ash_dim n = type.dims[last - 1];
    if (!(ash_dim_is_const(n) ? fourier : fourier_variable)(im, type.dtype, n, bins, inverse, &re, &turn))
        return ASH_NO_VALUE;
    ash_value a = ash_build__at(im->graph, x, last, 0);
    parts[0] = ash_matmul(im->graph, a, re);
    parts[1] = ash_matmul(im->graph, a, turn);
    if (type.dims[last] == 2) {
        ash_value b = ash_build__at(im->graph, x, last, 1);
        parts[0] = ash_sub(im->graph, parts[0], ash_matmul(im->graph, b, turn));
        parts[1] = ash_add(im->graph, parts[1], ash_matmul(im->graph, b, re));
    }
    for (int i = 0; i < 2; i++) parts[i] = ash_build__insert_axis(im->graph, parts[i], last);
    return ash_concat(im->graph, parts, 2, last);
}

/* The signal cut, or filled with zeros, to `length` along an axis. */
static ash_value fit(ash_import *im, ash_value x, unsigned axis, int64_t length) {
    ash_type type = ash_import__type(im, x);
    ash_dim low[ASH_MAX_RANK] = {0}, high[ASH_MAX_RANK] = {0};
    if (type.dims[axis] > length) return ash_slice_axis(im->graph, x, axis, 0, length);
    high[axis] = length - type.dims[axis];
    return ash_build__pad(im->graph, x, 0, low, high, NULL);
}

/* The real signal of `length` elements along `axis` whose spectrum, of which x [..., bins, 2] has the
 * first half, is its own mirror image: [..., length, 1]. Every bin that has an image counts twice. */
static ash_value real_signal(ash_import *im, ash_value x, unsigned axis, int64_t length) {
    int64_t bins = length / 2 + 1;
    ash_type type = ash_import__type(im, x);
    unsigned second = type.rank - 2, last = type.rank - 1;
    if (length > MAX_TRANSFORM || type.dims[last] != 2)
        return ash_import__fail(im, ASH_ERROR_UNSUPPORTED,
                                "a one-sided spectrum of %lld elements, or a real one", (long long)length);
    double *c = ash_arena_alloc(im->scratch, (size_t)(bins * length), sizeof *c);
    double *s = ash_arena_alloc(im->scratch, (size_t)(bins * length), sizeof *s);
    if (!c || !s) return ash_import__fail(im, ASH_ERROR_OUT_OF_MEMORY, "out of memory");
    for (int64_t k = 0; k < bins; k++) {
        double weight = (k == 0 || 2 * k == length ? 1.0 : 2.0) / (double)length;
        for (int64_t i = 0; i < length; i++) {
            double turn = 2 * M_PI * (double)(i * k % length) / (double)length;
            c[k * length + i] = weight * cos(turn);
            s[k * length + i] = weight * sin(turn);
        }
    }
    const ash_type matrix = {.dtype = type.dtype, .rank = 2, .dims = {bins, length}};
    x = ash_build__swap(im->graph, fit(im, x, axis, bins), axis, second);
    ash_value re = ash_matmul(im->graph, ash_build__at(im->graph, x, last, 0),
                              ash_build__floats(im->graph, &matrix, c));
    ash_value turned = ash_matmul(im->graph, ash_build__at(im->graph, x, last, 1),
                                  ash_build__floats(im->graph, &matrix, s));
    x = ash_build__insert_axis(im->graph, ash_sub(im->graph, re, turned), last);
    return ash_build__swap(im->graph, x, axis, second);
}

/* The axis is an attribute before opset 20, an operand since. */
void ash_onnx__op_dft(ash_import *im) {
    ash_value x = ash_import__in(im, 0);
    ash_type type = ash_import__type(im, x);
    int64_t length, at = im->opset < 20 ? ash_import__attr_int(im, "axis", 1) : -2;
    bool inverse = ash_import__attr_int(im, "inverse", 0) != 0,
         onesided = ash_import__attr_int(im, "onesided", 0) != 0;
    if (im->opset >= 20 && ash_import__has(im, 2) && !scalar_int(im, 2, &at)) return;
    unsigned axis = ash_import__axis(im, at, type.rank), second = type.rank - 2;
    const bool has_length = ash_import__has(im, 1);
    if (has_length && !scalar_int(im, 1, &length)) return;
    if (type.rank < 2 || axis + 1 >= type.rank ||
        (!ash_dim_is_const(type.dims[axis]) && (has_length || (inverse && onesided)))) {
        ash_import__fail(im, ASH_ERROR_UNSUPPORTED,
                         "a transform along axis %u of a tensor of rank %u, or of a dim that is "
                         "not a number to a length, or back to a real signal",
                         axis, type.rank);
        return;
    }
    if (!has_length) length = inverse && onesided ? 2 * (type.dims[axis] - 1) : type.dims[axis];
    int64_t least = length, most;
    if (!has_length) ash_dims_bounds(im->graph->dims, length, &least, &most);
    if (least <= 0) {
        ash_import__fail(im, ASH_ERROR_UNSUPPORTED, "a transform of no elements");
        return;
    }
    if (inverse && onesided) {
        ash_import__out(im, 0, real_signal(im, x, axis, length));
        return;
    }
    if (has_length) x = fit(im, x, axis, length);
    x = ash_build__swap(im->graph, x, axis, second);
    ash_dim bins =
        onesided ? ash_graph_dim_add(im->graph, ash_graph_dim_div(im->graph, length, 2), 1) : length;
    ash_import__out(im, 0, ash_build__swap(im->graph, transform(im, x, bins, inverse), axis, second));
}

/* Of a signal [batch, n, c], [batch, frames, length, c]. */
static ash_value frames_of(ash_import *im, ash_value x, int64_t length, int64_t step) {
    ash_graph *g = im->graph;
    ash_dim rest = ash_graph_dim_sub(g, ash_import__type(im, x).dims[1], length);
    ash_dim frames = ash_graph_dim_add(g, step == 1 ? rest : ash_graph_dim_div(g, rest, step), 1);
    if (ash_dim_is_const(frames) && frames <= MAX_WINDOW / length) { /* indices that are known */
        const ash_type type = {.dtype = ASH_I64, .rank = 2, .dims = {frames, length}};
        int64_t *index = ash_arena_alloc(im->scratch, (size_t)(frames * length), sizeof *index);
        if (!index) return ash_import__fail(im, ASH_ERROR_OUT_OF_MEMORY, "out of memory");
        for (int64_t i = 0; i < frames * length; i++) index[i] = i / length * step + i % length;
        return ash_gather(g, x, ash_build__ints(g, &type, index), 1);
    }
    const ash_dim dims[] = {frames, length};
    ash_value first = ash_mul(g, ash_iota(g, ASH_I64, dims, 2, 0), ash_scalar(g, ASH_I64, (double)step));
    return ash_gather(g, x, ash_add(g, first, ash_iota(g, ASH_I64, dims, 2, 1)), 1);
}

/* Frames of the signal [batch, n, 1 or 2], `step` apart, times the window, each transformed. */
void ash_onnx__op_stft(ash_import *im) {
    ash_value x = ash_import__in(im, 0);
    ash_type type = ash_import__type(im, x);
    int64_t step, length = -1;
    if (!scalar_int(im, 1, &step)) return;
    if (ash_import__has(im, 3) && !scalar_int(im, 3, &length)) return;
    if (length < 0 && ash_import__has(im, 2)) length = ash_import__in_type(im, 2).dims[0];
    if (type.rank == 2) x = ash_build__insert_axis(im->graph, x, 2), type = ash_import__type(im, x);
    int64_t low = -1, high;
    if (type.rank == 3) ash_dims_bounds(im->graph->dims, type.dims[1], &low, &high);
    if (step <= 0 || length <= 0 || length > low) {
        ash_import__fail(im, ASH_ERROR_UNSUPPORTED, "frames of %lld elements every %lld", (long long)length,
                         (long long)step);
        return;
    }
    const ash_dim column[] = {length, 1};
    x = frames_of(im, x, length, step);
    if (ash_import__has(im, 2))
        x = ash_mul(im->graph, x, ash_reshape(im->graph, ash_import__in(im, 2), column, 2));
    bool onesided = ash_import__attr_int(im, "onesided", 1) != 0;
    ash_import__out(im, 0, transform(im, x, onesided ? length / 2 + 1 : length, false));
}

/* --- mel weights ---------------------------------------------------------------------------------- */

static double to_mel(double hertz) {
    return 2595 * log10(1 + hertz / 700);
}

/* Triangles that overlap by half, evenly spaced in mel, over the bins of a spectrum: [dft_length / 2 + 1,
 * bins]. The corners are whole bins, as in the specification's function body. */
void ash_onnx__op_mel_weights(ash_import *im) {
    int64_t bins, length, rate, wanted = ash_import__attr_int(im, "output_datatype", ONNX_FLOAT);
    const double *low, *high;
    size_t n;
    ash_type type = {.rank = 2};
    if (!scalar_int(im, 0, &bins) || !scalar_int(im, 1, &length) || !scalar_int(im, 2, &rate) ||
        !ash_import__floats(im, 3, &low, &n) || !ash_import__floats(im, 4, &high, &n))
        return;
    int64_t rows = length / 2 + 1;
    if (bins <= 0 || length <= 0 || rate <= 0 || bins > MAX_WINDOW / rows - 2 ||
        !ash_onnx__dtype(wanted, &type.dtype)) {
        ash_import__fail(im, ASH_ERROR_UNSUPPORTED, "%lld bins over a transform of %lld elements",
                         (long long)bins, (long long)length);
        return;
    }
    double *out = ash_arena_alloc(im->scratch, (size_t)(rows * bins), sizeof *out);
    double *corner = ash_arena_alloc(im->scratch, (size_t)bins + 2, sizeof *corner);
    if (!out || !corner) {
        ash_import__fail(im, ASH_ERROR_OUT_OF_MEMORY, "out of memory");
        return;
    }
    double from = to_mel(low[0]), step = (to_mel(high[0]) - from) / (double)(bins + 2);
    for (int64_t i = 0; i < bins + 2; i++) {
        double hertz = 700 * (pow(10, (from + step * (double)i) / 2595) - 1);
        corner[i] = floor((double)(length + 1) * hertz / (double)rate);
    }
    for (int64_t b = 0; b < bins; b++) {
        double left = corner[b], centre = corner[b + 1], right = corner[b + 2];
        for (int64_t i = 0; i < rows; i++) {
            double at = (double)i, weight = 0;
            if (at >= left && at <= centre) weight = centre > left ? (at - left) / (centre - left) : 1;
            if (at >= centre && at < right) weight = centre == right ? 1 : (right - at) / (right - centre);
            out[i * bins + b] = weight;
        }
    }
    type.dims[0] = rows, type.dims[1] = bins;
    ash_import__out(im, 0, ash_build__floats(im->graph, &type, out));
}
