/* SPDX-License-Identifier: MIT */
/* What a kernel of products does, as the choice of its shape has it. */
#include "tile.h"

ash_gpu_math ash_gpu_math_of(const ash_kern *k, const ash_node *node) {
    ash_dtype dtype = ash_graph__type(k->graph, node->ins[0])->dtype;
    if (ash_node__is_bytes(k->graph, node)) return ASH_GPU_BYTES;
    return dtype == ASH_F32 ? k->low->target->singles : ASH_GPU_HALVES;
}

void ash_gpu_set_job(ash_kern *k, const ash_gpu_work *work, ash_gpu_shape shape) {
    ash_gpu_job *job = ash_arena_alloc(&k->low->program->arena, 1, sizeof *job);
    k->job = job;
    if (!job) {
        k->failed = true;
        return;
    }
    *job = (ash_gpu_job){.work = *work, .shape = shape};
    k->nest.resident = ash_gpu_resident(k->low->target, work, shape);
    if (shape.across) job->work.math = shape.math;
    if (!work->window) return;
    job->window = *work->window;
    job->work.window = &job->window;
}
