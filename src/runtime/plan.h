/* SPDX-License-Identifier: MIT */
/* The inside of an execution plan.
 *
 *   prepare.c   graph → program → kernels → plan          layout.h    where buffers lie
 *   build.c     program + kernels → plan                  bind.c      memory, addresses, inputs, parameters
 *   core.c      what does not change, and is shared       check.c     what is wrong with a program
 *   shared.c    what is shared beside the core            core_print.c   the core as text
 *   assign.c    steps to streams                          execute.c   issuing, variables, profile
 *   prologue.c  packed weights                            poison.c    dead bytes
 *   buffers.c   outputs and intermediate results          state.c     what is kept between executions
 *   files.c     mapped files of constants                 weights.c   whose memory, what is stale
 *   source.c    the core and its kernels as text          report.c    operations, numbers
 *   eager.c     all of it in one call                     call.c      functions of the caller
 *   lent.c      what is given as a view, held files       overlap.c   memory that is handed in
 *   commands.c  the list that an execution issues         bytes.c     every byte that moves
 *   index.h     what is looked up                         settle.c    sizes that depend on data
 *   open.c      sizes that come with the inputs           types.c     what is given fits
 *   fit.c       lowered so that it fits                   order.c     steps in another order
 *   again.c     results that are computed again           again_run.c which, and when
 *   hasten.c    updates of states early                   explain.c   what a GPU would take
 *   loop.c      bodies of loops                       placed.c    several devices
 *   run.c       inputs, execution and results at once     release.c   giving back, and telling of it
 *   pair.c      two plans with one memory, shared states
 *
 * Every buffer's address is base[its root] + offset. Steps have tables of addresses, made ahead; when a
 * base changes, the entries that depend on it are written anew, so that executing looks nothing up. */
#ifndef ASH_PLAN_INSIDE_H
#define ASH_PLAN_INSIDE_H

#include <pthread.h>
#include <stdatomic.h>

#include "ashlar/plan.h"
#include "base/clock.h"
#include "base/progress.h"
#include "core.h"
#include "device/device.h"
#include "device/stream.h"
#include "open.h"

/* What a step that calls a function of the caller passes on. */
typedef struct ash_plan_call {
    struct ash_plan *plan;
    const ash_program *in; /* the plan's program, or a loop's body */
    const ash_program_call *program;
    uint32_t step;         /* of `in` */
    int64_t chunks;        /* with the present variables, as types and bytes */
    ash_type *types;       /* of operands, then results */
    ash_operand *operands; /* the same, then the scratch if there is one */
} ash_plan_call;

/* A command of a loop's. */
typedef union ash_plan_loop_work {
    ash_launch launch;
    ash_transfer copy;
    ash_fill fill;
    ash_store store;
    ash_host host;
} ash_plan_loop_work;

struct ash_plan_loop;

/* What a step of a body that settles a variable passes on. */
typedef struct ash_plan_loop_settling {
    struct ash_plan_loop *loop;
    uint32_t var;
} ash_plan_loop_settling;

/* A loop of the program, or of a body in it, as it runs. */
typedef struct ash_plan_loop {
    struct ash_plan *plan;
    const ash_program_loop *loop;
    struct ash_plan_loop *inner; /* per loop of the body */
    ash_plan_call *calls;        /* per call of the body */
    ash_plan_loop_settling *settlings;
    uint32_t n_settlings;      /* that have a command */
    ash_repeat repeat;         /* its lists: what comes before, an iteration, what comes after */
    ash_command *commands;     /* of all lists, */
    ash_plan_loop_work *works; /* and what they do */
    uint32_t n_commands, first_step;
    const ash_address *operands; /* the table of the step that runs it */
    ash_address *base;   /* per buffer of the body that is a root: its first byte in this iteration */
    ash_address *starts; /* of the copies that carried values begin with: pairs */
    ash_address *table;  /* of an iteration's commands, one after the other */
    ash_address number_at, look;
    ash_address stop; /* what stops its kernels */
    struct {
        ash_address whole;
        int64_t bytes; /* of a slice, with the present variables; as `trips` */
    } *slices;         /* per scanned, then stacked value */
    int64_t trips;     /* iterations at most */
    int64_t number;    /* of the present one; behind the last one: how many there were */
    bool over;
} ash_plan_loop;

/* A main step, ready to be issued. Chunk counts and bytes are those of the present variables. */
typedef struct ash_plan_step {
    ash_command_kind kind;
    uint32_t index; /* in the program */
    union {
        ash_launch launch;
        ash_transfer copy;
        ash_host host;
        ash_repeat repeat;
    } work;
} ash_plan_step;

/* Memory that the caller handed in: of the host, or of a view. */
typedef struct ash_plan_block {
    ash_address address;  /* 0: none */
    ash_storage *storage; /* of the view, held; NULL: of the host */
    uint64_t offset;      /* bytes into it */
} ash_plan_block;

