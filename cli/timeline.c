/* SPDX-License-Identifier: MIT */
/* The memory timeline: how many bytes are live at each operation, drawn against the arena's size.
 *
 * A buffer is live while its place in the arena is taken, which the planner made of the operations'
 * accesses. With several streams that is in the order of issue. */
#include <stdlib.h>
#include <string.h>

#include "cli.h"

enum { COLUMNS = 72, ROWS = 8, SHOWN = 6 };

struct timeline {
    ash_plan *plan;
    size_t ops;
    uint64_t *live; /* per operation: bytes */
    uint64_t top;   /* bytes: what the highest row ends with, the arena's size */
    uint64_t bound; /* bytes */
    size_t peak;    /* operation */
};

/* Bytes of a buffer that has a place of its own, and the operations during which it is live; 0 for
 * others. */
static uint64_t tenant(ash_plan *plan, uint32_t buffer, size_t ops, size_t *first, size_t *last) {
    ash_buffer_info b = ASH_INIT(ash_buffer_info);
    if (ash_plan_buffer_at(plan, buffer, &b, NULL) != ASH_OK || b.arena == UINT32_MAX || b.root != buffer ||
        b.end <= b.begin)
        return 0;
    *first = (size_t)(b.begin / 2);
    *last = (size_t)((b.end - 1) / 2);
    if (*first >= ops) return 0;
    if (*last >= ops) *last = ops - 1;
    return b.bytes;
}

static void measure(struct timeline *t) {
    for (uint32_t b = 0; b < ash_plan_buffer_count(t->plan); b++) {
        size_t first = 0, last = 0;
        uint64_t bytes = tenant(t->plan, b, t->ops, &first, &last);
        for (size_t i = first; bytes && i <= last; i++) t->live[i] += bytes;
    }
    for (size_t i = 0; i < t->ops; i++)
        if (t->live[i] > t->live[t->peak]) t->peak = i;
}

/* --- the picture ------------------------------------------------------------------------------ */

/* The most that is live at the operations of a column. */
static uint64_t column(const struct timeline *t, size_t c, size_t columns) {
    uint64_t most = 0;
    for (size_t i = c * t->ops / columns; i < (c + 1) * t->ops / columns || i == c * t->ops / columns; i++)
        if (t->live[i] > most) most = t->live[i];
    return most;
}

static const char *label(const struct timeline *t, int row) {
    double height = (double)t->top / ROWS;
    if (row == ROWS - 1) return "arena";
    return t->bound < t->top && (int)((double)t->bound / height) == row ? "bound" : "";
}

static void draw_row(const struct timeline *t, int row, size_t columns) {
    static const char *const eighths[] = {" ", "▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};
    double height = (double)t->top / ROWS;
    const char *name = label(t, row);
    uint64_t bytes = *name == 'a' ? t->top : *name == 'b' ? t->bound : (uint64_t)(height * (row + 1));
    bool labelled = *name || row % 2 == 1;
    printf("%10s %5s │", labelled ? show_bytes(bytes).text : "", name);
    for (size_t c = 0; c < columns; c++) {
        double over = ((double)column(t, c, columns) - height * row) / height;
        int eighth = over >= 1 ? 8 : over <= 0 ? 0 : (int)(over * 8 + 0.5);
        if (over > 0 && eighth == 0) eighth = 1; /* what is there can be seen */
        fputs(eighths[eighth], stdout);
    }
    printf("\n");
}

static void draw(const struct timeline *t) {
    size_t columns = t->ops < COLUMNS ? t->ops : COLUMNS;
    for (int row = ROWS; row-- > 0;) draw_row(t, row, columns);
    printf("%10s %5s └", "0 B", "");
    for (size_t c = 0; c < columns; c++) fputs("─", stdout);
    size_t at = 0;
    while (at + 1 < columns && (at + 1) * t->ops / columns <= t->peak) at++;
    printf("\n%17s%*s▲ peak, at operation #%zu of 0 to %zu\n", "", (int)at + 1, "", t->peak, t->ops - 1);
}

/* --- who stands at the peak --------------------------------------------------------------------- */

struct resident {
    uint32_t buffer;
    uint64_t bytes;
};

static int by_size(const void *a, const void *b) {
    const struct resident *x = a, *y = b;
    return x->bytes > y->bytes ? -1 : x->bytes < y->bytes ? 1 : x->buffer < y->buffer ? -1 : 1;
}

static bool show_peak(const struct timeline *t) {
    uint32_t count = ash_plan_buffer_count(t->plan), found = 0;
    struct resident *at = calloc(count + 1, sizeof *at);
    if (!at) {
        fprintf(stderr, "ashlar: out of memory\n");
        return false;
    }
    for (uint32_t b = 0; b < count; b++) {
        size_t first = 0, last = 0;
        uint64_t bytes = tenant(t->plan, b, t->ops, &first, &last);
        if (bytes && first <= t->peak && t->peak <= last) at[found++] = (struct resident){b, bytes};
    }
    qsort(at, found, sizeof *at, by_size);
    printf("at the peak    %u buffers, %s\n", found, show_bytes(t->live[t->peak]).text);
    uint64_t others = t->live[t->peak];
    for (uint32_t i = 0; i < found && i < SHOWN; i++) {
        printf("%13s  buffer %u: %s\n", show_bytes(at[i].bytes).text, at[i].buffer,
               buffer_maker(t->plan, at[i].buffer).text);
        others -= at[i].bytes;
    }
    if (found > SHOWN) printf("%13s  in %u more\n", show_bytes(others).text, found - SHOWN);
    free(at);
    return true;
}

bool show_timeline(struct session *s) {
    const ash_memory_summary *m = &s->report.memory;
    struct timeline t = {
        .plan = s->plan, .ops = ash_plan_op_count(s->plan), .top = m->size, .bound = m->lower_bound};
    if (t.ops == 0 || m->size == 0) {
        printf("memory         nothing is in an arena\n");
        return true;
    }
    t.live = calloc(t.ops, sizeof *t.live);
    if (!t.live) {
        fprintf(stderr, "ashlar: out of memory\n");
        return false;
    }
    measure(&t);
    printf("memory         live bytes over %zu operations%s; arena %s, lower bound %s\n", t.ops,
           s->report.streams > 1 ? " in the order of issue" : "", show_bytes(m->size).text,
           show_bytes(m->lower_bound).text);
    draw(&t);
    bool good = show_peak(&t);
    free(t.live);
    return good;
}
