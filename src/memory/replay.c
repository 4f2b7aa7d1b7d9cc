/* SPDX-License-Identifier: MIT */
/* The second checker: judges bytes instead of lifetimes. It runs the operations in order of issue over the
 * arenas and keeps, for every run of bytes with one history, the last write, the reads since, and the alias
 * class that wrote. A race detector with vector clocks (Mattern, 1989; the scheme of DJIT+ by Pozniansky
 * and Schuster, 2003): it is enough to compare with the last write and the last read of each stream,
 * because everything earlier was found in order with these. It makes its own clocks, and shares no code
 * with what filled the planner's.
 *
 * The runs hang in a treap by their first byte. A write replaces the runs that it covers by one, a read at
 * most cuts two, so their number grows by two per access and the work is n log n, but for reads of bytes
 * that many wrote. */
#include "ashlar/memory_schedule.h"
#include "base/base.h"

#define NIL UINT32_MAX

enum {
    NOBODY = -1,
    BEFORE = -2
}; /* writers that are no operation: never written; written before the start */

typedef struct piece {
    uint64_t low, high; /* bytes of the arena */
    uint32_t left, right;
    uint32_t weight; /* heap order of the treap */
    uint32_t root;   /* alias class that wrote; NIL: none */
    int64_t writer;  /* operation, NOBODY or BEFORE */
} piece;

typedef struct replayer {
    const ash_allocator *allocator;
    const ash_memory_schedule *schedule;
    const ash_memory_buffer *buffers;
    const ash_memory_place *places;
    size_t streams;
    int64_t *clocks;    /* per operation: half steps over before it begins */
    int64_t *positions; /* per operation, on its stream */
    ASH_VEC(piece) pieces;
    ASH_VEC(int64_t)
    reads; /* per piece and stream: 2 * operation + (1 unless early) of the last read, or -1 */
    ASH_VEC(uint32_t) spare;
    uint32_t *trees; /* per arena */
    uint32_t random;
    ash_memory_replay_report *report;
} replayer;

static uint32_t stream_of(const replayer *r, uint32_t op) {
    return r->schedule->op_streams ? r->schedule->op_streams[op] : 0;
}

static uint32_t root_of(const replayer *r, uint32_t buffer) {
    uint32_t root = r->buffers[buffer].root;
    return root == ASH_MEMORY_NONE ? buffer : root;
}

/* --- the runs ------------------------------------------------------------------------------------- */

static uint32_t new_piece(replayer *r, uint64_t low, uint64_t high) {
    uint32_t i;
    if (r->spare.len) {
        i = r->spare.at[--r->spare.len];
    } else {
        if (!ash_vec_reserve(r->allocator, &r->pieces, 1) ||
            !ash_vec_reserve(r->allocator, &r->reads, r->streams) ||
            !ash_vec_reserve(r->allocator, &r->spare, r->pieces.len + 1))
            return NIL;
        i = (uint32_t)r->pieces.len++;
        r->reads.len += r->streams;
    }
    r->random = r->random * 1664525u + 1013904223u;
    r->pieces.at[i] = (piece){low, high, NIL, NIL, r->random, NIL, NOBODY};
    for (size_t s = 0; s < r->streams; s++) r->reads.at[i * r->streams + s] = -1;
    return i;
}

static uint32_t merge(replayer *r, uint32_t a, uint32_t b) {
    if (a == NIL) return b;
    if (b == NIL) return a;
    piece *p = r->pieces.at;
    if (p[a].weight >= p[b].weight) {
        p[a].right = merge(r, p[a].right, b);
        return a;
    }
    p[b].left = merge(r, a, p[b].left);
    return b;
}

/* Splits by first byte: *a below `byte`, *b from there on. */
static void split(replayer *r, uint32_t tree, uint64_t byte, uint32_t *a, uint32_t *b) {
    if (tree == NIL) {
        *a = *b = NIL;
        return;
    }
    piece *p = &r->pieces.at[tree];
    if (p->low < byte) {
        split(r, p->right, byte, &p->right, b);
        *a = tree;
    } else {
        split(r, p->left, byte, a, &p->left);
        *b = tree;
    }
}

/* Takes the runs of [low, high) out of a tree, cut at both ends. `whole` is split into three; false: no
 * memory. */
