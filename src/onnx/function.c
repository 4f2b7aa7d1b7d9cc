/* SPDX-License-Identifier: MIT */
/* Functions that a model defines (ModelProto.functions). A node that names one is replaced by the
 * function's nodes: exporters write whole networks this way. A function sees its own operands and the
 * operator sets that it imports itself, nothing of the graph around the call. Expanding is bounded:
 * functions that call themselves are refused, and every node counts. */
#include <stdio.h>

#include "import.h"

enum { MAX_CALLS = 64 /* calls inside calls */ };

/* "domain\0name\0overload"; the default domain is empty. NULL when there is no memory. */
static char *key(ash_arena *arena, ash_span domain, ash_span name, ash_span overload, size_t *len) {
    if (ash_onnx__is_default_domain(domain)) domain.len = 0;
    const ash_span parts[] = {domain, name, overload};
    *len = domain.len + name.len + overload.len + 2;
    char *text = ash_arena_alloc(arena, *len, 1), *at = text;
    for (size_t i = 0; text && i < ASH_COUNT(parts); at += parts[i++].len + 1)
        if (parts[i].len) memcpy(at, parts[i].at, parts[i].len);
    return text;
}

ash_status ash_import__functions(ash_import *im) {
    for (size_t i = 0; i < im->model.n_functions; i++) {
        const ash_onnx_function *f = &im->model.functions[i];
        size_t len;
        uint64_t other;
        char *text = key(&im->arena, f->domain, f->name, f->overload, &len);
        if (!text) return ASH_NO_MEMORY(&im->diag);
        if (ash_strmap_get(&im->functions, text, len, &other))
            return ash_fail_at(&im->diag, ASH_ERROR_FORMAT, ash_wire__offset(&f->body),
                               "the function '%.*s' is defined twice", ASH_SPAN_ARG(f->name));
        if (!ash_strmap_put(&im->functions, text, len, i)) return ASH_NO_MEMORY(&im->diag);
    }
    return ASH_OK;
}

const ash_onnx_function *ash_import__function(ash_import *im, const ash_onnx_node *node) {
    size_t len;
    uint64_t index;
    if (im->model.n_functions == 0) return NULL;
    const char *text = key(im->scratch, node->domain, node->op, node->overload, &len);
    if (!text) ash_import__fail(im, ASH_ERROR_OUT_OF_MEMORY, "out of memory");
    return text && ash_strmap_get(&im->functions, text, len, &index) ? &im->model.functions[index] : NULL;
}

/* --- what a call gives ---------------------------------------------------------------------------- */

static const ash_onnx_attr *find(const ash_onnx_attr *attrs, size_t n, ash_span name) {
    for (size_t i = 0; i < n; i++)
        if (ash_span_equal(attrs[i].name, name)) return &attrs[i];
    return NULL;
}

void ash_import__resolve(ash_import *im, ash_onnx_node *node) {
    const ash_onnx_node *call = im->call->node;
    const ash_onnx_function *f = im->call->function;
    size_t kept = 0;
    ash_onnx_attr *attrs = ash_arena_alloc(im->scratch, node->n_attrs, sizeof *attrs);
    if (!attrs) {
        ash_import__fail(im, ASH_ERROR_OUT_OF_MEMORY, "out of memory");
        return;
    }
    for (size_t i = 0; i < node->n_attrs; i++) {
        ash_onnx_attr attr = node->attrs[i];
        if (attr.ref.len) {
            const ash_onnx_attr *given = find(call->attrs, call->n_attrs, attr.ref);
            if (!given) given = find(f->attrs, f->n_attrs, attr.ref);
            if (!given) continue;
            if (given->type == ONNX_ATTR_GRAPH)
                ash_import__fail(im, ASH_ERROR_UNSUPPORTED, "a graph as the attribute '%.*s' of a function",
                                 ASH_SPAN_ARG(attr.ref));
            const ash_span name = attr.name;
            attr = *given;
            attr.name = name;
        }
        attrs[kept++] = attr;
    }
    node->attrs = attrs;
    node->n_attrs = kept;
}

