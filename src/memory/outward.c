/* SPDX-License-Identifier: MIT */
/* Outward: packs the moment of the load, and goes from there to both ends of time.
 *
 *   time      . . . [window] . . .
 *             <- left   right ->
 *
 * Everything that lives through the window is stacked from 0; where the window is more than one column, the
 * few items that come and go in it are searched for a packing above the stack. From the window on, each
 * side is placed online, as its items appear, by someone who knows when they will go: away from the load
 * there is less and less to place, and a stack in order of death frees its bytes from the bottom up, in one
 * piece. The two sides share nothing but the window, so each keeps the best of its rules.
 *
 * Training graphs, whose buffers nest around the turn from forward to backward, come out exact; so do most
 * graphs with one heavy moment, whatever their size: a pass costs n log n and the gaps that it looks at. */
#include "search.h"

#define NIL UINT32_MAX

enum {
    WINDOW_ITEMS = 512, /* most items that come and go in a window */
    WINDOW_PART =
        8, /* and the least of the pack's for each of them: else the search takes the whole pack */
    WINDOW_NODES = 20000,  /* most that their search may spend */
    STEPS_PER_NODE = 2000, /* gaps looked at; an item counts as */
    STEPS_PER_ITEM = 100,
    RIGHT = 0,
    LEFT = 1
};

typedef enum fit {
    FIRST,    /* the lowest gap that is large enough */
    SMALLEST, /* the smallest, the lowest of these */
    PARTNER   /* beside the neighbour that goes at about the same time */
} fit;

/* How a side is placed: into which gaps, and which of those that appear in one column comes first. */
typedef struct rule {
    fit fit;
    bool sized; /* the largest; otherwise the one that is born first, in half steps */
} rule;

/* A run of bytes of the region that one side places into: an item's, or a gap. */
typedef struct run {
    uint64_t offset, size;
    uint32_t lower, upper;   /* neighbours */
    uint32_t previous, next; /* gaps: their list; `next` links unused records, too */
    uint32_t item;           /* NIL: a gap */
} run;

typedef struct outward {
    const ash_memory__pack *pack;
    const ash_memory__class *classes;
    ash_memory__budget *budget;
    uint32_t begin, end; /* the window's columns */
    uint64_t *offsets;   /* of the window and the best of each side so far */
    uint64_t *trial;     /* of a side's pass */
    uint32_t *by_size;   /* items, the largest first */
    uint32_t
        *births[2][2];   /* in the order in which each side meets them: in that of time, and of columns */
    uint32_t *deaths[2]; /* and in which it loses them; largest first among equals */
    uint32_t *core;      /* what lives at the window's edge, or in it */
    uint32_t *run_of;    /* per item that lives: its run, or NIL */
    run *runs;           /* 2 count + 2 */
    uint32_t unused, gaps;
    ash_memory__key *keys, *room;
    uint64_t *load; /* per column */
    uint64_t steps; /* work done */
} outward;

/* Time as a side sees it: it begins at the window. */
static uint32_t birth(const outward *o, uint32_t i, int side) {
    const ash_memory__item *item = &o->pack->items[i];
    return side == RIGHT ? item->begin : o->pack->columns - item->end;
}

static uint32_t death(const outward *o, uint32_t i, int side) {
    const ash_memory__item *item = &o->pack->items[i];
    return side == RIGHT ? item->end : o->pack->columns - item->begin;
}

/* --- runs ----------------------------------------------------------------------------------------- */

static void link_gap(outward *o, uint32_t r) {
    o->runs[r].item = NIL;
    o->runs[r].previous = NIL;
    o->runs[r].next = o->gaps;
    if (o->gaps != NIL) o->runs[o->gaps].previous = r;
    o->gaps = r;
}

static void unlink_gap(outward *o, uint32_t r) {
    const run *gap = &o->runs[r];
    if (gap->next != NIL) o->runs[gap->next].previous = gap->previous;
    if (gap->previous != NIL)
        o->runs[gap->previous].next = gap->next;
    else
        o->gaps = gap->next;
}

