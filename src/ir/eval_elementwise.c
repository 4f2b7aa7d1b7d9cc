/* SPDX-License-Identifier: MIT */
/* Elementwise operators: one switch per class and kind, one element at a time. */
#include <math.h>

#include "eval.h"

/* --- one operand ------------------------------------------------------------------------------------- */

static double unary_float(ash_op op, double x) {
    switch (op) {
    case ASH_OP_NEG: return -x;
    case ASH_OP_ABS: return fabs(x);
    case ASH_OP_SIGN: return isnan(x) ? x : (x > 0) - (x < 0);
    case ASH_OP_FLOOR: return floor(x);
    case ASH_OP_CEIL: return ceil(x);
    case ASH_OP_TRUNC: return trunc(x);
    case ASH_OP_ROUND: return rint(x);
    case ASH_OP_SQRT: return sqrt(x);
    case ASH_OP_EXP: return exp(x);
    case ASH_OP_LOG: return log(x);
    case ASH_OP_SIN: return sin(x);
    case ASH_OP_COS: return cos(x);
    case ASH_OP_TAN: return tan(x);
    case ASH_OP_ASIN: return asin(x);
    case ASH_OP_ACOS: return acos(x);
    case ASH_OP_ATAN: return atan(x);
    case ASH_OP_SINH: return sinh(x);
    case ASH_OP_COSH: return cosh(x);
    case ASH_OP_TANH: return tanh(x);
    case ASH_OP_ASINH: return asinh(x);
    case ASH_OP_ACOSH: return acosh(x);
    case ASH_OP_ATANH: return atanh(x);
    case ASH_OP_ERF: return erf(x);
    default: return 1 / (1 + exp(-x)); /* SIGMOID */
    }
}

static int64_t unary_int(ash_op op, ash_dtype dtype, int64_t x) {
    bool negative = ash_eval__less_int(dtype, x, 0);
    switch (op) {
    case ASH_OP_NEG: return (int64_t)-(uint64_t)x;
    case ASH_OP_ABS: return negative ? (int64_t)-(uint64_t)x : x;
    case ASH_OP_SIGN: return negative ? -1 : x != 0;
    default: return dtype == ASH_BOOL ? !x : ~x; /* NOT */
    }
}

void ash_eval__unary(const ash_eval *e) {
    const ash_wide *x = &e->ins[0], *y = &e->outs[0];
    if (ash_dtype_is_float(x->dtype))
        for (int64_t i = 0; i < y->count; i++) y->f[i] = unary_float(e->node->op, x->f[i]);
    else
        for (int64_t i = 0; i < y->count; i++) y->i[i] = unary_int(e->node->op, x->dtype, x->i[i]);
}

/* --- two operands ------------------------------------------------------------------------------------ */

/* The remainder with the sign of the divisor; a remainder of zero has its sign too. */
static double mod_float(double a, double b) {
    double r = fmod(a, b);
    if (r == 0) return copysign(0, b);
    return (r < 0) != (b < 0) ? r + b : r;
}

static double binary_float(ash_op op, double a, double b) {
    switch (op) {
    case ASH_OP_ADD: return a + b;
    case ASH_OP_SUB: return a - b;
    case ASH_OP_MUL: return a * b;
    case ASH_OP_DIV: return a / b;
    case ASH_OP_MOD: return mod_float(a, b);
    case ASH_OP_REM: return fmod(a, b);
    case ASH_OP_POW: return pow(a, b);
    case ASH_OP_MIN: return ash_eval__combine_float(ASH_SCATTER_MIN, a, b);
    default: return ash_eval__combine_float(ASH_SCATTER_MAX, a, b); /* MAX */
    }
}

/* Towards zero; by 0 gives 0. A divisor of -1 is a negation that wraps, where the machine's division would
 * trap. */
static int64_t div_int(ash_dtype dtype, int64_t a, int64_t b) {
    if (b == 0) return 0;
    if (dtype == ASH_U64) return (int64_t)((uint64_t)a / (uint64_t)b);
    return b == -1 ? (int64_t)-(uint64_t)a : a / b;
}

