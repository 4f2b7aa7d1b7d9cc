/* SPDX-License-Identifier: MIT */
/* Commands and their order. A lane is a queue: one for each stream, and one for each chain of nodes of
 * an executable graph. A command begins when those before it in its lane and those that it names are
 * over; which of several begins is chance.
 *
 * What is ordered is known besides, by vector clocks: the clock of a command says for every lane up to
 * which number its commands are over when this one begins, in every order. The host has a clock, too:
 * what it waited for is before all that it issues after. And a block learns from words in memory: an atomic
 * that releases leaves there what came before its command, one that acquires takes what is there. */
#ifndef PTX_QUEUE_H
#define PTX_QUEUE_H

#include "machine.h"

struct ptx_clock {
    uint32_t *over; /* by lane; 0 past the end */
    uint32_t n;
};

/* A place in a lane, with what is over when it is reached. */
typedef struct ptx_moment {
    uint32_t lane, number; /* number 0: before all */
    ptx_clock clock;       /* itself included */
} ptx_moment;

typedef enum ptx_task_kind {
    TASK_KERNEL,
    TASK_COPY,
    TASK_FILL,
    TASK_HOST,
    TASK_EVENT,
    TASK_WAIT,
    TASK_WORK
} ptx_task_kind;

typedef struct ptx_task {
    ptx_task_kind kind;
    int device, stream; /* stream: its number, for the history */
    ptx_launch launch;  /* KERNEL; owns its params */
    ptx_work work;      /* WORK; owns its arg */
    uint64_t to, from;  /* COPY, FILL: addresses of any memory */
    uint64_t bytes;     /* COPY: in a row; FILL: elements */
    uint64_t rows, to_pitch, from_pitch;
    unsigned char *snapshot; /* COPY from memory that the caller may change; owned */
    uint32_t value, element; /* FILL */
    CUhostFn function;       /* HOST */
    void *user;
    size_t ran;   /* its place in the history, when it has begun */
    double *when; /* EVENT: gets the time in milliseconds; may be NULL */
    uint32_t lane, number;
    ptx_clock clock;
    struct ptx_after {
        uint32_t lane, number;
    } *after;
    uint32_t n_after;
    struct ptx_task *next;
} ptx_task;

uint32_t ptx_lane_new(void);
void ptx_lane_free(uint32_t lane); /* when what it has is over */
void ptx_clock_join(ptx_clock *clock, const ptx_clock *other);
void ptx_moment_copy(ptx_moment *to, const ptx_moment *from);

/* Of the command that runs. */
const ptx_clock *ptx_clock_present(void);

ptx_task *ptx_task_new(ptx_task_kind kind, int device, int stream);
void ptx_task_after(ptx_task *task, const ptx_moment *moment);
/* Puts it at the end of a lane, behind all that the host knows is over. It is the queue's from then on. */
ptx_moment ptx_task_issue(ptx_task *task,
                          uint32_t lane); /* the moment when it is over; its clock is to be freed */
/* The end of a lane as it is now. */
ptx_moment ptx_lane_end(uint32_t lane);
bool ptx_moment_reached(const ptx_moment *moment);
/* Runs commands, of all lanes, until the moment is reached; the host knows then. */
void ptx_wait_for(const ptx_moment *moment);
void ptx_wait_for_all(void);
void ptx_run_some(void); /* a few, or none */
void ptx_run_one(void);  /* if there is one */
void ptx_queue_reset(void);
/* The device whose context was lost, and forgets it; -1: none was. */
int ptx_queue_lost(void);
/* True in a function of the host. */
bool ptx_in_host_function(void);

#endif