static bool take_out(replayer *r, uint32_t tree, uint64_t low, uint64_t high, uint32_t *below,
                     uint32_t *middle, uint32_t *above) {
    uint32_t rest;
    split(r, tree, low, below, &rest);
    split(r, rest, high, middle, above);
    uint64_t borders[2] = {low, high};
    for (int k = 0; k < 2; k++) { /* the last run below each border may reach over it */
        uint32_t *from = k ? middle : below, *to = k ? above : middle;
        if (k && *middle == NIL) continue;
        uint32_t last = *from;
        while (last != NIL && r->pieces.at[last].right != NIL) last = r->pieces.at[last].right;
        if (last == NIL || r->pieces.at[last].high <= borders[k]) continue;
        uint32_t cut = new_piece(r, borders[k], r->pieces.at[last].high);
        if (cut == NIL) return false;
        piece *old = &r->pieces.at[last], *fresh = &r->pieces.at[cut];
        fresh->root = old->root;
        fresh->writer = old->writer;
        memcpy(r->reads.at + cut * r->streams, r->reads.at + last * r->streams,
               r->streams * sizeof *r->reads.at);
        old->high = borders[k];
        *to = merge(r, cut, *to);
        if (!k && fresh->high > high) { /* one run covers it all: cut it at the upper end, too */
            uint32_t top = new_piece(r, high, fresh->high);
            if (top == NIL) return false;
            fresh = &r->pieces.at[cut];
            r->pieces.at[top].root = fresh->root;
            r->pieces.at[top].writer = fresh->writer;
            memcpy(r->reads.at + top * r->streams, r->reads.at + cut * r->streams,
                   r->streams * sizeof *r->reads.at);
            fresh->high = high;
            *above = merge(r, top, *above);
        }
    }
    return true;
}

/* --- the order ------------------------------------------------------------------------------------ */

/* Whether half step `end` of the stream of `op` is over when the access of kind `kind` in `now` begins. */
static bool is_over(const replayer *r, uint32_t op, int64_t end, uint32_t now,
                    ash_memory_access_kind kind) {
    uint32_t stream = stream_of(r, op);
    int64_t over = r->clocks[now * r->streams + stream];
    if (stream == stream_of(r, now)) over = 2 * r->positions[now] + (kind == ASH_MEMORY_WRITE);
    return end <= over;
}

static ash_status race(uint32_t before, uint32_t now, uint32_t buffer, ash_diag *diag) {
    return ash_fail(
        diag, ASH_ERROR_INTERNAL,
        "operations %u and %u touch the same bytes (of buffer %u), and nothing puts one before the other",
        before, now, buffer);
}

/* One access meets one run. */
static ash_status meet(replayer *r, const ash_memory_access *access, uint32_t index, ash_diag *diag) {
    const piece *p = &r->pieces.at[index];
    uint32_t root = root_of(r, access->buffer);
    bool writes = access->kind == ASH_MEMORY_WRITE || access->kind == ASH_MEMORY_SCRATCH;
    r->report->pieces++;
    if (!writes && p->root != root) {
        if (p->root == NIL)
            return ash_fail(diag, ASH_ERROR_INTERNAL,
                            "operation %u reads bytes of buffer %u that nothing has written", access->op,
                            access->buffer);
        return ash_fail(diag, ASH_ERROR_INTERNAL,
                        "operation %u reads buffer %u, but buffer %u (operation %lld) lies there",
                        access->op, access->buffer, p->root, (long long)p->writer);
    }
    if (p->writer >= 0) {
        uint32_t writer = (uint32_t)p->writer;
        r->report->comparisons++;
        bool own = writer == access->op && p->root == root;
        if (!own && !is_over(r, writer, 2 * r->positions[writer] + 2, access->op, access->kind))
            return race(writer, access->op, access->buffer, diag);
    }
    for (size_t s = 0; s < r->streams && writes; s++) {
        int64_t read = r->reads.at[index * r->streams + s];
        if (read < 0) continue;
        uint32_t reader = (uint32_t)(read / 2);
        r->report->comparisons++;
        bool own = reader == access->op && p->root == root; /* in place */
        if (!own && !is_over(r, reader, 2 * r->positions[reader] + 1 + read % 2, access->op, access->kind))
            return race(reader, access->op, access->buffer, diag);
    }
    return ASH_OK;
}

