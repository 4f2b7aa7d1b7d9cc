/* SPDX-License-Identifier: MIT */
/* From a problem to classes: checks every field, joins aliases to their roots, and widens lifetimes as the
 * kinds and the options ask. Nothing after this file looks at a single buffer again until offsets are
 * handed out. */
#include "instance.h"

#include <stdio.h>

#include "pack.h"
#include "sort.h"

static const uint64_t LARGEST = UINT64_C(1) << 62; /* bytes: sizes, offsets and their sums stay below */
static const uint64_t LARGEST_ALIGN = UINT64_C(1) << 31;
static const int64_t LARGEST_TIME = INT64_C(1) << 62; /* half steps in intervals */
static const int64_t LARGEST_CLOCK = INT64_C(1)
                                     << 48; /* half steps in clocks, so that their sums stay in 64 bits */
enum { LARGEST_STREAMS = 4096, MOST_ITEMS = 1 << 30 };

ash_memory__label ash_memory__label_of(const ash_memory_problem *problem, uint32_t buffer) {
    ash_memory__label label;
    const char *name = problem->buffers[buffer].name;
    if (name)
        snprintf(label.text, sizeof label.text, "buffer %u (%.90s)", buffer, name);
    else
        snprintf(label.text, sizeof label.text, "buffer %u", buffer);
    return label;
}

#define LABEL(i) ash_memory__label_of(problem, (i)).text

static ash_status check_buffer(const ash_memory_problem *problem, const ash_memory_options *options,
                               uint32_t i, ash_diag *diag) {
    const ash_memory_buffer *b = &problem->buffers[i];
    uint64_t align = b->align ? b->align : 1;
    ASH_FAIL_IF((unsigned)b->kind >= ASH_MEMORY_KIND_COUNT, diag, ASH_ERROR_INVALID_ARGUMENT,
                "%s: unknown kind %d", LABEL(i), (int)b->kind);
    ASH_FAIL_IF(!ash_is_pow2(align) || align > LARGEST_ALIGN, diag, ASH_ERROR_INVALID_ARGUMENT,
                "%s: alignment %llu is not a power of two up to 2^31", LABEL(i), (unsigned long long)align);
    ASH_FAIL_IF(b->size > LARGEST, diag, ASH_ERROR_OUT_OF_RANGE, "%s: %llu bytes are more than 2^62",
                LABEL(i), (unsigned long long)b->size);
    if (!problem->streams) {
        ASH_FAIL_IF(b->begin > b->end, diag, ASH_ERROR_INVALID_ARGUMENT,
                    "%s: lifetime [%lld, %lld) ends before it begins", LABEL(i), (long long)b->begin,
                    (long long)b->end);
        ASH_FAIL_IF(b->begin < -LARGEST_TIME || b->end > LARGEST_TIME, diag, ASH_ERROR_OUT_OF_RANGE,
                    "%s: lifetime [%lld, %lld) leaves 62 bits", LABEL(i), (long long)b->begin,
                    (long long)b->end);
    }
    if (b->pinned != ASH_MEMORY_UNPINNED) {
        ASH_FAIL_IF(options->mode != ASH_MEMORY_ARENA, diag, ASH_ERROR_INVALID_ARGUMENT,
                    "%s: a pinned offset needs mode arena", LABEL(i));
        ASH_FAIL_IF(b->pinned > LARGEST || b->pinned + b->size > LARGEST, diag, ASH_ERROR_OUT_OF_RANGE,
                    "%s: pinned at %llu, it ends past 2^62 bytes", LABEL(i), (unsigned long long)b->pinned);
        ASH_FAIL_IF(b->pinned % align, diag, ASH_ERROR_INVALID_ARGUMENT,
                    "%s: pinned at %llu, which is no multiple of its alignment %llu", LABEL(i),
                    (unsigned long long)b->pinned, (unsigned long long)align);
    }
    if (b->root == ASH_MEMORY_NONE) {
        ASH_FAIL_IF(b->root_offset, diag, ASH_ERROR_INVALID_ARGUMENT,
                    "%s: has an offset in its root, but no root", LABEL(i));
        return ASH_OK;
    }
    ASH_FAIL_IF(b->root >= problem->buffer_count || b->root == i, diag, ASH_ERROR_INVALID_ARGUMENT,
                "%s: its root %u is no other buffer", LABEL(i), b->root);
    const ash_memory_buffer *root = &problem->buffers[b->root];
    ASH_FAIL_IF(root->root != ASH_MEMORY_NONE, diag, ASH_ERROR_INVALID_ARGUMENT,
                "%s: its root %u has a root itself", LABEL(i), b->root);
    ASH_FAIL_IF(root->lane != b->lane, diag, ASH_ERROR_INVALID_ARGUMENT,
                "%s: lane %u, but its root %u is in lane %u", LABEL(i), b->lane, b->root, root->lane);
    ASH_FAIL_IF(b->root_offset % align, diag, ASH_ERROR_INVALID_ARGUMENT,
                "%s: offset %llu in its root is no multiple of its alignment %llu", LABEL(i),
                (unsigned long long)b->root_offset, (unsigned long long)align);
    ASH_FAIL_IF(b->root_offset > root->size || b->size > root->size - b->root_offset, diag,
                ASH_ERROR_OUT_OF_RANGE, "%s: bytes [%llu, +%llu) leave its root %u of %llu bytes", LABEL(i),
                (unsigned long long)b->root_offset, (unsigned long long)b->size, b->root,
                (unsigned long long)root->size);
    return ASH_OK;
}

