/* SPDX-License-Identifier: MIT */
/* What this GPU does at most, each measured by a kernel or a loop of its own: multiply-adds (mills.c),
 * bytes within its memory and over the bus, and what a launch, a node of a graph and an event cost. All of
 * it has results, which are compared; so a peak is one of right numbers. What is expected of it are the
 * numbers that forecasts are made of. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bare.h"
#include "base/gpus.h"
#include "mills.h"

enum { TIMES = 10, WARM = 2, LONG_US = 5000, COPY_THREADS = 256, COPY_VECTORS = 4, QUICK_BLOCKS = 8 };

/* --- multiply-adds ------------------------------------------------------------------------------------ */

typedef struct grind {
    const mill *m;
    cu_function kernel;
    cu_address to, from, clocks;
    unsigned blocks, turns;
    double us; /* the least of some times */
} grind;

static ash_status time_turns(bare *b, grind *g, unsigned times, ash_diag *diag) {
    void *params[] = {&g->to, &g->from, &g->clocks, &g->turns};
    g->us = 0;
    for (unsigned i = 0; i < times; i++) {
        double us;
        ASH_TRY(bare_begin(b, diag));
        ASH_TRY(bare_launch(b, g->kernel, g->blocks, MILL_THREADS, params, diag));
        ASH_TRY(bare_end(b, &us, diag));
        if (!i || us < g->us) g->us = us;
    }
    return ASH_OK;
}

static ash_status compare_results(bare *b, const grind *g, check_row *row, ash_diag *diag) {
    uint32_t want[MILL_LANES][MILL_WORDS];
    size_t threads = (size_t)g->blocks * MILL_THREADS, bytes = threads * sizeof want[0];
    uint32_t(*got)[MILL_WORDS] = malloc(bytes);
    if (!got) return ASH_NO_MEMORY(diag);
    ash_status status = bare_copy_out(b, got, g->to, bytes, diag);
    mill_results(g->m, g->turns, want);
    for (size_t t = 0; status == ASH_OK && t < threads; t++)
        if (memcmp(got[t], want[t % MILL_LANES], sizeof want[0]) != 0)
            check_row_fail(row, "thread %zu has %08x, not %08x, after %u turns", t, got[t][0],
                           want[t % MILL_LANES][0], g->turns);
    free(got);
    return status;
}

static ash_status run_mill(check_run *run, bare *b, const mill *m, check_row *row, ash_diag *diag) {
    uint32_t numbers[MILL_LANES][MILL_NUMBERS];
    uint64_t clocks = 0;
    const ash_gpu *usual = run->device->gpu;
    ash_target target = {0};
    grind g = {.m = m, .turns = run->options.quick ? 2 : 64};
    g.blocks = run->options.quick ? QUICK_BLOCKS : (unsigned)run->facts.multiprocessors * MILL_BLOCKS;
    char *text = mill_text(m);
    ash_status status = text ? bare_load(b, text, diag) : ASH_NO_MEMORY(diag);
    free(text);
    mill_numbers(m, numbers);
    if (status == ASH_OK) status = bare_find(b, "mill", &g.kernel, diag);
    ASH_TRY(status);
    ASH_TRY(bare_memory(b, (uint64_t)g.blocks * MILL_THREADS * MILL_WORDS * 4, &g.to, diag));
    ASH_TRY(bare_memory(b, sizeof numbers, &g.from, diag));
    ASH_TRY(bare_memory(b, sizeof clocks, &g.clocks, diag));
    ASH_TRY(bare_copy_in(b, g.from, numbers, sizeof numbers, diag));
    ASH_TRY(time_turns(b, &g, WARM, diag));
    while (!run->options.quick && g.us < LONG_US && g.turns * 4 <= m->most_turns) {
        g.turns *= 4;
        ASH_TRY(time_turns(b, &g, WARM, diag));
    }
    ASH_TRY(time_turns(b, &g, run->options.quick ? 1 : TIMES, diag));
    ASH_TRY(compare_results(b, &g, row, diag));
    ASH_TRY(bare_copy_out(b, &clocks, g.clocks, sizeof clocks, diag));
    double ops = mill_ops(m) * g.turns * g.blocks * MILL_THREADS;
    row->us = g.us;
    row->gflops = ops / g.us / 1000;
    ash_gpu__numbers(usual, &target);
    row->predicted = ops / (2 * target.adds[m->math] * target.multiprocessors * usual->mhz);
    if (row->passed) run->peaks.ops[m->math] = ASH_MAX(run->peaks.ops[m->math], ops / g.us / 1000);
    if (!row->passed || m->math != ASH_GPU_FMA) return ASH_OK;
    run->peaks.mhz = (double)clocks / g.us;
    if (clocks) snprintf(row->why, sizeof row->why, "at %.0f MHz", run->peaks.mhz);
    return ASH_OK;
}

