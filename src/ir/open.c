/* SPDX-License-Identifier: MIT */
/* Open graphs: inputs some of whose dims have no size yet, and a recipe for the rest.
 *
 * A model whose batch can be anything could be a graph with a variable without bounds. It is not: every
 * proof about shapes needs bounds, what is laid out for the largest batch takes the memory of the largest
 * batch, and kernels for one size are faster than kernels for all. So nothing is made but the inputs;
 * whoever knows the sizes asks the recipe for the graph of numbers. */
#include "inside.h"

ash_recipe *ash_recipe_retain(ash_recipe *recipe) {
    __atomic_add_fetch(&recipe->refs, 1, __ATOMIC_RELAXED);
    return recipe;
}

void ash_recipe_release(ash_recipe *recipe) {
    if (recipe && __atomic_sub_fetch(&recipe->refs, 1, __ATOMIC_ACQ_REL) == 0) recipe->release(recipe);
}

/* --- sizes ------------------------------------------------------------------------------------------ */

/* How many variables of a dim have no size, but at most 2; *var is one of them. */
static unsigned unknowns(const ash_dims *dims, ash_dim dim, const int64_t *sizes, uint32_t *var) {
    unsigned count = 0;
    if (dim >= 0) return 0;
    const ash_dim_expr *expr = ash_dims__expr(dims, dim);
    for (uint32_t i = 0; i < expr->n; i++)
        for (uint32_t k = 0; k < expr->terms[i].n && count < 2; k++) {
            const ash_dim_atom *atom = &dims->atoms.at[expr->terms[i].atoms[k]].info;
            uint32_t inner = UINT32_MAX;
            unsigned more;
            if (atom->is_var) {
                inner = atom->var;
                more = sizes[inner] < 0;
            } else {
                more = unknowns(dims, atom->a, sizes, &inner);
                if (more < 2) more += unknowns(dims, atom->b, sizes, &inner);
            }
            if (more == 0 || (more == 1 && count == 1 && inner == *var)) continue;
            *var = inner;
            count += more;
        }
    return ASH_MIN(count, 2u);
}

int64_t ash_dims_present(const ash_dims *dims, ash_dim dim, const int64_t *sizes) {
    uint32_t var;
    return unknowns(dims, dim, sizes, &var) ? -1 : ash_dims_eval(dims, dim, sizes);
}

/* The size of one variable with which an expression that is linear in it is `value`; what is not linear is
 * left alone. */
static void solve(const ash_dims *dims, ash_dim dim, int64_t value, uint32_t var, int64_t *sizes) {
    sizes[var] = 0;
    int64_t least = ash_dims_eval(dims, dim, sizes);
    sizes[var] = 1;
    int64_t step = ash_dims_eval(dims, dim, sizes) - least;
    if (step > 0 && value >= least && (value - least) / step <= ASH_OPEN_MOST) {
        sizes[var] = (value - least) / step;
        if (ash_dims_eval(dims, dim, sizes) == value) return;
    }
    sizes[var] = -1;
}

static ash_status learn_var(const ash_type *shape, const int64_t *given, unsigned axis, const char *name,
                            ash_diag *diag) {
    ASH_FAIL_IF(given[axis] < 0 || given[axis] > ASH_OPEN_MOST, diag, ASH_ERROR_OUT_OF_RANGE,
                "dim '%.80s' cannot be %lld: an open dim has 0 to %d elements", name,
                (long long)given[axis], (int)ASH_OPEN_MOST);
    for (unsigned k = 0; k < axis; k++)
        ASH_FAIL_IF(shape->dims[k] == shape->dims[axis] && given[k] != given[axis], diag, ASH_ERROR_SHAPE,
                    "dim '%.80s' would be %lld and %lld: it is dim %u and dim %u of the same input", name,
                    (long long)given[k], (long long)given[axis], k, axis);
    return ASH_OK;
}

ash_status ash_dims_learn(const ash_dims *dims, const ash_type *shape, const int64_t *given, int64_t *sizes,
                          ash_diag *diag) {
    uint32_t var;
    for (unsigned i = 0; i < shape->rank; i++) {
        if (!ash_dims_is_var(dims, shape->dims[i], &var) || ash_dims_var(dims, var)->settled) continue;
        ASH_TRY(learn_var(shape, given, i, ash_dims_var(dims, var)->name, diag));
        sizes[var] = given[i];
    }
    for (unsigned i = 0; i < shape->rank; i++)
        if (unknowns(dims, shape->dims[i], sizes, &var) == 1 && !ash_dims_var(dims, var)->settled)
            solve(dims, shape->dims[i], given[i], var, sizes);
    return ASH_OK;
}

