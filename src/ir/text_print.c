/* SPDX-License-Identifier: MIT */
/* The text form of a graph, written:
 *
 *   graph "net"
 *   var batch 1 64
 *   var found settled (10*batch)
 *   equal batch (2*div(batch, 2))
 *   %0: f32[batch, 3] = input "x"
 *   %1: f32[3, 64] = parameter "w" hex "0000803f..."
 *   %2: f32[] = constant {0.5}
 *   %3: f32[batch, 64] = matmul(%0, %1) b_block=0 n=0 @"fc"
 *   %4: f32[8, 64] = state "cache" zero
 *   %5: f32[batch, 4], %6: i64[batch] = custom(%3) function="peaks" chunks=batch scratch=0 duration=0
 *   ...
 *   update %4 = %9
 *   output "y" = %3
 *
 * A statement a line: all variables in order (with bounds, or with the limit of what a node settles), the
 * conditions on them (dims that must be equal), then all values by id, then the updates of states, then
 * the outputs. Data is in memory order (little endian), two digits a byte; few elements are written as
 * numbers where that gives the same bits. What follows @ is the node's name, and before it, where it is
 * placed (ash_graph_place), the number of a device: `@1 @"fc"`; that of a state stands behind its data.
 * `internal` behind the graph's name: its
 * nodes may be in the forms that passes choose for one target. What is printed is parsed back as an equal
 * graph: ids, names, shapes and data. */
#include <math.h>

#include "inside.h"
#include "scan.h"

typedef struct printer {
    const ash_graph *graph;
    ash_text *out;
    bool with_data;
} printer;

/* --- data ----------------------------------------------------------------------------------------- */

enum { FEW = 8 }; /* elements that are written as numbers */

/* Element i as a number: a double for floating point, else an integer; false when numbers would lose
 * bits. */
static bool load_element(ash_dtype dtype, const void *data, size_t i, double *f, int64_t *n) {
    float single;
    size_t size = ash_dtype_size(dtype);
    const char *at = (const char *)data + i * size;
    bool is_signed = ash_dtype_kind(dtype) == ASH_KIND_SIGNED;
    switch (dtype) {
    case ASH_F32: return memcpy(&single, at, size), *f = single, !isnan(single);
    case ASH_F64: return memcpy(f, at, size), !isnan(*f);
    case ASH_F16:
    case ASH_BF16: return false;
    default: break;
    }
    *n = is_signed && (at[size - 1] & 0x80) ? -1 : 0;
    memcpy(n, at, size);
    return is_signed || *n >= 0;
}

static bool print_numbers(printer *p, ash_dtype dtype, const ash_blob *blob) {
    size_t count = blob->size / ash_dtype_size(dtype);
    double f;
    int64_t n;
    for (size_t i = 0; i < count; i++)
        if (count > FEW || !load_element(dtype, blob->data, i, &f, &n)) return false;
    ash_text_add(p->out, "{");
    for (size_t i = 0; i < count; i++) {
        load_element(dtype, blob->data, i, &f, &n);
        if (i) ash_text_add(p->out, ", ");
        if (ash_dtype_is_float(dtype))
            ash_text__add_float(p->out, f, dtype == ASH_F32);
        else
            ash_text_add(p->out, "%lld", (long long)n);
    }
    ash_text_add(p->out, "}");
    return true;
}

static void print_hex(printer *p, const ash_blob *blob) {
    static const char digits[] = "0123456789abcdef";
    const unsigned char *bytes = blob->data;
    char chunk[4096];
    size_t used = 0;
    ash_text_add(p->out, "hex \"");
    for (size_t i = 0; i < blob->size && !p->out->failed; i++) {
        chunk[used++] = digits[bytes[i] >> 4];
        chunk[used++] = digits[bytes[i] & 15];
        if (used < sizeof chunk) continue;
        ash_text_add_bytes(p->out, chunk, used);
        used = 0;
    }
    ash_text_add_bytes(p->out, chunk, used);
    ash_text_add(p->out, "\"");
}

/* --- statements ----------------------------------------------------------------------------------- */

static void print_leaf(printer *p, const ash_value_info *info) {
    static const char *const kinds[] = {[ASH_VALUE_INPUT] = "input",
                                        [ASH_VALUE_CONSTANT] = "constant",
                                        [ASH_VALUE_PARAMETER] = "parameter",
                                        [ASH_VALUE_STATE] = "state"};
    ash_text_add(p->out, " = %s", kinds[info->kind]);
    if (info->name) {
        ash_text_add(p->out, " ");
        ash_text_add_quoted(p->out, info->name, strlen(info->name));
    }
    if (info->blob) {
        ash_text_add(p->out, " ");
        if (!p->with_data)
            ash_text_add(p->out, "...");
        else if (!print_numbers(p, info->type.dtype, info->blob))
            print_hex(p, info->blob);
    } else if (info->kind == ASH_VALUE_STATE) {
        ash_text_add(p->out, " zero");
    }
    if (info->place) ash_text_add(p->out, " @%u", info->place - 1u);
}

static void print_function(printer *p, int64_t number) {
    const ash_function *function = ash_function__at(p->graph->context, number);
    const char *name = function ? function->name : "";
    ash_text_add_quoted(p->out, name, strlen(name));
}

