/* SPDX-License-Identifier: MIT */
/* A training pair that really runs: the forward and the backward pass of a small network as two schedules
 * written by hand, planned with one set of weights and executed by plain loops at the planned offsets, with
 * everything that should be dead overwritten by NaN between the operations. Gradients must equal, bit by
 * bit, those of the same loops over an array per buffer. */
#include <math.h>

#include "ashlar/memory_schedule.h"
#include "one_context.h"
#include "random.h"

static ash_diag diag;

/* --- the network: y = relu(x W1 + b1) W2 + b2, loss = sum of (y - t)^2 ---------------------------- */

enum { BATCH = 5, IN = 7, HIDDEN = 13, OUT = 3, LARGEST = 128 /* elements */ };

typedef enum kernel { MATMUL, BIAS, RELU, LOSS, LOSS_GRADIENT, RELU_GRADIENT, COLUMN_SUM } kernel;

#define NONE ASH_MEMORY_NONE

/* out = kernel(in[0], in[1]). Operands marked early are over before anything of `out` is written. */
typedef struct step {
    kernel kernel;
    uint32_t out, in[2];
    bool early[2];
    uint32_t rows, inner, columns; /* of the result, and the length of the sums */
    bool transposed[2];            /* MATMUL: operands that lie transposed */
} step;

static void compute(const step *s, float *out, const float *a, const float *b) {
    uint32_t m = s->rows, k = s->inner, n = s->columns;
    for (uint32_t r = 0; r < m; r++)
        for (uint32_t c = 0; c < n; c++) {
            uint32_t i = r * n + c;
            float sum = 0;
            switch (s->kernel) {
            case MATMUL:
                for (uint32_t j = 0; j < k; j++)
                    sum += a[s->transposed[0] ? j * m + r : r * k + j] *
                           b[s->transposed[1] ? c * k + j : j * n + c];
                break;
            case BIAS: sum = a[i] + b[c]; break;
            case RELU: sum = a[i] < 0 ? 0 : a[i]; break;
            case LOSS:
                for (uint32_t j = 0; j < k; j++) sum += (a[j] - b[j]) * (a[j] - b[j]);
                break;
            case LOSS_GRADIENT: sum = 2 * (a[i] - b[i]); break;
            case RELU_GRADIENT: sum = b[i] > 0 ? a[i] : 0; break;
            case COLUMN_SUM:
                for (uint32_t j = 0; j < k; j++) sum += a[j * n + c];
                break;
            }
            out[i] = sum;
        }
}

/* The buffers of both passes, weights first, in one numbering each. */
enum { W1, B1, W2, B2, WEIGHTS };
enum { X = WEIGHTS, T, X_KEPT, T_KEPT, Z1, A1, H, Z2, Y, THE_LOSS, FORWARD };
enum { SAVED_X = WEIGHTS, SAVED_T, SAVED_H, SAVED_Y, DY, DH, DA, DW1, DB1, DW2, DB2, DX, BACKWARD };

