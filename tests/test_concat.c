/* SPDX-License-Identifier: MIT */
/* Concatenations of concatenations: on several axes, of parts that are used elsewhere, are outputs or come
 * twice, of sizes that variables have and of sizes that are found while the graph runs. Each random graph
 * becomes plans whose access records both checkers judge, in several modes; some are executed and compared
 * with the reference evaluator.
 *
 *   ASHLAR_FUZZ_SEED=n       that seed alone
 *   ASHLAR_FUZZ_COUNT=n      so many seeds
 *   ASHLAR_FUZZ_FIRST=n      from that seed on
 *   ASHLAR_FUZZ_EVERY=n      every n-th of them is executed */
#include "random.h"
#include "state_testing.h"

enum { DEFAULT_COUNT = 600, EXECUTE_EVERY = 30, VALUES = 64, RANK = 3, ROOM = 600, FOUND = 3, INPUTS = 3 };

typedef struct world {
    struct room *r;
    ash_graph *g;
    uint64_t seed, random;
    ash_value values[VALUES], inputs[INPUTS];
    unsigned count, found;
    ash_dim m;
    int64_t present; /* the value of m */
} world;

#define assert_works(w, call)                                                                              \
    do {                                                                                                   \
        ash_diag_clear(&diag);                                                                             \
        if ((call) != ASH_OK) {                                                                            \
            char line_[768];                                                                               \
            ash_diag_format(&diag, line_, sizeof line_);                                                   \
            fail_msg("seed %llu: %s", (unsigned long long)(w)->seed, line_);                               \
        }                                                                                                  \
    } while (0)

static int64_t pick(world *w, int64_t n) {
    return (int64_t)(test_random(&w->random) % (uint64_t)n);
}

static const ash_type *type_of(const world *w, ash_value v) {
    return ash_graph_type(w->g, v);
}

static ash_value any(world *w) {
    return w->values[pick(w, w->count)];
}

static void keep(world *w, ash_value v) {
    if (v == ASH_NO_VALUE || w->count == VALUES) return;
    if (ash_type_max_count(w->g->dims, type_of(w, v)) <= ROOM) w->values[w->count++] = v;
}

/* --- what a graph is made of ------------------------------------------------------------------------ */

static ash_value computed(world *w, ash_value x) {
    switch (pick(w, 4)) {
    case 0: return ash_neg(w->g, x);
    case 1: return ash_mul(w->g, x, ash_scalar_like(w->g, x, (double)(2 + pick(w, 3))));
    case 2: return ash_max(w->g, x, ash_scalar_like(w->g, x, 0));
    default: return ash_add(w->g, x, ash_scalar_like(w->g, x, (double)pick(w, 9)));
    }
}

static ash_value cumulated(world *w, ash_value x) {
    ash_attr attrs[] = {ash_attr_int(ASH_ATTR_AXIS, pick(w, RANK)), ash_attr_int(ASH_ATTR_EXCLUSIVE, 0),
                        ash_attr_int(ASH_ATTR_REVERSE, pick(w, 2))};
    return ash_build(w->g, ASH_OP_CUMSUM, &x, 1, attrs, 3);
}

static ash_value moved(world *w, ash_value x) {
    static const int64_t perms[][RANK] = {{0, 2, 1}, {1, 0, 2}, {2, 1, 0}, {1, 2, 0}, {2, 0, 1}};
    const ash_type t = *type_of(w, x);
    ash_dim dims[RANK];
    if (pick(w, 2)) return ash_transpose(w->g, x, perms[pick(w, 5)]);
    for (unsigned d = 0; d < RANK; d++) dims[d] = t.dims[(d + 1) % RANK];
    return ash_reshape(w->g, x, dims, RANK);
}

/* The planes of x whose first element is above a bound: how many there are is found at run time. */
static ash_value chosen(world *w, ash_value x) {
    const ash_type t = *type_of(w, x);
    char name[8];
    ash_value count;
    bool some = t.dims[0] != 0;
    for (unsigned d = 1; d < RANK; d++) {
        int64_t least, most;
        ash_dims_bounds(w->g->dims, t.dims[d], &least, &most);
        some &= least > 0;
    }
    if (w->found == FOUND || !some) return computed(w, x);
    ash_value line = ash_slice_axis(w->g, ash_slice_axis(w->g, x, 1, 0, 1), 2, 0, 1);
    line = ash_reshape(w->g, line, t.dims, 1);
    ash_value at = ash_nonzero(w->g, ash_lt(w->g, ash_scalar_like(w->g, line, -2), line), &count);
    snprintf(name, sizeof name, "n%u", w->found++);
    ash_dim n = ash_settle(w->g, name, count, t.dims[0]);
    return ash_gather(w->g, x, ash_slice_axis(w->g, at, 0, 0, n), 0);
}

