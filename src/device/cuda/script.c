/* SPDX-License-Identifier: MIT */
/* Commands to operations of the driver: see stream.h. */
#include "base/clock.h"
#include "base/map.h"
#include "stream.h"

enum {
    NO_SEGMENT = UINT32_MAX,
    MOST_THREADS =
        1 << 30, /* of a launch; threads take several chunks past that, which are no neighbours' */
    MOST_BLOCKS = 1 << 16, /* the same of blocks that take a chunk together */
    RANGE = 3,             /* i64s of a launch's record before the variables */
    FILL_WORDS = 3,        /* of a fill's */
    OPERAND_ALIGN = 64,    /* of what a function of the host gets */
    VECTOR = 16,           /* bytes that a thread of a copy or a fill moves at once */
    SLOT = 64              /* bytes: segments begin at multiples, and so do shared numbers */
};

/* One pass over the commands. */
struct maker {
    cuda_streams *streams;
    cuda_script *script;
    uint32_t *open;  /* per stream: its segment, or NO_SEGMENT */
    uint64_t *steps; /* per stream: so far */
    uint32_t n_segments;
    bool hosts;     /* there was a function of the host */
    ash_map shared; /* numbers that fills share, to places in the script's list */
};

/* --- memory ------------------------------------------------------------------------------------------ */

#define PUSH(m, list, ...)                                                                                 \
    (ash_vec_reserve((m)->streams->allocator, &(m)->script->list, 1) &&                                    \
     ((m)->script->list.at[(m)->script->list.len++] = __VA_ARGS__, true))

void ash_cuda_script__free(cuda_streams *s, cuda_script *script) {
    const ash_allocator *a = s->allocator;
    if (!script) return;
    for (size_t i = 0; i < script->calls.len; i++)
        if (script->calls.at[i].host) {
            uint32_t n = script->calls.at[i].was.count + 1u;
            ash_mem_free(a, script->calls.at[i].table, n, sizeof(void *));
            ash_mem_free(a, script->calls.at[i].sizes, n, sizeof(uint64_t));
        }
    if (script->records) s->cuda->driver.release(script->records);
    if (script->mirror) s->cuda->driver.release_host(script->mirror);
    if (script->staging) s->cuda->driver.release_host(script->staging);
    ash_vec_free(a, &script->ops);
    ash_vec_free(a, &script->items);
    ash_vec_free(a, &script->calls);
    ash_vec_free(a, &script->repeats);
    ash_vec_free(a, &script->segments);
    ash_vec_free(a, &script->order);
    ash_vec_free(a, &script->values);
    ash_vec_free(a, &script->addresses);
    ash_vec_free(a, &script->fills);
    ash_mem_free(a, script->commands, script->count, sizeof *script->commands);
    ash_mem_free(a, script, 1, sizeof *script);
}

/* Copies are of what an operand can become: how much of it there is, is known when the function runs. */
static uint64_t most(const ash_operand *operand) {
    return ASH_MAX(operand->most, operand->bytes);
}

static bool is_of_host(const cuda_call *call, const ash_host *host) {
    const ash_host *was = &call->was;
    bool same = was->fn == host->fn && was->arg == host->arg && was->count == host->count;
    same = same && was->operands == host->operands && was->buffers == host->buffers;
    for (uint32_t i = 0; same && i < host->count; i++) same = call->sizes[i] == most(&host->operands[i]);
    return same;
}

static bool is_of_kernel(const cuda_item *item, const ash_command *command) {
    const ash_launch *launch = command->launch;
    if (command->kind == ASH_COMMAND_FILL) return (item->left != 0) == (command->fill->left != NULL);
    return command->kind != ASH_COMMAND_LAUNCH ||
           (item->function == launch->kernel->function && item->product == launch->kernel->product &&
            item->params == launch->count + 2 && item->parallel == launch->chunks.parallel);
}

/* What has been made of commands, in their order. */
struct made {
    const cuda_item *item;
    const cuda_call *call;
    const cuda_repeat *repeat;
};

static bool is_of_work(struct made *made, const ash_command *command);