static void check_mill(check_run *run, const mill *m) {
    bare b;
    ash_diag diag = {0};
    check_row row = check_row_of("peaks", m->name, "");
    if (run->facts.sm < m->sm) {
        row.skipped = true;
        snprintf(row.why, sizeof row.why, "for sm_%d and newer ones", m->sm);
        table_add(&row);
        return;
    }
    check_revive(run);
    ash_status status = bare_open(run, &b, &diag);
    if (status == ASH_OK) status = run_mill(run, &b, m, &row, &diag);
    bare_close(&b);
    check_row_end(&row, status, false, &diag);
}

/* --- bytes -------------------------------------------------------------------------------------------- */

typedef enum way { WAY_IN, WAY_ON, WAY_OUT, WAYS } way;
static const char *const way_names[WAYS] = {"pinned memory to the GPU", "memory of the GPU, by a kernel",
                                            "the GPU to pinned memory"};

/* Blocks one after the other have a part each, of which neighbours copy neighbours. */
static const char copy_text[] =
    ".version 6.0\n.target sm_70\n.address_size 64\n"
    ".visible .entry copy(.param .u64 to, .param .u64 from) {\n"
    ".reg .b64 %to, %from; .reg .b32 %r<3>, %x<16>;\n"
    "ld.param.u64 %to, [to]; ld.param.u64 %from, [from];\n"
    "mov.u32 %r0, %tid.x; mov.u32 %r1, %ctaid.x; mad.lo.u32 %r2, %r1, 1024, %r0;\n"
    "mad.wide.u32 %to, %r2, 16, %to; mad.wide.u32 %from, %r2, 16, %from;\n"
    "ld.global.v4.b32 {%x0, %x1, %x2, %x3}, [%from];\n"
    "ld.global.v4.b32 {%x4, %x5, %x6, %x7}, [%from+4096];\n"
    "ld.global.v4.b32 {%x8, %x9, %x10, %x11}, [%from+8192];\n"
    "ld.global.v4.b32 {%x12, %x13, %x14, %x15}, [%from+12288];\n"
    "st.global.v4.b32 [%to], {%x0, %x1, %x2, %x3};\n"
    "st.global.v4.b32 [%to+4096], {%x4, %x5, %x6, %x7};\n"
    "st.global.v4.b32 [%to+8192], {%x8, %x9, %x10, %x11};\n"
    "st.global.v4.b32 [%to+12288], {%x12, %x13, %x14, %x15}; ret; }\n";
enum { COPY_BLOCK = 16 * COPY_THREADS * COPY_VECTORS /* bytes */ };

static uint32_t word_at(uint64_t i) {
    return (uint32_t)i * 2654435761u;
}

/* Bytes go to the GPU, on it and back: what comes back is what went. Each way takes the least of some
 * times. */
static ash_status carry(const check_run *run, bare *b, uint64_t bytes, double us[WAYS], ash_diag *diag) {
    cu_address from, to;
    cu_function kernel;
    void *params[] = {&to, &from};
    ASH_TRY(bare_load(b, copy_text, diag));
    ASH_TRY(bare_find(b, "copy", &kernel, diag));
    ASH_TRY(bare_memory(b, bytes, &from, diag));
    ASH_TRY(bare_memory(b, bytes, &to, diag));
    BARE_TRY("pinned memory", allocate_host(&b->pinned, bytes));
    uint32_t *words = b->pinned;
    for (uint64_t i = 0; i < bytes / 4; i++) words[i] = word_at(i);
    for (way w = 0; w < WAYS; w++) {
        for (unsigned i = 0; i < (run->options.quick ? 1 : TIMES); i++) {
            double once;
            ASH_TRY(bare_begin(b, diag));
            if (w == WAY_IN) BARE_TRY("a copy", copy_in(from, words, bytes, b->streams[0]));
            if (w == WAY_OUT) BARE_TRY("a copy", copy_out(words, to, bytes, b->streams[0]));
            if (w == WAY_ON)
                ASH_TRY(bare_launch(b, kernel, (unsigned)(bytes / COPY_BLOCK), COPY_THREADS, params, diag));
            ASH_TRY(bare_end(b, &once, diag));
            if (!i || once < us[w]) us[w] = once;
        }
        if (w == WAY_IN) memset(words, 0, bytes);
    }
    return ASH_OK;
}

