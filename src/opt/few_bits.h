/* SPDX-License-Identifier: MIT */
/* What the files of the pass few_bits share. */
#ifndef ASH_OPT_FEW_BITS_H
#define ASH_OPT_FEW_BITS_H

#include "rewrite.h"

/* A gather of rows of a constant that is computed from fewer bytes, computed behind gathers of these, in
 * `to`. ASH_NO_VALUE: the node is none, or nothing would be gained. (few_bits_rows.c) */
ash_value ash_few_bits__rows(ash_rewrite *rw, const ash_node *node, const bool *constant);

#endif
