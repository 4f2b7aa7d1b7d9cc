/* SPDX-License-Identifier: MIT */
/* Shape inference: the entry, the check of attributes, and the operators whose shapes are their
 * operands'. */
#include "infer.h"

#include <stdio.h>

/* --- failures and helpers ----------------------------------------------------------------------- */

enum { SHOWN = 4 }; /* operands that a message spells out */

/* The largest number that a dim divides a variable by, if it does; *var is that variable. */
static int64_t largest_divisor(const ash_dims *dims, ash_dim dim, uint32_t *var) {
    int64_t most = 0;
    for (size_t t = 0; dim < 0 && t < ash_dims_term_count(dims, dim); t++) {
        size_t atoms;
        ash_dims_term(dims, dim, t, &atoms);
        for (size_t i = 0; i < atoms; i++) {
            const ash_dim_atom atom = ash_dims_atom(dims, dim, t, i);
            uint32_t inner = UINT32_MAX;
            int64_t more = 0;
            if (atom.is_var) {
                if (*var == UINT32_MAX) *var = atom.var;
                continue;
            }
            more = largest_divisor(dims, atom.a, &inner);
            if (atom.op == ASH_DIM_DIV) more = ASH_MAX(more, atom.b);
            if (more > most && inner != UINT32_MAX) most = more, *var = inner;
        }
    }
    return most;
}

/* Networks that halve and double an image want sizes that are multiples: told, where dims are divided. */
static void add_advice(const ash_inference *c, ash_text *text) {
    int64_t most = 0;
    uint32_t var = UINT32_MAX;
    for (size_t i = 0; i < c->n_ins; i++)
        for (unsigned d = 0; d < c->ins[i].rank; d++) {
            uint32_t inner = UINT32_MAX;
            int64_t divisor = largest_divisor(c->dims, c->ins[i].dims[d], &inner);
            if (divisor > most) most = divisor, var = inner;
        }
    if (most > 1)
        ash_text_add(text, "; if they agree for multiples of %lld alone, tie %s to another name: %lld*NAME",
                     (long long)most, ash_dims_var(c->dims, var)->name, (long long)most);
}

ash_status ash_infer__fail(const ash_inference *c, ash_status code, const char *fmt, ...) {
    char message[256];
    va_list args;
    va_start(args, fmt);
    vsnprintf(message, sizeof message, fmt, args);
    va_end(args);
    ash_text text;
    ash_text_init(&text, c->dims->allocator);
    for (size_t i = 0; i < c->n_ins && i < SHOWN; i++) {
        ash_text_add(&text, "%s", i ? ", " : "; operands ");
        ash_type_print(c->dims, &c->ins[i], &text);
    }
    if (c->n_ins > SHOWN) ash_text_add(&text, ", and %zu more", c->n_ins - SHOWN);
    if (code == ASH_ERROR_SHAPE) add_advice(c, &text);
    ash_fail(c->diag, code, "%s%s", message, text.at && !text.failed ? text.at : "");
    ash_text_free(&text);
    return code;
}

const ash_attr *ash_infer__attr(const ash_inference *c, ash_attr_key key) {
    for (size_t i = 0; i < c->n_attrs; i++)
        if (c->attrs[i].key == key) return &c->attrs[i];
    return NULL;
}

ash_status ash_infer__axis(const ash_inference *c, unsigned *axis) {
    int64_t value = ash_infer__attr(c, ASH_ATTR_AXIS)->i;
    ASH_INFER_FAIL_IF(value < 0 || value >= c->ins[0].rank, c, ASH_ERROR_SHAPE, "axis %lld in rank %u",
                      (long long)value, c->ins[0].rank);
    *axis = (unsigned)value;
    return ASH_OK;
}

ash_status ash_infer__axes(const ash_inference *c, uint32_t *set) {
    const ash_attr *axes = ash_infer__attr(c, ASH_ATTR_AXES);
    *set = 0;
    for (uint32_t i = 0; i < axes->count; i++) {
        int64_t axis = axes->list[i];
        ASH_INFER_FAIL_IF(axis < 0 || axis >= c->ins[0].rank, c, ASH_ERROR_SHAPE, "axis %lld in rank %u",
                          (long long)axis, c->ins[0].rank);
        ASH_INFER_FAIL_IF(i && axis <= axes->list[i - 1], c, ASH_ERROR_INVALID_ARGUMENT,
                          "axes are not ascending");
        *set |= UINT32_C(1) << axis;
    }
    return ASH_OK;
}