static void check_bytes(check_run *run) {
    bare b;
    ash_diag diag = {0};
    double us[WAYS] = {-1, -1, -1};
    const uint64_t bytes = run->options.quick ? 1 << 20 : 256 << 20;
    check_revive(run);
    ash_status status = bare_open(run, &b, &diag);
    if (status == ASH_OK) status = carry(run, &b, bytes, us, &diag);
    const uint32_t *words = b.pinned;
    uint64_t same = 0;
    while (status == ASH_OK && same < bytes / 4 && words[same] == word_at(same)) same++;
    bare_close(&b);
    for (way w = 0; w < WAYS; w++) {
        check_row row = check_row_of("peaks", way_names[w], "");
        double moved = (double)bytes * (w == WAY_ON ? 2 : 1);
        row.us = us[w];
        if (us[w] > 0) row.gbytes = moved / us[w] / 1000;
        if (w == WAY_ON) row.predicted = moved / run->device->gpu->dram / 1000;
        if (status == ASH_OK && same < bytes / 4)
            check_row_fail(&row, "other bytes came back from %llu on", (unsigned long long)(4 * same));
        if (w == WAY_ON && row.passed && status == ASH_OK) run->peaks.bytes = row.gbytes;
        check_row_end(&row, status, false, &diag);
    }
}

/* --- launches ----------------------------------------------------------------------------------------- */

typedef enum chain { CHAIN_STREAM, CHAIN_WAITED, CHAIN_GRAPH, CHAIN_EVENTS, CHAIN_RECORDS, CHAINS } chain;
static const char *const chain_names[CHAINS] = {
    "a launch", "a launch that is waited for", "a node of a graph",
    "a launch behind another stream's event", "an event that is recorded"};

/* One counts, so that it shows how many there were, and that each was over when the next began. */
static const char step_text[] =
    ".version 6.0\n.target sm_70\n.address_size 64\n"
    ".visible .entry count(.param .u64 to) {\n"
    ".reg .b64 %to; .reg .b32 %r0; ld.param.u64 %to, [to];\n"
    "ld.global.u32 %r0, [%to]; add.u32 %r0, %r0, 1; st.global.u32 [%to], %r0; ret; }\n"
    ".visible .entry nothing(.param .u64 to) { ret; }\n";

typedef struct steps {
    bare *b;
    cu_function kernel; /* NULL: events alone */
    cu_address to;
    unsigned n;
} steps;

static ash_status step_on(const steps *s, cu_stream stream, ash_diag *diag) {
    bare *b = s->b;
    void *params[] = {(void *)(uintptr_t)&s->to};
    BARE_TRY("a launch", launch(s->kernel, 1, 1, 1, 1, 1, 1, 0, stream, params, NULL));
    return ASH_OK;
}

static ash_status in_stream(const steps *s, chain how, double *us, ash_diag *diag) {
    bare *b = s->b;
    int64_t begun = check_now();
    ASH_TRY(bare_begin(b, diag));
    for (unsigned i = 0; i < s->n; i++) {
        if (how == CHAIN_RECORDS) BARE_TRY("an event", event_record(b->end, b->streams[0]));
        if (s->kernel) ASH_TRY(step_on(s, b->streams[0], diag));
        if (how == CHAIN_WAITED) BARE_TRY("the kernel", stream_synchronize(b->streams[0]));
    }
    ASH_TRY(bare_end(b, us, diag));
    if (how == CHAIN_WAITED) *us = (double)(check_now() - begun) / 1000;
    return ASH_OK;
}

static ash_status in_graph(const steps *s, double *us, ash_diag *diag) {
    bare *b = s->b;
    cu_graph graph = NULL;
    cu_exec exec = NULL;
    cu_node node = NULL;
    void *params[] = {(void *)(uintptr_t)&s->to};
    const cu_driver *f = &b->gpu->driver;
    const cu_kernel_params launch = {.function = s->kernel,
                                     .grid_x = 1,
                                     .grid_y = 1,
                                     .grid_z = 1,
                                     .block_x = 1,
                                     .block_y = 1,
                                     .block_z = 1,
                                     .params = params};
    int result = f->graph_create(&graph, 0);
    for (unsigned i = 0; i < s->n && result == CU_OK; i++) {
        cu_node before = node;
        result = f->graph_kernel(&node, graph, &before, i ? 1 : 0, &launch);
    }
    if (result == CU_OK) result = f->graph_instantiate(&exec, graph, 0);
    ash_status status = ash_cuda__check(b->gpu, result, "a graph", diag);
    if (status == ASH_OK) status = bare_begin(b, diag);
    if (status == ASH_OK)
        status = ash_cuda__check(b->gpu, f->exec_launch(exec, b->streams[0]), "a graph", diag);
    if (status == ASH_OK) status = bare_end(b, us, diag);
    if (exec) f->exec_destroy(exec);
    if (graph) f->graph_destroy(graph);
    return status;
}

/* Each on the other stream, behind what the one before recorded. An even number: the last is on the second
 * stream, for whose event the first one waits before the time is taken. */
