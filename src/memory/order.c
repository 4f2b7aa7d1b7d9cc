/* SPDX-License-Identifier: MIT */
/* Order search: a schedule with the same dependences and a lower peak of live bytes.
 *
 * What is live after a set of operations depends on the set alone, so of two ways to the same set the one
 * with the lower peak dominates: dynamic programming over down-sets, one layer per operation done. Narrow
 * graphs have few down-sets and are solved exactly; where a layer has more than `width`, the lowest by
 * peak, then by live bytes, are kept (a beam). Operations that everything before reaches and that reach
 * everything after cut the graph into segments, which are searched apart. A segment whose given order stays
 * below the peak of the whole keeps that order.
 *
 * Limits: one stream; buffers count whole from first to last access, as the planner sees them; no
 * recomputation. */
#include "base/arena.h"
#include "base/map.h"
#include "base/progress.h"
#include "base/sized.h"
#include "instance.h"
#include "schedule.h"
#include "sort.h"

#define NIL UINT32_MAX

/* One operation's part in the life of one alias class. */
typedef struct touch {
    uint32_t class;
    bool late_start; /* only writes: if it is the first to touch the class, that lives from the second half
                        step */
    bool early_end;  /* only early reads: if it is the last, the class is over after the first half step */
} touch;

typedef struct state {
    uint32_t parent, op; /* in the previous layer; what was done last */
    uint64_t peak, live; /* bytes */
} state;

typedef struct orderer {
    const ash_allocator *allocator;
    ash_arena arena; /* everything that lives as long as the search */
    const ash_memory_schedule *schedule;
    const ash_memory_buffer *buffers;
    uint32_t ops, classes;
    uint64_t *size;                 /* per class, bytes */
    bool *before, *after;           /* per class: live from the start; until the end */
    touch *touches;                 /* rows per operation */
    uint32_t *touch_at;             /* ops + 1 */
    uint32_t *users, *user_at;      /* operations that touch each class, rows per class */
    ASH_VEC(ash_memory_wait) edges; /* op depends on after */
    uint32_t *preds, *pred_at;      /* numbers of edges, rows per operation */
    uint32_t width;                 /* 0: no limit */
    ash_memory_order_report *report;
    const ash_progress *progress;
    uint32_t placed; /* operations that layers were made for */
    bool stopped;    /* by who follows the progress */
} orderer;

#define NEED(ptr)                                                                                          \
    do {                                                                                                   \
        if (!(ptr)) return ASH_NO_MEMORY(diag);                                                            \
    } while (0)

/* --- the graph ------------------------------------------------------------------------------------ */

static bool writes(const ash_memory_access *a) {
    return a->kind == ASH_MEMORY_WRITE || a->kind == ASH_MEMORY_SCRATCH;
}

static void access_bytes(const orderer *o, const ash_memory_access *a, uint64_t *low, uint64_t *high) {
    const ash_memory_buffer *b = &o->buffers[a->buffer];
    *low = b->root_offset + a->offset;
    *high = a->size == ASH_MEMORY_WHOLE ? b->root_offset + b->size : *low + a->size;
}

/* The accesses to one class, in order of issue: each depends on the earlier ones to common bytes of which
 * one writes. What a write covers is dropped, since everything later that meets it meets the write. */
static bool add_edges(orderer *o, const uint32_t *list, uint32_t count, uint32_t *open) {
    uint32_t kept = 0;
    for (uint32_t k = 0; k < count; k++) {
        const ash_memory_access *now = &o->schedule->accesses[list[k]];
        uint64_t low, high, l, h;
        access_bytes(o, now, &low, &high);
        uint32_t left = 0;
        for (uint32_t j = 0; j < kept; j++) {
            const ash_memory_access *past = &o->schedule->accesses[open[j]];
            access_bytes(o, past, &l, &h);
            bool meet = l < high && low < h && (writes(now) || writes(past));
            if (meet && past->op != now->op &&
                !ash_vec_push(o->allocator, &o->edges, (ash_memory_wait){now->op, past->op}))
                return false;
            if (!(writes(now) && low <= l && h <= high && past->op != now->op)) open[left++] = open[j];
        }
        open[left] = list[k];
        kept = left + 1;
    }
    return true;
}

