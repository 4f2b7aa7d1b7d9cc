/* SPDX-License-Identifier: MIT */
/* ashlar train: epochs of steps over the examples of a file, from a model to a trained one.
 *
  * After each epoch, and where Ctrl-C ends it, all that decides what comes next is in a checkpoint: the
  * states of the step (weights, what the optimiser remembers, how many random numbers were drawn), and a
  * note with the place in the epoch. The order of an epoch's examples follows from the seed. So `--resume`
  * goes on with the bits of a run that was never stopped. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "train.h"

/* Where training is. */
struct place {
    unsigned epoch;  /* counted from 0 */
    uint64_t done;   /* executions of the epoch */
    uint64_t count;  /* all executions */
    double sum;      /* of the epoch's losses */
    double best;     /* least loss of held out examples so far, or infinity */
    unsigned waited; /* epochs since then */
};

struct trainer {
    struct session session;
    struct training training;
    struct data data;
    struct curve curve;
    struct place at;
    const char *file, *labels, *out, *checkpoint, *optimizer, *loss, *schedule;
    struct list curves;
    double held, rate, least;
    unsigned epochs, patience, warmup;
    bool resume, profile;
    char path[1024]; /* of the checkpoint */
};

/* --- checkpoints ------------------------------------------------------------------------------------ */

#define NOTE_FORMAT                                                                                        \
    "train 1 seed %u batch %u accumulate %u rows %zu held %zu epoch %u done %llu count %llu sum "
#define NOTE_END "best %la waited %u"

static bool save(struct trainer *r) {
    char note[512];
    const struct place *p = &r->at;
    snprintf(note, sizeof note, NOTE_FORMAT "%a best %a waited %u", r->session.seed, r->training.batch,
             r->training.accumulate, r->data.rows, r->data.held, p->epoch, (unsigned long long)p->done,
             (unsigned long long)p->count, p->sum, p->best, p->waited);
    return ash_plan_save_states(r->training.step, r->path, note, &r->session.diag) == ASH_OK ||
           session_failed(&r->session, r->path);
}

static bool load(struct trainer *r) {
    char note[512];
    unsigned seed, batch, accumulate;
    unsigned long long done, count;
    size_t rows, held;
    struct place *p = &r->at;
    if (access(r->path, F_OK) != 0) {
        printf("there is no %s yet: from the beginning\n", r->path);
        return true;
    }
    if (ash_plan_load_states(r->training.step, r->path, note, sizeof note, &r->session.diag) != ASH_OK)
        return session_failed(&r->session, r->path);
    /* NOLINTNEXTLINE(cert-err34-c): a checkpoint of ours, whose bytes are checked */
    if (sscanf(note, NOTE_FORMAT "%la " NOTE_END, &seed, &batch, &accumulate, &rows, &held, &p->epoch,
               &done, &count, &p->sum, &p->best, &p->waited) != 11) {
        fprintf(stderr, "ashlar: %s is no checkpoint of `ashlar train`\n", r->path);
        return false;
    }
    if (seed != r->session.seed || batch != r->training.batch || accumulate != r->training.accumulate ||
        rows != r->data.rows || held != r->data.held) {
        fprintf(
            stderr,
            "ashlar: %s was made with --seed %u --batch %u --accumulate %u, %zu examples and %zu of them "
            "held out\n",
            r->path, seed, batch, accumulate, rows, held);
        return false;
    }
    p->done = done, p->count = count;
    for (size_t i = 0; i < r->curves.count && r->curve.count == 0; i++)
        if (!curve_read(&r->curve, r->curves.at[i], p->epoch + 1)) return false;
    printf("from %s: epoch %u, %llu executions of it done\n", r->path, p->epoch + 1, done);
    return true;
}

/* --- epochs ----------------------------------------------------------------------------------------- */

static uint64_t executions(const struct trainer *r) {
    return (r->data.rows - r->data.held) / r->training.batch;
}

static void show_progress(const struct trainer *r) {
    char text[160], bar[25];
    const uint64_t all = executions(r);
    for (unsigned i = 0; i < sizeof bar - 1; i++)
        bar[i] = i < (sizeof bar - 1) * r->at.done / all ? '=' : ' ';
    bar[sizeof bar - 1] = 0;
    snprintf(text, sizeof text, "epoch %u of %u [%s] %llu of %llu, loss %.4g", r->at.epoch + 1, r->epochs,
             bar, (unsigned long long)r->at.done, (unsigned long long)all, r->at.sum / (double)r->at.done);
    progress_say(text);
}

