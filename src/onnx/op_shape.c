/* SPDX-License-Identifier: MIT */
/* Operators that rename, repeat or rearrange whole dims. */
#include "ops.h"

/* --- shapes as data ------------------------------------------------------------------------------- */

static ash_import_int from_dim(ash_dim dim) {
    return (ash_import_int){dim, !ash_dim_is_const(dim)};
}

void ash_onnx__op_shape(ash_import *im) {
    ash_type type = ash_import__in_type(im, 0), out = {.dtype = ASH_I64, .rank = 1};
    int64_t rank = type.rank, start = ash_import__attr_int(im, "start", 0),
            end = ash_import__attr_int(im, "end", rank);
    if (start < 0) start += rank;
    if (end < 0) end += rank;
    start = ASH_MIN(ASH_MAX(start, 0), rank);
    end = ASH_MAX(ASH_MIN(end, rank), start);
    ash_import_int list[ASH_MAX_RANK];
    for (int64_t i = start; i < end; i++) list[i - start] = from_dim(type.dims[i]);
    out.dims[0] = end - start;
    ash_import__out_list(im, 0, &out, list);
}

void ash_onnx__op_size(ash_import *im) {
    ash_type type = ash_import__in_type(im, 0);
    const ash_type out = {.dtype = ASH_I64};
    ash_import_int size = from_dim(ash_build__product(im->graph, &type, 0, type.rank));
    ash_import__out_list(im, 0, &out, &size);
}

/* The dims that operand k lists; some may be computed. */
static bool dims_of(ash_import *im, size_t k, ash_dim *dims, unsigned *rank) {
    const ash_import_int *list;
    size_t n;
    if (!ash_onnx__sizes(im, k, &list, &n)) return false;
    if (n > ASH_MAX_RANK) {
        ash_import__fail(im, ASH_ERROR_UNSUPPORTED, "a shape of %zu dims; the limit is %d", n,
                         ASH_MAX_RANK);
        return false;
    }
    for (size_t i = 0; i < n; i++)
        if (!ash_import__size(im, list[i], &dims[i])) return false;
    *rank = (unsigned)n;
    return true;
}

/* --- reshaping ------------------------------------------------------------------------------------ */

/* The dim that is missing from `dims` (all but `hole`) for as many elements as x has. Equal dims cancel
 * first: so expressions stay simple, and the division of what is left is exact. Where it is not, dims may
 * be other expressions for those of x, which is then brought to them. */
static ash_dim fill_hole(ash_import *im, ash_value *x, ash_dim *dims, unsigned rank, unsigned hole) {
    const ash_type own = ash_import__type(im, *x), *type = &own;
    bool used[ASH_MAX_RANK] = {0};
    ash_dim above = 1, below = 1;
    for (unsigned i = 0; i < rank; i++) {
        unsigned j = 0;
        if (i == hole) continue;
        while (j < type->rank && (used[j] || type->dims[j] != dims[i])) j++;
        if (j < type->rank)
            used[j] = true;
        else
            below = ash_graph_dim_mul(im->graph, below, dims[i]);
    }
    for (unsigned j = 0; j < type->rank; j++)
        if (!used[j]) above = ash_graph_dim_mul(im->graph, above, type->dims[j]);
    if (below == 0)
        return above == 0 ? 0 : ash_import__fail(im, ASH_ERROR_SHAPE, "a reshape to no elements"), 0;
    if (ash_dim_is_const(above) && ash_dim_is_const(below) && above % below)
        return ash_import__fail(im, ASH_ERROR_SHAPE, "%lld elements do not divide by %lld",
                                (long long)above, (long long)below),
               0;
    ash_dim quotient;
    if (below == 1) return above;
    if (!ash_dim_is_const(below)) {
        if (ash_dims_divides(im->graph->dims, above, below, &quotient)) return quotient;
        if (ash_import__regroup(im, x, dims, rank, hole)) return dims[hole];
    }
    return ash_graph_dim_div(im->graph, above, below);
}

