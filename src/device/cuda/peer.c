/* SPDX-License-Identifier: MIT */
/* The way of copies from one GPU to another: streams of its own, so that what both do meanwhile goes on.
 *
 *     peers       the driver copies from memory to memory, by the stream `in`
 *     otherwise   out ─→ staging 0 ─→ in        two pinned buffers in turn: while one is filled by the
 *                     ─→ staging 1 ─→           one GPU, the other is emptied by the other one
 *
 * Who are peers the driver says, and access is enabled for the receiver's context. A copy is over when the
 * call returns. */
#include "cuda.h"

typedef struct cuda_peer {
    ash_peer base;
    const ash_allocator *allocator;
    cuda_device *to, *from;
    cu_stream in; /* of the receiver */
    /* where they are no peers */
    cu_stream out; /* of the sender */
    void *staging[2];
    cu_event filled[2], emptied[2]; /* on `out`, on `in` */
    uint64_t room;                  /* bytes of each */
} cuda_peer;

static cuda_peer *of(ash_peer *peer) {
    return (cuda_peer *)peer;
}

/* --- life -------------------------------------------------------------------------------------------- */

/* Within the receiver's context. */
static ash_status enable(cuda_peer *p, ash_diag *diag) {
    const cu_driver *f = &p->to->driver;
    int can = 0, result;
    ASH_TRY(ash_cuda__check(p->to, f->peer_can(&can, p->to->device, p->from->device), "peers", diag));
    if (!can) return ASH_OK;
    result = f->peer_enable(p->from->context, 0);
    if (result == CU_PEER_UNSUPPORTED || result == CU_TOO_MANY_PEERS) return ASH_OK;
    if (result != CU_PEER_ENABLED) ASH_TRY(ash_cuda__check(p->to, result, "access to a peer", diag));
    p->base.direct = true;
    return ASH_OK;
}

static ash_status make_end(cuda_device *d, cu_stream *stream, cu_event *events, bool staged,
                           ash_diag *diag) {
    const cu_driver *f = &d->driver;
    ASH_TRY(ash_cuda__check(d, f->stream_create(stream, CU_NON_BLOCKING), "a stream", diag));
    for (int i = 0; i < 2 && staged; i++)
        ASH_TRY(ash_cuda__check(d, f->event_create(&events[i], CU_DISABLE_TIMING), "an event", diag));
    return ASH_OK;
}

static ash_status make_sender(cuda_peer *p, ash_diag *diag) {
    const cu_driver *f = &p->from->driver;
    ASH_TRY(make_end(p->from, &p->out, p->filled, true, diag));
    for (int i = 0; i < 2; i++)
        ASH_TRY(ash_cuda__check(p->from, f->allocate_host(&p->staging[i], p->room), "pinned memory", diag));
    return ASH_OK;
}

static ash_status make(cuda_peer *p, ash_diag *diag) {
    ASH_TRY(ash_cuda__enter(p->to, diag));
    ash_status status = enable(p, diag);
    if (status == ASH_OK) status = make_end(p->to, &p->in, p->emptied, !p->base.direct, diag);
    ash_cuda__leave(p->to);
    if (status != ASH_OK || p->base.direct) return status;
    ASH_TRY(ash_cuda__enter(p->from, diag));
    status = make_sender(p, diag);
    ash_cuda__leave(p->from);
    return status;
}

static void free_end(cuda_device *d, cu_stream stream, const cu_event *events) {
    bool entered = ash_cuda__enter_last(d);
    for (int i = 0; i < 2; i++)
        if (events[i]) d->driver.event_destroy(events[i]);
    if (stream) d->driver.stream_destroy(stream);
    if (entered) ash_cuda__leave(d);
}

void ash_cuda__disconnect(ash_peer *peer) {
    cuda_peer *p = of(peer);
    free_end(p->to, p->in, p->emptied);
    free_end(p->from, p->out, p->filled);
    bool entered = ash_cuda__enter_last(p->from);
    for (int i = 0; i < 2; i++)
        if (p->staging[i]) p->from->driver.release_host(p->staging[i]);
    if (entered) ash_cuda__leave(p->from);
    ash_mem_free(p->allocator, p, 1, sizeof *p);
}

