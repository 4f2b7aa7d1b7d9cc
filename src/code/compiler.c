/* SPDX-License-Identifier: MIT */
/* The compiler: a table of the kernels in memory, and the way new ones get into it.
 *
 * A kernel is known by its identity, the bytes of all that its code depends on, and found by a hash of
 * these, its key. Keys can be made to collide: kernels with one key are twins, of which the first has a
 * place on disk and each has a symbol of its own. An entry of the table is either ready or being made by
 * one thread; whoever else needs it waits. A call first makes all that it has claimed itself and only then
 * waits for others, so calls never wait for each other in a circle. Kernels of one call are made on several
 * threads, started for the purpose: compiling is rare and takes milliseconds to seconds.
 *
 * LLVM takes some 2 ms to set up for a module, which is more than most kernels take. So a thread takes
 * several small ones at a time and compiles those that are nowhere to be found as one module; what comes
 * out is taken apart (extract.c), so that nothing else knows of it. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <llvm-c/Core.h>

#include "base/clock.h"
#include "cache.h"
#include "code_target.h"
#include "extract.h"
#include "link.h"
#include "llvm.h"
#include "pages.h"

enum {
    BUCKETS = 512,
    SYMBOL = ASH_KEY_TEXT + 16, /* "ash_", the key, and a twin's number */
    STACK = 16 << 20,           /* bytes for a compiling thread: LLVM recurses */
    MODULE_KERNELS = 16, /* at most, and so many instructions (see cost_of), are compiled together: */
    MODULE_COST = 1000,
    LEAST_COST = 400 /* less than that is not worth another thread */
};

enum state { MAKING, READY, FAILED };

typedef struct entry {
    struct entry *next; /* in its bucket */
    ash_key key;
    uint32_t twin; /* entries with the same key and another identity have others */
    ash_text identity;
    size_t refs; /* held by ash_code objects and calls; guarded by the compiler's lock, as is `state` */
    enum state state;
    ash_linked linked; /* code of processors; for other machines: */
    char *blob;        /* `size` bytes and a zero */
    size_t size;
    char symbol[SYMBOL];
    uint32_t vars; /* of the nest, as in ash_kernel_image */
    bool by_worker;
    uint32_t shared;
    uint32_t threads;
} entry;

struct ash_compiler {
    ash_context *context;
    const ash_allocator *allocator;
    pthread_mutex_t lock;
    pthread_cond_t changed; /* an entry's state */
    ash_target target;
    entry *buckets[BUCKETS];
    _Atomic uint64_t stored; /* bytes that went to the cache directory since it was pruned */
    ash_pages pages;
};

struct ash_code {
    ash_compiler *compiler;
    atomic_size_t refs;
    size_t count;
    entry *entries[]; /* one per nest; the same one several times when nests are equal */
};

/* --- the compiler's life ----------------------------------------------------------------------------- */

/* Looks after the directory's size: now and then while much is stored, and at the end. */
static void prune(ash_compiler *c, uint64_t from) {
    uint64_t most = ash_context__cache_bytes(c->context), stored = atomic_load(&c->stored);
    if (stored <= from || !atomic_compare_exchange_strong(&c->stored, &stored, 0)) return;
    ash_cache__prune(c->allocator, ash_context__cache_dir(c->context), most);
}

static void destroy(void *object) {
    ash_compiler *c = object;
    prune(c, 0);
    pthread_mutex_destroy(&c->lock);
    pthread_cond_destroy(&c->changed);
    ash_mem_free(c->allocator, c, 1, sizeof *c);
}

static ash_status create(ash_context *context, void **out, ash_diag *diag) {
    const ash_allocator *a = ash_context__allocator(context);
    ash_compiler *c = ash_mem_calloc(a, 1, sizeof *c);
    if (!c) return ASH_NO_MEMORY(diag);
    c->context = context;
    c->allocator = a;
    ash_pages__init(&c->pages);
    pthread_mutex_init(&c->lock, NULL);
    pthread_cond_init(&c->changed, NULL);
    ash_status status = ash_target__named("host", &c->target, diag);
    if (status == ASH_OK)
        *out = c;
    else
        destroy(c);
    return status;
}

ash_status ash_compiler__get(ash_context *context, ash_compiler **out, ash_diag *diag) {
    void *object;
    ASH_TRY(ash_context__slot(context, ASH_SLOT_COMPILER, create, destroy, &object, diag));
    *out = object;
    return ASH_OK;
}

