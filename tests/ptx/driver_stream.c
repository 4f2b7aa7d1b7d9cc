/* SPDX-License-Identifier: MIT */
/* The driver's functions: streams, events, and what is launched on streams. */
#include "driver.h"

static ptx_stream null_streams[16];
static int n_streams; /* ever created: their numbers */

ptx_stream *ptx_stream_of(CUstream handle) {
    if (handle) return ptx_object_is(handle, A_STREAM) ? handle : NULL;
    ptx_stream *s = &null_streams[ptx_current()->device];
    if (!s->blocking) {
        *s = (ptx_stream){.lane = ptx_lane_new(), .blocking = true};
        s->object.device = ptx_current()->device;
    }
    return s;
}

void ptx_streams_reset(void) {
    memset(null_streams, 0, sizeof null_streams);
    n_streams = 0;
}

static void task_after_lane(ptx_task *task, uint32_t lane) {
    ptx_moment end = ptx_lane_end(lane);
    ptx_task_after(task, &end);
    free(end.clock.over);
}

void ptx_stream_issue(ptx_stream *s, ptx_task *task) {
    if (s->capture) {
        ptx_graph_append(s->capture, task);
        return;
    }
    ptx_stream *null = &null_streams[ptx_current()->device];
    if (s == null) {
        for (ptx_object *o = ptx_current()->objects; o; o = o->next)
            if (o->kind == A_STREAM && ((ptx_stream *)o)->blocking)
                task_after_lane(task, ((ptx_stream *)o)->lane);
    } else if (s->blocking && null->blocking) {
        task_after_lane(task, null->lane);
    }
    free(ptx_task_issue(task, s->lane).clock.over);
}

/* --- streams -------------------------------------------------------------------------------------- */

static void stream_destroy(ptx_object *object) {
    ptx_lane_free(((ptx_stream *)object)->lane);
    free(object);
}

static CUresult stream_create(CUstream *handle, unsigned flags) {
    REFUSE_IF(!handle || flags > CU_STREAM_NON_BLOCKING, CUDA_ERROR_INVALID_VALUE);
    ptx_stream *s = ptx_alloc(1, sizeof *s);
    ptx_object_add(&s->object, A_STREAM, stream_destroy);
    s->lane = ptx_lane_new();
    s->number = ++n_streams;
    s->blocking = flags == CU_STREAM_DEFAULT;
    *handle = s;
    return CUDA_SUCCESS;
}

CUresult cuStreamCreate(CUstream *phStream, unsigned Flags) {
    ENTER(cuStreamCreate, NEEDS_CONTEXT);
    return stream_create(phStream, Flags);
}

CUresult cuStreamCreateWithPriority(CUstream *phStream, unsigned flags, int priority) {
    ENTER(cuStreamCreateWithPriority, NEEDS_CONTEXT);
    (void)priority; /* what is urgent may still come late */
    return stream_create(phStream, flags);
}

static CUresult stream_wait(ptx_stream *s) {
    ptx_moment end = ptx_lane_end(s->lane);
    ptx_wait_for(&end);
    free(end.clock.over);
    return ptx_state();
}

/* On hardware the call does not wait for what is in the stream. Here it does, and the host counts as
 * having waited: what it did would have to be remembered for ever. */
CUresult cuStreamDestroy_v2(CUstream hStream) {
    ENTER(cuStreamDestroy_v2, NEEDS_CONTEXT);
    REFUSE_IF(!ptx_object_is(hStream, A_STREAM), CUDA_ERROR_INVALID_HANDLE);
    if (hStream->capture) { /* which nobody gets */
        ptx_capture_note(hStream->mode, -1);
        ptx_object_destroy(hStream->capture);
    }
    CUresult code = stream_wait(hStream);
    ptx_object_destroy(hStream);
    return code;
}

CUresult cuStreamSynchronize(CUstream hStream) {
    ENTER(cuStreamSynchronize, NEEDS_CONTEXT);
    ptx_stream *s = ptx_stream_of(hStream);
    REFUSE_IF(!s, CUDA_ERROR_INVALID_HANDLE);
    return stream_wait(s);
}

/* Whether a moment is reached; who asks again and again gets there. */
static CUresult asked(const ptx_moment *m) {
    ptx_run_one();
    CUresult code = ptx_state();
    if (code) return code;
    if (!ptx_moment_reached(m)) return CUDA_ERROR_NOT_READY;
    ptx_wait_for(m);
    return CUDA_SUCCESS;
}

