/* SPDX-License-Identifier: MIT */
/* What an operation is expected to cost on a GPU that need not be there.
 *
 *     blocks, threads    as the streams launch it
 *     registers          as the caller knows them from ptxas, or estimated
 *     resident           blocks of a multiprocessor at a time: the least of what threads, registers, shared
 *                        memory and the hardware's limit allow
 *
 *     issue              of products and convolutions the time by which their shape was chosen
 *                        (ash_gpu_time_in); of what else sums, multiply-adds of the fullest multiprocessor,
 *                        less what else its instructions are, less what too few warps cannot hide
 *     l2, memory         bytes at the rate of the machine; of all else than products at that of the bytes
 *                        that can be on their way at a time, divided by the latency, if that is less. What
 *                        blocks of products copy several times is their shape's
 *     launch             what an empty kernel takes
 *
 * The time is the last one and the largest of the others. It is arithmetic on the numbers of the GPU that
 * the device names, or of the usual one of its kind (base/gpus.def), for the variables' maxima, and leaves
 * out clocks that change, banks, and what two kernels do to each other. Weights come from memory unless all
 * of them fit into half of the second-level cache; everything else does where the operation touches more
 * than that. So of all shapes that a product could have, on the usual GPU, the one that was chosen has the
 * least time. */
#include <math.h>

#include "base/gpu_tile.h"
#include "base/gpus.h"
#include "base/sized.h"
#include "plan.h"

ASH_SIZED(ash_op_forecast, share);

enum {
    BLOCK = ASH_CUDA_BLOCK,
    WARP = 32,
    REGISTER_GRAIN = 8,   /* registers of a thread are a multiple */
    HIDING_WARPS = 16,    /* that a multiprocessor needs when each waits for its last instruction */
    TILE_CHAINS = 4,      /* and how many fewer where a thread has so many sums at a time */
    LEAST_TILE = 8 << 10, /* bytes of shared memory: the operands of the smallest tile, twice */
    ACCESS = 16           /* bytes that a thread has on their way; where it sums, several times that */
};

/* Nanoseconds: from the driver to an empty kernel's end; of the host for a launch, of a kernel behind
 * another in a stream and in a graph; of a copy and a function of the host with what is around it.
 * Estimates after what is published of A100 and H100. */
static const double launch_ns = 1500, issue_ns = 2200, stream_gap_ns = 900, graph_gap_ns = 500,
                    host_ns = 25000, dram_latency_ns = 600, l2_latency_ns = 280;

/* Share of multiply-adds in the loops of attention, and of what else sums: addresses and loads are the
 * rest. */
static const double attend_share = 0.9, plain_share = 0.3;

/* What a step reads of what all executions read. */
static double weights_of(const ash_program *p, const ash_step *step) {
    double bytes = 0;
    for (uint32_t i = 0; i < step->n_accesses; i++)
        if (ash_plan_core__reads_weights(p, &step->accesses[i]))
            bytes += (double)(step->accesses[i].end - step->accesses[i].begin);
    return bytes;
}

/* Elements that a step writes. */
static double results(const ash_program *p, const ash_step *step) {
    double elements = 0;
    for (uint32_t i = 0; i < step->n_accesses; i++) {
        const ash_access *a = &step->accesses[i];
        const ash_buffer *buffer = &p->buffers.at[a->buffer];
        if (a->write && buffer->kind != ASH_BUFFER_SCRATCH)
            elements += (double)(a->end - a->begin) / (double)ash_dtype_size(buffer->type.dtype);
    }
    return elements;
}

static bool has(const ash_nest *nest, ash_nest_op op) {
    for (size_t i = 0; i < nest->code.len; i++)
        if (nest->code.at[i].op == op) return true;
    return false;
}

/* Bytes that a thread has on their way: what the loads of a loop ask for that is laid out several times,
 * the most of all loops. */
static double asked(const ash_nest *nest) {
    enum { DEPTH = 32 };
    double bytes[DEPTH] = {0}, most = ACCESS;
    unsigned times[DEPTH] = {0}, depth = 0;
    for (size_t i = 0; i < nest->code.len; i++) {
        const ash_inst *inst = &nest->code.at[i];
        unsigned at = ASH_MIN(depth, DEPTH - 1u); /* what is deeper counts as if it were not */
        if (inst->op == ASH_NEST_LOOP || inst->op == ASH_NEST_IF) {
            depth++;
            at = ASH_MIN(depth, DEPTH - 1u);
            bytes[at] = 0;
            times[at] = inst->op == ASH_NEST_LOOP ? inst->unroll : 0;
        } else if (inst->op == ASH_NEST_END) {
            if (times[at] > 1) most = ASH_MAX(most, bytes[at] * times[at]);
            depth--;
        } else if (inst->op == ASH_NEST_LOAD && !(inst->buf & ASH_NEST_SHARED)) {
            bytes[at] += (double)(inst->lanes * ash_dtype_size((ash_dtype)inst->dtype));
        }
    }
    return most;
}

