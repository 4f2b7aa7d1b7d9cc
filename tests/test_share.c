/* SPDX-License-Identifier: MIT */
/* Nests that differ in numbers alone: thousands become a few, and results keep their bits. */
#include "state_testing.h"

#include <math.h>

enum { ROWS = 6, COLUMNS = 448, ELEMENTS = ROWS * COLUMNS, ALIKE = 24 };

/* --- how many there are ----------------------------------------------------------------------------- */

static ash_value plane_input(ash_graph *g, const char *name, ash_dtype dtype, ash_dim rows,
                             ash_dim columns) {
    ash_type type = {.dtype = dtype, .rank = 2, .dims = {rows, columns}};
    return ash_graph_input(g, name, &type);
}

/* A concatenation of sums with different numbers. */
static void add_sums(ash_graph *g, int64_t n) {
    ash_value x = plane_input(g, "x", ASH_F32, 4, 8), *parts = calloc((size_t)n, sizeof *parts);
    for (int64_t i = 0; i < n; i++)
        parts[i] = ash_add(g, x, ash_scalar(g, ASH_F32, (double)i * 0.37 + 0.1));
    ash_graph_output(g, "y", ash_concat(g, parts, (size_t)n, 0));
    free(parts);
}

/* An input cut into columns of 3. */
static void add_slices(ash_graph *g, int64_t n) {
    ash_value x = plane_input(g, "x", ASH_F32, 2, 3 * n);
    for (int64_t i = 0; i < n; i++) {
        char name[24];
        snprintf(name, sizeof name, "y%lld", (long long)i);
        ash_graph_output(g, name, ash_slice_axis(g, x, 1, 3 * i, 3));
    }
}

/* The same on the other axis, with sums, and each in its place in a result. */
static void add_moved_slices(ash_graph *g, int64_t n) {
    ash_value x = plane_input(g, "x", ASH_F32, 2 * n, 5), *parts = calloc((size_t)n, sizeof *parts);
    for (int64_t i = 0; i < n; i++) {
        ash_value y = ash_slice_axis(g, x, 0, 2 * (n - 1 - i), 2);
        parts[i] = ash_relu(g, ash_add(g, y, ash_scalar(g, ASH_F32, (double)i)));
    }
    ash_graph_output(g, "y", ash_concat(g, parts, (size_t)n, 1));
    free(parts);
}

/* However many there are, a few distinct nests are left: those that stay as they are for being few, and one
 * for each residue of an offset. */
static void thousands_become_a_few(void **state) {
    static void (*const builders[])(ash_graph *g, int64_t n) = {add_sums, add_slices, add_moved_slices};
    static const char *const targets[] = {"x86-64", "x86-64-v3", "x86-64-v4"};
    static const int64_t sizes[] = {1000, 5000, 20000};
    struct room *r = *state;
    for (size_t b = 0; b < ASH_COUNT(builders); b++)
        for (size_t t = 0; t < ASH_COUNT(targets); t++) {
            ash_target target;
            ash_program *p;
            assert_ok(ash_target__named(targets[t], &target, &diag));
            fresh_graph(r);
            builders[b](r->g, sizes[t]);
            assert_ok(ash_graph_status(r->g, &diag));
            assert_ok(ash_program__lower(r->g, &target, NULL, &p, &diag));
            assert_int_equal(p->steps.len, sizes[t]);
            assert_in_range(p->nests.len, 1, 40);
            for (size_t i = 0; i < p->steps.len; i++)
                assert_in_range(p->steps.at[i].nest, 0, p->nests.len - 1);
            ash_program__free(p);
        }
}

/* Whether the index of the nest's only load is known to fit 32 bits. */
static bool loads_narrowly(const ash_nest *nest) {
    for (size_t i = 0; i < nest->code.len; i++)
        if (nest->code.at[i].op == ASH_NEST_LOAD && !nest->code.at[i].buf)
            return nest->code.at[nest->code.at[i].a].width != ASH_NEST_WIDE;
    fail_msg("no load");
    return false;
}

