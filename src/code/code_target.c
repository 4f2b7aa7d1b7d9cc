/* SPDX-License-Identifier: MIT */
#include "code_target.h"

static const ash_code_target *const kinds[ASH_TARGET_KINDS] = {[ASH_TARGET_CPU] = &ash_code__host};

const ash_code_target *ash_code_target__of(const ash_target *target) {
    return (unsigned)target->kind < ASH_TARGET_KINDS ? kinds[target->kind] : NULL;
}
