/* SPDX-License-Identifier: MIT */
/* The device of the tests: see apart.h. Part of every test program. */
#include "apart.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"

enum { CHUNKS = 256 /* of a launch, that run in any order */ };

/* No process has an address like this: pointers of x86-64 and aarch64 are 48 bits, extended by their
 * highest. */
#define TAG ((ash_address)0x00de << 48)
#define GAP ((ash_address)4096) /* bytes between two blocks */

reorder_plan reorder = {.seed = 1, .drop = UINT32_MAX};

static void must(bool holds, const char *what) {
    if (holds) return;
    fprintf(stderr, "APART: %s\n", what);
    abort();
}

/* --- memory ----------------------------------------------------------------------------------------- */

/* Where a run of bytes is in earnest. */
struct region {
    ash_address begin;
    uint64_t size;
    char *host;
};

struct apart {
    pthread_mutex_t lock;
    struct region *regions; /* by address: addresses are never given out twice */
    size_t count, room;
    ash_address next;
    long kernels; /* that are loaded */
};

struct ash_kernel {
    ash_kernel_fn fn;
};

static struct apart *own(const ash_device *device) {
    return device->own;
}

/* The block around an address, or at whose end it is. */
static struct region *find(struct apart *a, ash_address address) {
    size_t low = 0, high = a->count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (a->regions[middle].begin <= address)
            low = middle + 1;
        else
            high = middle;
    }
    struct region *r = low ? &a->regions[low - 1] : NULL;
    return r && address - r->begin <= r->size ? r : NULL;
}

/* Memory of the host for bytes of the device. */
static char *reach(const ash_device *device, ash_address address, uint64_t size) {
    struct apart *a = own(device);
    pthread_mutex_lock(&a->lock);
    const struct region *r = find(a, address);
    char *host = r ? r->host + (address - r->begin) : NULL;
    bool inside = r && size <= r->size - (address - r->begin);
    pthread_mutex_unlock(&a->lock);
    must(inside, "bytes that are in no block");
    return host;
}

static ash_address add_region(struct apart *a, char *host, uint64_t size, uint64_t align) {
    pthread_mutex_lock(&a->lock);
    if (a->count == a->room) {
        a->room = 2 * a->room + 16;
        a->regions = realloc(a->regions, a->room * sizeof *a->regions);
        must(a->regions != NULL, "no memory");
    }
    ash_address begin = ash_align_up(a->next, align);
    a->next = begin + size + GAP;
    a->regions[a->count++] = (struct region){begin, size, host};
    pthread_mutex_unlock(&a->lock);
    return begin;
}

static char *remove_region(struct apart *a, ash_address begin) {
    pthread_mutex_lock(&a->lock);
    struct region *r = find(a, begin);
    must(r && r->begin == begin, "what is freed is no block");
    char *host = r->host;
    a->count--;
    memmove(r, r + 1, (size_t)(a->regions + a->count - r) * sizeof *r);
    pthread_mutex_unlock(&a->lock);
    return host;
}

/* What a copy takes from the host or gives to it is the host's. */
static void check_host(const void *host, uint64_t size) {
    must(size == 0 || (uintptr_t)host >> 48 == 0, "an address of the device where one of the host belongs");
}

/* --- the device ------------------------------------------------------------------------------------- */

static ash_status apart_begin(ash_device *device, const char *rest, ash_diag *diag) {
    (void)rest;
    struct apart *a = ash_mem_calloc(ash_device__allocator(device), 1, sizeof *a);
    if (!a) return ASH_NO_MEMORY(diag);
    static _Atomic uint64_t opened; /* an address is of one device */
    pthread_mutex_init(&a->lock, NULL);
    a->next = TAG + GAP + ((ash_address)atomic_fetch_add(&opened, 1) % 128 << 41);
    device->own = a;
    return ASH_OK;
}

