/* SPDX-License-Identifier: MIT */
/* The modes, with one thread and with several. */
#ifndef ASH_WAYS_H
#define ASH_WAYS_H

#include "ashlar/plan.h"

static const struct way {
    ash_mode mode;
    unsigned streams, threads;
    bool poison;
} ways[] = {
    {ASH_MODE_STREAM, 1, 1, false},       {ASH_MODE_STREAM, 1, 3, false},
    {ASH_MODE_STREAM, 1, 2, true},        {ASH_MODE_GRAPH, 1, 1, false},
    {ASH_MODE_GRAPH, 1, 3, false},        {ASH_MODE_MULTI_STREAM, 2, 1, false},
    {ASH_MODE_MULTI_STREAM, 2, 2, false}, {ASH_MODE_MULTI_STREAM, 3, 3, true},
    {ASH_MODE_MULTI_STREAM, 4, 3, false},
};

static inline ash_plan_options options_of(const struct way *way) {
    ash_plan_options options = ash_plan_options_default();
    options.mode = way->mode;
    options.streams = way->streams;
    options.threads = way->threads;
    options.poison = way->poison;
    return options;
}

#endif
