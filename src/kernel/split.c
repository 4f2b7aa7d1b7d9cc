/* SPDX-License-Identifier: MIT */
/* fusion ─lives→ sweep over the nodes ─cuts→ fusion again, until nothing is cut
 *
 * The sweep goes through the nodes in their order, which is that of the groups' roots, and keeps what would
 * be live. A group is open from its first node to its root. Of an open group it knows
 *
 *     over       bytes of stored values that no node to come needs: they wait for this group's root alone
 *     frontier   bytes of its own values, computed by demand at its root, that nodes to come need
 *
 * Where a result does not fit, open groups are cut, the one with the largest over - frontier first, while
 * that is above nothing: the frontier is stored, and what waited dies. Where no group gives anything alone,
 * several may that wait with the same value; and where these do not either, all groups that are open there
 * are taken apart, once in a sweep. So one sweep cuts a group as often as it takes.
 *
 * Stored values live from where they are computed, which is before the moment that they were cut for; and
 * with other groups, others fit together. So the graph is fused again and swept again, with all cuts so
 * far, at most ROUNDS times. Of all rounds the one with the lowest peak stays, and cuts that others have
 * made needless are taken back. */
#include "split.h"

#include "base/arena.h"

enum {
    ROUNDS = 12,
    TRIES = 64,            /* to take cuts back, */
    MOST_VISITS = 1 << 19, /* in which so many nodes are visited at most */
    ALIGN = 64
};

#define NO_PAIR UINT32_MAX

/* A group that reads a value which lies in memory, or its own value. */
typedef struct pair {
    uint32_t group;
    ash_value value; /* the one whose bytes they are */
    uint32_t next;   /* that ends at the same node, the last of the group that reads the value */
    uint32_t other;  /* of the same value */
    bool same;       /* read at the index of the root's element alone: the result may take its place */
    bool over;       /* no node to come of this group reads it */
    bool done;       /* the group holds it no longer */
} pair;

/* What holds the bytes of a stored value. */
typedef struct held {
    int64_t bytes;    /* in the arena; 0: none, or none of its own */
    uint32_t holders; /* pairs that are not done, and one for who reads it after the last step */
    uint32_t which;   /* their numbers, combined by exclusive or: with one holder, its number */
    uint32_t overs;   /* of the holders, how many are over */
    uint32_t pairs;   /* of the value, a list */
    bool stored, born;
} held;

typedef struct open_group {
    uint32_t first, count;  /* its pairs */
    int64_t over, frontier; /* bytes: see above */
    uint32_t values, waits; /* heads of lists: own values of the frontier, and values that have left it;
                               pairs that are over */
} open_group;

typedef struct candidate {
    int64_t gain; /* bytes */
    uint32_t group;
} candidate;

/* Scratch memory that the kernel of a group was seen to take. */
typedef struct kernel_scratch {
    int64_t bytes;
    ash_group_kind kind;
} kernel_scratch;

typedef struct split_sweep {
    const ash_graph *graph;
    const ash_fusion *fusion;
    const ash_split_options *options;
    bool apart; /* each node is seen as a group: see run_apart */
    ash_arena arena;
    ash_value *behind; /* per value: the one that lies in memory or is computed, behind movement; of stored
                          ones the one whose bytes they lie in */
    ash_value
        *reshaped; /* per value: the one that it is the elements of in their order, behind reshapes alone */
    held *helds;   /* per value */
    open_group *groups;
    ASH_VEC(pair) pairs;
    uint32_t *ends;       /* per node: the first pair that it is the last of */
    uint32_t *next_value; /* per value: in its group's list */
    uint32_t *next_wait;  /* per pair */
    ASH_VEC(candidate) heap;
    const kernel_scratch *whole; /* per node, of the group that it was in before any cut; or NULL */
    int64_t room, live, peak;    /* bytes */
    ASH_VEC(ash_value) shared;   /* values that several groups hold, all of them over */
    uint64_t patience;           /* times that one of their groups is looked at */
    bool *cut;                   /* per value, or NULL: nothing is cut */
    uint32_t cuts;               /* made in this sweep */
    bool failed;                 /* out of memory */
} split_sweep;

/* --- what lies in memory ------------------------------------------------------------------------------ */

static const ash_group *group_of(const split_sweep *s, uint32_t node) {
    uint32_t g = s->fusion->group_of[node];
    return g == ASH_NO_GROUP ? NULL : &s->fusion->groups.at[g];
}

static bool is_root(const split_sweep *s, uint32_t node) {
    const ash_group *g = group_of(s, node);
    return g && (s->apart || g->root == node);
}

