/* SPDX-License-Identifier: MIT */
/* The k best elements of each row, where they are many, by the digits of what orders them: a word of 32
 * bits that counts up as elements get worse. In four passes over the row, one for each digit from the
 * highest on, it is counted how many elements have which digit, among those that have the digits found so
 * far; so the word of the k-th best one is known. One more pass takes all that are better, and as many of
 * its equals as there is room for, the first ones. These are sorted from the lowest digit on, each time in
 * the order that they have, so that of equals the first stays first.
 *
 * Entries are the word above the element's number. Time is linear in the row and in k; a heap takes a
 * logarithm of k for each element that is among the best so far. Scratch memory is two entries for each of
 * the k. */
#include <math.h>

#include "rows.h"
#include "tile.h"

enum { DIGITS = 4, BITS = 8, VALUES = 1 << BITS, WORD = 32 };

typedef struct radix {
    ash_rows r;
    ash_kern *k;
    bool largest;
    uint16_t counts, entries[2];
    ash_ref first_count, first_entry[2]; /* of this worker */
    ash_ref zero, kept, count;           /* i64: 0; k; elements of the row */
} radix;

static ash_ref number(radix *x, int64_t value) {
    return ash_nest_index(&x->k->nest, value);
}

static ash_ref word(radix *x, int64_t value) {
    return ash_nest_int(&x->k->nest, ASH_U32, value);
}

static ash_ref binary(radix *x, ash_op op, ash_ref a, ash_ref b) {
    return ash_nest_binary(&x->k->nest, op, a, b);
}

/* The word of element i: the better, the less. */
static ash_ref word_of(radix *x, ash_ref i) {
    ash_kern *k = x->k;
    ash_nest *n = &k->nest;
    ash_kern_set_sym(k, x->r.step, i);
    ash_ref order = ash_topk__order(k, x->largest, ash_kern_eval(k, x->r.node->ins[0], x->r.idx));
    return ash_nest_bitcast(n, ASH_U32, binary(x, ASH_OP_XOR, order, ash_nest_int(n, ASH_I32, INT32_MAX)));
}

/* Its digit that begins at bit `from` (u32), as an index. */
static ash_ref digit_of(radix *x, ash_ref of, ash_ref from) {
    ash_ref digit = binary(x, ASH_OP_AND, binary(x, ASH_OP_SHR, of, from), word(x, VALUES - 1));
    return ash_nest_cast(&x->k->nest, ASH_I64, digit);
}

static ash_ref count_at(radix *x, ash_ref i) {
    return binary(x, ASH_OP_ADD, x->first_count, i);
}

/* counts[at] and what is added to it; returns what it was. */
static ash_ref add_to(radix *x, ash_ref at, int64_t by) {
    ash_nest *n = &x->k->nest;
    ash_ref before = ash_nest_load(n, x->counts, at, 1, ASH_NO_REF);
    ash_nest_store(n, x->counts, at, binary(x, ASH_OP_ADD, before, ash_nest_int(n, ASH_I32, by)),
                   ASH_NO_REF);
    return before;
}

static void clear(radix *x, int64_t counts) {
    ash_nest *n = &x->k->nest;
    ash_ref i = ash_nest_loop(n, x->zero, number(x, counts), 1, 1);
    ash_nest_store(n, x->counts, count_at(x, i), ash_nest_int(n, ASH_I32, 0), ASH_NO_REF);
    ash_nest_end(n);
}

/* The digit in which the counts, added up, come to `left` (a cell), which is then what they lack before. */
static ash_ref find_digit(radix *x, ash_ref left) {
    ash_nest *n = &x->k->nest;
    ash_ref none = number(x, -1), found = ash_nest_cell(n, none);
    ash_ref i = ash_nest_loop(n, x->zero, number(x, VALUES), 1, 1);
    ash_ref here = ash_nest_cast(n, ASH_I64, ash_nest_load(n, x->counts, count_at(x, i), 1, ASH_NO_REF));
    ash_ref rest = ash_nest_get(n, left), is = ash_nest_get(n, found);
    ash_ref open = binary(x, ASH_OP_EQ, is, none);
    ash_ref now = binary(x, ASH_OP_AND, open, binary(x, ASH_OP_LE, rest, here));
    ash_ref past = binary(x, ASH_OP_AND, open, ash_nest_unary(n, ASH_OP_NOT, now));
    ash_nest_set(n, found, ash_nest_select(n, now, i, is));
    ash_nest_set(n, left, ash_nest_select(n, past, binary(x, ASH_OP_SUB, rest, here), rest));
    ash_nest_end(n);
    return ash_nest_get(n, found);
}

