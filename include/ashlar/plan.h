/* SPDX-License-Identifier: MIT */
/* Execution plans: prepare a graph once, execute it many times.
 *
 * A plan owns its kernels, its weights and its buffers. Its memory is laid out before anything is
 * allocated; the arena appears at the first use, or is handed in by the caller. Executing allocates nothing
 * from the heap.
 *
 *   ash_plan_prepare          compile, lay out, pack the weights
 *   ash_plan_set_input ...    give the inputs
 *   ash_plan_execute          as often as one likes
 *   ash_plan_output ...       read the results
 *
 * A plan may be used from several threads: calls that change or run it wait for one another. Results lie in
 * the plan's buffers until the next execution, so who reads them must not let another thread execute
 * meanwhile. The graph may be destroyed after ash_plan_prepare; the plan must be destroyed before the
 * context. Strings and views are borrowed from the plan; a view of a plan's buffer follows it wherever its
 * bytes go.
 *
 * A NULL handle: functions that return a status say ASH_ERROR_INVALID_ARGUMENT and name the argument;
 * others return 0, NULL or a structure of zeros, and do nothing. */
#ifndef ASHLAR_PLAN_H
#define ASHLAR_PLAN_H

#include "device.h"
#include "graph.h"
#include "memory_schedule.h"
#include "tensor.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct ash_plan ash_plan;

/* --- preparing -------------------------------------------------------------------------------- */

/* How a plan executes. The results are the same bits in all. */
typedef enum ash_mode {
    ASH_MODE_STREAM,       /* operations in schedule order, on one stream */
    ASH_MODE_GRAPH,        /* the whole schedule captured at prepare (or by the first execution: see
                              ash_plan_options.late_capture), and replayed without a dispatch per
                              operation. A device that cannot is ASH_ERROR_UNSUPPORTED with the reason. It
                              cannot be profiled by operation */
    ASH_MODE_MULTI_STREAM, /* on several streams: independent operations overlap; they share the plan's
                              threads. On one where more are not expected to be faster */
    ASH_MODE_COUNT
} ash_mode;

ASH_API const char *ash_mode_text(ash_mode mode); /* "multi_stream"; "?" outside the enumeration */

enum { ASH_PLAN_MOST_STREAMS = 64 };

/* Whether the operations of an execution may run in another order than that of the graph, to take less
 * memory. Results are the same, bit for bit, and the arena is never larger. */
typedef enum ash_plan_order {
    ASH_PLAN_ORDER_AUTO, /* only where memory.capacity is given and the graph's order exceeds it; if another
                            order does too, results are computed again instead of being kept */
    ASH_PLAN_ORDER_OFF,  /* the graph's order */
    ASH_PLAN_ORDER_ON,   /* always look for a smaller arena */
    ASH_PLAN_ORDER_COUNT
} ash_plan_order;

ASH_API const char *ash_plan_order_text(ash_plan_order order); /* "auto"; "?" outside the enumeration */

/* How products and convolutions of f32, and on processors of f16, multiply, where that is worth it: a
 * precision allows, and is not slower than a finer one. On GPUs what has one or two rows, or is no tile,
 * is always IEEE, and so is what is done first so, by the forecasts (docs/cuda.md); on processors what
 * has no constant operand, or few channels (docs/codegen.md, "Pairs of bf16"). Sums are f32 in all. */
typedef enum ash_precision {
    ASH_PRECISION_IEEE,   /* as f32 */
    ASH_PRECISION_TF32X3, /* each number as the sum of two of TF32, three products of four, on tensor
                             cores: errors as of f32 */
    ASH_PRECISION_TF32,   /* numbers rounded to 10 bits of mantissa: errors up to 1e-3 of a product */
    ASH_PRECISION_BF16,   /* numbers rounded to 7 bits of mantissa: up to 8e-3; weights take half of their
                             bytes. Of processors with AVX512_BF16 */
    ASH_PRECISION_BF16X3, /* each number as the sum of two of bf16, three products of four:
                             up to 2e-5 of a product. Weights take half as much again, and infinities may
                             come out as NaN. Of processors with AMX-BF16 */
    ASH_PRECISION_COUNT
} ash_precision;

ASH_API const char *ash_precision_text(ash_precision precision); /* "tf32x3"; "?" outside the enumeration */

/* Places the nodes and states whose name fits a pattern, in which `*` stands for any text and `?` for any
 * character. Names are those of the graph's nodes: of an ONNX model, its own. */
typedef struct ash_place_rule {
    const char *pattern;
    uint32_t device; /* index in ash_plan_options.devices */
} ash_place_rule;

