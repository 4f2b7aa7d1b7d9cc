/* SPDX-License-Identifier: MIT */
/* Random graphs (tests/fuzz), each by its seed: on the processor, and on the GPU in every mode, again and
 * again. Results are the evaluator's, within what its graph allows; those that have the processor's bits by
 * promise have them; and they are the same each time and in each mode. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"
#include "fuzz/case.h"

static const int64_t TIME_NS = 120 * INT64_C(1000000000); /* for all of them */

/* --- what is promised --------------------------------------------------------------------------------- */

/* Functions of f64 that a processor takes from its C library. */
static bool is_library(ash_op op) {
    static const ash_op ops[] = {ASH_OP_SIN,  ASH_OP_COS,  ASH_OP_TAN,   ASH_OP_ASIN, ASH_OP_ACOS,
                                 ASH_OP_ATAN, ASH_OP_SINH, ASH_OP_COSH,  ASH_OP_TANH, ASH_OP_ASINH,
                                 ASH_OP_ERF,  ASH_OP_POW,  ASH_OP_ACOSH, ASH_OP_ATANH};
    for (size_t i = 0; i < sizeof ops / sizeof *ops; i++)
        if (op == ops[i]) return true;
    return false;
}

/* Whether an operator on such operands has the processor's bits where they have (docs/cuda.md, "Bits"). */
static bool keeps_bits(ash_op op, ash_dtype dtype) {
    if (!ash_dtype_is_float(dtype)) return true;
    if (dtype == ASH_F64 && is_library(op)) return false;
    switch (op) {
    case ASH_OP_REDUCE_SUM:
    case ASH_OP_REDUCE_PROD:
    case ASH_OP_MATMUL:
    case ASH_OP_CONV:
    case ASH_OP_POOL_SUM:
    case ASH_OP_CUMSUM:
    case ASH_OP_SCATTER_ELEMENTS:
    case ASH_OP_SCATTER_ND: return false;
    default: return true;
    }
}

/* Per value: whether its bits are promised. States have those of what becomes of them. */
static bool *promise(const ash_graph *g) {
    bool *kept = malloc(g->values.len + 1);
    if (!kept) abort();
    memset(kept, true, g->values.len + 1);
    for (bool more = true; more;) {
        more = false;
        for (size_t n = 0; n < g->nodes.len; n++) {
            const ash_node *node = &g->nodes.at[n];
            bool good = true;
            for (unsigned i = 0; i < node->n_ins; i++)
                good &= kept[node->ins[i]] && keeps_bits(node->op, ash_graph__type(g, node->ins[i])->dtype);
            for (unsigned o = 0; o < node->n_outs; o++) kept[node->out + o] = good;
        }
        for (size_t s = 0; s < g->states.len; s++) {
            const ash_state *state = &g->states.at[s];
            if (state->update == ASH_NO_VALUE || kept[state->update] || !kept[state->value]) continue;
            kept[state->value] = false;
            more = true;
        }
    }
    return kept;
}

/* Equal elements: what is no number is none in both, with whatever bits. */
static bool same_elements(const char *a, const char *b, size_t size, ash_dtype dtype) {
    if (memcmp(a, b, size) == 0) return true;
    if (!ash_dtype_is_float(dtype)) return false;
    ash_wide x, y;
    ash_diag diag;
    const int64_t count = (int64_t)(size / ash_dtype_size(dtype));
    if (ash_wide_alloc(&ash_allocator__libc, dtype, 1, &count, &x, &diag) != ASH_OK) abort();
    if (ash_wide_alloc(&ash_allocator__libc, dtype, 1, &count, &y, &diag) != ASH_OK) abort();
    ash_wide_load(&x, a);
    ash_wide_load(&y, b);
    bool same = true;
    for (int64_t i = 0; i < count && same; i++)
        same = (isnan(x.f[i]) && isnan(y.f[i])) || memcmp(&x.f[i], &y.f[i], sizeof x.f[i]) == 0;
    ash_wide_free(&ash_allocator__libc, &x);
    ash_wide_free(&ash_allocator__libc, &y);
    return same;
}

/* The first output whose promised bits are not the processor's fails the row. */
static void compare_bits(const check_run *run, const fuzz_case *c, const case_results *want,
                         const case_results *got, check_row *row) {
    bool *kept = promise(c->g);
    for (unsigned round = 0; round < c->rounds; round++)
        for (size_t o = 0; o < c->g->outputs.len; o++) {
            ash_value v = c->g->outputs.at[o].value;
            bool same = want->at[round][o].size == got->at[round][o].size &&
                        same_elements(want->at[round][o].bytes, got->at[round][o].bytes,
                                      got->at[round][o].size, ash_graph__type(c->g, v)->dtype);
            row->bits &= same;
            if (!same && ((kept[v] && run->fma) || run->options.exact))
                check_row_fail(row, "round %u, output %s has other bits than on the processor", round,
                               c->g->outputs.at[o].name);
        }
    free(kept);
}

/* --- one graph ---------------------------------------------------------------------------------------- */

typedef struct seeded {
    uint64_t seed;
    fuzz_case c;
    case_results *want, *first; /* the processor's, and the GPU's of the first mode */
    unsigned failed;
} seeded;

static void judge_first(const check_run *run, seeded *s, check_row *row) {
    char error[512];
    if (!case_check(&s->c, s->first, error)) check_row_fail(row, "%.240s", error);
    compare_bits(run, &s->c, s->want, s->first, row);
}