/* Accesses sorted by class, then by operation. */
static ash_status build(orderer *o, uint32_t buffer_count, ash_diag *diag) {
    const ash_memory_schedule *s = o->schedule;
    uint32_t n = s->access_count;
    ash_memory__key *keys = ash_arena_alloc(&o->arena, n, sizeof *keys),
                    *room = ash_arena_alloc(&o->arena, n, sizeof *room);
    uint32_t *list = ash_arena_alloc(&o->arena, n, sizeof *list),
             *open = ash_arena_alloc(&o->arena, n, sizeof *open);
    o->classes = buffer_count;
    o->size = ash_arena_alloc(&o->arena, buffer_count, sizeof *o->size);
    o->before = ash_arena_alloc(&o->arena, buffer_count, sizeof *o->before);
    o->after = ash_arena_alloc(&o->arena, buffer_count, sizeof *o->after);
    o->touches = ash_arena_alloc(&o->arena, n, sizeof *o->touches);
    o->touch_at = ash_arena_alloc(&o->arena, (size_t)o->ops + 2, sizeof *o->touch_at);
    NEED(keys && room && list && open && o->size && o->before && o->after && o->touches && o->touch_at);
    for (uint32_t i = 0; i < buffer_count; i++) {
        const ash_memory_buffer *b = &o->buffers[i];
        uint32_t root = b->root == ASH_MEMORY_NONE ? i : b->root;
        if (root == i) o->size[i] = b->size;
        o->before[root] |= ash_memory__from_start(b->kind);
        o->after[root] |= ash_memory__to_end(b->kind);
    }
    for (uint32_t i = 0; i < n; i++) {
        uint32_t buffer = s->accesses[i].buffer, root = o->buffers[buffer].root;
        keys[i] = (ash_memory__key){
            (uint64_t)(root == ASH_MEMORY_NONE ? buffer : root) << 32 | s->accesses[i].op, i};
    }
    ash_memory__sort(keys, room, n);
    for (uint32_t i = 0; i < n; i++) {
        list[i] = keys[i].value;
        if (!i || keys[i].key != keys[i - 1].key) o->touch_at[s->accesses[list[i]].op + 2]++;
    }
    for (uint32_t op = 0; op < o->ops; op++) o->touch_at[op + 2] += o->touch_at[op + 1];
    touch *t = NULL;
    for (uint32_t i = 0; i < n; i++) { /* touch_at[op + 1] runs from the start of op's row to its end */
        const ash_memory_access *a = &s->accesses[list[i]];
        uint32_t class = (uint32_t)(keys[i].key >> 32);
        if (!i || keys[i].key != keys[i - 1].key) {
            t = &o->touches[o->touch_at[a->op + 1]++];
            *t = (touch){class, true, true};
        }
        t->late_start &= a->kind == ASH_MEMORY_WRITE;
        t->early_end &= a->kind == ASH_MEMORY_READ_EARLY;
    }
    for (uint32_t i = 0, end; i < n; i = end) {
        for (end = i + 1; end < n && keys[end].key >> 32 == keys[i].key >> 32;) end++;
        NEED(add_edges(o, list + i, end - i, open));
    }
    return ASH_OK;
}

static ash_status build_rows(orderer *o, ash_diag *diag) {
    uint32_t touches = o->touch_at[o->ops];
    o->users = ash_arena_alloc(&o->arena, touches, sizeof *o->users);
    o->user_at = ash_arena_alloc(&o->arena, (size_t)o->classes + 1, sizeof *o->user_at);
    o->preds = ash_arena_alloc(&o->arena, o->edges.len, sizeof *o->preds);
    o->pred_at = ash_arena_alloc(&o->arena, (size_t)o->ops + 1, sizeof *o->pred_at);
    NEED(o->users && o->user_at && o->preds && o->pred_at);
    uint32_t *op_of = ash_arena_alloc(&o->arena, touches, sizeof *op_of);
    NEED(op_of);
    for (uint32_t op = 0; op < o->ops; op++)
        for (uint32_t t = o->touch_at[op]; t < o->touch_at[op + 1]; t++) op_of[t] = op;
    if (touches)
        ash_memory__rows(&o->touches[0].class, sizeof *o->touches, touches, o->classes, o->user_at,
                         o->users);
    for (uint32_t u = 0; u < touches; u++) o->users[u] = op_of[o->users[u]];
    if (o->edges.len)
        ash_memory__rows(&o->edges.at[0].op, sizeof *o->edges.at, (uint32_t)o->edges.len, o->ops,
                         o->pred_at, o->preds);
    return ASH_OK;
}

