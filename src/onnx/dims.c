/* SPDX-License-Identifier: MIT */
/* The dims of a model's inputs: numbers, names, expressions of names, or nothing.
 *
 * What a name stands for is said, in this order, by the options that name it, by the shapes that are known
 * (of inputs that are going to be given, are bound to tensors, or have an initializer), or by the bounds
 * for all others; a name of which nothing is said is open (ir/open.c). An unnamed dim, a dim of -1 and one
 * that is called "?" are unknown each for itself, and are called after their input and axis. */
#include "import.h"

#include "base/text.h"
#include "tensor.h"

/* Field of GraphProto. */
enum { GRAPH_INPUT = 11 };

/* --- names ---------------------------------------------------------------------------------------- */

const ash_onnx_var *ash_import__var(const ash_import *im, ash_span name) {
    for (size_t i = 0; i < im->options->n_vars; i++)
        if (ash_span_is(name, im->options->vars[i].name)) return &im->options->vars[i];
    return NULL;
}

static void fail_with(ash_import *im, ash_status status, const ash_diag *diag) {
    if (!ash_import__ok(im)) return;
    im->status = status;
    im->diag = *diag;
}

static bool has_bounds(const ash_onnx_options *o) {
    return o->var_min || o->var_max;
}

static const ash_onnx_tie *tie_of(const ash_import *im, ash_span name) {
    for (size_t i = 0; i < im->options->n_ties; i++)
        if (ash_span_is(name, im->options->ties[i].name)) return &im->options->ties[i];
    return NULL;
}

static ash_dim tied_dim(ash_import *im, ash_dims *pool, const ash_onnx_tie *tie);

/* What the name is in `pool`: a number, a variable with bounds, or an open one; an expression where the
 * options say so. While the shapes are looked at, what no option names is open. */
static ash_dim named_dim(ash_import *im, ash_dims *pool, ash_span text) {
    const ash_onnx_options *o = im->options;
    const ash_onnx_var *var = ash_import__var(im, text);
    bool learning = pool != im->graph->dims;
    ash_diag diag;
    ash_dim dim = 0;
    uint64_t given;
    ash_diag_clear(&diag);
    char *name = ash_arena_strndup(&im->arena, (const char *)text.at, text.len);
    if (!name || !ash_strmap_put(&im->dims, name, text.len, 0))
        return ash_import__fail(im, ASH_ERROR_OUT_OF_MEMORY, "out of memory"), 0;
    const ash_onnx_tie *tie = tie_of(im, text);
    if (tie) return ash_import__ok(im) ? tied_dim(im, pool, tie) : 0;
    if (ash_strmap_get(&im->given, name, text.len, &given)) return (ash_dim)given;
    int64_t min = var ? var->min : o->var_min, max = var ? var->max : o->var_max;
    bool open = !var && (learning || !has_bounds(o));
    if (!open && min == max && min >= 0) return min;
    ash_status status = open ? ash_dims_add_open(pool, name, &dim, &diag)
                             : ash_dims_add_var(pool, name, min, max, &dim, &diag);
    if (status != ASH_OK) fail_with(im, status, &diag);
    return dim;
}

/* --- expressions ---------------------------------------------------------------------------------- */

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

static ash_dim combine(ash_import *im, ash_dims *pool, ash_dim_op op, ash_dim a, ash_dim b) {
    ash_diag diag;
    ash_dim out = 0;
    ash_diag_clear(&diag);
    ash_status status = ash_dims_combine(pool, op, a, b, &out, &diag);
    if (status != ASH_OK) fail_with(im, status, &diag);
    return out;
}

/* Exporters name dims that depend on one another by expressions, as "past_sequence_length + 1": sums and
 * products of names and numbers, parts of them in parentheses. Differences are names: what could be
 * negative is no dim. */
typedef struct expression {
    ash_import *im;
    ash_dims *pool; /* NULL: it is only looked at */
    ash_span text;
    size_t at;          /* bytes read */
    unsigned operators; /* so far, parentheses among them */
    unsigned depth;     /* parentheses that are open */
} expression;

static bool parse_sum(expression *e, ash_dim *out);

