/* SPDX-License-Identifier: MIT */
/* Capacity descent: ejection from the lowest packing so far, and valley search under capacities below it.
 *
 *   peak    ----------------  the lowest packing so far
 *                  step       twice as long after a packing was found, half as long after none was
 *   tried   ----------------
 *   failed  ----------------  with as many nodes nothing was found here; halfway to it at most
 *   floor   ----------------  what is proven
 *
 * How hard a capacity is nobody knows before, only that a lower one is harder. So tries begin with few
 * nodes and long steps; where they fail, first the steps become shorter, and when nothing is left between
 * the peak and what failed, a new round begins with twice the nodes a little below the peak. So a budget of
 * any size goes to capacities that are about as hard as it can solve, and none of it to a bound that cannot
 * be met before what is easier has been tried. An eighth goes to the floor all the same: some problems are
 * easier where they are tight.
 *
 * Ejection and the tries take turns from the same packing, more often the one that finds. A capacity that
 * the caller gives is not tried for itself: it says where the descent may end. So what a budget finds is
 * found with any larger one, and with any capacity that lets it go on as far.
 *
 * The columns that no item joins to the next part a pack into components. The highest is the one to lower.
 *
 * Sizes rounded up to a common grain: what fits then fits as it is, and pieces that nearly match match. So
 * each capacity is tried at several levels, from the coarsest that the load allows to sizes as they are,
 * which alone can refute. */
#include "search.h"

static const uint64_t MOST_PAIRS = UINT64_C(1) << 25; /* of a component that the valley search takes */
static const uint64_t MOST_NODES = UINT64_C(1) << 40; /* of a try */
enum { COARSEST = 512, FINEST = 1 << 14 };            /* grains to the load */
enum { LEVELS = 7 };                                  /* the most there are, that of whole units included */
enum { GLANCE_DIVE = 3500, DIVE = 4000 };             /* nodes of the shortest dive */
enum { NODES = 4000 }; /* of a glance, of the first ejection and of the first try */

/* A component with sizes in grains. */
typedef struct level {
    uint64_t grain;             /* units */
    ash_memory__field field;    /* its sizes are its own, columns and conflicts the component's */
    ash_memory__item *items;    /* the field's */
    ash_memory__valley *valley; /* made with the first try */
} level;

typedef struct component {
    uint32_t first, count;       /* items of the pack, one after the other */
    uint64_t peak;               /* units: of its best packing */
    uint64_t proven;             /* units: no packing is lower */
    uint64_t step;               /* units: how far below the peak the next try is, at most */
    uint64_t failed;             /* units: with `nodes` nothing was found under this; 0: not tried */
    uint64_t nodes, floor_nodes; /* of the next try, and of the next at the floor */
    uint64_t spent, floor_spent; /* steps of those tries so far */
    uint64_t below_idle,
        eject_idle;           /* steps below the peak, and of ejection, since these last found something */
    ash_memory__eject *eject; /* made with its first turn */
    uint64_t pairs;           /* of items that live together, and more */
    level *levels;            /* LEVELS, the coarsest first; NULL: not looked at */
    uint32_t level_count;
    uint32_t lead; /* the level that found the last packing */
} component;

struct ash_memory__descent {
    const ash_allocator *allocator;
    const ash_memory__pack *pack;
    ash_memory__budget *budget;
    uint64_t *best;    /* of the pack, units */
    uint64_t *offsets; /* of the component in hand, grains */
    component *components;
    uint32_t count;
};
typedef ash_memory__descent descent;

/* --- components ----------------------------------------------------------------------------------- */

static void level_free(const ash_allocator *a, level *l, bool shared) {
    ash_memory__field *f = &l->field;
    ash_memory__valley_destroy(l->valley);
    ash_mem_free(a, f->load, f->columns, sizeof *f->load);
    ash_mem_free(a, l->items, f->count, sizeof *l->items);
    if (shared) return;
    ash_mem_free(a, f->conflicts, f->row ? f->row[f->count] : 0, sizeof *f->conflicts);
    ash_mem_free(a, f->row, (size_t)f->count + 1, sizeof *f->row);
    ash_mem_free(a, f->column_items, f->column_at ? f->column_at[f->columns] : 0, sizeof *f->column_items);
    ash_mem_free(a, f->column_at, (size_t)f->columns + 1, sizeof *f->column_at);
}

