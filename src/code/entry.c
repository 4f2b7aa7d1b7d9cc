/* A captured schedule as one function.
 *
 *     void entry(void *streams) {
 *         begin < *end_0 ? kernel_0(table_0, vars, begin, *end_0, 0) : skip;
 *         parallel(streams, &launch_1);
 *         memmove(table_2[1] + to, table_2[0] + from, *bytes_2);
 *         ...
 *     }
 *
 * Addresses of kernels, tables and variables are constants in it. What lies in the tables, the variables
 * and the last chunk are read when it runs, so inputs, weights and variables can be bound anew. Each
 * command has a block of its own; on one stream, records and waits are nothing. Nothing is left for LLVM's
 * passes to do, and none run. */
#include "link.h"

#include <llvm-c/Core.h>
#include <stdio.h>

struct entry {
    const ash_allocator *allocator;
    ash_linker *linker;
    ash_linked linked;
};

struct entry_source {
    const ash_command *commands;
    size_t count;
    void (*parallel)(void *streams, const ash_launch *launch);
};

/* What is emitted with. */
struct writer {
    LLVMContextRef context;
    LLVMBuilderRef builder;
    LLVMValueRef function;
    LLVMTypeRef i64, ptr, nothing;
    LLVMTypeRef kernel, parallel, move; /* types of the functions that are called */
    LLVMValueRef memmove;
};

static LLVMValueRef number(const struct writer *w, int64_t value) {
    return LLVMConstInt(w->i64, (uint64_t)value, true);
}

static LLVMValueRef address(const struct writer *w, const void *at) {
    return LLVMConstIntToPtr(number(w, (int64_t)(uintptr_t)at), w->ptr);
}

static LLVMValueRef load(const struct writer *w, LLVMTypeRef type, const void *at) {
    return LLVMBuildLoad2(w->builder, type, address(w, at), "");
}

/* What follows runs only if a < b; returns the block after it. */
static LLVMBasicBlockRef begin_if_less(const struct writer *w, LLVMValueRef a, LLVMValueRef b) {
    LLVMBasicBlockRef then = LLVMAppendBasicBlockInContext(w->context, w->function, "");
    LLVMBasicBlockRef after = LLVMAppendBasicBlockInContext(w->context, w->function, "");
    LLVMBuildCondBr(w->builder, LLVMBuildICmp(w->builder, LLVMIntSLT, a, b, ""), then, after);
    LLVMPositionBuilderAtEnd(w->builder, then);
    return after;
}

static void end_if(const struct writer *w, LLVMBasicBlockRef after) {
    LLVMBuildBr(w->builder, after);
    LLVMPositionBuilderAtEnd(w->builder, after);
}

static LLVMValueRef function_address(const struct writer *w, void (*fn)(void)) {
    return LLVMConstIntToPtr(number(w, (int64_t)(uintptr_t)fn), w->ptr);
}

static void write_launch(const struct writer *w, const struct entry_source *source,
                         const ash_launch *launch) {
    if (launch->parallel) {
        LLVMValueRef args[] = {LLVMGetParam(w->function, 0), address(w, launch)};
        LLVMBuildCall2(w->builder, w->parallel, function_address(w, (void (*)(void))source->parallel), args,
                       2, "");
        return;
    }
    LLVMValueRef begin = number(w, launch->begin), end = load(w, w->i64, &launch->end);
    LLVMBasicBlockRef after = begin_if_less(w, begin, end);
    LLVMValueRef args[] = {address(w, launch->buffers), address(w, launch->vars), begin, end, number(w, 0)};
    LLVMBuildCall2(w->builder, w->kernel, function_address(w, (void (*)(void))launch->fn), args, 5, "");
    end_if(w, after);
}

static LLVMValueRef place(const struct writer *w, void *const *base, int64_t offset) {
    LLVMValueRef index = number(w, offset);
    LLVMTypeRef byte = LLVMInt8TypeInContext(w->context);
    return LLVMBuildGEP2(w->builder, byte, load(w, w->ptr, base), &index, 1, "");
}

static void write_copy(const struct writer *w, const ash_transfer *copy) {
    LLVMValueRef bytes = load(w, w->i64, &copy->bytes);
    LLVMBasicBlockRef after = begin_if_less(w, number(w, 0), bytes);
    LLVMValueRef args[] = {place(w, &copy->buffers[1], copy->to), place(w, &copy->buffers[0], copy->from),
                           bytes};
    LLVMBuildCall2(w->builder, w->move, w->memmove, args, 3, "");
    end_if(w, after);
}

