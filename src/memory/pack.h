/* SPDX-License-Identifier: MIT */
/* How the pack of a lane is made of its classes, by columns or by clocks, and segregated fit over one in
 * any order. */
#ifndef ASH_MEMORY_PACK_H
#define ASH_MEMORY_PACK_H

#include "instance.h"
#include "sort.h"

/* The greatest common divisor; of 0 and a number, the number. */
static inline uint64_t ash_memory__gcd(uint64_t a, uint64_t b) {
    while (b) {
        uint64_t r = a % b;
        a = b;
        b = r;
    }
    return a;
}

/* Makes the pack of one lane from its classes; what was made is freed with ash_memory__pack_free, also
 * after failure. */
ash_status ash_memory__pack_init(ash_memory__instance *instance, uint32_t lane, const uint32_t *classes,
                                 uint32_t count, ash_memory__pack *pack, ash_diag *diag);
void ash_memory__pack_free(const ash_allocator *allocator, ash_memory__pack *pack);

/* Two streams and more. Sorts live classes into an order that the relation allows (in place) and fills
 * their begin and end with ranks: a class ends at the rank from which on everything comes after it. Those
 * intervals are a safe summary of the relation: classes that they keep apart may share bytes. */
ash_status ash_memory__clocks_order(ash_memory__instance *instance, uint32_t *classes, uint32_t count,
                                    ash_diag *diag);
/* Two streams and more. Finds the pairs of items that may not share bytes, and the load. */
ash_status ash_memory__clocks_conflicts(const ash_memory__instance *instance, ash_memory__pack *pack,
                                        ash_diag *diag);
/* Two streams and more: whether everything that touches class `a` is over before anything touches `b`. */
bool ash_memory__before(const ash_memory__instance *instance, uint32_t a, uint32_t b);
/* Two streams and more: the clock at which the load is reached, and whether a class is live at a clock. */
void ash_memory__cut(const ash_memory__instance *instance, const ash_memory__pack *pack, int64_t *cut);
bool ash_memory__live_at(const ash_memory__instance *instance, uint32_t class, const int64_t *cut);

/* Segregated fit over the items in `order`, in which births never go back; NULL: as they are. */
ash_status ash_memory__online(const ash_allocator *allocator, const ash_memory__pack *pack,
                              const uint32_t *order, uint64_t *offsets, ash_diag *diag);

#endif
