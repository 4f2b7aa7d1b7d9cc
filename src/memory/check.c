/* SPDX-License-Identifier: MIT */
/* The checker: derives everything again from the problem and judges places, whoever made them. It shares no
 * code with the planners, their sorting included, and decides by another method: where they pack
 * rectangles, it replays time.
 *
 * Events are the births of roots (and of holes) in an order that the lifetimes allow. The bytes of an
 * arena, cut at every border of a tenant, carry the clock at which their latest tenant ends. A birth asks
 * for the largest such clock over its bytes, which must not exceed its own beginning, and then leaves its
 * end there. Since each tenant came after the last, the last stands for all before it; one comparison per
 * stream settles a birth against the whole history of its bytes. A tree over the cut bytes does both in log
 * n. */
#include "ashlar/memory.h"
#include "base/base.h"

typedef struct event {
    uint64_t order; /* position in time */
    uint64_t who;   /* root, or HOLE and the number of one */
} event;

#define HOLE (UINT64_C(1) << 32)

static bool is_hole(const event *e) {
    return e->who >= HOLE;
}

static uint32_t number_of(const event *e) {
    return (uint32_t)e->who;
}

/* A tree over the pieces of an arena: per node the largest clock in it, and the largest put on all of it at
 * once. */
typedef struct history {
    int64_t *most, *whole; /* 2 * pieces each */
} history;

typedef struct checker {
    const ash_allocator *allocator;
    const ash_memory_problem *problem;
    const ash_memory_place *places;
    const ash_memory_arena *arenas;
    size_t arena_count;
    uint32_t clock;             /* numbers in a lifetime's end, 1 for intervals */
    int64_t *from, *to;         /* lifetimes of roots: buffer_count clocks each */
    int64_t first, last;        /* the whole program's */
    event *events, *event_room; /* of one arena after the other */
    size_t *event_at;           /* arena_count + 1 starts */
    size_t event_count;
    uint64_t *borders; /* of one arena, increasing: 2 per event */
    size_t border_count;
    history *tenants; /* per stream */
    history *holes;
    int64_t *trees;
    ash_memory_check_report *report;
} checker;

#define FOUND(diag, ...) return ash_fail((diag), ASH_ERROR_INTERNAL, __VA_ARGS__)

/* --- places, one by one --------------------------------------------------------------------------- */

/* What the arithmetic below relies on: lists that are there, and numbers with room above them. */
static ash_status check_form(const ash_memory_problem *problem, ash_diag *diag) {
    const int64_t most = INT64_C(1) << 62;
    ASH_FAIL_IF((problem->buffer_count && !problem->buffers) || (problem->hole_count && !problem->holes),
                diag, ASH_ERROR_INVALID_ARGUMENT, "the buffers or the holes are NULL");
    ASH_FAIL_IF(problem->streams && problem->buffer_count && (!problem->acquire || !problem->release), diag,
                ASH_ERROR_INVALID_ARGUMENT, "streams without clocks");
    for (uint32_t i = 0; i < problem->hole_count; i++) {
        const ash_memory_hole *h = &problem->holes[i];
        ASH_FAIL_IF(h->size > UINT64_MAX - h->offset, diag, ASH_ERROR_OUT_OF_RANGE,
                    "hole %u ends past 64 bits", i);
    }
    for (uint32_t i = 0; i < problem->buffer_count && !problem->streams; i++)
        ASH_FAIL_IF(problem->buffers[i].begin < -most || problem->buffers[i].end > most, diag,
                    ASH_ERROR_OUT_OF_RANGE, "the lifetime of buffer %u leaves 62 bits", i);
    for (size_t i = 0; i < problem->buffer_count * problem->streams; i++)
        ASH_FAIL_IF(problem->acquire[i] < 0 || problem->acquire[i] > most || problem->release[i] < 0 ||
                        problem->release[i] > most,
                    diag, ASH_ERROR_OUT_OF_RANGE, "a clock of buffer %zu leaves 62 bits",
                    i / problem->streams);
    return ASH_OK;
}

