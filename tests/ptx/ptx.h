/* SPDX-License-Identifier: MIT */
/* A stand-in for the CUDA driver, for tests: a shared library with the driver's exported names
 * (functions.def) that reads PTX and interprets it, checks everything on the way, and does what streams
 * and graphs allow in an order that a seed decides. These functions are beside the driver's: what to
 * check, what to break, and what was seen.
 *
 * The first finding makes the context lost, as an illegal address does on hardware: all later calls
 * answer with its code until the last retain of the primary context is released. Commands run when
 * somebody waits or asks (cuStreamSynchronize, cuEventQuery, a copy that blocks, ...), in the thread of
 * that call, and some at once: the seed decides. All calls take one lock; functions of the host run
 * under it, so they must not wait for another thread's call.
 *
 * What a program that is not linked with it can ask for, in the environment: PTX_SEED=N; PTX_SM=N, the
 * machine's capability; PTX_LEAVE_OUT="KIND N" and PTX_WRONG="KIND N", for the functions of that name. */
#ifndef PTX_H
#define PTX_H

#include <stdbool.h>
#include <stdint.h>

#include "abi.h"

/* CHECK(name, text, code): what the stand-in looks for, and the driver's answer from then on. */
#define PTX_CHECKS(CHECK)                                                                                  \
    CHECK(BOUNDS, "bounds", CUDA_ERROR_ILLEGAL_ADDRESS)             /* outside of every allocation */      \
    CHECK(ALIGNMENT, "alignment", CUDA_ERROR_MISALIGNED_ADDRESS)    /* of an address to its access */      \
    CHECK(READ_ONLY, "read-only", CUDA_ERROR_ILLEGAL_ADDRESS)       /* a store to constants */             \
    CHECK(UNINITIALISED, "uninitialised", CUDA_ERROR_LAUNCH_FAILED) /* a read of bytes nobody wrote */     \
    CHECK(SHARED_RACE, "shared race", CUDA_ERROR_LAUNCH_FAILED)     /* threads, no barrier between */      \
    CHECK(BLOCK_RACE, "block race", CUDA_ERROR_LAUNCH_FAILED)       /* blocks of one launch */             \
    CHECK(STREAM_RACE, "stream race", CUDA_ERROR_LAUNCH_FAILED)     /* commands that nothing orders */     \
    CHECK(ASYNC, "async", CUDA_ERROR_LAUNCH_FAILED)                 /* cp.async touched before its wait */ \
    CHECK(BARRIER, "barrier", CUDA_ERROR_LAUNCH_FAILED)             /* that not all threads reach */       \
    CHECK(CONVERGENCE, "convergence", CUDA_ERROR_LAUNCH_FAILED)     /* mma, shuffle: not the whole warp */ \
    CHECK(TRAP, "trap", CUDA_ERROR_LAUNCH_FAILED)                   /* the kernel says so itself */        \
    CHECK(ENDLESS, "endless", CUDA_ERROR_LAUNCH_TIMEOUT)            /* more instructions than allowed */   \
    CHECK(HOST_FUNCTION, "host function", CUDA_ERROR_LAUNCH_FAILED) /* one that calls the driver */

typedef enum ptx_check {
#define CHECK(name, text, code) PTX_##name,
    PTX_CHECKS(CHECK)
#undef CHECK
        PTX_N_CHECKS
} ptx_check;

/* What a kernel did, or all of them. Requests are those of one warp for one instruction. */
typedef struct ptx_counters {
    uint64_t launches, blocks;
    uint64_t lane_instructions, warp_instructions;
    uint64_t multiply_adds; /* lane instructions fma and mad on floats */
    uint64_t matrix;        /* warp instructions mma */
    uint64_t barriers;      /* per block */
    struct {
        uint64_t requests;
        uint64_t
            wavefronts; /* passes of 128 bytes: at least bytes / 128 a request, more with bank conflicts */
        uint64_t conflicts; /* wavefronts beyond those of the access's width */
    } shared_load, shared_store, matrix_load;
    struct {
        uint64_t requests, sectors, bytes; /* sectors of 32 bytes; bytes that lanes asked for */
        uint64_t scattered; /* sectors of a request beyond those that as many bytes touch which lie side by
                               side from its first one on */
        uint64_t by_one;    /* requests that have one of these */
    } global_load, global_store; /* copies by cp.async are loads */
} ptx_counters;

/* What the machine has; ptx_reset sets these. */
typedef struct ptx_machine {
    int devices;                /* 1; 0: cuInit answers no device */
    int capability;             /* 90: sm_90 */
    int driver_version;         /* 12080 */
    uint64_t memory;            /* bytes of a device: 16 GiB */
    int multiprocessors;        /* 132 */
    uint64_t instruction_limit; /* lane instructions of a launch: 2^36 */
    bool no_peers;              /* false: all devices reach each other's memory */
} ptx_machine;

#pragma GCC visibility push(default)

/* Everything as at the start of the process, on a machine of these numbers (NULL: the defaults), with this
 * seed for the order of blocks and commands: at the start it is PTX_SEED of the environment, or 0. All
 * handles and memory that the driver gave out are void. */
void ptx_reset(const ptx_machine *machine, uint64_t seed);
/* Turns one check off or on; all are on after ptx_reset. Bounds, alignment and what ends a kernel stay
 * on. */
void ptx_check_set(ptx_check check, bool on);
/* From now on nothing is done for a warp at once, until the next ptx_reset: the same numbers and findings,
 * slowly. For tests of the stand-in itself. */
