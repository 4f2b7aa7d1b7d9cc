/* SPDX-License-Identifier: MIT */
/* Denormal numbers (IEEE 754's subnormal ones: f32 below 1.2e-38, f64 below 2.3e-308, but for 0) of a
 * thread.
 *
 * Processors compute with them a hundred times slower than with others, and weights that training has let
 * decay are often denormal. So kernels run with them as zero, unless the caller asks otherwise. The mode
 * is the thread's, and functions of the caller expect it as they left it. */
#ifndef ASH_DENORMALS_H
#define ASH_DENORMALS_H

#include <stdbool.h>
#include <stdint.h>

/* Makes them zero, as operands and as results, or has them computed with. Returns what was before, for
 * ash_denormals__restore. */
static inline uint64_t ash_denormals__set(bool zero) {
#if defined(__x86_64__)
    enum { RESULTS = 1 << 15, OPERANDS = 1 << 6 }; /* of MXCSR: flush to zero, denormals are zero */
    unsigned before = __builtin_ia32_stmxcsr();
    unsigned after = zero ? before | RESULTS | OPERANDS : before & ~(unsigned)(RESULTS | OPERANDS);
    if (after != before) __builtin_ia32_ldmxcsr(after);
    return before;
#elif defined(__aarch64__)
    const uint64_t both = UINT64_C(1) << 24; /* of FPCR: FZ */
    uint64_t before;
    __asm__ volatile("mrs %0, fpcr" : "=r"(before));
    __asm__ volatile("msr fpcr, %0" : : "r"(zero ? before | both : before & ~both) : "memory");
    return before;
#else
    (void)zero;
    return 0;
#endif
}

static inline void ash_denormals__restore(uint64_t before) {
#if defined(__x86_64__)
    if (__builtin_ia32_stmxcsr() != (unsigned)before) __builtin_ia32_ldmxcsr((unsigned)before);
#elif defined(__aarch64__)
    __asm__ volatile("msr fpcr, %0" : : "r"(before) : "memory");
#else
    (void)before;
#endif
}

#endif
