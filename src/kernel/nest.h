/* SPDX-License-Identifier: MIT */
/* Loop nests: the form between fused operators and machine code.
 *
 * A nest is a list of instructions. Each has at most three operands, which are results of earlier
 * instructions, and at most one result: a scalar or a vector of lanes. Structure is spelled out by LOOP ...
 * END and IF ... ELSE ... END; a result may be used inside the block that defines it and the blocks in that
 * one. State that survives an iteration lives in cells (CELL, GET, SET), which code generation turns into
 * registers. Vectors, tiles and unrolling are already in the nest: it is the target's schedule, made by
 * lowering, and code generation maps it one to one.
 *
 * Memory is a table of buffers, addressed by element index. Loads and stores of several lanes touch
 * neighbours. Elements of bool are bytes in memory and single bits in registers.
 *
 * The kernel made from a nest has one contract on every device (ash_kernel_fn): it runs the chunks [begin,
 * end), in any split over any number of workers, with the same results. One that can take long for a single
 * chunk looks at certain places (POLL) whether it is asked to stop, and then ends where it is; what it
 * should have written is undefined then.
 *
 * On a GPU a chunk is a thread's, or, where the nest has `threads`, that of a block of so many: each of
 * them executes all of the nest, and what they do differs by THREAD alone. They share memory (SHARED), and
 * meet at a BARRIER: what one has written, another may read behind the next one. BARRIER, REDUCE,
 * COPY_COMMIT, COPY_WAIT, TILE_LOAD and MMA stand where all threads of the block come by, or none. */
#ifndef ASH_NEST_H
#define ASH_NEST_H

#include "ashlar/graph.h"
#include "base/base.h"
#include "device/kernel.h"

struct ash_text;

/* ash_kernel_fn: `buffers` are the base addresses of the nest's buffers, and behind them, where the nest
 * `polls`, the address of an ash_stop (base/progress.h); `vars` the present values of the graph's
 * variables; `worker` the index of the calling thread among those that execute the plan, for scratch
 * buffers. */

typedef uint32_t ash_ref; /* an instruction, and its result */
#define ASH_NO_REF UINT32_MAX

/* What is known of an index, an i64: nothing; 32 bits hold it; and also each sum of some of the terms that
 * it is the sum of (narrow.c). */
/* What is known of f32 that is cast to bytes: its lanes are numbers, and below 2^22. */
enum { ASH_NEST_SMALL = 1 };
enum { ASH_NEST_WIDE, ASH_NEST_NARROW, ASH_NEST_NARROW_SUMS };
enum { ASH_NEST_MMA_UNSIGNED_A = 0x100, ASH_NEST_MMA_UNSIGNED_B = 0x200 };

