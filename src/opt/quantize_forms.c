/* SPDX-License-Identifier: MIT */
/* Integers with a scale: what is known of them, and how they move. */
#include "quantize.h"

enum { DEPTH = 8 }; /* nodes that are followed for a constant */

/* --- values --------------------------------------------------------------------------------------- */

static bool is_byte(ash_dtype dtype) {
    return dtype == ASH_U8 || dtype == ASH_I8;
}

bool ash_quantum__is_bytes(const ash_rewrite *rw, const ash_quantum *v) {
    return ash_quantum__known(v) && is_byte(ash_graph__type(rw->to, v->q)->dtype);
}

ash_value ash_quantum__centred(ash_rewrite *rw, const ash_quantum *v) {
    ash_value x = ash_cast(rw->to, v->q, ASH_I32);
    return v->zero == ASH_NO_VALUE ? x : ash_sub(rw->to, x, v->zero);
}

ash_value ash_quantum__value(ash_rewrite *rw, const ash_quantum *v) {
    ash_value x = ash_quantum__centred(rw, v);
    if (v->real) x = ash_cast(rw->to, x, ASH_F32);
    return v->scale == ASH_NO_VALUE ? x : ash_mul(rw->to, x, v->scale);
}

/* --- zero points and scales ----------------------------------------------------------------------- */

ash_value ash_quantum__lift(ash_rewrite *rw, ash_value param, unsigned rank) {
    if (param == ASH_NO_VALUE) return param;
    ash_type type = ash_rewrite__type(rw, param);
    ash_dim dims[ASH_MAX_RANK];
    for (unsigned d = 0; d < rank; d++)
        dims[d] = d + type.rank < rank ? 1 : type.dims[d + type.rank - rank];
    return ash_reshape(rw->to, param, dims, rank);
}

ash_value ash_quantum__param(ash_rewrite *rw, ash_value operand) {
    if (operand == ASH_NO_VALUE) return operand;
    ash_node node;
    ash_type type = ash_rewrite__type(rw, operand);
    unsigned wide = 0; /* dims with several numbers */
    if (ash_rewrite__def(rw, operand, ASH_OP_BROADCAST, &node))
        return ash_quantum__lift(rw, node.ins[0], type.rank);
    for (unsigned d = 0; d < type.rank; d++) wide += type.dims[d] != 1;
    return wide <= 1 ? operand : ASH_NO_VALUE;
}

bool ash_quantum__same_along(const ash_rewrite *rw, ash_value param, unsigned axis) {
    return param == ASH_NO_VALUE || ash_graph__type(rw->to, param)->dims[axis] == 1;
}

bool ash_quantum__is_one(const ash_rewrite *rw, ash_value param) {
    return param == ASH_NO_VALUE || ash_type_is_one(ash_graph__type(rw->to, param));
}

/* The operand of the node, if a value is made by one that keeps numbers as they are. */
static bool step_back(const ash_rewrite *rw, bool casts, ash_value *value) {
    ash_node node;
    if (!ash_rewrite__def(rw, *value, ASH_OP_RESHAPE, &node) &&
        !(casts && ash_rewrite__def(rw, *value, ASH_OP_BROADCAST, &node)) &&
        !(casts && ash_rewrite__def(rw, *value, ASH_OP_CAST, &node)))
        return false;
    if (node.op == ASH_OP_CAST && !is_byte(ash_graph__type(rw->to, node.ins[0])->dtype)) return false;
    *value = node.ins[0];
    return true;
}

const ash_value_info *ash_quantum__constant(const ash_rewrite *rw, ash_value value) {
    if (value == ASH_NO_VALUE) return NULL;
    for (unsigned depth = 0; depth < DEPTH && step_back(rw, false, &value);) depth++;
    const ash_value_info *info = ash_graph__value(rw->to, value);
    return info->kind == ASH_VALUE_CONSTANT ? info : NULL;
}

/* Whether `count` elements all have the bytes of the first. */
static bool all_alike(const ash_blob *blob, size_t size, int64_t count) {
    return count == 1 || !memcmp(blob->data, (const char *)blob->data + size, (size_t)(count - 1) * size);
}

bool ash_quantum__number(const ash_rewrite *rw, ash_value value, double *out) {
    int64_t count, i = 0;
    if (value == ASH_NO_VALUE) return false;
    for (unsigned depth = 0; depth < DEPTH && step_back(rw, true, &value);) depth++;
    const ash_value_info *info = ash_graph__value(rw->to, value);
    if (info->kind != ASH_VALUE_CONSTANT || !ash_type_static_count(&info->type, &count) || count < 1 ||
        !all_alike(info->blob, ash_dtype_size(info->type.dtype), count))
        return false;
    ash_wide wide = {.dtype = info->type.dtype, .count = 1};
    if (ash_dtype_is_float(info->type.dtype)) {
        wide.f = out;
        ash_wide_load(&wide, info->blob->data);
    } else {
        wide.i = &i;
        ash_wide_load(&wide, info->blob->data);
        *out = (double)i;
    }
    return true;
}