/* Offsets that 32 bits hold and others are no family, where indices are as wide as they have to be. */
static void widths_are_kept_apart(void **state) {
    enum { PARTS = 64, LINES = 1 << 14, LENGTH = 1 << 18, FAR = (1 << 30) / (LENGTH / 2) };
    struct room *r = *state;
    ash_target target;
    ash_program *p;
    assert_ok(ash_target__named("sm_80", &target, &diag));
    fresh_graph(r);
    ash_value x = plane_input(r->g, "x", ASH_F32, LINES, LENGTH);
    for (int64_t i = 0; i < PARTS; i++) {
        char name[24];
        snprintf(name, sizeof name, "y%lld", (long long)i);
        ash_graph_output(r->g, name, ash_relu(r->g, ash_slice_axis(r->g, x, 0, LINES / PARTS * i, 3)));
    }
    assert_ok(ash_graph_status(r->g, &diag));
    assert_ok(ash_program__lower(r->g, &target, NULL, &p, &diag));
    assert_int_equal(p->steps.len, PARTS);
    assert_in_range(p->nests.len, 2, PARTS / 4);
    for (int64_t i = 0; i < PARTS; i++)
        assert_int_equal(loads_narrowly(&p->nests.at[p->steps.at[i].nest]), LINES / PARTS * i + 3 <= FAR);
    ash_program__free(p);
}

/* What layers of one shape differ in is loaded behind the loop over their inner dimension, where sums
 * take the registers. */
static void numbers_are_behind_products(void **state) {
    enum { LAYERS = 3 };
    struct room *r = *state;
    ash_target target;
    ash_program *p;
    assert_ok(ash_target__named("x86-64-v4", &target, &diag));
    fresh_graph(r);
    ash_value x = plane_input(r->g, "x", ASH_F32, 64, 64);
    for (int k = 0; k < LAYERS; k++) {
        char name[16];
        snprintf(name, sizeof name, "w%d", k);
        x = ash_matmul(r->g, x, plane_input(r->g, name, ASH_F32, 64, 64));
        x = ash_mul(r->g, x, ash_scalar(r->g, ASH_F32, 0.3 + 0.1 * k));
    }
    ash_graph_output(r->g, "y", x);
    assert_ok(ash_graph_status(r->g, &diag));
    assert_ok(ash_program__lower(r->g, &target, NULL, &p, &diag));
    size_t found = 0;
    for (size_t i = 0; i < p->nests.len; i++) {
        const ash_nest *n = &p->nests.at[i];
        size_t loops = 0, ended = 0;
        for (size_t k = 0; k < n->code.len; k++) {
            const ash_inst *inst = &n->code.at[k];
            loops += inst->op == ASH_NEST_LOOP;
            ended += inst->op == ASH_NEST_END;
            if (inst->op != ASH_NEST_LOAD || inst->buf != n->buffers.len - 1 ||
                n->buffers.at[inst->buf].align != sizeof(float))
                continue;
            assert_in_range(loops, 2, 99);
            assert_in_range(ended, 1, loops - 1); /* the product's has, that around it has not */
            found++;
        }
    }
    assert_int_not_equal(found, 0);
    ash_program__free(p);
}

/* Those whose chunks are long look whether they are to stop, and so does what they become. */
static void long_ones_still_look(void **state) {
    struct room *r = *state;
    ash_target target;
    ash_program *p;
    assert_ok(ash_target__named("x86-64-v4", &target, &diag));
    fresh_graph(r);
    ash_value x = plane_input(r->g, "x", ASH_F32, 1, INT64_C(1) << 32);
    for (int k = 0; k < ALIKE; k++) {
        char name[16];
        snprintf(name, sizeof name, "y%d", k);
        ash_value y = ash_add(r->g, x, ash_scalar(r->g, ASH_F32, k * 0.37 + 0.1));
        ash_graph_output(r->g, name, ash_cumsum(r->g, y, 1, false, false));
    }
    assert_ok(ash_program__lower(r->g, &target, NULL, &p, &diag));
    size_t looking = 0;
    for (size_t i = 0; i < p->steps.len; i++) looking += p->nests.at[p->steps.at[i].nest].polls;
    assert_in_range(looking, ALIKE, p->steps.len);
    assert_in_range(p->nests.len, 1, ALIKE - 1);
    ash_program__free(p);
}

