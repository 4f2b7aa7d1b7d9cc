/* SPDX-License-Identifier: MIT */
/* Products. */
#include "ops.h"

ash_value ash_onnx__matmul(ash_import *im, ash_value a, ash_value b) {
    const ash_type x = ash_import__type(im, a), y = ash_import__type(im, b);
    if (x.rank && y.rank) ash_import__agree_on(im, &a, x.rank - 1, &b, y.rank - ASH_MIN(y.rank, 2u));
    for (unsigned p = 3; p <= ASH_MIN(x.rank, y.rank) && ash_import__ok(im); p++) /* of batches */
        ash_import__agree_on(im, &a, x.rank - p, &b, y.rank - p);
    return ash_matmul(im->graph, a, b);
}

void ash_onnx__op_matmul(ash_import *im) {
    ash_import__out(im, 0, ash_onnx__matmul(im, ash_import__in(im, 0), ash_import__in(im, 1)));
}

ash_value ash_onnx__gemm_of(ash_import *im) {
    ash_value a = ash_import__in(im, 0), b = ash_import__in(im, 1);
    double alpha = ash_import__attr_float(im, "alpha", 1), beta = ash_import__attr_float(im, "beta", 1);
    if (ash_import__type(im, a).rank != 2 || ash_import__type(im, b).rank != 2) {
        ash_import__fail(im, ASH_ERROR_SHAPE, "operands of rank %u and %u, not matrices",
                         ash_import__type(im, a).rank, ash_import__type(im, b).rank);
        return ASH_NO_VALUE;
    }
    if (ash_import__attr_int(im, "transA", 0)) a = ash_build__swap(im->graph, a, 0, 1);
    if (ash_import__attr_int(im, "transB", 0)) b = ash_build__swap(im->graph, b, 0, 1);
    ash_value y = ash_onnx__matmul(im, a, b);
    if (alpha != 1) y = ash_build__with(im->graph, ASH_OP_MUL, y, alpha);
    if (ash_import__has(im, 2) && beta != 0) {
        ash_value c = ash_import__in(im, 2);
        if (beta != 1) c = ash_build__with(im->graph, ASH_OP_MUL, c, beta);
        y = ash_onnx__binary(im, ASH_OP_ADD, y, c);
    }
    return y;
}

void ash_onnx__op_gemm(ash_import *im) {
    ash_import__out(im, 0, ash_onnx__gemm_of(im));
}

/* --- Einsum --------------------------------------------------------------------------------------- */

enum { LABELS = 52 + ASH_MAX_RANK }; /* letters, and the dims that an ellipsis stands for */

/* The labels of one term's dims. */
typedef struct einsum_term {
    unsigned rank;
    int label[ASH_MAX_RANK];
} einsum_term;

typedef struct einsum {
    ash_span equation;
    size_t at;              /* characters read */
    unsigned ellipsis;      /* dims that "..." stands for, the same in all terms */
    unsigned uses[LABELS];  /* terms that have the label */
    unsigned total[LABELS]; /* dims that have it */
} einsum;

static int peek(einsum *e) {
    while (e->at < e->equation.len && e->equation.at[e->at] == ' ') e->at++;
    return e->at < e->equation.len ? e->equation.at[e->at] : 0;
}

/* Reads one term; `rank` is that of the operand, or -1 for the result. */
static bool read_term(ash_import *im, einsum *e, int rank, einsum_term *term) {
    unsigned letters = 0;
    bool dots = false, dots_read = false;
    term->rank = 0;
    for (size_t i = e->at; i < e->equation.len && e->equation.at[i] != ',' && e->equation.at[i] != '-';
         i++) {
        int c = e->equation.at[i] | 32;
        letters += c >= 'a' && c <= 'z';
        dots |= c == '.';
    }
    if (dots && rank >= 0) {
        unsigned wide = (unsigned)rank >= letters ? (unsigned)rank - letters : 0;
        e->ellipsis = ASH_MAX(e->ellipsis, wide);
    }
    unsigned dots_here = !dots                       ? 0
                         : rank < 0                  ? e->ellipsis
                         : (unsigned)rank >= letters ? (unsigned)rank - letters
                                                     : 0;
    if (letters + dots_here > ASH_MAX_RANK || (rank >= 0 && letters + dots_here != (unsigned)rank)) {
        ash_import__fail(im, ASH_ERROR_SHAPE, "a term of the equation does not fit an operand of rank %d",
                         rank);
        return false;
    }
    for (int c; (c = peek(e)) && c != ',' && c != '-'; e->at++) {
        if (c >= 'a' && c <= 'z') {
            term->label[term->rank++] = c - 'a';
        } else if (c >= 'A' && c <= 'Z') {
            term->label[term->rank++] = 26 + c - 'A';
        } else if (c == '.' && !dots_read && e->at + 2 < e->equation.len &&
                   memcmp(e->equation.at + e->at, "...", 3) == 0) {
            for (unsigned i = 0; i < dots_here; i++)
                term->label[term->rank++] = 52 + (int)(ASH_MAX_RANK - dots_here + i);
            e->at += 2;
            dots_read = true;
        } else {
            ash_import__fail(im, ASH_ERROR_FORMAT, "the equation has the character 0x%02x", (unsigned)c);
            return false;
        }
    }
    return true;
}

