/* SPDX-License-Identifier: MIT */
/* accesses → dependences → streams → waits → events
 *
 * Two steps depend on each other when they touch a common byte of one root and one of them writes it. The
 * order of the program is the order of issue. Each step in turn goes to the stream where it can begin
 * end first, by estimated times, where meeting another stream costs `sync_ns`, and `pull_ns` for each byte
 * that comes from there: list scheduling with the program's order as the list. That order keeps lifetimes
 * short, which a list by critical path would not; chains stay on one stream, since going elsewhere costs
 * and gains nothing. Where the outcome is not expected to be faster than one stream, it is one stream:
 * small branches are not worth their edges.
 *
 * Of a program for several devices, each device has streams of its own, as many as are asked for, the main
 * one's first; and behind them each pair of devices between which something is copied has one, so that
 * copies overlap with all work.
 *
 * A step waits for a step of another stream only if nothing that it already waits for, itself or through
 * its stream, comes after that step. Clocks decide this, latest candidates first: who is issued later can
 * cover who was issued earlier, never the other way round, so no wait is left that another one implies. */
#include "assign.h"

enum { NOTHING = UINT32_MAX };

/* One access of an earlier step to a root, in a list of the root's. */
struct stream_touch {
    uint32_t step, next;
    int64_t begin, end; /* bytes of the root */
    uint64_t near;      /* bit per stream: it has written or read them */
};

/* What the present step reads of an earlier step's results. */
struct pull {
    uint32_t touch;
    int64_t bytes;
};

struct assigning {
    const ash_program *program;
    const ash_allocator *allocator;
    ash_schedule *schedule;
    ASH_VEC(struct stream_touch) touches;
    ASH_VEC(struct pull) pulls;
    ASH_VEC(ash_memory_wait) waits;
    uint32_t *writes, *reads; /* per buffer: the first touch of its list */
    uint32_t open;            /* streams that have a step: the first ones; of several devices: all */
    uint32_t copies[ASH_MOST_DEVICES][ASH_MOST_DEVICES]; /* of several: from where to where, its stream */
    uint32_t most, late; /* streams of the present part of the program; of the second one */
    uint32_t apart;      /* of several devices: from the first stream of one to that of the next */
    /* per stream */
    uint32_t *latest; /* the last step that the present one depends on */
    uint32_t *last;   /* the last step that was issued to it */
    uint32_t *first;  /* that of the first part of the program, once that is over */
    double *finish;   /* when that is over */
    double *end;      /* per step: when it is over */
};

double ash_schedule__cost(const ash_costs *costs, const ash_step *step) {
    double work = step->work > 0 ? step->work : step->flops / costs->rate_matmul;
    double traffic = step->bytes / costs->rate_bytes;
    return costs->step_ns + (work > traffic ? work : traffic);
}

/* --- dependences -------------------------------------------------------------------------------- */

static const ash_step *step_at(const struct assigning *w, uint32_t step) {
    return &w->program->steps.at[w->program->prologue + step];
}

static uint32_t root_of(const ash_program *p, uint32_t buffer, int64_t *offset) {
    const ash_buffer *b = &p->buffers.at[buffer];
    *offset = b->root == ASH_NO_BUFFER ? 0 : b->offset;
    return b->root == ASH_NO_BUFFER ? buffer : b->root;
}

static void depend(struct assigning *w, uint32_t on) {
    uint32_t *latest = &w->latest[w->schedule->stream[on]];
    if (*latest == NOTHING || *latest < on) *latest = on;
}

/* Depends on everything in the list that meets the bytes; with `forget`, what lies inside of them leaves
 * it: who meets that later also meets the writer that made it forgotten. With `pull`, they are read. */
static bool meet(struct assigning *w, uint32_t *list, int64_t begin, int64_t end, bool forget, bool pull) {
    for (uint32_t *at = list; *at != NOTHING;) {
        struct stream_touch *touch = &w->touches.at[*at];
        bool meets = touch->begin < end && begin < touch->end;
        if (meets) depend(w, touch->step);
        struct pull read = {*at, ASH_MIN(end, touch->end) - ASH_MAX(begin, touch->begin)};
        if (meets && pull && !ash_vec_push(w->allocator, &w->pulls, read)) return false;
        if (forget && begin <= touch->begin && touch->end <= end)
            *at = touch->next;
        else
            at = &touch->next;
    }
    return true;
}

