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
/* The function that hands on a computed size, and fails where that is less than there can be, or more than
 * its limit. */
#define ASH_ONNX_CHECK_SIZE "ashlar.check_size"

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

/* --- counts.c --- */

/* Whether a scalar, of the loop's body or from outside, is true in each iteration but the last of
 * `loop->trips`, as far as it can be told. `next` is known for the states. */
bool ash_onnx__goes_on(ash_import *im, const ash_loop *loop, ash_value condition);

/* Whether a size is at least 1 where a condition in front of a loop is true. */
bool ash_onnx__implies_one(ash_import *im, ash_value condition, ash_dim size);

/* Whether bounds that are computed are one row of a dim, whose number is that of the innermost loop's
 * iteration. */
bool ash_onnx__is_row_of_loop(ash_import *im, ash_value from, ash_value to, ash_dim dim);

/* --- until.c --- */

/* Whether state `state` of the Loop that is being imported counts its iterations: each gives it back plus
 * one. *first: what it begins with. */
bool ash_onnx__counts_up(ash_import *im, ash_wire body, size_t state, ash_dim *first);
/* The most iterations that there can be for the condition that the body gives back, but for the first one,
 * which it does not decide about: it may be less than 1. ASH_OPEN_MOST: any. */
ash_dim ash_onnx__until(ash_import *im, ash_wire body);

/* --- states.c --- */

/* How the states of a loop change their shapes, as far as imports of its body have shown. */
typedef struct ash_onnx_states ash_onnx_states;

/* What an import carries. */
typedef struct ash_onnx_carried {
    size_t n;
    const size_t *numbers; /* of the states in the model, or NULL: all */
    ash_dim trips;         /* bounds the iterations; ASH_OPEN_MOST: nothing does */
} ash_onnx_carried;

/* Of `n` states at most, operands of the node from `first` on, none of which is known to change.
 * `peeled`: the first iteration stands in front of the loop. NULL: a failure. */
ash_onnx_states *ash_onnx__new_states(ash_import *im, size_t n, size_t first, bool peeled);
/* Whether any has been found to change, and whether one by as much in each iteration. */
bool ash_onnx__states_change(const ash_onnx_states *s);
bool ash_onnx__state_grows(const ash_onnx_states *s, size_t k);
/* Whether the last import failed because of that. */
bool ash_onnx__states_do_not_fit(const ash_onnx_states *s);
/* Sizes that are carried behind the states. */
size_t ash_onnx__sizes_of_states(const ash_onnx_states *s);

/* Begins an import. init[n + sizes]: what states begin with gets its room, and sizes are put behind. */
bool ash_onnx__open_states(ash_import *im, ash_onnx_states *s, const ash_onnx_carried *all,
                           ash_value *init);
/* given[n]: what an iteration takes of arguments[1 + n + sizes], the first of which is its number. */
bool ash_onnx__give_states(ash_import *im, ash_onnx_states *s, const ash_value *arguments,
                           ash_value *given);
/* next[n + sizes]: what it makes of the states gets its room, and their sizes are put behind. A failure
 * where they change otherwise than was known; then it is known. */
bool ash_onnx__take_states(ash_import *im, ash_onnx_states *s, const ash_value *arguments, ash_value *next);
/* Whether the import failed for that reason: forgives it, and another one may do. */
bool ash_onnx__try_again(ash_import *im, ash_onnx_states *s);
/* What state k is after so many iterations, when lasts[n + sizes] are what the loop carried. */
ash_value ash_onnx__last_state(ash_import *im, ash_onnx_states *s, size_t k, const ash_value *lasts,
                               ash_dim iterations);

/* A scan over [steps, ...] operands. */
typedef struct ash_onnx_scan {
    const ash_wire *body;
    size_t n_states, n_xs, n_outs;
    size_t *states;  /* entries */
    ash_value *xs;   /* what it goes over; they are there */
    ash_value *outs; /* final states, then stacked results, where it is laid out */
} ash_onnx_scan;

/* The node as loops of the graph; If on a condition that is computed. */
void ash_onnx__roll_if(ash_import *im);
void ash_onnx__roll_loop(ash_import *im);
void ash_onnx__roll_scan(ash_import *im, const ash_onnx_scan *scan);

/* What dim `axis` of result k is called, where its size is computed and nothing in the model bounds it:
 * "y.0". *most (or NULL): the options' bound, or the usual one. NULL: a failure. (computed.c) */
const char *ash_onnx__size_bound(ash_import *im, size_t k, unsigned axis, int64_t *most);
/* The same after the value `result`; whether the options say the bound. (computed.c) */
const char *ash_onnx__bound_of(ash_import *im, ash_span result, unsigned axis, int64_t *most, bool *given);
/* ash_onnx__settle_size of dim `axis` of result k. (computed.c) */
bool ash_onnx__settle_size_of(ash_import *im, ash_value value, size_t k, unsigned axis, int64_t low,
                              ash_dim *out);
/* What no element of a value is above, as far as a few nodes tell, at least 1; or ASH_OPEN_MOST.
 * (computed.c) */
int64_t ash_onnx__most(const ash_import *im, ash_value x);
/* The i64 scalar `size`; an execution in which it is below `low` or above `most` fails, and says what to
 * bound. */
ash_value ash_onnx__within(ash_import *im, ash_value size, int64_t low, int64_t most, const char *name);

/* op_select.c: the dim that a count of result k's elements along `axis` settles, at most `limit`. */
ash_dim ash_onnx__settle(ash_import *im, ash_value count, ash_dim limit, size_t k, unsigned axis);

#endif
