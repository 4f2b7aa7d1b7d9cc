/* SPDX-License-Identifier: MIT */
/* Losses, clipping and optimisers: functions that build graphs, and nothing else. */
#include <stdio.h>

#include "base/sized.h"
#include "grad.h"

static ash_value with(ash_graph *t, ash_op op, ash_value x, double number) {
    return ash_build__with(t, op, x, number);
}

/* --- losses --------------------------------------------------------------------------------------- */

ash_value ash_cross_entropy(ash_graph *graph, ash_value logits, ash_value labels) {
    ash_type x, y;
    if (!graph || !ash_build__take(graph, ASH_OP_REDUCE_SUM, logits, &x) ||
        !ash_build__take(graph, ASH_OP_REDUCE_SUM, labels, &y))
        return ASH_NO_VALUE;
    const bool dense = ash_type_equal(&x, &y);
    if (!x.rank ||
        (!dense && (x.rank != y.rank + 1 || memcmp(x.dims, y.dims, y.rank * sizeof *x.dims) != 0 ||
                    ash_dtype_is_float(y.dtype))))
        return ash_build__fail(graph, ASH_OP_REDUCE_SUM, ASH_ERROR_SHAPE,
                               "labels that are not one for each row of logits, nor one for each of them");
    const uint32_t rows = (UINT32_C(1) << (x.rank - 1)) - 1;
    return ash_build__mean(graph, ash_build__cross_entropy(graph, logits, labels, x.rank - 1), rows, false);
}

/* --- clipping ------------------------------------------------------------------------------------- */

ash_value ash_graph_clip_norm(ash_graph *graph, ash_value *grads, size_t n, double most) {
    ash_value sum = ASH_NO_VALUE;
    ash_type first = {.dtype = ASH_F32};
    if (!graph || n == 0) return ASH_NO_VALUE;
    ASH_BUILD_NEED(graph, grads);
    uint8_t phase = ash_grad__enter(graph, ASH_PHASE_BACKWARD);
    for (size_t i = 0; i < n; i++) {
        ash_type type;
        if (!ash_build__take(graph, ASH_OP_REDUCE_SUM, grads[i], &type)) return ASH_NO_VALUE;
        if (i == 0) first = type;
        const ash_grad_owner before = ash_grad__follow(graph, grads[i]);
        ash_value squares = ash_mul(graph, grads[i], grads[i]);
        squares =
            ash_build__reduce(graph, ASH_OP_REDUCE_SUM, squares, (UINT32_C(1) << type.rank) - 1, false);
        squares = ash_cast(graph, squares, first.dtype);
        ash_grad__leave(graph, before);
        sum = i ? ash_add(graph, sum, squares) : squares;
    }
    ash_value norm = ash_sqrt(graph, sum), room = with(graph, ASH_OP_ADD, norm, 1e-6);
    ash_value scale = with(graph, ASH_OP_MIN, ash_build__from(graph, ASH_OP_DIV, most, room), 1);
    for (size_t i = 0; i < n; i++) {
        const ash_type type = ash_grad__type(graph, grads[i]);
        const ash_grad_owner before = ash_grad__follow(graph, grads[i]);
        grads[i] = ash_mul(graph, grads[i], ash_cast(graph, scale, type.dtype));
        ash_grad__leave(graph, before);
    }
    graph->phase = phase;
    return graph->status == ASH_OK ? norm : ASH_NO_VALUE;
}

/* --- optimisers ----------------------------------------------------------------------------------- */

/* One step: what all states have in common. */
typedef struct optimizer_step {
    ash_graph *graph;
    const ash_optimizer_options *options;
    ash_value rate;              /* as it was given */
    ash_value unbiased, squares; /* of Adam, f64: rate / (1 - beta1^t), and sqrt(1 - beta2^t) */
} optimizer_step;

static ash_value like(const optimizer_step *s, ash_value value, ash_value state) {
    return ash_cast(s->graph, value, ash_grad__type(s->graph, state).dtype);
}