const ash_target *ash_compiler__target(const ash_compiler *compiler) {
    return &compiler->target;
}

void ash_compiler__give_back(ash_compiler *compiler, int64_t worked) {
    if (!ash_context__keeps_heap(compiler->context)) ash_pages__give_back(&compiler->pages, worked);
}

void ash_compiler__give_back_once(ash_compiler *compiler, int64_t prepared) {
    ash_pages__give_back_once(&compiler->pages, prepared);
}

/* --- keys -------------------------------------------------------------------------------------------- */

/* What a call looks for. */
struct wanted {
    const ash_nest *nest;
    ash_key key;
    ash_text identity; /* moves to the entry that is claimed for it */
};

static ash_status identify(const ash_target *target, struct wanted *wanted, ash_diag *diag) {
    ash_identity__write(target, wanted->nest, &wanted->identity);
    ASH_TRY(ash_text_status(&wanted->identity, diag));
    wanted->key = ash_key__of(&wanted->identity);
    return ASH_OK;
}

static bool same_identity(const ash_text *a, const ash_text *b) {
    return a->len == b->len && !memcmp(a->at, b->at, a->len);
}

/* --- the table: the lock is held --------------------------------------------------------------------- */

static entry **bucket_of(ash_compiler *c, ash_key key) {
    return &c->buckets[key.low % BUCKETS];
}

/* The entry of a kernel, or NULL; *twin is then a number that none of its twins has. */
static entry *find(ash_compiler *c, const struct wanted *wanted, uint32_t *twin) {
    *twin = 0;
    for (entry *e = *bucket_of(c, wanted->key); e; e = e->next) {
        if (!ash_key_equal(e->key, wanted->key)) continue;
        if (same_identity(&e->identity, &wanted->identity)) return e;
        *twin = ASH_MAX(*twin, e->twin + 1);
    }
    return NULL;
}

static entry *claim(ash_compiler *c, struct wanted *wanted, uint32_t twin) {
    entry *e = ash_mem_calloc(c->allocator, 1, sizeof *e), **bucket = bucket_of(c, wanted->key);
    if (!e) return NULL;
    *e = (entry){.next = *bucket, .key = wanted->key, .twin = twin, .state = MAKING};
    e->identity = wanted->identity;
    ash_text_init(&wanted->identity, c->allocator);
    return *bucket = e;
}

static void unlist(ash_compiler *c, entry *e) {
    entry **at = bucket_of(c, e->key);
    while (*at && *at != e) at = &(*at)->next;
    if (*at) *at = e->next;
}

/* Gives one reference back. The last one unloads under the lock, before anyone can make the same symbol
 * again. */
static void drop(ash_compiler *c, entry *e) {
    if (--e->refs) return;
    ash_link__unload(&e->linked);
    unlist(c, e);
    ash_text_free(&e->identity);
    if (e->blob) ash_mem_free(c->allocator, e->blob, e->size + 1, 1);
    ash_mem_free(c->allocator, e, 1, sizeof *e);
}

/* --- making kernels ---------------------------------------------------------------------------------- */

struct task {
    entry *entry;
    const ash_nest *nest;
    uint64_t cost;
};

/* One call of ash_code__compile, shared by its threads. */
struct batch {
    ash_compiler *compiler;
    const ash_target *target;
    ASH_VEC(struct task) tasks;
    size_t threads;
    atomic_size_t over; /* tasks that are done */
    atomic_bool stop;
    const ash_progress *progress; /* or NULL; its function is called on the calling thread alone */
    pthread_t caller;
    pthread_mutex_t lock; /* guards the rest */
    size_t next;          /* task to be taken */
    uint64_t left;        /* cost of those that are not taken */
    ash_status status;
    ash_diag diag;
    ash_code_stats stats;
    char why[ASH_CACHE_WHY]; /* the first refusal of what lay in the cache directory */
};

static void name(entry *e) {
    memcpy(e->symbol, "ash_", 4);
    ash_key__format(e->key, e->symbol + 4);
    size_t end = strlen(e->symbol);
    if (e->twin) snprintf(e->symbol + end, SYMBOL - end, "_%u", e->twin);
}

/* What a launch must know of the nest. */
static void survey(entry *e, const ash_nest *nest) {
    e->threads = nest->threads;
    uint64_t bytes = ash_nest_shared_at(nest, nest->shared.len);
    e->shared = bytes > ASH_CUDA_SHARED ? (uint32_t)bytes : 0;
    for (ash_ref i = 0; i < nest->code.len; i++) {
        const ash_inst *inst = &nest->code.at[i];
        e->by_worker |= inst->op == ASH_NEST_WORKER;
        if (inst->op == ASH_NEST_VAR) e->vars = ASH_MAX(e->vars, (uint32_t)inst->i + 1);
    }
}

