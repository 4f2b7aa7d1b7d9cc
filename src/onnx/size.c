/* SPDX-License-Identifier: MIT */
/* Arithmetic on the elements of tracked lists: numbers and dim expressions, of either sign.
 *
 * A dim of a tensor is never negative, but what a model computes on the way may be: `-T`, `P - T`. Such an
 * element is an expression like any other; who uses it as a size or a position asks for its sign. */
#include "import.h"

static ash_dims *pool(const ash_import *im) {
    return im->graph->dims;
}

/* False when the expression cannot be had. */
static bool dim_op(const ash_import *im, ash_dim_op op, ash_dim a, ash_dim b, ash_dim *out) {
    return ash_dims_combine(pool(im), op, a, b, out, NULL) == ASH_OK;
}

static bool negate(const ash_import *im, ash_dim a, ash_dim *out) {
    return dim_op(im, ASH_DIM_SUB, 0, a, out);
}

bool ash_import__to_dim(const ash_import *im, ash_import_int e, ash_dim *out) {
    *out = e.v;
    if (e.dim || e.v >= 0) return true;
    return e.v != INT64_MIN && negate(im, -e.v, out);
}

ash_import_int ash_import__from_dim(const ash_import *im, ash_dim dim) {
    int64_t low, high;
    ash_dims_bounds(pool(im), dim, &low, &high);
    return low == high ? (ash_import_int){low, false} : (ash_import_int){dim, true};
}

static ash_import_int number(int64_t v) {
    return (ash_import_int){v, false};
}

bool ash_import__size(ash_import *im, ash_import_int e, ash_dim *out) {
    int64_t low = e.v, high;
    *out = e.v;
    if (e.dim) ash_dims_bounds(pool(im), e.v, &low, &high);
    if (low >= 0) return true;
    *out = 0;
    ash_import__fail(im, ASH_ERROR_SHAPE, "a size that %s %lld", e.dim ? "can be" : "is", (long long)low);
    return false;
}

/* --- operators ------------------------------------------------------------------------------------ */

static bool numbers(ash_op op, int64_t a, int64_t b, int64_t *out) {
    switch (op) {
    case ASH_OP_ADD: return ash_add_i64(a, b, out);
    case ASH_OP_SUB: return !__builtin_sub_overflow(a, b, out);
    case ASH_OP_MUL: return ash_mul_i64(a, b, out);
    case ASH_OP_DIV:
        if (b == 0 || (a == INT64_MIN && b == -1)) return false;
        *out = a / b;
        return true;
    case ASH_OP_MOD:
        if (b == 0 || b == -1) return false;
        *out = a % b;
        if (*out && (*out < 0) != (b < 0)) *out += b;
        return true;
    case ASH_OP_MIN: *out = ASH_MIN(a, b); return true;
    case ASH_OP_MAX: *out = ASH_MAX(a, b); return true;
    case ASH_OP_EQ: *out = a == b; return true;
    case ASH_OP_LT: *out = a < b; return true;
    case ASH_OP_LE: *out = a <= b; return true;
    case ASH_OP_AND: *out = a & b; return true;
    case ASH_OP_OR: *out = a | b; return true;
    default: return false;
    }
}

/* A comparison whose outcome is the same for all values of the variables. */
static bool compare(const ash_import *im, ash_op op, ash_dim a, ash_dim b, ash_import_int *out) {
    ash_dim difference;
    int64_t low, high;
    if (!dim_op(im, ASH_DIM_SUB, a, b, &difference)) return false;
    ash_dims_bounds(pool(im), difference, &low, &high);
    bool less = high < 0, greater = low > 0, equal = low == 0 && high == 0;
    if (op == ASH_OP_EQ) {
        *out = number(equal);
        return equal || less || greater;
    }
    *out = number(op == ASH_OP_LT ? less : high <= 0);
    return op == ASH_OP_LT ? less || low >= 0 : high <= 0 || greater;
}

/* a / b cut toward zero, as ONNX divides integers, for b > 0: the parts above and below zero are divided
 * on their own, unless a is a multiple of b. */
static bool divide(const ash_import *im, ash_dim a, ash_dim b, ash_dim *out) {
    ash_dim above, below, whole;
    if (dim_op(im, ASH_DIM_DIV, a, b, out) && dim_op(im, ASH_DIM_MUL, *out, b, &whole) && whole == a)
        return true;
    return dim_op(im, ASH_DIM_MAX, a, 0, &above) && negate(im, a, &below) &&
           dim_op(im, ASH_DIM_MAX, below, 0, &below) && dim_op(im, ASH_DIM_DIV, above, b, &above) &&
           dim_op(im, ASH_DIM_DIV, below, b, &below) && dim_op(im, ASH_DIM_SUB, above, below, out);
}

