/* SPDX-License-Identifier: MIT */
/* Functions of the caller in a plan.
 *
 * A step that calls one is a function of the host, one for all of them, that is told which. So streams,
 * captures, chunks, profiles and the switch treat it as they treat kernels. Only failing is its own: a
 * kernel cannot. The first function that fails in a round leaves its diagnostic with the plan and stops
 * the streams. */
#include "plan.h"

static void fail(const ash_plan_call *c, ash_diag *why) {
    ash_plan *plan = c->plan;
    const ash_step *step = &c->in->steps.at[c->step];
    if (atomic_exchange(&plan->call_failed, true)) return;
    ash_diag__add_node(why, step->n_nodes ? step->nodes[0] : "", step->name, ASH_NO_OFFSET);
    plan->call_diag = *why;
    plan->active->class->stop(plan->active);
}

static void run(void *arg, void *const *buffers, int64_t begin, int64_t end, int64_t worker) {
    const ash_plan_call *c = arg;
    const ash_program_call *p = c->program;
    ash_call call = {.ins = (const void *const *)buffers,
                     .outs = buffers + p->n_ins,
                     .in_types = c->types,
                     .out_types = c->types + p->n_ins,
                     .n_ins = p->n_ins,
                     .n_outs = p->n_outs,
                     .begin = begin,
                     .end = end,
                     .chunks = c->chunks,
                     .cancel = c->plan->progress.cancel};
    if (p->scratch) {
        uint32_t buffer = c->in->steps.at[c->step].buffers[p->n_ins + p->n_outs];
        call.scratch =
            (char *)buffers[p->n_ins + p->n_outs] + worker * (int64_t)c->in->buffers.at[buffer].bytes;
    }
    ash_diag why;
    if (ash_function__run(p->function, &call, &why) != ASH_OK) fail(c, &why);
}

static uint32_t buffer_count(const ash_program_call *c) {
    return c->n_ins + c->n_outs + (c->scratch > 0);
}

ash_host ash_plan__call_host(ash_plan_call *c) {
    return (ash_host){.fn = run, .arg = c, .operands = c->operands, .count = buffer_count(c->program)};
}

ash_status ash_plan__round(ash_plan *plan, ash_status status, ash_diag *diag) {
    if (!atomic_exchange(&plan->call_failed, false)) return status;
    if (diag) *diag = plan->call_diag;
    return plan->call_diag.code;
}

void ash_plan__refresh_call(ash_plan_call *c) {
    const ash_step *step = &c->in->steps.at[c->step];
    for (uint32_t k = 0; k < c->program->n_ins + c->program->n_outs; k++)
        ash_plan__type_now(c->plan, &c->in->buffers.at[step->buffers[k]], &c->types[k],
                           &c->operands[k].bytes);
    c->chunks = ash_dims_eval(c->in->dims, step->chunks, c->plan->vars);
}

void ash_plan__refresh_calls(ash_plan *plan) {
    for (uint32_t i = 0; i < plan->program->calls.len; i++) ash_plan__refresh_call(&plan->calls[i]);
}

static void describe(ash_plan_call *c, unsigned threads) {
    const ash_program_call *p = c->program;
    for (uint32_t k = 0; k < p->n_ins; k++) c->operands[k].read = true;
    for (uint32_t k = p->n_ins; k < p->n_ins + p->n_outs; k++) c->operands[k].write = true;
    if (p->scratch)
        c->operands[p->n_ins + p->n_outs].bytes = threads * ash_align_up((uint64_t)p->scratch, 64);
}

/* Which step calls it, and how large its operands can become. */
static void place(ash_plan_call *calls, const ash_program *p, uint32_t step) {
    ash_plan_call *c = &calls[p->steps.at[step].nest];
    c->step = step;
    for (uint32_t k = 0; k < c->program->n_ins + c->program->n_outs; k++)
        c->operands[k].most = (uint64_t)p->buffers.at[p->steps.at[step].buffers[k]].bytes;
}

ash_status ash_plan__make_calls(ash_plan *plan, const ash_program *p, unsigned threads, ash_plan_call **out,
                                ash_diag *diag) {
    size_t n_types = 0, n_operands = 0;
    for (size_t i = 0; i < p->calls.len; i++) {
        n_types += (size_t)p->calls.at[i].n_ins + p->calls.at[i].n_outs;
        n_operands += buffer_count(&p->calls.at[i]);
    }
    ash_plan_call *calls = *out = ash_arena_alloc(&plan->arena, p->calls.len, sizeof *calls);
    ash_type *types = ash_arena_alloc(&plan->arena, n_types, sizeof *types);
    ash_operand *operands = ash_arena_alloc(&plan->arena, n_operands, sizeof *operands);
    if (!calls || !types || !operands) return ASH_NO_MEMORY(diag);
    for (size_t i = 0; i < p->calls.len; i++) {
        calls[i] = (ash_plan_call){
            .plan = plan, .in = p, .program = &p->calls.at[i], .types = types, .operands = operands};
        describe(&calls[i], threads);
        types += (size_t)p->calls.at[i].n_ins + p->calls.at[i].n_outs;
        operands += buffer_count(&p->calls.at[i]);
    }
    for (uint32_t s = 0; s < p->steps.len; s++)
        if (p->steps.at[s].kind == ASH_STEP_CALL) place(calls, p, s);
    return ASH_OK;
}
