/* SPDX-License-Identifier: MIT */
/* The checker against a plain one that compares all pairs, and against planted defects. */
#include "ashlar/memory_report.h"
#include "one_context.h"
#include "random.h"

static ash_diag diag;
static uint64_t seed = 1;

enum { MOST = 24, MOST_STREAMS = 3, OPS = 30 };

typedef struct problem {
    ash_memory_buffer buffers[MOST];
    ash_memory_hole holes[2];
    int64_t acquire[MOST * MOST_STREAMS], release[MOST * MOST_STREAMS];
    ash_memory_problem form;
} problem;

/* Random operations on streams with random events; each buffer is touched by a few of them. */
static void random_clocks(problem *p, uint32_t streams, uint32_t count) {
    int64_t clocks[OPS][MOST_STREAMS] = {{0}};
    uint32_t stream[OPS], last[MOST_STREAMS] = {0};
    int64_t position[OPS], done[MOST_STREAMS] = {0};
    bool any[MOST_STREAMS] = {false};
    for (uint32_t o = 0; o < OPS; o++) {
        stream[o] = (uint32_t)test_below(&seed, streams);
        uint32_t s = stream[o];
        if (any[s]) memcpy(clocks[o], clocks[last[s]], sizeof clocks[o]);
        for (uint32_t waits = (uint32_t)test_below(&seed, 3); o && waits; waits--) {
            uint32_t w = (uint32_t)test_below(&seed, o);
            for (uint32_t t = 0; t < streams; t++)
                if (clocks[w][t] > clocks[o][t]) clocks[o][t] = clocks[w][t];
            if (position[w] + 2 > clocks[o][stream[w]]) clocks[o][stream[w]] = position[w] + 2;
        }
        position[o] = done[s];
        clocks[o][s] = done[s];
        done[s] += 2;
        last[s] = o, any[s] = true;
    }
    for (uint32_t i = 0; i < count; i++) {
        int64_t *acquire = p->acquire + i * streams, *release = p->release + i * streams;
        memset(release, 0, streams * sizeof *release);
        uint32_t o = (uint32_t)test_below(&seed, OPS);
        memcpy(acquire, clocks[o], streams * sizeof *acquire);
        for (uint32_t n = (uint32_t)test_below(&seed, 4) + 1; n; n--) {
            for (uint32_t t = 0; t < streams; t++)
                if (clocks[o][t] < acquire[t]) acquire[t] = clocks[o][t];
            if (position[o] + 2 > release[stream[o]]) release[stream[o]] = position[o] + 2;
            o = (uint32_t)test_below(&seed, OPS);
        }
    }
}

static void random_problem(problem *p) {
    memset(p, 0, sizeof *p);
    uint32_t n = (uint32_t)test_below(&seed, MOST) + 1,
             streams = (uint32_t)test_below(&seed, MOST_STREAMS + 1);
    bool aligned = test_below(&seed, 3) == 0;
    for (uint32_t i = 0; i < n; i++) {
        int64_t begin = (int64_t)test_below(&seed, 20) - 4;
        uint64_t bytes = test_below(&seed, 5) ? test_below(&seed, 40) : 0;
        uint64_t aligned_to = aligned ? 1u << test_below(&seed, 4) : 0;
        p->buffers[i] =
            ash_memory_buffer_init(bytes, aligned_to, begin, begin + (int64_t)test_below(&seed, 8));
        p->buffers[i].kind = test_below(&seed, 3)
                                 ? ASH_MEMORY_INTERMEDIATE
                                 : (ash_memory_kind)test_below(&seed, ASH_MEMORY_KIND_COUNT);
        p->buffers[i].lane = (uint32_t)test_below(&seed, 2) * 5;
        p->buffers[i].key = test_below(&seed, 2);
        p->buffers[i].output_ancestor = test_below(&seed, 2);
        if (i && test_below(&seed, 4) == 0) {
            uint32_t root = (uint32_t)test_below(&seed, i);
            if (p->buffers[root].root != ASH_MEMORY_NONE) root = p->buffers[root].root;
            p->buffers[i].root = root;
            p->buffers[i].lane = p->buffers[root].lane;
            uint64_t align = p->buffers[i].align ? p->buffers[i].align : 1;
            p->buffers[i].root_offset = test_below(&seed, p->buffers[root].size + 1) / align * align;
            p->buffers[i].size = test_below(&seed, p->buffers[root].size - p->buffers[i].root_offset + 1);
        }
    }
    if (streams) random_clocks(p, streams, n);
    for (uint32_t h = 0; h < 2; h++)
        p->holes[h] = (ash_memory_hole){(uint32_t)test_below(&seed, 2) * 5, test_below(&seed, 50),
                                        test_below(&seed, 20), 0, 9};
    p->form = (ash_memory_problem){.buffers = p->buffers,
                                   .buffer_count = n,
                                   .holes = p->holes,
                                   .hole_count = (uint32_t)test_below(&seed, 3),
                                   .streams = streams,
                                   .acquire = p->acquire,
                                   .release = p->release};
}

