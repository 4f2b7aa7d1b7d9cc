/* SPDX-License-Identifier: MIT */
/* simplify: the graph is built anew, and every node on its way in meets the rules for its operator until
 * none applies. One walk is enough: operands are simplified before the nodes that use them, and a rule's
 * own nodes meet the rules too.
 *
 * Known limit: rules look from a node to its operands, not to its uses. What depends on being the only use
 * of something is a pass of its own (affine). */
#include "simplify.h"

const ash_rules *const ash_rules_themes[] = {
    &ash_rules_arith,  &ash_rules_logic,  &ash_rules_power,
    &ash_rules_spread, &ash_rules_view,   &ash_rules_cut,
    &ash_rules_rank,   &ash_rules_reduce, NULL,
};

static bool applies(const ash_rewrite *rw, const ash_rule *rule, ash_op op) {
    if (rule->loose && rw->opt->exact) return false;
    return rule->op == (int)op || (rule->op == ASH_EVERY_ELEMENTWISE && ash_op_is_elementwise(op));
}

static void emit(void *user, const ash_node *node, ash_value *outs) {
    ash_rewrite *rw = user;
    for (const ash_rules *const *theme = ash_rules_themes; *theme; theme++) {
        for (size_t r = 0; r < (*theme)->len; r++) {
            const ash_rule *rule = &(*theme)->at[r];
            if (!applies(rw, rule, node->op)) continue;
            outs[0] = rule->apply(rw, node);
            if (outs[0] != ASH_NO_VALUE || !ash_rewrite__ok(rw)) return;
        }
    }
    ash_graph_add(rw->to, node->op, node->ins, node->n_ins, node->attrs, node->n_attrs, outs);
}

ash_status ash_opt__simplify(const ash_opt *opt, const ash_graph *from, ash_graph **out, ash_diag *diag) {
    ash_rewrite rw;
    ASH_TRY(ash_rewrite__begin(&rw, opt, from, diag));
    rw.to->emit = emit;
    rw.to->emit_user = &rw;
    for (size_t i = 0; i < from->nodes.len && ash_rewrite__ok(&rw); i++)
        if (ash_rewrite__is_live(&rw, &from->nodes.at[i])) ash_rewrite__copy(&rw, &from->nodes.at[i]);
    return ash_rewrite__end(&rw, out);
}

/* --- what rules ask ------------------------------------------------------------------------------- */

bool ash_rule__is_number(const ash_rewrite *rw, ash_value value, double number) {
    ash_number s;
    if (!ash_rewrite__splat(rw, value, &s)) return false;
    if (ash_dtype_is_float(s.dtype)) return !memcmp(&s.f, &number, sizeof number);
    return number == (double)(int64_t)number && s.i == (int64_t)number;
}

bool ash_rule__is_constant(const ash_rewrite *rw, ash_value value) {
    ash_node node;
    if (ash_rewrite__def(rw, value, ASH_OP_BROADCAST, &node)) value = node.ins[0];
    return ash_graph__value(rw->to, value)->kind == ASH_VALUE_CONSTANT;
}

static bool is_nonneg(const ash_rewrite *rw, ash_value value, unsigned depth) {
    const ash_value_info *info = ash_graph__value(rw->to, value);
    ash_number s;
    if (!ash_dtype_is_float(info->type.dtype)) return ash_dtype_kind(info->type.dtype) != ASH_KIND_SIGNED;
    if (ash_rewrite__splat(rw, value, &s)) return !__builtin_signbit(s.f);
    if (info->kind != ASH_VALUE_NODE || depth == 0) return false;
    const ash_node *n = &rw->to->nodes.at[info->node];
    switch (n->op) {
    case ASH_OP_ABS:
    case ASH_OP_EXP:
    case ASH_OP_SIGMOID: return true;
    case ASH_OP_MUL:
        if (n->ins[0] == n->ins[1]) return true;
        return is_nonneg(rw, n->ins[0], depth - 1) && is_nonneg(rw, n->ins[1], depth - 1);
    case ASH_OP_ADD:
    case ASH_OP_DIV:
    case ASH_OP_MIN: return is_nonneg(rw, n->ins[0], depth - 1) && is_nonneg(rw, n->ins[1], depth - 1);
    case ASH_OP_MAX: /* of -0 and +0 either may come out */
        return ash_rewrite__splat(rw, n->ins[1], &s) && s.f > 0;
    case ASH_OP_SELECT: return is_nonneg(rw, n->ins[1], depth - 1) && is_nonneg(rw, n->ins[2], depth - 1);
    case ASH_OP_CAST:
    case ASH_OP_SQRT:
    case ASH_OP_REDUCE_SUM:
    case ASH_OP_POOL_SUM:
    case ASH_OP_RESHAPE:
    case ASH_OP_TRANSPOSE:
    case ASH_OP_BROADCAST:
    case ASH_OP_SLICE: return is_nonneg(rw, n->ins[0], depth - 1);
    default: return false;
    }
}

bool ash_rule__is_nonneg(const ash_rewrite *rw, ash_value value) {
    return is_nonneg(rw, value, 6);
}