/* A state of zeros beside `state`, whose name its name begins with. */
static ash_value beside(const optimizer_step *s, ash_value state, const char *what) {
    char name[256];
    const ash_type type = ash_grad__type(s->graph, state);
    int length = snprintf(name, sizeof name, "%s.%s", s->graph->values.at[state].name, what);
    if (length >= (int)sizeof name) {
        ash_graph__fail(s->graph, ASH_ERROR_INVALID_ARGUMENT, "a state's name is too long to add to it");
        return ASH_NO_VALUE;
    }
    return ash_graph_state(s->graph, name, &type, NULL, 0, ASH_DATA_COPY);
}

/* What a state is after this execution, if the step is taken in it. */
static void become(const optimizer_step *s, ash_value state, ash_value next) {
    if (s->options->when) next = ash_select(s->graph, *s->options->when, next, state);
    ash_graph_update(s->graph, state, next);
}

/* Moves a mean towards a value, and returns what it is then. */
static ash_value follow(const optimizer_step *s, ash_value mean, ash_value value, double beta) {
    ash_graph *t = s->graph;
    ash_value next = ash_add(t, with(t, ASH_OP_MUL, mean, beta), with(t, ASH_OP_MUL, value, 1 - beta));
    become(s, mean, next);
    return next;
}

/* What is subtracted from a state, but for the decay of AdamW. */
static ash_value sgd_move(const optimizer_step *s, ash_value state, ash_value g) {
    ash_graph *t = s->graph;
    const double momentum = s->options->momentum;
    if (momentum != 0) {
        ash_value velocity = beside(s, state, "velocity");
        ash_value next = ash_add(t, with(t, ASH_OP_MUL, velocity, momentum), g);
        become(s, velocity, next);
        g = s->options->nesterov ? ash_add(t, g, with(t, ASH_OP_MUL, next, momentum)) : next;
    }
    return ash_mul(t, g, like(s, s->rate, state));
}

static ash_value adam_move(const optimizer_step *s, ash_value state, ash_value g) {
    ash_graph *t = s->graph;
    ash_value mean = follow(s, beside(s, state, "mean"), g, s->options->beta1);
    ash_value square = follow(s, beside(s, state, "square"), ash_mul(t, g, g), s->options->beta2);
    ash_value root = ash_div(t, ash_sqrt(t, square), like(s, s->squares, state));
    ash_value down = with(t, ASH_OP_ADD, root, s->options->epsilon);
    return ash_mul(t, ash_div(t, mean, down), like(s, s->unbiased, state));
}

/* Where the state is placed, else where its gradient is computed; so are the states beside it. */
static void update_state(const optimizer_step *s, ash_value state, ash_value g) {
    ash_graph *t = s->graph;
    const ash_optimizer_options *o = s->options;
    const ash_grad_owner before = ash_grad__follow(t, g);
    const ash_value_info *info = &t->values.at[state];
    ash_value old = state;
    if (info->place) ash_grad__leave(t, (ash_grad_owner){info->name, info->place});
    if (o->weight_decay != 0 && o->kind != ASH_OPTIMIZER_ADAMW)
        g = ash_add(t, g, with(t, ASH_OP_MUL, state, o->weight_decay));
    if (o->weight_decay != 0 && o->kind == ASH_OPTIMIZER_ADAMW) {
        ash_value shrink = with(t, ASH_OP_MUL, like(s, s->rate, state), o->weight_decay);
        old = ash_mul(t, state, ash_build__from(t, ASH_OP_SUB, 1, shrink));
    }
    ash_value move = o->kind == ASH_OPTIMIZER_SGD ? sgd_move(s, state, g) : adam_move(s, state, g);
    become(s, state, ash_sub(t, old, move));
    ash_grad__leave(t, before);
}

/* The count of steps, and what follows from it for all states alike: in double precision, since 1 - beta^t
 * is a small difference of large numbers. */
