/* SPDX-License-Identifier: MIT */
/* What late tensors there are: pieces moved, resized, joined, and filled with one number. An element is
 * asked for by an index, a scalar or a line of the shape that is wanted for each axis; indices are brought
 * inside where a tensor of the graph is read, so that what a concatenation does not take may be computed.
 * A late tensor whose extents are all known in the end is one of the graph; one that an operator needs
 * which is not listed at the end becomes one whose sizes are settled.
 *
 * Limits: slices with steps, operators that are not listed at the end. Reductions: late_reduce.c. */
#include "late.h"

#include "control.h"
#include "ops.h"

typedef enum late_kind {
    LATE_LIST,
    LATE_MOVED,
    LATE_RESIZED,
    LATE_JOINED,
    LATE_FILLED,
    LATE_CAST,
    LATE_PICKED,
    LATE_RESHAPED
} late_kind;

enum {
    NO_AXIS = -1,
    MOST_DEPTH = 64,      /* late tensors upon late tensors */
    MOST_ELEMENTS = 4096, /* lookups that one tensor takes */
    FAR = INT32_MAX       /* an end of a slice from here on is no end */
};

/* Elements along an axis: `dim`, or where that is not known `value`, an i64 scalar. */
typedef struct extent {
    ash_dim dim;
    ash_value value; /* or ASH_NO_VALUE */
} extent;

struct ash_late {
    late_kind kind;
    unsigned depth, rank;
    ash_dtype dtype;
    extent extents[ASH_MAX_RANK];
    bool in_list;       /* holds a list that is not complete: its first extent is not known at all */
    const size_t *from; /* entries */
    size_t n;
    unsigned axis;                  /* joined, picked: along which; reshaped: from where on */
    int axes[ASH_MAX_RANK];         /* moved: of the operand's axis the result's, or NO_AXIS */
    ash_value starts[ASH_MAX_RANK]; /* moved: is added, an i64 scalar or ASH_NO_VALUE */
    ash_value number;               /* filled: with that */
    const ash_onnx_resize *resize;  /* resized: how */
    bool is_resized[ASH_MAX_RANK];
};

/* --- entries -------------------------------------------------------------------------------------- */

static const ash_late *late_of(const ash_import *im, size_t index) {
    return index == SIZE_MAX ? NULL : im->values.at[index].late;
}

unsigned ash_late__rank(const ash_import *im, size_t index) {
    const ash_late *late = late_of(im, index);
    return late ? late->rank : im->values.at[index].type.rank;
}

static extent extent_of(const ash_import *im, size_t index, unsigned axis) {
    const ash_late *late = late_of(im, index);
    return late ? late->extents[axis] : (extent){im->values.at[index].type.dims[axis], ASH_NO_VALUE};
}

int64_t ash_late__extent(ash_import *im, size_t index, unsigned axis) {
    extent e = extent_of(im, index, axis);
    return e.value == ASH_NO_VALUE && ash_dim_is_const(e.dim) ? e.dim : -1;
}

static ash_value value_of(ash_import *im, extent e) {
    return e.value == ASH_NO_VALUE ? ash_build__dim(im->graph, e.dim) : e.value;
}

static ash_value number(ash_import *im, double n) {
    return ash_scalar(im->graph, ASH_I64, n);
}

/* The entry of operand k, read if it is an initializer; SIZE_MAX: missing. */
static size_t operand(ash_import *im, size_t k) {
    if (!ash_import__has(im, k)) return SIZE_MAX;
    size_t index = ash_import__find_name(im, im->node->ins[k]);
    if (index != SIZE_MAX && !late_of(im, index)) ash_import__in_type(im, k);
    return ash_import__ok(im) ? index : SIZE_MAX;
}

static ash_late *new_late(ash_import *im, late_kind kind, const size_t *from, size_t n) {
    if (!ash_import__ok(im)) return NULL; /* an operand may not be there then */
    ash_late *late = ash_import__keep(im, 1, sizeof *late);
    size_t *copy = ash_import__keep(im, n, sizeof *copy);
    if (!late || !copy) return NULL;
    late->kind = kind;
    late->from = copy;
    late->n = n;
    for (size_t i = 0; i < n; i++) {
        const ash_late *part = late_of(im, from[i]);
        copy[i] = from[i];
        late->depth = ASH_MAX(late->depth, part ? part->depth + 1 : 1);
        late->in_list |= part && part->in_list;
    }
    if (late->depth > MOST_DEPTH)
        return ash_import__fail(im, ASH_ERROR_UNSUPPORTED, "a shape that takes too long to compute"), NULL;
    if (n) {
        const ash_late *first = late_of(im, from[0]);
        late->rank = ash_late__rank(im, from[0]);
        late->dtype = first ? first->dtype : im->values.at[from[0]].type.dtype;
        for (unsigned d = 0; d < late->rank; d++) late->extents[d] = extent_of(im, from[0], d);
    }
    for (unsigned d = 0; d < ASH_MAX_RANK; d++) late->axes[d] = (int)d, late->starts[d] = ASH_NO_VALUE;
    return late;
}

