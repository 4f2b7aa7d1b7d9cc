/* SPDX-License-Identifier: MIT */
/* The k best elements of each row, in order; of equals the first come first. One pass, with those that are
 * the best so far in scratch memory: a sorted list where they are few, a heap where they are many. An
 * element that is not among them costs one comparison, of a whole vector where the row's elements are
 * neighbours. Where rows are neighbours, a few best of a vector of them are found at once. */
#include "heap.h"
#include "kernel/gpu/places.h"
#include "rows.h"
#include "tile.h"

/* --- few ---------------------------------------------------------------------------------------------- */

/* The best elements so far, in order, in scratch memory: values and indices. */
typedef struct best_list {
    uint16_t values, places;
    ash_ref first_value, first_place; /* of this worker */
    ash_ref count;                    /* cell */
} best_list;

static ash_ref list_at(ash_kern *k, ash_ref first, ash_ref i) {
    return ash_nest_binary(&k->nest, ASH_OP_ADD, first, i);
}

/* The place of x in the list: behind all that x does not precede. Half of what is left in each step. */
static ash_ref find_place(ash_kern *k, const best_list *l, bool largest, int64_t most, ash_ref x,
                          ash_ref count) {
    ash_nest *n = &k->nest;
    ash_ref low = ash_nest_cell(n, ash_nest_index(n, 0)), high = ash_nest_cell(n, count);
    unsigned steps = 64 - (unsigned)__builtin_clzll((uint64_t)most);
    ash_nest_loop(n, ash_nest_index(n, 0), ash_nest_index(n, steps), 1, 1);
    ash_ref from = ash_nest_get(n, low), to = ash_nest_get(n, high);
    ash_ref middle = ash_nest_idiv(n, ash_nest_binary(n, ASH_OP_ADD, from, to), ash_nest_index(n, 2));
    ash_ref open = ash_nest_binary(n, ASH_OP_LT, from, to); /* else the middle may lie past the list */
    ash_ref at = ash_nest_select(n, open, middle, ash_nest_index(n, 0));
    ash_ref y = ash_nest_load(n, l->values, list_at(k, l->first_value, at), 1, ASH_NO_REF);
    ash_ref before = ash_nest_binary(n, ASH_OP_AND, open, ash_rows_precedes(k, largest, largest, x, y));
    ash_ref behind = ash_nest_binary(n, ASH_OP_AND, open, ash_nest_unary(n, ASH_OP_NOT, before));
    ash_nest_set(n, high, ash_nest_select(n, before, middle, to));
    ash_nest_set(
        n, low,
        ash_nest_select(n, behind, ash_nest_binary(n, ASH_OP_ADD, middle, ash_nest_index(n, 1)), from));
    ash_nest_end(n);
    return ash_nest_get(n, low);
}

static void move_in_list(ash_kern *k, uint16_t buf, ash_ref first, ash_ref from) {
    ash_nest *n = &k->nest;
    ash_ref at = list_at(k, first, from);
    ash_ref y = ash_nest_load(n, buf, at, 1, ASH_NO_REF);
    ash_nest_store(n, buf, ash_nest_binary(n, ASH_OP_ADD, at, ash_nest_index(n, 1)), y, ASH_NO_REF);
}

