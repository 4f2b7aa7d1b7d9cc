/* SPDX-License-Identifier: MIT */
/* Graphs: values that are produced by inputs, parameters, constants and operator nodes.
 *
 * A graph is built by appending: a node's operands exist before it, so node order is a topological order
 * and a graph has no cycles. Shapes and dtypes are inferred, and checked, when a node is added. Every value
 * has an id that stays valid as long as the graph, and through compilation: plans speak of values by these
 * ids.
 *
 * The building functions return a value id. Errors are sticky: the first failure is kept in the graph, the
 * failing call and all later ones that take its result return ASH_NO_VALUE, and ash_graph_status tells what
 * went wrong. So a network is written as plain nested calls, and checked once.
 *
 * A graph is used from one thread at a time. */
#ifndef ASHLAR_GRAPH_H
#define ASHLAR_GRAPH_H

#include <stdbool.h>
#include <stddef.h>

#include "context.h"

#ifdef __cplusplus
extern "C" {
#endif

/* --- element types and shapes --------------------------------------------------------------------- */

typedef enum ash_dtype {
#define DTYPE(ID, name, KIND, bytes) ASH_##ID,
#include "dtypes.def"
#undef DTYPE
    ASH_DTYPE_COUNT
} ash_dtype;

ASH_API const char *ash_dtype_name(ash_dtype dtype); /* "f32"; "?" outside the enumeration */
ASH_API uint64_t ash_dtype_size(ash_dtype dtype);    /* bytes of one element; 0 outside the enumeration */

enum { ASH_MAX_RANK = 10 };

/* Elements along one dim: a number from 0, or, when negative, an expression of the graph's variables. Two
 * dims are equal exactly when the numbers are: expressions have one canonical form in a graph and in
 * everything derived from it. */
typedef int64_t ash_dim;

typedef struct ash_type {
    ash_dtype dtype;
    unsigned rank;
    ash_dim dims[ASH_MAX_RANK]; /* outermost first */
} ash_type;

typedef struct ash_graph ash_graph;
typedef uint32_t ash_value;
#define ASH_NO_VALUE UINT32_MAX

/* --- operators and attributes --------------------------------------------------------------------- */

typedef enum ash_op {
#define OP(ID, name, CLASS, imin, imax, outs, attrs) ASH_OP_##ID,
#include "ops.def"
#undef OP
    ASH_OP_COUNT
} ash_op;

ASH_API const char *ash_op_name(ash_op op); /* "matmul"; "?" outside the enumeration */

/* What a value is computed for: set by the functions of ashlar/train.h for all that they append. */
typedef enum ash_phase {
    ASH_PHASE_FORWARD,  /* everything else */
    ASH_PHASE_BACKWARD, /* gradients, and what is made of them before an optimiser takes them */
    ASH_PHASE_UPDATE,   /* of an optimiser */
    ASH_PHASE_COUNT
} ash_phase;

ASH_API const char *ash_phase_text(ash_phase phase); /* "backward"; "?" outside the enumeration */

typedef enum ash_attr_key {
#define ATTR(KEY, name, TYPE) ASH_ATTR_##KEY,
#include "attrs.def"
#undef ATTR
    ASH_ATTR_COUNT
} ash_attr_key;

typedef enum ash_scatter {
    ASH_SCATTER_SET, /* of several updates of one element, the last in row-major order */
    ASH_SCATTER_ADD,
    ASH_SCATTER_MUL,
    ASH_SCATTER_MIN,
    ASH_SCATTER_MAX
} ash_scatter;

/* One attribute. The key decides which field counts: `i` for INT, DIM and DTYPE, `list` and `count` for
 * INTS and DIMS. */
typedef struct ash_attr {
    ash_attr_key key;
    uint32_t count;
    int64_t i;
    const int64_t *list;
} ash_attr;

#define ASH_ATTR_I(KEY, value) ((ash_attr){.key = ASH_ATTR_##KEY, .i = (value)})
#define ASH_ATTR_LIST(KEY, items, n)                                                                       \
    ((ash_attr){.key = ASH_ATTR_##KEY, .count = (uint32_t)(n), .list = (items)})

/* --- life, variables, boundary -------------------------------------------------------------------- */

/* Creates an empty graph; the name is copied. The caller destroys *out. */
ASH_API ash_status ash_graph_create(ash_context *context, const char *name, ash_graph **out,
                                    ash_diag *diag);
ASH_API void ash_graph_destroy(ash_graph *graph); /* NULL is allowed */

/* ASH_OK, or the first failure of a building call, with its diagnostic in `diag`. */
ASH_API ash_status ash_graph_status(const ash_graph *graph, ash_diag *diag);

/* A named variable with min <= value <= max (elements, min at least 0), usable as a dim. Declaring a name
 * again gives the same variable when the bounds agree, and an error when they do not. The sticky error's
 * result is the dim 0. */
ASH_API ash_dim ash_graph_var(ash_graph *graph, const char *name, int64_t min, int64_t max);
/* A named variable that is not the caller's: at each execution a node (ASH_OP_SETTLE) gives it a value from
 * 0 to `limit`, a dim of variables that are there already. Dims that it is a part of depend on data. Until
 * the node is there, nothing may mention the variable; inputs, parameters, constants and states never
 * do. */
ASH_API ash_dim ash_graph_settled_var(ash_graph *graph, const char *name, ash_dim limit);
/* Arithmetic on dims; expressions are kept in canonical form. Overflow and division by zero are sticky
 * errors. */
ASH_API ash_dim ash_graph_dim_add(ash_graph *graph, ash_dim a, ash_dim b);
ASH_API ash_dim ash_graph_dim_sub(ash_graph *graph, ash_dim a,
                                  ash_dim b); /* an error when it can be negative */
ASH_API ash_dim ash_graph_dim_mul(ash_graph *graph, ash_dim a, ash_dim b);
ASH_API ash_dim ash_graph_dim_div(ash_graph *graph, ash_dim a, ash_dim b); /* rounded down */
ASH_API ash_dim ash_graph_dim_min(ash_graph *graph, ash_dim a, ash_dim b);
ASH_API ash_dim ash_graph_dim_max(ash_graph *graph, ash_dim a, ash_dim b);

/* A value that the caller gives at each execution. Names are unique among inputs, parameters and
 * states, and copied. */
ASH_API ash_value ash_graph_input(ash_graph *graph, const char *name, const ash_type *type);

typedef enum ash_data_mode {
    ASH_DATA_COPY,  /* the graph copies the bytes */
    ASH_DATA_BORROW /* the caller keeps them alive and unchanged as long as the graph and every plan made
                       from it */
} ash_data_mode;

/* A value known now: row-major elements of `type`, whose dims are numbers. `size` is in bytes and must be
 * exact. */
ASH_API ash_value ash_graph_constant(ash_graph *graph, const ash_type *type, const void *data,
                                     uint64_t size, ash_data_mode mode);
/* A constant that a plan may rebind by its name: a weight that training or a caller changes between
 * executions. */
ASH_API ash_value ash_graph_parameter(ash_graph *graph, const char *name, const ash_type *type,
                                      const void *data, uint64_t size, ash_data_mode mode);
/* A value that a plan keeps from one execution to the next. It starts with `data`, row-major elements of a
 * type whose dims are numbers, or with zeros when `data` is NULL and `size` is 0; then the type may hold
 * variables. A state has as many bytes as its type at the variables' maxima; an execution sees the first of
 * them as row-major elements of the present shape, and what lies past these stays as it is. The name is
 * unique among inputs, parameters and states, and copied. */
ASH_API ash_value ash_graph_state(ash_graph *graph, const char *name, const ash_type *type,
                                  const void *data, uint64_t size, ash_data_mode mode);
/* After an execution the state is `value`, of the same type. At most once per state; one without an update
 * stays as it is. Within an execution the state itself is what it was before. Where nothing reads that any
 * more, the new value is computed in the state's bytes: then a scatter, or a concatenation with parts of
 * the state that stay where they are (ash_write_axis), touches only what changes. */
ASH_API void ash_graph_update(ash_graph *graph, ash_value state, ash_value value);
/* Makes `value` an output called `name` (copied; unique among outputs). One value may be several
 * outputs. */
ASH_API void ash_graph_output(ash_graph *graph, const char *name, ash_value value);

/* --- nodes ---------------------------------------------------------------------------------------- */

/* Appends a node. `ins` and `attrs` are copied; `outs` receives as many ids as the operator has outputs. On
 * failure the graph is unchanged but for its sticky error, and `outs` is filled with ASH_NO_VALUE. */
ASH_API ash_status ash_graph_add(ash_graph *graph, ash_op op, const ash_value *ins, size_t n_ins,
                                 const ash_attr *attrs, size_t n_attrs, ash_value *outs);
/* Names the nodes that are added from now on, for diagnostics and reports; copied; NULL: no name. */
ASH_API void ash_graph_name_next(ash_graph *graph, const char *name);

/* The most devices that a plan has, the main one included. */
enum { ASH_MOST_DEVICES = 8 };

/* Places the node that computes `value`, and all of its results, on a device of the plan: the one of this
 * index in ash_plan_options.devices. Whoever reads a result elsewhere reads a copy. Nodes that nobody
 * places are on the main device, index 0, as are inputs and outputs; what depends on constants and
 * parameters alone is computed at prepare on each device that reads it; the body of a loop is where the
 * loop is. A state is placed as well, or is where the node is that computes its new value; one that does
 * not change, or becomes what no node computes, is on the main device. A parameter is on each device that
 * reads it; placing one places the state that it is when it is trained (ash_graph_trainable).
 * ASH_ERROR_INVALID_ARGUMENT for inputs and constants, ASH_ERROR_OUT_OF_RANGE for a device past the last
 * that a plan can have. */
ASH_API ash_status ash_graph_place(ash_graph *graph, ash_value value, uint32_t device, ash_diag *diag);

/* --- open graphs ---------------------------------------------------------------------------------- */

/* A graph that was read from a file is open while it has input dims whose sizes nobody has said
 * (ashlar/onnx.h). It has its inputs, whose open dims are variables, and the names of its outputs
 * (their value is ASH_NO_VALUE); its nodes are made when the sizes are known. A plan of an open graph takes
 * them from the inputs that it is given (ashlar/plan.h), and ash_eager from its tensors. Everything else
 * that needs nodes, and all building functions, are ASH_ERROR_STATE. */
ASH_API bool ash_graph_is_open(const ash_graph *graph);
/* The graph for inputs of these types, as many as the graph has: dims are numbers, of which those of open
 * dims count. NULL stands for a type that is not known; the others must say all sizes then. Its inputs have
 * the ids that they have in the open graph. A size that two types say differently is ASH_ERROR_SHAPE, and
 * what is wrong with the nodes is told as ash_onnx_read tells it. A graph that is not open is
 * ASH_ERROR_STATE. The caller destroys *out. */
ASH_API ash_status ash_graph_close(const ash_graph *graph, const ash_type *const *inputs, size_t count,
                                   ash_graph **out, ash_diag *diag);

/* --- reading a graph ------------------------------------------------------------------------------ */

ASH_API const char *ash_graph_name(const ash_graph *graph);
ASH_API size_t ash_graph_node_count(const ash_graph *graph);
ASH_API size_t ash_graph_value_count(const ash_graph *graph); /* ids are below this */
ASH_API size_t ash_graph_input_count(const ash_graph *graph);
ASH_API size_t ash_graph_output_count(const ash_graph *graph);
/* Ids and names of inputs and outputs by position; ASH_NO_VALUE and NULL past the end. Borrowed from the
 * graph. */
ASH_API ash_value ash_graph_input_at(const ash_graph *graph, size_t position, const char **name);
ASH_API ash_value ash_graph_output_at(const ash_graph *graph, size_t position, const char **name);
ASH_API size_t ash_graph_state_count(const ash_graph *graph);
/* A state by position, with its name and its update, ASH_NO_VALUE when it has none; each may be NULL.
 * ASH_NO_VALUE past the end. */
ASH_API ash_value ash_graph_state_at(const ash_graph *graph, size_t position, const char **name,
                                     ash_value *update);
/* The type of a value, borrowed from the graph until the next node is added; NULL when there is no such
 * id. */
ASH_API const ash_type *ash_graph_type(const ash_graph *graph, ash_value value);
/* The least and the greatest number that a dim of the graph can be: both are the dim itself where that is a
 * number, and 0 where the graph has no such dim. An open dim can be 0 to 2^31 - 1. */
ASH_API void ash_graph_dim_bounds(const ash_graph *graph, ash_dim dim, int64_t *least, int64_t *greatest);

/* A variable of the graph. */
typedef struct ash_graph_variable {
    size_t size;      /* bytes that the caller knows: ASH_INIT */
    const char *name; /* borrowed from the graph */
    bool settled;     /* a node gives it its value: a size that depends on data */
    bool open;        /* its size is not known yet: the graph is open */
    int64_t min, max; /* inclusive bounds */
} ash_graph_variable;

typedef struct ash_var_binding {
    const char *name;
    int64_t value;
} ash_var_binding;

ASH_API size_t ash_graph_var_count(const ash_graph *graph);
/* ASH_ERROR_NOT_FOUND past the end. */
ASH_API ash_status ash_graph_var_at(const ash_graph *graph, size_t index, ash_graph_variable *out,
                                    ash_diag *diag);
/* The values of variables with which inputs have these types, as many as the graph has (NULL: nothing is
 * said of that one), whose dims are numbers: for ash_plan_set_vars and whatever else takes bindings. `out`
 * has room for one per variable; *n receives how many are known. A dim that is a variable says its value,
 * an expression one that no other dim says. ASH_ERROR_SHAPE, naming the input: one variable would have two
 * values. Whether bounds, dtypes and other dims fit is told where the values and inputs are set. */
ASH_API ash_status ash_graph_learn_vars(const ash_graph *graph, const ash_type *const *inputs, size_t count,
                                        ash_var_binding *out, size_t *n, ash_diag *diag);

/* The text form: prints the whole graph, constants with their data when `with_data`, else as "..." (such a
 * text cannot be parsed back). *out is freed with ash_context_free_text. */
ASH_API ash_status ash_graph_print(const ash_graph *graph, bool with_data, char **out, uint64_t *size,
                                   ash_diag *diag);
/* Parses a text form into a new graph; the diagnostic has the byte offset of the first error. A text that
 * says `internal` was printed behind the passes for some target, and may have their forms; other graphs are
 * refused these, here and by ash_graph_add: ASH_ERROR_UNSUPPORTED. */
ASH_API ash_status ash_graph_parse(ash_context *context, const char *text, uint64_t size, ash_graph **out,
                                   ash_diag *diag);

/* Checks every invariant of a graph again, from nothing but its nodes: operands before uses, types as
 * inferred, attributes complete, names unique. A defect is ASH_ERROR_INTERNAL and names the node. */
ASH_API ash_status ash_graph_verify(const ash_graph *graph, ash_diag *diag);

#ifdef __cplusplus
}
#endif
#endif
