/* SPDX-License-Identifier: MIT */
/* One kernel under construction, shared by the files that lower groups.
 *
 * Evaluation is by demand: to have the element of a value at an index, evaluate its producer's operands at
 * the indices that the operator says, down to buffers, which are loaded. Along one symbol (the vector
 * symbol) a whole vector of elements is evaluated at once: what does not depend on it stays scalar, what
 * has neighbouring addresses becomes a vector load, the rest a gather. */
#ifndef ASH_KERN_H
#define ASH_KERN_H

#include "fuse.h"
#include "index.h"
#include "program.h"
#include "quanta.h"

#define ASH_NO_SYM UINT32_MAX

/* Where a stored value lies: element (i0, i1, ...) at offset + sum of i * stride, in elements of its
 * dtype. */
typedef struct ash_value_place {
    uint32_t buffer; /* of the program, or ASH_NO_BUFFER */
    uint32_t view;   /* of it, that begins at the offset; or ASH_NO_BUFFER, and kernels add it */
    bool contiguous; /* row-major from the buffer's start; the fields below do not count */
    ash_dim offset, strides[ASH_MAX_RANK];
    int64_t begin, end; /* bytes of the buffer that access records name for the value */
} ash_value_place;

/* Digits of a value, which products of the same kind share. */
typedef struct ash_digits {
    uint32_t buffer; /* of the program, or ASH_NO_BUFFER: none */
    ash_value value;
    int64_t part, bits; /* terms of a record; of the weights */
    bool constant;      /* made in the prologue */
} ash_digits;

/* A nest of the program that is as it was made: nothing in it looks at the switch. */
typedef struct ash_plain_nest {
    uint32_t id;
    int64_t chunks; /* the most that were to run */
    double work;    /* ash_step.chunk_work */
} ash_plain_nest;

typedef struct ash_lowering {
    const ash_graph *graph;
    const ash_target *target;
    const ash_allocator *allocator;
    ash_fusion fusion;
    ash_program *program;
    ash_value_place *places; /* per value */
    const uint32_t *aligns;  /* see ash_lower_options, as `fuse` */
    bool fuse, apart;
    const uint32_t *parts;      /* per value: of a product, the parts of its sums, or 0 */
    const uint32_t *last_reads; /* per value: root of the last group that reads it */
    bool *updates;              /* per value: it is the new value of a state */
    bool once;                  /* what is lowered at the moment is the prologue */
    ash_quanta_known quanta;    /* requantize.c */
    ash_map views;              /* hash of root, offset and shift to a view */
    ash_map nest_ids;           /* hash of a nest's content to its index in the program */
    ash_map plain_ids;          /* hash of the same and the chunks to an index in `plain` */
    ASH_VEC(ash_plain_nest) plain;
    const ash_progress *progress; /* or NULL */
    size_t lowered;               /* groups */
    ash_digits digits;            /* that the last product with packed weights read */
    uint32_t settled; /* the buffer that the last step to settle a variable writes, or ASH_NO_BUFFER */
    ash_diag *diag;
} ash_lowering;

typedef struct ash_kern_memo {
    uint64_t hash;
    ash_value value;
    uint32_t context;
    ash_ix idx[ASH_MAX_RANK];
    ash_ref ref;
} ash_kern_memo;

typedef struct ash_kern_known {
    ash_value value;
    ash_ref ref;
} ash_kern_known;

/* What is known of all reads of one buffer, for in-place. */
typedef struct ash_kern_use {
    uint32_t buffer; /* of the program */
    ash_ix linear;   /* the index of all reads, when `single` */
    bool read, written, single;
} ash_kern_use;

/* A square block of elements, as many rows as a vector has lanes: it is loaded in vectors along another
 * symbol than the vector symbol, and transposed in registers. At the ends of either axis less of it is
 * there. */
enum { ASH_LEAST_TURNED = 4, ASH_MAX_TURNED = 16, ASH_MAX_TURNED_LOADS = 4 }; /* lanes; loads of a square */
typedef struct ash_kern_turn {
    ash_sym along; /* the other symbol */
    ash_ref base;  /* its value in row 0, a multiple of the lanes */
    unsigned row;  /* that is evaluated now */
    ash_ref count; /* rows that are there, 1 or more; ASH_NO_REF: all */
    ash_ref mask;  /* lanes that are there; ASH_NO_REF: all */
    ash_ref last;  /* the vector symbol's last value, where lanes are not there */
    unsigned n_loads;
    struct {
        uint16_t buf;
        ash_ix linear;
        ash_ref rows[ASH_MAX_TURNED];
    } loads[ASH_MAX_TURNED_LOADS];
} ash_kern_turn;

