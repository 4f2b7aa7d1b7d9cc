/* SPDX-License-Identifier: MIT */
/* Dims that must agree: different expressions of variables that are the same size where the model is run,
 * or else an execution says so. What is larger is cut to the expression that is never more, on the
 * condition that nothing is cut off. */
#include "import.h"
#include "ops.h"

/* Dim number `p` from the last one, or 1 where the value has no such dim. */
static ash_dim dim_at(const ash_import *im, ash_value value, unsigned p) {
    const ash_type type = ash_import__type(im, value);
    return p < type.rank ? type.dims[type.rank - 1 - p] : 1;
}

static bool stop(void *user, uint32_t var) {
    (void)user, (void)var;
    return false;
}

bool ash_import__hangs_on_data(const ash_import *im, ash_dim dim) {
    return !ash_dims_each_settled(im->graph->dims, dim, stop, NULL);
}

/* The expression that is never more than the others, or their minimum where that is not known; a number:
 * there is nothing to do. */
static ash_dim least_dim(const ash_import *im, const ash_value *values, size_t n, unsigned p) {
    ash_dims *dims = im->graph->dims;
    ash_dim least = 0;
    bool same = true;
    for (size_t i = 0; i < n; i++) {
        ash_dim dim = dim_at(im, values[i], p), smaller = 0;
        if (dim >= 0) {
            if (dim != 1) return 0;
            continue;
        }
        same = same && (!least || least == dim);
        if (least && ash_dims_combine(dims, ASH_DIM_MIN, least, dim, &smaller, NULL) != ASH_OK) return 0;
        least = least ? smaller : dim;
    }
    return same ? 0 : least;
}

/* Whether a dim can be `least`, which is never more. */
static bool can_be(const ash_import *im, ash_dim dim, ash_dim least) {
    return dim == least || ash_import__hangs_on_data(im, dim) || ash_import__hangs_on_data(im, least) ||
           ash_dims_may_equal(im->graph->dims, dim, least);
}

/* Cuts an axis of a value to `least`, on the condition that it is as large as `other`, another axis that is
 * cut so: then nothing is cut off. */
static void cut_to(ash_import *im, ash_value *value, unsigned axis, ash_dim least, ash_dim other) {
    ash_dim dim = ash_import__type(im, *value).dims[axis];
    if (dim == least) return;
    *value = ash_slice_axis(im->graph, *value, axis, 0, least);
    if (ash_import__hangs_on_data(im, dim) || ash_import__hangs_on_data(im, least))
        *value = ash_onnx__if_equal(im, *value, dim, least);
    else
        im->status = ash_dims_require(im->graph->dims, dim, other, &im->diag);
}

/* Whether a size is 0 or 1. */
static bool is_flag(const ash_import *im, ash_dim dim) {
    int64_t least, most;
    ash_dims_bounds(im->graph->dims, dim, &least, &most);
    return dim < 0 && most == 1;
}

/* One element or none, beside what may have more: it is repeated as one, and where there is none there is
 * nothing of the others. */
static void repeat_flags(ash_import *im, ash_value *values, size_t n, unsigned p) {
    ash_graph *g = im->graph;
    ash_dim all = 1;
    bool others = false;
    for (size_t i = 0; i < n; i++) {
        const ash_dim dim = dim_at(im, values[i], p);
        int64_t least, most;
        ash_dims_bounds(g->dims, dim, &least, &most);
        others |= most > 1;
        if (is_flag(im, dim)) all = all == 1 || all == dim ? dim : ash_graph_dim_mul(g, all, dim);
    }
    for (size_t i = 0; others && all != 1 && i < n && ash_import__ok(im); i++) {
        const ash_dim dim = dim_at(im, values[i], p);
        const unsigned axis = ash_import__type(im, values[i]).rank - 1 - p;
        if (is_flag(im, dim))
            values[i] = ash_onnx__fill_up(im, values[i], axis, 1);
        else if (dim != 1)
            values[i] = ash_slice_axis(g, values[i], axis, 0,
                                       ash_graph_dim_min(g, dim, ash_graph_dim_mul(g, dim, all)));
    }
}