static ash_status check_place(const checker *c, uint32_t i, ash_diag *diag) {
    const ash_memory_buffer *b = &c->problem->buffers[i];
    const ash_memory_place *p = &c->places[i];
    bool member = b->root != ASH_MEMORY_NONE;
    if (member &&
        (b->root >= c->problem->buffer_count || c->problem->buffers[b->root].root != ASH_MEMORY_NONE))
        FOUND(diag, "buffer %u lies in %u, which is no root", i, b->root);
    if (member && c->places[b->root].arena != p->arena)
        FOUND(diag, "buffer %u and its root %u are in different arenas", i, b->root);
    if (p->arena == ASH_MEMORY_NONE) {
        ash_memory_kind kind = c->problem->buffers[member ? b->root : i].kind;
        if (b->pinned != ASH_MEMORY_UNPINNED)
            FOUND(diag, "buffer %u has no place, but is pinned at %llu", i, (unsigned long long)b->pinned);
        if (kind != ASH_MEMORY_PARAMETER && kind != ASH_MEMORY_INPUT && kind != ASH_MEMORY_CONSTANT)
            FOUND(diag, "buffer %u has no place, and no one else can give it one", i);
        return ASH_OK;
    }
    if (p->arena >= c->arena_count)
        FOUND(diag, "buffer %u is in arena %u of %zu", i, p->arena, c->arena_count);
    const ash_memory_arena *arena = &c->arenas[p->arena];
    uint64_t align = b->align ? b->align : 1;
    if (arena->lane != b->lane)
        FOUND(diag, "buffer %u of lane %u is in an arena of lane %u", i, b->lane, arena->lane);
    if (p->offset > arena->size || b->size > arena->size - p->offset)
        FOUND(diag, "buffer %u, %llu bytes at %llu, leaves its arena of %llu", i,
              (unsigned long long)b->size, (unsigned long long)p->offset, (unsigned long long)arena->size);
    if (p->offset % align || arena->align % align)
        FOUND(diag, "buffer %u at %llu misses its alignment %llu (the arena has %llu)", i,
              (unsigned long long)p->offset, (unsigned long long)align, (unsigned long long)arena->align);
    if (b->pinned != ASH_MEMORY_UNPINNED && b->pinned != p->offset)
        FOUND(diag, "buffer %u is at %llu, but pinned at %llu", i, (unsigned long long)p->offset,
              (unsigned long long)b->pinned);
    if (!member) return ASH_OK;
    const ash_memory_buffer *root = &c->problem->buffers[b->root];
    if (p->offset < c->places[b->root].offset || p->offset - c->places[b->root].offset != b->root_offset)
        FOUND(diag, "buffer %u is at %llu, its root %u at %llu: not %llu apart", i,
              (unsigned long long)p->offset, b->root, (unsigned long long)c->places[b->root].offset,
              (unsigned long long)b->root_offset);
    if (b->root_offset > root->size || b->size > root->size - b->root_offset)
        FOUND(diag, "buffer %u leaves its root %u of %llu bytes", i, b->root,
              (unsigned long long)root->size);
    return ASH_OK;
}

/* --- lifetimes ------------------------------------------------------------------------------------ */

static bool lives(const int64_t *from, const int64_t *to, uint32_t clock) {
    for (uint32_t s = 0; s < clock; s++)
        if (to[s] > from[s]) return true;
    return false;
}

static void find_program(checker *c) {
    const ash_memory_problem *problem = c->problem;
    bool any = false;
    if (problem->streams) {
        c->first = 0;
        for (size_t i = 0; i < problem->buffer_count * problem->streams; i++)
            c->last = ASH_MAX(c->last, ASH_MAX(problem->acquire[i], problem->release[i]) + 1);
    } else {
        for (uint32_t i = 0; i < problem->buffer_count; i++) {
            const ash_memory_buffer *b = &problem->buffers[i];
            if (b->begin >= b->end) continue;
            c->first = any && c->first < b->begin ? c->first : b->begin;
            c->last = any && c->last > b->end ? c->last : b->end;
            any = true;
        }
    }
    if (c->first == c->last) c->last++;
}

/* A root is live from the first to the last moment of anything in it; where one of its buffers is of a kind
 * at the boundary, for longer. */
