/* SPDX-License-Identifier: MIT */
/* steps, a capacity ─→ a schedule of them, some of them twice
 *
 * Memory is taken for a cache of results. The steps are gone through in their order; where the next one's
 * result does not fit, results that nothing touches just then are forgotten, and where a forgotten result
 * is read, it is computed again just before, from operands that are there, or are computed again first, and
 * so on. So whole segments are computed again, from what was kept at their beginning:
 *
 *     forward    a  b  c  d  e  f  g          b, c, e, f are forgotten on the way
 *     backward   g' e f f' e' d' b c c' b' a'     (e f from d, b c from a)
 *
 * What is forgotten first is what gives most for its price:
 *
 *     bytes * (time until it is read next, or not)  /  (its own time + that of forgotten neighbours)
 *
 * A neighbour is an operand or a reader that is forgotten as well: they would be computed in one go, and
 * without them in the price whole networks would be forgotten, each result from the one before. The sums
 * over connected neighbours are kept in a union-find forest. This is dynamic tensor rematerialisation
 * (Kirisame et al., 2021), but that the future is known: what nobody reads any more goes at no price, what
 * forgotten results are computed from is kept as long as there is room, and of several prices the one whose
 * schedule is the fastest is taken. No schedule is refused for its time before it takes MOST_TIMES that of
 * all steps once.
 *
 * A result can be computed again when its steps write nothing else, when nothing reads it before the last
 * of them, and as long as nobody has overwritten an operand since: weights that are updated in place.
 * Other results are never forgotten. Copies are the same kernels on the same operands: the same bits.
 *
 * It takes (steps + copies) * log: candidates are in a heap by a price that is looked at anew when it comes
 * up. Looked at: a linear program over all schedules (Checkmate) and constraint programming (Moccasin) find
 * better ones of some hundred steps, in minutes.
 *
 * Limits: one stream; a step that writes two results is not repeated, nor a loop; bytes are counted, not
 * packed. */
#include "again_inside.h"

enum {
    MOST_TIMES = 4,  /* the time of all steps once that computing again may take; and their number */
    NEIGHBOURS = 64, /* that are looked at: more are a scalar's */
    HALVINGS = 10    /* of the interval in which the least room is */
};

/* --- a run ------------------------------------------------------------------------------------ */

/* What a run knows of a root. */
typedef struct again_entry {
    bool here;       /* its bytes are in memory */
    bool wanted;     /* not here, and to be computed again: it has claims on its operands */
    uint32_t until;  /* of one that is not here: it can come back before this main step; 0: never */
    uint32_t cursor; /* in its uses: the first that is not over */
    uint32_t locks;  /* of the step at hand, and of results that are about to be computed from it */
    uint32_t claims; /* of wanted results that are computed from it */
    uint32_t need;   /* of a wanted one: the main step that reads it next */
    uint32_t family; /* of a wanted one: its number in the forest */
    double offered;  /* the price that it has in the heap; 0: it is not there */
} again_entry;

/* Wanted results that are connected; a tree of them has its sum at its root. */
typedef struct again_family {
    uint32_t parent;
    double cost; /* nanoseconds */
} again_family;

typedef struct again_candidate {
    double price; /* what forgetting it gives for what it costs; a higher one first */
    uint32_t root;
} again_candidate;

typedef struct again_run {
    const ash_again *a;
    bool far;  /* the time until the next reader counts */
    bool near; /* forgotten neighbours count */
    uint64_t room, live;
    uint32_t now; /* the main step */
    again_entry *entries;
    ASH_VEC(again_family) families;
    ASH_VEC(again_candidate) heap;
    ASH_VEC(again_candidate) aside;
    ASH_VEC(uint32_t) stack, chain;
    ash_again_schedule out;
    bool stuck;  /* there is no end to it */
    bool failed; /* out of memory */
} again_run;

#define PUSH(w, list, ...)                                                                                 \
    do {                                                                                                   \
        if (!ash_vec_push((w)->a->allocator, list, __VA_ARGS__)) (w)->failed = true;                       \
    } while (0)

