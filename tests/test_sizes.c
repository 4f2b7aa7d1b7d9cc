/* SPDX-License-Identifier: MIT */
/* Sizes that depend on data, in plans: several inputs in a row, in every mode, with onnxruntime's results
 * (tests/data/onnx, made by tools/onnx_fixtures.py and tools/loop_fixtures.py); who waits for whom; what a
 * plan says of such sizes. */
#include "functions.h"
#include "programs.h"
#include "state_testing.h"

#include <math.h>
#include <time.h>
#include <unistd.h>

#include "ashlar/onnx.h"

enum { MOST_SETS = 8, MOST_TENSORS = 32 };

typedef struct data_set {
    ash_tensor *ins[MOST_TENSORS], *outs[MOST_TENSORS];
    size_t n_ins, n_outs;
} data_set;

typedef struct data {
    data_set sets[MOST_SETS];
    size_t count;
} data;

static size_t read_tensors(struct room *r, const char *name, size_t set, const char *kind,
                           ash_tensor **out) {
    size_t n = 0;
    for (;; n++) {
        char path[512];
        snprintf(path, sizeof path, ASH_SOURCE_DIR "/tests/data/%s/test_data_set_%zu/%s_%zu.pb", name, set,
                 kind, n);
        if (access(path, R_OK) != 0) return n;
        assert_ok(ash_tensor_read(r->context, path, &out[n], &diag));
    }
}

/* The model becomes the room's graph. */
static void read_model(struct room *r, const char *name, data *d) {
    char path[512];
    ash_plan_destroy(r->plan);
    ash_graph_destroy(r->g);
    r->plan = NULL;
    r->g = NULL;
    snprintf(path, sizeof path, ASH_SOURCE_DIR "/tests/data/%s/model.onnx", name);
    const ash_onnx_options options = {.var_min = 1, .var_max = 256};
    assert_ok(ash_onnx_read(r->context, path, &options, &r->g, &diag));
    for (d->count = 0; d->count < MOST_SETS; d->count++) {
        data_set *s = &d->sets[d->count];
        s->n_ins = read_tensors(r, name, d->count, "input", s->ins);
        if (s->n_ins == 0) break;
        s->n_outs = read_tensors(r, name, d->count, "output", s->outs);
    }
    assert_true(d->count >= 4);
}

static void free_data(data *d) {
    for (size_t s = 0; s < d->count; s++) {
        for (size_t i = 0; i < d->sets[s].n_ins; i++) ash_tensor_destroy(d->sets[s].ins[i]);
        for (size_t i = 0; i < d->sets[s].n_outs; i++) ash_tensor_destroy(d->sets[s].outs[i]);
    }
}

/* The caller's variables, from the inputs' shapes. */
static size_t bind(const struct room *r, const data_set *s, ash_var_binding *vars) {
    size_t count = 0;
    for (size_t i = 0; i < s->n_ins; i++) {
        const ash_type *want = ash_graph__type(r->g, ash_graph_input_at(r->g, i, NULL));
        for (unsigned d = 0; d < want->rank; d++) {
            if (ash_dim_is_const(want->dims[d])) continue;
            const ash_dim_atom atom = ash_dims_atom(r->g->dims, want->dims[d], 0, 0);
            const char *name = ash_dims_var(r->g->dims, atom.var)->name;
            bool bound = false; /* by another dim: a variable is given once */
            for (size_t k = 0; k < count; k++) bound |= !strcmp(vars[k].name, name);
            if (!bound) vars[count++] = (ash_var_binding){name, ash_tensor_type(s->ins[i])->dims[d]};
        }
    }
    return count;
}

static double element(const ash_type *type, const void *bytes, size_t i) {
    switch (type->dtype) {
    case ASH_F32: return ((const float *)bytes)[i];
    case ASH_I64: return (double)((const int64_t *)bytes)[i];
    default: fail_msg("no dtype of the fixtures"); return 0;
    }
}

