/* SPDX-License-Identifier: MIT */
/* Loops as ONNX's control flow.
 *
 * What the graph has in one list, nodes that depend on a loop's arguments and nodes that do not, is already
 * a body that takes the rest by name from around it. Three operators say it:
 *
 *   If     runs at most once, on a condition: a branch, which gives what the loop would begin with, or
 *          zeros, where it is not taken
 *   Scan   as many iterations as there are slices, at least one (onnxruntime wants that); the iteration's
 *          number, where it is asked for, is one more of them, of a range
 *   Loop   anything else: slices are gathered at the iteration's number
 *
 * A stacked value of a Loop has as many slices as there were iterations, the graph's one for each that
 * there could be: zeros are appended. How many there were is the length of a stacked value, or is counted.
 * In a body, where we read no such lengths, what is stacked is carried, zeros to which each iteration adds
 * its slice. */
#include "write_short.h"

enum { MOST = ASH_OP_OUTS + 4 }; /* operands or results of an operator */

/* A loop that is being written. */
typedef struct written_loop {
    ash_writer *w;
    const ash_graph *graph;
    const ash_node *node;
    uint32_t number; /* of the node */
    ash_loop_parts p;
    uint32_t stacked[ASH_LOOP_PARTS]; /* what is stacked for somebody */
    uint32_t n_stacked;
    bool fills; /* what is stacked is carried */
} written_loop;

bool ash_writer__is_branch(const ash_node *node) {
    return ash_node__loop(node).until && ash_node_int(node, ASH_ATTR_TRIPS) == 1;
}

static const ash_type *type_of(const written_loop *l, uint32_t operand) {
    return ash_graph__type(l->graph, l->node->ins[operand]);
}

static name operand(const written_loop *l, uint32_t k) {
    return value(l->w, l->node->ins[k]);
}

static name result(const written_loop *l, uint32_t k) {
    return value(l->w, l->node->out + k);
}

static bool is_backward(const written_loop *l, uint32_t part) {
    return ash_node_int(l->node, ASH_ATTR_BACKWARD) >> part & 1;
}

/* The k-th value that is stacked for somebody. */
static const ash_type *stack_type(const written_loop *l, uint32_t k) {
    return ash_graph__type(l->graph, l->node->out + l->p.stacks + l->stacked[k]);
}

static name stack(const written_loop *l, uint32_t k) {
    return result(l, l->p.stacks + l->stacked[k]);
}

/* Whether the dims of its slices are. */
static bool has_numbers(const ash_type *type) {
    bool numbers = true;
    for (unsigned i = 1; i < type->rank; i++) numbers &= ash_dim_is_const(type->dims[i]);
    return numbers;
}

/* What it is without an iteration. */
static name zeros(const written_loop *l, uint32_t k) {
    const ash_type *type = stack_type(l, k);
    return op2(l->w, NULL, "Expand", ash_writer__zero(l->w, type->dtype),
               ash_writer__dims(l->w, type->dims, type->rank));
}

/* Operand k, something that an iteration makes, under a name of the body's own: another than that of an
 * operand before it, `from` the first. */
static name made(const written_loop *l, uint32_t from, uint32_t k) {
    const ash_value *ins = l->node->ins;
    const ash_value_info *info = ash_graph__value(l->graph, ins[k]);
    bool own = info->kind == ASH_VALUE_NODE && l->w->loop[info->node] == l->number &&
               l->graph->nodes.at[info->node].op != ASH_OP_ARGUMENT;
    for (uint32_t i = from; i < k; i++) own &= ins[i] != ins[k];
    return own ? operand(l, k) : op1(l->w, NULL, "Identity", operand(l, k));
}

static void out_made(const written_loop *l, uint32_t k) {
    ash_writer__output(l->w, made(l, l->p.next_go, k), type_of(l, k));
}

/* Outputs of a body: carried and stacked values. */
static void out_all(const written_loop *l) {
    for (uint32_t k = 0; k < l->p.carried; k++) out_made(l, l->p.next + k);
    for (uint32_t k = 0; k < l->n_stacked; k++) out_made(l, l->p.ys + l->stacked[k]);
}

static void in_carried(const written_loop *l) {
    for (uint32_t k = ASH_LOOP_CARRIED; k < ASH_LOOP_CARRIED + l->p.carried; k++)
        ash_writer__input(l->w, operand(l, k), type_of(l, k));
}

