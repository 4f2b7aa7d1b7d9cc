/* SPDX-License-Identifier: MIT */
/* The modes that each case is executed in. No device refuses a case that it executes in another mode. */
#ifndef ASH_CONFORMANCE_MODES_H
#define ASH_CONFORMANCE_MODES_H

#include "executor.h"

enum { MOST_MODES = 8 };

/* Those that are asked for: at least one, and stream alone where nobody asks. */
extern executor_mode modes[MOST_MODES];
extern size_t n_modes;

/* Reads a list: "stream,graph,multi_stream=3,eager". False, and a line on stderr: that is none. */
bool modes_read(const char *list);
/* Notes that a mode has executed a case, and by which plan (NULL: it was dropped). False, with what is
 * wrong in `why`, where that was not the mode: mode graph captures each operation, but for loops on a GPU,
 * which are issued between parts of the capture. */
bool modes_count(size_t mode, ash_plan *plan, char *why, size_t size);
/* Prints what all of them have done. */
void modes_tell(void);
/* Whether two modes have made the same bits; if not, `why` says where they differ. */
bool modes_agree(const executor_mode *first, const ash_tensor *a, const executor_mode *second,
                 const ash_tensor *b, char *why, size_t size);

#endif