/* Element i of a shape, of which several are computed. One that is 0, as one of a graph input may be, is
 * the operand's dim. */
static ash_value shape_value(ash_import *im, const ash_type *type, ash_onnx_number n, size_t i) {
    ash_graph *g = im->graph;
    const bool copies = i < type->rank && !ash_import__attr_int(im, "allowzero", 0);
    if (copies && n.value == ASH_NO_VALUE && !n.known.dim && n.known.v == 0)
        return ash_build__dim(g, type->dims[i]);
    const ash_value v = ash_onnx__number_value(im, n);
    if (!copies || !ash_onnx__is_given(im, n.value)) return v;
    return ash_select(g, ash_eq(g, v, ash_scalar(g, ASH_I64, 0)), ash_build__dim(g, type->dims[i]), v);
}

/* Settles what is open of a shape, more than one element: whether all of them together are as many elements
 * as there are, an execution finds (as_many). One that is -1, as one of a graph input may be, is what the
 * others leave. */
static bool settle_shape(ash_import *im, const ash_type *type, const ash_onnx_number *numbers, size_t count,
                         ash_import_int *out) {
    ash_graph *g = im->graph;
    const ash_dim all = ash_build__product(g, type, 0, type->rank);
    const ash_value less = ash_scalar(g, ASH_I64, -1), one = ash_scalar(g, ASH_I64, 1);
    ash_value v[ASH_MAX_RANK], product = one;
    if (count > ASH_MAX_RANK) return true; /* which is refused for that */
    for (size_t i = 0; i < count; i++) {
        v[i] = shape_value(im, type, numbers[i], i);
        product = ash_mul(g, product, ash_select(g, ash_eq(g, v[i], less), one, v[i]));
    }
    int64_t fewest, most;
    ash_dims_bounds(g->dims, all, &fewest, &most);
    if (!ash_onnx__has_room(im, 1, numbers, count, most > 0 ? most : INT64_MAX)) return false;
    const ash_value rest = ash_div(g, ash_build__dim(g, all), ash_max(g, product, one));
    for (size_t i = 0; i < count && ash_import__ok(im); i++) {
        const bool fills = numbers[i].value == ASH_NO_VALUE;
        ash_dim dim;
        if (fills && (numbers[i].known.dim || numbers[i].known.v != -1)) continue;
        if (fills || ash_onnx__is_given(im, numbers[i].value))
            v[i] = ash_select(g, ash_eq(g, v[i], less), rest, v[i]);
        if (!ash_onnx__settle_part(im, v[i], (unsigned)i, all, &dim)) return false;
        out[i] = (ash_import_int){dim, !ash_dim_is_const(dim)};
    }
    return ash_import__ok(im);
}

/* What a reshape lists. One size that is computed, or another expression of sizes that depend on data than
 * the operand's, is what remains, if nothing else is; *must is then what the latter must be, or 0. Of
 * several, which are *settled, an execution finds whether they are as many elements. */
static bool reshape_list(ash_import *im, const ash_type *type, const ash_import_int **list, size_t *count,
                         ash_dim *must, bool *settled) {
    ash_onnx_number *numbers = ash_onnx__numbers(im, 1, count);
    ash_import_int *out = numbers ? ash_arena_alloc(im->scratch, *count, sizeof *out) : NULL;
    size_t open = 0, computed = 0, at = 0;
    *must = 0;
    *settled = false;
    if (numbers && !out) ash_import__fail(im, ASH_ERROR_OUT_OF_MEMORY, "out of memory");
    if (!out) return false;
    for (size_t i = 0; i < *count; i++) {
        const ash_onnx_number n = numbers[i] = ash_onnx__known_size(im, numbers[i]);
        bool late = n.value == ASH_NO_VALUE && n.known.dim && ash_import__hangs_on_data(im, n.known.v);
        for (unsigned d = 0; d < type->rank && late; d++) late = type->dims[d] != n.known.v;
        out[i] = n.known;
        computed += n.value != ASH_NO_VALUE;
        open += n.value != ASH_NO_VALUE || late || (!n.known.dim && n.known.v == -1);
        if (n.value != ASH_NO_VALUE || late) at = i;
        if (late) *must = n.known.v;
    }
    *list = out;
    if (open == 1 && (computed || *must)) {
        const bool given = ash_onnx__is_given(im, numbers[at].value);
        if (given && !settle_shape(im, type, numbers, *count, out)) return false;
        if (given) *must = out[at].v;
        out[at] = (ash_import_int){-1, false};
        return true;
    }
    *must = 0;
    *settled = computed > 0;
    return !computed || settle_shape(im, type, numbers, *count, out);
}

