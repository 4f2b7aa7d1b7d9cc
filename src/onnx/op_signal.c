/* SPDX-License-Identifier: MIT */
/* Windows and Fourier transforms: products with constant matrices of cosines and sines, one or, of long
 * signals, two. */
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
        ash_import__fail(im, ASH_ERROR_UNSUPPORTED,
                         "a transform of %lld elements, which are no product of two numbers up to %d",
                         (long long)n, MAX_TRANSFORM);
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

/* Real parts and imaginary ones, which may be missing. */
typedef struct spectrum {
    ash_value re, im;
} spectrum;

/* x [..., n] times a complex matrix [n, bins]. */
static spectrum times_matrix(ash_graph *g, spectrum x, ash_value re, ash_value im) {
    spectrum out = {ash_matmul(g, x.re, re), ash_matmul(g, x.re, im)};
    if (x.im == ASH_NO_VALUE) return out;
    out.re = ash_sub(g, out.re, ash_matmul(g, x.im, im));
    out.im = ash_add(g, out.im, ash_matmul(g, x.im, re));
    return out;
}

/* x [..., n] transformed along its last axis by one product: [..., bins]. */
static spectrum by_matrix(ash_import *im, spectrum x, ash_dim bins, bool inverse) {
    const ash_type type = ash_import__type(im, x.re);
    const ash_dim n = type.dims[type.rank - 1];
    ash_value re, turn;
    if (!(ash_dim_is_const(n) ? fourier : fourier_variable)(im, type.dtype, n, bins, inverse, &re, &turn))
        return (spectrum){ASH_NO_VALUE, ASH_NO_VALUE};
    return times_matrix(im->graph, x, re, turn);
}

/* The factor of n next to its root, below it, where two products are less work than one, or where one is
 * too long for a matrix; else 1. Measured: 0.8 of the time for 512, a quarter for 2048, 1.3 for 400. */
static int64_t factor_of(ash_dim n) {
    enum { LEAST = 512, GAIN = 10 };
    if (!ash_dim_is_const(n) || n < LEAST) return 1;
    int64_t a = (int64_t)sqrt((double)n);
    while (n % a) a--;
    const int64_t b = n / a;
    if (a == 1 || b > MAX_TRANSFORM) return 1;
    return n > MAX_TRANSFORM || n >= GAIN * (a + b) ? a : 1;
}

static ash_value swapped(ash_import *im, ash_value x) {
    if (x == ASH_NO_VALUE) return x;
    const unsigned rank = ash_import__type(im, x).rank;
    return ash_build__swap(im->graph, x, rank - 2, rank - 1);
}

/* x [..., n] as [..., a, b], or two axes as one. */
static ash_value in_two(ash_import *im, ash_value x, int64_t a, int64_t b) {
    if (x == ASH_NO_VALUE) return x;
    ash_type type = ash_import__type(im, x);
    type.dims[type.rank - 1] = a, type.dims[type.rank++] = b;
    return ash_reshape(im->graph, x, type.dims, type.rank);
}

static ash_value in_one(ash_import *im, ash_value x, int64_t n) {
    ash_type type = ash_import__type(im, x);
    type.dims[--type.rank - 1] = n;
    return ash_reshape(im->graph, x, type.dims, type.rank);
}

/* The same with n = a b by two products (Cooley and Tukey, 1965), of elements p b + q and bins r + s a:
 *
 *     out[r + s a] = sum over q of w_b^(q s) w_n^(q r) (sum over p of w_a^(p r) x[p b + q]) */
