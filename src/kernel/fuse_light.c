/* SPDX-License-Identifier: MIT */
/* Which values are not stored though several groups read them: each reader computes them anew. They cost
 * few instructions, and what they are made of is in memory anyway. And which values are made of several
 * reductions' results, so that they belong to where these are; and which are constants. */
#include "fuse.h"

typedef struct light_marks {
    const ash_graph *graph;
    const ash_costs *costs;
    const bool *constant;
    bool few; /* nothing that would hold more than it frees */
    bool *light;
    bool *meets;     /* element by element made of results of several reductions */
    bool *narrow;    /* element by element made of results of reductions */
    bool *positions; /* made of positions and single numbers alone */
    bool *at_hand;   /* reduced, or made of such a value and of numbers that are repeated */
    bool *shared;    /* the same of values that lie in memory for another reason: several nodes read them */
} light_marks;

void ash_fuse__mark_constants(const ash_graph *graph, bool *constant) {
    for (size_t v = 0; v < graph->values.len; v++) {
        ash_value_kind kind = graph->values.at[v].kind;
        constant[v] = kind == ASH_VALUE_CONSTANT || kind == ASH_VALUE_PARAMETER;
    }
    for (size_t n = 0; n < graph->nodes.len; n++) {
        const ash_node *node = &graph->nodes.at[n];
        int64_t count;
        bool all = !graph->body && ash_node__is_pure(graph, node) && ash_node_has_numbers(node);
        for (unsigned i = 0; i < node->n_outs; i++)
            all &= ash_type_static_count(ash_graph__type(graph, node->out + i), &count);
        for (unsigned i = 0; i < node->n_ins; i++) all &= constant[node->ins[i]];
        for (unsigned i = 0; i < node->n_outs; i++) constant[node->out + i] = all;
    }
}

void ash_fuse__mark_from_reduction(const ash_graph *graph, bool *from) {
    for (size_t n = 0; n < graph->nodes.len; n++) {
        const ash_node *node = &graph->nodes.at[n];
        bool any = ash_op_is_reduction(node->op);
        if (ash_op_is_elementwise(node->op) || ash_op_is_virtual(node->op))
            for (unsigned i = 0; i < node->n_ins; i++) any |= from[node->ins[i]];
        if (ash_node__looked_up(graph, node) != ASH_NO_VALUE) any |= from[node->ins[1]];
        from[node->out] = any;
    }
}

/* Marks values that a reduction reads, at once or through movement. */
static void mark_summed(const ash_graph *graph, bool *summed) {
    for (size_t n = graph->nodes.len; n-- > 0;) {
        const ash_node *node = &graph->nodes.at[n];
        bool reduces = ash_op_is_reduction(node->op) && !ash_node_reduces_nothing(graph, node);
        if (!reduces && !(ash_op_is_virtual(node->op) && summed[node->out])) continue;
        for (unsigned i = 0; i < node->n_ins; i++) summed[node->ins[i]] = true;
    }
}

/* Marks what several nodes read, and inputs: whoever reads what is made of it in several groups would have
 * the same stored twice. Neither movement, of what may be larger, nor states, which are to be written over
 * soon. `read`: room. */
static void mark_shared(const ash_graph *graph, bool *read, bool *shared) {
    for (size_t i = 0; i < graph->inputs.len; i++) shared[graph->inputs.at[i]] = true;
    for (size_t n = 0; n < graph->nodes.len; n++) {
        const ash_node *node = &graph->nodes.at[n];
        for (unsigned i = 0; i < node->n_ins; i++) {
            const ash_value in = node->ins[i];
            const ash_value_info *info = ash_graph__value(graph, in);
            bool same = info->kind != ASH_VALUE_NODE || ash_op_is_virtual(graph->nodes.at[info->node].op);
            for (unsigned k = 0; k < i; k++) same |= node->ins[k] == in;
            shared[in] |= read[in] && !same;
            read[in] = true;
        }
    }
}

