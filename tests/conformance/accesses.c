/* SPDX-License-Identifier: MIT */
#include "accesses.h"

#include <dlfcn.h>
#include <fnmatch.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../ptx/ptx.h"

enum { MOST_ROWS = 256, LINE = 512 };

static struct {
    char pattern[128], what[16];
    int used;
} rows[MOST_ROWS];
static int n_rows;
static void (*counters_read)(const char *, ptx_counters *);
static void (*counters_reset)(void);

bool accesses_open(const char *path) {
    const char *driver = getenv("ASHLAR_CUDA_DRIVER");
    void *library = driver ? dlopen(driver, RTLD_NOW) : NULL;
    char line[LINE];
    int at = 0;
    if (library) {
        *(void **)&counters_read = dlsym(library, "ptx_counters_read");
        *(void **)&counters_reset = dlsym(library, "ptx_counters_reset");
    }
    if (!counters_read || !counters_reset) return fprintf(stderr, "conformance: no stand-in\n"), false;
    FILE *file = fopen(path, "r");
    if (!file) return fprintf(stderr, "conformance: cannot read %s\n", path), false;
    while (fgets(line, sizeof line, file) && n_rows < MOST_ROWS) {
        at = 0;
        if (line[0] == '#' || line[0] == '\n') continue;
        if (sscanf(line, "%127s %15s %n", rows[n_rows].pattern, rows[n_rows].what, &at) != 2 || !line[at]) {
            fprintf(stderr, "conformance: no row: %s", line);
            return fclose(file), false;
        }
        n_rows++;
    }
    return fclose(file), true;
}

void accesses_begin(void) {
    if (counters_reset) counters_reset();
}

static bool excused(const char *name, const char *what) {
    bool found = false;
    for (int i = 0; i < n_rows; i++)
        if (!strcmp(rows[i].what, what) && !fnmatch(rows[i].pattern, name, 0)) rows[i].used++, found = true;
    return found;
}

bool accesses_end(const char *name, char *why, size_t size) {
    ptx_counters c;
    if (!counters_read) return true;
    counters_read(NULL, &c);
    const unsigned long long scattered = c.global_load.scattered + c.global_store.scattered,
                             by_one = c.global_load.by_one + c.global_store.by_one,
                             conflicts = c.shared_load.conflicts + c.shared_store.conflicts +
                                         c.matrix_load.conflicts;
    const bool let_pass = scattered && scattered == by_one && excused(name, "by_one");
    if (scattered && !let_pass && !excused(name, "scattered"))
        return snprintf(why, size, "%llu scattered sectors, %llu by one, of %llu", scattered, by_one,
                        (unsigned long long)(c.global_load.sectors + c.global_store.sectors)),
               false;
    if (conflicts && !excused(name, "conflicts"))
        return snprintf(why, size, "%llu conflicts of banks", conflicts), false;
    return true;
}

int accesses_unused(void) {
    int unused = 0;
    for (int i = 0; i < n_rows; i++) {
        if (rows[i].used) continue;
        printf("nothing is excused by %s %s\n", rows[i].pattern, rows[i].what);
        unused++;
    }
    return unused;
}
