/* SPDX-License-Identifier: MIT */
/* winograd: convolutions of 3 x 3 windows compute tiles of outputs from fewer multiplications.
 *
 *     conv(x, w)  ->  winograd(x, w)        stride, dilation and groups of 1, f32, blocked channels
 *
 * The weights stay as they are: the kernel transforms them, for many tiles at once. Transformed in the
 * prologue they would be 16 / 9 times (tiles of 2 x 2) or 4 times (4 x 4) as large.
 *
 * Not exact: sums are taken in another order, and the transforms amplify rounding (src/ir/winograd.h). So a
 * convolution stays direct when its result reaches a rounding to integers or half floats, however it is
 * scaled before: there its last bit may decide about a whole unit, and quantised networks round as the
 * specification says.
 *
 * Requires layout. */
#include "ir/winograd.h"
#include "rewrite.h"

typedef struct winograd_conv {
    int64_t c, o;                      /* channels of operand and result */
    int64_t x_block, y_block, w_block; /* see ops.def */
    double images, rows, columns;      /* of the result; the most of them */
    bool open[2];                      /* rows, columns: a variable */
} winograd_conv;

/* --- where it is possible --------------------------------------------------------------------------- */

/* To integers, or to half floats. */
static bool is_rounding(const ash_graph *from, const ash_node *node) {
    ash_dtype to = ash_graph__type(from, node->out)->dtype;
    switch (node->op) {
    case ASH_OP_FLOOR:
    case ASH_OP_CEIL:
    case ASH_OP_TRUNC:
    case ASH_OP_ROUND: return true;
    case ASH_OP_CAST: return to != ASH_F32 && to != ASH_F64;
    default: return false;
    }
}

/* Fills rounded[v]: some use of v reaches a rounding without meeting another product or convolution. */
static void find_rounded(const ash_rewrite *rw, bool *rounded) {
    const ash_graph *from = rw->from;
    memset(rounded, 0, from->values.len * sizeof *rounded);
    for (size_t i = from->nodes.len; i-- > 0;) {
        const ash_node *node = &from->nodes.at[i];
        ash_class class = ash_op_infos[node->op].class;
        bool hands_on = ash_op_is_elementwise(node->op) || class == ASH_CLASS_MOVE ||
                        class == ASH_CLASS_POOL || class == ASH_CLASS_REDUCE;
        if (!ash_rewrite__is_live(rw, node) ||
            !(is_rounding(from, node) || (hands_on && rounded[node->out])))
            continue;
        for (size_t k = 0; k < node->n_ins; k++) rounded[node->ins[k]] = true;
    }
}

static bool are_ones(const ash_attr *attr) {
    for (uint32_t i = 0; i < attr->count; i++)
        if (attr->list[i] != 1) return false;
    return true;
}

static double most(const ash_graph *from, ash_dim dim) {
    int64_t min, max;
    ash_dims_bounds(from->dims, dim, &min, &max);
    return (double)max;
}

static bool read_conv(const ash_graph *from, const ash_node *node, winograd_conv *v) {
    if (node->op != ASH_OP_CONV) return false;
    const ash_type *w = ash_graph__type(from, node->ins[1]), *y = ash_graph__type(from, node->out);
    if (y->dtype != ASH_F32) return false;
    *v = (winograd_conv){.o = ash_node_int(node, ASH_ATTR_O),
                         .x_block = ash_node_int(node, ASH_ATTR_X_BLOCK),
                         .y_block = ash_node_int(node, ASH_ATTR_Y_BLOCK),
                         .w_block = ash_node_int(node, ASH_ATTR_W_BLOCK)};
    if (!v->x_block || !v->y_block || !v->w_block || v->w_block % v->y_block) return false;
    if (ash_node_int(node, ASH_ATTR_GROUPS) != 1 || w->rank != 7 || w->dims[3] != 3 || w->dims[4] != 3)
        return false;
    if (!are_ones(ash_node_attr(node, ASH_ATTR_STRIDES)) ||
        !are_ones(ash_node_attr(node, ASH_ATTR_DILATIONS)))
        return false;
    v->c = w->dims[2] * v->x_block;
    v->images = most(from, y->dims[0]);
    v->rows = most(from, y->dims[2]);
    v->columns = most(from, y->dims[3]);
    for (unsigned d = 0; d < 2; d++) v->open[d] = !ash_dim_is_const(y->dims[2 + d]);
    return true;
}