/* Fields: a b c operands; i f immediates; buf buffer; "type" is the result's dtype and lanes. */
typedef enum ash_nest_op {
    /* arguments of the kernel, all i64 */
    ASH_NEST_BEGIN_ARG, /* first chunk */
    ASH_NEST_END_ARG,   /* one past the last chunk */
    ASH_NEST_WORKER,
    ASH_NEST_THREAD, /* number of the thread in its block, below nest->threads */
    ASH_NEST_VAR,    /* i: index of the variable */
    /* values */
    ASH_NEST_INT,     /* i, of an integer type or bool; lanes 1 */
    ASH_NEST_FLOAT,   /* f, of a floating point type; lanes 1 */
    ASH_NEST_SPLAT,   /* a scalar, in every lane */
    ASH_NEST_LANES,   /* 0, 1, 2, ... of type i64 */
    ASH_NEST_EXTRACT, /* lane i of a */
    ASH_NEST_SHUFFLE, /* lanes of a, then of b, picked by `lanes` numbers that start at nest->shuffles[i]; b
                         may be none */
    /* structure */
    ASH_NEST_LOOP, /* for (v = a; v < b; v += i), i > 0; result v, i64 */
    ASH_NEST_IF,   /* a: scalar bool */
    ASH_NEST_ELSE,
    ASH_NEST_END,
    /* cells */
    ASH_NEST_CELL, /* a new cell with the value a; its type is a's */
    ASH_NEST_GET,  /* the value in cell a */
    ASH_NEST_SET,  /* cell a takes the value b */
    /* memory: element index a; b a mask (bool, same lanes) or none: lanes that are off are not touched and
       load 0 */
    ASH_NEST_LOAD,    /* neighbours from index a (scalar i64) */
    ASH_NEST_STORE,   /* c to neighbours from index a */
    ASH_NEST_GATHER,  /* a: vector of i64 indices */
    ASH_NEST_SCATTER, /* c to the elements a; of equal indices the last lane wins */
    ASH_NEST_ATOMIC,  /* element a becomes the core operator i (ADD, MIN, MAX) of it and c, at once, whoever
                        else does that; integers of 4 or 8 bytes, scalar. Whoever reads or writes it
                        otherwise comes before the kernel or after it. On GPUs alone */
    ASH_NEST_PREFETCH, /* the line at index a; i: 0 for reading, 1 for writing, 2 for reading much later,
                          into the second-level cache; never faults */
    /* arithmetic */
    ASH_NEST_COMPUTE, /* the elementwise core operator i (an ash_op) of a, b, c; CAST: to the result's type.
                         i64 index arithmetic uses ADD, SUB, MUL, MIN, MAX here and does not overflow */
    ASH_NEST_IDIV,    /* a / b for i64, a >= 0, b > 0 */
    ASH_NEST_IMOD,    /* a % b for i64, a >= 0, b > 0 */
    ASH_NEST_FMA,     /* a * b + c; one rounding where the target has the instruction */
    ASH_NEST_DOT4, /* lane j: c[j] + the sum over i < 4 of a[4 j + i] * b[4 j + i]. a: u8, b: i8, c and the
                         result: i32, exact but that sums wrap. a and b have four times the result's
                         lanes; one of them may have 4, which count for every lane */
    ASH_NEST_DOT2, /* the same of pairs: a and b bf16, twice the result's lanes, or 2; c and the result f32.
                      The two products may be added to each other first, and subnormal numbers be zeros */
    ASH_NEST_WHOLE, /* a, whole numbers of f32 that i32 has, as i32 */
    /* Registers for tiles have sums of i32, or of f32: `tall` by `wide` tiles of `height` lines of sixteen
       columns, which these four alone touch. i and unroll: ash_nest_tiles. Of buffers that no other
       overlaps. */
    ASH_NEST_TILE_LINES_ARE, /* of each tile the first a (scalar i64, at least 1) lines alone, if it has as
                                many: the others are neither read nor written. Until then all are; outside
                                of all that begins with TILE_ZERO */
    ASH_NEST_TILE_ZERO,      /* all sums are 0; before it they have no value */
    /* To each sum, of line l of the tall * height there are, and column j of the sixteen of tile v,
         sum += the sum over t < terms of x[l][t] * y[v][t / 4][j][t % 4]
       exact but that sums wrap, of bytes with sign or without, as the buffers say. Or of bf16, with 2 in
       place of 4, summed in f32 as DOT2 does, in any order. b, c: the first elements
       of x and y; x's lines are `apart` elements apart, those of y packed, its tiles a apart (a number). */
    ASH_NEST_TILE_DOT,
    ASH_NEST_TILE_PUT, /* all sums to `buf` from element a on: [wide][tall * height][16] */
    ASH_NEST_LOOKUP, /* a: bytes; the elements of a byte that they number among 256 in the buffer, from b on
                         (an index, scalar i64). i8 counts by its bits: -1 is 255 */
    ASH_NEST_PERMUTE, /* lane j: lane b[j] of a, of 4 bytes; b: i32, a's lanes, a power of two, by which it
                         counts modulo them */
    ASH_NEST_HREDUCE, /* all lanes of a into a scalar, by the core operator i: ADD, MUL, MIN, MAX, AND, OR;
                         pairwise, halves first, so that the order is fixed: lane j with lane j + ceil(n/2),
                         the middle lane of an odd number waits for the next round */
    ASH_NEST_POLL,    /* ends the kernel when that is asked for, and notes that something was left out */
    /* blocks of threads */
    ASH_NEST_BARRIER,
    /* the scalars a of `unroll` neighbouring threads, a power of two of at most 32, the first a multiple of
       it: put together by the core operator i as HREDUCE does, in one fixed tree, thread j with j ^ half,
       halves first; each gets the result */
    ASH_NEST_REDUCE,
    /* `unroll` neighbours (4, 8 or 16 bytes, at a multiple of that in both) from element b of buffer i to
       element a of shared memory `buf`; c: a bool, where it does not hold zeros are written and nothing is
       read. They are there, for the thread that copies, at its COPY_WAIT, and may not be touched before. */
    ASH_NEST_COPY_ASYNC,
    ASH_NEST_COPY_COMMIT, /* the thread's copies since the last one are a group */
    ASH_NEST_COPY_WAIT,   /* until all groups of the thread are there, but the last i */
    /* Warps, of 32 threads each; l is the thread's number in its warp. Pairs of elements of 16 bits are an
       i32, the lower one in the lower half.
       Four matrices of 8 x 8 such elements from shared memory: thread l names row l % 8 of matrix l / 8 by
       the index a of its first element, at a multiple of 16 bytes, and gets as lane j elements 2 (l % 4)
       and the next one of row l / 4 of matrix j; i: 1, of matrix j transposed. i32, 4 lanes. Of elements
       of 32 or 8 bits, which are not transposed: the one, or the four, that lie there. */
    ASH_NEST_TILE_LOAD,
    ASH_NEST_TF32, /* a, f32, with the 10 upper bits of its mantissa: the nearest such number, ties away
                      from zero; what is past the largest is infinity. f32, as many lanes */
    /* a b + c, of a [16, k], b [k, 8], c and the result [16, 8]. i: the dtype of a and b, with
       ASH_NEST_MMA_UNSIGNED_A and B
         F16, BF16   k = 16, two elements to a word, c of f32
         F32         k = 8, an element to a word, numbers of TF32, c of f32
         I8          k = 32, four elements to a word, each of a and b u8 where i says so, c of i32, exact
       With e elements to a word, g = l / 4, u = l % 4, a thread has, lane by lane,
         a (4 words)    rows g, g + 8, g, g + 8     columns e u, e u, e (u + 4), e (u + 4) and the next
         b (2 words)    rows e u, e (u + 4) and the next     column g
         c (4 lanes)    rows g, g, g + 8, g + 8     columns 2 u, 2 u + 1, 2 u, 2 u + 1
       where words are i32, of F32 f32. Sums of floats are in an order, and rounded in ways, that the
       machine has; those of integers wrap. */
    ASH_NEST_MMA,
    ASH_NEST_OP_COUNT
} ash_nest_op;