/* x, something like it, or some of it along the axis. */
static ash_value part(world *w, ash_value x, int64_t axis) {
    const ash_type t = *type_of(w, x);
    for (int i = 0; i < 4; i++) { /* something else that fits */
        ash_value v = any(w);
        bool fits = true;
        for (unsigned d = 0; d < RANK; d++) fits &= d == axis || type_of(w, v)->dims[d] == t.dims[d];
        if (fits && v != x) return pick(w, 2) ? v : computed(w, v);
    }
    ash_dim dim = t.dims[axis];
    if (ash_dim_is_const(dim) && dim > 1 && pick(w, 2)) {
        int64_t start = pick(w, dim), size = pick(w, dim - start + 1);
        x = ash_slice_axis(w->g, x, axis, start, size);
    }
    return pick(w, 4) ? computed(w, x) : x;
}

static ash_value joined(world *w) {
    ash_value x = w->values[w->count - 1 - pick(w, ASH_MIN(w->count, 6u))], parts[4];
    int64_t axis = pick(w, RANK), n = 1 + pick(w, 4);
    for (int64_t i = 0; i < n; i++) parts[i] = part(w, x, axis);
    for (int64_t i = 0; i < n; i++)
        if (pick(w, 10) == 0) keep(w, parts[i]);
    return ash_concat(w->g, parts, (size_t)n, axis);
}

static void make_graph(world *w) {
    fresh_graph(w->r);
    w->g = w->r->g;
    w->m = ash_graph_var(w->g, "m", 1, 5);
    w->present = 1 + pick(w, 5);
    for (unsigned i = 0; i < INPUTS; i++) {
        ash_type type = {.dtype = ASH_I32, .rank = RANK};
        for (unsigned d = 0; d < RANK; d++) type.dims[d] = pick(w, 6) ? 1 + pick(w, 4) : w->m;
        char name[] = {'x', (char)('0' + i), 0};
        w->inputs[i] = ash_graph_input(w->g, name, &type);
        keep(w, w->inputs[i]);
        keep(w, computed(w, w->inputs[i]));
    }
    for (int64_t n = 4 + pick(w, 20); n; n--) {
        int64_t what = pick(w, 20);
        keep(w, what < 11   ? joined(w)
                : what < 13 ? computed(w, any(w))
                : what < 15 ? moved(w, any(w))
                : what < 17 ? cumulated(w, any(w))
                : what < 19 ? chosen(w, any(w))
                            : ash_add(w->g, any(w), ash_scalar(w->g, ASH_I32, 1)));
    }
    ash_graph_output(w->g, "last", w->values[w->count - 1]);
    for (int64_t n = pick(w, 4); n; n--) {
        char name[] = {'y', (char)('0' + n), 0};
        ash_graph_output(w->g, name, any(w));
    }
}

/* --- plans ------------------------------------------------------------------------------------------ */

static void no_kernel(void *const *buffers, const int64_t *vars, int64_t begin, int64_t end,
                      int64_t worker) {
    (void)buffers, (void)vars, (void)begin, (void)end, (void)worker;
}

static const struct {
    bool optimize, fuse;
    unsigned streams;
    ash_memory_mode memory;
} ways[] = {{true, true, 1, ASH_MEMORY_ARENA},
            {false, true, 3, ASH_MEMORY_ARENA},
            {true, false, 1, ASH_MEMORY_REMAP},
            {false, false, 2, ASH_MEMORY_ARENA}};

static ash_plan_options options_of(unsigned way) {
    ash_plan_options options = ash_plan_options_default();
    options.no_optimize = !ways[way].optimize;
    options.no_fuse = !ways[way].fuse;
    options.mode = ways[way].streams > 1 ? ASH_MODE_MULTI_STREAM : ASH_MODE_STREAM;
    options.streams = ways[way].streams;
    options.memory.mode = ways[way].memory;
    options.poison = true;
    return options;
}