void ash_import__agree(ash_import *im, ash_value *values, size_t n, unsigned except) {
    for (unsigned p = 0; p < ASH_MAX_RANK; p++) {
        if (!ash_import__ok(im)) return;
        if (except == ASH_MAX_RANK) repeat_flags(im, values, n, p);
        unsigned rank = ash_import__type(im, values[0]).rank;
        ash_dim least = except < ASH_MAX_RANK && p + except + 1 == rank ? 0 : least_dim(im, values, n, p);
        ash_dim first = 0;
        bool can = least < 0;
        for (size_t i = 0; can && i < n; i++) {
            ash_dim dim = dim_at(im, values[i], p);
            can = dim >= 0 || can_be(im, dim, least);
            if (dim == least || (dim < 0 && !first)) first = dim;
        }
        for (size_t i = 0; can && i < n && ash_import__ok(im); i++)
            if (dim_at(im, values[i], p) < 0)
                cut_to(im, &values[i], ash_import__type(im, values[i]).rank - 1 - p, least, first);
    }
}

/* Whether two expressions can be the same size, and which is the lesser one is known: of what is
 * reshaped, others mean something else. */
static bool can_agree(ash_import *im, ash_dim a, ash_dim b, ash_dim *least) {
    if (!ash_import__ok(im) || ash_dim_is_const(a) || ash_dim_is_const(b) ||
        ash_dims_combine(im->graph->dims, ASH_DIM_MIN, a, b, least, NULL) != ASH_OK)
        return false;
    if (*least != a && *least != b) return false;
    return can_be(im, a, *least) && can_be(im, b, *least);
}

void ash_import__agree_on(ash_import *im, ash_value *x, unsigned i, ash_value *y, unsigned j) {
    const ash_dim a = ash_import__type(im, *x).dims[i], b = ash_import__type(im, *y).dims[j];
    ash_dim least;
    if (!ash_import__ok(im) || a == b || ash_dim_is_const(a) || ash_dim_is_const(b) ||
        ash_dims_combine(im->graph->dims, ASH_DIM_MIN, a, b, &least, NULL) != ASH_OK ||
        !can_be(im, a, least) || !can_be(im, b, least))
        return;
    cut_to(im, x, i, least, b);
    if (ash_import__ok(im)) cut_to(im, y, j, least, a);
}

void ash_import__agree_with(ash_import *im, ash_value *x, unsigned i, ash_dim *dim) {
    const ash_dim own = ash_import__type(im, *x).dims[i];
    ash_dim least;
    if (own == *dim || !can_agree(im, own, *dim, &least)) return;
    if (ash_import__hangs_on_data(im, own) || ash_import__hangs_on_data(im, *dim)) return;
    cut_to(im, x, i, least, *dim);
    if (*dim != least && ash_import__ok(im))
        im->status = ash_dims_require(im->graph->dims, *dim, own, &im->diag);
    *dim = least;
}

ash_value ash_import__multiple(ash_import *im, ash_value value, unsigned axis, int64_t by) {
    ash_graph *g = im->graph;
    const ash_dim dim = ash_import__type(im, value).dims[axis];
    if (!ash_import__ok(im) || ash_dim_is_const(dim) || by <= 1) return value;
    const ash_dim least = ash_graph_dim_mul(g, ash_graph_dim_div(g, dim, by), by);
    cut_to(im, &value, axis, least, least);
    return value;
}

/* Whether dims from `*at` on are a dim that is a variable, but for what is left over when it is divided by
 * a number, *by; `*at` is behind them then. */
static bool are_parts_of(const ash_import *im, ash_dim dim, const ash_dim *dims, unsigned rank,
                         unsigned *at, int64_t *by) {
    ash_dims *pool = im->graph->dims;
    ash_dim all = 1, whole;
    *by = 1;
    for (unsigned i = *at; i < rank; i++) {
        if (ash_dim_is_const(dims[i]) && (dims[i] < 1 || !ash_mul_i64(*by, dims[i], by))) return false;
        if (ash_dims_combine(pool, ASH_DIM_MUL, all, dims[i], &all, NULL) != ASH_OK) return false;
        if (ash_dims_combine(pool, ASH_DIM_DIV, dim, *by, &whole, NULL) != ASH_OK ||
            ash_dims_combine(pool, ASH_DIM_MUL, whole, *by, &whole, NULL) != ASH_OK)
            return false;
        if (all != whole) continue;
        *at = i + 1;
        return true;
    }
    return false;
}

void ash_import__at_most(ash_import *im, ash_value *value, unsigned axis, ash_dim most) {
    const ash_dim own = ash_import__type(im, *value).dims[axis];
    ash_dim least;
    if (!ash_import__ok(im) || own == most || ash_dim_is_const(most)) return;
    if (ash_dim_is_const(own))
        ash_import__at_least(im, most, own);
    else if (ash_dims_combine(im->graph->dims, ASH_DIM_MIN, own, most, &least, NULL) == ASH_OK &&
             can_be(im, own, least))
        cut_to(im, value, axis, least, least);
}

