/* SPDX-License-Identifier: MIT */
/* Slice and Pad: bounds that may be dim expressions. */
#include "control.h"
#include "ops.h"

/* --- Slice ---------------------------------------------------------------------------------------- */

/* Elements that a slice takes along one dim: `count` of them, every `step`-th (above zero) from `start` on,
 * counted from the last element down when `reversed`. */
typedef struct slice_run {
    ash_dim start, count;
    int64_t step;
    bool reversed;
} slice_run;

/* A bound as one of the reversed dim, where what is at -1 is at 0. */
static ash_import_int mirrored(ash_import *im, ash_import_int bound) {
    ash_import_int out = {~bound.v, false};
    if (bound.dim && !ash_import__combine(im, ASH_OP_SUB, (ash_import_int){-1, false}, bound, &out))
        ash_import__fail(im, ASH_ERROR_UNSUPPORTED, "a bound that is too large an expression");
    return out;
}

/* How many elements there are when every `step`-th of `length` is taken, the first one included. */
static ash_dim steps_over(ash_import *im, ash_dim length, int64_t step) {
    if (step == 1) return length;
    return ash_graph_dim_div(im->graph, ash_graph_dim_add(im->graph, length, step - 1), step);
}

/* Whether it can be shown that the run does not leave the dim. It never does, but where that is not seen,
 * the count needs a minimum that changes nothing and shows it. */
static bool ends_inside(const ash_import *im, const slice_run *r, ash_dim dim) {
    ash_dims *dims = im->graph->dims;
    ash_dim reach;
    int64_t low, high;
    if (ash_dims_combine(dims, ASH_DIM_SUB, r->count, 1, &reach, NULL) != ASH_OK ||
        ash_dims_combine(dims, ASH_DIM_MUL, reach, r->step, &reach, NULL) != ASH_OK ||
        ash_dims_combine(dims, ASH_DIM_ADD, reach, r->start, &reach, NULL) != ASH_OK ||
        ash_dims_combine(dims, ASH_DIM_SUB, dim, reach, &reach, NULL) != ASH_OK)
        return false;
    ash_dims_bounds(dims, reach, &low, &high);
    return low > 0;
}

/* ONNX cuts the start to what a step can begin with: to [0, dim] or, stepping down, to [0, dim - 1]. Bounds
 * are those of the reversed dim, where the step is below zero. */
static slice_run slice_axis(ash_import *im, ash_import_int from, ash_import_int to, int64_t step,
                            ash_dim dim) {
    ash_graph *g = im->graph;
    slice_run out = {.step = step < 0 ? -step : step, .reversed = step < 0};
    ash_dim end, length;
    int64_t low, high;
    ash_dims_bounds(g->dims, dim, &low, &high);
    out.step = ASH_MIN(out.step, ASH_MAX(high, 1)); /* a longer one takes one element as well */
    if (!ash_import__position(im, from, dim, &out.start) || !ash_import__position(im, to, dim, &end))
        return out;
    if (out.reversed)
        out.start = ash_graph_dim_min(g, out.start, ash_graph_dim_sub(g, ash_graph_dim_max(g, dim, 1), 1));
    if (ash_dims_combine(g->dims, ASH_DIM_SUB, end, out.start, &length, NULL) != ASH_OK) {
        ash_import__fail(im, ASH_ERROR_UNSUPPORTED, "a bound that is too large an expression");
        return out;
    }
    out.count = steps_over(im, ash_graph_dim_max(g, length, 0), out.step);
    if (!ends_inside(im, &out, dim)) {
        ash_dim most = steps_over(im, ash_graph_dim_sub(g, dim, out.start), out.step);
        out.count = ash_graph_dim_min(g, out.count, most);
    }
    if (out.count == 0) out.start = 0;
    return out;
}

/* A run from the last element down as one of a negative step where all is known, else over the reversed
 * dim: then what must be shown of the bounds is the same as for a positive step. */
static ash_value from_the_last(ash_import *im, ash_value x, unsigned axis, slice_run *r) {
    ash_dim dim = ash_import__type(im, x).dims[axis];
    if (!ash_dim_is_const(dim) || !ash_dim_is_const(r->start) || !ash_dim_is_const(r->count))
        return ash_build__reverse(im->graph, x, axis);
    if (r->count) r->start = dim - 1 - r->start;
    r->step = -r->step;
    return x;
}

