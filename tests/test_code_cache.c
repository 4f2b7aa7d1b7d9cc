/* SPDX-License-Identifier: MIT */
/* The compiler's table and its cache on disk: kernels that are shared, files that are found, damaged or
 * cannot be written, calls from many threads, failures in between. */
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <time.h>

#include "cache_folder.h"

/* --- tests ------------------------------------------------------------------------------------------- */

static void test_shared(void **state) {
    (void)state;
    test_code t;
    ash_code_stats stats;
    test_code_open(&t, NULL);
    ash_code *first = compile_all(t.compiler, &stats);
    assert_int_equal(stats.compiled, KERNELS);
    assert_true(stats.code_bytes > 0 && stats.nanoseconds > 0);
    ash_code *second = compile_all(t.compiler, &stats);
    assert_int_equal(stats.shared, KERNELS);
    assert_int_equal(stats.compiled + stats.from_disk + stats.code_bytes, 0);
    ash_code__release(first);
    ash_code *third = compile_all(t.compiler, &stats); /* the second still holds them */
    assert_int_equal(stats.shared, KERNELS);
    ash_code__release(ash_code__retain(third));
    ash_code__release(second);
    ash_code__release(third);
    ash_code__release(compile_all(t.compiler, &stats)); /* all were given back */
    assert_int_equal(stats.compiled, KERNELS);
    ash_code__release(NULL);
    test_code_close(&t);
}

/* Anonymous mappings of this process that can be executed. */
static int executable_mappings(void) {
    int found = 0;
    char line[400];
    FILE *maps = fopen("/proc/self/maps", "r");
    assert_non_null(maps);
    while (fgets(line, sizeof line, maps))
        found += strstr(line, "r-xp 00000000 00:00 0") && !strchr(line, '[');
    fclose(maps);
    return found;
}

static void test_memory_given_back(void **state) {
    (void)state;
    test_code t;
    test_code_open(&t, NULL);
    int before = executable_mappings();
    for (int round = 0; round < 3; round++) {
        ash_code *code = compile_all(t.compiler, NULL);
        assert_true(executable_mappings() > before);
        ash_code__release(code);
        assert_int_equal(executable_mappings(), before);
    }
    test_code_close(&t);
}

/* Equal nests in one call are one kernel; none at all is fine. */
static void test_same_call(void **state) {
    (void)state;
    test_code t;
    ash_code_stats stats;
    ash_code *code;
    ash_diag diag;
    ash_nest a = small(3, 1), b = small(3, 1);
    ash_kernel_fn fns[2];
    test_code_open(&t, NULL);
    assert_ok(ash_code__compile(t.compiler,
                                &(ash_code_job){.target = &t.target,
                                                .nests = (const ash_nest *[]){&a, &b},
                                                .count = 2,
                                                .fns = fns,
                                                .stats = &stats},
                                &code, &diag));
    assert_ptr_equal(fns[0], fns[1]);
    assert_int_equal(stats.compiled, 1);
    ash_code__release(code);
    assert_ok(ash_code__compile(t.compiler, &(ash_code_job){.target = &t.target}, &code, &diag));
    ash_code__release(code);
    ash_nest_free(&a);
    ash_nest_free(&b);
    test_code_close(&t);
}

static void test_cold_and_warm(void **state) {
    (void)state;
    ash_code_stats stats = life();
    assert_int_equal(stats.compiled, KERNELS);
    int files = 0;
    each_file(count_file, &files);
    assert_int_equal(files, KERNELS);
    stats = life();
    assert_int_equal(stats.compiled, 0);
    assert_int_equal(stats.from_disk, KERNELS);
}

static size_t file_size(const char *path);

static void add_size(const char *path, void *user) {
    *(uint64_t *)user += file_size(path);
}

/* Makes a file one hour older than the one before. */
static void make_older(const char *path, void *user) {
    struct timespec times[2] = {{.tv_nsec = UTIME_OMIT}, {.tv_sec = time(NULL) - 3700 * ++*(int *)user}};
    assert_int_equal(utimensat(AT_FDCWD, path, times, 0), 0);
}

