/* SPDX-License-Identifier: MIT */
/* Loops and branches.
 *
 * Loops are emitted rotated (guard, body, test at the bottom) and already unrolled: the emitter lays the
 * body out as often as LOOP.unroll says, each copy with its own constant distance to the loop variable, and
 * finishes with a loop or copies for the rest. So LLVM's unroller and its scalar evolution need not run,
 * which is most of what they would cost.
 *
 * LLVM's reduction of address arithmetic (loop strength reduction, part of its code generator) weighs, for
 * every loop, all addresses in it: half the time of a compilation. Only innermost loops gain from it, 1.4
 * to 1.6 times, and what it does for them is simple, the nest being the schedule already: a product of the
 * variable becomes a count of its own: addresses that walk, and for further ones the distances that they
 * move by. So the emitter does that, and LLVM does not see that anything counts.
 *
 * An innermost loop whose body asks for what does not change in it is there twice: for the case that all
 * such conditions hold, without them, and as it is. So what a table's entries allow is asked once for all
 * rows of a column, and masks stay in registers. */
#include <llvm-c/DebugInfo.h>

#include "code_target.h"

/* --- loops ------------------------------------------------------------------------------------------- */

static bool index_value(LLVMValueRef v, int64_t *out) {
    if (!LLVMIsAConstantInt(v)) return false;
    *out = LLVMConstIntGetSExtValue(v);
    return true;
}

static uint64_t count_trips(int64_t from, int64_t to, int64_t step) {
    return to > from ? ((uint64_t)to - (uint64_t)from - 1) / (uint64_t)step + 1 : 0;
}

/* Whether all bodies of a loop are laid out in a row. */
static bool is_laid_out(const ash_nest *n, ash_ref loop) {
    const ash_inst *inst = ash_nest_at(n, loop), *from = ash_nest_at(n, inst->a),
                   *to = ash_nest_at(n, inst->b);
    return from->op == ASH_NEST_INT && to->op == ASH_NEST_INT &&
           count_trips(from->i, to->i, inst->i) <= ASH_MAX(inst->unroll, 1u);
}

/* `copies` bodies in a row; the loop variable of the first is base + offset (base may be NULL: a
 * number). */
static void emit_bodies(ash_emit *e, ash_ref loop, LLVMValueRef base, int64_t offset, uint64_t copies) {
    int64_t step = ash_nest_at(e->nest, loop)->i;
    for (uint64_t k = 0; k < copies; k++, offset += step) {
        LLVMValueRef value = base ? base : ash_emit__as_held(e, loop, ash_emit__index(e, offset));
        if (base && offset) {
            value = LLVMBuildAdd(e->b, base, ash_emit__as_held(e, loop, ash_emit__index(e, offset)), "");
            if (LLVMIsAInstruction(value)) LLVMSetNSW(value, true);
        }
        e->slots[loop] = (ash_slot_value){value, base, offset};
        ash_emit__range(e, loop + 1, e->close[loop]);
    }
}

/* Whether a loop of LLVM is in the body of this one. */
static bool has_inner_loop(const ash_emit *e, ash_ref loop) {
    for (ash_ref ref = loop + 1; ref < e->close[loop]; ref++)
        if (ash_nest_at(e->nest, ref)->op == ASH_NEST_LOOP && !is_laid_out(e->nest, ref)) return true;
    return false;
}

/* Whether a loop is a tile's: its sums have the registers, and what is loaded in it stays there. */
static bool has_products(const ash_emit *e, ash_ref loop) {
    for (ash_ref ref = loop + 1; ref < e->close[loop]; ref++) {
        unsigned op = ash_nest_at(e->nest, ref)->op;
        if (op == ASH_NEST_FMA || op == ASH_NEST_DOT4 || op == ASH_NEST_DOT2) return true;
    }
    return false;
}