/* One of the lists starts, ends, axes, steps; bounds may be computed. */
static const ash_onnx_number *slice_list(ash_import *im, const char *attr, size_t k, size_t *n) {
    const int64_t *numbers;
    if (im->opset >= 10) return ash_import__has(im, k) ? ash_onnx__numbers(im, k, n) : NULL;
    if (!ash_import__attr_ints(im, attr, &numbers, n)) return NULL;
    ash_onnx_number *list = ash_arena_alloc(im->scratch, *n, sizeof *list);
    if (!list) return ash_import__fail(im, ASH_ERROR_OUT_OF_MEMORY, "out of memory"), NULL;
    for (size_t i = 0; i < *n; i++) list[i] = (ash_onnx_number){{numbers[i], false}, ASH_NO_VALUE};
    return list;
}

/* A bound as a number or dim, of the reversed dim where the step is below zero: one that is computed is a
 * position in `dim`. */
static ash_import_int bound_of(ash_import *im, ash_onnx_number bound, int64_t step, ash_dim dim,
                               unsigned axis) {
    if (bound.value == ASH_NO_VALUE) return step < 0 ? mirrored(im, bound.known) : bound.known;
    ash_dim at = ash_import__ok(im) ? ash_onnx__settle_bound(im, bound.value, dim, axis, step < 0) : 0;
    return (ash_import_int){at, !ash_dim_is_const(at)};
}

static bool is_number(ash_onnx_number n) {
    return n.value == ASH_NO_VALUE && !n.known.dim;
}

void ash_onnx__op_slice(ash_import *im) {
    ash_value x = ash_import__in(im, 0);
    ash_type type = ash_import__type(im, x);
    size_t n = 0, n_ends = 0, n_axes, n_steps;
    const ash_onnx_number *starts = slice_list(im, "starts", 1, &n),
                          *ends = slice_list(im, "ends", 2, &n_ends),
                          *axes = slice_list(im, "axes", 3, &n_axes),
                          *steps = im->opset < 10 ? NULL : slice_list(im, "", 4, &n_steps);
    if (!starts || !ends) {
        ash_import__fail(im, ASH_ERROR_FORMAT, "starts or ends are missing");
        return;
    }
    if (!axes) n_axes = n;
    if (!steps) n_steps = n;
    if (n_ends != n || n_axes != n || n_steps != n || n > type.rank) {
        ash_import__fail(im, ASH_ERROR_SHAPE,
                         "starts, ends, axes and steps differ in length, or exceed the rank");
        return;
    }
    ash_dim start[ASH_MAX_RANK] = {0};
    int64_t step[ASH_MAX_RANK];
    uint32_t seen = 0;
    for (unsigned i = 0; i < ASH_MAX_RANK; i++) step[i] = 1;
    for (size_t i = 0; i < n && ash_import__ok(im); i++) {
        const int64_t *known;
        size_t count;
        if ((axes && !is_number(axes[i]) && !ash_import__ints(im, 3, &known, &count)) ||
            (steps && !is_number(steps[i]) && !ash_import__ints(im, 4, &known, &count)))
            return;
        unsigned axis = ash_import__axis(im, axes ? axes[i].known.v : (int64_t)i, type.rank);
        int64_t by = steps ? ASH_MAX(steps[i].known.v, -INT64_MAX) : 1;
        if (by == 0) ash_import__fail(im, ASH_ERROR_SHAPE, "a step of 0");
        if (seen >> axis & 1) ash_import__fail(im, ASH_ERROR_SHAPE, "axis %u is given twice", axis);
        if (!ash_import__ok(im)) return;
        seen |= UINT32_C(1) << axis;
        ash_dim dim = type.dims[axis];
        slice_run r = {.count = 1, .step = 1};
        if (by == 1 && ash_onnx__is_row_of_loop(im, starts[i].value, ends[i].value, dim))
            r.start = ash_graph_dim_min(im->graph, bound_of(im, starts[i], 1, dim, axis).v,
                                        ash_graph_dim_sub(im->graph, dim, 1));
        else
            r = slice_axis(im, bound_of(im, starts[i], by, dim, axis), bound_of(im, ends[i], by, dim, axis),
                           by, dim);
        if (r.reversed) x = from_the_last(im, x, axis, &r);
        start[axis] = r.start, step[axis] = r.step, type.dims[axis] = r.count;
    }
    if (ash_import__ok(im)) ash_import__out(im, 0, ash_slice(im->graph, x, start, step, type.dims));
}