/* x as a line of as many elements as `dims` have, which depend on data: an execution in which x has more or
 * fewer fails. */
static ash_value as_many(ash_import *im, ash_value x, const ash_dim *dims, unsigned rank) {
    ash_graph *g = im->graph;
    const ash_type type = ash_import__type(im, x);
    ash_type want = {.rank = rank};
    memcpy(want.dims, dims, rank * sizeof *dims);
    const ash_dim all = ash_build__product(g, &type, 0, type.rank);
    const ash_dim total = ash_build__product(g, &want, 0, rank);
    if (!ash_import__ok(im) || all == total) return x;
    if (all == 0) return ash_onnx__if_equal(im, ash_build__fill(g, type.dtype, 0, &total, 1), all, total);
    x = ash_onnx__if_equal(im, ash_reshape(g, x, &all, 1), all, total);
    return ash_gather(g, x, ash_iota(g, ASH_I64, &total, 1, 0), 0);
}

/* The target is an attribute before opset 5: 0 keeps the operand's dim (unless allowzero), -1 is what
 * remains. */
void ash_onnx__op_reshape(ash_import *im) {
    ash_value x = ash_import__in(im, 0);
    ash_type type = ash_import__type(im, x);
    const ash_import_int *list = NULL;
    const int64_t *attr = NULL;
    size_t n;
    ash_dim must = 0;
    bool settled = false;
    if (im->opset < 5 ? !ash_import__attr_ints(im, "shape", &attr, &n)
                      : !reshape_list(im, &type, &list, &n, &must, &settled)) {
        ash_import__fail(im, ASH_ERROR_FORMAT, "the shape is missing");
        return;
    }
    bool zero = ash_import__attr_int(im, "allowzero", 0) != 0;
    unsigned hole = ASH_MAX_RANK;
    ash_dim dims[ASH_MAX_RANK];
    for (size_t i = 0; i < n && ash_import__ok(im); i++) {
        ash_import_int e = list ? list[i] : (ash_import_int){attr[i], false};
        if (i >= ASH_MAX_RANK)
            ash_import__fail(im, ASH_ERROR_UNSUPPORTED, "a shape of %zu dims; the limit is %d", n,
                             ASH_MAX_RANK);
        else if (!e.dim && e.v == 0 && !zero && i >= type.rank)
            ash_import__fail(im, ASH_ERROR_SHAPE, "dim %zu is 0, but the operand has rank %u", i,
                             type.rank);
        else if (!e.dim && (e.v < -1 || (e.v == -1 && hole != ASH_MAX_RANK)))
            ash_import__fail(im, ASH_ERROR_SHAPE, "a shape with the dim %lld", (long long)e.v);
        else if (!e.dim && e.v == -1)
            hole = (unsigned)i, dims[i] = 0;
        else if (!e.dim && e.v == 0 && !zero)
            dims[i] = type.dims[i];
        else
            ash_import__size(im, e, &dims[i]);
    }
    if (!ash_import__ok(im)) return;
    if (hole < ASH_MAX_RANK) dims[hole] = fill_hole(im, &x, dims, (unsigned)n, hole);
    if (settled) x = as_many(im, x, dims, (unsigned)n);
    x = ash_reshape(im->graph, ash_import__reshapable(im, x, dims, (unsigned)n), dims, (unsigned)n);
    if (must) x = ash_onnx__held(im, x, hole, must);
    ash_import__out(im, 0, x);
}

