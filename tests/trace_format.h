/* SPDX-License-Identifier: MIT */
/* What a trace must be for Perfetto to show what was meant (the Trace Event Format, JSON object form):
 *
 *   {"traceEvents": [event, ...], ...}        each event an object with "ph", "pid", "tid" and "name"
 *   M   names the process, or a thread (a track), or gives its place among them
 *   X   something that lasted from "ts" for "dur" microseconds; on one track, one after the other or within
 *       one another
 *   C   a counter has the values of "args" from "ts" on
 *
 * Here, besides: events come in the order of their times, every track that has events has a name, and the
 * process has one. */
#ifndef ASH_TRACE_FORMAT_H
#define ASH_TRACE_FORMAT_H

#include <math.h>
#include <stdio.h>

#include "json.h"

enum { TRACE_TRACKS = 64 };

typedef struct trace_seen {
    int complete, names, counters; /* events: of phase X, of phase M that name a track, of phase C */
    uint64_t tracks, named;        /* bits: numbers of the tracks with complete events, and with a name */
    bool process;                  /* has a name */
    double last;                   /* nanoseconds: of the last event with a time */
    double most, final;            /* of the counters' values: the largest, and the last */
    double open[TRACE_TRACKS][16]; /* per track: ends of the events that last, in nanoseconds */
    int depth[TRACE_TRACKS];
    int deepest;
} trace_seen;

/* Whole nanoseconds: a trace has microseconds with three digits. */
static inline double trace_time(const json *event, const char *key) {
    double us = json_double(event, key, -1);
    return us < 0 ? -1 : round(us * 1000);
}

static inline const char *trace_metadata(const json *e, int track, trace_seen *seen) {
    const char *name = json_text(e, "name");
    const json *args = json_member(e, "args");
    if (!strcmp(name, "thread_sort_index"))
        return json_double(args, "sort_index", -1) >= 0 ? NULL
                                                        : "a place among the tracks that is no number";
    if (!json_text(args, "name") || !*json_text(args, "name")) return "a name that is none";
    if (!strcmp(name, "process_name")) {
        seen->process = true;
    } else if (!strcmp(name, "thread_name")) {
        if (seen->named >> track & 1) return "a track with two names";
        seen->named |= (uint64_t)1 << track;
        seen->names++;
    } else {
        return "metadata of an unknown kind";
    }
    return NULL;
}

static inline const char *trace_complete(const json *e, int track, double ts, trace_seen *seen) {
    double dur = trace_time(e, "dur"), *open = seen->open[track];
    int *depth = &seen->depth[track];
    if (dur < 0) return "a complete event without a duration";
    while (*depth && open[*depth - 1] <= ts) --*depth;
    if (*depth && ts + dur > open[*depth - 1]) return "events of one track that overlap";
    if (*depth == 16) return "events that are nested too deep";
    open[(*depth)++] = ts + dur;
    if (*depth > seen->deepest) seen->deepest = *depth;
    seen->complete++;
    seen->tracks |= (uint64_t)1 << track;
    return json_member(e, "args") && json_member(e, "args")->kind != JSON_OBJECT
               ? "arguments that are no object"
               : NULL;
}

static inline const char *trace_counter(const json *e, trace_seen *seen) {
    const json *args = json_member(e, "args");
    if (!args || args->kind != JSON_OBJECT || !args->first) return "a counter without values";
    for (const json *v = args->first; v; v = v->next) {
        if (v->kind != JSON_NUMBER || v->number < 0) return "a counter's value that is no amount";
        if (v->number > seen->most) seen->most = v->number;
        seen->final = v->number;
    }
    seen->counters++;
    return NULL;
}

static inline const char *trace_event(const json *e, trace_seen *seen) {
    const char *phase = json_text(e, "ph"), *name = json_text(e, "name");
    double pid = json_double(e, "pid", -1), tid = json_double(e, "tid", -1);
    if (e->kind != JSON_OBJECT) return "an event that is no object";
    if (!phase || strlen(phase) != 1) return "an event without a phase";
    if (!name || !*name) return "an event without a name";
    if (pid < 0 || tid < 0 || pid != floor(pid) || tid != floor(tid) || tid >= TRACE_TRACKS)
        return "an event without process and track";
    if (*phase == 'M') return trace_metadata(e, (int)tid, seen);
    double ts = trace_time(e, "ts");
    if (ts < 0) return "an event without a time";
    if (ts < seen->last) return "events that are not in the order of their times";
    seen->last = ts;
    if (*phase == 'X') return trace_complete(e, (int)tid, ts, seen);
    if (*phase == 'C') return trace_counter(e, seen);
    return "an event of an unknown phase";
}

/* What is wrong with a trace, or NULL; and what is in it. */
static inline const char *trace_check(const char *text, trace_seen *seen) {
    static char where[128];
    const char *offence, *wrong = NULL;
    *seen = (trace_seen){0};
    json *trace = json_read(text, &offence);
    if (!trace) {
        snprintf(where, sizeof where, "no JSON at \"%.40s\"", offence);
        return where;
    }
    const json *events = json_member(trace, "traceEvents");
    const char *unit = json_text(trace, "displayTimeUnit");
    if (!events || events->kind != JSON_ARRAY)
        wrong = "no list of events";
    else if (json_member(trace, "displayTimeUnit") && (!unit || (strcmp(unit, "ns") && strcmp(unit, "ms"))))
        wrong = "an unknown unit of time";
    for (const json *e = events ? events->first : NULL; e && !wrong; e = e->next)
        wrong = trace_event(e, seen);
    if (!wrong && (seen->tracks & ~seen->named)) wrong = "a track without a name";
    if (!wrong && !seen->process) wrong = "a process without a name";
    json_free(trace);
    return wrong;
}

#endif
