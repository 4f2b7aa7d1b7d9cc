/* SPDX-License-Identifier: MIT */
/* A model from its file to a plan with inputs. */
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli.h"

/* Ctrl-C stops long work in the library, which then fails as it would for any other reason; a second one
 * ends the process. */
static ash_cancel interrupted;

static void on_interrupt(int signal_number) {
    (void)signal_number;
    ash_cancel_set(&interrupted, true);
}

bool session_interrupted(void) {
    return ash_cancel_is_on(&interrupted);
}

static void catch_interrupts(struct session *s) {
    struct sigaction before,
        action = {.sa_handler = on_interrupt, .sa_flags = (int)SA_RESETHAND | SA_RESTART};
    sigemptyset(&action.sa_mask);
    if (sigaction(SIGINT, NULL, &before) == 0 && before.sa_handler != SIG_IGN)
        sigaction(SIGINT, &action, NULL);
    s->plan_options.progress.cancel = &interrupted;
}

struct session session_defaults(void) {
    struct session s = {
        .plan_options = ASH_INIT(ash_plan_options), .report = ASH_INIT(ash_plan_report), .seed = 1};
    s.status = ash_memory_options_from_environment(&s.plan_options.memory, &s.diag);
    return s;
}

void session_options(struct session *s, struct option rows[SESSION_OPTIONS + 1]) {
    ash_plan_options *o = &s->plan_options;
    const struct option all[SESSION_OPTIONS + 1] = {
        {"--device", "NAME",
         "what runs the model: CPU (default), CUDA:n; CUDA:sm_80, CUDA:H100 to look at plans for such GPUs",
         OPTION_TEXT, &s->device_name},
        {"--place", "PATTERN=DEVICE",
         "nodes and states whose name fits, as 'layer?.*', are there; the last rule counts", OPTION_LIST,
         &s->places},
        {"--threads", "N", "threads of one execution (default: all cores)", OPTION_UINT, &s->threads},
        {"--mode", "MODE", "execution: stream (default), graph, multi_stream=N, eager", OPTION_EXECUTION,
         &s->execution},
        {"--planner", "MODE", "memory: disabled, remap or arena (default)", OPTION_MODE, &o->memory.mode},
        {"--strategy", "NAME", "arena packing: auto (default), tlsf, best_fit, search", OPTION_STRATEGY,
         &o->memory.strategy},
        {"--max-memory", "BYTES",
         "the most that the arena may take: 64M, 1.5G; of each device, or one by one: 64M,1G", OPTION_BYTES,
         &s->limits},
        {"--order", "WHEN",
         "reorder operations for less memory: auto (where --max-memory needs it), on, off", OPTION_ORDER,
         &o->order},
        {"--no-fuse", NULL, "one kernel per node", OPTION_FLAG, &o->no_fuse},
        {"--fuse-freely", NULL, "never split kernels for less memory", OPTION_FLAG, &o->fuse_freely},
        {"--no-optimize", NULL, "take the graph as it is", OPTION_FLAG, &o->no_optimize},
        {"--no-winograd", NULL, "convolutions by their definition alone", OPTION_FLAG, &o->no_winograd},
        {"--precision", "NAME",
         "of products of f32: ieee (default); on GPUs from sm_80 on tf32x3, tf32; on processors with "
         "AVX512_BF16 bf16, with AMX-BF16 bf16x3 (f16 as well)",
         OPTION_PRECISION, &o->precision},
        {"--cublas", NULL, "large products on a GPU by cuBLASLt, where that is not slower", OPTION_FLAG,
         &o->cublas},
        {"--keep-denormals", NULL, "compute with numbers below 1.2e-38, which are zero otherwise",
         OPTION_FLAG, &o->keep_denormals},
        {"--poison", NULL, "fill dead bytes with NaNs between operations", OPTION_FLAG, &o->poison},
        {"--var", "NAME=N",
         "size of a dynamic dim; NAME=MIN..MAX keeps it variable, NAME=EXPRESSION ties it to others "
         "(the rest are those of the given inputs, or 1)",
         OPTION_LIST, &s->vars},
        {"--input", "NAME=FILE", "an input from a .npy, .npz or .pb file; others are random", OPTION_LIST,
         &s->inputs},
        {"--bind", "NAME=FILE", "an input that is a constant for this import, as the target of a Reshape",
         OPTION_LIST, &s->binds},
        {"--seed", "N", "of the random inputs", OPTION_UINT, &s->seed},
        {"--cache", "DIR", "kernel cache (default: $ASHLAR_CACHE_DIR or ~/.cache/ashlar)", OPTION_TEXT,
         &s->cache},
        {"--no-cache", NULL, "no kernel cache on disk", OPTION_FLAG, &s->no_cache},
        {"--verbose", NULL, "say more", OPTION_FLAG, &s->verbose},
        {0},
    };
    memcpy(rows, all, sizeof all);
}

