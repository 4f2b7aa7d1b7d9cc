/* SPDX-License-Identifier: MIT */
/* lookup: what is computed element by element from one byte to another becomes a table of 256 entries.
 *
 *     y = f(x), both of bytes   ->   y = gather(f(0 .. 255), cast(x))
 *
 * Between two layers, a quantised network spends its time on such functions: an activation is dequantised,
 * computed, multiplied by its operand and quantised again, with two roundings and a division or two, all of
 * it from the byte that the convolution has been rounded to. f is the same nodes over all bytes in a row,
 * which the prologue computes with the same instructions: results keep their bits. Index -1 of a gather is
 * the last entry, so that the entries for i8 are in the order of the bits, too.
 *
 * A function begins at a value of bytes that is none itself, goes on over elementwise nodes whose other
 * operands are one constant number, and ends at each value of bytes: of several in a row, each is looked up
 * by the first byte, and those that nobody else reads are gone. A table takes the place of what costs more
 * instructions than looking up does on the target, for values that are longer than the table by some.
 *
 * Runs after fold, which would compute tables with the reference evaluator's functions, and before layout,
 * for which a lookup is elementwise. */
#include "rewrite.h"

typedef struct lookup {
    ash_rewrite rw;
    bool *constant;     /* per value of `from`: it depends on constants and parameters alone */
    ash_value *source;  /* per value of `from`: the byte that it is a function of, or ASH_NO_VALUE */
    int64_t *work;      /* per value of `from` with a source: instructions to a vector */
    bool *wanted;       /* per value of `from`: it is part of a function that becomes a table */
    ash_value *entries; /* per value of `from` that is wanted: what it is for all bytes */
    ash_value bytes[2]; /* 0 .. 255 as u8 and as i8 */
} lookup;

static bool is_byte(ash_dtype dtype) {
    return dtype == ASH_U8 || dtype == ASH_I8;
}

/* --- finding functions in `from` ------------------------------------------------------------------ */

/* The number that a constant operand is everywhere; ASH_NO_VALUE: it is none. */
static ash_value number_of(const lookup *p, ash_value value) {
    const ash_graph *from = p->rw.from;
    const ash_value_info *info = ash_graph__value(from, value);
    if (!p->constant[value] || info->kind != ASH_VALUE_NODE) return ASH_NO_VALUE;
    const ash_node *node = &from->nodes.at[info->node];
    bool one = node->op == ASH_OP_BROADCAST && ash_type_is_one(ash_graph__type(from, node->ins[0]));
    return one ? node->ins[0] : ASH_NO_VALUE;
}

/* The byte of which a node is a function, and the work of it. */
static ash_value source_of(const lookup *p, const ash_node *node, int64_t *work) {
    ash_value source = ASH_NO_VALUE;
    if (!ash_op_is_elementwise(node->op)) return ASH_NO_VALUE;
    *work = ash_node__work(&p->rw.opt->target->costs, node);
    for (size_t k = 0; k < node->n_ins; k++) {
        ash_value in = node->ins[k], of = p->source[in];
        if (number_of(p, in) != ASH_NO_VALUE) continue;
        if (of == ASH_NO_VALUE || (source != ASH_NO_VALUE && of != source)) return ASH_NO_VALUE;
        source = of;
        *work = ASH_MIN(*work + p->work[in], INT32_MAX);
    }
    return source;
}

/* A byte that is no function of another one begins a function. */
static void find_sources(lookup *p) {
    const ash_graph *from = p->rw.from;
    for (ash_value v = 0; v < from->values.len; v++) {
        p->source[v] = p->entries[v] = ASH_NO_VALUE;
        if (!p->constant[v] && is_byte(ash_graph__type(from, v)->dtype)) p->source[v] = v;
    }
    for (size_t i = 0; i < from->nodes.len; i++) {
        const ash_node *node = &from->nodes.at[i];
        if (!ash_rewrite__is_live(&p->rw, node) || p->constant[node->out]) continue;
        int64_t work = 0;
        ash_value source = source_of(p, node, &work);
        if (source != ASH_NO_VALUE) p->source[node->out] = source, p->work[node->out] = work;
    }
}

static bool is_worth_it(const lookup *p, const ash_node *node) {
    const ash_target *target = p->rw.opt->target;
    const ash_type *type = ash_graph__type(p->rw.from, node->out);
    return p->source[node->out] != ASH_NO_VALUE && p->source[node->out] != node->out &&
           is_byte(type->dtype) && p->work[node->out] > target->lookup &&
           ash_type_max_count(p->rw.from->dims, type) >= target->costs.lookup_elements;
}

