/* SPDX-License-Identifier: MIT */
/* The device of the tests, APART: what a plan may believe of a device, and nothing more (apart.c).
 *
 * Its memory is out of the host's reach, and the host's out of its own: addresses are numbers that fault
 * where they are used as pointers. Kernels are loaded, functions of the host work on copies of what they
 * declare, and one thread runs the commands of a round in an order that a seed picks among all that the
 * interface allows. Commands of a stream may be put off as long as nothing waits for them; those of
 * several streams run in turns, a few chunks or bytes at a time, chunks in any order. With a plan that
 * poisons dead bytes, whoever reads too early or writes too early shows.
 *
 * With ASHLAR_TEST_DEVICE=apart in the environment every plan of a test program that names no device is on
 * this one; with ASHLAR_TEST_DEVICE=CUDA:0 it is on that; plans whose kernels a test has written in C
 * are none there: building one ends the program (wished.c). */
#ifndef ASH_APART_H
#define ASH_APART_H

#include "device/device.h"
#include "kernel/program.h"

/* Set by the test before each execution. */
typedef struct reorder_plan {
    uint64_t seed;
    bool fail;     /* every round fails, after it has run */
    bool refuse;   /* nothing can be captured */
    bool peers;    /* devices of this kind reach each other's memory: asked when a way is opened */
    uint32_t drop; /* the wait with this number, in the order of issue, is left out; UINT32_MAX: none */
} reorder_plan;

extern reorder_plan reorder;

/* The device of a context; the caller closes it. */
ash_status apart_open(ash_context *context, ash_device **out, ash_diag *diag);
/* Another one of the same kind, for each number. */
ash_status apart_open_another(ash_context *context, unsigned number, ash_device **out, ash_diag *diag);
/* Whether a device is one of these. */
bool apart_is(const ash_device *device);
/* Bytes of a block of such a device, where the host has them; the program ends where there are none. */
void *apart_reach(const ash_device *device, ash_address address, uint64_t size);

/* wished.c: whether plans are on it that name no device. */
bool apart_is_wished(void);
/* Whether such plans are on a GPU. */
bool cuda_is_wished(void);

/* Ends a test that is about what such devices do not have, and says so. */
#define NOT_APART(what)                                                                                    \
    do {                                                                                                   \
        if (!apart_is_wished() && !cuda_is_wished()) break;                                                \
        print_message("SKIP on another device: %s\n", what);                                               \
        skip();                                                                                            \
    } while (0)

/* The same for what GPUs do not have. */
#define NOT_CUDA(what)                                                                                     \
    do {                                                                                                   \
        if (!cuda_is_wished()) break;                                                                      \
        print_message("SKIP on CUDA: %s\n", what);                                                         \
        skip();                                                                                            \
    } while (0)

/* As if each step were worth a stream of its own: for tests of edges on graphs that are small. */
static inline void reorder_weigh(ash_program *program) {
    for (size_t i = 0; i < program->steps.len; i++) program->steps.at[i].work = 1e5;
}

#endif
