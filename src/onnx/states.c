/* SPDX-License-Identifier: MIT */
/* States of loops whose sizes change from one iteration to the next.
 *
 * A graph's loop hands on values of one type. A state whose shape changes lies in a value with room for the
 * largest that it becomes: an iteration takes as much of it as there is, and hands on what it made of that
 * with the rest behind it, so that what is appended is written in place. How much there is, the number of
 * the iteration says where each adds as much as any other. Otherwise it is a number that is carried beside
 * the state, from which the iteration settles a size: one for all dims that begin and go on alike (a
 * family), so that what is computed from two of them fits.
 *
 * How a dim changes is found by importing the body with a guess, which what comes out confirms or corrects:
 *
 *     it keeps its size  ->  it grows by what the first guess found  ->  a size of its own
 *
 * Sizes of their own are imported once without limits, to see what the body makes of them (min(n + 1, 4) of
 * a window that rolls). From that follow their bounds, as the least ones that an iteration does not leave:
 * over some steps; where each iteration adds a bounded number, from the number of iterations. Where there
 * is none the caller says it, or the usual one holds ("y.0", computed.c). The import with these is the
 * last; where it cannot be seen that a size stays within them, each iteration checks it. */
#include <math.h>

#include "base/text.h"
#include "control.h"

enum {
    FAR = 1 << 20, /* no limit: elements */
    FEW = 256,     /* iterations that are followed one by one */
    ROUNDS = 24    /* of guesses */
};

typedef struct range {
    double least, most;
} range;

/* How a dim of a state changes. */
typedef enum change { KEPT, GROWN, OWN } change;

typedef struct state_dim {
    change how;
    ash_dim by;      /* grown: what an iteration adds */
    uint32_t family; /* own */
    ash_dim room;
} state_dim;

/* Dims of states that are one size throughout. */
typedef struct family {
    uint32_t state; /* the first of them */
    unsigned axis;
    bool bounded;  /* the bounds are found; else there is no limit */
    bool as_begun; /* `most` is what it begins with */
    int64_t least; /* of any size */
    int64_t low;   /* with which an iteration begins */
    ash_dim most;
    uint32_t var; /* what it is more than `low` */
    ash_dim now;  /* at the begin of an iteration, or after the last one */
    bool is_last; /* the latter */
    ash_dim next; /* at the end of an iteration */
    range found;  /* the bounds, on the way to them */
} family;

struct ash_onnx_states {
    size_t n;
    const size_t *numbers; /* in the model */
    size_t first;          /* operand of the node that state 0 is */
    bool peeled;
    bool again;   /* this import has shown how states change, and is to be done once more */
    bool failed;  /* none can help */
    bool assumes; /* that no iteration begins without elements, where the loop does not */
    unsigned rounds;
    size_t vars; /* that there were before the loop */
    state_dim *dims;
    family *families;
    uint32_t n_families;
    ash_type *began;
    int64_t most_trips; /* iterations for which there is room */
    ash_dim number;     /* of the iteration, where a state grows */
};

static state_dim *dim_of(const ash_onnx_states *s, size_t k, unsigned d) {
    return &s->dims[k * ASH_MAX_RANK + d];
}

ash_onnx_states *ash_onnx__new_states(ash_import *im, size_t n, size_t first, bool peeled) {
    ash_onnx_states *s = ash_arena_alloc(im->scratch, 1, sizeof *s);
    size_t dims = n * ASH_MAX_RANK;
    if (s) {
        *s = (ash_onnx_states){.n = n, .first = first, .peeled = peeled};
        s->dims = ash_arena_alloc(im->scratch, dims, sizeof *s->dims);
        s->families = ash_arena_alloc(im->scratch, dims, sizeof *s->families);
        s->began = ash_arena_alloc(im->scratch, n, sizeof *s->began);
    }
    if (s && s->dims && s->families && s->began) return s;
    return ash_import__fail(im, ASH_ERROR_OUT_OF_MEMORY, "out of memory"), NULL;
}

/* --- what an iteration begins with ---------------------------------------------------------------- */

/* What the size of a family is called, and its bound; whether the caller said it. */
static bool bound_of(ash_import *im, const ash_onnx_states *s, const family *f, const char **name,
                     int64_t *most) {
    const size_t k = s->numbers ? s->numbers[f->state] : f->state;
    const bool wanted = k < im->node->n_outs && im->node->outs[k].len;
    bool given = false;
    *name = ash_onnx__bound_of(im, wanted ? im->node->outs[k] : im->node->ins[s->first + k], f->axis, most,
                               &given);
    return given;
}

