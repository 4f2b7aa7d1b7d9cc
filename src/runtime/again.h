/* SPDX-License-Identifier: MIT */
/* Recomputation: main steps some of which run again, so that less is live at once. */
#ifndef ASH_AGAIN_H
#define ASH_AGAIN_H

#include "plan.h"

/* What is known of a program's main steps, and the best schedule found so far. */
typedef struct ash_again ash_again;

/* Looks at a program whose access records have been checked, and at what lies on one device. `pinned`, per
 * buffer: roots that are read after the last step. `base`: bytes of the arenas there that are live
 * throughout. The program stays as it is
 * until ash_again__carry_out. Freed with ash_again__close. */
ash_status ash_again__open(ash_program *program, uint32_t device, const bool *pinned, unsigned threads,
                           uint64_t base, ash_again **out, ash_diag *diag);
void ash_again__close(ash_again *again); /* NULL is allowed */

/* Looks for a schedule in which at most `room` bytes are live at a time, and keeps the fastest by
 * ash_schedule__cost. *found: there is one. */
ash_status ash_again__within(ash_again *again, uint64_t room, bool *found, ash_diag *diag);
/* Looks for a schedule in which as little as possible is live, and keeps it. *found: it is lower than that
 * of the steps as they are. */
ash_status ash_again__least(ash_again *again, const ash_progress *progress, bool *found, ash_diag *diag);

/* Makes the program's main steps those of the schedule that was kept: results that are computed again get
 * buffers of their own, behind those that were given. What an earlier call has made is taken back first;
 * after a failure it is to be. *count: steps that run once more; *ns: what these cost by
 * ash_schedule__cost. */
ash_status ash_again__carry_out(ash_again *again, size_t *count, double *ns, ash_diag *diag);
/* Makes the program what it was. */
void ash_again__undo(ash_again *again);

#endif