/* Every run of a subtree, in order. */
static ash_status meet_all(replayer *r, const ash_memory_access *access, uint32_t tree, uint64_t *covered,
                           ash_diag *diag) {
    if (tree == NIL) return ASH_OK;
    ASH_TRY(meet_all(r, access, r->pieces.at[tree].left, covered, diag));
    ASH_TRY(meet(r, access, tree, diag));
    *covered += r->pieces.at[tree].high - r->pieces.at[tree].low;
    if (access->kind == ASH_MEMORY_READ || access->kind == ASH_MEMORY_READ_EARLY) {
        int64_t *last = &r->reads.at[tree * r->streams + stream_of(r, access->op)];
        *last = ASH_MAX(*last, 2 * (int64_t)access->op + (access->kind == ASH_MEMORY_READ));
    }
    return meet_all(r, access, r->pieces.at[tree].right, covered, diag);
}

static void drop(replayer *r, uint32_t tree) {
    if (tree == NIL) return;
    drop(r, r->pieces.at[tree].left);
    drop(r, r->pieces.at[tree].right);
    r->spare.at[r->spare.len++] = tree; /* room was made when the piece was */
}

/* An access by operation `writer`, or by BEFORE. The buffer has a place. */
static ash_status touch(replayer *r, const ash_memory_access *access, int64_t writer, ash_diag *diag) {
    const ash_memory_place *place = &r->places[access->buffer];
    const ash_memory_buffer *b = &r->buffers[access->buffer];
    ASH_FAIL_IF(access->offset > b->size ||
                    (access->size != ASH_MEMORY_WHOLE && access->size > b->size - access->offset),
                diag, ASH_ERROR_INTERNAL, "operation %lld leaves buffer %u of %llu bytes",
                (long long)writer, access->buffer, (unsigned long long)b->size);
    uint64_t low = place->offset + access->offset;
    uint64_t high = access->size == ASH_MEMORY_WHOLE ? place->offset + b->size : low + access->size;
    uint32_t *tree = &r->trees[place->arena], below, middle, above;
    if (low == high) return ASH_OK;
    if (!take_out(r, *tree, low, high, &below, &middle, &above)) return ASH_NO_MEMORY(diag);
    uint64_t covered = 0;
    uint32_t root = root_of(r, access->buffer);
    bool writes = access->kind == ASH_MEMORY_WRITE || access->kind == ASH_MEMORY_SCRATCH;
    if (writer >= 0) {
        ASH_TRY(meet_all(r, access, middle, &covered, diag));
        ASH_FAIL_IF(!writes && covered < high - low, diag, ASH_ERROR_INTERNAL,
                    "operation %u reads bytes of buffer %u that nothing has written", access->op,
                    access->buffer);
    }
    if (writes) {
        drop(r, middle);
        middle = new_piece(r, low, high);
        if (middle == NIL) return ASH_NO_MEMORY(diag);
        r->pieces.at[middle].root = root;
        r->pieces.at[middle].writer = writer;
    }
    *tree = merge(r, merge(r, below, middle), above);
    return ASH_OK;
}

/* --- the run -------------------------------------------------------------------------------------- */

/* `next` has one entry per wait, `first` one per operation, `last` one per stream. */
static void make_clocks(replayer *r, uint32_t *first, uint32_t *next, uint32_t *last) {
    const ash_memory_schedule *s = r->schedule;
    memset(first, 0xff, s->op_count * sizeof *first);
    memset(last, 0xff, r->streams * sizeof *last);
    for (uint32_t w = 0; w < s->wait_count; w++) {
        next[w] = first[s->waits[w].op];
        first[s->waits[w].op] = w;
    }
    for (uint32_t o = 0; o < s->op_count; o++) {
        int64_t *clock = r->clocks + o * r->streams;
        uint32_t previous = last[stream_of(r, o)];
        r->positions[o] = previous == NIL ? 0 : r->positions[previous] + 1;
        for (size_t t = 0; t < r->streams; t++)
            clock[t] = previous == NIL ? 0 : r->clocks[previous * r->streams + t];
        if (previous != NIL) clock[stream_of(r, o)] = 2 * r->positions[previous] + 2;
        for (uint32_t w = first[o]; w != NIL; w = next[w]) {
            uint32_t after = s->waits[w].after;
            for (size_t t = 0; t < r->streams; t++)
                clock[t] = ASH_MAX(clock[t], r->clocks[after * r->streams + t]);
            int64_t *over = &clock[stream_of(r, after)];
            *over = ASH_MAX(*over, 2 * r->positions[after] + 2);
        }
        last[stream_of(r, o)] = o;
    }
}

