/* SPDX-License-Identifier: MIT */
/* Every row of tests/data/ptx_cases.txt (tools/ptx_cases.py) on the stand-in: instructions with
 * operands, and results that were computed elsewhere. Where ptxas is installed, it must take the same
 * text. */
#include <inttypes.h>
#include <unistd.h>

#include "ptx_room.h"

enum { ROWS = 256, OPERANDS = 3, WORDS = 10, RESULTS = 4 };

typedef struct ptx_case {
    char name[64], text[256];
    char types[OPERANDS + 1][8];  /* of the result, then of the operands; empty: there is none */
    unsigned words[OPERANDS + 1]; /* of matrices: how many of 32 bits each of them is, in place of types */
    int needs;                    /* the least sm */
    unsigned n_rows;
    uint64_t in[ROWS][WORDS], out[ROWS][RESULTS];
    bool any_nan[ROWS];
} ptx_case;

static ptx_case *cases;
static unsigned n_cases;

static unsigned bits_of(const char *type) {
    if (!strcmp(type, "p") || !strcmp(type, "tf32")) return 32;
    return (unsigned)atoi(type + strcspn(type, "0123456789"));
}

static void read_row(ptx_case *c, char *line) {
    char *sign = strstr(line, " = "), *at = line;
    assert_non_null(sign);
    assert_true(c->n_rows < ROWS);
    for (unsigned i = 0; at < sign && i < WORDS; i++) c->in[c->n_rows][i] = strtoull(at, &at, 16);
    c->any_nan[c->n_rows] = !strncmp(sign + 3, "nan", 3);
    at = sign + 3;
    for (unsigned i = 0; *at && i < RESULTS; i++) c->out[c->n_rows][i] = strtoull(at, &at, 16);
    c->n_rows++;
}

static int read_cases(void **state) {
    (void)state;
    FILE *file = fopen(ASH_SOURCE_DIR "/tests/data/ptx_cases.txt", "r");
    assert_non_null(file);
    char line[512];
    ptx_case *c = NULL;
    while (fgets(line, sizeof line, file)) {
        line[strcspn(line, "\n")] = 0;
        if (!strncmp(line, "case ", 5)) {
            if (!(n_cases & (n_cases - 1)))
                cases = realloc(cases, (n_cases ? 2 * n_cases : 1) * sizeof *cases);
            assert_non_null(cases);
            c = &cases[n_cases++];
            *c = (ptx_case){.needs = 80};
            snprintf(c->name, sizeof c->name, "%.63s", line + 5);
        } else if (!strncmp(line, "do ", 3)) {
            snprintf(c->text, sizeof c->text, "%.255s", line + 3);
        } else if (!strncmp(line, "needs sm_", 9)) {
            c->needs = atoi(line + 9);
        } else if (!strncmp(line, "types ", 6)) {
            sscanf(line + 6, "%7s %7s %7s %7s", c->types[0], c->types[1], c->types[2], c->types[3]);
        } else if (!strncmp(line, "words ", 6)) {
            sscanf(line + 6, "%u %u %u %u", &c->words[0], &c->words[1], &c->words[2], &c->words[3]);
        } else if (*line) {
            read_row(c, line);
        }
    }
    fclose(file);
    return 0;
}

static int free_cases(void **state) {
    (void)state;
    free(cases);
    return 0;
}

/* The body of a product of matrices, of registers d0, ..., a0, ..., b0, ..., c0, ... */
static void write_matrices(FILE *file, const ptx_case *c) {
    unsigned at = 0;
    fprintf(file, ".reg .b32 d<%u>, a<%u>, b<%u>, c<%u>;\n", c->words[0], c->words[1], c->words[2],
            c->words[3]);
    for (unsigned o = 1; o <= OPERANDS; o++)
        for (unsigned i = 0; i < c->words[o]; i++)
            fprintf(file, "ld.global.b32 %c%u, [%%from+%u];\n", 'a' + (int)o - 1, i, 8 * at++);
    fprintf(file, "%s\n", c->text);
    for (unsigned i = 0; i < c->words[0]; i++) fprintf(file, "st.global.b32 [%%to+%u], d%u;\n", 8 * i, i);
}

