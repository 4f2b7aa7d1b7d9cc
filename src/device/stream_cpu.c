/* SPDX-License-Identifier: MIT */
/* Streams of the CPU.
 *
 * One stream is the calling thread itself: a command runs when it is issued. A capture of it is a function
 * of machine code that does what the commands say, one after the other. Several streams are queues that
 * threads take turns to run (stream_queue.c), and a capture of them is the filled queues. */
#include "stream_cpu.h"

/* --- what all share ----------------------------------------------------------------------------- */

/* Buffers that overlap are one, whose bytes move in one go. */
void ash_cpu__move(ash_cpu *cpu, const ash_transfer *copy) {
    char *to = (char *)copy->buffers[1] + copy->to, *from = (char *)copy->buffers[0] + copy->from;
    bool apart = to >= from + copy->bytes || from >= to + copy->bytes;
    int64_t piece = apart ? ash_costs__cpu.copy_bytes : copy->bytes;
    for (int64_t done = 0; done < copy->bytes && !(done && ash_cpu__stops(cpu)); done += piece)
        memmove(to + done, from + done, (size_t)ASH_MIN(piece, copy->bytes - done));
}

bool ash_cpu__note_left_out(ash_cpu *cpu) {
    ash_stop__set_left_out(&cpu->stop, true);
    return true;
}

void ash_cpu__run_range(ash_cpu *cpu, const ash_launch *launch, int64_t begin, int64_t end,
                        unsigned worker) {
    if (launch->piece == 0) {
        launch->fn(launch->buffers, launch->vars, begin, end, worker);
        return;
    }
    for (int64_t next; begin < end && !ash_cpu__stops(cpu); begin = next) {
        next = end - begin > launch->piece ? begin + launch->piece : end;
        launch->fn(launch->buffers, launch->vars, begin, next, worker);
    }
}

ash_status ash_cpu__end(ash_cpu *cpu, ash_diag *diag) {
    if (!ash_stop__has_left_out(&cpu->stop)) return ASH_OK;
    ash_stop__set_left_out(&cpu->stop, false);
    return ash_fail(diag, ASH_ERROR_CANCELLED, "the execution was cancelled");
}

void ash_cpu__stop(ash_streams *streams) {
    ash_cpu__note_left_out(ash_cpu__of(streams));
}

/* --- one stream: the calling thread ------------------------------------------------------------- */

struct run {
    ash_cpu *cpu;
    const ash_launch *launch;
};

static void run_chunks(void *arg, int64_t begin, int64_t end, unsigned worker) {
    const struct run *run = arg;
    int64_t first = run->launch->begin;
    ash_cpu__run_range(run->cpu, run->launch, first + begin, first + end, worker);
}

static unsigned run_here(ash_cpu *cpu, const ash_launch *launch) {
    if (launch->end <= launch->begin) return 1;
    if (launch->parallel && cpu->pool) {
        struct run run = {cpu, launch};
        return ash_pool__run(cpu->pool, cpu->threads, launch->end - launch->begin, run_chunks, &run);
    }
    ash_cpu__run_range(cpu, launch, launch->begin, launch->end, 0);
    return 1;
}

/* A command is over, unless the switch has left a part of it out. */
static void count_here(ash_cpu *cpu) {
    if (ash_stop__has_left_out(&cpu->stop)) return;
    uint64_t done = atomic_load_explicit(&cpu->done, memory_order_relaxed) + 1;
    atomic_store_explicit(&cpu->done, done, memory_order_relaxed);
}

static void launch_here(ash_streams *streams, uint32_t stream, const ash_launch *launch,
                        ash_timing *timing) {
    ash_cpu *cpu = ash_cpu__of(streams);
    (void)stream;
    if (ash_cpu__stops(cpu)) return;
    if (timing) timing->start = ash_clock__now();
    unsigned threads = run_here(cpu, launch);
    if (timing) *timing = (ash_timing){timing->start, ash_clock__now(), threads};
    count_here(cpu);
}

static void copy_here(ash_streams *streams, uint32_t stream, const ash_transfer *copy, ash_timing *timing) {
    ash_cpu *cpu = ash_cpu__of(streams);
    (void)stream;
    if (ash_cpu__stops(cpu)) return;
    if (timing) timing->start = ash_clock__now();
    ash_cpu__move(cpu, copy);
    if (timing) *timing = (ash_timing){timing->start, ash_clock__now(), 1};
    count_here(cpu);
}