/* A plan without machine code: places and order, which the checkers judge by the access records. */
static void judge(world *w, unsigned way) {
    const ash_allocator *a = ash_context__allocator(w->r->context);
    const ash_plan_options options = options_of(way);
    const ash_opt_options opt = {.level = !options.no_optimize ? ASH_OPT_FULL : ASH_OPT_NONE};
    const ash_lower_options low = {.fuse = !options.no_fuse};
    ash_target target;
    ash_graph *graph;
    ash_program *program;
    ash_plan *plan;
    if (cuda_is_wished()) return; /* programs for processors */
    assert_ok(ash_target__named("x86-64-v3", &target, &diag));
    assert_works(w, ash_opt__run(w->g, &target, &opt, &graph, &diag));
    assert_works(w, ash_program__lower(graph, &target, &low, &program, &diag));
    ash_graph_destroy(graph);
    size_t n = program->nests.len, prologue = program->prologue;
    if (prologue) { /* would run at once */
        ash_program__free(program);
        return;
    }
    ash_kernel_image *images = ash_mem_alloc(a, n, sizeof *images);
    ash_kernel_source source = {.images = images};
    for (size_t i = 0; i < n; i++) images[i] = (ash_kernel_image){.host = no_kernel};
    for (size_t i = 0; i < program->steps.len; i++) /* worth several streams */
        program->steps.at[i].work = 1e6;
    assert_works(w, ash_plan__build(w->r->context, program, &source, &options, &plan, &diag));
    ash_plan_destroy(plan);
    ash_mem_free(a, images, n, sizeof *images);
}

static size_t fill(world *w, unsigned input, int32_t *cells) {
    const ash_type *type = type_of(w, w->inputs[input]);
    size_t count = 1;
    for (unsigned d = 0; d < RANK; d++)
        count *= (size_t)(ash_dim_is_const(type->dims[d]) ? type->dims[d] : w->present);
    for (size_t i = 0; i < count; i++) cells[i] = (int32_t)pick(w, 19) - 9;
    return count;
}

static void compare(world *w, const ash_reference *reference, unsigned way) {
    for (size_t o = 0; o < ash_graph_output_count(w->g); o++) {
        const ash_view *view;
        const void *have;
        ash_type type;
        size_t count;
        const double *want = ash_reference_output(reference, o, &type, &count);
        assert_ok(ash_plan_output(w->r->plan, o, &view, &diag));
        if (!ash_type_equal(ash_view_type(view), &type))
            fail_msg("seed %llu, way %u, output %zu has another shape", (unsigned long long)w->seed, way,
                     o);
        if (!count) continue;
        assert_ok(ash_view_data(view, &have, &diag));
        for (size_t i = 0; i < count; i++)
            if (((const int32_t *)have)[i] != (int32_t)want[i])
                fail_msg("seed %llu, way %u, output %zu, element %zu: %d instead of %g",
                         (unsigned long long)w->seed, way, o, i, ((const int32_t *)have)[i], want[i]);
    }
}

static void execute(world *w, unsigned way) {
    const ash_plan_options options = options_of(way);
    const char *name = "m";
    ash_plan_destroy(w->r->plan);
    w->r->plan = NULL;
    assert_works(w, ash_plan_prepare(w->r->context, w->g, &options, &w->r->plan, &diag));
    for (int run = 0; run < 2; run++) {
        int32_t cells[INPUTS][ROOM];
        const void *inputs[INPUTS];
        ash_reference *reference;
        assert_ok(ash_plan_set_vars(w->r->plan, &(ash_var_binding){name, w->present}, 1, &diag));
        for (unsigned i = 0; i < INPUTS; i++) {
            size_t count = fill(w, i, cells[i]);
            inputs[i] = cells[i];
            assert_ok(ash_plan_set_input(w->r->plan, i, NULL, cells[i], count * sizeof **cells, &diag));
        }
        assert_works(w, ash_reference_run(w->g, inputs, INPUTS, &name, &w->present, 1, &reference, &diag));
        assert_works(w, ash_plan_execute(w->r->plan, &diag));
        compare(w, reference, way);
        ash_reference_destroy(reference);
        w->present = 1 + pick(w, 5);
    }
}

static uint64_t number(const char *name, uint64_t otherwise) {
    const char *text = getenv(name);
    return text ? strtoull(text, NULL, 10) : otherwise;
}

static void random_nests(void **state) {
    uint64_t first = number("ASHLAR_FUZZ_FIRST", 1), count = number("ASHLAR_FUZZ_COUNT", DEFAULT_COUNT),
             every = number("ASHLAR_FUZZ_EVERY", EXECUTE_EVERY), settled = 0;
    if (getenv("ASHLAR_FUZZ_SEED")) first = number("ASHLAR_FUZZ_SEED", 1), count = every = 1;
    for (uint64_t seed = first; seed < first + count; seed++) {
        world w = {.r = *state, .seed = seed, .random = seed * UINT64_C(0x2545f4914f6cdd1d)};
        make_graph(&w);
        settled += w.found > 0;
        assert_works(&w, ash_graph_status(w.g, &diag));
        for (unsigned way = 0; way < ASH_COUNT(ways); way++) judge(&w, way);
        if (every && seed % every == 0) execute(&w, (unsigned)(seed / every % ASH_COUNT(ways)));
    }
    if (count > 100) assert_in_range(settled, count / 4, count);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(random_nests, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
