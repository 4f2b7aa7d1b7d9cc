/* SPDX-License-Identifier: MIT */
/* Loops: which nodes are whose body, and bodies as graphs of their own.
 *
 * A graph stays one list of nodes, loops or not. What depends on an argument of a loop is in that loop's
 * body, everything else is outside, so that passes need to know of two operators alone, which they leave as
 * they are: each node is an equation that holds in every iteration, and what does not change between
 * iterations is outside by itself. An argument's owner is the loop that has it as an operand; a node is
 * owned by the innermost of its operands' owners, the one that comes first among the nodes; and the nodes
 * of that body which have operands of another owner say what is around it. Who mentions a size that depends
 * on data has the node that settles it as an operand in this.
 *
 *     %2 = argument, %3 = argument                    owner: the loop
 *     %4 = matmul(%3, %0)  %5 = add(%2, %4)           the same
 *     %6 = exp(%0)                                    outside
 *     %7, %8 = loop(%1 %2 %3, init, xs, %5, %5)
 *
 * Evaluating and lowering want bodies apart: there a graph is split first. */
#include "inside.h"

#include <stdio.h>

#define NOBODY UINT32_MAX

typedef struct owners {
    const ash_graph *graph;
    uint32_t *of;     /* per value: the node of its loop, or NOBODY */
    uint32_t *around; /* per node that is a loop: the loop that it is in the body of, or NOBODY */
    ash_diag *diag;
} owners;

bool ash_graph__has_loops(const ash_graph *graph) {
    for (size_t n = 0; n < graph->nodes.len; n++)
        if (graph->nodes.at[n].op == ASH_OP_LOOP && !ash_node__loop(&graph->nodes.at[n]).body) return true;
    return false;
}

static ash_status own_arguments(owners *o) {
    const ash_graph *g = o->graph;
    for (uint32_t n = 0; n < g->nodes.len; n++) {
        const ash_node *node = &g->nodes.at[n];
        if (node->op != ASH_OP_LOOP) continue;
        ash_loop_parts p = ash_node__loop(node);
        for (uint32_t i = 0; !p.body && i < p.go; i++) {
            const ash_value_info *info = &g->values.at[node->ins[i]];
            bool argument = info->kind == ASH_VALUE_NODE && g->nodes.at[info->node].op == ASH_OP_ARGUMENT;
            bool taken = o->of[node->ins[i]] != NOBODY;
            if (argument && !taken) {
                o->of[node->ins[i]] = n;
                continue;
            }
            ash_fail(o->diag, ASH_ERROR_INVALID_ARGUMENT, "operand %u is %s", i,
                     argument ? "an argument of another loop, or twice there" : "no argument");
            ash_diag__add_node(o->diag, node->name, ash_op_name(node->op), ASH_NO_OFFSET);
            return ASH_ERROR_INVALID_ARGUMENT;
        }
    }
    return ASH_OK;
}

/* One and the same node is in the bodies of both: the one that comes first is inside of the other. */
static void nest(owners *o, uint32_t a, uint32_t b) {
    while (a != b && b != NOBODY) {
        uint32_t inner = ASH_MIN(a, b), outer = ASH_MAX(a, b), present = o->around[inner];
        o->around[inner] = ASH_MIN(outer, present);
        a = outer;
        b = present;
    }
}

/* A stack is where its loop is, though it has a value of that loop's body as an operand. */
static ash_status own_stack(owners *o, const ash_node *node) {
    const ash_graph *g = o->graph;
    const ash_value_info *of = &g->values.at[node->ins[0]];
    bool loop = of->kind == ASH_VALUE_NODE && g->nodes.at[of->node].op == ASH_OP_LOOP &&
                !ash_node__loop(&g->nodes.at[of->node]).body;
    if (loop && o->of[node->ins[1]] == of->node &&
        ash_node_int(&g->nodes.at[of->node], ASH_ATTR_TRIPS) == ash_node_int(node, ASH_ATTR_TRIPS)) {
        o->of[node->out] = o->around[of->node];
        return ASH_OK;
    }
    ash_fail(o->diag, ASH_ERROR_INVALID_ARGUMENT,
             "the operands are no result of a loop of %s iterations and a value of its body",
             loop ? "as many" : "any");
    ash_diag__add_node(o->diag, node->name, ash_op_name(node->op), ASH_NO_OFFSET);
    return ASH_ERROR_INVALID_ARGUMENT;
}

