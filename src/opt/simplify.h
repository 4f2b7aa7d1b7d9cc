/* SPDX-License-Identifier: MIT */
/* Rewrite rules, and the laws that each keeps.
 *
 * A rule looks at a node that is about to be added to `to`: its operands are there already, and are in
 * normal form, because they went through the same rules. It returns a value that computes the same, or
 * ASH_NO_VALUE when it does not apply. What it builds on the way goes through the rules again.
 *
 *   type         the value that it returns has exactly the node's result type
 *   exactness    every element is the same for every IEEE input, signed zeros and infinities included;
 *                of a NaN only that it is one. A rule that is looser says how much, and why that is right
 *   termination  it makes something smaller that no rule makes larger; each theme names its measure
 *   locality     it looks at a bounded number of nodes, so that a whole graph is simplified in linear time
 *
 * Operands of a node stay alive in `to` when a rule looks through them; the dce pass takes what has become
 * unused. */
#ifndef ASH_OPT_SIMPLIFY_H
#define ASH_OPT_SIMPLIFY_H

#include "rewrite.h"

typedef ash_value ash_rule_fn(ash_rewrite *rw, const ash_node *node);

typedef struct ash_rule {
    int op;           /* the operator it applies to, or ASH_EVERY_ELEMENTWISE */
    const char *name; /* "theme.rule" */
    ash_rule_fn *apply;
    bool loose; /* may round differently: left out at ASH_OPT_EXACT */
} ash_rule;

enum { ASH_EVERY_ELEMENTWISE = -1 };

/* Rows: the operator, the theme, the function, which names the rule. */
#define ASH_RULE(OP, theme, apply)         {ASH_OP_##OP, #theme "." #apply, apply, false}
#define ASH_RULE_LOOSE(OP, theme, apply)   {ASH_OP_##OP, #theme "." #apply, apply, true}
#define ASH_RULE_ELEMENTWISE(theme, apply) {ASH_EVERY_ELEMENTWISE, #theme "." #apply, apply, false}

typedef struct ash_rules {
    const ash_rule *at;
    size_t len;
} ash_rules;

/* One list per theme and file; within a list, rules are tried top to bottom. */
extern const ash_rules ash_rules_arith;  /* numbers that do nothing, pairs that cancel */
extern const ash_rules ash_rules_logic;  /* bits, comparisons, select, cast */
extern const ash_rules ash_rules_power;  /* pow and sqrt */
extern const ash_rules ash_rules_spread; /* broadcast and splats */
extern const ash_rules ash_rules_view;   /* reshape and transpose */
extern const ash_rules ash_rules_cut;    /* slice, pad, concat */
extern const ash_rules ash_rules_rank;   /* reshapes that sink below what computes */
extern const ash_rules ash_rules_reduce; /* reductions, windows, contractions, gathers */

/* All of them, in the order in which they are tried; ends with NULL. */
extern const ash_rules *const ash_rules_themes[];

/* True when `value` is a splat of exactly that number (a zero with that sign). */
bool ash_rule__is_number(const ash_rewrite *rw, ash_value value, double number);
/* True when `value` is a constant, or a broadcast of one. */
bool ash_rule__is_constant(const ash_rewrite *rw, ash_value value);
/* True when every element is known to be positive, +0 or NaN: never negative, never -0. */
bool ash_rule__is_nonneg(const ash_rewrite *rw, ash_value value);

#endif
