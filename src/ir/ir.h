/* SPDX-License-Identifier: MIT */
/* The inside of a graph, for the floors above: values, nodes, constants, dims.
 *
 * Passes never change a graph: they read one and build another (ash_graph__derive), so that every stage is
 * a plain value that can be printed, verified and evaluated. The dim expressions and the variables are
 * shared by all graphs derived from one another, and so an ash_dim means the same in all of them. */
#ifndef ASH_IR_H
#define ASH_IR_H

#include "ashlar/function.h"
#include "ashlar/graph.h"
#include "base/arena.h"
#include "base/costs.h"
#include "base/map.h"

/* --- tables --------------------------------------------------------------------------------------- */

typedef enum ash_kind { ASH_KIND_FLOAT, ASH_KIND_SIGNED, ASH_KIND_UNSIGNED, ASH_KIND_BOOL } ash_kind;

ash_kind ash_dtype_kind(ash_dtype dtype);
static inline bool ash_dtype_is_float(ash_dtype dtype) {
    return ash_dtype_kind(dtype) == ASH_KIND_FLOAT;
}

typedef enum ash_class {
    ASH_CLASS_UNARY,
    ASH_CLASS_BINARY,
    ASH_CLASS_COMPARE,
    ASH_CLASS_SELECT,
    ASH_CLASS_CAST,
    ASH_CLASS_MOVE,
    ASH_CLASS_REDUCE,
    ASH_CLASS_SUMS,
    ASH_CLASS_ARGREDUCE,
    ASH_CLASS_MATMUL,
    ASH_CLASS_CONV,
    ASH_CLASS_POOL,
    ASH_CLASS_GATHER,
    ASH_CLASS_SCATTER,
    ASH_CLASS_SCAN,
    ASH_CLASS_TOPK,
    ASH_CLASS_NONZERO,
    ASH_CLASS_NMS,
    ASH_CLASS_SETTLE,
    ASH_CLASS_CUSTOM,
    ASH_CLASS_ARGUMENT,
    ASH_CLASS_LOOP,
    ASH_CLASS_STACK,
} ash_class;

typedef enum ash_attr_type {
    ASH_ATTR_TYPE_INT,
    ASH_ATTR_TYPE_INTS,
    ASH_ATTR_TYPE_DIM,
    ASH_ATTR_TYPE_DIMS,
    ASH_ATTR_TYPE_DTYPE,
    ASH_ATTR_TYPE_FUNCTION,
    ASH_ATTR_TYPE_FORM,
    ASH_ATTR_TYPE_TYPES
} ash_attr_type;

#define ASH_MANY UINT16_MAX

typedef struct ash_op_info {
    const char *name;
    ash_class class;
    uint16_t ins_min, ins_max, outs; /* outs: of a node, see ash_node */
    uint64_t attrs;                  /* bit 1 << ash_attr_key for each attribute that a node must have */
} ash_op_info;

typedef struct ash_attr_info {
    const char *name;
    ash_attr_type type;
} ash_attr_info;

extern const ash_op_info ash_op_infos[ASH_OP_COUNT];
extern const ash_attr_info ash_attr_infos[ASH_ATTR_COUNT];

/* Classes whose result element i depends on the operands' elements i alone. */
static inline bool ash_op_is_elementwise(ash_op op) {
    return ash_op_infos[op].class <= ASH_CLASS_CAST;
}
/* Reductions over axes, of one operand or several. */
static inline bool ash_op_is_reduction(ash_op op) {
    return ash_op_infos[op].class == ASH_CLASS_REDUCE || ash_op_infos[op].class == ASH_CLASS_SUMS;
}

/* --- dims: dims.c --------------------------------------------------------------------------------- */

typedef struct ash_dims ash_dims; /* the pool of variables and expressions; reference counted */

typedef struct ash_var {
    const char *name;
    int64_t min, max; /* elements, inclusive */
    bool settled;  /* its value comes from a node (ASH_OP_SETTLE) at each execution, not from the caller */
    ash_dim limit; /* of one that is settled: what it never exceeds, of variables that are older */
    bool open;     /* its size is not known yet: of open graphs, see open.c */
} ash_var;