ash_status ash_infer__list(const ash_inference *c, ash_attr_key key, size_t count, int64_t min,
                           const int64_t **list) {
    const ash_attr *attr = ash_infer__attr(c, key);
    ASH_INFER_FAIL_IF(attr->count != count, c, ASH_ERROR_SHAPE, "%s has %u entries, not %zu",
                      ash_attr_infos[key].name, attr->count, count);
    for (size_t i = 0; ash_attr_infos[key].type == ASH_ATTR_TYPE_INTS && i < count; i++)
        ASH_INFER_FAIL_IF(attr->list[i] < min, c, ASH_ERROR_INVALID_ARGUMENT,
                          "%s has the entry %lld, below %lld", ash_attr_infos[key].name,
                          (long long)attr->list[i], (long long)min);
    *list = attr->list;
    return ASH_OK;
}

ash_status ash_infer__dim(const ash_inference *c, ash_dim_op op, ash_dim a, ash_dim b, ash_dim *out) {
    return ash_dims_combine(c->dims, op, a, b, out, c->diag);
}

ash_status ash_infer__at_least(const ash_inference *c, ash_dim a, ash_dim b, bool *yes) {
    if (a >= 0 && b >= 0) {
        *yes = a >= b;
        return ASH_OK;
    }
    ash_dim difference;
    int64_t min, max;
    ash_dims_bounds(c->dims, a, &min, &max); /* which know what has been required of a */
    *yes = b >= 0 && min >= b;
    if (*yes) return ASH_OK;
    ash_status status = ash_dims_combine(c->dims, ASH_DIM_SUB, a, b, &difference, c->diag);
    if (status == ASH_ERROR_OUT_OF_MEMORY) return status;
    if (status != ASH_OK) return ASH_OK; /* too large to be shown */
    ash_dims_bounds(c->dims, difference, &min, &max);
    *yes = min >= 0;
    return ASH_OK;
}

ash_status ash_infer__kind(const ash_inference *c, size_t operand, unsigned kinds, const char *what) {
    bool fits = kinds >> ash_dtype_kind(c->ins[operand].dtype) & 1;
    ASH_INFER_FAIL_IF(!fits, c, ASH_ERROR_TYPE, "operand %zu must be %s", operand, what);
    return ASH_OK;
}

ash_status ash_infer__same_dtype(const ash_inference *c, size_t first, size_t last) {
    for (size_t i = first + 1; i <= last; i++)
        ASH_INFER_FAIL_IF(c->ins[i].dtype != c->ins[first].dtype, c, ASH_ERROR_TYPE,
                          "operands %zu and %zu differ in dtype", first, i);
    return ASH_OK;
}

static ash_status same_shape(const ash_inference *c, size_t i, size_t k) {
    bool same = c->ins[i].rank == c->ins[k].rank &&
                !memcmp(c->ins[i].dims, c->ins[k].dims, c->ins[i].rank * sizeof *c->ins[i].dims);
    ASH_INFER_FAIL_IF(!same, c, ASH_ERROR_SHAPE, "operands %zu and %zu differ in shape", i, k);
    return ASH_OK;
}

/* --- attributes --------------------------------------------------------------------------------- */

static ash_status check_dim(const ash_inference *c, const char *name, ash_dim dim) {
    ASH_FAIL_IF(!ash_dims__valid(c->dims, dim), c->diag, ASH_ERROR_INVALID_ARGUMENT,
                "attribute %s: %lld is neither a size nor a dim of this graph", name, (long long)dim);
    int64_t min, max;
    ash_dims_bounds(c->dims, dim, &min, &max);
    ASH_INFER_FAIL_IF(min < 0, c, ASH_ERROR_SHAPE, "attribute %s can be %lld", name, (long long)min);
    return ASH_OK;
}