/* The sizes that depend on data which a node mentions are operands of it as well. */
typedef struct mentions {
    const owners *o;
    uint32_t n, own, var; /* the node, the innermost owner; a variable that it must not mention */
    bool lost;
    owners *nest;
} mentions;

static void own_settler(void *user, uint32_t var, ash_value settler) {
    mentions *m = user;
    uint32_t of = settler == ASH_NO_VALUE ? NOBODY : m->o->of[settler];
    if (of == NOBODY || m->lost) return;
    m->lost = of <= m->n;
    if (m->lost)
        m->var = var;
    else if (m->own != NOBODY)
        nest(m->nest, m->own, of);
    m->own = ASH_MIN(m->own, of);
}

static ash_status own_node(owners *o, uint32_t n) {
    const ash_graph *g = o->graph;
    const ash_node *node = &g->nodes.at[n];
    if (node->op == ASH_OP_ARGUMENT) return ASH_OK;
    if (node->op == ASH_OP_STACK) return own_stack(o, node);
    bool loop = node->op == ASH_OP_LOOP;
    ash_loop_parts p = loop ? ash_node__loop(node) : (ash_loop_parts){.body = true};
    uint32_t own = p.body ? NOBODY : n;
    for (uint32_t i = p.body ? 0 : p.go; i < node->n_ins; i++) {
        uint32_t of = o->of[node->ins[i]];
        bool inside = !p.body && of == n && i >= p.next_go;
        if (of == NOBODY || inside) continue;
        if (of <= n) {
            ash_fail(o->diag, ASH_ERROR_INVALID_ARGUMENT,
                     "operand %u depends on an argument of a loop, and is used outside of its body", i);
            ash_diag__add_node(o->diag, node->name, ash_op_name(node->op), ASH_NO_OFFSET);
            return ASH_ERROR_INVALID_ARGUMENT;
        }
        if (own != NOBODY) nest(o, own, of);
        own = ASH_MIN(own, of);
    }
    mentions m = {.o = o, .n = n, .own = own, .nest = o};
    ash_graph__each_settler(g, node, own_settler, &m);
    if (m.lost) {
        ash_fail(o->diag, ASH_ERROR_UNSUPPORTED,
                 "the size %s is found in the body of a loop, and is used outside of it",
                 ash_dims_var(g->dims, m.var)->name);
        ash_diag__add_node(o->diag, node->name, ash_op_name(node->op), ASH_NO_OFFSET);
        return ASH_ERROR_UNSUPPORTED;
    }
    own = p.body ? m.own : o->around[n];
    for (unsigned k = 0; k < node->n_outs; k++) o->of[node->out + k] = own;
    return ASH_OK;
}

static ash_status check_seen(const owners *o, ash_value value, const char *what) {
    ASH_FAIL_IF(value != ASH_NO_VALUE && o->of[value] != NOBODY, o->diag, ASH_ERROR_INVALID_ARGUMENT,
                "%s is in the body of a loop", what);
    return ASH_OK;
}

static ash_status fill_owners(owners *o) {
    const ash_graph *g = o->graph;
    for (size_t v = 0; v < g->values.len; v++) o->of[v] = NOBODY;
    for (size_t n = 0; n < g->nodes.len; n++) o->around[n] = NOBODY;
    ASH_TRY(own_arguments(o));
    for (uint32_t n = 0; n < g->nodes.len; n++) ASH_TRY(own_node(o, n));
    for (size_t i = 0; i < g->outputs.len; i++) ASH_TRY(check_seen(o, g->outputs.at[i].value, "an output"));
    for (size_t i = 0; i < g->states.len; i++)
        ASH_TRY(check_seen(o, g->states.at[i].update, "the update of a state"));
    return ASH_OK;
}

static void free_owners(owners *o) {
    const ash_allocator *a = o->graph->allocator;
    ash_mem_free(a, o->of, o->graph->values.len, sizeof *o->of);
    ash_mem_free(a, o->around, o->graph->nodes.len, sizeof *o->around);
}

static ash_status find_owners(const ash_graph *graph, owners *o, ash_diag *diag) {
    *o = (owners){.graph = graph, .diag = diag};
    o->of = ash_mem_alloc(graph->allocator, graph->values.len, sizeof *o->of);
    o->around = ash_mem_alloc(graph->allocator, graph->nodes.len, sizeof *o->around);
    ash_status status = o->of && o->around ? fill_owners(o) : ASH_NO_MEMORY(diag);
    if (status != ASH_OK) free_owners(o);
    return status;
}