/* Zeroed options are the defaults. */
typedef struct ash_plan_options {
    size_t size;               /* bytes that the caller knows, or 0: ASH_INIT */
    ash_memory_options memory; /* planner mode and strategy, and what else the planner takes; `capacity` is
                                  the most that the arena may take, beside the arenas of states: prepare
                                  meets it, if need be with other orders, results that are computed again,
                                  kernels that are split, without Winograd, or with operations
                                  on one thread (docs/memory.md), or fails with BUDGET and names the
                                  smallest size found and what lies there at the peak.
                                  Parameters and constants are read where they lie, or packed into the
                                  weights, whose block is no part of the arena. With omit_params or
                                  omit_constants the plan allocates no block for weights that hold
                                  parameters and what is computed from one, or constants and what is
                                  computed from these alone: it must be bound (ash_plan_bind_weights), and
                                  prepare leaves to the first execution what goes there; one without it is
                                  ASH_ERROR_STATE */
    ash_plan_order order;
    ash_precision
        precision;    /* of f32. Another than IEEE is for plans on one device: TF32 and pairs of it on
                                GPUs from sm_80 on, BF16 on processors that have its products; elsewhere
                                ASH_ERROR_UNSUPPORTED */
    unsigned threads; /* threads of one execution, the caller's included; 0, or more than the context has:
                         as many as it has */
    bool no_optimize; /* the graph is taken as it is, but for what no output needs */
    bool no_winograd; /* convolutions by their definition alone. Otherwise those of 3 x 3 windows may take
                         Winograd's algorithm where it is faster: fewer multiplications, weights as they
                         are, and sums rounded another way (docs/codegen.md); never where the result is
                         rounded to integers */
    bool no_fuse;     /* one kernel per node */
    bool fuse_freely; /* as much in one kernel as is possible. Otherwise kernels are split where holding all
                         of their operands at once would need more memory at the peak than one kernel per
                         node (docs/memory.md) */
    bool poison; /* debugging: dead bytes are filled with NaN patterns between operations, so that a value
                      that is read after its death shows */
    bool reuse_inputs; /* the bytes that the plan has for inputs are others' after their last reader, which
                          makes the arena smaller: each input that is set, or produced in place, is used up
                          by the execution that it was set for, and the next one without it is
                          ASH_ERROR_STATE. Setting one ends the results of the last execution (outputs that
                          ash_plan_release_intermediates has kept stay). Inputs that are bound to the
                          caller's bytes stay, as do those that are outputs or in `keep` */
    bool late_capture; /* mode graph alone: the schedule is captured by the first execution and not by
                          prepare, which is over sooner; where it cannot be captured, that is the error of
                          each execution. Replicas of a plan that is captured share what was compiled, and
                          are captured at once; others by their own first execution */
    bool keep_denormals; /* numbers below 1.2e-38 (f64: 2.3e-308) are computed with, where the device has a
                            choice. Otherwise kernels on the CPU take them as zero and give zero for them:
                            they are a hundred times slower than others, and trained weights often have
                            them. Functions of the caller run with them in any case, and the mode of the
                            calling thread is the same after a call as before */
    bool cublas; /* products whose sizes are numbers may be done by cuBLASLt, those that are not expected
                    to be slower so (docs/cuda.md): of f32 without rounding, but where `precision` is TF32,
                    and of f16 and bf16, summed in f32. The library is looked for when a plan asks for the
                    first time; where there is none, or it is too old or does not start, that is
                    ASH_ERROR_DEVICE with the reason. Plans on one GPU alone: elsewhere
                    ASH_ERROR_UNSUPPORTED */
    const ash_value *keep; /* values of the graph whose results can be read after every execution; what
                              is computed at prepare is kept among the weights */
    size_t keep_count;
    ash_mode mode;
    unsigned streams;      /* of mode multi_stream: 1 to ASH_PLAN_MOST_STREAMS; 0 or 1 in other modes */
    ash_progress progress; /* told while the plan is prepared. Its switch stops preparing and, later, the
                              executions of the plan and its replicas, and must stay as long as they */
    ash_device *device;    /* that runs it and that its memory is on, which the plan then keeps open; NULL:
                              the CPU. ASH_ERROR_DEVICE for one that computes nothing */
    ash_device *const *devices; /* distinct, that the graph's nodes are placed on by their index, at most
                                   ASH_MOST_DEVICES; devices[0] is the main device, which has all inputs
                                   and outputs, and is `device` where that is given too. NULL:
                                   `device` alone. Copies between devices are operations, which overlap with
                                   work on all of them. Streams are those of each device; mode graph
                                   captures what each does between two meetings with others. With more than
                                   one device, memory.omit_params and omit_constants, and graphs with sizes
                                   that depend on data are ASH_ERROR_UNSUPPORTED */
    size_t device_count;
    const ash_place_rule *places; /* for nodes and states that ash_graph_place has not placed: the last rule
                                     that fits counts. A device that is not in the list, named by a rule or
                                     by the graph, is ASH_ERROR_INVALID_ARGUMENT with the node's name */
    size_t place_count;
    const uint64_t *capacities; /* bytes, per device: what memory.capacity is for the arena on each, 0: no
                                   limit. NULL: memory.capacity, for each */
} ash_plan_options;

/* The defaults: mode stream, optimised, with Winograd, and fused, no poison, all threads, memory by its
 * defaults. */
static inline ash_plan_options ash_plan_options_default(void) {
    ash_plan_options options = ASH_INIT(ash_plan_options);
    return options;
}

/* Prepares a graph of this context (of another: ASH_ERROR_INVALID_ARGUMENT); `options` may be NULL for the
 * defaults. The caller destroys *out. */
ASH_API ash_status ash_plan_prepare(ash_context *context, const ash_graph *graph,
                                    const ash_plan_options *options, ash_plan **out, ash_diag *diag);
/* A second plan of the same graph, in no more than an arena of its own: kernels and layout are shared, and
 * so are the weights until one of the two is given a parameter. It has the variables and parameters that
 * `plan` has now, and no inputs. Plans and replicas may run at the same time and be destroyed in any order.
 * The caller destroys *out. */
ASH_API ash_status ash_plan_replicate(ash_plan *plan, ash_plan **out, ash_diag *diag);
ASH_API void ash_plan_destroy(ash_plan *plan); /* NULL is allowed; not while another thread uses it */
/* The main device that runs the plan, which all of its memory is on where there is no other, borrowed; NULL
 * for no plan. */
ASH_API ash_device *ash_plan_device(const ash_plan *plan);

/* What a plan has on one of its devices. */
typedef struct ash_plan_device_info {
    size_t size;        /* bytes that the caller knows, or 0: ASH_INIT */
    ash_device *device; /* borrowed */
    uint64_t ops;       /* operations of an execution that it runs, without copies between devices */
    uint64_t arena;     /* bytes of its arenas, those of states included */
    uint64_t weights;   /* bytes of its packed weights */
    uint64_t originals; /* bytes of constants and parameters that executions read where they lie */
    uint64_t twice;     /* bytes of constants and parameters that it has and a device before it has, too */
    uint64_t copies, copied; /* operations that copy to it from other devices, and their bytes */
    uint64_t direct;         /* of these operations, those from memory to memory: others go over the host */
    uint64_t beside; /* and those that may run while an operation of a device does: neither waits for the
                        other */
    /* of a GPU, what the plan holds beside all that as long as it exists, in bytes */
    uint64_t records;   /* of its memory: what kernels read when they run (which chunks, variables, how many
                           bytes), and the words that stop them */
    uint64_t pinned;    /* of the host's memory that it reaches: what records are uploaded from, operands of
                           functions of the host, buffers for copies to it from other devices, and from it
                           to the host */
    uint64_t transfers; /* of that memory as well, but held by the device for all its plans, once this one's
                           largest input, output, state or constant has been copied */
} ash_plan_device_info;

