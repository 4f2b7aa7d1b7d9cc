/* SPDX-License-Identifier: MIT */
/* What the driver's functions share: the lock and the checks at their beginning, handles, contexts. */
#ifndef PTX_DRIVER_H
#define PTX_DRIVER_H

#include <stdlib.h>

#include "queue.h"

typedef enum ptx_call {
#define FUNCTION(name, base, version, params) CALL_##name,
#include "functions.def"
#undef FUNCTION
    N_CALLS
} ptx_call;

typedef enum ptx_needs { NEEDS_NOTHING, NEEDS_INIT, NEEDS_CONTEXT } ptx_needs;

/* Takes the lock, counts the call, and says why it cannot be done. */
CUresult ptx_enter(ptx_call call, ptx_needs needs);
void ptx_leave(const CUresult *entered);
/* The same for a library: no call of the driver's. */
CUresult ptx_enter_library(void);

/* The first line of every function of the driver. */
#define ENTER(function, needs)                                                                             \
    __attribute__((cleanup(ptx_leave))) const CUresult entered_ = ptx_enter(CALL_##function, needs);       \
    if (entered_ || ptx_is_left_out(#function)) return entered_
#define REFUSE_IF(condition, code)                                                                         \
    if (condition) return code

/* Handles are objects in one list: what is not in it is no handle. */
typedef enum ptx_object_kind { A_MODULE, A_LINK, A_STREAM, AN_EVENT, A_GRAPH, AN_EXEC } ptx_object_kind;
typedef struct ptx_object {
    ptx_object_kind kind;
    int device;
    struct ptx_object *next;
    void (*destroy)(struct ptx_object *object);
} ptx_object;
void ptx_object_add(ptx_object *object, ptx_object_kind kind, void (*destroy)(ptx_object *object));
bool ptx_object_is(const void *handle, ptx_object_kind kind);
void ptx_object_destroy(void *handle);

typedef struct CUctx_st {
    int device, retained;
    unsigned flags, peers; /* peers: a bit for each device whose memory it has been granted */
    CUresult lost;         /* CUDA_SUCCESS: it is not */
    ptx_object *objects;
} ptx_context;
ptx_context *ptx_current(void); /* NULL: none */
/* What the calls that waited for commands answer: whether the context is lost now. */
CUresult ptx_state(void);

typedef struct CUmod_st {
    ptx_object object;
    ptx_module *module;
} ptx_module_handle;

typedef struct CUstream_st {
    ptx_object object;
    uint32_t lane;
    int number;
    bool blocking;
    CUgraph capture; /* what is issued goes there instead; NULL: it runs */
    CUstreamCaptureMode mode;
    const void *thread; /* that captures */
} ptx_stream;
/* The stream of a handle, the null stream of the context for NULL; NULL when it is none. */
ptx_stream *ptx_stream_of(CUstream handle);
void ptx_streams_reset(void);
/* Puts a command into a stream; the null stream and those that are not NON_BLOCKING wait for each other. */
void ptx_stream_issue(ptx_stream *stream, ptx_task *task);

typedef struct CUevent_st {
    ptx_object object;
    unsigned flags;
    ptx_moment moment; /* of the last record */
    bool recorded;
    double *when; /* kept by the event until it is destroyed, and by the command until it ran */
} ptx_event;

/* Captures that forbid calls which may wait or allocate: to the thread, and in mode GLOBAL to all. */
void ptx_capture_note(CUstreamCaptureMode mode, int more);
const void *ptx_this_thread(void);
/* A graph for a capture, and a node behind its last one; the command is the graph's. */
CUgraph ptx_graph_new(void);
void ptx_graph_append(CUgraph graph, ptx_task *task);

/* A copy between any two places. What the caller may change at once is copied now. */
ptx_task *ptx_copy_task(uint64_t to, uint64_t from, uint64_t bytes, int stream, CUresult *why);
bool ptx_is_pageable(uint64_t address);
/* A launch with its parameters copied; NULL and *why when it cannot be. */
ptx_task *ptx_kernel_task(const CUDA_KERNEL_NODE_PARAMS *params, int stream, CUresult *why);

#endif
