/* SPDX-License-Identifier: MIT */
/* Copies between devices beside work, on the stand-in, with one thread: by the order that streams and
 * events make, in which neither a copy nor the kernels that do not need it wait for the other; by what has
 * been issued, and is not over, while the processor works; and by schedules in which copies do run between
 * kernels, and while one runs. A wait more than there need be is found. */
#include "apart.h"
#include "ashlar/function.h"
#include "cuda_room.h"
#include "gpu_here.h"

enum { ROWS = 32, COLUMNS = 96, COUNT = ROWS * COLUMNS, PRODUCTS = 4, SEEDS = 3, MOST = 400 };

static ash_diag diag;
static const ash_type matrix = {.dtype = ASH_F32, .rank = 2, .dims = {ROWS, COLUMNS}},
                      square = {.dtype = ASH_F32, .rank = 2, .dims = {COLUMNS, COLUMNS}};
static float weights[COLUMNS * COLUMNS];

static ash_value on(ash_graph *g, uint32_t device, ash_value value) {
    assert_ok(ash_graph_place(g, value, device, &diag));
    return value;
}

/* --- what the driver was asked for ------------------------------------------------------------------ */

/* Of one execution: kernels, and the copies of lanes, which stand behind a wait on streams that have no
 * kernels (records of kernels go up first of all, or on a stream that waits for nobody). */
typedef struct seen {
    uint64_t kernels[MOST], copies[MOST];
    size_t n_kernels, n_copies;
} seen;

static uint64_t history(void) {
    uint64_t n = 0;
    while (ptx_history(n, NULL)) n++;
    return n;
}

static bool has_kernels(uint64_t from, int stream) {
    int other;
    const char *name;
    for (uint64_t n = from; (name = ptx_history(n, &other)); n++)
        if (other == stream && !strncmp(name, "kernel", 6)) return true;
    return false;
}

static bool stands_behind_a_wait(uint64_t from, uint64_t n, int stream) {
    int other;
    for (uint64_t i = n; i-- > from;) {
        const char *name = ptx_history(i, &other);
        if (other == stream) return !strcmp(name, "wait");
    }
    return false;
}

static void look(uint64_t from, seen *out) {
    int stream;
    const char *name;
    *out = (seen){0};
    for (uint64_t n = from; (name = ptx_history(n, &stream)); n++) {
        assert_true(out->n_kernels < MOST && out->n_copies < MOST);
        if (!strncmp(name, "kernel", 6)) out->kernels[out->n_kernels++] = n;
        if (strcmp(name, "copy") || has_kernels(from, stream) || !stands_behind_a_wait(from, n, stream))
            continue;
        out->copies[out->n_copies++] = n;
    }
}

static bool unordered(uint64_t a, uint64_t b) {
    return !ptx_is_before(a, b) && !ptx_is_before(b, a);
}

/* Of the copies: how many may run beside a kernel, and with how many pairs; how many ran between two such
 * kernels, and within one. */
typedef struct beside {
    size_t copies, free, pairs, between, within;
} beside;

static beside count(const seen *s) {
    beside all = {.copies = s->n_copies};
    for (size_t c = 0; c < s->n_copies; c++) {
        bool before = false, after = false, within = false;
        for (size_t k = 0; k < s->n_kernels; k++) {
            if (!unordered(s->copies[c], s->kernels[k])) continue;
            all.pairs++;
            before |= s->kernels[k] < s->copies[c];
            after |= s->kernels[k] > s->copies[c];
            within |= ptx_is_within(s->kernels[k], s->copies[c]);
        }
        all.free += before || after;
        all.between += before && after;
        all.within += within;
    }
    return all;
}

/* --- a plan ----------------------------------------------------------------------------------------- */

/* A function of the processor that asks what is on its way while it runs. */
typedef struct observer {
    uint64_t from; /* of the history: the execution */
    uint64_t launches;
    bool asks;
    size_t calls, issued, waited; /* that saw launches; that saw the host wait for anything of the GPU's */
    ash_cancel cancel;
    enum { GOES_ON, CANCELS, FAILS } does;
} observer;

