/* SPDX-License-Identifier: MIT */
/* The way of copies from one GPU to another, or between one and memory of the host: streams of its own, so
 * that what both do meanwhile goes on, and nobody waits for a copy when it is issued.
 *
 *     peers       the driver copies from memory to memory, by the stream `in`
 *     otherwise   out ─→ staging 0 ─→ in        two pinned buffers in turn: while one is filled by the
 *                     ─→ staging 1 ─→           one side, the other is emptied by the other one
 *
 * Who are peers the driver says, and access is enabled for the receiver's context. Where a side is the
 * host, what fills or empties a buffer is a function on the driver's thread, and both streams are the
 * GPU's. */
#include "base/clock.h"
#include "cuda.h"

/* A copy that has been issued. */
typedef struct cuda_copy {
    struct cuda_peer *peer;
    ash_timing *timing; /* or NULL */
    /* of the side that is the host, if one is: what is left to do, and by which buffer */
    char *host;
    uint64_t left, turn;
} cuda_copy;

typedef struct cuda_peer {
    cuda_line line; /* from `out`, where there is staging, to `in` */
    const ash_allocator *allocator;
    cuda_device *to, *from; /* with the streams: where a side is the host, the other one's */
    bool to_host, from_host;
    cu_stream in;
    /* where they are no peers */
    cu_stream out;
    void *staging[2];
    cu_event filled[2], emptied[2]; /* on `out`, on `in` */
    uint64_t room;                  /* bytes of each */
    uint64_t turn;                  /* pieces so far */
    cuda_copy *copies;              /* of this round */
    uint32_t n_copies, events;
    uint32_t most; /* copies of a round */
    ash_stop stop;
    _Atomic uint64_t done;
} cuda_peer;

static cuda_peer *of(ash_streams *streams) {
    return (cuda_peer *)streams;
}

/* --- on the driver's thread -------------------------------------------------------------------------- */

/* The next piece of a copy: those of a stream run in their order. */
static void move_piece(cuda_copy *copy, bool in) {
    const cuda_peer *p = copy->peer;
    uint64_t bytes = ASH_MIN(copy->left, p->room);
    char *staging = p->staging[copy->turn++ % 2];
    memcpy(in ? copy->host : staging, in ? staging : copy->host, bytes);
    copy->host += bytes;
    copy->left -= bytes;
}

static void fill_from_host(void *copy) {
    move_piece(copy, false);
}

static void empty_to_host(void *copy) {
    move_piece(copy, true);
}

static void note_begin(void *argument) {
    const cuda_copy *copy = argument;
    copy->timing->start = ash_clock__now();
}

static void note_end(void *argument) {
    const cuda_copy *copy = argument;
    copy->timing->end = ash_clock__now();
    copy->timing->threads = 1;
}

/* --- a copy ------------------------------------------------------------------------------------------ */

static ash_status copy_directly(cuda_peer *p, ash_address to, ash_address from, uint64_t size,
                                ash_diag *diag) {
    const cu_driver *f = &p->to->driver;
    ASH_TRY(ash_cuda__enter(p->to, diag));
    int result = f->copy_peer(to, p->to->context, from, p->from->context, size, p->in);
    ash_cuda__leave(p->to);
    return ash_cuda__check(p->to, result, "a copy between GPUs", diag);
}

/* A piece to its buffer, once that is empty. */
static ash_status fill_buffer(cuda_peer *p, cuda_copy *copy, ash_address from, uint64_t bytes,
                              ash_diag *diag) {
    const cu_driver *f = &p->from->driver;
    const int i = p->turn % 2;
    ASH_TRY(ash_cuda__enter(p->from, diag));
    int result = p->turn >= 2 ? f->stream_wait(p->out, p->emptied[i], 0) : CU_OK;
    if (result == CU_OK)
        result = p->from_host ? f->launch_host(p->out, fill_from_host, copy)
                              : f->copy_out(p->staging[i], from, bytes, p->out);
    if (result == CU_OK) result = f->event_record(p->filled[i], p->out);
    ash_cuda__leave(p->from);
    return ash_cuda__check(p->from, result, "a copy from the GPU", diag);
}

static ash_status empty_buffer(cuda_peer *p, cuda_copy *copy, ash_address to, uint64_t bytes,
                               ash_diag *diag) {
    const cu_driver *f = &p->to->driver;
    const int i = p->turn % 2;
    ASH_TRY(ash_cuda__enter(p->to, diag));
    int result = f->stream_wait(p->in, p->filled[i], 0);
    if (result == CU_OK)
        result = p->to_host ? f->launch_host(p->in, empty_to_host, copy)
                            : f->copy_in(to, p->staging[i], bytes, p->in);
    if (result == CU_OK) result = f->event_record(p->emptied[i], p->in);
    ash_cuda__leave(p->to);
    return ash_cuda__check(p->to, result, "a copy to the GPU", diag);
}