/* From the last slice along dim 0 to the first. */
static void reverse(const written_loop *l, name out, name x) {
    static const int64_t back = -1, before_all = INT64_MIN + 1, first = 0;
    ash_writer *w = l->w;
    const name step = ash_writer__ints(w, &back, 1);
    const name ins[] = {x, step, ash_writer__ints(w, &before_all, 1), ash_writer__ints(w, &first, 1), step};
    ash_writer__op(w, out, "Slice", ins, ASH_COUNT(ins), NULL, 0);
}

/* --- If ------------------------------------------------------------------------------------------- */

static void write_taken(const written_loop *l, ash_writer_body *body) {
    ash_writer *w = l->w;
    static const int64_t first = 0;
    ash_writer__begin(w, body);
    ash_writer__nodes(w, l->number);
    for (uint32_t k = 0; k < l->p.carried; k++) out_made(l, l->p.next + k);
    for (uint32_t k = 0; k < l->n_stacked; k++) {
        name row =
            op2(w, NULL, "Unsqueeze", operand(l, l->p.ys + l->stacked[k]), ash_writer__ints(w, &first, 1));
        ash_writer__output(w, row, stack_type(l, k));
    }
    ash_writer__end(w);
}

static void write_not_taken(const written_loop *l, ash_writer_body *body) {
    ash_writer *w = l->w;
    ash_writer__begin(w, body);
    for (uint32_t k = 0; k < l->p.carried; k++)
        ash_writer__output(w, op1(w, NULL, "Identity", operand(l, l->p.init + k)),
                           type_of(l, l->p.init + k));
    for (uint32_t k = 0; k < l->n_stacked; k++) ash_writer__output(w, zeros(l, k), stack_type(l, k));
    ash_writer__end(w);
}

static void write_branch(const written_loop *l) {
    ash_writer *w = l->w;
    ash_writer_body taken, other;
    name outs[MOST], go = operand(l, l->p.go);
    uint32_t n = 0;
    if (w->used[l->node->ins[ASH_LOOP_ITERATION]]) ash_writer__int(w, operand(l, ASH_LOOP_ITERATION), 0);
    write_taken(l, &taken);
    write_not_taken(l, &other);
    for (uint32_t k = 0; k < l->p.carried; k++) outs[n++] = result(l, l->p.finals + k);
    for (uint32_t k = 0; k < l->n_stacked; k++) outs[n++] = stack(l, k);
    const ash_writer_attr attrs[] = {WRITE_GRAPH("then_branch", &taken),
                                     WRITE_GRAPH("else_branch", &other)};
    const ash_writer_node node = {
        .op = "If", .ins = &go, .n_ins = 1, .outs = outs, .n_outs = n, .attrs = attrs, .n_attrs = 2};
    if (n) ash_writer__node(w, &node);
    ash_writer__free(&taken);
    ash_writer__free(&other);
    if (w->used[l->node->out]) ash_writer__cast(w, result(l, 0), go, ASH_I64);
}

/* --- Scan ----------------------------------------------------------------------------------------- */

static void write_scan(const written_loop *l) {
    ash_writer *w = l->w;
    ash_writer_body body;
    const ash_loop_parts *p = &l->p;
    name ins[MOST + ASH_LOOP_PARTS], outs[MOST];
    int64_t into[ASH_LOOP_PARTS + 1] = {0}, out_of[ASH_LOOP_PARTS] = {0};
    const uint32_t slices = ASH_LOOP_CARRIED + p->carried;
    bool counts = w->used[l->node->ins[ASH_LOOP_ITERATION]];
    size_t n_ins = 0, n_outs = 0, n_xs = p->scanned + counts;
    for (uint32_t k = 0; k < p->carried; k++) {
        ins[n_ins++] = operand(l, p->init + k);
        outs[n_outs++] = result(l, p->finals + k);
    }
    for (uint32_t k = 0; k < p->scanned; k++) {
        ins[n_ins++] = operand(l, p->xs + k);
        into[k] = is_backward(l, k);
    }
    if (counts)
        ins[n_ins++] =
            op3(w, NULL, "Range", ash_writer__int(w, NULL, 0),
                ash_writer__dim(w, ash_node_int(l->node, ASH_ATTR_TRIPS)), ash_writer__int(w, NULL, 1));
    for (uint32_t k = 0; k < l->n_stacked; k++) {
        outs[n_outs++] = stack(l, k);
        out_of[k] = is_backward(l, p->scanned + l->stacked[k]);
    }
    ash_writer__begin(w, &body);
    in_carried(l);
    for (uint32_t k = 0; k < p->scanned; k++)
        ash_writer__input(w, operand(l, slices + k), type_of(l, slices + k));
    if (counts) ash_writer__input(w, operand(l, ASH_LOOP_ITERATION), type_of(l, ASH_LOOP_ITERATION));
    ash_writer__nodes(w, l->number);
    out_all(l);
    ash_writer__end(w);
    const ash_writer_attr attrs[] = {WRITE_GRAPH("body", &body),
                                     WRITE_INT("num_scan_inputs", (int64_t)n_xs),
                                     WRITE_INTS("scan_input_directions", into, n_xs),
                                     WRITE_INTS("scan_output_directions", out_of, l->n_stacked)};
    const ash_writer_node node = {.op = "Scan",
                                  .ins = ins,
                                  .n_ins = n_ins,
                                  .outs = outs,
                                  .n_outs = n_outs,
                                  .attrs = attrs,
                                  .n_attrs = l->n_stacked ? 4 : 3};
    if (n_outs) ash_writer__node(w, &node);
    ash_writer__free(&body);
}

