/* SPDX-License-Identifier: MIT */
/* Control flow as loops of the graph: each body is imported once, over arguments, whatever the number of
 * iterations.
 *
 * A branch of If is a loop of one iteration at most, whose results are stacked: there are zeros where the
 * branch is not taken, and a select takes the right ones. What it computes belongs to it because names from
 * outside reach it through a gate, as arguments. One that computes nothing is no loop. In a body of Loop
 * and Scan what depends on no argument is computed once, before the loop.
 *
 * Carried values keep their shapes, but for lists: what begins empty and is appended to in each iteration
 * is stacked; for placeholders: where only the first iteration gives a state the shape that it keeps, that
 * iteration is laid out in front of the loop; and for states to which each iteration adds as much
 * (bodies.c). What is stacked, or grows, has room for `trips` iterations; where a condition ends the loop,
 * or their number is computed, how many there were is a size that depends on data. Where nothing in the
 * model bounds it, the caller does, as other sizes that are computed ("y.0"). A condition that says no more
 * than their number is none (counts.c), and what iterations give back as it was is no state. */
#include <stdio.h>

#include "base/text.h"
#include "control.h"
#include "late.h"

static bool no_memory(ash_import *im) {
    ash_import__fail(im, ASH_ERROR_OUT_OF_MEMORY, "out of memory");
    return false;
}

static ash_value *values(ash_import *im, size_t n) {
    ash_value *list = ash_arena_alloc(im->scratch, n, sizeof *list);
    if (!list) no_memory(im);
    for (size_t i = 0; list && i < n; i++) list[i] = ASH_NO_VALUE;
    return list;
}

/* A value of one element, of a rank as it may be, as a scalar of a dtype. */
static ash_value scalar(ash_import *im, ash_value value, ash_dtype dtype) {
    int64_t count;
    ash_type type = ash_import__type(im, value);
    if (!ash_import__ok(im)) return ASH_NO_VALUE;
    if (!ash_type_static_count(&type, &count) || count != 1)
        return ash_import__fail(im, ASH_ERROR_SHAPE,
                                "a condition or a number of iterations that is no scalar");
    return ash_cast(im->graph, ash_reshape(im->graph, value, NULL, 0), dtype);
}

/* --- If ------------------------------------------------------------------------------------------- */

/* The operand must be known at import after all: fails, and says which input to bind, where that helps. */
static void need_known(ash_import *im, size_t operand) {
    const int64_t *numbers;
    size_t n;
    if (ash_import__ok(im) && ash_import__ints(im, operand, &numbers, &n))
        ash_import__fail(im, ASH_ERROR_INTERNAL, "what was not known is known");
}

/* Whether a branch, the nodes from number `first` on, computes nothing: it hands on what it is given, and
 * numbers. */
static bool computes_nothing(const ash_graph *g, size_t first) {
    for (size_t n = first; n < g->nodes.len; n++) {
        const ash_node *node = &g->nodes.at[n];
        bool repeats =
            node->op == ASH_OP_BROADCAST && ash_graph__value(g, node->ins[0])->kind == ASH_VALUE_CONSTANT;
        if (node->op != ASH_OP_ARGUMENT && !repeats) return false;
    }
    return true;
}

/* What a value is outside of the branch. */
static ash_value outside(const ash_import_gate *gate, ash_value y) {
    for (size_t i = 0; i < gate->arguments.len; i++)
        if (gate->arguments.at[i] == y) return gate->outer.at[i];
    return y;
}

/* A branch that runs when `go` is true; the entries of its results, and what they are outside of it, zeros
 * where it does not run. */
static bool add_branch(ash_import *im, const char *name, ash_value go, size_t *entries,
                       ash_value *results) {
    size_t n = im->node->n_outs;
    ash_graph *g = im->graph;
    ash_import_gate gate = {0};
    const ash_type number = {.dtype = ASH_I64};
    const ash_wire *body = ash_onnx__body_attr(im, name);
    ash_value *ys = values(im, n), *outs = values(im, n + 1), *arguments = NULL;
    if (!body || !ys || !outs) return false;
    ash_import_slices *slices = im->slices;
    ash_onnx_inside in = ash_onnx__before_body(im);
    const size_t first = in.nodes;
    im->slices = NULL;
    im->rolled++;
    bool ok = ash_import__gated_body(im, *body, &gate, entries, n) == ASH_OK;
    im->rolled--;
    im->slices = slices;
    for (size_t k = 0; ok && k < n; k++)
        if (im->values.at[entries[k]].absent || im->values.at[entries[k]].sequence) need_known(im, 0);
    ok = ok && ash_import__ok(im);
    for (size_t k = 0; ok && k < n; k++) ys[k] = ash_import__materialize(im, entries[k]);
    for (size_t k = 0; ok && k < n; k++) ok = ash_onnx__leaves(&in, ys[k], "result", k);
    if (ok && !im->rolled) ok = ash_onnx__finds_no_size(&in);
    ok = ok && ash_import__ok(im) && (arguments = values(im, 1 + gate.arguments.len));
    const bool runs = ok && !computes_nothing(g, first);
    for (size_t k = 0; ok && k < n; k++) results[k] = outside(&gate, ys[k]);
    if (runs) {
        arguments[0] = ash_build__argument(g, &number);
        if (gate.arguments.len)
            memcpy(arguments + 1, gate.arguments.at, gate.arguments.len * sizeof *arguments);
        const ash_loop loop = {.trips = 1,
                               .given = (uint32_t)gate.arguments.len,
                               .stacked = (uint32_t)n,
                               .go = go,
                               .next_go = ash_scalar(g, ASH_BOOL, 0),
                               .gives = gate.outer.at,
                               .arguments = arguments,
                               .ys = ys};
        ok = ash_build__end_loop(g, &loop, outs) == ASH_OK;
    }
    for (size_t k = 0; runs && ok && k < n; k++) results[k] = ash_build__drop_axis(g, outs[1 + k], 0);
    ash_import__free_gate(im, &gate);
    return ok && ash_import__ok(im);
}

