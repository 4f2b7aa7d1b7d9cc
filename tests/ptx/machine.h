/* SPDX-License-Identifier: MIT */
/* Inside the stand-in: what reading makes of PTX, and how it is run.
 *
 * A kernel is a flat list of instructions: calls are read in place, so there is no stack. A register is
 * a row with an element per thread of the block, and so is every immediate and special register; rows
 * of one kernel make a frame. An instruction runs for all active threads at once; of threads that are
 * at different places, those at the lowest go first, which brings branches together again where they
 * join. */
#ifndef PTX_MACHINE_H
#define PTX_MACHINE_H

#include <stdarg.h>
#include <string.h>

#include "ptx.h"

enum {
    PTX_WARP = 32,
    PTX_THREADS = 1024, /* of a block, at most */
    PTX_OPERANDS = 16,
    PTX_ARGUMENTS = 6,
};

/* Types: TYPE(NAME, text, bytes, kind). One to a line: the formatter does not come to rest on these. */
/* clang-format off */
#define PTX_TYPES(TYPE) \
    TYPE(NO_TYPE, "", 0, 'n') \
    TYPE(PRED, "pred", 1, 'p') \
    TYPE(B8, "b8", 1, 'b') \
    TYPE(U8, "u8", 1, 'u') \
    TYPE(S8, "s8", 1, 's') \
    TYPE(B16, "b16", 2, 'b') \
    TYPE(U16, "u16", 2, 'u') \
    TYPE(S16, "s16", 2, 's') \
    TYPE(F16, "f16", 2, 'f') \
    TYPE(BF16, "bf16", 2, 'f') \
    TYPE(B32, "b32", 4, 'b') \
    TYPE(U32, "u32", 4, 'u') \
    TYPE(S32, "s32", 4, 's') \
    TYPE(F32, "f32", 4, 'f') \
    TYPE(TF32, "tf32", 4, 'f') \
    TYPE(F16X2, "f16x2", 4, 'f') \
    TYPE(BF16X2, "bf16x2", 4, 'f') \
    TYPE(B64, "b64", 8, 'b') \
    TYPE(U64, "u64", 8, 'u') \
    TYPE(S64, "s64", 8, 's') \
    TYPE(F64, "f64", 8, 'f')
/* clang-format on */

typedef enum ptx_type {
#define TYPE(name, text, bytes, kind) name,
    PTX_TYPES(TYPE)
#undef TYPE
} ptx_type;

static const struct {
    uint8_t bytes;
    char kind;
} ptx_type_facts[] = {
#define TYPE(name, text, bytes, kind) {bytes, kind},
    PTX_TYPES(TYPE)
#undef TYPE
};
static inline unsigned ptx_type_bytes(ptx_type type) {
    return ptx_type_facts[type].bytes;
}
static inline char ptx_type_kind(ptx_type type) {
    return ptx_type_facts[type].kind;
}

/* Modifiers, in groups of which an instruction has one word at most: its number in the group, 0 none. */
typedef enum ptx_group {
    G_ROUND,   /* rn rz rm rp rni rzi rmi rpi rna */
    G_SAT,     /* sat */
    G_PART,    /* lo hi wide */
    G_COMPARE, /* eq ne lt le gt ge lo ls hi hs equ neu ltu leu gtu geu num nan */
    G_LOGIC,   /* and or xor */
    G_SPACE,   /* const global local param shared */
    G_CACHE,   /* how to cache and prefetch: nothing to us */
    G_ORDER,   /* volatile relaxed acquire release weak acq_rel sc */
    G_SCOPE,   /* cta gpu sys */
    G_VECTOR,  /* v2 v4 */
    G_NAN,     /* NaN */
    G_WAY,     /* up down bfly idx all any uni ballot to l r */
    G_CLAMP,   /* clamp wrap */
    G_ATOM,    /* add min max and or xor exch cas inc dec */
    G_SHAPE,   /* m8n8 m16n8k4 ... */
    G_LAYOUT,  /* row, then col */
    G_COUNT,   /* x1 x2 x4 */
    G_TRANS,   /* trans */
    G_APPROX,  /* approx full */
    G_PERMUTE, /* f4e b4e rc8 ecl ecr rc16 */
    G_SIGN,    /* relu satfinite */
    G_SYNC,    /* sync aligned uni: words without a choice */
    N_GROUPS
} ptx_group;

