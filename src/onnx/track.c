/* SPDX-License-Identifier: MIT */
/* Shape computations on lists of numbers and dim expressions.
 *
 * A model computes shapes with tensors: Shape, Gather, Mul, Concat, Reshape. Here such nodes are computed
 * at import, when all their operands are small integer tensors whose elements are known as numbers or dims.
 * The result is a list again; it becomes a tensor of the graph only when a node that is not followed here
 * asks for one. Sizes may pass through floating point numbers, as where an exporter computes
 * floor(2.0 * h) or ceil(h / 2.0): lists of these begin with a dim in them, and are whole numbers that the
 * dtype has exactly, or quotients of such, of which nothing is followed but how they become whole. Where a
 * step cannot be expressed (a comparison that depends on a variable), the node is lowered
 * like any other. */
#include "ops.h"

typedef struct tracked {
    ash_type type; /* dims are numbers */
    const ash_import_int *list;
    size_t count;
} tracked;

static bool operand(ash_import *im, size_t k, tracked *out) {
    if (!ash_import__try_list(im, k, &out->list, &out->count)) return false;
    out->type = ash_import__in_type(im, k);
    return true;
}

/* The same of a constant of whole floating point numbers, beside lists of them. */
static bool whole_operand(ash_import *im, size_t k, tracked *out) {
    if (!ash_import__try_whole(im, k, &out->list, &out->count)) return false;
    out->type = ash_import__in_type(im, k);
    return true;
}

static bool is_number(ash_import_int e) {
    return !e.dim;
}

static bool has_dim(const tracked *x) {
    for (size_t i = 0; i < x->count; i++)
        if (x->list[i].dim) return true;
    return false;
}

/* Whether a floating point dtype has all that the elements can be. */
static bool fits_float(const ash_import *im, ash_dtype dtype, const tracked *x) {
    int64_t most = dtype == ASH_F32 ? 1 << 24 : INT64_C(1) << 53;
    if (dtype != ASH_F32 && dtype != ASH_F64) return false;
    for (size_t i = 0; i < x->count; i++) {
        int64_t low = x->list[i].v, high = low;
        if (x->list[i].dim) ash_dims_bounds(im->graph->dims, x->list[i].v, &low, &high);
        if (low < -most || high > most) return false;
    }
    return true;
}

/* --- elementwise ---------------------------------------------------------------------------------- */

/* Index in an operand of element i of the broadcast result. */
static size_t source(const ash_type *out, const ash_type *in, size_t i) {
    size_t index = 0, step = 1;
    for (unsigned d = 0; d < out->rank; d++) {
        size_t dim = (size_t)out->dims[out->rank - 1 - d], at = dim ? i % dim : 0;
        i = dim ? i / dim : 0;
        if (d >= in->rank) continue;
        size_t have = (size_t)in->dims[in->rank - 1 - d];
        if (have != 1) index += at * step;
        step *= have;
    }
    return index;
}

static bool broadcast(const tracked *a, const tracked *b, ash_type *out) {
    out->rank = ASH_MAX(a->type.rank, b->type.rank);
    for (unsigned i = 0; i < out->rank; i++) {
        ash_dim x = i < a->type.rank ? a->type.dims[a->type.rank - 1 - i] : 1;
        ash_dim y = i < b->type.rank ? b->type.dims[b->type.rank - 1 - i] : 1;
        if (x != y && x != 1 && y != 1) return false;
        out->dims[out->rank - 1 - i] = x == 1 ? y : x;
    }
    return true;
}

static ash_import_int *room(ash_import *im, const ash_type *type, size_t *count) {
    int64_t n = 1;
    for (unsigned i = 0; i < type->rank; i++)
        if (!ash_mul_i64(n, type->dims[i], &n) || n > ASH_IMPORT_LIST) return NULL;
    *count = (size_t)n;
    return ash_arena_alloc(im->scratch, (size_t)n, sizeof(ash_import_int));
}

