/* SPDX-License-Identifier: MIT */
/* Streams of a GPU: operations are issued as soon as there are commands, and `finish` waits for them,
 * looking at the switch meanwhile. */
#include "stream.h"

#include <sched.h>

#include "base/clock.h"

enum { AGAIN_NS = 1000000, TIMES = 64 };

static cuda_streams *of(ash_streams *streams) {
    return (cuda_streams *)streams;
}

static void fail(cuda_streams *s, ash_status status, const ash_diag *why) {
    if (s->failed != ASH_OK || status == ASH_OK) return;
    s->failed = (int)status;
    s->why = *why;
}

static bool check(cuda_streams *s, int result, const char *what) {
    ash_diag why = {0};
    if (result == CU_OK) return true;
    fail(s, ash_cuda__check(s->cuda, result, what, &why), &why);
    return false;
}

/* --- times ------------------------------------------------------------------------------------------- */

static bool more_times(cuda_streams *s) {
    const cu_driver *f = &s->cuda->driver;
    if (s->timed < s->n_times) return true;
    if (s->n_times == s->room_times) {
        uint32_t room = s->room_times + TIMES;
        void *times = ash_mem_calloc(s->allocator, room, sizeof *s->times);
        if (!times) return false;
        if (s->n_times) memcpy(times, s->times, s->n_times * sizeof *s->times);
        ash_mem_free(s->allocator, s->times, s->room_times, sizeof *s->times);
        s->times = times;
        s->room_times = room;
    }
    cu_event *before = &s->times[s->n_times].before, *after = &s->times[s->n_times].after;
    if (!check(s, f->event_create(before, 0), "an event")) return false;
    if (!check(s, f->event_create(after, 0), "an event")) {
        f->event_destroy(*before);
        return false;
    }
    s->n_times++;
    return true;
}

static void begin_time(cuda_streams *s, const ash_command *c) {
    if (!c->timing || !more_times(s)) return;
    s->times[s->timed].timing = c->timing;
    check(s, s->cuda->driver.event_record(s->times[s->timed].before, s->streams[c->stream]), "an event");
}

static void end_time(cuda_streams *s, const ash_command *c) {
    if (!c->timing || s->timed == s->n_times || s->times[s->timed].timing != c->timing) return;
    check(s, s->cuda->driver.event_record(s->times[s->timed++].after, s->streams[c->stream]), "an event");
}

static void read_times(cuda_streams *s) {
    for (uint32_t i = 0; i < s->timed; i++) {
        float before = 0, after = 0;
        const cu_driver *f = &s->cuda->driver;
        check(s, f->event_elapsed(&before, s->origin, s->times[i].before), "a time");
        check(s, f->event_elapsed(&after, s->origin, s->times[i].after), "a time");
        *s->times[i].timing =
            (ash_timing){s->start + (int64_t)(before * 1e6), s->start + (int64_t)(after * 1e6), 1};
        s->times[i].timing = NULL;
    }
    s->timed = 0;
}

/* --- waiting for a stream ---------------------------------------------------------------------------- */

/* Tells kernels that have not begun, and those that look. */
static void ask(cuda_streams *s) {
    const cu_driver *f = &s->cuda->driver;
    ash_stop__set_left_out(&s->stop, true);
    check(s, f->copy_in(s->words, s->pinned + CUDA_ONES, sizeof(int32_t), s->control), "a copy");
    check(s, ash_cuda__wait(s->cuda, s->control), "the GPU");
}

static void wait_stream(cuda_streams *s, cu_stream stream) {
    const cu_driver *f = &s->cuda->driver;
    if (!s->options.cancel) {
        check(s, ash_cuda__wait(s->cuda, stream), "the GPU");
        return;
    }
    int result;
    int64_t again = 0;
    while ((result = f->stream_query(stream)) == CU_NOT_READY) {
        int64_t now = ash_clock__now();
        if (ash_cancel__is_on(s->options.cancel) && now >= again) {
            ask(s);
            again = now + AGAIN_NS;
        }
        sched_yield();
    }
    check(s, result, "the GPU");
    if (result != CU_OK) ash_cuda__wait(s->cuda, stream);
}

