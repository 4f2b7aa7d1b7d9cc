/* The inside of ashlar/progress.h: what long work calls between its pieces. */
#ifndef ASH_PROGRESS_INSIDE_H
#define ASH_PROGRESS_INSIDE_H

#include "ashlar/progress.h"
#include "base.h"

/* A switch that is never on, for who would otherwise have to ask whether there is one. */
extern const ash_cancel ash_cancel__never;

static inline bool ash_cancel__is_on(const ash_cancel *cancel) {
    return __atomic_load_n(&cancel->on, __ATOMIC_RELAXED) != 0;
}

/* Whether to go on: the switch is off, and the function, which is called, agrees. `progress` may be NULL.
 */
bool ash_progress__go(const ash_progress *progress, ash_stage stage, uint64_t done, uint64_t total);
/* The same as a status: ASH_ERROR_CANCELLED names the stage. */
ash_status ash_progress__report(const ash_progress *progress, ash_stage stage, uint64_t done,
                                uint64_t total, ash_diag *diag);

#endif
