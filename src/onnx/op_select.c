/* SPDX-License-Identifier: MIT */
/* Operators whose results have as many elements as their operands' data say. */
#include <stdio.h>

#include "control.h"

/* --- where a mask is true --------------------------------------------------------------------------- */

/* A dim whose value is `count`, an i64 scalar that never exceeds `limit`. It is called after the present
 * node's result k and its dim `axis`, "y.0". */
ash_dim ash_onnx__settle(ash_import *im, ash_value count, ash_dim limit, size_t k, unsigned axis) {
    const ash_span result = k < im->node->n_outs ? im->node->outs[k] : (ash_span){0};
    if (count == ASH_NO_VALUE || !ash_import__ok(im)) return 0;
    size_t room = result.len + 40;
    char *name = ash_arena_alloc(im->scratch, room, 1);
    if (!name) return ash_import__fail(im, ASH_ERROR_OUT_OF_MEMORY, "out of memory"), 0;
    snprintf(name, room, "%.*s.%u", ASH_SPAN_ARG(result), axis);
    /* bodies are repeated, and names may be those of dims */
    if (ash_dims_has_var(im->graph->dims, name))
        snprintf(name, room, "%.*s.%u#%zu", ASH_SPAN_ARG(result), axis,
                 ash_dims_var_count(im->graph->dims));
    return ash_settle(im->graph, name, count, limit);
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
    *out = (ash_import_found){ash_build__int_list(im->graph, positions, count), (ash_dim)count};
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
    out->count = ash_import__float_at(in->blob, in->type.dtype, 0) != 0 ? total : 0;
    out->positions = ash_iota(im->graph, ASH_I64, &out->count, 1, 0);
    return true;
}

static ash_import_found find(ash_import *im, ash_value x, size_t k, unsigned axis) {
    const ash_type type = ash_import__type(im, x);
    ash_import_found found = {ASH_NO_VALUE, 0};
    ash_dim total = ash_build__product(im->graph, &type, 0, type.rank);
    if (total == 0) found.positions = ash_iota(im->graph, ASH_I64, &found.count, 1, 0);
    if (total == 0 || found_all(im, x, total, &found)) return found;
    ash_value mask = ash_cast(im->graph, x, ASH_BOOL), count;
    if (mask == ASH_NO_VALUE || found_now(im, mask, &found)) return found;
    ash_value numbers = ash_nonzero(im->graph, mask, &count);
    found.count = ash_onnx__settle(im, count, total, k, axis);
    found.positions = ash_slice_axis(im->graph, numbers, 0, 0, found.count);
    return found;
}

ash_value ash_import__found(ash_import *im, ash_value x, size_t k, unsigned axis, ash_dim *count) {
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
    ash_dim inner = ash_build__product(im->graph, type, d + 1, type->rank);
    if (inner != 1) numbers = ash_div(im->graph, numbers, ash_build__dim(im->graph, inner));
    if (d == 0) return numbers;
    return ash_mod(im->graph, numbers, ash_build__dim(im->graph, type->dims[d]));
}

/* [rank, found]; a scalar counts as a list of one. */
void ash_onnx__op_nonzero(ash_import *im) {
    ash_value x = ash_import__in(im, 0), rows[ASH_MAX_RANK];
    ash_type type = ash_import__type(im, x);
    ash_dim count;
    if (type.rank == 0) type.dims[type.rank++] = 1;
    ash_value numbers = ash_import__found(im, x, 0, 1, &count);
    for (unsigned d = 0; d < type.rank; d++)
        rows[d] = ash_build__insert_axis(im->graph, coordinate(im, &type, numbers, d), 0);
    ash_import__out(im, 0, ash_concat(im->graph, rows, type.rank, 0));
}

/* The slices of x along an axis, or its elements, where the condition holds. */
void ash_onnx__op_compress(ash_import *im) {
    ash_value x = ash_import__in(im, 0), condition = ash_import__in(im, 1);
    unsigned rank = ash_import__type(im, x).rank, axis = 0;
    bool flat = !ash_import__attr(im, "axis", ONNX_ATTR_INT);
    if (!flat) axis = ash_import__axis(im, ash_import__attr_int(im, "axis", 0), rank);
    if (ash_import__type(im, condition).rank != 1) {
        ash_import__fail(im, ASH_ERROR_SHAPE, "a condition of rank %u",
                         ash_import__type(im, condition).rank);
        return;
    }
    if (flat) {
        const ash_type type = ash_import__type(im, x);
        const ash_dim all = ash_build__product(im->graph, &type, 0, rank);
        x = ash_reshape(im->graph, x, &all, 1);
    }
    if (!ash_import__ok(im)) return;
    /* A condition may be shorter than the axis; what it says past the end is about nothing. */
    ash_dim count = ash_graph_dim_min(im->graph, ash_import__type(im, condition).dims[0],
                                      ash_import__type(im, x).dims[axis]);
    condition = ash_slice_axis(im->graph, condition, 0, 0, count);
    ash_value indices = ash_import__found(im, condition, 0, axis, &count);
    ash_import__out(im, 0, ash_gather(im->graph, x, indices, axis));
}

