/* SPDX-License-Identifier: MIT */
/* Runs commands in an order that the seed chooses among those that streams, events and graphs allow. */
#include "queue.h"

#include <fenv.h>
#include <stdio.h>
#include <stdlib.h>

typedef struct lane {
    ptx_task *first, **last;
    uint32_t issued, over; /* numbers of commands, from 1 */
    ptx_clock clock;       /* of the last that was issued */
    bool free;
} lane;

/* A command that ran: the numbers by which memory knows it begin at `base`. */
typedef struct ran {
    uint32_t base, lane, number;
    int stream;
    uint64_t launch; /* how many began before it; UINT64_MAX: it is none */
    char name[64];
    ptx_clock clock; /* where order is kept */
    size_t end;      /* of the history, when it was over; 0: it is not */
} ran;

static lane *lanes;
static uint32_t n_lanes;
static ptx_clock host;
static ran *history;
static size_t n_history, room_history;
static bool keeps_order;
static size_t known;          /* of the history: what everything to come comes after */
static size_t first_numbered; /* of the history: whose numbers are in use */
static uint64_t n_launches, first_launch;
static uint32_t next_base = 16;
static const ptx_clock *present; /* of the command that runs */
static int lost = -1;
enum { PIECE = 1 << 18 };  /* instructions that a kernel runs for at a time */
static ptx_block *running; /* a kernel that is put off, or runs */
static double now;         /* milliseconds, of a machine that does nothing but count */
static _Thread_local bool in_host_function;

bool ptx_in_host_function(void) {
    return in_host_function;
}

/* --- clocks --------------------------------------------------------------------------------------- */

static uint32_t over_in(const ptx_clock *clock, uint32_t which) {
    return which < clock->n ? clock->over[which] : 0;
}

static void set_over(ptx_clock *clock, uint32_t which, uint32_t number) {
    if (which >= clock->n) {
        clock->over = realloc(clock->over, (which + 1) * sizeof *clock->over);
        if (!clock->over) abort();
        memset(clock->over + clock->n, 0, (which + 1 - clock->n) * sizeof *clock->over);
        clock->n = which + 1;
    }
    if (number > clock->over[which]) clock->over[which] = number;
}

void ptx_clock_join(ptx_clock *clock, const ptx_clock *other) {
    for (uint32_t i = other->n; i-- > 0;) set_over(clock, i, other->over[i]);
}

void ptx_moment_copy(ptx_moment *to, const ptx_moment *from) {
    free(to->clock.over);
    *to = (ptx_moment){.lane = from->lane, .number = from->number};
    ptx_clock_join(&to->clock, &from->clock);
}

/* --- lanes and tasks * ---------------------------------------------------------------------------- */

uint32_t ptx_lane_new(void) {
    for (uint32_t i = 0; i < n_lanes; i++) {
        if (!lanes[i].free) continue;
        lanes[i].free = false;
        return i;
    }
    lane *grown = ptx_alloc(n_lanes + 1, sizeof *lanes); /* `last` points into it */
    for (uint32_t i = 0; i <= n_lanes; i++) {
        if (i < n_lanes) grown[i] = lanes[i];
        if (!grown[i].first) grown[i].last = &grown[i].first;
    }
    free(lanes);
    lanes = grown;
    return n_lanes++;
}

void ptx_lane_free(uint32_t which) {
    lanes[which].free = true;
}

ptx_task *ptx_task_new(ptx_task_kind kind, int device, int stream) {
    ptx_task *t = ptx_alloc(1, sizeof *t);
    t->kind = kind;
    t->device = device;
    t->stream = stream;
    t->rows = 1;
    return t;
}

static void task_free(ptx_task *t) {
    free(t->launch.params);
    free((void *)t->work.arg);
    free(t->snapshot);
    free(t->clock.over);
    free(t->after);
    free(t);
}

void ptx_task_after(ptx_task *task, const ptx_moment *moment) {
    if (!moment->number) return;
    task->after = realloc(task->after, (task->n_after + 1) * sizeof *task->after);
    if (!task->after) abort();
    task->after[task->n_after++] = (struct ptx_after){moment->lane, moment->number};
    ptx_clock_join(&task->clock, &moment->clock);
}

ptx_moment ptx_lane_end(uint32_t which) {
    ptx_moment end = {.lane = which, .number = lanes[which].issued};
    ptx_clock_join(&end.clock, &lanes[which].clock);
    return end;
}