/* Puts x, element i, into its place, if it has one. */
static void insert(ash_kern *k, const best_list *l, bool largest, int64_t most, ash_ref x, ash_ref i) {
    ash_nest *n = &k->nest;
    ash_ref one = ash_nest_index(n, 1), limit = ash_nest_index(n, most), count = ash_nest_get(n, l->count);
    ash_ref end = ash_nest_index(n, most - 1);
    ash_ref worst = ash_nest_load(n, l->values, list_at(k, l->first_value, end), 1, ASH_NO_REF);
    ash_ref room = ash_nest_binary(n, ASH_OP_LT, count, limit);
    ash_nest_if(n, ash_nest_binary(n, ASH_OP_OR, room, ash_rows_precedes(k, largest, largest, x, worst)));
    ash_ref to = find_place(k, l, largest, most, x, count);
    ash_ref last = ash_nest_binary(n, ASH_OP_MIN, count, end); /* falls out, or is the free place */
    ash_ref step = ash_nest_loop(n, ash_nest_index(n, 0), ash_nest_binary(n, ASH_OP_SUB, last, to), 1, 1);
    ash_ref from = ash_nest_binary(n, ASH_OP_SUB, ash_nest_binary(n, ASH_OP_SUB, last, one), step);
    move_in_list(k, l->values, l->first_value, from);
    move_in_list(k, l->places, l->first_place, from);
    ash_nest_end(n);
    ash_nest_store(n, l->values, list_at(k, l->first_value, to), x, ASH_NO_REF);
    ash_nest_store(n, l->places, list_at(k, l->first_place, to), i, ASH_NO_REF);
    ash_nest_set(n, l->count,
                 ash_nest_binary(n, ASH_OP_MIN, limit, ash_nest_binary(n, ASH_OP_ADD, count, one)));
    ash_nest_end(n);
}

static void insert_range(ash_rows *r, const best_list *l, bool largest, int64_t most, ash_ref from,
                         ash_ref to) {
    ash_kern *k = r->k;
    size_t mark = ash_kern_mark(k);
    ash_ref i = ash_kern_loop(k, r->step, from, to, 1, 1);
    insert(k, l, largest, most, ash_kern_eval(k, r->node->ins[0], r->idx), i);
    ash_nest_end(&k->nest);
    ash_kern_forget(k, mark);
}

/* Whether any of the next elements precedes a number. */
static ash_ref some_precede(ash_rows *r, bool largest, unsigned lanes, ash_ref worst) {
    ash_kern *k = r->k;
    ash_nest *n = &k->nest;
    size_t mark = ash_kern_mark(k);
    k->vsym = r->step;
    k->lanes = lanes;
    k->aligned = true;
    ash_ref x = ash_kern_splat(k, ash_kern_eval(k, r->node->ins[0], r->idx));
    ash_ref better = ash_rows_precedes(k, largest, largest, x, ash_kern_splat(k, worst));
    k->vsym = ASH_NO_SYM;
    k->lanes = 1;
    ash_kern_forget(k, mark);
    ash_ref any = ash_nest_hreduce(n, ASH_OP_OR, ash_nest_cast(n, ASH_I32, better));
    return ash_nest_unary(n, ASH_OP_NOT, ash_nest_binary(n, ASH_OP_EQ, any, ash_nest_int(n, ASH_I32, 0)));
}

/* The same, or whether the list has room. */
static ash_ref some_belong(ash_rows *r, const best_list *l, bool largest, int64_t most, unsigned lanes) {
    ash_nest *n = &r->k->nest;
    ash_ref limit = ash_nest_index(n, most), end = ash_nest_index(n, most - 1);
    ash_ref worst = ash_nest_load(n, l->values, list_at(r->k, l->first_value, end), 1, ASH_NO_REF);
    ash_ref room = ash_nest_binary(n, ASH_OP_LT, ash_nest_get(n, l->count), limit);
    return ash_nest_binary(n, ASH_OP_OR, room, some_precede(r, largest, lanes, worst));
}

