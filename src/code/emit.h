/* SPDX-License-Identifier: MIT */
/* The emitter's inside: one nest becomes one LLVM function, each instruction a few of LLVM's, through its
 * builder. It is the same for every target; what a kind of machine does its own way it asks for
 * (code_target.h).
 *
 *   emit.c          function, walk over the instructions, cells, leaves
 *   emit_blocks.c   loops and their unrolling, branches
 *   emit_address.c  indices taken apart, addresses, what is known about alignment
 *   emit_memory.c   loads, stores, what is known about overlap
 *   emit_arith.c    COMPUTE, FMA, HREDUCE on floating point and integers
 *   emit_convert.c  CAST; f16 and bf16
 *   emit_math*.c    exp, log, sin, ...: polynomials
 *
 * Values in registers: f32, f64 and integers as they are, bool as i1, f16 and bf16 as their 16 bits
 * (arithmetic on them widens to f32 and rounds back). In memory bool is a byte. One lane is a scalar, more
 * are a vector. */
#ifndef ASH_EMIT_H
#define ASH_EMIT_H

#include <llvm-c/Core.h>

#include "code.h"
#include "ir/ir.h"

typedef struct ash_code_target ash_code_target;

/* What an emitted instruction's result is at the moment. */
typedef struct ash_slot_value {
    LLVMValueRef value; /* or a cell's alloca */
    LLVMValueRef
        base; /* LOOP: the variable of the emitted loop, NULL when it is a number; value = base + offset */
    int64_t offset;
} ash_slot_value;

/* A count beside the variable of an innermost loop: a distance, or the address of what walks through a
 * buffer. */
typedef struct ash_emit_counter {
    int64_t bytes; /* for 1 of the variable */
    LLVMValueRef phi, value;
} ash_emit_counter;

/* The part of an address that does not change in a loop: of a buffer, multiples of values. */
enum { ASH_EMIT_TERMS = 12 };
typedef struct ash_emit_place {
    uint16_t buf;
    unsigned count;
    LLVMValueRef values[ASH_EMIT_TERMS];
    int64_t coefs[ASH_EMIT_TERMS];
} ash_emit_place;

/* An innermost loop while its body is emitted, and what counts beside its variable: addresses, as many as
 * have registers in any case, and distances, which further addresses share. */
enum { ASH_EMIT_WALKERS = 4, ASH_EMIT_COUNTERS = 6 };
typedef struct ash_emit_inner {
    ash_ref loop;
    LLVMValueRef variable; /* NULL: there is none */
    LLVMValueRef from;
    LLVMBasicBlockRef before, head;
    unsigned walking, counting;
    ash_emit_counter walkers[ASH_EMIT_WALKERS], counters[ASH_EMIT_COUNTERS];
    ash_emit_place places[ASH_EMIT_WALKERS]; /* that walkers begin at */
} ash_emit_inner;

/* A line of copies: what they read is apart by numbers of bytes. */
enum { ASH_EMIT_LINES = 8, ASH_EMIT_PLACES = 16 };
typedef struct ash_emit_line {
    uint16_t buf;
    ash_ref begin;
    LLVMBasicBlockRef block;
    LLVMValueRef at[ASH_EMIT_PLACES]; /* addresses that copies are reached from, the last ones */
    int64_t places[ASH_EMIT_PLACES];  /* these, in bytes */
    unsigned n;                       /* how many there were; 0: no line */
    int64_t origin, first, step;      /* bytes: of `begin`, of the first copy; from a place to the next */
} ash_emit_line;

typedef struct ash_emit {
    const ash_nest *nest;
    const ash_target *target;
    const ash_code_target *kind; /* what that target's kind does its own way */
    unsigned features;           /* what `kind` has noted of the target */
    LLVMContextRef ctx;
    LLVMModuleRef module;
    LLVMBuilderRef b;
    LLVMValueRef fn;
    LLVMBasicBlockRef entry; /* allocas and buffer addresses; ends in a branch that is added last */
    LLVMBuilderRef at_entry;
    LLVMBasicBlockRef stopped;    /* leaves the kernel, and says so; NULL until used */
    LLVMValueRef asked, left_out; /* addresses of the words that are looked at */
    ash_slot_value *slots;        /* per instruction */
    ash_ref *close;               /* per instruction: LOOP, IF, ELSE: the ELSE or END that closes it */
    uint32_t *depth;              /* per instruction: loops that its value varies in, 0 for none */
    bool *of_cell;                /* per instruction: what depends on the cell that is looked at */
    uint8_t *facts;               /* per instruction: of the innermost loop that is looked at */
    bool given;                   /* conditions that do not change in it hold */
    LLVMValueRef *bases;     /* per buffer, then per memory of the block: its address, NULL until used */
    LLVMMetadataRef *scope;  /* per buffer: alias scope list of its group */
    LLVMMetadataRef *others; /* per buffer: scopes of all other groups */
    bool *constant;          /* per buffer: nothing of its group is written */
    unsigned kind_scope, kind_noalias, kind_invariant;
    ash_emit_inner inner;
    ash_emit_line lines[ASH_EMIT_LINES]; /* the last ones */
    unsigned next_line;
    LLVMValueRef one;   /* of GPUs: the number 1, of which that is not known; NULL until used */
    bool has_tiles;     /* the nest multiplies tiles, and the kind of machine has them */
    LLVMValueRef tiles; /* of hosts: where the shapes of registers for tiles lie, as they are set */
    const char *lacks;  /* what this kind of machine does not have, and the nest needs; NULL: nothing */
} ash_emit;