static uint32_t find_family(again_run *w, uint32_t f) {
    while (w->families.at[f].parent != f) {
        w->families.at[f].parent = w->families.at[w->families.at[f].parent].parent;
        f = w->families.at[f].parent;
    }
    return f;
}

static uint32_t next_use(const again_run *w, uint32_t r) {
    uint32_t at = w->entries[r].cursor;
    return at < w->a->uses.first[r + 1] ? w->a->uses.at[at] : NIL;
}

static uint32_t limit(const ash_again_rows *list, uint32_t r) {
    return ASH_MIN(list->first[r + 1], list->first[r] + NEIGHBOURS);
}

/* The main step for which a root is read next so that something is computed again, but for `made`. */
static uint32_t find_claim(const again_run *w, uint32_t r, uint32_t made) {
    const ash_again_rows *readers = &w->a->readers;
    uint32_t need = NIL;
    for (uint32_t k = readers->first[r]; k < limit(readers, r); k++) {
        const again_entry *e = &w->entries[readers->at[k]];
        if (e->wanted && readers->at[k] != made) need = ASH_MIN(need, e->need);
    }
    return need;
}

/* The main step at which a root is read next, by itself or for what is computed from it. */
static uint32_t find_need(const again_run *w, uint32_t r) {
    uint32_t use = next_use(w, r), claim = find_claim(w, r, NIL);
    return ASH_MIN(use, claim);
}

/* Whether a root that is here could come back before main step `need`. */
static bool comes_back(const again_run *w, uint32_t r, uint32_t need) {
    const ash_again_result *all = w->a->results;
    if (!all[r].repeats || all[r].until < need || w->now <= all[r].last) return false;
    for (uint32_t k = w->a->operands.first[r]; k < w->a->operands.first[r + 1]; k++) {
        uint32_t q = w->a->operands.at[k];
        if (!w->entries[q].here && w->entries[q].until < need) return false;
    }
    return true;
}

static double family_cost(again_run *w, const ash_again_rows *list, uint32_t r) {
    double sum = 0;
    for (uint32_t k = list->first[r]; k < limit(list, r); k++) {
        const again_entry *e = &w->entries[list->at[k]];
        if (e->wanted) sum += w->families.at[find_family(w, e->family)].cost;
    }
    return sum;
}

/* What forgetting a root gives; 0: it cannot be forgotten now. */
static double find_price(again_run *w, uint32_t r) {
    const ash_again *a = w->a;
    uint32_t need = find_need(w, r);
    if (need == NIL || !comes_back(w, r, need)) return 0;
    double cost = a->results[r].cost + 1, away = 1;
    if (w->near) cost += family_cost(w, &a->operands, r) + family_cost(w, &a->readers, r);
    if (w->far) away += ASH_MAX(a->begins[need] - a->begins[ASH_MIN(w->now, need)], 0);
    return (double)a->results[r].bytes * away / cost;
}

static bool is_before(const again_candidate *x, const again_candidate *y) {
    return x->price != y->price ? x->price > y->price : x->root < y->root;
}

static void swap(again_candidate *x, again_candidate *y) {
    again_candidate c = *x;
    *x = *y;
    *y = c;
}

static void push_candidate(again_run *w, again_candidate c) {
    PUSH(w, &w->heap, c);
    if (w->failed) return;
    w->entries[c.root].offered = c.price;
    again_candidate *h = w->heap.at;
    for (size_t i = w->heap.len - 1; i && is_before(&h[i], &h[(i - 1) / 2]); i = (i - 1) / 2)
        swap(&h[i], &h[(i - 1) / 2]);
}

static again_candidate pop_candidate(again_run *w) {
    again_candidate *h = w->heap.at, top = h[0];
    h[0] = h[--w->heap.len];
    for (size_t i = 0, k; (k = 2 * i + 1) < w->heap.len; i = k) {
        if (k + 1 < w->heap.len && is_before(&h[k + 1], &h[k])) k++;
        if (!is_before(&h[k], &h[i])) break;
        swap(&h[k], &h[i]);
    }
    return top;
}