ptx_moment ptx_task_issue(ptx_task *task, uint32_t which) {
    lane *l = &lanes[which];
    task->lane = which;
    task->number = ++l->issued;
    ptx_clock_join(&task->clock, &host);
    ptx_clock_join(&task->clock, &l->clock);
    ptx_clock_join(&l->clock, &task->clock);
    set_over(&l->clock, which, task->number);
    *l->last = task;
    l->last = &task->next;
    return ptx_lane_end(which);
}

/* --- what runs ------------------------------------------------------------------------------------ */

static const ran *ran_by(uint32_t id) {
    size_t low = first_numbered, high = n_history;
    while (low < high) {
        size_t mid = (low + high) / 2;
        if (history[mid].base <= id)
            low = mid + 1;
        else
            high = mid;
    }
    return low > first_numbered ? &history[low - 1] : NULL;
}

bool ptx_task_ordered(uint32_t id, const ptx_clock *learnt) {
    const ran *r = ran_by(id);
    return !r || (size_t)(r - history) < known || over_in(present, r->lane) >= r->number ||
           (learnt && over_in(learnt, r->lane) >= r->number);
}

bool ptx_task_is_atomic(uint32_t id) {
    const ran *r = ran_by(id);
    return r && id == r->base + 1;
}

void ptx_launches_from_here(void) {
    first_launch = n_launches;
}

bool ptx_launch_of(uint32_t id, uint64_t *launch) {
    const ran *r = ran_by(id);
    *launch = r ? r->launch - first_launch : 0;
    return r && r->launch != UINT64_MAX && r->launch >= first_launch;
}

const ptx_clock *ptx_clock_present(void) {
    return present;
}

const char *ptx_task_name(uint32_t id) {
    const ran *r = ran_by(id);
    return r ? r->name : "what was before";
}

const char *ptx_history(uint64_t n, int *stream) {
    if (n >= n_history) return NULL;
    if (stream) *stream = history[n].stream;
    return history[n].name;
}

void ptx_keep_order(void) {
    keeps_order = true;
}

bool ptx_is_before(uint64_t first, uint64_t second) {
    const ran *r = &history[first];
    return over_in(second == PTX_NOW ? &host : &history[second].clock, r->lane) >= r->number;
}

bool ptx_is_within(uint64_t first, uint64_t second) {
    return second > first && second < (history[first].end ? history[first].end : n_history);
}

/* Numbers of commands are 31 bits: when they are used up, all that was is forgotten, but for what is
 * initialised. */
static void forget_numbers(void) {
    ptx_allocation *a;
    for (size_t i = 0; (a = ptx_allocation_at(i)); i++) {
        for (uint64_t j = 0; j <= a->bytes >> a->shadow.shift; j++)
            a->shadow.cells[j] = (ptx_cell){a->shadow.cells[j].writer != 0, 0};
    }
    next_base = 16;
    first_numbered = known = n_history;
}

static ptx_who begin(ptx_task *t) {
    uint64_t blocks = t->kind == TASK_KERNEL ? t->launch.n_blocks : 1;
    if (next_base + blocks + 2 >= UINT32_C(1) << 31) forget_numbers();
    ptx_who who = {.me = next_base + 2, .base = next_base, .safe = next_base};
    for (size_t i = n_history; i-- > known;)
        if (over_in(&t->clock, history[i].lane) < history[i].number) who.safe = history[i].base;
    if (n_history == room_history) {
        room_history = room_history ? 2 * room_history : 256;
        history = realloc(history, room_history * sizeof *history);
        if (!history) abort();
    }
    t->ran = n_history;
    ran *r = &history[n_history++];
    *r = (ran){.base = next_base, .lane = t->lane, .number = t->number, .stream = t->stream};
    r->launch = t->kind == TASK_KERNEL ? n_launches++ : UINT64_MAX;
    static const char *const names[] = {"kernel", "copy", "fill", "host", "event", "wait", "work"};
    const char *own = t->kind == TASK_KERNEL ? t->launch.kernel->name
                      : t->kind == TASK_WORK ? t->work.name
                                             : "";
    snprintf(r->name, sizeof r->name, "%s%s%.50s", names[t->kind], *own ? " " : "", own);
    if (keeps_order) ptx_clock_join(&r->clock, &t->clock);
    next_base += (uint32_t)blocks + 2;
    return who;
}