/* --- the plain checker ---------------------------------------------------------------------------- */

typedef struct life {
    int64_t from[MOST_STREAMS], to[MOST_STREAMS];
    bool any;
} life;

static bool alive(const int64_t *from, const int64_t *to, uint32_t clock) {
    for (uint32_t s = 0; s < clock; s++)
        if (from[s] < to[s]) return true;
    return false;
}

static life life_of(const ash_memory_problem *p, uint32_t root) {
    uint32_t clock = p->streams ? p->streams : 1;
    int64_t first = INT64_MAX, last = INT64_MIN;
    life l = {.any = false};
    for (uint32_t i = 0; i < p->buffer_count; i++) {
        const ash_memory_buffer *b = &p->buffers[i];
        if (!p->streams && b->begin < b->end) {
            if (b->begin < first) first = b->begin;
            if (b->end > last) last = b->end;
        }
    }
    if (first == INT64_MAX) first = 0, last = 1;
    if (p->streams) first = 0, last = 1000;
    for (uint32_t s = 0; s < clock; s++) l.from[s] = INT64_MAX, l.to[s] = INT64_MIN;
    for (uint32_t i = 0; i < p->buffer_count; i++) {
        const ash_memory_buffer *b = &p->buffers[i];
        if (i != root && b->root != root) continue;
        const int64_t *from = p->streams ? p->acquire + i * clock : &b->begin;
        const int64_t *to = p->streams ? p->release + i * clock : &b->end;
        if (!alive(from, to, clock)) continue;
        for (uint32_t s = 0; s < clock; s++) {
            if (from[s] < l.from[s]) l.from[s] = from[s];
            if (to[s] > l.to[s]) l.to[s] = to[s];
        }
    }
    bool forever = false, input = false, output = false;
    for (uint32_t i = 0; i < p->buffer_count; i++) {
        if (i != root && p->buffers[i].root != root) continue;
        ash_memory_kind kind = p->buffers[i].kind;
        forever |= kind == ASH_MEMORY_PARAMETER || kind == ASH_MEMORY_CONSTANT || kind == ASH_MEMORY_STATE;
        input |= kind == ASH_MEMORY_INPUT;
        output |= kind == ASH_MEMORY_OUTPUT;
    }
    for (uint32_t s = 0; s < clock; s++) {
        if (forever || input) l.from[s] = first;
        if (forever || output) l.to[s] = last;
    }
    l.any = alive(l.from, l.to, clock);
    if (!l.any && input) { /* the caller fills it all the same */
        for (uint32_t s = 0; s < clock; s++) l.to[s] = first + 1;
        l.any = true;
    }
    return l;
}

static bool after(const life *a, const life *b, uint32_t clock) {
    for (uint32_t s = 0; s < clock; s++)
        if (a->to[s] > b->from[s]) return false;
    return true;
}

