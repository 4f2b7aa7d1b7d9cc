/* SPDX-License-Identifier: MIT */
/* RNN, GRU and LSTM: a loop over time, whose slices are those of the products with the input, one large
 * product for all steps; an iteration is then a product with the state, and elementwise operators. A few
 * steps are laid out one after the other instead: their kernels may run beside those of other branches.
 *
 * Sequences may be shorter than the operand. Nothing is computed behind the end of the longest: lengths
 * that the model says make the number of steps a number, others settle it when the graph runs, where a
 * size can be settled; in bodies, and where steps are laid out, all are computed. The result has zeros
 * there. The ranges by which DynamicQuantizeLSTM quantises end there as well, as onnxruntime's do. */
#include <math.h>

#include "ops.h"

enum { FEW_STEPS = 8 /* that are laid out */, MAX_GATES = 4, MAX_FUNCTIONS = 3 };

typedef enum activation {
    RELU,
    TANH,
    SIGMOID,
    AFFINE,
    LEAKY_RELU,
    THRESHOLDED_RELU,
    SCALED_TANH,
    HARD_SIGMOID,
    ELU,
    SOFTSIGN,
    SOFTPLUS
} activation;

static const struct {
    const char *name;
    bool has_alpha, has_beta;
    double alpha, beta; /* defaults */
} activations[] = {
    [RELU] = {"relu", false, false, 0, 0},
    [TANH] = {"tanh", false, false, 0, 0},
    [SIGMOID] = {"sigmoid", false, false, 0, 0},
    [AFFINE] = {"affine", true, true, 1, 0},
    [LEAKY_RELU] = {"leakyrelu", true, false, 0.01, 0},
    [THRESHOLDED_RELU] = {"thresholdedrelu", true, false, 1, 0},
    [SCALED_TANH] = {"scaledtanh", true, true, 1, 1},
    [HARD_SIGMOID] = {"hardsigmoid", true, true, 0.2, 0.5},
    [ELU] = {"elu", true, false, 1, 0},
    [SOFTSIGN] = {"softsign", false, false, 0, 0},
    [SOFTPLUS] = {"softplus", false, false, 0, 0},
};

typedef struct function {
    activation kind;
    double alpha, beta;
} function;

typedef struct rnn {
    ash_import *im;
    ash_onnx_recurrent kind;
    unsigned gates, functions; /* per direction */
    int64_t hidden;
    ash_dim batch, steps;
    ash_dim trips; /* steps that are computed: at those behind them all sequences have ended */
    ash_dtype dtype;
    double clip; /* 0: none */
    bool input_forget, linear_before_reset;
    bool quantized; /* DynamicQuantizeLSTM: products in integers */
    function f[2][MAX_FUNCTIONS];
    ash_value x, ends, init[2]; /* operands 0, 4, 5 and 6, which agree in the batch; or ASH_NO_VALUE */
    ash_value lens;             /* [batch, 1], i64, or ASH_NO_VALUE when all sequences are full */
} rnn;

/* A weight to multiply with, [rows, columns]. */
typedef struct matrix {
    ash_value w;     /* when there is a scale: i32, less its zero point */
    ash_value scale; /* [columns] or a scalar; or ASH_NO_VALUE */
} matrix;

/* One direction's operands and state. */
typedef struct cell {
    ash_value input;                   /* [trips, batch, gates * hidden]: x * w' + w_bias */
    matrix recurrent[MAX_GATES];       /* per gate: [hidden, hidden] */
    ash_value bias[MAX_GATES];         /* per gate: [hidden], of the recurrence; or ASH_NO_VALUE */
    ash_value peephole[MAX_FUNCTIONS]; /* [hidden] each, or ASH_NO_VALUE */
    ash_value h, c;                    /* [batch, hidden] */
} cell;

/* --- activations ---------------------------------------------------------------------------------- */

static bool same_name(ash_span name, const char *lower) {
    if (name.len != strlen(lower)) return false;
    for (size_t i = 0; i < name.len; i++)
        if ((name.at[i] | 32) != (uint8_t)lower[i]) return false;
    return true;
}

