/* SPDX-License-Identifier: MIT */
/* A caller who believes nothing proves a plan's schedule anew: from what the public interface says of
 * streams, events, waits, accesses and places alone, with vector clocks of its own, it is shown for every
 * pair of accesses to a common byte of which one writes that one happens before the other. The same code
 * finds each wait that is left out. */
#include "graph_room.h"

#include "apart.h"
#include "ashlar/builder.h"

static ash_diag diag;

enum { N = 96, BRANCHES = 6, DEEP = 3 };

static int setup(void **state) {
    return room_open(state, 2);
}

/* --- what is asked of the plan -------------------------------------------------------------------- */

struct op {
    uint32_t stream, event, position; /* position: operations before it on its stream */
};

struct wait {
    uint32_t op, event;
};

/* One access as bytes of an arena: `arena` is one, or tells apart what lies in none. */
struct touch {
    uint64_t arena, begin, end;
    uint32_t op;
    bool write;
};

struct schedule {
    struct op *ops;
    struct wait *waits;
    struct touch *touches;
    size_t n_ops, n_waits, n_touches, streams, events;
};

static void free_schedule(struct schedule *s) {
    free(s->ops), free(s->waits), free(s->touches);
    *s = (struct schedule){0};
}

static void *grown(void *list, size_t len, size_t size) {
    if (len & (len + 1)) return list; /* room for 2^n - 1 */
    list = realloc(list, (2 * len + 1) * size);
    assert_non_null(list);
    return list;
}

static void note_access(struct schedule *s, ash_plan *plan, uint32_t op, size_t access) {
    ash_op_access a = ASH_INIT(ash_op_access);
    ash_buffer_info b = ASH_INIT(ash_buffer_info);
    assert_ok(ash_plan_op_access(plan, op, access, &a, &diag));
    assert_ok(ash_plan_buffer_at(plan, a.buffer, &b, &diag));
    assert_true(a.begin <= a.end && a.end <= b.bytes);
    struct touch t = {.arena = b.arena, .begin = b.offset + a.begin, .end = b.offset + a.end, .op = op};
    if (b.arena == UINT32_MAX) { /* outside: who shares a root shares its bytes, and none is written */
        t = (struct touch){.arena = (uint64_t)1 << 32 | b.root, .end = UINT64_MAX, .op = op};
        assert_false(a.write);
    }
    t.write = a.write;
    s->touches = grown(s->touches, s->n_touches, sizeof *s->touches);
    s->touches[s->n_touches++] = t;
}

static void note_wait(struct schedule *s, const ash_plan *plan, uint32_t op, size_t wait) {
    ash_op_wait w;
    assert_ok(ash_plan_op_wait(plan, op, wait, &w, &diag));
    assert_true(w.op < op); /* who is waited for was issued before, */
    assert_int_equal(s->ops[w.op].event, w.event);
    assert_int_not_equal(s->ops[w.op].stream, s->ops[op].stream); /* elsewhere */
    s->waits = grown(s->waits, s->n_waits, sizeof *s->waits);
    s->waits[s->n_waits++] = (struct wait){op, w.event};
}

static void take_out(ash_plan *plan, struct schedule *s) {
    ash_prepared_op op = ASH_INIT(ash_prepared_op);
    ash_op_wait none;
    uint32_t last[ASH_PLAN_MOST_STREAMS] = {0};
    *s = (struct schedule){.n_ops = ash_plan_op_count(plan)};
    s->ops = calloc(s->n_ops + 1, sizeof *s->ops);
    for (uint32_t i = 0; i < s->n_ops; i++) {
        assert_ok(ash_plan_op_at(plan, i, &op, &diag));
        assert_true(op.stream < ASH_PLAN_MOST_STREAMS);
        s->ops[i] = (struct op){op.stream, op.event, last[op.stream]++};
        if (op.stream >= s->streams) s->streams = op.stream + 1;
        s->events += op.event != UINT32_MAX;
        for (size_t w = 0; w < op.wait_count; w++) note_wait(s, plan, i, w);
        assert_status(ash_plan_op_wait(plan, i, op.wait_count, &none, &diag), ASH_ERROR_NOT_FOUND);
        for (size_t a = 0; a < ash_plan_op_access_count(plan, i); a++) note_access(s, plan, i, a);
    }
    assert_status(ash_plan_op_wait(plan, s->n_ops, 0, &none, &diag), ASH_ERROR_NOT_FOUND);
    ash_plan_report report = ash_plan_describe(plan);
    assert_int_equal(s->n_waits, report.waits);
    assert_int_equal(s->events, report.events);
}