/* --- Pad ------------------------------------------------------------------------------------------ */

/* Index of the source element for element i of a padded dim of `dim` elements. */
static int64_t pad_source(int64_t i, int64_t dim, char mode) {
    if (mode == 'e') return ASH_MIN(ASH_MAX(i, 0), dim - 1);
    if (mode == 'w') return ((i % dim) + dim) % dim;
    int64_t period = ASH_MAX(2 * (dim - 1), 1);
    i = ((i % period) + period) % period;
    return i < dim ? i : period - i;
}

/* The padding of each dim, elements; dims that can be negative too: what is below zero is cut off. */
typedef struct pads {
    ash_dim before[ASH_MAX_RANK], after[ASH_MAX_RANK];
} pads;

/* The same as pad_source for each i of a dim of `count`, computed when the graph runs. */
static ash_value pad_sources(ash_import *im, ash_dim before, ash_dim count, ash_dim dim, char mode) {
    ash_value size = ash_build__dim(im->graph, dim), last = ash_build__with(im->graph, ASH_OP_SUB, size, 1);
    ash_value i =
        ash_sub(im->graph, ash_iota(im->graph, ASH_I64, &count, 1, 0), ash_build__dim(im->graph, before));
    if (mode == 'e') return ash_min(im->graph, ash_build__with(im->graph, ASH_OP_MAX, i, 0), last);
    if (mode == 'w') return ash_mod(im->graph, i, size);
    ash_value period =
        ash_build__with(im->graph, ASH_OP_MAX, ash_build__with(im->graph, ASH_OP_MUL, last, 2), 1);
    i = ash_mod(im->graph, i, period);
    return ash_select(im->graph, ash_le(im->graph, i, last), i, ash_sub(im->graph, period, i));
}

ash_value ash_onnx__every(ash_graph *g, ash_value x, unsigned axis, ash_dim start, int64_t step,
                          ash_dim count) {
    const ash_type *type = ash_graph_type(g, x);
    ash_dim starts[ASH_MAX_RANK] = {0}, dims[ASH_MAX_RANK];
    int64_t steps[ASH_MAX_RANK];
    if (!type) return ASH_NO_VALUE;
    for (unsigned d = 0; d < type->rank; d++) dims[d] = d == axis ? count : type->dims[d], steps[d] = 1;
    starts[axis] = start, steps[axis] = step;
    return ash_slice(g, x, starts, steps, dims);
}

/* An element along an axis, `count` times. */
static ash_value repeated(ash_graph *g, ash_value x, unsigned axis, ash_dim at, int64_t count) {
    x = ash_slice_axis(g, x, axis, at, 1);
    const ash_type *type = ash_graph_type(g, x);
    if (!type || count == 1) return x;
    ash_dim dims[ASH_MAX_RANK];
    for (unsigned d = 0; d < type->rank; d++) dims[d] = d == axis ? count : type->dims[d];
    return ash_broadcast_to(g, x, dims, type->rank);
}

/* Where the pieces may be longer than the operand there is no such value: a reflection that comes back from
 * the other end, too, but for one element, which is its only neighbour. */
ash_value ash_onnx__pad_by_parts(ash_graph *g, ash_value x, unsigned axis, int64_t before, int64_t after,
                                 char mode) {
    const ash_type *type = ash_graph_type(g, x);
    if (!type) return ASH_NO_VALUE;
    const ash_dim dim = type->dims[axis];
    const int64_t longest = ASH_MAX(before, after);
    const ash_dim last = ash_graph_dim_sub(g, dim, 1);
    int64_t least, most;
    ash_value parts[3];
    size_t n = 0;
    ash_dims_bounds(g->dims, dim, &least, &most);
    if (before < 0 || after < 0 || (mode == 'w' && least < longest) ||
        (mode == 'r' && least <= longest && longest != 1))
        return ASH_NO_VALUE;
    if (before)
        parts[n++] = mode == 'e'   ? repeated(g, x, axis, 0, before)
                     : mode == 'w' ? ash_slice_axis(g, x, axis, ash_graph_dim_sub(g, dim, before), before)
                     : before == 1 ? ash_slice_axis(g, x, axis, ash_graph_dim_min(g, last, 1), 1)
                                   : ash_onnx__every(g, x, axis, before, -1, before);
    parts[n++] = x;
    if (after)
        parts[n++] =
            mode == 'e'   ? repeated(g, x, axis, last, after)
            : mode == 'w' ? ash_slice_axis(g, x, axis, 0, after)
            : after == 1
                ? ash_slice_axis(g, x, axis, ash_graph_dim_sub(g, last, ash_graph_dim_min(g, last, 1)), 1)
                : ash_onnx__every(g, x, axis, ash_graph_dim_sub(g, dim, 2), -1, after);
    return n == 1 ? x : ash_concat(g, parts, n, axis);
}

