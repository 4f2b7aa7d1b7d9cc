/* SPDX-License-Identifier: MIT */
/* Appending core operators: nodes as such, broadcasting, what works element by element, and the functions
 * that ops.def generates. See build.h. */
#include "build.h"

#include <stdio.h>

#include "inside.h"

/* --- nodes ---------------------------------------------------------------------------------------- */

/* Whether a pass may be asked: it looks at operands, so they must be there. */
static bool goes_to_pass(const ash_graph *graph, const ash_value *ins, size_t n_ins) {
    if (!graph->emit || graph->status != ASH_OK || n_ins >= ASH_MANY) return false;
    for (size_t k = 0; k < n_ins; k++)
        if (ins[k] >= graph->values.len) return false;
    return true;
}

ash_status ash_build__add(ash_graph *graph, ash_op op, const ash_value *ins, size_t n_ins,
                          const ash_attr *attrs, size_t n_attrs, ash_value *outs) {
    ASH_NEED(NULL, graph);
    if (!goes_to_pass(graph, ins, n_ins)) return ash_graph_add(graph, op, ins, n_ins, attrs, n_attrs, outs);
    const ash_node node = {.op = op,
                           .n_ins = (uint16_t)n_ins,
                           .n_attrs = (uint16_t)n_attrs,
                           .out = ASH_NO_VALUE,
                           .ins = ins,
                           .attrs = attrs};
    graph->emit(graph->emit_user, &node, outs);
    for (size_t k = 0, n = ash_op__out_count(op, attrs, n_attrs); graph->status != ASH_OK && k < n; k++)
        outs[k] = ASH_NO_VALUE;
    return graph->status;
}

ash_value ash_build(ash_graph *graph, ash_op op, const ash_value *ins, size_t n_ins, const ash_attr *attrs,
                    size_t n_attrs) {
    ash_value outs[ASH_OP_OUTS] = {ASH_NO_VALUE};
    ash_build__add(graph, op, ins, n_ins, attrs, n_attrs, outs);
    return outs[0];
}

/* --- refusals ------------------------------------------------------------------------------------- */

ash_value ash_build__fail(ash_graph *graph, ash_op op, ash_status code, const char *fmt, ...) {
    ash_diag diag;
    va_list args;
    if (!graph) return ASH_NO_VALUE;
    ash_diag_clear(&diag);
    diag.code = code;
    va_start(args, fmt);
    vsnprintf(diag.message, sizeof diag.message, fmt, args);
    va_end(args);
    ash_diag__add_node(&diag, NULL, ash_op_name(op), ASH_NO_OFFSET);
    ash_graph__stick(graph, &diag);
    return ASH_NO_VALUE;
}

ash_value ash_build__null(ash_graph *graph, const char *names, size_t position) {
    ash_diag diag;
    ash_fail_null(&diag, names, position);
    ash_graph__stick(graph, &diag);
    return ASH_NO_VALUE;
}

bool ash_build__take(ash_graph *graph, ash_op op, ash_value x, ash_type *type) {
    const ash_type *found = ash_graph_type(graph, x);
    if (found)
        *type = *found;
    else
        ash_build__fail(graph, op, ASH_ERROR_INVALID_ARGUMENT, "an operand is no value of the graph");
    return found != NULL;
}

bool ash_build__axis(ash_graph *graph, ash_op op, unsigned rank, int64_t *axis) {
    int64_t given = *axis;
    if (*axis < 0) *axis += rank;
    if (*axis >= 0 && *axis < (int64_t)rank) return true;
    ash_build__fail(graph, op, ASH_ERROR_SHAPE, "an operand of rank %u has no axis %lld", rank,
                    (long long)given);
    return false;
}

bool ash_build__take_axis(ash_graph *graph, ash_op op, ash_value x, int64_t *axis, ash_type *type) {
    return ash_build__take(graph, op, x, type) && ash_build__axis(graph, op, type->rank, axis);
}

/* --- broadcasting --------------------------------------------------------------------------------- */

