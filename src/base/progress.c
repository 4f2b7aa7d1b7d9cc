/* SPDX-License-Identifier: MIT */
#include "progress.h"

const ash_cancel ash_cancel__never;
const ash_stop ash_stop__never = {&ash_cancel__never, 0};

void ash_cancel_set(ash_cancel *cancel, bool on) {
    if (cancel) __atomic_store_n(&cancel->on, on, __ATOMIC_RELAXED);
}

bool ash_cancel_is_on(const ash_cancel *cancel) {
    return cancel && ash_cancel__is_on(cancel);
}

const char *ash_stage_text(ash_stage stage) {
    static const char *const text[ASH_STAGE_COUNT] = {
        [ASH_STAGE_IMPORT] = "import",   [ASH_STAGE_OPTIMIZE] = "optimize", [ASH_STAGE_LOWER] = "lower",
        [ASH_STAGE_COMPILE] = "compile", [ASH_STAGE_ORDER] = "order",       [ASH_STAGE_MEMORY] = "memory",
        [ASH_STAGE_CAPTURE] = "capture", [ASH_STAGE_WEIGHTS] = "weights"};
    return (unsigned)stage < ASH_STAGE_COUNT ? text[stage] : "?";
}

bool ash_progress__go(const ash_progress *progress, ash_stage stage, uint64_t done, uint64_t total) {
    if (!progress) return true;
    if (ash_cancel_is_on(progress->cancel)) return false;
    return !progress->report || progress->report(progress->user, stage, done, total);
}

ash_status ash_progress__report(const ash_progress *progress, ash_stage stage, uint64_t done,
                                uint64_t total, ash_diag *diag) {
    if (ash_progress__go(progress, stage, done, total)) return ASH_OK;
    return ash_fail(diag, ASH_ERROR_CANCELLED, "cancelled at stage %s, after %llu of %llu",
                    ash_stage_text(stage), (unsigned long long)done, (unsigned long long)total);
}
