/* SPDX-License-Identifier: MIT */
/* Transposed convolutions, as convolutions with stride 1 that multiply no zeros.
 *
 * Element q * s + p of the full result, 0 <= p < s, is the sum over t of x[q - t] * w[t * s + p]: of one
 * phase p, it is a convolution of x with every s-th weight. So all phases are one convolution with as many
 * times the channels, and a movement puts them side by side:
 *
 *     w [c, m, k]   ->  [m, p, c, t], t backwards
 *     y [n, m * p, q]  ->  [n, m, q, p]  ->  [n, m, q * s + p]
 *
 * Where s does not divide k, the last phases have a weight less. As zeros it would cost ceil(k / s) * s
 * products for an element of x (where zeros between the elements of x would cost s * k): much more than k
 * along several axes. So with channels enough for vectors of their own these phases are convolutions by
 * themselves, of shorter windows. An axis whose weights are dilated as well as strided has the zeros
 * between its elements.
 *
 * After the phases (for each axis), what the paddings say is cut off at both ends. */
#include "build.h"

typedef struct axis {
    int64_t stride, phases;     /* elements between those of x; as many phases, 1: none */
    int64_t taps;               /* weights of a phase */
    int64_t whole;              /* so many phases have all of them, the others one less */
    bool apart;                 /* which are a convolution by themselves */
    int64_t dilation, interior; /* of what is left: the convolution, and zeros within x */
    int64_t before, after;      /* padding of the convolution */
    int64_t cut, cuts;          /* elements cut off before the result; before and after it */
} axis;

typedef struct transposed {
    ash_graph *graph;
    ash_type x, w;
    unsigned space;
    ash_dim outs; /* channels of the result */
    int64_t groups;
    axis axes[ASH_MAX_RANK];
} transposed;

static int64_t floor_div(int64_t a, int64_t b) {
    return a / b - (a % b < 0);
}

/* `low` and `high`: what is cut off the full result; a negative `high` adds zeros. */
static void plan_axis(const transposed *c, axis *a, int64_t kernel, ash_dim x, int64_t low, int64_t high) {
    const int64_t span = (kernel - 1) * a->dilation + 1;
    a->taps = (kernel - 1) / a->phases + 1;
    a->whole = kernel - (a->taps - 1) * a->phases;
    a->interior = a->stride / a->phases - 1;
    const int64_t around = a->phases > 1 ? a->taps - 1 : span - 1;
    const int64_t before = around - floor_div(low, a->phases);
    const int64_t after = a->phases > 1 ? -floor_div(high - kernel, a->phases) - 1 : around - high;
    a->before = ASH_MAX(before, 0);
    a->after = ASH_MAX(after, 0);
    a->cut = low - (around - a->before) * a->phases;
    int64_t least, most, more = a->before + a->after - around;
    ash_graph_dim_bounds(c->graph, x, &least, &most);
    if (a->cut > ASH_MAX(least + more, 0) * a->phases) { /* it may not leave what is there */
        const int64_t added = (a->cut - 1) / a->phases + 1;
        a->after += added, more += added;
    }
    a->cuts = (a->phases > 1 ? more * a->phases : more + 1 - a->stride) - (span - a->stride - low - high);
}

/* [c, m / groups, kernel...] to [m, c / groups, taps, phases, ...], without the phases of axes of one. */
static ash_value split_weights(const transposed *c, ash_value w) {
    ash_graph *g = c->graph;
    ash_dim dims[2 * ASH_MAX_RANK], before[ASH_MAX_RANK] = {0}, after[ASH_MAX_RANK] = {0};
    unsigned rank = 2;
    dims[0] = c->groups, dims[1] = c->w.dims[0] / c->groups;
    memcpy(&dims[2], &c->w.dims[1], (c->space + 1) * sizeof *dims);
    if (c->groups > 1) w = ash_reshape(g, w, dims, c->space + 3);
    w = c->groups > 1 ? ash_build__swap(g, w, 1, 2) : ash_build__swap(g, w, 0, 1);
    dims[0] = c->outs, dims[1] = c->w.dims[0] / c->groups;
    memcpy(&dims[2], &c->w.dims[2], c->space * sizeof *dims);
    w = ash_reshape(g, w, dims, c->space + 2);
    for (unsigned i = 0; i < c->space; i++)
        after[2 + i] = c->axes[i].taps * c->axes[i].phases - c->w.dims[2 + i];
    w = ash_build__pad(g, w, 0, before, after, NULL);
    for (unsigned i = 0; i < c->space; i++) {
        dims[rank++] = c->axes[i].taps;
        if (c->axes[i].phases > 1) dims[rank++] = c->axes[i].phases;
    }
    return ash_reshape(g, w, dims, rank);
}