static size_t new_entry(ash_import *im, const ash_late *late) {
    ash_import_value entry = {.value = ASH_NO_VALUE, .late = late};
    if (!late || !ash_import__ok(im)) return 0;
    entry.type = (ash_type){.dtype = late->dtype, .rank = late->rank};
    im->has_late = true;
    return ash_import__entry(im, &entry);
}

/* Whether all extents are known; the dims. */
static bool is_known(const ash_late *late, ash_dim *dims) {
    for (unsigned d = 0; d < late->rank; d++) {
        if (late->extents[d].value != ASH_NO_VALUE) return false;
        dims[d] = late->extents[d].dim;
    }
    return !late->in_list;
}

/* Binds the node's result. */
static void bind(ash_import *im, const ash_late *late) {
    ash_dim dims[ASH_MAX_RANK];
    size_t index = new_entry(im, late);
    if (!late || !ash_import__ok(im)) return;
    if (is_known(late, dims))
        ash_import__out(im, 0, ash_late__value(im, index, dims));
    else
        ash_import__alias(im, im->node->outs[0], index);
}

size_t ash_late__list(ash_import *im, const ash_type *type) {
    ash_late *late = new_late(im, LATE_LIST, NULL, 0);
    if (!late) return 0;
    late->rank = type->rank;
    late->dtype = type->dtype;
    late->in_list = true;
    for (unsigned d = 0; d < type->rank; d++) late->extents[d] = (extent){type->dims[d], ASH_NO_VALUE};
    late->extents[0].value = number(im, 0); /* nobody asks for it */
    return new_entry(im, late);
}

size_t ash_late__appended(const ash_import *im, size_t index, size_t list) {
    const ash_late *late = late_of(im, index);
    bool appends = late && late->kind == LATE_JOINED && late->n == 2 && late->axis == 0;
    if (!appends || late->from[0] != list || late->from[1] == list) return SIZE_MAX;
    return late->from[1];
}

/* --- elements ------------------------------------------------------------------------------------- */

typedef struct late_search {
    ash_import *im;
    unsigned count; /* so far */
    bool whole;     /* elements are asked for that are there, and no others */
} search;

static ash_value element(search *l, size_t index, const ash_value *at);

static ash_value in_tensor(const search *l, size_t index, const ash_value *at) {
    ash_import *im = l->im;
    ash_graph *g = im->graph;
    ash_value x = ash_import__materialize(im, index), place = number(im, 0);
    const ash_type type = ash_import__type(im, x);
    ash_dim step = 1;
    for (unsigned d = type.rank; d-- > 0;) {
        int64_t low, high;
        ash_dims_bounds(g->dims, type.dims[d], &low, &high);
        if (low < 1 && !l->whole)
            return ash_import__fail(im, ASH_ERROR_UNSUPPORTED, "a piece of a tensor that may be empty");
        ash_value last = ash_sub(g, ash_build__dim(g, type.dims[d]), number(im, 1));
        ash_value i = ash_min(g, ash_max(g, at[d], number(im, 0)), last);
        if (type.dims[d] != 1) place = ash_add(g, place, ash_mul(g, i, ash_build__dim(g, step)));
        step = ash_graph_dim_mul(g, step, type.dims[d]);
    }
    return ash_gather(g, ash_reshape(g, x, &step, 1), place, 0);
}