/* Whether a node's result is stored when its group's root is, beside it. */
static bool is_beside(const split_sweep *s, uint32_t node) {
    return !s->apart && s->fusion->beside[node];
}

/* A reshape that is stored by itself, of what lies in memory, perhaps behind other reshapes. */
static bool is_view(const split_sweep *s, uint32_t n) {
    const ash_node *node = &s->graph->nodes.at[n];
    if (!s->apart && group_of(s, n)->n_nodes != 1) return false;
    while (node->op == ASH_OP_RESHAPE) {
        const ash_value_info *in = ash_graph__value(s->graph, node->ins[0]);
        if (in->kind != ASH_VALUE_NODE || s->fusion->group_of[in->node] != ASH_NO_GROUP) return true;
        node = &s->graph->nodes.at[in->node];
    }
    return false;
}

/* A part of a concatenation that its kernel may compute in place: see place.c. */
static bool is_part(const split_sweep *s, ash_value value, ash_value whole) {
    const ash_value_info *info = ash_graph__value(s->graph, value);
    return info->kind == ASH_VALUE_NODE && !s->options->stored[value] && !s->fusion->moved[value] &&
           is_root(s, info->node) && s->behind[value] == value &&
           s->graph->nodes.at[info->node].n_outs == 1 &&
           s->fusion->constant[value] == s->fusion->constant[whole];
}

/* Users before producers, so that a concatenation knows where it lies before its parts ask. Views and
 * movement follow what they show, in the other direction. */
static void find_places(split_sweep *s) {
    const ash_graph *g = s->graph;
    for (ash_value v = 0; v < g->values.len; v++) s->behind[v] = s->reshaped[v] = v;
    for (size_t i = 0; i < s->fusion->groups.len; i++) {
        const ash_node *node = &g->nodes.at[s->fusion->groups.at[i].root];
        if (node->op != ASH_OP_CONCAT) continue;
        for (unsigned k = 0; k < node->n_ins; k++)
            if (is_part(s, node->ins[k], node->out)) s->behind[node->ins[k]] = s->behind[node->out];
    }
    for (uint32_t n = 0; n < g->nodes.len; n++) {
        const ash_node *node = &g->nodes.at[n];
        bool virtual = s->fusion->group_of[n] == ASH_NO_GROUP;
        if (node->n_ins && (virtual || (is_root(s, n) && is_view(s, n))))
            s->behind[node->out] = s->behind[node->ins[0]];
        if (virtual && node->op == ASH_OP_RESHAPE) s->reshaped[node->out] = s->reshaped[node->ins[0]];
    }
}

static bool is_local(const split_sweep *s, ash_value v) {
    return ash_graph__value(s->graph, v)->kind == ASH_VALUE_NODE && !s->fusion->constant[v];
}

/* No more than what can be added up over all values. */
static int64_t bytes_of(const split_sweep *s, ash_value v) {
    int64_t most = INT64_MAX / (int64_t)(s->graph->values.len + 1) - ALIGN;
    int64_t bytes = ash_type_max_bytes(s->graph->dims, ash_graph__type(s->graph, v));
    return (int64_t)ash_align_up((uint64_t)ASH_MIN(bytes, most), ALIGN);
}

static void find_bytes(split_sweep *s) {
    const ash_graph *g = s->graph;
    for (size_t i = 0; i < g->inputs.len; i++) s->live += bytes_of(s, g->inputs.at[i]);
    for (uint32_t n = 0; n < g->nodes.len; n++) {
        const ash_node *node = &g->nodes.at[n];
        const ash_group *group = group_of(s, n);
        for (unsigned o = 0; group && o < node->n_outs; o++) {
            held *h = &s->helds[node->out + o];
            bool own = s->behind[node->out + o] == node->out + o;
            h->stored = is_root(s, n) || is_beside(s, n);
            if (own && is_local(s, node->out + o)) h->bytes = bytes_of(s, node->out + o);
        }
    }
    for (ash_value v = 0; v < g->values.len; v++)
        if (s->options->kept[v]) {
            s->helds[s->behind[v]].holders = 1;
            s->helds[s->behind[v]].which = NO_PAIR;
        }
}

/* --- who reads what ----------------------------------------------------------------------------------- */

/* Whether a node's operands are read where the root's elements are stored, in the same order whatever dims
 * of 1 there are: element by element, or all of a row before any of it is stored. */
