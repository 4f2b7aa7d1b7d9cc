/* SPDX-License-Identifier: MIT */
/* A program that compiles with an LLVM of its own and loads a plug-in that holds another one:
 *
 *     host libLLVM.so PLUGIN.so
 *
 * The library's symbols are global, as if the program were linked with it. Both compile, in turns: what one
 * of them does must neither use nor disturb the other. Whatever version of LLVM: what is called here, by
 * name, is in the C interface of all of them. */
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

static void *llvm; /* the library */

#define CALL(result, name, ...) ((result(*)(__VA_ARGS__))symbol(#name))

static void *symbol(const char *name) {
    void *at = dlsym(llvm, name);
    if (!at) fprintf(stderr, "%s\n", dlerror());
    return at;
}

/* Compiles a function to an object file; its size, or 0 after a message. */
static size_t compile(void) {
    static const char text[] = "define i32 @f(i32 %x) {\n  %y = mul i32 %x, %x\n  ret i32 %y\n}\n";
    void *module = NULL, *target = NULL, *object = NULL;
    char *why = NULL;
    CALL(void, LLVMInitializeX86TargetInfo, void)();
    CALL(void, LLVMInitializeX86Target, void)();
    CALL(void, LLVMInitializeX86TargetMC, void)();
    CALL(void, LLVMInitializeX86AsmPrinter, void)();
    void *context = CALL(void *, LLVMContextCreate, void)();
    void *buffer = CALL(void *, LLVMCreateMemoryBufferWithMemoryRangeCopy, const char *, size_t,
                        const char *)(text, strlen(text), "f");
    char *triple = CALL(char *, LLVMGetDefaultTargetTriple, void)();
    if (CALL(int, LLVMParseIRInContext, void *, void *, void **, char **)(context, buffer, &module, &why) ||
        CALL(int, LLVMGetTargetFromTriple, const char *, void **, char **)(triple, &target, &why)) {
        fprintf(stderr, "the host: %s\n", why);
        return 0;
    }
    void *machine = CALL(void *, LLVMCreateTargetMachine, void *, const char *, const char *, const char *,
                         int, int, int)(target, triple, "", "", 2, 0, 0);
    if (CALL(int, LLVMTargetMachineEmitToMemoryBuffer, void *, void *, int, char **,
             void **)(machine, module, 1, &why, &object)) {
        fprintf(stderr, "the host: %s\n", why);
        return 0;
    }
    size_t size = CALL(size_t, LLVMGetBufferSize, void *)(object);
    CALL(void, LLVMDisposeMemoryBuffer, void *)(object);
    CALL(void, LLVMDisposeTargetMachine, void *)(machine);
    CALL(void, LLVMDisposeModule, void *)(module);
    CALL(void, LLVMContextDispose, void *)(context);
    CALL(void, LLVMDisposeMessage, char *)(triple);
    return size;
}

int main(int argc, char **argv) {
    if (argc != 3) return 2;
    llvm = dlopen(argv[1], RTLD_NOW | RTLD_GLOBAL);
    if (!llvm) return fprintf(stderr, "%s\n", dlerror()), 2;
    size_t size = compile();
    void *plugin = dlopen(argv[2], RTLD_NOW);
    if (!plugin) return fprintf(stderr, "%s\n", dlerror()), 1;
    int (*run)(void) = (int (*)(void))dlsym(plugin, "plugin_run");
    if (!size || !run) return 1;
    for (int i = 0; i < 3; i++)
        if (run() != 0 || compile() != size) return 1;
    dlclose(plugin);
    return compile() != size;
}
