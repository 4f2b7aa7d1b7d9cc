/* SPDX-License-Identifier: MIT */
/* Each core operator as ONNX operators of opset 18. Blocked layouts belong to compiled graphs and are
 * refused. */
#include <math.h>

#include "control.h"
#include "model.h"
#include "write_short.h"

static const ash_type *in_type(const ash_writer *w, const ash_node *node, size_t k) {
    return ash_graph__type(w->graph, node->ins[k]);
}

static const ash_type *out_type(const ash_writer *w, const ash_node *node) {
    return ash_graph__type(w->graph, node->out);
}

/* A 0 in the target keeps the operand's dim unless allowzero is set. */
const char *ash_writer__reshape(ash_writer *w, name out, name x, const ash_dim *dims, size_t n) {
    const ash_writer_attr attrs[] = {WRITE_INT("allowzero", 1)};
    const name ins[] = {x, ash_writer__dims(w, dims, n)};
    bool empty = false;
    for (size_t i = 0; i < n; i++) {
        int64_t min, max;
        ash_dims_bounds(w->dims, dims[i], &min, &max);
        empty |= min <= 0;
    }
    return ash_writer__op(w, out, "Reshape", ins, 2, attrs, empty);
}

const char *ash_writer__cast(ash_writer *w, name out, name x, ash_dtype dtype) {
    const ash_writer_attr attrs[] = {WRITE_INT("to", ash_onnx__dtype_of(dtype))};
    return ash_writer__op(w, out, "Cast", &x, 1, attrs, 1);
}

/* --- elementwise ---------------------------------------------------------------------------------- */

/* The ONNX operator that is exactly the core's; NULL: it takes several, or depends on the dtype. */
static const char *const same[ASH_OP_COUNT] = {
    [ASH_OP_NEG] = "Neg",      [ASH_OP_ABS] = "Abs",         [ASH_OP_SIGN] = "Sign",
    [ASH_OP_FLOOR] = "Floor",  [ASH_OP_CEIL] = "Ceil",       [ASH_OP_ROUND] = "Round",
    [ASH_OP_SQRT] = "Sqrt",    [ASH_OP_EXP] = "Exp",         [ASH_OP_LOG] = "Log",
    [ASH_OP_SIN] = "Sin",      [ASH_OP_COS] = "Cos",         [ASH_OP_TAN] = "Tan",
    [ASH_OP_ASIN] = "Asin",    [ASH_OP_ACOS] = "Acos",       [ASH_OP_ATAN] = "Atan",
    [ASH_OP_SINH] = "Sinh",    [ASH_OP_COSH] = "Cosh",       [ASH_OP_TANH] = "Tanh",
    [ASH_OP_ASINH] = "Asinh",  [ASH_OP_ACOSH] = "Acosh",     [ASH_OP_ATANH] = "Atanh",
    [ASH_OP_ERF] = "Erf",      [ASH_OP_SIGMOID] = "Sigmoid", [ASH_OP_ADD] = "Add",
    [ASH_OP_SUB] = "Sub",      [ASH_OP_MUL] = "Mul",         [ASH_OP_DIV] = "Div",
    [ASH_OP_POW] = "Pow",      [ASH_OP_MIN] = "Min",         [ASH_OP_MAX] = "Max",
    [ASH_OP_EQ] = "Equal",     [ASH_OP_LT] = "Less",         [ASH_OP_LE] = "LessOrEqual",
    [ASH_OP_SELECT] = "Where",
};

const char *ash_writer__zero(ash_writer *w, ash_dtype dtype) {
    static const uint8_t zeros[16];
    const ash_type scalar = {.dtype = dtype};
    return ash_writer__constant(w, NULL, &scalar, zeros, ash_dtype_size(dtype));
}

/* Logical operators for bool, bitwise ones for integers. */
static void write_bits(ash_writer *w, const ash_node *node, const char *logical, const char *bitwise) {
    const char *op = in_type(w, node, 0)->dtype == ASH_BOOL ? logical : bitwise;
    const name ins[] = {value(w, node->ins[0]), node->n_ins > 1 ? value(w, node->ins[1]) : ""};
    ash_writer__op(w, value(w, node->out), op, ins, node->n_ins, NULL, 0);
}

/* Towards zero: the ceiling below it, the floor above. */
static void write_trunc(ash_writer *w, const ash_node *node) {
    name x = value(w, node->ins[0]);
    name negative = op2(w, NULL, "Less", x, ash_writer__zero(w, in_type(w, node, 0)->dtype));
    op3(w, value(w, node->out), "Where", negative, op1(w, NULL, "Ceil", x), op1(w, NULL, "Floor", x));
}

