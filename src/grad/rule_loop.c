/* SPDX-License-Identifier: MIT */
/* The rule of loops: a loop that goes through the iterations from the last to the first.
 *
 *     forward          s, y[t] = body(t, s, x[t], w)              S[t] = s before the iteration, stacked
 *     backward         ds, dw, dx[t] = body'(t, S[t], x[t], w; ds, dy[t], dw)
 *
 * It carries the gradients of the carried values, and sums of those of the values from outside, which are
 * added in the order of the iterations and so have the same bits each time; it slices the gradients of what
 * was stacked, and stacks those of what was sliced.
 *
 * The body's gradient is found as any graph's: the body is copied into a graph of its own, whose inputs are
 * the arguments, the values that it reads from outside, and the gradients of what an iteration makes; that
 * is differentiated, loops in it as well, and what is needed of it is put into the backward loop. Whatever
 * the forward iteration has computed and the backward one asks for is computed again from the carried
 * values, where it is elementwise or movement, or is stacked by the forward loop (ASH_OP_STACK).
 *
 * A weight's gradient is often a product of matrices that an iteration has: a sum of such products is one
 * product of all that is stacked of them, which is made behind the loop.
 *
 * Where a condition ends the loop, the number of its iterations is a result. The backward loop has as many,
 * and finds slices by their index, as it begins somewhere in the middle of what is stacked. */
#include <stdio.h>

#include "grad.h"

/* A value that has a slice for each iteration. */
typedef struct sliced {
    ash_value whole; /* in `to`: [trips, ...] */
    bool ends;       /* the first iteration's is the last one */
    ash_value slice; /* in the body */
} sliced;

/* The gradient of an x that is left * right in each iteration. */
typedef struct back_product {
    size_t x;
    ash_value left, right; /* of the body */
    bool turned;           /* left is to be transposed */
} back_product;

typedef struct back {
    ash_grad *c;
    ash_graph *to;   /* the caller's */
    ash_graph *body; /* the body, then its gradient as well */
    const ash_node *loop;
    ash_loop_parts p;
    ash_dim trips;
    uint64_t backward;
    ash_arena scratch;
    ash_map inner;             /* values of `to` that the body has: to its own */
    ASH_VEC(ash_value) source; /* per value of the body: that of `to` which it is, or ASH_NO_VALUE */
    size_t n_forward;          /* values of the body before it is differentiated */
    ash_value *captured, *constants, *stops;
    size_t n_captured, n_constants, n_stops;

    ash_value *seeds; /* per carried value: an input of the body, or ASH_NO_VALUE */
    bool *moves;      /* per carried value: its gradient is not 0 throughout */
    ash_value *ys;    /* of the body: what was stacked and has a gradient, */
    sliced *dys;      /* which is this */
    size_t n_ys;
    ash_value *xs, *grads; /* of the body */
    uint32_t *asked;       /* per x: the argument's number, or behind them the captured value's */
    size_t n_xs;
    back_product *products;
    bool *outside; /* per x: its gradient is one of these */
    size_t n_products;

    bool *needed, *saved;      /* per value of the body */
    ash_value *image;          /* per value of the body: in `to` */
    sliced *slices;            /* what the backward loop slices */
    size_t n_slices, n_stacks; /* the forward loop stacks so many of them for this one */
    ash_value *kept;           /* of the body: what the backward loop stacks for products */
    size_t n_kept;
    bool by_index;
    ash_value count; /* in `to`: the number of iterations, */
    ash_value at;    /* and that of the iteration that is gone through */
    ash_diag *diag;
} back;

static bool lies_from_end(const back *b, uint32_t part) {
    return b->backward >> part & 1;
}

/* The arguments of each kind: their operands begin here. */
static uint32_t first_slice(const back *b) {
    return ASH_LOOP_CARRIED + b->p.carried;
}
static uint32_t first_given(const back *b) {
    return first_slice(b) + b->p.scanned;
}

/* --- the body's graph ----------------------------------------------------------------------------- */

static ash_status note(back *b, ash_value value, ash_value inner) {
    const ash_allocator *a = b->to->allocator;
    ASH_TRY(ash_graph_status(b->body, b->diag));
    bool kept = ash_map_put(&b->inner, value, inner);
    while (kept && b->source.len <= inner) kept = ash_vec_push(a, &b->source, ASH_NO_VALUE);
    if (!kept) return ASH_NO_MEMORY(b->diag);
    b->source.at[inner] = value;
    if (ash_grad__is_constant(b->c, value)) b->constants[b->n_constants++] = inner;
    if (ash_grad__is_stop(b->c, value)) b->stops[b->n_stops++] = inner;
    return ASH_OK;
}

