/* SPDX-License-Identifier: MIT */
/* Sorting by a block in its memory (K. E. Batcher, Sorting networks and their applications, 1968): a step
 * for each distance of pairs, with a barrier. */
#include "sort.h"

#include "kernel/tile.h"
#include "places.h"

enum { MOST_THREADS = 1024 };

#define WRITER     ash_kern
#define NEST_OF(w) (&(w)->nest)
#include "kernel/positions.h"

static ash_ref op(ash_kern *k, ash_op what, ash_ref a, ash_ref b) {
    return ash_nest_binary(&k->nest, what, a, b);
}

int64_t ash_gpu_sort_size(int64_t entries) {
    int64_t size = ASH_GPU_SORT_LEAST;
    while (size < entries && size < ASH_GPU_SORT_MOST) size *= 2;
    return size;
}

ash_gpu_list ash_gpu_list_shared(ash_kern *k, int64_t size, bool pairs) {
    ash_nest *n = &k->nest;
    n->threads = (uint32_t)ASH_MIN(size / 2, MOST_THREADS);
    return (ash_gpu_list){pairs, ash_nest_shared_add(n, ASH_I64, (uint32_t)size),
                          pairs ? ash_nest_shared_add(n, ASH_I32, (uint32_t)size) : 0};
}

ash_gpu_list ash_gpu_list_between(ash_kern *k, ash_dim count, bool pairs, bool write) {
    const uint16_t keys = ash_gpu_between(k, 0, ASH_I64, count, write);
    return (ash_gpu_list){pairs, keys, pairs ? ash_gpu_between(k, 1, ASH_I32, count, write) : 0};
}

ash_gpu_entry ash_gpu_entry_load(ash_kern *k, const ash_gpu_list *list, ash_ref at) {
    ash_nest *n = &k->nest;
    ash_ref key = ash_nest_load(n, list->keys, at, 1, ASH_NO_REF);
    return (ash_gpu_entry){key,
                           list->pairs ? ash_nest_load(n, list->numbers, at, 1, ASH_NO_REF) : ASH_NO_REF};
}

void ash_gpu_entry_store(ash_kern *k, const ash_gpu_list *list, ash_ref at, ash_gpu_entry entry) {
    ash_nest_store(&k->nest, list->keys, at, entry.key, ASH_NO_REF);
    if (list->pairs) ash_nest_store(&k->nest, list->numbers, at, entry.number, ASH_NO_REF);
}

ash_gpu_entry ash_gpu_entry_none(ash_kern *k, bool pairs) {
    ash_ref last = pairs ? ash_nest_int(&k->nest, ASH_I32, INT32_MAX) : ASH_NO_REF;
    return (ash_gpu_entry){number(k, INT64_MIN), last};
}

ash_ref ash_gpu_entry_is_none(ash_kern *k, ash_gpu_entry entry) {
    const bool pairs = entry.number != ASH_NO_REF;
    const ash_gpu_entry none = ash_gpu_entry_none(k, pairs);
    return pairs ? op(k, ASH_OP_EQ, entry.number, none.number) : op(k, ASH_OP_EQ, entry.key, none.key);
}

static ash_ref comes_before(ash_kern *k, ash_gpu_entry a, ash_gpu_entry b) {
    ash_ref larger = op(k, ASH_OP_LT, b.key, a.key);
    if (a.number == ASH_NO_REF) return larger;
    ash_ref first = op(k, ASH_OP_AND, op(k, ASH_OP_EQ, a.key, b.key), op(k, ASH_OP_LT, a.number, b.number));
    return op(k, ASH_OP_OR, larger, first);
}

static ash_gpu_entry chosen(ash_kern *k, ash_ref condition, ash_gpu_entry a, ash_gpu_entry b) {
    ash_nest *n = &k->nest;
    ash_ref key = ash_nest_select(n, condition, a.key, b.key);
    return (ash_gpu_entry){key, a.number == ASH_NO_REF ? ASH_NO_REF
                                                       : ash_nest_select(n, condition, a.number, b.number)};
}

void ash_gpu_sort(ash_kern *k, const ash_gpu_list *list, int64_t size) {
    ash_nest *n = &k->nest;
    const int64_t levels = __builtin_ctzll((uint64_t)size);
    ash_ref one = ash_nest_int(n, ASH_U32, 1), zero = ash_nest_int(n, ASH_U32, 0);
    ash_ref level = ash_nest_loop(n, number(k, 0), number(k, levels), 1, 1);
    ash_ref step = ash_nest_loop(n, number(k, 0), plus(k, level, 1), 1, 1);
    ash_ref bit = ash_nest_cast(n, ASH_U32, minus(k, level, step)), apart = op(k, ASH_OP_SHL, one, bit);
    ash_ref run = add(k, ash_nest_cast(n, ASH_U32, level), one); /* of one direction */
    ash_nest_barrier(n);
    ash_ref thread = ash_kern_argument(k, ASH_NEST_THREAD);
    ash_ref pair = ash_nest_cast(n, ASH_U32, ash_nest_loop(n, thread, number(k, size / 2), n->threads, 1));
    ash_ref above = op(k, ASH_OP_SHL, op(k, ASH_OP_SHR, pair, bit), add(k, bit, one));
    ash_ref i = add(k, above, op(k, ASH_OP_AND, pair, minus(k, apart, one))), j = add(k, i, apart);
    ash_ref down = op(k, ASH_OP_EQ, op(k, ASH_OP_AND, op(k, ASH_OP_SHR, i, run), one), zero);
    ash_ref at[] = {ash_nest_cast(n, ASH_I64, i), ash_nest_cast(n, ASH_I64, j)};
    const ash_gpu_entry a = ash_gpu_entry_load(k, list, at[0]), b = ash_gpu_entry_load(k, list, at[1]);
    ash_ref stay = op(k, ASH_OP_EQ, comes_before(k, a, b), down);
    ash_gpu_entry_store(k, list, at[0], chosen(k, stay, a, b));
    ash_gpu_entry_store(k, list, at[1], chosen(k, stay, b, a));
    ash_nest_end(n);
    ash_nest_end(n);
    ash_nest_end(n);
    ash_nest_barrier(n);
}

void ash_gpu_list_copy(ash_kern *k, const ash_gpu_list *to, ash_ref begin, const ash_gpu_list *from,
                       int64_t count) {
    ash_nest *n = &k->nest;
    ash_ref thread = ash_kern_argument(k, ASH_NEST_THREAD);
    ash_ref i = ash_nest_loop(n, thread, number(k, count), n->threads, 1);
    ash_gpu_entry_store(k, to, add(k, begin, i), ash_gpu_entry_load(k, from, i));
    ash_nest_end(n);
    ash_nest_barrier(n);
}

/* Halves of what is left, down to one. Past the end is the last entry: where it comes before, all do. */
ash_ref ash_gpu_sorted_before(ash_kern *k, const ash_gpu_list *list, ash_ref begin, int64_t size,
                              ash_gpu_entry entry) {
    int64_t half = 1;
    while (half <= size / 2) half *= 2;
    ash_ref count = number(k, 0);
    for (; half; half /= 2) {
        ash_ref more = lesser(k, plus(k, count, half), number(k, size));
        const ash_gpu_entry last = ash_gpu_entry_load(k, list, plus(k, add(k, begin, more), -1));
        count = ash_nest_select(&k->nest, comes_before(k, last, entry), more, count);
    }
    return count;
}
