/* SPDX-License-Identifier: MIT */
/* Random graphs through whole plans, in random ways, beside the evaluator; failures are made small and
 * written as texts that become tests (tests/data/fuzz).
 *
 *     fuzz [--seconds N] [--first SEED] [--count N] [--jobs N] [--out FOLDER]     seeds, until time is up
 *     fuzz --seed SEED                                                            one seed, in many ways
 *     fuzz FILE...                                                                cases that are there
 *
 * Each batch of seeds, and each trial of a smaller case, has a process of its own, so that a crash or a
 * hang is a failure as any other. Prints each failing seed with what went wrong, and closes with
 * "N passed, N failed, 0 skipped". */
#include <dirent.h>
#include <poll.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "case.h"

enum { BATCH = 20, TRIAL_SECONDS = 60, WAYS_A_SEED = 2, WAYS_A_CASE = 12, MOST_TRIALS = 400 };

/* What a child tells its parent, in shared memory. */
typedef struct verdict {
    uint64_t seed, way, done;
    bool failed;
    char error[512];
} verdict;

static verdict *new_verdict(void) {
    return mmap(NULL, sizeof(verdict), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
}

static ash_context *open_context(void) {
    ash_context *context;
    ash_diag diag;
    if (ash_context_create(&(ash_context_options){.threads = 3}, &context, &diag) != ASH_OK) abort();
    return context;
}

/* Two ways for a seed: as if nothing were said, and one of its own. */
static uint64_t way_of(uint64_t seed, unsigned i) {
    return i == 0 ? 0 : seed * 31 + i;
}

/* --- children --------------------------------------------------------------------------------- */

static void run_seed(ash_context *context, uint64_t seed, unsigned ways, verdict *v) {
    fuzz_case c;
    v->seed = seed;
    v->way = 0;
    alarm(TRIAL_SECONDS);
    if (case_generate(context, seed, &c))
        for (unsigned i = 0; i < ways && !v->failed; i++) {
            v->way = way_of(seed, i);
            v->failed = !case_run(context, &c, v->way, v->error);
        }
    case_free(&c);
    v->done++;
}

/* A case's text in one way, or in many when `way` is UINT64_MAX. */
static void run_text(const char *text, uint64_t way, verdict *v) {
    ash_context *context = open_context();
    fuzz_case c;
    alarm(way == UINT64_MAX ? 3 * TRIAL_SECONDS : TRIAL_SECONDS);
    v->failed = !case_parse(context, text, strlen(text), &c, v->error);
    for (unsigned i = 0; i < (way == UINT64_MAX ? WAYS_A_CASE : 1) && !v->failed; i++) {
        v->way = way == UINT64_MAX ? i : way;
        v->failed = !case_run(context, &c, v->way, v->error);
    }
    case_free(&c);
    ash_context_destroy(context);
}

/* What became of a child, as a failure when it did not end by itself. */
static void reap(int status, verdict *v) {
    if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return;
    v->failed = true;
    if (WIFSIGNALED(status) && WTERMSIG(status) == SIGALRM)
        snprintf(v->error, sizeof v->error, "it takes more than %d seconds", TRIAL_SECONDS);
    else if (WIFSIGNALED(status))
        snprintf(v->error, sizeof v->error, "signal %d", WTERMSIG(status));
    else
        snprintf(v->error, sizeof v->error, "the process ended with status %d", WEXITSTATUS(status));
}

static void try_text(const char *text, uint64_t way, verdict *v) {
    int status;
    v->failed = false;
    v->error[0] = 0;
    pid_t child = fork();
    if (child == 0) {
        run_text(text, way, v);
        _exit(0);
    }
    if (child < 0 || waitpid(child, &status, 0) != child) abort();
    reap(status, v);
}

/* --- making a failure small -------------------------------------------------------------------- */

typedef struct shrink {
    char *text;
    uint64_t way;
    verdict *v;
    unsigned trials;
    char error[512]; /* of the text */
} shrink;

/* Takes the smaller case when it fails, too. */
static bool accept_cut(shrink *s, const fuzz_case *c, const fuzz_cut *cut) {
    char *text = s->trials < MOST_TRIALS ? case_cut(c, cut) : NULL;
    bool smaller = text && strlen(text) < strlen(s->text);
    if (smaller) {
        s->trials++;
        try_text(text, s->way, s->v);
        smaller = s->v->failed;
    }
    if (!smaller) return free(text), false;
    free(s->text);
    s->text = text;
    snprintf(s->error, sizeof s->error, "%s", s->v->error);
    return true;
}

/* Tries each cut of one kind on the present case; whether one was taken. */
static bool shrink_once(shrink *s, const fuzz_case *c) {
    fuzz_cut cut = {.round = -1, .leaf = calloc(c->g->values.len + 1, 1)};
    bool taken = false;
    for (unsigned r = 0; c->rounds > 1 && r < c->rounds && !taken; r++) {
        cut.round = (int)r;
        taken = accept_cut(s, c, &cut);
    }
    cut.round = -1;
    for (size_t o = 0; c->g->outputs.len > 1 && o < c->g->outputs.len && !taken; o++) {
        for (size_t k = 0; k < c->g->outputs.len; k++) cut.output[k] = k != o;
        taken = accept_cut(s, c, &cut);
    }
    for (size_t o = 0; c->g->outputs.len > 1 && o < c->g->outputs.len && !taken; o++) {
        memset(cut.output, 0, sizeof cut.output);
        cut.output[o] = true;
        taken = accept_cut(s, c, &cut);
    }
    memset(cut.output, 0, sizeof cut.output);
    for (size_t v = c->g->values.len; v-- > 0 && !taken;) {
        if (c->g->values.at[v].kind == ASH_VALUE_INPUT) continue;
        cut.leaf[v] = true;
        taken = accept_cut(s, c, &cut);
        cut.leaf[v] = false;
    }
    free(cut.leaf);
    return taken;
}

/* Cases are built in the parent, which runs none: its context has no threads. */
static void make_small(shrink *s) {
    ash_context *context;
    ash_diag diag;
    if (ash_context_create(&(ash_context_options){.threads = 1}, &context, &diag) != ASH_OK) abort();
    for (bool more = true; more;) {
        fuzz_case c;
        char error[512];
        more = case_parse(context, s->text, strlen(s->text), &c, error) && shrink_once(s, &c);
        case_free(&c);
    }
    ash_context_destroy(context);
}

static char *text_of(uint64_t seed) {
    ash_context *context;
    ash_diag diag;
    fuzz_case c;
    if (ash_context_create(&(ash_context_options){.threads = 1}, &context, &diag) != ASH_OK) abort();
    char *text = case_generate(context, seed, &c) ? case_print(&c) : NULL;
    case_free(&c);
    ash_context_destroy(context);
    return text;
}

static void report(const verdict *failed, const char *folder) {
    shrink s = {.text = text_of(failed->seed), .way = failed->way, .v = new_verdict()};
    char path[512];
    printf("seed %llu: %s\n", (unsigned long long)failed->seed, failed->error);
    fflush(stdout);
    snprintf(s.error, sizeof s.error, "%s", failed->error);
    if (!s.text) return;
    make_small(&s);
    snprintf(path, sizeof path, "%s/%llu.txt", folder, (unsigned long long)failed->seed);
    FILE *out = fopen(path, "w");
    if (out) {
        fprintf(out, "# %s\n# way %llu\n%s", s.error, (unsigned long long)s.way, s.text);
        fclose(out);
        printf("    smaller: %s (%s)\n", path, s.error);
        fflush(stdout);
    }
    free(s.text);
    munmap(s.v, sizeof *s.v);
}

/* --- the parent -------------------------------------------------------------------------------- */

typedef struct settings {
    uint64_t first, count, seconds;
    unsigned jobs;
    const char *folder;
} settings;

typedef struct job {
    pid_t child;
    uint64_t next, end; /* seeds */
    verdict *v;
} job;

static void start(job *j) {
    j->v->failed = false;
    j->v->done = 0;
    j->v->error[0] = 0;
    fflush(stdout);
    j->child = fork();
    if (j->child < 0) abort();
    if (j->child) return;
    ash_context *context = open_context();
    for (uint64_t seed = j->next; seed < j->end && !j->v->failed; seed++)
        run_seed(context, seed, WAYS_A_SEED, j->v);
    _exit(0);
}

static int run_all(const settings *s) {
    struct timespec now, began;
    uint64_t next = s->first, passed = 0, failed = 0;
    job *jobs = calloc(s->jobs, sizeof *jobs);
    unsigned running = 0;
    clock_gettime(CLOCK_MONOTONIC, &began);
    for (unsigned i = 0; i < s->jobs; i++) jobs[i].v = new_verdict();
    for (;;) {
        clock_gettime(CLOCK_MONOTONIC, &now);
        bool stop = s->seconds && (uint64_t)(now.tv_sec - began.tv_sec) >= s->seconds;
        for (unsigned i = 0; i < s->jobs; i++) {
            job *j = &jobs[i];
            if (j->child) continue;
            if (j->next == j->end && next - s->first < s->count && !stop) {
                j->next = next;
                j->end = ASH_MIN(next + BATCH, s->first + s->count);
                next = j->end;
            }
            if (j->next < j->end && !stop) start(j), running++;
        }
        if (running == 0) break;
        int status;
        pid_t child = wait(&status);
        for (unsigned i = 0; i < s->jobs; i++) {
            job *j = &jobs[i];
            if (j->child != child) continue;
            j->child = 0;
            running--;
            reap(status, j->v);
            passed += j->v->done;
            j->next = j->end;
            if (!j->v->failed) continue;
            passed -= j->v->done && WIFEXITED(status);
            failed++;
            j->next = j->v->seed + 1;
            report(j->v, s->folder);
        }
    }
    printf("seeds from %llu to %llu\n%llu passed, %llu failed, 0 skipped\n", (unsigned long long)s->first,
           (unsigned long long)next, (unsigned long long)passed, (unsigned long long)failed);
    free(jobs);
    return failed > 0;
}

static int run_files(int n, char **paths) {
    unsigned failed = 0;
    verdict *v = new_verdict();
    for (int i = 0; i < n; i++) {
        char *text = NULL;
        size_t room = 0;
        FILE *in = fopen(paths[i], "r");
        if (!in || getdelim(&text, &room, 0, in) < 0) {
            printf("%s cannot be read\n", paths[i]);
            failed++;
        } else {
            try_text(text, UINT64_MAX, v);
            if (v->failed) printf("%s: %s\n", paths[i], v->error);
            failed += v->failed;
        }
        if (in) fclose(in);
        free(text);
    }
    printf("%d passed, %u failed, 0 skipped\n", n - (int)failed, failed);
    return failed > 0;
}

static int run_one(uint64_t seed) {
    ash_context *context = open_context();
    verdict v = {0};
    run_seed(context, seed, WAYS_A_CASE, &v);
    if (v.failed) printf("seed %llu: %s\n", (unsigned long long)seed, v.error);
    printf("%d passed, %d failed, 0 skipped\n", !v.failed, v.failed);
    ash_context_destroy(context);
    return v.failed;
}

int main(int argc, char **argv) {
    settings s = {.first = (uint64_t)time(NULL) * 1000000, .count = UINT64_MAX / 2, .folder = "."};
    s.jobs = (unsigned)ASH_MAX(sysconf(_SC_NPROCESSORS_ONLN), 1);
    int i = 1;
    for (; i + 1 < argc && argv[i][0] == '-'; i += 2) {
        const char *name = argv[i] + 1 + (argv[i][1] == '-'), *value = argv[i + 1];
        if (!strcmp(name, "seconds"))
            s.seconds = strtoull(value, NULL, 10);
        else if (!strcmp(name, "first"))
            s.first = strtoull(value, NULL, 10);
        else if (!strcmp(name, "count"))
            s.count = strtoull(value, NULL, 10);
        else if (!strcmp(name, "jobs"))
            s.jobs = (unsigned)ASH_MAX(strtoul(value, NULL, 10), 1);
        else if (!strcmp(name, "out"))
            s.folder = value;
        else if (!strcmp(name, "seed"))
            return run_one(strtoull(value, NULL, 10));
        else
            break;
    }
    if (i < argc && argv[i][0] == '-') {
        fprintf(stderr, "usage: fuzz [--seconds N] [--first SEED] [--count N] [--jobs N] [--out FOLDER] | "
                        "--seed SEED | "
                        "FILE...\n");
        return 2;
    }
    return i < argc ? run_files(argc - i, argv + i) : run_all(&s);
}
