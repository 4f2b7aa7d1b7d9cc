/* SPDX-License-Identifier: MIT */
/* The text of a plan, and of its kernels: loop nest, LLVM IR, assembly. */
#include "base/text.h"
#include "code/code.h"
#include "plan.h"

static ash_status print(const ash_plan *plan, size_t kernel, ash_source source, ash_text *text,
                        ash_diag *diag) {
    const ash_program *p = plan->program;
    const ash_nest *nest = &p->nests.at[kernel];
    const ash_target *target = ash_program__target(p, ash_program__nest_device(p, kernel));
    ASH_FAIL_IF(source != ASH_SOURCE_NEST && ash_nest_is_product(nest), diag, ASH_ERROR_UNSUPPORTED,
                "kernel %zu is a product of cuBLAS, whose code is not ours", kernel);
    switch (source) {
    case ASH_SOURCE_NEST: ash_nest_print(nest, text); return ash_text_status(text, diag);
    case ASH_SOURCE_IR: return ash_code__ir(target, nest, text, diag);
    case ASH_SOURCE_ASSEMBLY: return ash_code__assembly(target, nest, text, diag);
    }
    return ash_fail(diag, ASH_ERROR_INVALID_ARGUMENT, "no such kind of source");
}

/* Hands a text out, and frees it. */
static ash_status hand_out(const ash_plan *plan, ash_text *text, ash_status status, char **out,
                           uint64_t *size, ash_diag *diag) {
    if (status == ASH_OK) {
        *size = text->len;
        *out = ash_mem_alloc(plan->allocator, text->len + 1, 1);
        if (!*out)
            status = ASH_NO_MEMORY(diag);
        else
            memcpy(*out, text->at ? text->at : "", text->len + 1);
    }
    ash_text_free(text);
    return status;
}

ash_status ash_plan_kernel_source(const ash_plan *plan, size_t kernel, ash_source source, char **out,
                                  uint64_t *size, ash_diag *diag) {
    ASH_NEED(diag, plan, out, size);
    *out = NULL;
    ASH_FAIL_IF(kernel >= plan->program->nests.len, diag, ASH_ERROR_NOT_FOUND,
                "there is no kernel %zu: the plan has %zu", kernel, plan->program->nests.len);
    ash_text text;
    ash_text_init(&text, plan->allocator);
    ash_status status = print(plan, kernel, source, &text, diag);
    return hand_out(plan, &text, status, out, size, diag);
}

ash_status ash_plan_print(ash_plan *plan, char **out, uint64_t *size, ash_diag *diag) {
    ASH_NEED(diag, plan, out, size);
    *out = NULL;
    ash_text text;
    ash_text_init(&text, plan->allocator);
    pthread_mutex_lock(plan->lock);
    ash_status status = ash_plan_core__print(plan->core, &text, diag);
    pthread_mutex_unlock(plan->lock);
    return hand_out(plan, &text, status, out, size, diag);
}
