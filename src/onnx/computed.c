/* SPDX-License-Identifier: MIT */
/* Sizes that are computed when the graph runs, as where a model of speech says how long what it says will
 * be: elements of shapes, ends of ranges and slices.
 *
 * Such a size depends on data, and needs a limit. A slice's is the dim that it cuts. All others have what
 * the arithmetic says that computes them (the sum of n numbers that are clipped to 8 is at most 8 n), where
 * that is less than what the caller says, who names the size as any other dim ("y.0" after the result and
 * the place in its shape), or SIZE_MOST. An execution that exceeds it fails.
 *
 * A shape is mostly put together from numbers, dims and what is computed; `number_at` follows each of its
 * elements through what moves and compares them, so that the same number gives the same dim wherever it is
 * asked for, and only what is really computed is settled. */
#include <math.h>
#include <stdio.h>

#include "control.h"

enum {
    SIZE_MOST = 4096, /* elements, where the caller says nothing */
    VISITS = 256,     /* nodes that are looked at for one number */
    PLACES = 1 << 10  /* longest list */
};

typedef ash_onnx_number number;

/* --- bounds --------------------------------------------------------------------------------------- */

typedef struct size_interval {
    double least, most;
} interval;

static const interval anything = {-INFINITY, INFINITY};

static interval of_dims(const ash_import *im, const ash_dim *dims, unsigned rank) {
    interval all = {1, 1};
    for (unsigned d = 0; d < rank; d++) {
        int64_t low, high;
        ash_dims_bounds(im->graph->dims, dims[d], &low, &high);
        all.least *= (double)low, all.most *= (double)high;
    }
    return all;
}

/* What both are in. */
static interval joined(interval a, interval b) {
    return (interval){fmin(a.least, b.least), fmax(a.most, b.most)};
}

/* So many numbers as the second says, added up. */
static interval times(interval x, interval n) {
    interval sum = {x.least < 0 ? x.least * n.most : x.least * n.least,
                    x.most > 0 ? x.most * n.most : x.most * n.least};
    if (isnan(sum.least)) sum.least = -INFINITY;
    if (isnan(sum.most)) sum.most = INFINITY;
    return sum;
}

/* Of all elements of a value. */
static interval interval_of(const ash_import *im, ash_value x, unsigned *visits);

static interval combined(const ash_import *im, const ash_node *node, interval a, unsigned *visits) {
    interval b = interval_of(im, node->ins[1], visits);
    switch (node->op) {
    case ASH_OP_MAX: return (interval){fmax(a.least, b.least), fmax(a.most, b.most)};
    case ASH_OP_MIN: return (interval){fmin(a.least, b.least), fmin(a.most, b.most)};
    case ASH_OP_ADD: return (interval){a.least + b.least, a.most + b.most};
    case ASH_OP_SUB: return (interval){a.least - b.most, a.most - b.least};
    default: return a.least >= 0 && b.least >= 0 ? times(a, b) : anything; /* a product */
    }
}

static interval sum_of(const ash_import *im, const ash_node *node, interval a) {
    const ash_type in = ash_import__type(im, node->ins[0]), out = ash_import__type(im, node->out);
    const interval all = of_dims(im, in.dims, in.rank), left = of_dims(im, out.dims, out.rank);
    const double some = all.least >= 1, each = floor(all.least / fmax(left.most, 1));
    return times(a, (interval){fmax(some, each), all.most / fmax(left.least, 1)});
}

