#ifndef ASH_MEMORY_REPORT_INTERNAL_H
#define ASH_MEMORY_REPORT_INTERNAL_H

#include "ashlar/memory_report.h"
#include "base/text.h"

const char *ash_memory__certificate_text(ash_memory_certificate certificate);
/* The buffer's name, or its number. */
void ash_memory__add_name(ash_text *text, const ash_memory_problem *problem, uint32_t buffer);

ash_status ash_memory__add_svg(ash_text *text, const ash_memory_problem *problem,
                               const ash_memory_plan *plan, ash_diag *diag);
ash_status ash_memory__add_html(ash_text *text, const ash_memory_problem *problem,
                                const ash_memory_plan *plan, ash_diag *diag);

#endif
