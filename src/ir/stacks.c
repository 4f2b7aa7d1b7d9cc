/* SPDX-License-Identifier: MIT */
/* Stacks: values of a loop's body that are asked for from outside, after the loop has been built. Gradients
 * ask so, since a loop that stands in a graph cannot be given further results. Here it is built anew, with
 * what is asked for behind the values that it stacked before:
 *
 *     %5, %6 = loop(..., %4)                 %5, %6, %7 = loop(..., %4, %3)
 *     %7 = stack(%5, %3)               to
 *
 * A stack of a value of an inner loop's body belongs to the body of the outer one, and may stand behind
 * both. So each is an image of its loop's result as soon as that is there. */
#include "inside.h"

#define NOBODY UINT32_MAX

typedef struct gathering {
    const ash_graph *from;
    ash_graph *to;
    ash_value *image; /* per value */
    uint32_t *first;  /* per node that is a loop: its first stack, a node; or NOBODY */
    uint32_t *next;   /* per stack: the next one of the same loop */
    ash_arena scratch;
    ash_diag *diag;
} gathering;

bool ash_graph__has_stacks(const ash_graph *graph) {
    for (size_t n = 0; n < graph->nodes.len; n++)
        if (graph->nodes.at[n].op == ASH_OP_STACK) return true;
    return false;
}

static void find_stacks(gathering *s) {
    const ash_graph *g = s->from;
    for (size_t n = 0; n < g->nodes.len; n++) s->first[n] = s->next[n] = NOBODY;
    for (uint32_t n = (uint32_t)g->nodes.len; n-- > 0;) {
        if (g->nodes.at[n].op != ASH_OP_STACK) continue;
        uint32_t loop = ash_node__stacker(g, &g->nodes.at[n]);
        s->next[n] = s->first[loop];
        s->first[loop] = n;
    }
}

/* Adds a node whose operands are `ins`, the first ones images of its own; stacks from `stack` on are
 * results behind its own. */
static ash_status add(gathering *s, const ash_node *node, const ash_value *ins, size_t n_ins,
                      const ash_attr *attrs, uint32_t stack) {
    ash_value outs[ASH_OP_OUTS];
    const ash_value_info *info = &s->from->values.at[node->out];
    ash_graph_name_next(s->to, node->name);
    s->to->phase = info->phase;
    ash_graph_add(s->to, node->op, ins, n_ins, attrs, node->n_attrs, outs);
    ASH_TRY(ash_graph_status(s->to, s->diag));
    for (unsigned k = 0; k < node->n_outs; k++) s->image[node->out + k] = outs[k];
    for (unsigned k = node->n_outs; stack != NOBODY; stack = s->next[stack])
        s->image[s->from->nodes.at[stack].out] = outs[k++];
    return ASH_OK;
}

/* A loop with what is asked of it. */
static ash_status add_loop(gathering *s, const ash_node *node, ash_value *ins, uint32_t stack) {
    ash_attr attrs[ASH_ATTR_COUNT];
    ash_type types[ASH_OP_OUTS];
    int64_t list[ASH_OP_OUTS * (2 + ASH_MAX_RANK)];
    size_t count = node->n_outs, n_ins = node->n_ins;
    for (size_t k = 0; k < count; k++) types[k] = *ash_graph__type(s->from, (ash_value)(node->out + k));
    for (uint32_t n = stack; n != NOBODY; n = s->next[n]) {
        const ash_node *asked = &s->from->nodes.at[n];
        ASH_FAIL_IF(count == ASH_OP_OUTS, s->diag, ASH_ERROR_UNSUPPORTED,
                    "more than %d results of a loop are needed, with those that a gradient reads",
                    (int)ASH_OP_OUTS);
        types[count++] = *ash_graph__type(s->from, asked->out);
        ins[n_ins++] = s->image[asked->ins[1]];
    }
    memcpy(attrs, node->attrs, node->n_attrs * sizeof *attrs);
    for (size_t i = 0; i < node->n_attrs; i++)
        if (attrs[i].key == ASH_ATTR_RESULTS)
            attrs[i] = ASH_ATTR_LIST(RESULTS, list, (uint32_t)ash_results__write(types, count, list));
    return add(s, node, ins, n_ins, attrs, stack);
}

static ash_status take_node(gathering *s, uint32_t n) {
    const ash_node *node = &s->from->nodes.at[n];
    size_t n_ins = node->n_ins;
    if (node->op == ASH_OP_STACK) return ASH_OK;
    for (uint32_t stack = s->first[n]; stack != NOBODY; stack = s->next[stack]) n_ins++;
    ash_value *ins = ash_arena_alloc(&s->scratch, n_ins, sizeof *ins);
    if (!ins) return ASH_NO_MEMORY(s->diag);
    for (size_t i = 0; i < node->n_ins; i++) ins[i] = s->image[node->ins[i]];
    if (s->first[n] != NOBODY) return add_loop(s, node, ins, s->first[n]);
    return add(s, node, ins, n_ins, node->attrs, NOBODY);
}

static ash_status gather(gathering *s) {
    const ash_graph *g = s->from;
    find_stacks(s);
    for (ash_value v = 0; v < g->values.len; v++) {
        s->image[v] = ASH_NO_VALUE;
        if (g->values.at[v].kind != ASH_VALUE_NODE)
            ASH_TRY(ash_graph__copy_leaf(s->to, g, v, &s->image[v]));
    }
    for (uint32_t n = 0; n < g->nodes.len; n++) {
        ash_status status = take_node(s, n);
        if (status == ASH_OK) continue;
        ash_diag__add_node(s->diag, g->nodes.at[n].name, ash_op_name(g->nodes.at[n].op), ASH_NO_OFFSET);
        return status;
    }
    for (ash_value v = 0; v < g->values.len; v++)
        s->to->values.at[s->image[v]].origin = g->values.at[v].origin;
    ash_graph__copy_ends(s->to, g, s->image);
    return ash_graph_status(s->to, s->diag);
}

ash_status ash_graph__gather_stacks(const ash_graph *graph, ash_graph **out, ash_value *map,
                                    ash_diag *diag) {
    const ash_allocator *a = graph->allocator;
    size_t values = graph->values.len, nodes = graph->nodes.len;
    gathering s = {.from = graph, .diag = diag};
    *out = NULL;
    ASH_TRY(ash_graph__check_loops(graph, diag));
    ash_arena_init(&s.scratch, a);
    s.image = map ? map : ash_mem_alloc(a, values, sizeof *s.image);
    s.first = ash_mem_alloc(a, nodes, sizeof *s.first);
    s.next = ash_mem_alloc(a, nodes, sizeof *s.next);
    ash_status status =
        s.image && s.first && s.next ? ash_graph__derive(graph, &s.to, diag) : ASH_NO_MEMORY(diag);
    if (status == ASH_OK) status = gather(&s);
    if (!map) ash_mem_free(a, s.image, values, sizeof *s.image);
    ash_mem_free(a, s.first, nodes, sizeof *s.first);
    ash_mem_free(a, s.next, nodes, sizeof *s.next);
    ash_arena_free(&s.scratch);
    if (status == ASH_OK)
        *out = s.to;
    else
        ash_graph_destroy(s.to);
    return status;
}