/* In the order in which `add_repeat` makes them. */
static bool is_of_repeat(struct made *made, const ash_repeat *repeat) {
    const ash_repeat *was = &made->repeat->was;
    bool same = made->repeat->repeat == repeat && was->next == repeat->next && was->arg == repeat->arg &&
                was->look == repeat->look && was->waits == repeat->waits;
    made->repeat++;
    for (uint32_t k = 0; same && k < ASH_REPEAT_LISTS; k++) {
        const ash_command_list *list = &repeat->lists[k];
        same = list->commands == was->lists[k].commands && list->count == was->lists[k].count;
        for (uint32_t i = 0; same && i < list->count; i++)
            if (list->commands[i].kind == ASH_COMMAND_LAUNCH ||
                list->commands[i].kind == ASH_COMMAND_HOST || list->commands[i].kind == ASH_COMMAND_REPEAT)
                same = is_of_work(made, &list->commands[i]);
    }
    return same;
}

/* Other work may lie where some has been that is over. */
static bool is_of_work(struct made *made, const ash_command *command) {
    switch (command->kind) {
    case ASH_COMMAND_HOST:
        while (!made->call->host) made->call++; /* of segments */
        return is_of_host(made->call++, command->host);
    case ASH_COMMAND_REPEAT: return is_of_repeat(made, command->repeat);
    default: return is_of_kernel(made->item++, command);
    }
}

bool ash_cuda_script__is_of(const cuda_script *script, const ash_command *commands, size_t count) {
    struct made made = {script->items.at, script->calls.at, script->repeats.at};
    if (script->count != count) return false;
    for (size_t i = 0; i < count; i++) {
        const ash_command *a = &script->commands[i], *b = &commands[i];
        bool same = a->kind == b->kind && a->stream == b->stream && a->timing == b->timing;
        same = same && (ash_command__works(a) ? a->work == b->work : a->event == b->event);
        if (!same || (ash_command__works(b) && !is_of_work(&made, b))) return false;
    }
    return true;
}

/* --- one command ------------------------------------------------------------------------------------- */

static bool add_op(struct maker *m, cuda_op op) {
    return PUSH(m, ops, op);
}

/* The segment that the next kernel of a stream is in. */
static bool open_segment(struct maker *m, uint32_t stream) {
    if (m->open[stream] != NO_SEGMENT) return true;
    uint32_t segment = m->open[stream] = m->n_segments++;
    if (!m->hosts) return true;
    cuda_call call = {.streams = m->streams,
                      .script = m->script,
                      .segment = segment,
                      .stream = stream,
                      .over = m->steps[stream]};
    uint32_t index = (uint32_t)m->script->calls.len;
    return PUSH(m, calls, call) &&
           add_op(m, (cuda_op){.kind = CUDA_CALL, .stream = stream, .item = index}) &&
           add_op(m, (cuda_op){.kind = CUDA_IN, .stream = stream, .item = segment});
}

static bool add_params(struct maker *m, cuda_item *item, uint32_t count) {
    cuda_script *script = m->script;
    item->first = (uint32_t)script->values.len;
    item->params = count;
    for (uint32_t i = 0; i < count; i++)
        if (!PUSH(m, values, 0)) return false;
    return true;
}

static int64_t most_threads(const cuda_device *d) {
    return ASH_MIN((int64_t)d->most_blocks * ASH_CUDA_BLOCK, MOST_THREADS);
}

static void shape_launch(const struct maker *m, const ash_launch *launch, cuda_item *item) {
    const ash_kernel *kernel = launch->kernel;
    int64_t chunks = ASH_MAX(launch->chunks.end - launch->chunks.begin, 1), threads = chunks;
    item->function = kernel->function;
    item->product = kernel->product;
    item->parallel = launch->chunks.parallel;
    if (item->product) return; /* the library shapes it, and looks at no record */
    item->words = RANGE + kernel->vars;
    item->shared = kernel->shared;
    if (kernel->threads) { /* a block for each chunk */
        item->block = kernel->threads;
        item->grid = (unsigned)ASH_MIN(ASH_MIN(chunks, MOST_BLOCKS), m->streams->cuda->most_blocks);
        return;
    }
    if (kernel->by_worker)
        threads = launch->chunks.parallel
                      ? (int64_t)ASH_MIN(ASH_MAX(m->streams->options.threads, 1u), (unsigned)ASH_CUDA_BLOCK)
                      : 1;
    threads = ASH_MIN(threads, most_threads(m->streams->cuda));
    item->block = (unsigned)ASH_MIN(threads, ASH_CUDA_BLOCK);
    item->grid = (unsigned)((threads + item->block - 1) / item->block);
}