/* What is left of an epoch; ends early where it is interrupted. */
static bool run_epoch(struct trainer *r) {
    struct place *p = &r->at;
    data_shuffle(&r->data, r->session.seed, p->epoch);
    while (p->done < executions(r) && !session_interrupted()) {
        double loss;
        if (!training_step(&r->session, &r->training, &r->data, r->data.held + p->done * r->training.batch,
                           p->count / r->training.accumulate, &loss))
            return false;
        p->done++, p->count++;
        p->sum += loss;
        if (!isfinite(loss)) {
            progress_wipe();
            fprintf(stderr,
                    "ashlar: the loss is %g in epoch %u: a lower --lr, --warmup or --clip may help\n", loss,
                    p->epoch + 1);
            return false;
        }
        show_progress(r);
    }
    progress_wipe();
    return true;
}

static void show_epoch(const struct point *p) {
    printf("epoch %4u  loss %-10.5g", p->epoch, p->loss);
    if (isfinite(p->held.loss)) printf("  held out %-10.5g", p->held.loss);
    if (p->held.right >= 0) printf("  %6.2f %% right", 100 * p->held.right);
    printf("  %.2f s\n", p->seconds);
    fflush(stdout);
}

/* Scores, the curve, the best model so far; the place moves on to the next epoch. */
static bool end_epoch(struct trainer *r, int64_t begun) {
    struct place *p = &r->at;
    struct point point = {.epoch = p->epoch + 1, .loss = p->sum / (double)executions(r), .held = {NAN, -1}};
    if (r->data.held && !training_evaluate(&r->session, &r->training, &r->data, &point.held)) return false;
    ash_rate_at(&r->training.schedule, (p->count - 1) / r->training.accumulate, &point.rate, NULL);
    point.seconds = (double)(now_ns() - begun) / 1e9;
    show_epoch(&point);
    if (!curve_add(&r->curve, &point)) return false;
    for (size_t i = 0; i < r->curves.count; i++)
        if (!curve_write(&r->curve, r->curves.at[i])) return false;
    p->waited++;
    if (point.held.loss < p->best) {
        p->best = point.held.loss, p->waited = 0;
        if (!training_export(&r->session, &r->training, r->out)) return false;
    }
    p->epoch++;
    p->done = 0, p->sum = 0;
    return save(r);
}

static bool is_over(const struct trainer *r) {
    return r->at.epoch >= r->epochs || (r->patience && r->data.held && r->at.waited >= r->patience);
}

static bool run_all(struct trainer *r) {
    while (!is_over(r)) {
        const int64_t begun = now_ns();
        if (!run_epoch(r)) return false;
        if (r->at.done < executions(r)) {
            if (!save(r)) return false;
            fprintf(stderr, "ashlar: interrupted; all is in %s, and --resume goes on from there\n",
                    r->path);
            return false;
        }
        if (!end_epoch(r, begun)) return false;
    }
    curve_show(&r->curve);
    if (r->at.epoch < r->epochs) printf("no better for %u epochs: over\n", r->at.waited);
    if (!r->data.held) {
        if (!training_export(&r->session, &r->training, r->out)) return false;
        printf("%s has the weights of the last epoch\n", r->out);
    } else {
        printf("%s has the weights of epoch %u, held out loss %.5g\n", r->out, r->at.epoch - r->at.waited,
               r->at.best);
    }
    return true;
}

/* --- the command ------------------------------------------------------------------------------------ */

static bool choose(const char *option, const char *text, int count, const char *(*name)(int), int *out) {
    for (*out = 0; *out < count; ++*out)
        if (!strcmp(text, name(*out))) return true;
    fprintf(stderr, "ashlar train: %s %s: one of", option, text);
    for (int i = 0; i < count; i++) fprintf(stderr, "%s %s", i ? "," : "", name(i));
    fprintf(stderr, " is expected\n");
    return false;
}

static const char *optimizer_name(int kind) {
    static const char *const names[ASH_OPTIMIZER_COUNT] = {"sgd", "adam", "adamw"};
    return names[kind];
}

static const char *schedule_name(int kind) {
    return ash_rate_text((ash_rate_kind)kind);
}

