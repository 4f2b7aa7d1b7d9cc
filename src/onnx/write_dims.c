/* SPDX-License-Identifier: MIT */
/* Dims that are not numbers, as nodes of the model's graph: variables are dims of its inputs, or were
 * settled by nodes that come before. Each dim is computed once, in the model's graph; but for those that a
 * body finds: these are computed where they are asked for. */
#include "write_short.h"

static bool is_outside(void *user, uint32_t var) {
    const ash_writer *w = user;
    const ash_value settler = ash_graph__settler(w->graph, var);
    return settler == ASH_NO_VALUE ||
           w->loop[ash_graph__value(w->graph, settler)->node] == ASH_WRITER_OUTSIDE;
}

/* Whether all variables of a dim are known outside of all bodies. */
static bool is_of_model(ash_writer *w, ash_dim dim) {
    return ash_dims_each_settled(w->dims, dim, is_outside, w);
}

/* The value of a variable, from the shape of an input that has it as a dim, or from what settles it: an i64
 * tensor [1]. */
static name variable(ash_writer *w, uint32_t var) {
    const ash_graph *g = w->graph;
    const ash_var *info = ash_dims_var(w->dims, var);
    ash_value settler = ash_graph__settler(g, var);
    if (info->settled && settler != ASH_NO_VALUE) {
        static const int64_t one = 1;
        return op2(w, NULL, "Reshape", value(w, settler), ash_writer__ints(w, &one, 1));
    }
    for (size_t i = 0; i < g->inputs.len; i++) {
        const ash_type *type = ash_graph__type(g, g->inputs.at[i]);
        for (unsigned d = 0; d < type->rank; d++) {
            uint32_t other;
            if (!ash_dims_is_var(w->dims, type->dims[d], &other) || other != var) continue;
            const ash_writer_attr attrs[] = {WRITE_INT("start", d), WRITE_INT("end", d + 1)};
            return ash_writer__op(w, NULL, "Shape", &w->values[g->inputs.at[i]], 1, attrs, 2);
        }
    }
    ash_writer__fail(w, ASH_ERROR_UNSUPPORTED, "the variable '%s' is no dim of an input", info->name);
    return "";
}

ash_dim ash_writer__combine(ash_writer *w, ash_dim_op op, ash_dim a, ash_dim b) {
    ash_dim out = 0;
    ash_diag diag;
    if (ash_dims_combine(w->dims, op, a, b, &out, &diag) != ASH_OK)
        ash_writer__fail(w, diag.code, "%.200s", diag.message);
    return out;
}

static name combine(ash_writer *w, const char *op, name a, name b) {
    return a ? op2(w, NULL, op, a, b) : b;
}

static name dim_value(ash_writer *w, ash_dim dim);

/* ONNX's Div rounds towards 0, a dim's quotient down; Mod's result has the sign of what divides. */
static name atom_value(ash_writer *w, ash_dim_atom atom) {
    static const char *const ops[] = {[ASH_DIM_DIV] = "Div", [ASH_DIM_MIN] = "Min", [ASH_DIM_MAX] = "Max"};
    name a = dim_value(w, atom.a), b = dim_value(w, atom.b);
    int64_t min, max;
    ash_dims_bounds(w->dims, atom.a, &min, &max);
    if (atom.op == ASH_DIM_DIV && min < 0) a = combine(w, "Sub", a, combine(w, "Mod", a, b));
    return combine(w, ops[atom.op], a, b);
}

static name sum_value(ash_writer *w, ash_dim dim) {
    const ash_dims *dims = w->dims;
    name sum = NULL;
    size_t count = ash_dims_term_count(dims, dim);
    for (size_t i = 0; i < 2 * count && w->status == ASH_OK; i++) { /* what is taken away comes last */
        size_t atoms, t = i % count;
        int64_t coefficient = ash_dims_term(dims, dim, t, &atoms);
        bool taken = i >= count;
        if (taken != (coefficient < 0)) continue;
        if (taken && !sum) sum = ash_writer__ints(w, &(int64_t){0}, 1);
        if (taken) coefficient = (int64_t)(0 - (uint64_t)coefficient);
        name product = coefficient == 1 && atoms ? NULL : ash_writer__ints(w, &coefficient, 1);
        for (size_t a = 0; a < atoms; a++) {
            ash_dim_atom atom = ash_dims_atom(dims, dim, t, a);
            name value_ = atom.is_var ? variable(w, atom.var) : atom_value(w, atom);
            product = combine(w, "Mul", product, value_);
        }
        sum = combine(w, taken ? "Sub" : "Add", sum, product);
    }
    return sum ? sum : "";
}

/* An i64 tensor [1] with the value of a dim. */
static name dim_value(ash_writer *w, ash_dim dim) {
    uint64_t known;
    if (!is_of_model(w, dim)) return sum_value(w, dim);
    if (ash_map_get(&w->dim_names, (uint64_t)dim, &known)) return (name)(uintptr_t)known;
    ash_writer_body *body = w->body;
    w->body = NULL;
    name value_ = ash_dim_is_const(dim) ? ash_writer__ints(w, &dim, 1) : sum_value(w, dim);
    w->body = body;
    if (!ash_map_put(&w->dim_names, (uint64_t)dim, (uintptr_t)value_))
        ash_writer__fail(w, ASH_ERROR_OUT_OF_MEMORY, "out of memory");
    return value_;
}

static name list_value(ash_writer *w, const ash_dim *list, size_t n) {
    name parts[2 * ASH_MAX_RANK];
    const ash_writer_attr attrs[] = {WRITE_INT("axis", 0)};
    for (size_t i = 0; i < n; i++) parts[i] = dim_value(w, list[i]);
    return n == 1 ? parts[0] : ash_writer__op(w, NULL, "Concat", parts, n, attrs, 1);
}

const char *ash_writer__dims(ash_writer *w, const ash_dim *list, size_t n) {
    bool numbers = true, of_model = true;
    for (size_t i = 0; i < n; i++) {
        numbers &= ash_dim_is_const(list[i]);
        of_model &= is_of_model(w, list[i]);
    }
    if (numbers) return ash_writer__ints(w, list, n);
    ash_writer_body *body = w->body;
    if (of_model) w->body = NULL;
    name out = list_value(w, list, n);
    w->body = body;
    return out;
}

const char *ash_writer__dim(ash_writer *w, ash_dim dim) {
    if (ash_dim_is_const(dim)) return ash_writer__int(w, NULL, dim);
    ash_writer_body *body = w->body;
    if (is_of_model(w, dim)) w->body = NULL;
    name out = op2(w, NULL, "Reshape", dim_value(w, dim), ash_writer__ints(w, NULL, 0));
    w->body = body;
    return out;
}