static ash_value get(const back *b, ash_value value) {
    uint64_t inner;
    return ash_map_get(&b->inner, value, &inner) ? (ash_value)inner : ASH_NO_VALUE;
}

/* What a value is in the body, which it may be outside of. */
static ash_status bring(back *b, ash_value value) {
    const ash_value_info *info = &b->to->values.at[value];
    ash_value inner;
    char name[80];
    if (get(b, value) != ASH_NO_VALUE) return ASH_OK;
    if (info->kind == ASH_VALUE_CONSTANT) {
        ash_graph__copy_leaf(b->body, b->to, value, &inner);
    } else {
        snprintf(name, sizeof name, "%.40s%svalue %u%s", info->name ? info->name : "",
                 info->name ? " (" : "", (unsigned)value, info->name ? ")" : "");
        inner = ash_graph_input(b->body, name, &info->type);
        b->captured[b->n_captured++] = value;
    }
    return note(b, value, inner);
}

static ash_status copy_node(back *b, const ash_node *node) {
    ash_value outs[ASH_OP_OUTS], *ins = ash_arena_alloc(&b->scratch, node->n_ins, sizeof *ins);
    if (!ins) return ASH_NO_MEMORY(b->diag);
    for (uint32_t i = 0; i < node->n_ins; i++) {
        ASH_TRY(bring(b, node->ins[i]));
        ins[i] = get(b, node->ins[i]);
    }
    ash_graph_name_next(b->body, node->name);
    ash_graph_add(b->body, node->op, ins, node->n_ins, node->attrs, node->n_attrs, outs);
    for (uint32_t k = 0; k < node->n_outs; k++) ASH_TRY(note(b, node->out + k, outs[k]));
    return ASH_OK;
}

static ash_status add_argument(back *b, uint32_t i) {
    char name[40];
    uint32_t slice = first_slice(b), given = first_given(b);
    if (i == ASH_LOOP_ITERATION)
        snprintf(name, sizeof name, "the iteration's number");
    else if (i < slice)
        snprintf(name, sizeof name, "carried value %u", i - ASH_LOOP_CARRIED);
    else
        snprintf(name, sizeof name, "%s value %u", i < given ? "sliced" : "given",
                 i < given ? i - slice : i - given);
    ash_value argument = b->loop->ins[i];
    return note(b, argument, ash_graph_input(b->body, name, ash_graph__type(b->to, argument)));
}

static ash_status make_body(back *b) {
    const ash_bodies *bodies = ash_grad__bodies(b->c);
    uint32_t loop = b->to->values.at[b->loop->out].node;
    ASH_TRY(ash_graph__derive(b->to, &b->body, b->diag));
    b->body->phase = b->to->phase;
    for (uint32_t i = 0; i < b->p.go; i++) ASH_TRY(add_argument(b, i));
    for (uint32_t n = bodies->first[loop]; n != UINT32_MAX; n = bodies->next[n])
        if (get(b, b->to->nodes.at[n].out) == ASH_NO_VALUE) ASH_TRY(copy_node(b, &b->to->nodes.at[n]));
    for (uint32_t i = b->p.next; i < b->loop->n_ins; i++) ASH_TRY(bring(b, b->loop->ins[i]));
    ash_graph_name_next(b->body, NULL);
    return ASH_OK;
}

/* Room for lists that have an entry for each operand or result of the body at most. */
static ash_status make_room(back *b) {
    const ash_bodies *bodies = ash_grad__bodies(b->c);
    size_t most = 2 * (size_t)b->loop->n_ins + b->loop->n_outs, list = sizeof(ash_value);
    for (uint32_t n = bodies->first[b->to->values.at[b->loop->out].node]; n != UINT32_MAX;
         n = bodies->next[n])
        most += (size_t)b->to->nodes.at[n].n_ins + b->to->nodes.at[n].n_outs;
    ash_arena *s = &b->scratch;
    bool all = (b->captured = ash_arena_alloc(s, most, list)) &&
               (b->constants = ash_arena_alloc(s, most, list)) &&
               (b->stops = ash_arena_alloc(s, most, list)) && (b->ys = ash_arena_alloc(s, most, list)) &&
               (b->dys = ash_arena_alloc(s, most, sizeof *b->dys)) &&
               (b->xs = ash_arena_alloc(s, most, list)) && (b->grads = ash_arena_alloc(s, most, list)) &&
               (b->asked = ash_arena_alloc(s, most, sizeof *b->asked)) &&
               (b->products = ash_arena_alloc(s, most, sizeof *b->products)) &&
               (b->outside = ash_arena_alloc(s, most, sizeof *b->outside)) &&
               (b->kept = ash_arena_alloc(s, 2 * most, list)) &&
               (b->seeds = ash_arena_alloc(s, b->p.carried, list)) &&
               (b->moves = ash_arena_alloc(s, b->p.carried, sizeof *b->moves));
    return all ? ASH_OK : ASH_NO_MEMORY(b->diag);
}