ash_status ash_graph__check_loops(const ash_graph *graph, ash_diag *diag) {
    owners o;
    if (!ash_graph__has_loops(graph)) return ASH_OK;
    ASH_TRY(find_owners(graph, &o, diag));
    free_owners(&o);
    return ASH_OK;
}

ash_status ash_graph__bodies(const ash_graph *graph, uint32_t *out, ash_diag *diag) {
    owners o;
    for (size_t n = 0; n < graph->nodes.len; n++) out[n] = NOBODY;
    if (!ash_graph__has_loops(graph)) return ASH_OK;
    ASH_TRY(find_owners(graph, &o, diag));
    for (uint32_t n = 0; n < graph->nodes.len; n++) out[n] = o.of[graph->nodes.at[n].out];
    free_owners(&o);
    return ASH_OK;
}

ash_status ash_graph__outer_loops(const ash_graph *graph, uint32_t *out, ash_diag *diag) {
    owners o;
    for (size_t n = 0; n < graph->nodes.len; n++) out[n] = NOBODY;
    if (!ash_graph__has_loops(graph)) return ASH_OK;
    ASH_TRY(find_owners(graph, &o, diag));
    for (uint32_t n = 0; n < graph->nodes.len; n++) {
        const ash_node *node = &graph->nodes.at[n];
        uint32_t loop = o.of[node->out];
        if (loop == NOBODY && node->op == ASH_OP_LOOP) loop = n;
        if (loop == NOBODY && node->op == ASH_OP_STACK) loop = ash_node__stacker(graph, node);
        while (loop != NOBODY && o.around[loop] != NOBODY) loop = o.around[loop];
        out[n] = loop;
    }
    free_owners(&o);
    return ASH_OK;
}

/* --- splitting ------------------------------------------------------------------------------------ */

/* A body on its way. */
typedef struct part {
    ash_graph *graph;
    ash_map captured;            /* values from outside to their images */
    ASH_VEC(ash_value) captures; /* those that are inputs, in order */
} part;

typedef struct splitter {
    const ash_graph *from;
    ash_graph *to;
    owners owners;
    ash_value *image;  /* per value: in `to`, or in the body that it is in */
    bool *gone;        /* per value: it depends on an argument of a loop that was never completed */
    bool lost;         /* the present node mentions a size that does */
    part **parts;      /* per node that is a loop of no other: its body while it grows, or NULL */
    ash_arena scratch; /* lists of operands of one node */
    ash_diag *diag;
} splitter;

static uint32_t outermost(const splitter *s, uint32_t loop) {
    while (s->owners.around[loop] != NOBODY) loop = s->owners.around[loop];
    return loop;
}

static ash_status status_of(const splitter *s, const ash_graph *graph, const ash_node *node) {
    ash_status status = ash_graph_status(graph, s->diag);
    if (status != ASH_OK) ash_diag__add_node(s->diag, node->name, ash_op_name(node->op), ASH_NO_OFFSET);
    return status;
}

static void free_part(const splitter *s, part *p) {
    if (!p) return;
    ash_graph_destroy(p->graph);
    ash_map_free(&p->captured);
    ash_vec_free(s->from->allocator, &p->captures);
    ash_mem_free(s->from->allocator, p, 1, sizeof *p);
}

/* Whether a value from outside is made again inside: it takes no memory there, or more outside. */
static bool comes_along(const splitter *s, ash_value value) {
    const ash_value_info *info = &s->from->values.at[value];
    int64_t count;
    if (info->kind == ASH_VALUE_CONSTANT) return ash_type_static_count(&info->type, &count) && count == 1;
    if (info->kind != ASH_VALUE_NODE) return false;
    ash_op op = s->from->nodes.at[info->node].op;
    return op == ASH_OP_BROADCAST || op == ASH_OP_IOTA;
}

