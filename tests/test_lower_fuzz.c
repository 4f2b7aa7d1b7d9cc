/* SPDX-License-Identifier: MIT */
/* Lowering of random graphs against the reference evaluator: the nests are interpreted (strictly, for
 * several targets, fused and not), and some of them compiled and run.
 *
 *   ASHLAR_FUZZ_SEED=n       that seed alone, compiled for every target as well
 *   ASHLAR_FUZZ_COUNT=n      so many seeds
 *   ASHLAR_FUZZ_FIRST=n      from that seed on
 *   ASHLAR_FUZZ_ALL=1        every seed is compiled, for every target
 *   ASHLAR_FUZZ_GO_ON=1      goes on after a failure
 *   ASHLAR_FUZZ_QUIET=1      prints neither graphs nor nests */
#include "base/text.h"
#include "code/code.h"
#include "fuzz_ops.h"
#include "kernel/kern.h"
#include "nest_interp.h"
#include "one_context.h"

enum { DEFAULT_COUNT = 700, COMPILE_EVERY = 25, GUARD_BYTES = 64 };

static ash_target targets[6];
static unsigned n_targets, n_named, n_runs, n_compiled, n_looking,
    n_in_place; /* the targets by name come first: those can be compiled for */

static int setup(void **state) {
    (void)state;
    static const char *const names[] = {"x86-64", "x86-64-v3", "x86-64-v4"};
    for (size_t i = 0; i < ASH_COUNT(names); i++)
        if (ash_target__named(names[i], &targets[n_targets], NULL) == ASH_OK) n_targets++;
    n_named = n_targets;
    if (n_named < ASH_COUNT(names)) return 1;
    targets[n_targets] = targets[0]; /* short vectors, many registers */
    targets[n_targets].vector_registers = 32;
    snprintf(targets[n_targets++].cpu, sizeof targets->cpu, "neon");
    targets[n_targets] = targets[0]; /* short vectors with masks */
    targets[n_targets].masks = 1;
    snprintf(targets[n_targets++].cpu, sizeof targets->cpu, "sve");
    if (!ash_target__gpu(80, &targets[n_targets++])) return 1;
    return open_context(1);
}

/* One seed in one way: how it ran, and what went wrong. */
typedef struct trial {
    const fuzz *f;
    const ash_program *program;
    const ash_wide *inputs;
    const int64_t *vars;
    const ash_kernel_fn *fns; /* per nest, or NULL: interpreted */
    interp_memory *own;       /* per buffer that is no view */
    interp_memory **memory;   /* the same, or that of the buffer whose place it takes */
    uint64_t state;
    char error[512];
} trial;

static uint32_t root_of(const ash_program *p, uint32_t buffer) {
    return p->buffers.at[buffer].root == ASH_NO_BUFFER ? buffer : p->buffers.at[buffer].root;
}

static void make_memory(trial *t) {
    const ash_program *p = t->program;
    for (size_t i = 0; i < p->buffers.len; i++) {
        const ash_buffer *b = &p->buffers.at[i];
        interp_memory *m = &t->own[i];
        t->memory[i] = m;
        if (b->root != ASH_NO_BUFFER) continue;
        m->bytes = b->bytes;
        size_t room = (size_t)b->bytes + GUARD_BYTES;
        assert_int_equal(posix_memalign((void **)&m->data, 64, room), 0);
        memset(m->data, 0xa5, room);
        m->undefined = malloc(room);
        memset(m->undefined, b->blob == NULL, room);
        m->writer = calloc(room, sizeof *m->writer);
        m->reader = calloc(room, sizeof *m->reader);
        if (b->blob) memcpy(m->data, b->blob->data, (size_t)b->bytes);
    }
    for (size_t i = 0; i < p->inputs.len; i++) {
        interp_memory *m = t->memory[p->inputs.at[i]];
        ash_wide_store(&t->inputs[i], m->data);
        memset(m->undefined, 0, (size_t)t->inputs[i].count * ash_dtype_size(t->inputs[i].dtype));
    }
}