static const step forward_steps[] = {
    {MATMUL, Z1, {X, W1}, {0}, BATCH, IN, HIDDEN, {0}},
    {BIAS, A1, {Z1, B1}, {1, 0}, BATCH, 0, HIDDEN, {0}},
    {RELU, H, {A1, NONE}, {1, 0}, BATCH, 0, HIDDEN, {0}},
    {MATMUL, Z2, {H, W2}, {0}, BATCH, HIDDEN, OUT, {0}},
    {BIAS, Y, {Z2, B2}, {1, 0}, BATCH, 0, OUT, {0}},
    {LOSS, THE_LOSS, {Y, T}, {0}, 1, BATCH *OUT, 1, {0}},
};
static const step backward_steps[] = {
    {LOSS_GRADIENT, DY, {SAVED_Y, SAVED_T}, {1, 1}, BATCH, 0, OUT, {0}},
    {COLUMN_SUM, DB2, {DY, NONE}, {0}, 1, BATCH, OUT, {0}},
    {MATMUL, DW2, {SAVED_H, DY}, {0}, HIDDEN, BATCH, OUT, {1, 0}},
    {MATMUL, DH, {DY, W2}, {0}, BATCH, OUT, HIDDEN, {0, 1}},
    {RELU_GRADIENT, DA, {DH, SAVED_H}, {1, 1}, BATCH, 0, HIDDEN, {0}},
    {COLUMN_SUM, DB1, {DA, NONE}, {0}, 1, BATCH, HIDDEN, {0}},
    {MATMUL, DW1, {SAVED_X, DA}, {0}, IN, BATCH, HIDDEN, {1, 0}},
    {MATMUL, DX, {DA, W1}, {0}, BATCH, HIDDEN, IN, {0, 1}},
};
static const uint32_t saved[][2] = {{SAVED_X, X}, {SAVED_T, T}, {SAVED_H, H}, {SAVED_Y, Y}};
static const uint32_t gradients[WEIGHTS] = {[W1] = DW1, [B1] = DB1, [W2] = DW2, [B2] = DB2};

enum { MOST = BACKWARD, STEPS = 8, ACCESSES = 3 * STEPS, SAVED = 4 };

/* One pass: its problem, its plan, and for the comparison an array per buffer. */
typedef struct pass {
    const step *steps;
    uint32_t step_count, count;
    ash_memory_buffer buffers[MOST];
    ash_memory_access accesses[ACCESSES];
    ash_memory_schedule schedule;
    ash_memory_plan *plan;
    const ash_memory_place *places;
    float apart[MOST][LARGEST];
} pass;

static void set(pass *p, uint32_t buffer, uint32_t elements, ash_memory_kind kind) {
    assert_true(elements <= LARGEST);
    p->buffers[buffer] = ash_memory_buffer_init(elements * sizeof(float), 16, 0, 0);
    p->buffers[buffer].kind = kind;
}

static void set_weights(pass *p) {
    set(p, W1, IN * HIDDEN, ASH_MEMORY_PARAMETER);
    set(p, B1, HIDDEN, ASH_MEMORY_PARAMETER);
    set(p, W2, HIDDEN * OUT, ASH_MEMORY_PARAMETER);
    set(p, B2, OUT, ASH_MEMORY_PARAMETER);
}

static void add_access(pass *p, uint32_t op, uint32_t buffer, ash_memory_access_kind kind) {
    p->accesses[p->schedule.access_count++] =
        (ash_memory_access){.op = op, .buffer = buffer, .kind = kind, .size = ASH_MEMORY_WHOLE};
}

static void set_schedule(pass *p) {
    p->schedule = (ash_memory_schedule){.op_count = p->step_count, .accesses = p->accesses};
    for (uint32_t o = 0; o < p->step_count; o++) {
        for (int k = 0; k < 2; k++)
            if (p->steps[o].in[k] != NONE)
                add_access(p, o, p->steps[o].in[k],
                           p->steps[o].early[k] ? ASH_MEMORY_READ_EARLY : ASH_MEMORY_READ);
        add_access(p, o, p->steps[o].out, ASH_MEMORY_WRITE);
    }
    assert_ok(ash_memory_schedule_lifetimes(&p->schedule, p->buffers, p->count, &diag));
}

/* What the backward pass needs outlives the forward pass: outputs, and views of the inputs as outputs. With
 * `forget`, the hidden layer is not among them. */
