/* SPDX-License-Identifier: MIT */
/* The system gives out addresses for more memory than there is, and ends the process that touches too much
 * of it. So what can never be had is known here: memory and swap of the machine, and what Linux's control
 * groups, in both of their versions, grant this process and each group around it. What is said of a group
 * that cannot be seen (a container sees its own as the root) is left out; no answer is no limit.
 *
 * Nothing here takes memory: it is asked when there may be none. */
#include "limit.h"

#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sysinfo.h>
#include <unistd.h>

enum { TEXT = 4096 }; /* most bytes of a file that are read, and of a path */

/* The start of a small file, terminated; false when there is none. */
static bool read_text(const char *path, char *out) {
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0) return false;
    ssize_t n = read(fd, out, TEXT - 1);
    close(fd);
    if (n < 0) return false;
    out[n] = '\0';
    return true;
}

/* The number in FOLDER/NAME; UINT64_MAX for "max", and when there is none. */
static uint64_t read_number(const char *folder, const char *name) {
    char path[TEXT], text[TEXT], *end;
    int len = snprintf(path, sizeof path, "%s/%s", folder, name);
    if (len < 0 || len >= TEXT || !read_text(path, text)) return UINT64_MAX;
    uint64_t value = strtoull(text, &end, 10);
    return end == text ? UINT64_MAX : value;
}

static uint64_t least(uint64_t a, uint64_t b) {
    return a < b ? a : b;
}

static uint64_t sum(uint64_t a, uint64_t b) {
    return a > UINT64_MAX - b ? UINT64_MAX : a + b;
}

/* What a group grants of memory and swap. */
static uint64_t granted(const char *folder, bool first_version, uint64_t memory, uint64_t swap) {
    uint64_t own = read_number(folder, first_version ? "memory.limit_in_bytes" : "memory.max");
    uint64_t both = first_version ? read_number(folder, "memory.memsw.limit_in_bytes") : UINT64_MAX;
    if (!first_version) swap = least(swap, read_number(folder, "memory.swap.max"));
    return least(both, sum(least(own, memory), swap));
}

/* The group at `path` and those around it. */
static uint64_t granted_along(const char *root, const char *path, bool first_version, uint64_t memory,
                              uint64_t swap) {
    char folder[TEXT];
    int len = snprintf(folder, sizeof folder, "%s%s%s", root, first_version ? "/memory" : "", path);
    if (len < 0 || len >= TEXT) return UINT64_MAX;
    size_t shortest = strlen(root) + (first_version ? strlen("/memory") : 0);
    uint64_t most = UINT64_MAX;
    for (;;) {
        most = least(most, granted(folder, first_version, memory, swap));
        char *slash = strrchr(folder, '/');
        if (!slash || (size_t)(slash - folder) < shortest) return most;
        *slash = '\0';
    }
}

/* A line is ID:CONTROLLERS:PATH, of the second version 0::PATH. */
static uint64_t granted_by_line(char *line, const char *root, uint64_t memory, uint64_t swap) {
    char *controllers = strchr(line, ':'), *path = controllers ? strchr(controllers + 1, ':') : NULL;
    if (!path) return UINT64_MAX;
    *path++ = '\0';
    controllers++;
    if (*controllers == '\0') return granted_along(root, path, false, memory, swap);
    for (char *rest = controllers, *name; (name = strsep(&rest, ","));)
        if (strcmp(name, "memory") == 0) return granted_along(root, path, true, memory, swap);
    return UINT64_MAX;
}

uint64_t ash_limit__groups(const char *groups, const char *root, uint64_t memory, uint64_t swap) {
    char text[TEXT];
    uint64_t most = sum(memory, swap);
    if (!read_text(groups, text)) return most;
    for (char *rest = text, *line; (line = strsep(&rest, "\n"));)
        most = least(most, granted_by_line(line, root, memory, swap));
    return most;
}

uint64_t ash_limit__memory(void) {
    struct sysinfo info;
    if (sysinfo(&info) != 0) return UINT64_MAX;
    return ash_limit__groups("/proc/self/cgroup", "/sys/fs/cgroup", (uint64_t)info.totalram * info.mem_unit,
                             (uint64_t)info.totalswap * info.mem_unit);
}