static bool plain_check(const ash_memory_problem *p, const ash_memory_place *places,
                        const ash_memory_arena *arenas) {
    uint32_t clock = p->streams ? p->streams : 1;
    for (uint32_t i = 0; i < p->buffer_count; i++) {
        const ash_memory_buffer *b = &p->buffers[i];
        if (places[i].arena == ASH_MEMORY_NONE) continue;
        if (places[i].offset + b->size > arenas[places[i].arena].size) return false;
        if (b->align && places[i].offset % b->align) return false;
        if (b->root != ASH_MEMORY_NONE) {
            if (places[i].offset != places[b->root].offset + b->root_offset) return false;
            continue;
        }
        life a = life_of(p, i);
        if (!a.any || !b->size) continue;
        for (uint32_t h = 0; h < p->hole_count; h++) {
            const ash_memory_hole *hole = &p->holes[h];
            bool meet = p->streams || (hole->begin < a.to[0] && a.from[0] < hole->end);
            if (hole->lane == b->lane && hole->size && meet &&
                places[i].offset < hole->offset + hole->size && hole->offset < places[i].offset + b->size)
                return false;
        }
        for (uint32_t j = 0; j < i; j++) {
            const ash_memory_buffer *o = &p->buffers[j];
            if (o->root != ASH_MEMORY_NONE || places[j].arena != places[i].arena || !o->size) continue;
            if (places[j].offset >= places[i].offset + b->size ||
                places[i].offset >= places[j].offset + o->size)
                continue;
            life c = life_of(p, j);
            if (c.any && !after(&a, &c, clock) && !after(&c, &a, clock)) return false;
        }
    }
    return true;
}

/* --- tests ---------------------------------------------------------------------------------------- */

/* Every plan of every mode and option is sound in both checkers' eyes; moved places are judged alike by
 * both. */
static void agrees_with_the_plain_checker(void **state) {
    (void)state;
    long sound = 0, broken = 0, rounds = 20000;
    for (long round = 0; round < rounds; round++) {
        static problem p;
        random_problem(&p);
        ash_memory_options o = ash_memory_options_inference();
        o.mode = p.form.hole_count ? ASH_MEMORY_ARENA
                                   : (ash_memory_mode)test_below(&seed, ASH_MEMORY_MODE_COUNT);
        o.strategy = (ash_memory_strategy)test_below(&seed, ASH_MEMORY_STRATEGY_COUNT);
        o.node_budget = 200;
        o.omit_params = !(test_below(&seed, 4));
        o.omit_inputs = !(test_below(&seed, 4));
        o.omit_constants = !(test_below(&seed, 4));
        o.arena_no_reuse = test_below(&seed, 6) == 0;
        o.pin_output_ancestors = test_below(&seed, 4) == 0;
        ash_memory_plan *plan;
        assert_ok(ash_memory_plan_create(context, &p.form, &o, &plan, &diag));
        size_t arena_count;
        const ash_memory_arena *arenas = ash_memory_plan_arenas(plan, &arena_count);
        ash_memory_place places[MOST];
        memcpy(places, ash_memory_plan_places(plan, NULL), p.form.buffer_count * sizeof *places);
        assert_true(plain_check(&p.form, places, arenas));
        for (uint32_t a = 0; a < arena_count; a++) {
            if (o.mode == ASH_MEMORY_ARENA) assert_true(arenas[a].lower_bound <= arenas[a].size);
            assert_true(arenas[a].used <= arenas[a].size);
        }
        for (int moves = 0; moves < 3; moves++) {
            uint32_t i = (uint32_t)test_below(&seed, p.form.buffer_count);
            uint32_t root = p.form.buffers[i].root == ASH_MEMORY_NONE ? i : p.form.buffers[i].root;
            if (places[root].arena == ASH_MEMORY_NONE) continue;
            uint64_t room = arenas[places[root].arena].size - p.form.buffers[root].size;
            uint64_t to = test_below(&seed, room + 1) / 8 * 8;
            for (uint32_t j = 0; j < p.form.buffer_count; j++)
                if (j == root || p.form.buffers[j].root == root)
                    places[j].offset = to + p.form.buffers[j].root_offset;
            bool expected = plain_check(&p.form, places, arenas);
            ash_status status =
                ash_memory_check(context, &p.form, places, arenas, arena_count, NULL, &diag);
            if (expected != (status == ASH_OK))
                fail_msg("round %ld: the plain checker says %d, the other %s", round, expected,
                         diag.message);
            sound += expected, broken += !expected;
        }
        ash_memory_plan_destroy(plan);
    }
    assert_true(sound > rounds / 4 && broken > rounds / 4);
}

/* Whether roots that are ever live share bytes at all. */
static bool some_share(const ash_memory_problem *p, const ash_memory_place *places) {
    for (uint32_t i = 0; i < p->buffer_count; i++)
        for (uint32_t j = 0; j < i; j++)
            if (p->buffers[i].root == ASH_MEMORY_NONE && p->buffers[j].root == ASH_MEMORY_NONE &&
                places[i].arena != ASH_MEMORY_NONE && places[i].arena == places[j].arena &&
                life_of(p, i).any && life_of(p, j).any &&
                places[i].offset < places[j].offset + p->buffers[j].size &&
                places[j].offset < places[i].offset + p->buffers[i].size)
                return true;
    return false;
}