enum { ASH_NEST_LANES_MAX = 1024 };

typedef struct ash_inst {
    uint16_t op;    /* ash_nest_op */
    uint16_t lanes; /* of the result; 1 is a scalar, 0 no result */
    uint8_t dtype;  /* ash_dtype of the result */
    uint8_t width;  /* of an i64: how narrow it is known to be; of a CELL: whatever it holds */
    uint16_t buf;   /* a buffer, or with ASH_NEST_SHARED in it a memory of the block */
    ash_ref a, b, c;
    uint32_t
        unroll; /* LOOP: iterations per trip that code generation should lay out in a row; 0 or 1: none.
                   CAST of f32 to bytes: ASH_NEST_SMALL, or 0 */
    union {
        int64_t i;
        double f;
    };
} ash_inst;

/* What TILE_ZERO, TILE_DOT and TILE_PUT say of tiles; operands and terms count for the second alone. */
enum {
    ASH_NEST_TILE_LINES = 16,
    ASH_NEST_TILE_TERMS = 64 /* bytes of them */,
    ASH_NEST_TILES = 4 /* each at most */
};
typedef struct ash_nest_tiles {
    uint16_t x, y; /* buffers of i8 or u8, or both of bf16 */
    uint32_t apart;
    uint8_t terms, height, tall, wide; /* terms: a multiple of 4, or 2 */
} ash_nest_tiles;

static inline int64_t ash_nest_pack_tiles(ash_nest_tiles t) {
    return (int64_t)t.x | (int64_t)t.y << 16 | (int64_t)((uint64_t)t.apart << 32);
}
static inline ash_nest_tiles ash_nest_tiles_of(const ash_inst *inst) {
    const uint32_t shape = inst->unroll;
    return (ash_nest_tiles){
        (uint16_t)inst->i,     (uint16_t)(inst->i >> 16), (uint32_t)((uint64_t)inst->i >> 32),
        (uint8_t)shape,        (uint8_t)(shape >> 8),     (uint8_t)(shape >> 16),
        (uint8_t)(shape >> 24)};
}
static inline bool ash_nest_is_tile(const ash_inst *inst) {
    return inst->op >= ASH_NEST_TILE_LINES_ARE && inst->op <= ASH_NEST_TILE_PUT;
}

typedef struct ash_nest_buffer {
    ash_dtype dtype;
    uint32_t align; /* bytes that the base address is known to be a multiple of, at least 1 */
    uint16_t group; /* buffers of different groups never overlap; a written buffer overlaps others of its
                       group only element on element, as in-place operations do */
    bool written;
} ash_nest_buffer;

/* Memory of a block of threads, or, in a nest without `threads`, of one call of the kernel, whose stack it
 * lies on: the bit of ash_inst.buf that says so, and what is known of it. Undefined when the kernel begins;
 * its base is a multiple of 16 bytes. */
enum { ASH_NEST_SHARED = 0x8000 };
typedef struct ash_nest_shared {
    ash_dtype dtype;
    uint32_t count; /* elements */
} ash_nest_shared;

