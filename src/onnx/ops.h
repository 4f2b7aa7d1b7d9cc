/* SPDX-License-Identifier: MIT */
/* Lowerings that several operators share. The functions of the table itself, ash_onnx__op_<name>, are
 * declared from operators.def. */
#ifndef ASH_ONNX_OPS_H
#define ASH_ONNX_OPS_H

#include "import.h"

/* The last column of operators.def, where it is not a core operator. */
typedef enum ash_onnx_reduction {
    ONNX_REDUCE_SUM,
    ONNX_REDUCE_PROD,
    ONNX_REDUCE_MAX,
    ONNX_REDUCE_MIN,
    ONNX_REDUCE_MEAN,
    ONNX_REDUCE_L1,
    ONNX_REDUCE_L2,
    ONNX_REDUCE_SQUARES,
    ONNX_REDUCE_LOG_SUM,
    ONNX_REDUCE_LOG_SUM_EXP
} ash_onnx_reduction;

typedef enum ash_onnx_recurrent { ONNX_RNN, ONNX_GRU, ONNX_LSTM, ONNX_QUANTIZED_LSTM } ash_onnx_recurrent;

typedef enum ash_onnx_window_kind { ONNX_HANN, ONNX_HAMMING, ONNX_BLACKMAN } ash_onnx_window_kind;

enum { ONNX_UPSAMPLE = 1 }; /* Resize's older name */

#define ROW(domain, name, first, last, fn, arg) ash_import_fn ash_onnx__op_##fn;
#include "operators.def"
#undef ROW

/* --- sizes that are computed when the graph runs: computed.c ----------------------------------------- */

/* An element of an integer tensor. */
typedef struct ash_onnx_number {
    ash_import_int known; /* where `value` is ASH_NO_VALUE */
    ash_value value;      /* an i64 scalar that is computed when the graph runs */
} ash_onnx_number;

/* Elements of operand k, an integer tensor of few, in row-major order: room in the node's scratch arena.
 * NULL: a failure, which says why it is not known where it cannot be computed either, as in a body. */
ash_onnx_number *ash_onnx__numbers(ash_import *im, size_t k, size_t *count);
/* The same number, as the dim that it has been settled as, if it has. */
ash_onnx_number ash_onnx__known_size(const ash_import *im, ash_onnx_number n);
/* Such a number as an i64 scalar. */
ash_value ash_onnx__number_value(ash_import *im, ash_onnx_number n);
/* Whether a value is a graph input, moved or cast. */
bool ash_onnx__is_given(const ash_import *im, ash_value x);
/* Element i of a value, in row-major order, where it is a dim or a whole number of at least 0. */
bool ash_onnx__whole(ash_import *im, ash_value x, int64_t i, ash_dim *out);
ash_onnx_number ash_onnx__number_less(ash_import *im, ash_onnx_number a, ash_onnx_number b); /* a - b */
/* The dim of i64 scalar `value`, which is dim `axis` of the present node's first result: the same for the
 * same value. It has the limit that the options say; an execution with more, or with less than `low`,
 * fails. Less than 0 is 0. */
bool ash_onnx__settle_size(ash_import *im, ash_value value, unsigned axis, int64_t low, ash_dim *out);
/* The same of a factor of `all`, which is at most that, with a limit of as much where that is less. */
bool ash_onnx__settle_part(ash_import *im, ash_value value, unsigned axis, ash_dim all, ash_dim *out);
/* The dim that such a scalar is as a bound of `dim`, counted from its end when below 0, brought inside; or,
 * `reversed`, as one of `dim` from its last element down. */
ash_dim ash_onnx__settle_bound(ash_import *im, ash_value bound, ash_dim dim, unsigned axis, bool reversed);
/* The dim that such a scalar is as a number of elements of `dim`, at most all of them; an execution with
 * less than 0 fails. */
