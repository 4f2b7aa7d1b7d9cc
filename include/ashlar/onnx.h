/* ONNX files: reading a model into a graph, and writing a graph as a model. */
#ifndef ASHLAR_ONNX_H
#define ASHLAR_ONNX_H

#include "graph.h"
#include "tensor.h"

#ifdef __cplusplus
extern "C" {
#endif

/* What a named dim (dim_param) of the model's inputs stands for. A dim without a name and a number is
 * called after the input and its axis, as "input.0". With min == max the dim becomes that number; else it
 * becomes a variable of the graph within [min, max] elements. */
typedef struct ash_onnx_var {
    const char *name;
    int64_t min, max;
} ash_onnx_var;

/* A graph input that is a constant for this import: needed where the model takes from an input what a graph
 * must know beforehand, such as the target of a Reshape. */
typedef struct ash_onnx_bind {
    const char *input;
    const ash_tensor *tensor;
} ash_onnx_bind;

/* What is going to be given to an input: its dims that are not numbers in the file, and that `vars` does
 * not name, are those of this type, and so are dims of the same names elsewhere. Inputs that the model does
 * not have are ignored. */
typedef struct ash_onnx_shape {
    const char *input;
    const ash_type *type; /* of static dims */
} ash_onnx_shape;

typedef struct ash_onnx_options {
    const ash_onnx_var *vars;
    size_t n_vars;
    const ash_onnx_shape *shapes;
    size_t n_shapes;
    int64_t var_min, var_max; /* bounds of the other dims; both 0: [1, 4096] */
    const ash_onnx_bind *binds;
    size_t n_binds;
    bool parameters; /* make the floating point initializers parameters, which plans may rebind by name */
} ash_onnx_options;

/* Reads a model file: operator sets 1 to 28 of the default domain. Weights are used where they lie, in the
 * mapped file or in files of external data beside it, as long as the graph or a plan made from it exists.
 * `options` may be NULL, and is not used after the call.
 *
 * A file that is replaced by renaming, or removed, stays what it was for those who have opened it. One that
 * is cut short while it is in use is ASH_ERROR_IO of the next prepare or execute that would read it; see
 * ashlar/device.h for what cannot be caught.
 *
 * A broken file is ASH_ERROR_FORMAT; what cannot be expressed (an unknown operator, strings, sequences,
 * shapes that depend on data) is ASH_ERROR_UNSUPPORTED. The diagnostic names the node (or, if it has no
 * name, its first output), the operator with domain and operator set, and the byte offset of the node in
 * the file. The caller destroys *out. */
ASH_API ash_status ash_onnx_read(ash_context *context, const char *path, const ash_onnx_options *options,
                                 ash_graph **out, ash_diag *diag);
/* The same from memory. Data are copied: `data` is not used after the call. External data are refused. */
ASH_API ash_status ash_onnx_parse(ash_context *context, const void *data, size_t size,
                                  const ash_onnx_options *options, ash_graph **out, ash_diag *diag);

typedef struct ash_onnx_write_options {
    const char *external; /* name of a file beside the model that gets the large tensors, or NULL: all in
                             one file */
    size_t external_min;  /* bytes from which a tensor is large; 0: 1024 */
} ash_onnx_write_options;

/* Writes a graph as an ONNX model of operator set 18. Data are streamed, and aligned to 64 bytes where they
 * are large. The files appear under their names when they are complete, that of external data first. What
 * only compiled graphs have (blocked layouts), and what ONNX cannot say (convolutions and windowed sums of
 * integers), is ASH_ERROR_UNSUPPORTED. `options` may be NULL. */
ASH_API ash_status ash_onnx_write(const ash_graph *graph, const char *path,
                                  const ash_onnx_write_options *options, ash_diag *diag);

#ifdef __cplusplus
}
#endif
#endif
