/* SPDX-License-Identifier: MIT */
/* Many nests that differ in numbers alone become one, which reads its numbers from memory.
 *
 *     add x, 0.1 -> b1[%i + 32]          add x, p[0] -> b1[%i + 16 * q[0]]      0.1  2    row of the first
 *     add x, 0.2 -> b1[%i + 64]    ->                                           0.2  4    of the second
 *     ... 5000 of them                   one nest, one kernel                   ...
 *
 * Constants of the graph and offsets of parts are immediates of a nest: that makes the best code, and lets
 * code generation fold them. But a graph that is cut into thousands of slices, or adds thousands of
 * numbers, would have as many kernels, and compiling one takes milliseconds. So where more than ALIKE
 * distinct nests have one outline, the numbers in which they differ become parameters. Where they are
 * fewer, they do so if that costs nothing: a factor, or what is added to a result, is loaded once and then
 * as good as an immediate; so the layers of a quantised network share kernels though their scales differ.
 * An offset costs an addition, and min, max and division are cheaper by a constant: few nests that differ
 * in these stay as they are.
 *
 *   outline   a nest without its free numbers. Free are floating point constants, integers that results are
 *             computed from, and what is added to an index. Not free is what shapes the loops: bounds,
 *             strides, divisors, masks. What is added to an index stays in the outline modulo TOGETHER, so
 *             that code generation knows of a parameter's multiple what it knew of the immediate: the
 *             alignment.
 *   once      a nest that the prologue alone runs. It does not matter there that a number costs a little:
 *             bounds, strides and divisors of scalars are free as well, and weights of many shapes are
 *             packed by one kernel. Loops that are laid out keep their bounds, vectors their divisors.
 *   varying   a free number that is not the same in all nests of an outline. One that differs from an
 *             earlier one by a constant (the offsets of the vectors of a tile) needs no parameter.
 *   settled   the value of a variable that data settle is in memory as well, where its step writes it. On
 *             CPUs nests may differ in which ones they mention, and load those from there: experts of a
 *             mixture, each of which finds its own rows, have the kernels of one.
 *   numbers   a constant buffer for each outline and dtype, with a row for each nest; a step that runs the
 *             nest gets a view of its row, and reads it as it reads any operand. The runtime knows nothing.
 *
 * Results keep their bits: a number takes part in the same operation, wherever it comes from. The one
 * exception is left alone: code generation exchanges the operands of min and max for a constant first
 * operand, and of zeros with different signs the other would win.
 *
 * Requires all steps; provides fewer nests. Linear in the instructions. */
#include "kern.h"

enum {
    ALIKE = 16,        /* so many nests of one outline keep immediates that are cheaper than parameters */
    TOGETHER = 16,     /* elements: what is added to an index is known modulo this */
    PARAMETERS = 64,   /* outlines with more of them keep their immediates */
    FEW_PARAMETERS = 8 /* the same, of ALIKE nests or fewer */
};

/* A use of a constant, directly or repeated over lanes. */
typedef struct number {
    uint64_t bits; /* of the i64, or of the f64 */
    ash_dtype dtype;
    unsigned lanes;
    uint8_t width;                /* ash_inst.width */
    bool is_float, free, indexes; /* indexes: is added to an index */
    bool cheaper;                 /* than a number from memory */
} number;

/* What a free number becomes: parameter `of` and `more` added to it, or what it is. */
typedef struct role {
    bool varies;
    uint32_t of;
    uint64_t more;
} role;

typedef struct parameter {
    uint32_t number; /* the first free number that it stands for */
    ash_dtype dtype;
    bool indexes; /* memory has it divided by TOGETHER, which is what `low` is lower by than the number */
    uint64_t low;
    uint32_t column; /* in its dtype's rows */
    uint16_t buffer; /* of the merged nest, that has it */
    ash_ref ref;     /* its value in the merged nest; ASH_NO_REF: not loaded here */
    size_t block;    /* that it was loaded in */
} parameter;

/* The nests of one outline. */
typedef struct kernel_family {
    ASH_VEC(uint64_t) words; /* the outline */
    ASH_VEC(uint32_t) nests;
    bool merged;
    uint32_t rows[ASH_DTYPE_COUNT]; /* merged: program buffers of the numbers, or ASH_NO_BUFFER */
    ash_nest nest;                  /* merged: what takes the place of the nests */
    uint32_t id;                    /* merged: and its index in the new list */
    ASH_VEC(uint32_t)
    variables; /* merged: for each nest as many settled ones as follow its rows; or none */
} kernel_family;

