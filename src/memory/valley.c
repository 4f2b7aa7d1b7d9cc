/* SPDX-License-Identifier: MIT */
/* Valley search: builds a packing from the ground up, and is complete.
 *
 * Every column of time has a floor, below which all is decided, and the sum of what is still unplaced
 * there; every item has the lowest offset that the floors under it allow. A valley is a run of columns with
 * one floor between higher ones. For any column of a valley, in a packing pushed down as far as it goes,
 * either some item lies on that floor, and then it lies flat, since it cannot reach past the valley's
 * walls; or nothing does, and the column's floor may rise to the lowest offset at which anything can: the
 * lowest of an item there, or the top of an item still to be placed beside it. Branching on these loses no
 * packing. (Laying items over columns that are not the lowest around closes the holes below them: such a
 * search finds, but cannot refute.)
 *
 * A branch is refuted when a column cannot hold its rest, each item no lower than it may lie. Each
 * refutation is charged to its column, and the next column to branch on is the one with the fewest choices
 * for its charge (dom/wdeg; Boussemart et al., 2004), which finds the columns that make the problem hard.
 * Choices that fill a valley to its walls and those over charged columns come first, then a weight that
 * changes with each restart. Restarts follow Luby's sequence. Runs of columns that no unplaced item joins
 * are solved one by one, so that a failure in one does not search the others again.
 *
 * Limits: no pinned items, no conflict rows, at most VALLEY_ITEMS items (it recurses once per item) and
 * capacities below 2^31 units. */
#include "search.h"

enum { SLOTS_PER_NODE = 8192 }; /* items over columns that a node of the budget pays for */

typedef struct change {
    uint32_t at;  /* column: floor; columns + item: lowest offset; columns + items + item: it was laid */
    uint32_t old; /* before */
} change;

typedef enum outcome { FOUND, REFUTED, SPENT, NO_MEMORY } outcome;

/* Four lowest offsets at a time. */
typedef int32_t lane4 __attribute__((vector_size(16)));

struct ash_memory__valley {
    const ash_allocator *allocator;
    const ash_memory__field *field;
    uint32_t capacity;
    uint32_t *floor, *rest; /* per column */
    uint32_t *across;       /* per column: unplaced items that live in it and in the next */
    uint64_t *blame;        /* per column: refutations charged to it; those of earlier dives count less */
    uint64_t all_blame;
    uint32_t *low;     /* per item: lowest offset */
    uint64_t *weight;  /* per item: greater goes first */
    uint64_t trust;    /* what all the blame adds to it */
    uint64_t snug;     /* what a side that fits adds to it */
    uint64_t *offsets; /* per item, the caller's: ASH_MEMORY__FREE while unplaced */
    int32_t
        *lows; /* per column its items' lowest offsets, LAID for those that are; rows are padded to fours */
    int32_t *sizes;     /* the same rows: the items' sizes, 0 in the padding */
    uint32_t *lows_at;  /* columns + 1 starts of rows */
    uint32_t *slots;    /* per item and column of its life: where its lowest offset is in `lows` */
    uint32_t *slots_at; /* per item */
    size_t lows_count, slots_count;
    uint32_t *on_floor; /* per column: items that can lie on its floor */
    int32_t *next;      /* per column: the lowest offset among the others, or LAID */
    bool *stale;        /* per column: these two are to be counted again */
    ASH_VEC(change) trail;
    ASH_VEC(uint32_t) queue;
    ASH_VEC(uint64_t) rank; /* of the candidates in the queue */
    uint64_t random, nodes;
    uint32_t turn; /* dives that found nothing so far, whatever the capacity: they choose the weights */
    ash_memory__budget *budget;
};
typedef ash_memory__valley valley;

static const int32_t LAID = INT32_MAX;

static uint64_t next_random(valley *v) {
    v->random = v->random * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return v->random >> 33;
}

/* --- weights -------------------------------------------------------------------------------------- */

enum { ONE = 1 << 20 }; /* weights are fractions of it */

