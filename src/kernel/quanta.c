/* SPDX-License-Identifier: MIT */
/* Forms of quantisation, proven by trying. */
#include "quanta.h"

#include <float.h>
#include <math.h>

enum {
    ALL = 256,         /* bytes */
    CLOSE = 1024,      /* pairs near a tie that are looked at first, at most */
    TRIALS = 256,      /* coefficients that are tried */
    LOOKS = 2048,      /* at pairs near a tie, in a search */
    COMPLETE = 4,      /* trials that are compared for all pairs */
    NEIGHBOURS = 4,    /* how many floats a coefficient is moved, either way */
    FIRST_NEAREST = 64 /* trials with the next ones alone */
};
static const float NEAR = 0x1p-10f; /* of a tie */
static const float ROUGH = 0x1p12f; /* of x, where f32 without fused operations is as good but near a tie */
static const float MOST = 0x1p22f;  /* of x */
static const double SHIFT = 0x1p-19; /* what is added is moved by it */

/* --- one operation ---------------------------------------------------------------------------------- */

static float apply(ash_quanta_op op, float x, float y) {
    switch (op) {
    case ASH_QUANTA_ADD: return x + y;
    case ASH_QUANTA_SUB: return x - y;
    case ASH_QUANTA_MUL: return x * y;
    case ASH_QUANTA_DIV: return x / y;
    case ASH_QUANTA_MAX: return x > y ? x : y;
    case ASH_QUANTA_MIN: return x < y ? x : y;
    case ASH_QUANTA_ROUND: return nearbyintf(x);
    default: return x;
    }
}

/* The same of all bytes, with a loop each. */
static void apply_all(ash_quanta_op op, float *out, const float *x, const float *y) {
    switch (op) {
    case ASH_QUANTA_ADD:
        for (unsigned i = 0; i < ALL; i++) out[i] = x[i] + y[i];
        break;
    case ASH_QUANTA_MUL:
        for (unsigned i = 0; i < ALL; i++) out[i] = x[i] * y[i];
        break;
    case ASH_QUANTA_DIV:
        for (unsigned i = 0; i < ALL; i++) out[i] = x[i] / y[i];
        break;
    default:
        for (unsigned i = 0; i < ALL; i++) out[i] = apply(op, x[i], y[i]);
    }
}

/* To the nearest whole number, ties to even; |x| < 2^22. */
static float rounded(float x) {
    return (x + 0x1.8p23f) - 0x1.8p23f;
}

/* Of any number; what is far from all bytes stays so. */
static int32_t integer_of(float whole) {
    const float low = whole > -MOST ? whole : -MOST;
    return (int32_t)(low < MOST ? low : MOST);
}

static int32_t clamp_to(float x, int32_t zero, int32_t low, int32_t high) {
    const int32_t y = (int32_t)rounded(x) + zero;
    return ASH_MAX(low, ASH_MIN(high, y));
}

/* --- of bytes --------------------------------------------------------------------------------------- */

typedef struct proving {
    const ash_quanta *q;
    const ash_quanta_step *steps;
    unsigned of[ASH_QUANTA_STEPS];      /* the bytes that a step depends on, a set */
    float value[ASH_QUANTA_STEPS][ALL]; /* of a step by its byte; by the second one where it has both */
    int32_t low, high;                  /* of y */
    unsigned dividend;                  /* the step that is divided at last; count: none */
    float added;                        /* to the quotient */
    unsigned n_close;
    bool rough;                /* a form may be looked at without fused operations */
    unsigned looked, complete; /* pairs near a tie, and times all, that a search has looked at */
    uint16_t close[CLOSE];     /* pairs, a * ALL + b */
    uint8_t want[ALL * ALL];   /* y less the least */
    float d[ALL * ALL];        /* the dividend, for a form that has it */
} proving;

/* Zeros, and what is neither so large nor so small that its product with another such is none. */
static bool takes_all(const float *x) {
    unsigned bad = 0;
    for (unsigned i = 0; i < ALL; i++) {
        const float size = fabsf(x[i]);
        bad |= !((size == 0) | ((size >= 1e-30f) & (size <= 1e30f)));
    }
    return !bad;
}

static bool are_whole(const float *x) {
    unsigned bad = 0;
    for (unsigned i = 0; i < ALL; i++) bad |= !(fabsf(x[i]) <= 0x1p24f);
    return !bad;
}