/* The bounds of a dim. */
static int64_t bound_least(const ash_import *im, ash_dim dim, int64_t *most) {
    int64_t least;
    ash_dims_bounds(im->graph->dims, dim, &least, most);
    return least;
}

/* Room along a dim. */
static ash_dim room_of(ash_import *im, const ash_onnx_states *s, size_t k, unsigned d) {
    const state_dim *dim = dim_of(s, k, d);
    const ash_dim began = s->began[k].dims[d];
    if (dim->how == GROWN)
        return ash_graph_dim_add(im->graph, began, ash_graph_dim_mul(im->graph, dim->by, s->most_trips));
    return dim->how == OWN ? s->families[dim->family].most : began;
}

bool ash_onnx__open_states(ash_import *im, ash_onnx_states *s, const ash_onnx_carried *all,
                           ash_value *init) {
    s->n = all->n;
    s->numbers = all->numbers;
    s->again = s->failed = false;
    s->vars = ash_dims_var_count(im->graph->dims);
    bound_least(im, all->trips, &s->most_trips);
    s->most_trips = ASH_MAX(s->most_trips, 1);
    for (size_t k = 0; k < s->n; k++) s->began[k] = ash_import__type(im, init[k]);
    for (uint32_t i = 0; i < s->n_families && ash_import__ok(im); i++) {
        family *f = &s->families[i];
        const ash_dim began = s->began[f->state].dims[f->axis];
        int64_t most;
        const int64_t least = bound_least(im, began, &most);
        if (!f->bounded) f->least = f->low = least, f->most = ASH_MAX(FAR, most);
        if (f->as_begun) f->most = began;
        f->is_last = false;
        init[s->n + i] = ash_build__dim(im->graph, began);
    }
    for (size_t k = 0; k < s->n; k++)
        for (unsigned d = 0; d < s->began[k].rank && ash_import__ok(im); d++) {
            dim_of(s, k, d)->room = room_of(im, s, k, d);
            init[k] = ash_onnx__fill_up(im, init[k], d, dim_of(s, k, d)->room);
        }
    return ash_import__ok(im);
}

size_t ash_onnx__sizes_of_states(const ash_onnx_states *s) {
    return s->n_families;
}

bool ash_onnx__states_change(const ash_onnx_states *s) {
    bool any = false;
    for (size_t i = 0; i < s->n * ASH_MAX_RANK; i++) any |= s->dims[i].how != KEPT;
    return any;
}

bool ash_onnx__states_do_not_fit(const ash_onnx_states *s) {
    return s->again || s->failed;
}

bool ash_onnx__state_grows(const ash_onnx_states *s, size_t k) {
    for (unsigned d = 0; d < ASH_MAX_RANK; d++)
        if (dim_of(s, k, d)->how == GROWN) return true;
    return false;
}

/* A size of a family, from a number that is one, and at least `low`. */
static ash_dim settle(ash_import *im, const ash_onnx_states *s, family *f, ash_value number, int64_t low) {
    ash_graph *g = im->graph;
    const size_t k = s->numbers ? s->numbers[f->state] : f->state;
    const char *name;
    int64_t bound;
    if (low > f->least) {
        bound_of(im, s, f, &name, &bound);
        number = ash_onnx__within(im, number, low, INT64_MAX, name);
    }
    f->var = UINT32_MAX;
    if (low) number = ash_sub(g, number, ash_scalar(g, ASH_I64, (double)low));
    const ash_dim above = ash_onnx__settle(im, number, ash_graph_dim_sub(g, f->most, low), k, f->axis);
    ash_dims_is_settled(g->dims, above, &f->var);
    return ash_graph_dim_add(g, above, low);
}

/* The size of a dim after so many iterations. */
static ash_dim size_of(ash_import *im, const ash_onnx_states *s, size_t k, unsigned d, ash_dim iterations) {
    const state_dim *dim = dim_of(s, k, d);
    const ash_dim began = s->began[k].dims[d];
    if (dim->how == GROWN)
        return ash_graph_dim_add(im->graph, began, ash_graph_dim_mul(im->graph, dim->by, iterations));
    return dim->how == OWN ? s->families[dim->family].now : began;
}