/* What LLVM, or an earlier run, made of a nest becomes the entry's. */
static ash_status take(ash_compiler *c, const ash_target *target, entry *e, const void *bytes, size_t size,
                       ash_diag *diag) {
    if (!ash_code_target__of(target->kind)->text)
        return ash_link__load(bytes, size, e->symbol, &e->linked, diag);
    ASH_FAIL_IF(size == 0 || size > SIZE_MAX / 2, diag, ASH_ERROR_INTERNAL, "a kernel of no bytes");
    char *blob = ash_mem_alloc(c->allocator, size + 1, 1);
    if (!blob) return ASH_NO_MEMORY(diag);
    memcpy(blob, bytes, size);
    blob[size] = 0;
    e->blob = blob;
    e->size = size;
    return ASH_OK;
}

static void fail_batch(struct batch *batch, ash_status status, const ash_diag *diag) {
    pthread_mutex_lock(&batch->lock);
    if (batch->status == ASH_OK) {
        batch->status = status;
        batch->diag = *diag;
    }
    pthread_mutex_unlock(&batch->lock);
    atomic_store(&batch->stop, true);
}

static void count(struct batch *batch, size_t bytes, bool from_disk) {
    pthread_mutex_lock(&batch->lock);
    batch->stats.code_bytes += bytes;
    *(from_disk ? &batch->stats.from_disk : &batch->stats.compiled) += 1;
    pthread_mutex_unlock(&batch->lock);
}

static void note_refusal(struct batch *batch, const char *why) {
    pthread_mutex_lock(&batch->lock);
    if (batch->stats.refused++ == 0) memcpy(batch->why, why, sizeof batch->why);
    pthread_mutex_unlock(&batch->lock);
}

/* True when the cache had a file that loads. */
static bool make_from_disk(struct batch *batch, const char *dir, entry *e) {
    ash_compiler *c = batch->compiler;
    ash_cached cached;
    char why[ASH_CACHE_WHY] = "";
    bool found = ash_cache__load(c->allocator, dir, e->key, &e->identity, &cached, why);
    if (*why) note_refusal(batch, why);
    if (!found) return false;
    bool loaded = take(c, batch->target, e, cached.object, cached.size, NULL) == ASH_OK;
    if (loaded) count(batch, cached.size, true);
    ash_cached__free(c->allocator, &cached);
    return loaded;
}

/* Once for a call, on its thread. */
static void tell_refusals(const struct batch *batch) {
    if (batch->stats.refused)
        ash_context__log(batch->compiler->context, ASH_LOG_WARNING,
                         "kernel cache '%.200s': %llu of its kernels were not taken: %s",
                         ash_context__cache_dir(batch->compiler->context),
                         (unsigned long long)batch->stats.refused, batch->why);
}

static void publish(ash_compiler *c, entry *e, enum state state) {
    pthread_mutex_lock(&c->lock);
    e->state = state;
    if (state == FAILED) unlist(c, e); /* the next one who needs it tries again */
    pthread_cond_broadcast(&c->changed);
    pthread_mutex_unlock(&c->lock);
}

/* Where object files of this kernel are kept; NULL: nowhere. */
static const char *folder_of(const struct batch *batch, const entry *e) {
    return e->twin ? NULL : ash_context__cache_dir(batch->compiler->context);
}

/* What LLVM made of a nest becomes the entry's, and goes to the directory. */
static ash_status keep(struct batch *batch, entry *e, const void *bytes, size_t size, ash_diag *diag) {
    ash_compiler *c = batch->compiler;
    const char *dir = folder_of(batch, e);
    ASH_TRY(take(c, batch->target, e, bytes, size, diag));
    count(batch, size, false);
    publish(c, e, READY);
    if (!dir) return ASH_OK;
    ash_cache__store(c->allocator, dir, e->key, &e->identity, bytes, size);
    atomic_fetch_add(&c->stored, size + e->identity.len);
    prune(c, ash_context__cache_bytes(c->context) / 8);
    return ASH_OK;
}

