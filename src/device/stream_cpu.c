/* SPDX-License-Identifier: MIT */
/* Streams of the CPU.
 *
 * Kernels are functions, and addresses are pointers. One stream is the calling thread itself: a command
 * runs when it is issued. A capture of it is a function of machine code that does what the commands say,
 * one after the other. Several streams are queues that threads take turns to run (stream_queue.c), and a
 * capture of them is the filled queues. */
#include "stream_cpu.h"
#include "base/denormals.h"

/* --- what all share ----------------------------------------------------------------------------- */

static inline ash_kernel_fn code_of(const ash_kernel *kernel) {
    return (ash_kernel_fn)(uintptr_t)kernel;
}

static inline void *const *pointers(const ash_address *table) {
    return (void *const *)table;
}

/* Buffers that overlap are one, whose bytes move in one go. */
static void copy(ash_cpu *cpu, const ash_transfer *copy) {
    char *to = (char *)copy->buffers[1] + copy->to, *from = (char *)copy->buffers[0] + copy->from;
    bool apart = to >= from + copy->bytes || from >= to + copy->bytes;
    int64_t piece = apart ? ash_costs__cpu.copy_bytes : copy->bytes;
    for (int64_t done = 0; done < copy->bytes && !(done && ash_cpu__stops(cpu)); done += piece)
        memmove(to + done, from + done, (size_t)ASH_MIN(piece, copy->bytes - done));
}

static void fill(const ash_fill *fill) {
    if (fill->left && atomic_fetch_sub(fill->left, 1) != 1) return;
    if (fill->bytes) memset((void *)*fill->buffer, fill->value, fill->bytes);
}

void ash_cpu__move(ash_cpu *cpu, const ash_command *command) {
    switch (command->kind) {
    case ASH_COMMAND_COPY: copy(cpu, command->copy); break;
    case ASH_COMMAND_STORE:
        memcpy((void *)*command->store->buffer, command->store->value, sizeof *command->store->value);
        break;
    default: fill(command->fill);
    }
}

bool ash_cpu__note_left_out(ash_cpu *cpu) {
    ash_stop__set_left_out(&cpu->stop, true);
    return true;
}

/* Kernels run in the thread's mode, which is that of these streams, and functions of the host in the usual
 * one. */
static inline void run_piece(const ash_command *command, int64_t begin, int64_t end, unsigned worker) {
    const ash_launch *launch = command->launch;
    const ash_host *host = command->host;
    if (command->kind == ASH_COMMAND_LAUNCH) {
        code_of(launch->kernel)(pointers(launch->buffers), launch->vars, begin, end, worker);
        return;
    }
    uint64_t mode = ash_denormals__set(false);
    host->fn(host->arg, pointers(host->buffers), begin, end, worker);
    ash_denormals__restore(mode);
}

void ash_cpu__run_range(ash_cpu *cpu, const ash_command *command, int64_t begin, int64_t end,
                        unsigned worker) {
    int64_t piece = ash_cpu__chunks(command)->piece;
    if (piece == 0) {
        run_piece(command, begin, end, worker);
        return;
    }
    for (int64_t next; begin < end && !ash_cpu__stops(cpu); begin = next) {
        next = end - begin > piece ? begin + piece : end;
        run_piece(command, begin, next, worker);
    }
}

ash_status ash_cpu__end(ash_cpu *cpu, ash_diag *diag) {
    if (!ash_stop__has_left_out(&cpu->stop)) return ASH_OK;
    ash_stop__set_left_out(&cpu->stop, false);
    return ash_fail(diag, ASH_ERROR_CANCELLED, "the execution was cancelled");
}

static void stop(ash_streams *streams) {
    ash_cpu__note_left_out(ash_cpu__of(streams));
}

static ash_streams_counts get_counts(const ash_streams *streams) {
    return ((const ash_cpu *)streams)->counts;
}

/* --- one stream: the calling thread ------------------------------------------------------------- */

/* What all threads of a launch need, in a line that nobody writes to meanwhile. */
struct chunk_run {
    _Alignas(ASH_LINE_BYTES) ash_cpu *cpu;
    ash_command command;
    bool flush;
};

