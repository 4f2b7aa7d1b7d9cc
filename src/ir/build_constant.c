/* SPDX-License-Identifier: MIT */
/* Constants that are made of numbers, and dims as data. */
#include <math.h>

#include "build.h"
#include "eval.h"
#include "inside.h"

/* A number as an integer of the dtype, in the evaluator's form; what does not fit 64 bits is clamped. */
static int64_t to_int(ash_dtype dtype, double number) {
    if (dtype == ASH_BOOL) return number != 0;
    if (!(number > -0x1p63)) return number == number ? INT64_MIN : 0;
    if (number < 0x1p63) return (int64_t)number;
    if (dtype != ASH_U64) return INT64_MAX;
    return (int64_t)(number < 0x1p64 ? (uint64_t)number : UINT64_MAX);
}

/* The elements as the evaluator holds them: doubles for floating point dtypes, integers for all others. One
 * of the two lists is given. */
static void convert(ash_wide *wide, const int64_t *ints, const double *floats) {
    for (int64_t i = 0; i < wide->count; i++) {
        if (ash_dtype_is_float(wide->dtype))
            wide->f[i] = floats ? floats[i] : (double)ints[i];
        else
            wide->i[i] = floats ? to_int(wide->dtype, floats[i]) : ints[i];
    }
}

static ash_status make_blob(const ash_graph *graph, const ash_type *type, const int64_t *ints,
                            const double *floats, ash_blob **out, ash_diag *diag) {
    ash_wide wide;
    ASH_TRY(ash_wide_alloc(graph->allocator, type->dtype, type->rank, type->dims, &wide, diag));
    convert(&wide, ints, floats);
    size_t size = (size_t)wide.count * ash_dtype_size(type->dtype);
    ash_status status = ash_blob_create_owned(graph->allocator, size, out, diag);
    if (status == ASH_OK) ash_wide_store(&wide, (void *)(*out)->data);
    ash_wide_free(graph->allocator, &wide);
    return status;
}

static ash_value constant(ash_graph *graph, const ash_type *type, const int64_t *ints,
                          const double *floats) {
    ash_diag diag;
    ash_blob *blob;
    if (!graph) return ASH_NO_VALUE;
    if (make_blob(graph, type, ints, floats, &blob, &diag) != ASH_OK) {
        ash_graph__stick(graph, &diag);
        return ASH_NO_VALUE;
    }
    graph->made_bytes += blob->size;
    return ash_graph__constant_blob(graph, type, blob);
}

ash_value ash_build__ints(ash_graph *graph, const ash_type *type, const int64_t *numbers) {
    return constant(graph, type, numbers, NULL);
}

ash_value ash_build__floats(ash_graph *graph, const ash_type *type, const double *numbers) {
    return constant(graph, type, NULL, numbers);
}

ash_value ash_build__int_list(ash_graph *graph, const int64_t *numbers, size_t count) {
    const ash_type type = {.dtype = ASH_I64, .rank = 1, .dims = {(ash_dim)count}};
    return constant(graph, &type, numbers, NULL);
}

ash_value ash_scalar(ash_graph *graph, ash_dtype dtype, double value) {
    const ash_type type = {.dtype = dtype};
    return constant(graph, &type, NULL, &value);
}

ash_value ash_scalar_like(ash_graph *graph, ash_value x, double value) {
    const ash_type *type = ash_graph_type(graph, x);
    return type ? ash_scalar(graph, type->dtype, value) : ASH_NO_VALUE;
}

ash_value ash_build__fill(ash_graph *graph, ash_dtype dtype, double number, const ash_dim *dims,
                          unsigned rank) {
    return ash_broadcast_to(graph, ash_scalar(graph, dtype, number), dims, rank);
}

/* The core has no operator that turns a dim into data, but the last of the numbers 0, 1, ... dim is it, and
 * code generation sees the dim in the index. What settles a variable has it as data. An expression that can
 * be negative is what it is above zero less what it is below. */
ash_value ash_build__dim(ash_graph *graph, ash_dim dim) {
    const ash_type scalar = {.dtype = ASH_I64};
    const ash_dim one = 1;
    uint32_t var;
    int64_t low, high;
    if (ash_dim_is_const(dim)) return ash_build__ints(graph, &scalar, &dim);
    if (ash_dims_is_settled(graph->dims, dim, &var)) return ash_graph__settler(graph, var);
    ash_graph_dim_bounds(graph, dim, &low, &high);
    if (low < 0) {
        ash_dim minus;
        if (ash_dims_combine(graph->dims, ASH_DIM_SUB, 0, dim, &minus, NULL) != ASH_OK)
            return ash_build__fail(graph, ASH_OP_IOTA, ASH_ERROR_UNSUPPORTED,
                                   "a size that is too large an expression");
        ash_value above = ash_build__dim(graph, ash_graph_dim_max(graph, dim, 0));
        return ash_sub(graph, above, ash_build__dim(graph, ash_graph_dim_max(graph, minus, 0)));
    }
    const ash_dim count = ash_graph_dim_add(graph, dim, 1);
    ash_value last = ash_slice(graph, ash_iota(graph, ASH_I64, &count, 1, 0), &dim, NULL, &one);
    return ash_reshape(graph, last, NULL, 0);
}

double ash_build__lowest(ash_dtype dtype) {
    return ash_dtype_is_float(dtype) ? -INFINITY : (double)ash_wide__lowest(dtype);
}

double ash_build__highest(ash_dtype dtype) {
    if (ash_dtype_is_float(dtype)) return INFINITY;
    return dtype == ASH_U64 ? 0x1p64 : (double)ash_wide__highest(dtype);
}