void ash_onnx__op_flatten(ash_import *im) {
    ash_value x = ash_import__in(im, 0);
    unsigned rank = ash_import__type(im, x).rank;
    int64_t axis = ash_import__attr_int(im, "axis", 1);
    unsigned at = axis == (int64_t)rank ? rank : ash_import__axis(im, axis, rank);
    ash_import__out(im, 0, ash_build__flatten(im->graph, x, at));
}

/* The axes as a bit mask over `rank` dims; false: none are given. */
static bool axes_mask(ash_import *im, unsigned rank, uint32_t *mask) {
    const int64_t *axes;
    size_t n;
    *mask = 0;
    if (!ash_import__ints_of(im, "axes", 1, 13, &axes, &n)) return false;
    for (size_t i = 0; i < n; i++) {
        uint32_t bit = 1u << ash_import__axis(im, axes[i], rank);
        if (*mask & bit)
            ash_import__fail(im, ASH_ERROR_SHAPE, "axis %lld is given twice", (long long)axes[i]);
        *mask |= bit;
    }
    return true;
}

ash_value ash_onnx__fill_up(ash_import *im, ash_value x, unsigned axis, ash_dim n) {
    ash_graph *g = im->graph;
    ash_type type = ash_import__type(im, x);
    ash_dim have = type.dims[axis];
    if (have == n) return x;
    type.dims[axis] = ash_graph_dim_sub(g, n, have);
    ash_value parts[] = {x, ash_build__fill(g, type.dtype, 0, type.dims, type.rank)};
    return have == 0 ? parts[1] : ash_concat(g, parts, 2, axis);
}

/* A dim of at most one element is one that the model knows to be there, as the last result of a loop whose
 * number of iterations is computed: where there was none, it is zero. */
void ash_onnx__op_squeeze(ash_import *im) {
    ash_value x = ash_import__in(im, 0);
    ash_type type = ash_import__type(im, x), out = type;
    uint32_t mask;
    bool given = axes_mask(im, type.rank, &mask);
    out.rank = 0;
    for (unsigned i = 0; i < type.rank; i++) {
        int64_t least, most;
        bool drop = given ? mask >> i & 1 : type.dims[i] == 1;
        ash_graph_dim_bounds(im->graph, type.dims[i], &least, &most);
        if (drop && !ash_dim_is_const(type.dims[i]) && most == 1)
            x = ash_onnx__fill_up(im, x, i, 1);
        else if (drop && type.dims[i] != 1)
            ash_import__fail(im, ASH_ERROR_SHAPE, "dim %u, which is to go, is not 1", i);
        if (!drop) out.dims[out.rank++] = type.dims[i];
    }
    ash_import__out(im, 0, ash_reshape(im->graph, x, out.dims, out.rank));
}

void ash_onnx__op_unsqueeze(ash_import *im) {
    ash_value x = ash_import__in(im, 0);
    ash_type type = ash_import__type(im, x);
    const int64_t *axes;
    size_t n;
    uint32_t mask;
    if (!ash_import__ints_of(im, "axes", 1, 13, &axes, &n) || n + type.rank > ASH_MAX_RANK) {
        ash_import__fail(im, ASH_ERROR_UNSUPPORTED, "no axes, or more than %d dims", ASH_MAX_RANK);
        return;
    }
    unsigned rank = type.rank + (unsigned)n, from = 0;
    axes_mask(im, rank, &mask);
    ash_dim dims[ASH_MAX_RANK];
    for (unsigned i = 0; i < rank && ash_import__ok(im); i++)
        dims[i] = mask >> i & 1 ? 1 : type.dims[from++];
    if (ash_import__ok(im)) ash_import__out(im, 0, ash_reshape(im->graph, x, dims, rank));
}

/* --- moving --------------------------------------------------------------------------------------- */

