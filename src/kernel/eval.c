/* SPDX-License-Identifier: MIT */
/* Evaluation by demand: the element of a value at an index, as instructions. */
#include "tile.h"

#include <math.h>

/* --- remembering ---------------------------------------------------------------------------------- */

static uint64_t memo_hash(const ash_kern *k, ash_value value, unsigned rank, const ash_ix *idx) {
    uint32_t key[2 + ASH_MAX_RANK] = {value, k->context};
    for (unsigned d = 0; d < rank; d++) key[2 + d] = idx[d];
    return ash_hash(key, (2 + rank) * sizeof *key, 0);
}

static bool recall(const ash_kern *k, uint64_t hash, ash_value value, unsigned rank, const ash_ix *idx,
                   ash_ref *ref) {
    uint64_t at;
    if (!ash_map_get(&k->memo_ids, hash, &at) || at >= k->memo.len) return false;
    const ash_kern_memo *m = &k->memo.at[at];
    if (m->hash != hash || m->value != value || m->context != k->context) return false;
    for (unsigned d = 0; d < rank; d++)
        if (m->idx[d] != idx[d]) return false;
    *ref = m->ref;
    return true;
}

static void remember(ash_kern *k, uint64_t hash, ash_value value, unsigned rank, const ash_ix *idx,
                     ash_ref ref) {
    ash_kern_memo m = {.hash = hash, .value = value, .context = k->context, .ref = ref};
    for (unsigned d = 0; d < rank; d++) m.idx[d] = idx[d];
    if (!ash_map_put(&k->memo_ids, hash, k->memo.len) || !ash_vec_push(k->low->allocator, &k->memo, m))
        k->failed = true;
}

/* --- movement ------------------------------------------------------------------------------------- */

static ash_ref eval_iota(ash_kern *k, const ash_node *node, const ash_ix *idx) {
    ash_ix at = idx[ash_node_int(node, ASH_ATTR_AXIS)];
    if (k->collecting) {
        ash_kern_collect(k, ASH_NO_VALUE, at);
        return 0;
    }
    ash_ref ref = ash_kern_is_vector(k, at) ? ash_kern_vector_index(k, at) : ash_kern_index(k, at);
    return ash_nest_cast(&k->nest, ash_kern_dtype(ash_graph__type(k->graph, node->out)->dtype), ref);
}

static ash_ref eval_virtual(ash_kern *k, const ash_node *node, const ash_ix *idx) {
    ash_ix to[ASH_MAX_RANK] = {0};
    if (node->op == ASH_OP_IOTA) return eval_iota(k, node, idx);
    ash_ix_behind(&k->ixs, k->graph, node, idx, to);
    return ash_kern_eval(k, node->ins[0], to);
}

/* Whether a value has to be read from its buffer here: it is a leaf, or the root of another group. */
static bool is_stored(const ash_kern *k, ash_value value) {
    const ash_value_info *info = ash_graph__value(k->graph, value);
    if (info->kind != ASH_VALUE_NODE) return true;
    uint32_t group = k->low->fusion.group_of[info->node];
    return group != ASH_NO_GROUP && group != k->group_id;
}

bool ash_kern_is_passed(const ash_kern *k, ash_value value) {
    return !is_stored(k, value);
}

bool ash_kern_address(ash_kern *k, ash_value value, const ash_ix *idx, ash_value *stored, ash_ix *linear) {
    ash_ix at[ASH_MAX_RANK], to[ASH_MAX_RANK] = {0};
    memcpy(at, idx, ash_graph__type(k->graph, value)->rank * sizeof *at);
    while (!is_stored(k, value)) {
        const ash_node *node = &k->graph->nodes.at[ash_graph__value(k->graph, value)->node];
        if (!ash_op_is_virtual(node->op) || node->op == ASH_OP_IOTA) return false;
        ash_ix_behind(&k->ixs, k->graph, node, at, to);
        memcpy(at, to, sizeof at);
        value = node->ins[0];
    }
    *stored = value;
    *linear = ash_kern_linear(k, value, at);
    return !k->ixs.failed;
}

/* --- padding: an element of the operand, or the padding value ------------------------------------- */

enum { MOST_STRIDE = 1 << 16 };

