/* SPDX-License-Identifier: MIT */
/* The files that a plan's constants lie in.
 *
 * Weights are read where they are, in mapped files. One that was cut short meanwhile has no pages behind
 * part of its mapping, and touching them would end the process. So its size is asked for before the
 * prologue reads it, and before each execution that reads it in place: one call of the system for each
 * file. What happens to a file between that and the reading is beyond help. */
#include "base/file.h"
#include "plan.h"

static void add(ash_plan_files *files, ash_file *file) {
    for (uint32_t i = 0; i < files->count; i++)
        if (files->at[i] == file) return;
    files->at[files->count++] = file;
}

/* Marks the roots that an execution or a caller reads. */
static void find_read(const ash_plan *plan, bool *read) {
    const ash_program *p = plan->program;
    for (size_t s = p->prologue; s < p->steps.len; s++)
        for (uint32_t i = 0; i < p->steps.at[s].n_accesses; i++)
            read[plan->layout.places[p->steps.at[s].accesses[i].buffer].root] = true;
    for (size_t i = 0; i < p->outputs.len; i++) read[plan->layout.places[p->outputs.at[i]].root] = true;
}

ash_status ash_plan__find_files(ash_plan *plan, ash_diag *diag) {
    const ash_allocator *a = plan->allocator;
    const ash_program *p = plan->program;
    bool *read = plan->reads = ash_mem_calloc(a, plan->n_buffers, sizeof *plan->reads);
    plan->files.at = ash_mem_calloc(a, plan->n_buffers, sizeof *plan->files.at);
    ash_status status = read && plan->files.at ? ASH_OK : ASH_NO_MEMORY(diag);
    if (status == ASH_OK) find_read(plan, read);
    for (int in_place = 1; status == ASH_OK && in_place >= 0; in_place--) {
        for (uint32_t b = 0; b < plan->n_buffers; b++) {
            const ash_blob *blob = p->buffers.at[b].blob;
            bool now = read[b] && plan->layout.places[b].home == ASH_HOME_BLOB;
            if (blob && blob->file && now == (in_place != 0)) add(&plan->files, blob->file);
        }
        if (in_place) plan->files.in_place = plan->files.count;
    }
    return status;
}

static ash_status check(const ash_plan *plan, uint32_t count, ash_diag *diag) {
    for (uint32_t i = 0; i < count; i++) ASH_TRY(ash_file_check(plan->files.at[i], diag));
    return ASH_OK;
}

ash_status ash_plan__check_files(const ash_plan *plan, ash_diag *diag) {
    ASH_TRY(check(plan, plan->files.in_place, diag));
    return ash_plan__check_lent_files(plan, diag);
}

ash_status ash_plan__check_all_files(const ash_plan *plan, ash_diag *diag) {
    return check(plan, plan->files.count, diag);
}

void ash_plan__free_files(ash_plan *plan) {
    ash_mem_free(plan->allocator, plan->reads, plan->n_buffers, sizeof *plan->reads);
    ash_mem_free(plan->allocator, plan->files.at, plan->n_buffers, sizeof *plan->files.at);
}
