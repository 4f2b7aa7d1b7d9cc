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

ash_status ash_plan__find_files(ash_plan_shared *shared, ash_diag *diag) {
    const ash_plan_core *core = shared->core;
    ash_plan_files *files = &shared->files;
    files->at = ash_mem_calloc(shared->allocator, core->n_buffers, sizeof *files->at);
    if (!files->at) return ASH_NO_MEMORY(diag);
    for (int in_place = 1; in_place >= 0; in_place--) {
        for (uint32_t b = 0; b < core->n_buffers; b++) {
            const ash_blob *blob = shared->originals[b];
            bool now = core->reads[b] && core->layout.places[b].home == ASH_HOME_BLOB;
            if (blob && blob->file && now == (in_place != 0)) add(files, blob->file);
        }
        if (in_place) files->in_place = files->count;
    }
    return ASH_OK;
}

static ash_status check(const ash_plan *plan, uint32_t count, ash_diag *diag) {
    for (uint32_t i = 0; i < count; i++) ASH_TRY(ash_file_check(plan->shared->files.at[i], diag));
    return ASH_OK;
}

ash_status ash_plan__check_files(const ash_plan *plan, ash_diag *diag) {
    ASH_TRY(check(plan, plan->shared->files.in_place, diag));
    return ash_plan__check_lent_files(plan, diag);
}

ash_status ash_plan__check_all_files(const ash_plan *plan, ash_diag *diag) {
    return check(plan, plan->shared->files.count, diag);
}
