/* SPDX-License-Identifier: MIT */
/* One LLJIT for a compiler, one resource tracker for each kernel, so that each can be given back alone:
 * making an LLJIT takes more than a millisecond, loading a kernel through a tracker 0.04 of one and two or
 * three pages.
 *
 * Kernels refer to nothing outside but the C library's functions in the list below, by name: object files
 * stay valid in other processes. */
#include "link.h"

#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include <llvm-c/Core.h>
#include <llvm-c/Object.h>

#include "base/text.h"

struct ash_linker {
    const ash_allocator *allocator;
    LLVMOrcLLJITRef jit;
    LLVMOrcJITDylibRef library;
};

#define UNARY(f)  {#f, (void (*)(void))(double (*)(double))f}
#define BINARY(f) {#f, (void (*)(void))(double (*)(double, double))f}

/* What generated code may call. The memory functions are LLVM's own choice for large moves. */
static const struct import {
    const char *name;
    void (*fn)(void);
} imports[] = {
    UNARY(exp),
    UNARY(log),
    UNARY(sin),
    UNARY(cos),
    UNARY(tan),
    UNARY(asin),
    UNARY(acos),
    UNARY(atan),
    UNARY(sinh),
    UNARY(cosh),
    UNARY(tanh),
    UNARY(asinh),
    UNARY(acosh),
    UNARY(atanh),
    UNARY(erf),
    BINARY(pow),
    BINARY(fmod),
    {"fmodf", (void (*)(void))fmodf},
    {"memcpy", (void (*)(void))memcpy},
    {"memmove", (void (*)(void))memmove},
    {"memset", (void (*)(void))memset},
};

static ash_status check(LLVMErrorRef error, const char *what, ash_diag *diag) {
    if (!error) return ASH_OK;
    char *text = LLVMGetErrorMessage(error);
    ash_status status = ash_fail(diag, ASH_ERROR_INTERNAL, "%s: %s", what, text);
    LLVMDisposeErrorMessage(text);
    return status;
}

/* Errors that ORC meets on the side also come back as results: they are not printed. */
static void drop_error(void *user, LLVMErrorRef error) {
    (void)user;
    LLVMConsumeError(error);
}

static ash_status define_imports(ash_linker *linker, ash_diag *diag) {
    LLVMOrcCSymbolMapPair pairs[ASH_COUNT(imports)];
    for (size_t i = 0; i < ASH_COUNT(imports); i++)
        pairs[i] = (LLVMOrcCSymbolMapPair){
            LLVMOrcLLJITMangleAndIntern(linker->jit, imports[i].name),
            {(uint64_t)(uintptr_t)imports[i].fn,
             {LLVMJITSymbolGenericFlagsExported | LLVMJITSymbolGenericFlagsCallable, 0}}};
    LLVMOrcMaterializationUnitRef unit = LLVMOrcAbsoluteSymbols(pairs, ASH_COUNT(pairs));
    LLVMErrorRef error = LLVMOrcJITDylibDefine(linker->library, unit);
    if (error) LLVMOrcDisposeMaterializationUnit(unit);
    return check(error, "the C library's functions for kernels", diag);
}

ash_status ash_linker__create(const ash_allocator *a, const ash_target *target, ash_linker **out,
                              ash_diag *diag) {
    ash_llvm_machine machine = {0};
    ash_linker *linker = ash_mem_calloc(a, 1, sizeof *linker);
    if (!linker) return ASH_NO_MEMORY(diag);
    linker->allocator = a;
    ash_status status;
    ASH_TRY_DONE(ash_llvm__machine_create(target, LLVMCodeGenLevelDefault, &machine, diag));
    LLVMOrcLLJITBuilderRef builder = LLVMOrcCreateLLJITBuilder();
    /* takes the machine over */
    LLVMOrcLLJITBuilderSetJITTargetMachineBuilder(
        builder, LLVMOrcJITTargetMachineBuilderCreateFromTargetMachine(machine.machine));
    ASH_TRY_DONE(check(LLVMOrcCreateLLJIT(&linker->jit, builder), "the in-memory linker", diag));
    linker->library = LLVMOrcLLJITGetMainJITDylib(linker->jit);
    LLVMOrcExecutionSessionSetErrorReporter(LLVMOrcLLJITGetExecutionSession(linker->jit), drop_error, NULL);
    status = define_imports(linker, diag);
done:
    if (status != ASH_OK) {
        ash_linker__destroy(linker);
        return status;
    }
    *out = linker;
    return ASH_OK;
}