/* The devices of a plan, the main one first: 1 where nothing is placed on another; 0 for no plan. */
ASH_API size_t ash_plan_device_count(const ash_plan *plan);
/* ASH_ERROR_NOT_FOUND past the last. */
ASH_API ash_status ash_plan_device_at(const ash_plan *plan, size_t index, ash_plan_device_info *out,
                                      ash_diag *diag);

/* --- open dims -------------------------------------------------------------------------------- */

/* A plan of an open graph (ashlar/graph.h) takes the sizes of open dims from the inputs that it is given.
 * Until all are known and the plan is ready for them, nothing is laid out or compiled: it has inputs, names
 * of outputs and variables, and no operations, buffers, parameters or bytes. Calls that need more are
 * ASH_ERROR_STATE, and name the dims.
 *
 * ash_plan_execute, ash_plan_input and ash_plan_ready make it ready for the sizes as they are. The graph is
 * then prepared for just these, with the options of ash_plan_prepare (whose `progress`, all of it, must
 * stay as long as the plan, and must not call it), and is as fast as one whose file has the numbers. For
 * the sizes that it is ready for, such a plan is like any other. Inputs in other sizes make it ready anew,
 * which takes as long as preparing, less the kernels that the context or its cache has; where sizes change
 * often, give the dims bounds instead (ash_onnx_options.vars), and bind variables. When that fails, the
 * plan is as it was.
 *
 * Parameters that were set, values of variables, inputs that have no other sizes now, and memory of the
 * caller's for the arena and the weights go over, if that is large enough. Views of inputs and outputs
 * follow (one that would come to lie in another's buffer is left without bytes). All that was told of
 * buffers, operations, kernels and memory ends with the old sizes, and so do other views and results; no
 * other thread may ask for such things meanwhile. `keep` can name inputs alone. */

/* Makes a plan ready for the inputs and variables that it was given, so that its arena and operations are
 * known before it is executed. Inputs that were given in other sizes by now must be given again, or set
 * back. Nothing to do for a plan that is ready, or of a graph that is not open. */
ASH_API ash_status ash_plan_ready(ash_plan *plan, ash_diag *diag);

/* --- arena ------------------------------------------------------------------------------------ */

/* What one block must have to hold all arenas of the plan, states left out: bytes, and alignment of its
 * address. 0 bytes while a plan with open dims is ready for no sizes. */
ASH_API uint64_t ash_plan_arena_size(const ash_plan *plan);
ASH_API uint64_t ash_plan_arena_align(const ash_plan *plan);
/* Makes the plan use `memory`, which must stay until the plan is destroyed or bound elsewhere; NULL: the
 * plan's own again. ASH_ERROR_STATE once the arena is in use; after ash_plan_release_all it is not.
 *
 * What the plan writes overlaps nothing else that it uses: this block, one for the weights, or an input
 * that is bound is ASH_ERROR_INVALID_ARGUMENT, with both names and addresses, when it has bytes in common
 * with the arena, the weights, states, outputs that were kept, or (the blocks) an input, a constant or a
 * parameter that is read where it lies, or a mapped file. Inputs may overlap each other, and other plans'
 * memory. */
ASH_API ash_status ash_plan_bind_arena(ash_plan *plan, void *memory, uint64_t size, ash_diag *diag);
/* The same with memory of a view on the plan's device, which may be written and which the plan holds; NULL:
 * the plan's own again. Memory of the host or of another device is ASH_ERROR_DEVICE where the plan's does
 * not reach it. */
ASH_API ash_status ash_plan_bind_arena_view(ash_plan *plan, ash_view *view, ash_diag *diag);
/* The same for the packed weights, which live as long as the plan: bytes and alignment of their block, and
 * the caller's memory for it. Weights that are there move into it at once. The memory must stay until the
 * plan, and replicas that share the weights, are destroyed or bound elsewhere; NULL: the plan's own again.
 * A plan that makes its weights anew while replicas have them leaves the block to these. Plans that
 * allocate none (memory.omit_params, omit_constants) need it for whatever they make there: ASH_ERROR_STATE
 * says how large it must be, also when it is to be taken from weights that are there. */
ASH_API uint64_t ash_plan_weights_size(const ash_plan *plan);
ASH_API uint64_t ash_plan_weights_align(const ash_plan *plan);
ASH_API ash_status ash_plan_bind_weights(ash_plan *plan, void *memory, uint64_t size, ash_diag *diag);
ASH_API ash_status ash_plan_bind_weights_view(ash_plan *plan, ash_view *view, ash_diag *diag);
/* Gives back the arenas, and keeps the outputs' bytes, where they are those of the present variables, in a
 * block of their own until the next execution. Inputs that were copied in are lost, states stay. Returns
 * the bytes that were given back. */
ASH_API ash_status ash_plan_release_intermediates(ash_plan *plan, uint64_t *released, ash_diag *diag);
/* Gives back everything but the kernels: arenas, outputs, packed weights, states. The next execution makes
 * them again, and finds the states reset to their initial contents. */
ASH_API ash_status ash_plan_release_all(ash_plan *plan, uint64_t *released, ash_diag *diag);

/* What a plan gives back. */
typedef enum ash_release_kind {
    ASH_RELEASE_BUFFER, /* bytes of one buffer, which the plan had */
    ASH_RELEASE_BLOCK,  /* memory of the caller's that was bound: the plan touches it no more, nor do its
                           replicas, and it may be freed */
    ASH_RELEASE_COUNT
} ash_release_kind;

ASH_API const char *ash_release_text(ash_release_kind kind); /* "block"; "?" outside the enumeration */