static bool is_at_root(const split_sweep *s, const ash_group *g, uint32_t n) {
    const ash_node *node = &s->graph->nodes.at[n];
    bool reduces = ash_op_is_reduction(node->op);
    bool scans = ash_op_infos[node->op].class == ASH_CLASS_SCAN;
    if (!reduces && !scans && !ash_op_is_elementwise(node->op)) return false;
    const ash_type *root = ash_graph__type(s->graph, s->graph->nodes.at[g->root].out),
                   *in = ash_graph__type(s->graph, node->ins[0]);
    unsigned axis = 0;
    for (unsigned d = 0, o = 0; d < in->rank; d++) {
        bool own = !reduces || !ash_node_reduces_dim(node, d);
        int label = own ? s->fusion->labels[n][o++] : ASH_LABEL_NONE;
        if (in->dims[d] == 1) continue;
        while (axis < root->rank && root->dims[axis] == 1) axis++;
        if (axis == root->rank || root->dims[axis] != in->dims[d]) return false;
        if (own ? label != (int)axis : !(g->reduced >> axis & 1)) return false;
        axis++;
    }
    return true;
}

static void add_pair(split_sweep *s, uint32_t group, ash_value operand, uint32_t n, bool at_root,
                     uint32_t *seen) {
    ash_value v = s->behind[operand];
    if (!s->helds[v].bytes || s->failed) return;
    const ash_value_info *info = ash_graph__value(s->graph, v);
    if (info->kind == ASH_VALUE_NODE && is_beside(s, info->node) &&
        s->fusion->group_of[info->node] == group)
        return; /* it is not there before the root is */
    bool same = at_root && v == s->reshaped[operand];
    uint32_t p = seen[v];
    if (p != NO_PAIR && s->pairs.at[p].group == group) {
        s->pairs.at[p].same &= same;
        return;
    }
    pair new = {.group = group, .value = v, .next = s->ends[n], .other = s->helds[v].pairs, .same = same};
    if (!ash_vec_push(s->arena.allocator, &s->pairs, new)) {
        s->failed = true;
        return;
    }
    p = (uint32_t)s->pairs.len - 1;
    seen[v] = s->ends[n] = s->helds[v].pairs = p;
    s->helds[v].holders++;
    s->helds[v].which ^= p;
}

/* What a group computes anew on its way to an operand, it reads from all that this is made of. */
static void add_operand(split_sweep *s, uint32_t group, ash_value operand, uint32_t n, bool at_root,
                        uint32_t *seen) {
    ash_value v = operand;
    for (;;) {
        const ash_value_info *info = ash_graph__value(s->graph, v);
        if (info->kind != ASH_VALUE_NODE || s->fusion->group_of[info->node] != ASH_NO_GROUP) break;
        const ash_node *node = &s->graph->nodes.at[info->node];
        if (node->n_ins == 0) return;
        for (unsigned i = 1; i < node->n_ins; i++) add_operand(s, group, node->ins[i], n, false, seen);
        v = node->ins[0];
    }
    add_pair(s, group, operand, n, at_root, seen);
}

static void find_pairs(split_sweep *s, uint32_t *seen) {
    memset(seen, 0xff, s->graph->values.len * sizeof *seen);
    memset(s->ends, 0xff, s->graph->nodes.len * sizeof *s->ends);
    for (ash_value v = 0; v < s->graph->values.len; v++) s->helds[v].pairs = NO_PAIR;
    for (uint32_t i = 0; i < s->fusion->groups.len; i++) {
        const ash_group *g = &s->fusion->groups.at[i];
        s->groups[i] =
            (open_group){.first = (uint32_t)s->pairs.len, .values = ASH_NO_VALUE, .waits = NO_PAIR};
        for (uint32_t k = g->n_nodes; k-- > 0 && !g->constant;) {
            const ash_node *node = &s->graph->nodes.at[g->nodes[k]];
            bool at_root = is_at_root(s, g, g->nodes[k]);
            for (unsigned o = 0; o < node->n_ins; o++)
                add_operand(s, i, node->ins[o], g->nodes[k], at_root, seen);
        }
        s->groups[i].count = (uint32_t)s->pairs.len - s->groups[i].first;
    }
}

/* --- which group to cut ------------------------------------------------------------------------------- */

static void swap(candidate *a, candidate *b) {
    candidate c = *a;
    *a = *b;
    *b = c;
}

/* The larger gain first, then the earlier group. */
static bool is_before(const candidate *a, const candidate *b) {
    return a->gain != b->gain ? a->gain > b->gain : a->group > b->group;
}

/* Notes what a group would give now. */
static void note_gain(split_sweep *s, uint32_t group) {
    candidate c = {s->groups[group].over - s->groups[group].frontier, group};
    if (c.gain <= 0 || !s->cut) return;
    if (!ash_vec_push(s->arena.allocator, &s->heap, c)) {
        s->failed = true;
        return;
    }
    candidate *h = s->heap.at;
    for (size_t i = s->heap.len - 1; i && is_before(&h[i], &h[(i - 1) / 2]); i = (i - 1) / 2)
        swap(&h[i], &h[(i - 1) / 2]);
}

