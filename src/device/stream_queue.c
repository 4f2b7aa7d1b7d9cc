/* SPDX-License-Identifier: MIT */
/* Several streams of the CPU.
 *
 * Streams are queues, and threads are not bound to them: whoever has nothing to do takes a stream that
 * nobody runs, and runs its commands until it ends or meets an event that has not happened. So the calling
 * thread never waits for a worker that the system has put aside, fewer threads than streams are no special
 * case, and more streams than processors use no more of these. A launch that is worth several threads is
 * shared: threads that find no stream to run take chunks of it, as in the pool (base/pool.c has the
 * argument why a late one can do no harm).
 *
 * A stream publishes one number, how many records it has passed, and an event is a place among them: a wait
 * is one load. Commands that no other stream waits for publish nothing, so that threads write no line that
 * another one reads but at real edges.
 *
 * Who finds nothing to do looks again and again for a while, and then sleeps: it announces that, looks once
 * more, and waits under the lock. Who changes something that may make a thread useful (a record passed, a
 * launch to share, its last chunk, the end) looks at the announcements afterwards. All four are
 * sequentially consistent, so that one of the two sees the other.
 *
 * An event may stand for something that goes on elsewhere (ash_look), which nobody is told of: one thread
 * of those without work asks again and again instead of sleeping, and wakes the others when it is over. */
#include <sched.h>

#include "base/denormals.h"
#include "base/relax.h"
#include "stream_cpu.h"

enum { NO_EVENT = UINT32_MAX, OVER = UINT32_MAX - 1 };

/* A launch that several threads run, while its stream waits for it. */
struct shared {
    _Alignas(ASH_LINE_BYTES) _Atomic uint64_t work; /* number of the launch << 32 | chunks not taken */
    _Atomic(const ash_command *) command; /* the rest describes it: written before `work`, and constant
                                             until all chunks are done */
    _Atomic uint32_t units;
    _Alignas(ASH_LINE_BYTES) _Atomic uint32_t done; /* chunks that have run */
    _Atomic uint32_t threads;                       /* that ran some */
};

struct ash_cpu_stream {
    /* what threads without work look at */
    _Alignas(ASH_LINE_BYTES) atomic_bool held;        /* a thread runs its commands */
    _Atomic uint32_t waits;                           /* event that it waits for, NO_EVENT or OVER */
    atomic_bool busy;                                 /* held, and its thread does not wait for an event */
    _Alignas(ASH_LINE_BYTES) _Atomic uint32_t passed; /* records, in this round */
    /* of the thread that holds it */
    _Alignas(ASH_LINE_BYTES) uint32_t next; /* command to run */
    uint32_t overlapped;                    /* as in ash_streams_counts */
    _Atomic uint64_t done;                  /* steps that are over, since it was made */
    struct shared shared;
};

/* --- issuing ------------------------------------------------------------------------------------ */

void ash_cpu__free_queues(const ash_cpu *cpu, ash_cpu_queues *queues) {
    const ash_allocator *a = cpu->allocator;
    for (uint32_t i = 0; queues->lists && i < cpu->n_streams; i++)
        ash_mem_free(a, queues->lists[i].commands, queues->lists[i].room, sizeof(ash_command));
    ash_mem_free(a, queues->lists, cpu->n_streams, sizeof *queues->lists);
    ash_mem_free(a, queues->marks, cpu->n_events, sizeof *queues->marks);
    *queues = (ash_cpu_queues){0};
}

ash_status ash_cpu__make_queues(const ash_cpu *cpu, const uint32_t *rooms, ash_cpu_queues *q,
                                ash_diag *diag) {
    const ash_allocator *a = cpu->allocator;
    q->lists = ash_mem_calloc(a, cpu->n_streams, sizeof *q->lists);
    q->marks = ash_mem_calloc(a, cpu->n_events, sizeof *q->marks);
    bool made = q->lists && q->marks;
    for (uint32_t i = 0; made && i < cpu->n_streams; i++) {
        q->lists[i].room = rooms[i];
        made = (q->lists[i].commands = ash_mem_calloc(a, rooms[i], sizeof(ash_command))) != NULL;
    }
    if (made) return ASH_OK;
    ash_cpu__free_queues(cpu, q);
    return ASH_NO_MEMORY(diag);
}

