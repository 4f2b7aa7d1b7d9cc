/* SPDX-License-Identifier: MIT */
/* The access records of a plan's operations, against what their kernels do on the stand-in: no byte is read
 * or written that the operation's record does not name, also where it would do no harm (a neighbour in the
 * same arena, in lanes that nobody looks at). What else a kernel may read are the plan's numbers, in
 * memory of their own. And each record is needed: without any one of them, something that is touched is in
 * none. */
#include "cuda_room.h"
#include "fuzz_ops.h"
#include "gpu_here.h"
#include "nets_run.h"
#include "runtime/plan.h"

static ash_diag diag;

/* Bytes that a launch touched, as runs; the last ones are grown where accesses follow each other. */
typedef struct run {
    uint64_t begin, end;
    uint32_t launch;
    bool write;
} run;

typedef struct touches {
    run *at;
    size_t n, room;
} touches;

enum { GROWN = 64 }; /* runs that are looked at */

static void touched(void *user, uint64_t launch, uint64_t address, uint64_t bytes, bool writes) {
    touches *t = user;
    for (size_t i = t->n; i-- > 0 && i + GROWN > t->n;) {
        run *r = &t->at[i];
        if (r->launch != launch || r->write != writes || address > r->end || address + bytes < r->begin)
            continue;
        r->begin = ASH_MIN(r->begin, address);
        r->end = ASH_MAX(r->end, address + bytes);
        return;
    }
    if (t->n == t->room) {
        t->room = t->room ? 2 * t->room : 1024;
        t->at = realloc(t->at, t->room * sizeof *t->at);
        assert_non_null(t->at);
    }
    t->at[t->n++] = (run){address, address + bytes, (uint32_t)launch, writes};
}

static int by_launch(const void *a, const void *b) {
    const run *x = a, *y = b;
    if (x->launch != y->launch) return x->launch < y->launch ? -1 : 1;
    if (x->write != y->write) return x->write ? 1 : -1;
    return (x->begin > y->begin) - (x->begin < y->begin);
}

/* Runs that meet become one. */
static void join(touches *t) {
    size_t n = 0;
    if (t->n) qsort(t->at, t->n, sizeof *t->at, by_launch);
    for (size_t i = 0; i < t->n; i++) {
        run *last = n ? &t->at[n - 1] : NULL;
        const run *r = &t->at[i];
        if (last && last->launch == r->launch && last->write == r->write && r->begin <= last->end)
            last->end = ASH_MAX(last->end, r->end);
        else
            t->at[n++] = *r;
    }
    t->n = n;
}

/* --- a plan's records ------------------------------------------------------------------------------- */

/* The address of a buffer's first byte. */
static uint64_t place_of(const ash_plan *plan, uint32_t buffer) {
    const ash_place *places = plan->core->layout.places, *place = &places[buffer];
    return plan->base[place->root] + (place->offset - places[place->root].offset);
}

/* Whether an access says the same as another, for the same buffer: what is scratch is read and written. */
static bool is_same(const ash_access *a, const ash_access *b, bool scratch) {
    return a->buffer == b->buffer && (a->write == b->write || scratch);
}

/* How many bytes of [at, end) the step's accesses of this kind name from `at` on, but for those that say
 * what access number `without` does. */
static uint64_t named(const ash_plan *plan, const ash_step *step, bool write, uint64_t at, uint64_t end,
                      uint32_t without) {
    const uint64_t from = at;
    for (bool more = true; more && at < end;) {
        more = false;
        for (uint32_t a = 0; a < step->n_accesses; a++) {
            const ash_access *access = &step->accesses[a];
            const bool scratch = plan->core->program.buffers.at[access->buffer].kind == ASH_BUFFER_SCRATCH;
            if (without != UINT32_MAX && is_same(access, &step->accesses[without], scratch)) continue;
            if (access->write != write && !scratch) continue;
            const uint64_t base = place_of(plan, access->buffer), begin = base + (uint64_t)access->begin;
            const uint64_t bytes = (uint64_t)(access->end - access->begin);
            if (at < begin || at - begin >= bytes) continue;
            at = begin + bytes;
            more = true;
        }
    }
    return ASH_MIN(at, end) - from;
}

/* Whether an address is in memory that holds any of the plan's buffers: not its numbers'. */
static bool is_among_buffers(const ash_plan *plan, uint64_t address) {
    for (uint32_t b = 0; b < plan->n_buffers; b++) {
        const uint64_t base = plan->base[b];
        if (!base) continue;
        const uint64_t begin = ASH_MIN(base, address), end = ASH_MAX(base, address);
        if (end - begin < UINT64_C(1) << 32 && ptx_memory(begin, end - begin + 1)) return true;
    }
    return false;
}

/* The first run of a launch that its step's record does not name; NULL: all of them are. */
static const run *unnamed(const ash_plan *plan, const touches *t, uint32_t launch, const ash_step *step,
                          uint32_t without) {
    for (size_t i = 0; i < t->n; i++) {
        const run *r = &t->at[i];
        if (r->launch != launch) continue;
        if (named(plan, step, r->write, r->begin, r->end, without) == r->end - r->begin) continue;
        if (r->write ? step->kind != ASH_STEP_SETTLE || is_among_buffers(plan, r->begin)
                     : is_among_buffers(plan, r->begin))
            return r;
    }
    return NULL;
}

typedef struct totals {
    size_t launches, records, spared;
} totals;

