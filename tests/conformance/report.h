/* SPDX-License-Identifier: MIT */
/* What a run says of operators, as a document: which there are, in which versions, with which element
 * types cases have passed, and what was refused. */
#ifndef ASH_CONFORMANCE_REPORT_H
#define ASH_CONFORMANCE_REPORT_H

#include "values.h"

/* Element types, a bit each. */
typedef struct seen_types {
    uint32_t dtypes, narrows;
} seen_types;

void report_types(seen_types *seen, const tensors *inputs);
/* Counts a case for the operator of its model's only node; models of several nodes are nobody's. `refusal`
 * is what the import said, or NULL: the case has passed. */
void report_case(const char *model, seen_types seen, const char *refusal);
/* Writes the document, with this many cases that have passed of so many. */
bool report_write(const char *path, int passed, int cases);

#endif
