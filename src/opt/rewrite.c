/* SPDX-License-Identifier: MIT */
/* Rebuilding a graph: see rewrite.h. */
#include "rewrite.h"

static void free_parts(ash_rewrite *rw) {
    const ash_allocator *a = rw->from->allocator;
    ash_arena_free(&rw->scratch);
    ash_mem_free(a, rw->map, rw->from->values.len, sizeof *rw->map);
    ash_mem_free(a, rw->uses, rw->from->values.len, sizeof *rw->uses);
}

ash_value ash_rewrite__origin(const ash_rewrite *rw, ash_value value) {
    return rw->from == rw->opt->source ? value : rw->from->values.at[value].origin;
}

bool ash_rewrite__is_kept(const ash_rewrite *rw, ash_value value) {
    ash_value origin = ash_rewrite__origin(rw, value);
    return origin != ASH_NO_VALUE && rw->opt->kept[origin];
}

static void use_settler(void *user, uint32_t var, ash_value settler) {
    (void)var;
    ash_rewrite *rw = user;
    rw->uses[settler]++;
}

/* Uses come after definitions, so one walk backwards sees every use of a value before its node. */
static void count_uses(ash_rewrite *rw) {
    const ash_graph *from = rw->from;
    for (size_t i = 0; i < from->outputs.len; i++) rw->uses[from->outputs.at[i].value]++;
    for (size_t i = 0; i < from->states.len; i++)
        if (from->states.at[i].update != ASH_NO_VALUE) rw->uses[from->states.at[i].update]++;
    for (ash_value v = 0; v < from->values.len; v++) rw->uses[v] += ash_rewrite__is_kept(rw, v);
    for (size_t i = from->nodes.len; i-- > 0;) {
        const ash_node *node = &from->nodes.at[i];
        if (!ash_rewrite__is_live(rw, node)) continue;
        for (size_t k = 0; k < node->n_ins; k++) rw->uses[node->ins[k]]++;
        ash_graph__each_settler(from, node, use_settler, rw);
    }
}

void ash_rewrite__find_constants(const ash_rewrite *rw, bool *constant) {
    const ash_graph *from = rw->from;
    for (size_t v = 0; v < from->values.len; v++) {
        ash_value_kind kind = from->values.at[v].kind;
        constant[v] = kind == ASH_VALUE_CONSTANT || kind == ASH_VALUE_PARAMETER;
    }
    for (size_t i = 0; i < from->nodes.len; i++) {
        const ash_node *node = &from->nodes.at[i];
        bool all = ash_node__is_pure(from, node);
        for (size_t k = 0; k < node->n_ins; k++) all = all && constant[node->ins[k]];
        for (size_t k = 0; k < node->n_outs; k++) constant[node->out + k] = all;
    }
}

/* A result that jumps where the operand goes from one float to the next. */
static bool is_step(const ash_graph *from, const ash_node *node) {
    switch (node->op) {
    case ASH_OP_FLOOR:
    case ASH_OP_CEIL:
    case ASH_OP_TRUNC:
    case ASH_OP_ROUND:
    case ASH_OP_EQ:
    case ASH_OP_LT:
    case ASH_OP_LE: return true;
    case ASH_OP_CAST: return !ash_dtype_is_float(ash_graph__type(from, node->out)->dtype);
    default: return false;
    }
}

/* A result that a step may follow as if it followed the operand. */
static bool hands_on(const ash_node *node) {
    switch (node->op) {
    case ASH_OP_NEG:
    case ASH_OP_ABS:
    case ASH_OP_ADD:
    case ASH_OP_SUB:
    case ASH_OP_MIN:
    case ASH_OP_MAX:
    case ASH_OP_RESHAPE:
    case ASH_OP_TRANSPOSE:
    case ASH_OP_BROADCAST:
    case ASH_OP_SLICE:
    case ASH_OP_CONCAT: return true;
    default: return false;
    }
}

/* Whether a constant of floating point numbers has whole ones alone; of a large one it is not known. */
static bool is_whole_constant(const ash_value_info *info) {
    enum { MOST = 4096 }; /* elements that are looked at */
    const bool wide = info->type.dtype == ASH_F64;
    if (!wide && info->type.dtype != ASH_F32) return false;
    const size_t count = info->blob->size / ash_dtype_size(info->type.dtype);
    bool whole = count <= MOST;
    for (size_t i = 0; i < count && whole; i++) {
        const double x =
            wide ? ((const double *)info->blob->data)[i] : ((const float *)info->blob->data)[i];
        whole = x == __builtin_floor(x);
    }
    return whole;
}