/* Whether both branches have the same known elements. */
static bool are_same(const ash_import *im, size_t a, size_t b) {
    const ash_import_value *x = &im->values.at[a], *y = &im->values.at[b];
    if (!x->list || !y->list || x->count != y->count || !ash_type_equal(&x->type, &y->type)) return false;
    for (size_t i = 0; i < x->count; i++)
        if (x->list[i].v != y->list[i].v || x->list[i].dim != y->list[i].dim) return false;
    return true;
}

/* A failure in one of the branches is told with what would leave that branch out. */
static void add_advice(ash_import *im) {
    size_t used = strlen(im->diag.message);
    if (im->status == ASH_ERROR_UNSUPPORTED || im->status == ASH_ERROR_SHAPE)
        snprintf(
            im->diag.message + used, sizeof im->diag.message - used, "%s",
            "; it is in a branch of an If whose condition is not known when the model is read: where an "
            "input decides it, bind that input; where a dim does, give that dim a number");
}

/* The operands: whether a branch is taken that cannot be, and a sentence that says so. */
static ash_status refuse(void *user, const ash_call *call, ash_diag *out) {
    (void)user;
    bool taken = *(const uint8_t *)call->ins[0];
    *(uint8_t *)call->outs[0] = taken;
    ASH_FAIL_IF(taken, out, ASH_ERROR_SHAPE, "%.*s", (int)call->in_types[1].dims[0],
                (const char *)call->ins[1]);
    return ASH_OK;
}

bool ash_onnx__own_function(ash_import *im, const ash_function *function) {
    ash_context *context = im->graph->context;
    if (ash_context_find_function(context, function->name) >= 0) return true;
    ash_status status = ash_context_add_function(context, function, &im->diag);
    if (status == ASH_OK || ash_context_find_function(context, function->name) >= 0) return true;
    im->status = status;
    return false;
}

/* False when the graph runs; where `taken` is true, the execution fails, for a reason that import met. */
static ash_value refuse_at_run(ash_import *im, ash_value taken, const char *branch, const ash_diag *why) {
    ash_span label = ash_import__label(im->node);
    char name[sizeof why->node];
    const ash_function function = {
        .size = sizeof function, .name = ASH_ONNX_REFUSE, .run = refuse, .pure = true};
    const ash_type flag = {.dtype = ASH_BOOL};
    char text[sizeof why->message + 256];
    snprintf(text, sizeof text, "%s is taken, and does not fit these shapes: %s (%s): %s", branch,
             why->node, why->op, why->message);
    const ash_type type = {.dtype = ASH_U8, .rank = 1, .dims = {(ash_dim)strlen(text)}};
    if (!ash_onnx__own_function(im, &function)) return ASH_NO_VALUE;
    ash_value ins[] = {taken, ash_graph_constant(im->graph, &type, text, strlen(text), ASH_DATA_COPY)}, out;
    snprintf(name, sizeof name, "%.*s", ASH_SPAN_ARG(label));
    ash_graph_name_next(im->graph, name);
    ash_custom(im->graph, function.name, ins, ASH_COUNT(ins), &flag, 1, NULL, &out);
    return out;
}

/* The branch `name`, which is the one to take, since the other cannot be imported: it is part of the graph
 * as if the condition were known, and its results depend on a function that fails where it is not so. */
static void take_only(ash_import *im, const char *name, ash_value other, const char *other_name) {
    size_t n = im->node->n_outs, *entries = ash_onnx__indices(im, n), checked = 0;
    const ash_wire *body = ash_onnx__body_attr(im, name);
    const ash_diag why = im->diag;
    const ash_status code = im->status;
    ash_onnx__forgive(im);
    if (!entries || !body) return;
    ash_import__body(im, *body, NULL, 0, entries, n);
    ash_value refused = ash_import__ok(im) ? refuse_at_run(im, other, other_name, &why) : ASH_NO_VALUE;
    for (size_t k = 0; k < n && ash_import__ok(im); k++) {
        const ash_import_value y = im->values.at[entries[k]];
        if (y.absent || y.sequence || y.list) {
            ash_onnx__out_entry(im, k, entries[k]);
            continue;
        }
        ash_value value = ash_import__materialize(im, entries[k]);
        ash_value zero = ash_scalar(im->graph, ash_import__type(im, value).dtype, 0);
        ash_import__out_narrow(im, k, ash_select(im->graph, refused, zero, value), y.narrow);
        checked++;
    }
    bool ok = ash_import__ok(im);
    if ((ok && checked) || (!ok && !ash_onnx__is_about_types(im->status))) return;
    im->status = code; /* neither branch will do: the first one says why */
    im->diag = why;
    add_advice(im);
}