static void run_chunks(void *arg, int64_t begin, int64_t end, unsigned worker) {
    const struct chunk_run *run = arg;
    int64_t first = ash_cpu__chunks(&run->command)->begin;
    uint64_t mode = ash_denormals__set(run->flush);
    ash_cpu__run_range(run->cpu, &run->command, first + begin, first + end, worker);
    ash_denormals__restore(mode);
}

static unsigned run_on_threads(ash_cpu *cpu, const ash_command *command) {
    const ash_chunks *chunks = ash_cpu__chunks(command);
    struct chunk_run run = {cpu, *command, cpu->flush};
    const ash_launch_ahead *ahead = command->kind == ASH_COMMAND_LAUNCH ? &command->launch->ahead : NULL;
    const void *next = ahead && ahead->buffer ? (const void *)*ahead->buffer : NULL;
    ash_pool__set_ahead(cpu->pool, next, next ? ahead->bytes : 0, next ? ahead->most : 0);
    return ash_pool__run(cpu->pool, cpu->threads, chunks->end - chunks->begin, run_chunks, &run);
}

/* What has no chunks. */
static void run_other(ash_cpu *cpu, const ash_command *command) {
    if (command->kind == ASH_COMMAND_REPEAT)
        ash_cpu__repeat(cpu, command->repeat);
    else
        ash_cpu__move(cpu, command);
}

void ash_cpu__run_within(ash_streams *streams, ash_streams *within, uint32_t stream, unsigned worker) {
    ash_cpu *cpu = ash_cpu__of(streams);
    cpu->within = ash_cpu__of(within);
    cpu->stream = stream;
    cpu->worker = worker;
}

/* What is left out there leaves out what follows here. */
static unsigned run_shared(ash_cpu *cpu, const ash_command *command) {
    unsigned threads = ash_cpu__share(cpu->within, cpu->stream, command, cpu->worker);
    if (ash_stop__has_left_out(&cpu->within->stop)) ash_cpu__note_left_out(cpu);
    return threads;
}

/* Threads that ran a part of it. */
static inline unsigned run_work(ash_cpu *cpu, const ash_command *command) {
    if (!ash_cpu__has_chunks(command)) {
        run_other(cpu, command);
        return 1;
    }
    const ash_chunks *chunks = ash_cpu__chunks(command);
    if (chunks->end <= chunks->begin) return 1;
    if (chunks->parallel && cpu->within) return run_shared(cpu, command);
    if (chunks->parallel && cpu->pool && cpu->n_streams == 1) return run_on_threads(cpu, command);
    ash_cpu__run_range(cpu, command, chunks->begin, chunks->end, 0);
    return 1;
}

void ash_cpu__repeat(ash_cpu *cpu, const ash_repeat *repeat) {
    for (uint64_t turn = 0; !ash_cpu__stops(cpu); turn++) {
        bool look = turn && *repeat->look;
        int next = repeat->next(repeat->arg, turn, !look || *(const bool *)*repeat->look);
        if (next == ASH_REPEAT_OVER) return;
        const ash_command_list *list = &repeat->lists[next];
        for (uint32_t i = 0; i < list->count && !ash_cpu__stops(cpu); i++)
            run_work(cpu, &list->commands[i]);
    }
}

/* A step is over, unless the switch has left a part of it out. */
static inline void count_here(ash_cpu *cpu) {
    if (ash_stop__has_left_out(&cpu->stop)) return;
    uint64_t done = atomic_load_explicit(&cpu->done, memory_order_relaxed) + 1;
    atomic_store_explicit(&cpu->done, done, memory_order_relaxed);
}

/* A kernel that is called once, and nothing else: what most commands are. */
static inline bool is_call(const ash_command *command) {
    return command->kind == ASH_COMMAND_LAUNCH && !command->timing &&
           !ash_launch__has_parts(command->launch);
}

static void run_timed(ash_cpu *cpu, const ash_command *command) {
    if (command->timing) command->timing->start = ash_clock__now();
    unsigned threads = run_work(cpu, command);
    if (command->timing) *command->timing = (ash_timing){command->timing->start, ash_clock__now(), threads};
}