static void set_forward(pass *p, bool forget) {
    memset(p, 0, sizeof *p);
    p->steps = forward_steps, p->step_count = sizeof forward_steps / sizeof *forward_steps;
    p->count = FORWARD;
    set_weights(p);
    set(p, X, BATCH * IN, ASH_MEMORY_INPUT);
    set(p, T, BATCH * OUT, ASH_MEMORY_INPUT);
    set(p, X_KEPT, BATCH * IN, ASH_MEMORY_OUTPUT);
    set(p, T_KEPT, BATCH * OUT, ASH_MEMORY_OUTPUT);
    p->buffers[X_KEPT].root = X, p->buffers[T_KEPT].root = T;
    set(p, Z1, BATCH * HIDDEN, ASH_MEMORY_INTERMEDIATE);
    set(p, A1, BATCH * HIDDEN, ASH_MEMORY_INTERMEDIATE);
    set(p, H, BATCH * HIDDEN, forget ? ASH_MEMORY_INTERMEDIATE : ASH_MEMORY_OUTPUT);
    set(p, Z2, BATCH * OUT, ASH_MEMORY_INTERMEDIATE);
    set(p, Y, BATCH * OUT, ASH_MEMORY_OUTPUT);
    set(p, THE_LOSS, 1, ASH_MEMORY_OUTPUT);
    set_schedule(p);
}

static void set_backward(pass *p) {
    memset(p, 0, sizeof *p);
    p->steps = backward_steps, p->step_count = sizeof backward_steps / sizeof *backward_steps;
    p->count = BACKWARD;
    set_weights(p);
    set(p, SAVED_X, BATCH * IN, ASH_MEMORY_INPUT);
    set(p, SAVED_T, BATCH * OUT, ASH_MEMORY_INPUT);
    set(p, SAVED_H, BATCH * HIDDEN, ASH_MEMORY_INPUT);
    set(p, SAVED_Y, BATCH * OUT, ASH_MEMORY_INPUT);
    set(p, DY, BATCH * OUT, ASH_MEMORY_INTERMEDIATE);
    set(p, DH, BATCH * HIDDEN, ASH_MEMORY_INTERMEDIATE);
    set(p, DA, BATCH * HIDDEN, ASH_MEMORY_INTERMEDIATE);
    set(p, DW1, IN * HIDDEN, ASH_MEMORY_OUTPUT);
    set(p, DB1, HIDDEN, ASH_MEMORY_OUTPUT);
    set(p, DW2, HIDDEN * OUT, ASH_MEMORY_OUTPUT);
    set(p, DB2, OUT, ASH_MEMORY_OUTPUT);
    set(p, DX, BATCH * IN, ASH_MEMORY_OUTPUT);
    set_schedule(p);
}

/* --- plans ---------------------------------------------------------------------------------------- */

/* Plans a pass and has both checkers judge it. */
static void make_plan(pass *p, const ash_memory_options *options) {
    ash_memory_problem problem = {.buffers = p->buffers, .buffer_count = p->count};
    assert_ok(ash_memory_plan_create(context, &problem, options, &p->plan, &diag));
    p->places = ash_memory_plan_places(p->plan, NULL);
    size_t arenas;
    const ash_memory_arena *arena = ash_memory_plan_arenas(p->plan, &arenas);
    assert_int_equal(arenas, 1);
    if (options->strategy == ASH_MEMORY_TLSF || options->strategy == ASH_MEMORY_BEST_FIT)
        assert_int_equal(arena->found_by, options->strategy);
    assert_ok(ash_memory_check(context, &problem, p->places, arena, arenas, NULL, &diag));
    assert_ok(ash_memory_schedule_check(context, &p->schedule, p->buffers, p->count, p->places, arenas,
                                        NULL, &diag));
}

typedef enum layout {
    ONE_ARENA,      /* weights and saved activations where the forward plan put them, in one block */
    BORROWED,       /* the same with the preset: what is pinned is no less there */
    WEIGHTS_APART,  /* no plan has the weights; saved activations stay in the block of both */
    BACKWARD_APART, /* the preset over an arena of its own: nothing is paired, weights stay in the forward
                       arena, saved activations are copied */
    LAYOUTS
} layout;

static bool is_one_arena(layout l) {
    return l == ONE_ARENA || l == BORROWED;
}

