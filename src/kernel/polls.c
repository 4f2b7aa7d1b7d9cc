/* SPDX-License-Identifier: MIT */
/* nest → the same nest, which looks now and then whether it is asked to stop, if one chunk of it is long
 *
 * Chunks are small as a rule, and launches run them in pieces. But a sum over one row of 2^36 numbers is
 * one chunk, and so is a sort, a scatter, a list of true elements. How long they can take is seen in the
 * nest itself: each loop's most iterations, by the bounds of the variables, times the work of its body. The
 * innermost loop whose whole is long is cut into runs of about `every` units,
 *
 *     for v = a .. b step s                  for t = a .. b step s * count
 *       body                          →        poll
 *                                              for v = t .. min(b, t + s * count) step s
 *                                                body
 *
 * which changes neither the order of anything nor a result. Bodies longer than that look each time. Nests
 * whose chunks are short, which is nearly all, stay as they are.
 *
 * Most iterations are the most that the ends of a loop can be apart (bounds.c). Where nothing is known, the
 * loop counts as endless. */
#include <math.h>

#include "bounds.h"
#include "kern.h"

typedef struct block {
    ash_ref opener;
    double work;    /* of what it holds */
    double stretch; /* most of it without a look */
} block;

typedef struct survey {
    ash_bounds bounds;
    const ash_costs *costs;
    int64_t *every; /* per LOOP: iterations between two looks; 0: none */
    block *blocks;
} survey;

static const ash_inst *at(const survey *s, ash_ref ref) {
    return ash_nest_at(s->bounds.nest, ref);
}

/* --- work -------------------------------------------------------------------------------------------- */

static double work_of(const survey *s, const ash_inst *inst) {
    const ash_costs *c = s->costs;
    double bytes = (double)inst->lanes * (double)ash_dtype_size((ash_dtype)inst->dtype);
    double registers = ASH_MAX(bytes / c->unit_bytes, 1);
    switch ((ash_nest_op)inst->op) {
    case ASH_NEST_GATHER: return c->unit_gather * inst->lanes;
    case ASH_NEST_SCATTER: return c->unit_gather * at(s, inst->c)->lanes;
    case ASH_NEST_ATOMIC: return c->unit_gather;
    case ASH_NEST_LOAD:
    case ASH_NEST_SHUFFLE:
    case ASH_NEST_PERMUTE:
    case ASH_NEST_FMA:
    case ASH_NEST_WHOLE:
    case ASH_NEST_DOT4:
    case ASH_NEST_DOT2:
    case ASH_NEST_TILE_LOAD:
    case ASH_NEST_TF32:
    case ASH_NEST_MMA: return registers;
    case ASH_NEST_TILE_DOT:
    case ASH_NEST_TILE_PUT: {
        const ash_nest_tiles t = ash_nest_tiles_of(inst);
        return ASH_NEST_TILE_LINES * t.tall * t.wide;
    }
    case ASH_NEST_STORE:
    case ASH_NEST_PREFETCH:
    case ASH_NEST_LOOP:
    case ASH_NEST_IF: return 1;
    case ASH_NEST_IDIV:
    case ASH_NEST_IMOD: return c->unit_index * registers;
    case ASH_NEST_LOOKUP:
    case ASH_NEST_HREDUCE: return c->unit_reduce;
    case ASH_NEST_COMPUTE: break;
    default: return 0;
    }
    switch (inst->i) {
    case ASH_OP_DIV:
    case ASH_OP_SQRT: return c->unit_divide * registers;
    case ASH_OP_ADD:
    case ASH_OP_SUB:
    case ASH_OP_MUL:
    case ASH_OP_MIN:
    case ASH_OP_MAX:
    case ASH_OP_SELECT: return registers;
    default: break;
    }
    bool function = ash_op_infos[inst->i].class == ASH_CLASS_UNARY;
    return (function ? (double)c->work_function : c->unit_other) * registers;
}

static double iterations(const survey *s, const ash_inst *loop) {
    int64_t most = ash_bounds__most_difference(&s->bounds, loop->b, loop->a);
    if (most == ASH_BOUNDS_FOREVER) return INFINITY;
    return most <= 0 ? 0 : (double)((most - 1) / loop->i + 1);
}

/* What a loop that ends adds to the block around it, and where it has to look. */
static void close_loop(survey *s, const block *body, block *around) {
    double times_ = iterations(s, at(s, body->opener)), stretch = ASH_MAX(body->stretch, 1);
    double whole = times_ > 0 ? times_ * stretch : 0;
    if (whole > s->costs->look_most_units) {
        double run = ASH_MAX(s->costs->look_units / stretch, 1);
        s->every[body->opener] = (int64_t)run;
        whole = (double)(int64_t)run * stretch;
    }
    around->stretch += whole;
    around->work += times_ > 0 ? times_ * ASH_MAX(body->work, 1) : 0;
}