/* What the caller put there before the start. */
static ash_status fill_boundary(replayer *r, uint32_t buffer_count, ash_diag *diag) {
    for (uint32_t i = 0; i < buffer_count; i++) {
        ash_memory_kind kind = r->buffers[i].kind;
        if (kind == ASH_MEMORY_INTERMEDIATE || kind == ASH_MEMORY_OUTPUT) continue;
        ash_memory_access all = {.buffer = i, .kind = ASH_MEMORY_WRITE, .size = ASH_MEMORY_WHOLE};
        if (r->places[i].arena != ASH_MEMORY_NONE) ASH_TRY(touch(r, &all, BEFORE, diag));
    }
    return ASH_OK;
}

static ash_status is_whole(const replayer *r, uint32_t tree, uint32_t buffer, uint64_t *covered,
                           ash_diag *diag) {
    if (tree == NIL) return ASH_OK;
    const piece *p = &r->pieces.at[tree];
    ASH_TRY(is_whole(r, p->left, buffer, covered, diag));
    ASH_FAIL_IF(p->root != root_of(r, buffer), diag, ASH_ERROR_INTERNAL,
                "%s %u is not whole at the end: operation %lld wrote buffer %u over it",
                ash_memory_kind_text(r->buffers[buffer].kind), buffer, (long long)p->writer, p->root);
    *covered += p->high - p->low;
    return is_whole(r, p->right, buffer, covered, diag);
}

static ash_status check_end(replayer *r, uint32_t buffer_count, ash_diag *diag) {
    for (uint32_t i = 0; i < buffer_count; i++) {
        const ash_memory_buffer *b = &r->buffers[i];
        const ash_memory_place *place = &r->places[i];
        if ((b->kind != ASH_MEMORY_PARAMETER && b->kind != ASH_MEMORY_CONSTANT &&
             b->kind != ASH_MEMORY_OUTPUT && b->kind != ASH_MEMORY_STATE) ||
            place->arena == ASH_MEMORY_NONE || !b->size)
            continue;
        uint32_t *tree = &r->trees[place->arena], below, middle, above;
        uint64_t covered = 0;
        if (!take_out(r, *tree, place->offset, place->offset + b->size, &below, &middle, &above))
            return ASH_NO_MEMORY(diag);
        ASH_TRY(is_whole(r, middle, i, &covered, diag));
        ASH_FAIL_IF(covered < b->size, diag, ASH_ERROR_INTERNAL,
                    "%s %u is not whole at the end: some bytes are never written",
                    ash_memory_kind_text(b->kind), i);
        *tree = merge(r, merge(r, below, middle), above);
    }
    return ASH_OK;
}

/* The accesses of an operation, reads first. */
static ash_status run_operation(replayer *r, uint32_t op, uint32_t first, const uint32_t *next,
                                ash_diag *diag) {
    r->report->operations++;
    for (int writes = 0; writes < 2; writes++)
        for (uint32_t k = first; k != NIL; k = next[k]) {
            const ash_memory_access *access = &r->schedule->accesses[k];
            bool writing = access->kind == ASH_MEMORY_WRITE || access->kind == ASH_MEMORY_SCRATCH;
            if (writing != writes) continue;
            r->report->accesses++;
            if (r->places[access->buffer].arena != ASH_MEMORY_NONE) ASH_TRY(touch(r, access, op, diag));
        }
    return ASH_OK;
}

