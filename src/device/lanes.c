/* SPDX-License-Identifier: MIT */
/* Streams of several devices.
 *
 * All of them are streams of the CPU (stream_queue.c): threads take turns to run them, meet at events, and
 * sleep where there is nothing to do. Commands of the CPU's own streams run there as they are. For another
 * device, what stands between two events is a function of the host: it issues that to a stream of the
 * device's own, and returns when all of it is over; so an event is recorded when what came before has
 * really happened, and no device has to know of another's events. A copy from one device to another is a
 * function of the host on a stream of its own. So copies and the work of all devices overlap as far as
 * events and the number of threads allow; with one thread, they take turns.
 *
 * Looked at: waiting for a device's event on another device's stream, which saves the way over the host
 * where both are of one driver. It would be a case of its own beside this one, which any two devices need.
 *
 * What is issued is translated into lists that are there from the beginning. */
#include "lanes.h"

#include "stream_cpu.h"

/* A function of the host, in one of the streams. */
struct lane_work {
    struct lanes *of;
    ash_host host; /* which the engine runs */
    uint32_t lane;
    const ash_command *commands; /* `count` of them for the lane's device, or one copy or fill */
    uint32_t count;
};

struct lane {
    ash_lane on;
    ash_streams *own;      /* one stream of its device; NULL: the engine runs its commands */
    ash_command *commands; /* that are issued: what its works point at */
    uint32_t count, room;
    struct lane_work *open; /* that takes the next command, or NULL */
    ash_passage passage;    /* of copies */
};

struct lanes {
    ash_streams base;
    const ash_allocator *allocator;
    ash_device *devices[ASH_MOST_DEVICES];
    ash_device *cpu; /* the engine's; held */
    ash_streams *engine;
    struct lane *lanes;
    struct lane_work *works; /* of one round */
    uint32_t n_lanes, n_works, room;
    bool full;
    _Atomic uint64_t hosts; /* functions that are over and are no steps, since the streams were made */
    _Atomic uint64_t shown; /* steps that were said to be over */
    pthread_mutex_t lock;   /* for the failure */
    ash_status status;      /* of the first function that failed in this round */
    ash_diag diag;
};

static struct lanes *of(ash_streams *streams) {
    return (struct lanes *)streams;
}

/* --- what the engine runs --------------------------------------------------------------------------- */

/* The streams end: what has not begun is left out. */
static void fail(struct lanes *l, ash_status status, const ash_diag *diag) {
    pthread_mutex_lock(&l->lock);
    if (l->status == ASH_OK) {
        l->status = status;
        l->diag = *diag;
    }
    pthread_mutex_unlock(&l->lock);
    l->engine->class->stop(l->engine);
}

static void run_batch(void *arg, void *const *buffers, int64_t begin, int64_t end, int64_t worker) {
    const struct lane_work *work = arg;
    ash_streams *own = work->of->lanes[work->lane].own;
    ash_diag diag;
    (void)buffers, (void)begin, (void)end, (void)worker;
    ash_diag_clear(&diag);
    own->class->issue(own, work->commands, work->count);
    ash_status status = ash_streams__finish(own, &diag);
    atomic_fetch_add(&work->of->hosts, 1);
    if (status != ASH_OK) fail(work->of, status, &diag);
}

static void run_copy(void *arg, void *const *buffers, int64_t begin, int64_t end, int64_t worker) {
    const struct lane_work *work = arg;
    struct lanes *l = work->of;
    const ash_transfer *copy = work->commands->copy;
    ash_diag diag;
    (void)buffers, (void)begin, (void)end, (void)worker;
    ash_diag_clear(&diag);
    if (copy->bytes <= 0) return;
    ash_status status =
        ash_passage__copy(&l->lanes[work->lane].passage, copy->buffers[1] + (uint64_t)copy->to,
                          copy->buffers[0] + (uint64_t)copy->from, (uint64_t)copy->bytes, &diag);
    if (status != ASH_OK) fail(l, status, &diag);
}

static void run_fill(void *arg, void *const *buffers, int64_t begin, int64_t end, int64_t worker) {
    const struct lane_work *work = arg;
    struct lanes *l = work->of;
    const ash_fill *fill = work->commands->fill;
    ash_device *device = l->devices[fill->device];
    ash_status status = ASH_OK;
    ash_diag diag;
    (void)buffers, (void)begin, (void)end, (void)worker;
    ash_diag_clear(&diag);
    bool last = !fill->left || atomic_fetch_sub(fill->left, 1) == 1;
    if (last && fill->bytes)
        status = device->class->fill(device, *fill->buffer, fill->value, fill->bytes, &diag);
    atomic_fetch_add(&l->hosts, 1);
    if (status != ASH_OK) fail(l, status, &diag);
}

/* --- issuing ---------------------------------------------------------------------------------------- */