static uint64_t base_weight(const ash_memory__field *f, uint32_t i, uint32_t rule) {
    const ash_memory__item *item = &f->items[i];
    const uint32_t columns = ASH_MAX(f->columns, 1u);
    uint64_t span = (uint64_t)(item->end - item->begin) * ONE / columns;
    uint64_t size = item->size * ONE / ASH_MAX(f->largest, 1), heaviest = 0;
    for (uint32_t c = item->begin; c < item->end && rule >= 6; c++)
        heaviest = ASH_MAX(heaviest, f->load[c]);
    switch (rule) {
    case 0: return span;
    case 1: return size;
    case 2: return span * size / ONE;
    case 3: return ONE - (uint64_t)item->begin * ONE / columns;
    case 4: return (uint64_t)item->end * ONE / columns;
    case 5: return (f->row[i + 1] - f->row[i]) * ONE / f->count;
    case 6: return (heaviest * ONE / f->bound + span) / 2;
    default: return (heaviest * ONE / f->bound + size) / 2;
    }
}

static void set_weights(valley *v, uint32_t turn) {
    enum { RULES = 8, ROUNDS = 4 };
    v->trust = turn < RULES ? ONE : 2 * ONE;
    v->snug = turn / RULES % ROUNDS == 1 ? 0 : ONE / 5;
    for (uint32_t i = 0; i < v->field->count; i++) {
        uint64_t weight = base_weight(v->field, i, turn % RULES);
        v->weight[i] =
            turn < RULES ? weight : weight + (weight / 4 + ONE / 200) * (next_random(v) % ONE) / ONE;
    }
}

/* --- moves ---------------------------------------------------------------------------------------- */

static void charge(valley *v, uint32_t column) {
    enum { CHARGE = 64 }; /* so that decay has something to take from */
    v->blame[column] += CHARGE;
    v->all_blame += CHARGE;
}

static void set_low(valley *v, uint32_t i, uint32_t low) {
    const ash_memory__item *item = &v->field->items[i];
    const uint32_t *slot = v->slots + v->slots_at[i];
    v->low[i] = low;
    uint32_t span = item->end - item->begin;
    for (uint32_t k = 0; k < span; k++) v->lows[slot[k]] = (int32_t)low;
    memset(v->stale + item->begin, 1, span);
}

static bool note(valley *v, uint32_t at, uint32_t old) {
    return ash_vec_push(v->allocator, &v->trail, (change){at, old});
}

/* Raises the lowest offset of an unplaced item to `floor`. REFUTED when it then ends above the capacity. */
static outcome lift(valley *v, uint32_t i, uint32_t floor) {
    const ash_memory__item *item = &v->field->items[i];
    uint64_t low = ash_align_up(floor, item->align);
    if (low + item->size > v->capacity) return REFUTED;
    if (!note(v, v->field->columns + i, v->low[i])) return NO_MEMORY;
    set_low(v, i, (uint32_t)low);
    return FOUND;
}

/* Lays an item at its lowest offset. */
static outcome lay(valley *v, uint32_t i) {
    const ash_memory__field *f = v->field;
    const ash_memory__item *item = &f->items[i];
    uint32_t top = v->low[i] + (uint32_t)item->size, low = v->low[i];
    bool fits = true;
    if (!ash_vec_reserve(v->allocator, &v->trail, (size_t)(item->end - item->begin) + 1)) return NO_MEMORY;
    v->offsets[i] = low;
    for (uint32_t c = item->begin; c < item->end; c++) {
        v->trail.at[v->trail.len++] = (change){c, v->floor[c]};
        v->rest[c] -= (uint32_t)item->size;
        v->across[c] -= c + 1 < item->end;
        v->floor[c] = top;
        if (v->rest[c] > v->capacity - top) {
            charge(v, c);
            fits = false;
        }
    }
    v->trail.at[v->trail.len++] = (change){f->columns + f->count + i, low};
    set_low(v, i, (uint32_t)LAID);
    if (!fits) return REFUTED;
    for (size_t k = f->row[i]; k < f->row[i + 1]; k++) {
        uint32_t x = f->conflicts[k];
        if (v->low[x] >= top) continue;
        outcome o = lift(v, x, top);
        if (o != FOUND) return o;
    }
    return FOUND;
}

static void take_back(valley *v, size_t trail) {
    const ash_memory__field *f = v->field;
    while (v->trail.len > trail) {
        change back = v->trail.at[--v->trail.len];
        if (back.at < f->columns) {
            v->floor[back.at] = back.old;
            v->stale[back.at] = true;
            continue;
        }
        bool laid = back.at >= f->columns + f->count;
        uint32_t i = back.at - f->columns - (laid ? f->count : 0);
        set_low(v, i, back.old);
        if (!laid) continue;
        v->offsets[i] = ASH_MEMORY__FREE;
        for (uint32_t c = f->items[i].begin; c < f->items[i].end; c++) {
            v->rest[c] += (uint32_t)f->items[i].size;
            v->across[c] += c + 1 < f->items[i].end;
        }
    }
}