static void check_fresh(const char *path, void *user) {
    struct stat info;
    assert_int_equal(stat(path, &info), 0);
    *(int *)user += time(NULL) - info.st_mtime < 1800;
}

static const char *path_in(const char *name) {
    static char path[400];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    return path;
}

static void leave(const char *name) {
    FILE *f = fopen(path_in(name), "w");
    fputs("something of somebody's", f);
    fclose(f);
}

static bool is_there(const char *name) {
    return access(path_in(name), F_OK) == 0;
}

/* Compiles one kernel more in a context that keeps so many bytes on disk. */
static void one_more(uint64_t cache_bytes, int k) {
    ash_context_options options = {.threads = 1, .cache_dir = dir, .cache_bytes = cache_bytes};
    test_code t;
    ash_code *code;
    ash_kernel_fn fn;
    ash_diag diag;
    ash_nest nest = small(k, k);
    test_code_open(&t, &options);
    assert_ok(ash_code__compile(
        t.compiler,
        &(ash_code_job){.target = &t.target, .nests = (const ash_nest *[]){&nest}, .count = 1, .fns = &fn},
        &code, &diag));
    expect(fn, k, k);
    ash_code__release(code);
    ash_nest_free(&nest);
    test_code_close(&t);
}

/* The directory stays within its bytes; what was used last stays, and so does what is not the cache's. */
static void test_pruned(void **state) {
    (void)state;
    static const char *const foreign[] = {"notes.o", "0123456789abcdef0123456789abcdef.txt"};
    static const char draft[] = "0123456789abcdef0123456789abcdef.o.17.abc";
    uint64_t all = 0, left = 0;
    int age = 0, fresh = 0, files = 0;
    life();
    each_file(add_size, &all);
    each_file(make_older, &age);
    ash_code_stats stats = life(); /* a use is noted */
    assert_int_equal(stats.from_disk, KERNELS);
    each_file(check_fresh, &fresh);
    assert_int_equal(fresh, KERNELS);
    age = 0;
    each_file(make_older, &age);
    one_more(all * 2, 20); /* room enough: all stay */
    each_file(count_file, &files);
    assert_int_equal(files, KERNELS + 1);
    for (int i = 0; i < 2; i++) leave(foreign[i]);
    leave(draft);
    one_more(all / 2, 21);
    assert_true(is_there(foreign[0]) && is_there(foreign[1]) && is_there(draft));
    unlink(path_in(foreign[0])), unlink(path_in(foreign[1]));
    files = 1;
    make_older(path_in(draft), &files);
    one_more(all / 2, 22);
    assert_false(is_there(draft)); /* nobody writes it any more */
    each_file(add_size, &left);
    assert_true(left > 0 && left <= all / 2);
    files = 0;
    each_file(count_file, &files);
    assert_true(files > 0 && files < KERNELS);
    fresh = 0;
    each_file(check_fresh, &fresh);
    assert_true(fresh >= 1); /* the newest are among them */
    stats = life();          /* what went is made again */
    assert_int_equal(stats.compiled + stats.from_disk, KERNELS);
    assert_true(stats.compiled > 0);
}

static size_t file_size(const char *path) {
    struct stat info;
    assert_int_equal(stat(path, &info), 0);
    return (size_t)info.st_size;
}

static void cut(const char *path, void *user) {
    size_t keep = *(int *)user == 0 ? 0 : *(int *)user == 1 ? 20 : file_size(path) - 1;
    assert_int_equal(truncate(path, (off_t)keep), 0);
}

static void flip(const char *path, void *user) {
    FILE *f = fopen(path, "r+b");
    size_t at = file_size(path) * (size_t)*(int *)user / 8;
    assert_non_null(f);
    fseek(f, (long)at, SEEK_SET);
    int byte = fgetc(f);
    fseek(f, (long)at, SEEK_SET);
    fputc(byte ^ 0x10, f);
    fclose(f);
}

static void swap_in(const char *path, void *user) {
    char *last = user; /* every file gets the content of another one's name */
    if (last[0]) assert_int_equal(rename(last, path), 0);
    snprintf(last, 400, "%s", path);
}