static ash_status check_problem(const ash_memory_problem *problem, const ash_memory_options *options,
                                ash_diag *diag) {
    ASH_FAIL_IF(problem->buffer_count > MOST_ITEMS || problem->hole_count > MOST_ITEMS ||
                    problem->buffer_count + problem->hole_count > MOST_ITEMS,
                diag, ASH_ERROR_OUT_OF_RANGE, "more than 2^30 buffers and holes");
    ASH_FAIL_IF(problem->buffer_count && !problem->buffers, diag, ASH_ERROR_INVALID_ARGUMENT,
                "the buffers are NULL");
    ASH_FAIL_IF(problem->hole_count && !problem->holes, diag, ASH_ERROR_INVALID_ARGUMENT,
                "the holes are NULL");
    ASH_FAIL_IF(problem->hole_count && options->mode != ASH_MEMORY_ARENA, diag, ASH_ERROR_INVALID_ARGUMENT,
                "holes need mode arena");
    ASH_FAIL_IF(problem->streams > LARGEST_STREAMS, diag, ASH_ERROR_OUT_OF_RANGE, "%u streams, at most %d",
                problem->streams, LARGEST_STREAMS);
    ASH_FAIL_IF(problem->streams && problem->buffer_count && (!problem->acquire || !problem->release), diag,
                ASH_ERROR_INVALID_ARGUMENT, "streams without clocks");
    uint64_t total = 0; /* of roots, one after the other */
    for (uint32_t i = 0; i < problem->buffer_count; i++) {
        ASH_TRY(check_buffer(problem, options, i, diag));
        if (problem->buffers[i].root == ASH_MEMORY_NONE) total += problem->buffers[i].size;
        ASH_FAIL_IF(total > LARGEST, diag, ASH_ERROR_OUT_OF_RANGE,
                    "%s: with it the sizes add up to more than 2^62 bytes", LABEL(i));
    }
    for (uint32_t i = 0; i < problem->hole_count; i++) {
        const ash_memory_hole *h = &problem->holes[i];
        ASH_FAIL_IF(h->offset > LARGEST || h->size > LARGEST, diag, ASH_ERROR_OUT_OF_RANGE,
                    "hole %u ends past 2^62 bytes", i);
        ASH_FAIL_IF(!problem->streams && h->begin > h->end, diag, ASH_ERROR_INVALID_ARGUMENT,
                    "hole %u ends before it begins", i);
        ASH_FAIL_IF(!problem->streams && (h->begin < -LARGEST_TIME || h->end > LARGEST_TIME), diag,
                    ASH_ERROR_OUT_OF_RANGE, "the times of hole %u leave 62 bits", i);
    }
    for (size_t i = 0; i < (size_t)problem->buffer_count * problem->streams; i++)
        ASH_FAIL_IF(problem->acquire[i] < 0 || problem->acquire[i] > LARGEST_CLOCK ||
                        problem->release[i] < 0 || problem->release[i] > LARGEST_CLOCK,
                    diag, ASH_ERROR_OUT_OF_RANGE, "%s: a clock leaves 0 to 2^48",
                    LABEL((uint32_t)(i / problem->streams)));
    return ASH_OK;
}