static ash_status write_commands(const struct writer *w, const struct entry_source *source,
                                 ash_diag *diag) {
    for (size_t i = 0; i < source->count; i++) {
        const ash_command *command = &source->commands[i];
        switch (command->kind) {
        case ASH_COMMAND_LAUNCH: write_launch(w, source, command->launch); break;
        case ASH_COMMAND_COPY: write_copy(w, command->copy); break;
        case ASH_COMMAND_RECORD:
        case ASH_COMMAND_WAIT: break;
        case ASH_COMMAND_CALL:
            return ash_fail(diag, ASH_ERROR_UNSUPPORTED,
                            "command %zu calls a function of the host, which a capture cannot contain", i);
        }
        ASH_FAIL_IF(command->timing, diag, ASH_ERROR_UNSUPPORTED,
                    "command %zu is timed, which a capture cannot be", i);
    }
    LLVMBuildRetVoid(w->builder);
    return ASH_OK;
}

static ash_status fill(const ash_target *target, const void *what, const char *symbol, LLVMModuleRef module,
                       ash_diag *diag) {
    (void)target;
    struct writer w = {.context = LLVMGetModuleContext(module)};
    w.builder = LLVMCreateBuilderInContext(w.context);
    w.i64 = LLVMInt64TypeInContext(w.context);
    w.ptr = LLVMPointerTypeInContext(w.context, 0);
    w.nothing = LLVMVoidTypeInContext(w.context);
    LLVMTypeRef kernel[] = {w.ptr, w.ptr, w.i64, w.i64, w.i64}, pair[] = {w.ptr, w.ptr};
    LLVMTypeRef move[] = {w.ptr, w.ptr, w.i64};
    w.kernel = LLVMFunctionType(w.nothing, kernel, 5, false);
    w.parallel = LLVMFunctionType(w.nothing, pair, 2, false);
    w.move = LLVMFunctionType(w.ptr, move, 3, false);
    w.memmove = LLVMAddFunction(module, "memmove", w.move);
    w.function = LLVMAddFunction(module, symbol, LLVMFunctionType(w.nothing, &w.ptr, 1, false));
    LLVMPositionBuilderAtEnd(w.builder, LLVMAppendBasicBlockInContext(w.context, w.function, ""));
    ash_status status = write_commands(&w, what, diag);
    LLVMDisposeBuilder(w.builder);
    return status;
}

static void release(void *owner) {
    struct entry *entry = owner;
    ash_linker__unload(entry->linker, &entry->linked);
    ash_mem_free(entry->allocator, entry, 1, sizeof *entry);
}

static ash_status compile(ash_compiler *compiler, const struct entry_source *source, struct entry *entry,
                          ash_diag *diag) {
    ash_llvm_machine machine = {0};
    LLVMMemoryBufferRef object;
    char symbol[40]; /* an address of its own, while it lives */
    snprintf(symbol, sizeof symbol, "ash_entry_%llx", (unsigned long long)(uintptr_t)entry);
    ash_target target = *ash_compiler__target(compiler);
    ASH_TRY(ash_llvm__machine_create(&target, &machine, diag));
    ash_status status =
        ash_llvm__build(&machine, fill, source, symbol, NULL, ASH_LLVM_OBJECT, &object, diag);
    if (status == ASH_OK) {
        status = ash_linker__load(entry->linker, LLVMGetBufferStart(object), LLVMGetBufferSize(object),
                                  symbol, &entry->linked, diag);
        LLVMDisposeMemoryBuffer(object);
    }
    ash_llvm__machine_destroy(&machine);
    return status;
}

ash_status ash_code__entry(ash_context *context, const ash_command *commands, size_t count,
                           void (*parallel)(void *streams, const ash_launch *launch), ash_entry *out,
                           ash_diag *diag) {
    const ash_allocator *a = ash_context__allocator(context);
    ash_compiler *compiler;
    ASH_TRY(ash_compiler__get(context, &compiler, diag));
    struct entry *entry = ash_mem_calloc(a, 1, sizeof *entry);
    if (!entry) return ASH_NO_MEMORY(diag);
    *entry = (struct entry){.allocator = a, .linker = ash_compiler__linker(compiler)};
    struct entry_source source = {commands, count, parallel};
    ash_status status = compile(compiler, &source, entry, diag);
    if (status != ASH_OK) {
        ash_mem_free(a, entry, 1, sizeof *entry);
        return status;
    }
    *out = (ash_entry){(void (*)(void *))(void (*)(void))entry->linked.fn, entry, release};
    return ASH_OK;
}
