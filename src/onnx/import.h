/* SPDX-License-Identifier: MIT */
/* Import of a model: the state, and what the functions that lower one operator each may use.
 *
 * A lowering function sees one node (im->node). It takes its operands with ash_import__in, appends core
 * nodes to im->graph, and hands each result to ash_import__out. Failures are sticky, in `im` and in the
 * graph: a function may go on with ASH_NO_VALUE in its hands, and the driver adds node, operator and offset
 * to the diagnostic when it returns.
 *
 * Small integer tensors are tracked as lists of numbers and dim expressions (track.c), so that shape
 * computations of the model become attributes of core operators. Such a value becomes a tensor of the graph
 * only when one is asked for. */
#ifndef ASH_IMPORT_H
#define ASH_IMPORT_H

#include "ashlar/onnx.h"
#include "data.h"
#include "ir/build.h"
#include "ir/narrow.h"

/* An element of a tracked list: a number, or, when `dim`, the expression `v` (an ash_dim, negative). */
typedef struct ash_import_int {
    int64_t v;
    bool dim;
} ash_import_int;

enum { ASH_IMPORT_LIST = 1024 }; /* longest list that is tracked, elements */

typedef struct ash_late ash_late; /* late.h */

typedef struct ash_import_value {
    ash_type type;                 /* known unless the value is a tensor that has not been read yet */
    ash_value value;               /* ASH_NO_VALUE: not in the graph yet */
    const ash_onnx_tensor *tensor; /* the initializer that it comes from, or NULL */
    const ash_import_int *list;    /* its elements, or NULL when they are not tracked */
    size_t count;                  /* elements of the list, or of the sequence */
    ash_narrow narrow;             /* what its bytes stand for */
    bool absent;          /* nothing: an empty optional, or what the call of a function leaves out */
    bool sequence;        /* a sequence of tensors: then only `items` and `count` matter */
    const size_t *items;  /* indices of ash_import.values */
    const ash_late *late; /* its shape is computed: then of `type` only dtype and rank count; or NULL */
} ash_import_value;

/* An initializer, which is not read yet. */
static inline ash_import_value ash_import__of_tensor(const ash_onnx_tensor *tensor) {
    ash_onnx_element element;
    ash_onnx__element(tensor->dtype, &element);
    return (ash_import_value){.value = ASH_NO_VALUE, .tensor = tensor, .narrow = element.narrow};
}

/* Names visible at a node: those of its own graph, then of the graphs around it, up to the function that
 * they are in. */
/* Values from outside that a body takes as arguments, so that what it computes of them belongs to it: of
 * branches that may not be taken. */
typedef struct ash_import_gate {
    ASH_VEC(ash_value) arguments, outer; /* one for one */
} ash_import_gate;

/* What a body of Loop reads at the iteration's number of values from outside that are as long as there are
 * iterations: the loop hands it on slice by slice, so that their length need not be known in the body. */
enum { ASH_IMPORT_SLICES = 32 };
typedef struct ash_import_slices {
    ash_value iteration; /* its number; what is older is from outside */
    ash_dim trips;
    uint32_t n;
    ash_value xs[ASH_IMPORT_SLICES], slices[ASH_IMPORT_SLICES]; /* one for one */
} ash_import_slices;

typedef struct ash_import_scope {
    ash_import_gate *gate; /* of a body that has one, or NULL */
    struct ash_import_scope *parent;
    ash_strmap names;            /* to indices of ash_import.values */
    const ash_strmap *constants; /* the same for the initializers of a body, or NULL */
} ash_import_scope;

typedef struct ash_import_block ash_import_block; /* nodes that may be imported often: block.c */

enum { ASH_IMPORT_PATH = 256 };

/* A node that names a function of the model, while the function's nodes are imported. */
typedef struct ash_import_call {
    const struct ash_import_call *outer;
    const ash_onnx_function *function;
    const ash_onnx_node *node; /* its attributes refer to nothing any more */
    char
        path[ASH_IMPORT_PATH]; /* names of the calls down to this one, each with a '/'; cut when too long */
} ash_import_call;
/* Where a mask is true: see ash_import__found. */
typedef struct ash_import_found {
    ash_value positions;
    ash_dim count;
} ash_import_found;

typedef struct ash_import_row ash_import_row;