static int64_t rem_int(ash_dtype dtype, int64_t a, int64_t b) {
    if (b == 0) return 0;
    if (dtype == ASH_U64) return (int64_t)((uint64_t)a % (uint64_t)b);
    return b == -1 ? 0 : a % b;
}

static int64_t mod_int(ash_dtype dtype, int64_t a, int64_t b) {
    int64_t r = rem_int(dtype, a, b);
    return dtype != ASH_U64 && r != 0 && (r < 0) != (b < 0) ? r + b : r;
}

/* a^b, wrapping. 1/a^n towards zero is 0 but for a = 1 and a = -1; 1/0 is 0, as in div_int. */
static int64_t pow_int(ash_dtype dtype, int64_t a, int64_t b) {
    if (ash_eval__less_int(dtype, b, 0)) {
        if (a == 1 || (a == -1 && b % 2 == 0)) return 1;
        return a == -1 ? -1 : 0;
    }
    uint64_t result = 1, square = (uint64_t)a;
    for (uint64_t n = (uint64_t)b; n; n >>= 1, square *= square)
        if (n & 1) result *= square;
    return (int64_t)result;
}

static int64_t binary_int(ash_op op, ash_dtype dtype, int64_t a, int64_t b) {
    uint64_t width = 8 * ash_dtype_size(dtype), ua = (uint64_t)a, ub = (uint64_t)b;
    switch (op) {
    case ASH_OP_ADD: return (int64_t)(ua + ub);
    case ASH_OP_SUB: return (int64_t)(ua - ub);
    case ASH_OP_MUL: return (int64_t)(ua * ub);
    case ASH_OP_DIV: return div_int(dtype, a, b);
    case ASH_OP_MOD: return mod_int(dtype, a, b);
    case ASH_OP_REM: return rem_int(dtype, a, b);
    case ASH_OP_POW: return pow_int(dtype, a, b);
    case ASH_OP_MIN: return ash_eval__combine_int(ASH_SCATTER_MIN, dtype, a, b);
    case ASH_OP_MAX: return ash_eval__combine_int(ASH_SCATTER_MAX, dtype, a, b);
    case ASH_OP_AND: return a & b;
    case ASH_OP_OR: return a | b;
    case ASH_OP_XOR: return a ^ b;
    case ASH_OP_SHL: return ub < width ? (int64_t)(ua << ub) : 0;
    default: return ub < width ? (int64_t)(ua >> ub) : 0; /* SHR */
    }
}

void ash_eval__binary(const ash_eval *e) {
    const ash_wide *a = &e->ins[0], *b = &e->ins[1], *y = &e->outs[0];
    if (ash_dtype_is_float(a->dtype))
        for (int64_t i = 0; i < y->count; i++) y->f[i] = binary_float(e->node->op, a->f[i], b->f[i]);
    else
        for (int64_t i = 0; i < y->count; i++)
            y->i[i] = binary_int(e->node->op, a->dtype, a->i[i], b->i[i]);
}

static bool compare_float(ash_op op, double a, double b) {
    switch (op) {
    case ASH_OP_EQ: return a == b;
    case ASH_OP_LT: return a < b;
    default: return a <= b; /* LE */
    }
}

static bool compare_int(ash_op op, ash_dtype dtype, int64_t a, int64_t b) {
    switch (op) {
    case ASH_OP_EQ: return a == b;
    case ASH_OP_LT: return ash_eval__less_int(dtype, a, b);
    default: return !ash_eval__less_int(dtype, b, a); /* LE */
    }
}

void ash_eval__compare(const ash_eval *e) {
    const ash_wide *a = &e->ins[0], *b = &e->ins[1], *y = &e->outs[0];
    if (ash_dtype_is_float(a->dtype))
        for (int64_t i = 0; i < y->count; i++) y->i[i] = compare_float(e->node->op, a->f[i], b->f[i]);
    else
        for (int64_t i = 0; i < y->count; i++)
            y->i[i] = compare_int(e->node->op, a->dtype, a->i[i], b->i[i]);
}