/* --- what is asked of it -------------------------------------------------------------------------- */

/* A stacked value of the body, whose slices have the gradient `whole`. */
static ash_status add_y(back *b, ash_value value, ash_value whole, bool ends) {
    char name[40];
    if (whole == ASH_NO_VALUE) return ASH_OK;
    snprintf(name, sizeof name, "gradient of stacked value %zu", b->n_ys);
    b->ys[b->n_ys] = get(b, value);
    b->dys[b->n_ys++] =
        (sliced){whole, ends, ash_graph_input(b->body, name, ash_graph__type(b->to, value))};
    return ash_graph_status(b->body, b->diag);
}

static ash_status find_ys(back *b) {
    const ash_bodies *bodies = ash_grad__bodies(b->c);
    for (uint32_t k = 0; k < b->p.carried; k++) {
        ash_value argument = b->loop->ins[ASH_LOOP_CARRIED + k];
        char name[40];
        b->seeds[k] = ASH_NO_VALUE;
        if (!ash_grad__is_active(b->c, argument)) continue;
        snprintf(name, sizeof name, "gradient of carried value %u", k);
        b->seeds[k] = ash_graph_input(b->body, name, ash_graph__type(b->to, argument));
        b->moves[k] = b->c->grads[b->p.finals + k] != ASH_NO_VALUE;
    }
    for (uint32_t k = 0; k < b->p.stacked; k++)
        ASH_TRY(add_y(b, b->loop->ins[b->p.ys + k], b->c->grads[b->p.stacks + k],
                      lies_from_end(b, b->p.scanned + k)));
    for (uint32_t n = bodies->first[b->to->values.at[b->loop->out].node]; n != UINT32_MAX;
         n = bodies->next[n]) {
        const ash_node *node = &b->to->nodes.at[n];
        for (uint32_t k = 0; k < node->n_outs; k++)
            ASH_TRY(add_y(b, node->out + k, ash_grad__stacked(b->c, node->out + k), false));
    }
    return ash_graph_status(b->body, b->diag);
}

static void find_xs(back *b) {
    for (uint32_t i = ASH_LOOP_CARRIED; i < b->p.go + b->n_captured; i++) {
        ash_value value = i < b->p.go ? b->loop->ins[i] : b->captured[i - b->p.go];
        if (!ash_grad__is_active(b->c, value)) continue;
        b->asked[b->n_xs] = i;
        b->xs[b->n_xs++] = get(b, value);
    }
}

/* Differentiates the body. Whether the gradient of a carried value is 0 throughout is known only when that
 * of what is made of it is: so again, until no more of them move. */
static ash_status differentiate(back *b) {
    size_t most = b->p.carried + b->n_ys;
    ash_value *ys = ash_arena_alloc(&b->scratch, most, sizeof *ys);
    ash_value *seeds = ash_arena_alloc(&b->scratch, most, sizeof *seeds);
    if (!ys || !seeds) return ASH_NO_MEMORY(b->diag);
    for (bool more = true; more;) {
        size_t n = 0;
        for (uint32_t k = 0; k < b->p.carried; k++)
            if (b->moves[k]) ys[n] = get(b, b->loop->ins[b->p.next + k]), seeds[n++] = b->seeds[k];
        for (size_t k = 0; k < b->n_ys; k++) ys[n] = b->ys[k], seeds[n++] = b->dys[k].slice;
        const ash_grad_question question = {.ys = ys,
                                            .seeds = seeds,
                                            .n_ys = n,
                                            .xs = b->xs,
                                            .n_xs = b->n_xs,
                                            .stops = b->stops,
                                            .n_stops = b->n_stops,
                                            .constants = b->constants,
                                            .n_constants = b->n_constants};
        ASH_TRY(ash_grad__differentiate(b->body, &question, b->grads, b->diag));
        more = false;
        for (size_t i = 0; i < b->n_xs; i++) {
            if (b->asked[i] >= first_slice(b) || b->grads[i] == ASH_NO_VALUE) continue;
            bool *moves = &b->moves[b->asked[i] - ASH_LOOP_CARRIED];
            more |= !*moves;
            *moves = true;
        }
    }
    return ASH_OK;
}

/* Whether no x has a gradient, be it that of a carried value where there is no iteration. */
static bool is_nothing(const back *b) {
    for (uint32_t k = 0; k < b->p.carried; k++)
        if (b->moves[k]) return false;
    for (size_t i = 0; i < b->n_xs; i++)
        if (b->grads[i] != ASH_NO_VALUE) return false;
    return true;
}

/* Finds gradients that are products. Not where the number of iterations is computed: what lies behind the
 * last one may be anything. */
