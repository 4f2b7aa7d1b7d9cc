/* SPDX-License-Identifier: MIT */
/* What the two ways to import control flow share: bodies laid out one after the other (op_control.c), and
 * loops of the graph (op_loop.c). */
#ifndef ASH_ONNX_CONTROL_H
#define ASH_ONNX_CONTROL_H

#include "ops.h"

/* A body with so many iterations, known when the model is read, is laid out; one with more is a loop. */
enum { ASH_ONNX_FEW = 16 };

/* The function that fails where a branch is taken that the graph does not have. */
#define ASH_ONNX_REFUSE "ashlar.refuse"

/* The body in an attribute; NULL and a failure when there is none. */
const ash_wire *ash_onnx__body_attr(ash_import *im, const char *name);
/* Room for n indices of entries; NULL and a failure when there is no memory. */
size_t *ash_onnx__indices(ash_import *im, size_t n);
/* New entries without a name: a value of the graph; a scalar of i64 or bool with a known element. */
size_t ash_onnx__tensor_entry(ash_import *im, ash_value value);
size_t ash_onnx__number_entry(ash_import *im, ash_dtype dtype, int64_t number);
/* Result k is another name of the entry `index`. */
void ash_onnx__out_entry(ash_import *im, size_t k, size_t index);
/* The entry's only element, when it is known. */
bool ash_onnx__known_scalar(ash_import *im, size_t index, int64_t *out);
/* Entry i of a list attribute, or `absent`. */
int64_t ash_onnx__list_entry(ash_import *im, const char *name, size_t i, int64_t absent);
/* Whether a failure is about what the nodes are given, so that another way to import them may do. */
bool ash_onnx__is_about_types(ash_status status);
/* Goes on after such a failure: what was appended to the graph until then is not used. */
void ash_onnx__forgive(ash_import *im);

/* Makes a function of the library known to the context, once. False: a failure. (op_loop.c) */
bool ash_onnx__own_function(ash_import *im, const ash_function *function);

/* --- bodies.c --- */

/* The nodes of a body that is being imported: which values depend on its arguments. */
typedef struct ash_onnx_inside {
    ash_import *im;
    size_t nodes, vars; /* that the graph had before */
    bool *values;       /* from the first result of these nodes on; NULL: not looked at yet */
    ash_value first;
    bool any;
} ash_onnx_inside;

ash_onnx_inside ash_onnx__before_body(ash_import *im);
/* What leaves a body can have no size that an iteration finds. `what` and its number name it. */
bool ash_onnx__leaves(ash_onnx_inside *in, ash_value value, const char *what, size_t number);
/* A branch that is in no loop and finds sizes is better a part of the graph: that runs everywhere. */
bool ash_onnx__finds_no_size(ash_onnx_inside *in);

/* What an iteration adds to each dim of a state, by[rank]. False: it makes something else of it. */
bool ash_onnx__grows(const ash_import *im, const ash_type *before, const ash_type *after, ash_dim *by);
/* As much of x as a state of type `began` has become after so many iterations. */
ash_value ash_onnx__grown(ash_import *im, ash_value x, const ash_type *began, const ash_dim *by,
                          ash_dim times);
/* x with room for what so many iterations add: with what lies there in `all`, where one dim grows, or
 * zeros. */
ash_value ash_onnx__room(ash_import *im, ash_value x, ash_value all, const ash_dim *by, ash_dim times);

/* The node as loops of the graph; If on a condition that is computed. */
void ash_onnx__roll_if(ash_import *im);
void ash_onnx__roll_loop(ash_import *im);
/* `states` are entries, `xs` the scanned operands; both are there. */
void ash_onnx__roll_scan(ash_import *im, const size_t *states, size_t n_states, const ash_value *xs,
                         size_t n_xs);

/* What dim `axis` of result k is called, where its size is computed and nothing in the model bounds it:
 * "y.0". *most (or NULL): the options' bound, or the usual one. NULL: a failure. (computed.c) */
const char *ash_onnx__size_bound(ash_import *im, size_t k, unsigned axis, int64_t *most);
/* ash_onnx__settle_size of dim `axis` of result k. (computed.c) */
bool ash_onnx__settle_size_of(ash_import *im, ash_value value, size_t k, unsigned axis, int64_t low,
                              ash_dim *out);
/* The i64 scalar `size`; an execution in which it is below `low` or above `most` fails, and says what to
 * bound. */
ash_value ash_onnx__within(ash_import *im, ash_value size, int64_t low, int64_t most, const char *name);

/* op_select.c: the dim that a count of result k's elements along `axis` settles, at most `limit`. */
ash_dim ash_onnx__settle(ash_import *im, ash_value count, ash_dim limit, size_t k, unsigned axis);

#endif