/* A scalar constant of a floating point dtype. */
static name number(ash_writer *w, ash_dtype dtype, double value_) {
    const ash_wide wide = {.dtype = dtype, .count = 1, .f = &value_};
    const ash_type scalar = {.dtype = dtype};
    uint8_t bytes[16] = {0};
    ash_wide_store(&wide, bytes);
    return ash_writer__constant(w, NULL, &scalar, bytes, ash_dtype_size(dtype));
}

/* Mod with fmod has the dividend's sign, without it the divisor's; the latter exists for integers alone. */
static void write_mod(ash_writer *w, const ash_node *node) {
    name a = value(w, node->ins[0]), b = value(w, node->ins[1]), out = value(w, node->out);
    const ash_writer_attr attrs[] = {WRITE_INT("fmod", node->op == ASH_OP_REM)};
    if (node->op == ASH_OP_REM || !ash_dtype_is_float(in_type(w, node, 0)->dtype)) {
        ash_writer__op(w, out, "Mod", (const name[]){a, b}, 2, attrs, 1);
        return;
    }
    /* fmod is exact, also for an infinite divisor. A rest of the other sign is one divisor away, and 0 has
     * the divisor's. */
    const ash_writer_attr fmod[] = {WRITE_INT("fmod", 1)};
    ash_dtype dtype = in_type(w, node, 0)->dtype;
    name rest = ash_writer__op(w, NULL, "Mod", (const name[]){a, b}, 2, fmod, 1);
    name signs = op2(w, NULL, "Mul", op1(w, NULL, "Sign", rest), op1(w, NULL, "Sign", b));
    name zero = number(w, dtype, 0), differs = op2(w, NULL, "Less", signs, zero);
    name moved = op3(w, NULL, "Where", differs, op2(w, NULL, "Add", rest, b), rest);
    name none = op3(w, NULL, "Where", op2(w, NULL, "Less", b, zero), number(w, dtype, -0.0), zero);
    op3(w, out, "Where", op2(w, NULL, "Equal", rest, zero), none, moved);
}

static void write_shift(ash_writer *w, const ash_node *node) {
    const ash_writer_attr attrs[] = {WRITE_TEXT("direction", node->op == ASH_OP_SHL ? "LEFT" : "RIGHT")};
    const name ins[] = {value(w, node->ins[0]), value(w, node->ins[1])};
    ash_writer__op(w, value(w, node->out), "BitShift", ins, 2, attrs, 1);
}

/* The core's cast to an integer saturates, ONNX's does what the machine does: for narrow integers the
 * operand is clipped first. */
static void write_cast(ash_writer *w, const ash_node *node) {
    ash_dtype from = in_type(w, node, 0)->dtype, to = out_type(w, node)->dtype;
    name x = value(w, node->ins[0]);
    bool narrow = to == ASH_I8 || to == ASH_U8 || to == ASH_I16 || to == ASH_U16;
    if (ash_dtype_is_float(from) && narrow) {
        int bits = (int)ash_dtype_size(to) * 8;
        bool is_signed = ash_dtype_kind(to) == ASH_KIND_SIGNED;
        double low = is_signed ? -(double)(1 << (bits - 1)) : 0,
               high = (double)((1 << (bits - is_signed)) - 1);
        x = op3(w, NULL, "Clip", x, number(w, from, low), number(w, from, high));
    }
    ash_writer__cast(w, value(w, node->out), x, to);
}

static bool write_elementwise(ash_writer *w, const ash_node *node) {
    if (same[node->op]) {
        name ins[3];
        for (size_t k = 0; k < node->n_ins; k++) ins[k] = value(w, node->ins[k]);
        ash_writer__op(w, value(w, node->out), same[node->op], ins, node->n_ins, NULL, 0);
        return true;
    }
    switch (node->op) {
    case ASH_OP_NOT: write_bits(w, node, "Not", "BitwiseNot"); return true;
    case ASH_OP_AND: write_bits(w, node, "And", "BitwiseAnd"); return true;
    case ASH_OP_OR: write_bits(w, node, "Or", "BitwiseOr"); return true;
    case ASH_OP_XOR: write_bits(w, node, "Xor", "BitwiseXor"); return true;
    case ASH_OP_TRUNC: write_trunc(w, node); return true;
    case ASH_OP_MOD:
    case ASH_OP_REM: write_mod(w, node); return true;
    case ASH_OP_SHL:
    case ASH_OP_SHR: write_shift(w, node); return true;
    case ASH_OP_CAST: write_cast(w, node); return true;
    default: return false;
    }
}

/* --- movement ------------------------------------------------------------------------------------- */

/* Bounds that are numbers: a negative step may end before the first element, which must not be read as
 * counted from the end of the dim; there the bound is the lowest number. */
