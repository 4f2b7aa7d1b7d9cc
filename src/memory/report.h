/* SPDX-License-Identifier: MIT */
/* What the texts, tables and pictures of a plan share. */
#ifndef ASH_MEMORY_REPORT_INTERNAL_H
#define ASH_MEMORY_REPORT_INTERNAL_H

#include "ashlar/memory_report.h"
#include "base/text.h"

const char *ash_memory__certificate_text(ash_memory_certificate certificate);
/* The buffer's name, or its number. */
void ash_memory__add_name(ash_text *text, const ash_memory_problem *problem, uint32_t buffer);

/* Half steps, widened as the planner does. */
typedef struct ash_memory__span {
    int64_t begin, end;
} ash_memory__span;

/* One span per buffer: of roots, that of all that lies in them; and the program's first and last half
 * step. */
void ash_memory__find_spans(const ash_memory_problem *problem, ash_memory__span *spans, int64_t *first,
                            int64_t *last);

ash_status ash_memory__add_svg(ash_text *text, const ash_memory_problem *problem,
                               const ash_memory_plan *plan, ash_diag *diag);
ash_status ash_memory__add_html(ash_text *text, const ash_memory_problem *problem,
                                const ash_memory_plan *plan, ash_diag *diag);

#endif
