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
#include "stream.h"

enum { ASH_CPU_LINE = ASH_LINE_BYTES }; /* bytes that two threads should not write both */

/* An event is a place in a stream: happened when the stream has passed so many records. */
typedef struct ash_cpu_mark {
    uint32_t stream, count;
} ash_cpu_mark;

typedef struct ash_cpu_list {
    ash_command *commands;
    uint32_t count, room, records;
} ash_cpu_list;

/* Commands of several streams, in the order of each. */
typedef struct ash_cpu_queues {
    ash_cpu_list *lists; /* per stream */
    ash_cpu_mark *marks; /* per event */
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
    uint32_t n_streams, n_events;
    uint32_t *rooms; /* per stream: commands */
    ash_cpu_queues issued;
    ash_streams_counts counts;
    _Atomic uint64_t done; /* launches and copies that are over, of one stream */

    /* several streams: the round that runs */
    const ash_cpu_queues *running;
    struct ash_cpu_stream *streams;
    int64_t ended; /* the last round, on the monotonic clock */
    int64_t work;  /* nanoseconds that it would have taken one thread, or about that */
    _Alignas(ASH_CPU_LINE) _Atomic uint32_t left; /* streams that are not over */
    _Atomic uint32_t asleep;                      /* threads that have announced sleep */
    pthread_mutex_t lock;                         /* for sleeping */
    pthread_cond_t wake;
} ash_cpu;

static inline ash_cpu *ash_cpu__of(ash_streams *streams) {
    return (ash_cpu *)streams;
}

/* Runs the chunks [begin, end) of a launch, a piece at a time; those that the switch leaves out are
 * noted. */
void ash_cpu__run_range(ash_cpu *cpu, const ash_launch *launch, int64_t begin, int64_t end,
                        unsigned worker);
/* The same of a copy. */
void ash_cpu__move(ash_cpu *cpu, const ash_transfer *copy);
bool ash_cpu__note_left_out(ash_cpu *cpu); /* returns true */

/* Whether the next command is to be left out, which is noted: the switch is on, or a command was left out
 * before, whose results later ones may need. */
static inline bool ash_cpu__stops(ash_cpu *cpu) {
    if (!ash_stop__is_asked(&cpu->stop)) return false;
    return ash_cpu__note_left_out(cpu);
}

void ash_cpu__stop(ash_streams *streams);

/* The round is over: what `finish` and `replay` return. */
ash_status ash_cpu__end(ash_cpu *cpu, ash_diag *diag);

/* --- stream_queue.c --------------------------------------------------------------------------- */

extern const ash_streams ash_cpu__queued; /* what several streams do, but for captures */

ash_status ash_cpu__make_queues(ash_cpu *cpu, ash_diag *diag);
void ash_cpu__free_queues(ash_cpu *cpu, ash_cpu_queues *queues); /* zeroed ones are allowed */
/* What is issued goes to the queues from now on, from their start. */
void ash_cpu__clear_queues(ash_cpu *cpu);
ash_status ash_cpu__make_streams(ash_cpu *cpu, ash_diag *diag);
void ash_cpu__free_streams(ash_cpu *cpu);
/* Runs what the queues hold, and returns when all of it is over. */
void ash_cpu__run_queues(ash_cpu *cpu, const ash_cpu_queues *queues);

#endif
