/* SPDX-License-Identifier: MIT */
/* Products by cuBLASLt where something fails: a library that is missing, too old, or fails in each of its
 * calls; the driver, in each of its own, with those of captures and child graphs among them; the host's
 * memory. Preparing or executing says so with a reason, nothing is left, and where it can the same plan
 * goes on. */
#include <unistd.h>

#include "blas_room.h"
#include "ptx_faults.h"

/* A plan for such a GPU that is not there: its kernels are compiled, and stay so. */
static ash_plan *paper(room *r, const ash_graph *g) {
    ash_plan *plan;
    ash_plan_options options = ash_plan_options_default();
    options.cublas = true;
    assert_ok(open_named(r->context, "CUDA:sm_90", &options.device));
    assert_ok(ash_plan_prepare(r->context, g, &options, &plan, &diag));
    ash_device_close(options.device);
    return plan;
}

/* --- calls ------------------------------------------------------------------------------------------- */

/* Each of its calls, once as having no memory, once as broken: preparing or executing says so, nothing is
 * left, and the same plan goes on. */
static ash_status live(room *r, const ash_graph *g, int mode) {
    ash_plan *plan = NULL;
    ash_device *kept = r->device;
    cuda_results got;
    ash_status status = open_device(r->context, &r->device);
    const uint64_t before = ptx_live();
    if (status == ASH_OK) status = prepare_net(r, g, mode, &plan);
    if (status == ASH_OK) status = cuda_room_fill(plan, &diag);
    for (int i = 0; i < 2 && status == ASH_OK; i++) {
        status = ash_plan_execute(plan, &diag);
        if (status == ASH_OK) continue;
        ash_diag other;
        if (ash_plan_reset_states(plan, &other) != ASH_OK || ash_plan_execute(plan, &other) != ASH_OK)
            fail_msg("%s fails, and the plan does not go on: %s", lt_failed(), other.message);
    }
    if (plan && cuda_room_read(plan, &got, NULL) == ASH_OK) cuda_results_free(&got);
    ash_plan_destroy(plan);
    if (ptx_live() > before + 2) /* memory that the device keeps for copies */
        fail_msg("%s fails, and %llu things of the driver's are left", lt_failed(),
                 (unsigned long long)(ptx_live() - before));
    ash_device_close(r->device);
    r->device = kept;
    return status;
}

static void calls_fail(void **state) {
    room *r = *state;
    ash_graph *g = make_net(r->context);
    static const struct {
        int status;
        ash_status expected;
        const char *reason;
    } ways[] = {{CUBLAS_STATUS_ALLOC_FAILED, ASH_ERROR_OUT_OF_MEMORY, "CUBLAS_STATUS_ALLOC_FAILED"},
                {CUBLAS_STATUS_INTERNAL_ERROR, ASH_ERROR_DEVICE, "CUBLAS_STATUS_INTERNAL_ERROR"}};
    ash_plan *compiled = paper(r, g);
    ash_device_close(r->device); /* so that each life makes a handle */
    r->device = NULL;
    for (int mode = 0; mode < MODES; mode++)
        for (size_t k = 0; k < (mode == ASH_MODE_GRAPH ? ASH_COUNT(ways) : 1); k++) {
            uint64_t n = 1, tried = 0;
            for (;; n++) {
                cuda_room_driver(1);
                lt_reset();
                lt_fail_at(n, ways[k].status);
                ash_status status = live(r, g, mode);
                assert_int_equal(ptx_live(), 0);
                if (!lt_failed()) {
                    assert_ok(status);
                    break;
                }
                if (strstr(lt_failed(), "Destroy")) continue; /* nobody can do anything */
                if (status != ways[k].expected || !strstr(diag.message, ways[k].reason) || lt_live())
                    fail_msg("call %llu, %s: status %d, %llu left: %s", (unsigned long long)n, lt_failed(),
                             (int)status, (unsigned long long)lt_live(), diag.message);
                tried++;
            }
            print_message("%s: %llu calls of the library\n", ash_mode_text((ash_mode)mode),
                          (unsigned long long)tried);
            assert_true(tried > 60);
        }
    ash_plan_destroy(compiled);
    ash_graph_destroy(g);
    lt_reset();
}

/* The driver's calls, among them those of captures and of child graphs. */
typedef struct net_room {
    room *r;
    ash_graph *g;
} net_room;

static ash_status live_with(void *room_, int mode, bool again) {
    net_room *n = room_;
    ash_plan *plan = NULL;
    ash_device *device = NULL;
    diag.message[0] = 0;
    ash_status status = open_device(n->r->context, &device);
    n->r->device = device;
    if (status == ASH_OK) status = prepare_net(n->r, n->g, mode, &plan);
    if (status == ASH_OK) status = cuda_room_fill(plan, &diag);
    for (int i = 0; i < 2 && status == ASH_OK; i++) status = ash_plan_execute(plan, &diag);
    if (again && plan && status != ASH_OK) {
        ash_diag other;
        if (ash_plan_reset_states(plan, &other) != ASH_OK || cuda_room_fill(plan, &other) != ASH_OK ||
            ash_plan_execute(plan, &other) != ASH_OK)
            fail_msg("%s fails, and the plan does not go on: %s", ptx_failed(), other.message);
    }
    ash_plan_destroy(plan);
    ash_device_close(device);
    n->r->device = NULL;
    if (lt_live() && (!ptx_failed() || !strstr(ptx_failed(), "CtxPush")))
        fail_msg("%s: %llu things of the library's are left", ptx_failed(), (unsigned long long)lt_live());
    lt_reset();
    return status;
}

