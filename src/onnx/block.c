/* SPDX-License-Identifier: MIT */
/* Nodes that may be imported many times: the bodies of control operators, and functions.
 *
 * What a file says of them in a few bytes, a loop repeats a thousand times, and loops nest. So each is read
 * once: its nodes are sorted and kept with their attributes, its initializers are values of the import
 * from the first time on. A repetition costs what its nodes lower to, and that is what the limits count. */
#include "import.h"

enum { MAX_NESTING = 8 /* graphs inside graphs */ };

/* Fields of GraphProto. */
enum { GRAPH_INITIALIZER = 5, GRAPH_INPUT = 11, GRAPH_OUTPUT = 12, GRAPH_SPARSE = 15 };

struct ash_import_block {
    const ash_onnx_node *nodes; /* each after those whose results it uses */
    size_t n_nodes, n_ins, n_outs;
    const ash_span *ins, *outs; /* names; none in a function, which has them elsewhere */
    const size_t *given_back;   /* per output the input that it is, through Identity alone, or n_ins */
    ash_strmap constants;       /* names of initializers -> indices of ash_import.values */
    ash_strmap makers;          /* of a body: names of results -> numbers of nodes */
};

/* --- reading -------------------------------------------------------------------------------------- */

static ash_status read_nodes(ash_import *im, ash_wire message, uint32_t number, ash_import_block *block) {
    ash_arena room;
    const ash_wire *wires;
    ash_onnx_node *nodes = NULL;
    size_t count = 0;
    ash_arena_init(&room, im->allocator);
    ash_status status = ash_import__sorted(im->allocator, message, number, &room, &wires, &count);
    if (status == ASH_OK && !(nodes = ash_arena_alloc(&im->arena, count, sizeof *nodes)))
        status = ASH_NO_MEMORY(&im->diag);
    for (size_t i = 0; i < count && status == ASH_OK; i++)
        status = ash_onnx__node_read(wires[i], &im->arena, &nodes[i]);
    ash_arena_free(&room);
    block->nodes = nodes, block->n_nodes = count;
    return status;
}

/* The names of the inputs or outputs. */
static ash_status read_names(ash_import *im, ash_wire graph, uint32_t number, const ash_span **out,
                             size_t *count) {
    ash_wire again = graph, message;
    bool more = true;
    for (*count = 0;; ++*count) {
        ASH_TRY(ash_wire__enter_next(&again, number, &message, &more));
        if (!more) break;
    }
    ash_span *names = ash_arena_alloc(&im->arena, *count, sizeof *names);
    if (!names) return ASH_NO_MEMORY(&im->diag);
    for (size_t i = 0; i < *count; i++) {
        ash_onnx_info info;
        ASH_TRY(ash_wire__enter_next(&graph, number, &message, &more));
        ASH_TRY(ash_onnx__info_read(message, &info));
        names[i] = info.name;
    }
    *out = names;
    return ASH_OK;
}

static ash_status read_initializers(ash_import *im, ash_wire graph, ash_import_block *block) {
    for (;;) {
        ash_wire message;
        bool more;
        uint64_t other;
        ASH_TRY(ash_wire__enter_next(&graph, GRAPH_INITIALIZER, &message, &more));
        if (!more) return ASH_OK;
        ash_onnx_tensor *tensor = ash_arena_alloc(&im->arena, 1, sizeof *tensor);
        if (!tensor) return ASH_NO_MEMORY(&im->diag);
        ASH_TRY(ash_onnx__tensor_read(message, tensor));
        const char *name = (const char *)tensor->name.at;
        ASH_FAIL_IF(!tensor->name.len, &im->diag, ASH_ERROR_FORMAT, "a value without a name");
        ASH_FAIL_IF(ash_strmap_get(&block->constants, name, tensor->name.len, &other), &im->diag,
                    ASH_ERROR_FORMAT, "the name '%.*s' is defined twice", ASH_SPAN_ARG(tensor->name));
        const ash_import_value value = ash_import__of_tensor(tensor);
        if (!ash_strmap_put(&block->constants, name, tensor->name.len, im->values.len) ||
            !ash_vec_push(im->allocator, &im->values, value))
            return ASH_NO_MEMORY(&im->diag);
    }
}

static bool is_identity(ash_import *im, const ash_onnx_node *node) {
    return ash_span_is(node->op, "Identity") &&
           (!node->domain.len || ash_span_is(node->domain, "ai.onnx")) && node->n_ins == 1 &&
           node->n_outs == 1 && !ash_import__given(im, node) && !ash_import__function(im, node);
}

