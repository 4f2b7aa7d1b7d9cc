/* SPDX-License-Identifier: MIT */
/* Kernels under construction: symbols, buffers, addresses, loads and stores. */
#include "tile.h"

void ash_kern_init(ash_kern *k, ash_lowering *low, uint32_t group_id) {
    *k = (ash_kern){.low = low,
                    .graph = low->graph,
                    .group = &low->fusion.groups.at[group_id],
                    .group_id = group_id,
                    .vsym = ASH_NO_SYM,
                    .lanes = 1,
                    .digits = ASH_NO_BUFFER,
                    .between = {ASH_NO_BUFFER, ASH_NO_BUFFER, ASH_NO_BUFFER},
                    .mask = ASH_NO_REF,
                    .guard = ASH_NO_REF,
                    .roomy = ASH_NO_VALUE};
    ash_nest_init(&k->nest, low->allocator);
    ash_ixs_init(&k->ixs, low->allocator, low->program->dims);
    ash_map_init(&k->memo_ids, low->allocator);
}

void ash_kern_free(ash_kern *k) {
    const ash_allocator *a = k->low->allocator;
    ash_nest_free(&k->nest);
    ash_ixs_free(&k->ixs);
    ash_vec_free(a, &k->uses);
    ash_vec_free(a, &k->accesses);
    ash_vec_free(a, &k->sym_refs);
    ash_vec_free(a, &k->known);
    ash_vec_free(a, &k->runs);
    ash_vec_free(a, &k->memo);
    ash_vec_free(a, &k->leaves);
    ash_map_free(&k->memo_ids);
}

ash_status ash_kern_status(const ash_kern *k) {
    ash_diag *diag = k->low->diag;
    ASH_FAIL_IF(k->too_large || k->ixs.too_large, diag, ASH_ERROR_OUT_OF_RANGE,
                "the addresses or the number of pieces of work of this kernel exceed what 64 bits hold");
    ASH_FAIL_IF(k->broken, diag, ASH_ERROR_INTERNAL,
                "what lowering saw of this kernel's operands at first does not hold");
    return k->failed || k->ixs.failed ? ASH_NO_MEMORY(diag) : ash_nest_status(&k->nest, diag);
}

void ash_kern_expect(ash_kern *k, bool holds) {
    if (!holds && !ash_kern_lost(k)) k->failed = k->broken = true;
}

ash_sym ash_kern_sym(ash_kern *k, ash_dim extent) {
    if (!ash_vec_push(k->low->allocator, &k->sym_refs, ASH_NO_REF)) k->failed = true;
    return ash_ix_new_sym(&k->ixs, extent);
}

void ash_kern_set_sym(ash_kern *k, ash_sym sym, ash_ref ref) {
    if (!ash_kern_lost(k)) k->sym_refs.at[sym] = ref;
}

void ash_kern_decode(ash_kern *k, const ash_dim *dims, unsigned rank, const ash_sym *syms, ash_ref number) {
    for (unsigned d = rank; d-- > 0;) {
        ash_ref extent = ash_kern_dim(k, dims[d]);
        ash_kern_set_sym(k, syms[d], d ? ash_nest_imod(&k->nest, number, extent) : number);
        if (d) number = ash_nest_idiv(&k->nest, number, extent);
    }
}

ash_ref ash_kern_loop(ash_kern *k, ash_sym sym, ash_ref from, ash_ref to, int64_t step, unsigned unroll) {
    ash_ref v = ash_nest_loop(&k->nest, from, to, step, unroll);
    ash_kern_set_sym(k, sym, v);
    return v;
}

size_t ash_kern_mark(const ash_kern *k) {
    return k->memo.len;
}

void ash_kern_forget(ash_kern *k, size_t mark) {
    k->memo.len = mark;
}

ash_kern_scope ash_kern_enter(ash_kern *k) {
    ash_kern_scope scope = {k->mask, k->guard, k->context, ash_kern_mark(k), k->ixs.facts.len};
    k->context = (uint32_t)k->nest.code.len + 1; /* like no other: something is emitted before the next */
    return scope;
}

void ash_kern_leave(ash_kern *k, ash_kern_scope scope) {
    ash_kern_forget(k, scope.mark);
    k->mask = scope.mask;
    k->guard = scope.guard;
    k->context = scope.number;
    k->ixs.facts.len = scope.facts;
}