typedef struct ash_import {
    const ash_allocator *allocator;
    ash_graph *graph;
    const ash_onnx_options *options;
    ash_onnx_source source;
    ash_onnx_model model;
    ash_arena arena; /* lives as long as the import */
    ASH_VEC(ash_import_value) values;
    ash_import_scope *scope;
    ash_strmap functions;               /* domain, name and overload -> index of model.functions */
    const ash_import_call *call;        /* the innermost one around the node, or NULL */
    unsigned calls;                     /* how many are around it */
    const ash_onnx_opsets *opsets;      /* of the function that the node is in, or of the model */
    ash_strmap dims;                    /* names of the inputs' dims that are not numbers */
    ash_strmap given;                   /* of these, the numbers that the shapes which are known say */
    ASH_VEC(ash_onnx_var) learned;      /* the same */
    ash_span bytes;                     /* of the model */
    ash_strmap outputs;                 /* names of outputs up to now */
    ASH_VEC(const char *) output_names; /* while dims are open */
    const ash_onnx_node *node;          /* being lowered */
    const ash_import_row *row;          /* of its operator */
    ash_arena *scratch;                 /* lives as long as that node */
    int64_t opset;             /* version that the model or function imports of the node's domain */
    bool has_absent;           /* some value is */
    bool has_late;             /* likewise */
    unsigned nesting;          /* graphs around the node */
    unsigned rolled;           /* of these, bodies of the graph's loops */
    ash_import_slices *slices; /* of the innermost of them, or NULL */
    unsigned ties;        /* names of dims that are being replaced by expressions, each in the one before */
    size_t lowered;       /* nodes so far, those of repeated bodies each time */
    uint64_t names;       /* operands, results and attributes that they have */
    uint64_t kept;        /* bytes of lists and constants that import made */
    uint64_t done, total; /* nodes of the model's own graph: imported, and all */
    ash_map block_of;     /* address of a message -> index of `blocks` */
    ASH_VEC(ash_import_block *) blocks;
    ash_map constants; /* offset of an attribute in the file -> constant with what it says */
    ash_map lists;     /* graph value -> address of its tracked list */
    ash_map folded;    /* graph value -> constant with its elements, made by fold.c */
    ash_map picked;    /* graph value and element -> that element, i64: computed.c */
    ash_map ends;      /* such an element that is a size -> the dim that it settles */
    ash_map cuts;      /* such an element and a limit -> the dim that it settles within that */
    ash_map masks;     /* graph value that was asked where it is true -> index of `found` */
    ASH_VEC(ash_import_found) found;
    uint64_t draws;                       /* nodes so far that draw random numbers */
    ash_value random_seed, random_stream; /* parameters that they share, once `draws` */
    ash_status status;                    /* the sticky failure */
    ash_diag diag;
} ash_import;

typedef void ash_import_fn(ash_import *im);

/* One row of operators.def. */
struct ash_import_row {
    const char *domain, *name;
    int64_t first, last; /* operator sets, inclusive */
    ash_import_fn *lower;
    int arg; /* what tells the operators of one function apart: a core operator or a mode */
};

/* Operators and who lowers them (table.c). NULL when there is none; *known tells whether another opset has
 * it. */
const ash_import_row *ash_import__find(ash_span domain, ash_span op, int64_t opset, bool *known);
/* Whether the table is sorted, as ash_import__find needs it: for a test. */
bool ash_import__table_is_sorted(void);

/* The body of a control operator: declares its initializers, binds its inputs to `ins` (indices of
 * im->values), lowers its nodes, and gives the values of its outputs. Works in a scope of its own below the
 * present one. */
ash_status ash_import__body(ash_import *im, ash_wire graph, const size_t *ins, size_t n_ins, size_t *outs,
                            size_t n_outs);
/* Whether the body gives back input `in` as output `out`: nothing but operators of identity is between. */
bool ash_import__gives_back(ash_import *im, ash_wire graph, size_t in, size_t out);
/* Where a name comes from in a body, of which nothing is imported yet. */
typedef struct ash_import_origin {
    bool known; /* false: from outside */
    const ash_onnx_node
        *node;           /* that makes it; NULL: none does, or one that the caller or the model defines */
    size_t input, entry; /* its number; the initializer's entry; or SIZE_MAX */
} ash_import_origin;
ash_import_origin ash_import__origin(ash_import *im, ash_wire graph, ash_span name);
/* The name of output k of a body; empty: there is no such output. */
ash_span ash_import__out_name(ash_import *im, ash_wire graph, size_t k);
/* ash_import__body of a body without inputs, whose names from outside come through a gate, empty at first,
 * which the caller frees. */
ash_status ash_import__gated_body(ash_import *im, ash_wire graph, ash_import_gate *gate, size_t *outs,
                                  size_t n_outs);