ash_dim ash_onnx__settle_count(ash_import *im, ash_value count, ash_dim dim, unsigned axis);
/* The dim that the greatest of such numbers is, brought within 0 and `dim`; `lens` may have any shape. */
ash_dim ash_onnx__settle_longest(ash_import *im, ash_value lens, ash_dim dim, unsigned axis);
/* Whether the limits of the sizes that are computed, elements of operand k, make no more elements than
 * there may be room for, where a graph input is among them; each is at most `limit` where the caller says
 * nothing. False: a failure, which says to bind that input. */
bool ash_onnx__has_room(ash_import *im, size_t k, const ash_onnx_number *sizes, size_t count,
                        int64_t limit);
/* ash_import__list, of sizes, which are settled where they are computed. */
bool ash_onnx__sizes(ash_import *im, size_t k, const ash_import_int **list, size_t *count);
/* The one number that operand k is, as dim `axis` of result 0. */
bool ash_onnx__size(ash_import *im, size_t k, unsigned axis, ash_dim *out);
/* x, in an execution in which two dims are equal, one of which depends on data; any other fails. */
ash_value ash_onnx__if_equal(ash_import *im, ash_value x, ash_dim a, ash_dim b);
/* The same for dim `axis` of x and `want`; x has that dim where it is never more than its own. */
ash_value ash_onnx__held(ash_import *im, ash_value x, unsigned axis, ash_dim want);
/* The name that options may give such a dim: "y.0", after a node's first result and the place in its
 * shape. NULL: a failure. */
const char *ash_onnx__size_name(ash_import *im, ash_span result, unsigned axis);

/* x to another element type. Bytes that stand for something become numbers first. `saturate` and
 * `rounding` are the node's attributes (ash_onnx__rounding), for floating point types of eight bits. */
typedef enum ash_onnx_rounding { ONNX_UP, ONNX_DOWN, ONNX_NEAREST } ash_onnx_rounding;
ash_value ash_onnx__convert(ash_import *im, ash_value x, ash_narrow from, ash_onnx_element to,
                            bool saturate, ash_onnx_rounding rounding);
/* The numbers of `bits` bits in the bytes of x along its last axis, lowest bits first. (op_nbits.c) */
ash_value ash_onnx__unpack(ash_import *im, ash_value x, int64_t bits);
/* (x - zero point) * scale for x [rows, blocks, block] and zero points that are packed along the blocks, or
 * as many floating point numbers, or, without a value, `middle`. (op_nbits.c) */
ash_value ash_onnx__from_bits(ash_import *im, ash_value x, ash_value scales, ash_value zero, int64_t bits,
                              int64_t middle);
/* The numbers that bytes stand for: in a floating point dtype, or, of integers, the bytes themselves. */
ash_value ash_onnx__from_narrow(ash_import *im, ash_value x, ash_narrow from, ash_dtype dtype);
/* Floating point numbers as a narrow floating point type's codes. */
ash_value ash_onnx__to_codes(ash_import *im, ash_value x, ash_narrow to, bool saturate,
                             ash_onnx_rounding rounding);
/* Whether one of them is an integer. */
static inline bool ash_onnx__is_narrow_int(ash_narrow narrow) {
    return narrow >= ASH_NARROW_U4 && narrow <= ASH_NARROW_I2;
}

/* Operators whose operands must agree in dims that may be different expressions: they do where the model
 * is run, or it says so (ash_import__agree). */
ash_value ash_onnx__binary(ash_import *im, ash_op op, ash_value a, ash_value b);
ash_value ash_onnx__where(ash_import *im, ash_value condition, ash_value a, ash_value b);
ash_value ash_onnx__matmul(ash_import *im, ash_value a, ash_value b);