/* What was recorded has happened. */
static void run_here(ash_cpu *cpu, const ash_command *commands, size_t count) {
    for (const ash_command *c = commands, *end = c + count; c < end; c++) {
        if (!ash_command__works(c)) continue;
        if (ash_cpu__stops(cpu)) return;
        if (is_call(c)) {
            const ash_chunks *chunks = &c->launch->chunks;
            if (chunks->begin < chunks->end) run_piece(c, chunks->begin, chunks->end, 0);
        } else {
            run_timed(cpu, c);
        }
        if (ash_command__is_step(c)) count_here(cpu);
    }
}

static void issue_here(ash_streams *streams, const ash_command *commands, size_t count) {
    ash_cpu *cpu = ash_cpu__of(streams);
    uint64_t mode = ash_denormals__set(cpu->flush);
    run_here(cpu, commands, count);
    ash_denormals__restore(mode);
}

static ash_status finish_here(ash_streams *streams, ash_diag *diag) {
    return ash_cpu__end(ash_cpu__of(streams), diag);
}

static uint64_t done_here(const ash_streams *streams) {
    return atomic_load_explicit(&((const ash_cpu *)streams)->done, memory_order_relaxed);
}

/* --- captures of one stream --------------------------------------------------------------------- */

/* What an entry does at one command, and cannot do otherwise. */
struct act {
    ash_command_kind kind;
    bool whole; /* a launch whose kernel it calls itself, */
    int64_t at,
        to; /* from this chunk on, to that one or, -1, to one that it reads; or: of a copy the first byte
                        in source and target */
    uint64_t offset; /* bytes from the first work */
};

/* An entry, shared by captures that do the same at other places. */
struct shared_entry {
    _Atomic long refs;
    ash_entry entry;
    struct act *acts;
    uint32_t count;
};

struct ash_capture {
    struct shared_entry *shared; /* of one stream */
    ash_entry_place place;
    bool compiled;
    ash_cpu_queues queues; /* of several */
    uint32_t steps;
};

static bool run_from_entry(void *streams, ash_command_kind kind, const void *work) {
    ash_cpu *cpu = streams;
    run_work(cpu, &(ash_command){.kind = kind, .work = work});
    return !ash_stop__has_left_out(&cpu->stop);
}

static bool launch_from_entry(void *streams, const void *work) {
    return run_from_entry(streams, ASH_COMMAND_LAUNCH, work);
}

static bool copy_from_entry(void *streams, const void *work) {
    return run_from_entry(streams, ASH_COMMAND_COPY, work);
}

static bool host_from_entry(void *streams, const void *work) {
    return run_from_entry(streams, ASH_COMMAND_HOST, work);
}

static bool repeat_from_entry(void *streams, const void *work) {
    return run_from_entry(streams, ASH_COMMAND_REPEAT, work);
}

static bool fill_from_entry(void *streams, const void *work) {
    return run_from_entry(streams, ASH_COMMAND_FILL, work);
}

static struct act act_of(const ash_command *command, const void *first) {
    struct act act = {.kind = command->kind, .offset = (uintptr_t)command->work - (uintptr_t)first};
    if (command->kind == ASH_COMMAND_COPY) {
        act.at = command->copy->from;
        act.to = command->copy->to;
    } else if (command->kind == ASH_COMMAND_LAUNCH && !ash_launch__has_parts(command->launch)) {
        act.whole = true;
        act.at = command->launch->chunks.begin;
        act.to = command->launch->chunks.fixed ? command->launch->chunks.end : -1;
    }
    return act;
}

static bool is_same_act(const struct act *a, const struct act *b) {
    return a->kind == b->kind && a->whole == b->whole && a->at == b->at && a->to == b->to &&
           a->offset == b->offset;
}

/* Whether an entry does what the commands say. */
static bool does(const struct shared_entry *shared, const ash_command *commands, size_t count) {
    const void *first = ash_command__first(commands, count);
    uint32_t n = 0;
    for (const ash_command *c = commands; c < commands + count; c++) {
        if (c->timing) return false;
        if (!ash_command__works(c)) continue;
        struct act act = act_of(c, first);
        if (n == shared->count || !is_same_act(&act, &shared->acts[n++])) return false;
    }
    return n == shared->count;
}

static void release_shared(const ash_allocator *a, struct shared_entry *shared) {
    if (!shared || atomic_fetch_sub(&shared->refs, 1) != 1) return;
    if (shared->entry.release) shared->entry.release(shared->entry.owner);
    ash_mem_free(a, shared->acts, shared->count, sizeof *shared->acts);
    ash_mem_free(a, shared, 1, sizeof *shared);
}

