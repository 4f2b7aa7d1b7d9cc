/* SPDX-License-Identifier: MIT */
/* From a graph to a model file. The weights come first, so that their alignment does not depend on the
 * nodes; then the nodes in the graph's order, each as one or a few ONNX operators (write_ops.c), those of a
 * loop's body in the body of its operator (write_loop.c), then inputs and outputs. What no output needs is
 * left out, but for parameters. */
#include "write.h"

#include <stdio.h>

#include "base/sized.h"
#include "base/text.h"
#include "model.h"

enum { OPSET = 18, IR_VERSION = 8, ALIGN_FROM = 64, ALIGN = 64, EXTERNAL_MIN = 1024 };

/* Fields of ModelProto, GraphProto, NodeProto, AttributeProto. */
enum { MODEL_IR = 1, MODEL_PRODUCER = 2, MODEL_GRAPH = 7, MODEL_OPSET = 8 };
enum { GRAPH_NODE = 1, GRAPH_NAME = 2, GRAPH_INITIALIZER = 5, GRAPH_INPUT = 11, GRAPH_OUTPUT = 12 };
enum { NODE_INPUT = 1, NODE_OUTPUT = 2, NODE_NAME = 3, NODE_OP = 4, NODE_ATTRIBUTE = 5 };
enum { ATTR_NAME = 1, ATTR_I = 3, ATTR_S = 4, ATTR_G = 6, ATTR_INTS = 8, ATTR_TYPE = 20 };

void ash_writer__fail(ash_writer *w, ash_status code, const char *fmt, ...) {
    if (w->status != ASH_OK) return;
    char message[sizeof w->diag->message];
    va_list args;
    va_start(args, fmt);
    vsnprintf(message, sizeof message, fmt, args);
    va_end(args);
    w->status = ash_fail(w->diag, code, "%s", message);
}

/* --- names ---------------------------------------------------------------------------------------- */

static const char *keep(ash_writer *w, const char *name) {
    const char *copy = ash_arena_strdup(&w->names, name);
    if (!copy) ash_writer__fail(w, ASH_ERROR_OUT_OF_MEMORY, "out of memory");
    return copy ? copy : "";
}

/* A name that neither the graph's inputs, parameters and outputs have. */
static const char *unique(ash_writer *w, const char *prefix, size_t number) {
    char name[64];
    int n = snprintf(name, sizeof name, "%s%zu", prefix, number);
    uint64_t taken;
    while (n < (int)sizeof name - 1 && (ash_strmap_get(&w->graph->names, name, (size_t)n, &taken) ||
                                        ash_strmap_get(&w->graph->output_names, name, (size_t)n, &taken)))
        name[n++] = '_', name[n] = 0;
    return keep(w, name);
}

const char *ash_writer__temporary(ash_writer *w) {
    return unique(w, "t", w->temporaries++);
}

/* A branch takes what a loop would begin with and is given as it is: its arguments are other names of that.
 * Loops that are further out come later. */
static void name_arguments(ash_writer *w) {
    const ash_graph *g = w->graph;
    for (size_t n = g->nodes.len; n-- > 0;) {
        const ash_node *node = &g->nodes.at[n];
        if (node->op != ASH_OP_LOOP) continue;
        ash_loop_parts p = ash_node__loop(node);
        uint32_t first_given = p.go - p.given;
        for (uint32_t k = 0; k < p.given; k++)
            w->values[node->ins[first_given + k]] = w->values[node->ins[p.gives + k]];
        for (uint32_t k = 0; k < p.carried && ash_writer__is_branch(node); k++)
            w->values[node->ins[ASH_LOOP_CARRIED + k]] = w->values[node->ins[p.init + k]];
    }
}

/* A node's value that is an output is called as the first such output; inputs and parameters keep their
 * names. In a graph an output may be called as an input that it is not, in a file one name is one value. */