/* Modes other than constant take each padded element from the operand: a gather along each axis. */
static ash_value pad_by_index(ash_import *im, ash_value x, const pads *p, char mode) {
    enum { MOST = 1 << 16 }; /* indices that become a constant */
    ash_type type = ash_import__type(im, x);
    for (unsigned axis = 0; axis < type.rank && ash_import__ok(im); axis++) {
        ash_dim dim = type.dims[axis], before = p->before[axis], count;
        int64_t low, high;
        if (before == 0 && p->after[axis] == 0) continue;
        ash_dims_bounds(im->graph->dims, dim, &low, &high);
        if (low < 1 ||
            ash_dims_combine(im->graph->dims, ASH_DIM_ADD, dim, before, &count, NULL) != ASH_OK ||
            ash_dims_combine(im->graph->dims, ASH_DIM_ADD, count, p->after[axis], &count, NULL) != ASH_OK)
            return ash_import__fail(im, ASH_ERROR_UNSUPPORTED,
                                    "padding of a dim that may be empty or huge");
        ash_value indices;
        if (!ash_dim_is_const(dim) && ash_dim_is_const(before) && ash_dim_is_const(p->after[axis])) {
            ash_value padded = ash_onnx__pad_by_parts(im->graph, x, axis, before, p->after[axis], mode);
            if (padded != ASH_NO_VALUE) {
                x = padded;
                continue;
            }
        }
        if (ash_dim_is_const(dim) && ash_dim_is_const(count) && count <= MOST) {
            int64_t *list = ash_arena_alloc(im->scratch, (size_t)count, sizeof *list), from, to;
            if (!list) return ash_import__fail(im, ASH_ERROR_OUT_OF_MEMORY, "out of memory");
            ash_dims_bounds(im->graph->dims, before, &from, &to);
            for (int64_t i = 0; i < count; i++) list[i] = pad_source(i - from, dim, mode);
            indices = ash_build__int_list(im->graph, list, (size_t)count);
        } else {
            indices = pad_sources(im, before, count, dim, mode);
        }
        x = ash_gather(im->graph, x, indices, axis);
    }
    return x;
}

/* A dim as what is above zero and what is below. */
static void part(ash_import *im, ash_dim dim, ash_dim *above, ash_dim *below) {
    ash_dim minus;
    im->status = ash_dims_combine(im->graph->dims, ASH_DIM_SUB, 0, dim, &minus, &im->diag);
    *above = *below = 0;
    if (im->status != ASH_OK) return;
    *above = ash_graph_dim_max(im->graph, dim, 0);
    *below = ash_graph_dim_max(im->graph, minus, 0);
}

static ash_value pad_constant(ash_import *im, ash_value x, const pads *p, ash_value with) {
    ash_type type = ash_import__type(im, x);
    ash_dim starts[ASH_MAX_RANK] = {0}, low[ASH_MAX_RANK], high[ASH_MAX_RANK];
    for (unsigned i = 0; i < type.rank && ash_import__ok(im); i++) {
        ash_dim end = 0;
        part(im, p->before[i], &low[i], &starts[i]);
        if (ash_import__ok(im)) part(im, p->after[i], &high[i], &end);
        ash_dim cut = ash_graph_dim_add(im->graph, starts[i], end);
        if (!cut) continue;
        int64_t least = -1, most;
        ash_dim rest;
        if (ash_dims_combine(im->graph->dims, ASH_DIM_SUB, type.dims[i], cut, &rest, NULL) == ASH_OK)
            ash_dims_bounds(im->graph->dims, rest, &least, &most);
        if (least < 0)
            return ash_import__fail(im, ASH_ERROR_UNSUPPORTED,
                                    "a padding that can cut off more than there is of dim %u", i);
        type.dims[i] = rest;
    }
    return ash_pad(im->graph, ash_slice(im->graph, x, starts, NULL, type.dims), with, low, high);
}

