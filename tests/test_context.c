/* SPDX-License-Identifier: MIT */
/* The context's options: which folder the kernel cache lies in, by the caller's wish and by the
 * environment. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <errno.h>
#include <sys/auxv.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/base.h"
#include "testing.h"

static ash_diag diag;

struct told {
    int lines;
    char last[256];
};

static void note(void *user, ash_log_level level, const char *message) {
    struct told *told = user;
    told->lines++;
    assert_int_equal(level, ASH_LOG_INFO);
    snprintf(told->last, sizeof told->last, "%s", message);
}

/* The folder of a context with this option; "" for none. */
static const char *folder(const char *wanted, struct told *told) {
    static char text[512];
    ash_context *context;
    ash_context_options options = {.cache_dir = wanted, .log = told ? note : NULL, .log_user = told};
    assert_ok(ash_context_create(&options, &context, &diag));
    const char *dir = ash_context__cache_dir(context);
    snprintf(text, sizeof text, "%s", dir ? dir : "");
    ash_context_destroy(context);
    return text;
}

static void set(const char *cache_dir, const char *xdg, const char *home) {
    const char *const names[] = {"ASHLAR_CACHE_DIR", "XDG_CACHE_HOME", "HOME"};
    const char *const values[] = {cache_dir, xdg, home};
    for (int i = 0; i < 3; i++)
        if (values[i])
            assert_int_equal(setenv(names[i], values[i], 1), 0);
        else
            assert_int_equal(unsetenv(names[i]), 0);
}

static void the_environment_names_the_folder(void **state) {
    (void)state;
    struct told told = {0};
    set(NULL, "/x/cache", "/home/x");
    assert_string_equal(folder(NULL, NULL), "/x/cache/ashlar");
    set(NULL, NULL, "/home/x");
    assert_string_equal(folder(NULL, NULL), "/home/x/.cache/ashlar");
    set(NULL, "", "/home/x");
    assert_string_equal(folder(NULL, NULL), "/home/x/.cache/ashlar");
    set(NULL, "here", "/home/x"); /* relative: means something else in every folder */
    assert_string_equal(folder(NULL, NULL), "/home/x/.cache/ashlar");
    set("/k", "/x/cache", "/home/x");
    assert_string_equal(folder(NULL, NULL), "/k");
    set("", "/x/cache", "/home/x");
    assert_string_equal(folder(NULL, NULL), "");
    assert_int_equal(told.lines, 0);
    set(NULL, NULL, NULL);
    assert_string_equal(folder(NULL, &told), "");
    assert_int_equal(told.lines, 1); /* it is said that kernels are not kept */
    set(NULL, NULL, "home");
    assert_string_equal(folder(NULL, NULL), "");
}

static void the_caller_names_the_folder(void **state) {
    (void)state;
    struct told told = {0};
    set("/k", "/x/cache", "/home/x");
    assert_string_equal(folder("/mine", &told), "/mine");
    assert_string_equal(folder("", &told), "");
    assert_int_equal(told.lines, 0);
}

/* --- with rights that the caller has not ------------------------------------------------------------- */

enum { TRUSTED = 10, OPEN = 11, NO_RIGHTS = 77 };

/* What this program is when it is run by the test below. */
static int say_what_is_trusted(void) {
    ash_context *context;
    if (!getauxval(AT_SECURE)) return NO_RIGHTS;
    if (ash_context_create(NULL, &context, NULL) != ASH_OK) return 1;
    bool trusted = ash_context__cache_dir(context) || ash_environment__get("ASHLAR_MEMORY_MODE");
    ash_context_destroy(context);
    return trusted ? TRUSTED : OPEN;
}

static void copy_program(const char *to) {
    char block[1 << 16];
    FILE *in = fopen("/proc/self/exe", "rb"), *out = fopen(to, "wb");
    assert_true(in && out);
    for (size_t n; (n = fread(block, 1, sizeof block, in)) > 0;)
        assert_int_equal(fwrite(block, 1, n, out), n);
    fclose(in);
    assert_int_equal(fclose(out), 0);
}

/* A program that belongs to another user and runs with that one's rights takes nothing from its caller's
 * environment. Needs root, and a folder where such programs may be. */
static void other_rights_trust_no_environment(void **state) {
    (void)state;
    char root[] = "/tmp/ashlar-test-XXXXXX", path[64];
    if (geteuid() != 0) skip();
    assert_non_null(mkdtemp(root));
    assert_int_equal(chmod(root, 0755), 0);
    snprintf(path, sizeof path, "%s/program", root);
    copy_program(path);
    assert_int_equal(chown(path, 12345, 12345), 0);
    assert_int_equal(chmod(path, 04755), 0);
    set("/k", "/x/cache", "/home/x");
    setenv("ASHLAR_MEMORY_MODE", "disabled", 1);
    pid_t child = fork();
    if (child == 0) {
        execl(path, path, "--trust", (char *)NULL);
        _exit(1);
    }
    int status;
    while (waitpid(child, &status, 0) < 0 && errno == EINTR) continue;
    unsetenv("ASHLAR_MEMORY_MODE");
    unlink(path);
    rmdir(root);
    assert_true(WIFEXITED(status));
    if (WEXITSTATUS(status) == NO_RIGHTS) skip();
    assert_int_equal(WEXITSTATUS(status), OPEN);
}

int main(int argc, char **argv) {
    /* No search for leaks at the end: it cannot be in a program with other rights. */
    if (argc == 2 && !strcmp(argv[1], "--trust")) _exit(say_what_is_trusted());
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_environment_names_the_folder),
        cmocka_unit_test(the_caller_names_the_folder),
        cmocka_unit_test(other_rights_trust_no_environment),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