LLVMValueRef ash_emit__same(ash_emit *e, const char *constraints, LLVMValueRef value, bool returns) {
    static const char *const names[] = {"memory", "nounwind",
                                        "willreturn"}; /* it touches none: the value 0 */
    LLVMTypeRef own = LLVMTypeOf(value), type = LLVMFunctionType(own, &own, 1, false);
    LLVMValueRef nothing = LLVMGetInlineAsm(type, "", 0, constraints, strlen(constraints), false, false,
                                            LLVMInlineAsmDialectATT, false);
    LLVMValueRef call = LLVMBuildCall2(e->b, type, nothing, &value, 1, "");
    for (unsigned i = 0; i < (returns ? ASH_COUNT(names) : 1); i++) {
        unsigned kind = LLVMGetEnumAttributeKindForName(names[i], strlen(names[i]));
        LLVMAddCallSiteAttribute(call, LLVMAttributeFunctionIndex,
                                 LLVMCreateEnumAttribute(e->ctx, kind, 0));
    }
    return call;
}

/* A loop's value as something of which nothing is known. Of loops but those of tiles LLVM is told that what
 * comes behind it is reached, so that loads leave them. */
static LLVMValueRef hidden(ash_emit *e, ash_ref loop, LLVMValueRef value) {
    const char *constraints = e->kind->same_register;
    return constraints ? ash_emit__same(e, constraints, value, !has_products(e, loop)) : value;
}

/* Whether a GPU's thread reads so many buffers that it has no registers for addresses in all of them. */
static bool has_many_buffers(const ash_emit *e) {
    enum { MOST_HELD = 32 };
    return e->kind->veil && e->nest->buffers.len > MOST_HELD;
}

/* The loop's variable as the body sees it. LLVM would have an address walk through each of many buffers. */
static LLVMValueRef seen_variable(ash_emit *e, ash_ref loop, LLVMValueRef phi) {
    if (has_many_buffers(e) && !has_inner_loop(e, loop)) return e->kind->veil(e, phi);
    return hidden(e, loop, phi);
}

/* Begins a count at a number, or at an address, before the loop. */
static LLVMValueRef begin_counter(ash_emit *e, ash_emit_counter *c, LLVMValueRef address, int64_t bytes) {
    ash_emit_inner *l = &e->inner;
    LLVMBasicBlockRef here = LLVMGetInsertBlock(e->b);
    LLVMPositionBuilderBefore(e->b, LLVMGetBasicBlockTerminator(l->before));
    LLVMValueRef from = LLVMBuildMul(e->b, l->from, ash_emit__index(e, bytes), "");
    if (address) from = LLVMBuildGEP2(e->b, LLVMInt8TypeInContext(e->ctx), address, &from, 1, "");
    LLVMPositionBuilderBefore(e->b, LLVMGetFirstInstruction(l->head));
    LLVMValueRef phi = LLVMBuildPhi(e->b, LLVMTypeOf(from), "");
    LLVMAddIncoming(phi, &from, &l->before, 1);
    LLVMPositionBuilderBefore(e->b, l->variable);
    *c = (ash_emit_counter){bytes, phi, hidden(e, l->loop, phi)};
    LLVMPositionBuilderAtEnd(e->b, here);
    return c->value;
}

LLVMValueRef ash_emit__counter(ash_emit *e, int64_t bytes) {
    ash_emit_inner *l = &e->inner;
    for (unsigned i = 0; i < l->counting; i++)
        if (l->counters[i].bytes == bytes) return l->counters[i].value;
    if (l->counting == ASH_EMIT_COUNTERS) return NULL;
    return begin_counter(e, &l->counters[l->counting++], NULL, bytes);
}

LLVMValueRef ash_emit__walker(ash_emit *e, const ash_emit_place *place, LLVMValueRef address,
                              int64_t bytes) {
    ash_emit_inner *l = &e->inner;
    l->places[l->walking] = *place;
    return begin_counter(e, &l->walkers[l->walking++], address, bytes);
}

static void count_one_on(ash_emit *e, const ash_emit_counter *c, int64_t step, LLVMBasicBlockRef here) {
    LLVMValueRef by = ash_emit__index(e, c->bytes * step);
    bool walks = LLVMGetTypeKind(LLVMTypeOf(c->value)) == LLVMPointerTypeKind;
    LLVMValueRef next = walks ? LLVMBuildGEP2(e->b, LLVMInt8TypeInContext(e->ctx), c->value, &by, 1, "")
                              : LLVMBuildAdd(e->b, c->value, by, "");
    LLVMAddIncoming(c->phi, &next, &here, 1);
}