/* What a value is in a body, which it may be outside of. */
static ash_status inside(splitter *s, part *p, ash_value value, ash_value *out) {
    const ash_graph *g = s->from;
    const ash_value_info *info = &g->values.at[value];
    uint64_t found;
    if (s->owners.of[value] != NOBODY) return *out = s->image[value], ASH_OK;
    if (ash_map_get(&p->captured, value, &found)) return *out = (ash_value)found, ASH_OK;
    if (!comes_along(s, value)) {
        char name[24];
        snprintf(name, sizeof name, "outer%zu", p->captures.len);
        *out = ash_graph_input(p->graph, name, &info->type);
        if (!ash_vec_push(g->allocator, &p->captures, value)) return ASH_NO_MEMORY(s->diag);
    } else if (info->kind == ASH_VALUE_CONSTANT) {
        ash_graph__copy_leaf(p->graph, g, value, out);
    } else {
        const ash_node *node = &g->nodes.at[info->node];
        ash_value in = ASH_NO_VALUE;
        if (node->n_ins) ASH_TRY(inside(s, p, node->ins[0], &in));
        ash_graph_name_next(p->graph, node->name);
        ash_graph_add(p->graph, node->op, &in, node->n_ins, node->attrs, node->n_attrs, out);
    }
    ASH_TRY(ash_graph_status(p->graph, s->diag));
    return ash_map_put(&p->captured, value, *out) ? ASH_OK : ASH_NO_MEMORY(s->diag);
}

/* What is settled in no body of the loop's is there when it begins. */
static ash_status settle_outside(const splitter *s, part *p, uint32_t loop) {
    const ash_graph *g = s->from;
    for (uint32_t var = 0; var < g->settlers.len; var++) {
        ash_value settler = g->settlers.at[var];
        uint32_t owner = settler == ASH_NO_VALUE ? NOBODY : s->owners.of[settler];
        if (settler == ASH_NO_VALUE || (owner != NOBODY && outermost(s, owner) == loop)) continue;
        if (!ash_graph__settle_outside(p->graph, var)) return ASH_NO_MEMORY(s->diag);
    }
    return ASH_OK;
}

/* The body of a loop, with its arguments. */
static ash_status begin(splitter *s, uint32_t loop) {
    const ash_graph *g = s->from;
    const ash_node *node = &g->nodes.at[loop];
    ash_loop_parts parts = ash_node__loop(node);
    part *p = s->parts[loop] = ash_mem_calloc(g->allocator, 1, sizeof *p);
    if (!p) return ASH_NO_MEMORY(s->diag);
    ash_map_init(&p->captured, g->allocator);
    ASH_TRY(ash_graph__derive(g, &p->graph, s->diag));
    p->graph->internal = p->graph->body = true;
    for (uint32_t i = 0; i < parts.go - parts.given; i++) {
        ash_value argument = node->ins[i];
        bool carried = i > 0 && i <= parts.carried;
        char name[24];
        snprintf(name, sizeof name, "%s%u",
                 carried ? "carried"
                 : i     ? "slice"
                         : "iteration",
                 carried ? i - 1
                 : i     ? i - 1 - parts.carried
                         : 0);
        s->image[argument] = carried
                                 ? ash_graph__state_blob(p->graph, name, ash_graph__type(g, argument), NULL)
                                 : ash_graph_input(p->graph, name, ash_graph__type(g, argument));
        if (!i) ASH_TRY(settle_outside(s, p, loop));
    }
    for (uint32_t k = 0; k < parts.given; k++)
        ASH_TRY(inside(s, p, node->ins[parts.gives + k], &s->image[node->ins[parts.go - parts.given + k]]));
    return status_of(s, p->graph, node);
}
/* Copies a node, over the images of its operands, into a body, or, if that is NULL, into `to`. */
static ash_status copy(splitter *s, part *p, const ash_node *node) {
    ash_value outs[ASH_OP_OUTS];
    ash_graph *to = p ? p->graph : s->to;
    ash_value *ins = ash_arena_alloc(&s->scratch, node->n_ins, sizeof *ins);
    if (!ins) return ASH_NO_MEMORY(s->diag);
    for (uint32_t i = 0; i < node->n_ins; i++) {
        ins[i] = s->image[node->ins[i]];
        if (p) ASH_TRY(inside(s, p, node->ins[i], &ins[i]));
    }
    ash_graph_name_next(to, node->name);
    to->phase = s->from->values.at[node->out].phase;
    ash_graph_add(to, node->op, ins, node->n_ins, node->attrs, node->n_attrs, outs);
    ASH_TRY(status_of(s, to, node));
    for (unsigned k = 0; k < node->n_outs; k++) s->image[node->out + k] = outs[k];
    return ASH_OK;
}