static void free_memory(trial *t) {
    for (size_t i = 0; i < t->program->buffers.len; i++) {
        free(t->own[i].data);
        free(t->own[i].undefined);
        free(t->own[i].writer);
        free(t->own[i].reader);
    }
}

static bool touched(const ash_program *p, size_t from, size_t to, uint32_t root) {
    for (size_t s = from; s < to; s++)
        for (uint32_t a = 0; a < p->steps.at[s].n_accesses; a++)
            if (root_of(p, p->steps.at[s].accesses[a].buffer) == root) return true;
    return false;
}

/* Lets the result take the place of a dying operand where the step says it may. */
static void take_place(trial *t, size_t s) {
    const ash_program *p = t->program;
    const ash_step *step = &p->steps.at[s];
    if (step->inplace == ASH_NO_BUFFER || p->buffers.at[step->inplace].kind != ASH_BUFFER_LOCAL) return;
    uint32_t out = ASH_NO_BUFFER;
    for (uint32_t i = 0; i < step->n_accesses; i++)
        if (step->accesses[i].write && p->buffers.at[step->accesses[i].buffer].kind != ASH_BUFFER_SCRATCH)
            out = root_of(p, step->accesses[i].buffer);
    if (out == ASH_NO_BUFFER || touched(p, 0, s, out) || touched(p, s + 1, p->steps.len, step->inplace))
        return;
    t->memory[out] = t->memory[step->inplace];
    n_in_place++;
}

static void print_nest(const ash_nest *nest) {
    ash_text text;
    ash_text_init(&text, &ash_allocator__libc);
    ash_nest_print(nest, &text);
    fprintf(stderr, "%.*s\n", (int)text.len, text.at ? text.at : "");
    ash_text_free(&text);
}

static void run_step(trial *t, size_t s) {
    const ash_program *p = t->program;
    const ash_step *step = &p->steps.at[s];
    interp_buffer *buffers = calloc(step->n_buffers + 1, sizeof *buffers);
    void **table = calloc(step->n_buffers + 1, sizeof *table);
    table[step->n_buffers] = (void *)&ash_stop__never;
    take_place(t, s);
    for (uint32_t i = 0; i < step->n_buffers; i++) {
        const ash_buffer *b = &p->buffers.at[step->buffers[i]];
        interp_memory *m = t->memory[root_of(p, step->buffers[i])];
        buffers[i] = interp_bind(p, step, i, t->vars, m);
        table[i] = m->data + ash_buffer__begin(b, p->dims, t->vars);
    }
    int64_t chunks = ash_dims_eval(p->dims, step->chunks, t->vars), starts[8];
    unsigned n = 1 + (unsigned)(test_random(&t->state) % ASH_MIN(ASH_MAX(chunks, 1), 7));
    for (unsigned i = 0; i <= n; i++) starts[i] = i == n ? chunks : chunks * i / n;
    unsigned shift = (unsigned)(test_random(&t->state) % n); /* the pieces in another order */
    for (unsigned i = 0; i < n && !t->error[0]; i++) {
        unsigned at = (n - 1 - i + shift) % n;
        char error[256] = "";
        if (t->fns)
            t->fns[step->nest](table, t->vars, starts[at], starts[at + 1], 0);
        else
            interp_run(&p->nests.at[step->nest], buffers, t->vars, starts[at], starts[at + 1], 0, error);
        if (!error[0]) continue;
        snprintf(t->error, sizeof t->error, "step %zu, %s: %s", s, step->name, error);
        if (!getenv("ASHLAR_FUZZ_QUIET")) print_nest(&p->nests.at[step->nest]);
    }
    for (uint32_t i = 0; i < step->n_buffers && !t->error[0]; i++) {
        const interp_memory *m = buffers[i].memory;
        for (int g = 0; g < GUARD_BYTES; g++)
            if (m->data[m->bytes + g] != 0xa5)
                snprintf(t->error, sizeof t->error, "step %zu, %s: writes past buffer %u", s, step->name,
                         step->buffers[i]);
    }
    free(buffers);
    free(table);
}