void ash_kern_know(ash_kern *k, ash_value value, ash_ref ref) {
    for (size_t i = 0; i < k->known.len; i++) {
        if (k->known.at[i].value == value) {
            k->known.at[i].ref = ref;
            return;
        }
    }
    if (!ash_vec_push(k->low->allocator, &k->known, (ash_kern_known){value, ref})) k->failed = true;
}

/* --- numbers and indices -------------------------------------------------------------------------- */

/* floor(a / b) for b > 0, where `min` is the least value of a: ash_dims_eval rounds down, the nest's
 * division is for numbers from 0. Of a negative number n that is -1 - (-1 - n) / b. */
static ash_ref floor_div(ash_nest *n, ash_ref a, ash_ref b, int64_t min) {
    if (min >= 0) return ash_nest_idiv(n, a, b);
    ash_ref last = ash_nest_index(n, -1), other = ash_nest_binary(n, ASH_OP_SUB, last, a);
    ash_ref q = ash_nest_idiv(n, ash_nest_binary(n, ASH_OP_MAX, a, other), b);
    return ash_nest_select(n, ash_nest_binary(n, ASH_OP_LT, a, ash_nest_index(n, 0)),
                           ash_nest_binary(n, ASH_OP_SUB, last, q), q);
}

ash_ref ash_kern_dim(ash_kern *k, ash_dim dim) {
    const ash_dims *dims = k->ixs.dims;
    ash_nest *n = &k->nest;
    if (ash_dim_is_const(dim)) return ash_nest_index(n, dim);
    ash_ref sum = ash_nest_index(n, 0);
    for (size_t t = 0; t < ash_dims_term_count(dims, dim); t++) {
        size_t atoms;
        ash_ref product = ash_nest_index(n, ash_dims_term(dims, dim, t, &atoms));
        for (size_t i = 0; i < atoms; i++) {
            ash_dim_atom atom = ash_dims_atom(dims, dim, t, i);
            ash_ref value;
            if (atom.is_var) {
                value = ash_nest_var(n, atom.var);
            } else {
                ash_ref a = ash_kern_dim(k, atom.a), b = ash_kern_dim(k, atom.b);
                int64_t min, max;
                ash_dims_bounds(dims, atom.a, &min, &max);
                value = atom.op == ASH_DIM_DIV
                            ? floor_div(n, a, b, min)
                            : ash_nest_binary(n, atom.op == ASH_DIM_MIN ? ASH_OP_MIN : ASH_OP_MAX, a, b);
            }
            product = ash_nest_binary(n, ASH_OP_MUL, product, value);
        }
        sum = ash_nest_binary(n, ASH_OP_ADD, sum, product);
    }
    return sum;
}

ash_ref ash_kern_splat(ash_kern *k, ash_ref ref) {
    if (k->lanes == 1 || k->nest.failed || ash_nest_at(&k->nest, ref)->lanes > 1) return ref;
    return ash_nest_splat(&k->nest, ref, k->lanes);
}

ash_ref ash_kern_binary(ash_kern *k, ash_op op, ash_ref a, ash_ref b) {
    if (k->nest.failed) return ASH_NO_REF;
    if (ash_nest_at(&k->nest, a)->lanes != ash_nest_at(&k->nest, b)->lanes)
        a = ash_kern_splat(k, a), b = ash_kern_splat(k, b);
    return ash_nest_binary(&k->nest, op, a, b);
}

static bool atom_is_vector(const ash_kern *k, uint32_t id) {
    const ash_atom *atom = &k->ixs.atoms.at[id];
    switch (atom->kind) {
    case ASH_ATOM_ONE: return false;
    case ASH_ATOM_SYM: return atom->ref == k->vsym;
    case ASH_ATOM_LOADED: return !k->collecting && ash_nest_at(&k->nest, atom->ref)->lanes > 1;
    case ASH_ATOM_DIV:
    case ASH_ATOM_MOD: return ash_kern_is_vector(k, atom->ref);
    }
    return false;
}