/* Marks what is computed from results of reductions, a number for each of theirs. */
static void mark_narrow(const light_marks *m) {
    const ash_graph *graph = m->graph;
    for (size_t n = 0; n < graph->nodes.len; n++) {
        const ash_node *node = &graph->nodes.at[n];
        ash_value first = ASH_NO_VALUE;
        bool any = false;
        if (ash_op_is_reduction(node->op) && !ash_node_reduces_nothing(graph, node))
            any = node->n_outs == 1;
        if (ash_op_is_elementwise(node->op) || node->op == ASH_OP_RESHAPE)
            for (unsigned i = 0; i < node->n_ins; i++) {
                ash_value in = node->ins[i];
                if (!m->narrow[in]) continue;
                m->meets[node->out] |= any && in != first;
                first = any ? first : in;
                any = true;
            }
        m->narrow[node->out] = any;
    }
}

/* Whether an operand repeats its numbers: results of reductions, or, of many elements, each often: what is
 * one per channel, or per row. What else is small stays in the cache when it is stored, and what it is made
 * of need not be held. */
static bool is_spread(const light_marks *m, ash_value value) {
    enum { OFTEN = 16, MANY = 1 << 14 };
    const ash_graph *graph = m->graph;
    const ash_value_info *info = ash_graph__value(graph, value);
    if (info->kind != ASH_VALUE_NODE) return false;
    const ash_node *node = &graph->nodes.at[info->node];
    if (node->op != ASH_OP_BROADCAST) return false;
    if (m->narrow[node->ins[0]] && !m->few) return true;
    int64_t few = ash_type_max_count(graph->dims, ash_graph__type(graph, node->ins[0]));
    int64_t all = ash_type_max_count(graph->dims, &info->type);
    return all >= MANY && few <= all / OFTEN;
}

/* Whether a value is the sum, product, ... of a number of one value, and of one that is repeated: *of
 * is the first. */
static bool is_scaled(const light_marks *m, const ash_node *node, ash_value *of) {
    switch (node->op) {
    case ASH_OP_ADD:
    case ASH_OP_SUB:
    case ASH_OP_MUL:
    case ASH_OP_MIN:
    case ASH_OP_MAX: break;
    default: return false;
    }
    bool first = is_spread(m, node->ins[1]);
    *of = node->ins[first ? 0 : 1];
    return first || is_spread(m, node->ins[0]);
}

static bool is_broadcast(const ash_graph *graph, ash_value value) {
    const ash_value_info *info = ash_graph__value(graph, value);
    return info->kind == ASH_VALUE_NODE && graph->nodes.at[info->node].op == ASH_OP_BROADCAST;
}

static bool is_one_number(const light_marks *m, ash_value value) {
    return ash_type_max_count(m->graph->dims, ash_graph__type(m->graph, value)) == 1;
}

/* Whether a constant operand is one number, or one per channel. */
static bool is_small(const light_marks *m, ash_value value) {
    return m->constant[value] && (is_one_number(m, value) || is_broadcast(m->graph, value));
}

/* Whether a node computes with positions and single numbers alone, by instructions that cost little: a
 * mask of what comes before what. One number may be divided, too: that is done once. */
static bool is_position(const light_marks *m, const ash_node *node) {
    if (node->op == ASH_OP_IOTA) return true;
    const ash_costs *c = m->costs;
    const int64_t most = is_one_number(m, node->out) ? c->work_divide : c->work_simple;
    bool simple = ash_op_is_elementwise(node->op) && ash_node__work(c, node) <= most;
    if (!simple && !ash_op_is_virtual(node->op)) return false;
    bool any = false;
    for (unsigned i = 0; i < node->n_ins; i++) {
        any |= m->positions[node->ins[i]];
        if (!m->positions[node->ins[i]] && !is_small(m, node->ins[i])) return false;
    }
    return any;
}

