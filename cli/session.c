/* A model from its file to a plan with inputs. */
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "cli.h"

/* Ctrl-C stops long work in the library, which then fails as it would for any other reason; a second one
 * ends the process. */
static ash_cancel interrupted;

static void on_interrupt(int signal_number) {
    (void)signal_number;
    ash_cancel_set(&interrupted, true);
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
    struct session s = {.plan_options = ash_plan_options_default(), .seed = 1};
    s.status = ash_memory_options_from_environment(&s.plan_options.memory, &s.diag);
    return s;
}

void session_options(struct session *s, struct option rows[SESSION_OPTIONS + 1]) {
    ash_plan_options *o = &s->plan_options;
    const struct option all[SESSION_OPTIONS + 1] = {
        {"--threads", "N", "threads of one execution (default: all cores)", OPTION_UINT, &s->threads},
        {"--mode", "MODE", "execution: stream (default), graph, multi_stream=N", OPTION_EXECUTION, o},
        {"--planner", "MODE", "memory: disabled, remap or arena (default)", OPTION_MODE, &o->memory.mode},
        {"--strategy", "NAME", "arena packing: auto (default), tlsf, best_fit, search", OPTION_STRATEGY,
         &o->memory.strategy},
        {"--max-memory", "BYTES", "the most that the arena may take: 64M, 1.5G", OPTION_BYTES,
         &o->memory.capacity},
        {"--order", "WHEN",
         "reorder operations for less memory: auto (where --max-memory needs it), on, off", OPTION_ORDER,
         &o->order},
        {"--no-fuse", NULL, "one kernel per node", OPTION_UNSET, &o->fuse},
        {"--no-optimize", NULL, "take the graph as it is", OPTION_UNSET, &o->optimize},
        {"--poison", NULL, "fill dead bytes with NaNs between operations", OPTION_FLAG, &o->poison},
        {"--var", "NAME=N", "size of a dynamic dim (others are 1); NAME=MIN..MAX keeps it variable",
         OPTION_LIST, &s->vars},
        {"--input", "NAME=FILE", "an input from a .npy or .pb file; others are random", OPTION_LIST,
         &s->inputs},
        {"--bind", "NAME=FILE", "an input that is a constant for this import, as the target of a Reshape",
         OPTION_LIST, &s->binds},
        {"--seed", "N", "of the random inputs", OPTION_UINT, &s->seed},
        {"--cache", "DIR", "kernel cache (default: ~/.cache/ashlar)", OPTION_TEXT, &s->cache},
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

static const char *cache_dir(const struct session *s, char *room, size_t size) {
    if (s->no_cache) return NULL;
    if (s->cache) return s->cache;
    const char *base = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
    if (base && *base)
        snprintf(room, size, "%s/ashlar", base);
    else if (home && *home)
        snprintf(room, size, "%s/.cache/ashlar", home);
    else
        return NULL;
    return room;
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

/* "batch=4" and "batch=1..8"; the name ends at the equals sign. */
static bool read_var(const char *text, ash_onnx_var *out, char *name, size_t size) {
    const char *equals = strrchr(text, '='), *at = equals ? equals + 1 : text;
    int64_t min = 0, max = 0;
    bool good = equals && read_number(&at, &min);
    max = min;
    if (good && !strncmp(at, "..", 2)) {
        at += 2;
        good = read_number(&at, &max);
    }
    if (!good || *at) {
        fprintf(stderr, "ashlar: --var %s: NAME=N or NAME=MIN..MAX is expected\n", text);
        return false;
    }
    snprintf(name, size, "%.*s", (int)(equals - text), text);
    *out = (ash_onnx_var){name, min, max};
    return true;
}

/* "name=file": the name goes to `name`; the file's place in the text, or NULL. */
static const char *split(const char *option, const char *text, char *name, size_t size) {
    const char *equals = strrchr(text, '=');
    if (!equals || (size_t)(equals - text) >= size) {
        fprintf(stderr, "ashlar: %s %s: NAME=FILE is expected\n", option, text);
        return NULL;
    }
    snprintf(name, size, "%.*s", (int)(equals - text), text);
    return equals + 1;
}

static bool read_graph(struct session *s, const ash_onnx_options *options) {
    if (ash_onnx_read(s->context, s->path, options, &s->graph, &s->diag) != ASH_OK)
        return session_failed(s, s->path);
    return true;
}

static bool load_graph(struct session *s) {
    static char names[LIST_ROOM][256], inputs[LIST_ROOM][256];
    ash_onnx_var vars[LIST_ROOM];
    ash_onnx_bind binds[LIST_ROOM];
    ash_tensor *tensors[LIST_ROOM] = {NULL};
    for (size_t i = 0; i < s->vars.count; i++)
        if (!read_var(s->vars.at[i], &vars[i], names[i], sizeof names[i])) return false;
    bool good = true;
    for (size_t i = 0; good && i < s->binds.count; i++) {
        const char *file = split("--bind", s->binds.at[i], inputs[i], sizeof inputs[i]);
        good = file != NULL;
        if (good && ash_tensor_read(s->context, file, &tensors[i], &s->diag) != ASH_OK)
            good = session_failed(s, file);
        binds[i] = (ash_onnx_bind){inputs[i], tensors[i]};
    }
    ash_onnx_options options = {.vars = vars,
                                .n_vars = s->vars.count,
                                .var_min = 1,
                                .var_max = 1,
                                .binds = binds,
                                .n_binds = s->binds.count};
    good = good && read_graph(s, &options);
    for (size_t i = 0; i < s->binds.count; i++) ash_tensor_destroy(tensors[i]);
    return good;
}

bool session_open(struct session *s, const char *path) {
    char room[1024];
    s->path = path;
    catch_interrupts(s);
    if (s->status != ASH_OK) return session_failed(s, "environment");
    ash_context_options options = {.threads = s->threads,
                                   .cache_dir = cache_dir(s, room, sizeof room),
                                   .log = s->verbose ? log_all : log_line};
    if (ash_context_create(&options, &s->context, &s->diag) != ASH_OK) return session_failed(s, "context");
    return load_graph(s);
}

bool session_prepare(struct session *s) {
    if (ash_plan_prepare(s->context, s->graph, &s->plan_options, &s->plan, &s->diag) != ASH_OK)
        return session_failed(s, s->path);
    return true;
}

void session_close(struct session *s) {
    ash_plan_destroy(s->plan);
    ash_graph_destroy(s->graph);
    ash_context_destroy(s->context);
    s->plan = NULL, s->graph = NULL, s->context = NULL;
}

/* --- inputs ----------------------------------------------------------------------------------- */

bool session_set_input(struct session *s, size_t position, const ash_tensor *tensor) {
    ash_type want;
    const ash_type *have = ash_tensor_type(tensor);
    const char *name = ash_plan_input_name(s->plan, position);
    if (ash_plan_input_type(s->plan, position, &want, &s->diag) != ASH_OK) return session_failed(s, name);
    bool same = want.dtype == have->dtype && want.rank == have->rank;
    for (unsigned i = 0; same && i < want.rank; i++) same = want.dims[i] == have->dims[i];
    if (!same) {
        fprintf(stderr, "ashlar: input %s is %s, the file has %s; --var sets the size of a dynamic dim\n",
                name, show_type(&want).text, show_type(have).text);
        return false;
    }
    if (ash_plan_set_input(s->plan, position, ash_tensor_data(tensor), ash_tensor_size(tensor), &s->diag) !=
        ASH_OK)
        return session_failed(s, name);
    return true;
}

static bool set_from_file(struct session *s, const char *text, bool *set) {
    char name[512];
    size_t position = 0;
    const char *file = split("--input", text, name, sizeof name);
    if (!file) return false;
    if (ash_plan_input_position(s->plan, name, &position, &s->diag) != ASH_OK)
        return session_failed(s, text);
    ash_tensor *tensor;
    if (ash_tensor_read(s->context, file, &tensor, &s->diag) != ASH_OK) return session_failed(s, file);
    set[position] = session_set_input(s, position, tensor);
    ash_tensor_destroy(tensor);
    return set[position];
}

/* xorshift64*: the same numbers everywhere. */
static uint64_t next_random(uint64_t *state) {
    *state ^= *state >> 12, *state ^= *state << 25, *state ^= *state >> 27;
    return *state * 0x2545f4914f6cdd1dULL;
}

/* Floating point numbers within [-1, 1), whole ones and truth values from 0 to 1: valid as indices, masks
 * and lengths. */
static void put_random(ash_dtype dtype, void *data, uint64_t i, uint64_t bits) {
    double unit = (double)(bits >> 11) / (double)(1ULL << 53) * 2 - 1;
    float single = (float)unit;
    uint32_t raw;
    memcpy(&raw, &single, sizeof raw);
    uint32_t exponent = (raw >> 23 & 0xff);
    uint16_t half = exponent < 113
                        ? 0
                        : (uint16_t)((raw >> 16 & 0x8000) | ((exponent - 112) << 10) | (raw >> 13 & 0x3ff));
    switch (dtype) {
    case ASH_F64: ((double *)data)[i] = unit; break;
    case ASH_F32: ((float *)data)[i] = single; break;
    case ASH_F16: ((uint16_t *)data)[i] = half; break;
    case ASH_BF16: ((uint16_t *)data)[i] = (uint16_t)(raw >> 16); break;
    default: {
        size_t size = ash_dtype_size(dtype);
        uint64_t value = bits >> 63;
        memcpy((char *)data + i * size, &value, size); /* little endian, as every target is */
    }
    }
}

static bool set_random(struct session *s, size_t position, uint64_t *state) {
    ash_view *view;
    void *data;
    if (ash_plan_input(s->plan, position, &view, &s->diag) != ASH_OK ||
        ash_view_data_mut(view, &data, &s->diag) != ASH_OK)
        return session_failed(s, ash_plan_input_name(s->plan, position));
    ash_dtype dtype = ash_view_type(view)->dtype;
    uint64_t count = ash_view_bytes(view) / ash_dtype_size(dtype);
    for (uint64_t i = 0; i < count; i++) put_random(dtype, data, i, next_random(state));
    return true;
}

bool session_fill_inputs(struct session *s) {
    size_t count = ash_plan_input_count(s->plan);
    bool *set = calloc(count + 1, sizeof *set);
    if (!set) {
        fprintf(stderr, "ashlar: out of memory\n");
        return false;
    }
    uint64_t state = 0x9e3779b97f4a7c15ULL * (s->seed + 1ULL);
    bool good = true;
    for (size_t i = 0; good && i < s->inputs.count; i++) good = set_from_file(s, s->inputs.at[i], set);
    for (size_t i = 0; good && i < count; i++)
        if (!set[i]) good = set_random(s, i, &state);
    free(set);
    return good;
}
