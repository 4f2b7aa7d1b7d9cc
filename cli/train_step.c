/* SPDX-License-Identifier: MIT */
/* From a model to two plans: one whose execution is a step of training, and one that says what the model
 * makes of examples. The weights are states of both; those of the step are copied to the other before it is
 * asked. */
#include <fnmatch.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "train.h"

const char *loss_name(int loss) {
    static const char *const names[LOSS_COUNT] = {"cross_entropy", "mse"};
    return names[loss];
}

static bool no_memory(void) {
    fprintf(stderr, "ashlar: out of memory\n");
    return false;
}

/* --- the graphs ------------------------------------------------------------------------------------- */

/* Ctrl-C stops preparing. What runs is not stopped in the midst: a step that did not come to its end would
 * leave no weights. */
static bool go_on(void *user, ash_stage stage, uint64_t done, uint64_t total) {
    return (void)user, (void)stage, (void)done, (void)total, !session_interrupted();
}

static bool prepare(struct session *s, const ash_graph *graph, ash_plan **out) {
    ash_plan_options options = s->plan_options;
    options.mode = s->execution.mode;
    options.streams = s->execution.streams;
    options.progress = (ash_progress){.report = go_on};
    return ash_plan_prepare(s->context, graph, &options, out, &s->diag) == ASH_OK ||
           session_failed(s, s->path);
}

static bool matches(const struct list *patterns, const char *name) {
    for (size_t i = 0; i < patterns->count; i++)
        if (fnmatch(patterns->at[i], name, 0) == 0) return true;
    return false;
}

/* The weights that are trained: floating point states without an update of the model's own. Scalars are
 * what exporters make of numbers in the program, and stay. */
static size_t choose_weights(const struct training *t, const ash_graph *g, ash_value *out) {
    size_t count = 0;
    for (size_t i = 0; i < ash_graph_state_count(g); i++) {
        const char *name;
        ash_value update, state = ash_graph_state_at(g, i, &name, &update);
        const ash_type *type = ash_graph_type(g, state);
        if (update != ASH_NO_VALUE || type->rank == 0 || matches(&t->freeze, name)) continue;
        out[count++] = state;
    }
    return count;
}

/* The loss of output 0 against `labels`, and the type that these have. */
static ash_value add_loss(const struct training *t, ash_graph *g, ash_value out, ash_type *labels) {
    *labels = *ash_graph_type(g, out);
    if (t->loss == LOSS_CROSS_ENTROPY && labels->rank) labels->rank--, labels->dtype = ASH_I64;
    ash_value wanted = ash_graph_input(g, "ashlar.labels", labels);
    if (t->loss == LOSS_CROSS_ENTROPY) return ash_cross_entropy(g, out, wanted);
    int64_t axes[ASH_MAX_RANK];
    for (unsigned i = 0; i < labels->rank; i++) axes[i] = i;
    ash_value away = ash_sub(g, out, wanted);
    return ash_reduce_mean(g, ash_mul(g, away, away), axes, labels->rank, false);
}

/* Appends all of a step to the model. */
static bool add_step(struct session *s, struct training *t, ash_graph *g, ash_value *weights,
                     ash_value *grads, ash_type *labels) {
    ash_optimizer_options options = t->optimizer;
    const ash_type scalar = {.dtype = ASH_F32};
    const ash_value loss = add_loss(t, g, ash_graph_output_at(g, 0, NULL), labels);
    const ash_value rate = ash_graph_input(g, "ashlar.rate", &scalar);
    ash_value due;
    t->trained = choose_weights(t, g, weights);
    if (t->trained == 0) {
        fprintf(stderr, "ashlar: %s: the model has no weights that could be trained\n", s->path);
        return false;
    }
    if (ash_graph_gradients(g, &loss, NULL, 1, weights, t->trained, NULL, grads, &s->diag) != ASH_OK) {
        session_failed(s, "gradients");
        fprintf(stderr, "ashlar: --freeze NAME leaves a weight as it is\n");
        return false;
    }
    if (t->accumulate > 1) {
        due = ash_graph_accumulate(g, grads, t->trained, t->accumulate, "ashlar.batch");
        options.when = &due;
    }
    if (t->clip > 0) ash_graph_clip_norm(g, grads, t->trained, t->clip);
    ash_graph_optimize(g, weights, grads, t->trained, rate, &options, NULL);
    t->loss_output = ash_graph_output_count(g);
    ash_graph_output(g, "ashlar.loss", loss);
    return ash_graph_status(g, &s->diag) == ASH_OK || session_failed(s, s->path);
}