static void compare(trial *t, size_t o, const ash_wide *want, const fuzz_value *bound) {
    const ash_program *p = t->program;
    const ash_buffer *b = &p->buffers.at[p->outputs.at[o]];
    const interp_memory *m = t->memory[root_of(p, p->outputs.at[o])];
    ash_wide got;
    ash_diag diag;
    assert_ok(ash_wide_alloc(&ash_allocator__libc, want->dtype, want->rank, want->dims, &got, &diag));
    ash_wide_load(&got, m->data + b->offset);
    size_t size = ash_dtype_size(want->dtype);
    bool is_float = ash_dtype_is_float(want->dtype);
    double slack = is_float ? 4 * bound->error : 0;
    for (int64_t i = 0; i < want->count && !t->error[0]; i++) {
        if (!t->fns && m->undefined[(size_t)b->offset + (size_t)i * size])
            snprintf(t->error, sizeof t->error, "output %zu, element %lld has no value", o, (long long)i);
        else if (!is_float && got.i[i] != want->i[i])
            snprintf(t->error, sizeof t->error, "output %zu, element %lld is %lld, not %lld", o,
                     (long long)i, (long long)got.i[i], (long long)want->i[i]);
        else if (is_float && !(isnan(got.f[i]) && isnan(want->f[i])) && got.f[i] != want->f[i] &&
                 !(fabs(got.f[i] - want->f[i]) <= slack))
            snprintf(t->error, sizeof t->error,
                     "output %zu, element %lld is %.9g, not %.9g (may be off by %g)", o, (long long)i,
                     got.f[i], want->f[i], slack);
    }
    ash_wide_free(&ash_allocator__libc, &got);
}

/* The same graph gives the same program. */
static void check_repeats(trial *t, const ash_target *target, const ash_lower_options *options,
                          const ash_program *p) {
    ash_program *q;
    ash_diag diag;
    assert_ok(ash_program__lower(t->f->g, target, options, &q, &diag));
    bool same =
        p->steps.len == q->steps.len && p->nests.len == q->nests.len && p->buffers.len == q->buffers.len;
    for (size_t i = 0; same && i < p->nests.len; i++) {
        const ash_nest *a = &p->nests.at[i], *b = &q->nests.at[i];
        same = a->code.len == b->code.len &&
               (!a->code.len || !memcmp(a->code.at, b->code.at, a->code.len * sizeof *a->code.at));
    }
    for (size_t i = 0; same && i < p->steps.len; i++)
        same =
            p->steps.at[i].nest == q->steps.at[i].nest && p->steps.at[i].inplace == q->steps.at[i].inplace;
    if (!same) snprintf(t->error, sizeof t->error, "lowered again, it is another program");
    ash_program__free(q);
}

/* Kernels that look all the time whether they are to stop compute the same. */
static void look_often(ash_program *p) {
    ash_costs costs = p->target.costs;
    ash_diag diag;
    costs.look_most_units = 60;
    costs.look_units = 25;
    for (size_t i = 0; i < p->nests.len; i++) {
        double work;
        if (p->nests.at[i].polls) continue;
        assert_ok(ash_nest_add_polls(&p->nests.at[i], &costs, p->dims, INT64_MAX, &work, &diag));
        assert_ok(ash_nest_verify(&p->nests.at[i], &diag));
        n_looking += p->nests.at[i].polls;
    }
}