static void compare(const ash_view *view, const ash_tensor *want, size_t output) {
    const ash_type *type = ash_view_type(view), *expected = ash_tensor_type(want);
    const void *bytes;
    size_t count = 1;
    assert_int_equal(type->dtype, expected->dtype);
    assert_int_equal(type->rank, expected->rank);
    for (unsigned d = 0; d < type->rank; d++) {
        if (type->dims[d] != expected->dims[d])
            fail_msg("output %zu, dim %u: %lld instead of %lld", output, d, (long long)type->dims[d],
                     (long long)expected->dims[d]);
        count *= (size_t)type->dims[d];
    }
    assert_int_equal(ash_view_bytes(view), ash_tensor_size(want));
    assert_ok(ash_view_data(view, &bytes, &diag));
    for (size_t i = 0; i < count; i++) {
        double have = element(type, bytes, i), should = element(expected, ash_tensor_data(want), i);
        if (!(fabs(have - should) <= 1e-6 + 1e-5 * fabs(should)))
            fail_msg("output %zu, element %zu: %.9g instead of %.9g", output, i, have, should);
    }
}

/* One execution: results as onnxruntime has them; their bits join *hash. */
static void run_set(struct room *r, ash_plan *plan, const data_set *s, uint64_t *hash) {
    ash_var_binding vars[8];
    size_t n_vars = bind(r, s, vars);
    assert_ok(ash_plan_set_vars(plan, vars, n_vars, &diag));
    for (size_t i = 0; i < s->n_ins; i++)
        assert_ok(ash_plan_set_input(plan, i, NULL, ash_tensor_data(s->ins[i]), ash_tensor_size(s->ins[i]),
                                     &diag));
    long before = r->memory.count;
    assert_ok(ash_plan_execute(plan, &diag));
    bool first = *hash == 0; /* the arenas are allocated */
    if (!first) assert_int_equal(r->memory.count, before);
    assert_int_equal(ash_plan_output_count(plan), s->n_outs);
    for (size_t o = 0; o < s->n_outs; o++) {
        const ash_view *view;
        const void *bytes;
        assert_ok(ash_plan_output(plan, o, &view, &diag));
        compare(view, s->outs[o], o);
        assert_ok(ash_view_data(view, &bytes, &diag));
        *hash = ash_hash(bytes, (size_t)ash_view_bytes(view), *hash + o + 1);
    }
}

/* All sets, forwards and back: sizes grow and shrink. */
static uint64_t run_all(struct room *r, ash_plan *plan, const data *d) {
    uint64_t hash = 0;
    for (size_t s = 0; s < d->count; s++) run_set(r, plan, &d->sets[s], &hash);
    for (size_t s = d->count; s-- > 0;) run_set(r, plan, &d->sets[s], &hash);
    return hash;
}

static const char *const models[] = {"onnx/found",     "onnx/detector",  "onnx/proposals", "onnx/uniques",
                                     "onnx/in_bodies", "onnx/backwards", "onnx/multiples"};

static void every_mode_finds_the_sizes(void **state) {
    struct room *r = *state;
    for (size_t m = 0; m < ASH_COUNT(models); m++) {
        data d;
        uint64_t first = 0;
        read_model(r, models[m], &d);
        for (int way = 0; way < 8; way++) {
            static const ash_mode modes[] = {ASH_MODE_STREAM, ASH_MODE_GRAPH, ASH_MODE_MULTI_STREAM,
                                             ASH_MODE_MULTI_STREAM};
            ash_plan_options options = ash_plan_options_default();
            options.mode = modes[way % 4];
            options.streams = way % 4 < 2 ? 1 : (unsigned)way % 4;
            options.threads = way < 4 ? 1 : 2;
            options.poison = options.mode != ASH_MODE_GRAPH && way > 3;
            prepare(r, &options);
            uint64_t hash = run_all(r, r->plan, &d);
            if (way == 0) first = hash;
            assert_true(hash == first);
        }
        free_data(&d);
    }
}

/* Without fusion, without passes, with other arenas: other kernels, the same results. */
static void every_road_finds_the_sizes(void **state) {
    struct room *r = *state;
    data d;
    read_model(r, "onnx/found", &d);
    for (int way = 0; way < 4; way++) {
        ash_plan_options options = ash_plan_options_default();
        options.no_fuse = way == 0;
        options.no_optimize = way == 1;
        options.order = way == 2 ? ASH_PLAN_ORDER_ON : ASH_PLAN_ORDER_OFF;
        options.memory.mode = (ash_memory_mode)(way % 3);
        options.poison = true;
        prepare(r, &options);
        run_all(r, r->plan, &d);
    }
    free_data(&d);
}