static interval interval_of_node(const ash_import *im, const ash_node *node, unsigned *visits) {
    const ash_type type = ash_import__type(im, node->out);
    interval a = node->n_ins ? interval_of(im, node->ins[0], visits) : anything;
    switch (node->op) {
    case ASH_OP_MAX:
    case ASH_OP_MIN:
    case ASH_OP_ADD:
    case ASH_OP_SUB:
    case ASH_OP_MUL: return combined(im, node, a, visits);
    case ASH_OP_SELECT:
        return joined(interval_of(im, node->ins[1], visits), interval_of(im, node->ins[2], visits));
    case ASH_OP_CAST:
        if (type.dtype == ASH_BOOL) return (interval){0, 1};
        if (type.dtype != ASH_I64 && !ash_dtype_is_float(type.dtype) &&
            !(a.least >= 0 && a.most <= (type.dtype == ASH_I32 ? INT32_MAX : INT8_MAX)))
            return anything; /* others wrap around */
        return (interval){floor(a.least), ceil(a.most)};
    case ASH_OP_CEIL:
    case ASH_OP_FLOOR:
    case ASH_OP_ROUND: return (interval){floor(a.least), ceil(a.most)};
    case ASH_OP_EXP: return (interval){0, INFINITY};
    case ASH_OP_SIGMOID: return (interval){0, 1};
    case ASH_OP_IOTA: {
        const int64_t axis = ash_node_int(node, ASH_ATTR_AXIS);
        return (interval){0, fmax(of_dims(im, &type.dims[axis], 1).most - 1, 0)};
    }
    case ASH_OP_SETTLE: {
        const ash_dim n = ash_node_int(node, ASH_ATTR_N);
        return of_dims(im, &n, 1);
    }
    case ASH_OP_CONCAT:
        for (size_t k = 1; k < node->n_ins; k++) a = joined(a, interval_of(im, node->ins[k], visits));
        return a;
    case ASH_OP_RESHAPE:
    case ASH_OP_BROADCAST:
    case ASH_OP_SLICE:
    case ASH_OP_GATHER:
    case ASH_OP_TRANSPOSE: return a;
    case ASH_OP_CUMSUM: {
        const interval n = of_dims(im, type.dims, type.rank);
        return joined(times(a, (interval){1, fmax(n.most, 1)}), ash_node_int(node, ASH_ATTR_EXCLUSIVE)
                                                                    ? (interval){0, 0}
                                                                    : times(a, (interval){1, 1}));
    }
    case ASH_OP_REDUCE_SUM: return sum_of(im, node, a);
    case ASH_OP_REDUCE_MAX:
    case ASH_OP_REDUCE_MIN: {
        const ash_type in = ash_import__type(im, node->ins[0]);
        return of_dims(im, in.dims, in.rank).least < 1 ? anything : a;
    }
    default: return anything;
    }
}

static interval interval_of(const ash_import *im, ash_value x, unsigned *visits) {
    const ash_graph *g = im->graph;
    const ash_value_info *info = ash_graph__value(g, x);
    int64_t count;
    if (info->kind == ASH_VALUE_CONSTANT && info->blob && ash_type_static_count(&info->type, &count) &&
        count > 0 && count <= VISITS) {
        interval all = {INFINITY, -INFINITY};
        for (int64_t i = 0; i < count; i++) {
            double v = ash_import__float_at(info->blob, info->type.dtype, (size_t)i);
            if (isnan(v)) return anything;
            all = joined(all, (interval){v, v});
        }
        return all;
    }
    if (info->kind != ASH_VALUE_NODE || !*visits) return anything;
    --*visits;
    const ash_node node = g->nodes.at[info->node];
    return interval_of_node(im, &node, visits);
}

/* What no element of the value is below, as far as a few nodes tell. */
static double least(const ash_import *im, ash_value x) {
    unsigned visits = VISITS;
    return interval_of(im, x, &visits).least;
}

/* Makes *most what no element is above, where that is less; at least 1. Whether it is, and none is below
 * `low`: there is nothing to check. */
static bool within(const ash_import *im, ash_value x, int64_t low, int64_t *most) {
    unsigned visits = VISITS;
    const interval all = interval_of(im, x, &visits);
    if (all.most > (double)*most) return false;
    if (all.most < (double)*most) *most = ASH_MAX((int64_t)all.most, 1);
    return low == INT64_MIN || all.least >= (double)low;
}

int64_t ash_onnx__most(const ash_import *im, ash_value x) {
    int64_t most = ASH_OPEN_MOST;
    within(im, x, INT64_MIN, &most);
    return most;
}

/* --- elements ------------------------------------------------------------------------------------- */

static number known(int64_t v) {
    return (number){{v, false}, ASH_NO_VALUE};
}

ash_value ash_onnx__number_value(ash_import *im, number n) {
    const ash_type scalar = {.dtype = ASH_I64};
    if (n.value != ASH_NO_VALUE) return n.value;
    return n.known.dim ? ash_build__dim(im->graph, n.known.v)
                       : ash_build__ints(im->graph, &scalar, &n.known.v);
}

static bool is_known(number n) {
    return n.value == ASH_NO_VALUE;
}