ash_status ash_dims_create(const ash_allocator *a, ash_dims **out, ash_diag *diag);
ash_dims *ash_dims_retain(ash_dims *dims);
void ash_dims_release(ash_dims *dims);

/* A copy for reading, in which every dim means the same: what it is a copy of may grow at the same time as
 * the copy is read. It is allocated with `a`. */
ash_status ash_dims_copy(const ash_dims *dims, const ash_allocator *a, ash_dims **out, ash_diag *diag);

size_t ash_dims_var_count(const ash_dims *dims);
const ash_var *ash_dims_var(const ash_dims *dims,
                            size_t index); /* borrowed until the next variable is added */
/* The dim that stands for a variable; the name is copied. A name that is there gives its dim when the
 * bounds agree. */
ash_status ash_dims_add_var(ash_dims *dims, const char *name, int64_t min, int64_t max, ash_dim *out,
                            ash_diag *diag);

/* The same for a variable that a node settles: from 0 to `limit`, which is at most `max`. */
ash_status ash_dims_add_settled(ash_dims *dims, const char *name, ash_dim limit, ash_dim *out,
                                ash_diag *diag);
bool ash_dims_has_settled(const ash_dims *dims); /* any settled variable */
/* The same for a variable whose size is not known yet: from 0 to ASH_OPEN_MOST. */
ash_status ash_dims_add_open(ash_dims *dims, const char *name, ash_dim *out, ash_diag *diag);
bool ash_dims_has_open(const ash_dims *dims); /* any open variable */
bool ash_dims_has_var(const ash_dims *dims, const char *name);
/* Whether a dim is nothing but a settled variable, and which. */
bool ash_dims_is_settled(const ash_dims *dims, ash_dim dim, uint32_t *var);
/* Calls `visit` for each settled variable that a dim mentions, for some perhaps more than once, until it
 * returns false; whether it never did. */
bool ash_dims_each_settled(const ash_dims *dims, ash_dim dim, bool (*visit)(void *user, uint32_t var),
                           void *user);
/* Gives settled variables the value that is their bound while the others are as `vars` says. */
void ash_dims_reset_settled(const ash_dims *dims, int64_t *vars);

/* --- dims that must be equal: dims_equal.c -------------------------------------------------------- */

typedef struct ash_dim_equality {
    ash_dim a, b;
} ash_dim_equality;

enum { ASH_DIMS_EQUALITIES = 1024 }; /* the most */

/* Whether two dims can have one value; false where a node settles one of them. */
bool ash_dims_may_equal(ash_dims *dims, ash_dim a, ash_dim b);
/* Notes that they must have: a condition on the variables. */
ash_status ash_dims_require(ash_dims *dims, ash_dim a, ash_dim b, ash_diag *diag);
/* The same, that a dim is no less than a number, where it can be; what is made of the dim then relies on
 * it. */
ash_status ash_dims_require_least(ash_dims *dims, ash_dim dim, int64_t least, ash_diag *diag);
size_t ash_dims_equality_count(const ash_dims *dims);
ash_dim_equality ash_dims_equality(const ash_dims *dims, size_t index);
/* ASH_ERROR_SHAPE, with both dims, where values of the variables do not meet a condition. */
ash_status ash_dims_check(const ash_dims *dims, const int64_t *vars, ash_diag *diag);

typedef enum ash_dim_op {
    ASH_DIM_ADD,
    ASH_DIM_SUB,
    ASH_DIM_MUL,
    ASH_DIM_DIV,
    ASH_DIM_MIN,
    ASH_DIM_MAX
} ash_dim_op;

/* The canonical form of `a op b`. Plain numbers take a fast path and never touch the pool, unless their
 * difference is negative. Differences may be negative here, even as numbers (such a dim is not
 * ash_dim_is_const): it is types and attributes that refuse a dim whose lower bound is. A divisor must be
 * at least 1 for all values of the variables. */