/* The variable's next value, and those of what counts beside it. */
static LLVMValueRef count_on(ash_emit *e, LLVMValueRef variable, int64_t step) {
    const ash_emit_inner *l = &e->inner;
    LLVMBasicBlockRef here = LLVMGetInsertBlock(e->b);
    if (variable == l->variable) {
        for (unsigned i = 0; i < l->walking; i++) count_one_on(e, &l->walkers[i], step, here);
        for (unsigned i = 0; i < l->counting; i++) count_one_on(e, &l->counters[i], step, here);
    }
    LLVMValueRef by = LLVMConstInt(LLVMTypeOf(variable), (uint64_t)step, true);
    return LLVMBuildNSWAdd(e->b, variable, by, "");
}

/* Says a word about a loop to LLVM. */
static void note_loop(ash_emit *e, LLVMValueRef branch, const char *text) {
    static const char loop[] = "llvm.loop";
    LLVMMetadataRef word = LLVMMDStringInContext2(e->ctx, text, strlen(text));
    LLVMMetadataRef own = LLVMTemporaryMDNode(e->ctx, NULL, 0);
    LLVMMetadataRef fact[] = {own, LLVMMDNodeInContext2(e->ctx, &word, 1)};
    LLVMMetadataRef node = LLVMMDNodeInContext2(e->ctx, fact, 2);
    LLVMMetadataReplaceAllUsesWith(own, node); /* such a node begins with itself */
    LLVMSetMetadata(branch, LLVMGetMDKindIDInContext(e->ctx, loop, sizeof loop - 1),
                    LLVMMetadataAsValue(e->ctx, node));
}

/* Whether the threads of a block meet in a loop. */
static bool has_meetings(const ash_emit *e, ash_ref loop) {
    for (ash_ref ref = loop + 1; ref < e->close[loop]; ref++)
        if (ash_nest_at(e->nest, ref)->op == ASH_NEST_BARRIER) return true;
    return false;
}

/* Whether a loop adds to sums what lies in a block's memory. */
static bool adds_shared(const ash_emit *e, ash_ref loop) {
    bool loads = false, adds = false;
    for (ash_ref ref = loop + 1; ref < e->close[loop] && !(loads && adds); ref++) {
        const ash_inst *inst = ash_nest_at(e->nest, ref);
        loads |= inst->op == ASH_NEST_LOAD && (inst->buf & ASH_NEST_SHARED);
        adds |= inst->op == ASH_NEST_FMA;
    }
    return loads && adds;
}

/* Loops that are laid out as often as they are to be, as those of a block's sums are: what assembles text
 * would do it once more, and have registers for fewer threads. Loops around those of a block's sums, and
 * loops over many buffers: what is computed ahead of them, once instead of each time, holds registers all
 * the way, where the sums, or addresses, need all that there are. */
static void describe_loop(ash_emit *e, ash_ref loop, LLVMValueRef branch, uint64_t copies) {
    if (!e->kind->text) return;
    const bool meets = has_meetings(e, loop), inner = has_inner_loop(e, loop);
    if (copies > 1 || (!inner && (meets || adds_shared(e, loop))))
        note_loop(e, branch, "llvm.loop.unroll.disable");
    else if (meets || has_many_buffers(e))
        note_loop(e, branch, "llvm.licm.disable");
}

/* A loop whose body is `copies` bodies: runs while the variable is below `limit`, from `from`, which is
 * known to be below it when `guarded` is false. Returns the variable's value behind the loop. */
