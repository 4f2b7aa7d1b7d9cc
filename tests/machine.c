/* SPDX-License-Identifier: MIT */
/* The machine that a test believes to run on: ASHLAR_TEST_MACHINE=LEVEL[,L1[,L2]] makes it another, with
 * the features of a level of x86-64 ("x86-64", "x86-64-v3", "x86-64-v4", or "host") and data caches of L1
 * and L2 KiB. Every test program is linked with --wrap for what the library asks about its processor, so
 * that all of it follows: lowering, code generation, which tests are skipped because a machine cannot run
 * their code. The library itself knows nothing of this. Exit status 77, as ctest's "skipped", where the
 * real machine could not run the code.
 *
 * With ASHLAR_TEST_CODE=quick machine code of processors is made in half the time: neither the choice of
 * instructions nor that of registers is optimised. Sanitizers, which do not see into it, have it so. */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "code/code.h"
#include "code/llvm.h"

char *__real_LLVMGetHostCPUName(void);
char *__real_LLVMGetHostCPUFeatures(void);
long __real_sysconf(int name);
char *__wrap_LLVMGetHostCPUName(void);
char *__wrap_LLVMGetHostCPUFeatures(void);
long __wrap_sysconf(int name);
ash_status __real_ash_llvm__machine_create(const ash_target *target, LLVMCodeGenOptLevel level,
                                           ash_llvm_machine *out, ash_diag *diag);
ash_status __wrap_ash_llvm__machine_create(const ash_target *target, LLVMCodeGenOptLevel level,
                                           ash_llvm_machine *out, ash_diag *diag);

enum { SKIPPED = 77 };

static const char *wish(void) {
    const char *text = getenv("ASHLAR_TEST_MACHINE");
    return text ? text : "host";
}

/* The size after the comma number `comma` of the wish, in bytes; 0 where it names none. */
static long wished_bytes(int comma) {
    const char *at = wish();
    while (at && comma--) {
        at = strchr(at, ',');
        if (at) at++;
    }
    return at ? atol(at) * 1024 : 0;
}

/* False where the machine is what it is: no level is wished for, or it is just being asked what it is. */
static bool wished_target(ash_target *out) {
    static _Thread_local bool asking;
    char level[32];
    snprintf(level, sizeof level, "%.*s", (int)strcspn(wish(), ","), wish());
    if (asking || strcmp(level, "host") == 0) return false;
    ash_diag diag = {0};
    asking = true;
    ash_target machine;
    ash_status status = ash_target__named("host", &machine, &diag);
    if (status == ASH_OK) status = ash_target__named(level, out, &diag);
    if (status == ASH_OK) status = ash_target__check_runs(&machine, out, &diag);
    asking = false;
    if (status == ASH_OK) return true;
    fprintf(stderr, "SKIP: ASHLAR_TEST_MACHINE=%s: %s\n", wish(), diag.message);
    exit(status == ASH_ERROR_UNSUPPORTED ? SKIPPED : 1);
}

char *__wrap_LLVMGetHostCPUName(void) {
    ash_target target;
    return wished_target(&target) ? strdup(target.cpu) : __real_LLVMGetHostCPUName();
}

char *__wrap_LLVMGetHostCPUFeatures(void) {
    ash_target target;
    return wished_target(&target) ? strdup(target.features) : __real_LLVMGetHostCPUFeatures();
}

/* Sanitizers are linked into the program, so that theirs are calls of this, too, before they are set up:
 * what is not about caches goes on untouched. */
#if __has_attribute(disable_sanitizer_instrumentation)
__attribute__((disable_sanitizer_instrumentation))
#endif
long __wrap_sysconf(int name) {
    if (name != _SC_LEVEL1_DCACHE_SIZE && name != _SC_LEVEL2_CACHE_SIZE) return __real_sysconf(name);
    long bytes = wished_bytes(name == _SC_LEVEL1_DCACHE_SIZE ? 1 : 2);
    return bytes ? bytes : __real_sysconf(name);
}

ash_status __wrap_ash_llvm__machine_create(const ash_target *target, LLVMCodeGenOptLevel level,
                                           ash_llvm_machine *out, ash_diag *diag) {
    const char *code = getenv("ASHLAR_TEST_CODE");
    if (code && strcmp(code, "quick") == 0 && target->kind == ASH_TARGET_CPU) level = LLVMCodeGenLevelNone;
    return __real_ash_llvm__machine_create(target, level, out, diag);
}
