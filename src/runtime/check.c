/* SPDX-License-Identifier: MIT */
/* What the runtime takes for granted of a program, checked before it is built into a plan: buffers, access
 * records and steps agree with each other. A defect is a mistake of a floor below. */
#include "plan.h"

static ash_status check_all(const ash_program *p, size_t nests, ash_diag *diag);

/* A loop's body is a program that the loop's own buffers are enough for. */
static ash_status check_loop(const ash_program *p, const ash_step *step, size_t index, size_t nests,
                             ash_diag *diag) {
    const char *name = ash_plan__step_name(step);
    ASH_FAIL_IF(step->nest >= p->loops.len || index < p->prologue, diag, ASH_ERROR_INTERNAL,
                "step %zu (%s) has no body", index, name);
    const ash_program_loop *loop = &p->loops.at[step->nest];
    const ash_loop_parts *parts = &loop->parts;
    uint64_t results = (uint64_t)parts->stacks + parts->stacked,
             count = (uint64_t)parts->captures + parts->captured + loop->n_constants + results + 1;
    bool well = count == step->n_buffers && !loop->body->prologue &&
                loop->body->inputs.len == (size_t)1 + parts->scanned + parts->captured &&
                loop->body->states.len == parts->carried &&
                loop->body->outputs.len == (size_t)parts->until + parts->stacked;
    ASH_FAIL_IF(!well, diag, ASH_ERROR_INTERNAL, "the body of step %zu (%s) does not fit it", index, name);
    for (uint32_t i = 0; i < step->n_buffers; i++) {
        const ash_access *a = &step->accesses[i];
        well = i < step->n_accesses && a->buffer == step->buffers[i] && a->begin == 0 &&
               a->end == p->buffers.at[a->buffer].bytes && a->write == (i >= count - 1 - results);
        ASH_FAIL_IF(!well, diag, ASH_ERROR_INTERNAL,
                    "step %zu (%s) has no access record for all of buffer %u", index, name,
                    step->buffers[i]);
    }
    for (uint32_t k = 0; k < parts->carried; k++) {
        uint32_t init = step->buffers[parts->init + k], state = loop->body->states.at[k],
                 last = step->buffers[count - 1 - results + parts->finals + k];
        well = p->buffers.at[init].bytes == p->buffers.at[last].bytes &&
               p->buffers.at[init].bytes == loop->body->buffers.at[state].bytes;
        ASH_FAIL_IF(!well, diag, ASH_ERROR_INTERNAL, "carried value %u of step %zu (%s) changes its bytes",
                    k, index, name);
    }
    return check_all(loop->body, nests, diag);
}

static ash_status check_step(const ash_program *p, size_t index, size_t nests, ash_diag *diag) {
    const ash_step *step = &p->steps.at[index];
    const char *name = ash_plan__step_name(step);
    for (uint32_t i = 0; i < step->n_accesses; i++) {
        const ash_access *access = &step->accesses[i];
        ASH_FAIL_IF(access->buffer >= p->buffers.len, diag, ASH_ERROR_INTERNAL,
                    "step %zu (%s) has no buffer %u", index, name, access->buffer);
        ASH_FAIL_IF(access->begin < 0 || access->end < access->begin ||
                        access->end > p->buffers.at[access->buffer].bytes,
                    diag, ASH_ERROR_INTERNAL, "step %zu (%s) leaves buffer %u: bytes %lld to %lld of %lld",
                    index, name, access->buffer, (long long)access->begin, (long long)access->end,
                    (long long)p->buffers.at[access->buffer].bytes);
        ash_buffer_kind kind = p->buffers.at[access->buffer].kind;
        bool fixed =
            kind == ASH_BUFFER_INPUT || kind == ASH_BUFFER_CONSTANT || kind == ASH_BUFFER_PARAMETER;
        ASH_FAIL_IF(access->write && fixed, diag, ASH_ERROR_INTERNAL,
                    "step %zu (%s) writes buffer %u, which is fixed", index, name, access->buffer);
    }
    if (step->kind == ASH_STEP_COPY) {
        bool well = step->n_accesses == 2 && !step->accesses[0].write && step->accesses[1].write &&
                    step->accesses[0].end - step->accesses[0].begin ==
                        step->accesses[1].end - step->accesses[1].begin;
        ASH_FAIL_IF(!well, diag, ASH_ERROR_INTERNAL, "step %zu (%s) is no copy of equal bytes", index,
                    name);
        return ASH_OK;
    }
    if (step->kind == ASH_STEP_SETTLE) {
        bool well = step->n_buffers == 2 && step->n_accesses >= 2 && !step->accesses[0].write &&
                    step->accesses[1].write && step->buffers[0] == step->accesses[0].buffer &&
                    step->buffers[1] == step->accesses[1].buffer && index >= p->prologue &&
                    step->accesses[0].end == sizeof(int64_t) && step->accesses[1].end == sizeof(int64_t) &&
                    step->var < ash_dims_var_count(p->dims) && ash_dims_var(p->dims, step->var)->settled;
        ASH_FAIL_IF(!well, diag, ASH_ERROR_INTERNAL, "step %zu (%s) does not settle a variable", index,
                    name);
        return ASH_OK;
    }
    if (step->kind == ASH_STEP_LOOP) return check_loop(p, step, index, nests, diag);
    bool call = step->kind == ASH_STEP_CALL;
    ASH_FAIL_IF(step->nest >= (call ? p->calls.len : nests), diag, ASH_ERROR_INTERNAL,
                "step %zu (%s) has no %s", index, name, call ? "function" : "nest");
    if (call) {
        const ash_program_call *c = &p->calls.at[step->nest];
        uint64_t count = (uint64_t)c->n_ins + c->n_outs + (c->scratch > 0);
        ASH_FAIL_IF(count != step->n_buffers, diag, ASH_ERROR_INTERNAL,
                    "step %zu (%s) has %u buffers, its function takes %llu", index, name, step->n_buffers,
                    (unsigned long long)count);
    }
    for (uint32_t i = 0; i < step->n_buffers; i++) {
        bool declared = false;
        for (uint32_t k = 0; k < step->n_accesses; k++)
            declared |= step->accesses[k].buffer == step->buffers[i];
        ASH_FAIL_IF(!declared, diag, ASH_ERROR_INTERNAL, "step %zu (%s) has no access record for buffer %u",
                    index, name, step->buffers[i]);
    }
    return ASH_OK;
}