/* A run of `size` between run `lower` and the one above it. */
static uint32_t insert(outward *o, uint32_t lower, uint64_t offset, uint64_t size) {
    uint32_t r = o->unused, upper = lower == NIL ? NIL : o->runs[lower].upper;
    o->unused = o->runs[r].next;
    o->runs[r] = (run){.offset = offset, .size = size, .lower = lower, .upper = upper};
    if (lower != NIL) o->runs[lower].upper = r;
    if (upper != NIL) o->runs[upper].lower = r;
    return r;
}

/* Joins a run with the one above it, whose record it gives back. */
static void join_upper(outward *o, uint32_t r) {
    uint32_t gone = o->runs[r].upper, upper = o->runs[gone].upper;
    o->runs[r].size += o->runs[gone].size;
    o->runs[r].upper = upper;
    if (upper != NIL) o->runs[upper].lower = r;
    o->runs[gone].next = o->unused;
    o->unused = gone;
}

static bool is_gap(const outward *o, uint32_t r) {
    return r != NIL && o->runs[r].item == NIL;
}

static void release(outward *o, uint32_t r) {
    uint32_t lower = o->runs[r].lower, upper = o->runs[r].upper;
    if (is_gap(o, upper)) {
        unlink_gap(o, upper);
        join_upper(o, r);
    }
    if (is_gap(o, lower)) {
        join_upper(o, lower);
        return;
    }
    link_gap(o, r);
}

/* The item takes [offset, offset + size) of a gap. */
static void take(outward *o, uint32_t gap, uint64_t offset, uint32_t item) {
    uint64_t size = o->pack->items[item].size, from = o->runs[gap].offset;
    uint64_t above = from + o->runs[gap].size - (offset + size), below = offset - from;
    uint32_t r = gap;
    if (below) {
        o->runs[gap].size = below;
        r = insert(o, gap, offset, size);
    } else {
        unlink_gap(o, gap);
        o->runs[r].size = size;
    }
    o->runs[r].item = item;
    o->run_of[item] = r;
    if (above) link_gap(o, insert(o, r, offset + size, above));
}

/* The region with the core's items of a side in it, which are sorted by offset. */
static void fill(outward *o, uint32_t count) {
    uint32_t records = 2 * o->pack->count + 2;
    for (uint32_t r = 0; r < records; r++) o->runs[r].next = r + 1;
    o->unused = 0;
    o->gaps = NIL;
    uint64_t top = 0;
    uint32_t last = NIL;
    for (uint32_t k = 0; k < count; k++) {
        uint32_t i = o->core[k];
        uint64_t offset = o->trial[i];
        if (offset > top) link_gap(o, last = insert(o, last, top, offset - top));
        last = insert(o, last, offset, o->pack->items[i].size);
        o->runs[last].item = i;
        o->run_of[i] = last;
        top = offset + o->pack->items[i].size;
    }
    link_gap(o, insert(o, last, top, (UINT64_C(1) << 63) - top));
}

/* --- one side ------------------------------------------------------------------------------------- */

static uint32_t distance(uint32_t a, uint32_t b) {
    return a > b ? a - b : b - a;
}

/* How little a gap is wished for, and where in it the item would lie; UINT64_MAX: it does not fit. */
static uint64_t judge(const outward *o, const run *gap, uint32_t item, int side, fit how, uint64_t *at) {
    const ash_memory__item *x = &o->pack->items[item];
    uint64_t from = ash_align_up(gap->offset, x->align), to = gap->offset + gap->size;
    *at = from;
    if (from + x->size > to) return UINT64_MAX;
    if (how == FIRST) return from;
    if (gap->upper == NIL) return UINT64_MAX - 1;
    if (how == SMALLEST) return gap->size;
    uint32_t end = death(o, item, side);
    uint32_t lower = gap->lower == NIL ? NIL : distance(death(o, o->runs[gap->lower].item, side), end);
    uint32_t upper = distance(death(o, o->runs[gap->upper].item, side), end);
    if (upper < lower) *at = (to - x->size) & ~(uint64_t)(x->align - 1);
    return 2 * (uint64_t)ASH_MIN(lower, upper) + (gap->size != x->size);
}