/* Dims with equal labels in one term: the diagonal, taken by comparing indices and summing one of them
 * away. */
static ash_value diagonal(ash_import *im, ash_value x, einsum_term *term) {
    for (unsigned i = 0; i < term->rank; i++) {
        for (unsigned j = i + 1; j < term->rank; j++) {
            if (term->label[i] != term->label[j]) continue;
            ash_type type = ash_import__type(im, x);
            ash_value same = ash_eq(im->graph, ash_iota(im->graph, ASH_I64, type.dims, type.rank, i),
                                    ash_iota(im->graph, ASH_I64, type.dims, type.rank, j));
            x = ash_select(im->graph, same, x, ash_scalar(im->graph, type.dtype, 0));
            x = ash_build__reduce(im->graph, ASH_OP_REDUCE_SUM, x, 1u << j, false);
            memmove(&term->label[j], &term->label[j + 1], (term->rank - j - 1) * sizeof *term->label);
            term->rank--;
            j--;
        }
    }
    return x;
}

static unsigned find_label(const einsum_term *term, int label) {
    unsigned i = 0;
    while (i < term->rank && term->label[i] != label) i++;
    return i;
}

/* Sums away the labels of a term that neither the result nor another term has. */
static ash_value sum_unused(ash_import *im, const einsum *e, const einsum_term *out, ash_value x,
                            einsum_term *term) {
    uint32_t axes = 0;
    einsum_term kept = {0};
    for (unsigned i = 0; i < term->rank; i++) {
        int label = term->label[i];
        if (e->uses[label] == 1 && find_label(out, label) == out->rank)
            axes |= 1u << i;
        else
            kept.label[kept.rank++] = label;
    }
    *term = kept;
    return ash_build__reduce(im->graph, ASH_OP_REDUCE_SUM, x, axes, false);
}

/* Reorders x (labels of `from`) to the given labels; a label that x lacks becomes a dim of 1. */
static ash_value arrange(ash_import *im, ash_value x, const einsum_term *from, const einsum_term *to) {
    ash_type type = ash_import__type(im, x);
    int64_t perm[ASH_MAX_RANK];
    ash_dim dims[ASH_MAX_RANK];
    unsigned n = 0;
    for (unsigned i = 0; i < to->rank; i++) {
        unsigned j = find_label(from, to->label[i]);
        dims[i] = j < from->rank ? type.dims[j] : 1;
        if (j < from->rank) perm[n++] = j;
    }
    return ash_reshape(im->graph, ash_transpose(im->graph, x, perm), dims, to->rank);
}

/* Contracts two terms into one matrix product: shared labels that are still needed are batch dims, shared
 * labels that are not are summed. */
