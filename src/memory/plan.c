/* SPDX-License-Identifier: MIT */
/* The plan object: runs the planner that the options name, hands offsets out to buffers, certifies and
 * checks. */
#include "plan.h"

#include "ashlar/version.h"
#include "instance.h"
#include "remap.h"
#include "search.h"

/* --- arena mode -------------------------------------------------------------------------------------- */

/* Lifetimes that are all one, for arena_no_reuse. The load stays that of the real ones. */
static void forget_time(const ash_allocator *a, ash_memory__pack *pack) {
    ash_mem_free(a, pack->conflicts, pack->row ? pack->row[pack->count] : 0, sizeof *pack->conflicts);
    ash_mem_free(a, pack->row, (size_t)pack->count + 1, sizeof *pack->row);
    pack->conflicts = NULL;
    pack->row = NULL;
    pack->columns = pack->count ? 1 : 0;
    for (uint32_t i = 0; i < pack->count; i++) {
        pack->items[i].begin = 0;
        pack->items[i].end = 1;
    }
}

typedef ash_status planner(const ash_allocator *allocator, const ash_memory__pack *pack, uint64_t *offsets,
                           ash_diag *diag);

/* Runs one planner, and keeps its offsets when they are lower than the best; a peak of UINT64_MAX: there
 * are none yet. */
static ash_status attempt(ash_memory__lowering *l, planner *plan, ash_memory_strategy strategy,
                          ash_memory_strategy *found_by, ash_diag *diag) {
    const ash_allocator *a = l->allocator;
    uint32_t n = l->pack->count;
    uint64_t *offsets = l->peak == UINT64_MAX ? l->best : ash_mem_alloc(a, n, sizeof *offsets);
    if (!offsets) return ASH_NO_MEMORY(diag);
    ash_status status = plan(a, l->pack, offsets, diag);
    uint64_t reached = status == ASH_OK ? ash_memory__peak(l->pack, offsets) : UINT64_MAX;
    if (reached < l->peak) {
        if (offsets != l->best) memcpy(l->best, offsets, n * sizeof *offsets);
        l->peak = reached;
        *found_by = strategy;
    }
    if (offsets != l->best) ash_mem_free(a, offsets, n, sizeof *offsets);
    return status;
}

/* About a second, a quarter of one, and what is left of either where the gap is below a thousandth. Where a
 * capacity is given, failing is dear: FITTING times as much may be spent. */
enum { NODES_SEARCH = 400000, NODES_AUTO = 100000, NODES_NEAR = 10000, FITTING = 4 };

static void init_budget(const ash_memory_options *options, ash_memory__budget *b) {
    uint64_t nodes = options->strategy == ASH_MEMORY_SEARCH ? NODES_SEARCH : NODES_AUTO;
    if (options->node_budget) nodes = options->node_budget;
    if (options->capacity) nodes = ASH_MIN(nodes, UINT64_MAX / FITTING) * FITTING;
    ash_memory__budget_init(b, nodes, options->time_limit_ns);
    if (!options->node_budget && !options->capacity) b->near_nodes = NODES_NEAR;
    b->progress = &options->progress;
}

/* The strategies, cheapest first, until one finds what is enough, from a peak of UINT64_MAX on. */
static ash_status pack_lane(ash_memory__lowering *l, const ash_memory__class *classes,
                            const ash_memory_options *options, ash_memory_strategy *found_by,
                            ash_diag *diag) {
    ash_memory_strategy strategy = options->strategy;
    bool any = strategy == ASH_MEMORY_AUTO || strategy == ASH_MEMORY_SEARCH;
    l->proven = l->pack->load;
    if (any || strategy == ASH_MEMORY_TLSF)
        ASH_TRY(attempt(l, ash_memory__tlsf, ASH_MEMORY_TLSF, found_by, diag));
    if (any && l->peak > l->budget->enough && !options->arena_no_reuse) {
        uint64_t before = l->peak;
        ASH_TRY(ash_memory__outward(l, classes, diag));
        if (l->peak > l->budget->enough) ASH_TRY(ash_memory__search(l, diag));
        if (l->peak < before) *found_by = ASH_MEMORY_SEARCH;
    }
    /* The search has decreasing size among its orders, unless there are too many items for orders. */
    if (strategy == ASH_MEMORY_BEST_FIT || (any && l->peak > l->budget->enough))
        ASH_TRY(attempt(l, ash_memory__best_fit, ASH_MEMORY_BEST_FIT, found_by, diag));
    return ASH_OK;
}

