/* SPDX-License-Identifier: MIT */
/* Building loops: arguments first, then the body with the functions that build everything else, then the
 * loop. */
#include "build.h"

ash_value ash_build__argument(ash_graph *graph, const ash_type *type) {
    const ash_attr attrs[] = {ASH_ATTR_I(DTYPE, type->dtype), ASH_ATTR_LIST(DIMS, type->dims, type->rank)};
    return ash_build(graph, ASH_OP_ARGUMENT, NULL, 0, attrs, ASH_COUNT(attrs));
}

static bool known(const ash_graph *graph, const ash_value *values, uint32_t count) {
    for (uint32_t k = 0; k < count; k++)
        if (values[k] >= graph->values.len) return false;
    return true;
}

bool ash_build__begin_loop(ash_graph *graph, const ash_loop *loop) {
    const ash_type number = {.dtype = ASH_I64};
    ash_value *out = loop->arguments;
    for (uint32_t k = 0; k < 1 + loop->carried + loop->scanned + loop->given; k++) out[k] = ASH_NO_VALUE;
    if (graph->status != ASH_OK || !known(graph, loop->init, loop->carried) ||
        !known(graph, loop->xs, loop->scanned) || !known(graph, loop->gives, loop->given))
        return false;
    *out++ = ash_build__argument(graph, &number);
    for (uint32_t k = 0; k < loop->carried; k++) {
        ash_type type = *ash_graph__type(graph, loop->init[k]);
        *out++ = ash_build__argument(graph, &type);
    }
    for (uint32_t k = 0; k < loop->scanned; k++) {
        ash_type type = *ash_graph__type(graph, loop->xs[k]);
        if (type.rank) memmove(type.dims, type.dims + 1, --type.rank * sizeof *type.dims);
        *out++ = ash_build__argument(graph, &type);
    }
    for (uint32_t k = 0; k < loop->given; k++) {
        ash_type type = *ash_graph__type(graph, loop->gives[k]);
        *out++ = ash_build__argument(graph, &type);
    }
    return graph->status == ASH_OK;
}

/* The types of the results; false when there are too many, or one has too high a rank. */
static bool find_types(const ash_graph *graph, const ash_loop *loop, ash_type *types) {
    uint32_t until = loop->go != ASH_NO_VALUE, at = 0;
    if (until + loop->carried + loop->stacked > ASH_OP_OUTS) return false;
    if (until) types[at++] = (ash_type){.dtype = ASH_I64};
    for (uint32_t k = 0; k < loop->carried; k++) types[at++] = *ash_graph__type(graph, loop->init[k]);
    for (uint32_t k = 0; k < loop->stacked; k++) {
        ash_type type = *ash_graph__type(graph, loop->ys[k]);
        if (type.rank == ASH_MAX_RANK) return false;
        memmove(type.dims + 1, type.dims, type.rank++ * sizeof *type.dims);
        type.dims[0] = loop->trips;
        types[at++] = type;
    }
    return true;
}

ash_status ash_build__end_loop(ash_graph *graph, const ash_loop *loop, ash_value *outs) {
    uint32_t until = loop->go != ASH_NO_VALUE, count = until + loop->carried + loop->stacked;
    uint32_t n_args = 1 + loop->carried + loop->scanned + loop->given,
             n_ins = n_args + 2 * (until + loop->carried) + loop->scanned + loop->given + loop->stacked;
    for (uint32_t k = 0; k < count; k++) outs[k] = ASH_NO_VALUE;
    if (graph->status != ASH_OK || !known(graph, loop->next, loop->carried) ||
        !known(graph, loop->ys, loop->stacked))
        return graph->status;
    ash_type types[ASH_OP_OUTS];
    int64_t list[ASH_OP_OUTS * (2 + ASH_MAX_RANK)];
    if (!find_types(graph, loop, types)) {
        ash_build__fail(graph, ASH_OP_LOOP, ASH_ERROR_UNSUPPORTED,
                        "a loop with more than %d results, or a result of a rank above %d",
                        (int)ASH_OP_OUTS, ASH_MAX_RANK);
        return graph->status;
    }
    ash_value *ins = ash_mem_alloc(graph->allocator, n_ins, sizeof *ins), *at = ins;
    if (!ins) return ash_graph__fail(graph, ASH_ERROR_OUT_OF_MEMORY, "out of memory");
    for (uint32_t k = 0; k < n_args; k++) *at++ = loop->arguments[k];
    if (until) *at++ = loop->go;
    for (uint32_t k = 0; k < loop->carried; k++) *at++ = loop->init[k];
    for (uint32_t k = 0; k < loop->scanned; k++) *at++ = loop->xs[k];
    for (uint32_t k = 0; k < loop->given; k++) *at++ = loop->gives[k];
    if (until) *at++ = loop->next_go;
    for (uint32_t k = 0; k < loop->carried; k++) *at++ = loop->next[k];
    for (uint32_t k = 0; k < loop->stacked; k++) *at++ = loop->ys[k];
    const ash_attr attrs[] = {ASH_ATTR_I(TRIPS, loop->trips),
                              ASH_ATTR_I(CARRIED, loop->carried),
                              ASH_ATTR_I(SCANNED, loop->scanned),
                              ASH_ATTR_I(GIVEN, loop->given),
                              ASH_ATTR_I(UNTIL, until),
                              ASH_ATTR_I(BACKWARD, (int64_t)loop->backward),
                              ASH_ATTR_I(BODY, 0),
                              ASH_ATTR_LIST(RESULTS, list, ash_results__write(types, count, list))};
    ash_status status = ash_build__add(graph, ASH_OP_LOOP, ins, n_ins, attrs, ASH_COUNT(attrs), outs);
    ash_mem_free(graph->allocator, ins, n_ins, sizeof *ins);
    return status;
}
