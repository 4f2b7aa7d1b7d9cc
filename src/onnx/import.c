/* SPDX-License-Identifier: MIT */
/* From a model file to a graph. The messages are visited in this order: initializers (declared, not read),
 * inputs, nodes (each read, lowered and forgotten, in the order of sort.c), outputs. */
#include "import.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/progress.h"
#include "base/sized.h"
#include "base/text.h"
#include "late.h"
#include "ml.h"
#include "ops.h"
#include "tensor.h"

enum {
    NEWEST_OPSET = 28,
    OLDEST_IR_WITH_OPSETS = 3,
    MAX_LOWERED = 1 << 20, /* nodes, those of unrolled bodies counted each time */
    MAX_NAMES = 1 << 26,
    MAX_SEQUENCE = 1 << 16 /* tensors of a sequence that is an input */
};

/* Fields of GraphProto. */
enum { GRAPH_NAME = 2, GRAPH_INITIALIZER = 5, GRAPH_INPUT = 11, GRAPH_OUTPUT = 12, GRAPH_SPARSE = 15 };

/* --- nodes ---------------------------------------------------------------------------------------- */

/* The version that the model, or the function, imports of a domain; 0: it does not. */
static int64_t opset_of(const ash_import *im, ash_span domain) {
    bool is_default = ash_onnx__is_default_domain(domain);
    for (size_t i = 0; i < im->opsets->n; i++) {
        ash_span have = im->opsets->at[i].domain;
        if (is_default ? ash_onnx__is_default_domain(have) : ash_span_equal(have, domain))
            return im->opsets->at[i].version;
    }
    return is_default && im->model.ir_version < OLDEST_IR_WITH_OPSETS ? 1 : 0;
}

/* What a small file repeats is bounded: nodes, what they list, and the memory of what they become. */
static bool within_limits(ash_import *im) {
    enum { NODE_BYTES = 512 /* of a node of the graph and its results, about */ };
    const ash_onnx_node *node = im->node;
    uint64_t most = im->options->max_bytes ? im->options->max_bytes : (uint64_t)1 << 30;
    im->names += node->n_ins + node->n_outs + node->n_attrs;
    uint64_t bytes = im->kept + im->graph->made_bytes + im->values.len * sizeof *im->values.at +
                     im->graph->nodes.len * (uint64_t)NODE_BYTES;
    if (im->lowered++ == MAX_LOWERED)
        ash_import__fail(im, ASH_ERROR_BUDGET, "the model unrolls to more than %d nodes", MAX_LOWERED);
    else if (im->names > MAX_NAMES)
        ash_import__fail(im, ASH_ERROR_BUDGET,
                         "the model unrolls to nodes with more than %d operands, results and attributes",
                         MAX_NAMES);
    else if (bytes > most)
        ash_import__fail(im, ASH_ERROR_BUDGET, "the model unrolls to more than %llu bytes of graph",
                         (unsigned long long)most);
    return ash_import__ok(im);
}

static void refuse_operator(ash_import *im, bool known) {
    const char *advice = ash_span_is(im->node->domain, "ai.onnx.ml") ? ash_ml__advice(im->node->op) : NULL;
    if (advice) ash_import__fail(im, ASH_ERROR_UNSUPPORTED, "the operator is not supported: %s", advice);
    ash_import__fail(im, ASH_ERROR_UNSUPPORTED,
                     known ? "this version of the operator is not supported"
                           : "the operator is not supported; a lowering of the caller's could say what it "
                             "computes (ash_onnx_options.operators)");
}

static void lower_node(ash_import *im) {
    const ash_onnx_node *node = im->node;
    bool known;
    im->opset = opset_of(im, node->domain);
    im->row = ash_import__find(node->domain, node->op, im->opset, &known);
    /* A function in a domain that has the operator is its definition for those who do not know it. */
    const ash_onnx_operator *given = im->row ? NULL : ash_import__given(im, node);
    const ash_onnx_function *function =
        given || (im->row && im->opset) ? NULL : ash_import__function(im, node);
    for (size_t i = 0; i < node->n_attrs; i++)
        if (node->attrs[i].ref.len)
            ash_import__fail(im, ASH_ERROR_FORMAT,
                             "attribute '%.*s' refers to an attribute of a function, and is in none",
                             ASH_SPAN_ARG(node->attrs[i].name));
    if (im->row && im->opset == 0 && !function)
        ash_import__fail(im, ASH_ERROR_FORMAT, "the %s does not import the operator set of this domain",
                         im->call ? "function" : "model");
    else if (!im->row && !function && !given)
        refuse_operator(im, known);
    else if (!within_limits(im))
        return;
    else if (given)
        ash_import__lower_given(im, given);
    else if (function)
        ash_import__call(im, function);
    else if (ash_import__ok(im) && !ash_late__lower(im) && ash_import__ok(im) && !ash_import__track(im))
        im->row->lower(im);
}

