/* SPDX-License-Identifier: MIT */
/* The k best elements of each row, where they are many, by the digits of what orders them: a word of 32
 * bits, or of 64 for elements of eight bytes, that counts up as elements get worse. Where k is less than
 * the row has, one pass over the row for each digit, from the highest on, counts how many elements have
 * which value there, among those that have the digits found so far; so the word of the k-th best one is
 * known. One more pass takes all that are better, and as many of its equals as there is room for, the first
 * ones. These are sorted from the lowest digit on, each time in the order that they have, so that of equals
 * the first stays first. Digits are those of the distance from the least word, in units of the lowest bit
 * in which any differ, and there are as many as the largest distance has: one for numbers of classes,
 * whatever their dtype is.
 *
 * Entries are the word above the element's number, or for words of 64 bits both side by side. Time is
 * linear in the row and in k; a heap takes a logarithm of k for each element that is among the best so far.
 * Scratch memory is two entries for each of the k. */
#include <math.h>

#include "rows.h"
#include "tile.h"

enum { BITS = 8, VALUES = 1 << BITS, NUMBER_BITS = 32 };

typedef struct radix {
    ash_rows r;
    ash_kern *k;
    bool largest;
    unsigned digits; /* of a word */
    ash_dtype word;  /* u32, or u64 */
    uint16_t counts, keys, numbers;
    ash_ref first_count, first_key, first_number; /* of this worker; keys and numbers have room for 2 k */
    ash_ref zero, kept, count;                    /* i64: 0; k; elements of the row */
} radix;

static ash_ref number(radix *x, int64_t value) {
    return ash_nest_index(&x->k->nest, value);
}

static ash_ref word(radix *x, int64_t value) {
    return ash_nest_int(&x->k->nest, x->word, value);
}

static bool is_wide(const radix *x) {
    return x->word == ASH_U64;
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
    ash_ref turned = is_wide(x) ? ash_nest_int(n, ASH_I64, INT64_MAX) : ash_nest_int(n, ASH_I32, INT32_MAX);
    return ash_nest_bitcast(n, x->word, binary(x, ASH_OP_XOR, order, turned));
}

/* The digit that begins at bit `from`, of the word's dtype, as an index. */
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

static void clear(radix *x) {
    ash_nest *n = &x->k->nest;
    ash_ref i = ash_nest_loop(n, x->zero, number(x, VALUES), 1, 1);
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
    ash_ref digit = ash_nest_loop(n, x->zero, number(x, x->digits), 1, 1);
    ash_ref left_over = binary(x, ASH_OP_SUB, number(x, x->digits), digit);
    ash_ref high = ash_nest_cast(n, x->word, binary(x, ASH_OP_MUL, left_over, number(x, BITS))),
            from = binary(x, ASH_OP_SUB, high, word(x, BITS)), known = ash_nest_get(n, prefix);
    clear(x);
    size_t mark = ash_kern_mark(k);
    ash_ref i = ash_kern_loop(k, x->r.step, x->zero, x->count, 1, 1), of = word_of(x, i);
    ash_ref other = binary(x, ASH_OP_SHR, binary(x, ASH_OP_XOR, of, known), high);
    ash_nest_if(n, binary(x, ASH_OP_EQ, other, word(x, 0)));
    add_to(x, count_at(x, digit_of(x, of, from)), 1);
    ash_nest_end(n);
    ash_nest_end(n);
    ash_kern_forget(k, mark);
    ash_ref found = ash_nest_cast(n, x->word, find_digit(x, left));
    ash_nest_set(n, prefix, binary(x, ASH_OP_OR, known, binary(x, ASH_OP_SHL, found, from)));
    ash_nest_end(n);
    return ash_nest_get(n, prefix);
}