/* Lowers, runs and compares; t->error says what went wrong. */
static void try_program(trial *t, const ash_target *target, bool fuse, bool compiled,
                        const ash_wide *expected, const fuzz_value *const *bounds) {
    const ash_graph *g = t->f->g;
    ash_value kept[2] = {(ash_value)(test_random(&t->state) % g->values.len),
                         (ash_value)(test_random(&t->state) % g->values.len)};
    ash_lower_options options = {.fuse = fuse, .keep = kept, .n_keep = test_random(&t->state) % 8 ? 0 : 2};
    ash_program *p;
    ash_diag diag;
    ash_code *code = NULL;
    ash_kernel_fn *fns = NULL;
    ash_diag_clear(&diag);
    if (ash_program__lower(g, target, &options, &p, &diag) != ASH_OK) {
        ash_diag_format(&diag, t->error, sizeof t->error);
        return;
    }
    if (n_runs++ % 8 == 0) check_repeats(t, target, &options, p);
    if (test_random(&t->state) % 4 == 0) look_often(p);
    if (compiled) {
        ash_compiler *compiler;
        assert_ok(ash_compiler__get(context, &compiler, &diag));
        if (ash_target__check_runs(ash_compiler__target(compiler), target, &diag) != ASH_OK) goto done;
        const ash_nest **nests = calloc(p->nests.len + 1, sizeof *nests);
        fns = calloc(p->nests.len + 1, sizeof *fns);
        for (size_t i = 0; i < p->nests.len; i++) nests[i] = &p->nests.at[i];
        ash_status status = ash_code__compile(
            compiler, &(ash_code_job){.target = target, .nests = nests, .count = p->nests.len, .fns = fns},
            &code, &diag);
        free(nests);
        if (status != ASH_OK) {
            ash_diag_format(&diag, t->error, sizeof t->error);
            goto done;
        }
        n_compiled++;
    }
    t->program = p;
    t->fns = fns;
    t->own = calloc(p->buffers.len + 1, sizeof *t->own);
    t->memory = calloc(p->buffers.len + 1, sizeof *t->memory);
    make_memory(t);
    for (size_t s = 0; s < p->steps.len && !t->error[0]; s++) run_step(t, s);
    for (size_t o = 0; o < g->outputs.len && !t->error[0]; o++) compare(t, o, &expected[o], bounds[o]);
    free_memory(t);
    free(t->own);
    free(t->memory);
done:
    ash_code__release(code);
    free(fns);
    ash_program__free(p);
}

static void report(const fuzz *f, uint64_t seed, const char *how, const char *error) {
    char *text = NULL;
    size_t len;
    ash_diag diag;
    fprintf(stderr, "seed %llu, %s: %s\n", (unsigned long long)seed, how, error);
    if (!getenv("ASHLAR_FUZZ_QUIET") && ash_graph_print(f->g, false, &text, &len, &diag) == ASH_OK)
        fprintf(stderr, "%.*s\n", (int)len, text);
    if (text) ash_context_free_text(context, text, len);
}

/* All ways of running the graph with one set of variables. */
static bool run_vars(const fuzz *f, uint64_t seed, const int64_t *vars, const fuzz_value *const *bounds,
                     bool all) {
    const ash_graph *g = f->g;
    const ash_allocator *a = &ash_allocator__libc;
    ash_diag diag;
    bool ok = true;
    uint64_t state = seed ^ 77;
    ash_wide *inputs = calloc(g->inputs.len + 1, sizeof *inputs),
             *expected = calloc(g->outputs.len + 1, sizeof *expected);
    for (size_t i = 0; i < g->inputs.len; i++) {
        const ash_type *type = ash_graph__type(g, g->inputs.at[i]);
        int64_t dims[ASH_MAX_RANK];
        for (unsigned d = 0; d < type->rank; d++) dims[d] = ash_dims_eval(g->dims, type->dims[d], vars);
        assert_ok(ash_wide_alloc(a, type->dtype, type->rank, dims, &inputs[i], &diag));
        fuzz_fill(&inputs[i], f->fill[i], f->limit[i], f->is_special[i]);
    }
    assert_ok(ash_eval_graph(g, inputs, vars, ASH_EVAL_DOUBLE, expected, &diag));
    unsigned chosen = (unsigned)(test_random(&state) % n_targets);
    bool compile = seed % COMPILE_EVERY == 0, compile_fused = test_random(&state) % 4 != 0;
    for (unsigned way = 0; way < 4 * n_targets && ok; way++) {
        unsigned target = way / 4;
        bool fuse = way & 1, compiled = way & 2;
        if (!all && target != (compiled ? chosen % n_named : chosen)) continue;
        if (compiled && target >= n_named) continue;
        if (!all && compiled && (!compile || fuse != compile_fused)) continue;
        trial t = {.f = f, .inputs = inputs, .vars = vars, .state = state};
        try_program(&t, &targets[target], fuse, compiled, expected, bounds);
        if (!t.error[0]) continue;
        char how[160];
        snprintf(how, sizeof how, "%s, %s, %s, variables %lld %lld", targets[target].cpu,
                 fuse ? "fused" : "not fused", compiled ? "compiled" : "interpreted", (long long)vars[0],
                 (long long)vars[1]);
        report(f, seed, how, t.error);
        ok = false;
    }
    for (size_t i = 0; i < g->inputs.len; i++) ash_wide_free(a, &inputs[i]);
    for (size_t o = 0; o < g->outputs.len; o++) ash_wide_free(a, &expected[o]);
    free(inputs);
    free(expected);
    return ok;
}