static void find_products(back *b) {
    const ash_graph *g = b->body;
    for (size_t i = 0; i < b->n_xs && !b->p.until; i++) {
        ash_value gradient = b->grads[i];
        if (b->asked[i] < first_given(b) || gradient == ASH_NO_VALUE) continue;
        const ash_value_info *info = &g->values.at[gradient];
        if (info->kind != ASH_VALUE_NODE || info->type.rank != 2) continue;
        const ash_node *node = &g->nodes.at[info->node];
        if (node->op != ASH_OP_MATMUL) continue;
        back_product p = {.x = i, .left = node->ins[0], .right = node->ins[1]};
        const ash_value_info *left = &g->values.at[p.left];
        const ash_node *turn = left->kind == ASH_VALUE_NODE ? &g->nodes.at[left->node] : node;
        p.turned = turn->op == ASH_OP_TRANSPOSE && ash_node_list(turn, ASH_ATTR_PERM)[0];
        if (p.turned) p.left = turn->ins[0];
        b->outside[i] = true;
        b->products[b->n_products++] = p;
    }
}

/* --- what is kept of the forward iteration -------------------------------------------------------- */

/* Whether a node's results are computed again rather than kept. */
static bool is_cheap(const ash_node *node) {
    return ash_op_is_elementwise(node->op) || ash_op_infos[node->op].class == ASH_CLASS_MOVE;
}

static bool has_needed(const back *b, const ash_node *node) {
    for (uint32_t k = 0; k < node->n_outs; k++)
        if (b->needed[node->out + k]) return true;
    return false;
}

/* Marks what the gradients of the body are computed from, back to what is kept. */
static ash_status find_needed(back *b) {
    const ash_graph *g = b->body;
    size_t n = g->values.len;
    b->needed = ash_arena_alloc(&b->scratch, n, sizeof *b->needed);
    b->saved = ash_arena_alloc(&b->scratch, n, sizeof *b->saved);
    b->image = ash_arena_alloc(&b->scratch, n, sizeof *b->image);
    b->slices = ash_arena_alloc(&b->scratch, n, sizeof *b->slices);
    if (!b->needed || !b->saved || !b->image || !b->slices) return ASH_NO_MEMORY(b->diag);
    for (size_t v = 0; v < n; v++) b->image[v] = ASH_NO_VALUE;
    while (b->source.len < n)
        if (!ash_vec_push(b->to->allocator, &b->source, ASH_NO_VALUE)) return ASH_NO_MEMORY(b->diag);
    for (size_t i = 0; i < b->n_xs; i++)
        if (b->grads[i] != ASH_NO_VALUE && !b->outside[i]) b->needed[b->grads[i]] = true;
    for (size_t i = 0; i < b->n_products; i++)
        b->needed[b->products[i].left] = b->needed[b->products[i].right] = true;
    for (size_t i = g->nodes.len; i-- > 0;) {
        const ash_node *node = &g->nodes.at[i];
        if (!has_needed(b, node)) continue;
        bool forward = node->out < b->n_forward || node->op == ASH_OP_STACK;
        bool saved = forward && !is_cheap(node);
        for (uint32_t k = 0; saved && k < node->n_outs; k++)
            b->saved[node->out + k] = b->needed[node->out + k];
        for (uint32_t k = 0; !saved && k < node->n_ins; k++) b->needed[node->ins[k]] = true;
    }
    return ASH_OK;
}

/* The value of `to` that a value of the body is a copy of. What a loop within stacks for its own gradient
 * it stacks there. */
static ash_value source_of(back *b, ash_value inner) {
    const ash_node *node = &b->body->nodes.at[b->body->values.at[inner].node];
    if (b->source.at[inner] != ASH_NO_VALUE || node->op != ASH_OP_STACK) return b->source.at[inner];
    const ash_value ins[] = {b->source.at[node->ins[0]], b->source.at[node->ins[1]]};
    return ash_build(b->to, ASH_OP_STACK, ins, 2, node->attrs, node->n_attrs);
}

/* The result that a stack names its loop by: one that a derivative goes through, so that paths do. */
static ash_value name_loop(const back *b) {
    for (uint32_t k = 0; k < b->loop->n_outs; k++)
        if (ash_grad__is_active(b->c, b->loop->out + k)) return b->loop->out + k;
    return b->loop->out;
}

/* What a value of the body is in each iteration. */
static void add_slice(back *b, ash_value inner, ash_value value) {
    for (uint32_t k = 0; k < b->p.stacked; k++) {
        if (b->loop->ins[b->p.ys + k] != value) continue;
        b->slices[b->n_slices++] =
            (sliced){b->loop->out + b->p.stacks + k, lies_from_end(b, b->p.scanned + k), inner};
        return;
    }
    b->n_stacks++;
    const ash_value ins[] = {name_loop(b), value};
    const ash_attr attr = ASH_ATTR_I(TRIPS, b->trips);
    b->slices[b->n_slices++] = (sliced){ash_build(b->to, ASH_OP_STACK, ins, 2, &attr, 1), false, inner};
}