/* Two lists; of floating point numbers one may be a constant, and quotients are none. */
static bool two_operands(ash_import *im, ash_op op, tracked *a, tracked *b) {
    bool first = operand(im, 0, a), second = operand(im, 1, b);
    tracked *other = first ? b : a;
    const ash_type *known = first ? &a->type : &b->type;
    if ((!first && !second) || !ash_dtype_is_float(known->dtype)) return first && second;
    if (op != ASH_OP_ADD && op != ASH_OP_SUB && op != ASH_OP_MUL && op != ASH_OP_MIN && op != ASH_OP_MAX)
        return false;
    if (first && second) return true;
    return whole_operand(im, first, other);
}

/* How quotients of sizes become whole numbers: down, up, or toward zero. */
typedef enum rounding { DOWN, UP, TOWARD_ZERO } rounding;

static bool round_quotients(ash_import *im, rounding how, ash_dtype to) {
    tracked x = {.type = ash_import__in_type(im, 0)};
    const ash_dtype from = x.type.dtype;
    if (from != ASH_F32 && from != ASH_F64) return false;
    const ash_onnx_quotient *q = ash_onnx__quotients(im, 0, &x.count);
    ash_import_int *list = q ? room(im, &x.type, &x.count) : NULL;
    bool dims = false;
    for (size_t i = 0; list && i < x.count; i++) {
        const ash_import_int both[] = {q[i].above, q[i].below}, one = {1, false};
        const tracked parts = {.list = both, .count = ASH_COUNT(both)};
        ash_import_int n = q[i].above, rest = {0, false}, up;
        dims |= has_dim(&parts);
        if (!fits_float(im, from, &parts) || !ash_import__combine(im, ASH_OP_SUB, q[i].below, one, &up) ||
            (how == UP && !ash_import__combine(im, ASH_OP_ADD, n, up, &n)) ||
            (how != TOWARD_ZERO && (!ash_import__combine(im, ASH_OP_MOD, n, q[i].below, &rest) ||
                                    !ash_import__combine(im, ASH_OP_SUB, n, rest, &n))) ||
            !ash_import__combine(im, ASH_OP_DIV, n, q[i].below, &list[i]))
            return false;
    }
    x.type.dtype = to;
    if (dims) ash_import__out_list(im, 0, &x.type, list);
    return dims;
}

static bool track_binary(ash_import *im, ash_op op) {
    tracked a, b;
    ash_type out = {0};
    size_t count;
    bool compares = op == ASH_OP_EQ || op == ASH_OP_LT || op == ASH_OP_LE;
    if (im->node->n_ins != 2 || im->opset < 7 || !two_operands(im, op, &a, &b)) return false;
    if (a.type.dtype != b.type.dtype || !broadcast(&a, &b, &out)) return false;
    bool swapped = ash_span_is(im->node->op, "Greater") || ash_span_is(im->node->op, "GreaterOrEqual");
    out.dtype = compares ? ASH_BOOL : a.type.dtype;
    ash_import_int *list = room(im, &out, &count);
    for (size_t i = 0; list && i < count; i++) {
        ash_import_int x = a.list[source(&out, &a.type, i)], y = b.list[source(&out, &b.type, i)];
        if (!ash_import__combine(im, op, swapped ? y : x, swapped ? x : y, &list[i])) return false;
        if (out.dtype == ASH_I32 && is_number(list[i]) && list[i].v != (int32_t)list[i].v) return false;
    }
    if (ash_dtype_is_float(out.dtype) &&
        !fits_float(im, out.dtype, &(tracked){out, list, list ? count : 0}))
        return false;
    if (list) ash_import__out_list(im, 0, &out, list);
    return list != NULL;
}

static bool track_where(ash_import *im) {
    tracked c, a, b;
    ash_type both = {0}, out = {0};
    size_t count;
    if (!operand(im, 0, &c) || !operand(im, 1, &a) || !operand(im, 2, &b) || a.type.dtype != b.type.dtype)
        return false;
    if (!broadcast(&a, &b, &both)) return false;
    tracked joined = {.type = both};
    if (!broadcast(&joined, &c, &out)) return false;
    out.dtype = a.type.dtype;
    ash_import_int *list = room(im, &out, &count);
    for (size_t i = 0; list && i < count; i++)
        list[i] = c.list[source(&out, &c.type, i)].v ? a.list[source(&out, &a.type, i)]
                                                     : b.list[source(&out, &b.type, i)];
    if (list) ash_import__out_list(im, 0, &out, list);
    return list != NULL;
}