bool ash_kern_is_vector(const ash_kern *k, ash_ix ix) {
    if (k->lanes == 1 || k->ixs.failed || k->nest.failed) return false;
    ash_sum sum = ash_ix_sum(&k->ixs, ix);
    for (uint32_t i = 0; i < sum.n; i++)
        if (atom_is_vector(k, k->ixs.terms.at[sum.first + i].atom)) return true;
    return false;
}

/* The value of a divisor. One that can be 0 belongs to a tensor that can be empty, whose index may be
 * computed all the same under a guard that does not hold: it must not trap. */
static ash_ref divisor(ash_kern *k, ash_dim dim) {
    int64_t min, max;
    ash_dims_bounds(k->ixs.dims, dim, &min, &max);
    ash_ref by = ash_kern_dim(k, dim);
    return min > 0 ? by : ash_nest_binary(&k->nest, ASH_OP_MAX, by, ash_nest_index(&k->nest, 1));
}

/* An index as instructions. With `every_lane` the result is a vector wherever it depends on the lane. */
static ash_ref emit_index(ash_kern *k, ash_ix ix, bool every_lane) {
    ash_nest *n = &k->nest;
    if (ash_kern_lost(k)) return ASH_NO_REF;
    ash_sum terms = ash_ix_sum(&k->ixs, ix);
    ash_ref sum = ash_nest_index(n, 0);
    for (uint32_t i = 0; i < terms.n; i++) {
        ash_term t = k->ixs.terms.at[terms.first + i];
        ash_atom atom = k->ixs.atoms.at[t.atom];
        ash_ref value = ASH_NO_REF;
        switch (atom.kind) {
        case ASH_ATOM_ONE: value = ash_nest_index(n, 1); break;
        case ASH_ATOM_SYM:
            value = k->sym_refs.at[atom.ref];
            if (every_lane && atom.ref == k->vsym)
                value =
                    ash_kern_binary(k, ASH_OP_ADD, ash_kern_splat(k, value), ash_nest_lanes(n, k->lanes));
            break;
        case ASH_ATOM_LOADED: value = atom.ref; break;
        case ASH_ATOM_DIV:
        case ASH_ATOM_MOD: {
            ash_ref by = divisor(k, atom.by);
            value = emit_index(k, atom.ref, every_lane);
            if (!n->failed && ash_nest_at(n, value)->lanes > 1) by = ash_kern_splat(k, by);
            value = atom.kind == ASH_ATOM_DIV ? ash_nest_idiv(n, value, by) : ash_nest_imod(n, value, by);
        }
        }
        if (t.c != 1) value = ash_kern_binary(k, ASH_OP_MUL, value, ash_nest_index(n, t.c));
        if (t.d != 1) value = ash_kern_binary(k, ASH_OP_MUL, value, ash_kern_dim(k, t.d));
        sum = i ? ash_kern_binary(k, ASH_OP_ADD, sum, value) : value;
    }
    return sum;
}

ash_ref ash_kern_index(ash_kern *k, ash_ix ix) {
    return emit_index(k, ix, false);
}

ash_ref ash_kern_vector_index(ash_kern *k, ash_ix ix) {
    return ash_kern_splat(k, emit_index(k, ix, true));
}

/* --- buffers -------------------------------------------------------------------------------------- */

uint32_t ash_kern_buffer_of(const ash_kern *k, ash_value value) {
    const ash_value_place *p = &k->low->places[value];
    return p->view == ASH_NO_BUFFER ? p->buffer : p->view;
}

uint16_t ash_kern_buffer(ash_kern *k, uint32_t buffer, ash_dtype dtype, bool write) {
    if (ash_kern_lost(k)) return 0;
    for (size_t i = 0; i < k->uses.len; i++) {
        if (k->uses.at[i].buffer == buffer && k->nest.buffers.at[i].dtype == dtype) {
            k->nest.buffers.at[i].written |= write;
            k->uses.at[i].written |= write;
            return (uint16_t)i;
        }
    }
    const ash_buffer *b = &k->low->program->buffers.at[buffer];
    uint32_t root = b->root == ASH_NO_BUFFER ? buffer : b->root;
    uint16_t group = (uint16_t)k->uses.len;
    for (size_t i = 0; i < k->uses.len; i++) {
        const ash_buffer *other = &k->low->program->buffers.at[k->uses.at[i].buffer];
        if ((other->root == ASH_NO_BUFFER ? k->uses.at[i].buffer : other->root) == root)
            group = k->nest.buffers.at[i].group;
    }
    if (!ash_vec_push(k->low->allocator, &k->uses, (ash_kern_use){.buffer = buffer, .written = write})) {
        k->failed = true;
        return 0;
    }
    return ash_nest_buffer_add(&k->nest, (ash_nest_buffer){dtype, b->align, group, write});
}