enum { ROUND_RN = 1, ROUND_RZ, ROUND_RM, ROUND_RP, ROUND_RNI, ROUND_RZI, ROUND_RMI, ROUND_RPI, ROUND_RNA };
enum { PART_LO = 1, PART_HI, PART_WIDE };
enum {
    CMP_EQ = 1,
    CMP_NE,
    CMP_LT,
    CMP_LE,
    CMP_GT,
    CMP_GE,
    CMP_EQU,
    CMP_NEU,
    CMP_LTU,
    CMP_LEU,
    CMP_GTU,
    CMP_GEU,
    CMP_NUM,
    CMP_NAN
};
enum { LOGIC_AND = 1, LOGIC_OR, LOGIC_XOR };
enum { SPACE_GENERIC, SPACE_CONST, SPACE_GLOBAL, SPACE_LOCAL, SPACE_PARAM, SPACE_SHARED };
enum {
    ORDER_UNSAID,
    ORDER_VOLATILE,
    ORDER_RELAXED,
    ORDER_ACQUIRE,
    ORDER_RELEASE,
    ORDER_WEAK,
    ORDER_ACQ_REL,
    ORDER_SC
};
enum { SCOPE_UNSAID, SCOPE_CTA };
enum {
    WAY_UP = 1,
    WAY_DOWN,
    WAY_BFLY,
    WAY_IDX,
    WAY_ALL,
    WAY_ANY,
    WAY_UNI,
    WAY_BALLOT,
    WAY_TO,
    WAY_LEFT,
    WAY_RIGHT
};
enum {
    ATOM_ADD = 1,
    ATOM_MIN,
    ATOM_MAX,
    ATOM_AND,
    ATOM_OR,
    ATOM_XOR,
    ATOM_EXCH,
    ATOM_CAS,
    ATOM_INC,
    ATOM_DEC
};
enum { SHAPE_M8N8 = 1, SHAPE_M16N8K4, SHAPE_M16N8K8, SHAPE_M16N8K16, SHAPE_M16N8K32 };

#define PTX_NONE UINT32_MAX

typedef struct ptx_block ptx_block;
typedef struct ptx_insn ptx_insn;

/* A row of the frame: element `lane` lies at (slot * pad of the block) + bytes * lane. */
typedef struct ptx_operand {
    uint32_t slot; /* bytes per thread before it; PTX_NONE: absent */
    uint8_t bytes; /* of an element: 1 (predicates, 0 or 1), 2, 4, 8 */
    bool negated;  /* a predicate that is read the other way round */
} ptx_operand;

/* How the run loop treats an instruction. */
typedef enum ptx_control { RUN, BRANCH, BRANCH_TABLE, LEAVE, BARRIER } ptx_control;

/* What each execution looks at comes first. */
struct ptx_insn {
    void (*run)(ptx_block *block, const ptx_insn *in); /* for the active threads */
    ptx_operand *op;                                   /* operands, flat */
    ptx_operand guard;
    uint8_t control;
    uint8_t n_arguments;
    uint32_t straight; /* from here up to this one, all RUN one after the other, without guards */
    uint32_t multiply_adds, matrices; /* of these kinds, before it in the kernel */
    uint8_t first[PTX_ARGUMENTS],
        count[PTX_ARGUMENTS]; /* argument a is op[first[a]] and the count - 1 after it */
    uint8_t type[4], word[N_GROUPS];
    uint32_t
        target; /* of a branch: number of an instruction; of a table: of its first entry in `targets` */
    uint32_t n_targets;
    uint32_t line;           /* of the text, from 1 */
    uint32_t pattern;        /* of the first memory operand, in `patterns` of the block */
    int64_t displacement[2]; /* of the memory operands */
    bool dynamic[2];         /* it counts from the shared memory of the launch */
    uint8_t n_memory, n_types;
};

