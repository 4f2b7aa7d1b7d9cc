/* SPDX-License-Identifier: MIT */
/* What the CPU's streams share: stream_cpu.c has one stream, captures and their life, stream_queue.c
 * several streams. */
#ifndef ASH_STREAM_CPU_H
#define ASH_STREAM_CPU_H

#include <pthread.h>
#include <stdatomic.h>

#include "base/clock.h"
#include "base/costs.h"
#include "base/pool.h"
#include "device.h"

/* An event is a place in a stream: happened when the stream has passed so many records, and what goes on
 * elsewhere is over. */
typedef struct ash_cpu_mark {
    uint32_t stream, count;
    ash_look *look; /* or NULL */
} ash_cpu_mark;

typedef struct ash_cpu_list {
    ash_command *commands;
    uint32_t count, room, records;
} ash_cpu_list;

/* Commands of several streams, in the order of each. */
typedef struct ash_cpu_queues {
    ash_cpu_list *lists; /* per stream */
    ash_cpu_mark *marks; /* per event */
    bool looks;          /* some of these have a look */
    bool full;           /* more commands were issued than there is room for */
} ash_cpu_queues;

struct ash_cpu_stream; /* stream_queue.c */

typedef struct ash_cpu {
    ash_streams base;
    ash_context *context;
    const ash_allocator *allocator;
    ash_entry_maker maker;
    ash_stop stop;  /* the switch, and whether something was left out in this round */
    ash_pool *pool; /* NULL: one thread */
    unsigned threads;
    bool flush; /* denormal numbers are zero in kernels */
    uint32_t n_streams, n_events;
    uint64_t first; /* as in the options */
    ash_cpu_queues issued;
    ash_streams_counts counts;
    _Atomic uint64_t done;  /* steps that are over, of one stream */
    struct ash_cpu *within; /* of one stream: several, in one of which it runs as `worker`; or NULL */
    uint32_t stream;        /* that one */
    unsigned worker;

    /* several streams: the round that runs */
    const ash_cpu_queues *running;
    struct ash_cpu_stream *streams;
    int64_t ended; /* the last round, on the monotonic clock */
    int64_t work;  /* nanoseconds that it would have taken one thread, or about that */
    _Alignas(ASH_LINE_BYTES) _Atomic uint32_t left; /* streams that are not over */
    _Atomic uint32_t asleep;                        /* threads that have announced sleep */
    pthread_mutex_t lock;                           /* for sleeping */
    pthread_cond_t wake;
    bool looking; /* a thread asks what goes on elsewhere: under the lock */
} ash_cpu;

static inline ash_cpu *ash_cpu__of(ash_streams *streams) {
    return (ash_cpu *)streams;
}

/* Of a launch or a function of the host. */
static inline const ash_chunks *ash_cpu__chunks(const ash_command *command) {
    return command->kind == ASH_COMMAND_LAUNCH ? &command->launch->chunks : &command->host->chunks;
}

static inline bool ash_cpu__has_chunks(const ash_command *command) {
    return command->kind == ASH_COMMAND_LAUNCH || command->kind == ASH_COMMAND_HOST;
}

/* Runs chunks of such a command, a piece at a time; those that the switch leaves out are noted. */
void ash_cpu__run_range(ash_cpu *cpu, const ash_command *command, int64_t begin, int64_t end,
                        unsigned worker);
/* Copies, fills and stores. */
void ash_cpu__move(ash_cpu *cpu, const ash_command *command);
/* Runs a repeat on this thread; launches in it that are worth several threads have them where the streams
 * are one. */
void ash_cpu__repeat(ash_cpu *cpu, const ash_repeat *repeat);
bool ash_cpu__note_left_out(ash_cpu *cpu); /* returns true */

/* Whether the next command is to be left out, which is noted: the switch is on, or a command was left out
 * before, whose results later ones may need. */
static inline bool ash_cpu__stops(ash_cpu *cpu) {
    if (!ash_stop__is_asked(&cpu->stop)) return false;
    return ash_cpu__note_left_out(cpu);
}

/* What comes next on these streams, which are one, runs in a command of a stream of several, `within`, on
 * its thread `worker`: launches that are worth several threads have those. */
void ash_cpu__run_within(ash_streams *streams, ash_streams *within, uint32_t stream, unsigned worker);

/* The round is over: what `finish` and `replay` return. */
ash_status ash_cpu__end(ash_cpu *cpu, ash_diag *diag);

/* --- stream_cpu.c ----------------------------------------------------------------------------- */

/* As in ash_device_class. */
ash_status ash_cpu__create_streams(ash_device *device, const ash_streams_options *options,
                                   ash_streams **out, ash_diag *diag);

/* --- stream_queue.c --------------------------------------------------------------------------- */

/* Empty ones for so many commands per stream. */
ash_status ash_cpu__make_queues(const ash_cpu *cpu, const uint32_t *rooms, ash_cpu_queues *out,
                                ash_diag *diag);
void ash_cpu__free_queues(const ash_cpu *cpu, ash_cpu_queues *queues); /* zeroed ones are allowed */
void ash_cpu__enqueue(ash_cpu_queues *queues, const ash_command *commands, size_t count);
ash_status ash_cpu__make_streams(ash_cpu *cpu, ash_diag *diag);
void ash_cpu__free_streams(ash_cpu *cpu);
/* Runs what the queues hold, and returns when all of it is over. */
void ash_cpu__run_queues(ash_cpu *cpu, const ash_cpu_queues *queues);
/* Runs a launch or a function of the host from within a command of a stream, whose threads it has. */
unsigned ash_cpu__share(ash_cpu *cpu, uint32_t stream, const ash_command *command, unsigned worker);
/* As in the class. */
ash_status ash_cpu__finish_queues(ash_streams *streams, ash_diag *diag);
uint64_t ash_cpu__done_queues(const ash_streams *streams);

#endif
