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

static bool check(cuda_streams *s, int result, const char *what) {
    ash_diag why = {0};
    if (result == CU_OK) return true;
    ash_cuda_line__fail(&s->line, ash_cuda__check(s->cuda, result, what, &why), &why);
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

/* --- issuing ----------------------------------------------------------------------------------------- */

/* The words are zero, and whatever comes on any stream comes after that. */
void ash_cuda_streams__begin(cuda_streams *s) {
    const cu_driver *f = &s->cuda->driver;
    if (s->began) return;
    memset(s->pinned + CUDA_READ, 0, ash_cuda_streams__pinned(&s->options) - CUDA_READ * sizeof(int32_t));
    for (uint32_t i = 0; i < s->options.streams; i++)
        atomic_store_explicit(&s->over[i], 0, memory_order_relaxed);
    s->began =
        check(s, f->copy_in(s->words, s->pinned + CUDA_ZEROS, CUDA_WORDS * sizeof(int32_t), s->control),
              "a copy");
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
        ash_cuda_line__fail(&s->line,
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
    if (s->line.failed != ASH_OK || is_stopped(s)) return;
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
    case CUDA_RECORD: check(s, f->event_record(s->line.events[op->item], stream), "an event"); break;
    case CUDA_WAIT: check(s, f->stream_wait(stream, s->line.events[op->item], 0), "a wait"); break;
    }
}

static void issue_ops(cuda_streams *s, cuda_script *script, size_t first, size_t end) {
    for (size_t i = first; i < end && s->line.failed == ASH_OK; i = ash_cuda_script__after(script, i))
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
    for (uint64_t turn = 0; s->line.failed == ASH_OK && !is_stopped(s); turn++) {
        bool go = !turn || !*repeat->look || look(s, stream, *repeat->look);
        if (s->line.failed != ASH_OK || is_stopped(s)) return;
        int next = repeat->next(repeat->arg, turn, go);
        if (next == ASH_REPEAT_OVER) return;
        issue_ops(s, script, r->first[next], r->first[next + 1]);
    }
}

static void issue_script(cuda_streams *s, cuda_script *script) {
    ash_cuda_streams__begin(s);
    ash_cuda_script__refresh_all(s, script);
    check(s, s->cuda->driver.copy_in(script->records, script->mirror, script->record_bytes, s->control),
          "a copy to the GPU");
    bool timed = false;
    for (size_t i = 0; i < script->count && !timed; i++) timed = script->commands[i].timing != NULL;
    if (timed && !s->start) {
        s->start = ash_clock__now();
        check(s, s->cuda->driver.event_record(s->origin, s->control), "an event");
    }
    fork_streams(s);
    issue_ops(s, script, 0, script->ops.len);
}

/* The script of the same place in the round before, if that says the same. */
static ash_status next_script(cuda_streams *s, const ash_command *commands, size_t count, cuda_script **out,
                              ash_diag *diag) {
    cuda_script *script = *s->next, *behind = script;
    if (script && !ash_cuda_script__is_of(script, commands, count)) {
        behind = *s->next = script->next;
        ash_cuda_script__free(s, script);
        script = NULL;
    }
    if (!script) {
        ASH_TRY(ash_cuda_script__make(s, commands, count, &script, diag));
        script->next = behind;
        *s->next = script;
    }
    s->next = &script->next;
    *out = script;
    return ASH_OK;
}

static void issue(ash_streams *streams, const ash_command *commands, size_t count) {
    cuda_streams *s = of(streams);
    cuda_script *script;
    ash_diag why = {0};
    ash_status status = ash_cuda__enter(s->cuda, &why);
    if (status == ASH_OK) {
        status = next_script(s, commands, count, &script, &why);
        if (status == ASH_OK) {
            script->before = s->steps;
            s->steps += script->steps;
            issue_script(s, script);
        }
        ash_cuda__leave(s->cuda);
    }
    ash_cuda_line__fail(&s->line, status, &why);
}

/* --- waiting ----------------------------------------------------------------------------------------- */

static ash_status wait_for_all(cuda_streams *s, ash_diag *diag) {
    const cu_driver *f = &s->cuda->driver;
    for (uint32_t i = 0; i < s->options.streams; i++) wait_stream(s, s->streams[i]);
    wait_stream(s, s->control);
    int32_t *read = ash_cuda_streams__read(s, s->options.streams);
    if (s->options.cancel && s->began) { /* else the word is that of no round */
        check(s, f->copy_out(read, ash_cuda_streams__left_out(s), sizeof *read, s->control), "a copy");
        check(s, ash_cuda__wait(s->cuda, s->control), "the GPU");
    }
    bool left_out = ash_stop__has_left_out(&s->stop) || (s->began && *read);
    if (s->line.failed == ASH_OK) read_times(s);
    s->timed = 0;
    s->start = 0;
    int failed = s->line.failed;
    uint64_t over = 0;
    for (uint32_t i = 0; i < s->options.streams; i++)
        over += atomic_exchange_explicit(&s->over[i], 0, memory_order_relaxed);
    bool whole = failed == ASH_OK && !left_out;
    atomic_fetch_add_explicit(&s->done, whole ? s->steps : over, memory_order_relaxed);
    ash_stop__set_left_out(&s->stop, false);
    s->line.failed = ASH_OK;
    s->began = false;
    s->steps = 0;
    s->next = &s->scripts;
    if (failed != ASH_OK) {
        if (diag) *diag = s->line.why;
        return (ash_status)failed;
    }
    return left_out ? ash_fail(diag, ASH_ERROR_CANCELLED, "the execution was cancelled") : ASH_OK;
}

static ash_status finish(ash_streams *streams, ash_diag *diag) {
    cuda_streams *s = of(streams);
    if (!s->began && s->line.failed == ASH_OK) {
        ash_stop__set_left_out(&s->stop, false);
        return ASH_OK;
    }
    /* also where the device was lost: what was taken goes back */
    bool entered;
    check(s, ash_cuda__enter_to_wait(s->cuda, &entered), "the GPU's context");
    ash_status status = wait_for_all(s, diag);
    if (entered) ash_cuda__leave(s->cuda);
    return status;
}

static ash_status replay(ash_streams *streams, const ash_capture *capture, ash_diag *diag) {
    ash_cuda_graph__start(streams, capture);
    return finish(streams, diag);
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

static void free_scripts(cuda_streams *s) {
    for (cuda_script *script = s->scripts, *next; script; script = next) {
        next = script->next;
        ash_cuda_script__free(s, script);
    }
    s->scripts = NULL;
    s->next = &s->scripts;
}

static void forget(ash_streams *streams) {
    cuda_streams *s = of(streams);
    if (!s->scripts) return;
    bool entered = ash_cuda__enter_last(s->cuda);
    free_scripts(s);
    if (entered) ash_cuda__leave(s->cuda);
}

static ash_status measure(const ash_streams *streams, const ash_command *commands, size_t count,
                          ash_streams_memory *out, ash_diag *diag) {
    const cuda_streams *s = (const cuda_streams *)streams;
    return ash_cuda_script__measure(s->allocator, &s->options, commands, count, out, diag);
}

static void destroy(ash_streams *streams) {
    cuda_streams *s = of(streams);
    const cu_driver *f = &s->cuda->driver;
    const ash_allocator *a = s->allocator;
    bool entered = ash_cuda__enter_last(s->cuda);
    free_scripts(s);
    for (uint32_t i = 0; s->streams && i < s->options.streams; i++)
        if (s->streams[i]) f->stream_destroy(s->streams[i]);
    ash_cuda_line__free(&s->line, a, s->options.events);
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
                                       .memory = measure,
                                       .forget = forget,
                                       .instantiate = ash_cuda_graph__instantiate,
                                       .replay = replay,
                                       .start = ash_cuda_graph__start,
                                       .capture_free = ash_cuda_graph__free,
                                       .captured = ash_cuda_graph__captured,
                                       .graphs = ash_cuda_graph__graphs,
                                       .compiled = ash_cuda_graph__compiled,
                                       .ahead = &ash_cuda__ahead};

static ash_status make(cuda_streams *s, ash_diag *diag) {
    cuda_device *d = s->cuda;
    const cu_driver *f = &d->driver;
    void *pinned = NULL;
    for (uint32_t i = 0; i < s->options.streams; i++)
        ASH_TRY(ash_cuda__check(d, f->stream_create(&s->streams[i], CU_NON_BLOCKING), "a stream", diag));
    s->line.begin = s->line.end = s->streams[0];
    ASH_TRY(ash_cuda_line__make(&s->line, s->allocator, s->options.events, diag));
    ASH_TRY(ash_cuda__check(d, f->stream_create(&s->control, CU_NON_BLOCKING), "a stream", diag));
    ASH_TRY(ash_cuda__check(d, f->event_create(&s->begun, CU_DISABLE_TIMING), "an event", diag));
    ASH_TRY(ash_cuda__check(d, f->event_create(&s->origin, 0), "an event", diag));
    ASH_TRY(ash_cuda__check(d, f->allocate(&s->words, CUDA_WORDS * sizeof(int32_t)), "memory of the GPU",
                            diag));
    ASH_TRY(ash_cuda__check(d, f->allocate_host(&pinned, ash_cuda_streams__pinned(&s->options)),
                            "pinned memory", diag));
    s->pinned = pinned;
    memset(pinned, 0, ash_cuda_streams__pinned(&s->options));
    s->pinned[CUDA_ONES] = s->pinned[CUDA_ONES + 1] = 1;
    s->line.base.stop = (ash_address)s->words;
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
        *s = (cuda_streams){.line = {.base = {.class = &class}, .cuda = d, .other = d},
                            .device = device,
                            .cuda = d,
                            .allocator = a,
                            .options = *options,
                            .stop = {.asked = options->cancel ? options->cancel : &ash_cancel__never}};
        s->streams = ash_mem_calloc(a, options->streams, sizeof *s->streams);
        s->next = &s->scripts;
        s->over = ash_mem_calloc(a, options->streams, sizeof *s->over);
        status = s->streams && s->over ? make(s, diag) : ASH_NO_MEMORY(diag);
        if (status != ASH_OK) destroy(&s->line.base);
    } else {
        status = ASH_NO_MEMORY(diag);
    }
    ash_cuda__leave(d);
    if (status == ASH_OK) *out = &s->line.base;
    return status;
}