static ash_status copy_staged(cuda_peer *p, cuda_copy *copy, ash_address to, ash_address from,
                              uint64_t size, ash_diag *diag) {
    for (uint64_t at = 0, bytes; at < size; at += bytes, p->turn++) {
        bytes = ASH_MIN(size - at, p->room);
        ASH_TRY(fill_buffer(p, copy, from + at, bytes, diag));
        ASH_TRY(empty_buffer(p, copy, to + at, bytes, diag));
    }
    return ASH_OK;
}

static ash_status note(cuda_device *d, cu_stream stream, cu_host_fn fn, cuda_copy *copy, ash_diag *diag) {
    ASH_TRY(ash_cuda__enter(d, diag));
    int result = d->driver.launch_host(stream, fn, copy);
    ash_cuda__leave(d);
    return ash_cuda__check(d, result, "a function", diag);
}

static ash_status issue_copy(cuda_peer *p, const ash_command *c, ash_diag *diag) {
    const ash_transfer *t = c->copy;
    const ash_address from = t->buffers[0] + (uint64_t)t->from, to = t->buffers[1] + (uint64_t)t->to;
    ASH_FAIL_IF(p->n_copies == p->most, diag, ASH_ERROR_INTERNAL,
                "a stream has more commands than were announced");
    cuda_copy *copy = &p->copies[p->n_copies++];
    *copy = (cuda_copy){.peer = p, .timing = c->timing, .turn = p->turn};
    if (t->bytes > 0) copy->left = (uint64_t)t->bytes;
    if (p->to_host || p->from_host) copy->host = (char *)(p->to_host ? to : from);
    const uint64_t size = copy->left; /* functions take away of that as soon as they are issued */
    if (c->timing) ASH_TRY(note(p->line.other, p->line.begin, note_begin, copy, diag));
    if (size)
        ASH_TRY(p->line.base.direct ? copy_directly(p, to, from, size, diag)
                                    : copy_staged(p, copy, to, from, size, diag));
    return c->timing ? note(p->to, p->in, note_end, copy, diag) : ASH_OK;
}

/* --- rounds ------------------------------------------------------------------------------------------ */

static void issue(ash_streams *streams, const ash_command *commands, size_t count) {
    cuda_peer *p = of(streams);
    ash_diag why = {0};
    for (size_t i = 0; i < count && p->line.failed == ASH_OK; i++) {
        if (ash_stop__is_asked(&p->stop))
            ash_stop__set_left_out(&p->stop, true);
        else if (commands[i].kind == ASH_COMMAND_COPY)
            ash_cuda_line__fail(&p->line, issue_copy(p, &commands[i], &why), &why);
    }
}

static void stop(ash_streams *streams) {
    ash_stop__set_left_out(&of(streams)->stop, true);
}

/* Also after a failure: the buffers are not touched any more. */
static void wait(cuda_peer *p, cuda_device *d, cu_stream stream) {
    bool entered;
    ash_diag why = {0};
    int result = ash_cuda__enter_to_wait(d, &entered), end = entered ? ash_cuda__wait(d, stream) : result;
    if (entered) ash_cuda__leave(d);
    ash_cuda_line__fail(&p->line, ash_cuda__check(d, result == CU_OK ? end : result, "the GPU", &why),
                        &why);
}

static ash_status finish(ash_streams *streams, ash_diag *diag) {
    cuda_peer *p = of(streams);
    if (p->n_copies && p->out) wait(p, p->from, p->out);
    if (p->n_copies) wait(p, p->to, p->in);
    ash_status status = (ash_status)p->line.failed;
    bool left_out = ash_stop__has_left_out(&p->stop);
    if (status == ASH_OK) atomic_fetch_add_explicit(&p->done, p->n_copies, memory_order_relaxed);
    if (status != ASH_OK && diag) *diag = p->line.why;
    ash_stop__set_left_out(&p->stop, false);
    p->line.failed = ASH_OK;
    p->n_copies = 0;
    if (status != ASH_OK || !left_out) return status;
    return ash_fail(diag, ASH_ERROR_CANCELLED, "the execution was cancelled");
}

static uint64_t done(const ash_streams *streams) {
    return atomic_load_explicit(&((const cuda_peer *)streams)->done, memory_order_relaxed);
}

/* --- life -------------------------------------------------------------------------------------------- */

