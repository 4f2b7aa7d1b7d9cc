/* SPDX-License-Identifier: MIT */
/* Options: presets, names, and the environment. */
#include <errno.h>
#include <stdlib.h>

#include "ashlar/memory.h"
#include "base/base.h"

static const char *const mode_names[ASH_MEMORY_MODE_COUNT] = {
    [ASH_MEMORY_DISABLED] = "disabled", [ASH_MEMORY_REMAP] = "remap", [ASH_MEMORY_ARENA] = "arena"};
static const char *const strategy_names[ASH_MEMORY_STRATEGY_COUNT] = {[ASH_MEMORY_AUTO] = "auto",
                                                                      [ASH_MEMORY_TLSF] = "tlsf",
                                                                      [ASH_MEMORY_BEST_FIT] = "best_fit",
                                                                      [ASH_MEMORY_SEARCH] = "search"};
static const char *const kind_names[ASH_MEMORY_KIND_COUNT] = {[ASH_MEMORY_INTERMEDIATE] = "intermediate",
                                                              [ASH_MEMORY_PARAMETER] = "parameter",
                                                              [ASH_MEMORY_INPUT] = "input",
                                                              [ASH_MEMORY_CONSTANT] = "constant",
                                                              [ASH_MEMORY_OUTPUT] = "output",
                                                              [ASH_MEMORY_STATE] = "state"};

const char *ash_memory_mode_text(ash_memory_mode mode) {
    return (unsigned)mode < ASH_MEMORY_MODE_COUNT ? mode_names[mode] : "unknown";
}

const char *ash_memory_strategy_text(ash_memory_strategy strategy) {
    return (unsigned)strategy < ASH_MEMORY_STRATEGY_COUNT ? strategy_names[strategy] : "unknown";
}

const char *ash_memory_kind_text(ash_memory_kind kind) {
    return (unsigned)kind < ASH_MEMORY_KIND_COUNT ? kind_names[kind] : "unknown";
}

ash_memory_buffer ash_memory_buffer_init(uint64_t size, uint64_t align, int64_t begin, int64_t end) {
    return (ash_memory_buffer){.size = size,
                               .align = align,
                               .begin = begin,
                               .end = end,
                               .pinned = ASH_MEMORY_UNPINNED,
                               .root = ASH_MEMORY_NONE};
}

ash_memory_options ash_memory_options_inference(void) {
    return (ash_memory_options){0};
}

ash_memory_options ash_memory_options_backward_activations_only(void) {
    ash_memory_options options = ash_memory_options_inference();
    options.omit_params = true;
    return options;
}

static ash_status read_bool(const char *name, bool *out, ash_diag *diag) {
    const char *text = ash_environment__get(name);
    if (!text || !*text) return ASH_OK;
    ASH_FAIL_IF(strcmp(text, "0") && strcmp(text, "1"), diag, ASH_ERROR_INVALID_ARGUMENT,
                "%s is \"%.60s\", not 0 or 1", name, text);
    *out = *text == '1';
    return ASH_OK;
}

static ash_status read_choice(const char *name, const char *const *names, int count, int *out,
                              ash_diag *diag) {
    const char *text = ash_environment__get(name);
    if (!text || !*text) return ASH_OK;
    for (int i = 0; i < count; i++)
        if (!strcmp(text, names[i])) {
            *out = i;
            return ASH_OK;
        }
    return ash_fail(diag, ASH_ERROR_INVALID_ARGUMENT, "%s is \"%.60s\", which is unknown", name, text);
}

static ash_status read_number(const char *name, uint64_t scale, uint64_t *out, ash_diag *diag) {
    const char *text = ash_environment__get(name);
    if (!text || !*text) return ASH_OK;
    char *end;
    errno = 0;
    unsigned long long value = strtoull(text, &end, 10);
    ASH_FAIL_IF(*text < '0' || *text > '9' || *end || errno || !ash_mul_u64(value, scale, out), diag,
                ASH_ERROR_INVALID_ARGUMENT, "%s is \"%.60s\", not a number", name, text);
    return ASH_OK;
}

ash_status ash_memory_options_from_environment(ash_memory_options *options, ash_diag *diag) {
    ASH_NEED(diag, options);
    ash_memory_options o = *options;
    int mode = (int)o.mode, strategy = (int)o.strategy;
    bool params = !o.omit_params, inputs = !o.omit_inputs, constants = !o.omit_constants;
    ASH_TRY(read_bool("ASHLAR_ARENA_NO_REUSE", &o.arena_no_reuse, diag));
    ASH_TRY(read_bool("ASHLAR_PIN_OUTPUT_ANCESTORS", &o.pin_output_ancestors, diag));
    ASH_TRY(read_bool("ASHLAR_ALLOCATE_PARAMS", &params, diag));
    ASH_TRY(read_bool("ASHLAR_ALLOCATE_INPUTS", &inputs, diag));
    ASH_TRY(read_bool("ASHLAR_ALLOCATE_CONSTANTS", &constants, diag));
    ASH_TRY(read_choice("ASHLAR_MEMORY_MODE", mode_names, ASH_MEMORY_MODE_COUNT, &mode, diag));
    ASH_TRY(
        read_choice("ASHLAR_MEMORY_STRATEGY", strategy_names, ASH_MEMORY_STRATEGY_COUNT, &strategy, diag));
    ASH_TRY(read_number("ASHLAR_MEMORY_NODES", 1, &o.node_budget, diag));
    ASH_TRY(read_number("ASHLAR_MEMORY_TIME_MS", 1000000, &o.time_limit_ns, diag));
    o.omit_params = !params;
    o.omit_inputs = !inputs;
    o.omit_constants = !constants;
    o.mode = (ash_memory_mode)mode;
    o.strategy = (ash_memory_strategy)strategy;
    *options = o;
    return ASH_OK;
}
