/* SPDX-License-Identifier: MIT */
/* Runs a case: the evaluator in double precision beside plans that are prepared in some way. What may not
 * change a bit (mode, planner, threads, streams, order, poison) is compared bit for bit with a plan that
 * differs in nothing else. The same once more with nodes on several devices. */
#include "apart.h"
#include "ashlar/plan.h"
#include "case.h"

/* --- ways ------------------------------------------------------------------------------------- */

/* A plan with the options of a way that decide on bits; the others are as if nothing were said. */
static ash_plan_options arithmetic_of(uint64_t way) {
    ash_plan_options options = ash_plan_options_default();
    uint64_t state = way ^ 0xa51;
    if (way == 0) return options;
    options.no_fuse = test_random(&state) % 4 == 0;
    options.no_optimize = test_random(&state) % 4 == 0;
    options.no_winograd = test_random(&state) % 4 == 0;
    return options;
}

static ash_plan_options options_of(uint64_t way, char text[128]) {
    ash_plan_options options = arithmetic_of(way);
    uint64_t state = way;
    if (way != 0) {
        options.memory.mode = (ash_memory_mode)(test_random(&state) % ASH_MEMORY_MODE_COUNT);
        options.memory.strategy = (ash_memory_strategy)(test_random(&state) % ASH_MEMORY_STRATEGY_COUNT);
        options.memory.pin_output_ancestors = test_random(&state) % 8 == 0;
        options.mode = (ash_mode)(test_random(&state) % ASH_MODE_COUNT);
        if (options.mode == ASH_MODE_MULTI_STREAM)
            options.streams = 2 + (unsigned)(test_random(&state) % 3);
        options.threads = 1 + (unsigned)(test_random(&state) % 3);
        options.order = test_random(&state) % 4 ? ASH_PLAN_ORDER_AUTO : ASH_PLAN_ORDER_ON;
        options.poison = options.mode != ASH_MODE_GRAPH && test_random(&state) % 3 == 0;
    }
    snprintf(text, 128, "%s %u, %s %s, threads %u%s%s%s%s%s", ash_mode_text(options.mode), options.streams,
             ash_memory_mode_text(options.memory.mode), ash_memory_strategy_text(options.memory.strategy),
             options.threads, options.no_fuse ? ", not fused" : "",
             options.no_optimize ? ", not optimised" : "", options.no_winograd ? ", no winograd" : "",
             options.poison ? ", poison" : "", options.order == ASH_PLAN_ORDER_ON ? ", order" : "");
    return options;
}

static case_results *run_plan(ash_context *context, const fuzz_case *c, const ash_plan_options *options,
                              char error[512]) {
    ash_plan *plan = NULL;
    case_results *r = calloc(1, sizeof *r);
    ash_diag diag;
    ash_diag_clear(&diag);
    ash_status status = ash_plan_prepare(context, c->g, options, &plan, &diag);
    if (status == ASH_OK) status = case_execute(c, plan, r, &diag);
    if (status != ASH_OK) {
        ash_diag_format(&diag, error, 400);
        case_results_free(r);
        r = NULL;
    }
    ash_plan_destroy(plan);
    return r;
}

/* --- on several devices ----------------------------------------------------------------------- */

enum { DEVICES = 3 };

/* Places nodes and states at random, what belongs to a loop with it; false where the graph cannot be
 * placed. */
static bool place_nodes(const fuzz_case *c, uint64_t *state) {
    ash_graph *g = c->g;
    ash_diag diag;
    bool settles = false;
    uint32_t *loops = malloc((g->nodes.len + 1) * sizeof *loops);
    if (ash_graph__outer_loops(g, loops, &diag) != ASH_OK) abort();
    for (size_t n = 0; n < g->nodes.len; n++) {
        settles |= g->nodes.at[n].op == ASH_OP_SETTLE;
        if (loops[n] != UINT32_MAX && loops[n] != n) continue;
        if (test_random(state) % 4) g->nodes.at[n].place = 1 + (uint32_t)(test_random(state) % DEVICES);
    }
    for (size_t i = 0; i < g->states.len; i++)
        if (test_random(state) % 2)
            g->values.at[g->states.at[i].value].place = (uint8_t)(1 + test_random(state) % DEVICES);
    free(loops);
    return !settles;
}