typedef enum ptx_special {
    TID_X,
    TID_Y,
    TID_Z,
    NTID_X,
    NTID_Y,
    NTID_Z,
    CTAID_X,
    CTAID_Y,
    CTAID_Z,
    NCTAID_X,
    NCTAID_Y,
    NCTAID_Z,
    LANEID,
    WARPID,
    NWARPID,
    SMID,
    NSMID,
    GRIDID,
    CLOCK,
    CLOCK64,
    GLOBALTIMER,
    LANEMASK_EQ,
    LANEMASK_LE,
    LANEMASK_LT,
    LANEMASK_GE,
    LANEMASK_GT,
    DYNAMIC_SMEM,
    TOTAL_SMEM,
    N_SPECIALS
} ptx_special;

/* A row that is filled before a kernel runs: a number, or a special register. */
typedef struct ptx_constant {
    uint64_t value;
    ptx_operand row;
    ptx_special special; /* N_SPECIALS: `value` it is */
    bool dynamic;        /* `value` counts from the shared memory of the launch */
} ptx_constant;

typedef struct ptx_param {
    uint32_t offset, bytes;
} ptx_param;

typedef struct ptx_module ptx_module;

/* A kernel as it was read. */
typedef struct CUfunc_st {
    char *name;
    ptx_module *module;
    ptx_insn *insns;
    ptx_constant *constants;
    ptx_param *params;
    uint32_t *targets; /* of branches by table */
    uint32_t n_insns, n_constants, n_params, n_targets, n_patterns;
    uint32_t frame_bytes, param_bytes, local_bytes; /* the first and the last per thread */
    uint32_t shared_bytes, shared_align;            /* without what the launch adds */
    uint32_t most_threads; /* maxntid or reqntid as a number of threads; 0: not said */
    uint32_t required[3];  /* reqntid; 0: not said */
    int dynamic_limit;     /* CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES */
} ptx_kernel;

/* Global variables of a module are allocations. */
typedef struct ptx_variable {
    char *name;
    uint64_t address, bytes;
} ptx_variable;

struct ptx_module {
    char *text;
    int target, version; /* 80 for sm_80; 74 for 7.4 */
    ptx_kernel **kernels;
    ptx_variable *variables;
    uint32_t n_kernels, n_variables;
    struct ptx_piece *pieces; /* of memory that lives as long as the module */
    int device;
};

/* --- memory --------------------------------------------------------------------------------------- */

/* Who wrote and read last, per cell of 4 bytes, of 1 as soon as there was an access of less. Who: a
 * number that only grows, a range of them per launch or, in shared memory, per stretch between
 * barriers. */
typedef struct ptx_cell {
    uint32_t writer; /* 0: nobody; PTX_PENDING: a cp.async that nobody waited for yet */
    uint32_t reader;
} ptx_cell;

enum { PTX_PENDING = -1 };

typedef struct ptx_shadow {
    ptx_cell *cells;
    uint64_t bytes; /* of what it shadows */
    unsigned shift; /* bytes of a cell: 1 << shift */
} ptx_shadow;

typedef enum ptx_kind { DEVICE_MEMORY, HOST_MEMORY, CONSTANT_MEMORY } ptx_kind;

typedef struct ptx_allocation {
    uint64_t address, bytes;
    unsigned char *data; /* for HOST_MEMORY at `address` itself */
    ptx_kind kind;
    int device;
    bool owned, registered;
    ptx_shadow shadow;
    struct ptx_word *words; /* by which commands tell each other what is over: queue.h */
} ptx_allocation;

/* Addresses of device memory: no memory of the host is there. */
#define PTX_DEVICE_FIRST UINT64_C(0x200000000000)
#define PTX_DEVICE_END   UINT64_C(0x280000000000)
static inline bool ptx_is_device(uint64_t address) {
    return address >= PTX_DEVICE_FIRST && address < PTX_DEVICE_END;
}

/* Generic addresses of shared and local memory. No allocation is there. */
#define PTX_SHARED_WINDOW UINT64_C(0x7a00000000000000)
#define PTX_LOCAL_WINDOW  UINT64_C(0x7b00000000000000)
#define PTX_WINDOW_MASK   UINT64_C(0xff00000000000000)

typedef struct ptx_clock ptx_clock; /* what is over: queue.h */

/* One who accesses global memory: a command, or a block of one. */
typedef struct ptx_who {
    uint32_t me;             /* number of the block in this launch */
    uint32_t base;           /* first number of this command; base: several blocks; base + 1: atomics */
    uint32_t safe;           /* smaller numbers are of commands that are known to be over */
    const ptx_clock *learnt; /* what is over, too, as a word said; NULL: nothing */
} ptx_who;

