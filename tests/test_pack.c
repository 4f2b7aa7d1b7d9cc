/* SPDX-License-Identifier: MIT */
/* `ashlar pack` as a user meets it, with problems of every kind of wrong, and `ashlar plan --csv`: loads
 * and offsets follow from its rows. */
#include "testing.h"

#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "ashlar/builder.h"
#include "ashlar/onnx.h"
#include "random.h"

enum { ROWS = TEST_WATCHED ? 100000 : 1000000 };

static ash_diag diag;
static char folder[64], out[1 << 15]; /* of the last command, both streams */

static const char *path_of(const char *name) {
    static char path[4][256];
    static int next;
    char *p = path[next++ % 4];
    snprintf(p, sizeof path[0], "%s/%s", folder, name);
    return p;
}

static void put(const char *name, const char *text) {
    FILE *file = fopen(path_of(name), "wb");
    assert_non_null(file);
    assert_true(fputs(text, file) >= 0);
    assert_int_equal(fclose(file), 0);
}

/* Runs "ashlar ARGUMENTS" in the folder; the exit status. */
static int ashlar(const char *arguments) {
    char command[1024];
    snprintf(command, sizeof command, "cd %s && %s %s 2>&1", folder, ASH_CLI, arguments);
    FILE *pipe = popen(command, "r");
    assert_non_null(pipe);
    size_t len = fread(out, 1, sizeof out - 1, pipe);
    out[len] = 0;
    int status = pclose(pipe);
    assert_true(WIFEXITED(status));
    return WEXITSTATUS(status);
}

static void says(const char *text) {
    if (!strstr(out, text)) fail_msg("\"%s\" is missing in:\n%s", text, out);
}

#define HEAD "id,lower,upper,size"

