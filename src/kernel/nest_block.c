/* SPDX-License-Identifier: MIT */
/* What the threads of a block do together: whether all of them come by.
 *
 * A value varies when it can differ between threads: THREAD does, and what is computed from something
 * that does, or is loaded from where it says; so does what another thread may write, in written buffers.
 * What lies at one place of the block's memory is the same for all who come by together: between two
 * barriers nobody touches what another one writes. A cell varies when it is set to something that does,
 * or where not all threads come by. So it is found by going over the nest until nothing changes, which is
 * as often as cells depend on each other. */
#include "nest.h"

struct look {
    const ash_nest *nest;
    bool *varies;     /* per instruction: its result; of a block's opener: not all threads come by */
    ash_ref *openers; /* of the blocks that are open */
    uint32_t depth;
    bool changed;
};

static bool of(const struct look *l, ash_ref ref) {
    return ref != ASH_NO_REF && l->varies[ref];
}

static void mark(struct look *l, ash_ref ref, bool varies) {
    if (!varies || l->varies[ref]) return;
    l->varies[ref] = l->changed = true;
}

static bool apart(const struct look *l) {
    return l->depth > 0 && l->varies[l->openers[l->depth - 1]];
}

static bool loads_what_varies(const struct look *l, const ash_inst *inst) {
    if (inst->op == ASH_NEST_TILE_LOAD) return true;
    if (inst->op != ASH_NEST_LOAD && inst->op != ASH_NEST_GATHER) return false;
    return (inst->buf & ASH_NEST_SHARED) ? apart(l) : l->nest->buffers.at[inst->buf].written;
}

static void look_at(struct look *l, ash_ref ref) {
    const ash_inst *inst = ash_nest_at(l->nest, ref);
    bool varies = of(l, inst->a) || of(l, inst->b) || of(l, inst->c) || loads_what_varies(l, inst);
    switch (inst->op) {
    case ASH_NEST_LOOP:
    case ASH_NEST_IF:
        mark(l, ref, varies || apart(l));
        l->openers[l->depth++] = ref;
        break;
    case ASH_NEST_ELSE: break; /* as the IF */
    case ASH_NEST_END: l->depth--; break;
    case ASH_NEST_SET: mark(l, inst->a, of(l, inst->b) || apart(l)); break;
    case ASH_NEST_THREAD: mark(l, ref, true); break;
    case ASH_NEST_REDUCE: mark(l, ref, inst->unroll < l->nest->threads && varies); break;
    default: mark(l, ref, varies);
    }
}

static bool is_together(uint16_t op) {
    return op == ASH_NEST_BARRIER || op == ASH_NEST_REDUCE || op == ASH_NEST_COPY_COMMIT ||
           op == ASH_NEST_COPY_WAIT || op == ASH_NEST_TILE_LOAD || op == ASH_NEST_MMA;
}

static ash_status check(struct look *l, ash_diag *diag) {
    for (ash_ref ref = 0; ref < l->nest->code.len; ref++) {
        uint16_t op = ash_nest_at(l->nest, ref)->op;
        look_at(l, ref);
        ASH_FAIL_IF(is_together(op) && apart(l), diag, ASH_ERROR_INTERNAL,
                    "loop nest, instruction %u: not all threads of the block come by here", ref);
    }
    return ASH_OK;
}

ash_status ash_nest__verify_block(const ash_nest *nest, ash_diag *diag) {
    const ash_allocator *a = nest->allocator;
    size_t n = nest->code.len;
    struct look l = {.nest = nest, .changed = true};
    l.varies = ash_mem_calloc(a, n, sizeof *l.varies);
    l.openers = ash_mem_alloc(a, n, sizeof *l.openers);
    ash_status status = l.varies && l.openers ? ASH_OK : ASH_NO_MEMORY(diag);
    while (status == ASH_OK && l.changed) {
        l.changed = false;
        for (ash_ref ref = 0; ref < n; ref++) look_at(&l, ref);
    }
    if (status == ASH_OK) status = check(&l, diag);
    ash_mem_free(a, l.varies, n, sizeof *l.varies);
    ash_mem_free(a, l.openers, n, sizeof *l.openers);
    return status;
}
