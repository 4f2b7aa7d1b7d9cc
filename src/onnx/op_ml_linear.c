/* SPDX-License-Identifier: MIT */
/* ai.onnx.ml: linear models, and what becomes of scores. */
#include "ml.h"
#include "ops.h"

/* --- scores --------------------------------------------------------------------------------------- */

ash_ml_transform ash_ml__transform_of(ash_import *im) {
    static const ash_ml_transform order[] = {ML_NONE, ML_SOFTMAX, ML_LOGISTIC, ML_SOFTMAX_ZERO, ML_PROBIT};
    return order[ASH_IMPORT_CHOICE(im, "post_transform", "NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO",
                                   "PROBIT")];
}

/* sqrt(2) times the inverse of erf at 2x - 1, by Winitzki's formula as onnxruntime has it. */
static ash_value probit(ash_import *im, ash_value x) {
    const double a = 0.147, half = 2 / (3.14159 * a);
    x = ash_build__with(im->graph, ASH_OP_SUB, ash_build__with(im->graph, ASH_OP_MUL, x, 2), 1);
    ash_value product = ash_mul(im->graph, ash_build__from(im->graph, ASH_OP_SUB, 1, x),
                                ash_build__with(im->graph, ASH_OP_ADD, x, 1));
    ash_value log = ash_log(im->graph, product);
    ash_value v =
        ash_build__with(im->graph, ASH_OP_ADD, ash_build__with(im->graph, ASH_OP_MUL, log, 0.5), half);
    ash_value root =
        ash_sub(im->graph, ash_mul(im->graph, v, v), ash_build__with(im->graph, ASH_OP_MUL, log, 1 / a));
    root = ash_sub(im->graph, ash_sqrt(im->graph, root), v);
    root = ash_build__with(im->graph, ASH_OP_MUL, ash_sqrt(im->graph, root), 1.41421356);
    ash_value negative = ash_build__with(im->graph, ASH_OP_LT, x, 0);
    return ash_select(im->graph, negative, ash_neg(im->graph, root), root);
}

/* Softmax of the scores that are not 0; the others stay. */
static ash_value softmax_zero(ash_import *im, ash_value x) {
    const double nothing = 0.0000001;
    ash_value most = ash_build__reduce(im->graph, ASH_OP_REDUCE_MAX, x, 2, true);
    ash_value zero = ash_build__with(im->graph, ASH_OP_LE, ash_abs(im->graph, x), nothing);
    ash_value e = ash_exp(im->graph, ash_sub(im->graph, x, most));
    ash_value small = ash_exp(im->graph, ash_neg(im->graph, most));
    ash_value none = ash_scalar(im->graph, ash_import__type(im, x).dtype, 0);
    ash_value sum =
        ash_build__reduce(im->graph, ASH_OP_REDUCE_SUM, ash_select(im->graph, zero, none, e), 2, true);
    e = ash_select(im->graph, zero, ash_mul(im->graph, x, small), e);
    return ash_div(im->graph, e, sum);
}

/* [first, second] from two columns. */
static ash_value beside(ash_import *im, ash_value first, ash_value second) {
    const ash_value parts[] = {first, second};
    return ash_concat(im->graph, parts, 2, 1);
}

/* One score is transformed only by PROBIT, and as one of two by LOGISTIC. */
static ash_value transform_one(ash_import *im, ash_value s, ash_ml_transform transform,
                               ash_ml_second second) {
    if (second == ML_ALONE) return transform == ML_PROBIT ? probit(im, s) : s;
    if (transform == ML_PROBIT)
        return ash_import__fail(im, ASH_ERROR_UNSUPPORTED,
                                "PROBIT of one score for two classes, which is defined nowhere");
    ash_value opposite = ash_neg(im->graph, s);
    if (transform == ML_LOGISTIC) return ash_sigmoid(im->graph, beside(im, opposite, s));
    return beside(im, second == ML_OPPOSITE ? opposite : ash_build__from(im->graph, ASH_OP_SUB, 1, s), s);
}

