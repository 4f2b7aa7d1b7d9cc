/* SPDX-License-Identifier: MIT */
/* The program as a user meets it, in a folder of its own. */
#ifndef ASH_CLI_FIXTURE_H
#define ASH_CLI_FIXTURE_H

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "testing.h"

static struct {
    ash_context *context;
    char folder[64];
    char out[1 << 18]; /* of the last command, both streams */
} room;

static inline char *path_of(const char *name) {
    static char path[4][256];
    static int next;
    char *p = path[next++ % 4];
    snprintf(p, sizeof path[0], "%s/%s", room.folder, name);
    return p;
}

static inline void make_folder(void) {
    strcpy(room.folder, "/tmp/ashlar-cli-XXXXXX");
    assert_non_null(mkdtemp(room.folder));
}

static inline void remove_folder(void) {
    char command[128];
    snprintf(command, sizeof command, "rm -r %s", room.folder);
    assert_int_equal(system(command), 0);
}

static inline int teardown(void **state) {
    (void)state;
    remove_folder();
    ash_context_destroy(room.context);
    return 0;
}

/* Runs a command, whose output goes to room.out; the exit status. */
static inline int shell(const char *command) {
    FILE *pipe = popen(command, "r");
    assert_non_null(pipe);
    size_t len = fread(room.out, 1, sizeof room.out - 1, pipe);
    room.out[len] = 0;
    int status = pclose(pipe);
    assert_true(WIFEXITED(status));
    return WEXITSTATUS(status);
}

/* Runs "ashlar ARGUMENTS", where %s stands for the test's folder; the exit status. */
static inline int ashlar(const char *arguments) {
    char command[1024], words[800];
    snprintf(words, sizeof words, arguments, room.folder, room.folder, room.folder);
    snprintf(command, sizeof command, "%s %s 2>&1", ASH_CLI, words);
    return shell(command);
}

/* Reads a file of the folder into room.out. */
static inline void read_back(const char *name) {
    FILE *f = fopen(path_of(name), "r");
    assert_non_null(f);
    size_t len = fread(room.out, 1, sizeof room.out - 1, f);
    assert_true(feof(f));
    fclose(f);
    room.out[len] = 0;
}

static inline bool said(const char *text) {
    return strstr(room.out, text) != NULL;
}

static inline void says(const char *text) {
    if (!said(text)) fail_msg("\"%s\" is missing in:\n%s", text, room.out);
}

#endif
