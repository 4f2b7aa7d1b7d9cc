/* A captured schedule as one function.
 *
 *     bool entry(void *streams) {
 *         return part_0(streams) && part_1(streams) && ...;
 *     }
 *
 *     bool part_0(void *streams) {
 *         if (*cancel) return false;
 *         if (begin < *end_0) kernel_0(table_0, vars, begin, *end_0, 0);
 *         ++*done;
 *         if (*cancel || !launch(streams, &launch_1)) return false;
 *         ++*done;
 *         if (*cancel) return false;
 *         if (0 < *bytes_2) memmove(table_2[1] + to, table_2[0] + from, *bytes_2);
 *         ...
 *         return true;
 *     }
 *
 * Addresses of kernels, tables and variables are constants in it. What lies in the tables, the variables
 * and the last chunk are read when it runs, so inputs, weights and variables can be bound anew. On one
 * stream, records and waits are nothing.
 *
 * Nothing is left for LLVM to improve, so no passes run and the code generator is told not to look for
 * anything; parts keep functions short, whatever the schedule's length. Together they make the time to
 * compile proportional to it. */
#include "link.h"

#include <llvm-c/Core.h>
#include <stdio.h>

struct entry {
    const ash_allocator *allocator;
    ash_linker *linker;
    ash_linked linked;
};

enum { PART = 64 }; /* commands in a function */

struct entry_source {
    const ash_command *commands;
    size_t count;
    const ash_entry_frame *frame;
};