/* Every result that the node names must be there: a lowering that leaves one out does not support it. */
static void check_results(ash_import *im) {
    for (size_t k = 0; k < im->node->n_outs && ash_import__ok(im); k++)
        if (ash_import__wants(im, k) && ash_import__find_name(im, im->node->outs[k]) == SIZE_MAX)
            ash_import__fail(im, ASH_ERROR_UNSUPPORTED, "result %zu, '%.*s', is not supported", k,
                             ASH_SPAN_ARG(im->node->outs[k]));
}

ash_span ash_import__label(const ash_onnx_node *node) {
    return node->name.len ? node->name : node->n_outs ? node->outs[0] : (ash_span){0};
}

static const char *path(const ash_import *im) {
    return im->call ? im->call->path : "";
}

/* Adds to a failure where it happened. A name that is too long loses its beginning. What the graph has
 * refused names the core operator; that goes before the message, to leave its place to the model's. */
static void locate(ash_import *im, size_t position) {
    const ash_onnx_node *node = im->node;
    char name[2 * ASH_IMPORT_PATH + 1], op[48], message[sizeof im->diag.message + sizeof im->diag.op + 2];
    ash_span label = ash_import__label(node);
    if (label.len)
        snprintf(name, sizeof name, "%s%.*s", path(im), ASH_SPAN_ARG(label));
    else
        snprintf(name, sizeof name, "%s#%zu", path(im), position);
    bool is_default = ash_onnx__is_default_domain(node->domain);
    snprintf(op, sizeof op, "%.*s, %.*s %lld", (int)ASH_MIN(node->op.len, (size_t)24),
             node->op.len ? (const char *)node->op.at : "",
             is_default ? 7 : (int)ASH_MIN(node->domain.len, (size_t)16),
             is_default ? "ai.onnx" : (const char *)node->domain.at, (long long)im->opset);
    if (im->diag.op[0]) {
        snprintf(message, sizeof message, "%s: %s", im->diag.op, im->diag.message);
        snprintf(im->diag.message, sizeof im->diag.message, "%.*s", (int)sizeof im->diag.message - 1,
                 message);
    }
    im->diag.node[0] = im->diag.op[0] = 0;
    size_t len = strlen(name), room = sizeof im->diag.node - 1;
    char *shown = len > room ? name + len - room : name;
    if (len > room) memcpy(shown, "...", 3);
    ash_diag__add_node(&im->diag, shown, op, node->offset);
}

void ash_import__name_nodes(ash_import *im) {
    ash_span label = ash_import__label(im->node);
    size_t len = strlen(path(im));
    char *name = label.len ? ash_arena_alloc(im->scratch, len + label.len + 1, 1) : NULL;
    if (name) {
        memcpy(name, path(im), len);
        memcpy(name + len, label.at, label.len);
    }
    ash_graph_name_next(im->graph, name);
}

/* Operands that are nothing are missing. */
static void drop_absent(ash_import *im, ash_onnx_node *node) {
    node->ins = ash_arena_copy(im->scratch, node->ins, node->n_ins, sizeof *node->ins);
    if (!node->ins) {
        ash_import__fail(im, ASH_ERROR_OUT_OF_MEMORY, "out of memory");
        return;
    }
    for (size_t k = 0; k < node->n_ins; k++) {
        size_t index = ash_import__find_name(im, node->ins[k]);
        if (index != SIZE_MAX && im->values.at[index].absent) node->ins[k].len = 0;
    }
}