static void name_values(ash_writer *w) {
    const ash_graph *g = w->graph;
    uint64_t other;
    for (size_t i = 0; i < g->outputs.len; i++) {
        const char *name = g->outputs.at[i].name;
        if (ash_strmap_get(&g->names, name, strlen(name), &other) && other != g->outputs.at[i].value)
            ash_writer__fail(w, ASH_ERROR_UNSUPPORTED,
                             "output \"%.60s\" is called as an input or parameter that is another value, "
                             "and ONNX has one value for a name",
                             name);
    }
    for (size_t v = 0; v < g->values.len; v++) w->values[v] = g->values.at[v].name;
    for (size_t i = 0; i < g->outputs.len; i++) {
        ash_value v = g->outputs.at[i].value;
        if (!w->values[v] && g->values.at[v].kind == ASH_VALUE_NODE) w->values[v] = g->outputs.at[i].name;
    }
    for (size_t v = 0; v < g->values.len; v++)
        if (!w->values[v]) w->values[v] = unique(w, g->values.at[v].kind == ASH_VALUE_NODE ? "v" : "c", v);
    name_arguments(w);
}

/* --- what is needed ------------------------------------------------------------------------------- */

static void need(void *user, uint32_t var, ash_value settler) {
    (void)var;
    ((ash_writer *)user)->used[settler] = true;
}

/* A convolution of bytes needs these, and not the numbers that they are cast to. */
static bool need_bytes(ash_writer *w, const ash_node *node) {
    ash_value operands[4];
    if (!ash_writer__bytes(w->graph, node, operands)) return false;
    for (size_t k = 0; k < ASH_COUNT(operands); k++)
        if (operands[k] != ASH_NO_VALUE) w->used[operands[k]] = true;
    return true;
}

/* A loop's arguments are needed where its body asks for them. Of what an iteration makes, only what is
 * stacked for nobody is needless, and whether to go on behind the only one. */
static void need_operands(ash_writer *w, const ash_node *node) {
    bool loop = node->op == ASH_OP_LOOP;
    ash_loop_parts p = loop ? ash_node__loop(node) : (ash_loop_parts){0};
    for (uint32_t k = p.go; k < node->n_ins; k++) {
        bool stacked = loop && k >= p.ys, goes_on = loop && p.until && k == p.next_go;
        if (stacked && !w->used[node->out + p.stacks + (k - p.ys)]) continue;
        if (!goes_on || !ash_writer__is_branch(node)) w->used[node->ins[k]] = true;
    }
}

static bool is_needed(const ash_writer *w, const ash_node *node) {
    for (unsigned k = 0; k < node->n_outs; k++)
        if (w->used[node->out + k]) return true;
    return false;
}

/* Goes from the outputs back to the leaves, and makes lists of the nodes of each body. */
static ash_status find_needed(ash_writer *w) {
    const ash_graph *g = w->graph;
    for (size_t i = 0; i < g->outputs.len; i++) w->used[g->outputs.at[i].value] = true;
    for (size_t n = 0; n < g->nodes.len; n++) w->first[n] = ASH_WRITER_OUTSIDE;
    ASH_TRY(ash_graph__bodies(g, w->loop, w->diag));
    for (uint32_t n = (uint32_t)g->nodes.len; n-- > 0;) {
        const ash_node *node = &g->nodes.at[n];
        uint32_t loop = w->loop[n];
        if (loop != ASH_WRITER_OUTSIDE) w->next[n] = w->first[loop], w->first[loop] = n;
        if (!is_needed(w, node)) continue;
        if (!need_bytes(w, node)) need_operands(w, node);
        ash_graph__each_settler(g, node, need, w);
    }
    return ASH_OK;
}

/* --- nodes ---------------------------------------------------------------------------------------- */

typedef struct named_node {
    const char *name; /* or NULL */
    const ash_writer_node *node;
} named_node;

static void attr_body(ash_wire_out *out, const void *data) {
    const ash_writer_attr *attr = data;
    ash_wire_out__text(out, ATTR_NAME, attr->name);
    if (attr->text)
        ash_wire_out__text(out, ATTR_S, attr->text);
    else if (attr->graph)
        ash_wire_out__bytes(out, ATTR_G, attr->graph->at, attr->graph->len);
    else if (!attr->list)
        ash_wire_out__int(out, ATTR_I, attr->i);
    for (size_t i = 0; i < attr->count && attr->list; i++) ash_wire_out__int(out, ATTR_INTS, attr->list[i]);
    ash_wire_out__int(out, ATTR_TYPE,
                      attr->text    ? ONNX_ATTR_STRING
                      : attr->graph ? ONNX_ATTR_GRAPH
                      : attr->list  ? ONNX_ATTR_INTS
                                    : ONNX_ATTR_INT);
}

