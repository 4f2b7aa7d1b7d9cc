/* SPDX-License-Identifier: MIT */
/* ai.onnx.ml: support vector machines. */
#include "ml.h"
#include "ops.h"

typedef enum kernel { LINEAR, POLY, RBF, SIGMOID } kernel;

typedef struct supports {
    kernel kind;
    const double *at; /* [n, f] */
    size_t n, f;
} supports;

/* A matrix of f32, zeroed; NULL and a failure when it is too large. */
static double *matrix(ash_import *im, size_t rows, size_t columns) {
    enum { MOST = 1 << 26 };
    double *at = rows * columns <= MOST ? ash_arena_alloc(im->scratch, rows * columns, sizeof *at) : NULL;
    if (!at) ash_import__fail(im, ASH_ERROR_BUDGET, "a matrix of %zu by %zu", rows, columns);
    return at;
}

/* The kernel of x [n, f] with each of `count` vectors: [n, count]. */
static ash_value kernel_of(ash_import *im, ash_value x, kernel kind, const double *vectors, size_t count,
                           size_t f) {
    ash_ml_numbers params = ash_ml__floats(im, "kernel_params");
    if (params.n && params.n != 3)
        return ash_import__fail(im, ASH_ERROR_FORMAT, "%zu numbers in attribute 'kernel_params'", params.n);
    double gamma = params.n ? params.at[0] : 0, coef0 = params.n ? params.at[1] : 0,
           degree = params.n ? params.at[2] : 0;
    if (kind == RBF) {
        ash_value v =
            ash_build__insert_axis(im->graph, ash_ml__constant(im, ASH_F32, vectors, count, f), 0);
        ash_value d = ash_sub(im->graph, ash_build__insert_axis(im->graph, x, 1), v);
        d = ash_build__reduce(im->graph, ASH_OP_REDUCE_SUM, ash_mul(im->graph, d, d), 4, false);
        return ash_exp(im->graph, ash_build__with(im->graph, ASH_OP_MUL, d, -gamma));
    }
    ash_value y = ash_ml__product(im, x, vectors, count, f);
    y = ash_build__with(im->graph, ASH_OP_ADD, ash_build__with(im->graph, ASH_OP_MUL, y, gamma), coef0);
    return kind == SIGMOID ? ash_tanh(im->graph, y) : ash_build__with(im->graph, ASH_OP_POW, y, degree);
}

/* For each row of w [m, count] the sum of the kernels of x with the vectors, weighted, and a number of rho:
 * [n, m]. The terms are as large as the penalty of the training lets them be, and cancel to numbers of the
 * size of the scores: they are added in f64; those of linear kernels here, which are a product with the
 * weighted sum of the vectors. */
static ash_value weighted_kernels(ash_import *im, ash_value x, const supports *v, const double *w, size_t m,
                                  const double *rho) {
    if (v->kind != LINEAR) {
        ash_value y = ash_cast(im->graph, kernel_of(im, x, v->kind, v->at, v->n, v->f), ASH_F64);
        y = ash_ml__product(im, y, w, m, v->n);
        y = ash_add(im->graph, y, ash_ml__constant(im, ASH_F64, rho, 1, m));
        return ash_cast(im->graph, y, ASH_F32);
    }
    double *sums = matrix(im, m, v->f);
    if (!sums) return ASH_NO_VALUE;
    for (size_t i = 0; i < m; i++)
        for (size_t k = 0; k < v->n; k++) {
            const double weight = w[i * v->n + k];
            if (weight == 0) continue; /* most of them, where there are many classes */
            for (size_t c = 0; c < v->f; c++) sums[i * v->f + c] += weight * v->at[k * v->f + c];
        }
    ash_value y = ash_ml__product(im, x, sums, m, v->f);
    return ash_add(im->graph, y, ash_ml__constant(im, ASH_F32, rho, 1, m));
}