bool session_failed(const struct session *s, const char *what) {
    char line[768];
    ash_diag_format(&s->diag, line, sizeof line);
    fprintf(stderr, "ashlar: %s: %s\n", what, line);
    if (s->unsaid[0])
        fprintf(stderr,
                "ashlar: nothing says the sizes of %s, and they are 1: give --var NAME=N, or --input "
                "NAME=FILE\n",
                s->unsaid);
    return false;
}

static void log_line(void *user, ash_log_level level, const char *message) {
    (void)user;
    if (level <= ASH_LOG_WARNING) fprintf(stderr, "ashlar: %s\n", message);
}

static void log_all(void *user, ash_log_level level, const char *message) {
    (void)user, (void)level;
    fprintf(stderr, "ashlar: %s\n", message);
}

/* The number at *at, which is moved past it. */
static bool read_number(const char **at, int64_t *out) {
    char *end;
    errno = 0;
    *out = strtoll(*at, &end, 10);
    bool good = end != *at && errno == 0;
    *at = end;
    return good;
}

/* "batch=4" and "batch=1..8", or "total=past + seq", which ties a name to others; the name ends at the
 * equals sign. */
static bool read_var(const char *text, ash_onnx_options *out, ash_onnx_var *vars, ash_onnx_tie *ties,
                     char *name, size_t size) {
    const char *equals = strrchr(text, '='), *at = equals ? equals + 1 : text;
    int64_t min = 0, max = 0;
    bool number = read_number(&at, &min), good = equals && *at;
    max = min;
    if (number && !strncmp(at, "..", 2)) {
        at += 2;
        good = read_number(&at, &max) && !*at;
    } else if (number && !*at) {
        good = equals != NULL;
    } else {
        number = false;
    }
    if (!good) {
        fprintf(stderr, "ashlar: --var %s: NAME=N, NAME=MIN..MAX or NAME=EXPRESSION is expected\n", text);
        return false;
    }
    snprintf(name, size, "%.*s", (int)(equals - text), text);
    if (number)
        vars[out->n_vars++] = (ash_onnx_var){name, min, max};
    else
        ties[out->n_ties++] = (ash_onnx_tie){name, equals + 1};
    return true;
}

const char *split_option(const char *option, const char *text, char *name, size_t size) {
    const char *equals = strrchr(text, '=');
    if (!equals || (size_t)(equals - text) >= size) {
        fprintf(stderr, "ashlar: %s %s: NAME=FILE is expected\n", option, text);
        return NULL;
    }
    snprintf(name, size, "%.*s", (int)(equals - text), text);
    return equals + 1;
}

struct shapes {
    ash_onnx_shape at[3 * LIST_ROOM];
    ash_tensor *tensors[3 * LIST_ROOM]; /* NULL: the type is somebody else's */
    size_t count;
};

/* The tensor is destroyed with the shapes. */
static void add_shape(struct shapes *shapes, const char *name, ash_tensor *tensor) {
    shapes->tensors[shapes->count] = tensor;
    shapes->at[shapes->count++] = (ash_onnx_shape){name, ash_tensor_type(tensor)};
}

/* Inputs that are going to be given tell the sizes of dynamic dims: those of `--input`, and the first set
 * of the folder that is checked. What cannot be read is told when it is read in earnest. */
static void find_shapes(struct session *s, struct shapes *shapes) {
    static char names[LIST_ROOM][256];
    char path[1200];
    ash_tensor *tensor;
    for (size_t i = 0; i < s->inputs.count; i++) {
        const char *file = split_option("--input", s->inputs.at[i], names[i], sizeof names[i]);
        if (file && read_tensor(s->context, file, names[i], &tensor, NULL) == ASH_OK)
            add_shape(shapes, names[i], tensor);
    }
    for (size_t i = 0; i < s->n_shapes && i < LIST_ROOM; i++) shapes->at[shapes->count++] = s->shapes[i];
    for (size_t i = 0; s->check && i < LIST_ROOM; i++) {
        snprintf(path, sizeof path, "%s/test_data_set_%d/input_%zu.pb", s->check, s->check_set, i);
        if (access(path, F_OK) != 0) break;
        if (ash_tensor_read(s->context, path, &tensor, NULL) == ASH_OK)
            add_shape(shapes, ash_tensor_name(tensor), tensor);
    }
}

