/* SPDX-License-Identifier: MIT */
/* The pass pipeline, and keeping LLVM's failures values.
 *
 * The nest is the schedule already: loops are rotated and unrolled, vectors are vectors. What is left for
 * LLVM's middle end is to turn cells into registers (sroa), to find equal addresses and values (early-cse)
 * and to move what is invariant out of loops (licm). Vectorisers, unrollers, inliners and instcombine are
 * not run: they would cost most of the compile time and could only disturb the schedule.
 *
 * LLVM reports errors in three ways. A diagnostic with severity "error" goes to the context's handler, and
 * without one ends the process: ours records it. Functions with an error result are checked. And
 * report_fatal_error calls a handler that must not return: ours jumps back to ash_llvm__build, which
 * drops the context as it is (its memory is lost; the state is not known to be sound). The last needs
 * memory of the process: the handler, and one pointer per thread. */
#include "llvm.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdio.h>

#include <llvm-c/Analysis.h>
#include <llvm-c/ErrorHandling.h>
#include <llvm-c/Transforms/PassBuilder.h>

#include "base/text.h"
#include "code_target.h"

/* --- the process ------------------------------------------------------------------------------------- */

struct rescue {
    jmp_buf back;
    char reason[256];
};

static _Thread_local struct rescue *rescue;

static void on_fatal_error(const char *reason) {
    if (!rescue) return; /* not in our code: LLVM ends the process, as it would without us */
    snprintf(rescue->reason, sizeof rescue->reason, "%s", reason);
    longjmp(rescue->back, 1);
}

static pthread_mutex_t init_lock = PTHREAD_MUTEX_INITIALIZER; /* guards what follows */
static bool handled;
static enum { UNTRIED, THERE, MISSING } kinds[ASH_TARGET_KINDS];

ash_status ash_llvm__init(ash_target_kind kind, ash_diag *diag) {
    const ash_code_target *table = ash_code_target__of(kind);
    ASH_FAIL_IF(!table, diag, ASH_ERROR_UNSUPPORTED, "nothing generates code for this kind of machine");
    pthread_mutex_lock(&init_lock);
    if (!handled) LLVMInstallFatalErrorHandler(on_fatal_error);
    handled = true;
    if (kinds[kind] == UNTRIED) kinds[kind] = table->init() ? THERE : MISSING;
    bool there = kinds[kind] == THERE;
    pthread_mutex_unlock(&init_lock);
    ASH_FAIL_IF(!there, diag, ASH_ERROR_UNSUPPORTED,
                "no code for this kind of machine: LLVM was built without %s", table->part);
    return ASH_OK;
}

/* --- machines ---------------------------------------------------------------------------------------- */

ash_status ash_llvm__machine_create(const ash_target *target, LLVMCodeGenOptLevel level,
                                    ash_llvm_machine *out, ash_diag *diag) {
    LLVMTargetRef backend;
    char *message = NULL;
    ASH_TRY(ash_llvm__init(target->kind, diag));
    if (LLVMGetTargetFromTriple(target->triple, &backend, &message)) {
        ash_status status = ash_fail(diag, ASH_ERROR_UNSUPPORTED, "no code generator for %s: %s",
                                     target->triple, message ? message : "");
        LLVMDisposeMessage(message);
        return status;
    }
    out->target = target;
    out->machine = LLVMCreateTargetMachine(backend, target->triple, target->cpu, target->features, level,
                                           LLVMRelocPIC, LLVMCodeModelSmall);
    ASH_FAIL_IF(!out->machine, diag, ASH_ERROR_UNSUPPORTED, "no machine for %s", target->triple);
    return ASH_OK;
}

void ash_llvm__machine_destroy(ash_llvm_machine *machine) {
    if (machine->machine) LLVMDisposeTargetMachine(machine->machine);
    machine->machine = NULL;
}

/* --- one module -------------------------------------------------------------------------------------- */

/* What LLVM says of one module. */
struct report {
    ash_diag *diag;
    bool failed; /* it reported an error, which is in `diag` */
};

static void on_diagnostic(LLVMDiagnosticInfoRef info, void *user) {
    struct report *report = user;
    if (LLVMGetDiagInfoSeverity(info) != LLVMDSError) return;
    char *text = LLVMGetDiagInfoDescription(info);
    ash_fail(report->diag, ASH_ERROR_INTERNAL, "LLVM: %s", text);
    LLVMDisposeMessage(text);
    report->failed = true;
}

static ash_status verify_module(LLVMModuleRef module, ash_diag *diag) {
    ash_status status = ASH_OK;
#if !defined(NDEBUG) || defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    char *text = NULL;
    if (LLVMVerifyModule(module, LLVMReturnStatusAction, &text))
        status = ash_fail(diag, ASH_ERROR_INTERNAL, "the emitted IR is not valid: %s", text ? text : "");
    LLVMDisposeMessage(text);
#else
    (void)module, (void)diag;
#endif
    return status;
}

static ash_status optimise(const ash_llvm_job *job, LLVMModuleRef module, ash_diag *diag) {
    if (!job->passes) return ASH_OK;
    LLVMPassBuilderOptionsRef options = LLVMCreatePassBuilderOptions();
    LLVMErrorRef error = LLVMRunPasses(module, job->passes, job->machine->machine, options);
    LLVMDisposePassBuilderOptions(options);
    if (!error) return ASH_OK;
    char *text = LLVMGetErrorMessage(error);
    ash_status status = ash_fail(diag, ASH_ERROR_INTERNAL, "LLVM's passes: %s", text);
    LLVMDisposeErrorMessage(text);
    return status;
}