typedef struct sharer {
    ash_lowering *low;
    const ash_allocator *a;
    bool present_once; /* of the nest that is looked at, as are: */
    ASH_VEC(uint64_t) words;
    ASH_VEC(number) numbers;   /* its free ones, in the order of the words */
    ASH_VEC(bool) indexes;     /* per instruction: an address, bound or condition depends on it */
    ASH_VEC(uint32_t) names;   /* per instruction: its number without constants */
    ASH_VEC(uint32_t) settled; /* settled variables that it mentions, each once */
    ASH_VEC(kernel_family) families;
    bool *once;          /* per nest */
    uint32_t *family_of; /* per nest */
    uint32_t *row_of;    /* per nest: its place in the family */
    ash_map sizes;       /* of nests, to how many have them */
    ash_map ids;         /* hash of an outline to its family */
    /* of the family that is merged */
    ASH_VEC(uint64_t) bits; /* per nest: its free numbers */
    ASH_VEC(role) roles;    /* per free number */
    ASH_VEC(parameter) parameters;
    uint32_t columns[ASH_DTYPE_COUNT]; /* parameters of each dtype */
    bool failed;                       /* out of memory */
} sharer;

/* --- outlines --------------------------------------------------------------------------------------- */

/* The constant behind an operand, or NULL. */
static const ash_inst *constant_behind(const ash_nest *n, ash_ref ref) {
    const ash_inst *inst = ash_nest_at(n, ref);
    if (inst->op == ASH_NEST_SPLAT) inst = ash_nest_at(n, inst->a);
    return inst->op == ASH_NEST_INT || inst->op == ASH_NEST_FLOAT ? inst : NULL;
}

static bool is_memory(const ash_inst *inst) {
    _Static_assert(ASH_NEST_PREFETCH == ASH_NEST_LOAD + 5, "what accesses memory stands together");
    return inst->op >= ASH_NEST_LOAD && inst->op <= ASH_NEST_PREFETCH;
}

static void mark(sharer *s, ash_ref ref) {
    if (ref != ASH_NO_REF) s->indexes.at[ref] = true;
}

/* Marks what addresses, bounds and conditions are computed from; an operand comes before its use. */
static void find_indexes(sharer *s, const ash_nest *n) {
    memset(s->indexes.at, 0, n->code.len * sizeof *s->indexes.at);
    for (size_t i = n->code.len; i-- > 0;) {
        const ash_inst *inst = &n->code.at[i];
        if (is_memory(inst) || inst->op == ASH_NEST_TILE_LOAD) {
            mark(s, inst->a);
            mark(s, inst->b);
        } else if (s->indexes.at[i] || inst->op == ASH_NEST_COPY_ASYNC || ash_nest_is_tile(inst) ||
                   inst->op == ASH_NEST_LOOP || inst->op == ASH_NEST_IF ||
                   (inst->op == ASH_NEST_SET && s->indexes.at[inst->a])) {
            mark(s, inst->a);
            mark(s, inst->b);
            mark(s, inst->c);
        }
    }
}

/* The same in a nest that runs once, for integers. */
static bool is_free_once(const ash_inst *inst) {
    switch (inst->op) {
    case ASH_NEST_LOOP: return inst->unroll <= 1;
    case ASH_NEST_IDIV:
    case ASH_NEST_IMOD: return inst->lanes == 1;
    case ASH_NEST_COMPUTE:
        return inst->i == ASH_OP_ADD || inst->i == ASH_OP_SUB || inst->i == ASH_OP_MUL ||
               inst->i == ASH_OP_MIN || inst->i == ASH_OP_MAX || inst->i == ASH_OP_LT ||
               inst->i == ASH_OP_LE || inst->i == ASH_OP_EQ || inst->i == ASH_OP_SELECT;
    case ASH_NEST_CELL:
    case ASH_NEST_SET:
    case ASH_NEST_FMA: return true;
    default: return false;
    }
}

/* Whether operand `which` of instruction `user` may come from memory as well. */
static bool is_free(const sharer *s, const ash_nest *n, ash_ref user, unsigned which, const ash_inst *c) {
    const ash_inst *inst = &n->code.at[user];
    if (c->op == ASH_NEST_FLOAT) {
        bool exchanged =
            inst->op == ASH_NEST_COMPUTE && which == 0 && (inst->i == ASH_OP_MIN || inst->i == ASH_OP_MAX);
        return (c->dtype == ASH_F32 || c->dtype == ASH_F64) && !exchanged;
    }
    if (c->dtype == ASH_BOOL) return false;
    if (is_memory(inst)) return which != 1;
    if (s->present_once) return is_free_once(inst);
    switch (inst->op) {
    case ASH_NEST_COMPUTE: return !s->indexes.at[user] || inst->i == ASH_OP_ADD;
    case ASH_NEST_CELL:
    case ASH_NEST_SET:
    case ASH_NEST_FMA: return !s->indexes.at[user];
    default: return false;
    }
}

