/* SPDX-License-Identifier: MIT */
/* Runs a case: the evaluator in double precision beside plans that are prepared in some way. What may not
 * change a bit (mode, planner, threads, streams, order, poison) is compared bit for bit with a plan that
 * differs in nothing else. The same once more with nodes on several devices. */
#include <math.h>

#include "apart.h"
#include "ashlar/plan.h"
#include "case.h"

/* The results of all rounds: bytes and dims of each output. */
typedef struct results {
    struct {
        int64_t dims[ASH_MAX_RANK];
        size_t size;
        char *bytes;
    } at[CASE_ROUNDS][CASE_OUTPUTS];
} results;

static void results_free(results *r) {
    for (unsigned i = 0; r && i < CASE_ROUNDS; i++)
        for (unsigned o = 0; o < CASE_OUTPUTS; o++) free(r->at[i][o].bytes);
    free(r);
}

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

/* --- the evaluator ---------------------------------------------------------------------------- */

static void dims_of(const ash_graph *g, const ash_type *type, const int64_t *vars, int64_t *dims) {
    for (unsigned d = 0; d < type->rank; d++) dims[d] = ash_dims_eval(g->dims, type->dims[d], vars);
}

static void spread_vars(const fuzz_case *c, unsigned round, int64_t *vars) {
    unsigned n = 0;
    for (size_t i = 0; i < ash_dims_var_count(c->g->dims); i++)
        vars[i] = ash_dims_var(c->g->dims, i)->settled ? 0 : c->vars[round][n++];
    ash_dims_reset_settled(c->g->dims, vars);
}

static bool make_inputs(const fuzz_case *c, unsigned round, const int64_t *vars, ash_wide *inputs) {
    ash_diag diag;
    for (size_t i = 0; i < c->g->inputs.len; i++) {
        const ash_type *type = ash_graph__type(c->g, c->g->inputs.at[i]);
        int64_t dims[ASH_MAX_RANK];
        dims_of(c->g, type, vars, dims);
        if (ash_wide_alloc(&ash_allocator__libc, type->dtype, type->rank, dims, &inputs[i], &diag) !=
            ASH_OK)
            return false;
        fuzz_fill(&inputs[i], c->fill[i].seed + 3 * round, c->fill[i].limit, c->fill[i].special);
    }
    return true;
}

static bool near_enough(const ash_wide *got, const ash_wide *want, double within, char *error,
                        size_t room) {
    bool is_float = ash_dtype_is_float(want->dtype);
    for (int64_t i = 0; i < want->count; i++) {
        if (!is_float && got->i[i] != want->i[i]) {
            snprintf(error, room, "element %lld is %lld, not %lld", (long long)i, (long long)got->i[i],
                     (long long)want->i[i]);
            return false;
        }
        if (!is_float || (isnan(got->f[i]) && isnan(want->f[i])) || got->f[i] == want->f[i] ||
            fabs(got->f[i] - want->f[i]) <= within)
            continue;
        snprintf(error, room, "element %lld is %.9g, not %.9g (may be off by %.3g)", (long long)i,
                 got->f[i], want->f[i], within);
        return false;
    }
    return true;
}

static bool compare_round(const fuzz_case *c, const results *r, unsigned round, const ash_wide *expected,
                          char error[512]) {
    for (size_t o = 0; o < c->g->outputs.len; o++) {
        const ash_wide *want = &expected[o];
        char why[256];
        ash_wide got;
        ash_diag diag;
        if (memcmp(r->at[round][o].dims, want->dims, want->rank * sizeof *want->dims) != 0 ||
            r->at[round][o].size != (size_t)want->count * ash_dtype_size(want->dtype)) {
            snprintf(error, 512, "round %u, output %s has another shape", round, c->g->outputs.at[o].name);
            return false;
        }
        if (ash_wide_alloc(&ash_allocator__libc, want->dtype, want->rank, want->dims, &got, &diag) !=
            ASH_OK)
            return false;
        ash_wide_load(&got, r->at[round][o].bytes);
        bool good = near_enough(&got, want, c->within[o], why, sizeof why);
        ash_wide_free(&ash_allocator__libc, &got);
        if (good) continue;
        snprintf(error, 512, "round %u, output %s: %s", round, c->g->outputs.at[o].name, why);
        return false;
    }
    return true;
}

/* The results of all rounds against the evaluator's. */
static bool check_values(const fuzz_case *c, const results *r, char error[512]) {
    const ash_allocator *a = &ash_allocator__libc;
    const ash_graph *g = c->g;
    ash_wide *states = calloc(g->states.len + 1, sizeof *states);
    bool good = true;
    ash_diag diag;
    ash_diag_clear(&diag);
    for (size_t s = 0; s < g->states.len; s++) {
        const ash_type *type = ash_graph__type(g, g->states.at[s].value);
        if (ash_wide_alloc(a, type->dtype, type->rank, type->dims, &states[s], &diag) != ASH_OK) abort();
        memset(states[s].f, 0, (size_t)states[s].count * sizeof *states[s].f);
    }
    for (unsigned round = 0; round < c->rounds && good; round++) {
        int64_t vars[64] = {0};
        ash_wide *inputs = calloc(g->inputs.len + 1, sizeof *inputs),
                 *expected = calloc(g->outputs.len + 1, sizeof *expected);
        spread_vars(c, round, vars);
        if (!make_inputs(c, round, vars, inputs)) abort();
        if (ash_eval_step(g, inputs, vars, ASH_EVAL_DOUBLE, states, expected, &diag) != ASH_OK) {
            ash_diag_format(&diag, error, 512);
            good = false;
        } else {
            good = compare_round(c, r, round, expected, error);
            for (size_t o = 0; o < g->outputs.len; o++) ash_wide_free(a, &expected[o]);
        }
        for (size_t i = 0; i < g->inputs.len; i++) ash_wide_free(a, &inputs[i]);
        free(inputs);
        free(expected);
    }
    for (size_t s = 0; s < g->states.len; s++) ash_wide_free(a, &states[s]);
    free(states);
    return good;
}

