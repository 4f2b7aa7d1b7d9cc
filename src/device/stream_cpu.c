/* Streams of the CPU.
 *
 * One stream is the calling thread itself: a command runs when it is issued. A capture of it is a function
 * of machine code that does what the commands say, one after the other.
 *
 * Several are queues, and threads are not bound to them: whoever has nothing to do takes a stream that
 * nobody runs, and runs its commands until it ends or meets an event that has not happened. So the calling
 * thread never waits for a worker that the system has put aside, fewer threads than streams are no special
 * case, and more streams than processors use no more of these. A launch that is worth several threads is
 * shared: threads that find no stream to run take chunks of it, as in the pool (base/pool.c has the
 * argument why a late one can do no harm).
 *
 * `changes` counts what can make a thread useful again: an event happened, a shared launch began or ended,
 * a stream ended. Who finds nothing to do reads it, looks once more, spins shortly while it stays the same,
 * and sleeps. */
#include <pthread.h>
#include <stdatomic.h>

#include "base/clock.h"
#include "base/pool.h"
#include "stream.h"

enum {
    LINE = 64,
    SPIN_NS = 10000 /* an idle thread sleeps after so long */
};

/* A launch that several threads run, while its stream waits for it. */
struct shared {
    _Alignas(LINE) _Atomic uint64_t work; /* number of the launch << 32 | chunks that are not taken */
    _Atomic(const ash_launch *) launch; /* the rest describes it: written before `work`, and constant until
                                           all chunks are done */
    _Atomic uint32_t units;
    _Alignas(LINE) _Atomic uint32_t done; /* chunks that have run */
    _Atomic uint32_t threads;             /* that ran some */
};

struct stream {
    _Alignas(LINE) atomic_bool held; /* a thread runs its commands; guards `next` and `over` */
    bool over;                       /* all commands of this round have run */
    uint32_t next, count;            /* command to run, commands issued */
    ash_command *commands;
    struct shared shared;
};

struct cpu {
    ash_streams base;
    ash_context *context;
    const ash_allocator *allocator;
    ash_entry_maker maker;
    ash_pool *pool; /* NULL: one thread */
    unsigned threads;
    uint32_t n_streams, n_events, room; /* room: commands of each stream */
    struct stream *streams;
    _Atomic uint32_t *events; /* the last round in which each happened */
    uint32_t round;
    bool full; /* more commands were issued than there is room for */
    ash_streams_counts counts;

    _Alignas(LINE) _Atomic uint32_t changes;
    _Atomic uint32_t left; /* streams that are not over */
    _Alignas(LINE) _Atomic uint32_t running;
    _Atomic uint64_t overlapped;
    _Alignas(LINE) pthread_mutex_t lock; /* for sleeping */
    pthread_cond_t wake;
    _Atomic uint32_t asleep;
};

static struct cpu *of(ash_streams *streams) {
    return (struct cpu *)streams;
}

static void move(const ash_transfer *copy) {
    if (copy->bytes > 0)
        memmove((char *)copy->buffers[1] + copy->to, (char *)copy->buffers[0] + copy->from,
                (size_t)copy->bytes);
}

/* --- one stream: the calling thread ------------------------------------------------------------- */

static void run_chunks(void *arg, int64_t begin, int64_t end, unsigned worker) {
    const ash_launch *launch = arg;
    launch->fn(launch->buffers, launch->vars, launch->begin + begin, launch->begin + end, worker);
}

static unsigned run_here(struct cpu *cpu, const ash_launch *launch) {
    if (launch->end <= launch->begin) return 1;
    if (launch->parallel && cpu->pool)
        return ash_pool__run(cpu->pool, cpu->threads, launch->end - launch->begin, run_chunks,
                             (void *)launch);
    launch->fn(launch->buffers, launch->vars, launch->begin, launch->end, 0);
    return 1;
}

static void launch_here(ash_streams *streams, uint32_t stream, const ash_launch *launch,
                        ash_timing *timing) {
    (void)stream;
    if (!timing) {
        run_here(of(streams), launch);
        return;
    }
    timing->start = ash_clock__now();
    timing->threads = run_here(of(streams), launch);
    timing->end = ash_clock__now();
}

static void copy_here(ash_streams *streams, uint32_t stream, const ash_transfer *copy, ash_timing *timing) {
    (void)streams, (void)stream;
    if (timing) timing->start = ash_clock__now();
    move(copy);
    if (timing) *timing = (ash_timing){timing->start, ash_clock__now(), 1};
}