/* Places one item; its upper end. */
static uint64_t place(outward *o, uint32_t item, int side, fit how) {
    uint64_t least = UINT64_MAX, offset = 0, at;
    uint32_t found = NIL;
    for (uint32_t r = o->gaps; r != NIL; r = o->runs[r].next) {
        uint64_t score = judge(o, &o->runs[r], item, side, how, &at);
        o->steps++;
        if (score > least || score == UINT64_MAX || (score == least && at > offset)) continue;
        least = score;
        offset = at;
        found = r;
    }
    take(o, found, offset, item);
    o->trial[item] = offset;
    return offset + o->pack->items[item].size;
}

/* Items of the window's edge on this side, by offset, into `core`. */
static uint32_t edge(outward *o, int side) {
    uint32_t count = 0, column = side == RIGHT ? o->end - 1 : o->begin;
    for (uint32_t i = 0; i < o->pack->count; i++) {
        const ash_memory__item *item = &o->pack->items[i];
        o->run_of[i] = NIL;
        if (item->begin <= column && column < item->end)
            o->keys[count++] = (ash_memory__key){o->trial[i] = o->offsets[i], i};
    }
    ash_memory__sort(o->keys, o->room, count);
    for (uint32_t k = 0; k < count; k++) o->core[k] = o->keys[k].value;
    return count;
}

/* Places what begins beyond the window on a side; the peak, or UINT64_MAX once it is not below `limit`. */
static uint64_t pass(outward *o, int side, rule by, uint64_t limit) {
    uint32_t n = o->pack->count, dead = 0;
    uint32_t now = side == RIGHT ? o->end : o->pack->columns - o->begin;
    uint64_t peak = 0;
    o->steps += n;
    fill(o, edge(o, side));
    for (uint32_t k = 0; k < n; k++) {
        uint32_t i = o->births[side][by.sized][k], begin = birth(o, i, side);
        if (begin < now) continue;
        for (; death(o, o->deaths[side][dead], side) <= begin; dead++)
            if (o->run_of[o->deaths[side][dead]] != NIL) release(o, o->run_of[o->deaths[side][dead]]);
        uint64_t end = place(o, i, side, by.fit);
        o->steps += STEPS_PER_ITEM;
        peak = ASH_MAX(peak, end);
        if (peak >= limit) return UINT64_MAX;
    }
    return peak;
}

/* Tries the rules on a side until one stays below `least`, the packing's peak anyway; the lowest peak, or
 * UINT64_MAX when none is below `limit`. */
static uint64_t place_side(outward *o, int side, uint64_t least, uint64_t limit) {
    static const rule rules[] = {{FIRST, false}, {FIRST, true}, {SMALLEST, false}, {PARTNER, true}};
    uint64_t best = UINT64_MAX;
    uint32_t now = side == RIGHT ? o->end : o->pack->columns - o->begin;
    for (size_t r = 0; r < ASH_COUNT(rules) && !ash_memory__spent(o->budget); r++) {
        uint64_t before = o->steps, peak = pass(o, side, rules[r], limit);
        ash_memory__spend(o->budget, (o->steps - before) / STEPS_PER_NODE + 1);
        if (peak == UINT64_MAX) continue;
        for (uint32_t i = 0; i < o->pack->count; i++)
            if (birth(o, i, side) >= now) o->offsets[i] = o->trial[i];
        best = limit = peak;
        if (peak <= least) break;
    }
    return best;
}

/* --- the window ----------------------------------------------------------------------------------- */

typedef enum stacking {
    BY_DEATH,
    BY_BIRTH,
    BY_SIZE,
    BY_SPAN,
    BY_LATE_DEATH,
    BY_EARLY_BIRTH,
    STACKINGS
} stacking;

static uint64_t stack_key(const outward *o, uint32_t i, stacking by) {
    const ash_memory__class *life = &o->classes[o->pack->items[i].class];
    switch (by) {
    case BY_DEATH: return ash_memory__key_i64(life->end);
    case BY_BIRTH: return ~ash_memory__key_i64(life->begin);
    case BY_SPAN: return ~((uint64_t)life->end - (uint64_t)life->begin);
    case BY_LATE_DEATH: return ~ash_memory__key_i64(life->end);
    case BY_EARLY_BIRTH: return ash_memory__key_i64(life->begin);
    default: return 0;
    }
}

