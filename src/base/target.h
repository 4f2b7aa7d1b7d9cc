/* SPDX-License-Identifier: MIT */
/* What code is generated for: the only place that knows one machine from another. Passes and lowering read
 * numbers from it, code generation hands the names to LLVM. A plain value, handed on by whoever knows what
 * the result is to run on, and kept in the program that was lowered for it: nothing below the door looks
 * for one by itself. Tests make their own. */
#ifndef ASH_TARGET_H
#define ASH_TARGET_H

#include "base.h"
#include "costs.h"

typedef enum ash_target_kind {
    ASH_TARGET_CPU, /* one chunk is one thread's, with vector registers */
    ASH_TARGET_GPU, /* one chunk is one thread's; there are tens of thousands of them */
    ASH_TARGET_KINDS
} ash_target_kind;

/* How tiles of a GPU multiply. All but the first by warps, which take matrices. */
typedef enum ash_gpu_math {
    ASH_GPU_FMA,    /* f32, each thread for itself */
    ASH_GPU_HALVES, /* f16 or bf16, summed in f32 */
    ASH_GPU_TF32,   /* f32, rounded to TF32 */
    ASH_GPU_TF32X3, /* f32 as sums of two numbers of TF32, whose products are taken but for the smallest */
    ASH_GPU_BYTES,  /* u8 or i8, summed in i32 */
} ash_gpu_math;
enum { ASH_GPU_MATHS = ASH_GPU_BYTES + 1 };

typedef struct ash_target {
    ash_target_kind kind;
    char triple[64];           /* as LLVM spells it */
    char cpu[64];              /* as LLVM spells it, "" for generic */
    char features[2048];       /* as LLVM spells them: "+avx2,+fma,..." */
    unsigned vector_bytes;     /* bytes of one vector register: 64, 32, 16 */
    unsigned vector_registers; /* architectural vector registers */
    unsigned chains; /* independent chains of vector instructions that hide each other's latency */
    unsigned
        masks; /* bytes of the shortest elements that are loaded and stored under a mask at once; 0: none */
    bool fma;  /* a fused multiply-add instruction */
    unsigned
        dot4;   /* what four products of bytes and their sum cost, in multiply-adds; 0: not worth trying */
    bool tiles; /* registers that hold tiles, and products of bytes in them (AMX) */
    unsigned dot2; /* what two products of bf16 and their sum cost, in multiply-adds; 0: there is no such */
    bool tiles_of_pairs; /* registers for tiles multiply bf16, too */
    uint8_t pairs; /* what a product of f32 may be (ash_plan_options.precision): so many of bf16, 1 or 3 */
    int lookup;    /* what looking bytes up in a table costs, instructions a vector; 0: none */
    int64_t l1_bytes, l2_bytes; /* data cache of one core */
    unsigned multiprocessors;   /* of a GPU: cores with four schedulers; 0: it is none */
    double adds[ASH_GPU_MATHS]; /* of a GPU: multiply-adds in a cycle of one core; 0: it has none such */
    unsigned peak; /* of a GPU: multiply-adds of half floats in a cycle of one core at the vendor's peak */
    ash_gpu_math singles; /* of a GPU: how f32 is multiplied, FMA, TF32 or TF32X3 */
    bool library;         /* of a GPU: a library does products (ash_plan_options.cublas) */
    double memory;        /* of a GPU: bytes a cycle of all its memory */
    double near;          /* the same of its second-level cache */
    /* of a GPU: bytes of shared memory that a block may ask for, that a core has for all of its blocks, and
       that the system takes of it for each */
    unsigned block_memory, core_memory, own_memory;
    ash_costs costs; /* what its machines have in common */
} ash_target;

/* Sets what follows from a processor's triple and features; caches are this machine's. */
void ash_target__fill(ash_target *target);
/* A GPU by its compute capability, as in sm_80: 80. Those that are newer than what LLVM knows get the
 * newest that it does, which their driver compiles for them. false: too old. */
bool ash_target__gpu(unsigned capability, ash_target *target);
/* Whether the triple begins with `arch`; whether the features have "+feature". */
bool ash_target__is(const ash_target *target, const char *arch);
bool ash_target__has(const ash_target *target, const char *feature, size_t len);
/* ASH_OK when `machine` can run what is compiled for the target, else ASH_ERROR_UNSUPPORTED. */
ash_status ash_target__check_runs(const ash_target *machine, const ash_target *target, ash_diag *diag);

/* Whether elements of `bytes` bytes are loaded and stored under a mask at once. */
static inline bool ash_target__masks(const ash_target *target, size_t bytes) {
    return target->masks && bytes >= target->masks;
}

/* Lanes of one register for elements of `bytes` bytes. */
static inline unsigned ash_target_lanes(const ash_target *target, size_t bytes) {
    return (unsigned)(target->vector_bytes / bytes);
}

#endif
