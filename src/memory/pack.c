/* SPDX-License-Identifier: MIT */
/* From the classes of a lane to a pack: sizes in units, lifetimes in columns, and the load, which bounds
 * every packing.
 *
 * Time shrinks to its maximal cliques: only a moment at which something has just begun and something is
 * about to end can be the peak, and two classes are live together exactly when they share such a moment.
 * Sizes shrink by their common divisor: a packing pushed down as far as it goes has every offset at a sum
 * of sizes (or at a pinned end), so no packing is lost. Where an alignment does not divide that unit it
 * stays as a rule for the item. */
#include "pack.h"

/* --- units ---------------------------------------------------------------------------------------- */

/* Fills items with sizes and offsets in bytes, rounded to the granule, then divides all by the common
 * divisor. */
static ash_status set_units(ash_memory__pack *pack, ash_diag *diag) {
    uint64_t unit = 0, most = 1, total = 0, pins = 0;
    for (uint32_t i = 0; i < pack->count; i++) {
        ash_memory__item *item = &pack->items[i];
        uint64_t end = ash_align_up(item->size, pack->granule);
        if (item->class == ASH_MEMORY_NONE) {
            end = ash_align_up(item->pinned + item->size, pack->granule);
            item->pinned -= item->pinned % pack->granule;
            end -= item->pinned;
        }
        item->size = end;
        ASH_FAIL_IF(!ash_add_u64(total, item->size, &total) || total > UINT64_C(1) << 62, diag,
                    ASH_ERROR_OUT_OF_RANGE, "the sizes in one lane add up to more than 2^62 bytes");
        unit = ash_memory__gcd(unit, item->size);
        if (item->pinned != ASH_MEMORY__FREE) {
            pack->fixed++;
            unit = ash_memory__gcd(unit, item->pinned);
            pins = ASH_MAX(pins, item->pinned + item->size);
        } else {
            most = ASH_MAX(most, item->align);
        }
    }
    ASH_FAIL_IF(pins > UINT64_C(1) << 62, diag, ASH_ERROR_OUT_OF_RANGE,
                "a pinned buffer or hole ends past 2^62 bytes");
    pack->unit =
        unit ? ash_memory__gcd(unit, most) == most ? unit : ash_memory__gcd(unit, pack->granule) : 1;
    for (uint32_t i = 0; i < pack->count; i++) {
        ash_memory__item *item = &pack->items[i];
        item->size /= pack->unit;
        if (item->pinned != ASH_MEMORY__FREE) item->pinned /= pack->unit;
        item->align =
            item->pinned != ASH_MEMORY__FREE || item->align <= ash_memory__gcd(pack->unit, item->align)
                ? 1
                : (uint32_t)(item->align / ash_memory__gcd(pack->unit, item->align));
        pack->aligned |= item->align > 1;
    }
    return ASH_OK;
}

/* --- the load ------------------------------------------------------------------------------------- */

/* The least height under which `amount` units fit around the fixed items of a column, `fixed` in order of
 * offset. */
static uint64_t fill_level(const ash_memory__pack *pack, const ash_memory__key *fixed, uint32_t count,
                           uint32_t column, uint64_t amount) {
    uint64_t cursor = 0, tenants = 0;
    for (uint32_t i = 0; i < count; i++) {
        const ash_memory__item *f = &pack->items[fixed[i].value];
        if (column < f->begin || column >= f->end) continue;
        if (f->class != ASH_MEMORY_NONE) tenants = ASH_MAX(tenants, f->pinned + f->size);
        uint64_t gap = f->pinned > cursor ? f->pinned - cursor : 0;
        if (amount && amount <= gap) {
            tenants = ASH_MAX(tenants, cursor + amount);
            amount = 0;
        }
        amount -= ASH_MIN(amount, gap);
        cursor = ASH_MAX(cursor, f->pinned + f->size);
    }
    return amount ? ASH_MAX(tenants, cursor + amount) : tenants;
}

/* Live units per column; with fixed items around them, where that is not too much work. Returns the column
 * of the load. */
