/* SPDX-License-Identifier: MIT */
/* Rates of learning over the steps: a number for each, computed by whoever executes the steps. */
#include <math.h>

#include "ashlar/train.h"
#include "base/sized.h"

static const char *const names[ASH_RATE_COUNT] = {
    [ASH_RATE_CONSTANT] = "constant",
    [ASH_RATE_LINEAR] = "linear",
    [ASH_RATE_COSINE] = "cosine",
    [ASH_RATE_DECAY] = "decay",
};

const char *ash_rate_text(ash_rate_kind kind) {
    return (unsigned)kind < ASH_RATE_COUNT ? names[kind] : "?";
}

ASH_SIZED(ash_rate_schedule, factor);

/* How much of the rate is left when `done` of the steps after the warmup are over. */
static double part_left(const ash_rate_schedule *s, uint64_t done) {
    const uint64_t all = s->steps > s->warmup ? s->steps - s->warmup : 0;
    const double way = done < all ? (double)done / (double)all : 1;
    switch (s->kind) {
    case ASH_RATE_LINEAR: return 1 - (1 - s->least) * way;
    case ASH_RATE_COSINE: return s->least + (1 - s->least) * 0.5 * (1 + cos(3.14159265358979323846 * way));
    case ASH_RATE_DECAY: return s->every ? pow(s->factor, (double)(done / s->every)) : 1;
    default: return 1;
    }
}

ash_status ash_rate_at(const ash_rate_schedule *schedule, uint64_t step, double *out, ash_diag *diag) {
    ash_rate_schedule s;
    ASH_NEED(diag, schedule, out);
    *out = 0;
    ASH_TRY(ASH_TAKE(ash_rate_schedule, schedule, &s, diag));
    ASH_FAIL_IF((unsigned)s.kind >= ASH_RATE_COUNT, diag, ASH_ERROR_INVALID_ARGUMENT,
                "no schedule has the number %d", (int)s.kind);
    *out = step < s.warmup ? s.rate * (double)(step + 1) / (double)s.warmup
                           : s.rate * part_left(&s, step - s.warmup);
    return ASH_OK;
}
