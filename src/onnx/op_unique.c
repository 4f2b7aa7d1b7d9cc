/* SPDX-License-Identifier: MIT */
/* Unique: the different elements of a tensor, or slices along an axis of it. They are sorted, and each that
 * differs from the one before it is the first of its kind. */
#include "control.h"

/* Of the subjects, elements or slices, in ascending order: */
typedef struct unique_sort {
    ash_dim all;     /* subjects */
    ash_value order; /* which one is there, i64 [all]; of equals the first is the first */
    ash_value fresh; /* whether it differs from the one before, bool [all] */
} unique_sort;

enum { LAID_OUT = 16 }; /* columns, at most, that are sorted by one after the other */

static ash_value numbers_below(ash_import *im, ash_dim n) {
    return ash_iota(im->graph, ASH_I64, &n, 1, 0);
}

/* The order of elements of a list; *sorted: they in that order. */
static ash_value sort_list(ash_import *im, ash_value x, ash_value *sorted) {
    ash_value order;
    *sorted = ash_topk(im->graph, x, 0, ash_import__type(im, x).dims[0], false, &order);
    return order;
}

/* An order of rows, put into that of one of their columns; equals keep theirs. */
static ash_value sort_by(ash_import *im, ash_value column, ash_value order) {
    ash_value key = ash_gather(im->graph, column, order, 0), ignored;
    return ash_gather(im->graph, order, sort_list(im, key, &ignored), 0);
}

/* The same by all columns, the last one first. `some`: whether at all, or ASH_NO_VALUE. */
static ash_value sort_by_all(ash_import *im, ash_value x, ash_value order, ash_value some) {
    ash_graph *g = im->graph;
    ash_value columns = ash_build__swap(g, x, 0, 1), arguments[3], next, outs[2];
    ash_loop loop = {.trips = ash_import__type(im, x).dims[1],
                     .carried = 1,
                     .scanned = 1,
                     .backward = 1,
                     .go = some,
                     .next_go = some,
                     .init = &order,
                     .xs = &columns,
                     .arguments = arguments,
                     .next = &next};
    if (!ash_import__ok(im) || !ash_build__begin_loop(g, &loop)) return ASH_NO_VALUE;
    next = sort_by(im, arguments[ASH_LOOP_CARRIED + 1], arguments[ASH_LOOP_CARRIED]);
    if (ash_build__end_loop(g, &loop, outs) != ASH_OK) return ASH_NO_VALUE;
    return outs[some != ASH_NO_VALUE];
}

/* --- rows of many columns ----------------------------------------------------------------------------- */

/* Rows that are alike in the columns so far are a class, and classes are in order. The next column in which
 * one of a class differs from the row behind it is looked for in a block of columns; the few that it is
 * among sort the rows within their classes. That ends when each row is a class of its own, for most data
 * after the first columns. At worst, every few columns take a sort each and one more. */
enum { LOOKED_AT = 64, SORTED_AT_ONCE = LAID_OUT };

typedef struct classes {
    ash_dim rows, columns;
    ash_value looked_at, sorted; /* the rows as [rows, blocks, columns of one]; what fills them is 0 */
    ash_value order;             /* i64 [rows] */
    ash_value of;                /* the class of each row, by its number, i64 [rows] */
} classes;

static classes classes_of(ash_import *im, ash_value x) {
    ash_graph *g = im->graph;
    const ash_type type = ash_import__type(im, x);
    classes c = {.rows = type.dims[0], .columns = type.dims[1]};
    const bool few = ash_dim_is_const(c.columns) && c.columns < LOOKED_AT;
    const int64_t look = few ? ash_ceil_div(c.columns, SORTED_AT_ONCE) * SORTED_AT_ONCE : LOOKED_AT;
    ash_dim blocks = ash_graph_dim_div(g, ash_graph_dim_add(g, c.columns, look - 1), look);
    ash_dim whole = ash_graph_dim_mul(g, blocks, look);
    const ash_dim none[] = {0, 0}, behind[] = {0, ash_graph_dim_sub(g, whole, c.columns)};
    x = ash_build__pad(g, x, 0, none, behind, NULL);
    c.looked_at = ash_reshape(g, x, (ash_dim[]){c.rows, blocks, look}, 3);
    blocks = ash_graph_dim_mul(g, blocks, look / SORTED_AT_ONCE);
    c.sorted = ash_reshape(g, x, (ash_dim[]){c.rows, blocks, SORTED_AT_ONCE}, 3);
    return c;
}