/* One step for all bytes that it depends on; of both, for one of the first. */
static bool compute(proving *p, unsigned s, unsigned a) {
    const ash_quanta_step *step = &p->steps[s];
    float spread[2][ALL];
    const float *ins[2] = {p->value[s], p->value[s]};
    const int8_t refs[2] = {step->a, step->b};
    float *out = p->value[s];
    switch ((ash_quanta_op)step->op) {
    case ASH_QUANTA_BYTE:
        for (int i = 0; i < ALL; i++) out[i] = (float)(p->q->low[step->a] + i);
        return true;
    case ASH_QUANTA_NUMBER:
        for (unsigned i = 0; i < ALL; i++) out[i] = step->number;
        return takes_all(out);
    default: break;
    }
    for (unsigned k = 0; k < 2; k++) {
        if (refs[k] < 0) continue;
        ins[k] = p->value[refs[k]];
        if (p->of[s] != 3 || p->of[refs[k]] != 1) continue;
        for (unsigned i = 0; i < ALL; i++) spread[k][i] = ins[k][a];
        ins[k] = spread[k];
    }
    apply_all((ash_quanta_op)step->op, out, ins[0], ins[1]);
    /* sums of such numbers are normal ones, or 0 */
    const bool sure = p->of[s] == 3 && step->op != ASH_QUANTA_MUL && step->op != ASH_QUANTA_DIV;
    return (sure || takes_all(out)) && (!step->whole || are_whole(out));
}

static void depend(proving *p) {
    for (unsigned s = 0; s < p->q->count; s++) {
        const ash_quanta_step *step = &p->steps[s];
        if (step->op == ASH_QUANTA_BYTE)
            p->of[s] = 1u << step->a;
        else
            p->of[s] = (step->a >= 0 ? p->of[step->a] : 0) | (step->b >= 0 ? p->of[step->b] : 0);
    }
}

/* Bytes that the formula has; without a second one it is as if there was one that does not count. */
static unsigned seconds(const proving *p) {
    return p->q->bytes == 2 ? ALL : 1;
}

/* All steps for one of the first byte; false: a number is out of bounds. */
static bool compute_row(proving *p, unsigned a) {
    bool ok = true;
    for (unsigned s = 0; s < p->q->count && ok; s++)
        if (a == 0 || p->of[s] == 3) ok = compute(p, s, a);
    return ok;
}

/* A step for one of the first byte, by the second; `room` where it does not depend on that. */
static const float *row_of(const proving *p, unsigned s, unsigned a, float *room) {
    if (p->of[s] & 2) return p->value[s];
    for (unsigned b = 0; b < ALL; b++) room[b] = p->value[s][a];
    return room;
}

/* The step that x is the quotient of, by a number, with numbers added to it. */
static void find_dividend(proving *p) {
    unsigned s = p->q->count - 1;
    p->dividend = p->q->count, p->added = 0;
    for (;;) {
        const ash_quanta_step *step = &p->steps[s];
        const bool number = step->b >= 0 && p->steps[step->b].op == ASH_QUANTA_NUMBER;
        if (number && step->op == ASH_QUANTA_DIV) {
            p->dividend = (unsigned)step->a;
            return;
        }
        if (!number || (step->op != ASH_QUANTA_ADD && step->op != ASH_QUANTA_SUB)) return;
        p->added += step->op == ASH_QUANTA_ADD ? p->steps[step->b].number : -p->steps[step->b].number;
        s = (unsigned)step->a;
    }
}

/* Notes a pair that decides early. */
static void note_close(proving *p, unsigned pair) {
    if (p->n_close < CLOSE) p->close[p->n_close++] = (uint16_t)pair;
}

/* A row of x as y less the least, with its bounds; which of them are near a tie, and whether any is; false:
 * a number is too large. */
static bool take_row(proving *p, const float *x, uint8_t *want, bool *close, bool *any) {
    const int32_t low = p->q->to == ASH_U8 ? 0 : -128, high = low + 255, zero = p->q->zero;
    int32_t least = p->low, most = p->high;
    unsigned large = 0, near_tie = 0;
    for (unsigned b = 0; b < ALL; b++) {
        const float whole = rounded(x[b]);
        const int32_t n = integer_of(whole) + zero, y = ASH_MAX(low, ASH_MIN(high, n));
        least = ASH_MIN(least, y), most = ASH_MAX(most, y);
        want[b] = (uint8_t)(y - low);
        close[b] = (fabsf(x[b] - whole) > 0.5f - NEAR) & (n > low - 2) & (n < high + 2);
        near_tie |= close[b];
        large |= !(fabsf(x[b]) < MOST);
    }
    p->low = least, p->high = most, *any = near_tie;
    return !large;
}