/* --- bits ------------------------------------------------------------------------------------------- */

static ash_value number(ash_graph *g, ash_value x, int k) {
    static const double odd[] = {0.0, -0.0, 1, -1, 0.5, 3, INFINITY, -2.75};
    ash_dtype dtype = ash_graph_type(g, x)->dtype;
    if (ash_dtype_is_float(dtype))
        return ash_scalar(g, dtype, k < 8 ? odd[k] : ldexp(1 + k * 0.37, k % 9 - 4));
    return ash_scalar(g, dtype, dtype == ASH_U8 ? k * 7 % 251 : (k * 37 - 300) * (k % 3 ? 1 : 7));
}

static ash_value sum(ash_graph *g, ash_value x, int k) {
    return ash_add(g, x, number(g, x, k));
}

static ash_value product(ash_graph *g, ash_value x, int k) {
    return ash_add(g, ash_mul(g, x, number(g, x, k)), number(g, x, k + 1));
}

static ash_value quotient(ash_graph *g, ash_value x, int k) {
    return ash_add(g, ash_div(g, x, number(g, x, k)), ash_div(g, number(g, x, k), x));
}

static ash_value bounded(ash_graph *g, ash_value x, int k) {
    ash_value low = ash_max(g, x, number(g, x, k)), high = ash_min(g, number(g, x, k + 3), x);
    return ash_max(g, number(g, x, k + 1), ash_add(g, low, high));
}

static ash_value clipped(ash_graph *g, ash_value x, int k) {
    return ash_min(g, ash_max(g, x, number(g, x, k)), number(g, x, k + 9));
}

static ash_value chosen(ash_graph *g, ash_value x, int k) {
    ash_value c = ash_broadcast_to(g, number(g, x, k), ash_graph_type(g, x)->dims, 2);
    return ash_select(g, ash_lt(g, x, c), x, c);
}

static ash_value cut(ash_graph *g, ash_value x, int k) {
    return ash_neg(g, ash_slice_axis(g, x, 1, k * 16, 5));
}

static ash_value cut_backwards(ash_graph *g, ash_value x, int k) {
    int64_t starts[] = {ROWS - 1 - k % 2, 60 + k * 16}, steps[] = {-1, -1};
    return ash_neg(g, ash_slice(g, x, starts, steps, (int64_t[]){3, 33}));
}

static ash_value single(ash_graph *g, ash_value x, int k) {
    return ash_neg(g, ash_slice(g, x, (int64_t[]){k % ROWS, 16 * k + 1}, NULL, (int64_t[]){1, 1}));
}

static ash_value counted(ash_graph *g, ash_value x, int k) {
    ash_value at = ash_iota(g, ASH_I64, ash_graph_type(g, x)->dims, 2, 1);
    at = ash_add(g, at, ash_scalar(g, ASH_I64, k * 1000 - 7));
    return ash_add(g, x, ash_cast(g, at, ash_graph_type(g, x)->dtype));
}

static ash_value rows(ash_graph *g, ash_value x, int k) {
    return ash_softmax(g, ash_mul(g, x, number(g, x, 9 + k)), 1);
}

static ash_value scanned(ash_graph *g, ash_value x, int k) {
    return ash_cumsum(g, sum(g, x, k), 1, false, k % 2);
}

static ash_value turned(ash_graph *g, ash_value x, int k) {
    ash_value y = ash_slice_axis(g, x, 1, k * 16, 40);
    return ash_mul(g, ash_transpose(g, y, (int64_t[]){1, 0}), number(g, x, 9 + k));
}