static ash_status check_attr(const ash_inference *c, const ash_attr *attr) {
    const ash_attr_info *info = &ash_attr_infos[attr->key];
    bool flag = attr->key == ASH_ATTR_LAST || attr->key == ASH_ATTR_EXCLUSIVE ||
                attr->key == ASH_ATTR_REVERSE || attr->key == ASH_ATTR_LARGEST ||
                attr->key == ASH_ATTR_UNTIL;
    switch (info->type) {
    case ASH_ATTR_TYPE_FORM:
    case ASH_ATTR_TYPE_INT:
        ASH_FAIL_IF(flag && attr->i != 0 && attr->i != 1, c->diag, ASH_ERROR_INVALID_ARGUMENT,
                    "attribute %s is %lld, neither 0 nor 1", info->name, (long long)attr->i);
        return ASH_OK;
    case ASH_ATTR_TYPE_DTYPE:
        ASH_FAIL_IF(attr->i < 0 || attr->i >= ASH_DTYPE_COUNT, c->diag, ASH_ERROR_INVALID_ARGUMENT,
                    "attribute %s: no dtype has the number %lld", info->name, (long long)attr->i);
        return ASH_OK;
    case ASH_ATTR_TYPE_DIM: return check_dim(c, info->name, attr->i);
    case ASH_ATTR_TYPE_FUNCTION:
    case ASH_ATTR_TYPE_TYPES: return ASH_OK; /* with the operator that has them */
    case ASH_ATTR_TYPE_INTS:
    case ASH_ATTR_TYPE_DIMS: break;
    }
    ASH_FAIL_IF(attr->count > ASH_MAX_RANK, c->diag, ASH_ERROR_SHAPE,
                "attribute %s has %u entries, more than %d", info->name, attr->count, ASH_MAX_RANK);
    ASH_FAIL_IF(attr->count && !attr->list, c->diag, ASH_ERROR_INVALID_ARGUMENT, "attribute %s is NULL",
                info->name);
    for (uint32_t i = 0; info->type == ASH_ATTR_TYPE_DIMS && i < attr->count; i++)
        ASH_TRY(check_dim(c, info->name, attr->list[i]));
    return ASH_OK;
}

/* Exactly the attributes of the operator's row, ascending. */
static ash_status check_attrs(const ash_inference *c) {
    uint64_t wanted = ash_op_infos[c->op].attrs, seen = 0;
    for (size_t i = 0; i < c->n_attrs; i++) {
        ash_attr_key key = c->attrs[i].key;
        ASH_FAIL_IF((unsigned)key >= ASH_ATTR_COUNT, c->diag, ASH_ERROR_INVALID_ARGUMENT,
                    "no attribute has the number %d", (int)key);
        ASH_FAIL_IF(!(wanted >> key & 1), c->diag, ASH_ERROR_INVALID_ARGUMENT, "%s takes no attribute %s",
                    ash_op_name(c->op), ash_attr_infos[key].name);
        ASH_FAIL_IF(seen >> key, c->diag, ASH_ERROR_INVALID_ARGUMENT,
                    "attribute %s is given twice, or out of order", ash_attr_infos[key].name);
        seen |= UINT64_C(1) << key;
        ASH_TRY(check_attr(c, &c->attrs[i]));
    }
    for (unsigned key = 0; key < ASH_ATTR_COUNT; key++)
        ASH_FAIL_IF((wanted & ~seen) >> key & 1, c->diag, ASH_ERROR_INVALID_ARGUMENT,
                    "attribute %s is missing", ash_attr_infos[key].name);
    return ASH_OK;
}

/* --- elementwise -------------------------------------------------------------------------------- */

static ash_status infer_unary(const ash_inference *c) {
    c->outs[0] = c->ins[0];
    switch (c->op) {
    case ASH_OP_NEG:
    case ASH_OP_ABS:
    case ASH_OP_SIGN: return ash_infer__kind(c, 0, ASH_KINDS_NUMBER, "a number");
    case ASH_OP_NOT: return ash_infer__kind(c, 0, ASH_KINDS_INT | ASH_KINDS_BOOL, "an integer or bool");
    default: return ash_infer__kind(c, 0, ASH_KINDS_FLOAT, "floating point");
    }
}

static ash_status infer_binary(const ash_inference *c) {
    ASH_TRY(ash_infer__same_dtype(c, 0, 1));
    ASH_TRY(same_shape(c, 0, 1));
    c->outs[0] = c->ins[0];
    switch (c->op) {
    case ASH_OP_AND:
    case ASH_OP_OR:
    case ASH_OP_XOR: return ash_infer__kind(c, 0, ASH_KINDS_INT | ASH_KINDS_BOOL, "an integer or bool");
    case ASH_OP_SHL:
    case ASH_OP_SHR: return ash_infer__kind(c, 0, 1 << ASH_KIND_UNSIGNED, "an unsigned integer");
    default: return ash_infer__kind(c, 0, ASH_KINDS_NUMBER, "a number");
    }
}