static ash_status find_load(const ash_allocator *a, ash_memory__pack *pack, uint32_t *column,
                            ash_diag *diag) {
    const uint64_t LEVEL_WORK =
        1 << 25; /* columns x fixed items past which only the heaviest column is filled around */
    uint64_t *rise = ash_mem_calloc(a, (size_t)pack->columns + 1, sizeof *rise);
    ash_memory__key *fixed = ash_mem_alloc(a, pack->fixed * 2, sizeof *fixed);
    ash_status status = ASH_OK;
    ASH_FAIL_IF_DONE(!rise || !fixed, diag, ASH_ERROR_OUT_OF_MEMORY, "out of memory");
    uint32_t count = 0;
    for (uint32_t i = 0; i < pack->count; i++) {
        const ash_memory__item *item = &pack->items[i];
        if (item->pinned != ASH_MEMORY__FREE) {
            fixed[count++] = (ash_memory__key){item->pinned, i};
            if (item->class != ASH_MEMORY_NONE && item->pinned + item->size > pack->load) {
                pack->load = item->pinned + item->size;
                *column = item->begin;
            }
            continue;
        }
        rise[item->begin] += item->size;
        rise[item->end] -= item->size;
    }
    ash_memory__sort(fixed, fixed + pack->fixed, count);
    uint64_t live = 0, heaviest = 0;
    uint32_t heaviest_column = 0;
    bool all = (uint64_t)pack->columns * count <= LEVEL_WORK;
    for (uint32_t c = 0; c < pack->columns; c++) {
        live += rise[c];
        if (live > heaviest) {
            heaviest = live;
            heaviest_column = c;
        }
        uint64_t level = all && count ? fill_level(pack, fixed, count, c, live) : live;
        if (level > pack->load) {
            pack->load = level;
            *column = c;
        }
    }
    if (!all && pack->columns) {
        uint64_t level = fill_level(pack, fixed, count, heaviest_column, heaviest);
        if (level > pack->load) {
            pack->load = level;
            *column = heaviest_column;
        }
    }
done:
    ash_mem_free(a, fixed, pack->fixed * 2, sizeof *fixed);
    ash_mem_free(a, rise, (size_t)pack->columns + 1, sizeof *rise);
    return status;
}

/* --- columns -------------------------------------------------------------------------------------- */

static void item_times(const ash_memory__instance *in, const ash_memory__item *item, uint32_t hole,
                       int64_t *begin, int64_t *end) {
    if (item->class != ASH_MEMORY_NONE) {
        *begin = in->classes[item->class].begin;
        *end = in->classes[item->class].end;
    } else {
        *begin = in->streams ? INT64_MIN : in->problem->holes[hole].begin;
        *end = in->streams ? INT64_MAX : in->problem->holes[hole].end;
    }
}

/* Sorts the items by birth and gives them columns. Before, `end` of a hole's item is its number. */
static ash_status set_columns(const ash_memory__instance *in, ash_memory__pack *pack, int64_t **column_time,
                              ash_diag *diag) {
    const ash_allocator *a = in->allocator;
    uint32_t n = pack->count;
    ash_memory__key *births = ash_mem_alloc(a, n, sizeof *births),
                    *deaths = ash_mem_alloc(a, n, sizeof *deaths);
    ash_memory__key *room = ash_mem_alloc(a, n, sizeof *room);
    ash_memory__item *sorted = ash_mem_alloc(a, pack->room, sizeof *sorted);
    *column_time = ash_mem_alloc(a, n, sizeof **column_time);
    ash_status status = ASH_OK;
    ASH_FAIL_IF_DONE(!births || !deaths || !room || !sorted || !*column_time, diag, ASH_ERROR_OUT_OF_MEMORY,
                     "out of memory");
    for (uint32_t i = 0; i < n; i++) {
        int64_t begin, end;
        item_times(in, &pack->items[i], pack->items[i].end, &begin, &end);
        births[i] = (ash_memory__key){ash_memory__key_i64(begin), i};
    }
    ash_memory__sort(births, room, n);
    for (uint32_t i = 0; i < n; i++) {
        int64_t begin, end;
        sorted[i] = pack->items[births[i].value];
        item_times(in, &sorted[i], sorted[i].end, &begin, &end);
        deaths[i] = (ash_memory__key){ash_memory__key_i64(end), i};
    }
    ash_memory__sort(deaths, room, n);
    uint32_t column = 0, dead = 0;
    bool open = false; /* something has begun in this column */
    for (uint32_t i = 0; i <= n; i++) {
        for (; dead < n && (i == n || deaths[dead].key <= births[i].key); dead++) {
            column += open;
            open = false;
            sorted[deaths[dead].value].end = column;
        }
        if (i == n) break;
        sorted[i].begin = column;
        (*column_time)[column] = (int64_t)(births[i].key ^ (UINT64_C(1) << 63));
        open = true;
    }
    pack->columns = column;
    ash_memory__item *swap = pack->items;
    pack->items = sorted;
    sorted = swap;
done:
    ash_mem_free(a, sorted, pack->room, sizeof *sorted);
    ash_mem_free(a, room, n, sizeof *room);
    ash_mem_free(a, deaths, n, sizeof *deaths);
    ash_mem_free(a, births, n, sizeof *births);
    return status;
}

static bool live(const ash_memory__instance *in, uint32_t class) {
    const ash_memory__class *c = &in->classes[class];
    if (in->streams < 2) return c->begin < c->end;
    for (size_t s = (size_t)class * in->streams, end = s + in->streams; s < end; s++)
        if (in->release[s] > in->acquire[s]) return true;
    return false;
}