typedef struct ash_plan_arena {
    ash_storage *storage; /* of the plan, or a part of the block that the caller handed in */
    uint64_t size, align; /* bytes */
    uint32_t device;      /* that it is on; only the main one's are parts of the block */
    bool state;           /* of states: not a part of the block */
} ash_plan_arena;

/* What a step that settles a variable passes on. */
typedef struct ash_plan_settling {
    struct ash_plan *plan;
    const ash_plan_settled *settled;
} ash_plan_settling;

typedef struct ash_plan_input_state {
    bool given, bound;
    bool used;                  /* an execution has used it up */
    bool room;                  /* given for all values of the variables */
    bool outdated;              /* the variables have had other values since, and it another shape */
    int64_t dims[ASH_MAX_RANK]; /* of the shape that it was given in */
    uint64_t bytes;             /* that were given */
    const void *data;           /* bound: where the host finds them, or NULL */
    ash_address address;        /* bound: where the device reads them; 0: it does not reach them, and each
                                   execution copies them to the input's own place */
} ash_plan_input_state;

/* What holds the bytes that an input is bound to, both held or NULL: the mapped file that they lie in, the
 * storage of the view that was given. */
typedef struct ash_plan_lent {
    struct ash_file *file;
    ash_storage *storage;
    uint64_t offset; /* of the bytes in it */
    bool bound;      /* to these: */
    const void *data;
    ash_address address;
    uint64_t bytes;
} ash_plan_lent;

/* Who has bytes of memory: those that are written, then those that are read. */
typedef enum ash_plan_tenant {
    ASH_TENANT_ARENA,
    ASH_TENANT_STATES,
    ASH_TENANT_STATE, /* bound; its position */
    ASH_TENANT_WEIGHTS,
    ASH_TENANT_SAVED,
    ASH_TENANT_INPUT,   /* bound; its position */
    ASH_TENANT_CONSTANT /* or parameter, where it lies; its buffer */
} ash_plan_tenant;

typedef struct ash_plan_span {
    uint32_t space;         /* whose addresses: ash_plan__space */
    ash_address begin, end; /* half-open */
    ash_plan_tenant tenant;
    uint32_t index;
} ash_plan_span;

/* Packed weights, which replicas share. */
typedef struct ash_plan_weights {
    _Atomic long plans;                     /* that have them */
    ash_storage *storage[ASH_MOST_DEVICES]; /* per device; NULL past the last */
    ash_plan_block block;                   /* the caller's memory that those of the main device lie in */
} ash_plan_weights;

/* All that a prologue takes memory for, made before it runs: an execution after a parameter was set takes
 * none. */
typedef struct ash_plan_room {
    ash_plan_weights *weights;              /* for new ones; NULL: there is no need of them */
    ash_storage *staging[ASH_MOST_DEVICES]; /* per device; NULL: nothing is staged there */
    ash_address *table;                     /* of one step */
    size_t width;                           /* entries of the table */
    bool *stale;                            /* per prologue step: runs in this round */
    bool *read;           /* per buffer with a blob: read since the last time that pages were given back */
    bool *changed, *made; /* per root: see weights.c */
    size_t *last_writer;
} ash_plan_room;

typedef struct ash_plan_state_slot {
    uint32_t buffer;
    struct ash_plan
        *of;         /* the plan whose state it is, if it is shared, or NULL: then nothing below counts */
    size_t position; /* and which of its states */
    bool undefined;  /* an execution that changes it did not come to its end */
    ash_plan_block block; /* the caller's memory that it lies in, and the storage that has `host` */
    void *host;           /* the caller's memory, out of the device's reach: what is there comes before each
                             execution, and goes there after it; or NULL */
} ash_plan_state_slot;

/* Distinct mapped files of the plan's constants, held by these: first those that executions read. */
typedef struct ash_plan_files {
    struct ash_file **at;
    uint32_t count, in_place;
} ash_plan_files;

/* Where kernels come from: code.h in earnest, C functions in tests. */
typedef struct ash_kernel_source {
    const ash_kernel_image *images; /* per nest of the program; loaded while the plan is built */
    ash_entry_maker maker;          /* what makes one function of captured launches of them, or NULL */
    void *owner; /* keeps the functions alive; released by the plan, also when building it fails */
    void (*release)(void *owner);
} ash_kernel_source;

/* What belongs to a core and is no value. Replicas share it, and the last of them frees it with the core.
 * What is written here after it is made is written while one plan alone has it, under that plan's lock. */
typedef struct ash_plan_shared {
    _Atomic long plans; /* that have it */
    const ash_allocator *allocator;
    const ash_plan_core *core;
    ash_device *devices[ASH_MOST_DEVICES]; /* held, the main one first */
    uint32_t n_devices;
    size_t first_kernel[ASH_MOST_DEVICES]; /* per device: its kernels begin here */
    ash_kernel_source source;
    ash_kernel **kernels; /* per nest, loaded by the device; NULL: not yet */
    size_t n_kernels;
    ash_blob **originals; /* per buffer: its bytes, held, where it is an `original` of the core that
                              has not been released */
    ash_plan_files files; /* that these lie in */
    bool settled_weights; /* their originals are gone: they stay as they are */
} ash_plan_shared;