CUresult cuStreamQuery(CUstream hStream) {
    ENTER(cuStreamQuery, NEEDS_CONTEXT);
    ptx_stream *s = ptx_stream_of(hStream);
    REFUSE_IF(!s, CUDA_ERROR_INVALID_HANDLE);
    ptx_moment end = ptx_lane_end(s->lane);
    CUresult code = asked(&end);
    free(end.clock.over);
    return code;
}

CUresult cuStreamWaitEvent(CUstream hStream, CUevent hEvent, unsigned Flags) {
    ENTER(cuStreamWaitEvent, NEEDS_CONTEXT);
    ptx_stream *s = ptx_stream_of(hStream);
    REFUSE_IF(!s || !ptx_object_is(hEvent, AN_EVENT), CUDA_ERROR_INVALID_HANDLE);
    REFUSE_IF(Flags > 1, CUDA_ERROR_INVALID_VALUE);
    REFUSE_IF(s->capture, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED); /* on hardware it is joined */
    if (!hEvent->recorded) return CUDA_SUCCESS;
    ptx_task *t = ptx_task_new(TASK_WAIT, ptx_current()->device, s->number);
    ptx_task_after(t, &hEvent->moment);
    ptx_stream_issue(s, t);
    ptx_run_some();
    return ptx_state();
}

/* --- captures ------------------------------------------------------------------------------------- */

