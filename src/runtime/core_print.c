/* SPDX-License-Identifier: MIT */
/* A core as text: everything that a plan was decided to be, one thing a line, in the order of its tables.
 *
 *     plan      device, target, mode, streams, threads
 *     variables
 *     buffers   what each is, and where it lies     %3 local f32[8], 32 bytes, align 64: main 0 + 64
 *     arenas
 *     kernels   by the name of their code           k2 90c1...: 3 buffers, 41 instructions
 *     prologue  steps, and what each
 *     steps     reads and writes                    #5 kernel k2 mul+add, 4 chunks
 *     entries   places in the table of addresses that hang on a root: slot + offset
 *     commands  as they are issued                  launch #5 on 0, at +320
 *
 * Distances (+320) are those by which captured entries find their work. What is made from these and nothing
 * else (the index by name and value, the planner's problem) is not repeated. Numbers of bytes are those of
 * the variables' maxima. */
#include <inttypes.h>

#include "base/text.h"
#include "code/code.h"
#include "core.h"
#include "plan.h"

static const char *const kinds[] = {
    [ASH_BUFFER_INPUT] = "input",         [ASH_BUFFER_CONSTANT] = "constant",
    [ASH_BUFFER_PARAMETER] = "parameter", [ASH_BUFFER_WEIGHT] = "weight",
    [ASH_BUFFER_STAGING] = "staging",     [ASH_BUFFER_LOCAL] = "local",
    [ASH_BUFFER_STATE] = "state",         [ASH_BUFFER_OUTPUT] = "output",
    [ASH_BUFFER_SCRATCH] = "scratch"};

static const char *const homes[] = {
    [ASH_HOME_NONE] = "nowhere",    [ASH_HOME_MAIN] = "main",       [ASH_HOME_STATE] = "states",
    [ASH_HOME_WEIGHTS] = "weights", [ASH_HOME_STAGING] = "staging", [ASH_HOME_BLOB] = "original",
    [ASH_HOME_CALLER] = "caller"};

static void quote(ash_text *out, const char *name) {
    ash_text_add(out, " ");
    ash_text_add_quoted(out, name, strlen(name));
}

static void print_head(const ash_plan_core *core, ash_text *out) {
    const ash_target *t = &core->program.target;
    const ash_layout *l = &core->layout;
    ash_text_add(out, "plan for device \"%s\"\n", core->device);
    ash_text_add(out, "target \"%s\" \"%s\" \"%s\"\n", t->triple, t->cpu, t->features);
    ash_text_add(out, "vectors of %u bytes, %u registers, %u chains%s%s, caches %" PRId64 " %" PRId64 "\n",
                 t->vector_bytes, t->vector_registers, t->chains, t->masks ? ", masks" : "",
                 t->fma ? ", fma" : "", t->l1_bytes, t->l2_bytes);
    if (t->singles) ash_text_add(out, "products in %s\n", t->singles == ASH_GPU_TF32 ? "tf32" : "tf32x3");
    ash_text_add(out, "mode %s, %u streams, %u events, %u threads%s%s%s\n", ash_mode_text(core->mode),
                 core->schedule.streams, core->schedule.n_events, core->threads,
                 core->poison ? ", poison" : "", core->late ? ", captured late" : "",
                 core->keep_denormals ? ", denormals kept" : "");
    ash_text_add(out, "weights %" PRIu64 " align %" PRIu64 "%s, staging %" PRIu64 " align %" PRIu64 "\n",
                 l->weights_size[0], l->weights_align[0], l->lent_weights ? " lent" : "",
                 l->staging_size[0], l->staging_align[0]);
    for (uint32_t d = 1; d <= core->program.others.len; d++)
        ash_text_add(out,
                     "device %u, target \"%s\" \"%s\", weights %" PRIu64 " align %" PRIu64
                     ", staging %" PRIu64 " align %" PRIu64 "\n",
                     d, ash_program__target(&core->program, d)->triple,
                     ash_program__target(&core->program, d)->cpu, l->weights_size[d], l->weights_align[d],
                     l->staging_size[d], l->staging_align[d]);
    ash_text_add(out, "in place %" PRIu64 ", splits %u, states updated %u, copied %u\n", l->inplace,
                 core->program.splits, core->program.updated, core->program.copied);
}

