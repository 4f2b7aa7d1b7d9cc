/* SPDX-License-Identifier: MIT */
/* cse: nodes with the same operator, operands and attributes become one, and so do equal small constants.
 * The operands of commutative operators count as a set: a + b and b + a round alike.
 *
 * Value numbering by hash: one walk in topological order sees operands that are numbered already, so equal
 * expressions of any depth meet. The table maps the hash to one value; a collision of 64 bits between
 * different nodes costs a missed merge, never a wrong one, because candidates are compared in full. */
#include "rewrite.h"

enum {
    SMALL_BYTES = 4096
}; /* constants up to this size are compared by content, larger ones by their blob */

static bool is_commutative(ash_op op) {
    switch (op) {
    case ASH_OP_ADD:
    case ASH_OP_MUL:
    case ASH_OP_MIN:
    case ASH_OP_MAX:
    case ASH_OP_AND:
    case ASH_OP_OR:
    case ASH_OP_XOR:
    case ASH_OP_EQ: return true;
    default: return false;
    }
}

/* The operands as they are compared: the two of a commutative operator in ascending order. */
static const ash_value *ordered(const ash_node *node, ash_value pair[2]) {
    if (!is_commutative(node->op)) return node->ins;
    pair[0] = ASH_MIN(node->ins[0], node->ins[1]);
    pair[1] = ASH_MAX(node->ins[0], node->ins[1]);
    return pair;
}

static uint64_t hash_node(const ash_node *node) {
    ash_value pair[2];
    uint64_t h = ash_hash(ordered(node, pair), node->n_ins * sizeof *node->ins, (uint64_t)node->op);
    for (size_t i = 0; i < node->n_attrs; i++) {
        const ash_attr *attr = &node->attrs[i];
        int64_t head[] = {(int64_t)attr->key, attr->i, (int64_t)attr->count};
        h = ash_hash(head, sizeof head, h);
        if (attr->count) h = ash_hash(attr->list, attr->count * sizeof *attr->list, h);
    }
    return h;
}

static bool same_attr(const ash_attr *a, const ash_attr *b) {
    return a->key == b->key && a->i == b->i && a->count == b->count &&
           (!a->count || !memcmp(a->list, b->list, a->count * sizeof *a->list));
}

static bool same_node(const ash_node *a, const ash_node *b) {
    ash_value of_a[2], of_b[2];
    if (a->op != b->op || a->n_ins != b->n_ins || a->n_attrs != b->n_attrs) return false;
    if (a->n_ins && memcmp(ordered(a, of_a), ordered(b, of_b), a->n_ins * sizeof *a->ins)) return false;
    for (size_t i = 0; i < a->n_attrs; i++)
        if (!same_attr(&a->attrs[i], &b->attrs[i])) return false;
    return true;
}

static uint64_t hash_constant(const ash_value_info *info) {
    const ash_type *type = &info->type;
    uint64_t h =
        ash_hash(type->dims, type->rank * sizeof *type->dims, (uint64_t)type->dtype + ASH_OP_COUNT);
    if (info->blob->size <= SMALL_BYTES) return ash_hash(info->blob->data, info->blob->size, h);
    return ash_hash(&info->blob->data, sizeof info->blob->data, h);
}

static bool same_constant(const ash_value_info *a, const ash_value_info *b) {
    if (!ash_type_equal(&a->type, &b->type) || a->blob->size != b->blob->size) return false;
    if (a->blob->data == b->blob->data) return true;
    return a->blob->size <= SMALL_BYTES && !memcmp(a->blob->data, b->blob->data, a->blob->size);
}

/* The value of `to` that is in the table for this hash, or the candidate itself when there is none. */
static ash_status number(ash_map *table, uint64_t hash, ash_value candidate, ash_value *out,
                         ash_diag *diag) {
    uint64_t found;
    *out = candidate;
    if (ash_map_get(table, hash, &found))
        *out = (ash_value)found;
    else if (!ash_map_put(table, hash, candidate))
        return ASH_NO_MEMORY(diag);
    return ASH_OK;
}

static ash_status merge_constants(ash_rewrite *rw, ash_map *table) {
    const ash_graph *from = rw->from;
    for (ash_value v = 0; v < from->values.len; v++) {
        const ash_value_info *info = &from->values.at[v];
        ash_value first;
        if (info->kind != ASH_VALUE_CONSTANT || !rw->uses[v]) continue;
        ASH_TRY(number(table, hash_constant(info), v, &first, rw->diag));
        if (first != v && same_constant(info, &from->values.at[first]))
            ash_rewrite__bind(rw, v, ash_rewrite__get(rw, first));
    }
    return ASH_OK;
}

/* Binds the results of `node` to those of an equal one that is in `to`; false when there is none. */
static bool merge_node(ash_rewrite *rw, const ash_map *table, const ash_node *node, uint64_t hash) {
    uint64_t found;
    if (!ash_map_get(table, hash, &found)) return false;
    const ash_node *other = &rw->to->nodes.at[found];
    if (!same_node(node, other)) return false;
    ash_value out = other->out; /* binding may add a node, which moves *other */
    for (size_t k = 0; k < node->n_outs; k++)
        ash_rewrite__bind(rw, node->out + (ash_value)k, out + (ash_value)k);
    return true;
}

static ash_status merge_nodes(ash_rewrite *rw, ash_map *table) {
    const ash_graph *from = rw->from;
    for (size_t i = 0; i < from->nodes.len && ash_rewrite__ok(rw); i++) {
        ash_node node = from->nodes.at[i];
        if (!ash_rewrite__is_live(rw, &node)) continue;
        ash_value *ins = ash_arena_alloc(&rw->scratch, node.n_ins, sizeof *ins);
        if (!ins) return ASH_NO_MEMORY(rw->diag);
        for (size_t k = 0; k < node.n_ins; k++) ins[k] = ash_rewrite__get(rw, node.ins[k]);
        if (!ash_rewrite__ok(rw)) break;
        node.ins = ins;
        uint64_t hash = hash_node(&node);
        bool pure = ash_node__is_pure(from, &node);
        if (pure && merge_node(rw, table, &node, hash)) continue;
        size_t position = rw->to->nodes.len;
        ash_rewrite__copy(rw, &from->nodes.at[i]);
        if (ash_rewrite__ok(rw) && !ash_map_put(table, hash, position)) return ASH_NO_MEMORY(rw->diag);
    }
    return ASH_OK;
}

ash_status ash_opt__cse(const ash_opt *opt, const ash_graph *from, ash_graph **out, ash_diag *diag) {
    ash_rewrite rw;
    ash_map constants, nodes;
    ASH_TRY(ash_rewrite__begin(&rw, opt, from, diag));
    ash_map_init(&constants, from->allocator);
    ash_map_init(&nodes, from->allocator);
    ash_status status = merge_constants(&rw, &constants);
    if (status == ASH_OK) status = merge_nodes(&rw, &nodes);
    ash_map_free(&constants);
    ash_map_free(&nodes);
    return status == ASH_OK ? ash_rewrite__end(&rw, out) : ash_rewrite__abandon(&rw, status);
}