/* A vector to a thread; bytes, where addresses are not even, are several. */
static void shape_bytes(const struct maker *m, int64_t bytes, cuda_item *item) {
    int64_t blocks = ash_ceil_div(ASH_MAX(bytes, 1), (int64_t)VECTOR * ASH_CUDA_BLOCK);
    item->block = ASH_CUDA_BLOCK;
    item->grid = (unsigned)ASH_MIN(blocks, most_threads(m->streams->cuda) / ASH_CUDA_BLOCK);
}

/* Fills that share a number. */
static bool share(struct maker *m, const ash_fill *fill, cuda_item *item) {
    uint64_t index = m->script->fills.len, key = (uintptr_t)fill->left;
    if (!ash_map_get(&m->shared, key, &index) &&
        !(PUSH(m, fills, fill) && ash_map_put(&m->shared, key, index)))
        return false;
    item->left = (index + 1) * SLOT;
    item->grid = 1;
    return true;
}

/* In the segment that is open on the stream. */
static bool add_item(struct maker *m, uint32_t stream, const ash_command *command) {
    cuda_item item = {.command = command, .stream = stream, .segment = m->open[stream]};
    bool added = true;
    switch (command->kind) {
    case ASH_COMMAND_LAUNCH:
        shape_launch(m, command->launch, &item);
        added = add_params(m, &item, command->launch->count + 2);
        break;
    case ASH_COMMAND_COPY:
        item.function = m->streams->cuda->copy_kernel;
        item.words = 1;
        shape_bytes(m, command->copy->bytes, &item);
        added = add_params(m, &item, 4);
        break;
    default:
        item.function = m->streams->cuda->fill_kernel;
        item.words = FILL_WORDS;
        shape_bytes(m, (int64_t)ASH_MIN(command->fill->bytes, (uint64_t)INT64_MAX / 2), &item);
        added = add_params(m, &item, 3) && (!command->fill->left || share(m, command->fill, &item));
    }
    uint32_t index = (uint32_t)m->script->items.len;
    return added && PUSH(m, items, item) &&
           add_op(m, (cuda_op){.kind = CUDA_KERNEL, .stream = stream, .item = index});
}

static bool add_kernel(struct maker *m, const ash_command *command) {
    return open_segment(m, command->stream) && add_item(m, command->stream, command);
}

/* With room for copies of its operands: where these lie in the staging memory is known when all is. */
static bool add_call(struct maker *m, uint32_t stream, const ash_command *command, uint32_t segment) {
    const ash_allocator *a = m->streams->allocator;
    const ash_host *host = command->host;
    cuda_script *script = m->script;
    cuda_call call = {.streams = m->streams,
                      .script = script,
                      .host = host,
                      .was = *host,
                      .segment = segment,
                      .stream = stream,
                      .over = m->steps[stream],
                      .timing = command->timing};
    call.table = ash_mem_calloc(a, host->count + 1u, sizeof(void *));
    call.sizes = ash_mem_calloc(a, host->count + 1u, sizeof(uint64_t));
    if (!call.table || !call.sizes || !PUSH(m, calls, call)) {
        ash_mem_free(a, call.table, host->count + 1u, sizeof(void *));
        ash_mem_free(a, call.sizes, host->count + 1u, sizeof(uint64_t));
        return false;
    }
    for (uint32_t i = 0; i < host->count; i++) {
        call.sizes[i] = most(&host->operands[i]);
        call.table[i] = (void *)(uintptr_t)script->staging_bytes; /* the distance, until `locate` */
        script->staging_bytes += ash_align_up(call.sizes[i] + 1, OPERAND_ALIGN);
    }
    return true;
}