/* Element i, of which nothing else is known: the same scalar each time. */
static number pick(ash_import *im, ash_value x, int64_t i) {
    ash_graph *g = im->graph;
    const uint64_t key = (uint64_t)x * PLACES + (uint64_t)i;
    uint64_t made;
    ash_type type = ash_import__type(im, x);
    if (ash_map_get(&im->picked, key, &made)) return (number){.value = (ash_value)made};
    ash_dim all = ash_build__product(g, &type, 0, type.rank);
    if (all != 1) x = ash_build__at(g, ash_reshape(g, x, &all, 1), 0, i);
    x = ash_cast(g, ash_reshape(g, x, NULL, 0), ASH_I64);
    if (!ash_map_put(&im->picked, key, x)) im->status = ASH_NO_MEMORY(&im->diag);
    return (number){.value = x};
}

/* A comparison of what is computed with a number, where bounds decide it. */
static bool decided(ash_import *im, ash_op op, number a, number b, number *out) {
    if (op == ASH_OP_EQ && is_known(a)) return decided(im, op, b, a, out);
    if (is_known(a) == is_known(b) || a.known.dim || b.known.dim) return false;
    bool first = is_known(b); /* a is computed */
    double low = least(im, first ? a.value : b.value), than = (double)(first ? b : a).known.v;
    switch (op) {
    case ASH_OP_EQ: *out = known(0); return low > than;
    case ASH_OP_LT: *out = known(!first); return first ? low >= than : low > than;
    case ASH_OP_LE: *out = known(!first); return first ? low > than : low >= than;
    default: return false;
    }
}

static number combine(ash_import *im, ash_op op, number a, number b) {
    number out = known(0);
    if (is_known(a) && is_known(b) && ash_import__combine(im, op, a.known, b.known, &out.known)) return out;
    if (decided(im, op, a, b, &out)) return out;
    out.value =
        ash_build__binary(im->graph, op, ash_onnx__number_value(im, a), ash_onnx__number_value(im, b));
    out.value = ash_cast(im->graph, out.value, ASH_I64);
    return out;
}

static number number_at(ash_import *im, ash_value x, int64_t i, unsigned *visits);

static number choose(ash_import *im, const ash_node *node, int64_t i, unsigned *visits) {
    number go = number_at(im, node->ins[0], i, visits), a = number_at(im, node->ins[1], i, visits),
           b = number_at(im, node->ins[2], i, visits);
    if (is_known(go) && !go.known.dim) return go.known.v ? a : b;
    ash_value on = ash_cast(im->graph, ash_onnx__number_value(im, go), ASH_BOOL);
    return (number){
        .value = ash_select(im->graph, on, ash_onnx__number_value(im, a), ash_onnx__number_value(im, b))};
}

/* Element i of a slice of what has rank 1. */
static bool number_in_slice(ash_import *im, const ash_node *node, int64_t i, unsigned *visits,
                            number *out) {
    const ash_value in = node->ins[0];
    const ash_value_info *info = ash_graph__value(im->graph, in);
    const ash_dim start = ash_node_list(node, ASH_ATTR_STARTS)[0];
    const int64_t step = ash_node_list(node, ASH_ATTR_STEPS)[0];
    int64_t at;
    if (info->type.rank != 1 || __builtin_mul_overflow(i, step, &at)) return false;
    if (ash_dim_is_const(start)) {
        *out = number_at(im, in, start + at, visits);
        return true;
    }
    bool counts = info->kind == ASH_VALUE_NODE && im->graph->nodes.at[info->node].op == ASH_OP_IOTA;
    if (!counts || at) return false;
    *out = (number){{start, true}, ASH_NO_VALUE}; /* a dim as a tensor */
    return true;
}

static bool number_in_concat(ash_import *im, const ash_node *node, int64_t i, unsigned *visits,
                             number *out) {
    for (size_t k = 0; k < node->n_ins; k++) {
        const ash_type *part = ash_graph__type(im->graph, node->ins[k]);
        if (part->rank != 1 || !ash_dim_is_const(part->dims[0])) return false;
        if (i < part->dims[0]) {
            *out = number_at(im, node->ins[k], i, visits);
            return true;
        }
        i -= part->dims[0];
    }
    return false;
}