/* Whether an operator has cheaper code for a constant operand. */
static bool likes_constants(const ash_inst *inst, bool is_float) {
    if (inst->op != ASH_NEST_COMPUTE) return false;
    switch ((ash_op)inst->i) {
    case ASH_OP_ADD:
    case ASH_OP_SUB:
    case ASH_OP_EQ:
    case ASH_OP_LT:
    case ASH_OP_LE:
    case ASH_OP_SELECT: return false;
    case ASH_OP_MUL:
    case ASH_OP_DIV: return !is_float;
    default: return true;
    }
}

/* The constant that is operand `which` of instruction `user`, by way of `ref`. */
static number number_of(const sharer *s, const ash_nest *n, ash_ref user, unsigned which, ash_ref ref) {
    const ash_inst *c = constant_behind(n, ref);
    bool memory = is_memory(&n->code.at[user]);
    number out = {.dtype = (ash_dtype)c->dtype,
                  .lanes = ash_nest_at(n, ref)->lanes,
                  .width = ash_nest_at(n, ref)->width,
                  .is_float = c->op == ASH_NEST_FLOAT,
                  .free = is_free(s, n, user, which, c),
                  .indexes = memory ? which == 0 : s->indexes.at[user] && c->dtype == ASH_I64};
    out.cheaper = out.indexes || likes_constants(&n->code.at[user], out.is_float);
    if (s->present_once) out.indexes = out.cheaper = false;
    memcpy(&out.bits, &c->i, sizeof out.bits); /* of either member */
    return out;
}

static void put(sharer *s, uint64_t word) {
    s->failed |= !ash_vec_push(s->a, &s->words, word);
}

static void put_operand(sharer *s, const ash_nest *n, ash_ref user, unsigned which, ash_ref ref) {
    enum { NONE, RESULT, FIXED, FREE };
    const ash_inst *c = ref == ASH_NO_REF ? NULL : constant_behind(n, ref);
    if (!c) {
        put(s, ref == ASH_NO_REF ? NONE : RESULT | (uint64_t)s->names.at[ref] << 8);
        return;
    }
    number x = number_of(s, n, user, which, ref);
    uint64_t rest = x.indexes ? x.bits % TOGETHER : 0;
    put(s, (x.free ? FREE : FIXED) | (uint64_t)x.dtype << 8 | (uint64_t)x.lanes << 16 | rest << 32 |
               (uint64_t)x.is_float << 40 | (uint64_t)x.indexes << 41 | (uint64_t)x.width << 42);
    if (!x.free)
        put(s, x.bits);
    else
        s->failed |= !ash_vec_push(s->a, &s->numbers, x);
}

/* Whether an instruction is a settled variable: *place among those of the nest. */
static bool is_settled(sharer *s, const ash_inst *inst, uint32_t *place) {
    *place = 0;
    if (inst->op != ASH_NEST_VAR || s->low->target->kind != ASH_TARGET_CPU ||
        !ash_dims_var(s->low->program->dims, (size_t)inst->i)->settled ||
        ash_graph__settler(s->low->graph, (uint32_t)inst->i) == ASH_NO_VALUE)
        return false;
    while (*place < s->settled.len && s->settled.at[*place] != (uint32_t)inst->i) ++*place;
    if (*place == s->settled.len) s->failed |= !ash_vec_push(s->a, &s->settled, (uint32_t)inst->i);
    return true;
}

/* Fills the words of a nest, and lists its free numbers and settled variables. */
static void outline(sharer *s, uint32_t nest) {
    const ash_nest *n = &s->low->program->nests.at[nest];
    s->present_once = s->once[nest];
    s->words.len = s->numbers.len = s->names.len = s->indexes.len = s->settled.len = 0;
    if (!ash_vec_reserve(s->a, &s->names, n->code.len) ||
        !ash_vec_reserve(s->a, &s->indexes, n->code.len)) {
        s->failed = true;
        return;
    }
    find_indexes(s, n);
    put(s, s->present_once);
    uint32_t name = 0;
    for (ash_ref i = 0; i < n->code.len && !s->failed; i++) {
        const ash_inst *inst = &n->code.at[i];
        if (ash_nest_is_constant(n, inst))
            continue; /* its uses have a place in an outline, and it has none */
        s->names.at[i] = name++;
        put(s, inst->op | (uint64_t)inst->lanes << 16 | (uint64_t)inst->dtype << 32 |
                   (uint64_t)inst->buf << 48);
        put(s, inst->unroll | (uint64_t)inst->width << 32);
        uint32_t place;
        put(s, is_settled(s, inst, &place) ? ~(uint64_t)place : (uint64_t)inst->i);
        put_operand(s, n, i, 0, inst->a);
        put_operand(s, n, i, 1, inst->b);
        put_operand(s, n, i, 2, inst->c);
    }
    for (size_t i = 0; i < n->buffers.len; i++) {
        const ash_nest_buffer *b = &n->buffers.at[i];
        put(s, b->dtype | (uint64_t)b->group << 8 | (uint64_t)b->written << 24 | (uint64_t)b->align << 32);
    }
    for (size_t i = 0; i < n->shuffles.len; i++) put(s, (uint64_t)n->shuffles.at[i]);
    for (size_t i = 0; i < n->shared.len; i++)
        put(s, n->shared.at[i].dtype | (uint64_t)n->shared.at[i].count << 8);
    if (n->threads) put(s, n->threads | (uint64_t)n->resident << 32);
}