/* --- one segment ---------------------------------------------------------------------------------- */

enum { WHOLE = 4096, AHEAD = 512 };

/* A set of a segment's operations has a bit for each. In segments of more than WHOLE, only operations up to
 * AHEAD past the first that is not done are looked at, so that after n steps the first n - AHEAD are done
 * and none past n + AHEAD: the bits of those between suffice, and a step takes the same time in any
 * segment. */
typedef struct segment {
    uint32_t first, count; /* operations, in order of issue */
    uint32_t base;         /* those before are in every set of the layer; a multiple of 64 */
    size_t words;          /* of a set; what lies past them is in none */
} segment;

static uint32_t base_of(const segment *g, uint32_t step) {
    return g->count > WHOLE && step > AHEAD ? (step - AHEAD) / 64 * 64 : 0;
}

static bool has(const segment *g, const uint64_t *set, uint32_t i) {
    if (i < g->base) return true;
    uint32_t bit = i - g->base;
    return bit / 64 < g->words && (set[bit / 64] >> (bit % 64) & 1);
}

/* The first operation that is not in the set, and the end of those that may be next. */
static uint32_t first_missing(const segment *g, const uint64_t *set, uint32_t *end) {
    size_t word = 0;
    while (word < g->words && !~set[word]) word++;
    uint32_t missing = g->base + (uint32_t)word * 64;
    if (word < g->words) missing += (uint32_t)__builtin_ctzll(~set[word]);
    *end = g->count > WHOLE ? ASH_MIN(g->count, missing + AHEAD) : g->count;
    return missing;
}

static bool is_ready(const orderer *o, const segment *g, const uint64_t *set, uint32_t op) {
    for (uint32_t k = o->pred_at[op]; k < o->pred_at[op + 1]; k++) {
        uint32_t before = o->edges.at[o->preds[k]].after;
        if (before >= g->first && !has(g, set, before - g->first)) return false;
    }
    return true;
}

/* Runs `op` after the set: *peak rises to what is live meanwhile, *live becomes what is live afterwards. */
static void run(const orderer *o, const segment *g, const uint64_t *set, uint32_t op, uint64_t *peak,
                uint64_t *live) {
    uint64_t starts = 0, late = 0, ends = 0, early = 0; /* bytes */
    for (uint32_t k = o->touch_at[op]; k < o->touch_at[op + 1]; k++) {
        const touch *t = &o->touches[k];
        bool started = o->before[t->class], finished = !o->after[t->class];
        if (started && !finished) continue; /* there before and after */
        for (uint32_t u = o->user_at[t->class]; u < o->user_at[t->class + 1]; u++) {
            uint32_t user = o->users[u];
            bool done = user < g->first || (user < g->first + g->count && has(g, set, user - g->first));
            started |= done;
            finished &= done || user == op;
        }
        uint64_t size = o->size[t->class];
        starts += started ? 0 : size;
        late += !started && t->late_start ? size : 0;
        ends += finished ? size : 0;
        early += finished && t->early_end ? size : 0;
    }
    *peak = ASH_MAX(*peak, ASH_MAX(*live + starts - late, *live + starts - early));
    *live += starts - ends;
}

typedef struct layers {
    ASH_VEC(state) states;        /* all layers, one after the other */
    ASH_VEC(uint32_t) at;         /* their starts */
    ASH_VEC(uint64_t) sets, next; /* of the present layer, and of the one to come */
    ASH_VEC(state) candidates;
    ash_map seen;       /* hash of a set to its candidate */
    uint32_t next_base; /* of the sets of the layer to come */
    ash_memory__key *keys;
    size_t key_room;
} layers;