bool ash_build__join(ash_type *shape, const ash_type *other) {
    for (; shape->rank < other->rank; shape->rank++) {
        memmove(shape->dims + 1, shape->dims, shape->rank * sizeof *shape->dims);
        shape->dims[0] = 1;
    }
    for (unsigned d = 0; d < other->rank; d++) {
        ash_dim *dim = &shape->dims[shape->rank - other->rank + d];
        if (*dim == 1)
            *dim = other->dims[d];
        else if (other->dims[d] != 1 && other->dims[d] != *dim)
            return false;
    }
    return true;
}

/* Brings values to one shape. Those that have none are left alone, for the operator to refuse. */
static void unify(ash_graph *graph, ash_value *xs, size_t n) {
    ash_type shape = {.rank = 0};
    for (size_t i = 0; i < n; i++) {
        const ash_type *type = ash_graph_type(graph, xs[i]);
        if (!type || !ash_build__join(&shape, type)) return;
    }
    for (size_t i = 0; i < n; i++) xs[i] = ash_broadcast_to(graph, xs[i], shape.dims, shape.rank);
}

/* --- elementwise ---------------------------------------------------------------------------------- */

ash_value ash_build__unary(ash_graph *graph, ash_op op, ash_value x) {
    return ash_build(graph, op, &x, 1, NULL, 0);
}

ash_value ash_build__binary(ash_graph *graph, ash_op op, ash_value a, ash_value b) {
    ash_value ins[] = {a, b};
    unify(graph, ins, 2);
    return ash_build(graph, op, ins, 2, NULL, 0);
}

ash_value ash_select(ash_graph *graph, ash_value condition, ash_value a, ash_value b) {
    ash_value ins[] = {condition, a, b};
    unify(graph, ins, 3);
    return ash_build(graph, ASH_OP_SELECT, ins, 3, NULL, 0);
}

ash_value ash_build__with(ash_graph *graph, ash_op op, ash_value x, double number) {
    return ash_build__binary(graph, op, x, ash_scalar_like(graph, x, number));
}

ash_value ash_build__from(ash_graph *graph, ash_op op, double number, ash_value x) {
    return ash_build__binary(graph, op, ash_scalar_like(graph, x, number), x);
}

ash_value ash_cast(ash_graph *graph, ash_value x, ash_dtype dtype) {
    const ash_type *type = ash_graph_type(graph, x);
    const ash_attr attr = ASH_ATTR_I(DTYPE, dtype);
    if (type && type->dtype == dtype) return x;
    return ash_build(graph, ASH_OP_CAST, &x, 1, &attr, 1);
}

ash_value ash_bitcast(ash_graph *graph, ash_value x, ash_dtype dtype) {
    const ash_type *type = ash_graph_type(graph, x);
    const ash_attr attr = ASH_ATTR_I(DTYPE, dtype);
    if (type && type->dtype == dtype) return x;
    return ash_build(graph, ASH_OP_BITCAST, &x, 1, &attr, 1);
}

/* --- generated ------------------------------------------------------------------------------------ */

#define DEFINE_UNARY(OPERATOR, function)                                                                   \
    ash_value function(ash_graph *graph, ash_value x) {                                                    \
        return ash_build__unary(graph, OPERATOR, x);                                                       \
    }
#define DEFINE_BINARY(OPERATOR, function)                                                                  \
    ash_value function(ash_graph *graph, ash_value a, ash_value b) {                                       \
        return ash_build__binary(graph, OPERATOR, a, b);                                                   \
    }
#define DEFINE_COMPARE(OPERATOR, function) DEFINE_BINARY(OPERATOR, function)
#define DEFINE_REDUCE(OPERATOR, function)                                                                  \
    ash_value function(ash_graph *graph, ash_value x, const int64_t *axes, size_t n, bool keep) {          \
        return ash_reduce(graph, OPERATOR, x, axes, n, keep);                                              \
    }
#define DEFINE_ARGREDUCE(OPERATOR, function)                                                               \
    ash_value function(ash_graph *graph, ash_value x, int64_t axis, bool last) {                           \
        ash_type type;                                                                                     \
        if (!ash_build__take_axis(graph, OPERATOR, x, &axis, &type)) return ASH_NO_VALUE;                  \
        const ash_attr attrs[] = {ASH_ATTR_I(AXIS, axis), ASH_ATTR_I(LAST, last)};                         \
        return ash_build(graph, OPERATOR, &x, 1, attrs, 2);                                                \
    }