/* What words stand for; the command line is wrong where this is false. */
static bool read_words(struct trainer *r) {
    struct training *t = &r->training;
    int optimizer, schedule;
    if (!r->file || !r->out) {
        fprintf(stderr, "ashlar train: --data FILE.npz and -o FILE.onnx are expected\n");
        return false;
    }
    if (!choose("--loss", r->loss, LOSS_COUNT, loss_name, &t->loss) ||
        !choose("--optimizer", r->optimizer, ASH_OPTIMIZER_COUNT, optimizer_name, &optimizer) ||
        !choose("--schedule", r->schedule, ASH_RATE_DECAY, schedule_name, &schedule))
        return false;
    if (t->batch == 0 || t->accumulate == 0 || r->held >= 1 || r->least > 1) {
        fprintf(stderr, "ashlar train: --batch and --accumulate are at least 1, --hold-out is less\n");
        return false;
    }
    if (r->session.execution.eager) {
        fprintf(stderr, "ashlar train: mode eager keeps no weights\n");
        return false;
    }
    t->optimizer.kind = (ash_optimizer)optimizer;
    t->schedule.kind = (ash_rate_kind)schedule;
    const int n = r->checkpoint ? snprintf(r->path, sizeof r->path, "%s", r->checkpoint)
                                : snprintf(r->path, sizeof r->path, "%s.safetensors", r->out);
    return n < (int)sizeof r->path || (fprintf(stderr, "ashlar train: a path that is too long\n"), false);
}

/* The model, with the sizes of the examples' rows and of a batch, and the plans. */
static bool open_all(struct trainer *r, const char *model) {
    struct session *s = &r->session;
    struct data *d = &r->data;
    static ash_type types[LIST_ROOM];
    static ash_onnx_shape shapes[LIST_ROOM];
    const ash_onnx_options open = {.size = sizeof open, .parameters = true};
    ash_graph *graph;
    if (!session_start(s, model)) return false;
    if (ash_onnx_read(s->context, model, &open, &graph, &s->diag) != ASH_OK)
        return session_failed(s, model);
    bool good = data_read(s, d, graph, r->file, r->labels);
    for (size_t i = 0; good && i < d->labels; i++) {
        types[i] = *ash_tensor_type(d->at[i].tensor);
        types[i].dims[0] = r->training.batch;
        shapes[i] = (ash_onnx_shape){strdup(d->at[i].name), &types[i]};
        d->at[i].name = shapes[i].input; /* the graph that it is from goes */
    }
    ash_graph_destroy(graph);
    s->shapes = shapes, s->n_shapes = good ? d->labels : 0;
    s->parameters = true;
    good = good && session_load(s) && data_split(d, r->held, s->seed);
    if (good && executions(r) == 0) {
        fprintf(stderr, "ashlar: %zu examples are less than one batch of %u\n", d->rows - d->held,
                r->training.batch);
        good = false;
    }
    good = good && (r->profile || training_is_writable(s));
    return good && training_prepare(s, &r->training, d);
}

/* Where the time of a step goes. */
static bool profile(struct trainer *r) {
    double loss;
    data_shuffle(&r->data, r->session.seed, 0);
    if (!training_step(&r->session, &r->training, &r->data, r->data.held, 0, &loss)) return false;
    r->session.plan = r->training.step;
    r->session.report = ash_plan_describe(r->training.step);
    bool good = show_profile(&r->session);
    r->session.plan = NULL; /* it is the training's */
    return good;
}

static bool train(struct trainer *r, const char *model) {
    if (!open_all(r, model)) return false;
    r->training.schedule.rate = r->rate;
    r->training.schedule.least = r->least;
    r->training.schedule.warmup = r->warmup;
    r->training.schedule.steps = executions(r) * r->epochs / r->training.accumulate;
    const ash_plan_report report = ash_plan_describe(r->training.step);
    printf("%zu examples, %zu held out; %llu steps an epoch; %zu weights; %s of arena, %s of states\n",
           r->data.rows, r->data.held, (unsigned long long)(executions(r) / r->training.accumulate),
           r->training.trained, show_bytes(ash_plan_arena_size(r->training.step)).text,
           show_bytes(report.state).text);
    show_training(&report.training);
    show_order(&report);
    if (r->profile) return profile(r);
    return (!r->resume || load(r)) && run_all(r);
}

