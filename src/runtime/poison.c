/* SPDX-License-Identifier: MIT */
/* Poison, for debugging: bytes are filled with NaN patterns as soon as nothing may read them any more, so
 * that a value that is read after its death shows, and so does a result that lands in bytes which still
 * belong to another.
 *
 * A buffer's bytes are dead when every step that touches them is over, whatever the streams. Each step is
 * followed by a fill for each root that it touched, on its own stream before its event, and the last of a
 * root's fills fills, so that whoever takes the bytes over comes after that. */
#include <stdatomic.h>

#include "plan.h"

enum { POISON = 0xff }; /* a NaN in every floating point type */

ash_status ash_plan__poison_start(ash_plan *plan, ash_diag *diag) {
    const ash_plan_core *core = plan->core;
    for (uint32_t i = 0; i < core->n_gaps; i++) {
        const ash_plan_gap *gap = &core->gaps[i];
        const ash_plan_arena *arena = &plan->arenas[gap->arena];
        ash_device *device = plan->shared->devices[arena->device];
        ash_address start;
        ASH_TRY(ash_storage__address(arena->storage, &start, diag));
        if (gap->bytes) ASH_TRY(device->class->fill(device, start + gap->offset, POISON, gap->bytes, diag));
    }
    for (uint32_t b = 0; b < plan->n_buffers; b++)
        if (ash_plan_core__is_mortal(core, b))
            atomic_store_explicit(&plan->alive[b], core->touches[b], memory_order_relaxed);
    return ASH_OK;
}

void ash_plan__make_poison(ash_plan *plan) {
    for (uint32_t f = 0; f < plan->core->n_fills; f++) {
        uint32_t root = plan->core->fills[f];
        plan->fills[f] = (ash_fill){.buffer = &plan->base[root],
                                    .bytes = plan->layout->places[root].bytes,
                                    .value = POISON,
                                    .device = plan->program->buffers.at[root].device,
                                    .left = &plan->alive[root]};
    }
}