static void clear_queues(ash_cpu *cpu) {
    for (uint32_t i = 0; i < cpu->n_streams; i++)
        cpu->issued.lists[i].count = cpu->issued.lists[i].records = 0;
    cpu->issued.full = cpu->issued.looks = false;
}

void ash_cpu__enqueue(ash_cpu_queues *queues, const ash_command *commands, size_t count) {
    for (const ash_command *c = commands; c < commands + count; c++) {
        ash_cpu_list *list = &queues->lists[c->stream];
        if (list->count == list->room) {
            queues->full = true;
            return;
        }
        list->commands[list->count++] = *c;
        if (c->kind != ASH_COMMAND_RECORD) continue;
        queues->marks[c->event] = (ash_cpu_mark){c->stream, ++list->records, c->look};
        queues->looks |= c->look != NULL;
    }
}

/* --- what can be done --------------------------------------------------------------------------- */

/* As far as is known, or, with `ask`, to be found out. */
static bool has_happened(ash_cpu *cpu, uint32_t event, bool ask) {
    const ash_cpu_mark *mark = &cpu->running->marks[event];
    if (atomic_load(&cpu->streams[mark->stream].passed) < mark->count) return false;
    if (!mark->look || atomic_load(&mark->look->over)) return true;
    if (!ask || !mark->look->ask(mark->look->arg)) return false;
    atomic_store(&mark->look->over, true);
    return true;
}

/* Whether a thread could run commands of the stream now. */
static bool can_run(ash_cpu *cpu, struct ash_cpu_stream *stream, bool ask) {
    if (atomic_load_explicit(&stream->held, memory_order_relaxed)) return false;
    uint32_t waits = atomic_load_explicit(&stream->waits, memory_order_relaxed);
    return waits == NO_EVENT || (waits != OVER && has_happened(cpu, waits, ask));
}

static bool can_help(struct ash_cpu_stream *stream) {
    return (uint32_t)atomic_load(&stream->shared.work) != 0;
}

/* Whether a thread has something to do that waits for all chunks of its stream's launch, or, with NULL, for
 * the end. */
static bool is_needed(ash_cpu *cpu, struct ash_cpu_stream *waiting, bool ask) {
    if (waiting) {
        struct shared *shared = &waiting->shared;
        return atomic_load(&shared->done) == atomic_load_explicit(&shared->units, memory_order_relaxed);
    }
    if (atomic_load(&cpu->left) == 0) return true;
    for (uint32_t i = 0; i < cpu->n_streams; i++)
        if (can_run(cpu, &cpu->streams[i], ask) || can_help(&cpu->streams[i])) return true;
    return false;
}

/* --- waiting ------------------------------------------------------------------------------------ */

/* To be called after what may make another thread useful. */
static void tell(ash_cpu *cpu) {
    if (atomic_load(&cpu->asleep) == 0) return;
    pthread_mutex_lock(&cpu->lock);
    pthread_cond_broadcast(&cpu->wake);
    pthread_mutex_unlock(&cpu->lock);
}

/* Under the lock, which is left meanwhile: nobody is to wait for it because something is asked. */
static void look_until_needed(ash_cpu *cpu) {
    cpu->looking = true;
    pthread_mutex_unlock(&cpu->lock);
    while (!is_needed(cpu, NULL, true)) sched_yield();
    pthread_mutex_lock(&cpu->lock);
    cpu->looking = false;
    pthread_cond_broadcast(&cpu->wake); /* there may be work for two, and more to look for */
}

static void wait_until_needed(ash_cpu *cpu, struct ash_cpu_stream *waiting) {
    for (int i = 0; i < 64; i++) {
        if (is_needed(cpu, waiting, true)) return;
        ash_relax();
    }
    if (cpu->pool) {
        int64_t now = ash_clock__now(), end = now + ash_pool__patience(cpu->pool, now);
        do {
            for (int i = 0; i < 64; i++) {
                if (is_needed(cpu, waiting, true)) return;
                ash_relax();
            }
        } while (ash_clock__now() < end);
    }
    pthread_mutex_lock(&cpu->lock);
    atomic_fetch_add(&cpu->asleep, 1);
    while (!is_needed(cpu, waiting, false)) {
        if (!waiting && cpu->running->looks && !cpu->looking)
            look_until_needed(cpu);
        else
            pthread_cond_wait(&cpu->wake, &cpu->lock);
    }
    atomic_fetch_sub(&cpu->asleep, 1);
    pthread_mutex_unlock(&cpu->lock);
}