typedef struct ash_nest {
    const ash_allocator *allocator;
    ASH_VEC(ash_inst) code;
    ASH_VEC(uint8_t)
    tags; /* per instruction: 0 for structure, else a hash, so that equal ones are found fast */
    ASH_VEC(ash_nest_buffer) buffers;
    ASH_VEC(int32_t) shuffles;
    uint32_t
        threads; /* of a block, which takes a chunk together, a multiple of 32, at most 1024; 0: a chunk
                         is one thread's */
    uint32_t resident; /* blocks that a multiprocessor is to have registers for; 0: one */
    ASH_VEC(ash_nest_shared) shared;
    size_t recent;       /* instructions from here on may be found again */
    size_t n_recent;     /* so many of them are no constants */
    bool failed;         /* building failed: what was added after is lost */
    bool too_large;      /* and why: more than references can name; else out of memory */
    bool polls;          /* it contains a POLL */
    ash_product product; /* rows > 0: a library of the device does this, with the nest's buffers as its
                            table, and there is no code */
} ash_nest;

static inline bool ash_nest_is_product(const ash_nest *nest) {
    return nest->product.rows > 0;
}

void ash_nest_init(ash_nest *nest, const ash_allocator *allocator);
void ash_nest_free(ash_nest *nest);
/* ASH_OK, or why building it failed. */
ash_status ash_nest_status(const ash_nest *nest, ash_diag *diag);
/* Checks structure, operand types and scopes; a defect is ASH_ERROR_INTERNAL. */
ash_status ash_nest_verify(const ash_nest *nest, ash_diag *diag);
/* Part of it, for nests with blocks of threads that are right otherwise: what the whole block must come by
 * stands under conditions and bounds that are the same for all of its threads. */
ash_status ash_nest__verify_block(const ash_nest *nest, ash_diag *diag);
/* Readable text: nested loops, one instruction a line. */
void ash_nest_print(const ash_nest *nest, struct ash_text *out);

/* The same of what a library does, on one line without its end. */
void ash_nest_print_product(const ash_product *product, struct ash_text *out);

/* --- building: each appends and returns the result --------------------------------------------------- */

uint16_t ash_nest_buffer_add(ash_nest *nest, ash_nest_buffer buffer);
/* Memory of the block: what loads and stores name it by. */
uint16_t ash_nest_shared_add(ash_nest *nest, ash_dtype dtype, uint32_t count);
/* Where the memory number `index` of the block begins, all of them lying one behind the other; of their
 * number it is where the last one ends. */
uint64_t ash_nest_shared_at(const ash_nest *nest, size_t index);
/* Of a buffer, or a memory of the block. */
ash_dtype ash_nest_dtype(const ash_nest *nest, uint16_t buf);
ash_ref ash_nest_add(ash_nest *nest, ash_inst inst);
/* Each gets the other's instructions; both have one allocator. */
void ash_nest__exchange_code(ash_nest *a, ash_nest *b);

ash_ref ash_nest_arg(ash_nest *n, ash_nest_op which); /* BEGIN_ARG, END_ARG, WORKER or THREAD */
ash_ref ash_nest_int(ash_nest *n, ash_dtype dtype, int64_t value);
ash_ref ash_nest_index(ash_nest *n, int64_t value); /* an i64 */
ash_ref ash_nest_float(ash_nest *n, ash_dtype dtype, double value);
ash_ref ash_nest_var(ash_nest *n, uint32_t index);
ash_ref ash_nest_splat(ash_nest *n, ash_ref scalar, unsigned lanes); /* the scalar itself for 1 lane */
ash_ref ash_nest_lanes(ash_nest *n, unsigned lanes);
ash_ref ash_nest_extract(ash_nest *n, ash_ref vector, unsigned lane);
ash_ref ash_nest_shuffle(ash_nest *n, ash_ref a, ash_ref b, unsigned lanes, const int32_t *pick);

ash_ref ash_nest_loop(ash_nest *n, ash_ref from, ash_ref to, int64_t step, unsigned unroll);
void ash_nest_if(ash_nest *n, ash_ref condition);
void ash_nest_else(ash_nest *n);
void ash_nest_end(ash_nest *n);

ash_ref ash_nest_cell(ash_nest *n, ash_ref init);
ash_ref ash_nest_get(ash_nest *n, ash_ref cell);
void ash_nest_set(ash_nest *n, ash_ref cell, ash_ref value);

