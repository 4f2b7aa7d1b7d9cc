/* SPDX-License-Identifier: MIT */
/* Plans as text and as CSV; the pictures are in picture.c. */
#include "report.h"

#include "instance.h"

static const char *const certificate_names[ASH_MEMORY_CERTIFICATE_COUNT] = {
    [ASH_MEMORY_GAP] = "gap",
    [ASH_MEMORY_OPTIMAL_BY_LOAD] = "optimal by load",
    [ASH_MEMORY_OPTIMAL_BY_SEARCH] = "optimal by search"};

const char *ash_memory__certificate_text(ash_memory_certificate certificate) {
    return (unsigned)certificate < ASH_MEMORY_CERTIFICATE_COUNT ? certificate_names[certificate]
                                                                : "unknown";
}

void ash_memory__add_name(ash_text *text, const ash_memory_problem *problem, uint32_t buffer) {
    const char *name = problem->buffers[buffer].name;
    if (name)
        ash_text_add(text, "%s", name);
    else
        ash_text_add(text, "%u", buffer);
}

/* What stands at the peak, largest first. */
static void add_moment(ash_text *text, const ash_memory_problem *problem, const ash_memory_plan *plan,
                       uint32_t arena) {
    enum { SHOWN = 8 };
    size_t count;
    uint32_t top[SHOWN], shown = 0;
    const uint32_t *roots = ash_memory_plan_moment(plan, arena, &count);
    for (uint32_t i = 0; i < count; i++) {
        uint32_t at = shown < SHOWN ? shown++ : SHOWN;
        for (; at && problem->buffers[top[at - 1]].size < problem->buffers[roots[i]].size; at--)
            if (at < SHOWN) top[at] = top[at - 1];
        if (at < SHOWN) top[at] = roots[i];
    }
    ash_text_add(text, "  live at the peak: %zu buffers;", count);
    for (uint32_t i = 0; i < shown; i++) {
        ash_text_add(text, " ");
        ash_memory__add_name(text, problem, top[i]);
        ash_text_add(text, " (%llu)", (unsigned long long)problem->buffers[top[i]].size);
    }
    ash_text_add(text, count > SHOWN ? " ...\n" : "\n");
}

static void add_left_out(ash_text *text, const ash_memory_problem *problem, const ash_memory_plan *plan) {
    static const char *const reasons[ASH_MEMORY_REASON_COUNT] = {[ASH_MEMORY_LEFT_PARAMETER] = "parameters",
                                                                 [ASH_MEMORY_LEFT_INPUT] = "inputs",
                                                                 [ASH_MEMORY_LEFT_CONSTANT] = "constants"};
    const ash_memory_place *places = ash_memory_plan_places(plan, NULL);
    for (int reason = ASH_MEMORY_PLACED + 1; reason < ASH_MEMORY_REASON_COUNT; reason++) {
        uint64_t count = 0, bytes = 0;
        for (uint32_t i = 0; i < problem->buffer_count; i++) {
            if ((int)places[i].reason != reason) continue;
            count++;
            if (problem->buffers[i].root == ASH_MEMORY_NONE) bytes += problem->buffers[i].size;
        }
        if (count)
            ash_text_add(text, "left out: %llu %s and views of them, %llu bytes\n",
                         (unsigned long long)count, reasons[reason], (unsigned long long)bytes);
    }
}