/* The family of the nest that has been outlined, a new one where there is none. */
static uint32_t family_of(sharer *s) {
    size_t size = s->words.len * sizeof *s->words.at;
    for (uint64_t seed = 0; !s->failed; seed++) {
        uint64_t hash = ash_hash(s->words.at, size, seed), id;
        if (ash_map_get(&s->ids, hash, &id)) {
            const kernel_family *f = &s->families.at[id];
            if (f->words.len == s->words.len && !memcmp(f->words.at, s->words.at, size))
                return (uint32_t)id;
            continue;
        }
        kernel_family f = {0};
        id = s->families.len;
        s->failed = !ash_vec_reserve(s->a, &f.words, s->words.len) || !ash_map_put(&s->ids, hash, id) ||
                    !ash_vec_push(s->a, &s->families, f);
        if (s->failed) {
            ash_vec_free(s->a, &f.words);
            break;
        }
        memcpy(f.words.at, s->words.at, size);
        f.words.len = s->words.len;
        s->families.at[id] = f;
        return (uint32_t)id;
    }
    return 0;
}

/* What nests of one outline have in common and is counted at once. */
static uint64_t size_of(const ash_nest *n) {
    uint32_t count = 0;
    for (ash_ref i = 0; i < n->code.len; i++) count += !ash_nest_is_constant(n, &n->code.at[i]);
    return (uint64_t)count << 32 ^ (uint64_t)n->shuffles.len << 16 ^ n->buffers.len;
}

/* Counts the nests of each size in s->sizes. */
static void count_sizes(sharer *s) {
    const ash_program *p = s->low->program;
    for (uint32_t i = 0; i < p->nests.len && !s->failed; i++) {
        uint64_t size = size_of(&p->nests.at[i]), count = 0;
        ash_map_get(&s->sizes, size, &count);
        s->failed = !ash_map_put(&s->sizes, size, count + 1);
    }
}

/* Fills the words of nest `i`: its outline, or its number (no outline is one word) where no other nest has
 * its size, or there is no code. */
static void describe(sharer *s, uint32_t i) {
    const ash_nest *n = &s->low->program->nests.at[i];
    uint64_t count = 0;
    if (!ash_nest_is_product(n) && ash_map_get(&s->sizes, size_of(n), &count) && count > 1) {
        outline(s, i);
        return;
    }
    s->words.len = 0;
    put(s, i);
}

/* Marks the nests that only steps of the prologue run. On GPUs there is none: code for them wants to know
 * what indices are multiples of. */
static void find_once(sharer *s) {
    const ash_program *p = s->low->program;
    if (s->failed) return;
    memset(s->once, 0, p->nests.len * sizeof *s->once);
    for (size_t i = 0; i < p->steps.len; i++)
        if (p->steps.at[i].kind == ASH_STEP_KERNEL)
            s->once[p->steps.at[i].nest] = i < p->prologue && p->target.kind == ASH_TARGET_CPU;
}

static void find_families(sharer *s) {
    const ash_program *p = s->low->program;
    find_once(s);
    count_sizes(s);
    for (uint32_t i = 0; i < p->nests.len && !s->failed; i++) {
        describe(s, i);
        if (s->failed) return;
        uint32_t id = s->family_of[i] = family_of(s);
        if (s->failed) return;
        s->row_of[i] = (uint32_t)s->families.at[id].nests.len;
        s->failed |= !ash_vec_push(s->a, &s->families.at[id].nests, i);
    }
}

/* --- parameters ------------------------------------------------------------------------------------- */

/* Lists the free numbers of all nests of a family, and leaves what they are in s->numbers; and their
 * settled variables where these are not the same. */
static void read_numbers(sharer *s, kernel_family *f) {
    bool differ = false;
    s->bits.len = 0;
    for (size_t k = 0; k < f->nests.len && !s->failed; k++) {
        outline(s, f->nests.at[k]);
        for (size_t i = 0; i < s->numbers.len; i++)
            s->failed |= !ash_vec_push(s->a, &s->bits, s->numbers.at[i].bits);
        for (size_t i = 0; i < s->settled.len && !s->failed; i++) {
            s->failed |= !ash_vec_push(s->a, &f->variables, s->settled.at[i]);
            differ |= f->variables.at[i] != s->settled.at[i];
        }
    }
    if (!differ) f->variables.len = 0;
}