static void eager_with_replicas(struct room *r, const char *model) {
    data d;
    read_model(r, model, &d);
    prepare(r, NULL);
    ash_plan *twin;
    uint64_t hash = 0, other = 0;
    run_set(r, r->plan, &d.sets[0], &hash);
    assert_ok(ash_plan_replicate(r->plan, &twin, &diag));
    for (size_t s = 0; s < d.count; s++) { /* one is at another size than the other */
        run_set(r, twin, &d.sets[d.count - 1 - s], &other);
        run_set(r, r->plan, &d.sets[s], &hash);
        const ash_view *view;
        for (size_t o = 0; o < d.sets[0].n_outs; o++) {
            assert_ok(ash_plan_output(twin, o, &view, &diag));
            compare(view, d.sets[d.count - 1 - s].outs[o], o);
        }
    }
    ash_plan_destroy(twin);
    const data_set *s = &d.sets[0];
    ash_var_binding vars[8];
    ash_tensor *outs[MOST_TENSORS];
    const ash_eager_call call = {.vars = vars,
                                 .var_count = bind(r, s, vars),
                                 .inputs = (const ash_tensor *const *)s->ins,
                                 .input_count = s->n_ins,
                                 .outputs = outs,
                                 .output_count = s->n_outs};
    assert_ok(ash_eager(r->context, r->g, NULL, &call, &diag));
    for (size_t o = 0; o < s->n_outs; o++) {
        assert_true(ash_type_equal(ash_tensor_type(outs[o]), ash_tensor_type(s->outs[o])));
        ash_tensor_destroy(outs[o]);
    }
    free_data(&d);
}

static void eager_and_replicas(void **state) {
    eager_with_replicas(*state, "onnx/found");
    eager_with_replicas(*state, "onnx/in_bodies");
}

/* --- small graphs ----------------------------------------------------------------------------------- */

enum { M = 24 };

/* The elements of x above 0; *n: how many. */
static ash_value positive(struct room *r, ash_value x, const char *name, ash_dim *n) {
    ash_value count, at = ash_nonzero(r->g, ash_lt(r->g, ash_scalar(r->g, ASH_F32, 0), x), &count);
    *n = ash_settle(r->g, name, count, ash_graph_type(r->g, x)->dims[0]);
    return ash_gather(r->g, x, ash_slice_axis(r->g, at, 0, 0, *n), 0);
}

static ash_value line_input(struct room *r, const char *name, ash_dim n) {
    ash_type type = {.dtype = ASH_F32, .rank = 1, .dims = {n}};
    return ash_graph_input(r->g, name, &type);
}

/* `found` of M elements are above 0. */
static void set_line(ash_plan *plan, size_t input, int found, int n) {
    float x[M];
    for (int i = 0; i < n; i++) x[i] = i * 7 % M < found ? (float)(i + 1) : -1;
    assert_ok(ash_plan_set_input(plan, input, NULL, x, (uint64_t)n * sizeof *x, &diag));
}

static int64_t present_dim(struct room *r, size_t output) {
    const ash_view *view;
    assert_ok(ash_plan_output(r->plan, output, &view, &diag));
    return ash_view_type(view)->dims[0];
}