void tell_inputs(const struct session *s, const ash_graph *graph) {
    char *text;
    size_t len, count = 0;
    if (ash_graph_print(graph, false, &text, &len, NULL) != ASH_OK) return;
    /* lines of the kind %0: f32[batch, 12] = input "x" */
    for (char *line = text, *end; line < text + len; line = end + 1) {
        end = memchr(line, '\n', (size_t)(text + len - line));
        if (!end) break;
        *end = 0;
        char *type = strstr(line, ": "), *name = strstr(line, " = input ");
        if (line[0] != '%' || !type || !name || type > name) continue;
        fprintf(stderr, "%s%s %.*s", count++ ? ", " : "", name + strlen(" = input "),
                (int)(name - type - 2), type + 2);
    }
    fprintf(stderr, "%s\n", count ? "" : "none");
    ash_context_free_text(s->context, text, len);
}

/* What there is, where a variable or an input was named that there is not: the model is read once more,
 * without any. */
static void tell_names(struct session *s) {
    ash_graph *graph;
    const ash_onnx_options wide = {.size = sizeof wide, .var_min = 1, .var_max = 4096};
    if (ash_onnx_read(s->context, s->path, &wide, &graph, NULL) != ASH_OK) return;
    fprintf(stderr, "ashlar: its inputs are ");
    tell_inputs(s, graph);
    ash_graph_destroy(graph);
}

/* The dims of an open graph, as one text. */
static void list_open(const ash_graph *graph, char *text, size_t size) {
    ash_graph_variable var = ASH_INIT(ash_graph_variable);
    size_t at = 0;
    *text = 0;
    for (size_t i = 0; i < ash_graph_var_count(graph); i++) {
        if (ash_graph_var_at(graph, i, &var, NULL) != ASH_OK || !var.open) continue;
        int n = snprintf(text + at, size - at, "%s%s", at ? ", " : "", var.name);
        at += n < 0 ? 0 : (size_t)n < size - at ? (size_t)n : size - at - 1;
    }
}

/* A dim of which nothing is said has one element. */
static bool read_graph(struct session *s, const ash_onnx_options *options) {
    ash_onnx_options ones = *options;
    s->unsaid[0] = 0;
    ash_status status = ash_onnx_read(s->context, s->path, options, &s->graph, &s->diag);
    if (status == ASH_OK && ash_graph_is_open(s->graph)) {
        list_open(s->graph, s->unsaid, sizeof s->unsaid);
        ash_graph_destroy(s->graph);
        s->graph = NULL;
        ones.var_min = ones.var_max = 1;
        status = ash_onnx_read(s->context, s->path, &ones, &s->graph, &s->diag);
    }
    if (status == ASH_OK) return true;
    session_failed(s, s->path);
    if (s->diag.code == ASH_ERROR_FORMAT && !s->diag.node[0])
        fprintf(stderr, "ashlar: is this an ONNX file?\n");
    if (s->diag.code == ASH_ERROR_NOT_FOUND && options->n_vars + options->n_binds) tell_names(s);
    return false;
}

bool session_load(struct session *s) {
    struct shapes shapes = {.count = 0};
    static char names[LIST_ROOM][256], inputs[LIST_ROOM][256];
    ash_onnx_var vars[LIST_ROOM];
    ash_onnx_tie ties[LIST_ROOM];
    ash_onnx_bind binds[LIST_ROOM];
    ash_tensor *tensors[LIST_ROOM] = {NULL};
    ash_onnx_options options = {.size = sizeof options, .vars = vars, .ties = ties};
    for (size_t i = 0; i < s->vars.count; i++)
        if (!read_var(s->vars.at[i], &options, vars, ties, names[i], sizeof names[i])) return false;
    bool good = true;
    for (size_t i = 0; good && i < s->binds.count; i++) {
        const char *file = split_option("--bind", s->binds.at[i], inputs[i], sizeof inputs[i]);
        good = file != NULL;
        if (good && read_tensor(s->context, file, inputs[i], &tensors[i], &s->diag) != ASH_OK)
            good = session_failed(s, file);
        binds[i] = (ash_onnx_bind){inputs[i], tensors[i]};
    }
    if (good) find_shapes(s, &shapes);
    options.shapes = shapes.at, options.n_shapes = shapes.count;
    options.binds = binds, options.n_binds = s->binds.count;
    options.progress.cancel = s->plan_options.progress.cancel;
    options.parameters = s->parameters;
    good = good && read_graph(s, &options);
    for (size_t i = 0; i < s->binds.count; i++) ash_tensor_destroy(tensors[i]);
    for (size_t i = 0; i < shapes.count; i++) ash_tensor_destroy(shapes.tensors[i]);
    return good;
}