void ptx_one_by_one(void);
/* From now on, until the next ptx_reset, each access of a kernel to memory beside the block's own is told,
 * one by one, in any order of threads: of which launch (from 0: the next one to begin), and which bytes.
 * `touched` may call nothing of the driver's. */
typedef void ptx_touched(void *user, uint64_t launch, uint64_t address, uint64_t bytes, bool writes);
void ptx_watch(ptx_touched *touched, void *user);
/* From now on the GPU says that launches have so many blocks (in x) at most, and refuses others, until the
 * next ptx_reset: those that there are share out what there is. */
void ptx_few_blocks(unsigned most);
/* The n-th driver call from now (1: the next one) does nothing and answers `code`; 0 takes it back. */
void ptx_fail_at(uint64_t n, CUresult code);
/* The exported name of the call that failed so since ptx_reset; NULL: none did yet. */
const char *ptx_failed(void);
/* A defect: the n-th from now (1: the next one; 0: none) of one kind is left out, until the next ptx_reset.
 * `kind` (a literal, it is kept) is a driver's function by its exported name, one that gives back nothing
 * but its status: the call answers success and does nothing; or "edge": between two nodes that are added
 * to a graph; or an instruction without its modifiers and types ("bar.sync"), where a module is read:
 * nothing takes its place. */
void ptx_leave_out(const char *kind, uint64_t n);
/* How many of that kind there were since. */
uint64_t ptx_left_out_of(void);
/* The other way round: before the n-th call from now of a driver's function (a literal, as above) the host
 * waits for all that was issued, until the next ptx_reset. */
void ptx_put_wait(const char *function, uint64_t n);
/* A defect: where modules are read from now on, until the next ptx_reset, instructions of one kind, without
 * modifiers and types ("fma"; a literal, it is kept), have the lowest bit of their result turned, in the
 * first thread that executes them: in each execution by a block, or (n > 0) in the n-th alone. Those that
 * have a register as their result. */
void ptx_wrong(const char *kind, uint64_t n);
/* The driver calls since ptx_reset: of one function by its exported name, of all when NULL. */
uint64_t ptx_calls(const char *function);

/* What was found first: "" or "CHECK: kernel K, line L: INSTRUCTION: block (x, y, z) thread (x, y, z):
 * why". Valid until the next driver call. */
const char *ptx_finding(void);
/* The check of it, PTX_N_CHECKS when there is none, and its name. */
ptx_check ptx_finding_check(void);
const char *ptx_check_name(ptx_check check);
/* Why a module or a link was refused last, as the log of the JIT has it, too. */
const char *ptx_refusal(void);

/* Counts since ptx_reset or ptx_counters_reset (all of them go to stderr at the process's end with
 * PTX_REPORT in the environment) of kernels with this name, in any module; of all when NULL. */
void ptx_counters_read(const char *kernel, ptx_counters *counters);
void ptx_counters_reset(void);

/* The bytes of an allocation on a device where they lie in this process, for tests that look into it;
 * NULL when they are in none. What is written there counts as written by nobody. */
void *ptx_memory(uint64_t address, uint64_t bytes);

/* Bytes of a device's memory that were asked for and not given back; with PTX_PINNED, of the host's. */
#define PTX_PINNED (-1)
uint64_t ptx_bytes(int device);
/* Work of a library that has no kernels to be read: what it touches is checked as what a kernel touches is,
 * and then `run` does it, with the memory of this process that each region begins at. */
typedef struct ptx_region {
    uint64_t address, bytes, /* of a run */
        runs, apart,         /* how many, from one to the next */
        times, further;      /* and all of them again, so many bytes further on */
    bool writes;
} ptx_region;
enum { PTX_REGIONS = 4 };
typedef struct ptx_work {
    const char *name; /* a literal */
    void (*run)(const void *arg, unsigned char *const *memory);
    const void *arg; /* copied */
    size_t arg_bytes;
    ptx_region regions[PTX_REGIONS];
    unsigned n_regions;
} ptx_work;
/* Puts it into a stream, or into the graph that the stream is captured in. A library's call is no call of
 * the driver's: it is not counted. */
CUresult ptx_launch_work(CUstream stream, const ptx_work *work);
/* Whether there is a context: what a library's calls ask for. */
bool ptx_has_context(void);

/* Objects that nobody has destroyed yet: allocations, modules, streams, events, graphs, retained
 * contexts. */
uint64_t ptx_live(void);
/* The commands that ran since ptx_reset, in their order: "kernel NAME", "work NAME", "copy", "fill",
 * "host", "event", "wait". Returns the name of the n-th (from 0) and what it ran on (streams in the order
 * of their creation, from 1; 0: the null stream; nodes of graphs: the stream of the launch); NULL past the
 * end. */
const char *ptx_history(uint64_t n, int *stream);
/* What is known of the order of commands from now on, until the next ptx_reset: whether the first (a number
 * of the history) is over, for certain, before the second begins, or before what the host does now
 * (PTX_NOW). */
#define PTX_NOW UINT64_MAX
void ptx_keep_order(void);
bool ptx_is_before(uint64_t first, uint64_t second);
/* Whether the second began, in this very run, while the first was on its way. */
bool ptx_is_within(uint64_t first, uint64_t second);
/* The graph that was instantiated, for cuGraphGetNodes and cuGraphGetEdges; it dies with the executable. */
CUgraph ptx_exec_graph(CUgraphExec exec);

#pragma GCC visibility pop

#endif
