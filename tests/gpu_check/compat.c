/* SPDX-License-Identifier: MIT */
/* What LLVM's archives ask of a C library that is newer than those of machines with GPUs: arc4random came
 * with glibc 2.36, and Ubuntu 22.04 has 2.35. */
#include <stdint.h>
#include <sys/random.h>

uint32_t arc4random(void);

uint32_t arc4random(void) {
    uint32_t number = 0;
    while (getrandom(&number, sizeof number, 0) != (ssize_t)sizeof number) continue;
    return number;
}