/* The tables that all levels share belong to the one of grain 1. */
static void component_free(const ash_allocator *a, component *c) {
    ash_memory__eject_destroy(c->eject);
    for (uint32_t k = 0; k < c->level_count; k++) level_free(a, &c->levels[k], c->levels[k].grain > 1);
    ash_mem_free(a, c->levels, LEVELS, sizeof *c->levels);
}

/* The rows of conflicts: items are in order of birth, so of two that live together the later is born in the
 * other's life. */
static bool fill_conflicts(const ash_allocator *a, ash_memory__field *f) {
    f->row = ash_mem_calloc(a, (size_t)f->count + 1, sizeof *f->row);
    if (!f->row) return false;
    for (int fill = 0; fill < 2; fill++) {
        for (uint32_t i = 0; i < f->count; i++)
            for (uint32_t j = i + 1; j < f->count && f->items[j].begin < f->items[i].end; j++) {
                if (fill) {
                    f->conflicts[--f->row[i]] = j;
                    f->conflicts[--f->row[j]] = i;
                    continue;
                }
                f->row[i]++;
                f->row[j]++;
            }
        if (fill) break;
        size_t pairs = 0;
        for (uint32_t i = 0; i <= f->count; i++) {
            pairs += f->row[i];
            f->row[i] = pairs;
        }
        f->conflicts = ash_mem_alloc(a, pairs, sizeof *f->conflicts);
        if (!f->conflicts) return false;
    }
    return true;
}

/* Sizes, load and bound in grains. */
static void measure(level *l) {
    ash_memory__field *f = &l->field;
    for (uint32_t i = 0; i < f->count; i++) {
        f->largest = ASH_MAX(f->largest, l->items[i].size);
        for (uint32_t column = l->items[i].begin; column < l->items[i].end; column++)
            f->load[column] += l->items[i].size;
    }
    for (uint32_t column = 0; column < f->columns; column++) f->bound = ASH_MAX(f->bound, f->load[column]);
}

/* The level of grain 1, with the tables that the others share. */
static bool first_level(const ash_allocator *a, const ash_memory__pack *pack, const component *c,
                        level *l) {
    ash_memory__field *f = &l->field;
    uint32_t begin = pack->items[c->first].begin, end = begin;
    for (uint32_t i = 0; i < c->count; i++) end = ASH_MAX(end, pack->items[c->first + i].end);
    *l = (level){.grain = 1, .field = {.count = c->count, .columns = end - begin}};
    l->items = ash_mem_alloc(a, f->count, sizeof *l->items);
    f->load = ash_mem_calloc(a, f->columns, sizeof *f->load);
    f->column_at = ash_mem_calloc(a, (size_t)f->columns + 1, sizeof *f->column_at);
    if (!l->items || !f->load || !f->column_at) return false;
    f->items = l->items;
    for (uint32_t i = 0; i < f->count; i++) {
        l->items[i] = pack->items[c->first + i];
        l->items[i].begin -= begin;
        l->items[i].end -= begin;
        for (uint32_t column = l->items[i].begin; column < l->items[i].end; column++)
            f->column_at[column]++;
    }
    measure(l);
    uint32_t sum = 0;
    for (uint32_t column = 0; column <= f->columns; column++) {
        sum += f->column_at[column];
        f->column_at[column] = sum; /* the end of the column's items; filling moves it to their start */
    }
    f->column_items = ash_mem_alloc(a, sum, sizeof *f->column_items);
    if (!f->column_items) return false;
    for (uint32_t i = f->count; i--;)
        for (uint32_t column = f->items[i].begin; column < f->items[i].end; column++)
            f->column_items[--f->column_at[column]] = i;
    return fill_conflicts(a, f);
}

