/* SPDX-License-Identifier: MIT */
/* Models with open dims: the recipe of an open graph is the model itself, with the options that it was read
 * with. A graph for given sizes is an ordinary import in which the open names are numbers, so that shape
 * computations of the model become plain numbers, and models that cannot be expressed with variables can be
 * used all the same. */
#include <limits.h>
#include <stdlib.h>

#include "base/text.h"
#include "import.h"
#include "tensor.h"

typedef struct model_recipe {
    ash_recipe recipe;
    const ash_allocator *allocator;
    ash_arena arena;          /* all copies */
    ash_onnx_source source;   /* file and path; or `file` NULL, and the bytes in the arena */
    ash_span bytes;           /* of the model */
    ash_onnx_options options; /* without shapes: what they said is in the vars */
    size_t n_tensors;         /* of the binds, that are held */
} model_recipe;

static void release(ash_recipe *recipe) {
    model_recipe *r = (model_recipe *)recipe;
    for (size_t i = 0; i < r->n_tensors; i++) ash_tensor_destroy((ash_tensor *)r->options.binds[i].tensor);
    ash_file_release(r->source.file);
    ash_arena_free(&r->arena);
    ash_mem_free(r->allocator, r, 1, sizeof *r);
}

/* --- copies ----------------------------------------------------------------------------------------- */

/* The options' variables, and what the shapes said of others. */
static ash_status copy_vars(const ash_import *im, model_recipe *r, ash_diag *diag) {
    const ash_onnx_options *o = im->options;
    size_t n = 0;
    ash_onnx_var *vars = ash_arena_alloc(&r->arena, o->n_vars + im->learned.len, sizeof *vars);
    if (!vars) return ASH_NO_MEMORY(diag);
    for (; n < o->n_vars; n++) {
        vars[n] = o->vars[n];
        if (!(vars[n].name = ash_arena_strdup(&r->arena, o->vars[n].name))) return ASH_NO_MEMORY(diag);
    }
    for (size_t i = 0; i < im->learned.len; i++, n++) {
        vars[n] = im->learned.at[i];
        if (!(vars[n].name = ash_arena_strdup(&r->arena, vars[n].name))) return ASH_NO_MEMORY(diag);
    }
    r->options.vars = vars;
    r->options.n_vars = n;
    return ASH_OK;
}

static ash_status copy_binds(const ash_import *im, model_recipe *r, ash_diag *diag) {
    const ash_onnx_options *o = im->options;
    ash_onnx_bind *binds = ash_arena_alloc(&r->arena, o->n_binds, sizeof *binds);
    if (!binds) return ASH_NO_MEMORY(diag);
    r->options.binds = binds;
    for (size_t i = 0; i < o->n_binds; i++) {
        const ash_tensor *from = o->binds[i].tensor;
        ash_tensor *copy;
        if (!(binds[i].input = ash_arena_strdup(&r->arena, o->binds[i].input))) return ASH_NO_MEMORY(diag);
        ASH_TRY(ash_tensor__name(im->source.context, from->name, strlen(from->name),
                                 ash_view_retain(from->view), &copy, diag));
        binds[i].tensor = copy;
        r->options.n_binds = r->n_tensors = i + 1;
    }
    return ASH_OK;
}

static ash_status copy_sequences(const ash_import *im, model_recipe *r, ash_diag *diag) {
    const ash_onnx_options *o = im->options;
    ash_onnx_sequence *sequences =
        ash_arena_copy(&r->arena, o->sequences, o->n_sequences, sizeof *sequences);
    if (!sequences) return ASH_NO_MEMORY(diag);
    for (size_t i = 0; i < o->n_sequences; i++) {
        const ash_onnx_sequence *from = &o->sequences[i];
        sequences[i].input = ash_arena_strdup(&r->arena, from->input);
        sequences[i].types = ash_arena_copy(&r->arena, from->types, from->length, sizeof *from->types);
        if (!sequences[i].input || !sequences[i].types) return ASH_NO_MEMORY(diag);
    }
    r->options.sequences = sequences;
    r->options.n_sequences = o->n_sequences;
    return ASH_OK;
}

static ash_status copy_ties(const ash_import *im, model_recipe *r, ash_diag *diag) {
    const ash_onnx_options *o = im->options;
    ash_onnx_tie *ties = ash_arena_alloc(&r->arena, o->n_ties, sizeof *ties);
    if (!ties) return ASH_NO_MEMORY(diag);
    for (size_t i = 0; i < o->n_ties; i++) {
        ties[i].name = ash_arena_strdup(&r->arena, o->ties[i].name);
        ties[i].expression = ash_arena_strdup(&r->arena, o->ties[i].expression);
        if (!ties[i].name || !ties[i].expression) return ASH_NO_MEMORY(diag);
    }
    r->options.ties = ties;
    r->options.n_ties = o->n_ties;
    return ASH_OK;
}

