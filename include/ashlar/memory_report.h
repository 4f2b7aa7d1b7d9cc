/* SPDX-License-Identifier: MIT */
/* Problems and plans as text: MiniMalloc's CSV in and out, tables, and pictures. */
#ifndef ASHLAR_MEMORY_REPORT_H
#define ASHLAR_MEMORY_REPORT_H

#include "memory.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A problem read from CSV, which owns what it points to. */
typedef struct ash_memory_csv ash_memory_csv;

/* Reads `size` bytes of CSV. The first line names the columns, in any order: `id`, `lower`, `upper`, `size`
 * (all four are needed; `begin` and `end` may stand for lower and upper), and if they are there `alignment`
 * (bytes, a power of two), `offset` (where somebody has put the buffer; empty: nowhere), `pinned` (an
 * offset to keep; empty: none), `lane` (a number), `kind` ("intermediate", "parameter", "input", "constant"
 * or "output"; the planner widens the lifetime by it), `root` (the number of the row, from 0, in whose
 * bytes this one lies; empty: bytes of its own) and `root_offset` (how far in). Other columns are passed
 * over. Ids are labels, and may repeat. Lifetimes are half-open. Fails with FORMAT and the offset of the
 * line. The caller destroys *out before the context; `text` is not needed any more. */
ASH_API ash_status ash_memory_csv_read(ash_context *context, const char *text, uint64_t size,
                                       ash_memory_csv **out, ash_diag *diag);
/* NULL is allowed. */
ASH_API void ash_memory_csv_destroy(ash_memory_csv *csv);
/* Borrowed; the buffers' names are the ids. */
ASH_API const ash_memory_problem *ash_memory_csv_problem(const ash_memory_csv *csv);
/* One place per buffer from the column `offset`, with the lane's position among the lanes in use as the
 * arena; NULL when there is no such column. Borrowed. */
ASH_API const ash_memory_place *ash_memory_csv_places(const ash_memory_csv *csv);
/* The arenas that those places need; borrowed. */
ASH_API const ash_memory_arena *ash_memory_csv_arenas(const ash_memory_csv *csv, size_t *count);

typedef enum ash_memory_format {
    ASH_MEMORY_TEXT,     /* a summary, and a table of the arenas */
    ASH_MEMORY_SOLUTION, /* CSV: id,lower,upper,size,offset, and alignment, lane, kind, root and root_offset
                            where there are any; no offset: left out. The life of a row without a root is
                            that of all that lies in it, widened as its kind asks: the load at a time is the
                            sum of those rows' sizes. Other rows have their own */
    ASH_MEMORY_SVG,      /* the largest arena: time to the right, offset upwards */
    ASH_MEMORY_HTML, /* one self-contained page with all arenas, names on hover, curve of live bytes, and
                        zoom */
    ASH_MEMORY_FORMAT_COUNT
} ash_memory_format;

/* Writes a plan of a problem with intervals (for clocks, pictures are UNSUPPORTED). *out is terminated, has
 * *size bytes without the terminator, and is freed with ash_context_free_text. */
ASH_API ash_status ash_memory_report(ash_context *context, const ash_memory_problem *problem,
                                     const ash_memory_plan *plan, ash_memory_format format, char **out,
                                     uint64_t *size, ash_diag *diag);

/* "text", "csv", "svg", "html" to a format; false for another word. */
ASH_API bool ash_memory_format_parse(const char *word, ash_memory_format *out);

#ifdef __cplusplus
}
#endif
#endif
