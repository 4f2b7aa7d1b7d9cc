/* SPDX-License-Identifier: MIT */
/* What was found, refused, counted; the seed; the machine. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#include "machine.h"

ptx_machine ptx_is;
bool ptx_no_shortcuts;
unsigned ptx_most_blocks;
static uint64_t state; /* of the random numbers */
static bool off[PTX_N_CHECKS];
static ptx_check first = PTX_N_CHECKS;
static char finding[800], refusal[512];
static const char *left_out; /* what is, by its kind; NULL: nothing */
static uint64_t left_out_at, left_out_seen;
static const char *waited; /* before which call there is a wait more; NULL: none */
static uint64_t waited_at;
static const char *wrong; /* what has wrong results, by its kind; NULL: nothing */
static uint64_t wrong_at, wrong_seen;
static void (*right)(ptx_block *b, const ptx_insn *in); /* what it does otherwise */

typedef struct counted {
    struct counted *next;
    ptx_counters counters;
    char name[];
} counted;
static counted *kernels;

void *ptx_alloc(size_t count, size_t size) {
    void *data = calloc(count ? count : 1, size);
    if (!data) abort();
    return data;
}

uint64_t ptx_random(void) { /* splitmix64 */
    uint64_t x = state += UINT64_C(0x9e3779b97f4a7c15);
    x = (x ^ x >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ x >> 27) * UINT64_C(0x94d049bb133111eb);
    return x ^ x >> 31;
}

void ptx_check_reset(const ptx_machine *machine, uint64_t seed) {
    static const ptx_machine usual = {.devices = 1,
                                      .capability = 90,
                                      .driver_version = 12080,
                                      .memory = UINT64_C(16) << 30,
                                      .multiprocessors = 132,
                                      .instruction_limit = UINT64_C(1) << 36};
    ptx_is = machine ? *machine : usual;
    state = seed;
    ptx_no_shortcuts = ptx_watched = false;
    memset(off, 0, sizeof off);
    first = PTX_N_CHECKS;
    finding[0] = refusal[0] = 0;
    left_out = waited = wrong = NULL;
    ptx_most_blocks = 0;
    while (kernels) {
        counted *next = kernels->next;
        free(kernels);
        kernels = next;
    }
}

void ptx_few_blocks(unsigned most) {
    ptx_most_blocks = most;
}

void ptx_leave_out(const char *kind, uint64_t n) {
    left_out = kind;
    left_out_at = n;
    left_out_seen = 0;
}

void ptx_put_wait(const char *function, uint64_t n) {
    waited = function;
    waited_at = n;
}

bool ptx_is_waited(const char *function) {
    return waited && !strcmp(waited, function) && waited_at && --waited_at == 0;
}

uint64_t ptx_left_out_of(void) {
    return left_out_seen;
}

bool ptx_is_left_out(const char *kind) {
    return left_out && !strcmp(left_out, kind) && ++left_out_seen == left_out_at;
}

void ptx_wrong(const char *kind, uint64_t n) {
    wrong = kind;
    wrong_at = n;
    wrong_seen = 0;
}

bool ptx_is_wrong(const ptx_op *op) {
    if (!wrong || strcmp(wrong, op->name) != 0) return false;
    right = op->run;
    return true;
}

void ptx_run_wrong(ptx_block *b, const ptx_insn *in) {
    right(b, in);
    if (!b->n || (++wrong_seen != wrong_at && wrong_at)) return;
    ptx_operand to = in->op[0];
    void *row = ptx_row(b, to);
    ptx_put(row, to.bytes, b->lane[0], ptx_get(row, to.bytes, b->lane[0]) ^ 1);
}

/* --- findings ------------------------------------------------------------------------------------- */

const char *ptx_check_name(ptx_check check) {
    static const char *const names[] = {
#define CHECK(name, text, code) text,
        PTX_CHECKS(CHECK)
#undef CHECK
    };
    return check < PTX_N_CHECKS ? names[check] : "nothing";
}

int ptx_finding_code(void) {
    static const int codes[] = {
#define CHECK(name, text, code) code,
        PTX_CHECKS(CHECK)
#undef CHECK
            CUDA_SUCCESS,
    };
    return codes[first];
}

bool ptx_checks(ptx_check check) {
    return !off[check];
}

