/* SPDX-License-Identifier: MIT */
/* Traces in the Chrome format, which Perfetto opens: one track per stream with an event per operation, and
 * a counter of the bytes that are live in the arenas. Times are in microseconds; events come in their
 * order. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "cli.h"

/* Of a buffer with a place in an arena: from the begin of the first operation that touches its bytes to the
 * end of the last. */
struct life {
    int64_t begin, end; /* nanoseconds */
    uint64_t bytes;
};

struct event {
    int64_t at;            /* nanoseconds */
    const ash_profile *op; /* NULL: a change of the counter */
    int64_t bytes;         /* that are live from here on, more or less */
};

struct trace {
    struct session *session;
    ash_profile *profile;
    size_t ops;
    struct life *lives; /* per buffer */
    struct event *events;
    size_t n_events;
    FILE *file;
    bool first;
};

/* --- the counter -------------------------------------------------------------------------------- */

static int64_t end_of_all(const struct trace *t) {
    int64_t end = 0;
    for (size_t i = 0; i < t->ops; i++) {
        int64_t over = t->profile[i].start + t->profile[i].duration;
        if (over > end) end = over;
    }
    return end;
}

static void touch(struct trace *t, uint32_t buffer, const ash_profile *op) {
    ash_buffer_info b = ASH_INIT(ash_buffer_info);
    if (ash_plan_buffer_at(t->session->plan, buffer, &b, NULL) != ASH_OK || b.arena == UINT32_MAX) return;
    struct life *life = &t->lives[b.root];
    if (life->begin < 0 || op->start < life->begin) life->begin = op->start;
    if (op->start + op->duration > life->end) life->end = op->start + op->duration;
}

/* Inputs are there before the first operation; outputs and what is kept stay. */
static void find_lives(struct trace *t) {
    ash_plan *plan = t->session->plan;
    uint32_t count = ash_plan_buffer_count(plan);
    for (uint32_t b = 0; b < count; b++) t->lives[b] = (struct life){.begin = -1, .end = -1};
    for (size_t i = 0; i < t->ops; i++)
        for (size_t k = 0; k < ash_plan_op_access_count(plan, t->profile[i].op); k++) {
            ash_op_access a = ASH_INIT(ash_op_access);
            if (ash_plan_op_access(plan, t->profile[i].op, k, &a, NULL) == ASH_OK)
                touch(t, a.buffer, &t->profile[i]);
        }
    for (uint32_t b = 0; b < count; b++) {
        ash_buffer_info info = ASH_INIT(ash_buffer_info);
        if (ash_plan_buffer_at(plan, b, &info, NULL) != ASH_OK || info.arena == UINT32_MAX ||
            info.root != b)
            continue;
        t->lives[b].bytes = info.bytes;
        if (info.role == ASH_ROLE_INPUT || t->lives[b].begin < 0) t->lives[b].begin = 0;
        if (info.end > 2 * (int64_t)t->ops) t->lives[b].end = end_of_all(t);
    }
}

/* --- events ------------------------------------------------------------------------------------- */

static int by_time(const void *a, const void *b) {
    const struct event *x = a, *y = b;
    if (x->at != y->at) return x->at < y->at ? -1 : 1;
    if (!x->op != !y->op) return x->op ? 1 : -1;
    if (x->op) return x->op->op < y->op->op ? -1 : 1;
    return x->bytes < y->bytes ? -1 : x->bytes > y->bytes; /* what dies makes room for what is born */
}

static void collect(struct trace *t) {
    uint32_t count = ash_plan_buffer_count(t->session->plan);
    int64_t end = end_of_all(t);
    for (size_t i = 0; i < t->ops; i++)
        t->events[t->n_events++] = (struct event){t->profile[i].start, &t->profile[i], 0};
    for (uint32_t b = 0; b < count; b++) {
        const struct life *life = &t->lives[b];
        if (life->bytes == 0 || life->end < life->begin) continue;
        t->events[t->n_events++] = (struct event){life->begin, NULL, (int64_t)life->bytes};
        if (life->end < end)
            t->events[t->n_events++] = (struct event){life->end, NULL, -(int64_t)life->bytes};
    }
    qsort(t->events, t->n_events, sizeof *t->events, by_time);
}

static void put_quoted(FILE *f, const char *text) {
    fputc('"', f);
    for (; *text; text++) {
        unsigned char c = (unsigned char)*text;
        if (c == '"' || c == '\\')
            fprintf(f, "\\%c", c);
        else if (c < 0x20)
            fprintf(f, "\\u%04x", c);
        else
            fputc(c, f);
    }
    fputc('"', f);
}