/* Element i of a node's result, in row-major order. False: it is what the node computes. */
static bool number_of_node(ash_import *im, const ash_node *node, int64_t i, unsigned *visits, number *out) {
    const ash_type type = ash_import__type(im, node->out), in = ash_import__type(im, node->ins[0]);
    int64_t count;
    switch (node->op) {
    case ASH_OP_RESHAPE: *out = number_at(im, node->ins[0], i, visits); return true;
    case ASH_OP_CAST:
        if (ash_dtype_is_float(in.dtype) || type.dtype == ASH_BOOL) return false;
        *out = number_at(im, node->ins[0], i, visits);
        return true;
    case ASH_OP_BROADCAST:
        if (!ash_type_static_count(&in, &count) || count != 1) return false;
        *out = number_at(im, node->ins[0], 0, visits);
        return true;
    case ASH_OP_SETTLE: *out = (number){{ash_node_int(node, ASH_ATTR_N), true}, ASH_NO_VALUE}; return true;
    case ASH_OP_CONCAT: return number_in_concat(im, node, i, visits, out);
    case ASH_OP_SLICE: return number_in_slice(im, node, i, visits, out);
    case ASH_OP_GATHER: {
        if (in.rank != 1 || !ash_dim_is_const(in.dims[0])) return false;
        number at = number_at(im, node->ins[1], i, visits);
        if (!is_known(at) || at.known.dim) return false;
        if (at.known.v < 0) at.known.v += in.dims[0];
        if (at.known.v < 0 || at.known.v >= in.dims[0]) return false;
        *out = number_at(im, node->ins[0], at.known.v, visits);
        return true;
    }
    case ASH_OP_SELECT: *out = choose(im, node, i, visits); return true;
    case ASH_OP_ADD:
    case ASH_OP_SUB:
    case ASH_OP_MUL:
    case ASH_OP_MIN:
    case ASH_OP_MAX:
    case ASH_OP_EQ:
    case ASH_OP_LT:
    case ASH_OP_LE:
        if (ash_dtype_is_float(in.dtype)) return false;
        *out = combine(im, node->op, number_at(im, node->ins[0], i, visits),
                       number_at(im, node->ins[1], i, visits));
        return true;
    default: return false;
    }
}

/* A scalar of one element is itself, so that what is computed keeps its name. */
static number number_at(ash_import *im, ash_value x, int64_t i, unsigned *visits) {
    number out;
    const ash_value_info info = *ash_graph__value(im->graph, x);
    if (info.kind == ASH_VALUE_CONSTANT && info.blob)
        return known(ash_import__int_at(info.blob, info.type.dtype, (size_t)i));
    if (info.kind != ASH_VALUE_NODE || !*visits || !ash_import__ok(im)) return pick(im, x, i);
    const ash_node node = im->graph->nodes.at[info.node];
    --*visits;
    return node.n_ins && number_of_node(im, &node, i, visits, &out) ? out : pick(im, x, i);
}

bool ash_onnx__is_given(const ash_import *im, ash_value x) {
    if (x == ASH_NO_VALUE) return false;
    const ash_value_info *info = ash_graph__value(im->graph, x);
    for (unsigned i = 0; i < VISITS && info->kind == ASH_VALUE_NODE; i++) {
        const ash_node *node = &im->graph->nodes.at[info->node];
        const bool moves = ash_op_infos[node->op].class == ASH_CLASS_MOVE || node->op == ASH_OP_CAST;
        if (!moves || !node->n_ins) return false;
        info = ash_graph__value(im->graph, node->ins[0]);
    }
    return info->kind == ASH_VALUE_INPUT;
}

ash_onnx_number ash_onnx__known_size(const ash_import *im, ash_onnx_number n) {
    uint64_t dim;
    if (n.value == ASH_NO_VALUE || !ash_map_get(&im->ends, n.value, &dim)) return n;
    return (number){{(int64_t)dim, !ash_dim_is_const((ash_dim)dim)}, ASH_NO_VALUE};
}

