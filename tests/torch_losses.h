/* SPDX-License-Identifier: MIT */
/* What training has come to: its losses beside PyTorch's (tests/data/train_torch.txt, by
 * tools/grad_fixtures.py --train), and the weights. */
#ifndef ASH_TORCH_LOSSES_H
#define ASH_TORCH_LOSSES_H

#include <math.h>

#include "ashlar/plan.h"
#include "testing.h"

/* Number k of tensor `number`, as the script has it. */
static inline float made(int number, double scale, int64_t k) {
    double at = (double)k;
    return (float)(sin(0.7 * at * at + at + number) * scale);
}

/* That these are the losses of the line which begins with `name`, within 1e-4. */
static inline void assert_losses_of_torch(const char *name, const float *losses, int steps) {
    static char text[8192];
    const size_t length = strlen(name);
    FILE *file = fopen(ASH_SOURCE_DIR "/tests/data/train_torch.txt", "rb");
    assert_non_null(file);
    const size_t size = fread(text, 1, sizeof text - 1, file);
    fclose(file);
    assert_in_range(size, 1, sizeof text - 2);
    text[size] = 0;
    const char *at = NULL;
    for (const char *line = text; line && *line && !at; line = strchr(line, '\n') + 1)
        if (!strncmp(line, name, length) && line[length] == ':') at = line + length + 1;
    if (!at) fail_msg("no losses for %s", name);
    for (int step = 0; step < steps; step++) {
        char *end;
        const double want = strtod(at, &end);
        assert_true(end != at);
        at = end;
        if (!(fabs((double)losses[step] - want) <= 1e-4 * want))
            fail_msg("%s, step %d: the loss is %.9g, not %.9g", name, step, (double)losses[step], want);
    }
}

/* Copies the states of f32 behind the `used` numbers of `out`, which has room for `room`; how many are used
 * now. */
static inline size_t copy_states(ash_plan *plan, float *out, size_t used, size_t room) {
    ash_diag diag;
    for (size_t i = 0; i < ash_plan_state_count(plan); i++) {
        const ash_view *view;
        assert_ok(ash_plan_state(plan, i, &view, &diag));
        if (ash_view_type(view)->dtype != ASH_F32) continue;
        const size_t n = ash_view_bytes(view) / sizeof *out;
        assert_true(used + n <= room);
        assert_ok(ash_view_copy_out(view, out + used, n * sizeof *out, &diag));
        used += n;
    }
    return used;
}

#endif