/* Memory that a copy or fill touches: of the host as it is, any other checked. NULL when something was
 * found. */
static unsigned char *touch(uint64_t address, uint64_t bytes, const ptx_who *who, bool writes, bool copies,
                            ptx_allocation **in) {
    ptx_allocation *a = *in = ptx_allocation_find(address);
    if (!a && !ptx_is_device(address)) return (unsigned char *)(uintptr_t)address;
    const char *does = writes ? "writes" : "reads";
    if (!a || a->bytes - (address - a->address) < bytes) {
        ptx_found(PTX_BOUNDS, "a copy %s %llu bytes at %s", does, (unsigned long long)bytes,
                  ptx_allocation_near(address));
        return NULL;
    }
    uint64_t offset = address - a->address;
    uint32_t other = 0;
    ptx_check check = writes ? ptx_note_write(a, offset, bytes, who, &other)
                             : ptx_note_read(a, offset, bytes, who, copies, &other);
    if (check == PTX_UNINITIALISED)
        ptx_found(check, "a copy reads %s, or behind it, which nobody wrote", ptx_allocation_near(address));
    else if (check != PTX_N_CHECKS)
        ptx_found(check, "a copy %s %s; nothing orders that and \"%s\"", does, ptx_allocation_near(address),
                  ptx_task_name(other));
    return check == PTX_N_CHECKS ? a->data + offset : NULL;
}

/* Bytes that nobody wrote stay so where they are copied to. */
static void copy_unwritten(ptx_allocation *to, uint64_t at, ptx_allocation *from, uint64_t off,
                           uint64_t bytes) {
    if (to->shadow.shift != from->shadow.shift || ((at | off | bytes) & 3)) {
        ptx_shadow_narrow(&to->shadow);
        ptx_shadow_narrow(&from->shadow);
    }
    unsigned shift = to->shadow.shift;
    for (uint64_t i = 0; i < bytes >> shift; i++)
        if (!from->shadow.cells[(off >> shift) + i].writer) to->shadow.cells[(at >> shift) + i].writer = 0;
}

static void copy(const ptx_task *t, const ptx_who *who) {
    for (uint64_t row = 0; row < t->rows && t->bytes; row++) {
        ptx_allocation *a = NULL, *b = NULL;
        uint64_t to = t->to + row * t->to_pitch, from = t->from + row * t->from_pitch;
        const unsigned char *data = t->snapshot ? t->snapshot + row * t->bytes
                                                : touch(from, t->bytes, who, false, ptx_is_device(to), &b);
        unsigned char *into = data ? touch(to, t->bytes, who, true, false, &a) : NULL;
        if (!into) return;
        memmove(into, data, t->bytes);
        if (a && b) copy_unwritten(a, to - a->address, b, from - b->address, t->bytes);
    }
}

static void fill(const ptx_task *t, const ptx_who *who) {
    for (uint64_t row = 0; row < t->rows; row++) {
        ptx_allocation *a;
        unsigned char *into = touch(t->to + row * t->to_pitch, t->bytes * t->element, who, true, false, &a);
        if (!into) return;
        for (uint64_t i = 0; i < t->bytes; i++) memcpy(into + i * t->element, &t->value, t->element);
    }
}

/* All that it touches, then the work itself. */
static void do_work(const ptx_work *w, const ptx_who *who) {
    unsigned char *memory[PTX_REGIONS] = {0};
    for (unsigned i = 0; i < w->n_regions; i++) {
        const ptx_region *r = &w->regions[i];
        for (uint64_t k = 0; k < r->times * r->runs; k++) {
            ptx_allocation *in;
            uint64_t at = r->address + k / r->runs * r->further + k % r->runs * r->apart;
            unsigned char *there = touch(at, r->bytes, who, r->writes, false, &in);
            if (!there) return;
            if (!k) memory[i] = there;
        }
    }
    w->run(w->arg, memory);
}

/* Runs a piece of a kernel; true: it is over. Between pieces copies run, as long as they may; no other
 * kernel does, and what the pieces touch has one owner. */