/* All of y, and the pairs near a tie. */
static bool compute_pairs(proving *p) {
    float room[ALL];
    bool close[ALL], any;
    for (unsigned a = 0; a < ALL; a++) {
        if (!compute_row(p, a) ||
            !take_row(p, row_of(p, p->q->count - 1, a, room), p->want + a * ALL, close, &any))
            return false;
        for (unsigned b = 0; any && b < ALL; b++)
            if (close[b]) note_close(p, a * ALL + b);
    }
    return true;
}

/* The same of one byte, in the places of pairs with the first other one. */
static bool compute_bytes(proving *p) {
    uint8_t want[ALL];
    bool close[ALL], any;
    if (!compute_row(p, 0) || !take_row(p, p->value[p->q->count - 1], want, close, &any)) return false;
    for (unsigned a = 0; a < ALL; a++) {
        p->want[a * ALL] = want[a];
        if (close[a]) note_close(p, a * ALL);
    }
    return true;
}

static bool compute_all(proving *p) {
    p->low = INT32_MAX, p->high = INT32_MIN;
    return p->q->bytes == 2 ? compute_pairs(p) : compute_bytes(p);
}

/* The parts of a form x = first[a] line[b] + added, where that is what it is. */
static float first_of(const ash_quanta_form *f, const ash_quanta *q, unsigned a) {
    const float x = (float)(q->low[0] + (int32_t)a);
    return f->kind == ASH_QUANTA_PRODUCT ? x - f->p[0] : x;
}

static float line_of(const ash_quanta_form *f, const ash_quanta *q, unsigned b) {
    return fmaf((float)(q->low[1] + (int32_t)b), f->p[1], f->p[2]);
}

/* x of the form for a pair. */
static float x_of(const proving *p, const ash_quanta_form *f, unsigned a, unsigned b) {
    switch (f->kind) {
    case ASH_QUANTA_PLANE: return fmaf(first_of(f, p->q, a), f->p[0], line_of(f, p->q, b));
    case ASH_QUANTA_PRODUCT: return fmaf(first_of(f, p->q, a), line_of(f, p->q, b), f->p[3]);
    default: return fmaf(p->d[a * ALL + b], f->p[0], f->p[1]);
    }
}

static bool is_same(const proving *p, const ash_quanta_form *f, unsigned pair) {
    const int32_t low = p->q->to == ASH_U8 ? 0 : -128;
    const float x = x_of(p, f, pair / ALL, pair % ALL);
    return fabsf(x) < MOST && clamp_to(x, f->zero, f->low, f->high) == low + p->want[pair];
}

/* A row of x as the form has it but for roundings, which are less than NEAR of what is no larger than
 * ROUGH: whether all bytes are the same, and nothing is near a tie. */
static bool is_far_row(const proving *p, const ash_quanta_form *f, const float *line, unsigned a) {
    const float first = first_of(f, p->q, a), start = first * f->p[0], *d = p->d + a * ALL;
    const uint8_t *want = p->want + a * ALL;
    const int32_t least = p->q->to == ASH_U8 ? 0 : -128;
    const int32_t low = f->low - least, high = f->high - least, zero = f->zero - least;
    float x[ALL];
    unsigned differs = 0;
    if (f->kind == ASH_QUANTA_PLANE)
        for (unsigned b = 0; b < ALL; b++) x[b] = start + line[b];
    else if (f->kind == ASH_QUANTA_PRODUCT)
        for (unsigned b = 0; b < ALL; b++) x[b] = first * line[b] + f->p[3];
    else
        for (unsigned b = 0; b < ALL; b++) x[b] = d[b] * f->p[0] + f->p[1];
    for (unsigned b = 0; b < ALL; b++) {
        const float whole = rounded(x[b]);
        const int32_t y = integer_of(whole) + zero;
        differs |= (unsigned)(ASH_MAX(low, ASH_MIN(high, y)) != want[b]);
        differs |= (unsigned)!(fabsf(x[b]) < ROUGH) | (unsigned)(fabsf(x[b] - whole) > 0.5f - NEAR);
    }
    return !differs;
}