typedef struct ash_release {
    ash_release_kind kind;
    uint32_t buffer;  /* index of the buffer; UINT32_MAX of a block */
    const char *name; /* of an input, parameter, state or output, or NULL; of blocks "arena" and "weights",
                           too */
    uint64_t bytes;   /* of the buffer at the variables' maxima; those of the block that were used */
    ash_device *device; /* that they are on, or were lent from; borrowed */
    const void
        *memory; /* of a block that came as a pointer; NULL: as a view, which the plan holds no more */
    uint64_t reserved[4]; /* 0: room for fields to come */
} ash_release;

typedef void (*ash_release_fn)(void *user, const ash_release *what);

typedef struct ash_release_hook {
    ash_release_fn fn;
    void *user; /* passed on */
} ash_release_hook;

/* Has a function, which is copied from `hook`, told of each buffer whose bytes are given back, by the two
 * calls above and when the plan is destroyed, and of each block as soon as the plan has done with it: bound
 * elsewhere, set over, or the plan destroyed. Buffers that share bytes are told of one by one, those that
 * lie in others (views) with these, and outputs that were kept when these are given back. NULL: nobody is
 * told. Replicas that are made later tell the same function. It is called under the plan's lock, also in
 * the middle of a call that binds, and must not call the plan. */
ASH_API ash_status ash_plan_on_release(ash_plan *plan, const ash_release_hook *hook, ash_diag *diag);

/* Gives up the originals of packed weights, `originals` in ash_plan_report: the plan keeps the weights that
 * it has (and makes them now, if it has none), and can make no others. Parameters can no longer be set, and
 * ash_plan_release_all leaves the weights. Their memory is free when the graph, which has them too, is
 * destroyed. ASH_ERROR_STATE for a plan of an open graph, which is made again for other sizes, and for one
 * that has replicas, which may need them; replicas that are made later need none. Returns the bytes. */
ASH_API ash_status ash_plan_release_originals(ash_plan *plan, uint64_t *released, ash_diag *diag);

/* --- inputs and parameters -------------------------------------------------------------------- */

ASH_API size_t ash_plan_input_count(const ash_plan *plan);
/* NULL past the end. */
ASH_API const char *ash_plan_input_name(const ash_plan *plan, size_t position);
ASH_API ash_status ash_plan_input_position(const ash_plan *plan, const char *name, size_t *out,
                                           ash_diag *diag);
/* The type with the present values of the variables; the size of an open dim that is not known yet is -1.
 * */
ASH_API ash_status ash_plan_input_type(ash_plan *plan, size_t position, ash_type *out, ash_diag *diag);

/* Copies an input in: row-major elements of `type`, whose dims are numbers, and which has `size` bytes. It
 * stays until it is set again (with ash_plan_options.reuse_inputs, for one execution). The type must be
 * the present one (ASH_ERROR_TYPE, ASH_ERROR_SHAPE: the failure names both, with the variables), but for
 * dims that are open: it says their sizes. NULL: the present type, of one who has asked for it. */
ASH_API ash_status ash_plan_set_input(ash_plan *plan, size_t position, const ash_type *type,
                                      const void *data, uint64_t size, ash_diag *diag);
/* Uses the caller's bytes where they are, until the input is set or bound again; they may change between
 * executions. (The input's own bytes, as ash_plan_input gives them, count as set.) The address must be a
 * multiple of ash_plan_input_align. Where the device does not reach memory of the host, each execution
 * copies the bytes first, to the input's own place: ASH_ERROR_DEVICE if it has none. */
ASH_API ash_status ash_plan_bind_input(ash_plan *plan, size_t position, const ash_type *type,
                                       const void *data, uint64_t size, ash_diag *diag);
ASH_API uint64_t ash_plan_input_align(const ash_plan *plan, size_t position);
/* The same with a view, whose type must be the input's present one (ASH_ERROR_TYPE, ASH_ERROR_SHAPE). While
 * a view is bound, the plan holds its storage; it must be of the plan's context. The bytes are those that
 * the view has at the call: a view of a plan's buffer that moves later is bound again. */
ASH_API ash_status ash_plan_set_input_view(ash_plan *plan, size_t position, const ash_view *view,
                                           ash_diag *diag);
ASH_API ash_status ash_plan_bind_input_view(ash_plan *plan, size_t position, const ash_view *view,
                                            ash_diag *diag);
/* Gives an input for all values of the variables at once: `size` bytes, at least what it has at their
 * maxima. It counts as set whatever values they are given later, until it is set or bound again: an
 * execution reads the elements of its present shape, row-major, from the first byte on. They are copied in,
 * or used where they are, as above. So ash_plan_execute_vars alone is a call for other values. Of a plan
 * with open dims, whose inputs say their sizes: ASH_ERROR_STATE. */
ASH_API ash_status ash_plan_set_input_room(ash_plan *plan, size_t position, const void *data, uint64_t size,
                                           ash_diag *diag);
ASH_API ash_status ash_plan_bind_input_room(ash_plan *plan, size_t position, const void *data,
                                            uint64_t size, ash_diag *diag);
/* The input's own buffer, writable: for callers that produce it in place. Counts as setting it. */
ASH_API ash_status ash_plan_input(ash_plan *plan, size_t position, ash_view **out, ash_diag *diag);

ASH_API size_t ash_plan_parameter_count(const ash_plan *plan);
ASH_API const char *ash_plan_parameter_name(const ash_plan *plan, size_t index); /* NULL past the end */
/* Copies a parameter in; type and size as for inputs. What was computed from it at prepare, and only that,
 * is computed again before the next execution, which takes no memory: this call takes it. */
ASH_API ash_status ash_plan_set_parameter(ash_plan *plan, const char *name, const ash_type *type,
                                          const void *data, uint64_t size, ash_diag *diag);
/* The same with a view of the parameter's type. */
ASH_API ash_status ash_plan_set_parameter_view(ash_plan *plan, const char *name, const ash_view *view,
                                               ash_diag *diag);