/* A level of sizes rounded up to `grain`; `*changed`: it is not just the one of grain 1 over again. */
static bool coarse_level(const ash_allocator *a, const level *whole, uint64_t grain, level *l,
                         bool *changed) {
    ash_memory__field *f = &l->field;
    *l = (level){.grain = grain, .field = whole->field};
    f->largest = f->bound = 0;
    l->items = ash_mem_alloc(a, f->count, sizeof *l->items);
    f->load = ash_mem_calloc(a, f->columns, sizeof *f->load);
    if (!l->items || !f->load) return false;
    f->items = l->items;
    *changed = false;
    for (uint32_t i = 0; i < f->count; i++) {
        l->items[i] = whole->items[i];
        l->items[i].size = (whole->items[i].size + grain - 1) / grain;
        l->items[i].align = 1;
        *changed |= l->items[i].size * grain != whole->items[i].size;
    }
    measure(l);
    return true;
}

/* The coarsest first, whole units last. */
static bool make_levels(const ash_allocator *a, const ash_memory__pack *pack, component *c) {
    level whole;
    uint64_t grain = 1, align = 1;
    c->levels = ash_mem_alloc(a, LEVELS, sizeof *c->levels);
    if (!c->levels) return false;
    bool made = first_level(a, pack, c, &whole), changed;
    for (uint32_t i = 0; i < c->count; i++) align = ASH_MAX(align, pack->items[c->first + i].align);
    while (made && grain < whole.field.bound / COARSEST) grain *= 2;
    for (; made && grain > 1 && grain >= align && grain > whole.field.bound / FINEST; grain /= 2) {
        level *l = &c->levels[c->level_count];
        made = coarse_level(a, &whole, grain, l, &changed);
        if (made && changed)
            c->level_count++;
        else
            level_free(a, l, true);
        if (made && !changed) break; /* nor does a finer grain change sizes */
    }
    c->levels[c->level_count++] = whole;
    return made;
}

/* --- tries ---------------------------------------------------------------------------------------- */

/* Keeps the packing that a level has found; the component's peak. */
static uint64_t keep(descent *d, const component *c, const level *l) {
    uint64_t peak = 0;
    for (uint32_t i = 0; i < c->count; i++) {
        d->best[c->first + i] = d->offsets[i] * l->grain;
        peak = ASH_MAX(peak, d->best[c->first + i] + d->pack->items[c->first + i].size);
    }
    return peak;
}

/* Is there a packing under `capacity`, with sizes of a level? The peak comes down when one is found; what
 * is proven goes up when there is none of whole units. */
static ash_status try_level(descent *d, component *c, level *l, ash_memory__limits limits,
                            ash_memory__verdict *verdict, ash_diag *diag) {
    uint64_t capacity = limits.capacity, grains = capacity / l->grain;
    if (l->field.bound > grains || grains > INT32_MAX - 1) return ASH_OK;
    if (!l->valley) ASH_TRY(ash_memory__valley_create(d->allocator, &l->field, &l->valley, diag));
    limits.capacity = grains;
    ASH_TRY(ash_memory__valley_try(l->valley, limits, d->budget, d->offsets, verdict, diag));
    if (*verdict == ASH_MEMORY__FOUND) {
        c->peak = keep(d, c, l);
        c->lead = (uint32_t)(l - c->levels);
    } else if (*verdict == ASH_MEMORY__REFUTED && l->grain == 1) {
        c->proven = capacity + 1;
    } else {
        *verdict = ASH_MEMORY__UNKNOWN;
    }
    return ASH_OK;
}

/* The level that found the last packing has `nodes`, each other one a share of them. */
static ash_status try_capacity(descent *d, component *c, uint64_t capacity, uint64_t nodes,
                               ash_memory__verdict *verdict, ash_diag *diag) {
    enum { SHARE = 4 };
    *verdict = ASH_MEMORY__UNKNOWN;
    for (uint32_t k = 0, lead = c->lead; k < c->level_count && *verdict == ASH_MEMORY__UNKNOWN; k++) {
        level *l = &c->levels[k == 0 ? lead : k <= lead ? k - 1 : k];
        const ash_memory__limits limits = {capacity, k ? nodes / SHARE : nodes, DIVE};
        ASH_TRY(try_level(d, c, l, limits, verdict, diag));
    }
    return ASH_OK;
}