/* A square of elements whose operands lie along another axis than the result: they are loaded into the
 * memory of the block of threads before (loops_cross.c). */
typedef struct ash_kern_crossing {
    ash_sym line, along; /* axes of the result and of the operands */
    unsigned lanes;      /* neighbours that must lie evenly */
    ash_ref x, y;        /* line and element of each memory where the present element is */
    unsigned n;
    struct {
        uint16_t buf, memory;
        ash_ix linear;
    } at[ASH_MAX_TURNED_LOADS];
} ash_kern_crossing;

/* Loaded indices, a number for each lane, that are neighbours where a condition holds, or lie so close
 * together that one vector has all that they name. */
typedef struct ash_kern_run {
    ash_ref loaded; /* the vector */
    ash_ref holds;  /* scalar bool; ASH_NO_REF: always */
    ash_ix line;    /* what they are then; of close ones, what the first one is */
    ash_ref places; /* of close ones, i32: how far they are from the first one; ASH_NO_REF: neighbours */
    ash_ref there;  /* of close ones: which elements from the first one on the axis has; or ASH_NO_REF */
} ash_kern_run;

/* Scratch memory that the kernel has and that what is written next may use in its place. */
typedef struct ash_kern_spare {
    uint16_t buf;
    int64_t elements; /* f32; 0: there is none */
    ash_ref first;    /* the worker's */
} ash_kern_spare;

/* An index that a kernel computes: of an element of a value, or (ASH_NO_VALUE) a number. */
typedef struct ash_kern_leaf {
    ash_value value;
    ash_ix at;
} ash_kern_leaf;

enum { ASH_MAX_PACKED = 16 }; /* lanes of vectors across packed rows, which have fewer elements */

/* What would be stored element by element of packed rows: of each of them, a vector across the rows. */
typedef struct ash_kern_packed {
    ash_ref at[ASH_MAX_PACKED];
    unsigned n;
    uint16_t buf;
} ash_kern_packed;

enum { ASH_MAX_BETWEEN = 3 };

typedef struct ash_kern {
    ash_lowering *low;
    const ash_graph *graph;
    const ash_group *group;
    uint32_t group_id;
    ash_nest nest;
    ash_ixs ixs;
    ASH_VEC(ash_kern_use) uses; /* per buffer of the nest */
    ASH_VEC(ash_access) accesses;
    ASH_VEC(ash_ref) sym_refs; /* per symbol: its present value */
    ash_sym vsym;              /* the vector symbol, or ASH_NO_SYM */
    unsigned lanes;            /* of vectors along it; 1: everything is scalar */
    bool aligned;              /* vectors along it start at multiples of `lanes` */
    bool moved;                /* a kernel before the group's own one does its arithmetic; said of both */
    bool packed;               /* what lies several vectors apart is loaded as these, and not gathered */
    uint16_t sums, results;    /* the kernel's own memory for those of tiles (tile_store.c); 0: none yet */
    ash_kern_packed *pack;     /* what takes the elements that are stored, or NULL */
    ash_ref mask;              /* lanes that count (vector of bool), or ASH_NO_REF: all */
    ash_ref guard;             /* scalar: loads may touch memory only if it is true; or ASH_NO_REF */
    ash_value roomy; /* vectors of it may be loaded past what the mask has: that lies in the buffer, too,
                        and whatever is read there is dropped; or ASH_NO_VALUE */
    ash_kern_turn *turn;         /* the present block, or NULL */
    ash_kern_crossing *crossing; /* the present square, or NULL */
    uint32_t context; /* number of the present mask and guard, so that remembered values are not mixed up */
    ASH_VEC(ash_kern_known) known;
    ASH_VEC(ash_kern_run) runs;
    bool close; /* there are indices that are expected to be close */
    ASH_VEC(ash_kern_memo) memo;
    ash_map memo_ids;
    bool collecting; /* nothing is emitted: the addresses that would be are put on `leaves` */
    ASH_VEC(ash_kern_leaf) leaves;
    uint32_t digits; /* buffer of the program with the first operand as digits, or ASH_NO_BUFFER */
    uint32_t between[ASH_MAX_BETWEEN]; /* buffers that kernels of the group before this one have made for
                                          it, and ASH_NO_BUFFER (gpu/places.h) */
    ash_ix stored;                     /* the index that the root was stored at; valid when has_stored */
    bool has_stored, stored_once;
    ash_kern_spare spare;
    const ash_gpu_job *job; /* ash_step.job */
    bool failed;            /* out of memory, or too large */
    bool too_large;         /* a number of rows, chunks or bytes past 64 bits */
    bool broken;            /* what was seen to hold does not: a defect of lowering */
} ash_kern;