ash_status ash_cuda__connect(ash_device *to, ash_device *from, uint64_t most, ash_peer **out,
                             ash_diag *diag) {
    const ash_allocator *a = ash_device__allocator(to);
    cuda_peer *p = ash_mem_calloc(a, 1, sizeof *p);
    if (!p) return ASH_NO_MEMORY(diag);
    *p = (cuda_peer){.allocator = a, .to = ash_cuda__of(to), .from = ash_cuda__of(from)};
    p->room = ASH_MAX(ASH_MIN(most, (uint64_t)CUDA_STAGING_MOST), 1u);
    ash_status status = make(p, diag);
    if (status == ASH_OK)
        *out = &p->base;
    else
        ash_cuda__disconnect(&p->base);
    return status;
}

/* --- copies ------------------------------------------------------------------------------------------ */

static ash_status carry_directly(cuda_peer *p, ash_address to, ash_address from, uint64_t size,
                                 ash_diag *diag) {
    const cu_driver *f = &p->to->driver;
    ASH_TRY(ash_cuda__enter(p->to, diag));
    int result = f->copy_peer(to, p->to->context, from, p->from->context, size, p->in);
    if (result == CU_OK) result = ash_cuda__wait(p->to, p->in);
    ash_cuda__leave(p->to);
    return ash_cuda__check(p->to, result, "a copy between GPUs", diag);
}

/* A piece to its buffer, once that is empty. */
static ash_status fill_buffer(cuda_peer *p, int i, bool used, ash_address from, uint64_t bytes,
                              ash_diag *diag) {
    const cu_driver *f = &p->from->driver;
    int result = CU_OK;
    ASH_TRY(ash_cuda__enter(p->from, diag));
    if (used) result = f->stream_wait(p->out, p->emptied[i], 0);
    if (result == CU_OK) result = f->copy_out(p->staging[i], from, bytes, p->out);
    if (result == CU_OK) result = f->event_record(p->filled[i], p->out);
    ash_cuda__leave(p->from);
    return ash_cuda__check(p->from, result, "a copy from the GPU", diag);
}

static ash_status empty_buffer(cuda_peer *p, int i, ash_address to, uint64_t bytes, ash_diag *diag) {
    const cu_driver *f = &p->to->driver;
    ASH_TRY(ash_cuda__enter(p->to, diag));
    int result = f->stream_wait(p->in, p->filled[i], 0);
    if (result == CU_OK) result = f->copy_in(to, p->staging[i], bytes, p->in);
    if (result == CU_OK) result = f->event_record(p->emptied[i], p->in);
    ash_cuda__leave(p->to);
    return ash_cuda__check(p->to, result, "a copy to the GPU", diag);
}

/* Also after a failure: the buffers are not touched any more. */
static ash_status wait(cuda_device *d, cu_stream stream, ash_diag *diag) {
    bool entered;
    int result = ash_cuda__enter_to_wait(d, &entered), end = entered ? ash_cuda__wait(d, stream) : result;
    if (entered) ash_cuda__leave(d);
    if (result == CU_OK) result = end;
    return ash_cuda__check(d, result, "the GPU", diag);
}

static ash_status carry_staged(cuda_peer *p, ash_address to, ash_address from, uint64_t size,
                               ash_diag *diag) {
    ash_status status = ASH_OK;
    for (uint64_t at = 0, bytes, turn = 0; at < size && status == ASH_OK; at += bytes, turn++) {
        bytes = ASH_MIN(size - at, p->room);
        status = fill_buffer(p, turn % 2, turn >= 2, from + at, bytes, diag);
        if (status == ASH_OK) status = empty_buffer(p, turn % 2, to + at, bytes, diag);
    }
    ash_diag own;
    ash_status out = wait(p->from, p->out, &own), in = wait(p->to, p->in, out == ASH_OK ? &own : NULL);
    if (status != ASH_OK || (out == ASH_OK && in == ASH_OK)) return status;
    if (diag) *diag = own;
    return out != ASH_OK ? out : in;
}

ash_status ash_cuda__carry(ash_peer *peer, ash_address to, ash_address from, uint64_t size,
                           ash_diag *diag) {
    return peer->direct ? carry_directly(of(peer), to, from, size, diag)
                        : carry_staged(of(peer), to, from, size, diag);
}