static bool remember(struct assigning *w, uint32_t *list, uint32_t step, int64_t begin, int64_t end) {
    if (!ash_vec_push(
            w->allocator, &w->touches,
            (struct stream_touch){step, *list, begin, end, UINT64_C(1) << w->schedule->stream[step]}))
        return false;
    *list = (uint32_t)w->touches.len - 1;
    return true;
}

static bool find_dependences(struct assigning *w, uint32_t step) {
    const ash_step *s = step_at(w, step);
    bool made = true;
    w->pulls.len = 0;
    for (uint32_t i = 0; i < s->n_accesses; i++) {
        const ash_access *access = &s->accesses[i];
        int64_t offset;
        uint32_t root = root_of(w->program, access->buffer, &offset);
        int64_t begin = offset + access->begin, end = offset + access->end;
        made &= meet(w, &w->writes[root], begin, end, access->write, !access->write);
        if (access->write) made &= meet(w, &w->reads[root], begin, end, true, false);
    }
    return made;
}

/* Scratch is of one step alone. */
static bool note_accesses(struct assigning *w, uint32_t step) {
    const ash_step *s = step_at(w, step);
    for (uint32_t i = 0; i < s->n_accesses; i++) {
        const ash_access *access = &s->accesses[i];
        int64_t offset;
        uint32_t root = root_of(w->program, access->buffer, &offset);
        if (w->program->buffers.at[root].kind == ASH_BUFFER_SCRATCH) continue;
        uint32_t *list = access->write ? &w->writes[root] : &w->reads[root];
        if (!remember(w, list, step, offset + access->begin, offset + access->end)) return false;
    }
    return true;
}

/* --- streams ------------------------------------------------------------------------------------ */

/* When a step could begin on a stream. */
static double start_on(const struct assigning *w, uint32_t stream) {
    double start = w->finish[stream];
    for (uint32_t t = 0; t < w->open; t++) {
        if (w->latest[t] == NOTHING) continue;
        double ready = w->end[w->latest[t]] + (t == stream ? 0 : w->program->target.costs.sync_ns);
        start = ASH_MAX(start, ready);
    }
    return start;
}

/* How long it would take there. */
static double cost_on(const struct assigning *w, uint32_t step, uint32_t stream) {
    const ash_step *s = step_at(w, step);
    double cost = ash_schedule__cost(&ash_program__target(w->program, s->device)->costs, s);
    for (size_t i = 0; i < w->pulls.len; i++)
        if (!(w->touches.at[w->pulls.at[i].touch].near >> stream & 1))
            cost += w->program->target.costs.pull_ns * (double)w->pulls.at[i].bytes;
    return cost;
}

/* The streams that a step may go to: [first, *end). Those without a step are all alike. */
static uint32_t range_of(const struct assigning *w, uint32_t step, uint32_t *end) {
    const ash_program *p = w->program;
    const ash_step *s = step_at(w, step);
    uint32_t first = s->device * w->apart;
    *end = first + w->most;
    if (!p->others.len) *end = ASH_MIN(w->open + 1, w->most);
    if (!ash_step__crosses(p, s)) return first;
    first = w->copies[p->buffers.at[s->accesses[0].buffer].device][s->device];
    *end = first + 1;
    return first;
}

static void choose_stream(struct assigning *w, uint32_t step) {
    ash_schedule *s = w->schedule;
    uint32_t last, best = range_of(w, step, &last);
    double end = start_on(w, best) + cost_on(w, step, best);
    for (uint32_t t = best + 1; t < last; t++) {
        double there = start_on(w, t) + cost_on(w, step, t);
        if (there >= end) continue;
        end = there;
        best = t;
    }
    for (size_t i = 0; i < w->pulls.len; i++)
        w->touches.at[w->pulls.at[i].touch].near |= UINT64_C(1) << best;
    w->open = ASH_MAX(w->open, best + 1);
    s->stream[step] = best;
    s->position[step] = w->last[best] == NOTHING ? 0 : s->position[w->last[best]] + 1;
    w->finish[best] = w->end[step] = end;
}

/* --- parts --------------------------------------------------------------------------------------- */

/* The second part begins: all streams are through. */
static void begin_part(struct assigning *w) {
    double end = 0;
    w->most = w->late;
    for (uint32_t t = 0; t < w->schedule->streams; t++) end = ASH_MAX(end, w->finish[t]);
    for (uint32_t t = 0; t < w->schedule->streams; t++) {
        w->finish[t] = end;
        w->first[t] = w->last[t];
    }
}

