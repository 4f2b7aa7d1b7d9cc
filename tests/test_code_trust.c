/* SPDX-License-Identifier: MIT */
/* What lies in the cache directory is run: so nothing is taken from it that another user can have put
 * there, nothing in it makes a call wait, and nothing outside of it is written. */
#include <fcntl.h>

#include "cache_folder.h"

static struct {
    int warnings;
    char last[512];
} told;

static void note(void *user, ash_log_level level, const char *message) {
    (void)user;
    if (level > ASH_LOG_WARNING) return;
    told.warnings++;
    snprintf(told.last, sizeof told.last, "%s", message);
}

/* A life that says what it refused; every kernel comes from somewhere, and is right. */
static ash_code_stats told_life(void) {
    told.warnings = 0;
    ash_code_stats stats = life_with((ash_context_options){.log = note});
    assert_int_equal(stats.compiled + stats.from_disk, KERNELS);
    assert_int_equal(told.warnings, stats.refused > 0); /* once, however many they are */
    return stats;
}

static mode_t mode_of(const char *path) {
    struct stat info;
    assert_int_equal(lstat(path, &info), 0);
    return info.st_mode;
}

static void check_mode(const char *path, void *user) {
    (void)user;
    assert_int_equal(mode_of(path), S_IFREG | 0600);
}

static void what_is_made_is_ours_alone(void **state) {
    (void)state;
    char middle[96];
    mode_t mask = umask(0);
    life();
    umask(mask);
    snprintf(middle, sizeof middle, "%s/a", root);
    assert_int_equal(mode_of(middle), S_IFDIR | 0700);
    assert_int_equal(mode_of(dir), S_IFDIR | 0700);
    int files = 0;
    each_file(count_file, &files);
    assert_int_equal(files, KERNELS);
    each_file(check_mode, NULL);
}

/* --- files ------------------------------------------------------------------------------------------- */

static void let_group_write(const char *path, void *user) {
    (void)user;
    assert_int_equal(chmod(path, 0620), 0);
}

static void let_all_write(const char *path, void *user) {
    (void)user;
    assert_int_equal(chmod(path, 0606), 0);
}

static void give_away(const char *path, void *user) {
    (void)user;
    assert_int_equal(lchown(path, 12345, (gid_t)-1), 0);
}

static void make_pipe(const char *path, void *user) {
    (void)user;
    assert_int_equal(unlink(path), 0);
    assert_int_equal(mkfifo(path, 0600), 0);
}

/* The very file, behind a link. */
static void make_link(const char *path, void *user) {
    (void)user;
    char target[500];
    if (strstr(path, ".kept")) return;
    snprintf(target, sizeof target, "%s.kept", path);
    assert_int_equal(rename(path, target), 0);
    assert_int_equal(symlink(target, path), 0);
}

static void refused_files(void (*spoil)(const char *path, void *user), const char *reason) {
    life();
    each_file(spoil, NULL);
    ash_code_stats stats = told_life();
    assert_int_equal(stats.refused, KERNELS);
    assert_int_equal(stats.compiled, KERNELS);
    assert_non_null(strstr(told.last, reason));
    stats = told_life(); /* sound ones are in their places */
    assert_int_equal(stats.refused, 0);
    assert_int_equal(stats.from_disk, KERNELS);
}

static void files_of_others_are_not_taken(void **state) {
    (void)state;
    refused_files(let_group_write, "can be written by others (mode 0620)");
    refused_files(let_all_write, "can be written by others (mode 0606)");
    if (geteuid() == 0) refused_files(give_away, "belongs to user 12345");
}

static void nothing_but_files_is_taken(void **state) {
    (void)state;
    alarm(300); /* who waits for the other end of a pipe waits for ever */
    refused_files(make_pipe, "is not a regular file");
    refused_files(make_link, "is a symbolic link");
    alarm(0);
}

/* --- the directory ----------------------------------------------------------------------------------- */

static void check_empty(const char *path, void *user) {
    (void)user;
    fail_msg("%s was written", path);
}

static void refused_dir(const char *reason) {
    ash_code_stats stats = told_life();
    assert_int_equal(stats.refused, KERNELS);
    assert_int_equal(stats.compiled, KERNELS);
    assert_non_null(strstr(told.last, reason));
}

static void a_directory_of_others_is_left_alone(void **state) {
    (void)state;
    life();
    assert_int_equal(chmod(dir, 0777), 0);
    refused_dir("can be written by others (mode 0777)");
    each_file(remove_file, NULL);
    refused_dir("can be written by others (mode 0777)");
    each_file(check_empty, NULL);
    assert_int_equal(chmod(dir, 01770), 0);
    refused_dir("can be written by others (mode 1770)");
    assert_int_equal(chmod(dir, 0755), 0); /* others may read it */
    assert_int_equal(told_life().refused, 0);
    assert_int_equal(told_life().from_disk, KERNELS);
    if (geteuid() != 0) return;
    assert_int_equal(chown(dir, 12345, (gid_t)-1), 0);
    refused_dir("belongs to user 12345");
}

/* A folder that belongs to others is not even made smaller. */
static void a_directory_of_others_is_not_pruned(void **state) {
    (void)state;
    int before = 0, after = 0;
    life();
    each_file(count_file, &before);
    assert_int_equal(chmod(dir, 0777), 0);
    life_with((ash_context_options){.cache_bytes = 1});
    each_file(count_file, &after);
    assert_int_equal(after, before);
}

/* --- perf's map -------------------------------------------------------------------------------------- */

static off_t size_of(const char *path) {
    struct stat info;
    return stat(path, &info) ? -1 : info.st_size;
}

static void create(const char *path, mode_t mode) {
    int fd = open(path, O_CREAT | O_EXCL | O_WRONLY, 0600);
    assert_true(fd >= 0);
    assert_int_equal(fchmod(fd, mode), 0);
    close(fd);
}

/* Its name can be guessed and its folder is everybody's: a link there must not lead to a file of ours. */
static void perfs_map_is_ours(void **state) {
    (void)state;
    char map[64], victim[96];
    snprintf(map, sizeof map, "/tmp/perf-%ld.map", (long)getpid());
    snprintf(victim, sizeof victim, "%s/victim", root);
    unlink(map);
    setenv("ASHLAR_PERF_MAP", "1", 1);
    life();
    assert_true(size_of(map) > 0);
    assert_int_equal(mode_of(map), S_IFREG | 0600);
    unlink(map);
    create(victim, 0600);
    assert_int_equal(symlink(victim, map), 0);
    life();
    assert_int_equal(size_of(victim), 0);
    unlink(map);
    assert_int_equal(link(victim, map), 0);
    life();
    assert_int_equal(size_of(victim), 0);
    unlink(map), unlink(victim);
    create(map, 0666);
    life();
    assert_int_equal(size_of(map), 0);
    unlink(map);
    unsetenv("ASHLAR_PERF_MAP");
}

int main(void) {
#define TEST(name) cmocka_unit_test_setup_teardown(name, make_root, remove_root)
    const struct CMUnitTest tests[] = {
        TEST(what_is_made_is_ours_alone),          TEST(files_of_others_are_not_taken),
        TEST(nothing_but_files_is_taken),          TEST(a_directory_of_others_is_left_alone),
        TEST(a_directory_of_others_is_not_pruned), TEST(perfs_map_is_ours),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