ash_status ash_dims_combine(ash_dims *dims, ash_dim_op op, ash_dim a, ash_dim b, ash_dim *out,
                            ash_diag *diag);
/* Whether a is a product of `by` and another expression, *quotient, whatever the variables are: `by` may be
 * 0 for some of them. False, too, where the pool has no room for it. */
bool ash_dims_divides(ash_dims *dims, ash_dim a, ash_dim by, ash_dim *quotient);
/* The value of a dim when variable i has the value vars[i]. */
int64_t ash_dims_eval(const ash_dims *dims, ash_dim dim, const int64_t *vars);
/* Bounds over all values of the variables (interval arithmetic: possibly wider than what is reached). */
void ash_dims_bounds(const ash_dims *dims, ash_dim dim, int64_t *min, int64_t *max);
/* Appends "128", "batch", "(2*batch + 1)" to a text; parse reads the same syntax at *pos. */
struct ash_text;
void ash_dims_print(const ash_dims *dims, ash_dim dim, struct ash_text *out);
ash_status ash_dims_parse(ash_dims *dims, const char *text, size_t len, size_t *pos, ash_dim *out,
                          ash_diag *diag);

/* One step of an expression as instructions, for code generators: terms in canonical order. The expression
 * is sum over t < term_count of coef[t] * product of atoms; an atom is a variable, or a division, minimum
 * or maximum of two dims. */
typedef struct ash_dim_atom {
    bool is_var;
    uint32_t var;  /* index of the variable, if is_var */
    ash_dim_op op; /* DIV, MIN or MAX, otherwise */
    ash_dim a, b;
} ash_dim_atom;

size_t ash_dims_term_count(const ash_dims *dims, ash_dim dim);
int64_t ash_dims_term(const ash_dims *dims, ash_dim dim, size_t term,
                      size_t *atom_count); /* the coefficient */
ash_dim_atom ash_dims_atom(const ash_dims *dims, ash_dim dim, size_t term, size_t atom);

static inline bool ash_dim_is_const(ash_dim dim) {
    return dim >= 0;
}

/* --- open dims: open.c ---------------------------------------------------------------------------- */

enum { ASH_OPEN_MOST = INT32_MAX }; /* elements along an open dim */

/* Whether a dim is nothing but a variable, and which. */
bool ash_dims_is_var(const ash_dims *dims, ash_dim dim, uint32_t *var);
/* The number that a dim is when variable i has the value sizes[i], or -1 where that is unknown: one that it
 * mentions has a negative value. */
int64_t ash_dims_present(const ash_dims *dims, ash_dim dim, const int64_t *sizes);
/* Gives variables that nothing settles the sizes that they must have so that `shape` is `given`: a dim that
 * is a variable says its size whatever that was before, an expression only where one variable of it has no
 * size yet.
 * ASH_ERROR_SHAPE when one variable would have two sizes, and `sizes` is then undefined. Whether the
 * expressions fit is not looked at. */
ash_status ash_dims_learn(const ash_dims *dims, const ash_type *shape, const int64_t *given, int64_t *sizes,
                          ash_diag *diag);
/* Appends "f32[batch, 3]"; "batch = 2 and seq = 8", the variables of a type with their values, nothing when
 * it has none ("batch unknown" where that is negative); the names of the open variables without a size. */
struct ash_text;
void ash_type_print(const ash_dims *dims, const ash_type *type, struct ash_text *out);
void ash_type_print_vars(const ash_dims *dims, const ash_type *type, const int64_t *sizes,
                         struct ash_text *out);
void ash_dims_print_open(const ash_dims *dims, const int64_t *sizes, struct ash_text *out);

/* --- constants ------------------------------------------------------------------------------------ */

/* Bytes that several graphs and plans share; reference counted, thread safe. */
typedef struct ash_blob {
    const ash_allocator *allocator;
    const void *data;
    size_t size; /* bytes */
    long refs;
    bool mapped; /* lies in a mapped file: pages can be dropped and come back by themselves */
    void (*release)(void *owner, const void *data,
                    size_t size); /* called when the last reference goes; NULL: nothing */
    void *owner;
    struct ash_file
        *file; /* the mapped file that it lies in, for ash_file_check; NULL: none that is known */
} ash_blob;