static void node_body(ash_wire_out *out, const void *data) {
    const char *name = ((const named_node *)data)->name;
    const ash_writer_node *node = ((const named_node *)data)->node;
    for (size_t i = 0; i < node->n_ins; i++) ash_wire_out__text(out, NODE_INPUT, node->ins[i]);
    for (size_t i = 0; i < node->n_outs; i++) ash_wire_out__text(out, NODE_OUTPUT, node->outs[i]);
    if (name) ash_wire_out__text(out, NODE_NAME, name);
    ash_wire_out__text(out, NODE_OP, node->op);
    for (size_t i = 0; i < node->n_attrs; i++)
        ash_wire_out__message(out, NODE_ATTRIBUTE, attr_body, &node->attrs[i]);
}

/* Names of nodes must differ in a file, and a graph does not promise that: a running number is added. */
static const char *node_label(ash_writer *w) {
    ash_text text;
    if (!w->node_name) return NULL;
    ash_text_init(&text, w->allocator);
    ash_text_add(&text, "%s/%zu", w->node_name, w->nodes++);
    const char *label = text.failed ? NULL : ash_arena_strndup(&w->names, text.at, text.len);
    ash_text_free(&text);
    if (!label) ash_writer__fail(w, ASH_ERROR_OUT_OF_MEMORY, "out of memory");
    return label;
}

/* Where nodes, inputs and outputs go. */
static ash_wire_out *present(ash_writer *w) {
    return w->body ? &w->body->out : &w->out;
}

void ash_writer__node(ash_writer *w, const ash_writer_node *node) {
    const named_node data = {node_label(w), node};
    ash_wire_out__message(present(w), GRAPH_NODE, node_body, &data);
}

const char *ash_writer__op(ash_writer *w, const char *name, const char *op, const char *const *ins,
                           size_t n_ins, const ash_writer_attr *attrs, size_t n_attrs) {
    if (!name) name = ash_writer__temporary(w);
    const ash_writer_node node = {.op = op,
                                  .ins = ins,
                                  .n_ins = n_ins,
                                  .outs = &name,
                                  .n_outs = 1,
                                  .attrs = attrs,
                                  .n_attrs = n_attrs};
    ash_writer__node(w, &node);
    return name;
}

/* --- constants ------------------------------------------------------------------------------------ */

const char *ash_writer__constant(ash_writer *w, const char *name, const ash_type *type, const void *data,
                                 size_t size) {
    ash_onnx_tensor_out tensor = {.name = name ? name : ash_writer__temporary(w),
                                  .type = type,
                                  .data = data,
                                  .size = size,
                                  .align = size >= ALIGN_FROM ? ALIGN : 1};
    if (w->external_name && size >= w->external_min) {
        uint64_t gap = ash_align_up(w->external.position, ALIGN) - w->external.position;
        if (w->external.sink) {
            ash_sink_fill(w->external.sink, 0, (size_t)gap);
            ash_sink_write(w->external.sink, data, size);
        }
        w->external.position += gap;
        tensor.external = w->external_name;
        tensor.offset = w->external.position;
        w->external.position += size;
    }
    ash_wire_out__tensor(&w->out, GRAPH_INITIALIZER, &tensor);
    return tensor.name;
}

const char *ash_writer__ints(ash_writer *w, const int64_t *list, size_t n) {
    const ash_type type = {.dtype = ASH_I64, .rank = 1, .dims = {(ash_dim)n}};
    return ash_writer__constant(w, NULL, &type, list, n * sizeof *list);
}

const char *ash_writer__int(ash_writer *w, const char *name, int64_t number) {
    const ash_type scalar = {.dtype = ASH_I64};
    return ash_writer__constant(w, name, &scalar, &number, sizeof number);
}

/* --- inputs and outputs --------------------------------------------------------------------------- */

typedef struct info_data {
    const char *name;
    const ash_type *type;
    ash_writer *writer;
} info_data;