/* The word of the k-th best element; *left (a cell): how many of its equals are among the k. */
static ash_ref select_word(radix *x, ash_ref left) {
    ash_kern *k = x->k;
    ash_nest *n = &k->nest;
    ash_ref prefix = ash_nest_cell(n, word(x, 0));
    ash_ref digit = ash_nest_loop(n, x->zero, number(x, DIGITS), 1, 1);
    ash_ref high = ash_nest_cast(
                n, ASH_U32,
                binary(x, ASH_OP_SUB, number(x, WORD), binary(x, ASH_OP_MUL, digit, number(x, BITS)))),
            from = binary(x, ASH_OP_SUB, high, word(x, BITS)), known = ash_nest_get(n, prefix);
    clear(x, VALUES);
    size_t mark = ash_kern_mark(k);
    ash_ref i = ash_kern_loop(k, x->r.step, x->zero, x->count, 1, 1), of = word_of(x, i);
    ash_ref other = binary(x, ASH_OP_SHR, binary(x, ASH_OP_XOR, of, known), high);
    ash_nest_if(n, binary(x, ASH_OP_EQ, other, word(x, 0)));
    add_to(x, count_at(x, digit_of(x, of, from)), 1);
    ash_nest_end(n);
    ash_nest_end(n);
    ash_kern_forget(k, mark);
    ash_ref found = ash_nest_cast(n, ASH_U32, find_digit(x, left));
    ash_nest_set(n, prefix, binary(x, ASH_OP_OR, known, binary(x, ASH_OP_SHL, found, from)));
    ash_nest_end(n);
    return ash_nest_get(n, prefix);
}

/* Where entry i of either array lies. */
static ash_ref entry_at(radix *x, unsigned array, ash_ref i) {
    return binary(x, ASH_OP_ADD, x->first_entry[array], i);
}

/* The k best, in the row's order, to the first array; and how often each digit has each value. */
static void take(radix *x, ash_ref last, ash_ref left) {
    ash_kern *k = x->k;
    ash_nest *n = &k->nest;
    ash_ref to = ash_nest_cell(n, x->zero), one = number(x, 1);
    clear(x, (int64_t)DIGITS * VALUES);
    size_t mark = ash_kern_mark(k);
    ash_ref i = ash_kern_loop(k, x->r.step, x->zero, x->count, 1, 1), of = word_of(x, i);
    ash_ref room = ash_nest_get(n, left), at = ash_nest_get(n, to);
    ash_ref equal =
        binary(x, ASH_OP_AND, binary(x, ASH_OP_EQ, of, last), binary(x, ASH_OP_LT, x->zero, room));
    ash_nest_if(n, binary(x, ASH_OP_OR, binary(x, ASH_OP_LT, of, last), equal));
    ash_ref above = binary(x, ASH_OP_SHL, ash_nest_cast(n, ASH_U64, of), ash_nest_int(n, ASH_U64, WORD));
    ash_nest_store(n, x->entries[0], entry_at(x, 0, at),
                   binary(x, ASH_OP_OR, above, ash_nest_cast(n, ASH_U64, i)), ASH_NO_REF);
    for (unsigned d = 0; d < DIGITS; d++) {
        ash_ref digit = digit_of(x, of, word(x, (int64_t)d * BITS));
        add_to(x, count_at(x, binary(x, ASH_OP_ADD, digit, number(x, (int64_t)d * VALUES))), 1);
    }
    ash_nest_set(n, to, binary(x, ASH_OP_ADD, at, one));
    ash_nest_set(n, left, binary(x, ASH_OP_SUB, room, ash_nest_select(n, equal, one, x->zero)));
    ash_nest_end(n);
    ash_nest_end(n);
    ash_kern_forget(k, mark);
}