static bool track_cast(ash_import *im) {
    tracked x;
    ash_dtype to;
    size_t count;
    if (im->opset < 6) return false; /* the type is a text */
    if (!ash_onnx__dtype(ash_import__attr_int(im, "to", 0), &to)) return false;
    if (!operand(im, 0, &x))
        return (to == ASH_I64 || to == ASH_I32) && round_quotients(im, TOWARD_ZERO, to);
    if (ash_dtype_is_float(to) ? !has_dim(&x) || !fits_float(im, to, &x)
                               : to != ASH_I64 && to != ASH_I32 && to != ASH_BOOL)
        return false;
    ash_import_int *list = room(im, &x.type, &count);
    for (size_t i = 0; list && i < count; i++) {
        list[i] = x.list[i];
        if (to == ASH_BOOL && !is_number(list[i])) return false;
        if (to == ASH_BOOL) list[i].v = list[i].v != 0;
        if (to == ASH_I32 && is_number(list[i]) && list[i].v != (int32_t)list[i].v) return false;
    }
    x.type.dtype = to;
    if (list) ash_import__out_list(im, 0, &x.type, list);
    return list != NULL;
}

static bool track_not(ash_import *im) {
    tracked x;
    size_t count;
    if (!operand(im, 0, &x) || x.type.dtype != ASH_BOOL) return false;
    ash_import_int *list = room(im, &x.type, &count);
    for (size_t i = 0; list && i < count; i++) list[i] = (ash_import_int){!x.list[i].v, false};
    if (list) ash_import__out_list(im, 0, &x.type, list);
    return list != NULL;
}

static bool track_neg(ash_import *im) {
    tracked x;
    size_t count;
    if (!operand(im, 0, &x) || x.type.dtype == ASH_BOOL) return false;
    ash_import_int *list = room(im, &x.type, &count);
    for (size_t i = 0; list && i < count; i++) {
        if (!ash_import__combine(im, ASH_OP_SUB, (ash_import_int){0, false}, x.list[i], &list[i]))
            return false;
        if (x.type.dtype == ASH_I32 && is_number(list[i]) && list[i].v != (int32_t)list[i].v) return false;
    }
    if (list) ash_import__out_list(im, 0, &x.type, list);
    return list != NULL;
}

/* Clip, whose bounds are whole numbers or left out. */
static bool track_clip(ash_import *im) {
    static const ash_op ops[] = {ASH_OP_MAX, ASH_OP_MIN};
    tracked x;
    size_t count;
    if (im->opset < 11 || !operand(im, 0, &x)) return false;
    ash_import_int *list = room(im, &x.type, &count);
    if (!list) return false;
    memcpy(list, x.list, count * sizeof *list);
    for (size_t k = 1; k < 3; k++) {
        tracked bound;
        if (!ash_import__has(im, k)) continue;
        if (!whole_operand(im, k, &bound) || bound.count != 1) return false;
        for (size_t i = 0; i < count; i++)
            if (!ash_import__combine(im, ops[k - 1], list[i], bound.list[0], &list[i])) return false;
    }
    if (ash_dtype_is_float(x.type.dtype) && !fits_float(im, x.type.dtype, &(tracked){x.type, list, count}))
        return false;
    ash_import__out_list(im, 0, &x.type, list);
    return true;
}

/* Floor, Ceil, Round: of whole numbers, what they are. */
static bool track_whole(ash_import *im) {
    tracked x;
    if (operand(im, 0, &x) && ash_dtype_is_float(x.type.dtype)) {
        ash_import__out_list(im, 0, &x.type, x.list);
        return true;
    }
    const bool up = ash_span_is(im->node->op, "Ceil");
    return (up || ash_span_is(im->node->op, "Floor")) &&
           round_quotients(im, up ? UP : DOWN, ash_import__in_type(im, 0).dtype);
}