static size_t pinned_bytes(const cuda_streams *s) {
    return (CUDA_READ + (size_t)s->options.streams + 1) * sizeof(int32_t);
}

/* --- issuing ----------------------------------------------------------------------------------------- */

/* The words are zero, and whatever comes on any stream comes after that. */
void ash_cuda_streams__begin(cuda_streams *s) {
    const cu_driver *f = &s->cuda->driver;
    memset(s->pinned + CUDA_READ, 0, pinned_bytes(s) - CUDA_READ * sizeof(int32_t));
    for (uint32_t i = 0; i < s->options.streams; i++)
        atomic_store_explicit(&s->over[i], 0, memory_order_relaxed);
    s->began =
        check(s, f->copy_in(s->words, s->pinned + CUDA_ZEROS, 2 * sizeof(int32_t), s->control), "a copy");
}

/* What follows on all streams comes after what is on the control stream. */
static void fork_streams(cuda_streams *s) {
    const cu_driver *f = &s->cuda->driver;
    check(s, f->event_record(s->begun, s->control), "an event");
    for (uint32_t i = 0; i < s->options.streams; i++)
        check(s, f->stream_wait(s->streams[i], s->begun, 0), "a wait");
}

static void issue_kernel(cuda_streams *s, cuda_script *script, cuda_item *item) {
    const cu_driver *f = &s->cuda->driver;
    const ash_command *c = item->command;
    ash_cuda_script__read_params(s, script, item);
    begin_time(s, c);
    ash_diag why = {0};
    if (item->product)
        fail(s,
             ash_cuda_product__issue(s->cuda, item->product, &script->values.at[item->first],
                                     s->streams[item->stream], &why),
             &why);
    else
        check(s,
              f->launch(item->function, item->grid, 1, 1, item->block, 1, 1, item->shared,
                        s->streams[item->stream], &script->addresses.at[item->first], NULL),
              "a launch");
    end_time(s, c);
}

/* With the addresses and numbers of now. */
static void issue_direct(cuda_streams *s, const ash_command *c, cu_stream stream) {
    const cu_driver *f = &s->cuda->driver;
    if (c->kind == ASH_COMMAND_COPY) {
        const ash_transfer *copy = c->copy;
        cu_address from = copy->buffers[0] + (uint64_t)copy->from,
                   to = copy->buffers[1] + (uint64_t)copy->to;
        if (copy->bytes > 0 && from != to)
            check(s, f->copy(to, from, (size_t)copy->bytes, stream), "a copy on the GPU");
    } else if (c->kind == ASH_COMMAND_FILL) {
        if (c->fill->bytes)
            check(s, f->fill(*c->fill->buffer, c->fill->value, c->fill->bytes, stream), "filling memory");
    } else {
        cu_address to = *c->store->buffer;
        int64_t value = *c->store->value;
        void *params[] = {&to, &value};
        check(s, f->launch(s->cuda->store_kernel, 1, 1, 1, 1, 1, 1, 0, stream, params, NULL), "a launch");
    }
}

/* Something was left out, or the switch is on, which the kernels are told. */
static bool is_stopped(cuda_streams *s) {
    if (ash_stop__has_left_out(&s->stop)) return true;
    if (!s->options.cancel || !ash_cancel__is_on(s->options.cancel)) return false;
    ask(s);
    return true;
}

/* A function that fails leaves out what has been issued to other streams, too. */
static void call_here(cuda_streams *s, cuda_script *script, const cuda_op *op) {
    cuda_call *call = &script->calls.at[op->item];
    wait_stream(s, s->streams[op->stream]);
    if (s->failed != ASH_OK || is_stopped(s)) return;
    ash_cuda_script__call(call);
    if (ash_stop__has_left_out(&s->stop)) {
        ask(s);
        return;
    }
    if (ash_cuda_script__refresh(s, script, call->segment))
        check(s,
              s->cuda->driver.copy_in(script->records + op->offset, op->host, op->bytes,
                                      s->streams[op->stream]),
              "a copy to the GPU");
}

