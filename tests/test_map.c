/* SPDX-License-Identifier: MIT */
/* Hash maps: what was put is found; keys of somebody who knows the library do not all meet in one place. */
#include <errno.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/map.h"
#include "testing.h"

static void what_was_put_is_found(void **state) {
    (void)state;
    enum { COUNT = 5000 };
    static char names[COUNT][16];
    ash_map map;
    ash_strmap strings;
    uint64_t value;
    ash_map_init(&map, &ash_allocator__libc);
    ash_strmap_init(&strings, &ash_allocator__libc);
    assert_false(ash_map_get(&map, 0, &value));
    for (uint64_t i = 0; i < COUNT; i++) {
        snprintf(names[i], sizeof names[i], "n%llu", (unsigned long long)i * 7);
        assert_true(ash_map_put(&map, i << 32, i));
        assert_true(ash_strmap_put(&strings, names[i], strlen(names[i]), i));
    }
    for (uint64_t i = 0; i < COUNT; i++) {
        assert_true(ash_map_get(&map, i << 32, &value) && value == i);
        assert_true(ash_strmap_get(&strings, names[i], strlen(names[i]), &value) && value == i);
    }
    assert_false(ash_map_get(&map, 1, &value));
    assert_false(ash_strmap_get(&strings, "n1", 2, &value));
    assert_int_equal(map.len, COUNT);
    ash_map_free(&map);
    ash_strmap_free(&strings);
}

static void seeds_separate(void **state) {
    (void)state;
    assert_true(ash_hash("key", 3, 1) == ash_hash("key", 3, 1));
    assert_true(ash_hash("key", 3, 1) != ash_hash("key", 3, 2));
    assert_true(ash_hash("key", 3, 1) != ash_hash("kex", 3, 1));
    assert_true(ash_hash("", 0, 1) != ash_hash("", 0, 2));
}

static int by_hash(const void *a, const void *b) {
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

/* Operators and what they are applied to: a seed that is one more does not make up for a key that is one
 * less, or equal nodes of a graph are not found. */
static void small_seeds_and_keys_do_not_meet(void **state) {
    (void)state;
    enum { MOST = 128, WORDS = 3 };
    static uint64_t hashes[MOST * MOST];
    for (size_t words = 1; words <= WORDS; words++) {
        for (uint32_t i = 0; i < MOST * MOST; i++) {
            uint32_t key[WORDS] = {[0] = 7, [1] = 9};
            key[words - 1] = i % MOST;
            hashes[i] = ash_hash(key, words * sizeof *key, i / MOST);
        }
        qsort(hashes, MOST * MOST, sizeof *hashes, by_hash);
        for (int i = 1; i < MOST * MOST; i++) assert_true(hashes[i] != hashes[i - 1]);
    }
}

static unsigned long long hash_of_another_process(void) {
    int ends[2], status;
    unsigned long long hash = 0;
    assert_int_equal(pipe(ends), 0);
    pid_t child = fork();
    if (child == 0) {
        dup2(ends[1], 1);
        execl("/proc/self/exe", "test_map", "--hash", (char *)NULL);
        _exit(1);
    }
    close(ends[1]);
    assert_int_equal(read(ends[0], &hash, sizeof hash), sizeof hash);
    close(ends[0]);
    while (waitpid(child, &status, 0) < 0 && errno == EINTR) continue;
    return hash;
}

/* Hashes of names and of constants cannot be known ahead. */
static void each_process_hashes_anew(void **state) {
    (void)state;
    assert_true(hash_of_another_process() != hash_of_another_process());
}

/* x with x * odd == 1 */
static uint64_t inverse(uint64_t odd) {
    uint64_t x = odd;
    for (int i = 0; i < 6; i++) x *= 2 - odd * x;
    return x;
}

/* Numbers whose low bits a fixed multiplication makes equal: all of them in one row of the table would take
 * 2e10 steps. */
static void chosen_keys_do_not_meet(void **state) {
    (void)state;
    enum { COUNT = 200000 };
    ash_map map;
    struct timespec start, end;
    uint64_t back = inverse(0xd6e8feb86659fd93u), value;
    ash_map_init(&map, &ash_allocator__libc);
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &start);
    for (uint64_t i = 1; i <= COUNT; i++) {
        uint64_t key = i << 40;
        key ^= key >> 32;
        key *= back;
        key ^= key >> 32;
        assert_true(ash_map_put(&map, key, i));
        assert_true(ash_map_get(&map, key, &value) && value == i);
    }
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &end);
    ash_map_free(&map);
    assert_true(end.tv_sec - start.tv_sec < 5);
}

int main(int argc, char **argv) {
    if (argc == 2 && !strcmp(argv[1], "--hash")) {
        unsigned long long hash = ash_hash("name", 4, 0);
        return write(1, &hash, sizeof hash) == sizeof hash ? 0 : 1;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_was_put_is_found),
        cmocka_unit_test(seeds_separate),
        cmocka_unit_test(small_seeds_and_keys_do_not_meet),
        cmocka_unit_test(each_process_hashes_anew),
        cmocka_unit_test(chosen_keys_do_not_meet),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