static ash_value contract(ash_import *im, einsum *e, const einsum_term *out, ash_value x, einsum_term *a,
                          ash_value y, const einsum_term *b) {
    einsum_term batch = {0}, summed = {0}, left = {0}, right = {0}, order;
    for (unsigned i = 0; i < a->rank; i++) {
        int label = a->label[i];
        bool shared = find_label(b, label) < b->rank;
        bool needed = find_label(out, label) < out->rank || e->uses[label] > (shared ? 2u : 1u);
        einsum_term *set = !shared ? &left : needed ? &batch : &summed;
        set->label[set->rank++] = label;
    }
    for (unsigned i = 0; i < b->rank; i++)
        if (find_label(a, b->label[i]) == a->rank) right.label[right.rank++] = b->label[i];
    if (batch.rank + left.rank + summed.rank > ASH_MAX_RANK ||
        batch.rank + left.rank + right.rank > ASH_MAX_RANK ||
        batch.rank + right.rank + summed.rank > ASH_MAX_RANK)
        return ash_import__fail(im, ASH_ERROR_UNSUPPORTED, "a contraction of more than %d dims",
                                ASH_MAX_RANK);
#define APPEND(set)                                                                                        \
    (memcpy(&order.label[order.rank], (set).label, (set).rank * sizeof *order.label),                      \
     order.rank += (set).rank)
    order.rank = 0, APPEND(batch), APPEND(left), APPEND(summed);
    x = arrange(im, x, a, &order);
    order.rank = 0, APPEND(batch), APPEND(summed), APPEND(right);
    y = arrange(im, y, b, &order);
    const unsigned nb = batch.rank;
    for (unsigned i = 0; i < nb + summed.rank && ash_import__ok(im); i++)
        ash_import__agree_on(im, &x, i < nb ? i : left.rank + i, &y, i);
    ash_type tx = ash_import__type(im, x), ty = ash_import__type(im, y), product = {0};
    for (unsigned i = 0; i < nb; i++) product.dims[i] = tx.dims[i] == 1 ? ty.dims[i] : tx.dims[i];
    memcpy(&product.dims[nb], &tx.dims[nb], left.rank * sizeof *product.dims);
    memcpy(&product.dims[nb + left.rank], &ty.dims[nb + summed.rank], right.rank * sizeof *product.dims);
    ash_dim shape[ASH_MAX_RANK + 2];
    memcpy(shape, tx.dims, nb * sizeof *shape);
    shape[nb] = ash_build__product(im->graph, &tx, nb, nb + left.rank);
    shape[nb + 1] = ash_build__product(im->graph, &tx, nb + left.rank, tx.rank);
    if (nb + 2 > ASH_MAX_RANK)
        return ash_import__fail(im, ASH_ERROR_UNSUPPORTED, "more than %d batch dims", ASH_MAX_RANK - 2);
    x = ash_reshape(im->graph, x, shape, nb + 2);
    memcpy(shape, ty.dims, nb * sizeof *shape);
    shape[nb] = ash_build__product(im->graph, &ty, nb, nb + summed.rank);
    shape[nb + 1] = ash_build__product(im->graph, &ty, nb + summed.rank, ty.rank);
    y = ash_reshape(im->graph, y, shape, nb + 2);
    x = ash_reshape(im->graph, ash_matmul(im->graph, x, y), product.dims, nb + left.rank + right.rank);
    order.rank = 0, APPEND(batch), APPEND(left), APPEND(right);
#undef APPEND
    for (unsigned i = 0; i < b->rank; i++)
        if (find_label(a, b->label[i]) < a->rank) e->uses[b->label[i]]--;
    *a = order;
    return x;
}

/* The result's labels: as the equation says, or, without an arrow, the ellipsis and the labels used once in
 * order. */
static bool result_term(ash_import *im, einsum *e, einsum_term *out) {
    if (peek(e) == '-') {
        e->at = ASH_MIN(e->at + 2, e->equation.len);
        if (!read_term(im, e, -1, out)) return false;
        for (unsigned i = 0; i < out->rank; i++) {
            if (e->uses[out->label[i]] && find_label(out, out->label[i]) == i) continue;
            ash_import__fail(im, ASH_ERROR_FORMAT,
                             "the result has a label twice, or one that no operand has");
            return false;
        }
        return true;
    }
    out->rank = 0;
    for (unsigned i = 0; i < e->ellipsis; i++)
        out->label[out->rank++] = 52 + (int)(ASH_MAX_RANK - e->ellipsis + i);
    static const int order[] = {26, 0}; /* capitals come first, as in ASCII */
    for (unsigned half = 0; half < 2; half++)
        for (int label = order[half]; label < order[half] + 26; label++)
            if (e->total[label] == 1 && out->rank < ASH_MAX_RANK) out->label[out->rank++] = label;
    return true;
}