static void add_text(ash_text *text, const ash_memory_problem *problem, const ash_memory_plan *plan) {
    enum { SHOWN = 32 };
    ash_memory_summary s = ash_memory_plan_summary(plan);
    ash_text_add(text, "%zu buffers in %zu arenas: %llu bytes (bound %llu, unshared %llu), %s\n", s.placed,
                 s.arenas, (unsigned long long)s.size, (unsigned long long)s.lower_bound,
                 (unsigned long long)s.unshared, ash_memory__certificate_text(s.certificate));
    add_left_out(text, problem, plan);
    size_t count;
    const ash_memory_arena *arenas = ash_memory_plan_arenas(plan, &count);
    for (uint32_t i = 0; i < count && i < SHOWN; i++) {
        const ash_memory_arena *a = &arenas[i];
        ash_text_add(text,
                     "arena %u, lane %u: %llu bytes aligned to %llu, load %llu at %s %lld, bound %llu, "
                     "unshared %llu",
                     i, a->lane, (unsigned long long)a->size, (unsigned long long)a->align,
                     (unsigned long long)a->load, problem->streams > 1 ? "the birth of" : "half step",
                     (long long)a->moment, (unsigned long long)a->lower_bound,
                     (unsigned long long)a->unshared);
        ash_text_add(text, ", %zu buffers; %s, found by %s, %llu nodes\n", a->buffers,
                     ash_memory__certificate_text(a->certificate), ash_memory_strategy_text(a->found_by),
                     (unsigned long long)a->nodes);
        add_moment(text, problem, plan, i);
    }
    if (count > SHOWN) ash_text_add(text, "and %zu arenas more\n", count - SHOWN);
}

void ash_memory__find_spans(const ash_memory_problem *problem, ash_memory__span *spans, int64_t *first,
                            int64_t *last) {
    bool any = false;
    *first = *last = 0;
    for (uint32_t i = 0; i < problem->buffer_count; i++) {
        const ash_memory_buffer *b = &problem->buffers[i];
        spans[i] = (ash_memory__span){0, 0};
        if (b->begin == b->end) continue;
        *first = any ? ASH_MIN(*first, b->begin) : b->begin;
        *last = any ? ASH_MAX(*last, b->end) : b->end;
        any = true;
    }
    if (*first == *last) *last = *first + 1;
    enum { HULL, START, END, STEPS };
    for (int step = HULL; step < STEPS; step++)
        for (uint32_t i = 0; i < problem->buffer_count; i++) {
            const ash_memory_buffer *b = &problem->buffers[i];
            ash_memory__span *s = &spans[b->root == ASH_MEMORY_NONE ? i : b->root];
            if (step == HULL && b->begin < b->end) {
                bool fresh = s->begin == s->end;
                s->begin = fresh ? b->begin : ASH_MIN(s->begin, b->begin);
                s->end = fresh ? b->end : ASH_MAX(s->end, b->end);
            }
            if (step == START && ash_memory__from_start(b->kind)) {
                if (s->begin >= s->end) s->end = *first + 1;
                s->begin = *first;
            }
            if (step == END && ash_memory__to_end(b->kind) && s->begin < s->end) s->end = *last;
        }
}

/* An id: the name, without what would end its field or its line. */
static void add_id(ash_text *text, const ash_memory_problem *problem, uint32_t buffer) {
    const char *name = problem->buffers[buffer].name;
    if (!name) {
        ash_text_add(text, "%u", buffer);
        return;
    }
    for (; *name; name++)
        ash_text_add(text, "%c", *name == ',' || (unsigned char)*name < 0x20 ? '_' : *name);
}

/* MiniMalloc's columns, and ours where they say something. Rows without a root have the life of all that
 * lies in them, so that loads follow from these rows alone. */
