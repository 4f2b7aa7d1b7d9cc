/* SPDX-License-Identifier: MIT */
/* What the files of `ashlar train` share: examples, the plans, the curve. */
#ifndef ASHLAR_CLI_TRAIN_H
#define ASHLAR_CLI_TRAIN_H

#include "ashlar/train.h"
#include "cli.h"

/* --- examples: train_data.c ------------------------------------------------------------------------- */

/* One array: a row an example. */
struct examples {
    const char *name;
    ash_tensor *tensor;
    ash_type row;    /* what the model wants of an example: dtype and dims without the first */
    size_t elements; /* of a row */
    void *batch;     /* room for the rows of an execution */
};

struct data {
    struct examples at[LIST_ROOM]; /* the inputs, then the labels */
    size_t count, labels;          /* of arrays; the index of the labels */
    size_t rows, held;             /* all examples; those of them that are not trained on */
    uint32_t *order;               /* the held ones first, then the others as the epoch has them */
};

/* Reads the arrays called as the inputs of `graph`, and the labels; prints why not. */
bool data_read(struct session *s, struct data *d, const ash_graph *graph, const char *file,
               const char *labels);
/* Chooses the part of the examples that is held out; prints why not. */
bool data_split(struct data *d, double part, unsigned seed);
/* The order of an epoch: the same for the same seed and epoch. */
void data_shuffle(struct data *d, unsigned seed, unsigned epoch);
/* Puts `count` examples from place `first` of the order on into array `i`'s room, which has `batch` rows;
 * the last one fills it up. */
void data_gather(struct data *d, size_t i, size_t first, size_t count, size_t batch);
/* Says what the model wants of array i, whose rows are converted to it, and makes room for a batch; prints
 * why not. `what` is the dtype and the whole shape, the batch first. */
bool data_expect(struct data *d, size_t i, const ash_type *what);
uint64_t data_bytes(const struct data *d, size_t i, size_t batch); /* of a batch of array i */
void data_free(struct data *d);

/* --- the plans: train_step.c ------------------------------------------------------------------------ */

enum loss { LOSS_CROSS_ENTROPY, LOSS_SQUARES, LOSS_COUNT };

const char *loss_name(int loss);

struct training {
    /* options */
    int loss;
    ash_optimizer_options optimizer;
    ash_rate_schedule schedule; /* in steps of the optimiser */
    double clip;
    unsigned batch, accumulate; /* examples of an execution; executions to a step */
    struct list freeze;
    /* what is made of them */
    ash_plan *step, *evaluate;
    size_t weights; /* states of `evaluate`, which are the first ones of `step` */
    size_t inputs, labels, rate, loss_output, trained; /* positions; how many weights are trained */
};

/* Prepares the plans of a step and of an evaluation; prints why not. The session has the graph. */
bool training_prepare(struct session *s, struct training *t, struct data *d);
/* One execution on the examples from place `first` on; *loss is the mean of the batch. */
bool training_step(struct session *s, struct training *t, struct data *d, size_t first, uint64_t step,
                   double *loss);

struct score {
    double loss, right; /* means over examples; `right` is negative where labels are no classes */
};

/* Of the examples that are held out. */
bool training_evaluate(struct session *s, struct training *t, struct data *d, struct score *out);
/* Whether the model can be written, which is asked before it is trained; prints why not. */
bool training_is_writable(struct session *s);
/* Writes the model with its present weights; prints why not. */
bool training_export(struct session *s, struct training *t, const char *path);
void training_free(struct training *t);

/* --- the curve: curve.c ----------------------------------------------------------------------------- */

struct point {
    unsigned epoch;
    double loss;
    struct score held; /* loss is NaN without held out examples */
    double rate, seconds;
};

struct curve {
    struct point *at;
    size_t count, cap;
};

bool curve_add(struct curve *curve, const struct point *point);
/* The rows before an epoch that a file has, as curve_write has left it: none where there is no such file.
 * */
bool curve_read(struct curve *curve, const char *path, unsigned before);
/* By the ending of the path: .csv or .html; prints why not. */
bool curve_write(const struct curve *curve, const char *path);
void curve_show(const struct curve *curve); /* as a picture of text */
void curve_free(struct curve *curve);

#endif
