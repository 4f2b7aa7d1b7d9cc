/* SPDX-License-Identifier: MIT */
/* What lies between gradients and an optimiser: sums over the pieces of a batch, and the scale of a loss.
 * Both answer with a condition under which a step is taken (ash_optimizer_options.when). */
#include <stdio.h>

#include "base/sized.h"
#include "grad.h"

static ash_value with(ash_graph *t, ash_op op, ash_value x, double number) {
    return ash_build__with(t, op, x, number);
}

/* --- batches in pieces ------------------------------------------------------------------------------ */

static ash_value state_of_zeros(ash_graph *t, const char *name, const ash_type *type) {
    return ash_graph_state(t, name, type, NULL, 0, ASH_DATA_COPY);
}

ash_value ash_graph_accumulate(ash_graph *graph, ash_value *grads, size_t n, uint64_t count,
                               const char *name) {
    const ash_type scalar = {.dtype = ASH_I64};
    char label[256];
    if (!graph) return ASH_NO_VALUE;
    if (n) ASH_BUILD_NEED(graph, grads);
    if (count == 0 || count > INT32_MAX)
        return ash_build__fail(graph, ASH_OP_ADD, ASH_ERROR_INVALID_ARGUMENT,
                               "a batch of %llu pieces, not of 1 to 2^31 - 1", (unsigned long long)count);
    uint8_t phase = ash_grad__enter(graph, ASH_PHASE_BACKWARD);
    if (!name) name = "batch";
    snprintf(label, sizeof label, "%.200s.count", name);
    ash_value seen = state_of_zeros(graph, label, &scalar);
    ash_value next = with(graph, ASH_OP_ADD, seen, 1);
    ash_value due = with(graph, ASH_OP_EQ, next, (double)count);
    ash_graph_update(graph, seen, ash_select(graph, due, ash_scalar(graph, ASH_I64, 0), next));
    for (size_t i = 0; i < n && graph->status == ASH_OK; i++) {
        ash_type type;
        if (!ash_build__take(graph, ASH_OP_ADD, grads[i], &type)) return ASH_NO_VALUE;
        snprintf(label, sizeof label, "%.200s.%zu", name, i);
        const ash_grad_owner before = ash_grad__follow(graph, grads[i]);
        ash_value sum = state_of_zeros(graph, label, &type), more = ash_add(graph, sum, grads[i]);
        ash_graph_update(graph, sum, ash_select(graph, due, ash_scalar_like(graph, more, 0), more));
        grads[i] = with(graph, ASH_OP_DIV, more, (double)count);
        ash_grad__leave(graph, before);
    }
    graph->phase = phase;
    return graph->status == ASH_OK ? due : ASH_NO_VALUE;
}

/* --- scaled losses ---------------------------------------------------------------------------------- */

ASH_SIZED(ash_loss_scale_options, when);

static ash_status take_options(const ash_graph *graph, const ash_loss_scale_options *given, ash_value scale,
                               ash_loss_scale_options *own, ash_diag *diag) {
    ASH_TRY(ASH_TAKE(ash_loss_scale_options, given, own, diag));
    const ash_type *type = ash_graph_type(graph, scale);
    ASH_TRY(ash_graph_status(graph, diag));
    ASH_FAIL_IF(!type || type->rank || type->dtype != ASH_F32 ||
                    graph->values.at[scale].kind != ASH_VALUE_STATE,
                diag, ASH_ERROR_TYPE, "the scale of a loss is no state that is an f32 scalar");
    if (own->when) ASH_TRY(ash_grad__check_when(graph, *own->when, diag));
    if (own->growth == 0) own->growth = 2;
    if (own->backoff == 0) own->backoff = 0.5;
    if (own->interval == 0) own->interval = 2000;
    return ASH_OK;
}

/* Whether all elements are finite: false for infinities and NaNs. */
static ash_value all_finite(ash_graph *t, ash_value x) {
    const ash_type type = ash_grad__type(t, x);
    ash_value finite = with(t, ASH_OP_LT, ash_abs(t, x), ash_build__highest(type.dtype));
    return ash_build__reduce(t, ASH_OP_REDUCE_MIN, finite, (UINT32_C(1) << type.rank) - 1, false);
}

static void become(ash_graph *t, const ash_loss_scale_options *o, ash_value state, ash_value next) {
    ash_graph_update(t, state, o->when ? ash_select(t, *o->when, next, state) : next);
}

static void update_scale(ash_graph *t, ash_value scale, ash_value finite, const ash_loss_scale_options *o) {
    const ash_type count = {.dtype = ASH_I64};
    char name[256];
    snprintf(name, sizeof name, "%.200s.good", t->values.at[scale].name);
    ash_value good = state_of_zeros(t, name, &count), zero = ash_scalar(t, ASH_I64, 0);
    ash_value next = with(t, ASH_OP_ADD, good, 1);
    ash_value due = with(t, ASH_OP_EQ, next, (double)o->interval);
    ash_value grown = ash_select(t, due, with(t, ASH_OP_MUL, scale, o->growth), scale);
    become(t, o, scale, ash_select(t, finite, grown, with(t, ASH_OP_MUL, scale, o->backoff)));
    become(t, o, good, ash_select(t, ash_and(t, finite, ash_not(t, due)), next, zero));
}

ash_value ash_graph_unscale(ash_graph *graph, ash_value *grads, size_t n, ash_value scale,
                            const ash_loss_scale_options *options) {
    ash_loss_scale_options own;
    ash_diag diag;
    if (!graph) return ASH_NO_VALUE;
    if (n) ASH_BUILD_NEED(graph, grads);
    if (take_options(graph, options, scale, &own, &diag) != ASH_OK) {
        ash_graph__stick(graph, &diag);
        return ASH_NO_VALUE;
    }
    uint8_t phase = ash_grad__enter(graph, ASH_PHASE_BACKWARD);
    ash_value finite = ash_scalar(graph, ASH_BOOL, 1), undo = ash_build__from(graph, ASH_OP_DIV, 1, scale);
    for (size_t i = 0; i < n && graph->status == ASH_OK; i++) {
        ash_type type;
        if (!ash_build__take(graph, ASH_OP_MUL, grads[i], &type)) return ASH_NO_VALUE;
        const ash_grad_owner before = ash_grad__follow(graph, grads[i]);
        ash_value whole = all_finite(graph, grads[i]);
        grads[i] = ash_mul(graph, grads[i], ash_cast(graph, undo, type.dtype));
        ash_grad__leave(graph, before);
        finite = ash_and(graph, finite, whole);
    }
    if (graph->status == ASH_OK) update_scale(graph, scale, finite, &own);
    graph->phase = phase;
    return graph->status == ASH_OK ? finite : ASH_NO_VALUE;
}