void ash_linker__destroy(ash_linker *linker) {
    if (!linker) return;
    if (linker->jit) LLVMConsumeError(LLVMOrcDisposeLLJIT(linker->jit));
    ash_mem_free(linker->allocator, linker, 1, sizeof *linker);
}

/* The file in which perf looks for the names of generated code, opened for appending; -1 unless it is ours
 * alone: the folder is everybody's, and the name can be guessed. */
static int open_perf_map(void) {
    char path[64];
    struct stat info;
    snprintf(path, sizeof path, "/tmp/perf-%ld.map", (long)getpid());
    int fd =
        open(path, O_WRONLY | O_APPEND | O_CREAT | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC, 0600);
    if (fd < 0) return -1;
    if (fstat(fd, &info) == 0 && S_ISREG(info.st_mode) && info.st_uid == geteuid() && info.st_nlink == 1 &&
        !(info.st_mode & (S_IWGRP | S_IWOTH)))
        return fd;
    close(fd);
    return -1;
}

/* With ASHLAR_PERF_MAP=1 in the environment, tells Linux's perf where a kernel lies: a line in
 * /tmp/perf-PID.map. */
static void tell_perf(const void *object, size_t size, const char *symbol, uint64_t address) {
    const char *wanted = ash_environment__get("ASHLAR_PERF_MAP");
    if (!wanted || strcmp(wanted, "1") != 0) return;
    char *text = NULL;
    LLVMMemoryBufferRef buffer = LLVMCreateMemoryBufferWithMemoryRange(object, size, symbol, false);
    LLVMBinaryRef binary = LLVMCreateBinary(buffer, NULL, &text);
    int map = binary ? open_perf_map() : -1;
    if (map >= 0) {
        LLVMSymbolIteratorRef at = LLVMObjectFileCopySymbolIterator(binary);
        for (; !LLVMObjectFileIsSymbolIteratorAtEnd(binary, at); LLVMMoveToNextSymbol(at))
            if (strcmp(LLVMGetSymbolName(at), symbol) == 0 && LLVMGetSymbolSize(at))
                dprintf(map, "%" PRIx64 " %" PRIx64 " %s\n", address, LLVMGetSymbolSize(at), symbol);
        LLVMDisposeSymbolIterator(at);
        close(map);
    }
    if (binary) LLVMDisposeBinary(binary);
    LLVMDisposeMessage(text);
    LLVMDisposeMemoryBuffer(buffer);
}

ash_status ash_linker__load(ash_linker *linker, const void *object, size_t size, const char *symbol,
                            ash_linked *out, ash_diag *diag) {
    LLVMMemoryBufferRef buffer = LLVMCreateMemoryBufferWithMemoryRangeCopy(object, size, symbol);
    *out = (ash_linked){LLVMOrcJITDylibCreateResourceTracker(linker->library), NULL};
    LLVMErrorRef error = LLVMOrcLLJITAddObjectFileWithRT(linker->jit, out->tracker, buffer);
    ash_status status = check(error, "loading a kernel", diag);
    LLVMOrcExecutorAddress address = 0;
    if (status == ASH_OK)
        status = check(LLVMOrcLLJITLookup(linker->jit, &address, symbol), "linking a kernel", diag);
    if (status != ASH_OK) {
        ash_linker__unload(linker, out);
        return status;
    }
    out->fn = (ash_kernel_fn)(uintptr_t)address;
    tell_perf(object, size, symbol, address);
    return ASH_OK;
}

void ash_linker__unload(ash_linker *linker, ash_linked *linked) {
    if (!linked->tracker) return;
    LLVMConsumeError(LLVMOrcResourceTrackerRemove(linked->tracker));
    LLVMOrcReleaseResourceTracker(linked->tracker);
    LLVMOrcExecutionSessionRef session = LLVMOrcLLJITGetExecutionSession(linker->jit);
    LLVMOrcSymbolStringPoolClearDeadEntries(LLVMOrcExecutionSessionGetSymbolStringPool(session));
    *linked = (ash_linked){0};
}