/* The axes from `axis` on. */
static ash_value in_resized(search *l, const ash_late *late, unsigned axis, const ash_value *at) {
    ash_import *im = l->im;
    ash_value inner[ASH_MAX_RANK], sum = ASH_NO_VALUE;
    ash_onnx_taps taps;
    while (axis < late->rank && !late->is_resized[axis]) axis++;
    if (axis == late->rank) return element(l, late->from[0], at);
    memcpy(inner, at, late->rank * sizeof *at);
    extent from = extent_of(im, late->from[0], axis);
    l->whole = false;
    if (from.value == ASH_NO_VALUE && from.dim == 1) {
        inner[axis] = number(im, 0);
        return in_resized(l, late, axis + 1, inner);
    }
    ash_onnx__resize_taps(im, late->resize, value_of(im, from), value_of(im, late->extents[axis]), at[axis],
                          &taps);
    for (int t = 0; t < taps.n && ash_import__ok(im); t++) {
        inner[axis] = taps.at[t];
        ash_value part = in_resized(l, late, axis + 1, inner);
        if (taps.weights[t] != ASH_NO_VALUE)
            part = ash_mul(im->graph, part, ash_cast(im->graph, taps.weights[t], late->dtype));
        sum = t ? ash_add(im->graph, sum, part) : part;
    }
    return sum;
}

/* Of the parts from the first on; each begins where the one before ends. */
static ash_value in_joined(search *l, const ash_late *late, const ash_value *at) {
    ash_import *im = l->im;
    ash_graph *g = im->graph;
    ash_value inner[ASH_MAX_RANK], y = ASH_NO_VALUE, end = number(im, 0);
    memcpy(inner, at, late->rank * sizeof *at);
    l->whole = false;
    for (size_t i = 0; i < late->n && ash_import__ok(im); i++) {
        inner[late->axis] = ash_sub(g, at[late->axis], end);
        ash_value part = element(l, late->from[i], inner);
        y = i ? ash_select(g, ash_lt(g, at[late->axis], end), y, part) : part;
        end = ash_add(g, end, value_of(im, extent_of(im, late->from[i], late->axis)));
    }
    return y;
}

static ash_value in_moved(search *l, const ash_late *late, const ash_value *at) {
    ash_import *im = l->im;
    ash_value inner[ASH_MAX_RANK];
    for (unsigned d = 0; d < ash_late__rank(im, late->from[0]); d++) {
        ash_value start = late->starts[d];
        inner[d] = late->axes[d] == NO_AXIS ? number(im, 0) : at[late->axes[d]];
        if (start != ASH_NO_VALUE) inner[d] = ash_add(im->graph, inner[d], start);
    }
    return element(l, late->from[0], inner);
}

/* i, or counted from the end where it is negative. */
static ash_value from_start(ash_import *im, ash_value i, ash_value all) {
    return ash_select(im->graph, ash_lt(im->graph, i, number(im, 0)), ash_add(im->graph, i, all), i);
}

static ash_value in_picked(search *l, const ash_late *late, const ash_value *at) {
    ash_import *im = l->im;
    ash_value inner[ASH_MAX_RANK], all = value_of(im, extent_of(im, late->from[0], late->axis));
    unsigned rank = ash_late__rank(im, late->from[0]), picked = ash_late__rank(im, late->from[1]);
    ash_value i =
        picked ? element(l, late->from[1], at + late->axis) : ash_import__materialize(im, late->from[1]);
    i = from_start(im, ash_cast(im->graph, i, ASH_I64), all);
    for (unsigned d = 0; d < rank; d++)
        inner[d] = d == late->axis ? i : at[d < late->axis ? d : d + picked - 1];
    return element(l, late->from[0], inner);
}

/* By way of the element's number in row-major order. */
static ash_value in_reshaped(search *l, const ash_late *late, const ash_value *at) {
    ash_import *im = l->im;
    ash_graph *g = im->graph;
    ash_value inner[ASH_MAX_RANK], place = number(im, 0);
    memcpy(inner, at, late->axis * sizeof *at);
    for (unsigned d = late->axis; d < late->rank; d++)
        place = ash_add(g, ash_mul(g, place, value_of(im, late->extents[d])), at[d]);
    for (unsigned d = ash_late__rank(im, late->from[0]); d-- > late->axis;) {
        ash_value size = value_of(im, extent_of(im, late->from[0], d)), next = place;
        if (d > late->axis) next = ash_div(g, place, ash_max(g, size, number(im, 1)));
        inner[d] = d > late->axis ? ash_sub(g, place, ash_mul(g, next, size)) : place;
        place = next;
    }
    return element(l, late->from[0], inner);
}

