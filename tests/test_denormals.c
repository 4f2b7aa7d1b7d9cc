/* SPDX-License-Identifier: MIT */
/* Denormal numbers are zero in kernels unless a plan keeps them, on every thread and in every mode of the
 * CPU; functions of the caller and the calling thread have them either way. */
#include "functions.h"

#include <float.h>

#include "ashlar/builder.h"
#include "base/base.h"
#include "graph_room.h"
#include "ways.h"

static ash_diag diag;

enum { ROWS = 64, WIDE = 4096, COUNT = ROWS * WIDE }; /* several chunks of an elementwise kernel */

/* f32[n] -> the same: half of it, row by row. */
static ash_status halve(void *user, const ash_call *call, ash_diag *d) {
    const float *x = call->ins[0];
    float *y = call->outs[0];
    (void)user, (void)d;
    for (int64_t i = call->begin * WIDE; i < call->end * WIDE; i++) y[i] = x[i] * 0.5f;
    return ASH_OK;
}

static int setup(void **state) {
    room_open(state, 3);
    struct room *r = *state;
    const ash_function function = {.name = "halve", .run = halve};
    const ash_type type = {ASH_F32, 2, {ROWS, WIDE}};
    const ash_custom_options rows = {.chunks = ROWS};
    assert_ok(ash_context_add_function(r->context, &function, &diag));
    assert_ok(ash_graph_create(r->context, "net", &r->g, &diag));
    ash_value x = ash_graph_input(r->g, "x", &type), halved;
    ash_custom(r->g, "halve", &x, 1, &type, 1, &rows, &halved);
    ash_graph_output(r->g, "result", ash_mul(r->g, x, ash_scalar(r->g, ASH_F32, 0.5)));
    ash_graph_output(r->g, "operand", ash_mul(r->g, halved, ash_scalar(r->g, ASH_F32, 0x1p30)));
    ash_graph_output(r->g, "halved", halved);
    assert_ok(ash_graph_status(r->g, &diag));
    return 0;
}

static void check(ash_plan *plan, size_t output, float want) {
    const ash_view *view;
    const void *data;
    assert_ok(ash_plan_output(plan, output, &view, &diag));
    assert_ok(ash_view_data(view, &data, &diag));
    for (int i = 0; i < COUNT; i++) assert_true(memcmp((const float *)data + i, &want, sizeof want) == 0);
}

static void zero_or_kept(void **state) {
    struct room *r = *state;
    static float x[COUNT];
    volatile float least = FLT_MIN;
    for (int i = 0; i < COUNT; i++) x[i] = 1.5f * FLT_MIN;
    for (size_t w = 0; w < ASH_COUNT(ways); w++) {
        for (int keep = 0; keep < 2; keep++) {
            ash_plan_options options = options_of(&ways[w]);
            options.keep_denormals = keep;
            ash_plan_destroy(r->plan);
            assert_ok(ash_plan_prepare(r->context, r->g, &options, &r->plan, &diag));
            assert_ok(ash_plan_set_input(r->plan, 0, NULL, x, sizeof x, &diag));
            for (int round = 0; round < 3; round++) {
                assert_ok(ash_plan_execute(r->plan, &diag));
                check(r->plan, 0, keep ? 0.75f * FLT_MIN : 0.0f);
                check(r->plan, 1, keep ? 0.75f * FLT_MIN * 0x1p30f : 0.0f);
                check(r->plan, 2, 0.75f * FLT_MIN);
                assert_true(least * 0.5f > 0);
            }
        }
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test_setup_teardown(zero_or_kept, setup, teardown)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
