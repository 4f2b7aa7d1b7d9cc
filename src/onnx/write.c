/* SPDX-License-Identifier: MIT */
/* From a graph to a model file. The weights come first, so that their alignment does not depend on the
 * nodes; then the nodes in the graph's order, each as one or a few ONNX operators (write_ops.c), then
 * inputs and outputs. */
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
enum { ATTR_NAME = 1, ATTR_I = 3, ATTR_S = 4, ATTR_INTS = 8, ATTR_TYPE = 20 };

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

/* Whether a node reads the value or an output is it: other constants are left out. */
static void mark_used(ash_writer *w) {
    const ash_graph *g = w->graph;
    for (size_t i = 0; i < g->nodes.len; i++)
        for (size_t k = 0; k < g->nodes.at[i].n_ins; k++) w->used[g->nodes.at[i].ins[k]] = true;
    for (size_t i = 0; i < g->outputs.len; i++) w->used[g->outputs.at[i].value] = true;
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
    else if (!attr->list)
        ash_wire_out__int(out, ATTR_I, attr->i);
    for (size_t i = 0; i < attr->count && attr->list; i++) ash_wire_out__int(out, ATTR_INTS, attr->list[i]);
    ash_wire_out__int(out, ATTR_TYPE,
                      attr->text   ? ONNX_ATTR_STRING
                      : attr->list ? ONNX_ATTR_INTS
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

void ash_writer__node(ash_writer *w, const ash_writer_node *node) {
    const named_node data = {node_label(w), node};
    ash_wire_out__message(&w->out, GRAPH_NODE, node_body, &data);
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

/* --- dims that the file computes ------------------------------------------------------------------ */

/* The value of a variable, from the shape of an input that has it as a dim: an i64 tensor [1]. */
static const char *variable(ash_writer *w, uint32_t var) {
    const ash_graph *g = w->graph;
    for (size_t i = 0; i < g->inputs.len; i++) {
        const ash_type *type = ash_graph__type(g, g->inputs.at[i]);
        for (unsigned d = 0; d < type->rank; d++) {
            ash_dim dim = type->dims[d];
            if (ash_dim_is_const(dim) || ash_dims_term_count(g->dims, dim) != 1) continue;
            size_t atoms;
            int64_t coefficient = ash_dims_term(g->dims, dim, 0, &atoms);
            ash_dim_atom atom = atoms == 1 ? ash_dims_atom(g->dims, dim, 0, 0) : (ash_dim_atom){0};
            if (coefficient != 1 || !atom.is_var || atom.var != var) continue;
            const ash_writer_attr attrs[] = {WRITE_INT("start", d), WRITE_INT("end", d + 1)};
            return ash_writer__op(w, NULL, "Shape", &w->values[g->inputs.at[i]], 1, attrs, 2);
        }
    }
    ash_writer__fail(w, ASH_ERROR_UNSUPPORTED, "the variable '%s' is no dim of an input",
                     ash_dims_var(g->dims, var)->name);
    return "";
}

static const char *combine(ash_writer *w, const char *op, const char *a, const char *b) {
    const char *const ins[] = {a, b};
    return a ? ash_writer__op(w, NULL, op, ins, 2, NULL, 0) : b;
}

static const char *dim_value(ash_writer *w, ash_dim dim);

/* ONNX's Div rounds towards 0, a dim's quotient down; Mod's result has the sign of what divides. */
static const char *atom_value(ash_writer *w, ash_dim_atom atom) {
    static const char *const ops[] = {[ASH_DIM_DIV] = "Div", [ASH_DIM_MIN] = "Min", [ASH_DIM_MAX] = "Max"};
    const char *a = dim_value(w, atom.a), *b = dim_value(w, atom.b);
    int64_t min, max;
    ash_dims_bounds(w->graph->dims, atom.a, &min, &max);
    if (atom.op == ASH_DIM_DIV && min < 0) a = combine(w, "Sub", a, combine(w, "Mod", a, b));
    return combine(w, ops[atom.op], a, b);
}

/* An i64 tensor [1] with the value of a dim. */
static const char *dim_value(ash_writer *w, ash_dim dim) {
    const ash_dims *dims = w->graph->dims;
    const char *sum = NULL;
    if (ash_dim_is_const(dim)) return ash_writer__ints(w, &dim, 1);
    size_t count = ash_dims_term_count(dims, dim);
    for (size_t i = 0; i < 2 * count && w->status == ASH_OK; i++) { /* what is taken away comes last */
        size_t atoms, t = i % count;
        int64_t coefficient = ash_dims_term(dims, dim, t, &atoms);
        bool taken = i >= count;
        if (taken != (coefficient < 0)) continue;
        if (taken && !sum) sum = ash_writer__ints(w, &(int64_t){0}, 1);
        if (taken) coefficient = (int64_t)(0 - (uint64_t)coefficient);
        const char *product = coefficient == 1 && atoms ? NULL : ash_writer__ints(w, &coefficient, 1);
        for (size_t a = 0; a < atoms; a++) {
            ash_dim_atom atom = ash_dims_atom(dims, dim, t, a);
            const char *value = atom.is_var ? variable(w, atom.var) : atom_value(w, atom);
            product = combine(w, "Mul", product, value);
        }
        sum = combine(w, taken ? "Sub" : "Add", sum, product);
    }
    return sum ? sum : "";
}

const char *ash_writer__dims(ash_writer *w, const ash_dim *list, size_t n) {
    bool numbers = true;
    for (size_t i = 0; i < n; i++) numbers &= ash_dim_is_const(list[i]);
    if (numbers) return ash_writer__ints(w, list, n);
    const char *parts[2 * ASH_MAX_RANK];
    for (size_t i = 0; i < n; i++) parts[i] = dim_value(w, list[i]);
    const ash_writer_attr attrs[] = {WRITE_INT("axis", 0)};
    return n == 1 ? parts[0] : ash_writer__op(w, NULL, "Concat", parts, n, attrs, 1);
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

static void write_info(ash_writer *w, uint32_t field, const char *name, ash_value value) {
    ash_wire_out__message(&w->out, field, info_body,
                          &(info_data){name, ash_graph__type(w->graph, value), w});
}

/* --- the graph and the model ---------------------------------------------------------------------- */

static void write_graph(ash_writer *w) {
    const ash_graph *g = w->graph;
    w->temporaries = w->nodes = 0;
    ash_wire_out__text(&w->out, GRAPH_NAME, g->name && g->name[0] ? g->name : "graph");
    for (size_t v = 0; v < g->values.len; v++) {
        const ash_value_info *info = &g->values.at[v];
        if (info->blob)
            ash_writer__constant(w, w->values[v], &info->type, info->blob->data, info->blob->size);
    }
    for (size_t i = 0; i < g->inputs.len; i++)
        write_info(w, GRAPH_INPUT, w->values[g->inputs.at[i]], g->inputs.at[i]);
    for (size_t i = 0; i < g->nodes.len && w->status == ASH_OK; i++) {
        const ash_node *node = &g->nodes.at[i];
        w->node_name = node->name;
        ash_writer__core(w, node);
        if (w->status != ASH_OK)
            ash_diag__add_node(w->diag, w->values[node->out], ash_op_name(node->op), ASH_NO_OFFSET);
    }
    w->node_name = NULL;
    for (size_t i = 0; i < g->outputs.len; i++) {
        ash_output output = g->outputs.at[i];
        if (strcmp(w->values[output.value], output.name) != 0)
            ash_writer__op(w, output.name, "Identity", &w->values[output.value], 1, NULL, 0);
        write_info(w, GRAPH_OUTPUT, output.name, output.value);
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

static ash_status write_model(ash_writer *w, ash_sink *sink, ash_sink *external) {
    name_values(w);
    mark_used(w);
    uint64_t size = measure(w);
    ASH_TRY(w->status);
    w->out = (ash_wire_out){sink, 0};
    w->external = (ash_wire_out){external, 0};
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

ASH_SIZED(ash_onnx_write_options, external_min);

ash_status ash_onnx_write(const ash_graph *graph, const char *path, const ash_onnx_write_options *options,
                          ash_diag *diag) {
    ash_diag unused;
    ash_sink sink, external;
    ash_onnx_write_options own;
    ASH_NEED(diag, graph, path);
    ASH_TRY(ASH_TAKE(ash_onnx_write_options, options, &own, diag));
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
    ash_writer w = {.graph = graph, .allocator = graph->allocator, .diag = diag ? diag : &unused};
    if (own.external) {
        w.external_name = own.external;
        w.external_min = own.external_min ? own.external_min : EXTERNAL_MIN;
    }
    ash_arena_init(&w.names, w.allocator);
    w.values = ash_mem_calloc(w.allocator, graph->values.len, sizeof *w.values);
    w.used = ash_mem_calloc(w.allocator, graph->values.len, sizeof *w.used);
    ash_status status =
        w.values && w.used ? ash_sink_open(w.allocator, path, &sink, w.diag) : ASH_NO_MEMORY(diag);
    if (status == ASH_OK && w.external_name) {
        status = open_external(w.allocator, path, w.external_name, &external, w.diag);
        if (status != ASH_OK) ash_sink_close(&sink, false, NULL);
    }
    if (status == ASH_OK) {
        status = write_model(&w, &sink, w.external_name ? &external : NULL);
        if (w.external_name) {
            ash_status closed = ash_sink_close(&external, status == ASH_OK, w.diag);
            if (status == ASH_OK) status = closed;
        }
        ash_status closed = ash_sink_close(&sink, status == ASH_OK, w.diag);
        if (status == ASH_OK) status = closed;
    }
    ash_mem_free(w.allocator, w.values, graph->values.len, sizeof *w.values);
    ash_mem_free(w.allocator, w.used, graph->values.len, sizeof *w.used);
    ash_arena_free(&w.names);
    return status;
}