/* Copies of what a function reads, or of what it writes. */
static bool add_copies(struct maker *m, uint32_t stream, const cuda_call *call, cuda_op_kind kind) {
    const ash_host *host = call->host;
    bool added = true;
    for (uint32_t i = 0; i < host->count; i++)
        if (kind == CUDA_OUT ? host->operands[i].read : host->operands[i].write)
            added = added && add_op(m, (cuda_op){.kind = kind,
                                                 .stream = stream,
                                                 .host = call->table[i],
                                                 .operand = &host->buffers[i],
                                                 .bytes = call->sizes[i]});
    return added;
}

static bool add_host(struct maker *m, const ash_command *command) {
    uint32_t stream = command->stream, index = (uint32_t)m->script->calls.len;
    bool added = add_call(m, stream, command, NO_SEGMENT) &&
                 add_copies(m, stream, &m->script->calls.at[index], CUDA_OUT) &&
                 /* what kernels have left out, the function must know */
                 add_op(m, (cuda_op){.kind = CUDA_OUT, .stream = stream, .bytes = sizeof(int32_t)}) &&
                 add_op(m, (cuda_op){.kind = CUDA_CALL, .stream = stream, .item = index}) &&
                 add_copies(m, stream, &m->script->calls.at[index], CUDA_IN);
    m->open[stream] = NO_SEGMENT;
    m->hosts = true;
    return added;
}

/* In a repeat. What comes behind it in its list has a segment of its own. */
static bool add_repeated_host(struct maker *m, uint32_t stream, const ash_command *command) {
    uint32_t index = (uint32_t)m->script->calls.len, segment = m->n_segments++;
    m->open[stream] = segment;
    return add_call(m, stream, command, segment) &&
           add_copies(m, stream, &m->script->calls.at[index], CUDA_OUT) &&
           add_op(m, (cuda_op){.kind = CUDA_HERE, .stream = stream, .item = index}) &&
           add_copies(m, stream, &m->script->calls.at[index], CUDA_IN);
}

static bool add_repeat(struct maker *m, uint32_t stream, const ash_command *command);

static bool add_repeated(struct maker *m, uint32_t stream, const ash_command *command) {
    switch (command->kind) {
    case ASH_COMMAND_LAUNCH: return add_item(m, stream, command);
    case ASH_COMMAND_HOST: return add_repeated_host(m, stream, command);
    case ASH_COMMAND_REPEAT: return add_repeat(m, stream, command);
    default: return add_op(m, (cuda_op){.kind = CUDA_DIRECT, .stream = stream, .command = command});
    }
}

static bool add_repeat(struct maker *m, uint32_t stream, const ash_command *command) {
    const ash_repeat *repeat = command->repeat;
    cuda_script *script = m->script;
    uint32_t index = (uint32_t)script->repeats.len, segment = m->open[stream];
    bool added =
        PUSH(m, repeats, (cuda_repeat){.repeat = repeat, .was = *repeat}) &&
        add_op(m, (cuda_op){.kind = CUDA_REPEAT, .stream = stream, .item = index, .command = command});
    for (uint32_t k = 0; added && k < ASH_REPEAT_LISTS; k++) {
        script->repeats.at[index].first[k] = script->ops.len;
        for (uint32_t i = 0; added && i < repeat->lists[k].count; i++)
            added = add_repeated(m, stream, &repeat->lists[k].commands[i]);
        m->open[stream] = segment;
    }
    if (added) script->repeats.at[index].first[ASH_REPEAT_LISTS] = script->ops.len;
    return added;
}

size_t ash_cuda_script__after(const cuda_script *script, size_t op) {
    const cuda_op *at = &script->ops.at[op];
    return at->kind == CUDA_REPEAT ? script->repeats.at[at->item].first[ASH_REPEAT_LISTS] : op + 1;
}