/* The model's inputs have the batch in front, and its first output has. */
static bool check_model(struct session *s, const struct training *t, const ash_graph *g, struct data *d) {
    if (ash_graph_output_count(g) == 0 || ash_graph_input_count(g) != d->labels) {
        fprintf(stderr, "ashlar: %s: a model with inputs and outputs is expected\n", s->path);
        return false;
    }
    for (size_t i = 0; i <= d->labels; i++) {
        const char *name;
        const ash_value value =
            i < d->labels ? ash_graph_input_at(g, i, &name) : ash_graph_output_at(g, 0, &name);
        const ash_type *type = ash_graph_type(g, value);
        if (type->rank == 0 || type->dims[0] != t->batch) {
            fprintf(stderr, "ashlar: %s is %s, whose first dim is not the batch of %u (--batch)\n", name,
                    show_type(type).text, t->batch);
            return false;
        }
        if (i < d->labels && !data_expect(d, i, type)) return false;
    }
    const ash_type *out = ash_graph_type(g, ash_graph_output_at(g, 0, NULL));
    if (out->dtype != ASH_F32 || (t->loss == LOSS_CROSS_ENTROPY && out->rank < 2)) {
        fprintf(stderr, "ashlar: output 0 is %s, and %s wants f32%s\n", show_type(out).text,
                loss_name(t->loss),
                t->loss == LOSS_CROSS_ENTROPY ? " [batch, ..., classes]: numbers before any softmax" : "");
        return false;
    }
    return true;
}

static bool make_plans(struct session *s, struct training *t, struct data *d, ash_graph *g) {
    ash_type labels;
    if (!check_model(s, t, g, d) || !prepare(s, g, &t->evaluate)) return false;
    t->weights = ash_graph_state_count(g);
    t->inputs = ash_graph_input_count(g);
    t->labels = t->inputs, t->rate = t->inputs + 1;
    ash_value *values = malloc((2 * t->weights + 1) * sizeof *values);
    if (!values) return no_memory();
    bool good = add_step(s, t, g, values, values + t->weights, &labels) &&
                data_expect(d, d->labels, &labels) && prepare(s, g, &t->step);
    free(values);
    return good;
}

bool training_prepare(struct session *s, struct training *t, struct data *d) {
    ash_graph *g;
    if (ash_graph_trainable(s->graph, &g, &s->diag) != ASH_OK) return session_failed(s, s->path);
    bool good = make_plans(s, t, d, g);
    ash_graph_destroy(g);
    return good;
}

/* --- a step ----------------------------------------------------------------------------------------- */

static bool give(struct session *s, ash_plan *plan, size_t position, const void *data, uint64_t size) {
    return ash_plan_set_input(plan, position, NULL, data, size, &s->diag) == ASH_OK ||
           session_failed(s, "an input");
}

static bool give_examples(struct session *s, struct training *t, ash_plan *plan, struct data *d,
                          size_t arrays, size_t first, size_t count) {
    for (size_t i = 0; i < arrays; i++) {
        data_gather(d, i, first, count, t->batch);
        if (!give(s, plan, i, d->at[i].batch, data_bytes(d, i, t->batch))) return false;
    }
    return true;
}