/* The word of entry i, and the number of its element. */
static ash_ref word_at(radix *x, ash_ref i) {
    ash_nest *n = &x->k->nest;
    ash_ref key = ash_nest_load(n, x->keys, binary(x, ASH_OP_ADD, x->first_key, i), 1, ASH_NO_REF);
    if (is_wide(x)) return key;
    return ash_nest_cast(n, ASH_U32, binary(x, ASH_OP_SHR, key, ash_nest_int(n, ASH_U64, NUMBER_BITS)));
}

static ash_ref number_at(radix *x, ash_ref i) {
    ash_nest *n = &x->k->nest;
    if (is_wide(x)) {
        ash_ref at = binary(x, ASH_OP_ADD, x->first_number, i);
        return ash_nest_cast(n, ASH_I64, ash_nest_load(n, x->numbers, at, 1, ASH_NO_REF));
    }
    ash_ref key = ash_nest_load(n, x->keys, binary(x, ASH_OP_ADD, x->first_key, i), 1, ASH_NO_REF);
    return ash_nest_cast(n, ASH_I64, binary(x, ASH_OP_AND, key, ash_nest_int(n, ASH_U64, UINT32_MAX)));
}

static void put(radix *x, ash_ref at, ash_ref of, ash_ref element) {
    ash_nest *n = &x->k->nest;
    ash_ref key = of;
    if (is_wide(x)) {
        ash_nest_store(n, x->numbers, binary(x, ASH_OP_ADD, x->first_number, at),
                       ash_nest_cast(n, ASH_I32, element), ASH_NO_REF);
    } else {
        ash_ref above =
            binary(x, ASH_OP_SHL, ash_nest_cast(n, ASH_U64, of), ash_nest_int(n, ASH_U64, NUMBER_BITS));
        key = binary(x, ASH_OP_OR, above, ash_nest_cast(n, ASH_U64, element));
    }
    ash_nest_store(n, x->keys, binary(x, ASH_OP_ADD, x->first_key, at), key, ASH_NO_REF);
}

/* Cells of what is known of the words that are taken. */
typedef struct word_span {
    ash_ref least, most;
    ash_ref some, all; /* bits that are 1 in some of them, in all of them */
} word_span;

static word_span begin_span(radix *x) {
    ash_nest *n = &x->k->nest;
    ash_ref none = word(x, 0), each = word(x, -1);
    return (word_span){ash_nest_cell(n, each), ash_nest_cell(n, none), ash_nest_cell(n, none),
                       ash_nest_cell(n, each)};
}

static void set_to(radix *x, ash_op op, ash_ref cell, ash_ref of) {
    ash_nest *n = &x->k->nest;
    ash_nest_set(n, cell, binary(x, op, ash_nest_get(n, cell), of));
}

static void widen(radix *x, const word_span *s, ash_ref of) {
    set_to(x, ASH_OP_MIN, s->least, of);
    set_to(x, ASH_OP_MAX, s->most, of);
    set_to(x, ASH_OP_OR, s->some, of);
    set_to(x, ASH_OP_AND, s->all, of);
}

/* Takes the whole row. */
static void take_all(radix *x, const word_span *s) {
    ash_kern *k = x->k;
    size_t mark = ash_kern_mark(k);
    ash_ref i = ash_kern_loop(k, x->r.step, x->zero, x->count, 1, 1), of = word_of(x, i);
    widen(x, s, of);
    put(x, i, of, i);
    ash_nest_end(&k->nest);
    ash_kern_forget(k, mark);
}