void ash_eval__select(const ash_eval *e) {
    const ash_wide *cond = &e->ins[0];
    const ash_cell *yes = ash_wide__cells(&e->ins[1]), *no = ash_wide__cells(&e->ins[2]);
    ash_cell *y = ash_wide__cells(&e->outs[0]);
    for (int64_t i = 0; i < e->outs[0].count; i++) y[i] = cond->i[i] ? yes[i] : no[i];
}

/* --- cast -------------------------------------------------------------------------------------------- */

/* Towards zero, saturating, NaN is 0. The highest i64 rounds up to 2^63 as a double, so reaching it
 * saturates. */
static int64_t float_to_int(ash_dtype to, double x) {
    if (to == ASH_BOOL) return x != 0; /* true for NaN */
    if (isnan(x)) return 0;
    if (x <= (double)ash_wide__lowest(to)) return ash_wide__lowest(to);
    if (to == ASH_U64) return x >= 0x1p64 ? ash_wide__highest(to) : (int64_t)(uint64_t)x;
    return x >= (double)ash_wide__highest(to) ? ash_wide__highest(to) : (int64_t)x;
}

/* A double that rounds to every narrower format as the integer itself would. Where a double has too few
 * digits, what bits 0 to 10 hold is kept as one sticky bit above them: 43 digits or more remain, and no
 * narrower format has a midpoint there. */
static double int_to_double_sticky(bool negative, uint64_t magnitude) {
    if (magnitude >> 53) magnitude = (magnitude & ~UINT64_C(0x7ff)) | (magnitude & 0x7ff ? 0x800 : 0);
    return negative ? -(double)magnitude : (double)magnitude;
}

static double int_to_float(ash_dtype from, ash_dtype to, ash_eval_precision precision, int64_t x) {
    if (to == ASH_F64 || precision == ASH_EVAL_DOUBLE)
        return from == ASH_U64 ? (double)(uint64_t)x : (double)x;
    bool negative = ash_eval__less_int(from, x, 0);
    return int_to_double_sticky(negative, negative ? -(uint64_t)x : (uint64_t)x);
}

/* Each element goes through memory as its dtype has it there. */
static void bitcast(const ash_wide *x, const ash_wide *y) {
    for (int64_t i = 0; i < y->count; i++) {
        uint64_t bits = 0;
        ash_wide from = {.dtype = x->dtype, .count = 1}, to = {.dtype = y->dtype, .count = 1};
        if (ash_dtype_is_float(x->dtype))
            from.f = x->f + i;
        else
            from.i = x->i + i;
        if (ash_dtype_is_float(y->dtype))
            to.f = y->f + i;
        else
            to.i = y->i + i;
        ash_wide_store(&from, &bits);
        ash_wide_load(&to, &bits);
    }
}

void ash_eval__cast(const ash_eval *e) {
    const ash_wide *x = &e->ins[0], *y = &e->outs[0];
    if (e->node->op == ASH_OP_BITCAST) {
        bitcast(x, y);
        return;
    }
    bool from_float = ash_dtype_is_float(x->dtype), to_float = ash_dtype_is_float(y->dtype);
    if (from_float && to_float)
        for (int64_t i = 0; i < y->count; i++) y->f[i] = x->f[i];
    else if (from_float)
        for (int64_t i = 0; i < y->count; i++) y->i[i] = float_to_int(y->dtype, x->f[i]);
    else if (to_float)
        for (int64_t i = 0; i < y->count; i++)
            y->f[i] = int_to_float(x->dtype, y->dtype, e->precision, x->i[i]);
    else
        for (int64_t i = 0; i < y->count; i++)
            y->i[i] = x->i[i]; /* wraps to the width when it is rounded */
}