/* Whether elements have another place in the order than those before them; NaNs have one. */
static ash_value differ(ash_import *im, ash_value x, ash_value before) {
    ash_graph *g = im->graph;
    ash_value same = ash_eq(g, x, before);
    if (ash_dtype_is_float(ash_import__type(im, x).dtype))
        same = ash_or(g, same, ash_not(g, ash_or(g, ash_eq(g, x, x), ash_eq(g, before, before))));
    return ash_not(g, same);
}

/* The numbers of elements before those of a list; the first one is its own. */
static ash_value numbers_before(ash_import *im, ash_dim n) {
    ash_value before = ash_build__with(im->graph, ASH_OP_SUB, numbers_below(im, n), 1);
    return ash_max(im->graph, before, ash_scalar(im->graph, ASH_I64, 0));
}

/* Whether each row in the order differs from the one before it, in each column of a block (its number,
 * i64). */
static ash_value differ_in_block(ash_import *im, const classes *c, ash_value blocks, ash_value number) {
    ash_graph *g = im->graph;
    const ash_type type = ash_import__type(im, blocks);
    const ash_dim flat[] = {ash_graph_dim_mul(g, type.dims[0], type.dims[1]), type.dims[2]};
    ash_value here = ash_mul(g, c->order, ash_build__dim(g, type.dims[1]));
    here = ash_add(g, here, number);
    ash_value before = ash_gather(g, here, numbers_before(im, c->rows), 0);
    blocks = ash_reshape(g, blocks, flat, 2);
    return differ(im, ash_gather(g, blocks, here, 0), ash_gather(g, blocks, before, 0));
}

/* Whether each row in the order is of another class than the one before it; the first one is not. */
static ash_value classes_differ(ash_import *im, const classes *c) {
    ash_value here = ash_gather(im->graph, c->of, c->order, 0);
    return differ(im, here, ash_gather(im->graph, here, numbers_before(im, c->rows), 0));
}

/* The first column of a block (its number, i64) in which a row differs from the one before it in its class;
 * else the number of all columns. */
static ash_value find_difference(ash_import *im, const classes *c, ash_value number) {
    ash_graph *g = im->graph;
    ash_value other = differ_in_block(im, c, c->looked_at, number),
              alike = ash_not(g, classes_differ(im, c));
    other = ash_and(g, other, ash_build__insert_axis(g, alike, 1));
    other = ash_build__reduce(g, ASH_OP_REDUCE_MAX, other, 1u << 0, false);
    const ash_dim look = ash_import__type(im, other).dims[0];
    ash_value at =
        ash_add(g, numbers_below(im, look), ash_build__with(g, ASH_OP_MUL, number, (double)look));
    at = ash_select(g, other, at, ash_build__dim(g, c->columns));
    return ash_build__reduce(g, ASH_OP_REDUCE_MIN, at, 1u << 0, false);
}

/* A step from column *done on: a block that it is in is looked at, and where there is a difference, columns
 * are sorted by. Returns whether there is more to do. */