/* `arena_no_reuse` means no reuse, in every mode. */
static void nothing_is_reused_on_demand(void **state) {
    (void)state;
    long shared[ASH_MEMORY_MODE_COUNT] = {0};
    for (long round = 0; round < 2000; round++) {
        static problem p;
        random_problem(&p);
        p.form.hole_count = 0;
        for (ash_memory_mode mode = 0; mode < ASH_MEMORY_MODE_COUNT; mode++)
            for (int no_reuse = 0; no_reuse < 2; no_reuse++) {
                ash_memory_options o = ash_memory_options_inference();
                o.mode = mode;
                o.strategy = ASH_MEMORY_TLSF;
                o.arena_no_reuse = no_reuse;
                ash_memory_plan *plan;
                assert_ok(ash_memory_plan_create(context, &p.form, &o, &plan, &diag));
                bool some = some_share(&p.form, ash_memory_plan_places(plan, NULL));
                if (no_reuse) assert_false(some);
                shared[mode] += some;
                ash_memory_plan_destroy(plan);
            }
    }
    assert_true(shared[ASH_MEMORY_REMAP] > 100 && shared[ASH_MEMORY_ARENA] > 100);
    assert_int_equal(shared[ASH_MEMORY_DISABLED], 0);
}

/* Times at both ends of what a problem may have, and what lies between them. */
static void extreme_times(void **state) {
    (void)state;
    const int64_t end = INT64_C(1) << 62;
    for (long round = 0; round < 300; round++) {
        ash_memory_buffer b[MOST];
        for (uint32_t i = 0; i < MOST; i++) {
            int64_t begin = test_below(&seed, 3) ? -end + (int64_t)test_below(&seed, 9) : end - 9;
            uint64_t size = test_below(&seed, 40);
            int64_t last = test_below(&seed, 3) ? end - (int64_t)test_below(&seed, 8) : begin + 1;
            b[i] = ash_memory_buffer_init(size, 1, begin, last);
            if (test_below(&seed, 4) == 0)
                b[i].kind = (ash_memory_kind)test_below(&seed, ASH_MEMORY_KIND_COUNT);
        }
        ash_memory_problem p = {.buffers = b, .buffer_count = MOST};
        ash_memory_options o = ash_memory_options_inference();
        o.strategy = (ash_memory_strategy)(round % ASH_MEMORY_STRATEGY_COUNT);
        ash_memory_plan *plan;
        assert_ok(ash_memory_plan_create(context, &p, &o, &plan, &diag));
        for (int format = 0; format < ASH_MEMORY_FORMAT_COUNT; format++) {
            char *text;
            uint64_t size;
            assert_ok(ash_memory_report(context, &p, plan, (ash_memory_format)format, &text, &size, &diag));
            ash_context_free_text(context, text, size);
        }
        ash_memory_plan_destroy(plan);
    }
}

/* A cache that lies in a block of something else: between its uses it is as live as one with a root of its
 * own. Both checkers know, and the report says so in a way that can be verified. */
