/* SPDX-License-Identifier: MIT */
/* Every row of tests/data/ptx_cases.txt (tools/ptx_cases.py) on the stand-in: instructions with
 * operands, and results that were computed elsewhere. Where ptxas is installed, it must take the same
 * text. */
#include <inttypes.h>
#include <unistd.h>

#include "ptx_cases.h"
#include "ptx_room.h"

static ptx_cases cases;

static int read_cases(void **state) {
    (void)state;
    char *text = NULL;
    size_t room = 0;
    FILE *file = fopen(ASH_SOURCE_DIR "/tests/data/ptx_cases.txt", "r");
    assert_non_null(file);
    ssize_t len = getdelim(&text, &room, 0, file);
    fclose(file);
    assert_true(len > 0 && ptx_cases_read(text, (size_t)len, &cases));
    free(text);
    return 0;
}

static int free_cases(void **state) {
    (void)state;
    free(cases.at);
    return 0;
}

static char *write_module(int target) {
    char *text = NULL;
    size_t len;
    FILE *file = open_memstream(&text, &len);
    assert_non_null(file);
    ptx_case_head(file, target);
    for (unsigned i = 0; i < cases.n; i++)
        if (cases.at[i].needs <= target) ptx_case_kernel(file, &cases.at[i], i);
    fclose(file);
    return text;
}

static void run_case(const ptx_room *room, const ptx_case *c, unsigned number) {
    char name[16];
    uint64_t results[PTX_CASE_ROWS][PTX_CASE_RESULTS];
    snprintf(name, sizeof name, "k%u", number);
    CUdeviceptr in = ptx_room_memory(c->in, sizeof c->in), out = ptx_room_memory(NULL, sizeof results);
    assert_cu(cuMemsetD8_v2(out, 0, sizeof results));
    void *params[] = {&in, &out};
    CUresult code = ptx_room_run(ptx_room_function(room, name), 1, c->n_rows, 0, params);
    if (code) fail_msg("%s: %s", c->name, ptx_finding());
    assert_cu(cuMemcpyDtoH_v2(results, out, sizeof results));
    unsigned word, row = ptx_case_wrong(c, results, &word);
    if (row < c->n_rows)
        fail_msg("%s: %s of %" PRIx64 " %" PRIx64 " %" PRIx64 " is %" PRIx64 ", not %" PRIx64 " (%u)",
                 c->name, c->text, c->in[row][0], c->in[row][1], c->in[row][2], results[row][word],
                 c->out[row][word], word);
    assert_cu(cuMemFree_v2(in));
    assert_cu(cuMemFree_v2(out));
}

static void test_every_row(void **state) {
    (void)state;
    ptx_room room;
    ptx_room_open(&room, 1);
    char *text = write_module(90);
    ptx_room_load(&room, text);
    for (unsigned i = 0; i < cases.n; i++) run_case(&room, &cases.at[i], i);
    free(text);
    assert_true(cases.n > 600 && cases.rows > 20000);
    ptx_reset(NULL, 0);
}

/* A result that is off by its lowest bit, in the last word of the last row of each case, is found; so is
 * an infinity in the place of a NaN. */
static void test_wrong_results_are_found(void **state) {
    (void)state;
    for (unsigned i = 0; i < cases.n; i++) {
        static ptx_case c;
        unsigned word;
        c = cases.at[i];
        unsigned last = c.n_rows - 1, most = c.words[0] ? c.words[0] - 1 : 0;
        uint64_t results[PTX_CASE_ROWS][PTX_CASE_RESULTS];
        for (unsigned row = 0; row < c.n_rows; row++) {
            memcpy(results[row], c.out[row], sizeof results[row]);
            if (c.any_nan[row]) results[row][0] = UINT64_C(0x7ff8000000000000);
        }
        assert_int_equal(ptx_case_wrong(&c, results, &word), c.n_rows);
        results[last][most] = c.any_nan[last] ? UINT64_C(0x7ff0000000000000) : results[last][most] ^ 1;
        assert_int_equal(ptx_case_wrong(&c, results, &word), last);
        assert_int_equal(word, most);
    }
}

static void test_ptxas_takes_every_case(void **state) {
    (void)state;
    if (system("command -v ptxas >/dev/null 2>&1") != 0) skip();
    for (int target = 80; target <= 90; target += 10) {
        char path[] = "/tmp/ptx_cases_XXXXXX", command[128];
        int fd = mkstemp(path);
        assert_true(fd >= 0);
        char *text = write_module(target);
        assert_int_equal(write(fd, text, strlen(text)), (long)strlen(text));
        close(fd);
        free(text);
        snprintf(command, sizeof command, "ptxas -O0 -arch=sm_%d -o /dev/null %s", target, path);
        int code = system(command);
        unlink(path);
        assert_int_equal(code, 0);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_row),
        cmocka_unit_test(test_wrong_results_are_found),
        cmocka_unit_test(test_ptxas_takes_every_case),
    };
    return cmocka_run_group_tests(tests, read_cases, free_cases);
}
