/* SPDX-License-Identifier: MIT */
/* Streams: queues of work on one device, and the events that order them.
 *
 *   launch    a kernel over a range of chunks
 *   copy      bytes from buffer to buffer
 *   call      a function on the host
 *   record    an event happens when everything before it on its stream is over
 *   wait      what follows on this stream begins when an event has happened
 *   capture   what is issued is kept instead of run, and made into one thing
 *   replay    runs it
 *
 * Commands of one stream run one after the other; those of two streams in any order, at the same time or
 * interleaved, as far as events allow. They may begin as soon as they are issued, and begin at the latest
 * when `finish` is called, which returns when all are over. Events are as if never recorded when the next
 * round of commands begins, and every wait comes after its record in the order of issue.
 *
 * Everything that is issued is borrowed until `finish`; what is captured, until the capture is freed. A
 * launch is read when it runs: the entries of its tables, and its last chunk, may be others at each replay.
 *
 * A launch of the host's code may stop its streams, when it fails: then commands that have not begun are
 * left out as by the switch below, and the round fails in the same way.
 *
 * Streams may have a switch (ashlar/progress.h). While it is on, commands that have not begun are left out,
 * and of launches in pieces what is left of them; then `finish` and `replay` fail with ASH_ERROR_CANCELLED.
 *
 * One thread at a time issues. A device implements the class; the runtime knows nothing else of it. */
#ifndef ASH_STREAM_H
#define ASH_STREAM_H

#include "base/progress.h"

/* The contract of kernels: see ash_kernel_fn. */
typedef void (*ash_launch_fn)(void *const *buffers, const int64_t *vars, int64_t begin, int64_t end,
                              int64_t worker);

typedef struct ash_launch {
    ash_launch_fn fn;
    void *const *buffers;
    const int64_t *vars;
    int64_t begin, end; /* chunks */
    bool parallel;      /* worth more than one thread; otherwise it runs on one, as worker 0 */
    int64_t piece;      /* most chunks to run before the switch is looked at again; 0: all */
    bool host;          /* a function of the host, whatever the device; it may call `stop` */
} ash_launch;

typedef struct ash_transfer {
    void *const *buffers;    /* source and target; they do not overlap unless they are one buffer */
    int64_t from, to, bytes; /* first byte in source and target, how many */
} ash_transfer;

/* When a launch or a copy ran. */
typedef struct ash_timing {
    int64_t start, end; /* nanoseconds on the monotonic clock */
    unsigned threads;   /* that ran a part of it */
} ash_timing;

typedef enum ash_command_kind {
    ASH_COMMAND_LAUNCH,
    ASH_COMMAND_COPY,
    ASH_COMMAND_CALL,
    ASH_COMMAND_RECORD,
    ASH_COMMAND_WAIT
} ash_command_kind;

typedef struct ash_command {
    ash_command_kind kind;
    uint32_t event;
    union {
        const ash_launch *launch;
        const ash_transfer *copy;
        struct {
            void (*fn)(void *arg);
            void *arg;
        } call;
    };
    ash_timing *timing; /* of launches and copies; NULL: nobody asks */
} ash_command;

/* Where an entry finds what belongs to one capture. */
typedef struct ash_entry_place {
    const ash_cancel *cancel; /* looked at before each command */
    _Atomic uint64_t *done;   /* counts launches and copies that are over */
    const void *first;        /* the first launch or copy; others lie at the same distances from it */
} ash_entry_place;

/* What a capture becomes on the CPU: one function that does all of it. false: the switch was on, and
 * commands were left out. */
typedef bool (*ash_entry_fn)(void *streams, const ash_entry_place *at);

/* Code is made by a higher floor, which hands this in. */
typedef struct ash_entry {
    ash_entry_fn run;
    void *owner; /* keeps the function alive */
    void (*release)(void *owner);
} ash_entry;

/* What every entry calls. */
typedef struct ash_entry_frame {
    /* With the entry's first argument, for launches that have parts; false: a part was left out, or the
     * streams are stopped. */
    bool (*launch)(void *streams, const ash_launch *launch);
    bool (*copy)(void *streams, const ash_transfer *copy); /* the same for copies, all of them */
} ash_entry_frame;

/* Worth several threads, run in pieces, or able to stop the streams: an entry does not call its kernel
 * itself. */
static inline bool ash_launch__has_parts(const ash_launch *launch) {
    return launch->parallel || launch->piece || launch->host;
}

