/* SPDX-License-Identifier: MIT */
/* Streams for tests: one thread runs the commands of a round in an order that the seed picks among all that
 * the interface allows. Commands of a stream may be put off as long as nothing waits for them; launches and
 * copies of several streams run in turns, a few chunks or bytes at a time, chunks in any order. With a plan
 * that poisons dead bytes, whoever reads too early or writes too early shows. */
#ifndef ASH_REORDER_H
#define ASH_REORDER_H

#include "testing.h"

#include "device/stream.h"
#include "kernel/program.h"

enum { REORDER_STREAMS = 8, REORDER_CHUNKS = 256 };

/* Set by the test before each execution. */
typedef struct reorder_plan {
    uint64_t seed;
    bool fail;     /* every round fails, after it has run */
    uint32_t drop; /* the wait with this number, in the order of issue, is left out; UINT32_MAX: none */
} reorder_plan;

static reorder_plan reorder = {1, false, UINT32_MAX};

struct reorder_stream {
    ash_command *commands;
    uint32_t next, count;
    int64_t done;                  /* of the command: chunks or bytes */
    uint8_t order[REORDER_CHUNKS]; /* of the command's chunks */
    bool shuffled;
};

struct reorder_device {
    ash_streams base;
    const ash_allocator *allocator;
    ash_streams_options options;
    struct reorder_stream streams[REORDER_STREAMS];
    bool *events;
    uint32_t waits; /* issued in this round */
    bool stopped;   /* what has not begun is left out */
    uint64_t random;
};

static inline struct reorder_device *reorder_of(ash_streams *streams) {
    return (struct reorder_device *)streams;
}

static inline uint32_t reorder_pick(struct reorder_device *d, uint32_t below) {
    d->random ^= d->random >> 12, d->random ^= d->random << 25, d->random ^= d->random >> 27;
    return (uint32_t)((d->random * 0x2545f4914f6cdd1dULL) >> 33) % below;
}

static inline ash_command *reorder_add(ash_streams *streams, uint32_t stream, ash_command_kind kind) {
    struct reorder_device *d = reorder_of(streams);
    struct reorder_stream *s = &d->streams[stream];
    assert_true(stream < d->options.streams && s->count < d->options.commands);
    s->commands[s->count] = (ash_command){.kind = kind};
    return &s->commands[s->count++];
}

static inline void reorder_launch(ash_streams *streams, uint32_t stream, const ash_launch *launch,
                                  ash_timing *timing) {
    ash_command *command = reorder_add(streams, stream, ASH_COMMAND_LAUNCH);
    command->launch = launch;
    command->timing = timing;
}

static inline void reorder_copy(ash_streams *streams, uint32_t stream, const ash_transfer *copy,
                                ash_timing *timing) {
    ash_command *command = reorder_add(streams, stream, ASH_COMMAND_COPY);
    command->copy = copy;
    command->timing = timing;
}

static inline void reorder_call(ash_streams *streams, uint32_t stream, void (*fn)(void *arg), void *arg) {
    ash_command *command = reorder_add(streams, stream, ASH_COMMAND_CALL);
    command->call.fn = fn;
    command->call.arg = arg;
}

static inline void reorder_record(ash_streams *streams, uint32_t stream, uint32_t event) {
    assert_true(event < reorder_of(streams)->options.events);
    reorder_add(streams, stream, ASH_COMMAND_RECORD)->event = event;
}

static inline void reorder_wait(ash_streams *streams, uint32_t stream, uint32_t event) {
    if (reorder_of(streams)->waits++ == reorder.drop) return;
    reorder_add(streams, stream, ASH_COMMAND_WAIT)->event = event;
}

/* Some chunks of a launch. */
static inline bool reorder_run_launch(struct reorder_device *d, struct reorder_stream *s,
                                      const ash_launch *launch) {
    int64_t chunks = launch->end - launch->begin;
    if (chunks > REORDER_CHUNKS) {
        launch->fn(launch->buffers, launch->vars, launch->begin, launch->end, 0);
        return true;
    }
    if (!s->shuffled) {
        for (int64_t i = 0; i < chunks; i++) s->order[i] = (uint8_t)i;
        for (int64_t i = chunks - 1; i > 0; i--) {
            uint32_t k = reorder_pick(d, (uint32_t)i + 1);
            uint8_t other = s->order[i];
            s->order[i] = s->order[k];
            s->order[k] = other;
        }
        s->shuffled = true;
    }
    uint32_t more = 1 + reorder_pick(d, 16);
    for (; more && s->done < chunks; more--, s->done++) {
        int64_t chunk = launch->begin + s->order[s->done];
        uint32_t worker = launch->parallel ? reorder_pick(d, d->options.threads) : 0;
        launch->fn(launch->buffers, launch->vars, chunk, chunk + 1, worker);
    }
    return s->done >= chunks;
}

static inline bool reorder_run_copy(struct reorder_device *d, struct reorder_stream *s,
                                    const ash_transfer *copy) {
    int64_t piece = 1 + reorder_pick(d, 64), more = ASH_MIN(copy->bytes - s->done, piece);
    if (more > 0)
        memmove((char *)copy->buffers[1] + copy->to + s->done,
                (const char *)copy->buffers[0] + copy->from + s->done, (size_t)more);
    s->done += ASH_MAX(more, 0);
    return s->done >= copy->bytes;
}

static inline bool reorder_can_run(const struct reorder_device *d, const struct reorder_stream *s) {
    if (s->next == s->count) return false;
    const ash_command *command = &s->commands[s->next];
    return command->kind != ASH_COMMAND_WAIT || d->events[command->event];
}