static bool parse_factor(expression *e, ash_dim *out) {
    enum { MOST_DEPTH = 16 };
    ash_span word;
    int64_t number;
    while (e->at < e->text.len && e->text.at[e->at] == ' ') e->at++;
    if (e->at < e->text.len && e->text.at[e->at] == '(') {
        e->at++, e->operators++;
        if (++e->depth > MOST_DEPTH || !parse_sum(e, out)) return false;
        if (e->at == e->text.len || e->text.at[e->at] != ')') return false;
        e->depth--;
        for (e->at++; e->at < e->text.len && e->text.at[e->at] == ' ';) e->at++;
        return true;
    }
    if (!next_word(e->text, &e->at, &word, &number)) return false;
    if (e->pool) *out = number >= 0 ? number : named_dim(e->im, e->pool, word);
    return true;
}

/* Factors with a '*' between them, or terms with a '+'. */
static bool parse_list(expression *e, uint8_t sign, bool (*part)(expression *e, ash_dim *out),
                       ash_dim *out) {
    if (!part(e, out)) return false;
    while (e->at < e->text.len && e->text.at[e->at] == sign) {
        ash_dim next = 0;
        e->at++, e->operators++;
        if (!part(e, &next)) return false;
        if (e->pool) *out = combine(e->im, e->pool, sign == '+' ? ASH_DIM_ADD : ASH_DIM_MUL, *out, next);
    }
    return true;
}

static bool parse_product(expression *e, ash_dim *out) {
    return parse_list(e, '*', parse_factor, out);
}

static bool parse_sum(expression *e, ash_dim *out) {
    return parse_list(e, '+', parse_product, out);
}

/* Whether a text is one; *out is what it is in `pool`, which may be NULL. */
static bool expression_dim(ash_import *im, ash_dims *pool, ash_span text, ash_dim *out) {
    expression e = {.im = im, .pool = pool, .text = text};
    return parse_sum(&e, out) && e.at == text.len && e.operators > 0;
}

/* A name that the options say is an expression of others. */
static ash_dim tied_dim(ash_import *im, ash_dims *pool, const ash_onnx_tie *tie) {
    enum { MOST_TIES = 16 };
    const ash_span text = {(const uint8_t *)tie->expression, strlen(tie->expression)};
    expression e = {.im = im, .text = text};
    ash_dim dim = 0;
    if (!parse_sum(&e, &dim) || e.at != text.len) {
        ash_import__fail(im, ASH_ERROR_INVALID_ARGUMENT,
                         "dim '%s' is tied to '%s', which is no sum or product of names and numbers",
                         tie->name, tie->expression);
        return 0;
    }
    if (im->ties == MOST_TIES) {
        ash_import__fail(im, ASH_ERROR_INVALID_ARGUMENT,
                         "dim '%s' is tied to itself, or over too many others", tie->name);
        return 0;
    }
    im->ties++;
    e = (expression){.im = im, .pool = pool, .text = text};
    parse_sum(&e, &dim);
    im->ties--;
    return dim;
}

/* --- types ---------------------------------------------------------------------------------------- */

/* A name that says no more than that the dim is not known. */
static bool is_placeholder(ash_span name) {
    return ash_span_is(name, "?") || name.len == 0;
}

/* A dim of an input: a number, a variable, or an expression of variables that the options do not name as a
 * whole. */
static ash_dim input_dim(ash_import *im, ash_dims *pool, const ash_onnx_info *info, unsigned axis) {
    if (info->dims[axis].value >= 0) return info->dims[axis].value;
    ash_span param = info->dims[axis].param;
    ash_text text;
    ash_dim dim = 0;
    if (!is_placeholder(param)) {
        if (!ash_import__var(im, param) && expression_dim(im, NULL, param, &dim))
            return expression_dim(im, pool, param, &dim) ? dim : 0;
        return named_dim(im, pool, param);
    }
    ash_text_init(&text, im->allocator);
    ash_text_add(&text, "%.*s.%u", ASH_SPAN_ARG(info->name), axis);
    if (text.failed)
        ash_import__fail(im, ASH_ERROR_OUT_OF_MEMORY, "out of memory");
    else
        dim = named_dim(im, pool, (ash_span){(const uint8_t *)text.at, text.len});
    ash_text_free(&text);
    return dim;
}