static void expect_repaired(void) {
    ash_code_stats stats = life();
    assert_true(stats.compiled > 0);
    assert_int_equal(stats.compiled + stats.from_disk, KERNELS);
    stats = life();
    assert_int_equal(stats.from_disk, KERNELS);
}

static void test_damaged(void **state) {
    (void)state;
    life();
    for (int how = 0; how < 3; how++) {
        each_file(cut, &how);
        expect_repaired();
    }
    for (int eighth = 0; eighth < 8; eighth++) {
        each_file(flip, &eighth);
        expect_repaired();
    }
    char last[400] = "";
    each_file(swap_in, last);
    expect_repaired();
}

static void test_not_writable(void **state) {
    (void)state;
    life();
    each_file(remove_file, NULL);
    rmdir(dir);
    FILE *f = fopen(dir, "w"); /* a file where the directory should be: refused for root as well */
    assert_non_null(f);
    fclose(f);
    ash_code_stats stats = life();
    assert_int_equal(stats.compiled, KERNELS);
    unlink(dir);
}

/* Stops at the third kernel. */
enum { MANY = 60 }; /* more than two modules have */

static bool after_two(void *user, ash_stage stage, uint64_t done, uint64_t total) {
    int *asked = user;
    assert_int_equal(stage, ASH_STAGE_COMPILE);
    assert_true((done > 0) == (*asked > 0));
    assert_int_equal(total, MANY);
    return (*asked)++ < 2;
}

static void test_cancelled(void **state) {
    (void)state;
    ash_context_options options = {.threads = 1};
    test_code t;
    ash_nest nests[MANY];
    const ash_nest *pointers[MANY];
    ash_kernel_fn fns[MANY];
    ash_code *code = NULL;
    ash_code_stats stats;
    ash_diag diag;
    int asked = 0;
    ash_progress progress = {.report = after_two, .user = &asked};
    test_code_open(&t, &options);
    for (int k = 0; k < MANY; k++) {
        nests[k] = small(k + 1, k);
        pointers[k] = &nests[k];
    }
    assert_status(ash_code__compile(t.compiler,
                                    &(ash_code_job){.target = &t.target,
                                                    .nests = pointers,
                                                    .count = MANY,
                                                    .fns = fns,
                                                    .progress = &progress,
                                                    .stats = &stats},
                                    &code, &diag),
                  ASH_ERROR_CANCELLED);
    assert_null(code);
    assert_in_range(stats.compiled, 2, MANY - 1);
    for (int k = 0; k < MANY; k++) ash_nest_free(&nests[k]);
    ash_code__release(compile_all(t.compiler, &stats)); /* nothing is left half made */
    assert_int_equal(stats.compiled, KERNELS);
    test_code_close(&t);
}

static void test_refused(void **state) {
    (void)state;
    test_code t;
    ash_code *code = NULL;
    ash_kernel_fn fn;
    ash_diag diag;
    ash_target target;
    ash_nest n = small(2, 0);
    n.code.at[n.code.len - 1].buf = 9;
    test_code_open(&t, NULL);
    assert_status(
        ash_code__compile(
            t.compiler,
            &(ash_code_job){.target = &t.target, .nests = (const ash_nest *[]){&n}, .count = 1, .fns = &fn},
            &code, &diag),
        ASH_ERROR_INTERNAL);
    ash_nest_free(&n);
    assert_status(ash_target__named("pentium", &target, &diag), ASH_ERROR_NOT_FOUND);
    n = small(2, 0);
    for (int way = 0; way < 3; way++) {
        target = t.target;
        if (way == 0) snprintf(target.features, sizeof target.features, "+no-such-thing");
        if (way == 1) snprintf(target.triple, sizeof target.triple, "sparc-sun-solaris");
        if (way == 2) target.kind = ASH_TARGET_GPU;
        assert_status(ash_code__compile(
                          t.compiler,
                          &(ash_code_job){
                              .target = &target, .nests = (const ash_nest *[]){&n}, .count = 1, .fns = &fn},
                          &code, &diag),
                      ASH_ERROR_UNSUPPORTED);
        assert_null(code);
    }
    ash_nest_free(&n);
    test_code_close(&t);
}