static void find_slices(back *b) {
    uint8_t phase = ash_grad__enter(b->to, b->to->values.at[b->loop->out].phase);
    for (uint32_t k = 0; k < b->p.carried; k++) {
        ash_value argument = b->loop->ins[ASH_LOOP_CARRIED + k], inner = get(b, argument);
        if (b->needed[inner]) add_slice(b, inner, argument);
    }
    for (ash_value v = 0; v < b->body->values.len; v++)
        if (b->saved[v]) add_slice(b, v, source_of(b, v));
    b->to->phase = phase;
    for (uint32_t k = 0; k < b->p.scanned; k++) {
        ash_value inner = get(b, b->loop->ins[first_slice(b) + k]);
        if (b->needed[inner])
            b->slices[b->n_slices++] = (sliced){b->loop->ins[b->p.xs + k], lies_from_end(b, k), inner};
    }
    for (size_t k = 0; k < b->n_ys; k++)
        if (b->needed[b->dys[k].slice]) b->slices[b->n_slices++] = b->dys[k];
}

/* Where a value of the body is sliced, or NULL. */
static const sliced *find_slice(const back *b, ash_value inner) {
    for (size_t k = 0; k < b->n_slices; k++)
        if (b->slices[k].slice == inner) return &b->slices[k];
    return NULL;
}

/* What products read lies in slices, or is stacked. */
static void find_kept(back *b) {
    for (size_t i = 0; i < 2 * b->n_products; i++) {
        ash_value value = i & 1 ? b->products[i / 2].right : b->products[i / 2].left;
        size_t k = 0;
        while (k < b->n_kept && b->kept[k] != value) k++;
        if (k == b->n_kept && !find_slice(b, value)) b->kept[b->n_kept++] = value;
    }
}

/* --- the backward loop ---------------------------------------------------------------------------- */

/* Lists of the backward loop. Results: `moves` first, then sums, then what is stacked. */
typedef struct back_lists {
    ash_value *init, *next, *xs, *gives, *arguments, *ys, *outs;
    uint32_t carried, given, stacked;
} back_lists;

static ash_status make_lists(back *b, back_lists *l) {
    size_t carried = b->p.carried + b->n_xs, all = 1 + carried + b->n_slices + b->p.given;
    ash_arena *s = &b->scratch;
    *l = (back_lists){0};
    bool there = (l->init = ash_arena_alloc(s, carried, sizeof *l->init)) &&
                 (l->next = ash_arena_alloc(s, carried, sizeof *l->next)) &&
                 (l->xs = ash_arena_alloc(s, b->n_slices, sizeof *l->xs)) &&
                 (l->gives = ash_arena_alloc(s, b->p.given, sizeof *l->gives)) &&
                 (l->arguments = ash_arena_alloc(s, all, sizeof *l->arguments)) &&
                 (l->ys = ash_arena_alloc(s, b->n_xs + b->n_kept, sizeof *l->ys)) &&
                 (l->outs = ash_arena_alloc(s, 1 + carried + b->n_xs + b->n_kept, sizeof *l->outs));
    return there ? ASH_OK : ASH_NO_MEMORY(b->diag);
}

/* Whether an x is a slice, whose gradient is stacked; one that is summed is no carried value. */
static bool is_slice(const back *b, size_t x) {
    return b->asked[x] >= first_slice(b) && b->asked[x] < first_given(b);
}
static bool is_summed(const back *b, size_t x) {
    return b->asked[x] >= first_given(b) && b->grads[x] != ASH_NO_VALUE && !b->outside[x];
}

static void open_loop(back *b, back_lists *l, ash_loop *loop) {
    for (uint32_t k = 0; k < b->p.carried; k++) {
        ash_value gradient = b->c->grads[b->p.finals + k];
        if (!b->moves[k]) continue;
        if (gradient == ASH_NO_VALUE)
            gradient = ash_grad__zeros_like(b->to, b->loop->ins[ASH_LOOP_CARRIED + k]);
        l->init[l->carried++] = gradient;
    }
    for (size_t i = 0; i < b->n_xs; i++)
        if (is_summed(b, i))
            l->init[l->carried++] = ash_grad__zeros(b->to, ash_graph__type(b->body, b->xs[i]));
    for (size_t k = 0; k < b->n_slices; k++) l->xs[k] = b->slices[k].whole;
    for (uint32_t k = 0; k < b->p.given; k++)
        if (b->needed[get(b, b->loop->ins[first_given(b) + k])])
            l->gives[l->given++] = b->loop->ins[b->p.gives + k];
    *loop = (ash_loop){.trips = b->trips,
                       .carried = l->carried,
                       .scanned = b->by_index ? 0 : (uint32_t)b->n_slices,
                       .given = l->given,
                       .go = ASH_NO_VALUE,
                       .init = l->init,
                       .xs = l->xs,
                       .gives = l->gives,
                       .arguments = l->arguments,
                       .next = l->next,
                       .ys = l->ys};
    for (uint32_t k = 0; k < loop->scanned; k++)
        if (!b->slices[k].ends) loop->backward |= UINT64_C(1) << k;
    ash_build__begin_loop(b->to, loop);
}