/* Names, alphas and betas; the two lists have entries only for the functions that take them. */
static bool read_functions(rnn *r, unsigned directions, const activation *usual) {
    ash_import *im = r->im;
    const ash_onnx_attr *names = ash_import__attr(im, "activations", ONNX_ATTR_STRINGS);
    const ash_onnx_attr *alphas = ash_import__attr(im, "activation_alpha", ONNX_ATTR_FLOATS);
    const ash_onnx_attr *betas = ash_import__attr(im, "activation_beta", ONNX_ATTR_FLOATS);
    size_t at_alpha = 0, at_beta = 0;
    if (names && names->n != directions * r->functions) {
        ash_import__fail(im, ASH_ERROR_SHAPE, "%zu activations for %u directions", names->n, directions);
        return false;
    }
    for (unsigned d = 0; d < directions; d++) {
        for (unsigned k = 0; k < r->functions; k++) {
            size_t kind = usual[k];
            if (names)
                for (kind = 0; kind < ASH_COUNT(activations); kind++)
                    if (same_name(names->strings[d * r->functions + k], activations[kind].name)) break;
            if (kind == ASH_COUNT(activations)) {
                ash_import__fail(im, ASH_ERROR_UNSUPPORTED, "an unknown activation");
                return false;
            }
            function f = {(activation)kind, activations[kind].alpha, activations[kind].beta};
            if (activations[kind].has_alpha && alphas && at_alpha < alphas->n)
                f.alpha = (double)alphas->floats[at_alpha++];
            if (activations[kind].has_beta && betas && at_beta < betas->n)
                f.beta = (double)betas->floats[at_beta++];
            r->f[d][k] = f;
        }
    }
    return true;
}

static ash_value apply(const rnn *r, function f, ash_value x) {
    ash_import *im = r->im;
    ash_value zero;
    if (r->clip > 0) x = ash_clip(im->graph, x, -r->clip, r->clip);
    switch (f.kind) {
    case RELU: return ash_relu(im->graph, x);
    case TANH: return ash_tanh(im->graph, x);
    case SIGMOID: return ash_sigmoid(im->graph, x);
    case AFFINE:
        return ash_build__with(im->graph, ASH_OP_ADD, ash_build__with(im->graph, ASH_OP_MUL, x, f.alpha),
                               f.beta);
    case LEAKY_RELU: return ash_onnx__leaky_relu(im, x, f.alpha);
    case THRESHOLDED_RELU:
        zero = ash_scalar(im->graph, r->dtype, 0);
        return ash_select(im->graph, ash_build__from(im->graph, ASH_OP_LT, f.alpha, x), x, zero);
    case SCALED_TANH:
        x = ash_tanh(im->graph, ash_build__with(im->graph, ASH_OP_MUL, x, f.beta));
        return ash_build__with(im->graph, ASH_OP_MUL, x, f.alpha);
    case HARD_SIGMOID: return ash_onnx__hard_sigmoid(im, x, f.alpha, f.beta);
    case ELU: return ash_onnx__elu(im, x, f.alpha);
    case SOFTSIGN: return ash_onnx__softsign(im, x);
    case SOFTPLUS: return ash_onnx__softplus(im, x);
    }
    return x;
}

/* --- one step ------------------------------------------------------------------------------------- */

static ash_value add(const rnn *r, ash_value a, ash_value b) {
    return b == ASH_NO_VALUE ? a : ash_add(r->im->graph, a, b);
}

static ash_value mul(const rnn *r, ash_value a, ash_value b) {
    return ash_mul(r->im->graph, a, b);
}

/* x * w; with a scale, x is quantised by its present range first. */
static ash_value product(const rnn *r, ash_value x, matrix m) {
    ash_import *im = r->im;
    ash_value scale, zero;
    if (m.scale == ASH_NO_VALUE) return ash_matmul(im->graph, x, m.w);
    x = ash_cast(im->graph, ash_onnx__dynamic_quantize(im, x, &scale, &zero), ASH_I32);
    x = ash_sub(im->graph, x, ash_cast(im->graph, zero, ASH_I32));
    ash_value sum = ash_cast(im->graph, ash_matmul(im->graph, x, m.w), r->dtype);
    return mul(r, sum, mul(r, scale, m.scale));
}

/* h * recurrent' + bias of one gate. */
static ash_value recur(const rnn *r, const cell *c, unsigned gate, ash_value h) {
    return add(r, product(r, h, c->recurrent[gate]), c->bias[gate]);
}

/* Adds peephole * state, where there is one. */
static ash_value peep(const rnn *r, const cell *c, unsigned k, ash_value gate, ash_value state) {
    return c->peephole[k] == ASH_NO_VALUE ? gate : add(r, gate, mul(r, state, c->peephole[k]));
}

