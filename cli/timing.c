/* SPDX-License-Identifier: MIT */
/* Repeated executions and their times. */
#include <stdlib.h>

#include "cli.h"

static int by_value(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

bool time_runs(struct session *s, unsigned runs, struct timing *out) {
    if (runs == 0) runs = 1;
    double *times = malloc(runs * sizeof *times);
    if (!times) {
        fprintf(stderr, "ashlar: out of memory\n");
        return false;
    }
    bool good = session_execute(s);
    for (unsigned i = 0; good && i < runs; i++) {
        int64_t start = now_ns();
        good = session_execute(s);
        times[i] = (double)(now_ns() - start);
    }
    if (good && s->plan) s->report = ash_plan_describe(s->plan);
    if (good) {
        qsort(times, runs, sizeof *times, by_value);
        *out =
            (struct timing){times[runs / 2], times[0], times[runs - 1], times[(size_t)runs * 9 / 10], runs};
    }
    free(times);
    return good;
}