/* A blob with what `like` says of its data, owner and file; on failure nothing is released. */
ash_status ash_blob_create(const ash_allocator *a, const ash_blob *like, ash_blob **out, ash_diag *diag);
/* A blob of bytes in a mapped file, of which it takes over a reference; on failure, too. */
ash_status ash_blob_create_mapped(const ash_allocator *a, struct ash_file *file, const void *data,
                                  size_t size, ash_blob **out, ash_diag *diag);
/* A blob with memory of its own, 64-byte aligned and zeroed; fill it through (void *)blob->data. */
ash_status ash_blob_create_owned(const ash_allocator *a, size_t size, ash_blob **out, ash_diag *diag);
ash_blob *ash_blob_retain(ash_blob *blob);
void ash_blob_release(ash_blob *blob); /* NULL is allowed */

/* --- values, nodes, graphs ------------------------------------------------------------------------ */

typedef enum ash_value_kind {
    ASH_VALUE_INPUT,
    ASH_VALUE_CONSTANT,
    ASH_VALUE_PARAMETER,
    ASH_VALUE_STATE,
    ASH_VALUE_NODE
} ash_value_kind;

typedef struct ash_value_info {
    ash_type type;
    ash_value_kind kind;
    uint32_t node;    /* producing node, for ASH_VALUE_NODE */
    ash_value origin; /* the same value in the graph that the caller built, or ASH_NO_VALUE */
    const char *name; /* of an input, parameter or state, else NULL */
    uint8_t narrow;   /* of an input: an ash_narrow (ashlar/narrow.h), which only callers look at */
    uint8_t phase;    /* an ash_phase */
    uint8_t place;  /* of a state, and of a parameter, which is one when it is trained: as ash_node.place */
    ash_blob *blob; /* data of a constant or parameter; what a state starts with, NULL: zeros; else NULL */
} ash_value_info;

typedef struct ash_node {
    ash_op op;
    uint16_t n_ins, n_attrs, n_outs;
    ash_value out; /* first output; the others follow */
    const ash_value *ins;
    const ash_attr *attrs; /* ascending keys */
    const char *name;      /* for diagnostics and reports, or NULL */
    uint32_t place; /* the device that its caller has placed it on, plus 1; 0: nobody has. Only divide.h
                       asks: a graph that is for one device does not keep it */
} ash_node;

typedef struct ash_output {
    const char *name;
    ash_value value;
    uint8_t narrow; /* an ash_narrow */
} ash_output;

typedef struct ash_state {
    ash_value value,
        update; /* the leaf; what it is after an execution, or ASH_NO_VALUE: it stays as it is */
} ash_state;

/* What makes a graph of an open one. Reference counted; constant, and safe to use from several threads. */
typedef struct ash_recipe ash_recipe;
struct ash_recipe {
    long refs;
    const char *const *outputs; /* names */
    size_t n_outputs;
    /* The graph in which variable i of `dims`, the open graph's, is the number sizes[i], for each that is
     * open. */
    ash_status (*make)(const ash_recipe *recipe, ash_context *context, const ash_dims *dims,
                       const int64_t *sizes, ash_graph **out, ash_diag *diag);
    void (*release)(ash_recipe *recipe); /* with the last reference */
};

ash_recipe *ash_recipe_retain(ash_recipe *recipe);
void ash_recipe_release(ash_recipe *recipe); /* NULL is allowed */