static ash_status need_levels(descent *d, component *c, ash_diag *diag) {
    return c->levels || make_levels(d->allocator, d->pack, c) ? ASH_OK : ASH_NO_MEMORY(diag);
}

static void measure_peaks(descent *d) {
    for (uint32_t k = 0; k < d->count; k++) {
        component *c = &d->components[k];
        c->peak = 0;
        for (uint32_t i = c->first; i < c->first + c->count; i++)
            c->peak = ASH_MAX(c->peak, d->best[i] + d->pack->items[i].size);
    }
}

/* The highest component; NULL when that is at the goal, or at what is proven, or cannot be searched. */
static component *highest(descent *d, uint64_t *proven) {
    component *c = NULL;
    for (uint32_t k = 0; k < d->count; k++) {
        if (!c || d->components[k].peak > c->peak) c = &d->components[k];
        *proven = ASH_MAX(*proven, d->components[k].proven);
    }
    bool over = !c || c->peak <= ASH_MAX(d->budget->enough, *proven) ||
                c->count > ASH_MEMORY__VALLEY_ITEMS || c->pairs > MOST_PAIRS;
    return over ? NULL : c;
}

/* Most problems that can be solved are so with a few nodes at the bound. */
static ash_status glance(descent *d, component *c, ash_diag *diag) {
    ash_memory__verdict verdict = ASH_MEMORY__REFUTED;
    while (verdict == ASH_MEMORY__REFUTED && c->peak > c->proven && !ash_memory__spent(d->budget)) {
        verdict = ASH_MEMORY__UNKNOWN;
        const ash_memory__limits limits = {c->proven, NODES, GLANCE_DIVE};
        ASH_TRY(try_level(d, c, &c->levels[c->level_count - 1], limits, &verdict, diag));
    }
    return ASH_OK;
}

/* One try at the floor, which nobody needs to beat, with twice the nodes of the one before. */
static ash_status try_floor(descent *d, component *c, uint64_t floor, ash_diag *diag) {
    ash_memory__verdict verdict;
    uint64_t before = d->budget->spent;
    ASH_TRY(try_capacity(d, c, floor, c->floor_nodes, &verdict, diag));
    c->floor_nodes = ASH_MIN(2 * c->floor_nodes, MOST_NODES);
    c->floor_spent += d->budget->spent - before;
    return ASH_OK;
}

/* One step down. */
static ash_status try_below(descent *d, component *c, uint64_t floor, ash_diag *diag) {
    enum { FINE = 1000, AGAIN = 16 }; /* steps to the floor; of these, how far down the next round begins */
    ash_memory__verdict verdict;
    uint64_t least = ASH_MAX(floor / FINE, 1), before = d->budget->spent;
    if (c->failed >= floor) c->step = ASH_MIN(c->step, ASH_MAX((c->peak - c->failed) / 2, 1));
    uint64_t capacity = c->peak - ASH_MIN(c->step, c->peak - floor);
    ASH_TRY(try_capacity(d, c, capacity, c->nodes, &verdict, diag));
    c->spent += d->budget->spent - before;
    c->below_idle = verdict == ASH_MEMORY__FOUND ? 0 : c->below_idle + d->budget->spent - before;
    if (verdict == ASH_MEMORY__FOUND) {
        c->step *= 2;
    } else if (verdict == ASH_MEMORY__UNKNOWN) {
        c->failed = capacity;
        c->step = ASH_MAX(c->step / 2, 1);
    }
    if (c->peak > c->failed + least) return ASH_OK;
    c->failed = 0;
    c->step = AGAIN * least;
    c->nodes = ASH_MIN(2 * c->nodes, MOST_NODES);
    return ASH_OK;
}

