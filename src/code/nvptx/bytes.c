/* SPDX-License-Identifier: MIT */
/* Lanes of bytes. LLVM 19 has registers for vectors of four bytes, and for none of two: what it takes out
 * of one, or puts together of several, goes through the thread's memory. So lanes are found where they were
 * made, and such vectors are only made to be stored. */
#include "nvptx.h"

#include "code/emit_ops.h"

enum { WORD = 4 }; /* lanes of a vector that has registers */

static val at_number(ash_emit *e, unsigned i) {
    return LLVMConstInt(LLVMInt32TypeInContext(e->ctx), i, false);
}

/* Lane i of a vector, as what it was before the vector was. */
static val lane(ash_emit *e, val v, unsigned i) {
    while (ash_emit__lanes(v) > 1 && !LLVMIsConstant(v)) {
        if (LLVMIsATruncInst(v) || LLVMIsAZExtInst(v)) {
            val from = lane(e, LLVMGetOperand(v, 0), i);
            return LLVMBuildCast(e->b, LLVMGetInstructionOpcode(v), from, ash_emit__element(LLVMTypeOf(v)),
                                 "");
        }
        if (LLVMIsAShuffleVectorInst(v)) {
            const int pick = LLVMGetMaskValue(v, i);
            const unsigned first = ash_emit__lanes(LLVMGetOperand(v, 0));
            if (pick == LLVMGetUndefMaskElem()) return LLVMGetPoison(ash_emit__element(LLVMTypeOf(v)));
            i = (unsigned)pick < first ? (unsigned)pick : (unsigned)pick - first;
            v = LLVMGetOperand(v, (unsigned)pick >= first);
            continue;
        }
        if (!LLVMIsAInsertElementInst(v)) break;
        const val number = LLVMGetOperand(v, 2);
        if (!LLVMIsAConstantInt(number)) break;
        if (LLVMConstIntGetZExtValue(number) == i) return LLVMGetOperand(v, 1);
        v = LLVMGetOperand(v, 0);
    }
    return ash_emit__lanes(v) > 1 ? LLVMBuildExtractElement(e->b, v, at_number(e, i), "") : v;
}

LLVMValueRef ash_nvptx__shuffle(ash_emit *e, LLVMValueRef a, LLVMValueRef b, const int32_t *pick,
                                unsigned lanes) {
    const LLVMTypeRef element = ash_emit__element(LLVMTypeOf(a));
    const unsigned first = ash_emit__lanes(a);
    if (LLVMGetTypeKind(element) != LLVMIntegerTypeKind || LLVMGetIntTypeWidth(element) != 8) return NULL;
    if (first % WORD == 0 && (!b || ash_emit__lanes(b) % WORD == 0) && lanes % WORD == 0) return NULL;
    val out = LLVMGetPoison(ash_emit__vector(element, lanes));
    for (unsigned i = 0; i < lanes; i++) {
        if (pick[i] < 0) continue;
        const unsigned from = (unsigned)pick[i];
        val one = from < first ? lane(e, a, from) : lane(e, b, from - first);
        out = lanes == 1 ? one : LLVMBuildInsertElement(e->b, out, one, at_number(e, i), "");
    }
    return out;
}