void ash_import__node(ash_import *im, const ash_onnx_node *given, size_t position) {
    const ash_onnx_node *outer = im->node;
    ash_arena *outer_scratch = im->scratch, scratch;
    ash_onnx_node node = *given;
    const ash_import_row *outer_row = im->row;
    int64_t outer_opset = im->opset;
    im->status =
        ash_progress__report(&im->options->progress, ASH_STAGE_IMPORT, im->done, im->total, &im->diag);
    if (!ash_import__ok(im)) return;
    ash_arena_init(&scratch, im->allocator);
    im->node = &node;
    im->scratch = &scratch;
    if (im->call) ash_import__resolve(im, &node);
    if (im->has_absent && ash_import__ok(im)) drop_absent(im, &node);
    if (ash_import__ok(im)) {
        ash_import__name_nodes(im);
        lower_node(im);
    }
    check_results(im);
    bool located = im->diag.op[0] && im->diag.file_offset != ASH_NO_OFFSET;
    if (!ash_import__ok(im) && !located) locate(im, position);
    im->node = outer;
    im->scratch = outer_scratch;
    im->opset = outer_opset;
    im->row = outer_row;
    ash_arena_free(&scratch);
}

/* Calls `visit` for each field of a graph message with this number. */
static ash_status each(ash_import *im, ash_wire graph, uint32_t number,
                       void (*visit)(ash_import *im, ash_wire message, size_t position)) {
    for (size_t position = 0;;) {
        ash_wire message;
        bool more;
        ASH_TRY(im->status = ash_wire__enter_next(&graph, number, &message, &more));
        if (!more) return ASH_OK;
        visit(im, message, position++);
        ASH_TRY(im->status);
    }
}

/* Each node of the model's graph is read, lowered and forgotten. */
static ash_status import_nodes(ash_import *im, ash_wire graph) {
    ash_arena room, read;
    const ash_wire *nodes;
    size_t count = 0;
    ash_arena_init(&room, im->allocator);
    im->status = ash_import__sorted(im->allocator, graph, ONNX_GRAPH_NODE, &room, &nodes, &count);
    im->total = count;
    for (size_t i = 0; i < count && ash_import__ok(im); i++) {
        ash_onnx_node node;
        ash_arena_init(&read, im->allocator);
        im->done = i;
        im->status = ash_onnx__node_read(nodes[i], &read, &node);
        if (ash_import__ok(im)) ash_import__node(im, &node, i);
        ash_arena_free(&read);
    }
    ash_arena_free(&room);
    return im->status;
}

/* --- initializers and inputs ---------------------------------------------------------------------- */

static void declare_initializer(ash_import *im, ash_wire message, size_t position) {
    (void)position;
    ash_onnx_tensor *tensor = ash_arena_alloc(&im->arena, 1, sizeof *tensor);
    if (!tensor) {
        im->status = ASH_NO_MEMORY(&im->diag);
        return;
    }
    im->status = ash_onnx__tensor_read(message, tensor);
    const ash_import_value value = ash_import__of_tensor(tensor);
    ash_import__declare(im, tensor->name, &value);
    ash_diag__add_node(&im->diag, NULL, NULL, tensor->offset);
}

static void refuse_sparse(ash_import *im, ash_wire message, size_t position) {
    (void)position;
    im->status =
        ash_fail_at(&im->diag, ASH_ERROR_UNSUPPORTED, ash_wire__offset(&message), "sparse initializers");
}

/* The value of an input that the options bind to a tensor. */
static ash_value bound_input(ash_import *im, const char *name, ash_type *type, ash_narrow *narrow) {
    for (size_t i = 0; i < im->options->n_binds; i++) {
        const ash_onnx_bind *bind = &im->options->binds[i];
        if (strcmp(bind->input, name) != 0) continue;
        const void *data;
        *type = *ash_tensor_type(bind->tensor);
        *narrow = ash_tensor_narrow(bind->tensor);
        im->status = ash_view_data(ash_tensor_view(bind->tensor), &data, &im->diag);
        if (im->status != ASH_OK) return ASH_NO_VALUE;
        return ash_graph_constant(im->graph, type, data, ash_tensor_size(bind->tensor), ASH_DATA_COPY);
    }
    return ASH_NO_VALUE;
}

/* An input for a tensor of its own. */
static ash_import_value tensor_input(ash_import *im, const ash_onnx_info *info, const char *name) {
    ash_import_value value = {.value = ASH_NO_VALUE};
    value.value = bound_input(im, name, &value.type, &value.narrow);
    if (value.value == ASH_NO_VALUE && ash_import__ok(im)) {
        im->status = ash_import__input_type(im, info, &value.type, &value.narrow);
        if (im->status == ASH_OK) value.value = ash_graph_input(im->graph, name, &value.type);
        ash_graph__mark_input(im->graph, value.value, value.narrow);
    }
    return value;
}