static void shape(const ash_plan *plan, const ash_nest *nest, int64_t chunks, ash_op_forecast *f) {
    int64_t threads = ASH_MAX(has(nest, ASH_NEST_WORKER) ? (int64_t)plan->core->threads : chunks, 1);
    f->threads = nest->threads ? nest->threads : (uint32_t)ASH_MIN(threads, BLOCK);
    f->blocks = nest->threads ? ASH_MAX(chunks, 1) : (threads + f->threads - 1) / f->threads;
    f->shared_bytes = ash_nest_shared_at(nest, nest->shared.len);
}

static void find_resident(const ash_gpu *g, const ash_target *target, ash_op_forecast *f) {
    uint64_t warps = (f->threads + WARP - 1) / WARP, of_thread = ash_align_up(f->registers, REGISTER_GRAIN);
    uint64_t fit = g->threads / (warps * WARP);
    fit = ASH_MIN(fit, ASH_GPU_REGISTERS / (of_thread * warps * WARP));
    uint64_t shared = f->shared_bytes + target->own_memory;
    if (shared) fit = ASH_MIN(fit, target->core_memory / shared);
    f->resident = (uint32_t)ASH_MAX(ASH_MIN(fit, g->blocks), 1u);
    f->waves = (double)f->blocks / ((double)f->resident * g->multiprocessors);
}

/* The largest of the bounds. */
static void bound(ash_op_forecast *f, const char *name, double ns, double *most) {
    if (ns <= *most) return;
    *most = ns;
    f->bound = name;
}

static double rate(double most, double on_their_way, double latency_ns) {
    return ASH_MIN(most, on_their_way / latency_ns);
}

/* Bytes of a step that come from memory. */
static double far_bytes(const ash_plan *plan, const ash_program *p, const ash_step *step,
                        const ash_gpu *g) {
    double weights = weights_of(p, step), other = ASH_MAX(step->bytes - weights, 0),
           half = (double)g->l2_bytes / 2;
    return (plan->core->weight_reads > half ? weights : 0) + (other > half ? other : 0);
}

/* Products and convolutions: what their shape was chosen by, and all of their operands. */
static double bound_job(const ash_step *step, const ash_gpu *g, const ash_gpu_time *time, double far,
                        ash_op_forecast *f) {
    const double cycle = 1000.0 / g->mhz;
    double most = 0;
    bound(f, "issue", time->rounds * cycle, &most);
    bound(f, "l2", ASH_MAX(time->near * cycle, step->bytes / g->l2), &most);
    bound(f, "memory", far / g->dram, &most);
    return most;
}

/* All else. `chains`: sums that a thread has at a time. */
static double bound_other(const ash_step *step, const ash_nest *nest, const ash_gpu *g, double share,
                          unsigned chains, double far, ash_op_forecast *f) {
    double each = ceil((double)f->blocks / g->multiprocessors),
           busy = ASH_MIN((double)f->blocks, (double)f->resident * g->multiprocessors);
    double warps = ASH_MIN(each, f->resident) * ((f->threads + WARP - 1) / WARP) * chains;
    double hidden = ASH_MIN(warps / HIDING_WARPS, 1);
    double flops_ns = 2.0 * g->lanes * g->mhz / 1000 * share * hidden;
    double coming =
        busy * (has(nest, ASH_NEST_COPY_ASYNC) ? (double)f->shared_bytes / 2 : f->threads * asked(nest));
    double most = 0;
    bound(f, "issue", each * step->flops / (double)f->blocks / flops_ns, &most);
    bound(f, "l2", step->bytes / rate(g->l2, coming, l2_latency_ns), &most);
    bound(f, "memory", far / rate(g->dram, coming, dram_latency_ns), &most);
    return most;
}

static void set_times(ash_op_forecast *f, double most) {
    if (most < launch_ns) f->bound = "launch";
    f->ns = launch_ns + most;
    f->graph_ns = f->ns + graph_gap_ns;
    f->stream_ns = ASH_MAX(f->ns + stream_gap_ns, issue_ns);
}

static void forecast_kernel(const ash_plan *plan, const ash_program *p, const ash_step *step,
                            const ash_gpu *g, uint32_t registers, ash_op_forecast *f) {
    const ash_nest *nest = &plan->program->nests.at[step->nest];
    const ash_gpu_job *job = step->job;
    int64_t least, chunks;
    ash_dims_bounds(p->dims, step->chunks, &least, &chunks);
    shape(plan, nest, chunks, f);
    ash_target target = *ash_program__target(p, step->device);
    ash_gpu__numbers(g, &target);
    const double outputs = ASH_MAX(results(p, step), 1), far = far_bytes(plan, p, step, g);
    const bool sums = nest->threads && step->flops > 16 * outputs,
               tiled = sums && f->shared_bytes >= LEAST_TILE;
    ash_gpu_time time = {.share = tiled ? attend_share : plain_share};
    double of_thread = tiled ? outputs / ((double)f->blocks * f->threads) : 0; /* sums */
    if (job) {
        time = ash_gpu_time_in(&target, &job->work, job->shape);
        of_thread = ash_gpu_sums(job->shape, job->work.few);
    }
    if (job && job->shape.thread_rows) {
        f->tile_rows = ash_gpu_rows(job->shape);
        f->tile_columns = ash_gpu_columns(job->shape);
        f->slices = job->shape.slices;
        f->parts = ASH_MAX(step->parts, 1u);
    }
    f->registers = registers       ? registers
                   : of_thread > 0 ? (uint32_t)ASH_MIN(60 + 1.3 * of_thread, 255)
                                   : 40;
    f->registers_known = registers != 0;
    f->share = job || (sums && has(nest, ASH_NEST_FMA)) ? time.share : 0;
    find_resident(g, &target, f);
    f->bound = "launch";
    set_times(f, job ? bound_job(step, g, &time, far, f)
                     : bound_other(step, nest, g, time.share, sums ? TILE_CHAINS : 1, far, f));
}