/* Element i of floating point numbers, in row-major order, as a quotient of whole numbers or dims. */
static bool quotient_at(ash_import *im, ash_value x, int64_t i, unsigned *visits, ash_onnx_quotient *out) {
    const ash_value_info info = *ash_graph__value(im->graph, x);
    ash_onnx_quotient a, b;
    int64_t count;
    if (ash_type_static_count(&info.type, &count) && count == 1) i = 0;
    *out = (ash_onnx_quotient){.below = {1, false}};
    if (info.kind == ASH_VALUE_CONSTANT && info.blob) {
        const double f = ash_import__float_at(info.blob, info.type.dtype, (size_t)i);
        if (!(fabs(f) <= 0x1p24) || f != trunc(f)) return false;
        out->above.v = (int64_t)f;
        return true;
    }
    if (info.kind != ASH_VALUE_NODE || !*visits || !ash_import__ok(im)) return false;
    const ash_node node = im->graph->nodes.at[info.node];
    --*visits;
    switch (node.op) {
    case ASH_OP_RESHAPE: return quotient_at(im, node.ins[0], i, visits, out);
    case ASH_OP_CAST: {
        if (ash_dtype_is_float(ash_import__type(im, node.ins[0]).dtype))
            return quotient_at(im, node.ins[0], i, visits, out);
        const number n = number_at(im, node.ins[0], i, visits);
        out->above = n.known;
        return is_known(n);
    }
    case ASH_OP_CONCAT:
        for (size_t k = 0; k < node.n_ins; k++) {
            const ash_type *part = ash_graph__type(im->graph, node.ins[k]);
            if (part->rank != 1 || !ash_dim_is_const(part->dims[0])) return false;
            if (i < part->dims[0]) return quotient_at(im, node.ins[k], i, visits, out);
            i -= part->dims[0];
        }
        return false;
    case ASH_OP_DIV:
        if (!quotient_at(im, node.ins[0], i, visits, &a) || !quotient_at(im, node.ins[1], i, visits, &b) ||
            a.below.dim || a.below.v != 1 || b.below.dim || b.below.v != 1)
            return false;
        *out = (ash_onnx_quotient){a.above, b.above};
        return b.above.dim || b.above.v > 0;
    default: return false;
    }
}

bool ash_onnx__whole(ash_import *im, ash_value x, int64_t i, ash_dim *out) {
    const bool is_float = ash_dtype_is_float(ash_import__type(im, x).dtype);
    unsigned visits = VISITS;
    ash_onnx_quotient q = {.below = {1, false}};
    number n = known(0);
    if (is_float ? !quotient_at(im, x, i, &visits, &q) : !is_known(n = number_at(im, x, i, &visits)))
        return false;
    const ash_import_int whole = is_float ? q.above : n.known;
    *out = whole.v;
    return (whole.dim || whole.v >= 0) && !q.below.dim && q.below.v == 1 && ash_import__ok(im);
}

const ash_onnx_quotient *ash_onnx__quotients(ash_import *im, size_t k, size_t *count) {
    const ash_value x = ash_import__in(im, k);
    const ash_type type = ash_import__type(im, x);
    int64_t n;
    if (!ash_import__ok(im) || !ash_dtype_is_float(type.dtype) || type.rank > 1 ||
        !ash_type_static_count(&type, &n) || n >= PLACES)
        return NULL;
    ash_onnx_quotient *all = ash_arena_alloc(im->scratch, (size_t)n, sizeof *all);
    for (int64_t i = 0; all && i < n; i++) {
        unsigned visits = VISITS;
        if (!quotient_at(im, x, i, &visits, &all[i])) return NULL;
    }
    *count = (size_t)n;
    return all;
}

number *ash_onnx__numbers(ash_import *im, size_t k, size_t *count) {
    const ash_import_int *list;
    int64_t n;
    const ash_type type = ash_import__has(im, k) ? ash_import__in_type(im, k) : (ash_type){0};
    bool tracked = ash_import__try_list(im, k, &list, count);
    bool good =
        (type.dtype == ASH_I64 || type.dtype == ASH_I32) && ash_type_static_count(&type, &n) && n < PLACES;
    if (!tracked && !good) tracked = ash_import__list(im, k, &list, count);
    if (!ash_import__ok(im)) return NULL;
    if (!tracked) *count = (size_t)n;
    number *numbers = ash_arena_alloc(im->scratch, *count, sizeof *numbers);
    ash_value x = tracked ? ASH_NO_VALUE : ash_import__in(im, k);
    if (!numbers) ash_import__fail(im, ASH_ERROR_OUT_OF_MEMORY, "out of memory");
    for (size_t i = 0; i < *count && ash_import__ok(im); i++) {
        unsigned visits = VISITS;
        numbers[i] = tracked ? (number){list[i], ASH_NO_VALUE} : number_at(im, x, (int64_t)i, &visits);
    }
    return ash_import__ok(im) ? numbers : NULL;
}