static void apart_end(ash_device *device) {
    struct apart *a = own(device);
    must(a->count == 0 && a->kernels == 0, "closed with blocks or kernels");
    free(a->regions);
    pthread_mutex_destroy(&a->lock);
    ash_mem_free(ash_device__allocator(device), a, 1, sizeof *a);
}

static bool apart_current(ash_device *device) {
    (void)device;
    return true;
}

static ash_status apart_allocate(ash_device *device, ash_block *block, ash_diag *diag) {
    const ash_allocator *a = ash_device__allocator(device);
    size_t size = (size_t)ASH_MAX(block->size, 1u);
    ASH_FAIL_IF(block->size > (uint64_t)1 << 40, diag, ASH_ERROR_OUT_OF_MEMORY,
                "out of memory: %llu bytes asked for", (unsigned long long)block->size);
    char *host = a->alloc(a->user, size, block->align);
    if (!host)
        return ash_fail(diag, ASH_ERROR_OUT_OF_MEMORY, "out of memory: %llu bytes asked for",
                        (unsigned long long)block->size);
    memset(host, 0, size);
    block->address = add_region(own(device), host, block->size, block->align);
    return ASH_OK;
}

static void apart_free(ash_device *device, ash_block *block) {
    const ash_allocator *a = ash_device__allocator(device);
    a->free(a->user, remove_region(own(device), block->address), (size_t)ASH_MAX(block->size, 1u));
}

static ash_status apart_copy_in(ash_device *device, ash_address to, const void *from, uint64_t size,
                                ash_diag *diag) {
    (void)diag;
    check_host(from, size);
    if (size) memmove(reach(device, to, size), from, size);
    return ASH_OK;
}

static ash_status apart_copy_out(ash_device *device, void *to, ash_address from, uint64_t size,
                                 ash_diag *diag) {
    (void)diag;
    check_host(to, size);
    if (size) memmove(to, reach(device, from, size), size);
    return ASH_OK;
}

static ash_status apart_copy(ash_device *device, ash_address to, ash_address from, uint64_t size,
                             ash_diag *diag) {
    (void)diag;
    if (size) memmove(reach(device, to, size), reach(device, from, size), size);
    return ASH_OK;
}

static ash_status apart_fill(ash_device *device, ash_address to, uint8_t value, uint64_t size,
                             ash_diag *diag) {
    (void)diag;
    if (size) memset(reach(device, to, size), value, size);
    return ASH_OK;
}

static ash_status apart_load(ash_device *device, const ash_kernel_image *image, ash_kernel **out,
                             ash_diag *diag) {
    ash_kernel *kernel = ash_mem_calloc(ash_device__allocator(device), 1, sizeof *kernel);
    if (!kernel) return ASH_NO_MEMORY(diag);
    kernel->fn = image->host;
    __atomic_add_fetch(&own(device)->kernels, 1, __ATOMIC_RELAXED);
    *out = kernel;
    return ASH_OK;
}

static void apart_unload(ash_device *device, ash_kernel *kernel) {
    __atomic_sub_fetch(&own(device)->kernels, 1, __ATOMIC_RELAXED);
    ash_mem_free(ash_device__allocator(device), kernel, 1, sizeof *kernel);
}

/* --- streams ---------------------------------------------------------------------------------------- */

struct stream {
    ash_command *commands;
    uint32_t next, count;
    bool begun;            /* the command at `next` */
    int64_t done;          /* of it: chunks or bytes */
    uint8_t order[CHUNKS]; /* of its chunks */
    void **table;          /* of it: addresses of the host, for host functions those of copies */
    int64_t start;         /* of it, on the clock */
    uint64_t turn;         /* of a repeat: how often it was asked */
    struct stream *within; /* the list of a repeat that runs, or NULL */
};

struct streams {
    ash_streams base;
    ash_device *device;
    const ash_allocator *allocator;
    ash_streams_options options;
    struct stream *at;
    bool *events;
    ash_stop stop;
    uint32_t waits; /* issued in this round */
    uint64_t random;
    ash_streams_counts counts;
    _Atomic uint64_t done;
};