static LLVMValueRef emit_rotated(ash_emit *e, ash_ref loop, LLVMValueRef from, LLVMValueRef limit,
                                 uint64_t copies, bool guarded) {
    LLVMTypeRef type = LLVMTypeOf(from);
    LLVMBasicBlockRef before = LLVMGetInsertBlock(e->b), body = ash_emit__new_block(e),
                      after = ash_emit__new_block(e);
    if (guarded)
        LLVMBuildCondBr(e->b, LLVMBuildICmp(e->b, LLVMIntSLT, from, limit, ""), body, after);
    else
        LLVMBuildBr(e->b, body);
    LLVMPositionBuilderAtEnd(e->b, body);
    LLVMValueRef phi = LLVMBuildPhi(e->b, type, ""), variable = seen_variable(e, loop, phi);
    e->inner = (ash_emit_inner){.loop = loop, .from = from, .before = before, .head = body};
    if (e->kind->same_register && !has_inner_loop(e, loop)) e->inner.variable = variable;
    emit_bodies(e, loop, variable, 0, copies);
    LLVMValueRef next = count_on(e, variable, ash_nest_at(e->nest, loop)->i * (int64_t)copies);
    LLVMBasicBlockRef latch = LLVMGetInsertBlock(e->b);
    LLVMValueRef again =
        LLVMBuildCondBr(e->b, LLVMBuildICmp(e->b, LLVMIntSLT, next, limit, ""), body, after);
    describe_loop(e, loop, again, copies);
    LLVMAddIncoming(phi, (LLVMValueRef[]){from, next}, (LLVMBasicBlockRef[]){before, latch}, 2);
    LLVMMoveBasicBlockAfter(after, latch);
    LLVMPositionBuilderAtEnd(e->b, after);
    e->inner.variable = NULL;
    if (!guarded) return next;
    LLVMValueRef end = LLVMBuildPhi(e->b, type, "");
    LLVMAddIncoming(end, (LLVMValueRef[]){from, next}, (LLVMBasicBlockRef[]){before, latch}, 2);
    return end;
}

/* Whether a loop goes over the chunks of a block. */
static bool has_chunks(const ash_emit *e, ash_ref loop) {
    const ash_inst *inst = ash_nest_at(e->nest, loop);
    return e->nest->threads && inst->i == 1 && ash_nest_at(e->nest, inst->b)->op == ASH_NEST_END_ARG;
}

/* The loop over a block's chunks. A register that had their end would have it over all that is done for a
 * chunk, whose sums need all that there are. So a predicate says whether there is another chunk behind this
 * one, and where there is, the end is found anew, while that one begins. */
static void emit_chunks(ash_emit *e, ash_ref loop, LLVMValueRef from, LLVMValueRef end) {
    LLVMBasicBlockRef before = LLVMGetInsertBlock(e->b), body = ash_emit__new_block(e),
                      again = ash_emit__new_block(e), after = ash_emit__new_block(e);
    LLVMValueRef one = LLVMConstInt(LLVMTypeOf(from), 1, false),
                 first = LLVMBuildICmp(e->b, LLVMIntSLT, LLVMBuildAdd(e->b, from, one, ""), end, "");
    LLVMBuildCondBr(e->b, LLVMBuildICmp(e->b, LLVMIntSLT, from, end, ""), body, after);
    LLVMPositionBuilderAtEnd(e->b, body);
    LLVMValueRef chunk = LLVMBuildPhi(e->b, LLVMTypeOf(from), ""),
                 more = LLVMBuildPhi(e->b, LLVMTypeOf(first), "");
    emit_bodies(e, loop, chunk, 0, 1);
    LLVMMoveBasicBlockAfter(again, LLVMGetInsertBlock(e->b));
    LLVMMoveBasicBlockAfter(after, again);
    LLVMBuildCondBr(e->b, more, again, after);
    LLVMPositionBuilderAtEnd(e->b, again);
    LLVMValueRef next = LLVMBuildNSWAdd(e->b, chunk, one, ""),
                 there = e->kind->special(e, e->b, ASH_NEST_END_ARG,
                                          ash_emit__is_narrow(e, ash_nest_at(e->nest, loop)->b)),
                 others = LLVMBuildICmp(e->b, LLVMIntSLT, LLVMBuildAdd(e->b, next, one, ""),
                                        ash_emit__as_held(e, loop, there), "");
    describe_loop(e, loop, LLVMBuildBr(e->b, body), 1);
    LLVMAddIncoming(chunk, (LLVMValueRef[]){from, next}, (LLVMBasicBlockRef[]){before, again}, 2);
    LLVMAddIncoming(more, (LLVMValueRef[]){first, others}, (LLVMBasicBlockRef[]){before, again}, 2);
    LLVMPositionBuilderAtEnd(e->b, after);
}

/* Where a loop ends that runs more often than what assembles text may know: it would lay out all of its
 * bodies in a row, with their loads ahead. Of a number that it does not know it lays out four. */