/* Whether building has failed: then refs, symbols and buffers may not exist, and nothing more is looked
 * up. */
static inline bool ash_kern_lost(const ash_kern *k) {
    return k->failed || k->ixs.failed || k->nest.failed;
}
/* ASH_OK, or why the kernel could not be built. */
ash_status ash_kern_status(const ash_kern *k);
/* For what has been checked, or follows from rules of the graph: when it does not hold all the same,
 * building fails with an internal error. What is lost to an earlier failure is not held against it. */
void ash_kern_expect(ash_kern *k, bool holds);

void ash_kern_init(ash_kern *k, ash_lowering *low, uint32_t group_id);
void ash_kern_free(ash_kern *k);

/* --- loops ---------------------------------------------------------------------------------------- */

ash_sym ash_kern_sym(ash_kern *k, ash_dim extent); /* a new symbol without a value */
/* Opens a loop whose variable becomes the symbol's value. */
ash_ref ash_kern_loop(ash_kern *k, ash_sym sym, ash_ref from, ash_ref to, int64_t step, unsigned unroll);
void ash_kern_set_sym(ash_kern *k, ash_sym sym, ash_ref ref);
/* Sets a symbol for each of `rank` dims from the number of an element, row by row. */
void ash_kern_decode(ash_kern *k, const ash_dim *dims, unsigned rank, const ash_sym *syms, ash_ref number);
/* A mark of what is remembered now, and forgetting all that came after it: around each block. */
size_t ash_kern_mark(const ash_kern *k);
void ash_kern_forget(ash_kern *k, size_t mark);

/* --- values --------------------------------------------------------------------------------------- */

ash_ref ash_kern_dim(ash_kern *k, ash_dim dim);        /* a dim's present value, i64 */
ash_ref ash_kern_index(ash_kern *k, ash_ix ix);        /* scalar: for lane 0 */
ash_ref ash_kern_vector_index(ash_kern *k, ash_ix ix); /* every lane */
bool ash_kern_is_vector(const ash_kern *k, ash_ix ix);
ash_ref ash_kern_splat(ash_kern *k, ash_ref ref); /* to the kernel's lanes, if it is a scalar */

/* The element (or vector of elements) of a value. f16 and bf16 come as f32. */
ash_ref ash_kern_eval(ash_kern *k, ash_value value, const ash_ix *idx);
/* Loads from a stored value, never computing it. */
ash_ref ash_kern_load(ash_kern *k, ash_value value, const ash_ix *idx);
/* Stores a result of the group's root, or what lies beside it, converted to its dtype; of a vector whose
 * lanes have one address, lane 0. */
void ash_kern_store(ash_kern *k, ash_value value, const ash_ix *idx, ash_ref ref);
/* While collecting: notes an index that the kernel would compute, of an element of `value` or
 * ASH_NO_VALUE. */
void ash_kern_collect(ash_kern *k, ash_value value, ash_ix at);
/* Makes evaluation return `ref` for a value at whatever index, until forgotten. */
void ash_kern_know(ash_kern *k, ash_value value, ash_ref ref);
/* Whether a value lies nowhere: it is computed, or gone through, where it is read. */
bool ash_kern_is_passed(const ash_kern *k, ash_value value);
/* Address of an element in its buffer. */
ash_ix ash_kern_linear(ash_kern *k, ash_value value, const ash_ix *idx);
/* The stored value behind a chain of movement, and the address of the element in its buffer; false when the
 * value is computed on the way. */
