/* SPDX-License-Identifier: MIT */
/* Streams: queues of work on one device, and the events that order them.
 *
 *   launch    a kernel over a range of chunks
 *   copy      bytes from buffer to buffer
 *   fill      a buffer with one byte
 *   host      a function of the host over a range of chunks
 *   repeat    lists of commands, of which the host says again and again which comes next
 *   store     an i64 in a buffer; only in a repeat
 *   record    an event happens when everything before it on its stream is over
 *   wait      what follows on this stream begins when an event has happened
 *
 * Commands are data. A list of them is issued, to run once, or instantiated: made into one thing, a
 * capture, that is replayed as often as one likes.
 *
 * Commands of one stream run one after the other; those of two streams in any order, at the same time or
 * interleaved, as far as events allow. They may begin as soon as they are issued, and begin at the latest
 * when `finish` is called, which returns when all are over. Events are as if never recorded when the next
 * round of commands begins, and every wait comes after its record in the order of issue.
 *
 * What commands point at is borrowed until `finish`; that of a capture, until it is freed. It is read when
 * the command runs: the entries of tables, last chunks and numbers of bytes may be others at each replay.
 *
 * Memory is known by addresses on the device (kernel.h). A launch, a copy and a fill touch the device's
 * memory, and nothing else. A function of the host touches memory of the host, and of the device's only the
 * operands that it declares, at the addresses that it is handed: where the host reaches them, their own;
 * elsewhere those of copies, which the device makes before, of what is read, and after, of what is written.
 *
 * A repeat is steered by a function of the host, on the thread that issues or on one that runs its
 * stream. It is asked for one list after the other, and may then write what the commands of that list
 * point at, bytes and addresses but not chunks: for it is asked when those of the list before have been
 * read. It runs ahead of the stream, but where it wants to know a byte of the device's memory: then all
 * that came before is over. Lists in a repeat have launches, copies, fills, stores, functions of the host
 * and repeats, on the repeat's stream whatever they say, which nobody times or counts. A function of the
 * host in a list may write chunks and variables of what comes behind it there, in other repeats too.
 *
 * A function of the host may stop its streams, when it fails: then commands that have not begun are left
 * out as by the switch below, and the round fails in the same way.
 *
 * Streams may have a switch (ashlar/progress.h). While it is on, commands that have not begun are left out,
 * and of launches in pieces what is left of them; then `finish` and `replay` fail with ASH_ERROR_CANCELLED.
 *
 * One thread at a time issues. A device makes its streams; the runtime knows nothing else of them.
 *
 * Streams of a device that goes on by itself *run ahead*: what is issued is on its way when the call
 * returns, whatever it waits for. Of one such stream the host can record events, ask whether these have
 * happened, and have another stream that runs ahead by the same driver follow them without waiting itself
 * (ash_stream_ahead). */
#ifndef ASH_STREAM_H
#define ASH_STREAM_H

#include <stdatomic.h>

#include "ashlar/device.h"
#include "base/progress.h"
#include "kernel.h"

/* Chunks to run, in any split over any number of threads. */
typedef struct ash_chunks {
    int64_t begin, end; /* half-open */
    int64_t piece;      /* most of them to run before the switch is looked at again; 0: all */
    bool parallel;      /* worth more than one thread; otherwise it runs on one, as worker 0 */
    bool fixed;         /* the end stays what it is when a command is captured */
} ash_chunks;

/* What a later launch reads that no execution writes: threads that wait meanwhile may ask the memory
 * for it. */
typedef struct ash_launch_ahead {
    const ash_address *buffer; /* where its address is; NULL: there is none */
    uint64_t bytes;            /* which the launch's chunks take one after the other */
    uint64_t most;             /* of them for one thread */
} ash_launch_ahead;

typedef struct ash_launch {
    const ash_kernel *kernel;   /* loaded by the streams' device */
    const ash_address *buffers; /* its table */
    uint32_t count;             /* entries of the table */
    const int64_t *vars;        /* present values of the variables, on the host */
    ash_chunks chunks;
    ash_launch_ahead ahead;
} ash_launch;