void ash_import__free_gate(ash_import *im, ash_import_gate *gate);

/* Lowers the nodes of a function, a FunctionProto, in the present scope. */
ash_status ash_import__function_nodes(ash_import *im, ash_wire function);
void ash_import__free_blocks(ash_import *im);

/* The nodes of a message, which are its fields `number`, each after those whose results it uses (sort.c):
 * room in `arena`. */
ash_status ash_import__sorted(const ash_allocator *allocator, ash_wire graph, uint32_t number,
                              ash_arena *arena, const ash_wire **nodes, size_t *count);

/* Lowers a node, the one numbered `position` of those around it, in the present scope. The node stays as it
 * is, and may be lowered again. */
void ash_import__node(ash_import *im, const ash_onnx_node *node, size_t position);

/* --- dims of inputs: dims.c ------------------------------------------------------------------------ */

/* Finds what the shapes that are known say of the inputs' dims; before the inputs are declared. */
ash_status ash_import__learn_dims(ash_import *im, ash_wire graph);
/* The type of an input: its dims are numbers, variables, expressions of them. */
ash_status ash_import__input_type(ash_import *im, const ash_onnx_info *info, ash_type *type,
                                  ash_narrow *narrow);

/* --- open dims: open.c ------------------------------------------------------------------------------- */

/* Keeps the model and the options with the graph, whose inputs are there: it is imported once more for
 * every set of sizes. */
ash_status ash_import__make_recipe(ash_import *im);
/* A model from its bytes; takes over what the source holds on to. */
ash_status ash_import__bytes(ash_context *context, const void *data, size_t size,
                             const ash_onnx_options *options, ash_onnx_source source, ash_graph **out,
                             ash_diag *diag);

/* What a node is called: its name, else its first result's, else nothing. */
ash_span ash_import__label(const ash_onnx_node *node);
/* What is appended to the graph from now on is called after the present node. */
void ash_import__name_nodes(ash_import *im);

/* --- functions that the model defines: function.c ------------------------------------------------- */

/* Makes them known by name. */
ash_status ash_import__functions(ash_import *im);
/* The one that a node names, or NULL. */
const ash_onnx_function *ash_import__function(ash_import *im, const ash_onnx_node *node);
/* Lowers the function's nodes in place of im->node, and binds its results. */
void ash_import__call(ash_import *im, const ash_onnx_function *function);
/* A node as it is for the present call: attributes that refer to the call's have their values or are gone.
 * Its attributes are written anew, in the node's scratch arena. */
void ash_import__resolve(ash_import *im, ash_onnx_node *node);

/* --- operators of the caller: caller.c -------------------------------------------------------------- */

/* What the options have for a node's operator, or NULL. */
const ash_onnx_operator *ash_import__given(const ash_import *im, const ash_onnx_node *node);
void ash_import__lower_given(ash_import *im, const ash_onnx_operator *given);

/* Records a failure; the first one stays. Returns ASH_NO_VALUE, so that a lowering can return it. */
ash_value ash_import__fail(ash_import *im, ash_status code, const char *fmt, ...) ASH_PRINTF(3, 4);
/* False after a failure, of the import or of what was built. */
static inline bool ash_import__ok(ash_import *im) {
    if (im->status == ASH_OK && im->graph && im->graph->status != ASH_OK)
        im->status = ash_graph_status(im->graph, &im->diag);
    return im->status == ASH_OK;
}

/* Room that lives as long as the import, zeroed, and counts toward its limit. NULL and a failure when there
 * is no memory. */
void *ash_import__keep(ash_import *im, size_t count, size_t size);
/* The constant that an attribute gave before, or ASH_NO_VALUE; and the one to give from now on, which is
 * returned. */
ash_value ash_import__constant_of(const ash_import *im, const ash_onnx_attr *attr);
ash_value ash_import__note_constant(ash_import *im, const ash_onnx_attr *attr, ash_value value);

/* --- operands and results ------------------------------------------------------------------------- */

/* True when operand k is given. */
bool ash_import__has(const ash_import *im, size_t k);
/* Operand k in the graph. Missing: a failure. */
ash_value ash_import__in(ash_import *im, size_t k);
/* Its type, also when it is only a list so far. Missing: a failure and a scalar. */
ash_type ash_import__in_type(ash_import *im, size_t k);
/* The type of a value of the graph; that of ASH_NO_VALUE is an f32 scalar. */
ash_type ash_import__type(const ash_import *im, ash_value value);

