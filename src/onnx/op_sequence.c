/* SPDX-License-Identifier: MIT */
/* Sequences of tensors whose length and positions are known at import: lists of values that the graph
 * never sees. One that is an input of the model is an input of the graph for each tensor, one that is an
 * output as many outputs (import.c). */
#include "ops.h"

typedef struct sequence {
    const size_t *items; /* indices of im->values */
    size_t n;
} sequence;

static bool read_sequence(ash_import *im, size_t k, sequence *out) {
    size_t index = ash_import__has(im, k) ? ash_import__find_name(im, im->node->ins[k]) : SIZE_MAX;
    if (index == SIZE_MAX || !im->values.at[index].sequence) {
        ash_import__fail(im, ASH_ERROR_TYPE, "operand %zu is no sequence", k);
        return false;
    }
    *out = (sequence){im->values.at[index].items, im->values.at[index].count};
    return true;
}

static void out_sequence_at(ash_import *im, size_t k, const size_t *items, size_t n) {
    ash_import_value entry = {.value = ASH_NO_VALUE, .sequence = true, .count = n};
    size_t *copy = ash_import__keep(im, n, sizeof *items);
    if (!copy || !ash_import__wants(im, k)) return;
    if (n) memcpy(copy, items, n * sizeof *items);
    entry.items = copy;
    ash_import__declare(im, im->node->outs[k], &entry);
}

static void out_sequence(ash_import *im, const size_t *items, size_t n) {
    out_sequence_at(im, 0, items, n);
}

static size_t *room(ash_import *im, size_t n) {
    size_t *items = ash_arena_alloc(im->scratch, n, sizeof *items);
    if (!items) ash_import__fail(im, ASH_ERROR_OUT_OF_MEMORY, "out of memory");
    return items;
}

/* The index of a tensor operand. */
static size_t tensor_operand(ash_import *im, size_t k) {
    return ash_import__in(im, k) == ASH_NO_VALUE ? 0 : ash_import__find_name(im, im->node->ins[k]);
}

/* Operand k as a position in [0, limit), a negative one counted from `n_items`; `absent` when it is not
 * given. */
static bool position(ash_import *im, size_t k, size_t n_items, size_t limit, size_t absent, size_t *out) {
    const int64_t *list;
    size_t n;
    *out = absent;
    if (ash_import__has(im, k)) {
        if (!ash_import__ints(im, k, &list, &n) || n != 1) return false;
        *out = (size_t)(list[0] < 0 ? list[0] + (int64_t)n_items : list[0]);
    }
    if (*out < limit) return true;
    ash_import__fail(im, ASH_ERROR_OUT_OF_RANGE, "a position outside a sequence of %zu", limit);
    return false;
}

void ash_onnx__op_sequence_construct(ash_import *im) {
    size_t n = im->node->n_ins, *items = room(im, n);
    for (size_t k = 0; k < n && ash_import__ok(im); k++) items[k] = tensor_operand(im, k);
    if (ash_import__ok(im)) out_sequence(im, items, n);
}

void ash_onnx__op_sequence_empty(ash_import *im) {
    out_sequence(im, (const size_t[]){0}, 0);
}

/* The tensor goes before the position, at the end when none is given. */
void ash_onnx__op_sequence_insert(ash_import *im) {
    sequence s;
    size_t at;
    if (!read_sequence(im, 0, &s) || !position(im, 2, s.n, s.n + 1, s.n, &at)) return;
    size_t *items = room(im, s.n + 1), fresh = tensor_operand(im, 1);
    if (!ash_import__ok(im)) return;
    for (size_t i = 0; i <= s.n; i++) items[i] = i < at ? s.items[i] : i == at ? fresh : s.items[i - 1];
    out_sequence(im, items, s.n + 1);
}

void ash_onnx__op_sequence_erase(ash_import *im) {
    sequence s;
    size_t at;
    if (!read_sequence(im, 0, &s) || !position(im, 1, s.n, s.n, s.n - 1, &at)) return;
    size_t *items = room(im, s.n);
    if (!items) return;
    for (size_t i = 0; i + 1 < s.n; i++) items[i] = s.items[i < at ? i : i + 1];
    out_sequence(im, items, s.n - 1);
}

void ash_onnx__op_sequence_at(ash_import *im) {
    sequence s;
    size_t at;
    if (read_sequence(im, 0, &s) && position(im, 1, s.n, s.n, s.n, &at) && ash_import__wants(im, 0))
        ash_import__alias(im, im->node->outs[0], s.items[at]);
}

void ash_onnx__op_sequence_length(ash_import *im) {
    sequence s;
    const ash_type type = {.dtype = ASH_I64};
    if (!read_sequence(im, 0, &s)) return;
    const ash_import_int length = {(int64_t)s.n, false};
    ash_import__out_list(im, 0, &type, &length);
}

/* Parts along an axis: of one size, of listed sizes, or of one element each, which then lose the axis
 * unless keepdims. */
