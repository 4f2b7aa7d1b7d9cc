/* SPDX-License-Identifier: MIT */
/* What sizes depend on data come from. ONNX's results are as long as what was found, the graph's as long as
 * they could be, with zeros behind; how many were found is a result, which a node settles a variable by.
 * When the file is read, that is the length of ONNX's result again. */
#include "write_short.h"

static name concat(ash_writer *w, name out, const name *ins, size_t n, int64_t axis) {
    const ash_writer_attr attrs[] = {WRITE_INT("axis", axis)};
    return ash_writer__op(w, out, "Concat", ins, n, attrs, 1);
}

const char *ash_writer__fill_up(ash_writer *w, const char *out, const char *x, const char *rows,
                                const ash_type *type) {
    const ash_dim *inner = type->dims + 1;
    const size_t n_inner = type->rank - 1;
    const ash_writer_attr zero[] = {WRITE_INT("allowzero", 1)};
    name left = op2(w, NULL, "Sub", ash_writer__dims(w, type->dims, 1), rows), shape = rows;
    bool numbers = true;
    for (size_t i = 0; i < n_inner; i++) numbers &= ash_dim_is_const(inner[i]);
    if (n_inner) {
        name dims = ash_writer__dims(w, inner, n_inner);
        left = concat(w, NULL, (const name[]){left, dims}, 2, 0);
        if (!numbers) shape = concat(w, NULL, (const name[]){rows, dims}, 2, 0);
    }
    /* where nothing was found, readers may take dims for 0 that are no numbers */
    if (!numbers) x = ash_writer__op(w, NULL, "Reshape", (const name[]){x, shape}, 2, zero, 1);
    name zeros = op2(w, NULL, "Expand", ash_writer__zero(w, type->dtype), left);
    return concat(w, out, (const name[]){x, zeros}, 2, 0);
}

/* Positions, one after the other whatever the operand's rank, and how many. */
void ash_writer__found(ash_writer *w, const ash_node *node) {
    static const int64_t all = -1;
    name x = value(w, node->ins[0]), line = ash_writer__ints(w, &all, 1);
    if (ash_graph__type(w->graph, node->ins[0])->rank != 1) x = op2(w, NULL, "Reshape", x, line);
    name found = op2(w, NULL, "Reshape", op1(w, NULL, "NonZero", x), line),
         rows = op1(w, NULL, "Shape", found);
    ash_writer__reshape(w, value(w, node->out + 1), rows, NULL, 0);
    ash_writer__fill_up(w, value(w, node->out), found, rows, ash_graph__type(w->graph, node->out));
}

/* ONNX lists batch, class and box of all that was chosen, in the order of batches and classes. Where one
 * stands among those of its own is its place in the list less the number of what comes before them. */
void ash_writer__chosen(ash_writer *w, const ash_node *node) {
    const ash_type *boxes = ash_graph__type(w->graph, node->out),
                   *counts = ash_graph__type(w->graph, node->out + 1);
    static const int64_t ends[] = {0, 2, 3}, one = 1, none = 0, line = -1;
    const ash_writer_attr add[] = {WRITE_TEXT("reduction", "add")};
    name axis = ash_writer__ints(w, &one, 1), flat = ash_writer__ints(w, &line, 1);
    name zero = ash_writer__int(w, NULL, 0), first = ash_writer__ints(w, &ends[0], 1),
         second = ash_writer__ints(w, &ends[1], 1), third = ash_writer__ints(w, &ends[2], 1);
    const name ins[] = {value(w, node->ins[0]), value(w, node->ins[1]),
                        ash_writer__dim(w, ash_node_int(node, ASH_ATTR_K)), value(w, node->ins[2]),
                        value(w, node->ins[3])};
    name list = ash_writer__op(w, NULL, "NonMaxSuppression", ins, ASH_COUNT(ins), NULL, 0);
    const name pairs_of[] = {list, first, second, axis}, boxes_of[] = {list, second, third, axis};
    name pairs = ash_writer__op(w, NULL, "Slice", pairs_of, 4, NULL, 0),
         chosen = op2(w, NULL, "Reshape", ash_writer__op(w, NULL, "Slice", boxes_of, 4, NULL, 0), flat);
    const ash_writer_attr length[] = {WRITE_INT("start", 0), WRITE_INT("end", 1)};
    name rows = ash_writer__op(w, NULL, "Shape", &list, 1, length, 2);
    name ones = op2(w, NULL, "Expand", ash_writer__int(w, NULL, 1), rows);
    name nothing = op2(w, NULL, "Expand", zero, ash_writer__dims(w, counts->dims, counts->rank));
    name how_many = ash_writer__op(w, value(w, node->out + 1), "ScatterND",
                                   (const name[]){nothing, pairs, ones}, 3, add, 1);
    /* the number of all that was chosen for the pairs before each */
    const ash_writer_attr exclusive[] = {WRITE_INT("exclusive", 1)};
    name sums = ash_writer__op(
        w, NULL, "CumSum",
        (const name[]){op2(w, NULL, "Reshape", how_many, flat), ash_writer__ints(w, &none, 1)}, 2,
        exclusive, 1);
    name before =
        op2(w, NULL, "GatherND", ash_writer__reshape(w, NULL, sums, counts->dims, counts->rank), pairs);
    name place = op3(w, NULL, "Range", zero, ash_writer__reshape(w, NULL, rows, NULL, 0),
                     ash_writer__int(w, NULL, 1));
    place = op2(w, NULL, "Unsqueeze", op2(w, NULL, "Sub", place, before), axis);
    name at = concat(w, NULL, (const name[]){pairs, place}, 2, 1);
    name all = op2(w, NULL, "Expand", zero, ash_writer__dims(w, boxes->dims, boxes->rank));
    op3(w, value(w, node->out), "ScatterND", all, at, chosen);
}

/* Whether what settles a variable is within 0 and `limit`: a count of what was found among so many, or of
 * iterations. */
static bool is_within(const ash_graph *g, ash_value count, ash_dim limit) {
    const ash_value_info *info = ash_graph__value(g, count);
    if (info->kind != ASH_VALUE_NODE) return false;
    const ash_node *node = &g->nodes.at[info->node];
    bool of_found = node->op == ASH_OP_NONZERO && count == node->out + 1,
         of_loop = node->op == ASH_OP_LOOP && count == node->out && ash_node__loop(node).until;
    return (of_found && ash_graph__type(g, node->out)->dims[0] == limit) ||
           (of_loop && ash_node_int(node, ASH_ATTR_TRIPS) == limit);
}

/* What is not known to be within its limit is how many numbers from 0 to the limit are below it: a length
 * again. */
void ash_writer__settle(ash_writer *w, const ash_node *node) {
    uint32_t var = 0;
    ash_dims_is_settled(w->graph->dims, ash_node_int(node, ASH_ATTR_N), &var);
    ash_dim limit = ash_dims_var(w->graph->dims, var)->limit;
    name count = value(w, node->ins[0]), out = value(w, node->out);
    if (is_within(w->graph, node->ins[0], limit)) {
        op1(w, out, "Identity", count);
        return;
    }
    name zero = ash_writer__int(w, NULL, 0), one = ash_writer__int(w, NULL, 1);
    name all = op3(w, NULL, "Range", zero, ash_writer__dim(w, limit), one);
    name below = op1(w, NULL, "NonZero", op2(w, NULL, "Less", all, count));
    const ash_writer_attr attrs[] = {WRITE_INT("start", 1), WRITE_INT("end", 2)};
    ash_writer__reshape(w, out, ash_writer__op(w, NULL, "Shape", &below, 1, attrs, 2), NULL, 0);
}