/* As much of a value as there is of state k. */
static ash_value present(ash_import *im, const ash_onnx_states *s, size_t k, ash_value x,
                         ash_dim iterations) {
    for (unsigned d = 0; d < s->began[k].rank && ash_import__ok(im); d++)
        if (dim_of(s, k, d)->how != KEPT)
            x = ash_slice_axis(im->graph, x, d, 0, size_of(im, s, k, d, iterations));
    return x;
}

bool ash_onnx__give_states(ash_import *im, ash_onnx_states *s, const ash_value *arguments,
                           ash_value *given) {
    s->number = 0;
    for (size_t k = 0; k < s->n && !s->number; k++) {
        if (!ash_onnx__state_grows(s, k)) continue;
        s->number = ash_onnx__settle(im, arguments[0], s->most_trips - 1, k, 0);
        if (ash_import__ok(im) && !ash_map_put(&im->ends, arguments[0], (uint64_t)s->number))
            ash_import__fail(im, ASH_ERROR_OUT_OF_MEMORY, "out of memory");
        break;
    }
    for (uint32_t i = 0; i < s->n_families && ash_import__ok(im); i++)
        s->families[i].now = settle(im, s, &s->families[i], arguments[1 + s->n + i], s->families[i].low);
    for (size_t k = 0; k < s->n && ash_import__ok(im); k++)
        given[k] = present(im, s, k, arguments[1 + k], s->number);
    return ash_import__ok(im);
}

/* --- how a dim changes ---------------------------------------------------------------------------- */

static bool is_outside(void *user, uint32_t var) {
    return var < ((const ash_onnx_states *)user)->vars;
}

/* What an iteration adds to a dim, where it adds something, and all iterations may add as much. */
static bool grows(ash_import *im, ash_onnx_states *s, ash_dim before, ash_dim after, ash_dim *by) {
    int64_t most;
    return ash_dims_combine(im->graph->dims, ASH_DIM_SUB, after, before, by, NULL) == ASH_OK &&
           bound_least(im, *by, &most) >= 0 && ash_dims_each_settled(im->graph->dims, *by, is_outside, s);
}

/* The dim has a size of its own from now on: of the family that begins with as much. */
static void make_own(ash_onnx_states *s, size_t k, unsigned d) {
    state_dim *dim = dim_of(s, k, d);
    dim->how = OWN;
    for (uint32_t i = 0; i < s->n_families; i++) s->families[i].bounded = s->families[i].as_begun = false;
    for (dim->family = 0; dim->family < s->n_families; dim->family++) {
        const family *f = &s->families[dim->family];
        if (s->began[f->state].dims[f->axis] == s->began[k].dims[d]) return;
    }
    s->families[s->n_families++] = (family){.state = (uint32_t)k, .axis = d};
}

/* Compares state k, as an iteration hands it on, with the guess; corrects that where it is wrong. */
static bool fits(ash_import *im, ash_onnx_states *s, size_t k, ash_value next) {
    const ash_type after = ash_import__type(im, next), *began = &s->began[k];
    bool good = true;
    if (!ash_import__ok(im)) return true;
    if (after.dtype != began->dtype || after.rank != began->rank) {
        s->failed = true;
        return false;
    }
    for (unsigned d = 0; d < began->rank; d++) {
        state_dim *dim = dim_of(s, k, d);
        const ash_dim before = size_of(im, s, k, d, s->number);
        ash_dim by;
        if (dim->how == OWN) continue;
        if (dim->how == KEPT && after.dims[d] == before) continue;
        const bool even = grows(im, s, before, after.dims[d], &by);
        if (dim->how == GROWN && even && by == dim->by) continue;
        good = false;
        if (dim->how == KEPT && even)
            dim->how = GROWN, dim->by = by;
        else
            make_own(s, k, d);
    }
    return good;
}

/* Takes from the families what does not go on as their first ones do; whether that is nothing. */
static bool go_on_alike(ash_import *im, ash_onnx_states *s, const ash_value *next) {
    const uint32_t had = s->n_families;
    for (uint32_t i = 0; i < had; i++) {
        family *f = &s->families[i];
        f->next = ash_import__type(im, next[f->state]).dims[f->axis];
    }
    for (size_t k = 0; k < s->n; k++) {
        const ash_type after = ash_import__type(im, next[k]);
        for (unsigned d = 0; d < after.rank; d++) {
            state_dim *dim = dim_of(s, k, d);
            if (dim->how != OWN || s->families[dim->family].next == after.dims[d]) continue;
            const family *from = &s->families[dim->family];
            uint32_t to = had;
            while (to < s->n_families && (s->families[to].next != after.dims[d] ||
                                          s->began[s->families[to].state].dims[s->families[to].axis] !=
                                              s->began[from->state].dims[from->axis]))
                to++;
            if (to == s->n_families)
                s->families[s->n_families++] =
                    (family){.state = (uint32_t)k, .axis = d, .next = after.dims[d]};
            dim->family = to;
        }
    }
    for (uint32_t i = 0; had < s->n_families && i < s->n_families; i++)
        s->families[i].bounded = s->families[i].as_begun = false;
    return had == s->n_families;
}

