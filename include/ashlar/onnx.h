/* SPDX-License-Identifier: MIT */
/* ONNX files: reading a model into a graph, and writing a graph as a model. */
#ifndef ASHLAR_ONNX_H
#define ASHLAR_ONNX_H

#include "graph.h"
#include "progress.h"
#include "tensor.h"

#ifdef __cplusplus
extern "C" {
#endif

/* What a named dim (dim_param) of the model's inputs stands for. A dim without a name and a number, one of
 * -1 and one that is called "?" are unknown each for itself, and called after the input and its axis, as
 * "input.0". With min == max the dim becomes that number; else it becomes a variable of the graph within
 * [min, max] elements. A size that is computed when the graph runs is called after the result that has it
 * and its axis, as "result.0", and has room for `max` elements: 4,096 at most where nothing is said.
 * Squeeze without axes drops dims that are the number 1, and no variable, also where that is 1. */
typedef struct ash_onnx_var {
    const char *name;
    int64_t min, max;
} ash_onnx_var;

/* A named dim that is an expression of others, "total" that is "past + sequence": sums and products of
 * names and numbers, with parentheses. The name is then no variable; inputs are held to the expression.
 * Models that name sizes apart, but compute with them as if they were equal, run without it, too, where
 * the sizes are variables: each execution compares them then, and attention is not fused. */
typedef struct ash_onnx_tie {
    const char *name, *expression;
} ash_onnx_tie;

/* A graph input that is a constant for this import: needed where the model takes from an input what a graph
 * must know beforehand, such as the target of a Reshape. */
typedef struct ash_onnx_bind {
    const char *input;
    const ash_tensor *tensor;
} ash_onnx_bind;

/* What is going to be given to an input: its dims that are not numbers in the file, and that `vars` does
 * not name, are those of this type, and so are dims of the same names elsewhere. A dim that is an
 * expression ("past + seq") says the size of one of its names where the others are numbers, and is checked
 * against them else; where `vars` keeps one of them variable, so is the dim. Inputs that the model does not
 * have are ignored. */
typedef struct ash_onnx_shape {
    const char *input;
    const ash_type *type; /* of static dims */
} ash_onnx_shape;

/* What a graph input that is a sequence of tensors, or an optional one, is for this import. A sequence
 * called "x" becomes as many inputs as it has tensors, "x.0", "x.1", ..., of types whose dims are numbers.
 * An optional tensor needs none of this to be there: it is an input like any other. A sequence that is an
 * output becomes as many outputs, called the same way. */
typedef struct ash_onnx_sequence {
    const char *input;
    const ash_type *types; /* of its tensors */
    size_t length;         /* how many they are */
    bool absent;           /* an optional that has nothing: neither tensors nor an empty sequence */
} ash_onnx_sequence;

/* A node of an operator that the library does not have, as its lowering sees it. Everything is borrowed
 * for the time of the call. The library makes it, and later versions have more at its end. */
typedef struct ash_onnx_call {
    ash_graph *graph;        /* to append nodes to */
    const char *domain, *op; /* "" is the default domain */
    int64_t version;         /* that the model imports of the domain; 0: none */
    const ash_value *ins;    /* ASH_NO_VALUE: left out */
    ash_value *outs;         /* to be filled; those that the node does not name may stay ASH_NO_VALUE */
    size_t n_ins, n_outs;
    const void *node; /* for the functions below */
} ash_onnx_call;

/* Appends what computes a node's results: nodes of the builder, among them calls of functions of the
 * caller (ash_custom, ashlar/function.h). A failure, also a sticky one of the graph, is the import's, and
 * is charged to the node. */
typedef ash_status (*ash_onnx_lower)(void *user, const ash_onnx_call *call, ash_diag *diag);

typedef struct ash_onnx_operator {
    const char *domain, *op; /* "" is the default domain */
    ash_onnx_lower lower;
    void *user;
} ash_onnx_operator;

/* Attributes of the node: what is absent, or of another type, is `absent`, NULL with *count 0. Texts are
 * not terminated. Borrowed for the time of the call. */
ASH_API int64_t ash_onnx_call_int(const ash_onnx_call *call, const char *name, int64_t absent);
ASH_API double ash_onnx_call_float(const ash_onnx_call *call, const char *name, double absent);
ASH_API const int64_t *ash_onnx_call_ints(const ash_onnx_call *call, const char *name, size_t *count);
ASH_API const float *ash_onnx_call_floats(const ash_onnx_call *call, const char *name, size_t *count);
ASH_API const char *ash_onnx_call_text(const ash_onnx_call *call, const char *name, size_t *count);

/* Zeroed options are the defaults. */
typedef struct ash_onnx_options {
    size_t size;              /* bytes that the caller knows, or 0: ASH_INIT */
    const ash_onnx_var *vars; /* none of a name twice; the same for binds */
    size_t n_vars;
    const ash_onnx_shape *shapes;
    size_t n_shapes;
    int64_t var_min, var_max; /* bounds of the other dims; both 0: they are open */
    const ash_onnx_bind *binds;
    size_t n_binds;
    bool parameters; /* make the floating point initializers parameters, which plans may rebind by name */
    uint64_t max_bytes; /* the most memory that loops and functions of the model may unroll to, about, what
                           lies in the file not counted; past it ASH_ERROR_BUDGET. 0: 1 GiB */
    ash_progress progress; /* told of the nodes of the model's graph, and asked before every node, those of
                              loop bodies each time */
    const ash_onnx_sequence *sequences; /* none of a name twice */
    size_t n_sequences;
    const ash_onnx_tie *ties; /* none of a name twice, and none of `vars` */
    size_t n_ties;
    /* For operators that the library does not have, also where the model defines them by a function. Of a
     * graph that is open, `lower` is called for each set of sizes: it and `user` must live as long as the
     * graph and plans made from it. None of a name twice. */
    const ash_onnx_operator *operators;
    size_t n_operators;
} ash_onnx_options;

/* Reads a model file: operator sets 1 to 28 of the default domain. Where the sizes of input dims are not
 * known, from the file, the options, a tensor that is bound, or the initializer of an input that shares the
 * name, the graph is open (ashlar/graph.h): its nodes are made for the sizes of the first inputs, from the
 * model's bytes, which it holds on to, and their files of external data. Weights are used where they lie,
 * in the mapped file or in files of external data beside it, as long as the graph or a plan made from it
 * exists. `options` may be NULL, and is not used after the call.
 *
 * External data must lie below the folder of `path`, or below the one that the file really lies in when
 * `path` is a link, as in caches of models: a location is a relative path that does not climb above its
 * start, and what it leads to, links followed, is held against those folders. Anything else is
 * ASH_ERROR_FORMAT.
 *
 * A file that is replaced by renaming, or removed, stays what it was for those who have opened it. One that
 * is cut short while it is in use is ASH_ERROR_IO of the next prepare or execute that would read it; see
 * ashlar/device.h for what cannot be caught.
 *
 * Indices of Gather and Scatter operators that lie outside are an error here where they are known
 * (ASH_ERROR_OUT_OF_RANGE); of those that an execution computes, gathers take the nearest element and
 * ScatterND leaves the update out.
 *
 * A broken file is ASH_ERROR_FORMAT; what cannot be expressed (an unknown operator, strings, sequences
 * whose length depends on data) is ASH_ERROR_UNSUPPORTED. The diagnostic names the node (or, if it has no
 * name, its first output), the operator with domain and operator set, and the byte offset of the node in
 * the file. The caller destroys *out. */
ASH_API ash_status ash_onnx_read(ash_context *context, const char *path, const ash_onnx_options *options,
                                 ash_graph **out, ash_diag *diag);
/* The same from memory. Data are copied (all of the model where the graph is open): `data` is not used
 * after the call. External data are refused. */
ASH_API ash_status ash_onnx_parse(ash_context *context, const void *data, uint64_t size,
                                  const ash_onnx_options *options, ash_graph **out, ash_diag *diag);

/* Zeroed options are the defaults. */
typedef struct ash_onnx_write_options {
    size_t size;           /* bytes that the caller knows, or 0: ASH_INIT */
    const char *external;  /* name of a file beside the model that gets the large tensors, or NULL: all in
                             one file */
    uint64_t external_min; /* bytes from which a tensor is large; 0: 1024 */
} ash_onnx_write_options;

/* Writes a graph as an ONNX model of operator set 18. Data are streamed, and aligned to 64 bytes where
 * they are large. The files appear under their names when they are complete, that of external data first.
 * Loops become Scan, where there is no condition and something is sliced, If, where there is one iteration
 * or none, and Loop; what an iteration computes is their body. Variables are dims of the same names, and
 * nodes that no output needs are left out.
 *
 * What only compiled graphs have (blocked layouts), and what ONNX cannot say (functions of the caller,
 * states, convolutions and windowed sums of integers, inputs and outputs of narrow elements), is
 * ASH_ERROR_UNSUPPORTED; the diagnostic names the node. `options` may be NULL. */
ASH_API ash_status ash_onnx_write(const ash_graph *graph, const char *path,
                                  const ash_onnx_write_options *options, ash_diag *diag);
/* Whether ash_onnx_write can say all of the graph: its failures, without a file. To be asked before a model
 * is trained, of the graph as it was read: ash_graph_with_parameters changes nothing in that. */
ASH_API ash_status ash_onnx_check(const ash_graph *graph, ash_diag *diag);

#ifdef __cplusplus
}
#endif
#endif