/* The same of one that was compiled together with others. */
static ash_status keep_part(struct batch *batch, entry *e, const void *bytes, size_t size, ash_diag *diag) {
    ash_text part;
    ash_text_init(&part, batch->compiler->allocator);
    ash_status status = ash_elf__extract(bytes, size, e->symbol, &part, diag);
    if (status == ASH_OK) status = keep(batch, e, part.at, part.len, diag);
    ash_text_free(&part);
    return status;
}

static ash_status compile(struct batch *batch, ash_llvm_machine *machine, const ash_llvm_kernel *kernels,
                          entry *const *entries, size_t n, ash_diag *diag) {
    bool text = ash_code_target__of(batch->target->kind)->text;
    LLVMMemoryBufferRef object;
    if (!machine->machine)
        ASH_TRY(ash_llvm__machine_create(batch->target, LLVMCodeGenLevelDefault, machine, diag));
    ASH_TRY(
        ash_llvm__compile(machine, kernels, n, text ? ASH_LLVM_ASSEMBLY : ASH_LLVM_OBJECT, &object, diag));
    ash_status status = ASH_OK;
    for (size_t i = 0; i < n && status == ASH_OK; i++)
        status = (n > 1 ? keep_part : keep)(batch, entries[i], LLVMGetBufferStart(object),
                                            LLVMGetBufferSize(object), diag);
    LLVMDisposeMemoryBuffer(object);
    return status;
}

/* Makes and publishes kernels; those that it could not make are left to be published. */
static ash_status make(struct batch *batch, ash_llvm_machine *machine, const struct task *tasks, size_t n,
                       ash_diag *diag) {
    ash_llvm_kernel kernels[MODULE_KERNELS];
    entry *entries[MODULE_KERNELS];
    size_t left = 0;
    for (size_t i = 0; i < n; i++) {
        entry *e = tasks[i].entry;
        name(e);
        survey(e, tasks[i].nest);
        const char *dir = folder_of(batch, e);
        if (dir && make_from_disk(batch, dir, e)) {
            publish(batch->compiler, e, READY);
            continue;
        }
        kernels[left] = (ash_llvm_kernel){tasks[i].nest, e->symbol};
        entries[left++] = e;
    }
    return left ? compile(batch, machine, kernels, entries, left, diag) : ASH_OK;
}

/* Whether to go on; every thread looks at the switch. */
static ash_status report(struct batch *batch, ash_diag *diag) {
    if (!batch->progress) return ASH_OK;
    ash_progress told = *batch->progress;
    if (!pthread_equal(pthread_self(), batch->caller)) told.report = NULL;
    return ash_progress__report(&told, ASH_STAGE_COMPILE, atomic_load(&batch->over), batch->tasks.len,
                                diag);
}

/* Takes the next tasks, of one module: fewer when little is left, so that all threads have some. */
static size_t take_tasks(struct batch *batch, struct task **tasks) {
    size_t n = 0, most = ash_code_target__of(batch->target->kind)->text ? 1 : MODULE_KERNELS;
    uint64_t cost = 0;
    pthread_mutex_lock(&batch->lock);
    uint64_t share = ASH_MAX(batch->left / batch->threads, (uint64_t)LEAST_COST);
    *tasks = batch->tasks.len ? &batch->tasks.at[batch->next] : NULL;
    most = ASH_MIN(most, batch->tasks.len - batch->next);
    while (n < most && (!n || cost + (*tasks)[n].cost <= ASH_MIN(share, (uint64_t)MODULE_COST)))
        cost += (*tasks)[n++].cost;
    batch->next += n;
    batch->left -= cost;
    pthread_mutex_unlock(&batch->lock);
    return n;
}

static void *work(void *argument) {
    struct batch *batch = argument;
    ash_llvm_machine machine = {0};
    struct task *tasks;
    for (size_t n; (n = take_tasks(batch, &tasks)) > 0;) {
        ash_diag diag = {0};
        if (!atomic_load(&batch->stop)) {
            ash_status status = make(batch, &machine, tasks, n, &diag);
            atomic_fetch_add(&batch->over, n);
            if (status == ASH_OK) status = report(batch, &diag);
            if (status != ASH_OK) fail_batch(batch, status, &diag);
        }
        for (size_t i = 0; i < n; i++)
            if (tasks[i].entry->state == MAKING) publish(batch->compiler, tasks[i].entry, FAILED);
    }
    ash_llvm__machine_destroy(&machine);
    return NULL;
}