static ash_value number(ash_graph *to, int64_t value) {
    return ash_build__dim(to, value);
}

/* What the leaves of the body are in the backward loop. */
static void find_leaves(back *b, const back_lists *l, const ash_loop *loop) {
    ash_graph *to = b->to;
    ash_value iteration = l->arguments[ASH_LOOP_ITERATION], end = b->count;
    const ash_value *argument = l->arguments + ASH_LOOP_CARRIED;
    const ash_value whole = ash_build__dim(to, b->trips);
    if (end == ASH_NO_VALUE) end = whole;
    b->at = ash_sub(to, ash_sub(to, end, number(to, 1)), iteration);
    const ash_value from_end = ash_sub(to, ash_sub(to, whole, number(to, 1)), b->at);
    b->image[get(b, b->loop->ins[ASH_LOOP_ITERATION])] = b->at;
    for (size_t k = 0; k < b->n_captured; k++) b->image[get(b, b->captured[k])] = b->captured[k];
    for (uint32_t k = 0; k < b->p.carried; k++)
        if (b->moves[k]) b->image[b->seeds[k]] = *argument++;
    argument = l->arguments + ASH_LOOP_CARRIED + loop->carried;
    for (size_t k = 0; k < b->n_slices; k++) {
        const sliced *s = &b->slices[k];
        b->image[s->slice] =
            b->by_index ? ash_gather(to, s->whole, s->ends ? from_end : b->at, 0) : *argument++;
    }
    for (uint32_t k = 0; k < b->p.given; k++) {
        ash_value inner = get(b, b->loop->ins[first_given(b) + k]);
        if (b->needed[inner]) b->image[inner] = *argument++;
    }
}

/* A value of the body in `to`, where what it is made of is there. */
static ash_value image_of(back *b, ash_value inner) {
    ash_value *image = &b->image[inner];
    if (*image == ASH_NO_VALUE && b->body->values.at[inner].kind == ASH_VALUE_CONSTANT) {
        if (b->source.at[inner] != ASH_NO_VALUE)
            *image = b->source.at[inner];
        else
            ash_graph__copy_leaf(b->to, b->body, inner, image);
    }
    return *image;
}

/* The gradient of the body, and what is computed again for it. */
static ash_status fill_loop(back *b) {
    const ash_graph *g = b->body;
    ash_value outs[ASH_OP_OUTS];
    const char *name = b->to->next_name;
    for (size_t i = 0; i < g->nodes.len && b->to->status == ASH_OK; i++) {
        const ash_node *node = &g->nodes.at[i];
        bool saved = false;
        for (uint32_t k = 0; k < node->n_outs; k++) saved |= b->saved[node->out + k];
        if (saved || !has_needed(b, node)) continue;
        ash_value *ins = ash_arena_alloc(&b->scratch, node->n_ins, sizeof *ins);
        if (!ins) return ASH_NO_MEMORY(b->diag);
        for (uint32_t k = 0; k < node->n_ins; k++) ins[k] = image_of(b, node->ins[k]);
        ash_graph_name_next(b->to, node->name);
        ash_graph_add(b->to, node->op, ins, node->n_ins, node->attrs, node->n_attrs, outs);
        for (uint32_t k = 0; k < node->n_outs; k++) b->image[node->out + k] = outs[k];
    }
    b->to->next_name = name;
    return ash_graph_status(b->to, b->diag);
}