/* --- shared launches ---------------------------------------------------------------------------- */

/* Runs chunks of the stream's launch until none is left to take: large pieces first. */
static bool help(ash_cpu *cpu, struct ash_cpu_stream *stream, unsigned worker) {
    struct shared *shared = &stream->shared;
    uint32_t ran = 0, units = 0;
    uint64_t work = atomic_load_explicit(&shared->work, memory_order_acquire);
    while ((uint32_t)work != 0) {
        uint32_t left = (uint32_t)work, take = ASH_MAX(left / (2 * cpu->threads), 1u);
        const ash_command *command = atomic_load_explicit(&shared->command, memory_order_relaxed);
        units = atomic_load_explicit(&shared->units, memory_order_relaxed);
        if (!atomic_compare_exchange_weak_explicit(&shared->work, &work, work - take, memory_order_acq_rel,
                                                   memory_order_acquire))
            continue;
        ran += take;
        int64_t begin = ash_cpu__chunks(command)->begin + (units - left);
        ash_cpu__run_range(cpu, command, begin, begin + take, worker);
        work = atomic_load_explicit(&shared->work, memory_order_acquire);
    }
    if (ran == 0) return false;
    atomic_fetch_add_explicit(&shared->threads, 1, memory_order_relaxed);
    units = atomic_load_explicit(&shared->units, memory_order_relaxed);
    if (atomic_fetch_add(&shared->done, ran) + ran == units) tell(cpu);
    return true;
}

static unsigned run_shared(ash_cpu *cpu, struct ash_cpu_stream *stream, const ash_command *command,
                           unsigned worker) {
    struct shared *shared = &stream->shared;
    const ash_chunks *chunks = ash_cpu__chunks(command);
    uint32_t units = (uint32_t)(chunks->end - chunks->begin);
    atomic_store_explicit(&shared->command, command, memory_order_relaxed);
    atomic_store_explicit(&shared->units, units, memory_order_relaxed);
    atomic_store_explicit(&shared->threads, 0, memory_order_relaxed);
    atomic_store_explicit(&shared->done, 0, memory_order_relaxed);
    uint64_t number = (atomic_load_explicit(&shared->work, memory_order_relaxed) >> 32) + 1;
    atomic_store(&shared->work, number << 32 | units);
    tell(cpu);
    help(cpu, stream, worker);
    while (atomic_load(&shared->done) != units) wait_until_needed(cpu, stream);
    return atomic_load_explicit(&shared->threads, memory_order_relaxed);
}

/* --- running ------------------------------------------------------------------------------------ */

static unsigned run_chunks(ash_cpu *cpu, struct ash_cpu_stream *stream, const ash_command *command,
                           unsigned worker) {
    const ash_chunks *chunks = ash_cpu__chunks(command);
    int64_t count = chunks->end - chunks->begin;
    if (count <= 0) return 1;
    if (chunks->parallel && cpu->pool && count > 1 && count < UINT32_MAX)
        return run_shared(cpu, stream, command, worker);
    ash_cpu__run_range(cpu, command, chunks->begin, chunks->end, chunks->parallel ? worker : 0);
    return 1;
}

unsigned ash_cpu__share(ash_cpu *cpu, uint32_t stream, const ash_command *command, unsigned worker) {
    return run_chunks(cpu, &cpu->streams[stream], command, worker);
}

static bool is_another_busy(ash_cpu *cpu, const struct ash_cpu_stream *stream) {
    for (uint32_t i = 0; i < cpu->n_streams; i++)
        if (&cpu->streams[i] != stream && atomic_load_explicit(&cpu->streams[i].busy, memory_order_relaxed))
            return true;
    return false;
}

/* Whether it only hands work on. */
static bool is_first(const ash_cpu *cpu, const struct ash_cpu_stream *stream) {
    return cpu->first >> (stream - cpu->streams) & 1;
}