/* Looks at one execution of a plan on one stream. */
static void look_at(ash_plan *plan, const char *what, totals *sum) {
    touches t = {0};
    const ash_program *program = &plan->core->program;
    assert_ok(cuda_room_fill(plan, &diag));
    assert_ok(ash_plan_execute(plan, &diag));
    ptx_watch(touched, &t);
    assert_ok(ash_plan_execute(plan, &diag));
    join(&t);
    uint32_t launch = 0;
    for (size_t i = 0; i < plan->n_steps; i++) {
        const ash_step *step = &program->steps.at[program->prologue + plan->core->first + i];
        if (step->kind != ASH_STEP_KERNEL && step->kind != ASH_STEP_SETTLE) continue;
        const run *r = unnamed(plan, &t, launch, step, UINT32_MAX);
        if (r)
            fail_msg("%s: operation %zu, %s, %s %llu bytes that its record does not name", what, i,
                     step->name, r->write ? "writes" : "reads", (unsigned long long)(r->end - r->begin));
        for (uint32_t a = 0; a < step->n_accesses; a++) {
            sum->records++;
            sum->spared += !unnamed(plan, &t, launch, step, a);
        }
        launch++;
    }
    sum->launches += launch;
    free(t.at);
}

static void look_at_graph(ash_context *context, const ash_graph *graph, uint64_t seed, const char *what,
                          totals *sum) {
    ash_plan_options options = cuda_room_mode(ASH_MODE_STREAM);
    ash_plan *plan;
    cuda_room_driver(seed);
    assert_ok(ash_device_open(context, "CUDA:0", &options.device, &diag));
    assert_ok(ash_plan_prepare(context, graph, &options, &plan, &diag));
    look_at(plan, what, sum);
    ash_plan_destroy(plan);
    ash_device_close(options.device);
}

static void report(const totals *sum) {
    print_message("%zu launches, %zu records, %zu spared\n", sum->launches, sum->records, sum->spared);
}

/* Operators of all kinds, sizes that vary, sizes of 0. */
static void random_graphs(void **state) {
    (void)state;
    ash_context *context;
    totals sum = {0};
    assert_ok(ash_context_create(NULL, &context, &diag));
    for (uint64_t seed = 1; seed <= 30; seed++) {
        static fuzz f;
        char what[32];
        ash_graph *graph;
        snprintf(what, sizeof what, "seed %u", (unsigned)seed);
        assert_ok(ash_graph_create(context, what, &graph, &diag));
        fuzz_build(&f, graph, seed);
        for (unsigned v = 0; v < f.n_values; v++)
            if (!f.values[v].used) {
                char name[16];
                snprintf(name, sizeof name, "y%u", v);
                ash_graph_output(graph, name, f.values[v].id);
            }
        assert_ok(ash_graph_status(graph, &diag));
        look_at_graph(context, graph, seed, what, &sum);
        ash_graph_destroy(graph);
    }
    report(&sum);
    assert_true(sum.launches > 100 && sum.spared * 20 < sum.records); /* of sizes that came to be less */
    ash_context_destroy(context);
}

/* Results whose places data say, which several kernels find, in blocks; sums in parts; caches. */
static void places_and_parts(void **state) {
    (void)state;
    ash_context *context;
    ash_graph *g;
    ash_value count, indices;
    totals sum = {0};
    assert_ok(ash_context_create(NULL, &context, &diag));
    assert_ok(ash_graph_create(context, "places", &g, &diag));
    const ash_value x = ash_graph_input(g, "x", &(ash_type){ASH_F32, 1, {30000}}),
                    rows = ash_graph_input(g, "rows", &(ash_type){ASH_F32, 2, {3, 5001}}),
                    a = ash_graph_input(g, "a", &(ash_type){ASH_F32, 2, {40, 2500}}),
                    b = ash_graph_input(g, "b", &(ash_type){ASH_F32, 2, {2500, 36}}),
                    at = ash_graph_input(g, "at", &(ash_type){ASH_I64, 1, {500}});
    const ash_value many = ash_slice_axis(g, x, 0, 0, 500);
    ash_graph_output(g, "true", ash_nonzero(g, ash_gt(g, x, ash_scalar(g, ASH_F32, 0)), &count));
    ash_graph_output(g, "count", count);
    ash_graph_output(g, "most", ash_argmax(g, x, 0, false));
    ash_graph_output(g, "best", ash_topk(g, rows, 1, 20, true, &indices));
    ash_graph_output(g, "where", indices);
    ash_graph_output(g, "sums", ash_cumsum(g, rows, 1, false, false));
    ash_graph_output(g, "set", ash_scatter_elements(g, x, at, many, 0, ASH_SCATTER_SET));
    ash_graph_output(g, "added", ash_scatter_elements(g, x, at, many, 0, ASH_SCATTER_ADD));
    ash_graph_output(g, "product", ash_matmul(g, a, b));
    ash_graph_output(g, "line", ash_matmul(g, ash_slice_axis(g, a, 0, 3, 1), b));
    ash_graph_output(g, "normal", ash_softmax(g, rows, 1));
    ash_graph_output(g, "turned", ash_transpose(g, a, (const int64_t[]){1, 0}));
    assert_ok(ash_graph_status(g, &diag));
    look_at_graph(context, g, 1, "places", &sum);
    report(&sum);
    assert_true(sum.launches > 15 && !sum.spared);
    ash_graph_destroy(g);
    ash_context_destroy(context);
}

static void networks(void **state) {
    (void)state;
    totals sum = {0};
    for (size_t i = 0; i < ASH_COUNT(nets); i++) {
        net_room room;
        net_open(&room, &nets[i]);
        look_at_graph(room.context, room.n.g, i, room.name, &sum);
        net_close(&room);
    }
    report(&sum);
    assert_true(sum.launches > 150 && !sum.spared);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(random_graphs), cmocka_unit_test(places_and_parts),
                                       cmocka_unit_test(networks)};
    return gpu_is_compiled_for() ? cmocka_run_group_tests(tests, NULL, NULL) : GPU_SKIPPED;
}