static bool run_kernel(ptx_task *t) {
    if (!running) running = ptx_launch_begin(&t->launch, begin(t));
    uint64_t before = running->executed;
    bool over = ptx_launch_run(running, PIECE);
    now += (double)(running->executed - before) * 1e-9;
    if (over) ptx_launch_end(running);
    if (over) running = NULL;
    return over;
}

static bool run_task(ptx_task *t) {
    present = &t->clock;
    now += 0.002;
    bool over = true;
    ptx_who who = {0};
    if (t->kind != TASK_KERNEL) who = begin(t);
    const bool computes = t->kind == TASK_KERNEL || t->kind == TASK_WORK;
    fenv_t callers; /* who may compute without denormals, as kernels of the processor do */
    if (computes) fegetenv(&callers), fesetenv(FE_DFL_ENV);
    switch (t->kind) {
    case TASK_KERNEL: over = run_kernel(t); break;
    case TASK_COPY: copy(t, &who); break;
    case TASK_FILL: fill(t, &who); break;
    case TASK_WORK: do_work(&t->work, &who); break;
    case TASK_HOST:
        in_host_function = true;
        t->function(t->user);
        in_host_function = false;
        break;
    case TASK_EVENT:
        if (t->when) *t->when = now;
        break;
    default: break;
    }
    if (computes) fesetenv(&callers);
    present = NULL;
    if (ptx_finding_check() != PTX_N_CHECKS) lost = t->device;
    return over;
}

static bool is_ready(const lane *l) {
    if (!l->first) return false;
    if (running && l->first->kind == TASK_KERNEL) return running->launch == &l->first->launch;
    for (uint32_t i = 0; i < l->first->n_after; i++)
        if (lanes[l->first->after[i].lane].over < l->first->after[i].number) return false;
    return true;
}

/* What is issued is over, without having run. */
static void drop_all(void) {
    if (running) ptx_launch_end(running);
    running = NULL;
    for (uint32_t i = 0; i < n_lanes; i++) {
        while (lanes[i].first) {
            ptx_task *next = lanes[i].first->next;
            task_free(lanes[i].first);
            lanes[i].first = next;
        }
        lanes[i].last = &lanes[i].first;
        lanes[i].over = lanes[i].issued;
    }
}

static bool run_any(void) {
    uint32_t n = 0, which = 0;
    for (uint32_t i = 0; i < n_lanes; i++) {
        if (is_ready(&lanes[i]) && ptx_random() % ++n == 0) which = i;
    }
    if (!n) return false;
    lane *l = &lanes[which];
    ptx_task *t = l->first;
    bool over = run_task(t);
    if (lost >= 0) {
        drop_all();
        return false;
    }
    if (!over) return true;
    l->first = t->next;
    if (!l->first) l->last = &l->first;
    l->over = t->number;
    history[t->ran].end = n_history;
    task_free(t);
    return true;
}

void ptx_run_one(void) {
    run_any();
}

void ptx_run_some(void) {
    for (uint64_t n = ptx_random() % 8; n < 3 && run_any(); n++) {
    }
}

bool ptx_moment_reached(const ptx_moment *m) {
    return !m->number || lanes[m->lane].over >= m->number;
}

static void host_knows(const ptx_clock *clock) {
    ptx_clock_join(&host, clock);
    for (uint32_t i = 0; i < n_lanes; i++)
        if (over_in(&host, i) < lanes[i].issued) return;
    known = n_history; /* nothing is on the way, and the host waited for everything */
}

void ptx_wait_for(const ptx_moment *m) {
    while (!ptx_moment_reached(m) && run_any()) {
    }
    host_knows(&m->clock);
}

void ptx_wait_for_all(void) {
    while (run_any()) {
    }
    for (uint32_t i = 0; i < n_lanes; i++) host_knows(&lanes[i].clock);
}

int ptx_queue_lost(void) {
    int device = lost;
    lost = -1;
    return device;
}

void ptx_queue_reset(void) {
    drop_all();
    for (uint32_t i = 0; i < n_lanes; i++) free(lanes[i].clock.over);
    for (size_t i = 0; i < n_history; i++) free(history[i].clock.over);
    free(lanes);
    free(host.over);
    free(history);
    keeps_order = false;
    lanes = NULL;
    history = NULL;
    host = (ptx_clock){0};
    n_lanes = 0;
    n_history = room_history = known = first_numbered = 0;
    next_base = 16;
    lost = -1;
    now = 0;
}
