/* SPDX-License-Identifier: MIT */
/* Differentiation: what the rules of gradients.def are written with.
 *
 * A rule is called once for a node of which some result has a gradient, and gives the gradient of each
 * operand that wants one, as a value of the operand's type:
 *
 *     void ash_grad__sin(ash_grad *c) {
 *         ash_grad__give(c, 0, ash_mul(c->graph, c->g, ash_cos(c->graph, c->node.ins[0])));
 *     }
 *
 * Laws. Nodes are appended to the caller's graph with the functions of ir/build.h, and nothing else. A
 * rule looks at its node, the types around it, and what is constant; dims with variables stay what they
 * are. What it builds has rules itself, so that it can be differentiated again. Failures are the graph's
 * sticky error. */
#ifndef ASH_GRAD_H
#define ASH_GRAD_H

#include "ashlar/train.h"
#include "ir/build.h"

typedef struct ash_grad {
    ash_graph *graph;
    ash_node node;          /* the node that the gradient goes through */
    ash_value g;            /* gradient of its first result, ASH_NO_VALUE: 0 */
    const ash_value *grads; /* of each result, the same */
    struct ash_walk *walk;
} ash_grad;

typedef void ash_grad_rule(ash_grad *c);

/* What is asked of a graph. */
typedef struct ash_grad_question {
    const ash_value *ys, *seeds, *xs; /* seeds of NULL: ones */
    const ash_value *stops;           /* count as constants */
    const ash_value *constants;       /* are made of constants, though the graph does not show it */
    size_t n_ys, n_xs, n_stops, n_constants;
} ash_grad_question;

/* Appends the gradients of the ys by the xs; ASH_NO_VALUE where that is 0. */
ash_status ash_grad__differentiate(ash_graph *graph, const ash_grad_question *question, ash_value *grads,
                                   ash_diag *diag);

/* What is appended from now on is of this phase; returns the one before, to be set again. */
static inline uint8_t ash_grad__enter(ash_graph *graph, ash_phase phase) {
    uint8_t before = graph->phase;
    graph->phase = (uint8_t)phase;
    return before;
}

/* Whether the gradient of this operand is asked for. */
bool ash_grad__wants(const ash_grad *c, size_t operand);
/* Adds to the gradient of an operand, which is of its type; dropped when nobody wants it. */
void ash_grad__give(ash_grad *c, size_t operand, ash_value gradient);
/* Refuses the node: `why` follows the operator's name in the message, which goes on with the path. */
void ash_grad__refuse(ash_grad *c, const char *why);
/* Whether a value of the caller's graph is made of constants alone. */
bool ash_grad__is_constant(const ash_grad *c, ash_value value);

/* --- loops: bodies.c ------------------------------------------------------------------------------ */

/* Which nodes are in the bodies of a graph's outermost loops; nothing at all where there are none. */
typedef struct ash_bodies {
    const ash_allocator *allocator;
    size_t count;    /* of nodes */
    uint32_t *loop;  /* per node: the outermost loop that it is in the body of, or is; or UINT32_MAX */
    uint32_t *first; /* per node that is such a loop: the first node of its body, or UINT32_MAX */
    uint32_t *next;  /* per node of a body: the next one, or UINT32_MAX. Some may stand behind the loop */
} ash_bodies;

ash_status ash_bodies__find(const ash_graph *graph, ash_bodies *out, ash_diag *diag);
void ash_bodies__free(ash_bodies *bodies);
/* Whether a node is a loop that is in no other's body; and whether it is in a body. */
static inline bool ash_bodies__is_loop(const ash_bodies *b, uint32_t node) {
    return b->loop && b->loop[node] == node;
}
static inline bool ash_bodies__has(const ash_bodies *b, uint32_t node) {
    return b->loop && b->loop[node] != UINT32_MAX && b->loop[node] != node;
}

/* What the rule of loops asks: the bodies; whether a derivative goes through a value, or stops at it; the
 * gradient of a body's value in all iterations, as it has been stacked, or ASH_NO_VALUE. And it adds to the
 * gradient of a value that is no operand, but read in the body. */
