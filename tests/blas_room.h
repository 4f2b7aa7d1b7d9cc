/* SPDX-License-Identifier: MIT */
/* Plans whose products cuBLASLt may do, on a stand-in for the library (ptx/blas/lt.h) beside that for the
 * driver. The library is made free of charge, so that small products are worth a call. For programs that
 * are linked with both: test_ptx_blas*.c. */
#ifndef ASH_BLAS_ROOM_H
#define ASH_BLAS_ROOM_H

#include "base/target.h"
#include "cuda_room.h"
#include "device/device.h"
#include "gpu_here.h"
#include "ir/build.h"
#include "lt.h"

static ash_diag diag;

enum { MODES = ASH_MODE_COUNT, ROOM = 64 << 10 /* bytes of a workspace */ };

typedef struct room {
    test_memory memory;
    ash_context *context;
    ash_device *device;
} room;

static inline ash_target *target_of(ash_device *device) {
    return (ash_target *)device->class->target(device);
}

/* A GPU whose library is quicker than anything. */
static inline ash_status open_named(ash_context *context, const char *name, ash_device **out) {
    ASH_TRY(ash_device_open(context, name, out, &diag));
    target_of(*out)->costs.library_begin = -1e9;
    target_of(*out)->costs.library_bytes = ROOM;
    return ASH_OK;
}

static inline ash_status open_device(ash_context *context, ash_device **out) {
    return open_named(context, "CUDA:0", out);
}

static inline int open_room(void **state) {
    room *r = calloc(1, sizeof *r);
    ash_context_options options = {.allocator = test_memory_allocator(&r->memory), .threads = 2};
    assert_int_equal(setenv("ASHLAR_CUBLASLT", PTX_BLAS, 1), 0);
    cuda_room_driver(1);
    lt_reset();
    assert_ok(ash_context_create(&options, &r->context, &diag));
    assert_ok(open_device(r->context, &r->device));
    *state = r;
    return 0;
}

static inline int close_room(void **state) {
    room *r = *state;
    assert_string_equal(ptx_finding(), "");
    ash_device_close(r->device);
    ash_context_destroy(r->context);
    assert_int_equal(r->memory.live, 0);
    assert_int_equal(ptx_live(), 0);
    assert_int_equal(lt_live(), 0);
    free(r);
    return 0;
}

static inline ash_plan_options with_library(int mode) {
    ash_plan_options options = cuda_room_mode(mode);
    options.cublas = true;
    return options;
}

/* Operations of a plan that the library does. */
static inline unsigned by_library(ash_plan *plan) {
    unsigned count = 0;
    for (size_t i = 0; i < ash_plan_op_count(plan); i++) {
        ash_prepared_op op = ASH_INIT(ash_prepared_op);
        assert_ok(ash_plan_op_at(plan, i, &op, &diag));
        count += !strcmp(op.name, "matmul@cublas");
    }
    return count;
}

enum { ROWS = 40, WIDE = 32, TRIPS = 3 };

static inline ash_value weight(ash_graph *g, const char *name, int64_t rows, int64_t columns) {
    static float data[WIDE * WIDE];
    uint64_t seed = (uint64_t)name[1];
    for (int64_t i = 0; i < rows * columns; i++)
        data[i] = (float)((double)(test_random(&seed) >> 40) * 0x1p-26 - 0.125);
    return ash_graph_parameter(g, name, &(ash_type){ASH_F32, 2, {rows, columns}}, data,
                               sizeof *data * (size_t)(rows * columns), ASH_DATA_COPY);
}

/* x is multiplied, TRIPS times. */
static inline ash_value add_loop(ash_graph *g, ash_value x) {
    ash_value arguments[2], next, outs[2];
    ash_loop loop = {.trips = TRIPS,
                     .carried = 1,
                     .go = ASH_NO_VALUE,
                     .next_go = ASH_NO_VALUE,
                     .init = &x,
                     .arguments = arguments,
                     .next = &next};
    ash_value w = weight(g, "w4", WIDE, WIDE);
    assert_true(ash_build__begin_loop(g, &loop));
    next = ash_relu(g, ash_matmul(g, arguments[1], w));
    ash_build__end_loop(g, &loop, outs);
    assert_ok(ash_graph_status(g, &diag));
    return outs[0];
}

/* Products side by side and one after the other, with what is computed element by element behind and in
 * front of them; a result that lies in a concatenation; one in a loop; a state. 5 products and one in the
 * loop. */
static inline ash_graph *make_net(ash_context *context) {
    ash_graph *g;
    assert_ok(ash_graph_create(context, "net", &g, &diag));
    ash_value x = ash_graph_input(g, "x", &(ash_type){ASH_F32, 2, {ROWS, WIDE}});
    ash_value sum = ash_graph_state(g, "sum", &(ash_type){ASH_F32, 1, {WIDE}}, NULL, 0, 0);
    ash_value h = ash_relu(g, ash_add(g, ash_matmul(g, x, weight(g, "w0", WIDE, WIDE)), sum));
    ash_value y = ash_add(g, ash_matmul(g, h, weight(g, "w1", WIDE, WIDE)), x);
    ash_value z = ash_matmul(g, ash_neg(g, x), weight(g, "w2", WIDE, WIDE));
    ash_value parts[] = {ash_matmul(g, z, weight(g, "w3", WIDE, WIDE / 2)),
                         ash_matmul(g, y, weight(g, "w5", WIDE, WIDE))};
    ash_graph_update(g, sum, ash_reduce(g, ASH_OP_REDUCE_SUM, y, (const int64_t[]){0}, 1, false));
    ash_graph_output(g, "parts", ash_concat(g, parts, 2, 1));
    ash_graph_output(g, "y", ash_add(g, y, z));
    ash_graph_output(g, "z", add_loop(g, z));
    assert_ok(ash_graph_status(g, &diag));
    return g;
}

enum { PRODUCTS = 5 };

static inline ash_status prepare_net(room *r, const ash_graph *g, int mode, ash_plan **out) {
    ash_plan_options options = with_library(mode);
    options.device = r->device;
    diag.message[0] = 0;
    return ash_plan_prepare(r->context, g, &options, out, &diag);
}

#endif
