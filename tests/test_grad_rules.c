/* SPDX-License-Identifier: MIT */
/* Every rule of src/grad/gradients.def against central differences in double precision, by the reference
 * evaluator: random shapes and attributes, a third of the dims variables, empty ones among them;
 * gradients, and gradients of gradients. */
#include "ir_fixture.h"

#include <math.h>

#include "ashlar/plan.h"
#include "ashlar/reference.h"
#include "ashlar/train.h"
#include "ir/build.h"

static ash_diag diag;

enum { SHAPES = TEST_SANITIZED ? 12 : 30, MOST_INPUTS = 4, MOST_VARS = 16 };
enum { MOST_SHOWN = 40 }; /* elements that are moved, of an input */
enum { PLANNED = 11 };    /* every so many shapes are compiled, too */

/* A graph in the making, with the data of its inputs and the values of its variables. */
typedef struct trial {
    ash_graph *g;
    uint64_t random;
    ash_value xs[MOST_INPUTS];
    void *data[MOST_INPUTS];
    size_t count[MOST_INPUTS]; /* elements; of those that are not differentiated too */
    bool integer[MOST_INPUTS];
    size_t n;
    char names[MOST_VARS][8];
    int64_t values[MOST_VARS];
    ash_dim dims[MOST_VARS];
    size_t n_vars;
} trial;

static int64_t below(trial *t, int64_t n) {
    return (int64_t)(next_random(&t->random) >> 11) % n;
}

static int64_t between(trial *t, int64_t least, int64_t most) {
    return least + below(t, most - least + 1);
}

static double uniform(trial *t, double low, double high) {
    return low + (high - low) * (double)(next_random(&t->random) >> 11) * 0x1p-53;
}

/* A dim of n elements: a number, or a variable that is n now, and is `least` or more. */
static ash_dim dim_from(trial *t, int64_t n, int64_t least) {
    if (below(t, 3) || t->n_vars == MOST_VARS) return n;
    size_t v = t->n_vars++;
    snprintf(t->names[v], sizeof t->names[v], "v%zu", v);
    t->values[v] = n;
    return t->dims[v] = ash_graph_var(t->g, t->names[v], least, n + 2);
}

static ash_dim dim(trial *t, int64_t n) {
    return dim_from(t, n, n ? 1 : 0);
}

/* What a dim of the graph is in this trial. */
static int64_t present(const trial *t, ash_dim d) {
    int64_t vars[MOST_VARS] = {0};
    for (size_t v = 0; v < ash_dims_var_count(t->g->dims); v++) vars[v] = t->values[v];
    return ash_dims_eval(t->g->dims, d, vars);
}

/* A random shape of up to 12 elements a dim, now and then empty. */
static ash_type shape(trial *t, unsigned least, unsigned most) {
    ash_type type = {.dtype = ASH_F64, .rank = (unsigned)between(t, least, most)};
    for (unsigned d = 0; d < type.rank; d++) type.dims[d] = dim(t, below(t, 15) ? between(t, 1, 4) : 0);
    return type;
}

static ash_value input(trial *t, ash_type type, double low, double high) {
    char name[8];
    size_t i = t->n++, n = 1;
    snprintf(name, sizeof name, "x%zu", i);
    for (unsigned d = 0; d < type.rank; d++) n *= (size_t)present(t, type.dims[d]);
    double *data = calloc(n + 1, sizeof *data);
    for (size_t k = 0; k < n; k++) data[k] = uniform(t, low, high);
    t->data[i] = data;
    t->count[i] = n;
    return t->xs[i] = ash_graph_input(t->g, name, &type);
}

/* Integers from `low` to `high`. */
static ash_value indices(trial *t, ash_type type, int64_t low, int64_t high) {
    size_t i = t->n;
    type.dtype = ASH_I64;
    ash_value value = input(t, type, 0, 1);
    int64_t *data = t->data[i];
    for (size_t k = 0; k < t->count[i]; k++) data[k] = between(t, low, high);
    t->integer[i] = true;
    return value;
}