static void call_here(ash_streams *streams, uint32_t stream, void (*fn)(void *arg), void *arg) {
    (void)streams, (void)stream;
    fn(arg);
}

/* What was recorded has happened. */
static void pass(ash_streams *streams, uint32_t stream, uint32_t event) {
    (void)streams, (void)stream, (void)event;
}

static ash_status finish_here(ash_streams *streams, ash_diag *diag) {
    (void)streams, (void)diag;
    return ASH_OK;
}

static ash_streams_counts get_counts(const ash_streams *streams) {
    return ((const struct cpu *)streams)->counts;
}

/* --- queues ------------------------------------------------------------------------------------- */

static void free_queues(struct cpu *cpu) {
    const ash_allocator *a = cpu->allocator;
    for (uint32_t i = 0; cpu->streams && i < cpu->n_streams; i++)
        ash_mem_free(a, cpu->streams[i].commands, cpu->room, sizeof(ash_command));
    if (cpu->streams) a->free(a->user, cpu->streams, cpu->n_streams * sizeof *cpu->streams);
    ash_mem_free(a, (void *)cpu->events, cpu->n_events, sizeof *cpu->events);
    cpu->streams = NULL;
    cpu->events = NULL;
}

static ash_status make_queues(struct cpu *cpu, ash_diag *diag) {
    const ash_allocator *a = cpu->allocator;
    size_t bytes = cpu->n_streams * sizeof *cpu->streams;
    cpu->streams = a->alloc(a->user, bytes, LINE);
    bool made = cpu->streams != NULL;
    if (made) memset(cpu->streams, 0, bytes);
    for (uint32_t i = 0; made && i < cpu->n_streams; i++)
        made = (cpu->streams[i].commands = ash_mem_calloc(a, cpu->room, sizeof(ash_command))) != NULL;
    if (made) made = (cpu->events = ash_mem_calloc(a, cpu->n_events, sizeof *cpu->events)) != NULL;
    if (made) return ASH_OK;
    free_queues(cpu);
    return ASH_NO_MEMORY(diag);
}

/* --- several streams: issuing ------------------------------------------------------------------- */

static ash_command *add(ash_streams *streams, uint32_t stream, ash_command_kind kind) {
    static ash_command nowhere;
    struct cpu *cpu = of(streams);
    struct stream *s = &cpu->streams[stream];
    if (s->count == cpu->room) {
        cpu->full = true;
        return &nowhere;
    }
    ash_command *command = &s->commands[s->count++];
    command->kind = kind;
    return command;
}

static void launch_later(ash_streams *streams, uint32_t stream, const ash_launch *launch,
                         ash_timing *timing) {
    ash_command *command = add(streams, stream, ASH_COMMAND_LAUNCH);
    command->launch = launch;
    command->timing = timing;
}

static void copy_later(ash_streams *streams, uint32_t stream, const ash_transfer *copy,
                       ash_timing *timing) {
    ash_command *command = add(streams, stream, ASH_COMMAND_COPY);
    command->copy = copy;
    command->timing = timing;
}

static void call_later(ash_streams *streams, uint32_t stream, void (*fn)(void *arg), void *arg) {
    ash_command *command = add(streams, stream, ASH_COMMAND_CALL);
    command->call.fn = fn;
    command->call.arg = arg;
}

static void record_later(ash_streams *streams, uint32_t stream, uint32_t event) {
    add(streams, stream, ASH_COMMAND_RECORD)->event = event;
}

static void wait_later(ash_streams *streams, uint32_t stream, uint32_t event) {
    add(streams, stream, ASH_COMMAND_WAIT)->event = event;
}

/* --- changes: threads that find nothing to do sleep ---------------------------------------------- */

static void tell(struct cpu *cpu) {
    atomic_fetch_add(&cpu->changes, 1);
    if (atomic_load(&cpu->asleep) == 0) return;
    pthread_mutex_lock(&cpu->lock);
    pthread_cond_broadcast(&cpu->wake);
    pthread_mutex_unlock(&cpu->lock);
}

static void relax(void) {
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("isb" ::: "memory");
#endif
}

/* Returns when `changes` is no longer `seen`. Who goes to sleep announces it and looks again; who changes
 * something counts it and looks at the announcements. */
