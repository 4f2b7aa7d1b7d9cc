/* SPDX-License-Identifier: MIT */
/* The search: a portfolio of orders, squeaky wheel, then valley search with capacity descent, until the
 * peak is the bound or the budget is spent.
 *
 * Orders, for what is left by outward.c. First or best fit by distance from the load, size, area, span,
 * birth.
 *
 * Capacity descent by ejection and valley search (descend.c), from the best packing.
 *
 * Squeaky wheel (Joslin and Clements, 1999), for what the descent does not take. From the best order:
 * items that end above a target somewhat below the best packing move forward, and it packs again.
 *
 * The budget is counted in nodes of about two microseconds. A default budget shrinks once the gap is below
 * a thousandth. Shelves and wide nodes are charged by their work. */
#include "search.h"

#include "base/clock.h"
#include "shelf.h"

enum { STEPS_PER_NODE = 100, NEAR = 1000 };
static const uint64_t MOST_STEPS = UINT64_C(1)
                                   << 28; /* pairs of items up to which orders are tried at all */

/* --- the budget ----------------------------------------------------------------------------------- */

void ash_memory__budget_init(ash_memory__budget *budget, uint64_t nodes, uint64_t time_limit_ns) {
    *budget = (ash_memory__budget){.nodes = nodes};
    if (time_limit_ns) budget->deadline = (uint64_t)ash_clock__now() + time_limit_ns;
}

void ash_memory__spend(ash_memory__budget *budget, uint64_t nodes) {
    budget->spent += nodes;
    budget->nodes -= ASH_MIN(budget->nodes, nodes);
}

bool ash_memory__spent(ash_memory__budget *budget) {
    if (!budget->late &&
        !ash_progress__go(budget->progress, ASH_STAGE_MEMORY, budget->spent, budget->spent + budget->nodes))
        budget->late = budget->stopped = true;
    if (budget->deadline && !budget->late) budget->late = (uint64_t)ash_clock__now() >= budget->deadline;
    return !budget->nodes || budget->late;
}

/* --- orders --------------------------------------------------------------------------------------- */

typedef struct search {
    const ash_allocator *allocator;
    const ash_memory__pack *pack;
    ash_memory__budget *budget;
    uint64_t *best;       /* the lowest packing so far */
    uint64_t peak;        /* units: of `best` */
    uint64_t *offsets;    /* of the packing under construction */
    uint32_t *best_order; /* the order that gave `best`, and its rule */
    ash_memory__fit best_rule;
    ash_memory__key *keys, *room;
    ash_memory__shelf shelf;
    uint64_t withheld; /* nodes that the budget gets back in the end */
    bool has_shelf;
    bool ordered; /* best_order is that of `best` */
} search;

typedef enum sort_key { END, SIZE, SPAN, AREA, BIRTH, DEATH, DISTANCE, SIZE_CLASS, PEAK_FIRST } sort_key;

static uint64_t key_of(const search *s, uint32_t i, sort_key key) {
    const ash_memory__item *item = &s->pack->items[i];
    uint64_t span = item->end - item->begin;
    uint32_t peak = s->pack->clocks ? s->pack->items[s->pack->load_at].begin : s->pack->load_at;
    uint32_t distance = item->begin > peak  ? item->begin - peak
                        : item->end <= peak ? peak - item->end + 1
                                            : 0;
    switch (key) {
    case SIZE: return ~item->size;
    case SPAN: return ~span;
    case AREA: return item->size > UINT64_MAX / span ? 0 : ~(item->size * span);
    case BIRTH: return item->begin;
    case DEATH: return ~(uint64_t)item->end;
    case DISTANCE: return distance;
    case SIZE_CLASS: return (uint64_t)__builtin_clzll(item->size);
    case PEAK_FIRST: return distance > 0;
    default: return 0;
    }
}