static const ash_onnx_sequence *given_sequence(const ash_import *im, const char *name) {
    for (size_t i = 0; i < im->options->n_sequences; i++)
        if (strcmp(im->options->sequences[i].input, name) == 0) return &im->options->sequences[i];
    return NULL;
}

/* Whether a tensor of this type can be among those that the model says. */
static bool can_be(const ash_onnx_info *info, const ash_type *type) {
    if (!info->has_shape) return true;
    bool same = info->rank == type->rank;
    for (unsigned i = 0; i < type->rank && same; i++)
        same = info->dims[i].value < 0 || info->dims[i].value == type->dims[i];
    return same;
}

/* An input for each tensor of a sequence, in its own shape. */
static ash_import_value sequence_input(ash_import *im, const ash_onnx_info *info,
                                       const ash_onnx_sequence *given) {
    ash_import_value value = {.value = ASH_NO_VALUE, .sequence = true, .count = given->length};
    size_t *items = ash_import__keep(im, given->length, sizeof *items);
    value.items = items;
    for (size_t i = 0; i < given->length && ash_import__ok(im); i++) {
        const ash_type *type = &given->types[i];
        ash_onnx_info element = *info;
        ash_text name;
        if (!can_be(info, type))
            ash_import__fail(im, ASH_ERROR_SHAPE, "tensor %zu has another shape than the model says", i);
        element.has_shape = true, element.rank = type->rank;
        for (unsigned k = 0; k < ASH_MIN(type->rank, (unsigned)ASH_MAX_RANK); k++)
            element.dims[k].value = type->dims[k];
        ash_text_init(&name, im->allocator);
        ash_text_add(&name, "%.*s.%zu", ASH_SPAN_ARG(info->name), i);
        im->status = ash_text_status(&name, &im->diag);
        if (ash_import__ok(im)) {
            const ash_import_value item = tensor_input(im, &element, name.at);
            items[i] = ash_import__entry(im, &item);
            if (ash_import__ok(im) && item.type.dtype != type->dtype)
                ash_import__fail(im, ASH_ERROR_TYPE, "tensor %zu is %s, but the model's are %s", i,
                                 ash_dtype_name(type->dtype), ash_dtype_name(item.type.dtype));
        }
        ash_text_free(&name);
    }
    return value;
}

static ash_import_value input_of(ash_import *im, const ash_onnx_info *info, const char *name) {
    const ash_import_value nothing = {.value = ASH_NO_VALUE, .absent = true};
    const ash_onnx_sequence *given = given_sequence(im, name);
    if (given && !info->sequence && !(info->optional && given->absent))
        ash_import__fail(im, ASH_ERROR_INVALID_ARGUMENT,
                         "the options have a sequence for it, but it is none");
    else if (given && given->absent && !info->optional)
        ash_import__fail(im, ASH_ERROR_INVALID_ARGUMENT, "it is no optional, and cannot be absent");
    else if (given && given->absent)
        return nothing;
    else if (info->sequence && !given)
        ash_import__fail(
            im, ASH_ERROR_UNSUPPORTED,
            "a sequence whose length is not known: say how many tensors it has and of what types "
            "(ash_onnx_options.sequences), and give them as the inputs %s.0, %s.1, ...",
            name, name);
    else
        return given ? sequence_input(im, info, given) : tensor_input(im, info, name);
    return nothing;
}

/* An input that has an initializer is that initializer: its default value. */
static void declare_input(ash_import *im, ash_wire message, size_t position) {
    (void)position;
    ash_onnx_info info;
    im->status = ash_onnx__info_read(message, &info);
    if (im->status != ASH_OK || ash_import__find_name(im, info.name) != SIZE_MAX) return;
    char *name = ash_arena_strndup(&im->arena, (const char *)info.name.at, info.name.len);
    if (!name) {
        im->status = ASH_NO_MEMORY(&im->diag);
        return;
    }
    const ash_import_value value = input_of(im, &info, name);
    ash_import__declare(im, info.name, &value);
    if (!ash_import__ok(im)) ash_diag__add_node(&im->diag, name, "graph input", info.offset);
}

/* --- outputs -------------------------------------------------------------------------------------- */

/* The name of an output: that of its value, NAME#2, NAME#3, ... where the model lists a value again. NULL:
 * a failure. */