/* Takes the k best, in the row's order: those before the word `last`, and `left` (a cell) of its equals. */
static void take(radix *x, const word_span *s, ash_ref last, ash_ref left) {
    ash_kern *k = x->k;
    ash_nest *n = &k->nest;
    ash_ref to = ash_nest_cell(n, x->zero), one = number(x, 1);
    size_t mark = ash_kern_mark(k);
    ash_ref i = ash_kern_loop(k, x->r.step, x->zero, x->count, 1, 1), of = word_of(x, i);
    ash_ref room = ash_nest_get(n, left), at = ash_nest_get(n, to);
    ash_ref equal =
        binary(x, ASH_OP_AND, binary(x, ASH_OP_EQ, of, last), binary(x, ASH_OP_LT, x->zero, room));
    ash_nest_if(n, binary(x, ASH_OP_OR, binary(x, ASH_OP_LT, of, last), equal));
    widen(x, s, of);
    put(x, at, of, i);
    ash_nest_set(n, to, binary(x, ASH_OP_ADD, at, one));
    ash_nest_set(n, left, binary(x, ASH_OP_SUB, room, ash_nest_select(n, equal, one, x->zero)));
    ash_nest_end(n);
    ash_nest_end(n);
    ash_kern_forget(k, mark);
}

/* How many of the lowest bits are 0, of the word's dtype; of 0 one less than there are. */
static ash_ref low_zeros(radix *x, ash_ref bits) {
    ash_nest *n = &x->k->nest;
    ash_ref zeros = word(x, 0), none = zeros;
    for (int64_t step = 4 * x->digits; step; step /= 2) {
        ash_ref low = binary(x, ASH_OP_AND, bits, word(x, (INT64_C(1) << step) - 1));
        ash_ref by = ash_nest_select(n, binary(x, ASH_OP_EQ, low, none), word(x, step), none);
        bits = binary(x, ASH_OP_SHR, bits, by);
        zeros = binary(x, ASH_OP_ADD, zeros, by);
    }
    return zeros;
}

/* Brings the entries from `base` on into the order of a digit of their distance from `least`, the one that
 * begins at bit `from`, on the other side: counts say where the next one of each value goes. */
static void sort_by(radix *x, ash_ref base, ash_ref least, ash_ref from) {
    ash_nest *n = &x->k->nest;
    ash_ref other = binary(x, ASH_OP_SUB, x->kept, base);
    clear(x);
    ash_ref i = ash_nest_loop(n, x->zero, x->kept, 1, 1), of = word_at(x, binary(x, ASH_OP_ADD, base, i));
    add_to(x, count_at(x, digit_of(x, binary(x, ASH_OP_SUB, of, least), from)), 1);
    ash_nest_end(n);
    ash_ref sum = ash_nest_cell(n, ash_nest_int(n, ASH_I32, 0));
    ash_ref value = ash_nest_loop(n, x->zero, number(x, VALUES), 1, 1);
    ash_ref at = count_at(x, value), before = ash_nest_get(n, sum);
    ash_nest_set(n, sum, binary(x, ASH_OP_ADD, before, ash_nest_load(n, x->counts, at, 1, ASH_NO_REF)));
    ash_nest_store(n, x->counts, at, before, ASH_NO_REF);
    ash_nest_end(n);
    i = ash_nest_loop(n, x->zero, x->kept, 1, 1);
    at = binary(x, ASH_OP_ADD, base, i);
    of = word_at(x, at);
    ash_ref element = number_at(x, at);
    ash_ref place = add_to(x, count_at(x, digit_of(x, binary(x, ASH_OP_SUB, of, least), from)), 1);
    put(x, binary(x, ASH_OP_ADD, other, ash_nest_cast(n, ASH_I64, place)), of, element);
    ash_nest_end(n);
}

/* Sorts the entries; returns where they are then: from 0 on, or from k on. */
static ash_ref sort(radix *x, const word_span *s) {
    ash_nest *n = &x->k->nest;
    ash_ref base = ash_nest_cell(n, x->zero), least = ash_nest_get(n, s->least);
    ash_ref largest = binary(x, ASH_OP_SUB, ash_nest_get(n, s->most), least);
    ash_ref low = low_zeros(x, binary(x, ASH_OP_XOR, ash_nest_get(n, s->some), ash_nest_get(n, s->all)));
    ash_ref digit = ash_nest_loop(n, x->zero, number(x, x->digits), 1, 1);
    ash_ref from = ash_nest_cast(n, x->word, binary(x, ASH_OP_MUL, digit, number(x, BITS)));
    from = binary(x, ASH_OP_ADD, from, low);
    ash_nest_if(n, binary(x, ASH_OP_LT, word(x, 0), binary(x, ASH_OP_SHR, largest, from)));
    ash_ref here = ash_nest_get(n, base);
    sort_by(x, here, least, from);
    ash_nest_set(n, base, binary(x, ASH_OP_SUB, x->kept, here));
    ash_nest_end(n);
    ash_nest_end(n);
    return ash_nest_get(n, base);
}

