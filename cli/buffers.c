/* SPDX-License-Identifier: MIT */
/* The buffers of a plan, and who writes and reads them: from the access records of its operations. */
#include <stdlib.h>
#include <string.h>

#include "cli.h"

enum { NAMED = 5, OP_NAME = 24 }; /* most operations that are named; bytes of such a name */

/* Who touches a buffer, as it is read: "#3 #7", and "p2" for the prologue's. */
struct touched {
    struct line writers, readers;
    unsigned writes, reads; /* operations */
    char last_writer[OP_NAME],
        last_reader[OP_NAME]; /* the one that was added last: an operation counts once */
};

static void add(struct line *line, unsigned *count, char last[OP_NAME], const char *name) {
    size_t len = strlen(line->text);
    if (!strcmp(last, name)) return;
    snprintf(last, OP_NAME, "%s", name);
    if (++*count <= NAMED)
        snprintf(line->text + len, sizeof line->text - len, "%s%s", len ? " " : "", name);
}

static void finish(struct line *line, unsigned count) {
    size_t len = strlen(line->text);
    if (count > NAMED) snprintf(line->text + len, sizeof line->text - len, " +%u", count - NAMED);
    if (count == 0) strcpy(line->text, "-");
}

static void collect(const ash_plan *plan, bool prologue, struct touched *touched) {
    size_t ops = prologue ? ash_plan_prologue_count(plan) : ash_plan_op_count(plan);
    for (size_t i = 0; i < ops; i++) {
        char name[OP_NAME];
        size_t count =
            prologue ? ash_plan_prologue_access_count(plan, i) : ash_plan_op_access_count(plan, i);
        snprintf(name, sizeof name, "%s%zu", prologue ? "p" : "#", i);
        for (size_t k = 0; k < count; k++) {
            ash_op_access a = ASH_INIT(ash_op_access);
            if ((prologue ? ash_plan_prologue_access(plan, i, k, &a, NULL)
                          : ash_plan_op_access(plan, i, k, &a, NULL)) != ASH_OK)
                continue;
            struct touched *t = &touched[a.buffer];
            if (a.write)
                add(&t->writers, &t->writes, t->last_writer, name);
            else
                add(&t->readers, &t->reads, t->last_reader, name);
        }
    }
}

/* "#3-#7", "start-#2", "#5-end" */
static struct line life(const ash_buffer_info *b, bool from_start, size_t ops) {
    struct line out;
    char from[24] = "start", to[24] = "end";
    if (b->arena == UINT32_MAX || b->end <= b->begin) return (struct line){"-"};
    if (!from_start) snprintf(from, sizeof from, "#%lld", (long long)(b->begin / 2));
    if (b->end <= 2 * (int64_t)ops) snprintf(to, sizeof to, "#%lld", (long long)((b->end - 1) / 2));
    snprintf(out.text, sizeof out.text, "%s-%s", from, to);
    return out;
}

static struct line place(const ash_buffer_info *b, uint32_t index) {
    struct line out = {"-"};
    int at = 0;
    if (b->arena != UINT32_MAX)
        at = snprintf(out.text, sizeof out.text, "arena %u at %llu", b->arena,
                      (unsigned long long)b->offset);
    if (b->root != index)
        snprintf(out.text + at, sizeof out.text - (size_t)at, "%sin %u", at ? ", " : "", b->root);
    return out;
}

bool show_buffers(struct session *s) {
    uint32_t count = ash_plan_buffer_count(s->plan);
    struct touched *touched = calloc(count + 1, sizeof *touched);
    if (!touched) {
        fprintf(stderr, "ashlar: out of memory\n");
        return false;
    }
    collect(s->plan, true, touched);
    collect(s->plan, false, touched);
    printf("%5s  %-10s%-28s%10s  %-26s%-12s%-20s%-26s%s\n", "", "role", "type", "bytes", "place", "life",
           "written by", "read by", "name");
    for (uint32_t i = 0; i < count; i++) {
        ash_buffer_info b = ASH_INIT(ash_buffer_info);
        struct touched *t = &touched[i];
        if (ash_plan_buffer_at(s->plan, i, &b, NULL) != ASH_OK) continue;
        finish(&t->writers, t->writes);
        finish(&t->readers, t->reads);
        printf("%5u  %-10s%-28.27s%10s  %-26s%-12s%-20s", i, ash_role_text(b.role), show_type(&b.type).text,
               show_bytes(b.bytes).text, place(&b, i).text,
               life(&b, b.role == ASH_ROLE_INPUT, ash_plan_op_count(s->plan)).text, t->writers.text);
        printf(b.name ? "%-26s%s\n" : "%s%s\n", t->readers.text, b.name ? b.name : "");
    }
    free(touched);
    return true;
}

static bool writes(const ash_plan *plan, size_t op, uint32_t buffer) {
    ash_op_access a = ASH_INIT(ash_op_access);
    for (size_t k = 0; k < ash_plan_op_access_count(plan, op); k++)
        if (ash_plan_op_access(plan, op, k, &a, NULL) == ASH_OK && a.write && a.buffer == buffer)
            return true;
    return false;
}

struct line buffer_maker(ash_plan *plan, uint32_t buffer) {
    struct line out = {""};
    ash_buffer_info b = ASH_INIT(ash_buffer_info);
    ash_prepared_op op = ASH_INIT(ash_prepared_op);
    if (ash_plan_buffer_at(plan, buffer, &b, NULL) != ASH_OK) return out;
    if (b.name) {
        snprintf(out.text, sizeof out.text, "%s \"%s\"", ash_role_text(b.role), b.name);
        return out;
    }
    for (size_t i = 0; i < ash_plan_op_count(plan); i++) {
        if (!writes(plan, i, buffer) || ash_plan_op_at(plan, i, &op, NULL) != ASH_OK) continue;
        snprintf(out.text, sizeof out.text, "%s #%zu %s%s%s",
                 b.role == ASH_ROLE_SCRATCH ? "scratch of" : "result of", i, op.name,
                 op.node_count && op.nodes[0] ? ", " : "", op.node_count && op.nodes[0] ? op.nodes[0] : "");
        return out;
    }
    snprintf(out.text, sizeof out.text, "%s", ash_role_text(b.role));
    return out;
}
