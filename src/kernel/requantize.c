/* SPDX-License-Identifier: MIT */
/* nest → a nest whose bytes are quantised with fewer instructions
 *
 *     y = cast(round(x) + zero)
 *
 * x is taken apart as far as its formula is of numbers and at most two bytes, else as far as the quotient
 * that it is made of, and where there is a form of it (quanta.h), that is computed in its place: two
 * multiply-adds for a sum or product of two bytes, a multiplication and a multiply-add for a division.
 * Results keep their bits. A cast of what is small says so (ash_inst.unroll), and what is left without use
 * goes.
 *
 * Before nests that are alike but for numbers become one (share.c): what a form has of them are factors,
 * and what is added, which may as well come from memory. Not in the prologue, which runs once. Needs fused
 * multiply-adds. */
#include "kern.h"

enum { ZERO_MOST = 255, DEPTH = 64 };

/* A formula of what is rounded, and where the nest has it. */
typedef struct formula {
    const ash_nest *nest;
    ash_quanta q;
    ash_ref refs[ASH_QUANTA_STEPS]; /* what each step is */
    ash_ref bytes[ASH_QUANTA_BYTES];
} formula;

/* A cast, and what it becomes. */
typedef struct found {
    ash_ref cast;
    ash_quanta_form form;
    ash_ref x;                       /* what is rounded; it is computed anew unless the form is none */
    ash_ref bytes[ASH_QUANTA_BYTES]; /* PLANE, PRODUCT; ASH_NO_REF: there is one alone */
    ash_ref dividend;                /* DIVIDEND, QUOTIENT */
    ash_ref chain[ASH_QUANTA_STEPS]; /* QUOTIENT: what is done to it, from x down */
    unsigned n_chain;
} found;

typedef struct requantize {
    const ash_target *target;
    ash_quanta_known *known;
    ash_nest *nest;
    ASH_VEC(found) all;
} requantize;

static const ash_inst *inst_of(const ash_nest *n, ash_ref ref) {
    return ash_nest_at(n, ref);
}

static bool computes(const ash_inst *inst, ash_op op) {
    return inst->op == ASH_NEST_COMPUTE && inst->i == (int64_t)op;
}

static bool is_byte(const ash_inst *inst) {
    return inst->dtype == ASH_U8 || inst->dtype == ASH_I8;
}

/* A number, in each lane the same, that f32 has. */
static bool is_number(const ash_nest *n, ash_ref ref, double *number) {
    const ash_inst *inst = inst_of(n, ref);
    if (inst->op == ASH_NEST_SPLAT) inst = inst_of(n, inst->a);
    if (inst->op != ASH_NEST_FLOAT && inst->op != ASH_NEST_INT) return false;
    *number = inst->op == ASH_NEST_FLOAT ? (double)(float)inst->f : (double)inst->i;
    return inst->op == ASH_NEST_FLOAT || (inst->i >= -(1 << 24) && inst->i <= 1 << 24);
}

/* --- taking x apart ----------------------------------------------------------------------------------- */

static void start(formula *f) {
    f->q.count = f->q.bytes = 0;
    memset(f->q.steps, 0, sizeof f->q.steps);
    memset(f->q.low, 0, sizeof f->q.low);
}

/* Adds a step; its number, or -1: no room. */
static int add_step(formula *f, ash_ref ref, ash_quanta_op op, int a, int b, double number) {
    ash_quanta *q = &f->q;
    if (q->count == ASH_QUANTA_STEPS) return -1;
    f->refs[q->count] = ref;
    q->steps[q->count] = (ash_quanta_step){.op = (uint8_t)op,
                                           .whole = inst_of(f->nest, ref)->dtype == ASH_I32,
                                           .a = (int8_t)a,
                                           .b = (int8_t)b,
                                           .number = (float)number};
    return (int)q->count++;
}

static int add_byte(formula *f, ash_ref ref) {
    ash_quanta *q = &f->q;
    if (q->bytes == ASH_QUANTA_BYTES) return -1;
    q->low[q->bytes] = inst_of(f->nest, ref)->dtype == ASH_U8 ? 0 : -128;
    f->bytes[q->bytes] = ref;
    return add_step(f, ref, ASH_QUANTA_BYTE, (int)q->bytes++, -1, 0);
}