/* --- bounds --------------------------------------------------------------------------------------- */

static range of_numbers(double a, double b) {
    return (range){a, b};
}

static range product(range a, range b) {
    const double all[] = {a.least * b.least, a.least * b.most, a.most * b.least, a.most * b.most};
    range out = {INFINITY, -INFINITY};
    for (size_t i = 0; i < ASH_COUNT(all); i++) {
        const double v = isnan(all[i]) ? 0 : all[i]; /* none of something without bounds */
        out = (range){fmin(out.least, v), fmax(out.most, v)};
    }
    return out;
}

static range range_of(const ash_import *im, const ash_onnx_states *s, ash_dim dim);

static range range_of_var(const ash_import *im, const ash_onnx_states *s, uint32_t var) {
    const ash_var *v = ash_dims_var(im->graph->dims, var);
    for (uint32_t i = 0; i < s->n_families; i++) {
        const family *f = &s->families[i];
        if (f->var == var)
            return of_numbers(f->found.least - (double)f->low, f->found.most - (double)f->low);
    }
    if (v->settled && var >= s->vars) return of_numbers(0, range_of(im, s, v->limit).most);
    return of_numbers((double)v->min, (double)v->max);
}

static range range_of_atom(const ash_import *im, const ash_onnx_states *s, ash_dim_atom atom) {
    if (atom.is_var) return range_of_var(im, s, atom.var);
    const range a = range_of(im, s, atom.a), b = range_of(im, s, atom.b);
    switch (atom.op) {
    case ASH_DIM_MIN: return of_numbers(fmin(a.least, b.least), fmin(a.most, b.most));
    case ASH_DIM_MAX: return of_numbers(fmax(a.least, b.least), fmax(a.most, b.most));
    default: {
        const range by = {1 / fmax(b.most, 1), 1 / fmax(b.least, 1)}, q = product(a, by);
        return of_numbers(floor(q.least), floor(q.most));
    }
    }
}

/* Of a dim, while families are in what is found of them. */
static range range_of(const ash_import *im, const ash_onnx_states *s, ash_dim dim) {
    const ash_dims *dims = im->graph->dims;
    range sum = {0, 0};
    for (size_t t = 0; t < ash_dims_term_count(dims, dim); t++) {
        size_t n;
        const double coef = (double)ash_dims_term(dims, dim, t, &n);
        range all = {coef, coef};
        for (size_t a = 0; a < n; a++)
            all = product(all, range_of_atom(im, s, ash_dims_atom(dims, dim, t, a)));
        sum.least += all.least, sum.most += all.most;
    }
    return sum;
}

/* Of a family after an iteration. */
static range next_of(const ash_import *im, const ash_onnx_states *s, const family *f) {
    const range next = range_of(im, s, f->next);
    return of_numbers(fmax(next.least, 0), next.most);
}

/* Widens families by what an iteration makes of them, and to whatever there is where `all`; whether any
 * became wider. */
static bool widen(const ash_import *im, ash_onnx_states *s, bool all) {
    bool wider = false;
    for (uint32_t i = 0; i < s->n_families; i++) {
        family *f = &s->families[i];
        const range next = next_of(im, s, f);
        wider |= next.least < f->found.least || next.most > f->found.most;
        if (next.least < f->found.least) f->found.least = all ? 0 : next.least;
        if (next.most > f->found.most) f->found.most = all ? INFINITY : next.most;
    }
    return wider;
}

/* Takes families that are too wide back to what an iteration makes of them. */
static void narrow(const ash_import *im, ash_onnx_states *s) {
    for (uint32_t n = 0; n <= s->n_families; n++)
        for (uint32_t i = 0; i < s->n_families; i++) {
            family *f = &s->families[i];
            int64_t first;
            bound_least(im, s->began[f->state].dims[f->axis], &first);
            if (f->found.most == INFINITY) f->found.most = fmax(next_of(im, s, f).most, (double)first);
        }
}

