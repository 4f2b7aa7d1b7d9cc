/* SPDX-License-Identifier: MIT */
/* ai.onnx.ml: attributes, and the operators that prepare features. */
#include "ml.h"
#include "ops.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

const char *ash_ml__advice(ash_span op) {
    static const struct {
        const char *name, *advice;
    } rows[] = {
        {"CastMap", "it reads a map: give the model the values as a tensor"},
        {"CategoryMapper", "it maps strings: map them to integers before the model"},
        {"DictVectorizer", "it reads a map: make the rows of features before the model"},
    };
    for (size_t i = 0; i < ASH_COUNT(rows); i++)
        if (ash_span_is(op, rows[i].name)) return rows[i].advice;
    return NULL;
}

/* --- attributes ----------------------------------------------------------------------------------- */

ash_ml_numbers ash_ml__tensor(ash_import *im, const char *name) {
    ash_type type;
    ash_value value;
    int64_t count;
    if (!ash_import__attr_tensor(im, name, &type, &value)) return (ash_ml_numbers){0};
    const ash_value_info *info = ash_graph__value(im->graph, value);
    double *room = ash_type_static_count(&type, &count)
                       ? ash_arena_alloc(im->scratch, (size_t)count, sizeof *room)
                       : NULL;
    if (!room) {
        ash_import__fail(im, ASH_ERROR_OUT_OF_MEMORY, "out of memory");
        return (ash_ml_numbers){0};
    }
    for (size_t i = 0; i < (size_t)count; i++) room[i] = ash_import__float_at(info->blob, type.dtype, i);
    return (ash_ml_numbers){room, (size_t)count, true, type.dtype == ASH_F64};
}

ash_ml_numbers ash_ml__floats(ash_import *im, const char *name) {
    char tensor[64];
    snprintf(tensor, sizeof tensor, "%s_as_tensor", name);
    ash_ml_numbers numbers = ash_ml__tensor(im, tensor);
    const ash_onnx_attr *attr = ash_import__attr(im, name, ONNX_ATTR_FLOATS);
    if (!attr || attr->n == 0) return numbers;
    if (numbers.n)
        ash_import__fail(im, ASH_ERROR_FORMAT, "attributes '%s' and '%s' are both there", name, tensor);
    double *room = ash_arena_alloc(im->scratch, attr->n, sizeof *room);
    if (!room) {
        ash_import__fail(im, ASH_ERROR_OUT_OF_MEMORY, "out of memory");
        return (ash_ml_numbers){0};
    }
    for (size_t i = 0; i < attr->n; i++) room[i] = (double)attr->floats[i];
    return (ash_ml_numbers){room, attr->n, true, false};
}

ash_ml_ints ash_ml__ints(ash_import *im, const char *name) {
    ash_ml_ints out = {0};
    ash_import__attr_ints(im, name, &out.at, &out.n);
    return out;
}

bool ash_ml__no_strings(ash_import *im, const char *name) {
    const ash_onnx_attr *attr = ash_import__attr(im, name, ONNX_ATTR_STRINGS);
    if (attr && attr->n)
        ash_import__fail(im, ASH_ERROR_UNSUPPORTED,
                         "strings in attribute '%s': train or convert the model with integers in their "
                         "place, and map those to strings outside",
                         name);
    return ash_import__ok(im);
}

ash_value ash_ml__rows(ash_import *im, ash_dtype dtype, size_t features) {
    ash_value x = ash_cast(im->graph, ash_import__in(im, 0), dtype);
    if (ash_import__type(im, x).rank == 1) x = ash_build__insert_axis(im->graph, x, 0);
    ash_type type = ash_import__type(im, x);
    if (!ash_import__ok(im)) return ASH_NO_VALUE;
    if (type.rank != 2)
        return ash_import__fail(im, ASH_ERROR_SHAPE, "an operand of rank %u in place of rows of features",
                                type.rank);
    if (features && type.dims[1] != (ash_dim)features)
        return ash_import__fail(
            im, ASH_ERROR_SHAPE, "rows of %s features in place of %zu",
            ash_dim_is_const(type.dims[1]) ? "too many or too few" : "a variable number of", features);
    return x;
}

ash_value ash_ml__constant(ash_import *im, ash_dtype dtype, const double *numbers, size_t rows,
                           size_t columns) {
    const ash_type type = {.dtype = dtype, .rank = 2, .dims = {(ash_dim)rows, (ash_dim)columns}};
    return ash_build__floats(im->graph, &type, numbers);
}