static bool operation(const ash_inst *inst, ash_quanta_op *op) {
    static const struct {
        ash_op of;
        ash_quanta_op is;
    } rows[] = {{ASH_OP_ADD, ASH_QUANTA_ADD},    {ASH_OP_SUB, ASH_QUANTA_SUB}, {ASH_OP_MUL, ASH_QUANTA_MUL},
                {ASH_OP_DIV, ASH_QUANTA_DIV},    {ASH_OP_MAX, ASH_QUANTA_MAX}, {ASH_OP_MIN, ASH_QUANTA_MIN},
                {ASH_OP_ROUND, ASH_QUANTA_ROUND}};
    for (size_t i = 0; i < ASH_COUNT(rows); i++) {
        if (!computes(inst, rows[i].of)) continue;
        *op = rows[i].is;
        return inst->dtype == ASH_F32 || (inst->dtype == ASH_I32 && *op != ASH_QUANTA_DIV);
    }
    return false;
}

/* The step that a value is; -1: it is not made of numbers and two bytes, or of too many. */
static int add_value(formula *f, ash_ref ref, unsigned depth) {
    const ash_inst *inst = inst_of(f->nest, ref);
    double number;
    ash_quanta_op op;
    if (depth == DEPTH) return -1;
    for (unsigned s = 0; s < f->q.count; s++)
        if (f->refs[s] == ref) return (int)s;
    if (is_number(f->nest, ref, &number)) return add_step(f, ref, ASH_QUANTA_NUMBER, -1, -1, number);
    if (inst->op == ASH_NEST_SPLAT) return add_value(f, inst->a, depth + 1);
    if (is_byte(inst)) return add_byte(f, ref);
    if (computes(inst, ASH_OP_CAST)) {
        const ash_inst *from = inst_of(f->nest, inst->a);
        const bool kept = is_byte(from) || from->dtype == ASH_I32;
        const bool takes = kept && (inst->dtype == ASH_I32 || inst->dtype == ASH_F32);
        return takes ? add_value(f, inst->a, depth + 1) : -1;
    }
    if (!operation(inst, &op)) return -1;
    const int a = add_value(f, inst->a, depth + 1);
    if (a < 0) return -1;
    const int b = inst->b == ASH_NO_REF ? -1 : add_value(f, inst->b, depth + 1);
    return b < 0 && inst->b != ASH_NO_REF ? -1 : add_step(f, ref, op, a, b, 0);
}

/* x as a formula of bytes, the first one in `lanes`; the second one may be the same in all lanes. */
static bool take_bytes(formula *f, ash_ref x, unsigned lanes) {
    ash_quanta *q = &f->q;
    start(f);
    f->bytes[1] = ASH_NO_REF;
    const int last = add_value(f, x, 0);
    if (last < 0 || last + 1 != (int)q->count || q->bytes == 0) return false;
    const ash_ref first = f->bytes[0];
    if (q->bytes == 2 && inst_of(f->nest, first)->lanes < inst_of(f->nest, f->bytes[1])->lanes) {
        const int32_t low = q->low[0];
        f->bytes[0] = f->bytes[1], f->bytes[1] = first;
        q->low[0] = q->low[1], q->low[1] = low;
        for (unsigned s = 0; s < q->count; s++)
            if (q->steps[s].op == ASH_QUANTA_BYTE) q->steps[s].a ^= 1;
    }
    return inst_of(f->nest, f->bytes[0])->lanes == lanes;
}