static void print_vars(const ash_plan_core *core, ash_text *out) {
    const ash_dims *dims = core->program.dims;
    if (ash_dims_var_count(dims)) ash_text_add(out, "\nvariables\n");
    for (size_t i = 0; i < ash_dims_var_count(dims); i++) {
        const ash_var *var = ash_dims_var(dims, i);
        ash_text_add(out, "  $%zu", i);
        quote(out, var->name);
        ash_text_add(out, ", %" PRId64 " to %" PRId64, var->min, var->max);
        if (var->settled) {
            ash_text_add(out, ", settled, at most ");
            ash_dims_print(dims, var->limit, out);
        }
        ash_text_add(out, "\n");
    }
}

/* --- buffers ------------------------------------------------------------------------------------- */

static void print_place(const ash_plan_core *core, uint32_t b, ash_text *out) {
    const ash_place *place = &core->layout.places[b];
    bool arena = place->home == ASH_HOME_MAIN || place->home == ASH_HOME_STATE;
    ash_text_add(out, ": %s", homes[place->home]);
    if (arena) ash_text_add(out, " %u", place->arena);
    if (place->home != ASH_HOME_NONE) ash_text_add(out, " + %" PRIu64, place->offset);
    if (place->root != b)
        ash_text_add(out, ", in %%%u", place->root);
    else if (arena || place->home == ASH_HOME_STAGING)
        ash_text_add(out, ", %" PRIu64 " bytes, %" PRId64 " to %" PRId64, place->bytes, place->begin,
                     place->end);
    if (core->reads[b]) ash_text_add(out, ", read");
    if (core->touches[b]) ash_text_add(out, ", %u fills", core->touches[b]);
}

static void print_shift(const ash_program *p, ash_dim shift, ash_text *out) {
    if (!shift) return;
    ash_text_add(out, " + ");
    ash_dims_print(p->dims, shift, out);
}

static void print_root(const ash_program *p, const ash_buffer *buffer, ash_text *out) {
    if (buffer->root == ASH_NO_BUFFER) return;
    ash_text_add(out, ", view of %%%u + %" PRId64, buffer->root, buffer->offset);
    print_shift(p, buffer->shift, out);
}

static void print_buffer(const ash_plan_core *core, uint32_t b, ash_text *out) {
    const ash_buffer *buffer = &core->program.buffers.at[b];
    ash_text_add(out, "  %%%u %s", b, kinds[buffer->kind]);
    if (buffer->name) quote(out, buffer->name);
    ash_text_add(out, " ");
    ash_type_print(core->program.dims, &buffer->type, out);
    ash_text_add(out, ", %" PRId64 " bytes", buffer->bytes);
    if (buffer->kind == ASH_BUFFER_SCRATCH)
        ash_text_add(out, " each of %u", buffer->one_worker ? 1 : core->threads);
    ash_text_add(out, ", align %u", buffer->align);
    if (buffer->value != ASH_NO_VALUE) ash_text_add(out, ", value %u", buffer->value);
    if (buffer->origin != ASH_NO_VALUE) ash_text_add(out, " of %u", buffer->origin);
    print_root(&core->program, buffer, out);
    if (core->original[b]) ash_text_add(out, ", given");
    if (buffer->device) ash_text_add(out, ", device %u", buffer->device);
    print_place(core, b, out);
    ash_text_add(out, "\n");
}

static void print_list(const char *what, const uint32_t *buffers, size_t count, ash_text *out) {
    ash_text_add(out, "%s", what);
    for (size_t i = 0; i < count; i++) ash_text_add(out, " %%%u", buffers[i]);
    ash_text_add(out, "\n");
}