ash_value ash_ml__product(ash_import *im, ash_value x, const double *w, size_t m, size_t k) {
    ash_value weights = ash_ml__constant(im, ash_import__type(im, x).dtype, w, m, k);
    return ash_matmul(im->graph, x, ash_build__swap(im->graph, weights, 0, 1));
}

/* A number for each feature, or one for all, against the last dim of x. */
static ash_value per_feature(ash_import *im, ash_value x, ash_ml_numbers numbers, const char *name) {
    ash_type type = ash_import__type(im, x);
    const ash_type list = {.dtype = type.dtype, .rank = 1, .dims = {(ash_dim)numbers.n}};
    if (!ash_import__ok(im)) return ASH_NO_VALUE;
    if (numbers.n == 1) return ash_scalar(im->graph, type.dtype, numbers.at[0]);
    if (type.rank == 0 || numbers.n == 0 || type.dims[type.rank - 1] != (ash_dim)numbers.n)
        return ash_import__fail(im, ASH_ERROR_SHAPE,
                                "%zu numbers in attribute '%s' do not fit the features", numbers.n, name);
    return ash_build__floats(im->graph, &list, numbers.at);
}

static ash_ml_numbers from_ints(ash_import *im, const char *name) {
    ash_ml_ints ints = ash_ml__ints(im, name);
    double *room = ash_arena_alloc(im->scratch, ints.n, sizeof *room);
    if (!room) {
        ash_import__fail(im, ASH_ERROR_OUT_OF_MEMORY, "out of memory");
        return (ash_ml_numbers){0};
    }
    for (size_t i = 0; i < ints.n; i++) room[i] = (double)ints.at[i];
    return (ash_ml_numbers){.at = room, .n = ints.n, .given = ints.n > 0};
}

/* The type that numbers of the operand are computed in where the result is f32. */
static ash_dtype float_of(ash_import *im) {
    return ash_import__in_type(im, 0).dtype == ASH_F64 ? ASH_F64 : ASH_F32;
}

/* --- numbers to numbers --------------------------------------------------------------------------- */

void ash_onnx__op_ml_scaler(ash_import *im) {
    ash_value x = ash_cast(im->graph, ash_import__in(im, 0), float_of(im));
    ash_ml_numbers offset = ash_ml__floats(im, "offset"), scale = ash_ml__floats(im, "scale");
    x = ash_sub(im->graph, x, per_feature(im, x, offset, "offset"));
    x = ash_mul(im->graph, x, per_feature(im, x, scale, "scale"));
    ash_import__out(im, 0, ash_cast(im->graph, x, ASH_F32));
}

void ash_onnx__op_ml_binarizer(ash_import *im) {
    ash_value x = ash_import__in(im, 0);
    ash_dtype dtype = ash_import__type(im, x).dtype, wide = float_of(im);
    ash_value threshold = ash_scalar(im->graph, wide, ash_import__attr_float(im, "threshold", 0));
    ash_value above = ash_lt(im->graph, threshold, ash_cast(im->graph, x, wide));
    ash_import__out(im, 0, ash_cast(im->graph, above, dtype));
}

/* The norm of a row that is 0 divides by 1. MAX is the largest element, not the largest magnitude. */
void ash_onnx__op_ml_normalizer(ash_import *im) {
    enum { MAX, L1, L2 };
    ash_value x = ash_cast(im->graph, ash_import__in(im, 0), ASH_F32), norm;
    ash_type type = ash_import__type(im, x);
    unsigned kind = ASH_IMPORT_CHOICE(im, "norm", "MAX", "L1", "L2");
    if (!ash_import__ok(im)) return;
    if (type.rank != 1 && type.rank != 2) {
        ash_import__fail(im, ASH_ERROR_SHAPE, "an operand of rank %u in place of rows of features",
                         type.rank);
        return;
    }
    uint32_t last = 1u << (type.rank - 1);
    if (kind == MAX)
        norm = ash_build__reduce(im->graph, ASH_OP_REDUCE_MAX, x, last, true);
    else if (kind == L1)
        norm = ash_build__reduce(im->graph, ASH_OP_REDUCE_SUM, ash_abs(im->graph, x), last, true);
    else
        norm = ash_sqrt(im->graph, ash_build__reduce(im->graph, ASH_OP_REDUCE_SUM, ash_mul(im->graph, x, x),
                                                     last, true));
    ash_value one = ash_scalar(im->graph, ASH_F32, 1);
    norm = ash_select(im->graph, ash_build__with(im->graph, ASH_OP_EQ, norm, 0), one, norm);
    ash_import__out(im, 0, ash_div(im->graph, x, norm));
}

