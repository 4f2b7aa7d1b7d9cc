/* SPDX-License-Identifier: MIT */
/* Products that a library of the device does (pass library): no code, but a description of where the three
 * matrices lie (ash_product), and scratch memory. One chunk, which is not cut. */
#include "tile.h"

/* An operand or the result, as its address says. */
typedef struct place_of {
    uint32_t buffer; /* of the program */
    ash_value stored;
    int64_t first, apart[ASH_MAX_RANK]; /* elements; from one to the next along a dim */
} place_of;

/* An address is a sum of numbers times the symbols; false: this one is not. */
static bool read_address(ash_kern *k, const ash_sym *syms, unsigned rank, ash_ix linear, place_of *out) {
    ash_ix rest = linear;
    for (unsigned d = 0; d < rank; d++) {
        if (!ash_ix_lane_stride(&k->ixs, linear, syms[d], 2, false, &out->apart[d])) return false;
        rest =
            ash_ix_sub(&k->ixs, rest, ash_ix_scale(&k->ixs, ash_ix_sym(&k->ixs, syms[d]), out->apart[d]));
    }
    const ash_sum left = ash_ix_sum(&k->ixs, rest);
    out->first = left.min;
    return left.min == left.max;
}

/* A matrix of rows or of columns; false: neighbours of neither are neighbours in memory, or there is more
 * than one distance in the batch. */
static bool describe(const ash_kern *k, const place_of *at, const int64_t *dims, unsigned rank,
                     ash_product_matrix *out) {
    const int64_t rows = dims[rank - 2], columns = dims[rank - 1], row = at->apart[rank - 2],
                  column = at->apart[rank - 1];
    const bool by_rows = (columns == 1 || column == 1) && (rows == 1 || row >= columns),
               by_columns = (rows == 1 || row == 1) && (columns == 1 || column >= rows);
    int64_t in_front = -1;
    const ash_buffer *buffer = &k->low->program->buffers.at[at->buffer];
    const int64_t size = (int64_t)ash_dtype_size(buffer->type.dtype);
    out->first = at->first * size;
    out->turned = !by_rows;
    out->apart = by_rows ? ASH_MAX(rows == 1 ? 1 : row, columns) : ASH_MAX(columns == 1 ? 1 : column, rows);
    for (unsigned d = rank - 2; d-- > 0;) {
        if (dims[d] == 1) continue;
        if (at->apart[d] < 0 || (in_front >= 0 && at->apart[d] != in_front)) return false;
        if (in_front < 0) out->batch = at->apart[d];
        in_front = at->apart[d] * dims[d];
    }
    const int64_t bits = out->first | (int64_t)buffer->align;
    out->align = bits & -bits;
    return (by_rows || by_columns) && at->first >= 0;
}

static int64_t entry(ash_kern *k, const place_of *at, bool write) {
    const ash_dtype dtype = ash_graph__type(k->graph, at->stored)->dtype;
    uint16_t buf = ash_kern_buffer(k, at->buffer, dtype, write);
    ash_kern_access(k, at->stored, write);
    if (!ash_kern_lost(k)) k->uses.at[buf].single = false, k->uses.at[buf].read |= !write;
    return buf;
}

/* Memory for the library's own sums, a buffer of the plan. */
static int64_t room(ash_kern *k, int64_t bytes) {
    uint32_t buffer;
    if (ash_kern_lost(k) || ash_lower__scratch(k->low, ASH_U8, bytes, &buffer) != ASH_OK) {
        k->failed = true;
        return 0;
    }
    ash_buffer *scratch = &k->low->program->buffers.at[buffer];
    scratch->one_worker = true;
    const ash_access read = {buffer, false, 0, scratch->bytes}, write = {buffer, true, 0, scratch->bytes};
    if (!ash_vec_push(k->low->allocator, &k->accesses, read) ||
        !ash_vec_push(k->low->allocator, &k->accesses, write))
        k->failed = true;
    return ash_kern_buffer(k, buffer, ASH_U8, true);
}

bool ash_gpu_lower_library(ash_kern *k, ash_dim *chunks) {
    const ash_node *node = &k->graph->nodes.at[k->group->anchor];
    const ash_type *types[] = {ash_graph__type(k->graph, node->ins[0]),
                               ash_graph__type(k->graph, node->ins[1]),
                               ash_graph__type(k->graph, node->out)};
    const unsigned rank = types[2]->rank;
    const ash_value values[] = {node->ins[0], node->ins[1], node->out};
    ash_product p = {.batches = 1};
    ash_product_matrix *const matrices[] = {&p.a, &p.b, &p.out};
    place_of at[3];
    for (unsigned i = 0; i < 3; i++) {
        ash_sym syms[ASH_MAX_RANK];
        ash_ix idx[ASH_MAX_RANK], linear;
        for (unsigned d = 0; d < rank; d++) {
            if (!ash_dim_is_const(types[i]->dims[d])) return false;
            syms[d] = ash_kern_sym(k, types[i]->dims[d]);
            idx[d] = ash_ix_sym(&k->ixs, syms[d]);
        }
        at[i].stored = values[i];
        if (i == 2)
            linear = ash_kern_linear(k, node->out, idx);
        else if (!ash_kern_address(k, values[i], idx, &at[i].stored, &linear))
            return false;
        at[i].buffer = k->low->places[at[i].stored].buffer;
        if (!read_address(k, syms, rank, linear, &at[i]) ||
            !describe(k, &at[i], types[i]->dims, rank, matrices[i]))
            return false;
    }
    if (p.out.turned) return false;
    for (unsigned d = 0; d + 2 < rank; d++) p.batches *= types[2]->dims[d];
    p.rows = types[2]->dims[rank - 2];
    p.columns = types[2]->dims[rank - 1];
    p.terms = types[0]->dims[rank - 1];
    p.dtype = types[2]->dtype;
    p.tf32 = ash_node_int(node, ASH_ATTR_LIBRARY) == ASH_LIBRARY_TF32;
    for (unsigned i = 0; i < 3; i++) matrices[i]->entry = entry(k, &at[i], i == 2);
    p.room_bytes = k->low->target->costs.library_bytes;
    p.room = room(k, p.room_bytes);
    k->nest.product = p;
    *chunks = 1;
    return true;
}