/* The second part's first step on a stream comes after all of the first part. */
static void follow_part(struct assigning *w, uint32_t step) {
    uint32_t last = w->last[w->schedule->stream[step]];
    if (step < w->program->cut.steps || (last != NOTHING && last >= w->program->cut.steps)) return;
    for (uint32_t t = 0; t < w->schedule->streams; t++)
        if (w->first[t] != NOTHING) depend(w, w->first[t]);
}

/* --- waits -------------------------------------------------------------------------------------- */

static uint32_t *clock_of(const ash_schedule *s, uint32_t step) {
    return s->clocks + (size_t)step * s->streams;
}

static void join(const ash_schedule *s, uint32_t *clock, uint32_t over) {
    const uint32_t *other = clock_of(s, over);
    for (uint32_t t = 0; t < s->streams; t++) clock[t] = ASH_MAX(clock[t], other[t]);
    clock[s->stream[over]] = ASH_MAX(clock[s->stream[over]], s->position[over] + 1);
}

static bool find_waits(struct assigning *w, uint32_t step) {
    ash_schedule *s = w->schedule;
    uint32_t *clock = clock_of(s, step), own = s->stream[step];
    if (w->last[own] != NOTHING) join(s, clock, w->last[own]);
    for (;;) {
        uint32_t next = NOTHING;
        for (uint32_t t = 0; t < w->open; t++)
            if (w->latest[t] != NOTHING && (next == NOTHING || w->latest[t] > next)) next = w->latest[t];
        if (next == NOTHING) break;
        w->latest[s->stream[next]] = NOTHING;
        if (clock[s->stream[next]] > s->position[next]) continue;
        if (!ash_vec_push(w->allocator, &w->waits, (ash_memory_wait){step, next})) return false;
        if (s->event[next] == ASH_NO_EVENT) s->event[next] = s->n_events++;
        join(s, clock, next);
    }
    w->last[own] = step;
    return true;
}

/* --- all ---------------------------------------------------------------------------------------- */

/* Streams without a step are none: the clocks lose their columns. */
static bool close_streams(struct assigning *w) {
    ash_schedule *s = w->schedule;
    size_t n = s->n_steps;
    uint32_t *clocks = ash_mem_alloc(w->allocator, n, w->open * sizeof *clocks);
    if (!clocks) return false;
    for (size_t i = 0; i < n; i++)
        memcpy(clocks + i * w->open, s->clocks + i * s->streams, w->open * sizeof *clocks);
    ash_mem_free(w->allocator, s->clocks, n, s->streams * sizeof *clocks);
    s->clocks = clocks;
    s->streams = w->open;
    return true;
}

static bool assign(struct assigning *w) {
    ash_schedule *s = w->schedule;
    for (uint32_t t = 1; t < s->streams; t++) w->finish[t] = w->program->target.costs.start_ns;
    for (uint32_t step = 0; step < s->n_steps; step++) {
        for (uint32_t t = 0; t < w->open; t++) w->latest[t] = NOTHING;
        if (step && step == w->program->cut.steps) begin_part(w);
        s->first_wait[step] = (uint32_t)w->waits.len;
        if (s->streams > 1 && !find_dependences(w, step)) return false;
        choose_stream(w, step);
        follow_part(w, step);
        if (!find_waits(w, step)) return false;
        if (s->streams > 1 && !note_accesses(w, step)) return false;
    }
    if (s->n_steps && w->open < s->streams && !close_streams(w)) return false;
    s->n_waits = s->first_wait[s->n_steps] = (uint32_t)w->waits.len;
    s->waits = ash_mem_alloc(w->allocator, s->n_waits, sizeof *s->waits);
    if (s->waits && s->n_waits) memcpy(s->waits, w->waits.at, s->n_waits * sizeof *s->waits);
    return s->waits != NULL;
}

/* Whether several streams are expected to be faster than one. */
static bool is_worth_it(const struct assigning *w) {
    double all = 0, end = 0;
    for (uint32_t i = 0; i < w->schedule->n_steps; i++) {
        all += ash_schedule__cost(&w->program->target.costs, step_at(w, i));
        end = ASH_MAX(end, w->end[i]);
    }
    return end < w->program->target.costs.streams_worth * all;
}

static uint32_t *new_list(const ash_allocator *a, size_t count) {
    uint32_t *list = ash_mem_alloc(a, count, sizeof *list);
    if (list && count) memset(list, 0xff, count * sizeof *list); /* NOTHING, ASH_NO_EVENT */
    return list;
}