/* --- movement ------------------------------------------------------------------------------------- */

/* The type of a list that is reshaped to `shape`: false where that is none of as many elements. */
static bool reshaped(ash_import *im, const tracked *x, const int64_t *shape, size_t n, ash_type *out) {
    const bool copies = !ash_import__attr_int(im, "allowzero", 0);
    int64_t product = 1;
    size_t open = n;
    if (n > ASH_MAX_RANK) return false;
    out->rank = (unsigned)n;
    for (size_t d = 0; d < n; d++) {
        out->dims[d] = shape[d] == 0 && copies && d < x->type.rank ? x->type.dims[d] : shape[d];
        if (shape[d] == -1 && open == n)
            open = d;
        else if (out->dims[d] < 0 || !ash_mul_i64(product, out->dims[d], &product))
            return false;
    }
    if (open < n) {
        if (product == 0) return false;
        out->dims[open] = (int64_t)x->count / product;
        product *= out->dims[open];
    }
    return product == (int64_t)x->count;
}

/* Identity, Squeeze, Unsqueeze, Reshape of a list: the elements stay in order. Of the second and third only
 * what makes a number of a list, or the other way round; the others are lowered. */
static bool track_rank(ash_import *im) {
    tracked x;
    const int64_t *list = NULL;
    size_t n = 0;
    if (!operand(im, 0, &x)) return false;
    if (ash_span_is(im->node->op, "Identity")) {
        ash_import__out_list(im, 0, &x.type, x.list);
        return true;
    }
    ash_type out = {.dtype = x.type.dtype, .rank = 1, .dims = {(ash_dim)x.count}};
    if (ash_span_is(im->node->op, "Reshape")) {
        if (im->opset < 5 || !ash_import__try_ints(im, 1, &list, &n) || !reshaped(im, &x, list, n, &out))
            return false;
    } else if (ash_span_is(im->node->op, "Squeeze")) {
        if (x.type.rank != 1 || x.count != 1) return false;
        out.rank = 0;
    } else {
        bool given = im->opset < 13 ? ash_import__attr_ints(im, "axes", &list, &n)
                                    : ash_import__try_ints(im, 1, &list, &n);
        if (x.type.rank != 0 || !given || n != 1 || (list[0] != 0 && list[0] != -1)) return false;
    }
    ash_import__out_list(im, 0, &out, x.list);
    return true;
}

static bool track_concat(ash_import *im) {
    ash_type out = {.rank = 1};
    bool any = false; /* is a list, and not a constant of floating point numbers */
    size_t n = im->node->n_ins, total = 0, count;
    tracked *parts = ash_arena_alloc(im->scratch, n, sizeof *parts);
    if (!parts || n == 0) return false;
    for (size_t k = 0; k < n; k++) {
        if (operand(im, k, &parts[k]))
            any = true;
        else if (!whole_operand(im, k, &parts[k]))
            return false;
        if (parts[k].type.rank != 1 || parts[k].type.dtype != parts[0].type.dtype) return false;
        total += parts[k].count;
    }
    if (!any) return false;
    out.dtype = parts[0].type.dtype;
    out.dims[0] = (ash_dim)total;
    ash_import_int *list = room(im, &out, &count);
    if (!list) return false;
    for (size_t k = 0, at = 0; k < n; at += parts[k++].count)
        for (size_t i = 0; i < parts[k].count; i++) list[at + i] = parts[k].list[i];
    ash_import__out_list(im, 0, &out, list);
    return true;
}