/* The group that gives most; ASH_NO_GROUP: none gives anything. */
static uint32_t best_group(split_sweep *s) {
    while (s->heap.len) {
        candidate *h = s->heap.at, top = h[0];
        h[0] = h[--s->heap.len];
        for (size_t i = 0, k; (k = 2 * i + 1) < s->heap.len; i = k) {
            if (k + 1 < s->heap.len && is_before(&h[k + 1], &h[k])) k++;
            if (!is_before(&h[k], &h[i])) break;
            swap(&h[k], &h[i]);
        }
        const open_group *g = &s->groups[top.group];
        if (g->over - g->frontier == top.gain) return top.group;
    }
    return ASH_NO_GROUP;
}

/* --- lives -------------------------------------------------------------------------------------------- */

/* A pair is over: what it holds, it holds for its group's root alone. */
static void count_over(split_sweep *s, uint32_t p, int sign) {
    pair *at = &s->pairs.at[p];
    s->groups[at->group].over += sign * s->helds[at->value].bytes;
    note_gain(s, at->group);
}

/* Several groups hold the value, and each of them for its root alone. */
static void note_shared(split_sweep *s, ash_value value) {
    const held *h = &s->helds[value];
    if (h->holders < 2 || h->overs != h->holders || !s->cut) return;
    if (!ash_vec_push(s->arena.allocator, &s->shared, value)) s->failed = true;
}

/* The group no longer holds the value. */
static void let_go(split_sweep *s, uint32_t p) {
    pair *at = &s->pairs.at[p];
    held *h = &s->helds[at->value];
    if (at->done) return;
    at->done = true;
    if (at->over && h->holders == 1) count_over(s, p, -1);
    h->which ^= p;
    h->holders--;
    h->overs -= at->over;
    if (h->holders == 0)
        s->live -= h->bytes;
    else if (h->holders == 1 && h->which != NO_PAIR && s->pairs.at[h->which].over)
        count_over(s, h->which, 1);
    else
        note_shared(s, at->value);
}

/* Stores what the group has computed and needs later, and lets go what it has read for the last time. */
static void cut_group(split_sweep *s, uint32_t group) {
    open_group *g = &s->groups[group];
    for (ash_value v = g->values; v != ASH_NO_VALUE; v = s->next_value[v]) {
        held *h = &s->helds[v];
        if (h->stored || h->born || !h->bytes) continue; /* born: it has left the frontier */
        h->stored = h->born = true;
        s->live += h->bytes;
        g->frontier -= h->bytes;
        s->cut[v] = true;
        s->cuts++;
    }
    g->values = ASH_NO_VALUE;
    for (uint32_t p = g->waits; p != NO_PAIR; p = s->next_wait[p]) let_go(s, p);
    g->waits = NO_PAIR;
}

/* Cuts the groups that give most together, where none gives anything alone: all that hold one value. */
static bool cut_sharers(split_sweep *s) {
    int64_t best_gain = 0;
    uint32_t best = NO_PAIR;
    size_t kept = 0;
    for (size_t i = 0; i < s->shared.len && s->patience; i++) {
        ash_value v = s->shared.at[i];
        const held *h = &s->helds[v];
        if (h->holders < 2) continue;
        s->shared.at[kept++] = v;
        int64_t gain = h->bytes;
        for (uint32_t p = h->pairs; p != NO_PAIR && s->patience; p = s->pairs.at[p].other, s->patience--) {
            const open_group *g = &s->groups[s->pairs.at[p].group];
            if (!s->pairs.at[p].done) gain += g->over - g->frontier;
        }
        if (gain > best_gain) best_gain = gain, best = h->pairs;
    }
    if (!s->patience) return false;
    s->shared.len = kept;
    for (uint32_t p = best; p != NO_PAIR; p = s->pairs.at[p].other)
        if (!s->pairs.at[p].done) cut_group(s, s->pairs.at[p].group);
    return best != NO_PAIR;
}

/* Bytes of the root's result that lie in those of an operand which dies. */
static int64_t in_place(const split_sweep *s, uint32_t n) {
    const ash_node *node = &s->graph->nodes.at[n];
    const open_group *g = &s->groups[s->fusion->group_of[n]];
    const held *out = &s->helds[node->out];
    if (node->n_outs != 1 || !out->bytes || group_of(s, n)->n_beside) return 0;
    for (uint32_t p = g->first; p < g->first + g->count; p++) {
        const pair *at = &s->pairs.at[p];
        const held *h = &s->helds[at->value];
        if (at->same && !at->done && h->stored && h->holders == 1 && h->bytes == out->bytes)
            return out->bytes;
    }
    return 0;
}