static const char *output_name(ash_import *im, ash_span of) {
    const size_t room = of.len + sizeof "#" + 20;
    uint64_t taken;
    char *name = ash_arena_strndup(&im->arena, (const char *)of.at, of.len);
    for (size_t k = 2; name && ash_strmap_get(&im->outputs, name, strlen(name), &taken); k++)
        if ((name = ash_arena_alloc(&im->arena, room, 1)))
            snprintf(name, room, "%.*s#%zu", ASH_SPAN_ARG(of), k);
    if (name && ash_strmap_put(&im->outputs, name, strlen(name), 0)) return name;
    im->status = ASH_NO_MEMORY(&im->diag);
    return NULL;
}

static void output_tensor(ash_import *im, const char *name, size_t index) {
    ash_graph_output(im->graph, name, ash_import__materialize(im, index));
    if (ash_import__ok(im))
        ash_graph__mark_output(im->graph, im->graph->outputs.len - 1, im->values.at[index].narrow);
}

/* An output for each tensor of a sequence, NAME.0, NAME.1, ...; none for what is absent. */
static void output_value(ash_import *im, const char *name, size_t index) {
    const ash_import_value value = im->values.at[index];
    if (!value.sequence && !value.absent) output_tensor(im, name, index);
    for (size_t i = 0; value.sequence && i < value.count && ash_import__ok(im); i++) {
        ash_text text;
        ash_text_init(&text, im->allocator);
        ash_text_add(&text, "%s.%zu", name, i);
        im->status = ash_text_status(&text, &im->diag);
        if (ash_import__ok(im)) output_tensor(im, text.at, value.items[i]);
        ash_text_free(&text);
    }
}

static void add_output(ash_import *im, ash_wire message, size_t position) {
    (void)position;
    ash_onnx_info info;
    im->status = ash_onnx__info_read(message, &info);
    if (im->status != ASH_OK) return;
    const char *name = output_name(im, info.name);
    size_t index = ash_import__find_name(im, info.name);
    if (!name) return;
    if (index == SIZE_MAX)
        ash_import__fail(im, ASH_ERROR_FORMAT, "no node computes this output");
    else
        output_value(im, name, index);
    if (!ash_import__ok(im)) ash_diag__add_node(&im->diag, name, "graph output", info.offset);
}

/* --- open graphs ---------------------------------------------------------------------------------- */

/* The dims that a node may settle have names, which the options may mention. */
static void name_sizes(ash_import *im) {
    static const char *const settle[] = {"ConstantOfShape", "Expand", "Pad", "Range", "Reshape", "Tile"};
    const ash_onnx_node *node = im->node;
    if (!im->options->n_vars || !node->n_outs) return;
    for (size_t i = 0; i < ASH_COUNT(settle); i++)
        for (unsigned d = 0; d < ASH_MAX_RANK && ash_span_is(node->op, settle[i]); d++)
            ash_onnx__size_name(im, node->outs[0], d);
}

/* While dims are open, nodes are only looked at: that each can be read, and that its operator is known. */
static void check_node(ash_import *im, ash_wire message, size_t position) {
    ash_arena scratch;
    ash_onnx_node node;
    bool known;
    ash_arena_init(&scratch, im->allocator);
    im->status = ash_onnx__node_read(message, &scratch, &node);
    if (im->status == ASH_OK) {
        im->node = &node;
        im->opset = opset_of(im, node.domain);
        if (!ash_import__find(node.domain, node.op, im->opset, &known) && !ash_import__given(im, &node) &&
            !ash_import__function(im, &node)) {
            refuse_operator(im, known);
            locate(im, position);
        }
        name_sizes(im);
        im->node = NULL;
    }
    ash_arena_free(&scratch);
}

static void name_output(ash_import *im, ash_wire message, size_t position) {
    (void)position;
    ash_onnx_info info;
    im->status = ash_onnx__info_read(message, &info);
    if (im->status != ASH_OK) return;
    const char *name = output_name(im, info.name);
    if (!name) return;
    if (!ash_vec_push(im->allocator, &im->output_names, name))
        im->status = ASH_NO_MEMORY(&im->diag);
    else if (info.tensor && (info.sequence || info.optional))
        ash_import__fail(im, ASH_ERROR_UNSUPPORTED,
                         "a sequence, whose length may hang on dims that are open: give them sizes");
    if (!ash_import__ok(im)) ash_diag__add_node(&im->diag, name, "graph output", info.offset);
}

/* --- the model ------------------------------------------------------------------------------------ */