/* --- plans ------------------------------------------------------------------------------------ */

static ash_status bind_round(const fuzz_case *c, ash_plan *plan, unsigned round, ash_diag *diag) {
    ash_var_binding named[CASE_VARS];
    int64_t vars[64] = {0};
    unsigned n = 0;
    for (size_t i = 0; i < ash_dims_var_count(c->g->dims); i++)
        if (!ash_dims_var(c->g->dims, i)->settled) {
            named[n] = (ash_var_binding){ash_dims_var(c->g->dims, i)->name, c->vars[round][n]};
            n++;
        }
    if (n) ASH_TRY(ash_plan_set_vars(plan, named, n, diag));
    spread_vars(c, round, vars);
    ash_wide *inputs = calloc(c->g->inputs.len + 1, sizeof *inputs);
    if (!make_inputs(c, round, vars, inputs)) abort();
    ash_status status = ASH_OK;
    for (size_t i = 0; i < c->g->inputs.len; i++) {
        size_t size = (size_t)inputs[i].count * ash_dtype_size(inputs[i].dtype);
        char *bytes = malloc(size + 1);
        ash_wide_store(&inputs[i], bytes);
        if (status == ASH_OK) status = ash_plan_set_input(plan, i, NULL, bytes, size, diag);
        free(bytes);
        ash_wide_free(&ash_allocator__libc, &inputs[i]);
    }
    free(inputs);
    return status;
}

static ash_status run_rounds(const fuzz_case *c, ash_plan *plan, results *r, ash_diag *diag) {
    for (unsigned round = 0; round < c->rounds; round++) {
        ASH_TRY(bind_round(c, plan, round, diag));
        ASH_TRY(ash_plan_execute(plan, diag));
        for (size_t o = 0; o < c->g->outputs.len; o++) {
            const ash_view *view;
            const void *bytes;
            ASH_TRY(ash_plan_output(plan, o, &view, diag));
            ASH_TRY(ash_view_data(view, &bytes, diag));
            const ash_type *type = ash_view_type(view);
            memcpy(r->at[round][o].dims, type->dims, type->rank * sizeof *type->dims);
            r->at[round][o].size = (size_t)ash_view_bytes(view);
            r->at[round][o].bytes = malloc(r->at[round][o].size + 1);
            memcpy(r->at[round][o].bytes, bytes, r->at[round][o].size);
        }
    }
    return ASH_OK;
}

static results *run_plan(ash_context *context, const fuzz_case *c, const ash_plan_options *options,
                         char error[512]) {
    ash_plan *plan = NULL;
    results *r = calloc(1, sizeof *r);
    ash_diag diag;
    ash_diag_clear(&diag);
    ash_status status = ash_plan_prepare(context, c->g, options, &plan, &diag);
    if (status == ASH_OK) status = run_rounds(c, plan, r, &diag);
    if (status != ASH_OK) {
        ash_diag_format(&diag, error, 400);
        results_free(r);
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
 * that. Bits are the same where each node is a kernel of its own for the same target: otherwise others are
 * fused and rewritten. */
static bool run_placed(ash_context *context, const fuzz_case *c, uint64_t way, const results *base,
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
    results *r = placed ? run_plan(context, c, &options, error) : NULL;
    if (placed) good = r && check_values(c, r, error);
    bool exact = options.no_fuse && options.no_optimize && !cuda_is_wished();
    for (unsigned round = 0; good && r && exact && round < c->rounds; round++)
        for (size_t o = 0; good && o < c->g->outputs.len; o++) {
            good = base->at[round][o].size == r->at[round][o].size &&
                   !memcmp(base->at[round][o].bytes, r->at[round][o].bytes, r->at[round][o].size);
            if (!good)
                snprintf(error, 400, "round %u, output %s has other bits than on one device", round,
                         c->g->outputs.at[o].name);
        }
    forget_places(c->g);
    for (unsigned d = 0; d < DEVICES; d++) ash_device_close(devices[d]);
    results_free(r);
    if (!good) {
        size_t len = strlen(error);
        snprintf(error + len, 512 - len, " [placed]");
    }
    return good;
}

bool case_run(ash_context *context, const fuzz_case *c, uint64_t way, char error[512]) {
    char text[128];
    const ash_plan_options other = arithmetic_of(way), options = options_of(way, text);
    results *base = run_plan(context, c, &other, error), *r = NULL;
    bool good = base && check_values(c, base, error);
    if (good && way != 0) {
        r = run_plan(context, c, &options, error);
        good = r != NULL;
        for (unsigned round = 0; good && round < c->rounds; round++)
            for (size_t o = 0; good && o < c->g->outputs.len; o++) {
                good = base->at[round][o].size == r->at[round][o].size &&
                       !memcmp(base->at[round][o].bytes, r->at[round][o].bytes, r->at[round][o].size);
                if (!good)
                    snprintf(error, 512, "round %u, output %s has other bits than without", round,
                             c->g->outputs.at[o].name);
            }
    }
    if (good && way != 0) good = run_placed(context, c, way, base, error);
    results_free(base);
    results_free(r);
    if (good) return true;
    size_t len = strlen(error);
    snprintf(error + len, 512 - len, " [way %llu: %s]", (unsigned long long)way, text);
    return false;
}
