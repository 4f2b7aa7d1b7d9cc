/* SPDX-License-Identifier: MIT */
/* How streams of GPUs and ways to them follow each other: by the driver's events, which order streams of
 * several GPUs as those of one, so that the host waits for none of them. */
#include "cuda.h"

ash_status ash_cuda_line__make(cuda_line *line, const ash_allocator *a, uint32_t events, ash_diag *diag) {
    const cu_driver *f = &line->cuda->driver;
    line->events = ash_mem_calloc(a, events, sizeof *line->events);
    if (!line->events) return ASH_NO_MEMORY(diag);
    for (uint32_t i = 0; i < events; i++)
        ASH_TRY(ash_cuda__check(line->cuda, f->event_create(&line->events[i], CU_DISABLE_TIMING),
                                "an event", diag));
    return ASH_OK;
}

void ash_cuda_line__free(cuda_line *line, const ash_allocator *a, uint32_t events) {
    for (uint32_t i = 0; line->events && i < events; i++)
        if (line->events[i]) line->cuda->driver.event_destroy(line->events[i]);
    ash_mem_free(a, line->events, events, sizeof *line->events);
    line->events = NULL;
}

void ash_cuda_line__fail(cuda_line *line, ash_status status, const ash_diag *why) {
    if (line->failed != ASH_OK || status == ASH_OK) return;
    line->failed = (int)status;
    line->why = *why;
}

static cuda_line *of(ash_streams *streams) {
    return (cuda_line *)streams;
}

static ash_status record(ash_streams *streams, uint32_t event, ash_diag *diag) {
    cuda_line *line = of(streams);
    cuda_device *d = line->cuda;
    if (line->failed != ASH_OK) {
        if (diag) *diag = line->why;
        return (ash_status)line->failed;
    }
    ASH_TRY(ash_cuda__enter(d, diag));
    int result = d->driver.event_record(line->events[event], line->end);
    ash_cuda__leave(d);
    return ash_cuda__check(d, result, "an event", diag);
}

static ash_status follow(ash_streams *streams, const ash_streams *others, uint32_t event, ash_diag *diag) {
    const cuda_line *line = of(streams), *other = (const cuda_line *)others;
    cuda_device *d = line->other;
    ASH_TRY(ash_cuda__enter(d, diag));
    int result = d->driver.stream_wait(line->begin, other->events[event], 0);
    ash_cuda__leave(d);
    return ash_cuda__check(d, result, "a wait", diag);
}

static ash_status happened(const ash_streams *streams, uint32_t event, bool *out, ash_diag *diag) {
    const cuda_line *line = (const cuda_line *)streams;
    cuda_device *d = line->cuda;
    *out = false;
    ASH_TRY(ash_cuda__enter(d, diag));
    int result = d->driver.event_query(line->events[event]);
    ash_cuda__leave(d);
    if (result == CU_NOT_READY) return ASH_OK;
    *out = true;
    return ash_cuda__check(d, result, "the GPU", diag);
}

const ash_stream_ahead ash_cuda__ahead = {record, follow, happened};