/* Uses come after definitions, so one walk backwards sees every function before its parts. */
static void find_wanted(lookup *p) {
    const ash_graph *from = p->rw.from;
    for (size_t i = from->nodes.len; i-- > 0;) {
        const ash_node *node = &from->nodes.at[i];
        if (!ash_rewrite__is_live(&p->rw, node)) continue;
        p->wanted[node->out] |= is_worth_it(p, node);
        for (size_t k = 0; k < node->n_ins && p->wanted[node->out]; k++)
            p->wanted[node->ins[k]] |=
                p->source[node->ins[k]] != ASH_NO_VALUE && p->source[node->ins[k]] != node->ins[k];
    }
}

/* --- building ------------------------------------------------------------------------------------- */

static ash_value all_bytes(lookup *p, ash_dtype dtype) {
    ash_value *made = &p->bytes[dtype == ASH_I8];
    uint8_t data[ASH_LOOKUP_ENTRIES];
    for (unsigned i = 0; i < ASH_LOOKUP_ENTRIES; i++) data[i] = (uint8_t)i;
    const ash_type type = {.dtype = dtype, .rank = 1, .dims = {ASH_LOOKUP_ENTRIES}};
    if (*made == ASH_NO_VALUE)
        *made = ash_graph_constant(p->rw.to, &type, data, sizeof data, ASH_DATA_COPY);
    return *made;
}

/* One operand of a function's node for all bytes. */
static ash_value operand_entries(lookup *p, ash_value value) {
    static const ash_dim all = ASH_LOOKUP_ENTRIES;
    ash_value number = number_of(p, value);
    if (p->source[value] == value) return all_bytes(p, ash_graph__type(p->rw.from, value)->dtype);
    if (number == ASH_NO_VALUE) return p->entries[value];
    number = ash_rewrite__get(&p->rw, number);
    return ash_broadcast_to(p->rw.to, ash_reshape(p->rw.to, number, NULL, 0), &all, 1);
}

/* The function that a node of `from` ends, for all bytes: the node over the entries of its operands. */
static void add_entries(lookup *p, const ash_node *node) {
    ash_value ins[3];
    for (size_t k = 0; k < node->n_ins; k++) {
        ins[k] = operand_entries(p, node->ins[k]);
        if (ins[k] == ASH_NO_VALUE) return;
    }
    ash_rewrite__name(&p->rw, node);
    p->entries[node->out] = ash_build(p->rw.to, node->op, ins, node->n_ins, node->attrs, node->n_attrs);
}

static ash_value look_up(lookup *p, ash_value value) {
    ash_value byte = ash_rewrite__get(&p->rw, p->source[value]);
    return ash_gather(p->rw.to, p->entries[value], ash_cast(p->rw.to, byte, ASH_I32), 0);
}

ash_status ash_opt__lookup(const ash_opt *opt, const ash_graph *from, ash_graph **out, ash_diag *diag) {
    lookup p = {.bytes = {ASH_NO_VALUE, ASH_NO_VALUE}};
    size_t n = from->values.len;
    ASH_TRY(ash_rewrite__begin(&p.rw, opt, from, diag));
    p.constant = ash_arena_alloc(&p.rw.scratch, n, sizeof *p.constant);
    p.wanted = ash_arena_alloc(&p.rw.scratch, n, sizeof *p.wanted);
    p.source = ash_arena_alloc(&p.rw.scratch, n, sizeof *p.source);
    p.work = ash_arena_alloc(&p.rw.scratch, n, sizeof *p.work);
    p.entries = ash_arena_alloc(&p.rw.scratch, n, sizeof *p.entries);
    if (!p.constant || !p.wanted || !p.source || !p.work || !p.entries)
        return ash_rewrite__abandon(&p.rw, ASH_NO_MEMORY(diag));
    ash_rewrite__find_constants(&p.rw, p.constant);
    find_sources(&p);
    find_wanted(&p);
    for (size_t i = 0; i < from->nodes.len && ash_rewrite__ok(&p.rw); i++) {
        const ash_node *node = &from->nodes.at[i];
        if (!ash_rewrite__is_live(&p.rw, node)) continue;
        if (p.wanted[node->out]) add_entries(&p, node);
        ash_rewrite__name(&p.rw, node);
        if (is_worth_it(&p, node))
            ash_rewrite__bind(&p.rw, node->out, look_up(&p, node->out));
        else
            ash_rewrite__copy(&p.rw, node);
    }
    return ash_rewrite__end(&p.rw, out);
}