/* Some phases of each axis, which have as many taps. */
typedef struct phases {
    int64_t first[ASH_MAX_RANK], count[ASH_MAX_RANK], taps[ASH_MAX_RANK];
} phases;

/* Split weights of some phases, as those of a convolution: [m * phases, c / groups, taps...]. */
static ash_value turn_weights(const transposed *c, ash_value w, const phases *some) {
    ash_graph *g = c->graph;
    ash_dim dims[2 * ASH_MAX_RANK] = {c->outs, c->w.dims[0] / c->groups};
    int64_t perm[2 * ASH_MAX_RANK];
    unsigned at = 1;
    perm[0] = 0;
    for (unsigned i = 0, from = 2; i < c->space; i++, from++) {
        w = ash_slice_axis(g, w, from, 0, some->taps[i]);
        w = ash_build__reverse(g, w, from);
        if (c->axes[i].phases == 1) continue;
        perm[at++] = ++from;
        w = ash_slice_axis(g, w, from, some->first[i], some->count[i]);
    }
    perm[at++] = 1;
    for (unsigned i = 0, from = 2; i < c->space; i++, from++) {
        perm[at++] = from;
        from += c->axes[i].phases > 1;
        dims[0] = ash_graph_dim_mul(g, dims[0], some->count[i]);
        dims[2 + i] = some->taps[i];
    }
    return ash_reshape(g, ash_transpose(g, w, perm), dims, c->space + 2);
}

/* A convolution for some phases: [n, m, phases..., q...]. A weight less is the first of the window. */
static ash_value convolve(const transposed *c, ash_value x, ash_value w, const phases *some) {
    ash_window windows[ASH_MAX_RANK];
    ash_type type;
    ash_dim dims[2 * ASH_MAX_RANK];
    unsigned rank = 2;
    for (unsigned i = 0; i < c->space; i++) {
        const axis *a = &c->axes[i];
        windows[i] = (ash_window){
            .dilation = a->dilation, .before = a->before - (a->taps - some->taps[i]), .after = a->after};
    }
    ash_value y = ash_conv(c->graph, x, turn_weights(c, w, some), windows, c->space, c->groups);
    if (!ash_build__take(c->graph, ASH_OP_CONV, y, &type)) return ASH_NO_VALUE;
    dims[0] = type.dims[0], dims[1] = c->outs;
    for (unsigned i = 0; i < c->space; i++)
        if (c->axes[i].phases > 1) dims[rank++] = some->count[i];
    memcpy(&dims[rank], &type.dims[2], c->space * sizeof *dims);
    return ash_reshape(c->graph, y, dims, rank + c->space);
}

/* The phases of the axes from `i` on, of which `at` is the first one's place in the result. */
static ash_value all_phases(const transposed *c, ash_value x, ash_value w, unsigned i, unsigned at,
                            phases *some) {
    if (i == c->space) return convolve(c, x, w, some);
    const axis *a = &c->axes[i];
    const unsigned next = at + (a->phases > 1);
    ash_value parts[2];
    some->first[i] = 0, some->count[i] = a->apart ? a->whole : a->phases, some->taps[i] = a->taps;
    parts[0] = all_phases(c, x, w, i + 1, next, some);
    if (!a->apart) return parts[0];
    some->first[i] = a->whole, some->count[i] = a->phases - a->whole, some->taps[i]--;
    if (some->taps[i]) {
        parts[1] = all_phases(c, x, w, i + 1, next, some);
    } else {
        ash_type type;
        if (!ash_build__take(c->graph, ASH_OP_CONV, parts[0], &type)) return ASH_NO_VALUE;
        type.dims[at] = some->count[i];
        parts[1] = ash_build__fill(c->graph, type.dtype, 0, type.dims, type.rank);
    }
    return ash_concat(c->graph, parts, 2, at);
}

/* [n, m, phases..., q...] to [n, m, ...], the phases of each axis side by side. */
static ash_value join_phases(const transposed *c, ash_value y) {
    ash_type type;
    ash_dim joined[ASH_MAX_RANK];
    int64_t perm[2 * ASH_MAX_RANK] = {0, 1};
    unsigned rank = 2, at = 2;
    if (!ash_build__take(c->graph, ASH_OP_CONV, y, &type)) return ASH_NO_VALUE;
    memcpy(joined, type.dims, 2 * sizeof *joined);
    for (unsigned i = 0; i < c->space; i++) rank += c->axes[i].phases > 1;
    for (unsigned i = 0, phase = 2; i < c->space; i++) {
        joined[2 + i] = ash_graph_dim_mul(c->graph, type.dims[rank], c->axes[i].phases);
        perm[at++] = rank++;
        if (c->axes[i].phases > 1) perm[at++] = phase++;
    }
    return ash_reshape(c->graph, ash_transpose(c->graph, y, perm), joined, c->space + 2);
}