/* Branches that no graph can join: one type stands behind them. */
static void refuse_types(ash_import *im, size_t k, const ash_type *a, const ash_type *b) {
    ash_text text;
    ash_text_init(&text, im->allocator);
    ash_text_add(&text, "result %zu is ", k);
    ash_type_print(im->graph->dims, a, &text);
    ash_text_add(&text, " in one branch and ");
    ash_type_print(im->graph->dims, b, &text);
    ash_text_add(&text, " in the other");
    ash_import__fail(im, ASH_ERROR_UNSUPPORTED, "%s", text.failed ? "branches of other types" : text.at);
    ash_text_free(&text);
    add_advice(im);
}

static bool is_single(const ash_type *type) {
    for (unsigned d = 0; d < type->rank; d++)
        if (type->dims[d] != 1) return false;
    return true;
}

/* Branches that give one element each, in other ranks, as where a flag was a scalar and became bool[1]:
 * both in the lower rank, in which it broadcasts as in the higher one. */
static void level(ash_import *im, ash_value *x, ash_value *y) {
    ash_dim ones[ASH_MAX_RANK];
    const ash_type a = ash_import__type(im, *x), b = ash_import__type(im, *y);
    if (a.rank == b.rank || !is_single(&a) || !is_single(&b)) return;
    ash_value *higher = a.rank > b.rank ? x : y;
    for (unsigned d = 0; d < ASH_MAX_RANK; d++) ones[d] = 1;
    *higher = ash_reshape(im->graph, *higher, ones, ASH_MIN(a.rank, b.rank));
}

/* Whether all results of a branch are values that the graph had before: it hands them on. */
static bool hands_on(const ash_value *results, size_t n, ash_value had) {
    for (size_t k = 0; k < n; k++)
        if (results[k] >= had) return false;
    return true;
}

/* Whether branches differ in the rank of a result and one of them only hands on what it is given: that is
 * the ordinary case then, and the other one, whose results nothing behind it can take, is refused where an
 * execution takes it. True when it has been taken, or failed. */
static bool take_ordinary(ash_import *im, const char *const *names, const ash_value *taken,
                          ash_value *const *results, ash_value had) {
    const size_t n = im->node->n_outs;
    const int ordinary = hands_on(results[1], n, had);
    if (ordinary == hands_on(results[0], n, had)) return false;
    for (size_t k = 0; k < n; k++) {
        ash_value x = results[0][k], y = results[1][k];
        level(im, &x, &y);
        const ash_type a = ash_import__type(im, x), b = ash_import__type(im, y);
        if (!ash_import__ok(im)) return true;
        if (a.dtype != b.dtype || a.rank == b.rank) continue;
        refuse_types(im, k, &a, &b);
        take_only(im, names[ordinary], taken[!ordinary], names[!ordinary]);
        return true;
    }
    return false;
}

/* Result k of either branch. Where they differ in a dim, that is a size which is settled when it is known
 * which branch is taken. */
static void join(ash_import *im, size_t k, ash_value go, ash_value x, ash_value y) {
    ash_graph *g = im->graph;
    level(im, &x, &y);
    const ash_type a = ash_import__type(im, x), b = ash_import__type(im, y);
    ash_dim most[ASH_MAX_RANK];
    bool same = ash_type_equal(&a, &b);
    if (!same && (a.dtype != b.dtype || a.rank != b.rank)) {
        refuse_types(im, k, &a, &b);
        return;
    }
    for (unsigned d = 0; d < a.rank && ash_import__ok(im); d++) {
        bool none = a.dims[d] == 0 || b.dims[d] == 0;
        most[d] = a.dims[d] == b.dims[d] ? a.dims[d]
                  : none                 ? a.dims[d] + b.dims[d]
                                         : ash_graph_dim_max(g, a.dims[d], b.dims[d]);
        x = ash_onnx__fill_up(im, x, d, most[d]);
        y = ash_onnx__fill_up(im, y, d, most[d]);
    }
    ash_value all = ash_select(g, go, x, y);
    for (unsigned d = 0; d < a.rank && ash_import__ok(im); d++) {
        if (a.dims[d] == b.dims[d]) continue;
        ash_value n = ash_select(g, go, ash_build__dim(g, a.dims[d]), ash_build__dim(g, b.dims[d]));
        all = ash_slice_axis(g, all, d, 0, ash_onnx__settle(im, n, most[d], k, d));
    }
    ash_import__out(im, k, all);
}

/* Both branches as part of the graph, whichever is taken: the size of a result depends on data. The number
 * of the one that failed, or 2. */
static int add_both(ash_import *im, const char *const *names, size_t **entries, ash_value **results) {
    size_t n = im->node->n_outs;
    for (int b = 0; b < 2; b++) {
        const ash_wire *body = ash_onnx__body_attr(im, names[b]);
        if (!body || ash_import__body(im, *body, NULL, 0, entries[b], n) != ASH_OK) return b;
        for (size_t k = 0; k < n && ash_import__ok(im); k++) {
            const ash_import_value *y = &im->values.at[entries[b][k]];
            if (y->absent || y->sequence)
                need_known(im, 0);
            else
                results[b][k] = ash_import__materialize(im, entries[b][k]);
        }
        if (!ash_import__ok(im)) return b;
    }
    return 2;
}

