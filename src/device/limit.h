/* SPDX-License-Identifier: MIT */
/* How much memory this process can ever have. */
#ifndef ASH_LIMIT_H
#define ASH_LIMIT_H

#include <stdint.h>

/* Bytes of memory and swap of the machine, or fewer where a control group says so. */
uint64_t ash_limit__memory(void);

/* The same of a machine with `memory` and `swap` bytes, whose process has the groups that the file `groups`
 * lists (the format of /proc/self/cgroup), which lie below the folder `root` (that of /sys/fs/cgroup). */
uint64_t ash_limit__groups(const char *groups, const char *root, uint64_t memory, uint64_t swap);

#endif
