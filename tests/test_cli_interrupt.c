/* SPDX-License-Identifier: MIT */
/* Ctrl-C while the command line executes a model: it ends with a message and status 1. */
#include "testing.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "ashlar/builder.h"
#include "ashlar/onnx.h"

static ash_diag diag;

static void write_model(const char *path) {
    ash_context *context;
    ash_graph *g;
    assert_ok(ash_context_create(NULL, &context, &diag));
    assert_ok(ash_graph_create(context, "net", &g, &diag));
    ash_type type = {.dtype = ASH_F32, .rank = 2, .dims = {16, 1024}};
    ash_value x = ash_graph_input(g, "x", &type);
    ash_graph_output(g, "y", ash_softmax(g, x, -1));
    assert_ok(ash_onnx_write(g, path, NULL, &diag));
    ash_graph_destroy(g);
    ash_context_destroy(context);
}

/* Minutes of executions, but for the signal. */
static pid_t start(const char *model, const char *out) {
    pid_t child = fork();
    assert_true(child >= 0);
    if (child) return child;
    int file = open(out, O_WRONLY | O_CREAT | O_TRUNC, 0666);
    dup2(file, 1);
    dup2(file, 2);
    signal(SIGINT, SIG_DFL);
    execl(ASH_CLI, "ashlar", "bench", "--no-cache", "--repeat", "20000000", model, (char *)NULL);
    _exit(9);
}

static void an_interrupt_stops_it(void **state) {
    (void)state;
    char folder[] = "/tmp/ashlar-interrupt-XXXXXX", model[64], out[64], text[1024];
    assert_non_null(mkdtemp(folder));
    snprintf(model, sizeof model, "%s/model.onnx", folder);
    snprintf(out, sizeof out, "%s/out", folder);
    write_model(model);
    int status = 0;
    for (unsigned seconds = 1; seconds < 30; seconds *= 3) { /* it has to be under way */
        pid_t child = start(model, out);
        sleep(seconds);
        assert_int_equal(kill(child, SIGINT), 0);
        assert_int_equal(waitpid(child, &status, 0), child);
        if (!WIFSIGNALED(status)) break;
    }
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 1);
    FILE *f = fopen(out, "r");
    assert_non_null(f);
    text[fread(text, 1, sizeof text - 1, f)] = 0;
    fclose(f);
    if (!strstr(text, "cancelled")) fail_msg("it said: %s", text);
    unlink(out);
    unlink(model);
    rmdir(folder);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(an_interrupt_stops_it)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