static bool run_seed(uint64_t seed, bool all) {
    static fuzz f;
    ash_graph *g;
    ash_diag diag;
    const fuzz_value *bounds[FUZZ_VALUES];
    unsigned n = 0;
    assert_ok(ash_graph_create(context, "fuzz", &g, &diag));
    fuzz_build(&f, g, seed * UINT64_C(0x2545f4914f6cdd1d) + 1);
    assert_ok(ash_graph_status(g, &diag));
    for (unsigned i = 0; i < f.n_values; i++) {
        if (f.values[i].used && !chance(&f, 15) && i + 1 != f.n_values) continue;
        char name[16];
        snprintf(name, sizeof name, "y%u", n);
        bounds[n++] = &f.values[i];
        ash_graph_output(g, name, f.values[i].id);
    }
    assert_ok(ash_graph_status(g, &diag));
    bool ok = true;
    for (unsigned round = 0; round < (f.n_vars ? 3 : 1) && ok; round++) {
        int64_t vars[2] = {0};
        for (unsigned i = 0; i < f.n_vars; i++) vars[i] = fuzz_size(&f, ash_dims_var(g->dims, i), round);
        ok = run_vars(&f, seed, vars, bounds, all);
    }
    ash_graph_destroy(g);
    return ok;
}

static uint64_t setting(const char *name, uint64_t otherwise) {
    const char *text = getenv(name);
    return text ? strtoull(text, NULL, 10) : otherwise;
}

static void test_random_graphs(void **state) {
    (void)state;
    unsigned failed = 0;
    if (getenv("ASHLAR_FUZZ_SEED")) {
        assert_true(run_seed(setting("ASHLAR_FUZZ_SEED", 0), true));
        return;
    }
    /* what interpreting alone finds: reads behind an operand, by lanes that are off */
    static const uint64_t once[] = {27965};
    for (size_t i = 0; i < ASH_COUNT(once); i++) failed += !run_seed(once[i], false);
    uint64_t first = setting("ASHLAR_FUZZ_FIRST", 0), count = setting("ASHLAR_FUZZ_COUNT", DEFAULT_COUNT);
    for (uint64_t seed = first; seed < first + count; seed++) {
        failed += !run_seed(seed, getenv("ASHLAR_FUZZ_ALL") != NULL);
        if (failed && !getenv("ASHLAR_FUZZ_GO_ON")) break;
    }
    print_message(
        "%u programs run, %u of them compiled, %u steps in place, %u kernels that look, %u seeds failed\n",
        n_runs, n_compiled, n_in_place, n_looking, failed);
    assert_int_equal(failed, 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_random_graphs)};
    return cmocka_run_group_tests(tests, setup, tear_down);
}