/* Emits `nest` as the function `symbol` into a module whose data layout is set, for a target and in the way
 * of its kind. The nest must verify. */
ash_status ash_emit__nest(const ash_code_target *kind, const ash_target *target, const ash_nest *nest,
                          const char *symbol, LLVMModuleRef module, ash_diag *diag);

/* --- types and constants ----------------------------------------------------------------------------- */

LLVMTypeRef ash_emit__type(ash_emit *e, ash_dtype dtype, unsigned lanes);
LLVMTypeRef ash_emit__vector(LLVMTypeRef element, unsigned lanes); /* the element itself for 1 lane */
unsigned ash_emit__lanes(LLVMValueRef value);
LLVMTypeRef ash_emit__element(LLVMTypeRef type);
/* The type with the lanes of `like` and another element. */
LLVMTypeRef ash_emit__like(LLVMValueRef like, LLVMTypeRef element);
LLVMValueRef ash_emit__splat(ash_emit *e, LLVMValueRef scalar, unsigned lanes);
/* A constant in every lane of a type. */
LLVMValueRef ash_emit__const_int(LLVMTypeRef type, int64_t value);
LLVMValueRef ash_emit__const_float(LLVMTypeRef type, double value);

/* A constant vector of integers, -1 for any; at once, as a constant that is put together lane by lane takes
 * LLVM the square of the lanes. */
LLVMValueRef ash_emit__const_vector(LLVMTypeRef element, const int32_t *numbers, unsigned lanes);
/* first, first + 1, ...; lanes from `count` on are anything. */
LLVMValueRef ash_emit__numbers(LLVMTypeRef element, unsigned first, unsigned count, unsigned lanes);

/* A call of an intrinsic that is overloaded on `types`. */
LLVMValueRef ash_emit__intrinsic(ash_emit *e, const char *name, LLVMTypeRef *types, unsigned n_types,
                                 LLVMValueRef *args, unsigned n_args);
/* The same for intrinsics that are overloaded on the type of their operands alone. */
LLVMValueRef ash_emit__unary(ash_emit *e, const char *name, LLVMValueRef a);
LLVMValueRef ash_emit__binary(ash_emit *e, const char *name, LLVMValueRef a, LLVMValueRef b);

/* So many bytes times the innermost loop's variable, as what counts by itself; NULL where there are too
 * many. With an address that does not change in that loop, in the block before it: added to that. */
LLVMValueRef ash_emit__counter(ash_emit *e, int64_t bytes);
LLVMValueRef ash_emit__walker(ash_emit *e, const ash_emit_place *place, LLVMValueRef address,
                              int64_t bytes);

/* Whether a result depends on its operands alone, wherever the instruction stands; whether it has none. */
bool ash_emit__is_pure(const ash_inst *inst);
bool ash_emit__is_leaf(const ash_inst *inst);
/* The instructions [from, to). */
void ash_emit__range(ash_emit *e, ash_ref from, ash_ref to);
/* A block to go on in; an index as a constant. */
LLVMBasicBlockRef ash_emit__new_block(ash_emit *e);
LLVMValueRef ash_emit__index(ash_emit *e, int64_t value);
void ash_emit__loop(ash_emit *e, ash_ref loop);
ash_ref ash_emit__if(ash_emit *e, ash_ref ref); /* returns its end */

/* --- concepts ---------------------------------------------------------------------------------------- */

/* What an instruction's result is held in: an i64 that 32 bits hold is an i32, where registers have no more
 * (ash_code_target.narrow). */
static inline LLVMValueRef ash_emit__held(const ash_emit *e, ash_ref ref) {
    return e->slots[ref].value;
}
bool ash_emit__is_narrow(const ash_emit *e, ash_ref ref); /* whether it is such an i32 */
/* Whether an instruction on indices has 32 bits for each. Those of a sum, a difference, a product or a
 * choice are those of its operands alone; all else takes whole operands, which 32 bits have to hold.
 * Processors divide and multiply vectors of 32 bits. */