/* TensorShapeProto.Dimension: dim_value = 1, dim_param = 2. */
static void dim_body(ash_wire_out *out, const void *data) {
    const info_data *info = data;
    ash_dim dim = info->type->dims[0];
    if (ash_dim_is_const(dim)) {
        ash_wire_out__int(out, 1, dim);
        return;
    }
    ash_text text;
    ash_text_init(&text, info->writer->allocator);
    ash_dims_print(info->writer->graph->dims, dim, &text);
    if (text.failed) ash_writer__fail(info->writer, ASH_ERROR_OUT_OF_MEMORY, "out of memory");
    ash_wire_out__bytes(out, 2, text.len ? text.at : "?", text.len ? text.len : 1);
    ash_text_free(&text);
}

static void shape_body(ash_wire_out *out, const void *data) {
    const info_data *info = data;
    for (unsigned i = 0; i < info->type->rank; i++) {
        ash_type one = {.rank = 1, .dims = {info->type->dims[i]}};
        ash_wire_out__message(out, 1, dim_body, &(info_data){NULL, &one, info->writer});
    }
}

static void tensor_type_body(ash_wire_out *out, const void *data) {
    const info_data *info = data;
    ash_wire_out__int(out, 1, ash_onnx__dtype_of(info->type->dtype));
    ash_wire_out__message(out, 2, shape_body, data);
}

static void type_body(ash_wire_out *out, const void *data) {
    ash_wire_out__message(out, 1, tensor_type_body, data);
}

static void info_body(ash_wire_out *out, const void *data) {
    const info_data *info = data;
    ash_wire_out__text(out, 1, info->name);
    ash_wire_out__message(out, 2, type_body, data);
}

static void write_info(ash_writer *w, uint32_t field, const char *name, const ash_type *type) {
    ash_wire_out__message(present(w), field, info_body, &(info_data){name, type, w});
}

void ash_writer__input(ash_writer *w, const char *name, const ash_type *type) {
    write_info(w, GRAPH_INPUT, name, type);
}

void ash_writer__output(ash_writer *w, const char *name, const ash_type *type) {
    write_info(w, GRAPH_OUTPUT, name, type);
}

/* --- bodies --------------------------------------------------------------------------------------- */

void ash_writer__begin(ash_writer *w, ash_writer_body *body) {
    *body = (ash_writer_body){.around = w->body};
    ash_text_init(&body->bytes, w->allocator);
    body->out.text = &body->bytes;
    w->body = body;
    ash_wire_out__text(&body->out, GRAPH_NAME, "body");
}

void ash_writer__end(ash_writer *w) {
    if (w->body->bytes.failed) ash_writer__fail(w, ASH_ERROR_OUT_OF_MEMORY, "out of memory");
    w->body = w->body->around;
}

/* --- the graph and the model ---------------------------------------------------------------------- */

static void write_node(ash_writer *w, const ash_node *node) {
    if (node->op == ASH_OP_ARGUMENT || !is_needed(w, node)) return;
    const char *outer = w->node_name;
    w->node_name = node->name;
    ash_writer__core(w, node);
    w->node_name = outer;
    if (w->status != ASH_OK)
        ash_diag__add_node(w->diag, node->name ? node->name : w->values[node->out], ash_op_name(node->op),
                           ASH_NO_OFFSET);
}

void ash_writer__nodes(ash_writer *w, uint32_t loop) {
    const ash_graph *g = w->graph;
    bool outside = loop == ASH_WRITER_OUTSIDE;
    uint32_t n = outside ? 0 : w->first[loop];
    for (; n < g->nodes.len && w->status == ASH_OK; n = outside ? n + 1 : w->next[n])
        if (!outside || w->loop[n] == ASH_WRITER_OUTSIDE) write_node(w, &g->nodes.at[n]);
}