/* Runs all tasks on this thread and up to as many others as the context allows. */
static void run(struct batch *batch) {
    enum { MOST = 64 };
    ash_diag diag = {0};
    /* the caller is told that it begins, as others may take all tasks before it has one */
    bool begins = batch->tasks.len && !atomic_load(&batch->stop);
    ash_status status = begins ? report(batch, &diag) : ASH_OK;
    if (status != ASH_OK) fail_batch(batch, status, &diag);
    pthread_t helpers[MOST];
    size_t want = ASH_MIN((size_t)ash_context_threads(batch->compiler->context), batch->tasks.len), n = 0;
    pthread_attr_t attr;
    pthread_attr_init(&attr);
    pthread_attr_setstacksize(&attr, STACK);
    batch->threads = ASH_MAX(ASH_MIN(want, (size_t)MOST), (size_t)1);
    while (n + 1 < want && n < MOST && pthread_create(&helpers[n], &attr, work, batch) == 0) n++;
    pthread_attr_destroy(&attr);
    work(batch);
    while (n) pthread_join(helpers[--n], NULL);
}

/* --- a call ------------------------------------------------------------------------------------------ */

/* What compiling a nest takes: its instructions, those of a loop as often as they are laid out. */
static uint64_t cost_of(const ash_nest *nest) {
    enum { DEPTH = 64, MOST = 1 << 20 };
    uint64_t copies[DEPTH] = {1}, total = 0;
    size_t depth = 0;
    for (ash_ref i = 0; i < nest->code.len; i++) {
        const ash_inst *inst = &nest->code.at[i];
        uint64_t here = copies[ASH_MIN(depth, (size_t)DEPTH - 1)];
        total += here;
        if (inst->op == ASH_NEST_END) depth--;
        if (inst->op != ASH_NEST_LOOP && inst->op != ASH_NEST_IF) continue;
        if (inst->op == ASH_NEST_LOOP) here = ASH_MIN(here * ASH_MAX(inst->unroll, 1u), (uint64_t)MOST);
        depth++;
        copies[ASH_MIN(depth, (size_t)DEPTH - 1)] = here;
    }
    return total;
}

static int by_cost(const void *a, const void *b) {
    uint64_t x = ((const struct task *)a)->cost, y = ((const struct task *)b)->cost;
    return (x < y) - (x > y);
}

/* Finds or claims the entry of each nest that has none yet; claimed ones become tasks. */
static ash_status look_up(struct batch *batch, struct wanted *wanted, ash_code *code) {
    ash_compiler *c = batch->compiler;
    ash_status status = ASH_OK;
    pthread_mutex_lock(&c->lock);
    for (size_t i = 0; i < code->count && status == ASH_OK; i++) {
        if (code->entries[i]) continue;
        uint32_t twin;
        entry *e = find(c, &wanted[i], &twin);
        if (e) {
            batch->stats.shared++;
        } else if (!ash_vec_reserve(c->allocator, &batch->tasks, 1) || !(e = claim(c, &wanted[i], twin))) {
            status = ASH_NO_MEMORY(&batch->diag);
            break;
        } else {
            uint64_t cost = cost_of(wanted[i].nest);
            batch->tasks.at[batch->tasks.len++] = (struct task){e, wanted[i].nest, cost};
            batch->left += cost;
        }
        e->refs++;
        code->entries[i] = e;
    }
    pthread_mutex_unlock(&c->lock);
    /* long ones first, so that no thread is left with one in the end */
    if (batch->tasks.len) qsort(batch->tasks.at, batch->tasks.len, sizeof *batch->tasks.at, by_cost);
    return status;
}

/* Waits for entries that other calls make. Those whose makers failed are given back: false when there are
 * any. */
static bool settle(ash_compiler *c, ash_code *code) {
    bool all = true;
    pthread_mutex_lock(&c->lock);
    for (size_t i = 0; i < code->count; i++) {
        entry *e = code->entries[i];
        while (e->state == MAKING) pthread_cond_wait(&c->changed, &c->lock);
        if (e->state == READY) continue;
        drop(c, e);
        code->entries[i] = NULL;
        all = false;
    }
    pthread_mutex_unlock(&c->lock);
    return all;
}

static ash_status make_all(struct batch *batch, struct wanted *wanted, ash_code *code) {
    for (;;) {
        batch->tasks.len = batch->next = 0;
        batch->left = 0;
        atomic_store(&batch->over, 0);
        ash_status status = look_up(batch, wanted, code);
        if (status != ASH_OK)
            atomic_store(&batch->stop, true); /* what was claimed must still be published */
        run(batch);
        if (status != ASH_OK) return status;
        if (batch->status != ASH_OK) return batch->status;
        if (settle(batch->compiler, code)) return ASH_OK;
    }
}