/* What a plan says: which variables are not the caller's, their values, the shapes that follow. */
static void a_plan_says_what_is_settled(void **state) {
    struct room *r = *state;
    fresh_graph(r);
    ash_dim n, m = ash_graph_var(r->g, "m", 1, M);
    ash_graph_output(r->g, "y", positive(r, line_input(r, "x", m), "n", &n));
    prepare(r, NULL);
    ash_plan_var var = ASH_INIT(ash_plan_var);
    assert_int_equal(ash_plan_var_count(r->plan), 2);
    assert_ok(ash_plan_var_at(r->plan, 0, &var, &diag));
    assert_true(!strcmp(var.name, "m") && !var.settled);
    assert_ok(ash_plan_var_at(r->plan, 1, &var, &diag));
    assert_true(!strcmp(var.name, "n") && var.settled && var.min == 0 && var.max == M && var.value == M);
    assert_true(var.bytes >= M * sizeof(float)); /* y, at least */
    assert_int_equal(present_dim(r, 0), M);
    assert_ok(ash_plan_set_vars(r->plan, &(ash_var_binding){"m", 10}, 1, &diag));
    assert_int_equal(present_dim(r, 0), 10); /* the bound */
    assert_status(ash_plan_set_vars(r->plan, &(ash_var_binding){"n", 3}, 1, &diag),
                  ASH_ERROR_INVALID_ARGUMENT);
    assert_non_null(strstr(diag.message, "depends on data"));
    assert_status(ash_plan_execute_vars(r->plan, &(ash_var_binding){"n", 3}, 1, &diag),
                  ASH_ERROR_INVALID_ARGUMENT);
    float x[10] = {1, -1, 2, -2, 3, -3, 4, 0, 5, 0};
    assert_ok(ash_plan_set_input(r->plan, 0, NULL, x, sizeof x, &diag));
    assert_ok(ash_plan_execute(r->plan, &diag));
    assert_int_equal(present_dim(r, 0), 5);
    const ash_view *view;
    assert_ok(ash_plan_output(r->plan, 0, &view, &diag));
    assert_int_equal(ash_view_bytes(view), 5 * sizeof(float));
    x[0] = -1;
    assert_ok(ash_plan_set_input(r->plan, 0, NULL, x, sizeof x, &diag));
    assert_ok(ash_plan_execute(r->plan, &diag));
    assert_int_equal(ash_view_bytes(view), 4 * sizeof(float)); /* the same view */
    uint64_t released;
    assert_ok(ash_plan_release_intermediates(r->plan, &released, &diag));
    float y[4];
    assert_ok(ash_view_copy_out(view, y, sizeof y, &diag));
    assert_true(y[0] == 2 && y[3] == 5);
    assert_status(ash_plan_execute_vars(r->plan, &(ash_var_binding){"m", 20}, 1, &diag), ASH_ERROR_STATE);
    assert_int_equal(present_dim(r, 0), 4); /* refused: as it was */
    assert_ok(ash_plan_set_vars(r->plan, &(ash_var_binding){"m", 3}, 1, &diag));
    assert_int_equal(present_dim(r, 0), 3);
    ash_prepared_op op = ASH_INIT(ash_prepared_op);
    unsigned settles = 0;
    for (size_t i = 0; i < ash_plan_op_count(r->plan); i++) {
        assert_ok(ash_plan_op_at(r->plan, i, &op, &diag));
        if (op.kind != ASH_PREPARED_SETTLE) continue;
        settles++;
        assert_string_equal(ash_prepared_kind_text(op.kind), "settle");
        assert_true(op.kernel == UINT32_MAX && op.chunks == 1 && !strcmp(op.name, "settle"));
    }
    assert_int_equal(settles, 1);
    /* it has a time of its own */
    ash_profile profile[16];
    set_line(r->plan, 0, 2, 3);
    assert_ok(ash_plan_execute_profiled(r->plan, profile, ASH_COUNT(profile), &diag));
    uint64_t done, total;
    ash_plan_progress(r->plan, &done, &total);
    assert_true(done == total && total == ash_plan_op_count(r->plan));
}

/* Every size from none to all, and the largest again. */
static void none_and_all(void **state) {
    struct room *r = *state;
    for (int way = 0; way < 2; way++) {
        fresh_graph(r);
        ash_dim n, k;
        ash_value x = line_input(r, "x", M), y = positive(r, x, "n", &n),
                  z = positive(r, ash_neg(r->g, y), "k", &k);
        const int64_t axes[] = {0};
        ash_value both[] = {y, x, z};
        ash_graph_output(r->g, "y", y);
        ash_graph_output(r->g, "sum", ash_reduce_sum(r->g, y, axes, 1, false));
        ash_graph_output(r->g, "row", ash_concat(r->g, both, 3, 0));
        ash_graph_output(r->g, "none", z); /* the negatives of what is positive */
        ash_plan_options options = ash_plan_options_default();
        options.mode = way ? ASH_MODE_GRAPH : ASH_MODE_STREAM;
        options.poison = !way;
        prepare(r, &options);
        for (int i = 0; i <= 2 * M; i++) {
            int found = i <= M ? i : 2 * M - i;
            float sum = 0, line[2 * M], have;
            const ash_view *view;
            set_line(r->plan, 0, found, M);
            assert_ok(ash_plan_execute(r->plan, &diag));
            assert_int_equal(present_dim(r, 0), found);
            assert_int_equal(present_dim(r, 2), found + M);
            assert_int_equal(present_dim(r, 3), 0);
            assert_ok(ash_plan_output(r->plan, 2, &view, &diag));
            assert_ok(ash_view_copy_out(view, line, (uint64_t)(found + M) * sizeof *line, &diag));
            for (int at = 0, e = 0; e < M; e++) {
                if (line[found + e] <= 0) continue;
                assert_true(line[at++] == line[found + e]);
                sum += line[found + e];
            }
            assert_ok(ash_plan_output(r->plan, 1, &view, &diag));
            assert_ok(ash_view_copy_out(view, &have, sizeof have, &diag));
            assert_true(have == sum);
        }
    }
}