/* The number of a device, which is opened unless it is listed; ASH_MOST_DEVICES: it cannot be, and that was
 * said. */
static uint32_t device_number(struct session *s, const char *name) {
    size_t *count = &s->plan_options.device_count;
    for (uint32_t d = 0; d < *count; d++)
        if (!strcmp(ash_device_describe(s->devices[d]).name, name)) return d;
    if (*count == ASH_MOST_DEVICES) {
        fprintf(stderr, "ashlar: --place: at most %d devices\n", ASH_MOST_DEVICES);
        return ASH_MOST_DEVICES;
    }
    if (ash_device_open(s->context, name, &s->devices[*count], &s->diag) != ASH_OK) {
        session_failed(s, name);
        return ASH_MOST_DEVICES;
    }
    return (uint32_t)(*count)++;
}

static bool read_places(struct session *s) {
    ash_plan_options *o = &s->plan_options;
    o->place_count = o->device_count = 0;
    o->devices = s->devices;
    o->places = s->rules;
    if (s->places.count && device_number(s, s->device_name ? s->device_name : "CPU") != 0) return false;
    for (size_t i = 0; i < s->places.count; i++) {
        const char *text = s->places.at[i], *equals = strrchr(text, '=');
        if (!equals || (size_t)(equals - text) >= sizeof s->patterns[i]) {
            fprintf(stderr, "ashlar: --place %s: PATTERN=DEVICE is expected\n", text);
            return false;
        }
        snprintf(s->patterns[i], sizeof s->patterns[i], "%.*s", (int)(equals - text), text);
        uint32_t device = device_number(s, equals + 1);
        if (device == ASH_MOST_DEVICES) return false;
        s->rules[o->place_count++] = (ash_place_rule){s->patterns[i], device};
    }
    return true;
}

bool session_start(struct session *s, const char *path) {
    s->path = path;
    if (s->limits.count == 1) s->plan_options.memory.capacity = s->limits.at[0];
    if (s->limits.count > 1) s->plan_options.capacities = s->limits.at;
    catch_interrupts(s);
    if (s->status != ASH_OK) return session_failed(s, "environment");
    if (s->cache && !*s->cache) {
        fprintf(stderr, "ashlar: --cache: a folder is expected (--no-cache is for none)\n");
        return false;
    }
    ash_context_options options = {.size = sizeof options,
                                   .threads = s->threads,
                                   .cache_dir = s->no_cache ? "" : s->cache,
                                   .log = s->verbose ? log_all : log_line};
    if (ash_context_create(&options, &s->context, &s->diag) != ASH_OK) return session_failed(s, "context");
    if (s->device_name &&
        ash_device_open(s->context, s->device_name, &s->plan_options.device, &s->diag) != ASH_OK)
        return session_failed(s, s->device_name);
    return read_places(s);
}

bool session_open(struct session *s, const char *path) {
    return session_start(s, path) && session_load(s);
}

bool session_prepare(struct session *s) {
    if (s->execution.eager) {
        fprintf(stderr,
                "ashlar: mode eager drops its plan at the end of every call, and there is nothing to "
                "look at: use mode stream\n");
        return false;
    }
    s->plan_options.mode = s->execution.mode;
    s->plan_options.streams = s->execution.streams;
    progress_begin(&s->plan_options.progress);
    ash_status status = ash_plan_prepare(s->context, s->graph, &s->plan_options, &s->plan, &s->diag);
    progress_end(&s->plan_options.progress);
    if (status != ASH_OK) return session_failed(s, s->path);
    s->report = ash_plan_describe(s->plan);
    return true;
}

void session_close(struct session *s) {
    if (s->graph) session_drop_values(s);
    ash_plan_destroy(s->plan);
    ash_graph_destroy(s->graph);
    ash_device_close(s->plan_options.device);
    s->plan_options.device = NULL;
    for (size_t d = 0; d < s->plan_options.device_count; d++) ash_device_close(s->devices[d]);
    s->plan_options.device_count = s->plan_options.place_count = 0;
    ash_context_destroy(s->context);
    s->plan = NULL, s->graph = NULL, s->context = NULL;
}

bool session_reopen(struct session *s, int check_set) {
    session_close(s);
    s->check_set = check_set;
    return session_open(s, s->path) && session_ready(s);
}