void ash_onnx__roll_if(ash_import *im) {
    static const char *const names[] = {"then_branch", "else_branch"};
    size_t n = im->node->n_outs, *entries[2];
    ash_value *results[2], go = scalar(im, ash_import__in(im, 0), ASH_BOOL);
    const ash_value had = (ash_value)im->graph->values.len;
    ash_value taken[] = {go, ash_build__unary(im->graph, ASH_OP_NOT, go)};
    for (int b = 0; b < 2; b++) {
        entries[b] = ash_onnx__indices(im, n);
        results[b] = values(im, n);
        if (!entries[b] || !results[b] || !ash_import__ok(im)) return;
    }
    bool apart = true;
    for (int b = 0; b < 2 && apart; b++) apart = add_branch(im, names[b], taken[b], entries[b], results[b]);
    if (!apart && !ash_onnx__is_about_types(im->status)) {
        add_advice(im);
        return;
    }
    if (!apart) {
        ash_onnx__forgive(im);
        int failed = add_both(im, names, entries, results);
        if (failed < 2 && !ash_import__ok(im) && ash_onnx__is_about_types(im->status))
            take_only(im, names[!failed], taken[failed], names[failed]);
        if (failed < 2) return;
    }
    if (take_ordinary(im, names, taken, results, had)) return;
    for (size_t k = 0; k < n && ash_import__ok(im); k++) {
        if (are_same(im, entries[0][k], entries[1][k]))
            ash_onnx__out_entry(im, k, entries[0][k]);
        else
            join(im, k, go, results[0][k], results[1][k]);
    }
}

/* --- Loop ----------------------------------------------------------------------------------------- */

typedef enum state_kind {
    CARRIED,
    FIXED,  /* iterations give it back as it was: it is a value from outside */
    COUNTS, /* the iteration's number, plus what it begins with */
    LIST    /* begins with no element along dim 0, and is appended to */
} state_kind;

typedef struct rolled {
    const ash_wire *body;
    size_t states, scans;
    size_t nodes;              /* of the graph, before the loop's arguments */
    size_t lists;              /* of the states */
    bool has_lists;            /* whether they are told from others */
    state_kind *kind;          /* per state */
    ash_dim *first;            /* likewise, of those that count: what they begin with */
    bool peeled;               /* the first iteration is laid out in front of the loop */
    size_t *firsts;            /* its results */
    size_t *numbers;           /* of the states that are carried */
    ash_onnx_states *changing; /* how they change */
    bool bounded;    /* `loop.trips` is one more than the bound of a number that is found as it runs */
    ash_value most;  /* the number of iterations, where it is computed, or ASH_NO_VALUE */
    ash_value begin; /* whether to begin, or ASH_NO_VALUE: it does */
    ash_value *init, *arguments, *next;
    ash_value *given; /* states, as an iteration begins with them */
    size_t *ins, *outs;
    ash_import_slices slices;
    ash_loop loop;
} rolled;

/* Where results are stacked or grow, a number of iterations that is computed is a size: of the first of
 * these. One that is found as the loop runs has the bound of that size, and one more shows that it was
 * exceeded. */
static bool bound_trips(ash_import *im, rolled *r) {
    size_t k = 0;
    for (size_t c = 0; k < r->states && r->kind[k] != LIST; k++)
        if (r->kind[k] == CARRIED && r->changing && ash_onnx__state_grows(r->changing, c++)) break;
    if (k == im->node->n_outs) return true;
    if (r->most != ASH_NO_VALUE) {
        ash_onnx__settle_size_of(im, r->most, k, 0, INT64_MIN, &r->loop.trips);
        r->most = ASH_NO_VALUE;
        return ash_import__ok(im);
    }
    r->bounded = ash_onnx__size_bound(im, k, 0, &r->loop.trips) != NULL;
    r->loop.trips++;
    return r->bounded;
}

/* What the condition says of the number of iterations. */
static void find_limit(ash_import *im, rolled *r) {
    const ash_dim most = ash_onnx__until(im, *r->body);
    if (most == ASH_OPEN_MOST || !ash_import__ok(im)) return;
    const bool decided = r->begin != ASH_NO_VALUE && ash_onnx__implies_one(im, r->begin, most);
    r->loop.trips = ash_graph_dim_max(im->graph, most, !decided);
}

static bool find_trips(ash_import *im, rolled *r) {
    const ash_import_int *list;
    size_t n;
    r->loop.trips = ASH_OPEN_MOST;
    if (ash_import__has(im, 0)) {
        if (!ash_import__try_list(im, 0, &list, &n))
            r->most = scalar(im, ash_import__in(im, 0), ASH_I64);
        else if (n == 1)
            r->loop.trips = list[0].dim ? ash_graph_dim_max(im->graph, list[0].v, 0)
                                        : ASH_MIN(ASH_MAX(list[0].v, 0), ASH_OPEN_MOST); /* no limit */
        else
            ash_import__fail(im, ASH_ERROR_SHAPE, "a number of iterations of %zu elements", n);
    }
    if (r->loop.trips == ASH_OPEN_MOST && r->most == ASH_NO_VALUE) find_limit(im, r);
    return ash_import__ok(im) && (r->loop.trips != ASH_OPEN_MOST || bound_trips(im, r));
}

static bool find_begin(ash_import *im, rolled *r) {
    const int64_t *known;
    size_t n;
    if (!ash_import__has(im, 1)) return true;
    if (!ash_import__try_ints(im, 1, &known, &n))
        r->begin = scalar(im, ash_import__in(im, 1), ASH_BOOL);
    else if (n == 1 && !known[0])
        r->begin = ash_scalar(im->graph, ASH_BOOL, 0);
    return ash_import__ok(im);
}

/* Whether a state may be a list. */
static bool begins_empty(ash_import *im, size_t state) {
    const ash_type type = ash_import__in_type(im, 2 + state);
    return type.rank > 0 && type.dims[0] == 0;
}