/* The work of one chunk. */
static double measure(survey *s) {
    block *top = s->blocks;
    *top = (block){.opener = ASH_NO_REF};
    for (ash_ref ref = 0; ref < s->bounds.nest->code.len; ref++) {
        const ash_inst *inst = at(s, ref);
        if (inst->op == ASH_NEST_ELSE || inst->op == ASH_NEST_END) {
            const block *body = top--;
            if (at(s, body->opener)->op == ASH_NEST_LOOP)
                close_loop(s, body, top);
            else
                top->work += body->work, top->stretch += body->stretch;
        }
        if (inst->op == ASH_NEST_LOOP || inst->op == ASH_NEST_IF || inst->op == ASH_NEST_ELSE)
            *++top = (block){.opener = ref};
        double work = work_of(s, inst);
        top->work += work;
        top->stretch += work;
    }
    return top->work;
}

/* --- rewriting --------------------------------------------------------------------------------------- */

static ash_ref mapped(const ash_ref *map, ash_ref ref) {
    return ref == ASH_NO_REF ? ref : map[ref];
}

/* Opens a loop that looks every `count` iterations; returns the loop's variable. */
static ash_ref open_loop(ash_nest *to, const ash_inst *loop, int64_t count) {
    int64_t step;
    if (count == 1 || !ash_mul_i64(loop->i, count, &step)) {
        ash_ref v = ash_nest_add(to, *loop);
        ash_nest_poll(to);
        return v;
    }
    ash_ref run = ash_nest_index(to, step), from = ash_nest_loop(to, loop->a, loop->b, step, 1);
    ash_nest_poll(to);
    ash_ref end = ash_nest_binary(to, ASH_OP_MIN, loop->b, ash_nest_binary(to, ASH_OP_ADD, from, run));
    return ash_nest_loop(to, from, end, loop->i, loop->unroll);
}

/* Writes the nest with its looks to `to`; `map` and `twice` have a place per instruction. */
static void rewrite(const survey *s, ash_ref *map, bool *twice, ash_nest *to) {
    size_t depth = 0;
    for (ash_ref ref = 0; ref < s->bounds.nest->code.len; ref++) {
        ash_inst inst = *at(s, ref);
        inst.a = mapped(map, inst.a);
        inst.b = mapped(map, inst.b);
        inst.c = mapped(map, inst.c);
        bool opens = inst.op == ASH_NEST_LOOP || inst.op == ASH_NEST_IF;
        if (inst.op == ASH_NEST_END && twice[--depth]) ash_nest_end(to);
        bool looks = inst.op == ASH_NEST_LOOP && s->every[ref];
        size_t before = to->code.len;
        map[ref] = looks ? open_loop(to, &inst, s->every[ref]) : ash_nest_add(to, inst);
        if (opens) twice[depth++] = looks && map[ref] != before;
    }
}

static bool looks_anywhere(const survey *s) {
    for (size_t i = 0; i < s->bounds.nest->code.len; i++)
        if (s->every[i]) return true;
    return false;
}

ash_status ash_nest_add_polls(ash_nest *nest, const ash_costs *costs, const ash_dims *dims, int64_t chunks,
                              double *work, ash_diag *diag) {
    const ash_allocator *a = nest->allocator;
    size_t n = nest->code.len;
    ash_ref *map = NULL;
    bool *twice = NULL;
    ash_nest to;
    survey s = {.costs = costs};
    ash_nest_init(&to, a);
    ash_status status = ash_bounds__find(&s.bounds, nest, dims, chunks, diag);
    s.every = ash_mem_calloc(a, n, sizeof *s.every);
    s.blocks = ash_mem_alloc(a, n + 1, sizeof *s.blocks);
    if (status == ASH_OK && (!s.every || !s.blocks)) status = ASH_NO_MEMORY(diag);
    if (status != ASH_OK) goto done;
    *work = measure(&s);
    if (nest->threads || !looks_anywhere(&s)) goto done; /* a thread may not leave its block */
    map = ash_mem_alloc(a, n, sizeof *map);
    twice = ash_mem_alloc(a, n, sizeof *twice);
    if (map && twice) rewrite(&s, map, twice, &to);
    if (map && twice && !to.failed) {
        ash_nest__exchange_code(nest, &to);
        nest->polls = true;
    } else {
        status = ASH_NO_MEMORY(diag);
    }
done:
    ash_nest_free(&to);
    ash_bounds__free(&s.bounds);
    ash_mem_free(a, s.every, n, sizeof *s.every);
    ash_mem_free(a, s.blocks, n + 1, sizeof *s.blocks);
    ash_mem_free(a, map, n, sizeof *map);
    ash_mem_free(a, twice, n, sizeof *twice);
    return status;
}