void ash_onnx__op_transpose(ash_import *im) {
    ash_value x = ash_import__in(im, 0);
    unsigned rank = ash_import__type(im, x).rank;
    int64_t perm[ASH_MAX_RANK];
    const int64_t *given;
    size_t n;
    bool has = ash_import__attr_ints(im, "perm", &given, &n);
    if (has && n != rank)
        ash_import__fail(im, ASH_ERROR_SHAPE, "a permutation of %zu dims for a tensor of rank %u", n, rank);
    for (unsigned i = 0; i < rank && ash_import__ok(im); i++) perm[i] = has ? given[i] : rank - 1 - i;
    if (ash_import__ok(im)) ash_import__out(im, 0, ash_transpose(im->graph, x, perm));
}

/* Where the shape is computed, dims that are more than 1 say what it must be; so they do where it is
 * another expression, of sizes that depend on data. */
static bool expand_dims(ash_import *im, const ash_type *type, ash_type *want, ash_value *x) {
    size_t n;
    const ash_onnx_number *shape = ash_onnx__numbers(im, 1, &n);
    ash_onnx_number open[ASH_MAX_RANK]; /* what is settled */
    int64_t low[ASH_MAX_RANK], high;
    if (shape && n > ASH_MAX_RANK)
        ash_import__fail(im, ASH_ERROR_UNSUPPORTED, "a shape of %zu dims; the limit is %d", n,
                         ASH_MAX_RANK);
    want->rank = (unsigned)n;
    for (unsigned i = 0; shape && i < n && ash_import__ok(im); i++) {
        ash_dims_bounds(im->graph->dims, i + type->rank < n ? 1 : type->dims[i + type->rank - n], &low[i],
                        &high);
        open[i] = low[i] > 1 ? (ash_onnx_number){.value = ASH_NO_VALUE} : shape[i];
    }
    if (shape && ash_import__ok(im) && !ash_onnx__has_room(im, 1, open, n, INT64_MAX)) return false;
    for (unsigned i = 0; shape && i < n && ash_import__ok(im); i++) {
        ash_dim own = i + type->rank < n ? 1 : type->dims[i + type->rank - n];
        if (shape[i].value == ASH_NO_VALUE) {
            if (!ash_import__size(im, shape[i].known, &want->dims[i])) return false;
            if (own == 1 || want->dims[i] == 1 || own == want->dims[i] ||
                !(ash_import__hangs_on_data(im, own) || ash_import__hangs_on_data(im, want->dims[i])))
                continue;
            *x = ash_onnx__held(im, *x, i + type->rank - (unsigned)n, want->dims[i]);
            want->dims[i] = ash_import__type(im, *x).dims[i + type->rank - n];
        } else if (low[i] > 1)
            want->dims[i] = own;
        else
            ash_onnx__settle_size(im, shape[i].value, i, 0, &want->dims[i]);
    }
    return shape && ash_import__ok(im);
}

void ash_onnx__op_expand(ash_import *im) {
    ash_value x = ash_import__in(im, 0);
    ash_type type = ash_import__type(im, x), want = {0};
    if (!expand_dims(im, &type, &want, &x)) return;
    for (unsigned p = 1; p <= ASH_MIN(type.rank, want.rank) && ash_import__ok(im); p++)
        ash_import__agree_with(im, &x, type.rank - p, &want.dims[want.rank - p]);
    type = ash_import__type(im, x);
    if (ash_build__join(&want, &type))
        ash_import__out(im, 0, ash_broadcast_to(im->graph, x, want.dims, want.rank));
    else
        ash_import__fail(im, ASH_ERROR_SHAPE, "the operand and the shape do not broadcast");
}