static ash_type typed(unsigned rank, const ash_dim *dims) {
    return make_type(ASH_F64, rank, dims);
}

/* --- graphs --------------------------------------------------------------------------------------- */

typedef ash_value maker(trial *t);

static ash_value make_unary(trial *t) {
    static const struct {
        ash_op op;
        double low, high;
    } all[] = {
        {ASH_OP_NEG, -2, 2},      {ASH_OP_ABS, -2, 2},     {ASH_OP_SQRT, 0.2, 3},   {ASH_OP_EXP, -2, 2},
        {ASH_OP_LOG, 0.2, 3},     {ASH_OP_SIN, -3, 3},     {ASH_OP_COS, -3, 3},     {ASH_OP_TAN, -1, 1},
        {ASH_OP_ASIN, -0.8, 0.8}, {ASH_OP_ACOS, -.8, .8},  {ASH_OP_ATAN, -2, 2},    {ASH_OP_SINH, -2, 2},
        {ASH_OP_COSH, -2, 2},     {ASH_OP_TANH, -2, 2},    {ASH_OP_ASINH, -2, 2},   {ASH_OP_ACOSH, 1.3, 3},
        {ASH_OP_ATANH, -.8, .8},  {ASH_OP_ERF, -2, 2},     {ASH_OP_SIGMOID, -3, 3}, {ASH_OP_CAST, -2, 2},
        {ASH_OP_FLOOR, 0.1, 0.9}, {ASH_OP_SIGN, 0.1, 0.9}, {ASH_OP_ROUND, 0.6, 0.9}};
    static size_t turn;
    size_t which = turn++ % ASH_COUNT(all);
    ash_value x = input(t, shape(t, 0, 3), all[which].low, all[which].high);
    if (all[which].op == ASH_OP_CAST) return ash_cast(t->g, ash_cast(t->g, x, ASH_F32), ASH_F64);
    return ash_build__unary(t->g, all[which].op, x);
}

/* Operands that are broadcast, too. */
static ash_value make_binary(trial *t) {
    static const struct {
        ash_op op;
        double low, high;
    } all[] = {{ASH_OP_ADD, -2, 2},    {ASH_OP_SUB, -2, 2},  {ASH_OP_MUL, -2, 2},
               {ASH_OP_DIV, 0.5, 2},   {ASH_OP_MOD, 0.5, 2}, {ASH_OP_REM, 0.5, 2},
               {ASH_OP_POW, 0.5, 2.5}, {ASH_OP_MIN, -2, 2},  {ASH_OP_MAX, -2, 2}};
    static size_t turn;
    size_t which = turn++ % ASH_COUNT(all);
    ash_type a = shape(t, 0, 3), b = a;
    for (unsigned d = 0; d < b.rank; d++)
        if (!below(t, 3)) b.dims[d] = 1;
    if (b.rank && b.dims[0] == 1) b = typed(b.rank - 1, b.dims + 1);
    ash_value x = input(t, a, -3, 3);
    if (all[which].op == ASH_OP_POW || all[which].op == ASH_OP_DIV)
        for (size_t k = 0; k < t->count[0]; k++) ((double *)t->data[0])[k] = uniform(t, 0.5, 3);
    return ash_build__binary(t->g, all[which].op, x, input(t, b, all[which].low, all[which].high));
}

static ash_value make_select(trial *t) {
    ash_type type = shape(t, 0, 3);
    ash_value a = input(t, type, -2, 2), b = input(t, type, -2, 2);
    return ash_select(t->g, ash_lt(t->g, a, ash_sin(t->g, b)), a, b);
}

static ash_value make_reshape(trial *t) {
    ash_value x = input(t, shape(t, 1, 4), -2, 2);
    unsigned rank = ash_graph_type(t->g, x)->rank;
    return ash_build__flatten(t->g, x, (unsigned)below(t, rank + 1));
}