static ash_value element(search *l, size_t index, const ash_value *at) {
    ash_import *im = l->im;
    const ash_late *late = late_of(im, index);
    if (l->count++ == MOST_ELEMENTS)
        return ash_import__fail(im, ASH_ERROR_UNSUPPORTED, "a tensor that takes too many lookups");
    if (!ash_import__ok(im)) return ASH_NO_VALUE;
    if (!late) return in_tensor(l, index, at);
    switch (late->kind) {
    case LATE_LIST: break;
    case LATE_MOVED: return in_moved(l, late, at);
    case LATE_RESIZED: return in_resized(l, late, 0, at);
    case LATE_JOINED: return in_joined(l, late, at);
    case LATE_FILLED: return late->number;
    case LATE_CAST: return ash_cast(im->graph, element(l, late->from[0], at), late->dtype);
    case LATE_PICKED: return in_picked(l, late, at);
    case LATE_RESHAPED: return in_reshaped(l, late, at);
    }
    return ash_import__fail(im, ASH_ERROR_UNSUPPORTED, "an element of a list that a loop appends to");
}

ash_value ash_late__at(ash_import *im, size_t index, const ash_value *at) {
    search l = {.im = im};
    return element(&l, index, at);
}

/* `whole`: the dims are those that are computed. */
static ash_value value_with(ash_import *im, size_t index, const ash_dim *dims, bool whole) {
    search l = {.im = im, .whole = whole};
    const unsigned rank = late_of(im, index)->rank;
    ash_value at[ASH_MAX_RANK];
    for (unsigned d = 0; d < rank; d++) {
        ash_dim line[ASH_MAX_RANK];
        for (unsigned i = 0; i < rank; i++) line[i] = i == d ? dims[i] : 1;
        at[d] = ash_iota(im->graph, ASH_I64, line, rank, d);
    }
    return ash_broadcast_to(im->graph, element(&l, index, at), dims, rank);
}

ash_value ash_late__value(ash_import *im, size_t index, const ash_dim *dims) {
    return late_of(im, index) ? value_with(im, index, dims, false) : ash_import__materialize(im, index);
}

/* Whether it is the first elements, along some axes, of a tensor that is there. */
static bool is_head(const ash_import *im, const ash_late *late) {
    bool head = late->kind == LATE_MOVED && !late_of(im, late->from[0]) &&
                late->rank == ash_late__rank(im, late->from[0]);
    for (unsigned d = 0; head && d < late->rank; d++)
        head = late->axes[d] == (int)d && late->starts[d] == ASH_NO_VALUE;
    return head;
}

static ash_value head_of(ash_import *im, ash_value x, const ash_dim *dims) {
    const ash_dim starts[ASH_MAX_RANK] = {0};
    return ash_slice(im->graph, x, starts, NULL, dims);
}

ash_value ash_late__settled(ash_import *im, size_t index) {
    const ash_late *late = late_of(im, index);
    ash_dim dims[ASH_MAX_RANK];
    if (late->in_list)
        return ash_import__fail(im, ASH_ERROR_UNSUPPORTED,
                                "a list that a loop appends to, which is read before the loop is over");
    for (unsigned d = 0; d < late->rank && ash_import__ok(im); d++) {
        ash_value size = late->extents[d].value;
        ash_dim limit = 0;
        dims[d] = late->extents[d].dim;
        if (size == ASH_NO_VALUE) continue;
        for (unsigned a = 0; late->kind == LATE_MOVED && a < ash_late__rank(im, late->from[0]); a++) {
            const extent from = extent_of(im, late->from[0], a);
            if (late->axes[a] == (int)d && from.value == ASH_NO_VALUE) limit = from.dim;
        }
        if (limit)
            dims[d] = ash_onnx__settle_bound(im, size, limit, d, false);
        else
            ash_onnx__settle_size(im, size, d, 0, &dims[d]);
    }
    if (!ash_import__ok(im)) return ASH_NO_VALUE;
    ash_value value = ASH_NO_VALUE;
    if (is_head(im, late))
        value = head_of(im, ash_import__materialize(im, late->from[0]), dims);
    else
        value = value_with(im, index, dims, true);
    im->values.at[index].value = value;
    return value;
}

/* --- operators ------------------------------------------------------------------------------------ */

/* What a list of rank 1 has been joined from, down to what element *i is in, and where it is there: sizes
 * are mostly joined from some that are known and some that are not. */
