/* SPDX-License-Identifier: MIT */
/* The memory planner: sizes and lifetimes in, offsets, bounds and a certificate out.
 *
 * A problem is a list of buffers with sizes, alignments and lifetimes. A plan gives each an arena and an
 * offset such that buffers which are ever live together share no byte, and says how good that is: the bytes
 * without sharing, a lower bound that no plan can beat, the bytes of the arena, and whether the packing is
 * proven optimal. The planner knows nothing of tensors or graphs and can be used alone.
 *
 * Lifetimes come in one of two forms:
 *  - intervals [begin, end) of half steps in a total order: an operation i reads during half step 2i and
 *    writes during 2i + 1, so that its output may take the place of an input which it has read completely
 *    before it writes;
 *  - a happens-before relation over n streams, as vector clocks. A clock counts, per stream, the half steps
 *    that are over. `acquire` of a buffer is what is over, for certain, before any access to it begins;
 *    `release` is what must be over before its bytes may pass to another. A may precede B in the same bytes
 *    when release(A) <= acquire(B) in every stream. ashlar/memory_schedule.h makes both forms from
 *    operations, streams, events and accesses.
 *
 * The same problem with the same options gives the same plan, byte for byte, unless a time limit is set. */
#ifndef ASHLAR_MEMORY_H
#define ASHLAR_MEMORY_H

#include <stdbool.h>

#include "context.h"
#include "progress.h"

