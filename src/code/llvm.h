/* SPDX-License-Identifier: MIT */
/* LLVM's process-wide state, and the way of nests through it: module, passes, object file or text. */
#ifndef ASH_LLVM_H
#define ASH_LLVM_H

#include <llvm-c/TargetMachine.h>

#include "code.h"

/* Registers LLVM's code generator for a kind of machine, and the handler for fatal errors, when they are
 * first needed, from any thread; ASH_ERROR_UNSUPPORTED says what is missing. */
ash_status ash_llvm__init(ash_target_kind kind, ash_diag *diag);

/* What one thread compiles with. */
typedef struct ash_llvm_machine {
    const ash_target *target;
    LLVMTargetMachineRef machine;
} ash_llvm_machine;

/* `level`: how hard the code generator tries. */
ash_status ash_llvm__machine_create(const ash_target *target, LLVMCodeGenOptLevel level,
                                    ash_llvm_machine *out, ash_diag *diag);
void ash_llvm__machine_destroy(ash_llvm_machine *machine);

typedef enum ash_llvm_form { ASH_LLVM_OBJECT, ASH_LLVM_ASSEMBLY, ASH_LLVM_IR } ash_llvm_form;

/* Fills a module whose layout and target are set. */
typedef ash_status (*ash_llvm_fill)(const ash_target *target, const void *what, const char *symbol,
                                    LLVMModuleRef module, ash_diag *diag);

/* A module to be made of `what`. */
typedef struct ash_llvm_job {
    const ash_llvm_machine *machine;
    ash_llvm_fill fill;
    const void *what;
    const char *symbol;
    const char *passes; /* NULL: none */
    ash_llvm_form form;
} ash_llvm_job;

/* Compiles a module; *out is given back with LLVMDisposeMemoryBuffer. */
ash_status ash_llvm__build(const ash_llvm_job *job, LLVMMemoryBufferRef *out, ash_diag *diag);

/* A nest, and what the function is called that it becomes. */
typedef struct ash_llvm_kernel {
    const ash_nest *nest;
    const char *symbol;
} ash_llvm_kernel;

/* The same of nests, in one module; each function of several has a section of its own. */
ash_status ash_llvm__compile(const ash_llvm_machine *machine, const ash_llvm_kernel *kernels, size_t count,
                             ash_llvm_form form, LLVMMemoryBufferRef *out, ash_diag *diag);

#endif