static spectrum by_factors(ash_import *im, spectrum x, int64_t a, int64_t b, int64_t bins, bool inverse) {
    ash_graph *g = im->graph;
    const int64_t n = a * b, rows = ash_ceil_div(bins, a);
    const ash_type type = {.dtype = ash_import__type(im, x.re).dtype, .rank = 2, .dims = {b, a}};
    double *c = ash_arena_alloc(im->scratch, (size_t)n, sizeof *c),
           *s = ash_arena_alloc(im->scratch, (size_t)n, sizeof *s);
    if (!c || !s) {
        ash_import__fail(im, ASH_ERROR_OUT_OF_MEMORY, "out of memory");
        return (spectrum){ASH_NO_VALUE, ASH_NO_VALUE};
    }
    for (int64_t i = 0; i < n; i++) {
        const double turn = 2 * M_PI * (double)(i / a * (i % a)) / (double)n;
        c[i] = cos(turn), s[i] = inverse ? sin(turn) : -sin(turn);
    }
    ash_value re = ash_build__floats(g, &type, c), turn = ash_build__floats(g, &type, s);
    x = (spectrum){swapped(im, in_two(im, x.re, a, b)), swapped(im, in_two(im, x.im, a, b))};
    x = by_matrix(im, x, a, inverse);
    if (!ash_import__ok(im)) return x;
    x = (spectrum){ash_sub(g, ash_mul(g, x.re, re), ash_mul(g, x.im, turn)),
                   ash_add(g, ash_mul(g, x.re, turn), ash_mul(g, x.im, re))};
    x = by_matrix(im, (spectrum){swapped(im, x.re), swapped(im, x.im)}, rows, inverse);
    if (!ash_import__ok(im)) return x;
    x = (spectrum){in_one(im, swapped(im, x.re), rows * a), in_one(im, swapped(im, x.im), rows * a)};
    const unsigned last = ash_import__type(im, x.re).rank - 1;
    return (spectrum){ash_slice_axis(g, x.re, last, 0, bins), ash_slice_axis(g, x.im, last, 0, bins)};
}

/* x [..., n] transformed along its last axis, in the way that is less work. */
static spectrum transformed(ash_import *im, spectrum x, ash_dim bins, bool inverse) {
    const ash_type type = ash_import__type(im, x.re);
    const ash_dim n = type.dims[type.rank - 1];
    const int64_t factor = factor_of(n);
    return factor > 1 ? by_factors(im, x, factor, n / factor, bins, inverse)
                      : by_matrix(im, x, bins, inverse);
}

/* x [..., n, 1 or 2], real or complex, transformed along its second to last axis: [..., bins, 2]. */
static ash_value transform(ash_import *im, ash_value x, ash_dim bins, bool inverse) {
    if (x == ASH_NO_VALUE) return x;
    ash_type type = ash_import__type(im, x);
    unsigned last = type.rank - 1;
    spectrum of = {ash_build__at(im->graph, x, last, 0),
                   type.dims[last] == 2 ? ash_build__at(im->graph, x, last, 1) : ASH_NO_VALUE};
    of = transformed(im, of, bins, inverse);
    if (!ash_import__ok(im)) return ASH_NO_VALUE;
    const ash_value parts[] = {ash_build__insert_axis(im->graph, of.re, last),
                               ash_build__insert_axis(im->graph, of.im, last)};
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

/* The same of a signal that is long: by its whole spectrum, x [..., bins, 2] and what is
 * mirrored. */
static ash_value long_real_signal(ash_import *im, ash_value x, int64_t length) {
    ash_graph *g = im->graph;
    const unsigned last = ash_import__type(im, x).rank - 1;
    const int64_t bins = length / 2 + 1;
    spectrum of = {ash_build__at(g, x, last, 0), ash_build__at(g, x, last, 1)};
    ash_value re = ash_build__reverse(g, ash_slice_axis(g, of.re, last - 1, 1, length - bins), last - 1);
    ash_value turned =
        ash_build__reverse(g, ash_slice_axis(g, of.im, last - 1, 1, length - bins), last - 1);
    const ash_value all[] = {of.re, re}, all_turned[] = {of.im, ash_neg(g, turned)};
    of.re = ash_concat(g, all, 2, last - 1), of.im = ash_concat(g, all_turned, 2, last - 1);
    of = transformed(im, of, length, true);
    return ash_import__ok(im) ? ash_build__insert_axis(g, of.re, last) : ASH_NO_VALUE;
}

/* The real signal of `length` elements along `axis` whose spectrum, of which x [..., bins, 2] has the
 * first half, is its own mirror image: [..., length, 1]. Every bin that has an image counts twice. */
static ash_value real_signal(ash_import *im, ash_value x, unsigned axis, int64_t length) {
    int64_t bins = length / 2 + 1;
    ash_type type = ash_import__type(im, x);
    unsigned second = type.rank - 2, last = type.rank - 1;
    if (type.dims[last] != 2)
        return ash_import__fail(im, ASH_ERROR_UNSUPPORTED, "a one-sided spectrum that is real");
    x = ash_build__swap(im->graph, fit(im, x, axis, bins), axis, second);
    if (length > MAX_TRANSFORM || factor_of(length) > 1)
        return ash_build__swap(im->graph, long_real_signal(im, x, length), axis, second);
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