/* x as a formula of what is divided by a number, and then by numbers alone. */
static bool take_quotient(formula *f, ash_ref x, found *out) {
    double number;
    ash_quanta_op op = ASH_QUANTA_ADD;
    unsigned n = 0;
    for (ash_ref ref = x; op != ASH_QUANTA_DIV; ref = inst_of(f->nest, ref)->a) {
        const ash_inst *inst = inst_of(f->nest, ref);
        if (inst->dtype != ASH_F32 || !operation(inst, &op) || inst->b == ASH_NO_REF ||
            !is_number(f->nest, inst->b, &number) || 2 * n + 3 > ASH_QUANTA_STEPS)
            return false;
        out->chain[n++] = ref;
    }
    start(f);
    out->n_chain = n - 1;
    out->dividend = inst_of(f->nest, out->chain[n - 1])->a;
    int at = add_step(f, out->dividend, ASH_QUANTA_ANY, -1, -1, 0);
    while (n-- > 0) {
        const ash_inst *inst = inst_of(f->nest, out->chain[n]);
        operation(inst, &op), is_number(f->nest, inst->b, &number);
        const int by = add_step(f, inst->b, ASH_QUANTA_NUMBER, -1, -1, number);
        at = add_step(f, out->chain[n], op, at, by, 0);
    }
    return true;
}

/* round(x), or that and a whole number; else false. */
static bool take_round(const ash_nest *n, ash_ref ref, ash_ref *x, double *zero) {
    const ash_inst *inst = inst_of(n, ref);
    *zero = 0;
    if ((computes(inst, ASH_OP_ADD) || computes(inst, ASH_OP_SUB)) && is_number(n, inst->b, zero)) {
        if (computes(inst, ASH_OP_SUB)) *zero = -*zero;
        inst = inst_of(n, inst->a);
    }
    *x = inst->a;
    return computes(inst, ASH_OP_ROUND) && inst->dtype == ASH_F32 && *zero >= -ZERO_MOST &&
           *zero <= ZERO_MOST && *zero == (int)*zero;
}

/* --- finding ------------------------------------------------------------------------------------------ */

/* The form of a formula; those that were looked for lately are known. */
static ash_status form_of(requantize *r, const ash_quanta *q, ash_quanta_form *out, ash_diag *diag) {
    ash_quanta_known *k = r->known;
    for (unsigned i = 0; i < ASH_COUNT(k->q); i++)
        if (!memcmp(&k->q[i], q, sizeof *q)) {
            *out = k->form[i];
            return ASH_OK;
        }
    if (!ash_quanta__find(r->nest->allocator, q, out)) return ASH_NO_MEMORY(diag);
    const unsigned at = k->next++ % ASH_COUNT(k->q);
    k->q[at] = *q, k->form[at] = *out;
    return ASH_OK;
}

static ash_status look_at(requantize *r, ash_ref cast, ash_diag *diag) {
    const ash_inst *inst = inst_of(r->nest, cast);
    double zero;
    formula f;
    found new = {.cast = cast, .dividend = ASH_NO_REF};
    if (!computes(inst, ASH_OP_CAST) || !is_byte(inst) || inst_of(r->nest, inst->a)->dtype != ASH_F32 ||
        !take_round(r->nest, inst->a, &new.x, &zero))
        return ASH_OK;
    memset(&f, 0, sizeof f); /* formulas are compared by their bytes */
    f.nest = r->nest, f.q.zero = (int32_t)zero, f.q.to = (ash_dtype)inst->dtype;
    bool small = false;
    if (take_bytes(&f, new.x, inst->lanes)) {
        ASH_TRY(form_of(r, &f.q, &new.form, diag));
        memcpy(new.bytes, f.bytes, sizeof new.bytes);
        if (new.form.kind == ASH_QUANTA_DIVIDEND) new.dividend = f.refs[new.form.at];
        small = new.form.small;
    }
    if (new.form.kind == ASH_QUANTA_NONE && take_quotient(&f, new.x, &new))
        ASH_TRY(form_of(r, &f.q, &new.form, diag));
    if (new.form.kind == ASH_QUANTA_NONE) {
        new.form.zero = (int32_t)zero;
        new.form.low = inst->dtype == ASH_I8 ? -128 : 0;
        new.form.high = new.form.low + 255;
    }
    new.form.small = small;
    if (new.form.kind == ASH_QUANTA_NONE && !small) return ASH_OK;
    return ash_vec_push(r->nest->allocator, &r->all, new) ? ASH_OK : ASH_NO_MEMORY(diag);
}

/* --- rewriting ---------------------------------------------------------------------------------------- */