/* Gates in the order i, o, f, c; peepholes in the order i, o, f. */
static void lstm_step(const rnn *r, const function *f, cell *c, const ash_value *x) {
    ash_value in = apply(r, f[0], peep(r, c, 0, add(r, x[0], recur(r, c, 0, c->h)), c->c)), forget;
    if (r->input_forget)
        forget = ash_build__from(r->im->graph, ASH_OP_SUB, 1, in);
    else
        forget = apply(r, f[0], peep(r, c, 2, add(r, x[2], recur(r, c, 2, c->h)), c->c));
    ash_value fresh = apply(r, f[1], add(r, x[3], recur(r, c, 3, c->h)));
    ash_value state = add(r, mul(r, forget, c->c), mul(r, in, fresh));
    ash_value out = apply(r, f[0], peep(r, c, 1, add(r, x[1], recur(r, c, 1, c->h)), state));
    const function bare = f[2];
    rnn unclipped = *r;
    unclipped.clip = 0;
    c->c = state;
    c->h = mul(r, out, apply(&unclipped, bare, state));
}

/* Gates in the order z, r, h. */
static void gru_step(const rnn *r, const function *f, cell *c, const ash_value *x) {
    ash_value update = apply(r, f[0], add(r, x[0], recur(r, c, 0, c->h)));
    ash_value reset = apply(r, f[0], add(r, x[1], recur(r, c, 1, c->h)));
    ash_value hidden =
        r->linear_before_reset ? mul(r, reset, recur(r, c, 2, c->h)) : recur(r, c, 2, mul(r, reset, c->h));
    hidden = apply(r, f[1], add(r, x[2], hidden));
    ash_value keep = mul(r, update, c->h);
    c->h = add(r, mul(r, ash_build__from(r->im->graph, ASH_OP_SUB, 1, update), hidden), keep);
}

/* `now`: this step of the input, [batch, gates * hidden]. */
static void step(const rnn *r, const function *f, cell *c, ash_value now) {
    ash_import *im = r->im;
    ash_value x[MAX_GATES];
    for (unsigned g = 0; g < r->gates; g++)
        x[g] = ash_slice_axis(im->graph, now, 1, g * r->hidden, r->hidden);
    switch (r->kind) {
    case ONNX_RNN: c->h = apply(r, f[0], add(r, x[0], recur(r, c, 0, c->h))); break;
    case ONNX_GRU: gru_step(r, f, c, x); break;
    case ONNX_LSTM:
    case ONNX_QUANTIZED_LSTM: lstm_step(r, f, c, x); break;
    }
}

/* --- one direction -------------------------------------------------------------------------------- */

/* Entry `d` of operand k along its first axis, rows [from, from + count) of it, transposed when it is a
 * matrix. */
static ash_value part(const rnn *r, size_t k, unsigned d, int64_t from, int64_t count) {
    ash_import *im = r->im;
    ash_value x =
        ash_slice_axis(im->graph, ash_build__at(im->graph, ash_import__in(im, k), 0, d), 0, from, count);
    return ash_import__type(im, x).rank == 2 ? ash_build__swap(im->graph, x, 0, 1) : x;
}

/* Numbers [from, from + count) for the columns of a quantised weight, or the one for all of them. */
static ash_value columns(const rnn *r, size_t k, unsigned d, int64_t from, int64_t count) {
    ash_value x = ash_build__at(r->im->graph, ash_import__in(r->im, k), 0, d);
    return ash_import__type(r->im, x).rank ? ash_slice_axis(r->im->graph, x, 0, from, count) : x;
}

/* Rows [from, from + count) of weight k as columns. Quantised ones are transposed already, and have scales
 * at operand k_scale and zero points behind them. */
static matrix weight(const rnn *r, size_t k, size_t k_scale, unsigned d, int64_t from, int64_t count) {
    ash_import *im = r->im;
    if (!r->quantized) return (matrix){part(r, k, d, from, count), ASH_NO_VALUE};
    ash_value w =
        ash_slice_axis(im->graph, ash_build__at(im->graph, ash_import__in(im, k), 0, d), 1, from, count);
    ash_value zero = ash_cast(im->graph, columns(r, k_scale + 1, d, from, count), ASH_I32);
    w = ash_sub(im->graph, ash_cast(im->graph, w, ASH_I32), zero);
    return (matrix){w, columns(r, k_scale, d, from, count)};
}

