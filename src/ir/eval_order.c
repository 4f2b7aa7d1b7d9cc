/* SPDX-License-Identifier: MIT */
/* Operators that order elements along an axis: argmax, argmin, topk, nms.
 *
 * Where the rows of ops.def leave NaN open, this is the rule. argmax and argmin agree with reduce_max and
 * reduce_min: a NaN wins both, and NaNs are equal to each other. topk sorts by a total order in which NaN
 * is above everything, so it comes first of the largest and last of the smallest. Zeros of either sign are
 * equal in all three. */
#include <math.h>

#include "eval.h"

/* True when b comes strictly before a in a descending order; NaN is above everything. */
static bool above(const ash_wide *t, int64_t b, int64_t a) {
    if (!ash_dtype_is_float(t->dtype)) return ash_eval__less_int(t->dtype, t->i[a], t->i[b]);
    if (isnan(t->f[a])) return false;
    return isnan(t->f[b]) || t->f[b] > t->f[a];
}

/* True when b wins over a: greater for argmax, less for argmin, a NaN over what is none. */
static bool beats(const ash_wide *t, bool max, int64_t b, int64_t a) {
    bool nan_a = ash_dtype_is_float(t->dtype) && isnan(t->f[a]),
         nan_b = ash_dtype_is_float(t->dtype) && isnan(t->f[b]);
    if (nan_a || nan_b) return nan_b && !nan_a;
    return max ? above(t, b, a) : above(t, a, b);
}

void ash_eval__argreduce(const ash_eval *e) {
    const ash_wide *x = &e->ins[0], *y = &e->outs[0];
    bool max = e->node->op == ASH_OP_ARGMAX, last = ash_node_int(e->node, ASH_ATTR_LAST);
    ash_eval_axis a = ash_eval__axis(x, ash_node_int(e->node, ASH_ATTR_AXIS));
    for (int64_t outer = 0; outer < a.outer; outer++)
        for (int64_t inner = 0; inner < a.inner; inner++) {
            int64_t first = outer * a.len * a.inner + inner, best = 0;
            for (int64_t i = 1; i < a.len; i++) {
                int64_t at = first + i * a.inner, best_at = first + best * a.inner;
                if (last ? !beats(x, max, best_at, at) : beats(x, max, at, best_at)) best = i;
            }
            y->i[outer * a.inner + inner] = best; /* of an empty axis: 0 */
        }
}

/* --- topk -------------------------------------------------------------------------------------------- */

/* A line of the operand: `len` elements, `step` apart. */
typedef struct line {
    const ash_wide *x;
    int64_t first, step, len;
    bool largest;
} line;

static bool before(const line *l, int64_t b, int64_t a) {
    int64_t at_b = l->first + b * l->step, at_a = l->first + a * l->step;
    return l->largest ? above(l->x, at_b, at_a) : above(l->x, at_a, at_b);
}

/* Merges the sorted runs from[lo..mid) and from[mid..hi); of equals, the left run's come first. */
static void merge(const line *l, const int64_t *from, int64_t lo, int64_t mid, int64_t hi, int64_t *to) {
    int64_t left = lo, right = mid;
    for (int64_t i = lo; i < hi; i++) {
        bool take_right = left == mid || (right < hi && before(l, from[right], from[left]));
        to[i] = take_right ? from[right++] : from[left++];
    }
}

/* The indices 0..len in order, equals by index: a bottom-up merge sort, as it is stable. Returns the one of
 * the two arrays that holds the result. */
static const int64_t *sort_line(const line *l, int64_t *order, int64_t *scratch) {
    for (int64_t i = 0; i < l->len; i++) order[i] = i;
    for (int64_t run = 1; run < l->len; run *= 2) {
        for (int64_t lo = 0; lo < l->len; lo += 2 * run)
            merge(l, order, lo, ASH_MIN(lo + run, l->len), ASH_MIN(lo + 2 * run, l->len), scratch);
        int64_t *sorted = scratch;
        scratch = order;
        order = sorted;
    }
    return order;
}