static void layers_free(const ash_allocator *a, layers *l) {
    ash_mem_free(a, l->keys, l->key_room, sizeof *l->keys);
    ash_map_free(&l->seen);
    ash_vec_free(a, &l->candidates);
    ash_vec_free(a, &l->next);
    ash_vec_free(a, &l->sets);
    ash_vec_free(a, &l->at);
    ash_vec_free(a, &l->states);
}

/* Adds the set of state `s` with `op` to the layer to come, or lowers the peak of the same set there. */
static bool add_candidate(orderer *o, const segment *g, layers *l, uint32_t s, const uint64_t *set,
                          uint32_t op) {
    const ash_allocator *a = o->allocator;
    state fresh = l->states.at[l->at.at[l->at.len - 1] + s];
    run(o, g, set, op, &fresh.peak, &fresh.live);
    fresh.parent = s;
    fresh.op = op;
    if (!ash_vec_reserve(a, &l->next, g->words)) return false;
    uint64_t *copy = l->next.at + l->next.len;
    uint32_t passed = (l->next_base - g->base) / 64, bit = op - g->first - l->next_base;
    memcpy(copy, set + passed, (g->words - passed) * sizeof *copy);
    memset(copy + g->words - passed, 0, passed * sizeof *copy);
    copy[bit / 64] |= UINT64_C(1) << bit % 64;
    uint64_t hash = ash_hash(copy, g->words * sizeof *copy, 0), same;
    if (ash_map_get(&l->seen, hash, &same) &&
        !memcmp(l->next.at + same * g->words, copy, g->words * sizeof *copy)) {
        if (fresh.peak < l->candidates.at[same].peak) l->candidates.at[same] = fresh;
        return true;
    }
    l->next.len += g->words;
    o->report->states++;
    return ash_map_put(&l->seen, hash, l->candidates.len) && ash_vec_push(a, &l->candidates, fresh);
}

/* Keeps the lowest candidates as the next layer. */
static bool keep_layer(orderer *o, const segment *g, layers *l) {
    const ash_allocator *a = o->allocator;
    size_t count = l->candidates.len, kept = ASH_MIN(count, (size_t)o->width);
    if (2 * count > l->key_room) {
        ash_mem_free(a, l->keys, l->key_room, sizeof *l->keys);
        l->key_room = 4 * count;
        l->keys = ash_mem_alloc(a, l->key_room, sizeof *l->keys);
        if (!l->keys) {
            l->key_room = 0;
            return false;
        }
    }
    for (size_t i = 0; i < count; i++)
        l->keys[i] = (ash_memory__key){l->candidates.at[i].live, (uint32_t)i};
    ash_memory__sort(l->keys, l->keys + count, count);
    for (size_t i = 0; i < count; i++) l->keys[i].key = l->candidates.at[l->keys[i].value].peak;
    ash_memory__sort(l->keys, l->keys + count, count);
    if (!ash_vec_push(a, &l->at, (uint32_t)l->states.len) || !ash_vec_reserve(a, &l->states, kept))
        return false;
    l->sets.len = 0;
    if (!ash_vec_reserve(a, &l->sets, kept * g->words)) return false;
    for (size_t i = 0; i < kept; i++) {
        l->states.at[l->states.len++] = l->candidates.at[l->keys[i].value];
        memcpy(l->sets.at + i * g->words, l->next.at + l->keys[i].value * g->words,
               g->words * sizeof *l->sets.at);
    }
    if (kept < count) o->report->exact = false;
    return true;
}