static ash_status across(const steps *s, double *us, ash_diag *diag) {
    bare *b = s->b;
    const cu_driver *f = &b->gpu->driver;
    cu_event events[BARE_STREAMS] = {NULL};
    ash_status status = bare_begin(b, diag);
    for (int i = 0; i < BARE_STREAMS && status == ASH_OK; i++)
        status = ash_cuda__check(b->gpu, f->event_create(&events[i], CU_DISABLE_TIMING), "an event", diag);
    for (unsigned i = 0; i < s->n && status == ASH_OK; i++) {
        cu_stream on = b->streams[i % 2], other = b->streams[(i + 1) % 2];
        status = step_on(s, on, diag);
        int result = status == ASH_OK ? f->event_record(events[i % 2], on) : CU_OK;
        if (result == CU_OK && status == ASH_OK) result = f->stream_wait(other, events[i % 2], 0);
        if (status == ASH_OK) status = ash_cuda__check(b->gpu, result, "an event", diag);
    }
    if (status == ASH_OK) status = bare_end(b, us, diag);
    for (int i = 0; i < BARE_STREAMS; i++)
        if (events[i]) f->event_destroy(events[i]);
    return status;
}

static ash_status run_chain(const steps *s, chain how, double *us, ash_diag *diag) {
    if (how == CHAIN_GRAPH) return in_graph(s, us, diag);
    if (how == CHAIN_EVENTS) return across(s, us, diag);
    return in_stream(s, how, us, diag);
}

/* Once with kernels that count, then with some that do nothing, or none, for the time. */
static ash_status time_chain(const check_run *run, bare *b, chain how, check_row *row, ash_diag *diag) {
    steps s = {.b = b, .n = run->options.quick ? 10 : 1000};
    uint32_t counted = 0;
    double us = 0;
    ASH_TRY(bare_load(b, step_text, diag));
    ASH_TRY(bare_memory(b, sizeof counted, &s.to, diag));
    BARE_TRY("clearing it", stream_synchronize(b->streams[0]));
    ASH_TRY(bare_find(b, "count", &s.kernel, diag));
    ASH_TRY(run_chain(&s, how, &us, diag));
    ASH_TRY(bare_copy_out(b, &counted, s.to, sizeof counted, diag));
    if (counted != s.n) check_row_fail(row, "%u kernels ran, and not %u", counted, s.n);
    s.kernel = NULL;
    if (how != CHAIN_RECORDS) ASH_TRY(bare_find(b, "nothing", &s.kernel, diag));
    for (unsigned i = 0; i < (run->options.quick ? 1 : TIMES); i++) {
        ASH_TRY(run_chain(&s, how, &us, diag));
        if (row->us < 0 || us / s.n < row->us) row->us = us / s.n;
    }
    return ASH_OK;
}

/* What the least operation of a plan is expected to take in a stream, and in a graph. */
static ash_status least_operation(const check_run *run, double us[2], ash_diag *diag) {
    ash_graph *graph;
    ash_plan *plan = NULL;
    ash_op_forecast f = ASH_INIT(ash_op_forecast);
    ash_plan_options options = ash_plan_options_default();
    options.device = run->device;
    ASH_TRY(ash_graph_create(run->context, "least", &graph, diag));
    ash_value x = ash_graph_input(graph, "x", &(ash_type){ASH_F32, 1, {1}});
    ash_graph_output(graph, "y", ash_neg(graph, x));
    ash_status status = ash_plan_prepare(run->context, graph, &options, &plan, diag);
    if (status == ASH_OK) status = ash_plan_op_forecast(plan, 0, 0, &f, diag);
    us[0] = f.stream_ns / 1000;
    us[1] = f.graph_ns / 1000;
    ash_plan_destroy(plan);
    ash_graph_destroy(graph);
    return status;
}

static void check_chains(check_run *run) {
    double expected[2] = {-1, -1};
    ash_diag diag = {0};
    check_revive(run);
    ash_status forecast = least_operation(run, expected, &diag);
    for (chain how = 0; how < CHAINS; how++) {
        bare b;
        check_row row = check_row_of("peaks", chain_names[how], "");
        check_revive(run);
        if (how == CHAIN_STREAM) row.predicted = expected[0];
        if (how == CHAIN_GRAPH) row.predicted = expected[1];
        ash_status status = forecast == ASH_OK ? bare_open(run, &b, &diag) : forecast;
        if (status == ASH_OK) status = time_chain(run, &b, how, &row, &diag);
        if (forecast == ASH_OK) bare_close(&b);
        check_row_end(&row, status, false, &diag);
    }
}

void check_peaks_of(check_run *run) {
    for (unsigned i = 0; i < mill_count; i++) check_mill(run, &mills[i]);
    check_bytes(run);
    check_chains(run);
}
