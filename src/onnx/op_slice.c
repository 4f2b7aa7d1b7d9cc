/* Slice and Pad: bounds that may be dim expressions. */
#include "lower.h"
#include "ops.h"

/* --- Slice ---------------------------------------------------------------------------------------- */

/* A bound of a slice with a positive step, counted from the end when negative, clamped to [0, dim]. */
static ash_dim clamp_bound(ash_import *im, ash_import_int bound, ash_dim dim) {
    ash_graph *g = im->graph;
    int64_t low, high;
    ash_dims_bounds(g->dims, dim, &low, &high);
    if (bound.dim) return ash_graph_dim_min(g, bound.v, dim);
    if (bound.v >= high) return dim;
    if (bound.v >= 0) return bound.v <= low ? bound.v : ash_graph_dim_min(g, bound.v, dim);
    if (bound.v <= -high) return 0;
    return ash_graph_dim_sub(g, ash_graph_dim_max(g, dim, -bound.v), -bound.v);
}

/* Start and count for a negative step: numbers, or the whole dim backwards. */
static void backwards(ash_import *im, ash_import_int from, ash_import_int to, int64_t step, ash_dim dim,
                      ash_dim *start, ash_dim *count) {
    bool numbers = !from.dim && !to.dim;
    *start = *count = 0;
    if (ash_dim_is_const(dim) && numbers) {
        int64_t first = from.v < 0 ? from.v + dim : from.v, last = to.v < -dim ? -1
                                                                   : to.v < 0  ? to.v + dim
                                                                               : to.v;
        first = ASH_MIN(ASH_MAX(first, -1), dim - 1);
        last = ASH_MIN(last, dim - 1);
        if (first <= last) return;
        *start = first;
        *count = (first - last - 1) / -step + 1;
    } else if (numbers && (from.v == -1 || from.v > INT32_MAX) && to.v < -INT32_MAX && step == -1) {
        *start = ash_graph_dim_sub(im->graph, dim, 1);
        *count = dim;
    } else {
        ash_import__fail(im, ASH_ERROR_UNSUPPORTED, "a negative step over a dim that is not a number");
    }
}

static void slice_axis(ash_import *im, ash_import_int from, ash_import_int to, int64_t step, ash_dim dim,
                       ash_dim *start, ash_dim *count) {
    ash_graph *g = im->graph;
    if (step < 0) {
        backwards(im, from, to, step, dim, start, count);
        return;
    }
    *start = clamp_bound(im, from, dim);
    ash_dim end = clamp_bound(im, to, dim);
    if (ash_dim_is_const(*start) && ash_dim_is_const(end)) end = ASH_MAX(end, *start);
    *count = ash_graph_dim_sub(g, ash_graph_dim_max(g, end, *start), *start);
    if (step > 1) *count = ash_graph_dim_div(g, ash_graph_dim_add(g, *count, step - 1), step);
}

/* One of the lists starts, ends, axes, steps. */
static bool slice_list(ash_import *im, const char *attr, size_t k, const ash_import_int **out, size_t *n) {
    const int64_t *numbers;
    if (im->opset >= 10) return ash_import__has(im, k) && ash_import__list(im, k, out, n);
    if (!ash_import__attr_ints(im, attr, &numbers, n)) return false;
    ash_import_int *list = ash_arena_alloc(im->scratch, *n, sizeof *list);
    if (!list) return ash_import__fail(im, ASH_ERROR_OUT_OF_MEMORY, "out of memory"), false;
    for (size_t i = 0; i < *n; i++) list[i].v = numbers[i];
    *out = list;
    return true;
}

