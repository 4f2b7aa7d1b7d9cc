/* SPDX-License-Identifier: MIT */
/* The pipeline: one table, top to bottom.
 *
 * stacks comes first, so that no other pass meets any. quantize is next: it looks for dequantisation as
 * files spell it, and fold leaves real numbers alone. few_bits comes before fold for the same reason.
 * fold comes before simplify, so that rules see the constants; cse before it, so that "the same operand
 * twice" is the same value. affine wants constants in the form that simplify leaves (one broadcast of a
 * small value). attention comes before reciprocal, so that a softmax is still a quotient. reciprocal comes
 * after affine, so that a division of a channel is one of its weights, and before fold, which computes
 * 1 / c. lookup comes after the last fold, whose functions are not those of
 * kernels. widen comes after affine, so that a normalisation is still next to its convolution, and before
 * layout, which knows f32 alone. layout comes after everything that speaks of channels as dim 1; winograd
 * reads the weights as it has packed them; library, parts and filters are what GPUs have instead of both,
 * in this order, so that the weights are packed as the parts read them. What they insert is then cleaned
 * up by the same passes. sums and ranges are last: the one asks what has operands in common, and simplify
 * would undo the other.
 *
 * A pass that rewrites around certain operators is passed over when the graph has none of them: it would
 * build the same graph once more. */
#include "layout.h"
#include "rewrite.h"

enum {
    PLAIN = 1,     /* no value lies in a form of the target: in blocks of channels, or packed */
    CANONICAL = 2, /* simplify has run: constants to the right, one broadcast for a splat, chains of
                      movement composed */
    COMMON = 4,    /* no operator is the target's alone; rows that break it may make such */
};

typedef struct pass_row {
    const char *name;
    ash_pass *run;
    ash_opt_level level;              /* the strictest level that still has it */
    unsigned needs, breaks, provides; /* sets of the properties above */
    /* Whose business it is; NULL: everyone's, also without a target. */
    bool (*when)(const ash_target *target);
    const ash_op *about; /* it rewrites around these, up to ASH_OP_COUNT; NULL: anything */
} pass_row;

/* Channels side by side in one vector, weights and second operands in the order in which tiles of vectors
 * read them, and Winograd's transforms over such vectors. */
static bool has_vectors(const ash_target *target) {
    return target && target->kind == ASH_TARGET_CPU &&
           ash_target_lanes(target, sizeof(float)) >= ASH_MIN_BLOCK;
}

/* Elements of four bytes put anywhere in a vector, where lanes have masks. */
static bool permutes(const ash_target *target) {
    return has_vectors(target) && target->masks;
}

/* Kernels for products of bytes, which the layout pass finds, and filters on GPUs. */
static bool multiplies_bytes(const ash_target *target) {
    return has_vectors(target) ? target->dot4 : target && target->adds[ASH_GPU_HALVES];
}

/* Tables of bytes, in place of what is computed from one byte. */
static bool looks_up(const ash_target *target) {
    return has_vectors(target) && target->lookup;
}

/* Products as tiles in the memory of a block of threads. */
static bool has_blocks(const ash_target *target) {
    return target && target->kind == ASH_TARGET_GPU;
}

/* So many of them that a product has to have tiles for all. */
static bool has_multiprocessors(const ash_target *target) {
    return has_blocks(target) && target->multiprocessors;
}

/* Products that are not kernels of ours. */
static bool has_library(const ash_target *target) {
    return has_multiprocessors(target) && target->library;
}

/* Products with weights that stay packed. */
static bool keeps_few_bits(const ash_target *target) {
    return has_vectors(target) || has_blocks(target);
}

/* Softmaxes between products whose scores are not stored. */
static bool attends(const ash_target *target) {
    return has_vectors(target) || has_blocks(target);
}

static const ash_op pieces[] = {ASH_OP_CONCAT, ASH_OP_COUNT}, casts[] = {ASH_OP_CAST, ASH_OP_COUNT},
                    quotients[] = {ASH_OP_DIV, ASH_OP_COUNT}, convolutions[] = {ASH_OP_CONV, ASH_OP_COUNT},
                    stacks[] = {ASH_OP_STACK, ASH_OP_COUNT}, least[] = {ASH_OP_REDUCE_MIN, ASH_OP_COUNT},
                    totals[] = {ASH_OP_REDUCE_SUM, ASH_OP_COUNT},
                    products[] = {ASH_OP_CONV, ASH_OP_CONV_WIDE, ASH_OP_MATMUL, ASH_OP_COUNT},
                    matrices[] = {ASH_OP_MATMUL, ASH_OP_COUNT}, exponentials[] = {ASH_OP_EXP, ASH_OP_COUNT};