/* Whether an instruction is nothing but its result. */
static bool is_value(const ash_inst *inst) {
    return inst->op == ASH_NEST_COMPUTE || inst->op == ASH_NEST_SPLAT || inst->op == ASH_NEST_INT ||
           inst->op == ASH_NEST_FLOAT;
}

static void use(bool *used, ash_ref ref) {
    if (ref != ASH_NO_REF) used[ref] = true;
}

/* Marks what is still used: operands come before their uses. */
static void find_used(const requantize *r, bool *used) {
    size_t next = r->all.len;
    for (size_t i = r->nest->code.len; i-- > 0;) {
        const ash_inst *inst = &r->nest->code.at[i];
        const found *f = next && r->all.at[next - 1].cast == i ? &r->all.at[--next] : NULL;
        used[i] |= !is_value(inst);
        if (!used[i]) continue;
        if (!f) {
            use(used, inst->a), use(used, inst->b), use(used, inst->c);
        } else if (f->form.kind == ASH_QUANTA_PLANE || f->form.kind == ASH_QUANTA_PRODUCT) {
            use(used, f->bytes[0]), use(used, f->bytes[1]);
        } else {
            use(used, f->form.kind == ASH_QUANTA_NONE ? f->x : f->dividend);
            for (unsigned k = 0; k < f->n_chain && f->form.kind == ASH_QUANTA_QUOTIENT; k++)
                use(used, inst_of(r->nest, f->chain[k])->b);
        }
    }
}

/* The nest that is written, with its instructions by those of the old one. */
typedef struct rewriting {
    ash_nest *to;
    const ash_ref *map;
    unsigned lanes;
} rewriting;

static ash_ref number(const rewriting *w, double value, unsigned lanes) {
    return ash_nest_splat(w->to, ash_nest_float(w->to, ASH_F32, value), lanes);
}

static ash_ref real(const rewriting *w, ash_ref byte) {
    return ash_nest_cast(w->to, ASH_F32, ash_nest_cast(w->to, ASH_I32, w->map[byte]));
}

/* p[0] times the second byte and p[1], in all lanes; without one that is a number. */
static ash_ref line_of(const rewriting *w, ash_ref byte, const float *p) {
    if (byte == ASH_NO_REF) return number(w, (double)p[1], w->lanes);
    ash_ref b = real(w, byte);
    const unsigned lanes = ash_nest_at(w->to, b)->lanes;
    b = ash_nest_fma(w->to, b, number(w, (double)p[0], lanes), number(w, (double)p[1], lanes));
    return lanes == w->lanes ? b : ash_nest_splat(w->to, b, w->lanes);
}

static ash_ref write_x(const rewriting *w, const requantize *r, const found *f) {
    const float *p = f->form.p;
    ash_nest *to = w->to;
    ash_ref x;
    switch (f->form.kind) {
    case ASH_QUANTA_PLANE:
        return ash_nest_fma(to, real(w, f->bytes[0]), number(w, (double)p[0], w->lanes),
                            line_of(w, f->bytes[1], p + 1));
    case ASH_QUANTA_PRODUCT:
        x = ash_nest_binary(to, ASH_OP_SUB, real(w, f->bytes[0]), number(w, (double)p[0], w->lanes));
        return ash_nest_fma(to, x, line_of(w, f->bytes[1], p + 1), number(w, (double)p[3], w->lanes));
    case ASH_QUANTA_DIVIDEND:
        x = inst_of(r->nest, f->dividend)->dtype == ASH_F32 ? w->map[f->dividend] : real(w, f->dividend);
        if (ash_nest_at(to, x)->lanes != w->lanes) x = ash_nest_splat(to, x, w->lanes);
        return ash_nest_fma(to, x, number(w, (double)p[0], w->lanes), number(w, (double)p[1], w->lanes));
    case ASH_QUANTA_QUOTIENT:
        x = w->map[f->dividend];
        x = ash_nest_fma(to, x, number(w, (double)p[0], w->lanes),
                         ash_nest_binary(to, ASH_OP_MUL, x, number(w, (double)p[1], w->lanes)));
        for (unsigned i = f->n_chain; i-- > 0;) {
            const ash_inst *inst = inst_of(r->nest, f->chain[i]);
            x = ash_nest_binary(to, (ash_op)inst->i, x, w->map[inst->b]);
        }
        return x;
    default: return w->map[f->x];
    }
}