/* A root that may be forgotten from now on, at a price that may have risen. */
static void offer(again_run *w, uint32_t r) {
    if (!w->entries[r].here || w->a->results[r].kept || !w->a->results[r].repeats || w->failed) return;
    double price = find_price(w, r);
    if (price > w->entries[r].offered) push_candidate(w, (again_candidate){price, r});
}

/* The root that is best forgotten, or NIL. Prices fall as time goes on: one that has is put back. */
static uint32_t choose(again_run *w) {
    uint32_t found = NIL;
    w->aside.len = 0;
    while (w->heap.len && found == NIL && !w->failed) {
        again_candidate c = pop_candidate(w);
        again_entry *e = &w->entries[c.root];
        if (c.price < e->offered) continue; /* it is there with a higher one as well */
        e->offered = 0;
        if (!e->here) continue;
        if (e->locks) {
            PUSH(w, &w->aside, c);
            continue;
        }
        double price = find_price(w, c.root);
        if (price <= 0) continue;
        if (price < 0.9 * c.price)
            push_candidate(w, (again_candidate){price, c.root});
        else
            found = c.root;
    }
    for (size_t i = 0; i < w->aside.len; i++) push_candidate(w, w->aside.at[i]);
    return found;
}

/* --- coming and going ------------------------------------------------------------------------- */

/* A root joins the forest, with its forgotten neighbours. */
static void join_family(again_run *w, uint32_t r) {
    const ash_again *a = w->a;
    uint32_t own = (uint32_t)w->families.len;
    PUSH(w, &w->families, (again_family){own, a->results[r].cost});
    if (w->failed) return;
    w->entries[r].family = own;
    const ash_again_rows *lists[] = {&a->operands, &a->readers};
    for (size_t i = 0; i < ASH_COUNT(lists); i++)
        for (uint32_t k = lists[i]->first[r]; k < limit(lists[i], r); k++) {
            const again_entry *e = &w->entries[lists[i]->at[k]];
            if (!e->wanted || lists[i]->at[k] == r) continue;
            uint32_t other = find_family(w, e->family), top = find_family(w, own);
            if (other == top) continue;
            w->families.at[other].parent = top;
            w->families.at[top].cost += w->families.at[other].cost;
        }
}

/* A root that is not here will be computed again, and what it is computed from is claimed. */
static void want(again_run *w, uint32_t root, uint32_t need) {
    w->chain.len = 0;
    w->entries[root].wanted = true;
    w->entries[root].need = need;
    PUSH(w, &w->chain, root);
    while (w->chain.len && !w->failed) {
        uint32_t r = w->chain.at[--w->chain.len];
        join_family(w, r);
        for (uint32_t k = w->a->operands.first[r]; k < w->a->operands.first[r + 1]; k++) {
            again_entry *q = &w->entries[w->a->operands.at[k]];
            q->claims++;
            if (q->here) continue;
            if (!q->wanted) {
                q->need = need;
                q->wanted = true;
                PUSH(w, &w->chain, w->a->operands.at[k]);
            }
            q->need = ASH_MIN(q->need, need);
        }
    }
}

/* Until when a root that is not here could come back, by itself and by what it is computed from. */
static uint32_t find_until_now(const again_run *w, uint32_t r) {
    const ash_again_result *own = &w->a->results[r];
    uint32_t until = own->repeats ? own->until : 0;
    for (uint32_t k = w->a->operands.first[r]; k < w->a->operands.first[r + 1]; k++) {
        const again_entry *q = &w->entries[w->a->operands.at[k]];
        if (!q->here) until = ASH_MIN(until, q->until);
    }
    return until;
}

/* A root's bytes are gone. What was computed from it and is gone depends on it now. */
static void leave(again_run *w, uint32_t root) {
    const ash_again *a = w->a;
    w->entries[root].here = false;
    w->entries[root].until = find_until_now(w, root);
    w->live -= a->results[root].bytes;
    w->chain.len = 0;
    PUSH(w, &w->chain, root);
    while (w->chain.len && !w->failed) {
        uint32_t r = w->chain.at[--w->chain.len];
        for (uint32_t k = a->readers.first[r]; k < a->readers.first[r + 1]; k++) {
            again_entry *e = &w->entries[a->readers.at[k]];
            if (e->here || e->until <= w->entries[r].until) continue;
            e->until = w->entries[r].until;
            PUSH(w, &w->chain, a->readers.at[k]);
        }
    }
}