struct ash_capture {
    ash_command *commands;
    size_t count;
    uint32_t steps;
};

static struct streams *of(ash_streams *streams) {
    return (struct streams *)streams;
}

static uint32_t pick(struct streams *d, uint32_t below) {
    d->random ^= d->random >> 12, d->random ^= d->random << 25, d->random ^= d->random >> 27;
    return (uint32_t)((d->random * 0x2545f4914f6cdd1dULL) >> 33) % below;
}

static void issue(ash_streams *streams, const ash_command *commands, size_t count) {
    struct streams *d = of(streams);
    for (const ash_command *c = commands; c < commands + count; c++) {
        if (c->kind == ASH_COMMAND_WAIT && d->waits++ == reorder.drop) continue;
        must(c->stream < d->options.streams, "no such stream");
        struct stream *s = &d->at[c->stream];
        must(s->count < d->options.commands, "more commands than were announced");
        must((c->kind != ASH_COMMAND_RECORD && c->kind != ASH_COMMAND_WAIT) || c->event < d->options.events,
             "no such event");
        s->commands[s->count++] = *c;
    }
}

/* --- one command ------------------------------------------------------------------------------------ */

static const ash_chunks *chunks_of(const ash_command *c) {
    return c->kind == ASH_COMMAND_LAUNCH ? &c->launch->chunks : &c->host->chunks;
}

static void **new_table(uint32_t count) {
    void **table = calloc(count + 1u, sizeof *table);
    must(table != NULL, "no memory");
    return table;
}

static void begin_launch(struct streams *d, struct stream *s, const ash_launch *launch) {
    s->table = new_table(launch->count);
    for (uint32_t i = 0; i < launch->count; i++)
        if (launch->buffers[i]) s->table[i] = reach(d->device, launch->buffers[i], 0);
}

static void begin_host(struct streams *d, struct stream *s, const ash_host *host) {
    s->table = new_table(host->count);
    for (uint32_t i = 0; i < host->count; i++) {
        const ash_operand *o = &host->operands[i];
        must(posix_memalign(&s->table[i], 64, o->bytes + 1) == 0, "no memory");
        memset(s->table[i], 0xa5, o->bytes + 1);
        if (o->read && o->bytes)
            memcpy(s->table[i], reach(d->device, host->buffers[i], o->bytes), o->bytes);
    }
}

static void end_host(struct streams *d, struct stream *s, const ash_host *host) {
    for (uint32_t i = 0; i < host->count; i++) {
        const ash_operand *o = &host->operands[i];
        must(((unsigned char *)s->table[i])[o->bytes] == 0xa5, "a function of the host left its operand");
        if (o->write && o->bytes)
            memcpy(reach(d->device, host->buffers[i], o->bytes), s->table[i], o->bytes);
        free(s->table[i]);
    }
}

static void shuffle(struct streams *d, struct stream *s, int64_t chunks) {
    for (int64_t i = 0; i < chunks; i++) s->order[i] = (uint8_t)i;
    for (int64_t i = chunks - 1; i > 0; i--) {
        uint32_t k = pick(d, (uint32_t)i + 1);
        uint8_t other = s->order[i];
        s->order[i] = s->order[k];
        s->order[k] = other;
    }
}

/* Not the list of a repeat. */
static bool is_stream(const struct streams *d, const struct stream *s) {
    return s >= d->at && s < d->at + d->options.streams;
}

static void begin(struct streams *d, struct stream *s, const ash_command *c) {
    s->begun = true;
    s->done = 0;
    s->turn = 0;
    s->start = ash_clock__now();
    for (uint32_t i = 0; i < d->options.streams && ash_command__is_step(c) && is_stream(d, s); i++)
        if (&d->at[i] != s && d->at[i].begun) {
            d->counts.overlapped++;
            break;
        }
    if (c->kind == ASH_COMMAND_LAUNCH) begin_launch(d, s, c->launch);
    if (c->kind == ASH_COMMAND_HOST) begin_host(d, s, c->host);
    if (c->kind != ASH_COMMAND_LAUNCH && c->kind != ASH_COMMAND_HOST) return;
    int64_t chunks = chunks_of(c)->end - chunks_of(c)->begin;
    if (chunks <= CHUNKS) shuffle(d, s, chunks);
}

