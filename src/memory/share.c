/* SPDX-License-Identifier: MIT */
/* Weights exist once: the second plan of a training pair borrows the places of the first. What would let
 * one pass write over what the other still needs is refused here, since neither plan alone can see it. */
#include "ashlar/memory_schedule.h"
#include "base/base.h"
#include "instance.h"
#include "plan.h"

/* Buffer i of the second problem can lie where the first plan put `pair`. */
static ash_status check_pair(const ash_memory_plan *first, uint32_t pair, const ash_memory_buffer *buffers,
                             uint32_t count, uint32_t i, ash_diag *diag) {
    const ash_memory_buffer *b = &buffers[i];
    ASH_FAIL_IF(pair >= first->buffer_count, diag, ASH_ERROR_INVALID_ARGUMENT,
                "buffer %u is paired with %u of %u", i, pair, first->buffer_count);
    ASH_FAIL_IF(b->root != ASH_MEMORY_NONE && b->root >= count, diag, ASH_ERROR_INVALID_ARGUMENT,
                "buffer %u: its root %u is no buffer", i, b->root);
    const ash_memory_place *place = &first->places[pair];
    const ash_memory__tenant *tenant = &first->tenants[pair];
    ASH_FAIL_IF(place->arena == ASH_MEMORY_NONE, diag, ASH_ERROR_INVALID_ARGUMENT,
                "buffer %u is paired with %u, which the first plan left out", i, pair);
    const ash_memory_arena *arena = &first->arenas[place->arena];
    ASH_FAIL_IF(arena->lane != b->lane, diag, ASH_ERROR_INVALID_ARGUMENT,
                "buffer %u is in lane %u, its pair %u in lane %u", i, b->lane, pair, arena->lane);
    ASH_FAIL_IF(tenant->size != b->size, diag, ASH_ERROR_INVALID_ARGUMENT,
                "buffer %u has %llu bytes, its pair %u has %llu", i, (unsigned long long)b->size, pair,
                (unsigned long long)tenant->size);
    ASH_FAIL_IF(place->offset % ASH_MAX(b->align, 1), diag, ASH_ERROR_INVALID_ARGUMENT,
                "buffer %u wants alignment %llu, its pair %u lies at %llu", i, (unsigned long long)b->align,
                pair, (unsigned long long)place->offset);
    ASH_FAIL_IF(!tenant->to_end, diag, ASH_ERROR_INVALID_ARGUMENT,
                "buffer %u is paired with %u, whose bytes the first plan gives to others before its end", i,
                pair);
    ash_memory_kind root = b->root == ASH_MEMORY_NONE ? b->kind : buffers[b->root].kind;
    ASH_FAIL_IF(!ash_memory__from_start(b->kind) && !ash_memory__from_start(root), diag,
                ASH_ERROR_INVALID_ARGUMENT,
                "buffer %u has a pair, %u, but as an %s its bytes are not its own from the start", i, pair,
                ash_memory_kind_text(b->kind));
    ASH_FAIL_IF(
        tenant->forever && !ash_memory__forever(b->kind) && !ash_memory__forever(root), diag,
        ASH_ERROR_INVALID_ARGUMENT,
        "buffer %u would give its bytes to others after its last use, but its pair %u keeps them for "
        "ever",
        i, pair);
    return ASH_OK;
}

/* In an arena that is shared, what the first plan keeps for ever has a pair: otherwise its bytes would look
 * free. */
static ash_status check_kept(const ash_memory_plan *first, const uint32_t *pairs, uint32_t count,
                             ash_diag *diag) {
    const ash_allocator *a = &first->allocator;
    bool *shared = ash_mem_calloc(a, first->arena_count, sizeof *shared);
    bool *paired = ash_mem_calloc(a, first->buffer_count, sizeof *paired);
    ash_status status = ASH_OK;
    if (!shared || !paired) {
        status = ASH_NO_MEMORY(diag);
        goto done;
    }
    for (uint32_t i = 0; i < count; i++) {
        if (pairs[i] == ASH_MEMORY_NONE) continue;
        paired[pairs[i]] = shared[first->places[pairs[i]].arena] = true;
    }
    for (uint32_t i = 0; i < first->buffer_count; i++) {
        const ash_memory__tenant *tenant = &first->tenants[i];
        uint32_t arena = first->places[i].arena;
        if (arena == ASH_MEMORY_NONE || !shared[arena] || !tenant->root || !tenant->forever || paired[i] ||
            !tenant->size)
            continue;
        status =
            ash_fail(diag, ASH_ERROR_INVALID_ARGUMENT,
                     "buffer %u of the first plan is kept for ever in the arena that is shared, but is "
                     "no buffer's pair: its bytes would look free",
                     i);
        goto done;
    }
done:
    ash_mem_free(a, paired, first->buffer_count, sizeof *paired);
    ash_mem_free(a, shared, first->arena_count, sizeof *shared);
    return status;
}

ash_status ash_memory_share_parameters(const ash_memory_plan *first, const uint32_t *pairs,
                                       ash_memory_buffer *buffers, size_t buffer_count, ash_diag *diag) {
    ASH_NEED(diag, first);
    if (buffer_count) ASH_NEED(diag, pairs, buffers);
    bool any = false;
    for (uint32_t i = 0; i < buffer_count; i++) any |= pairs[i] != ASH_MEMORY_NONE;
    if (!any) return ASH_OK;
    ASH_FAIL_IF(
        first->mode != ASH_MEMORY_ARENA, diag, ASH_ERROR_INVALID_ARGUMENT,
        "the first plan has mode %s, in which offsets do not say where a buffer is: sharing needs mode "
        "arena",
        ash_memory_mode_text(first->mode));
    for (uint32_t i = 0; i < buffer_count; i++)
        if (pairs[i] != ASH_MEMORY_NONE)
            ASH_TRY(check_pair(first, pairs[i], buffers, buffer_count, i, diag));
    ASH_TRY(check_kept(first, pairs, buffer_count, diag));
    for (uint32_t i = 0; i < buffer_count; i++)
        if (pairs[i] != ASH_MEMORY_NONE) buffers[i].pinned = first->places[pairs[i]].offset;
    return ASH_OK;
}
