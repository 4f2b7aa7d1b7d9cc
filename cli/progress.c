/* SPDX-License-Identifier: MIT */
/* How far a long preparation is: one line on the terminal, written over and over and wiped at the end.
 * Nothing where standard error is no terminal, and nothing for what is over soon. */
#include <unistd.h>

#include "cli.h"

enum { QUIET_MS = 200, EVERY_MS = 100 };

static struct {
    int64_t begin, last; /* ns; `last` is 0 while nothing is shown */
    bool terminal;
} line;

/* Past the stream, which would escape what moves the cursor. */
static void put(const char *text, size_t size) {
    fflush(stderr);
    if (write(STDERR_FILENO, text, size) < 0) line.terminal = false;
}

static bool report(void *user, ash_stage stage, uint64_t done, uint64_t total) {
    (void)user;
    int64_t now = now_ns();
    char text[128];
    if (!line.terminal || now - line.begin < QUIET_MS * 1000000LL || now - line.last < EVERY_MS * 1000000LL)
        return true;
    line.last = now;
    int size =
        snprintf(text, sizeof text, "\r\033[K%s: %llu of %llu, %.0f s", ash_stage_text(stage),
                 (unsigned long long)done, (unsigned long long)total, (double)(now - line.begin) / 1e9);
    put(text, (size_t)size);
    return true;
}

void progress_begin(ash_progress *progress) {
    line.terminal = isatty(STDERR_FILENO);
    line.begin = now_ns();
    line.last = 0;
    progress->report = line.terminal ? report : NULL;
}

void progress_say(const char *text) {
    const int64_t now = now_ns();
    char whole[256];
    line.terminal = isatty(STDERR_FILENO);
    if (!line.terminal || (line.last && now - line.last < EVERY_MS * 1000000LL)) return;
    line.last = now;
    put(whole, (size_t)snprintf(whole, sizeof whole, "\r\033[K%.200s", text));
}

void progress_wipe(void) {
    static const char wipe[] = "\r\033[K";
    if (line.terminal && line.last) put(wipe, sizeof wipe - 1);
    line.terminal = false;
    line.last = 0;
}

void progress_end(ash_progress *progress) {
    progress->report = NULL;
    progress_wipe(); /* a plan keeps the function that it was prepared with */
}