static ash_value refine(ash_import *im, classes *c, ash_value *done) {
    ash_graph *g = im->graph;
    const double look = (double)ash_import__type(im, c->looked_at).dims[2], sort = SORTED_AT_ONCE;
    ash_value all = ash_build__dim(g, c->columns), number = ash_build__with(g, ASH_OP_DIV, *done, look);
    ash_value at = find_difference(im, c, number), found = ash_lt(g, at, all);
    ash_value from = ash_build__with(g, ASH_OP_DIV, at, sort);
    c->order = sort_by_all(im, ash_gather(g, c->sorted, from, 1), c->order, found);
    c->order = sort_by(im, c->of, c->order);
    ash_value fresh = differ_in_block(im, c, c->sorted, from);
    fresh = ash_and(g, ash_build__reduce(g, ASH_OP_REDUCE_MAX, fresh, 1u << 1, false), found);
    fresh = ash_or(g, fresh, classes_differ(im, c));
    ash_value class = ash_cumsum(g, ash_cast(g, fresh, ASH_I64), 0, false, false);
    c->of = ash_scatter_elements(g, ash_build__fill(g, ASH_I64, 0, &c->rows, 1), c->order, class, 0,
                                 ASH_SCATTER_SET);
    ash_value next = ash_build__with(g, ASH_OP_ADD, from, 1);
    number = ash_build__with(g, ASH_OP_ADD, number, 1);
    *done = ash_select(g, found, ash_build__with(g, ASH_OP_MUL, next, sort),
                       ash_build__with(g, ASH_OP_MUL, number, look));
    ash_value last = ash_build__reduce(g, ASH_OP_REDUCE_MAX, class, 1u << 0, false);
    ash_value count = ash_build__with(g, ASH_OP_ADD, last, 1);
    return ash_and(g, ash_lt(g, count, ash_build__dim(g, c->rows)), ash_lt(g, *done, all));
}

static ash_value sort_by_classes(ash_import *im, ash_value x) {
    ash_graph *g = im->graph;
    classes c = classes_of(im, x);
    enum { ORDER, CLASSES, DONE, CARRIED };
    ash_value init[CARRIED], next[CARRIED], arguments[1 + CARRIED], outs[1 + CARRIED];
    init[ORDER] = numbers_below(im, c.rows);
    init[CLASSES] = ash_build__fill(g, ASH_I64, 0, &c.rows, 1);
    init[DONE] = ash_scalar(g, ASH_I64, 0);
    ash_loop loop = {.trips = c.columns,
                     .carried = CARRIED,
                     .go = ash_and(g, ash_lt(g, ash_scalar(g, ASH_I64, 1), ash_build__dim(g, c.rows)),
                                   ash_lt(g, init[DONE], ash_build__dim(g, c.columns))),
                     .init = init,
                     .arguments = arguments,
                     .next = next};
    if (!ash_import__ok(im) || !ash_build__begin_loop(g, &loop)) return ASH_NO_VALUE;
    c.order = arguments[ASH_LOOP_CARRIED + ORDER];
    c.of = arguments[ASH_LOOP_CARRIED + CLASSES];
    next[DONE] = arguments[ASH_LOOP_CARRIED + DONE];
    loop.next_go = refine(im, &c, &next[DONE]);
    next[ORDER] = c.order, next[CLASSES] = c.of;
    if (!ash_import__ok(im) || ash_build__end_loop(g, &loop, outs) != ASH_OK) return ASH_NO_VALUE;
    return outs[1 + ORDER];
}

/* --- the order of subjects ---------------------------------------------------------------------------- */

/* Slices in their order; equals keep theirs. A few columns sort all of them, the last one first. */
static ash_value sort_rows(ash_import *im, ash_value x, ash_dim columns, ash_value *sorted) {
    ash_value order = numbers_below(im, ash_import__type(im, x).dims[0]);
    if (!ash_dim_is_const(columns) || columns > LAID_OUT)
        order = sort_by_classes(im, x);
    else
        for (ash_dim c = columns; c-- > 0 && ash_import__ok(im);)
            order = sort_by(im, ash_build__at(im->graph, x, 1, c), order);
    *sorted = ash_gather(im->graph, x, order, 0);
    return order;
}

