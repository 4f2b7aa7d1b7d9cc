/* SPDX-License-Identifier: MIT */
/* Instructions of PTX on this GPU: the table by which the tests' stand-in for the driver is judged
 * (tests/data/ptx_cases.txt, which is inside of this program), bit for bit. So where the stand-in and a GPU
 * differ, it shows here, and not in a network. Each case is a launch of its own: one that loses the GPU
 * fails alone. */
#include <inttypes.h>

#include "bare.h"
#include "ptx_cases.h"

/* clang-format off */
__asm__(".pushsection .rodata\n.balign 16\n"
        "ash_instructions_begin:\n.incbin \"" INSTRUCTIONS "\"\nash_instructions_end:\n.byte 0\n"
        ".popsection\n");
/* clang-format on */
extern const char ash_instructions_begin[], ash_instructions_end[];

enum { TOGETHER = 32 /* cases of a module: one that is refused is small, and they are not too many */ };

/* Open for some cases, from `first` on, until the next ones, or until the GPU is lost. */
typedef struct session {
    const ptx_cases *cases;
    unsigned passed, failed, skipped;
    bare b;
    bool open;
    cu_address in, out;
    ash_status status; /* of opening */
    ash_diag diag;
} session;

/* What a kind of GPU is compiled for: the oldest that has what it has, of the two that the table knows. */
static char *write_module(const session *s, unsigned first, int sm) {
    char *text = NULL;
    size_t len;
    FILE *file = open_memstream(&text, &len);
    if (!file) return NULL;
    ptx_case_head(file, sm < 90 ? 80 : 90);
    for (unsigned i = first; i < first + TOGETHER && i < s->cases->n; i++)
        if (s->cases->at[i].needs <= sm) ptx_case_kernel(file, &s->cases->at[i], i);
    fclose(file);
    return text;
}

static void compare(const ptx_case *c, const uint64_t results[][PTX_CASE_RESULTS], check_row *row) {
    unsigned word, at = ptx_case_wrong(c, results, &word);
    if (at == c->n_rows) return;
    check_row_fail(row, "%.80s of %" PRIx64 " %" PRIx64 " %" PRIx64 " is %" PRIx64 ", not %" PRIx64,
                   c->text, c->in[at][0], c->in[at][1], c->in[at][2], results[at][word], c->out[at][word]);
}

static ash_status ready(const check_run *run, session *s, unsigned first) {
    char *text = write_module(s, first, run->facts.sm);
    ash_status status = bare_open(run, &s->b, &s->diag);
    s->open = true;
    if (status == ASH_OK) status = text ? bare_load(&s->b, text, &s->diag) : ASH_NO_MEMORY(&s->diag);
    free(text);
    if (status == ASH_OK) status = bare_memory(&s->b, sizeof s->cases->at->in, &s->in, &s->diag);
    if (status == ASH_OK) status = bare_memory(&s->b, sizeof s->cases->at->out, &s->out, &s->diag);
    return status;
}

/* Again and again: an instruction has the same results each time. */
static ash_status execute(const check_run *run, session *s, unsigned number, check_row *row,
                          ash_diag *diag) {
    static uint64_t results[PTX_CASE_ROWS][PTX_CASE_RESULTS];
    const ptx_case *c = &s->cases->at[number];
    char name[16];
    cu_function kernel;
    void *params[] = {&s->in, &s->out};
    memset(results, 0, sizeof results);
    snprintf(name, sizeof name, "k%u", number);
    ASH_TRY(bare_find(&s->b, name, &kernel, diag));
    ASH_TRY(bare_copy_in(&s->b, s->in, c->in, sizeof c->in, diag));
    ASH_TRY(bare_copy_in(&s->b, s->out, results, sizeof results, diag));
    for (uint64_t i = 0; i < run->options.repeat; i++) {
        ASH_TRY(bare_launch(&s->b, kernel, 1, c->n_rows, params, diag));
        ASH_TRY(bare_copy_out(&s->b, results, s->out, sizeof results, diag));
        compare(c, results, row);
    }
    return ASH_OK;
}

static void check_one(check_run *run, session *s, unsigned number) {
    const ptx_case *c = &s->cases->at[number];
    bool lost = !run->device->class->current(run->device);
    check_row row = check_row_of("instructions", c->name, "");
    row.quiet = true;
    if (number % TOGETHER == 0 || lost) {
        if (s->open) bare_close(&s->b);
        check_revive(run);
        s->status = ready(run, s, number / TOGETHER * TOGETHER);
    }
    if (c->needs > run->facts.sm) {
        row.skipped = true;
        snprintf(row.why, sizeof row.why, "for sm_%d and newer ones", c->needs);
        s->skipped++;
        table_add(&row);
        return;
    }
    ash_diag diag = s->diag;
    check_row_end(&row, s->status == ASH_OK ? execute(run, s, number, &row, &diag) : s->status, false,
                  &diag);
    s->passed += row.passed;
    s->failed += !row.passed;
}

void check_instructions(check_run *run) {
    ptx_cases cases;
    session s = {.cases = &cases};
    char name[64] = "";
    check_row row = check_row_of("instructions", name, "");
    if (!ptx_cases_read(ash_instructions_begin, (size_t)(ash_instructions_end - ash_instructions_begin),
                        &cases))
        check_row_fail(&row, "the table cannot be read");
    for (unsigned i = 0; i < cases.n && row.passed; i++) check_one(run, &s, i);
    if (s.open) bare_close(&s.b);
    snprintf(name, sizeof name, "%u cases, %u rows", cases.n, cases.rows);
    if (s.failed) check_row_fail(&row, "%u cases do not have the table's results", s.failed);
    row.skipped = row.passed && !s.passed;
    if (s.skipped && row.passed)
        snprintf(row.why, sizeof row.why, "%u of them are for newer GPUs than sm_%d", s.skipped,
                 run->facts.sm);
    table_add(&row);
    free(cases.at);
}
