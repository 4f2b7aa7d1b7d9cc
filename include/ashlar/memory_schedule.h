/* SPDX-License-Identifier: MIT */
/* From a schedule to lifetimes: operations on streams, events between them, and the bytes that each reads
 * and writes.
 *
 * One access record feeds everything: dependences, lifetimes, stream clocks and the replay that checks a
 * plan. Operations are listed in the order in which they are issued; those of one stream run in that order,
 * and one that waits for another begins when that one is over. With one stream, operation i takes the half
 * steps 2i (it reads) and 2i + 1 (it writes). */
#ifndef ASHLAR_MEMORY_SCHEDULE_H
#define ASHLAR_MEMORY_SCHEDULE_H

#include "memory.h"

#ifdef __cplusplus
extern "C" {
#endif

#define ASH_MEMORY_WHOLE UINT64_MAX /* an access to all bytes of the buffer */

typedef enum ash_memory_access_kind {
    ASH_MEMORY_READ,       /* until the operation ends */
    ASH_MEMORY_READ_EARLY, /* over before the operation writes anything: what it writes may lie in the same
                              bytes */
    ASH_MEMORY_WRITE,
    ASH_MEMORY_SCRATCH, /* written and read within the operation */
    ASH_MEMORY_ACCESS_KIND_COUNT
} ash_memory_access_kind;

/* One operation touches one interval of one buffer. An operation that works in place reads a buffer and
 * writes another of the same alias class. */
typedef struct ash_memory_access {
    uint32_t op;
    uint32_t buffer;
    ash_memory_access_kind kind;
    uint64_t offset, size; /* bytes from the start of the buffer; size may be ASH_MEMORY_WHOLE */
} ash_memory_access;

/* An event: `op` begins only when the earlier operation `after` is over. */
typedef struct ash_memory_wait {
    uint32_t op, after;
} ash_memory_wait;

/* Everything is borrowed for the time of the call. */
typedef struct ash_memory_schedule {
    size_t op_count;            /* at most 2^30 */
    unsigned streams;           /* 0 and 1: all on one */
    const uint32_t *op_streams; /* per operation; NULL: all on stream 0 */
    const ash_memory_wait *waits;
    size_t wait_count;
    const ash_memory_access *accesses; /* in any order */
    size_t access_count;
} ash_memory_schedule;

/* Fills `begin` and `end` of the buffers for a schedule of one stream; one that nothing touches is never
 * live (0, 0). */
ASH_API ash_status ash_memory_schedule_lifetimes(const ash_memory_schedule *schedule,
                                                 ash_memory_buffer *buffers, size_t buffer_count,
                                                 ash_diag *diag);

/* Fills acquire and release, `buffer_count` clocks of `streams` (at least 1) numbers each. */
ASH_API ash_status ash_memory_schedule_clocks(ash_context *context, const ash_memory_schedule *schedule,
                                              size_t buffer_count, int64_t *acquire, int64_t *release,
                                              ash_diag *diag);

/* Sets `output_ancestor` of every buffer that some output depends on, by way of operations. */
ASH_API ash_status ash_memory_schedule_ancestors(ash_context *context, const ash_memory_schedule *schedule,
                                                 ash_memory_buffer *buffers, size_t buffer_count,
                                                 ash_diag *diag);

/* What the replay looked at. */
typedef struct ash_memory_replay_report {
    uint64_t operations, accesses;
    uint64_t pieces;      /* runs of bytes with one history that the accesses met */
    uint64_t comparisons; /* pairs of accesses to the same bytes that were found in order */
    uint64_t reserved[4]; /* 0: room for fields to come */
} ash_memory_replay_report;

/* Replays the schedule over the places and proves that of any two accesses to the same byte of which one
 * writes, one happens before the other; that every read sees what was written to its own alias class; and
 * that outputs, parameters, constants and state are whole at the end. Knows nothing of lifetimes: it judges
 * the bytes. Parameters, constants, inputs and state count as written before the start; buffers without a
 * place are passed over. Fails with INTERNAL and names the operations. */
ASH_API ash_status ash_memory_schedule_check(ash_context *context, const ash_memory_schedule *schedule,
                                             const ash_memory_buffer *buffers, size_t buffer_count,
                                             const ash_memory_place *places, size_t arena_count,
                                             ash_memory_replay_report *report, ash_diag *diag);

/* How an order search went. Peaks count the bytes of roots, with parameters and constants, that are live at
 * once. */
typedef struct ash_memory_order_report {
    size_t size;               /* bytes that the caller knows: ASH_INIT */
    uint64_t given_peak, peak; /* bytes: of the order of issue, and of the one found */
    uint64_t states;           /* sets of operations done that were looked at */
    bool exact;                /* no order of these dependences has a lower peak */
    size_t segments;           /* parts between operations that everything passes through */
    size_t moved;              /* operations that are not where they were */
} ash_memory_order_report;

/* Looks for an order of the operations (of one stream) with a lower peak of live bytes that keeps every
 * dependence between accesses to overlapping bytes of an alias class. order[i] is the operation to run as
 * number i. Never worse than the order of issue, and that order wherever it does not stand at the peak.
 * `width` is the number of sets kept per step, 0: 256; a part in which more never come up is solved
 * exactly. `progress` may be NULL; it is told of operations, at stage "order". */
ASH_API ash_status ash_memory_order_search(ash_context *context, const ash_memory_schedule *schedule,
                                           const ash_memory_buffer *buffers, size_t buffer_count,
                                           size_t width, const ash_progress *progress, uint32_t *order,
                                           ash_memory_order_report *report, ash_diag *diag);

/* Training pairs: gives the parameters of a second problem the places that the first plan gave them.
 * pairs[i] is the buffer of the first problem whose bytes buffer i of the second shares, or
 * ASH_MEMORY_NONE. Paired buffers are pinned there: the second plan, whatever its options leave out, lays
 * its activations around them in the first plan's arena, and the two share one allocation of the larger
 * size. Activations that the first pass saves can be paired, too: outputs there, inputs here.
 *
 * INVALID_ARGUMENT, and no buffer has changed, when that would not be sound: the first plan's mode is not
 * arena, or it has left the pair out; lane, size or alignment differ; the first plan does not keep the
 * pair's bytes to its end; the second problem's buffer is not there from the start or, where the pair is
 * kept for ever (parameter, constant, state), not for ever; or something that the first plan keeps for ever
 * in an arena that is shared has no pair, so that its bytes would look free. */
ASH_API ash_status ash_memory_share_parameters(const ash_memory_plan *first, const uint32_t *pairs,
                                               ash_memory_buffer *buffers, size_t buffer_count,
                                               ash_diag *diag);

#ifdef __cplusplus
}
#endif
#endif
