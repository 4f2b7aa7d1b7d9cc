/* SPDX-License-Identifier: MIT */
/* Inside the writer: a graph is walked twice with the same code, once to count and once to write, so
 * everything here gives the same names and bytes for the same graph. */
#ifndef ASH_ONNX_WRITE_H
#define ASH_ONNX_WRITE_H

#include "ashlar/onnx.h"
#include "ir/ir.h"
#include "wire_out.h"

typedef struct ash_writer {
    const ash_graph *graph;
    const ash_allocator *allocator;
    ash_wire_out out;
    ash_wire_out external;     /* the file of large tensors */
    const char *external_name; /* NULL: there is none */
    size_t external_min;       /* bytes */
    ash_arena names;           /* of the present walk */
    const char **values;       /* name of each value */
    bool *used;                /* whether anything reads it */
    size_t temporaries, nodes; /* so far in the present walk */
    const char *node_name;     /* of the core node that is being written */
    ash_status status;
    ash_diag *diag;
} ash_writer;

/* An attribute of a node. */
typedef struct ash_writer_attr {
    const char *name;
    const char *text;    /* a string, */
    const int64_t *list; /* or a list of `count`, */
    size_t count;
    int64_t i; /* or a number */
} ash_writer_attr;

#define WRITE_INT(key, number)    ((ash_writer_attr){.name = (key), .i = (number)})
#define WRITE_INTS(key, items, n) ((ash_writer_attr){.name = (key), .list = (items), .count = (n)})
#define WRITE_TEXT(key, value)    ((ash_writer_attr){.name = (key), .text = (value)})

/* A NodeProto whose results have names already. */
typedef struct ash_writer_node {
    const char *op;
    const char *const *ins, *const *outs;
    size_t n_ins, n_outs, n_attrs;
    const ash_writer_attr *attrs;
} ash_writer_node;

void ash_writer__node(ash_writer *w, const ash_writer_node *node);
/* The same with one result, which gets a new name unless `name` is given. */
const char *ash_writer__op(ash_writer *w, const char *name, const char *op, const char *const *ins,
                           size_t n_ins, const ash_writer_attr *attrs, size_t n_attrs);
const char *ash_writer__temporary(ash_writer *w);
/* An initializer; the data are written at once. */
const char *ash_writer__constant(ash_writer *w, const char *name, const ash_type *type, const void *data,
                                 size_t size);
/* A list of numbers as an i64 tensor; a list of dims, which the file computes from its inputs where they
 * are not numbers. */
const char *ash_writer__ints(ash_writer *w, const int64_t *list, size_t n);
const char *ash_writer__dims(ash_writer *w, const ash_dim *list, size_t n);
void ash_writer__fail(ash_writer *w, ash_status code, const char *fmt, ...) ASH_PRINTF(3, 4);

/* Writes one core node: write_ops.c. */
void ash_writer__core(ash_writer *w, const ash_node *node);

#endif
