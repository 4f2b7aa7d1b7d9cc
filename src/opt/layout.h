/* SPDX-License-Identifier: MIT */
/* What the files of the layout pass share: the forms of a value.
 *
 *     plain        [n, c, space...]           as the graph says
 *     blocked, B   [n, c/B, space..., B]      B neighbouring channels lie side by side: one vector
 *
 * Each value of the old graph has the forms that were asked for; a missing one is made from one that is
 * there, once. A broadcast is deferred: it has no form until somebody asks, because it can be made in any
 * form at no cost. */
#ifndef ASH_OPT_LAYOUT_H
#define ASH_OPT_LAYOUT_H

#include "rewrite.h"

enum {
    ASH_MIN_BLOCK = 4,
    ASH_MAX_BLOCK = 64,
    ASH_BLOCKS = 5, /* 4, 8, 16, 32, 64 */
};

typedef struct ash_forms {
    ash_value blocked[ASH_BLOCKS]; /* values of `to`, ASH_NO_VALUE: not made; the plain form is rw.map */
} ash_forms;

typedef struct ash_layout_pass {
    ash_rewrite rw;
    int64_t lanes; /* of one vector of f32, at most ASH_MAX_BLOCK; 0: values are plain, but for weights */
    ash_forms *forms; /* per value of `from`; NULL: all are plain */
    bool *constant;   /* per value of `from`: it does not depend on inputs */
    bool *deferred;   /* per value of `from`: a broadcast that waits for the form that is asked for */
} ash_layout_pass;

/* The widest block, from the lanes of a vector down, that divides a number of channels; 0 when none
 * does. */
int64_t ash_layout__block(const ash_layout_pass *l, ash_dim channels);
/* True when a value of `from` can have a blocked form. */
bool ash_layout__can_block(const ash_layout_pass *l, ash_value value, int64_t block);
/* The widest blocked form that a value has; 0 when it has none. */
int64_t ash_layout__has_blocked(const ash_layout_pass *l, ash_value value);
bool ash_layout__has_plain(const ash_layout_pass *l, ash_value value);

/* The value of `to` with that form, made when it is not there. */
ash_value ash_layout__plain(ash_layout_pass *l, ash_value value);
ash_value ash_layout__blocked(ash_layout_pass *l, ash_value value, int64_t block);
/* [n, c, s...] -> [n, c/B, s..., B], of a value of `to`. */
ash_value ash_layout__pack(ash_rewrite *rw, ash_value x, int64_t block);
/* Records a form that the pass has built. */
void ash_layout__set_blocked(ash_layout_pass *l, ash_value value, int64_t block, ash_value image);

/* Whether a node is the gradient of a convolution of one group by its weights, as the rule for gradients
 * spells it: the convolution of *x with *g, both with images and channels exchanged. */
bool ash_layout__is_swapped(const ash_graph *graph, const ash_node *node, ash_value *x, ash_value *g);
/* Whether the target's processor has a kernel for such a node, in blocks of channels. */
bool ash_layout__has_weights_kernel(const ash_target *target, const ash_graph *graph, const ash_node *node);

/* Convolutions and matrix products, with their weights packed. */
void ash_layout__conv(ash_layout_pass *l, const ash_node *node);
void ash_layout__matmul(ash_layout_pass *l, const ash_node *node);
/* The same on bytes; false: the node is none of those. */
bool ash_layout__bytes(ash_layout_pass *l, const ash_node *node);
/* The same in pairs of bf16. */
bool ash_layout__pairs(ash_layout_pass *l, const ash_node *node);
/* Whether that takes a node; constant: per value of `from`, whether it depends on no input. */
bool ash_layout__takes_pairs(const ash_target *target, const ash_graph *from, const ash_node *node,
                             const bool *constant);

/* The blocks of a convolution. */
typedef struct ash_layout_conv {
    int64_t groups, c, o;              /* channels of operand and result */
    int64_t x_block, y_block, w_block; /* 0: plain */
    bool in_lanes; /* groups of one channel, or of a few, whole ones in a vector: ops.def */
} ash_layout_conv;

/* How n columns lie in blocks. */
typedef struct ash_layout_columns {
    ash_dim n, blocks, missing; /* `missing` columns of zeros fill the last block */
} ash_layout_columns;

/* Chooses the blocks of a convolution with these channels and groups, whose operand is `x` of `from`. */
void ash_layout__choose_blocks(const ash_layout_pass *l, ash_value x, ash_layout_conv *v);
/* filters.c: the block of the weights of a convolution on a GPU, where they are constant; 0: plain. */
int64_t ash_layout__filter_block(const ash_layout_pass *l, const ash_node *node);
/* Weights [o, c/g, k...] in the order that ops.def states. */
ash_value ash_layout__pack_weights(ash_rewrite *rw, ash_value w, const ash_layout_conv *v);
/* [..., I, B] -> [..., I/T, T B]: so many neighbouring terms T of a column side by side; T divides I. */
ash_value ash_layout__side_by_side(ash_rewrite *rw, ash_value w, int64_t terms);
/* Whether a convolution's windows reach out of lines and are too long for kernels to tell apart which of
 * their columns lie inside, as filters of waveforms are and encodings of positions in speech: its operand
 * is padded before. Of `graph` the weights are plain. */
bool ash_layout__needs_room(const ash_graph *graph, const ash_node *node);
/* Whether a convolution pads its first operand; the operand, plain or in blocks of `block` channels, padded
 * with `zero`, a scalar. */
bool ash_layout__is_padded(const ash_node *node);
ash_value ash_layout__pad_windows(ash_rewrite *rw, const ash_node *node, ash_value x, int64_t block,
                                  ash_value zero);
/* The convolution, as `op`, over operands in that form; `padded`: the first one is so already. */
ash_value ash_layout__blocked_conv(ash_layout_pass *l, const ash_node *node, ash_op op, ash_value x,
                                   ash_value w, const ash_layout_conv *v, bool padded);
/* Whether the second operand of a product is worth packing, and its columns. */
bool ash_layout__columns(const ash_layout_pass *l, const ash_node *node, ash_layout_columns *c);
/* The columns of n in blocks of a vector; false: more of them than there are may be missing. */
bool ash_layout__count_columns(const ash_layout_pass *l, ash_dim n, ash_layout_columns *c);
/* [batch..., k, n] -> [batch..., n/B, k, B], zero past n. */
ash_value ash_layout__pack_columns(ash_rewrite *rw, ash_value b, const ash_layout_columns *c,
                                   int64_t block);
/* Zeros after the elements of one dim. */
ash_value ash_layout__pad_zero(ash_rewrite *rw, ash_value x, unsigned axis, ash_dim after);

#endif