static ash_status compile(ash_cpu *cpu, const ash_command *commands, size_t count,
                          struct shared_entry **out, ash_diag *diag) {
    const ash_allocator *a = cpu->allocator;
    struct shared_entry *shared = ash_mem_calloc(a, 1, sizeof *shared);
    if (!shared) return ASH_NO_MEMORY(diag);
    atomic_init(&shared->refs, 1);
    for (size_t i = 0; i < count; i++) shared->count += ash_command__works(&commands[i]);
    shared->acts = ash_mem_alloc(a, shared->count, sizeof *shared->acts);
    ash_status status = shared->acts ? ASH_OK : ASH_NO_MEMORY(diag);
    if (status == ASH_OK) status = cpu->maker(cpu->context, commands, count, &shared->entry, diag);
    if (status != ASH_OK) {
        release_shared(a, shared);
        return status;
    }
    const void *first = ash_command__first(commands, count);
    for (size_t i = 0, n = 0; i < count; i++)
        if (ash_command__works(&commands[i])) shared->acts[n++] = act_of(&commands[i], first);
    *out = shared;
    return ASH_OK;
}

static ash_status make_entry(ash_cpu *cpu, const ash_command *commands, size_t count,
                             const ash_capture *like, ash_capture *capture, ash_diag *diag) {
    capture->place = (ash_entry_place){.cancel = cpu->stop.asked,
                                       .done = &cpu->done,
                                       .first = ash_command__first(commands, count),
                                       .run = {[ASH_COMMAND_LAUNCH] = launch_from_entry,
                                               [ASH_COMMAND_COPY] = copy_from_entry,
                                               [ASH_COMMAND_HOST] = host_from_entry,
                                               [ASH_COMMAND_REPEAT] = repeat_from_entry,
                                               [ASH_COMMAND_FILL] = fill_from_entry}};
    capture->compiled = !like || !like->shared || !does(like->shared, commands, count);
    if (capture->compiled) {
        ASH_FAIL_IF(!cpu->maker, diag, ASH_ERROR_UNSUPPORTED,
                    "these streams were made without a code generator");
        return compile(cpu, commands, count, &capture->shared, diag);
    }
    capture->shared = like->shared;
    atomic_fetch_add(&capture->shared->refs, 1);
    return ASH_OK;
}

/* --- captures of several ------------------------------------------------------------------------ */

static ash_status fill_queues(const ash_cpu *cpu, const ash_command *commands, size_t count,
                              ash_cpu_queues *out, ash_diag *diag) {
    uint32_t *rooms = ash_mem_calloc(cpu->allocator, cpu->n_streams, sizeof *rooms);
    if (!rooms) return ASH_NO_MEMORY(diag);
    for (size_t i = 0; i < count; i++) rooms[commands[i].stream]++;
    ash_status status = ash_cpu__make_queues(cpu, rooms, out, diag);
    ash_mem_free(cpu->allocator, rooms, cpu->n_streams, sizeof *rooms);
    if (status == ASH_OK) ash_cpu__enqueue(out, commands, count);
    return status;
}

/* --- captures ----------------------------------------------------------------------------------- */

static void capture_free(ash_streams *streams, ash_capture *capture) {
    ash_cpu *cpu = ash_cpu__of(streams);
    if (!capture) return;
    release_shared(cpu->allocator, capture->shared);
    ash_cpu__free_queues(cpu, &capture->queues);
    ash_mem_free(cpu->allocator, capture, 1, sizeof *capture);
}

static ash_status instantiate(ash_streams *streams, const ash_command *commands, size_t count,
                              const ash_capture *like, ash_capture **out, ash_diag *diag) {
    ash_cpu *cpu = ash_cpu__of(streams);
    ash_capture *capture = ash_mem_calloc(cpu->allocator, 1, sizeof *capture);
    if (!capture) return ASH_NO_MEMORY(diag);
    for (size_t i = 0; i < count; i++) capture->steps += ash_command__is_step(&commands[i]);
    ash_status status = cpu->n_streams > 1 ? fill_queues(cpu, commands, count, &capture->queues, diag)
                                           : make_entry(cpu, commands, count, like, capture, diag);
    if (status == ASH_OK)
        *out = capture;
    else
        capture_free(streams, capture);
    return status;
}