static void malformed_problems(void **state) {
    (void)state;
    static const struct {
        const char *arguments, *text;
        int status;
        const char *words;
    } cases[] = {
        {"", "", 1, "the text is empty"},
        {"", "\n\r\n", 1, "the text is empty"},
        {"", "a,0,1,4\n", 1, "the header has no column id"},
        {"", HEAD ",size\n", 1, "two columns are called size"},
        {"", HEAD "\na,0,1\n", 1, "line 2 has 3 fields"},
        {"", HEAD "\n\na,0,1,4,5\n", 1, "line 3 has 5 fields"},
        {"", HEAD "\na,0,1,4.5\n", 1, "line 2, size: \"4.5\" is no number"},
        {"", HEAD "\na,0,1,\n", 1, "line 2, size: \"\" is no number"},
        {"", HEAD "\na,1e3,2,4\n", 1, "line 2, lower: \"1e3\" is no number"},
        {"", HEAD "\na,0,1,-4\n", 1, "line 2, size: -4 is negative"},
        {"", HEAD "\na,0,1,99999999999999999999\n", 1,
         "line 2, size: \"99999999999999999999\" is no number"},
        {"", HEAD "\na,0,1,9223372036854775807\n", 1,
         "line 2, size: 9223372036854775807 is more than 2^62"},
        {"", HEAD "\na,-9223372036854775808,1,4\n", 1, "line 2: the lifetime"},
        {"", HEAD "\na,5,2,4\n", 1, "line 2: the lifetime [5, 2) ends before it begins"},
        {"", HEAD "\na,0,1,4611686018427387904\nb,0,1,4611686018427387904\n", 1,
         "add up to more than 2^62"},
        {"", HEAD ",alignment\na,0,1,4,3\n", 1, "line 2: alignment 3 is no power of two"},
        {"", HEAD ",lane\na,0,1,4,-1\n", 1, "line 2, lane: -1 is negative"},
        {"", HEAD ",kind\na,0,1,4,what\n", 1, "line 2, kind: \"what\" is none"},
        {"", HEAD ",root\na,0,1,4,1\nb,0,1,4,0\n", 1, "row 0 (a): its root 1 is no row without a root"},
        {"", HEAD ",root\na,0,1,4,7\n", 1, "row 0 (a): its root 7"},
        {"", HEAD ",root,root_offset\na,0,1,4,,\nb,0,1,4,0,2\n", 1, "leave its root 0 of 4 bytes"},
        {"", HEAD ",pinned\na,0,2,4,0\nb,1,3,4,2\n", 1,
         "buffer 0 (a) and buffer 1 (b) are pinned to the same"},
        {"--capacity 7", HEAD "\na,0,2,4\nb,1,3,8\n", 1,
         "the smallest packing found has 12, the bound is 12"},
        {"--verify", HEAD "\na,0,2,4\n", 1, "there is no column offset"},
        {"--verify", HEAD ",offset\na,0,2,4,0\nb,1,3,4,3\n", 1, "share bytes [3, 4)"},
        {"--verify", HEAD ",offset\na,0,2,4,0\nb,1,3,4,3\n", 1, "ids a and b"},
        {"--verify", HEAD ",offset,alignment\na,0,2,4,2,4\n", 1, "misses its alignment"},
        {"--verify", HEAD ",offset\na,0,2,4,\n", 1, "has no place"},
        {"--verify --capacity 7", HEAD ",offset\na,0,2,4,4\n", 1, "takes 8 bytes, the capacity is 7"},
        /* right answers */
        {"--verify", HEAD ",offset\na,0,2,4,0\nb,2,3,4,3\n", 0, "a packing of 7 bytes"},
        {"--verify", HEAD ",offset,kind\na,0,2,4,,parameter\nb,2,3,4,3,\n", 0, "a packing of 7 bytes"},
        {"", HEAD "\n", 0, "0 buffers in 0 arenas: 0 bytes"},
        {"", HEAD "\na,0,1,0\nb,0,1,0\n", 0, "2 buffers in 1 arenas: 0 bytes"},
        {"", HEAD "\r\na,0,1,4\r\nb,1,2,3\r\n", 0, "4 bytes (bound 4"},
        {"", HEAD "\na,0,1,4\na,0,1,4", 0,
         "8 bytes (bound 8"}, /* ids may repeat; no end of line at the end */
        {"", HEAD "\na,3,3,4\nb,0,9,4\n", 0, "4 bytes (bound 4"}, /* never live */
        {"", HEAD "\na,-3,-1,4\nb,-1,2,4\n", 0, "4 bytes (bound 4"},
        {"", HEAD ",root,root_offset\na,0,1,8,,\nb,1,2,4,0,4\nc,1,2,4,,\n", 0, "12 bytes (bound 12"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char arguments[64];
        put("case.csv", cases[i].text);
        snprintf(arguments, sizeof arguments, "pack case.csv %s", cases[i].arguments);
        int status = ashlar(arguments);
        if (status != cases[i].status) fail_msg("case %zu: %d\n%s", i, status, out);
        says(cases[i].words);
    }
}

static void command_lines(void **state) {
    (void)state;
    put("p.csv", HEAD "\na,0,1,4\n");
    assert_int_equal(ashlar("pack"), 2);
    assert_int_equal(ashlar("pack p.csv p.csv"), 2);
    assert_int_equal(ashlar("pack p.csv --capacity"), 2);
    assert_int_equal(ashlar("pack p.csv --capacity 0"), 2);
    assert_int_equal(ashlar("pack p.csv --capacity -1"), 2);
    assert_int_equal(ashlar("pack p.csv --strategy luck"), 2);
    assert_int_equal(ashlar("pack p.csv --colour"), 2);
    assert_int_equal(ashlar("pack nowhere.csv"), 1);
    says("nowhere.csv");
    assert_int_equal(ashlar("pack p.csv -o nowhere/out.csv"), 1);
    assert_int_equal(ashlar("pack - < p.csv"), 0);
    says("a,0,1,4,0");
}

static void the_same_bytes_every_time(void **state) {
    (void)state;
    static const char *const files[] = {"A.1048576.csv", "C.1048576.csv", "K.1048576.csv"};
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        char arguments[512];
        for (int k = 0; k < 2; k++) {
            snprintf(arguments, sizeof arguments,
                     "pack %s/tests/data/planner/%s --capacity 1048576 --quiet -o %d.csv", ASH_SOURCE_DIR,
                     files[i], k);
            assert_int_equal(ashlar(arguments), 0);
        }
        assert_int_equal(ashlar("pack --verify 0.csv --capacity 1048576"), 0);
        snprintf(arguments, sizeof arguments, "cmp %s %s", path_of("0.csv"), path_of("1.csv"));
        assert_int_equal(system(arguments), 0);
    }
}

/* Reading, packing and writing take time that grows with the rows. */
static void a_million_rows(void **state) {
    (void)state;
    double seconds[2];
    for (int large = 0; large < 2; large++) {
        uint64_t seed = 99;
        FILE *file = fopen(path_of("rows.csv"), "wb");
        assert_non_null(file);
        fputs(HEAD "\n", file);
        for (int i = 0; i < (large ? ROWS : ROWS / 10); i++) {
            test_xorshift(&seed);
            fprintf(file, "b%d,%d,%d,%d\n", i, i, i + 1 + (int)((seed >> 20) % 30),
                    64 * (int)(1 + (seed >> 40) % 1000));
        }
        assert_int_equal(fclose(file), 0);
        struct timespec begin, end;
        clock_gettime(CLOCK_MONOTONIC, &begin);
        assert_int_equal(ashlar("pack rows.csv --strategy best_fit -o solved.csv"), 0);
        clock_gettime(CLOCK_MONOTONIC, &end);
        seconds[large] = (double)(end.tv_sec - begin.tv_sec) + (double)(end.tv_nsec - begin.tv_nsec) * 1e-9;
    }
    print_message("%d rows: %.2f s, %d: %.2f s\n", ROWS / 10, seconds[0], ROWS, seconds[1]);
    assert_int_equal(ashlar("pack --verify solved.csv"), 0);
    assert_true(seconds[1] < 40 * seconds[0] + 1); /* 10 by n; a wide margin for a busy machine */
}