CUresult cuStreamBeginCapture_v2(CUstream hStream, CUstreamCaptureMode mode) {
    ENTER(cuStreamBeginCapture_v2, NEEDS_CONTEXT);
    ptx_stream *s = ptx_stream_of(hStream);
    REFUSE_IF(!s, CUDA_ERROR_INVALID_HANDLE);
    REFUSE_IF(mode < 0 || mode > CU_STREAM_CAPTURE_MODE_RELAXED, CUDA_ERROR_INVALID_VALUE);
    REFUSE_IF(!hStream || s->capture, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    s->capture = ptx_graph_new();
    s->mode = mode;
    s->thread = ptx_this_thread();
    ptx_capture_note(mode, 1);
    return CUDA_SUCCESS;
}

CUresult cuStreamEndCapture(CUstream hStream, CUgraph *phGraph) {
    ENTER(cuStreamEndCapture, NEEDS_CONTEXT);
    ptx_stream *s = ptx_stream_of(hStream);
    REFUSE_IF(!s || !phGraph, CUDA_ERROR_INVALID_VALUE);
    REFUSE_IF(!s->capture, CUDA_ERROR_STREAM_CAPTURE_UNMATCHED);
    REFUSE_IF(s->mode != CU_STREAM_CAPTURE_MODE_RELAXED && s->thread != ptx_this_thread(),
              CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD);
    *phGraph = s->capture;
    s->capture = NULL;
    ptx_capture_note(s->mode, -1);
    return CUDA_SUCCESS;
}

/* --- events --------------------------------------------------------------------------------------- */

static void event_destroy(ptx_object *object) {
    ptx_event *e = (ptx_event *)object;
    free(e->moment.clock.over);
    free(e->when);
    free(e);
}

CUresult cuEventCreate(CUevent *phEvent, unsigned Flags) {
    ENTER(cuEventCreate, NEEDS_CONTEXT);
    REFUSE_IF(!phEvent || Flags > 7, CUDA_ERROR_INVALID_VALUE);
    ptx_event *e = ptx_alloc(1, sizeof *e);
    ptx_object_add(&e->object, AN_EVENT, event_destroy);
    e->flags = Flags;
    e->when = ptx_alloc(1, sizeof *e->when);
    *phEvent = e;
    return CUDA_SUCCESS;
}

CUresult cuEventDestroy_v2(CUevent hEvent) {
    ENTER(cuEventDestroy_v2, NEEDS_CONTEXT);
    REFUSE_IF(!ptx_object_is(hEvent, AN_EVENT), CUDA_ERROR_INVALID_HANDLE);
    while (hEvent->recorded && !ptx_moment_reached(&hEvent->moment)) ptx_run_one(); /* it writes the time */
    ptx_object_destroy(hEvent);
    return ptx_state();
}

CUresult cuEventRecord(CUevent hEvent, CUstream hStream) {
    ENTER(cuEventRecord, NEEDS_CONTEXT);
    ptx_stream *s = ptx_stream_of(hStream);
    REFUSE_IF(!s || !ptx_object_is(hEvent, AN_EVENT), CUDA_ERROR_INVALID_HANDLE);
    REFUSE_IF(s->capture, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    ptx_task *t = ptx_task_new(TASK_EVENT, ptx_current()->device, s->number);
    t->when = hEvent->when;
    ptx_stream_issue(s, t);
    ptx_moment end = ptx_lane_end(s->lane);
    ptx_moment_copy(&hEvent->moment, &end);
    free(end.clock.over);
    hEvent->recorded = true;
    ptx_run_some();
    return ptx_state();
}

CUresult cuEventSynchronize(CUevent hEvent) {
    ENTER(cuEventSynchronize, NEEDS_CONTEXT);
    REFUSE_IF(!ptx_object_is(hEvent, AN_EVENT), CUDA_ERROR_INVALID_HANDLE);
    if (hEvent->recorded) ptx_wait_for(&hEvent->moment);
    return ptx_state();
}

CUresult cuEventQuery(CUevent hEvent) {
    ENTER(cuEventQuery, NEEDS_CONTEXT);
    REFUSE_IF(!ptx_object_is(hEvent, AN_EVENT), CUDA_ERROR_INVALID_HANDLE);
    return hEvent->recorded ? asked(&hEvent->moment) : CUDA_SUCCESS;
}

CUresult cuEventElapsedTime(float *pMilliseconds, CUevent hStart, CUevent hEnd) {
    ENTER(cuEventElapsedTime, NEEDS_CONTEXT);
    REFUSE_IF(!pMilliseconds, CUDA_ERROR_INVALID_VALUE);
    REFUSE_IF(!ptx_object_is(hStart, AN_EVENT) || !ptx_object_is(hEnd, AN_EVENT),
              CUDA_ERROR_INVALID_HANDLE);
    bool timed =
        !((hStart->flags | hEnd->flags) & CU_EVENT_DISABLE_TIMING) && hStart->recorded && hEnd->recorded;
    REFUSE_IF(!timed, CUDA_ERROR_INVALID_HANDLE);
    REFUSE_IF(!ptx_moment_reached(&hStart->moment) || !ptx_moment_reached(&hEnd->moment),
              CUDA_ERROR_NOT_READY);
    *pMilliseconds = (float)(*hEnd->when - *hStart->when);
    return CUDA_SUCCESS;
}

/* --- launches ------------------------------------------------------------------------------------- */

CUresult cuLaunchKernel(CUfunction f, unsigned gridDimX, unsigned gridDimY, unsigned gridDimZ,
                        unsigned blockDimX, unsigned blockDimY, unsigned blockDimZ, unsigned sharedMemBytes,
                        CUstream hStream, void **kernelParams, void **extra) {
    ENTER(cuLaunchKernel, NEEDS_CONTEXT);
    ptx_stream *s = ptx_stream_of(hStream);
    REFUSE_IF(!s, CUDA_ERROR_INVALID_HANDLE);
    CUDA_KERNEL_NODE_PARAMS p = {.func = f,
                                 .gridDimX = gridDimX,
                                 .gridDimY = gridDimY,
                                 .gridDimZ = gridDimZ,
                                 .blockDimX = blockDimX,
                                 .blockDimY = blockDimY,
                                 .blockDimZ = blockDimZ,
                                 .sharedMemBytes = sharedMemBytes,
                                 .kernelParams = kernelParams,
                                 .extra = extra};
    CUresult why;
    ptx_task *t = ptx_kernel_task(&p, s->number, &why);
    if (!t) return why;
    ptx_stream_issue(s, t);
    ptx_run_some();
    return ptx_state();
}

CUresult cuLaunchHostFunc(CUstream hStream, CUhostFn fn, void *userData) {
    ENTER(cuLaunchHostFunc, NEEDS_CONTEXT);
    ptx_stream *s = ptx_stream_of(hStream);
    REFUSE_IF(!s, CUDA_ERROR_INVALID_HANDLE);
    REFUSE_IF(!fn, CUDA_ERROR_INVALID_VALUE);
    ptx_task *t = ptx_task_new(TASK_HOST, ptx_current()->device, s->number);
    t->function = fn;
    t->user = userData;
    ptx_stream_issue(s, t);
    ptx_run_some();
    return ptx_state();
}

CUresult ptx_launch_work(CUstream hStream, const ptx_work *work) {
    __attribute__((cleanup(ptx_leave))) const CUresult entered = ptx_enter_library();
    if (entered) return entered;
    ptx_stream *s = ptx_stream_of(hStream);
    REFUSE_IF(!s, CUDA_ERROR_INVALID_HANDLE);
    ptx_task *t = ptx_task_new(TASK_WORK, ptx_current()->device, s->number);
    void *arg = ptx_alloc(work->arg_bytes, 1);
    memcpy(arg, work->arg, work->arg_bytes);
    t->work = *work;
    t->work.arg = arg;
    ptx_stream_issue(s, t);
    ptx_run_some();
    return ptx_state();
}