static void forget(again_run *w, uint32_t r, uint32_t need) {
    leave(w, r);
    want(w, r, need);
}

/* After a root was used, or lost a claim. */
static void settle(again_run *w, uint32_t r) {
    again_entry *e = &w->entries[r];
    if (!e->here || e->locks || w->a->results[r].kept || w->failed) return;
    if (!e->claims && next_use(w, r) == NIL)
        leave(w, r); /* nobody will read it, as far as is known: what is forgotten later may want it */
    else
        offer(w, r);
}

static void unlock(again_run *w, uint32_t r) {
    w->entries[r].locks--;
    settle(w, r);
}

/* A root's bytes are there. */
static void arrive(again_run *w, uint32_t r) {
    const ash_again *a = w->a;
    again_entry *e = &w->entries[r];
    bool again = e->wanted;
    e->here = true;
    e->wanted = false;
    w->live += a->results[r].bytes;
    if (!again) return;
    for (uint32_t k = a->readers.first[r]; k < a->readers.first[r + 1]; k++)
        if (!w->entries[a->readers.at[k]].here)
            w->entries[a->readers.at[k]].until = find_until_now(w, a->readers.at[k]);
    w->families.at[find_family(w, e->family)].cost -= a->results[r].cost;
    for (uint32_t k = a->operands.first[r]; k < a->operands.first[r + 1]; k++) {
        w->entries[a->operands.at[k]].claims--;
        settle(w, a->operands.at[k]);
    }
    for (uint32_t k = a->readers.first[r]; k < limit(&a->readers, r); k++)
        if (!w->entries[a->readers.at[k]].locks) offer(w, a->readers.at[k]);
}

/* Forgets until so many bytes more are within the room, if that can be. */
static void make_room(again_run *w, uint64_t more) {
    while (w->live + more > w->room && !w->failed) {
        uint32_t r = choose(w);
        if (r == NIL) break;
        forget(w, r, find_need(w, r));
    }
    w->out.peak = ASH_MAX(w->out.peak, w->live + more);
}

/* The operand whose bytes a step's result takes over, as in layout.c: nobody reads it afterwards. Where it
 * is claimed, and `forced`, it can be forgotten. */
static uint32_t find_dying(const again_run *w, uint32_t s, uint32_t own, bool again, bool forced) {
    const ash_program *p = w->a->program;
    const ash_step *step = ash_again__step_at(w->a, s);
    if (step->inplace == ASH_NO_BUFFER) return NIL;
    const ash_buffer *b = &p->buffers.at[step->inplace];
    uint32_t r = ash_again__root_of(p, step->inplace), uses = again ? 0 : 1, claims = again ? 1 : 0;
    const ash_again_result *operand = &w->a->results[r];
    const again_entry *e = &w->entries[r];
    if (!operand->bytes || operand->kept || r == own || operand->bytes != w->a->results[own].bytes ||
        b->offset || e->locks != 1 || e->cursor + uses != w->a->uses.first[r + 1])
        return NIL;
    if (e->claims <= claims) return r;
    return forced && comes_back(w, r, find_claim(w, r, own)) ? r : NIL;
}

/* --- steps ------------------------------------------------------------------------------------ */

/* Runs a step that begins `own`, or NIL, of which nothing is there. */
static void begin_result(again_run *w, uint32_t s, uint32_t own, uint64_t more, bool again) {
    uint32_t dying = own == NIL ? NIL : find_dying(w, s, own, again, false);
    if (own != NIL && dying == NIL && w->live + more > w->room) dying = find_dying(w, s, own, again, true);
    uint64_t less = dying == NIL ? 0 : w->a->results[dying].bytes;
    make_room(w, more - ASH_MIN(less, more));
    if (dying == NIL || w->entries[dying].claims <= (again ? 1u : 0u)) return;
    /* It is claimed, perhaps by what was just forgotten, and its bytes are the result's. */
    uint32_t need = find_claim(w, dying, own);
    if (comes_back(w, dying, need))
        forget(w, dying, need);
    else
        make_room(w, more); /* it stays */
}