/* Of a part of such a group: a product's or a window's goes with it; rows keep there what several loops
 * over a row need, which is more than one node. */
static int64_t scratch_of(const split_sweep *s, uint32_t root) {
    if (!s->whole) return 0;
    const ash_group *g = group_of(s, root);
    const kernel_scratch *whole = &s->whole[root];
    bool has = true;
    if (whole->kind == ASH_GROUP_TILE || whole->kind == ASH_GROUP_POOL) has = g->anchor != ASH_NO_NODE;
    if (whole->kind == ASH_GROUP_ROWS) has = g->kind == ASH_GROUP_ROWS && g->n_nodes > 1;
    return has ? whole->bytes : 0;
}

/* Takes apart all groups that are open at a node, to see what that gives. */
static void take_apart(split_sweep *s, uint32_t at) {
    for (size_t i = 0; i < s->fusion->groups.len; i++) {
        const ash_group *g = &s->fusion->groups.at[i];
        if (g->constant || g->root < at || g->nodes[0] > at) continue;
        for (uint32_t k = 0; k + 1 < g->n_nodes; k++) {
            ash_value v = s->graph->nodes.at[g->nodes[k]].out;
            s->cuts += !s->cut[v];
            s->cut[v] = true;
        }
    }
}

/* Bytes of a node's results that are not there yet. */
static int64_t unborn(const split_sweep *s, uint32_t n) {
    const ash_node *node = &s->graph->nodes.at[n];
    int64_t bytes = 0;
    for (unsigned o = 0; o < node->n_outs; o++) {
        const held *h = &s->helds[s->behind[node->out + o]];
        if (!h->born) bytes += h->bytes;
    }
    return bytes;
}

/* Its results are there; those that nobody reads are gone again. */
static void be_born(split_sweep *s, uint32_t n) {
    const ash_node *node = &s->graph->nodes.at[n];
    for (unsigned o = 0; o < node->n_outs; o++) {
        held *h = &s->helds[s->behind[node->out + o]];
        if (!h->born && !h->holders) s->live -= h->bytes;
        h->born = true;
    }
}

/* The node stores its results, and its group is over. */
static void close_group(split_sweep *s, uint32_t n) {
    const ash_group *group = group_of(s, n);
    const open_group *g = &s->groups[s->fusion->group_of[n]];
    int64_t more = scratch_of(s, n) + unborn(s, n);
    for (uint32_t k = 0; k < group->n_nodes && group->n_beside; k++)
        if (is_beside(s, group->nodes[k])) more += unborn(s, group->nodes[k]);
    more -= in_place(s, n);
    while (s->cut && s->live + more > s->room) {
        uint32_t best = best_group(s);
        more += in_place(s, n);
        if (best != ASH_NO_GROUP) cut_group(s, best);
        bool any = best != ASH_NO_GROUP || cut_sharers(s);
        more -= in_place(s, n);
        if (!any && !s->cuts) take_apart(s, n);
        if (!any || s->failed) break;
    }
    s->peak = ASH_MAX(s->peak, s->live + more);
    s->live += more + in_place(s, n) - scratch_of(s, n);
    for (uint32_t p = g->first; p < g->first + g->count; p++)
        if (s->helds[s->pairs.at[p].value].stored) let_go(s, p);
    be_born(s, n);
    for (uint32_t k = 0; k < group->n_nodes && group->n_beside; k++)
        if (is_beside(s, group->nodes[k])) be_born(s, group->nodes[k]);
}

/* The node's result is computed at its group's root, unless the group is cut before. */
static void open_value(split_sweep *s, uint32_t n) {
    ash_value v = s->graph->nodes.at[n].out;
    uint32_t group = s->fusion->group_of[n];
    s->groups[group].frontier += s->helds[v].bytes;
    s->next_value[v] = s->groups[group].values;
    s->groups[group].values = v;
    note_gain(s, group);
}

/* The node was the last of its group to read some values. */
static void end_pairs(split_sweep *s, uint32_t n) {
    for (uint32_t p = s->ends[n]; p != NO_PAIR; p = s->pairs.at[p].next) {
        pair *at = &s->pairs.at[p];
        held *h = &s->helds[at->value];
        open_group *g = &s->groups[at->group];
        if (at->done) continue;
        if (!h->stored) { /* one of the group's own */
            g->frontier -= h->bytes;
            h->born = true;
            note_gain(s, at->group);
            continue;
        }
        at->over = true;
        h->overs++;
        s->next_wait[p] = g->waits;
        g->waits = p;
        if (h->holders == 1)
            count_over(s, p, 1);
        else
            note_shared(s, at->value);
    }
}