/* A dim as a kernel's only operand: the kernel reads no bytes that depend on the count, but waits for who
 * settles it; so do kernels whose attributes mention it. Without any of the waits some order shows. */
static void every_wait_is_needed(void **state) {
    struct room *r = *state;
    fresh_graph(r);
    ash_dim n, k;
    ash_value x = line_input(r, "x", M), w = line_input(r, "w", M);
    positive(r, x, "n", &n);
    positive(r, w, "k", &k);
    ash_value few = ash_slice_axis(r->g, ash_mul(r->g, w, w), 0, 0, n),
              many = ash_slice_axis(r->g, x, 0, 0, k);
    const int64_t axes[] = {0};
    ash_graph_output(r->g, "a", ash_reduce_sum(r->g, few, axes, 1, false));
    ash_graph_output(r->g, "b",
                     ash_add(r->g, many, ash_cast(r->g, ash_iota(r->g, ASH_I32, &k, 1, 0), ASH_F32)));
    ash_value parts[] = {few, many};
    ash_graph_output(r->g, "c", ash_concat(r->g, parts, 2, 0));
    prepare_reordered(r, 2);
    uint32_t waits = (uint32_t)ash_plan_describe(r->plan).waits;
    assert_true(waits > 0);
    for (uint32_t drop = 0; drop <= waits; drop++) { /* the last: none is left out */
        unsigned wrong = 0;
        for (uint32_t seed = 0; seed < 120; seed++) {
            int found[2] = {(int)(seed * 5 % (M + 1)), (int)(seed * 11 % (M + 1))};
            float lines[2][M], want = 0, have[2 * M];
            for (size_t i = 0; i < 2; i++) {
                set_line(r->plan, i, found[i], M);
                for (int e = 0; e < M; e++) lines[i][e] = e * 7 % M < found[i] ? (float)(e + 1) : -1;
            }
            for (int e = 0; e < found[0]; e++) want += lines[1][e] * lines[1][e];
            reorder.seed = seed;
            reorder.drop = drop < waits ? drop : UINT32_MAX;
            assert_ok(ash_plan_execute(r->plan, &diag));
            reorder.drop = UINT32_MAX;
            const ash_view *view;
            assert_ok(ash_plan_output(r->plan, 0, &view, &diag));
            assert_ok(ash_view_copy_out(view, have, sizeof *have, &diag));
            bool bad = have[0] != want || present_dim(r, 1) != found[1] ||
                       present_dim(r, 2) != found[0] + found[1];
            if (!bad) {
                assert_ok(ash_plan_output(r->plan, 1, &view, &diag));
                assert_ok(ash_view_copy_out(view, have, (uint64_t)found[1] * sizeof *have, &diag));
                for (int e = 0; e < found[1]; e++) bad |= have[e] != lines[0][e] + (float)e;
                assert_ok(ash_plan_output(r->plan, 2, &view, &diag));
                assert_ok(
                    ash_view_copy_out(view, have, (uint64_t)(found[0] + found[1]) * sizeof *have, &diag));
                for (int e = 0; e < found[0]; e++) bad |= have[e] != lines[1][e] * lines[1][e];
                for (int e = 0; e < found[1]; e++) bad |= have[found[0] + e] != lines[0][e];
            }
            wrong += bad;
        }
        if (drop < waits && wrong == 0) fail_msg("wait %u of %u is not needed", drop, waits);
        if (drop == waits) assert_int_equal(wrong, 0);
    }
}

