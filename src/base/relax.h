/* SPDX-License-Identifier: MIT */
/* What a loop does while it waits for another thread: tells the processor so. */
#ifndef ASH_RELAX_H
#define ASH_RELAX_H

static inline void ash_relax(void) {
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("isb" ::: "memory");
#endif
}

#endif