/* Near the load the budget shrinks: what is left to gain is less than what alignment wastes. */
static void ease(search *s) {
    uint64_t load = s->pack->load;
    if (s->peak <= load || s->peak - load > load / NEAR || !s->budget->near_nodes) return;
    uint64_t taken = s->budget->nodes - ASH_MIN(s->budget->nodes, s->budget->near_nodes);
    s->budget->nodes -= taken;
    s->budget->near_nodes = 0;
    s->withheld += taken;
}

/* Places the items in the order of `keys` and keeps the packing if it is the lowest. */
static void pack_in_order(search *s, ash_memory__fit fit) {
    uint32_t n = s->pack->count;
    uint64_t steps = s->shelf.steps;
    ash_memory__shelf_clear(&s->shelf);
    for (uint32_t k = 0; k < n; k++) {
        uint32_t i = s->keys[k].value;
        if (s->offsets[i] == ASH_MEMORY__FREE)
            ash_memory__shelf_put(&s->shelf, i, ash_memory__shelf_find(&s->shelf, i, fit));
    }
    ash_memory__spend(s->budget, (s->shelf.steps - steps) / STEPS_PER_NODE + 1);
    uint64_t peak = ash_memory__peak(s->pack, s->offsets);
    if (peak >= s->peak) return;
    s->peak = peak;
    memcpy(s->best, s->offsets, n * sizeof *s->best);
    for (uint32_t k = 0; k < n; k++) s->best_order[k] = s->keys[k].value;
    s->best_rule = fit;
    s->ordered = true;
    ease(s);
}

static bool done(search *s) {
    return s->peak <= s->budget->enough || ash_memory__spent(s->budget);
}

static void try_orders(search *s) {
    static const struct {
        sort_key keys[3]; /* the most significant first */
        ash_memory__fit fit;
    } rules[] = {
        {{DISTANCE, SIZE, END}, ASH_MEMORY__FIRST},       {{DISTANCE, SPAN, END}, ASH_MEMORY__BEST},
        {{BIRTH, SPAN, END}, ASH_MEMORY__BEST},           {{SIZE, SPAN, END}, ASH_MEMORY__BEST},
        {{SIZE_CLASS, DISTANCE, END}, ASH_MEMORY__FIRST}, {{AREA, END, END}, ASH_MEMORY__FIRST},
        {{PEAK_FIRST, SPAN, SIZE}, ASH_MEMORY__FIRST},    {{SPAN, SIZE, END}, ASH_MEMORY__BEST},
        {{DEATH, SPAN, END}, ASH_MEMORY__BEST},           {{PEAK_FIRST, SIZE, END}, ASH_MEMORY__BEST},
    };
    uint32_t n = s->pack->count;
    for (size_t r = 0; r < ASH_COUNT(rules) && !done(s); r++) {
        for (uint32_t i = 0; i < n; i++) s->keys[i].value = i;
        for (int k = 2; k >= 0; k--) {
            if (rules[r].keys[k] == END) continue;
            for (uint32_t i = 0; i < n; i++) s->keys[i].key = key_of(s, s->keys[i].value, rules[r].keys[k]);
            ash_memory__sort(s->keys, s->room, n);
        }
        pack_in_order(s, rules[r].fit);
    }
}

/* Moves what ends above a target a little below the best packing forward in the order, and packs again;
 * from the best order now and then. Ends when many turns in a row have lowered nothing, or with a share of
 * the budget. */