/* Positions in 32 bits against both ends at once: what is below zero is a large number without a sign. */
static ash_ref are_below(ash_kern *k, ash_ref first, int64_t stride, ash_ref limit) {
    ash_nest *n = &k->nest;
    ash_ref at = ash_nest_cast(n, ASH_U32, ash_nest_lanes(n, k->lanes));
    if (stride > 1)
        at = ash_nest_binary(n, ASH_OP_MUL, at, ash_kern_splat(k, ash_nest_int(n, ASH_U32, stride)));
    at = ash_nest_binary(n, ASH_OP_ADD, ash_kern_splat(k, ash_nest_cast(n, ASH_U32, first)), at);
    return ash_nest_binary(n, ASH_OP_LT, at, ash_kern_splat(k, ash_nest_cast(n, ASH_U32, limit)));
}

ash_ref ash_kern_first_lanes(ash_kern *k, ash_ref number) {
    ash_nest *n = &k->nest;
    ash_ref lanes = ash_nest_lanes(n, k->lanes);
    const bool is_known = !n->failed && ash_nest_at(n, number)->op == ASH_NEST_INT;
    if (!is_known && k->lanes > ash_target_lanes(k->low->target, sizeof(int64_t)))
        lanes = ash_nest_cast(n, ASH_I32, lanes), number = ash_nest_cast(n, ASH_I32, number);
    return ash_nest_binary(n, ASH_OP_LT, lanes, ash_nest_splat(n, number, k->lanes));
}

/* Numbers of lanes are compared, which are small, so that a compare has as many lanes as one of f32. Where
 * 32 bits are enough for the positions themselves, and there are masks, both ends are one compare. */
ash_ref ash_kern_lanes_in_bounds(ash_kern *k, ash_ref first, bool low, ash_ref limit, bool small) {
    ash_nest *n = &k->nest;
    if (small && low && limit != ASH_NO_REF && k->low->target->masks) return are_below(k, first, 1, limit);
    ash_ref zero = ash_nest_index(n, 0), count = ash_nest_index(n, k->lanes), ok = ASH_NO_REF;
    ash_ref lane = ash_nest_cast(n, ASH_I32, ash_nest_lanes(n, k->lanes));
    if (low) {
        ash_ref from = ash_nest_binary(n, ASH_OP_MIN, ash_nest_binary(n, ASH_OP_SUB, zero, first), count);
        from = ash_nest_binary(n, ASH_OP_MAX, from, zero);
        ok = ash_nest_binary(n, ASH_OP_LE, ash_kern_splat(k, ash_nest_cast(n, ASH_I32, from)), lane);
    }
    if (limit != ASH_NO_REF) {
        ash_ref to = ash_nest_binary(n, ASH_OP_SUB, limit, first);
        to = ash_nest_binary(n, ASH_OP_MAX, ash_nest_binary(n, ASH_OP_MIN, to, count), zero);
        ash_ref below =
            ash_nest_binary(n, ASH_OP_LT, lane, ash_kern_splat(k, ash_nest_cast(n, ASH_I32, to)));
        ok = ok == ASH_NO_REF ? below : ash_nest_binary(n, ASH_OP_AND, ok, below);
    }
    return ok;
}

ash_ref ash_kern_in_bounds(ash_kern *k, ash_ix at, ash_dim limit) {
    ash_nest *n = &k->nest;
    ash_sum sum = ash_ix_sum(&k->ixs, at);
    int64_t limit_min, limit_max;
    ash_dims_bounds(k->ixs.dims, limit, &limit_min, &limit_max);
    bool low = sum.min < 0, high = sum.max >= limit_min;
    if ((!low && !high) || (limit_min > 0 && ash_ix_is_below(&k->ixs, at, limit))) return ASH_NO_REF;
    if (sum.n == 1) { /* 0 <= a / b < l is 0 <= a < b l, without a division for each lane */
        ash_term term = k->ixs.terms.at[sum.first];
        ash_atom atom = k->ixs.atoms.at[term.atom];
        if (atom.kind == ASH_ATOM_DIV && term.c == 1 && term.d == 1)
            return ash_kern_in_bounds(k, atom.ref, ash_kern_product(k, atom.by, limit));
    }
    int64_t stride;
    if (ash_kern_is_vector(k, at) &&
        ash_ix_lane_stride(&k->ixs, at, k->vsym, k->lanes, k->aligned, &stride)) {
        bool small = limit_max <= INT32_MAX && sum.min > INT32_MIN && sum.max < INT32_MAX;
        if (stride == 1)
            return ash_kern_lanes_in_bounds(k, ash_kern_index(k, at), low,
                                            high ? ash_kern_dim(k, limit) : ASH_NO_REF, small);
        /* where all of it is a number, it is a constant vector anyway */
        if (small && k->low->target->masks && !ash_dim_is_const(limit) && stride > 1 &&
            stride <= MOST_STRIDE)
            return are_below(k, ash_kern_index(k, at), stride, ash_kern_dim(k, limit));
    }
    ash_ref ref = ash_kern_is_vector(k, at) ? ash_kern_vector_index(k, at) : ash_kern_index(k, at),
            ok = ASH_NO_REF;
    if (low) ok = ash_kern_binary(k, ASH_OP_LE, ash_nest_index(n, 0), ref);
    if (high) {
        ash_ref below = ash_kern_binary(k, ASH_OP_LT, ref, ash_kern_dim(k, limit));
        ok = ok == ASH_NO_REF ? below : ash_kern_binary(k, ASH_OP_AND, ok, below);
    }
    return ok;
}

