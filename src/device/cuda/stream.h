/* SPDX-License-Identifier: MIT */
/* Streams of a GPU from the inside.
 *
 * A list of commands becomes a script: operations that the driver has, and memory for what is read when
 * they run.
 *
 *     record    i64s on the device that a kernel reads: which chunks, the variables; how many bytes
 *     mirror    the records in pinned memory, from which they are uploaded; before that the present
 *               numbers are put there ("refreshed")
 *     staging   pinned memory for the operands of functions of the host
 *
 * All records are refreshed and uploaded when a round begins. A function of the host may change what later
 * commands read; so after one, in the order of issue, records are refreshed and uploaded again: those of a
 * segment, which are commands of one stream with no function and no wait between them, before its first.
 *
 *     host      copy out ... | the function | copy in ...
 *     segment   refresh | upload | kernel | kernel | ...
 *
 * The same operations are issued to streams, or become nodes of a graph, in a line. A repeat is neither:
 * its lists are operations behind it, which the thread that issues runs as often as the host says.
 * Launches in it have records like others, in the segment that is open when it begins; copies, fills and
 * stores are calls of the driver with the numbers that they have when they are issued. A function of the
 * host in it runs on the thread that issues, when its stream is over; behind it in its list begins a
 * segment, which is refreshed then, and uploaded where a number is another than before:
 *
 *     host      copy out ... | wait | the function, refresh | upload | copy in ... | kernel | ... */
#ifndef ASH_CUDA_STREAM_H
#define ASH_CUDA_STREAM_H

#include "cuda.h"

typedef enum cuda_op_kind {
    CUDA_KERNEL, /* a launch, a copy or a fill */
    CUDA_IN,     /* bytes of pinned memory to the device */
    CUDA_OUT,
    CUDA_CALL,   /* a function on a thread of the driver */
    CUDA_HERE,   /* in a repeat: a function on the thread that issues, when what comes before is over */
    CUDA_REPEAT, /* with all operations of its lists behind it */
    CUDA_DIRECT, /* in a repeat: a copy, a fill, a store */
    CUDA_RECORD,
    CUDA_WAIT
} cuda_op_kind;

typedef struct cuda_call {
    struct cuda_streams *streams;
    struct cuda_script *script;
    const ash_host *host; /* NULL: a segment is refreshed */
    ash_host was;         /* what it said when the script was made */
    void **table;         /* addresses of its operands' copies */
    uint64_t *sizes;      /* and their bytes */
    uint32_t segment;     /* that is refreshed; of a function in a repeat: after it */
    uint32_t stream;
    uint64_t over; /* steps of its stream that are over when it begins */
    ash_timing *timing;
} cuda_call;

typedef struct cuda_op {
    cuda_op_kind kind;
    uint32_t stream;
    uint32_t item;              /* KERNEL, CALL, HERE, REPEAT: which; RECORD, WAIT: the event */
    void *host;                 /* IN, OUT, HERE: pinned memory */
    uint64_t offset;            /* IN, OUT, HERE: bytes into the records, where `operand` is NULL */
    const ash_address *operand; /* or the entry of a table with the address */
    uint64_t bytes;
    const ash_command *command; /* DIRECT, REPEAT */
} cuda_op;

typedef struct cuda_repeat {
    const ash_repeat *repeat;
    ash_repeat was;                     /* what it said when the script was made */
    size_t first[ASH_REPEAT_LISTS + 1]; /* operations of each list, and where the last one ends */
} cuda_repeat;

/* A command that a kernel does. */
typedef struct cuda_item {
    const ash_command *command;
    uint32_t stream, segment, words; /* i64s of its record */
    uint64_t record;                 /* bytes into the records */
    cu_function function;
    const cuda_product *product; /* of a launch that is one of cuBLASLt: it has no function and no record */
    unsigned grid, block, shared;
    bool parallel; /* of a launch, as the chunks said */
    uint32_t first,
        params;    /* addresses of its parameters, and where they are: entries of the script's lists */
    uint64_t left; /* of a fill that others share a number with: bytes into the records, else 0 */
} cuda_item;

typedef struct cuda_script {
    struct cuda_script *next;
    ash_command *commands; /* what it was made of */
    size_t count;
    uint32_t steps;
    uint64_t before; /* steps that were issued before it in the round */
    ASH_VEC(cuda_op) ops;
    ASH_VEC(cuda_item) items;
    ASH_VEC(cuda_call) calls;
    ASH_VEC(cuda_repeat) repeats;
    ASH_VEC(uint32_t) segments;      /* per segment: its first item in `order`, and the end */
    ASH_VEC(uint32_t) order;         /* items by segment */
    ASH_VEC(cu_address) values;      /* of parameters, when they were last read */
    ASH_VEC(void *) addresses;       /* of these */
    ASH_VEC(const ash_fill *) fills; /* one for each shared number */
    cu_address records;
    char *mirror, *staging; /* pinned, or NULL where there is none */
    uint64_t record_bytes, staging_bytes;
    uint64_t fixed; /* bytes of the records that are not a segment's: shared numbers */
} cuda_script;