/* Whether number `i` is number `j` and something constant in all nests: *more. */
static bool keeps_distance(const sharer *s, const kernel_family *f, size_t i, size_t j, uint64_t *more) {
    const uint64_t *bits = s->bits.at;
    size_t count = s->numbers.len;
    *more = bits[i] - bits[j];
    if (*more && s->numbers.at[i].dtype != ASH_I64) return false;
    for (size_t k = 1; k < f->nests.len; k++)
        if (bits[k * count + i] - bits[k * count + j] != *more) return false;
    return true;
}

static bool is_constant_number(const sharer *s, const kernel_family *f, size_t i) {
    for (size_t k = 1; k < f->nests.len; k++)
        if (s->bits.at[k * s->numbers.len + i] != s->bits.at[i]) return false;
    return true;
}

/* Gives each free number its role. False when there are too many parameters. */
static bool find_parameters(sharer *s, const kernel_family *f) {
    s->roles.len = s->parameters.len = 0;
    memset(s->columns, 0, sizeof s->columns);
    for (size_t i = 0; i < s->numbers.len && !s->failed; i++) {
        const number *x = &s->numbers.at[i];
        role r = {.varies = !is_constant_number(s, f, i), .of = (uint32_t)s->parameters.len};
        bool found = !r.varies;
        for (uint32_t q = 0; q < s->parameters.len && !found; q++) {
            const parameter *p = &s->parameters.at[q];
            found = p->dtype == x->dtype && p->indexes == x->indexes &&
                    s->numbers.at[p->number].is_float == x->is_float &&
                    keeps_distance(s, f, i, p->number, &r.more);
            if (found) r.of = q, r.more += p->low;
        }
        if (!found) {
            if (s->parameters.len == PARAMETERS) return false;
            parameter p = {.number = (uint32_t)i, .dtype = x->dtype, .indexes = x->indexes};
            p.low = r.more = x->indexes ? x->bits % TOGETHER : 0;
            p.column = s->columns[x->dtype]++;
            s->failed |= !ash_vec_push(s->a, &s->parameters, p);
        }
        s->failed |= !ash_vec_push(s->a, &s->roles, r);
    }
    return true;
}

/* Whether few nests lose nothing by becoming one. */
static bool is_free_of_charge(const sharer *s) {
    for (size_t i = 0; i < s->numbers.len; i++)
        if (s->roles.at[i].varies && s->numbers.at[i].cheaper) return false;
    return s->present_once || s->parameters.len <= FEW_PARAMETERS;
}

/* --- the merged nest -------------------------------------------------------------------------------- */

static ash_ref emit_constant(ash_nest *n, const number *x) {
    int64_t i;
    double f;
    memcpy(&i, &x->bits, sizeof i);
    memcpy(&f, &x->bits, sizeof f);
    return x->is_float ? ash_nest_float(n, x->dtype, f) : ash_nest_int(n, x->dtype, i);
}

/* A buffer for the numbers of each dtype. */
static void add_buffers(sharer *s, ash_nest *n) {
    uint16_t buffers[ASH_DTYPE_COUNT] = {0};
    for (unsigned d = 0; d < ASH_DTYPE_COUNT; d++)
        if (s->columns[d])
            buffers[d] = ash_nest_buffer_add(n, (ash_nest_buffer){.dtype = (ash_dtype)d,
                                                                  .align = (uint32_t)ash_dtype_size(d),
                                                                  .group = (uint16_t)n->buffers.len});
    for (size_t i = 0; i < s->parameters.len; i++) {
        s->parameters.at[i].buffer = buffers[s->parameters.at[i].dtype];
        s->parameters.at[i].ref = ASH_NO_REF;
    }
}

static void load_parameter(ash_nest *n, parameter *p, size_t block) {
    p->ref = ash_nest_load(n, p->buffer, ash_nest_index(n, p->column), 1, ASH_NO_REF);
    if (p->indexes) p->ref = ash_nest_binary(n, ASH_OP_MUL, p->ref, ash_nest_index(n, TOGETHER));
    p->block = block;
}

/* One more for each settled variable; the first one's number. */
static uint16_t add_settled(const kernel_family *f, ash_nest *n) {
    const uint16_t first = (uint16_t)n->buffers.len;
    for (size_t i = 0; i < f->variables.len / f->nests.len; i++)
        ash_nest_buffer_add(n, (ash_nest_buffer){.dtype = ASH_I64,
                                                 .align = sizeof(int64_t),
                                                 .group = (uint16_t)n->buffers.len});
    return first;
}

/* The merged nest while it is written, from the first of its family. */
typedef struct writing {
    sharer *s;
    const ash_nest *from;
    ash_nest *nest;
    ash_ref *to; /* per instruction of the first: its result in the merged one */
    bool loads;  /* settled variables come from buffers, the first of which is: */
    uint16_t settled;
    size_t next_free; /* number */
    size_t block;     /* loops and conditions around what is written */
} writing;

