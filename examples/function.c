/* SPDX-License-Identifier: MIT */
/* An operation of one's own among the compiled ones: a detector's scores become probabilities in a kernel,
 * the boxes that remain are chosen by a C function, and a kernel gathers them. The plan knows the
 * function's operands, results and scratch memory: they lie in its arena, are part of its proofs, and the
 * call can be timed and stopped like any kernel.
 *
 *     cc function.c $(pkg-config --cflags --libs ashlar) -o function && ./function
 */
#include <ashlar/builder.h>
#include <ashlar/function.h>
#include <ashlar/plan.h>
#include <stdio.h>

enum { BOXES = 6, BEST = 3 };

/* The part of two boxes' union (x0, y0, x1, y1 each) that both cover. */
static float overlap(const float *a, const float *b) {
    float w = (a[2] < b[2] ? a[2] : b[2]) - (a[0] > b[0] ? a[0] : b[0]);
    float h = (a[3] < b[3] ? a[3] : b[3]) - (a[1] > b[1] ? a[1] : b[1]);
    if (w <= 0 || h <= 0) return 0;
    float both = w * h, area = (a[2] - a[0]) * (a[3] - a[1]) + (b[2] - b[0]) * (b[3] - b[1]);
    return both / (area - both);
}

/* f32[n, 4] boxes, f32[n] scores -> i64[k]: the boxes with the best scores of which no two overlap by more
 * than *user; -1 where there are no more. Scratch: a byte a box. */
static ash_status suppress(void *user, const ash_call *call, ash_diag *diag) {
    const float *boxes = call->ins[0], *scores = call->ins[1];
    int64_t n = call->in_types[0].dims[0], k = call->out_types[0].dims[0], *chosen = call->outs[0];
    unsigned char *gone = call->scratch;
    (void)diag;
    for (int64_t i = 0; i < n; i++) gone[i] = 0;
    for (int64_t i = 0; i < k; i++) {
        int64_t best = -1;
        for (int64_t b = 0; b < n; b++)
            if (!gone[b] && (best < 0 || scores[b] > scores[best])) best = b;
        chosen[i] = best;
        for (int64_t b = 0; best >= 0 && b < n; b++)
            gone[b] |= b == best || overlap(&boxes[4 * b], &boxes[4 * best]) > *(const float *)user;
    }
    return ASH_OK;
}

int main(void) {
    static float threshold = 0.5f; /* as long as the context */
    static const float boxes[BOXES][4] = {{0, 0, 10, 10},   {1, 1, 11, 11},   {0, 0, 9, 10},
                                          {20, 20, 30, 30}, {21, 20, 30, 31}, {50, 50, 60, 60}};
    static const float logits[BOXES] = {1.5f, 2.0f, 0.5f, -1.0f, 0.0f, -2.0f};
    ash_diag diag;
    ash_context *context = NULL;
    ash_graph *g = NULL;
    ash_plan *plan = NULL;
    const ash_view *index, *score;
    const void *indices, *scores;

    ash_diag_clear(&diag);
    ash_function function = {.name = "suppress", .run = suppress, .user = &threshold, .pure = true};
    if (ash_context_create(NULL, &context, &diag)) goto done;
    if (ash_context_add_function(context, &function, &diag)) goto done;
    if (ash_graph_create(context, "detector", &g, &diag)) goto done;

    ash_type box = {ASH_F32, 2, {BOXES, 4}}, row = {ASH_F32, 1, {BOXES}}, best = {ASH_I64, 1, {BEST}};
    ash_value b = ash_graph_input(g, "boxes", &box), chosen;
    ash_value p = ash_sigmoid(g, ash_graph_input(g, "logits", &row));
    ash_custom_options options = {.scratch = BOXES};
    ash_custom(g, "suppress", (const ash_value[]){b, p}, 2, &best, 1, &options, &chosen);
    ash_graph_output(g, "chosen", chosen);
    ash_graph_output(g, "probability", ash_gather(g, p, chosen, 0));
    if (ash_graph_status(g, &diag)) goto done;

    if (ash_plan_prepare(context, g, NULL, &plan, &diag)) goto done;
    if (ash_plan_set_input(plan, 0, &box, boxes, sizeof boxes, &diag)) goto done;
    if (ash_plan_set_input(plan, 1, &row, logits, sizeof logits, &diag)) goto done;
    if (ash_plan_execute(plan, &diag)) goto done;
    if (ash_plan_output(plan, 0, &index, &diag) || ash_view_data(index, &indices, &diag)) goto done;
    if (ash_plan_output(plan, 1, &score, &diag) || ash_view_data(score, &scores, &diag)) goto done;
    for (int i = 0; i < BEST; i++)
        printf("box %lld: %.3f\n", (long long)((const int64_t *)indices)[i],
               (double)((const float *)scores)[i]);

done:
    ash_plan_destroy(plan);
    ash_graph_destroy(g);
    ash_context_destroy(context);
    if (diag.code) {
        char line[512];
        ash_diag_format(&diag, line, sizeof line);
        fprintf(stderr, "function: %s\n", line);
    }
    return diag.code != ASH_OK;
}