void ash_onnx__op_ml_imputer(ash_import *im) {
    ash_value x = ash_import__in(im, 0), missing;
    ash_dtype dtype = ash_import__type(im, x).dtype;
    bool is_float = ash_dtype_is_float(dtype);
    const char *name = is_float ? "imputed_value_floats" : "imputed_value_int64s";
    ash_ml_numbers values = is_float ? ash_ml__floats(im, name) : from_ints(im, name);
    double replaced = is_float ? ash_import__attr_float(im, "replaced_value_float", 0)
                               : (double)ash_import__attr_int(im, "replaced_value_int64", 0);
    if (isnan(replaced))
        missing = ash_not(im->graph, ash_eq(im->graph, x, x));
    else
        missing = ash_build__with(im->graph, ASH_OP_EQ, x, replaced);
    ash_import__out(im, 0, ash_select(im->graph, missing, per_feature(im, x, values, name), x));
}

/* Each operand cut, or filled with zeros, to its size, side by side. */
void ash_onnx__op_ml_feature_vectorizer(ash_import *im) {
    ash_ml_ints sizes = ash_ml__ints(im, "inputdimensions");
    size_t n = im->node->n_ins;
    ash_value *parts = ash_arena_alloc(im->scratch, n, sizeof *parts);
    if (!parts || n == 0 || sizes.n != n) {
        ash_import__fail(im, parts ? ASH_ERROR_FORMAT : ASH_ERROR_OUT_OF_MEMORY,
                         "%zu operands, and sizes for %zu", n, sizes.n);
        return;
    }
    for (size_t i = 0; i < n; i++) {
        ash_value x = ash_cast(im->graph, ash_import__in(im, i), ASH_F32);
        if (ash_import__type(im, x).rank == 1) x = ash_build__insert_axis(im->graph, x, 1);
        ash_type type = ash_import__type(im, x);
        if (!ash_import__ok(im)) return;
        if (type.rank != 2 || sizes.at[i] < 0 || sizes.at[i] > INT32_MAX ||
            !ash_dim_is_const(type.dims[1])) {
            ash_import__fail(im, ASH_ERROR_SHAPE, "operand %zu is not rows with a number of features", i);
            return;
        }
        const ash_dim none[2] = {0}, more[2] = {0, ASH_MAX(sizes.at[i] - type.dims[1], 0)};
        x = ash_slice_axis(im->graph, x, 1, 0, ASH_MIN(sizes.at[i], type.dims[1]));
        parts[i] = ash_build__pad(im->graph, x, 0, none, more, NULL);
    }
    ash_import__out(im, 0, ash_concat(im->graph, parts, n, 1));
}

/* Columns by number; a vector is a row. */
void ash_onnx__op_ml_array_feature_extractor(ash_import *im) {
    ash_value x = ash_import__in(im, 0), indices = ash_import__in(im, 1);
    if (ash_import__type(im, x).rank == 1) x = ash_build__insert_axis(im->graph, x, 0);
    ash_type type = ash_import__type(im, x), at = ash_import__type(im, indices);
    const int64_t *list;
    size_t n;
    if (!ash_import__ok(im)) return;
    if (type.rank == 0) {
        ash_import__fail(im, ASH_ERROR_SHAPE, "a scalar has no features");
        return;
    }
    ash_dim features = type.dims[type.rank - 1], count = ash_build__product(im->graph, &at, 0, at.rank);
    if (ash_dim_is_const(features) && ash_import__try_ints(im, 1, &list, &n))
        for (size_t i = 0; i < n; i++)
            if (list[i] < 0 || list[i] >= features)
                ash_import__fail(im, ASH_ERROR_OUT_OF_RANGE, "feature %lld of %lld", (long long)list[i],
                                 (long long)features);
    indices = ash_reshape(im->graph, indices, &count, 1);
    ash_import__out(im, 0, ash_gather(im->graph, x, indices, type.rank - 1));
}

/* --- categories ----------------------------------------------------------------------------------- */

/* An unknown category gives zeros, also where the attribute `zeros` forbids that: what an execution sees is
 * no error. */