/* x is a list, or rows. */
static unique_sort sort_subjects(ash_import *im, ash_value x) {
    const ash_type type = ash_import__type(im, x);
    unique_sort s = {.all = type.dims[0]};
    ash_value sorted = ASH_NO_VALUE, here = numbers_below(im, s.all),
              zero = ash_scalar(im->graph, ASH_I64, 0);
    s.order = type.rank == 1 ? sort_list(im, x, &sorted) : sort_rows(im, x, type.dims[1], &sorted);
    ash_value before = ash_max(im->graph, ash_build__with(im->graph, ASH_OP_SUB, here, 1), zero);
    ash_value other = ash_gather(im->graph, sorted, before, 0);
    other = ash_not(im->graph, ash_eq(im->graph, sorted, other));
    if (type.rank == 2) other = ash_build__reduce(im->graph, ASH_OP_REDUCE_MAX, other, 2, false);
    s.fresh = ash_or(im->graph, other, ash_eq(im->graph, here, zero));
    return s;
}

/* How many are true up to each element, itself aside. */
static ash_value count_before(ash_import *im, ash_value mask) {
    ash_value count = ash_cumsum(im->graph, ash_cast(im->graph, mask, ASH_I64), 0, false, false);
    return ash_build__with(im->graph, ASH_OP_SUB, count, 1);
}

/* The place in the result of each subject, and where its first occurrence is: in ascending order, or in
 * that of the first occurrences. The results that are asked for say which nodes stay. */
void ash_onnx__op_unique(ash_import *im) {
    ash_value x = ash_import__in(im, 0), subjects = x;
    ash_type type = ash_import__type(im, x);
    bool flat = !ash_import__attr(im, "axis", ONNX_ATTR_INT);
    bool ascending = ash_import__attr_int(im, "sorted", 1) != 0;
    unsigned axis = flat ? 0 : ash_import__axis(im, ash_import__attr_int(im, "axis", 0), type.rank);
    if (flat) {
        const ash_dim all = ash_build__product(im->graph, &type, 0, type.rank);
        subjects = x = ash_reshape(im->graph, x, &all, 1);
    } else if (ash_import__ok(im)) {
        for (unsigned a = axis; a > 0; a--) subjects = ash_build__swap(im->graph, subjects, a, a - 1);
        subjects = ash_build__flatten(im->graph, subjects, 1);
    }
    if (type.dtype == ASH_BOOL) subjects = ash_cast(im->graph, subjects, ASH_U8);
    if (!ash_import__ok(im)) return;
    unique_sort s = sort_subjects(im, subjects);
    ash_value none = ash_build__fill(im->graph, ASH_I64, 0, &s.all, 1), place = count_before(im, s.fresh),
              first;
    ash_dim count;
    if (ascending) {
        first = ash_gather(im->graph, s.order, ash_import__found(im, s.fresh, 0, axis, &count), 0);
    } else {
        /* the first of its equals, for each in ascending order, is where the last change before it was */
        ash_value start = ash_select(im->graph, s.fresh, s.order, none);
        start = ash_scatter_elements(im->graph, none, place, start, 0, ASH_SCATTER_ADD);
        start = ash_gather(im->graph, start, place, 0);
        ash_value is_first =
            ash_scatter_elements(im->graph, ash_build__fill(im->graph, ASH_BOOL, 0, &s.all, 1), s.order,
                                 s.fresh, 0, ASH_SCATTER_SET);
        first = ash_import__found(im, is_first, 0, axis, &count);
        place = ash_gather(im->graph, count_before(im, is_first), start, 0);
    }
    ash_import__out(im, 0, ash_gather(im->graph, x, first, axis));
    ash_import__out(im, 1, first);
    ash_import__out(im, 2, ash_scatter_elements(im->graph, none, s.order, place, 0, ASH_SCATTER_SET));
    ash_value counts = ash_scatter_elements(
        im->graph, none, place, ash_build__fill(im->graph, ASH_I64, 1, &s.all, 1), 0, ASH_SCATTER_ADD);
    ash_import__out(im, 3, ash_slice_axis(im->graph, counts, 0, 0, count));
}