/* Tile repeats the whole tensor: a new dim before each repeated one, broadcast, and merged with it. */
void ash_onnx__op_tile(ash_import *im) {
    ash_value x = ash_import__in(im, 0);
    ash_type type = ash_import__type(im, x);
    ash_dim repeats[ASH_MAX_RANK];
    unsigned n;
    const int64_t *axis;
    size_t count;
    if (!dims_of(im, 1, repeats, &n)) return;
    if (im->opset < 6 && ash_import__ints(im, 2, &axis, &count) && n == 1 &&
        count == 1) { /* along one axis */
        const unsigned at = ash_import__axis(im, axis[0], type.rank);
        const ash_dim often = repeats[0];
        for (n = 0; n < type.rank; n++) repeats[n] = n == at ? often : 1;
    }
    if (!ash_import__ok(im)) return;
    if (n != type.rank) {
        ash_import__fail(im, ASH_ERROR_SHAPE, "%u repeats for a tensor of rank %u", n, type.rank);
        return;
    }
    for (unsigned i = 0; i < n; i++) {
        if (repeats[i] == 1) continue;
        ash_type merged = ash_import__type(im, x), wide;
        x = ash_build__insert_axis(im->graph, x, i);
        wide = ash_import__type(im, x);
        wide.dims[i] = repeats[i];
        merged.dims[i] = ash_graph_dim_mul(im->graph, merged.dims[i], repeats[i]);
        x = ash_broadcast_to(im->graph, x, wide.dims, wide.rank);
        x = ash_reshape(im->graph, x, merged.dims, merged.rank);
    }
    ash_import__out(im, 0, x);
}

void ash_onnx__op_concat(ash_import *im) {
    size_t n = im->node->n_ins;
    ash_value *parts = ash_arena_alloc(im->scratch, n, sizeof *parts);
    if (!parts) {
        ash_import__fail(im, ASH_ERROR_OUT_OF_MEMORY, "out of memory");
        return;
    }
    for (size_t k = 0; k < n; k++) parts[k] = ash_import__in(im, k);
    unsigned rank = ash_import__in_type(im, 0).rank;
    unsigned axis = ash_import__axis(im, ash_import__attr_int(im, "axis", 1), rank);
    if (n) ash_import__agree(im, parts, n, axis);
    if (n) ash_import__out(im, 0, ash_concat(im->graph, parts, n, axis));
}

/* A dim divided into n parts, the last of which may be smaller. */
static ash_dim parts_of(ash_import *im, ash_dim dim, int64_t n) {
    return ash_graph_dim_div(im->graph, ash_graph_dim_add(im->graph, dim, n - 1), n);
}

/* Sizes: an attribute before opset 13, an operand since; else equal parts, the last smaller (num_outputs,
 * opset 18). */
void ash_onnx__op_split(ash_import *im) {
    ash_value x = ash_import__in(im, 0);
    ash_type type = ash_import__type(im, x);
    unsigned axis = ash_import__axis(im, ash_import__attr_int(im, "axis", 0), type.rank);
    const int64_t *attr = NULL;
    const ash_onnx_number *list = NULL;
    size_t n = im->node->n_outs, given = n;
    bool has = im->opset < 13 ? ash_import__attr_ints(im, "split", &attr, &given)
                              : ash_import__has(im, 1) && (list = ash_onnx__numbers(im, 1, &given));
    if (!ash_import__ok(im)) return;
    if (given != n && has) {
        ash_import__fail(im, ASH_ERROR_SHAPE, "%zu sizes for %zu results", given, n);
        return;
    }
    if (!n) return;
    if (!has && im->opset < 18) x = ash_import__multiple(im, x, axis, (int64_t)n);
    ash_dim start = 0, rest = ash_import__type(im, x).dims[axis],
            part = has ? 0 : parts_of(im, rest, (int64_t)n);
    for (size_t k = 0; k < n && ash_import__ok(im); k++) {
        ash_dim size = has ? 0 : ash_graph_dim_min(im->graph, part, rest);
        if (list && list[k].value != ASH_NO_VALUE)
            size = ash_onnx__settle_bound(im, list[k].value,
                                          ash_graph_dim_sub(im->graph, type.dims[axis], start), (unsigned)k,
                                          false);
        else if (has &&
                 !ash_import__size(im, list ? list[k].known : (ash_import_int){attr[k], false}, &size))
            return;
        ash_import__out(im, k, ash_slice_axis(im->graph, x, axis, start, size));
        start = ash_graph_dim_add(im->graph, start, size);
        if (!has) rest = ash_graph_dim_sub(im->graph, rest, size);
    }
}