static void slice_numbers(ash_writer *w, const ash_node *node, unsigned rank, name *first, name *last) {
    const int64_t *starts = ash_node_list(node, ASH_ATTR_STARTS),
                  *steps = ash_node_list(node, ASH_ATTR_STEPS);
    const ash_dim *dims = ash_node_list(node, ASH_ATTR_DIMS);
    int64_t ends[ASH_MAX_RANK];
    for (unsigned i = 0; i < rank; i++) {
        ends[i] = dims[i] ? starts[i] + dims[i] * steps[i] : starts[i];
        if (steps[i] < 0 && ends[i] < 0) ends[i] = INT64_MIN + 1;
    }
    *first = ash_writer__ints(w, starts, rank), *last = ash_writer__ints(w, ends, rank);
}

/* Bounds that the file computes. Axes with a negative step are sliced forwards, from start - (dims - 1) *
 * |step| to start, and reversed afterwards, so that no bound is ever negative. */
static name slice_variables(ash_writer *w, const ash_node *node, unsigned rank) {
    const int64_t *steps = ash_node_list(node, ASH_ATTR_STEPS);
    int64_t axes[ASH_MAX_RANK], sizes[ASH_MAX_RANK], up[ASH_MAX_RANK] = {0}, down[ASH_MAX_RANK] = {0};
    int64_t is_down[ASH_MAX_RANK] = {0}, reversed[ASH_MAX_RANK], ends[ASH_MAX_RANK], ones[ASH_MAX_RANK];
    size_t n = 0;
    for (unsigned i = 0; i < rank; i++) {
        axes[i] = i;
        sizes[i] = steps[i] < 0 ? -steps[i] : steps[i];
        is_down[i] = steps[i] < 0;
        *(is_down[i] ? &down[i] : &up[i]) = sizes[i];
        if (is_down[i]) reversed[n] = i, ends[n] = INT64_MIN + 1, ones[n++] = -1;
    }
    name start = ash_writer__dims(w, ash_node_list(node, ASH_ATTR_STARTS), rank);
    name dims = ash_writer__dims(w, ash_node_list(node, ASH_ATTR_DIMS), rank),
         back = ash_writer__ints(w, down, rank);
    name first = op2(w, NULL, "Sub", op2(w, NULL, "Add", start, back), op2(w, NULL, "Mul", dims, back));
    name last = op2(w, NULL, "Add", start, ash_writer__ints(w, is_down, rank));
    last = op2(w, NULL, "Add", last, op2(w, NULL, "Mul", dims, ash_writer__ints(w, up, rank)));
    const name ins[] = {value(w, node->ins[0]), first, last, ash_writer__ints(w, axes, rank),
                        ash_writer__ints(w, sizes, rank)};
    name x = ash_writer__op(w, n ? NULL : value(w, node->out), "Slice", ins, 5, NULL, 0);
    if (n == 0) return x;
    const name turn[] = {x, ash_writer__ints(w, ones, n), ash_writer__ints(w, ends, n),
                         ash_writer__ints(w, reversed, n), ash_writer__ints(w, ones, n)};
    return ash_writer__op(w, value(w, node->out), "Slice", turn, 5, NULL, 0);
}

static void write_slice(ash_writer *w, const ash_node *node) {
    unsigned rank = in_type(w, node, 0)->rank;
    const int64_t *starts = ash_node_list(node, ASH_ATTR_STARTS),
                  *steps = ash_node_list(node, ASH_ATTR_STEPS);
    const ash_dim *dims = ash_node_list(node, ASH_ATTR_DIMS);
    int64_t axes[ASH_MAX_RANK];
    bool numbers = true;
    for (unsigned i = 0; i < rank; i++) {
        axes[i] = i;
        numbers &= ash_dim_is_const(starts[i]) && ash_dim_is_const(dims[i]);
    }
    if (!numbers) {
        slice_variables(w, node, rank);
    } else if (rank == 0) {
        op1(w, value(w, node->out), "Identity", value(w, node->ins[0]));
    } else {
        name first, last;
        slice_numbers(w, node, rank, &first, &last);
        const name ins[] = {value(w, node->ins[0]), first, last, ash_writer__ints(w, axes, rank),
                            ash_writer__ints(w, steps, rank)};
        ash_writer__op(w, value(w, node->out), "Slice", ins, 5, NULL, 0);
    }
}

/* ONNX has no padding between elements: a new dim behind the axis is padded and merged with it, and the
 * last gap is cut off. */