typedef struct mention {
    const ash_import *im;
    const ash_onnx_states *s;
} mention;

/* Neither the size of a family, nor one that is found in the body and bounded by such. */
static bool is_apart(void *user, uint32_t var) {
    const mention *m = user;
    for (uint32_t i = 0; i < m->s->n_families; i++)
        if (m->s->families[i].var == var) return false;
    const ash_dims *dims = m->im->graph->dims;
    return var < m->s->vars || ash_dims_each_settled(dims, ash_dims_var(dims, var)->limit, is_apart, user);
}

/* The bound of a family to which each iteration adds a bounded number, whatever there is. */
static bool bound_by_trips(const ash_import *im, const ash_onnx_states *s, family *f) {
    mention m = {im, s};
    int64_t first;
    ash_dim by;
    if (f->found.most < INFINITY || s->most_trips >= ASH_OPEN_MOST ||
        ash_dims_combine(im->graph->dims, ASH_DIM_SUB, f->next, f->now, &by, NULL) != ASH_OK ||
        !ash_dims_each_settled(im->graph->dims, by, is_apart, &m))
        return false;
    bound_least(im, s->began[f->state].dims[f->axis], &first);
    f->found.most = (double)first + fmax(range_of(im, s, by).most, 0) * (double)s->most_trips;
    return f->found.most < INFINITY;
}

/* Finds the bounds of all families, from what an iteration makes of them without any: what as many steps
 * lead to as there are iterations, where these are few; else the least that an iteration does not leave, as
 * far as some steps find them, what it makes of any number, or what the number of iterations says. */
static void find_bounds(ash_import *im, ash_onnx_states *s) {
    int64_t first, most;
    const bool few = s->most_trips <= FEW;
    bool wider = true, bounded = false;
    for (uint32_t i = 0; i < s->n_families; i++) {
        family *f = &s->families[i];
        const int64_t least = bound_least(im, s->began[f->state].dims[f->axis], &most);
        f->found = of_numbers((double)least, (double)most);
    }
    for (int64_t steps = 0; wider && !(few && steps == s->most_trips); steps++)
        wider = widen(im, s, !few && steps > s->n_families);
    for (uint32_t i = 0; i < s->n_families; i++)
        if (s->families[i].found.most > FAR) s->families[i].found.most = INFINITY;
    narrow(im, s);
    for (uint32_t i = 0; i < s->n_families; i++) bounded |= bound_by_trips(im, s, &s->families[i]);
    if (bounded) narrow(im, s);
    for (uint32_t i = 0; i < s->n_families && ash_import__ok(im); i++) {
        family *f = &s->families[i];
        const char *name;
        bound_least(im, s->began[f->state].dims[f->axis], &first);
        if (!bound_of(im, s, f, &name, &most) && f->found.most < ASH_OPEN_MOST)
            most = (int64_t)f->found.most;
        f->most = ASH_MAX(most, first);
        f->as_begun = f->most == first;
        f->least = f->low = (int64_t)f->found.least;
        f->bounded = true;
    }
}

/* --- what an iteration hands on ------------------------------------------------------------------- */

/* The only dim of a state that changes; ASH_MAX_RANK: several do. */
static unsigned only_dim(const ash_onnx_states *s, size_t k) {
    unsigned dim = ASH_MAX_RANK, n = 0;
    for (unsigned d = 0; d < s->began[k].rank; d++)
        if (dim_of(s, k, d)->how != KEPT && ++n) dim = d;
    return n == 1 ? dim : ASH_MAX_RANK;
}

/* x in the room of state k: with what lies behind it in `all`, where one dim changes, or zeros. */
static ash_value in_room(ash_import *im, const ash_onnx_states *s, size_t k, ash_value x, ash_value all) {
    ash_graph *g = im->graph;
    const ash_type type = ash_import__type(im, x);
    const unsigned only = only_dim(s, k);
    for (unsigned d = 0; d < type.rank && ash_import__ok(im); d++) {
        const ash_dim room = dim_of(s, k, d)->room;
        if (d == only && type.dims[d] != room) {
            const ash_dim rest = ash_graph_dim_sub(g, room, type.dims[d]);
            const ash_value parts[] = {x, ash_slice_axis(g, all, d, type.dims[d], rest)};
            return ash_concat(g, parts, 2, d);
        }
        x = ash_onnx__fill_up(im, x, d, room);
    }
    return x;
}