/* The entries' elements and numbers are the results. */
static void store(radix *x, ash_ref base) {
    ash_kern *k = x->k;
    ash_nest *n = &k->nest;
    const ash_node *node = x->r.node;
    ash_ix out[ASH_MAX_RANK];
    memcpy(out, x->r.idx, sizeof out);
    ash_sym rank = ash_kern_sym(k, ash_node_int(node, ASH_ATTR_K));
    out[x->r.axis] = ash_ix_sym(&k->ixs, rank);
    size_t mark = ash_kern_mark(k);
    ash_ref i = ash_kern_loop(k, rank, x->zero, x->kept, 1, 1);
    ash_ref at = number_at(x, binary(x, ASH_OP_ADD, base, i));
    ash_kern_set_sym(k, x->r.step, at);
    ash_kern_store(k, node->out, out, ash_kern_eval(k, node->ins[0], x->r.idx));
    ash_kern_store(k, node->out + 1, out, at);
    ash_nest_end(n);
    ash_kern_forget(k, mark);
}

/* Steps of a heap of k among n elements: each of those that were the best when they came, about k times the
 * logarithm of n / k for numbers in no order, goes in, and all come out. */
bool ash_topk__is_for_digits(const ash_kern *k, ash_dtype dtype, ash_dim elements, ash_dim kept) {
    const ash_costs *c = &k->low->target->costs;
    double n = (double)ash_kern_max(k, elements), best = ASH_MAX((double)ash_kern_max(k, kept), 2);
    double digits = (double)ash_dtype_size(dtype);
    double heap = best * (log(ASH_MAX(n / best, 1)) + 2) * log2(best);
    double chosen = elements == kept ? 0 : digits * (n + VALUES);
    return (chosen + n + 2 * digits * (best + VALUES) + best) * c->radix_step < heap;
}

ash_dim ash_topk__by_digits(ash_kern *k) {
    const ash_node *node = &k->graph->nodes.at[k->group->root];
    const ash_type *in = ash_graph__type(k->graph, node->ins[0]);
    ash_nest *n = &k->nest;
    ash_dim most = ash_node_int(node, ASH_ATTR_K), room = ash_kern_product(k, most, 2);
    radix x = {.k = k, .largest = ash_node_int(node, ASH_ATTR_LARGEST)};
    x.digits = (unsigned)ash_dtype_size(ash_kern_dtype(in->dtype));
    x.word = x.digits > 4 ? ASH_U64 : ASH_U32;
    x.counts = ash_kern_scratch(k, ASH_I32, VALUES, &x.first_count);
    x.keys = ash_kern_scratch(k, ASH_U64, room, &x.first_key);
    if (is_wide(&x)) x.numbers = ash_kern_scratch(k, ASH_I32, room, &x.first_number);
    ash_dim total = ash_rows_begin(&x.r, k, 1, NULL);
    if (ash_kern_lost(k)) return total;
    x.zero = ash_nest_index(n, 0);
    x.kept = ash_kern_dim(k, most);
    x.count = ash_kern_dim(k, x.r.count);
    word_span words;
    if (most == x.r.count) {
        words = begin_span(&x);
        take_all(&x, &words);
    } else {
        ash_ref left = ash_nest_cell(n, x.kept), last = select_word(&x, left);
        words = begin_span(&x);
        take(&x, &words, last, left);
    }
    store(&x, sort(&x, &words));
    ash_nest_end(n);
    return total;
}
