/* SPDX-License-Identifier: MIT */
/* library: products that a library of the device does, where that is not slower, as the forecasts of
 * base/gpu_tile.h have it; so nothing is slower for being allowed.
 *
 *     matmul(a, b)  ->  matmul_library(a, b)
 *
 * A call of it is a kernel of its own: what is computed from the product element by element, which would be
 * a part of a kernel of ours, is another one then, and counts. It takes what lies as matrices do, with one
 * distance between rows or columns and one between the matrices of a batch:
 *
 *     base    row-major                 [2, 128, 3, 64]      96 x 256, 192, 64, 1     elements apart
 *     moved   as a product reads it     [2, 3, 64, 128]      turned: a column's elements are 1 apart
 *
 * Left to our kernels: sizes that are variables, as the size of a call is said by the host; what the
 * prologue does, once; scores of attention, which are not stored. */
#include "base/gpu_tile.h"
#include "rewrite.h"

static bool is_movement(ash_op op) {
    return op == ASH_OP_RESHAPE || op == ASH_OP_TRANSPOSE || op == ASH_OP_BROADCAST || op == ASH_OP_SLICE;
}

/* Elements apart, dim by dim, of what movement makes of a value that lies row-major. */
typedef struct lie {
    unsigned rank;
    int64_t dims[ASH_MAX_RANK], apart[ASH_MAX_RANK];
} lie;

static bool known(const ash_type *type, lie *out) {
    int64_t apart = 1;
    out->rank = type->rank;
    for (unsigned d = type->rank; d-- > 0;) {
        if (!ash_dim_is_const(type->dims[d]) || type->dims[d] < 1) return false;
        out->dims[d] = type->dims[d];
        out->apart[d] = apart;
        apart *= type->dims[d];
    }
    return true;
}

/* Through a reshape: each run of dims that lie as one is cut anew. */
static bool reshape(const lie *in, lie *out) {
    unsigned i = 0, o = 0;
    while (i < in->rank || o < out->rank) {
        unsigned i0 = i, o0 = o;
        int64_t a = i < in->rank ? in->dims[i++] : 1, b = o < out->rank ? out->dims[o++] : 1;
        while (a != b) {
            if (a < b ? i == in->rank : o == out->rank) return false;
            if (a < b)
                a *= in->dims[i++];
            else
                b *= out->dims[o++];
        }
        int64_t last = 0, apart = 0; /* dims of 1 lie anywhere */
        for (unsigned d = i; d-- > i0;) {
            if (in->dims[d] == 1) continue;
            if (!last)
                apart = in->apart[d];
            else if (in->apart[d] != last)
                return false;
            last = in->apart[d] * in->dims[d];
        }
        for (unsigned d = o; d-- > o0;) {
            out->apart[d] = apart;
            apart *= out->dims[d];
        }
    }
    return true;
}

/* What one node of movement makes of what lies so. */
static bool move(const ash_graph *g, const ash_node *node, const lie *in, lie *out) {
    const int64_t *list;
    if (!known(ash_graph__type(g, node->out), out)) return false;
    switch (node->op) {
    case ASH_OP_RESHAPE: return reshape(in, out);
    case ASH_OP_TRANSPOSE:
        list = ash_node_list(node, ASH_ATTR_PERM);
        for (unsigned d = 0; d < out->rank; d++) out->apart[d] = in->apart[list[d]];
        return true;
    case ASH_OP_SLICE:
        list = ash_node_list(node, ASH_ATTR_STARTS);
        for (unsigned d = 0; d < out->rank; d++)
            if (!ash_dim_is_const(list[d])) return false;
        list = ash_node_list(node, ASH_ATTR_STEPS);
        for (unsigned d = 0; d < out->rank; d++) out->apart[d] = in->apart[d] * list[d];
        return true;
    default: /* broadcast: aligned at the last dim */
        for (unsigned d = 0; d < out->rank; d++) {
            const unsigned from = d + in->rank - out->rank;
            const bool there = d + in->rank >= out->rank;
            out->apart[d] = there && in->dims[from] == out->dims[d] ? in->apart[from] : 0;
        }
        return true;
    }
}

/* How a value lies: movement is gone back through, some nodes of it; all else is stored, row-major. */
static bool lies(const ash_graph *g, ash_value value, lie *out) {
    enum { MOST = 16 };
    const ash_node *behind[MOST];
    unsigned count = 0;
    lie in;
    for (const ash_value_info *info = ash_graph__value(g, value); info->kind == ASH_VALUE_NODE;
         info = ash_graph__value(g, value)) {
        const ash_node *node = &g->nodes.at[info->node];
        if (!is_movement(node->op)) break;
        if (count == MOST) return false;
        behind[count++] = node;
        value = node->ins[0];
    }
    if (!known(ash_graph__type(g, value), out)) return false;
    while (count) {
        in = *out;
        if (!move(g, behind[--count], &in, out)) return false;
    }
    return true;
}

/* Whether it is matrices of rows or columns whose elements are neighbours, one distance apart. */
static bool lies_as_matrices(const ash_graph *g, ash_value value) {
    lie m;
    if (!lies(g, value, &m) || m.rank < 2) return false;
    const unsigned r = m.rank - 2, c = m.rank - 1;
    bool rows = (m.dims[c] == 1 || m.apart[c] == 1) && (m.dims[r] == 1 || m.apart[r] >= m.dims[c]),
         columns = (m.dims[r] == 1 || m.apart[r] == 1) && (m.dims[c] == 1 || m.apart[c] >= m.dims[r]);
    if (!rows && !columns) return false;
    int64_t last = -1; /* what the next dim in front must be apart */
    for (unsigned d = r; d-- > 0;) {
        if (m.dims[d] == 1) continue;
        if (m.apart[d] < 0 || (last >= 0 && m.apart[d] != last)) return false;
        last = m.apart[d] * m.dims[d];
    }
    return true;
}