ash_status ash_import__input_type(ash_import *im, const ash_onnx_info *info, ash_type *type,
                                  ash_narrow *narrow) {
    ash_diag *diag = &im->diag;
    ash_onnx_element element;
    ASH_FAIL_IF(!info->tensor, diag, ASH_ERROR_UNSUPPORTED,
                "an input that is neither a tensor nor a sequence of such");
    ASH_FAIL_IF(
        info->dtype == ONNX_STRING, diag, ASH_ERROR_UNSUPPORTED,
        "an input of type string (8): tensors have numbers alone. Cut the model behind what its strings "
        "become (a vocabulary's indices, a one-hot row), compute that outside, and give it as input");
    ASH_FAIL_IF(!ash_onnx__element(info->dtype, &element), diag, ASH_ERROR_UNSUPPORTED,
                "an input of type %s (%lld)", ash_onnx__dtype_name(info->dtype), (long long)info->dtype);
    type->dtype = element.dtype, *narrow = element.narrow;
    ASH_FAIL_IF(!info->has_shape, diag, ASH_ERROR_UNSUPPORTED, "an input without a shape");
    ASH_FAIL_IF(info->rank > ASH_MAX_RANK, diag, ASH_ERROR_UNSUPPORTED, "an input of more than %d dims",
                ASH_MAX_RANK);
    type->rank = (unsigned)info->rank;
    for (unsigned i = 0; i < type->rank; i++) type->dims[i] = input_dim(im, im->graph->dims, info, i);
    return im->status;
}

/* --- what shapes say of names ----------------------------------------------------------------------- */

/* An input with the shape that is known of it. */
typedef struct known_shape {
    ash_span name;
    ash_type shape; /* dims of the pool */
    unsigned rank;
    int64_t dims[ASH_MAX_RANK];
} known_shape;

typedef struct learner {
    ash_dims *pool;
    ASH_VEC(known_shape) shapes;
    int64_t *sizes, *room; /* per variable of the pool, -1: not known */
    size_t n;
} learner;

/* The shape that an input is known to have: false where nothing is. *said: by the options. */
static bool find_shape(ash_import *im, ash_span input, known_shape *out, bool *said) {
    const ash_type *type = NULL;
    *said = false;
    for (size_t i = 0; i < im->options->n_binds && !type; i++)
        if (ash_span_is(input, im->options->binds[i].input))
            type = ash_tensor_type(im->options->binds[i].tensor);
    size_t value = ash_import__find_name(im, input);
    if (!type && value != SIZE_MAX && im->values.at[value].tensor) {
        const ash_onnx_tensor *tensor = im->values.at[value].tensor;
        out->rank = tensor->rank;
        memcpy(out->dims, tensor->dims, tensor->rank * sizeof *out->dims);
        return true;
    }
    for (size_t i = 0; i < im->options->n_shapes && !type; i++)
        if (ash_span_is(input, im->options->shapes[i].input)) {
            type = im->options->shapes[i].type;
            *said = true;
        }
    if (!type) return false;
    out->rank = type->rank;
    memcpy(out->dims, type->dims, type->rank * sizeof *out->dims);
    return true;
}

static ash_status note_shape(ash_import *im, learner *l, ash_wire message) {
    known_shape known;
    ash_onnx_info info;
    bool said;
    ASH_TRY(im->status = ash_onnx__info_read(message, &info));
    if (!info.has_shape || info.sequence || !find_shape(im, info.name, &known, &said)) return ASH_OK;
    if (info.rank != known.rank && said)
        ash_import__fail(im, ASH_ERROR_INVALID_ARGUMENT,
                         "input '%.*s' has %zu dims, the shape that is given for it %u",
                         ASH_SPAN_ARG(info.name), info.rank, known.rank);
    if (info.rank != known.rank) return im->status;
    known.name = info.name;
    known.shape = (ash_type){.rank = known.rank};
    for (unsigned i = 0; i < known.rank; i++) known.shape.dims[i] = input_dim(im, l->pool, &info, i);
    if (ash_import__ok(im) && !ash_vec_push(im->allocator, &l->shapes, known))
        ash_import__fail(im, ASH_ERROR_OUT_OF_MEMORY, "out of memory");
    return im->status;
}

