/* SPDX-License-Identifier: MIT */
/* A transformer decoder that generates token by token. Its caches of keys and values are states of the
 * plan: each execution writes one row of each, in place, and attention reads the rows up to the present
 * position, which is a variable. So a step costs what its position asks for, whatever the longest sequence
 * is, and nothing is allocated or copied on the way. The weights are made up, and so is what it says.
 *
 *     cc decoder.c $(pkg-config --cflags --libs ashlar) -o decoder && ./decoder
 */
#include <ashlar/builder.h>
#include <ashlar/plan.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

typedef struct decoder {
    int64_t vocabulary, width, heads, layers, hidden;
    int64_t longest; /* tokens that fit the caches; 0: no caches, all tokens in one pass */
    int64_t count;   /* tokens of one execution; with caches 1 */
} decoder;

typedef struct building {
    const decoder *d;
    ash_graph *g;
    ash_dim start, end;     /* positions of this execution's tokens */
    ash_value sine, cosine; /* of the angles that turn queries and keys, [count, 1, D/2] */
    uint32_t random;
    int caches;
} building;

/* A constant of small numbers, the same in every graph that is built in the same order. */
static ash_value weights(building *b, unsigned rank, const int64_t *dims, double size) {
    ash_type type = {ASH_F32, rank, {0}};
    size_t n = 1;
    for (unsigned i = 0; i < rank; i++) n *= (size_t)(type.dims[i] = dims[i]);
    float *data = malloc(n * sizeof *data);
    if (!data) return ASH_NO_VALUE;
    for (size_t i = 0; i < n; i++) {
        b->random = b->random * 1664525u + 1013904223u;
        data[i] = (float)(((double)(b->random >> 8) / (1 << 24) - 0.5) * 2 * size);
    }
    ash_value w = ash_graph_constant(b->g, &type, data, n * sizeof *data, ASH_DATA_COPY);
    free(data);
    return w;
}

static ash_value linear(building *b, ash_value x, int64_t in, int64_t out) {
    return ash_matmul(b->g, x, weights(b, 2, (int64_t[]){in, out}, 1.7 / (double)in * 4));
}

/* Normalises each token, with a gain per channel. */
static ash_value normalise(building *b, ash_value x) {
    ash_value gain = ash_add(b->g, weights(b, 1, &b->d->width, 0.1), ash_scalar(b->g, ASH_F32, 1));
    return ash_layer_norm(b->g, x, gain, ASH_NO_VALUE, -1, 1e-5);
}

/* The angles of the present positions: position / 10000^(i / (D/2)) for channel i. */
static void make_angles(building *b) {
    ash_graph *g = b->g;
    int64_t half = b->d->width / b->d->heads / 2;
    const ash_dim column[3] = {b->d->count, 1, 1}, row[3] = {1, 1, half};
    ash_value positions = ash_slice_axis(g, ash_iota(g, ASH_F32, &b->end, 1, 0), 0, b->start, b->d->count);
    ash_value channel = ash_div(g, ash_iota(g, ASH_F32, &half, 1, 0), ash_scalar(g, ASH_F32, (double)half));
    ash_value rate = ash_exp(g, ash_mul(g, channel, ash_scalar(g, ASH_F32, -9.210340371976184)));
    ash_value angles = ash_mul(g, ash_reshape(g, positions, column, 3), ash_reshape(g, rate, row, 3));
    b->sine = ash_sin(g, angles);
    b->cosine = ash_cos(g, angles);
}

/* Turns pairs of channels of [count, heads, D] by the angles: rotary positions. */
static ash_value turn(building *b, ash_value x) {
    ash_graph *g = b->g;
    int64_t half = b->d->width / b->d->heads / 2;
    ash_value one = ash_slice_axis(g, x, 2, 0, half), two = ash_slice_axis(g, x, 2, half, half);
    ash_value parts[2] = {ash_sub(g, ash_mul(g, one, b->cosine), ash_mul(g, two, b->sine)),
                          ash_add(g, ash_mul(g, one, b->sine), ash_mul(g, two, b->cosine))};
    return ash_concat(g, parts, 2, 2);
}

/* All rows up to the present ones: from the cache, in which the present ones are written, or just these. */
static ash_value remember(building *b, ash_value rows) {
    const decoder *d = b->d;
    char name[32];
    if (!d->longest) return rows;
    ash_type type = {ASH_F32, 3, {d->longest, d->heads, d->width / d->heads}};
    snprintf(name, sizeof name, "cache%d", b->caches++);
    ash_value cache = ash_graph_state(b->g, name, &type, NULL, 0, ASH_DATA_COPY);
    ash_value next = ash_write_axis(b->g, cache, rows, 0, b->start);
    ash_graph_update(b->g, cache, next);
    return ash_slice_axis(b->g, next, 0, 0, b->end);
}