void ash_onnx__op_einsum(ash_import *im) {
    const ash_onnx_attr *attr = ash_import__attr(im, "equation", ONNX_ATTR_STRING);
    size_t n = im->node->n_ins;
    einsum e = {0};
    einsum_term *terms = ash_arena_alloc(im->scratch, n, sizeof *terms), out;
    if (!attr || !terms || n == 0) {
        ash_import__fail(im, terms ? ASH_ERROR_FORMAT : ASH_ERROR_OUT_OF_MEMORY,
                         "no equation or no operands");
        return;
    }
    e.equation = attr->s;
    for (size_t k = 0; k < n; k++) {
        if (!read_term(im, &e, (int)ash_import__type(im, ash_import__in(im, k)).rank, &terms[k])) return;
        for (unsigned i = 0; i < terms[k].rank; i++) {
            e.total[terms[k].label[i]]++;
            if (find_label(&terms[k], terms[k].label[i]) == i) e.uses[terms[k].label[i]]++;
        }
        if (k + 1 < n && peek(&e) == ',') e.at++;
    }
    if (!result_term(im, &e, &out)) return;
    ash_value x = ash_import__in(im, 0);
    x = sum_unused(im, &e, &out, diagonal(im, x, &terms[0]), &terms[0]);
    for (size_t k = 1; k < n && ash_import__ok(im); k++) {
        ash_value y = diagonal(im, ash_import__in(im, k), &terms[k]);
        y = sum_unused(im, &e, &out, y, &terms[k]);
        x = contract(im, &e, &out, x, &terms[0], y, &terms[k]);
    }
    if (ash_import__ok(im)) x = sum_unused(im, &e, &out, x, &terms[0]);
    if (ash_import__ok(im)) ash_import__out(im, 0, arrange(im, x, &terms[0], &out));
}

/* --- Det ------------------------------------------------------------------------------------------ */

enum { MAX_DET = 4 };

/* Expansion by the first remaining row; `columns` has the columns that are left. */
static ash_value minor_of(ash_import *im, ash_value x, unsigned rank, int64_t row, const int64_t *columns,
                          int64_t n) {
    ash_value sum = ASH_NO_VALUE;
    for (int64_t i = 0; i < n; i++) {
        int64_t rest[MAX_DET];
        ash_value term =
            ash_build__at(im->graph, ash_build__at(im->graph, x, rank - 1, columns[i]), rank - 2, row);
        for (int64_t j = 0, k = 0; j < n; j++)
            if (j != i) rest[k++] = columns[j];
        if (n > 1) term = ash_mul(im->graph, term, minor_of(im, x, rank, row + 1, rest, n - 1));
        sum = i == 0 ? term : ash_build__binary(im->graph, i % 2 ? ASH_OP_SUB : ASH_OP_ADD, sum, term);
    }
    return sum;
}

/* Written out for matrices up to 4 x 4. */
void ash_onnx__op_det(ash_import *im) {
    static const int64_t columns[MAX_DET] = {0, 1, 2, 3};
    ash_value x = ash_import__in(im, 0);
    ash_type type = ash_import__type(im, x);
    int64_t n = type.rank >= 2 ? type.dims[type.rank - 1] : 0;
    if (type.rank < 2 || n <= 0 || n > MAX_DET || type.dims[type.rank - 2] != n) {
        ash_import__fail(im, ASH_ERROR_UNSUPPORTED,
                         "the determinant of matrices that are not square, or above %d x %d", MAX_DET,
                         MAX_DET);
        return;
    }
    ash_import__out(im, 0, minor_of(im, x, type.rank, 0, columns, n));
}

/* --- distances ------------------------------------------------------------------------------------ */

/* Of each row of a to each row of b: the square root of the sum of squares of differences, or that sum. */
void ash_onnx__op_cdist(ash_import *im) {
    bool root = ASH_IMPORT_CHOICE(im, "metric", "sqeuclidean", "euclidean") != 0;
    ash_value a = ash_import__in(im, 0), b = ash_import__in(im, 1);
    if (!ash_import__ok(im)) return;
    if (ash_import__type(im, a).rank != 2 || ash_import__type(im, b).rank != 2) {
        ash_import__fail(im, ASH_ERROR_SHAPE, "operands that are not matrices");
        return;
    }
    ash_value apart = ash_sub(im->graph, ash_build__insert_axis(im->graph, a, 1),
                              ash_build__insert_axis(im->graph, b, 0));
    ash_value sum =
        ash_build__reduce(im->graph, ASH_OP_REDUCE_SUM, ash_mul(im->graph, apart, apart), 1u << 2, false);
    ash_import__out(im, 0, root ? ash_sqrt(im->graph, sum) : sum);
}