static ash_value initial(const rnn *r, size_t k, unsigned d, unsigned axis) {
    const ash_dim dims[] = {r->batch, r->hidden};
    if (r->init[k] != ASH_NO_VALUE) return ash_build__at(r->im->graph, r->init[k], axis, d);
    return ash_build__fill(r->im->graph, r->dtype, 0, dims, 2);
}

static void open_cell(const rnn *r, unsigned d, bool batch_first, cell *c) {
    ash_import *im = r->im;
    int64_t rows = r->gates * r->hidden;
    ash_value x = r->trips == r->steps ? r->x : ash_slice_axis(im->graph, r->x, 0, 0, r->trips);
    c->input = product(r, x, weight(r, 1, 8, d, 0, rows));
    if (ash_import__has(im, 3)) c->input = add(r, c->input, part(r, 3, d, 0, rows));
    for (unsigned g = 0; g < r->gates; g++) {
        c->recurrent[g] = weight(r, 2, 10, d, g * r->hidden, r->hidden);
        c->bias[g] = ash_import__has(im, 3) ? part(r, 3, d, rows + g * r->hidden, r->hidden) : ASH_NO_VALUE;
    }
    for (unsigned p = 0; p < MAX_FUNCTIONS; p++)
        c->peephole[p] = r->kind == ONNX_LSTM && ash_import__has(im, 7)
                             ? part(r, 7, d, p * r->hidden, r->hidden)
                             : ASH_NO_VALUE;
    c->h = initial(r, 0, d, batch_first ? 1 : 0);
    c->c = r->kind == ONNX_LSTM ? initial(r, 1, d, batch_first ? 1 : 0) : ASH_NO_VALUE;
}

/* A step whose number is `t`, an i64 scalar, and the result that it hands out. Past the end of a sequence
 * the state stays and the result is 0: so a reversed one begins at its own last element. */
static ash_value masked_step(const rnn *r, const function *f, cell *c, ash_value now, ash_value t) {
    ash_graph *g = r->im->graph;
    ash_value h = c->h, state = c->c;
    step(r, f, c, now);
    if (r->lens == ASH_NO_VALUE) return c->h;
    ash_value alive = ash_lt(g, t, r->lens), y = ash_select(g, alive, c->h, ash_scalar(g, r->dtype, 0));
    c->h = ash_select(g, alive, c->h, h);
    if (r->kind == ONNX_LSTM) c->c = ash_select(g, alive, c->c, state);
    return y;
}

/* Over all steps, one after the other; returns [trips, batch, hidden]. */
static ash_value lay_out(const rnn *r, const function *f, cell *c, bool reverse) {
    ash_import *im = r->im;
    ash_value ys[FEW_STEPS];
    for (int64_t i = 0; i < r->trips && ash_import__ok(im); i++) {
        int64_t t = reverse ? r->trips - 1 - i : i;
        ash_value number = r->lens == ASH_NO_VALUE ? ASH_NO_VALUE : ash_build__dim(im->graph, t);
        ys[t] = masked_step(r, f, c, ash_build__at(im->graph, c->input, 0, t), number);
        ys[t] = ash_build__insert_axis(im->graph, ys[t], 0);
    }
    if (!r->trips) return ash_build__fill(im->graph, r->dtype, 0, (ash_dim[]){0, r->batch, r->hidden}, 3);
    return ash_import__ok(im) ? ash_concat(im->graph, ys, (size_t)r->trips, 0) : ASH_NO_VALUE;
}