static void run_range(struct streams *d, struct stream *s, const ash_command *c, int64_t first,
                      int64_t end) {
    uint32_t worker = chunks_of(c)->parallel ? pick(d, ASH_MAX(d->options.threads, 1u)) : 0;
    if (c->kind == ASH_COMMAND_LAUNCH)
        c->launch->kernel->fn(s->table, c->launch->vars, first, end, worker);
    else
        c->host->fn(c->host->arg, s->table, first, end, worker);
}

/* Some chunks of a launch or a function of the host; true: all of them are done. */
static bool run_chunks(struct streams *d, struct stream *s, const ash_command *c) {
    const ash_chunks *range = chunks_of(c);
    int64_t chunks = range->end - range->begin;
    if (chunks > CHUNKS) { /* too many to remember an order: pieces of them, one after the other */
        int64_t piece = range->piece ? range->piece : chunks, end = ASH_MIN(s->done + piece, chunks);
        run_range(d, s, c, range->begin + s->done, range->begin + end);
        s->done = end;
        return end == chunks;
    }
    for (uint32_t more = 1 + pick(d, 16); more && s->done < chunks; more--, s->done++) {
        int64_t chunk = range->begin + s->order[s->done];
        run_range(d, s, c, chunk, chunk + 1);
    }
    return s->done >= chunks;
}

static bool run_copy(struct streams *d, struct stream *s, const ash_transfer *copy) {
    int64_t most = copy->bytes > 4096 ? copy->bytes / 8 : 64,
            piece = 1 + (int64_t)pick(d, (uint32_t)ASH_MIN(most, INT32_MAX));
    int64_t more = ASH_MIN(copy->bytes - s->done, piece);
    if (more > 0) {
        ash_address to = copy->buffers[1] + (uint64_t)(copy->to + s->done),
                    from = copy->buffers[0] + (uint64_t)(copy->from + s->done);
        memmove(reach(d->device, to, (uint64_t)more), reach(d->device, from, (uint64_t)more), (size_t)more);
    }
    s->done += ASH_MAX(more, 0);
    return s->done >= copy->bytes;
}

static bool run_fill(const struct streams *d, const ash_fill *fill) {
    if (fill->left && atomic_fetch_sub(fill->left, 1) != 1) return true;
    if (fill->bytes) memset(reach(d->device, *fill->buffer, fill->bytes), fill->value, fill->bytes);
    return true;
}

static bool run_store(const struct streams *d, const ash_store *store) {
    memcpy(reach(d->device, *store->buffer, sizeof *store->value), store->value, sizeof *store->value);
    return true;
}

static void step(struct streams *d, struct stream *s);

static void end_list(struct stream *s) {
    if (!s) return;
    end_list(s->within);
    free(s->table);
    free(s);
}

/* A part of a command of the list that runs, or the next list. */
static bool run_repeat(struct streams *d, struct stream *s, const ash_repeat *repeat) {
    struct stream *list = s->within;
    if (list && list->next < list->count) {
        step(d, list);
        return false;
    }
    end_list(list);
    s->within = NULL;
    bool go = !s->turn || !*repeat->look || *reach(d->device, *repeat->look, 1);
    int next = repeat->next(repeat->arg, s->turn++, go);
    if (next == ASH_REPEAT_OVER) return true;
    s->within = calloc(1, sizeof *s->within);
    must(s->within != NULL, "no memory");
    s->within->commands = (ash_command *)repeat->lists[next].commands; /* read, and nothing else */
    s->within->count = repeat->lists[next].count;
    for (uint32_t i = 0; i < s->within->count; i++) {
        const ash_command *c = &s->within->commands[i];
        bool belongs = ash_command__works(c) && !c->timing;
        must(belongs, "a command that has no place in a repeat");
    }
    return false;
}