bool ash_emit__computes_narrow(const ash_emit *e, const ash_inst *inst);
/* An index, or a vector of them, in 32 bits or in 64; as the instruction holds it, if it is one. */
LLVMValueRef ash_emit__resize(ash_emit *e, LLVMValueRef index, bool narrow);
LLVMValueRef ash_emit__as_held(ash_emit *e, ash_ref ref, LLVMValueRef value);
/* Whether a branch, or how often a loop runs, depends on what a cell holds. */
bool ash_emit__decides(ash_emit *e, ash_ref cell);
/* The result as its dtype says. */
LLVMValueRef ash_emit__value(ash_emit *e, ash_ref ref);

LLVMTypeRef ash_emit__memory_element(ash_emit *e, ash_dtype dtype); /* as it lies in memory */
LLVMValueRef ash_emit__base(ash_emit *e, uint16_t buf);
LLVMValueRef ash_emit__offset(ash_emit *e, LLVMTypeRef element, LLVMValueRef ptr, LLVMValueRef index);
/* The address of element `index`, and what its distance in bytes from the base is known to be a multiple
 * of. */
LLVMValueRef ash_emit__address(ash_emit *e, uint16_t buf, ash_ref index, uint64_t *multiple);
/* The same of what lies `constant` elements before it. */
LLVMValueRef ash_emit__address_before(ash_emit *e, uint16_t buf, ash_ref index, int64_t *constant,
                                      uint64_t *multiple);
void ash_emit__memory_begin(ash_emit *e);        /* scopes of the buffer groups */
void ash_emit__memory(ash_emit *e, ash_ref ref); /* LOAD, STORE, GATHER, SCATTER, PREFETCH, TILE_... */

LLVMValueRef ash_emit__compute(ash_emit *e, ash_op op, ash_dtype dtype, LLVMValueRef a, LLVMValueRef b);
LLVMValueRef ash_emit__integer(ash_emit *e, ash_op op, ash_dtype dtype, LLVMValueRef a, LLVMValueRef b);
LLVMValueRef ash_emit__fma(ash_emit *e, ash_dtype dtype, LLVMValueRef a, LLVMValueRef b, LLVMValueRef c);
LLVMValueRef ash_emit__dot4(ash_emit *e, LLVMValueRef a, LLVMValueRef b, LLVMValueRef c);
LLVMValueRef ash_emit__dot2(ash_emit *e, LLVMValueRef a, LLVMValueRef b, LLVMValueRef c);
LLVMValueRef ash_emit__hreduce(ash_emit *e, ash_op op, ash_dtype dtype, LLVMValueRef a);

LLVMValueRef ash_emit__part(ash_emit *e, LLVMValueRef v, unsigned from, unsigned count);
LLVMValueRef ash_emit__join(ash_emit *e, LLVMValueRef *parts, unsigned count);
/* The value in the same register, behind assembly that does nothing and has these constraints: LLVM knows
 * nothing of it then; `returns`: but that what comes behind is reached. */
LLVMValueRef ash_emit__same(ash_emit *e, const char *constraints, LLVMValueRef value, bool returns);

LLVMValueRef ash_emit__cast(ash_emit *e, ash_dtype from, ash_dtype to, LLVMValueRef a);
/* The cast to an integer of at most 16 bits of what rounding (to nearest, ties to even) makes of an f32. */
LLVMValueRef ash_emit__round_to_integer(ash_emit *e, ash_dtype to, LLVMValueRef a);
LLVMValueRef ash_emit__extend(ash_emit *e, LLVMValueRef a); /* f32 to f64 */
/* For tables of machines that have instructions for them: FLOOR, CEIL, TRUNC or ROUND; f32 out of the bits
 * of an f16, and back. */
LLVMValueRef ash_emit__round_by_instruction(ash_emit *e, ash_op op, LLVMValueRef a);
LLVMValueRef ash_emit__from_f16(ash_emit *e, LLVMValueRef a);
LLVMValueRef ash_emit__to_f16(ash_emit *e, LLVMValueRef a);
static inline bool ash_emit__is_half(ash_dtype dtype) {
    return dtype == ASH_F16 || dtype == ASH_BF16;
}

/* Floating point functions of f32 and f64. */
LLVMValueRef ash_emit__math(ash_emit *e, ash_op op, ash_dtype dtype, LLVMValueRef a, LLVMValueRef b);
LLVMValueRef ash_emit__round(ash_emit *e, ash_op op, LLVMValueRef a); /* FLOOR, CEIL, TRUNC, ROUND */

#endif