/* A lane of an instance, the same way down whatever the capacity, which only says where it may end, and
 * that it may take longer: so no call finds less than another with fewer steps, and a refusal names what no
 * other call finds in as many. The arena's load becomes its proven bound. */
static ash_status plan_lane(const ash_memory__instance *in, uint32_t lane,
                            const ash_memory_options *options, ash_memory__budget *budget,
                            uint64_t *offsets, ash_memory_arena *arena, ash_diag *diag) {
    const ash_memory__pack *pack = &in->packs[lane];
    uint64_t before = budget->spent, capacity = options->capacity / pack->unit;
    if (options->capacity && capacity < pack->load) budget->nodes /= FITTING; /* only to be named */
    budget->enough = ASH_MAX(capacity, pack->load);
    ash_memory__lowering l = {
        .allocator = in->allocator, .pack = pack, .budget = budget, .best = offsets, .peak = UINT64_MAX};
    ASH_TRY(pack_lane(&l, in->classes, options, &arena->found_by, diag));
    arena->nodes = budget->spent - before;
    uint64_t bound = ASH_MAX(arena->lower_bound, ash_align_up(l.proven * pack->unit, pack->granule));
    if (bound > arena->lower_bound) {
        arena->lower_bound = bound;
        if (l.peak == l.proven) arena->certificate = ASH_MEMORY_OPTIMAL_BY_SEARCH;
    }
    return ASH_OK;
}

/* Offsets of a pack's items become places of roots; the arena learns its extent. */
static void place_items(const ash_memory__instance *in, const ash_memory__pack *pack, uint32_t index,
                        const uint64_t *offsets, ash_memory_plan *plan) {
    for (uint32_t i = 0; i < pack->count; i++) {
        if (pack->items[i].class == ASH_MEMORY_NONE) continue;
        const ash_memory__class *c = &in->classes[pack->items[i].class];
        plan->places[c->root].offset = offsets[i] * pack->unit;
        plan->arenas[index].used = ASH_MAX(plan->arenas[index].used, offsets[i] * pack->unit + c->size);
    }
}

static void certify(ash_memory_arena *arena) {
    if (arena->certificate == ASH_MEMORY_GAP && arena->size == arena->lower_bound)
        arena->certificate = ASH_MEMORY_OPTIMAL_BY_LOAD;
}

static uint64_t lane_bound(const ash_memory__pack *pack) {
    return ash_align_up(ASH_MAX(pack->load * pack->unit, pack->least), pack->granule);
}

/* Whether a lane holds nothing but states, which share with nobody: its size is what it is. */
static bool holds_states(const ash_memory__instance *in, uint32_t lane) {
    bool all = true;
    for (uint32_t c = 0; c < in->class_count && all; c++)
        if (in->classes[c].lane == lane && in->classes[c].reason == ASH_MEMORY_PLACED)
            all = in->problem->buffers[in->classes[c].root].kind == ASH_MEMORY_STATE;
    return all;
}