void ash_onnx__op_ml_one_hot_encoder(ash_import *im) {
    if (!ash_ml__no_strings(im, "cats_strings")) return;
    ash_ml_ints cats = ash_ml__ints(im, "cats_int64s");
    ash_value x = ash_cast(im->graph, ash_import__in(im, 0), ASH_I64);
    const ash_type list = {.dtype = ASH_I64, .rank = 1, .dims = {(ash_dim)cats.n}};
    if (cats.n == 0) ash_import__fail(im, ASH_ERROR_FORMAT, "attribute 'cats_int64s' is missing");
    if (!ash_import__ok(im)) return;
    ash_value hit = ash_eq(im->graph, ash_build__insert_axis(im->graph, x, ash_import__type(im, x).rank),
                           ash_build__ints(im->graph, &list, cats.at));
    ash_import__out(im, 0, ash_cast(im->graph, hit, ASH_F32));
}

/* A number of a LabelEncoder: integers are exact in `i`. */
typedef struct label {
    double f;
    int64_t i;
} label;

typedef struct labels {
    label *at;
    size_t n;
    ash_dtype dtype;
} labels;

typedef struct ml_pair {
    label key, value;
    size_t position; /* in the file: of equal keys the first counts */
} ml_pair;

static bool take_tensor(ash_import *im, const char *name, labels *out) {
    ash_type type;
    ash_value value;
    int64_t n;
    if (!ash_import__attr_tensor(im, name, &type, &value) || !ash_type_static_count(&type, &n))
        return false;
    const ash_blob *blob = ash_graph__value(im->graph, value)->blob;
    *out = (labels){ash_arena_alloc(im->scratch, (size_t)n, sizeof *out->at), (size_t)n, type.dtype};
    if (!out->at) return ash_import__fail(im, ASH_ERROR_OUT_OF_MEMORY, "out of memory"), false;
    for (size_t i = 0; i < out->n; i++) {
        out->at[i].f = ash_import__float_at(blob, type.dtype, i);
        if (!ash_dtype_is_float(type.dtype)) out->at[i].i = ash_import__int_at(blob, type.dtype, i);
    }
    return true;
}

/* `what`_int64s, `what`_floats or `what`_tensor: one of them. */
static bool take_labels(ash_import *im, const char *what, labels *out) {
    char name[32];
    snprintf(name, sizeof name, "%s_strings", what);
    if (!ash_ml__no_strings(im, name)) return false;
    snprintf(name, sizeof name, "%s_int64s", what);
    ash_ml_ints ints = ash_ml__ints(im, name);
    snprintf(name, sizeof name, "%s_floats", what);
    ash_ml_numbers floats = ash_ml__floats(im, name);
    snprintf(name, sizeof name, "%s_tensor", what);
    *out = (labels){0};
    bool tensor = take_tensor(im, name, out);
    if (!ash_import__ok(im)) return false;
    if ((ints.n > 0) + (floats.n > 0) + tensor != 1) {
        ash_import__fail(im, ASH_ERROR_FORMAT, "no list of %s, or more than one", what);
        return false;
    }
    if (tensor) return true;
    out->n = ints.n + floats.n;
    out->dtype = ints.n ? ASH_I64 : ASH_F32;
    out->at = ash_arena_alloc(im->scratch, out->n, sizeof *out->at);
    if (!out->at) return ash_import__fail(im, ASH_ERROR_OUT_OF_MEMORY, "out of memory"), false;
    for (size_t i = 0; i < out->n; i++) {
        if (ints.n)
            out->at[i] = (label){(double)ints.at[i], ints.at[i]};
        else
            out->at[i].f = floats.at[i];
    }
    return true;
}

static label default_label(ash_import *im, ash_dtype dtype) {
    labels tensor = {0};
    if (take_tensor(im, "default_tensor", &tensor) && tensor.n == 1) return tensor.at[0];
    if (ash_dtype_is_float(dtype)) return (label){.f = ash_import__attr_float(im, "default_float", -0.0)};
    return (label){.i = ash_import__attr_int(im, "default_int64", -1)};
}

static ash_value constant_of(ash_import *im, ash_dtype dtype, const label *at, size_t n, unsigned rank) {
    const ash_type type = {.dtype = dtype, .rank = rank, .dims = {(ash_dim)n}};
    int64_t *ints = ash_arena_alloc(im->scratch, n, sizeof *ints);
    double *floats = ash_arena_alloc(im->scratch, n, sizeof *floats);
    if (!ints || !floats) return ash_import__fail(im, ASH_ERROR_OUT_OF_MEMORY, "out of memory");
    for (size_t i = 0; i < n; i++) ints[i] = at[i].i, floats[i] = at[i].f;
    return ash_dtype_is_float(dtype) ? ash_build__floats(im->graph, &type, floats)
                                     : ash_build__ints(im->graph, &type, ints);
}