static bool add(struct maker *m, const ash_command *command) {
    bool step = ash_command__is_step(command), added;
    switch (command->kind) {
    case ASH_COMMAND_HOST: added = add_host(m, command); break;
    case ASH_COMMAND_REPEAT:
        added = open_segment(m, command->stream) && add_repeat(m, command->stream, command);
        break;
    case ASH_COMMAND_RECORD:
        added =
            add_op(m, (cuda_op){.kind = CUDA_RECORD, .stream = command->stream, .item = command->event});
        break;
    case ASH_COMMAND_WAIT:
        if (m->hosts) m->open[command->stream] = NO_SEGMENT;
        added = add_op(m, (cuda_op){.kind = CUDA_WAIT, .stream = command->stream, .item = command->event});
        break;
    default: added = add_kernel(m, command);
    }
    m->steps[command->stream] += step;
    m->script->steps += step;
    return added;
}

/* --- where all of it lies ---------------------------------------------------------------------------- */

/* Items by segment, and the place of each record: those of a segment lie side by side. */
static bool place(struct maker *m) {
    cuda_script *script = m->script;
    const ash_allocator *a = m->streams->allocator;
    if (!ash_vec_reserve(a, &script->segments, m->n_segments + 2) ||
        !ash_vec_reserve(a, &script->order, script->items.len + 1))
        return false;
    uint32_t *first = script->segments.at;
    memset(first, 0, (m->n_segments + 2) * sizeof *first);
    for (size_t i = 0; i < script->items.len; i++) first[script->items.at[i].segment + 2]++;
    for (uint32_t k = 0; k < m->n_segments; k++) first[k + 2] += first[k + 1];
    for (size_t i = 0; i < script->items.len; i++)
        script->order.at[first[script->items.at[i].segment + 1]++] = (uint32_t)i;
    script->segments.len = m->n_segments + 1;
    uint64_t at = script->fixed = (script->fills.len + 1) * (uint64_t)SLOT;
    for (uint32_t k = 0; k < m->n_segments; k++) {
        at = ash_align_up(at, SLOT);
        for (uint32_t i = first[k]; i < first[k + 1]; i++) {
            cuda_item *item = &script->items.at[script->order.at[i]];
            item->record = at;
            at += item->words * sizeof(int64_t);
        }
    }
    script->record_bytes = ash_align_up(at, SLOT);
    return true;
}

static ash_status take_memory(cuda_streams *s, cuda_script *script, ash_diag *diag) {
    cuda_device *d = s->cuda;
    void *pinned = NULL;
    ASH_TRY(ash_cuda__check(d, d->driver.allocate(&script->records, script->record_bytes),
                            "memory for what kernels read", diag));
    ASH_TRY(
        ash_cuda__check(d, d->driver.allocate_host(&pinned, script->record_bytes), "pinned memory", diag));
    script->mirror = pinned;
    memset(script->mirror, 0, script->record_bytes);
    if (!script->staging_bytes) return ASH_OK;
    ASH_TRY(
        ash_cuda__check(d, d->driver.allocate_host(&pinned, script->staging_bytes), "pinned memory", diag));
    script->staging = pinned;
    memset(script->staging, 0, script->staging_bytes);
    return ASH_OK;
}

/* Where a segment is uploaded from and to. */
static void locate_segment(const cuda_script *script, uint32_t segment, cuda_op *op) {
    const uint32_t *first = &script->segments.at[segment];
    if (first[0] == first[1]) return; /* none is launched in it */
    const cuda_item *from = &script->items.at[script->order.at[first[0]]],
                    *last = &script->items.at[script->order.at[first[1] - 1]];
    op->offset = from->record;
    op->bytes = last->record + last->words * sizeof(int64_t) - from->record;
    op->host = script->mirror + op->offset;
}