struct ash_plan {
    pthread_mutex_t *lock; /* held by every call that changes or runs the plan: its own, or its owner's */
    pthread_mutex_t own_lock;
    size_t users;             /* the caller, and plans that it is the owner of; under the lock */
    struct ash_plan *owner;   /* whose memory or states this one uses, and keeps alive; or NULL */
    struct ash_plan *partner; /* the other one of a pair, or NULL */
    bool second;              /* of a pair: all memory but bound inputs is the owner's, the partner's */
    bool closed;              /* the caller has destroyed it */
    const char *lost; /* of a pair's first: why the second cannot go on from its last execution, or NULL */
    uint64_t moved, followed; /* changes of bases; those of the owner that this one has followed */
    ash_release_hook release; /* who is told of what is given back, or nobody */
    ash_opening *opening; /* of a plan of an open graph, else NULL; all below is replaced for other sizes */

    ash_context *context;
    const ash_allocator *allocator;
    ash_arena arena; /* of the lists that are made with the plan */
    ash_plan_shared *shared;
    const ash_plan_core *core; /* the next three are parts of it */
    const ash_program *program;
    const ash_schedule *schedule;
    const ash_layout *layout;
    ash_device *device; /* the main one, which inputs and outputs are on */
    ash_kernel *const *kernels;
    ash_streams *streams;  /* that the main steps run on */
    ash_command *commands; /* all that an execution issues to them */
    size_t n_commands;
    ash_streams_memory held[ASH_MOST_DEVICES]; /* per device: beside arenas and weights */
    ash_capture *capture;                      /* of these, or NULL: they are issued at each execution */
    ash_streams *active;                       /* those that run now, of the two */
    ash_streams *early[ASH_MOST_DEVICES]; /* per device one stream, for the prologue; the same where the
                                             main steps have one */
    ash_progress progress;                /* the function while the plan is prepared; the switch always */

    /* fixed after building */
    uint32_t n_buffers;
    size_t n_arenas;
    size_t n_steps, n_vars, n_inputs, n_states, n_settlings;
    ash_plan_step *steps; /* and behind them the fills */
    ash_fill *fills;
    ash_address *table;               /* all steps' addresses, one after the other */
    ash_plan_call *calls;             /* per call of the program */
    ash_plan_loop *loops;             /* per loop of the program */
    ash_plan_settling *settlings;     /* per step that settles a variable */
    ash_timing *timings;              /* per step: of the last profiled execution */
    _Atomic uint32_t *alive;          /* per root: of the fills of it, those of steps that are not over */
    uint64_t block_size, block_align; /* bytes of all arenas but those of states, in one block */

    /* what changes */
    int64_t *vars,
        *old_vars;        /* present values; those before a call that may fail; executions settle some */
    int64_t *result_vars; /* values that the results were computed with */
    ash_address *base;    /* per root buffer: its first byte, or 0 while there is none */
    ash_plan_arena *arenas;
    bool arenas_ready;         /* allocated, and the bases point into them */
    ash_plan_block block;      /* arena of the caller's */
    ash_plan_weights *weights; /* NULL when released */
    bool weights_ready;        /* the prologue has run on the present parameters */
    bool weights_whole;        /* but for what `changed` touches, the weights are those of its last round */
    bool *changed;             /* per buffer: a parameter that was set since */
    ash_plan_block weights_block; /* memory of the caller's for weights that are made */
    ash_plan_room *room;          /* for the next prologue, or NULL */
    ash_storage *saved;           /* the outputs' bytes while the arenas are released */
    ash_storage **blobs;          /* per buffer with a blob that was asked for: storage around its bytes */
    ash_storage *
        *own; /* per buffer: bytes of a parameter that was set, storage around what an input or a state
                 was bound to */
    ash_plan_input_state *inputs;
    ash_plan_lent *lent;   /* per input */
    uint32_t n_lent_files; /* of these, how many hold a file */
    ash_plan_span *spans;  /* memory that is written, by address */
    uint32_t n_spans;
    bool spans_known;            /* otherwise memory has come or gone since */
    ash_plan_state_slot *states; /* of a pair's second: the owner's */
    bool *changes;               /* per state: some step writes it */
    bool states_ready;           /* allocated, with contents, and the bases point there */
    ash_view **views;            /* per buffer, made when asked for */
    uint32_t *viewed;            /* the buffers that have one */
    uint32_t n_viewed;
    uint32_t *first_viewed, *next_viewed; /* per root: the last of these in its bytes; per buffer: another,
                                             or ASH_NO_BUFFER */
    bool executed;                        /* the buffers hold results */
    atomic_bool call_failed;              /* a function has stopped the streams, and says why: */
    ash_diag call_diag;
    _Atomic uint64_t begun; /* what the streams had done when the last execution began */
    ash_plan_report report;
};