static ash_value multiplied(ash_graph *g, ash_value x, int k) {
    ash_value a = ash_slice_axis(g, x, 1, 16 * k, 48), b = ash_slice_axis(g, x, 1, 368 - 16 * k, 33);
    a = ash_transpose(g, a, (int64_t[]){1, 0}); /* [48, ROWS] @ [ROWS, 33] */
    return ash_add(g, ash_matmul(g, a, b), number(g, x, k));
}

static ash_value joined(ash_graph *g, ash_value x, int k) {
    ash_value parts[] = {sum(g, x, k), ash_slice_axis(g, x, 1, 16 * k, 7), product(g, x, k)};
    return ash_concat(g, parts, 3, 1);
}

static const struct {
    ash_dtype dtype;
    ash_value (*make)(ash_graph *g, ash_value x, int k);
    bool merges; /* into fewer than there are */
} kinds[] = {{ASH_F32, clipped, true},  {ASH_F32, sum, true},           {ASH_F32, product, true},
             {ASH_F32, quotient, true}, {ASH_F32, bounded, false},      {ASH_F32, chosen, true},
             {ASH_F32, cut, true},      {ASH_F32, cut_backwards, true}, {ASH_F32, single, true},
             {ASH_F32, counted, true},  {ASH_F32, rows, true},          {ASH_F32, scanned, false},
             {ASH_F32, turned, false},  {ASH_F32, multiplied, false},   {ASH_F32, joined, true},
             {ASH_F64, product, true},  {ASH_F16, product, true},       {ASH_I32, product, true},
             {ASH_I32, quotient, true}, {ASH_I64, product, true},       {ASH_U8, product, true},
             {ASH_I16, bounded, true}};

static void fill(ash_dtype dtype, void *data) {
    for (int i = 0; i < ELEMENTS; i++) {
        int v = i * 53 % 197 - 98;
        switch (dtype) {
        case ASH_F32:
            ((float *)data)[i] = i % 31 == 0 ? -0.0F : i % 37 == 0 ? INFINITY : (float)v * 0.31F;
            break;
        case ASH_F64: ((double *)data)[i] = v * 0.31; break;
        case ASH_F16: ((uint16_t *)data)[i] = (uint16_t)(0x3000 + i * 7); break;
        case ASH_I64: ((int64_t *)data)[i] = v * INT64_C(1000003); break;
        case ASH_I32: ((int32_t *)data)[i] = v; break;
        case ASH_I16: ((int16_t *)data)[i] = (int16_t)v; break;
        default: ((uint8_t *)data)[i] = (uint8_t)v; break;
        }
    }
}

/* A graph with the outputs `from` to `to` of a kind. */
static void make_outputs(struct room *r, size_t kind, int from, int to) {
    fresh_graph(r);
    ash_value x = plane_input(r->g, "x", kinds[kind].dtype, ROWS, COLUMNS);
    for (int k = from; k < to; k++) {
        char name[16];
        snprintf(name, sizeof name, "y%d", k);
        ash_graph_output(r->g, name, kinds[kind].make(r->g, x, k));
    }
}

static uint64_t hash_output(ash_plan *plan, size_t position) {
    const ash_view *view;
    const void *bytes;
    assert_ok(ash_plan_output(plan, position, &view, &diag));
    assert_ok(ash_view_data(view, &bytes, &diag));
    return ash_hash(bytes, (size_t)ash_view_bytes(view), 0);
}

static void execute(ash_plan *plan, ash_dtype dtype) {
    double data[ELEMENTS];
    fill(dtype, data);
    assert_ok(ash_plan_set_input(plan, 0, NULL, data, ELEMENTS * ash_dtype_size(dtype), &diag));
    assert_ok(ash_plan_execute(plan, &diag));
}

/* Whether there is a plan of that output alone: of the odd numbers, and of some. */
static bool is_compared(int k) {
    return k < 8 || k % 7 == 0;
}

