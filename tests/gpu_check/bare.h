/* SPDX-License-Identifier: MIT */
/* The driver without plans: text becomes kernels, which are launched and timed. Everything that is taken is
 * given back by bare_close, also after a failure. */
#ifndef GPU_CHECK_BARE_H
#define GPU_CHECK_BARE_H

#include "check.h"
#include "device/cuda/cuda.h"

enum { BARE_BLOCKS = 4, BARE_STREAMS = 2 };

typedef struct bare {
    cuda_device *gpu;
    cu_stream streams[BARE_STREAMS];
    cu_event begin, end;
    cu_module module;
    cu_address memory[BARE_BLOCKS];
    void *pinned;
    unsigned blocks;
    bool entered;
} bare;

/* What the driver answers to a call of its function, as a status; `b` and `diag` are in scope. */
#define BARE_TRY(what, call) ASH_TRY(ash_cuda__check(b->gpu, b->gpu->driver.call, what, diag))

/* Within the GPU's context from here to bare_close, which is to be called either way. */
ash_status bare_open(const check_run *run, bare *b, ash_diag *diag);
void bare_close(bare *b);
/* One module at a time. */
ash_status bare_load(bare *b, const char *text, ash_diag *diag);
ash_status bare_find(bare *b, const char *kernel, cu_function *out, ash_diag *diag);
ash_status bare_memory(bare *b, uint64_t bytes, cu_address *out, ash_diag *diag);
ash_status bare_copy_in(bare *b, cu_address to, const void *from, uint64_t bytes, ash_diag *diag);
ash_status bare_copy_out(bare *b, void *to, cu_address from, uint64_t bytes, ash_diag *diag);
/* On the first stream. */
ash_status bare_launch(bare *b, cu_function kernel, unsigned blocks, unsigned threads, void **params,
                       ash_diag *diag);
/* What comes in between on the first stream, by the device's events: microseconds, above 0. */
ash_status bare_begin(bare *b, ash_diag *diag);
ash_status bare_end(bare *b, double *us, ash_diag *diag);

#endif