static ash_status plan_arenas(ash_memory__instance *in, const ash_memory_options *options,
                              ash_memory_plan *plan, ash_diag *diag) {
    ash_memory__budget b;
    init_budget(options, &b);
    ASH_TRY(ash_progress__report(&options->progress, ASH_STAGE_MEMORY, 0, b.nodes, diag));
    for (uint32_t lane = 0; lane < in->lane_count; lane++) {
        ash_memory__pack *pack = &in->packs[lane];
        ash_memory_arena *arena = &plan->arenas[lane];
        *arena = (ash_memory_arena){.lane = in->lanes[lane],
                                    .align = 1,
                                    .used = pack->least,
                                    .load = lane_bound(pack),
                                    .lower_bound = lane_bound(pack),
                                    .moment = pack->moment,
                                    .found_by = options->strategy};
        if (options->arena_no_reuse) forget_time(in->allocator, pack);
        uint64_t *offsets = ash_mem_alloc(in->allocator, pack->count, sizeof *offsets);
        if (!offsets) return ASH_NO_MEMORY(diag);
        ash_status status = plan_lane(in, lane, options, &b, offsets, arena, diag);
        if (status == ASH_OK) place_items(in, pack, lane, offsets, plan);
        ash_mem_free(in->allocator, offsets, pack->count, sizeof *offsets);
        ASH_TRY(status);
        ASH_FAIL_IF(b.stopped, diag, ASH_ERROR_CANCELLED, "cancelled at stage %s",
                    ash_stage_text(ASH_STAGE_MEMORY));
        arena->size = ash_align_up(arena->used, pack->granule);
        ASH_FAIL_IF(
            options->capacity && arena->used > options->capacity && !holds_states(in, lane), diag,
            ASH_ERROR_BUDGET,
            "lane %u does not fit into %llu bytes: the smallest packing found has %llu, the bound is %llu",
            arena->lane, (unsigned long long)options->capacity, (unsigned long long)arena->used,
            (unsigned long long)arena->lower_bound);
        certify(arena);
    }
    for (uint32_t c = 0; c < in->class_count; c++) {
        const ash_memory__class *class = &in->classes[c];
        if (class->reason != ASH_MEMORY_PLACED) continue;
        ash_memory_arena *arena = &plan->arenas[class->lane];
        ash_memory_place *place = &plan->places[class->root];
        place->arena = class->lane;
        if (class->pinned != ASH_MEMORY_UNPINNED) place->offset = class->pinned;
        arena->align = ASH_MAX(arena->align, class->align);
        arena->unshared += class->size;
        arena->buffers++;
    }
    return ASH_OK;
}

/* --- disabled and remap: many allocations --------------------------------------------------------- */

static ash_status plan_allocations(const ash_memory__instance *in, const uint32_t *slot_of, bool round,
                                   const ash_memory_options *options, ash_memory_plan *plan,
                                   ash_diag *diag) {
    for (uint32_t c = 0; c < in->class_count; c++) {
        const ash_memory__class *class = &in->classes[c];
        if (class->reason != ASH_MEMORY_PLACED) continue;
        ash_memory_arena *arena = &plan->arenas[slot_of[c]];
        bool state = in->problem->buffers[class->root].kind == ASH_MEMORY_STATE;
        ASH_FAIL_IF(options->capacity && class->size > options->capacity && !state, diag, ASH_ERROR_BUDGET,
                    "%s has %llu bytes, the capacity is %llu",
                    ash_memory__label_of(in->problem, class->root).text, (unsigned long long)class->size,
                    (unsigned long long)options->capacity);
        arena->lane = in->lanes[class->lane];
        arena->key = round ? in->problem->buffers[class->root].key : 0;
        arena->align = ASH_MAX(ASH_MAX(arena->align, class->align), 1);
        if (class->size > arena->used || !arena->buffers) {
            arena->used = arena->load = arena->lower_bound = class->size;
            arena->size = round ? ash_memory__remap_size(class->size) : class->size;
            arena->moment = class->begin;
            plan->moments[slot_of[c]] = class->root;
        }
        arena->unshared += class->size;
        arena->buffers++;
        plan->places[class->root].arena = slot_of[c];
    }
    for (uint32_t i = 0; i < plan->arena_count; i++) {
        plan->moment_at[i + 1] = i + 1;
        certify(&plan->arenas[i]);
    }
    return ASH_OK;
}

/* --- all modes ------------------------------------------------------------------------------------ */

static ash_status make_room(ash_memory_plan *plan, uint32_t arenas, size_t moments, ash_diag *diag) {
    const ash_allocator *a = &plan->allocator;
    plan->arena_count = arenas;
    plan->moment_room = moments;
    plan->arenas = ash_mem_calloc(a, arenas, sizeof *plan->arenas);
    plan->moments = ash_mem_alloc(a, moments, sizeof *plan->moments);
    plan->moment_at = ash_mem_calloc(a, (size_t)arenas + 1, sizeof *plan->moment_at);
    return plan->arenas && plan->moments && plan->moment_at ? ASH_OK : ASH_NO_MEMORY(diag);
}