/* Within the receiver's context. */
static ash_status enable(cuda_peer *p, ash_diag *diag) {
    const cu_driver *f = &p->to->driver;
    int can = 0, result;
    if (p->to == p->from) return ASH_OK;
    ASH_TRY(ash_cuda__check(p->to, f->peer_can(&can, p->to->device, p->from->device), "peers", diag));
    if (!can) return ASH_OK;
    result = f->peer_enable(p->from->context, 0);
    if (result == CU_PEER_UNSUPPORTED || result == CU_TOO_MANY_PEERS) return ASH_OK;
    if (result != CU_PEER_ENABLED) ASH_TRY(ash_cuda__check(p->to, result, "access to a peer", diag));
    p->line.base.direct = true;
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

static ash_status make_receiver(cuda_peer *p, ash_diag *diag) {
    ASH_TRY(enable(p, diag));
    ASH_TRY(make_end(p->to, &p->in, p->emptied, !p->line.base.direct, diag));
    p->line.begin = p->line.end = p->in;
    return ash_cuda_line__make(&p->line, p->allocator, p->events, diag);
}

static ash_status make_sender(cuda_peer *p, ash_diag *diag) {
    const cu_driver *f = &p->from->driver;
    ASH_TRY(make_end(p->from, &p->out, p->filled, true, diag));
    p->line.begin = p->out;
    p->line.other = p->from;
    for (int i = 0; i < 2; i++)
        ASH_TRY(ash_cuda__check(p->from, f->allocate_host(&p->staging[i], p->room), "pinned memory", diag));
    return ASH_OK;
}

static ash_status make(cuda_peer *p, ash_diag *diag) {
    p->copies = ash_mem_calloc(p->allocator, p->most, sizeof *p->copies);
    if (!p->copies) return ASH_NO_MEMORY(diag);
    ASH_TRY(ash_cuda__enter(p->to, diag));
    ash_status status = make_receiver(p, diag);
    ash_cuda__leave(p->to);
    if (status != ASH_OK || p->line.base.direct) return status;
    ASH_TRY(ash_cuda__enter(p->from, diag));
    status = make_sender(p, diag);
    ash_cuda__leave(p->from);
    return status;
}

static void free_end(cuda_device *d, cu_stream stream, const cu_event *events) {
    for (int i = 0; i < 2; i++)
        if (events[i]) d->driver.event_destroy(events[i]);
    if (stream) d->driver.stream_destroy(stream);
}

static void destroy(ash_streams *streams) {
    cuda_peer *p = of(streams);
    const ash_allocator *a = p->allocator;
    bool entered = ash_cuda__enter_last(p->to);
    free_end(p->to, p->in, p->emptied);
    ash_cuda_line__free(&p->line, a, p->events);
    if (entered) ash_cuda__leave(p->to);
    entered = ash_cuda__enter_last(p->from);
    free_end(p->from, p->out, p->filled);
    for (int i = 0; i < 2; i++)
        if (p->staging[i]) p->from->driver.release_host(p->staging[i]);
    if (entered) ash_cuda__leave(p->from);
    ash_mem_free(a, p->copies, p->most, sizeof *p->copies);
    ash_mem_free(a, p, 1, sizeof *p);
}

static ash_streams_counts counts(const ash_streams *streams) {
    (void)streams;
    return (ash_streams_counts){0}; /* the driver does not say */
}

static ash_status memory(const ash_streams *streams, const ash_command *commands, size_t count,
                         ash_streams_memory *out, ash_diag *diag) {
    (void)count, (void)diag;
    if (!commands && !streams->direct) out->pinned += 2 * ((const cuda_peer *)streams)->room;
    return ASH_OK;
}

static const ash_stream_class class = {.kind = "CUDA, copies",
                                       .destroy = destroy,
                                       .issue = issue,
                                       .stop = stop,
                                       .finish = finish,
                                       .counts = counts,
                                       .done = done,
                                       .memory = memory,
                                       .ahead = &ash_cuda__ahead};

ash_status ash_cuda__connect(ash_device *to, ash_device *from, uint64_t most,
                             const ash_streams_options *options, ash_streams **out, ash_diag *diag) {
    const ash_device_class *cuda = &ash_device__cuda;
    const ash_allocator *a = ash_device__allocator(to);
    cuda_peer *p = ash_mem_calloc(a, 1, sizeof *p);
    if (!p) return ASH_NO_MEMORY(diag);
    const bool to_host = to->class != cuda, from_host = from->class != cuda;
    *p = (cuda_peer){.allocator = a,
                     .to = ash_cuda__of(to_host ? from : to),
                     .from = ash_cuda__of(from_host ? to : from),
                     .to_host = to_host,
                     .from_host = from_host,
                     .most = options->commands,
                     .events = options->events,
                     .stop = {.asked = options->cancel ? options->cancel : &ash_cancel__never}};
    p->line = (cuda_line){.base = {.class = &class}, .cuda = p->to, .other = p->to};
    p->room = ash_cuda__way_room(most);
    ash_status status = make(p, diag);
    if (status == ASH_OK)
        *out = &p->line.base;
    else
        destroy(&p->line.base);
    return status;
}