/* Workers write lines of their own. */
static int64_t scratch_align(const ash_lowering *low) {
    const ash_costs *c = &low->target->costs;
    return ASH_MAX(c->line_bytes, c->align_bytes);
}

ash_status ash_lower__scratch(ash_lowering *low, ash_dtype dtype, int64_t bytes, uint32_t *out) {
    int64_t size = (int64_t)ash_dtype_size(dtype), align = scratch_align(low);
    ASH_FAIL_IF(bytes > INT64_MAX - align, low->diag, ASH_ERROR_OUT_OF_RANGE,
                "%lld bytes of scratch memory", (long long)bytes);
    bytes = (int64_t)ash_align_up((uint64_t)bytes, (uint64_t)align);
    const ash_buffer buffer = {.kind = ASH_BUFFER_SCRATCH,
                               .type = {.dtype = dtype, .rank = 1, .dims = {bytes / size}},
                               .bytes = bytes,
                               .align = (uint32_t)align,
                               .value = ASH_NO_VALUE,
                               .origin = ASH_NO_VALUE,
                               .root = ASH_NO_BUFFER};
    *out = (uint32_t)low->program->buffers.len;
    return ash_vec_push(low->program->allocator, &low->program->buffers, buffer) ? ASH_OK
                                                                                 : ASH_NO_MEMORY(low->diag);
}

/* The nest's number for new scratch memory, and its bytes; 0 where it failed. */
static uint16_t add_scratch(ash_kern *k, ash_dtype dtype, int64_t elements, bool one_worker,
                            int64_t *bytes) {
    uint32_t buffer;
    const bool fits = ash_mul_i64(elements, (int64_t)ash_dtype_size(dtype), bytes);
    if (!fits || ash_lower__scratch(k->low, dtype, *bytes, &buffer) != ASH_OK) {
        k->failed = true;
        k->too_large |= !fits || *bytes > INT64_MAX - scratch_align(k->low);
        return 0;
    }
    k->low->program->buffers.at[buffer].one_worker = one_worker;
    *bytes = k->low->program->buffers.at[buffer].bytes;
    const ash_access read = {buffer, false, 0, *bytes}, write = {buffer, true, 0, *bytes};
    if (!ash_vec_push(k->low->allocator, &k->accesses, read) ||
        !ash_vec_push(k->low->allocator, &k->accesses, write))
        k->failed = true;
    return ash_kern_buffer(k, buffer, dtype, true);
}

uint16_t ash_kern_scratch(ash_kern *k, ash_dtype dtype, ash_dim count, ash_ref *first) {
    int64_t least, most, bytes = 0, size = (int64_t)ash_dtype_size(dtype);
    ash_dims_bounds(k->ixs.dims, count, &least, &most);
    if (dtype == ASH_F32 && most <= k->spare.elements) {
        *first = k->spare.first;
        k->spare.elements = 0;
        return k->spare.buf;
    }
    *first = ash_nest_index(&k->nest, 0);
    const uint16_t buf = add_scratch(k, dtype, most, false, &bytes);
    if (!k->failed)
        *first = ash_nest_binary(&k->nest, ASH_OP_MUL, ash_kern_argument(k, ASH_NEST_WORKER),
                                 ash_nest_index(&k->nest, bytes / size));
    return buf;
}

uint16_t ash_kern_scratch_of_all(ash_kern *k, ash_dtype dtype, ash_dim count) {
    int64_t bytes;
    return add_scratch(k, dtype, ash_kern_max(k, count), true, &bytes);
}

void ash_kern_access(ash_kern *k, ash_value value, bool write) {
    ash_kern_access_in(k, value, ash_kern_buffer_of(k, value), write);
}