/* Records which roots make each lane's load; room was made for the largest lane's at a time. */
static ash_status record_moments(const ash_memory__instance *in, ash_memory_plan *plan, ash_diag *diag) {
    int64_t *cut = ash_mem_alloc(in->allocator, in->streams, sizeof *cut);
    if (!cut) return ASH_NO_MEMORY(diag);
    for (uint32_t lane = 0; lane < in->lane_count; lane++)
        plan->moment_at[lane + 1] =
            plan->moment_at[lane] +
            ash_memory__moment(in, &in->packs[lane], cut, plan->moments + plan->moment_at[lane]);
    ash_mem_free(in->allocator, cut, in->streams, sizeof *cut);
    return ASH_OK;
}

static ash_status run_mode(ash_memory__instance *in, const ash_memory_options *options,
                           ash_memory_plan *plan, ash_diag *diag) {
    const ash_allocator *a = in->allocator;
    if (options->mode == ASH_MEMORY_ARENA) {
        size_t items = 0;
        for (uint32_t lane = 0; lane < in->lane_count; lane++) items += in->packs[lane].count;
        ASH_TRY(make_room(plan, in->lane_count, items, diag));
        ASH_TRY(record_moments(in, plan, diag));
        return plan_arenas(in, options, plan, diag);
    }
    uint32_t *slot_of = ash_mem_alloc(a, in->class_count, sizeof *slot_of), slots = 0;
    if (!slot_of) return ASH_NO_MEMORY(diag);
    bool remap = options->mode == ASH_MEMORY_REMAP;
    ash_status status = ASH_OK;
    if (remap && !options->arena_no_reuse)
        status = ash_memory__remap(in, slot_of, &slots, diag);
    else
        for (uint32_t c = 0; c < in->class_count; c++)
            slot_of[c] = in->classes[c].reason == ASH_MEMORY_PLACED ? slots++ : ASH_MEMORY_NONE;
    if (status == ASH_OK) status = make_room(plan, slots, slots, diag);
    if (status == ASH_OK) status = plan_allocations(in, slot_of, remap, options, plan, diag);
    ash_mem_free(a, slot_of, in->class_count, sizeof *slot_of);
    return status;
}

/* Members lie where their roots do. */
static void place_members(const ash_memory__instance *in, ash_memory_plan *plan) {
    for (uint32_t i = 0; i < plan->buffer_count; i++) {
        const ash_memory_buffer *b = &in->problem->buffers[i];
        const ash_memory__class *c = &in->classes[in->class_of[i]];
        ash_memory_place *place = &plan->places[i];
        place->reason = c->reason;
        if (c->reason != ASH_MEMORY_PLACED) {
            *place = (ash_memory_place){.arena = ASH_MEMORY_NONE, .reason = c->reason};
            plan->summary.left_out++;
            continue;
        }
        plan->summary.placed++;
        if (b->root == ASH_MEMORY_NONE) continue;
        place->arena = plan->places[b->root].arena;
        place->offset = plan->places[b->root].offset + b->root_offset;
    }
}

/* Notes what others may want to know of the buffers. */
static ash_status note_tenants(const ash_memory_problem *problem, ash_memory_plan *plan, ash_diag *diag) {
    ash_memory__tenant *tenants = ash_mem_calloc(&plan->allocator, plan->buffer_count, sizeof *tenants);
    if (!tenants) return ASH_NO_MEMORY(diag);
    plan->tenants = tenants;
    for (uint32_t i = 0; i < plan->buffer_count; i++) {
        const ash_memory_buffer *b = &problem->buffers[i];
        ash_memory__tenant *root = &tenants[b->root == ASH_MEMORY_NONE ? i : b->root];
        root->forever |= ash_memory__forever(b->kind);
        root->to_end |= ash_memory__to_end(b->kind);
    }
    for (uint32_t i = 0; i < plan->buffer_count; i++) {
        const ash_memory_buffer *b = &problem->buffers[i];
        if (b->root != ASH_MEMORY_NONE) tenants[i] = tenants[b->root];
        tenants[i].size = b->size;
        tenants[i].root = b->root == ASH_MEMORY_NONE;
    }
    return ASH_OK;
}