/* Whether a node settles a variable that the dim mentions. */
bool ash_import__hangs_on_data(const ash_import *im, ash_dim dim);
/* Brings values whose dims must agree (from the last one on, but for dim `except`; ASH_MAX_RANK: all) to
 * the same expressions, where they have different ones that can be equal: they are cut to the one that is
 * never more than the others, or to their minimum, and the graph has the condition that nothing is cut off.
 * Where they depend on data an execution in which they differ fails. */
void ash_import__agree(ash_import *im, ash_value *values, size_t n, unsigned except);
/* The same for dim `i` of x and dim `j` of y. */
void ash_import__agree_on(ash_import *im, ash_value *x, unsigned i, ash_value *y, unsigned j);
/* The same for dim `i` of x and a dim of the shape that it is brought to, unless they depend on data. */
void ash_import__agree_with(ash_import *im, ash_value *x, unsigned i, ash_dim *dim);
/* An axis of a value that is not known to be no longer than a dim: cut to it, on the same condition. */
void ash_import__at_most(ash_import *im, ash_value *value, unsigned axis, ash_dim most);
/* Makes it a condition that a size that variables say is no less than a number, where it can be. */
void ash_import__at_least(ash_import *im, ash_dim dim, int64_t least);
/* An axis whose size is not known to be a multiple of `by`, above zero: cut to one, on the condition that
 * nothing is cut off. A size that is a number stays as it is. */
ash_value ash_import__multiple(ash_import *im, ash_value value, unsigned axis, int64_t by);
/* Brings a value to a shape whose dims are its own, one or several neighbours each, but for different
 * expressions that can be the same size, which then agree; dim `hole` (or none, `rank`) is what the others
 * leave. False, and nothing done: they are not. */
bool ash_import__regroup(ash_import *im, ash_value *x, ash_dim *dims, unsigned rank, unsigned hole);
/* The same for a value that is to be reshaped to these dims, wherever the dims' numbers ask for it. */
ash_value ash_import__reshapable(ash_import *im, ash_value x, ash_dim *dims, unsigned rank);

/* What its bytes stand for; ASH_NARROW_NONE also when it is missing. */
ash_narrow ash_import__in_narrow(ash_import *im, size_t k);

/* Elements of operand k: numbers or dims; numbers alone; floating point numbers. False and a failure that
 * names the operand when they cannot be known at import. Borrowed from the node's scratch arena. */
bool ash_import__list(ash_import *im, size_t k, const ash_import_int **list, size_t *count);
bool ash_import__ints(ash_import *im, size_t k, const int64_t **list, size_t *count);
bool ash_import__floats(ash_import *im, size_t k, const double **list, size_t *count);
/* The same without a failure. */
bool ash_import__try_list(ash_import *im, size_t k, const ash_import_int **list, size_t *count);
bool ash_import__try_ints(ash_import *im, size_t k, const int64_t **list, size_t *count);
/* The same for floating point numbers, all of them whole. */
bool ash_import__try_whole(ash_import *im, size_t k, const ash_import_int **list, size_t *count);
bool ash_import__try_floats(ash_import *im, size_t k, const double **list, size_t *count);

/* Binds result k, if the node wants it. */
void ash_import__out(ash_import *im, size_t k, ash_value value);
/* The same for bytes that stand for something else. */
void ash_import__out_narrow(ash_import *im, size_t k, ash_value value, ash_narrow narrow);
/* The same with a tracked list; `list` is copied. */
void ash_import__out_list(ash_import *im, size_t k, const ash_type *type, const ash_import_int *list);
bool ash_import__wants(const ash_import *im, size_t k);

/* Element i of a constant as a number. */
double ash_import__float_at(const ash_blob *blob, ash_dtype dtype, size_t i);
int64_t ash_import__int_at(const ash_blob *blob, ash_dtype dtype, size_t i);
/* The numbers of the elements of x that are not 0, in row-major order, i64 [*count]: op_select.c. The same
 * value gives the same dim again, and one that is known at import gives a number. The dim is called after
 * the present node's result k and its dim `axis`, "y.0". */
ash_value ash_import__found(ash_import *im, ash_value x, size_t k, unsigned axis, ash_dim *count);

/* --- elements of few bits: narrow.c ---------------------------------------------------------------- */

/* Whether the operator of a row moves elements of any type from operands to results of the same; whether
 * it takes bytes that stand for something else at all. All others refuse them. */
bool ash_import__moves_narrow(const ash_import_row *row);
bool ash_import__takes_narrow(const ash_import_row *row);
/* The first operand that has such bytes says what those of a moving operator's results are. */
ash_narrow ash_import__moved_narrow(ash_import *im);