struct ash_graph {
    ash_context *context;
    const ash_allocator *allocator;
    ash_arena arena; /* names, operand lists, attributes */
    ash_dims *dims;
    const char *name, *next_name;
    ASH_VEC(ash_value_info) values;
    ASH_VEC(ash_node) nodes; /* a topological order */
    ASH_VEC(ash_value) inputs;
    ASH_VEC(ash_output) outputs;
    ASH_VEC(ash_state) states;
    ASH_VEC(ash_value)
    settlers;         /* per variable: what settles it, or ASH_NO_VALUE; perhaps fewer than there are */
    ash_strmap names; /* inputs, parameters and states, to values */
    ash_strmap output_names; /* to positions */
    ash_recipe *recipe;      /* of an open graph, which has inputs and nothing else; else NULL */
    /* What a pass puts between build.h and the nodes: it adds the node, whose operands are there, or
     * something equal, and writes as many results as its operator has. NULL: the node is added as it is. */
    void (*emit)(void *user, const ash_node *node, ash_value *outs);
    void *emit_user;
    uint64_t made_bytes;         /* of constants that build.h has made of numbers */
    ASH_VEC(ash_graph *) bodies; /* of loops, by their number less 1: the graph's */
    bool body;                   /* of a loop: nothing is computed once and for all */
    uint8_t phase;               /* of nodes and states that are added from now on: an ash_phase */
    uint32_t next_place;         /* of nodes that are added from now on: as ash_node.place */
    bool derived;  /* made by a pass: origins are the pass's to set, else each value is its own origin */
    bool internal; /* nodes may be in the forms of one target, which attributes of type FORM tell */
    ash_status status; /* the sticky error */
    ash_diag diag;
};

/* To be called before constants are read: ASH_ERROR_IO when one lies in a file that was cut short. */
ash_status ash_graph__check_files(const ash_graph *graph, ash_diag *diag);
/* An empty graph with the same context, name, dims, that may have the same nodes; the start of every
 * pass. */
ash_status ash_graph__derive(const ash_graph *from, ash_graph **out, ash_diag *diag);
/* Appends a copy of a leaf of another graph that shares the dims (and the blob). A state comes without its
 * update. */
ash_status ash_graph__copy_leaf(ash_graph *to, const ash_graph *from, ash_value value, ash_value *out);
/* What a copy of a graph ends with: the updates of its states, and its outputs, of the images of these
 * values; NULL: each is its own image. Failures stick to `to`. */
void ash_graph__copy_ends(ash_graph *to, const ash_graph *from, const ash_value *image);
/* Appends a constant that takes over the caller's reference to `blob`, also on failure. */
ash_value ash_graph__constant_blob(ash_graph *graph, const ash_type *type, ash_blob *blob);
/* The same as a parameter, when `name` is not NULL. */
ash_value ash_graph__leaf_blob(ash_graph *graph, const char *name, const ash_type *type, ash_blob *blob);
/* A state that takes over the caller's reference to `blob` (NULL: zeros), also on failure. */
ash_value ash_graph__state_blob(ash_graph *graph, const char *name, const ash_type *type, ash_blob *blob);
/* The state that a value is, or NULL. */
ash_state *ash_graph__find_state(const ash_graph *graph, ash_value value);
/* The result of the node that settles a variable, or ASH_NO_VALUE; in a body, for what is settled outside,
 * its first input. */
static inline ash_value ash_graph__settler(const ash_graph *graph, uint32_t var) {
    return var < graph->settlers.len ? graph->settlers.at[var] : ASH_NO_VALUE;
}
/* Calls `visit` for each settled variable that a node's attributes and results mention and its settler, its
 * own variable aside, for some perhaps more than once. They are operands in all but name: what depends on
 * them must come after them and keeps them alive. */
void ash_graph__each_settler(const ash_graph *graph, const ash_node *node,
                             void (*visit)(void *user, uint32_t var, ash_value settler), void *user);
/* Keeps a diagnostic as the graph's sticky error, unless there is one; returns its code. One that names no
 * node is charged to the name that nodes are given now. */
ash_status ash_graph__stick(ash_graph *graph, const ash_diag *diag);
/* Records a failure as the graph's sticky error and returns its status. */
ash_status ash_graph__fail(ash_graph *graph, ash_status code, const char *fmt, ...) ASH_PRINTF(3, 4);