static void plan_pair(pass *forward, pass *backward, layout l, ash_memory_strategy strategy) {
    ash_memory_options options = ash_memory_options_inference();
    options.strategy = strategy;
    options.omit_params = l == WEIGHTS_APART;
    make_plan(forward, &options);
    uint32_t pairs[BACKWARD];
    for (uint32_t i = 0; i < BACKWARD; i++) pairs[i] = i < WEIGHTS && is_one_arena(l) ? i : NONE;
    for (int k = 0; k < SAVED && l != BACKWARD_APART; k++) pairs[saved[k][0]] = saved[k][1];
    assert_ok(ash_memory_share_parameters(forward->plan, pairs, backward->buffers, BACKWARD, &diag));
    if (l != ONE_ARENA) {
        options = ash_memory_options_backward_activations_only();
        assert_true(options.omit_params);
        options.strategy = strategy;
    }
    make_plan(backward, &options);
    for (uint32_t i = 0; i < BACKWARD; i++)
        if (pairs[i] != NONE) {
            assert_true(backward->places[i].arena != NONE);
            assert_int_equal(backward->places[i].offset, forward->places[pairs[i]].offset);
        }
}

/* Weights exist once: of all the bytes that the pair allocates, no more than their sizes belong to them. */
static void count_weights(const pass *forward, const pass *backward, layout l) {
    enum { SPACE = 1 << 12 };
    bool weight[SPACE] = {false};
    uint64_t sizes = 0, bytes = 0;
    const pass *both[] = {forward, backward};
    for (int back = 0; back < 2; back++) {
        const pass *p = both[back];
        bool here = back ? is_one_arena(l) : l != WEIGHTS_APART; /* in the forward plan's arena in both */
        uint64_t sum = 0;
        for (uint32_t i = 0; i < p->count; i++) {
            bool left_out = i < WEIGHTS && !here;
            assert_int_equal(p->places[i].reason, left_out ? ASH_MEMORY_LEFT_PARAMETER : ASH_MEMORY_PLACED);
            if (!left_out && p->buffers[i].root == NONE) sum += p->buffers[i].size;
            if (i >= WEIGHTS || left_out) continue;
            assert_true(p->places[i].offset + p->buffers[i].size <= SPACE);
            memset(weight + p->places[i].offset, true, p->buffers[i].size);
            sizes += back ? 0 : p->buffers[i].size;
        }
        ash_memory_summary summary = ash_memory_plan_summary(p->plan);
        assert_int_equal(summary.unshared, sum);
        assert_true(summary.size < sum);
    }
    for (int i = 0; i < SPACE; i++) bytes += weight[i];
    assert_int_equal(bytes, sizes);
}

/* --- execution ------------------------------------------------------------------------------------ */

/* Where the bytes are: an arena per pass, which may be one, and a block for weights that no plan has. */
typedef struct memory {
    unsigned char *arena[2];
    uint64_t size[2];
    float apart[WEIGHTS][LARGEST];
    bool weights_apart;
    const pass *forward;
} memory;

static float *at(memory *m, const pass *p, uint32_t buffer) {
    if (buffer < WEIGHTS && m->weights_apart) return m->apart[buffer];
    if (buffer < WEIGHTS) p = m->forward; /* they exist there only */
    assert_true(p->places[buffer].arena == 0);
    return (float *)(void *)(m->arena[p != m->forward] + p->places[buffer].offset);
}

/* Whether bytes of the buffer must be kept when the first `done` operations are over. Knows the steps, not
 * the lifetimes. */
static bool is_needed(const pass *p, uint32_t buffer, uint32_t done) {
    const ash_memory_buffer *b = &p->buffers[buffer];
    bool written = b->kind == ASH_MEMORY_INPUT || b->root != NONE, read = b->kind == ASH_MEMORY_OUTPUT;
    for (uint32_t o = 0; o < p->step_count; o++) {
        written |= o < done && p->steps[o].out == buffer;
        read |= o >= done && (p->steps[o].in[0] == buffer || p->steps[o].in[1] == buffer);
    }
    return b->kind == ASH_MEMORY_PARAMETER || (written && read);
}