/* One pass with a sorted list of the best: an element that is not among them costs one comparison. */
static ash_dim list_topk(ash_kern *k) {
    ash_rows r;
    ash_nest *n = &k->nest;
    const ash_node *node = &k->graph->nodes.at[k->group->root];
    const ash_type *in = ash_graph__type(k->graph, node->ins[0]);
    bool largest = ash_node_int(node, ASH_ATTR_LARGEST);
    int64_t most = ash_node_int(node, ASH_ATTR_K);
    best_list l;
    l.values = ash_kern_scratch(k, ash_kern_dtype(in->dtype), ASH_MAX(most, 1), &l.first_value);
    l.places = ash_kern_scratch(k, ASH_I64, ASH_MAX(most, 1), &l.first_place);
    ash_dim total = ash_rows_begin(&r, k, 1, NULL);
    if (ash_kern_lost(k)) return total;
    ash_ref zero = ash_nest_index(n, 0);
    /* so that what is read of an empty list is a number of this row */
    size_t mark = ash_kern_mark(k);
    ash_kern_set_sym(k, r.step, zero);
    ash_ref any = ash_kern_eval(k, node->ins[0], r.idx);
    ash_kern_forget(k, mark);
    for (unsigned both = 0; both < 2; both++)
        ash_nest_store(n, l.values, list_at(k, l.first_value, ash_nest_index(n, both ? most - 1 : 0)), any,
                       ASH_NO_REF);
    l.count = ash_nest_cell(n, zero);
    ash_ref done = zero, count = ash_kern_dim(k, r.count);
    unsigned lanes = ash_target_lanes(k->low->target, ash_dtype_size(ash_kern_dtype(in->dtype)));
    if (ash_rows__is_innermost(&r) && lanes > 1) {
        ash_ref step = ash_nest_index(n, lanes);
        done = ash_nest_binary(n, ASH_OP_MUL, ash_nest_idiv(n, count, step), step);
        ash_ref from = ash_kern_loop(k, r.step, zero, done, lanes, 1);
        ash_nest_if(n, some_belong(&r, &l, largest, most, lanes));
        insert_range(&r, &l, largest, most, from, ash_nest_binary(n, ASH_OP_ADD, from, step));
        ash_nest_end(n);
        ash_nest_end(n);
        ash_kern_forget(k, mark);
    }
    insert_range(&r, &l, largest, most, done, count);
    ash_sym rank = ash_kern_sym(k, most);
    ash_ix out[ASH_MAX_RANK];
    memcpy(out, r.idx, sizeof out);
    out[r.axis] = ash_ix_sym(&k->ixs, rank);
    ash_ref j = ash_kern_loop(k, rank, zero, ash_nest_index(n, most), 1, 1);
    ash_kern_store(k, node->out, out,
                   ash_nest_load(n, l.values, list_at(k, l.first_value, j), 1, ASH_NO_REF));
    ash_kern_store(k, node->out + 1, out,
                   ash_nest_load(n, l.places, list_at(k, l.first_place, j), 1, ASH_NO_REF));
    ash_nest_end(n);
    ash_kern_forget(k, mark);
    ash_nest_end(n);
    return total;
}

/* --- few, of rows that are neighbours --------------------------------------------------------------- */

/* The same for a vector of rows at once: a list is so many vectors, an element for each row, and what comes
 * is compared with all of them. In lanes where it precedes one, that one and those behind it move on by a
 * place. */
enum {
    MAX_ACROSS = 16,
    AT_ONCE = 4,   /* elements that one list takes of which only the best can belong */
    LOOK_FIRST = 3 /* lists of so many vectors are left alone where no lane has one that belongs */
};

typedef struct best_vectors {
    ash_ref values[MAX_ACROSS], places[MAX_ACROSS]; /* cells */
    unsigned count;
} best_vectors;

/* The present element of each row, and its number. */
static ash_ref next_across(ash_rows *r, ash_ref i, ash_ref *place) {
    ash_kern *k = r->k;
    ash_nest *n = &k->nest;
    const bool small = ash_kern_max(k, r->count) <= INT32_MAX;
    ash_kern_set_sym(k, r->step, i);
    *place = ash_kern_splat(k, small ? ash_nest_cast(n, ASH_I32, i) : i);
    return ash_kern_splat(k, ash_kern_eval(k, r->node->ins[0], r->idx));
}

