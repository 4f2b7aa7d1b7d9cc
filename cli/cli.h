/* SPDX-License-Identifier: MIT */
/* What the commands share. The command line sees the public headers alone. */
#ifndef ASHLAR_CLI_H
#define ASHLAR_CLI_H

#include <stdbool.h>
#include <stdio.h>

#include "ashlar/memory_report.h"
#include "ashlar/onnx.h"
#include "ashlar/plan.h"
#include "ashlar/reference.h"

#define COUNT(a) (sizeof(a) / sizeof((a)[0]))

/* Exit statuses: a wrong result and a failed call are 1, a wrong command line is 2. */
enum { EXIT_GOOD = 0, EXIT_BAD = 1, EXIT_USAGE = 2 };

/* --- commands: one file each ------------------------------------------------------------------ */

int cmd_run(int argc, char **argv);
int cmd_plan(int argc, char **argv);
int cmd_profile(int argc, char **argv);
int cmd_bench(int argc, char **argv);
int cmd_devices(int argc, char **argv);
int cmd_inspect(int argc, char **argv);
int cmd_pack(int argc, char **argv);
int cmd_train(int argc, char **argv);

/* --- standard streams: output.c --------------------------------------------------------------- */

/* From here on what is printed is made harmless for a terminal; false when there is no memory for it. */
bool output_open(void);
/* Ends the output. The exit status, which is a bad one when something could not be written. */
int output_close(int status);

/* --- options: options.c ----------------------------------------------------------------------- */

typedef enum option_kind {
    OPTION_FLAG,      /* bool: true when given */
    OPTION_UINT,      /* unsigned */
    OPTION_BYTES,     /* struct limits: "512", "64k", "1.5G", "1G,512M" */
    OPTION_REAL,      /* double, not below 0 */
    OPTION_TEXT,      /* const char * */
    OPTION_LIST,      /* struct list: may be given again */
    OPTION_MODE,      /* ash_memory_mode */
    OPTION_STRATEGY,  /* ash_memory_strategy */
    OPTION_EXECUTION, /* struct execution: "graph", "multi_stream=2" */
    OPTION_ORDER,     /* ash_plan_order */
    OPTION_PRECISION  /* ash_precision */
} option_kind;

enum { LIST_ROOM = 64 };

struct list {
    const char *at[LIST_ROOM];
    size_t count;
};

/* Numbers of bytes, one for each device. */
struct limits {
    uint64_t at[ASH_MOST_DEVICES];
    size_t count;
};

/* One row of a command's options: parsed and shown in its help. */
struct option {
    const char *name, *value, *help; /* "--threads", "N" or NULL, a sentence */
    option_kind kind;
    void *target;
};

/* Reads options into their targets; other words go to `words`. Prints what is wrong, or the help when it is
 * asked for. True: go on; false: leave with *exit_status. */
bool options_read(int argc, char **argv, const char *usage, const struct option *const *tables,
                  struct list *words, int *exit_status);

/* "name=file", the value of `option`: the name goes to `name`; the file's place in the text, or NULL after
 * a message. */
const char *split_option(const char *option, const char *text, char *name, size_t size);

/* --- sessions: session.c: a model, loaded and prepared ---------------------------------------- */

/* How a session executes. */
struct execution {
    ash_mode mode;
    unsigned streams;
    bool eager; /* prepared, executed and dropped at every call; the mode is stream then */
};

struct session {
    /* options */
    const char *cache, *device_name;
    bool no_cache, verbose;
    unsigned threads, seed;
    struct list vars, inputs, binds, places;
    struct execution execution;
    struct limits limits;
    ash_plan_options plan_options;
    /* what is made of them */
    ash_device *devices[ASH_MOST_DEVICES]; /* of --place, the main one first */
    ash_place_rule rules[LIST_ROOM];
    char patterns[LIST_ROOM][128]; /* their texts */
    const char *path;
    bool parameters;              /* the model's floating point initializers are parameters */
    const ash_onnx_shape *shapes; /* of inputs that are going to be given, or NULL */
    size_t n_shapes;
    const char *check; /* folder with inputs and expected outputs, or NULL */
    char unsaid[512];  /* names of dims whose sizes nobody has said, so that they are 1; or "" */
    int check_set;     /* number of the set in it whose inputs tell the sizes of dynamic dims */
    ash_context *context;
    ash_graph *graph;
    ash_plan *plan;         /* NULL in mode eager */
    ash_plan_report report; /* of the plan, or of that of the last eager call */
    ash_tensor **given;     /* mode eager: the inputs */
    ash_tensor **results;   /* and the outputs of the last call */
    ash_var_binding *sizes; /* what inputs have said of the graph's variables; NULL: nothing */
    size_t n_sizes;
    void **fetched; /* copies of inputs, then of outputs, that lie on a device; NULL: none yet */
    ash_diag diag;
    ash_status status; /* of reading the environment; told when the session is opened */
};

/* The planner's options come from the environment (ASHLAR_ARENA_NO_REUSE=1 and the like) where it has
 * any. */
struct session session_defaults(void);
/* Rows for the options above; they point into `session`. Of COUNT SESSION_OPTIONS, and an end. */
enum { SESSION_OPTIONS = 23 };
void session_options(struct session *session, struct option rows[SESSION_OPTIONS + 1]);
bool session_open(struct session *session, const char *path);  /* the next two; prints why not */
bool session_start(struct session *session, const char *path); /* the context */
bool session_load(struct session *session);                    /* and the graph */
bool session_prepare(struct session *session);                 /* and the plan; prints why not */
void session_close(struct session *session);
/* Opens the session anew, with the sizes of another set of inputs; prints why not. */
bool session_reopen(struct session *session, int check_set);
/* Whether Ctrl-C was pressed. */
bool session_interrupted(void);
/* Prints the session's diagnostic after what could not be done, and returns false. */
bool session_failed(const struct session *session, const char *what);
/* Lists a graph's inputs with their types on standard error, to the end of the line. */
void tell_inputs(const struct session *s, const ash_graph *graph);