/* Before all else, for what shapes addresses, and on GPUs; otherwise in the block where it is asked for
 * first, and once more when that has ended: behind a tile's loop it takes no register there. */
static ash_ref parameter_here(writing *w, parameter *p) {
    if (p->ref == ASH_NO_REF) load_parameter(w->nest, p, w->block);
    return p->ref;
}

static void enter_or_leave(writing *w, const ash_inst *inst) {
    bool ends = inst->op == ASH_NEST_END || inst->op == ASH_NEST_ELSE;
    for (size_t i = 0; i < w->s->parameters.len && ends; i++) {
        parameter *p = &w->s->parameters.at[i];
        if (p->block == w->block) p->ref = ASH_NO_REF;
    }
    w->block -= inst->op == ASH_NEST_END;
    w->block += inst->op == ASH_NEST_LOOP || inst->op == ASH_NEST_IF;
}

static ash_ref emit_operand(writing *w, ash_ref user, unsigned which, ash_ref ref) {
    if (ref == ASH_NO_REF) return ref;
    if (!constant_behind(w->from, ref)) return w->to[ref];
    number x = number_of(w->s, w->from, user, which, ref);
    const role *r = x.free ? &w->s->roles.at[w->next_free++] : NULL;
    ash_ref value;
    if (r && r->varies) {
        value = parameter_here(w, &w->s->parameters.at[r->of]);
        if (r->more)
            value = ash_nest_binary(w->nest, ASH_OP_ADD, value, ash_nest_index(w->nest, (int64_t)r->more));
    } else {
        value = emit_constant(w->nest, &x);
    }
    value = ash_nest_splat(w->nest, value, x.lanes);
    if (!w->nest->failed) w->nest->code.at[value].width = x.width; /* the same in the whole family */
    return value;
}

static void emit_code(writing *w) {
    for (ash_ref i = 0; i < w->from->code.len; i++) {
        ash_inst inst = w->from->code.at[i];
        uint32_t place;
        if (ash_nest_is_constant(w->from, &inst)) continue;
        if (w->loads && is_settled(w->s, &inst, &place)) {
            const uint16_t buffer = (uint16_t)(w->settled + place);
            w->to[i] = ash_nest_load(w->nest, buffer, ash_nest_index(w->nest, 0), 1, ASH_NO_REF);
            if (!w->nest->failed) w->nest->code.at[w->to[i]].width = inst.width;
            continue;
        }
        inst.a = emit_operand(w, i, 0, inst.a);
        inst.b = emit_operand(w, i, 1, inst.b);
        inst.c = emit_operand(w, i, 2, inst.c);
        w->to[i] = ash_nest_add(w->nest, inst);
        enter_or_leave(w, &inst);
    }
}

static ash_status emit_merged(sharer *s, kernel_family *f) {
    ash_diag *diag = s->low->diag;
    writing w = {.s = s, .from = &s->low->program->nests.at[f->nests.at[0]], .nest = &f->nest};
    const size_t length = w.from->code.len, shuffles = w.from->shuffles.len;
    outline(s, f->nests.at[0]); /* indexes are its own again */
    if (s->failed || !ash_vec_reserve(s->a, &w.nest->shuffles, shuffles)) return ASH_NO_MEMORY(diag);
    if (shuffles) memcpy(w.nest->shuffles.at, w.from->shuffles.at, shuffles * sizeof(int32_t));
    w.nest->shuffles.len = shuffles;
    w.to = ash_mem_alloc(s->a, length, sizeof *w.to);
    if (!w.to) return ASH_NO_MEMORY(diag);
    for (size_t i = 0; i < w.from->buffers.len; i++) ash_nest_buffer_add(w.nest, w.from->buffers.at[i]);
    for (size_t i = 0; i < w.from->shared.len; i++)
        ash_nest_shared_add(w.nest, w.from->shared.at[i].dtype, w.from->shared.at[i].count);
    w.nest->threads = w.from->threads;
    w.nest->resident = w.from->resident;
    w.nest->polls = w.from->polls;
    add_buffers(s, w.nest);
    w.loads = f->variables.len != 0;
    w.settled = add_settled(f, w.nest);
    const bool behind = s->low->target->kind == ASH_TARGET_CPU;
    for (size_t i = 0; i < s->parameters.len; i++)
        if (!behind || s->parameters.at[i].indexes) load_parameter(w.nest, &s->parameters.at[i], 0);
    emit_code(&w);
    ash_mem_free(s->a, w.to, length, sizeof *w.to);
    ASH_TRY(ash_nest_status(w.nest, diag));
    return ash_nest_verify(w.nest, diag);
}

/* --- the numbers ------------------------------------------------------------------------------------ */

