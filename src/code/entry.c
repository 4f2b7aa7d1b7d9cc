/* SPDX-License-Identifier: MIT */
/* A captured schedule as one function.
 *
 *     bool entry(void *streams, const ash_entry_place *at) {
 *         return part_0(streams, at) && part_1(streams, at) && ...;
 *     }
 *
 *     bool part_0(void *streams, const ash_entry_place *at) {
 *         before = *at->done;
 *         if (*at->cancel) return false;
 *         l = at->first + offset_0;
 *         if (begin < l->end) l->kernel(l->buffers, l->vars, begin, l->end, 0);   (or l->end is a number)
 *         *at->done = before + 1;
 *         if (*at->cancel || !at->run[LAUNCH](streams, at->first + offset_1)) return false;
 *         *at->done = before + 2;
 *         if (*at->cancel || !at->run[COPY](streams, at->first + offset_2)) return false;
 *         ...
 *         return true;
 *     }
 *
 * It has no address of anything. Work is found by its distance from the first one, so that replicas of a
 * plan, whose steps lie the same way, run the same code at a place of their own: it compiles once. Kernels,
 * what lies in the tables, the variables and last chunks that depend on them are read when it runs, so
 * inputs, weights and variables can be bound anew. On one stream, records and waits are nothing. Nobody
 * else counts while it runs, so the number of steps that are over is stored and not increased: no step
 * waits for the one before.
 *
 * Nothing is left for LLVM to improve, so no passes run and the code generator is told not to look for
 * anything; parts keep functions short, whatever the schedule's length. Together they make the time to
 * compile proportional to it. */
#include "base/clock.h"
#include "link.h"
#include "llvm.h"

#include <llvm-c/Core.h>
#include <stdio.h>

struct captured_entry {
    const ash_allocator *allocator;
    ash_linked linked;
};

enum { PART = 64 }; /* commands in a function */

struct entry_source {
    const ash_command *commands;
    size_t count;
};

/* What is emitted with. */
struct writer {
    LLVMContextRef context;
    LLVMBuilderRef builder;
    LLVMModuleRef module;
    LLVMValueRef function;                /* the present part */
    LLVMBasicBlockRef stopped;            /* in it: returns false */
    LLVMTypeRef truth, i8, i32, i64, ptr; /* truth: C's bool as it is returned */
    LLVMTypeRef part, kernel, work;       /* types of functions */
    LLVMValueRef cancel, done, first;     /* in the present part: its place */
    LLVMValueRef before;                  /* steps that were over when it began */
    int64_t steps;                        /* of it, that are written */
    const void *origin;                   /* what `first` is for these commands */
};

static LLVMValueRef number(const struct writer *w, int64_t value) {
    return LLVMConstInt(w->i64, (uint64_t)value, true);
}

/* What lies `offset` bytes from `base`. */
static LLVMValueRef load(const struct writer *w, LLVMTypeRef type, LLVMValueRef base, size_t offset) {
    LLVMValueRef at = base, bytes = number(w, (int64_t)offset);
    if (offset) at = LLVMBuildGEP2(w->builder, w->i8, base, &bytes, 1, "");
    return LLVMBuildLoad2(w->builder, type, at, "");
}

static size_t offset(const struct writer *w, const void *work) {
    return (size_t)((uintptr_t)work - (uintptr_t)w->origin);
}

/* Of the command that lies `offset` bytes from the first. */
static LLVMValueRef address(const struct writer *w, size_t offset) {
    LLVMValueRef bytes = number(w, (int64_t)offset);
    return LLVMBuildGEP2(w->builder, w->i8, w->first, &bytes, 1, "");
}

static LLVMValueRef load_place(const struct writer *w, size_t offset) {
    return load(w, w->ptr, LLVMGetParam(w->function, 1), offset);
}

static LLVMBasicBlockRef new_block(const struct writer *w) {
    return LLVMAppendBasicBlockInContext(w->context, w->function, "");
}