static void issue_op(cuda_streams *s, cuda_script *script, const cuda_op *op) {
    const cu_driver *f = &s->cuda->driver;
    cu_stream stream = s->streams[op->stream];
    switch (op->kind) {
    case CUDA_KERNEL: issue_kernel(s, script, &script->items.at[op->item]); break;
    case CUDA_IN:
        if (op->bytes)
            check(s,
                  f->copy_in(op->operand ? *op->operand : script->records + op->offset, op->host, op->bytes,
                             stream),
                  "a copy to the GPU");
        break;
    case CUDA_OUT:
        if (op->bytes)
            check(s,
                  f->copy_out(op->host, op->operand ? *op->operand : ash_cuda_streams__left_out(s),
                              op->bytes, stream),
                  "a copy from the GPU");
        break;
    case CUDA_CALL:
        check(s, f->launch_host(stream, ash_cuda_script__call, &script->calls.at[op->item]), "a function");
        break;
    case CUDA_HERE: call_here(s, script, op); break;
    case CUDA_REPEAT:
        begin_time(s, op->command);
        ash_cuda_streams__repeat(s, script, op);
        end_time(s, op->command);
        break;
    case CUDA_DIRECT: issue_direct(s, op->command, stream); break;
    case CUDA_RECORD: check(s, f->event_record(s->events[op->item], stream), "an event"); break;
    case CUDA_WAIT: check(s, f->stream_wait(stream, s->events[op->item], 0), "a wait"); break;
    }
}

static void issue_ops(cuda_streams *s, cuda_script *script, size_t first, size_t end) {
    for (size_t i = first; i < end && s->failed == ASH_OK; i = ash_cuda_script__after(script, i))
        issue_op(s, script, &script->ops.at[i]);
}

/* A byte of the device's memory, when all is over that was issued to the stream. */
static bool look(cuda_streams *s, cu_stream stream, cu_address at) {
    bool go = false;
    if (!check(s, s->cuda->driver.copy_out(s->pinned + CUDA_LOOK, at, sizeof go, stream), "a copy"))
        return false;
    wait_stream(s, stream);
    memcpy(&go, s->pinned + CUDA_LOOK, sizeof go);
    return go;
}

void ash_cuda_streams__repeat(cuda_streams *s, cuda_script *script, const cuda_op *op) {
    const cuda_repeat *r = &script->repeats.at[op->item];
    const ash_repeat *repeat = r->repeat;
    cu_stream stream = s->streams[op->stream];
    if (repeat->waits) wait_stream(s, stream);
    for (uint64_t turn = 0; s->failed == ASH_OK && !is_stopped(s); turn++) {
        bool go = !turn || !*repeat->look || look(s, stream, *repeat->look);
        if (s->failed != ASH_OK || is_stopped(s)) return;
        int next = repeat->next(repeat->arg, turn, go);
        if (next == ASH_REPEAT_OVER) return;
        issue_ops(s, script, r->first[next], r->first[next + 1]);
    }
}

static void issue_script(cuda_streams *s, cuda_script *script) {
    if (!s->began) ash_cuda_streams__begin(s);
    ash_cuda_script__refresh_all(s, script);
    check(s, s->cuda->driver.copy_in(script->records, script->mirror, script->record_bytes, s->control),
          "a copy to the GPU");
    bool timed = false;
    for (size_t i = 0; i < script->count && !timed; i++) timed = script->commands[i].timing != NULL;
    if (timed) {
        s->start = ash_clock__now();
        check(s, s->cuda->driver.event_record(s->origin, s->control), "an event");
    }
    fork_streams(s);
    issue_ops(s, script, 0, script->ops.len);
}

static void issue(ash_streams *streams, const ash_command *commands, size_t count) {
    cuda_streams *s = of(streams);
    ash_diag why = {0};
    ash_status status = ash_cuda__enter(s->cuda, &why);
    if (status == ASH_OK) {
        cuda_script *script = s->idle;
        s->idle = NULL;
        if (script && !ash_cuda_script__is_of(script, commands, count)) {
            ash_cuda_script__free(s, script);
            script = NULL;
        }
        if (!script) status = ash_cuda_script__make(s, commands, count, &script, &why);
        if (status == ASH_OK) {
            script->next = s->round;
            s->round = script;
            issue_script(s, script);
        }
        ash_cuda__leave(s->cuda);
    }
    fail(s, status, &why);
}