static bool live_clock(const int64_t *acquire, const int64_t *release, uint32_t streams) {
    for (uint32_t s = 0; s < streams; s++)
        if (release[s] > acquire[s]) return true;
    return false;
}

/* Widens the class by one of its buffers. `fresh`: nothing in it has been live yet. */
static bool join_lifetime(ash_memory__instance *in, uint32_t class, uint32_t buffer, bool fresh) {
    const ash_memory_problem *problem = in->problem;
    ash_memory__class *c = &in->classes[class];
    if (!in->streams) {
        const ash_memory_buffer *b = &problem->buffers[buffer];
        if (b->begin == b->end) return fresh;
        c->begin = fresh ? b->begin : ASH_MIN(c->begin, b->begin);
        c->end = fresh ? b->end : ASH_MAX(c->end, b->end);
        return false;
    }
    size_t n = in->streams, from = (size_t)buffer * n, to = (size_t)class * n;
    if (!live_clock(problem->acquire + from, problem->release + from, in->streams)) return fresh;
    for (size_t s = 0; s < n; s++) {
        int64_t acquire = problem->acquire[from + s], release = problem->release[from + s];
        in->acquire[to + s] = fresh ? acquire : ASH_MIN(in->acquire[to + s], acquire);
        in->release[to + s] = fresh ? release : ASH_MAX(in->release[to + s], release);
    }
    return false;
}

static ash_status join_member(ash_memory__instance *in, uint32_t class, uint32_t buffer, ash_diag *diag) {
    const ash_memory_problem *problem = in->problem;
    const ash_memory_buffer *b = &problem->buffers[buffer];
    ash_memory__class *c = &in->classes[class];
    c->align = ASH_MAX(c->align, b->align);
    c->ancestor |= b->output_ancestor;
    c->from_start |= ash_memory__from_start(b->kind);
    c->to_end |= ash_memory__to_end(b->kind);
    if (b->pinned == ASH_MEMORY_UNPINNED) return ASH_OK;
    ASH_FAIL_IF(b->pinned < b->root_offset, diag, ASH_ERROR_INVALID_ARGUMENT,
                "%s: pinned at %llu, its root would begin below 0", LABEL(buffer),
                (unsigned long long)b->pinned);
    uint64_t pinned = b->pinned - b->root_offset;
    ASH_FAIL_IF(c->pinned != ASH_MEMORY_UNPINNED && c->pinned != pinned, diag, ASH_ERROR_INVALID_ARGUMENT,
                "%s: pinned at %llu, which moves its root from %llu to %llu", LABEL(buffer),
                (unsigned long long)b->pinned, (unsigned long long)c->pinned, (unsigned long long)pinned);
    ASH_FAIL_IF(pinned + c->size > LARGEST, diag, ASH_ERROR_OUT_OF_RANGE,
                "%s: its root ends past 2^62 bytes", LABEL(buffer));
    c->pinned = pinned;
    return ASH_OK;
}

/* What is pinned has its bytes already, and keeps them. */
static ash_memory_reason left_out(const ash_memory__class *c, const ash_memory_options *options) {
    if (c->pinned != ASH_MEMORY_UNPINNED) return ASH_MEMORY_PLACED;
    if (c->kind == ASH_MEMORY_PARAMETER && options->omit_params) return ASH_MEMORY_LEFT_PARAMETER;
    if (c->kind == ASH_MEMORY_INPUT && options->omit_inputs) return ASH_MEMORY_LEFT_INPUT;
    if (c->kind == ASH_MEMORY_CONSTANT && options->omit_constants) return ASH_MEMORY_LEFT_CONSTANT;
    return ASH_MEMORY_PLACED;
}

/* Lifetimes as the kinds of root and members ask. What is there from the start is live, if only then; what
 * nothing touches has no end to be kept to. */