static void squeak(search *s) {
    enum {
        DEPTH = 64,
        PATIENCE = 40,
        STALE = 400,
        SHARE = 4
    }; /* of the peak; turns; turns; of the budget */
    uint32_t n = s->pack->count, stale = 0;
    uint64_t random = 1, peak = s->peak;
    uint64_t stop = s->budget->nodes - s->budget->nodes / SHARE, withheld = s->withheld;
    for (uint32_t k = 0; k < n; k++) s->keys[k].value = s->best_order[k];
    while (stale < STALE && s->budget->nodes > stop && !done(s)) {
        const uint64_t *offsets = stale % PATIENCE ? s->offsets : s->best;
        uint64_t target = ASH_MAX(s->pack->load, s->peak - s->peak / DEPTH - 1);
        for (uint32_t k = 0; k < n; k++) {
            uint32_t i = s->keys[k].value;
            s->keys[k].key = ((uint64_t)k + 1) << 20;
            if (offsets[i] + s->pack->items[i].size <= target) continue;
            random = random * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
            s->keys[k].key -= (random >> 32) % (((uint64_t)k + 1) << 19);
        }
        ash_memory__sort(s->keys, s->room, n);
        pack_in_order(s, s->best_rule);
        if (s->withheld != withheld) stop = 0;
        stale = s->peak < peak ? 0 : stale + 1;
        peak = s->peak;
        for (uint32_t k = 0; k < n && stale % PATIENCE == 0; k++) s->keys[k].value = s->best_order[k];
    }
}

/* --- all of it ------------------------------------------------------------------------------------ */

/* Pairs of items that one packing looks at, at most. */
static uint64_t count_steps(const ash_memory__pack *pack) {
    if (pack->conflicts) return pack->row[pack->count];
    uint64_t steps = 0;
    for (uint32_t i = 0, open = 0; i < pack->count; i++) {
        while (open < i && pack->items[open].end <= pack->items[i].begin) open++;
        steps += i - open;
    }
    return steps;
}

ash_status ash_memory__search(ash_memory__lowering *l, ash_diag *diag) {
    const ash_allocator *a = l->allocator;
    const ash_memory__pack *pack = l->pack;
    ash_memory__budget *budget = l->budget;
    uint32_t n = pack->count;
    uint64_t near_nodes = budget->near_nodes;
    search s = {.allocator = a, .pack = pack, .budget = budget, .best = l->best, .peak = l->peak};
    ash_memory__descent *descent = NULL;
    ash_status status = ASH_OK;
    l->proven = pack->load;
    s.offsets = ash_mem_alloc(a, n, sizeof *s.offsets);
    s.best_order = ash_mem_calloc(a, n, sizeof *s.best_order);
    s.keys = ash_mem_alloc(a, n, sizeof *s.keys);
    s.room = ash_mem_alloc(a, n, sizeof *s.room);
    ASH_FAIL_IF_DONE(!s.offsets || !s.best_order || !s.keys || !s.room, diag, ASH_ERROR_OUT_OF_MEMORY,
                     "out of memory");
    if (count_steps(pack) > MOST_STEPS) goto done;
    s.has_shelf = ash_memory__shelf_init(&s.shelf, a, pack, s.offsets);
    ASH_FAIL_IF_DONE(!s.has_shelf, diag, ASH_ERROR_OUT_OF_MEMORY, "out of memory");
    try_orders(&s);
    bool components = !pack->fixed && !pack->clocks;
    if (!done(&s) && components) {
        ASH_TRY_DONE(ash_memory__descent_create(a, pack, budget, l->best, &descent, diag));
        ASH_TRY_DONE(ash_memory__descend(descent, &l->proven, diag));
        s.peak = ash_memory__peak(pack, l->best);
    }
    if (s.peak > l->proven && !done(&s) && s.ordered) {
        squeak(&s);
        if (components) ASH_TRY_DONE(ash_memory__descend(descent, &l->proven, diag));
    }
    l->peak = ash_memory__peak(pack, l->best);
done:
    ash_memory__descent_destroy(descent);
    budget->nodes += s.withheld;
    if (s.withheld) budget->near_nodes = near_nodes;
    if (s.has_shelf) ash_memory__shelf_free(&s.shelf);
    ash_mem_free(a, s.room, n, sizeof *s.room);
    ash_mem_free(a, s.keys, n, sizeof *s.keys);
    ash_mem_free(a, s.best_order, n, sizeof *s.best_order);
    ash_mem_free(a, s.offsets, n, sizeof *s.offsets);
    return status;
}