/* Parameter `p` of nest `k` of the family, as memory has it. */
static void store_number(const sharer *s, const parameter *p, size_t k, void *at) {
    const number *x = &s->numbers.at[p->number];
    uint64_t bits = s->bits.at[k * s->numbers.len + p->number];
    int64_t i;
    double f;
    if (p->indexes) bits -= p->low;
    memcpy(&i, &bits, sizeof i);
    memcpy(&f, &bits, sizeof f);
    if (p->indexes) i /= TOGETHER; /* without a rest */
    ash_wide wide = {.dtype = x->dtype, .count = 1};
    if (x->is_float)
        wide.f = &f;
    else
        wide.i = &i;
    ash_wide_store(&wide, at);
}

static ash_status add_rows(sharer *s, kernel_family *f, ash_dtype dtype) {
    ash_program *p = s->low->program;
    const size_t size = ash_dtype_size(dtype), row = s->columns[dtype] * size, bytes = row * f->nests.len;
    ash_buffer buffer = {
        .kind = ASH_BUFFER_CONSTANT,
        .type = {.dtype = dtype, .rank = 2, .dims = {(ash_dim)f->nests.len, s->columns[dtype]}},
        .bytes = (int64_t)bytes,
        .align = (uint32_t)s->low->target->costs.align_bytes,
        .value = ASH_NO_VALUE,
        .origin = ASH_NO_VALUE,
        .root = ASH_NO_BUFFER};
    ASH_TRY(ash_blob_create_owned(p->allocator, bytes, &buffer.blob, s->low->diag));
    f->rows[dtype] = (uint32_t)p->buffers.len;
    if (!ash_vec_push(p->allocator, &p->buffers, buffer)) {
        ash_blob_release(buffer.blob);
        return ASH_NO_MEMORY(s->low->diag);
    }
    for (size_t k = 0; k < f->nests.len; k++)
        for (size_t i = 0; i < s->parameters.len; i++) {
            const parameter *q = &s->parameters.at[i];
            if (q->dtype == dtype)
                store_number(s, q, k, (char *)buffer.blob->data + k * row + q->column * size);
        }
    return ASH_OK;
}

static ash_status merge(sharer *s, kernel_family *f) {
    read_numbers(s, f);
    if (s->failed) return ASH_NO_MEMORY(s->low->diag);
    if (!find_parameters(s, f)) return ASH_OK;
    if (s->failed) return ASH_NO_MEMORY(s->low->diag);
    if (f->nests.len <= ALIKE && !is_free_of_charge(s)) return ASH_OK;
    f->merged = true;
    ash_nest_init(&f->nest, s->a);
    ASH_TRY(emit_merged(s, f));
    for (unsigned d = 0; d < ASH_DTYPE_COUNT; d++) {
        f->rows[d] = ASH_NO_BUFFER;
        if (s->columns[d]) ASH_TRY(add_rows(s, f, (ash_dtype)d));
    }
    return ASH_OK;
}

/* --- the program ------------------------------------------------------------------------------------ */

/* The view of a nest's row. */
static ash_status add_view(sharer *s, uint32_t rows, uint32_t row, uint32_t *out) {
    ash_program *p = s->low->program;
    ash_buffer view = p->buffers.at[rows];
    int64_t bytes = view.bytes / view.type.dims[0];
    view.type = (ash_type){.dtype = view.type.dtype, .rank = 1, .dims = {view.type.dims[1]}};
    view.align = (uint32_t)ash_dtype_size(view.type.dtype);
    view.blob = NULL;
    view.root = rows;
    view.offset = row * bytes;
    view.bytes = bytes;
    *out = (uint32_t)p->buffers.len;
    return ash_vec_push(p->allocator, &p->buffers, view) ? ASH_OK : ASH_NO_MEMORY(s->low->diag);
}

/* Makes a step run the merged nest on its row. */
static ash_status redirect(sharer *s, ash_step *step) {
    ash_program *p = s->low->program;
    const kernel_family *f = &s->families.at[s->family_of[step->nest]];
    uint32_t row = s->row_of[step->nest], more = 0;
    for (unsigned d = 0; d < ASH_DTYPE_COUNT; d++) more += f->rows[d] != ASH_NO_BUFFER;
    const size_t settled = f->variables.len / f->nests.len;
    uint32_t *buffers = ash_arena_alloc(&p->arena, step->n_buffers + more + settled, sizeof *buffers);
    ash_access *accesses = ash_arena_alloc(&p->arena, step->n_accesses + more, sizeof *accesses);
    if (!buffers || !accesses) return ASH_NO_MEMORY(s->low->diag);
    memcpy(buffers, step->buffers, step->n_buffers * sizeof *buffers);
    memcpy(accesses, step->accesses, step->n_accesses * sizeof *accesses);
    for (unsigned d = 0; d < ASH_DTYPE_COUNT; d++) {
        uint32_t view;
        if (f->rows[d] == ASH_NO_BUFFER) continue;
        ASH_TRY(add_view(s, f->rows[d], row, &view));
        buffers[step->n_buffers++] = view;
        accesses[step->n_accesses++] = (ash_access){view, false, 0, p->buffers.at[view].bytes};
    }
    for (size_t i = 0; i < settled; i++) { /* the step's records have it (settle.c) */
        ash_value value = ash_graph__settler(s->low->graph, f->variables.at[row * settled + i]);
        buffers[step->n_buffers++] = s->low->places[value].buffer;
    }
    step->buffers = buffers;
    step->accesses = accesses;
    step->nest = f->id;
    return ASH_OK;
}