static bool track_gather(ash_import *im) {
    tracked x, indices;
    size_t count;
    if (!operand(im, 0, &x) || !operand(im, 1, &indices) || x.type.rank != 1) return false;
    ash_import_int *list = room(im, &indices.type, &count);
    for (size_t i = 0; list && i < count; i++) {
        int64_t at = indices.list[i].v;
        if (!is_number(indices.list[i])) return false;
        if (at < 0) at += (int64_t)x.count;
        if (at < 0 || at >= (int64_t)x.count) return false;
        list[i] = x.list[at];
    }
    indices.type.dtype = x.type.dtype;
    if (list) ash_import__out_list(im, 0, &indices.type, list);
    return list != NULL;
}

/* From one element of each dim to the next. */
static void strides_of(const ash_type *type, int64_t *strides) {
    int64_t apart = 1;
    for (unsigned d = type->rank; d-- > 0; apart *= type->dims[d]) strides[d] = apart;
}

/* The list of type `out` whose element [i, j, ...] is number first + i apart[0] + j apart[1] + ... */
static bool pick(ash_import *im, const tracked *x, const ash_type *out, int64_t first,
                 const int64_t *apart) {
    size_t count;
    ash_import_int *list = room(im, out, &count);
    for (size_t i = 0; list && i < count; i++) {
        int64_t at = first, rest = (int64_t)i;
        for (unsigned d = out->rank; d-- > 0;) {
            const int64_t dim = ASH_MAX(out->dims[d], 1); /* which it is: there are elements */
            at += rest % dim * apart[d];
            rest /= dim;
        }
        list[i] = x->list[at];
    }
    if (list) ash_import__out_list(im, 0, out, list);
    return list != NULL;
}

static bool track_transpose(ash_import *im) {
    tracked x;
    const int64_t *perm;
    size_t n;
    int64_t strides[ASH_MAX_RANK], apart[ASH_MAX_RANK];
    if (!operand(im, 0, &x)) return false;
    const bool given = ash_import__attr_ints(im, "perm", &perm, &n);
    if (given && n != x.type.rank) return false;
    ash_type out = x.type;
    unsigned seen = 0;
    strides_of(&x.type, strides);
    for (unsigned d = 0; d < out.rank; d++) {
        const int64_t from = given ? perm[d] : out.rank - 1 - d;
        if (from < 0 || from >= out.rank || (seen & 1u << from)) return false;
        seen |= 1u << from;
        out.dims[d] = x.type.dims[from];
        apart[d] = strides[from];
    }
    return pick(im, &x, &out, 0, apart);
}

/* One of the lists starts, ends, axes and steps of a slice: attributes of old files, operands of new ones.
 * NULL where it is not given; false where it is not known. */
static bool slice_list(ash_import *im, const char *attr, size_t k, const int64_t **list, size_t *n) {
    *list = NULL;
    if (im->opset >= 10) return !ash_import__has(im, k) || ash_import__try_ints(im, k, list, n);
    if (attr) ash_import__attr_ints(im, attr, list, n);
    return true;
}

static bool track_slice(ash_import *im) {
    tracked x;
    const int64_t *starts, *ends, *axes, *steps;
    size_t n = 0, same[3] = {0};
    int64_t apart[ASH_MAX_RANK], first = 0;
    if (!operand(im, 0, &x) || !slice_list(im, "starts", 1, &starts, &n) ||
        !slice_list(im, "ends", 2, &ends, &same[0]) || !slice_list(im, "axes", 3, &axes, &same[1]) ||
        !slice_list(im, NULL, 4, &steps, &same[2]) || !starts || !ends || same[0] != n ||
        (axes && same[1] != n) || (steps && same[2] != n))
        return false;
    ash_type out = x.type;
    strides_of(&x.type, apart);
    for (size_t i = 0; i < n; i++) {
        int64_t axis = axes ? axes[i] : (int64_t)i, step = steps ? steps[i] : 1;
        if (axis < 0) axis += x.type.rank;
        if (axis < 0 || axis >= x.type.rank || step == 0 || step == INT64_MIN) return false;
        const int64_t dim = x.type.dims[axis];
        int64_t from = starts[i] < 0 ? ASH_MAX(starts[i], -dim) + dim : starts[i];
        int64_t to = ends[i] < -dim ? -1 : ends[i] < 0 ? ends[i] + dim : ASH_MIN(ends[i], dim);
        from = ASH_MIN(from, step < 0 ? dim - 1 : dim);
        if (step > 0) to = ASH_MAX(to, 0);
        const int64_t span = step > 0 ? to - from : from - to, by = step > 0 ? step : -step;
        out.dims[axis] = span > 0 ? (span - 1) / by + 1 : 0;
        first += out.dims[axis] ? from * apart[axis] : 0;
        apart[axis] *= out.dims[axis] > 1 ? step : 0;
    }
    return pick(im, &x, &out, first, apart);
}