static bool spans(const outward *o, const ash_memory__item *item) {
    return item->begin <= o->begin && o->end <= item->end;
}

static bool touches(const outward *o, const ash_memory__item *item) {
    return item->begin < o->end && o->begin < item->end;
}

/* Stacks what lives through the window, among equals the largest first; the upper end. */
static uint64_t stack(outward *o, stacking by) {
    uint32_t count = 0;
    uint64_t top = 0;
    for (uint32_t k = 0; k < o->pack->count; k++)
        if (spans(o, &o->pack->items[o->by_size[k]]))
            o->keys[count++] = (ash_memory__key){stack_key(o, o->by_size[k], by), o->by_size[k]};
    ash_memory__sort(o->keys, o->room, count);
    for (uint32_t k = 0; k < count; k++) {
        const ash_memory__item *item = &o->pack->items[o->keys[k].value];
        o->offsets[o->keys[k].value] = ash_align_up(top, item->align);
        top = o->offsets[o->keys[k].value] + item->size;
    }
    return top;
}

/* What comes and goes in the window, as a pack of its own: its items in `items`, their numbers in `core`.
 * Its unit is the common divisor of their sizes, in units of the whole pack. */
static void cut_window(outward *o, ash_memory__item *items, ash_memory__pack *part) {
    *part = (ash_memory__pack){.items = items, .columns = o->end - o->begin, .granule = 1};
    for (uint32_t i = 0; i < o->pack->count; i++) {
        const ash_memory__item *item = &o->pack->items[i];
        if (!touches(o, item) || spans(o, item)) continue;
        items[part->count] = *item;
        items[part->count].begin = ASH_MAX(item->begin, o->begin) - o->begin;
        items[part->count].end = ASH_MIN(item->end, o->end) - o->begin;
        part->unit = ash_memory__gcd(part->unit, item->size);
        o->core[part->count++] = i;
    }
    for (uint32_t k = 0; k < part->count; k++) {
        items[k].size /= part->unit;
        items[k].align /= (uint32_t)ash_memory__gcd(part->unit, items[k].align);
        part->aligned |= items[k].align > 1;
    }
    for (uint32_t column = 0; column < part->columns; column++) {
        uint64_t load = 0;
        for (uint32_t k = 0; k < part->count; k++)
            if (items[k].begin <= column && column < items[k].end) load += items[k].size;
        if (load <= part->load) continue;
        part->load = load;
        part->load_at = column;
    }
}

/* Packs it, from 0 on: offsets of its items in `placed`. */
static ash_status search_window(const ash_allocator *a, outward *o, ash_memory__item *items,
                                uint64_t *placed, uint32_t *count, uint64_t *peak, ash_diag *diag) {
    ash_memory__pack part;
    ash_memory__budget budget;
    cut_window(o, items, &part);
    *peak = 0;
    *count = part.count;
    if (!part.count) return ASH_OK;
    ash_memory__budget_init(&budget, ASH_MIN(o->budget->nodes, (uint64_t)WINDOW_NODES), 0);
    budget.enough = part.load;
    budget.progress = o->budget->progress;
    ash_memory__lowering window = {
        .allocator = a, .pack = &part, .budget = &budget, .best = placed, .peak = UINT64_MAX};
    ASH_TRY(ash_memory__search(&window, diag));
    for (uint32_t k = 0; k < part.count; k++) placed[k] *= part.unit;
    *peak = window.peak * part.unit;
    ash_memory__spend(o->budget, budget.spent);
    if (budget.stopped) o->budget->late = o->budget->stopped = true;
    return ASH_OK;
}

