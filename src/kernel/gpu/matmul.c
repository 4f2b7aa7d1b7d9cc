/* SPDX-License-Identifier: MIT */
/* Matrix products of floats on a GPU: chunks are (batch, tile of rows, tile of columns), neighbours share
 * their rows. */
#include "tile.h"

typedef struct gpu_product {
    ash_kern *k;
    const ash_node *node;
    unsigned rank; /* of both operands and the result */
    ash_dim m, n, inner;
    ash_sym row, block, lane, batch[ASH_MAX_RANK];
    ash_ix out[ASH_MAX_RANK]; /* index of the result */
    ash_gpu_tile tile;
} gpu_product;

static void make_symbols(gpu_product *p) {
    ash_kern *k = p->k;
    ash_ixs *ixs = &k->ixs;
    const ash_type *out = ash_graph__type(k->graph, p->node->out);
    const int64_t lanes = ash_gpu_lanes(p->tile.shape);
    for (unsigned d = 0; d + 2 < p->rank; d++) {
        p->batch[d] = ash_kern_sym(k, out->dims[d]);
        p->out[d] = ash_ix_sym(ixs, p->batch[d]);
    }
    p->row = ash_kern_sym(k, p->m);
    p->block = ash_kern_sym(k, ash_kern_ceil_div(k, p->n, lanes));
    p->lane = ash_kern_sym(k, lanes);
    p->out[p->rank - 2] = ash_ix_sym(ixs, p->row);
    p->out[p->rank - 1] =
        ash_ix_add(ixs, ash_ix_scale(ixs, ash_ix_sym(ixs, p->block), lanes), ash_ix_sym(ixs, p->lane));
}

static bool find_operands(gpu_product *p) {
    ash_kern *k = p->k;
    ash_ixs *ixs = &k->ixs;
    ash_gpu_operand *a = &p->tile.a, *b = &p->tile.b;
    unsigned last = p->rank - 1;
    ash_ix at_a[ASH_MAX_RANK], at_b[ASH_MAX_RANK];
    a->term = b->term = ash_gpu_sym(k, p->inner, p->tile.shape.terms);
    a->line = ash_gpu_sym(k, p->m, ash_gpu_rows(p->tile.shape));
    b->line = ash_gpu_sym(k, p->n, ash_gpu_columns(p->tile.shape));
    memcpy(at_a, p->out, sizeof at_a);
    memcpy(at_b, p->out, sizeof at_b);
    ash_ix term = ash_ix_sym(ixs, a->term);
    at_a[last - 1] = ash_ix_sym(ixs, a->line);
    at_a[last] = at_b[last - 1] = term;
    at_b[last] = ash_ix_sym(ixs, b->line);
    ash_gpu_bound(a, at_a[last - 1], p->m);
    ash_gpu_bound(b, at_b[last], p->n);
    ash_gpu_bound(a, term, p->inner);
    ash_gpu_bound(b, term, p->inner);
    return ash_tile_operand_at(k, p->node->ins[0], at_a, &a->at) &&
           ash_tile_operand_at(k, p->node->ins[1], at_b, &b->at);
}

static ash_ref set_tile(void *arg, ash_ref tile, bool first) {
    gpu_product *p = arg;
    (void)first;
    ash_nest *n = &p->k->nest;
    return ash_nest_binary(n, ASH_OP_MUL, tile, ash_nest_index(n, p->tile.shape.terms));
}

static int64_t known(ash_dim lines) {
    return ash_dim_is_const(lines) ? lines : 0;
}

