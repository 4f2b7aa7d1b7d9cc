/* SPDX-License-Identifier: MIT */
/* Slices, pads and concats. The measure: nodes, then elements moved. */
#include "simplify.h"

/* --- slice ---------------------------------------------------------------------------------------- */

typedef struct slice {
    unsigned rank;
    int64_t starts[ASH_MAX_RANK], steps[ASH_MAX_RANK];
    ash_dim dims[ASH_MAX_RANK];
} slice;

static slice read_slice(const ash_node *n) {
    const ash_attr *dims = ash_node_attr(n, ASH_ATTR_DIMS);
    slice s = {.rank = dims->count};
    memcpy(s.dims, dims->list, s.rank * sizeof *s.dims);
    memcpy(s.starts, ash_node_list(n, ASH_ATTR_STARTS), s.rank * sizeof *s.starts);
    memcpy(s.steps, ash_node_list(n, ASH_ATTR_STEPS), s.rank * sizeof *s.steps);
    return s;
}

static ash_value make_slice(ash_rewrite *rw, ash_value x, const slice *s) {
    return ash_slice(rw->to, x, s->starts, s->steps, s->dims);
}

/* True when dim d of the operand, which has `dim` elements, comes through whole. */
static bool is_whole(const slice *s, unsigned d, ash_dim dim) {
    return s->starts[d] == 0 && s->dims[d] == dim && (s->steps[d] == 1 || dim == 1);
}

/* A slice of everything. */
static ash_value slice_all(ash_rewrite *rw, const ash_node *n) {
    slice s = read_slice(n);
    const ash_type *type = ash_graph__type(rw->to, n->ins[0]);
    for (unsigned d = 0; d < s.rank; d++)
        if (!is_whole(&s, d, type->dims[d])) return ASH_NO_VALUE;
    return n->ins[0];
}

/* Whether the slice of a value can be shown not to leave it; `like` is any slice of that rank. Of two
 * slices each can, and of both in one it may be too much for dims that are expressions. */
static bool stays_inside(ash_rewrite *rw, ash_value x, const slice *s, const ash_node *like) {
    const ash_type *in = ash_graph__type(rw->to, x);
    ash_attr attrs[3];
    ash_type out;
    ash_node node = *like;
    if (node.n_attrs != ASH_COUNT(attrs)) return false;
    for (unsigned i = 0; i < node.n_attrs; i++) {
        attrs[i] = like->attrs[i];
        attrs[i].list = attrs[i].key == ASH_ATTR_STARTS  ? s->starts
                        : attrs[i].key == ASH_ATTR_STEPS ? s->steps
                                                         : s->dims;
    }
    node.ins = &x, node.attrs = attrs;
    return ash_infer(rw->to->dims, &node, in, &out, NULL) == ASH_OK;
}

/* slice(slice(x)) -> slice(x) where the starts are numbers. */
static ash_value slice_twice(ash_rewrite *rw, const ash_node *n) {
    ash_node inner;
    if (!ash_rewrite__def(rw, n->ins[0], ASH_OP_SLICE, &inner)) return ASH_NO_VALUE;
    slice outer = read_slice(n), s = read_slice(&inner);
    for (unsigned d = 0; d < s.rank; d++) {
        int64_t skipped;
        if (outer.starts[d] == 0 && s.steps[d] == 1) { /* the start may be an expression */
            s.steps[d] = outer.steps[d];
        } else {
            if (outer.starts[d] < 0 || s.starts[d] < 0) return ASH_NO_VALUE;
            if (!ash_mul_i64(outer.starts[d], s.steps[d], &skipped)) return ASH_NO_VALUE;
            if (!ash_add_i64(s.starts[d], skipped, &s.starts[d]) || s.starts[d] < 0) return ASH_NO_VALUE;
            if (!ash_mul_i64(s.steps[d], outer.steps[d], &s.steps[d])) return ASH_NO_VALUE;
        }
        s.dims[d] = outer.dims[d];
    }
    return stays_inside(rw, inner.ins[0], &s, n) ? make_slice(rw, inner.ins[0], &s) : ASH_NO_VALUE;
}

/* The only dim that a slice cuts, and all with step 1; false when there are more, or none. */
static bool only_cut(const slice *s, const ash_type *type, unsigned *axis) {
    bool found = false;
    for (unsigned d = 0; d < s->rank; d++) {
        if (is_whole(s, d, type->dims[d])) continue;
        if (found || s->steps[d] != 1 || s->starts[d] < 0 || !ash_dim_is_const(s->dims[d])) return false;
        found = true;
        *axis = d;
    }
    return found;
}