static kernel read_kernel(ash_import *im) {
    return (kernel)ASH_IMPORT_CHOICE(im, "kernel_type", "LINEAR", "POLY", "RBF", "SIGMOID");
}

/* Features of each of `count` vectors in a list of n numbers. */
static bool divide(ash_import *im, const char *name, size_t n, size_t count, size_t *features) {
    if (count == 0 || n == 0 || n % count) {
        ash_import__fail(im, ASH_ERROR_FORMAT, "%zu numbers in attribute '%s' for %zu vectors", n, name,
                         count);
        return false;
    }
    *features = n / count;
    return ash_import__ok(im);
}

void ash_onnx__op_ml_svm_regressor(ash_import *im) {
    ash_ml_numbers coefficients = ash_ml__floats(im, "coefficients"), rho = ash_ml__floats(im, "rho"),
                   vectors = ash_ml__floats(im, "support_vectors");
    int64_t count = ash_import__attr_int(im, "n_supports", 0);
    kernel kind = read_kernel(im);
    size_t f;
    ash_value y;
    if (rho.n == 0) ash_import__fail(im, ASH_ERROR_FORMAT, "attribute 'rho' is missing");
    if (!ash_import__ok(im)) return;
    if (count > 0) {
        size_t n = (size_t)count;
        if (!divide(im, "support_vectors", vectors.n, n, &f) ||
            !divide(im, "coefficients", coefficients.n, 1, &n))
            return;
        if (n != (size_t)count) {
            ash_import__fail(im, ASH_ERROR_FORMAT, "%zu coefficients for %lld vectors", n,
                             (long long)count);
            return;
        }
        const supports v = {kind, vectors.at, n, f};
        y = weighted_kernels(im, ash_ml__rows(im, ASH_F32, f), &v, coefficients.at, 1, rho.at);
    } else {
        if (!divide(im, "coefficients", coefficients.n, 1, &f)) return;
        y = ash_ml__product(im, ash_ml__rows(im, ASH_F32, f), coefficients.at, 1, f);
        y = ash_build__with(im->graph, ASH_OP_ADD, y, rho.at[0]);
    }
    if (ash_import__attr_int(im, "one_class", 0))
        y = ash_select(im->graph, ash_build__from(im->graph, ASH_OP_LT, 0, y),
                       ash_scalar(im->graph, ASH_F32, 1), ash_scalar(im->graph, ASH_F32, -1));
    ash_import__out(im, 0, y);
}

/* --- classification ------------------------------------------------------------------------------- */

typedef struct machine {
    ash_ml_ints labels, per_class; /* support vectors of each class */
    ash_ml_numbers coefficients, rho, vectors, prob_a, prob_b;
    size_t n, classes, pairs; /* support vectors, classes, pairs of classes */
} machine;

static bool read_machine(ash_import *im, machine *m) {
    *m = (machine){.labels = ash_ml__ints(im, "classlabels_ints"),
                   .per_class = ash_ml__ints(im, "vectors_per_class"),
                   .coefficients = ash_ml__floats(im, "coefficients"),
                   .rho = ash_ml__floats(im, "rho"),
                   .vectors = ash_ml__floats(im, "support_vectors"),
                   .prob_a = ash_ml__floats(im, "prob_a"),
                   .prob_b = ash_ml__floats(im, "prob_b")};
    m->classes = m->labels.n;
    if (m->classes == 0 || m->classes > 4096 || m->rho.n == 0) {
        ash_import__fail(im, ASH_ERROR_FORMAT, "%zu classes and %zu numbers in attribute 'rho'", m->classes,
                         m->rho.n);
        return false;
    }
    m->pairs = m->classes * (m->classes - 1) / 2;
    for (size_t i = 0; i < m->per_class.n; i++) {
        int64_t count = m->per_class.at[i];
        if (count < 0 || (uint64_t)count > m->vectors.n) {
            ash_import__fail(im, ASH_ERROR_FORMAT, "%lld support vectors of class %zu", (long long)count,
                             i);
            return false;
        }
        m->n += (size_t)count;
    }
    return ash_import__ok(im);
}

