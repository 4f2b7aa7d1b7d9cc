/* SPDX-License-Identifier: MIT */
/* NULL for every pointer argument of every exported function, one at a time, each in a process of its own:
 * nothing may crash, and the answer is the one that ashlar/status.h promises. The functions and their
 * arguments come from the public headers (tools/api.sh writes the rows that this file includes), so a new
 * function is judged as soon as it is declared. The other arguments are objects that exist, small numbers,
 * and what else is pointed at is zeroed: more is not needed, since NULL is refused before anything else is
 * looked at. */
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "ashlar/builder.h"
#include "ashlar/dlpack.h"
#include "ashlar/function.h"
#include "ashlar/memory_report.h"
#include "ashlar/onnx.h"
#include "ashlar/plan.h"
#include "ashlar/reference.h"
#include "ashlar/train.h"
#include "ashlar/version.h"
#include "testing.h"

/* Arguments that may be NULL, as the headers say, beside every `diag` and `options`. In functions that
 * return no status these are all places for results, too. */
static const char *const optional[] = {
    "ash_context_destroy.context",
    "ash_conv_transpose.extra",
    "ash_diag_format.out",
    "ash_graph_accumulate.name",
    "ash_graph_create.name",
    "ash_graph_gradients.seeds",
    "ash_graph_name_next.name",
    "ash_memory_check.report",
    "ash_memory_order_search.progress",
    "ash_memory_order_search.report",
    "ash_memory_schedule_check.report",
    "ash_plan_bind_arena.memory",
    "ash_plan_bind_input.type",
    "ash_plan_bind_weights.memory",
    "ash_plan_on_release.hook",
    "ash_plan_release_all.released",
    "ash_plan_bind_arena_view.view",
    "ash_plan_load_states.note",
    "ash_plan_save_states.note",
    "ash_plan_bind_state.memory",
    "ash_plan_bind_state_view.view",
    "ash_plan_bind_weights_view.view",
    "ash_plan_release_originals.released",
    "ash_plan_set_input.type",
    "ash_plan_set_parameter.type",
    "ash_plan_set_state.type",
    "ash_plan_release_intermediates.released",
    "ash_plan_share_states.shared",
    "ash_reference_step.states",
    "ash_slice.steps",
    "ash_tensor_create.name",
    "ash_tensor_from_view.name",
};

/* Arguments named `options` that must be there all the same. */
static const char *const needed[] = {"ash_memory_options_from_environment.options",
                                     "ash_plan_prepare_pair.options"};

/* Headers of which some functions are known to fail. */
static const char *const pending[] = {""};

/* --- what functions are given ----------------------------------------------------------------- */

static struct {
    ash_context *context;
    ash_graph *graph;
    ash_plan *plan;
    ash_device *device;
    ash_storage *storage;
    ash_view *view;
    ash_tensor *tensor;
    ash_reference *reference;
    ash_memory_plan *memory_plan;
    ash_memory_csv *csv;
} made;

static ash_diag diag;
static _Alignas(64) char room[1 << 14]; /* places for results, and zeroed structs */
static bool builds;                     /* the call has a graph that keeps its first failure */