static ash_value make_transpose(trial *t) {
    ash_type type = shape(t, 1, 4);
    int64_t perm[4] = {0, 1, 2, 3};
    for (unsigned d = type.rank; d-- > 1;) {
        int64_t with = below(t, d + 1), kept = perm[d];
        perm[d] = perm[with], perm[with] = kept;
    }
    ash_value x = input(t, type, -2, 2);
    const ash_attr attr = ash_attr_list(ASH_ATTR_PERM, perm, type.rank);
    return ash_build(t->g, ASH_OP_TRANSPOSE, &x, 1, &attr, 1);
}

static ash_value make_broadcast(trial *t) {
    ash_type to = shape(t, 1, 4), from = to;
    for (unsigned d = 0; d < from.rank; d++)
        if (below(t, 2)) from.dims[d] = 1;
    unsigned lead = (unsigned)below(t, from.rank + 1);
    return ash_broadcast_to(t->g, input(t, typed(from.rank - lead, from.dims + lead), -2, 2), to.dims,
                            to.rank);
}

static ash_value make_slice(trial *t) {
    ash_type type = {.dtype = ASH_F64, .rank = (unsigned)between(t, 1, 3)};
    ash_dim starts[3], counts[3];
    int64_t steps[3];
    for (unsigned d = 0; d < type.rank; d++) {
        int64_t count = between(t, 0, 3), step = between(t, 1, 3), before = below(t, 3),
                after = below(t, 3);
        bool back = below(t, 3) == 0;
        counts[d] = back || below(t, 2) ? count : dim_from(t, count, below(t, 2) && count ? 1 : 0);
        /* As many elements as the slice reaches, and some around them. */
        ash_dim size =
            ash_graph_dim_add(t->g, ash_graph_dim_mul(t->g, counts[d], step), before + after + 1);
        type.dims[d] = size;
        steps[d] = back ? -step : step;
        starts[d] = back ? before + (count ? (count - 1) * step : 0) : before;
    }
    return ash_slice(t->g, input(t, type, -2, 2), starts, steps, counts);
}

static ash_value make_pad(trial *t) {
    ash_type type = shape(t, 1, 3);
    ash_dim before[3], after[3];
    int64_t interior[3];
    for (unsigned d = 0; d < type.rank; d++) {
        before[d] = dim_from(t, below(t, 3), 0), after[d] = below(t, 3);
        interior[d] = below(t, 2) ? 0 : below(t, 3);
    }
    const ash_value ins[] = {input(t, type, -2, 2), input(t, typed(0, NULL), -2, 2)};
    const ash_attr attrs[] = {ash_attr_list(ASH_ATTR_BEFORE, before, type.rank),
                              ash_attr_list(ASH_ATTR_AFTER, after, type.rank),
                              ash_attr_list(ASH_ATTR_INTERIOR, interior, type.rank)};
    return ash_build(t->g, ASH_OP_PAD, ins, 2, attrs, 3);
}

static ash_value make_concat(trial *t) {
    ash_type type = shape(t, 1, 3);
    ash_value parts[4];
    unsigned axis = (unsigned)below(t, type.rank), n = (unsigned)between(t, 2, 3);
    for (unsigned i = 0; i < n; i++) {
        type.dims[axis] = dim(t, between(t, 0, 3));
        parts[i] = input(t, type, -2, 2);
    }
    if (below(t, 2)) parts[n++] = parts[0]; /* one value twice */
    return ash_concat(t->g, parts, n, axis);
}

static ash_value make_reduce(trial *t) {
    static const ash_op all[] = {ASH_OP_REDUCE_SUM, ASH_OP_REDUCE_PROD, ASH_OP_REDUCE_MAX,
                                 ASH_OP_REDUCE_MIN};
    static size_t turn;
    ash_type type = shape(t, 0, 3);
    ash_op op = all[turn++ % ASH_COUNT(all)];
    ash_value x = input(t, type, -2, 2);
    if (op == ASH_OP_REDUCE_PROD) /* zeros in products */
        for (size_t k = 0; k < t->count[0]; k++)
            if (!below(t, 5)) ((double *)t->data[0])[k] = 0;
    const uint32_t axes = (uint32_t)below(t, INT64_C(1) << type.rank);
    return ash_build__reduce(t->g, op, x, axes, below(t, 2));
}