/* The same for all of one of the first byte. */
static bool is_same_row(proving *p, const ash_quanta_form *f, const float *line, unsigned a) {
    if (p->q->bytes == 2 && p->rough && is_far_row(p, f, line, a)) return true;
    for (unsigned b = 0; b < seconds(p); b++) {
        if (is_same(p, f, a * ALL + b)) continue;
        note_close(p, a * ALL + b);
        return false;
    }
    return true;
}

/* Whether no number on the way to x is large. */
static bool is_rough(const proving *p, const ash_quanta_form *f) {
    const float *x = f->p;
    if (f->kind == ASH_QUANTA_PLANE) return ALL * (fabsf(x[0]) + fabsf(x[1])) + fabsf(x[2]) < ROUGH;
    if (f->kind == ASH_QUANTA_PRODUCT)
        return 2 * ALL * (ALL * fabsf(x[1]) + fabsf(x[2])) + fabsf(x[3]) < ROUGH && fabsf(x[0]) <= ALL;
    return fabsf(f->p[1]) < ROUGH && p->q->bytes;
}

/* Whether the form is the same for all; those near a tie first, of which the one that is not comes to the
 * front. */
static bool is_proven(proving *p, const ash_quanta_form *f) {
    for (unsigned i = 0; i < p->n_close; i++, p->looked++) {
        if (is_same(p, f, p->close[i])) continue;
        const uint16_t pair = p->close[i];
        p->close[i] = p->close[i / 2], p->close[i / 2] = p->close[0], p->close[0] = pair;
        return false;
    }
    float line[ALL];
    p->complete++, p->rough = is_rough(p, f);
    for (unsigned b = 0; b < ALL; b++) line[b] = line_of(f, p->q, b);
    for (unsigned a = 0; a < ALL; a++)
        if (!is_same_row(p, f, line, a)) return false;
    return true;
}

static uint32_t draw(uint32_t *state) {
    *state ^= *state << 13, *state ^= *state >> 17, *state ^= *state << 5;
    return *state;
}

/* Tries coefficients around these; those that are factors are moved by floats. */
static bool search(proving *p, ash_quanta_form *form, const double *nominal, unsigned count,
                   unsigned factors) {
    uint32_t state = 0x9e3779b9u;
    p->looked = p->complete = 0;
    for (unsigned trial = 0; trial < TRIALS && p->looked < LOOKS && p->complete < COMPLETE; trial++) {
        const int reach = trial == 0 ? 0 : trial < FIRST_NEAREST ? 1 : NEIGHBOURS;
        for (unsigned k = 0; k < count; k++) {
            const int by = (int)(draw(&state) % (unsigned)(2 * reach + 1)) - reach;
            const double step = factors >> k & 1 ? fabs(nominal[k]) * 0x1p-24 : SHIFT;
            form->p[k] = (float)(nominal[k] + by * step);
        }
        if (form->kind == ASH_QUANTA_PRODUCT) form->p[0] = (float)nominal[0]; /* a byte less it is exact */
        if (is_proven(p, form)) return true;
    }
    return false;
}

/* x without roundings and bounds. */
static double exact(const ash_quanta *q, const double *bytes) {
    double value[ASH_QUANTA_STEPS];
    for (unsigned s = 0; s < q->count; s++) {
        const ash_quanta_step *step = &q->steps[s];
        const double x = step->a >= 0 ? value[step->a] : 0, y = step->b >= 0 ? value[step->b] : 0;
        switch ((ash_quanta_op)step->op) {
        case ASH_QUANTA_BYTE: value[s] = bytes[step->a]; continue;
        case ASH_QUANTA_NUMBER: value[s] = (double)step->number; continue;
        case ASH_QUANTA_ADD: value[s] = x + y; continue;
        case ASH_QUANTA_SUB: value[s] = x - y; continue;
        case ASH_QUANTA_MUL: value[s] = x * y; continue;
        case ASH_QUANTA_DIV: value[s] = x / y; continue;
        default: value[s] = step->b >= 0 && q->steps[step->a].op == ASH_QUANTA_NUMBER ? y : x;
        }
    }
    return value[q->count - 1];
}

