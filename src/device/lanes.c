/* SPDX-License-Identifier: MIT */
/* Streams of several devices.
 *
 * All of them are streams of the CPU (stream_queue.c), the *engine*: threads take turns to run them, meet
 * at events, and sleep where there is nothing to do. Commands of the CPU's own streams run there as they
 * are. For another device, what stands between two events, a *batch*, is a function of the host that hands
 * it to a stream of the device's own. So is a copy from one device to another, on a stream of its own.
 *
 *     commands   lane 0   a b | wait 1 | c d        lane 1   e f | record 1
 *     engine              [ab]  wait 1   [cd]                [ef]  record 1        [..]: a batch
 *
 * Where the device's stream runs ahead (stream.h), nobody waits for a batch. An event of such a lane is
 * two of the engine: that it has been recorded, and that it has happened. Another lane that runs ahead by
 * the same driver waits for the first, and has its stream follow; all others wait for the second, which is
 * asked for by who has nothing else to do. What can be handed on is, before anything else is done. So the
 * copies and the work of such devices overlap with each other and with the CPU's work as far as events
 * allow, with one thread as well.
 *
 *     commands   lane 1   e f | record 1 | g      lane 2   wait 1 | copy           lane 0   wait 1 | c
 *     engine              [ef]  record 1   [g]             recorded 1, follow [copy]        happened 1  c
 *
 * Elsewhere the function returns when all of the batch is over, so that an event is recorded when what came
 * before has really happened, and no device has to know of another's events: then all overlaps as far as
 * events and the number of threads allow.
 *
 * A capture makes one of each batch, by its device, and of the engine's commands; the CPU's own streams
 * have batches then as well, each of which becomes a function. So a replay launches graphs in the order
 * that events leave, and copies between devices stand between them.
 *
 * A fill, which is for debugging, is done by the host when its lane is idle: what several lanes count
 * together no device could.
 *
 * What is issued is translated into lists that are there from the beginning. */
#include "lanes.h"

#include <sched.h>

#include "stream_cpu.h"

enum {
    NO_LANE = UINT32_MAX,
    FOR_ONE = 3 /* commands of the engine, at most, for one: a record is a function and two records */
};

struct lane_work;
typedef ash_status (*lane_run)(const struct lane_work *work, unsigned worker, ash_diag *diag);

/* A function of the host, in one of the streams. */
struct lane_work {
    struct lanes *of;
    lane_run run;
    ash_host host; /* which the engine calls for it */
    uint32_t lane;
    const ash_command *commands; /* `count` of them for the lane's device, or one for the host */
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
    ash_command *commands; /* the engine's: FOR_ONE times as many */
    uint32_t n_works, n_commands, room;
    bool full; /* there were more than there is room for */
};

struct ash_capture {
    struct lane_script script;
    ash_capture *engine; /* of the script's commands */
};

struct lane {
    ash_lane on;
    ash_streams *own; /* one stream of its device, or that is its way; NULL: the engine runs its commands */
    ash_passage passage; /* of copies that have no such way */
    uint32_t events;     /* of its own that are in use */
};

/* An event that a lane which runs ahead has recorded. */
struct lane_event {
    struct lanes *of;
    uint32_t lane;  /* NO_LANE: another lane's, or nobody has said so far */
    uint32_t event; /* of the lane's own */
    ash_look look;
};