static void find_lifetimes(checker *c) {
    const ash_memory_problem *problem = c->problem;
    uint32_t clock = c->clock;
    for (uint32_t i = 0; i < problem->buffer_count; i++)
        for (uint32_t s = 0; s < clock; s++) {
            c->from[(size_t)i * clock + s] = INT64_MAX;
            c->to[(size_t)i * clock + s] = INT64_MIN;
        }
    for (uint32_t i = 0; i < problem->buffer_count; i++) {
        const ash_memory_buffer *b = &problem->buffers[i];
        const int64_t *from = problem->streams ? problem->acquire + (size_t)i * clock : &b->begin;
        const int64_t *to = problem->streams ? problem->release + (size_t)i * clock : &b->end;
        size_t root = (size_t)(b->root == ASH_MEMORY_NONE ? i : b->root) * clock;
        if (!lives(from, to, clock)) continue;
        for (uint32_t s = 0; s < clock; s++) {
            c->from[root + s] = ASH_MIN(c->from[root + s], from[s]);
            c->to[root + s] = ASH_MAX(c->to[root + s], to[s]);
        }
    }
    for (uint32_t i = 0; i < problem->buffer_count; i++) {
        const ash_memory_buffer *b = &problem->buffers[i];
        ash_memory_kind kind = b->kind;
        bool forever =
            kind == ASH_MEMORY_PARAMETER || kind == ASH_MEMORY_CONSTANT || kind == ASH_MEMORY_STATE;
        bool kept = kind == ASH_MEMORY_OUTPUT;
        size_t at = (size_t)(b->root == ASH_MEMORY_NONE ? i : b->root) * clock;
        for (uint32_t s = 0; s < clock; s++) {
            if (forever || kind == ASH_MEMORY_INPUT) c->from[at + s] = c->first;
            if (forever || kept) c->to[at + s] = c->last;
        }
        /* An input is filled, if only for nothing. */
        if (kind == ASH_MEMORY_INPUT && !lives(c->from + at, c->to + at, clock))
            for (uint32_t s = 0; s < clock; s++) c->to[at + s] = c->first + 1;
    }
}

/* --- events --------------------------------------------------------------------------------------- */

enum { DIGIT = 11, VALUES = 1 << DIGIT };

/* Sorts records of `words` numbers by the first, from the least digit up; digits in which all agree are
 * passed over, and what is in order already is left alone. Records go to and fro between `at` and
 * `room`. */
static void sort_records(uint64_t *at, uint64_t *room, size_t count, size_t words) {
    uint64_t differ = 0, descents = 0;
    for (size_t i = 1; i < count; i++) {
        differ |= at[i * words] ^ at[0];
        descents += at[i * words] < at[(i - 1) * words];
    }
    if (!descents) return;
    uint64_t *from = at, *to = room;
    for (unsigned shift = 0; shift < 64; shift += DIGIT) {
        if (!(differ >> shift & (VALUES - 1))) continue;
        size_t next[VALUES + 1] = {0};
        for (size_t i = 0; i < count; i++) next[(from[i * words] >> shift & (VALUES - 1)) + 1]++;
        for (size_t v = 1; v < VALUES; v++) next[v] += next[v - 1];
        for (size_t i = 0; i < count; i++) {
            size_t place = next[from[i * words] >> shift & (VALUES - 1)]++;
            for (size_t w = 0; w < words; w++) to[place * words + w] = from[i * words + w];
        }
        uint64_t *swap = from;
        from = to;
        to = swap;
    }
    if (from != at) memcpy(at, from, count * words * sizeof *at);
}

static bool has_event(const checker *c, uint32_t i) {
    const ash_memory_buffer *b = &c->problem->buffers[i];
    size_t at = (size_t)i * c->clock;
    return b->root == ASH_MEMORY_NONE && b->size && c->places[i].arena != ASH_MEMORY_NONE &&
           lives(c->from + at, c->to + at, c->clock);
}

static bool hole_in(const checker *c, const ash_memory_hole *h, uint32_t arena) {
    return h->size && c->arenas[arena].lane == h->lane && (c->problem->streams || h->begin < h->end);
}