bool ash_kern_address(ash_kern *k, ash_value value, const ash_ix *idx, ash_value *stored, ash_ix *linear);
/* The program buffer that a kernel's indices of a value count in: its view, or the buffer that it is in. */
uint32_t ash_kern_buffer_of(const ash_kern *k, ash_value value);
/* The nest's number for a program buffer. */
uint16_t ash_kern_buffer(ash_kern *k, uint32_t buffer, ash_dtype dtype, bool write);
/* Records that the bytes of a stored value are touched; by way of such a buffer. */
void ash_kern_access(ash_kern *k, ash_value value, bool write);
void ash_kern_access_in(ash_kern *k, ash_value value, uint32_t buffer, bool write);

/* The condition 0 <= at < limit as a scalar or vector of bool, or ASH_NO_REF when it always holds. */
ash_ref ash_kern_in_bounds(ash_kern *k, ash_ix at, ash_dim limit);
/* The same for neighbours from `first` on, of which the lower end is tested where `low` says so, and the
 * upper one where there is a limit. `small`: 32 bits hold all of them, and the limit. */
ash_ref ash_kern_lanes_in_bounds(ash_kern *k, ash_ref first, bool low, ash_ref limit, bool small);
/* The lanes of the present vector below a number, which is no larger than there are. Of words it is that in
 * 32 bits: one comparison, and a mask that is whole. */
ash_ref ash_kern_first_lanes(ash_kern *k, ash_ref number);
/* Loads from now on count only where the condition holds: it goes into the mask or the guard. */
void ash_kern_narrow(ash_kern *k, ash_ref condition);

/* Around an operand that is evaluated under conditions of its own: what is remembered inside is not mixed
 * up with what is remembered outside, and mask and guard come back in the end. */
typedef struct ash_kern_scope {
    ash_ref mask, guard;
    uint32_t number;
    size_t mark, facts;
} ash_kern_scope;

ash_kern_scope ash_kern_enter(ash_kern *k);
void ash_kern_leave(ash_kern *k, ash_kern_scope scope);

/* One binary operator on operands of any lanes: a scalar one is repeated. */
ash_ref ash_kern_binary(ash_kern *k, ash_op op, ash_ref a, ash_ref b);
/* The neutral element of a reduction's operator in the dtype that it accumulates in. */
ash_ref ash_kern_neutral(ash_kern *k, ash_op combine, ash_dtype dtype);
/* The dtype that values of a dtype are computed in: f32 for f16 and bf16. */
ash_dtype ash_kern_dtype(ash_dtype dtype);

/* Lanes that suit the group: those of the widest element type it computes with; 1 where vectors do not
 * pay. */
unsigned ash_kern_lanes(const ash_kern *k);

/* --- groups --------------------------------------------------------------------------------------- */

/* Each writes the nest of one group and the number of its chunks. */
ash_status ash_kern_lower_loops(ash_kern *k,
                                ash_dim *chunks); /* map, rows, pool, and products without a tile form */
ash_status ash_kern_lower_tile(ash_kern *k, ash_dim *chunks,
                               bool *done); /* *done: false when there is no tile form */
bool ash_kern_lower_matmul(ash_kern *k, ash_dim *chunks);
bool ash_kern_lower_conv(ash_kern *k, ash_dim *chunks);
void ash_kern_lower_conv_weights(ash_kern *k, ash_dim *chunks);
void ash_kern_lower_winograd(ash_kern *k, ash_dim *chunks);
void ash_kern_lower_bits(ash_kern *k, ash_dim *chunks);
void ash_kern_lower_attend(ash_kern *k, ash_dim *chunks);
/* attend.c: the index of the product that scores are made from, at an index of the scores of `node`, which
 * attends: by the group's axes, which are those of the result, and behind them the keys. */
void ash_attend__product_at(const ash_kern *k, const ash_node *node, const ash_node *product,
                            const ash_ix *scores, ash_ix *idx);
/* bits_digits.c: whether a group's kernel reads digits of its first operand, and which; and the kernel of a
 * step that makes them, in a buffer that it adds to the program and returns. */