static void wait_for_change(struct cpu *cpu, uint32_t seen) {
    int64_t end = ash_clock__now() + SPIN_NS;
    do {
        for (int i = 0; i < 64; i++) {
            if (atomic_load_explicit(&cpu->changes, memory_order_acquire) != seen) return;
            relax();
        }
    } while (ash_clock__now() < end);
    pthread_mutex_lock(&cpu->lock);
    atomic_fetch_add(&cpu->asleep, 1);
    while (atomic_load(&cpu->changes) == seen) pthread_cond_wait(&cpu->wake, &cpu->lock);
    atomic_fetch_sub(&cpu->asleep, 1);
    pthread_mutex_unlock(&cpu->lock);
}

/* --- shared launches ---------------------------------------------------------------------------- */

/* Runs chunks of the stream's launch until none is left to take: large pieces first. */
static bool help(struct cpu *cpu, struct stream *stream, unsigned worker) {
    struct shared *shared = &stream->shared;
    uint32_t ran = 0, units = 0;
    uint64_t work = atomic_load_explicit(&shared->work, memory_order_acquire);
    while ((uint32_t)work != 0) {
        uint32_t left = (uint32_t)work, take = ASH_MAX(left / (2 * cpu->threads), 1u);
        const ash_launch *launch = atomic_load_explicit(&shared->launch, memory_order_relaxed);
        units = atomic_load_explicit(&shared->units, memory_order_relaxed);
        if (!atomic_compare_exchange_weak_explicit(&shared->work, &work, work - take, memory_order_acq_rel,
                                                   memory_order_acquire))
            continue;
        ran += take;
        int64_t begin = launch->begin + (units - left);
        launch->fn(launch->buffers, launch->vars, begin, begin + take, worker);
        work = atomic_load_explicit(&shared->work, memory_order_acquire);
    }
    if (ran == 0) return false;
    atomic_fetch_add_explicit(&shared->threads, 1, memory_order_relaxed);
    units = atomic_load_explicit(&shared->units, memory_order_relaxed);
    if (atomic_fetch_add(&shared->done, ran) + ran == units) tell(cpu);
    return true;
}

static unsigned run_shared(struct cpu *cpu, struct stream *stream, const ash_launch *launch,
                           unsigned worker) {
    struct shared *shared = &stream->shared;
    uint32_t units = (uint32_t)(launch->end - launch->begin);
    atomic_store_explicit(&shared->launch, launch, memory_order_relaxed);
    atomic_store_explicit(&shared->units, units, memory_order_relaxed);
    atomic_store_explicit(&shared->threads, 0, memory_order_relaxed);
    atomic_store_explicit(&shared->done, 0, memory_order_relaxed);
    uint64_t number = (atomic_load_explicit(&shared->work, memory_order_relaxed) >> 32) + 1;
    atomic_store(&shared->work, number << 32 | units);
    tell(cpu);
    help(cpu, stream, worker);
    for (;;) {
        uint32_t seen = atomic_load(&cpu->changes);
        if (atomic_load(&shared->done) == units) break;
        wait_for_change(cpu, seen);
    }
    return atomic_load_explicit(&shared->threads, memory_order_relaxed);
}

/* --- running ------------------------------------------------------------------------------------ */

static unsigned run_launch(struct cpu *cpu, struct stream *stream, const ash_launch *launch,
                           unsigned worker) {
    int64_t chunks = launch->end - launch->begin;
    if (chunks <= 0) return 1;
    if (launch->parallel && cpu->pool && chunks > 1 && chunks < UINT32_MAX)
        return run_shared(cpu, stream, launch, worker);
    launch->fn(launch->buffers, launch->vars, launch->begin, launch->end, worker);
    return 1;
}

/* A launch or a copy. */
static void run_work(struct cpu *cpu, struct stream *stream, const ash_command *command, unsigned worker) {
    ash_timing *timing = command->timing;
    if (timing) timing->start = ash_clock__now();
    if (atomic_fetch_add_explicit(&cpu->running, 1, memory_order_relaxed) != 0)
        atomic_fetch_add_explicit(&cpu->overlapped, 1, memory_order_relaxed);
    unsigned threads = 1;
    if (command->kind == ASH_COMMAND_LAUNCH)
        threads = run_launch(cpu, stream, command->launch, worker);
    else
        move(command->copy);
    atomic_fetch_sub_explicit(&cpu->running, 1, memory_order_relaxed);
    if (timing) *timing = (ash_timing){timing->start, ash_clock__now(), threads};
}

static bool has_happened(struct cpu *cpu, uint32_t event) {
    return atomic_load_explicit(&cpu->events[event], memory_order_acquire) == cpu->round;
}