static ash_value part_of(const ash_import *im, ash_value x, size_t *i) {
    for (;;) {
        const ash_value_info *info = ash_graph__value(im->graph, x);
        const ash_node *node = info->kind == ASH_VALUE_NODE ? &im->graph->nodes.at[info->node] : NULL;
        if (!node || node->op != ASH_OP_CONCAT) return x;
        size_t at = *i, k = 0;
        for (; k < node->n_ins; k++) {
            ash_dim n = ash_graph__type(im->graph, node->ins[k])->dims[0];
            if (!ash_dim_is_const(n)) return x;
            if ((int64_t)at < n) break;
            at -= (size_t)n;
        }
        if (k == node->n_ins) return x;
        *i = at;
        x = node->ins[k];
    }
}

/* Element i of operand k, which has rank 1, as an extent that may be negative. False: it has no such. */
static bool size_at(ash_import *im, size_t k, size_t i, extent *out) {
    const ash_import_int *list;
    size_t n;
    *out = (extent){0, ASH_NO_VALUE};
    if (ash_import__try_list(im, k, &list, &n)) {
        if (i >= n) return false;
        ash_dim dim;
        if (!ash_import__to_dim(im, list[i], &dim)) return false;
        out->dim = dim;
        if (!list[i].dim && list[i].v < 0) out->value = number(im, (double)list[i].v);
        return true;
    }
    ash_value x = ash_import__in(im, k);
    const ash_type type = ash_import__type(im, x);
    if (type.rank != 1 || !ash_dim_is_const(type.dims[0]) || (int64_t)i >= type.dims[0]) return false;
    x = part_of(im, x, &i);
    out->value = ash_cast(im->graph, ash_build__at(im->graph, x, 0, (ash_dim)i), ASH_I64);
    ash_value known = ash_import__fold(im, out->value);
    if (known == ASH_NO_VALUE) return ash_import__ok(im);
    out->dim = ash_import__int_at(ash_graph__value(im->graph, known)->blob, ASH_I64, 0);
    if (out->dim >= 0) out->value = ASH_NO_VALUE;
    return ash_import__ok(im);
}

static bool lower_fill(ash_import *im) {
    const ash_type shape = ash_import__in_type(im, 0);
    ash_late *late = new_late(im, LATE_FILLED, NULL, 0);
    ash_type type;
    if (!late || shape.rank != 1 || !ash_dim_is_const(shape.dims[0]) || shape.dims[0] > ASH_MAX_RANK)
        return false;
    if (!ash_import__attr_tensor(im, "value", &type, &late->number))
        late->number = ash_scalar(im->graph, ASH_F32, 0);
    late->number = ash_reshape(im->graph, late->number, NULL, 0);
    late->dtype = ash_import__type(im, late->number).dtype;
    late->rank = (unsigned)shape.dims[0];
    for (unsigned d = 0; d < late->rank; d++)
        if (!size_at(im, 0, d, &late->extents[d])) return false;
    bind(im, late);
    return true;
}

static bool lower_cast(ash_import *im) {
    size_t x = operand(im, 0);
    ash_late *late = new_late(im, LATE_CAST, &x, 1);
    ash_dtype from = late ? late->dtype : ASH_F32;
    if (!late || !ash_onnx__dtype(ash_import__attr_int(im, "to", 0), &late->dtype)) return false;
    if (late->dtype == from)
        ash_import__alias(im, im->node->outs[0], x);
    else
        bind(im, late);
    return true;
}

/* Sizes, not scales: those give sizes that are known. */
static bool lower_resize(ash_import *im) {
    const int64_t *axes = NULL;
    size_t x = operand(im, 0), n = 0;
    if (im->opset < 11 || !ash_import__has(im, 3)) return false;
    ash_late *late = new_late(im, LATE_RESIZED, &x, 1);
    if (!late || !ash_dtype_is_float(late->dtype)) return false;
    late->resize = ash_onnx__resize_how(im);
    if (!late->resize) return false;
    if (im->opset < 18 || !ash_import__attr_ints(im, "axes", &axes, &n)) n = late->rank;
    for (size_t i = 0; i < n && ash_import__ok(im); i++) {
        unsigned d = ash_import__axis(im, axes ? axes[i] : (int64_t)i, late->rank);
        if (!ash_import__ok(im) || !size_at(im, 3, i, &late->extents[d])) return false;
        late->is_resized[d] = true;
    }
    bind(im, late);
    return true;
}

static extent sum_of(ash_import *im, extent a, extent b) {
    if (a.value == ASH_NO_VALUE && b.value == ASH_NO_VALUE)
        return (extent){ash_graph_dim_add(im->graph, a.dim, b.dim), ASH_NO_VALUE};
    return (extent){0, ash_add(im->graph, value_of(im, a), value_of(im, b))};
}

