/* SPDX-License-Identifier: MIT */
/* gpu_check: whether ashlar is right on the GPU of this machine, and how fast.
 *
 *   cases.c    graphs, made here: what is checked
 *   run.c      a graph on the processor and, in every mode, on the GPU
 *   memory.c   copies, and what happens when memory runs out
 *   paper.c    the kernels of all graphs, for a GPU that is not there
 *   lives.c    what plans go through: replicas, the caller's memory, profiles, stopping
 *   table.c    rows for people and for programs
 *   main.c     the command
 */
#ifndef GPU_CHECK_H
#define GPU_CHECK_H

#include <stdbool.h>
#include <stdint.h>

#include "ashlar/builder.h"
#include "ashlar/plan.h"

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

/* Seconds and sizes. */
typedef struct check_options {
    const char *device, *csv, *only, *paper;
    bool quick, exact, list;
} check_options;

typedef struct check_run {
    ash_context *context;
    ash_device *device;
    check_options options;
    bool fma; /* the processor has it */
} check_run;

/* One line of the table. Times in microseconds; less than 0: not measured. */
typedef struct check_row {
    const char *group, *name, *mode;
    bool passed;
    bool skipped; /* this GPU cannot do it; `why` says so */
    bool bits;    /* equal to the processor's */
    double error; /* the largest difference from it */
    double us, predicted,
        kernels;           /* of an execution; what was expected; of its kernels, by the device's events */
    double gflops, gbytes; /* a second, of an execution; 0: they are not counted */
    char why[256];         /* of a failure */
} check_row;

/* Every mode of a case, a row for each. */
void check_graph(const check_run *run, const check_case *which);
/* How a case's plan is prepared; device NULL: for the processor. */
ash_plan_options check_plan_options(const check_case *which, ash_device *device, ash_mode mode);
/* The case in its full size, prepared for a GPU of paper: its kernels become files in options.paper,
 * GROUP-NAME-NUMBER.ptx. false: one cannot be; it is said why. */
bool check_paper(const check_run *run, const check_case *which);
/* Copies between the host and the GPU, and on it. */
void check_copies(const check_run *run);
/* More memory than there is. */
void check_exhaustion(const check_run *run);
/* Replicas on threads, memory of the caller's, profiles of several streams, stopping. */
void check_lives(const check_run *run);

bool table_open(const char *csv); /* NULL: for people alone */
void table_add(const check_row *row);
/* A kernel of a row: nanoseconds that it took and was expected to take. */
void table_kernel(const check_row *of, const ash_prepared_op *op, double ns,
                  const ash_op_forecast *expected);
/* The sums; the number of failures. */
unsigned table_close(void);

#endif