/* Activations, also of the recurrent operators. */
ash_value ash_onnx__leaky_relu(ash_import *im, ash_value x, double alpha);
ash_value ash_onnx__elu(ash_import *im, ash_value x, double alpha);
ash_value ash_onnx__hard_sigmoid(ash_import *im, ash_value x, double alpha, double beta);
ash_value ash_onnx__softplus(ash_import *im, ash_value x);
ash_value ash_onnx__softsign(ash_import *im, ash_value x);
/* x/2 * (1 + erf(x / sqrt 2)), or with tanh(sqrt(2 / pi) * (x + 0.044715 x^3)) in place of erf. */
ash_value ash_onnx__gelu(ash_import *im, ash_value x, bool by_tanh);

/* The axes that the node reduces as a bit mask: an attribute, or an operand since opset 13 (ReduceSum) or
 * 18. None: all of them, or none at all with noop_with_empty_axes. False: a failure. */
bool ash_onnx__reduce_axes(ash_import *im, unsigned rank, uint32_t *mask);
/* Softmax, or its logarithm, over the axes in the bit mask. */
ash_value ash_onnx__softmax(ash_import *im, ash_value x, uint32_t axes, bool logarithm);

/* Attributes of Conv and the pooling operators, per spatial dim. */
typedef struct ash_onnx_window {
    unsigned n;                                                                   /* spatial dims */
    int64_t kernel[ASH_MAX_RANK], strides[ASH_MAX_RANK], dilations[ASH_MAX_RANK]; /* elements */
    ash_dim before[ASH_MAX_RANK], after[ASH_MAX_RANK];                            /* padding, elements */
    bool same_upper, same_lower, valid;                                           /* auto_pad */
} ash_onnx_window;

/* One dim of them. */
static inline ash_window ash_onnx__window_at(const ash_onnx_window *w, unsigned i) {
    return (ash_window){w->kernel[i], w->strides[i], w->dilations[i], w->before[i], w->after[i]};
}

/* Reads the attributes; `kernel` is the operand's kernel when the attribute may be missing (Conv), else
 * NULL. */
bool ash_onnx__window(ash_import *im, unsigned rank, const int64_t *kernel, ash_onnx_window *out);
/* Replaces auto_pad by numbers for an operand of this type. */
void ash_onnx__window_auto_pad(ash_import *im, const ash_type *type, ash_onnx_window *w);
/* The same for a convolution of x with the weight w, padding included. */
bool ash_onnx__conv_window(ash_import *im, const ash_type *x, const ash_type *w, ash_onnx_window *window);
ash_value ash_onnx__conv(ash_import *im, ash_value x, ash_value w, const ash_onnx_window *window,
                         int64_t groups);

/* The results of Conv, Gemm (alpha * a' * b' + beta * c) and AveragePool on the node's operands and
 * attributes. */
ash_value ash_onnx__conv_of(ash_import *im);
/* The same of x and w, and operand 2 as the bias. */
ash_value ash_onnx__conv_on(ash_import *im, ash_value x, ash_value w);
ash_value ash_onnx__gemm_of(ash_import *im);
ash_value ash_onnx__average_pool(ash_import *im, ash_value x);

/* [n, space..., c] as [n, c, space...], and back. */
ash_value ash_onnx__channels_first(ash_import *im, ash_value x);
ash_value ash_onnx__channels_last(ash_import *im, ash_value x);

/* LayerNormalization by the node's attributes: binds result 0, and the mean and the inverse deviation as
 * results k_mean and k_mean + 1. `bias` may be missing; `epsilon` counts where the node gives none.
 * RMSNormalization likewise. */
void ash_onnx__layer_norm(ash_import *im, ash_value x, ash_value scale, ash_value bias, double epsilon,
                          size_t k_mean);
void ash_onnx__rms_norm(ash_import *im, ash_value x, ash_value scale, double epsilon, size_t k_inverse);