void ash_kern_access_in(ash_kern *k, ash_value value, uint32_t buffer, bool write) {
    const ash_value_place *p = &k->low->places[value];
    const ash_access access = {buffer, write, p->begin, p->end};
    for (size_t i = 0; i < k->accesses.len; i++) {
        const ash_access *a = &k->accesses.at[i];
        if (a->buffer == access.buffer && a->write == write && a->begin == access.begin &&
            a->end == access.end)
            return;
    }
    if (!ash_vec_push(k->low->allocator, &k->accesses, access)) k->failed = true;
}

ash_ix ash_kern_linear(ash_kern *k, ash_value value, const ash_ix *idx) {
    const ash_value_place *p = &k->low->places[value];
    const ash_type *type = ash_graph__type(k->graph, value);
    ash_ixs *ixs = &k->ixs;
    if (!p->contiguous) {
        ash_ix sum = ash_ix_dim(ixs, p->view == ASH_NO_BUFFER ? p->offset : 0);
        for (unsigned d = 0; d < type->rank; d++)
            sum = ash_ix_add(ixs, sum, ash_ix_mul(ixs, idx[d], p->strides[d]));
        return sum;
    }
    ash_ix sum = ash_ix_const(ixs, 0);
    for (unsigned d = 0; d < type->rank; d++)
        sum = ash_ix_add(ixs, ash_ix_mul(ixs, sum, type->dims[d]), idx[d]);
    return sum;
}

ash_dtype ash_kern_dtype(ash_dtype dtype) {
    return dtype == ASH_F16 || dtype == ASH_BF16 ? ASH_F32 : dtype;
}

/* --- loads and stores ----------------------------------------------------------------------------- */

void ash_kern_collect(ash_kern *k, ash_value value, ash_ix at) {
    const ash_kern_leaf leaf = {.value = value, .at = at};
    if (!ash_vec_push(k->low->allocator, &k->leaves, leaf)) k->failed = true;
}

static void note_read(ash_kern *k, uint16_t buf, ash_ix linear) {
    ash_kern_use *use = &k->uses.at[buf];
    use->single = use->read ? use->single && use->linear == linear : true;
    use->linear = linear;
    use->read = true;
}

/* A constant of one element becomes a number in the code. */
static bool immediate(ash_kern *k, ash_value value, ash_ref *out) {
    const ash_value_info *info = ash_graph__value(k->graph, value);
    int64_t count;
    if (info->kind != ASH_VALUE_CONSTANT || !ash_type_static_count(&info->type, &count) || count != 1)
        return false;
    ash_dtype dtype = info->type.dtype;
    ash_wide wide = {.dtype = dtype, .count = 1};
    double f;
    int64_t i;
    if (ash_dtype_is_float(dtype)) {
        wide.f = &f;
        ash_wide_load(&wide, info->blob->data);
        *out = ash_nest_float(&k->nest, ash_kern_dtype(dtype), f);
    } else {
        wide.i = &i;
        ash_wide_load(&wide, info->blob->data);
        *out = ash_nest_int(&k->nest, dtype, i);
    }
    return true;
}

static ash_dim count_of(ash_kern *k, const ash_type *type) {
    ash_dim count = 1;
    for (unsigned d = 0; d < type->rank; d++) count = ash_kern_product(k, count, type->dims[d]);
    return count;
}

/* The index where the guard says that it may be read, else that of any element: the first one, or, on GPUs,
 * the nearest, which lies in a sector that the neighbours ask for. */
static ash_ref guarded_index(ash_kern *k, ash_ref at, ash_value value) {
    const ash_value_place *place = &k->low->places[value];
    ash_nest *n = &k->nest;
    if (k->guard == ASH_NO_REF) return at;
    if (k->low->target->kind != ASH_TARGET_GPU || !place->contiguous)
        return ash_nest_select(
            n, k->guard, at,
            ash_kern_dim(k, place->contiguous || place->view != ASH_NO_BUFFER ? 0 : place->offset));
    ash_ref last =
        ash_nest_binary(n, ASH_OP_SUB, ash_kern_dim(k, count_of(k, ash_graph__type(k->graph, value))),
                        ash_nest_index(n, 1));
    return ash_nest_binary(n, ASH_OP_MAX, ash_nest_binary(n, ASH_OP_MIN, at, last), ash_nest_index(n, 0));
}

/* Whether an index repeats itself along the vector axis, and lies inside the value for any lane, also one
 * that does not count. */
