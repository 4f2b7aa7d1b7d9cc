/* SPDX-License-Identifier: MIT */
/* What a kind of machine does its own way when a nest becomes code: one table for each kind, src/code/host
 * for processors, src/code/nvptx for GPUs. The emitter (emit*.c) is the same for all of them. It walks
 * the nest, lays out loops, takes addresses apart and writes formulas, and comes here for two things only:
 *
 *   the kernel's boundary   how a function is declared, and where the range of chunks, the worker, the
 *                           variables, the buffers and the words that stop it are found. Nothing else of
 *                           the emitter knows a parameter, a register or an address space.
 *   instructions            that some machines have for what others compute. Each may answer NULL: there is
 *                           none, and the emitter writes the formula out, with the same result. */
#ifndef ASH_CODE_TARGET_H
#define ASH_CODE_TARGET_H

#include "emit.h"

/* How bytes are made of f32: rounded to nearest, ties to even, if it `rounds`, or else without what is
 * behind the point; then clamped to what u8 or i8 has, with `zero`, a byte or the negative of one, added in
 * between. Of a NaN 0. `small`: there are numbers below 2^22 alone. */
typedef struct ash_bytes_out {
    ash_dtype to;
    int32_t zero;
    bool rounds, small;
} ash_bytes_out;

struct ash_code_target {
    /* Registers LLVM's code generator for it, once in a process, when it is first asked for; false: this
     * LLVM has none. */
    bool (*init)(void);
    const char *part;   /* of LLVM that this is, as it is called when LLVM is built */
    bool text;          /* kernels leave LLVM as assembly, and not as object files */
    bool narrow;        /* registers have 32 bits: indices that need no more are computed in them */
    const char *passes; /* of LLVM's middle end, for the function of a nest */
    /* What the functions below want to know of a target: bits that they alone read (ash_emit.features). */
    unsigned (*features)(const ash_target *target);

    /* --- the boundary: values are made at the function's entry (ash_emit.at_entry) ------------------- */

    /* Adds the function, with its convention and attributes: ash_emit.fn. */
    void (*declare)(ash_emit *e, const char *symbol);
    /* What an instruction without operands stands for: BEGIN_ARG, END_ARG, WORKER, THREAD; a variable. An
     * i64, or, where it is known to be `narrow`, an i32. The former at the entry, or wherever else `b` is,
     * where it is found anew: no register has it from the entry on. */
    LLVMValueRef (*special)(ash_emit *e, LLVMBuilderRef b, ash_nest_op op, bool narrow);
    LLVMValueRef (*variable)(ash_emit *e, int64_t index, bool narrow);
    LLVMValueRef (*buffer)(ash_emit *e, uint16_t buf); /* its address */
    LLVMValueRef (*shared)(ash_emit *e,
                           uint16_t number); /* that of a memory of the block, or of the call */
    /* Constraints of assembly whose result, an i64, is its operand in the same register; NULL where
     * variables of outer loops need not be hidden from the code generator (emit.c). */
    const char *same_register;
    /* The same of a vector of integers as long as a register; NULL where masks need not be hidden. */
    const char *same_vector;
    /* Finds the addresses of the words that are looked at: ash_emit.asked and left_out. */
    void (*stop)(ash_emit *e);
    bool looks_first; /* every kernel looks at them before its first chunk, as nobody else could for it */
    /* Most bytes that a load of elements of one byte may have; 0: any. */
    unsigned byte_lanes;
    unsigned extend_lanes; /* most lanes that become f64 out of f32 at once; 0: any */

    /* --- instructions: a NULL result is none --------------------------------------------------------- */

    LLVMValueRef (*round)(ash_emit *e, ash_op op, LLVMValueRef a); /* FLOOR, CEIL, TRUNC, ROUND */
    LLVMValueRef (*scale)(ash_emit *e, LLVMValueRef q,
                          LLVMValueRef n); /* (1 + q) * 2^n, n whole, rounded once */
    LLVMValueRef (*or_nan)(ash_emit *e, LLVMValueRef a, LLVMValueRef b); /* a, or a NaN where b is one */
    LLVMValueRef (*from_f16)(ash_emit *e, LLVMValueRef a);               /* 16 bits to f32 */
    LLVMValueRef (*to_f16)(ash_emit *e, LLVMValueRef a);                 /* f32 to 16 bits, ties to even */