/* --- the proof ------------------------------------------------------------------------------------ */

/* clocks[op * streams + t]: operations of stream t that are over before `op` begins. */
static uint32_t *find_clocks(const struct schedule *s, size_t dropped) {
    uint32_t *clocks = calloc((s->n_ops + 1) * s->streams, sizeof *clocks);
    uint32_t last[ASH_PLAN_MOST_STREAMS], recorder[1024];
    memset(last, 0xff, sizeof last);
    memset(recorder, 0xff, sizeof recorder);
    assert_true(s->events <= 1024);
    for (uint32_t i = 0; i < s->n_ops; i++) {
        uint32_t over[1 + 1024], n = 0, stream = s->ops[i].stream;
        if (last[stream] != UINT32_MAX) over[n++] = last[stream];
        for (size_t w = 0; w < s->n_waits; w++) {
            if (s->waits[w].op != i || w == dropped) continue;
            assert_int_not_equal(recorder[s->waits[w].event], UINT32_MAX);
            over[n++] = recorder[s->waits[w].event];
        }
        for (uint32_t k = 0; k < n; k++) {
            const struct op *before = &s->ops[over[k]];
            uint32_t *clock = clocks + i * s->streams;
            for (size_t t = 0; t < s->streams; t++) {
                uint32_t there = clocks[over[k] * s->streams + t];
                if (there > clock[t]) clock[t] = there;
            }
            if (clock[before->stream] <= before->position) clock[before->stream] = before->position + 1;
        }
        last[stream] = i;
        if (s->ops[i].event != UINT32_MAX) recorder[s->ops[i].event] = i;
    }
    return clocks;
}

static bool happens_before(const struct schedule *s, const uint32_t *clocks, uint32_t a, uint32_t b) {
    return clocks[b * s->streams + s->ops[a].stream] > s->ops[a].position;
}

struct verdict {
    size_t pairs, races;
    uint32_t first, second; /* of a race */
};

/* Looks at every pair that meets; with `dropped` below the number of waits, as if that were not there. */
static struct verdict prove(const struct schedule *s, size_t dropped) {
    struct verdict v = {0};
    uint32_t *clocks = find_clocks(s, dropped);
    for (size_t i = 0; i < s->n_touches; i++)
        for (size_t k = 0; k < i; k++) {
            const struct touch *a = &s->touches[k], *b = &s->touches[i];
            bool meet = a->arena == b->arena && a->begin < b->end && b->begin < a->end;
            if (!meet || a->op == b->op || !(a->write || b->write)) continue;
            v.pairs++;
            if (happens_before(s, clocks, a->op, b->op)) continue;
            v.races++;
            v.first = a->op, v.second = b->op;
        }
    free(clocks);
    return v;
}

/* --- plans ---------------------------------------------------------------------------------------- */

/* Branches of products, which are worth streams of their own, that join; a state that they read. */
static void make_graph(struct room *r) {
    ash_type square = {.dtype = ASH_F32, .rank = 2, .dims = {N, N}};
    ash_value branches[BRANCHES];
    assert_ok(ash_graph_create(r->context, "branches", &r->g, &diag));
    ash_value x = ash_graph_input(r->g, "x", &square), z = ash_graph_input(r->g, "z", &square),
              s = ash_graph_state(r->g, "s", &square, NULL, 0, ASH_DATA_COPY);
    for (int b = 0; b < BRANCHES; b++) {
        branches[b] = b % 2 ? x : z;
        for (int i = 0; i < DEEP; i++)
            branches[b] = ash_relu(r->g, ash_matmul(r->g, branches[b], i % 2 ? x : s));
        if (b) branches[b] = ash_matmul(r->g, branches[b], branches[b - 1]);
    }
    ash_value y = ash_concat(r->g, branches, BRANCHES, 0);
    ash_graph_update(r->g, s, ash_add(r->g, s, branches[0]));
    ash_graph_output(r->g, "y", y);
    assert_ok(ash_graph_status(r->g, &diag));
}