/* --- build.c ---------------------------------------------------------------------------------- */

/* Builds a plan around a program, which it takes over, also when it fails. Nothing runs yet but the
 * checks. */
ash_status ash_plan__build(ash_context *context, ash_program *program, const ash_kernel_source *kernels,
                           const ash_plan_options *options, ash_plan **out, ash_diag *diag);
/* The same with a program whose steps have their order: fit.c's. */
ash_status ash_plan__build_ordered(ash_context *context, ash_program *program,
                                   const ash_plan_order_report *order, const ash_kernel_source *kernels,
                                   const ash_plan_options *options, ash_plan **out, ash_diag *diag);
/* Threads that the options come to. */
unsigned ash_plan__threads(const ash_context *context, const ash_plan_options *options);
/* ASH_ERROR_INVALID_ARGUMENT for a mode that is none, or its number of streams. */
ash_status ash_plan__check_options(const ash_plan_options *options, ash_diag *diag);
/* Streams that the options ask for. */
uint32_t ash_plan__stream_count(const ash_plan_options *options);
/* Chunk counts and copy sizes for the present variables: of all steps, of one. */
void ash_plan__refresh_steps(ash_plan *plan);
void ash_plan__refresh_step(ash_plan *plan, uint32_t step);
/* "conv+add+relu" or what describes the step, never NULL. */
const char *ash_plan__step_name(const ash_step *step);

/* What a pair is built of. */
typedef struct ash_plan_halves {
    ash_program *program; /* cut (kernel/cut.h), and taken over, also after a failure */
    const ash_plan_order_report *order;
    const ash_kernel_source *kernels;
    const ash_plan_options *options, *late; /* of both; the second's mode and streams */
} ash_plan_halves;

ash_status ash_plan__build_pair(ash_context *context, const ash_plan_halves *of, ash_plan **first,
                                ash_plan **second, ash_diag *diag);

/* Frees everything that a plan has but its handle: the lock and the opening. */
void ash_plan__clear(ash_plan *plan);
/* The plan, which is cleared, takes over everything but the handle of `next`, which is gone then. */
void ash_plan__become(ash_plan *plan, ash_plan *next);

/* --- placed.c --------------------------------------------------------------------------------- */

/* Whether the graph has nodes that the options or the graph itself place on another device than the main
 * one. ASH_ERROR_INVALID_ARGUMENT names a node whose device is not among the options'. */
ash_status ash_placed__is_needed(const ash_graph *graph, const ash_plan_options *options, bool *out,
                                 ash_diag *diag);
/* Divides such a graph among the options' devices, lowers each part for the device's target, and joins the
 * programs, so that each device's arenas are within its capacity. `seeds`, per input of the graph, or
 * NULL: as for ash_fit__lower. The caller frees the program. */
struct ash_fitted;
ash_status ash_placed__lower(ash_context *context, const ash_graph *graph, const bool *seeds,
                             const ash_plan_options *options, struct ash_fitted *out, ash_diag *diag);
/* The most bytes that a device's arenas may take, but for those of states; 0: there is no limit. */
uint64_t ash_placed__capacity(const ash_plan_options *options, uint32_t device);
/* The target of a device: its own, or this process's. */
ash_status ash_placed__target(ash_context *context, const ash_device *device, const ash_target **out,
                              ash_diag *diag);
/* A bit for each of the options' devices that reaches all memory of the host. */
uint32_t ash_placed__reach(const ash_plan_options *options);
/* Checks the list of devices, and that what is asked for is there on several. */
ash_status ash_placed__check(const ash_plan_options *options, ash_diag *diag);

/* --- check.c ---------------------------------------------------------------------------------- */

/* ASH_ERROR_INTERNAL says what is wrong with a program. */
ash_status ash_plan__check_program(const ash_program *program, ash_diag *diag);

/* --- shared.c --------------------------------------------------------------------------------- */

/* Makes it of a source of kernels, which it takes over, also when it fails, of the program's nests, and the
 * options' devices (none: the default one). There is no core yet. */
ash_status ash_plan__share(ash_context *context, const ash_kernel_source *source,
                           const ash_program *program, const ash_plan_options *options,
                           ash_plan_shared **out, ash_diag *diag);
/* Takes the core over, and the program's blobs as its originals. */
ash_status ash_plan__share_core(ash_plan_shared *shared, ash_plan_core *core, ash_program *program,
                                ash_diag *diag);
void ash_plan__unshare(ash_plan_shared *shared); /* one plan has it less; NULL is allowed */

/* --- prepare.c -------------------------------------------------------------------------------- */