/* Distances become addresses. */
static bool locate(cuda_streams *s, cuda_script *script) {
    for (size_t i = 0; i < script->calls.len; i++)
        for (uint32_t k = 0; script->calls.at[i].host && k < script->calls.at[i].host->count; k++)
            script->calls.at[i].table[k] = script->staging + (uintptr_t)script->calls.at[i].table[k];
    for (size_t i = 0; i < script->ops.len; i++) {
        cuda_op *op = &script->ops.at[i];
        if (op->kind == CUDA_HERE)
            locate_segment(script, script->calls.at[op->item].segment, op);
        else if (op->kind != CUDA_IN && op->kind != CUDA_OUT)
            continue;
        else if (op->operand)
            op->host = script->staging + (uintptr_t)op->host;
        else if (op->kind == CUDA_OUT)
            op->host = ash_cuda_streams__read(s, op->stream);
        else
            locate_segment(script, op->item, op);
    }
    if (!ash_vec_reserve(s->allocator, &script->addresses, script->values.len + 1)) return false;
    for (size_t i = 0; i < script->values.len; i++) script->addresses.at[i] = &script->values.at[i];
    script->addresses.len = script->values.len;
    return true;
}

/* All but its memory. The commands are copied; *out is to be freed, also after a failure. */
static bool describe(cuda_streams *s, const ash_command *commands, size_t count, cuda_script **out) {
    const ash_allocator *a = s->allocator;
    uint32_t n = s->options.streams;
    struct maker m = {.streams = s, .script = ash_mem_calloc(a, 1, sizeof *m.script)};
    *out = m.script;
    if (!m.script) return false;
    ash_map_init(&m.shared, a);
    m.script->commands = ash_mem_alloc(a, count, sizeof *commands);
    m.script->count = m.script->commands ? count : 0;
    m.open = ash_mem_alloc(a, n, sizeof *m.open);
    m.steps = ash_mem_calloc(a, n, sizeof *m.steps);
    bool made = m.script->commands && m.open && m.steps;
    for (uint32_t i = 0; made && i < n; i++) m.open[i] = NO_SEGMENT;
    if (made && count) memcpy(m.script->commands, commands, count * sizeof *commands);
    for (size_t i = 0; made && i < count; i++) made = add(&m, &m.script->commands[i]);
    made = made && place(&m);
    ash_map_free(&m.shared);
    ash_mem_free(a, m.open, n, sizeof *m.open);
    ash_mem_free(a, m.steps, n, sizeof *m.steps);
    return made;
}

ash_status ash_cuda_script__make(cuda_streams *s, const ash_command *commands, size_t count,
                                 cuda_script **out, ash_diag *diag) {
    cuda_script *script;
    ash_status status = describe(s, commands, count, &script) ? ASH_OK : ASH_NO_MEMORY(diag);
    if (status == ASH_OK) status = take_memory(s, script, diag);
    if (status == ASH_OK && !locate(s, script)) status = ASH_NO_MEMORY(diag);
    if (status == ASH_OK)
        *out = script;
    else
        ash_cuda_script__free(s, script);
    return status;
}

ash_status ash_cuda_script__measure(const ash_allocator *a, const ash_streams_options *options,
                                    const ash_command *commands, size_t count, ash_streams_memory *out,
                                    ash_diag *diag) {
    cuda_device none = {.most_blocks = INT32_MAX}; /* grids take no memory */
    cuda_streams s = {.allocator = a, .options = *options, .cuda = &none};
    cuda_script *script;
    if (!commands) {
        out->device += CUDA_WORDS * sizeof(int32_t);
        out->pinned += ash_cuda_streams__pinned(options);
        return ASH_OK;
    }
    bool made = describe(&s, commands, count, &script);
    if (made) out->device += script->record_bytes;
    if (made) out->pinned += script->record_bytes + script->staging_bytes;
    ash_cuda_script__free(&s, script);
    return made ? ASH_OK : ASH_NO_MEMORY(diag);
}

/* --- what is read when it runs ----------------------------------------------------------------------- */

static int64_t present(const int64_t *number) {
    return __atomic_load_n(number, __ATOMIC_RELAXED); /* others may be settled at the same time */
}

/* Whether it was another number. */
static bool put(int64_t *at, int64_t number) {
    bool other = *at != number;
    *at = number;
    return other;
}

/* What a launch's chunks are shared out among: blocks, or threads. */
static int64_t takers_of(const cuda_item *item) {
    return (int64_t)item->grid * (item->command->launch->kernel->threads ? 1 : item->block);
}