static bool is_handle(const char *type, void **out) {
#define HANDLE(T, member)                                                                                  \
    if (!strcmp(type, #T " *") || !strcmp(type, "const " #T " *")) return *out = made.member, true
    HANDLE(ash_context, context);
    HANDLE(ash_graph, graph);
    HANDLE(ash_plan, plan);
    HANDLE(ash_device, device);
    HANDLE(ash_storage, storage);
    HANDLE(ash_view, view);
    HANDLE(ash_tensor, tensor);
    HANDLE(ash_reference, reference);
    HANDLE(ash_memory_plan, memory_plan);
    HANDLE(ash_memory_csv, csv);
#undef HANDLE
    *out = NULL;
    return false;
}

static void *give(const char *type, const char *name) {
    static ash_memory_schedule schedule = {.op_count = 1};
    static char word[] = "x", path[] = "/nonexistent/ashlar/x.npy";
    void *handle;
    builds |= !strcmp(type, "ash_graph *");
    if (is_handle(type, &handle)) return handle;
    if (!strcmp(type, "const ash_memory_problem *")) return (void *)ash_memory_csv_problem(made.csv);
    if (!strcmp(type, "const ash_memory_schedule *")) return &schedule;
    if (!strcmp(type, "ash_diag *")) return &diag;
    if (!strcmp(name, "path")) return path;
    return strcmp(type, "const char *") ? room : word;
}

/* Counts are 1, so that lists are needed; what chooses among things is the first. */
static int number(const char *name) {
    static const char *const choices[] = {"position", "index", "arena", "kernel", "mode", "offset"};
    for (size_t i = 0; i < sizeof choices / sizeof *choices; i++)
        if (!strcmp(name, choices[i])) return 0;
    return 1;
}

/* --- what they answer ------------------------------------------------------------------------- */

typedef struct answer {
    bool status, neutral; /* the function returns a status; what it returned is its neutral result */
    ash_status code;
} answer;

static answer status_answer(ash_status code) {
    return (answer){.status = true, .code = code};
}

/* Zero in all bytes, but for ids and for what cannot be an index. */
static answer value_answer(const char *function, const char *type, const void *result, size_t size) {
    static const unsigned char zeros[512];
    ash_value none = ASH_NO_VALUE;
    int64_t no_index = -1;
    assert_true(size <= sizeof zeros);
    const void *neutral = zeros;
    if (!strcmp(type, "ash_value")) neutral = &none;
    if (!strcmp(function, "ash_context_find_function")) neutral = &no_index;
    return (answer){.neutral = memcmp(result, neutral, size) == 0};
}

#define PTR(i, T, name) (null == (i) ? (T)0 : (T)give(#T, #name))
#define NUM(i, T, name) ((T)number(#name))

#define STATUS(header, T, f, args, names)                                                                  \
    static answer call_##f(int null) {                                                                     \
        (void)null;                                                                                        \
        return status_answer(f args);                                                                      \
    }
#define VALUE(header, T, f, args, names)                                                                   \
    static answer call_##f(int null) {                                                                     \
        (void)null;                                                                                        \
        T result = f args;                                                                                 \
        return value_answer(#f, #T, &result, sizeof result);                                               \
    }
#define NOTHING(header, T, f, args, names)                                                                 \
    static answer call_##f(int null) {                                                                     \
        (void)null;                                                                                        \
        f args;                                                                                            \
        return (answer){.neutral = true};                                                                  \
    }
#define SIZED(header, T)
#include "api_rows.h"
#undef STATUS
#undef VALUE
#undef NOTHING
#undef PTR
#undef NUM

typedef struct row {
    const char *header, *function, *args, *names; /* "(PTR(0, T *, a), NUM(1, U, b))" and "*a b" */
    answer (*call)(int null);
} row;

#define STATUS(header, T, f, args, names)  {#header, #f, #args, names, call_##f},
#define VALUE(header, T, f, args, names)   {#header, #f, #args, names, call_##f},
#define NOTHING(header, T, f, args, names) {#header, #f, #args, names, call_##f},
static const row rows[] = {
#include "api_rows.h"
};

/* --- one case --------------------------------------------------------------------------------- */

#define IS_IN(list, key) is_in((list), sizeof(list) / sizeof *(list), (key))

static bool is_in(const char *const *list, size_t count, const char *key) {
    for (size_t i = 0; i < count; i++)
        if (!strcmp(list[i], key)) return true;
    return false;
}

/* A place for a result: what it points at is no object of the library and can be written. */
static bool is_place(const row *r, int at) {
    char key[32], type[96];
    void *handle;
    snprintf(key, sizeof key, "PTR(%d, ", at);
    const char *start = strstr(r->args, key);
    if (!start) return false;
    start += strlen(key);
    snprintf(type, sizeof type, "%.*s", (int)strcspn(start, ","), start);
    bool written = strncmp(type, "const ", 6) != 0 || strstr(type, "**") != NULL;
    return written && !is_handle(type, &handle);
}

static bool may_be_null(const row *r, int at, const char *name, const char *key, bool status) {
    if (IS_IN(needed, key)) return false;
    return !strcmp(name, "diag") || !strcmp(name, "options") || IS_IN(optional, key) ||
           (!status && is_place(r, at));
}

/* In a process of its own. 0: as promised; otherwise what was wrong is printed. */
static int judge(const row *r, int at, const char *name, const char *key) {
    ash_diag_clear(&diag);
    answer a = r->call(at);
    bool graph_is_null = !strcmp(name, "graph");
    if (may_be_null(r, at, name, key, a.status)) return 0;
    if (!a.status && !a.neutral) {
        printf("%s: the result is not the neutral one\n", key);
        return 1;
    }
    if (!a.status && (!builds || graph_is_null)) return 0;
    ash_status code = a.status ? a.code : ASH_ERROR_INVALID_ARGUMENT;
    if (builds && !graph_is_null && !diag.code) { /* failures of building calls are kept in the graph */
        ash_status kept = ash_graph_status(made.graph, &diag);
        if (!a.status) code = kept;
    }
    if (code != ASH_ERROR_INVALID_ARGUMENT) {
        printf("%s: status %s (%s)\n", key, ash_status_text(code), diag.message);
        return 1;
    }
    bool silent = graph_is_null && !strstr(r->names, "*diag"); /* nowhere to say it */
    if (silent || strstr(diag.message, name)) return 0;
    printf("%s: \"%s\" does not name it\n", key, diag.message);
    return 1;
}