/* All rounds once more; the first time of all is judged, the others are compared with it. */
static ash_status again(const check_run *run, seeded *s, ash_plan *plan, uint64_t time, check_row *row,
                        ash_diag *diag) {
    char error[512];
    case_results *got = calloc(1, sizeof *got);
    if (!got) return ASH_ERROR_OUT_OF_MEMORY;
    ash_status status = case_execute(&s->c, plan, got, diag);
    if (status == ASH_OK && !s->first) {
        s->first = got;
        judge_first(run, s, row);
        return status;
    }
    if (status == ASH_OK &&
        !case_same(&s->c, s->first, got, s->c.rounds, true, time ? "before" : "in mode stream", error))
        check_row_fail(row, "%.240s", error);
    case_results_free(got);
    return status;
}

static ash_status in_mode(const check_run *run, seeded *s, ash_mode mode, bool poison, check_row *row,
                          ash_diag *diag) {
    ash_plan *plan = NULL;
    ash_plan_options options = ash_plan_options_default();
    options.device = run->device;
    options.mode = mode;
    options.streams = mode == ASH_MODE_MULTI_STREAM ? 3 : 1;
    options.poison = poison;
    ash_status status = ash_plan_prepare(run->context, s->c.g, &options, &plan, diag);
    for (uint64_t i = 0; i < run->options.repeat && status == ASH_OK; i++)
        status = again(run, s, plan, i, row, diag);
    ash_plan_destroy(plan);
    return status;
}

static ash_status eager_again(seeded *s, const ash_plan_options *options, check_row *row, ash_diag *diag) {
    char error[512];
    case_results *got = calloc(1, sizeof *got);
    if (!got) return ASH_ERROR_OUT_OF_MEMORY;
    ash_status status = case_execute_eagerly(&s->c, options, got, diag);
    if (status == ASH_OK &&
        !case_same(&s->c, s->first, got, case_eager_rounds(&s->c), true, "in mode stream", error))
        check_row_fail(row, "%.240s", error);
    case_results_free(got);
    return status;
}

/* A plan is kept meanwhile, so that its kernels are not compiled each time. */
static ash_status eagerly(const check_run *run, seeded *s, check_row *row, ash_diag *diag) {
    ash_plan *kept = NULL;
    ash_plan_options options = ash_plan_options_default();
    options.device = run->device;
    if (!s->first) {
        row->skipped = true;
        snprintf(row->why, sizeof row->why, "no mode has results to compare with");
        return ASH_OK;
    }
    ash_status status = ash_plan_prepare(run->context, s->c.g, &options, &kept, diag);
    for (uint64_t i = 0; i < run->options.repeat && status == ASH_OK; i++)
        status = eager_again(s, &options, row, diag);
    ash_plan_destroy(kept);
    return status;
}

static ash_status processor(const check_run *run, seeded *s, check_row *row, ash_diag *diag) {
    char error[512];
    ash_plan *plan = NULL;
    const ash_plan_options options = ash_plan_options_default();
    s->want = calloc(1, sizeof *s->want);
    if (!s->want) return ASH_ERROR_OUT_OF_MEMORY;
    ash_status status = ash_plan_prepare(run->context, s->c.g, &options, &plan, diag);
    if (status == ASH_OK) status = case_execute(&s->c, plan, s->want, diag);
    if (status == ASH_OK && !case_check(&s->c, s->want, error)) check_row_fail(row, "%.240s", error);
    ash_plan_destroy(plan);
    return status;
}

typedef enum way { PROCESSOR, STREAM, GRAPH, STREAMS, POISONED, EAGER, WAYS } way;

static ash_status go(const check_run *run, seeded *s, way w, check_row *row, ash_diag *diag) {
    switch (w) {
    case PROCESSOR: return processor(run, s, row, diag);
    case STREAM: return in_mode(run, s, ASH_MODE_STREAM, false, row, diag);
    case GRAPH: return in_mode(run, s, ASH_MODE_GRAPH, false, row, diag);
    case STREAMS: return in_mode(run, s, ASH_MODE_MULTI_STREAM, false, row, diag);
    case POISONED: return in_mode(run, s, ASH_MODE_MULTI_STREAM, true, row, diag);
    default: return eagerly(run, s, row, diag);
    }
}

static void check_seed(check_run *run, seeded *s) {
    static const char *const modes[WAYS] = {"processor",    "stream",   "graph",
                                            "multi_stream", "poisoned", "eager"};
    char name[32];
    snprintf(name, sizeof name, "seed %llu", (unsigned long long)s->seed);
    bool good = case_generate(run->context, s->seed, &s->c);
    for (way w = PROCESSOR; w < WAYS && good; w++) {
        ash_diag diag = {0};
        check_row row = check_row_of("random", name, modes[w]);
        row.quiet = true;
        check_revive(run);
        ash_status status = go(run, s, w, &row, &diag);
        check_row_end(&row, status, false, &diag);
        s->failed += !row.passed;
        good = w != PROCESSOR || row.passed;
    }
    case_results_free(s->want);
    case_results_free(s->first);
    case_free(&s->c);
}

void check_random(check_run *run) {
    const int64_t end = check_now() + TIME_NS;
    uint64_t n = 0;
    unsigned failed = 0;
    char name[64] = "";
    check_row row = check_row_of("random", name, "");
    for (; n < run->options.graphs && check_now() < end && check_has_time(run); n++) {
        seeded s = {.seed = run->options.seed + n};
        check_seed(run, &s);
        failed += s.failed;
        if (s.failed)
            printf("    once more: --only random --graphs 1 --seed %llu\n", (unsigned long long)s.seed);
    }
    snprintf(name, sizeof name, "%llu from seed %llu on", (unsigned long long)n,
             (unsigned long long)run->options.seed);
    if (failed) check_row_fail(&row, "%u of them are not right", failed);
    if (!n) snprintf(row.why, sizeof row.why, "there is no time for them, or none is asked for");
    row.skipped = !n;
    table_add(&row);
}