/* slice(concat(..., x, ...)) -> slice(x) when it lies in one operand. */
static ash_value slice_of_concat(ash_rewrite *rw, const ash_node *n) {
    ash_node concat;
    unsigned axis;
    if (!ash_rewrite__def(rw, n->ins[0], ASH_OP_CONCAT, &concat)) return ASH_NO_VALUE;
    slice s = read_slice(n);
    if (!only_cut(&s, ash_graph__type(rw->to, n->ins[0]), &axis)) return ASH_NO_VALUE;
    if (axis != (unsigned)ash_node_int(&concat, ASH_ATTR_AXIS)) return ASH_NO_VALUE;
    for (size_t k = 0; k < concat.n_ins; k++) {
        ash_dim size = ash_graph__type(rw->to, concat.ins[k])->dims[axis];
        if (!ash_dim_is_const(size)) return ASH_NO_VALUE;
        if (s.starts[axis] < size)
            return s.dims[axis] <= size - s.starts[axis] ? make_slice(rw, concat.ins[k], &s) : ASH_NO_VALUE;
        s.starts[axis] -= size;
    }
    return ASH_NO_VALUE;
}

/* --- pad ------------------------------------------------------------------------------------------ */

/* A pad by nothing. */
static ash_value pad_nothing(ash_rewrite *rw, const ash_node *n) {
    const ash_attr *before = ash_node_attr(n, ASH_ATTR_BEFORE);
    const int64_t *after = ash_node_list(n, ASH_ATTR_AFTER),
                  *interior = ash_node_list(n, ASH_ATTR_INTERIOR);
    const ash_type *type = ash_graph__type(rw->to, n->ins[0]);
    for (unsigned d = 0; d < before->count; d++)
        if (before->list[d] || after[d] || (interior[d] && type->dims[d] != 1)) return ASH_NO_VALUE;
    return n->ins[0];
}

/* pad(pad(x, c), c) -> pad(x, c) when nothing is put between elements by the outer one. */
static ash_value pad_twice(ash_rewrite *rw, const ash_node *n) {
    ash_node inner;
    int64_t before[ASH_MAX_RANK], after[ASH_MAX_RANK];
    if (!ash_rewrite__def(rw, n->ins[0], ASH_OP_PAD, &inner) || inner.ins[1] != n->ins[1])
        return ASH_NO_VALUE;
    unsigned rank = ash_node_attr(n, ASH_ATTR_BEFORE)->count;
    for (unsigned d = 0; d < rank; d++) {
        if (ash_node_list(n, ASH_ATTR_INTERIOR)[d]) return ASH_NO_VALUE;
        before[d] = ash_graph_dim_add(rw->to, ash_node_list(n, ASH_ATTR_BEFORE)[d],
                                      ash_node_list(&inner, ASH_ATTR_BEFORE)[d]);
        after[d] = ash_graph_dim_add(rw->to, ash_node_list(n, ASH_ATTR_AFTER)[d],
                                     ash_node_list(&inner, ASH_ATTR_AFTER)[d]);
    }
    ash_attr attrs[] = {ASH_ATTR_LIST(BEFORE, before, rank), ASH_ATTR_LIST(AFTER, after, rank),
                        *ash_node_attr(&inner, ASH_ATTR_INTERIOR)};
    return ash_build(rw->to, ASH_OP_PAD, inner.ins, 2, attrs, 3);
}

/* --- concat --------------------------------------------------------------------------------------- */

static unsigned axis_of(const ash_node *concat) {
    return (unsigned)ash_node_int(concat, ASH_ATTR_AXIS);
}

static ash_value make_concat(ash_rewrite *rw, const ash_node *like, const ash_value *ins, size_t n_ins) {
    return ash_build(rw->to, ASH_OP_CONCAT, ins, n_ins, like->attrs, like->n_attrs);
}

static ash_value *operand_list(ash_rewrite *rw, size_t count) {
    ash_value *list = ash_arena_alloc(&rw->scratch, count, sizeof *list);
    if (!list) ash_graph__fail(rw->to, ASH_ERROR_OUT_OF_MEMORY, "out of memory");
    return list;
}

/* concat(x) -> x */
static ash_value concat_one(ash_rewrite *rw, const ash_node *n) {
    (void)rw;
    return n->n_ins == 1 ? n->ins[0] : ASH_NO_VALUE;
}

/* Operands without elements along the axis add nothing. */
static ash_value concat_empty(ash_rewrite *rw, const ash_node *n) {
    size_t empty = 0, count = 0;
    unsigned axis = axis_of(n);
    for (size_t k = 0; k < n->n_ins; k++) empty += ash_graph__type(rw->to, n->ins[k])->dims[axis] == 0;
    if (empty == 0 || n->n_ins == 1) return ASH_NO_VALUE;
    ash_value *ins = operand_list(rw, n->n_ins);
    if (!ins) return ASH_NO_VALUE;
    for (size_t k = 0; k < n->n_ins; k++)
        if (ash_graph__type(rw->to, n->ins[k])->dims[axis] != 0) ins[count++] = n->ins[k];
    return count ? make_concat(rw, n, ins, count) : n->ins[0];
}

/* Lists up to this length are taken apart: rules that rebuild a list for each of its operands would not be
 * linear else. */
enum { MAX_OPERANDS = 64 };