static ash_status check_opsets(ash_import *im, const ash_onnx_opsets *sets) {
    for (size_t i = 0; i < sets->n; i++)
        ASH_FAIL_IF(ash_onnx__is_default_domain(sets->at[i].domain) && sets->at[i].version > NEWEST_OPSET,
                    &im->diag, ASH_ERROR_UNSUPPORTED,
                    "operator set ai.onnx %lld is newer than %d, the newest known",
                    (long long)sets->at[i].version, NEWEST_OPSET);
    return ASH_OK;
}

static ash_status check_model(ash_import *im) {
    const ash_onnx_model *model = &im->model;
    ASH_FAIL_IF(!model->has_graph, &im->diag, ASH_ERROR_FORMAT,
                "the file has no graph: it is no ONNX model");
    ASH_TRY(check_opsets(im, &model->opsets));
    for (size_t i = 0; i < model->n_functions; i++) ASH_TRY(check_opsets(im, &model->functions[i].opsets));
    return ash_import__functions(im);
}

static ash_status graph_name(ash_import *im, char **name) {
    ash_wire graph = im->model.graph;
    ash_span span = {0};
    for (;;) {
        ash_field field;
        bool more;
        ASH_TRY(ash_wire__next(&graph, &field, &more));
        if (!more) break;
        if (field.number == GRAPH_NAME) ASH_TRY(ash_wire__bytes(&graph, &field, &span));
    }
    *name = ash_arena_strndup(&im->arena, (const char *)span.at, span.len);
    return *name ? ASH_OK : ASH_NO_MEMORY(&im->diag);
}

/* The options name nothing twice, and nothing by NULL. */
static ash_status check_names(const ash_onnx_options *o, ash_diag *diag) {
    ASH_FAIL_IF((o->n_vars && !o->vars) || (o->n_shapes && !o->shapes) || (o->n_binds && !o->binds) ||
                    (o->n_sequences && !o->sequences) || (o->n_ties && !o->ties) ||
                    (o->n_operators && !o->operators),
                diag, ASH_ERROR_INVALID_ARGUMENT, "a list of the options is NULL");
    for (size_t i = 0; i < o->n_vars; i++) {
        ASH_FAIL_IF(!o->vars[i].name, diag, ASH_ERROR_INVALID_ARGUMENT, "the name of dim %zu is NULL", i);
        for (size_t k = 0; k < i; k++)
            ASH_FAIL_IF(!strcmp(o->vars[k].name, o->vars[i].name), diag, ASH_ERROR_INVALID_ARGUMENT,
                        "dim '%s' is given twice", o->vars[i].name);
    }
    for (size_t i = 0; i < o->n_shapes; i++)
        ASH_FAIL_IF(!o->shapes[i].input || !o->shapes[i].type, diag, ASH_ERROR_INVALID_ARGUMENT,
                    "the input or the type of shape %zu is NULL", i);
    for (size_t i = 0; i < o->n_binds; i++) {
        ASH_FAIL_IF(!o->binds[i].input || !o->binds[i].tensor, diag, ASH_ERROR_INVALID_ARGUMENT,
                    "the input or the tensor of binding %zu is NULL", i);
        for (size_t k = 0; k < i; k++)
            ASH_FAIL_IF(!strcmp(o->binds[k].input, o->binds[i].input), diag, ASH_ERROR_INVALID_ARGUMENT,
                        "input '%s' is bound twice", o->binds[i].input);
    }
    for (size_t i = 0; i < o->n_operators; i++) {
        const ash_onnx_operator *op = &o->operators[i];
        ASH_FAIL_IF(!op->domain || !op->op || !op->lower, diag, ASH_ERROR_INVALID_ARGUMENT,
                    "the domain, the name or the lowering of operator %zu is NULL", i);
        for (size_t k = 0; k < i; k++)
            ASH_FAIL_IF(!strcmp(o->operators[k].domain, op->domain) && !strcmp(o->operators[k].op, op->op),
                        diag, ASH_ERROR_INVALID_ARGUMENT, "operator '%s' is given twice", op->op);
    }
    for (size_t i = 0; i < o->n_ties; i++) {
        ASH_FAIL_IF(!o->ties[i].name || !o->ties[i].expression, diag, ASH_ERROR_INVALID_ARGUMENT,
                    "the name or the expression of tie %zu is NULL", i);
        for (size_t k = 0; k < i + o->n_vars; k++)
            ASH_FAIL_IF(!strcmp(k < i ? o->ties[k].name : o->vars[k - i].name, o->ties[i].name), diag,
                        ASH_ERROR_INVALID_ARGUMENT, "dim '%s' is given twice", o->ties[i].name);
    }
    for (size_t i = 0; i < o->n_sequences; i++) {
        const ash_onnx_sequence *s = &o->sequences[i];
        ASH_FAIL_IF(!s->input || (s->length && !s->types), diag, ASH_ERROR_INVALID_ARGUMENT,
                    "the input or the types of sequence %zu are NULL", i);
        ASH_FAIL_IF(s->length > MAX_SEQUENCE, diag, ASH_ERROR_INVALID_ARGUMENT,
                    "sequence '%s' has %zu tensors; at most %d are supported", s->input, s->length,
                    MAX_SEQUENCE);
        for (size_t k = 0; k < s->length; k++)
            ASH_FAIL_IF(!ash_type_static_count(&s->types[k], &(int64_t){0}), diag,
                        ASH_ERROR_INVALID_ARGUMENT,
                        "tensor %zu of sequence '%s' has dims that are no numbers", k, s->input);
        for (size_t k = 0; k < i; k++)
            ASH_FAIL_IF(!strcmp(o->sequences[k].input, s->input), diag, ASH_ERROR_INVALID_ARGUMENT,
                        "sequence '%s' is given twice", s->input);
    }
    return ASH_OK;
}