static void run(split_sweep *s) {
    for (uint32_t n = 0; n < s->graph->nodes.len && !s->failed; n++) {
        const ash_group *g = group_of(s, n);
        if (!g || g->constant) continue;
        if (g->root == n)
            close_group(s, n);
        else if (!is_beside(s, n))
            open_value(s, n);
        end_pairs(s, n);
    }
}

/* --- a group per node ------------------------------------------------------------------------------- */

/* Which nodes are in groups at all, the rest being movement, does not depend on how they are grouped, but
 * for those that are computed wherever they are read. So what a group per node would take follows from any
 * fusion that has none of these; and as nothing waits then, and nothing is cut, it is enough to count who
 * reads what. */

static bool is_main(const split_sweep *s, uint32_t n) {
    const ash_group *g = group_of(s, n);
    return g && !g->constant;
}

/* A node's distinct operands in memory lose a reader each, or gain one. */
static void count_readers(split_sweep *s, uint32_t n, uint32_t *seen, bool more) {
    const ash_node *node = &s->graph->nodes.at[n];
    for (unsigned i = 0; i < node->n_ins; i++) {
        ash_value v = s->behind[node->ins[i]];
        held *h = &s->helds[v];
        if (!h->bytes || seen[v] == n) continue;
        seen[v] = n;
        h->holders += more ? 1 : UINT32_MAX;
        if (!h->holders) s->live -= h->bytes;
    }
}

/* Whether a node by itself reads its operands where it stores: see is_at_root. */
static bool is_at_itself(const split_sweep *s, const ash_node *node) {
    return ash_op_is_elementwise(node->op) || ash_op_infos[node->op].class == ASH_CLASS_SCAN ||
           ash_node_reduces_nothing(s->graph, node);
}

static int64_t in_place_apart(const split_sweep *s, const ash_node *node) {
    int64_t bytes = s->helds[node->out].bytes;
    if (node->n_outs != 1 || !bytes || !is_at_itself(s, node)) return 0;
    for (unsigned i = 0; i < node->n_ins; i++) {
        ash_value v = s->behind[node->ins[i]];
        bool same = s->helds[v].holders == 1 && s->helds[v].bytes == bytes;
        for (unsigned k = 0; same && k < node->n_ins; k++)
            same = s->behind[node->ins[k]] != v || s->reshaped[node->ins[k]] == v;
        if (same) return bytes;
    }
    return 0;
}

static void run_apart(split_sweep *s, uint32_t *seen) {
    size_t nodes = s->graph->nodes.len;
    memset(seen, 0xff, s->graph->values.len * sizeof *seen);
    for (uint32_t n = 0; n < nodes; n++)
        if (is_main(s, n)) count_readers(s, n, seen, true);
    memset(seen, 0xff, s->graph->values.len * sizeof *seen);
    for (uint32_t n = 0; n < nodes; n++) {
        const ash_node *node = &s->graph->nodes.at[n];
        if (!is_main(s, n)) continue;
        for (unsigned o = 0; o < node->n_outs; o++) {
            const held *h = &s->helds[s->behind[node->out + o]];
            if (!h->born) s->live += h->bytes;
        }
        s->peak = ASH_MAX(s->peak, s->live - in_place_apart(s, node));
        count_readers(s, n, seen, false);
        for (unsigned o = 0; o < node->n_outs; o++) {
            held *h = &s->helds[s->behind[node->out + o]];
            if (!h->born && !h->holders) s->live -= h->bytes;
            h->born = true;
        }
    }
}

/* --- all ---------------------------------------------------------------------------------------------- */

typedef struct group_splitter {
    const ash_graph *graph;
    const ash_split_options *options;
    ash_fusion *out;
    kernel_scratch *whole; /* per node, where it is known */
    bool *stored, *best;   /* per value: with all cuts so far, with those that have the lowest peak */
    int64_t limit;         /* bytes */
    bool alone;            /* groups store nothing beside their roots */
} group_splitter;

/* Finds what lies where; false: out of memory. */
static bool begin(split_sweep *s, uint32_t **seen) {
    size_t values = s->graph->values.len;
    ash_arena_init(&s->arena, s->graph->allocator);
    s->behind = ash_arena_alloc(&s->arena, values, sizeof *s->behind);
    s->reshaped = ash_arena_alloc(&s->arena, values, sizeof *s->reshaped);
    s->helds = ash_arena_alloc(&s->arena, values, sizeof *s->helds);
    *seen = ash_arena_alloc(&s->arena, values, sizeof **seen);
    if (!s->behind || !s->reshaped || !s->helds || !*seen) return false;
    find_places(s);
    find_bytes(s);
    return true;
}