static name spread(ash_writer *w, name x, ash_type *type, unsigned axis, int64_t gap, name fill) {
    ash_type split = *type;
    int64_t pads[2 * (ASH_MAX_RANK + 1)] = {0}, start = 0, at = axis;
    if (type->rank == ASH_MAX_RANK) {
        ash_writer__fail(w, ASH_ERROR_UNSUPPORTED, "interior padding of a tensor of rank %d", ASH_MAX_RANK);
        return x;
    }
    if (type->dims[axis] == 0) return x;
    memmove(&split.dims[axis + 2], &split.dims[axis + 1], (type->rank - axis - 1) * sizeof *split.dims);
    split.dims[axis + 1] = 1;
    x = ash_writer__reshape(w, NULL, x, split.dims, type->rank + 1);
    pads[type->rank + 1 + axis + 1] = gap;
    x = op3(w, NULL, "Pad", x, ash_writer__ints(w, pads, 2 * (type->rank + 1)), fill);
    type->dims[axis] = ash_writer__combine(w, ASH_DIM_MUL, type->dims[axis], gap + 1);
    x = ash_writer__reshape(w, NULL, x, type->dims, type->rank);
    type->dims[axis] = ash_writer__combine(w, ASH_DIM_SUB, type->dims[axis], gap);
    const name ins[] = {x, ash_writer__ints(w, &start, 1), ash_writer__dims(w, &type->dims[axis], 1),
                        ash_writer__ints(w, &at, 1)};
    return ash_writer__op(w, NULL, "Slice", ins, 4, NULL, 0);
}

static void write_pad(ash_writer *w, const ash_node *node) {
    ash_type type = *in_type(w, node, 0);
    name x = value(w, node->ins[0]), fill = value(w, node->ins[1]);
    const int64_t *interior = ash_node_list(node, ASH_ATTR_INTERIOR);
    ash_dim pads[2 * ASH_MAX_RANK];
    for (unsigned i = 0; i < type.rank && w->status == ASH_OK; i++)
        if (interior[i]) x = spread(w, x, &type, i, interior[i], fill);
    memcpy(pads, ash_node_list(node, ASH_ATTR_BEFORE), type.rank * sizeof *pads);
    memcpy(pads + type.rank, ash_node_list(node, ASH_ATTR_AFTER), type.rank * sizeof *pads);
    op3(w, value(w, node->out), "Pad", x, ash_writer__dims(w, pads, 2 * type.rank), fill);
}

/* A range along the axis, expanded to all dims. */
static void write_iota(ash_writer *w, const ash_node *node) {
    const ash_type *type = out_type(w, node);
    unsigned axis = (unsigned)ash_node_int(node, ASH_ATTR_AXIS);
    static const int64_t number[] = {0, 1};
    const ash_type scalar = {.dtype = ASH_I64};
    ash_dim ones[ASH_MAX_RANK];
    for (unsigned i = 0; i < type->rank; i++) ones[i] = i == axis ? type->dims[axis] : 1;
    name zero = ash_writer__constant(w, NULL, &scalar, &number[0], sizeof *number);
    name one = ash_writer__constant(w, NULL, &scalar, &number[1], sizeof *number);
    name count = ash_writer__reshape(w, NULL, ash_writer__dims(w, &type->dims[axis], 1), NULL, 0);
    name range = ash_writer__cast(w, NULL, op3(w, NULL, "Range", zero, count, one), type->dtype);
    op2(w, value(w, node->out), "Expand", ash_writer__reshape(w, NULL, range, ones, type->rank),
        ash_writer__dims(w, type->dims, type->rank));
}

static void write_move(ash_writer *w, const ash_node *node) {
    name out = value(w, node->out), x = node->n_ins ? value(w, node->ins[0]) : "";
    const ash_type *type = out_type(w, node);
    switch (node->op) {
    case ASH_OP_RESHAPE: ash_writer__reshape(w, out, x, type->dims, type->rank); break;
    case ASH_OP_BROADCAST: op2(w, out, "Expand", x, ash_writer__dims(w, type->dims, type->rank)); break;
    case ASH_OP_TRANSPOSE: {
        const ash_writer_attr attrs[] = {
            WRITE_INTS("perm", ash_node_list(node, ASH_ATTR_PERM), type->rank)};
        ash_writer__op(w, out, "Transpose", &x, 1, attrs, type->rank ? 1 : 0);
        break;
    }
    case ASH_OP_SLICE: write_slice(w, node); break;
    case ASH_OP_PAD: write_pad(w, node); break;
    case ASH_OP_IOTA: write_iota(w, node); break;
    case ASH_OP_CONCAT: {
        const ash_writer_attr attrs[] = {WRITE_INT("axis", ash_node_int(node, ASH_ATTR_AXIS))};
        name *ins = ash_arena_alloc(&w->names, node->n_ins, sizeof *ins);
        if (!ins) {
            ash_writer__fail(w, ASH_ERROR_OUT_OF_MEMORY, "out of memory");
            return;
        }
        for (size_t k = 0; k < node->n_ins; k++) ins[k] = value(w, node->ins[k]);
        ash_writer__op(w, out, "Concat", ins, node->n_ins, attrs, 1);
        break;
    }
    default: break;
    }
}