static ash_status check_arguments(const ash_memory_schedule *s, const ash_memory_buffer *buffers,
                                  uint32_t buffer_count, const ash_memory_place *places, size_t arena_count,
                                  ash_diag *diag) {
    uint32_t streams = s->streams ? s->streams : 1;
    ASH_FAIL_IF((s->wait_count && !s->waits) || (s->access_count && !s->accesses), diag,
                ASH_ERROR_INVALID_ARGUMENT, "the waits or the accesses are NULL");
    for (uint32_t i = 0; i < s->op_count && s->op_streams; i++)
        ASH_FAIL_IF(s->op_streams[i] >= streams, diag, ASH_ERROR_INVALID_ARGUMENT,
                    "operation %u has an unknown stream", i);
    for (uint32_t i = 0; i < s->wait_count; i++)
        ASH_FAIL_IF(s->waits[i].op >= s->op_count || s->waits[i].after >= s->waits[i].op, diag,
                    ASH_ERROR_INVALID_ARGUMENT, "wait %u is for no earlier operation", i);
    for (uint32_t i = 0; i < s->access_count; i++)
        ASH_FAIL_IF(s->accesses[i].op >= s->op_count || s->accesses[i].buffer >= buffer_count ||
                        (unsigned)s->accesses[i].kind >= ASH_MEMORY_ACCESS_KIND_COUNT,
                    diag, ASH_ERROR_INVALID_ARGUMENT,
                    "access %u is of an unknown operation, buffer or kind", i);
    for (uint32_t i = 0; i < buffer_count; i++) {
        ASH_FAIL_IF(buffers[i].root != ASH_MEMORY_NONE && buffers[i].root >= buffer_count, diag,
                    ASH_ERROR_INVALID_ARGUMENT, "buffer %u has an unknown root", i);
        ASH_FAIL_IF(places[i].arena != ASH_MEMORY_NONE && places[i].arena >= arena_count, diag,
                    ASH_ERROR_INVALID_ARGUMENT, "buffer %u is in arena %u of %zu", i, places[i].arena,
                    arena_count);
        ASH_FAIL_IF(places[i].offset + buffers[i].size < buffers[i].size, diag, ASH_ERROR_OUT_OF_RANGE,
                    "buffer %u ends past 64 bits", i);
    }
    return ASH_OK;
}

ash_status ash_memory_schedule_check(ash_context *context, const ash_memory_schedule *schedule,
                                     const ash_memory_buffer *buffers, size_t buffer_count,
                                     const ash_memory_place *places, size_t arena_count,
                                     ash_memory_replay_report *report, ash_diag *diag) {
    ash_memory_replay_report ignored;
    if (!report) report = &ignored;
    *report = (ash_memory_replay_report){0};
    ASH_NEED(diag, context, schedule);
    if (buffer_count) ASH_NEED(diag, buffers, places);
    ASH_TRY(check_arguments(schedule, buffers, buffer_count, places, arena_count, diag));
    const ash_allocator *a = ash_context__allocator(context);
    replayer r = {.allocator = a,
                  .schedule = schedule,
                  .buffers = buffers,
                  .places = places,
                  .streams = schedule->streams ? schedule->streams : 1,
                  .random = 1,
                  .report = report};
    size_t links = (size_t)schedule->wait_count + schedule->access_count;
    r.clocks = ash_mem_alloc(a, schedule->op_count, r.streams * sizeof *r.clocks);
    r.positions = ash_mem_alloc(a, schedule->op_count, sizeof *r.positions);
    r.trees = ash_mem_alloc(a, arena_count, sizeof *r.trees);
    uint32_t *first = ash_mem_alloc(a, schedule->op_count, sizeof *first),
             *next = ash_mem_alloc(a, links, sizeof *next);
    uint32_t *last = ash_mem_alloc(a, r.streams, sizeof *last);
    ash_status status = ASH_OK;
    ASH_FAIL_IF_DONE(!r.clocks || !r.positions || !r.trees || !first || !next || !last, diag,
                     ASH_ERROR_OUT_OF_MEMORY, "out of memory");
    make_clocks(&r, first, next, last);
    memset(first, 0xff, schedule->op_count * sizeof *first);
    memset(r.trees, 0xff, arena_count * sizeof *r.trees);
    for (uint32_t k = schedule->access_count; k--;) {
        next[k] = first[schedule->accesses[k].op];
        first[schedule->accesses[k].op] = k;
    }
    ASH_TRY_DONE(fill_boundary(&r, buffer_count, diag));
    for (uint32_t o = 0; o < schedule->op_count; o++)
        ASH_TRY_DONE(run_operation(&r, o, first[o], next, diag));
    ASH_TRY_DONE(check_end(&r, buffer_count, diag));
done:
    ash_mem_free(a, last, r.streams, sizeof *last);
    ash_mem_free(a, next, links, sizeof *next);
    ash_mem_free(a, first, schedule->op_count, sizeof *first);
    ash_mem_free(a, r.trees, arena_count, sizeof *r.trees);
    ash_mem_free(a, r.positions, schedule->op_count, sizeof *r.positions);
    ash_mem_free(a, r.clocks, schedule->op_count, r.streams * sizeof *r.clocks);
    ash_vec_free(a, &r.spare);
    ash_vec_free(a, &r.reads);
    ash_vec_free(a, &r.pieces);
    return status;
}