static bool same_number(const ash_rewrite *rw, ash_value a, ash_value b, double absent) {
    double x = absent, y = absent;
    if (a == b) return true;
    return (a == ASH_NO_VALUE || ash_quantum__number(rw, a, &x)) &&
           (b == ASH_NO_VALUE || ash_quantum__number(rw, b, &y)) && x == y;
}

bool ash_quantum__same_scale(const ash_rewrite *rw, const ash_quantum *a, const ash_quantum *b) {
    return ash_quantum__is_one(rw, a->zero) && ash_quantum__is_one(rw, a->scale) &&
           ash_quantum__is_one(rw, b->zero) && ash_quantum__is_one(rw, b->scale) && a->real == b->real &&
           same_number(rw, a->zero, b->zero, 0) && same_number(rw, a->scale, b->scale, 1);
}

/* --- movement ------------------------------------------------------------------------------------- */

/* A parameter of a value with dims `from` behind a reshape to `to`: the dims that it has numbers for are
 * among the last of both, or among the first. */
static bool reshape_param(ash_rewrite *rw, ash_value *param, const ash_type *from, const ash_type *to) {
    if (*param == ASH_NO_VALUE) return true;
    ash_type type = ash_rewrite__type(rw, *param);
    ash_dim dims[ASH_MAX_RANK];
    unsigned first = 0, last = type.rank; /* numbers for dims [first, last) */
    while (first < last && type.dims[first] == 1) first++;
    while (last > first && type.dims[last - 1] == 1) last--;
    for (unsigned d = 0; d < to->rank; d++) dims[d] = 1;
    unsigned tail = type.rank - first;
    bool behind = tail <= to->rank, before = last <= to->rank;
    for (unsigned d = 0; d < tail && behind; d++)
        behind = from->dims[first + d] == to->dims[to->rank - tail + d];
    for (unsigned d = 0; d < last && before; d++) before = from->dims[d] == to->dims[d];
    if (first == last)
        ;
    else if (behind)
        memcpy(dims + to->rank - tail, type.dims + first, tail * sizeof *dims);
    else if (before)
        memcpy(dims, type.dims, last * sizeof *dims);
    else
        return false;
    *param = ash_reshape(rw->to, *param, dims, to->rank);
    return true;
}

static ash_value transpose_param(ash_rewrite *rw, ash_value param, const ash_node *node) {
    if (ash_quantum__is_one(rw, param)) return param;
    return ash_transpose(rw->to, param, ash_node_list(node, ASH_ATTR_PERM));
}

static ash_value slice_param(ash_rewrite *rw, ash_value param, const ash_node *node) {
    if (ash_quantum__is_one(rw, param)) return param;
    ash_type type = ash_rewrite__type(rw, param);
    ash_dim starts[ASH_MAX_RANK], dims[ASH_MAX_RANK];
    int64_t steps[ASH_MAX_RANK];
    for (unsigned d = 0; d < type.rank; d++) {
        bool one = type.dims[d] == 1;
        starts[d] = one ? 0 : ash_node_list(node, ASH_ATTR_STARTS)[d];
        steps[d] = one ? 1 : ash_node_list(node, ASH_ATTR_STEPS)[d];
        dims[d] = one ? 1 : ash_node_list(node, ASH_ATTR_DIMS)[d];
    }
    return ash_slice(rw->to, param, starts, steps, dims);
}

/* A parameter of what is gathered from: the dims of the indices take the place of dim `axis`. */
static bool gather_param(ash_rewrite *rw, ash_value *param, unsigned axis, unsigned indices) {
    if (*param == ASH_NO_VALUE) return true;
    ash_type type = ash_rewrite__type(rw, *param);
    ash_dim dims[ASH_MAX_RANK];
    unsigned n = 0;
    if (type.dims[axis] != 1) return false;
    for (unsigned d = 0; d < axis; d++) dims[n++] = type.dims[d];
    for (unsigned d = 0; d < indices; d++) dims[n++] = 1;
    for (unsigned d = axis + 1; d < type.rank; d++) dims[n++] = type.dims[d];
    *param = ash_reshape(rw->to, *param, dims, n);
    return true;
}

/* Maxima of integers are those of what they stand for where the scale is positive, and where every window
 * has an element: one of padding alone gives the lowest of each type. */