number ash_onnx__number_less(ash_import *im, number a, number b) {
    return combine(im, ASH_OP_SUB, a, b);
}

/* --- sizes ---------------------------------------------------------------------------------------- */

/* Fails when the execution asks for less than there can be, or more than there is room for. */
static ash_status check_size(void *user, const ash_call *call, ash_diag *out) {
    (void)user;
    const int64_t size = *(const int64_t *)call->ins[0], *bounds = call->ins[1];
    const int name = (int)call->in_types[2].dims[0];
    *(int64_t *)call->outs[0] = size;
    ASH_FAIL_IF(size < bounds[0], out, ASH_ERROR_SHAPE, "the dim '%.*s', which is computed, is %lld", name,
                (const char *)call->ins[2], (long long)size);
    ASH_FAIL_IF(
        size > bounds[1], out, ASH_ERROR_BUDGET,
        "%lld elements, whose size is computed, and bounded by %lld: give the dim '%.*s' a larger bound",
        (long long)size, (long long)bounds[1], name, (const char *)call->ins[2]);
    return ASH_OK;
}

ash_value ash_onnx__within(ash_import *im, ash_value size, int64_t low, int64_t most, const char *name) {
    const ash_function function = {
        .size = sizeof function, .name = ASH_ONNX_CHECK_SIZE, .run = check_size, .pure = true};
    const ash_type text = {.dtype = ASH_U8, .rank = 1, .dims = {(ash_dim)strlen(name)}},
                   scalar = {.dtype = ASH_I64};
    const int64_t bounds[] = {low, most};
    ash_value ins[] = {size, ash_build__int_list(im->graph, bounds, ASH_COUNT(bounds)),
                       ash_graph_constant(im->graph, &text, name, strlen(name), ASH_DATA_COPY)},
              out = ASH_NO_VALUE;
    if (!ash_onnx__own_function(im, &function)) return ASH_NO_VALUE;
    ash_custom(im->graph, function.name, ins, ASH_COUNT(ins), &scalar, 1, NULL, &out);
    return out;
}

const char *ash_onnx__size_name(ash_import *im, ash_span result, unsigned axis) {
    size_t room = result.len + sizeof ".00";
    char *name = ash_arena_alloc(&im->arena, room, 1);
    size_t length = name ? (size_t)snprintf(name, room, "%.*s.%u", ASH_SPAN_ARG(result), axis) : 0;
    if (name && ash_strmap_put(&im->dims, name, length, 0)) return name;
    ash_import__fail(im, ASH_ERROR_OUT_OF_MEMORY, "out of memory");
    return NULL;
}

const char *ash_onnx__bound_of(ash_import *im, ash_span result, unsigned axis, int64_t *most, bool *given) {
    const char *name = ash_onnx__size_name(im, result, axis);
    const ash_onnx_var *var =
        name ? ash_import__var(im, (ash_span){(const uint8_t *)name, strlen(name)}) : NULL;
    *most = ASH_MAX(var ? var->max : SIZE_MOST, 1);
    *given = var != NULL;
    return name;
}

const char *ash_onnx__size_bound(ash_import *im, size_t k, unsigned axis, int64_t *most) {
    int64_t bound;
    bool given;
    const char *name = ash_onnx__bound_of(im, im->node->outs[k], axis, &bound, &given);
    if (most) *most = bound;
    return name;
}

bool ash_onnx__settle_size(ash_import *im, ash_value value, unsigned axis, int64_t low, ash_dim *out) {
    return ash_onnx__settle_size_of(im, value, 0, axis, low, out);
}

/* At most `limit`, where the caller says nothing. */
static bool settle_up_to(ash_import *im, ash_value value, size_t k, unsigned axis, int64_t low,
                         int64_t limit, ash_dim *out) {
    ash_graph *g = im->graph;
    uint64_t before;
    *out = 0;
    if (!ash_import__ok(im) || value == ASH_NO_VALUE) return false;
    if (ash_map_get(&im->ends, value, &before)) {
        *out = (ash_dim)before;
        return true;
    }
    int64_t most;
    bool given;
    const char *name = ash_onnx__bound_of(im, im->node->outs[k], axis, &most, &given);
    if (!name) return false;
    if (!given) most = limit;
    const bool any = least(im, value) >= 1, checked = within(im, value, low, &most);
    ash_value whole = checked ? value : ash_onnx__within(im, value, low, most, name);
    if (any) whole = ash_sub(g, whole, ash_scalar(g, ASH_I64, 1));
    *out = ash_onnx__settle(im, whole, most - any, k, axis);
    if (any) *out = ash_graph_dim_add(g, *out, 1);
    if (ash_import__ok(im) && !ash_map_put(&im->ends, value, (uint64_t)*out))
        im->status = ASH_NO_MEMORY(&im->diag);
    return ash_import__ok(im);
}