static void close_loop(back *b, back_lists *l, ash_loop *loop) {
    ash_graph *to = b->to;
    uint32_t at = 0;
    for (uint32_t k = 0, x = 0; k < b->p.carried; k++) {
        while (x < b->n_xs && b->asked[x] < ASH_LOOP_CARRIED + k) x++;
        if (!b->moves[k]) continue;
        bool moved = x < b->n_xs && b->asked[x] == ASH_LOOP_CARRIED + k && b->grads[x] != ASH_NO_VALUE;
        l->next[at++] =
            moved ? image_of(b, b->grads[x]) : ash_grad__zeros_like(to, b->loop->ins[ASH_LOOP_CARRIED + k]);
    }
    for (size_t i = 0; i < b->n_xs; i++) {
        if (is_summed(b, i)) {
            l->next[at] = ash_add(to, l->arguments[ASH_LOOP_CARRIED + at], image_of(b, b->grads[i]));
            at++;
        }
        if (!is_slice(b, i) || b->grads[i] == ASH_NO_VALUE) continue;
        bool ends = lies_from_end(b, b->asked[i] - first_slice(b));
        if (!b->by_index && !ends) loop->backward |= UINT64_C(1) << (loop->scanned + l->stacked);
        l->ys[l->stacked++] = image_of(b, b->grads[i]);
    }
    for (size_t k = 0; k < b->n_kept; k++) {
        if (!b->by_index) loop->backward |= UINT64_C(1) << (loop->scanned + l->stacked);
        l->ys[l->stacked++] = image_of(b, b->kept[k]);
    }
    loop->stacked = l->stacked;
    if (b->count != ASH_NO_VALUE) {
        ash_value next = ash_add(to, l->arguments[ASH_LOOP_ITERATION], number(to, 1));
        loop->go = ash_lt(to, number(to, 0), b->count);
        loop->next_go = ash_lt(to, next, b->count);
    }
    ash_build__end_loop(to, loop, l->outs);
}

/* Slices in the order of the backward loop's iterations, as those of the forward loop lie; zeros where
 * there was none. */
static ash_value in_order(back *b, ash_value slices, bool ends) {
    ash_graph *to = b->to;
    ash_type type = ash_grad__type(to, slices);
    ash_dim column[ASH_MAX_RANK];
    ash_value end = b->count == ASH_NO_VALUE ? ash_build__dim(to, b->trips) : b->count;
    ash_value place = ash_iota(to, ASH_I64, &b->trips, 1, 0), from;
    if (to->status != ASH_OK) return ASH_NO_VALUE;
    if (ends)
        from = ash_sub(to, place, ash_sub(to, ash_build__dim(to, b->trips), end));
    else
        from = ash_sub(to, ash_sub(to, end, number(to, 1)), place);
    for (unsigned d = 0; d < type.rank; d++) column[d] = d ? 1 : b->trips;
    ash_value there = ash_reshape(to, ash_ge(to, from, number(to, 0)), column, type.rank);
    ash_value all = ash_gather(to, slices, ash_max(to, from, number(to, 0)), 0);
    return ash_select(to, there, all, ash_scalar(to, type.dtype, 0));
}

/* A value of the body in all iterations, in the order of the forward loop's. `kept`: of the backward loop's
 * results, those for products. */
static ash_value all_of(back *b, ash_value inner, const ash_value *kept) {
    const sliced *slice = find_slice(b, inner);
    if (slice) return slice->ends ? ash_build__reverse(b->to, slice->whole, 0) : slice->whole;
    size_t k = 0;
    while (b->kept[k] != inner) k++;
    return b->by_index ? in_order(b, kept[k], false) : kept[k];
}

/* The sum of a product over all iterations: [k, trips * m] times [trips * m, n]. */
static ash_value multiply(back *b, const back_product *p, const ash_value *kept) {
    ash_graph *to = b->to;
    static const int64_t perm[] = {1, 0, 2};
    ash_value left = all_of(b, p->left, kept), right = all_of(b, p->right, kept);
    const ash_type l = ash_grad__type(to, left), r = ash_grad__type(to, right);
    if (to->status != ASH_OK) return ASH_NO_VALUE;
    ash_dim terms = ash_graph_dim_mul(to, r.dims[0], r.dims[1]);
    if (p->turned)
        left = ash_build__swap(to, ash_reshape(to, left, (ash_dim[]){terms, l.dims[2]}, 2), 0, 1);
    else
        left = ash_reshape(to, ash_transpose(to, left, perm), (ash_dim[]){l.dims[1], terms}, 2);
    return ash_matmul(to, left, ash_reshape(to, right, (ash_dim[]){terms, r.dims[2]}, 2));
}

/* The gradient of a given or captured value. */
static void give_outer(back *b, uint32_t x, ash_value gradient) {
    if (x < b->p.go)
        ash_grad__give(b->c, b->p.gives + x - first_given(b), gradient);
    else
        ash_grad__give_value(b->c, b->captured[x - b->p.go], gradient);
}