/* Where the parts together say the shape, it is no late tensor any more. */
static bool join_now(ash_import *im, const ash_late *late) {
    ash_dim dims[ASH_MAX_RANK];
    ash_value *parts = ash_arena_alloc(im->scratch, late->n, sizeof *parts);
    for (unsigned d = 0; d < late->rank; d++) {
        if (late->extents[d].value != ASH_NO_VALUE) return false;
        dims[d] = late->extents[d].dim;
    }
    for (size_t k = 0; parts && k < late->n; k++) {
        dims[late->axis] = extent_of(im, late->from[k], late->axis).dim;
        parts[k] = ash_late__value(im, late->from[k], dims);
    }
    if (parts) ash_import__out(im, 0, ash_concat(im->graph, parts, late->n, late->axis));
    return parts != NULL;
}

static bool lower_concat(ash_import *im) {
    size_t n = im->node->n_ins, *from = ash_arena_alloc(im->scratch, n, sizeof *from);
    if (!from || !n) return false;
    for (size_t k = 0; k < n; k++)
        if ((from[k] = operand(im, k)) == SIZE_MAX) return false;
    const ash_late *list = late_of(im, from[0]);
    ash_late *late = new_late(im, LATE_JOINED, from, n);
    if (!late) return false;
    late->axis = ash_import__axis(im, ash_import__attr_int(im, "axis", 0), late->rank);
    if (late->in_list && (!list || list->kind != LATE_LIST || late->axis || n != 2)) return false;
    for (size_t k = 1; k < n && ash_import__ok(im); k++) {
        if (ash_late__rank(im, from[k]) != late->rank) return false;
        for (unsigned d = 0; d < late->rank; d++) {
            extent e = extent_of(im, from[k], d), *all = &late->extents[d];
            if (d == late->axis)
                *all = sum_of(im, *all, e);
            else if (all->value != ASH_NO_VALUE)
                *all = e;
        }
    }
    if (!late->in_list && join_now(im, late)) return true;
    bind(im, late);
    return true;
}

/* A position in [0, all] as Slice has it. */
static ash_value inside(ash_import *im, extent bound, ash_value all) {
    ash_graph *g = im->graph;
    ash_value at = value_of(im, bound), zero = number(im, 0);
    return ash_min(g, ash_max(g, from_start(im, at, all), zero), all);
}

static bool is_end(extent e) {
    return e.value == ASH_NO_VALUE && ash_dim_is_const(e.dim) && e.dim >= FAR;
}

static bool lower_slice(ash_import *im) {
    const int64_t *axes = NULL, *steps;
    size_t x = operand(im, 0), n = 0, n_steps = 0;
    ash_late *late = im->opset < 10 ? NULL : new_late(im, LATE_MOVED, &x, 1);
    if (!late || late->in_list) return false;
    if (ash_import__has(im, 3) && !ash_import__try_ints(im, 3, &axes, &n)) return false;
    if (ash_import__has(im, 4) && !ash_import__try_ints(im, 4, &steps, &n_steps)) return false;
    for (size_t i = 0; i < n_steps; i++)
        if (steps[i] != 1) return false;
    const ash_type starts = ash_import__in_type(im, 1);
    if (starts.rank != 1 || !ash_dim_is_const(starts.dims[0]) || starts.dims[0] > ASH_MAX_RANK)
        return false;
    for (size_t i = 0; i < (axes ? n : (size_t)starts.dims[0]) && ash_import__ok(im); i++) {
        unsigned d = ash_import__axis(im, axes ? axes[i] : (int64_t)i, late->rank);
        extent from, to, *all = &late->extents[d];
        if (!ash_import__ok(im) || !size_at(im, 1, i, &from) || !size_at(im, 2, i, &to)) return false;
        bool begins = from.value == ASH_NO_VALUE && from.dim == 0;
        if (begins && is_end(to)) continue;
        ash_value count = value_of(im, *all), start = inside(im, from, count);
        if (!begins) late->starts[d] = start;
        if (all->value == ASH_NO_VALUE && ash_onnx__is_row_of_loop(im, from.value, to.value, all->dim)) {
            *all = (extent){1, ASH_NO_VALUE};
            continue;
        }
        if (!is_end(to)) count = inside(im, to, count);
        if (!begins) count = ash_max(im->graph, ash_sub(im->graph, count, start), number(im, 0));
        *all = (extent){0, count};
    }
    bind(im, late);
    return true;
}

