/* Weights exist once: the second plan of a training pair borrows the places of the first. */
#include "ashlar/memory_schedule.h"
#include "base/base.h"

ash_status ash_memory_share_parameters(const ash_memory_plan *first, const uint32_t *pairs,
                                       ash_memory_buffer *buffers, uint32_t buffer_count, ash_diag *diag) {
    ASH_FAIL_IF(!first || (buffer_count && (!pairs || !buffers)), diag, ASH_ERROR_INVALID_ARGUMENT,
                "the plan, the pairs or the buffers are NULL");
    uint32_t count;
    const ash_memory_place *places = ash_memory_plan_places(first, &count);
    const ash_memory_arena *arenas = ash_memory_plan_arenas(first, NULL);
    for (uint32_t i = 0; i < buffer_count; i++) { /* check first, then change */
        if (pairs[i] == ASH_MEMORY_NONE) continue;
        ASH_FAIL_IF(pairs[i] >= count, diag, ASH_ERROR_INVALID_ARGUMENT,
                    "buffer %u is paired with %u of %u", i, pairs[i], count);
        const ash_memory_place *place = &places[pairs[i]];
        ASH_FAIL_IF(place->arena == ASH_MEMORY_NONE, diag, ASH_ERROR_INVALID_ARGUMENT,
                    "buffer %u is paired with %u, which the first plan left out", i, pairs[i]);
        ASH_FAIL_IF(arenas[place->arena].lane != buffers[i].lane, diag, ASH_ERROR_INVALID_ARGUMENT,
                    "buffer %u is in lane %u, its pair %u in lane %u", i, buffers[i].lane, pairs[i],
                    arenas[place->arena].lane);
        ASH_FAIL_IF(place->offset % ASH_MAX(buffers[i].align, 1), diag, ASH_ERROR_INVALID_ARGUMENT,
                    "buffer %u wants alignment %llu, its pair %u lies at %llu", i,
                    (unsigned long long)buffers[i].align, pairs[i], (unsigned long long)place->offset);
        ASH_FAIL_IF(place->offset + buffers[i].size > arenas[place->arena].size, diag,
                    ASH_ERROR_INVALID_ARGUMENT,
                    "buffer %u of %llu bytes does not fit where its pair %u lies", i,
                    (unsigned long long)buffers[i].size, pairs[i]);
    }
    for (uint32_t i = 0; i < buffer_count; i++)
        if (pairs[i] != ASH_MEMORY_NONE) buffers[i].pinned = places[pairs[i]].offset;
    return ASH_OK;
}
