/* SPDX-License-Identifier: MIT */
/* The nodes of a graph message or of a function's, each after those whose results it uses. ONNX demands
 * this order of the file, and converters break it (onnxruntime reads such files), so what is out of order
 * is sorted: depth first, in the order of the file otherwise. A node also uses what the graphs in its
 * attributes name. Nodes in a cycle stay where they are; importing them reports the name that is not
 * defined. */
#include "import.h"

/* Fields of GraphProto, NodeProto, AttributeProto, TensorProto and ValueInfoProto. */
enum {
    GRAPH_INITIALIZER = 5,
    GRAPH_INPUT = 11,
    GRAPH_OUTPUT = 12,
    TENSOR_NAME = 8,
    INFO_NAME = 1,
    NODE_INPUT = 1,
    NODE_OUTPUT = 2,
    NODE_ATTR = 5,
    ATTR_GRAPH = 6,
    ATTR_GRAPHS = 11
};

/* The names that a graph in an attribute defines itself, below those of the graphs around it. */
typedef struct inner {
    const struct inner *outer;
    ash_strmap names;
} inner;

typedef struct sorter {
    const ash_allocator *allocator;
    const inner *inside;     /* the graph in an attribute that is being read, or NULL */
    ash_strmap makers;       /* name of a result -> its node + 1 */
    ASH_VEC(ash_wire) nodes; /* in the order of the file */
    ASH_VEC(uint32_t) users; /* nodes that are used, by node that uses them */
    ASH_VEC(size_t) first;   /* where each node's part of `users` begins */
    bool sorted;             /* no node uses a later one */
} sorter;

static ash_status no_memory(const ash_wire *wire) {
    return ASH_NO_MEMORY(wire->diag);
}

static ash_status add_makers(sorter *s, ash_wire node, size_t index) {
    for (;;) {
        ash_field field;
        bool more;
        uint64_t other;
        ash_span name;
        ASH_TRY(ash_wire__next(&node, &field, &more));
        if (!more) return ASH_OK;
        if (field.number != NODE_OUTPUT) continue;
        ASH_TRY(ash_wire__bytes(&node, &field, &name));
        if (name.len == 0 || ash_strmap_get(&s->makers, (const char *)name.at, name.len, &other)) continue;
        if (!ash_strmap_put(&s->makers, (const char *)name.at, name.len, index + 1))
            return no_memory(&node);
    }
}

static ash_status collect(sorter *s, ash_wire graph, uint32_t number) {
    for (;;) {
        ash_field field;
        ash_wire node;
        bool more;
        ASH_TRY(ash_wire__next(&graph, &field, &more));
        if (!more) return ASH_OK;
        if (field.number != number) continue;
        ASH_TRY(ash_wire__enter(&graph, &field, &node));
        ASH_TRY(add_makers(s, node, s->nodes.len));
        if (!ash_vec_push(s->allocator, &s->nodes, node)) return no_memory(&graph);
    }
}

/* The node `index` uses the value of this name. */
static ash_status use(sorter *s, const ash_wire *wire, ash_span name, size_t index) {
    uint64_t maker;
    for (const inner *in = s->inside; in && name.len; in = in->outer)
        if (ash_strmap_get(&in->names, (const char *)name.at, name.len, &maker)) return ASH_OK;
    if (name.len == 0 || !ash_strmap_get(&s->makers, (const char *)name.at, name.len, &maker) ||
        maker == index + 1)
        return ASH_OK;
    if (maker > index + 1) s->sorted = false;
    return ash_vec_push(s->allocator, &s->users, (uint32_t)(maker - 1)) ? ASH_OK : no_memory(wire);
}

static ash_status uses_of_node(sorter *s, ash_wire node, size_t index);

/* Adds the strings in a message's fields of this number. */
static ash_status add_names(inner *in, ash_wire message, uint32_t number) {
    for (;;) {
        ash_field field;
        ash_span name;
        bool more;
        ASH_TRY(ash_wire__next(&message, &field, &more));
        if (!more) return ASH_OK;
        if (field.number != number) continue;
        ASH_TRY(ash_wire__bytes(&message, &field, &name));
        if (name.len && !ash_strmap_put(&in->names, (const char *)name.at, name.len, 1))
            return no_memory(&message);
    }
}

/* Inputs, initializers and results of nodes. */
static ash_status names_of_graph(inner *in, ash_wire graph) {
    for (;;) {
        ash_field field;
        ash_wire sub;
        bool more;
        ASH_TRY(ash_wire__next(&graph, &field, &more));
        if (!more) return ASH_OK;
        uint32_t number = field.number == ONNX_GRAPH_NODE     ? NODE_OUTPUT
                          : field.number == GRAPH_INPUT       ? INFO_NAME
                          : field.number == GRAPH_INITIALIZER ? TENSOR_NAME
                                                              : 0;
        if (!number) continue;
        ASH_TRY(ash_wire__enter(&graph, &field, &sub));
        ASH_TRY(add_names(in, sub, number));
    }
}

