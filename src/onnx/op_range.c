/* SPDX-License-Identifier: MIT */
/* Range: of numbers that are known, of dims, or to an end that is computed when the graph runs. */
#include "ops.h"

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

/* In steps of 1, where the end or the start is computed when the graph runs. */
static bool range_to_computed(ash_import *im, ash_dtype dtype) {
    ash_graph *g = im->graph;
    const int64_t *delta;
    size_t n;
    ash_dim dim;
    if (ash_dtype_is_float(dtype) || !ash_import__try_ints(im, 2, &delta, &n) || n != 1 || delta[0] != 1)
        return false;
    const ash_onnx_number *start = ash_onnx__numbers(im, 0, &n);
    if (!start || n != 1) return false;
    const ash_onnx_number *end = ash_onnx__numbers(im, 1, &n);
    if (!end || n != 1 || (end->value == ASH_NO_VALUE && start->value == ASH_NO_VALUE)) return false;
    bool from_zero = start->value == ASH_NO_VALUE && !start->known.dim && !start->known.v;
    ash_value count = from_zero ? end->value : ash_onnx__number_less(im, *end, *start).value;
    if (!ash_onnx__settle_size(im, count, 0, INT64_MIN, &dim)) return false;
    ash_value i = ash_iota(g, dtype, &dim, 1, 0);
    if (start->value != ASH_NO_VALUE)
        i = ash_add(g, i, ash_cast(g, start->value, dtype));
    else if (start->known.dim)
        i = ash_add(g, i, ash_cast(g, ash_build__dim(g, start->known.v), dtype));
    else if (!from_zero)
        i = ash_add(g, i, whole_scalar(g, dtype, start->known.v));
    ash_import__out(im, 0, i);
    return true;
}

/* Where any of the three is computed: ceil((limit - start) / delta) elements, in double precision. A step
 * of 0 is refused as a size below 0. */
static void range_computed(ash_import *im, ash_dtype dtype) {
    ash_graph *g = im->graph;
    ash_value v[3];
    ash_dim dim;
    for (size_t k = 0; k < 3; k++) v[k] = ash_reshape(g, ash_import__in(im, k), NULL, 0);
    const ash_value way = ash_cast(g, ash_sub(g, v[1], v[0]), ASH_F64), by = ash_cast(g, v[2], ASH_F64);
    const ash_value count = ash_build__with(g, ASH_OP_MAX, ash_ceil(g, ash_div(g, way, by)), 0);
    const ash_value size =
        ash_select(g, ash_eq(g, by, ash_scalar(g, ASH_F64, 0)), ash_scalar(g, ASH_F64, -1), count);
    if (!ash_onnx__settle_size(im, ash_cast(g, size, ASH_I64), 0, 0, &dim)) return;
    ash_import__out(im, 0, ash_add(g, ash_mul(g, ash_iota(g, dtype, &dim, 1, 0), v[2]), v[0]));
}

/* max(ceil((limit - start) / delta), 0) elements, start + i * delta. */
void ash_onnx__op_range(ash_import *im) {
    ash_dtype dtype = ash_import__in_type(im, 0).dtype;
    const double *v[3] = {0};
    size_t n;
    if (range_of_ints(im, dtype) || range_to_computed(im, dtype) || !ash_import__ok(im)) return;
    for (size_t k = 0; k < 3; k++)
        if (!ash_import__try_floats(im, k, &v[k], &n)) {
            range_computed(im, dtype);
            return;
        } else if (n != 1) {
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