/* --- where to branch ------------------------------------------------------------------------------ */

/* Counts the items of a column that can lie on its floor, and finds the lowest offset among the others. */
static void count_column(valley *v, uint32_t column) {
    int32_t floor = (int32_t)v->floor[column];
    lane4 count = {0}, floors = {floor, floor, floor, floor}, least = {LAID, LAID, LAID, LAID};
    for (uint32_t k = v->lows_at[column]; k < v->lows_at[column + 1]; k += 4) {
        lane4 low;
        memcpy(&low, v->lows + k, sizeof low);
        lane4 on = low == floors, less = (low < least) & ~on;
        count -= on;
        least = (low & less) | (least & ~less);
    }
    int32_t a = ASH_MIN(least[0], least[1]), b = ASH_MIN(least[2], least[3]);
    v->next[column] = ASH_MIN(a, b);
    v->on_floor[column] = (uint32_t)(count[0] + count[1] + count[2] + count[3]);
    v->stale[column] = false;
}

/* Release dates: whether the column holds its rest when each item lies no lower than it may. From level to
 * level, what may lie there is piled up; where nothing may, the column wastes up to the next. */
static bool column_fits(const valley *v, uint32_t column) {
    uint32_t floor = v->floor[column], rest = v->rest[column], sum = 0, waste = 0;
    uint32_t slack = v->capacity - rest - floor;
    for (;;) {
        int32_t level = (int32_t)(floor + waste + sum);
        lane4 levels = {level, level, level, level}, sums = {0}, least = {LAID, LAID, LAID, LAID};
        for (uint32_t k = v->lows_at[column]; k < v->lows_at[column + 1]; k += 4) {
            lane4 low, size;
            memcpy(&low, v->lows + k, sizeof low);
            memcpy(&size, v->sizes + k, sizeof size);
            lane4 may = low <= levels, less = (low < least) & ~may;
            sums += size & may;
            least = (low & less) | (least & ~less);
        }
        uint32_t piled = (uint32_t)(sums[0] + sums[1] + sums[2] + sums[3]);
        if (piled == rest) return true;
        if (piled > sum) {
            sum = piled;
            continue;
        }
        int32_t a = ASH_MIN(least[0], least[1]), b = ASH_MIN(least[2], least[3]);
        waste += (uint32_t)(ASH_MIN(a, b) - level);
        if (waste > slack) return false;
    }
}

typedef struct branch {
    uint32_t column; /* NONE: nothing is left to place */
    uint32_t choices;
    uint32_t floor, slack; /* what the column may still waste */
    int32_t next;          /* the lowest offset above the floor */
} branch;

/* Whether `a` is the better place to branch: fewer choices for the blame, then the lower floor, then the
 * less slack. */
static bool better(const valley *v, const branch *a, const branch *b) {
    if (b->column == ASH_MEMORY_NONE) return true;
    uint64_t one = a->choices == 1, other = b->choices == 1;
    if (one != other) return one;
    if (!one) {
        enum { MOST = 1 << 12 };
        uint64_t x = (uint64_t)ASH_MIN(a->choices, MOST) * ASH_MIN(a->choices, MOST);
        uint64_t y = (uint64_t)ASH_MIN(b->choices, MOST) * ASH_MIN(b->choices, MOST);
        x *= v->blame[b->column] + 64;
        y *= v->blame[a->column] + 64;
        if (x != y) return x < y;
    }
    if (a->floor != b->floor) return a->floor < b->floor;
    return a->slack < b->slack;
}

/* The column of some valley to branch on, `best->column` being NONE before. False: some column can no
 * longer be filled. */
static bool choose(valley *v, uint32_t begin, uint32_t end, branch *best) {
    for (uint32_t from = begin, to; from < end; from = to) {
        to = from + 1;
        if (!v->rest[from]) continue;
        uint32_t floor = v->floor[from];
        while (to < end && v->rest[to] && v->floor[to] == floor) to++;
        bool valley_here = (from == begin || !v->rest[from - 1] || v->floor[from - 1] > floor) &&
                           (to == end || !v->rest[to] || v->floor[to] > floor);
        for (uint32_t c = from; c < to; c++) {
            branch b = {.column = c, .floor = floor, .slack = v->capacity - v->rest[c] - floor};
            if (v->stale[c]) {
                count_column(v, c);
                if (v->next[c] != LAID && !column_fits(v, c)) {
                    v->stale[c] = true;
                    charge(v, c);
                    return false;
                }
            }
            uint32_t on_floor = v->on_floor[c];
            b.next = v->next[c];
            bool may_rise = (uint32_t)b.next <= floor + b.slack;
            if (!valley_here) continue;
            b.choices = on_floor + (b.slack && (on_floor || may_rise));
            if (better(v, &b, best)) *best = b;
        }
    }
    return true;
}

