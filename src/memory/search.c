/* SPDX-License-Identifier: MIT */
/* The search: a portfolio of orders, squeaky wheel, then valley search with capacity descent, until the
 * peak is the bound or the budget is spent.
 *
 * Orders, for what is left by outward.c. First or best fit by distance from the load, size, area, span,
 * birth. Small problems are then glanced at by the valley search, which settles most of them.
 *
 * Squeaky wheel (Joslin and Clements, 1999). From the best order: items that end above the bound move
 * forward, and it packs again.
 *
 * Valley search, per component of time (columns that no item joins are packed apart): is there a packing
 * under the bound? If that cannot be told with a share of the budget, under some capacity between the bound
 * and the best packing so far? Found, the best moves down; refuted, the bound moves up; when they meet, the
 * packing is proven optimal.
 *
 * The budget is counted in nodes of about two microseconds. A default budget shrinks once the gap is below
 * a thousandth. Shelves and wide nodes are charged by their work. */
#include "search.h"

#include <time.h>

#include "shelf.h"

enum { STEPS_PER_NODE = 100, SQUEAKS = 400, NEAR = 1000 };
static const uint64_t MOST_PAIRS = UINT64_C(1) << 25; /* of a component that the valley search takes */
static const uint64_t MOST_STEPS = UINT64_C(1)
                                   << 28; /* pairs of items up to which orders are tried at all */

/* --- the budget ----------------------------------------------------------------------------------- */

static uint64_t now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * UINT64_C(1000000000) + (uint64_t)t.tv_nsec;
}

void ash_memory__budget_init(ash_memory__budget *budget, uint64_t nodes, uint64_t time_limit_ns) {
    *budget = (ash_memory__budget){.nodes = nodes};
    if (time_limit_ns) budget->deadline = now_ns() + time_limit_ns;
}

void ash_memory__spend(ash_memory__budget *budget, uint64_t nodes) {
    budget->spent += nodes;
    budget->nodes -= ASH_MIN(budget->nodes, nodes);
}

bool ash_memory__spent(ash_memory__budget *budget) {
    if (!budget->late &&
        !ash_progress__go(budget->progress, ASH_STAGE_MEMORY, budget->spent, budget->spent + budget->nodes))
        budget->late = budget->stopped = true;
    if (budget->deadline && !budget->late) budget->late = now_ns() >= budget->deadline;
    return !budget->nodes || budget->late;
}

/* --- orders --------------------------------------------------------------------------------------- */

