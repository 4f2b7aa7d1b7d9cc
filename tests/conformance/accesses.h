/* SPDX-License-Identifier: MIT */
/* How kernels touch memory, where the GPU is the stand-in for the driver (ptx/ptx.h): whether a case's
 * kernels ask for whole sectors and for different banks. Cases that do not are on a list, with reasons. */
#ifndef ASH_CONFORMANCE_ACCESSES_H
#define ASH_CONFORMANCE_ACCESSES_H

#include <stdbool.h>
#include <stddef.h>

/* Reads the list: lines of a pattern of names, a word (scattered, conflicts) and the reason; # begins a
 * comment. False, and a line on stderr: it cannot be read, or there is no stand-in. */
bool accesses_open(const char *path);
/* Before a case. */
void accesses_begin(void);
/* Behind it: false where its kernels do what the list does not excuse, with what that is in `why`. */
bool accesses_end(const char *name, char *why, size_t size);
/* How many rows of the list excused nothing; each is told on stdout. */
int accesses_unused(void);

#endif