/* --- waiting ----------------------------------------------------------------------------------------- */

ash_status ash_cuda_streams__wait(cuda_streams *s, uint64_t steps, ash_diag *diag) {
    const cu_driver *f = &s->cuda->driver;
    for (uint32_t i = 0; i < s->options.streams; i++) wait_stream(s, s->streams[i]);
    wait_stream(s, s->control);
    int32_t *read = ash_cuda_streams__read(s, s->options.streams);
    if (s->options.cancel && s->began) { /* else the word is that of no round */
        check(s, f->copy_out(read, ash_cuda_streams__left_out(s), sizeof *read, s->control), "a copy");
        check(s, ash_cuda__wait(s->cuda, s->control), "the GPU");
    }
    bool left_out = ash_stop__has_left_out(&s->stop) || (s->began && *read);
    if (s->failed == ASH_OK) read_times(s);
    s->timed = 0;
    int failed = s->failed;
    uint64_t over = 0;
    for (uint32_t i = 0; i < s->options.streams; i++)
        over += atomic_exchange_explicit(&s->over[i], 0, memory_order_relaxed);
    bool whole = failed == ASH_OK && !left_out;
    atomic_fetch_add_explicit(&s->done, whole ? steps : over, memory_order_relaxed);
    ash_stop__set_left_out(&s->stop, false);
    s->failed = ASH_OK;
    s->began = false;
    if (failed != ASH_OK) {
        if (diag) *diag = s->why;
        return (ash_status)failed;
    }
    return left_out ? ash_fail(diag, ASH_ERROR_CANCELLED, "the execution was cancelled") : ASH_OK;
}

/* One script stays, for the next round may say the same. */
static void end_round(cuda_streams *s) {
    for (cuda_script *script = s->round, *next; script; script = next) {
        next = script->next;
        script->next = NULL;
        if (s->idle)
            ash_cuda_script__free(s, script);
        else
            s->idle = script;
    }
    s->round = NULL;
}

static ash_status finish(ash_streams *streams, ash_diag *diag) {
    cuda_streams *s = of(streams);
    if (!s->began && s->failed == ASH_OK) {
        ash_stop__set_left_out(&s->stop, false);
        return ASH_OK;
    }
    uint64_t steps = 0;
    for (const cuda_script *script = s->round; script; script = script->next) steps += script->steps;
    /* also where the device was lost: what was taken goes back */
    bool entered;
    check(s, ash_cuda__enter_to_wait(s->cuda, &entered), "the GPU's context");
    ash_status status = ash_cuda_streams__wait(s, steps, diag);
    end_round(s);
    if (entered) ash_cuda__leave(s->cuda);
    return status;
}

static void stop(ash_streams *streams) {
    ash_stop__set_left_out(&of(streams)->stop, true);
}

static ash_streams_counts counts(const ash_streams *streams) {
    (void)streams;
    return (ash_streams_counts){0}; /* the driver does not say */
}

static uint64_t done(const ash_streams *streams) {
    const cuda_streams *s = (const cuda_streams *)streams;
    uint64_t over = atomic_load_explicit(&s->done, memory_order_relaxed);
    for (uint32_t i = 0; i < s->options.streams; i++)
        over += atomic_load_explicit(&s->over[i], memory_order_relaxed);
    return over;
}

/* --- life -------------------------------------------------------------------------------------------- */