/* For each pair of classes i < j what says i when it is positive: the kernels of the vectors of i, weighted
 * for j, and those of j, weighted for i. */
static ash_value decide(ash_import *im, const machine *m, ash_value x, kernel kind, size_t f) {
    double *w = matrix(im, m->pairs, m->n);
    size_t *start = ash_arena_alloc(im->scratch, m->classes + 1, sizeof *start), pair = 0;
    if (!w || !start) return ASH_NO_VALUE;
    for (size_t i = 0; i < m->classes; i++) start[i + 1] = start[i] + (size_t)m->per_class.at[i];
    for (size_t i = 0; i + 1 < m->classes; i++)
        for (size_t j = i + 1; j < m->classes; j++, pair++) {
            for (size_t v = start[i]; v < start[i + 1]; v++)
                w[pair * m->n + v] = m->coefficients.at[(j - 1) * m->n + v];
            for (size_t v = start[j]; v < start[j + 1]; v++)
                w[pair * m->n + v] = m->coefficients.at[i * m->n + v];
        }
    const supports v = {kind, m->vectors.at, m->n, f};
    return weighted_kernels(im, x, &v, w, m->pairs, m->rho.at);
}

/* The class that most of its pairs say; of equals the first. */
static ash_value vote(ash_import *im, const machine *m, ash_value scores) {
    double *w = matrix(im, m->classes, m->pairs), *all = matrix(im, 1, m->classes);
    size_t pair = 0;
    if (!w || !all) return ASH_NO_VALUE;
    for (size_t i = 0; i + 1 < m->classes; i++)
        for (size_t j = i + 1; j < m->classes; j++, pair++)
            w[i * m->pairs + pair] = 1, w[j * m->pairs + pair] = -1, all[j]++;
    ash_value first = ash_cast(im->graph, ash_build__from(im->graph, ASH_OP_LT, 0, scores), ASH_F32);
    ash_value votes = ash_ml__product(im, first, w, m->classes, m->pairs);
    votes = ash_add(im->graph, votes, ash_ml__constant(im, ASH_F32, all, 1, m->classes));
    return ash_ml__best(im, votes);
}

/* --- probabilities -------------------------------------------------------------------------------- */

enum {
    ROUNDS = 8,       /* of the iteration below; three or four reach its limit */
    MOST_COUPLED = 32 /* classes: the iteration is unrolled, with some operators for each of them */
};

/* What the iteration works on, per row of the operand: p [n, c] and the matrix q [n, c, c]. */
typedef struct coupling {
    ash_value p, q;
    size_t classes;
} coupling;

/* A constant [c, c] with the numbers of `at`. */
static ash_value square(ash_import *im, const double *at, size_t c) {
    return ash_ml__constant(im, ASH_F32, at, c, c);
}

/* q from the probabilities of the pairs [n, pairs]: r(i, j) is that of i against j, and r(j, i) the rest to
 * 1. q(i, j) is -r(i, j) * r(j, i), and q(i, i) the sum of r(j, i)^2 over the other j. */
