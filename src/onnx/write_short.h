/* SPDX-License-Identifier: MIT */
/* Short forms for the files that write operators. */
#ifndef ASH_ONNX_WRITE_SHORT_H
#define ASH_ONNX_WRITE_SHORT_H

#include "write.h"

typedef const char *name;

static inline name value(const ash_writer *w, ash_value v) {
    return w->values[v];
}

/* Nodes without attributes, with one result, which gets a new name unless `out` is given. */
static inline name op1(ash_writer *w, name out, const char *op, name a) {
    return ash_writer__op(w, out, op, &a, 1, NULL, 0);
}
static inline name op2(ash_writer *w, name out, const char *op, name a, name b) {
    return ash_writer__op(w, out, op, (const name[]){a, b}, 2, NULL, 0);
}
static inline name op3(ash_writer *w, name out, const char *op, name a, name b, name c) {
    return ash_writer__op(w, out, op, (const name[]){a, b, c}, 3, NULL, 0);
}

#endif