/* The same with the zero point in what is added, number `last`, or else behind the rounding: ties go to
 * the even neighbour, which an odd zero point makes the other one. */
static bool search_both(proving *p, ash_quanta_form *form, double *nominal, unsigned count,
                        unsigned factors) {
    nominal[count - 1] += p->q->zero;
    form->zero = 0;
    if (search(p, form, nominal, count, factors)) return true;
    nominal[count - 1] -= p->q->zero;
    form->zero = p->q->zero;
    return p->q->zero % 2 && search(p, form, nominal, count, factors);
}

static bool search_plane(proving *p, ash_quanta_form *form) {
    const double none = exact(p->q, (double[]){0, 0}), a = (exact(p->q, (double[]){256, 0}) - none) / 256,
                 b = (exact(p->q, (double[]){0, 256}) - none) / 256,
                 ab = (exact(p->q, (double[]){256, 256}) - none) / 65536 - a / 256 - b / 256;
    const bool bent = fabs(ab) * 65536 > 1e-9;
    if (!bent) {
        form->kind = ASH_QUANTA_PLANE;
        return search_both(p, form, (double[]){a, b, none}, 3, 3);
    }
    const double zero = nearbyint(-b / ab); /* what makes nothing of all b */
    form->kind = ASH_QUANTA_PRODUCT;
    if (fabs(-b / ab - zero) > 1e-4 || fabs(zero) > 0x1p16) return false;
    return search_both(p, form, (double[]){zero, ab, a, none + zero * a}, 4, 6);
}

static bool search_dividend(proving *p, ash_quanta_form *form) {
    if (p->dividend == p->q->count) return false;
    float room[ALL];
    for (unsigned a = 0; a < ALL; a++) {
        compute_row(p, a);
        memcpy(p->d + a * ALL, row_of(p, p->dividend, a, room), sizeof room);
    }
    const ash_quanta_step *step = p->steps; /* the one that divides has it as its first operand */
    unsigned s = p->q->count - 1;
    while (step[s].op != ASH_QUANTA_DIV) s = (unsigned)step[s].a;
    form->kind = ASH_QUANTA_DIVIDEND, form->at = p->dividend;
    return search_both(p, form, (double[]){1 / (double)step[step[s].b].number, (double)p->added}, 2, 1);
}

/* Leaves out bounds that the form has by itself: its extremes are at the corners. Those of a dividend are
 * not looked for. */
static void leave_out_bounds(const proving *p, ash_quanta_form *f) {
    const int32_t least = p->q->to == ASH_U8 ? 0 : -128;
    const bool corners = f->kind != ASH_QUANTA_DIVIDEND;
    bool below = !corners, above = !corners;
    for (unsigned k = 0; k < 4 && corners; k++) {
        const float x = x_of(p, f, k & 1 ? ALL - 1 : 0, k & 2 ? seconds(p) - 1 : 0);
        const int32_t y = integer_of(rounded(x)) + f->zero;
        below |= y<f->low, above |= y> f->high;
    }
    if (!below) f->low = least;
    if (!above) f->high = least + 255;
}

static void find_of_bytes(proving *p, ash_quanta_form *out) {
    p->steps = p->q->steps;
    depend(p);
    find_dividend(p);
    if (!compute_all(p)) return;
    out->small = true;
    ash_quanta_form form = {.low = p->low, .high = p->high, .small = true};
    if (search_plane(p, &form) || search_dividend(p, &form)) {
        leave_out_bounds(p, &form);
        *out = form;
    }
}

/* --- of anything ------------------------------------------------------------------------------------- */