static const pass_row pipeline[] = {
    /* name, function, level, needs, breaks, provides, when, about */
    {"dce", ash_opt__dce, ASH_OPT_NONE, 0, 0, 0, NULL, NULL},
    {"stacks", ash_opt__stacks, ASH_OPT_NONE, 0, 0, 0, NULL, stacks},
    {"close", ash_opt__close, ASH_OPT_EXACT, PLAIN, 0, 0, permutes, pieces},
    {"quantize", ash_opt__quantize, ASH_OPT_FULL, PLAIN, 0, 0, multiplies_bytes, casts},
    {"few_bits", ash_opt__few_bits, ASH_OPT_FULL, PLAIN, COMMON, 0, keeps_few_bits, casts},
    {"fold", ash_opt__fold, ASH_OPT_EXACT, PLAIN, 0, 0, NULL, NULL},
    {"cse", ash_opt__cse, ASH_OPT_EXACT, 0, 0, 0, NULL, NULL},
    {"simplify", ash_opt__simplify, ASH_OPT_EXACT, 0, 0, CANONICAL, NULL, NULL},
    {"cse", ash_opt__cse, ASH_OPT_EXACT, 0, 0, 0, NULL, NULL},
    {"affine", ash_opt__affine, ASH_OPT_FULL, PLAIN | CANONICAL, CANONICAL, 0, NULL, products},
    {"attention", ash_opt__attention, ASH_OPT_FULL, PLAIN, CANONICAL | COMMON, 0, attends, exponentials},
    {"reciprocal", ash_opt__reciprocal, ASH_OPT_FULL, PLAIN, CANONICAL, 0, NULL, quotients},
    {"fold", ash_opt__fold, ASH_OPT_EXACT, PLAIN, 0, 0, NULL, NULL},
    {"simplify", ash_opt__simplify, ASH_OPT_EXACT, 0, 0, CANONICAL, NULL, NULL},
    {"cse", ash_opt__cse, ASH_OPT_EXACT, 0, 0, 0, NULL, NULL},
    {"lookup", ash_opt__lookup, ASH_OPT_EXACT, PLAIN, CANONICAL, 0, looks_up, casts},
    {"widen", ash_opt__widen, ASH_OPT_FULL, PLAIN, CANONICAL, 0, NULL, products},
    {"layout", ash_opt__layout, ASH_OPT_FULL, PLAIN, PLAIN | CANONICAL | COMMON, 0, has_vectors, NULL},
    {"winograd", ash_opt__winograd, ASH_OPT_FULL, 0, CANONICAL, 0, has_vectors, convolutions},
    {"library", ash_opt__library, ASH_OPT_FULL, PLAIN, COMMON, 0, has_library, matrices},
    {"parts", ash_opt__parts, ASH_OPT_FULL, PLAIN, CANONICAL | COMMON, 0, has_multiprocessors, products},
    {"filters", ash_opt__filters, ASH_OPT_FULL, PLAIN, PLAIN | CANONICAL | COMMON, 0, has_blocks, products},
    {"simplify", ash_opt__simplify, ASH_OPT_EXACT, 0, 0, CANONICAL, NULL, NULL},
    {"cse", ash_opt__cse, ASH_OPT_EXACT, 0, 0, 0, NULL, NULL},
    {"dce", ash_opt__dce, ASH_OPT_NONE, 0, 0, 0, NULL, NULL},
    {"sums", ash_opt__sums, ASH_OPT_FULL, 0, COMMON, 0, has_vectors, totals},
    {"ranges", ash_opt__ranges, ASH_OPT_FULL, 0, CANONICAL, 0, has_vectors, least},
};

const char *ash_opt__pass_at(size_t position) {
    return position < ASH_COUNT(pipeline) ? pipeline[position].name : NULL;
}