/* `nests`: how many its kernels may be of. */
static ash_status check_all(const ash_program *p, size_t nests, ash_diag *diag) {
    ASH_FAIL_IF(p->prologue > p->steps.len, diag, ASH_ERROR_INTERNAL, "a prologue of %zu steps among %zu",
                p->prologue, p->steps.len);
    for (uint32_t b = 0; b < p->buffers.len; b++) {
        const ash_buffer *buffer = &p->buffers.at[b];
        ASH_FAIL_IF(buffer->bytes < 0 || (buffer->align && !ash_is_pow2(buffer->align)), diag,
                    ASH_ERROR_INTERNAL, "buffer %u has %lld bytes at a multiple of %u", b,
                    (long long)buffer->bytes, buffer->align);
        ASH_FAIL_IF(buffer->kind == ASH_BUFFER_STATE && buffer->root == ASH_NO_BUFFER && buffer->blob &&
                        buffer->blob->size != (size_t)buffer->bytes,
                    diag, ASH_ERROR_INTERNAL, "state buffer %u of %lld bytes begins with %zu", b,
                    (long long)buffer->bytes, buffer->blob->size);
        bool constant = buffer->kind == ASH_BUFFER_CONSTANT || buffer->kind == ASH_BUFFER_PARAMETER;
        ASH_FAIL_IF(constant && buffer->root == ASH_NO_BUFFER &&
                        (!buffer->blob || buffer->blob->size != (size_t)buffer->bytes),
                    diag, ASH_ERROR_INTERNAL, "constant buffer %u of %lld bytes has other data", b,
                    (long long)buffer->bytes);
        if (buffer->root == ASH_NO_BUFFER) continue;
        ASH_FAIL_IF(buffer->root >= p->buffers.len || p->buffers.at[buffer->root].root != ASH_NO_BUFFER,
                    diag, ASH_ERROR_INTERNAL, "buffer %u lies in buffer %u, which is no root", b,
                    buffer->root);
        int64_t room = p->buffers.at[buffer->root].bytes;
        ASH_FAIL_IF(buffer->offset < 0 || buffer->offset > room || buffer->bytes > room - buffer->offset,
                    diag, ASH_ERROR_INTERNAL, "buffer %u leaves its root: %lld bytes at %lld of %lld", b,
                    (long long)buffer->bytes, (long long)buffer->offset, (long long)room);
    }
    for (size_t s = 0; s < p->steps.len; s++) ASH_TRY(check_step(p, s, nests, diag));
    for (size_t i = 0; i < p->inputs.len; i++)
        ASH_FAIL_IF(p->inputs.at[i] >= p->buffers.len ||
                        p->buffers.at[p->inputs.at[i]].kind != ASH_BUFFER_INPUT ||
                        p->buffers.at[p->inputs.at[i]].root != ASH_NO_BUFFER,
                    diag, ASH_ERROR_INTERNAL, "input %zu has no buffer of its own", i);
    for (size_t i = 0; i < p->states.len; i++)
        ASH_FAIL_IF(p->states.at[i] >= p->buffers.len ||
                        p->buffers.at[p->states.at[i]].kind != ASH_BUFFER_STATE ||
                        p->buffers.at[p->states.at[i]].root != ASH_NO_BUFFER,
                    diag, ASH_ERROR_INTERNAL, "state %zu has no buffer of its own", i);
    for (size_t i = 0; i < p->outputs.len; i++)
        ASH_FAIL_IF(p->outputs.at[i] >= p->buffers.len, diag, ASH_ERROR_INTERNAL,
                    "output %zu has no buffer", i);
    return ASH_OK;
}

ash_status ash_plan__check_program(const ash_program *p, ash_diag *diag) {
    return check_all(p, p->nests.len, diag);
}
