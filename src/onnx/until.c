/* SPDX-License-Identifier: MIT */
/* What the body of a Loop says of its iterations before it is imported: which states count them, and how
 * many there can be for the condition that it gives back, where the model says
 *
 *     while i < 40 and not all(ended): ...; i = i + 1
 *
 * and no other limit. Where a count reads and writes, and how much room there is for what grows, depends on
 * both, so neither can be asked of the body once it is there. Names are followed through the nodes as the
 * file has them, down to whole numbers, dims, and inputs of the body. */
#include "control.h"

enum {
    DEPTH = 24,     /* nodes from a condition down to what is compared */
    VISITS = 4096,  /* names that are looked at in all */
    EXACT = 1 << 24 /* what every type has that numbers are compared in */
};

/* Nodes among which a name is looked for: those of a branch, then those around it, up to the loop's. */
typedef struct surroundings {
    const struct surroundings *outer; /* NULL: this is the loop's body */
    ash_wire graph;
    unsigned *visits; /* that are left */
} surroundings;

/* A number, plus an input of the loop's body. */
typedef struct shifted {
    ash_dim base;
    size_t of; /* that input, or SIZE_MAX: none */
} shifted;

static bool is(const ash_onnx_node *node, const char *op) {
    return ash_span_is(node->op, op) && ash_onnx__is_default_domain(node->domain);
}

static const ash_onnx_attr *attr_of(const ash_onnx_node *node, const char *name) {
    for (size_t i = 0; i < node->n_attrs; i++)
        if (ash_span_is(node->attrs[i].name, name)) return &node->attrs[i];
    return NULL;
}

/* Whether a node gives the only element of its first operand in another shape, or in another type that has
 * the numbers that are looked at; what is true or false is so in every type. */
static bool hands_on(const ash_onnx_node *node, bool truth) {
    static const char *const ops[] = {"Identity", "Squeeze", "Unsqueeze", "Reshape"};
    if (!node->n_ins) return false;
    for (size_t i = 0; i < ASH_COUNT(ops); i++)
        if (is(node, ops[i])) return true;
    const ash_onnx_attr *to = is(node, "Cast") ? attr_of(node, "to") : NULL;
    return to && (truth || to->i == ONNX_INT32 || to->i == ONNX_INT64 || to->i == ONNX_FLOAT ||
                  to->i == ONNX_DOUBLE);
}

/* Where a name comes from: of a branch, what it does not have is from around it. */
static ash_import_origin origin_of(ash_import *im, const surroundings **p, ash_span name) {
    for (;;) {
        const ash_import_origin found = ash_import__origin(im, (*p)->graph, name);
        if (found.known || !(*p)->outer) return found;
        *p = (*p)->outer;
    }
}

/* The only element of an entry: a number that is not negative, or a dim. */
static bool whole_of(ash_import *im, size_t entry, ash_dim *out) {
    if (entry == SIZE_MAX || !ash_import__ok(im)) return false;
    const ash_import_value *value = &im->values.at[entry];
    if (value->absent || value->sequence || value->late) return false;
    if (value->list && value->count == 1 && value->list[0].dim) {
        *out = value->list[0].v;
        return true;
    }
    return ash_onnx__known_scalar(im, entry, out) && *out >= 0;
}

/* The same of a node that says a number. */
static bool constant_of(ash_import *im, const ash_onnx_node *node, ash_dim *out) {
    const ash_onnx_attr *number = attr_of(node, "value_int"), *tensor = attr_of(node, "value");
    ash_onnx_tensor read;
    ash_type type;
    ash_blob *blob;
    int64_t count;
    if (number) *out = number->i;
    if (number || !tensor) return number && *out >= 0;
    im->status = ash_onnx__tensor_read(tensor->message, &read);
    if (!ash_import__ok(im) || ash_import__of_tensor(&read).narrow) return false;
    im->status = ash_onnx__tensor_data(&im->source, &read, &type, &blob);
    if (!ash_import__ok(im)) return false;
    const bool whole =
        ash_type_static_count(&type, &count) && count == 1 && !ash_dtype_is_float(type.dtype);
    if (whole) *out = ash_import__int_at(blob, type.dtype, 0);
    ash_blob_release(blob);
    return whole && *out >= 0;
}

