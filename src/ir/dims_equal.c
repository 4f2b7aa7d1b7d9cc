/* SPDX-License-Identifier: MIT */
/* Dims that are different expressions, and that a graph was made to have one value: conditions on what the
 * variables can be. Whoever gives them values asks here first. */
#include "base/text.h"
#include "dims_poly.h"

static bool is_settled(void *found, uint32_t var) {
    (void)var;
    return *(bool *)found = true, false;
}

bool ash_dims_may_equal(ash_dims *dims, ash_dim a, ash_dim b) {
    bool settled = false;
    int64_t min, max;
    ash_dim difference;
    ash_dims_each_settled(dims, a, is_settled, &settled);
    ash_dims_each_settled(dims, b, is_settled, &settled);
    if (settled || ash_dims_combine(dims, ASH_DIM_SUB, a, b, &difference, NULL) != ASH_OK) return false;
    ash_dims_bounds(dims, difference, &min, &max);
    return min <= 0 && max >= 0;
}

/* Where min(x, n) must be n, a number, x is no less: what is made of x then relies on it. */
static void note_least(ash_dims *dims, ash_dim lower, ash_dim least) {
    ash_poly p;
    if (lower >= 0 || least < 0) return;
    ash_poly__load(dims, lower, &p);
    if (p.n != 1 || p.at[0].n != 1 || p.at[0].coef != 1) return;
    const ash_dim_atom atom = dims->atoms.at[p.at[0].atoms[0]].info;
    if (atom.is_var || atom.op != ASH_DIM_MIN || (atom.a != least && atom.b != least)) return;
    ash_dims__note_order(dims, least, atom.a == least ? atom.b : atom.a);
}

ash_status ash_dims_require(ash_dims *dims, ash_dim a, ash_dim b, ash_diag *diag) {
    bool swap = ash_dims__compare(dims, a, b) > 0; /* whatever their ages are */
    const ash_dim_equality equality = {swap ? b : a, swap ? a : b};
    if (a == b) return ASH_OK;
    for (size_t i = 0; i < dims->equal.len; i++)
        if (dims->equal.at[i].a == equality.a && dims->equal.at[i].b == equality.b) return ASH_OK;
    ASH_FAIL_IF(dims->equal.len == ASH_DIMS_EQUALITIES, diag, ASH_ERROR_UNSUPPORTED,
                "more than %d pairs of dims that must be equal", ASH_DIMS_EQUALITIES);
    if (!ash_vec_push(dims->allocator, &dims->equal, equality)) return ASH_NO_MEMORY(diag);
    note_least(dims, a, b);
    note_least(dims, b, a);
    return ASH_OK;
}

ash_status ash_dims_require_least(ash_dims *dims, ash_dim dim, int64_t least, ash_diag *diag) {
    int64_t min, max;
    ash_dim lower;
    ash_dims_bounds(dims, dim, &min, &max);
    if (min >= least || max < least) return ASH_OK;
    ASH_TRY(ash_dims_combine(dims, ASH_DIM_MIN, dim, least, &lower, diag));
    return ash_dims_require(dims, lower, least, diag);
}

size_t ash_dims_equality_count(const ash_dims *dims) {
    return dims->equal.len;
}

ash_dim_equality ash_dims_equality(const ash_dims *dims, size_t index) {
    return dims->equal.at[index];
}

ash_status ash_dims_check(const ash_dims *dims, const int64_t *vars, ash_diag *diag) {
    for (size_t i = 0; i < dims->equal.len; i++) {
        const ash_dim_equality e = dims->equal.at[i];
        int64_t a = ash_dims_eval(dims, e.a, vars), b = ash_dims_eval(dims, e.b, vars);
        if (a == b) continue;
        ash_text text;
        ash_text_init(&text, dims->allocator);
        ash_dims_print(dims, e.a, &text);
        ash_text_add(&text, " and ");
        ash_dims_print(dims, e.b, &text);
        ash_text_add(&text, " must be equal, and are %lld and %lld with ", (long long)a, (long long)b);
        ash_type_print_vars(dims, &(ash_type){.rank = 2, .dims = {e.a, e.b}}, vars, &text);
        ash_fail(diag, ASH_ERROR_SHAPE, "%s", text.failed ? "two dims must be equal" : text.at);
        ash_text_free(&text);
        return ASH_ERROR_SHAPE;
    }
    return ASH_OK;
}