/* Fills the arena of the pass with NaN except for what is needed after `done` operations. */
static void poison(memory *m, const pass *p, uint32_t done) {
    int which = p != m->forward;
    bool *keep = calloc(m->size[which], sizeof *keep);
    assert_non_null(keep);
    for (uint32_t i = 0; i < p->count; i++)
        if (p->places[i].arena != NONE && is_needed(p, i, done))
            memset(keep + p->places[i].offset, true, p->buffers[i].size);
    for (uint64_t i = 0; i < m->size[which]; i++)
        if (!keep[i]) m->arena[which][i] = 0xff; /* four of them are a NaN */
    free(keep);
}

/* An operation at the planned offsets. Its result holds NaN when it begins to write, so that an operand
 * that is not over by then must not lie there. */
static void run_step(memory *m, const pass *p, const step *s) {
    float copies[2][LARGEST];
    const float *in[2] = {NULL, NULL};
    for (int k = 0; k < 2; k++) {
        if (s->in[k] == NONE) continue;
        in[k] = at(m, p, s->in[k]);
        if (s->early[k]) in[k] = memcpy(copies[k], in[k], p->buffers[s->in[k]].size);
    }
    float *out = at(m, p, s->out);
    memset(out, 0xff, p->buffers[s->out].size);
    compute(s, out, in[0], in[1]);
}

/* Runs the pass twice: at the planned offsets, and over an array per buffer. */
static void run_pass(memory *m, pass *p) {
    poison(m, p, 0);
    for (uint32_t o = 0; o < p->step_count; o++) {
        const step *s = &p->steps[o];
        run_step(m, p, s);
        poison(m, p, o + 1);
        compute(s, p->apart[s->out], p->apart[s->in[0]], s->in[1] == NONE ? NULL : p->apart[s->in[1]]);
    }
}

static uint64_t seed = 5;

static void fill(float *values, uint64_t bytes) {
    for (uint64_t i = 0; i < bytes / sizeof *values; i++) {
        values[i] = (float)(test_xorshift(&seed) >> 40) / (float)(1 << 24) - 0.5f;
    }
}

static bool same(memory *m, const pass *p, uint32_t buffer) {
    return memcmp(at(m, p, buffer), p->apart[buffer], p->buffers[buffer].size) == 0;
}

/* Forward, backward and a step down the gradient, in place. Returns whether all gradients were right. */
static bool train(memory *m, pass *forward, pass *backward, layout l, float *loss) {
    for (uint32_t i = X; i <= T; i++)
        memcpy(at(m, forward, i), forward->apart[i], forward->buffers[i].size);
    run_pass(m, forward);
    assert_true(same(m, forward, THE_LOSS) && same(m, forward, Y));
    *loss = *at(m, forward, THE_LOSS);
    for (int k = 0; k < SAVED; k++) {
        uint32_t to = saved[k][0], from = saved[k][1];
        memcpy(backward->apart[to], forward->apart[from], forward->buffers[from].size);
        if (l == BACKWARD_APART)
            memcpy(at(m, backward, to), at(m, forward, from), forward->buffers[from].size);
    }
    memcpy(backward->apart, forward->apart, WEIGHTS * sizeof *backward->apart);
    run_pass(m, backward);
    bool right = same(m, backward, DX);
    for (uint32_t w = 0; w < WEIGHTS; w++) {
        assert_true(same(m, forward, w) && same(m, backward, w)); /* nothing wrote to the weights */
        right &= same(m, backward, gradients[w]);
        for (uint64_t i = 0; i < forward->buffers[w].size / sizeof(float); i++) {
            at(m, backward, w)[i] -= 0.01f * at(m, backward, gradients[w])[i];
            forward->apart[w][i] -= 0.01f * backward->apart[gradients[w]][i];
        }
    }
    return right;
}

