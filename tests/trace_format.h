/* Reads a trace as Perfetto does: JSON, a list of events, each of the form that its phase asks for. Counts
 * what it saw. */
#ifndef ASH_TRACE_FORMAT_H
#define ASH_TRACE_FORMAT_H

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "testing.h"

typedef struct trace_seen {
    int complete, names; /* events of phase X; of phase M that name a track */
    uint64_t tracks;     /* bits: numbers of the tracks with complete events */
    uint64_t named;      /* bits: of the tracks with a name */
} trace_seen;

/* One event's members, as far as they matter. */
struct trace_event {
    char phase[8], name[256];
    double pid, tid, ts, dur;
    bool has_args, has_name;
};

struct trace_reader {
    const char *at;
    trace_seen seen;
};

static inline void trace_space(struct trace_reader *r) {
    r->at += strspn(r->at, " \n\r\t");
}

static inline void trace_expect(struct trace_reader *r, char c) {
    trace_space(r);
    if (*r->at != c) fail_msg("the trace has \"%.40s\" where '%c' belongs", r->at, c);
    r->at++;
}

static inline bool trace_next(struct trace_reader *r, char c) {
    trace_space(r);
    if (*r->at != c) return false;
    r->at++;
    return true;
}

static inline void trace_string(struct trace_reader *r, char *out, size_t room) {
    size_t len = 0;
    trace_expect(r, '"');
    while (*r->at != '"') {
        assert_true((unsigned char)*r->at >= 0x20);
        if (*r->at == '\\') {
            r->at++;
            assert_non_null(strchr("\"\\/bfnrtu", *r->at));
        }
        if (len + 1 < room) out[len++] = *r->at;
        r->at++;
    }
    r->at++;
    out[len] = 0;
}

static inline double trace_number(struct trace_reader *r) {
    char *end;
    trace_space(r);
    double value = strtod(r->at, &end);
    assert_true(end != r->at && value >= 0);
    r->at = end;
    return value;
}

/* Any value; strings and numbers have no other form in these. */
static inline void trace_skip(struct trace_reader *r) {
    char text[256];
    trace_space(r);
    if (*r->at == '"') {
        trace_string(r, text, sizeof text);
    } else if (trace_next(r, '{')) {
        while (!trace_next(r, '}')) {
            trace_string(r, text, sizeof text);
            trace_expect(r, ':');
            trace_skip(r);
            if (!trace_next(r, ',')) {
                trace_expect(r, '}');
                break;
            }
        }
    } else {
        trace_number(r);
    }
}

static inline void trace_member(struct trace_reader *r, struct trace_event *e) {
    char key[32];
    trace_string(r, key, sizeof key);
    trace_expect(r, ':');
    if (!strcmp(key, "ph")) {
        trace_string(r, e->phase, sizeof e->phase);
    } else if (!strcmp(key, "name")) {
        trace_string(r, e->name, sizeof e->name);
        e->has_name = true;
    } else if (!strcmp(key, "pid")) {
        e->pid = trace_number(r);
    } else if (!strcmp(key, "tid")) {
        e->tid = trace_number(r);
    } else if (!strcmp(key, "ts")) {
        e->ts = trace_number(r);
    } else if (!strcmp(key, "dur")) {
        e->dur = trace_number(r);
    } else {
        e->has_args |= !strcmp(key, "args");
        trace_skip(r);
    }
}

static inline void trace_event_read(struct trace_reader *r) {
    struct trace_event e = {.pid = -1, .tid = -1, .ts = -1, .dur = -1};
    trace_expect(r, '{');
    do trace_member(r, &e);
    while (trace_next(r, ','));
    trace_expect(r, '}');
    assert_true(e.has_name && e.pid >= 0 && e.tid >= 0 && e.tid < 64);
    if (!strcmp(e.phase, "M")) {
        assert_string_equal(e.name, "thread_name");
        assert_true(e.has_args);
        r->seen.names++;
        r->seen.named |= (uint64_t)1 << (int)e.tid;
        return;
    }
    assert_string_equal(e.phase, "X");
    assert_true(e.ts >= 0 && e.dur >= 0);
    r->seen.complete++;
    r->seen.tracks |= (uint64_t)1 << (int)e.tid;
}

/* Fails the test where the text is no trace. */
static inline trace_seen trace_read(const char *text) {
    struct trace_reader r = {.at = text};
    char key[32];
    bool events = false;
    trace_expect(&r, '{');
    do {
        trace_string(&r, key, sizeof key);
        trace_expect(&r, ':');
        if (strcmp(key, "traceEvents") != 0) {
            trace_skip(&r);
            continue;
        }
        events = true;
        trace_expect(&r, '[');
        if (trace_next(&r, ']')) continue;
        do trace_event_read(&r);
        while (trace_next(&r, ','));
        trace_expect(&r, ']');
    } while (trace_next(&r, ','));
    trace_expect(&r, '}');
    trace_space(&r);
    assert_true(events && *r.at == 0);
    assert_int_equal(r.seen.tracks & ~r.seen.named, 0);
    return r.seen;
}

#endif