const ash_bodies *ash_grad__bodies(const ash_grad *c);
bool ash_grad__is_active(const ash_grad *c, ash_value value);
bool ash_grad__is_stop(const ash_grad *c, ash_value value);
ash_value ash_grad__stacked(const ash_grad *c, ash_value value);
void ash_grad__give_value(ash_grad *c, ash_value value, ash_value gradient);

static inline ash_type ash_grad__type(const ash_graph *graph, ash_value value) {
    const ash_type none = {.dtype = ASH_F32}, *type = ash_graph_type(graph, value);
    return type ? *type : none; /* after a failure */
}
/* Zeros of a type, and of a value's. */
ash_value ash_grad__zeros(ash_graph *graph, const ash_type *type);
ash_value ash_grad__zeros_like(ash_graph *graph, ash_value value);

/* --- softmax: softmax.c ---------------------------------------------------------------------------- */

/* Of the last node of a softmax, or of its logarithm; of any other node `axes` is 0. */
typedef struct ash_softmax_parts {
    ash_value away;  /* the operand less its shift */
    ash_value shift; /* the largest numbers */
    uint32_t axes;   /* that it goes along, a bit each */
} ash_softmax_parts;

/* Fills `parts`, which are zeroed, for the first `n_nodes` nodes: those of which nothing within is read by
 * anybody else, nor marked (per value: an x, a y, or a stop). False: no memory. */
bool ash_grad__find_softmaxes(const ash_graph *graph, size_t n_nodes, const uint8_t *marks,
                              ash_softmax_parts *parts);
/* The gradient of `away`, at the last node. */
ash_value ash_grad__softmax(const ash_grad *c, uint32_t axes);

/* What is appended from now on has the name and the place of the node that computes a gradient; of what no
 * node computes, those that it had. Returns what ash_grad__leave sets again. */
typedef struct ash_grad_owner {
    const char *name;
    uint32_t place;
} ash_grad_owner;
ash_grad_owner ash_grad__follow(ash_graph *graph, ash_value gradient);
void ash_grad__leave(ash_graph *graph, ash_grad_owner owner);

/* TYPE unless it is a bool scalar. */
ash_status ash_grad__check_when(const ash_graph *graph, ash_value when, ash_diag *diag);

/* --- places along all axes: rule_move.c ----------------------------------------------------------- */

/* Where elements lie along each axis of a tensor: i at starts + i * steps, the steps at least 1. */
typedef struct ash_places {
    ash_dim starts[ASH_MAX_RANK]; /* as ash_dims_combine has them: they may be negative */
    int64_t steps[ASH_MAX_RANK];
    ash_dim sizes[ASH_MAX_RANK]; /* take: elements that are taken; put: of the whole */
} ash_places;

/* Every element of `x` where it is. */
ash_places ash_grad__whole(const ash_type *x);
/* The elements of x at these places, which lie inside. */
ash_value ash_grad__take(ash_graph *graph, ash_value x, const ash_places *places);
/* The inverse: zeros, and the elements of x at these places; what would lie outside is dropped. */
ash_value ash_grad__put(ash_graph *graph, ash_value x, const ash_places *places);
/* Puts the elements along `axis` where windows of `span` = (kernel - 1) * dilation elements beside their
 * own would meet an operand's `size` elements. */
void ash_grad__put_windows(ash_graph *graph, ash_places *places, unsigned axis, int64_t span,
                           int64_t stride, ash_dim before, ash_dim size);
/* A sum or difference of dims that may be negative. */
ash_dim ash_grad__dim(ash_graph *graph, ash_dim_op op, ash_dim a, ash_dim b);
/* The least value that a dim can have. */
int64_t ash_grad__least(const ash_graph *graph, ash_dim dim);

/* --- the rules ------------------------------------------------------------------------------------ */

#define RULE(ID, rule) ash_grad_rule ash_grad__##rule;
#define ZERO(ID, why)
#define NONE(ID, why)
#include "gradients.def"
#undef RULE
#undef ZERO
#undef NONE

#endif