typedef struct ash_transfer {
    const ash_address *buffers; /* source and target; they do not overlap unless they are one buffer */
    int64_t from, to, bytes;    /* first byte in source and target, how many */
} ash_transfer;

typedef struct ash_fill {
    const ash_address *buffer;
    uint64_t bytes;
    uint8_t value;
    _Atomic uint32_t *left; /* NULL; or fills that share the number: each takes one away, and the one that
                               takes the last away fills */
    uint32_t device;        /* that the buffer is on, of streams that are for several: lanes.h */
} ash_fill;

/* What a function of the host does with one of its buffers. Neither: it is room, of undefined contents. */
typedef struct ash_operand {
    uint64_t bytes; /* from its address on */
    uint64_t most;  /* that `bytes` can become before it runs; 0: they stay */
    bool read;
    bool write; /* all of the bytes */
} ash_operand;

/* On any thread, several at a time where the chunks are worth that. `buffers`: addresses of the host. */
typedef void (*ash_host_fn)(void *arg, void *const *buffers, int64_t begin, int64_t end, int64_t worker);

typedef struct ash_host {
    ash_host_fn fn;
    void *arg;
    const ash_address *buffers;
    const ash_operand *operands; /* what it does with each */
    uint32_t count;              /* of them */
    ash_chunks chunks;
} ash_host;

/* An i64 for the device: read as addresses are. */
typedef struct ash_store {
    const ash_address *buffer;
    const int64_t *value;
} ash_store;

/* What an event of the CPU's streams waits for besides: something that goes on elsewhere. */
typedef struct ash_look {
    bool (*ask)(void *arg); /* whether it is over; from any thread, and not under a lock */
    void *arg;
    atomic_bool over; /* it was, when it was asked: false when a round begins */
} ash_look;

struct ash_command;

typedef struct ash_command_list {
    const struct ash_command *commands;
    uint32_t count;
} ash_command_list;

enum { ASH_REPEAT_LISTS = 3, ASH_REPEAT_OVER = -1 };

typedef struct ash_repeat {
    /* Which list comes next, or ASH_REPEAT_OVER. `turn`: how often it was asked before in this round;
     * `go`: the byte at `look`, or true. */
    int (*next)(void *arg, uint64_t turn, bool go);
    void *arg;
    const ash_address
        *look; /* points at the address of a bool, to be read when the last list is over, or at 0.
                                Nobody looks before turn 0 */
    ash_command_list lists[ASH_REPEAT_LISTS];
    bool waits; /* turn 0 depends on functions of the host that come before on the stream */
} ash_repeat;

/* When a command ran. */
typedef struct ash_timing {
    int64_t start, end; /* nanoseconds on the monotonic clock */
    unsigned threads;   /* that ran a part of it */
} ash_timing;

typedef enum ash_command_kind {
    ASH_COMMAND_LAUNCH,
    ASH_COMMAND_COPY,
    ASH_COMMAND_HOST,
    ASH_COMMAND_REPEAT,
    ASH_COMMAND_FILL,
    ASH_COMMAND_STORE,
    ASH_COMMAND_RECORD,
    ASH_COMMAND_WAIT
} ash_command_kind;

_Static_assert(ASH_COMMAND_REPEAT + 1 == ASH_COMMAND_FILL && ASH_COMMAND_STORE + 1 == ASH_COMMAND_RECORD,
               "steps come first, then what else does something");

typedef struct ash_command {
    ash_command_kind kind;
    uint32_t stream;
    uint32_t event; /* of a record, a wait */
    union {
        const ash_launch *launch;
        const ash_transfer *copy;
        const ash_host *host;
        const ash_repeat *repeat;
        const ash_fill *fill;
        const ash_store *store;
        const void *work; /* any of them */
    };
    ash_timing *timing; /* of a step; NULL: nobody asks */
    ash_look *look;     /* of a record on the CPU's streams: when this is over, too; or NULL */
} ash_command;