/* Which axes have phases apart: where zeros instead would be many, and vectors of channels are whole. */
static void choose_apart(transposed *c) {
    enum { CHANNELS = 16 };
    double zeros = 1;
    for (unsigned i = 0; i < c->space; i++)
        zeros *= (double)(c->axes[i].taps * c->axes[i].phases) / (double)c->w.dims[2 + i];
    for (unsigned i = 0; i < c->space; i++) {
        axis *a = &c->axes[i];
        a->apart = zeros > 1.3 && c->w.dims[1] >= CHANNELS && a->whole < a->phases &&
                   (a->before > 0 || a->taps == 1);
    }
}

static ash_value build(transposed *c, ash_value x, ash_value w) {
    ash_dim starts[ASH_MAX_RANK] = {0};
    int64_t interior[ASH_MAX_RANK] = {0};
    static const ash_dim none[ASH_MAX_RANK];
    phases some;
    ash_type type;
    for (unsigned i = 0; i < c->space; i++) {
        interior[2 + i] = c->axes[i].interior;
        starts[2 + i] = c->axes[i].cut;
    }
    choose_apart(c);
    x = ash_build__pad(c->graph, x, 0, none, none, interior);
    ash_value y = join_phases(c, all_phases(c, x, split_weights(c, w), 0, 2, &some));
    if (!ash_build__take(c->graph, ASH_OP_CONV, y, &type)) return ASH_NO_VALUE;
    for (unsigned i = 0; i < c->space; i++) {
        const ash_dim cuts = c->axes[i].cuts; /* nothing is left of less */
        if (cuts)
            type.dims[2 + i] =
                ash_graph_dim_sub(c->graph, ash_graph_dim_max(c->graph, type.dims[2 + i], cuts), cuts);
    }
    return ash_slice(c->graph, y, starts, NULL, type.dims);
}

ash_value ash_conv_transpose(ash_graph *graph, ash_value x, ash_value w, const ash_window *windows,
                             const int64_t *extra, size_t n, int64_t groups) {
    transposed c = {.graph = graph, .groups = groups, .space = (unsigned)n};
    unsigned rank = (unsigned)n + 2;
    if (n) ASH_BUILD_NEED(graph, windows);
    if (!ash_build__take(graph, ASH_OP_CONV, x, &c.x) || !ash_build__take(graph, ASH_OP_CONV, w, &c.w))
        return ASH_NO_VALUE;
    if (n == 0 || n > ASH_MAX_RANK - 3 || c.x.rank != n + 2 || c.w.rank != n + 2)
        return ash_build__fail(graph, ASH_OP_CONV, ASH_ERROR_SHAPE,
                               "operands of rank %u and %u for %zu windows of a transposed convolution",
                               c.x.rank, c.w.rank, n);
    if (groups <= 0 || !ash_dim_is_const(c.w.dims[0]) || c.w.dims[0] % groups || c.x.dims[1] != c.w.dims[0])
        return ash_build__fail(graph, ASH_OP_CONV, ASH_ERROR_SHAPE,
                               "%lld groups for %lld channels and weights for %lld", (long long)groups,
                               (long long)c.x.dims[1], (long long)c.w.dims[0]);
    c.outs = ash_graph_dim_mul(graph, c.w.dims[1], groups);
    for (unsigned i = 0; i < n; i++) {
        axis *a = &c.axes[i];
        const int64_t kernel = c.w.dims[2 + i], more = extra ? extra[i] : 0;
        a->stride = windows[i].stride ? windows[i].stride : 1;
        a->dilation = windows[i].dilation ? windows[i].dilation : 1;
        const int64_t numbers[] = {
            kernel, a->stride, a->dilation, windows[i].before + 1, windows[i].after + 1, more + 1};
        for (size_t k = 0; k < ASH_COUNT(numbers); k++)
            if (numbers[k] <= 0 || numbers[k] > INT32_MAX || (kernel - 1) * a->dilation >= INT32_MAX)
                return ash_build__fail(
                    graph, ASH_OP_CONV, ASH_ERROR_UNSUPPORTED,
                    "window %u of a transposed convolution: sizes must be numbers from 1, paddings "
                    "numbers from 0, below 2^31",
                    i);
        a->phases = a->dilation == 1 && rank < ASH_MAX_RANK ? a->stride : 1;
        plan_axis(&c, a, kernel, c.x.dims[2 + i], windows[i].before, windows[i].after - more);
        rank += a->phases > 1;
    }
    return build(&c, x, w);
}