static LLVMValueRef emit_limit(ash_emit *e, ash_ref loop, int64_t limit, uint64_t trips) {
    enum { MOST_KNOWN = 16 };
    LLVMValueRef value = ash_emit__as_held(e, loop, ash_emit__index(e, limit));
    bool hides = e->kind->differ && !e->nest->threads && trips > MOST_KNOWN && !has_inner_loop(e, loop);
    return hides ? e->kind->differ(e, value) : value;
}

static void emit_counted_loop(ash_emit *e, ash_ref loop, int64_t from, int64_t to) {
    const ash_inst *inst = ash_nest_at(e->nest, loop);
    uint64_t copies = ASH_MAX(inst->unroll, 1u), trips = count_trips(from, to, inst->i);
    uint64_t rest = trips % copies;
    if (trips <= copies) {
        emit_bodies(e, loop, NULL, from, trips);
        return;
    }
    int64_t limit = from + (int64_t)(trips - rest) * inst->i;
    emit_rotated(e, loop, ash_emit__as_held(e, loop, ash_emit__index(e, from)),
                 emit_limit(e, loop, limit, copies > 1 ? 0 : trips), copies, false);
    emit_bodies(e, loop, NULL, limit, rest);
}

static void emit_loop(ash_emit *e, ash_ref loop) {
    const ash_inst *inst = ash_nest_at(e->nest, loop);
    LLVMValueRef from = ash_emit__as_held(e, loop, ash_emit__held(e, inst->a)),
                 to = ash_emit__as_held(e, loop, ash_emit__held(e, inst->b));
    int64_t first, end;
    if (index_value(from, &first) && index_value(to, &end)) {
        emit_counted_loop(e, loop, first, end);
        return;
    }
    if (has_chunks(e, loop)) {
        emit_chunks(e, loop, from, to);
        return;
    }
    if (inst->unroll > 1) {
        LLVMValueRef ahead =
            ash_emit__as_held(e, loop, ash_emit__index(e, inst->i * ((int64_t)inst->unroll - 1)));
        from = emit_rotated(e, loop, from, LLVMBuildNSWSub(e->b, to, ahead, ""), inst->unroll, true);
    }
    emit_rotated(e, loop, from, to, 1, true);
}

/* --- loops in two ways ------------------------------------------------------------------------------- */

enum { FIXED = 1, GIVEN = 2, AHEAD = 4 }; /* facts */

/* Whether an operand in the body of a loop is the same each time. */
static bool is_fixed(const ash_emit *e, ash_ref loop, ash_ref ref) {
    return ref == ASH_NO_REF || ref < loop || (e->facts[ref] & FIXED);
}

static bool reads_constant(const ash_emit *e, const ash_inst *inst) {
    return inst->op == ASH_NEST_LOAD && inst->buf < e->nest->buffers.len && e->constant[inst->buf];
}

/* Looks for conditions with two sides that do not change in an innermost loop. */
static bool find_given(ash_emit *e, ash_ref loop) {
    enum { MOST = 160 }; /* instructions: where a side is a good part of them */
    bool found = false;
    if (e->kind->text || e->close[loop] - loop > MOST || has_inner_loop(e, loop)) return false;
    if (is_laid_out(e->nest, loop)) return false;
    for (ash_ref ref = loop + 1; ref < e->close[loop]; ref++) {
        const ash_inst *inst = ash_nest_at(e->nest, ref);
        const bool same =
            is_fixed(e, loop, inst->a) && is_fixed(e, loop, inst->b) && is_fixed(e, loop, inst->c);
        e->facts[ref] = 0;
        if (inst->op == ASH_NEST_IF) {
            const ash_ref middle = e->close[ref];
            const bool sides = ash_nest_at(e->nest, middle)->op == ASH_NEST_ELSE;
            if (sides && same) e->facts[ref] = GIVEN, found = true;
            ref = sides ? e->close[middle] : middle;
        } else if (inst->op == ASH_NEST_LOOP) {
            ref = e->close[ref];
        } else if (ash_emit__is_leaf(inst) ||
                   (same && (ash_emit__is_pure(inst) || reads_constant(e, inst)))) {
            e->facts[ref] = FIXED;
        }
    }
    return found;
}

