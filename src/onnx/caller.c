/* SPDX-License-Identifier: MIT */
/* Operators that the caller lowers. */
#include <stdio.h>

#include "import.h"

const ash_onnx_operator *ash_import__given(const ash_import *im, const ash_onnx_node *node) {
    bool is_default = ash_onnx__is_default_domain(node->domain);
    for (size_t i = 0; i < im->options->n_operators; i++) {
        const ash_onnx_operator *given = &im->options->operators[i];
        bool same = is_default ? !given->domain[0] : ash_span_is(node->domain, given->domain);
        if (same && ash_span_is(node->op, given->op)) return given;
    }
    return NULL;
}

void ash_import__lower_given(ash_import *im, const ash_onnx_operator *given) {
    const ash_onnx_node *node = im->node;
    ash_value *ins = ash_arena_alloc(im->scratch, node->n_ins, sizeof *ins);
    ash_value *outs = ash_arena_alloc(im->scratch, node->n_outs, sizeof *outs);
    ash_diag diag;
    if (!ins || !outs) {
        ash_import__fail(im, ASH_ERROR_OUT_OF_MEMORY, "out of memory");
        return;
    }
    for (size_t k = 0; k < node->n_ins && ash_import__ok(im); k++) {
        ins[k] = ash_import__has(im, k) ? ash_import__in(im, k) : ASH_NO_VALUE;
        ash_narrow narrow = ash_import__in_narrow(im, k);
        if (narrow)
            ash_import__fail(im, ASH_ERROR_UNSUPPORTED, "an operand of type %s", ash_narrow_name(narrow));
    }
    for (size_t k = 0; k < node->n_outs; k++) outs[k] = ASH_NO_VALUE;
    if (!ash_import__ok(im)) return;
    const ash_onnx_call call = {.graph = im->graph,
                                .domain = given->domain,
                                .op = given->op,
                                .version = im->opset,
                                .ins = ins,
                                .outs = outs,
                                .n_ins = node->n_ins,
                                .n_outs = node->n_outs,
                                .node = node};
    ash_diag_clear(&diag);
    ash_status status = given->lower(given->user, &call, &diag);
    if (status != ASH_OK && ash_import__ok(im))
        ash_import__fail(im, status, "%s",
                         diag.message[0] ? diag.message : "the caller's lowering has failed");
    for (size_t k = 0; k < node->n_outs && ash_import__ok(im); k++) {
        if (outs[k] != ASH_NO_VALUE && !ash_graph_type(im->graph, outs[k]))
            ash_import__fail(im, ASH_ERROR_INVALID_ARGUMENT,
                             "the caller's result %zu is no value of the graph", k);
        else
            ash_import__out(im, k, outs[k]);
    }
}

/* --- attributes ----------------------------------------------------------------------------------- */

static const ash_onnx_attr *find(const ash_onnx_call *call, const char *name, ash_onnx_attr_type type) {
    const ash_onnx_node *node = call ? call->node : NULL;
    for (size_t i = 0; node && name && i < node->n_attrs; i++)
        if (node->attrs[i].type == (int64_t)type && ash_span_is(node->attrs[i].name, name))
            return &node->attrs[i];
    return NULL;
}

int64_t ash_onnx_call_int(const ash_onnx_call *call, const char *name, int64_t absent) {
    const ash_onnx_attr *attr = find(call, name, ONNX_ATTR_INT);
    if (!call || !name) return 0;
    return attr ? attr->i : absent;
}

double ash_onnx_call_float(const ash_onnx_call *call, const char *name, double absent) {
    const ash_onnx_attr *attr = find(call, name, ONNX_ATTR_FLOAT);
    if (!call || !name) return 0;
    return attr ? (double)attr->f : absent;
}

const int64_t *ash_onnx_call_ints(const ash_onnx_call *call, const char *name, size_t *count) {
    const ash_onnx_attr *attr = find(call, name, ONNX_ATTR_INTS);
    if (count) *count = attr ? attr->n : 0;
    return attr ? attr->ints : NULL;
}

const float *ash_onnx_call_floats(const ash_onnx_call *call, const char *name, size_t *count) {
    const ash_onnx_attr *attr = find(call, name, ONNX_ATTR_FLOATS);
    if (count) *count = attr ? attr->n : 0;
    return attr ? attr->floats : NULL;
}

const char *ash_onnx_call_text(const ash_onnx_call *call, const char *name, size_t *count) {
    const ash_onnx_attr *attr = find(call, name, ONNX_ATTR_STRING);
    if (count) *count = attr ? attr->s.len : 0;
    return attr ? (const char *)attr->s.at : NULL;
}