/* [n, c, h, w] with blocks of pixels moved into channels, and back. */
static bool block_shape(ash_import *im, ash_type *type, int64_t *block) {
    *type = ash_import__in_type(im, 0);
    *block = ash_import__attr_int(im, "blocksize", 0);
    if (type->rank == 4 && *block > 0 && *block <= 1 << 15) return true;
    ash_import__fail(im, ASH_ERROR_SHAPE, "a block size of %lld on a tensor of rank %u", (long long)*block,
                     type->rank);
    return false;
}

void ash_onnx__op_depth_to_space(ash_import *im) {
    static const int64_t dcr[] = {0, 3, 4, 1, 5, 2}, crd[] = {0, 1, 4, 2, 5, 3};
    ash_type t;
    int64_t b;
    if (!block_shape(im, &t, &b)) return;
    bool is_crd = ASH_IMPORT_CHOICE(im, "mode", "DCR", "CRD") != 0;
    ash_value x = ash_import__multiple(im, ash_import__in(im, 0), 1, b * b);
    ash_dim c = ash_graph_dim_div(im->graph, t.dims[1], b * b);
    const ash_dim split_dcr[] = {t.dims[0], b, b, c, t.dims[2], t.dims[3]};
    const ash_dim split_crd[] = {t.dims[0], c, b, b, t.dims[2], t.dims[3]};
    const ash_dim out[] = {t.dims[0], c, ash_graph_dim_mul(im->graph, t.dims[2], b),
                           ash_graph_dim_mul(im->graph, t.dims[3], b)};
    x = ash_reshape(im->graph, x, is_crd ? split_crd : split_dcr, 6);
    x = ash_transpose(im->graph, x, is_crd ? crd : dcr);
    ash_import__out(im, 0, ash_reshape(im->graph, x, out, 4));
}

/* Opset 28 adds the order of DepthToSpace's CRD mode. */
void ash_onnx__op_space_to_depth(ash_import *im) {
    static const int64_t dcr[] = {0, 3, 5, 1, 2, 4}, crd[] = {0, 1, 3, 5, 2, 4};
    ash_type t;
    int64_t b;
    if (!block_shape(im, &t, &b)) return;
    bool is_crd = ASH_IMPORT_CHOICE(im, "mode", "DCR", "CRD") != 0;
    ash_dim h = ash_graph_dim_div(im->graph, t.dims[2], b), w = ash_graph_dim_div(im->graph, t.dims[3], b);
    const ash_dim split[] = {t.dims[0], t.dims[1], h, b, w, b};
    const ash_dim out[] = {t.dims[0], ash_graph_dim_mul(im->graph, t.dims[1], b * b), h, w};
    ash_value x = ash_import__multiple(im, ash_import__multiple(im, ash_import__in(im, 0), 2, b), 3, b);
    x = ash_reshape(im->graph, x, split, 6);
    ash_import__out(im, 0, ash_reshape(im->graph, ash_transpose(im->graph, x, is_crd ? crd : dcr), out, 4));
}

/* --- making --------------------------------------------------------------------------------------- */

/* The constant that an attribute of any kind but a tensor says. */
static ash_value constant_of(ash_import *im, const ash_onnx_attr *attr) {
    ash_type type = {.dtype =
                         attr->type == ONNX_ATTR_INT || attr->type == ONNX_ATTR_INTS ? ASH_I64 : ASH_F32};
    ash_value known = ash_import__constant_of(im, attr);
    if (known != ASH_NO_VALUE) return known;
    switch (attr->type) {
    case ONNX_ATTR_FLOAT: known = ash_scalar(im->graph, ASH_F32, (double)attr->f); break;
    case ONNX_ATTR_INT: known = ash_build__ints(im->graph, &type, &attr->i); break;
    case ONNX_ATTR_INTS: known = ash_build__int_list(im->graph, attr->ints, attr->n); break;
    default:
        type.rank = 1, type.dims[0] = (ash_dim)attr->n;
        known = ash_graph_constant(im->graph, &type, attr->floats, attr->n * sizeof(float), ASH_DATA_COPY);
    }
    return ash_import__note_constant(im, attr, known);
}

