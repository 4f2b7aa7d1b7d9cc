/* SPDX-License-Identifier: MIT */
/* Reverse mode: gradients of a graph's values, appended to the graph.
 *
 * Two walks mark the nodes that gradients go through: forward from the xs (what depends on them),
 * backward from the ys (what they depend on). A third goes backward over those that are both, last node
 * first, so that a value's gradient is complete, the sum of what each use has given, before the node
 * that made it is asked (gradients.def). All three are linear. The order of the sums is the order of the
 * nodes, and so results are the same each time.
 *
 * What a rule appends has the name of its node, and is placed where that is (ash_graph_place): gradients
 * are computed on the device of the forward pass, by rules on names as well. So are sums, of the value
 * whose gradient they are. */
#include <stdio.h>

#include "base/sized.h"
#include "base/text.h"
#include "grad.h"

typedef enum kind { KIND_RULE = 1, KIND_ZERO, KIND_NONE } kind;

typedef struct rule_row {
    kind kind;
    ash_grad_rule *rule;
    const char *why;
} rule_row;

/* In the order of the operators. */
#define RULE(ID, rule) {KIND_RULE, ash_grad__##rule, NULL},
#define ZERO(ID, why)  {KIND_ZERO, NULL, why},
#define NONE(ID, why)  {KIND_NONE, NULL, why},
static const rule_row rows[] = {
#include "gradients.def"
};
#undef RULE
#undef ZERO
#undef NONE