/* --- Loop ----------------------------------------------------------------------------------------- */

/* The number of the slice of a part in an iteration; `trips` is how many there are. */
static name slice_number(const written_loop *l, uint32_t part, name trips) {
    ash_writer *w = l->w;
    name forward = operand(l, ASH_LOOP_ITERATION);
    if (!is_backward(l, part)) return forward;
    return op2(w, NULL, "Sub", op2(w, NULL, "Sub", trips, forward), ash_writer__int(w, NULL, 1));
}

/* The slices of an iteration. */
static void gather_slices(const written_loop *l, name trips) {
    const ash_writer_attr attrs[] = {WRITE_INT("axis", 0)};
    const uint32_t slices = ASH_LOOP_CARRIED + l->p.carried;
    for (uint32_t k = 0; k < l->p.scanned; k++) {
        if (!l->w->used[l->node->ins[slices + k]]) continue;
        const name ins[] = {operand(l, l->p.xs + k), slice_number(l, k, trips)};
        ash_writer__op(l->w, operand(l, slices + k), "Gather", ins, 2, attrs, 1);
    }
}

/* `all` with the slice of an iteration. */
static name put_slice(const written_loop *l, name all, uint32_t part, name trips) {
    ash_writer *w = l->w;
    static const int64_t one_by_one[] = {1, 1}, first = 0;
    name at = op2(w, NULL, "Reshape", slice_number(l, l->p.scanned + part, trips),
                  ash_writer__ints(w, one_by_one, 2));
    name row = op2(w, NULL, "Unsqueeze", operand(l, l->p.ys + part), ash_writer__ints(w, &first, 1));
    return op3(w, NULL, "ScatterND", all, at, row);
}

/* Writes the body; whether a count of the iterations is one more carried value. */
static void write_body(const written_loop *l, ash_writer_body *body, name trips, bool counts) {
    ash_writer *w = l->w;
    const ash_type *number = type_of(l, ASH_LOOP_ITERATION), go = {.dtype = ASH_BOOL};
    name iteration = operand(l, ASH_LOOP_ITERATION), filled[ASH_LOOP_PARTS];
    ash_writer__begin(w, body);
    name before = ash_writer__temporary(w), counted = counts ? ash_writer__temporary(w) : NULL;
    ash_writer__input(w, iteration, number);
    ash_writer__input(w, before, &go);
    in_carried(l);
    if (counts) ash_writer__input(w, counted, number);
    for (uint32_t k = 0; k < l->n_stacked && l->fills; k++)
        ash_writer__input(w, filled[k] = ash_writer__temporary(w), stack_type(l, k));
    gather_slices(l, trips);
    ash_writer__nodes(w, l->number);
    if (l->p.until)
        out_made(l, l->p.next_go);
    else
        ash_writer__output(w, op1(w, NULL, "Identity", before), &go);
    for (uint32_t k = 0; k < l->p.carried; k++) out_made(l, l->p.next + k);
    if (counts) ash_writer__output(w, op2(w, NULL, "Add", iteration, ash_writer__int(w, NULL, 1)), number);
    for (uint32_t k = 0; k < l->n_stacked; k++) {
        if (l->fills)
            ash_writer__output(w, put_slice(l, filled[k], l->stacked[k], trips), stack_type(l, k));
        else
            out_made(l, l->p.ys + l->stacked[k]);
    }
    ash_writer__end(w);
}