/* --- what to try ---------------------------------------------------------------------------------- */

/* How well an item on the floor fits between the walls: its sides that touch one, twice where the tops are
 * level too. */
static uint32_t snugness(const valley *v, const ash_memory__item *item, uint32_t floor) {
    uint32_t top = floor + (uint32_t)item->size, snug = 0;
    const uint32_t beside[2] = {item->begin - 1, item->end};
    const bool outside[2] = {item->begin == 0, item->end == v->field->columns};
    for (int k = 0; k < 2; k++) {
        if (outside[k] || !v->rest[beside[k]])
            snug++;
        else if (v->floor[beside[k]] > floor)
            snug += 1 + (v->floor[beside[k]] == top);
    }
    return snug;
}

static uint64_t rank_of(const valley *v, uint32_t i, uint32_t floor) {
    const ash_memory__item *item = &v->field->items[i];
    uint64_t blame = 0;
    for (uint32_t c = item->begin; c < item->end; c++) blame += v->blame[c];
    return v->weight[i] + snugness(v, item, floor) * v->snug +
           (v->all_blame ? blame * v->trust / v->all_blame : 0);
}

static bool same_shape(const ash_memory__item *a, const ash_memory__item *b) {
    return a->begin == b->begin && a->end == b->end && a->size == b->size && a->align == b->align;
}

/* Queues the items that can lie on the column's floor, best rank first; of twins only one. */
static bool enqueue(valley *v, uint32_t column, uint32_t floor) {
    const ash_memory__field *f = v->field;
    size_t first = v->queue.len;
    for (uint32_t k = f->column_at[column]; k < f->column_at[column + 1]; k++) {
        uint32_t x = f->column_items[k];
        if (v->low[x] != floor) continue;
        bool twin = false;
        for (size_t q = first; q < v->queue.len && !twin; q++)
            twin = same_shape(&f->items[v->queue.at[q]], &f->items[x]);
        if (twin) continue;
        uint64_t rank = rank_of(v, x, floor);
        if (!ash_vec_push(v->allocator, &v->queue, x) || !ash_vec_push(v->allocator, &v->rank, rank))
            return false;
        size_t at = v->queue.len - 1;
        for (; at > first && v->rank.at[at - 1] < rank; at--) {
            v->queue.at[at] = v->queue.at[at - 1];
            v->rank.at[at] = v->rank.at[at - 1];
        }
        v->queue.at[at] = x;
        v->rank.at[at] = rank;
    }
    return true;
}

/* --- the search ----------------------------------------------------------------------------------- */

/* Takes one node; false when none is left. */
static bool take_node(valley *v) {
    if (!v->nodes || (v->nodes % 256 == 0 && ash_memory__spent(v->budget))) return false;
    v->nodes--;
    return true;
}

static outcome solve(valley *v, uint32_t begin, uint32_t end);

/* Solves each run of columns that no unplaced item joins to the next. */
static outcome solve_parts(valley *v, uint32_t begin, uint32_t end) {
    for (uint32_t from = begin, c = begin; c < end; c++) {
        if (c + 1 < end && v->across[c]) continue;
        outcome o = solve(v, from, c + 1);
        if (o != FOUND) return o;
        from = c + 1;
    }
    return FOUND;
}

/* Nothing lies on the floor of the column: it rises to where something can, or the branch is refuted. */
static outcome raise_floor(valley *v, const branch *b, uint32_t begin, uint32_t end) {
    const ash_memory__field *f = v->field;
    uint64_t level = b->next == LAID ? UINT64_MAX : (uint64_t)b->next;
    for (uint32_t i = 0; i < f->count && b->choices > 1; i++) {
        const ash_memory__item *item = &f->items[i];
        bool here = item->begin < end && item->end > begin,
             over = item->begin <= b->column && item->end > b->column;
        if (here && !over && v->low[i] != (uint32_t)LAID) level = ASH_MIN(level, v->low[i] + item->size);
    }
    level = ASH_MAX(level, (uint64_t)b->floor + 1);
    if (level > (uint64_t)b->floor + b->slack) return REFUTED;
    if (!take_node(v)) return SPENT;
    if (!note(v, b->column, b->floor)) return NO_MEMORY;
    v->floor[b->column] = (uint32_t)level;
    v->stale[b->column] = true;
    for (uint32_t k = f->column_at[b->column]; k < f->column_at[b->column + 1]; k++) {
        uint32_t x = f->column_items[k];
        if (v->low[x] >= level) continue;
        outcome o = lift(v, x, (uint32_t)level);
        if (o != FOUND) return o;
    }
    return solve(v, begin, end);
}

