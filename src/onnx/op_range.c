/* SPDX-License-Identifier: MIT */
/* Range: of numbers that are known, of dims, or to an end that is computed when the graph runs, as where a
 * model of speech says how long what it says will be. That is a size that depends on data, and such a size
 * needs a limit, which nothing in the model says. The limit is the caller's, who names the size as any
 * other dim, or RANGE_MOST; an execution that exceeds it fails. */
#include <math.h>
#include <stdio.h>

#include "control.h"

enum { RANGE_MOST = 4096 /* elements, where the caller says nothing */, DEEP = 32 };

static ash_value whole_scalar(ash_graph *g, ash_dtype dtype, int64_t number) {
    const ash_type scalar = {.dtype = dtype};
    return ash_dtype_is_float(dtype) ? ash_scalar(g, dtype, (double)number)
                                     : ash_build__ints(g, &scalar, &number);
}

/* A range of integers that are known, or dims; the step is a number. Of floating point numbers that are
 * whole only where one is a dim. */
static bool range_of_ints(ash_import *im, ash_dtype dtype) {
    const ash_import_int *ends[2], *delta;
    size_t n[3];
    ash_graph *g = im->graph;
    if (!ash_import__try_whole(im, 0, &ends[0], &n[0]) || !ash_import__try_whole(im, 1, &ends[1], &n[1]) ||
        !ash_import__try_whole(im, 2, &delta, &n[2]))
        return false;
    if (n[0] != 1 || n[1] != 1 || n[2] != 1 || delta->dim || delta->v == 0 || delta->v == INT64_MIN)
        return false;
    if (ash_dtype_is_float(dtype) && !ends[0]->dim && !ends[1]->dim) return false;
    bool down = delta->v < 0;
    ash_import_int way, count, start = *ends[0];
    if (!ash_import__combine(im, ASH_OP_SUB, *ends[!down], *ends[down], &way) ||
        !ash_import__combine(im, ASH_OP_MAX, way, (ash_import_int){0, false}, &count))
        return false;
    int64_t step = down ? -delta->v : delta->v, low, high;
    ash_dims_bounds(g->dims, count.v, &low, &high);
    step = ASH_MIN(step, ASH_MAX(high, 1)); /* a longer one takes one element as well */
    ash_dim dim = step == 1 ? count.v : ash_graph_dim_div(g, ash_graph_dim_add(g, count.v, step - 1), step);
    ash_value i = ash_iota(im->graph, dtype, &dim, 1, 0), by = whole_scalar(g, dtype, delta->v),
              from = start.dim ? ash_cast(im->graph, ash_build__dim(im->graph, start.v), dtype)
                               : whole_scalar(g, dtype, start.v);
    i = ash_mul(im->graph, i, by);
    ash_import__out(im, 0, ash_add(im->graph, i, from));
    return true;
}

/* --- ends that are computed ------------------------------------------------------------------------ */

/* What no element of the value is below, as far as a few nodes tell. */
static double least(ash_import *im, ash_value x, int depth) {
    const ash_graph *g = im->graph;
    const ash_value_info *info = ash_graph__value(g, x);
    int64_t count, low, high;
    if (info->kind == ASH_VALUE_CONSTANT && ash_type_static_count(&info->type, &count) && count == 1)
        return ash_import__float_at(info->blob, info->type.dtype, 0);
    if (info->kind != ASH_VALUE_NODE || depth == DEEP) return -INFINITY;
    const ash_node node = g->nodes.at[info->node];
    const ash_type *in = node.n_ins ? ash_graph__type(g, node.ins[0]) : NULL;
    double a = node.n_ins ? least(im, node.ins[0], depth + 1) : -INFINITY;
    switch (node.op) {
    case ASH_OP_MAX: return fmax(a, least(im, node.ins[1], depth + 1));
    case ASH_OP_MIN: return fmin(a, least(im, node.ins[1], depth + 1));
    case ASH_OP_CAST:
    case ASH_OP_CEIL:
    case ASH_OP_FLOOR:
    case ASH_OP_ROUND: return floor(a);
    case ASH_OP_RESHAPE:
    case ASH_OP_BROADCAST:
    case ASH_OP_SLICE:
    case ASH_OP_GATHER:
    case ASH_OP_TRANSPOSE: return a;
    case ASH_OP_CUMSUM: return a >= 0 && !ash_node_int(&node, ASH_ATTR_EXCLUSIVE) ? a : -INFINITY;
    case ASH_OP_REDUCE_SUM:
    case ASH_OP_REDUCE_MAX:
    case ASH_OP_REDUCE_MIN:
        for (unsigned d = 0; d < in->rank; d++) {
            ash_dims_bounds(g->dims, in->dims[d], &low, &high);
            if (low < 1) return -INFINITY;
        }
        return a >= 0 || node.op != ASH_OP_REDUCE_SUM ? a : -INFINITY;
    default: return -INFINITY;
    }
}