static ash_status make_events(checker *c, ash_diag *diag) {
    const ash_memory_problem *problem = c->problem;
    for (uint32_t i = 0; i < problem->buffer_count; i++)
        if (has_event(c, i)) c->event_at[c->places[i].arena + 1]++;
    for (size_t a = 0; a < c->arena_count; a++) {
        for (uint32_t h = 0; h < problem->hole_count; h++)
            c->event_at[a + 1] += hole_in(c, &problem->holes[h], a);
        c->event_at[a + 1] += c->event_at[a];
    }
    c->event_count = c->event_at[c->arena_count];
    c->events = ash_mem_alloc(c->allocator, c->event_count, sizeof *c->events);
    c->event_room = ash_mem_alloc(c->allocator, c->event_count, sizeof *c->event_room);
    if (!c->events || !c->event_room) return ASH_NO_MEMORY(diag);
    size_t *next = ash_mem_alloc(c->allocator, c->arena_count, sizeof *next);
    if (!next) return ASH_NO_MEMORY(diag);
    memcpy(next, c->event_at, c->arena_count * sizeof *next);
    for (size_t a = 0; a < c->arena_count; a++)
        for (uint32_t h = 0; h < problem->hole_count; h++)
            if (hole_in(c, &problem->holes[h], a))
                c->events[next[a]++] = (event){
                    problem->streams ? 0 : (uint64_t)problem->holes[h].begin ^ UINT64_C(1) << 63, HOLE | h};
    for (uint32_t i = 0; i < problem->buffer_count; i++) {
        if (!has_event(c, i)) continue;
        uint64_t order = 0;
        for (uint32_t s = 0; s < problem->streams; s++)
            order += (uint64_t)c->from[(size_t)i * c->clock + s];
        if (!problem->streams) order = (uint64_t)c->from[i] ^ UINT64_C(1) << 63;
        c->events[next[c->places[i].arena]++] = (event){order, i};
    }
    ash_mem_free(c->allocator, next, c->arena_count, sizeof *next);
    return ASH_OK;
}

/* --- bytes ---------------------------------------------------------------------------------------- */

static void event_bytes(const checker *c, const event *e, uint64_t *low, uint64_t *high) {
    *low = is_hole(e) ? c->problem->holes[number_of(e)].offset : c->places[number_of(e)].offset;
    *high =
        *low + (is_hole(e) ? c->problem->holes[number_of(e)].size : c->problem->buffers[number_of(e)].size);
}

static void find_borders(checker *c, const event *events, size_t count) {
    uint64_t *at = c->borders;
    for (size_t i = 0; i < count; i++) event_bytes(c, &events[i], &at[2 * i], &at[2 * i + 1]);
    size_t n = 2 * count;
    sort_records(at, (uint64_t *)c->trees, n, 1); /* the trees are larger, and not yet in use */
    c->border_count = 0;
    for (size_t i = 0; i < n; i++)
        if (!i || at[i] != at[i - 1]) at[c->border_count++] = at[i];
}

/* The number of a border that is there. Halves without a jump, which could not be foreseen. */
static size_t border(const checker *c, uint64_t byte) {
    const uint64_t *at = c->borders;
    for (size_t count = c->border_count; count > 1;) {
        size_t half = count / 2;
        at += at[half] <= byte ? half : 0;
        count -= half;
    }
    return (size_t)(at - c->borders);
}

static int64_t history_most(const history *h, size_t pieces, size_t low, size_t high) {
    int64_t most = INT64_MIN;
    size_t first = low + pieces, last = high - 1 + pieces;
    for (size_t l = first, r = last + 1; l < r; l /= 2, r /= 2) {
        if (l & 1) most = ASH_MAX(most, h->most[l]), l++;
        if (r & 1) --r, most = ASH_MAX(most, h->most[r]);
    }
    for (size_t node = first / 2; node; node /= 2) most = ASH_MAX(most, h->whole[node]);
    for (size_t node = last / 2; node; node /= 2) most = ASH_MAX(most, h->whole[node]);
    return most;
}