static ash_status uses_below(sorter *s, ash_wire graph, size_t index) {
    for (;;) {
        ash_field field;
        ash_wire sub;
        bool more;
        ASH_TRY(ash_wire__next(&graph, &field, &more));
        if (!more) return ASH_OK;
        if (field.number != ONNX_GRAPH_NODE && field.number != GRAPH_OUTPUT) continue;
        ASH_TRY(ash_wire__enter(&graph, &field, &sub));
        if (field.number == ONNX_GRAPH_NODE) {
            ASH_TRY(uses_of_node(s, sub, index));
        } else {
            ash_onnx_info info;
            ASH_TRY(ash_onnx__info_read(sub, &info));
            ASH_TRY(use(s, &sub, info.name, index));
        }
    }
}

/* What a graph in an attribute uses of the graphs around it: names of operands of its nodes and of its
 * outputs that it does not define itself. */
static ash_status uses_of_graph(sorter *s, ash_wire graph, size_t index) {
    inner in = {.outer = s->inside};
    ash_strmap_init(&in.names, s->allocator);
    ash_status status = names_of_graph(&in, graph);
    s->inside = &in;
    if (status == ASH_OK) status = uses_below(s, graph, index);
    s->inside = in.outer;
    ash_strmap_free(&in.names);
    return status;
}

static ash_status uses_of_attr(sorter *s, ash_wire attr, size_t index) {
    for (;;) {
        ash_field field;
        ash_wire graph;
        bool more;
        ASH_TRY(ash_wire__next(&attr, &field, &more));
        if (!more) return ASH_OK;
        if (field.number != ATTR_GRAPH && field.number != ATTR_GRAPHS) continue;
        ASH_TRY(ash_wire__enter(&attr, &field, &graph));
        ASH_TRY(uses_of_graph(s, graph, index));
    }
}

static ash_status uses_of_node(sorter *s, ash_wire node, size_t index) {
    for (;;) {
        ash_field field;
        ash_wire attr;
        ash_span name;
        bool more;
        ASH_TRY(ash_wire__next(&node, &field, &more));
        if (!more) return ASH_OK;
        if (field.number == NODE_INPUT) {
            ASH_TRY(ash_wire__bytes(&node, &field, &name));
            ASH_TRY(use(s, &node, name, index));
        } else if (field.number == NODE_ATTR) {
            ASH_TRY(ash_wire__enter(&node, &field, &attr));
            ASH_TRY(uses_of_attr(s, attr, index));
        }
    }
}

/* Depth first from each node in the order of the file. `next` is how far a node's uses have been followed,
 * and one past its end when the node is in `out`. */
static void sort(const sorter *s, size_t *next, uint32_t *stack, ash_wire *out) {
    size_t n = s->nodes.len, done = 0;
    memcpy(next, s->first.at, n * sizeof *next);
    for (size_t root = 0; root < n; root++) {
        size_t depth = 0;
        if (next[root] == s->first.at[root]) stack[depth++] = (uint32_t)root;
        while (depth) {
            uint32_t top = stack[depth - 1];
            if (next[top] < s->first.at[top + 1]) {
                uint32_t used = s->users.at[next[top]++];
                /* untouched: neither in `out` nor on the stack, where it would close a cycle */
                if (next[used] == s->first.at[used]) stack[depth++] = used;
            } else {
                next[top] = SIZE_MAX;
                out[done++] = s->nodes.at[top];
                depth--;
            }
        }
    }
}

static ash_status run(sorter *s, ash_wire graph, uint32_t number, ash_arena *arena, const ash_wire **nodes,
                      size_t *count) {
    ASH_TRY(collect(s, graph, number));
    size_t n = s->nodes.len;
    if (!ash_vec_reserve(s->allocator, &s->first, n + 1)) return no_memory(&graph);
    for (size_t i = 0; i < n; i++) {
        s->first.at[i] = s->users.len;
        ASH_TRY(uses_of_node(s, s->nodes.at[i], i));
    }
    s->first.at[n] = s->users.len;
    ash_wire *out = ash_arena_copy(arena, s->nodes.at, n, sizeof *out);
    if (!out) return no_memory(&graph);
    *nodes = out, *count = n;
    if (s->sorted) return ASH_OK;
    size_t *next = ash_arena_alloc(arena, n, sizeof *next);
    uint32_t *stack = ash_arena_alloc(arena, n, sizeof *stack);
    if (!next || !stack) return no_memory(&graph);
    sort(s, next, stack, out);
    return ASH_OK;
}

ash_status ash_import__sorted(const ash_allocator *allocator, ash_wire graph, uint32_t number,
                              ash_arena *arena, const ash_wire **nodes, size_t *count) {
    sorter s = {.allocator = allocator, .sorted = true};
    ash_strmap_init(&s.makers, allocator);
    ash_status status = run(&s, graph, number, arena, nodes, count);
    ash_strmap_free(&s.makers);
    ash_vec_free(allocator, &s.nodes);
    ash_vec_free(allocator, &s.users);
    ash_vec_free(allocator, &s.first);
    return status;
}