/* Adds what one shape says; a name stands for one number. */
static ash_status learn(ash_import *im, const learner *l, const known_shape *known) {
    memcpy(l->room, l->sizes, l->n * sizeof *l->room);
    ASH_TRY(im->status = ash_dims_learn(l->pool, &known->shape, known->dims, l->room, &im->diag));
    for (size_t v = 0; v < l->n; v++) {
        if (l->sizes[v] >= 0 && l->room[v] != l->sizes[v])
            ash_import__fail(im, ASH_ERROR_INVALID_ARGUMENT,
                             "dim '%s' is %lld in one of the shapes that are given, and %lld in that of "
                             "input '%.*s'",
                             ash_dims_var(l->pool, v)->name, (long long)l->sizes[v], (long long)l->room[v],
                             ASH_SPAN_ARG(known->name));
    }
    memcpy(l->sizes, l->room, l->n * sizeof *l->room);
    return im->status;
}

/* An expression must be able to have the value that is given. */
static ash_status check(ash_import *im, const learner *l, const known_shape *known) {
    for (unsigned i = 0; i < known->rank && ash_import__ok(im); i++) {
        ash_dim dim = known->shape.dims[i];
        int64_t given = known->dims[i], least = ash_dims_present(l->pool, dim, l->sizes), most = least;
        uint32_t var;
        if (dim >= 0 || ash_dims_is_var(l->pool, dim, &var)) continue; /* an input in another shape */
        if (least < 0) ash_dims_bounds(l->pool, dim, &least, &most);
        if (given >= least && given <= most) continue;
        ash_text text;
        ash_text_init(&text, im->allocator);
        ash_dims_print(l->pool, dim, &text);
        ash_text_add(&text, " with ");
        ash_type_print_vars(l->pool, &(ash_type){.rank = 1, .dims = {dim}}, l->sizes, &text);
        ash_import__fail(
            im, ASH_ERROR_INVALID_ARGUMENT,
            "dim %u of input '%.*s' is %lld in the shape that is given, and cannot be: it is %s", i,
            ASH_SPAN_ARG(known->name), (long long)given, text.failed ? "" : text.at);
        ash_text_free(&text);
    }
    return im->status;
}

/* Twice: an expression may need what a later shape says. */
static ash_status learn_all(ash_import *im, learner *l) {
    l->n = ash_dims_var_count(l->pool);
    l->sizes = ash_arena_alloc(&im->arena, l->n, sizeof *l->sizes);
    l->room = ash_arena_alloc(&im->arena, l->n, sizeof *l->room);
    if (!l->sizes || !l->room) return im->status = ASH_NO_MEMORY(&im->diag);
    for (size_t v = 0; v < l->n; v++) l->sizes[v] = -1;
    for (size_t i = 0; i < 2 * l->shapes.len; i++) ASH_TRY(learn(im, l, &l->shapes.at[i % l->shapes.len]));
    for (size_t i = 0; i < l->shapes.len; i++) ASH_TRY(check(im, l, &l->shapes.at[i]));
    for (size_t v = 0; v < l->n; v++) {
        if (l->sizes[v] < 0 || !ash_dims_var(l->pool, v)->open) continue; /* or an option says its bounds */
        const char *pooled = ash_dims_var(l->pool, v)->name;
        char *name = ash_arena_strdup(&im->arena, pooled);
        if (!name || !ash_strmap_put(&im->given, name, strlen(name), (uint64_t)l->sizes[v]) ||
            !ash_vec_push(im->allocator, &im->learned, (ash_onnx_var){name, l->sizes[v], l->sizes[v]}))
            return im->status = ASH_NO_MEMORY(&im->diag);
    }
    return ASH_OK;
}

ash_status ash_import__learn_dims(ash_import *im, ash_wire graph) {
    learner l = {0};
    ASH_TRY(im->status = ash_dims_create(im->allocator, &l.pool, &im->diag));
    for (;;) {
        ash_wire message;
        bool more;
        im->status = ash_wire__enter_next(&graph, GRAPH_INPUT, &message, &more);
        if (im->status != ASH_OK || !more || note_shape(im, &l, message) != ASH_OK) break;
    }
    if (ash_import__ok(im) && l.shapes.len) learn_all(im, &l);
    ash_vec_free(im->allocator, &l.shapes);
    ash_dims_release(l.pool);
    return im->status;
}