ash_status ash_memory__pack_init(ash_memory__instance *in, uint32_t lane, const uint32_t *classes,
                                 uint32_t count, ash_memory__pack *pack, ash_diag *diag) {
    const ash_allocator *a = in->allocator;
    const ash_memory_problem *problem = in->problem;
    uint32_t holes = 0;
    for (uint32_t i = 0; i < problem->hole_count; i++) holes += problem->holes[i].lane == in->lanes[lane];
    pack->room = count + holes;
    pack->granule = UINT64_MAX;
    pack->items = ash_mem_alloc(a, pack->room, sizeof *pack->items);
    uint32_t *live_classes = ash_mem_alloc(a, count, sizeof *live_classes);
    int64_t *column_time = NULL;
    uint32_t live_count = 0, column = 0;
    ash_status status = ASH_OK;
    ASH_FAIL_IF_DONE(!pack->items || !live_classes, diag, ASH_ERROR_OUT_OF_MEMORY, "out of memory");
    for (uint32_t i = 0; i < count; i++) {
        ash_memory__class *c = &in->classes[classes[i]];
        if (in->streams == 1) {
            c->begin = in->acquire[classes[i]];
            c->end = in->release[classes[i]];
        }
        if (c->size) pack->granule = ASH_MIN(pack->granule, c->align);
        if (c->size && live(in, classes[i]))
            live_classes[live_count++] = classes[i];
        else
            pack->least =
                ASH_MAX(pack->least, c->pinned == ASH_MEMORY_UNPINNED ? c->size : c->pinned + c->size);
    }
    if (pack->granule == UINT64_MAX) pack->granule = 1;
    if (in->streams > 1) ASH_TRY_DONE(ash_memory__clocks_order(in, live_classes, live_count, diag));
    for (uint32_t i = 0; i < problem->hole_count; i++) {
        const ash_memory_hole *h = &problem->holes[i];
        if (h->lane != in->lanes[lane] || !h->size || (!in->streams && h->begin == h->end)) continue;
        pack->items[pack->count++] = (ash_memory__item){
            .size = h->size, .pinned = h->offset, .end = i, .class = ASH_MEMORY_NONE, .align = 1};
    }
    for (uint32_t i = 0; i < live_count; i++) {
        const ash_memory__class *c = &in->classes[live_classes[i]];
        pack->items[pack->count++] =
            (ash_memory__item){.size = c->size,
                               .pinned = c->pinned == ASH_MEMORY_UNPINNED ? ASH_MEMORY__FREE : c->pinned,
                               .class = live_classes[i],
                               .align = (uint32_t)c->align};
    }
    ASH_TRY_DONE(set_columns(in, pack, &column_time, diag));
    ASH_TRY_DONE(set_units(pack, diag));
    if (in->streams > 1) {
        ASH_TRY_DONE(ash_memory__clocks_conflicts(in, pack, diag));
    } else {
        ASH_TRY_DONE(find_load(a, pack, &column, diag));
        pack->moment = pack->count ? column_time[column] : in->horizon_begin;
        pack->load_at = column;
    }
done:
    ash_mem_free(a, column_time, pack->count, sizeof *column_time);
    ash_mem_free(a, live_classes, count, sizeof *live_classes);
    return status;
}

void ash_memory__pack_free(const ash_allocator *a, ash_memory__pack *pack) {
    ash_mem_free(a, pack->conflicts, pack->row ? pack->row[pack->count] : 0, sizeof *pack->conflicts);
    ash_mem_free(a, pack->row, (size_t)pack->count + 1, sizeof *pack->row);
    ash_mem_free(a, pack->items, pack->room, sizeof *pack->items);
    *pack = (ash_memory__pack){0};
}

uint64_t ash_memory__peak(const ash_memory__pack *pack, const uint64_t *offsets) {
    uint64_t peak = 0;
    for (uint32_t i = 0; i < pack->count; i++)
        if (pack->items[i].class != ASH_MEMORY_NONE) peak = ASH_MAX(peak, offsets[i] + pack->items[i].size);
    return peak;
}

uint32_t ash_memory__moment(const ash_memory__instance *in, const ash_memory__pack *pack, int64_t *cut,
                            uint32_t *roots) {
    uint32_t count = 0;
    if (in->streams > 1) ash_memory__cut(in, pack, cut);
    for (uint32_t i = 0; i < pack->count; i++) {
        const ash_memory__item *item = &pack->items[i];
        if (item->class == ASH_MEMORY_NONE) continue;
        bool there = in->streams > 1 ? ash_memory__live_at(in, item->class, cut)
                                     : item->begin <= pack->load_at && pack->load_at < item->end;
        if (there) roots[count++] = in->classes[item->class].root;
    }
    /* Heap sort: in place, and the caller has room for no more. */
    for (uint32_t heap = count / 2, end = count; end > 1;) {
        uint32_t moved;
        if (heap) {
            moved = roots[--heap];
        } else {
            moved = roots[--end];
            roots[end] = roots[0];
        }
        uint32_t at = heap;
        for (uint32_t child; (child = 2 * at + 1) < end; at = child) {
            if (child + 1 < end && roots[child + 1] > roots[child]) child++;
            if (moved >= roots[child]) break;
            roots[at] = roots[child];
        }
        roots[at] = moved;
    }
    return count;
}