static void run_step(ash_cpu *cpu, struct ash_cpu_stream *stream, const ash_command *command,
                     unsigned worker) {
    ash_timing *timing = command->timing;
    if (timing) timing->start = ash_clock__now();
    stream->overlapped += !is_first(cpu, stream) && is_another_busy(cpu, stream);
    unsigned threads = 1;
    if (ash_cpu__has_chunks(command))
        threads = run_chunks(cpu, stream, command, worker);
    else if (command->kind == ASH_COMMAND_REPEAT)
        ash_cpu__repeat(cpu, command->repeat);
    else
        ash_cpu__move(cpu, command);
    if (!ash_stop__has_left_out(&cpu->stop))
        atomic_store_explicit(&stream->done, atomic_load_explicit(&stream->done, memory_order_relaxed) + 1,
                              memory_order_relaxed);
    if (timing) *timing = (ash_timing){timing->start, ash_clock__now(), threads};
}

/* False: the stream waits. While the switch is on, records and waits alone run, so that every stream
 * ends. */
static bool run_command(ash_cpu *cpu, struct ash_cpu_stream *stream, const ash_command *command,
                        unsigned worker) {
    switch (command->kind) {
    case ASH_COMMAND_LAUNCH:
    case ASH_COMMAND_COPY:
    case ASH_COMMAND_HOST:
    case ASH_COMMAND_REPEAT:
        if (!ash_cpu__stops(cpu)) run_step(cpu, stream, command, worker);
        return true;
    case ASH_COMMAND_FILL:
    case ASH_COMMAND_STORE:
        if (!ash_cpu__stops(cpu)) ash_cpu__move(cpu, command);
        return true;
    case ASH_COMMAND_RECORD:
        atomic_store(&stream->passed, cpu->running->marks[command->event].count);
        tell(cpu);
        return true;
    case ASH_COMMAND_WAIT: return has_happened(cpu, command->event, true);
    }
    return true;
}

/* Waits for an event while the stream is held, as long as nothing else can be done; false: it has not
 * happened. Taking a stream again costs two meetings of processors, an event one. */
static bool wait_here(ash_cpu *cpu, const struct ash_cpu_stream *stream, uint32_t event) {
    if (!cpu->pool) return false;
    int64_t now = ash_clock__now(), end = now + ash_pool__patience(cpu->pool, now);
    do {
        for (uint32_t i = 0; i < cpu->n_streams; i++) {
            struct ash_cpu_stream *other = &cpu->streams[i];
            if (other != stream && (can_help(other) || can_run(cpu, other, true))) return false;
        }
        for (int i = 0; i < 32; i++) {
            if (has_happened(cpu, event, true)) return true;
            ash_relax();
        }
    } while (ash_clock__now() < end);
    return false;
}

static bool run_first(ash_cpu *cpu, unsigned worker);

/* Runs a stream as far as it goes, unless another thread does. True when this one did. What it records may
 * be what others have to hand on, which they do now, whatever else this one has to do; so they do not wait
 * here. */
static bool run_stream(ash_cpu *cpu, uint32_t index, unsigned worker) {
    struct ash_cpu_stream *stream = &cpu->streams[index];
    const ash_cpu_list *list = &cpu->running->lists[index];
    if (!can_run(cpu, stream, true) || atomic_exchange_explicit(&stream->held, true, memory_order_acquire))
        return false;
    bool ended = atomic_load_explicit(&stream->waits, memory_order_relaxed) != OVER;
    uint32_t waits = OVER, next = stream->next, before = next;
    atomic_store_explicit(&stream->busy, true, memory_order_relaxed);
    for (; next < list->count; next++) {
        const ash_command *command = &list->commands[next];
        if (run_command(cpu, stream, command, worker)) {
            if (command->kind == ASH_COMMAND_RECORD && !is_first(cpu, stream)) run_first(cpu, worker);
            continue;
        }
        atomic_store_explicit(&stream->busy, false, memory_order_relaxed);
        if (is_first(cpu, stream) || !wait_here(cpu, stream, command->event)) {
            waits = command->event;
            ended = false;
            break;
        }
        atomic_store_explicit(&stream->busy, true, memory_order_relaxed);
    }
    stream->next = next;
    atomic_store_explicit(&stream->busy, false, memory_order_relaxed);
    atomic_store_explicit(&stream->waits, waits, memory_order_relaxed);
    atomic_store_explicit(&stream->held, false, memory_order_release);
    if (ended && atomic_fetch_sub(&cpu->left, 1) == 1) tell(cpu);
    return ended || next != before;
}