#define DEFINE_POOL(OPERATOR, function)                                                                    \
    ash_value function(ash_graph *graph, ash_value x, const int64_t *axes, const ash_window *windows,      \
                       size_t n) {                                                                         \
        return ash_pool(graph, OPERATOR, x, axes, windows, n);                                             \
    }
#define DEFINE_SUMS(OPERATOR, function)
#define DEFINE_SELECT(OPERATOR, function)
#define DEFINE_CAST(OPERATOR, function)
#define DEFINE_MOVE(OPERATOR, function)
#define DEFINE_MATMUL(OPERATOR, function)
#define DEFINE_CONV(OPERATOR, function)
#define DEFINE_GATHER(OPERATOR, function)
#define DEFINE_SCATTER(OPERATOR, function)
#define DEFINE_SCAN(OPERATOR, function)
#define DEFINE_TOPK(OPERATOR, function)
#define DEFINE_NONZERO(OPERATOR, function)
#define DEFINE_NMS(OPERATOR, function)
#define DEFINE_SETTLE(OPERATOR, function)
#define DEFINE_CUSTOM(OPERATOR, function)
#define DEFINE_ARGUMENT(OPERATOR, function)
#define DEFINE_LOOP(OPERATOR, function)
#define DEFINE_STACK(OPERATOR, function)

#define OP(ID, name, CLASS, imin, imax, outs, attrs) DEFINE_##CLASS(ASH_OP_##ID, ash_##name)
#include "ashlar/ops.def"
#undef OP

/* --- compositions --------------------------------------------------------------------------------- */

ash_value ash_gt(ash_graph *graph, ash_value a, ash_value b) {
    return ash_lt(graph, b, a);
}

ash_value ash_ge(ash_graph *graph, ash_value a, ash_value b) {
    return ash_le(graph, b, a);
}

ash_value ash_ne(ash_graph *graph, ash_value a, ash_value b) {
    return ash_not(graph, ash_eq(graph, a, b));
}

ash_value ash_relu(ash_graph *graph, ash_value x) {
    return ash_build__with(graph, ASH_OP_MAX, x, 0);
}

ash_value ash_clip(ash_graph *graph, ash_value x, double low, double high) {
    return ash_build__with(graph, ASH_OP_MIN, ash_build__with(graph, ASH_OP_MAX, x, low), high);
}

ash_value ash_softmax(ash_graph *graph, ash_value x, int64_t axis) {
    ash_value e = ash_exp(graph, ash_sub(graph, x, ash_reduce_max(graph, x, &axis, 1, true)));
    return ash_div(graph, e, ash_reduce_sum(graph, e, &axis, 1, true));
}

ash_value ash_layer_norm(ash_graph *graph, ash_value x, ash_value scale, ash_value bias, int64_t axis,
                         double epsilon) {
    ash_type type;
    if (!ash_build__take_axis(graph, ASH_OP_REDUCE_SUM, x, &axis, &type)) return ASH_NO_VALUE;
    uint32_t axes = (UINT32_C(1) << type.rank) - (UINT32_C(1) << axis);
    ash_value centred = ash_sub(graph, x, ash_build__mean(graph, x, axes, true));
    ash_value variance = ash_build__mean(graph, ash_mul(graph, centred, centred), axes, true);
    ash_value root = ash_sqrt(graph, ash_build__with(graph, ASH_OP_ADD, variance, epsilon));
    ash_value y = ash_div(graph, centred, root);
    if (scale != ASH_NO_VALUE) y = ash_mul(graph, y, scale);
    return bias != ASH_NO_VALUE ? ash_add(graph, y, bias) : y;
}

ash_value ash_gelu(ash_graph *graph, ash_value x) {
    ash_value e = ash_erf(graph, ash_build__with(graph, ASH_OP_MUL, x, 0.70710678118654752440));
    ash_value half = ash_build__with(graph, ASH_OP_MUL, x, 0.5);
    return ash_mul(graph, half, ash_build__with(graph, ASH_OP_ADD, e, 1));
}