static bool pools(const ash_rewrite *rw, const ash_node *node, const ash_quantum *in) {
    const ash_attr *axes = ash_node_attr(node, ASH_ATTR_AXES);
    const int64_t *kernel = ash_node_list(node, ASH_ATTR_KERNEL),
                  *dilations = ash_node_list(node, ASH_ATTR_DILATIONS),
                  *before = ash_node_list(node, ASH_ATTR_BEFORE),
                  *after = ash_node_list(node, ASH_ATTR_AFTER);
    double scale = 1;
    if (!ash_quantum__is_bytes(rw, in)) return false;
    if (in->scale != ASH_NO_VALUE && (!ash_quantum__number(rw, in->scale, &scale) || !(scale > 0)))
        return false;
    for (uint32_t i = 0; i < axes->count; i++)
        if (!ash_dim_is_const(before[i]) || !ash_dim_is_const(after[i]) || dilations[i] != 1 ||
            before[i] >= kernel[i] || after[i] >= kernel[i] ||
            !ash_quantum__same_along(rw, in->zero, (unsigned)axes->list[i]))
            return false;
    return true;
}

/* The number around a padded value is 0, and so is the zero point around its integers. */
static ash_value pad_number(ash_rewrite *rw, const ash_node *node, const ash_quantum *in) {
    double number;
    ash_value value = ash_rewrite__get(rw, node->ins[1]);
    ash_dtype dtype = ash_graph__type(rw->to, in->q)->dtype;
    if (value == ASH_NO_VALUE || !ash_quantum__number(rw, value, &number) || number != 0 ||
        !ash_quantum__is_one(rw, in->zero) || !ash_quantum__is_one(rw, in->scale))
        return ASH_NO_VALUE;
    if (in->zero == ASH_NO_VALUE) return ash_scalar(rw->to, dtype, 0);
    return ash_cast(rw->to, ash_reshape(rw->to, in->zero, NULL, 0), dtype);
}

bool ash_quantum__move(ash_rewrite *rw, const ash_node *node, const ash_quantum *in, ash_quantum *out) {
    if (!ash_quantum__known(in) || !ash_rewrite__ok(rw)) return false;
    ash_type from = ash_rewrite__type(rw, in->q), to = *ash_graph__type(rw->from, node->out);
    ash_quantum v = *in;
    ash_value ins[] = {in->q, ASH_NO_VALUE};
    size_t n = 1;
    switch (node->op) {
    case ASH_OP_RESHAPE:
        if (!reshape_param(rw, &v.zero, &from, &to) || !reshape_param(rw, &v.scale, &from, &to))
            return false;
        break;
    case ASH_OP_TRANSPOSE:
        v.zero = transpose_param(rw, v.zero, node), v.scale = transpose_param(rw, v.scale, node);
        break;
    case ASH_OP_BROADCAST:
        v.zero = ash_quantum__lift(rw, v.zero, to.rank), v.scale = ash_quantum__lift(rw, v.scale, to.rank);
        break;
    case ASH_OP_SLICE:
        v.zero = slice_param(rw, v.zero, node), v.scale = slice_param(rw, v.scale, node);
        break;
    case ASH_OP_PAD: ins[1] = pad_number(rw, node, in), n = 2; break;
    case ASH_OP_GATHER: {
        unsigned axis = (unsigned)ash_node_int(node, ASH_ATTR_AXIS);
        unsigned indices = ash_graph__type(rw->from, node->ins[1])->rank;
        if (!gather_param(rw, &v.zero, axis, indices) || !gather_param(rw, &v.scale, axis, indices))
            return false;
        ins[1] = ash_rewrite__get(rw, node->ins[1]), n = 2;
        break;
    }
    case ASH_OP_POOL_MAX:
        if (!pools(rw, node, in)) return false;
        break;
    default: return false;
    }
    if (n == 2 && ins[1] == ASH_NO_VALUE) return false;
    v.q = ash_build(rw->to, node->op, ins, n, node->attrs, node->n_attrs);
    if (v.q == ASH_NO_VALUE) return false;
    *out = v;
    return true;
}

bool ash_quantum__concat(ash_rewrite *rw, const ash_quantum *const *in, size_t n, unsigned axis,
                         ash_quantum *out) {
    ash_value *parts = ash_arena_alloc(&rw->scratch, n ? n : 1, sizeof *parts);
    ash_quantum v = *in[0];
    if (!parts || !ash_quantum__known(in[0])) return false;
    for (size_t i = 0; i < n; i++) {
        if (!ash_quantum__known(in[i]) || !ash_quantum__same_scale(rw, in[0], in[i]) ||
            ash_graph__type(rw->to, in[i]->q)->dtype != ash_graph__type(rw->to, v.q)->dtype)
            return false;
        parts[i] = in[i]->q;
        v.most = ASH_MAX(v.most, in[i]->most);
    }
    v.q = ash_concat(rw->to, parts, n, axis);
    if (v.q == ASH_NO_VALUE) return false;
    *out = v;
    return true;
}