static bool lower_gather(ash_import *im) {
    size_t from[] = {operand(im, 0), operand(im, 1)};
    ash_late *late = new_late(im, LATE_PICKED, from, 2);
    unsigned picked = ash_late__rank(im, from[1]);
    if (!late || late->in_list || late->rank - 1 + picked > ASH_MAX_RANK) return false;
    unsigned axis = late->axis = ash_import__axis(im, ash_import__attr_int(im, "axis", 0), late->rank);
    if (!ash_import__ok(im)) return false;
    memmove(late->extents + axis + picked, late->extents + axis + 1,
            (late->rank - axis - 1) * sizeof *late->extents);
    for (unsigned d = 0; d < picked; d++) late->extents[axis + d] = extent_of(im, from[1], d);
    late->rank += picked - 1;
    bind(im, late);
    return true;
}

/* The axes in the mask go; they have one element. */
static bool drop(ash_late *late, uint32_t axes) {
    unsigned kept = 0;
    for (unsigned d = 0; d < late->rank; d++) {
        late->axes[d] = axes >> d & 1 ? NO_AXIS : (int)kept;
        if (axes >> d & 1 && (late->extents[d].value != ASH_NO_VALUE || late->extents[d].dim != 1))
            return false;
        if (!(axes >> d & 1)) late->extents[kept++] = late->extents[d];
    }
    late->rank = kept;
    return true;
}

/* The operand with other axes, and which: a mask of those that go, or of those that come among `rank`, as
 * many as there are then. NULL: it is in a list, or what is asked for makes no sense. */
static ash_late *with_axes(ash_import *im, bool come, uint32_t *mask, unsigned *rank) {
    const int64_t *axes;
    size_t x = operand(im, 0), n;
    ash_late *late = new_late(im, LATE_MOVED, &x, 1);
    *mask = 0;
    if (!late || late->in_list || !ash_import__ints_of(im, "axes", 1, 13, &axes, &n)) return NULL;
    if (n > ASH_MAX_RANK || (come && late->rank + n > ASH_MAX_RANK)) return NULL;
    *rank = late->rank + (come ? (unsigned)n : 0);
    for (size_t i = 0; i < n; i++) *mask |= UINT32_C(1) << ash_import__axis(im, axes[i], *rank);
    return ash_import__ok(im) ? late : NULL;
}

static bool lower_squeeze(ash_import *im) {
    uint32_t gone;
    unsigned rank;
    ash_late *late = with_axes(im, false, &gone, &rank);
    if (!late || !drop(late, gone)) return false;
    bind(im, late);
    return true;
}

static bool lower_unsqueeze(ash_import *im) {
    uint32_t added;
    unsigned rank, taken = 0;
    ash_late *late = with_axes(im, true, &added, &rank);
    if (!late) return false;
    for (unsigned d = 0; d < rank; d++) {
        late->extents[d] = (extent){1, ASH_NO_VALUE};
        if (added >> d & 1) continue;
        if (taken == late->rank) return false; /* an axis is given twice */
        late->extents[d] = extent_of(im, operand(im, 0), taken);
        late->axes[taken++] = (int)d;
    }
    late->rank = rank;
    bind(im, late);
    return true;
}

static ash_value product(ash_import *im, const extent *extents, unsigned n) {
    ash_value all = number(im, 1);
    for (unsigned d = 0; d < n; d++) all = ash_mul(im->graph, all, value_of(im, extents[d]));
    return all;
}

/* To sizes that are known, but for one that takes what is left. */
static bool lower_reshape(ash_import *im) {
    const ash_import_int *list;
    size_t x = operand(im, 0), n;
    ash_late *late = new_late(im, LATE_RESHAPED, &x, 1);
    if (!late || late->in_list || !ash_import__try_list(im, 1, &list, &n) || n > ASH_MAX_RANK) return false;
    extent from[ASH_MAX_RANK], *to = late->extents;
    unsigned rank = late->rank, rest = ASH_MAX_RANK, same = 0;
    bool copies = !ash_import__attr_int(im, "allowzero", 0);
    memcpy(from, to, sizeof from);
    for (unsigned d = 0; d < n; d++) {
        bool left = !list[d].dim && list[d].v == -1, copied = copies && !list[d].dim && !list[d].v;
        if (left && rest < ASH_MAX_RANK) return false;
        if (left) rest = d;
        if (copied && d >= rank) return false;
        to[d] = copied ? from[d] : (extent){left, ASH_NO_VALUE};
        if (!left && !copied && !ash_import__to_dim(im, list[d], &to[d].dim)) return false;
    }
    while (same < rank && same < n && same != rest && to[same].value == from[same].value &&
           to[same].dim == from[same].dim)
        same++;
    late->axis = same;
    late->rank = (unsigned)n;
    if (rest < ASH_MAX_RANK) {
        ash_value all = product(im, from + same, rank - same),
                  others = product(im, to + same, late->rank - same);
        to[rest] = (extent){0, ash_div(im->graph, all, others)};
    }
    bind(im, late);
    return true;
}