/* All that the body makes is there. */
static ash_status end(splitter *s, part *p, const ash_node *node) {
    ash_loop_parts parts = ash_node__loop(node);
    ash_value value;
    for (uint32_t k = 0; k < parts.carried; k++) {
        ASH_TRY(inside(s, p, node->ins[parts.next + k], &value));
        ash_graph_update(p->graph, s->image[node->ins[ASH_LOOP_CARRIED + k]], value);
    }
    for (uint32_t k = 0; k < parts.until + parts.stacked; k++) {
        uint32_t operand = k < parts.until ? parts.next_go + k : parts.ys + k - parts.until;
        char name[24];
        snprintf(name, sizeof name, k < parts.until ? "go" : "stacked%u", k - parts.until);
        ASH_TRY(inside(s, p, node->ins[operand], &value));
        ash_graph_output(p->graph, name, value);
    }
    ash_graph_name_next(p->graph, NULL);
    return status_of(s, p->graph, node);
}

/* The loop itself, whose body is complete. */
static ash_status add_loop(splitter *s, part *p, const ash_node *node) {
    ash_loop_parts parts = ash_node__loop(node);
    ash_graph *whole = NULL;
    ash_attr attrs[ASH_ATTR_COUNT];
    ash_value outs[ASH_OP_OUTS];
    ASH_TRY(end(s, p, node));
    uint32_t own = parts.gives - parts.go, count = own + (uint32_t)p->captures.len;
    if (ash_graph__has_loops(p->graph)) {
        ASH_TRY(ash_graph__split_loops(p->graph, &whole, NULL, s->diag));
        ash_graph_destroy(p->graph);
        p->graph = whole;
    }
    ash_value *ins = ash_arena_alloc(&s->scratch, count, sizeof *ins);
    if (!ins || !ash_vec_push(s->from->allocator, &s->to->bodies, p->graph)) return ASH_NO_MEMORY(s->diag);
    p->graph = NULL;
    for (uint32_t i = 0; i < own; i++) ins[i] = s->image[node->ins[parts.go + i]];
    for (uint32_t i = own; i < count; i++) ins[i] = s->image[p->captures.at[i - own]];
    memcpy(attrs, node->attrs, node->n_attrs * sizeof *attrs);
    for (size_t i = 0; i < node->n_attrs; i++)
        if (attrs[i].key == ASH_ATTR_BODY) attrs[i].i = (int64_t)s->to->bodies.len;
    ash_graph_name_next(s->to, node->name);
    s->to->phase = s->from->values.at[node->out].phase;
    ash_graph_add(s->to, ASH_OP_LOOP, ins, count, attrs, node->n_attrs, outs);
    for (unsigned k = 0; k < node->n_outs; k++) s->image[node->out + k] = outs[k];
    return status_of(s, s->to, node);
}

static void is_settled_by_gone(void *user, uint32_t var, ash_value settler) {
    splitter *s = user;
    (void)var;
    s->lost |= settler != ASH_NO_VALUE && s->gone[settler];
}

/* What was begun and given up, as import does with a branch that does not fit, is of no use to anybody. */
static bool is_gone(splitter *s, const ash_node *node) {
    bool gone = node->op == ASH_OP_ARGUMENT && s->owners.of[node->out] == NOBODY;
    for (uint32_t i = 0; i < node->n_ins; i++) gone |= s->gone[node->ins[i]];
    s->lost = false;
    ash_graph__each_settler(s->from, node, is_settled_by_gone, s);
    gone |= s->lost;
    for (unsigned k = 0; k < node->n_outs; k++) s->gone[node->out + k] = gone;
    return gone;
}

static ash_status take_node(splitter *s, uint32_t n) {
    const ash_node *node = &s->from->nodes.at[n];
    uint32_t owner = s->owners.of[node->out];
    if (is_gone(s, node)) return ASH_OK;
    if (owner == NOBODY && node->op == ASH_OP_LOOP && !ash_node__loop(node).body) {
        if (!s->parts[n]) ASH_TRY(begin(s, n)); /* nothing depends on its arguments */
        ash_status status = add_loop(s, s->parts[n], node);
        free_part(s, s->parts[n]);
        s->parts[n] = NULL;
        return status;
    }
    if (owner == NOBODY) return copy(s, NULL, node);
    uint32_t loop = outermost(s, owner);
    if (!s->parts[loop]) ASH_TRY(begin(s, loop));
    bool own = node->op == ASH_OP_ARGUMENT && owner == loop;
    return own ? ASH_OK : copy(s, s->parts[loop], node);
}

static ash_status take_leaf(splitter *s, ash_value value) {
    const ash_value_info *info = &s->from->values.at[value];
    if (info->kind != ASH_VALUE_NODE) return ash_graph__copy_leaf(s->to, s->from, value, &s->image[value]);
    return ASH_OK;
}