static uint64_t launches(void) {
    return ptx_calls("cuLaunchKernel") + ptx_calls("cuGraphLaunch");
}

static ash_status observe(void *user, const ash_call *call, ash_diag *why) {
    observer *o = user;
    seen s;
    if (o->does == CANCELS) ash_cancel_set(&o->cancel, true);
    if (o->does == FAILS) return ash_fail(why, ASH_ERROR_IO, "the function was asked to fail");
    memcpy(call->outs[0], call->ins[0], COUNT * sizeof(float));
    if (!o->asks) return ASH_OK;
    look(o->from, &s);
    o->calls++;
    o->issued += launches() > o->launches;
    for (size_t k = 0; k < s.n_kernels; k++)
        if (ptx_is_before(s.kernels[k], PTX_NOW)) {
            o->waited++;
            break;
        }
    return ASH_OK;
}

/* On each device products in a line. The first one's result goes to the other device, which needs it after
 * its own products: a copy each way that no product but the first has anything to do with, nor the function
 * that the processor calls. */
static ash_graph *make_graph(ash_context *context, bool function) {
    ash_graph *g;
    for (int i = 0; i < COLUMNS * COLUMNS; i++) weights[i] = (float)(i * 7 % 9) / 64 - 0.0625f;
    assert_ok(ash_graph_create(context, "g", &g, &diag));
    ash_value x = ash_graph_input(g, "x", &matrix), lines[2], firsts[2], sum;
    ash_value w = ash_graph_constant(g, &square, weights, sizeof weights, ASH_DATA_COPY);
    lines[0] = lines[1] = ash_neg(g, x);
    for (uint32_t i = 0; i < PRODUCTS; i++)
        for (uint32_t d = 2; d-- > 0;) {
            lines[d] = on(g, d, ash_matmul(g, lines[d], w));
            if (!i) firsts[d] = lines[d];
            if (!i && !d && function)
                assert_ok(ash_custom(g, "observe", &lines[0], 1, &matrix, 1, NULL, &lines[0]));
        }
    for (uint32_t d = 0; d < 2; d++) lines[d] = on(g, d, ash_add(g, lines[d], firsts[!d]));
    sum = ash_add(g, lines[0], lines[1]);
    ash_graph_output(g, "y", sum);
    assert_ok(ash_graph_status(g, &diag));
    return g;
}

typedef struct setting {
    const char *devices[2];
    bool peers;
    ash_mode mode;
    uint64_t seed;
    const char *plant; /* a driver's function before whose n-th call there is a wait */
    uint64_t nth;
    bool fails; /* calls of the driver's, before what is looked at */
    bool ends;  /* once by the switch and once by the function, before what is looked at */
} setting;

typedef struct result {
    beside beside;
    observer observer;
    uint64_t calls; /* of the plant's function, in one execution */
    float y[COUNT];
    uint64_t may_overlap; /* as the plan says */
} result;

/* An execution that ends while copies and kernels are on their way, and one more. */
static void end_early(ash_plan *plan, observer *o, int does) {
    o->does = does;
    assert_status(ash_plan_execute(plan, &diag), does == CANCELS ? ASH_ERROR_CANCELLED : ASH_ERROR_IO);
    ash_cancel_set(&o->cancel, false);
    o->does = GOES_ON;
    assert_ok(ash_plan_execute(plan, &diag));
}

/* Each of the driver's calls in an execution fails once, which says so, or was one that gives back; and one
 * execution more. */