static bool has_value(ash_import *im, const char *name) {
    return ash_import__find_name(im, (ash_span){(const uint8_t *)name, strlen(name)}) != SIZE_MAX;
}

/* Whether it is the name of a tensor of a sequence, NAME.0 to NAME.(length - 1). */
static bool is_element(const ash_onnx_options *o, const char *name) {
    for (size_t i = 0; i < o->n_sequences; i++) {
        size_t len = strlen(o->sequences[i].input);
        char *end;
        if (strncmp(name, o->sequences[i].input, len) != 0 || name[len] != '.') continue;
        unsigned long long at = strtoull(name + len + 1, &end, 10);
        if (name[len + 1] && !*end && at < o->sequences[i].length) return true;
    }
    return false;
}

/* Every name of the options must be one of the model's. */
static ash_status check_options(ash_import *im) {
    const ash_onnx_options *o = im->options;
    for (size_t i = 0; i < o->n_binds; i++) {
        const char *name = o->binds[i].input;
        ASH_FAIL_IF(!has_value(im, name) && !is_element(o, name), &im->diag, ASH_ERROR_NOT_FOUND,
                    "the model has no input '%s' to bind", name);
    }
    for (size_t i = 0; i < o->n_sequences; i++)
        ASH_FAIL_IF(!has_value(im, o->sequences[i].input), &im->diag, ASH_ERROR_NOT_FOUND,
                    "the model has no input '%s' for a sequence", o->sequences[i].input);
    return ASH_OK;
}

/* Every dim of the options must be an input's, or a size that a range settles. */
static ash_status check_dims(ash_import *im) {
    const ash_onnx_options *o = im->options;
    for (size_t i = 0; i < o->n_vars + o->n_ties; i++) {
        const char *name = i < o->n_vars ? o->vars[i].name : o->ties[i - o->n_vars].name;
        uint64_t found;
        ASH_FAIL_IF(!ash_strmap_get(&im->dims, name, strlen(name), &found), &im->diag, ASH_ERROR_NOT_FOUND,
                    "no input of the model has a dim '%s'", name);
    }
    return ASH_OK;
}

static ash_status import_graph(ash_import *im, ash_context *context, ash_wire message) {
    ash_import_scope scope = {0};
    ash_arena scratch;
    char *name;
    ASH_TRY(check_names(im->options, &im->diag));
    ASH_TRY(ash_onnx__model_read(message, &im->arena, &im->model));
    ASH_TRY(check_model(im));
    ASH_TRY(graph_name(im, &name));
    ASH_TRY(ash_graph_create(context, name, &im->graph, &im->diag));
    ash_strmap_init(&scope.names, im->allocator);
    ash_arena_init(&scratch, im->allocator);
    im->scope = &scope;
    im->scratch = &scratch;
    ash_status status;
    ash_wire graph = im->model.graph;
    ASH_TRY_DONE(each(im, graph, GRAPH_SPARSE, refuse_sparse));
    ASH_TRY_DONE(each(im, graph, GRAPH_INITIALIZER, declare_initializer));
    ASH_TRY_DONE(ash_import__learn_dims(im, graph));
    ASH_TRY_DONE(each(im, graph, GRAPH_INPUT, declare_input));
    ASH_TRY_DONE(check_options(im));
    if (ash_dims_has_open(im->graph->dims)) {
        ASH_TRY_DONE(each(im, graph, ONNX_GRAPH_NODE, check_node));
        ASH_TRY_DONE(check_dims(im));
        ASH_TRY_DONE(each(im, graph, GRAPH_OUTPUT, name_output));
        ASH_TRY_DONE(ash_import__make_recipe(im));
    } else {
        ASH_TRY_DONE(import_nodes(im, graph));
        ASH_TRY_DONE(check_dims(im));
        ASH_TRY_DONE(each(im, graph, GRAPH_OUTPUT, add_output));
    }
done:
    ash_arena_free(&scratch);
    ash_strmap_free(&scope.names);
    return status;
}