static void widen(ash_memory__instance *in, uint32_t class, const ash_memory_options *options) {
    const ash_memory__class *c = &in->classes[class];
    bool from_start = c->from_start;
    bool to_end = c->to_end || (c->ancestor && options->pin_output_ancestors);
    if (!in->streams) {
        if (from_start && c->begin >= c->end) in->classes[class].end = in->horizon_begin + 1;
        if (from_start) in->classes[class].begin = in->horizon_begin;
        if (to_end && c->begin < c->end) in->classes[class].end = in->horizon_end;
        return;
    }
    size_t at = (size_t)class * in->streams;
    bool live = live_clock(in->acquire + at, in->release + at, in->streams);
    for (size_t s = at; s < at + in->streams; s++) {
        if (from_start) in->acquire[s] = 0;
        if (from_start && !live) in->release[s] = 1;
        if (to_end && (live || from_start)) in->release[s] = in->horizon_end;
    }
}

/* First and last half step of the whole program. With clocks the end is one past every clock. */
static void find_horizon(ash_memory__instance *in) {
    const ash_memory_problem *problem = in->problem;
    bool any = false;
    for (uint32_t i = 0; i < problem->buffer_count && !problem->streams; i++) {
        const ash_memory_buffer *b = &problem->buffers[i];
        if (b->begin == b->end) continue;
        in->horizon_begin = any ? ASH_MIN(in->horizon_begin, b->begin) : b->begin;
        in->horizon_end = any ? ASH_MAX(in->horizon_end, b->end) : b->end;
        any = true;
    }
    for (size_t i = 0; i < (size_t)problem->buffer_count * problem->streams; i++) {
        in->horizon_end = ASH_MAX(in->horizon_end, problem->acquire[i] + 1);
        in->horizon_end = ASH_MAX(in->horizon_end, problem->release[i] + 1);
    }
    /* A program of boundary buffers alone still has a moment at which they are live. */
    if (in->horizon_begin == in->horizon_end) in->horizon_end = in->horizon_begin + 1;
}

static ash_status make_classes(ash_memory__instance *in, const ash_memory_options *options,
                               ash_diag *diag) {
    const ash_memory_problem *problem = in->problem;
    uint32_t count = 0;
    for (uint32_t i = 0; i < problem->buffer_count; i++) {
        const ash_memory_buffer *b = &problem->buffers[i];
        if (b->root != ASH_MEMORY_NONE) continue;
        in->class_of[i] = count;
        in->classes[count++] = (ash_memory__class){.size = b->size,
                                                   .align = b->align ? b->align : 1,
                                                   .pinned = b->pinned,
                                                   .root = i,
                                                   .kind = b->kind};
    }
    for (uint32_t i = 0; i < problem->buffer_count; i++) {
        uint32_t root = problem->buffers[i].root;
        if (root != ASH_MEMORY_NONE) in->class_of[i] = in->class_of[root];
        ASH_TRY(join_member(in, in->class_of[i], i, diag));
    }
    bool *fresh = ash_mem_alloc(in->allocator, count, sizeof *fresh);
    if (!fresh) return ASH_NO_MEMORY(diag);
    memset(fresh, 1, count);
    for (uint32_t i = 0; i < problem->buffer_count; i++) {
        uint32_t class = in->class_of[i];
        fresh[class] = join_lifetime(in, class, i, fresh[class]);
    }
    ash_mem_free(in->allocator, fresh, count, sizeof *fresh);
    for (uint32_t c = 0; c < count; c++) {
        const ash_memory__class *class = &in->classes[c];
        ASH_FAIL_IF(
            class->pinned != ASH_MEMORY_UNPINNED && class->pinned % class->align, diag,
            ASH_ERROR_INVALID_ARGUMENT,
            "%s: pinned to begin at %llu, which is no multiple of %llu, the alignment of what lies in "
            "it",
            LABEL(class->root), (unsigned long long)class->pinned, (unsigned long long)class->align);
        in->classes[c].reason = left_out(class, options);
        widen(in, c, options);
    }
    return ASH_OK;
}