/* [batch, length, heads * size] as [batch, heads, length, size], and back. */
ash_value ash_onnx__split_heads(ash_import *im, ash_value x, int64_t heads);
ash_value ash_onnx__merge_heads(ash_import *im, ash_value x);
/* Each head of keys or values as often as it serves one of the `heads` heads of queries. */
ash_value ash_onnx__repeat_heads(ash_import *im, ash_value x, ash_dim heads);
/* cap * tanh(scores / cap), when there is a cap. */
ash_value ash_onnx__softcap(ash_import *im, ash_value scores, double cap);
/* Rotary position embedding of x [batch, length, heads, size] by cosines and sines that broadcast to
 * [batch, length, heads, rotated / 2]. */
ash_value ash_onnx__rotate(ash_import *im, ash_value x, ash_value cosines, ash_value sines, int64_t rotated,
                           bool interleaved);
/* The attention of com.microsoft on the projections of queries, keys and values side by side, [batch,
 * length, 3 * hidden], with the node's attributes; a mask, a past and a bias of the scores are operands,
 * and missing where they are SIZE_MAX. Binds results 0 and 1. */
void ash_onnx__packed_attention(ash_import *im, ash_value qkv, size_t k_mask, size_t k_past, size_t k_bias);

/* How the present node, a Resize, does; NULL where that cannot be said of one axis and element by itself.
 * It lives as long as the import. */
typedef struct ash_onnx_resize ash_onnx_resize;
const ash_onnx_resize *ash_onnx__resize_how(ash_import *im);
/* Where elements of a resized axis come from: indices, and their weights in f64, or ASH_NO_VALUE. */
typedef struct ash_onnx_taps {
    int n;
    ash_value at[4], weights[4];
} ash_onnx_taps;
/* For the elements `index` of an axis of `out` elements, from one of `in`; all of i64. */
void ash_onnx__resize_taps(ash_import *im, const ash_onnx_resize *how, ash_value in, ash_value out,
                           ash_value index, ash_onnx_taps *taps);

/* A scale or zero point: a scalar, or one number per element of `axis` of a tensor of this rank. */
ash_value ash_onnx__along_axis(ash_import *im, ash_value v, unsigned axis, unsigned rank);
/* round(x / scale) + zero point, saturated; the zero point may be missing. */
ash_value ash_onnx__quantize(ash_import *im, ash_value x, ash_value scale, ash_value zero, ash_dtype to);
/* What a body, a graph attribute with one input and one result, makes of a value; the value itself where
 * the attribute is absent. */
ash_value ash_onnx__apply_body(ash_import *im, const char *name, ash_value value);

/* Quantised to u8 with a scale and zero point that cover the operand's range, 0 included. */
ash_value ash_onnx__dynamic_quantize(ash_import *im, ash_value x, ash_value *scale, ash_value *zero);

/* `count` elements along an axis, from `start` on, every `step`-th: upwards or downwards. (op_slice.c) */
ash_value ash_onnx__every(ash_graph *graph, ash_value x, unsigned axis, ash_dim start, int64_t step,
                          ash_dim count);
/* Padding of an axis that repeats its ends ('e'), reflects ('r') or wraps ('w'), by numbers, as a piece of
 * the operand in front of it and one behind: most is copied then, and nothing gathered. ASH_NO_VALUE where
 * the pieces may be longer than the operand. (op_slice.c) */
ash_value ash_onnx__pad_by_parts(ash_graph *graph, ash_value x, unsigned axis, int64_t before,
                                 int64_t after, char mode);
/* x with zeros behind its elements along an axis, so that there are `n`, which is no less: op_shape.c. */
ash_value ash_onnx__fill_up(ash_import *im, ash_value x, unsigned axis, ash_dim n);

/* A floating point number as a model computes it of sizes: a whole number or a dim by another, above 0. */
typedef struct ash_onnx_quotient {
    ash_import_int above, below;
} ash_onnx_quotient;

/* The elements of operand k, of rank 0 or 1, as such quotients; NULL where they are none: computed.c. */
const ash_onnx_quotient *ash_onnx__quotients(ash_import *im, size_t k, size_t *count);

#endif