/* Packs everything around the window, in several ways; keeps what is lower than the best. */
static ash_status pack_around(outward *o, ash_memory__lowering *l, ash_diag *diag) {
    const ash_allocator *a = l->allocator;
    uint32_t n = o->pack->count, count = 0;
    const uint64_t load = l->pack->load, enough = l->budget->enough;
    uint64_t height = 0, align = 1;
    ash_memory__item *items = ash_mem_alloc(a, WINDOW_ITEMS, sizeof *items);
    uint64_t *placed = ash_mem_alloc(a, WINDOW_ITEMS, sizeof *placed);
    uint32_t *numbers = ash_mem_alloc(a, WINDOW_ITEMS, sizeof *numbers);
    ash_status status = ASH_OK;
    ASH_FAIL_IF_DONE(!items || !placed || !numbers, diag, ASH_ERROR_OUT_OF_MEMORY, "out of memory");
    ASH_TRY_DONE(search_window(a, o, items, placed, &count, &height, diag));
    memcpy(numbers, o->core, count * sizeof *numbers);
    for (uint32_t k = 0; k < count; k++) align = ASH_MAX(align, o->pack->items[numbers[k]].align);
    for (stacking by = BY_DEATH; by < STACKINGS && l->peak > enough && !ash_memory__spent(o->budget);
         by++) {
        uint64_t base = ash_align_up(stack(o, by), align), least = base + height;
        if (least >= l->peak) continue;
        for (uint32_t k = 0; k < count; k++) o->offsets[numbers[k]] = base + placed[k];
        uint64_t right = place_side(o, RIGHT, ASH_MAX(least, load), l->peak);
        if (right == UINT64_MAX) continue;
        uint64_t left = place_side(o, LEFT, ASH_MAX(ASH_MAX(least, load), right), l->peak);
        if (left == UINT64_MAX) continue;
        l->peak = ASH_MAX(least, ASH_MAX(left, right));
        memcpy(l->best, o->offsets, n * sizeof *l->best);
    }
done:
    ash_mem_free(a, numbers, WINDOW_ITEMS, sizeof *numbers);
    ash_mem_free(a, placed, WINDOW_ITEMS, sizeof *placed);
    ash_mem_free(a, items, WINDOW_ITEMS, sizeof *items);
    return status;
}

/* Widens the window to all columns with at least `load`; false when nothing changes, or too much comes and
 * goes in it. */
static bool widen(outward *o, uint64_t load) {
    uint32_t begin = o->begin, end = o->end, first = 0, last = o->pack->columns - 1, passing = 0;
    while (o->load[first] < load) first++;
    while (o->load[last] < load) last--;
    o->begin = first;
    o->end = last + 1;
    for (uint32_t i = 0; i < o->pack->count; i++)
        passing += touches(o, &o->pack->items[i]) && !spans(o, &o->pack->items[i]);
    if (passing <= ASH_MIN(WINDOW_ITEMS, o->pack->count / WINDOW_PART))
        return begin != first || end != last + 1;
    o->begin = begin;
    o->end = end;
    return false;
}

/* --- all of it ------------------------------------------------------------------------------------ */

static uint64_t birth_key(const outward *o, uint32_t i, int side) {
    const ash_memory__class *life = &o->classes[o->pack->items[i].class];
    return side == RIGHT ? ash_memory__key_i64(life->begin) : ~ash_memory__key_i64(life->end);
}

static uint64_t column_key(const outward *o, uint32_t i, int side) {
    return birth(o, i, side);
}

static uint64_t death_key(const outward *o, uint32_t i, int side) {
    return death(o, i, side);
}

typedef uint64_t item_key(const outward *o, uint32_t i, int side);

/* Items by `key`; among equals as they are in `from`. */
static void sort_items(outward *o, int side, item_key *key, const uint32_t *from, uint32_t *out) {
    uint32_t n = o->pack->count;
    for (uint32_t k = 0; k < n; k++) o->keys[k] = (ash_memory__key){key(o, from[k], side), from[k]};
    ash_memory__sort(o->keys, o->room, n);
    for (uint32_t k = 0; k < n; k++) out[k] = o->keys[k].value;
}

static void sort_all(outward *o) {
    uint32_t n = o->pack->count;
    for (uint32_t i = 0; i < n; i++) o->keys[i] = (ash_memory__key){~o->pack->items[i].size, i};
    ash_memory__sort(o->keys, o->room, n);
    for (uint32_t k = 0; k < n; k++) o->by_size[k] = o->keys[k].value;
    for (int side = 0; side < 2; side++) {
        sort_items(o, side, birth_key, o->by_size, o->births[side][false]);
        sort_items(o, side, column_key, o->by_size, o->births[side][true]);
        sort_items(o, side, death_key, o->by_size, o->deaths[side]);
    }
}