/* --- the block that runs * ------------------------------------------------------------------------ */

/* Copies of some threads of a warp by one instruction, on their way. */
typedef struct ptx_async {
    uint32_t group, threads; /* `threads`: a bit for each that has not waited yet */
    uint16_t first;          /* thread of the warp */
    uint8_t bytes;           /* of each copy */
    uint32_t to[PTX_WARP];   /* shared offsets */
    unsigned char data[];    /* of each thread, also of those that have none */
} ptx_async;

/* Bytes in a row that a warp touches. */
typedef struct ptx_spot {
    int32_t apart;
    uint16_t bytes;
    uint16_t thread; /* of the warp; PTX_WARP: several of them. In shared memory alone */
} ptx_spot;

/* The addresses of a whole warp, as distances from that of its first thread: what counts and checks
 * make of them is the same wherever that lies. An instruction keeps its last ones, as most warps have
 * them again. */
typedef struct ptx_pattern {
    int32_t apart[PTX_WARP];
    int32_t least, most; /* of them */
    int32_t step;        /* they are 0, step, 2 * step, ...; else PTX_NO_STEP */
    uint8_t bytes;       /* of an access; 0: there is no pattern yet */
    bool shared, aligned;
    uint16_t n_spots, made,
        beyond; /* sectors, or wavefronts, and those of them that a better one had not */
    uint8_t sectors[32], scattered[32]; /* by where in its sector the first address lies; 0 sectors: not
                                           counted yet */
    ptx_allocation *near;               /* that was accessed last */
    ptx_spot spot[PTX_WARP];
} ptx_pattern;

enum { PTX_NO_STEP = INT32_MIN };

typedef struct ptx_launch {
    ptx_kernel *kernel;
    unsigned grid[3], threads[3];
    uint32_t dynamic_bytes;
    unsigned char *params;
    uint64_t n_blocks;
    int device;
} ptx_launch;

struct ptx_block {
    const ptx_kernel *kernel;
    const ptx_launch *launch;
    uint64_t number;     /* of the block in the launch */
    uint64_t step, over; /* to the next block's number; blocks that are done */
    bool within;         /* a block, and not between two */
    unsigned threads;    /* of the block */
    unsigned pad;        /* elements of a row: threads, rounded up to whole warps */
    unsigned char *frame;
    const uint16_t *lane;          /* the active threads, ascending */
    unsigned n;                    /* of them */
    bool dense;                    /* they are lane[0] and those after it */
    unsigned whole;                /* so many of them, the first ones, are whole warps side by side */
    uint32_t pc;                   /* of the present instruction */
    uint8_t carry[PTX_THREADS];    /* of add.cc and its kin */
    uint32_t at[PTX_THREADS];      /* where each thread goes on; PTX_LEFT, PTX_WAITS */
    uint32_t barrier[PTX_THREADS]; /* of those that wait: where */
    uint16_t active[PTX_THREADS], some[PTX_THREADS];

    unsigned char *shared, *local;
    uint32_t shared_bytes;
    ptx_shadow shadow; /* of shared memory */
    /* Numbers of threads in shared memory: base: several warps; base + 1: atomics; then 33 for each
     * group, which is a warp since its last barrier: several threads of it, and each thread. */
    uint32_t base, next;
    uint32_t group_of_warp[PTX_WARP];
    uint16_t *warp_of_group;
    uint32_t n_groups, room_groups;

    unsigned char *async; /* of type ptx_async, one after the other */
    size_t async_bytes, async_room;
    uint32_t async_group[PTX_THREADS]; /* the group that is open */

    ptx_who who;
    ptx_clock *learnt;    /* `who` has it from a word; NULL: nothing yet */
    ptx_allocation *near; /* what was accessed last */
    ptx_pattern *patterns;
    ptx_counters *counters;
    uint64_t executed, until; /* instructions of threads; how many before the launch is put off */
    bool failed;
};

static const uint32_t PTX_LEFT = UINT32_MAX, PTX_WAITS = UINT32_MAX - 1;