static bool repeats_inside(const ash_kern *k, ash_ix linear, const ash_type *type) {
    const ash_ixs *ixs = &k->ixs;
    const ash_sum sum = ash_ix_sum(ixs, linear);
    int64_t count;
    if (!ash_type_static_count(type, &count) || sum.min < 0 || sum.max >= count) return false;
    for (uint32_t i = 0; i < sum.n; i++) {
        const ash_atom *atom = &ixs->atoms.at[ixs->terms.at[sum.first + i].atom];
        const bool along = atom->kind == ASH_ATOM_SYM   ? atom->ref == k->vsym
                           : atom->kind == ASH_ATOM_DIV ? ash_ix_depends(ixs, atom->ref, k->vsym)
                                                        : atom->kind == ASH_ATOM_LOADED;
        if (along) return false;
    }
    return true;
}

static ash_ref load_at(ash_kern *k, uint16_t buf, ash_ix linear, ash_value value) {
    const ash_value_place *place = &k->low->places[value];
    ash_nest *n = &k->nest;
    if (!ash_kern_is_vector(k, linear)) {
        ash_ref at;
        if (k->crossing && k->guard == ASH_NO_REF && ash_kern_crossed_load(k, buf, linear, &at)) return at;
        at = guarded_index(k, ash_kern_index(k, linear), value);
        return ash_nest_load(n, buf, at, 1, ASH_NO_REF);
    }
    ash_ref mask = k->mask;
    if (k->guard != ASH_NO_REF) mask = ash_nest_both(n, mask, ash_kern_splat(k, k->guard));
    int64_t stride;
    if (ash_ix_lane_stride(&k->ixs, linear, k->vsym, k->lanes, k->aligned, &stride) && stride == 1)
        return ash_nest_load(n, buf, ash_kern_index(k, linear), k->lanes,
                             value == k->roomy ? ASH_NO_REF : mask);
    ash_ref other, end = ASH_NO_REF;
    const ash_type *type = ash_graph__type(k->graph, value);
    const bool all = k->turn && mask == k->turn->mask; /* that are in the block are read */
    if (k->turn && !all && place->contiguous) end = ash_kern_dim(k, count_of(k, type));
    if (k->turn && (all || end != ASH_NO_REF) &&
        ash_kern_turned_load(k, buf, linear, end, ash_type_max_count(k->ixs.dims, type), &other))
        return other;
    if (mask != ASH_NO_REF && repeats_inside(k, linear, type) &&
        ash_kern_load_near(k, buf, linear, ASH_NO_REF, &other)) {
        ash_ref zero = ash_kern_neutral(k, ASH_OP_ADD, n->buffers.at[buf].dtype);
        return ash_nest_select(n, mask, other, ash_nest_splat(n, zero, k->lanes));
    }
    if (ash_kern_load_near(k, buf, linear, value == k->roomy ? ASH_NO_REF : mask, &other) ||
        ash_kern_load_in_turn(k, buf, linear, mask, &other) ||
        ash_kern_load_run(k, buf, linear, mask, &other))
        return other;
    return ash_nest_gather(n, buf, ash_kern_vector_index(k, linear), mask);
}

ash_ref ash_kern_load(ash_kern *k, ash_value value, const ash_ix *idx) {
    const ash_type *type = ash_graph__type(k->graph, value);
    ash_ref ref;
    if (k->collecting) {
        ash_ix at = ash_kern_linear(k, value, idx);
        ash_kern_collect(k, value, at);
        if (k->crossing) ash_kern_cross(k, value, at);
        return 0;
    }
    if (immediate(k, value, &ref)) return ref;
    if (ash_type_max_count(k->ixs.dims, type) ==
        0) /* read under a guard that never holds: there is no byte */
        return ash_kern_neutral(k, ASH_OP_ADD, ash_kern_dtype(type->dtype));
    ash_ix linear = ash_kern_linear(k, value, idx);
    uint16_t buf = ash_kern_buffer(k, ash_kern_buffer_of(k, value), type->dtype, false);
    ash_kern_access(k, value, false);
    if (ash_kern_lost(k)) return 0;
    note_read(k, buf, linear);
    ref = load_at(k, buf, linear, value);
    return ash_kern_dtype(type->dtype) == type->dtype ? ref : ash_nest_cast(&k->nest, ASH_F32, ref);
}