/* Trains for a few steps; false when a gradient is wrong. */
static bool run_pair(layout l, ash_memory_strategy strategy, bool forget) {
    enum { ROUNDS = 4 };
    static pass forward, backward;
    set_forward(&forward, forget);
    set_backward(&backward);
    plan_pair(&forward, &backward, l, strategy);
    if (!forget) count_weights(&forward, &backward, l);
    static memory m;
    memset(&m, 0, sizeof m);
    m.forward = &forward, m.weights_apart = l == WEIGHTS_APART;
    m.size[0] = ash_memory_plan_summary(forward.plan).size;
    m.size[1] = ash_memory_plan_summary(backward.plan).size;
    if (l != BACKWARD_APART) m.size[0] = m.size[1] = m.size[0] > m.size[1] ? m.size[0] : m.size[1];
    m.arena[0] = aligned_alloc(16, m.size[0]);
    m.arena[1] = l == BACKWARD_APART ? aligned_alloc(16, m.size[1]) : m.arena[0];
    assert_true(m.arena[0] && m.arena[1]);
    for (uint32_t i = 0; i <= T; i++) fill(forward.apart[i], forward.buffers[i].size);
    for (uint32_t w = 0; w < WEIGHTS; w++)
        memcpy(at(&m, &forward, w), forward.apart[w], forward.buffers[w].size);
    bool right = true;
    float loss[ROUNDS];
    for (int round = 0; round < ROUNDS && right; round++) {
        right = train(&m, &forward, &backward, l, &loss[round]);
        assert_true(isfinite(loss[round]) && (!round || loss[round] < loss[round - 1]));
    }
    if (l == BACKWARD_APART) free(m.arena[1]);
    free(m.arena[0]);
    ash_memory_plan_destroy(backward.plan);
    ash_memory_plan_destroy(forward.plan);
    return right;
}

static void training_pair_runs(void **state) {
    (void)state;
    for (int l = 0; l < LAYOUTS; l++)
        for (int s = 0; s < ASH_MEMORY_STRATEGY_COUNT; s++)
            assert_true(run_pair((layout)l, (ash_memory_strategy)s, false));
}

/* The run above would notice: with the hidden layer not kept for the backward pass, both plans are sound by
 * themselves and the gradients are wrong. */
static void forgotten_activation_is_noticed(void **state) {
    (void)state;
    assert_false(run_pair(BACKWARD_APART, ASH_MEMORY_AUTO, true));
}

/* --- pairs that are not sound ---------------------------------------------------------------- */

enum { FIRST_WEIGHT, FIRST_OTHER, FIRST_INPUT, FIRST_TEMPORARY, FIRST_RESULT, FIRSTS };
enum { WEIGHT, OTHER, SAVED_RESULT, ACTIVATION, SECONDS };

static void refuses(const ash_memory_plan *first, const uint32_t *pairs, ash_memory_buffer *second,
                    const char *why) {
    ash_memory_buffer before[SECONDS];
    memcpy(before, second, sizeof before);
    assert_status(ash_memory_share_parameters(first, pairs, second, SECONDS, &diag),
                  ASH_ERROR_INVALID_ARGUMENT);
    if (!strstr(diag.message, why)) fail_msg("\"%s\" does not say \"%s\"", diag.message, why);
    assert_memory_equal(before, second, sizeof before);
}