/* False: the stream waits. */
static bool run_command(struct cpu *cpu, struct stream *stream, const ash_command *command,
                        unsigned worker) {
    switch (command->kind) {
    case ASH_COMMAND_LAUNCH:
    case ASH_COMMAND_COPY: run_work(cpu, stream, command, worker); return true;
    case ASH_COMMAND_CALL: command->call.fn(command->call.arg); return true;
    case ASH_COMMAND_RECORD:
        atomic_store_explicit(&cpu->events[command->event], cpu->round, memory_order_release);
        tell(cpu);
        return true;
    case ASH_COMMAND_WAIT: return has_happened(cpu, command->event);
    }
    return true;
}

/* Runs a stream as far as it goes, unless another thread does. True when something has run. */
static bool run_stream(struct cpu *cpu, struct stream *stream, unsigned worker) {
    bool ran = false;
    for (;;) {
        if (atomic_exchange_explicit(&stream->held, true, memory_order_acquire)) return ran;
        uint32_t event = UINT32_MAX; /* that the stream waits for */
        while (stream->next < stream->count && event == UINT32_MAX) {
            const ash_command *command = &stream->commands[stream->next];
            if (run_command(cpu, stream, command, worker)) {
                stream->next++;
                ran = true;
            } else {
                event = command->event;
            }
        }
        bool ended = stream->next == stream->count && !stream->over;
        if (ended) stream->over = true;
        atomic_store_explicit(&stream->held, false, memory_order_release);
        if (ended) {
            atomic_fetch_sub(&cpu->left, 1);
            tell(cpu);
        }
        /* It may have happened while nobody else could take the stream. */
        if (event == UINT32_MAX || !has_happened(cpu, event)) return ran;
    }
}

static void run_round(void *arg, int64_t begin, int64_t end, unsigned worker) {
    struct cpu *cpu = arg;
    (void)begin, (void)end;
    while (atomic_load(&cpu->left) != 0) {
        uint32_t seen = atomic_load(&cpu->changes);
        bool ran = false;
        for (uint32_t i = 0; i < cpu->n_streams; i++)
            ran |= run_stream(cpu, &cpu->streams[(i + worker) % cpu->n_streams], worker);
        for (uint32_t i = 0; i < cpu->n_streams && !ran; i++) ran = help(cpu, &cpu->streams[i], worker);
        if (!ran && atomic_load(&cpu->left) != 0) wait_for_change(cpu, seen);
    }
}

static ash_status finish_later(ash_streams *streams, ash_diag *diag) {
    struct cpu *cpu = of(streams);
    bool full = cpu->full;
    uint32_t left = 0;
    for (uint32_t i = 0; i < cpu->n_streams; i++) {
        struct stream *s = &cpu->streams[i];
        s->next = 0;
        s->over = s->count == 0;
        left += s->count != 0;
    }
    if (++cpu->round == 0) cpu->round = 1;
    atomic_store_explicit(&cpu->overlapped, 0, memory_order_relaxed);
    atomic_store(&cpu->left, full ? 0 : left);
    if (left && !full) {
        unsigned threads = ASH_MIN(cpu->threads, 1024u);
        if (cpu->pool)
            ash_pool__run(cpu->pool, threads, threads, run_round, cpu);
        else
            run_round(cpu, 0, 1, 0);
    }
    for (uint32_t i = 0; i < cpu->n_streams; i++) cpu->streams[i].count = 0;
    cpu->counts.overlapped = atomic_load_explicit(&cpu->overlapped, memory_order_relaxed);
    cpu->full = false;
    return full ? ash_fail(diag, ASH_ERROR_INTERNAL, "more than %u commands on one stream", cpu->room)
                : ASH_OK;
}

/* What one stream does. */
static void set_here(struct cpu *cpu);

/* --- capturing ---------------------------------------------------------------------------------- */

struct ash_capture {
    ash_entry entry;
    uint32_t count; /* launches and copies */
};

static ash_status capture_none(ash_streams *streams, ash_diag *diag) {
    return ash_fail(diag, ASH_ERROR_UNSUPPORTED,
                    of(streams)->maker ? "the CPU captures one stream, and these are %u"
                                       : "these streams were made without a code generator (of %u)",
                    of(streams)->n_streams);
}

static ash_status capture_begin(ash_streams *streams, ash_diag *diag) {
    struct cpu *cpu = of(streams);
    if (!cpu->maker) return capture_none(streams, diag);
    cpu->n_streams = 1;
    ASH_TRY(make_queues(cpu, diag));
    cpu->base.launch = launch_later;
    cpu->base.copy = copy_later;
    cpu->base.call = call_later;
    cpu->base.record = record_later;
    cpu->base.wait = wait_later;
    return ASH_OK;
}