/* Every operator has a row, at its place. */
#define RULE(ID, rule) ROW_##ID,
#define ZERO(ID, why)  ROW_##ID,
#define NONE(ID, why)  ROW_##ID,
enum {
#include "gradients.def"
    ROWS
};
#undef RULE
#undef ZERO
#undef NONE
_Static_assert((int)ROWS == (int)ASH_OP_COUNT, "an operator without a row in gradients.def");
#define OP(ID, name, CLASS, imin, imax, outs, attrs)                                                       \
    _Static_assert((int)ROW_##ID == (int)ASH_OP_##ID, "gradients.def is not in the order of "              \
                                                      "ops.def: " #ID);
#include "ashlar/ops.def"
#undef OP

/* What is known of a value. */
enum {
    MARK_X = 1,        /* one of the xs */
    MARK_Y = 2,        /* one of the ys */
    MARK_STOP = 4,     /* counts as a constant */
    MARK_CONSTANT = 8, /* made of constants alone */
    MARK_ACTIVE = 16,  /* some x has a derivative that goes through it */
    MARK_SMOOTH = 32,  /* some y has a derivative by it */
    MARK_REACHES = 64, /* some y depends on it, and it is not known that the derivative is 0 */
};

struct ash_walk {
    ash_graph *graph;
    size_t n_values, n_nodes;     /* of the graph as it was */
    uint8_t *marks;               /* per value */
    ash_value *grads;             /* per value; ASH_NO_VALUE: 0 */
    uint32_t *next;               /* per value that reaches some y: a node on the way */
    ash_softmax_parts *softmaxes; /* per node */
    ash_bodies bodies;
    ash_diag *diag;
};
typedef struct ash_walk walk;

static bool is_float(const ash_graph *graph, ash_value value) {
    return ash_dtype_is_float(ash_graph__type(graph, value)->dtype);
}

/* Whether a result of the node has all of these marks. */
static bool has_result(const walk *w, const ash_node *node, unsigned marks) {
    for (uint16_t k = 0; k < node->n_outs; k++)
        if ((w->marks[node->out + k] & (marks | MARK_STOP)) == marks) return true;
    return false;
}

/* Whether gradients go from the node's results to an operand. */
static bool carries(const walk *w, const ash_node *node, ash_value operand) {
    if (rows[node->op].kind != KIND_RULE || !is_float(w->graph, operand)) return false;
    for (uint16_t k = 0; k < node->n_outs; k++)
        if (is_float(w->graph, node->out + k)) return true;
    return false;
}

/* Whether an operand says whether a loop begins or goes on. */
static bool is_condition(const ash_node *loop, uint16_t operand) {
    const ash_loop_parts p = ash_node__loop(loop);
    return p.until && (operand == p.go || operand == p.next_go);
}

/* Whether an operand only chooses among others, as a condition or an index: its derivative is 0. */
static bool chooses(const ash_node *node, uint16_t operand) {
    switch (ash_op_infos[node->op].class) {
    case ASH_CLASS_SELECT: return operand == 0;
    case ASH_CLASS_GATHER:
    case ASH_CLASS_SCATTER: return operand == 1;
    case ASH_CLASS_LOOP: return is_condition(node, operand);
    default: return false;
    }
}

/* --- marking -------------------------------------------------------------------------------------- */

/* What a value is of what it is made of; whether that is more than was known. */
static bool mark_value(const walk *w, ash_value value, unsigned marks) {
    uint8_t *mark = &w->marks[value], before = *mark;
    if (*mark & MARK_STOP || !is_float(w->graph, value)) marks &= ~(unsigned)MARK_ACTIVE;
    *mark |= (uint8_t)marks;
    return *mark != before;
}

/* A loop's results: what is carried before the first iteration or after one, and what is stacked. */
static bool mark_results(const walk *w, const ash_node *loop) {
    const ash_loop_parts p = ash_node__loop(loop);
    bool more = false;
    for (uint32_t k = 0; k < p.carried; k++) {
        unsigned marks = w->marks[loop->ins[p.init + k]] | w->marks[loop->ins[p.next + k]];
        more |= mark_value(w, loop->out + p.finals + k, marks & MARK_ACTIVE);
    }
    for (uint32_t k = 0; k < p.stacked; k++)
        more |= mark_value(w, loop->out + p.stacks + k, w->marks[loop->ins[p.ys + k]] & MARK_ACTIVE);
    return more;
}

static bool mark_node(const walk *w, const ash_node *node) {
    if (node->op == ASH_OP_LOOP) return mark_results(w, node);
    if (node->op == ASH_OP_STACK) return mark_value(w, node->out, w->marks[node->ins[1]] & MARK_ACTIVE);
    unsigned marks = ash_node__is_pure(w->graph, node) ? MARK_CONSTANT : 0;
    bool more = false;
    for (uint16_t k = 0; k < node->n_ins; k++) {
        if (!(w->marks[node->ins[k]] & MARK_CONSTANT)) marks &= ~(unsigned)MARK_CONSTANT;
        if (w->marks[node->ins[k]] & MARK_ACTIVE && carries(w, node, node->ins[k])) marks |= MARK_ACTIVE;
    }
    for (uint16_t k = 0; k < node->n_outs; k++) more |= mark_value(w, node->out + k, marks);
    return more;
}

/* What a loop's arguments are: values before it and, of those that are carried, of its own body. */
static bool mark_arguments(const walk *w, const ash_node *loop) {
    const ash_loop_parts p = ash_node__loop(loop);
    const ash_value *argument = loop->ins + ASH_LOOP_CARRIED;
    bool more = false;
    for (uint32_t k = 0; k < p.carried; k++) {
        unsigned marks = w->marks[loop->ins[p.init + k]] | w->marks[loop->ins[p.next + k]];
        more |= mark_value(w, *argument++, marks & MARK_ACTIVE);
    }
    for (uint32_t k = 0; k < p.scanned + p.given; k++) /* their operands are as they are, one by one */
        more |= mark_value(w, *argument++, w->marks[loop->ins[p.xs + k]] & MARK_ACTIVE);
    return more;
}

/* The body of a loop, again and again, until what is carried says nothing new: at most once for each. */
static void mark_body(const walk *w, uint32_t loop) {
    for (bool more = true; more;) {
        more = mark_arguments(w, &w->graph->nodes.at[loop]);
        for (uint32_t n = w->bodies.first[loop]; n < loop; n = w->bodies.next[n]) {
            const ash_node *node = &w->graph->nodes.at[n];
            if (node->op == ASH_OP_LOOP) more |= mark_arguments(w, node);
            more |= mark_node(w, node);
        }
    }
}

static void mark_active(const walk *w) {
    const ash_graph *graph = w->graph;
    for (size_t v = 0; v < w->n_values; v++) {
        if (graph->values.at[v].kind == ASH_VALUE_CONSTANT) w->marks[v] |= MARK_CONSTANT;
        if (w->marks[v] & MARK_X) w->marks[v] |= MARK_ACTIVE;
    }
    for (uint32_t i = 0; i < w->n_nodes; i++) {
        if (ash_bodies__is_loop(&w->bodies, i)) mark_body(w, i);
        mark_node(w, &graph->nodes.at[i]);
    }
}

static void mark_reaching(const walk *w) {
    for (size_t v = 0; v < w->n_values; v++)
        if (w->marks[v] & MARK_Y) w->marks[v] |= MARK_SMOOTH | MARK_REACHES;
    for (size_t i = w->n_nodes; i-- > 0;) {
        const ash_node *node = &w->graph->nodes.at[i];
        if (rows[node->op].kind == KIND_ZERO || !has_result(w, node, MARK_REACHES)) continue;
        unsigned through = node->op == ASH_OP_LOOP ? MARK_ACTIVE : 0; /* its body says */
        bool smooth = has_result(w, node, MARK_SMOOTH | through);
        for (uint16_t k = 0; k < node->n_ins; k++) {
            uint8_t *mark = &w->marks[node->ins[k]];
            if (chooses(node, k)) continue;
            bool carried = smooth && carries(w, node, node->ins[k]);
            /* A way that gradients go is the better one to tell. */
            if (!(*mark & MARK_REACHES) || (carried && !(*mark & MARK_SMOOTH)))
                w->next[node->ins[k]] = (uint32_t)i;
            *mark |= carried ? MARK_REACHES | MARK_SMOOTH : MARK_REACHES;
        }
    }
}

/* --- paths ---------------------------------------------------------------------------------------- */

enum { PATH_SHOWN = 4 }; /* nodes that are spelled out at either end of a path */

static void print_value(const walk *w, ash_value value, ash_text *out) {
    const ash_graph *graph = w->graph;
    const char *name = graph->values.at[value].name;
    for (size_t i = 0; !name && i < graph->outputs.len; i++)
        if (graph->outputs.at[i].value == value) name = graph->outputs.at[i].name;
    if (name)
        ash_text_add(out, "'%.40s'", name);
    else
        ash_text_add(out, "value %u", (unsigned)value);
}

static void print_node(const walk *w, uint32_t node, ash_text *out) {
    const ash_node *n = &w->graph->nodes.at[node];
    ash_text_add(out, " -> %s", ash_op_name(n->op));
    if (n->name) ash_text_add(out, " '%.24s'", n->name);
}

/* The result of a node by which it goes on to some y. */
static ash_value reaching_result(const walk *w, const ash_node *node) {
    ash_value found = node->out;
    for (uint16_t k = node->n_outs; k-- > 0;)
        if (w->marks[node->out + k] & MARK_REACHES && !(w->marks[node->out + k] & MARK_STOP))
            found = node->out + k;
    return found;
}

/* Appends the path from `x` to a y: its first nodes and its last. */
static void print_path(const walk *w, ash_value x, ash_text *out) {
    uint32_t last[PATH_SHOWN];
    size_t n = 0;
    ash_value at = x;
    print_value(w, x, out);
    for (; !(w->marks[at] & MARK_Y); n++) {
        uint32_t node = w->next[at];
        if (n < PATH_SHOWN) print_node(w, node, out);
        last[n % PATH_SHOWN] = node;
        at = reaching_result(w, &w->graph->nodes.at[node]);
    }
    if (n > 2 * (size_t)PATH_SHOWN) ash_text_add(out, " -> ...");
    for (size_t i = ASH_MAX((size_t)PATH_SHOWN, n > PATH_SHOWN ? n - PATH_SHOWN : 0); i < n; i++)
        print_node(w, last[i % PATH_SHOWN], out);
    ash_text_add(out, " -> ");
    print_value(w, at, out);
}

static ash_status fail_path(const walk *w, ash_value x, const ash_node *culprit, const char *why) {
    ash_text text;
    ash_text_init(&text, w->graph->allocator);
    print_path(w, x, &text);
    ash_status status =
        ash_fail(w->diag, ASH_ERROR_UNSUPPORTED, "%s %s, on the way %s", ash_op_name(culprit->op), why,
                 text.at && !text.failed ? text.at : "to the loss");
    ash_diag__add_node(w->diag, culprit->name, ash_op_name(culprit->op), ASH_NO_OFFSET);
    ash_text_free(&text);
    return status;
}

/* An x that reaches a y on roads alone that no gradient takes. */
static ash_status check_x(const walk *w, ash_value x) {
    if ((w->marks[x] & (MARK_REACHES | MARK_SMOOTH)) != MARK_REACHES) return ASH_OK;
    for (ash_value at = x; !(w->marks[at] & MARK_Y);) {
        const ash_node *node = &w->graph->nodes.at[w->next[at]];
        bool blocks = node->op == ASH_OP_LOOP && !has_result(w, node, MARK_ACTIVE);
        if (blocks || !carries(w, node, at)) {
            char why[96];
            snprintf(why, sizeof why, "has no derivative (%s)",
                     rows[node->op].why ? rows[node->op].why
                     : blocks           ? "what its body makes of this has none"
                                        : "its operand or result is no floating point number");
            return fail_path(w, x, node, why);
        }
        at = reaching_result(w, node);
    }
    return ASH_OK;
}

void ash_grad__refuse(ash_grad *c, const char *why) {
    const walk *w = c->walk;
    ash_value at;
    /* Back to some x, by the operands that gradients would go to. */
    for (const ash_node *node = &c->node;; node = &w->graph->nodes.at[w->graph->values.at[at].node]) {
        uint16_t k = node->op == ASH_OP_LOOP ? (uint16_t)ash_node__loop(node).init : 0;
        while (k + 1 < node->n_ins &&
               !(w->marks[node->ins[k]] & MARK_ACTIVE && carries(w, node, node->ins[k])))
            k++;
        at = node->ins[k];
        w->next[at] = w->graph->values.at[node->out].node;
        const ash_value_info *info = &w->graph->values.at[at];
        if (w->marks[at] & MARK_X || info->kind != ASH_VALUE_NODE) break;
        if (!w->graph->nodes.at[info->node].n_ins) break; /* an argument of a loop */
    }
    ash_diag diag;
    walk told = *w;
    told.diag = &diag;
    fail_path(&told, at, &c->node, why);
    ash_graph__stick(c->graph, &diag);
}

/* --- the walk ------------------------------------------------------------------------------------- */

bool ash_grad__wants(const ash_grad *c, size_t operand) {
    return c->walk->marks[c->node.ins[operand]] & MARK_ACTIVE &&
           carries(c->walk, &c->node, c->node.ins[operand]);
}

bool ash_grad__is_constant(const ash_grad *c, ash_value value) {
    return c->walk->marks[value] & MARK_CONSTANT;
}

bool ash_grad__is_active(const ash_grad *c, ash_value value) {
    return c->walk->marks[value] & MARK_ACTIVE;
}

bool ash_grad__is_stop(const ash_grad *c, ash_value value) {
    return c->walk->marks[value] & MARK_STOP;
}

const ash_bodies *ash_grad__bodies(const ash_grad *c) {
    return &c->walk->bodies;
}

/* What is appended from now on belongs to a node. */
static void follow(ash_graph *graph, const ash_node *node) {
    graph->next_name = node->name;
    graph->next_place = node->place;
}

ash_grad_owner ash_grad__follow(ash_graph *graph, ash_value gradient) {
    const ash_grad_owner before = {graph->next_name, graph->next_place};
    if (graph->status != ASH_OK) return before;
    const ash_value_info *info = &graph->values.at[gradient];
    if (info->kind == ASH_VALUE_NODE) follow(graph, &graph->nodes.at[info->node]);
    return before;
}

void ash_grad__leave(ash_graph *graph, ash_grad_owner owner) {
    graph->next_name = owner.name;
    graph->next_place = owner.place;
}

static void add_to(walk *w, ash_value value, ash_value gradient) {
    const ash_grad_owner before = ash_grad__follow(w->graph, value);
    ash_value *sum = &w->grads[value];
    *sum = *sum == ASH_NO_VALUE ? gradient : ash_add(w->graph, *sum, gradient);
    ash_grad__leave(w->graph, before);
}

void ash_grad__stack(ash_grad *c) {
    if (ash_grad__wants(c, 1)) add_to(c->walk, c->node.ins[1], c->g);
}

ash_value ash_grad__stacked(const ash_grad *c, ash_value value) {
    return c->walk->grads[value];
}

static void add_gradient(walk *w, ash_value value, ash_value gradient) {
    if (gradient == ASH_NO_VALUE || w->graph->status != ASH_OK) return;
    if (!ash_type_equal(ash_graph__type(w->graph, value), ash_graph__type(w->graph, gradient))) {
        ash_graph__fail(w->graph, ASH_ERROR_INTERNAL, "the gradient of value %u is of another type",
                        (unsigned)value);
        return;
    }
    add_to(w, value, gradient);
}

void ash_grad__give_value(ash_grad *c, ash_value value, ash_value gradient) {
    if (ash_grad__is_active(c, value)) add_gradient(c->walk, value, gradient);
}

void ash_grad__give(ash_grad *c, size_t operand, ash_value gradient) {
    if (ash_grad__wants(c, operand)) add_gradient(c->walk, c->node.ins[operand], gradient);
}

/* The graph grows meanwhile: the node is a copy, its lists stay where they are. A loop goes through its
 * body, and says itself whether there is anything to do. */
static void go_through(walk *w, uint32_t i) {
    ash_value grads[ASH_OP_OUTS];
    ash_grad c = {.graph = w->graph, .node = w->graph->nodes.at[i], .grads = grads, .walk = w};
    bool loop = ash_bodies__is_loop(&w->bodies, i), any = loop, wanted = loop;
    if (rows[c.node.op].kind != KIND_RULE || ash_bodies__has(&w->bodies, i)) return;
    if (!loop && !has_result(w, &c.node, MARK_ACTIVE)) return;
    for (uint16_t k = 0; k < c.node.n_outs; k++) {
        ash_value out = c.node.out + k;
        grads[k] = w->marks[out] & MARK_STOP ? ASH_NO_VALUE : w->grads[out];
        any |= grads[k] != ASH_NO_VALUE;
    }
    for (uint16_t k = 0; k < c.node.n_ins; k++) wanted |= ash_grad__wants(&c, k);
    if (!any || !wanted) return;
    c.g = grads[0];
    follow(w->graph, &c.node);
    if (w->softmaxes[i].axes) {
        add_gradient(w, w->softmaxes[i].away, ash_grad__softmax(&c, w->softmaxes[i].axes));
        return;
    }
    rows[c.node.op].rule(&c);
}

static void differentiate(walk *w, const ash_value *ys, const ash_value *seeds, size_t n_ys) {
    const ash_grad_owner before = {w->graph->next_name, w->graph->next_place};
    for (size_t i = 0; i < n_ys; i++) {
        const ash_type type = *ash_graph__type(w->graph, ys[i]);
        add_gradient(w, ys[i],
                     seeds ? seeds[i] : ash_build__fill(w->graph, type.dtype, 1, type.dims, type.rank));
    }
    for (size_t i = w->n_nodes; i-- > 0 && w->graph->status == ASH_OK;) go_through(w, (uint32_t)i);
    ash_grad__leave(w->graph, before);
}

/* --- one graph ------------------------------------------------------------------------------------ */

static ash_status mark_all(const walk *w, const ash_value *values, size_t n, unsigned mark,
                           const char *what) {
    for (size_t i = 0; i < n; i++) {
        ASH_FAIL_IF(values[i] >= w->n_values, w->diag, ASH_ERROR_INVALID_ARGUMENT,
                    "%s %zu is no value of the graph", what, i);
        const ash_value_info *info = &w->graph->values.at[values[i]];
        bool smooth = mark == MARK_X || mark == MARK_Y;
        ASH_FAIL_IF(smooth && !is_float(w->graph, values[i]), w->diag, ASH_ERROR_TYPE,
                    "%s %zu is %s, and only floating point values have gradients", what, i,
                    ash_dtype_name(info->type.dtype));
        ASH_FAIL_IF(smooth && info->kind == ASH_VALUE_NODE && ash_bodies__has(&w->bodies, info->node),
                    w->diag, ASH_ERROR_INVALID_ARGUMENT,
                    "%s %zu is in the body of a loop: it has a gradient for each iteration", what, i);
        w->marks[values[i]] |= (uint8_t)mark;
    }
    return ASH_OK;
}

static ash_status check_seeds(const walk *w, const ash_value *ys, const ash_value *seeds, size_t n_ys) {
    for (size_t i = 0; seeds && i < n_ys; i++) {
        ASH_FAIL_IF(seeds[i] >= w->n_values, w->diag, ASH_ERROR_INVALID_ARGUMENT,
                    "seed %zu is no value of the graph", i);
        ASH_FAIL_IF(!ash_type_equal(ash_graph__type(w->graph, ys[i]), ash_graph__type(w->graph, seeds[i])),
                    w->diag, ASH_ERROR_SHAPE, "seed %zu has another type than y %zu", i, i);
    }
    return ASH_OK;
}

static ash_status run(walk *w, const ash_grad_question *q, ash_value *grads) {
    ASH_TRY(mark_all(w, q->ys, q->n_ys, MARK_Y, "y"));
    ASH_TRY(mark_all(w, q->xs, q->n_xs, MARK_X, "x"));
    ASH_TRY(mark_all(w, q->stops, q->n_stops, MARK_STOP, "stop"));
    ASH_TRY(mark_all(w, q->constants, q->n_constants, MARK_CONSTANT, "constant"));
    ASH_TRY(check_seeds(w, q->ys, q->seeds, q->n_ys));
    if (!ash_grad__find_softmaxes(w->graph, w->n_nodes, w->marks, w->softmaxes))
        return ASH_NO_MEMORY(w->diag);
    for (size_t i = 0; i < w->n_nodes; i++)
        if (w->softmaxes[i].axes) w->marks[w->softmaxes[i].shift] |= MARK_STOP;
    mark_active(w);
    mark_reaching(w);
    for (size_t i = 0; i < q->n_xs; i++) ASH_TRY(check_x(w, q->xs[i]));
    differentiate(w, q->ys, q->seeds, q->n_ys);
    for (size_t i = 0; i < q->n_xs; i++) grads[i] = w->grads[q->xs[i]];
    return ash_graph_status(w->graph, w->diag);
}

ash_status ash_grad__differentiate(ash_graph *graph, const ash_grad_question *q, ash_value *grads,
                                   ash_diag *diag) {
    const ash_allocator *a = graph->allocator;
    walk w = {.graph = graph, .n_values = graph->values.len, .n_nodes = graph->nodes.len, .diag = diag};
    ASH_TRY(ash_bodies__find(graph, &w.bodies, diag));
    w.marks = ash_mem_calloc(a, w.n_values, sizeof *w.marks);
    w.grads = ash_mem_alloc(a, w.n_values, sizeof *w.grads);
    w.next = ash_mem_alloc(a, w.n_values, sizeof *w.next);
    w.softmaxes = ash_mem_calloc(a, w.n_nodes, sizeof *w.softmaxes);
    ash_status status = w.marks && w.grads && w.next && w.softmaxes ? ASH_OK : ASH_NO_MEMORY(diag);
    for (size_t v = 0; status == ASH_OK && v < w.n_values; v++) w.grads[v] = ASH_NO_VALUE;
    if (status == ASH_OK) status = run(&w, q, grads);
    ash_mem_free(a, w.marks, w.n_values, sizeof *w.marks);
    ash_mem_free(a, w.grads, w.n_values, sizeof *w.grads);
    ash_mem_free(a, w.next, w.n_values, sizeof *w.next);
    ash_mem_free(a, w.softmaxes, w.n_nodes, sizeof *w.softmaxes);
    ash_bodies__free(&w.bodies);
    return status;
}

/* --- the door ------------------------------------------------------------------------------------- */

static ash_status check_call(const ash_graph *graph, const ash_grad_question *q, const ash_value *grads,
                             ash_diag *diag) {
    const ash_value *ys = q->ys, *xs = q->xs;
    if (q->n_ys) ASH_NEED(diag, ys);
    if (q->n_xs) ASH_NEED(diag, xs, grads);
    ASH_FAIL_IF(q->n_stops && !q->stops, diag, ASH_ERROR_INVALID_ARGUMENT, "stops is NULL");
    ASH_TRY(ash_graph_status(graph, diag));
    ASH_TRY(ash_graph__check_closed(graph, diag));
    ASH_FAIL_IF(graph->internal, diag, ASH_ERROR_UNSUPPORTED, "a graph in the forms of one target");
    return ASH_OK;
}

static ash_status ask(ash_graph *graph, const ash_grad_question *q, ash_value *grads, ash_diag *diag) {
    uint8_t phase = ash_grad__enter(graph, ASH_PHASE_BACKWARD);
    ash_status status = ash_grad__differentiate(graph, q, grads, diag);
    for (size_t i = 0; status == ASH_OK && i < q->n_xs; i++)
        if (grads[i] == ASH_NO_VALUE) grads[i] = ash_grad__zeros_like(graph, q->xs[i]);
    graph->phase = phase;
    return status == ASH_OK ? ash_graph_status(graph, diag) : status;
}

ASH_SIZED(ash_gradient_options, n_stops);

ash_status ash_graph_gradients(ash_graph *graph, const ash_value *ys, const ash_value *seeds, size_t n_ys,
                               const ash_value *xs, size_t n_xs, const ash_gradient_options *options,
                               ash_value *grads, ash_diag *diag) {
    ash_grad_question q = {.ys = ys, .seeds = seeds, .n_ys = n_ys, .xs = xs, .n_xs = n_xs};
    ash_gradient_options given;
    ash_diag own;
    ASH_NEED(diag, graph);
    ash_status status = ASH_TAKE(ash_gradient_options, options, &given, &own);
    if (status == ASH_OK) {
        q.stops = given.stops, q.n_stops = given.n_stops;
        status = check_call(graph, &q, grads, &own);
    }
    if (status == ASH_OK) status = ask(graph, &q, grads, &own);
    if (status == ASH_OK) return ASH_OK;
    for (size_t i = 0; grads && i < n_xs; i++) grads[i] = ASH_NO_VALUE;
    ash_graph__stick(graph, &own);
    if (diag) *diag = own;
    return status;
}