static bool run_first(ash_cpu *cpu, unsigned worker) {
    bool ran = false;
    for (uint64_t left = cpu->first; left; left &= left - 1)
        ran |= run_stream(cpu, (uint32_t)__builtin_ctzll(left), worker);
    return ran;
}

static void run_round(void *arg, int64_t begin, int64_t end, unsigned worker) {
    ash_cpu *cpu = arg;
    (void)begin, (void)end;
    uint64_t mode = ash_denormals__set(cpu->flush);
    while (atomic_load(&cpu->left) != 0) {
        bool ran = run_first(cpu, worker);
        for (uint32_t i = 0; i < cpu->n_streams; i++)
            ran |= run_stream(cpu, (i + worker) % cpu->n_streams, worker);
        for (uint32_t i = 0; i < cpu->n_streams && !ran; i++) ran = help(cpu, &cpu->streams[i], worker);
        if (!ran) wait_until_needed(cpu, NULL);
    }
    ash_denormals__restore(mode);
}

static uint32_t begin_round(ash_cpu *cpu) {
    uint32_t left = 0;
    for (uint32_t i = 0; i < cpu->n_streams; i++) {
        struct ash_cpu_stream *s = &cpu->streams[i];
        bool empty = cpu->running->lists[i].count == 0;
        s->next = s->overlapped = 0;
        atomic_store_explicit(&s->waits, empty ? OVER : NO_EVENT, memory_order_relaxed);
        atomic_store_explicit(&s->passed, 0, memory_order_relaxed);
        left += !empty;
    }
    atomic_store(&cpu->left, left);
    return left;
}

/* Whether to call for other threads: not for a brief round, unless the last one has only just ended, so
 * that they are awake, or stay so once they have come. */
static bool is_for_many(ash_cpu *cpu, int64_t now) {
    if (!cpu->pool) return false;
    return cpu->work > ash_costs__cpu.round_ns || now - cpu->ended < ash_pool__patience(cpu->pool, now);
}

void ash_cpu__run_queues(ash_cpu *cpu, const ash_cpu_queues *queues) {
    cpu->running = queues;
    if (begin_round(cpu) != 0) {
        int64_t start = ash_clock__now();
        bool many = is_for_many(cpu, start);
        if (many)
            ash_pool__run(cpu->pool, cpu->threads, cpu->threads, run_round, cpu);
        else
            run_round(cpu, 0, 1, 0);
        cpu->ended = ash_clock__now();
        cpu->work = (cpu->ended - start) * (many ? 2 : 1);
    }
    cpu->counts.overlapped = 0;
    for (uint32_t i = 0; i < cpu->n_streams; i++) cpu->counts.overlapped += cpu->streams[i].overlapped;
}

ash_status ash_cpu__finish_queues(ash_streams *streams, ash_diag *diag) {
    ash_cpu *cpu = ash_cpu__of(streams);
    bool full = cpu->issued.full;
    if (!full) ash_cpu__run_queues(cpu, &cpu->issued);
    clear_queues(cpu);
    ASH_FAIL_IF(full, diag, ASH_ERROR_INTERNAL, "a stream has more commands than were announced");
    return ash_cpu__end(cpu, diag);
}

uint64_t ash_cpu__done_queues(const ash_streams *streams) {
    const ash_cpu *cpu = (const ash_cpu *)streams;
    uint64_t sum = 0;
    for (uint32_t i = 0; i < cpu->n_streams; i++)
        sum += atomic_load_explicit(&cpu->streams[i].done, memory_order_relaxed);
    return sum;
}

/* --- life --------------------------------------------------------------------------------------- */

void ash_cpu__free_streams(ash_cpu *cpu) {
    const ash_allocator *a = cpu->allocator;
    if (cpu->streams) a->free(a->user, cpu->streams, cpu->n_streams * sizeof *cpu->streams);
    cpu->streams = NULL;
}

ash_status ash_cpu__make_streams(ash_cpu *cpu, ash_diag *diag) {
    const ash_allocator *a = cpu->allocator;
    size_t bytes = cpu->n_streams * sizeof *cpu->streams;
    cpu->streams = a->alloc(a->user, bytes, ASH_LINE_BYTES);
    if (!cpu->streams) return ASH_NO_MEMORY(diag);
    memset(cpu->streams, 0, bytes);
    return ASH_OK;
}