size_t ash_late__lines(ash_import *im, size_t index, uint32_t axes, ash_dim *dims, ash_value *count) {
    ash_late *moved = new_late(im, LATE_MOVED, &index, 1);
    if (!moved || moved->in_list) return SIZE_MAX;
    extent *to = moved->extents;
    unsigned kept = 0, at = 0;
    for (unsigned reduced = 0; reduced < 2; reduced++) {
        for (unsigned d = 0; d < moved->rank; d++) {
            if ((axes >> d & 1) != reduced) continue;
            extent e = to[at] = extent_of(im, index, d);
            moved->axes[d] = (int)at++;
            if (reduced) continue;
            if (e.value != ASH_NO_VALUE) return SIZE_MAX;
            dims[kept++] = e.dim;
        }
    }
    size_t order = new_entry(im, moved);
    ash_late *lines = new_late(im, LATE_RESHAPED, &order, 1);
    if (!lines || !ash_import__ok(im)) return SIZE_MAX;
    lines->axis = kept;
    lines->rank = kept + 1;
    *count = product(im, to + kept, moved->rank - kept);
    lines->extents[kept] = (extent){0, *count};
    return new_entry(im, lines);
}

static bool lower_shape(ash_import *im) {
    const ash_late *late = late_of(im, operand(im, 0));
    ash_value sizes[ASH_MAX_RANK];
    const ash_dim one[] = {1};
    if (!late || late->in_list || !late->rank || im->node->n_attrs) return false;
    for (unsigned d = 0; d < late->rank; d++)
        sizes[d] = ash_reshape(im->graph, value_of(im, late->extents[d]), one, 1);
    ash_import__out(im, 0, ash_concat(im->graph, sizes, late->rank, 0));
    return true;
}

static const struct {
    const char *name;
    bool (*lower)(ash_import *im);
    size_t sizes[2]; /* operands that make its result late when they are not known, or 0 */
    bool makes;
} lowerings[] = {
    {"ArgMax", ash_late__arg_extreme, {0}, false},
    {"ArgMin", ash_late__arg_extreme, {0}, false},
    {"Cast", lower_cast, {0}, false},
    {"Concat", lower_concat, {0}, false},
    {"ConstantOfShape", lower_fill, {0, 0}, true},
    {"Gather", lower_gather, {0}, false},
    {"ReduceMax", ash_late__reduce, {0}, false},
    {"ReduceMean", ash_late__reduce, {0}, false},
    {"ReduceMin", ash_late__reduce, {0}, false},
    {"ReduceSum", ash_late__reduce, {0}, false},
    {"Reshape", lower_reshape, {0}, false},
    {"Resize", lower_resize, {3, 3}, true},
    {"Shape", lower_shape, {0}, false},
    {"Slice", lower_slice, {1, 2}, true},
    {"Squeeze", lower_squeeze, {0}, false},
    {"Unsqueeze", lower_unsqueeze, {0}, false},
};

static bool has_late_operand(ash_import *im) {
    for (size_t k = 0; im->has_late && k < im->node->n_ins; k++)
        if (ash_import__has(im, k) && late_of(im, ash_import__find_name(im, im->node->ins[k]))) return true;
    return false;
}

bool ash_late__lower(ash_import *im) {
    const ash_import_int *list;
    size_t n;
    if (!im->nesting || im->node->n_outs != 1 || !ash_onnx__is_default_domain(im->node->domain))
        return false;
    for (size_t i = 0; i < ASH_COUNT(lowerings); i++) {
        if (!ash_span_is(im->node->op, lowerings[i].name)) continue;
        bool late = has_late_operand(im);
        for (unsigned s = 0; s < 2 && !late && lowerings[i].makes; s++) {
            size_t k = lowerings[i].sizes[s];
            late = ash_import__has(im, k) && !ash_import__try_list(im, k, &list, &n);
        }
        return late && ash_import__ok(im) && lowerings[i].lower(im);
    }
    return false;
}