/* The row of an operand. */
static inline void *ptx_row(const ptx_block *b, ptx_operand o) {
    return b->frame + (size_t)o.slot * b->pad;
}

/* Rows are the same or apart: an element depends on its own alone. */
#if defined(__GNUC__) && !defined(__clang__)
#define PTX_APART _Pragma("GCC ivdep")
#else
#define PTX_APART
#endif

/* Runs a body for each active thread `l`. Twice in the text: of whole warps compilers make vectors. */
#define PTX_LANES(b, l, ...)                                                                               \
    do {                                                                                                   \
        const size_t first_ = (b)->lane[0], whole_ = (b)->whole / PTX_WARP * PTX_WARP, n_ = (b)->n;        \
        PTX_APART for (size_t i_ = 0; i_ < whole_; i_++) {                                                 \
            const size_t l = first_ + i_;                                                                  \
            __VA_ARGS__;                                                                                   \
        }                                                                                                  \
        for (size_t i_ = whole_; i_ < n_; i_++) {                                                          \
            const size_t l = (b)->lane[i_];                                                                \
            __VA_ARGS__;                                                                                   \
        }                                                                                                  \
    } while (0)

static inline uint64_t ptx_get(const void *row, unsigned bytes, unsigned lane) {
    switch (bytes) {
    case 1: return ((const uint8_t *)row)[lane];
    case 2: return ((const uint16_t *)row)[lane];
    case 4: return ((const uint32_t *)row)[lane];
    default: return ((const uint64_t *)row)[lane];
    }
}

static inline void ptx_put(void *row, unsigned bytes, unsigned lane, uint64_t value) {
    switch (bytes) {
    case 1: ((uint8_t *)row)[lane] = (uint8_t)value; break;
    case 2: ((uint16_t *)row)[lane] = (uint16_t)value; break;
    case 4: ((uint32_t *)row)[lane] = (uint32_t)value; break;
    default: ((uint64_t *)row)[lane] = value; break;
    }
}

/* single.c: what runs an instruction of f32 that rounds to the nearest; any other: in->run. */
void (*ptx_single(const ptx_insn *in))(ptx_block *, const ptx_insn *);

/* The functions that run instructions. */
#define OP(name, shape, groups, kinds, types, control, run) void run(ptx_block *b, const ptx_insn *in);
#include "ops.def"
#undef OP

/* words.c: types, modifiers and operations by name. */
typedef struct ptx_op {
    const char *name;  /* the longest that the instruction begins with */
    const char *shape; /* of its operands, a letter each: read_body.c */
    uint64_t groups;   /* of modifiers that it may have */
    void (*run)(ptx_block *block, const ptx_insn *in);
    uint8_t control, n_types;
    const char *kinds; /* of its first type: kinds of PTX_TYPES; "" when there is none */
} ptx_op;
/* check.c: whether instructions of this kind are those that ptx_wrong has named, and what they do. */
bool ptx_is_wrong(const ptx_op *op);
void ptx_run_wrong(ptx_block *b, const ptx_insn *in);
const ptx_op *ptx_op_find(const char *name, size_t len, size_t *used);
/* The number of a modifier in one of the groups; *group is which. 0: there is none. */
int ptx_word_find(const char *word, size_t len, uint64_t groups, ptx_group *group);
ptx_type ptx_type_find(const char *word, size_t len);
ptx_special ptx_special_find(const char *name, size_t len, unsigned *bytes);

/* read.c: a module from PTX, NULL and ptx_refusal's text when it is refused. The text is copied.
 * `device` gets its variables. */
ptx_module *ptx_module_read(const char *text, size_t len, int device);
void ptx_module_free(ptx_module *module);

/* run.c: all blocks of a launch, in an order of the seed. It runs for about so many instructions;
 * true: it is over, or something was found. */
ptx_block *ptx_launch_begin(const ptx_launch *launch, ptx_who who);
bool ptx_launch_run(ptx_block *block, uint64_t most);
void ptx_launch_end(ptx_block *block);

/* check.c: findings. Notes the first one. With a block, its present instruction is named. Returns
 * false, always. */
