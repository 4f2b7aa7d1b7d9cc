/* SPDX-License-Identifier: MIT */
/* Mode remap: whole allocations, which tenants of one rounded size take one after the other. */
#ifndef ASH_MEMORY_REMAP_H
#define ASH_MEMORY_REMAP_H

#include "instance.h"

/* Gives each placed class an allocation, numbered from 0; *slots is how many there are. `slot_of` has one
 * entry per class. */
ash_status ash_memory__remap(const ash_memory__instance *instance, uint32_t *slot_of, uint32_t *slots,
                             ash_diag *diag);
/* The bytes that an allocation has for a tenant of `size` bytes. */
uint64_t ash_memory__remap_size(uint64_t size);

#endif