/* Numbers first, in order; then what is no number. */
static int by_key(const void *a, const void *b) {
    const ml_pair *x = a, *y = b;
    if (isnan(x->key.f) != isnan(y->key.f)) return isnan(x->key.f) ? 1 : -1;
    if (x->key.i != y->key.i) return x->key.i < y->key.i ? -1 : 1;
    if (!isnan(x->key.f) && x->key.f != y->key.f) return x->key.f < y->key.f ? -1 : 1;
    return x->position < y->position ? -1 : x->position > y->position;
}

static bool same_key(const ml_pair *a, const ml_pair *b) {
    return a->key.i == b->key.i && (a->key.f == b->key.f || (isnan(a->key.f) && isnan(b->key.f)));
}

/* The position of the last of n sorted keys that is at most x, or 0: a binary search of as many steps as n
 * has digits, each a gather and a comparison. */
static ash_value search(ash_import *im, ash_value x, ash_value keys, size_t n) {
    size_t step = 1;
    while (step * 2 < n) step *= 2;
    ash_type type = ash_import__type(im, x);
    ash_value at = ash_build__fill(im->graph, ASH_I64, 0, type.dims, type.rank);
    for (; step && n > 1; step /= 2) {
        ash_value next =
            ash_build__with(im->graph, ASH_OP_MIN, ash_build__with(im->graph, ASH_OP_ADD, at, (double)step),
                            (double)(n - 1));
        ash_value below = ash_le(im->graph, ash_gather(im->graph, keys, next, 0), x);
        at = ash_select(im->graph, below, next, at);
    }
    return at;
}

void ash_onnx__op_ml_label_encoder(ash_import *im) {
    labels keys, values;
    if (!ash_ml__no_strings(im, "classes_strings")) return;
    ash_value x = ash_import__in(im, 0);
    if (!take_labels(im, "keys", &keys) || !take_labels(im, "values", &values)) return;
    label absent = default_label(im, values.dtype);
    ml_pair *pairs = ash_arena_alloc(im->scratch, keys.n, sizeof *pairs);
    if (!pairs || keys.n != values.n || keys.n == 0) {
        ash_import__fail(im, pairs ? ASH_ERROR_FORMAT : ASH_ERROR_OUT_OF_MEMORY, "%zu keys for %zu values",
                         keys.n, values.n);
        return;
    }
    for (size_t i = 0; i < keys.n; i++) pairs[i] = (ml_pair){keys.at[i], values.at[i], i};
    qsort(pairs, keys.n, sizeof *pairs, by_key);
    size_t n = 0, numbers = 0;
    for (size_t i = 0; i < keys.n; i++) {
        if (n && same_key(&pairs[n - 1], &pairs[i])) continue;
        numbers += !isnan(pairs[i].key.f);
        pairs[n++] = pairs[i];
    }
    for (size_t i = 0; i < n; i++) keys.at[i] = pairs[i].key, values.at[i] = pairs[i].value;
    ash_value y = constant_of(im, values.dtype, &absent, 1, 0);
    x = ash_cast(im->graph, x, keys.dtype);
    if (numbers < n) {
        ash_value number = ash_eq(im->graph, x, x);
        y = ash_select(im->graph, number, y, constant_of(im, values.dtype, &values.at[numbers], 1, 0));
    }
    if (numbers) {
        ash_value sorted = constant_of(im, keys.dtype, keys.at, numbers, 1);
        ash_value at = search(im, x, sorted, numbers);
        ash_value hit = ash_eq(im->graph, ash_gather(im->graph, sorted, at, 0), x);
        ash_value found =
            ash_gather(im->graph, constant_of(im, values.dtype, values.at, numbers, 1), at, 0);
        y = ash_select(im->graph, hit, found, y);
    }
    ash_import__out(im, 0, y);
}

/* A map from class to score for each row: graphs have no maps, and what they are made of, the scores [rows,
 * classes], columns in the order of the attribute's classes, takes their place. */
void ash_onnx__op_ml_zip_map(ash_import *im) {
    ash_import__out(im, 0, ash_import__in(im, 0));
}