static void lock_operands(again_run *w, uint32_t r, bool on) {
    for (uint32_t k = w->a->operands.first[r]; k < w->a->operands.first[r + 1]; k++) {
        uint32_t q = w->a->operands.at[k];
        if (on)
            w->entries[q].locks++;
        else
            unlock(w, q);
    }
}

/* Runs the steps of a forgotten result, whose operands are here and locked. */
static void make_again(again_run *w, uint32_t r) {
    const ash_again *a = w->a;
    uint64_t scratch = 0;
    uint32_t first = a->makers.first[r], end = a->makers.first[r + 1];
    for (uint32_t m = first; m < end; m++) scratch = ASH_MAX(scratch, a->scratch[a->makers.at[m]]);
    bool one = end - first == 1;
    begin_result(w, a->makers.at[first], one ? r : NIL, a->results[r].bytes + scratch, true);
    for (uint32_t m = first; m < end; m++) PUSH(w, &w->out.steps, 2 * a->makers.at[m] + 1);
    w->out.spent += a->results[r].cost;
    arrive(w, r);
    lock_operands(w, r, false);
}

/* Brings a root back that a step is about to read, and first what it is computed from. */
static void bring_back(again_run *w, uint32_t root) {
    const ash_again *a = w->a;
    w->stack.len = 0;
    if (w->entries[root].here || w->stuck) return;
    PUSH(w, &w->stack, root);
    if (!w->failed) lock_operands(w, root, true);
    while (w->stack.len && !w->failed && !w->stuck) {
        uint32_t r = w->stack.at[w->stack.len - 1], missing = NIL;
        w->stuck = !w->entries[r].wanted || a->results[r].until < w->now ||
                   w->out.spent > MOST_TIMES * a->all ||
                   w->out.steps.len > (size_t)(1 + MOST_TIMES) * a->steps;
        for (uint32_t k = a->operands.first[r]; k < a->operands.first[r + 1] && missing == NIL; k++)
            if (!w->entries[a->operands.at[k]].here) missing = a->operands.at[k];
        if (w->stuck) break;
        if (missing == NIL) {
            w->stack.len--;
            make_again(w, r);
        } else {
            PUSH(w, &w->stack, missing);
            if (!w->failed) lock_operands(w, missing, true);
        }
    }
}

static void run_step(again_run *w, uint32_t s) {
    const ash_again *a = w->a;
    uint32_t begin = a->touch_at[s], end = a->touch_at[s + 1], own = NIL;
    uint64_t more = a->scratch[s];
    w->now = s;
    for (uint32_t t = begin; t < end; t++) w->entries[a->touches.at[t].root].locks++;
    for (uint32_t t = begin; t < end; t++) {
        uint32_t r = a->touches.at[t].root;
        if (w->entries[r].here) continue;
        if (a->results[r].first == s || a->results[r].first == NIL) continue;
        bring_back(w, r);
    }
    for (uint32_t t = begin; t < end; t++) {
        uint32_t r = a->touches.at[t].root;
        if (w->entries[r].here) continue;
        more += a->results[r].bytes;
        own = own == NIL && a->touches.at[t].writes ? r : own;
    }
    begin_result(w, s, own, more, false);
    PUSH(w, &w->out.steps, 2 * s);
    w->now = s + 1;
    for (uint32_t t = begin; t < end; t++) {
        uint32_t r = a->touches.at[t].root;
        /* One that was forgotten at this step has given its bytes to the result. */
        if (!w->entries[r].here && !w->entries[r].wanted) arrive(w, r);
        w->entries[r].cursor++;
    }
    for (uint32_t t = begin; t < end; t++) unlock(w, a->touches.at[t].root);
}