static ash_value make_matmul(trial *t) {
    ash_dim m = dim(t, between(t, 1, 3)), k = dim(t, between(t, 0, 3)), n = dim(t, between(t, 1, 3));
    ash_dim batch = dim(t, between(t, 1, 3));
    const ash_type shapes[][2] = {{TYPE(F64, m, k), TYPE(F64, k, n)},
                                  {TYPE(F64, batch, m, k), TYPE(F64, k, n)},
                                  {TYPE(F64, m, k), TYPE(F64, batch, k, n)},
                                  {TYPE(F64, batch, 1, m, k), TYPE(F64, 2, k, n)},
                                  {TYPE(F64, k), TYPE(F64, batch, k, n)}};
    const ash_type *of = shapes[below(t, ASH_COUNT(shapes))];
    ash_value a = input(t, of[0], -1, 1), b = input(t, of[1], -1, 1);
    return ash_matmul(t->g, a, b);
}

/* Windows over `n` dims; the dims that they are over go to `dims`. `meet`: each has elements of the
 * operand. */
static void make_windows(trial *t, unsigned n, bool meet, ash_window *windows, ash_dim *dims) {
    for (unsigned i = 0; i < n; i++) {
        ash_window *w = &windows[i];
        *w = (ash_window){between(t, 1, 3), between(t, 1, 3), between(t, 1, 2), below(t, 3), below(t, 3)};
        const int64_t most = w->dilation == 1 && w->kernel > 1 ? 1 : 0;
        if (meet) w->before = ASH_MIN(w->before, most), w->after = ASH_MIN(w->after, most);
        int64_t span = (w->kernel - 1) * w->dilation + 1, least = span - w->before - w->after;
        int64_t size = between(t, least > 1 ? least : 1, least > 1 ? least + 4 : 5);
        dims[i] = dim_from(t, size, below(t, 2) ? size : 1);
        if (!below(t, 4)) w->before = dim_from(t, w->before, 0);
    }
}

static ash_value make_conv(trial *t) {
    ash_window windows[3];
    unsigned space = (unsigned)between(t, 1, 3);
    int64_t groups = between(t, 1, 3), ins = between(t, 1, 2), outs = between(t, 1, 2);
    ash_type x = typed(2 + space, (const ash_dim[5]){dim(t, between(t, 1, 2)), groups * ins});
    ash_type w = typed(2 + space, (const ash_dim[5]){groups * outs, ins});
    make_windows(t, space, false, windows, x.dims + 2);
    for (unsigned i = 0; i < space; i++) w.dims[2 + i] = windows[i].kernel;
    return ash_conv(t->g, input(t, x, -1, 1), input(t, w, -1, 1), windows, space, groups);
}

static ash_value make_pool(trial *t) {
    ash_window windows[2];
    int64_t axes[2] = {below(t, 2), 2};
    unsigned n = (unsigned)between(t, 1, 2);
    static size_t turn;
    ash_dim over[2];
    ash_type x = TYPE(F64, dim(t, 2), dim(t, 2), dim(t, 2));
    const bool largest = turn++ % 2;
    make_windows(t, n, largest, windows, over);
    for (unsigned i = 0; i < n; i++) x.dims[axes[i]] = over[i];
    return ash_pool(t->g, largest ? ASH_OP_POOL_MAX : ASH_OP_POOL_SUM, input(t, x, -1, 1), axes, windows,
                    n);
}