bool ash_onnx__settle_size_of(ash_import *im, ash_value value, size_t k, unsigned axis, int64_t low,
                              ash_dim *out) {
    return settle_up_to(im, value, k, axis, low, SIZE_MOST, out);
}

bool ash_onnx__settle_part(ash_import *im, ash_value value, unsigned axis, ash_dim all, ash_dim *out) {
    int64_t fewest, most;
    ash_dims_bounds(im->graph->dims, all, &fewest, &most);
    return settle_up_to(im, value, 0, axis, 0, most > 0 ? ASH_MIN(most, SIZE_MOST) : SIZE_MOST, out);
}

/* What a number is of a dim: how many of its elements, or a position, from its first or its last; or what
 * numbers are, the greatest of which counts. */
typedef enum size_cut { COUNT, FROM_FIRST, FROM_LAST, LONGEST } size_cut;

static ash_value place_of(ash_import *im, ash_value size, ash_dim dim, unsigned axis, size_cut cut) {
    ash_graph *g = im->graph;
    ash_value at = size;
    if (cut == LONGEST)
        return ash_build__reduce(g, ASH_OP_REDUCE_MAX, ash_cast(g, size, ASH_I64),
                                 (1u << ash_import__type(im, size).rank) - 1, false);
    const bool may_be_below = !(least(im, size) >= 0);
    if (may_be_below && cut == COUNT) {
        const char *name = ash_onnx__size_name(im, im->node->outs[0], axis);
        return name ? ash_onnx__within(im, size, 0, INT64_MAX, name) : ASH_NO_VALUE;
    }
    if (may_be_below)
        at = ash_select(g, ash_lt(g, size, ash_scalar(g, ASH_I64, 0)),
                        ash_add(g, size, ash_build__dim(g, dim)), size);
    if (cut == FROM_LAST)
        at = ash_sub(g, ash_sub(g, ash_build__dim(g, dim), ash_scalar(g, ASH_I64, 1)), at);
    return at;
}

static ash_dim settle_within(ash_import *im, ash_value size, ash_dim dim, unsigned axis, size_cut cut) {
    ash_graph *g = im->graph;
    const uint64_t key = (uint64_t)cut << 62 | (uint64_t)size << 32 | (uint32_t)dim;
    bool keeps = (ash_dim)(int32_t)dim == dim;
    uint64_t before;
    if (!ash_import__ok(im) || size == ASH_NO_VALUE) return 0;
    if (ash_map_get(&im->ends, size, &before)) {
        if (cut != FROM_LAST) return ash_graph_dim_min(g, (ash_dim)before, dim);
        const ash_dim last = ash_graph_dim_sub(g, ash_graph_dim_max(g, dim, 1), 1);
        return ash_graph_dim_sub(g, last, ash_graph_dim_min(g, (ash_dim)before, last));
    }
    if (keeps && ash_map_get(&im->cuts, key, &before)) return (ash_dim)before;
    ash_value at = place_of(im, size, dim, axis, cut);
    ash_dim out = ash_onnx__settle(im, at, dim, 0, axis);
    if (keeps && ash_import__ok(im) && !ash_map_put(&im->cuts, key, (uint64_t)out))
        im->status = ASH_NO_MEMORY(&im->diag);
    return out;
}

ash_dim ash_onnx__settle_bound(ash_import *im, ash_value bound, ash_dim dim, unsigned axis, bool reversed) {
    return settle_within(im, bound, dim, axis, reversed ? FROM_LAST : FROM_FIRST);
}

ash_dim ash_onnx__settle_count(ash_import *im, ash_value count, ash_dim dim, unsigned axis) {
    return settle_within(im, count, dim, axis, COUNT);
}

ash_dim ash_onnx__settle_longest(ash_import *im, ash_value lens, ash_dim dim, unsigned axis) {
    return settle_within(im, lens, dim, axis, LONGEST);
}