void ash_onnx__op_slice(ash_import *im) {
    ash_value x = ash_import__in(im, 0);
    ash_type type = ash_import__type(im, x);
    const ash_import_int *starts, *ends, *axes = NULL, *steps = NULL;
    size_t n, n_ends, n_axes, n_steps;
    if (!slice_list(im, "starts", 1, &starts, &n) || !slice_list(im, "ends", 2, &ends, &n_ends)) {
        ash_import__fail(im, ASH_ERROR_FORMAT, "starts or ends are missing");
        return;
    }
    if (!slice_list(im, "axes", 3, &axes, &n_axes)) n_axes = n;
    if (im->opset < 10 || !slice_list(im, "", 4, &steps, &n_steps)) n_steps = n;
    if (n_ends != n || n_axes != n || n_steps != n || n > type.rank) {
        ash_import__fail(im, ASH_ERROR_SHAPE,
                         "starts, ends, axes and steps differ in length, or exceed the rank");
        return;
    }
    ash_dim start[ASH_MAX_RANK] = {0};
    int64_t step[ASH_MAX_RANK];
    for (unsigned i = 0; i < ASH_MAX_RANK; i++) step[i] = 1;
    for (size_t i = 0; i < n && ash_import__ok(im); i++) {
        unsigned axis = ash_import__axis(im, axes ? axes[i].v : (int64_t)i, type.rank);
        if (steps) step[axis] = ASH_MAX(steps[i].v, -INT64_MAX);
        if (step[axis] == 0 || (steps && steps[i].dim) || (axes && axes[i].dim))
            ash_import__fail(im, ASH_ERROR_SHAPE, "a step or an axis that cannot be");
        else
            slice_axis(im, starts[i], ends[i], step[axis], type.dims[axis], &start[axis], &type.dims[axis]);
    }
    if (ash_import__ok(im)) ash_import__out(im, 0, ash_lower__slice(im, x, start, step, type.dims));
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

/* Modes other than constant take each padded element from the operand: a gather along each axis. */
static ash_value pad_by_index(ash_import *im, ash_value x, const int64_t *before, const int64_t *after,
                              char mode) {
    ash_type type = ash_import__type(im, x);
    for (unsigned axis = 0; axis < type.rank; axis++) {
        int64_t dim = type.dims[axis], count;
        if (before[axis] == 0 && after[axis] == 0) continue;
        if (!ash_dim_is_const(dim) || dim == 0 || !ash_add_i64(dim, before[axis], &count) ||
            !ash_add_i64(count, after[axis], &count) || count < 0 || count > 1 << 22)
            return ash_import__fail(im, ASH_ERROR_UNSUPPORTED,
                                    "padding of a dim that is empty, huge or not a number");
        int64_t *indices = ash_arena_alloc(im->scratch, (size_t)count, sizeof *indices);
        if (!indices) return ash_import__fail(im, ASH_ERROR_OUT_OF_MEMORY, "out of memory");
        for (int64_t i = 0; i < count; i++) indices[i] = pad_source(i - before[axis], dim, mode);
        x = ash_lower__gather(im, x, ash_lower__int_list(im, indices, (size_t)count), axis);
    }
    return x;
}

static ash_value pad_constant(ash_import *im, ash_value x, const int64_t *before, const int64_t *after,
                              ash_value with) {
    ash_type type = ash_import__type(im, x);
    ash_dim starts[ASH_MAX_RANK] = {0}, low[ASH_MAX_RANK], high[ASH_MAX_RANK];
    int64_t steps[ASH_MAX_RANK];
    static const int64_t interior[ASH_MAX_RANK];
    for (unsigned i = 0; i < type.rank; i++) {
        steps[i] = 1;
        starts[i] = ASH_MAX(-before[i], 0);
        low[i] = ASH_MAX(before[i], 0);
        high[i] = ASH_MAX(after[i], 0);
        int64_t cut = starts[i] + ASH_MAX(-after[i], 0);
        if (cut) type.dims[i] = ash_graph_dim_sub(im->graph, type.dims[i], cut);
    }
    const ash_value ins[] = {ash_lower__slice(im, x, starts, steps, type.dims), with};
    const ash_attr attrs[] = {ASH_ATTR_LIST(BEFORE, low, type.rank), ASH_ATTR_LIST(AFTER, high, type.rank),
                              ASH_ATTR_LIST(INTERIOR, interior, type.rank)};
    return ash_lower__node(im, ASH_OP_PAD, ins, 2, attrs, ASH_COUNT(attrs));
}

/* The pads of each axis, from the attribute or the operands. */
static bool read_pads(ash_import *im, unsigned rank, int64_t *before, int64_t *after) {
    const int64_t *pads, *axes = NULL;
    size_t n, n_axes = rank;
    bool has = im->opset < 11 ? ash_import__attr_ints(im, im->opset < 2 ? "paddings" : "pads", &pads, &n)
                              : ash_import__ints(im, 1, &pads, &n);
    if (has && im->opset >= 18 && ash_import__has(im, 3) && !ash_import__ints(im, 3, &axes, &n_axes))
        return false;
    if (!has || n != 2 * n_axes || n_axes > rank) {
        ash_import__fail(im, ASH_ERROR_SHAPE, "the pads do not fit a tensor of rank %u", rank);
        return false;
    }
    for (size_t i = 0; i < n_axes; i++) {
        unsigned axis = ash_import__axis(im, axes ? axes[i] : (int64_t)i, rank);
        before[axis] = pads[i];
        after[axis] = pads[i + n_axes];
        if (before[axis] < -INT32_MAX || before[axis] > INT32_MAX || after[axis] < -INT32_MAX ||
            after[axis] > INT32_MAX)
            ash_import__fail(im, ASH_ERROR_UNSUPPORTED, "a padding of more than 2^31 elements");
    }
    return ash_import__ok(im);
}

void ash_onnx__op_pad(ash_import *im) {
    ash_value x = ash_import__in(im, 0), with;
    ash_type type = ash_import__type(im, x);
    int64_t before[ASH_MAX_RANK] = {0}, after[ASH_MAX_RANK] = {0};
    if (!read_pads(im, type.rank, before, after)) return;
    if (ash_import__attr_is(im, "mode", "constant", "constant")) {
        if (im->opset < 11)
            with = ash_lower__scalar(im, type.dtype, ash_import__attr_float(im, "value", 0));
        else if (ash_import__has(im, 2))
            with = ash_lower__reshape(im, ash_import__in(im, 2), NULL, 0);
        else
            with = ash_lower__scalar(im, type.dtype, 0);
        x = pad_constant(im, x, before, after, with);
    } else if (ash_import__attr_is(im, "mode", "reflect", "constant")) {
        x = pad_by_index(im, x, before, after, 'r');
    } else if (ash_import__attr_is(im, "mode", "edge", "constant")) {
        x = pad_by_index(im, x, before, after, 'e');
    } else if (ash_import__attr_is(im, "mode", "wrap", "constant")) {
        x = pad_by_index(im, x, before, after, 'w');
    } else {
        ash_import__fail(im, ASH_ERROR_UNSUPPORTED, "an unknown padding mode");
    }
    ash_import__out(im, 0, x);
}

/* --- CenterCropPad -------------------------------------------------------------------------------- */

/* Each axis cut or filled with zeros around its middle to the size that operand 1 lists. */
void ash_onnx__op_center_crop_pad(ash_import *im) {
    ash_value x = ash_import__in(im, 0);
    ash_type type = ash_import__type(im, x);
    const int64_t *sizes, *axes = NULL;
    size_t n, n_axes = type.rank;
    if (!ash_import__ints(im, 1, &sizes, &n)) return;
    if (!ash_import__attr_ints(im, "axes", &axes, &n_axes)) n_axes = type.rank;
    if (n != n_axes || n > type.rank) {
        ash_import__fail(im, ASH_ERROR_SHAPE, "%zu sizes for %zu axes", n, n_axes);
        return;
    }
    for (size_t i = 0; i < n && ash_import__ok(im); i++) {
        unsigned axis = ash_import__axis(im, axes ? axes[i] : (int64_t)i, type.rank);
        ash_dim low[ASH_MAX_RANK] = {0}, high[ASH_MAX_RANK] = {0}, dim = type.dims[axis];
        if (!ash_dim_is_const(dim) || sizes[i] < 0) {
            ash_import__fail(im, ASH_ERROR_UNSUPPORTED, "an axis whose size is not a number");
            return;
        }
        if (sizes[i] <= dim) {
            x = ash_lower__slice_axis(im, x, axis, (dim - sizes[i]) / 2, sizes[i]);
            continue;
        }
        low[axis] = (sizes[i] - dim) / 2;
        high[axis] = sizes[i] - dim - low[axis];
        x = ash_lower__pad(im, x, 0, low, high, NULL);
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
    x = ash_lower__reshape(im, x, apart, (unsigned)n + 3);
    for (int64_t tap = 0; tap < taps && ash_import__ok(im); tap++) {
        ash_dim low[ASH_MAX_RANK] = {0}, high[ASH_MAX_RANK] = {0};
        int64_t interior[ASH_MAX_RANK] = {0}, rest = tap;
        for (size_t i = n; i-- > 0; rest /= block[i]) {
            int64_t at = rest % block[i] * dilation[i];
            low[2 + i] = at;
            high[2 + i] = image[i] + before[i] + after[i] - at - (apart[3 + i] - 1) * stride[i] - 1;
            interior[2 + i] = stride[i] - 1;
        }
        ash_value one = ash_lower__pad(im, ash_lower__at(im, x, 2, tap), 0, low, high, interior);
        sum = sum == ASH_NO_VALUE ? one : ash_lower__binary(im, ASH_OP_ADD, sum, one);
    }
    for (size_t i = 0; i < n; i++)
        sum = ash_lower__slice_axis(im, sum, (unsigned)(2 + i), before[i], image[i]);
    ash_import__out(im, 0, sum);
}