static void run_parallel(void *streams, const ash_launch *launch) {
    run_here(streams, launch);
}

static ash_status make_capture(struct cpu *cpu, ash_capture **out, ash_diag *diag) {
    const struct stream *kept = &cpu->streams[0];
    ASH_FAIL_IF(cpu->full, diag, ASH_ERROR_INTERNAL, "more than %u commands in a capture", cpu->room);
    ash_capture *capture = ash_mem_calloc(cpu->allocator, 1, sizeof *capture);
    if (!capture) return ASH_NO_MEMORY(diag);
    for (uint32_t i = 0; i < kept->count; i++)
        capture->count +=
            kept->commands[i].kind == ASH_COMMAND_LAUNCH || kept->commands[i].kind == ASH_COMMAND_COPY;
    ash_status status =
        cpu->maker(cpu->context, kept->commands, kept->count, run_parallel, &capture->entry, diag);
    if (status == ASH_OK)
        *out = capture;
    else
        ash_mem_free(cpu->allocator, capture, 1, sizeof *capture);
    return status;
}

static ash_status capture_end(ash_streams *streams, ash_capture **out, ash_diag *diag) {
    struct cpu *cpu = of(streams);
    ash_status status = make_capture(cpu, out, diag);
    set_here(cpu);
    cpu->full = false;
    free_queues(cpu);
    return status;
}

static ash_status replay(ash_streams *streams, const ash_capture *capture, ash_diag *diag) {
    (void)diag;
    capture->entry.run(streams);
    return ASH_OK;
}

static void capture_free(ash_streams *streams, ash_capture *capture) {
    if (!capture) return;
    capture->entry.release(capture->entry.owner);
    ash_mem_free(of(streams)->allocator, capture, 1, sizeof *capture);
}

static uint32_t captured(const ash_capture *capture) {
    return capture->count;
}

/* --- life --------------------------------------------------------------------------------------- */

static void destroy(ash_streams *streams) {
    struct cpu *cpu = of(streams);
    const ash_allocator *a = cpu->allocator;
    free_queues(cpu);
    pthread_mutex_destroy(&cpu->lock);
    pthread_cond_destroy(&cpu->wake);
    a->free(a->user, cpu, sizeof *cpu);
}

static const ash_streams here = {.class = &ash_stream__cpu,
                                 .launch = launch_here,
                                 .copy = copy_here,
                                 .call = call_here,
                                 .record = pass,
                                 .wait = pass,
                                 .finish = finish_here,
                                 .counts = get_counts,
                                 .capture_begin = capture_begin,
                                 .capture_end = capture_end,
                                 .replay = replay,
                                 .capture_free = capture_free,
                                 .captured = captured};
static const ash_streams later = {.class = &ash_stream__cpu,
                                  .launch = launch_later,
                                  .copy = copy_later,
                                  .call = call_later,
                                  .record = record_later,
                                  .wait = wait_later,
                                  .finish = finish_later,
                                  .counts = get_counts,
                                  .capture_begin = capture_none};

static void set_here(struct cpu *cpu) {
    cpu->base = here;
}

static ash_status create(ash_context *context, const ash_streams_options *options, ash_streams **out,
                         ash_diag *diag) {
    const ash_allocator *a = ash_context__allocator(context);
    *out = NULL;
    ASH_FAIL_IF(options->streams == 0, diag, ASH_ERROR_INVALID_ARGUMENT, "no streams are asked for");
    struct cpu *cpu = a->alloc(a->user, sizeof *cpu, LINE);
    if (!cpu) return ASH_NO_MEMORY(diag);
    memset(cpu, 0, sizeof *cpu);
    if (options->streams == 1)
        set_here(cpu);
    else
        cpu->base = later;
    cpu->context = context;
    cpu->allocator = a;
    cpu->maker = options->maker;
    cpu->threads = ASH_MAX(options->threads, 1u);
    cpu->n_streams = options->streams;
    cpu->n_events = options->events;
    cpu->room = options->commands;
    pthread_mutex_init(&cpu->lock, NULL);
    pthread_cond_init(&cpu->wake, NULL);
    ash_status status = ASH_OK;
    if (cpu->threads > 1) status = ash_pool__get(context, &cpu->pool, diag);
    if (status == ASH_OK && cpu->n_streams > 1) status = make_queues(cpu, diag);
    if (status == ASH_OK)
        *out = &cpu->base;
    else
        destroy(&cpu->base);
    return status;
}

const ash_stream_class ash_stream__cpu = {.kind = "CPU", .create = create, .destroy = destroy};