static size_t fail_calls(ash_plan *plan) {
    size_t failed = 0;
    uint64_t calls = ptx_calls(NULL);
    assert_ok(ash_plan_execute(plan, &diag));
    calls = ptx_calls(NULL) - calls;
    for (uint64_t n = 1; n <= calls; n++) {
        const uint64_t live = ptx_live();
        ptx_fail_at(n, CUDA_ERROR_OUT_OF_MEMORY);
        ash_status status = ash_plan_execute(plan, &diag);
        ptx_fail_at(0, CUDA_SUCCESS);
        if (ptx_failed() && !strcmp(ptx_failed(), "cuCtxPopCurrent_v2")) cuCtxPopCurrent_v2(NULL);
        if (status != ASH_OK) assert_status(status, ASH_ERROR_OUT_OF_MEMORY);
        failed += status != ASH_OK;
        assert_ok(ash_plan_execute(plan, &diag));
        assert_int_equal(ptx_live(), live);
    }
    return failed;
}

static void run(const setting *s, result *out) {
    const ash_context_options one = {.size = sizeof one, .threads = 1};
    const ptx_machine machine = {.devices = 2,
                                 .capability = 90,
                                 .driver_version = 12080,
                                 .memory = UINT64_C(1) << 30,
                                 .multiprocessors = 8,
                                 .instruction_limit = UINT64_C(1) << 36,
                                 .no_peers = !s->peers};
    ash_context *context;
    ash_device *devices[2];
    ash_plan *plan;
    const ash_view *view;
    seen all;
    *out = (result){0};
    cuda_room_driver(s->seed);
    ptx_reset(&machine, s->seed);
    assert_ok(ash_context_create(&one, &context, &diag));
    const ash_function function = {
        .size = sizeof function, .name = "observe", .run = observe, .user = &out->observer};
    assert_ok(ash_context_add_function(context, &function, &diag));
    for (int d = 0; d < 2; d++) assert_ok(ash_device_open(context, s->devices[d], &devices[d], &diag));
    ash_plan_options options = ash_plan_options_default();
    options.devices = devices;
    options.device_count = 2;
    options.mode = s->mode;
    options.streams = s->mode == ASH_MODE_MULTI_STREAM ? 2 : 0;
    if (s->ends) options.progress.cancel = &out->observer.cancel;
    ash_graph *g = make_graph(context, !strcmp(s->devices[0], "CPU"));
    assert_ok(ash_plan_prepare(context, g, &options, &plan, &diag));
    assert_ok(cuda_room_fill(plan, &diag));
    assert_ok(ash_plan_execute(plan, &diag));
    for (int does = CANCELS; does <= FAILS && s->ends; does++) end_early(plan, &out->observer, does);
    if (s->fails) assert_true(fail_calls(plan) > 20);
    out->observer.from = history();
    out->observer.launches = launches();
    out->observer.asks = true;
    ptx_keep_order();
    if (s->plant) ptx_put_wait(s->plant, s->nth);
    if (s->plant) out->calls = ptx_calls(s->plant);
    assert_ok(ash_plan_execute(plan, &diag));
    if (s->plant) out->calls = ptx_calls(s->plant) - out->calls;
    look(out->observer.from, &all);
    for (size_t d = 0; d < 2; d++) {
        ash_plan_device_info info = ASH_INIT(ash_plan_device_info);
        assert_ok(ash_plan_device_at(plan, d, &info, &diag));
        out->may_overlap += info.beside;
    }
    out->beside = count(&all);
    assert_ok(ash_plan_output(plan, 0, &view, &diag));
    assert_ok(ash_view_copy_out(view, out->y, sizeof out->y, &diag));
    ash_plan_destroy(plan);
    ash_graph_destroy(g);
    for (int d = 0; d < 2; d++) ash_device_close(devices[d]);
    ash_context_destroy(context);
    assert_int_equal(ptx_live(), 0);
    assert_string_equal(ptx_finding(), "");
}

/* --- tests ------------------------------------------------------------------------------------------ */

/* The numbers: copies that the driver has for the plan's four and that may run beside a kernel, and how
 * many pairs of both there are. Between a processor that is the main device and a GPU two of the four do
 * not: one comes before all that the GPU does, and one behind. Over memory of the host a copy from GPU to
 * GPU is one from the one and one to the other. */