static ash_status sum_up(const ash_memory__instance *in, bool arena_mode, ash_memory_plan *plan,
                         ash_diag *diag) {
    ash_memory_summary *s = &plan->summary;
    s->arenas = plan->arena_count;
    for (uint32_t lane = 0; lane < in->lane_count; lane++)
        s->lower_bound += arena_mode ? plan->arenas[lane].lower_bound : lane_bound(&in->packs[lane]);
    bool searched = false;
    for (uint32_t i = 0; i < plan->arena_count; i++) {
        ASH_FAIL_IF(!ash_add_u64(s->size, plan->arenas[i].size, &s->size), diag, ASH_ERROR_OUT_OF_RANGE,
                    "the arenas add up to more than 64 bits of bytes");
        s->unshared += plan->arenas[i].unshared;
        searched |= plan->arenas[i].certificate == ASH_MEMORY_OPTIMAL_BY_SEARCH;
    }
    bool gap = false;
    for (uint32_t i = 0; i < plan->arena_count; i++) gap |= plan->arenas[i].certificate == ASH_MEMORY_GAP;
    if (s->size != s->lower_bound || (arena_mode && gap))
        s->certificate = ASH_MEMORY_GAP;
    else
        s->certificate = searched ? ASH_MEMORY_OPTIMAL_BY_SEARCH : ASH_MEMORY_OPTIMAL_BY_LOAD;
    return ASH_OK;
}

static ash_status check_options(const ash_memory_options *options, ash_diag *diag) {
    ASH_FAIL_IF((unsigned)options->mode >= ASH_MEMORY_MODE_COUNT, diag, ASH_ERROR_INVALID_ARGUMENT,
                "unknown planner mode %d", (int)options->mode);
    ASH_FAIL_IF((unsigned)options->strategy >= ASH_MEMORY_STRATEGY_COUNT, diag, ASH_ERROR_INVALID_ARGUMENT,
                "unknown strategy %d", (int)options->strategy);
    for (size_t i = 0; i < ASH_COUNT(options->reserved); i++)
        ASH_FAIL_IF(options->reserved[i], diag, ASH_ERROR_UNSUPPORTED,
                    "ash_memory_options has something set that ashlar " ASH_VERSION " does not know");
    return ASH_OK;
}

static bool is_pinned(const ash_memory_problem *problem, uint32_t root) {
    for (uint32_t i = 0; i < problem->buffer_count; i++)
        if ((i == root || problem->buffers[i].root == root) &&
            problem->buffers[i].pinned != ASH_MEMORY_UNPINNED)
            return true;
    return root == ASH_MEMORY_NONE; /* a hole */
}

/* The planners keep to what is pinned, so a clash of two pinned ones is the caller's. */
static ash_status check_plan(ash_context *context, const ash_memory_problem *problem,
                             const ash_memory_plan *plan, ash_diag *diag) {
    ash_memory_check_report report;
    ash_status status =
        ash_memory_check(context, problem, plan->places, plan->arenas, plan->arena_count, &report, diag);
    uint32_t a = report.clash[0], b = report.clash[1];
    if (status != ASH_ERROR_INTERNAL || a == b || !is_pinned(problem, a) || !is_pinned(problem, b))
        return status;
    if (a == ASH_MEMORY_NONE || b == ASH_MEMORY_NONE)
        return ash_fail(diag, ASH_ERROR_INVALID_ARGUMENT, "%s is pinned into a hole",
                        ash_memory__label_of(problem, a == ASH_MEMORY_NONE ? b : a).text);
    return ash_fail(diag, ASH_ERROR_INVALID_ARGUMENT,
                    "%s and %s are pinned to the same bytes and live together",
                    ash_memory__label_of(problem, a).text, ash_memory__label_of(problem, b).text);
}