static bool combine(ash_import *im, ash_dim_op op, ash_dim a, ash_dim b, ash_dim *out) {
    ash_diag diag;
    return ash_dims_combine(im->graph->dims, op, a, b, out, &diag) == ASH_OK;
}

static bool is_left(ash_import *im, const surroundings *p) {
    return ash_import__ok(im) && *p->visits && (*p->visits)--;
}

static bool tally_of(ash_import *im, const surroundings *p, ash_span name, unsigned depth, shifted *out) {
    *out = (shifted){.of = SIZE_MAX};
    if (!depth || !is_left(im, p)) return false;
    const ash_import_origin from = origin_of(im, &p, name);
    if (!from.known) return whole_of(im, ash_import__find_name(im, name), &out->base);
    if (from.entry != SIZE_MAX) return whole_of(im, from.entry, &out->base);
    out->of = from.input;
    if (!from.node) return from.input != SIZE_MAX;
    if (is(from.node, "Constant")) return constant_of(im, from.node, &out->base);
    if (hands_on(from.node, false)) return tally_of(im, p, from.node->ins[0], depth - 1, out);
    shifted other;
    if (!is(from.node, "Add") || from.node->n_ins != 2 ||
        !tally_of(im, p, from.node->ins[0], depth - 1, out) ||
        !tally_of(im, p, from.node->ins[1], depth - 1, &other) ||
        (out->of != SIZE_MAX && other.of != SIZE_MAX))
        return false;
    if (out->of == SIZE_MAX) out->of = other.of;
    return combine(im, ASH_DIM_ADD, out->base, other.base, &out->base);
}

/* What input `k` of the body begins with. */
static bool first_of(ash_import *im, size_t k, ash_dim *out) {
    return k < im->node->n_ins && whole_of(im, ash_import__find_name(im, im->node->ins[k]), out);
}

bool ash_onnx__counts_up(ash_import *im, ash_wire body, size_t state, ash_dim *first) {
    unsigned visits = DEPTH;
    const surroundings here = {.graph = body, .visits = &visits};
    const ash_span next = ash_import__out_name(im, body, 1 + state);
    shifted t;
    return next.len && tally_of(im, &here, next, DEPTH, &t) && t.of == 2 + state && t.base == 1 &&
           first_of(im, 2 + state, first);
}

/* The same as a number, plus the iteration's where *counts. */
static bool count_of(ash_import *im, const surroundings *p, ash_span name, ash_dim *base, bool *counts) {
    const surroundings *body = p;
    ash_dim first = 0;
    shifted t;
    while (body->outer) body = body->outer;
    if (!tally_of(im, p, name, DEPTH, &t)) return false;
    *counts = t.of == 0 ||
              (t.of != SIZE_MAX && t.of >= 2 && ash_onnx__counts_up(im, body->graph, t.of - 2, &first));
    const bool fixed = !*counts && t.of != SIZE_MAX;
    if (fixed && (t.of < 2 || !ash_import__gives_back(im, body->graph, t.of, t.of - 1) ||
                  !first_of(im, t.of, &first)))
        return false;
    return combine(im, ASH_DIM_ADD, t.base, first, base);
}

static ash_dim limit_of(ash_import *im, const surroundings *p, ash_span name, bool truth, unsigned depth);

/* The lesser of two limits; the greater one where `either` may hold. */
static ash_dim joined(ash_import *im, ash_dim a, ash_dim b, bool either) {
    ash_dim out;
    if (a == ASH_OPEN_MOST || b == ASH_OPEN_MOST)
        return either ? ASH_OPEN_MOST : a == ASH_OPEN_MOST ? b : a;
    return combine(im, either ? ASH_DIM_MAX : ASH_DIM_MIN, a, b, &out) ? out : ASH_OPEN_MOST;
}

static bool is_in_reach(const ash_import *im, ash_dim dim) {
    int64_t low, high;
    ash_dims_bounds(im->graph->dims, dim, &low, &high);
    return high <= EXACT;
}

/* How many iterations there can be where a comparison in iteration i says that there is another: for
 * i + low < high no number of an iteration is above high - low, and there is one more than that. */
