/* SPDX-License-Identifier: MIT */
/* The domain ai.onnx.ml: what its operators share. They keep their numbers in attributes, and where its
 * specification is silent (binary classifiers, transforms of one score), onnxruntime's CPU kernels say what
 * models mean. */
#ifndef ASH_ONNX_ML_H
#define ASH_ONNX_ML_H

#include "import.h"

/* How to do outside what an operator of the domain needs strings or maps for; NULL: it is none of those. */
const char *ash_ml__advice(ash_span op);

/* --- attributes: lists of the node's own arena, absent ones are empty ----------------------------- */

typedef struct ash_ml_numbers {
    const double *at;
    size_t n;
    bool given, wide; /* wide: as a tensor of f64 */
} ash_ml_numbers;

/* Floats of the attribute `name`, or the elements of the tensor `name`_as_tensor. */
ash_ml_numbers ash_ml__floats(ash_import *im, const char *name);
/* Elements of the tensor `name`. */
ash_ml_numbers ash_ml__tensor(ash_import *im, const char *name);
typedef struct ash_ml_ints {
    const int64_t *at;
    size_t n;
} ash_ml_ints;
ash_ml_ints ash_ml__ints(ash_import *im, const char *name);
/* Refuses the attribute `name`, a list of strings, with what to do instead. */
bool ash_ml__no_strings(ash_import *im, const char *name);

/* Operand 0 as rows of features [n, f] of `dtype`; one row when it is a vector. `features`, unless 0, is how
 * many it must have. */
ash_value ash_ml__rows(ash_import *im, ash_dtype dtype, size_t features);
/* A constant of these numbers. */
ash_value ash_ml__constant(ash_import *im, ash_dtype dtype, const double *numbers, size_t rows,
                           size_t columns);
/* x [n, k] times the transpose of w [m, k]. */
ash_value ash_ml__product(ash_import *im, ash_value x, const double *w, size_t m, size_t k);

/* --- scores: op_ml_linear.c ----------------------------------------------------------------------- */

typedef enum ash_ml_transform {
    ML_NONE,
    ML_SOFTMAX,
    ML_LOGISTIC,
    ML_SOFTMAX_ZERO,
    ML_PROBIT
} ash_ml_transform; /* as TreeEnsemble numbers them */

/* What a single score becomes when there are two classes: it alone, [1 - s, s], or [-s, s]. */
typedef enum ash_ml_second { ML_ALONE, ML_COMPLEMENT, ML_OPPOSITE } ash_ml_second;

ash_ml_transform ash_ml__transform_of(ash_import *im); /* attribute post_transform, a text */
/* Scores [n, c], c a number, transformed. */
ash_value ash_ml__transform(ash_import *im, ash_value scores, ash_ml_transform transform,
                            ash_ml_second second);
/* Labels of the classes with the indices `best` [n]. */
ash_value ash_ml__labels(ash_import *im, ash_value best, ash_ml_ints labels);
/* The second label where the condition holds, else the first. */
ash_value ash_ml__either(ash_import *im, ash_value condition, int64_t first, int64_t second);
/* The index of the first largest of each row. */
ash_value ash_ml__best(ash_import *im, ash_value scores);

#endif