static void print_buffers(const ash_plan_core *core, ash_text *out) {
    const ash_program *p = &core->program;
    ash_text_add(out, "\nbuffers\n");
    for (uint32_t b = 0; b < core->n_buffers; b++) print_buffer(core, b, out);
    print_list("inputs", p->inputs.at, p->inputs.len, out);
    print_list("states", p->states.at, p->states.len, out);
    print_list("parameters", core->index.parameters, core->index.n_parameters, out);
    ash_text_add(out, "outputs");
    for (size_t i = 0; i < p->outputs.len; i++) {
        ash_text_add(out, " %%%u", p->outputs.at[i]);
        if (i < p->output_names.len && p->output_names.at[i]) quote(out, p->output_names.at[i]);
        ash_text_add(out, " saved at %" PRIu64, core->index.saved[i]);
    }
    ash_text_add(out, "\n");
}

static void print_arenas(const ash_plan_core *core, ash_text *out) {
    size_t count;
    const ash_memory_arena *arenas = ash_memory_plan_arenas(core->layout.main, &count);
    ash_text_add(out, "\narenas\n");
    for (size_t i = 0; i < count; i++)
        ash_text_add(out,
                     "  %zu %s, %" PRIu64 " bytes, align %" PRIu64 ", bound %" PRIu64 ", unshared %" PRIu64
                     ", %zu tenants, by %s\n",
                     i, ash_lane__has_states(arenas[i].lane) ? "states" : "main", arenas[i].size,
                     arenas[i].align, arenas[i].lower_bound, arenas[i].unshared, arenas[i].buffers,
                     ash_memory_strategy_text(arenas[i].found_by));
    for (uint32_t i = 0; i < core->n_gaps; i++)
        ash_text_add(out, "  %u + %" PRIu64 ", %" PRIu64 " bytes: no input\n", core->gaps[i].arena,
                     core->gaps[i].offset, core->gaps[i].bytes);
}

/* --- steps --------------------------------------------------------------------------------------- */

static ash_status print_kernels(const ash_plan_core *core, ash_text *out, ash_diag *diag) {
    const ash_program *p = &core->program;
    ash_text_add(out, "\nkernels\n");
    for (size_t i = 0; i < p->nests.len; i++) {
        const ash_nest *nest = &p->nests.at[i];
        ash_text_add(out, "  k%zu ", i);
        if (ash_nest_is_product(nest)) {
            ash_nest_print_product(&nest->product, out);
            ash_text_add(out, "\n");
            continue;
        }
        ASH_TRY(
            ash_code__print_key(ash_program__target(p, ash_program__nest_device(p, i)), nest, out, diag));
        ash_text_add(out, ": %zu buffers, %zu instructions%s\n", nest->buffers.len, nest->code.len,
                     nest->polls ? ", polls" : "");
    }
    return ASH_OK;
}

static void print_subject(const ash_program *p, const ash_step *step, ash_text *out) {
    switch (step->kind) {
    case ASH_STEP_KERNEL: ash_text_add(out, "kernel k%u", step->nest); break;
    case ASH_STEP_COPY: ash_text_add(out, "copy"); break;
    case ASH_STEP_LOOP: ash_text_add(out, "loop l%u", step->nest); break;
    case ASH_STEP_SETTLE: ash_text_add(out, "settle $%u", step->var); break;
    case ASH_STEP_CALL:
        ash_text_add(out, "call c%u of %u, %u, scratch %" PRId64, step->nest, p->calls.at[step->nest].n_ins,
                     p->calls.at[step->nest].n_outs, p->calls.at[step->nest].scratch);
        quote(out, p->calls.at[step->nest].function->name);
        break;
    }
}