static bool run_part(struct streams *d, struct stream *s, const ash_command *c) {
    switch (c->kind) {
    case ASH_COMMAND_REPEAT: return run_repeat(d, s, c->repeat);
    case ASH_COMMAND_STORE: return run_store(d, c->store);
    case ASH_COMMAND_LAUNCH:
    case ASH_COMMAND_HOST: return run_chunks(d, s, c);
    case ASH_COMMAND_COPY: return run_copy(d, s, c->copy);
    case ASH_COMMAND_FILL: return run_fill(d, c->fill);
    case ASH_COMMAND_RECORD: d->events[c->event] = true; return true;
    default: return true;
    }
}

/* Whether the next part is left out: the switch is on, or something was left out before. */
static bool stops(struct streams *d) {
    if (!ash_stop__is_asked(&d->stop)) return false;
    ash_stop__set_left_out(&d->stop, true);
    return true;
}

/* A part of the stream's next command; commands in a repeat are not counted. */
static void step(struct streams *d, struct stream *s) {
    const ash_command *c = &s->commands[s->next];
    bool left_out = ash_command__works(c) && stops(d);
    if (!s->begun && !left_out) begin(d, s, c);
    if (!left_out && !run_part(d, s, c)) return;
    end_list(s->within);
    s->within = NULL;
    if (s->begun && c->kind == ASH_COMMAND_HOST) end_host(d, s, c->host);
    free(s->table);
    s->table = NULL;
    s->begun = false;
    s->next++;
    if (!ash_command__is_step(c) || !is_stream(d, s) || left_out || ash_stop__has_left_out(&d->stop))
        return;
    atomic_fetch_add(&d->done, 1);
    if (c->timing) *c->timing = (ash_timing){s->start, ash_clock__now(), 1};
}

/* --- a round ---------------------------------------------------------------------------------------- */

static bool can_run(const struct streams *d, const struct stream *s) {
    if (s->next == s->count) return false;
    const ash_command *c = &s->commands[s->next];
    return c->kind != ASH_COMMAND_WAIT || d->events[c->event];
}

/* By the seed: turns at random, or one stream put off as long as possible, or one ahead of all others. */
static struct stream *choose(struct streams *d, uint32_t policy, uint32_t favourite) {
    uint32_t n = d->options.streams, best = UINT32_MAX, first = pick(d, n);
    for (uint32_t i = 0; i < n; i++) {
        uint32_t k = (first + i) % n;
        if (!can_run(d, &d->at[k])) continue;
        if (best == UINT32_MAX || (policy == 1 && best == favourite) || (policy == 2 && k == favourite))
            best = k;
    }
    return best == UINT32_MAX ? NULL : &d->at[best];
}

static ash_status finish(ash_streams *streams, ash_diag *diag) {
    struct streams *d = of(streams);
    d->random = (reorder.seed + 1) * 0x9e3779b97f4a7c15ULL;
    for (int i = 0; i < 4; i++) pick(d, 2);
    uint32_t policy = (uint32_t)(reorder.seed % 3), favourite = pick(d, d->options.streams);
    memset(d->events, 0, d->options.events * sizeof *d->events);
    d->counts.overlapped = 0;
    for (struct stream *s; (s = choose(d, policy, favourite)) != NULL;) {
        step(d, s);
        if (pick(d, 64) == 0) favourite = pick(d, d->options.streams);
    }
    for (uint32_t i = 0; i < d->options.streams; i++) {
        must(d->at[i].next == d->at[i].count, "a stream waits for ever");
        d->at[i].next = d->at[i].count = 0;
    }
    d->waits = 0;
    if (ash_stop__has_left_out(&d->stop)) {
        ash_stop__set_left_out(&d->stop, false);
        return ash_fail(diag, ASH_ERROR_CANCELLED, "the execution was cancelled");
    }
    return reorder.fail ? ash_fail(diag, ASH_ERROR_DEVICE, "the device was asked to fail") : ASH_OK;
}