static void count_steps(optimizer_step *s) {
    ash_graph *t = s->graph;
    const ash_optimizer_options *o = s->options;
    const ash_type scalar = {.dtype = ASH_I64};
    char name[256];
    snprintf(name, sizeof name, "%.200s.step", o->name ? o->name : "optimizer");
    ash_value count = ash_graph_state(t, name, &scalar, NULL, 0, ASH_DATA_COPY);
    ash_value next = with(t, ASH_OP_ADD, count, 1);
    become(s, count, next);
    ash_value steps = ash_cast(t, next, ASH_F64);
    ash_value first = ash_build__from(t, ASH_OP_SUB, 1, ash_build__from(t, ASH_OP_POW, o->beta1, steps));
    ash_value second = ash_build__from(t, ASH_OP_SUB, 1, ash_build__from(t, ASH_OP_POW, o->beta2, steps));
    s->unbiased = ash_div(t, ash_cast(t, s->rate, ASH_F64), first);
    s->squares = ash_sqrt(t, second);
}

static ash_status check_step(const ash_graph *graph, const ash_value *states, const ash_value *grads,
                             size_t n, ash_value rate, const ash_optimizer_options *options,
                             ash_diag *diag) {
    if (n) ASH_NEED(diag, states, grads);
    ASH_TRY(ash_graph_status(graph, diag));
    ASH_FAIL_IF((unsigned)options->kind >= ASH_OPTIMIZER_COUNT, diag, ASH_ERROR_INVALID_ARGUMENT,
                "no optimiser has the number %d", (int)options->kind);
    const ash_type *type = ash_graph_type(graph, rate);
    ASH_FAIL_IF(!type || type->rank || !ash_dtype_is_float(type->dtype), diag, ASH_ERROR_TYPE,
                "the rate is no floating point scalar");
    if (options->when) ASH_TRY(ash_grad__check_when(graph, *options->when, diag));
    for (size_t i = 0; i < n; i++) {
        const ash_type *of = ash_graph_type(graph, states[i]), *by = ash_graph_type(graph, grads[i]);
        ASH_FAIL_IF(!of || !by, diag, ASH_ERROR_INVALID_ARGUMENT, "%s %zu is no value of the graph",
                    of ? "gradient" : "state", i);
        ASH_FAIL_IF(graph->values.at[states[i]].kind != ASH_VALUE_STATE, diag, ASH_ERROR_INVALID_ARGUMENT,
                    "value %u is no state", (unsigned)states[i]);
        ASH_FAIL_IF(!ash_type_equal(of, by) || !ash_dtype_is_float(of->dtype), diag, ASH_ERROR_TYPE,
                    "gradient %zu has another type than its state, or no floating point numbers", i);
    }
    return ASH_OK;
}

ash_status ash_grad__check_when(const ash_graph *graph, ash_value when, ash_diag *diag) {
    const ash_type *type = ash_graph_type(graph, when);
    ASH_FAIL_IF(!type || type->rank || type->dtype != ASH_BOOL, diag, ASH_ERROR_TYPE,
                "`when` is no bool scalar of the graph");
    return ASH_OK;
}

ASH_SIZED(ash_optimizer_options, when);

static ash_status take_options(const ash_optimizer_options *given, ash_optimizer_options *own,
                               ash_diag *diag) {
    ASH_TRY(ASH_TAKE(ash_optimizer_options, given, own, diag));
    if (own->beta1 == 0) own->beta1 = 0.9;
    if (own->beta2 == 0) own->beta2 = 0.999;
    if (own->epsilon == 0) own->epsilon = 1e-8;
    return ASH_OK;
}

ash_status ash_graph_optimize(ash_graph *graph, const ash_value *states, const ash_value *grads, size_t n,
                              ash_value rate, const ash_optimizer_options *options, ash_diag *diag) {
    ash_optimizer_options taken;
    ash_diag own;
    ASH_NEED(diag, graph);
    ash_status status = take_options(options, &taken, &own);
    if (status == ASH_OK) status = check_step(graph, states, grads, n, rate, &taken, &own);
    if (status != ASH_OK) {
        ash_graph__stick(graph, &own);
        if (diag) *diag = own;
        return status;
    }
    uint8_t phase = ash_grad__enter(graph, ASH_PHASE_UPDATE);
    optimizer_step s = {graph, &taken, rate, ASH_NO_VALUE, ASH_NO_VALUE};
    if (taken.kind != ASH_OPTIMIZER_SGD) count_steps(&s);
    for (size_t i = 0; i < n && graph->status == ASH_OK; i++) update_state(&s, states[i], grads[i]);
    graph->phase = phase;
    return ash_graph_status(graph, diag);
}