/* --- reductions and windows ----------------------------------------------------------------------- */

/* bool has no reductions in ONNX: it goes through u8. */
static void write_reduce(ash_writer *w, const ash_node *node) {
    const char *op = node->op == ASH_OP_REDUCE_SUM    ? "ReduceSum"
                     : node->op == ASH_OP_REDUCE_PROD ? "ReduceProd"
                     : node->op == ASH_OP_REDUCE_MAX  ? "ReduceMax"
                                                      : "ReduceMin";
    const ash_attr *axes = ash_node_attr(node, ASH_ATTR_AXES);
    const ash_writer_attr attrs[] = {WRITE_INT("keepdims", 0), WRITE_INT("noop_with_empty_axes", 1)};
    bool is_bool = in_type(w, node, 0)->dtype == ASH_BOOL;
    name x = value(w, node->ins[0]);
    if (is_bool) x = ash_writer__cast(w, NULL, x, ASH_U8);
    const name ins[] = {x, ash_writer__ints(w, axes->list, axes->count)};
    x = ash_writer__op(w, is_bool ? NULL : value(w, node->out), op, ins, 2, attrs, 2);
    if (is_bool) ash_writer__cast(w, value(w, node->out), x, ASH_BOOL);
}

static void write_arg(ash_writer *w, const ash_node *node) {
    const ash_writer_attr attrs[] = {WRITE_INT("axis", ash_node_int(node, ASH_ATTR_AXIS)),
                                     WRITE_INT("keepdims", 0),
                                     WRITE_INT("select_last_index", ash_node_int(node, ASH_ATTR_LAST))};
    ash_writer__op(w, value(w, node->out), node->op == ASH_OP_ARGMAX ? "ArgMax" : "ArgMin",
                   &w->values[node->ins[0]], 1, attrs, 3);
}

/* What a maximum never is, a scalar: nothing is less. */
static name least(ash_writer *w, ash_dtype dtype) {
    if (ash_dtype_is_float(dtype)) return number(w, dtype, -INFINITY);
    bool is_signed = ash_dtype_kind(dtype) == ASH_KIND_SIGNED;
    int64_t low = is_signed ? INT64_MIN >> (64 - 8 * ash_dtype_size(dtype)) : 0;
    const ash_type scalar = {.dtype = dtype};
    return ash_writer__constant(w, NULL, &scalar, &low,
                                ash_dtype_size(dtype)); /* the low bytes come first */
}

typedef struct windows {
    const int64_t *axes;
    size_t n;
    int64_t pads[2 * ASH_MAX_RANK]; /* before the axes, then after them */
} windows;

/* Fills in the pads, and returns the operand x, with its type. Where pads are not numbers, x is padded by a
 * node of its own, with `fill`, or, where that is NULL, with what changes no result. */
static name pad_windows(ash_writer *w, const ash_node *node, name x, name fill, windows *win,
                        ash_type *type) {
    const int64_t *axes = win->axes;
    const size_t n = win->n;
    int64_t *pads = win->pads;
    ash_dim all[2 * ASH_MAX_RANK] = {0};
    bool numbers = true;
    *type = *in_type(w, node, 0);
    memcpy(pads, ash_node_list(node, ASH_ATTR_BEFORE), n * sizeof *pads);
    memcpy(pads + n, ash_node_list(node, ASH_ATTR_AFTER), n * sizeof *pads);
    for (size_t i = 0; i < 2 * n; i++) {
        numbers &= ash_dim_is_const(pads[i]);
        all[axes[i % n] + (i < n ? 0 : type->rank)] = pads[i];
    }
    if (numbers) return x;
    for (size_t i = 0; i < 2 * n; i++)
        type->dims[axes[i % n]] = ash_writer__combine(w, ASH_DIM_ADD, type->dims[axes[i % n]], pads[i]);
    memset(pads, 0, 2 * n * sizeof *pads);
    if (!fill)
        fill = node->op == ASH_OP_POOL_MAX ? least(w, type->dtype) : ash_writer__zero(w, type->dtype);
    return op3(w, NULL, "Pad", x, ash_writer__dims(w, all, 2 * type->rank), fill);
}