/* What follows runs only if a > b; returns the block after it. */
static LLVMBasicBlockRef begin_if_greater(const struct writer *w, LLVMValueRef a, LLVMValueRef b) {
    LLVMBasicBlockRef then = new_block(w), after = new_block(w);
    LLVMBuildCondBr(w->builder, LLVMBuildICmp(w->builder, LLVMIntSGT, a, b, ""), then, after);
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

/* Calls a launch's kernel, which lies `at` bytes from the first work. */
static void write_kernel_call(const struct writer *w, size_t at, LLVMValueRef begin, LLVMValueRef end) {
    LLVMValueRef args[] = {load(w, w->ptr, w->first, at + offsetof(ash_launch, buffers)),
                           load(w, w->ptr, w->first, at + offsetof(ash_launch, vars)), begin, end,
                           number(w, 0)};
    LLVMValueRef fn = load(w, w->ptr, w->first, at + offsetof(ash_launch, kernel));
    LLVMBuildCall2(w->builder, w->kernel, fn, args, 5, "");
}

/* A launch without parts. A last chunk that can change is read twice: kept from block to block it would
 * take a place of its own in the frame, and code that runs once in a replay costs what its bytes cost. */
static void write_launch(const struct writer *w, const ash_launch *launch) {
    const ash_chunks *chunks = &launch->chunks;
    size_t at = offset(w, launch), end_at = at + offsetof(ash_launch, chunks) + offsetof(ash_chunks, end);
    LLVMValueRef begin = number(w, chunks->begin);
    if (chunks->fixed) {
        if (chunks->begin < chunks->end) write_kernel_call(w, at, begin, number(w, chunks->end));
        return;
    }
    LLVMBasicBlockRef after = begin_if_greater(w, load(w, w->i64, w->first, end_at), begin);
    write_kernel_call(w, at, begin, load(w, w->i64, w->first, end_at));
    end_if(w, after);
}

/* Any other work is done by a function of the place. */
static void write_call(const struct writer *w, const ash_command *command) {
    size_t slot = offsetof(ash_entry_place, run) + command->kind * sizeof(ash_work_fn);
    LLVMValueRef args[] = {LLVMGetParam(w->function, 0), address(w, offset(w, command->work))};
    LLVMValueRef fn = load_place(w, slot);
    go_on_if(w, LLVMIntNE, w->truth, LLVMBuildCall2(w->builder, w->work, fn, args, 2, ""));
}

static ash_status write_command(struct writer *w, const ash_command *command, size_t index,
                                ash_diag *diag) {
    if (!ash_command__works(command)) return ASH_OK;
    ASH_FAIL_IF(command->timing, diag, ASH_ERROR_UNSUPPORTED,
                "command %zu is timed, which a capture cannot be", index);
    go_on_if(w, LLVMIntEQ, w->i32, load(w, w->i32, w->cancel, offsetof(ash_cancel, on)));
    if (command->kind == ASH_COMMAND_LAUNCH && !ash_launch__has_parts(command->launch))
        write_launch(w, command->launch);
    else
        write_call(w, command);
    if (!ash_command__is_step(command)) return ASH_OK;
    LLVMValueRef over = LLVMBuildAdd(w->builder, w->before, number(w, ++w->steps), "");
    LLVMBuildStore(w->builder, over, w->done);
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
    w->cancel = load_place(w, offsetof(ash_entry_place, cancel));
    w->done = load_place(w, offsetof(ash_entry_place, done));
    w->first = load_place(w, offsetof(ash_entry_place, first));
    w->before = load(w, w->i64, w->done, 0);
    w->steps = 0;
    size_t end = ASH_MIN(first + PART, source->count);
    for (size_t i = first; i < end; i++) ASH_TRY(write_command(w, &source->commands[i], i, diag));
    end_function(w);
    return ASH_OK;
}

/* The parts, and what calls them. */
static ash_status write_all(struct writer *w, const struct entry_source *source, const char *symbol,
                            ash_diag *diag) {
    for (size_t i = 0; i < source->count; i += PART) ASH_TRY(write_part(w, source, i, diag));
    LLVMValueRef part = LLVMGetFirstFunction(w->module);
    begin_function(w, symbol);
    for (size_t i = 0; i < source->count; i += PART, part = LLVMGetNextFunction(part)) {
        LLVMValueRef args[] = {LLVMGetParam(w->function, 0), LLVMGetParam(w->function, 1)};
        go_on_if(w, LLVMIntNE, w->truth, LLVMBuildCall2(w->builder, w->part, part, args, 2, ""));
    }
    end_function(w);
    return ASH_OK;
}

static ash_status fill(const ash_target *target, const void *what, const char *symbol, LLVMModuleRef module,
                       ash_diag *diag) {
    (void)target;
    const struct entry_source *source = what;
    struct writer w = {.context = LLVMGetModuleContext(module),
                       .module = module,
                       .origin = ash_command__first(source->commands, source->count)};
    w.builder = LLVMCreateBuilderInContext(w.context);
    w.truth = w.i8 = LLVMInt8TypeInContext(w.context);
    w.i32 = LLVMInt32TypeInContext(w.context);
    w.i64 = LLVMInt64TypeInContext(w.context);
    w.ptr = LLVMPointerTypeInContext(w.context, 0);
    LLVMTypeRef kernel[] = {w.ptr, w.ptr, w.i64, w.i64, w.i64}, pair[] = {w.ptr, w.ptr};
    w.part = LLVMFunctionType(w.truth, pair, 2, false);
    w.kernel = LLVMFunctionType(LLVMVoidTypeInContext(w.context), kernel, 5, false);
    w.work = LLVMFunctionType(w.truth, pair, 2, false);
    ash_status status = write_all(&w, source, symbol, diag);
    LLVMDisposeBuilder(w.builder);
    return status;
}

static void release(void *owner) {
    struct captured_entry *entry = owner;
    ash_link__unload(&entry->linked);
    ash_mem_free(entry->allocator, entry, 1, sizeof *entry);
}

static ash_status compile(ash_compiler *compiler, const struct entry_source *source,
                          struct captured_entry *entry, ash_diag *diag) {
    ash_llvm_machine machine = {0};
    LLVMMemoryBufferRef object;
    char symbol[40]; /* an address of its own, while it lives */
    snprintf(symbol, sizeof symbol, "ash_entry_%llx", (unsigned long long)(uintptr_t)entry);
    ASH_TRY(ash_llvm__machine_create(ash_compiler__target(compiler), LLVMCodeGenLevelNone, &machine, diag));
    const ash_llvm_job job = {
        .machine = &machine, .fill = fill, .what = source, .symbol = symbol, .form = ASH_LLVM_OBJECT};
    ash_status status = ash_llvm__build(&job, &object, diag);
    if (status == ASH_OK) {
        status = ash_link__load(LLVMGetBufferStart(object), LLVMGetBufferSize(object), symbol,
                                &entry->linked, diag);
        LLVMDisposeMemoryBuffer(object);
    }
    ash_llvm__machine_destroy(&machine);
    return status;
}

ash_status ash_code__entry(ash_context *context, const ash_command *commands, size_t count, ash_entry *out,
                           ash_diag *diag) {
    const ash_allocator *a = ash_context__allocator(context);
    ash_compiler *compiler;
    ASH_TRY(ash_compiler__get(context, &compiler, diag));
    struct captured_entry *entry = ash_mem_calloc(a, 1, sizeof *entry);
    if (!entry) return ASH_NO_MEMORY(diag);
    *entry = (struct captured_entry){.allocator = a};
    struct entry_source source = {commands, count};
    int64_t start = ash_clock__now();
    ash_status status = compile(compiler, &source, entry, diag);
    ash_compiler__give_back(compiler, ash_clock__now() - start);
    if (status != ASH_OK) {
        ash_mem_free(a, entry, 1, sizeof *entry);
        return status;
    }
    *out = (ash_entry){(ash_entry_fn)(void (*)(void))entry->linked.fn, entry, release};
    return ASH_OK;
}