static void the_driver_fails(void **state) {
    room *r = *state;
    ash_device_close(r->device);
    r->device = NULL;
    net_room n = {r, make_net(r->context)};
    ash_plan *compiled = paper(r, n.g);
    for (int mode = 0; mode < MODES; mode++) {
        const ptx_life life = {ash_mode_text((ash_mode)mode), &n, mode, &r->memory, &diag, live_with};
        ptx_life_with_faults(&life, CUDA_ERROR_OUT_OF_MEMORY, ASH_ERROR_OUT_OF_MEMORY, 1);
        ptx_life_with_faults(&life, CUDA_ERROR_LAUNCH_FAILED, ASH_ERROR_DEVICE, 2);
    }
    ash_plan_destroy(compiled);
    ash_graph_destroy(n.g);
    cuda_room_driver(1); /* a call that was to give back something did not */
    lt_reset();
}

/* The host has no memory, at each place in turn. */
static void the_host_has_no_memory(void **state) {
    room *r = *state;
    ash_graph *g = make_net(r->context);
    ash_plan *plan, *compiled = paper(r, g);
    assert_ok(prepare_net(r, g, ASH_MODE_STREAM, &plan)); /* the handle stays */
    ash_plan_destroy(plan);
    for (int mode = 0; mode < 2; mode++)
        for (long n = 1;; n++) {
            plan = NULL;
            const uint64_t left = ptx_live(), described = lt_live();
            r->memory.count = 0;
            r->memory.fail_at = n;
            ash_status status = prepare_net(r, g, mode, &plan);
            r->memory.fail_at = 0;
            ash_plan_destroy(plan);
            assert_int_equal(ptx_live(), left);
            assert_int_equal(lt_live(), described);
            if (status == ASH_OK) break;
            assert_int_equal(status, ASH_ERROR_OUT_OF_MEMORY);
        }
    ash_plan_destroy(compiled);
    ash_graph_destroy(g);
}

/* --- a library that is not there --------------------------------------------------------------------- */

static void refused(room *r, const char *library, const char *reason) {
    ash_device *kept = r->device;
    ash_graph *g = make_net(r->context);
    ash_plan *plan;
    if (library) assert_int_equal(setenv("ASHLAR_CUBLASLT", library, 1), 0);
    if (!library) assert_int_equal(unsetenv("ASHLAR_CUBLASLT"), 0);
    assert_ok(open_device(r->context, &r->device));
    assert_status(prepare_net(r, g, ASH_MODE_STREAM, &plan), ASH_ERROR_DEVICE);
    assert_null(plan);
    if (!strstr(diag.message, reason)) fail_msg("%s", diag.message);
    print_message("%s\n", diag.message);
    ash_plan_options options = cuda_room_mode(ASH_MODE_STREAM); /* who does not ask needs none */
    options.device = r->device;
    assert_ok(ash_plan_prepare(r->context, g, &options, &plan, &diag));
    ash_plan_destroy(plan);
    ash_device_close(r->device);
    r->device = kept;
    ash_graph_destroy(g);
}

static void libraries(void **state) {
    room *r = *state;
    ash_device_close(r->device); /* which a new one is made in place of */
    r->device = NULL;
    refused(r, "/nowhere/libcublasLt.so.13", "there is no cuBLASLt: /nowhere/libcublasLt.so.13");
    refused(r, "libc.so.6", "cuBLASLt is too old: it has no cublasLtGetVersion");
    lt_set_version(110300);
    refused(r, PTX_BLAS, "cuBLASLt is too old: it is 11.3, and 11.4 is needed");
    lt_reset();
    lt_fail_at(1, CUBLAS_STATUS_NOT_INITIALIZED);
    refused(r, PTX_BLAS, "CUBLAS_STATUS_NOT_INITIALIZED");
    lt_reset();
}

/* The toolkit's own, where there is one: it finds no GPU. */
static void a_real_library(void **state) {
    room *r = *state;
    static const char real[] = "/usr/local/cuda/lib64/libcublasLt.so";
    if (access(real, R_OK) != 0 || TEST_WATCHED) skip(); /* it keeps some of what it has taken */
    ash_device_close(r->device);
    r->device = NULL;
    refused(r, real, "cuBLASLt: its handle: ");
}

int main(void) {
    if (!gpu_is_compiled_for()) return GPU_SKIPPED;
#define TEST(name) cmocka_unit_test_setup_teardown(name, open_room, close_room)
    const struct CMUnitTest tests[] = {TEST(calls_fail), TEST(the_driver_fails),
                                       TEST(the_host_has_no_memory), TEST(libraries), TEST(a_real_library)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