static void call_here(ash_streams *streams, uint32_t stream, void (*fn)(void *arg), void *arg) {
    (void)stream;
    if (!ash_cpu__stops(ash_cpu__of(streams))) fn(arg);
}

/* What was recorded has happened. */
static void pass(ash_streams *streams, uint32_t stream, uint32_t event) {
    (void)streams, (void)stream, (void)event;
}

static ash_status finish_here(ash_streams *streams, ash_diag *diag) {
    return ash_cpu__end(ash_cpu__of(streams), diag);
}

static uint64_t done_here(const ash_streams *streams) {
    return atomic_load_explicit(&((const ash_cpu *)streams)->done, memory_order_relaxed);
}

static ash_streams_counts get_counts(const ash_streams *streams) {
    return ((const ash_cpu *)streams)->counts;
}

/* --- capturing ---------------------------------------------------------------------------------- */

/* What an entry does at one command, and cannot do otherwise. */
struct act {
    ash_command_kind kind;
    ash_launch_fn fn; /* that it calls itself, or NULL */
    int64_t at, to;   /* first chunk; first byte in source and target */
    uint64_t offset;  /* bytes from the first launch or copy */
};

/* An entry, shared by captures that do the same at other places. */
struct shared {
    _Atomic long refs;
    ash_entry entry;
    struct act *acts;
    uint32_t count;
};

struct ash_capture {
    struct shared *shared; /* of one stream */
    ash_entry_place place;
    bool compiled;
    ash_cpu_queues queues; /* of several */
    uint32_t count;        /* launches and copies */
};

/* What the streams do while nothing is captured. */
static void set_class(ash_cpu *cpu);

static ash_status capture_begin(ash_streams *streams, ash_diag *diag) {
    ash_cpu *cpu = ash_cpu__of(streams);
    if (cpu->n_streams > 1) {
        ash_cpu__clear_queues(cpu);
        return ASH_OK;
    }
    ASH_FAIL_IF(!cpu->maker, diag, ASH_ERROR_UNSUPPORTED,
                "these streams were made without a code generator");
    ASH_TRY(ash_cpu__make_queues(cpu, diag));
    cpu->base.launch = ash_cpu__queued.launch;
    cpu->base.copy = ash_cpu__queued.copy;
    cpu->base.call = ash_cpu__queued.call;
    cpu->base.record = ash_cpu__queued.record;
    cpu->base.wait = ash_cpu__queued.wait;
    return ASH_OK;
}

static bool launch_from_entry(void *streams, const ash_launch *launch) {
    ash_cpu *cpu = streams;
    run_here(cpu, launch);
    return !ash_stop__has_left_out(&cpu->stop);
}

static bool copy_from_entry(void *streams, const ash_transfer *copy) {
    ash_cpu *cpu = streams;
    ash_cpu__move(cpu, copy);
    return !ash_stop__has_left_out(&cpu->stop);
}

static struct act act_of(const ash_command *command, const void *first) {
    uint64_t offset = (uintptr_t)ash_command__work(command) - (uintptr_t)first;
    if (command->kind == ASH_COMMAND_COPY)
        return (struct act){ASH_COMMAND_COPY, NULL, command->copy->from, command->copy->to, offset};
    const ash_launch *launch = command->launch;
    if (ash_launch__has_parts(launch)) return (struct act){ASH_COMMAND_LAUNCH, NULL, 0, 0, offset};
    return (struct act){ASH_COMMAND_LAUNCH, launch->fn, launch->begin, 0, offset};
}

static bool is_same_act(const struct act *a, const struct act *b) {
    return a->kind == b->kind && a->fn == b->fn && a->at == b->at && a->to == b->to &&
           a->offset == b->offset;
}

/* Whether an entry does what was issued. */
static bool does(const struct shared *shared, const ash_cpu_list *list) {
    const void *first = ash_command__first(list->commands, list->count);
    uint32_t n = 0;
    for (uint32_t i = 0; i < list->count; i++) {
        const ash_command *command = &list->commands[i];
        if (command->kind == ASH_COMMAND_CALL || command->timing) return false;
        if (!ash_command__work(command)) continue;
        struct act act = act_of(command, first);
        if (n == shared->count || !is_same_act(&act, &shared->acts[n++])) return false;
    }
    return n == shared->count;
}

static void release_shared(const ash_allocator *a, struct shared *shared) {
    if (!shared || atomic_fetch_sub(&shared->refs, 1) != 1) return;
    if (shared->entry.release) shared->entry.release(shared->entry.owner);
    ash_mem_free(a, shared->acts, shared->count, sizeof *shared->acts);
    ash_mem_free(a, shared, 1, sizeof *shared);
}

