/* SPDX-License-Identifier: MIT */
/* A driver that fails: call 1, 2, 3, ... of a life answers with an error. Whatever fails, some call of
 * ashlar's says so with a reason, everything is given back, and after a loss the same name opens a device
 * that works. For programs that are linked with the stand-in: test_ptx_*faults.c. */
#ifndef ASH_PTX_FAULTS_H
#define ASH_PTX_FAULTS_H

#include "cuda_room.h"

typedef struct ptx_life {
    const char *name;
    void *room;
    int way; /* `live` knows what it means */
    const test_memory *memory;
    const ash_diag *diag; /* of the life's last failure */
    /* Opens CUDA:0, does what there is to do, asserts its results when it comes to its end, and gives back
     * all but what it keeps for the next life. `again`: what fails is done once more, and must go then. */
    ash_status (*live)(void *room, int way, bool again);
} ptx_life;

/* What gives back: nobody can do anything about a failure of it, and what it did not give back is left. */
static inline bool ptx_call_gives_back(const char *function) {
    static const char *const parts[] = {"Free", "Destroy", "Unload", "CtxPopCurrent", "CtxRelease"};
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        if (strstr(function, parts[i])) return true;
    return false;
}

static inline void ptx_life_is_sane(const ptx_life *life, ash_status status, ash_status expected,
                                    long long kept, uint64_t n) {
    const char *function = ptx_failed(), *message = life->diag->message;
    unsigned long long call = n;
    /* a context that cannot be entered to give back */
    if (status == ASH_OK && strstr(function, "CtxPushCurrent")) return;
    if (status == ASH_OK)
        fail_msg("%s: call %llu, %s, fails, and nobody says so", life->name, call, function);
    if (status != expected && status != ASH_ERROR_DEVICE)
        fail_msg("%s: call %llu, %s: status %d: %s", life->name, call, function, (int)status, message);
    if (!message[0]) fail_msg("%s: call %llu, %s: no reason is given", life->name, call, function);
    if (ptx_live())
        fail_msg("%s: call %llu, %s: things of the driver's are left", life->name, call, function);
    if (life->memory->live != kept)
        fail_msg("%s: call %llu, %s: memory is left", life->name, call, function);
}

/* Without a failure. */
static inline void ptx_life_goes_well(const ptx_life *life) {
    ash_status status = life->live(life->room, life->way, false);
    if (status != ASH_OK)
        fail_msg("%s: status %d: %s %s", life->name, (int)status, life->diag->message, ptx_finding());
}

/* Every `stride`-th call fails with this code, which is to come out as `expected`, or as a device that is
 * gone. */
static inline void ptx_life_with_faults(const ptx_life *life, CUresult code, ash_status expected,
                                        uint64_t stride) {
    cuda_room_driver(1);
    ptx_life_goes_well(life); /* kernels are compiled */
    uint64_t calls = ptx_calls(NULL), tried = 0;
    assert_int_equal(ptx_live(), 0);
    long long kept = life->memory->live;
    for (uint64_t n = 1; n <= calls; n += stride) {
        cuda_room_driver(1);
        ptx_fail_at(n, code);
        ash_status status = life->live(life->room, life->way, code == CUDA_ERROR_OUT_OF_MEMORY);
        if (!ptx_failed()) break;
        if (ptx_call_gives_back(ptx_failed())) continue;
        ptx_life_is_sane(life, status, expected, kept, n);
        if (++tried % 16 == 0) ptx_life_goes_well(life); /* the same name, once more */
    }
    print_message("%s: %llu calls\n", life->name, (unsigned long long)tried);
    assert_true(tried > 100 / stride);
}

#endif