/* The operands of ConvInteger: bytes, weights, and their zero points. */
static bool bytes_operands(ash_writer *w, const ash_node *node, name ins[4]) {
    ash_value operands[4];
    if (!ash_writer__bytes(w->graph, node, operands)) return false;
    for (size_t k = 0; k < 2; k++) {
        ash_value zero = operands[2 + k];
        const ash_type *type = zero == ASH_NO_VALUE ? NULL : ash_graph__type(w->graph, zero);
        bool rows = type && type->rank == 1 && type->dims[0] != 1;
        ins[k] = value(w, operands[k]);
        ins[2 + k] = !type  ? ash_writer__zero(w, ash_graph__type(w->graph, operands[k])->dtype)
                     : rows ? value(w, zero)
                            : ash_writer__reshape(w, NULL, value(w, zero), NULL, 0);
    }
    return true;
}

static void write_conv(ash_writer *w, const ash_node *node) {
    size_t n = in_type(w, node, 0)->rank - 2;
    int64_t axes[ASH_MAX_RANK];
    windows win = {.axes = axes, .n = n};
    ash_type type;
    if (node->op == ASH_OP_WINOGRAD || node->op == ASH_OP_CONV_WEIGHTS || ash_op__is_wide(node->op) ||
        ash_node_int(node, ASH_ATTR_X_BLOCK) || ash_node_int(node, ASH_ATTR_Y_BLOCK) ||
        ash_node_int(node, ASH_ATTR_W_BLOCK)) {
        ash_writer__fail(w, ASH_ERROR_UNSUPPORTED, "a blocked layout");
        return;
    }
    name ins[4] = {value(w, node->ins[0]), value(w, node->ins[1])};
    bool bytes = bytes_operands(w, node, ins);
    if (!bytes && !ash_dtype_is_float(in_type(w, node, 0)->dtype)) {
        ash_writer__fail(w, ASH_ERROR_UNSUPPORTED,
                         "ONNX has convolutions of floating point numbers, and of bytes less a zero point");
        return;
    }
    for (size_t i = 0; i < n; i++) axes[i] = (int64_t)i + 2;
    ins[0] = pad_windows(w, node, ins[0], ins[2], &win, &type);
    const ash_writer_attr attrs[] = {WRITE_INTS("strides", ash_node_list(node, ASH_ATTR_STRIDES), n),
                                     WRITE_INTS("dilations", ash_node_list(node, ASH_ATTR_DILATIONS), n),
                                     WRITE_INTS("pads", win.pads, 2 * n),
                                     WRITE_INT("group", ash_node_int(node, ASH_ATTR_GROUPS))};
    ash_writer__op(w, value(w, node->out), bytes ? "ConvInteger" : "Conv", ins, bytes ? 4 : 2, attrs, 4);
}

/* The windowed axes last and all others merged into the first: [others, 1, windowed...], where ONNX pools.
 * `perm` receives the order of the axes. */
static name gather_axes(ash_writer *w, const ash_node *node, name x, const ash_type *type, int64_t *perm,
                        ash_type *others) {
    const ash_attr *axes = ash_node_attr(node, ASH_ATTR_AXES);
    unsigned n = 0;
    ash_dim dims[ASH_MAX_RANK + 2] = {1, 1};
    *others = (ash_type){.dtype = type->dtype};
    for (unsigned i = 0; i < type->rank; i++) {
        bool windowed = false;
        for (uint32_t k = 0; k < axes->count; k++) windowed |= axes->list[k] == (int64_t)i;
        if (windowed) continue;
        others->dims[others->rank++] = type->dims[i];
        perm[n++] = i;
        dims[0] = ash_writer__combine(w, ASH_DIM_MUL, dims[0], type->dims[i]);
    }
    for (uint32_t k = 0; k < axes->count; k++) {
        perm[n++] = axes->list[k];
        dims[2 + k] = type->dims[axes->list[k]];
    }
    const ash_writer_attr attrs[] = {WRITE_INTS("perm", perm, n)};
    x = ash_writer__op(w, NULL, "Transpose", &x, 1, attrs, 1);
    return ash_writer__reshape(w, NULL, x, dims, 2 + axes->count);
}

static void scatter_axes(ash_writer *w, const ash_node *node, name x, const int64_t *perm,
                         const ash_type *others) {
    const ash_type *type = out_type(w, node);
    const ash_attr *axes = ash_node_attr(node, ASH_ATTR_AXES);
    ash_type split = *others;
    int64_t back[ASH_MAX_RANK];
    for (uint32_t k = 0; k < axes->count; k++) split.dims[split.rank++] = type->dims[axes->list[k]];
    for (unsigned i = 0; i < split.rank; i++) back[perm[i]] = i;
    x = ash_writer__reshape(w, NULL, x, split.dims, split.rank);
    const ash_writer_attr attrs[] = {WRITE_INTS("perm", back, split.rank)};
    ash_writer__op(w, value(w, node->out), "Transpose", &x, 1, attrs, 1);
}