static ash_status find_makers(ash_import *im, ash_import_block *block) {
    for (size_t i = 0; i < block->n_nodes; i++)
        for (size_t k = 0; k < block->nodes[i].n_outs; k++) {
            const ash_span name = block->nodes[i].outs[k];
            if (name.len && !ash_strmap_put(&block->makers, (const char *)name.at, name.len, i))
                return ASH_NO_MEMORY(&im->diag);
        }
    return ASH_OK;
}

/* `names` is empty, and has in the end the number of the input that a name stands for. */
static ash_status find_given_back(ash_import *im, ash_import_block *block, ash_strmap *names) {
    size_t *found = ash_arena_alloc(&im->arena, block->n_outs, sizeof *found);
    bool room = found;
    for (size_t k = 0; k < block->n_ins && room; k++)
        room = ash_strmap_put(names, (const char *)block->ins[k].at, block->ins[k].len, k);
    for (size_t i = 0; i < block->n_nodes && room; i++) {
        const ash_onnx_node *node = &block->nodes[i];
        uint64_t from;
        if (!is_identity(im, node) ||
            !ash_strmap_get(names, (const char *)node->ins[0].at, node->ins[0].len, &from))
            continue; /* nodes are sorted: what it hands on is no input */
        room = ash_strmap_put(names, (const char *)node->outs[0].at, node->outs[0].len, from);
    }
    if (!room) return ASH_NO_MEMORY(&im->diag);
    for (size_t k = 0; k < block->n_outs; k++) {
        uint64_t from;
        const bool is_input =
            ash_strmap_get(names, (const char *)block->outs[k].at, block->outs[k].len, &from);
        found[k] = is_input ? from : block->n_ins;
    }
    block->given_back = found;
    return ASH_OK;
}

static ash_status read_graph(ash_import *im, ash_wire graph, ash_import_block *block) {
    ash_wire sparse, rest = graph;
    bool more;
    ASH_TRY(ash_wire__enter_next(&rest, GRAPH_SPARSE, &sparse, &more));
    if (more)
        return ash_fail_at(&im->diag, ASH_ERROR_UNSUPPORTED, ash_wire__offset(&sparse),
                           "sparse initializers");
    ASH_TRY(read_names(im, graph, GRAPH_INPUT, &block->ins, &block->n_ins));
    ASH_TRY(read_names(im, graph, GRAPH_OUTPUT, &block->outs, &block->n_outs));
    ASH_TRY(read_initializers(im, graph, block));
    ASH_TRY(read_nodes(im, graph, ONNX_GRAPH_NODE, block));
    ASH_TRY(find_makers(im, block));
    ash_strmap names;
    ash_strmap_init(&names, im->allocator);
    const ash_status status = find_given_back(im, block, &names);
    ash_strmap_free(&names);
    return status;
}

/* The block of a message; NULL after a failure. Messages are told apart by where they lie. */
static const ash_import_block *block_of(ash_import *im, ash_wire message, bool function) {
    uint64_t known;
    if (!ash_import__ok(im)) return NULL;
    if (ash_map_get(&im->block_of, (uintptr_t)message.at, &known)) return im->blocks.at[known];
    ash_import_block *block = ash_arena_alloc(&im->arena, 1, sizeof *block);
    if (!block || !ash_vec_push(im->allocator, &im->blocks, block)) {
        im->status = ASH_NO_MEMORY(&im->diag);
        return NULL;
    }
    ash_strmap_init(&block->constants, im->allocator);
    ash_strmap_init(&block->makers, im->allocator);
    im->status =
        function ? read_nodes(im, message, ONNX_FUNCTION_NODE, block) : read_graph(im, message, block);
    if (ash_import__ok(im) && !ash_map_put(&im->block_of, (uintptr_t)message.at, im->blocks.len - 1))
        im->status = ASH_NO_MEMORY(&im->diag);
    return ash_import__ok(im) ? block : NULL;
}

void ash_import__free_blocks(ash_import *im) {
    for (size_t i = 0; i < im->blocks.len; i++) {
        ash_strmap_free(&im->blocks.at[i]->constants);
        ash_strmap_free(&im->blocks.at[i]->makers);
    }
    ash_vec_free(im->allocator, &im->blocks);
    ash_map_free(&im->block_of);
}

/* --- importing ------------------------------------------------------------------------------------ */