/* --- state ------------------------------------------------------------------------------------ */

/* What the graph keeps between executions (ash_graph_state), in the graph's order. It appears at the first
 * use, in memory of its own that is no part of the arena, and has its initial contents then. A replica has
 * states of its own, which begin anew; copy them with ash_plan_state and ash_plan_set_state. */
ASH_API size_t ash_plan_state_count(const ash_plan *plan);
ASH_API const char *ash_plan_state_name(const ash_plan *plan, size_t position); /* NULL past the end */
ASH_API ash_status ash_plan_state_position(const ash_plan *plan, const char *name, size_t *out,
                                           ash_diag *diag);
/* The type with the present values of the variables. */
ASH_API ash_status ash_plan_state_type(ash_plan *plan, size_t position, ash_type *out, ash_diag *diag);
/* What the state is now, to be read: after an execution its new value. An output that is the new value of a
 * state lies in the same bytes, so that setting or resetting the state changes it. */
ASH_API ash_status ash_plan_state(ash_plan *plan, size_t position, const ash_view **out, ash_diag *diag);
/* Copies a value in; type and size as for inputs. Bytes that other
 * values of the variables would give it become zeros. */
ASH_API ash_status ash_plan_set_state(ash_plan *plan, size_t position, const ash_type *type,
                                      const void *data, uint64_t size, ash_diag *diag);
/* The same with a view of the state's present type. */
ASH_API ash_status ash_plan_set_state_view(ash_plan *plan, size_t position, const ash_view *view,
                                           ash_diag *diag);
/* Makes the state lie in `memory`, which holds its value from then on, first of all what is there now, and
 * must stay until the state is bound elsewhere or the plan is destroyed; NULL: memory of the plan's again,
 * which takes the value over. ash_plan_state_size bytes, those of its largest shape, at a multiple of
 * ash_plan_state_align. Executions read and write it there, and setting and resetting it write there;
 * releasing leaves it, and its replicas have states of their own. Memory that overlaps what else the plan
 * uses is refused as for ash_plan_bind_arena, as is a mapped file. Where the device does not reach memory
 * of the host, each execution copies it from there and, when it has changed it, back. A plan of an open
 * graph keeps the binding as long as its sizes. */
ASH_API ash_status ash_plan_bind_state(ash_plan *plan, size_t position, void *memory, uint64_t size,
                                       ash_diag *diag);
/* The same with memory of a view, which may be written, has the state's dtype, and which the plan holds. */
ASH_API ash_status ash_plan_bind_state_view(ash_plan *plan, size_t position, ash_view *view,
                                            ash_diag *diag);
ASH_API uint64_t ash_plan_state_size(const ash_plan *plan, size_t position);
ASH_API uint64_t ash_plan_state_align(const ash_plan *plan, size_t position);
/* Back to the initial contents: one, or all. */
ASH_API ash_status ash_plan_reset_state(ash_plan *plan, size_t position, ash_diag *diag);
ASH_API ash_status ash_plan_reset_states(ash_plan *plan, ash_diag *diag);

/* --- executing -------------------------------------------------------------------------------- */

typedef struct ash_plan_var {
    size_t size; /* bytes that the caller knows: ASH_INIT */
    const char *name;
    bool settled; /* each execution finds its value, and nobody sets it: a size that depends on data. Its
                     value is that of the last execution; without one, or when others are set, its bound */
    bool open;    /* it takes its value from inputs, and is -1 before: see open dims */
    int64_t min, max, value; /* inclusive bounds, present value; at first the maximum */
    uint64_t bytes; /* of the arenas, when most of them are live: how many fewer they would be if it were
                       always at its minimum. What a smaller maximum can save */
} ash_plan_var;

ASH_API size_t ash_plan_var_count(const ash_plan *plan);
ASH_API ash_status ash_plan_var_at(ash_plan *plan, size_t index, ash_plan_var *out, ash_diag *diag);
/* Gives variables new values, open ones too; the others keep theirs. An unknown name, one that is there
 * twice, one that executions settle, or a value out of bounds is an error, and nothing has changed. Inputs
 * whose shape depends on them must then be set again. Views have their new shape at once; results that were
 * computed with other values cannot be read, until these are set again or the plan has been executed. */
ASH_API ash_status ash_plan_set_vars(ash_plan *plan, const ash_var_binding *vars, size_t count,
                                     ash_diag *diag);

/* Runs the plan. ASH_ERROR_STATE names an input that is not set, or was set in another shape. A failed
 * execution leaves the plan usable: a refused one with the results of the last, one that the device failed
 * or that was cancelled on the way without results. States that an execution changes are undefined then,
 * and the next one is ASH_ERROR_STATE until they are set or reset. ASH_ERROR_IO names a file of weights,
 * or one that a bound input lies in, that was cut short.
 *
 * It is cancelled by the switch in ash_plan_options.progress, and while that is on it is refused. In all
 * modes the switch is looked at before each operation, and within long ones every few milliseconds, also
 * where all of an operation is one sum or one sort. A function of the caller's that takes long looks itself
 * (ashlar/function.h). */
ASH_API ash_status ash_plan_execute(ash_plan *plan, ash_diag *diag);
/* How many operations of the present execution are over, or of the last one, and of how many. From any
 * thread, without waiting. */
ASH_API void ash_plan_progress(const ash_plan *plan, uint64_t *done, uint64_t *total);
/* Gives variables new values and runs the plan, in one step: no other thread's call comes in between, and
 * when any of it fails the variables have their values of before. Those that are not named keep theirs, and
 * settled ones are found as ever. Inputs that were given for all values (ash_plan_set_input_room) need not
 * be given again. */
ASH_API ash_status ash_plan_execute_vars(ash_plan *plan, const ash_var_binding *vars, size_t count,
                                         ash_diag *diag);

/* What one run takes and gives. */
typedef struct ash_run_input {
    size_t position;
    const ash_type *type; /* as for ash_plan_set_input */
    const void *data;
    uint64_t size; /* bytes */
} ash_run_input;