/* concat(concat(a, b), c) -> concat(a, b, c) along one axis. */
static ash_value concat_nested(ash_rewrite *rw, const ash_node *n) {
    size_t total = 0, count = 0;
    for (size_t k = 0; k < n->n_ins; k++) {
        ash_node inner;
        bool nested =
            ash_rewrite__def(rw, n->ins[k], ASH_OP_CONCAT, &inner) && axis_of(&inner) == axis_of(n);
        total += nested ? inner.n_ins : 1;
    }
    if (total == n->n_ins || total > MAX_OPERANDS) return ASH_NO_VALUE;
    ash_value *ins = operand_list(rw, total);
    if (!ins) return ASH_NO_VALUE;
    for (size_t k = 0; k < n->n_ins; k++) {
        ash_node inner;
        if (ash_rewrite__def(rw, n->ins[k], ASH_OP_CONCAT, &inner) && axis_of(&inner) == axis_of(n))
            for (size_t i = 0; i < inner.n_ins; i++) ins[count++] = inner.ins[i];
        else
            ins[count++] = n->ins[k];
    }
    return make_concat(rw, n, ins, total);
}

/* True when the two are slices of one value that meet along the axis; *joined is both in one. */
static bool meet(const ash_rewrite *rw, ash_value a, ash_value b, unsigned axis, ash_value *source,
                 slice *joined) {
    ash_node of_a, of_b;
    if (!ash_rewrite__def(rw, a, ASH_OP_SLICE, &of_a) || !ash_rewrite__def(rw, b, ASH_OP_SLICE, &of_b))
        return false;
    if (of_a.ins[0] != of_b.ins[0]) return false;
    slice s = read_slice(&of_a), t = read_slice(&of_b);
    for (unsigned d = 0; d < s.rank; d++) {
        if (s.steps[d] != t.steps[d]) return false;
        if (d != axis && (s.starts[d] != t.starts[d] || s.dims[d] != t.dims[d])) return false;
    }
    if (s.steps[axis] != 1 || s.starts[axis] < 0 || t.starts[axis] < 0) return false;
    if (!ash_dim_is_const(s.dims[axis]) || !ash_dim_is_const(t.dims[axis])) return false;
    if (t.starts[axis] - s.starts[axis] != s.dims[axis]) return false;
    s.dims[axis] += t.dims[axis];
    *source = of_a.ins[0];
    *joined = s;
    return true;
}

/* concat(..., slice(x, a..b), slice(x, b..c), ...) -> concat(..., slice(x, a..c), ...): a split that is
 * undone. */
static ash_value concat_of_slices(ash_rewrite *rw, const ash_node *n) {
    unsigned axis = axis_of(n);
    if (n->n_ins > MAX_OPERANDS) return ASH_NO_VALUE;
    for (size_t k = 0; k + 1 < n->n_ins; k++) {
        ash_value source;
        slice joined;
        if (!meet(rw, n->ins[k], n->ins[k + 1], axis, &source, &joined)) continue;
        ash_value *ins = operand_list(rw, n->n_ins - 1);
        if (!ins) return ASH_NO_VALUE;
        memcpy(ins, n->ins, k * sizeof *ins);
        ins[k] = make_slice(rw, source, &joined);
        memcpy(ins + k + 1, n->ins + k + 2, (n->n_ins - k - 2u) * sizeof *ins);
        return make_concat(rw, n, ins, n->n_ins - 1u);
    }
    return ASH_NO_VALUE;
}

/* concat(splat c, splat c) -> splat c */
static ash_value concat_of_splats(ash_rewrite *rw, const ash_node *n) {
    ash_node first, other;
    if (!ash_rewrite__def(rw, n->ins[0], ASH_OP_BROADCAST, &first)) return ASH_NO_VALUE;
    ash_type type = ash_rewrite__type(rw, n->ins[0]);
    unsigned axis = axis_of(n);
    if (!ash_type_is_one(ash_graph__type(rw->to, first.ins[0]))) return ASH_NO_VALUE;
    for (size_t k = 1; k < n->n_ins; k++) {
        if (!ash_rewrite__def(rw, n->ins[k], ASH_OP_BROADCAST, &other) || other.ins[0] != first.ins[0])
            return ASH_NO_VALUE;
        type.dims[axis] =
            ash_graph_dim_add(rw->to, type.dims[axis], ash_graph__type(rw->to, n->ins[k])->dims[axis]);
    }
    return ash_broadcast_to(rw->to, first.ins[0], type.dims, type.rank);
}

static const ash_rule rules[] = {
    ASH_RULE(SLICE, cut, slice_all),         ASH_RULE(SLICE, cut, slice_twice),
    ASH_RULE(SLICE, cut, slice_of_concat),   ASH_RULE(PAD, cut, pad_nothing),
    ASH_RULE(PAD, cut, pad_twice),           ASH_RULE(CONCAT, cut, concat_one),
    ASH_RULE(CONCAT, cut, concat_empty),     ASH_RULE(CONCAT, cut, concat_nested),
    ASH_RULE(CONCAT, cut, concat_of_slices), ASH_RULE(CONCAT, cut, concat_of_splats),
};

const ash_rules ash_rules_cut = {rules, ASH_COUNT(rules)};