/* A part of the stream's next command. */
static inline void reorder_step(struct reorder_device *d, struct reorder_stream *s) {
    const ash_command *command = &s->commands[s->next];
    bool over = true;
    switch (d->stopped && command->kind != ASH_COMMAND_RECORD ? ASH_COMMAND_WAIT : command->kind) {
    case ASH_COMMAND_LAUNCH: over = reorder_run_launch(d, s, command->launch); break;
    case ASH_COMMAND_COPY: over = reorder_run_copy(d, s, command->copy); break;
    case ASH_COMMAND_CALL: command->call.fn(command->call.arg); break;
    case ASH_COMMAND_RECORD: d->events[command->event] = true; break;
    case ASH_COMMAND_WAIT: break;
    }
    if (over && command->timing) *command->timing = (ash_timing){0, 0, 1};
    if (!over) return;
    s->next++;
    s->done = 0;
    s->shuffled = false;
}

/* By the seed: turns at random, or one stream put off as long as possible, or one ahead of all others. */
static inline struct reorder_stream *reorder_choose(struct reorder_device *d, uint32_t policy,
                                                    uint32_t favourite) {
    uint32_t n = d->options.streams, best = UINT32_MAX, first = reorder_pick(d, n);
    for (uint32_t i = 0; i < n; i++) {
        uint32_t k = (first + i) % n;
        if (!reorder_can_run(d, &d->streams[k])) continue;
        if (best == UINT32_MAX || (policy == 1 && best == favourite) || (policy == 2 && k == favourite))
            best = k;
    }
    return best == UINT32_MAX ? NULL : &d->streams[best];
}

static inline ash_status reorder_finish(ash_streams *streams, ash_diag *diag) {
    struct reorder_device *d = reorder_of(streams);
    d->random = (reorder.seed + 1) * 0x9e3779b97f4a7c15ULL;
    for (int i = 0; i < 4; i++) reorder_pick(d, 2);
    uint32_t policy = (uint32_t)(reorder.seed % 3), favourite = reorder_pick(d, d->options.streams);
    memset(d->events, 0, d->options.events * sizeof *d->events);
    for (struct reorder_stream *s; (s = reorder_choose(d, policy, favourite)) != NULL;) {
        reorder_step(d, s);
        if (reorder_pick(d, 64) == 0) favourite = reorder_pick(d, d->options.streams);
    }
    for (uint32_t i = 0; i < d->options.streams; i++) {
        assert_int_equal(d->streams[i].next, d->streams[i].count); /* nothing waits for ever */
        d->streams[i].next = d->streams[i].count = 0;
    }
    d->waits = 0;
    if (d->stopped) {
        d->stopped = false;
        return ash_fail(diag, ASH_ERROR_CANCELLED, "a launch has stopped the streams");
    }
    return reorder.fail ? ash_fail(diag, ASH_ERROR_DEVICE, "the device was asked to fail") : ASH_OK;
}

static inline void reorder_stop(ash_streams *streams) {
    reorder_of(streams)->stopped = true;
}

static inline uint64_t reorder_done(const ash_streams *streams) {
    (void)streams;
    return 0;
}

static inline ash_streams_counts reorder_counts(const ash_streams *streams) {
    (void)streams;
    return (ash_streams_counts){0};
}

static inline ash_status reorder_capture(ash_streams *streams, ash_diag *diag) {
    return ash_fail(diag, ASH_ERROR_UNSUPPORTED, "%s cannot capture", streams->class->kind);
}

static inline void reorder_destroy(ash_streams *streams) {
    struct reorder_device *d = reorder_of(streams);
    for (uint32_t i = 0; i < d->options.streams; i++)
        ash_mem_free(d->allocator, d->streams[i].commands, d->options.commands, sizeof(ash_command));
    ash_mem_free(d->allocator, d->events, d->options.events, sizeof *d->events);
    ash_mem_free(d->allocator, d, 1, sizeof *d);
}

static inline ash_status reorder_create(ash_context *context, const ash_streams_options *options,
                                        ash_streams **out, ash_diag *diag);

static const ash_stream_class reorder_class = {"reorder", reorder_create, reorder_destroy};

static inline ash_status reorder_create(ash_context *context, const ash_streams_options *options,
                                        ash_streams **out, ash_diag *diag) {
    (void)diag;
    const ash_allocator *a = ash_context__allocator(context);
    struct reorder_device *d = ash_mem_calloc(a, 1, sizeof *d);
    assert_true(d && options->streams <= REORDER_STREAMS);
    *d = (struct reorder_device){.base = {.class = &reorder_class,
                                          .launch = reorder_launch,
                                          .copy = reorder_copy,
                                          .call = reorder_call,
                                          .record = reorder_record,
                                          .wait = reorder_wait,
                                          .stop = reorder_stop,
                                          .finish = reorder_finish,
                                          .counts = reorder_counts,
                                          .done = reorder_done,
                                          .capture_begin = reorder_capture},
                                 .allocator = a,
                                 .options = *options};
    d->events = ash_mem_calloc(a, options->events, sizeof *d->events);
    for (uint32_t i = 0; i < options->streams; i++)
        d->streams[i].commands = ash_mem_calloc(a, options->commands, sizeof(ash_command));
    *out = &d->base;
    return ASH_OK;
}

/* As if each step were worth a stream of its own: for tests of edges on graphs that are small. */
static inline void reorder_weigh(ash_program *program) {
    for (size_t i = 0; i < program->steps.len; i++) program->steps.at[i].work = 1e5;
}

#endif