static void print_accesses(const ash_step *step, ash_text *out) {
    ash_text_add(out, "      table");
    for (uint32_t i = 0; i < step->n_buffers; i++) ash_text_add(out, " %%%u", step->buffers[i]);
    ash_text_add(out, "\n");
    for (uint32_t i = 0; i < step->n_accesses; i++) {
        const ash_access *a = &step->accesses[i];
        ash_text_add(out, "      %s %%%u %" PRId64 " to %" PRId64 "\n", a->write ? "write" : "read",
                     a->buffer, a->begin, a->end);
    }
    if (step->inplace != ASH_NO_BUFFER)
        ash_text_add(out, "      in place of %%%u%s\n", step->inplace, step->moves ? ", moves" : "");
    if (step->n_nodes) ash_text_add(out, "      nodes");
    for (uint32_t i = 0; i < step->n_nodes; i++) quote(out, step->nodes[i] ? step->nodes[i] : "");
    if (step->n_nodes) ash_text_add(out, "\n");
}

static void print_step(const ash_plan_core *core, size_t s, ash_text *out) {
    const ash_program *p = &core->program;
    const ash_step *step = &p->steps.at[s];
    const ash_plan_work *work = &core->work[s];
    ash_text_add(out, "  #%zu ", s < p->prologue ? s : s - ash_plan_core__step(core, 0));
    print_subject(p, step, out);
    quote(out, ash_plan__step_name(step));
    ash_text_add(out, ", ");
    ash_dims_print(p->dims, step->chunks, out);
    ash_text_add(out, " chunks");
    if (work->piece) ash_text_add(out, " by %" PRId64, work->piece);
    if (work->parallel) ash_text_add(out, ", parallel");
    if (step->one_worker) ash_text_add(out, ", one worker");
    if (step->device) ash_text_add(out, ", device %u", step->device);
    ash_text_add(out, ", %.17g flop, %.17g bytes, %.17g ns, %.17g a chunk, table %u + %u\n", step->flops,
                 step->bytes, step->work, step->chunk_work, work->slot, work->count);
    if (work->ahead_bytes)
        ash_text_add(out, "      reads ahead: entry %u, %" PRId64 " bytes, %" PRId64 " a thread\n",
                     work->ahead, work->ahead_bytes, work->ahead_most);
    print_accesses(step, out);
}

/* A main step's waits and clock. */
static void print_order(const ash_schedule *s, uint32_t i, ash_text *out) {
    ash_text_add(out, "      stream %u, position %u", s->stream[i], s->position[i]);
    for (uint32_t w = s->first_wait[i]; w < s->first_wait[i + 1]; w++)
        ash_text_add(out, ", after #%u", s->waits[w].after);
    if (s->event[i] != ASH_NO_EVENT) ash_text_add(out, ", event %u", s->event[i]);
    for (uint32_t t = 0; t < s->streams && s->streams > 1; t++)
        ash_text_add(out, "%s%u", t ? " " : ", clock ", s->clocks[(size_t)i * s->streams + t]);
    ash_text_add(out, "\n");
}

static void print_steps(const ash_plan_core *core, ash_text *out) {
    size_t prologue = core->program.prologue;
    ash_text_add(out, "\nprologue\n");
    for (size_t s = 0; s < prologue; s++) print_step(core, s, out);
    ash_text_add(out, "\nsteps\n");
    for (uint32_t i = 0; i < core->n_steps; i++) {
        print_step(core, ash_plan_core__step(core, i), out);
        print_order(&core->schedule, i, out);
    }
    for (uint32_t i = 0; i < core->n_settled; i++) {
        const ash_plan_settled *s = &core->settled[i];
        ash_text_add(out, "$%u changes", s->var);
        for (uint32_t k = s->first; k < s->first + s->count; k++)
            ash_text_add(out, " #%u", core->resized[k]);
        ash_text_add(out, "\n");
    }
}

