/* SPDX-License-Identifier: MIT */
#include "heap.h"

#include "tile.h"

static unsigned bits_of(int64_t number) {
    return 64 - (unsigned)__builtin_clzll((uint64_t)number | 1);
}

void ash_heap_init(ash_heap *h, ash_kern *k, ash_dtype dtype, ash_dim most, ash_dim limit) {
    h->k = k;
    h->number_dtype = ash_kern_max(k, limit) <= INT32_MAX ? ASH_I32 : ASH_I64;
    h->levels = bits_of(ash_kern_max(k, most));
    h->keys = ash_kern_scratch(k, dtype, most, &h->first_key);
    if (!h->bare) h->numbers = ash_kern_scratch(k, h->number_dtype, most, &h->first_number);
}

ash_heap_entry ash_heap_at(const ash_heap *h, ash_ref i) {
    ash_nest *n = &h->k->nest;
    ash_ref at_key = ash_nest_binary(n, ASH_OP_ADD, h->first_key, i);
    if (h->bare)
        return (ash_heap_entry){ash_nest_load(n, h->keys, at_key, 1, ASH_NO_REF), ash_nest_index(n, 0)};
    ash_ref at_number = ash_nest_binary(n, ASH_OP_ADD, h->first_number, i);
    ash_ref number = ash_nest_load(n, h->numbers, at_number, 1, ASH_NO_REF);
    return (ash_heap_entry){ash_nest_load(n, h->keys, at_key, 1, ASH_NO_REF),
                            ash_nest_cast(n, ASH_I64, number)};
}

void ash_heap_put(const ash_heap *h, ash_ref i, ash_heap_entry entry) {
    ash_nest *n = &h->k->nest;
    ash_nest_store(n, h->keys, ash_nest_binary(n, ASH_OP_ADD, h->first_key, i), entry.key, ASH_NO_REF);
    if (h->bare) return;
    ash_ref number = ash_nest_cast(n, h->number_dtype, entry.number);
    ash_nest_store(n, h->numbers, ash_nest_binary(n, ASH_OP_ADD, h->first_number, i), number, ASH_NO_REF);
}

static ash_heap_entry choose(ash_nest *n, ash_ref condition, ash_heap_entry a, ash_heap_entry b) {
    return (ash_heap_entry){ash_nest_select(n, condition, a.key, b.key),
                            a.number == b.number ? a.number
                                                 : ash_nest_select(n, condition, a.number, b.number)};
}

/* Puts an entry in at `top`, below which the heap is in order, and moves it down to its place, `levels`
 * steps at most. */
static void sift_down(const ash_heap *h, ash_ref top, ash_heap_entry entry, ash_ref levels) {
    ash_nest *n = &h->k->nest;
    ash_ref one = ash_nest_index(n, 1), hole = ash_nest_cell(n, top), count = ash_nest_get(n, h->count);
    ash_nest_loop(n, ash_nest_index(n, 0), levels, 1, 1);
    ash_ref here = ash_nest_get(n, hole);
    ash_ref left = ash_nest_binary(n, ASH_OP_ADD, ash_nest_binary(n, ASH_OP_ADD, here, here), one);
    ash_nest_if(n, ash_nest_binary(n, ASH_OP_LT, left, count));
    ash_ref right = ash_nest_binary(n, ASH_OP_ADD, left, one);
    right = ash_nest_select(n, ash_nest_binary(n, ASH_OP_LT, right, count), right, left);
    ash_heap_entry on_left = ash_heap_at(h, left), on_right = ash_heap_at(h, right);
    ash_ref goes_right = h->above(h, on_right, on_left);
    ash_heap_entry child = choose(n, goes_right, on_right, on_left);
    ash_nest_if(n, h->above(h, child, entry));
    ash_heap_put(h, here, child);
    ash_nest_set(n, hole, ash_nest_select(n, goes_right, right, left));
    ash_nest_end(n);
    ash_nest_end(n);
    ash_nest_end(n);
    ash_heap_put(h, ash_nest_get(n, hole), entry);
}

/* Each round the nodes whose children are in order: as many levels above the leaves as there were
 * rounds. */
void ash_heap_make(const ash_heap *h) {
    ash_nest *n = &h->k->nest;
    ash_ref two = ash_nest_index(n, 2), one = ash_nest_index(n, 1);
    ash_ref end = ash_nest_cell(n, ash_nest_idiv(n, ash_nest_get(n, h->count), two));
    ash_ref round = ash_nest_loop(n, one, ash_nest_index(n, h->levels + 1), 1, 1);
    ash_ref to = ash_nest_get(n, end), from = ash_nest_idiv(n, to, two);
    ash_nest_set(n, end, from);
    ash_ref i = ash_nest_loop(n, from, to, 1, 1);
    sift_down(h, i, ash_heap_at(h, i), round);
    ash_nest_end(n);
    ash_nest_end(n);
}

void ash_heap_replace(const ash_heap *h, ash_heap_entry entry) {
    ash_nest *n = &h->k->nest;
    sift_down(h, ash_nest_index(n, 0), entry, ash_nest_index(n, h->levels));
}

ash_heap_entry ash_heap_take(const ash_heap *h) {
    ash_nest *n = &h->k->nest;
    ash_heap_entry top = ash_heap_at(h, ash_nest_index(n, 0));
    ash_ref last = ash_nest_binary(n, ASH_OP_SUB, ash_nest_get(n, h->count), ash_nest_index(n, 1));
    ash_nest_set(n, h->count, last);
    ash_heap_replace(h, ash_heap_at(h, last));
    return top;
}
