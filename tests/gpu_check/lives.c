/* SPDX-License-Identifier: MIT */
/* What plans go through on a GPU: replicas on threads, one of which sets a parameter; the caller's memory
 * as the arena; profiles of several streams; a kernel that is stopped on its way. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "ashlar/progress.h"
#include "check.h"
#include "device_graph.h"

enum { TWINS = 2, ROUNDS = 5, OPS = 64 };

static void tell(const char *name, ash_mode mode, double us, ash_status status, bool right,
                 const ash_diag *diag) {
    check_row row = check_row_of("lives", name, ash_mode_text(mode));
    row.us = us;
    if (status == ASH_OK && !right) check_row_fail(&row, "other bits than alone in mode stream");
    row.bits = row.passed;
    check_row_end(&row, status, false, diag);
}

static ash_status prepare(const check_run *run, const ash_graph *graph, ash_mode mode, ash_cancel *cancel,
                          ash_plan **out, ash_diag *diag) {
    ash_plan_options options = ash_plan_options_default();
    options.device = run->device;
    options.mode = mode;
    options.streams = mode == ASH_MODE_MULTI_STREAM ? 3 : 1;
    options.progress.cancel = cancel;
    return ash_plan_prepare(run->context, graph, &options, out, diag);
}

static ash_status set_bias(ash_plan *plan, ash_diag *diag) {
    float bias[DEVICE_COLUMNS];
    for (int i = 0; i < DEVICE_COLUMNS; i++) bias[i] = (float)i / 2;
    return ash_plan_set_parameter(plan, "bias", NULL, bias, sizeof bias, diag);
}

/* --- replicas on threads ------------------------------------------------------------------------------ */

typedef struct runner {
    ash_plan *plan;
    const device_results *want;
    bool sets, wrong;
    ash_status status;
    ash_diag diag;
    device_results got;
} runner;

static void *run_rounds(void *argument) {
    runner *r = argument;
    for (int i = 0; i < ROUNDS && r->status == ASH_OK; i++) {
        if (r->sets) r->status = set_bias(r->plan, &r->diag);
        if (r->status == ASH_OK) r->status = device_run(r->plan, NULL, 0, &r->got, &r->diag);
        r->wrong |= r->status == ASH_OK && !device_same(r->want, &r->got);
    }
    return NULL;
}

static void check_replicas(const check_run *run, const ash_graph *graph, ash_mode mode,
                           const device_results *want) {
    static runner twins[TWINS];
    pthread_t threads[TWINS];
    ash_diag diag = {0};
    memset(twins, 0, sizeof twins);
    ash_status status = prepare(run, graph, mode, NULL, &twins[0].plan, &diag);
    for (int i = 0; i < TWINS && status == ASH_OK; i++) {
        if (i) status = ash_plan_replicate(twins[0].plan, &twins[i].plan, &diag);
        twins[i].want = &want[i];
        twins[i].sets = i;
    }
    int started = 0;
    while (status == ASH_OK && started < TWINS &&
           pthread_create(&threads[started], NULL, run_rounds, &twins[started]) == 0)
        started++;
    for (int i = 0; i < started; i++) pthread_join(threads[i], NULL);
    bool right = started == TWINS;
    for (int i = 0; i < TWINS; i++) {
        right &= !twins[i].wrong;
        if (status == ASH_OK && twins[i].status != ASH_OK) status = twins[i].status, diag = twins[i].diag;
        ash_plan_destroy(twins[i].plan);
    }
    tell("replicas on threads", mode, -1, status, right, &diag);
}

/* --- memory of the caller, profiles ------------------------------------------------------------------- */

static void check_arena(const check_run *run, const ash_graph *graph, ash_mode mode,
                        const device_results *want) {
    static device_results got;
    ash_storage *storage = NULL;
    ash_view *view = NULL;
    ash_plan *plan;
    ash_diag diag = {0};
    ash_status status = prepare(run, graph, mode, NULL, &plan, &diag);
    uint64_t bytes = ash_plan_arena_size(plan);
    const ash_type type = {ASH_U8, 1, {(int64_t)bytes}};
    if (status == ASH_OK) status = ash_storage_create(run->device, bytes, 256, &storage, &diag);
    if (status == ASH_OK) status = ash_view_create(storage, 0, bytes, &type, &view, &diag);
    if (status == ASH_OK) status = ash_plan_bind_arena_view(plan, view, &diag);
    if (status == ASH_OK) status = device_run(plan, NULL, 0, &got, &diag);
    tell("the caller's memory as arena", mode, -1, status, status == ASH_OK && device_same(want, &got),
         &diag);
    ash_plan_destroy(plan);
    ash_view_release(view);
    ash_storage_release(storage);
}