/* Fails when the execution asks for more than there is room for. */
static ash_status check_end(void *user, const ash_call *call, ash_diag *out) {
    (void)user;
    const int64_t end = *(const int64_t *)call->ins[0], most = *(const int64_t *)call->ins[1];
    *(int64_t *)call->outs[0] = end;
    ASH_FAIL_IF(
        end > most, out, ASH_ERROR_BUDGET,
        "a range of %lld elements, whose size is computed, and bounded by %lld: give the dim '%.*s' a "
        "larger bound",
        (long long)end, (long long)most, (int)call->in_types[2].dims[0], (const char *)call->ins[2]);
    return ASH_OK;
}

static ash_value checked_end(ash_import *im, ash_value end, int64_t most, const char *name) {
    const ash_function function = {
        .size = sizeof function, .name = "ashlar.check_end", .run = check_end, .pure = true};
    const ash_type text = {.dtype = ASH_U8, .rank = 1, .dims = {(ash_dim)strlen(name)}},
                   number = {.dtype = ASH_I64};
    ash_value ins[] = {end, ash_scalar(im->graph, ASH_I64, (double)most),
                       ash_graph_constant(im->graph, &text, name, strlen(name), ASH_DATA_COPY)},
              out = ASH_NO_VALUE;
    if (!ash_onnx__own_function(im, &function)) return ASH_NO_VALUE;
    ash_custom(im->graph, function.name, ins, ASH_COUNT(ins), &number, 1, NULL, &out);
    return out;
}

const char *ash_onnx__range_name(ash_import *im, ash_span result) {
    size_t room = result.len + sizeof ".0";
    char *name = ash_arena_alloc(&im->arena, room, 1);
    if (name) snprintf(name, room, "%.*s.0", ASH_SPAN_ARG(result));
    if (name && ash_strmap_put(&im->dims, name, room - 1, 0)) return name;
    ash_import__fail(im, ASH_ERROR_OUT_OF_MEMORY, "out of memory");
    return NULL;
}

/* From 0 in steps of 1. */
static bool range_to_computed(ash_import *im, ash_dtype dtype) {
    ash_graph *g = im->graph;
    const int64_t *start, *delta;
    size_t n;
    uint64_t known;
    if (im->rolled || ash_dtype_is_float(dtype) || !ash_import__try_ints(im, 0, &start, &n) || n != 1 ||
        !ash_import__try_ints(im, 2, &delta, &n) || n != 1 || delta[0] != 1 || start[0] != 0)
        return false;
    ash_value end = ash_import__in(im, 1);
    const ash_type type = ash_import__type(im, end);
    int64_t count;
    if (!ash_type_static_count(&type, &count) || count != 1 || ash_import__fold(im, end) != ASH_NO_VALUE)
        return false;
    ash_dim dim;
    if (ash_map_get(&im->ends, end, &known)) {
        dim = (ash_dim)known;
    } else {
        const char *name = ash_onnx__range_name(im, im->node->outs[0]);
        if (!name) return false;
        const ash_onnx_var *var = ash_import__var(im, (ash_span){(const uint8_t *)name, strlen(name)});
        int64_t most = ASH_MAX(var ? var->max : RANGE_MOST, 1);
        double low = least(im, end, 0);
        ash_value whole = ash_cast(g, ash_reshape(g, end, NULL, 0), ASH_I64);
        whole = checked_end(im, whole, most, name);
        bool any = low >= 1;
        if (any) whole = ash_sub(g, whole, ash_scalar(g, ASH_I64, 1));
        dim = ash_onnx__settle(im, whole, most - any, 0, 0);
        if (any) dim = ash_graph_dim_add(g, dim, 1);
        if (!ash_import__ok(im) || !ash_map_put(&im->ends, end, (uint64_t)dim)) return false;
    }
    ash_import__out(im, 0, ash_iota(g, dtype, &dim, 1, 0));
    return true;
}

/* max(ceil((limit - start) / delta), 0) elements, start + i * delta. */
void ash_onnx__op_range(ash_import *im) {
    ash_dtype dtype = ash_import__in_type(im, 0).dtype;
    const double *v[3] = {0};
    size_t n;
    if (range_of_ints(im, dtype) || range_to_computed(im, dtype)) return;
    for (size_t k = 0; k < 3; k++)
        if (!ash_import__floats(im, k, &v[k], &n) || n != 1) {
            ash_import__fail(im, ASH_ERROR_SHAPE, "an operand that is not a scalar");
            return;
        }
    double steps = (v[1][0] - v[0][0]) / v[2][0];
    if (!(steps < 0x1p31)) {
        ash_import__fail(im, ASH_ERROR_UNSUPPORTED,
                         "a range without an end, or of more than 2^31 elements");
        return;
    }
    ash_dim count = steps > 0 ? (ash_dim)steps + ((double)(ash_dim)steps < steps) : 0;
    ash_value i = ash_iota(im->graph, dtype, &count, 1, 0);
    ash_value scaled = ash_mul(im->graph, i, ash_scalar(im->graph, dtype, v[2][0]));
    ash_import__out(im, 0, ash_add(im->graph, scaled, ash_scalar(im->graph, dtype, v[0][0])));
}