/* Finds who holds what; false: out of memory. */
static bool begin_groups(split_sweep *s, uint32_t *seen) {
    s->next_value = ash_arena_alloc(&s->arena, s->graph->values.len, sizeof *s->next_value);
    s->groups = ash_arena_alloc(&s->arena, s->fusion->groups.len, sizeof *s->groups);
    s->ends = ash_arena_alloc(&s->arena, s->graph->nodes.len, sizeof *s->ends);
    if (!s->next_value || !s->groups || !s->ends) return false;
    find_pairs(s, seen);
    s->next_wait = ash_arena_alloc(&s->arena, s->pairs.len, sizeof *s->next_wait);
    return s->next_wait && !s->failed;
}

/* The peak of a fusion; with `cut`, what has to be stored so that it is within the limit, as far as that
 * can be seen, and how much that is. */
static ash_status look(const group_splitter *f, bool *cut, int64_t *peak, uint32_t *cuts, ash_diag *diag) {
    const ash_graph *graph = f->graph;
    uint32_t *seen;
    split_sweep s = {.graph = graph,
                     .fusion = f->out,
                     .options = f->options,
                     .whole = f->whole,
                     .room = f->limit,
                     .patience = 8 * (uint64_t)(graph->nodes.len + graph->values.len),
                     .cut = cut};
    s.failed = !begin(&s, &seen) || !begin_groups(&s, seen);
    if (!s.failed) run(&s);
    *peak = s.peak;
    *cuts = s.cuts;
    ash_vec_free(graph->allocator, &s.heap);
    ash_vec_free(graph->allocator, &s.shared);
    ash_vec_free(graph->allocator, &s.pairs);
    ash_arena_free(&s.arena);
    return s.failed ? ASH_NO_MEMORY(diag) : ASH_OK;
}

/* What a group per node would take, whose nodes are those of this fusion's groups. */
static ash_status sweep_apart(const group_splitter *f, const ash_fusion *fusion, int64_t *peak,
                              ash_diag *diag) {
    uint32_t *seen;
    split_sweep s = {.graph = f->graph, .fusion = fusion, .options = f->options, .apart = true};
    s.failed = !begin(&s, &seen);
    if (!s.failed) run_apart(&s, seen);
    *peak = s.peak;
    ash_arena_free(&s.arena);
    return s.failed ? ASH_NO_MEMORY(diag) : ASH_OK;
}

static ash_status look_apart(const group_splitter *f, int64_t *peak, ash_diag *diag) {
    if (!f->out->anew) return sweep_apart(f, f->out, peak, diag);
    ash_fusion apart;
    const ash_fusion_options options = {
        .costs = f->options->costs, .near_bytes = f->options->near_bytes, .stored = f->options->stored};
    ash_status status = ash_fusion_build(f->graph, &options, &apart, diag);
    if (status == ASH_OK) status = sweep_apart(f, &apart, peak, diag);
    ash_fusion_free(&apart);
    return status;
}

static ash_status build(const group_splitter *f, const bool *stored, ash_diag *diag) {
    const ash_fusion_options options = {.costs = f->options->costs,
                                        .near_bytes = f->options->near_bytes,
                                        .stored = stored,
                                        .late = f->options->late,
                                        .fuse = f->options->fuse,
                                        .alone = f->alone};
    return ash_fusion_build(f->graph, &options, f->out, diag);
}

static ash_status fuse_again(const group_splitter *f, const bool *stored, int64_t *peak, ash_diag *diag) {
    uint32_t none;
    ash_fusion_free(f->out);
    ASH_TRY(build(f, stored, diag));
    return look(f, NULL, peak, &none, diag);
}

/* How many values are stored for the peak; `out` receives them where it is not NULL. */
static uint32_t list_splits(const group_splitter *f, ash_value *out) {
    uint32_t count = 0;
    for (ash_value v = 0; v < f->graph->values.len; v++) {
        if (!f->best[v] || f->options->stored[v]) continue;
        if (out) out[count] = v;
        count++;
    }
    return count;
}

/* Takes cuts back that others have made needless: halves of them, quarters, and so on, as long as the peak
 * stays where it is, or within the limit. Ends with the fusion of those that are left. */