static state_kind kind_of(ash_import *im, const rolled *r, size_t s) {
    int64_t elements;
    if (ash_import__gives_back(im, *r->body, 2 + s, 1 + s)) return FIXED;
    if (r->has_lists && begins_empty(im, s)) return LIST;
    const ash_type type = ash_import__in_type(im, 2 + s);
    const bool whole = type.dtype == ASH_I64 || type.dtype == ASH_I32;
    return whole && ash_type_static_count(&type, &elements) && elements == 1 &&
                   ash_onnx__counts_up(im, *r->body, s, &r->first[s])
               ? COUNTS
               : CARRIED;
}

/* State s after so many iterations, an i64 scalar, where it counts them. */
static ash_value count_after(ash_import *im, const rolled *r, size_t s, ash_value iterations) {
    const ash_type type = ash_import__in_type(im, 2 + s);
    ash_value x = ash_add(im->graph, iterations, ash_build__dim(im->graph, r->first[s]));
    return ash_reshape(im->graph, ash_cast(im->graph, x, type.dtype), type.dims, type.rank);
}

/* The entry that state s begins with. */
static size_t outer(ash_import *im, size_t s) {
    ash_import__in_type(im, 2 + s); /* fails when it is not there */
    return ash_import__find_name(im, im->node->ins[2 + s]);
}

/* Lays out the first iteration, which there must be whatever is computed; the loop is of the others. */
static bool peel(ash_import *im, rolled *r) {
    int64_t low, high, on;
    const size_t n_outs = 1 + r->states + r->scans;
    ash_dims_bounds(im->graph->dims, r->loop.trips, &low, &high);
    if (r->begin != ASH_NO_VALUE || r->most != ASH_NO_VALUE || low < 1) {
        ash_import__fail(im, ASH_ERROR_UNSUPPORTED,
                         "the first iteration gives states another shape, and whether there is one is not "
                         "known at import");
        return false;
    }
    r->firsts = ash_onnx__indices(im, n_outs);
    if (!r->firsts) return false;
    r->ins[0] = ash_onnx__number_entry(im, ASH_I64, 0);
    r->ins[1] = ash_onnx__number_entry(im, ASH_BOOL, 1);
    for (size_t s = 0; s < r->states && ash_import__ok(im); s++) r->ins[2 + s] = outer(im, s);
    if (!ash_import__ok(im)) return false;
    ash_import__body(im, *r->body, r->ins, 2 + r->states, r->firsts, n_outs);
    for (size_t s = 0; s < r->states && ash_import__ok(im); s++)
        if (r->kind[s] == CARRIED) r->init[s] = ash_import__materialize(im, r->firsts[1 + s]);
    if (!ash_import__ok(im)) return false;
    if (!ash_onnx__known_scalar(im, r->firsts[0], &on) || !on)
        r->begin = scalar(im, ash_import__materialize(im, r->firsts[0]), ASH_BOOL);
    r->loop.trips = ash_graph_dim_sub(im->graph, r->loop.trips, 1);
    return ash_import__ok(im);
}

static bool open_loop(ash_import *im, rolled *r) {
    size_t n_ins = ASH_MAX(im->node->n_ins, (size_t)2);
    r->body = ash_onnx__body_attr(im, "body");
    r->states = n_ins - 2;
    r->most = r->begin = ASH_NO_VALUE;
    r->scans = im->node->n_outs - r->states; /* there are as many: looked at before */
    const size_t carried = r->states + ash_onnx__sizes_of_states(r->changing);
    r->init = values(im, carried);
    r->next = values(im, carried + r->scans);
    r->arguments = values(im, 1 + carried + ASH_IMPORT_SLICES);
    r->given = values(im, r->states);
    r->numbers = ash_onnx__indices(im, r->states);
    r->kind = ash_arena_alloc(im->scratch, r->states, sizeof *r->kind);
    r->first = ash_arena_alloc(im->scratch, r->states, sizeof *r->first);
    r->ins = ash_onnx__indices(im, 2 + r->states);
    r->outs = ash_onnx__indices(im, 1 + r->states + r->scans);
    if (!r->body || !r->init || !r->next || !r->arguments || !r->given || !r->numbers || !r->ins ||
        !r->outs)
        return false;
    if (!r->kind || !r->first) return no_memory(im);
    for (size_t s = 0; s < r->states && ash_import__ok(im); s++) r->kind[s] = kind_of(im, r, s);
    if (!find_begin(im, r) || !find_trips(im, r)) return false;
    if (r->peeled && !peel(im, r)) return false;
    size_t n = 0;
    for (size_t s = 0; s < r->states && ash_import__ok(im); s++) {
        r->lists += r->kind[s] == LIST;
        if (r->kind[s] != CARRIED) continue;
        r->init[n] = r->peeled ? r->init[s] : ash_import__in(im, 2 + s);
        r->numbers[n++] = s;
    }
    const bool computed = r->most != ASH_NO_VALUE;
    const ash_onnx_carried all = {n, r->numbers, computed ? ash_onnx__most(im, r->most) : r->loop.trips};
    if (!ash_import__ok(im) || !ash_onnx__open_states(im, r->changing, &all, r->init)) return false;
    r->loop = (ash_loop){.trips = r->loop.trips,
                         .carried = (uint32_t)(all.n + ash_onnx__sizes_of_states(r->changing)),
                         .stacked = (uint32_t)(r->scans + r->lists),
                         .go = ASH_NO_VALUE,
                         .init = r->init,
                         .arguments = r->arguments,
                         .next = r->next,
                         .ys = r->next + all.n + ash_onnx__sizes_of_states(r->changing)};
    r->nodes = im->graph->nodes.len;
    return ash_import__ok(im) && ash_build__begin_loop(im->graph, &r->loop);
}