void ash_import__at_least(ash_import *im, ash_dim dim, int64_t least) {
    if (ash_import__ok(im) && !ash_dim_is_const(dim) && !ash_import__hangs_on_data(im, dim))
        im->status = ash_dims_require_least(im->graph->dims, dim, least, &im->diag);
}

/* How much two sizes can differ by, apart from a constant; negative: more than 64 bits hold. */
static int64_t spread(ash_import *im, ash_dim a, ash_dim b) {
    ash_dim difference;
    int64_t min, max, out;
    if (ash_dims_combine(im->graph->dims, ASH_DIM_SUB, a, b, &difference, NULL) != ASH_OK) return -1;
    ash_dims_bounds(im->graph->dims, difference, &min, &max);
    return __builtin_sub_overflow(max, min, &out) ? -1 : out;
}

/* How many dims of a type, of [at, end) from the first on (from the last one, where `back`), are a dim
 * together, or can be: as many as come closest to it; *product is what they are. 0: none. */
static unsigned group_of(ash_import *im, const ash_type *type, unsigned at, unsigned end, bool back,
                         ash_dim dim, ash_dim *product) {
    ash_dim all = 1, least;
    unsigned count = 0;
    int64_t closest = INT64_MAX;
    for (unsigned k = 0; k < end - at; k++) {
        const ash_dim next = type->dims[back ? end - 1 - k : at + k];
        if (ash_dims_combine(im->graph->dims, ASH_DIM_MUL, all, next, &all, NULL) != ASH_OK) break;
        const int64_t apart = all == dim ? 0 : can_agree(im, all, dim, &least) ? spread(im, all, dim) : -1;
        if (apart < 0 || apart >= closest) continue;
        closest = apart;
        count = k + 1;
        *product = all;
    }
    return count;
}

bool ash_import__regroup(ash_import *im, ash_value *x, ash_dim *dims, unsigned rank, unsigned hole) {
    const ash_type type = ash_import__type(im, *x);
    ash_dim groups[ASH_MAX_RANK];
    unsigned at = 0, end = type.rank;
    if (!ash_import__ok(im)) return false;
    for (unsigned k = 0; k < rank; k++) {
        const bool back = k >= hole;
        const unsigned i = back ? rank - 1 - (k - hole) : k;
        if (i == hole) break;
        groups[i] = 1;
        if (dims[i] == 1) continue;
        const unsigned count = group_of(im, &type, at, end, back, dims[i], &groups[i]);
        if (!count) return false;
        if (back)
            end -= count;
        else
            at += count;
    }
    const ash_dim rest = ash_build__product(im->graph, &type, at, end);
    if (hole == rank && rest != 1) return false;
    if (hole < rank) groups[hole] = dims[hole] = rest;
    *x = ash_reshape(im->graph, *x, groups, rank);
    for (unsigned i = 0; i < rank && ash_import__ok(im); i++) ash_import__agree_with(im, x, i, &dims[i]);
    return true;
}

ash_value ash_import__reshapable(ash_import *im, ash_value x, ash_dim *dims, unsigned rank) {
    ash_graph *g = im->graph;
    ash_type type = ash_import__type(im, x);
    if (!ash_import__ok(im)) return x;
    ash_type want = {.rank = rank};
    memcpy(want.dims, dims, rank * sizeof *dims);
    const ash_dim total = ash_build__product(g, &type, 0, type.rank);
    if (total == ash_build__product(g, &want, 0, rank)) return x;
    int64_t by[ASH_MAX_RANK];
    unsigned at = 0, axis = 0;
    for (; axis < type.rank; axis++) { /* dims of the operand that are taken apart */
        by[axis] = 1;
        if (at < rank && dims[at] == type.dims[axis]) {
            at++;
            continue;
        }
        if (ash_dim_is_const(type.dims[axis]) ||
            !are_parts_of(im, type.dims[axis], dims, rank, &at, &by[axis]))
            break;
    }
    for (unsigned d = 0; axis == type.rank && at == rank && d < type.rank; d++)
        x = ash_import__multiple(im, x, d, by[d]);
    if (axis == type.rank && at == rank) return x;
    at = 0;
    if (are_parts_of(im, total, dims, rank, &at, &by[0]) && at == rank)
        return ash_import__multiple(im, ash_reshape(g, x, &total, 1), 0, by[0]);
    ash_import__regroup(im, &x, dims, rank, rank);
    return x;
}