static void forget_places(ash_graph *g) {
    for (size_t n = 0; n < g->nodes.len; n++) g->nodes.at[n].place = 0;
    for (size_t v = 0; v < g->values.len; v++) g->values.at[v].place = 0;
}

static ash_plan_options placed_options(uint64_t way, ash_device **devices, char text[128]) {
    ash_plan_options options = options_of(way, text);
    options.devices = devices;
    options.device_count = DEVICES;
    return options;
}

/* In two of three cases the devices are held to what they take without a limit, or to less: what does not
 * fit is refused, and then there is nothing to run. */
static bool limit_placed(ash_context *context, const fuzz_case *c, ash_plan_options *options,
                         uint64_t capacities[DEVICES], uint64_t *state) {
    ash_plan *plan;
    ash_diag diag;
    const uint64_t tenths = 7 + test_random(state) % 4;
    if (test_random(state) % 3 == 0 || options->memory.mode != ASH_MEMORY_ARENA) return true;
    if (ash_plan_prepare(context, c->g, options, &plan, &diag) != ASH_OK) return true; /* says it again */
    for (size_t d = 0; d < DEVICES; d++) {
        ash_plan_device_info info = ASH_INIT(ash_plan_device_info);
        capacities[d] = 0;
        if (d < ash_plan_device_count(plan) && ash_plan_device_at(plan, d, &info, NULL) == ASH_OK)
            capacities[d] = info.arena * tenths / 10;
    }
    ash_plan_destroy(plan);
    options->capacities = capacities;
    ash_status status = ash_plan_prepare(context, c->g, options, &plan, &diag);
    ash_plan_destroy(plan);
    return status != ASH_ERROR_BUDGET;
}

/* The same on several devices, of which two are out of the host's reach; one is the GPU, where plans are on
 * that. Bits are the same where each node is a kernel of its own for the same target, but those of NaNs, as
 * what is read through a transposition here is a copy there: otherwise others are fused and rewritten. */
static bool run_placed(ash_context *context, const fuzz_case *c, uint64_t way, const case_results *base,
                       char error[512]) {
    uint64_t state = way * UINT64_C(0x9e3779b97f4a7c15) + 1;
    char text[128];
    ash_diag diag;
    ash_device *devices[DEVICES];
    if (ash_device_open(context, "CPU", &devices[0], &diag) != ASH_OK) abort();
    for (unsigned d = 1; d < DEVICES; d++)
        if ((d == 1 && cuda_is_wished() ? ash_device_open(context, "CUDA:0", &devices[d], &diag)
                                        : apart_open_another(context, d, &devices[d], &diag)) != ASH_OK)
            abort();
    if (test_random(&state) % 3 == 0) {
        ash_device *first = devices[0];
        devices[0] = devices[1];
        devices[1] = first;
    }
    bool good = true, placed = place_nodes(c, &state);
    ash_plan_options options = placed_options(way, devices, text);
    uint64_t capacities[DEVICES];
    reorder.seed = way;
    reorder.peers = test_random(&state) % 2;
    placed = placed && limit_placed(context, c, &options, capacities, &state);
    case_results *r = placed ? run_plan(context, c, &options, error) : NULL;
    if (placed) good = r && case_check(c, r, error);
    bool exact = options.no_fuse && options.no_optimize && !cuda_is_wished();
    if (good && r && exact) good = case_same(c, r, base, c->rounds, false, "on one device", error);
    forget_places(c->g);
    for (unsigned d = 0; d < DEVICES; d++) ash_device_close(devices[d]);
    case_results_free(r);
    if (!good) {
        size_t len = strlen(error);
        snprintf(error + len, 512 - len, " [placed]");
    }
    return good;
}

bool case_run(ash_context *context, const fuzz_case *c, uint64_t way, char error[512]) {
    char text[128];
    const ash_plan_options other = arithmetic_of(way), options = options_of(way, text);
    case_results *base = run_plan(context, c, &other, error), *r = NULL;
    bool good = base && case_check(c, base, error);
    if (good && way != 0) {
        r = run_plan(context, c, &options, error);
        good = r && case_same(c, r, base, c->rounds, true, "without", error);
    }
    if (good && way != 0) good = run_placed(context, c, way, base, error);
    case_results_free(base);
    case_results_free(r);
    if (good) return true;
    size_t len = strlen(error);
    snprintf(error + len, 512 - len, " [way %llu: %s]", (unsigned long long)way, text);
    return false;
}