static ash_status add_solution(ash_text *text, const ash_memory_problem *problem,
                               const ash_memory_plan *plan, const ash_allocator *a, ash_diag *diag) {
    const ash_memory_place *places = ash_memory_plan_places(plan, NULL);
    ash_memory__span *spans = ash_mem_alloc(a, problem->buffer_count, sizeof *spans);
    int64_t first, last;
    bool aligned = false, lanes = false, roots = false, kinds = false;
    if (!spans) return ASH_NO_MEMORY(diag);
    ash_memory__find_spans(problem, spans, &first, &last);
    for (uint32_t i = 0; i < problem->buffer_count; i++) {
        const ash_memory_buffer *b = &problem->buffers[i];
        aligned |= b->align > 1;
        lanes |= b->lane != 0;
        roots |= b->root != ASH_MEMORY_NONE;
        kinds |= b->kind != ASH_MEMORY_INTERMEDIATE;
    }
    ash_text_add(text, "id,lower,upper,size%s%s%s%s,offset\n", aligned ? ",alignment" : "",
                 lanes ? ",lane" : "", kinds ? ",kind" : "", roots ? ",root,root_offset" : "");
    for (uint32_t i = 0; i < problem->buffer_count; i++) {
        const ash_memory_buffer *b = &problem->buffers[i];
        bool member = b->root != ASH_MEMORY_NONE;
        ash_memory__span span =
            member || problem->streams ? (ash_memory__span){b->begin, b->end} : spans[i];
        add_id(text, problem, i);
        ash_text_add(text, ",%lld,%lld,%llu", (long long)span.begin, (long long)span.end,
                     (unsigned long long)b->size);
        if (aligned) ash_text_add(text, ",%llu", (unsigned long long)(b->align ? b->align : 1));
        if (lanes) ash_text_add(text, ",%u", b->lane);
        if (kinds) ash_text_add(text, ",%s", ash_memory_kind_text(b->kind));
        if (member) ash_text_add(text, ",%u,%llu", b->root, (unsigned long long)b->root_offset);
        if (roots && !member) ash_text_add(text, ",,");
        ash_text_add(text, ",");
        if (places[i].arena != ASH_MEMORY_NONE)
            ash_text_add(text, "%llu", (unsigned long long)places[i].offset);
        ash_text_add(text, "\n");
    }
    ash_mem_free(a, spans, problem->buffer_count, sizeof *spans);
    return ASH_OK;
}

bool ash_memory_format_parse(const char *word, ash_memory_format *out) {
    static const char *const words[ASH_MEMORY_FORMAT_COUNT] = {"text", "csv", "svg", "html"};
    for (int i = 0; i < ASH_MEMORY_FORMAT_COUNT; i++)
        if (word && !strcmp(word, words[i])) {
            if (out) *out = (ash_memory_format)i;
            return true;
        }
    return false;
}

ash_status ash_memory_report(ash_context *context, const ash_memory_problem *problem,
                             const ash_memory_plan *plan, ash_memory_format format, char **out,
                             uint64_t *size, ash_diag *diag) {
    ASH_NEED(diag, out, size);
    *out = NULL;
    *size = 0;
    ASH_NEED(diag, context, problem, plan);
    ASH_FAIL_IF((unsigned)format >= ASH_MEMORY_FORMAT_COUNT, diag, ASH_ERROR_INVALID_ARGUMENT,
                "unknown format %d", (int)format);
    size_t count;
    ash_memory_plan_places(plan, &count);
    ASH_FAIL_IF(count != problem->buffer_count, diag, ASH_ERROR_INVALID_ARGUMENT,
                "the plan has %zu buffers, the problem %zu", count, problem->buffer_count);
    bool picture = format == ASH_MEMORY_SVG || format == ASH_MEMORY_HTML;
    ASH_FAIL_IF(picture && problem->streams, diag, ASH_ERROR_UNSUPPORTED,
                "a picture needs lifetimes in one order");
    const ash_allocator *a = ash_context__allocator(context);
    ash_text text;
    ash_text_init(&text, a);
    ash_status status = ASH_OK;
    switch (format) {
    case ASH_MEMORY_TEXT: add_text(&text, problem, plan); break;
    case ASH_MEMORY_SOLUTION: status = add_solution(&text, problem, plan, a, diag); break;
    case ASH_MEMORY_SVG: status = ash_memory__add_svg(&text, problem, plan, diag); break;
    default: status = ash_memory__add_html(&text, problem, plan, diag); break;
    }
    if (status == ASH_OK) status = ash_text_status(&text, diag);
    if (status == ASH_OK) {
        *out = ash_mem_alloc(a, text.len + 1, 1);
        if (*out) {
            memcpy(*out, text.len ? text.at : "", text.len + 1);
            *size = text.len;
        } else {
            status = ASH_NO_MEMORY(diag);
        }
    }
    ash_text_free(&text);
    return status;
}