/* --- choosing among boxes --------------------------------------------------------------------------- */

/* [b, n, 4] as low y, low x, high y, high x. Two corners may be any two; or there is a center and a
 * size. */
static ash_value corners(ash_import *im, ash_value boxes, bool center) {
    ash_value part[4], out[4];
    for (int i = 0; i < 4; i++) part[i] = ash_slice_axis(im->graph, boxes, 2, i, 1);
    for (int i = 0; i < 2; i++) {
        ash_value a = part[i], b = part[i + 2];
        if (center) { /* x, y, width, height */
            ash_value half = ash_build__with(im->graph, ASH_OP_DIV, part[3 - i], 2);
            a = ash_sub(im->graph, part[1 - i], half);
            b = ash_add(im->graph, part[1 - i], half);
        }
        out[i] = ash_min(im->graph, a, b);
        out[i + 2] = ash_max(im->graph, a, b);
    }
    return ash_concat(im->graph, out, 4, 2);
}

/* Operand k, one number, as a scalar of a dtype. */
static ash_value number(ash_import *im, size_t k, ash_dtype dtype, double absent) {
    if (!ash_import__has(im, k)) return ash_scalar(im->graph, dtype, absent);
    return ash_cast(im->graph, ash_reshape(im->graph, ash_import__in(im, k), NULL, 0), dtype);
}

/* The core operator chooses for each class by itself, and leaves room for as many boxes as there may be;
 * what it has chosen are then the true elements of a mask. */
void ash_onnx__op_nms(ash_import *im) {
    ash_value boxes = ash_import__in(im, 0), scores = ash_import__in(im, 1), counts;
    const ash_import_int *list;
    size_t n;
    if (!ash_import__ok(im)) return;
    if (ash_import__type(im, boxes).rank != 3 || ash_import__type(im, scores).rank != 3) {
        ash_import__fail(im, ASH_ERROR_SHAPE, "boxes and scores must have rank 3");
        return;
    }
    ash_import__agree_on(im, &boxes, 0, &scores, 0);
    ash_import__agree_on(im, &boxes, 1, &scores, 2);
    if (!ash_import__ok(im)) return;
    const ash_type type = ash_import__type(im, scores);
    ash_dim most = type.dims[2];
    bool known = !ash_import__has(im, 2) || ash_import__try_list(im, 2, &list, &n);
    if (!ash_import__has(im, 2))
        most = 0;
    else if (known && n == 1)
        most = ash_graph_dim_min(im->graph, most, list[0].dim ? list[0].v : ASH_MAX(list[0].v, 0));
    if (most == 0) { /* and none is looked at */
        ash_import__out(im, 0, ash_build__fill(im->graph, ASH_I64, 0, (const ash_dim[]){0, 3}, 2));
        return;
    }
    boxes = corners(im, boxes, ash_import__attr_int(im, "center_point_box", 0) != 0);
    ash_value overlap = number(im, 3, type.dtype, 0),
              least = number(im, 4, type.dtype, ash_build__lowest(type.dtype));
    ash_value chosen_boxes = ash_nms(im->graph, boxes, scores, overlap, least, most, &counts);
    if (!known) counts = ash_min(im->graph, counts, number(im, 2, ASH_I64, 0));
    const ash_type chosen = {.dtype = ASH_I64, .rank = 3, .dims = {type.dims[0], type.dims[1], most}};
    ash_value turn = ash_iota(im->graph, ASH_I64, chosen.dims, 3, 2), rows[3];
    ash_value mask = ash_lt(im->graph, turn, ash_build__insert_axis(im->graph, counts, 2));
    ash_dim count, all = ash_build__product(im->graph, &chosen, 0, 3);
    ash_value numbers = ash_import__found(im, mask, 0, 0, &count);
    rows[0] = coordinate(im, &chosen, numbers, 0);
    rows[1] = coordinate(im, &chosen, numbers, 1);
    rows[2] = ash_gather(im->graph, ash_reshape(im->graph, chosen_boxes, &all, 1), numbers, 0);
    for (int i = 0; i < 3; i++) rows[i] = ash_build__insert_axis(im->graph, rows[i], 1);
    ash_import__out(im, 0, ash_concat(im->graph, rows, 3, 1));
}