/* Indices that are outside are among them: gathers clamp, scatter_nd skips. */
static ash_value make_gather(trial *t) {
    ash_type x = {.dtype = ASH_F64, .rank = (unsigned)between(t, 1, 3)}, at = shape(t, 0, 2);
    static size_t turn;
    for (unsigned d = 0; d < x.rank; d++) x.dims[d] = dim(t, between(t, 1, 4));
    unsigned axis = (unsigned)below(t, x.rank);
    switch (turn++ % 3) {
    case 0: return ash_gather(t->g, input(t, x, -1, 1), indices(t, at, -6, 6), axis);
    case 1:
        at = x;
        at.dims[axis] = dim(t, between(t, 0, 4));
        return ash_gather_elements(t->g, input(t, x, -1, 1), indices(t, at, -6, 6), axis);
    default: {
        unsigned batch = (unsigned)below(t, x.rank), depth = (unsigned)between(t, 1, x.rank - batch);
        at = typed(batch + 2, x.dims);
        at.dims[batch] = dim(t, between(t, 0, 3));
        at.dims[batch + 1] = depth;
        return ash_gather_nd(t->g, input(t, x, -1, 1), indices(t, at, -5, 5), batch);
    }
    }
}

static ash_value make_scatter(trial *t) {
    static const ash_scatter modes[] = {ASH_SCATTER_SET, ASH_SCATTER_ADD, ASH_SCATTER_MIN, ASH_SCATTER_MAX};
    static size_t turn;
    ash_scatter mode = modes[turn / 2 % ASH_COUNT(modes)];
    ash_type x = {.dtype = ASH_F64, .rank = (unsigned)between(t, 1, 3)}, at;
    for (unsigned d = 0; d < x.rank; d++) x.dims[d] = dim(t, between(t, 1, 4));
    unsigned axis = (unsigned)below(t, x.rank), depth = (unsigned)between(t, 1, x.rank);
    at = x;
    if (turn++ % 2) {
        at.dims[axis] = dim(t, between(t, 0, 4));
        ash_value to = input(t, x, -1, 1), where = indices(t, at, -4, 3);
        return ash_scatter_elements(t->g, to, where, input(t, at, -1, 1), axis, mode);
    }
    ash_dim tuples = dim(t, between(t, 0, 4));
    at = TYPE(F64, tuples, depth);
    ash_type updates = typed(x.rank - depth + 1, x.dims + depth - 1);
    updates.dims[0] = tuples;
    ash_value to = input(t, x, -1, 1), where = indices(t, at, -5, 4);
    return ash_scatter_nd(t->g, to, where, input(t, updates, -1, 1), mode);
}

static ash_value make_cumsum(trial *t) {
    ash_type type = shape(t, 1, 3);
    ash_value x = input(t, type, -2, 2);
    const int64_t axis = below(t, type.rank);
    const bool exclusive = below(t, 2), reverse = below(t, 2);
    return ash_cumsum(t->g, x, axis, exclusive, reverse);
}

static ash_value make_topk(trial *t) {
    ash_type type = shape(t, 1, 3);
    unsigned axis = (unsigned)below(t, type.rank);
    type.dims[axis] = dim_from(t, 4, 3);
    ash_value x = input(t, type, -2, 2);
    const int64_t k = between(t, 0, 3);
    return ash_topk(t->g, x, axis, k, below(t, 2), NULL);
}

/* A recurrence: values that change places, one that is an integer, slices and stacks from either end, a
 * weight that is given or read from outside, a count that is computed, a loop within. */