ash_ref ash_nest_load(ash_nest *n, uint16_t buf, ash_ref index, unsigned lanes, ash_ref mask);
void ash_nest_store(ash_nest *n, uint16_t buf, ash_ref index, ash_ref value, ash_ref mask);
ash_ref ash_nest_gather(ash_nest *n, uint16_t buf, ash_ref indices, ash_ref mask);
void ash_nest_scatter(ash_nest *n, uint16_t buf, ash_ref indices, ash_ref value, ash_ref mask);
void ash_nest_atomic(ash_nest *n, ash_op op, uint16_t buf, ash_ref index, ash_ref value);
void ash_nest_poll(ash_nest *n);
void ash_nest_prefetch(ash_nest *n, uint16_t buf, ash_ref index, bool for_writing);
void ash_nest_prefetch_far(ash_nest *n, uint16_t buf, ash_ref index);

/* Elementwise core operators; the result has the operands' lanes, and the dtype that the operator gives.
 * Index arithmetic on constants is folded. */
ash_ref ash_nest_unary(ash_nest *n, ash_op op, ash_ref a);
ash_ref ash_nest_binary(ash_nest *n, ash_op op, ash_ref a, ash_ref b);
/* Whether both conditions hold, of which ASH_NO_REF always does. */
ash_ref ash_nest_both(ash_nest *n, ash_ref a, ash_ref b);
ash_ref ash_nest_select(ash_nest *n, ash_ref condition, ash_ref a, ash_ref b);
ash_ref ash_nest_cast(ash_nest *n, ash_dtype to, ash_ref a);
ash_ref ash_nest_bitcast(ash_nest *n, ash_dtype to, ash_ref a); /* dtypes of one size, none bool */
ash_ref ash_nest_idiv(ash_nest *n, ash_ref a, ash_ref b);
ash_ref ash_nest_imod(ash_nest *n, ash_ref a, ash_ref b);
ash_ref ash_nest_fma(ash_nest *n, ash_ref a, ash_ref b, ash_ref c);
ash_ref ash_nest_dot4(ash_nest *n, ash_ref a, ash_ref b, ash_ref c);
ash_ref ash_nest_dot2(ash_nest *n, ash_ref a, ash_ref b, ash_ref c);
/* Of `terms` terms, from elements `to`, `x` and `y` on. */
void ash_nest_tile_lines_are(ash_nest *n, ash_nest_tiles tiles, ash_ref lines);
void ash_nest_tile_zero(ash_nest *n, ash_nest_tiles tiles);
void ash_nest_tile_dot(ash_nest *n, ash_nest_tiles tiles, ash_ref x, ash_ref y, ash_ref far);
void ash_nest_tile_put(ash_nest *n, ash_nest_tiles tiles, uint16_t buf, ash_ref to);
ash_ref ash_nest_whole(ash_nest *n, ash_ref a);
ash_ref ash_nest_lookup(ash_nest *n, uint16_t buf, ash_ref index, ash_ref bytes);
ash_ref ash_nest_permute(ash_nest *n, ash_ref a, ash_ref places);
ash_ref ash_nest_hreduce(ash_nest *n, ash_op op, ash_ref vector);

/* Blocks of threads. */
void ash_nest_barrier(ash_nest *n);
ash_ref ash_nest_reduce(ash_nest *n, ash_op op, ash_ref scalar, unsigned threads);
/* `condition` may be ASH_NO_REF: it holds. */
void ash_nest_copy_async(ash_nest *n, uint16_t to, ash_ref to_index, uint16_t from, ash_ref from_index,
                         unsigned elements, ash_ref condition);
void ash_nest_copy_commit(ash_nest *n);
void ash_nest_copy_wait(ash_nest *n, unsigned left);
ash_ref ash_nest_tile_load(ash_nest *n, uint16_t buf, ash_ref index, bool transposed);
ash_ref ash_nest_tf32(ash_nest *n, ash_ref a);
/* `kind`: the dtype, and what is unsigned. */
ash_ref ash_nest_mma(ash_nest *n, int64_t kind, ash_ref a, ash_ref b, ash_ref c);

/* What builders see in place of an instruction that was lost to a failed allocation: an i64 scalar. */
extern const ash_inst ash_nest__lost;

static inline const ash_inst *ash_nest_at(const ash_nest *n, ash_ref ref) {
    return ref < n->code.len ? &n->code.at[ref] : &ash_nest__lost;
}

/* Whether it is a number, or one in every lane. */
static inline bool ash_nest_is_constant(const ash_nest *nest, const ash_inst *inst) {
    const ash_inst *of = inst->op == ASH_NEST_SPLAT ? ash_nest_at(nest, inst->a) : inst;
    return of->op == ASH_NEST_INT || of->op == ASH_NEST_FLOAT;
}

#endif