/* Fills whole[v], for each value of `from`: it has whole numbers alone, as positions are. */
static void find_whole(const ash_graph *from, bool *whole) {
    for (size_t v = 0; v < from->values.len; v++) {
        const ash_value_info *info = &from->values.at[v];
        whole[v] = !ash_dtype_is_float(info->type.dtype) ||
                   (info->kind == ASH_VALUE_CONSTANT && is_whole_constant(info));
    }
    for (size_t i = 0; i < from->nodes.len; i++) {
        const ash_node *node = &from->nodes.at[i];
        bool all = node->op == ASH_OP_MUL || node->op == ASH_OP_CAST || hands_on(node);
        for (size_t k = 0; k < node->n_ins; k++) all = all && whole[node->ins[k]];
        if (all || node->op == ASH_OP_IOTA) whole[node->out] = true;
    }
}

/* A multiple by whole numbers: n * (x / n) is x, or one bit off. */
static bool is_multiple(const ash_node *node, const bool *whole) {
    return node->op == ASH_OP_MUL && (whole[node->ins[0]] || whole[node->ins[1]]);
}

bool ash_rewrite__find_stepped(ash_rewrite *rw, bool *stepped) {
    const ash_graph *from = rw->from;
    bool *whole = ash_arena_alloc(&rw->scratch, from->values.len, sizeof *whole);
    if (!whole) return false;
    find_whole(from, whole);
    for (size_t v = 0; v < from->values.len; v++) stepped[v] = false;
    for (size_t i = from->nodes.len; i-- > 0;) {
        const ash_node *node = &from->nodes.at[i];
        if (!ash_rewrite__is_live(rw, node)) continue;
        if (!is_step(from, node) && !(stepped[node->out] && (hands_on(node) || is_multiple(node, whole))))
            continue;
        for (size_t k = 0; k < node->n_ins; k++) stepped[node->ins[k]] = true;
    }
    return true;
}

static void copy_leaf(ash_rewrite *rw, ash_value value) {
    ash_value image = ASH_NO_VALUE;
    if (ash_graph__copy_leaf(rw->to, rw->from, value, &image) != ASH_OK) return;
    rw->to->values.at[image].origin = ASH_NO_VALUE;
    ash_rewrite__bind(rw, value, image);
}

ash_status ash_rewrite__begin(ash_rewrite *rw, const ash_opt *opt, const ash_graph *from, ash_diag *diag) {
    const ash_allocator *a = from->allocator;
    size_t n = from->values.len;
    *rw = (ash_rewrite){.opt = opt, .from = from, .diag = diag};
    ash_arena_init(&rw->scratch, a);
    ASH_TRY(ash_graph__derive(from, &rw->to, diag));
    rw->to->internal |= opt->internal;
    rw->map = ash_mem_alloc(a, n, sizeof *rw->map);
    rw->uses = ash_mem_calloc(a, n, sizeof *rw->uses);
    if (!rw->map || !rw->uses) return ash_rewrite__abandon(rw, ASH_NO_MEMORY(diag));
    for (size_t i = 0; i < n; i++) rw->map[i] = ASH_NO_VALUE;
    count_uses(rw);
    for (ash_value v = 0; v < n; v++) {
        ash_value_kind kind = from->values.at[v].kind;
        if (kind != ASH_VALUE_NODE && kind != ASH_VALUE_CONSTANT) copy_leaf(rw, v);
    }
    return ASH_OK;
}

ash_status ash_rewrite__abandon(ash_rewrite *rw, ash_status status) {
    ash_graph_destroy(rw->to);
    free_parts(rw);
    return status;
}

static void update_states(ash_rewrite *rw) {
    for (size_t i = 0; i < rw->from->states.len; i++) {
        const ash_state *state = &rw->from->states.at[i];
        if (state->update == ASH_NO_VALUE) continue;
        ash_value leaf = ash_rewrite__get(rw, state->value), image = ash_rewrite__get(rw, state->update);
        if (leaf != ASH_NO_VALUE && image != ASH_NO_VALUE) ash_graph_update(rw->to, leaf, image);
    }
}

ash_status ash_rewrite__end(ash_rewrite *rw, ash_graph **out) {
    ash_graph_name_next(rw->to, NULL);
    update_states(rw);
    for (size_t i = 0; i < rw->from->outputs.len; i++) {
        const ash_output *output = &rw->from->outputs.at[i];
        ash_value image = ash_rewrite__get(rw, output->value);
        if (image != ASH_NO_VALUE) ash_graph_output(rw->to, output->name, image);
    }
    for (ash_value v = 0; v < rw->from->values.len; v++) /* a kept constant that nobody reads */
        if (ash_rewrite__is_kept(rw, v)) ash_rewrite__get(rw, v);
    ash_status status = ash_graph_status(rw->to, rw->diag);
    if (status != ASH_OK) return ash_rewrite__abandon(rw, status);
    rw->to->emit = NULL;
    *out = rw->to;
    free_parts(rw);
    return ASH_OK;
}

