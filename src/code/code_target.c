/* SPDX-License-Identifier: MIT */
#include "code_target.h"

static const ash_code_target *const kinds[ASH_TARGET_KINDS] = {
    [ASH_TARGET_CPU] = &ash_code__host, [ASH_TARGET_GPU] = &ash_code__nvptx};

const ash_code_target *ash_code_target__of(ash_target_kind kind) {
    return (unsigned)kind < ASH_TARGET_KINDS ? kinds[kind] : NULL;
}
