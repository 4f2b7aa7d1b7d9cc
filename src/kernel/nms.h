/* SPDX-License-Identifier: MIT */
/* Boxes that a greedy choice compares, in the same arithmetic on every target. */
#ifndef ASH_NMS_H
#define ASH_NMS_H

#include "kern.h"

enum { ASH_NMS_LOW_0, ASH_NMS_LOW_1, ASH_NMS_HIGH_0, ASH_NMS_HIGH_1, ASH_NMS_AREA, ASH_NMS_NUMBERS };

typedef struct ash_nms_box {
    ash_ref is[ASH_NMS_NUMBERS];
} ash_nms_box;

/* The box of that number, of a batch entry. */
ash_nms_box ash_nms__load(ash_kern *k, ash_value boxes, ash_ix batch, ash_ref number);
/* Whether two boxes have more than `most` of their union in common; one without an area has nothing. */
ash_ref ash_nms__overlap(ash_nest *n, const ash_nms_box *a, const ash_nms_box *b, ash_ref most,
                         ash_ref zero);

#endif