void ash_kern_narrow(ash_kern *k, ash_ref condition) {
    ash_nest *n = &k->nest;
    if (condition == ASH_NO_REF || n->failed) return;
    ash_ref *slot = ash_nest_at(n, condition)->lanes > 1 ? &k->mask : &k->guard;
    *slot = *slot == ASH_NO_REF ? condition : ash_nest_binary(n, ASH_OP_AND, *slot, condition);
}

/* Whether a value is what a masked load found, in lanes that are off zero, and so is what would be chosen
 * there: all that a choice by a part of the mask could do is done. (Asked where sizes are variables. With
 * numbers the choice costs nothing: on a Sapphire Rapids images of 31 x 31 and more take 7 to 13 % longer
 * without, as their stores then follow each other closer.) */
static bool is_chosen(const ash_nest *n, ash_ref value, ash_ref other) {
    const ash_inst *loaded = ash_nest_at(n, value), *zero = ash_nest_at(n, other);
    if (loaded->op != ASH_NEST_LOAD || loaded->lanes == 1 || loaded->b == ASH_NO_REF) return false;
    if (zero->op == ASH_NEST_SPLAT) zero = ash_nest_at(n, zero->a);
    return (zero->op == ASH_NEST_INT && zero->i == 0) ||
           (zero->op == ASH_NEST_FLOAT && zero->f == 0 && !signbit(zero->f));
}

static ash_ref eval_pad(ash_kern *k, const ash_node *node, const ash_ix *idx) {
    const ash_type *in = ash_graph__type(k->graph, node->ins[0]),
                   *out = ash_graph__type(k->graph, node->out);
    const int64_t *before = ash_node_list(node, ASH_ATTR_BEFORE),
                  *interior = ash_node_list(node, ASH_ATTR_INTERIOR);
    ash_nest *n = &k->nest;
    ash_ix to[ASH_MAX_RANK];
    ash_ref hit = ASH_NO_REF;
    bool open = false;
    static const ash_ix scalar[1];
    ash_ref fill = ash_kern_eval(k, node->ins[1], scalar);
    ash_kern_scope scope = ash_kern_enter(k);
    for (unsigned d = 0; d < in->rank; d++) {
        ash_ix at = ash_ix_sub(&k->ixs, idx[d], ash_ix_dim(&k->ixs, before[d]));
        to[d] = ash_ix_div(&k->ixs, at, interior[d] + 1);
        if (k->collecting && (to[d] != idx[d])) ash_kern_collect(k, ASH_NO_VALUE, at);
        /* whatever the condition will be, there is one */
        if (k->collecting && (to[d] != idx[d] || in->dims[d] != out->dims[d])) k->guard = 0;
        ash_dim limit = in->dims[d];
        if (interior[d] &&
            ash_dims_combine(k->ixs.dims, ASH_DIM_MUL, limit, interior[d] + 1, &limit, NULL) != ASH_OK)
            k->failed = k->too_large = true;
        ash_ref ok = k->collecting || k->ixs.failed ? ASH_NO_REF : ash_kern_in_bounds(k, at, limit);
        if (!interior[d] && !ash_ix_is_below(&k->ixs, at, limit))
            ash_ix_assume(&k->ixs, at, limit); /* else nothing is read */
        if (k->collecting || k->ixs.failed) continue;
        if (interior[d]) {
            ash_ix rest = ash_ix_mod(&k->ixs, at, interior[d] + 1);
            ash_ref r =
                ash_kern_is_vector(k, rest) ? ash_kern_vector_index(k, rest) : ash_kern_index(k, rest);
            ash_ref on = ash_kern_binary(k, ASH_OP_EQ, r, ash_nest_index(n, 0));
            ok = ok == ASH_NO_REF ? on : ash_kern_binary(k, ASH_OP_AND, ok, on);
        }
        if (ok == ASH_NO_REF) continue;
        open = open || !ash_dim_is_const(limit);
        ash_kern_narrow(k, ok);
        hit = hit == ASH_NO_REF ? ok : ash_kern_binary(k, ASH_OP_AND, hit, ok);
    }
    ash_ref value = ash_kern_eval(k, node->ins[0], to);
    ash_kern_leave(k, scope);
    if (k->collecting || hit == ASH_NO_REF || n->failed || (open && is_chosen(n, value, fill)))
        return value;
    unsigned lanes = ASH_MAX(ASH_MAX(ash_nest_at(n, hit)->lanes, ash_nest_at(n, value)->lanes),
                             ash_nest_at(n, fill)->lanes);
    if (lanes > 1)
        hit = ash_kern_splat(k, hit), value = ash_kern_splat(k, value), fill = ash_kern_splat(k, fill);
    return ash_nest_select(n, hit, value, fill);
}