static void write_graph(ash_writer *w) {
    const ash_graph *g = w->graph;
    w->temporaries = w->nodes = 0;
    ash_map_free(&w->dim_names);
    ash_wire_out__text(&w->out, GRAPH_NAME, g->name && g->name[0] ? g->name : "graph");
    for (size_t v = 0; v < g->values.len; v++) {
        const ash_value_info *info = &g->values.at[v];
        if (info->blob && (info->name || w->used[v]))
            ash_writer__constant(w, w->values[v], &info->type, info->blob->data, info->blob->size);
    }
    for (size_t i = 0; i < g->inputs.len; i++) {
        ash_value input = g->inputs.at[i];
        ash_writer__input(w, w->values[input], ash_graph__type(g, input));
    }
    ash_writer__nodes(w, ASH_WRITER_OUTSIDE);
    for (size_t i = 0; i < g->outputs.len; i++) {
        ash_output output = g->outputs.at[i];
        if (strcmp(w->values[output.value], output.name) != 0)
            ash_writer__op(w, output.name, "Identity", &w->values[output.value], 1, NULL, 0);
        ash_writer__output(w, output.name, ash_graph__type(g, output.value));
    }
}

/* OperatorSetIdProto: version = 2. */
static void opset_body(ash_wire_out *out, const void *data) {
    (void)data;
    ash_wire_out__int(out, 2, OPSET);
}

static void write_head(ash_writer *w, uint64_t graph_size) {
    ash_wire_out__int(&w->out, MODEL_IR, IR_VERSION);
    ash_wire_out__text(&w->out, MODEL_PRODUCER, "ashlar");
    ash_wire_out__message(&w->out, MODEL_OPSET, opset_body, NULL);
    ash_wire_out__head(&w->out, MODEL_GRAPH, graph_size);
}

/* Bytes of the graph message. They depend on where it begins, because data are aligned, and where it begins
 * depends on the digits of its length: so it is counted until that settles. */
static uint64_t measure(ash_writer *w) {
    uint64_t size = 0, before;
    do {
        before = size;
        w->out = w->external = (ash_wire_out){0};
        write_head(w, before);
        uint64_t start = w->out.position;
        write_graph(w);
        size = w->out.position - start;
    } while (size != before && w->status == ASH_OK);
    return size;
}

static ash_status write_model(ash_writer *w, uint64_t size, ash_sink *sink, ash_sink *external) {
    w->out = (ash_wire_out){.sink = sink};
    w->external = (ash_wire_out){.sink = external};
    write_head(w, size);
    uint64_t start = w->out.position;
    write_graph(w);
    if (w->status == ASH_OK && w->out.position - start != size)
        return ash_fail(w->diag, ASH_ERROR_INTERNAL,
                        "the model was counted as %llu bytes and written as %llu", (unsigned long long)size,
                        (unsigned long long)(w->out.position - start));
    return w->status;
}

/* The file of external data: beside the model, by a plain name. */
static ash_status open_external(const ash_allocator *a, const char *path, const char *name, ash_sink *sink,
                                ash_diag *diag) {
    ASH_FAIL_IF(!name[0] || strchr(name, '/') || strcmp(name, ".") == 0 || strcmp(name, "..") == 0, diag,
                ASH_ERROR_INVALID_ARGUMENT, "'%s' is no name for a file beside the model", name);
    const char *slash = strrchr(path, '/');
    ash_text full;
    ash_text_init(&full, a);
    ash_text_add_bytes(&full, path, slash ? (size_t)(slash - path) + 1 : 0);
    ash_text_add(&full, "%s", name);
    ash_status status = ash_text_status(&full, diag);
    if (status == ASH_OK) status = ash_sink_open(a, full.at, sink, diag);
    ash_text_free(&full);
    return status;
}

static ash_status check_graph(const ash_graph *graph, ash_diag *diag) {
    ASH_TRY(ash_graph_status(graph, diag));
    ASH_TRY(ash_graph__check_closed(graph, diag));
    ASH_TRY(ash_graph__check_files(graph, diag));
    ASH_FAIL_IF(graph->states.len, diag, ASH_ERROR_UNSUPPORTED,
                "ONNX has no state that is kept between executions, and the graph has \"%.100s\"",
                ash_graph__value(graph, graph->states.at[0].value)->name);
    for (size_t i = 0; i < ASH_MAX(graph->inputs.len, graph->outputs.len); i++) {
        ash_narrow in = ash_graph_input_narrow(graph, i),
                   narrow = in ? in : ash_graph_output_narrow(graph, i);
        ASH_FAIL_IF(narrow, diag, ASH_ERROR_UNSUPPORTED, "%s %zu is %s, and the graph has bytes for it",
                    in ? "input" : "output", i, ash_narrow_name(narrow));
    }
    return ASH_OK;
}