/* What the options say of a dim, or NULL: dims.c. */
const ash_onnx_var *ash_import__var(const ash_import *im, ash_span name);

/* --- attributes: a wrong type is a failure, an absent one gives the default ----------------------- */

const ash_onnx_attr *ash_import__attr(ash_import *im, const char *name,
                                      ash_onnx_attr_type type); /* NULL: absent */
int64_t ash_import__attr_int(ash_import *im, const char *name, int64_t absent);
double ash_import__attr_float(ash_import *im, const char *name, double absent);
bool ash_import__attr_ints(ash_import *im, const char *name, const int64_t **list, size_t *count);
/* The index of a text among the `n` that the attribute may be, of which the first is meant when it is
 * absent; any other is a failure that lists them, and 0. */
unsigned ash_import__attr_choice(ash_import *im, const char *name, const char *const *choices, size_t n);
#define ASH_IMPORT_CHOICE(im, name, ...)                                                                   \
    ash_import__attr_choice((im), (name), (const char *const[]){__VA_ARGS__},                              \
                            sizeof((const char *const[]){__VA_ARGS__}) / sizeof(const char *))
bool ash_import__attr_tensor(ash_import *im, const char *name, ash_type *type, ash_value *value);
/* What the bytes of such a tensor stand for; ASH_NARROW_NONE when it is absent. */
ash_narrow ash_import__attr_narrow(ash_import *im, const char *name);

/* A list of axes or the like: operand k where `from` opset on it is an operand, else the attribute. False:
 * absent. */
bool ash_import__ints_of(ash_import *im, const char *attr, size_t k, int64_t from, const int64_t **list,
                         size_t *count);

/* An axis in [-rank, rank), made non-negative; else a failure and 0. */
unsigned ash_import__axis(ash_import *im, int64_t axis, unsigned rank);

/* --- values by index ------------------------------------------------------------------------------ */

/* The index of a name that is visible at the node, or SIZE_MAX. */
size_t ash_import__find_name(ash_import *im, ash_span name);
/* Makes the entry `index` known under a name of the present graph; one that the graph has already is a
 * failure. */
void ash_import__alias(ash_import *im, ash_span name, size_t index);
/* The same for a new entry. */
void ash_import__declare(ash_import *im, ash_span name, const ash_import_value *value);
/* A new entry without a name; 0 after a failure. */
size_t ash_import__entry(ash_import *im, const ash_import_value *value);
/* The same for a tensor of the graph; ASH_NO_VALUE is none. */
size_t ash_import__tensor_entry(ash_import *im, ash_value value);
/* The graph's value for entry `index`: reads the initializer, or makes a tensor of the list. */
ash_value ash_import__materialize(ash_import *im, size_t index);

/* --- elements known at import: fold.c ------------------------------------------------------------- */

/* The constant with the elements of a value that is computed from constants alone, or ASH_NO_VALUE.
 * Evaluates at most a fixed number of elements. */
ash_value ash_import__fold(ash_import *im, ash_value value);
/* The graph inputs, at most `most` of them, that would have to be constants for the value to be known.
 * False: there are none, or more, or it would not be known even then. */
bool ash_import__inputs_of(ash_import *im, ash_value value, ash_value *inputs, size_t most, size_t *count);

/* --- arithmetic on elements of tracked lists: size.c ----------------------------------------------- */

/* An element as a dim, which may be negative. False: there is none (INT64_MIN). */
bool ash_import__to_dim(const ash_import *im, ash_import_int e, ash_dim *out);
/* And back: a number where the dim has but one value. */
ash_import_int ash_import__from_dim(const ash_import *im, ash_dim dim);
/* `a op b` as ONNX computes it on integers; comparisons and logic give 0 or 1. False: it cannot be
 * expressed. */
bool ash_import__combine(const ash_import *im, ash_op op, ash_import_int a, ash_import_int b,
                         ash_import_int *out);
/* An element as the size of a dim. False and a failure when it is, or can be, negative. */
bool ash_import__size(ash_import *im, ash_import_int e, ash_dim *out);
/* The position in [0, dim] that a bound of a slice with a positive step stands for: a negative one counts
 * from the end, and what lies outside is cut. False and a failure when it cannot be expressed. */
bool ash_import__position(ash_import *im, ash_import_int bound, ash_dim dim, ash_dim *out);

/* --- tracked lists: track.c ----------------------------------------------------------------------- */

/* Computes the node on lists, when its operator and operands allow it: binds its result and returns
 * true. */
bool ash_import__track(ash_import *im);

#endif