/* --- indexed access ------------------------------------------------------------------------------- */

/* Element `at` of a tensor of indices as an expression: negative ones count from the end, the rest is
 * clamped. An axis that may have no elements adds its condition to *some. */
static ash_ix loaded_index(ash_kern *k, ash_value indices, const ash_ix *at, ash_dim size, ash_ref *some) {
    ash_nest *n = &k->nest;
    int64_t min, max;
    uint64_t syms = 0;
    ash_ix known;
    if (ash_kern_table_index(k, indices, at, size, &known)) return known;
    ash_ref raw = ash_kern_eval(k, indices, at);
    if (k->ixs.failed) return 0;
    for (unsigned d = 0; d < ash_graph__type(k->graph, indices)->rank; d++)
        syms |= ash_ix_syms(&k->ixs, at[d]);
    ash_dims_bounds(k->ixs.dims, size, &min, &max);
    const ash_type *type = ash_graph__type(k->graph, indices);
    bool up;
    const bool from_zero = ash_kern_is_from_zero(k, indices),
               by_one = from_zero && ash_kern_is_close(k, indices, &up),
               close = by_one || (type->rank == 1 && ash_kern_expects_close(k, type->dims[0], size));
    k->close |= close;
    if (k->collecting)
        return ash_ix_loaded(&k->ixs, (ash_ref)k->ixs.atoms.len, max - 1, syms); /* like no other */
    if (n->failed) return 0;
    ash_ref i = ash_nest_at(n, raw)->dtype == ASH_I64 ? raw : ash_nest_cast(n, ASH_I64, raw);
    ash_ref limit = ash_kern_dim(k, size), zero = ash_nest_index(n, 0);
    ash_ref last = ash_nest_binary(n, ASH_OP_SUB, limit, ash_nest_index(n, 1));
    if (min == 0) {
        ash_ref ok = ash_nest_binary(n, ASH_OP_LT, zero, limit);
        *some = *some == ASH_NO_REF ? ok : ash_nest_binary(n, ASH_OP_AND, *some, ok);
    }
    if (!from_zero) {
        if (ash_nest_at(n, i)->lanes > 1) zero = ash_kern_splat(k, zero), limit = ash_kern_splat(k, limit);
        i = ash_nest_select(n, ash_nest_binary(n, ASH_OP_LT, i, zero),
                            ash_nest_binary(n, ASH_OP_ADD, i, limit), i);
        i = ash_kern_binary(k, ASH_OP_MAX, i, zero);
    }
    i = ash_kern_binary(k, ASH_OP_MIN, i, last);
    if (close)
        ash_kern_note_close(k, at[0], i, size,
                            !by_one ? ASH_CLOSE_PERHAPS
                            : up    ? ASH_CLOSE_UP
                                    : ASH_CLOSE_BY_ONE);
    return ash_ix_loaded(&k->ixs, i, max - 1, syms);
}