static void forward(struct lanes *l, const ash_command *command) {
    l->engine->class->issue(l->engine, command, 1);
}

/* A command as it is, where works find it. */
static ash_command *keep(struct lanes *l, struct lane *lane, const ash_command *command) {
    if (lane->count == lane->room) {
        l->full = true;
        return NULL;
    }
    ash_command *kept = &lane->commands[lane->count++];
    *kept = *command;
    kept->stream = 0;
    return kept;
}

static struct lane_work *add_work(struct lanes *l, const ash_command *command, const ash_command *kept,
                                  ash_host_fn fn) {
    struct lane_work *work = &l->works[l->n_works++];
    *work = (struct lane_work){.of = l, .lane = command->stream, .commands = kept, .count = 1};
    work->host = (ash_host){.fn = fn, .arg = work, .chunks = {.end = 1}};
    ash_command host = {.kind = ASH_COMMAND_HOST, .stream = command->stream, .host = &work->host};
    if (fn == run_copy) host.timing = command->timing;
    forward(l, &host);
    return work;
}

static void issue_one(struct lanes *l, const ash_command *c) {
    struct lane *lane = &l->lanes[c->stream];
    bool copies = lane->on.from != lane->on.to;
    if (!ash_command__works(c) || c->kind == ASH_COMMAND_FILL || copies) lane->open = NULL;
    if (!ash_command__works(c) || (c->kind != ASH_COMMAND_FILL && !copies && !lane->own)) {
        forward(l, c);
        return;
    }
    const ash_command *kept = keep(l, lane, c);
    if (!kept) return;
    if (c->kind == ASH_COMMAND_FILL)
        add_work(l, c, kept, run_fill);
    else if (copies)
        add_work(l, c, kept, run_copy);
    else if (lane->open)
        lane->open->count++;
    else
        lane->open = add_work(l, c, kept, run_batch);
}

/* The engine runs nothing before it is to finish. */
static void issue(ash_streams *streams, const ash_command *commands, size_t count) {
    for (size_t i = 0; i < count; i++) issue_one(of(streams), &commands[i]);
}

static ash_status finish(ash_streams *streams, ash_diag *diag) {
    struct lanes *l = of(streams);
    bool full = l->full;
    ash_cpu__of(l->engine)->work =
        INT64_MAX; /* who waits for a device runs nothing else: threads are called */
    if (full) l->engine->class->stop(l->engine);
    ash_status status = ash_streams__finish(l->engine, diag);
    if (l->status != ASH_OK) {
        status = l->status;
        if (diag) *diag = l->diag;
    }
    for (uint32_t i = 0; i < l->n_lanes; i++) {
        struct lane *lane = &l->lanes[i];
        lane->count = 0;
        lane->open = NULL;
        if (status != ASH_OK && lane->own) ash_streams__finish(lane->own, NULL); /* no longer stopped */
    }
    l->n_works = 0;
    l->status = ASH_OK;
    l->full = false;
    ASH_FAIL_IF(full, diag, ASH_ERROR_INTERNAL, "a stream has more commands than were announced");
    return status;
}

static void stop(ash_streams *streams) {
    struct lanes *l = of(streams);
    l->engine->class->stop(l->engine);
    for (uint32_t i = 0; i < l->n_lanes; i++)
        if (l->lanes[i].own) l->lanes[i].own->class->stop(l->lanes[i].own);
}

static ash_streams_counts counts(const ash_streams *streams) {
    const ash_streams *engine = ((const struct lanes *)streams)->engine;
    return engine->class->counts(engine);
}

/* What is over never becomes less, though the numbers are not of one moment. */
static uint64_t done(const ash_streams *streams) {
    struct lanes *l = (struct lanes *)streams;
    uint64_t hosts = atomic_load(&l->hosts), sum = l->engine->class->done(l->engine);
    for (uint32_t i = 0; i < l->n_lanes; i++)
        if (l->lanes[i].own) sum += l->lanes[i].own->class->done(l->lanes[i].own);
    sum -= ASH_MIN(hosts, sum);
    uint64_t shown = atomic_load(&l->shown);
    while (shown < sum && !atomic_compare_exchange_weak(&l->shown, &shown, sum)) {
    }
    return ASH_MAX(shown, sum);
}

static ash_status instantiate(ash_streams *streams, const ash_command *commands, size_t count,
                              const ash_capture *like, ash_capture **out, ash_diag *diag) {
    (void)streams, (void)commands, (void)count, (void)like, (void)out;
    return ash_fail(diag, ASH_ERROR_UNSUPPORTED,
                    "mode graph is for one device: what runs on several cannot be captured");
}

/* --- life ------------------------------------------------------------------------------------------- */