    LLVMValueRef (*to_bytes)(ash_emit *e, LLVMValueRef x, const ash_bytes_out *how); /* x: f32 */

    /* c plus, in each i32, the sum of the products of its four bytes: of a without sign, of b with sign. */
    LLVMValueRef (*dot4)(ash_emit *e, LLVMValueRef a, LLVMValueRef b, LLVMValueRef c);
    /* The same of pairs of bf16, as i32, and a sum of f32; NULL where the kind has none. */
    LLVMValueRef (*dot2)(ash_emit *e, LLVMValueRef a, LLVMValueRef b, LLVMValueRef c);

    /* For each of the bytes the one that it numbers in a table, a vector of 256. */
    LLVMValueRef (*lookup)(ash_emit *e, LLVMValueRef table, LLVMValueRef bytes);

    /* PERMUTE of elements of 4 bytes; NULL, also as a result: there is no such instruction. */
    LLVMValueRef (*permute)(ash_emit *e, LLVMValueRef a, LLVMValueRef places);

    /* SHUFFLE of a and b, which may be NULL, both scalars or vectors: the lanes that `pick` numbers, -1 for
     * any. NULL: LLVM's instruction always. */
    LLVMValueRef (*shuffle)(ash_emit *e, LLVMValueRef a, LLVMValueRef b, const int32_t *pick,
                            unsigned lanes);

    /* TILE_LINES_ARE; TILE_ZERO; TILE_DOT between addresses, y's tiles `far` elements apart; TILE_PUT to
     * an address. NULL: no target of the kind has tiles. Before the first one of a kernel, and behind the
     * last one: what registers for tiles need. */
    void (*tile_lines_are)(ash_emit *e, LLVMValueRef lines);
    void (*tile_zero)(ash_emit *e, ash_nest_tiles tiles);
    void (*tile_dot)(ash_emit *e, ash_nest_tiles tiles, LLVMValueRef x, LLVMValueRef y, int64_t far);
    void (*tile_put)(ash_emit *e, ash_nest_tiles tiles, LLVMValueRef to);
    void (*tiles_open)(ash_emit *e);
    void (*tiles_close)(ash_emit *e);

    /* --- blocks of threads: NULL where no nest has `threads` ----------------------------------------- */

    /* BARRIER, COPY_COMMIT, COPY_WAIT; REDUCE of `a`. */
    LLVMValueRef (*block)(ash_emit *e, const ash_inst *inst, LLVMValueRef a);
    /* MMA of a kind (ash_inst.i); TF32; TILE_LOAD from the thread's address. */
    LLVMValueRef (*mma)(ash_emit *e, int64_t kind, LLVMValueRef a, LLVMValueRef b, LLVMValueRef c);
    LLVMValueRef (*tf32)(ash_emit *e, LLVMValueRef a);
    LLVMValueRef (*tile_load)(ash_emit *e, LLVMValueRef from, bool transposed);
    /* How far an instruction that copies reaches from the register of its address, both ways; 0: anywhere.
     * An address so many bytes further on, in one instruction, which the assembler cannot take for a
     * constant. */
    int64_t (*copy_reach)(const ash_emit *e);
    LLVMValueRef (*add)(ash_emit *e, LLVMValueRef address, int64_t bytes);
    /* The same integer: the assembler knows neither its value nor that all threads have the same. */
    LLVMValueRef (*differ)(ash_emit *e, LLVMValueRef value);
    /* The same integer, of which LLVM knows nothing; to the assembler it is the same. */
    LLVMValueRef (*veil)(ash_emit *e, LLVMValueRef value);
    /* COPY_ASYNC of so many bytes between two addresses; `condition` may be NULL. */
    void (*copy)(ash_emit *e, LLVMValueRef to, LLVMValueRef from, unsigned bytes, LLVMValueRef condition);

    /* The remainder (REM) of f32 and f64, which is never NULL, and functions of f64 where the machine has a
     * library; the emitter's formulas of f64 need a fused multiply-add. */
    LLVMValueRef (*library)(ash_emit *e, ash_op op, ash_dtype dtype, LLVMValueRef a, LLVMValueRef b);
};

extern const ash_code_target ash_code__host;  /* host/host.c */
extern const ash_code_target ash_code__nvptx; /* nvptx/nvptx.c */

/* The table of a kind; NULL: nothing generates code for it. */
const ash_code_target *ash_code_target__of(ash_target_kind kind);

#endif