void ptx_check_set(ptx_check check, bool on) {
    bool always = check == PTX_BOUNDS || check == PTX_ALIGNMENT || check == PTX_READ_ONLY ||
                  check == PTX_TRAP || check == PTX_ENDLESS;
    if (check < PTX_N_CHECKS && !always) off[check] = !on;
}

void ptx_one_by_one(void) {
    ptx_no_shortcuts = true;
}

static ptx_touched *watcher;
static void *watcher_user;
bool ptx_watched;

void ptx_watch(ptx_touched *touched, void *user) {
    ptx_no_shortcuts = ptx_watched = true;
    watcher = touched;
    watcher_user = user;
    ptx_launches_from_here();
}

void ptx_tell(uint32_t id, uint64_t address, uint64_t bytes, bool writes) {
    uint64_t launch;
    if (ptx_launch_of(id, &launch)) watcher(watcher_user, launch, address, bytes, writes);
}

static void note(ptx_check check, const char *where, const char *fmt, va_list args) {
    if (first != PTX_N_CHECKS) return;
    first = check;
    int len = snprintf(finding, sizeof finding, "%s: %s", ptx_check_name(check), where);
    if (len < (int)sizeof finding) vsnprintf(finding + len, sizeof finding - (size_t)len, fmt, args);
}

bool ptx_found(ptx_check check, const char *fmt, ...) {
    va_list args;
    va_start(args, fmt);
    note(check, "", fmt, args);
    va_end(args);
    return false;
}

const char *ptx_source_line(const ptx_module *module, uint32_t line, int *len) {
    const char *at = module->text;
    for (uint32_t i = 1; i < line && *at; i++) at += strcspn(at, "\n") + 1;
    at += strspn(at, " \t");
    *len = (int)strcspn(at, "\n");
    return at;
}

bool ptx_found_at(ptx_block *b, ptx_check check, unsigned lane, const char *fmt, ...) {
    char where[400];
    int len;
    uint32_t line = b->kernel->insns[b->pc].line;
    const char *text = ptx_source_line(b->kernel->module, line, &len);
    const ptx_launch *l = b->launch;
    unsigned x = l->threads[0], y = l->threads[1];
    snprintf(where, sizeof where,
             "kernel %.80s, line %u: %.*s: block (%llu, %llu, %llu) thread (%u, %u, %u): ", b->kernel->name,
             line, len < 120 ? len : 120, text, (unsigned long long)(b->number % l->grid[0]),
             (unsigned long long)(b->number / l->grid[0] % l->grid[1]),
             (unsigned long long)(b->number / l->grid[0] / l->grid[1]), lane % x, lane / x % y,
             lane / x / y);
    va_list args;
    va_start(args, fmt);
    note(check, where, fmt, args);
    va_end(args);
    b->failed = true;
    return false;
}

void ptx_found_reset(void) {
    first = PTX_N_CHECKS;
    finding[0] = 0;
}

const char *ptx_finding(void) {
    return finding;
}

ptx_check ptx_finding_check(void) {
    return first;
}

void ptx_refuse(const char *fmt, ...) {
    va_list args;
    va_start(args, fmt);
    vsnprintf(refusal, sizeof refusal, fmt, args);
    va_end(args);
}

const char *ptx_refusal(void) {
    return refusal;
}

/* --- counters ------------------------------------------------------------------------------------- */

ptx_counters *ptx_counters_of(const char *kernel) {
    for (counted *c = kernels; c; c = c->next)
        if (!strcmp(c->name, kernel)) return &c->counters;
    size_t len = strlen(kernel) + 1;
    counted *c = ptx_alloc(1, sizeof *c + len);
    memcpy(c->name, kernel, len);
    c->next = kernels;
    kernels = c;
    return &c->counters;
}

void ptx_counters_read(const char *kernel, ptx_counters *counters) {
    *counters = (ptx_counters){0};
    for (counted *c = kernels; c; c = c->next) {
        if (kernel && strcmp(c->name, kernel) != 0) continue;
        const uint64_t *from = (const uint64_t *)&c->counters; /* all of them are numbers of that type */
        uint64_t *to = (uint64_t *)counters;
        for (size_t i = 0; i < sizeof *counters / sizeof *to; i++) to[i] += from[i];
    }
}

void ptx_counters_reset(void) {
    for (counted *c = kernels; c; c = c->next) c->counters = (ptx_counters){0};
}
