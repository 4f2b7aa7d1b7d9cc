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
 *     commands   lane 0   a b | wait 1 | c d        lane 1   e f | record 1
 *     engine              [ab]  wait 1   [cd]                [ef]  record 1        [..]: a batch
 *
 * A capture makes one of each batch, by its device, and of the engine's commands; the CPU's own streams
 * have batches then as well, each of which becomes a function. So a replay launches graphs in the order
 * that events leave, and copies between devices stand between them.
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
    ash_capture *capture; /* that the lane's device has made of them, or NULL */
};

/* Commands of one lane that are for its device: what works point at. */
struct lane_list {
    ash_command *commands;
    uint32_t count, room;
    struct lane_work *open; /* that takes the next command, or NULL */
};

/* Commands as the engine runs them. */
struct lane_script {
    struct lane_list *lists; /* per lane */
    struct lane_work *works;
    ash_command *commands; /* the engine's */
    uint32_t n_works, n_commands, room;
    bool full; /* there were more than there is room for */
};

struct ash_capture {
    struct lane_script script;
    ash_capture *engine; /* of the script's commands */
};

struct lane {
    ash_lane on;
    ash_streams *own;    /* one stream of its device; NULL: the engine runs its commands */
    ash_passage passage; /* of copies */
};

struct lanes {
    ash_streams base;
    const ash_allocator *allocator;
    ash_device *devices[ASH_MOST_DEVICES];
    ash_device *cpu; /* the engine's; held */
    ash_streams *engine;
    struct lane *lanes;
    struct lane_script issued; /* in this round */
    uint32_t n_lanes;
    bool captures;          /* every lane of work has streams of its own */
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

/* Everything ends: what has not begun is left out. */
static void stop(ash_streams *streams) {
    struct lanes *l = of(streams);
    l->engine->class->stop(l->engine);
    for (uint32_t i = 0; i < l->n_lanes; i++)
        if (l->lanes[i].own) l->lanes[i].own->class->stop(l->lanes[i].own);
}

static void fail(struct lanes *l, ash_status status, const ash_diag *diag) {
    pthread_mutex_lock(&l->lock);
    if (l->status == ASH_OK) {
        l->status = status;
        l->diag = *diag;
    }
    pthread_mutex_unlock(&l->lock);
    stop(&l->base);
}

static ash_status run_own(ash_streams *own, const struct lane_work *work, ash_diag *diag) {
    if (work->capture) return own->class->replay(own, work->capture, diag);
    own->class->issue(own, work->commands, work->count);
    return ash_streams__finish(own, diag);
}

static void run_batch(void *arg, void *const *buffers, int64_t begin, int64_t end, int64_t worker) {
    const struct lane_work *work = arg;
    struct lanes *l = work->of;
    const struct lane *lane = &l->lanes[work->lane];
    ash_diag diag;
    (void)buffers, (void)begin, (void)end;
    ash_diag_clear(&diag);
    if (l->devices[lane->on.to]->class == l->cpu->class)
        ash_cpu__run_within(lane->own, l->engine, work->lane, (unsigned)worker);
    ash_status status = run_own(lane->own, work, &diag);
    atomic_fetch_add(&l->hosts, 1);
    if (status != ASH_OK) fail(l, status, &diag);
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

/* --- translating ------------------------------------------------------------------------------------ */

static void add(struct lane_script *script, const ash_command *command) {
    if (script->n_commands < script->room)
        script->commands[script->n_commands++] = *command;
    else
        script->full = true;
}

/* A command as it is, where works find it. */
static ash_command *keep(struct lane_script *script, const ash_command *command) {
    struct lane_list *list = &script->lists[command->stream];
    if (list->count == list->room) {
        script->full = true;
        return NULL;
    }
    ash_command *kept = &list->commands[list->count++];
    *kept = *command;
    kept->stream = 0;
    return kept;
}

static struct lane_work *add_work(struct lanes *l, struct lane_script *script, const ash_command *command,
                                  const ash_command *kept, ash_host_fn fn) {
    struct lane_work *work = &script->works[script->n_works++];
    *work = (struct lane_work){.of = l, .lane = command->stream, .commands = kept, .count = 1};
    work->host = (ash_host){.fn = fn, .arg = work, .chunks = {.end = 1, .parallel = fn == run_batch}};
    ash_command host = {.kind = ASH_COMMAND_HOST, .stream = command->stream, .host = &work->host};
    if (fn == run_copy) host.timing = command->timing;
    add(script, &host);
    return work;
}

static void translate_one(struct lanes *l, struct lane_script *script, const ash_command *c) {
    const struct lane *lane = &l->lanes[c->stream];
    struct lane_list *list = &script->lists[c->stream];
    bool copies = lane->on.from != lane->on.to, works = ash_command__works(c);
    bool fills = c->kind == ASH_COMMAND_FILL;
    if (!works || fills || copies) list->open = NULL;
    if (!works || (!fills && !copies && !lane->own)) {
        add(script, c);
        return;
    }
    const ash_command *kept = keep(script, c);
    if (!kept) return;
    if (fills)
        add_work(l, script, c, kept, run_fill);
    else if (copies)
        add_work(l, script, c, kept, run_copy);
    else if (list->open)
        list->open->count++;
    else
        list->open = add_work(l, script, c, kept, run_batch);
}

static void translate(struct lanes *l, struct lane_script *script, const ash_command *commands,
                      size_t count) {
    for (size_t i = 0; i < count; i++) translate_one(l, script, &commands[i]);
}

static void free_script(const struct lanes *l, struct lane_script *script) {
    const ash_allocator *a = l->allocator;
    for (uint32_t i = 0; i < script->n_works; i++) {
        struct lane_work *work = &script->works[i];
        ash_streams *own = l->lanes[work->lane].own;
        if (work->capture) own->class->capture_free(own, work->capture);
    }
    for (uint32_t i = 0; script->lists && i < l->n_lanes; i++)
        ash_mem_free(a, script->lists[i].commands, script->lists[i].room, sizeof(ash_command));
    ash_mem_free(a, script->lists, l->n_lanes, sizeof *script->lists);
    ash_mem_free(a, script->works, script->room, sizeof *script->works);
    ash_mem_free(a, script->commands, script->room, sizeof *script->commands);
    *script = (struct lane_script){0};
}

/* An empty one, with room for so many commands of each lane. */
static ash_status make_script(const struct lanes *l, const uint32_t *rooms, struct lane_script *out,
                              ash_diag *diag) {
    const ash_allocator *a = l->allocator;
    uint64_t all = 0;
    *out = (struct lane_script){.lists = ash_mem_calloc(a, l->n_lanes, sizeof *out->lists)};
    bool made = out->lists != NULL;
    for (uint32_t i = 0; made && i < l->n_lanes; i++) {
        out->lists[i].commands = ash_mem_calloc(a, rooms[i], sizeof(ash_command));
        made = out->lists[i].commands != NULL;
        if (made) all += out->lists[i].room = rooms[i];
    }
    ASH_FAIL_IF(all > UINT32_MAX, diag, ASH_ERROR_OUT_OF_RANGE, "the streams have too many commands");
    if (made) out->works = ash_mem_calloc(a, all, sizeof *out->works);
    if (made) out->commands = ash_mem_calloc(a, all, sizeof *out->commands);
    out->room = (uint32_t)all;
    return made && out->works && out->commands ? ASH_OK : ASH_NO_MEMORY(diag);
}

static void clear_script(const struct lanes *l, struct lane_script *script) {
    for (uint32_t i = 0; i < l->n_lanes; i++) {
        script->lists[i].count = 0;
        script->lists[i].open = NULL;
    }
    script->n_works = script->n_commands = 0;
    script->full = false;
}

/* --- rounds ----------------------------------------------------------------------------------------- */

/* The engine runs nothing before it is to finish: a batch that it has been given may still grow. */
static void issue(ash_streams *streams, const ash_command *commands, size_t count) {
    struct lanes *l = of(streams);
    uint32_t before = l->issued.n_commands;
    translate(l, &l->issued, commands, count);
    l->engine->class->issue(l->engine, l->issued.commands + before, l->issued.n_commands - before);
}

/* Who waits for a device runs nothing else: threads are called. */
static void begin_round(const struct lanes *l) {
    ash_cpu__of(l->engine)->work = INT64_MAX;
}

static ash_status end_round(struct lanes *l, ash_status status, ash_diag *diag) {
    if (l->status != ASH_OK) {
        status = l->status;
        if (diag) *diag = l->diag;
    }
    for (uint32_t i = 0; status != ASH_OK && i < l->n_lanes; i++) /* no longer stopped */
        if (l->lanes[i].own) ash_streams__finish(l->lanes[i].own, NULL);
    l->status = ASH_OK;
    return status;
}

static ash_status finish(ash_streams *streams, ash_diag *diag) {
    struct lanes *l = of(streams);
    bool full = l->issued.full;
    begin_round(l);
    if (full) l->engine->class->stop(l->engine);
    ash_status status = end_round(l, ash_streams__finish(l->engine, diag), diag);
    clear_script(l, &l->issued);
    ASH_FAIL_IF(full, diag, ASH_ERROR_INTERNAL, "a stream has more commands than were announced");
    return status;
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

/* --- captures --------------------------------------------------------------------------------------- */

static void capture_free(ash_streams *streams, ash_capture *capture) {
    struct lanes *l = of(streams);
    if (!capture) return;
    if (capture->engine) l->engine->class->capture_free(l->engine, capture->engine);
    free_script(l, &capture->script);
    ash_mem_free(l->allocator, capture, 1, sizeof *capture);
}

/* Those of a replica that does the same have as many batches, in the same order. */
static const ash_capture *batch_of(const ash_capture *like, const ash_capture *capture, uint32_t work) {
    bool same = like && like->script.n_works == capture->script.n_works;
    return same ? like->script.works[work].capture : NULL;
}

static ash_status capture_all(struct lanes *l, const ash_capture *like, ash_capture *capture,
                              ash_diag *diag) {
    struct lane_script *script = &capture->script;
    for (uint32_t i = 0; i < script->n_works; i++) {
        struct lane_work *work = &script->works[i];
        ash_streams *own = l->lanes[work->lane].own;
        if (work->host.fn == run_batch)
            ASH_TRY(own->class->instantiate(own, work->commands, work->count, batch_of(like, capture, i),
                                            &work->capture, diag));
    }
    return l->engine->class->instantiate(l->engine, script->commands, script->n_commands, NULL,
                                         &capture->engine, diag);
}

static ash_status instantiate(ash_streams *streams, const ash_command *commands, size_t count,
                              const ash_capture *like, ash_capture **out, ash_diag *diag) {
    struct lanes *l = of(streams);
    ASH_FAIL_IF(!l->captures, diag, ASH_ERROR_UNSUPPORTED, "these streams were made to issue commands");
    uint32_t *rooms = ash_mem_calloc(l->allocator, l->n_lanes, sizeof *rooms);
    ash_capture *capture = ash_mem_calloc(l->allocator, 1, sizeof *capture);
    ash_status status = rooms && capture ? ASH_OK : ASH_NO_MEMORY(diag);
    for (size_t i = 0; rooms && i < count; i++) rooms[commands[i].stream]++;
    if (status == ASH_OK) status = make_script(l, rooms, &capture->script, diag);
    if (status == ASH_OK) {
        translate(l, &capture->script, commands, count);
        status = capture_all(l, like, capture, diag);
    }
    ash_mem_free(l->allocator, rooms, l->n_lanes, sizeof *rooms);
    if (status == ASH_OK)
        *out = capture;
    else
        capture_free(streams, capture);
    return status;
}

static ash_status replay(ash_streams *streams, const ash_capture *capture, ash_diag *diag) {
    struct lanes *l = of(streams);
    begin_round(l);
    return end_round(l, l->engine->class->replay(l->engine, capture->engine, diag), diag);
}

/* Adds up over the batches. */
static uint32_t add_up(const ash_capture *capture, bool launches) {
    uint32_t all = 0;
    for (uint32_t i = 0; i < capture->script.n_works; i++) {
        const struct lane_work *work = &capture->script.works[i];
        if (!work->capture) continue;
        const ash_stream_class *class = work->of->lanes[work->lane].own->class;
        all += launches ? class->graphs(work->capture) : class->captured(work->capture);
    }
    return all;
}

static uint32_t captured(const ash_capture *capture) {
    return add_up(capture, false);
}

static uint32_t graphs(const ash_capture *capture) {
    return add_up(capture, true);
}

static bool compiled(const ash_capture *capture) {
    bool any = false;
    for (uint32_t i = 0; i < capture->script.n_works; i++) {
        const struct lane_work *work = &capture->script.works[i];
        if (work->capture) any |= work->of->lanes[work->lane].own->class->compiled(work->capture);
    }
    return any;
}

/* --- life ------------------------------------------------------------------------------------------- */

static void destroy(ash_streams *streams) {
    struct lanes *l = of(streams);
    const ash_allocator *a = l->allocator;
    if (l->lanes) free_script(l, &l->issued);
    for (uint32_t i = 0; l->lanes && i < l->n_lanes; i++) {
        ash_streams__destroy(l->lanes[i].own);
        ash_passage__close(&l->lanes[i].passage);
    }
    ash_streams__destroy(l->engine);
    ash_device_close(l->cpu);
    ash_mem_free(a, l->lanes, l->n_lanes, sizeof *l->lanes);
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
                                       .instantiate = instantiate,
                                       .replay = replay,
                                       .capture_free = capture_free,
                                       .captured = captured,
                                       .graphs = graphs,
                                       .compiled = compiled};

static ash_status make_lane(struct lanes *l, const ash_lane *on, uint32_t room,
                            const ash_streams_options *options, struct lane *lane, ash_diag *diag) {
    ash_device *device = l->devices[on->to];
    lane->on = *on;
    if (on->from != on->to)
        return ash_passage__open(&lane->passage, device, l->devices[on->from], on->most, diag);
    if (device->class == l->cpu->class && !l->captures) return ASH_OK;
    const ash_streams_options own = {.streams = 1,
                                     .commands = ASH_MAX(room, 1u),
                                     .threads = options->threads,
                                     .maker = options->maker,
                                     .cancel = options->cancel,
                                     .keep_denormals = options->keep_denormals};
    return ash_streams__create(device, &own, &lane->own, diag);
}

static ash_status make_parts(struct lanes *l, ash_device *const *devices, const ash_lane *lanes,
                             const ash_streams_options *options, ash_diag *diag) {
    uint32_t rooms[ASH_LANES_MOST];
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
    for (uint32_t i = 0; i < l->n_lanes; i++) {
        rooms[i] = options->shares ? options->shares[i] : options->commands;
        ASH_TRY(make_lane(l, &lanes[i], rooms[i], options, &l->lanes[i], diag));
    }
    ASH_TRY(make_script(l, rooms, &l->issued, diag));
    l->base.stop = l->engine->stop;
    return ASH_OK;
}

ash_status ash_lanes__create(ash_device *const *devices, const ash_lane *lanes, bool captures,
                             const ash_streams_options *options, ash_streams **out, ash_diag *diag) {
    const ash_allocator *a = ash_device__allocator(devices[lanes[0].to]);
    *out = NULL;
    ASH_FAIL_IF(options->streams < 2 || options->streams > ASH_LANES_MOST, diag, ASH_ERROR_INVALID_ARGUMENT,
                "%u streams of several devices: there are 2 to %d", options->streams, ASH_LANES_MOST);
    struct lanes *l = ash_mem_calloc(a, 1, sizeof *l);
    if (!l) return ASH_NO_MEMORY(diag);
    l->base.class = &class;
    l->allocator = a;
    l->captures = captures;
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

bool ash_lanes__is_direct(const ash_streams *streams, uint32_t stream) {
    const struct lanes *l = (const struct lanes *)streams;
    return ash_passage__is_direct(&l->lanes[stream].passage);
}