static ash_status replay(ash_streams *streams, const ash_capture *capture, ash_diag *diag) {
    ash_cpu *cpu = ash_cpu__of(streams);
    uint64_t mode = ash_denormals__set(cpu->flush);
    if (cpu->n_streams > 1)
        ash_cpu__run_queues(cpu, &capture->queues);
    else if (!capture->shared->entry.run(streams, &capture->place))
        ash_stop__set_left_out(&cpu->stop, true);
    ash_denormals__restore(mode);
    return ash_cpu__end(cpu, diag);
}

static uint32_t captured(const ash_capture *capture) {
    return capture->steps;
}

static uint32_t graphs(const ash_capture *capture) {
    (void)capture;
    return 1;
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
    pthread_mutex_destroy(&cpu->lock);
    pthread_cond_destroy(&cpu->wake);
    a->free(a->user, cpu, sizeof *cpu);
}

static void issue_queued(ash_streams *streams, const ash_command *commands, size_t count) {
    ash_cpu__enqueue(&ash_cpu__of(streams)->issued, commands, count);
}

static const ash_stream_class one = {.kind = "CPU",
                                     .destroy = destroy,
                                     .issue = issue_here,
                                     .stop = stop,
                                     .finish = finish_here,
                                     .counts = get_counts,
                                     .done = done_here,
                                     .instantiate = instantiate,
                                     .replay = replay,
                                     .capture_free = capture_free,
                                     .captured = captured,
                                     .graphs = graphs,
                                     .compiled = compiled};

static const ash_stream_class several = {.kind = "CPU",
                                         .destroy = destroy,
                                         .issue = issue_queued,
                                         .stop = stop,
                                         .finish = ash_cpu__finish_queues,
                                         .counts = get_counts,
                                         .done = ash_cpu__done_queues,
                                         .instantiate = instantiate,
                                         .replay = replay,
                                         .capture_free = capture_free,
                                         .captured = captured,
                                         .graphs = graphs,
                                         .compiled = compiled};

static ash_status make_issued(ash_cpu *cpu, const ash_streams_options *options, ash_diag *diag) {
    const ash_allocator *a = cpu->allocator;
    uint32_t *rooms = ash_mem_alloc(a, cpu->n_streams, sizeof *rooms);
    if (!rooms) return ASH_NO_MEMORY(diag);
    for (uint32_t i = 0; i < cpu->n_streams; i++)
        rooms[i] = options->shares ? options->shares[i] : options->commands;
    ash_status status = ash_cpu__make_queues(cpu, rooms, &cpu->issued, diag);
    ash_mem_free(a, rooms, cpu->n_streams, sizeof *rooms);
    return status;
}

ash_status ash_cpu__create_streams(ash_device *device, const ash_streams_options *options,
                                   ash_streams **out, ash_diag *diag) {
    ash_context *context = ash_device__context(device);
    const ash_allocator *a = ash_context__allocator(context);
    ash_cpu *cpu = a->alloc(a->user, sizeof *cpu, ASH_LINE_BYTES);
    if (!cpu) return ASH_NO_MEMORY(diag);
    memset(cpu, 0, sizeof *cpu);
    cpu->base.class = options->streams > 1 ? &several : &one;
    cpu->base.stop = (ash_address)&cpu->stop;
    cpu->context = context;
    cpu->allocator = a;
    cpu->maker = options->maker;
    cpu->stop.asked = options->cancel ? options->cancel : &ash_cancel__never;
    cpu->threads = ASH_MAX(options->threads, 1u);
    cpu->flush = !options->keep_denormals;
    cpu->n_streams = options->streams;
    cpu->first = options->first;
    cpu->n_events = options->events;
    pthread_mutex_init(&cpu->lock, NULL);
    pthread_cond_init(&cpu->wake, NULL);
    ash_status status = cpu->threads > 1 ? ash_pool__get(context, &cpu->pool, diag) : ASH_OK;
    if (status == ASH_OK && cpu->n_streams > 1) status = ash_cpu__make_streams(cpu, diag);
    if (status == ASH_OK && cpu->n_streams > 1) status = make_issued(cpu, options, diag);
    if (status == ASH_OK)
        *out = &cpu->base;
    else
        destroy(&cpu->base);
    return status;
}