static bool pad_dim(ash_import *im, ash_import_int e, ash_dim *out) {
    int64_t low, high;
    if (ash_import__to_dim(im, e, out)) {
        ash_dims_bounds(im->graph->dims, *out, &low, &high);
        if (low >= -INT32_MAX && high <= INT32_MAX) return true;
    }
    ash_import__fail(im, ASH_ERROR_UNSUPPORTED, "a padding of more than 2^31 elements");
    return false;
}

/* The pads of each axis, from the attribute or the operands. */
static bool read_pads(ash_import *im, unsigned rank, pads *p) {
    const int64_t *attr = NULL, *axes = NULL;
    const ash_import_int *list = NULL;
    size_t n, n_axes = rank;
    bool has = im->opset < 11 ? ash_import__attr_ints(im, im->opset < 2 ? "paddings" : "pads", &attr, &n)
                              : ash_onnx__sizes(im, 1, &list, &n);
    if (has && im->opset >= 18 && ash_import__has(im, 3) && !ash_import__ints(im, 3, &axes, &n_axes))
        return false;
    if (!has || n != 2 * n_axes || n_axes > rank) {
        ash_import__fail(im, ASH_ERROR_SHAPE, "the pads do not fit a tensor of rank %u", rank);
        return false;
    }
    uint32_t seen = 0;
    for (size_t i = 0; i < n_axes && ash_import__ok(im); i++) {
        unsigned axis = ash_import__axis(im, axes ? axes[i] : (int64_t)i, rank);
        if (seen >> axis & 1) ash_import__fail(im, ASH_ERROR_SHAPE, "axis %u is given twice", axis);
        seen |= UINT32_C(1) << axis;
        ash_import_int from = list ? list[i] : (ash_import_int){attr[i], false},
                       to = list ? list[i + n_axes] : (ash_import_int){attr[i + n_axes], false};
        if (!pad_dim(im, from, &p->before[axis]) || !pad_dim(im, to, &p->after[axis])) return false;
    }
    return ash_import__ok(im);
}

void ash_onnx__op_pad(ash_import *im) {
    ash_value x = ash_import__in(im, 0), with;
    ash_type type = ash_import__type(im, x);
    pads p = {0};
    if (!read_pads(im, type.rank, &p)) return;
    char mode = "crew"[ASH_IMPORT_CHOICE(im, "mode", "constant", "reflect", "edge", "wrap")];
    if (mode == 'c') {
        if (im->opset < 11)
            with = ash_scalar(im->graph, type.dtype, ash_import__attr_float(im, "value", 0));
        else if (ash_import__has(im, 2))
            with = ash_reshape(im->graph, ash_import__in(im, 2), NULL, 0);
        else
            with = ash_scalar(im->graph, type.dtype, 0);
        x = pad_constant(im, x, &p, with);
    } else {
        x = pad_by_index(im, x, &p, mode);
    }
    ash_import__out(im, 0, x);
}

/* --- CenterCropPad -------------------------------------------------------------------------------- */

/* Each axis cut or filled with zeros around its middle to the size that operand 1 lists. */
void ash_onnx__op_center_crop_pad(ash_import *im) {
    ash_value x = ash_import__in(im, 0);
    ash_type type = ash_import__type(im, x);
    ash_graph *g = im->graph;
    const ash_import_int *sizes;
    const int64_t *axes = NULL;
    size_t n, n_axes = type.rank;
    if (!ash_onnx__sizes(im, 1, &sizes, &n)) return;
    if (!ash_import__attr_ints(im, "axes", &axes, &n_axes)) n_axes = type.rank;
    if (n != n_axes || n > type.rank) {
        ash_import__fail(im, ASH_ERROR_SHAPE, "%zu sizes for %zu axes", n, n_axes);
        return;
    }
    for (size_t i = 0; i < n && ash_import__ok(im); i++) {
        unsigned axis = ash_import__axis(im, axes ? axes[i] : (int64_t)i, type.rank);
        ash_dim low[ASH_MAX_RANK] = {0}, high[ASH_MAX_RANK] = {0}, dim = type.dims[axis], want;
        if (!ash_import__size(im, sizes[i], &want)) return;
        ash_dim both = ash_graph_dim_min(g, dim, want), cut = ash_graph_dim_sub(g, dim, both),
                added = ash_graph_dim_sub(g, want, both);
        x = ash_slice_axis(g, x, axis, ash_graph_dim_div(g, cut, 2), both);
        low[axis] = ash_graph_dim_div(g, added, 2);
        high[axis] = ash_graph_dim_sub(g, added, low[axis]);
        x = ash_build__pad(g, x, 0, low, high, NULL);
    }
    ash_import__out(im, 0, x);
}