static outcome solve(valley *v, uint32_t begin, uint32_t end) {
    while (begin < end && !v->rest[begin]) begin++;
    while (begin < end && !v->rest[end - 1]) end--;
    branch b = {.column = ASH_MEMORY_NONE};
    if (!choose(v, begin, end, &b)) return REFUTED;
    if (b.column == ASH_MEMORY_NONE) return FOUND;
    size_t first = v->queue.len, trail = v->trail.len;
    if (!enqueue(v, b.column, b.floor)) return NO_MEMORY;
    size_t last = v->queue.len;
    outcome o = REFUTED;
    for (size_t k = first; k < last && o == REFUTED; k++) {
        if (!take_node(v)) return SPENT;
        o = lay(v, v->queue.at[k]);
        if (o == FOUND) o = solve_parts(v, begin, end);
        if (o == REFUTED) take_back(v, trail);
    }
    v->queue.len = v->rank.len = first;
    if (o != REFUTED || !b.slack) return o;
    o = raise_floor(v, &b, begin, end);
    if (o == REFUTED) take_back(v, trail);
    return o;
}

static uint64_t luby(uint64_t i) {
    for (uint64_t k = 1;; k++) {
        uint64_t size = (UINT64_C(1) << k) - 1;
        if (i == size) return UINT64_C(1) << (k - 1);
        if (i < size) {
            i -= (size - 1) / 2;
            k = 0;
        }
    }
}

static void restart(valley *v, uint32_t turn) {
    const ash_memory__field *f = v->field;
    v->trail.len = v->queue.len = v->rank.len = 0;
    v->all_blame = 0;
    for (uint32_t c = 0; c < f->columns; c++) {
        v->floor[c] = v->across[c] = 0;
        v->rest[c] = (uint32_t)f->load[c];
        v->stale[c] = true;
        v->blame[c] -= v->blame[c] / 8;
        v->all_blame += v->blame[c];
    }
    for (uint32_t i = 0; i < f->count; i++) {
        v->offsets[i] = ASH_MEMORY__FREE;
        set_low(v, i, 0);
        for (uint32_t c = f->items[i].begin; c + 1 < f->items[i].end; c++) v->across[c]++;
    }
    set_weights(v, turn);
}

/* --- tables --------------------------------------------------------------------------------------- */

static bool make_tables(valley *v) {
    const ash_memory__field *f = v->field;
    const ash_allocator *a = v->allocator;
    v->floor = ash_mem_alloc(a, f->columns, sizeof *v->floor);
    v->rest = ash_mem_alloc(a, f->columns, sizeof *v->rest);
    v->across = ash_mem_alloc(a, f->columns, sizeof *v->across);
    v->blame = ash_mem_calloc(a, f->columns, sizeof *v->blame);
    v->on_floor = ash_mem_alloc(a, f->columns, sizeof *v->on_floor);
    v->next = ash_mem_alloc(a, f->columns, sizeof *v->next);
    v->stale = ash_mem_alloc(a, f->columns, sizeof *v->stale);
    v->low = ash_mem_alloc(a, f->count, sizeof *v->low);
    v->weight = ash_mem_alloc(a, f->count, sizeof *v->weight);
    v->slots_at = ash_mem_alloc(a, f->count, sizeof *v->slots_at);
    v->lows_at = ash_mem_alloc(a, (size_t)f->columns + 1, sizeof *v->lows_at);
    if (!v->floor || !v->rest || !v->across || !v->blame || !v->on_floor || !v->next || !v->stale ||
        !v->low || !v->weight || !v->slots_at || !v->lows_at)
        return false;
    v->lows_at[0] = 0;
    for (uint32_t c = 0; c < f->columns; c++) {
        uint32_t items = f->column_at[c + 1] - f->column_at[c];
        v->lows_at[c + 1] = v->lows_at[c] + (items + 3) / 4 * 4;
        v->floor[c] = v->lows_at[c]; /* the next free slot, until the first restart */
    }
    v->lows_count = v->lows_at[f->columns];
    v->slots_count = f->column_at[f->columns];
    v->lows = ash_mem_alloc(a, v->lows_count, sizeof *v->lows);
    v->slots = ash_mem_alloc(a, v->slots_count, sizeof *v->slots);
    v->sizes = ash_mem_calloc(a, v->lows_count, sizeof *v->sizes);
    if (!v->lows || !v->slots || !v->sizes) return false;
    for (size_t k = 0; k < v->lows_count; k++) v->lows[k] = LAID;
    uint32_t at = 0;
    for (uint32_t i = 0; i < f->count; i++) {
        v->slots_at[i] = at;
        for (uint32_t c = f->items[i].begin; c < f->items[i].end; c++) {
            v->sizes[v->floor[c]] = (int32_t)f->items[i].size;
            v->slots[at++] = v->floor[c]++;
        }
    }
    return true;
}