/* A sum over windows is a convolution with ones; where the dtype has none, the mean times the window's size
 * would do, but ONNX has means of floating point numbers alone too. */
static name sum_windows(ash_writer *w, name out, name x, const ash_node *node, const ash_writer_attr *attrs,
                        size_t n) {
    const ash_type *type = in_type(w, node, 0);
    const int64_t *kernel = ash_node_list(node, ASH_ATTR_KERNEL);
    ash_type weight = {.dtype = ASH_F32, .rank = (unsigned)n + 2, .dims = {1, 1}};
    static const float one = 1;
    const ash_type scalar = {.dtype = ASH_F32};
    for (size_t i = 0; i < n; i++) weight.dims[i + 2] = kernel[i];
    if (!ash_dtype_is_float(type->dtype)) {
        ash_writer__fail(w, ASH_ERROR_UNSUPPORTED, "sums of %s over windows", ash_dtype_name(type->dtype));
        return x;
    }
    name ones = op2(w, NULL, "Expand", ash_writer__constant(w, NULL, &scalar, &one, sizeof one),
                    ash_writer__ints(w, weight.dims, weight.rank));
    if (type->dtype != ASH_F32) ones = ash_writer__cast(w, NULL, ones, type->dtype);
    return ash_writer__op(w, out, "Conv", (const name[]){x, ones}, 2, attrs, 4);
}

static void write_pool(ash_writer *w, const ash_node *node) {
    const ash_attr *axes = ash_node_attr(node, ASH_ATTR_AXES);
    size_t n = axes->count;
    int64_t perm[ASH_MAX_RANK];
    windows win = {.axes = axes->list, .n = n};
    ash_type type, others;
    name x = pad_windows(w, node, value(w, node->ins[0]), NULL, &win, &type);
    const ash_writer_attr attrs[] = {WRITE_INTS("kernel_shape", ash_node_list(node, ASH_ATTR_KERNEL), n),
                                     WRITE_INTS("strides", ash_node_list(node, ASH_ATTR_STRIDES), n),
                                     WRITE_INTS("dilations", ash_node_list(node, ASH_ATTR_DILATIONS), n),
                                     WRITE_INTS("pads", win.pads, 2 * n)};
    bool spatial = type.rank == n + 2;
    for (size_t i = 0; i < n; i++) spatial &= axes->list[i] == (int64_t)i + 2;
    if (node->op == ASH_OP_POOL_MAX && spatial) {
        ash_writer__op(w, value(w, node->out), "MaxPool", &x, 1, attrs, 4);
        return;
    }
    x = gather_axes(w, node, x, &type, perm, &others);
    if (node->op == ASH_OP_POOL_MAX)
        x = ash_writer__op(w, NULL, "MaxPool", &x, 1, attrs, 4);
    else
        x = sum_windows(w, NULL, x, node, attrs, n);
    scatter_axes(w, node, x, perm, &others);
}

/* --- indexed access, scans, order ----------------------------------------------------------------- */

static void write_indexed(ash_writer *w, const ash_node *node, const char *op, const ash_writer_attr *attrs,
                          size_t n) {
    name ins[3];
    for (size_t k = 0; k < node->n_ins; k++) ins[k] = value(w, node->ins[k]);
    ash_writer__op(w, value(w, node->out), op, ins, node->n_ins, attrs, n);
}

static void write_access(ash_writer *w, const ash_node *node) {
    static const char *const modes[] = {[ASH_SCATTER_SET] = "none",
                                        [ASH_SCATTER_ADD] = "add",
                                        [ASH_SCATTER_MUL] = "mul",
                                        [ASH_SCATTER_MIN] = "min",
                                        [ASH_SCATTER_MAX] = "max"};
    bool has_axis = node->op != ASH_OP_GATHER_ND && node->op != ASH_OP_SCATTER_ND;
    bool scatters = node->op == ASH_OP_SCATTER_ELEMENTS || node->op == ASH_OP_SCATTER_ND;
    ash_writer_attr attrs[2];
    size_t n = 0;
    if (has_axis) attrs[n++] = WRITE_INT("axis", ash_node_int(node, ASH_ATTR_AXIS));
    if (scatters) attrs[n++] = WRITE_TEXT("reduction", modes[ash_node_int(node, ASH_ATTR_MODE)]);
    if (node->op == ASH_OP_GATHER_ND)
        attrs[n++] = WRITE_INT("batch_dims", ash_node_int(node, ASH_ATTR_BATCH));
    switch (node->op) {
    case ASH_OP_GATHER: write_indexed(w, node, "Gather", attrs, n); break;
    case ASH_OP_GATHER_ELEMENTS: write_indexed(w, node, "GatherElements", attrs, n); break;
    case ASH_OP_GATHER_ND: write_indexed(w, node, "GatherND", attrs, n); break;
    case ASH_OP_SCATTER_ELEMENTS: write_indexed(w, node, "ScatterElements", attrs, n); break;
    default: write_indexed(w, node, "ScatterND", attrs, n); break;
    }
}