/* --- which ------------------------------------------------------------------------------------------- */

typedef struct readers {
    bool *constant; /* per value, as are: */
    bool *scores;   /* made element by element into what attends */
    bool *alone;    /* the one thing that is made of it is made element by element, by the same kernel */
} readers;

static void find_readers(const ash_rewrite *rw, readers *m) {
    const ash_graph *g = rw->from;
    for (size_t n = g->nodes.len; n-- > 0;) {
        const ash_node *node = &g->nodes.at[n];
        if (!ash_rewrite__is_live(rw, node)) continue;
        const bool elementwise = ash_op_is_elementwise(node->op), moves = is_movement(node->op);
        for (unsigned i = 0; i < node->n_ins; i++) {
            const ash_value in = node->ins[i];
            if (node->op == ASH_OP_ATTEND) m->scores[in] |= i == 0;
            if (elementwise || moves) m->scores[in] |= m->scores[node->out];
            if (rw->uses[in] == 1) m->alone[in] = elementwise || (moves && m->alone[node->out]);
        }
    }
}

static bool math_of(const ash_target *target, ash_dtype dtype, ash_gpu_math *out) {
    *out = dtype == ASH_F32 ? target->singles : ASH_GPU_HALVES;
    return dtype == ASH_F32 || (target->adds[ASH_GPU_HALVES] && (dtype == ASH_F16 || dtype == ASH_BF16));
}

static ash_library who(const ash_rewrite *rw, const readers *m, const ash_node *node) {
    const ash_graph *g = rw->from;
    const ash_type *a = ash_graph__type(g, node->ins[0]), *y = ash_graph__type(g, node->out);
    ash_gpu_work work = {.batches = 1, .runs = 1};
    ash_library how;
    lie out;
    if (node->op != ASH_OP_MATMUL || ash_node_int(node, ASH_ATTR_B_BLOCK) || m->constant[node->out] ||
        m->scores[node->out] || !math_of(rw->opt->target, y->dtype, &work.math) || a->dtype != y->dtype)
        return ASH_LIBRARY_NONE;
    if (!known(y, &out) || !lies_as_matrices(g, node->ins[0]) || !lies_as_matrices(g, node->ins[1]))
        return ASH_LIBRARY_NONE;
    for (unsigned d = 0; d + 2 < y->rank; d++) work.batches *= (double)y->dims[d];
    work.rows = y->dims[y->rank - 2];
    work.columns = y->dims[y->rank - 1];
    work.terms = a->dims[a->rank - 1];
    work.few = ash_gpu_few_of(work.rows, work.columns);
    if (work.batches > INT32_MAX || ASH_MAX(ASH_MAX(work.rows, work.columns), work.terms) > INT32_MAX)
        return ASH_LIBRARY_NONE;
    double library = ash_gpu_library_time(rw->opt->target, &work, m->alone[node->out], &how);
    return library <= ash_gpu_least(rw->opt->target, &work) ? how : ASH_LIBRARY_NONE;
}

static void mark(ash_rewrite *rw, const ash_node *node, ash_library how) {
    const ash_attr attrs[] = {ASH_ATTR_I(B_BLOCK, 0), ASH_ATTR_I(N, 0), ASH_ATTR_I(LIBRARY, (int64_t)how)};
    const ash_value ins[] = {ash_rewrite__get(rw, node->ins[0]), ash_rewrite__get(rw, node->ins[1])};
    if (!ash_rewrite__ok(rw)) return;
    ash_rewrite__name(rw, node);
    ash_rewrite__bind(rw, node->out,
                      ash_build(rw->to, ASH_OP_MATMUL_LIBRARY, ins, 2, attrs, ASH_COUNT(attrs)));
}

ash_status ash_opt__library(const ash_opt *opt, const ash_graph *from, ash_graph **out, ash_diag *diag) {
    ash_rewrite rw;
    ASH_TRY(ash_rewrite__begin(&rw, opt, from, diag));
    const size_t n = from->values.len;
    readers m = {.constant = ash_arena_alloc(&rw.scratch, n, sizeof *m.constant),
                 .scores = ash_arena_alloc(&rw.scratch, n, sizeof *m.scores),
                 .alone = ash_arena_alloc(&rw.scratch, n, sizeof *m.alone)};
    if (!m.constant || !m.scores || !m.alone) return ash_rewrite__abandon(&rw, ASH_NO_MEMORY(diag));
    ash_rewrite__find_constants(&rw, m.constant);
    find_readers(&rw, &m);
    for (size_t i = 0; i < from->nodes.len && ash_rewrite__ok(&rw); i++) {
        const ash_node *node = &from->nodes.at[i];
        if (!ash_rewrite__is_live(&rw, node)) continue;
        ash_library how = who(&rw, &m, node);
        if (how == ASH_LIBRARY_NONE)
            ash_rewrite__copy(&rw, node);
        else
            mark(&rw, node, how);
    }
    return ash_rewrite__end(&rw, out);
}
