/* SPDX-License-Identifier: MIT */
/* Positions and buffers, by buffer, by value and by name. */
#include "index.h"

static bool is_parameter(const ash_buffer *b) {
    return b->kind == ASH_BUFFER_PARAMETER && b->root == ASH_NO_BUFFER;
}

/* The first of a name counts; one without is found by position alone. */
static bool add_name(ash_plan_index *index, ash_named kind, const char *name, size_t position) {
    uint64_t before;
    size_t len = name ? strlen(name) : 0;
    if (!name || ash_strmap_get(&index->names[kind], name, len, &before)) return true;
    return ash_strmap_put(&index->names[kind], name, len, position);
}

static bool add_names(ash_plan_index *index, const ash_program *p) {
    bool made = true;
    for (size_t i = 0; i < p->inputs.len; i++)
        made &= add_name(index, ASH_NAMED_INPUT, p->buffers.at[p->inputs.at[i]].name, i);
    for (size_t i = 0; i < p->output_names.len; i++)
        made &= add_name(index, ASH_NAMED_OUTPUT, p->output_names.at[i], i);
    for (size_t i = 0; i < p->states.len; i++)
        made &= add_name(index, ASH_NAMED_STATE, p->buffers.at[p->states.at[i]].name, i);
    for (size_t i = 0; i < index->n_parameters; i++)
        made &= add_name(index, ASH_NAMED_PARAMETER, p->buffers.at[index->parameters[i]].name, i);
    return made;
}

static bool add_values(ash_plan_index *index, const ash_program *p, const ash_layout *layout) {
    bool made = true;
    for (uint32_t b = 0; made && b < p->buffers.len; b++) {
        uint64_t before;
        ash_value value = p->buffers.at[b].origin;
        if (value == ASH_NO_VALUE || layout->places[b].home == ASH_HOME_NONE) continue;
        if (!ash_map_get(&index->values, value, &before)) made = ash_map_put(&index->values, value, b);
    }
    return made;
}

static void add_positions(ash_plan_index *index, const ash_program *p, const ash_layout *layout) {
    for (uint32_t b = 0; b < p->buffers.len; b++) {
        index->input[b] = index->output[b] = ASH_NO_POSITION;
        if (is_parameter(&p->buffers.at[b])) index->parameters[index->n_parameters++] = b;
    }
    for (uint32_t i = 0; i < p->inputs.len; i++) index->input[p->inputs.at[i]] = i;
    uint64_t offset = 0;
    for (uint32_t i = 0; i < p->outputs.len; i++) {
        uint32_t b = p->outputs.at[i];
        index->saved[i] = offset;
        if (index->output[b] != ASH_NO_POSITION) continue;
        index->output[b] = i;
        if (layout->places[b].home == ASH_HOME_MAIN)
            offset += ash_align_up((uint64_t)p->buffers.at[b].bytes, ASH_STORAGE_ALIGN);
    }
    index->saved[p->outputs.len] = offset;
}

ash_status ash_plan_index__create(const ash_allocator *a, const ash_program *p, const ash_layout *layout,
                                  ash_plan_index *out, ash_diag *diag) {
    size_t n = p->buffers.len;
    *out = (ash_plan_index){.allocator = a, .buffers = n, .outputs = p->outputs.len};
    ash_map_init(&out->values, a);
    for (size_t i = 0; i < ASH_NAMED_COUNT; i++) ash_strmap_init(&out->names[i], a);
    out->input = ash_mem_alloc(a, n, sizeof *out->input);
    out->output = ash_mem_alloc(a, n, sizeof *out->output);
    out->parameters = ash_mem_alloc(a, n, sizeof *out->parameters);
    out->saved = ash_mem_alloc(a, out->outputs + 1, sizeof *out->saved);
    bool made = out->input && out->output && out->parameters && out->saved;
    if (made) add_positions(out, p, layout);
    if (made && add_names(out, p) && add_values(out, p, layout)) return ASH_OK;
    ash_plan_index__free(out);
    return ASH_NO_MEMORY(diag);
}

void ash_plan_index__free(ash_plan_index *index) {
    const ash_allocator *a = index->allocator;
    if (!a) return;
    ash_mem_free(a, index->input, index->buffers, sizeof *index->input);
    ash_mem_free(a, index->output, index->buffers, sizeof *index->output);
    ash_mem_free(a, index->parameters, index->buffers, sizeof *index->parameters);
    ash_mem_free(a, index->saved, index->outputs + 1, sizeof *index->saved);
    ash_map_free(&index->values);
    for (size_t i = 0; i < ASH_NAMED_COUNT; i++) ash_strmap_free(&index->names[i]);
    *index = (ash_plan_index){0};
}

ash_status ash_plan_index__find(const ash_plan_index *index, ash_named kind, const char *name, size_t *out,
                                ash_diag *diag) {
    static const char *const what[ASH_NAMED_COUNT] = {[ASH_NAMED_INPUT] = "input",
                                                      [ASH_NAMED_OUTPUT] = "output",
                                                      [ASH_NAMED_PARAMETER] = "parameter",
                                                      [ASH_NAMED_STATE] = "state"};
    uint64_t position;
    ASH_FAIL_IF(!ash_strmap_get(&index->names[kind], name, strlen(name), &position), diag,
                ASH_ERROR_NOT_FOUND, "the plan has no %s \"%.100s\"", what[kind], name);
    *out = (size_t)position;
    return ASH_OK;
}