static ash_status take_back(group_splitter *f, int64_t most, ash_value *cuts, uint32_t count,
                            ash_diag *diag) {
    size_t tries = ASH_MIN((size_t)TRIES, MOST_VISITS / f->graph->nodes.len), tried = 0;
    int64_t peak;
    for (uint32_t size = (count + 1) / 2; count && tried < tries; size = (size + 1) / 2) {
        for (uint32_t from = 0; from < count && tried < tries; tried++) {
            uint32_t end = ASH_MIN(from + size, count);
            for (uint32_t i = from; i < end; i++) f->best[cuts[i]] = false;
            ASH_TRY(fuse_again(f, f->best, &peak, diag));
            if (peak <= most) {
                memmove(cuts + from, cuts + end, (count - end) * sizeof *cuts);
                count -= end - from;
                continue;
            }
            for (uint32_t i = from; i < end; i++) f->best[cuts[i]] = true;
            from = end;
        }
        if (size == 1) break;
    }
    return fuse_again(f, f->best, &peak, diag);
}

/* Fuses with more and more values stored, and ends with few that have the lowest peak. */
static ash_status split(group_splitter *f, ash_split_report *report, ash_diag *diag) {
    const ash_allocator *a = f->graph->allocator;
    size_t size = f->graph->values.len * sizeof *f->stored;
    int64_t peak = report->chosen, seen;
    uint32_t cuts;
    memcpy(f->stored, f->options->stored, size);
    memcpy(f->best, f->stored, size);
    for (int round = 0; round < ROUNDS && peak > f->limit; round++) {
        ASH_TRY(look(f, f->stored, &seen, &cuts, diag));
        if (!cuts) break;
        ASH_TRY(fuse_again(f, f->stored, &peak, diag));
        if (peak >= report->chosen) continue;
        report->chosen = peak;
        memcpy(f->best, f->stored, size);
    }
    uint32_t count = list_splits(f, NULL);
    ash_value *list = ash_mem_alloc(a, count, sizeof *list);
    if (!list) return ASH_NO_MEMORY(diag);
    list_splits(f, list);
    ash_status status = take_back(f, ASH_MAX(f->limit, report->chosen), list, count, diag);
    ash_mem_free(a, list, count, sizeof *list);
    report->splits = list_splits(f, NULL);
    return status;
}

/* The same from the beginning. */
static ash_status split_anew(group_splitter *f, ash_split_report *report, ash_diag *diag) {
    ASH_TRY(fuse_again(f, f->options->stored, &report->chosen, diag));
    return report->chosen <= f->limit ? ASH_OK : split(f, report, diag);
}

static void note_whole(group_splitter *f) {
    for (size_t i = 0; i < f->out->groups.len; i++) {
        const ash_group *g = &f->out->groups.at[i];
        for (uint32_t k = 0; k < g->n_nodes; k++)
            f->whole[g->nodes[k]] = (kernel_scratch){f->options->scratch[g->root], g->kind};
    }
}

ash_status ash_fusion_split(const ash_graph *graph, const ash_split_options *options, ash_fusion *out,
                            ash_split_report *report, ash_diag *diag) {
    const ash_allocator *a = graph->allocator;
    group_splitter f = {.graph = graph, .options = options, .out = out, .limit = INT64_MAX};
    size_t nodes = options->scratch ? graph->nodes.len : 0;
    uint32_t none;
    *report = (ash_split_report){0};
    *out = (ash_fusion){.allocator = a};
    ASH_TRY(build(&f, options->stored, diag));
    if (!options->fuse || options->freely) return ASH_OK;
    ASH_TRY(look_apart(&f, &report->unfused, diag));
    ash_status status = ASH_OK;
    if (options->scratch) {
        f.whole = ash_mem_calloc(a, nodes, sizeof *f.whole);
        if (!f.whole) return ASH_NO_MEMORY(diag);
        note_whole(&f);
    }
    ASH_TRY_DONE(look(&f, NULL, &report->fused, &none, diag));
    report->chosen = report->fused;
    f.limit = options->room ? ASH_MIN(options->room, report->unfused) : report->unfused;
    if (report->fused <= f.limit) goto done;
    f.stored = ash_mem_alloc(a, graph->values.len, sizeof *f.stored);
    f.best = ash_mem_alloc(a, graph->values.len, sizeof *f.best);
    ASH_FAIL_IF_DONE(!f.stored || !f.best, diag, ASH_ERROR_OUT_OF_MEMORY, "out of memory");
    ASH_TRY_DONE(split(&f, report, diag));
    if (report->chosen <= f.limit) goto done;
    ash_split_report other = *report;
    f.alone = true;
    ASH_TRY_DONE(split_anew(&f, &other, diag));
    f.alone = other.chosen <= report->chosen; /* the lives are known better then */
    if (f.alone)
        *report = other;
    else
        ASH_TRY_DONE(split_anew(&f, report, diag));
done:
    ash_mem_free(a, f.stored, graph->values.len, sizeof *f.stored);
    ash_mem_free(a, f.best, graph->values.len, sizeof *f.best);
    ash_mem_free(a, f.whole, nodes, sizeof *f.whole);
    return status;
}