/* Streams of a program for several devices: those of each, then those of copies. */
static uint32_t number_streams(struct assigning *w) {
    const ash_program *p = w->program;
    uint32_t streams = ((uint32_t)p->others.len + 1) * w->apart;
    for (size_t s = p->prologue; s < p->steps.len; s++) {
        const ash_step *step = &p->steps.at[s];
        if (!ash_step__crosses(p, step)) continue;
        uint32_t *stream = &w->copies[p->buffers.at[step->accesses[0].buffer].device][step->device];
        if (!*stream) *stream = streams++;
    }
    return streams;
}

static ash_status create(const ash_allocator *a, const ash_program *program, uint32_t most, uint32_t late,
                         ash_schedule *out, ash_diag *diag) {
    struct assigning w = {.program = program, .allocator = a, .schedule = out, .most = most, .late = late};
    w.apart = ASH_MAX(most, late);
    bool placed = program->others.len != 0;
    uint32_t streams = placed ? number_streams(&w) : ASH_MAX(most, late);
    *out = (ash_schedule){0};
    ASH_FAIL_IF(streams > ASH_SCHEDULE_STREAMS, diag, ASH_ERROR_OUT_OF_RANGE,
                "%u streams for each of %zu devices, and those of copies, are %u: at most %d are possible",
                w.apart, program->others.len + 1, streams, ASH_SCHEDULE_STREAMS);
    size_t n = program->steps.len - program->prologue, buffers = program->buffers.len;
    *out = (ash_schedule){.allocator = a, .streams = streams, .n_steps = (uint32_t)n};
    w.open = placed ? streams : 0;
    out->stream = ash_mem_calloc(a, n, sizeof *out->stream);
    out->event = new_list(a, n);
    out->first_wait = ash_mem_calloc(a, n + 1, sizeof *out->first_wait);
    out->position = ash_mem_calloc(a, n, sizeof *out->position);
    out->clocks = ash_mem_calloc(a, n, streams * sizeof *out->clocks);
    w.writes = new_list(a, buffers);
    w.reads = new_list(a, buffers);
    w.latest = new_list(a, streams);
    w.last = new_list(a, streams);
    w.first = new_list(a, streams);
    w.finish = ash_mem_calloc(a, streams, sizeof *w.finish);
    w.end = ash_mem_calloc(a, n, sizeof *w.end);
    bool made = out->stream && out->event && out->first_wait && out->position && out->clocks && w.writes &&
                w.reads && w.latest && w.last && w.first && w.finish && w.end && assign(&w);
    bool single = made && streams > 1 && !placed && !is_worth_it(&w);
    ash_mem_free(a, w.writes, buffers, sizeof *w.writes);
    ash_mem_free(a, w.reads, buffers, sizeof *w.reads);
    ash_mem_free(a, w.latest, streams, sizeof *w.latest); /* as many as were asked for */
    ash_mem_free(a, w.last, streams, sizeof *w.last);
    ash_mem_free(a, w.first, streams, sizeof *w.first);
    ash_mem_free(a, w.finish, streams, sizeof *w.finish);
    ash_mem_free(a, w.end, n, sizeof *w.end);
    ash_vec_free(a, &w.touches);
    ash_vec_free(a, &w.pulls);
    ash_vec_free(a, &w.waits);
    if (made && !single) return ASH_OK;
    ash_schedule__free(out);
    return single ? create(a, program, 1, 1, out, diag) : ASH_NO_MEMORY(diag);
}

ash_status ash_schedule__create(const ash_allocator *a, const ash_program *program, uint32_t streams,
                                ash_schedule *out, ash_diag *diag) {
    return create(a, program, streams, streams, out, diag);
}

ash_status ash_schedule__create_parts(const ash_allocator *a, const ash_program *program, uint32_t streams,
                                      uint32_t late, ash_schedule *out, ash_diag *diag) {
    return create(a, program, streams, late, out, diag);
}

/* --- one of the parts ----------------------------------------------------------------------------- */

/* Steps of a stream before the part. */
static uint32_t steps_before(const ash_schedule *whole, uint32_t first, uint32_t stream) {
    uint32_t count = 0;
    for (uint32_t i = 0; i < first; i++) count += whole->stream[i] == stream;
    return count;
}