bool ash_onnx__has_room(ash_import *im, size_t k, const ash_onnx_number *sizes, size_t count,
                        int64_t limit) {
    enum { MOST = 1 << 28 }; /* elements */
    double all = 1;
    bool given = false;
    for (size_t i = 0; i < count && ash_import__ok(im); i++) {
        int64_t most;
        bool said;
        if (is_known(sizes[i])) continue;
        if (!ash_onnx__bound_of(im, im->node->outs[0], (unsigned)i, &most, &said)) return false;
        given |= ash_onnx__is_given(im, sizes[i].value);
        all *= (double)(said ? most : ASH_MIN(most, limit));
    }
    if (given && all > MOST)
        ash_import__fail(
            im, ASH_ERROR_UNSUPPORTED,
            "operand %zu, '%.*s', must be known at import, as the limits of its sizes make too "
            "many elements: bind the graph input that it is of, or bound the dims '%.*s.0' and on",
            k, ASH_SPAN_ARG(im->node->ins[k]), ASH_SPAN_ARG(im->node->outs[0]));
    return ash_import__ok(im);
}

bool ash_onnx__sizes(ash_import *im, size_t k, const ash_import_int **list, size_t *count) {
    number *numbers = ash_onnx__numbers(im, k, count);
    ash_import_int *sizes = numbers ? ash_arena_alloc(im->scratch, *count, sizeof *sizes) : NULL;
    *list = sizes;
    if (numbers && !ash_onnx__has_room(im, k, numbers, *count, INT64_MAX)) return false;
    if (numbers && !sizes) ash_import__fail(im, ASH_ERROR_OUT_OF_MEMORY, "out of memory");
    if (!sizes) return false;
    for (size_t i = 0; i < *count; i++) {
        sizes[i] = numbers[i].known;
        if (is_known(numbers[i])) continue;
        if (i >= ASH_MAX_RANK || !ash_onnx__settle_size(im, numbers[i].value, (unsigned)i, 0, &sizes[i].v))
            return ash_import__list(im, k, list, count); /* says why */
        sizes[i].dim = !ash_dim_is_const(sizes[i].v);
    }
    return true;
}

bool ash_onnx__size(ash_import *im, size_t k, unsigned axis, ash_dim *out) {
    size_t n;
    const number *one = ash_onnx__numbers(im, k, &n);
    if (one && n != 1) ash_import__fail(im, ASH_ERROR_SHAPE, "%zu numbers as a size", n);
    if (!one || n != 1) return false;
    return is_known(*one) ? ash_import__size(im, one->known, out)
                          : ash_onnx__settle_size(im, one->value, axis, 0, out);
}

/* --- sizes that must be equal --------------------------------------------------------------------- */

static ash_status check_equal(void *user, const ash_call *call, ash_diag *out) {
    (void)user;
    const int64_t a = *(const int64_t *)call->ins[0], b = *(const int64_t *)call->ins[1];
    *(uint8_t *)call->outs[0] = a == b;
    ASH_FAIL_IF(a != b, out, ASH_ERROR_SHAPE,
                "two sizes, of which one is computed, must be equal, and are %lld and %lld", (long long)a,
                (long long)b);
    return ASH_OK;
}

ash_value ash_onnx__if_equal(ash_import *im, ash_value x, ash_dim a, ash_dim b) {
    const ash_function function = {
        .size = sizeof function, .name = "ashlar.check_equal", .run = check_equal, .pure = true};
    const ash_type flag = {.dtype = ASH_BOOL};
    ash_value ins[] = {ash_build__dim(im->graph, a), ash_build__dim(im->graph, b)}, good = ASH_NO_VALUE;
    if (!ash_onnx__own_function(im, &function)) return ASH_NO_VALUE;
    ash_custom(im->graph, function.name, ins, ASH_COUNT(ins), &flag, 1, NULL, &good);
    return ash_select(im->graph, good, x, ash_scalar(im->graph, ash_import__type(im, x).dtype, 0));
}

ash_value ash_onnx__held(ash_import *im, ash_value x, unsigned axis, ash_dim want) {
    const ash_dim have = ash_import__type(im, x).dims[axis];
    ash_dim least;
    if (ash_dims_combine(im->graph->dims, ASH_DIM_MIN, have, want, &least, NULL) == ASH_OK && least == want)
        x = ash_slice_axis(im->graph, x, axis, 0, want);
    return ash_onnx__if_equal(im, x, have, want);
}
