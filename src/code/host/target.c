/* SPDX-License-Identifier: MIT */
/* Targets by name: what this machine is, the levels of x86-64, and GPUs. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#if defined(__linux__) && defined(__x86_64__)
#include <sys/syscall.h>
#include <unistd.h>
#endif

#include <llvm-c/Core.h>

#include "code/code.h"
#include "code/llvm.h"

/* The levels of the x86-64 psABI; each has all of the one before. */
static const char v2[] = "+cx16,+sahf,+popcnt,+sse3,+ssse3,+sse4.1,+sse4.2";
static const char v3[] = "+avx,+avx2,+bmi,+bmi2,+f16c,+fma,+lzcnt,+movbe,+xsave";
static const char v4[] = "+avx512f,+avx512bw,+avx512cd,+avx512dq,+avx512vl";

static const struct level {
    const char *name;
    const char *features[3]; /* parts, the last ones NULL */
} levels[] = {
    {"x86-64", {NULL}},
    {"x86-64-v3", {v2, v3, NULL}},
    {"x86-64-v4", {v2, v3, v4}},
};

/* Copies one of LLVM's strings and gives it back; false when it does not fit. */
static bool take(char *to, size_t size, char *text) {
    int need = snprintf(to, size, "%s", text ? text : "");
    LLVMDisposeMessage(text);
    return need >= 0 && (size_t)need < size;
}

/* Whether this process may use registers for tiles, which the system wants to be asked: every thread's
 * state grows by 8 KiB with the first use. Asking again is allowed. */
static bool may_use_tiles(void) {
#if defined(__linux__) && defined(__x86_64__)
    enum { ARCH_REQ_XCOMP_PERM = 0x1023, XFEATURE_XTILEDATA = 18 };
    return syscall(SYS_arch_prctl, ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA) == 0;
#else
    return false;
#endif
}

/* Takes all features away whose names begin like this. */
static void drop(char *features, const char *name) {
    for (char *at = features; (at = strstr(at, name)); at++) *at = '-';
}

static ash_status host(ash_target *out, ash_diag *diag) {
    *out = (ash_target){0};
    bool fits = take(out->triple, sizeof out->triple, LLVMGetDefaultTargetTriple());
    fits &= take(out->cpu, sizeof out->cpu, LLVMGetHostCPUName());
    fits &= take(out->features, sizeof out->features, LLVMGetHostCPUFeatures());
    ASH_FAIL_IF(!fits, diag, ASH_ERROR_INTERNAL, "the names of this processor's features are too long");
    if (ash_target__has(out, "amx-tile", strlen("amx-tile")) && !may_use_tiles())
        drop(out->features, "+amx-");
    /* LLVM shifts bytes by GF2P8AFFINEQB. On Zen 4 the units of products of bytes and of floats do that; a
     * shift of words and a mask leave them alone. */
    if (strncmp(out->cpu, "znver", strlen("znver")) == 0) drop(out->features, "+gfni");
    ash_target__fill(out);
    return ASH_OK;
}

/* A GPU: "sm_80". */
static bool gpu(const char *name, ash_target *out) {
    size_t digits = strncmp(name, "sm_", 3) == 0 ? strspn(name + 3, "0123456789") : 0;
    if (digits < 2 || digits > 4 || name[3 + digits]) return false;
    return ash_target__gpu((unsigned)strtoul(name + 3, NULL, 10), out);
}

ash_status ash_target__named(const char *name, ash_target *out, ash_diag *diag) {
    if (gpu(name, out)) return ash_llvm__init(ASH_TARGET_GPU, diag);
    ASH_TRY(host(out, diag));
    if (strcmp(name, "host") == 0) return ASH_OK;
    const struct level *level = NULL;
    for (size_t i = 0; i < ASH_COUNT(levels); i++)
        if (strcmp(name, levels[i].name) == 0) level = &levels[i];
    ASH_FAIL_IF(!level, diag, ASH_ERROR_NOT_FOUND, "no target is called \"%s\"", name);
    if (!ash_target__is(out, "x86_64")) snprintf(out->triple, sizeof out->triple, "x86_64-pc-linux-gnu");
    snprintf(out->cpu, sizeof out->cpu, "%s", level->name);
    out->features[0] = 0;
    for (size_t i = 0, len = 0; i < ASH_COUNT(level->features) && level->features[i]; i++)
        len += (size_t)snprintf(out->features + len, sizeof out->features - len, "%s%s", i ? "," : "",
                                level->features[i]);
    ash_target__fill(out);
    return ASH_OK;
}