/* --- Col2Im --------------------------------------------------------------------------------------- */

/* Entry i of a list attribute, or `absent`; in [least, 2^20]. */
static int64_t block_number(ash_import *im, const char *name, size_t i, size_t n, int64_t least,
                            int64_t absent) {
    const int64_t *list;
    size_t count;
    if (!ash_import__attr_ints(im, name, &list, &count)) return absent;
    if (count == n && list[i] >= least && list[i] <= 1 << 20) return list[i];
    ash_import__fail(im, ASH_ERROR_FORMAT, "%s", name);
    return absent;
}

/* Sums of blocks where they overlap: x [n, c * elements of a block, blocks] becomes an image [n, c, ...].
 * Each element of the blocks is an image of its own, spread by the strides and moved to its place. */
void ash_onnx__op_col2im(ash_import *im) {
    enum { MOST = 1024 };
    ash_value x = ash_import__in(im, 0), sum = ASH_NO_VALUE;
    ash_type t = ash_import__type(im, x);
    const int64_t *image, *block;
    size_t n, n_block;
    if (!ash_import__ints(im, 1, &image, &n) || !ash_import__ints(im, 2, &block, &n_block)) return;
    int64_t taps = 1, blocks = 1, stride[ASH_MAX_RANK], dilation[ASH_MAX_RANK], before[ASH_MAX_RANK],
            after[ASH_MAX_RANK];
    ash_dim apart[ASH_MAX_RANK] = {t.dims[0]};
    bool good =
        t.rank == 3 && n == n_block && n > 0 && n + 3 <= ASH_MAX_RANK && ash_dim_is_const(t.dims[1]);
    for (size_t i = 0; i < n && good; i++) {
        good = block[i] > 0 && block[i] <= MOST && (taps *= block[i]) <= MOST && image[i] > 0 &&
               image[i] <= 1 << 20;
        if (!good) break;
        stride[i] = block_number(im, "strides", i, n, 1, 1);
        dilation[i] = block_number(im, "dilations", i, n, 1, 1);
        before[i] = block_number(im, "pads", i, 2 * n, 0, 0);
        after[i] = block_number(im, "pads", n + i, 2 * n, 0, 0);
        int64_t room = image[i] + before[i] + after[i] - dilation[i] * (block[i] - 1) - 1;
        apart[3 + i] = room < 0 ? 0 : room / stride[i] + 1;
        good = good && room >= 0 && ash_mul_i64(blocks, apart[3 + i], &blocks);
    }
    if (!ash_import__ok(im)) return;
    if (!good || t.dims[1] % taps || t.dims[2] != blocks) {
        ash_import__fail(im, ASH_ERROR_SHAPE,
                         "blocks that do not fit the image, or more than %d elements each", MOST);
        return;
    }
    apart[1] = t.dims[1] / taps, apart[2] = taps;
    x = ash_reshape(im->graph, x, apart, (unsigned)n + 3);
    for (int64_t tap = 0; tap < taps && ash_import__ok(im); tap++) {
        ash_dim low[ASH_MAX_RANK] = {0}, high[ASH_MAX_RANK] = {0};
        int64_t interior[ASH_MAX_RANK] = {0}, rest = tap;
        for (size_t i = n; i-- > 0; rest /= block[i]) {
            int64_t at = rest % block[i] * dilation[i];
            low[2 + i] = at;
            high[2 + i] = image[i] + before[i] + after[i] - at - (apart[3 + i] - 1) * stride[i] - 1;
            interior[2 + i] = stride[i] - 1;
        }
        ash_value one =
            ash_build__pad(im->graph, ash_build__at(im->graph, x, 2, tap), 0, low, high, interior);
        sum = sum == ASH_NO_VALUE ? one : ash_add(im->graph, sum, one);
    }
    for (size_t i = 0; i < n; i++)
        sum = ash_slice_axis(im->graph, sum, (unsigned)(2 + i), before[i], image[i]);
    ash_import__out(im, 0, sum);
}
