/* SPDX-License-Identifier: MIT */
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

/* How a long piece of work that has no status, a kernel, is asked to end: it does so soon after it was
 * asked, and says that it did. What is asked for by either of the two is the same. */
typedef struct ash_stop {
    const ash_cancel *asked;
    int left_out; /* something was, by this piece of work or by another one of the same round */
} ash_stop;

/* Nobody asks. */
extern const ash_stop ash_stop__never;

static inline bool ash_stop__has_left_out(const ash_stop *stop) {
    return __atomic_load_n(&stop->left_out, __ATOMIC_RELAXED) != 0;
}
static inline void ash_stop__set_left_out(ash_stop *stop, bool left_out) {
    __atomic_store_n(&stop->left_out, left_out, __ATOMIC_RELAXED);
}
static inline bool ash_stop__is_asked(const ash_stop *stop) {
    return ash_cancel__is_on(stop->asked) || ash_stop__has_left_out(stop);
}

/* Whether to go on: the switch is off, and the function, which is called, agrees. `progress` may be
 * NULL. */
bool ash_progress__go(const ash_progress *progress, ash_stage stage, uint64_t done, uint64_t total);
/* The same as a status: ASH_ERROR_CANCELLED names the stage. */
ash_status ash_progress__report(const ash_progress *progress, ash_stage stage, uint64_t done,
                                uint64_t total, ash_diag *diag);

#endif
