/* Operators whose results have as many elements as their operands' data say. */
#include <stdio.h>

#include "lower.h"
#include "ops.h"

/* --- where a mask is true --------------------------------------------------------------------------- */

ash_dim ash_lower__settle(ash_import *im, ash_value count, ash_dim limit, size_t k, unsigned axis) {
    const ash_span result = k < im->node->n_outs ? im->node->outs[k] : (ash_span){0};
    if (count == ASH_NO_VALUE || !ash_import__ok(im)) return 0;
    size_t room = result.len + 40;
    char *name = ash_arena_alloc(im->scratch, room, 1);
    if (!name) return ash_import__fail(im, ASH_ERROR_OUT_OF_MEMORY, "out of memory"), 0;
    snprintf(name, room, "%.*s.%u", ASH_SPAN_ARG(result), axis);
    /* bodies are repeated, and names may be those of dims */
    if (ash_dims_has_var(im->graph->dims, name))
        snprintf(name, room, "%.*s.%u#%zu", ASH_SPAN_ARG(result), axis, ash_dims_var_count(im->graph->dims));
    ash_dim dim = ash_graph_settled_var(im->graph, name, limit);
    const ash_attr attrs[] = {ASH_ATTR_I(N, dim)};
    if (ash_lower__node(im, ASH_OP_SETTLE, &count, 1, attrs, 1) == ASH_NO_VALUE) return 0;
    return dim;
}

/* A constant mask. */
static bool found_now(ash_import *im, ash_value mask, ash_import_found *out) {
    ash_value known = ash_import__fold(im, mask);
    if (known == ASH_NO_VALUE) return false;
    const ash_blob *blob = ash_graph__value(im->graph, known)->blob;
    const char *bytes = blob->data;
    int64_t *positions = ash_arena_alloc(im->scratch, blob->size, sizeof *positions);
    size_t count = 0;
    if (!positions) return false;
    for (size_t i = 0; i < blob->size; i++)
        if (bytes[i]) positions[count++] = (int64_t)i;
    *out = (ash_import_found){ash_lower__int_list(im, positions, count), (ash_dim)count};
    return true;
}

/* One number for all elements, however many there are: models count upwards by asking where ones are. */
static bool found_all(ash_import *im, ash_value x, ash_dim total, ash_import_found *out) {
    const ash_value_info *info = ash_graph__value(im->graph, x);
    if (info->kind != ASH_VALUE_NODE) return false;
    const ash_node *node = &im->graph->nodes.at[info->node];
    if (node->op != ASH_OP_BROADCAST) return false;
    const ash_value_info *in = ash_graph__value(im->graph, node->ins[0]);
    int64_t count;
    if (in->kind != ASH_VALUE_CONSTANT || !ash_type_static_count(&in->type, &count) || count != 1)
        return false;
    out->count = ash_lower__float_at(in->blob, in->type.dtype, 0) != 0 ? total : 0;
    out->positions = ash_lower__iota(im, ASH_I64, &out->count, 1, 0);
    return true;
}

static ash_import_found find(ash_import *im, ash_value x, size_t k, unsigned axis) {
    const ash_type type = ash_import__type(im, x);
    ash_import_found found = {ASH_NO_VALUE, 0};
    ash_dim total = ash_lower__product(im, &type, 0, type.rank);
    if (found_all(im, x, total, &found)) return found;
    ash_value mask = ash_lower__cast(im, x, ASH_BOOL), outs[2];
    if (mask == ASH_NO_VALUE || found_now(im, mask, &found)) return found;
    im->status = ash_graph_add(im->graph, ASH_OP_NONZERO, &mask, 1, NULL, 0, outs);
    if (im->status != ASH_OK) {
        ash_graph_status(im->graph, &im->diag);
        return found;
    }
    found.count = ash_lower__settle(im, outs[1], total, k, axis);
    found.positions = ash_lower__slice_axis(im, outs[0], 0, 0, found.count);
    return found;
}

ash_value ash_lower__found(ash_import *im, ash_value x, size_t k, unsigned axis, ash_dim *count) {
    uint64_t index;
    *count = 0;
    if (x == ASH_NO_VALUE || !ash_import__ok(im)) return ASH_NO_VALUE;
    if (!ash_map_get(&im->masks, x, &index)) {
        ash_import_found found = find(im, x, k, axis);
        if (!ash_import__ok(im)) return ASH_NO_VALUE;
        index = im->found.len;
        if (!ash_vec_push(im->allocator, &im->found, found) || !ash_map_put(&im->masks, x, index))
            return ash_import__fail(im, ASH_ERROR_OUT_OF_MEMORY, "out of memory");
    }
    *count = im->found.at[index].count;
    return im->found.at[index].positions;
}

/* Coordinate d of elements of a type, from their numbers. */
static ash_value coordinate(ash_import *im, const ash_type *type, ash_value numbers, unsigned d) {
    ash_dim inner = ash_lower__product(im, type, d + 1, type->rank);
    if (inner != 1) numbers = ash_lower__binary(im, ASH_OP_DIV, numbers, ash_lower__dim(im, inner));
    if (d == 0) return numbers;
    return ash_lower__binary(im, ASH_OP_MOD, numbers, ash_lower__dim(im, type->dims[d]));
}

/* [rank, found]; a scalar counts as a list of one. */
void ash_onnx__op_nonzero(ash_import *im) {
    ash_value x = ash_import__in(im, 0), rows[ASH_MAX_RANK];
    ash_type type = ash_import__type(im, x);
    ash_dim count;
    if (type.rank == 0) type.dims[type.rank++] = 1;
    ash_value numbers = ash_lower__found(im, x, 0, 1, &count);
    for (unsigned d = 0; d < type.rank; d++)
        rows[d] = ash_lower__insert_axis(im, coordinate(im, &type, numbers, d), 0);
    ash_import__out(im, 0, ash_lower__concat(im, rows, type.rank, 0));
}

/* The slices of x along an axis, or its elements, where the condition holds. */
void ash_onnx__op_compress(ash_import *im) {
    ash_value x = ash_import__in(im, 0), condition = ash_import__in(im, 1);
    unsigned rank = ash_import__type(im, x).rank, axis = 0;
    bool flat = !ash_import__attr(im, "axis", ONNX_ATTR_INT);
    if (!flat) axis = ash_import__axis(im, ash_import__attr_int(im, "axis", 0), rank);
    if (ash_import__type(im, condition).rank != 1) {
        ash_import__fail(im, ASH_ERROR_SHAPE, "a condition of rank %u", ash_import__type(im, condition).rank);
        return;
    }
    ash_dim count;
    ash_value indices = ash_lower__found(im, condition, 0, axis, &count);
    if (flat) {
        const ash_type type = ash_import__type(im, x);
        const ash_dim all = ash_lower__product(im, &type, 0, rank);
        x = ash_lower__reshape(im, x, &all, 1);
    }
    ash_import__out(im, 0, ash_lower__gather(im, x, indices, axis));
}