static ash_dim limit_of_comparison(ash_import *im, const surroundings *p, const ash_onnx_node *node,
                                   bool truth) {
    static const struct {
        const char *op;
        bool turned, equal; /* a > b: b < a; whether equal ones do */
    } comparisons[] = {{"Less", false, false},
                       {"LessOrEqual", false, true},
                       {"Greater", true, false},
                       {"GreaterOrEqual", true, true}};
    for (size_t i = 0; i < ASH_COUNT(comparisons) && node->n_ins == 2; i++) {
        if (!is(node, comparisons[i].op)) continue;
        const bool turned = comparisons[i].turned == truth, equal = comparisons[i].equal == truth;
        ash_dim low, high, most;
        bool counts, other;
        if (!count_of(im, p, node->ins[turned], &low, &counts) ||
            !count_of(im, p, node->ins[!turned], &high, &other) || !counts || other ||
            !is_in_reach(im, low) || !is_in_reach(im, high) ||
            !combine(im, ASH_DIM_ADD, high, 1 + equal, &most) ||
            !combine(im, ASH_DIM_MAX, most, low, &most) || !combine(im, ASH_DIM_SUB, most, low, &most))
            return ASH_OPEN_MOST;
        return most;
    }
    return ASH_OPEN_MOST;
}

/* Whether a condition is always `truth`. */
static bool is_always(ash_import *im, const surroundings *p, ash_span name, bool truth) {
    shifted t;
    return tally_of(im, p, name, DEPTH, &t) && t.of == SIZE_MAX && t.base == truth;
}

/* Of a choice between two: where one of them can only be the opposite, it was not taken. */
static ash_dim limit_of_branches(ash_import *im, const surroundings *p, const ash_onnx_node *node,
                                 ash_span name, bool truth, unsigned depth) {
    static const char *const names[] = {"then_branch", "else_branch"};
    surroundings in[2];
    ash_span results[2];
    bool never[2];
    size_t k = 0;
    while (k < node->n_outs && !ash_span_equal(node->outs[k], name)) k++;
    for (unsigned i = 0; i < 2; i++) {
        const ash_onnx_attr *branch = attr_of(node, names[i]);
        if (!branch || branch->type != ONNX_ATTR_GRAPH) return ASH_OPEN_MOST;
        in[i] = (surroundings){.outer = p, .graph = branch->message, .visits = p->visits};
        results[i] = ash_import__out_name(im, branch->message, k);
        never[i] = is_always(im, &in[i], results[i], !truth);
    }
    const ash_dim limits[] = {limit_of(im, &in[0], results[0], truth, depth),
                              limit_of(im, &in[1], results[1], truth, depth)};
    for (unsigned i = 0; i < 2; i++)
        if (never[i]) return joined(im, limit_of(im, p, node->ins[0], i == 1, depth), limits[!i], false);
    return joined(im, limits[0], limits[1], true);
}

/* The most iterations where a condition that says whether there is another one is `truth`. */
static ash_dim limit_of(ash_import *im, const surroundings *p, ash_span name, bool truth, unsigned depth) {
    if (!depth-- || !is_left(im, p)) return ASH_OPEN_MOST;
    const ash_onnx_node *node = origin_of(im, &p, name).node;
    if (!node || !node->n_ins) return ASH_OPEN_MOST;
    if (hands_on(node, true)) return limit_of(im, p, node->ins[0], truth, depth);
    if (is(node, "Not")) return limit_of(im, p, node->ins[0], !truth, depth);
    if ((is(node, "And") || is(node, "Or")) && node->n_ins == 2)
        return joined(im, limit_of(im, p, node->ins[0], truth, depth),
                      limit_of(im, p, node->ins[1], truth, depth), is(node, "Or") == truth);
    if (is(node, "If")) return limit_of_branches(im, p, node, name, truth, depth);
    return limit_of_comparison(im, p, node, truth);
}

ash_dim ash_onnx__until(ash_import *im, ash_wire body) {
    unsigned visits = VISITS;
    const surroundings here = {.graph = body, .visits = &visits};
    const ash_span on = ash_import__out_name(im, body, 0);
    return on.len ? limit_of(im, &here, on, true, DEPTH) : ASH_OPEN_MOST;
}
