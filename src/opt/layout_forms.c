/* SPDX-License-Identifier: MIT */
/* Forms of values: which there are, and how one is made from another. */
#include "layout.h"

static unsigned slot(int64_t block) {
    return (unsigned)__builtin_ctzll((unsigned long long)block) - 2;
}

int64_t ash_layout__block(const ash_layout_pass *l, ash_dim channels) {
    if (!ash_dim_is_const(channels) || channels == 0) return 0;
    for (int64_t block = l->lanes; block >= ASH_MIN_BLOCK; block /= 2)
        if (channels % block == 0) return block;
    return 0;
}

bool ash_layout__can_block(const ash_layout_pass *l, ash_value value, int64_t block) {
    const ash_type *type = ash_graph__type(l->rw.from, value);
    return type->rank >= 2 && type->rank < ASH_MAX_RANK && ash_dim_is_const(type->dims[1]) &&
           type->dims[1] > 0 && type->dims[1] % block == 0;
}

int64_t ash_layout__has_blocked(const ash_layout_pass *l, ash_value value) {
    for (unsigned s = ASH_BLOCKS; s-- > 0;)
        if (l->forms[value].blocked[s] != ASH_NO_VALUE) return ASH_MIN_BLOCK << s;
    return 0;
}

bool ash_layout__has_plain(const ash_layout_pass *l, ash_value value) {
    return l->rw.map[value] != ASH_NO_VALUE;
}

void ash_layout__set_blocked(ash_layout_pass *l, ash_value value, int64_t block, ash_value image) {
    l->forms[value].blocked[slot(block)] = image;
}

/* Conversions carry the name of the node whose result they convert. */
static void name_like(ash_layout_pass *l, ash_value value) {
    const ash_value_info *info = ash_graph__value(l->rw.from, value);
    if (info->kind == ASH_VALUE_NODE) ash_rewrite__name(&l->rw, &l->rw.from->nodes.at[info->node]);
}

/* [n, c, s...] -> [n, c/B, B, s...] -> [n, c/B, s..., B] */
ash_value ash_layout__pack(ash_rewrite *rw, ash_value x, int64_t block) {
    if (x == ASH_NO_VALUE) return ASH_NO_VALUE;
    ash_type type = ash_rewrite__type(rw, x);
    ash_dim dims[ASH_MAX_RANK] = {type.dims[0], type.dims[1] / block, block};
    int64_t perm[ASH_MAX_RANK] = {0, 1};
    for (unsigned d = 2; d < type.rank; d++) {
        dims[d + 1] = type.dims[d];
        perm[d] = d + 1;
    }
    perm[type.rank] = 2;
    return ash_transpose(rw->to, ash_reshape(rw->to, x, dims, type.rank + 1), perm);
}

/* [n, c/B, s..., B] -> [n, c/B, B, s...] -> [n, c, s...], the dims of `plain`. */
static ash_value unpack(ash_rewrite *rw, ash_value x, const ash_type *plain) {
    int64_t perm[ASH_MAX_RANK] = {0, 1, plain->rank};
    for (unsigned d = 2; d < plain->rank; d++) perm[d + 1] = d;
    return ash_reshape(rw->to, ash_transpose(rw->to, x, perm), plain->dims, plain->rank);
}

static const ash_node *producer(const ash_layout_pass *l, ash_value value) {
    return &l->rw.from->nodes.at[l->rw.from->values.at[value].node];
}

ash_value ash_layout__plain(ash_layout_pass *l, ash_value value) {
    ash_rewrite *rw = &l->rw;
    if (rw->map[value] != ASH_NO_VALUE || !l->forms) return ash_rewrite__get(rw, value);
    int64_t block = ash_layout__has_blocked(l, value);
    if (block) {
        ash_type type = *ash_graph__type(rw->from, value);
        name_like(l, value);
        ash_rewrite__bind(rw, value, unpack(rw, l->forms[value].blocked[slot(block)], &type));
    } else if (l->deferred[value]) {
        const ash_node *node = producer(l, value);
        const ash_attr *dims = ash_node_attr(node, ASH_ATTR_DIMS);
        ash_value source = ash_layout__plain(l, node->ins[0]);
        name_like(l, value);
        ash_rewrite__bind(rw, value, ash_broadcast_to(rw->to, source, dims->list, dims->count));
    }
    return ash_rewrite__get(rw, value);
}

/* A broadcast, made on the blocked dims: its source is brought to the rank of the result, and is blocked
 * too when it has channels of its own. */
static ash_value blocked_broadcast(ash_layout_pass *l, ash_value value, int64_t block) {
    ash_rewrite *rw = &l->rw;
    ash_value from = producer(l, value)->ins[0], source;
    ash_type type = *ash_graph__type(rw->from, value), aligned = *ash_graph__type(rw->from, from);
    unsigned lead = type.rank - aligned.rank;
    bool same_rank = lead == 0;
    memmove(aligned.dims + lead, aligned.dims, aligned.rank * sizeof *aligned.dims);
    for (unsigned d = 0; d < lead; d++) aligned.dims[d] = 1;
    aligned.rank = type.rank;
    bool has_channels = aligned.dims[1] != 1;
    if (same_rank && has_channels) {
        source = ash_layout__blocked(l, from, block);
    } else {
        source = ash_reshape(rw->to, ash_layout__plain(l, from), aligned.dims, aligned.rank);
        if (has_channels) {
            source = ash_layout__pack(rw, source, block);
        } else { /* [n, 1, s...] -> [n, 1, s..., 1] */
            aligned.dims[aligned.rank++] = 1;
            source = ash_reshape(rw->to, source, aligned.dims, aligned.rank);
        }
    }
    type.dims[1] /= block;
    type.dims[type.rank++] = block;
    name_like(l, value);
    return ash_broadcast_to(rw->to, source, type.dims, type.rank);
}

ash_value ash_layout__blocked(ash_layout_pass *l, ash_value value, int64_t block) {
    ash_value *form = &l->forms[value].blocked[slot(block)];
    if (*form != ASH_NO_VALUE) return *form;
    if (l->deferred[value] && !ash_layout__has_plain(l, value)) {
        *form = blocked_broadcast(l, value, block);
    } else {
        ash_value plain = ash_layout__plain(l, value);
        name_like(l, value);
        *form = ash_layout__pack(&l->rw, plain, block);
    }
    return *form;
}
