/* SPDX-License-Identifier: MIT */
/* Updates of a scatter, wherever a kernel makes them. */
#ifndef ASH_SCATTER_H
#define ASH_SCATTER_H

#include "kern.h"

typedef struct ash_scattered {
    ash_kern *k;
    const ash_node *node;
    ash_ix idx[ASH_MAX_RANK]; /* position in the updates */
} ash_scattered;

/* Where the update at the present position goes: `to` in the result. *inside becomes the condition that it
 * goes anywhere, or stays ASH_NO_REF. */
void ash_scatter__target(const ash_scattered *s, ash_ix *to, ash_ref *inside);
/* What puts an element and its update together, unless that is set. */
ash_op ash_scatter__combine(const ash_node *node);
/* Makes the update at the present position. */
void ash_scatter__update(const ash_scattered *s);

#endif