/* Ejection from the peak down. */
static ash_status try_ejection(descent *d, component *c, uint64_t nodes, ash_diag *diag) {
    const level *whole = &c->levels[c->level_count - 1];
    uint64_t before = d->budget->spent, peak = c->peak;
    if (!c->eject) ASH_TRY(ash_memory__eject_create(d->allocator, &whole->field, &c->eject, diag));
    memcpy(d->offsets, d->best + c->first, c->count * sizeof *d->offsets);
    ash_memory__eject_lower(c->eject, ASH_MAX(d->budget->enough, c->proven), d->budget, nodes, d->offsets);
    c->peak = keep(d, c, whole);
    c->eject_idle = c->peak < peak ? 0 : c->eject_idle + d->budget->spent - before;
    return ASH_OK;
}

/* One turn: of the floor while that has had less than its part, else of ejection or of the valley search
 * below the peak, whichever has spent less since it last found something; ejection, which is at its end
 * sooner, counts IDLE times. */
static ash_status take_turn(descent *d, component *c, ash_diag *diag) {
    enum { PART = 8, IDLE = 7 };
    if (c->floor_spent * (PART - 1) < c->spent) return try_floor(d, c, c->proven, diag);
    return c->eject_idle * IDLE <= c->below_idle ? try_ejection(d, c, c->nodes, diag)
                                                 : try_below(d, c, c->proven, diag);
}

ash_status ash_memory__descend(ash_memory__descent *d, uint64_t *proven, ash_diag *diag) {
    measure_peaks(d);
    for (component *c; (c = highest(d, proven)) && !ash_memory__spent(d->budget);) {
        ASH_TRY(need_levels(d, c, diag));
        c->proven = ASH_MAX(c->proven, *proven);
        ash_memory__spend(d->budget, 1); /* also where no level can take a try */
        if (c->nodes) {
            ASH_TRY(take_turn(d, c, diag));
            continue;
        }
        c->nodes = c->floor_nodes = NODES;
        ASH_TRY(try_ejection(d, c, NODES, diag));
        ASH_TRY(glance(d, c, diag));
        c->step = c->peak - ASH_MIN(c->peak, c->proven);
    }
    return ASH_OK;
}

/* --- all of it ------------------------------------------------------------------------------------ */

/* The components, into `components` when that is there; how many. */
static uint32_t part(const ash_memory__pack *pack, component *components) {
    uint32_t count = 0;
    for (uint32_t first = 0, last; first < pack->count; first = last, count++) {
        component c = {.first = first};
        uint32_t end = pack->items[first].end;
        for (last = first; last < pack->count && pack->items[last].begin < end; last++) {
            const ash_memory__item *item = &pack->items[last];
            c.pairs += (uint64_t)(item->end - item->begin) * (last - first + 1);
            end = ASH_MAX(end, item->end);
        }
        c.count = last - first;
        if (components) components[count] = c;
    }
    return count;
}

ash_status ash_memory__descent_create(const ash_allocator *a, const ash_memory__pack *pack,
                                      ash_memory__budget *budget, uint64_t *best, ash_memory__descent **out,
                                      ash_diag *diag) {
    descent *d = *out = ash_mem_calloc(a, 1, sizeof *d);
    if (!d) return ASH_NO_MEMORY(diag);
    *d = (descent){.allocator = a, .pack = pack, .budget = budget, .best = best};
    d->count = part(pack, NULL);
    d->components = ash_mem_calloc(a, d->count, sizeof *d->components);
    d->offsets = ash_mem_alloc(a, pack->count, sizeof *d->offsets);
    if (d->components && d->offsets) {
        part(pack, d->components);
        return ASH_OK;
    }
    ash_memory__descent_destroy(d);
    *out = NULL;
    return ASH_NO_MEMORY(diag);
}

void ash_memory__descent_destroy(ash_memory__descent *d) {
    if (!d) return;
    const ash_allocator *a = d->allocator;
    for (uint32_t k = 0; k < d->count && d->components; k++)
        if (d->components[k].levels) component_free(a, &d->components[k]);
    ash_mem_free(a, d->offsets, d->pack->count, sizeof *d->offsets);
    ash_mem_free(a, d->components, d->count, sizeof *d->components);
    ash_mem_free(a, d, 1, sizeof *d);
}
