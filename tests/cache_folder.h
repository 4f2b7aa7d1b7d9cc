/* SPDX-License-Identifier: MIT */
/* What tests of the kernel cache share: small kernels, and a folder that is gone afterwards. */
#ifndef ASH_CACHE_FOLDER_H
#define ASH_CACHE_FOLDER_H

#include <dirent.h>
#include <sys/stat.h>
#include <unistd.h>

#include "test_code_nest.h"

/* y[0] = x[0] * factor + repeats more additions: as many different kernels as there are factors. */
static inline ash_nest small_in(const ash_allocator *a, int factor, int repeats) {
    ash_nest n;
    ash_nest_init(&n, a);
    uint16_t x = test_buffer(&n, ASH_I32, false), y = test_buffer(&n, ASH_I32, true);
    ash_ref zero = ash_nest_index(&n, 0), v = ash_nest_load(&n, x, zero, 1, ASH_NO_REF);
    v = ash_nest_binary(&n, ASH_OP_MUL, v, ash_nest_int(&n, ASH_I32, factor));
    for (int k = 0; k < repeats; k++) v = test_add(&n, v, ash_nest_int(&n, ASH_I32, 1));
    ash_nest_store(&n, y, zero, v, ASH_NO_REF);
    return n;
}

static inline ash_nest small(int factor, int repeats) {
    return small_in(&ash_allocator__libc, factor, repeats);
}

static inline void expect(ash_kernel_fn fn, int factor, int repeats) {
    int32_t x = 5, y = 0;
    fn((void *[]){&x, &y}, NULL, 0, 1, 0);
    assert_int_equal(y, 5 * factor + repeats);
}

enum { KERNELS = 6 };

/* Compiles kernels 1 .. KERNELS and runs them. */
static inline ash_code *compile_all(ash_compiler *compiler, ash_code_stats *stats) {
    ash_nest nests[KERNELS];
    const ash_nest *pointers[KERNELS];
    ash_kernel_fn fns[KERNELS];
    ash_code *code;
    ash_diag diag;
    for (int k = 0; k < KERNELS; k++) {
        nests[k] = small(k + 1, k);
        pointers[k] = &nests[k];
    }
    assert_ok(ash_code__compile(compiler,
                                &(ash_code_job){.target = ash_compiler__target(compiler),
                                                .nests = pointers,
                                                .count = KERNELS,
                                                .fns = fns,
                                                .stats = stats},
                                &code, &diag));
    for (int k = 0; k < KERNELS; k++) {
        expect(fns[k], k + 1, k);
        ash_nest_free(&nests[k]);
    }
    return code;
}

/* --- a directory of our own -------------------------------------------------------------------------- */

static char root[64], dir[96];

static inline int make_root(void **state) {
    (void)state;
    snprintf(root, sizeof root, "/tmp/ashlar-test-XXXXXX");
    if (!mkdtemp(root)) return -1;
    snprintf(dir, sizeof dir, "%s/a/b", root);
    return 0;
}

static inline void each_file(void (*visit)(const char *path, void *user), void *user) {
    DIR *d = opendir(dir);
    if (!d) return;
    for (struct dirent *entry; (entry = readdir(d));) {
        char path[400];
        snprintf(path, sizeof path, "%s/%s", dir, entry->d_name);
        if (entry->d_name[0] != '.') visit(path, user);
    }
    closedir(d);
}

static inline void remove_file(const char *path, void *user) {
    (void)user;
    unlink(path);
}

static inline int remove_root(void **state) {
    (void)state;
    chmod(dir, 0700);
    each_file(remove_file, NULL);
    rmdir(dir);
    char middle[96];
    snprintf(middle, sizeof middle, "%s/a", root);
    rmdir(middle);
    return rmdir(root);
}

static inline void count_file(const char *path, void *user) {
    assert_non_null(strstr(path, ".o"));
    ++*(int *)user;
}

/* One context's life: compiles everything, reports the statistics. */
static inline ash_code_stats life_with(ash_context_options options) {
    test_code t;
    ash_code_stats stats;
    options.threads = 2;
    options.cache_dir = dir;
    test_code_open(&t, &options);
    ash_code__release(compile_all(t.compiler, &stats));
    test_code_close(&t);
    return stats;
}

static inline ash_code_stats life(void) {
    return life_with((ash_context_options){0});
}

#endif
