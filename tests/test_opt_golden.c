/* SPDX-License-Identifier: MIT */
/* What each rule and each pass makes of a small graph, as text: the cases are in tests/data/opt_*.txt.
 *
 *     === theme.rule: what the case shows     a rule whose results may be rounded differently has a
 *                                             ~ after its name
 *     --- simplify dce lanes=8                the passes, and the f32 lanes of the target (16 unless given)
 *     the graph, without its first line
 *     --- becomes
 *     the graph after the passes
 *
 * Both graphs are also evaluated, and compared bit for bit, with infinities, NaN and zeros of both signs
 * among the inputs. With ASHLAR_UPDATE_GOLDEN set, what passes make is written into the files instead of
 * compared: review the difference. */
#include "opt/simplify.h"
#include "opt_testing.h"

typedef struct golden {
    char name[160], passes[80];
    char *before, *after; /* terminated, in the text of the file */
    unsigned lanes;
    bool inexact;
} golden;

static char *read_file(const char *name) {
    char path[512];
    snprintf(path, sizeof path, "%s/tests/data/%s", ASH_SOURCE_DIR, name);
    FILE *file = fopen(path, "rb");
    if (!file) fail_msg("%s is missing", path);
    fseek(file, 0, SEEK_END);
    size_t size = (size_t)ftell(file);
    rewind(file);
    char *text = malloc(size + 1);
    assert_int_equal(fread(text, 1, size, file), size);
    fclose(file);
    text[size] = 0;
    return text;
}

/* The rest of the line at *at, which is terminated and left behind. */
static char *take_line(char **at) {
    char *line = *at, *end = strchr(line, '\n');
    *at = end ? end + 1 : line + strlen(line);
    if (end) *end = 0;
    return line;
}

/* The text up to a line that starts with `mark`. */
static char *take_until(char **at, const char *mark) {
    char *text = *at, *end = strstr(text, mark);
    *at = end ? end : text + strlen(text);
    return text;
}

static bool next_case(char **at, golden *c) {
    if (strncmp(*at, "=== ", 4)) return false;
    snprintf(c->name, sizeof c->name, "%s", take_line(at) + 4);
    snprintf(c->passes, sizeof c->passes, "%s", take_line(at) + 4);
    const char *lanes = strstr(c->passes, "lanes=");
    c->lanes = lanes ? (unsigned)atoi(lanes + 6) : 16;
    c->inexact = strchr(c->name, '~') != NULL;
    c->before = take_until(at, "--- becomes");
    char *mark = *at;
    take_line(at);
    *mark = 0;
    c->after = take_until(at, "=== ");
    return true;
}

static char *print(const ash_graph *g) {
    ash_diag diag;
    char *text, *body;
    size_t len;
    assert_ok(ash_graph_print(g, true, &text, &len, &diag));
    body = strndup(strchr(text, '\n') + 1, len);
    ash_context_free_text(g->context, text, len);
    return body;
}

static void run_case(fixture *f, const golden *c) {
    ash_diag diag;
    char *text = malloc(strlen(c->before) + 32);
    ash_target target = target_of(c->lanes);
    target.dot4 = strstr(c->passes, "quantize") ? 1 : 0; /* whose business it is */
    ash_graph_destroy(f->g);
    f->g = NULL;
    sprintf(text, "graph \"test\"\n%s", c->before);
    assert_ok(ash_graph_parse(f->context, text, strlen(text), &f->g, &diag));
    assert_ok(optimise(f, c->passes, &target, (ash_opt_options){0}, &diag));
    bool same = same_boundary(f->g, f->out) &&
                (c->inexact ? same_results(f->g, f->out, ASH_EVAL_DOUBLE, false, 1e-6, (int64_t[]){2})
                            : same_results(f->g, f->out, ASH_EVAL_DTYPE, true, 0, (int64_t[]){2}));
    if (!same) fail_msg("%s", c->name);
    free(text);
}

/* Runs the cases of a file; `seen` is called with the name of each. */
static void run_file(fixture *f, const char *name, void (*seen)(void *user, const char *name), void *user) {
    char *text = read_file(name), *at = text, path[512], fresh[520];
    FILE *update = NULL;
    golden c;
    unsigned failed = 0;
    snprintf(path, sizeof path, "%s/tests/data/%s", ASH_SOURCE_DIR, name);
    snprintf(fresh, sizeof fresh, "%s.new", path);
    if (getenv("ASHLAR_UPDATE_GOLDEN")) assert_non_null(update = fopen(fresh, "wb"));
    while (next_case(&at, &c)) {
        char mark = *at;
        *at = 0; /* ends c.after */
        run_case(f, &c);
        char *after = print(f->out);
        if (update) {
            fprintf(update, "=== %s\n--- %s\n%s--- becomes\n%s", c.name, c.passes, c.before, after);
        } else if (strcmp(after, c.after)) {
            print_message("%s: expected\n%sgot\n%s", c.name, c.after, after);
            failed++;
        }
        if (seen) seen(user, c.name);
        free(after);
        *at = mark;
    }
    assert_int_equal(*at, 0);
    if (update) {
        fclose(update);
        assert_int_equal(rename(fresh, path), 0);
    }
    free(text);
    assert_int_equal(failed, 0);
}

/* --- rules ---------------------------------------------------------------------------------------- */

typedef struct coverage {
    bool seen[16][64];
} coverage;

static void note(void *user, const char *name) {
    coverage *c = user;
    size_t len = strcspn(name, ":~");
    bool known = false;
    for (size_t t = 0; ash_rules_themes[t]; t++) {
        for (size_t r = 0; r < ash_rules_themes[t]->len; r++) {
            const char *rule = ash_rules_themes[t]->at[r].name;
            bool same = strlen(rule) == len && !memcmp(rule, name, len);
            c->seen[t][r] = c->seen[t][r] || same;
            known = known || same;
        }
    }
    if (!known) fail_msg("there is no rule %s", name);
}

static void rules_become_what_they_say(void **state) {
    static coverage c;
    run_file(*state, "opt_rules.txt", note, &c);
    for (size_t t = 0; ash_rules_themes[t]; t++)
        for (size_t r = 0; r < ash_rules_themes[t]->len; r++)
            if (!c.seen[t][r]) fail_msg("rule %s has no case", ash_rules_themes[t]->at[r].name);
}

static void passes_become_what_they_say(void **state) {
    run_file(*state, "opt_passes.txt", NULL, NULL);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(rules_become_what_they_say, setup, teardown),
        cmocka_unit_test_setup_teardown(passes_become_what_they_say, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