static void prepare(struct room *r, unsigned streams, int memory) {
    ash_plan_options options = ash_plan_options_default();
    options.mode = ASH_MODE_MULTI_STREAM;
    options.streams = streams;
    options.memory.mode = (ash_memory_mode)memory;
    ash_plan_destroy(r->plan);
    r->plan = NULL;
    assert_ok(ash_plan_prepare(r->context, r->g, &options, &r->plan, &diag));
}

static void every_pair_is_in_order(void **state) {
    struct room *r = *state;
    make_graph(r);
    size_t planted = 0;
    for (unsigned streams = 1; streams <= 4; streams++)
        for (int memory = 0; memory < ASH_MEMORY_MODE_COUNT; memory++) {
            struct schedule s;
            prepare(r, streams, memory);
            take_out(r->plan, &s);
            assert_true(streams == 1 ? s.streams == 1 && s.n_waits == 0 : s.streams > 1 && s.n_waits > 0);
            struct verdict v = prove(&s, s.n_waits);
            if (v.races) fail_msg("operations %u and %u race", v.first, v.second);
            assert_true(v.pairs > s.n_ops / 2);
            for (size_t w = 0; w < s.n_waits; w++, planted++)
                if (prove(&s, w).races == 0)
                    fail_msg("nobody misses the wait of operation %u", s.waits[w].op);
            free_schedule(&s);
        }
    assert_true(planted > 10);
}

/* The same on several devices: copies, what they read, and who takes over bytes behind them. */
static void on_several_devices(void **state) {
    enum { DEVICES = 3 };
    struct room *r = *state;
    ash_device *devices[DEVICES];
    make_graph(r);
    assert_ok(ash_device_open(r->context, "CPU", &devices[0], &diag));
    for (unsigned d = 1; d < DEVICES; d++) assert_ok(apart_open_another(r->context, d, &devices[d], &diag));
    size_t planted = 0;
    for (size_t n = 0; n < r->g->nodes.len; n++) r->g->nodes.at[n].place = 1 + n / 3 % DEVICES;
    for (unsigned streams = 1; streams <= 3; streams++) {
        struct schedule s;
        ash_plan_options options = ash_plan_options_default();
        options.mode = streams == 1 ? ASH_MODE_STREAM : ASH_MODE_MULTI_STREAM;
        options.streams = streams;
        options.devices = devices;
        options.device_count = DEVICES;
        ash_plan_destroy(r->plan);
        r->plan = NULL;
        assert_ok(ash_plan_prepare(r->context, r->g, &options, &r->plan, &diag));
        take_out(r->plan, &s);
        assert_true(s.streams > DEVICES * streams); /* copies have their own */
        struct verdict v = prove(&s, s.n_waits);
        if (v.races) fail_msg("operations %u and %u race", v.first, v.second);
        for (size_t w = 0; w < s.n_waits; w++, planted++)
            if (prove(&s, w).races == 0) fail_msg("nobody misses the wait of operation %u", s.waits[w].op);
        free_schedule(&s);
    }
    assert_true(planted > 30);
    for (unsigned d = 0; d < DEVICES; d++) ash_device_close(devices[d]);
}

/* Bytes that are taken over too early are found, too: a result that is moved into those of another. */
static void a_wrong_place_is_found(void **state) {
    struct room *r = *state;
    struct schedule s;
    make_graph(r);
    prepare(r, 3, ASH_MEMORY_DISABLED);
    take_out(r->plan, &s);
    size_t found = 0;
    for (size_t i = 0; i < s.n_touches; i++)
        for (size_t k = 0; k < i && !found; k++) {
            struct touch *a = &s.touches[k], *b = &s.touches[i], was = *b;
            if (!a->write || !b->write || s.ops[a->op].stream == s.ops[b->op].stream) continue;
            b->arena = a->arena, b->begin = a->begin, b->end = a->end;
            found += prove(&s, s.n_waits).races > 0;
            *b = was;
        }
    assert_true(found > 0);
    assert_int_equal(prove(&s, s.n_waits).races, 0);
    free_schedule(&s);
}

int main(void) {
#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(every_pair_is_in_order),
        TEST(on_several_devices),
        TEST(a_wrong_place_is_found),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