/* The order of one segment with the lowest peak found. */
static bool search_segment(orderer *o, segment *g, layers *l, uint64_t live, uint32_t *order,
                           uint64_t *peak) {
    const ash_allocator *a = o->allocator;
    l->states.len = l->at.len = l->sets.len = 0;
    g->base = 0;
    if (g->count > WHOLE) o->report->exact = false;
    if (!ash_vec_push(a, &l->at, 0) || !ash_vec_push(a, &l->states, (state){NIL, NIL, live, live}) ||
        !ash_vec_reserve(a, &l->sets, g->words))
        return false;
    memset(l->sets.at, 0, g->words * sizeof *l->sets.at);
    for (uint32_t step = 0; step < g->count; step++) {
        o->stopped = !ash_progress__go(o->progress, ASH_STAGE_ORDER, o->placed++, o->ops);
        if (o->stopped) return false;
        uint32_t count = (uint32_t)l->states.len - l->at.at[l->at.len - 1];
        ash_map_free(&l->seen);
        ash_map_init(&l->seen, a);
        l->candidates.len = l->next.len = 0;
        l->next_base = base_of(g, step + 1);
        for (uint32_t s = 0; s < count; s++) {
            const uint64_t *set = l->sets.at + s * g->words;
            uint32_t end, i = first_missing(g, set, &end);
            for (; i < end; i++)
                if (!has(g, set, i) && is_ready(o, g, set, g->first + i) &&
                    !add_candidate(o, g, l, s, set, g->first + i))
                    return false;
        }
        g->base = l->next_base;
        if (!keep_layer(o, g, l)) return false;
    }
    uint32_t at = 0;
    *peak = l->states.at[l->at.at[g->count]].peak;
    for (uint32_t step = g->count; step; step--) {
        const state *s = &l->states.at[l->at.at[step] + at];
        order[step - 1] = s->op;
        at = s->parent;
    }
    return true;
}

/* The peak of the segment in the given order; *live goes on. */
static bool given_peak(const orderer *o, const segment *g, uint64_t *live, uint64_t *peak) {
    segment whole = {g->first, g->count, 0, ((size_t)g->count + 63) / 64};
    uint64_t *set = ash_mem_calloc(o->allocator, whole.words, sizeof *set);
    if (!set) return false;
    *peak = *live;
    for (uint32_t i = 0; i < g->count; i++) {
        run(o, &whole, set, g->first + i, peak, live);
        set[i / 64] |= UINT64_C(1) << i % 64;
    }
    ash_mem_free(o->allocator, set, whole.words, sizeof *set);
    return true;
}

/* --- the whole ------------------------------------------------------------------------------------ */

/* Operation p is a cut when every earlier one has a successor up to p, and every later one a predecessor
 * from p on. */
static ash_status find_segments(orderer *o, segment *segments, uint32_t *count, ash_diag *diag) {
    uint32_t *next = ash_arena_alloc(&o->arena, o->ops, sizeof *next); /* least successor */
    uint32_t *last = ash_arena_alloc(&o->arena, (size_t)o->ops + 1, sizeof *last);
    NEED(next && last);
    memset(next, 0xff, o->ops * sizeof *next);
    last[o->ops] = NIL; /* one past the greatest predecessor; the least of the later ones' */
    for (uint32_t op = o->ops; op--;) {
        uint32_t greatest = 0;
        bool any = false;
        for (uint32_t k = o->pred_at[op]; k < o->pred_at[op + 1]; k++) {
            uint32_t before = o->edges.at[o->preds[k]].after;
            greatest = ASH_MAX(greatest, before);
            any = true;
            next[before] = ASH_MIN(next[before], op);
        }
        last[op] = any ? ASH_MIN(last[op + 1], greatest + 1) : 0; /* before a source nothing is a cut */
    }
    uint32_t first = 0, reach = 0;
    *count = 0;
    for (uint32_t p = 0; p < o->ops; p++) {
        bool cut = reach <= p && last[p + 1] > p;
        reach = ASH_MAX(reach, next[p]);
        if (!cut && p + 1 < o->ops) continue;
        uint32_t operations = p + 1 - first;
        size_t words = operations > WHOLE ? 2 * AHEAD / 64 + 2 : (operations + 63) / 64;
        segments[(*count)++] = (segment){first, operations, 0, words};
        first = p + 1;
    }
    return ASH_OK;
}