bool ash_rewrite__is_live(const ash_rewrite *rw, const ash_node *node) {
    for (size_t k = 0; k < node->n_outs; k++)
        if (rw->uses[node->out + k]) return true;
    return false;
}

ash_value ash_rewrite__get(ash_rewrite *rw, ash_value value) {
    if (rw->map[value] == ASH_NO_VALUE && ash_rewrite__ok(rw)) {
        if (rw->from->values.at[value].kind == ASH_VALUE_CONSTANT)
            copy_leaf(rw, value);
        else
            ash_graph__fail(rw->to, ASH_ERROR_INTERNAL, "value %u is used before it is rebuilt",
                            (unsigned)value);
    }
    return rw->map[value];
}

void ash_rewrite__bind(ash_rewrite *rw, ash_value value, ash_value image) {
    if (image == ASH_NO_VALUE) return;
    ash_value origin = ash_rewrite__origin(rw, value);
    if (origin != ASH_NO_VALUE) {
        ash_value present = rw->to->values.at[image].origin;
        bool kept = rw->opt->kept[origin];
        bool taken = present != ASH_NO_VALUE && present != origin;
        if (taken && kept && rw->opt->kept[present]) {
            ash_type type = ash_rewrite__type(rw, image);
            ash_attr dims = ASH_ATTR_LIST(DIMS, type.dims, type.rank);
            ash_value one = image;
            if (ash_graph_add(rw->to, ASH_OP_RESHAPE, &one, 1, &dims, 1, &image) != ASH_OK) return;
            taken = false;
        }
        if (!taken || kept) rw->to->values.at[image].origin = origin;
    }
    rw->map[value] = image;
}

void ash_rewrite__name(ash_rewrite *rw, const ash_node *node) {
    ash_graph_name_next(rw->to, node->name);
    rw->to->phase = rw->from->values.at[node->out].phase;
}

void ash_rewrite__copy(ash_rewrite *rw, const ash_node *node) {
    ash_value few[8], outs[ASH_OP_OUTS], *ins = few;
    if (node->n_ins > ASH_COUNT(few)) ins = ash_arena_alloc(&rw->scratch, node->n_ins, sizeof *ins);
    if (!ins) {
        ash_graph__fail(rw->to, ASH_ERROR_OUT_OF_MEMORY, "out of memory");
        return;
    }
    for (size_t k = 0; k < node->n_ins; k++) {
        ins[k] = ash_rewrite__get(rw, node->ins[k]);
        if (ins[k] == ASH_NO_VALUE) return;
    }
    ash_rewrite__name(rw, node);
    for (size_t k = 0; k < ASH_OP_OUTS; k++) outs[k] = ASH_NO_VALUE;
    ash_build__add(rw->to, node->op, ins, node->n_ins, node->attrs, node->n_attrs, outs);
    if (!ash_rewrite__ok(rw)) return;
    for (size_t k = 0; k < node->n_outs; k++) ash_rewrite__bind(rw, node->out + (ash_value)k, outs[k]);
}

/* --- reading -------------------------------------------------------------------------------------- */

bool ash_rewrite__def(const ash_rewrite *rw, ash_value value, ash_op op, ash_node *node) {
    const ash_value_info *info = ash_graph__value(rw->to, value);
    if (info->kind != ASH_VALUE_NODE || rw->to->nodes.at[info->node].op != op) return false;
    *node = rw->to->nodes.at[info->node];
    return true;
}

bool ash_rewrite__splat(const ash_rewrite *rw, ash_value value, ash_number *out) {
    ash_node node;
    if (ash_rewrite__def(rw, value, ASH_OP_BROADCAST, &node)) value = node.ins[0];
    const ash_value_info *info = ash_graph__value(rw->to, value);
    if (info->kind != ASH_VALUE_CONSTANT || !ash_type_is_one(&info->type)) return false;
    ash_wide wide = {.dtype = info->type.dtype, .count = 1};
    out->dtype = info->type.dtype;
    if (ash_dtype_is_float(out->dtype))
        wide.f = &out->f;
    else
        wide.i = &out->i;
    ash_wide_load(&wide, info->blob->data);
    return true;
}

bool ash_type_is_one(const ash_type *type) {
    for (unsigned d = 0; d < type->rank; d++)
        if (type->dims[d] != 1) return false;
    return true;
}