/* Sorts by digit d, from the lowest on, from one array into the other. */
static void sort_by(radix *x, unsigned d) {
    ash_nest *n = &x->k->nest;
    const unsigned from = d % 2, to = 1 - from;
    ash_ref counts = count_at(x, number(x, (int64_t)d * VALUES));
    ash_ref sum = ash_nest_cell(n, ash_nest_int(n, ASH_I32, 0));
    ash_ref value = ash_nest_loop(n, x->zero, number(x, VALUES), 1, 1);
    ash_ref at = binary(x, ASH_OP_ADD, counts, value), before = ash_nest_get(n, sum);
    ash_nest_set(n, sum, binary(x, ASH_OP_ADD, before, ash_nest_load(n, x->counts, at, 1, ASH_NO_REF)));
    ash_nest_store(n, x->counts, at, before, ASH_NO_REF);
    ash_nest_end(n);
    ash_ref i = ash_nest_loop(n, x->zero, x->kept, 1, 1);
    ash_ref entry = ash_nest_load(n, x->entries[from], entry_at(x, from, i), 1, ASH_NO_REF);
    ash_ref of = ash_nest_cast(n, ASH_U32, binary(x, ASH_OP_SHR, entry, ash_nest_int(n, ASH_U64, WORD)));
    ash_ref place =
        add_to(x, binary(x, ASH_OP_ADD, counts, digit_of(x, of, word(x, (int64_t)d * BITS))), 1);
    ash_nest_store(n, x->entries[to], entry_at(x, to, ash_nest_cast(n, ASH_I64, place)), entry, ASH_NO_REF);
    ash_nest_end(n);
}

/* The entries' elements and numbers are the results. */
static void store(radix *x) {
    ash_kern *k = x->k;
    ash_nest *n = &k->nest;
    const ash_node *node = x->r.node;
    ash_ix out[ASH_MAX_RANK];
    memcpy(out, x->r.idx, sizeof out);
    ash_sym rank = ash_kern_sym(k, ash_node_int(node, ASH_ATTR_K));
    out[x->r.axis] = ash_ix_sym(&k->ixs, rank);
    size_t mark = ash_kern_mark(k);
    ash_ref i = ash_kern_loop(k, rank, x->zero, x->kept, 1, 1);
    ash_ref entry = ash_nest_load(n, x->entries[0], entry_at(x, 0, i), 1, ASH_NO_REF);
    ash_ref at =
        ash_nest_cast(n, ASH_I64, binary(x, ASH_OP_AND, entry, ash_nest_int(n, ASH_U64, UINT32_MAX)));
    ash_kern_set_sym(k, x->r.step, at);
    ash_kern_store(k, node->out, out, ash_kern_eval(k, node->ins[0], x->r.idx));
    ash_kern_store(k, node->out + 1, out, at);
    ash_nest_end(n);
    ash_kern_forget(k, mark);
}

/* Steps of a heap of k among n elements: each of those that were the best when they came, about k times the
 * logarithm of n / k for numbers in no order, goes in, and all come out. */
bool ash_topk__is_for_digits(const ash_kern *k, ash_dim elements, ash_dim kept) {
    const ash_costs *c = &k->low->target->costs;
    double n = (double)ash_kern_max(k, elements), best = ASH_MAX((double)ash_kern_max(k, kept), 2);
    double heap = best * (log(ASH_MAX(n / best, 1)) + 2) * log2(best);
    double digits = (DIGITS + 1) * (n + VALUES) + (2 * DIGITS + 1) * best + 2 * DIGITS * VALUES;
    return digits * c->radix_step < heap;
}

ash_dim ash_topk__by_digits(ash_kern *k) {
    const ash_node *node = &k->graph->nodes.at[k->group->root];
    const ash_type *in = ash_graph__type(k->graph, node->ins[0]);
    ash_nest *n = &k->nest;
    ash_dim most = ash_node_int(node, ASH_ATTR_K);
    radix x = {.k = k, .largest = ash_node_int(node, ASH_ATTR_LARGEST)};
    x.counts = ash_kern_scratch(k, ASH_I32, (ash_dim)DIGITS * VALUES, &x.first_count);
    for (unsigned i = 0; i < 2; i++) x.entries[i] = ash_kern_scratch(k, ASH_U64, most, &x.first_entry[i]);
    ash_dim total = ash_rows_begin(&x.r, k, in->rank, 1, NULL);
    if (ash_kern_lost(k)) return total;
    x.zero = ash_nest_index(n, 0);
    x.kept = ash_kern_dim(k, most);
    x.count = ash_kern_dim(k, x.r.count);
    ash_ref left = ash_nest_cell(n, x.kept);
    ash_ref last = select_word(&x, left);
    take(&x, last, left);
    for (unsigned d = 0; d < DIGITS; d++) sort_by(&x, d);
    store(&x);
    ash_nest_end(n);
    return total;
}
