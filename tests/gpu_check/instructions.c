/* SPDX-License-Identifier: MIT */
/* Instructions of PTX on this GPU: the table by which the tests' stand-in for the driver is judged
 * (tests/data/ptx_cases.txt, which is inside of this program), bit for bit. So where the stand-in and a GPU
 * differ, it shows here, and not in a network. A case is a module and a launch of its own: one that is
 * refused, or loses the GPU, fails alone. */
#include <inttypes.h>

#include "bare.h"
#include "ptx_cases.h"

/* clang-format off */
__asm__(".pushsection .rodata\n.balign 16\n"
        "ash_instructions_begin:\n.incbin \"" INSTRUCTIONS "\"\nash_instructions_end:\n.byte 0\n"
        ".popsection\n");
/* clang-format on */
extern const char ash_instructions_begin[], ash_instructions_end[];

/* What a kind of GPU is compiled for: the oldest that has what it has, of the two that the table knows. */
static int kind_of(int sm) {
    return sm < 90 ? 80 : 90;
}

static char *write_module(const ptx_case *c, int sm) {
    char *text = NULL;
    size_t len;
    FILE *file = open_memstream(&text, &len);
    if (!file) return NULL;
    ptx_case_head(file, kind_of(sm));
    ptx_case_kernel(file, c, 0);
    fclose(file);
    return text;
}

static void compare(const ptx_case *c, const uint64_t results[][PTX_CASE_RESULTS], check_row *row) {
    unsigned word, at = ptx_case_wrong(c, results, &word);
    if (at == c->n_rows) return;
    check_row_fail(row, "%.80s of %" PRIx64 " %" PRIx64 " %" PRIx64 " is %" PRIx64 ", not %" PRIx64,
                   c->text, c->in[at][0], c->in[at][1], c->in[at][2], results[at][word], c->out[at][word]);
}

/* Again and again: an instruction has the same results each time. */
static ash_status execute(const check_run *run, bare *b, const ptx_case *c, const char *text,
                          check_row *row, ash_diag *diag) {
    static uint64_t results[PTX_CASE_ROWS][PTX_CASE_RESULTS];
    cu_address in, out;
    cu_function kernel;
    void *params[] = {&in, &out};
    ASH_TRY(bare_load(b, text, diag));
    ASH_TRY(bare_find(b, "k0", &kernel, diag));
    ASH_TRY(bare_memory(b, sizeof c->in, &in, diag));
    ASH_TRY(bare_memory(b, sizeof results, &out, diag));
    ASH_TRY(bare_copy_in(b, in, c->in, sizeof c->in, diag));
    for (uint64_t i = 0; i < run->options.repeat; i++) {
        ASH_TRY(bare_launch(b, kernel, 1, c->n_rows, params, diag));
        ASH_TRY(bare_copy_out(b, results, out, sizeof results, diag));
        compare(c, results, row);
    }
    return ASH_OK;
}

typedef struct counts {
    unsigned passed, failed, skipped;
} counts;

static void check_one(check_run *run, const ptx_case *c, counts *n) {
    bare b;
    ash_diag diag = {0};
    check_row row = check_row_of("instructions", c->name, "");
    row.quiet = true;
    if (c->needs > run->facts.sm) {
        row.skipped = true;
        snprintf(row.why, sizeof row.why, "for sm_%d and newer ones", c->needs);
        n->skipped++;
        table_add(&row);
        return;
    }
    check_revive(run);
    char *text = write_module(c, run->facts.sm);
    ash_status status = text ? bare_open(run, &b, &diag) : ASH_ERROR_OUT_OF_MEMORY;
    if (status == ASH_OK) status = execute(run, &b, c, text, &row, &diag);
    if (text) bare_close(&b);
    free(text);
    check_row_end(&row, status, false, &diag);
    n->passed += row.passed;
    n->failed += !row.passed;
}

void check_instructions(check_run *run) {
    ptx_cases cases;
    counts n = {0};
    char name[64] = "";
    check_row row = check_row_of("instructions", name, "");
    if (!ptx_cases_read(ash_instructions_begin, (size_t)(ash_instructions_end - ash_instructions_begin),
                        &cases))
        check_row_fail(&row, "the table cannot be read");
    for (unsigned i = 0; i < cases.n && row.passed; i++) check_one(run, &cases.at[i], &n);
    snprintf(name, sizeof name, "%u cases, %u rows", cases.n, cases.rows);
    if (n.failed) check_row_fail(&row, "%u cases do not have the table's results", n.failed);
    if (n.skipped && !n.passed && row.passed) row.skipped = true;
    if (n.skipped && row.passed)
        snprintf(row.why, sizeof row.why, "%u of them are for newer GPUs than sm_%d", n.skipped,
                 run->facts.sm);
    table_add(&row);
    free(cases.at);
}