static void free_tables(valley *v) {
    const ash_memory__field *f = v->field;
    const ash_allocator *a = v->allocator;
    ash_vec_free(a, &v->rank);
    ash_vec_free(a, &v->queue);
    ash_vec_free(a, &v->trail);
    ash_mem_free(a, v->slots, v->slots_count, sizeof *v->slots);
    ash_mem_free(a, v->sizes, v->lows_count, sizeof *v->sizes);
    ash_mem_free(a, v->lows, v->lows_count, sizeof *v->lows);
    ash_mem_free(a, v->lows_at, (size_t)f->columns + 1, sizeof *v->lows_at);
    ash_mem_free(a, v->slots_at, f->count, sizeof *v->slots_at);
    ash_mem_free(a, v->weight, f->count, sizeof *v->weight);
    ash_mem_free(a, v->low, f->count, sizeof *v->low);
    ash_mem_free(a, v->stale, f->columns, sizeof *v->stale);
    ash_mem_free(a, v->next, f->columns, sizeof *v->next);
    ash_mem_free(a, v->on_floor, f->columns, sizeof *v->on_floor);
    ash_mem_free(a, v->blame, f->columns, sizeof *v->blame);
    ash_mem_free(a, v->across, f->columns, sizeof *v->across);
    ash_mem_free(a, v->rest, f->columns, sizeof *v->rest);
    ash_mem_free(a, v->floor, f->columns, sizeof *v->floor);
}

ash_status ash_memory__valley_create(const ash_allocator *a, const ash_memory__field *f,
                                     ash_memory__valley **out, ash_diag *diag) {
    valley *v = *out = ash_mem_calloc(a, 1, sizeof *v);
    if (!v) return ASH_NO_MEMORY(diag);
    v->allocator = a;
    v->field = f;
    if (make_tables(v)) return ASH_OK;
    ash_memory__valley_destroy(v);
    *out = NULL;
    return ASH_NO_MEMORY(diag);
}

void ash_memory__valley_destroy(ash_memory__valley *v) {
    if (!v) return;
    free_tables(v);
    ash_mem_free(v->allocator, v, 1, sizeof *v);
}

ash_status ash_memory__valley_try(ash_memory__valley *v, ash_memory__limits limits,
                                  ash_memory__budget *budget, uint64_t *offsets,
                                  ash_memory__verdict *verdict, ash_diag *diag) {
    uint64_t cost = 1 + v->slots_count / SLOTS_PER_NODE, nodes = limits.nodes;
    v->capacity = (uint32_t)limits.capacity;
    v->offsets = offsets;
    v->budget = budget;
    *verdict = ASH_MEMORY__UNKNOWN;
    for (uint32_t k = 0; nodes && *verdict == ASH_MEMORY__UNKNOWN && !ash_memory__spent(budget); k++) {
        uint64_t share = ASH_MIN(ASH_MIN(nodes, budget->nodes / cost + 1), limits.dive * luby(k / 4 + 1));
        v->nodes = share;
        restart(v, v->turn);
        outcome o = solve_parts(v, 0, v->field->columns);
        ASH_FAIL_IF(o == NO_MEMORY, diag, ASH_ERROR_OUT_OF_MEMORY, "out of memory");
        if (o == SPENT)
            v->turn++;
        else
            *verdict = o == FOUND ? ASH_MEMORY__FOUND : ASH_MEMORY__REFUTED;
        nodes -= share - v->nodes;
        ash_memory__spend(budget, (share - v->nodes) * cost + 1);
    }
    return ASH_OK;
}