/* Puts x into its place; a list that is not full has one more then. */
static void insert_across(ash_rows *r, best_vectors *l, unsigned most, ash_ref x, ash_ref place) {
    ash_kern *k = r->k;
    ash_nest *n = &k->nest;
    const bool largest = ash_node_int(r->node, ASH_ATTR_LARGEST), full = l->count == most;
    ash_ref before[MAX_ACROSS], values[MAX_ACROSS], places[MAX_ACROSS];
    for (unsigned j = 0; j < l->count; j++) {
        values[j] = ash_nest_get(n, l->values[j]), places[j] = ash_nest_get(n, l->places[j]);
        before[j] = ash_rows_precedes(k, largest, largest, x, values[j]);
    }
    const bool looks = full && most >= LOOK_FIRST;
    if (looks) {
        ash_ref some = before[most - 1];
        if (k->lanes > 1) {
            some = ash_nest_hreduce(n, ASH_OP_OR, ash_nest_cast(n, ASH_I32, some));
            some = ash_nest_unary(n, ASH_OP_NOT,
                                  ash_nest_binary(n, ASH_OP_EQ, some, ash_nest_int(n, ASH_I32, 0)));
        }
        ash_nest_if(n, some);
    }
    if (!full) {
        const unsigned j = l->count++;
        l->values[j] = ash_nest_cell(n, j ? ash_nest_select(n, before[j - 1], values[j - 1], x) : x);
        l->places[j] =
            ash_nest_cell(n, j ? ash_nest_select(n, before[j - 1], places[j - 1], place) : place);
    }
    for (unsigned j = 0; j + !full < l->count; j++) {
        ash_ref value = j ? ash_nest_select(n, before[j - 1], values[j - 1], x) : x;
        ash_ref number = j ? ash_nest_select(n, before[j - 1], places[j - 1], place) : place;
        ash_nest_set(n, l->values[j], ash_nest_select(n, before[j], value, values[j]));
        ash_nest_set(n, l->places[j], ash_nest_select(n, before[j], number, places[j]));
    }
    if (looks) ash_nest_end(n);
}

/* The best of each of the next few elements, and its number: none of them waits for the list. */
static ash_ref best_of_next(ash_rows *r, ash_ref first, unsigned count, ash_ref *place) {
    ash_kern *k = r->k;
    ash_nest *n = &k->nest;
    const bool largest = ash_node_int(r->node, ASH_ATTR_LARGEST);
    ash_ref best = ASH_NO_REF, at;
    for (unsigned i = 0; i < count; i++) {
        const size_t mark = ash_kern_mark(k);
        ash_ref next = i ? ash_nest_binary(n, ASH_OP_ADD, first, ash_nest_index(n, i)) : first;
        ash_ref x = next_across(r, next, &at);
        ash_ref before = i ? ash_rows_precedes(k, largest, largest, x, best) : ASH_NO_REF;
        best = i ? ash_nest_select(n, before, x, best) : x;
        *place = i ? ash_nest_select(n, before, at, *place) : at;
        ash_kern_forget(k, mark);
    }
    return best;
}

static void topk_across(ash_rows *r) {
    ash_kern *k = r->k;
    ash_nest *n = &k->nest;
    const unsigned most = (unsigned)ash_node_int(r->node, ASH_ATTR_K);
    best_vectors l = {.count = 0};
    ash_ref place;
    const size_t mark = ash_kern_mark(k);
    for (unsigned i = 0; i < most; i++) {
        ash_ref x = next_across(r, ash_nest_index(n, i), &place);
        insert_across(r, &l, most, x, place);
        ash_kern_forget(k, mark);
    }
    ash_ref from = ash_nest_index(n, most), count = ash_kern_dim(k, r->count);
    if (most == 1) {
        ash_ref step = ash_nest_index(n, AT_ONCE), one = from;
        ash_ref whole = ash_nest_idiv(n, ash_nest_binary(n, ASH_OP_SUB, count, one), step);
        whole = ash_nest_binary(n, ASH_OP_ADD, one, ash_nest_binary(n, ASH_OP_MUL, whole, step));
        ash_ref i = ash_kern_loop(k, r->step, one, whole, AT_ONCE, 1);
        ash_ref x = best_of_next(r, i, AT_ONCE, &place);
        insert_across(r, &l, most, x, place);
        ash_nest_end(n);
        ash_kern_forget(k, mark);
        from = whole;
    }
    ash_ref i = ash_kern_loop(k, r->step, from, count, 1, 1);
    ash_ref x = next_across(r, i, &place);
    insert_across(r, &l, most, x, place);
    ash_nest_end(n);
    ash_kern_forget(k, mark);
    ash_ix out[ASH_MAX_RANK];
    memcpy(out, r->idx, sizeof out);
    for (unsigned j = 0; j < most; j++) {
        out[r->axis] = ash_ix_const(&k->ixs, j);
        ash_kern_store(k, r->node->out, out, ash_nest_get(n, l.values[j]));
        ash_kern_store(k, r->node->out + 1, out, ash_nest_cast(n, ASH_I64, ash_nest_get(n, l.places[j])));
    }
}