/* Whether a node looks for the position that a repeated number tells: a row of ones and zeros. */
static bool is_one_hot(const light_marks *m, const ash_node *node) {
    if (node->op != ASH_OP_EQ) return false;
    for (unsigned i = 0; i < 2; i++)
        if (m->positions[node->ins[i]] && is_broadcast(m->graph, node->ins[!i])) return true;
    return false;
}

/* Large masks of positions, which take less time to compute than memory to keep; one number made of them,
 * as the count of a mean over dims that are variables, which would be a kernel of its own; and rows of ones
 * and zeros. */
static void mark_positions(const light_marks *m) {
    const ash_graph *graph = m->graph;
    for (size_t n = 0; n < graph->nodes.len; n++) {
        const ash_node *node = &graph->nodes.at[n];
        ash_value out = node->out;
        if (node->n_outs != 1) continue;
        m->positions[out] = is_position(m, node);
        int64_t bytes = ash_type_max_bytes(graph->dims, ash_graph__type(graph, out));
        bool best = is_one_number(m, out) || bytes > m->costs->position_bytes;
        m->light[out] = (m->positions[out] && !ash_op_is_virtual(node->op) && best) ||
                        (!m->few && !m->positions[out] && is_one_hot(m, node));
    }
}

/* Whether a node dequantises: a cast of a byte, or a sum or product of such a value with small
 * constants. */
static bool dequantises(const light_marks *m, const ash_node *node) {
    switch (node->op) {
    case ASH_OP_CAST:
        return m->light[node->ins[0]] ||
               ash_dtype_size(ash_graph__type(m->graph, node->ins[0])->dtype) == 1;
    case ASH_OP_ADD:
    case ASH_OP_SUB:
    case ASH_OP_MUL: return m->light[node->ins[0]] && is_small(m, node->ins[1]);
    default: return false;
    }
}

/* The others:
 *
 *   dequantisation: the byte is read, and not four bytes that one more kernel has written
 *   what is scaled and shifted, number by number, of a value that is reduced as well, and so is stored: a
 *   normalisation, in training. As many bytes are read, and none are written. The same of what lies in
 *   memory for another reason: what an activation and its gradient are computed of
 *   the exponential of such a value: a softmax's, which its gradient asks for again */
static void mark_scaled(const light_marks *m) {
    const ash_graph *graph = m->graph;
    for (size_t n = 0; n < graph->nodes.len; n++) {
        const ash_node *node = &graph->nodes.at[n];
        ash_value of;
        if (m->constant[node->out] || m->light[node->out]) continue;
        bool simple = is_scaled(m, node, &of) && !m->constant[of];
        bool scaled = simple && m->at_hand[of], again = simple && m->shared[of];
        bool power =
            !m->few && node->op == ASH_OP_EXP && m->light[node->ins[0]] && m->at_hand[node->ins[0]];
        m->at_hand[node->out] |= scaled;
        m->shared[node->out] |= again;
        m->light[node->out] = scaled || (again && !m->few) || power || dequantises(m, node);
    }
}

bool ash_fuse__mark_light(const ash_graph *graph, const ash_fusion_options *options, const bool *constant,
                          bool *light, bool *meets) {
    enum { ROOMS = 5 };
    const size_t values = graph->values.len;
    bool *room = ash_mem_calloc(graph->allocator, ROOMS * values, sizeof *room);
    if (!room) return false;
    const light_marks m = {.graph = graph,
                           .costs = options->costs,
                           .constant = constant,
                           .few = options->alone,
                           .light = light,
                           .meets = meets,
                           .narrow = room,
                           .positions = room + values,
                           .at_hand = room + 2 * values,
                           .shared = room + 3 * values};
    mark_narrow(&m);
    mark_positions(&m);
    mark_summed(graph, m.at_hand);
    mark_shared(graph, room + 4 * values, m.shared);
    mark_scaled(&m);
    ash_mem_free(graph->allocator, room, ROOMS * values, sizeof *room);
    return true;
}