void ash_onnx__op_split_to_sequence(ash_import *im) {
    ash_value x = ash_import__in(im, 0);
    ash_type type = ash_import__type(im, x);
    unsigned axis = ash_import__axis(im, ash_import__attr_int(im, "axis", 0), type.rank);
    const int64_t *sizes = NULL;
    size_t n = 0;
    bool given = ash_import__has(im, 1), scalar = given && ash_import__in_type(im, 1).rank == 0;
    if (given && !ash_import__ints(im, 1, &sizes, &n)) return;
    if (!ash_import__ok(im) || !ash_dim_is_const(type.dims[axis]) || type.dims[axis] > ASH_IMPORT_LIST ||
        (scalar && sizes[0] <= 0)) {
        ash_import__fail(im, ASH_ERROR_UNSUPPORTED,
                         "parts of a dim that is huge, or a variable: its size must be known at import");
        return;
    }
    int64_t dim = type.dims[axis], step = !given ? 1 : scalar ? sizes[0] : 0, start = 0;
    if (step) n = (size_t)ash_ceil_div(dim, step);
    size_t *items = room(im, n);
    bool drop = !given && !ash_import__attr_int(im, "keepdims", 1);
    for (size_t i = 0; i < n && ash_import__ok(im); i++) {
        int64_t size = step ? ASH_MIN(step, dim - start) : sizes[i];
        if (size < 0 || size > dim - start)
            ash_import__fail(im, ASH_ERROR_SHAPE, "a part of %lld elements", (long long)size);
        ash_value part = ash_slice_axis(im->graph, x, axis, start, size);
        items[i] = ash_import__tensor_entry(im, drop ? ash_build__drop_axis(im->graph, part, axis) : part);
        start += size;
    }
    if (ash_import__ok(im)) out_sequence(im, items, n);
}

void ash_onnx__op_concat_from_sequence(ash_import *im) {
    sequence s;
    if (!read_sequence(im, 0, &s)) return;
    bool stack = ash_import__attr_int(im, "new_axis", 0) != 0;
    ash_value *parts = ash_arena_alloc(im->scratch, s.n, sizeof *parts);
    if (!parts || s.n == 0) {
        ash_import__fail(im, parts ? ASH_ERROR_UNSUPPORTED : ASH_ERROR_OUT_OF_MEMORY,
                         "an empty sequence to concatenate");
        return;
    }
    unsigned axis = 0;
    for (size_t i = 0; i < s.n && ash_import__ok(im); i++) {
        parts[i] = ash_import__materialize(im, s.items[i]);
        unsigned rank = ash_import__type(im, parts[i]).rank + stack;
        if (i == 0) axis = ash_import__axis(im, ash_import__attr_int(im, "axis", 0), rank);
        if (stack) parts[i] = ash_build__insert_axis(im->graph, parts[i], axis);
    }
    if (ash_import__ok(im)) ash_import__out(im, 0, ash_concat(im->graph, parts, s.n, axis));
}

/* The body once for each tensor of the first operand; those of other sequences go with it, tensors go with
 * each. */
void ash_onnx__op_sequence_map(ash_import *im) {
    const ash_onnx_attr *body = ash_import__attr(im, "body", ONNX_ATTR_GRAPH);
    size_t n_ins = im->node->n_ins, n_outs = im->node->n_outs;
    sequence first, other;
    if (!body) ash_import__fail(im, ASH_ERROR_FORMAT, "the graph 'body' is missing");
    if (!ash_import__ok(im) || !read_sequence(im, 0, &first)) return;
    size_t *ins = room(im, n_ins), *outs = room(im, n_outs), *all = room(im, n_outs * first.n);
    for (size_t i = 0; i < first.n && ash_import__ok(im); i++) {
        for (size_t k = 0; k < n_ins && ash_import__ok(im); k++) {
            size_t index = ash_import__has(im, k) ? ash_import__find_name(im, im->node->ins[k]) : SIZE_MAX;
            bool among = index != SIZE_MAX && im->values.at[index].sequence;
            if (!among) {
                ins[k] = tensor_operand(im, k);
            } else if (read_sequence(im, k, &other)) {
                if (other.n == first.n)
                    ins[k] = other.items[i];
                else
                    ash_import__fail(im, ASH_ERROR_SHAPE, "sequences of %zu and %zu tensors", first.n,
                                     other.n);
            }
        }
        if (!ash_import__ok(im) || ash_import__body(im, body->message, ins, n_ins, outs, n_outs) != ASH_OK)
            return;
        for (size_t k = 0; k < n_outs; k++) all[k * first.n + i] = outs[k];
    }
    for (size_t k = 0; k < n_outs && ash_import__ok(im); k++)
        out_sequence_at(im, k, all + k * first.n, first.n);
}

/* --- optionals ------------------------------------------------------------------------------------ */

/* What there is, under another name, or nothing. */
void ash_onnx__op_optional(ash_import *im) {
    const ash_import_value nothing = {.value = ASH_NO_VALUE, .absent = true};
    if (ash_import__has(im, 0))
        ash_onnx__op_identity(im);
    else if (ash_import__wants(im, 0))
        ash_import__declare(im, im->node->outs[0], &nothing);
}

void ash_onnx__op_optional_has_element(ash_import *im) {
    const ash_type type = {.dtype = ASH_BOOL};
    const ash_import_int has = {ash_import__has(im, 0), false};
    ash_import__out_list(im, 0, &type, &has);
}