/* y within bounds of its own; on GPUs, which have no vectors of bytes, before it is a byte. */
static ash_ref write_bounds(const rewriting *w, ash_ref y, const found *f, ash_dtype to, bool of_bytes) {
    const int32_t least = to == ASH_I8 ? -128 : 0;
    const int32_t bounds[] = {f->form.low, f->form.high}, none[] = {least, least + 255};
    for (unsigned i = 0; i < ASH_COUNT(bounds); i++) {
        if (bounds[i] == none[i]) continue;
        const ash_ref by = of_bytes ? ash_nest_int(w->to, to, bounds[i])
                                    : ash_nest_float(w->to, ASH_F32, (double)bounds[i]);
        y = ash_nest_binary(w->to, i ? ASH_OP_MIN : ASH_OP_MAX, y, ash_nest_splat(w->to, by, w->lanes));
    }
    return y;
}

static ash_ref write_byte(const rewriting *w, const requantize *r, const found *f) {
    const ash_dtype to = (ash_dtype)inst_of(r->nest, f->cast)->dtype;
    const bool of_bytes = r->target->kind == ASH_TARGET_CPU;
    ash_ref y = ash_nest_unary(w->to, ASH_OP_ROUND, write_x(w, r, f));
    if (f->form.zero) y = ash_nest_binary(w->to, ASH_OP_ADD, y, number(w, f->form.zero, w->lanes));
    if (!of_bytes) y = write_bounds(w, y, f, to, false);
    y = ash_nest_cast(w->to, to, y);
    if (f->form.small && !w->to->failed) w->to->code.at[y].unroll = ASH_NEST_SMALL;
    return of_bytes ? write_bounds(w, y, f, to, true) : y;
}

static ash_ref mapped(const ash_ref *map, ash_ref ref) {
    return ref == ASH_NO_REF ? ref : map[ref];
}

static void rewrite(const requantize *r, const bool *used, ash_ref *map, ash_nest *to) {
    size_t next = 0;
    for (ash_ref ref = 0; ref < r->nest->code.len; ref++) {
        ash_inst inst = *inst_of(r->nest, ref);
        const found *f = next < r->all.len && r->all.at[next].cast == ref ? &r->all.at[next++] : NULL;
        map[ref] = ASH_NO_REF;
        if (!used[ref]) continue;
        const rewriting w = {to, map, inst.lanes};
        if (f) {
            map[ref] = write_byte(&w, r, f);
            continue;
        }
        inst.a = mapped(map, inst.a);
        inst.b = mapped(map, inst.b);
        inst.c = mapped(map, inst.c);
        map[ref] = ash_nest_add(to, inst);
    }
}

ash_status ash_nest_requantize(ash_nest *nest, const ash_target *target, ash_quanta_known *known,
                               ash_diag *diag) {
    const ash_allocator *a = nest->allocator;
    const size_t n = nest->code.len;
    requantize r = {.target = target, .known = known, .nest = nest};
    ash_status status = ASH_OK;
    for (ash_ref ref = 0; ref < n && target->fma && status == ASH_OK; ref++)
        status = look_at(&r, ref, diag);
    if (status == ASH_OK && r.all.len) {
        ash_nest to;
        ash_nest_init(&to, a);
        bool *used = ash_mem_calloc(a, n, sizeof *used);
        ash_ref *map = ash_mem_alloc(a, n, sizeof *map);
        if (used && map) find_used(&r, used), rewrite(&r, used, map, &to);
        if (used && map && !to.failed)
            ash_nest__exchange_code(nest, &to);
        else
            status = ASH_NO_MEMORY(diag);
        ash_mem_free(a, used, n, sizeof *used);
        ash_mem_free(a, map, n, sizeof *map);
        ash_nest_free(&to);
    }
    ash_vec_free(a, &r.all);
    return status;
}
