/* SPDX-License-Identifier: MIT */
/* The reference evaluator for callers: a graph on their numbers, results in double precision, and one step
 * of a graph with states. */
#include "ashlar/reference.h"

#include "base/file.h"
#include "ir.h"

struct ash_reference {
    const ash_allocator *allocator;
    size_t count;
    ash_wide *outputs; /* as the evaluator gave them; those that are not floating point have been made so */
    ash_type *types;
};

void ash_reference_destroy(ash_reference *r) {
    if (!r) return;
    for (size_t i = 0; r->outputs && i < r->count; i++) ash_wide_free(r->allocator, &r->outputs[i]);
    ash_mem_free(r->allocator, r->outputs, r->count, sizeof *r->outputs);
    ash_mem_free(r->allocator, r->types, r->count, sizeof *r->types);
    ash_mem_free(r->allocator, r, 1, sizeof *r);
}

static ash_status read_vars(const ash_graph *graph, const char *const *names, const int64_t *values,
                            size_t count, int64_t *vars, ash_diag *diag) {
    size_t all = ash_dims_var_count(graph->dims);
    for (size_t v = 0; v < all; v++) vars[v] = ash_dims_var(graph->dims, v)->max;
    for (size_t i = 0; i < count; i++) {
        size_t v = 0;
        ASH_FAIL_IF(!names[i], diag, ASH_ERROR_INVALID_ARGUMENT, "the name of variable %zu is NULL", i);
        for (size_t k = 0; k < i; k++)
            ASH_FAIL_IF(!strcmp(names[k], names[i]), diag, ASH_ERROR_INVALID_ARGUMENT,
                        "variable \"%.80s\" is given twice, as %lld and as %lld", names[i],
                        (long long)values[k], (long long)values[i]);
        while (v < all && strcmp(ash_dims_var(graph->dims, v)->name, names[i]) != 0) v++;
        ASH_FAIL_IF(v == all, diag, ASH_ERROR_NOT_FOUND, "the graph has no variable \"%.100s\"", names[i]);
        const ash_var *var = ash_dims_var(graph->dims, v);
        ASH_FAIL_IF(var->settled, diag, ASH_ERROR_INVALID_ARGUMENT,
                    "variable \"%.100s\" depends on data: the graph settles it", names[i]);
        ASH_FAIL_IF(values[i] < var->min || values[i] > var->max, diag, ASH_ERROR_OUT_OF_RANGE,
                    "variable \"%.100s\" is %lld, outside of %lld to %lld", names[i], (long long)values[i],
                    (long long)var->min, (long long)var->max);
        vars[v] = values[i];
    }
    return ASH_OK;
}

/* The caller's bytes may lie in a mapped file. */
static ash_status check_given(const ash_graph *graph, const ash_wide *wide, const void *data,
                              ash_diag *diag) {
    return ash_file_check_given(graph->context, data, (uint64_t)wide->count * ash_dtype_size(wide->dtype),
                                diag);
}

static ash_status load_inputs(const ash_graph *graph, const void *const *data, const int64_t *vars,
                              ash_wide *inputs, ash_diag *diag) {
    for (size_t i = 0; i < graph->inputs.len; i++) {
        const ash_type *type = ash_graph__type(graph, graph->inputs.at[i]);
        int64_t dims[ASH_MAX_RANK];
        for (unsigned d = 0; d < type->rank; d++) dims[d] = ash_dims_eval(graph->dims, type->dims[d], vars);
        ASH_TRY(ash_wide_alloc(graph->allocator, type->dtype, type->rank, dims, &inputs[i], diag));
        ASH_FAIL_IF(!data[i] && inputs[i].count, diag, ASH_ERROR_INVALID_ARGUMENT,
                    "the data of input \"%.100s\" are NULL", graph->values.at[graph->inputs.at[i]].name);
        ASH_TRY(check_given(graph, &inputs[i], data[i], diag));
        ash_wide_load(&inputs[i], data[i]);
    }
    return ASH_OK;
}

static void make_double(ash_wide *t) {
    if (ash_dtype_is_float(t->dtype)) return;
    for (int64_t e = 0; e < t->count; e++)
        t->f[e] = t->dtype == ASH_U64 ? (double)(uint64_t)t->i[e] : (double)t->i[e];
}