/* What a command launches or copies; NULL for others. */
static inline const void *ash_command__work(const ash_command *command) {
    return command->kind == ASH_COMMAND_LAUNCH ? (const void *)command->launch
           : command->kind == ASH_COMMAND_COPY ? (const void *)command->copy
                                               : NULL;
}

/* The first of these; NULL when there is none. */
static inline const void *ash_command__first(const ash_command *commands, size_t count) {
    const void *first = NULL;
    for (size_t i = 0; !first && i < count; i++) first = ash_command__work(&commands[i]);
    return first;
}

typedef ash_status (*ash_entry_maker)(ash_context *context, const ash_command *commands, size_t count,
                                      const ash_entry_frame *frame, ash_entry *out, ash_diag *diag);

typedef struct ash_streams_options {
    uint32_t streams, events; /* counts; at least one stream */
    uint32_t commands;        /* most of them between two calls of `finish`, over all streams */
    const uint32_t *shares;   /* per stream: most of these that it gets; NULL: all of them */
    unsigned threads;         /* that may run at once, the caller's included; 0 is 1 */
    ash_entry_maker maker;    /* for captures, on devices that run the host's code */
    const ash_cancel *cancel; /* the switch, or NULL */
} ash_streams_options;

typedef struct ash_streams_counts {
    uint64_t overlapped; /* launches and copies that began while another stream was running */
} ash_streams_counts;

typedef struct ash_capture ash_capture;
typedef struct ash_streams ash_streams; /* some streams of one device, and their events */

typedef struct ash_stream_class {
    const char *kind; /* "CPU" */
    ash_status (*create)(ash_context *context, const ash_streams_options *options, ash_streams **out,
                         ash_diag *diag);
    void (*destroy)(ash_streams *streams); /* nothing may be running */
} ash_stream_class;

/* What streams can do, once made; the first member of each device's own structure. */
struct ash_streams {
    const ash_stream_class *class;
    ash_stop *stop_word; /* what launches that take long look at on their way; NULL: they are not stopped */
    void (*launch)(ash_streams *streams, uint32_t stream, const ash_launch *launch, ash_timing *timing);
    void (*copy)(ash_streams *streams, uint32_t stream, const ash_transfer *copy, ash_timing *timing);
    void (*call)(ash_streams *streams, uint32_t stream, void (*fn)(void *arg), void *arg);
    void (*record)(ash_streams *streams, uint32_t stream, uint32_t event);
    void (*wait)(ash_streams *streams, uint32_t stream, uint32_t event);
    /* From within a launch, on any thread. */
    void (*stop)(ash_streams *streams);
    /* A failure says why the commands since the last call did not all run. */
    ash_status (*finish)(ash_streams *streams, ash_diag *diag);
    /* Of the round that `finish` or `replay` ended last. */
    ash_streams_counts (*counts)(const ash_streams *streams);
    /* Launches and copies that are over since the streams were made. Any thread may ask at any time. */
    uint64_t (*done)(const ash_streams *streams);
    /* From here on commands are kept. ASH_ERROR_UNSUPPORTED says why these streams cannot. */
    ash_status (*capture_begin)(ash_streams *streams, ash_diag *diag);
    /* Ends the capture, also when it fails: ASH_ERROR_UNSUPPORTED names the command that cannot be part of
     * one. The capture must be freed before the streams. `like` is NULL, or a capture of other streams of
     * this class: when its commands call the same kernels in the same way, on other tables, variables, last
     * chunks and numbers of bytes, and lie at the same distances, what was compiled for it is shared. */
    ash_status (*capture_end)(ash_streams *streams, const ash_capture *like, ash_capture **out,
                              ash_diag *diag);
    /* Returns when all of it is over. */
    ash_status (*replay)(ash_streams *streams, const ash_capture *capture, ash_diag *diag);
    void (*capture_free)(ash_streams *streams, ash_capture *capture); /* NULL is allowed */
    uint32_t (*captured)(const ash_capture *capture);                 /* launches and copies in it */
    bool (*compiled)(const ash_capture *capture); /* for it, not for the one that it is like */
};

/* Streams of this process's processors. With one stream, commands run on the calling thread as they are
 * issued; with several, on the calling thread and the context's pool, when `finish` is called. A capture of
 * one stream is machine code, and one of several is their queues. */
extern const ash_stream_class ash_stream__cpu;

static inline void ash_streams__destroy(ash_streams *streams) {
    if (streams) streams->class->destroy(streams);
}

#endif