static void boundary_buffers_keep_the_root_they_lie_in(void **state) {
    (void)state;
    for (ash_memory_kind kind = ASH_MEMORY_PARAMETER; kind < ASH_MEMORY_KIND_COUNT; kind++) {
        ash_memory_buffer b[] = {ash_memory_buffer_init(64, 1, 2, 4), ash_memory_buffer_init(64, 1, 2, 4),
                                 ash_memory_buffer_init(64, 1, 0, 2), ash_memory_buffer_init(64, 1, 4, 6)};
        b[1].root = 0, b[1].kind = kind;
        ash_memory_problem p = {.buffers = b, .buffer_count = 4};
        ash_memory_plan *plan;
        assert_ok(ash_memory_plan_create(context, &p, NULL, &plan, &diag));
        assert_int_equal(ash_memory_plan_summary(plan).size, 128);
        ash_memory_place places[4] = {{0}};
        ash_memory_arena arena = {.size = 128, .align = 1};
        places[3].offset = kind == ASH_MEMORY_INPUT ? 64 : 0; /* over its bytes when all is over, ... */
        places[2].offset = kind == ASH_MEMORY_INPUT ? 0 : 64; /* ... or before anything has begun */
        assert_status(ash_memory_check(context, &p, places, &arena, 1, NULL, &diag), ASH_ERROR_INTERNAL);
        places[2].offset = places[3].offset = 64;
        assert_ok(ash_memory_check(context, &p, places, &arena, 1, NULL, &diag));
        char *text;
        uint64_t size;
        ash_memory_csv *csv;
        assert_ok(ash_memory_report(context, &p, plan, ASH_MEMORY_SOLUTION, &text, &size, &diag));
        bool starts = kind != ASH_MEMORY_OUTPUT, ends = kind != ASH_MEMORY_INPUT;
        char row[32];
        snprintf(row, sizeof row, "\n0,%d,%d,64,", starts ? 0 : 2, ends ? 6 : 4);
        if (!strstr(text, row)) fail_msg("no row \"%s\" in\n%s", row + 1, text);
        assert_ok(ash_memory_csv_read(context, text, size, &csv, &diag));
        size_t arenas;
        const ash_memory_arena *read = ash_memory_csv_arenas(csv, &arenas);
        assert_ok(ash_memory_check(context, ash_memory_csv_problem(csv), ash_memory_csv_places(csv), read,
                                   arenas, NULL, &diag));
        ash_memory_csv_destroy(csv);
        ash_context_free_text(context, text, size);
        ash_memory_plan_destroy(plan);
    }
}

static void finds(const ash_memory_problem *p, const ash_memory_place *places,
                  const ash_memory_arena *arena, const char *words) {
    assert_status(ash_memory_check(context, p, places, arena, 1, NULL, &diag), ASH_ERROR_INTERNAL);
    if (!strstr(diag.message, words)) fail_msg("\"%s\" lacks \"%s\"", diag.message, words);
}

/* Five buffers, the third in the second, the fourth where the first was and the fifth where the second was;
 * lifetimes as intervals, and as clocks of two streams, of which the second waits for the readers of what
 * it takes over. Bytes [170, 180) are a hole. */
typedef struct example {
    ash_memory_buffer buffers[5];
    ash_memory_hole hole;
    int64_t acquire[10], release[10];
    ash_memory_problem form;
    ash_memory_arena arena;
    ash_memory_place places[5];
} example;

static void make_example(example *e, uint32_t streams) {
    *e = (example){
        .buffers = {ash_memory_buffer_init(64, 64, 0, 4), ash_memory_buffer_init(100, 1, 2, 6),
                    ash_memory_buffer_init(40, 4, 3, 5), ash_memory_buffer_init(64, 64, 4, 9),
                    ash_memory_buffer_init(8, 1, 6, 8)},
        .hole = {0, 170, 10, 0, 9},
        .acquire = {0, 0, 2, 0, 4, 0, 4, 0, 6, 0},
        .release = {4, 0, 6, 0, 5, 0, 0, 2, 0, 4},
        .arena = {.size = 400, .align = 64},
        .places = {{0, 0, 0}, {64, 0, 0}, {124, 0, 0}, {0, 0, 0}, {156, 0, 0}},
    };
    e->buffers[2].root = 1, e->buffers[2].root_offset = 60;
    e->form = (ash_memory_problem){.buffers = e->buffers,
                                   .buffer_count = 5,
                                   .holes = &e->hole,
                                   .hole_count = 1,
                                   .streams = streams,
                                   .acquire = e->acquire,
                                   .release = e->release};
}

static void sound_example(void **state) {
    (void)state;
    for (uint32_t streams = 0; streams < 3; streams += 2) {
        static example e;
        make_example(&e, streams);
        ash_memory_check_report report;
        assert_ok(ash_memory_check(context, &e.form, e.places, &e.arena, 1, &report, &diag));
        assert_int_equal(report.buffers, 5);
        assert_int_equal(report.aliases, 1);
        assert_int_equal(report.events, 5); /* four roots and the hole */
        assert_true(report.comparisons >= 5);
        /* As close as can be: at the edges of the hole and of the arena. */
        e.places[1].offset = 180, e.places[2].offset = 240;
        e.places[4].offset = 162;
        assert_ok(ash_memory_check(context, &e.form, e.places, &e.arena, 1, NULL, &diag));
        e.places[4].offset = 392;
        assert_ok(ash_memory_check(context, &e.form, e.places, &e.arena, 1, NULL, &diag));
    }
}