static ash_status copy_operators(const ash_import *im, model_recipe *r, ash_diag *diag) {
    const ash_onnx_options *o = im->options;
    ash_onnx_operator *operators =
        ash_arena_copy(&r->arena, o->operators, o->n_operators, sizeof *operators);
    if (!operators) return ASH_NO_MEMORY(diag);
    for (size_t i = 0; i < o->n_operators; i++) {
        operators[i].domain = ash_arena_strdup(&r->arena, o->operators[i].domain);
        operators[i].op = ash_arena_strdup(&r->arena, o->operators[i].op);
        if (!operators[i].domain || !operators[i].op) return ASH_NO_MEMORY(diag);
    }
    r->options.operators = operators;
    r->options.n_operators = o->n_operators;
    return ASH_OK;
}

/* The model's path, by which external data are found, whatever the process' folder is by then: its folder
 * is resolved, its own name stays, which may be a link. */
static ash_status copy_path(const ash_import *im, model_recipe *r, ash_diag *diag) {
    const char *path = im->source.path, *slash = path ? strrchr(path, '/') : NULL;
    char real[PATH_MAX + 1];
    if (!path) return ASH_OK;
    ash_text text;
    ash_text_init(&text, r->allocator);
    ash_text_add(&text, "%.*s", slash ? (int)(slash - path) + 1 : 1, slash ? path : ".");
    ash_status status = ash_text_status(&text, diag);
    bool found = status == ASH_OK && realpath(text.at, real);
    text.len = 0;
    if (found)
        ash_text_add(&text, "%s/%s", strcmp(real, "/") == 0 ? "" : real, slash ? slash + 1 : path);
    else
        ash_text_add(&text, "%s", path);
    if (status == ASH_OK) status = ash_text_status(&text, diag);
    if (status == ASH_OK && !(r->source.path = ash_arena_strdup(&r->arena, text.at)))
        status = ASH_NO_MEMORY(diag);
    ash_text_free(&text);
    return status;
}

static ash_status copy_outputs(const ash_import *im, model_recipe *r, ash_diag *diag) {
    const char **names = ash_arena_alloc(&r->arena, im->output_names.len, sizeof *names);
    if (!names) return ASH_NO_MEMORY(diag);
    for (size_t i = 0; i < im->output_names.len; i++)
        if (!(names[i] = ash_arena_strdup(&r->arena, im->output_names.at[i]))) return ASH_NO_MEMORY(diag);
    r->recipe.outputs = names;
    r->recipe.n_outputs = im->output_names.len;
    return ASH_OK;
}

static ash_status copy_all(const ash_import *im, model_recipe *r, ash_diag *diag) {
    r->options.parameters = im->options->parameters;
    r->options.max_bytes = im->options->max_bytes;
    ASH_TRY(copy_vars(im, r, diag));
    ASH_TRY(copy_binds(im, r, diag));
    ASH_TRY(copy_sequences(im, r, diag));
    ASH_TRY(copy_ties(im, r, diag));
    ASH_TRY(copy_operators(im, r, diag));
    ASH_TRY(copy_path(im, r, diag));
    ASH_TRY(copy_outputs(im, r, diag));
    r->bytes = im->bytes;
    r->source.allocator = r->allocator;
    r->source.copy_bytes = im->source.copy_bytes;
    if (im->source.file) {
        r->source.file = ash_file_retain(im->source.file);
    } else {
        r->bytes.at = ash_arena_copy(&r->arena, im->bytes.at, im->bytes.len, 1);
        if (!r->bytes.at) return ASH_NO_MEMORY(diag);
    }
    return ASH_OK;
}

/* --- the recipe ------------------------------------------------------------------------------------- */

static ash_status make(const ash_recipe *recipe, ash_context *context, const ash_dims *dims,
                       const int64_t *sizes, ash_graph **out, ash_diag *diag) {
    const model_recipe *r = (const model_recipe *)recipe;
    const ash_allocator *a = r->allocator;
    size_t n = r->options.n_vars, room = n + ash_dims_var_count(dims);
    ash_onnx_source source = r->source;
    source.context = context;
    if (source.file) ASH_TRY(ash_file_check(source.file, diag));
    ash_onnx_var *vars = ash_mem_alloc(a, room, sizeof *vars);
    if (!vars) return ASH_NO_MEMORY(diag);
    if (n) memcpy(vars, r->options.vars, n * sizeof *vars);
    for (size_t v = 0; v < ash_dims_var_count(dims); v++) {
        const ash_var *var = ash_dims_var(dims, v);
        if (var->open) vars[n++] = (ash_onnx_var){var->name, sizes[v], sizes[v]};
    }
    ash_onnx_options options = r->options;
    options.vars = vars;
    options.n_vars = n;
    ash_status status = ash_import__bytes(context, r->bytes.at, r->bytes.len, &options, source, out, diag);
    ash_mem_free(a, vars, room, sizeof *vars);
    return status;
}

ash_status ash_import__make_recipe(ash_import *im) {
    model_recipe *r = ash_mem_calloc(im->allocator, 1, sizeof *r);
    if (!r) return im->status = ASH_NO_MEMORY(&im->diag);
    r->recipe = (ash_recipe){.refs = 1, .make = make, .release = release};
    r->allocator = im->allocator;
    ash_arena_init(&r->arena, im->allocator);
    im->status = copy_all(im, r, &im->diag);
    if (im->status != ASH_OK)
        release(&r->recipe);
    else
        im->graph->recipe = &r->recipe;
    return im->status;
}
