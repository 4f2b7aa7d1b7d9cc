/* SPDX-License-Identifier: MIT */
/* Inside the writer: a graph is walked twice with the same code, once to count and once to write, so
 * everything here gives the same names and bytes for the same graph.
 *
 * A body, of a loop or a branch, is written to memory and becomes an attribute of the node behind it. What
 * it needs of numbers and dims goes to the model's graph all the same, where it is computed once: nodes
 * see the names around their body. So names are unique in the whole file. */
#ifndef ASH_ONNX_WRITE_H
#define ASH_ONNX_WRITE_H

#include "ashlar/onnx.h"
#include "ir/ir.h"
#include "wire_out.h"

/* A body on its way. */
typedef struct ash_writer_body {
    ash_text bytes;
    ash_wire_out out; /* to these */
    struct ash_writer_body *around;
} ash_writer_body;

enum { ASH_WRITER_OUTSIDE = UINT32_MAX }; /* in no body */

typedef struct ash_writer {
    const ash_graph *graph; /* without stacks */
    ash_graph *gathered;    /* the same, where it was made for the writer, or NULL */
    const ash_allocator *allocator;
    ash_wire_out out;
    ash_wire_out external;     /* the file of large tensors */
    const char *external_name; /* NULL: there is none */
    size_t external_min;       /* bytes */
    ash_writer_body *body;     /* the innermost one, or NULL: nodes go to the model's graph */
    ash_arena names;
    const char **values;    /* name of each value */
    bool *used;             /* whether the file needs the value */
    uint32_t *loop;         /* per node: the loop, a node, whose body it is in */
    uint32_t *first, *next; /* per loop: the first node of its body; per node: the next one of its body */
    ash_dims *dims;         /* the graph's, and what the writer makes of them */
    ash_map dim_names;      /* of the present walk: dims to the names of their values */
    size_t temporaries, nodes; /* so far in the present walk */
    const char *node_name;     /* of the core node that is being written */
    ash_status status;
    ash_diag *diag;
} ash_writer;

/* An attribute of a node. */
typedef struct ash_writer_attr {
    const char *name;
    const char *text;      /* a string, */
    const ash_text *graph; /* a body, */
    const int64_t *list;   /* or a list of `count`, */
    size_t count;
    int64_t i; /* or a number */
} ash_writer_attr;

#define WRITE_INT(key, number)    ((ash_writer_attr){.name = (key), .i = (number)})
#define WRITE_INTS(key, items, n) ((ash_writer_attr){.name = (key), .list = (items), .count = (n)})
#define WRITE_TEXT(key, value)    ((ash_writer_attr){.name = (key), .text = (value)})
#define WRITE_GRAPH(key, body)    ((ash_writer_attr){.name = (key), .graph = &(body)->bytes})

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
/* An initializer of the model's graph; the data are written at once. */
const char *ash_writer__constant(ash_writer *w, const char *name, const ash_type *type, const void *data,
                                 size_t size);
/* A list of numbers as an i64 tensor, a number as a scalar. */
const char *ash_writer__ints(ash_writer *w, const int64_t *list, size_t n);
const char *ash_writer__int(ash_writer *w, const char *name, int64_t number);
void ash_writer__fail(ash_writer *w, ash_status code, const char *fmt, ...) ASH_PRINTF(3, 4);

/* The innermost body from now on, until its end: its nodes, inputs and outputs go there. Every body that
 * was begun is ended, and freed when the node that has it is written. */
void ash_writer__begin(ash_writer *w, ash_writer_body *body);
void ash_writer__end(ash_writer *w);
static inline void ash_writer__free(ash_writer_body *body) {
    ash_text_free(&body->bytes);
}
void ash_writer__input(ash_writer *w, const char *name, const ash_type *type);
void ash_writer__output(ash_writer *w, const char *name, const ash_type *type);
/* The nodes of the graph that are in the body of a loop, or of none (ASH_WRITER_OUTSIDE). */
void ash_writer__nodes(ash_writer *w, uint32_t loop);

/* Dims as an i64 tensor, one as a scalar; where they are not numbers, the file computes them from the
 * shapes of its inputs and the sizes that its nodes settle: write_dims.c. */
const char *ash_writer__dims(ash_writer *w, const ash_dim *list, size_t n);
const char *ash_writer__dim(ash_writer *w, ash_dim dim);
/* A dim that the graph need not have. */
ash_dim ash_writer__combine(ash_writer *w, ash_dim_op op, ash_dim a, ash_dim b);

/* Writes one core node: write_ops.c. */
void ash_writer__core(ash_writer *w, const ash_node *node);
/* Some of its parts: */
const char *ash_writer__reshape(ash_writer *w, const char *out, const char *x, const ash_dim *dims,
                                size_t n);
const char *ash_writer__cast(ash_writer *w, const char *out, const char *x, ash_dtype dtype);
const char *ash_writer__zero(ash_writer *w, ash_dtype dtype); /* a scalar */

/* Whether a node convolves bytes: operand, weights, and their zero points, one or (of weights) one for each
 * filter, or ASH_NO_VALUE: write_bytes.c. */
bool ash_writer__bytes(const ash_graph *graph, const ash_node *node, ash_value operands[4]);
/* Loops: write_loop.c. */
void ash_writer__loop(ash_writer *w, const ash_node *node);
/* Whether ONNX says it as a branch: it runs once, or not at all. */
bool ash_writer__is_branch(const ash_node *node);
/* Nonzero, nms, and what settles variables: write_settle.c. */
void ash_writer__found(ash_writer *w, const ash_node *node);
void ash_writer__chosen(ash_writer *w, const ash_node *node);
void ash_writer__settle(ash_writer *w, const ash_node *node);
/* x, of `rows` slices along dim 0, an i64 tensor [1], with zeros behind them: as many slices as `type`
 * says. */
const char *ash_writer__fill_up(ash_writer *w, const char *out, const char *x, const char *rows,
                                const ash_type *type);

#endif
