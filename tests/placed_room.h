/* SPDX-License-Identifier: MIT */
/* Plans on the processor and on two devices whose memory and the host's do not reach each other. */
#ifndef ASH_PLACED_ROOM_H
#define ASH_PLACED_ROOM_H

#include "apart.h"
#include "ashlar/builder.h"
#include "runtime/plan.h"

enum { ROWS = 8, COLUMNS = 40, COUNT = ROWS * COLUMNS, BYTES = COUNT * 4, DEVICES = 3 };

#define ROOM_MORE                                                                                          \
    ash_device *devices[DEVICES];                                                                          \
    float x[COUNT];
#include "graph_room.h"

static ash_diag diag;
static const ash_type matrix = {.dtype = ASH_F32, .rank = 2, .dims = {ROWS, COLUMNS}};

static inline int open_room(void **state, unsigned threads) {
    room_open(state, threads);
    struct room *r = *state;
    assert_ok(ash_device_open(r->context, "CPU", &r->devices[0], &diag));
    for (unsigned d = 1; d < DEVICES; d++)
        assert_ok(apart_open_another(r->context, d, &r->devices[d], &diag));
    for (int i = 0; i < COUNT; i++) r->x[i] = (float)(i * 37 % 101) / 16 - 3;
    assert_ok(ash_graph_create(r->context, "g", &r->g, &diag));
    return 0;
}

static inline int setup(void **state) {
    return open_room(state, 2);
}

static inline int setup_alone(void **state) {
    return open_room(state, 1);
}

static inline int close_room(void **state) {
    struct room *r = *state;
    for (int d = 0; d < DEVICES; d++) ash_device_close(r->devices[d]);
    return teardown(state);
}

static inline ash_plan_options several(struct room *r, size_t count) {
    ash_plan_options options = ash_plan_options_default();
    options.devices = r->devices;
    options.device_count = count;
    options.threads = 2; /* if the context has as many */
    return options;
}

static inline ash_value on(struct room *r, uint32_t device, ash_value value) {
    assert_ok(ash_graph_place(r->g, value, device, &diag));
    return value;
}

static inline void run(struct room *r, float *y) {
    const ash_view *view;
    assert_ok(ash_plan_execute(r->plan, &diag));
    assert_ok(ash_plan_output(r->plan, 0, &view, &diag));
    assert_ok(ash_view_copy_out(view, y, ash_view_bytes(view), &diag));
}

static inline void prepare(struct room *r, const ash_plan_options *options) {
    ash_plan_destroy(r->plan);
    r->plan = NULL;
    assert_ok(ash_plan_prepare(r->context, r->g, options, &r->plan, &diag));
    if (ash_plan_input_count(r->plan)) assert_ok(ash_plan_set_input(r->plan, 0, NULL, r->x, BYTES, &diag));
}

static inline ash_plan_device_info info_of(const ash_plan *plan, size_t device) {
    ash_plan_device_info info = ASH_INIT(ash_plan_device_info);
    assert_ok(ash_plan_device_at(plan, device, &info, &diag));
    return info;
}

/* Per device, how many copies come to it. */
static inline void assert_copies(const ash_plan *plan, uint64_t a, uint64_t b, uint64_t c) {
    const uint64_t want[] = {a, b, c};
    for (size_t d = 0; d < ash_plan_device_count(plan); d++)
        assert_int_equal(info_of(plan, d).copies, want[d]);
}

/* x → on 1: relu → on 2: exp, and on 1: neg → on 0: their sum. */
static inline void make_diamond(struct room *r) {
    ash_graph *g = r->g;
    ash_value x = ash_graph_input(g, "x", &matrix);
    ash_value a = on(r, 1, ash_relu(g, x)), b = on(r, 2, ash_exp(g, a)), c = on(r, 1, ash_neg(g, a));
    ash_graph_output(g, "y", on(r, 0, ash_add(g, b, c)));
    assert_ok(ash_graph_status(g, &diag));
}

static inline void expect(struct room *r, float *want) {
    ash_plan_options options = ash_plan_options_default();
    ash_device *cpu = r->devices[0];
    uint32_t places[64];
    options.device = cpu;
    options.no_fuse = options.no_optimize = true;
    for (size_t n = 0; n < r->g->nodes.len; n++) {
        places[n] = r->g->nodes.at[n].place;
        r->g->nodes.at[n].place = 0;
    }
    prepare(r, &options);
    assert_int_equal(ash_plan_device_count(r->plan), 1);
    run(r, want);
    for (size_t n = 0; n < r->g->nodes.len; n++) r->g->nodes.at[n].place = places[n];
}

static inline void assert_refused(struct room *r, const ash_plan_options *options, ash_status status,
                                  const char *why) {
    ash_plan *plan = (ash_plan *)r;
    ash_diag_clear(&diag);
    assert_status(ash_plan_prepare(r->context, r->g, options, &plan, &diag), status);
    assert_null(plan);
    if (!strstr(diag.message, why)) fail_msg("\"%s\" is not in \"%s\"", why, diag.message);
}

#endif