static ash_value coupled(ash_import *im, ash_value pairs, size_t c) {
    const ash_type numbers = {.dtype = ASH_I64, .rank = 2, .dims = {(ash_dim)c, (ash_dim)c}};
    int64_t *at = ash_arena_alloc(im->scratch, c * c, sizeof *at);
    double *sign = matrix(im, c, c), *base = matrix(im, c, c), *one = matrix(im, c, c);
    if (!at || !sign || !base || !one) return ASH_NO_VALUE;
    int64_t pair = 0;
    for (size_t i = 0; i < c; i++) {
        one[i * c + i] = 1;
        for (size_t j = i + 1; j < c; j++, pair++) {
            at[i * c + j] = at[j * c + i] = pair;
            sign[i * c + j] = 1, sign[j * c + i] = -1, base[j * c + i] = 1;
        }
    }
    ash_value r = ash_gather(im->graph, pairs, ash_build__ints(im->graph, &numbers, at), 1);
    r = ash_mul(im->graph, r, square(im, sign, c));
    r = ash_add(im->graph, r, square(im, base, c));
    ash_value q = ash_mul(im->graph, r, ash_build__swap(im->graph, r, 1, 2));
    ash_value sums = ash_build__reduce(im->graph, ASH_OP_REDUCE_SUM, ash_mul(im->graph, r, r), 2, true);
    return ash_sub(im->graph, ash_mul(im->graph, sums, square(im, one, c)), q);
}

/* One round, in place of p where its error is still large. */
static void round_of(ash_import *im, coupling *k) {
    const size_t c = k->classes;
    ash_value p = k->p;
    ash_value product = ash_mul(im->graph, k->q, ash_build__insert_axis(im->graph, p, 1));
    ash_value qp = ash_build__reduce(im->graph, ASH_OP_REDUCE_SUM, product, 4, false);
    ash_value pqp = ash_build__reduce(im->graph, ASH_OP_REDUCE_SUM, ash_mul(im->graph, p, qp), 2, true);
    ash_value error = ash_abs(im->graph, ash_sub(im->graph, qp, pqp));
    error = ash_build__reduce(im->graph, ASH_OP_REDUCE_MAX, error, 2, true);
    ash_value done = ash_build__with(im->graph, ASH_OP_LT, error, 0.005 / (double)c);
    for (size_t i = 0; i < c; i++) {
        double *unit = matrix(im, 1, c);
        if (!unit) return;
        unit[i] = 1;
        ash_value row = ash_build__at(im->graph, k->q, 1, (int64_t)i);
        ash_value qii = ash_slice_axis(im->graph, row, 1, (ash_dim)i, 1),
                  qpi = ash_slice_axis(im->graph, qp, 1, (ash_dim)i, 1);
        ash_value d = ash_div(im->graph, ash_sub(im->graph, pqp, qpi), qii);
        ash_value scale = ash_build__with(im->graph, ASH_OP_ADD, d, 1);
        ash_value more =
            ash_add(im->graph, ash_mul(im->graph, d, qii), ash_build__with(im->graph, ASH_OP_MUL, qpi, 2));
        pqp = ash_add(im->graph, pqp, ash_mul(im->graph, d, more));
        pqp = ash_div(im->graph, ash_div(im->graph, pqp, scale), scale);
        qp = ash_add(im->graph, qp, ash_mul(im->graph, d, row));
        qp = ash_div(im->graph, qp, scale);
        ash_value step = ash_mul(im->graph, d, ash_ml__constant(im, ASH_F32, unit, 1, c));
        p = ash_div(im->graph, ash_add(im->graph, p, step), scale);
    }
    k->p = ash_select(im->graph, done, k->p, p);
}

/* Probabilities [n, classes] from the decisions of the pairs: Platt's sigmoid for each pair, and those of
 * the classes that agree with them best (Wu, Lin and Weng, "Probability estimates for multi-class
 * classification by pairwise coupling", 2004, their second method). The iteration ends row by row at an
 * error that is not small, so that its steps are part of the result: they are the same here, unrolled. */