/* What a body that has loops itself mentions and does not settle. */
static ash_status hand_settlers_on(const splitter *s) {
    for (uint32_t var = 0; var < s->from->settlers.len; var++)
        if (ash_graph__is_settled_outside(s->from, var) && !ash_graph__settle_outside(s->to, var))
            return ASH_NO_MEMORY(s->diag);
    return ASH_OK;
}

static void hand_on_origins(const splitter *s) {
    for (ash_value v = 0; v < s->from->values.len; v++)
        if (s->image[v] != ASH_NO_VALUE && s->owners.of[v] == NOBODY)
            s->to->values.at[s->image[v]].origin = s->from->values.at[v].origin;
}

static ash_status split(splitter *s) {
    const ash_graph *g = s->from;
    s->to->internal = true;
    for (ash_value v = 0; v < g->values.len; v++) s->image[v] = ASH_NO_VALUE;
    for (ash_value v = 0; v < g->values.len; v++) {
        ASH_TRY(take_leaf(s, v));
        if (g->body && v == g->inputs.at[0]) ASH_TRY(hand_settlers_on(s));
    }
    for (uint32_t n = 0; n < g->nodes.len; n++) {
        ash_status status = take_node(s, n);
        if (status != ASH_OK) {
            uint32_t owner = s->owners.of[g->nodes.at[n].out];
            const ash_node *node = &g->nodes.at[owner == NOBODY ? n : owner];
            ash_diag__add_node(s->diag, node->name, ash_op_name(node->op), ASH_NO_OFFSET);
            return status;
        }
    }
    hand_on_origins(s);
    ash_graph__copy_ends(s->to, g, s->image);
    return ash_graph_status(s->to, s->diag);
}

/* The same of a graph with stacks. */
static ash_status split_stacks(const ash_graph *graph, ash_graph **out, ash_value *map, ash_diag *diag) {
    const ash_allocator *a = graph->allocator;
    size_t n = graph->values.len, n_gathered = 0;
    ash_graph *gathered = NULL;
    ash_value *first = ash_mem_alloc(a, n, sizeof *first), *second = NULL;
    ash_status status =
        first ? ash_graph__gather_stacks(graph, &gathered, first, diag) : ASH_NO_MEMORY(diag);
    if (status == ASH_OK) {
        n_gathered = gathered->values.len;
        second = ash_mem_alloc(a, n_gathered, sizeof *second);
        status = second ? ash_graph__split_loops(gathered, out, second, diag) : ASH_NO_MEMORY(diag);
    }
    for (size_t v = 0; map && status == ASH_OK && v < n; v++)
        map[v] = first[v] == ASH_NO_VALUE ? ASH_NO_VALUE : second[first[v]];
    ash_mem_free(a, first, n, sizeof *first);
    ash_mem_free(a, second, n_gathered, sizeof *second);
    ash_graph_destroy(gathered);
    return status;
}

ash_status ash_graph__split_loops(const ash_graph *graph, ash_graph **out, ash_value *map, ash_diag *diag) {
    const ash_allocator *a = graph->allocator;
    size_t values = graph->values.len, nodes = graph->nodes.len;
    splitter s = {.from = graph, .diag = diag};
    *out = NULL;
    if (ash_graph__has_stacks(graph)) return split_stacks(graph, out, map, diag);
    ASH_TRY(find_owners(graph, &s.owners, diag));
    ash_arena_init(&s.scratch, a);
    s.image = map ? map : ash_mem_alloc(a, values, sizeof *s.image);
    s.parts = ash_mem_calloc(a, nodes, sizeof(part *));
    s.gone = ash_mem_calloc(a, values, sizeof *s.gone);
    ash_status status =
        s.image && s.parts && s.gone ? ash_graph__derive(graph, &s.to, diag) : ASH_NO_MEMORY(diag);
    if (status == ASH_OK) status = split(&s);
    for (size_t v = 0; status == ASH_OK && v < values; v++)
        if (s.owners.of[v] != NOBODY) s.image[v] = ASH_NO_VALUE;
    for (size_t n = 0; s.parts && n < nodes; n++) free_part(&s, s.parts[n]);
    ash_mem_free(a, s.parts, nodes, sizeof(part *));
    ash_mem_free(a, s.gone, values, sizeof *s.gone);
    if (!map) ash_mem_free(a, s.image, values, sizeof *s.image);
    ash_arena_free(&s.scratch);
    free_owners(&s.owners);
    if (status == ASH_OK)
        *out = s.to;
    else
        ash_graph_destroy(s.to);
    return status;
}
