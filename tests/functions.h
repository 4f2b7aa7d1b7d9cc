/* SPDX-License-Identifier: MIT */
/* Functions of the caller, for tests: what graphs call, and how often they did. */
#ifndef ASH_FUNCTIONS_H
#define ASH_FUNCTIONS_H

#include "testing.h"

#include <stdatomic.h>
#include <time.h>

#include "ashlar/function.h"

/* What a function of a test shares with the test. */
typedef struct counted {
    atomic_int calls, chunks, released;
    atomic_int fail_at;   /* the call with this number fails; 0: none */
    ash_status status;    /* with which */
    const char *why;      /* NULL: without a word */
    ash_cancel *cancel;   /* turned on by the first call; or NULL */
    int64_t sleep;        /* nanoseconds for each call */
    _Atomic int64_t rows; /* rows that the last call saw */
} counted;

/* Counts the call; its status. */
static inline ash_status note(counted *c, const ash_call *call, ash_diag *diag) {
    int number = atomic_fetch_add(&c->calls, 1) + 1;
    atomic_fetch_add(&c->chunks, (int)(call->end - call->begin));
    if (c->cancel) ash_cancel_set(c->cancel, true);
    if (c->sleep) nanosleep(&(struct timespec){0, c->sleep}, NULL);
    if (number != atomic_load(&c->fail_at)) return ASH_OK;
    if (c->why) snprintf(diag->message, sizeof diag->message, "%s", c->why);
    return c->status;
}

static inline void note_release(void *user) {
    atomic_fetch_add(&((counted *)user)->released, 1);
}

/* f32[n, c] -> f32[n, c], i64[n, c]: each row in ascending order, and where its elements were. A chunk is a
 * row; scratch: c floats. */
static inline ash_status sort_rows(void *user, const ash_call *call, ash_diag *diag) {
    counted *c = user;
    const ash_type *type = &call->in_types[0];
    int64_t wide = type->dims[1];
    const float *x = call->ins[0];
    float *y = call->outs[0], *row = call->scratch;
    int64_t *at = call->outs[1];
    if (call->n_ins != 1 || call->n_outs != 2 || type->dtype != ASH_F32 || type->rank != 2 ||
        call->chunks != type->dims[0] || call->out_types[1].dtype != ASH_I64 ||
        call->out_types[0].dims[0] != type->dims[0] || ((uintptr_t)row & 63) || ((uintptr_t)x & 63))
        return ASH_ERROR_INTERNAL;
    c->rows = type->dims[0];
    for (int64_t r = call->begin; r < call->end; r++) {
        memcpy(row, x + r * wide, (size_t)wide * sizeof *row);
        for (int64_t i = 0; i < wide; i++) {
            int64_t place = 0;
            for (int64_t k = 0; k < wide; k++) place += row[k] < row[i] || (row[k] == row[i] && k < i);
            y[r * wide + place] = row[i];
            at[r * wide + place] = i;
        }
    }
    return note(c, call, diag);
}

/* Any f32 -> the same: x + 1, as one chunk. */
static inline ash_status plus_one(void *user, const ash_call *call, ash_diag *diag) {
    const float *x = call->ins[0];
    float *y = call->outs[0];
    int64_t count = 1;
    for (unsigned d = 0; d < call->in_types[0].rank; d++) count *= call->in_types[0].dims[d];
    for (int64_t i = 0; i < count; i++) y[i] = x[i] + 1;
    return note(user, call, diag);
}

/* () -> i64[]: how often it was called before. */
static inline ash_status tick(void *user, const ash_call *call, ash_diag *diag) {
    *(int64_t *)call->outs[0] = atomic_load(&((counted *)user)->calls);
    return note(user, call, diag);
}

static inline void add_function(ash_context *context, const char *name, ash_function_run run, counted *user,
                                bool pure) {
    ash_diag diag;
    ash_function function = {.name = name, .run = run, .user = user, .release = note_release, .pure = pure};
    assert_ok(ash_context_add_function(context, &function, &diag));
}

#endif
