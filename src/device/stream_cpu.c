/* Streams of the CPU.
 *
 * One stream is the calling thread itself: a command runs when it is issued. A capture of it is a function
 * of machine code that does what the commands say, one after the other. Several streams are queues that
 * threads take turns to run (stream_queue.c), and a capture of them is the filled queues. */
#include "stream_cpu.h"

/* --- what all share ----------------------------------------------------------------------------- */

void ash_cpu__move(const ash_transfer *copy) {
    if (copy->bytes > 0)
        memmove((char *)copy->buffers[1] + copy->to, (char *)copy->buffers[0] + copy->from,
                (size_t)copy->bytes);
}

bool ash_cpu__note_left_out(ash_cpu *cpu) {
    atomic_store_explicit(&cpu->left_out, true, memory_order_relaxed);
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
    if (!atomic_load_explicit(&cpu->left_out, memory_order_relaxed)) return ASH_OK;
    atomic_store_explicit(&cpu->left_out, false, memory_order_relaxed);
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
    if (atomic_load_explicit(&cpu->left_out, memory_order_relaxed)) return;
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
    ash_cpu__move(copy);
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

struct ash_capture {
    ash_entry entry;       /* of one stream */
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
    return !atomic_load_explicit(&cpu->left_out, memory_order_relaxed);
}

static ash_status make_entry(ash_cpu *cpu, ash_capture *capture, ash_diag *diag) {
    const ash_cpu_list *list = &cpu->issued.lists[0];
    ash_entry_frame frame = {launch_from_entry, cpu->cancel, &cpu->done};
    return cpu->maker(cpu->context, list->commands, list->count, &frame, &capture->entry, diag);
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

static ash_status make_capture(ash_cpu *cpu, ash_capture **out, ash_diag *diag) {
    ASH_FAIL_IF(cpu->issued.full, diag, ASH_ERROR_INTERNAL, "more than %u commands in a capture",
                cpu->room);
    ash_capture *capture = ash_mem_calloc(cpu->allocator, 1, sizeof *capture);
    if (!capture) return ASH_NO_MEMORY(diag);
    for (uint32_t s = 0; s < cpu->n_streams; s++)
        for (uint32_t i = 0; i < cpu->issued.lists[s].count; i++) {
            ash_command_kind kind = cpu->issued.lists[s].commands[i].kind;
            capture->count += kind == ASH_COMMAND_LAUNCH || kind == ASH_COMMAND_COPY;
        }
    ash_status status =
        cpu->n_streams > 1 ? keep_queues(cpu, &capture->queues, diag) : make_entry(cpu, capture, diag);
    if (status == ASH_OK)
        *out = capture;
    else
        ash_mem_free(cpu->allocator, capture, 1, sizeof *capture);
    return status;
}

static ash_status capture_end(ash_streams *streams, ash_capture **out, ash_diag *diag) {
    ash_cpu *cpu = ash_cpu__of(streams);
    ash_status status = make_capture(cpu, out, diag);
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
    else if (!capture->entry.run(streams))
        atomic_store_explicit(&cpu->left_out, true, memory_order_relaxed);
    return ash_cpu__end(cpu, diag);
}

static void capture_free(ash_streams *streams, ash_capture *capture) {
    ash_cpu *cpu = ash_cpu__of(streams);
    if (!capture) return;
    if (capture->entry.release) capture->entry.release(capture->entry.owner);
    ash_cpu__free_queues(cpu, &capture->queues);
    ash_mem_free(cpu->allocator, capture, 1, sizeof *capture);
}

static uint32_t captured(const ash_capture *capture) {
    return capture->count;
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
    cpu->base.counts = get_counts;
    cpu->base.capture_begin = capture_begin;
    cpu->base.capture_end = capture_end;
    cpu->base.replay = replay;
    cpu->base.capture_free = capture_free;
    cpu->base.captured = captured;
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
    cpu->cancel = options->cancel ? options->cancel : &ash_cancel__never;
    cpu->threads = ASH_MAX(options->threads, 1u);
    cpu->n_streams = options->streams;
    cpu->n_events = options->events;
    cpu->room = options->commands;
    set_class(cpu);
    pthread_mutex_init(&cpu->lock, NULL);
    pthread_cond_init(&cpu->wake, NULL);
    ash_status status = ASH_OK;
    if (cpu->threads > 1) status = ash_pool__get(context, &cpu->pool, diag);
    if (status == ASH_OK && cpu->n_streams > 1) status = ash_cpu__make_streams(cpu, diag);
    if (status == ASH_OK && cpu->n_streams > 1) status = ash_cpu__make_queues(cpu, diag);
    if (status == ASH_OK)
        *out = &cpu->base;
    else
        destroy(&cpu->base);
    return status;
}

const ash_stream_class ash_stream__cpu = {.kind = "CPU", .create = create, .destroy = destroy};