void ash_onnx__op_constant(ash_import *im) {
    ash_type type = {0};
    ash_value value = ASH_NO_VALUE;
    const ash_onnx_attr *attr;
    if (ash_import__attr_tensor(im, "value", &type, &value)) {
    } else if ((attr = ash_import__attr(im, "value_float", ONNX_ATTR_FLOAT)) ||
               (attr = ash_import__attr(im, "value_int", ONNX_ATTR_INT)) ||
               (attr = ash_import__attr(im, "value_ints", ONNX_ATTR_INTS)) ||
               (attr = ash_import__attr(im, "value_floats", ONNX_ATTR_FLOATS))) {
        value = constant_of(im, attr);
    } else {
        ash_import__fail(im, ASH_ERROR_UNSUPPORTED,
                         "a constant that is neither numbers nor a dense tensor");
    }
    ash_import__out_narrow(im, 0, value, ash_import__attr_narrow(im, "value"));
}

void ash_onnx__op_constant_of_shape(ash_import *im) {
    ash_type type = {0}, out = {0};
    ash_value value = ASH_NO_VALUE;
    if (!dims_of(im, 0, out.dims, &out.rank)) return;
    if (!ash_import__attr_tensor(im, "value", &type, &value)) value = ash_scalar(im->graph, ASH_F32, 0);
    value = ash_reshape(im->graph, value, NULL, 0);
    value = ash_broadcast_to(im->graph, value, out.dims, out.rank);
    ash_import__out_narrow(im, 0, value, ash_import__attr_narrow(im, "value"));
}

void ash_onnx__op_eye_like(ash_import *im) {
    ash_type type = ash_import__in_type(im, 0);
    int64_t want = ash_import__attr_int(im, "dtype", ash_onnx__dtype_of(type.dtype));
    ash_dtype dtype = ASH_F32;
    if (type.rank != 2 || !ash_onnx__dtype(want, &dtype)) {
        ash_import__fail(im, ASH_ERROR_UNSUPPORTED, "a result of rank %u and type %s", type.rank,
                         ash_onnx__dtype_name(want));
        return;
    }
    ash_value row = ash_iota(im->graph, ASH_I64, type.dims, 2, 0),
              column = ash_iota(im->graph, ASH_I64, type.dims, 2, 1);
    row = ash_build__with(im->graph, ASH_OP_ADD, row, (double)ash_import__attr_int(im, "k", 0));
    ash_import__out(im, 0, ash_cast(im->graph, ash_eq(im->graph, row, column), dtype));
}

/* Keeps column - row <= k (lower) or >= k (upper). */
void ash_onnx__op_trilu(ash_import *im) {
    ash_value x = ash_import__in(im, 0);
    ash_type type = ash_import__type(im, x);
    if (type.rank < 2) {
        ash_import__fail(im, ASH_ERROR_SHAPE, "a tensor of rank %u", type.rank);
        return;
    }
    const ash_dim *dims = &type.dims[type.rank - 2];
    ash_value row = ash_iota(im->graph, ASH_I64, dims, 2, 0),
              column = ash_iota(im->graph, ASH_I64, dims, 2, 1);
    if (ash_import__has(im, 1)) {
        ash_value shift = ash_reshape(im->graph, ash_import__in(im, 1), NULL, 0);
        row = ash_add(im->graph, row, ash_cast(im->graph, shift, ASH_I64));
    }
    bool upper = ash_import__attr_int(im, "upper", 1) != 0;
    ash_value keep = ash_le(im->graph, upper ? row : column, upper ? column : row);
    ash_import__out(im, 0, ash_select(im->graph, keep, x, ash_scalar(im->graph, type.dtype, 0)));
}