/* ash_plan_prepare of a graph that is not open. */
ash_status ash_plan__prepare(ash_context *context, const ash_graph *graph, const ash_plan_options *options,
                             ash_plan **out, ash_diag *diag);

/* --- types.c ---------------------------------------------------------------------------------- */

/* A failure that names the type that was given, and the one that is expected with its variables: "f32[1, 4]
 * was given, the input is f32[batch, 3] with batch = 2, which is f32[2, 3]". `verb` stands between them. */
ash_status ash_plan__mismatch(const ash_dims *dims, const ash_type *shape, const int64_t *vars,
                              const ash_type *given, ash_status code, const char *verb, ash_diag *diag);
/* The type is one of numbers. */
ash_status ash_plan__check_numbers(const ash_type *type, ash_diag *diag);
/* What was given has the size of a type of numbers. */
ash_status ash_plan__check_bytes(const ash_type *type, const ash_given *given, ash_diag *diag);
/* Type (NULL: as it is), size and bytes fit the present type of a buffer. */
ash_status ash_plan__check_given(const ash_plan *plan, uint32_t buffer, const ash_given *given,
                                 const char *verb, ash_diag *diag);

/* --- settle.c --------------------------------------------------------------------------------- */

/* Brings a count within 0 and the limit of the variable that it is for, and writes it to `result`; false:
 * the variable has that value already. */
bool ash_plan__settle(ash_plan *plan, uint32_t var, const void *count, void *result);
/* Describes a step that settles a variable as a function of the host; `buffers` and chunks are the
 * caller's to fill in. */
ash_host ash_plan__settle_host(ash_plan_settling *settling);
/* ash_plan_var.bytes of a variable of the program. */
uint64_t ash_plan__bytes_of_var(const ash_plan *plan, uint32_t var);
/* Gives settled variables their bounds. */
void ash_plan__unsettle(ash_plan *plan);

/* --- execute.c -------------------------------------------------------------------------------- */

/* An execution has ended on the way: what the buffers hold is not known. Everything that must learn of it
 * is told here. */
void ash_plan__note_incomplete(ash_plan *plan);

/* The variable that a binding names and may set. */
ash_status ash_plan__find_var(const ash_dims *dims, const ash_var_binding *binding, size_t *out,
                              ash_diag *diag);
/* Gives the program's variables new values; under the lock. */
ash_status ash_plan__bind_vars(ash_plan *plan, const ash_var_binding *vars, size_t count, ash_diag *diag);
/* The same for any plan, and back to the values that a plan without open dims had when they were saved. */
ash_status ash_plan__set_vars(ash_plan *plan, const ash_var_binding *vars, size_t count, ash_diag *diag);
void ash_plan__save_vars(ash_plan *plan);
void ash_plan__restore_vars(ash_plan *plan);
/* ash_plan_execute, under the lock, of a plan that is ready. */
ash_status ash_plan__execute(ash_plan *plan, ash_profile *profile, ash_diag *diag);

/* Makes a capture of the commands: in mode graph, and of several streams where these can. `like`: that of a
 * replica, or NULL. */
ash_status ash_plan__capture(ash_plan *plan, const ash_capture *like, ash_diag *diag);

/* --- commands.c ------------------------------------------------------------------------------- */

/* Makes the core's commands ones of this plan's work. */
ash_status ash_plan__make_commands(ash_plan *plan, ash_diag *diag);
/* Has the next round of them timed, or no longer. */
void ash_plan__time_commands(ash_plan *plan, bool timed);
/* Commands per stream. */
void ash_plan__count_commands(const ash_plan *plan, uint32_t *counts);

/* --- bytes.c: every byte of a plan moves here, by the device that it is on ---------------------- */

/* From memory of the host; */
ash_status ash_plan__write(ash_device *device, ash_address to, const void *from, uint64_t size,
                           ash_diag *diag);
/* to memory of the host; */
ash_status ash_plan__read(ash_device *device, void *to, ash_address from, uint64_t size, ash_diag *diag);
/* on the device; */
ash_status ash_plan__copy(ash_device *device, ash_address to, ash_address from, uint64_t size,
                          ash_diag *diag);
/* the same byte everywhere. Bytes may overlap. */
ash_status ash_plan__fill(ash_device *device, ash_address to, uint8_t value, uint64_t size, ash_diag *diag);
/* What was given: to the device, to memory of the host. */
ash_status ash_plan__take(ash_device *device, ash_address to, const ash_given *given, ash_diag *diag);
ash_status ash_plan__fetch(ash_device *device, void *to, const ash_given *given, ash_diag *diag);
/* A storage on one of the plan's devices that has memory; on the main one. */
ash_status ash_plan__allocate_on(const ash_plan *plan, uint32_t device, uint64_t size, uint64_t align,
                                 ash_storage **out, ash_diag *diag);
ash_status ash_plan__allocate(const ash_plan *plan, uint64_t size, uint64_t align, ash_storage **out,
                              ash_diag *diag);