static ash_status infer_compare(const ash_inference *c) {
    ASH_TRY(ash_infer__same_dtype(c, 0, 1));
    ASH_TRY(same_shape(c, 0, 1));
    if (c->op != ASH_OP_EQ) ASH_TRY(ash_infer__kind(c, 0, ASH_KINDS_NUMBER, "a number"));
    c->outs[0] = c->ins[0];
    c->outs[0].dtype = ASH_BOOL;
    return ASH_OK;
}

static ash_status infer_select(const ash_inference *c) {
    ASH_TRY(ash_infer__kind(c, 0, ASH_KINDS_BOOL, "bool"));
    ASH_TRY(ash_infer__same_dtype(c, 1, 2));
    ASH_TRY(same_shape(c, 0, 1));
    ASH_TRY(same_shape(c, 1, 2));
    c->outs[0] = c->ins[1];
    return ASH_OK;
}

static ash_status infer_cast(const ash_inference *c) {
    ash_dtype from = c->ins[0].dtype, to = (ash_dtype)ash_infer__attr(c, ASH_ATTR_DTYPE)->i;
    ASH_FAIL_IF(c->op == ASH_OP_BITCAST &&
                    (from == ASH_BOOL || to == ASH_BOOL || ash_dtype_size(from) != ash_dtype_size(to)),
                c->diag, ASH_ERROR_TYPE, "the bits of %s as %s", ash_dtype_name(from), ash_dtype_name(to));
    c->outs[0] = c->ins[0];
    c->outs[0].dtype = to;
    return ASH_OK;
}

/* --- reductions and scans ----------------------------------------------------------------------- */

/* Operand 0 without the dims in `set`. */
static void drop_axes(const ash_inference *c, uint32_t set, ash_type *out) {
    *out = (ash_type){.dtype = c->ins[0].dtype};
    for (unsigned i = 0; i < c->ins[0].rank; i++)
        if (!(set >> i & 1)) out->dims[out->rank++] = c->ins[0].dims[i];
}

static ash_status infer_reduce(const ash_inference *c) {
    uint32_t set;
    bool order = c->op == ASH_OP_REDUCE_MAX || c->op == ASH_OP_REDUCE_MIN;
    ASH_TRY(ash_infer__kind(c, 0, ASH_KINDS_NUMBER | (order ? ASH_KINDS_BOOL : 0), "a number"));
    ASH_TRY(ash_infer__axes(c, &set));
    drop_axes(c, set, &c->outs[0]);
    if (c->op != ASH_OP_REDUCE_SUMS) return ASH_OK;
    const int64_t sums = ash_infer__attr(c, ASH_ATTR_SUMS)->i;
    ASH_INFER_FAIL_IF(sums != (int64_t)c->n_ins, c, ASH_ERROR_INVALID_ARGUMENT, "%lld sums of %zu operands",
                      (long long)sums, (size_t)c->n_ins);
    for (size_t i = 1; i < c->n_ins; i++) {
        ASH_INFER_FAIL_IF(!ash_type_equal(&c->ins[0], &c->ins[i]), c, ASH_ERROR_SHAPE,
                          "operand %zu is of another type", i);
        c->outs[i] = c->outs[0];
    }
    return ASH_OK;
}

static ash_status infer_argreduce(const ash_inference *c) {
    unsigned axis = 0;
    ASH_TRY(ash_infer__kind(c, 0, ASH_KINDS_NUMBER, "a number"));
    ASH_TRY(ash_infer__axis(c, &axis));
    ASH_INFER_FAIL_IF(c->ins[0].dims[axis] == 0, c, ASH_ERROR_SHAPE, "no element along axis %u", axis);
    drop_axes(c, UINT32_C(1) << axis, &c->outs[0]);
    c->outs[0].dtype = ASH_I64;
    return ASH_OK;
}

static ash_status infer_scan(const ash_inference *c) {
    unsigned axis;
    ASH_TRY(ash_infer__kind(c, 0, ASH_KINDS_NUMBER, "a number"));
    ASH_TRY(ash_infer__axis(c, &axis));
    c->outs[0] = c->ins[0];
    return ASH_OK;
}

/* --- sizes that depend on data ------------------------------------------------------------------ */

static ash_status infer_nonzero(const ash_inference *c) {
    ash_type positions = {.dtype = ASH_I64, .rank = 1, .dims = {1}};
    ASH_TRY(ash_infer__kind(c, 0, ASH_KINDS_BOOL, "bool"));
    for (unsigned d = 0; d < c->ins[0].rank; d++)
        ASH_TRY(ash_infer__dim(c, ASH_DIM_MUL, positions.dims[0], c->ins[0].dims[d], &positions.dims[0]));
    c->outs[0] = positions;
    c->outs[1] = (ash_type){.dtype = ASH_I64};
    return ASH_OK;
}