bool training_step(struct session *s, struct training *t, struct data *d, size_t first, uint64_t step,
                   double *loss) {
    double rate;
    float out;
    const ash_view *view;
    if (ash_rate_at(&t->schedule, step, &rate, &s->diag) != ASH_OK) return session_failed(s, "rate");
    const float single = (float)rate;
    if (!give_examples(s, t, t->step, d, t->inputs + 1, first, t->batch) ||
        !give(s, t->step, t->rate, &single, sizeof single))
        return false;
    if (ash_plan_execute(t->step, &s->diag) != ASH_OK ||
        ash_plan_output(t->step, t->loss_output, &view, &s->diag) != ASH_OK ||
        ash_view_copy_out(view, &out, sizeof out, &s->diag) != ASH_OK)
        return session_failed(s, "step");
    *loss = (double)out;
    return true;
}

/* --- evaluation ------------------------------------------------------------------------------------- */

/* What the model draws at random begins anew, so that an evaluation depends on the weights alone. */
static bool copy_weights(struct session *s, struct training *t) {
    for (size_t i = 0; i < t->weights; i++) {
        const ash_view *view;
        ash_type type;
        ash_status status = ash_plan_state_type(t->evaluate, i, &type, &s->diag);
        if (status == ASH_OK && type.dtype == ASH_I64) {
            status = ash_plan_reset_state(t->evaluate, i, &s->diag);
        } else if (status == ASH_OK) {
            status = ash_plan_state(t->step, i, &view, &s->diag);
            if (status == ASH_OK) status = ash_plan_set_state_view(t->evaluate, i, view, &s->diag);
        }
        if (status != ASH_OK) return session_failed(s, "weights");
    }
    return true;
}

/* The loss of one row of logits, and whether the largest is the label's. */
static double row_loss(const float *x, size_t classes, int64_t label, bool *right) {
    size_t best = 0;
    double sum = 0;
    for (size_t c = 1; c < classes; c++)
        if (x[c] > x[best]) best = c;
    for (size_t c = 0; c < classes; c++) sum += exp((double)x[c] - (double)x[best]);
    *right = (int64_t)best == label;
    return log(sum) + (double)x[best] - (label >= 0 && label < (int64_t)classes ? (double)x[label] : 0);
}

/* Adds up over `rows` examples of output 0 and their labels. */
static void add_scores(const struct training *t, const struct data *d, const float *x, size_t per_row,
                       size_t rows, struct score *sum) {
    const struct examples *labels = &d->at[d->labels];
    const size_t count = rows * labels->elements,
                 classes = labels->elements ? per_row / labels->elements : 0;
    for (size_t i = 0; i < count; i++) {
        if (t->loss == LOSS_CROSS_ENTROPY) {
            bool right;
            sum->loss += row_loss(x + i * classes, classes, ((const int64_t *)labels->batch)[i], &right);
            sum->right += right;
        } else {
            const double away = (double)x[i] - (double)((const float *)labels->batch)[i];
            sum->loss += away * away;
        }
    }
}

bool training_evaluate(struct session *s, struct training *t, struct data *d, struct score *out) {
    const ash_view *view;
    float *x = NULL;
    *out = (struct score){0};
    if (!copy_weights(s, t)) return false;
    for (size_t first = 0; first < d->held; first += t->batch) {
        const size_t count = d->held - first < t->batch ? d->held - first : t->batch;
        if (!give_examples(s, t, t->evaluate, d, t->inputs, first, count)) return free(x), false;
        data_gather(d, d->labels, first, count, t->batch);
        if (ash_plan_execute(t->evaluate, &s->diag) != ASH_OK ||
            ash_plan_output(t->evaluate, 0, &view, &s->diag) != ASH_OK)
            return free(x), session_failed(s, "evaluation");
        const uint64_t size = ash_view_bytes(view);
        if (!x && !(x = malloc(size + 1))) return no_memory();
        if (ash_view_copy_out(view, x, size, &s->diag) != ASH_OK)
            return free(x), session_failed(s, "evaluation");
        add_scores(t, d, x, size / sizeof *x / t->batch, count, out);
    }
    free(x);
    const double all = (double)(d->held * d->at[d->labels].elements);
    out->loss /= all;
    out->right = t->loss == LOSS_CROSS_ENTROPY ? out->right / all : -1;
    return true;
}