/* The same as a loop. */
static ash_value loop(const rnn *r, const function *f, cell *c, bool reverse) {
    ash_graph *g = r->im->graph;
    enum { STATES = 2, ARGUMENTS = 2 + STATES };
    uint32_t carried = r->kind == ONNX_LSTM ? 2 : 1;
    ash_value init[STATES] = {c->h, c->c}, arguments[ARGUMENTS], next[STATES], y, outs[STATES + 1];
    ash_loop l = {.trips = r->trips,
                  .carried = carried,
                  .scanned = 1,
                  .stacked = 1,
                  .backward = reverse ? 3 : 0,
                  .go = ASH_NO_VALUE,
                  .init = init,
                  .xs = &c->input,
                  .arguments = arguments,
                  .next = next,
                  .ys = &y};
    if (!ash_build__begin_loop(g, &l)) return ASH_NO_VALUE;
    ash_value t = arguments[ASH_LOOP_ITERATION];
    if (reverse && r->lens != ASH_NO_VALUE)
        t = ash_sub(g, ash_sub(g, ash_build__dim(g, r->trips), ash_scalar(g, ASH_I64, 1)), t);
    c->h = arguments[ASH_LOOP_CARRIED];
    if (carried > 1) c->c = arguments[ASH_LOOP_CARRIED + 1];
    y = masked_step(r, f, c, arguments[ASH_LOOP_CARRIED + carried], t);
    next[0] = c->h, next[1] = c->c;
    if (ash_build__end_loop(g, &l, outs) != ASH_OK) return ASH_NO_VALUE;
    c->h = outs[0];
    if (carried > 1) c->c = outs[1];
    return outs[carried];
}

/* --- the operator --------------------------------------------------------------------------------- */

static bool read_shape(rnn *r, bool batch_first, unsigned *directions, bool *first_reversed) {
    ash_import *im = r->im;
    ash_type x = ash_import__type(im, r->x), w = ash_import__in_type(im, 1),
             rec = ash_import__in_type(im, 2);
    enum { FORWARD, REVERSE, BIDIRECTIONAL };
    unsigned direction = ASH_IMPORT_CHOICE(im, "direction", "forward", "reverse", "bidirectional");
    *first_reversed = direction == REVERSE;
    *directions = direction == BIDIRECTIONAL ? 2 : 1;
    r->dtype = x.dtype;
    ash_dim hidden = rec.dims[r->quantized ? 1 : 2];
    if (x.rank != 3 || w.rank != 3 || rec.rank != 3 || !ash_dim_is_const(hidden) ||
        w.dims[0] != *directions) {
        ash_import__fail(im, ASH_ERROR_SHAPE, "operands that do not fit each other");
        return false;
    }
    r->hidden = ash_import__attr_int(im, "hidden_size", hidden);
    r->steps = x.dims[batch_first ? 1 : 0];
    r->batch = x.dims[batch_first ? 0 : 1];
    if (r->hidden != hidden || r->hidden <= 0)
        ash_import__fail(im, ASH_ERROR_SHAPE, "hidden_size differs from the recurrent weight");
    return ash_import__ok(im);
}

/* Operands of as many sequences as there are. */
static bool read_batch(rnn *r, bool batch_first) {
    ash_import *im = r->im;
    ash_value *others[] = {&r->ends, &r->init[0], &r->init[1]};
    const unsigned axis = batch_first ? 0 : 1;
    r->x = ash_import__in(im, 0);
    for (size_t k = 0; k < ASH_COUNT(others); k++)
        *others[k] = (k < 2 || r->kind == ONNX_LSTM) && ash_import__has(im, 4 + k)
                         ? ash_import__in(im, 4 + k)
                         : ASH_NO_VALUE;
    for (size_t k = 0; k < 2 * ASH_COUNT(others) && ash_import__ok(im);
         k++) { /* the last may be the least */
        ash_value *other = others[k % ASH_COUNT(others)];
        const unsigned rank = other == &r->ends ? 1 : 3;
        if (*other != ASH_NO_VALUE && ash_import__type(im, *other).rank == rank &&
            ash_import__type(im, r->x).rank == 3)
            ash_import__agree_on(im, &r->x, axis, other, rank == 1 ? 0 : axis);
    }
    return ash_import__ok(im);
}

static bool is_few(ash_dim steps) {
    return ash_dim_is_const(steps) && steps <= FEW_STEPS;
}

/* Sequence lengths as a column, none when all of them are known to be the whole sequence; and how many
 * steps there are until all have ended. */
static void read_lens(rnn *r) {
    ash_import *im = r->im;
    const ash_dim column[] = {r->batch, 1};
    const int64_t *lens;
    size_t n;
    r->lens = ASH_NO_VALUE;
    r->trips = r->steps;
    if (r->ends == ASH_NO_VALUE) return;
    if (ash_import__try_ints(im, 4, &lens, &n)) {
        int64_t most = 0;
        size_t full = 0;
        while (full < n && lens[full] == r->steps) full++;
        if (full == n) return;
        for (size_t i = 0; i < n; i++) most = ASH_MAX(most, lens[i]);
        r->trips = ash_graph_dim_min(im->graph, ASH_MIN(most, INT32_MAX), r->steps);
    } else if (!is_few(r->steps) && r->batch != 0 && !im->rolled)
        r->trips = ash_onnx__settle_longest(im, r->ends, r->steps, 0);
    r->lens = ash_reshape(im->graph, ash_cast(im->graph, r->ends, ASH_I64), column, 2);
}