bool ash_kern_wants_digits(ash_kern *k, ash_digits *out);
uint32_t ash_kern_lower_digits(ash_kern *k, ash_dim *chunks);
ash_status ash_kern_lower_other(ash_kern *k, ash_dim *chunks);
ash_dim ash_kern_lower_nms(ash_kern *k); /* nms.c; the number of chunks */
/* A buffer of scratch memory: for each worker so many bytes, rounded up to whole lines, so that those of
 * two workers share none. */
ash_status ash_lower__scratch(ash_lowering *low, ash_dtype dtype, int64_t bytes, uint32_t *out);
/* Scratch memory of this kernel, `count` elements for each worker; *first is the worker's first element. */
uint16_t ash_kern_scratch(ash_kern *k, ash_dtype dtype, ash_dim count, ash_ref *first);
/* The same, `count` elements for all chunks together. */
uint16_t ash_kern_scratch_of_all(ash_kern *k, ash_dtype dtype, ash_dim count);
/* Writes a value where `target` lies, which has a place. */
ash_status ash_kern_lower_part(ash_kern *k, ash_value value, ash_value target, ash_dim *chunks);

/* loops_turn.c: transposes a square of `lanes` vectors of so many lanes, a power of two, at most
 * ASH_MAX_TURNED. */
void ash_kern_transpose(ash_kern *k, ash_ref *rows, unsigned lanes, size_t element);
/* loops_turn.c: a vector whose lanes are `linear` along the vector symbol, out of the present block; false
 * when it is not of that form. `end` (unless ASH_NO_REF): some lanes may lie outside of the first so many
 * elements of the buffer, `most` at most, and have any value. */
bool ash_kern_turned_load(ash_kern *k, uint16_t buf, ash_ix linear, ash_ref end, int64_t most,
                          ash_ref *out);

/* loops_turn.c: whether an address has neighbours along another symbol, and a constant distance along the
 * vector symbol: so no number that was loaded for each lane is part of it. */
bool ash_kern_is_turned(ash_ixs *ixs, ash_ix at, ash_sym vsym, ash_sym along, unsigned lanes);
/* loops_cross.c: while collecting, notes a load of a square that is to go through the block's memory; and
 * the element from there, false when it does not. */
void ash_kern_cross(ash_kern *k, ash_value value, ash_ix linear);
bool ash_kern_crossed_load(ash_kern *k, uint16_t buf, ash_ix linear, ash_ref *out);
/* table.c: the entry at an index of a table of constants that are all below `size`, as an index; false when
 * it is no such table, or nothing is emitted now and its entries are to be loaded. */
bool ash_kern_table_index(ash_kern *k, ash_value indices, const ash_ix *at, ash_dim size, ash_ix *out);
/* Whether indices of an axis of `count` into one of `size` are expected to be close, as an image that grows
 * has them, and all of a short axis. */
bool ash_kern_expects_close(ash_kern *k, ash_dim count, ash_dim size);
/* Whether none of a tensor of indices is seen to be negative. */
bool ash_kern_is_from_zero(const ash_kern *k, ash_value indices);
/* Whether each of a list of computed indices is seen to be at most one from the one before it, as what is
 * reflected is, or repeats its ends. *up: and never less than that, as what repeats its ends. */
bool ash_kern_is_close(const ash_kern *k, ash_value indices, bool *up);
typedef enum ash_kern_closeness {
    ASH_CLOSE_UP,      /* the first lane's element is the first, and the others' are near it */
    ASH_CLOSE_BY_ONE,  /* neighbours differ by at most one */
    ASH_CLOSE_PERHAPS, /* as the first, which is to be tested at run time */
} ash_kern_closeness;
/* Notes that the indices just loaded for the lanes of a vector, from expression `at` on, are close: one
 * vector of an axis of `size` has all that they name. */
void ash_kern_note_close(ash_kern *k, ash_ix at, ash_ref loaded, ash_dim size, ash_kern_closeness how);
/* A vector along the vector symbol that would be gathered, loaded otherwise; false when it is not of that
 * form: neighbours or close ones where a run holds, else gathered; or elements so close together that a
 * load or two have them all; or such as lie in a few runs, in turn. Of the lanes that `mask` has, if there
 * is one. */