static ash_value make_loop(trial *t) {
    static unsigned turn;
    const unsigned kind = turn++ % 4; /* with bit 0 it has a condition, with bit 1 a loop within */
    ash_graph *g = t->g;
    ash_dim trips = dim(t, below(t, 6) ? between(t, 1, 4) : 0), n = dim(t, between(t, 1, 3));
    ash_value x = input(t, TYPE(F64, trips, n, 2), -1, 1), first = input(t, TYPE(F64, n, 2), -1, 1);
    ash_value w = input(t, TYPE(F64, 2, 2), -1, 1), most = kind & 1 ? indices(t, SCALAR(F64), 0, 5) : 0;
    ash_value init[] = {first, ash_tanh(g, first), ash_scalar(g, ASH_I64, 1)}, a[6], next[3], ys[2],
              outs[6], ends[2];
    ash_loop loop = {.trips = trips,
                     .carried = 3,
                     .scanned = 1,
                     .given = (uint32_t)below(t, 2),
                     .stacked = 2,
                     .backward = (uint64_t)below(t, 8),
                     .go = kind & 1 ? ash_lt(g, ash_scalar(g, ASH_I64, 0), most) : ASH_NO_VALUE,
                     .init = init,
                     .xs = &x,
                     .gives = &w,
                     .arguments = a,
                     .next = next,
                     .ys = ys};
    assert_true(ash_build__begin_loop(g, &loop));
    ash_value product = ash_matmul(g, a[1], loop.given ? a[5] : w), within[3], all[2];
    next[0] = ash_mul(g, ash_softmax(g, ash_add(g, product, a[4]), -1), ash_cast(g, a[3], ASH_F64));
    next[1] = ash_sin(g, ash_add(g, a[1], ash_matmul(g, a[2], ash_exp(g, w))));
    if (kind & 2) {
        const ash_loop inner = {.trips = 2,
                                .carried = 1,
                                .scanned = 1,
                                .stacked = 1,
                                .go = ASH_NO_VALUE,
                                .init = &a[2],
                                .xs = &w,
                                .arguments = within,
                                .next = all,
                                .ys = all + 1,
                                .backward = (uint64_t)below(t, 4)};
        assert_true(ash_build__begin_loop(g, &inner));
        all[0] = ash_matmul(g, ash_sigmoid(g, ash_mul(g, within[1], within[2])), w);
        all[1] = ash_mul(g, all[0], product);
        assert_ok(ash_build__end_loop(g, &inner, ends));
        next[1] = ash_add(g, ends[0], ash_build__reduce(g, ASH_OP_REDUCE_SUM, ends[1], 1, false));
    }
    next[2] = ash_add(g, a[3], ash_scalar(g, ASH_I64, 1));
    ys[0] = ash_mul(g, product, a[2]), ys[1] = next[0];
    if (kind & 1) loop.next_go = ash_lt(g, ash_add(g, a[0], ash_scalar(g, ASH_I64, 1)), most);
    next[0] = ash_add(g, next[0], a[2]);
    assert_ok(ash_build__end_loop(g, &loop, outs));
    const ash_value *last = outs + (kind & 1);
    ash_value sum = ash_add(g, ash_mul(g, last[3], x), ash_mul(g, last[4], ash_exp(g, x)));
    sum = ash_build__reduce(g, ASH_OP_REDUCE_SUM, sum, 1, false);
    return below(t, 4) ? ash_add(g, sum, ash_mul(g, last[0], ash_cos(g, last[1]))) : sum;
}

/* Softmax, normalisation: what is composed. */
static ash_value make_composed(trial *t) {
    ash_dim m = dim(t, between(t, 1, 3)), n = dim(t, between(t, 2, 4));
    ash_value x = input(t, TYPE(F64, m, n), -2, 2), scale = input(t, TYPE(F64, n), 0.5, 2);
    ash_value y = ash_softmax(t->g, ash_mul(t->g, x, scale), -1);
    return ash_gelu(t->g, ash_layer_norm(t->g, y, scale, ASH_NO_VALUE, -1, 1e-2));
}

/* --- differences ---------------------------------------------------------------------------------- */

/* sum(value * numbers), the numbers given by the seed: no element weighs as much as another. */
static ash_value weigh(ash_graph *g, ash_value value, double seed) {
    const ash_type type = *ash_graph_type(g, value);
    ash_value number = ash_scalar(g, ASH_F64, seed);
    for (unsigned d = 0; d < type.rank; d++) {
        ash_value at = ash_cast(g, ash_iota(g, ASH_I64, type.dims, type.rank, d), ASH_F64);
        number = ash_add(g, number, ash_build__with(g, ASH_OP_MUL, at, 1.3 + d));
    }
    const uint32_t axes = (UINT32_C(1) << type.rank) - 1;
    return ash_build__reduce(g, ASH_OP_REDUCE_SUM, ash_mul(g, value, ash_sin(g, number)), axes, false);
}