/* A product of the library: its threads and blocks are its own affair, and its time is what it was chosen
 * by. */
static void forecast_product(const ash_plan *plan, const ash_program *p, const ash_step *step,
                             const ash_gpu *g, ash_op_forecast *f) {
    const ash_product *product = &plan->program->nests.at[step->nest].product;
    const ash_gpu_work work = {.rows = product->rows,
                               .columns = product->columns,
                               .terms = product->terms,
                               .batches = (double)product->batches,
                               .runs = 1,
                               .math = product->dtype != ASH_F32 ? ASH_GPU_HALVES
                                       : product->tf32           ? ASH_GPU_TF32
                                                                 : ASH_GPU_FMA};
    ash_library how;
    ash_target target = *ash_program__target(p, step->device);
    ash_gpu__numbers(g, &target);
    double cycles = ash_gpu_library_time(&target, &work, false, &how), most = 0;
    bound(f, "issue", cycles * 1000 / g->mhz, &most);
    bound(f, "memory", step->bytes / g->dram, &most);
    set_times(f, most);
}

static void forecast(const ash_plan *plan, const ash_program *p, const ash_step *step, const ash_gpu *g,
                     uint32_t registers, ash_op_forecast *f);

/* All iterations, issued in both modes; with a condition the host waits in each. */
static void forecast_loop(const ash_plan *plan, const ash_program *p, const ash_step *step,
                          const ash_gpu *g, ash_op_forecast *f) {
    const ash_program_loop *loop = &p->loops.at[step->nest];
    int64_t least, most;
    ash_dims_bounds(p->dims, loop->trips, &least, &most);
    double turn = loop->parts.until ? host_ns : 0, body = 0;
    for (size_t s = 0; s < loop->body->steps.len; s++) {
        ash_op_forecast each = {0};
        forecast(plan, loop->body, &loop->body->steps.at[s], g, 0, &each);
        turn += each.stream_ns;
        body += each.ns;
    }
    f->bound = "host";
    f->ns = (double)most * body;
    f->stream_ns = f->graph_ns = (double)most * turn;
}

static void forecast(const ash_plan *plan, const ash_program *p, const ash_step *step, const ash_gpu *g,
                     uint32_t registers, ash_op_forecast *f) {
    switch (step->kind) {
    case ASH_STEP_KERNEL:
        if (ash_nest_is_product(&plan->program->nests.at[step->nest]))
            forecast_product(plan, p, step, g, f);
        else
            forecast_kernel(plan, p, step, g, registers, f);
        break;
    case ASH_STEP_LOOP: forecast_loop(plan, p, step, g, f); break;
    case ASH_STEP_COPY: {
        double bytes = 2 * (double)(step->accesses[0].end - step->accesses[0].begin);
        f->bound = bytes / g->dram > launch_ns ? "memory" : "launch";
        f->ns = launch_ns + bytes / g->dram;
        f->graph_ns = f->ns + graph_gap_ns;
        f->stream_ns = f->ns + stream_gap_ns;
        break;
    }
    default: f->bound = "host"; f->ns = f->stream_ns = f->graph_ns = host_ns;
    }
}

ash_status ash_plan_op_forecast(const ash_plan *plan, size_t index, uint32_t registers,
                                ash_op_forecast *out, ash_diag *diag) {
    ASH_NEED(diag, plan, out);
    ASH_FAIL_IF(index >= plan->n_steps, diag, ASH_ERROR_NOT_FOUND,
                "there is no operation %zu: there are %zu", index, plan->n_steps);
    const ash_program *p = plan->program;
    const ash_step *step = &p->steps.at[ash_plan_core__step(plan->core, (uint32_t)index)];
    const ash_gpu *g = plan->shared->devices[step->device]->gpu;
    ASH_FAIL_IF(!g, diag, ASH_ERROR_UNSUPPORTED,
                "predictions are for GPUs (CUDA:n, or CUDA:sm_80 for a kind of GPU), and this plan is for "
                "%.60s",
                plan->shared->devices[step->device]->name);
    ASH_FAIL_IF(ash_step__crosses(p, step), diag, ASH_ERROR_UNSUPPORTED,
                "predictions are for what a GPU does, and operation %zu is a copy between two devices",
                index);
    ash_op_forecast own = {.gpu = g->name};
    forecast(plan, p, step, g, registers, &own);
    return ASH_GIVE(ash_op_forecast, &own, out, diag);
}