/* The bodies of a program's loops, and of theirs, each with the steps that it repeats. */
static void print_loops(const ash_program *p, ash_text *out) {
    for (size_t i = 0; i < p->loops.len; i++) {
        const ash_program_loop *loop = &p->loops.at[i];
        const ash_program *body = loop->body;
        ash_text_add(out, "\nloop l%zu, ", i);
        ash_dims_print(p->dims, loop->trips, out);
        ash_text_add(out, " iterations%s, %" PRId64 " bytes",
                     loop->parts.until ? " or until a condition" : "", loop->bytes);
        if (loop->number >= 0) ash_text_add(out, ", the number at + %" PRId64, loop->number);
        ash_text_add(out, "\n");
        for (uint32_t b = 0; b < body->buffers.len; b++) {
            const ash_buffer *buffer = &body->buffers.at[b];
            ash_text_add(out, "  %%%u %s ", b, kinds[buffer->kind]);
            ash_type_print(p->dims, &buffer->type, out);
            ash_text_add(out, ", align %u", buffer->align);
            print_root(p, buffer, out);
            if (loop->offsets[b] >= 0) ash_text_add(out, " + %" PRId64, loop->offsets[b]);
            ash_text_add(out, "%s\n", buffer->bound ? ", bound" : "");
        }
        for (size_t s = 0; s < body->steps.len; s++) {
            const ash_step *step = &body->steps.at[s];
            ash_text_add(out, "  #%zu ", s);
            print_subject(body, step, out);
            quote(out, ash_plan__step_name(step));
            ash_text_add(out, ", ");
            ash_dims_print(p->dims, step->chunks, out);
            ash_text_add(out, " chunks\n");
            print_accesses(step, out);
        }
        print_loops(body, out);
    }
}

static void print_entry(const ash_plan_core *core, const ash_plan_entry *entry, ash_text *out) {
    ash_text_add(out, " %u + %" PRIu64, entry->slot, entry->offset);
    print_shift(&core->program, entry->shift, out);
}

static void print_entries(const ash_plan_core *core, ash_text *out) {
    ash_text_add(out, "\nentries of %u\n", core->n_table);
    for (uint32_t b = 0; b < core->n_buffers; b++) {
        uint32_t first = core->first_entry[b], end = core->first_entry[b + 1];
        if (first < end) ash_text_add(out, "  %%%u:", b);
        for (uint32_t i = first; i < end; i++) print_entry(core, &core->entries[i], out);
        if (first < end) ash_text_add(out, "\n");
    }
}

static void print_commands(const ash_plan_core *core, ash_text *out) {
    static const char *const names[] = {
        [ASH_COMMAND_LAUNCH] = "launch #", [ASH_COMMAND_COPY] = "copy #", [ASH_COMMAND_HOST] = "host #",
        [ASH_COMMAND_REPEAT] = "repeat #", [ASH_COMMAND_FILL] = "fill %", [ASH_COMMAND_STORE] = "store ",
        [ASH_COMMAND_RECORD] = "record ",  [ASH_COMMAND_WAIT] = "wait "};
    ash_text_add(out, "\ncommands\n");
    for (uint32_t i = 0; i < core->n_commands; i++) {
        const ash_plan_command *c = &core->commands[i];
        uint32_t subject = c->kind == ASH_COMMAND_FILL ? core->fills[c->subject] : c->subject;
        ash_text_add(out, "  %s%u on %u", names[c->kind], subject, c->stream);
        if (c->kind < ASH_COMMAND_RECORD)
            ash_text_add(out, ", at +%" PRIu64, ash_plan_core__distance(core, c));
        ash_text_add(out, "\n");
    }
}

ash_status ash_plan_core__print(const ash_plan_core *core, ash_text *out, ash_diag *diag) {
    print_head(core, out);
    print_vars(core, out);
    print_buffers(core, out);
    print_arenas(core, out);
    ASH_TRY(print_kernels(core, out, diag));
    print_steps(core, out);
    print_loops(&core->program, out);
    print_entries(core, out);
    print_commands(core, out);
    return ash_text_status(out, diag);
}