static void unsound_pairs_are_refused(void **state) {
    (void)state;
    ash_memory_buffer first[FIRSTS] = {[FIRST_WEIGHT] = ash_memory_buffer_init(64, 16, 0, 2),
                                       [FIRST_OTHER] = ash_memory_buffer_init(128, 16, 0, 2),
                                       [FIRST_INPUT] = ash_memory_buffer_init(32, 16, 0, 2),
                                       [FIRST_TEMPORARY] = ash_memory_buffer_init(32, 16, 1, 4),
                                       [FIRST_RESULT] = ash_memory_buffer_init(32, 16, 3, 6)};
    first[FIRST_WEIGHT].kind = first[FIRST_OTHER].kind = ASH_MEMORY_PARAMETER;
    first[FIRST_INPUT].kind = ASH_MEMORY_INPUT, first[FIRST_RESULT].kind = ASH_MEMORY_OUTPUT;
    ash_memory_buffer second[SECONDS] = {[WEIGHT] = ash_memory_buffer_init(64, 16, 0, 2),
                                         [OTHER] = ash_memory_buffer_init(128, 16, 0, 2),
                                         [SAVED_RESULT] = ash_memory_buffer_init(32, 16, 0, 2),
                                         [ACTIVATION] = ash_memory_buffer_init(32, 16, 1, 4)};
    second[WEIGHT].kind = second[OTHER].kind = ASH_MEMORY_PARAMETER;
    second[SAVED_RESULT].kind = ASH_MEMORY_INPUT;
    const uint32_t good[SECONDS] = {FIRST_WEIGHT, FIRST_OTHER, FIRST_RESULT, NONE};
    uint32_t pairs[SECONDS];
    ash_memory_problem problem = {.buffers = first, .buffer_count = FIRSTS};
    ash_memory_options options = ash_memory_options_inference();
    ash_memory_plan *plan;
    /* Without one arena, every weight lies at 0. */
    for (ash_memory_mode mode = ASH_MEMORY_DISABLED; mode <= ASH_MEMORY_REMAP; mode++) {
        options.mode = mode;
        assert_ok(ash_memory_plan_create(context, &problem, &options, &plan, &diag));
        refuses(plan, good, second, ash_memory_mode_text(mode));
        const uint32_t none[SECONDS] = {NONE, NONE, NONE, NONE};
        assert_ok(ash_memory_share_parameters(plan, none, second, SECONDS, &diag));
        ash_memory_plan_destroy(plan);
    }
    options.mode = ASH_MEMORY_ARENA;
    assert_ok(ash_memory_plan_create(context, &problem, &options, &plan, &diag));
#define REFUSES(buffer, pair, why)                                                                         \
    (memcpy(pairs, good, sizeof pairs), pairs[buffer] = (pair), refuses(plan, pairs, second, why))
    for (int larger = 0; larger < 2; larger++) { /* of which both would fit into the arena */
        second[WEIGHT].size = larger ? 68 : 60;
        refuses(plan, good, second, larger ? "buffer 0 has 68 bytes, its pair 0 has 64" : "60 bytes");
    }
    second[WEIGHT].size = 64;
    REFUSES(OTHER, FIRST_WEIGHT, "128 bytes");
    REFUSES(SAVED_RESULT, FIRST_TEMPORARY, "before its end");
    REFUSES(SAVED_RESULT, FIRST_INPUT, "before its end");
    REFUSES(ACTIVATION, FIRST_RESULT, "not its own from the start");
    REFUSES(OTHER, NONE, "buffer 1 of the first plan is kept for ever");
    REFUSES(OTHER, FIRSTS, "paired with 5 of 5");
    second[OTHER].kind = ASH_MEMORY_INPUT;
    refuses(plan, good, second, "after its last use");
    second[OTHER].kind = ASH_MEMORY_PARAMETER;
    assert_ok(ash_memory_share_parameters(plan, good, second, SECONDS, &diag));
    ash_memory_plan_destroy(plan);
    options.omit_params = true;
    assert_ok(ash_memory_plan_create(context, &problem, &options, &plan, &diag));
    refuses(plan, good, second, "left out");
    ash_memory_plan_destroy(plan);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(training_pair_runs),
        cmocka_unit_test(forgotten_activation_is_noticed),
        cmocka_unit_test(unsound_pairs_are_refused),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