/* --- bind.c; under the lock ------------------------------------------------------------------- */

/* Writes the table entries that variables move. */
void ash_plan__refresh_shifts(ash_plan *plan);
/* Gives a root another base, and writes the table entries that depend on it. */
void ash_plan__set_base(ash_plan *plan, uint32_t root, ash_address base);
/* Gives the arenas' memory back; a block of the caller's stays bound. */
void ash_plan__drop_arenas(ash_plan *plan);
/* Memory for the arenas, if there is none yet. */
ash_status ash_plan__need_arenas(ash_plan *plan, ash_diag *diag);
/* The type and the bytes of a buffer with the present variables; of a body's as well. */
void ash_plan__type_now(const ash_plan *plan, const ash_buffer *buffer, ash_type *type, uint64_t *bytes);
void ash_plan__present_type(const ash_plan *plan, uint32_t buffer, ash_type *type, uint64_t *bytes);
/* The calls of the same names, of a plan whose sizes are known; what they check of type and bytes is said
 * there. */
ash_status ash_plan__set_input(ash_plan *plan, size_t position, const ash_given *given, ash_diag *diag);
ash_status ash_plan__bind_input(ash_plan *plan, size_t position, const ash_given *given, ash_diag *diag);
/* One of the two, of any plan: the input waits where the sizes are not known. */
ash_status ash_plan__give_input(ash_plan *plan, size_t position, const ash_given *given, bool bind,
                                ash_diag *diag);
ash_status ash_plan__set_parameter(ash_plan *plan, uint32_t buffer, const ash_given *given, ash_diag *diag);
ash_status ash_plan__set_named(ash_plan *plan, const char *name, const ash_given *given, ash_diag *diag);
/* Copies what bound inputs have, where the device does not reach it. */
ash_status ash_plan__fetch_inputs(const ash_plan *plan, ash_diag *diag);
/* ASH_ERROR_NOT_FOUND when there is no such input. */
ash_status ash_plan__check_position(const ash_plan *plan, size_t position, ash_diag *diag);
/* The input lies in its own place, which is allocated, from now on. */
ash_status ash_plan__unbind_input(ash_plan *plan, size_t position, ash_diag *diag);
/* Whether an input is given in its present shape. */
bool ash_plan__is_given(const ash_plan *plan, size_t position);
/* Notes of each input whether that is so, after the variables have changed: executions do not ask again. */
void ash_plan__refresh_inputs(ash_plan *plan);
/* The input counts as given, in its present shape or for all: bound to these bytes, or in its own place. */
void ash_plan__give(ash_plan *plan, size_t position, const ash_given *given, bool bound);
/* An execution has begun: inputs whose bytes it reuses are given no more. */
void ash_plan__use_inputs(ash_plan *plan);
/* Whether it is bound to bytes that the device reaches. */
static inline bool ash_plan__is_read_in_place(const ash_plan_input_state *input) {
    return input->bound && (input->address || input->bytes == 0);
}
/* Every input is given in its present shape. */
ash_status ash_plan__check_inputs(const ash_plan *plan, ash_diag *diag);

/* --- release.c; under the lock ------------------------------------------------------------------ */

/* The plan has done with memory of the caller's, which it had for a device. */
void ash_plan__tell_block(const ash_plan *plan, ash_device *device, const char *name,
                          const ash_plan_block *block, uint64_t bytes);
/* All buffers' bytes are about to go. */
void ash_plan__tell_all(const ash_plan *plan);

/* --- lent.c; under the lock -------------------------------------------------------------------- */

/* Bytes at an address of the host's, for one of the plan's devices. */
ash_given ash_plan__given(const ash_device *device, const ash_type *type, const void *data, uint64_t size);
/* The same of a view, which can be read now. */
ash_status ash_plan__given_view(const ash_device *device, const ash_view *view, ash_given *out,
                                ash_diag *diag);
/* Binds a block of `size` bytes to the plan, whose lock is held; one without an address is none. */
typedef ash_status ash_plan_bind_fn(ash_plan *plan, const ash_plan_block *block, uint64_t size,
                                    ash_diag *diag);
/* Binds the caller's memory, or a view's; NULL: none. ASH_ERROR_DEVICE when it is out of the device's
 * reach. Takes the lock. */
ash_status ash_plan__bind_memory(ash_plan *plan, void *memory, uint64_t size, ash_plan_bind_fn *bind,
                                 ash_diag *diag);
ash_status ash_plan__bind_view(ash_plan *plan, ash_view *view, ash_plan_bind_fn *bind, ash_diag *diag);
/* A block is another from now on, whose storage it holds. */
void ash_plan__set_block(ash_plan_block *block, const ash_plan_block *now);
/* What a view has, as memory that may be written and that the plan may hold. */
ash_status ash_plan__lent_view(const ash_plan *plan, const ash_device *device, const ash_view *view,
                               ash_given *out, ash_diag *diag);