/* --- where it pays ---------------------------------------------------------------------------------- */

/* Of the rows or columns that there can be: as many, and where they are a variable the most of them that
 * are whole tiles, too. */
static bool pays_with(const ash_winograd_rule *rule, double tile, const winograd_conv *v, double rows,
                      double columns) {
    double tiles = v->images * __builtin_ceil(rows / tile) * __builtin_ceil(columns / tile);
    return ash_winograd_pays(rule, v->images * rows * columns, tiles);
}

static double whole(double tile, double extent, bool open) {
    return open && extent >= tile ? extent - __builtin_fmod(extent, tile) : extent;
}

/* Whether it does for some sizes; where it does not, the kernel sees when it runs. */
static bool pays(const ash_costs *c, const winograd_conv *v) {
    const ash_winograd_rule rule =
        ash_winograd_rule_of(c, c->wino_tile, v->c, v->o, v->x_block, v->w_block);
    double tile = (double)c->wino_tile;
    return pays_with(&rule, tile, v, v->rows, v->columns) ||
           pays_with(&rule, tile, v, whole(tile, v->rows, v->open[0]), whole(tile, v->columns, v->open[1]));
}

/* --- what becomes of it ----------------------------------------------------------------------------- */

static ash_value tiled(ash_rewrite *rw, const ash_node *node, const winograd_conv *v) {
    ash_value x = ash_rewrite__get(rw, node->ins[0]), w = ash_rewrite__get(rw, node->ins[1]);
    if (!ash_rewrite__ok(rw)) return ASH_NO_VALUE;
    ash_rewrite__name(rw, node);
    ash_value ins[] = {x, w};
    ash_attr attrs[] = {*ash_node_attr(node, ASH_ATTR_BEFORE), *ash_node_attr(node, ASH_ATTR_AFTER),
                        ASH_ATTR_I(Y_BLOCK, v->y_block), ASH_ATTR_I(O, v->o),
                        ASH_ATTR_I(TILE, rw->opt->target->costs.wino_tile)};
    return ash_build(rw->to, ASH_OP_WINOGRAD, ins, 2, attrs, 5);
}

ash_status ash_opt__winograd(const ash_opt *opt, const ash_graph *from, ash_graph **out, ash_diag *diag) {
    ash_rewrite rw;
    ASH_TRY(ash_rewrite__begin(&rw, opt, from, diag));
    bool *constant = ash_arena_alloc(&rw.scratch, from->values.len, sizeof *constant);
    bool *rounded = ash_arena_alloc(&rw.scratch, from->values.len, sizeof *rounded);
    if (!constant || !rounded) return ash_rewrite__abandon(&rw, ASH_NO_MEMORY(diag));
    ash_rewrite__find_constants(&rw, constant);
    find_rounded(&rw, rounded);
    for (size_t i = 0; i < from->nodes.len && ash_rewrite__ok(&rw); i++) {
        const ash_node *node = &from->nodes.at[i];
        winograd_conv v;
        if (!ash_rewrite__is_live(&rw, node)) continue;
        if (read_conv(from, node, &v) && constant[node->ins[1]] && !rounded[node->out] &&
            pays(&opt->target->costs, &v))
            ash_rewrite__bind(&rw, node->out, tiled(&rw, node, &v));
        else
            ash_rewrite__copy(&rw, node);
    }
    return ash_rewrite__end(&rw, out);
}