static ash_value probabilities(ash_import *im, const machine *m, ash_value scores) {
    const double least = 1.0e-7;
    if (m->classes > MOST_COUPLED)
        return ash_import__fail(
            im, ASH_ERROR_UNSUPPORTED,
            "probabilities of %zu classes, more than %d: convert the model without them "
            "(SVC(probability=False))",
            m->classes, MOST_COUPLED);
    ash_value a = ash_ml__constant(im, ASH_F32, m->prob_a.at, 1, m->pairs),
              b = ash_ml__constant(im, ASH_F32, m->prob_b.at, 1, m->pairs);
    ash_value r = ash_add(im->graph, ash_mul(im->graph, scores, a), b);
    r = ash_sigmoid(im->graph, ash_neg(im->graph, r));
    r = ash_clip(im->graph, r, least, 1 - least);
    const ash_dim dims[] = {ash_import__type(im, scores).dims[0], (ash_dim)m->classes};
    coupling k = {.p = ash_build__fill(im->graph, ASH_F32, 1 / (double)m->classes, dims, 2),
                  .q = coupled(im, r, m->classes),
                  .classes = m->classes};
    for (unsigned i = 0; i < ROUNDS && ash_import__ok(im); i++) round_of(im, &k);
    return k.p;
}

/* --- the operator --------------------------------------------------------------------------------- */

static void by_vectors(ash_import *im, const machine *m, kernel kind) {
    size_t f;
    bool proba = m->prob_a.n > 0;
    if (!divide(im, "support_vectors", m->vectors.n, m->n, &f)) return;
    if (m->classes < 2 || m->per_class.n != m->classes || m->rho.n < m->pairs ||
        m->coefficients.n / m->n < m->classes - 1 || m->prob_a.n != m->prob_b.n ||
        (proba && m->prob_a.n < m->pairs)) {
        ash_import__fail(im, ASH_ERROR_FORMAT,
                         "attributes that do not fit %zu classes and %zu support vectors", m->classes,
                         m->n);
        return;
    }
    ash_ml_transform transform = ash_ml__transform_of(im);
    ash_value scores = decide(im, m, ash_ml__rows(im, ASH_F32, f), kind, f);
    ash_import__out(im, 0, ash_ml__labels(im, vote(im, m, scores), m->labels));
    if (proba) scores = probabilities(im, m, scores);
    ash_import__out(
        im, 1,
        ash_ml__transform(im, scores, transform, transform == ML_NONE ? ML_OPPOSITE : ML_COMPLEMENT));
}

/* A vector of coefficients for each class. Of two classes the second is chosen also when the largest score
 * is positive, whose ever it is. */
static void by_coefficients(ash_import *im, const machine *m) {
    size_t f;
    bool positive = true;
    for (size_t i = 0; i < m->coefficients.n; i++) positive &= m->coefficients.at[i] >= 0;
    if (!divide(im, "coefficients", m->coefficients.n, m->classes, &f)) return;
    ash_value scores = ash_ml__product(im, ash_ml__rows(im, ASH_F32, f), m->coefficients.at, m->classes, f);
    scores = ash_build__with(im->graph, ASH_OP_ADD, scores, m->rho.at[0]);
    ash_value best = ash_ml__best(im, scores);
    ash_value y = ash_ml__labels(im, best, m->labels);
    if (m->classes == 2 && m->prob_a.n == 0) {
        const ash_type scalar = {.dtype = ASH_I64};
        ash_value most = ash_build__reduce(im->graph, ASH_OP_REDUCE_MAX, scores, 2, false);
        ash_value above = positive ? ash_build__from(im->graph, ASH_OP_LE, 0.5, most)
                                   : ash_build__from(im->graph, ASH_OP_LT, 0, most);
        y = ash_select(im->graph, above, ash_build__ints(im->graph, &scalar, &m->labels.at[1]), y);
    }
    ash_import__out(im, 0, y);
    ash_import__out(im, 1, ash_ml__transform(im, scores, ash_ml__transform_of(im), ML_ALONE));
}

void ash_onnx__op_ml_svm_classifier(ash_import *im) {
    machine m;
    if (!ash_ml__no_strings(im, "classlabels_strings")) return;
    kernel kind = read_kernel(im);
    if (!read_machine(im, &m)) return;
    if (m.n)
        by_vectors(im, &m, kind);
    else
        by_coefficients(im, &m);
}
