/* SPDX-License-Identifier: MIT */
/* ranges: the least and the largest number of a large value are found in one pass over it, by all
 * threads.
 *
 *     a = reduce_max(x)          m = bits of reduce_max(x), reduce_min(x) over the last axes
 *     b = reduce_min(x)    ->    a = reduce_max(first half of m),  b = reduce_min(second half of m)
 *
 * over all axes: as dynamic quantisation asks for them. A reduction to one element is one chunk, and
 * two of them go over the operand twice; here each row of it is read once, while it is near, and rows
 * are many. What is found of a row is one number of 64 bits, so that both reductions are one kernel; as
 * few of the last axes are a row as make some vectors.
 *
 * Exact: the order of comparisons does not show. After simplify, which makes one reduction of two. */
#include "rewrite.h"

enum {
    ROW = 128,       /* elements, at least */
    LARGE = 1 << 14, /* elements of a value that is worth it */
};

/* Of the values of `from`. */
typedef struct ends {
    ash_value *both; /* their image m; ASH_NO_VALUE: not there yet */
    uint8_t *asked;  /* bit 0: its largest, bit 1: its least */
} ends;

/* The first of the axes of a row; 0: there is one row alone. */
static unsigned first_axis(const ash_graph *from, const ash_type *type) {
    ash_type row = {.dtype = type->dtype};
    unsigned axis = type->rank;
    while (axis > 0 && ash_type_max_count(from->dims, &row) < ROW)
        row.dims[row.rank++] = type->dims[--axis];
    return axis;
}

/* Which end of its operand a node finds, as in `asked`; 0: neither, or it is nothing for this pass. */
static uint8_t end_of(const ash_graph *from, const ash_node *node) {
    if (node->op != ASH_OP_REDUCE_MAX && node->op != ASH_OP_REDUCE_MIN) return 0;
    const ash_type *x = ash_graph__type(from, node->ins[0]);
    if (x->dtype != ASH_F32 || ash_node_attr(node, ASH_ATTR_AXES)->count != x->rank ||
        ash_type_max_count(from->dims, x) < LARGE || !first_axis(from, x))
        return 0;
    return node->op == ASH_OP_REDUCE_MAX ? 1 : 2;
}

/* A number's bits, in 64. */
static ash_value widened(ash_graph *to, ash_value x) {
    return ash_cast(to, ash_bitcast(to, x, ASH_U32), ASH_U64);
}

/* Of each row of x, its largest number in the high half and its least in the low one. */
static ash_value both_ends(ash_rewrite *rw, ash_value x) {
    ash_graph *to = rw->to;
    const ash_type *type = ash_graph__type(to, x);
    uint32_t row = (1u << type->rank) - (1u << first_axis(to, type));
    ash_value high = widened(to, ash_build__reduce(to, ASH_OP_REDUCE_MAX, x, row, false));
    ash_value low = widened(to, ash_build__reduce(to, ASH_OP_REDUCE_MIN, x, row, false));
    return ash_build__binary(to, ASH_OP_OR, ash_build__with(to, ASH_OP_SHL, high, 32), low);
}

static void replace(ash_rewrite *rw, const ends *e, const ash_node *node, uint8_t end) {
    ash_graph *to = rw->to;
    ash_value x = ash_rewrite__get(rw, node->ins[0]), *m = &e->both[node->ins[0]];
    ash_rewrite__name(rw, node);
    if (*m == ASH_NO_VALUE) *m = both_ends(rw, x);
    if (!ash_rewrite__ok(rw)) return;
    ash_value half = end == 1 ? ash_build__with(to, ASH_OP_SHR, *m, 32) : *m;
    half = ash_bitcast(to, ash_cast(to, half, ASH_U32), ASH_F32);
    uint32_t all = (1u << ash_graph__type(to, half)->rank) - 1;
    ash_rewrite__bind(rw, node->out, ash_build__reduce(to, node->op, half, all, false));
}

ash_status ash_opt__ranges(const ash_opt *opt, const ash_graph *from, ash_graph **out, ash_diag *diag) {
    ash_rewrite rw;
    ends e;
    ASH_TRY(ash_rewrite__begin(&rw, opt, from, diag));
    e.both = ash_arena_alloc(&rw.scratch, from->values.len, sizeof *e.both);
    e.asked = ash_arena_alloc(&rw.scratch, from->values.len, sizeof *e.asked);
    if (!e.both || !e.asked) return ash_rewrite__abandon(&rw, ASH_NO_MEMORY(diag));
    memset(e.asked, 0, from->values.len);
    for (size_t v = 0; v < from->values.len; v++) e.both[v] = ASH_NO_VALUE;
    for (size_t i = 0; i < from->nodes.len; i++) {
        const ash_node *node = &from->nodes.at[i];
        uint8_t end = ash_rewrite__is_live(&rw, node) ? end_of(from, node) : 0;
        if (end) e.asked[node->ins[0]] |= end;
    }
    for (size_t i = 0; i < from->nodes.len && ash_rewrite__ok(&rw); i++) {
        const ash_node *node = &from->nodes.at[i];
        if (!ash_rewrite__is_live(&rw, node)) continue;
        uint8_t end = end_of(from, node);
        if (end && e.asked[node->ins[0]] == 3)
            replace(&rw, &e, node, end);
        else
            ash_rewrite__copy(&rw, node);
    }
    return ash_rewrite__end(&rw, out);
}