static bool passes(const row *r, int at, const char *name, const char *key) {
    int code;
    fflush(NULL);
    pid_t child = fork();
    assert_true(child >= 0);
    if (!child) {
        static const int signals[] = {SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGABRT};
        for (size_t i = 0; i < sizeof signals / sizeof *signals; i++) signal(signals[i], SIG_DFL);
        alarm(20);
        code = judge(r, at, name, key);
        fflush(NULL);
        _exit(code);
    }
    assert_true(waitpid(child, &code, 0) == child);
    if (WIFSIGNALED(code)) printf("%s: signal %d\n", key, WTERMSIG(code));
    return WIFEXITED(code) && WEXITSTATUS(code) == 0;
}

static void null_is_an_error_and_never_a_crash(void **state) {
    (void)state;
    int cases = 0, failed = 0, known = 0;
    for (size_t f = 0; f < sizeof rows / sizeof *rows; f++) {
        const char *at = rows[f].names;
        for (int i = 0; *at; i++) {
            char name[64], key[160];
            int length = (int)strcspn(at, " ");
            snprintf(name, sizeof name, "%.*s", length, at);
            at += length + (at[length] == ' ');
            if (*name != '*') continue;
            snprintf(key, sizeof key, "%s.%s", rows[f].function, name + 1);
            bool good = passes(&rows[f], i, name + 1, key), expected = IS_IN(pending, rows[f].header);
            cases++;
            known += !good && expected;
            failed += !good && !expected;
        }
    }
    print_message("%d arguments of %zu functions, %d pending\n", cases, sizeof rows / sizeof *rows, known);
    assert_true(cases > 300);
    assert_int_equal(failed, 0);
}

/* --- the objects ------------------------------------------------------------------------------ */

static void make_graph(void) {
    ash_type type = {ASH_F32, 1, {4}};
    const float data[4] = {1, 2, 3, 4};
    assert_ok(ash_graph_create(made.context, "g", &made.graph, &diag));
    ash_value x = ash_graph_input(made.graph, "x", &type);
    ash_value w = ash_graph_parameter(made.graph, "w", &type, data, sizeof data, ASH_DATA_COPY);
    ash_value s = ash_graph_state(made.graph, "s", &type, NULL, 0, ASH_DATA_COPY);
    ash_graph_var(made.graph, "n", 1, 4);
    ash_value y = ash_add(made.graph, ash_mul(made.graph, x, w), s);
    ash_graph_update(made.graph, s, y);
    ash_graph_output(made.graph, "y", y);
    assert_ok(ash_graph_status(made.graph, &diag));
    const void *inputs[] = {data};
    assert_ok(ash_reference_run(made.graph, inputs, 1, NULL, NULL, 0, &made.reference, &diag));
    assert_ok(ash_tensor_create(made.context, "t", &type, data, sizeof data, &made.tensor, &diag));
    assert_ok(ash_device_open(made.context, "CPU", &made.device, &diag));
    assert_ok(ash_storage_create(made.device, sizeof data, 0, &made.storage, &diag));
    assert_ok(ash_view_create(made.storage, 0, sizeof data, &type, &made.view, &diag));
    assert_ok(ash_view_copy_in(made.view, data, sizeof data, &diag));
}

static int setup(void **state) {
    (void)state;
    const char text[] = "id,lower,upper,size\na,0,2,4\n";
    assert_ok(ash_context_create(&(ash_context_options){.threads = 1}, &made.context, &diag));
    make_graph();
    assert_ok(ash_plan_prepare(made.context, made.graph, NULL, &made.plan, &diag));
    assert_ok(ash_memory_csv_read(made.context, text, sizeof text - 1, &made.csv, &diag));
    assert_ok(ash_memory_plan_create(made.context, ash_memory_csv_problem(made.csv), NULL,
                                     &made.memory_plan, &diag));
    return 0;
}

static int teardown(void **state) {
    (void)state;
    ash_memory_csv_destroy(made.csv);
    ash_memory_plan_destroy(made.memory_plan);
    ash_plan_destroy(made.plan);
    ash_view_release(made.view);
    ash_storage_release(made.storage);
    ash_device_close(made.device);
    ash_tensor_destroy(made.tensor);
    ash_reference_destroy(made.reference);
    ash_graph_destroy(made.graph);
    ash_context_destroy(made.context);
    return 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(null_is_an_error_and_never_a_crash)};
    return cmocka_run_group_tests(tests, setup, teardown);
}