/* The operand's index; *some: whether there is anything to read, or ASH_NO_REF where there always is. */
static void index_gather(ash_kern *k, const ash_node *node, const ash_ix *idx, ash_ix *to, ash_ref *some) {
    const ash_type *x = ash_graph__type(k->graph, node->ins[0]),
                   *indices = ash_graph__type(k->graph, node->ins[1]);
    ash_value from = node->ins[1];
    ash_ix at[ASH_MAX_RANK];
    if (node->op == ASH_OP_GATHER_ND) {
        unsigned outer = indices->rank - 1, batch = (unsigned)ash_node_int(node, ASH_ATTR_BATCH);
        unsigned depth = (unsigned)indices->dims[outer];
        for (unsigned d = 0; d < outer; d++) at[d] = idx[d];
        for (unsigned d = 0; d < batch; d++) to[d] = idx[d];
        for (unsigned d = 0; d < depth; d++) {
            at[outer] = ash_ix_const(&k->ixs, d);
            to[batch + d] = loaded_index(k, from, at, x->dims[batch + d], some);
        }
        for (unsigned d = batch + depth; d < x->rank; d++) to[d] = idx[outer + d - batch - depth];
        return;
    }
    unsigned axis = (unsigned)ash_node_int(node, ASH_ATTR_AXIS);
    if (node->op == ASH_OP_GATHER_ELEMENTS) {
        for (unsigned d = 0; d < x->rank; d++) to[d] = idx[d];
        to[axis] = loaded_index(k, from, idx, x->dims[axis], some);
        return;
    }
    for (unsigned d = 0; d < indices->rank; d++) at[d] = idx[axis + d];
    for (unsigned d = 0; d < axis; d++) to[d] = idx[d];
    for (unsigned d = axis + 1; d < x->rank; d++) to[d] = idx[d + indices->rank - 1];
    to[axis] = loaded_index(k, from, at, x->dims[axis], some);
}

/* What the bytes at an index name in a table. */
static ash_ref eval_lookup(ash_kern *k, const ash_node *node, ash_value bytes, const ash_ix *idx) {
    ash_tile_operand table;
    const ash_ix first = ash_ix_const(&k->ixs, 0);
    ash_ref at = ash_kern_eval(k, bytes, idx);
    if (k->collecting || ash_kern_lost(k)) return at;
    bool stored = ash_tile_operand_at(k, node->ins[0], &first, &table);
    ash_kern_expect(k, stored); /* as fusion has asked for it */
    return stored ? ash_nest_lookup(&k->nest, table.buf, ash_kern_index(k, table.linear), at) : 0;
}

static ash_ref eval_gather(ash_kern *k, const ash_node *node, const ash_ix *idx) {
    ash_ix to[ASH_MAX_RANK] = {0};
    ash_ref some = ASH_NO_REF;
    ash_value bytes = ash_node__looked_up(k->graph, node);
    if (bytes != ASH_NO_VALUE) return eval_lookup(k, node, bytes, idx);
    index_gather(k, node, idx, to, &some);
    if (some == ASH_NO_REF) return ash_kern_eval(k, node->ins[0], to);
    /* zero where an axis is empty */
    ash_kern_scope scope = ash_kern_enter(k);
    ash_kern_narrow(k, some);
    ash_ref value = ash_kern_eval(k, node->ins[0], to);
    ash_kern_leave(k, scope);
    if (k->nest.failed) return 0;
    ash_ref zero = ash_kern_neutral(k, ASH_OP_ADD, (ash_dtype)ash_nest_at(&k->nest, value)->dtype);
    if (ash_nest_at(&k->nest, value)->lanes > 1)
        some = ash_kern_splat(k, some), zero = ash_kern_splat(k, zero);
    return ash_nest_select(&k->nest, some, value, zero);
}

/* --- a reduction over dims of 1 alone ------------------------------------------------------------- */

static ash_ref eval_dropped_dims(ash_kern *k, const ash_node *node, const ash_ix *idx) {
    const ash_type *in = ash_graph__type(k->graph, node->ins[0]);
    const ash_attr *axes = ash_node_attr(node, ASH_ATTR_AXES);
    ash_ix to[ASH_MAX_RANK];
    for (unsigned d = 0, a = 0; d < in->rank; d++) {
        bool dropped = a < axes->count && axes->list[a] == d;
        to[d] = dropped ? ash_ix_const(&k->ixs, 0) : idx[d - a];
        a += dropped;
    }
    return ash_kern_eval(k, node->ins[0], to);
}