static void check_profile(const check_run *run, const ash_graph *graph, const device_results *want) {
    static device_results got;
    ash_profile times[OPS];
    ash_plan *plan;
    ash_diag diag = {0};
    ash_status status = prepare(run, graph, ASH_MODE_MULTI_STREAM, NULL, &plan, &diag);
    if (status == ASH_OK) status = device_run(plan, times, OPS, &got, &diag);
    bool right = status == ASH_OK && device_same(want, &got);
    for (size_t i = 0; right && i < ash_plan_op_count(plan) && i < OPS; i++)
        right = times[i].duration >= 0 && times[i].start >= 0;
    tell("a profile of three streams", ASH_MODE_MULTI_STREAM, -1, status, right, &diag);
    ash_plan_destroy(plan);
}

/* --- stopping ----------------------------------------------------------------------------------------- */

static double now_us(void) {
    return (double)check_now() / 1000;
}

typedef struct press {
    ash_cancel cancel;
    double pressed; /* microseconds */
} press;

static void *press_later(void *argument) {
    press *p = argument;
    nanosleep(&(struct timespec){.tv_nsec = 50000000}, NULL);
    p->pressed = now_us();
    ash_cancel_set(&p->cancel, true);
    return NULL;
}

/* A sum that takes minutes at least, in one thread of the GPU; the time is that from the switch on. */
static void check_stopping(const check_run *run, ash_mode mode) {
    const ash_dim many = INT64_C(1) << 37;
    const float one = 1;
    press p = {0};
    ash_graph *g;
    ash_plan *plan = NULL;
    pthread_t thread;
    ash_diag diag = {0};
    double us = -1;
    ash_status status = ash_graph_create(run->context, "long", &g, &diag);
    if (status == ASH_OK) {
        ash_value x = ash_graph_input(g, "x", &(ash_type){ASH_F32, 1, {1}});
        x = ash_exp(g, ash_broadcast_to(g, x, &many, 1));
        ash_graph_output(g, "y", ash_reduce_sum(g, x, (const int64_t[]){0}, 1, false));
        status = prepare(run, g, mode, &p.cancel, &plan, &diag);
    }
    if (status == ASH_OK) status = ash_plan_set_input(plan, 0, NULL, &one, sizeof one, &diag);
    if (status == ASH_OK && pthread_create(&thread, NULL, press_later, &p) == 0) {
        status = ash_plan_execute(plan, &diag);
        us = now_us();
        pthread_join(thread, NULL);
        us -= p.pressed;
    }
    bool stopped = status == ASH_ERROR_CANCELLED;
    if (status == ASH_OK) snprintf(diag.message, sizeof diag.message, "the execution came to its end");
    tell("a kernel stopped on its way", mode, us, stopped ? ASH_OK : status, stopped, &diag);
    ash_plan_destroy(plan);
    ash_graph_destroy(g);
}

/* -------------------------------------------------------------------------------------------------- */

/* Alone, in mode stream: with the graph's parameter, and with the one that is set. */
static ash_status run_alone(const check_run *run, const ash_graph *graph, device_results want[TWINS],
                            ash_diag *diag) {
    ash_plan *plan;
    ash_status status = prepare(run, graph, ASH_MODE_STREAM, NULL, &plan, diag);
    for (int i = 0; i < TWINS && status == ASH_OK; i++) {
        if (i) status = set_bias(plan, diag);
        if (status == ASH_OK) status = device_run(plan, NULL, 0, &want[i], diag);
    }
    ash_plan_destroy(plan);
    return status;
}

void check_lives(check_run *run) {
    static device_results want[TWINS];
    static const ash_mode modes[] = {ASH_MODE_STREAM, ASH_MODE_GRAPH, ASH_MODE_MULTI_STREAM};
    ash_graph *graph;
    ash_diag diag = {0};
    ash_status status = ash_graph_create(run->context, "lives", &graph, &diag);
    if (status == ASH_OK) device_graph(graph);
    if (status == ASH_OK) status = ash_graph_status(graph, &diag);
    if (status == ASH_OK) status = run_alone(run, graph, want, &diag);
    tell("alone", ASH_MODE_STREAM, -1, status, true, &diag);
    for (int m = 0; status == ASH_OK && m < 3; m++) {
        check_replicas(run, graph, modes[m], want);
        check_arena(run, graph, modes[m], want);
        check_stopping(run, modes[m]);
    }
    if (status == ASH_OK) check_profile(run, graph, want);
    ash_graph_destroy(graph);
}