struct lanes {
    ash_streams base;
    const ash_allocator *allocator;
    ash_device *devices[ASH_MOST_DEVICES];
    ash_device *cpu; /* the engine's; held */
    ash_streams *engine;
    struct lane *lanes;
    struct lane_event *events;
    struct lane_script issued; /* in this round */
    uint32_t n_lanes, n_events;
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

static bool runs_ahead(const struct lane *lane) {
    return lane->own && lane->own->class->ahead;
}

static ash_status run_own(ash_streams *own, const struct lane_work *work, ash_diag *diag) {
    bool ahead = own->class->ahead != NULL;
    if (work->capture && ahead)
        own->class->start(own, work->capture);
    else if (work->capture)
        return own->class->replay(own, work->capture, diag);
    else
        own->class->issue(own, work->commands, work->count);
    return ahead ? ASH_OK : ash_streams__finish(own, diag);
}

static ash_status run_batch(const struct lane_work *work, unsigned worker, ash_diag *diag) {
    struct lanes *l = work->of;
    const struct lane *lane = &l->lanes[work->lane];
    if (l->devices[lane->on.to]->class == l->cpu->class && lane->on.from == lane->on.to)
        ash_cpu__run_within(lane->own, l->engine, work->lane, worker);
    return run_own(lane->own, work, diag);
}

static ash_status run_copy(const struct lane_work *work, unsigned worker, ash_diag *diag) {
    const ash_transfer *copy = work->commands->copy;
    (void)worker;
    if (copy->bytes <= 0) return ASH_OK;
    return ash_passage__copy(&work->of->lanes[work->lane].passage, copy->buffers[1] + (uint64_t)copy->to,
                             copy->buffers[0] + (uint64_t)copy->from, (uint64_t)copy->bytes, diag);
}

static bool is_stopped(const struct lanes *l) {
    return ash_stop__is_asked(&ash_cpu__of(l->engine)->stop);
}

/* Until all that was issued to a lane is over, or the streams are stopped; by an event that nothing else
 * has. */
static ash_status wait_for(const struct lanes *l, const struct lane *lane, ash_diag *diag) {
    const ash_stream_ahead *ahead = lane->own->class->ahead;
    bool over = false;
    ASH_TRY(ahead->record(lane->own, lane->on.events, diag));
    while (!over && !is_stopped(l)) {
        ASH_TRY(ahead->happened(lane->own, lane->on.events, &over, diag));
        sched_yield();
    }
    return ASH_OK;
}

static ash_status run_fill(const struct lane_work *work, unsigned worker, ash_diag *diag) {
    struct lanes *l = work->of;
    const struct lane *lane = &l->lanes[work->lane];
    const ash_fill *fill = work->commands->fill;
    ash_device *device = l->devices[fill->device];
    (void)worker;
    if (runs_ahead(lane)) ASH_TRY(wait_for(l, lane, diag));
    if (is_stopped(l)) return ASH_OK;
    bool last = !fill->left || atomic_fetch_sub(fill->left, 1) == 1;
    if (!last || !fill->bytes) return ASH_OK;
    return device->class->fill(device, *fill->buffer, fill->value, fill->bytes, diag);
}

static ash_status run_record(const struct lane_work *work, unsigned worker, ash_diag *diag) {
    struct lanes *l = work->of;
    ash_streams *own = l->lanes[work->lane].own;
    (void)worker;
    return own->class->ahead->record(own, l->events[work->commands->event].event, diag);
}

static ash_status run_follow(const struct lane_work *work, unsigned worker, ash_diag *diag) {
    struct lanes *l = work->of;
    const struct lane_event *event = &l->events[work->commands->event];
    ash_streams *own = l->lanes[work->lane].own;
    (void)worker;
    return own->class->ahead->follow(own, l->lanes[event->lane].own, event->event, diag);
}

/* What the engine calls. A copy that the host does is a step of the engine, everything else is none. */
static void run_work(void *arg, void *const *buffers, int64_t begin, int64_t end, int64_t worker) {
    const struct lane_work *work = arg;
    ash_diag diag;
    (void)buffers, (void)begin, (void)end;
    ash_diag_clear(&diag);
    ash_status status = work->run(work, (unsigned)worker, &diag);
    if (work->run != run_copy) atomic_fetch_add(&work->of->hosts, 1);
    if (status != ASH_OK) fail(work->of, status, &diag);
}

/* Of the CPU's own stream: whether an event of a lane has happened, or never will. */
static bool look(void *arg) {
    const struct lane_event *event = arg;
    struct lanes *l = event->of;
    const ash_streams *own = l->lanes[event->lane].own;
    bool over = true;
    ash_diag diag;
    if (is_stopped(l)) return true;
    ash_diag_clear(&diag);
    ash_status status = own->class->ahead->happened(own, event->event, &over, &diag);
    if (status != ASH_OK) fail(l, status, &diag);
    return over || status != ASH_OK;
}

/* --- translating ------------------------------------------------------------------------------------ */

static void add(struct lane_script *script, const ash_command *command) {
    if (script->n_commands < FOR_ONE * script->room)
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
                                  const ash_command *kept, lane_run run) {
    struct lane_work *work = &script->works[script->n_works++];
    *work = (struct lane_work){.of = l, .run = run, .lane = command->stream, .commands = kept, .count = 1};
    work->host =
        (ash_host){.fn = run_work, .arg = work, .chunks = {.end = 1, .parallel = run == run_batch}};
    ash_command host = {.kind = ASH_COMMAND_HOST, .stream = command->stream, .host = &work->host};
    if (run == run_copy) host.timing = command->timing;
    add(script, &host);
    return work;
}

/* The event of the engine that says that what has been recorded has happened. */
static void add_happened(const struct lanes *l, struct lane_script *script, const ash_command *c,
                         ash_look *looks) {
    ash_command happened = *c;
    happened.event += l->n_events;
    happened.look = looks;
    add(script, &happened);
}

/* A record of a lane that runs ahead. */
static void translate_record(struct lanes *l, struct lane_script *script, const ash_command *c,
                             const ash_command *kept) {
    struct lane_event *event = &l->events[c->event];
    if (event->lane == NO_LANE)
        *event = (struct lane_event){l, c->stream, l->lanes[c->stream].events++, {look, event, false}};
    add_work(l, script, c, kept, run_record);
    add(script, c);
    add_happened(l, script, c, &event->look);
}

static void translate_wait(struct lanes *l, struct lane_script *script, const ash_command *c) {
    const struct lane_event *event = &l->events[c->event];
    const struct lane *lane = &l->lanes[c->stream];
    const ash_stream_ahead *by = event->lane == NO_LANE ? NULL : l->lanes[event->lane].own->class->ahead;
    const ash_command *kept;
    if (by && !(runs_ahead(lane) && lane->own->class->ahead == by)) {
        add_happened(l, script, c, NULL);
        return;
    }
    add(script, c);
    if (by && (kept = keep(script, c))) add_work(l, script, c, kept, run_follow);
}

static void translate_work(struct lanes *l, struct lane_script *script, const ash_command *c,
                           const ash_command *kept) {
    struct lane_list *list = &script->lists[c->stream];
    if (c->kind == ASH_COMMAND_FILL)
        add_work(l, script, c, kept, run_fill);
    else if (!l->lanes[c->stream].own)
        add_work(l, script, c, kept, run_copy);
    else if (list->open)
        list->open->count++;
    else
        list->open = add_work(l, script, c, kept, run_batch);
}

static void translate_one(struct lanes *l, struct lane_script *script, const ash_command *c) {
    const struct lane *lane = &l->lanes[c->stream];
    bool works = ash_command__works(c), fills = c->kind == ASH_COMMAND_FILL;
    const ash_command *kept;
    if (!works || fills) script->lists[c->stream].open = NULL;
    if (c->kind == ASH_COMMAND_WAIT)
        translate_wait(l, script, c);
    else if (c->kind == ASH_COMMAND_RECORD ? !runs_ahead(lane)
                                           : !fills && !lane->own && lane->on.from == lane->on.to)
        add(script, c);
    else if (!(kept = keep(script, c)))
        return;
    else if (works)
        translate_work(l, script, c, kept);
    else
        translate_record(l, script, c, kept);
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
    ash_mem_free(a, script->commands, FOR_ONE * (size_t)script->room, sizeof *script->commands);
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
    ASH_FAIL_IF(all > UINT32_MAX / FOR_ONE, diag, ASH_ERROR_OUT_OF_RANGE,
                "the streams have too many commands");
    if (made) out->works = ash_mem_calloc(a, all, sizeof *out->works);
    if (made) out->commands = ash_mem_calloc(a, FOR_ONE * all, sizeof *out->commands);
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
static void begin_round(struct lanes *l) {
    for (uint32_t i = 0; i < l->n_lanes; i++)
        if (!runs_ahead(&l->lanes[i]) && (l->lanes[i].own || l->lanes[i].passage.to))
            ash_cpu__of(l->engine)->work = INT64_MAX;
    for (uint32_t i = 0; i < l->n_events; i++) atomic_store(&l->events[i].look.over, false);
}

/* What runs ahead is waited for; others are no longer stopped. A failure is told rather than that something
 * was left out for it. */
static ash_status end_round(struct lanes *l, ash_status status, ash_diag *diag) {
    for (uint32_t i = 0; i < l->n_lanes; i++) {
        if (!l->lanes[i].own || (status == ASH_OK && !runs_ahead(&l->lanes[i]))) continue;
        ash_diag own;
        ash_diag_clear(&own);
        ash_status ended = ash_streams__finish(l->lanes[i].own, &own);
        if (ended == ASH_OK || (status != ASH_OK && status != ASH_ERROR_CANCELLED)) continue;
        status = ended;
        if (diag) *diag = own;
    }
    if (l->status != ASH_OK) {
        status = l->status;
        if (diag) *diag = l->diag;
    }
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
        if (work->run == run_batch && own->class->instantiate)
            ASH_TRY(own->class->instantiate(own, work->commands, work->count, batch_of(like, capture, i),
                                            &work->capture, diag));
    }
    return l->engine->class->instantiate(l->engine, script->commands, script->n_commands, NULL,
                                         &capture->engine, diag);
}

/* A script of its own for so many commands. */
static ash_status translate_all(struct lanes *l, const ash_command *commands, size_t count,
                                struct lane_script *out, ash_diag *diag) {
    uint32_t *rooms = ash_mem_calloc(l->allocator, l->n_lanes, sizeof *rooms);
    *out = (struct lane_script){0};
    if (!rooms) return ASH_NO_MEMORY(diag);
    for (size_t i = 0; i < count; i++) rooms[commands[i].stream]++;
    ash_status status = make_script(l, rooms, out, diag);
    if (status == ASH_OK) translate(l, out, commands, count);
    ash_mem_free(l->allocator, rooms, l->n_lanes, sizeof *rooms);
    return status;
}

static ash_status instantiate(ash_streams *streams, const ash_command *commands, size_t count,
                              const ash_capture *like, ash_capture **out, ash_diag *diag) {
    struct lanes *l = of(streams);
    ASH_FAIL_IF(!l->captures, diag, ASH_ERROR_UNSUPPORTED, "these streams were made to issue commands");
    ash_capture *capture = ash_mem_calloc(l->allocator, 1, sizeof *capture);
    if (!capture) return ASH_NO_MEMORY(diag);
    ash_status status = translate_all(l, commands, count, &capture->script, diag);
    if (status == ASH_OK) status = capture_all(l, like, capture, diag);
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
    ash_mem_free(a, l->events, l->n_events, sizeof *l->events);
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
    ash_device *device = l->devices[on->to], *from = l->devices[on->from];
    const ash_streams_options own = {.streams = 1,
                                     .events = on->events + 1, /* see `wait_for` */
                                     .commands = ASH_MAX(room, 1u),
                                     .threads = options->threads,
                                     .maker = options->maker,
                                     .cancel = options->cancel,
                                     .keep_denormals = options->keep_denormals};
    lane->on = *on;
    if (device == from && device->class == l->cpu->class && !l->captures) return ASH_OK;
    if (device == from) return ash_streams__create(device, &own, &lane->own, diag);
    ASH_TRY(ash_device__connect(device, from, on->most, &own, &lane->own, diag));
    return lane->own ? ASH_OK : ash_passage__open(&lane->passage, device, from, on->most, diag);
}

static ash_status make_engine(struct lanes *l, const uint32_t *rooms, const ash_streams_options *options,
                              ash_diag *diag) {
    uint32_t shares[ASH_LANES_MOST];
    uint64_t first = 0;
    for (uint32_t i = 0; i < l->n_lanes; i++) {
        shares[i] = FOR_ONE * rooms[i];
        first |= (uint64_t)runs_ahead(&l->lanes[i]) << i;
    }
    const ash_streams_options engine = {.streams = options->streams,
                                        .events = 2 * options->events,
                                        .shares = shares,
                                        .first = first,
                                        .threads = options->threads,
                                        .cancel = options->cancel,
                                        .keep_denormals = options->keep_denormals};
    ASH_TRY(ash_streams__create(l->cpu, &engine, &l->engine, diag));
    l->base.stop = l->engine->stop;
    return ASH_OK;
}

static ash_status make_parts(struct lanes *l, ash_device *const *devices, const ash_lane *lanes,
                             const ash_streams_options *options, ash_diag *diag) {
    uint32_t rooms[ASH_LANES_MOST];
    ASH_TRY(ash_device__default(ash_device__context(devices[lanes[0].to]), &l->cpu, diag));
    l->lanes = ash_mem_calloc(l->allocator, options->streams, sizeof *l->lanes);
    if (!l->lanes) return ASH_NO_MEMORY(diag);
    l->n_lanes = options->streams;
    l->events = ash_mem_calloc(l->allocator, options->events, sizeof *l->events);
    if (!l->events) return ASH_NO_MEMORY(diag);
    l->n_events = options->events;
    for (uint32_t i = 0; i < l->n_events; i++) l->events[i].lane = NO_LANE;
    for (uint32_t i = 0; i < l->n_lanes; i++) {
        rooms[i] = options->shares ? options->shares[i] : options->commands;
        l->devices[lanes[i].from] = devices[lanes[i].from];
        l->devices[lanes[i].to] = devices[lanes[i].to];
    }
    for (uint32_t i = 0; i < l->n_lanes; i++)
        ASH_TRY(make_lane(l, &lanes[i], rooms[i], options, &l->lanes[i], diag));
    ASH_TRY(make_engine(l, rooms, options, diag));
    return make_script(l, rooms, &l->issued, diag);
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
    return l->lanes[stream].own && l->lanes[stream].own->direct;
}

/* A way's memory is the receiver's, where that is not the host itself. */
static ash_streams_memory *memory_of(const struct lanes *l, const struct lane *lane,
                                     ash_streams_memory *out) {
    bool to_host = l->devices[lane->on.to]->class->cpu_accessible;
    return &out[to_host ? lane->on.from : lane->on.to];
}

ash_status ash_lanes__memory(const ash_streams *streams, const ash_command *commands, size_t count,
                             ash_streams_memory *out, ash_diag *diag) {
    struct lanes *l = (struct lanes *)streams;
    struct lane_script script;
    ash_status status = translate_all(l, commands, count, &script, diag);
    for (uint32_t i = 0; i < l->n_lanes && status == ASH_OK; i++) {
        const ash_streams *own = l->lanes[i].own;
        if (own && own->class->memory)
            status = own->class->memory(own, NULL, 0, memory_of(l, &l->lanes[i], out), diag);
    }
    for (uint32_t i = 0; i < script.n_works && status == ASH_OK; i++) {
        const struct lane_work *work = &script.works[i];
        const ash_streams *own = l->lanes[work->lane].own;
        if (work->run == run_batch && own->class->memory)
            status = own->class->memory(own, work->commands, work->count,
                                        memory_of(l, &l->lanes[work->lane], out), diag);
    }
    free_script(l, &script);
    return status;
}