static void bits_are_those_of_immediates(void **state) {
    struct room *r = *state;
    for (size_t kind = 0; kind < ASH_COUNT(kinds); kind++) {
        uint64_t hashes[ALIKE];
        ash_plan_options options = ash_plan_options_default();
        size_t alone = 0;
        options.no_optimize = true; /* every kind of its own */
        options.poison = true;
        for (int k = 0; k < ALIKE; k++) {
            if (!is_compared(k)) continue;
            make_outputs(r, kind, k, k + 1);
            prepare(r, &options);
            alone = r->plan->program->nests.len;
            execute(r->plan, kinds[kind].dtype);
            hashes[k] = hash_output(r->plan, 0);
        }
        make_outputs(r, kind, 0, ALIKE);
        prepare(r, &options);
        size_t all = r->plan->program->nests.len;
        print_message("kind %zu: %zu nests, of one %zu\n", kind, all, alone);
        if (kinds[kind].merges) assert_true(all < ALIKE * alone);
        execute(r->plan, kinds[kind].dtype);
        for (size_t k = 0; k < ALIKE; k++)
            if (is_compared((int)k) && hash_output(r->plan, k) != hashes[k])
                fail_msg("kind %zu, output %zu", kind, k);
    }
}

/* Three nests become one where a number from memory costs no more than an immediate. */
static void few_share_what_costs_nothing(void **state) {
    static const struct {
        size_t kind;
        size_t nests;
    } cases[] = {{1, 1}, {2, 1}, {5, 1}, {15, 1}, {0, 3}, {6, 3}, {8, 3}, {17, 3}};
    struct room *r = *state;
    for (size_t i = 0; i < ASH_COUNT(cases); i++) {
        ash_plan_options options = ash_plan_options_default();
        options.no_optimize = true;
        make_outputs(r, cases[i].kind, 9, 12);
        prepare(r, &options);
        if (r->plan->program->nests.len != cases[i].nests)
            fail_msg("kind %zu: %zu nests", cases[i].kind, r->plan->program->nests.len);
    }
}

/* `count` outputs: of 448 numbers those below a limit, squared. How many there are is settled for each. */
static void make_found(struct room *r, int count) {
    const ash_dim column = COLUMNS;
    fresh_graph(r);
    ash_value x = plane_input(r->g, "x", ASH_F32, ROWS, COLUMNS);
    for (int k = 0; k < count; k++) {
        char name[2][16];
        ash_value found, y = ash_reshape(r->g, ash_slice_axis(r->g, x, 0, 1, 1), &column, 1);
        ash_value numbers = ash_nonzero(r->g, ash_lt(r->g, y, ash_scalar(r->g, ASH_F32, k)), &found);
        snprintf(name[0], sizeof name[0], "n%d", k);
        snprintf(name[1], sizeof name[1], "y%d", k);
        ash_dim n = ash_settle(r->g, name[0], found, COLUMNS);
        y = ash_gather(r->g, y, ash_slice_axis(r->g, numbers, 0, 0, n), 0);
        ash_graph_output(r->g, name[1], ash_mul(r->g, y, y));
    }
}