typedef struct ash_run_output {
    size_t position;
    void *data;    /* receives row-major elements */
    uint64_t room; /* bytes that it has */
    ash_type type; /* receives the type, whose dims are numbers, */
    uint64_t size; /* and the bytes that were written */
} ash_run_output;

typedef struct ash_run {
    size_t size;                 /* bytes that the caller knows, or 0: ASH_INIT */
    const ash_var_binding *vars; /* others keep their values */
    size_t var_count;
    const ash_run_input *inputs; /* others stay as they are */
    size_t input_count;
    ash_run_output *outputs; /* those that are wanted */
    size_t output_count;
} ash_run;

/* All of it in one step: new values, inputs, the execution, and copies of results, with no other thread's
 * call in between: threads that share a plan each get what belongs to their own inputs. What can be known
 * to be wrong is refused before anything has changed. After another failure the variables have their
 * values of before, and inputs that were given in other shapes are to be given again. An output with too
 * little room is ASH_ERROR_OUT_OF_RANGE; where its size is known only when it is there, after the
 * execution. */
ASH_API ash_status ash_plan_run(ash_plan *plan, const ash_run *given, ash_diag *diag);

typedef struct ash_profile {
    uint32_t op;      /* index of the prepared operation */
    uint32_t threads; /* that ran a part of it */
    uint32_t stream;  /* that it ran on */
    int64_t start;    /* nanoseconds since the execution began */
    int64_t duration; /* nanoseconds */
} ash_profile;

/* The same with the time of each operation; `profile` has room for ash_plan_op_count entries. */
ASH_API ash_status ash_plan_execute_profiled(ash_plan *plan, ash_profile *profile, size_t room,
                                             ash_diag *diag);
ASH_API ash_status ash_plan_execute_vars_profiled(ash_plan *plan, const ash_var_binding *vars, size_t count,
                                                  ash_profile *profile, size_t room, ash_diag *diag);

/* Mode eager: prepares a graph, runs it once and drops the plan, in one call. States have their initial
 * contents, and what becomes of them is dropped with the plan. */
typedef struct ash_eager_call {
    size_t size;                 /* bytes that the caller knows, or 0: ASH_INIT */
    const ash_var_binding *vars; /* of variables; others have their maxima */
    size_t var_count;
    const ash_tensor *const *inputs; /* in the graph's order */
    size_t input_count;
    ash_tensor **outputs; /* room for all of the graph's; the caller destroys each. NULL after a failure */
    size_t output_count;
    struct ash_plan_report *report; /* receives what the plan said of itself; NULL: nobody asks */
} ash_eager_call;

/* `options` may be NULL; kernels that are in the context's cache or in use are not compiled again. */
ASH_API ash_status ash_eager(ash_context *context, const ash_graph *graph, const ash_plan_options *options,
                             const ash_eager_call *call, ash_diag *diag);

/* --- results ---------------------------------------------------------------------------------- */

ASH_API size_t ash_plan_output_count(const ash_plan *plan);
ASH_API const char *ash_plan_output_name(const ash_plan *plan, size_t position); /* NULL past the end */
ASH_API ash_status ash_plan_output_position(const ash_plan *plan, const char *name, size_t *out,
                                            ash_diag *diag);
/* An output's view. Its bytes are there after the first execution. A plan without outputs says so. */
ASH_API ash_status ash_plan_output(ash_plan *plan, size_t position, const ash_view **out, ash_diag *diag);
/* All of them: `out` has room for `room` views, at least ash_plan_output_count. */
ASH_API ash_status ash_plan_outputs(ash_plan *plan, const ash_view **out, size_t room, ash_diag *diag);
/* The buffer of an output. */
ASH_API ash_status ash_plan_output_index(const ash_plan *plan, size_t position, size_t *out,
                                         ash_diag *diag);

/* --- buffers ---------------------------------------------------------------------------------- */

typedef enum ash_role {
    ASH_ROLE_INPUT,
    ASH_ROLE_CONSTANT,
    ASH_ROLE_PARAMETER,
    ASH_ROLE_WEIGHT,  /* computed from constants and parameters at prepare */
    ASH_ROLE_STAGING, /* used at prepare alone */
    ASH_ROLE_LOCAL,
    ASH_ROLE_OUTPUT,
    ASH_ROLE_SCRATCH, /* of one operation */
    ASH_ROLE_STATE,   /* kept between executions */
    ASH_ROLE_COUNT
} ash_role;

ASH_API const char *ash_role_text(ash_role role); /* "weight"; "?" outside the enumeration */

typedef struct ash_buffer_info {
    size_t size; /* bytes that the caller knows: ASH_INIT */
    ash_role role;
    ash_phase phase;    /* of the value that it holds */
    ash_type type;      /* at the variables' maxima */
    uint64_t bytes;     /* at the variables' maxima */
    ash_value value;    /* of the graph that was prepared, or ASH_NO_VALUE */
    const char *name;   /* of an input, parameter, state or output, or NULL */
    uint32_t root;      /* the buffer in whose bytes it lies (a view, an operation in place), or itself */
    uint32_t arena;     /* of the plan's arenas, or UINT32_MAX when it lies elsewhere */
    uint64_t offset;    /* bytes into the arena, where there is one */
    int64_t begin, end; /* and there: half steps during which its place is taken, half-open, in the order of
                           issue; operation i has 2i and 2i + 1 */
    size_t device;      /* of the plan's, whose memory it is in */
} ash_buffer_info;

ASH_API size_t ash_plan_buffer_count(const ash_plan *plan);
ASH_API ash_status ash_plan_buffer_at(const ash_plan *plan, size_t index, ash_buffer_info *out,
                                      ash_diag *diag);
/* The buffer that holds a value of the graph. ASH_ERROR_NOT_FOUND when none does: it was fused or
 * simplified away. */
ASH_API ash_status ash_plan_buffer_index(const ash_plan *plan, ash_value value, size_t *out,
                                         ash_diag *diag);
/* The bytes of a buffer after an execution, by value and by index. ASH_ERROR_STATE when they are another's
 * by then: the error says whose. Values given as `keep` always have theirs. */