bool ptx_found(ptx_check check, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
bool ptx_found_at(ptx_block *b, ptx_check check, unsigned lane, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));
bool ptx_checks(ptx_check check);
void ptx_refuse(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
uint64_t ptx_random(void); /* of the seed */
const char *ptx_source_line(const ptx_module *module, uint32_t line, int *len);
ptx_counters *ptx_counters_of(const char *kernel);
void ptx_found_reset(void);
void ptx_check_reset(const ptx_machine *machine, uint64_t seed);
int ptx_finding_code(void); /* CUDA_SUCCESS when nothing was found */
/* Whether the next one of this kind is the one that ptx_leave_out has named; it counts as seen. */
bool ptx_is_left_out(const char *kind);
bool ptx_is_waited(const char *function); /* as ptx_put_wait says */
extern ptx_machine ptx_is;
extern bool ptx_no_shortcuts; /* ptx_one_by_one */
extern bool ptx_watched;      /* ptx_watch */
void ptx_tell(uint32_t id, uint64_t address, uint64_t bytes, bool writes);
extern unsigned ptx_most_blocks;            /* ptx_few_blocks; 0: any number */
void *ptx_alloc(size_t count, size_t size); /* zeroed; ends the process when there is none */

/* memory.c: allocations of all devices. Device memory has addresses that are no addresses of the
 * host's. */
ptx_allocation *ptx_allocation_new(uint64_t bytes, ptx_kind kind, int device, void *host);
void ptx_allocation_free(ptx_allocation *a);
ptx_allocation *ptx_allocation_find(uint64_t address); /* that contains it; NULL */
ptx_allocation *ptx_allocation_at(size_t n);           /* in the order of addresses; NULL past the end */
void ptx_allocations_free(void);
/* Where an address lies, in words: for findings. */
const char *ptx_allocation_near(uint64_t address);
/* Notes that `bytes` are read or written, by `me` of the command; NULL: by something that everything
 * comes after. The check that fails, PTX_N_CHECKS when none does; *other is then who was there before.
 * `copies`: bytes that nobody wrote may be read. */
ptx_check ptx_note_read(ptx_allocation *a, uint64_t offset, uint64_t bytes, const ptx_who *who, bool copies,
                        uint32_t *other);
ptx_check ptx_note_write(ptx_allocation *a, uint64_t offset, uint64_t bytes, const ptx_who *who,
                         uint32_t *other);
/* The same of some spots, by what needs no second look; false: something does, and nothing is noted. */
bool ptx_note_spots(ptx_allocation *a, uint64_t offset, const ptx_spot *spots, unsigned n,
                    const ptx_who *who, bool writes);
/* An atomic: it may come before and after those of other commands. */
ptx_check ptx_note_atomic(ptx_allocation *a, uint64_t offset, uint64_t bytes, const ptx_who *who,
                          uint32_t *other);
void ptx_shadow_narrow(ptx_shadow *shadow); /* to a cell per byte */

/* queue.c: whether all of the command that has the number `id` happens before the one that runs, which has
 * learnt something or NULL; its name; whether the number is that of its atomics. */
bool ptx_task_ordered(uint32_t id, const ptx_clock *learnt);
const char *ptx_task_name(uint32_t id);
/* Of the command of that number: the how manieth launch it is since the last call of the other, which have
 * to begin after it; false: it is none. */
void ptx_launches_from_here(void);
bool ptx_launch_of(uint32_t id, uint64_t *launch);
bool ptx_task_is_atomic(uint32_t id);

/* word.c: an atomic of the block that runs, which releases to the word at an offset, acquires from it, or
 * both. What is released is what came before the whole command; what is acquired, the block knows. */
void ptx_word_order(ptx_block *b, ptx_allocation *a, uint64_t offset, bool releases, bool acquires);
void ptx_word_unlearn(ptx_block *b);
/* Words that are written by no atomic say nothing any more. */
void ptx_words_forget(ptx_allocation *a, uint64_t offset, uint64_t bytes);

/* PENDS: a cp.async writes to shared memory. */
typedef enum ptx_access { READS, WRITES, ATOMIC, PENDS } ptx_access;

/* shared.c: accesses to shared memory. False when something was found. */
bool ptx_shared_read(ptx_block *b, unsigned lane, uint32_t offset, unsigned bytes);
bool ptx_shared_write(ptx_block *b, unsigned lane, uint32_t offset, unsigned bytes, bool atomic);
/* A cp.async begins to write; those of some threads write. */
bool ptx_shared_pending(ptx_block *b, unsigned lane, uint32_t offset, unsigned bytes);
void ptx_shared_arrive(ptx_block *b, const ptx_async *copies, uint32_t threads);
/* All spots of a warp at `offset`, by what needs no second look; false: something does, and nothing
 * is noted. */
bool ptx_shared_spots(ptx_block *b, unsigned warp, uint32_t offset, const ptx_pattern *pattern,
                      ptx_access access);
void ptx_shared_begin(ptx_block *b); /* a block */
void ptx_shared_barrier(ptx_block *b);
void ptx_shared_warp_barrier(ptx_block *b, unsigned warp);

/* access.c: where an address of a thread leads: bytes of the host, NULL when something was found.
 * Checked, and noted as a read, a write, or an atomic one. `ordered` accesses (volatile, relaxed, ...)
 * are not part of races. */
unsigned char *ptx_reach(ptx_block *b, unsigned lane, int space, uint64_t address, unsigned bytes,
                         ptx_access access, bool ordered);
/* The address of a memory operand: `argument` is its operand, `which` of the memory operands it is. */
static inline uint64_t ptx_address(const ptx_block *b, const ptx_insn *in, unsigned argument,
                                   unsigned which, unsigned lane) {
    ptx_operand base = in->op[in->first[argument]];
    uint64_t from = base.slot == PTX_NONE ? 0 : ptx_get(ptx_row(b, base), base.bytes, lane);
    return from + (uint64_t)in->displacement[which];
}

/* The addresses of a memory operand of all active threads, by thread. Returns the space of the first,
 * which they are counted in. */
int ptx_addresses(ptx_block *b, const ptx_insn *in, unsigned argument, unsigned which, uint64_t *address);

/* pattern.c: makes it that of the addresses of a warp; false: they are too far apart. */
bool ptx_pattern_fit(ptx_pattern *pattern, const uint64_t *address, unsigned bytes, bool shared);
typedef struct ptx_request {
    int space;
    unsigned bytes; /* of a thread */
    ptx_access access;
    bool ordered;
} ptx_request;
/* The same as ptx_reach of all threads of a warp, `first` and so on, with their pattern; thread l
 * gets what it returns and pattern->apart[l]. NULL: it is not that simple, nothing is noted, and
 * threads go one by one. */
unsigned char *ptx_reach_warp(ptx_block *b, unsigned first, const ptx_request *request,
                              const uint64_t *address, ptx_pattern *pattern);
/* Of the active threads from the i-th on, those that are in its warp. */
static inline unsigned ptx_of_warp(const ptx_block *b, unsigned i) {
    unsigned first = b->lane[i], n = 1, end = (first / PTX_WARP + 1) * PTX_WARP;
    if (b->dense) return end - first < b->n - i ? end - first : b->n - i;
    while (i + n < b->n && b->lane[i + n] < end) n++;
    return n;
}

/* mma.c: d = a * b + c of a whole warp. False when something was found. */
bool ptx_mma_warp(ptx_block *b, const ptx_insn *in, unsigned warp);

/* count.c: what an access of some threads of a warp costs, `address` by thread: sectors, *scattered of
 * which are beyond those that as many bytes side by side touch from the same first one on; and wavefronts,
 * *conflicts of which are beyond the access's width. */
unsigned ptx_sectors(const uint64_t *address, const uint16_t *threads, unsigned n, unsigned bytes,
                     unsigned *scattered);
unsigned ptx_wavefronts(const uint64_t *address, const uint16_t *threads, unsigned n, unsigned bytes,
                        unsigned *conflicts);
/* Adds a request to the counters: of `n` threads, in a space that has them. `beyond`: conflicts, or what is
 * scattered. */
void ptx_count(ptx_block *b, int space, unsigned made, unsigned beyond, unsigned n, unsigned bytes,
               bool store);
/* Both of these, of n active threads of a warp. */
void ptx_count_threads(ptx_block *b, int space, const uint64_t *address, const uint16_t *threads,
                       unsigned n, unsigned bytes, bool store);
void ptx_count_matrix(ptx_block *b, const uint64_t *rows,
                      unsigned n); /* ldmatrix: 8 rows of 16 bytes each */

#endif