static void history_put(history *h, size_t pieces, size_t low, size_t high, int64_t end) {
    size_t first = low + pieces, last = high - 1 + pieces;
    for (size_t l = first, r = last + 1; l < r; l /= 2, r /= 2) {
        if (l & 1) h->most[l] = ASH_MAX(h->most[l], end), h->whole[l] = ASH_MAX(h->whole[l], end), l++;
        if (r & 1) --r, h->most[r] = ASH_MAX(h->most[r], end), h->whole[r] = ASH_MAX(h->whole[r], end);
    }
    for (size_t node = first / 2; node; node /= 2) h->most[node] = ASH_MAX(h->most[node], end);
    for (size_t node = last / 2; node; node /= 2) h->most[node] = ASH_MAX(h->most[node], end);
}

/* --- the replay ----------------------------------------------------------------------------------- */

/* Some event before `at` holds bytes of it for too long: names it. */
static ash_status name_clash(const checker *c, const event *events, size_t at, ash_diag *diag) {
    uint64_t low, high, other_low, other_high;
    event_bytes(c, &events[at], &low, &high);
    for (size_t i = at; i--;) {
        const event *e = &events[i];
        event_bytes(c, e, &other_low, &other_high);
        if (other_low >= high || low >= other_high || (is_hole(e) && is_hole(&events[at]))) continue;
        bool clash = is_hole(e) || is_hole(&events[at]);
        if (!c->problem->streams && is_hole(e))
            clash = c->problem->holes[number_of(e)].end > c->from[number_of(&events[at])];
        if (!c->problem->streams && is_hole(&events[at]))
            clash = c->to[number_of(e)] > c->problem->holes[number_of(&events[at])].begin;
        for (uint32_t s = 0; s < c->clock && !is_hole(e) && !is_hole(&events[at]); s++)
            clash |= c->to[(size_t)number_of(e) * c->clock + s] >
                     c->from[(size_t)number_of(&events[at]) * c->clock + s];
        if (!clash) continue;
        c->report->clash[0] = is_hole(e) ? ASH_MEMORY_NONE : number_of(e);
        c->report->clash[1] = is_hole(&events[at]) ? ASH_MEMORY_NONE : number_of(&events[at]);
        FOUND(diag, "%s %u and %s %u are live together and share bytes [%llu, %llu)",
              is_hole(e) ? "hole" : "buffer", number_of(e), is_hole(&events[at]) ? "hole" : "buffer",
              number_of(&events[at]), (unsigned long long)ASH_MAX(low, other_low),
              (unsigned long long)ASH_MIN(high, other_high));
    }
    FOUND(diag, "buffer %u is live together with another in the same bytes", number_of(&events[at]));
}

static ash_status replay_arena(checker *c, event *events, size_t count, ash_diag *diag) {
    sort_records((uint64_t *)events, (uint64_t *)c->event_room, count, sizeof *events / sizeof(uint64_t));
    find_borders(c, events, count);
    size_t pieces = c->border_count;
    bool holes = c->problem->hole_count > 0;
    size_t width = holes ? 8 : 4; /* trees per stream, in pieces: without holes theirs are not there */
    for (uint32_t s = 0; s < c->clock; s++) {
        int64_t *at = c->trees + width * s * pieces;
        c->tenants[s] = (history){at, at + 2 * pieces};
        c->holes[s] = holes ? (history){at + 4 * pieces, at + 6 * pieces} : (history){NULL, NULL};
    }
    for (size_t i = 0; i < width * c->clock * pieces; i++) c->trees[i] = INT64_MIN;
    for (size_t i = 0; i < count; i++) {
        const event *e = &events[i];
        uint64_t low_byte, high_byte;
        event_bytes(c, e, &low_byte, &high_byte);
        size_t low = border(c, low_byte), high = border(c, high_byte);
        const ash_memory_hole *hole = is_hole(e) ? &c->problem->holes[number_of(e)] : NULL;
        c->report->events++;
        for (uint32_t s = 0; s < c->clock; s++) {
            int64_t from = is_hole(e) ? c->problem->streams ? INT64_MIN : hole->begin
                                      : c->from[(size_t)number_of(e) * c->clock + s];
            int64_t to = is_hole(e) ? c->problem->streams ? INT64_MAX : hole->end
                                    : c->to[(size_t)number_of(e) * c->clock + s];
            c->report->comparisons++;
            if (history_most(&c->tenants[s], pieces, low, high) > from ||
                (holes && !is_hole(e) && history_most(&c->holes[s], pieces, low, high) > from))
                return name_clash(c, events, i, diag);
            history_put(is_hole(e) ? &c->holes[s] : &c->tenants[s], pieces, low, high, to);
        }
    }
    return ASH_OK;
}