static ash_status allocate(ash_compiler *c, const ash_nest *const *nests, size_t count, ash_code **code,
                           struct wanted **wanted, ash_diag *diag) {
    const ash_allocator *a = c->allocator;
    size_t bytes;
    ASH_FAIL_IF(__builtin_mul_overflow(count, sizeof(entry *), &bytes) ||
                    __builtin_add_overflow(bytes, sizeof **code, &bytes),
                diag, ASH_ERROR_OUT_OF_MEMORY, "out of memory");
    *code = ash_mem_calloc(a, bytes, 1);
    *wanted = ash_mem_alloc(a, count, sizeof **wanted);
    if (*code && *wanted) {
        (*code)->compiler = c;
        atomic_init(&(*code)->refs, 1);
        (*code)->count = count;
        for (size_t i = 0; i < count; i++) {
            (*wanted)[i] = (struct wanted){.nest = nests[i]};
            ash_text_init(&(*wanted)[i].identity, a);
        }
        return ASH_OK;
    }
    ash_mem_free(a, *code, bytes, 1);
    ash_mem_free(a, *wanted, count, sizeof **wanted);
    return ASH_NO_MEMORY(diag);
}

ash_status ash_code__compile(ash_compiler *compiler, const ash_code_job *job, ash_code **out,
                             ash_diag *diag) {
    const ash_allocator *a = compiler->allocator;
    const ash_target *target = job->target;
    size_t count = job->count;
    int64_t start = ash_clock__now();
    ash_code *code = NULL;
    struct wanted *wanted = NULL;
    if (target->kind == compiler->target.kind)
        ASH_TRY(ash_target__check_runs(&compiler->target, target, diag));
    else
        ASH_FAIL_IF(!ash_target__is(target, "nvptx64"), diag, ASH_ERROR_UNSUPPORTED,
                    "%s is no kind of GPU that code is generated for", target->triple);
    for (size_t i = 0; i < count; i++) ASH_TRY(ash_nest_verify(job->nests[i], diag));
    ASH_TRY(allocate(compiler, job->nests, count, &code, &wanted, diag));
    struct batch batch = {
        .compiler = compiler, .target = target, .progress = job->progress, .caller = pthread_self()};
    pthread_mutex_init(&batch.lock, NULL);
    ash_status status = ASH_OK;
    for (size_t i = 0; i < count && status == ASH_OK; i++)
        status = identify(batch.target, &wanted[i], &batch.diag);
    if (status == ASH_OK) status = make_all(&batch, wanted, code);
    tell_refusals(&batch);
    if (status == ASH_OK) {
        for (size_t i = 0; i < count && job->fns && target->kind == ASH_TARGET_CPU; i++)
            job->fns[i] = code->entries[i]->linked.fn;
        *out = code;
    } else {
        if (diag) *diag = batch.diag;
        ash_code__release(code);
    }
    if (job->stats) {
        *job->stats = batch.stats;
        job->stats->nanoseconds = (uint64_t)(ash_clock__now() - start);
    }
    ash_vec_free(a, &batch.tasks);
    for (size_t i = 0; i < count; i++) ash_text_free(&wanted[i].identity);
    ash_mem_free(a, wanted, count, sizeof *wanted);
    pthread_mutex_destroy(&batch.lock);
    return status;
}

ash_kernel_image ash_code__image(const ash_code *code, size_t index) {
    const entry *e = code->entries[index];
    return (ash_kernel_image){.host = e->linked.fn,
                              .blob = e->blob,
                              .size = e->size,
                              .symbol = e->symbol,
                              .vars = e->vars,
                              .by_worker = e->by_worker,
                              .threads = e->threads,
                              .shared = e->shared};
}

ash_code *ash_code__retain(ash_code *code) {
    atomic_fetch_add(&code->refs, 1);
    return code;
}

void ash_code__release(ash_code *code) {
    if (!code || atomic_fetch_sub(&code->refs, 1) != 1) return;
    ash_compiler *c = code->compiler;
    pthread_mutex_lock(&c->lock);
    for (size_t i = 0; i < code->count; i++)
        if (code->entries[i]) drop(c, code->entries[i]);
    pthread_mutex_unlock(&c->lock);
    ash_mem_free(c->allocator, code, sizeof *code + code->count * sizeof(entry *), 1);
}
