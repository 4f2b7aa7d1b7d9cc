/* SPDX-License-Identifier: MIT */
/* gpu_check: whether ashlar is right on the GPU of this machine, and how fast.
 *
 *   cases.c         graphs, made here: what is checked
 *   run.c           a graph on the processor and, in every mode, on the GPU, again and again
 *   random.c        random graphs, by their seeds, in the same way
 *   instructions.c  instructions of PTX, against a table of operands and results
 *   peaks.c         what the GPU does at most: multiply-adds (mills.c), bytes, launches
 *   bare.c          the driver without plans, for these two
 *   memory.c        copies, and what happens when memory runs out
 *   paper.c         the kernels of all graphs, for a GPU that is not there
 *   lives.c         what plans go through: replicas, the caller's memory, profiles, stopping
 *   table.c         rows for people and for programs
 *   main.c          the command
 */
#ifndef GPU_CHECK_H
#define GPU_CHECK_H

#include <stdbool.h>
#include <stdint.h>

#include "ashlar/builder.h"
#include "ashlar/plan.h"
#include "base/target.h"

enum { CHECK_OUTPUTS = 8 };

/* One graph. Sizes are those for a GPU, or small ones for an interpreter of its code. */
typedef struct check_case {
    const char *group, *name;
    void (*make)(ash_graph *g, int64_t full, int64_t quick); /* the larger of two sizes that it can have */
    int64_t full, quick;
    double
        error; /* the largest difference from the processor's, as a part of the largest number; 0: the bits
                        are promised, where the processor multiplies and adds in one */
    unsigned rounds; /* executions that follow each other: more than one where there are states */
    ash_precision precision;
    bool cublas; /* products may be cuBLASLt's, where there is one */
} check_case;

extern const check_case check_cases[];
extern const unsigned check_case_count;

typedef struct check_options {
    const char *device, *csv, *json, *only, *paper;
    uint64_t seed, graphs, repeat, seconds; /* of random graphs: the first, and how many at most; how often
                                               results are computed; when nothing more is begun */
    bool quick, exact, list;
} check_options;

/* What the driver says of the GPU. */
typedef struct check_facts {
    char name[96];
    int sm, multiprocessors, mhz, memory_mhz, memory_bits, l2_bytes, driver; /* 12080: for CUDA 12.8 */
    uint64_t memory;                                                         /* bytes */
} check_facts;

/* What the GPU does at most, as measured: per nanosecond; 0: not measured. */
typedef struct check_peaks {
    double ops[ASH_GPU_BYTES + 1]; /* operations (two to a multiply-add), by how tiles multiply */
    double bytes;                  /* read and written by a kernel */
    double mhz;                    /* of a multiprocessor under load */
} check_peaks;

typedef struct check_run {
    ash_context *context;
    ash_device *device;
    check_options options;
    check_facts facts;
    check_peaks peaks;
    int64_t begun; /* nanoseconds, of check_now */
    bool fma;      /* the processor has it */
} check_run;

/* One line of the table. Times in microseconds; less than 0: not measured. */
typedef struct check_row {
    const char *group, *name, *mode;
    bool passed;
    bool skipped; /* this GPU cannot do it; `why` says so */
    bool bits;    /* equal to the processor's */
    bool quiet;   /* one of very many: people see it where it failed */
    double error; /* the largest difference from it */
    double us, predicted,
        kernels;           /* of an execution; what was expected; of its kernels, by the device's events */
    double share;          /* of the kernels' time: that at the measured peaks; 0: it is not known */
    double gflops, gbytes; /* a second, of an execution; 0: they are not counted */
    char why[256];         /* of a failure */
} check_row;

/* A kernel of a row. */
typedef struct check_kernel {
    const char *name, *bound;
    double us, predicted, share, gflops, gbytes; /* as in a row */
} check_kernel;

/* A row that has passed so far, of which nothing is measured. */
check_row check_row_of(const char *group, const char *name, const char *mode);
/* Adds the row, which fails with a status that is none of success, or is skipped where what failed is
 * missing here. */
void check_row_end(check_row *row, ash_status status, bool missing, const ash_diag *diag);
/* The first reason why a row fails stands. */
__attribute__((format(printf, 2, 3))) void check_row_fail(check_row *row, const char *fmt, ...);

ash_status check_facts_of(const ash_device *device, check_facts *out, ash_diag *diag);
int64_t check_now(void); /* nanoseconds */
/* Whether there is time to begin something. */
bool check_has_time(const check_run *run);
/* A GPU that was lost is opened once more; nothing of before may be used after that. */
void check_revive(check_run *run);

/* Every mode of a case, a row for each. */
void check_graph(check_run *run, const check_case *which);
/* How a case's plan is prepared; device NULL: for the processor. */
ash_plan_options check_plan_options(const check_case *which, ash_device *device, ash_mode mode);
/* Random graphs, until there are enough or their part of the time is over. */
void check_random(check_run *run);
/* The table of instructions. */
void check_instructions(check_run *run);
/* What the GPU does at most, which later rows are compared with. */
void check_peaks_of(check_run *run);
/* The case in its full size, prepared for a GPU of paper: its kernels become files in options.paper,
 * GROUP-NAME-NUMBER.ptx. false: one cannot be; it is said why. */
bool check_paper(const check_run *run, const check_case *which);
/* Copies between the host and the GPU, and on it. */
void check_copies(check_run *run);
/* More memory than there is. */
void check_exhaustion(check_run *run);
/* Replicas on threads, memory of the caller's, profiles of several streams, stopping. */
void check_lives(check_run *run);

/* False: a file cannot be written; it is said which. */
bool table_open(const check_run *run);
/* A kernel of the row that is added next. */
void table_kernel(const check_row *of, const check_kernel *kernel);
void table_add(const check_row *row);
/* The sums; the number of failures. */
unsigned table_close(const check_run *run);
/* Closes the table with a failure that says so, and ends the process; comes back where it is closed. */
void table_overdue(const check_run *run);

#endif