/* Some bytes of a block as a storage. */
ash_status ash_plan__part(const ash_plan *plan, const ash_plan_block *block, uint64_t offset, uint64_t size,
                          ash_storage **out, ash_diag *diag);
/* An input is bound to bytes that these hold, the first of which the plan takes over, or to none. */
void ash_plan__hold_input(ash_plan *plan, size_t position, struct ash_file *file, const ash_given *given);
void ash_plan__free_lent(ash_plan *plan);
/* ASH_ERROR_IO names an input that is bound to bytes of a file that was cut short. */
ash_status ash_plan__check_lent_files(const ash_plan *plan, ash_diag *diag);

/* Whose addresses a device's memory has: 0: the host's; else its own, its number plus 1. */
static inline uint32_t ash_plan__space(const ash_plan *plan, uint32_t device) {
    return plan->shared->devices[device]->class->host_memory ? 0 : device + 1;
}

/* --- overlap.c; under the lock ----------------------------------------------------------------- */

ash_status ash_plan__make_spans(ash_plan *plan, ash_diag *diag);
/* ASH_ERROR_INVALID_ARGUMENT names what overlaps: an input that is bound, and what the plan writes; */
ash_status ash_plan__check_input_memory(ash_plan *plan, size_t position, const ash_given *given,
                                        ash_diag *diag);
/* a block for the arena, the weights or a state, and what the plan writes or reads; */
ash_status ash_plan__check_block_memory(ash_plan *plan, const ash_plan_span *block, ash_diag *diag);
/* memory of the plan's own that has come, and inputs that are bound. */
ash_status ash_plan__check_own_memory(ash_plan *plan, ash_diag *diag);

/* --- state.c; under the lock ------------------------------------------------------------------- */

/* The device that a state is on. */
ash_device *ash_plan__state_device(const ash_plan *plan, size_t position);

/* ash_plan_set_state, once the position is known. */
ash_status ash_plan__set_state(ash_plan *plan, size_t position, const ash_given *given, ash_diag *diag);
/* Describes the states of the program, all of them with nothing allocated. */
ash_status ash_plan__make_states(ash_plan *plan, ash_diag *diag);
/* Memory for the states, with their initial contents, if there is none yet. */
ash_status ash_plan__need_states(ash_plan *plan, ash_diag *diag);
/* Copies states that lie out of the device's reach to where executions find them, and back. */
ash_status ash_plan__fetch_states(const ash_plan *plan, ash_diag *diag);
ash_status ash_plan__return_states(const ash_plan *plan, ash_diag *diag);
/* Lets go of memory that states are bound to. */
void ash_plan__free_states(ash_plan *plan);
/* ASH_ERROR_STATE names one that is undefined. */
ash_status ash_plan__check_states(const ash_plan *plan, ash_diag *diag);
/* To be called when an execution has begun and did not come to its end: the states that it changes may be
 * half old, half new, and are undefined until they are set or reset. */
void ash_plan__lose_states(ash_plan *plan);
/* Gives the plan's memory of states back: they begin anew, but for those that lie in the caller's. Returns
 * its bytes. */
uint64_t ash_plan__drop_states(ash_plan *plan);

/* --- files.c ---------------------------------------------------------------------------------- */

/* Lists the files that the originals lie in. */
ash_status ash_plan__find_files(ash_plan_shared *shared, ash_diag *diag);
/* ASH_ERROR_IO when a file that executions read in place, or any, has become too short. */
ash_status ash_plan__check_files(const ash_plan *plan, ash_diag *diag);
ash_status ash_plan__check_all_files(const ash_plan *plan, ash_diag *diag);

/* --- weights.c; under the lock ---------------------------------------------------------------- */

/* Marks the prologue steps that must run again because of `changed`, in room->stale. */
void ash_plan__find_stale(const ash_plan *plan, ash_plan_room *room);
/* A place for the weights: in the caller's block, or, if it is none, of the plan. ASH_ERROR_STATE where the
 * plan allocates none. */
ash_status ash_plan__make_weights(ash_plan *plan, const ash_plan_block *block, ash_plan_weights **out,
                                  ash_diag *diag);
/* The weights have no bytes, and cannot have any before the caller hands them in. */
bool ash_plan__lacks_weights(const ash_plan *plan);
void ash_plan__free_weights(const ash_plan *plan, ash_plan_weights *weights); /* one plan has them less */
/* The weights if no replica has them too. Others, and the block that they lie in, are left to the replicas:
 * NULL. */