/* Makes steps name nests by the numbers that they will have: a merged nest stands where the first stood
 * that it was made from. `to` has room for each nest. */
static ash_status redirect_all(sharer *s, uint32_t *to) {
    ash_program *p = s->low->program;
    uint32_t count = 0;
    for (uint32_t i = 0; i < p->nests.len; i++) {
        kernel_family *f = &s->families.at[s->family_of[i]];
        to[i] = f->merged && s->row_of[i] ? f->id : count++;
        if (!s->row_of[i]) f->id = to[i];
    }
    for (size_t i = 0; i < p->steps.len; i++) {
        ash_step *step = &p->steps.at[i];
        if (step->kind != ASH_STEP_KERNEL) continue;
        if (s->families.at[s->family_of[step->nest]].merged)
            ASH_TRY(redirect(s, step));
        else
            step->nest = to[step->nest];
    }
    return ASH_OK;
}

static void replace_nests(sharer *s) {
    ash_program *p = s->low->program;
    size_t kept = 0;
    for (uint32_t i = 0; i < p->nests.len; i++) {
        kernel_family *f = &s->families.at[s->family_of[i]];
        ash_nest nest = p->nests.at[i];
        if (f->merged) {
            ash_nest_free(&nest);
            if (s->row_of[i]) continue;
            nest = f->nest;
            ash_nest_init(&f->nest, s->a);
        }
        p->nests.at[kept++] = nest;
    }
    p->nests.len = kept;
}

static ash_status rebuild(sharer *s) {
    const size_t count = s->low->program->nests.len;
    uint32_t *to = ash_mem_alloc(s->a, count, sizeof *to);
    ash_status status = to ? redirect_all(s, to) : ASH_NO_MEMORY(s->low->diag);
    if (status == ASH_OK) replace_nests(s);
    ash_mem_free(s->a, to, count, sizeof *to);
    return status;
}

static ash_status share(sharer *s) {
    bool any = false;
    find_families(s);
    if (s->failed) return ASH_NO_MEMORY(s->low->diag);
    for (size_t i = 0; i < s->families.len; i++) {
        kernel_family *f = &s->families.at[i];
        if (f->nests.len > 1) ASH_TRY(merge(s, f));
        any |= f->merged;
    }
    return any ? rebuild(s) : ASH_OK;
}

ash_status ash_lower__share_nests(ash_lowering *low) {
    const ash_program *p = low->program;
    const size_t count = p->nests.len;
    if (count < 2) return ASH_OK;
    sharer s = {.low = low, .a = low->allocator};
    ash_map_init(&s.sizes, s.a);
    ash_map_init(&s.ids, s.a);
    s.once = ash_mem_alloc(s.a, count, sizeof *s.once);
    s.family_of = ash_mem_alloc(s.a, count, sizeof *s.family_of);
    s.row_of = ash_mem_alloc(s.a, count, sizeof *s.row_of);
    s.failed = !s.once || !s.family_of || !s.row_of;
    ash_status status = share(&s);
    for (size_t i = 0; i < s.families.len; i++) {
        ash_vec_free(s.a, &s.families.at[i].words);
        ash_vec_free(s.a, &s.families.at[i].nests);
        ash_vec_free(s.a, &s.families.at[i].variables);
        if (s.families.at[i].merged) ash_nest_free(&s.families.at[i].nest);
    }
    ash_vec_free(s.a, &s.families);
    ash_vec_free(s.a, &s.words);
    ash_vec_free(s.a, &s.numbers);
    ash_vec_free(s.a, &s.indexes);
    ash_vec_free(s.a, &s.names);
    ash_vec_free(s.a, &s.settled);
    ash_vec_free(s.a, &s.bits);
    ash_vec_free(s.a, &s.roles);
    ash_vec_free(s.a, &s.parameters);
    ash_map_free(&s.sizes);
    ash_map_free(&s.ids);
    ash_mem_free(s.a, s.once, count, sizeof *s.once);
    ash_mem_free(s.a, s.family_of, count, sizeof *s.family_of);
    ash_mem_free(s.a, s.row_of, count, sizeof *s.row_of);
    return status;
}