static ash_status infer_settle(const ash_inference *c) {
    uint32_t var;
    ASH_INFER_FAIL_IF(c->ins[0].dtype != ASH_I64 || c->ins[0].rank != 0, c, ASH_ERROR_TYPE,
                      "operand 0 must be an i64 scalar");
    ASH_INFER_FAIL_IF(!ash_dims_is_settled(c->dims, ash_infer__attr(c, ASH_ATTR_N)->i, &var), c,
                      ASH_ERROR_INVALID_ARGUMENT, "n is no variable that a node can settle");
    c->outs[0] = c->ins[0];
    return ASH_OK;
}

/* --- the entry ---------------------------------------------------------------------------------- */

static ash_status infer_class(const ash_inference *c) {
    switch (ash_op_infos[c->op].class) {
    case ASH_CLASS_UNARY: return infer_unary(c);
    case ASH_CLASS_BINARY: return infer_binary(c);
    case ASH_CLASS_COMPARE: return infer_compare(c);
    case ASH_CLASS_SELECT: return infer_select(c);
    case ASH_CLASS_CAST: return infer_cast(c);
    case ASH_CLASS_MOVE: return ash_infer__move(c);
    case ASH_CLASS_REDUCE:
    case ASH_CLASS_SUMS: return infer_reduce(c);
    case ASH_CLASS_ARGREDUCE: return infer_argreduce(c);
    case ASH_CLASS_MATMUL:
        if (c->op == ASH_OP_ATTEND) return ash_infer__attend(c);
        return c->op == ASH_OP_MATMUL_BITS ? ash_infer__bits(c) : ash_infer__matmul(c);
    case ASH_CLASS_CONV:
        return c->op == ASH_OP_WINOGRAD       ? ash_infer__winograd(c)
               : c->op == ASH_OP_CONV_WEIGHTS ? ash_infer__conv_weights(c)
                                              : ash_infer__conv(c);
    case ASH_CLASS_POOL: return ash_infer__pool(c);
    case ASH_CLASS_GATHER: return ash_infer__gather(c);
    case ASH_CLASS_SCATTER: return ash_infer__scatter(c);
    case ASH_CLASS_SCAN: return infer_scan(c);
    case ASH_CLASS_TOPK: return ash_infer__topk(c);
    case ASH_CLASS_NONZERO: return infer_nonzero(c);
    case ASH_CLASS_NMS: return ash_infer__nms(c);
    case ASH_CLASS_SETTLE: return infer_settle(c);
    case ASH_CLASS_CUSTOM: return ash_infer__custom(c);
    case ASH_CLASS_ARGUMENT: return ash_infer__argument(c);
    case ASH_CLASS_LOOP: return ash_infer__loop(c);
    case ASH_CLASS_STACK: return ash_infer__stack(c);
    }
    return ash_fail(c->diag, ASH_ERROR_INTERNAL, "an operator of no class");
}

ash_status ash_infer(ash_dims *dims, const ash_node *node, const ash_type *ins, ash_type *outs,
                     ash_diag *diag) {
    ash_op op = node->op;
    size_t n_ins = node->n_ins;
    ASH_FAIL_IF((unsigned)op >= ASH_OP_COUNT, diag, ASH_ERROR_INVALID_ARGUMENT,
                "no operator has the number %d", (int)op);
    const ash_op_info *info = &ash_op_infos[op];
    ASH_FAIL_IF(n_ins < info->ins_min || (n_ins > info->ins_max && info->ins_max != ASH_MANY), diag,
                ASH_ERROR_INVALID_ARGUMENT, "%s takes %s%u operand%s, not %zu", info->name,
                info->ins_max == ASH_MANY ? "at least " : "", info->ins_min, info->ins_min == 1 ? "" : "s",
                n_ins);
    const ash_inference c = {dims, op, ins, n_ins, node->attrs, node->n_attrs, outs, diag};
    ASH_TRY(check_attrs(&c));
    ASH_TRY(infer_class(&c));
    for (size_t i = 0, n = ash_op__out_count(op, node->attrs, node->n_attrs); i < n; i++) {
        for (unsigned k = outs[i].rank; k < ASH_MAX_RANK; k++) outs[i].dims[k] = 0;
        ASH_TRY(ash_type__check(dims, &outs[i], diag));
    }
    return ASH_OK;
}