ash_status ash_memory_plan_create(ash_context *context, const ash_memory_problem *problem,
                                  const ash_memory_options *options, ash_memory_plan **out,
                                  ash_diag *diag) {
    ASH_NEED(diag, out);
    *out = NULL;
    ASH_NEED(diag, context, problem);
    ash_memory_options defaults = ash_memory_options_inference();
    if (!options) options = &defaults;
    ASH_TRY(check_options(options, diag));
    const ash_allocator *a = ash_context__allocator(context);
    ash_memory__instance instance;
    ASH_TRY(ash_memory__instance_init(&instance, a, problem, options, diag));
    ash_memory_plan *plan = ash_mem_calloc(a, 1, sizeof *plan);
    ash_status status = ASH_OK;
    ASH_FAIL_IF_DONE(!plan, diag, ASH_ERROR_OUT_OF_MEMORY, "out of memory");
    plan->allocator = *a;
    plan->mode = options->mode;
    plan->buffer_count = problem->buffer_count;
    plan->places = ash_mem_calloc(a, problem->buffer_count, sizeof *plan->places);
    ASH_FAIL_IF_DONE(!plan->places, diag, ASH_ERROR_OUT_OF_MEMORY, "out of memory");
    ASH_TRY_DONE(run_mode(&instance, options, plan, diag));
    place_members(&instance, plan);
    ASH_TRY_DONE(sum_up(&instance, options->mode == ASH_MEMORY_ARENA, plan, diag));
done:
    ash_memory__instance_free(&instance);
    if (status == ASH_OK) status = check_plan(context, problem, plan, diag);
    if (status == ASH_OK) status = note_tenants(problem, plan, diag);
    if (status == ASH_OK)
        *out = plan;
    else
        ash_memory_plan_destroy(plan);
    return status;
}

static void *copy(const ash_allocator *a, const void *from, size_t count, size_t size) {
    void *to = ash_mem_alloc(a, count, size);
    if (to && count) memcpy(to, from, count * size);
    return to;
}

ash_memory_plan *ash_memory_plan__copy(const ash_memory_plan *plan, const ash_allocator *a) {
    ash_memory_plan *to = copy(a, plan, 1, sizeof *plan);
    if (!to) return NULL;
    to->allocator = *a;
    to->places = copy(a, plan->places, plan->buffer_count, sizeof *plan->places);
    to->tenants = copy(a, plan->tenants, plan->buffer_count, sizeof *plan->tenants);
    to->arenas = copy(a, plan->arenas, plan->arena_count, sizeof *plan->arenas);
    to->moments = copy(a, plan->moments, plan->moment_room, sizeof *plan->moments);
    to->moment_at = copy(a, plan->moment_at, (size_t)plan->arena_count + 1, sizeof *plan->moment_at);
    if (to->places && to->tenants && to->arenas && to->moments && to->moment_at) return to;
    ash_memory_plan_destroy(to);
    return NULL;
}

void ash_memory_plan_destroy(ash_memory_plan *plan) {
    if (!plan) return;
    ash_allocator a = plan->allocator;
    ash_mem_free(&a, plan->moment_at, (size_t)plan->arena_count + 1, sizeof *plan->moment_at);
    ash_mem_free(&a, plan->moments, plan->moment_room, sizeof *plan->moments);
    ash_mem_free(&a, plan->arenas, plan->arena_count, sizeof *plan->arenas);
    ash_mem_free(&a, plan->tenants, plan->buffer_count, sizeof *plan->tenants);
    ash_mem_free(&a, plan->places, plan->buffer_count, sizeof *plan->places);
    ash_mem_free(&a, plan, 1, sizeof *plan);
}

const ash_memory_place *ash_memory_plan_places(const ash_memory_plan *plan, size_t *count) {
    if (count) *count = plan ? plan->buffer_count : 0;
    return plan ? plan->places : NULL;
}

const ash_memory_arena *ash_memory_plan_arenas(const ash_memory_plan *plan, size_t *count) {
    if (count) *count = plan ? plan->arena_count : 0;
    return plan ? plan->arenas : NULL;
}

const uint32_t *ash_memory_plan_moment(const ash_memory_plan *plan, size_t arena, size_t *count) {
    bool there = plan && arena < plan->arena_count;
    if (count) *count = there ? (uint32_t)(plan->moment_at[arena + 1] - plan->moment_at[arena]) : 0;
    return there ? plan->moments + plan->moment_at[arena] : NULL;
}

ash_memory_summary ash_memory_plan_summary(const ash_memory_plan *plan) {
    return plan ? plan->summary : (ash_memory_summary){0};
}