/* What an iteration appends to the list that state s is: rows of the dims that it begins with, a number of
 * them. */
static ash_value appended(ash_import *im, const rolled *r, size_t s) {
    size_t part = ash_late__appended(im, r->outs[1 + s], r->ins[2 + s]);
    ash_type rows = ash_import__in_type(im, 2 + s);
    int64_t count =
        part == SIZE_MAX || ash_late__rank(im, part) != rows.rank ? -1 : ash_late__extent(im, part, 0);
    if (count < 0)
        return ash_import__fail(im, ASH_ERROR_UNSUPPORTED,
                                "state %zu begins empty, and is not appended to in each iteration", s);
    rows.dims[0] = count;
    ash_value y = ash_late__value(im, part, rows.dims);
    ash_type type = ash_import__type(im, y);
    if (ash_import__ok(im) && !ash_type_equal(&type, &rows))
        return ash_import__fail(im, ASH_ERROR_SHAPE, "what is appended to state %zu has other dims", s);
    return y;
}

static bool import_body(ash_import *im, rolled *r) {
    const size_t carried = r->loop.carried;
    ash_value i = r->arguments[0];
    if (!ash_onnx__give_states(im, r->changing, r->arguments, r->given)) return false;
    if (r->peeled) i = ash_add(im->graph, i, ash_scalar(im->graph, ASH_I64, 1));
    r->ins[0] = ash_onnx__tensor_entry(im, i);
    r->ins[1] = ash_onnx__number_entry(im, ASH_BOOL, 1); /* or there would be no iteration */
    for (size_t s = 0, c = 0; s < r->states; s++) {
        const ash_type type = ash_import__in_type(im, 2 + s);
        switch (r->kind[s]) {
        case CARRIED: r->ins[2 + s] = ash_onnx__tensor_entry(im, r->given[c++]); break;
        case FIXED: r->ins[2 + s] = outer(im, s); break;
        case COUNTS: r->ins[2 + s] = ash_onnx__tensor_entry(im, count_after(im, r, s, i)); break;
        case LIST: r->ins[2 + s] = ash_late__list(im, &type); break;
        }
    }
    if (!ash_import__ok(im)) return false;
    ash_import_slices *outer = im->slices;
    r->slices = (ash_import_slices){.iteration = r->arguments[0], .trips = r->loop.trips};
    im->slices = &r->slices;
    ash_onnx_inside in = ash_onnx__before_body(im);
    in.nodes = r->nodes;
    im->rolled++;
    ash_import__body(im, *r->body, r->ins, 2 + r->states, r->outs, 1 + r->states + r->scans);
    im->rolled--;
    im->slices = outer;
    if (!ash_import__ok(im)) return false;
    r->loop.scanned = r->slices.n;
    r->loop.xs = r->slices.xs;
    for (uint32_t k = 0; k < r->slices.n; k++) r->arguments[1 + carried + k] = r->slices.slices[k];
    for (size_t s = 0, c = 0, l = carried + r->scans; s < r->states && ash_import__ok(im); s++) {
        if (r->kind[s] == LIST)
            r->next[l++] = appended(im, r, s);
        else if (r->kind[s] == CARRIED)
            r->next[c++] = ash_import__materialize(im, r->outs[1 + s]);
    }
    if (!ash_import__ok(im) || !ash_onnx__take_states(im, r->changing, r->arguments, r->next)) return false;
    for (size_t k = 0; k < r->scans; k++)
        r->next[carried + k] = ash_import__materialize(im, r->outs[1 + r->states + k]);
    for (size_t k = 0; k < carried + r->loop.stacked && ash_import__ok(im); k++)
        ash_onnx__leaves(&in, r->next[k], "result", k);
    return ash_import__ok(im);
}

/* Whether to begin and to go on, where that is not always so. */
static bool add_conditions(ash_import *im, rolled *r) {
    ash_graph *g = im->graph;
    int64_t known;
    bool always = ash_onnx__known_scalar(im, r->outs[0], &known) && known;
    if (!ash_import__ok(im)) return false;
    const bool counted = r->most == ASH_NO_VALUE && !r->bounded;
    ash_value on = ash_scalar(g, ASH_BOOL, 1), i = r->arguments[0];
    ash_value next_go = always ? on : scalar(im, ash_import__materialize(im, r->outs[0]), ASH_BOOL);
    if (!ash_import__ok(im)) return false;
    if (counted && ash_onnx__goes_on(im, &r->loop, next_go)) {
        always = true;
        if (r->begin != ASH_NO_VALUE && ash_onnx__goes_on(im, &r->loop, r->begin)) r->begin = ASH_NO_VALUE;
    }
    if (!ash_import__ok(im)) return false;
    if (always && r->begin == ASH_NO_VALUE && r->most == ASH_NO_VALUE) return true;
    r->loop.go = r->begin == ASH_NO_VALUE ? on : r->begin;
    r->loop.next_go = always ? on : next_go;
    if (r->most != ASH_NO_VALUE) {
        ash_value next = ash_add(g, i, ash_scalar(g, ASH_I64, 1));
        r->loop.go = ash_and(g, r->loop.go, ash_lt(g, ash_scalar(g, ASH_I64, 0), r->most));
        r->loop.next_go = ash_and(g, r->loop.next_go, ash_lt(g, next, r->most));
    }
    return ash_import__ok(im);
}