/* --- text ------------------------------------------------------------------------------------------- */

static bool mentions(const ash_dims *dims, ash_dim dim, uint32_t var) {
    if (dim >= 0) return false;
    const ash_dim_expr *expr = ash_dims__expr(dims, dim);
    for (uint32_t i = 0; i < expr->n; i++)
        for (uint32_t k = 0; k < expr->terms[i].n; k++) {
            const ash_dim_atom *atom = &dims->atoms.at[expr->terms[i].atoms[k]].info;
            if (atom->is_var ? atom->var == var
                             : mentions(dims, atom->a, var) || mentions(dims, atom->b, var))
                return true;
        }
    return false;
}

void ash_type_print_vars(const ash_dims *dims, const ash_type *type, const int64_t *sizes, ash_text *out) {
    size_t count = 0;
    for (uint32_t v = 0; v < ash_dims_var_count(dims); v++) {
        unsigned i = 0;
        while (i < type->rank && !mentions(dims, type->dims[i], v)) i++;
        if (i == type->rank) continue;
        ash_text_add(out, "%s%s", count++ ? " and " : "", ash_dims_var(dims, v)->name);
        if (sizes[v] < 0)
            ash_text_add(out, " unknown");
        else
            ash_text_add(out, " = %lld", (long long)sizes[v]);
    }
}

void ash_dims_print_open(const ash_dims *dims, const int64_t *sizes, ash_text *out) {
    size_t count = 0;
    for (size_t v = 0; v < ash_dims_var_count(dims); v++) {
        const ash_var *var = ash_dims_var(dims, v);
        if (var->open && (!sizes || sizes[v] < 0))
            ash_text_add(out, "%s'%s'", count++ ? ", " : "", var->name);
    }
}

/* --- graphs ----------------------------------------------------------------------------------------- */

bool ash_graph_is_open(const ash_graph *graph) {
    return graph && graph->recipe;
}

/* A failure that ends with the names of the dims without a size. */
static ash_status fail_open(const ash_graph *graph, const int64_t *sizes, const char *why, ash_diag *diag) {
    ash_text text;
    ash_text_init(&text, graph->allocator);
    ash_dims_print_open(graph->dims, sizes, &text);
    ash_fail(diag, ASH_ERROR_STATE, "%s: %s", why, text.at && !text.failed ? text.at : "?");
    ash_text_free(&text);
    return ASH_ERROR_STATE;
}

ash_status ash_graph__check_closed(const ash_graph *graph, ash_diag *diag) {
    if (!graph->recipe) return ASH_OK;
    return fail_open(graph, NULL, "the graph has no nodes while the sizes of dims are open", diag);
}

ash_status ash_graph__copy_open(const ash_graph *graph, ash_graph **out, ash_diag *diag) {
    ash_graph *copy;
    ash_value unused;
    ash_dims *dims;
    *out = NULL;
    ASH_TRY(ash_dims_copy(graph->dims, graph->allocator, &dims, diag));
    ash_status status = ash_graph__derive(graph, &copy, diag);
    if (status != ASH_OK) {
        ash_dims_release(dims);
        return status;
    }
    for (size_t i = 0; status == ASH_OK && i < graph->inputs.len; i++)
        status = ash_graph__copy_leaf(copy, graph, graph->inputs.at[i], &unused);
    ash_dims_release(copy->dims);
    copy->dims = dims;
    copy->recipe = ash_recipe_retain(graph->recipe);
    if (status != ASH_OK) {
        if (diag) *diag = copy->diag;
        ash_graph_destroy(copy);
        return status;
    }
    *out = copy;
    return ASH_OK;
}

ash_status ash_graph__close(const ash_graph *graph, const int64_t *sizes, ash_graph **out, ash_diag *diag) {
    *out = NULL;
    for (size_t v = 0; v < ash_dims_var_count(graph->dims); v++)
        if (ash_dims_var(graph->dims, v)->open && sizes[v] < 0)
            return fail_open(graph, sizes, "the inputs do not say the sizes of all dims", diag);
    return graph->recipe->make(graph->recipe, graph->context, graph->dims, sizes, out, diag);
}