bool ash_kern_load_run(ash_kern *k, uint16_t buf, ash_ix linear, ash_ref mask, ash_ref *out);
bool ash_kern_load_near(ash_kern *k, uint16_t buf, ash_ix linear, ash_ref mask, ash_ref *out);
bool ash_kern_load_in_turn(ash_kern *k, uint16_t buf, ash_ix linear, ash_ref mask, ash_ref *out);

/* polls.c: makes a nest look whether it is asked to stop, where a loop may do more than `look_most_units`
 * of work between two looks, about every `look_units`. `chunks`: how many there can be. *work: the most
 * units of one chunk, which can be infinite. */
ash_status ash_nest_add_polls(ash_nest *nest, const ash_costs *costs, const ash_dims *dims, int64_t chunks,
                              double *work, ash_diag *diag);

/* narrow.c: notes of each index whether 32 bits hold it (ash_inst.width): for GPUs always, for processors
 * where vectors of them are divided or multiplied. `chunks`: how many there can be. */
ash_status ash_nest_narrow(ash_nest *nest, ash_target_kind kind, const ash_dims *dims, int64_t chunks,
                           ash_diag *diag);

/* requantize.c: computes what becomes bytes with fewer instructions. */
ash_status ash_nest_requantize(ash_nest *nest, const ash_target *target, ash_quanta_known *known,
                               ash_diag *diag);

/* Settled variables: settle.c. The step of a node that settles one; and access records for those that a
 * finished kernel, or the number of its chunks, mentions. */
ash_status ash_kern_settle_step(ash_lowering *low, const ash_node *node);
void ash_kern_read_settled(ash_kern *k, ash_dim chunks);
/* The records for those that a dim mentions, of steps that are no kernels, and their number; NULL: the
 * number alone. */
uint32_t ash_kern_settled_reads(const ash_lowering *low, ash_dim dim, ash_access *out);
/* Where values lie: place.c. Buffers and places of all leaves and roots; `stored` as ash_fusion_build
 * has it. */
ash_status ash_lower__places(ash_lowering *low, const bool *stored);
/* What begins so many elements behind a buffer: a view, or the buffer itself where kernels add that. */
ash_status ash_lower__view(ash_lowering *low, uint32_t buffer, ash_dim begin, ash_dtype dtype,
                           uint32_t *out);
/* Where the parts of a concatenation lie in it, one for each operand; nothing is written for empty ones.
 * begin_part: gives such a place its view, where kernels need not add its distance. */
ash_status ash_lower__parts(ash_lowering *low, const ash_node *concat, ash_value_place *parts);
ash_status ash_lower__begin_part(ash_lowering *low, ash_value value, ash_value_place *part);
/* Whether an operand of a concatenation is computed where that wants it. */
bool ash_lower__is_there(const ash_lowering *low, ash_value value, const ash_value_place *part);
/* In elements, of a value that has a place. */
ash_status ash_lower__strides(ash_lowering *low, ash_value value, ash_dim *strides);
/* The stored, row-major value that a chain of stored reshapes shows again, or ASH_NO_VALUE. */
ash_value ash_lower__viewed(const ash_lowering *low, const ash_group *g);
bool ash_lower__is_empty(const ash_lowering *low, ash_value value); /* whatever the variables are */
/* ash_dims_combine; a failure goes into *status. */
ash_dim ash_lower__combine(ash_lowering *low, ash_dim_op op, ash_dim a, ash_dim b, ash_status *status);

/* The step of a group that is a call of the caller's function: call.c. */
ash_status ash_lower__call(ash_lowering *low, uint32_t group);

/* The step of a group that is a loop: loop.c. */
ash_status ash_lower__loop(ash_lowering *low, uint32_t group);
/* Takes over the nests and the arenas of bodies, once the program's own nests are what they stay. */
ash_status ash_lower__adopt_bodies(ash_lowering *low);
/* Adds a nest to the program, which takes it over, or finds the same one there: lower.c. */
ash_status ash_lower__add_nest(ash_lowering *low, ash_nest *nest, uint32_t *out);

/* Makes one nest of many that differ in numbers alone, once all steps are there: share.c. */
ash_status ash_lower__share_nests(ash_lowering *low);

/* Decides where the new values of states lie, once all steps are there: state.c. */
ash_status ash_lower__states(ash_lowering *low, const ash_lower_options *options);

#endif