/* Stacked value `k`, of which `count` were made, as result `out`: those of a list are rows of it. */
static void stacked_out(ash_import *im, const rolled *r, ash_value all, ash_dim count, size_t out,
                        bool is_list) {
    ash_type type = ash_import__type(im, all);
    if (!ash_import__wants(im, out) || !ash_import__ok(im)) return;
    if (count != r->loop.trips) all = ash_slice_axis(im->graph, all, 0, 0, count);
    if (r->peeled) {
        ash_value one = ash_import__materialize(im, r->firsts[1 + out]);
        const ash_value parts[] = {ash_build__insert_axis(im->graph, one, 0), all};
        all = ash_concat(im->graph, parts, 2, 0);
    }
    if (is_list) {
        type.dims[1] = ash_graph_dim_mul(im->graph, count, type.dims[1]);
        all = ash_reshape(im->graph, all, type.dims + 1, type.rank - 1);
    }
    ash_import__out(im, out, all);
}

/* How many there were, as a dim of result k. */
static ash_dim iterations(ash_import *im, const rolled *r, ash_value made, size_t k) {
    const int64_t most = r->loop.trips - 1;
    if (!r->bounded) return ash_onnx__settle(im, made, r->loop.trips, k, 0);
    const char *name = ash_onnx__size_bound(im, k, 0, NULL);
    if (!name) return 0;
    return ash_onnx__settle(im, ash_onnx__within(im, made, 0, most, name), most, k, 0);
}

/* `changing` says how states change their shapes, or is told how they would have to. */
static void roll_loop(ash_import *im, bool has_lists, bool peeled, ash_onnx_states *changing) {
    rolled r = {.has_lists = has_lists, .peeled = peeled, .changing = changing};
    if (!open_loop(im, &r) || !import_body(im, &r) || !add_conditions(im, &r)) return;
    bool until = r.loop.go != ASH_NO_VALUE;
    const size_t carried = r.loop.carried, n = until + carried + r.loop.stacked;
    ash_value *outs = values(im, n);
    if (!outs || ash_build__end_loop(im->graph, &r.loop, outs) != ASH_OK) return;
    ash_dim count = r.loop.trips;
    bool counted = false;
    for (size_t s = 0, c = 0, l = until + carried + r.scans; s < r.states + r.scans; s++) {
        if (s < r.states && r.kind[s] == FIXED) {
            ash_onnx__out_entry(im, s, outer(im, s));
            continue;
        }
        if (s < r.states && r.kind[s] == COUNTS) {
            ash_value made = until ? outs[0] : ash_build__dim(im->graph, r.loop.trips);
            if (r.peeled) made = ash_add(im->graph, made, ash_scalar(im->graph, ASH_I64, 1));
            if (ash_import__wants(im, s)) ash_import__out(im, s, count_after(im, &r, s, made));
            continue;
        }
        bool is_list = s < r.states && r.kind[s] == LIST, is_state = s < r.states && !is_list;
        bool counts = !is_state || ash_onnx__state_grows(changing, c);
        if (until && !counted && counts && ash_import__wants(im, s)) {
            count = iterations(im, &r, outs[0], s);
            counted = true;
        }
        if (is_state)
            ash_import__out(im, s, ash_onnx__last_state(im, changing, c++, outs + until, count));
        else
            stacked_out(im, &r, outs[is_list ? l++ : until + carried + s - r.states], count, s, is_list);
    }
}

/* In as many ways as it takes, the cheapest first. What is told of a loop that cannot be had is what its
 * body lacks as it stands, or, where that is no more than that states change their shapes, what the last
 * way to change them says. */
void ash_onnx__roll_loop(ash_import *im) {
    static const struct {
        bool lists, peeled, changing;
    } ways[] = {
        {.lists = true}, {0}, {.peeled = true}, {.changing = true}, {.peeled = true, .changing = true}};
    const size_t states = im->node->n_ins > 2 ? im->node->n_ins - 2 : 0;
    ash_onnx_states *kept[3] = {NULL}; /* as it stands, peeled, and with lists */
    ash_status status = ASH_OK;
    ash_diag why;
    bool lists = false, of_states = false;
    for (size_t i = 0; i < ASH_COUNT(kept); i++) kept[i] = ash_onnx__new_states(im, states, 2, i == 1);
    for (size_t s = 0; s < states && ash_import__ok(im); s++) lists |= begins_empty(im, s);
    if (!ash_import__ok(im)) return;
    for (size_t w = 0; w < ASH_COUNT(ways); w++) {
        ash_onnx_states *changing = kept[ways[w].lists ? 2 : ways[w].peeled];
        if ((ways[w].lists && !lists) || (ways[w].changing && !ash_onnx__states_change(changing))) continue;
        do {
            ash_onnx__forgive(im);
            roll_loop(im, ways[w].lists, ways[w].peeled, changing);
        } while (ways[w].changing && ash_onnx__try_again(im, changing));
        if (ash_import__ok(im) || !ash_onnx__is_about_types(im->status)) return;
        if (status == ASH_OK || (of_states && im->status == ASH_ERROR_UNSUPPORTED)) why = im->diag;
        if (status == ASH_OK) status = im->status;
        of_states |= ash_onnx__states_do_not_fit(changing);
    }
    im->status = status, im->diag = why;
}