void ash_kern_store(ash_kern *k, ash_value value, const ash_ix *idx, ash_ref ref) {
    const ash_type *type = ash_graph__type(k->graph, value);
    ash_nest *n = &k->nest;
    ash_ix linear = ash_kern_linear(k, value, idx);
    if (k->collecting) {
        ash_kern_collect(k, value, linear);
        return;
    }
    uint16_t buf = ash_kern_buffer(k, ash_kern_buffer_of(k, value), type->dtype, true);
    ash_kern_access(k, value, true);
    if (ash_kern_lost(k)) return;
    const ash_value_info *info = ash_graph__value(k->graph, value);
    if (info->kind != ASH_VALUE_NODE || !k->low->fusion.beside[info->node]) {
        k->stored_once = !k->has_stored || (k->stored_once && k->stored == linear);
        k->stored = linear;
        k->has_stored = true;
    }
    if (ash_nest_at(n, ref)->dtype != type->dtype) ref = ash_nest_cast(n, type->dtype, ref);
    if (!ash_kern_is_vector(k, linear)) {
        ash_nest_store(n, buf, ash_kern_index(k, linear), ash_nest_extract(n, ref, 0), ASH_NO_REF);
        return;
    }
    int64_t stride;
    ref = ash_kern_splat(k, ref);
    if (k->pack && k->pack->n < ASH_MAX_PACKED) {
        k->pack->buf = buf;
        k->pack->at[k->pack->n++] = ref;
        return;
    }
    if (ash_ix_lane_stride(&k->ixs, linear, k->vsym, k->lanes, k->aligned, &stride) && stride == 1)
        ash_nest_store(n, buf, ash_kern_index(k, linear), ref, k->mask);
    else
        ash_nest_scatter(n, buf, ash_kern_vector_index(k, linear), ref, k->mask);
}

ash_ref ash_kern_neutral(ash_kern *k, ash_op combine, ash_dtype dtype) {
    ash_nest *n = &k->nest;
    bool is_float = ash_dtype_is_float(dtype);
    int bits = (int)ash_dtype_size(dtype) * 8;
    bool is_signed = ash_dtype_kind(dtype) == ASH_KIND_SIGNED, is_bool = dtype == ASH_BOOL;
    switch (combine) {
    case ASH_OP_MUL: return is_float ? ash_nest_float(n, dtype, 1) : ash_nest_int(n, dtype, 1);
    case ASH_OP_AND: return ash_nest_int(n, dtype, is_bool ? 1 : -1);
    case ASH_OP_MAX:
        if (is_float) return ash_nest_float(n, dtype, -__builtin_inf());
        return ash_nest_int(n, dtype, is_signed ? (int64_t)(UINT64_MAX << (bits - 1)) : 0);
    case ASH_OP_MIN:
        if (is_float) return ash_nest_float(n, dtype, __builtin_inf());
        return ash_nest_int(n, dtype,
                            is_signed ? (int64_t)((UINT64_C(1) << (bits - 1)) - 1)
                            : is_bool ? 1
                                      : -1);
    default: return is_float ? ash_nest_float(n, dtype, 0) : ash_nest_int(n, dtype, 0);
    }
}

unsigned ash_kern_lanes(const ash_kern *k) {
    size_t widest = 1;
    for (uint32_t i = 0; i < k->group->n_nodes; i++) {
        const ash_node *node = &k->graph->nodes.at[k->group->nodes[i]];
        /* the second operand of a gather holds indices, those of a concatenation are all alike */
        bool first = ash_op_infos[node->op].class == ASH_CLASS_GATHER || node->op == ASH_OP_CONCAT;
        widest =
            ASH_MAX(widest, ash_dtype_size(ash_kern_dtype(ash_graph__type(k->graph, node->out)->dtype)));
        for (unsigned j = 0; j < (first ? 1u : node->n_ins); j++)
            widest = ASH_MAX(
                widest, ash_dtype_size(ash_kern_dtype(ash_graph__type(k->graph, node->ins[j])->dtype)));
    }
    return ASH_MIN(ash_target_lanes(k->low->target, widest), 32u);
}