static void destroy(ash_streams *streams) {
    cuda_streams *s = of(streams);
    const cu_driver *f = &s->cuda->driver;
    const ash_allocator *a = s->allocator;
    bool entered = ash_cuda__enter_last(s->cuda);
    end_round(s);
    ash_cuda_script__free(s, s->idle);
    for (uint32_t i = 0; s->streams && i < s->options.streams; i++)
        if (s->streams[i]) f->stream_destroy(s->streams[i]);
    for (uint32_t i = 0; s->events && i < s->options.events; i++)
        if (s->events[i]) f->event_destroy(s->events[i]);
    for (uint32_t i = 0; i < s->n_times; i++) {
        f->event_destroy(s->times[i].before);
        f->event_destroy(s->times[i].after);
    }
    if (s->control) f->stream_destroy(s->control);
    if (s->begun) f->event_destroy(s->begun);
    if (s->origin) f->event_destroy(s->origin);
    if (s->words) f->release(s->words);
    if (s->pinned) f->release_host(s->pinned);
    if (entered) ash_cuda__leave(s->cuda);
    ash_mem_free(a, s->streams, s->options.streams, sizeof *s->streams);
    ash_mem_free(a, s->events, s->options.events, sizeof *s->events);
    ash_mem_free(a, s->times, s->room_times, sizeof *s->times);
    ash_mem_free(a, (void *)s->over, s->options.streams, sizeof *s->over);
    ash_mem_free(a, s, 1, sizeof *s);
}

static const ash_stream_class class = {.kind = "CUDA",
                                       .destroy = destroy,
                                       .issue = issue,
                                       .stop = stop,
                                       .finish = finish,
                                       .counts = counts,
                                       .done = done,
                                       .instantiate = ash_cuda_graph__instantiate,
                                       .replay = ash_cuda_graph__replay,
                                       .capture_free = ash_cuda_graph__free,
                                       .captured = ash_cuda_graph__captured,
                                       .graphs = ash_cuda_graph__graphs,
                                       .compiled = ash_cuda_graph__compiled};

static ash_status make(cuda_streams *s, ash_diag *diag) {
    cuda_device *d = s->cuda;
    const cu_driver *f = &d->driver;
    void *pinned = NULL;
    for (uint32_t i = 0; i < s->options.streams; i++)
        ASH_TRY(ash_cuda__check(d, f->stream_create(&s->streams[i], CU_NON_BLOCKING), "a stream", diag));
    for (uint32_t i = 0; i < s->options.events; i++)
        ASH_TRY(ash_cuda__check(d, f->event_create(&s->events[i], CU_DISABLE_TIMING), "an event", diag));
    ASH_TRY(ash_cuda__check(d, f->stream_create(&s->control, CU_NON_BLOCKING), "a stream", diag));
    ASH_TRY(ash_cuda__check(d, f->event_create(&s->begun, CU_DISABLE_TIMING), "an event", diag));
    ASH_TRY(ash_cuda__check(d, f->event_create(&s->origin, 0), "an event", diag));
    ASH_TRY(ash_cuda__check(d, f->allocate(&s->words, 2 * sizeof(int32_t)), "memory of the GPU", diag));
    ASH_TRY(ash_cuda__check(d, f->allocate_host(&pinned, pinned_bytes(s)), "pinned memory", diag));
    s->pinned = pinned;
    memset(pinned, 0, pinned_bytes(s));
    s->pinned[CUDA_ONES] = s->pinned[CUDA_ONES + 1] = 1;
    s->base.stop = (ash_address)s->words;
    return ASH_OK;
}

ash_status ash_cuda__create_streams(ash_device *device, const ash_streams_options *options,
                                    ash_streams **out, ash_diag *diag) {
    const ash_allocator *a = ash_device__allocator(device);
    cuda_device *d = ash_cuda__of(device);
    ASH_TRY(ash_cuda__enter(d, diag));
    cuda_streams *s = ash_mem_calloc(a, 1, sizeof *s);
    ash_status status = ASH_OK;
    if (s) {
        *s = (cuda_streams){.base = {.class = &class},
                            .device = device,
                            .cuda = d,
                            .allocator = a,
                            .options = *options,
                            .stop = {.asked = options->cancel ? options->cancel : &ash_cancel__never}};
        s->streams = ash_mem_calloc(a, options->streams, sizeof *s->streams);
        s->events = ash_mem_calloc(a, options->events, sizeof *s->events);
        s->over = ash_mem_calloc(a, options->streams, sizeof *s->over);
        status = s->streams && s->events && s->over ? make(s, diag) : ASH_NO_MEMORY(diag);
        if (status != ASH_OK) destroy(&s->base);
    } else {
        status = ASH_NO_MEMORY(diag);
    }
    ash_cuda__leave(d);
    if (status == ASH_OK) *out = &s->base;
    return status;
}