/* An open graph of the same inputs, with dims of its own: it can be read while `graph` changes. */
ash_status ash_graph__copy_open(const ash_graph *graph, ash_graph **out, ash_diag *diag);
/* The graph that an open one is for sizes of all of its open variables. */
ash_status ash_graph__close(const ash_graph *graph, const int64_t *sizes, ash_graph **out, ash_diag *diag);
/* ASH_ERROR_STATE, with the names of the dims, when the graph is open. */
ash_status ash_graph__check_closed(const ash_graph *graph, ash_diag *diag);

static inline const ash_value_info *ash_graph__value(const ash_graph *graph, ash_value value) {
    return &graph->values.at[value];
}
static inline const ash_type *ash_graph__type(const ash_graph *graph, ash_value value) {
    return &graph->values.at[value].type;
}

/* The attribute with that key, which the operator's row says is there. */
const ash_attr *ash_node_attr(const ash_node *node, ash_attr_key key);
/* Whether all attributes are numbers: none is an expression of variables. */
bool ash_node_has_numbers(const ash_node *node);
/* Products and convolutions of bytes, u8 by i8 with sums in i32, are a form of their own (ops.def): so many
 * of their terms lie side by side in the second operand, but for depthwise convolutions. */
enum { ASH_BYTE_TERMS = 4, ASH_PAIR_TERMS = 2 };
bool ash_node__is_bytes(const ash_graph *graph, const ash_node *node);
/* Those of half floats whose sums are the result, in f32, are another; pairs are packed as bytes are. */
static inline bool ash_op__is_pairs(ash_op op) {
    return op == ASH_OP_MATMUL_PAIRS || op == ASH_OP_CONV_PAIRS;
}
static inline bool ash_op__is_wide(ash_op op) {
    return op == ASH_OP_MATMUL_WIDE || op == ASH_OP_CONV_WIDE || ash_op__is_pairs(op);
}
static inline bool ash_op__is_matmul(ash_op op) { /* of two numbers a term, stored as they are */
    return op == ASH_OP_MATMUL || op == ASH_OP_MATMUL_WIDE || op == ASH_OP_MATMUL_PAIRS ||
           op == ASH_OP_MATMUL_LIBRARY;
}
static inline bool ash_op__is_conv(ash_op op) {
    return op == ASH_OP_CONV || op == ASH_OP_CONV_WIDE || op == ASH_OP_CONV_PAIRS;
}
/* Terms that lie side by side in a second operand in blocks: 4 of bytes, 2 of pairs, else 1. */
int64_t ash_node__terms(const ash_graph *graph, const ash_node *node);
/* Columns of a padded convolution's window that kernels tell apart. Of longer ones with packed weights the
 * operand is padded before, which stays so. */
enum { ASH_CONV_WINDOW = 64 };
/* Whether a convolution with packed weights is in lanes (ops.def): by its groups' channels and filters. */
static inline bool ash_conv__is_in_lanes(int64_t channels, int64_t filters, int64_t x_block) {
    return channels == filters && (channels == 1 || channels < x_block);
}
/* A gather of bytes from 256 of them, by an index that is a cast of bytes: of u8, or of i8, whose negative
 * numbers count from the end, so that the entries are in the order of the bits. Returns those bytes, or
 * ASH_NO_VALUE for other nodes. */
enum { ASH_LOOKUP_ENTRIES = 256 };
ash_value ash_node__looked_up(const ash_graph *graph, const ash_node *node);
/* Instructions that a node takes for a vector of results, about. */
int64_t ash_node__work(const ash_costs *costs, const ash_node *node);
static inline int64_t ash_node_int(const ash_node *node, ash_attr_key key) {
    return ash_node_attr(node, key)->i;
}
static inline const int64_t *ash_node_list(const ash_node *node, ash_attr_key key) {
    return ash_node_attr(node, key)->list;
}

/* --- functions of the caller: functions.c --------------------------------------------------------- */

