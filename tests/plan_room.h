/* SPDX-License-Identifier: MIT */
/* The room of graph_room.h for plans of programs that are made by hand. */
#ifndef ASH_PLAN_ROOM_H
#define ASH_PLAN_ROOM_H

#include "programs.h"

#define ROOM_MORE                                                                                          \
    maker m;                                                                                               \
    ash_cancel cancel;
#include "graph_room.h"

#endif
