/* From a model file to a graph. The messages are visited in this order: initializers (declared, not read),
 * inputs, nodes (each read, lowered and forgotten, in the order of sort.c), outputs. */
#include "import.h"

#include <stdio.h>

#include "base/text.h"
#include "lower.h"

enum {
    NEWEST_OPSET = 28,
    OLDEST_IR_WITH_OPSETS = 3,
    MAX_NESTING = 8,       /* graphs inside graphs */
    MAX_LOWERED = 1 << 20, /* nodes, those of unrolled bodies counted each time */
    DEFAULT_VAR_MIN = 1,
    DEFAULT_VAR_MAX = 4096
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

static void lower_node(ash_import *im) {
    const ash_onnx_node *node = im->node;
    bool known;
    im->opset = opset_of(im, node->domain);
    im->row = ash_import__find(node->domain, node->op, im->opset, &known);
    /* A function in a domain that has the operator is its definition for those who do not know it. */
    const ash_onnx_function *function = im->row && im->opset ? NULL : ash_import__function(im, node);
    for (size_t i = 0; i < node->n_attrs; i++)
        if (node->attrs[i].ref.len)
            ash_import__fail(im, ASH_ERROR_FORMAT,
                             "attribute '%.*s' refers to an attribute of a function, and is in none",
                             ASH_SPAN_ARG(node->attrs[i].name));
    if (im->row && im->opset == 0 && !function)
        ash_import__fail(im, ASH_ERROR_FORMAT, "the %s does not import the operator set of this domain",
                         im->call ? "function" : "model");
    else if (!im->row && !function)
        ash_import__fail(im, ASH_ERROR_UNSUPPORTED,
                         known ? "this version of the operator is not supported"
                               : "the operator is not supported");
    else if (im->lowered++ == MAX_LOWERED)
        ash_import__fail(im, ASH_ERROR_BUDGET, "the model unrolls to more than %d nodes", MAX_LOWERED);
    else if (function)
        ash_import__call(im, function);
    else if (ash_import__ok(im) && !ash_import__track(im))
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

/* Adds to a failure where it happened. A name that is too long loses its beginning. */
static void locate(ash_import *im, size_t position) {
    const ash_onnx_node *node = im->node;
    char name[2 * ASH_IMPORT_PATH + 1], op[48];
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
    im->diag.node[0] = 0;
    size_t len = strlen(name), room = sizeof im->diag.node - 1;
    char *shown = len > room ? name + len - room : name;
    if (len > room) memcpy(shown, "...", 3);
    ash_diag__add_node(&im->diag, shown, op, node->offset);
}

static void name_node(ash_import *im) {
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
static void drop_absent(const ash_import *im, ash_onnx_node *node) {
    for (size_t k = 0; k < node->n_ins; k++) {
        size_t index = ash_import__find_name(im, node->ins[k]);
        if (index != SIZE_MAX && im->values.at[index].absent) node->ins[k].len = 0;
    }
}

static void import_node(ash_import *im, ash_wire message, size_t position) {
    const ash_onnx_node *outer = im->node;
    ash_arena *outer_scratch = im->scratch, scratch;
    ash_onnx_node node;
    const ash_import_row *outer_row = im->row;
    int64_t outer_opset = im->opset;
    ash_arena_init(&scratch, im->allocator);
    im->status = ash_onnx__node_read(message, &scratch, &node);
    if (im->status == ASH_OK) {
        im->node = &node;
        im->scratch = &scratch;
        if (im->call) ash_import__resolve(im, &node);
        if (im->has_absent) drop_absent(im, &node);
        name_node(im);
        lower_node(im);
        if (ash_import__ok(im)) im->status = ash_graph_status(im->graph, &im->diag);
        check_results(im);
        if (!ash_import__ok(im) && !im->diag.op[0]) locate(im, position);
    }
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

ash_status ash_import__nodes(ash_import *im, ash_wire message, uint32_t number) {
    ash_arena room;
    const ash_wire *nodes;
    size_t count = 0;
    ash_arena_init(&room, im->allocator);
    im->status = ash_import__sorted(im->allocator, message, number, &room, &nodes, &count);
    for (size_t i = 0; i < count && ash_import__ok(im); i++) import_node(im, nodes[i], i);
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
    const ash_import_value value = {.value = ASH_NO_VALUE, .tensor = tensor};
    ash_import__declare(im, tensor->name, &value);
    ash_diag__add_node(&im->diag, NULL, NULL, tensor->offset);
}

static void refuse_sparse(ash_import *im, ash_wire message, size_t position) {
    (void)position;
    im->status =
        ash_fail_at(&im->diag, ASH_ERROR_UNSUPPORTED, ash_wire__offset(&message), "sparse initializers");
}

/* The type that the options say an input is going to have, or NULL. */
static const ash_type *shape_of(const ash_import *im, ash_span input) {
    for (size_t i = 0; i < im->options->n_shapes; i++)
        if (ash_span_is(input, im->options->shapes[i].input)) return im->options->shapes[i].type;
    return NULL;
}

static bool is_in_vars(const ash_import *im, ash_span name) {
    bool named = false;
    for (size_t i = 0; i < im->options->n_vars; i++) named |= ash_span_is(name, im->options->vars[i].name);
    return named;
}

/* What the shape of an input says of names: a name stands for one number. */
static void note_shape(ash_import *im, ash_wire message, size_t position) {
    (void)position;
    ash_onnx_info info;
    im->status = ash_onnx__info_read(message, &info);
    const ash_type *type = im->status == ASH_OK ? shape_of(im, info.name) : NULL;
    if (!type || !info.has_shape) return;
    if (info.rank != type->rank) {
        im->status = ash_fail(&im->diag, ASH_ERROR_INVALID_ARGUMENT,
                              "input '%.*s' has %zu dims, the shape that is given for it %u",
                              ASH_SPAN_ARG(info.name), info.rank, type->rank);
        return;
    }
    for (unsigned i = 0; i < type->rank; i++) {
        ash_span name = info.dims[i].param;
        uint64_t before;
        if (info.dims[i].value >= 0 || !name.len || is_in_vars(im, name)) continue;
        bool known = ash_strmap_get(&im->given, (const char *)name.at, name.len, &before);
        if (known && (int64_t)before != type->dims[i]) {
            im->status = ash_fail(
                &im->diag, ASH_ERROR_INVALID_ARGUMENT,
                "dim '%.*s' is %lld in one of the shapes that are given, and %lld in that of "
                "input '%.*s'",
                ASH_SPAN_ARG(name), (long long)before, (long long)type->dims[i], ASH_SPAN_ARG(info.name));
            return;
        }
        if (!ash_strmap_put(&im->given, (const char *)name.at, name.len, (uint64_t)type->dims[i])) {
            im->status = ASH_NO_MEMORY(&im->diag);
            return;
        }
    }
}

/* The variable of that name, with the bounds that the options say, or the number that they pin it to. */
static ash_dim named_dim(ash_import *im, ash_span text) {
    const ash_onnx_options *o = im->options;
    uint64_t given;
    char *name = ash_arena_strndup(&im->arena, (const char *)text.at, text.len);
    if (!name || !ash_strmap_put(&im->dims, name, text.len, 0))
        return ash_import__fail(im, ASH_ERROR_OUT_OF_MEMORY, "out of memory"), 0;
    int64_t min = o->var_min, max = o->var_max;
    if (min == 0 && max == 0) min = DEFAULT_VAR_MIN, max = DEFAULT_VAR_MAX;
    for (size_t i = 0; i < o->n_vars; i++)
        if (strcmp(o->vars[i].name, name) == 0) min = o->vars[i].min, max = o->vars[i].max;
    if (ash_strmap_get(&im->given, name, text.len, &given)) return (ash_dim)given;
    return min == max && min >= 0 ? min : ash_graph_var(im->graph, name, min, max);
}

static bool is_name_byte(uint8_t c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
           c == '.';
}

/* The next word of an expression: a name, or a number in *number (-1: a name). False: neither is there. */
static bool next_word(ash_span text, size_t *at, ash_span *word, int64_t *number) {
    while (*at < text.len && text.at[*at] == ' ') ++*at;
    word->at = text.at + *at;
    for (word->len = 0; *at < text.len && is_name_byte(text.at[*at]); ++*at) word->len++;
    *number = word->len && word->len < 10 ? 0 : -1;
    for (size_t i = 0; i < word->len && *number >= 0; i++)
        *number = word->at[i] >= '0' && word->at[i] <= '9' ? *number * 10 + (word->at[i] - '0') : -1;
    while (*at < text.len && text.at[*at] == ' ') ++*at;
    return word->len > 0;
}

/* Exporters name dims that depend on one another by expressions, as "past_sequence_length + 1": sums and
 * products of names and numbers, from left to right where that is the order of precedence. With `im` NULL
 * only says whether `text` is one. */
static bool expression_dim(ash_import *im, ash_span text, ash_dim *out) {
    ash_span word;
    int64_t number;
    size_t at = 0, words = 1;
    bool summed = false;
    if (!next_word(text, &at, &word, &number)) return false;
    if (im) *out = number >= 0 ? number : named_dim(im, word);
    for (; at < text.len; words++) {
        uint8_t op = text.at[at++];
        if ((op != '+' && op != '*') || (op == '*' && summed) || !next_word(text, &at, &word, &number))
            return false;
        summed = summed || op == '+';
        if (!im) continue;
        ash_dim next = number >= 0 ? number : named_dim(im, word);
        *out =
            op == '+' ? ash_graph_dim_add(im->graph, *out, next) : ash_graph_dim_mul(im->graph, *out, next);
    }
    return words > 1;
}

/* A dim of an input: a number, a variable, or an expression of variables that the options do not name as a
 * whole. */
static ash_dim input_dim(ash_import *im, const ash_onnx_info *info, unsigned axis) {
    if (info->dims[axis].value >= 0) return info->dims[axis].value;
    ash_span param = info->dims[axis].param;
    ash_text text;
    ash_dim dim = 0;
    const ash_type *shape = shape_of(im, info->name);
    uint64_t given;
    if (param.len) {
        bool whole =
            is_in_vars(im, param) || ash_strmap_get(&im->given, (const char *)param.at, param.len, &given);
        if (!whole && expression_dim(NULL, param, &dim)) return expression_dim(im, param, &dim) ? dim : 0;
        return named_dim(im, param);
    }
    ash_text_init(&text, im->allocator);
    ash_text_add(&text, "%.*s.%u", ASH_SPAN_ARG(info->name), axis);
    ash_span name = {(const uint8_t *)text.at, text.len};
    if (text.failed)
        ash_import__fail(im, ASH_ERROR_OUT_OF_MEMORY, "out of memory");
    else
        dim = shape && !is_in_vars(im, name) ? shape->dims[axis] : named_dim(im, name);
    ash_text_free(&text);
    return dim;
}

static ash_status input_type(ash_import *im, const ash_onnx_info *info, ash_type *type) {
    ash_diag *diag = &im->diag;
    ASH_FAIL_IF(!info->tensor, diag, ASH_ERROR_UNSUPPORTED, "an input that is not a tensor");
    ASH_FAIL_IF(!ash_onnx__dtype(info->dtype, &type->dtype), diag, ASH_ERROR_UNSUPPORTED,
                "an input of type %s (%lld)", ash_onnx__dtype_name(info->dtype), (long long)info->dtype);
    ASH_FAIL_IF(!info->has_shape, diag, ASH_ERROR_UNSUPPORTED, "an input without a shape");
    ASH_FAIL_IF(info->rank > ASH_MAX_RANK, diag, ASH_ERROR_UNSUPPORTED, "an input of more than %d dims",
                ASH_MAX_RANK);
    type->rank = (unsigned)info->rank;
    for (unsigned i = 0; i < type->rank; i++) type->dims[i] = input_dim(im, info, i);
    return im->status;
}

/* The value of an input that the options bind to a tensor. */
static ash_value bound_input(ash_import *im, const char *name, ash_type *type) {
    for (size_t i = 0; i < im->options->n_binds; i++) {
        const ash_onnx_bind *bind = &im->options->binds[i];
        if (strcmp(bind->input, name) != 0) continue;
        *type = *ash_tensor_type(bind->tensor);
        return ash_graph_constant(im->graph, type, ash_tensor_data(bind->tensor),
                                  ash_tensor_size(bind->tensor), ASH_DATA_COPY);
    }
    return ASH_NO_VALUE;
}

/* An input that has an initializer is that initializer: its default value. */
static void declare_input(ash_import *im, ash_wire message, size_t position) {
    (void)position;
    ash_onnx_info info;
    ash_import_value value = {.value = ASH_NO_VALUE};
    im->status = ash_onnx__info_read(message, &info);
    if (im->status != ASH_OK || ash_import__find_name(im, info.name) != SIZE_MAX) return;
    char *name = ash_arena_strndup(&im->arena, (const char *)info.name.at, info.name.len);
    if (!name) {
        im->status = ASH_NO_MEMORY(&im->diag);
        return;
    }
    value.value = bound_input(im, name, &value.type);
    if (value.value == ASH_NO_VALUE && ash_import__ok(im)) {
        im->status = input_type(im, &info, &value.type);
        if (im->status == ASH_OK) value.value = ash_graph_input(im->graph, name, &value.type);
    }
    if (ash_import__ok(im)) im->status = ash_graph_status(im->graph, &im->diag);
    ash_import__declare(im, info.name, &value);
    if (!ash_import__ok(im)) ash_diag__add_node(&im->diag, name, "graph input", info.offset);
}

/* --- outputs -------------------------------------------------------------------------------------- */

static void add_output(ash_import *im, ash_wire message, size_t position) {
    (void)position;
    ash_onnx_info info;
    im->status = ash_onnx__info_read(message, &info);
    if (im->status != ASH_OK) return;
    char *name = ash_arena_strndup(&im->arena, (const char *)info.name.at, info.name.len);
    size_t index = ash_import__find_name(im, info.name);
    if (!name)
        im->status = ASH_NO_MEMORY(&im->diag);
    else if (index == SIZE_MAX)
        ash_import__fail(im, ASH_ERROR_FORMAT, "no node computes this output");
    else
        ash_graph_output(im->graph, name, ash_import__materialize(im, index));
    if (ash_import__ok(im)) im->status = ash_graph_status(im->graph, &im->diag);
    if (!ash_import__ok(im)) ash_diag__add_node(&im->diag, name, "graph output", info.offset);
}

/* --- bodies of control operators ------------------------------------------------------------------ */

/* The next input or output of a body, of which number `k` of `count` is to come. */
static ash_status next_info(ash_import *im, ash_wire *graph, uint32_t number, size_t k, size_t count,
                            ash_onnx_info *info, bool *more) {
    ash_wire message;
    const char *what = number == GRAPH_INPUT ? "inputs" : "outputs";
    ASH_TRY(ash_wire__enter_next(graph, number, &message, more));
    ASH_FAIL_IF(!*more && k != count, &im->diag, ASH_ERROR_FORMAT, "the body has %zu %s, not %zu", k, what,
                count);
    ASH_FAIL_IF(*more && k >= count, &im->diag, ASH_ERROR_FORMAT, "the body has more than %zu %s", count,
                what);
    return *more ? ash_onnx__info_read(message, info) : ASH_OK;
}

static ash_status body_inputs(ash_import *im, ash_wire graph, const size_t *ins, size_t n_ins) {
    for (size_t k = 0;; k++) {
        ash_onnx_info info;
        bool more;
        ASH_TRY(next_info(im, &graph, GRAPH_INPUT, k, n_ins, &info, &more));
        if (!more) return ASH_OK;
        ash_import__alias(im, info.name, ins[k]);
        ASH_TRY(im->status);
    }
}

static ash_status body_outputs(ash_import *im, ash_wire graph, size_t *outs, size_t n_outs) {
    for (size_t k = 0;; k++) {
        ash_onnx_info info;
        bool more;
        ASH_TRY(next_info(im, &graph, GRAPH_OUTPUT, k, n_outs, &info, &more));
        if (!more) return ASH_OK;
        outs[k] = ash_import__find_name(im, info.name);
        ASH_FAIL_IF(outs[k] == SIZE_MAX, &im->diag, ASH_ERROR_FORMAT,
                    "no node computes the body's output '%.*s'", ASH_SPAN_ARG(info.name));
    }
}

static ash_status body(ash_import *im, ash_wire graph, const size_t *ins, size_t n_ins, size_t *outs,
                       size_t n_outs) {
    ASH_TRY(each(im, graph, GRAPH_SPARSE, refuse_sparse));
    ASH_TRY(each(im, graph, GRAPH_INITIALIZER, declare_initializer));
    ASH_TRY(im->status = body_inputs(im, graph, ins, n_ins));
    ASH_TRY(ash_import__nodes(im, graph, ONNX_GRAPH_NODE));
    return im->status = body_outputs(im, graph, outs, n_outs);
}

ash_status ash_import__body(ash_import *im, ash_wire graph, const size_t *ins, size_t n_ins, size_t *outs,
                            size_t n_outs) {
    ASH_TRY(im->status);
    if (im->nesting == MAX_NESTING) {
        ash_import__fail(im, ASH_ERROR_UNSUPPORTED, "graphs nest more than %d deep", MAX_NESTING);
        return im->status;
    }
    ash_import_scope scope = {.parent = im->scope};
    ash_strmap_init(&scope.names, im->allocator);
    im->scope = &scope;
    im->nesting++;
    body(im, graph, ins, n_ins, outs, n_outs);
    im->nesting--;
    im->scope = scope.parent;
    ash_strmap_free(&scope.names);
    return im->status;
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

/* Every name of the options must be one of the model's. */
static ash_status check_options(ash_import *im) {
    const ash_onnx_options *o = im->options;
    for (size_t i = 0; i < o->n_binds; i++) {
        const char *name = o->binds[i].input;
        ASH_FAIL_IF(ash_import__find_name(im, (ash_span){(const uint8_t *)name, strlen(name)}) == SIZE_MAX,
                    &im->diag, ASH_ERROR_NOT_FOUND, "the model has no input '%s' to bind", name);
    }
    for (size_t i = 0; i < o->n_vars; i++) {
        uint64_t found;
        ASH_FAIL_IF(!ash_strmap_get(&im->dims, o->vars[i].name, strlen(o->vars[i].name), &found), &im->diag,
                    ASH_ERROR_NOT_FOUND, "no input of the model has a dim '%s'", o->vars[i].name);
    }
    return ASH_OK;
}

static ash_status import_graph(ash_import *im, ash_context *context, ash_wire message) {
    ash_import_scope scope = {0};
    ash_arena scratch;
    char *name;
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
    ASH_TRY_DONE(each(im, graph, GRAPH_INPUT, note_shape));
    ASH_TRY_DONE(each(im, graph, GRAPH_INPUT, declare_input));
    ASH_TRY_DONE(check_options(im));
    ASH_TRY_DONE(ash_import__nodes(im, graph, ONNX_GRAPH_NODE));
    ASH_TRY_DONE(each(im, graph, GRAPH_OUTPUT, add_output));
done:
    ash_arena_free(&scratch);
    ash_strmap_free(&scope.names);
    return status;
}

static ash_status import_bytes(ash_context *context, const void *data, size_t size,
                               const ash_onnx_options *options, ash_onnx_source source, ash_graph **out,
                               ash_diag *diag) {
    static const ash_onnx_options defaults;
    ash_import im = {.allocator = ash_context__allocator(context),
                     .options = options ? options : &defaults};
    im.source = source;
    ash_arena_init(&im.arena, im.allocator);
    ash_map_init(&im.folded, im.allocator);
    ash_strmap_init(&im.functions, im.allocator);
    im.opsets = &im.model.opsets;
    ash_map_init(&im.masks, im.allocator);
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
    ash_vec_free(im.allocator, &im.found);
    ash_strmap_free(&im.dims);
    ash_strmap_free(&im.given);
    ash_onnx__source_free(&im.source);
    ash_arena_free(&im.arena);
    return status;
}

ash_status ash_onnx_parse(ash_context *context, const void *data, size_t size,
                          const ash_onnx_options *options, ash_graph **out, ash_diag *diag) {
    ASH_FAIL_IF(!context || !out || (!data && size), diag, ASH_ERROR_INVALID_ARGUMENT, "a null argument");
    *out = NULL;
    const ash_onnx_source source = {.allocator = ash_context__allocator(context)};
    return import_bytes(context, data ? data : "", size, options, source, out, diag);
}

ash_status ash_onnx_read(ash_context *context, const char *path, const ash_onnx_options *options,
                         ash_graph **out, ash_diag *diag) {
    ASH_FAIL_IF(!context || !path || !out, diag, ASH_ERROR_INVALID_ARGUMENT, "a null argument");
    *out = NULL;
    const ash_allocator *a = ash_context__allocator(context);
    ash_file *file;
    ASH_TRY(ash_file_map(a, path, &file, diag));
    const char *slash = strrchr(path, '/');
    size_t len = slash ? (size_t)(slash - path) + 1 : 0;
    char *folder = ash_mem_alloc(a, len + 1, 1);
    ash_status status;
    if (!folder) {
        status = ASH_NO_MEMORY(diag);
    } else {
        memcpy(folder, path, len);
        folder[len] = 0;
        const ash_onnx_source source = {
            .allocator = a, .file = file, .folder = folder, .copy_bytes = ASH_ONNX_COPY_BYTES};
        status = import_bytes(context, file->data, file->size, options, source, out, diag);
        ash_mem_free(a, folder, len + 1, 1);
    }
    ash_file_release(file);
    return status;
}