/* Whether rows are neighbours, and a list of k vectors is worth it. */
static bool goes_across(const ash_kern *k, const ash_node *node, ash_dim most) {
    const ash_type *in = ash_graph__type(k->graph, node->ins[0]);
    bool behind = false;
    for (unsigned d = (unsigned)ash_node_int(node, ASH_ATTR_AXIS) + 1; d < in->rank; d++)
        behind = behind || ash_kern_max(k, in->dims[d]) > 1;
    return behind && k->low->target->kind == ASH_TARGET_CPU && most > 0 && most <= MAX_ACROSS &&
           ash_target_lanes(k->low->target, ash_dtype_size(ash_kern_dtype(in->dtype))) > 1;
}

static ash_dim lower_across(ash_kern *k, int64_t most) {
    ash_rows r;
    const int64_t vectors = k->low->target->costs.scan_vectors / most;
    return ash_rows__each(&r, k, (unsigned)ASH_MAX(vectors, 1), topk_across);
}

/* --- many ------------------------------------------------------------------------------------------- */

/* Of four bytes an element and its number are one integer of eight, so that entries compare at once: above
 * the element in an order of integers, larger ones better, below what the number lacks to 2^32. */
enum { RANK_BITS = 32 };
static const int64_t rank_last = UINT32_MAX;

static bool has_ranks(const ash_kern *k, ash_dtype dtype, ash_dim count) {
    return (dtype == ASH_F32 || dtype == ASH_I32) && ash_kern_max(k, count) <= INT32_MAX;
}

/* The bits of a float count up with it from 0 on, and down below. */
ash_ref ash_topk__order(ash_kern *k, bool largest, ash_ref x) {
    ash_nest *n = &k->nest;
    if (n->failed) return x;
    const ash_dtype dtype = (ash_dtype)ash_nest_at(n, x)->dtype;
    const bool wide = ash_dtype_size(dtype) > 4;
    const ash_dtype whole = wide ? ASH_I64 : ASH_I32;
    ash_ref most = ash_nest_int(n, whole, wide ? INT64_MAX : INT32_MAX), zero = ash_nest_int(n, whole, 0),
            order = x;
    if (ash_dtype_is_float(dtype)) {
        x = ash_nest_binary(n, ASH_OP_ADD, x, ash_nest_float(n, dtype, 0));
        order = ash_nest_bitcast(n, whole, x);
        order = ash_nest_select(n, ash_nest_binary(n, ASH_OP_LT, order, zero),
                                ash_nest_binary(n, ASH_OP_XOR, order, most), order);
        order = ash_nest_select(n, ash_nest_binary(n, ASH_OP_EQ, x, x), order, most);
    } else if (dtype != whole) {
        order = ash_nest_cast(n, whole, x);
        if (dtype == ASH_U32 || dtype == ASH_U64)
            order =
                ash_nest_binary(n, ASH_OP_XOR, order, ash_nest_int(n, whole, wide ? INT64_MIN : INT32_MIN));
    }
    return largest ? order : ash_nest_unary(n, ASH_OP_NOT, order);
}

static ash_ref rank_of(const ash_heap *h, ash_ref x, ash_ref i) {
    ash_nest *n = &h->k->nest;
    ash_ref order = ash_topk__order(h->k, h->largest, x);
    ash_ref above = ash_nest_binary(n, ASH_OP_MUL, ash_nest_cast(n, ASH_I64, order),
                                    ash_nest_index(n, INT64_C(1) << RANK_BITS));
    return ash_nest_binary(n, ASH_OP_ADD, above,
                           ash_nest_binary(n, ASH_OP_SUB, ash_nest_index(n, rank_last), i));
}

/* The entry of element i, which is x; and the element of an entry. */
static ash_heap_entry entry_of(const ash_heap *h, ash_ref x, ash_ref i) {
    if (!h->bare) return (ash_heap_entry){x, i};
    return (ash_heap_entry){rank_of(h, x, i), ash_nest_index(&h->k->nest, 0)};
}