ash_value ash_ml__transform(ash_import *im, ash_value scores, ash_ml_transform transform,
                            ash_ml_second second) {
    ash_type type = ash_import__type(im, scores);
    if (!ash_import__ok(im) || type.rank != 2) return ASH_NO_VALUE;
    if (type.dims[1] == 1) return transform_one(im, scores, transform, second);
    switch (transform) {
    case ML_SOFTMAX: return ash_onnx__softmax(im, scores, 2, false);
    case ML_LOGISTIC: return ash_sigmoid(im->graph, scores);
    case ML_SOFTMAX_ZERO: return softmax_zero(im, scores);
    case ML_PROBIT: return probit(im, scores);
    default: return scores;
    }
}

ash_value ash_ml__best(ash_import *im, ash_value scores) {
    return ash_argmax(im->graph, scores, 1, false);
}

ash_value ash_ml__labels(ash_import *im, ash_value best, ash_ml_ints labels) {
    const ash_type list = {.dtype = ASH_I64, .rank = 1, .dims = {(ash_dim)labels.n}};
    return ash_gather(im->graph, ash_build__ints(im->graph, &list, labels.at), best, 0);
}

ash_value ash_ml__either(ash_import *im, ash_value condition, int64_t first, int64_t second) {
    const ash_type scalar = {.dtype = ASH_I64};
    return ash_select(im->graph, condition, ash_build__ints(im->graph, &scalar, &second),
                      ash_build__ints(im->graph, &scalar, &first));
}

/* --- linear models -------------------------------------------------------------------------------- */

/* x times the transpose of the coefficients [n, k], and an intercept for each result where there are. */
static ash_value linear(ash_import *im, size_t n, ash_ml_numbers coefficients, ash_ml_numbers intercepts) {
    if (n == 0 || coefficients.n == 0 || coefficients.n % n)
        return ash_import__fail(im, ASH_ERROR_FORMAT, "%zu coefficients for %zu results", coefficients.n,
                                n);
    size_t k = coefficients.n / n;
    ash_value y = ash_ml__product(im, ash_ml__rows(im, ASH_F32, k), coefficients.at, n, k);
    if (intercepts.n != n) return y;
    return ash_add(im->graph, y, ash_ml__constant(im, ASH_F32, intercepts.at, 1, n));
}

void ash_onnx__op_ml_linear_regressor(ash_import *im) {
    int64_t targets = ash_import__attr_int(im, "targets", 1);
    ash_ml_numbers coefficients = ash_ml__floats(im, "coefficients"),
                   intercepts = ash_ml__floats(im, "intercepts");
    ash_ml_transform transform = ash_ml__transform_of(im);
    ash_value y = linear(im, targets > 0 ? (size_t)targets : 0, coefficients, intercepts);
    ash_import__out(im, 0, ash_ml__transform(im, y, transform, ML_ALONE));
}

/* As many scores as intercepts. A single one says of two classes which. */
void ash_onnx__op_ml_linear_classifier(ash_import *im) {
    if (!ash_ml__no_strings(im, "classlabels_strings")) return;
    ash_ml_ints labels = ash_ml__ints(im, "classlabels_ints");
    ash_ml_numbers coefficients = ash_ml__floats(im, "coefficients"),
                   intercepts = ash_ml__floats(im, "intercepts");
    ash_ml_transform transform = ash_ml__transform_of(im);
    size_t n = intercepts.n ? intercepts.n : labels.n;
    ash_value scores = linear(im, n, coefficients, intercepts), y;
    if (!ash_import__ok(im)) return;
    if (n > 1 && labels.n != n) {
        ash_import__fail(im, ASH_ERROR_FORMAT, "%zu labels for %zu classes", labels.n, n);
        return;
    }
    if (n == 1) {
        bool two = labels.n == 2;
        ash_value s = ash_build__drop_axis(im->graph, scores, 1);
        y = ash_ml__either(im, ash_build__from(im->graph, ASH_OP_LT, 0, s), two ? labels.at[0] : 0,
                           two ? labels.at[1] : 1);
    } else {
        y = ash_ml__labels(im, ash_ml__best(im, scores), labels);
    }
    ash_import__out(im, 0, y);
    ash_import__out(im, 1,
                    ash_ml__transform(im, scores, transform, labels.n == 2 ? ML_COMPLEMENT : ML_ALONE));
}