static void planted_defects(void **state) {
    (void)state;
    static example e;
    for (uint32_t streams = 0; streams < 3; streams += 2) {
#define PLANT(change, words)                                                                               \
    (make_example(&e, streams), (void)(change), finds(&e.form, e.places, &e.arena, words))
        /* Overlap by one byte: from below, from above, with a hole. */
        PLANT((e.places[1].offset = 63, e.places[2].offset = 123, e.buffers[2].align = 1),
              "buffer 0 and buffer 1");
        assert_non_null(strstr(diag.message, "share bytes [63, 64)"));
        PLANT(e.buffers[0].size = 65, "share bytes [64, 65)");
        PLANT((e.buffers[4].begin = 5, e.acquire[8] = 5, e.places[4].offset = 163),
              "share bytes [163, 164)");
        PLANT((e.places[1].offset = 179, e.places[2].offset = 239, e.buffers[2].align = 1),
              "share bytes [179, 180)");
        PLANT(e.places[4].offset = 163, "hole");
        /* A missing edge: what comes after no longer waits for the last reader of what was before. */
        PLANT((e.buffers[3].begin = 3, e.acquire[6] = 3), "buffer 0 and buffer 3");
        PLANT((e.buffers[4].begin = 5, e.acquire[8] = 5), "buffer 1 and buffer 4");
        PLANT((e.buffers[2].end = 7, e.release[4] = 7), "buffer 1 and buffer 4"); /* read through a view */
        /* Misaligned, in the arena and by the arena's base. */
        PLANT(e.places[3].offset = 1, "buffer 3 at 1 misses its alignment 64");
        PLANT(e.places[3].offset = 32, "buffer 3 at 32 misses its alignment 64");
        PLANT(e.arena.align = 32, "alignment 64 (the arena has 32)");
        /* Outside the arena: by one byte, wholly, past 64 bits, and in none that there is. */
        PLANT(e.places[4].offset = 393, "buffer 4, 8 bytes at 393, leaves its arena of 400");
        PLANT(e.places[3].offset = 448, "leaves its arena of 400");
        PLANT(e.places[3].offset = UINT64_MAX - 63, "leaves its arena of 400");
        PLANT(e.arena.size = 163, "buffer 1, 100 bytes at 64, leaves its arena of 163");
        PLANT(e.places[3].arena = 1, "buffer 3 is in arena 1 of 1");
        PLANT(e.places[3].arena = ASH_MEMORY_NONE, "buffer 3 has no place");
        PLANT(e.arena.lane = 3, "buffer 0 of lane 0 is in an arena of lane 3");
        /* A clobbered output lives on after its last use, also by way of a view; what is there from the
         * start or for ever is live before its first use. */
        PLANT(e.buffers[0].kind = ASH_MEMORY_OUTPUT, "buffer 0 and buffer 3");
        PLANT(e.buffers[2].kind = ASH_MEMORY_OUTPUT, "buffer 1 and buffer 4");
        PLANT(e.buffers[3].kind = ASH_MEMORY_INPUT, "buffer 0 and buffer 3");
        PLANT(e.buffers[0].kind = ASH_MEMORY_PARAMETER, "buffer 0 and buffer 3");
        PLANT(e.buffers[3].kind = ASH_MEMORY_STATE, "buffer 0 and buffer 3");
        /* A view past its root, by one byte at the end; or not where it belongs. */
        PLANT(e.buffers[2].size = 41, "buffer 2 leaves its root 1 of 100 bytes");
        PLANT((e.buffers[2].root_offset = 64, e.places[2].offset = 128), "leaves its root 1 of 100 bytes");
        PLANT(e.places[2].offset = 128, "not 60 apart");
        PLANT(e.places[2].offset = 60, "not 60 apart");
        PLANT(e.places[2].arena = ASH_MEMORY_NONE, "different arenas");
        PLANT(e.buffers[3].pinned = 128, "buffer 3 is at 0, but pinned at 128");
#undef PLANT
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(agrees_with_the_plain_checker),
        cmocka_unit_test(nothing_is_reused_on_demand),
        cmocka_unit_test(extreme_times),
        cmocka_unit_test(boundary_buffers_keep_the_root_they_lie_in),
        cmocka_unit_test(sound_example),
        cmocka_unit_test(planted_defects),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