/* Floats in their order as integers, and back. */
static float nth(int32_t n) {
    const int32_t bits = n < 0 ? INT32_MIN - n : n;
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

/* y of one operand, with a quotient that is computed as such or in the other form. */
static int32_t result(const ash_quanta *q, const ash_quanta_form *form, float operand, int32_t low) {
    float value[ASH_QUANTA_STEPS];
    for (unsigned s = 0; s < q->count; s++) {
        const ash_quanta_step *step = &q->steps[s];
        if (step->op == ASH_QUANTA_ANY)
            value[s] = operand;
        else if (step->op == ASH_QUANTA_NUMBER)
            value[s] = step->number;
        else if (form && s == form->at)
            value[s] = fmaf(value[step->a], form->p[0], value[step->a] * form->p[1]);
        else
            value[s] = apply((ash_quanta_op)step->op, value[step->a],
                             step->b >= 0 ? value[step->b] : value[step->a]);
    }
    const float x = value[q->count - 1];
    if (!(x > -MOST)) return x <= -MOST ? low : INT32_MIN; /* a NaN is nothing */
    return x < MOST ? clamp_to(x, q->zero, low, low + 255) : low + 255;
}

/* d / c, by a positive number, and then what does not turn an order around. */
static bool is_staircase(const ash_quanta *q, ash_quanta_form *form) {
    unsigned s = q->count - 1;
    for (;; s = (unsigned)q->steps[s].a) {
        const ash_quanta_step *step = &q->steps[s];
        const bool number = step->b >= 0 && q->steps[step->b].op == ASH_QUANTA_NUMBER;
        if (!number || step->op < ASH_QUANTA_ADD || step->op == ASH_QUANTA_MUL) return false;
        if (step->op == ASH_QUANTA_DIV) break;
    }
    const float c = q->steps[q->steps[s].b].number;
    if (!(c > 1e-30f && c < 1e30f) || q->steps[q->steps[s].a].op != ASH_QUANTA_ANY) return false;
    const double whole = 1 / (double)c;
    float most = (float)whole;
    if ((double)most > whole) most = nextafterf(most, 0);
    *form = (ash_quanta_form){.kind = ASH_QUANTA_QUOTIENT,
                              .at = s,
                              .p = {most, (float)(whole - (double)most)},
                              .zero = q->zero,
                              .low = q->to == ASH_U8 ? 0 : -128};
    form->high = form->low + 255;
    /* of infinity nothing would be a NaN, and c a power of two; numbers below are nothing to kernels */
    return form->p[1] >= FLT_MIN;
}

static const int64_t INFINITE = 0x7f800000; /* its place */

static int64_t place_of(float x) {
    int32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits < 0 ? (int64_t)INT32_MIN - bits : bits;
}

/* The place of the first number that makes at least y, which the last one does and the first one does not:
 * sought from a guess on. */
static int64_t first_with(const ash_quanta *q, int32_t y, int32_t low, int64_t guess) {
    int64_t below = guess, from = guess;
    for (int64_t by = 1; below > -INFINITE && result(q, NULL, nth((int32_t)below), low) >= y; by *= 2)
        from = below, below = ASH_MAX(below - by, -INFINITE);
    for (int64_t by = 1; from < INFINITE && result(q, NULL, nth((int32_t)from), low) < y; by *= 2)
        below = from, from = ASH_MIN(from + by, INFINITE);
    while (from - below > 1) {
        const int64_t middle = below + (from - below) / 2;
        if (result(q, NULL, nth((int32_t)middle), low) >= y)
            from = middle;
        else
            below = middle;
    }
    return from;
}

static void find_quotient(const ash_quanta *q, ash_quanta_form *out) {
    ash_quanta_form form;
    if (!is_staircase(q, &form)) return;
    const int32_t low = form.low;
    const float c = q->steps[q->steps[form.at].b].number;
    for (int64_t sign = -1; sign <= 1; sign++) {
        const float x = nth((int32_t)(sign * INFINITE));
        if (result(q, NULL, x, low) != result(q, &form, x, low)) return;
    }
    int64_t from = 0;
    for (int32_t y = low + 1; y <= form.high; y++) {
        if (result(q, NULL, -INFINITY, low) >= y || result(q, NULL, INFINITY, low) < y)
            continue; /* always, or never; that is so in both forms, by their ends */
        from = first_with(q, y, low, place_of(nth((int32_t)from) + c));
        if (result(q, &form, nth((int32_t)from), low) < y ||
            result(q, &form, nth((int32_t)(from - 1)), low) >= y)
            return;
    }
    *out = form;
}

bool ash_quanta__find(const ash_allocator *allocator, const ash_quanta *q, ash_quanta_form *out) {
    *out = (ash_quanta_form){.kind = ASH_QUANTA_NONE};
    if (q->bytes == 0) {
        find_quotient(q, out);
        return true;
    }
    proving *p = ash_mem_alloc(allocator, 1, sizeof *p);
    if (!p) return false;
    p->q = q, p->n_close = 0;
    find_of_bytes(p, out);
    ash_mem_free(allocator, p, 1, sizeof *p);
    return true;
}
