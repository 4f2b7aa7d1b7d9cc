/* SPDX-License-Identifier: MIT */
/* Calls of the planner that are compared: one without a capacity, and bisection over capacities. */
#ifndef ASH_ROOM_CALLS_H
#define ASH_ROOM_CALLS_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "ashlar/memory.h"

enum { ROOM_STEPS = 10 }; /* calls of a bisection, at most */
enum { ROOM_FITTED = 4 }; /* how often its node budget a call with a capacity may spend */

typedef struct room_answer {
    uint64_t size;        /* bytes: found, or named by the refusal */
    uint64_t load, bound; /* bytes: of what is live at once; nothing smaller exists */
    uint64_t nodes;       /* search steps */
    double seconds;       /* of processor time */
} room_answer;

static inline double room_seconds(void) {
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* One call for at most `nodes` steps; 0: as many as it takes by itself. False: refused, and *out is what
 * the refusal says. Ends the program when anything else goes wrong. */
static inline bool room_call(ash_context *context, const ash_memory_problem *problem,
                             ash_memory_strategy strategy, uint64_t nodes, uint64_t capacity,
                             room_answer *out) {
    ash_diag diag;
    ash_memory_options options = ash_memory_options_inference();
    ash_memory_plan *plan;
    *out = (room_answer){0};
    options.strategy = strategy;
    options.node_budget = capacity && nodes >= ROOM_FITTED ? nodes / ROOM_FITTED : nodes;
    options.capacity = capacity;
    double begin = room_seconds();
    ash_status status = ash_memory_plan_create(context, problem, &options, &plan, &diag);
    out->seconds = room_seconds() - begin;
    if (status == ASH_OK) {
        const ash_memory_arena *arena = ash_memory_plan_arenas(plan, NULL);
        out->size = arena->used;
        out->load = arena->load;
        out->bound = arena->lower_bound;
        out->nodes = arena->nodes;
        ash_memory_plan_destroy(plan);
        return true;
    }
    static const char words[] = "smallest packing found has ";
    const char *named = strstr(diag.message, words);
    if (status != ASH_ERROR_BUDGET || !named) {
        fprintf(stderr, "%s\n", diag.message);
        exit(2);
    }
    out->size = strtoull(named + strlen(words), NULL, 10);
    out->nodes = nodes;
    return false;
}

/* The load first, then what halves the bytes between the highest capacity that was refused and the
 * smallest arena known, each for its share of what is left of `nodes`. */
static inline room_answer room_bisect(ash_context *context, const ash_memory_problem *problem,
                                      uint64_t nodes) {
    room_answer all, one;
    room_call(context, problem, ASH_MEMORY_BEST_FIT, 1, 0, &all);
    all.nodes = 0;
    all.seconds = 0;
    uint64_t from = all.load;
    for (uint64_t step = ROOM_STEPS; step && from < all.size && all.nodes < nodes; step--) {
        uint64_t capacity = step == ROOM_STEPS ? from : from + (all.size - from) / 2;
        bool fits =
            room_call(context, problem, ASH_MEMORY_SEARCH, (nodes - all.nodes) / step, capacity, &one);
        all.nodes += one.nodes;
        all.seconds += one.seconds;
        if (!fits) from = capacity + 1;
        if (one.size < all.size) all.size = one.size;
    }
    return all;
}

#endif