/* Numbers the lanes in use and makes a pack of each. */
static ash_status make_packs(ash_memory__instance *in, ash_diag *diag) {
    const ash_allocator *a = in->allocator;
    uint32_t n = in->class_count;
    ash_memory__key *keys = ash_mem_alloc(a, n, sizeof *keys), *room = ash_mem_alloc(a, n, sizeof *room);
    uint32_t *order = ash_mem_alloc(a, n, sizeof *order);
    ash_status status = ASH_OK;
    ASH_FAIL_IF_DONE(!keys || !room || !order, diag, ASH_ERROR_OUT_OF_MEMORY, "out of memory");
    uint32_t placed = 0, lanes = 0;
    for (uint32_t c = 0; c < n; c++)
        if (in->classes[c].reason == ASH_MEMORY_PLACED)
            keys[placed++] = (ash_memory__key){in->problem->buffers[in->classes[c].root].lane, c};
    ash_memory__sort(keys, room, placed);
    for (uint32_t i = 0; i < placed; i++) {
        lanes += !i || keys[i].key != keys[i - 1].key;
        order[i] = keys[i].value;
    }
    in->lanes = ash_mem_calloc(a, lanes, sizeof *in->lanes);
    in->packs = ash_mem_calloc(a, lanes, sizeof *in->packs);
    in->lane_count = lanes;
    ASH_FAIL_IF_DONE(!in->lanes || !in->packs, diag, ASH_ERROR_OUT_OF_MEMORY, "out of memory");
    for (uint32_t i = 0, lane = 0; i < placed; i++) {
        lane += i && keys[i].key != keys[i - 1].key;
        in->lanes[lane] = (uint32_t)keys[i].key;
        in->classes[keys[i].value].lane = lane;
    }
    ash_mem_free(a, room, n, sizeof *room);
    ash_mem_free(a, keys, n, sizeof *keys);
    room = keys = NULL;
    for (uint32_t i = 0, first = 0; i < placed; first = i) {
        uint32_t lane = in->classes[order[first]].lane;
        while (i < placed && in->classes[order[i]].lane == lane) i++;
        ASH_TRY_DONE(ash_memory__pack_init(in, lane, order + first, i - first, &in->packs[lane], diag));
    }
done:
    ash_mem_free(a, order, n, sizeof *order);
    ash_mem_free(a, room, n, sizeof *room);
    ash_mem_free(a, keys, n, sizeof *keys);
    return status;
}

ash_status ash_memory__instance_init(ash_memory__instance *in, const ash_allocator *a,
                                     const ash_memory_problem *problem, const ash_memory_options *options,
                                     ash_diag *diag) {
    *in = (ash_memory__instance){.allocator = a, .problem = problem, .streams = problem->streams};
    ASH_TRY(check_problem(problem, options, diag));
    for (uint32_t i = 0; i < problem->buffer_count; i++)
        in->class_count += problem->buffers[i].root == ASH_MEMORY_NONE;
    in->classes = ash_mem_calloc(a, in->class_count, sizeof *in->classes);
    in->class_of = ash_mem_alloc(a, problem->buffer_count, sizeof *in->class_of);
    size_t clocks = (size_t)in->class_count * in->streams;
    if (in->streams) {
        in->acquire = ash_mem_calloc(a, clocks, sizeof *in->acquire);
        in->release = ash_mem_calloc(a, clocks, sizeof *in->release);
    }
    ash_status status = ASH_OK;
    ASH_FAIL_IF_DONE(!in->classes || !in->class_of || (in->streams && (!in->acquire || !in->release)), diag,
                     ASH_ERROR_OUT_OF_MEMORY, "out of memory");
    find_horizon(in);
    ASH_TRY_DONE(make_classes(in, options, diag));
    ASH_TRY_DONE(make_packs(in, diag));
done:
    if (status != ASH_OK) ash_memory__instance_free(in);
    return status;
}

void ash_memory__instance_free(ash_memory__instance *in) {
    const ash_allocator *a = in->allocator;
    size_t clocks = (size_t)in->class_count * in->streams;
    if (in->packs)
        for (uint32_t lane = 0; lane < in->lane_count; lane++) ash_memory__pack_free(a, &in->packs[lane]);
    ash_mem_free(a, in->packs, in->lane_count, sizeof *in->packs);
    ash_mem_free(a, in->lanes, in->lane_count, sizeof *in->lanes);
    ash_mem_free(a, in->release, clocks, sizeof *in->release);
    ash_mem_free(a, in->acquire, clocks, sizeof *in->acquire);
    ash_mem_free(a, in->class_of, in->problem->buffer_count, sizeof *in->class_of);
    ash_mem_free(a, in->classes, in->class_count, sizeof *in->classes);
    *in = (ash_memory__instance){0};
}