/* The start of an event: what all have. */
static void put_event(struct trace *t, const char *phase, uint32_t track, const char *name) {
    fprintf(t->file, "%s{\"ph\": \"%s\", \"pid\": 1, \"tid\": %u, \"name\": ", t->first ? "" : ",\n", phase,
            track);
    put_quoted(t->file, name);
    t->first = false;
}

/* A track per stream, by name and in order. */
static void put_tracks(struct trace *t) {
    uint32_t most = 0;
    for (size_t i = 0; i < t->ops; i++)
        if (t->profile[i].stream > most) most = t->profile[i].stream;
    put_event(t, "M", 0, "process_name");
    fprintf(t->file, ", \"args\": {\"name\": ");
    put_quoted(t->file, t->session->path);
    fprintf(t->file, "}}");
    for (uint32_t s = 0; s <= most; s++) {
        put_event(t, "M", s + 1, "thread_name");
        fprintf(t->file, ", \"args\": {\"name\": \"stream %u\"}}", s);
        put_event(t, "M", s + 1, "thread_sort_index");
        fprintf(t->file, ", \"args\": {\"sort_index\": %u}}", s);
    }
}

static void put_op(struct trace *t, const ash_profile *p) {
    ash_prepared_op op = ASH_INIT(ash_prepared_op);
    if (ash_plan_op_at(t->session->plan, p->op, &op, NULL) != ASH_OK) return;
    double ns = p->duration > 0 ? (double)p->duration : 1;
    put_event(t, "X", p->stream + 1, op.name);
    fprintf(
        t->file,
        ", \"cat\": \"%s\", \"ts\": %.3f, \"dur\": %.3f, \"args\": {\"operation\": %u, \"chunks\": %lld, "
        "\"threads\": %u, \"flop\": %.0f, \"bytes\": %.0f, \"GFLOP/s\": %.3f",
        ash_prepared_kind_text(op.kind), (double)p->start / 1e3, (double)p->duration / 1e3, p->op,
        (long long)op.chunks, p->threads, op.flops, op.bytes, op.flops / ns);
    if (op.kind == ASH_PREPARED_KERNEL) fprintf(t->file, ", \"kernel\": %u", op.kernel);
    if (op.node_count && op.nodes[0]) {
        fprintf(t->file, ", \"node\": ");
        put_quoted(t->file, op.nodes[0]);
    }
    fprintf(t->file, "}}");
}

static void put_events(struct trace *t) {
    int64_t live = 0;
    for (size_t i = 0; i < t->n_events; i++) {
        const struct event *e = &t->events[i];
        live += e->bytes;
        if (e->op) {
            put_op(t, e->op);
        } else if (i + 1 == t->n_events || t->events[i + 1].op || t->events[i + 1].at != e->at) {
            put_event(t, "C", 0, "arena");
            fprintf(t->file, ", \"ts\": %.3f, \"args\": {\"live bytes\": %lld}}", (double)e->at / 1e3,
                    (long long)live);
        }
    }
}

static bool put_trace(struct trace *t, const char *path) {
    const ash_plan_report *r = &t->session->report;
    t->file = fopen(path, "w");
    if (t->file) {
        fprintf(t->file,
                "{\"displayTimeUnit\": \"ns\", \"otherData\": {\"mode\": \"%s\", \"threads\": %u, "
                "\"arena bytes\": %llu, \"lower bound\": %llu},\n\"traceEvents\": [\n",
                ash_mode_text(r->mode), r->threads, (unsigned long long)r->memory.size,
                (unsigned long long)r->memory.lower_bound);
        put_tracks(t);
        put_events(t);
        fprintf(t->file, "\n]}\n");
        bool good = !ferror(t->file);
        if ((fclose(t->file) == 0) & good) return true;
    }
    fprintf(stderr, "ashlar: cannot write the trace %s: %s\n", path, strerror(errno));
    return false;
}

bool write_trace(struct session *s, const char *path) {
    size_t buffers = ash_plan_buffer_count(s->plan);
    struct trace t = {.session = s, .ops = ash_plan_op_count(s->plan), .first = true};
    t.profile = calloc(t.ops + 1, sizeof *t.profile);
    t.lives = calloc(buffers + 1, sizeof *t.lives);
    t.events = calloc(t.ops + 2 * buffers + 1, sizeof *t.events);
    bool good = t.profile && t.lives && t.events;
    if (!good)
        fprintf(stderr, "ashlar: out of memory\n");
    else if (ash_plan_execute_profiled(s->plan, t.profile, t.ops, &s->diag) != ASH_OK)
        good = session_failed(s, "execute");
    if (good) {
        find_lives(&t);
        collect(&t);
        good = put_trace(&t, path);
    }
    free(t.profile);
    free(t.lives);
    free(t.events);
    return good;
}