/* The size that a family goes on with, as a number that is carried; what there is room for of it becomes
 * f->next. Where it cannot be seen that this is all, each iteration checks it. */
static ash_value carried_size(ash_import *im, ash_onnx_states *s, family *f) {
    ash_graph *g = im->graph;
    const ash_dim least = ash_graph_dim_max(g, f->next, f->least),
                  most = ash_graph_dim_min(g, f->next, f->most);
    ash_value size = ash_build__dim(g, f->next);
    const char *name;
    int64_t bound;
    if (!ash_import__ok(im) || (least == f->next && most == f->next)) return size;
    if (f->as_begun) { /* its number will do */
        bound_least(im, f->most, &f->most);
        f->as_begun = false, s->again = true;
        return size;
    }
    bound_of(im, s, f, &name, &bound);
    f->next = most;
    return ash_onnx__within(im, size, f->least, f->most, name);
}

/* Says what the first of the states whose shape changes is, where no import can help that. */
static void refuse(ash_import *im, const ash_onnx_states *s, size_t k) {
    ash_import__fail(im, ASH_ERROR_UNSUPPORTED, "state %zu has another %s after %s",
                     s->numbers ? s->numbers[k] : k, s->failed ? "type" : "shape",
                     s->peeled
                         ? "the second iteration than after the first: a state must keep the type that "
                           "the first iteration gives it"
                         : "an iteration than before");
}

bool ash_onnx__take_states(ash_import *im, ash_onnx_states *s, const ash_value *arguments,
                           ash_value *next) {
    size_t bad = s->n;
    for (size_t k = 0; k < s->n; k++)
        if (!fits(im, s, k, next[k]) && bad == s->n) bad = k;
    if (!ash_import__ok(im)) return false;
    bool alike = bad == s->n && go_on_alike(im, s, next), bounded = true;
    for (uint32_t i = 0; i < s->n_families; i++) bounded &= s->families[i].bounded;
    if (alike && !bounded) find_bounds(im, s);
    for (uint32_t i = 0; alike && bounded && i < s->n_families && ash_import__ok(im); i++)
        next[s->n + i] = carried_size(im, s, &s->families[i]);
    s->again |= !alike || !bounded;
    if (s->again || s->failed) {
        refuse(im, s, bad == s->n ? s->families[0].state : bad);
        return false;
    }
    for (size_t k = 0; k < s->n && ash_import__ok(im); k++) {
        const unsigned rank = s->began[k].rank;
        for (unsigned d = 0; d < rank && ash_import__ok(im); d++)
            if (dim_of(s, k, d)->how == OWN)
                next[k] =
                    ash_slice_axis(im->graph, next[k], d, 0, s->families[dim_of(s, k, d)->family].next);
        next[k] = in_room(im, s, k, next[k], arguments[1 + k]);
    }
    return ash_import__ok(im);
}

/* A body may be none for sizes that can be 0, and still never meet them: the loop ends when nothing is
 * left. */
static bool assume_elements(ash_import *im, ash_onnx_states *s) {
    bool any = false;
    for (uint32_t i = 0; i < s->n_families && !s->assumes; i++) {
        family *f = &s->families[i];
        int64_t most;
        if (!f->bounded || f->low || bound_least(im, s->began[f->state].dims[f->axis], &most) < 1) continue;
        f->low = 1;
        any = true;
    }
    s->assumes |= any;
    return any;
}

bool ash_onnx__try_again(ash_import *im, ash_onnx_states *s) {
    if (ash_import__ok(im) || !ash_onnx__is_about_types(im->status) || s->failed || s->rounds++ == ROUNDS)
        return false;
    if (!s->again && !assume_elements(im, s)) return false;
    ash_onnx__forgive(im);
    return true;
}

ash_value ash_onnx__last_state(ash_import *im, ash_onnx_states *s, size_t k, const ash_value *lasts,
                               ash_dim iterations) {
    for (unsigned d = 0; d < s->began[k].rank && ash_import__ok(im); d++) {
        const state_dim *dim = dim_of(s, k, d);
        if (dim->how != OWN) continue;
        family *f = &s->families[dim->family];
        if (!f->is_last) f->now = settle(im, s, f, lasts[s->n + dim->family], f->least);
        f->is_last = true;
    }
    return present(im, s, k, lasts[k], iterations);
}
