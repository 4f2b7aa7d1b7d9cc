/* SPDX-License-Identifier: MIT */
/* What this machine is, and the levels of x86-64 by name. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "emit.h"
#include "llvm.h"

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

/* True when the comma-separated list has the entry "+name". */
static bool has_feature(const char *features, const char *name, size_t len) {
    for (const char *at = features; at && *at; at = strchr(at, ',')) {
        at += *at == ',';
        if (at[0] == '+' && strncmp(at + 1, name, len) == 0 && (at[1 + len] == ',' || at[1 + len] == 0))
            return true;
    }
    return false;
}

static bool has(const ash_target *target, const char *name) {
    return has_feature(target->features, name, strlen(name));
}

ash_features ash_features__of(const ash_target *target) {
    bool x86 = strncmp(target->triple, "x86_64", 6) == 0;
    return (ash_features){
        .x86 = x86,
        .round = !x86 || has(target, "sse4.1") || has(target, "avx"),
        .f16 = x86 && has(target, "f16c"),
        .scalef = x86 && has(target, "avx512f") && has(target, "avx512vl"),
    };
}

static int64_t cache_bytes(int name, int64_t otherwise) {
    long bytes = sysconf(name);
    return bytes > 0 ? bytes : otherwise;
}

/* Sizes and abilities that follow from triple and features. */
static void fill(ash_target *t) {
    bool x86 = strncmp(t->triple, "x86_64", 6) == 0;
    bool avx512 =
        x86 && has(t, "avx512f") && has(t, "avx512bw") && has(t, "avx512dq") && has(t, "avx512vl");
    bool avx2 = x86 && has(t, "avx2");
    t->vector_bytes = avx512 ? 64 : avx2 ? 32 : 16;
    t->chains = avx512 ? 4 : 8; /* two pipes of 64 bytes, or up to four of 32, and four cycles */
    t->vector_registers = avx512 || !x86 ? 32 : 16;
    t->masks = avx512;
    t->fma = x86 ? has(t, "fma") : strncmp(t->triple, "aarch64", 7) == 0;
#ifdef _SC_LEVEL1_DCACHE_SIZE
    t->l1_bytes = cache_bytes(_SC_LEVEL1_DCACHE_SIZE, 32 << 10);
    t->l2_bytes = cache_bytes(_SC_LEVEL2_CACHE_SIZE, 512 << 10);
#else
    t->l1_bytes = 32 << 10;
    t->l2_bytes = 512 << 10;
#endif
}

/* Copies one of LLVM's strings and gives it back; false when it does not fit. */
static bool take(char *to, size_t size, char *text) {
    int need = snprintf(to, size, "%s", text ? text : "");
    LLVMDisposeMessage(text);
    return need >= 0 && (size_t)need < size;
}

static ash_status host(ash_target *out, ash_diag *diag) {
    *out = (ash_target){0};
    bool fits = take(out->triple, sizeof out->triple, LLVMGetDefaultTargetTriple());
    fits &= take(out->cpu, sizeof out->cpu, LLVMGetHostCPUName());
    fits &= take(out->features, sizeof out->features, LLVMGetHostCPUFeatures());
    ASH_FAIL_IF(!fits, diag, ASH_ERROR_INTERNAL, "the names of this processor's features are too long");
    fill(out);
    return ASH_OK;
}

ash_status ash_target__named(const char *name, ash_target *out, ash_diag *diag) {
    ASH_TRY(ash_llvm__init(diag));
    ASH_TRY(host(out, diag));
    if (strcmp(name, "host") == 0) return ASH_OK;
    const struct level *level = NULL;
    for (size_t i = 0; i < ASH_COUNT(levels); i++)
        if (strcmp(name, levels[i].name) == 0) level = &levels[i];
    ASH_FAIL_IF(!level, diag, ASH_ERROR_NOT_FOUND, "no target is called \"%s\"", name);
    if (strncmp(out->triple, "x86_64", 6) != 0)
        snprintf(out->triple, sizeof out->triple, "x86_64-pc-linux-gnu");
    snprintf(out->cpu, sizeof out->cpu, "%s", level->name);
    out->features[0] = 0;
    for (size_t i = 0, len = 0; i < ASH_COUNT(level->features) && level->features[i]; i++)
        len += (size_t)snprintf(out->features + len, sizeof out->features - len, "%s%s", i ? "," : "",
                                level->features[i]);
    fill(out);
    return ASH_OK;
}

ash_status ash_target__check_runs(const ash_target *machine, const ash_target *target, ash_diag *diag) {
    size_t arch = strcspn(machine->triple, "-");
    ASH_FAIL_IF(target->kind != machine->kind || strncmp(machine->triple, target->triple, arch + 1) != 0,
                diag, ASH_ERROR_UNSUPPORTED, "this machine is %s and cannot run code for %s",
                machine->triple, target->triple);
    for (const char *at = target->features; *at;) {
        size_t len = strcspn(at, ",");
        ASH_FAIL_IF(at[0] == '+' && !has_feature(machine->features, at + 1, len - 1), diag,
                    ASH_ERROR_UNSUPPORTED, "this machine lacks %.*s", (int)len - 1, at + 1);
        at += len + (at[len] == ',');
    }
    return ASH_OK;
}
