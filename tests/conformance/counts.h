/* SPDX-License-Identifier: MIT */
/* What a set of tests has come to before, on every device: so that a case that is lost is a failure,
 * and one that is won a line in a file. */
#ifndef CONFORMANCE_COUNTS_H
#define CONFORMANCE_COUNTS_H

#include <stdbool.h>

typedef struct counts {
    int cases, passed, unsupported, defective; /* and the rest failed */
} counts;

/* Notes the operator set that a model imports. Sets of tests are known by the newest of all of them,
 * as each version of the ONNX package has more tests, and a newer operator set. */
void counts_see(const char *model);
/* Whether that is what the file's line for `name` and this operator set says; prints what is not. A
 * set that has no line is none that was counted: that is said, with the line, and holds. */
bool counts_hold(const char *file, const char *name, counts found);

#endif