static ash_reference *evaluate(const trial *t) {
    ash_reference *r;
    const char *names[MOST_VARS];
    for (size_t v = 0; v < t->n_vars; v++) names[v] = t->names[v];
    assert_ok(ash_reference_run(t->g, (const void *const *)t->data, t->n, names, t->values, t->n_vars, &r,
                                &diag));
    return r;
}

/* Output `loss` moved by element k of input i. */
static double slope(trial *t, size_t loss, size_t i, size_t k) {
    const double h = 1e-5;
    double *element = (double *)t->data[i] + k, kept = *element, at[2];
    for (int side = 0; side < 2; side++) {
        *element = kept + (side ? h : -h);
        ash_reference *r = evaluate(t);
        at[side] = ash_reference_output(r, loss, NULL, NULL)[0];
        ash_reference_destroy(r);
    }
    *element = kept;
    return (at[1] - at[0]) / (2 * h);
}

/* Outputs `first` and on are the gradients of output `loss` by the inputs that are no integers. */
static void compare(trial *t, const char *name, unsigned shape, size_t loss, size_t first) {
    ash_reference *r = evaluate(t);
    size_t output = first;
    for (size_t i = 0; i < t->n; i++) {
        if (t->integer[i]) continue;
        size_t count;
        const double *gradient = ash_reference_output(r, output++, NULL, &count);
        assert_int_equal(count, t->count[i]);
        for (size_t k = 0; k < count && k < MOST_SHOWN; k++) {
            double want = slope(t, loss, i, k);
            if (!(fabs(gradient[k] - want) <= 2e-6 * (1 + fabs(want))))
                fail_msg("%s, shape %u: derivative %zu by element %zu of operand %zu is %.10g, not %.10g",
                         name, shape, loss + 1, k, i, gradient[k], want);
        }
    }
    ash_reference_destroy(r);
}

/* A compiled plan of all that has been appended computes what the reference evaluator does. */
static void compare_plan(const fixture *f, const trial *t, const char *name, unsigned shape) {
    ash_plan *plan;
    ash_var_binding vars[MOST_VARS];
    for (size_t v = 0; v < t->n_vars; v++) vars[v] = (ash_var_binding){t->names[v], t->values[v]};
    assert_ok(ash_plan_prepare(f->context, t->g, NULL, &plan, &diag));
    if (t->n_vars) assert_ok(ash_plan_set_vars(plan, vars, t->n_vars, &diag));
    for (size_t i = 0; i < t->n; i++)
        assert_ok(ash_plan_set_input(plan, i, NULL, t->data[i], t->count[i] * sizeof(double), &diag));
    assert_ok(ash_plan_execute(plan, &diag));
    ash_reference *r = evaluate(t);
    for (size_t i = 0; i < ash_graph_output_count(t->g); i++) {
        const ash_view *view;
        size_t count;
        const double *want = ash_reference_output(r, i, NULL, &count);
        double *got = calloc(count + 1, sizeof *got);
        assert_ok(ash_plan_output(plan, i, &view, &diag));
        assert_ok(ash_view_copy_out(view, got, count * sizeof *got, &diag));
        for (size_t k = 0; k < count; k++)
            if (got[k] != want[k] && !(isnan(got[k]) && isnan(want[k])) &&
                !(fabs(got[k] - want[k]) <= 1e-8 * (1 + fabs(want[k]))))
                fail_msg("%s, shape %u: a plan's output %zu has %.12g at %zu, not %.12g", name, shape, i,
                         got[k], k, want[k]);
        free(got);
    }
    ash_reference_destroy(r);
    ash_plan_destroy(plan);
}

static size_t seen[ASH_OP_COUNT];