/* Every step that mentions a variable says so. */
static void records_name_what_settles(void **state) {
    struct room *r = *state;
    data d;
    read_model(r, "onnx/found", &d);
    prepare(r, NULL);
    const ash_program *p = r->plan->program;
    unsigned readers = 0;
    for (size_t s = p->prologue; s < p->steps.len; s++) {
        const ash_step *step = &p->steps.at[s];
        if (step->kind != ASH_STEP_KERNEL) continue;
        const ash_nest *nest = &p->nests.at[step->nest];
        for (size_t i = 0; i < nest->code.len; i++) {
            if (nest->code.at[i].op != ASH_NEST_VAR) continue;
            uint32_t var = (uint32_t)nest->code.at[i].i;
            bool read = !ash_dims_var(p->dims, var)->settled;
            for (size_t t = p->prologue; t < s; t++) {
                if (p->steps.at[t].kind != ASH_STEP_SETTLE || p->steps.at[t].var != var) continue;
                for (uint32_t k = 0; k < step->n_accesses; k++)
                    read |= step->accesses[k].buffer == p->steps.at[t].accesses[1].buffer &&
                            !step->accesses[k].write;
                readers++;
            }
            assert_true(read);
        }
    }
    assert_true(readers > 10);
    free_data(&d);
}

/* A function of the caller sees the present shapes, and has as many chunks as were found. */
static void functions_are_told(void **state) {
    struct room *r = *state;
    static counted told; /* as long as the context */
    add_function(r->context, "sort_rows", sort_rows, &told, false);
    for (int way = 0; way < 4; way++) {
        fresh_graph(r);
        ash_type type = {.dtype = ASH_F32, .rank = 2, .dims = {M, 3}};
        ash_value x = ash_graph_input(r->g, "x", &type), count, sorted[2];
        const int64_t last[] = {1};
        ash_value line = ash_reduce_max(r->g, x, last, 1, false);
        ash_value at = ash_nonzero(r->g, ash_lt(r->g, ash_scalar(r->g, ASH_F32, 0), line), &count);
        ash_dim n = ash_settle(r->g, "n", count, M);
        ash_value rows = ash_gather(r->g, x, ash_slice_axis(r->g, at, 0, 0, n), 0);
        const ash_type types[] = {{.dtype = ASH_F32, .rank = 2, .dims = {n, 3}},
                                  {.dtype = ASH_I64, .rank = 2, .dims = {n, 3}}};
        const ash_custom_options how = {.chunks = n, .scratch = 3 * sizeof(float)};
        assert_ok(ash_custom(r->g, "sort_rows", &rows, 1, types, 2, &how, sorted));
        ash_graph_output(r->g, "y", ash_neg(r->g, sorted[0]));
        if (way == 3) {
            prepare_reordered(r, 2);
        } else {
            ash_plan_options options = ash_plan_options_default();
            options.mode = (ash_mode)way;
            options.streams = way == ASH_MODE_MULTI_STREAM ? 2 : 1;
            prepare(r, &options);
        }
        for (int i = 0; i < 6; i++) {
            static const int found[] = {4, M, 0, 1, M - 1, 7};
            float lines[M][3], y[M][3];
            for (int e = 0; e < M; e++)
                for (int c = 0; c < 3; c++)
                    lines[e][c] = e * 7 % M < found[i] ? (float)(e + 5 * (c == 0)) + 1 : -1;
            assert_ok(ash_plan_set_input(r->plan, 0, NULL, lines, sizeof lines, &diag));
            atomic_store(&told.chunks, 0);
            assert_ok(ash_plan_execute(r->plan, &diag));
            assert_int_equal(atomic_load(&told.chunks), found[i]);
            assert_int_equal(present_dim(r, 0), found[i]);
            if (found[i]) assert_int_equal(told.rows, found[i]);
            const ash_view *view;
            assert_ok(ash_plan_output(r->plan, 0, &view, &diag));
            assert_ok(ash_view_copy_out(view, y, (uint64_t)found[i] * sizeof *y, &diag));
            for (int e = 0, row = 0; e < M; e++) {
                if (lines[e][0] < 0) continue;
                assert_true(y[row][0] == -lines[e][1] && y[row][2] == -lines[e][0]);
                row++;
            }
        }
    }
}

/* Dims of a plan are its own: the graph may grow on one thread while the plan executes on another. */
static void *grow(void *arg) {
    ash_graph *g = arg;
    ash_dim a = ash_graph_var(g, "a", 1, 8), sum = a;
    for (int i = 1; i < 3000; i++) sum = ash_graph_dim_add(g, ash_graph_dim_mul(g, a, i), i);
    return ash_dim_is_const(sum) ? arg : NULL;
}