/* Each finds its own size, and all have the kernels of one; each has its own result. */
static void sizes_are_found_apart(void **state) {
    struct room *r = *state;
    float data[ELEMENTS];
    size_t nests = 0;
    fill(ASH_F32, data);
    for (int count = 2; count <= 7; count += 5)
        for (int mode = 0; mode < 3; mode++) {
            static const ash_mode modes[] = {ASH_MODE_STREAM, ASH_MODE_GRAPH, ASH_MODE_MULTI_STREAM};
            ash_plan_options options = ash_plan_options_default();
            options.mode = modes[mode];
            options.streams = mode == 2 ? 3 : 1;
            options.poison = true;
            make_found(r, count);
            prepare(r, &options);
            if (!nests) nests = r->plan->program->nests.len;
            assert_int_equal(r->plan->program->nests.len, nests);
            execute(r->plan, ASH_F32);
            for (int k = 0; k < count; k++) {
                float wanted[COLUMNS];
                size_t n = 0;
                const ash_view *view;
                const void *bytes;
                for (const float *at = data + COLUMNS; at < data + 2L * COLUMNS; at++)
                    if (*at < (float)k) wanted[n++] = *at * *at;
                assert_ok(ash_plan_output(r->plan, (size_t)k, &view, &diag));
                assert_ok(ash_view_data(view, &bytes, &diag));
                assert_true(n > 100 && n < COLUMNS);
                assert_int_equal(ash_view_bytes(view), n * sizeof *wanted);
                assert_memory_equal(bytes, wanted, n * sizeof *wanted);
            }
        }
}

/* In the other modes, in a replica, and in a prologue that runs again when its parameter changes. */
static void in_every_mode(void **state) {
    struct room *r = *state;
    uint64_t first[2][ALIKE];
    for (int mode = 0; mode < 3; mode++) {
        static const ash_mode modes[] = {ASH_MODE_STREAM, ASH_MODE_GRAPH, ASH_MODE_MULTI_STREAM};
        float weights[2][ELEMENTS];
        ash_plan_options options = ash_plan_options_default();
        ash_plan *twin;
        options.mode = modes[mode];
        options.streams = mode == 2 ? 3 : 1;
        for (int i = 0; i < ELEMENTS; i++) weights[0][i] = (float)i, weights[1][i] = (float)(i * i % 71);
        fresh_graph(r);
        ash_value x = plane_input(r->g, "x", ASH_F32, ROWS, COLUMNS);
        ash_type type = *ash_graph_type(r->g, x);
        ash_value w = ash_graph_parameter(r->g, "w", &type, weights[0], sizeof weights[0], ASH_DATA_COPY);
        for (int k = 0; k < ALIKE; k++) {
            char name[16];
            snprintf(name, sizeof name, "y%d", k);
            ash_value scan = ash_cumsum(r->g, ash_mul(r->g, w, number(r->g, w, 9 + k)), 1, false, false);
            ash_graph_output(r->g, name, product(r->g, ash_add(r->g, x, scan), k + 9));
        }
        prepare(r, &options);
        assert_true(r->plan->program->prologue >= ALIKE);
        assert_in_range(r->plan->program->nests.len, 1, 4);
        assert_ok(ash_plan_replicate(r->plan, &twin, &diag));
        for (int set = 0; set < 2; set++) {
            if (set) {
                assert_ok(ash_plan_set_parameter(r->plan, "w", NULL, weights[1], sizeof weights[1], &diag));
                assert_ok(ash_plan_set_parameter(twin, "w", NULL, weights[1], sizeof weights[1], &diag));
            }
            execute(r->plan, ASH_F32);
            execute(twin, ASH_F32);
            for (size_t k = 0; k < ALIKE; k++) {
                if (!mode) first[set][k] = hash_output(r->plan, k);
                assert_true(hash_output(r->plan, k) == first[set][k]);
                assert_true(hash_output(twin, k) == first[set][k]);
            }
        }
        assert_true(first[0][5] != first[1][5]);
        ash_plan_destroy(twin);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(thousands_become_a_few, setup, teardown),
        cmocka_unit_test_setup_teardown(widths_are_kept_apart, setup, teardown),
        cmocka_unit_test_setup_teardown(numbers_are_behind_products, setup, teardown),
        cmocka_unit_test_setup_teardown(long_ones_still_look, setup, teardown),
        cmocka_unit_test_setup_teardown(bits_are_those_of_immediates, setup, teardown),
        cmocka_unit_test_setup_teardown(few_share_what_costs_nothing, setup, teardown),
        cmocka_unit_test_setup_teardown(sizes_are_found_apart, setup, teardown),
        cmocka_unit_test_setup_teardown(in_every_mode, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