/* The stacked values as the graph has them, from `raw` ones of the iterations that there were. */
static void out_stacked(const written_loop *l, const name *raw) {
    ash_writer *w = l->w;
    const ash_writer_attr attrs[] = {WRITE_INT("start", 0), WRITE_INT("end", 1)};
    name rows = l->p.until ? ash_writer__op(w, NULL, "Shape", &raw[0], 1, attrs, 2) : NULL;
    for (uint32_t k = 0; k < l->n_stacked; k++) {
        bool backward = is_backward(l, l->p.scanned + l->stacked[k]);
        name out = stack(l, k), all = raw[k];
        const ash_type *type = stack_type(l, k);
        if (l->p.until)
            all = ash_writer__fill_up(w, backward ? NULL : out, all, rows, type);
        else if (all != out) /* of no iterations, readers may take dims for 0 that are no numbers */
            all = ash_writer__reshape(w, backward ? NULL : out, all, type->dims, type->rank);
        if (backward) reverse(l, out, all);
    }
    if (l->p.until && w->used[l->node->out]) ash_writer__reshape(w, result(l, 0), rows, NULL, 0);
}

static void write_loop(written_loop *l) {
    ash_writer *w = l->w;
    ash_writer_body body;
    const ash_loop_parts *p = &l->p;
    name ins[MOST], outs[MOST], raw[ASH_LOOP_PARTS];
    ash_dim most = ash_node_int(l->node, ASH_ATTR_TRIPS);
    bool bounded = !p->until || most != ASH_OPEN_MOST || p->scanned || p->stacked;
    size_t n_ins = 0, n_outs = 0;
    l->fills = p->until && w->body;
    bool counts = p->until && (!l->n_stacked || l->fills) && w->used[l->node->out];
    name trips = bounded ? ash_writer__dim(w, most) : "";
    ins[n_ins++] = trips;
    ins[n_ins++] = p->until ? operand(l, p->go) : "";
    for (uint32_t k = 0; k < p->carried; k++) {
        ins[n_ins++] = operand(l, p->init + k);
        outs[n_outs++] = result(l, p->finals + k);
    }
    if (counts) ins[n_ins++] = ash_writer__int(w, NULL, 0), outs[n_outs++] = result(l, 0);
    for (uint32_t k = 0; k < l->n_stacked; k++) {
        bool as_it_is =
            !p->until && has_numbers(stack_type(l, k)) && !is_backward(l, p->scanned + l->stacked[k]);
        raw[k] = outs[n_outs++] = as_it_is || l->fills ? stack(l, k) : ash_writer__temporary(w);
        if (l->fills) ins[n_ins++] = zeros(l, k);
    }
    write_body(l, &body, trips, counts);
    const ash_writer_attr attrs[] = {WRITE_GRAPH("body", &body)};
    const ash_writer_node node = {.op = "Loop",
                                  .ins = ins,
                                  .n_ins = n_ins,
                                  .outs = outs,
                                  .n_outs = n_outs,
                                  .attrs = attrs,
                                  .n_attrs = 1};
    if (n_outs) ash_writer__node(w, &node);
    ash_writer__free(&body);
    if (l->n_stacked && !l->fills) out_stacked(l, raw);
}

/* --- which ---------------------------------------------------------------------------------------- */

void ash_writer__loop(ash_writer *w, const ash_node *node) {
    written_loop l = {.w = w,
                      .graph = w->graph,
                      .node = node,
                      .number = ash_graph__value(w->graph, node->out)->node,
                      .p = ash_node__loop(node)};
    int64_t min, max;
    if (l.p.body) {
        ash_writer__fail(w, ASH_ERROR_UNSUPPORTED, "a body that is a graph of its own");
        return;
    }
    ash_dims_bounds(w->dims, ash_node_int(node, ASH_ATTR_TRIPS), &min, &max);
    for (uint32_t k = 0; k < l.p.stacked; k++)
        if (w->used[node->out + l.p.stacks + k]) l.stacked[l.n_stacked++] = k;
    if (ash_writer__is_branch(node))
        write_branch(&l);
    else if (!l.p.until && l.p.scanned && min > 0)
        write_scan(&l);
    else
        write_loop(&l);
}