static void graphs_may_grow_meanwhile(void **state) {
    struct room *r = *state;
    pthread_t threads[1];
    void *failed;
    ash_dim n;
    fresh_graph(r);
    ash_graph_output(r->g, "y", positive(r, line_input(r, "x", M), "n", &n));
    prepare(r, NULL);
    assert_true(r->plan->program->dims != r->g->dims);
    assert_int_equal(pthread_create(&threads[0], NULL, grow, r->g), 0);
    for (int i = 0; i < 300; i++) {
        set_line(r->plan, 0, i % (M + 1), M);
        assert_ok(ash_plan_execute(r->plan, &diag));
        assert_int_equal(present_dim(r, 0), i % (M + 1));
    }
    assert_int_equal(pthread_join(threads[0], &failed), 0);
    assert_null(failed);
}

/* --- ends on the way -------------------------------------------------------------------------------- */

static ash_cancel stop;
static bool stops;

static void count_first(void *const *b, const int64_t *vars, int64_t begin, int64_t end, int64_t worker) {
    (void)vars, (void)begin, (void)end, (void)worker;
    *(int64_t *)b[0] = *(const float *)b[1] < 0 ? 0 : (int64_t)*(const float *)b[1];
}

static void stop_here(void *const *b, const int64_t *vars, int64_t begin, int64_t end, int64_t worker) {
    (void)vars, (void)begin, (void)end, (void)worker;
    *(float *)b[0] = 1;
    if (stops) ash_cancel_set(&stop, true);
}

static void fill_some(void *const *b, const int64_t *vars, int64_t begin, int64_t end, int64_t worker) {
    (void)worker;
    for (int64_t i = begin; i < end; i++) ((float *)b[0])[i] = (float)vars[0];
}

static void a_cancelled_execution_leaves_bounds(void **state) {
    struct room *r = *state;
    maker m;
    ash_dim n;
    maker_init(&m, r->context);
    assert_ok(ash_dims_add_settled(m.p->dims, "n", M, &n, &diag));
    uint32_t x = maker_buffer(&m, ASH_BUFFER_INPUT, 1, "x"),
             count = maker_typed(&m, ASH_BUFFER_LOCAL, ASH_I64, 1, NULL),
             settled = maker_typed(&m, ASH_BUFFER_LOCAL, ASH_I64, 1, NULL),
             flag = maker_buffer(&m, ASH_BUFFER_LOCAL, 1, NULL),
             y = maker_buffer(&m, ASH_BUFFER_OUTPUT, n, "y");
    maker_step(&m, "count", count_first, 1, 1, 2, (const uint32_t[]){count, x});
    ash_step *step = maker_step(&m, "settle", NULL, 1, 0, 2, (const uint32_t[]){count, settled});
    step->kind = ASH_STEP_SETTLE;
    ((ash_access *)step->accesses)[1].write = true;
    maker_step(&m, "stop", stop_here, 1, 1, 2, (const uint32_t[]){flag, settled});
    maker_step(&m, "fill", fill_some, n, 1, 3, (const uint32_t[]){y, settled, flag});
    maker_output(&m, y, "y");
    ash_plan_options options = ash_plan_options_default();
    options.progress.cancel = &stop;
    ash_cancel_set(&stop, false);
    assert_ok(maker_build(&m, &options, &r->plan, &diag));
    const float given[] = {5, 9, 100, -4, 3};
    const int64_t want[] = {5, M, M, 0, 3}; /* the second is cancelled after its size is known */
    const ash_view *view;
    for (size_t i = 0; i < ASH_COUNT(given); i++) {
        stops = i == 1;
        assert_ok(ash_plan_set_input(r->plan, 0, NULL, &given[i], sizeof *given, &diag));
        assert_status(ash_plan_execute(r->plan, &diag), stops ? ASH_ERROR_CANCELLED : ASH_OK);
        ash_cancel_set(&stop, false);
        assert_int_equal(present_dim(r, 0), want[i]);
        if (stops) {
            const void *bytes;
            assert_ok(ash_plan_output(r->plan, 0, &view, &diag));
            assert_status(ash_view_data(view, &bytes, &diag), ASH_ERROR_STATE);
            continue;
        }
        float have[M];
        assert_ok(ash_plan_output(r->plan, 0, &view, &diag));
        assert_ok(ash_view_copy_out(view, have, (uint64_t)want[i] * sizeof *have, &diag));
        for (int64_t e = 0; e < want[i]; e++) assert_true(have[e] == (float)want[i]);
    }
}