static bool lower_tiles(gpu_product *p, ash_gpu_shape shape, ash_dim batches, ash_dim *chunks) {
    ash_kern *k = p->k;
    ash_nest *n = &k->nest;
    p->tile = (ash_gpu_tile){.k = k, .shape = shape, .set = set_tile, .arg = p};
    make_symbols(p);
    if (!find_operands(p)) return false;
    int64_t rows = ash_gpu_rows(shape), columns = ash_gpu_columns(shape);
    ash_dim tiles_down = ash_kern_ceil_div(k, p->m, rows),
            tiles_across = ash_kern_ceil_div(k, p->n, columns);
    ash_gpu_tile_open(&p->tile);
    p->tile.k_tiles = ash_kern_dim(k, ash_kern_ceil_div(k, p->inner, shape.terms));
    ash_ref chunk = ash_nest_loop(n, ash_kern_argument(k, ASH_NEST_BEGIN_ARG),
                                  ash_kern_argument(k, ASH_NEST_END_ARG), 1, 1);
    ash_ref across = ash_kern_dim(k, tiles_across), down = ash_kern_dim(k, tiles_down);
    ash_ref rest = ash_nest_idiv(n, chunk, across);
    ash_kern_decode(k, ash_graph__type(k->graph, p->node->out)->dims, p->rank - 2, p->batch,
                    ash_nest_idiv(n, rest, down));
    ash_ref row = ash_nest_binary(n, ASH_OP_MUL, ash_nest_imod(n, rest, down), ash_nest_index(n, rows)),
            column =
                ash_nest_binary(n, ASH_OP_MUL, ash_nest_imod(n, chunk, across), ash_nest_index(n, columns)),
            row0;
    ash_tile t = {.k = k, .anchor = p->node, .block = p->block, .lane = p->lane, .columns = p->n};
    t.rows_end = ash_dim_is_const(p->m) && p->m % rows == 0 ? 0 : p->m;
    t.columns_end = !ash_dim_is_const(p->n) || p->n % columns;
    ash_tile_set_root(&t, p->out);
    ash_gpu_tile_sum(&p->tile, &t, row, column, &row0);
    const ash_gpu_axes axes = {.n = 1, .extents = {p->inner}};
    ash_gpu_store(&t, p->row, row0, shape.math == ASH_GPU_TF32X3 ? &axes : NULL);
    ash_nest_end(n);
    *chunks = ash_kern_product(k, ash_kern_product(k, tiles_down, tiles_across), batches);
    return true;
}

bool ash_gpu_lower_matmul(ash_kern *k, ash_dim *chunks) {
    const ash_node *node = &k->graph->nodes.at[k->group->anchor];
    const ash_type *out = ash_graph__type(k->graph, node->out),
                   *a = ash_graph__type(k->graph, node->ins[0]);
    gpu_product p = {.k = k,
                     .node = node,
                     .rank = out->rank,
                     .m = out->dims[out->rank - 2],
                     .n = out->dims[out->rank - 1],
                     .inner = a->dims[a->rank - 1]};
    ash_dim batches = 1;
    if (ash_node_int(node, ASH_ATTR_B_BLOCK)) return false;
    if (node->op == ASH_OP_MATMUL_LIBRARY && ash_gpu_lower_library(k, chunks)) return true;
    for (unsigned d = 0; d + 2 < p.rank; d++) batches = ash_kern_product(k, batches, out->dims[d]);
    const ash_gpu_work work = {.rows = ash_kern_max(k, p.m),
                               .columns = ash_kern_max(k, p.n),
                               .batches = (double)ash_kern_max(k, batches),
                               .terms = ash_kern_max(k, p.inner),
                               .runs = 1,
                               .few = out->dtype == ASH_I32 ? 0 : ash_gpu_few_of(known(p.m), known(p.n)),
                               .math = ash_gpu_math_of(k, node)};
    ash_gpu_shape shape;
    ash_gpu_choose(k->low->target, &work, &shape);
    const bool done = shape.thread_rows ? lower_tiles(&p, shape, batches, chunks)
                      : shape.across    ? ash_gpu_lower_strip(k, shape.across, chunks)
                                        : ash_gpu_lower_few(k, chunks);
    if (done) ash_gpu_set_job(k, &work, shape);
    return done;
}