static ash_heap_entry element_of(const ash_rows *r, const ash_heap *h, ash_heap_entry entry) {
    ash_kern *k = r->k;
    ash_nest *n = &k->nest;
    if (!h->bare) return entry;
    ash_ref last = ash_nest_index(n, rank_last), low = ash_nest_binary(n, ASH_OP_AND, entry.key, last);
    ash_ref number = ash_nest_binary(n, ASH_OP_SUB, last, low);
    size_t mark = ash_kern_mark(k);
    ash_kern_set_sym(k, r->step, number);
    ash_ref x = ash_kern_eval(k, r->node->ins[0], r->idx);
    ash_kern_forget(k, mark);
    return (ash_heap_entry){x, number};
}

/* The worst on top: so that its place is the next better one's. Of equals the first is the better. */
static ash_ref is_worse(const ash_heap *h, ash_heap_entry a, ash_heap_entry b) {
    ash_nest *n = &h->k->nest;
    if (h->bare) return ash_nest_binary(n, ASH_OP_LT, a.key, b.key);
    ash_ref worse = ash_rows_precedes(h->k, h->largest, h->largest, b.key, a.key);
    ash_ref better = ash_rows_precedes(h->k, h->largest, h->largest, a.key, b.key);
    ash_ref later = ash_nest_binary(n, ASH_OP_LT, b.number, a.number);
    return ash_nest_binary(n, ASH_OP_OR, worse,
                           ash_nest_binary(n, ASH_OP_AND, ash_nest_unary(n, ASH_OP_NOT, better), later));
}

/* Each of the elements [from, to) that is better than the top takes its place. */
static void replace_range(ash_rows *r, const ash_heap *h, ash_ref from, ash_ref to) {
    ash_kern *k = r->k;
    ash_nest *n = &k->nest;
    size_t mark = ash_kern_mark(k);
    ash_ref i = ash_kern_loop(k, r->step, from, to, 1, 1);
    ash_heap_entry entry = entry_of(h, ash_kern_eval(k, r->node->ins[0], r->idx), i);
    ash_nest_if(n, is_worse(h, ash_heap_at(h, ash_nest_index(n, 0)), entry));
    ash_heap_replace(h, entry);
    ash_nest_end(n);
    ash_nest_end(n);
    ash_kern_forget(k, mark);
}

/* The same for vectors, which are passed over as a whole when none of their elements is better. */
static void replace_vectors(ash_rows *r, const ash_heap *h, ash_ref from, ash_ref to, unsigned lanes) {
    ash_kern *k = r->k;
    ash_nest *n = &k->nest;
    size_t mark = ash_kern_mark(k);
    ash_ref i = ash_kern_loop(k, r->step, from, to, lanes, 1);
    ash_heap_entry worst = element_of(r, h, ash_heap_at(h, ash_nest_index(n, 0)));
    ash_kern_set_sym(k, r->step, i);
    ash_nest_if(n, some_precede(r, h->largest, lanes, worst.key));
    replace_range(r, h, i, ash_nest_binary(n, ASH_OP_ADD, i, ash_nest_index(n, lanes)));
    ash_nest_end(n);
    ash_nest_end(n);
    ash_kern_forget(k, mark);
}

/* The first k elements are a heap, and the others are compared with its top; in the end it is emptied, the
 * worst first. */