typedef struct cuda_streams {
    cuda_line line;
    ash_device *device;
    cuda_device *cuda;
    const ash_allocator *allocator;
    ash_streams_options options;
    cu_stream *streams, control;
    cu_event begun; /* the words and records are there */
    struct {
        cu_event before, after;
        ash_timing *timing;
    } *times;
    uint32_t n_times, room_times, timed;
    cu_event origin; /* with `times`: the clock's `start`, or 0: not in this round */
    int64_t start;
    cu_address words;             /* i32 asked, i32 left out: on the device */
    int32_t *pinned;              /* zeros, ones, what was looked at, and per stream what was left out */
    ash_stop stop;                /* what functions of the host look at, and what they say */
    cuda_script *scripts, **next; /* of a round, in order: those before *next are of the present one, others
                                     may be of the next that is issued */
    bool began;
    uint64_t steps;         /* that were issued in this round */
    _Atomic uint64_t *over; /* per stream: steps of this round that are known to be over */
    _Atomic uint64_t done;  /* steps of earlier ones */
} cuda_streams;

enum { CUDA_ZEROS = 0, CUDA_ONES = 2, CUDA_LOOK = 4, CUDA_READ = 6 }; /* of `pinned`, in i32s */
enum { CUDA_WORDS = 2 };                                              /* of `words` */

static inline size_t ash_cuda_streams__pinned(const ash_streams_options *options) {
    return (CUDA_READ + (size_t)options->streams + 1) * sizeof(int32_t);
}

/* Whether something was left out: the word on the device, and where a stream reads it to; the number of
 * streams: the control stream. Each has a place of its own, for nothing orders their copies; nor does
 * anything order them and the copy that asks, which writes the other word. */
static inline cu_address ash_cuda_streams__left_out(const cuda_streams *s) {
    return s->words + sizeof(int32_t);
}
static inline int32_t *ash_cuda_streams__read(const cuda_streams *s, uint32_t stream) {
    return s->pinned + CUDA_READ + stream;
}

/* script.c: within the context. */
ash_status ash_cuda_script__make(cuda_streams *s, const ash_command *commands, size_t count,
                                 cuda_script **out, ash_diag *diag);
void ash_cuda_script__free(cuda_streams *s, cuda_script *script);
/* The operation behind this one and all that is in it. */
size_t ash_cuda_script__after(const cuda_script *script, size_t op);
/* Adds what one would hold, of streams with these options, and takes nothing; for NULL what streams hold
 * without any. */
ash_status ash_cuda_script__measure(const ash_allocator *a, const ash_streams_options *options,
                                    const ash_command *commands, size_t count, ash_streams_memory *out,
                                    ash_diag *diag);
/* Whether it was made of these. */
bool ash_cuda_script__is_of(const cuda_script *script, const ash_command *commands, size_t count);
/* Puts the present numbers into the mirror: all records, or those of one segment; whether any is another
 * than before. */
void ash_cuda_script__refresh_all(cuda_streams *s, cuda_script *script);
bool ash_cuda_script__refresh(cuda_streams *s, cuda_script *script, uint32_t segment);
/* Reads the addresses that a kernel gets; whether they are others than before. */
bool ash_cuda_script__read_params(cuda_streams *s, cuda_script *script, cuda_item *item);
/* What the driver calls: a function of the host, or refreshing a segment. */
void ash_cuda_script__call(void *call);

/* graph.c */
ash_status ash_cuda_graph__instantiate(ash_streams *streams, const ash_command *commands, size_t count,
                                       const ash_capture *like, ash_capture **out, ash_diag *diag);
void ash_cuda_graph__start(ash_streams *streams, const ash_capture *capture);
void ash_cuda_graph__free(ash_streams *streams, ash_capture *capture);
uint32_t ash_cuda_graph__captured(const ash_capture *capture);
uint32_t ash_cuda_graph__graphs(const ash_capture *capture);
bool ash_cuda_graph__compiled(const ash_capture *capture);

/* stream.c: what graphs have in common with it; within the context. */
void ash_cuda_streams__begin(cuda_streams *s); /* a round, if that has not begun */
/* Runs a repeat: what comes before on its stream is issued. Failures are the round's. */
void ash_cuda_streams__repeat(cuda_streams *s, cuda_script *script, const cuda_op *op);

#endif
