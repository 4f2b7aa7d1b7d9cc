/* SPDX-License-Identifier: MIT */
/* What is looked up in a plan: positions and buffers, by buffer, by value and by name. Made once, shared by
 * replicas. */
#ifndef ASH_PLAN_INDEX_H
#define ASH_PLAN_INDEX_H

#include "ashlar/device.h"
#include "base/map.h"
#include "layout.h"

typedef enum ash_named {
    ASH_NAMED_INPUT,
    ASH_NAMED_OUTPUT,
    ASH_NAMED_PARAMETER,
    ASH_NAMED_STATE
} ash_named;

enum { ASH_NAMED_COUNT = ASH_NAMED_STATE + 1, ASH_NO_POSITION = UINT32_MAX };

typedef struct ash_plan_index {
    const ash_allocator *allocator; /* NULL: nothing is made */
    size_t buffers, outputs;        /* counts */
    uint32_t *input, *output;       /* per buffer: position of the input or first output that it is */
    uint32_t *parameters;           /* the parameters' buffers, in the program's order */
    size_t n_parameters;
    uint64_t *saved; /* per output, and one more for the end: where its bytes are in the block that keeps
                        outputs while the arenas are released */
    ash_map values;  /* of the caller's graph to the buffer that holds each */
    ash_strmap names[ASH_NAMED_COUNT]; /* to positions */
} ash_plan_index;

ash_status ash_plan_index__create(const ash_allocator *allocator, const ash_program *program,
                                  const ash_layout *layout, ash_plan_index *out, ash_diag *diag);
void ash_plan_index__free(ash_plan_index *index); /* a zeroed one is allowed */
/* ASH_ERROR_NOT_FOUND says what has not got the name. */
ash_status ash_plan_index__find(const ash_plan_index *index, ash_named kind, const char *name, size_t *out,
                                ash_diag *diag);

#endif
