/* SPDX-License-Identifier: MIT */
/* What the checkers and the order search share of a schedule: streams, and records grouped by a field. */
#ifndef ASH_MEMORY_SCHEDULE_INTERNAL_H
#define ASH_MEMORY_SCHEDULE_INTERNAL_H

#include "ashlar/memory_schedule.h"
#include "base/base.h"

uint32_t ash_memory__stream_count(const ash_memory_schedule *schedule);
/* Every index in range, waits only for earlier operations. */
ash_status ash_memory__schedule_verify(const ash_memory_schedule *schedule, size_t buffer_count,
                                       ash_diag *diag);

/* Groups `count` records by a 32-bit field, the first of which is at `field` and each next one `stride`
 * bytes further: the records of group g are index[at[g]] to index[at[g + 1] - 1], in order. `at` has groups
 * + 1 entries. */
void ash_memory__rows(const void *field, size_t stride, uint32_t count, uint32_t groups, uint32_t *at,
                      uint32_t *index);

#endif