ash_status ash_eval__topk(const ash_eval *e) {
    const ash_wide *x = &e->ins[0], *values = &e->outs[0], *indices = &e->outs[1];
    int64_t axis = ash_node_int(e->node, ASH_ATTR_AXIS);
    ash_eval_axis a = ash_eval__axis(x, axis);
    int64_t k = values->dims[axis];
    ASH_FAIL_IF(k > a.len, e->diag, ASH_ERROR_OUT_OF_RANGE, "the first %lld of %lld elements", (long long)k,
                (long long)a.len);
    int64_t *scratch = ash_mem_alloc(e->graph->allocator, (size_t)a.len, 2 * sizeof *scratch);
    if (!scratch) return ASH_NO_MEMORY(e->diag);
    for (int64_t outer = 0; outer < a.outer; outer++)
        for (int64_t inner = 0; inner < a.inner; inner++) {
            line l = {x, outer * a.len * a.inner + inner, a.inner, a.len,
                      ash_node_int(e->node, ASH_ATTR_LARGEST)};
            const int64_t *order = sort_line(&l, scratch, scratch + a.len);
            for (int64_t i = 0; i < k; i++) {
                int64_t to = (outer * k + i) * a.inner + inner;
                ash_wide__cells(values)[to] = ash_wide__cells(x)[l.first + order[i] * l.step];
                indices->i[to] = order[i];
            }
        }
    ash_mem_free(e->graph->allocator, scratch, (size_t)a.len, 2 * sizeof *scratch);
    return ASH_OK;
}

/* --- nms --------------------------------------------------------------------------------------------- */

static double extent(double low_a, double high_a, double low_b, double high_b) {
    return fmin(high_a, high_b) - fmax(low_a, low_b);
}

/* Whether two boxes have more than `most` of their union in common. One without an area has nothing. */
static bool overlap(const double *a, const double *b, double most) {
    double height = extent(a[0], a[2], b[0], b[2]), width = extent(a[1], a[3], b[1], b[3]);
    if (!(height > 0) || !(width > 0)) return false;
    double common = height * width, area_a = (a[2] - a[0]) * (a[3] - a[1]),
           area_b = (b[2] - b[0]) * (b[3] - b[1]), all = area_a + area_b - common;
    return area_a > 0 && area_b > 0 && all > 0 && common / all > most;
}

/* `open` has a place per box: whether it may still be chosen. */
static int64_t choose_boxes(const double *boxes, const double *scores, int64_t n, double most, int64_t k,
                            bool *open, int64_t *chosen) {
    for (int64_t found = 0;; found++) {
        int64_t best = -1;
        for (int64_t i = 0; i < n; i++)
            if (open[i] && (best < 0 || scores[i] > scores[best])) best = i;
        if (best < 0 || found == k) return found;
        chosen[found] = best;
        open[best] = false;
        for (int64_t i = 0; i < n; i++)
            if (open[i] && overlap(boxes + 4 * best, boxes + 4 * i, most)) open[i] = false;
    }
}

ash_status ash_eval__nms(const ash_eval *e) {
    const ash_wide *boxes = &e->ins[0], *scores = &e->ins[1], *chosen = &e->outs[0], *counts = &e->outs[1];
    int64_t n = boxes->dims[1], classes = scores->dims[1], k = chosen->dims[2];
    bool *open = ash_mem_alloc(e->graph->allocator, (size_t)n, sizeof *open);
    if (!open) return ASH_NO_MEMORY(e->diag);
    memset(chosen->i, 0, (size_t)chosen->count * sizeof *chosen->i);
    for (int64_t row = 0; row < counts->count; row++) {
        const double *score = scores->f + row * n;
        for (int64_t i = 0; i < n; i++) open[i] = score[i] > e->ins[3].f[0];
        counts->i[row] = choose_boxes(boxes->f + row / classes * n * 4, score, n, e->ins[2].f[0], k, open,
                                      chosen->i + row * k);
    }
    ash_mem_free(e->graph->allocator, open, (size_t)n, sizeof *open);
    return ASH_OK;
}