static ash_dim heap_topk(ash_kern *k) {
    ash_rows r;
    ash_nest *n = &k->nest;
    const ash_node *node = &k->graph->nodes.at[k->group->root];
    const ash_type *in = ash_graph__type(k->graph, node->ins[0]);
    ash_dtype dtype = ash_kern_dtype(in->dtype);
    ash_dim most = ash_node_int(node, ASH_ATTR_K);
    ash_dim elements = in->dims[ash_node_int(node, ASH_ATTR_AXIS)];
    ash_heap h = {.above = is_worse,
                  .largest = ash_node_int(node, ASH_ATTR_LARGEST),
                  .bare = has_ranks(k, dtype, elements)};
    ash_heap_init(&h, k, h.bare ? ASH_I64 : dtype, most, elements);
    ash_dim total = ash_rows_begin(&r, k, 1, NULL);
    ash_ref zero = ash_nest_index(n, 0), one = ash_nest_index(n, 1);
    ash_ref count = ash_kern_dim(k, r.count), kept = ash_kern_dim(k, most);
    h.count = ash_nest_cell(n, kept);
    size_t mark = ash_kern_mark(k);
    ash_ref i = ash_kern_loop(k, r.step, zero, kept, 1, 1);
    ash_heap_put(&h, i, entry_of(&h, ash_kern_eval(k, node->ins[0], r.idx), i));
    ash_nest_end(n);
    ash_kern_forget(k, mark);
    ash_heap_make(&h);
    ash_nest_if(n, ash_nest_binary(n, ASH_OP_LT, zero, kept)); /* else there is no top */
    unsigned lanes = ash_target_lanes(k->low->target, ash_dtype_size(dtype));
    ash_ref from = kept;
    if (ash_rows__is_innermost(&r) && lanes > 1) {
        ash_ref step = ash_nest_index(n, lanes), up = ash_nest_index(n, lanes - 1);
        ash_ref whole = ash_nest_binary(n, ASH_OP_MUL, ash_nest_idiv(n, count, step), step);
        ash_ref next = ash_nest_binary(
            n, ASH_OP_MUL, ash_nest_idiv(n, ash_nest_binary(n, ASH_OP_ADD, kept, up), step), step);
        ash_ref first = ash_nest_binary(n, ASH_OP_MIN, next, count);
        replace_range(&r, &h, kept, first);
        replace_vectors(&r, &h, first, whole, lanes);
        from = ash_nest_binary(n, ASH_OP_MAX, first, whole);
    }
    replace_range(&r, &h, from, count);
    ash_nest_end(n);
    ash_sym rank = ash_kern_sym(k, most);
    ash_ix out[ASH_MAX_RANK];
    memcpy(out, r.idx, sizeof out);
    out[r.axis] = ash_ix_sym(&k->ixs, rank);
    ash_ref taken = ash_nest_loop(n, zero, kept, 1, 1);
    ash_kern_set_sym(k, rank,
                     ash_nest_binary(n, ASH_OP_SUB, ash_nest_binary(n, ASH_OP_SUB, kept, one), taken));
    ash_heap_entry worst = element_of(&r, &h, ash_heap_take(&h));
    ash_kern_store(k, node->out, out, worst.key);
    ash_kern_store(k, node->out + 1, out, worst.number);
    ash_nest_end(n);
    ash_kern_forget(k, mark);
    ash_nest_end(n);
    return total;
}

/* Digits go over a row several times, so its elements are to lie side by side. */
static bool goes_by_digits(const ash_kern *k, const ash_node *node) {
    const ash_type *in = ash_graph__type(k->graph, node->ins[0]);
    const unsigned axis = (unsigned)ash_node_int(node, ASH_ATTR_AXIS);
    const ash_dtype dtype = ash_kern_dtype(in->dtype);
    return k->low->target->kind == ASH_TARGET_CPU && axis + 1 == in->rank && ash_dtype_size(dtype) >= 4 &&
           ash_kern_max(k, in->dims[axis]) <= INT32_MAX &&
           ash_topk__is_for_digits(k, dtype, in->dims[axis], ash_node_int(node, ASH_ATTR_K));
}

/* A list where they are few and their number is known: moving the elements of a short one costs less than
 * the steps of a heap. */
ash_dim ash_kern_lower_topk(ash_kern *k) {
    const ash_node *node = &k->graph->nodes.at[k->group->root];
    ash_dim most = ash_node_int(node, ASH_ATTR_K);
    if (ash_gpu_has_topk(k)) return ash_gpu_lower_topk(k);
    bool few = ash_dim_is_const(most) && most <= k->low->target->costs.list_elements;
    if (few && goes_across(k, node, most)) return lower_across(k, most);
    return few ? list_topk(k) : goes_by_digits(k, node) ? ash_topk__by_digits(k) : heap_topk(k);
}