ASH_API ash_status ash_plan_buffer(ash_plan *plan, ash_value value, const ash_view **out, ash_diag *diag);
ASH_API ash_status ash_plan_buffer_view(ash_plan *plan, size_t index, const ash_view **out, ash_diag *diag);

/* --- inspecting ------------------------------------------------------------------------------- */

typedef enum ash_prepared_kind {
    ASH_PREPARED_KERNEL,
    ASH_PREPARED_COPY,
    ASH_PREPARED_CALL,   /* of a function of the caller (ashlar/function.h), which is its name */
    ASH_PREPARED_SETTLE, /* a size that depends on data becomes known */
    ASH_PREPARED_LOOP,   /* a loop: its body's operations, as often as it runs */
    ASH_PREPARED_COUNT
} ash_prepared_kind;

ASH_API const char *
ash_prepared_kind_text(ash_prepared_kind kind); /* "kernel"; "?" outside the enumeration */

/* An operation of the schedule. */
typedef struct ash_prepared_op {
    size_t size; /* bytes that the caller knows: ASH_INIT */
    ash_prepared_kind kind;
    const char *name;         /* of what it computes: "conv+add+relu" */
    uint32_t kernel;          /* index, for kernels */
    int64_t chunks;           /* independent pieces, with the present variables */
    bool parallel;            /* whether it is worth more than one thread */
    double flops, bytes;      /* work and least traffic at the variables' maxima */
    const char *const *nodes; /* names of the graph's nodes in it, some of them NULL */
    size_t node_count;
    uint32_t stream;   /* that runs it */
    uint32_t event;    /* that is recorded when it is over, or UINT32_MAX */
    size_t wait_count; /* see ash_plan_op_wait */
    size_t device;     /* that runs it, of the plan's; of a copy between two: where it goes */
} ash_prepared_op;

/* The operations of an execution, in schedule order, and those of the prologue, which run at prepare. */
ASH_API size_t ash_plan_op_count(const ash_plan *plan);
ASH_API ash_status ash_plan_op_at(ash_plan *plan, size_t index, ash_prepared_op *out, ash_diag *diag);
ASH_API size_t ash_plan_prologue_count(const ash_plan *plan);
ASH_API ash_status ash_plan_prologue_at(ash_plan *plan, size_t index, ash_prepared_op *out, ash_diag *diag);

/* What an operation is expected to take on the GPU that its device names (CUDA:H200), or on the usual one
 * of the kind that it is for, which need not be there: arithmetic on its numbers at the variables' maxima,
 * and no measurement. */
typedef struct ash_op_forecast {
    size_t size;      /* bytes that the caller knows: ASH_INIT */
    const char *gpu;  /* "A100" */
    uint32_t threads; /* of a block; 0: it is no kernel */
    int64_t blocks;
    uint32_t registers;         /* of a thread */
    bool registers_known;       /* the caller said them; else they are estimated */
    uint64_t shared_bytes;      /* of a block */
    uint32_t resident;          /* blocks that a multiprocessor has at a time */
    double waves;               /* how often all multiprocessors are filled */
    const char *bound;          /* what takes longest: "launch", "issue", "l2", "memory", "host" */
    double ns;                  /* of the operation alone, nanoseconds */
    double stream_ns, graph_ns; /* what an execution takes longer by it, in mode stream and in mode graph */
    uint32_t tile_rows, tile_columns; /* of a product in tiles: results of a block; else 0 */
    uint32_t slices; /* in which a block's threads share each of its sums; 0 without a tile */
    uint32_t parts;  /* of its sums, which a later operation adds; 0: it is no product in tiles, 1: one */
    double share; /* of multiply-adds among the instructions of its loop, estimated; 0: it sums nothing */
} ash_op_forecast;

/* `registers`: what ptxas says of the kernel, or 0. ASH_ERROR_UNSUPPORTED where the plan is not for a
 * GPU. */
ASH_API ash_status ash_plan_op_forecast(const ash_plan *plan, size_t index, uint32_t registers,
                                        ash_op_forecast *out, ash_diag *diag);

/* An operation begins only when an event has happened, which an earlier operation of another stream
 * records. Operations of one stream run one after the other, in schedule order. This, the accesses below
 * and the places of ash_plan_buffer_at are all that orders an execution: who asks can prove it. */
typedef struct ash_op_wait {
    uint32_t event;
    uint32_t op; /* that records it */
} ash_op_wait;

/* ASH_ERROR_NOT_FOUND past the last wait. The prologue runs on one stream, and waits for nothing. */
ASH_API ash_status ash_plan_op_wait(const ash_plan *plan, size_t index, size_t wait, ash_op_wait *out,
                                    ash_diag *diag);

/* What an operation does with one buffer: the one record that dependences, lifetimes, waits and the
 * checkers are made of. There are several for a buffer that is read and written, or touched in parts. */
typedef struct ash_op_access {
    size_t size; /* bytes that the caller knows: ASH_INIT */
    uint32_t buffer;
    bool write;          /* scratch counts as written */
    uint64_t begin, end; /* bytes of the buffer, half-open, at the variables' maxima */
} ash_op_access;

/* The accesses of an operation, and of one of the prologue; an index past the end has none. */
ASH_API size_t ash_plan_op_access_count(const ash_plan *plan, size_t index);
ASH_API ash_status ash_plan_op_access(const ash_plan *plan, size_t index, size_t access, ash_op_access *out,
                                      ash_diag *diag);
ASH_API size_t ash_plan_prologue_access_count(const ash_plan *plan, size_t index);
ASH_API ash_status ash_plan_prologue_access(const ash_plan *plan, size_t index, size_t access,
                                            ash_op_access *out, ash_diag *diag);

typedef enum ash_source { ASH_SOURCE_NEST, ASH_SOURCE_IR, ASH_SOURCE_ASSEMBLY } ash_source;