static ash_value attend(building *b, ash_value x) {
    static const int64_t heads_first[] = {1, 0, 2}, turned[] = {1, 2, 0};
    const decoder *d = b->d;
    ash_graph *g = b->g;
    int64_t size = d->width / d->heads;
    const ash_dim split[3] = {d->count, d->heads, size}, joined[2] = {d->count, d->width};
    ash_value q = turn(b, ash_reshape(g, linear(b, x, d->width, d->width), split, 3));
    ash_value k = remember(b, turn(b, ash_reshape(g, linear(b, x, d->width, d->width), split, 3)));
    ash_value v = remember(b, ash_reshape(g, linear(b, x, d->width, d->width), split, 3));
    ash_value scores = ash_matmul(g, ash_transpose(g, q, heads_first), ash_transpose(g, k, turned));
    scores = ash_mul(g, scores, ash_scalar(g, ASH_F32, 1 / __builtin_sqrt((double)size)));
    if (d->count > 1) { /* a token sees those before it, and itself */
        const ash_dim square[2] = {d->count, b->end};
        ash_value seen = ash_le(g, ash_iota(g, ASH_I64, square, 2, 1), ash_iota(g, ASH_I64, square, 2, 0));
        scores = ash_select(g, seen, scores, ash_scalar(g, ASH_F32, -1e30));
    }
    ash_value mixed = ash_matmul(g, ash_softmax(g, scores, -1), ash_transpose(g, v, heads_first));
    return linear(b, ash_reshape(g, ash_transpose(g, mixed, heads_first), joined, 2), d->width, d->width);
}

/* Tokens in, the logits of each and the likeliest next token of the last out. */
static void decoder_build(const decoder *d, ash_graph *g) {
    building b = {d, g, 0, d->count, 0, 0, 1, 0};
    ash_type tokens = {ASH_I64, 1, {d->count}};
    if (d->longest) {
        b.start = ash_graph_var(g, "position", 0, d->longest - 1);
        b.end = ash_graph_dim_add(g, b.start, 1);
    }
    make_angles(&b);
    ash_value table = weights(&b, 2, (int64_t[]){d->vocabulary, d->width}, 1);
    ash_value x = ash_gather(g, table, ash_graph_input(g, "tokens", &tokens), 0);
    for (int64_t i = 0; i < d->layers; i++) {
        x = ash_add(g, x, attend(&b, normalise(&b, x)));
        ash_value inner = ash_gelu(g, linear(&b, normalise(&b, x), d->width, d->hidden));
        x = ash_add(g, x, linear(&b, inner, d->hidden, d->width));
    }
    ash_value logits = linear(&b, normalise(&b, x), d->width, d->vocabulary);
    ash_graph_output(g, "logits", logits);
    ash_graph_output(g, "next", ash_argmax(g, ash_slice_axis(g, logits, 0, d->count - 1, 1), -1, false));
}

/* Feeds a token at a position; the likeliest next one. */
static ash_status step(ash_plan *plan, int64_t position, int64_t token, int64_t *next, ash_diag *diag) {
    const ash_var_binding at = {"position", position};
    const ash_view *view;
    static const ash_type one = {ASH_I64, 1, {1}};
    ash_status status = ash_plan_set_input(plan, 0, &one, &token, sizeof token, diag);
    if (status == ASH_OK) status = ash_plan_execute_vars(plan, &at, 1, diag);
    if (status == ASH_OK) status = ash_plan_output(plan, 1, &view, diag);
    return status == ASH_OK ? ash_view_copy_out(view, next, sizeof *next, diag) : status;
}

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec * 1e-6;
}

int main(void) {
    enum { PROMPT = 4, TOKENS = 48 };
    static const decoder d = {.vocabulary = 512,
                              .width = 256,
                              .heads = 8,
                              .layers = 4,
                              .hidden = 1024,
                              .longest = 1024,
                              .count = 1};
    static const int64_t prompt[PROMPT] = {17, 4, 256, 99};
    ash_diag diag;
    ash_context *context = NULL;
    ash_graph *g = NULL;
    ash_plan *plan = NULL;
    int64_t token = 0;

    ash_diag_clear(&diag);
    if (ash_context_create(NULL, &context, &diag)) goto done;
    if (ash_graph_create(context, "decoder", &g, &diag)) goto done;
    decoder_build(&d, g);
    if (ash_graph_status(g, &diag)) goto done;
    if (ash_plan_prepare(context, g, NULL, &plan, &diag)) goto done;

    ash_plan_report report = ash_plan_describe(plan);
    printf("%zu operations, %zu caches of %.2f MB in all, %zu of them written in place, arena %.1f kB\n",
           report.ops, ash_plan_state_count(plan), (double)report.state * 1e-6, report.states_in_place,
           (double)ash_plan_arena_size(plan) * 1e-3);
    double start = now();
    for (int64_t i = 0; i < TOKENS; i++) {
        if (i < PROMPT) token = prompt[i];
        printf("%lld ", (long long)token);
        if (step(plan, i, token, &token, &diag)) goto done;
    }
    printf("\n%.3f ms a token\n", (now() - start) / TOKENS);
    if (ash_plan_reset_states(plan, &diag)) goto done; /* ready for another sequence */

done:
    ash_plan_destroy(plan);
    ash_graph_destroy(g);
    ash_context_destroy(context);
    if (diag.code) {
        char line[512];
        ash_diag_format(&diag, line, sizeof line);
        fprintf(stderr, "decoder: %s\n", line);
    }
    return diag.code != ASH_OK;
}