/* The entries of the function's operands, in the caller's scope. */
static bool operands(ash_import *im, const ash_onnx_function *f, size_t *ins) {
    if (im->node->n_ins > f->n_ins || im->node->n_outs > f->n_outs) {
        ash_import__fail(im, ASH_ERROR_FORMAT,
                         "%zu operands and %zu results of a function that has %zu and %zu", im->node->n_ins,
                         im->node->n_outs, f->n_ins, f->n_outs);
        return false;
    }
    for (size_t k = 0; k < f->n_ins && ash_import__ok(im); k++) {
        ins[k] = SIZE_MAX;
        if (!ash_import__has(im, k)) continue;
        ins[k] = ash_import__find_name(im, im->node->ins[k]);
        if (ins[k] == SIZE_MAX)
            ash_import__fail(im, ASH_ERROR_FORMAT, "operand %zu, '%.*s', is not defined before its use", k,
                             ASH_SPAN_ARG(im->node->ins[k]));
    }
    return ash_import__ok(im);
}

static void body(ash_import *im, const ash_onnx_function *f, const size_t *ins, size_t *outs) {
    const ash_onnx_node *call = im->node;
    const ash_import_value absent = {.value = ASH_NO_VALUE, .absent = true};
    for (size_t k = 0; k < f->n_ins; k++) {
        if (ins[k] == SIZE_MAX)
            ash_import__declare(im, f->ins[k], &absent);
        else
            ash_import__alias(im, f->ins[k], ins[k]);
    }
    if (!ash_import__ok(im) || ash_import__function_nodes(im, f->body) != ASH_OK) return;
    for (size_t k = 0; k < call->n_outs; k++) {
        outs[k] = ash_import__find_name(im, f->outs[k]);
        if (outs[k] == SIZE_MAX || im->values.at[outs[k]].absent)
            ash_import__fail(im, ASH_ERROR_FORMAT, "no node of the function computes its result '%.*s'",
                             ASH_SPAN_ARG(f->outs[k]));
    }
}

void ash_import__call(ash_import *im, const ash_onnx_function *f) {
    ash_import_call call = {.outer = im->call, .function = f, .node = im->node};
    ash_import_scope scope = {0}, *outer_scope = im->scope;
    const ash_onnx_opsets *outer_opsets = im->opsets;
    ash_span label = ash_import__label(im->node);
    for (const ash_import_call *c = im->call; c; c = c->outer)
        if (c->function == f)
            ash_import__fail(im, ASH_ERROR_FORMAT, "the function '%.*s' calls itself",
                             ASH_SPAN_ARG(f->name));
    if (im->calls == MAX_CALLS)
        ash_import__fail(im, ASH_ERROR_UNSUPPORTED, "functions nest more than %d deep", MAX_CALLS);
    size_t *ins = ash_arena_alloc(im->scratch, f->n_ins, sizeof *ins);
    size_t *outs = ash_arena_alloc(im->scratch, f->n_outs, sizeof *outs);
    if (!ins || !outs) ash_import__fail(im, ASH_ERROR_OUT_OF_MEMORY, "out of memory");
    if (!ash_import__ok(im) || !operands(im, f, ins)) return;
    if (snprintf(call.path, sizeof call.path, "%s%.*s/", im->call ? im->call->path : "",
                 ASH_SPAN_ARG(label)) >= (int)sizeof call.path)
        call.path[sizeof call.path - 2] = '/';
    ash_strmap_init(&scope.names, im->allocator);
    im->scope = &scope;
    im->opsets = &f->opsets;
    im->call = &call;
    im->calls++;
    body(im, f, ins, outs);
    im->calls--;
    im->call = call.outer;
    im->opsets = outer_opsets;
    im->scope = outer_scope;
    ash_strmap_free(&scope.names);
    for (size_t k = 0; k < im->node->n_outs; k++)
        if (ash_import__wants(im, k)) ash_import__alias(im, im->node->outs[k], outs[k]);
}