static ash_status compile(ash_cpu *cpu, uint32_t count, struct shared **out, ash_diag *diag) {
    const ash_allocator *a = cpu->allocator;
    const ash_cpu_list *list = &cpu->issued.lists[0];
    struct shared *shared = ash_mem_calloc(a, 1, sizeof *shared);
    if (!shared) return ASH_NO_MEMORY(diag);
    *shared = (struct shared){.acts = ash_mem_alloc(a, count, sizeof *shared->acts), .count = count};
    atomic_init(&shared->refs, 1);
    ash_entry_frame frame = {launch_from_entry, copy_from_entry};
    ash_status status = shared->acts ? ASH_OK : ASH_NO_MEMORY(diag);
    if (status == ASH_OK)
        status = cpu->maker(cpu->context, list->commands, list->count, &frame, &shared->entry, diag);
    if (status != ASH_OK) {
        release_shared(a, shared);
        return status;
    }
    const void *first = ash_command__first(list->commands, list->count);
    for (uint32_t i = 0, n = 0; i < list->count; i++)
        if (ash_command__work(&list->commands[i])) shared->acts[n++] = act_of(&list->commands[i], first);
    *out = shared;
    return ASH_OK;
}

static ash_status make_entry(ash_cpu *cpu, const ash_capture *like, ash_capture *capture, ash_diag *diag) {
    const ash_cpu_list *list = &cpu->issued.lists[0];
    const void *first = ash_command__first(list->commands, list->count);
    capture->place = (ash_entry_place){cpu->stop.asked, &cpu->done, first};
    capture->compiled = !like || !like->shared || !does(like->shared, list);
    if (capture->compiled) return compile(cpu, capture->count, &capture->shared, diag);
    capture->shared = like->shared;
    atomic_fetch_add(&capture->shared->refs, 1);
    return ASH_OK;
}

/* A copy of what was issued, with no more room than it needs. */
static ash_status keep_queues(ash_cpu *cpu, ash_cpu_queues *out, ash_diag *diag) {
    const ash_allocator *a = cpu->allocator;
    const ash_cpu_queues *from = &cpu->issued;
    out->lists = ash_mem_calloc(a, cpu->n_streams, sizeof *out->lists);
    out->marks = ash_mem_calloc(a, cpu->n_events, sizeof *out->marks);
    bool made = out->lists && out->marks;
    for (uint32_t i = 0; made && i < cpu->n_streams; i++) {
        const ash_cpu_list *list = &from->lists[i];
        ash_command *commands = ash_mem_alloc(a, list->count, sizeof *commands);
        made = commands != NULL;
        if (!made) break;
        if (list->count) memcpy(commands, list->commands, list->count * sizeof *commands);
        out->lists[i] = (ash_cpu_list){commands, list->count, list->count, list->records};
    }
    if (made) {
        if (cpu->n_events) memcpy(out->marks, from->marks, cpu->n_events * sizeof *out->marks);
        return ASH_OK;
    }
    ash_cpu__free_queues(cpu, out);
    return ASH_NO_MEMORY(diag);
}

static void capture_free(ash_streams *streams, ash_capture *capture) {
    ash_cpu *cpu = ash_cpu__of(streams);
    if (!capture) return;
    release_shared(cpu->allocator, capture->shared);
    ash_cpu__free_queues(cpu, &capture->queues);
    ash_mem_free(cpu->allocator, capture, 1, sizeof *capture);
}

static ash_status make_capture(ash_cpu *cpu, const ash_capture *like, ash_capture **out, ash_diag *diag) {
    ASH_FAIL_IF(cpu->issued.full, diag, ASH_ERROR_INTERNAL,
                "a stream has more commands than were announced");
    ash_capture *capture = ash_mem_calloc(cpu->allocator, 1, sizeof *capture);
    if (!capture) return ASH_NO_MEMORY(diag);
    for (uint32_t s = 0; s < cpu->n_streams; s++)
        for (uint32_t i = 0; i < cpu->issued.lists[s].count; i++)
            capture->count += ash_command__work(&cpu->issued.lists[s].commands[i]) != NULL;
    ash_status status = cpu->n_streams > 1 ? keep_queues(cpu, &capture->queues, diag)
                                           : make_entry(cpu, like, capture, diag);
    if (status == ASH_OK)
        *out = capture;
    else
        capture_free(&cpu->base, capture);
    return status;
}