static void import_block(ash_import *im, const ash_import_block *block) {
    for (size_t i = 0; i < block->n_nodes && ash_import__ok(im); i++)
        ash_import__node(im, &block->nodes[i], i);
}

ash_status ash_import__function_nodes(ash_import *im, ash_wire function) {
    const ash_import_block *block = block_of(im, function, true);
    if (block) import_block(im, block);
    return im->status;
}

static ash_status body(ash_import *im, const ash_import_block *block, const size_t *ins, size_t n_ins,
                       size_t *outs, size_t n_outs) {
    ASH_FAIL_IF(block->n_ins != n_ins, &im->diag, ASH_ERROR_FORMAT, "the body has %zu inputs, not %zu",
                block->n_ins, n_ins);
    ASH_FAIL_IF(block->n_outs != n_outs, &im->diag, ASH_ERROR_FORMAT, "the body has %zu outputs, not %zu",
                block->n_outs, n_outs);
    for (size_t k = 0; k < n_ins; k++) ash_import__alias(im, block->ins[k], ins[k]);
    import_block(im, block);
    ASH_TRY(im->status);
    for (size_t k = 0; k < n_outs; k++) {
        outs[k] = ash_import__find_name(im, block->outs[k]);
        ASH_FAIL_IF(outs[k] == SIZE_MAX, &im->diag, ASH_ERROR_FORMAT,
                    "no node computes the body's output '%.*s'", ASH_SPAN_ARG(block->outs[k]));
    }
    return ASH_OK;
}

static ash_status nested_body(ash_import *im, ash_wire graph, ash_import_gate *gate, const size_t *ins,
                              size_t n_ins, size_t *outs, size_t n_outs) {
    const ash_import_block *block = block_of(im, graph, false);
    if (!block) return im->status;
    if (im->nesting == MAX_NESTING) {
        ash_import__fail(im, ASH_ERROR_UNSUPPORTED, "graphs nest more than %d deep", MAX_NESTING);
        return im->status;
    }
    ash_import_scope scope = {.gate = gate, .parent = im->scope, .constants = &block->constants};
    ash_strmap_init(&scope.names, im->allocator);
    im->scope = &scope;
    im->nesting++;
    im->status = body(im, block, ins, n_ins, outs, n_outs);
    im->nesting--;
    im->scope = scope.parent;
    ash_strmap_free(&scope.names);
    if (im->node) ash_import__name_nodes(im);
    return im->status;
}

ash_status ash_import__body(ash_import *im, ash_wire graph, const size_t *ins, size_t n_ins, size_t *outs,
                            size_t n_outs) {
    return nested_body(im, graph, NULL, ins, n_ins, outs, n_outs);
}

bool ash_import__gives_back(ash_import *im, ash_wire graph, size_t in, size_t out) {
    const ash_import_block *block = block_of(im, graph, false);
    return block && out < block->n_outs && in < block->n_ins && block->given_back[out] == in;
}

ash_import_origin ash_import__origin(ash_import *im, ash_wire graph, ash_span name) {
    const ash_import_block *block = block_of(im, graph, false);
    ash_import_origin out = {.input = SIZE_MAX, .entry = SIZE_MAX};
    const char *at = (const char *)name.at;
    uint64_t found;
    if (!block || !name.len) return out;
    if (ash_strmap_get(&block->makers, at, name.len, &found)) {
        const ash_onnx_node *node = &block->nodes[found];
        out.known = true;
        if (!ash_import__given(im, node) && !ash_import__function(im, node)) out.node = node;
    } else if (ash_strmap_get(&block->constants, at, name.len, &found)) {
        out.known = true;
        out.entry = found;
    } else {
        for (size_t k = 0; k < block->n_ins && !out.known; k++) {
            out.known = ash_span_equal(block->ins[k], name);
            if (out.known) out.input = k;
        }
    }
    return out;
}

ash_span ash_import__out_name(ash_import *im, ash_wire graph, size_t k) {
    const ash_import_block *block = block_of(im, graph, false);
    return block && k < block->n_outs ? block->outs[k] : (ash_span){0};
}

ash_status ash_import__gated_body(ash_import *im, ash_wire graph, ash_import_gate *gate, size_t *outs,
                                  size_t n_outs) {
    return nested_body(im, graph, gate, NULL, 0, outs, n_outs);
}

void ash_import__free_gate(ash_import *im, ash_import_gate *gate) {
    ash_vec_free(im->allocator, &gate->arguments);
    ash_vec_free(im->allocator, &gate->outer);
}