static void stop(ash_streams *streams) {
    ash_stop__set_left_out(&of(streams)->stop, true);
}

static uint64_t done(const ash_streams *streams) {
    return atomic_load(&((const struct streams *)streams)->done);
}

static ash_streams_counts counts(const ash_streams *streams) {
    return ((const struct streams *)streams)->counts;
}

/* --- captures --------------------------------------------------------------------------------------- */

static void capture_free(ash_streams *streams, ash_capture *capture) {
    const ash_allocator *a = of(streams)->allocator;
    if (!capture) return;
    ash_mem_free(a, capture->commands, capture->count, sizeof *capture->commands);
    ash_mem_free(a, capture, 1, sizeof *capture);
}

static ash_status instantiate(ash_streams *streams, const ash_command *commands, size_t count,
                              const ash_capture *like, ash_capture **out, ash_diag *diag) {
    const ash_allocator *a = of(streams)->allocator;
    (void)like;
    if (reorder.refuse)
        return ash_fail(diag, ASH_ERROR_UNSUPPORTED, "the device was asked to capture nothing");
    ash_capture *capture = ash_mem_calloc(a, 1, sizeof *capture);
    if (!capture) return ASH_NO_MEMORY(diag);
    capture->count = count;
    capture->commands = ash_mem_alloc(a, count, sizeof *commands);
    if (!capture->commands) {
        capture_free(streams, capture);
        return ASH_NO_MEMORY(diag);
    }
    for (size_t i = 0; i < count; i++) {
        capture->commands[i] = commands[i];
        capture->steps += ash_command__is_step(&commands[i]);
    }
    *out = capture;
    return ASH_OK;
}

static ash_status replay(ash_streams *streams, const ash_capture *capture, ash_diag *diag) {
    issue(streams, capture->commands, capture->count);
    return finish(streams, diag);
}

static uint32_t captured(const ash_capture *capture) {
    return capture->steps;
}

static uint32_t graphs(const ash_capture *capture) {
    (void)capture;
    return 1;
}

static bool compiled(const ash_capture *capture) {
    (void)capture;
    return false;
}

/* --- life of streams -------------------------------------------------------------------------------- */

static void destroy(ash_streams *streams) {
    struct streams *d = of(streams);
    const ash_allocator *a = d->allocator;
    for (uint32_t i = 0; d->at && i < d->options.streams; i++)
        ash_mem_free(a, d->at[i].commands, d->options.commands, sizeof(ash_command));
    ash_mem_free(a, d->at, d->options.streams, sizeof *d->at);
    ash_mem_free(a, d->events, d->options.events, sizeof *d->events);
    if (d->base.stop) remove_region(own(d->device), d->base.stop);
    ash_mem_free(a, d, 1, sizeof *d);
}