static void run_trial(fixture *f, maker *make, const char *name, unsigned shape) {
    trial t = {.g = fresh(f), .random = 0x9e3779b97f4a7c15u ^ (shape * 0x1000193u)};
    ash_value xs[MOST_INPUTS], grads[MOST_INPUTS];
    size_t n = 0;
    for (int i = 0; i < 20; i++) next_random(&t.random);
    ash_value y = make(&t);
    assert_ok(ash_graph_status(t.g, &diag));
    for (size_t i = 0; i < t.g->nodes.len; i++) seen[t.g->nodes.at[i].op]++;
    for (size_t i = 0; i < t.n; i++)
        if (!t.integer[i]) xs[n++] = t.xs[i];
    ash_value loss = weigh(t.g, y, 0.3);
    assert_ok(ash_graph_gradients(t.g, &loss, NULL, 1, xs, n, NULL, grads, &diag));
    ash_value second = ash_scalar(t.g, ASH_F64, 0);
    for (size_t i = 0; i < n; i++) second = ash_add(t.g, second, weigh(t.g, grads[i], 0.7 + (double)i));
    ash_graph_output(t.g, "loss", loss);
    ash_graph_output(t.g, "second", second);
    for (size_t round = 0; round < 2; round++) {
        if (round) assert_ok(ash_graph_gradients(t.g, &second, NULL, 1, xs, n, NULL, grads, &diag));
        for (size_t i = 0; i < n; i++) {
            char output[16];
            snprintf(output, sizeof output, "g%zu.%zu", round, i);
            ash_graph_output(t.g, output, grads[i]);
        }
    }
    assert_ok(ash_graph_status(t.g, &diag));
    assert_ok(ash_graph_verify(t.g, &diag));
    compare(&t, name, shape, 0, 2);
    compare(&t, name, shape, 1, 2 + n);
    if (shape % PLANNED == 0 && strcmp(name, "unary")) compare_plan(f, &t, name, shape);
    for (size_t i = 0; i < t.n; i++) free(t.data[i]);
}

static void test_differences(void **state) {
    static const struct {
        const char *name;
        maker *make;
        unsigned times; /* SHAPES of them: it takes turns with so many operators */
    } all[] = {{"unary", make_unary, 23},
               {"binary", make_binary, 9},
               {"select", make_select, 1},
               {"reshape", make_reshape, 1},
               {"transpose", make_transpose, 1},
               {"broadcast", make_broadcast, 1},
               {"slice", make_slice, 2},
               {"pad", make_pad, 1},
               {"concat", make_concat, 1},
               {"reduce", make_reduce, 8},
               {"matmul", make_matmul, 1},
               {"conv", make_conv, 3},
               {"pool", make_pool, 4},
               {"gather", make_gather, 3},
               {"scatter", make_scatter, 8},
               {"cumsum", make_cumsum, 1},
               {"topk", make_topk, 1},
               {"composed", make_composed, 1},
               {"loop", make_loop, 2}};
    for (size_t i = 0; i < ASH_COUNT(all); i++)
        for (unsigned shape = 0; shape < SHAPES * all[i].times; shape++)
            run_trial(*state, all[i].make, all[i].name, shape);
    static const struct {
        ash_op op;
        const char *name;
    } rules[] = {
#define RULE(ID, rule) {ASH_OP_##ID, #ID},
#define ZERO(ID, why)
#define NONE(ID, why)
#include "grad/gradients.def"
    };
    /* A function of the caller: test_grad.c. Stacks: what a loop's first derivative asks of it, which the
     * second one goes through. */
    for (size_t i = 0; i < ASH_COUNT(rules); i++)
        if (rules[i].op != ASH_OP_CUSTOM && rules[i].op != ASH_OP_STACK &&
            seen[rules[i].op] < SHAPES * 2 / 3)
            fail_msg("%s has been differentiated %zu times only", rules[i].name, seen[rules[i].op]);
}

int main(void) {
    const struct CMUnitTest tests[] = {IR_TEST(test_differences)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