/* Everything up to the bytes of the graph's message; *w is to be closed whatever comes of it. */
static ash_status open_writer(ash_writer *w, const ash_graph *graph, const ash_onnx_write_options *options,
                              uint64_t *size, ash_diag *diag) {
    const ash_allocator *a = graph->allocator;
    *w = (ash_writer){.graph = graph, .allocator = a, .diag = diag};
    ash_arena_init(&w->names, a);
    ash_map_init(&w->dim_names, a);
    if (options->external) {
        w->external_name = options->external;
        w->external_min = options->external_min ? options->external_min : EXTERNAL_MIN;
    }
    ASH_TRY(check_graph(graph, diag));
    if (ash_graph__has_stacks(graph)) {
        ASH_TRY(ash_graph__gather_stacks(graph, &w->gathered, NULL, diag));
        w->graph = w->gathered;
    }
    ASH_TRY(ash_dims_copy(w->graph->dims, a, &w->dims, diag));
    size_t values = w->graph->values.len, nodes = w->graph->nodes.len;
    w->values = ash_mem_calloc(a, values, sizeof *w->values);
    w->used = ash_mem_calloc(a, values, sizeof *w->used);
    w->loop = ash_mem_alloc(a, nodes, sizeof *w->loop);
    w->first = ash_mem_alloc(a, nodes, sizeof *w->first);
    w->next = ash_mem_alloc(a, nodes, sizeof *w->next);
    if (!w->values || !w->used || !w->loop || !w->first || !w->next) return ASH_NO_MEMORY(diag);
    name_values(w);
    ASH_TRY(find_needed(w));
    *size = measure(w);
    return w->status;
}

static void close_writer(ash_writer *w) {
    size_t values = w->graph->values.len, nodes = w->graph->nodes.len;
    ash_mem_free(w->allocator, w->values, values, sizeof *w->values);
    ash_mem_free(w->allocator, w->used, values, sizeof *w->used);
    ash_mem_free(w->allocator, w->loop, nodes, sizeof *w->loop);
    ash_mem_free(w->allocator, w->first, nodes, sizeof *w->first);
    ash_mem_free(w->allocator, w->next, nodes, sizeof *w->next);
    ash_map_free(&w->dim_names);
    ash_arena_free(&w->names);
    ash_dims_release(w->dims);
    ash_graph_destroy(w->gathered);
}

static ash_status write_files(ash_writer *w, uint64_t size, const char *path) {
    ash_sink sink, external;
    ASH_TRY(ash_sink_open(w->allocator, path, &sink, w->diag));
    ash_status status =
        w->external_name ? open_external(w->allocator, path, w->external_name, &external, w->diag) : ASH_OK;
    if (status != ASH_OK) {
        ash_sink_close(&sink, false, NULL);
        return status;
    }
    status = write_model(w, size, &sink, w->external_name ? &external : NULL);
    if (w->external_name) {
        ash_status closed = ash_sink_close(&external, status == ASH_OK, w->diag);
        if (status == ASH_OK) status = closed;
    }
    ash_status closed = ash_sink_close(&sink, status == ASH_OK, w->diag);
    return status == ASH_OK ? closed : status;
}

ASH_SIZED(ash_onnx_write_options, external_min);

ash_status ash_onnx_write(const ash_graph *graph, const char *path, const ash_onnx_write_options *options,
                          ash_diag *diag) {
    ash_diag unused;
    ash_onnx_write_options own;
    ash_writer w;
    uint64_t size = 0;
    ASH_NEED(diag, graph, path);
    ASH_TRY(ASH_TAKE(ash_onnx_write_options, options, &own, diag));
    ash_status status = open_writer(&w, graph, &own, &size, diag ? diag : &unused);
    if (status == ASH_OK) status = write_files(&w, size, path);
    close_writer(&w);
    return status;
}

ash_status ash_onnx_check(const ash_graph *graph, ash_diag *diag) {
    ash_diag unused;
    ash_writer w;
    uint64_t size;
    ASH_NEED(diag, graph);
    ash_status status = open_writer(&w, graph, &(ash_onnx_write_options){0}, &size, diag ? diag : &unused);
    close_writer(&w);
    return status;
}