/* What is emitted with. */
struct writer {
    LLVMContextRef context;
    LLVMBuilderRef builder;
    LLVMModuleRef module;
    LLVMValueRef function;                  /* the present part */
    LLVMBasicBlockRef stopped;              /* in it: returns false */
    LLVMTypeRef truth, i32, i64, ptr;       /* truth: C's bool as it is returned */
    LLVMTypeRef part, kernel, launch, move; /* types of functions */
    LLVMValueRef memmove;
    const ash_entry_frame *frame;
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

static LLVMBasicBlockRef new_block(const struct writer *w) {
    return LLVMAppendBasicBlockInContext(w->context, w->function, "");
}

/* What follows runs only if a < b; returns the block after it. */
static LLVMBasicBlockRef begin_if_less(const struct writer *w, LLVMValueRef a, LLVMValueRef b) {
    LLVMBasicBlockRef then = new_block(w), after = new_block(w);
    LLVMBuildCondBr(w->builder, LLVMBuildICmp(w->builder, LLVMIntSLT, a, b, ""), then, after);
    LLVMPositionBuilderAtEnd(w->builder, then);
    return after;
}

static void end_if(const struct writer *w, LLVMBasicBlockRef after) {
    LLVMBuildBr(w->builder, after);
    LLVMPositionBuilderAtEnd(w->builder, after);
}

/* What follows runs only if the number is 0, or is not; otherwise the function returns false. */
static void go_on_if(const struct writer *w, LLVMIntPredicate equal, LLVMTypeRef type, LLVMValueRef value) {
    LLVMBasicBlockRef next = new_block(w);
    LLVMValueRef condition = LLVMBuildICmp(w->builder, equal, value, LLVMConstInt(type, 0, false), "");
    LLVMBuildCondBr(w->builder, condition, next, w->stopped);
    LLVMPositionBuilderAtEnd(w->builder, next);
}

static LLVMValueRef function_address(const struct writer *w, void (*fn)(void)) {
    return LLVMConstIntToPtr(number(w, (int64_t)(uintptr_t)fn), w->ptr);
}

static void write_launch(const struct writer *w, const ash_launch *launch) {
    if (launch->parallel || launch->piece || launch->host) {
        LLVMValueRef args[] = {LLVMGetParam(w->function, 0), address(w, launch)};
        LLVMValueRef fn = function_address(w, (void (*)(void))w->frame->launch);
        go_on_if(w, LLVMIntNE, w->truth, LLVMBuildCall2(w->builder, w->launch, fn, args, 2, ""));
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

static ash_status write_command(const struct writer *w, const ash_command *command, size_t index,
                                ash_diag *diag) {
    if (command->kind == ASH_COMMAND_RECORD || command->kind == ASH_COMMAND_WAIT) return ASH_OK;
    ASH_FAIL_IF(command->kind == ASH_COMMAND_CALL, diag, ASH_ERROR_UNSUPPORTED,
                "command %zu calls a function of the host, which a capture cannot contain", index);
    ASH_FAIL_IF(command->timing, diag, ASH_ERROR_UNSUPPORTED,
                "command %zu is timed, which a capture cannot be", index);
    LLVMValueRef on = load(w, w->i32, &w->frame->cancel->on);
    go_on_if(w, LLVMIntEQ, w->i32, on);
    if (command->kind == ASH_COMMAND_LAUNCH)
        write_launch(w, command->launch);
    else
        write_copy(w, command->copy);
    LLVMValueRef done = load(w, w->i64, w->frame->done);
    LLVMBuildStore(w->builder, LLVMBuildAdd(w->builder, done, number(w, 1), ""),
                   address(w, w->frame->done));
    return ASH_OK;
}

static void begin_function(struct writer *w, const char *name) {
    w->function = LLVMAddFunction(w->module, name, w->part);
    LLVMBasicBlockRef first = new_block(w);
    w->stopped = new_block(w);
    LLVMPositionBuilderAtEnd(w->builder, w->stopped);
    LLVMBuildRet(w->builder, LLVMConstInt(w->truth, 0, false));
    LLVMPositionBuilderAtEnd(w->builder, first);
}

static void end_function(const struct writer *w) {
    LLVMBuildRet(w->builder, LLVMConstInt(w->truth, 1, false));
}

static ash_status write_part(struct writer *w, const struct entry_source *source, size_t first,
                             ash_diag *diag) {
    begin_function(w, "");
    LLVMSetLinkage(w->function, LLVMInternalLinkage);
    size_t end = ASH_MIN(first + PART, source->count);
    for (size_t i = first; i < end; i++) ASH_TRY(write_command(w, &source->commands[i], i, diag));
    end_function(w);
    return ASH_OK;
}

/* The parts, and what calls them. */
static ash_status write_all(struct writer *w, const struct entry_source *source, const char *symbol,
                            ash_diag *diag) {
    for (size_t i = 0; i < source->count; i += PART) ASH_TRY(write_part(w, source, i, diag));
    LLVMValueRef part = LLVMGetNextFunction(w->memmove);
    begin_function(w, symbol);
    for (size_t i = 0; i < source->count; i += PART, part = LLVMGetNextFunction(part)) {
        LLVMValueRef streams = LLVMGetParam(w->function, 0);
        go_on_if(w, LLVMIntNE, w->truth, LLVMBuildCall2(w->builder, w->part, part, &streams, 1, ""));
    }
    end_function(w);
    return ASH_OK;
}

static ash_status fill(const ash_target *target, const void *what, const char *symbol, LLVMModuleRef module,
                       ash_diag *diag) {
    (void)target;
    const struct entry_source *source = what;
    struct writer w = {.context = LLVMGetModuleContext(module), .module = module, .frame = source->frame};
    w.builder = LLVMCreateBuilderInContext(w.context);
    w.truth = LLVMInt8TypeInContext(w.context);
    w.i32 = LLVMInt32TypeInContext(w.context);
    w.i64 = LLVMInt64TypeInContext(w.context);
    w.ptr = LLVMPointerTypeInContext(w.context, 0);
    LLVMTypeRef kernel[] = {w.ptr, w.ptr, w.i64, w.i64, w.i64}, pair[] = {w.ptr, w.ptr};
    LLVMTypeRef move[] = {w.ptr, w.ptr, w.i64};
    w.part = LLVMFunctionType(w.truth, &w.ptr, 1, false);
    w.kernel = LLVMFunctionType(LLVMVoidTypeInContext(w.context), kernel, 5, false);
    w.launch = LLVMFunctionType(w.truth, pair, 2, false);
    w.move = LLVMFunctionType(w.ptr, move, 3, false);
    w.memmove = LLVMAddFunction(module, "memmove", w.move);
    ash_status status = write_all(&w, source, symbol, diag);
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
    ASH_TRY(ash_llvm__machine_create(&target, LLVMCodeGenLevelNone, &machine, diag));
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
                           const ash_entry_frame *frame, ash_entry *out, ash_diag *diag) {
    const ash_allocator *a = ash_context__allocator(context);
    ash_compiler *compiler;
    ASH_TRY(ash_compiler__get(context, &compiler, diag));
    struct entry *entry = ash_mem_calloc(a, 1, sizeof *entry);
    if (!entry) return ASH_NO_MEMORY(diag);
    *entry = (struct entry){.allocator = a, .linker = ash_compiler__linker(compiler)};
    struct entry_source source = {commands, count, frame};
    ash_status status = compile(compiler, &source, entry, diag);
    if (status != ASH_OK) {
        ash_mem_free(a, entry, 1, sizeof *entry);
        return status;
    }
    *out = (ash_entry){(bool (*)(void *))(void (*)(void))entry->linked.fn, entry, release};
    return ASH_OK;
}