/* Waits and events within the part: those across it have been waited for. */
static void copy_waits(const ash_schedule *whole, uint32_t first, ash_schedule *out) {
    for (uint32_t i = 0; i < out->n_steps; i++) {
        out->first_wait[i] = out->n_waits;
        for (uint32_t w = whole->first_wait[first + i]; w < whole->first_wait[first + i + 1]; w++) {
            if (whole->waits[w].after < first) continue;
            uint32_t after = whole->waits[w].after - first;
            out->waits[out->n_waits++] = (ash_memory_wait){i, after};
            if (out->event[after] == ASH_NO_EVENT) out->event[after] = out->n_events++;
        }
    }
    out->first_wait[out->n_steps] = out->n_waits;
}

ash_status ash_schedule__part(const ash_allocator *a, const ash_schedule *whole, uint32_t first,
                              uint32_t count, ash_schedule *out, ash_diag *diag) {
    *out = (ash_schedule){.allocator = a, .streams = 1, .n_steps = count};
    for (uint32_t i = 0; i < count; i++) out->streams = ASH_MAX(out->streams, whole->stream[first + i] + 1);
    uint32_t most = whole->first_wait[first + count] - whole->first_wait[first];
    ash_memory_wait *waits = ash_mem_alloc(a, most, sizeof *waits);
    out->stream = ash_mem_alloc(a, count, sizeof *out->stream);
    out->event = new_list(a, count);
    out->first_wait = ash_mem_alloc(a, (size_t)count + 1, sizeof *out->first_wait);
    out->position = ash_mem_alloc(a, count, sizeof *out->position);
    out->clocks = ash_mem_alloc(a, count, out->streams * sizeof *out->clocks);
    bool made = waits && out->stream && out->event && out->first_wait && out->position && out->clocks;
    if (made) {
        out->waits = waits;
        copy_waits(whole, first, out);
        if (count) memcpy(out->stream, whole->stream + first, count * sizeof *out->stream);
        out->waits = ash_mem_alloc(a, out->n_waits, sizeof *out->waits);
        if (out->waits && out->n_waits) memcpy(out->waits, waits, out->n_waits * sizeof *waits);
        made = out->waits != NULL;
    }
    for (uint32_t t = 0; made && t < out->streams; t++) {
        uint32_t before = steps_before(whole, first, t);
        for (uint32_t i = 0; i < count; i++) {
            if (out->stream[i] == t) out->position[i] = whole->position[first + i] - before;
            uint32_t clock = whole->clocks[(size_t)(first + i) * whole->streams + t];
            out->clocks[(size_t)i * out->streams + t] = clock - ASH_MIN(clock, before);
        }
    }
    ash_mem_free(a, waits, most, sizeof *waits);
    if (made) return ASH_OK;
    ash_schedule__free(out);
    return ASH_NO_MEMORY(diag);
}

ash_status ash_schedule__keep(const ash_schedule *s, ash_arena *arena, ash_schedule *out, ash_diag *diag) {
    size_t n = s->n_steps;
    *out = *s;
    out->allocator = NULL;
    out->stream = ash_arena_copy(arena, s->stream, n, sizeof *s->stream);
    out->event = ash_arena_copy(arena, s->event, n, sizeof *s->event);
    out->first_wait = ash_arena_copy(arena, s->first_wait, n + 1, sizeof *s->first_wait);
    out->waits = ash_arena_copy(arena, s->waits, s->n_waits, sizeof *s->waits);
    out->position = ash_arena_copy(arena, s->position, n, sizeof *s->position);
    out->clocks = ash_arena_copy(arena, s->clocks, n, s->streams * sizeof *s->clocks);
    bool made = out->stream && out->event && out->first_wait && out->waits && out->position && out->clocks;
    return made ? ASH_OK : ASH_NO_MEMORY(diag);
}

void ash_schedule__free(ash_schedule *s) {
    if (!s->allocator) return;
    const ash_allocator *a = s->allocator;
    ash_mem_free(a, s->stream, s->n_steps, sizeof *s->stream);
    ash_mem_free(a, s->event, s->n_steps, sizeof *s->event);
    ash_mem_free(a, s->first_wait, (size_t)s->n_steps + 1, sizeof *s->first_wait);
    ash_mem_free(a, s->waits, s->n_waits, sizeof *s->waits);
    ash_mem_free(a, s->position, s->n_steps, sizeof *s->position);
    ash_mem_free(a, s->clocks, s->n_steps, s->streams * sizeof *s->clocks);
    *s = (ash_schedule){0};
}