/* The function with that number, constant and there until the context goes; NULL when there is none. */
const ash_function *ash_function__at(ash_context *context, int64_t number);
/* Runs chunks of a call. The failure has a message, and a status that is one. */
ash_status ash_function__run(const ash_function *function, const ash_call *call, ash_diag *diag);
/* The function that a node of class CUSTOM calls. */
const ash_function *ash_node__function(const ash_graph *graph, const ash_node *node);
/* Whether a node may be evaluated at any time, and any number of times: not one that settles a variable,
 * arguments, loops, and functions only if they say so. */
bool ash_node__is_pure(const ash_graph *graph, const ash_node *node);

/* --- loops: loops.c ------------------------------------------------------------------------------- */

/* Where a loop's operands and results stand (ops.def). */
typedef struct ash_loop_parts {
    bool body;                                                  /* in the form that names a body */
    uint32_t until, carried, scanned, given, stacked, captured; /* how many there are */
    uint32_t go, init, xs,
        gives; /* the first operand of each kind: whether to begin, to begin with, to slice,
                                     from outside */
    uint32_t next_go, next, ys; /* and of what an iteration makes: whether to go on, carried, to stack */
    uint32_t captures;          /* values from outside, where it names a body */
    uint32_t finals, stacks;    /* first result of each kind, behind the number of iterations */
} ash_loop_parts;

/* False when the numbers of operands and results do not fit the attributes. */
bool ash_loop__parts(const ash_attr *attrs, size_t n_attrs, size_t n_ins, size_t n_outs,
                     ash_loop_parts *out);
static inline ash_loop_parts ash_node__loop(const ash_node *node) { /* which is in a graph */
    ash_loop_parts parts = {0};
    ash_loop__parts(node->attrs, node->n_attrs, node->n_ins, node->n_outs, &parts);
    return parts;
}
/* Which argument of a loop is what. */
enum { ASH_LOOP_ITERATION = 0, ASH_LOOP_CARRIED = 1 };

/* Whether there are loops that name no body. */
bool ash_graph__has_loops(const ash_graph *graph);
/* Checks that arguments belong to one loop each, and that nobody outside sees what depends on them. */
ash_status ash_graph__check_loops(const ash_graph *graph, ash_diag *diag);
/* Per node, the loop, a node, whose body it is in, the innermost one: its arguments, what depends on them;
 * or UINT32_MAX. */
ash_status ash_graph__bodies(const ash_graph *graph, uint32_t *out, ash_diag *diag);
/* Per node, the outermost loop that it belongs to: the loop itself, its arguments, its body; or
 * UINT32_MAX. */
ash_status ash_graph__outer_loops(const ash_graph *graph, uint32_t *out, ash_diag *diag);
/* The loop, a node, that a node of class STACK asks. */
static inline uint32_t ash_node__stacker(const ash_graph *graph, const ash_node *node) {
    return graph->values.at[node->ins[0]].node;
}
/* Whether a value of a body is stacked for somebody by a node of its own; and the graph without such nodes,
 * whose loops stack more instead. `map`, with an entry for each value, or NULL: what each has become.
 * Linear. stacks.c */
bool ash_graph__has_stacks(const ash_graph *graph);
ash_status ash_graph__gather_stacks(const ash_graph *graph, ash_graph **out, ash_value *map,
                                    ash_diag *diag);
/* The graph with its bodies in graphs of their own, which share its dims:
 *
 *   inputs    the iteration's number, the slices, then what the body reads from outside
 *   states    the carried values
 *   outputs   whether to go on, values to stack
 *
 * What does not depend on an argument stays outside and is computed once; but constants of one element,
 * broadcasts and iotas come along. `map`, with an entry for each value, or NULL: what each has become, or
 * ASH_NO_VALUE. Linear in the nodes, for each level of loops in loops. */
ash_status ash_graph__split_loops(const ash_graph *graph, ash_graph **out, ash_value *map, ash_diag *diag);

/* The attribute `results`: writes n types as one list (room for n * (2 + ASH_MAX_RANK) numbers), and
 * returns its length. */
