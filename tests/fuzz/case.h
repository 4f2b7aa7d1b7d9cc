/* SPDX-License-Identifier: MIT */
/* A case: a graph, how its inputs are filled, how far its outputs may be off, and the values of its
 * variables in a few rounds. It has a text: the graph's, with the rest in comments before it:
 *
 *   # fill x0 SEED LIMIT SPECIAL      an input: its elements follow from these (fuzz_fill)
 *   # within y0 ERROR                 an output: how far it may be from the evaluator's
 *   # vars 3 17                       a round: a value for each variable that the caller gives
 */
#ifndef ASH_FUZZ_CASE_H
#define ASH_FUZZ_CASE_H

#include "ashlar/plan.h"
#include "fuzz_wide.h"

enum { CASE_LEAVES = 256, CASE_OUTPUTS = 256, CASE_ROUNDS = 4, CASE_VARS = 8 };

typedef struct fuzz_case {
    ash_graph *g;
    struct {
        uint64_t seed;
        int64_t limit;
        bool special;
    } fill[CASE_LEAVES]; /* per input */
    double within[CASE_OUTPUTS];
    int64_t vars[CASE_ROUNDS][CASE_VARS]; /* of the variables that the caller gives, in order */
    unsigned rounds, n_vars;
} fuzz_case;

/* The graph of a seed; false when it has no outputs. */
bool case_generate(ash_context *context, uint64_t seed, fuzz_case *out);
/* Reads a text; the error says why it cannot be. */
bool case_parse(ash_context *context, const char *text, size_t len, fuzz_case *out, char error[512]);
/* The text of a case, which the caller frees. */
char *case_print(const fuzz_case *c);
void case_free(fuzz_case *c);

/* What is left out of a case to make it smaller. */
typedef struct fuzz_cut {
    bool output[CASE_OUTPUTS]; /* is left out */
    bool *leaf;                /* per value: becomes an input, and what it was computed from may go */
    int round;                 /* the only round, or -1: all */
} fuzz_cut;

/* The case without what is cut out; NULL when nothing is left, or it cannot be. The caller frees it. */
char *case_cut(const fuzz_case *c, const fuzz_cut *cut);

/* The results of all rounds: bytes and dims of each output. From calloc; with its bytes it is freed by
 * case_results_free. */
typedef struct case_results {
    struct {
        int64_t dims[ASH_MAX_RANK];
        size_t size;
        char *bytes;
    } at[CASE_ROUNDS][CASE_OUTPUTS];
} case_results;

void case_results_free(case_results *r);
/* All rounds from the states' initial contents on; *r has nothing yet. */
ash_status case_execute(const fuzz_case *c, ash_plan *plan, case_results *r, ash_diag *diag);
/* The same without a plan that is kept: those rounds that need no state of the one before. */
ash_status case_execute_eagerly(const fuzz_case *c, const ash_plan_options *options, case_results *r,
                                ash_diag *diag);
static inline unsigned case_eager_rounds(const fuzz_case *c) {
    return c->g->states.len ? 1 : c->rounds;
}
/* The results of all rounds against the evaluator's, within what the case allows. */
bool case_check(const fuzz_case *c, const case_results *r, char error[512]);
/* Whether two have the same bits in so many rounds; those of NaNs may be any, unless it is `to_the_bit`. */
bool case_same(const fuzz_case *c, const case_results *a, const case_results *b, unsigned rounds,
               bool to_the_bit, const char *than, char error[512]);

/* Runs a case in one way, a number that says how plans are prepared (0: as if nothing were said), and
 * compares with the evaluator and with other ways of the same bits. False with an error that says what went
 * wrong. */
bool case_run(ash_context *context, const fuzz_case *c, uint64_t way, char error[512]);

#endif