typedef struct search {
    const ash_allocator *allocator;
    const ash_memory__pack *pack;
    ash_memory__budget *budget;
    uint64_t *best;       /* the lowest packing so far */
    uint64_t peak, goal;  /* units: of `best`; where to stop */
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
    uint32_t peak = s->pack->conflicts ? s->pack->items[s->pack->load_at].begin : s->pack->load_at;
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

/* Near the goal the budget shrinks: what is left to gain is less than what alignment wastes. */
static void ease(search *s) {
    uint64_t gap = s->peak - s->goal;
    if (s->peak <= s->goal || gap > s->goal / NEAR || !s->budget->near_nodes) return;
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
    for (size_t r = 0; r < ASH_COUNT(rules) && s->peak > s->goal && !ash_memory__spent(s->budget); r++) {
        for (uint32_t i = 0; i < n; i++) s->keys[i].value = i;
        for (int k = 2; k >= 0; k--) {
            if (rules[r].keys[k] == END) continue;
            for (uint32_t i = 0; i < n; i++) s->keys[i].key = key_of(s, s->keys[i].value, rules[r].keys[k]);
            ash_memory__sort(s->keys, s->room, n);
        }
        pack_in_order(s, rules[r].fit);
    }
}

/* Moves what ends above the goal forward in the order, and packs again; from the best order now and
 * then. */
static void squeak(search *s) {
    enum { PATIENCE = 40 };
    uint32_t n = s->pack->count, stale = 0;
    uint64_t random = 1, peak = s->peak;
    uint64_t stop = s->budget->nodes - s->budget->nodes / 4, withheld = s->withheld;
    for (uint32_t k = 0; k < n; k++) s->keys[k].value = s->best_order[k];
    for (int turn = 0; turn < SQUEAKS && s->peak > s->goal && s->budget->nodes > stop; turn++) {
        if (ash_memory__spent(s->budget)) return;
        const uint64_t *offsets = turn && stale ? s->offsets : s->best;
        for (uint32_t k = 0; k < n; k++) {
            uint32_t i = s->keys[k].value;
            s->keys[k].key = ((uint64_t)k + 1) << 20;
            if (offsets[i] + s->pack->items[i].size <= s->goal) continue;
            random = random * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
            s->keys[k].key -= (random >> 32) % (((uint64_t)k + 1) << 19);
        }
        ash_memory__sort(s->keys, s->room, n);
        pack_in_order(s, s->best_rule);
        if (s->withheld != withheld) stop = 0;
        stale = s->peak < peak ? 0 : stale + 1;
        peak = s->peak;
        if (stale <= PATIENCE) continue;
        stale = 0;
        for (uint32_t k = 0; k < n; k++) s->keys[k].value = s->best_order[k];
    }
}

/* --- components ----------------------------------------------------------------------------------- */

typedef struct component {
    ash_memory__field field;
    ash_memory__item *items; /* the field's, with columns from 0 */
    uint32_t first;          /* the first one's number in the pack; the others follow */
    size_t pairs;
} component;

static void component_free(const ash_allocator *a, component *c) {
    ash_memory__field *f = &c->field;
    ash_mem_free(a, f->conflicts, c->pairs, sizeof *f->conflicts);
    ash_mem_free(a, f->row, (size_t)f->count + 1, sizeof *f->row);
    ash_mem_free(a, f->column_items, f->column_at ? f->column_at[f->columns] : 0, sizeof *f->column_items);
    ash_mem_free(a, f->column_at, (size_t)f->columns + 1, sizeof *f->column_at);
    ash_mem_free(a, f->load, f->columns, sizeof *f->load);
    ash_mem_free(a, c->items, f->count, sizeof *c->items);
}

/* The rows of conflicts: items are in order of birth, so of two that live together the later is born in the
 * other's life. */
static bool fill_conflicts(const ash_allocator *a, component *c) {
    ash_memory__field *f = &c->field;
    f->row = ash_mem_calloc(a, (size_t)f->count + 1, sizeof *f->row);
    if (!f->row) return false;
    for (int fill = 0; fill < 2; fill++) {
        for (uint32_t i = 0; i < f->count; i++)
            for (uint32_t j = i + 1; j < f->count && c->items[j].begin < c->items[i].end; j++) {
                if (fill) {
                    f->conflicts[--f->row[i]] = j;
                    f->conflicts[--f->row[j]] = i;
                    continue;
                }
                f->row[i]++;
                f->row[j]++;
            }
        if (fill) break;
        for (uint32_t i = 0; i <= f->count; i++) {
            c->pairs += f->row[i];
            f->row[i] = c->pairs;
        }
        f->conflicts = ash_mem_alloc(a, c->pairs, sizeof *f->conflicts);
        if (!f->conflicts) return false;
    }
    return true;
}

/* `count` items from `first` on, which live in the columns [begin, end) that no item crosses. */
static bool component_init(const ash_allocator *a, const ash_memory__pack *pack, uint32_t first,
                           uint32_t count, uint32_t begin, uint32_t end, component *c) {
    ash_memory__field *f = &c->field;
    *c = (component){.first = first};
    f->count = count;
    f->columns = end - begin;
    c->items = ash_mem_alloc(a, count, sizeof *c->items);
    f->load = ash_mem_calloc(a, f->columns, sizeof *f->load);
    f->column_at = ash_mem_calloc(a, (size_t)f->columns + 1, sizeof *f->column_at);
    if (!c->items || !f->load || !f->column_at) return false;
    f->items = c->items;
    for (uint32_t i = 0; i < count; i++) {
        ash_memory__item *item = &c->items[i];
        *item = pack->items[first + i];
        item->begin -= begin;
        item->end -= begin;
        f->largest = ASH_MAX(f->largest, item->size);
        for (uint32_t column = item->begin; column < item->end; column++) {
            f->load[column] += item->size;
            f->column_at[column]++;
        }
    }
    uint32_t sum = 0;
    for (uint32_t column = 0; column <= f->columns; column++) {
        if (column < f->columns) f->bound = ASH_MAX(f->bound, f->load[column]);
        sum += f->column_at[column];
        f->column_at[column] = sum; /* the end of the column's items; filling moves it to their start */
    }
    f->column_items = ash_mem_alloc(a, sum, sizeof *f->column_items);
    if (!f->column_items) return false;
    for (uint32_t i = count; i--;)
        for (uint32_t column = c->items[i].begin; column < c->items[i].end; column++)
            f->column_items[--f->column_at[column]] = i;
    return fill_conflicts(a, c);
}

static uint64_t component_peak(const search *s, const component *c) {
    uint64_t peak = 0;
    for (uint32_t i = 0; i < c->field.count; i++)
        peak = ASH_MAX(peak, s->best[c->first + i] + c->items[i].size);
    return peak;
}

/* Sets the field to sizes in grains. False when no size changes by that, or an alignment is no divisor of
 * a grain. */
static bool coarsen(component *c, const ash_memory__item *given, uint64_t grain) {
    ash_memory__field *f = &c->field;
    bool changed = false;
    memset(f->load, 0, f->columns * sizeof *f->load);
    f->bound = f->largest = 0;
    for (uint32_t i = 0; i < f->count; i++) {
        ash_memory__item *item = &c->items[i];
        if (given[i].align > grain) return false;
        item->size = (given[i].size + grain - 1) / grain;
        item->align = 1;
        changed |= item->size * grain != given[i].size;
        f->largest = ASH_MAX(f->largest, item->size);
        for (uint32_t column = item->begin; column < item->end; column++) {
            f->load[column] += item->size;
            f->bound = ASH_MAX(f->bound, f->load[column]);
        }
    }
    return changed;
}

/* Sizes rounded up to a common grain: what fits then fits as it is, and pieces that nearly match match.
 * Tries grains from the coarsest that the load allows, and takes the first packing under the goal. */
static ash_status search_grains(search *s, component *c, uint64_t *peak, ash_diag *diag) {
    enum { COARSEST = 512, FINEST = 1 << 14, SHARE = 8 }; /* grains to the goal; of the budget for each */
    ash_memory__field *f = &c->field;
    uint64_t grain = 1;
    ash_status status = ASH_OK;
    while (grain < s->goal / COARSEST) grain *= 2;
    ash_memory__item *given = ash_mem_alloc(s->allocator, f->count, sizeof *given);
    uint64_t *load = ash_mem_alloc(s->allocator, f->columns, sizeof *load);
    uint64_t bound = f->bound, largest = f->largest;
    ASH_FAIL_IF_DONE(!given || !load, diag, ASH_ERROR_OUT_OF_MEMORY, "out of memory");
    memcpy(given, c->items, f->count * sizeof *given);
    memcpy(load, f->load, f->columns * sizeof *load);
    for (; grain > 1 && grain > s->goal / FINEST && *peak > s->goal; grain /= 2) {
        ash_memory__verdict verdict;
        uint64_t capacity = s->goal / grain;
        if (!coarsen(c, given, grain) || f->bound > capacity) continue;
        ASH_TRY_DONE(ash_memory__valley(s->allocator, f, capacity, s->budget, s->budget->nodes / SHARE,
                                        s->offsets, &verdict, diag));
        if (verdict != ASH_MEMORY__FOUND) continue;
        for (uint32_t i = 0; i < f->count; i++) s->best[c->first + i] = s->offsets[i] * grain;
        *peak = 0;
        for (uint32_t i = 0; i < f->count; i++)
            *peak = ASH_MAX(*peak, s->best[c->first + i] + given[i].size);
    }
    memcpy(c->items, given, f->count * sizeof *given);
    memcpy(f->load, load, f->columns * sizeof *load);
    f->bound = bound;
    f->largest = largest;
done:
    ash_mem_free(s->allocator, load, f->columns, sizeof *load);
    ash_mem_free(s->allocator, given, f->count, sizeof *given);
    return status;
}

/* Is there a packing under `capacity`? *peak comes down when one is found, *proven goes up when there is
 * none. */
static ash_status try_capacity(search *s, component *c, uint64_t capacity, uint64_t nodes, uint64_t *peak,
                               uint64_t *proven, ash_memory__verdict *verdict, ash_diag *diag) {
    ASH_TRY(ash_memory__valley(s->allocator, &c->field, capacity, s->budget, ASH_MAX(nodes, 1000),
                               s->offsets, verdict, diag));
    if (*verdict == ASH_MEMORY__REFUTED) *proven = capacity + 1;
    if (*verdict != ASH_MEMORY__FOUND) return ASH_OK;
    memcpy(s->best + c->first, s->offsets, c->field.count * sizeof *s->best);
    *peak = component_peak(s, c);
    return ASH_OK;
}

/* A capacity to begin with. */
static uint64_t first_capacity(const search *s, uint64_t peak, uint64_t proven) {
    return ASH_MAX(proven, ASH_MIN(s->goal, peak - 1));
}

/* Most problems that can be solved take no more than a small share of the budget. Where there is room above
 * the bound, the bound comes first, for an even smaller one: a tight problem leaves less to choose. */
static ash_status glance(search *s, component *c, uint64_t *peak, uint64_t *proven, ash_diag *diag) {
    enum { SHARE = 16, TIGHT_SHARE = 256 };
    ash_memory__verdict verdict = ASH_MEMORY__UNKNOWN;
    if (first_capacity(s, *peak, *proven) > INT32_MAX - 1) return ASH_OK;
    if (*proven < s->goal)
        ASH_TRY(try_capacity(s, c, *proven, s->budget->nodes / TIGHT_SHARE, peak, proven, &verdict, diag));
    if (*peak <= s->goal) return ASH_OK;
    return try_capacity(s, c, first_capacity(s, *peak, *proven), s->budget->nodes / SHARE, peak, proven,
                        &verdict, diag);
}

/* Capacity descent: *peak comes down with each packing found, *proven goes up with each capacity
 * refuted. */
static ash_status descend(search *s, component *c, uint64_t *peak, uint64_t *proven, ash_diag *diag) {
    uint64_t from = *proven;
    bool first = true, moved = true;
    while (*proven < *peak && s->goal < *peak && !ash_memory__spent(s->budget)) {
        if (from >= *peak) {
            if (!moved) break;
            from = *proven;
            moved = false;
        }
        uint64_t capacity = first ? first_capacity(s, *peak, *proven) : from + (*peak - from) / 2;
        uint64_t share = first ? s->budget->nodes / 4 * 3 : s->budget->nodes / 4;
        ash_memory__verdict verdict;
        if (capacity > INT32_MAX - 1) break;
        ASH_TRY(try_capacity(s, c, capacity, first && s->budget->capped ? s->budget->nodes : share, peak,
                             proven, &verdict, diag));
        first = false;
        moved |= verdict != ASH_MEMORY__UNKNOWN;
        from = verdict == ASH_MEMORY__FOUND ? *proven : capacity + 1;
    }
    return ASH_OK;
}

/* Searches each component that is higher than the goal; the pack is as high as the highest of them. */
static ash_status search_components(search *s, bool brief, uint64_t *proven, ash_diag *diag) {
    const ash_memory__pack *pack = s->pack;
    for (uint32_t first = 0, last; first < pack->count; first = last) {
        uint32_t end = pack->items[first].end;
        uint64_t peak = 0, pairs = 0;
        for (last = first; last < pack->count && pack->items[last].begin < end; last++) {
            const ash_memory__item *item = &pack->items[last];
            peak = ASH_MAX(peak, s->best[last] + item->size);
            pairs += (uint64_t)(item->end - item->begin) * (last - first + 1);
            end = ASH_MAX(end, item->end);
        }
        if (peak <= ASH_MAX(s->goal, *proven) || last - first > ASH_MEMORY__VALLEY_ITEMS ||
            pairs > MOST_PAIRS)
            continue;
        component c;
        ash_status status = ASH_OK;
        ASH_FAIL_IF_DONE(
            !component_init(s->allocator, pack, first, last - first, pack->items[first].begin, end, &c),
            diag, ASH_ERROR_OUT_OF_MEMORY, "out of memory");
        uint64_t bound = ASH_MAX(c.field.bound, *proven);
        if (brief) ASH_TRY_DONE(glance(s, &c, &peak, &bound, diag));
        if (!brief) ASH_TRY_DONE(search_grains(s, &c, &peak, diag));
        if (!brief && peak > s->goal) ASH_TRY_DONE(descend(s, &c, &peak, &bound, diag));
        *proven = ASH_MAX(*proven, bound);
    done:
        component_free(s->allocator, &c);
        ASH_TRY(status);
    }
    return ASH_OK;
}

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

ash_status ash_memory__search(const ash_allocator *a, const ash_memory__pack *pack, uint64_t goal,
                              ash_memory__budget *budget, uint64_t *best, uint64_t *peak, uint64_t *proven,
                              ash_diag *diag) {
    uint32_t n = pack->count;
    uint64_t near_nodes = budget->near_nodes;
    search s = {.allocator = a, .pack = pack, .budget = budget, .best = best, .peak = *peak, .goal = goal};
    ash_status status = ASH_OK;
    *proven = pack->load;
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
    bool components = !pack->fixed && !pack->conflicts;
    if (s.peak > s.goal && components) ASH_TRY_DONE(search_components(&s, true, proven, diag));
    s.peak = ash_memory__peak(pack, best);
    if (s.peak > s.goal && s.ordered && s.peak - s.goal < s.goal / 16)
        squeak(&s); /* no more than that is in reach */
    if (s.peak > s.goal && components) ASH_TRY_DONE(search_components(&s, false, proven, diag));
    *peak = ash_memory__peak(pack, best);
done:
    budget->nodes += s.withheld;
    if (s.withheld) budget->near_nodes = near_nodes;
    if (s.has_shelf) ash_memory__shelf_free(&s.shelf);
    ash_mem_free(a, s.room, n, sizeof *s.room);
    ash_mem_free(a, s.keys, n, sizeof *s.keys);
    ash_mem_free(a, s.best_order, n, sizeof *s.best_order);
    ash_mem_free(a, s.offsets, n, sizeof *s.offsets);
    return status;
}
