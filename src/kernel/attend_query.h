/* SPDX-License-Identifier: MIT */
/* Queries that a kernel which attends packs itself: see attend_query.c. */
#ifndef ASH_ATTEND_QUERY_H
#define ASH_ATTEND_QUERY_H

#include "tile.h"

typedef struct ash_attend_rows {
    ash_kern *k;
    const ash_tile_operand *at; /* where they lie, in the symbols of a row and of a term */
    ash_sym row, step;
    ash_ref last;  /* the last row that there is */
    int64_t terms; /* of a row */
    unsigned lanes;
    uint16_t buf; /* scratch memory: [vector of rows][term][row], from `to` on */
    ash_ref to;
} ash_attend_rows;

/* Packs so many vectors of rows from row0 on. Vectors behind the last row have the last one again. */
void ash_attend__pack(const ash_attend_rows *q, ash_ref row0, ash_ref vectors);

#endif