static ash_status check_options(const ash_graph *graph, const ash_opt_options *options, ash_diag *diag) {
    for (size_t i = 0; i < options->n_off; i++) {
        size_t r = 0;
        while (r < ASH_COUNT(pipeline) && strcmp(pipeline[r].name, options->off[i])) r++;
        ASH_FAIL_IF(r == ASH_COUNT(pipeline), diag, ASH_ERROR_NOT_FOUND, "there is no pass '%s'",
                    options->off[i]);
    }
    for (size_t i = 0; i < options->n_keep; i++)
        ASH_FAIL_IF(options->keep[i] >= graph->values.len, diag, ASH_ERROR_NOT_FOUND,
                    "there is no value %u to keep in the graph '%s'", (unsigned)options->keep[i],
                    graph->name ? graph->name : "");
    return ASH_OK;
}

/* Whether the graph has what the pass is about. */
static bool concerns(const pass_row *pass, const ash_graph *graph) {
    for (size_t i = 0; pass->about && i < graph->nodes.len; i++)
        for (const ash_op *op = pass->about; *op != ASH_OP_COUNT; op++)
            if (graph->nodes.at[i].op == *op) return true;
    return !pass->about;
}

static bool is_on(const pass_row *pass, const ash_target *target, const ash_opt_options *options) {
    if (pass->level < options->level || (pass->when && !pass->when(target))) return false;
    for (size_t i = 0; i < options->n_off; i++)
        if (!strcmp(pass->name, options->off[i])) return false;
    return true;
}

ash_status ash_opt__report(const ash_opt *opt, ash_diag *diag) {
    return ash_progress__report(opt->progress, ASH_STAGE_OPTIMIZE, opt->pass, opt->passes, diag);
}

/* Runs the rows that are on. A row whose requirements do not hold is left out: affine without simplify
 * would find nothing that it knows, and layout does not block twice. */
static ash_status run_rows(ash_opt *opt, const ash_opt_options *options, ash_graph **out, ash_diag *diag) {
    unsigned properties = opt->source->internal ? 0 : PLAIN;
    ash_graph *graph = NULL;
    for (size_t r = 0; r < ASH_COUNT(pipeline); r++) {
        const pass_row *pass = &pipeline[r];
        if (!is_on(pass, opt->target, options) || (properties & pass->needs) != pass->needs) continue;
        if (!concerns(pass, graph ? graph : opt->source)) continue;
        ash_graph *next = NULL;
        opt->pass = r;
        opt->internal = pass->breaks & COMMON;
        ash_status status = ash_opt__report(opt, diag);
        if (status == ASH_OK) status = pass->run(opt, graph ? graph : opt->source, &next, diag);
        ash_graph_destroy(graph);
        graph = next;
        if (status == ASH_OK) status = ash_graph_verify(graph, diag);
        if (status != ASH_OK) {
            if (status == ASH_ERROR_INTERNAL) ash_diag__add_node(diag, NULL, pass->name, ASH_NO_OFFSET);
            ash_graph_destroy(graph);
            return status;
        }
        properties = (properties & ~pass->breaks) | pass->provides;
        if (options->dump) options->dump(options->dump_user, pass->name, graph);
    }
    *out = graph;
    return ASH_OK;
}

ash_status ash_opt__run(const ash_graph *graph, const ash_target *target, const ash_opt_options *options,
                        ash_graph **out, ash_diag *diag) {
    static const ash_opt_options defaults;
    if (!options) options = &defaults;
    ASH_TRY(ash_graph_status(graph, diag));
    ASH_TRY(check_options(graph, options, diag));
    ash_opt opt = {.source = graph,
                   .target = target,
                   .exact = options->level >= ASH_OPT_EXACT,
                   .progress = options->progress,
                   .passes = ASH_COUNT(pipeline)};
    opt.kept = ash_mem_calloc(graph->allocator, graph->values.len, sizeof *opt.kept);
    if (!opt.kept) return ASH_NO_MEMORY(diag);
    for (size_t i = 0; i < options->n_keep; i++) opt.kept[options->keep[i]] = true;
    ash_status status = run_rows(&opt, options, out, diag);
    ash_mem_free(graph->allocator, opt.kept, graph->values.len, sizeof *opt.kept);
    return status;
}