static ash_status run_all(const ash_again *a, uint64_t room, bool far, bool near, again_run *w,
                          ash_diag *diag) {
    *w = (again_run){.a = a, .far = far, .near = near, .room = room, .live = a->base};
    w->entries = ash_mem_calloc(a->allocator, a->n, sizeof *w->entries);
    w->failed = !w->entries;
    for (uint32_t r = 0; r < a->n && !w->failed; r++) {
        w->entries[r].cursor = a->uses.first[r];
        w->entries[r].until = a->results[r].until;
    }
    for (uint32_t s = 0; s < a->steps && !w->failed && !w->stuck; s++) run_step(w, s);
    ash_mem_free(a->allocator, w->entries, a->n, sizeof *w->entries);
    ash_vec_free(a->allocator, &w->families);
    ash_vec_free(a->allocator, &w->heap);
    ash_vec_free(a->allocator, &w->aside);
    ash_vec_free(a->allocator, &w->stack);
    ash_vec_free(a->allocator, &w->chain);
    if (!w->failed) return ASH_OK;
    ash_vec_free(a->allocator, &w->out.steps);
    return ASH_NO_MEMORY(diag);
}

static void take(ash_again *a, again_run *w) {
    ash_vec_free(a->allocator, &a->best.steps);
    a->best = w->out;
    w->out = (ash_again_schedule){0};
}

/* --- the schedules ---------------------------------------------------------------------------- */

static const bool prices[][2] = {{true, true}, {false, true}, {true, false}, {false, false}};

ash_status ash_again__within(ash_again *a, uint64_t room, bool *found, ash_diag *diag) {
    *found = false;
    for (size_t i = 0; i < ASH_COUNT(prices) && room >= a->lower; i++) {
        again_run w;
        ASH_TRY(run_all(a, room, prices[i][0], prices[i][1], &w, diag));
        bool fits = !w.stuck && w.out.peak <= room;
        if (fits && (!*found || w.out.spent < a->best.spent)) {
            take(a, &w);
            *found = true;
        }
        ash_vec_free(a->allocator, &w.out.steps);
    }
    return ASH_OK;
}

ash_status ash_again__least(ash_again *a, const ash_progress *progress, bool *found, ash_diag *diag) {
    uint64_t low = a->lower, high = a->given;
    *found = false;
    for (unsigned halving = 0; halving < HALVINGS && low < high; halving++) {
        uint64_t room = low + (high - low) / 2, reached = UINT64_MAX;
        ASH_TRY(ash_progress__report(progress, ASH_STAGE_ORDER, halving, HALVINGS, diag));
        for (size_t i = 0; i < ASH_COUNT(prices) && reached > room; i++) {
            again_run w;
            ASH_TRY(run_all(a, room, prices[i][0], prices[i][1], &w, diag));
            uint64_t peak = w.stuck ? UINT64_MAX : w.out.peak;
            reached = ASH_MIN(reached, peak);
            if (peak < high) {
                high = peak;
                take(a, &w);
                *found = true;
            }
            ash_vec_free(a->allocator, &w.out.steps);
        }
        if (reached > room) low = room;
    }
    return ASH_OK;
}

ash_status ash_again__find_bounds(ash_again *a, ash_diag *diag) {
    again_run w;
    ASH_TRY(run_all(a, UINT64_MAX, false, false, &w, diag));
    a->given = w.out.peak;
    ash_vec_free(a->allocator, &w.out.steps);
    a->lower = a->base;
    for (uint32_t s = 0; s < a->steps; s++) {
        uint64_t live = a->base + a->scratch[s], largest = 0;
        for (uint32_t t = a->touch_at[s]; t < a->touch_at[s + 1]; t++) {
            live += a->results[a->touches.at[t].root].bytes;
            largest = ASH_MAX(largest, a->results[a->touches.at[t].root].bytes);
        }
        if (ash_again__step_at(a, s)->inplace != ASH_NO_BUFFER) live -= largest;
        a->lower = ASH_MAX(a->lower, live);
    }
    return ASH_OK;
}