static ash_status search_all(orderer *o, uint32_t *order, ash_diag *diag) {
    segment *segments = ash_arena_alloc(&o->arena, o->ops, sizeof *segments);
    uint64_t *given = ash_arena_alloc(&o->arena, o->ops, sizeof *given),
             *live = ash_arena_alloc(&o->arena, o->ops, 8);
    NEED(segments && given && live);
    uint32_t count = 0;
    ASH_TRY(find_segments(o, segments, &count, diag));
    uint64_t now = 0, least = 0;
    for (uint32_t c = 0; c < o->classes; c++)
        if (o->before[c] && (o->after[c] || o->user_at[c + 1] > o->user_at[c])) now += o->size[c];
    for (uint32_t i = 0; i < count; i++) {
        live[i] = now;
        NEED(given_peak(o, &segments[i], &now, &given[i]));
        o->report->given_peak = ASH_MAX(o->report->given_peak, given[i]);
    }
    o->report->segments = count;
    layers l = {.keys = NULL};
    ash_map_init(&l.seen, o->allocator);
    ash_status status = ASH_OK;
    for (uint32_t i = 0; i < o->ops; i++) order[i] = i;
    /* The highest segment first: its peak is one that all others may have, too. */
    for (uint32_t done = 0; done < count; done++) {
        uint32_t worst = 0;
        for (uint32_t i = 1; i < count; i++)
            if (given[i] > given[worst]) worst = i;
        if (given[worst] <= least || !given[worst]) break;
        segment *g = &segments[worst];
        uint64_t peak;
        uint32_t *part = order + g->first;
        bool ok = search_segment(o, g, &l, live[worst], part, &peak);
        ASH_FAIL_IF_DONE(o->stopped, diag, ASH_ERROR_CANCELLED, "cancelled at stage %s",
                         ash_stage_text(ASH_STAGE_ORDER));
        ASH_FAIL_IF_DONE(!ok, diag, ASH_ERROR_OUT_OF_MEMORY, "out of memory");
        if (peak >= given[worst])
            for (uint32_t k = 0; k < g->count; k++) part[k] = g->first + k;
        least = ASH_MAX(least, ASH_MIN(peak, given[worst]));
        given[worst] = 0;
    }
    o->report->peak = least;
done:
    layers_free(o->allocator, &l);
    return status;
}

ASH_SIZED(ash_memory_order_report, moved);

ash_status ash_memory_order_search(ash_context *context, const ash_memory_schedule *schedule,
                                   const ash_memory_buffer *buffers, size_t buffer_count, size_t width,
                                   const ash_progress *progress, uint32_t *order,
                                   ash_memory_order_report *report, ash_diag *diag) {
    enum { WIDTH = 256 };
    ash_memory_order_report own = {.exact = true};
    ASH_NEED(diag, context, schedule);
    if (buffer_count) ASH_NEED(diag, buffers);
    if (schedule->op_count) ASH_NEED(diag, order);
    ASH_TRY(ash_memory__schedule_verify(schedule, buffer_count, diag));
    ASH_FAIL_IF(schedule->streams > 1, diag, ASH_ERROR_INVALID_ARGUMENT,
                "the order of %u streams is not one order", schedule->streams);
    for (uint32_t i = 0; i < buffer_count; i++)
        ASH_FAIL_IF(buffers[i].root != ASH_MEMORY_NONE && buffers[i].root >= buffer_count, diag,
                    ASH_ERROR_INVALID_ARGUMENT, "buffer %u: its root %u is no buffer", i, buffers[i].root);
    const ash_allocator *a = ash_context__allocator(context);
    orderer o = {.allocator = a,
                 .schedule = schedule,
                 .buffers = buffers,
                 .ops = schedule->op_count,
                 .width = width ? width : WIDTH,
                 .progress = progress,
                 .report = &own};
    ash_arena_init(&o.arena, a);
    ash_status status = ASH_OK;
    ASH_TRY_DONE(build(&o, buffer_count, diag));
    for (uint32_t w = 0; w < schedule->wait_count; w++)
        ASH_FAIL_IF_DONE(!ash_vec_push(a, &o.edges, schedule->waits[w]), diag, ASH_ERROR_OUT_OF_MEMORY,
                         "out of memory");
    ASH_TRY_DONE(build_rows(&o, diag));
    ASH_TRY_DONE(search_all(&o, order, diag));
    for (uint32_t i = 0; i < o.ops; i++) own.moved += order[i] != i;
    if (report) status = ASH_GIVE(ash_memory_order_report, &own, report, diag);
done:
    ash_vec_free(a, &o.edges);
    ash_arena_free(&o.arena);
    return status;
}