/* The operand with zeros behind the longest sequence: every range has them. */
static ash_value ended(const rnn *r) {
    ash_graph *g = r->im->graph;
    const ash_dim dims[] = {r->steps, 1, 1};
    ash_value longest = ash_build__reduce(g, ASH_OP_REDUCE_MAX, r->lens, 3, false);
    ash_value there = ash_lt(g, ash_iota(g, ASH_I64, dims, 3, 0), longest);
    return ash_select(g, there, r->x, ash_scalar(g, r->dtype, 0));
}

/* States of all directions as [directions, batch, hidden], or batch first. */
static void out_states(const rnn *r, size_t k, const ash_value *states, unsigned directions,
                       bool batch_first) {
    ash_value parts[2];
    for (unsigned d = 0; d < directions; d++)
        parts[d] = ash_build__insert_axis(r->im->graph, states[d], batch_first ? 1 : 0);
    ash_import__out(r->im, k, ash_concat(r->im->graph, parts, directions, batch_first ? 1 : 0));
}

/* [steps, directions, batch, hidden], or [batch, steps, directions, hidden]. */
static void out_sequence(const rnn *r, const ash_value *ys, unsigned directions, bool batch_first) {
    ash_import *im = r->im;
    ash_value parts[2], all;
    static const int64_t perm[] = {2, 0, 1, 3};
    for (unsigned d = 0; d < directions; d++) parts[d] = ash_build__insert_axis(im->graph, ys[d], 1);
    all = ash_concat(im->graph, parts, directions, 1);
    ash_import__out(im, 0, batch_first ? ash_transpose(im->graph, all, perm) : all);
}

void ash_onnx__op_recurrent(ash_import *im) {
    static const activation usual[][MAX_FUNCTIONS] = {
        [ONNX_RNN] = {TANH}, [ONNX_GRU] = {SIGMOID, TANH}, [ONNX_LSTM] = {SIGMOID, TANH, TANH}};
    static const unsigned gates[] = {[ONNX_RNN] = 1, [ONNX_GRU] = 3, [ONNX_LSTM] = 4};
    rnn r = {.im = im, .kind = (ash_onnx_recurrent)im->row->arg};
    r.quantized = r.kind == ONNX_QUANTIZED_LSTM;
    if (r.quantized) r.kind = ONNX_LSTM;
    bool batch_first = ash_import__attr_int(im, "layout", 0) != 0, reversed;
    unsigned directions;
    r.gates = gates[r.kind];
    r.functions = r.kind + 1;
    r.clip = ash_import__attr_float(im, "clip", 0);
    r.input_forget = ash_import__attr_int(im, "input_forget", 0) != 0;
    r.linear_before_reset = ash_import__attr_int(im, "linear_before_reset", 0) != 0;
    if (!read_batch(&r, batch_first) || !read_shape(&r, batch_first, &directions, &reversed) ||
        !read_functions(&r, directions, usual[r.kind]))
        return;
    read_lens(&r);
    ash_value ys[2], h[2], c[2];
    if (batch_first) r.x = ash_build__swap(im->graph, r.x, 0, 1);
    if (r.quantized && r.lens != ASH_NO_VALUE && r.trips == r.steps && r.batch != 0) r.x = ended(&r);
    for (unsigned d = 0; d < directions; d++) {
        cell one;
        open_cell(&r, d, batch_first, &one);
        ys[d] = is_few(r.trips) ? lay_out(&r, r.f[d], &one, reversed || d == 1)
                                : loop(&r, r.f[d], &one, reversed || d == 1);
        if (ash_import__ok(im)) ys[d] = ash_onnx__fill_up(im, ys[d], 0, r.steps);
        h[d] = one.h, c[d] = one.c;
    }
    if (!ash_import__ok(im)) return;
    if (ash_import__wants(im, 0)) out_sequence(&r, ys, directions, batch_first);
    out_states(&r, 1, h, directions, batch_first);
    if (r.kind == ONNX_LSTM) out_states(&r, 2, c, directions, batch_first);
}