static void close_all(struct trainer *r) {
    training_free(&r->training);
    for (size_t i = 0; i < r->session.n_shapes; i++) free((char *)r->session.shapes[i].input);
    data_free(&r->data);
    curve_free(&r->curve);
    session_close(&r->session);
}

int cmd_train(int argc, char **argv) {
    static struct trainer r;
    r = (struct trainer){.session = session_defaults(),
                         .training = {.batch = 32,
                                      .accumulate = 1,
                                      .optimizer = ASH_INIT(ash_optimizer_options),
                                      .schedule = ASH_INIT(ash_rate_schedule)},
                         .labels = "labels",
                         .optimizer = "adamw",
                         .loss = "cross_entropy",
                         .schedule = "constant",
                         .held = 0.1,
                         .rate = 1e-3,
                         .epochs = 10,
                         .at = {.best = INFINITY}};
    struct training *t = &r.training;
    struct option common[SESSION_OPTIONS + 1];
    const struct option own[] = {
        {"--data", "FILE.npz", "arrays called as the model's inputs, and the labels: a row an example",
         OPTION_TEXT, &r.file},
        {"-o", "FILE.onnx", "the trained model: the best epoch by held out examples, else the last",
         OPTION_TEXT, &r.out},
        {"--labels", "NAME", "the array of the labels (default: labels)", OPTION_TEXT, &r.labels},
        {"--loss", "NAME", "of output 0: cross_entropy (default; numbers before any softmax), mse",
         OPTION_TEXT, &r.loss},
        {"--optimizer", "NAME", "sgd, adam, adamw (default)", OPTION_TEXT, &r.optimizer},
        {"--lr", "RATE", "rate of learning (default 0.001)", OPTION_REAL, &r.rate},
        {"--schedule", "NAME", "of the rate: constant (default), linear, cosine", OPTION_TEXT, &r.schedule},
        {"--least", "PART", "part of the rate that is left at the end of a schedule (default 0)",
         OPTION_REAL, &r.least},
        {"--warmup", "N", "steps in which the rate rises", OPTION_UINT, &r.warmup},
        {"--momentum", "M", "of sgd", OPTION_REAL, &t->optimizer.momentum},
        {"--nesterov", NULL, "Nesterov's momentum", OPTION_FLAG, &t->optimizer.nesterov},
        {"--weight-decay", "D", "of all trained weights", OPTION_REAL, &t->optimizer.weight_decay},
        {"--clip", "NORM", "scale gradients down to this norm, all together", OPTION_REAL, &t->clip},
        {"--epochs", "N", "passes over the examples (default 10)", OPTION_UINT, &r.epochs},
        {"--batch", "N", "examples of an execution (default 32)", OPTION_UINT, &t->batch},
        {"--accumulate", "N", "executions to a step of the optimiser (default 1)", OPTION_UINT,
         &t->accumulate},
        {"--hold-out", "PART", "part of the examples that is not trained on (default 0.1)", OPTION_REAL,
         &r.held},
        {"--patience", "N", "end after N epochs in which held out examples did no better", OPTION_UINT,
         &r.patience},
        {"--freeze", "PATTERN", "weights that stay: 'encoder.*', '*running_*'", OPTION_LIST, &t->freeze},
        {"--checkpoint", "FILE", "where all is kept after each epoch and Ctrl-C (default: OUT.safetensors)",
         OPTION_TEXT, &r.checkpoint},
        {"--resume", NULL, "go on from the checkpoint, where there is one", OPTION_FLAG, &r.resume},
        {"--profile", NULL, "show where the time of a step goes, and end", OPTION_FLAG, &r.profile},
        {"--curve", "FILE", "the losses as .csv or .html; may be given again", OPTION_LIST, &r.curves},
        {0},
    };
    const struct option *const tables[] = {own, common, NULL};
    struct list words;
    int status;
    session_options(&r.session, common);
    if (!options_read(argc, argv, "train MODEL.onnx --data FILE.npz -o TRAINED.onnx [options]", tables,
                      &words, &status))
        return status;
    if (words.count != 1) {
        fprintf(stderr, "ashlar train: one model is expected\n");
        return EXIT_USAGE;
    }
    if (!read_words(&r)) return EXIT_USAGE;
    status = train(&r, words.at[0]) ? EXIT_GOOD : EXIT_BAD;
    close_all(&r);
    return status;
}