/* Whether all of them hold, computed before the loop, which runs at least once. */
static LLVMValueRef emit_given(ash_emit *e, ash_ref loop) {
    LLVMValueRef all = NULL;
    for (ash_ref ref = e->close[loop] - 1; ref > loop; ref--) {
        const ash_inst *inst = ash_nest_at(e->nest, ref);
        const ash_ref refs[] = {inst->a, inst->b, inst->c};
        if (!(e->facts[ref] & (GIVEN | AHEAD))) continue;
        for (size_t i = 0; i < ASH_COUNT(refs); i++)
            if (refs[i] != ASH_NO_REF && refs[i] > loop) e->facts[refs[i]] |= AHEAD;
    }
    for (ash_ref ref = loop + 1; ref < e->close[loop]; ref++)
        if (e->facts[ref] & AHEAD) ash_emit__range(e, ref, ref + 1);
    for (ash_ref ref = loop + 1; ref < e->close[loop]; ref++) {
        if (!(e->facts[ref] & GIVEN)) continue;
        LLVMValueRef holds = ash_emit__value(e, ash_nest_at(e->nest, ref)->a);
        all = all ? LLVMBuildAnd(e->b, all, holds, "") : holds;
    }
    return all;
}

/* The loop without the conditions where they hold, and as it is otherwise. */
static void emit_two_ways(ash_emit *e, ash_ref loop) {
    const ash_inst *inst = ash_nest_at(e->nest, loop);
    LLVMValueRef from = ash_emit__held(e, inst->a),
                 to = ash_emit__resize(e, ash_emit__held(e, inst->b), ash_emit__is_narrow(e, inst->a));
    LLVMBasicBlockRef ways[] = {ash_emit__new_block(e), ash_emit__new_block(e)},
                      runs = ash_emit__new_block(e), after = ash_emit__new_block(e);
    LLVMBuildCondBr(e->b, LLVMBuildICmp(e->b, LLVMIntSLT, from, to, ""), runs, after);
    LLVMPositionBuilderAtEnd(e->b, runs);
    LLVMValueRef all = emit_given(e, loop);
    LLVMBuildCondBr(e->b, all, ways[0], ways[1]);
    for (unsigned i = 0; i < ASH_COUNT(ways); i++) {
        LLVMMoveBasicBlockAfter(ways[i], LLVMGetInsertBlock(e->b));
        LLVMPositionBuilderAtEnd(e->b, ways[i]);
        e->given = !i;
        emit_loop(e, loop);
        e->given = false;
        LLVMBuildBr(e->b, after);
    }
    LLVMMoveBasicBlockAfter(after, LLVMGetInsertBlock(e->b));
    LLVMPositionBuilderAtEnd(e->b, after);
}

void ash_emit__loop(ash_emit *e, ash_ref loop) {
    if (find_given(e, loop))
        emit_two_ways(e, loop);
    else
        emit_loop(e, loop);
}

/* --- branches ---------------------------------------------------------------------------------------- */

ash_ref ash_emit__if(ash_emit *e, ash_ref ref) {
    ash_ref middle = e->close[ref], end = middle;
    bool has_else = ash_nest_at(e->nest, middle)->op == ASH_NEST_ELSE;
    if (has_else) end = e->close[middle];
    if (e->given && (e->facts[ref] & GIVEN)) {
        ash_emit__range(e, ref + 1, middle);
        return end;
    }
    LLVMBasicBlockRef then = ash_emit__new_block(e), otherwise = has_else ? ash_emit__new_block(e) : NULL,
                      after = ash_emit__new_block(e);
    LLVMBuildCondBr(e->b, ash_emit__value(e, ash_nest_at(e->nest, ref)->a), then,
                    has_else ? otherwise : after);
    LLVMPositionBuilderAtEnd(e->b, then);
    ash_emit__range(e, ref + 1, middle);
    LLVMBuildBr(e->b, after);
    if (has_else) {
        LLVMMoveBasicBlockAfter(otherwise, LLVMGetInsertBlock(e->b));
        LLVMPositionBuilderAtEnd(e->b, otherwise);
        ash_emit__range(e, middle + 1, end);
        LLVMBuildBr(e->b, after);
    }
    LLVMMoveBasicBlockAfter(after, LLVMGetInsertBlock(e->b));
    LLVMPositionBuilderAtEnd(e->b, after);
    return end;
}