static void measure_load(outward *o) {
    for (uint32_t i = 0; i < o->pack->count; i++) {
        o->load[o->pack->items[i].begin] += o->pack->items[i].size;
        o->load[o->pack->items[i].end] -= o->pack->items[i].size;
    }
    for (uint32_t c = 1; c < o->pack->columns; c++) o->load[c] += o->load[c - 1];
}

static void outward_free(const ash_allocator *a, outward *o) {
    uint32_t n = o->pack->count;
    for (int side = 0; side < 2; side++) {
        for (int k = 0; k < 2; k++) ash_mem_free(a, o->births[side][k], n, sizeof *o->births[side][k]);
        ash_mem_free(a, o->deaths[side], n, sizeof *o->deaths[side]);
    }
    ash_mem_free(a, o->by_size, n, sizeof *o->by_size);
    ash_mem_free(a, o->load, (size_t)o->pack->columns + 1, sizeof *o->load);
    ash_mem_free(a, o->room, n, sizeof *o->room);
    ash_mem_free(a, o->keys, n, sizeof *o->keys);
    ash_mem_free(a, o->runs, 2 * (size_t)n + 2, sizeof *o->runs);
    ash_mem_free(a, o->run_of, n, sizeof *o->run_of);
    ash_mem_free(a, o->core, n, sizeof *o->core);
    ash_mem_free(a, o->trial, n, sizeof *o->trial);
    ash_mem_free(a, o->offsets, n, sizeof *o->offsets);
}

static bool outward_init(const ash_allocator *a, outward *o) {
    uint32_t n = o->pack->count;
    bool ready = true;
    for (int side = 0; side < 2; side++) {
        for (int k = 0; k < 2; k++)
            ready &= (o->births[side][k] = ash_mem_alloc(a, n, sizeof *o->births[side][k])) != NULL;
        ready &= (o->deaths[side] = ash_mem_alloc(a, n, sizeof *o->deaths[side])) != NULL;
    }
    o->by_size = ash_mem_alloc(a, n, sizeof *o->by_size);
    o->load = ash_mem_calloc(a, (size_t)o->pack->columns + 1, sizeof *o->load);
    o->room = ash_mem_alloc(a, n, sizeof *o->room);
    o->keys = ash_mem_alloc(a, n, sizeof *o->keys);
    o->runs = ash_mem_alloc(a, 2 * (size_t)n + 2, sizeof *o->runs);
    o->run_of = ash_mem_alloc(a, n, sizeof *o->run_of);
    o->core = ash_mem_alloc(a, n, sizeof *o->core);
    o->trial = ash_mem_alloc(a, n, sizeof *o->trial);
    o->offsets = ash_mem_alloc(a, n, sizeof *o->offsets);
    return ready && o->by_size && o->load && o->room && o->keys && o->runs && o->run_of && o->core &&
           o->trial && o->offsets;
}

ash_status ash_memory__outward(ash_memory__lowering *l, const ash_memory__class *classes, ash_diag *diag) {
    static const uint64_t shares[] = {UINT64_MAX, 256, 64, 32}; /* windows: load less a share of it */
    const ash_allocator *a = l->allocator;
    const ash_memory__pack *pack = l->pack;
    if (pack->clocks || pack->fixed || !pack->columns) return ASH_OK;
    outward o = {.pack = pack,
                 .classes = classes,
                 .budget = l->budget,
                 .begin = pack->load_at,
                 .end = pack->load_at + 1};
    ash_status status = ASH_OK;
    ASH_FAIL_IF_DONE(!outward_init(a, &o), diag, ASH_ERROR_OUT_OF_MEMORY, "out of memory");
    sort_all(&o);
    measure_load(&o);
    for (size_t w = 0;
         w < ASH_COUNT(shares) && l->peak > l->budget->enough && !ash_memory__spent(l->budget); w++)
        if (w == 0 || widen(&o, pack->load - pack->load / shares[w]))
            ASH_TRY_DONE(pack_around(&o, l, diag));
done:
    outward_free(a, &o);
    return status;
}