static bool refresh_item(const cuda_script *script, const cuda_item *item, bool stopped) {
    int64_t *record = __builtin_assume_aligned(script->mirror + item->record, sizeof *record);
    const ash_command *c = item->command;
    bool changed;
    switch (c->kind) {
    case ASH_COMMAND_LAUNCH:
        if (item->product) return false;
        changed = put(&record[0], c->launch->chunks.begin);
        changed |= put(&record[1], stopped ? record[0] : present(&c->launch->chunks.end));
        changed |= put(&record[2], ash_ceil_div(ASH_MAX(record[1] - record[0], 0), takers_of(item)));
        for (uint32_t i = RANGE; i < item->words; i++)
            changed |= put(&record[i], present(&c->launch->vars[i - RANGE]));
        return changed;
    case ASH_COMMAND_COPY: return put(&record[0], stopped ? 0 : present(&c->copy->bytes));
    default:
        changed = put(&record[0], stopped ? 0 : (int64_t)c->fill->bytes);
        changed |= put(&record[1], c->fill->value);
        return put(&record[2], item->left ? (int64_t)(script->records + item->left) : 0) || changed;
    }
}

bool ash_cuda_script__refresh(cuda_streams *s, cuda_script *script, uint32_t segment) {
    bool stopped = ash_stop__has_left_out(&s->stop), changed = false;
    for (uint32_t i = script->segments.at[segment]; i < script->segments.at[segment + 1]; i++)
        changed |= refresh_item(script, &script->items.at[script->order.at[i]], stopped);
    return changed;
}

void ash_cuda_script__refresh_all(cuda_streams *s, cuda_script *script) {
    for (size_t i = 0; i < script->fills.len; i++) {
        int32_t left = (int32_t)atomic_load_explicit(script->fills.at[i]->left, memory_order_relaxed);
        memcpy(script->mirror + (i + 1) * SLOT, &left, sizeof left);
    }
    for (uint32_t k = 0; k + 1 < script->segments.len; k++) ash_cuda_script__refresh(s, script, k);
}

bool ash_cuda_script__read_params(cuda_streams *s, cuda_script *script, cuda_item *item) {
    cu_address *values = &script->values.at[item->first];
    const ash_command *c = item->command;
    bool changed = false;
    uint32_t n = item->params - 2;
    for (uint32_t i = 0; i < item->params; i++) {
        cu_address value;
        if (i >= n)
            value = i == n ? s->words : script->records + item->record;
        else if (c->kind == ASH_COMMAND_LAUNCH)
            value = c->launch->buffers[i];
        else if (c->kind == ASH_COMMAND_COPY)
            value = c->copy->buffers[1 - i] + (uint64_t)(i == 0 ? c->copy->to : c->copy->from);
        else
            value = *c->fill->buffer;
        changed |= values[i] != value;
        values[i] = value;
    }
    return changed;
}

/* --- on a thread of the driver ----------------------------------------------------------------------- */

static bool stops(const cuda_call *call) {
    cuda_streams *s = call->streams;
    bool stop = ash_stop__is_asked(&s->stop) || *ash_cuda_streams__read(s, call->stream);
    if (stop) ash_stop__set_left_out(&s->stop, true);
    return stop;
}

static void run_host(const cuda_call *call) {
    const ash_chunks *chunks = &call->host->chunks;
    int64_t end = present(&chunks->end), piece = chunks->piece ? chunks->piece : INT64_MAX;
    int64_t start = ash_clock__now();
    if (stops(call)) return;
    for (int64_t at = chunks->begin; at < end;) {
        int64_t next = end - at > piece ? at + piece : end;
        if (at > chunks->begin && stops(call)) return;
        call->host->fn(call->host->arg, call->table, at, next, 0);
        at = next;
    }
    if (call->timing) *call->timing = (ash_timing){start, ash_clock__now(), 1};
}

void ash_cuda_script__call(void *argument) {
    cuda_call *call = argument;
    cuda_streams *s = call->streams;
    atomic_store_explicit(&s->over[call->stream], call->script->before + call->over, memory_order_relaxed);
    if (call->host)
        run_host(call);
    else
        ash_cuda_script__refresh(s, call->script, call->segment);
}