/* Distinct kernels, and their text: loop nest, LLVM IR, assembly. Of a product of cuBLASLt, whose code is
 * not ours, the first alone: else ASH_ERROR_UNSUPPORTED. *out is freed with ash_context_free_text. */
ASH_API size_t ash_plan_kernel_count(const ash_plan *plan);
ASH_API ash_status ash_plan_kernel_source(const ash_plan *plan, size_t kernel, ash_source source,
                                          char **out, uint64_t *size, ash_diag *diag);
/* All that preparing has decided, as text: buffers and where they lie, operations with what they read and
 * write, the names of their kernels' code, streams, waits, the list of commands. Plans that are made of the
 * same graph for the same machine with the same options have the same text; of an open graph, when they are
 * given the same sizes. *out is freed with ash_context_free_text. */
ASH_API ash_status ash_plan_print(ash_plan *plan, char **out, uint64_t *size, ash_diag *diag);

/* What the order search did. */
typedef struct ash_plan_order_report {
    uint64_t given_size;       /* bytes of the arenas in the graph's order, without those of states */
    size_t moved;              /* operations that are not where they were */
    size_t recomputed;         /* operations that run once more, to compute results again */
    bool searched;             /* otherwise all of this is 0, or there was no need */
    double given_ns, again_ns; /* nanoseconds that an execution is estimated to take on one core, as the
                                  graph has it; and that computing again adds to it */
    uint64_t reserved[2];      /* 0: room for fields to come */
} ash_plan_order_report;

/* What a training step has in memory, in bytes: of the arenas, each at the moment when it is most, and all
 * of them at the moment when they are most together; beside the arenas, states. 0 where nothing was
 * differentiated. */
typedef struct ash_plan_training {
    uint64_t activations; /* results of the forward phase that a later phase reads */
    uint64_t gradients;   /* of the backward phase */
    uint64_t peak_activations, peak_gradients, peak_others; /* of the fullest moment */
    uint64_t optimizer; /* states that an optimiser has beside the weights */
} ash_plan_training;

typedef struct ash_plan_report {
    size_t size; /* bytes that the caller knows: ASH_INIT */
    /* bytes */
    uint64_t weights;   /* packed at prepare and kept */
    uint64_t constants; /* of the graph's constants and parameters that executions read where they lie */
    uint64_t mapped;    /* of these, in mapped files */
    uint64_t
        released; /* of mapped constants that were only needed at prepare: their pages were given back */
    uint64_t
        originals; /* of constants and parameters on the heap that executions do not read, since they were
                           packed or others were set, and of what states begin with: kept, by this plan, its
                           replicas and the graph as long as one of them exists, to make weights again, or
                           until ash_plan_release_originals */
    uint64_t staging; /* most that the prologue needed beyond the weights */
    uint64_t inplace; /* of results that took over the bytes of an operand */
    uint64_t state;   /* kept between executions, beside the arena */
    uint64_t
        code; /* of machine code, as object files, that was compiled or read for this plan; kernels that
                         another plan had are counted there */
    uint64_t tables; /* of the plan's own records: program, loop nests, layout, tables of addresses */
    uint64_t caches; /* of memory that was given back and that the context keeps, for all its plans
                         (ash_context_options.keep_bytes) */
    /* counts */
    size_t ops, prologue_ops, kernels;
    size_t splits;     /* results that kernels were split at for less memory (fuse_freely: none) */
    bool no_winograd;  /* memory.capacity is met without Winograd alone */
    size_t one_worker; /* operations that run on one thread for it, with the scratch memory of one */
    size_t states_in_place, states_copied; /* states whose new value is computed in their bytes; that are
                                                written by a copy at the end */
    uint64_t prologue_runs;                /* of operations of the prologue, so far */
    uint64_t kernels_compiled, kernels_from_disk, kernels_shared;
    uint64_t kernels_refused; /* in the cache on disk, where others could have written them: not taken */
    ash_mode mode;
    unsigned threads, streams; /* streams: those with an operation */
    size_t captured;           /* operations in the capture of mode graph, without those that are issued
                                  between its parts (loops on a GPU, copies between
                                  devices); 0 before there is one */
    bool captured_late;        /* by an execution: see ash_plan_options.late_capture */
    size_t events, waits; /* placed where an operation needs one of another stream; operations that wait
                               for one, and how often */
    uint64_t overlapped;  /* operations of the last execution that began on the processor while one of
                             another stream ran there; of what a GPU does nobody says it: see
                             ash_plan_device_info.beside, and profiles */
    /* nanoseconds */
    int64_t prepare_ns, lower_ns, compile_ns, memory_ns, prologue_ns;
    int64_t capture_ns; /* of prepare, or of the execution that captured */
    /* the arenas: bytes, lower bound, bytes without sharing, certificate */
    ash_memory_summary memory;
    /* what the checkers inspected: lifetimes against offsets, and every access to every byte in order */
    ash_memory_check_report check;
    ash_memory_replay_report replay;
    ash_plan_order_report order;
    ash_plan_training training; /* of a pair, of both plans */
    size_t graphs; /* that an execution of mode graph launches: 1; where loops are issued between parts of
                      it, each part; on several devices, for each device what stands between two meetings
                      with others; 0 before there is a capture */
    uint64_t records, pinned; /* bytes, of all devices: see ash_plan_device_info */
} ash_plan_report;

/* What a plan says of itself. */
ASH_API ash_status ash_plan_describe_to(const ash_plan *plan, ash_plan_report *out, ash_diag *diag);
static inline ash_plan_report ash_plan_describe(const ash_plan *plan) {
    ash_plan_report report = ASH_INIT(ash_plan_report);
    ash_plan_describe_to(plan, &report, NULL);
    return report;
}
/* The memory plan of the arenas, for ashlar/memory.h's reports; borrowed. */
ASH_API const ash_memory_plan *ash_plan_memory(const ash_plan *plan);
/* The problem that it solves: buffers, named by what makes them, with lifetimes in half steps; borrowed. */
ASH_API const ash_memory_problem *ash_plan_memory_problem(const ash_plan *plan);

#ifdef __cplusplus
}
#endif
#endif