#ifdef __cplusplus
extern "C" {
#endif

#define ASH_MEMORY_NONE     UINT32_MAX /* no buffer, no arena */
#define ASH_MEMORY_UNPINNED UINT64_MAX /* the planner chooses the offset */

/* What a buffer is at the boundary of the program. The planner widens the lifetime accordingly: parameters,
 * constants and state are live for ever, inputs from the beginning (and at the beginning, if nothing
 * touches them), outputs until the end (if anything touches them). Where such a buffer lies in a root, the
 * root is live with it. */
typedef enum ash_memory_kind {
    ASH_MEMORY_INTERMEDIATE,
    ASH_MEMORY_PARAMETER,
    ASH_MEMORY_INPUT,
    ASH_MEMORY_CONSTANT,
    ASH_MEMORY_OUTPUT,
    ASH_MEMORY_STATE, /* kept from one run to the next, and written by operations */
    ASH_MEMORY_KIND_COUNT
} ash_memory_kind;

/* A logical buffer. A zeroed one is an intermediate of 0 bytes; set `root` and `pinned` with
 * ash_memory_buffer_init. */
typedef struct ash_memory_buffer {
    uint64_t size;        /* bytes; may be 0 */
    uint64_t align;       /* bytes, a power of two; 0 is 1 */
    int64_t begin, end;   /* half steps, half-open, begin <= end; not read when the problem has clocks */
    uint64_t pinned;      /* bytes from the start of the arena, or ASH_MEMORY_UNPINNED */
    uint64_t root_offset; /* bytes from the start of the root, a multiple of `align`; 0 without a root */
    uint32_t root;        /* the buffer in whose bytes this one lies (view, in-place result, part of a
                             concatenation), which has no root itself; ASH_MEMORY_NONE: bytes of its own */
    uint32_t lane;        /* device and copy lane as a small number: one arena each */
    uint64_t key; /* mode remap: buffers share bytes only with those of the same key (device, dtype) */
    ash_memory_kind kind;
    bool output_ancestor; /* some output depends on it: see pin_output_ancestors */
    const char *name;     /* for reports and errors, or NULL */
} ash_memory_buffer;

/* Bytes of an arena that the planner must leave alone during [begin, end); always, when the problem has
 * clocks. */
typedef struct ash_memory_hole {
    uint32_t lane;
    uint64_t offset, size; /* bytes */
    int64_t begin, end;    /* half steps */
} ash_memory_hole;

/* Everything is borrowed from the caller for the time of the call. */
typedef struct ash_memory_problem {
    const ash_memory_buffer *buffers;
    size_t buffer_count;          /* with the holes at most 2^30 */
    const ash_memory_hole *holes; /* mode arena only */
    size_t hole_count;
    unsigned streams;       /* 0: lifetimes are intervals; otherwise the length of each clock */
    const int64_t *acquire; /* buffer_count clocks, one after the other, in half steps from 0 to 2^48 */
    const int64_t
        *release; /* the same; a buffer whose release is <= its acquire everywhere is never live */
} ash_memory_problem;

/* An unpinned, rootless intermediate of `size` bytes. */
ASH_API ash_memory_buffer ash_memory_buffer_init(uint64_t size, uint64_t align, int64_t begin, int64_t end);

typedef enum ash_memory_mode {
    ASH_MEMORY_ARENA,    /* one arena per lane */
    ASH_MEMORY_REMAP,    /* classes with disjoint lifetimes, equal key and equal rounded size share an
                            allocation */
    ASH_MEMORY_DISABLED, /* every alias class keeps an allocation of its own */
    ASH_MEMORY_MODE_COUNT
} ash_memory_mode;

typedef enum ash_memory_strategy {
    ASH_MEMORY_AUTO, /* the smallest arena that the budget finds: tlsf, search, best fit, until one is at
                        the bound */
    ASH_MEMORY_TLSF, /* online two-level segregated fit, in schedule order */
    ASH_MEMORY_BEST_FIT, /* decreasing size, smallest gap during the lifetime */
    ASH_MEMORY_SEARCH,   /* outward from the load, many orders, repair, then search with proof */
    ASH_MEMORY_STRATEGY_COUNT
} ash_memory_strategy;

/* Zeroed options are the defaults: everything is allocated, mode arena, strategy auto, only outputs are
 * pinned. */
typedef struct ash_memory_options {
    bool omit_params; /* parameters get no bytes from the plan: they are left out, as their views are. What
                            is pinned has its bytes already and is never left out: the plan keeps them free
                            for it */
    bool omit_inputs; /* the same for inputs */
    bool omit_constants; /* the same for constants */
    bool arena_no_reuse; /* no two that are ever live share bytes, whatever their lifetimes; in all modes */
    bool pin_output_ancestors; /* what has `output_ancestor` set stays live until the end: never needed,
                                  because lifetimes follow the order of the execution mode, and there for
                                  comparison */
    ash_memory_mode mode;
    ash_memory_strategy strategy; /* mode arena only */
    uint64_t node_budget;         /* search steps over all arenas; 0: the default, about a second. With a
                                     capacity up to four times as many are spent */
    uint64_t
        time_limit_ns; /* nanoseconds for the search, or 0: none. With one, plans may differ between runs */
    uint64_t capacity; /* bytes that each arena may take, or 0: no limit; one that holds nothing but states,
                     which share with nobody, may take more. The search ends at the first packing
                     that fits; when none is found the call fails and names the smallest size found,
                     which is never above what a call finds in as many steps with another capacity,
                     or without one */
    ash_progress progress; /* of the search: told about every millisecond */
    uint64_t reserved[8];  /* 0: room for fields to come, since other structs contain this one */
} ash_memory_options;

/* The defaults: a zeroed struct. */
ASH_API ash_memory_options ash_memory_options_inference(void);
/* The backward half of a training pair: as above, but this plan has no bytes of its own for parameters.
 * Those that ash_memory_share_parameters has pinned keep the bytes that the forward plan gave them; the
 * others are left out. */
ASH_API ash_memory_options ash_memory_options_backward_activations_only(void);
/* Overrides fields from the environment: ASHLAR_ARENA_NO_REUSE, ASHLAR_PIN_OUTPUT_ANCESTORS,
 * ASHLAR_ALLOCATE_PARAMS, ASHLAR_ALLOCATE_INPUTS, ASHLAR_ALLOCATE_CONSTANTS (each 0 or 1),
 * ASHLAR_MEMORY_MODE (disabled, remap, arena), ASHLAR_MEMORY_STRATEGY (auto, tlsf, best_fit, search),
 * ASHLAR_MEMORY_NODES, ASHLAR_MEMORY_TIME_MS (numbers). Nothing else in the planner reads the environment.
 * Any other value is an invalid argument, and `options` is as it was. */
ASH_API ash_status ash_memory_options_from_environment(ash_memory_options *options, ash_diag *diag);

/* "arena", "best_fit", ...; "unknown" for a value outside the enumeration. */
ASH_API const char *ash_memory_mode_text(ash_memory_mode mode);
ASH_API const char *ash_memory_strategy_text(ash_memory_strategy strategy);
ASH_API const char *ash_memory_kind_text(ash_memory_kind kind);

typedef struct ash_memory_plan ash_memory_plan;

/* Why a buffer has no place in the plan. */
typedef enum ash_memory_reason {
    ASH_MEMORY_PLACED,
    ASH_MEMORY_LEFT_PARAMETER, /* omit_params is on */
    ASH_MEMORY_LEFT_INPUT,     /* omit_inputs is on */
    ASH_MEMORY_LEFT_CONSTANT,  /* omit_constants is on */
    ASH_MEMORY_REASON_COUNT
} ash_memory_reason;

typedef struct ash_memory_place {
    uint64_t offset;          /* bytes from the start of the arena */
    uint32_t arena;           /* index, or ASH_MEMORY_NONE */
    ash_memory_reason reason; /* ASH_MEMORY_PLACED when there is an arena */
} ash_memory_place;

typedef enum ash_memory_certificate {
    ASH_MEMORY_GAP,               /* between lower_bound and size nothing is known */
    ASH_MEMORY_OPTIMAL_BY_LOAD,   /* size is the peak of live bytes */
    ASH_MEMORY_OPTIMAL_BY_SEARCH, /* a complete search found that nothing smaller exists */
    ASH_MEMORY_CERTIFICATE_COUNT
} ash_memory_certificate;

/* One allocation that the program has to make. */
typedef struct ash_memory_arena {
    uint32_t lane;
    uint64_t key;         /* mode remap: of its tenants; otherwise 0 */
    uint64_t size;        /* bytes to allocate: `used`, rounded up to the least alignment of its tenants */
    uint64_t used;        /* bytes up to the end of the highest tenant */
    uint64_t align;       /* bytes: alignment that its base must have, at least 1 */
    uint64_t load;        /* bytes: the peak of live bytes, with sizes rounded up to that least alignment */
    uint64_t lower_bound; /* bytes: no plan of these lifetimes has a smaller `size`; the load, or what the
                             search proved */
    uint64_t unshared;    /* bytes that its tenants would take one after the other */
    int64_t moment; /* half step at which the bound is reached; with clocks, the buffer at whose birth */
    size_t buffers; /* alias classes in it */
    ash_memory_certificate certificate;
    ash_memory_strategy found_by; /* which strategy gave this packing */
    uint64_t nodes;               /* search steps that it took */
} ash_memory_arena;

/* Sums over the arenas; in the modes disabled and remap the bound is that of one arena per lane. */
typedef struct ash_memory_summary {
    uint64_t size, lower_bound, unshared; /* bytes */
    size_t arenas, placed, left_out;      /* counts; of arenas and of buffers */
    ash_memory_certificate certificate;   /* the weakest of the arenas' */
    uint64_t reserved[4];                 /* 0: room for fields to come */
} ash_memory_summary;

/* Plans, and runs the checker over the result. `options` may be NULL for inference. Fails with
 * INVALID_ARGUMENT or OUT_OF_RANGE for a problem that contradicts itself (the diagnostic names the buffer),
 * with BUDGET when an arena exceeds the capacity. The caller destroys *out before the context. */
ASH_API ash_status ash_memory_plan_create(ash_context *context, const ash_memory_problem *problem,
                                          const ash_memory_options *options, ash_memory_plan **out,
                                          ash_diag *diag);
/* NULL is allowed. */
ASH_API void ash_memory_plan_destroy(ash_memory_plan *plan);

/* Borrowed from the plan: one place per buffer, and the arenas. */
ASH_API const ash_memory_place *ash_memory_plan_places(const ash_memory_plan *plan, size_t *count);
ASH_API const ash_memory_arena *ash_memory_plan_arenas(const ash_memory_plan *plan, size_t *count);
/* The roots that are live at the moment of the arena's bound, in increasing index; borrowed. `arena` past
 * the end gives NULL and 0. In the modes disabled and remap it is the one tenant that is largest. */
ASH_API const uint32_t *ash_memory_plan_moment(const ash_memory_plan *plan, size_t arena, size_t *count);
ASH_API ash_memory_summary ash_memory_plan_summary(const ash_memory_plan *plan);

/* What the checker looked at. */
typedef struct ash_memory_check_report {
    uint64_t buffers;     /* buffers with a place */
    uint64_t left_out;    /* buffers without one */
    uint64_t aliases;     /* of these, that lie in a root */
    uint64_t events;      /* rectangles of bytes and time that were swept */
    uint64_t comparisons; /* clock comparisons against the bytes' former tenants */
    uint32_t clash[2];    /* the roots that share bytes when they must not, if that is the defect;
                             ASH_MEMORY_NONE stands for a hole, and twice for no clash */
    uint64_t reserved[4]; /* 0: room for fields to come */
} ash_memory_check_report;

/* Proves, for places that anyone made, that no two alias classes that are ever live together share a byte,
 * that every place is aligned and inside its arena and its base's alignment, that aliases lie at their
 * offsets in their roots, that pinned buffers are where they must be and that holes are free. Shares no
 * code with the planners; takes n log n. Reads `size`, `lane` and `align` of the arenas only. Fails with
 * INTERNAL and names the first defect. `report` may be NULL; it is filled also on failure. */
ASH_API ash_status ash_memory_check(ash_context *context, const ash_memory_problem *problem,
                                    const ash_memory_place *places, const ash_memory_arena *arenas,
                                    size_t arena_count, ash_memory_check_report *report, ash_diag *diag);

#ifdef __cplusplus
}
#endif
#endif