/* The remainder has the sign of the divisor, which is above zero: dims are divided downwards. */
static bool remainder_of(const ash_import *im, ash_dim a, ash_dim b, ash_dim *out) {
    ash_dim quotient;
    return dim_op(im, ASH_DIM_DIV, a, b, &quotient) && dim_op(im, ASH_DIM_MUL, quotient, b, &quotient) &&
           dim_op(im, ASH_DIM_SUB, a, quotient, out);
}

bool ash_import__combine(const ash_import *im, ash_op op, ash_import_int a, ash_import_int b,
                         ash_import_int *out) {
    *out = number(0);
    if (!a.dim && !b.dim) return numbers(op, a.v, b.v, &out->v);
    ash_dim x, y, result;
    bool good;
    if (!ash_import__to_dim(im, a, &x) || !ash_import__to_dim(im, b, &y)) return false;
    switch (op) {
    case ASH_OP_ADD: good = dim_op(im, ASH_DIM_ADD, x, y, &result); break;
    case ASH_OP_SUB: good = dim_op(im, ASH_DIM_SUB, x, y, &result); break;
    case ASH_OP_MUL: good = dim_op(im, ASH_DIM_MUL, x, y, &result); break;
    case ASH_OP_MIN: good = dim_op(im, ASH_DIM_MIN, x, y, &result); break;
    case ASH_OP_MAX: good = dim_op(im, ASH_DIM_MAX, x, y, &result); break;
    case ASH_OP_DIV: good = divide(im, x, y, &result); break;
    case ASH_OP_MOD: good = remainder_of(im, x, y, &result); break;
    case ASH_OP_EQ:
    case ASH_OP_LT:
    case ASH_OP_LE: return compare(im, op, x, y, out);
    default: return false;
    }
    if (good) *out = ash_import__from_dim(im, result);
    return good;
}

/* --- positions ------------------------------------------------------------------------------------ */

/* For a bound of either sign, as a sum of what it is on each side of zero, where the other side's part is
 * made nothing:
 *   min(max(b, 0), d)  +  d - min(max(-b, 0), d)  -  d * [b >= 0],      [b >= 0] = min(max(b + 1, 0), 1) */
static bool position_of_either_sign(const ash_import *im, ash_dim b, ash_dim d, ash_dim *out) {
    ash_dim above, below, is_above;
    return dim_op(im, ASH_DIM_MAX, b, 0, &above) && dim_op(im, ASH_DIM_MIN, above, d, &above) &&
           negate(im, b, &below) && dim_op(im, ASH_DIM_MAX, below, 0, &below) &&
           dim_op(im, ASH_DIM_MIN, below, d, &below) && dim_op(im, ASH_DIM_ADD, b, 1, &is_above) &&
           dim_op(im, ASH_DIM_MAX, is_above, 0, &is_above) &&
           dim_op(im, ASH_DIM_MIN, is_above, 1, &is_above) && dim_op(im, ASH_DIM_ADD, above, d, out) &&
           dim_op(im, ASH_DIM_SUB, *out, below, out) && dim_op(im, ASH_DIM_MUL, is_above, d, &is_above) &&
           dim_op(im, ASH_DIM_SUB, *out, is_above, out) &&
           /* Changes nothing, but shows the bounds. */
           dim_op(im, ASH_DIM_MAX, *out, 0, out) && dim_op(im, ASH_DIM_MIN, *out, d, out);
}

bool ash_import__position(ash_import *im, ash_import_int bound, ash_dim dim, ash_dim *out) {
    int64_t low, high;
    ash_dim b;
    bool good;
    *out = 0;
    /* no dim is as large, and what is computed from it has bounds that fit */
    if (!bound.dim) bound.v = ASH_MIN(ASH_MAX(bound.v, -INT64_MAX / 2), INT64_MAX / 2);
    if (!ash_import__to_dim(im, bound, &b)) return false;
    ash_dims_bounds(pool(im), b, &low, &high);
    if (low >= 0)
        good = dim_op(im, ASH_DIM_MIN, b, dim, out);
    else if (high < 0)
        good = negate(im, b, &b) && dim_op(im, ASH_DIM_MIN, b, dim, &b) &&
               dim_op(im, ASH_DIM_SUB, dim, b, out);
    else
        good = position_of_either_sign(im, b, dim, out);
    if (!good) ash_import__fail(im, ASH_ERROR_UNSUPPORTED, "a bound that is too large an expression");
    return good;
}