/* A thread per row: operands from in[row], results to out[row]. */
static void write_kernel(FILE *file, const ptx_case *c, unsigned number) {
    bool predicate = !strcmp(c->types[0], "p");
    fprintf(file,
            ".visible .entry k%u(.param .u64 in, .param .u64 out) {\n"
            ".reg .b64 %%from, %%to, %%at; .reg .b32 %%row;\n"
            "ld.param.u64 %%from, [in]; ld.param.u64 %%to, [out]; mov.u32 %%row, %%tid.x;\n"
            "mad.wide.u32 %%from, %%row, %u, %%from; mad.wide.u32 %%to, %%row, %u, %%to;\n",
            number, 8u * WORDS, 8u * RESULTS);
    if (c->words[0]) {
        write_matrices(file, c);
        fprintf(file, "ret; }\n");
        return;
    }
    if (predicate)
        fprintf(file, ".reg .pred d; .reg .b32 %%d;\n");
    else
        fprintf(file, ".reg .b%u d;\n", bits_of(c->types[0]));
    for (unsigned i = 0; i < OPERANDS && c->types[i + 1][0]; i++) {
        unsigned bits = bits_of(c->types[i + 1]);
        fprintf(file, ".reg .b%u %c; ld.global.b%u %c, [%%from+%u];\n", bits, 'a' + i, bits, 'a' + i,
                8 * i);
    }
    fprintf(file, "%s\n", c->text);
    if (predicate)
        fprintf(file, "selp.u32 %%d, 1, 0, d; st.global.b32 [%%to], %%d;\n");
    else
        fprintf(file, "st.global.b%u [%%to], d;\n", bits_of(c->types[0]));
    fprintf(file, "ret; }\n");
}

static char *write_module(int target) {
    char *text = NULL;
    size_t len;
    FILE *file = open_memstream(&text, &len);
    assert_non_null(file);
    fprintf(file, ".version 7.8\n.target sm_%d\n.address_size 64\n", target);
    for (unsigned i = 0; i < n_cases; i++)
        if (cases[i].needs <= target) write_kernel(file, &cases[i], i);
    fclose(file);
    return text;
}

static bool is_nan(const char *type, uint64_t bits) {
    assert_string_equal(type, "f64");
    return (bits << 1) > UINT64_C(0xffe0000000000000);
}

static void run_case(const ptx_room *room, const ptx_case *c, unsigned number) {
    char name[16];
    uint64_t results[ROWS][RESULTS];
    snprintf(name, sizeof name, "k%u", number);
    CUdeviceptr in = ptx_room_memory(c->in, sizeof c->in), out = ptx_room_memory(NULL, sizeof results);
    assert_cu(cuMemsetD8_v2(out, 0, sizeof results));
    void *params[] = {&in, &out};
    CUresult code = ptx_room_run(ptx_room_function(room, name), 1, c->n_rows, 0, params);
    if (code) fail_msg("%s: %s", c->name, ptx_finding());
    assert_cu(cuMemcpyDtoH_v2(results, out, sizeof results));
    for (unsigned row = 0; row < c->n_rows; row++) {
        unsigned i = 0;
        while (i < RESULTS && results[row][i] == c->out[row][i]) i++;
        bool right = c->any_nan[row] ? is_nan(c->types[0], results[row][0]) : i == RESULTS;
        if (!right)
            fail_msg("%s: %s of %" PRIx64 " %" PRIx64 " %" PRIx64 " is %" PRIx64 ", not %" PRIx64 " (%u)",
                     c->name, c->text, c->in[row][0], c->in[row][1], c->in[row][2],
                     results[row][i % RESULTS], c->out[row][i % RESULTS], i);
    }
    assert_cu(cuMemFree_v2(in));
    assert_cu(cuMemFree_v2(out));
}

static void test_every_row(void **state) {
    (void)state;
    ptx_room room;
    ptx_room_open(&room, 1);
    char *text = write_module(90);
    ptx_room_load(&room, text);
    unsigned rows = 0;
    for (unsigned i = 0; i < n_cases; i++) {
        run_case(&room, &cases[i], i);
        rows += cases[i].n_rows;
    }
    free(text);
    assert_true(n_cases > 600 && rows > 20000);
    ptx_reset(NULL, 0);
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
        cmocka_unit_test(test_ptxas_takes_every_case),
    };
    return cmocka_run_group_tests(tests, read_cases, free_cases);
}