/* --- the trained model ------------------------------------------------------------------------------ */

/* The model with the dims that the file leaves open, if it can be written: as variables of a wide range,
 * or of a narrower one, where several of them together make tensors too large to count. */
static ash_graph *open_wide(struct session *s) {
    static const int64_t most[] = {INT32_MAX, 1 << 20, 1 << 15, 1 << 12};
    for (size_t i = 0; i < sizeof most / sizeof *most; i++) {
        const ash_onnx_options wide = {
            .size = sizeof wide, .var_min = 1, .var_max = most[i], .parameters = true};
        ash_graph *graph;
        if (ash_onnx_read(s->context, s->path, &wide, &graph, NULL) != ASH_OK) continue;
        if (ash_onnx_check(graph, NULL) == ASH_OK) return graph;
        ash_graph_destroy(graph);
    }
    return NULL;
}

/* What can be written of the model: all of it, which is then the caller's own, or what it is for a batch
 * of the size that is trained with. NULL, and prints why, when neither can be. */
static ash_graph *open_model(struct session *s, bool *own) {
    ash_graph *graph = open_wide(s);
    *own = graph != NULL;
    if (graph || ash_onnx_check(s->graph, &s->diag) == ASH_OK) return graph ? graph : s->graph;
    session_failed(s, s->path);
    fprintf(stderr, "ashlar: a model that is trained must be one that can be written\n");
    return NULL;
}

bool training_is_writable(struct session *s) {
    bool own;
    ash_graph *model = open_model(s, &own);
    if (own) ash_graph_destroy(model);
    return model != NULL;
}

/* The bytes of the states, as parameters; those that are no parameters are left out. */
static bool fetch_weights(struct session *s, const struct training *t, ash_parameter_bytes *out,
                          size_t *count) {
    for (size_t i = 0; i < t->weights; i++) {
        const ash_view *view;
        ash_type type;
        if (ash_plan_state_type(t->step, i, &type, &s->diag) != ASH_OK ||
            ash_plan_state(t->step, i, &view, &s->diag) != ASH_OK)
            return session_failed(s, "weights");
        if (type.dtype == ASH_I64) continue;
        const uint64_t size = ash_view_bytes(view);
        void *data = malloc(size + 1);
        if (!data) return no_memory();
        out[(*count)++] = (ash_parameter_bytes){ash_plan_state_name(t->step, i), data, size};
        if (ash_view_copy_out(view, data, size, &s->diag) != ASH_OK) return session_failed(s, "weights");
    }
    return true;
}

static bool write_model(struct session *s, const ash_graph *model, const ash_parameter_bytes *values,
                        size_t n, const char *path) {
    ash_graph *trained;
    ash_status status = ash_graph_with_parameters(model, values, n, &trained, &s->diag);
    if (status == ASH_OK) status = ash_onnx_write(trained, path, NULL, &s->diag);
    ash_graph_destroy(trained);
    return status == ASH_OK;
}

bool training_export(struct session *s, struct training *t, const char *path) {
    size_t count = 0;
    bool own = false;
    ash_parameter_bytes *values = calloc(t->weights + 1, sizeof *values);
    if (!values) return no_memory();
    ash_graph *model = open_model(s, &own);
    bool good = model && fetch_weights(s, t, values, &count);
    good = good && (write_model(s, model, values, count, path) || session_failed(s, path));
    if (own) ash_graph_destroy(model);
    for (size_t i = 0; i < count; i++) free((void *)values[i].data);
    free(values);
    return good;
}

void training_free(struct training *t) {
    ash_plan_destroy(t->step);
    ash_plan_destroy(t->evaluate);
}