/* --- progress: progress.c --------------------------------------------------------------------- */

/* Shows from here on, on a terminal, how far work is that takes long; and no longer. */
void progress_begin(ash_progress *progress);
void progress_end(ash_progress *progress);
/* The same line with a text of one's own, where it is a terminal, and at most ten times a second; and away
 * with it. */
void progress_say(const char *text);
void progress_wipe(void);

/* --- tensors from files: npz.c ---------------------------------------------------------------- */

/* As ash_tensor_read, and from .npz archives: of FILE.npz:ARRAY that array, of FILE.npz the one that is
 * called `name`, or the only one. */
ash_status read_tensor(ash_context *context, const char *file, const char *name, ash_tensor **out,
                       ash_diag *diag);

/* --- inputs, outputs, executions: values.c, in every mode; each prints why not -------------------- */

/* After session_open: prepares, unless the mode is eager. */
bool session_ready(struct session *session);
bool session_execute(struct session *session);
void session_drop_values(struct session *session);
/* Sets every input: from `--input` files, the rest with seeded random numbers. */
bool session_fill_inputs(struct session *session);
/* Whether a tensor has the dtype of an input, and a shape that it can have. */
bool session_fits(const struct session *session, size_t position, const ash_tensor *tensor);
/* Sets inputs, an entry per input of the graph (NULL: not given), and before that variables to the values
 * that their shapes say. Destroys the tensors, and leaves NULLs. */
bool session_set_inputs(struct session *session, ash_tensor **tensors);
/* False, without a message, when there is no such input. */
bool session_find_input(const struct session *session, const char *name, size_t *position);
/* The bytes that an input was given. */
bool session_input(struct session *session, size_t position, const void **data);

struct output {
    const char *name;
    ash_type type;
    const void *data;
    uint64_t bytes;
};

/* An output of the last execution, borrowed until the next. */
bool session_output(struct session *session, size_t position, struct output *out);

/* --- showing: show.c -------------------------------------------------------------------------- */

struct line {
    char text[128];
};

struct line show_bytes(uint64_t bytes);    /* "1.5 GB": decimal units */
struct line show_time(double nanoseconds); /* "12.3 ms" */
struct line show_count(double count);      /* "3.2 G" */
struct line show_type(const ash_type *type);
/* A text in so many columns, cut where it is longer: on the right of them, or on the left where `width` is
 * negative. At most 60 columns. */
struct line show_padded(const char *text, int width);
void show_output(const struct output *output);
void show_devices(ash_plan *plan); /* where there are several */
void show_prepare(const struct session *session);
void show_memory(const ash_plan_report *report);
void show_training(const ash_plan_training *training); /* of a step, or nothing */
void show_order(const ash_plan_report *report);        /* what was done to meet --max-memory, if anything */
void show_resident(void);     /* what the process has of the machine's memory, now and at most */
uint64_t peak_resident(void); /* bytes */
int64_t now_ns(void);

/* An element of a row-major array as a number. */
double element(ash_dtype dtype, const void *data, uint64_t index);

/* --- buffers: buffers.c ------------------------------------------------------------------------- */

/* A table of the buffers: role, type, bytes, place, life, who writes and who reads them. */
bool show_buffers(struct session *session);

/* Where a buffer's bytes come from: its own name, or what the first operation that writes it computes. */
struct line buffer_maker(ash_plan *plan, uint32_t buffer);

/* --- profiles: profile.c -------------------------------------------------------------------------- */

/* Executes the session's plan some times on the inputs that it has, and shows the time of its operations.
 * */
bool show_profile(struct session *session);

/* --- the memory timeline: timeline.c -------------------------------------------------------------- */

/* The live bytes over the operations, and who stands at the peak. */
bool show_timeline(struct session *session);

/* --- forecasts: explain.c -------------------------------------------------------------------------- */

/* A table of what each operation is expected to take on a GPU; false: the plan is for none. */
bool show_forecast(struct session *session);

/* --- traces: trace.c ------------------------------------------------------------------------------ */

/* One execution in the Chrome trace format, which Perfetto opens; false after a message. */
bool write_trace(struct session *session, const char *path);

/* --- memory: memory.c ------------------------------------------------------------------------- */

/* Writes a report of the plan's memory to a file; false after a message. */
bool write_memory(struct session *session, ash_memory_format format, const char *path);
/* Plans the model's memory by every strategy, and once more in the order that takes least; prints one row
 * per model. */
bool compare_memory(struct session *session);

/* --- checking: check.c ------------------------------------------------------------------------ */

/* Runs each test_data_set_* of a folder and compares; the number of outputs that differ, or -1. */
int check_folder(struct session *session, const char *folder);
/* Compares the results of the last execution with the reference evaluator's; the number of outputs that
 * differ, or -1. */
int check_reference(struct session *session);

/* --- timing: timing.c ------------------------------------------------------------------------- */

struct timing {
    double median, least, most, p90; /* nanoseconds */
    unsigned runs;
};

/* Executes `runs` times after one that is not counted; false when an execution fails. */
bool time_runs(struct session *session, unsigned runs, struct timing *out);

#endif
