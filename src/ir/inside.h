/* SPDX-License-Identifier: MIT */
/* What the files graph*.c, infer*.c, verify.c and text*.c share. */
#ifndef ASH_IR_INSIDE_H
#define ASH_IR_INSIDE_H

#include "base/text.h"
#include "dims_poly.h"

/* Checks that a dtype and dims make a type: every dim known and never negative, and the dims' maxima, zeros
 * left out, multiply to bytes that fit 64 bits. */
ash_status ash_type__check(const ash_dims *dims, const ash_type *type, ash_diag *diag);
/* Appends the name of a variable, in quotes where it needs them. */
void ash_dims__print_name(const char *name, ash_text *out);
/* Appends "[batch, 3]". */
void ash_dims__print_list(const ash_dims *dims, const ash_dim *list, size_t n, ash_text *out);

/* Infers the types of a node's outputs from its operands' values. Its outputs need not be there yet. */
ash_status ash_graph__infer(const ash_graph *graph, const ash_node *node, ash_type *outs, ash_diag *diag);
/* Checks that the settled variables which a node mentions are settled before its first result, and that no
 * other node settles the one that it settles. `outs`: the types of its results. */
ash_status ash_graph__check_settled(const ash_graph *graph, const ash_node *node, const ash_type *outs,
                                    ash_diag *diag);
/* Checks that a leaf's type mentions no settled variable, but for those of a body that are settled
 * outside. */
ash_status ash_graph__check_leaf_type(const ash_graph *graph, const ash_type *type, ash_diag *diag);
/* Makes a variable one that is settled outside of a body, whose first input is there; false: no memory. */
bool ash_graph__settle_outside(ash_graph *body, uint32_t var);
bool ash_graph__is_settled_outside(const ash_graph *graph, uint32_t var);
/* Room for what note_settler writes, false when there is no memory; and the settler of the variable that
 * the node settles, if it does, once the node is a part of the graph. */
bool ash_graph__reserve_settler(ash_graph *graph, const ash_node *node);
void ash_graph__note_settler(ash_graph *graph, const ash_node *node);
/* Checks that a node of class CUSTOM calls a function that the context has. */
ash_status ash_custom__check(const ash_graph *graph, const ash_attr *attrs, size_t n_attrs, ash_diag *diag);
/* Checks what a constant or parameter needs of its data: a static type, the exact size, bools of 0 and
 * 1. */
ash_status ash_graph__check_data(const ash_graph *graph, const ash_type *type, const ash_blob *blob,
                                 ash_diag *diag);

#endif
