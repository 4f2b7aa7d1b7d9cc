/* SPDX-License-Identifier: MIT */
/* Operator `custom`: building it, the types of its results, inference. */
#include "base/sized.h"
#include "infer.h"

/* --- the types of results as a list of numbers -------------------------------------------------- */

size_t ash_results__write(const ash_type *types, size_t n, int64_t *list) {
    size_t len = 0;
    for (size_t i = 0; i < n; i++) {
        list[len++] = types[i].dtype;
        list[len++] = types[i].rank;
        for (unsigned d = 0; d < types[i].rank; d++) list[len++] = types[i].dims[d];
    }
    return len;
}

bool ash_results__next(const ash_attr *results, uint32_t *pos, ash_type *out) {
    uint32_t left = results->list ? results->count - *pos : 0;
    if (left < 2) return false;
    const int64_t *at = results->list + *pos;
    if (at[0] < 0 || at[0] >= ASH_DTYPE_COUNT || at[1] < 0 || at[1] > ASH_MAX_RANK || at[1] > left - 2)
        return false;
    *out = (ash_type){.dtype = (ash_dtype)at[0], .rank = (unsigned)at[1]};
    for (unsigned d = 0; d < out->rank; d++) out->dims[d] = at[2 + d];
    *pos += 2 + out->rank;
    return true;
}

size_t ash_op__out_count(ash_op op, const ash_attr *attrs, size_t n_attrs) {
    if (ash_op_infos[op].outs != ASH_MANY) return ash_op_infos[op].outs;
    for (size_t i = 0; i < n_attrs; i++) {
        if (attrs[i].key == ASH_ATTR_SUMS)
            return attrs[i].i > 0 && attrs[i].i <= ASH_OP_OUTS ? (size_t)attrs[i].i : 0;
        if (attrs[i].key != ASH_ATTR_RESULTS) continue;
        ash_type type;
        size_t count = 0;
        for (uint32_t pos = 0; count <= ASH_OP_OUTS && ash_results__next(&attrs[i], &pos, &type);) count++;
        return count <= ASH_OP_OUTS ? count : 0;
    }
    return 0;
}

/* --- inference ---------------------------------------------------------------------------------- */

ash_status ash_infer__custom(const ash_inference *c) {
    const ash_attr *results = ash_infer__attr(c, ASH_ATTR_RESULTS);
    uint32_t pos = 0;
    size_t count = 0;
    for (; count < ASH_CUSTOM_MOST_RESULTS && ash_results__next(results, &pos, &c->outs[count]);) count++;
    ASH_FAIL_IF(count == 0 || pos != results->count, c->diag, ASH_ERROR_INVALID_ARGUMENT,
                "a call has the types of 1 to %d results", (int)ASH_CUSTOM_MOST_RESULTS);
    ASH_FAIL_IF(ash_infer__attr(c, ASH_ATTR_SCRATCH)->i < 0, c->diag, ASH_ERROR_INVALID_ARGUMENT,
                "%lld bytes of scratch memory", (long long)ash_infer__attr(c, ASH_ATTR_SCRATCH)->i);
    ASH_FAIL_IF(ash_infer__attr(c, ASH_ATTR_DURATION)->i < 0, c->diag, ASH_ERROR_INVALID_ARGUMENT,
                "a duration of %lld nanoseconds", (long long)ash_infer__attr(c, ASH_ATTR_DURATION)->i);
    return ASH_OK;
}

ash_status ash_custom__check(const ash_graph *graph, const ash_attr *attrs, size_t n_attrs,
                             ash_diag *diag) {
    for (size_t i = 0; i < n_attrs; i++)
        ASH_FAIL_IF(attrs[i].key == ASH_ATTR_FUNCTION && !ash_function__at(graph->context, attrs[i].i),
                    diag, ASH_ERROR_NOT_FOUND, "the context has no function number %lld",
                    (long long)attrs[i].i);
    return ASH_OK;
}

/* --- building ----------------------------------------------------------------------------------- */

/* The number of the function that is called, for results of these types. */
static ash_status find_function(ash_graph *graph, const char *function, const ash_type *types,
                                size_t n_outs, int64_t *number) {
    if (n_outs < 1 || n_outs > ASH_CUSTOM_MOST_RESULTS)
        return ash_graph__fail(graph, ASH_ERROR_INVALID_ARGUMENT,
                               "a call has a function and 1 to %d results, not %zu",
                               (int)ASH_CUSTOM_MOST_RESULTS, n_outs);
    for (size_t i = 0; i < n_outs; i++)
        if (types[i].rank > ASH_MAX_RANK || (unsigned)types[i].dtype >= ASH_DTYPE_COUNT)
            return ash_graph__fail(graph, ASH_ERROR_INVALID_ARGUMENT, "result %zu of %.80s has no type", i,
                                   function);
    *number = ash_context_find_function(graph->context, function);
    if (*number < 0)
        return ash_graph__fail(graph, ASH_ERROR_NOT_FOUND, "the context has no function called \"%.100s\"",
                               function);
    return ASH_OK;
}

static ash_status check_arguments(const char *function, const ash_value *ins, size_t n_ins,
                                  const ash_type *types, const ash_value *outs, ash_diag *diag) {
    ASH_NEED(diag, function, types, outs);
    if (n_ins) ASH_NEED(diag, ins);
    return ASH_OK;
}

ASH_SIZED(ash_custom_options, duration);

ash_status ash_custom(ash_graph *graph, const char *function, const ash_value *ins, size_t n_ins,
                      const ash_type *types, size_t n_outs, const ash_custom_options *options,
                      ash_value *outs) {
    ash_custom_options own;
    int64_t number = -1, list[ASH_OP_OUTS * (2 + ASH_MAX_RANK)];
    ash_diag diag;
    ASH_NEED(NULL, graph);
    ash_status status = check_arguments(function, ins, n_ins, types, outs, &diag);
    if (status == ASH_OK) status = ASH_TAKE(ash_custom_options, options, &own, &diag);
    if (status != ASH_OK) ash_graph__stick(graph, &diag);
    if (status == ASH_OK) status = find_function(graph, function, types, n_outs, &number);
    if (status == ASH_OK) {
        const ash_attr attrs[] = {ASH_ATTR_I(FUNCTION, number),
                                  ASH_ATTR_LIST(RESULTS, list, ash_results__write(types, n_outs, list)),
                                  ASH_ATTR_I(CHUNKS, own.chunks ? own.chunks : 1),
                                  ASH_ATTR_I(SCRATCH, own.scratch), ASH_ATTR_I(DURATION, own.duration)};
        status = ash_graph_add(graph, ASH_OP_CUSTOM, ins, n_ins, attrs, ASH_COUNT(attrs), outs);
    }
    for (size_t i = 0; status != ASH_OK && outs && i < n_outs; i++) outs[i] = ASH_NO_VALUE;
    return status;
}