static const struct {
    setting s;
    size_t free, pairs;
    const char *plant; /* NULL: launches */
} settings[] = {{{.devices = {"CPU", "CUDA:0"}}, 2, 6, NULL},
                {{.devices = {"CUDA:0", "CPU"}}, 4, 10, "cuMemcpyDtoHAsync_v2"},
                {{.devices = {"CUDA:0", "CUDA:1"}}, 8, 32, "cuMemcpyDtoHAsync_v2"},
                {{.devices = {"CUDA:0", "CUDA:1"}, .peers = true}, 4, 16, "cuMemcpyPeerAsync"}};

/* The function, where there is one, sees what has been issued and that the host has waited for nothing. */
static bool all_overlap(const result *r, size_t i) {
    const size_t calls = i == 0;
    const observer *o = &r->observer;
    return r->beside.free == settings[i].free && r->beside.pairs == settings[i].pairs &&
           o->calls == calls && o->issued == calls && o->waited == 0;
}

/* Afterwards all is as it was. */
static void ended_early(void **state) {
    float want[COUNT];
    (void)state;
    for (int i = 0; i < 2 * ASH_MODE_COUNT; i++) {
        setting s = settings[0].s;
        result r;
        s.mode = (ash_mode)(i / 2);
        s.seed = (uint64_t)i;
        s.ends = i % 2;
        run(&s, &r);
        if (!i) memcpy(want, r.y, sizeof want);
        assert_memory_equal(r.y, want, sizeof want);
        assert_true(all_overlap(&r, 0));
    }
}

static void calls_that_fail(void **state) {
    (void)state;
    for (size_t i = 0; i < ASH_COUNT(settings); i++) {
        setting s = settings[i].s;
        result r;
        s.mode = i % 2 ? ASH_MODE_STREAM : ASH_MODE_GRAPH;
        s.fails = true;
        run(&s, &r);
        assert_true(all_overlap(&r, i));
    }
}

static void copies_and_work(void **state) {
    size_t within = 0;
    (void)state;
    for (size_t i = 0; i < ASH_COUNT(settings); i++) {
        float want[COUNT];
        for (int mode = 0; mode < ASH_MODE_COUNT; mode++) {
            size_t between = 0;
            for (uint64_t seed = 0; seed < SEEDS; seed++) {
                setting s = settings[i].s;
                result r;
                s.mode = (ash_mode)mode;
                s.seed = seed;
                run(&s, &r);
                if (!seed && !mode) memcpy(want, r.y, sizeof want);
                assert_memory_equal(r.y, want, sizeof want);
                assert_true(all_overlap(&r, i));
                assert_int_equal(r.may_overlap, 4); /* with an operation of either device */
                between += r.beside.between;
                within += r.beside.within;
            }
            assert_true(between > 0);
        }
    }
    assert_true(within > 0);
}

/* The host waits once, before a call: each time that orders something that need not be, but for the first
 * launch, before which there is nothing. */
static void a_wait_too_many(void **state) {
    (void)state;
    for (size_t i = 0; i < ASH_COUNT(settings); i++)
        for (int mode = 0; mode < ASH_MODE_COUNT; mode++) {
            setting s = settings[i].s;
            size_t found = 0;
            result r = {.calls = 1};
            s.mode = (ash_mode)mode;
            s.plant = settings[i].plant;
            if (!s.plant) s.plant = s.mode == ASH_MODE_GRAPH ? "cuGraphLaunch" : "cuLaunchKernel";
            for (s.nth = 1; s.nth <= r.calls; s.nth++) {
                run(&s, &r);
                found += !all_overlap(&r, i);
            }
            assert_true(r.calls >= 2);
            assert_int_equal(found, r.calls - (i == 0));
        }
}

int main(void) {
    if (!gpu_is_compiled_for()) return GPU_SKIPPED;
    const struct CMUnitTest tests[] = {cmocka_unit_test(copies_and_work), cmocka_unit_test(ended_early),
                                       cmocka_unit_test(calls_that_fail),
                                       cmocka_unit_test(a_wait_too_many)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