static void hand_out(back *b, const back_lists *l) {
    const ash_value *sum = l->outs + (b->count != ASH_NO_VALUE);
    for (uint32_t k = 0; k < b->p.carried; k++)
        if (b->moves[k]) ash_grad__give(b->c, b->p.init + k, *sum++);
    const ash_value *stacked = l->outs + (b->count != ASH_NO_VALUE) + l->carried;
    for (size_t i = 0; i < b->n_xs; i++) {
        uint32_t x = b->asked[i];
        if (is_slice(b, i) && b->grads[i] != ASH_NO_VALUE) {
            uint32_t k = x - first_slice(b);
            ash_value all = *stacked++;
            ash_grad__give(b->c, b->p.xs + k, b->by_index ? in_order(b, all, lies_from_end(b, k)) : all);
        }
        if (is_summed(b, i)) give_outer(b, x, *sum++);
    }
    for (size_t i = 0; i < b->n_products; i++)
        give_outer(b, b->asked[b->products[i].x], multiply(b, &b->products[i], stacked));
}

/* --- the rule ------------------------------------------------------------------------------------- */

static ash_status go_back(back *b) {
    back_lists l;
    ash_loop loop;
    ASH_TRY(make_room(b));
    ASH_TRY(make_body(b));
    ASH_TRY(find_ys(b));
    find_xs(b);
    b->n_forward = b->body->values.len;
    if (!b->n_xs) return ASH_OK;
    ASH_TRY(differentiate(b));
    if (is_nothing(b)) return ASH_OK;
    find_products(b);
    ASH_TRY(find_needed(b));
    find_slices(b);
    if (b->p.scanned + b->p.stacked + b->n_stacks > ASH_LOOP_PARTS ||
        b->loop->n_outs + b->n_stacks > ASH_OP_OUTS)
        ash_grad__refuse(b->c, "has more values in an iteration than can be kept for the way back");
    ASH_TRY(ash_graph_status(b->to, b->diag));
    find_kept(b);
    b->by_index = b->p.until || b->n_slices + b->n_xs + b->n_kept > ASH_LOOP_PARTS;
    ASH_TRY(make_lists(b, &l));
    open_loop(b, &l, &loop);
    ASH_TRY(ash_graph_status(b->to, b->diag));
    find_leaves(b, &l, &loop);
    ASH_TRY(fill_loop(b));
    close_loop(b, &l, &loop);
    hand_out(b, &l);
    return ash_graph_status(b->to, b->diag);
}

/* A failure within the body is told with the loop's name. */
static void fail(back *b, ash_status status) {
    ash_diag told = *b->diag;
    const char *name = b->loop->name;
    if (b->to->status != ASH_OK) return;
    ash_fail(&told, status, "in the body of the loop%s%.60s%s: %s", name ? " '" : "", name ? name : "",
             name ? "'" : "", b->diag->message);
    ash_diag__add_node(&told, b->diag->node, b->diag->op, ASH_NO_OFFSET);
    ash_graph__stick(b->to, &told);
}

static bool has_gradient(const ash_grad *c) {
    const ash_bodies *bodies = ash_grad__bodies(c);
    for (uint32_t k = 0; k < c->node.n_outs; k++)
        if (c->grads[k] != ASH_NO_VALUE) return true;
    for (uint32_t n = bodies->first[c->graph->values.at[c->node.out].node]; n != UINT32_MAX;
         n = bodies->next[n]) {
        const ash_node *node = &c->graph->nodes.at[n];
        for (uint32_t k = 0; k < node->n_outs; k++)
            if (ash_grad__stacked(c, node->out + k) != ASH_NO_VALUE) return true;
    }
    return false;
}

void ash_grad__loop(ash_grad *c) {
    ash_diag diag;
    back b = {.c = c,
              .to = c->graph,
              .loop = &c->node,
              .p = ash_node__loop(&c->node),
              .trips = ash_node_int(&c->node, ASH_ATTR_TRIPS),
              .backward = (uint64_t)ash_node_int(&c->node, ASH_ATTR_BACKWARD),
              .count = ASH_NO_VALUE,
              .diag = &diag};
    int64_t least, most;
    if (!has_gradient(c)) return;
    ash_dims_bounds(c->graph->dims, b.trips, &least, &most);
    if (most >= ASH_OPEN_MOST) {
        ash_grad__refuse(c, "has a number of iterations that nothing bounds, and so no way back");
        return;
    }
    if (most == 0) { /* what is carried is what it begins with */
        for (uint32_t k = 0; k < b.p.carried; k++)
            ash_grad__give(c, b.p.init + k, c->grads[b.p.finals + k]);
        return;
    }
    if (b.p.until) b.count = c->node.out;
    ash_arena_init(&b.scratch, c->graph->allocator);
    ash_map_init(&b.inner, c->graph->allocator);
    ash_diag_clear(&diag);
    ash_status status = go_back(&b);
    if (status != ASH_OK) fail(&b, status);
    ash_vec_free(c->graph->allocator, &b.source);
    ash_map_free(&b.inner);
    ash_arena_free(&b.scratch);
    ash_graph_destroy(b.body);
}