/* --- the CSV of a model's plan ---------------------------------------------------------------- */

/* Four branches that are joined, so that parts lie in their result. */
static void write_model(void) {
    ash_context *context;
    ash_graph *g;
    assert_ok(ash_context_create(NULL, &context, &diag));
    assert_ok(ash_graph_create(context, "net", &g, &diag));
    ash_type type = {.dtype = ASH_F32, .rank = 2, .dims = {64, 96}};
    ash_value x = ash_graph_input(g, "x", &type), parts[4];
    for (int k = 0; k < 4; k++) {
        parts[k] = ash_softmax(g, ash_mul(g, x, ash_scalar(g, ASH_F32, k + 1)), k % 2 ? 0 : 1);
        if (k == 3) parts[k] = ash_softmax(g, parts[k], 0);
    }
    ash_value joined = ash_concat(g, parts, 4, 0);
    ash_graph_output(g, "y", ash_softmax(g, ash_softmax(g, joined, 0), 1));
    assert_ok(ash_onnx_write(g, path_of("model.onnx"), NULL, &diag));
    ash_graph_destroy(g);
    ash_context_destroy(context);
}

typedef struct row {
    long long lower, upper, size, offset;
    bool root;
} row;

/* The fields by their columns: the load is the largest sum over rows without a root. */
static void loads_follow_from_the_rows(void **state) {
    (void)state;
    enum { MOST = 256, COLUMNS = 16 };
    static row rows[MOST];
    char line[1024], *names[COLUMNS] = {NULL}, head[1024];
    int columns = 0, count = 0, members = 0;
    write_model();
    assert_int_equal(ashlar("plan model.onnx --csv plan.csv --text plan.txt"), 0);
    FILE *file = fopen(path_of("plan.csv"), "r");
    assert_non_null(file);
    assert_non_null(fgets(head, sizeof head, file));
    for (char *at = strtok(head, ",\n"); at; at = strtok(NULL, ",\n")) names[columns++] = at;
    for (; fgets(line, sizeof line, file) && count < MOST; count++) {
        rows[count] = (row){.offset = -1, .root = true};
        char *at = line;
        for (int c = 0; c < columns; c++) {
            size_t length = strcspn(at, ",\n");
            at[length] = 0;
            if (!strcmp(names[c], "lower")) rows[count].lower = atoll(at);
            if (!strcmp(names[c], "upper")) rows[count].upper = atoll(at);
            if (!strcmp(names[c], "size")) rows[count].size = atoll(at);
            if (!strcmp(names[c], "offset") && *at) rows[count].offset = atoll(at);
            if (!strcmp(names[c], "root") && *at) rows[count].root = false;
            at += length + 1;
        }
        members += !rows[count].root;
    }
    fclose(file);
    assert_true(members > 0);
    long long load = 0, size = 0;
    for (int i = 0; i < count; i++) {
        long long sum = 0;
        for (int k = 0; k < count; k++)
            if (rows[k].root && rows[k].offset >= 0 && rows[k].lower <= rows[i].lower &&
                rows[i].lower < rows[k].upper)
                sum += (rows[k].size + 63) / 64 * 64;
        load = sum > load ? sum : load;
        if (rows[i].offset >= 0 && rows[i].offset + rows[i].size > size)
            size = rows[i].offset + rows[i].size;
    }
    char words[64];
    file = fopen(path_of("plan.txt"), "r");
    assert_non_null(file);
    out[fread(out, 1, sizeof out - 1, file)] = 0;
    fclose(file);
    snprintf(words, sizeof words, "bound %lld,", load);
    says(words);
    snprintf(words, sizeof words, "%lld bytes (", (size + 63) / 64 * 64);
    says(words);
    assert_int_equal(ashlar("pack --verify plan.csv"), 0);
    snprintf(words, sizeof words, "a packing of %lld bytes", size);
    says(words);
    assert_int_equal(ashlar("pack plan.csv --quiet -o again.csv"), 0); /* and it is a problem again */
    assert_int_equal(ashlar("pack --verify again.csv"), 0);
}

static int make_folder(void **state) {
    (void)state;
    strcpy(folder, "/tmp/ashlar-pack-XXXXXX");
    return mkdtemp(folder) == NULL;
}

static int remove_folder(void **state) {
    (void)state;
    char command[128];
    snprintf(command, sizeof command, "rm -r %s", folder);
    return system(command);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(malformed_problems),         cmocka_unit_test(command_lines),
        cmocka_unit_test(the_same_bytes_every_time),  cmocka_unit_test(a_million_rows),
        cmocka_unit_test(loads_follow_from_the_rows),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
