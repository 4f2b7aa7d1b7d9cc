/* SPDX-License-Identifier: MIT */
/* reciprocal: a division by one number becomes a multiplication.
 *
 *     x / c  ->  x * (1 / c)
 *
 * A division takes several times as long as a multiplication, and constants that are divided by are common
 * (means, sqrt(2) in GELU). Not exact: two roundings instead of one, within 1.5 ulp. So a quotient stays
 * where its last bit decides about something larger: 41 * (1 / 41) is below 1 in f32, and its floor is 0.
 * That is where it reaches a step (see ash_rewrite__find_stepped; quantisation is the common case). A
 * quotient of one element stays too: it costs nothing, and the scale of a tensor is of this kind. Only
 * where 1 / c is a normal number. */
#include "rewrite.h"

/* What the pass knows of the values of `from`. */
typedef struct facts {
    bool *constant, *stepped;
} facts;

static bool is_one_element(const ash_type *type) {
    int64_t count;
    return ash_type_static_count(type, &count) && count == 1;
}

/* The image of a division that becomes a multiplication; ASH_NO_VALUE: it stays. */
static ash_value multiply(ash_rewrite *rw, const facts *f, const ash_node *node) {
    ash_number s;
    if (node->op != ASH_OP_DIV || f->constant[node->ins[0]] || !f->constant[node->ins[1]] ||
        f->stepped[node->out] || is_one_element(ash_graph__type(rw->from, node->out)))
        return ASH_NO_VALUE;
    ash_value x = ash_rewrite__get(rw, node->ins[0]), c = ash_rewrite__get(rw, node->ins[1]);
    if (!ash_rewrite__ok(rw) || !ash_rewrite__splat(rw, c, &s)) return ASH_NO_VALUE;
    if (s.dtype != ASH_F32 && s.dtype != ASH_F64) return ASH_NO_VALUE;
    double size = __builtin_fabs(s.f);
    if (!(size > 1e-37 && size < 1e37)) return ASH_NO_VALUE;
    ash_rewrite__name(rw, node);
    return ash_mul(rw->to, x, ash_build__from(rw->to, ASH_OP_DIV, 1, c));
}

ash_status ash_opt__reciprocal(const ash_opt *opt, const ash_graph *from, ash_graph **out, ash_diag *diag) {
    ash_rewrite rw;
    ASH_TRY(ash_rewrite__begin(&rw, opt, from, diag));
    facts f = {ash_arena_alloc(&rw.scratch, from->values.len, sizeof *f.constant),
               ash_arena_alloc(&rw.scratch, from->values.len, sizeof *f.stepped)};
    if (!f.constant || !f.stepped) return ash_rewrite__abandon(&rw, ASH_NO_MEMORY(diag));
    ash_rewrite__find_constants(&rw, f.constant);
    ash_rewrite__find_stepped(&rw, f.stepped);
    for (size_t i = 0; i < from->nodes.len && ash_rewrite__ok(&rw); i++) {
        const ash_node *node = &from->nodes.at[i];
        if (!ash_rewrite__is_live(&rw, node)) continue;
        ash_value y = multiply(&rw, &f, node);
        if (y == ASH_NO_VALUE)
            ash_rewrite__copy(&rw, node);
        else
            ash_rewrite__bind(&rw, node->out, y);
    }
    return ash_rewrite__end(&rw, out);
}