ash_plan_weights *ash_plan__own_weights(ash_plan *plan);
/* Lets go of weights, room and block. */
void ash_plan__drop_weights(ash_plan *plan);
/* Makes or completes the room for the next prologue. A failure leaves the plan as it was. */
ash_status ash_plan__make_room(ash_plan *plan, ash_diag *diag);
void ash_plan__free_room(ash_plan *plan);
/* A constant, a parameter, or what a state begins with, that executions do not read where it lies. */
bool ash_plan__is_original(const ash_plan *plan, uint32_t buffer);
/* The weights go into memory of the caller's, or, if it is none, into memory of the plan's own. */
ash_status ash_plan__move_weights(ash_plan *plan, const ash_plan_block *block, ash_diag *diag);
/* The weights lie at `base`, an address on each device, from now on. */
void ash_plan__point_at_weights(ash_plan *plan, const ash_address *base);

/* --- call.c ----------------------------------------------------------------------------------- */

/* What the calls of the plan's program, or of a body in it, pass on, once there are variables; `threads`:
 * that run chunks of one. */
ash_status ash_plan__make_calls(ash_plan *plan, const ash_program *program, unsigned threads,
                                ash_plan_call **out, ash_diag *diag);
/* Types and chunks for the present variables. */
void ash_plan__refresh_calls(ash_plan *plan);
void ash_plan__refresh_call(ash_plan_call *call);
/* Describes a call as a function of the host; `buffers` and chunks are the caller's to fill in. */
ash_host ash_plan__call_host(ash_plan_call *call);
/* The status of a round that has ended: that of the function that failed in it, if one did. */
ash_status ash_plan__round(ash_plan *plan, ash_status status, ash_diag *diag);

/* --- loop.c ----------------------------------------------------------------------------------- */

/* What the loops of the program run with. */
ash_status ash_plan__make_loops(ash_plan *plan, ash_diag *diag);
/* The plan lies elsewhere now. */
void ash_plan__move_loops(ash_plan *plan);
/* What a step that is a loop does; `operands`: its table. */
ash_repeat ash_plan__loop_repeat(ash_plan_loop *loop, const ash_address *operands);
/* Iterations, chunks and bytes are those of the present variables. */
void ash_plan__refresh_loop(ash_plan_loop *loop);

/* --- prologue.c; under the lock --------------------------------------------------------------- */

/* Runs the prologue if its results are not there, or not of the present parameters. */
ash_status ash_plan__need_weights(ash_plan *plan, ash_diag *diag);
/* Reports the bytes of weights and constants: after it, and where nothing runs. */
void ash_plan__count_weights(ash_plan *plan);

/* --- poison.c: dead bytes are filled, in every mode --------------------------------------------- */

/* Describes the core's fills, for which there is room. */
void ash_plan__make_poison(ash_plan *plan);
/* Before the first step: everything in the arenas is dead but the inputs. */
ash_status ash_plan__poison_start(ash_plan *plan, ash_diag *diag);

/* --- pair.c; under the lock --------------------------------------------------------------------- */

/* The plan that has the memory: of a pair the first, else the plan. */
static inline ash_plan *ash_plan__memory(const ash_plan *plan) {
    return plan->second ? plan->owner : (ash_plan *)plan;
}
/* Whose state it is, and which of its states. */
ash_plan *ash_plan__home_of_state(const ash_plan *plan, size_t position, size_t *out);
/* Of a pair's plans or of others: the second cannot go on from the first's last execution, because of
 * `why`: "a state was set". */
void ash_plan__lose_saved(const ash_plan *plan, const char *why);
/* An execution is about to begin: of a pair's second, whether it can; */
ash_status ash_plan__check_pair(const ash_plan *plan, ash_diag *diag);
/* of a pair's first, the second's results end; */
void ash_plan__begin_pair(ash_plan *plan);
/* and has come to its end. */
void ash_plan__end_pair(ash_plan *plan);
/* A pair's second finds everything where the first has it. */
void ash_plan__follow(ash_plan *plan);
/* The views of both. */
void ash_plan__refresh_pair(ash_plan *plan);

/* --- buffers.c; under the lock ---------------------------------------------------------------- */

/* Whether there are results, and of the present values of the variables. */
bool ash_plan__has_results(const ash_plan *plan);
/* The view of a buffer, made at the first call. It stays the same as long as the plan. */
ash_status ash_plan__view(ash_plan *plan, uint32_t buffer, ash_view **out, ash_diag *diag);
/* Makes room in `next` for the views of inputs and outputs that were handed out, and then, when nothing can
 * fail any more, takes them over: each follows the input or the output that it was of. */
ash_status ash_plan__expect_views(const ash_plan *plan, ash_plan *next, ash_diag *diag);
void ash_plan__take_views(ash_plan *plan, ash_plan *next);
/* A storage with what an input is being bound to, if a view of it has been handed out; otherwise NULL. */
ash_status ash_plan__wrap_bound(ash_plan *plan, uint32_t root, const ash_given *given, ash_storage **out,
                                ash_diag *diag);
/* Points every view that was handed out, or those of a root, at where its bytes are now, with its present
 * type. */
void ash_plan__refresh_views(ash_plan *plan);
void ash_plan__refresh_views_of(ash_plan *plan, uint32_t root);

#endif