/* --- elementwise ---------------------------------------------------------------------------------- */

/* Whether the element of a half float that is computed here, in f32, is one of its dtype: it has been
 * stored, or rounded by a cast. */
static bool is_rounded(const ash_kern *k, ash_value value) {
    while (!is_stored(k, value)) {
        const ash_node *node = &k->graph->nodes.at[ash_graph__value(k->graph, value)->node];
        if (ash_op_infos[node->op].class == ASH_CLASS_CAST) return true;
        if (!ash_op_is_virtual(node->op) || node->op == ASH_OP_IOTA) return false;
        value = node->ins[0];
    }
    return true;
}

/* Half floats are not rounded between the operators of a kernel. A cast shows what they are to another
 * type, so there they are. */
static ash_ref eval_cast(ash_kern *k, const ash_node *node, ash_ref in) {
    ash_nest *n = &k->nest;
    ash_dtype from = ash_graph__type(k->graph, node->ins[0])->dtype,
              to = ash_graph__type(k->graph, node->out)->dtype, wide = ash_kern_dtype(to);
    if (node->op == ASH_OP_BITCAST)
        in = ash_nest_bitcast(n, to, ash_nest_cast(n, from, in));
    else if (from != to && from != ash_kern_dtype(from) && !is_rounded(k, node->ins[0]))
        in = ash_nest_cast(n, ash_kern_dtype(from), ash_nest_cast(n, from, in));
    if (ash_nest_at(n, in)->dtype != to) in = ash_nest_cast(n, to, in);
    return to == wide ? in : ash_nest_cast(n, wide, in); /* the rounding stays */
}

static ash_ref eval_elementwise(ash_kern *k, const ash_node *node, const ash_ix *idx) {
    ash_nest *n = &k->nest;
    ash_ref in[3] = {ASH_NO_REF, ASH_NO_REF, ASH_NO_REF};
    unsigned lanes = 1;
    for (unsigned i = 0; i < node->n_ins; i++) {
        in[i] = ash_kern_eval(k, node->ins[i], idx);
        if (ash_kern_lost(k)) return 0;
        if (!k->collecting) lanes = ASH_MAX(lanes, ash_nest_at(n, in[i])->lanes);
    }
    if (k->collecting) return 0;
    if (lanes > 1)
        for (unsigned i = 0; i < node->n_ins; i++) in[i] = ash_kern_splat(k, in[i]);
    switch (ash_op_infos[node->op].class) {
    case ASH_CLASS_UNARY: return ash_nest_unary(n, node->op, in[0]);
    case ASH_CLASS_SELECT: return ash_nest_select(n, in[0], in[1], in[2]);
    case ASH_CLASS_CAST: return eval_cast(k, node, in[0]);
    default: return ash_nest_binary(n, node->op, in[0], in[1]);
    }
}

ash_ref ash_kern_eval(ash_kern *k, ash_value value, const ash_ix *idx) {
    if (ash_kern_lost(k)) return 0;
    for (size_t i = 0; i < k->known.len; i++)
        if (k->known.at[i].value == value) return k->known.at[i].ref;
    const ash_value_info *info = ash_graph__value(k->graph, value);
    unsigned rank = info->type.rank;
    uint64_t hash = memo_hash(k, value, rank, idx);
    ash_ref ref;
    if (recall(k, hash, value, rank, idx, &ref)) return ref;
    if (is_stored(k, value)) {
        ref = ash_kern_load(k, value, idx);
    } else {
        const ash_node *node = &k->graph->nodes.at[info->node];
        if (ash_op_is_virtual(node->op))
            ref = eval_virtual(k, node, idx);
        else if (node->op == ASH_OP_PAD)
            ref = eval_pad(k, node, idx);
        else if (ash_op_infos[node->op].class == ASH_CLASS_GATHER)
            ref = eval_gather(k, node, idx);
        else if (ash_op_infos[node->op].class == ASH_CLASS_REDUCE)
            ref = eval_dropped_dims(k, node, idx);
        else
            ref = eval_elementwise(k, node, idx);
    }
    remember(k, hash, value, rank, idx, ref);
    return ref;
}