static void print_attr(printer *p, const ash_attr *attr) {
    const ash_attr_info *info = &ash_attr_infos[attr->key];
    if (info->type == ASH_ATTR_TYPE_TYPES) return; /* they stand left of the "=" */
    ash_text_add(p->out, " %s=", info->name);
    switch (info->type) {
    case ASH_ATTR_TYPE_FORM:
    case ASH_ATTR_TYPE_INT: ash_text_add(p->out, "%lld", (long long)attr->i); return;
    case ASH_ATTR_TYPE_DIM: ash_dims_print(p->graph->dims, attr->i, p->out); return;
    case ASH_ATTR_TYPE_DTYPE: ash_text_add(p->out, "%s", ash_dtype_name((ash_dtype)attr->i)); return;
    case ASH_ATTR_TYPE_DIMS: ash_dims__print_list(p->graph->dims, attr->list, attr->count, p->out); return;
    case ASH_ATTR_TYPE_FUNCTION: print_function(p, attr->i); return;
    case ASH_ATTR_TYPE_TYPES:
    case ASH_ATTR_TYPE_INTS: break;
    }
    ash_text_add(p->out, "[");
    for (uint32_t i = 0; i < attr->count; i++)
        ash_text_add(p->out, "%s%lld", i ? ", " : "", (long long)attr->list[i]);
    ash_text_add(p->out, "]");
}

static void print_node(printer *p, const ash_node *node) {
    ash_text_add(p->out, " = %s(", ash_op_name(node->op));
    for (uint16_t i = 0; i < node->n_ins; i++) ash_text_add(p->out, "%s%%%u", i ? ", " : "", node->ins[i]);
    ash_text_add(p->out, ")");
    for (uint16_t i = 0; i < node->n_attrs; i++) print_attr(p, &node->attrs[i]);
    if (node->place) ash_text_add(p->out, " @%u", node->place - 1);
    if (!node->name) return;
    ash_text_add(p->out, " @");
    ash_text_add_quoted(p->out, node->name, strlen(node->name));
}

static void print_values(printer *p) {
    const ash_graph *graph = p->graph;
    for (size_t value = 0; value < graph->values.len && !p->out->failed;) {
        const ash_value_info *info = &graph->values.at[value];
        const ash_node *node = info->kind == ASH_VALUE_NODE ? &graph->nodes.at[info->node] : NULL;
        size_t outs = node ? node->n_outs : 1;
        for (size_t i = 0; i < outs; i++) {
            ash_text_add(p->out, "%s%%%zu: ", i ? ", " : "", value + i);
            ash_type_print(graph->dims, &graph->values.at[value + i].type, p->out);
        }
        if (node)
            print_node(p, node);
        else
            print_leaf(p, info);
        ash_text_add(p->out, "\n");
        value += outs;
    }
}

static void print_graph(printer *p) {
    const ash_graph *graph = p->graph;
    ash_text_add(p->out, "graph ");
    ash_text_add_quoted(p->out, graph->name, strlen(graph->name));
    ash_text_add(p->out, graph->internal ? " internal\n" : "\n");
    for (size_t i = 0; i < ash_dims_var_count(graph->dims); i++) {
        const ash_var *var = ash_dims_var(graph->dims, i);
        ash_text_add(p->out, "var ");
        ash_dims__print_name(var->name, p->out);
        if (var->settled) {
            ash_text_add(p->out, " settled ");
            ash_dims_print(graph->dims, var->limit, p->out);
            ash_text_add(p->out, "\n");
        } else {
            ash_text_add(p->out, " %lld %lld\n", (long long)var->min, (long long)var->max);
        }
    }
    for (size_t i = 0; i < ash_dims_equality_count(graph->dims); i++) {
        const ash_dim_equality e = ash_dims_equality(graph->dims, i);
        ash_text_add(p->out, "equal ");
        ash_dims_print(graph->dims, e.a, p->out);
        ash_text_add(p->out, " ");
        ash_dims_print(graph->dims, e.b, p->out);
        ash_text_add(p->out, "\n");
    }
    print_values(p);
    for (size_t i = 0; i < graph->states.len; i++)
        if (graph->states.at[i].update != ASH_NO_VALUE)
            ash_text_add(p->out, "update %%%u = %%%u\n", graph->states.at[i].value,
                         graph->states.at[i].update);
    for (size_t i = 0; i < graph->outputs.len; i++) {
        ash_text_add(p->out, "output ");
        ash_text_add_quoted(p->out, graph->outputs.at[i].name, strlen(graph->outputs.at[i].name));
        ash_text_add(p->out, " = %%%u\n", graph->outputs.at[i].value);
    }
}

ash_status ash_graph_print(const ash_graph *graph, bool with_data, char **out, uint64_t *size,
                           ash_diag *diag) {
    ash_text text;
    ASH_NEED(diag, graph, out, size);
    *out = NULL;
    *size = 0;
    ASH_TRY(ash_graph__check_closed(graph, diag));
    ASH_TRY(ash_graph__check_files(graph, diag));
    ash_text_init(&text, graph->allocator);
    print_graph(&(printer){graph, &text, with_data});
    ash_status status = ash_text_status(&text, diag);
    if (status == ASH_OK && !(*out = ash_mem_alloc(graph->allocator, text.len + 1, 1)))
        status = ASH_NO_MEMORY(diag);
    if (status == ASH_OK) {
        memcpy(*out, text.at, text.len + 1);
        *size = text.len;
    }
    ash_text_free(&text);
    return status;
}