static void destroy(ash_streams *streams) {
    struct lanes *l = of(streams);
    const ash_allocator *a = l->allocator;
    for (uint32_t i = 0; l->lanes && i < l->n_lanes; i++) {
        ash_streams__destroy(l->lanes[i].own);
        ash_mem_free(a, l->lanes[i].commands, l->lanes[i].room, sizeof(ash_command));
        ash_mem_free(a, l->lanes[i].passage.room, l->lanes[i].passage.bytes, 1);
    }
    ash_streams__destroy(l->engine);
    ash_device_close(l->cpu);
    ash_mem_free(a, l->lanes, l->n_lanes, sizeof *l->lanes);
    ash_mem_free(a, l->works, l->room, sizeof *l->works);
    pthread_mutex_destroy(&l->lock);
    ash_mem_free(a, l, 1, sizeof *l);
}

static const ash_stream_class class = {.kind = "several devices",
                                       .destroy = destroy,
                                       .issue = issue,
                                       .stop = stop,
                                       .finish = finish,
                                       .counts = counts,
                                       .done = done,
                                       .instantiate = instantiate};

static ash_status make_lane(struct lanes *l, const ash_lane *on, uint32_t room,
                            const ash_streams_options *options, struct lane *lane, ash_diag *diag) {
    ash_device *device = l->devices[on->to];
    lane->on = *on;
    lane->room = room;
    lane->commands = ash_mem_calloc(l->allocator, room, sizeof *lane->commands);
    if (!lane->commands) return ASH_NO_MEMORY(diag);
    l->room += room;
    lane->passage = (ash_passage){.to = device, .from = l->devices[on->from]};
    uint64_t bytes = ash_passage__room(device, lane->passage.from, on->most);
    if (bytes) lane->passage.room = ash_mem_alloc(l->allocator, bytes, 1);
    if (bytes && !lane->passage.room) return ASH_NO_MEMORY(diag);
    lane->passage.bytes = bytes;
    if (on->from != on->to || device->class == l->cpu->class) return ASH_OK;
    const ash_streams_options own = {.streams = 1,
                                     .commands = ASH_MAX(room, 1u),
                                     .threads = options->threads,
                                     .cancel = options->cancel,
                                     .keep_denormals = options->keep_denormals};
    return ash_streams__create(device, &own, &lane->own, diag);
}

static ash_status make_parts(struct lanes *l, ash_device *const *devices, const ash_lane *lanes,
                             const ash_streams_options *options, ash_diag *diag) {
    const ash_streams_options engine = {.streams = options->streams,
                                        .events = options->events,
                                        .commands = options->commands,
                                        .shares = options->shares,
                                        .threads = options->threads,
                                        .cancel = options->cancel,
                                        .keep_denormals = options->keep_denormals};
    ASH_TRY(ash_device__default(ash_device__context(devices[lanes[0].to]), &l->cpu, diag));
    ASH_TRY(ash_streams__create(l->cpu, &engine, &l->engine, diag));
    l->lanes = ash_mem_calloc(l->allocator, options->streams, sizeof *l->lanes);
    if (!l->lanes) return ASH_NO_MEMORY(diag);
    l->n_lanes = options->streams;
    for (uint32_t i = 0; i < l->n_lanes; i++) {
        l->devices[lanes[i].from] = devices[lanes[i].from];
        l->devices[lanes[i].to] = devices[lanes[i].to];
    }
    uint32_t room = 0;
    ash_status status = ASH_OK;
    for (uint32_t i = 0; status == ASH_OK && i < l->n_lanes; i++)
        status = make_lane(l, &lanes[i], options->shares ? options->shares[i] : options->commands, options,
                           &l->lanes[i], diag);
    room = l->room;
    l->room = 0;
    ASH_TRY(status);
    l->works = ash_mem_calloc(l->allocator, room, sizeof *l->works);
    if (!l->works) return ASH_NO_MEMORY(diag);
    l->room = room;
    l->base.stop = l->engine->stop;
    return ASH_OK;
}

ash_status ash_lanes__create(ash_device *const *devices, const ash_lane *lanes,
                             const ash_streams_options *options, ash_streams **out, ash_diag *diag) {
    const ash_allocator *a = ash_device__allocator(devices[lanes[0].to]);
    *out = NULL;
    ASH_FAIL_IF(options->streams < 2, diag, ASH_ERROR_INVALID_ARGUMENT,
                "one stream is not of several devices");
    struct lanes *l = ash_mem_calloc(a, 1, sizeof *l);
    if (!l) return ASH_NO_MEMORY(diag);
    l->base.class = &class;
    l->allocator = a;
    pthread_mutex_init(&l->lock, NULL);
    ash_status status = make_parts(l, devices, lanes, options, diag);
    if (status == ASH_OK)
        *out = &l->base;
    else
        destroy(&l->base);
    return status;
}

ash_address ash_lanes__stop(const ash_streams *streams, uint32_t stream) {
    const struct lanes *l = (const struct lanes *)streams;
    const struct lane *lane = &l->lanes[stream];
    return lane->own ? lane->own->stop : l->engine->stop;
}