/* A program whose step settles nothing is refused. */
static void broken_steps_are_refused(void **state) {
    struct room *r = *state;
    for (int defect = 0; defect < 4; defect++) {
        maker m;
        ash_dim n, k;
        maker_init(&m, r->context);
        assert_ok(ash_dims_add_settled(m.p->dims, "n", M, &n, &diag));
        assert_ok(ash_dims_add_var(m.p->dims, "k", 1, M, &k, &diag));
        uint32_t count = maker_typed(&m, ASH_BUFFER_INPUT, ASH_I64, 1, "x"),
                 settled = maker_typed(&m, ASH_BUFFER_OUTPUT, defect == 3 ? ASH_I32 : ASH_I64, 1, "y");
        maker_output(&m, settled, "y");
        ash_step *step = maker_step(&m, "settle", NULL, 1, 0, 2, (const uint32_t[]){count, settled});
        step->kind = ASH_STEP_SETTLE;
        ((ash_access *)step->accesses)[1].write = defect != 1;
        step->var = defect == 2;
        ash_status status = maker_build(&m, NULL, &r->plan, &diag);
        assert_int_equal(status, defect ? ASH_ERROR_INTERNAL : ASH_OK);
        if (defect) assert_non_null(strstr(diag.message, "does not settle a variable"));
        ash_plan_destroy(r->plan);
        r->plan = NULL;
    }
}

/* --- growth ----------------------------------------------------------------------------------------- */

static double seconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

static void no_kernel(void *const *b, const int64_t *vars, int64_t begin, int64_t end, int64_t worker) {
    (void)b, (void)vars, (void)begin, (void)end, (void)worker;
}

/* Lowering and building a plan of so many sizes, each in the shape of one kernel; kernels are alike. */
static double plan_sizes(struct room *r, unsigned count) {
    fresh_graph(r);
    ash_value x = line_input(r, "x", M);
    for (unsigned i = 0; i < count; i++) {
        char name[16];
        ash_dim n;
        snprintf(name, sizeof name, "n%u", i);
        ash_graph_output(r->g, name,
                         positive(r, ash_add(r->g, x, ash_scalar(r->g, ASH_F32, (double)i)), name, &n));
    }
    assert_ok(ash_graph_status(r->g, &diag));
    ash_compiler *compiler;
    ash_program *program;
    assert_ok(ash_compiler__get(r->context, &compiler, &diag));
    double start = seconds();
    assert_ok(ash_program__lower(r->g, ash_compiler__target(compiler), NULL, &program, &diag));
    size_t n = program->nests.len;
    ash_kernel_image *images = calloc(n, sizeof *images);
    ash_kernel_source source = {.images = images};
    for (size_t i = 0; i < n; i++) images[i].host = no_kernel;
    ash_plan_options options = ash_plan_options_default();
    options.memory.strategy = ASH_MEMORY_TLSF;
    assert_ok(ash_plan__build(r->context, program, &source, &options, &r->plan, &diag));
    free(images);
    return seconds() - start;
}

static void plans_grow_with_the_sizes(void **state) {
    NOT_CUDA("kernels written in C");
    plan_sizes(*state, 50);
    double few = plan_sizes(*state, 250), many = plan_sizes(*state, 2000);
    print_message("250 sizes: %.3f s, 2000: %.3f s\n", few, many);
    assert_true(many < 24 * few + 0.2);
}

int main(void) {
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(every_mode_finds_the_sizes),
        TEST(every_road_finds_the_sizes),
        TEST(eager_and_replicas),
        TEST(a_plan_says_what_is_settled),
        TEST(none_and_all),
        TEST(every_wait_is_needed),
        TEST(records_name_what_settles),
        TEST(functions_are_told),
        TEST(graphs_may_grow_meanwhile),
        TEST(a_cancelled_execution_leaves_bounds),
        TEST(broken_steps_are_refused),
        TEST(plans_grow_with_the_sizes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