static ash_status write_out(const ash_llvm_job *job, LLVMModuleRef module, LLVMMemoryBufferRef *out,
                            ash_diag *diag) {
    char *text = NULL;
    if (job->form == ASH_LLVM_IR) {
        text = LLVMPrintModuleToString(module);
        *out = LLVMCreateMemoryBufferWithMemoryRangeCopy(text, strlen(text), "ir");
        LLVMDisposeMessage(text);
        return ASH_OK;
    }
    LLVMCodeGenFileType type = job->form == ASH_LLVM_OBJECT ? LLVMObjectFile : LLVMAssemblyFile;
    if (!LLVMTargetMachineEmitToMemoryBuffer(job->machine->machine, module, type, &text, out))
        return ASH_OK;
    ash_status status = ash_fail(diag, ASH_ERROR_INTERNAL, "LLVM's code generator: %s", text ? text : "");
    LLVMDisposeMessage(text);
    return status;
}

static ash_status run(const ash_llvm_job *job, LLVMContextRef ctx, struct report *report,
                      LLVMMemoryBufferRef *out) {
    ash_diag *diag = report->diag;
    const ash_target *target = job->machine->target;
    LLVMModuleRef module = LLVMModuleCreateWithNameInContext(job->symbol, ctx);
    LLVMTargetDataRef layout = LLVMCreateTargetDataLayout(job->machine->machine);
    LLVMSetModuleDataLayout(module, layout);
    LLVMDisposeTargetData(layout);
    LLVMSetTarget(module, target->triple);
    ash_status status = job->fill(target, job->what, job->symbol, module, diag);
    if (status == ASH_OK) status = verify_module(module, diag);
    if (status == ASH_OK) status = optimise(job, module, diag);
    if (status == ASH_OK) status = write_out(job, module, out, diag);
    LLVMDisposeModule(module);
    if (status == ASH_OK && report->failed) {
        LLVMDisposeMemoryBuffer(*out);
        status = ASH_ERROR_INTERNAL;
    }
    return status;
}

ash_status ash_llvm__build(const ash_llvm_job *job, LLVMMemoryBufferRef *out, ash_diag *diag) {
    struct report report = {.diag = diag};
    struct rescue here, *outer = rescue;
    LLVMContextRef ctx = LLVMContextCreate();
    LLVMContextSetDiagnosticHandler(ctx, on_diagnostic, &report);
    rescue = &here;
    if (setjmp(here.back)) {
        rescue = outer;
        return ash_fail(diag, ASH_ERROR_INTERNAL, "LLVM: %s", here.reason);
    }
    ash_status status = run(job, ctx, &report, out);
    rescue = outer;
    LLVMContextDispose(ctx);
    return status;
}

struct kernels {
    const ash_llvm_kernel *at;
    size_t count;
};

/* So that kernels which were compiled together can be taken apart (extract.c). */
static void set_apart(LLVMModuleRef module, const char *symbol, size_t number) {
    char section[32];
    snprintf(section, sizeof section, ".text.%zu", number);
    LLVMSetSection(LLVMGetNamedFunction(module, symbol), section);
}

static ash_status fill_kernels(const ash_target *target, const void *what, const char *symbol,
                               LLVMModuleRef module, ash_diag *diag) {
    const struct kernels *kernels = what;
    (void)symbol;
    for (size_t i = 0; i < kernels->count; i++) {
        const ash_llvm_kernel *k = &kernels->at[i];
        ASH_TRY(
            ash_emit__nest(ash_code_target__of(target->kind), target, k->nest, k->symbol, module, diag));
        if (kernels->count > 1) set_apart(module, k->symbol, i);
    }
    return ASH_OK;
}

ash_status ash_llvm__compile(const ash_llvm_machine *machine, const ash_llvm_kernel *kernels, size_t count,
                             ash_llvm_form form, LLVMMemoryBufferRef *out, ash_diag *diag) {
    const struct kernels what = {kernels, count};
    const ash_llvm_job job = {.machine = machine,
                              .fill = fill_kernels,
                              .what = &what,
                              .symbol = kernels->symbol,
                              .passes = ash_code_target__of(machine->target->kind)->passes,
                              .form = form};
    return ash_llvm__build(&job, out, diag);
}

/* --- text -------------------------------------------------------------------------------------------- */

static ash_status as_text(const ash_target *target, const ash_nest *nest, ash_llvm_form form, ash_text *out,
                          ash_diag *diag) {
    ash_llvm_machine machine = {0};
    LLVMMemoryBufferRef buffer;
    ASH_TRY(ash_nest_verify(nest, diag));
    ASH_TRY(ash_llvm__machine_create(target, LLVMCodeGenLevelDefault, &machine, diag));
    const ash_llvm_kernel kernel = {nest, "kernel"};
    ash_status status = ash_llvm__compile(&machine, &kernel, 1, form, &buffer, diag);
    if (status == ASH_OK) {
        ash_text_add_bytes(out, LLVMGetBufferStart(buffer), LLVMGetBufferSize(buffer));
        LLVMDisposeMemoryBuffer(buffer);
        status = ash_text_status(out, diag);
    }
    ash_llvm__machine_destroy(&machine);
    return status;
}

ash_status ash_code__ir(const ash_target *target, const ash_nest *nest, ash_text *out, ash_diag *diag) {
    return as_text(target, nest, ASH_LLVM_IR, out, diag);
}

ash_status ash_code__assembly(const ash_target *target, const ash_nest *nest, ash_text *out,
                              ash_diag *diag) {
    return as_text(target, nest, ASH_LLVM_ASSEMBLY, out, diag);
}
