/* SPDX-License-Identifier: MIT */
/* From loop nests to machine code. LLVM's headers are seen behind this one alone.
 *
 * The compiler hangs on the context. It compiles each distinct nest once: it looks for code of the same
 * nest that is already in memory, or for an object file in the context's cache directory; only then it asks
 * LLVM, on the context's threads. */
#ifndef ASH_CODE_H
#define ASH_CODE_H

#include "base/progress.h"
#include "base/target.h"
#include "device/stream.h"
#include "kernel/nest.h"

typedef struct ash_compiler ash_compiler;
typedef struct ash_code ash_code; /* some kernels, in executable memory or as bytes; reference counted */

/* The context's compiler, made at first use. */
ash_status ash_compiler__get(ash_context *context, ash_compiler **out, ash_diag *diag);
/* The machine that this process runs on. It never changes; only the doors, which choose what a graph is
 * prepared for, ask for it. */
const ash_target *ash_compiler__target(const ash_compiler *compiler);
/* Gives back to the system what LLVM has taken and needs no more, where it has worked for long enough since
 * the last time, and unless the context keeps its heap: free memory of the C library, and the pages of its
 * code (pages.c). After compilations that took `worked` nanoseconds, before what stays. */
void ash_compiler__give_back(ash_compiler *compiler, int64_t worked);
/* The same where nothing was compiled, after preparing that took so many nanoseconds: the pages of LLVM's
 * code that were read when it was loaded, once. */
void ash_compiler__give_back_once(ash_compiler *compiler, int64_t prepared);

/* Fills a target for this machine, or for a level by name: "host", "x86-64", "x86-64-v3" (AVX2),
 * "x86-64-v4" (AVX-512), or for a GPU: "sm_80". What this machine cannot run still compiles to text. */
ash_status ash_target__named(const char *name, ash_target *out, ash_diag *diag);

typedef struct ash_code_stats {
    uint64_t compiled;   /* kernels that LLVM compiled */
    uint64_t from_disk;  /* kernels found in the cache directory */
    uint64_t shared;     /* kernels that were in memory already */
    uint64_t refused;    /* kernels in the cache directory that others could have written: not taken */
    uint64_t code_bytes; /* bytes of the object files, of compiled and from_disk */
    uint64_t nanoseconds;
} ash_code_stats;

/* What is to be compiled. */
typedef struct ash_code_job {
    const ash_target *target; /* that the nests were lowered for */
    const ash_nest *const *nests;
    size_t count;
    ash_kernel_fn
        *fns; /* for processors, written unless NULL: the entry of each nest, while the code is held */
    const ash_progress *progress; /* told on the calling thread, between kernels; NULL: nobody */
    ash_code_stats *stats;        /* written unless NULL */
} ash_code_job;

/* Makes kernels of nests. For processors they are executable; ASH_ERROR_UNSUPPORTED when this machine
 * cannot run code for the target. For GPUs they are bytes, for a device to load. A cancelled compilation is
 * ASH_ERROR_CANCELLED. */
ash_status ash_code__compile(ash_compiler *compiler, const ash_code_job *job, ash_code **out,
                             ash_diag *diag);
/* Of the nest with this number. What it points at is the code's. */
ash_kernel_image ash_code__image(const ash_code *code, size_t index);
ash_code *ash_code__retain(ash_code *code);
void ash_code__release(ash_code *code); /* NULL is allowed */

/* Appends the name of a nest's code: equal for equal code, in every process with this version of ashlar. */
ash_status ash_code__print_key(const ash_target *target, const ash_nest *nest, struct ash_text *out,
                               ash_diag *diag);

/* LLVM IR after optimisation, and assembly, of one nest as text. */
ash_status ash_code__ir(const ash_target *target, const ash_nest *nest, struct ash_text *out,
                        ash_diag *diag);
ash_status ash_code__assembly(const ash_target *target, const ash_nest *nest, struct ash_text *out,
                              ash_diag *diag);

/* An ash_entry_maker: one function that does what commands of one stream say, in their order, with the
 * kernels called directly. ASH_ERROR_UNSUPPORTED for one that is timed. */
ash_status ash_code__entry(ash_context *context, const ash_command *commands, size_t count, ash_entry *out,
                           ash_diag *diag);

#endif