/* Many threads want overlapping sets at once, and give them back: each kernel is right, none is made twice
 * at a time. */
static void *want_some(void *user) {
    ash_compiler *compiler = user;
    static atomic_int turns;
    for (int round = 0; round < 6; round++) {
        int from = atomic_fetch_add(&turns, 1) % 5;
        ash_nest nests[8];
        const ash_nest *pointers[8];
        ash_kernel_fn fns[8];
        ash_code *code;
        for (int k = 0; k < 8; k++) {
            nests[k] = small(from + k, 3);
            pointers[k] = &nests[k];
        }
        if (ash_code__compile(
                compiler,
                &(ash_code_job){
                    .target = ash_compiler__target(compiler), .nests = pointers, .count = 8, .fns = fns},
                &code, NULL) != ASH_OK)
            return user;
        for (int k = 0; k < 8; k++) {
            int32_t x = 5, y = 0;
            fns[k]((void *[]){&x, &y}, NULL, 0, 1, 0);
            if (y != 5 * (from + k) + 3) return user;
            ash_nest_free(&nests[k]);
        }
        ash_code__release(code);
    }
    return NULL;
}

static void test_threads(void **state) {
    (void)state;
    enum { THREADS = 6 };
    ash_context_options options = {.threads = 3, .cache_dir = dir};
    pthread_t threads[THREADS];
    test_code t;
    test_code_open(&t, &options);
    for (int k = 0; k < THREADS; k++)
        assert_int_equal(pthread_create(&threads[k], NULL, want_some, t.compiler), 0);
    for (int k = 0; k < THREADS; k++) {
        void *failed;
        pthread_join(threads[k], &failed);
        assert_null(failed);
    }
    test_code_close(&t);
}

static void test_failed_allocations(void **state) {
    (void)state;
    for (long fail_at = 1;; fail_at++) {
        test_memory memory = {.fail_at = fail_at};
        ash_context_options options = {
            .allocator = test_memory_allocator(&memory), .threads = 2, .cache_dir = dir};
        ash_context *context = NULL;
        ash_compiler *compiler;
        ash_code *code = NULL;
        ash_kernel_fn fns[2];
        ash_diag diag;
        ash_nest a = small_in(&options.allocator, 2, 1), b = small_in(&options.allocator, 7, 2);
        const ash_nest *both[] = {&a, &b};
        ash_status status = ash_context_create(&options, &context, &diag);
        if (status == ASH_OK) status = ash_compiler__get(context, &compiler, &diag);
        if (status == ASH_OK)
            status = ash_code__compile(
                compiler,
                &(ash_code_job){
                    .target = ash_compiler__target(compiler), .nests = both, .count = 2, .fns = fns},
                &code, &diag);
        if (status == ASH_OK) expect(fns[1], 7, 2);
        bool reached = memory.count >= fail_at;
        ash_code__release(code);
        ash_context_destroy(context);
        ash_nest_free(&a);
        ash_nest_free(&b);
        assert_int_equal(memory.live, 0);
        if (!reached) break;
        each_file(remove_file, NULL);
        assert_true(status == ASH_OK || status == ASH_ERROR_OUT_OF_MEMORY); /* the cache may do without */
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_shared),
        cmocka_unit_test(test_memory_given_back),
        cmocka_unit_test(test_same_call),
        cmocka_unit_test_setup_teardown(test_cold_and_warm, make_root, remove_root),
        cmocka_unit_test_setup_teardown(test_damaged, make_root, remove_root),
        cmocka_unit_test_setup_teardown(test_pruned, make_root, remove_root),
        cmocka_unit_test_setup_teardown(test_not_writable, make_root, remove_root),
        cmocka_unit_test(test_cancelled),
        cmocka_unit_test(test_refused),
        cmocka_unit_test_setup_teardown(test_threads, make_root, remove_root),
        cmocka_unit_test_setup_teardown(test_failed_allocations, make_root, remove_root),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