static ash_status capture_end(ash_streams *streams, const ash_capture *like, ash_capture **out,
                              ash_diag *diag) {
    ash_cpu *cpu = ash_cpu__of(streams);
    ash_status status = make_capture(cpu, like, out, diag);
    if (cpu->n_streams > 1)
        ash_cpu__clear_queues(cpu);
    else
        ash_cpu__free_queues(cpu, &cpu->issued);
    set_class(cpu);
    return status;
}

static ash_status replay(ash_streams *streams, const ash_capture *capture, ash_diag *diag) {
    ash_cpu *cpu = ash_cpu__of(streams);
    if (cpu->n_streams > 1)
        ash_cpu__run_queues(cpu, &capture->queues);
    else if (!capture->shared->entry.run(streams, &capture->place))
        ash_stop__set_left_out(&cpu->stop, true);
    return ash_cpu__end(cpu, diag);
}

static uint32_t captured(const ash_capture *capture) {
    return capture->count;
}

static bool compiled(const ash_capture *capture) {
    return capture->compiled;
}

/* --- life --------------------------------------------------------------------------------------- */

static void destroy(ash_streams *streams) {
    ash_cpu *cpu = ash_cpu__of(streams);
    const ash_allocator *a = cpu->allocator;
    ash_cpu__free_queues(cpu, &cpu->issued);
    ash_cpu__free_streams(cpu);
    ash_mem_free(a, cpu->rooms, cpu->n_streams, sizeof *cpu->rooms);
    pthread_mutex_destroy(&cpu->lock);
    pthread_cond_destroy(&cpu->wake);
    a->free(a->user, cpu, sizeof *cpu);
}

static const ash_streams here = {.launch = launch_here,
                                 .copy = copy_here,
                                 .call = call_here,
                                 .record = pass,
                                 .wait = pass,
                                 .stop = ash_cpu__stop,
                                 .finish = finish_here,
                                 .done = done_here};

static void set_class(ash_cpu *cpu) {
    cpu->base = cpu->n_streams > 1 ? ash_cpu__queued : here;
    cpu->base.class = &ash_stream__cpu;
    cpu->base.stop_word = &cpu->stop;
    cpu->base.counts = get_counts;
    cpu->base.capture_begin = capture_begin;
    cpu->base.capture_end = capture_end;
    cpu->base.replay = replay;
    cpu->base.capture_free = capture_free;
    cpu->base.captured = captured;
    cpu->base.compiled = compiled;
}

static ash_status create(ash_context *context, const ash_streams_options *options, ash_streams **out,
                         ash_diag *diag) {
    const ash_allocator *a = ash_context__allocator(context);
    *out = NULL;
    ASH_FAIL_IF(options->streams == 0, diag, ASH_ERROR_INVALID_ARGUMENT, "no streams are asked for");
    ash_cpu *cpu = a->alloc(a->user, sizeof *cpu, ASH_CPU_LINE);
    if (!cpu) return ASH_NO_MEMORY(diag);
    memset(cpu, 0, sizeof *cpu);
    cpu->context = context;
    cpu->allocator = a;
    cpu->maker = options->maker;
    cpu->stop.asked = options->cancel ? options->cancel : &ash_cancel__never;
    cpu->threads = ASH_MAX(options->threads, 1u);
    cpu->n_streams = options->streams;
    cpu->n_events = options->events;
    set_class(cpu);
    pthread_mutex_init(&cpu->lock, NULL);
    pthread_cond_init(&cpu->wake, NULL);
    cpu->rooms = ash_mem_alloc(a, cpu->n_streams, sizeof *cpu->rooms);
    for (uint32_t i = 0; cpu->rooms && i < cpu->n_streams; i++)
        cpu->rooms[i] = options->shares ? options->shares[i] : options->commands;
    ash_status status = cpu->rooms ? ASH_OK : ASH_NO_MEMORY(diag);
    if (status == ASH_OK && cpu->threads > 1) status = ash_pool__get(context, &cpu->pool, diag);
    if (status == ASH_OK && cpu->n_streams > 1) status = ash_cpu__make_streams(cpu, diag);
    if (status == ASH_OK && cpu->n_streams > 1) status = ash_cpu__make_queues(cpu, diag);
    if (status == ASH_OK)
        *out = &cpu->base;
    else
        destroy(&cpu->base);
    return status;
}

const ash_stream_class ash_stream__cpu = {.kind = "CPU", .create = create, .destroy = destroy};