ash_status ash_import__bytes(ash_context *context, const void *data, size_t size,
                             const ash_onnx_options *options, ash_onnx_source source, ash_graph **out,
                             ash_diag *diag) {
    ash_import im = {
        .allocator = ash_context__allocator(context), .options = options, .bytes = {data, size}};
    im.source = source;
    ash_arena_init(&im.arena, im.allocator);
    ash_map_init(&im.folded, im.allocator);
    ash_strmap_init(&im.functions, im.allocator);
    im.opsets = &im.model.opsets;
    ash_map_init(&im.masks, im.allocator);
    ash_map_init(&im.picked, im.allocator);
    ash_map_init(&im.ends, im.allocator);
    ash_map_init(&im.cuts, im.allocator);
    ash_map_init(&im.block_of, im.allocator);
    ash_map_init(&im.constants, im.allocator);
    ash_map_init(&im.lists, im.allocator);
    ash_strmap_init(&im.outputs, im.allocator);
    ash_strmap_init(&im.dims, im.allocator);
    ash_strmap_init(&im.given, im.allocator);
    ash_diag_clear(&im.diag);
    ash_status status = import_graph(&im, context, ash_wire__open(data, size, &im.diag));
    if (status == ASH_OK) {
        ash_graph_name_next(im.graph, NULL);
        *out = im.graph;
    } else {
        ash_graph_destroy(im.graph);
        if (diag) *diag = im.diag;
    }
    ash_vec_free(im.allocator, &im.values);
    ash_map_free(&im.folded);
    ash_strmap_free(&im.functions);
    ash_map_free(&im.masks);
    ash_map_free(&im.picked);
    ash_map_free(&im.ends);
    ash_map_free(&im.cuts);
    ash_map_free(&im.constants);
    ash_map_free(&im.lists);
    ash_import__free_blocks(&im);
    ash_vec_free(im.allocator, &im.found);
    ash_vec_free(im.allocator, &im.output_names);
    ash_vec_free(im.allocator, &im.learned);
    ash_strmap_free(&im.outputs);
    ash_strmap_free(&im.dims);
    ash_strmap_free(&im.given);
    ash_onnx__source_free(&im.source);
    ash_arena_free(&im.arena);
    return status;
}

ASH_SIZED(ash_onnx_options, n_operators);

ash_status ash_onnx_parse(ash_context *context, const void *data, uint64_t size,
                          const ash_onnx_options *options, ash_graph **out, ash_diag *diag) {
    ash_onnx_options own;
    ASH_NEED(diag, out);
    *out = NULL;
    ASH_NEED(diag, context);
    ASH_TRY(ASH_TAKE(ash_onnx_options, options, &own, diag));
    if (size) ASH_NEED(diag, data);
    ASH_TRY(ash_file_check_given(context, data, size, diag));
    const ash_onnx_source source = {.context = context, .allocator = ash_context__allocator(context)};
    return ash_import__bytes(context, data ? data : "", size, &own, source, out, diag);
}

ash_status ash_onnx_read(ash_context *context, const char *path, const ash_onnx_options *options,
                         ash_graph **out, ash_diag *diag) {
    ASH_NEED(diag, out);
    *out = NULL;
    ASH_NEED(diag, context, path);
    const ash_allocator *a = ash_context__allocator(context);
    ash_onnx_options own;
    ash_file *file;
    ASH_TRY(ASH_TAKE(ash_onnx_options, options, &own, diag));
    ASH_TRY(ash_file_map(context, path, &file, diag));
    const ash_onnx_source source = {
        .context = context, .allocator = a, .file = file, .path = path, .copy_bytes = ASH_ONNX_COPY_BYTES};
    ash_status status = ash_import__bytes(context, file->data, file->size, &own, source, out, diag);
    ash_file_release(file);
    return status;
}