static ash_status replay(checker *c, ash_diag *diag) {
    size_t largest = 0;
    for (size_t a = 0; a < c->arena_count; a++)
        largest = ASH_MAX(largest, c->event_at[a + 1] - c->event_at[a]);
    size_t trees = (c->problem->hole_count ? 16 : 8) * largest * c->clock;
    ash_status status = ASH_OK;
    c->borders = ash_mem_alloc(c->allocator, 2 * largest, sizeof *c->borders);
    c->tenants = ash_mem_alloc(c->allocator, c->clock, sizeof *c->tenants);
    c->holes = ash_mem_alloc(c->allocator, c->clock, sizeof *c->holes);
    c->trees = ash_mem_alloc(c->allocator, trees, sizeof *c->trees);
    ASH_FAIL_IF_DONE(!c->borders || !c->tenants || !c->holes || !c->trees, diag, ASH_ERROR_OUT_OF_MEMORY,
                     "out of memory");
    for (size_t a = 0; a < c->arena_count; a++)
        if (c->event_at[a + 1] > c->event_at[a])
            ASH_TRY_DONE(
                replay_arena(c, c->events + c->event_at[a], c->event_at[a + 1] - c->event_at[a], diag));
done:
    ash_mem_free(c->allocator, c->trees, trees, sizeof *c->trees);
    ash_mem_free(c->allocator, c->holes, c->clock, sizeof *c->holes);
    ash_mem_free(c->allocator, c->tenants, c->clock, sizeof *c->tenants);
    ash_mem_free(c->allocator, c->borders, 2 * largest, sizeof *c->borders);
    return status;
}

ash_status ash_memory_check(ash_context *context, const ash_memory_problem *problem,
                            const ash_memory_place *places, const ash_memory_arena *arenas,
                            size_t arena_count, ash_memory_check_report *report, ash_diag *diag) {
    ash_memory_check_report ignored;
    if (!report) report = &ignored;
    *report = (ash_memory_check_report){.clash = {ASH_MEMORY_NONE, ASH_MEMORY_NONE}};
    ASH_NEED(diag, context, problem);
    if (problem->buffer_count) ASH_NEED(diag, places);
    if (arena_count) ASH_NEED(diag, arenas);
    ASH_TRY(check_form(problem, diag));
    const ash_allocator *a = ash_context__allocator(context);
    checker c = {.allocator = a,
                 .problem = problem,
                 .places = places,
                 .arenas = arenas,
                 .arena_count = arena_count,
                 .clock = problem->streams ? problem->streams : 1,
                 .report = report};
    for (uint32_t i = 0; i < problem->buffer_count; i++) {
        ASH_TRY(check_place(&c, i, diag));
        bool placed = places[i].arena != ASH_MEMORY_NONE;
        report->buffers += placed;
        report->left_out += !placed;
        report->aliases += placed && problem->buffers[i].root != ASH_MEMORY_NONE;
    }
    size_t clocks = problem->buffer_count * c.clock;
    ash_status status = ASH_OK;
    c.from = ash_mem_alloc(a, clocks, sizeof *c.from);
    c.to = ash_mem_alloc(a, clocks, sizeof *c.to);
    c.event_at = ash_mem_calloc(a, arena_count + 1, sizeof *c.event_at);
    ASH_FAIL_IF_DONE(!c.from || !c.to || !c.event_at, diag, ASH_ERROR_OUT_OF_MEMORY, "out of memory");
    find_program(&c);
    find_lifetimes(&c);
    ASH_TRY_DONE(make_events(&c, diag));
    ASH_TRY_DONE(replay(&c, diag));
done:
    ash_mem_free(a, c.event_room, c.event_count, sizeof *c.event_room);
    ash_mem_free(a, c.events, c.event_count, sizeof *c.events);
    ash_mem_free(a, c.event_at, arena_count + 1, sizeof *c.event_at);
    ash_mem_free(a, c.to, clocks, sizeof *c.to);
    ash_mem_free(a, c.from, clocks, sizeof *c.from);
    return status;
}