/* Adds what one input says, unless it contradicts what another has said. */
static ash_status learn_input(const ash_graph *graph, size_t position, const ash_type *given,
                              int64_t *sizes, int64_t *room, ash_diag *diag) {
    const ash_type *shape = ash_graph__type(graph, graph->inputs.at[position]);
    const ash_dims *dims = graph->dims;
    size_t n = ash_dims_var_count(dims);
    ASH_FAIL_IF(given->rank != shape->rank, diag, ASH_ERROR_SHAPE, "%u dims given, the input has %u",
                given->rank, shape->rank);
    memcpy(room, sizes, n * sizeof *sizes);
    ASH_TRY(ash_dims_learn(dims, shape, given->dims, room, diag));
    for (size_t v = 0; v < n; v++)
        ASH_FAIL_IF(sizes[v] >= 0 && room[v] != sizes[v], diag, ASH_ERROR_SHAPE,
                    "dim '%.80s' is %lld here, and %lld in another input", ash_dims_var(dims, v)->name,
                    (long long)room[v], (long long)sizes[v]);
    memcpy(sizes, room, n * sizeof *sizes);
    return ASH_OK;
}

/* Twice: an expression may need what a later input says. */
static ash_status learn_all(const ash_graph *graph, const ash_type *const *inputs, size_t count,
                            int64_t *sizes, int64_t *room, ash_diag *diag) {
    for (size_t i = 0; i < 2 * count; i++) {
        if (!inputs[i % count]) continue;
        ash_status status = learn_input(graph, i % count, inputs[i % count], sizes, room, diag);
        if (status == ASH_OK) continue;
        const char *name;
        ash_graph_input_at(graph, i % count, &name);
        ash_diag__add_node(diag, name, "input", ASH_NO_OFFSET);
        return status;
    }
    return ASH_OK;
}

/* What the inputs say: `sizes` has an entry per variable, and as many behind them for this function; -1
 * where nothing is said. */
static ash_status learn_graph(const ash_graph *graph, const ash_type *const *inputs, size_t count,
                              int64_t *sizes, ash_diag *diag) {
    size_t n = ash_dims_var_count(graph->dims);
    ASH_FAIL_IF(count != graph->inputs.len, diag, ASH_ERROR_INVALID_ARGUMENT,
                "%zu types given, the graph has %zu inputs", count, graph->inputs.len);
    for (size_t v = 0; v < n; v++) sizes[v] = -1;
    return learn_all(graph, inputs, count, sizes, sizes + n, diag);
}

ash_status ash_graph_learn_vars(const ash_graph *graph, const ash_type *const *inputs, size_t count,
                                ash_var_binding *out, size_t *n, ash_diag *diag) {
    ASH_NEED(diag, graph, n);
    *n = 0;
    if (count) ASH_NEED(diag, inputs);
    ASH_TRY(ash_graph_status(graph, diag));
    size_t vars = ash_dims_var_count(graph->dims);
    if (vars) ASH_NEED(diag, out);
    int64_t *sizes = ash_mem_alloc(graph->allocator, 2 * vars, sizeof *sizes);
    if (!sizes) return ASH_NO_MEMORY(diag);
    ash_status status = learn_graph(graph, inputs, count, sizes, diag);
    for (size_t v = 0; status == ASH_OK && v < vars; v++)
        if (sizes[v] >= 0) out[(*n)++] = (ash_var_binding){ash_dims_var(graph->dims, v)->name, sizes[v]};
    ash_mem_free(graph->allocator, sizes, 2 * vars, sizeof *sizes);
    return status;
}

ash_status ash_graph_close(const ash_graph *graph, const ash_type *const *inputs, size_t count,
                           ash_graph **out, ash_diag *diag) {
    ASH_NEED(diag, out);
    *out = NULL;
    ASH_NEED(diag, graph);
    if (count) ASH_NEED(diag, inputs);
    ASH_TRY(ash_graph_status(graph, diag));
    ASH_FAIL_IF(!graph->recipe, diag, ASH_ERROR_STATE, "the graph has no open dims");
    size_t n = ash_dims_var_count(graph->dims);
    int64_t *sizes = ash_mem_alloc(graph->allocator, 2 * n, sizeof *sizes);
    if (!sizes) return ASH_NO_MEMORY(diag);
    ash_status status = learn_graph(graph, inputs, count, sizes, diag);
    for (size_t v = 0; v < n; v++) /* the others stay variable */
        if (!ash_dims_var(graph->dims, v)->open) sizes[v] = -1;
    if (status == ASH_OK) status = ash_graph__close(graph, sizes, out, diag);
    ash_mem_free(graph->allocator, sizes, 2 * n, sizeof *sizes);
    return status;
}