size_t ash_results__write(const ash_type *types, size_t n, int64_t *list);
/* Reads the next one at *pos; false at the end, and where the list is no list of types. */
bool ash_results__next(const ash_attr *results, uint32_t *pos, ash_type *out);

enum { ASH_OP_OUTS = 64 };    /* the most outputs that an operator has: a loop, here */
enum { ASH_LOOP_PARTS = 62 }; /* the most scanned and stacked values: `backward` has a bit for each */

/* How many outputs a node with these attributes has; 0 where they do not say, or say more than there may
 * be. */
size_t ash_op__out_count(ash_op op, const ash_attr *attrs, size_t n_attrs);

/* --- types ---------------------------------------------------------------------------------------- */

bool ash_type_equal(const ash_type *a, const ash_type *b);
/* True and *count when all dims are numbers; the product is known not to overflow for types in a graph. */
bool ash_type_static_count(const ash_type *type, int64_t *count);
/* Elements and bytes at the variables' maxima; types in a graph never overflow. */
int64_t ash_type_max_count(const ash_dims *dims, const ash_type *type);
int64_t ash_type_max_bytes(const ash_dims *dims, const ash_type *type);
/* Elements for the given values of the variables. */
int64_t ash_type_count(const ash_dims *dims, const ash_type *type, const int64_t *vars);

/* Shape inference (infer.c): checks attributes and operands, which have the types `ins`, of one node, and
 * writes the types of its outputs. Of the node: operator, number of operands, attributes. */
ash_status ash_infer(ash_dims *dims, const ash_node *node, const ash_type *ins, ash_type *outs,
                     ash_diag *diag);

/* --- reference evaluator: eval*.c ----------------------------------------------------------------- */

/* How far an intermediate result is rounded. */
typedef enum ash_eval_precision {
    ASH_EVAL_DTYPE, /* every result is rounded to its dtype: what the graph says */
    ASH_EVAL_DOUBLE /* floating point stays in double precision throughout: the oracle for accuracy */
} ash_eval_precision;

/* A tensor of the evaluator: `f` holds floating point elements, `i` all others (bool as 0 or 1, u64 as its
 * bits). */
typedef struct ash_wide {
    ash_dtype dtype;
    unsigned rank;
    int64_t dims[ASH_MAX_RANK], count;
    union {
        double *f;
        int64_t *i;
    };
} ash_wide;

ash_status ash_wide_alloc(const ash_allocator *a, ash_dtype dtype, unsigned rank, const int64_t *dims,
                          ash_wide *out, ash_diag *diag);
void ash_wide_free(const ash_allocator *a, ash_wide *t);
/* From and to row-major elements of t->dtype (t->count of them). */
void ash_wide_load(ash_wide *t, const void *data);
void ash_wide_store(const ash_wide *t, void *data);

/* Evaluates one node: `outs` are allocated by the caller with the node's output types for the given
 * variables. `vars` may be NULL when the node's attributes hold no expressions. */
ash_status ash_eval_node(const ash_graph *graph, const ash_node *node, const int64_t *vars,
                         const ash_wide *ins, ash_wide *outs, ash_eval_precision precision, ash_diag *diag);

/* Evaluates a graph, naively and right. `inputs` are in the graph's input order, `vars` holds a value per
 * variable of the graph's dims (those that nodes settle do not count); `outputs` (as many as the graph has)
 * are allocated here, freed by the caller. Intermediate results are freed after their last use. */
ash_status ash_eval_graph(const ash_graph *graph, const ash_wide *inputs, const int64_t *vars,
                          ash_eval_precision precision, ash_wide *outputs, ash_diag *diag);
/* The same as one execution of several: `states` holds the value of each state of the graph, in order, with
 * the dims that the variables give it, and receives what it is afterwards; the caller frees both. On
 * failure they are as they were. NULL: states have their initial contents, and what becomes of them is
 * dropped, as ash_eval_graph does. */
ash_status ash_eval_step(const ash_graph *graph, const ash_wide *inputs, const int64_t *vars,
                         ash_eval_precision precision, ash_wide *states, ash_wide *outputs, ash_diag *diag);

#endif