static void write_cumsum(ash_writer *w, const ash_node *node) {
    const ash_writer_attr attrs[] = {WRITE_INT("exclusive", ash_node_int(node, ASH_ATTR_EXCLUSIVE)),
                                     WRITE_INT("reverse", ash_node_int(node, ASH_ATTR_REVERSE))};
    int64_t axis = ash_node_int(node, ASH_ATTR_AXIS);
    const name ins[] = {value(w, node->ins[0]), ash_writer__ints(w, &axis, 1)};
    ash_writer__op(w, value(w, node->out), "CumSum", ins, 2, attrs, 2);
}

static void write_topk(ash_writer *w, const ash_node *node) {
    const ash_writer_attr attrs[] = {WRITE_INT("axis", ash_node_int(node, ASH_ATTR_AXIS)),
                                     WRITE_INT("largest", ash_node_int(node, ASH_ATTR_LARGEST))};
    ash_dim k = ash_node_int(node, ASH_ATTR_K);
    const name ins[] = {value(w, node->ins[0]), ash_writer__dims(w, &k, 1)};
    const name outs[] = {value(w, node->out), value(w, node->out + 1)};
    const ash_writer_node topk = {
        .op = "TopK", .ins = ins, .n_ins = 2, .outs = outs, .n_outs = 2, .attrs = attrs, .n_attrs = 2};
    ash_writer__node(w, &topk);
}

/* A size that is computed, and checked, is the size alone: where it is below zero, what it is the size of
 * fails, and the limit is that of this graph's memory. */
static void write_call(ash_writer *w, const ash_node *node) {
    const char *function = ash_node__function(w->graph, node)->name;
    if (strcmp(function, ASH_ONNX_CHECK_SIZE) == 0)
        op1(w, value(w, node->out), "Identity", value(w, node->ins[0]));
    else if (strcmp(function, ASH_ONNX_REFUSE) == 0)
        ash_writer__fail(
            w, ASH_ERROR_UNSUPPORTED,
            "only one branch of this If fits these shapes, and ONNX cannot refuse the other: the "
            "input that decides must be bound when the model is read");
    else
        ash_writer__fail(w, ASH_ERROR_UNSUPPORTED,
                         "a call of the function \"%.60s\", for which ONNX has no form", function);
}

void ash_writer__core(ash_writer *w, const ash_node *node) {
    if (write_elementwise(w, node)) return;
    switch (ash_op_infos[node->op].class) {
    case ASH_CLASS_MOVE: write_move(w, node); break;
    case ASH_CLASS_REDUCE: write_reduce(w, node); break;
    case ASH_CLASS_SUMS: ash_writer__fail(w, ASH_ERROR_UNSUPPORTED, "sums that are taken together"); break;
    case ASH_CLASS_ARGREDUCE: write_arg(w, node); break;
    case ASH_CLASS_CONV: write_conv(w, node); break;
    case ASH_CLASS_POOL: write_pool(w, node); break;
    case ASH_CLASS_GATHER:
    case ASH_CLASS_SCATTER: write_access(w, node); break;
    case ASH_CLASS_SCAN: write_cumsum(w, node); break;
    case ASH_CLASS_TOPK: write_topk(w, node); break;
    case ASH_CLASS_MATMUL:
        if (node->op == ASH_OP_ATTEND || node->op == ASH_OP_MATMUL_LIBRARY || ash_op__is_wide(node->op) ||
            ash_node_int(node, ASH_ATTR_B_BLOCK)) /* so has matmul_bits */
            ash_writer__fail(w, ASH_ERROR_UNSUPPORTED, "a form of one target");
        else
            op2(w, value(w, node->out), "MatMul", value(w, node->ins[0]), value(w, node->ins[1]));
        break;
    case ASH_CLASS_NONZERO: ash_writer__found(w, node); break;
    case ASH_CLASS_NMS: ash_writer__chosen(w, node); break;
    case ASH_CLASS_SETTLE: ash_writer__settle(w, node); break;
    case ASH_CLASS_LOOP: ash_writer__loop(w, node); break;
    case ASH_CLASS_CUSTOM: write_call(w, node); break;
    default: ash_writer__fail(w, ASH_ERROR_UNSUPPORTED, "ONNX has no form for it");
    }
}