static const ash_stream_class class = {.kind = "APART",
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

static ash_status create_streams(ash_device *device, const ash_streams_options *options, ash_streams **out,
                                 ash_diag *diag) {
    const ash_allocator *a = ash_device__allocator(device);
    struct streams *d = ash_mem_calloc(a, 1, sizeof *d);
    if (!d) return ASH_NO_MEMORY(diag);
    *d = (struct streams){.base = {.class = &class}, .device = device, .allocator = a, .options = *options};
    d->stop.asked = options->cancel ? options->cancel : &ash_cancel__never;
    d->at = ash_mem_calloc(a, options->streams, sizeof *d->at);
    d->events = ash_mem_calloc(a, options->events, sizeof *d->events);
    bool made = d->at && d->events;
    for (uint32_t i = 0; made && i < options->streams; i++)
        made = (d->at[i].commands = ash_mem_calloc(a, options->commands, sizeof(ash_command))) != NULL;
    if (!made) {
        destroy(&d->base);
        return ASH_NO_MEMORY(diag);
    }
    d->base.stop = add_region(own(device), (char *)&d->stop, sizeof d->stop, 64);
    *out = &d->base;
    return ASH_OK;
}

/* --- peers ------------------------------------------------------------------------------------------ */

/* A stream that copies at once. */
struct peer {
    ash_streams base;
    ash_device *to, *from;
    _Atomic uint64_t done;
};

static void carry(ash_streams *streams, const ash_command *commands, size_t count) {
    struct peer *p = (struct peer *)streams;
    for (size_t i = 0; i < count; i++) {
        const ash_transfer *t = commands[i].copy;
        const uint64_t size = t->bytes > 0 ? (uint64_t)t->bytes : 0;
        int64_t start = ash_clock__now();
        must(commands[i].kind == ASH_COMMAND_COPY, "a way does nothing but copies");
        if (size)
            memmove(reach(p->to, t->buffers[1] + (uint64_t)t->to, size),
                    reach(p->from, t->buffers[0] + (uint64_t)t->from, size), size);
        if (commands[i].timing) *commands[i].timing = (ash_timing){start, ash_clock__now(), 1};
        atomic_fetch_add(&p->done, 1);
    }
}

static void peer_stop(ash_streams *streams) {
    (void)streams;
}

static ash_status peer_finish(ash_streams *streams, ash_diag *diag) {
    (void)streams, (void)diag;
    return ASH_OK;
}

static uint64_t peer_done(const ash_streams *streams) {
    return atomic_load(&((const struct peer *)streams)->done);
}

static ash_streams_counts peer_counts(const ash_streams *streams) {
    (void)streams;
    return (ash_streams_counts){0};
}

static void disconnect(ash_streams *streams) {
    struct peer *p = (struct peer *)streams;
    ash_mem_free(ash_device__allocator(p->to), p, 1, sizeof *p);
}

static ash_status connect_peers(ash_device *to, ash_device *from, uint64_t most,
                                const ash_streams_options *options, ash_streams **out, ash_diag *diag) {
    static const ash_stream_class peers = {.kind = "APART, copies",
                                           .destroy = disconnect,
                                           .issue = carry,
                                           .stop = peer_stop,
                                           .finish = peer_finish,
                                           .counts = peer_counts,
                                           .done = peer_done};
    (void)most, (void)options;
    if (!reorder.peers || to->class != from->class) return ASH_OK;
    struct peer *p = ash_mem_calloc(ash_device__allocator(to), 1, sizeof *p);
    if (!p) return ASH_NO_MEMORY(diag);
    *p = (struct peer){.base = {.class = &peers, .direct = true}, .to = to, .from = from};
    *out = &p->base;
    return ASH_OK;
}

static const ash_device_class apart_class = {
    .kind = "APART",
    .writable = true,
    .open = apart_begin,
    .close = apart_end,
    .current = apart_current,
    .allocate = apart_allocate,
    .free = apart_free,
    .copy_in = apart_copy_in,
    .copy_out = apart_copy_out,
    .copy = apart_copy,
    .fill = apart_fill,
    .load = apart_load,
    .unload = apart_unload,
    .create_streams = create_streams,
    .connect = connect_peers,
};

ash_status apart_open(ash_context *context, ash_device **out, ash_diag *diag) {
    return ash_device__open(context, &apart_class, "APART", out, diag);
}

ash_status apart_open_another(ash_context *context, unsigned number, ash_device **out, ash_diag *diag) {
    char name[32];
    snprintf(name, sizeof name, "APART:%u", number);
    return ash_device__open(context, &apart_class, name, out, diag);
}

bool apart_is(const ash_device *device) {
    return device->class == &apart_class;
}

void *apart_reach(const ash_device *device, ash_address address, uint64_t size) {
    return reach(device, address, size);
}