/* --- Scan ----------------------------------------------------------------------------------------- */

/* Moves an axis to another place; the others keep their order. */
static ash_value move_axis(ash_import *im, ash_value x, unsigned from, unsigned to) {
    unsigned rank = ash_import__type(im, x).rank;
    int64_t perm[ASH_MAX_RANK];
    for (unsigned d = 0, at = 0; d < rank; d++) {
        if (at == from) at++;
        perm[d] = d == to ? from : at++;
    }
    return from == to ? x : ash_transpose(im->graph, x, perm);
}

static void roll_scan(ash_import *im, const ash_onnx_scan *scan, ash_onnx_states *changing) {
    const size_t n_states = scan->n_states, n_xs = scan->n_xs;
    size_t n_outs = im->node->n_outs, n_scans = n_outs - n_states, n_ins = n_states + n_xs;
    const size_t n_carried = n_states + ash_onnx__sizes_of_states(changing), n_next = n_carried + n_scans;
    const ash_wire *body = ash_onnx__body_attr(im, "body");
    ash_value *init = values(im, n_carried), *lying = values(im, n_xs), *next = values(im, n_next);
    ash_value *arguments = values(im, 1 + n_carried + n_xs), *outs = values(im, n_next);
    ash_value *given = values(im, n_ins);
    size_t *ins = ash_onnx__indices(im, n_ins), *results = ash_onnx__indices(im, n_outs);
    if (!body || !init || !lying || !next || !arguments || !outs || !given || !ins || !results) return;
    ash_loop loop = {.carried = (uint32_t)n_carried,
                     .scanned = (uint32_t)n_xs,
                     .stacked = (uint32_t)n_scans,
                     .go = ASH_NO_VALUE,
                     .init = init,
                     .xs = lying,
                     .arguments = arguments,
                     .next = next,
                     .ys = next + n_carried};
    for (size_t s = 0; s < n_states; s++) init[s] = ash_import__materialize(im, scan->states[s]);
    for (size_t k = 0; k < n_xs && ash_import__ok(im); k++) {
        int64_t axis = ash_import__axis(im, ash_onnx__list_entry(im, "scan_input_axes", k, 0),
                                        ash_import__type(im, scan->xs[k]).rank);
        if (!ash_import__ok(im)) return;
        lying[k] = move_axis(im, scan->xs[k], (unsigned)axis, 0);
        ash_dim steps = ash_import__type(im, lying[k]).dims[0];
        if (k && steps != loop.trips)
            ash_import__fail(im, ASH_ERROR_SHAPE, "scanned operands differ in length");
        loop.trips = steps;
        if (k < 62 && ash_onnx__list_entry(im, "scan_input_directions", k, 0))
            loop.backward |= UINT64_C(1) << k;
    }
    for (size_t s = 0; s < n_scans; s++)
        if (n_xs + s < 62 && ash_onnx__list_entry(im, "scan_output_directions", s, 0))
            loop.backward |= UINT64_C(1) << (n_xs + s);
    const ash_onnx_carried all = {n_states, NULL, loop.trips};
    if (!ash_import__ok(im) || !ash_onnx__open_states(im, changing, &all, init)) return;
    ash_onnx_inside in = ash_onnx__before_body(im);
    if (!ash_build__begin_loop(im->graph, &loop)) return;
    if (!ash_onnx__give_states(im, changing, arguments, given)) return;
    for (size_t k = 0; k < n_xs; k++) given[n_states + k] = arguments[1 + n_carried + k];
    for (size_t k = 0; k < n_ins; k++) ins[k] = ash_onnx__tensor_entry(im, given[k]);
    if (!ash_import__ok(im)) return;
    ash_import_slices *outer = im->slices;
    im->slices = NULL; /* its operands are sliced already */
    im->rolled++;
    ash_import__body(im, *body, ins, n_ins, results, n_outs);
    im->rolled--;
    im->slices = outer;
    if (!ash_import__ok(im)) return;
    for (size_t k = 0; k < n_outs; k++)
        next[k < n_states ? k : k - n_states + n_carried] = ash_import__materialize(im, results[k]);
    if (!ash_import__ok(im) || !ash_onnx__take_states(im, changing, arguments, next)) return;
    for (size_t k = 0; k < n_next && ash_import__ok(im); k++) ash_onnx__leaves(&in, next[k], "result", k);
    if (!ash_import__ok(im) || ash_build__end_loop(im->graph, &loop, outs) != ASH_OK) return;
    for (size_t k = 0; k < n_states && ash_import__ok(im); k++)
        ash_import__out(im, k, ash_onnx__last_state(im, changing, k, outs, loop.trips));
    for (size_t k = 0; k < n_scans && ash_import__ok(im); k++) {
        ash_value all_of = outs[n_carried + k];
        unsigned axis = ash_import__axis(im, ash_onnx__list_entry(im, "scan_output_axes", k, 0),
                                         ash_import__type(im, all_of).rank);
        if (ash_import__ok(im)) ash_import__out(im, n_states + k, move_axis(im, all_of, 0, axis));
    }
}

void ash_onnx__roll_scan(ash_import *im, const ash_onnx_scan *scan) {
    ash_onnx_states *changing = ash_onnx__new_states(im, scan->n_states, 0, false);
    if (!changing) return;
    do roll_scan(im, scan, changing);
    while (ash_onnx__try_again(im, changing));
}