static ash_status load_states(const ash_graph *graph, void *const *data, const int64_t *vars,
                              ash_wide *states, ash_diag *diag) {
    for (size_t i = 0; i < graph->states.len; i++) {
        const ash_type *type = ash_graph__type(graph, graph->states.at[i].value);
        int64_t dims[ASH_MAX_RANK];
        ASH_FAIL_IF(!data[i], diag, ASH_ERROR_INVALID_ARGUMENT, "the bytes of state %zu are NULL", i);
        for (unsigned d = 0; d < type->rank; d++) dims[d] = ash_dims_eval(graph->dims, type->dims[d], vars);
        ASH_TRY(ash_wide_alloc(graph->allocator, type->dtype, type->rank, dims, &states[i], diag));
        ASH_TRY(check_given(graph, &states[i], data[i], diag));
        ash_wide_load(&states[i], data[i]);
    }
    return ASH_OK;
}

static void store_states(const ash_graph *graph, const ash_wide *states, void *const *data) {
    for (size_t i = 0; i < graph->states.len; i++)
        if (graph->states.at[i].update != ASH_NO_VALUE) ash_wide_store(&states[i], data[i]);
}

ash_status ash_reference_run(const ash_graph *graph, const void *const *inputs, size_t input_count,
                             const char *const *var_names, const int64_t *var_values, size_t var_count,
                             ash_reference **out, ash_diag *diag) {
    return ash_reference_step(graph, inputs, input_count, NULL, var_names, var_values, var_count, out,
                              diag);
}

ash_status ash_reference_step(const ash_graph *graph, const void *const *inputs, size_t input_count,
                              void *const *states, const char *const *var_names, const int64_t *var_values,
                              size_t var_count, ash_reference **out, ash_diag *diag) {
    ASH_NEED(diag, out);
    *out = NULL;
    ASH_NEED(diag, graph);
    if (input_count) ASH_NEED(diag, inputs);
    if (var_count) ASH_NEED(diag, var_names, var_values);
    ASH_TRY(ash_graph_status(graph, diag));
    ASH_TRY(ash_graph__check_closed(graph, diag));
    ASH_TRY(ash_graph__check_files(graph, diag));
    ASH_FAIL_IF(input_count != graph->inputs.len, diag, ASH_ERROR_INVALID_ARGUMENT,
                "%zu inputs given, the graph has %zu", input_count, graph->inputs.len);
    const ash_allocator *a = graph->allocator;
    size_t n_vars = ash_dims_var_count(graph->dims), n_outputs = graph->outputs.len,
           n_states = graph->states.len;
    ash_reference *r = ash_mem_calloc(a, 1, sizeof *r);
    int64_t *vars = ash_mem_calloc(a, n_vars, sizeof *vars);
    ash_wide *wide = ash_mem_calloc(a, input_count, sizeof *wide);
    ash_wide *kept = ash_mem_calloc(a, n_states, sizeof *kept);
    ash_status status = ASH_OK;
    if (r) {
        *r = (ash_reference){.allocator = a, .count = n_outputs};
        r->outputs = ash_mem_calloc(a, n_outputs, sizeof *r->outputs);
        r->types = ash_mem_calloc(a, n_outputs, sizeof *r->types);
    }
    if (!r || !r->outputs || !r->types || !vars || !wide || !kept) {
        status = ASH_NO_MEMORY(diag);
        goto done;
    }
    ASH_TRY_DONE(read_vars(graph, var_names, var_values, var_count, vars, diag));
    ASH_TRY_DONE(ash_dims_check(graph->dims, vars, diag));
    ASH_TRY_DONE(load_inputs(graph, inputs, vars, wide, diag));
    if (states) ASH_TRY_DONE(load_states(graph, states, vars, kept, diag));
    ASH_TRY_DONE(ash_eval_step(graph, wide, vars, ASH_EVAL_DOUBLE, states ? kept : NULL, r->outputs, diag));
    if (states) store_states(graph, kept, states);
    for (size_t i = 0; i < n_outputs; i++) {
        r->types[i] = (ash_type){.dtype = r->outputs[i].dtype, .rank = r->outputs[i].rank};
        memcpy(r->types[i].dims, r->outputs[i].dims, sizeof r->outputs[i].dims);
        make_double(&r->outputs[i]);
    }
    *out = r;
    r = NULL;
done:
    for (size_t i = 0; wide && i < input_count; i++) ash_wide_free(a, &wide[i]);
    for (size_t i = 0; kept && i < n_states; i++) ash_wide_free(a, &kept[i]);
    ash_mem_free(a, kept, n_states, sizeof *kept);
    ash_mem_free(a, wide, input_count, sizeof *wide);
    ash_mem_free(a, vars, n_vars, sizeof *vars);
    ash_reference_destroy(r);
    return status;
}

const double *ash_reference_output(const ash_reference *r, size_t position, ash_type *type, size_t *count) {
    bool there = r && position < r->count;
    if (type) *type = there ? r->types[position] : (ash_type){0};
    if (count) *count = there ? (size_t)r->outputs[position].count : 0;
    if (!there) return NULL;
    return r->outputs[position].f;
}