/* A list reduced to one number. */
static bool track_reduce(ash_import *im, ash_op op) {
    tracked x;
    if (!operand(im, 0, &x) || x.type.rank != 1 || x.count == 0) return false;
    if (ash_import__attr_int(im, "noop_with_empty_axes", 0)) return false;
    ash_import_int all = x.list[0];
    for (size_t i = 1; i < x.count; i++)
        if (!ash_import__combine(im, op, all, x.list[i], &all)) return false;
    const ash_type out = {
        .dtype = x.type.dtype, .rank = ash_import__attr_int(im, "keepdims", 1) ? 1 : 0, .dims = {1}};
    ash_import__out_list(im, 0, &out, &all);
    return true;
}

static bool track_reduce_max(ash_import *im) {
    return track_reduce(im, ASH_OP_MAX);
}

static bool track_reduce_min(ash_import *im) {
    return track_reduce(im, ASH_OP_MIN);
}

static bool track_reduce_prod(ash_import *im) {
    return track_reduce(im, ASH_OP_MUL);
}

static bool track_reduce_sum(ash_import *im) {
    return track_reduce(im, ASH_OP_ADD);
}

/* --- the operators that are followed -------------------------------------------------------------- */

static const struct {
    const char *name;
    bool (*track)(ash_import *im);
    ash_op op; /* for track_binary, where `track` is NULL */
} steps[] = {
    {"Add", NULL, ASH_OP_ADD},
    {"And", NULL, ASH_OP_AND},
    {"Cast", track_cast, 0},
    {"Ceil", track_whole, 0},
    {"Clip", track_clip, 0},
    {"Concat", track_concat, 0},
    {"Div", NULL, ASH_OP_DIV},
    {"Equal", NULL, ASH_OP_EQ},
    {"Floor", track_whole, 0},
    {"Gather", track_gather, 0},
    {"Greater", NULL, ASH_OP_LT},
    {"GreaterOrEqual", NULL, ASH_OP_LE},
    {"Identity", track_rank, 0},
    {"Less", NULL, ASH_OP_LT},
    {"LessOrEqual", NULL, ASH_OP_LE},
    {"Max", NULL, ASH_OP_MAX},
    {"Min", NULL, ASH_OP_MIN},
    {"Mod", NULL, ASH_OP_MOD},
    {"Mul", NULL, ASH_OP_MUL},
    {"Neg", track_neg, 0},
    {"Not", track_not, 0},
    {"Or", NULL, ASH_OP_OR},
    {"ReduceMax", track_reduce_max, 0},
    {"ReduceMin", track_reduce_min, 0},
    {"ReduceProd", track_reduce_prod, 0},
    {"ReduceSum", track_reduce_sum, 0},
    {"Reshape", track_rank, 0},
    {"Round", track_whole, 0},
    {"Slice", track_slice, 0},
    {"Squeeze", track_rank, 0},
    {"Sub", NULL, ASH_OP_SUB},
    {"Transpose", track_transpose, 0},
    {"Unsqueeze", track_rank, 0},
    {"Where", track_where, 0},
};

bool ash_import__track(ash_import *im) {
    for (size_t i = 0; i < ASH_COUNT(steps); i++) {
        if (!ash_span_is(im->node->op, steps[i].name)) continue;
        if (ash_span_is(im->node->op, "Mod") && ash_import__attr_int(im, "fmod", 0)) return false;
        return steps[i].track ? steps[i].track(im) : track_binary(im, steps[i].op);
    }
    return false;
}