/* What executions count and time. */
static inline bool ash_command__is_step(const ash_command *command) {
    return command->kind < ASH_COMMAND_FILL;
}

/* Whether it does something. */
static inline bool ash_command__works(const ash_command *command) {
    return command->kind < ASH_COMMAND_RECORD;
}

/* The first work of these; NULL when there is none. */
static inline const void *ash_command__first(const ash_command *commands, size_t count) {
    for (size_t i = 0; i < count; i++)
        if (ash_command__works(&commands[i])) return commands[i].work;
    return NULL;
}

/* --- captures of the CPU ---------------------------------------------------------------------------- */

/* Does one command's work; false: a part was left out, or the streams are stopped. */
typedef bool (*ash_work_fn)(void *streams, const void *work);

/* Where an entry finds what belongs to one capture: nothing of it is in the code. */
typedef struct ash_entry_place {
    const ash_cancel *cancel;            /* looked at before each command */
    _Atomic uint64_t *done;              /* counts steps that are over */
    const void *first;                   /* the first work; others lie at the same distances from it */
    ash_work_fn run[ASH_COMMAND_RECORD]; /* per kind; of launches those that have parts */
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

/* Worth several threads, or run in pieces: an entry does not call its kernel itself. */
static inline bool ash_launch__has_parts(const ash_launch *launch) {
    return launch->chunks.parallel || launch->chunks.piece;
}

typedef ash_status (*ash_entry_maker)(ash_context *context, const ash_command *commands, size_t count,
                                      ash_entry *out, ash_diag *diag);

/* --- streams ---------------------------------------------------------------------------------------- */

typedef struct ash_streams_options {
    uint32_t streams, events; /* counts; at least one stream */
    uint32_t commands;        /* most of them between two calls of `finish`, over all streams */
    const uint32_t *shares;   /* per stream: most of these that it gets; NULL: all of them */
    uint64_t first;   /* streams of the CPU, a bit each, that hand work on and take no time: they run before
                       others as soon as they can */
    unsigned threads; /* that may run at once, the caller's included; 0 is 1 */
    ash_entry_maker maker;    /* for captures, on devices whose kernels are the host's code */
    const ash_cancel *cancel; /* the switch, or NULL */
    bool keep_denormals;      /* on devices where they cost time: computed with; otherwise they are zero */
} ash_streams_options;

typedef struct ash_streams_counts {
    uint64_t overlapped; /* steps that began while another stream was running */
} ash_streams_counts;

typedef struct ash_capture ash_capture;
typedef struct ash_streams ash_streams; /* some streams of one device, and their events */

/* Memory that streams take beside what commands point at, in bytes. */
typedef struct ash_streams_memory {
    uint64_t device; /* of the device's */
    uint64_t pinned; /* of the host's, that the device reaches */
} ash_streams_memory;

/* Of streams that run ahead, by one driver: of the first of them. */
typedef struct ash_stream_ahead {
    /* Records an event behind all that was issued. A failure is the first of the round. */
    ash_status (*record)(ash_streams *streams, uint32_t event, ash_diag *diag);
    /* What is issued from here on comes after an event that others of this driver have recorded. */
    ash_status (*follow)(ash_streams *streams, const ash_streams *others, uint32_t event, ash_diag *diag);
    /* Whether an event that was recorded has happened. From any thread, also while another one issues. */
    ash_status (*happened)(const ash_streams *streams, uint32_t event, bool *out, ash_diag *diag);
} ash_stream_ahead;

typedef struct ash_stream_class {
    const char *kind;                      /* "CPU" */
    void (*destroy)(ash_streams *streams); /* nothing may be running */
    void (*issue)(ash_streams *streams, const ash_command *commands, size_t count);
    /* From within a function of the host, on any thread. */
    void (*stop)(ash_streams *streams);
    /* A failure says why the commands since the last call did not all run. */
    ash_status (*finish)(ash_streams *streams, ash_diag *diag);
    /* Of the round that `finish` or `replay` ended last. */
    ash_streams_counts (*counts)(const ash_streams *streams);
    /* Steps that are over since the streams were made. Any thread may ask at any time. */
    uint64_t (*done)(const ash_streams *streams);
    /* Adds to *out what is held for a round of such commands, issued or captured, as long as the streams
     * exist; for NULL what is held without any. NULL: nothing is. */
    ash_status (*memory)(const ash_streams *streams, const ash_command *commands, size_t count,
                         ash_streams_memory *out, ash_diag *diag);
    /* Gives back what is held of the last round, as the next one says something else; NULL: nothing is. */
    void (*forget)(ash_streams *streams);
    /* Makes a list of commands into one thing, which must be freed before the streams.
     * ASH_ERROR_UNSUPPORTED says why these streams cannot. `like` is NULL, or a capture of other streams of
     * this class: when its commands call kernels in the same way, on other tables, variables, last chunks
     * and numbers of bytes, and lie at the same distances, what was compiled for it is shared. */
    ash_status (*instantiate)(ash_streams *streams, const ash_command *commands, size_t count,
                              const ash_capture *like, ash_capture **out, ash_diag *diag);
    /* Returns when all of it is over. */
    ash_status (*replay)(ash_streams *streams, const ash_capture *capture, ash_diag *diag);
    /* Where they run ahead: as `issue`, of a capture; each of them once in a round. */
    void (*start)(ash_streams *streams, const ash_capture *capture);
    void (*capture_free)(ash_streams *streams, ash_capture *capture); /* NULL is allowed */
    uint32_t (*captured)(const ash_capture *capture); /* steps in it: not those that are issued beside it */
    uint32_t (*graphs)(const ash_capture *capture);   /* things that a replay launches */
    bool (*compiled)(const ash_capture *capture);     /* for it, not for the one that it is like */
    const ash_stream_ahead *ahead;                    /* NULL: they do not run ahead */
} ash_stream_class;

/* The first member of each device's own structure. */
struct ash_streams {
    const ash_stream_class *class;
    ash_address stop; /* of an ash_stop, where the device's kernels find it: what long ones look at */
    bool direct;      /* of copies between two devices: from memory to memory, and not over the host */
};

static inline void ash_streams__destroy(ash_streams *streams) {
    if (streams) streams->class->destroy(streams);
}

static inline ash_status ash_streams__finish(ash_streams *streams, ash_diag *diag) {
    return streams->class->finish(streams, diag);
}

static inline void ash_streams__launch(ash_streams *streams, uint32_t stream, const ash_launch *launch,
                                       ash_timing *timing) {
    ash_command command = {
        .kind = ASH_COMMAND_LAUNCH, .stream = stream, .launch = launch, .timing = timing};
    streams->class->issue(streams, &command, 1);
}

static inline void ash_streams__copy(ash_streams *streams, uint32_t stream, const ash_transfer *copy,
                                     ash_timing *timing) {
    ash_command command = {.kind = ASH_COMMAND_COPY, .stream = stream, .copy = copy, .timing = timing};
    streams->class->issue(streams, &command, 1);
}

static inline void ash_streams__host(ash_streams *streams, uint32_t stream, const ash_host *host,
                                     ash_timing *timing) {
    ash_command command = {.kind = ASH_COMMAND_HOST, .stream = stream, .host = host, .timing = timing};
    streams->class->issue(streams, &command, 1);
}

static inline void ash_streams__fill(ash_streams *streams, uint32_t stream, const ash_fill *fill) {
    ash_command command = {.kind = ASH_COMMAND_FILL, .stream = stream, .fill = fill};
    streams->class->issue(streams, &command, 1);
}

static inline void ash_streams__record(ash_streams *streams, uint32_t stream, uint32_t event) {
    ash_command command = {.kind = ASH_COMMAND_RECORD, .stream = stream, .event = event};
    streams->class->issue(streams, &command, 1);
}

static inline void ash_streams__wait(ash_streams *streams, uint32_t stream, uint32_t event) {
    ash_command command = {.kind = ASH_COMMAND_WAIT, .stream = stream, .event = event};
    streams->class->issue(streams, &command, 1);
}

#endif
