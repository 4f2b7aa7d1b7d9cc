/* SPDX-License-Identifier: MIT */
/* States of plans: what a graph keeps between executions, against the reference evaluator, in every mode;
 * where a new value is computed in place, and where it is copied. */
#include "state_testing.h"

/* --- where new values are computed -------------------------------------------------------------- */

static void a_counter_counts_in_place(void **state) {
    struct room *r = *state;
    int32_t old[CELLS], new[CELLS], kept[CELLS], ones[CELLS];
    for (int i = 0; i < CELLS; i++) ones[i] = 1;
    make_counter(r);
    for (int way = 0; way < 24; way++) {
        ash_plan_options options = ash_plan_options_default();
        options.no_fuse = !(way % 2);
        options.no_optimize = !(way / 2 % 2);
        options.mode = (ash_mode)(way / 4 % 3);
        options.streams = options.mode == ASH_MODE_MULTI_STREAM ? 2 : 1;
        options.poison = true;
        options.threads = 1 + (unsigned)way / 12;
        prepare(r, &options);
        assert_places(r, 1, 0);
        assert_ok(ash_plan_set_input(r->plan, 0, NULL, ones, sizeof ones, &diag));
        for (int i = 0; i < 4; i++) {
            assert_ok(ash_plan_execute(r->plan, &diag));
            read_output(r->plan, 0, old);
            read_output(r->plan, 1, new);
            read_state(r->plan, 0, kept);
            assert_all(old, i);
            assert_all(new, i + 1);
            assert_all(kept, i + 1);
        }
        ash_buffer_info info = ASH_INIT(ash_buffer_info);
        uint32_t found = 0;
        for (uint32_t b = 0; b < ash_plan_buffer_count(r->plan); b++) {
            assert_ok(ash_plan_buffer_at(r->plan, b, &info, &diag));
            if (info.role == ASH_ROLE_STATE && info.root == b)
                assert_string_equal(info.name, "count"), found++;
        }
        assert_int_equal(found, 1);
        assert_true(ash_plan_describe(r->plan).state >= sizeof ones);
    }
}

/* The number of the position as a value: the last of 0, 1, ... pos. */
static ash_value position_value(ash_graph *g, ash_dim pos) {
    const ash_dim count = ash_graph_dim_add(g, pos, 1), one = 1;
    return ash_slice(g, ash_iota(g, ASH_I64, &count, 1, 0), &pos, NULL, &one);
}

static ash_value first_row(ash_graph *g, ash_value x) {
    return ash_slice_axis(g, x, 0, 0, 1);
}

typedef ash_value make_update(ash_graph *g, ash_value state, ash_value x, ash_dim pos);

static ash_value by_write(ash_graph *g, ash_value s, ash_value x, ash_dim pos) {
    return ash_write_axis(g, s, ash_neg(g, first_row(g, x)), 0, pos);
}

static ash_value by_column(ash_graph *g, ash_value s, ash_value x, ash_dim pos) {
    return ash_write_axis(g, s, ash_slice_axis(g, x, 1, 0, 1), 1, pos);
}

static ash_value by_scatter(ash_graph *g, ash_value s, ash_value x, ash_dim pos) {
    const ash_dim dims[2] = {1, 1};
    ash_value at = ash_reshape(g, position_value(g, pos), dims, 2);
    return ash_scatter_nd(g, s, at, first_row(g, x), ASH_SCATTER_SET);
}

static ash_value by_scatter_add(ash_graph *g, ash_value s, ash_value x, ash_dim pos) {
    const ash_dim dims[2] = {1, 1}, wide[2] = {1, N};
    ash_value at = ash_broadcast_to(g, ash_reshape(g, position_value(g, pos), dims, 2), wide, 2);
    return ash_scatter_elements(g, s, at, first_row(g, x), 0, ASH_SCATTER_ADD);
}

static ash_value by_two_scatters(ash_graph *g, ash_value s, ash_value x, ash_dim pos) {
    return by_scatter_add(g, by_scatter(g, s, x, pos), ash_add(g, x, x), 0);
}

static ash_value by_two_writes(ash_graph *g, ash_value s, ash_value x, ash_dim pos) {
    return by_column(g, by_write(g, s, x, pos), ash_mul(g, x, x), 0);
}

static ash_value by_condition(ash_graph *g, ash_value s, ash_value x, ash_dim pos) {
    (void)pos;
    return ash_select(g, ash_lt(g, s, x), ash_sub(g, x, s), s);
}

static ash_value by_anything(ash_graph *g, ash_value s, ash_value x, ash_dim pos) {
    (void)s, (void)pos;
    return ash_matmul(g, x, x);
}

static ash_value shifted(ash_graph *g, ash_value s, ash_value x, ash_dim pos) {
    (void)pos;
    ash_value parts[2] = {ash_slice_axis(g, s, 0, 1, N - 1), first_row(g, x)};
    return ash_concat(g, parts, 2, 0);
}

static ash_value turned(ash_graph *g, ash_value s, ash_value x, ash_dim pos) {
    (void)pos;
    return ash_add(g, ash_transpose(g, s, (const int64_t[]){1, 0}), x);
}

static ash_value from_itself(ash_graph *g, ash_value s, ash_value x, ash_dim pos) {
    return by_scatter(
        g, s, ash_add(g, x, ash_slice(g, s, (const ash_dim[]){0, 0}, NULL, (const ash_dim[]){N, N})), pos);
}

static ash_value own_row(ash_graph *g, ash_value s, ash_value x, ash_dim pos) {
    (void)x;
    return ash_write_axis(g, s, ash_slice_axis(g, s, 0, 2, 1), 0, pos);
}

static ash_value the_input(ash_graph *g, ash_value s, ash_value x, ash_dim pos) {
    (void)g, (void)s, (void)pos;
    return x;
}

static ash_value unchanged(ash_graph *g, ash_value s, ash_value x, ash_dim pos) {
    (void)x, (void)pos;
    const ash_dim flat = CELLS, back[2] = {N, N};
    return ash_reshape(g, ash_reshape(g, s, &flat, 1), back, 2);
}

static ash_value constant(ash_graph *g, ash_value s, ash_value x, ash_dim pos) {
    (void)s, (void)x, (void)pos;
    const ash_dim dims[2] = {N, N};
    return ash_broadcast_to(g, ash_scalar(g, ASH_I32, 5), dims, 2);
}

/* What becomes of the state, read after its update: twice the new value. */
static void make_with(struct room *r, make_update *update, bool read_new, bool read_old) {
    fresh_graph(r);
    ash_dim pos = ash_graph_var(r->g, "pos", 0, N - 1);
    ash_value s = zero_state(r->g, "s"), x = square_input(r->g, "x"), y = update(r->g, s, x, pos);
    ash_graph_update(r->g, s, y);
    if (read_new) ash_graph_output(r->g, "new", ash_add(r->g, y, y));
    if (read_old) ash_graph_output(r->g, "old", ash_add(r->g, s, x));
}

static const struct {
    make_update *update;
    unsigned in_place, copied;
} updates[] = {
    {by_write, 1, 0},        {by_column, 1, 0},     {by_scatter, 1, 0},   {by_scatter_add, 1, 0},
    {by_two_scatters, 1, 0}, {by_two_writes, 1, 0}, {by_condition, 1, 0}, {by_anything, 1, 0},
    {shifted, 1, 0},         {turned, 0, 1},        {from_itself, 1, 0},  {own_row, 1, 0},
    {the_input, 0, 1},       {unchanged, 0, 0},     {constant, 0, 1},
};

static void each_kind_of_update(void **state) {
    struct room *r = *state;
    for (size_t u = 0; u < ASH_COUNT(updates); u++)
        for (int way = 0; way < 24; way++) {
            bool read_old = way % 4 == 3;
            ash_plan_options options = ash_plan_options_default();
            options.mode = (ash_mode)(way / 4 % 3);
            options.streams = options.mode == ASH_MODE_MULTI_STREAM ? 3 : 1;
            options.poison = true;
            options.threads = 1 + (unsigned)way % 2;
            options.no_fuse = !(way / 12);
            options.memory.mode = (ash_memory_mode)(way % 3);
            make_with(r, updates[u].update, way % 4 > 0, read_old);
            prepare(r, &options);
            assert_places(r, updates[u].in_place, updates[u].copied);
            follow(r, r->plan);
        }
}

static ash_role role_of(ash_plan *plan, uint32_t buffer) {
    ash_buffer_info info = ASH_INIT(ash_buffer_info);
    assert_ok(ash_plan_buffer_at(plan, buffer, &info, &diag));
    return info.role;
}

/* No step moves elements of the state. */
static void a_row_costs_a_row(void **state) {
    struct room *r = *state;
    for (size_t u = 0; u < 6; u++) {
        make_with(r, updates[u].update, false, false);
        prepare(r, NULL);
        for (size_t i = 0; i < ash_plan_op_count(r->plan); i++) {
            ash_prepared_op op = ASH_INIT(ash_prepared_op);
            assert_ok(ash_plan_op_at(r->plan, i, &op, &diag));
            assert_int_equal(op.kind, ASH_PREPARED_KERNEL);
            const ash_step *step = &r->plan->program->steps.at[r->plan->program->prologue + i];
            for (uint32_t k = 0; step->moves && k < step->n_accesses; k++)
                assert_true(step->accesses[k].write ||
                            role_of(r->plan, step->accesses[k].buffer) != ASH_ROLE_STATE);
        }
    }
}

/* A convolution computes in blocked channels; a state is plain. */
static void layouts_end_at_states(void **state) {
    struct room *r = *state;
    enum { C = 16, S = 5, ALL = C * S * S };
    float weights[C * C * 9], kept[ALL], have[ALL];
    fresh_graph(r);
    ash_type type = {.dtype = ASH_F32, .rank = 4, .dims = {1, C, S, S}};
    ash_type w = {.dtype = ASH_F32, .rank = 4, .dims = {C, C, 3, 3}};
    for (int i = 0; i < C * C * 9; i++) weights[i] = (float)(i * 7 % 13 - 6) / 64;
    for (int i = 0; i < ALL; i++) kept[i] = (float)(i % 17) / 8;
    ash_value s = ash_graph_state(r->g, "s", &type, kept, sizeof kept, ASH_DATA_COPY);
    ash_value y =
        ash_conv2d(r->g, s, ash_graph_constant(r->g, &w, weights, sizeof weights, ASH_DATA_COPY), 1, 1, 1);
    ash_graph_update(r->g, s, ash_add(r->g, ash_relu(r->g, y), s));
    prepare(r, NULL);
    void *states[] = {kept};
    for (int step = 0; step < 3; step++) {
        ash_reference *reference;
        const ash_view *view;
        assert_ok(ash_plan_execute(r->plan, &diag));
        assert_ok(ash_plan_state(r->plan, 0, &view, &diag));
        assert_ok(ash_view_copy_out(view, have, sizeof have, &diag));
        assert_ok(ash_reference_step(r->g, NULL, 0, states, NULL, NULL, 0, &reference, &diag));
        ash_reference_destroy(reference);
        for (int i = 0; i < ALL; i++) assert_true(have[i] - kept[i] < 1e-3f && kept[i] - have[i] < 1e-3f);
    }
}

/* What is kept of a state is what it was before the execution; what is not kept cannot be had. */
static void kept_values_are_old_values(void **state) {
    struct room *r = *state;
    const ash_dim flat = CELLS;
    int32_t ones[CELLS], cells[CELLS];
    const ash_view *view;
    for (int i = 0; i < CELLS; i++) ones[i] = 1;
    make_counter(r);
    ash_value s = ash_graph_state_at(r->g, 0, NULL, NULL);
    ash_value shown = ash_reshape(r->g, s, &flat, 1);
    ash_graph_output(r->g, "flat", ash_neg(r->g, shown));
    fresh_plan(r, (const ash_value[]){shown, s}, 2);
    assert_ok(ash_plan_set_input(r->plan, 0, NULL, ones, sizeof ones, &diag));
    for (int i = 0; i < 3; i++) {
        assert_ok(ash_plan_execute(r->plan, &diag));
        assert_ok(ash_plan_buffer(r->plan, shown, &view, &diag));
        assert_ok(ash_view_copy_out(view, cells, sizeof cells, &diag));
        assert_all(cells, i);
        assert_ok(ash_plan_buffer(r->plan, s, &view, &diag));
        assert_ok(ash_view_copy_out(view, cells, sizeof cells, &diag));
        assert_all(cells, i);
        read_state(r->plan, 0, cells);
        assert_all(cells, i + 1);
    }
    make_with(r, by_condition, false, false);
    s = ash_graph_state_at(r->g, 0, NULL, NULL);
    prepare(r, NULL);
    assert_status(ash_plan_buffer(r->plan, s, &view, &diag), ASH_ERROR_NOT_FOUND);
}

/* --- several states ----------------------------------------------------------------------------- */

static void states_change_places(void **state) {
    struct room *r = *state;
    for (int way = 0; way < 4; way++) {
        fresh_graph(r);
        ash_dim pos = ash_graph_var(r->g, "pos", 0, N - 1);
        ash_value a = zero_state(r->g, "a"), b = zero_state(r->g, "b"), c = zero_state(r->g, "c");
        ash_value x = square_input(r->g, "x"), sum = ash_add(r->g, a, x);
        (void)pos;
        ash_graph_update(r->g, a, way == 0 ? b : sum);
        ash_graph_update(r->g, b, way < 3 ? a : sum);
        if (way > 1) ash_graph_update(r->g, c, way == 2 ? b : sum);
        ash_graph_output(r->g, "a", a);
        ash_graph_output(r->g, "c", ash_add(r->g, c, b));
        for (int mode = 0; mode < ASH_MODE_COUNT; mode++) {
            ash_plan_options options = ash_plan_options_default();
            options.mode = (ash_mode)mode;
            options.streams = mode == ASH_MODE_MULTI_STREAM ? 3 : 1;
            options.poison = true;
            prepare(r, &options);
            follow(r, r->plan);
        }
    }
}

/* --- random graphs ------------------------------------------------------------------------------ */

static uint32_t pick(struct room *r, uint32_t below) {
    r->random ^= r->random >> 12, r->random ^= r->random << 25, r->random ^= r->random >> 27;
    return (uint32_t)((r->random * 0x2545f4914f6cdd1dULL) >> 33) % below;
}

static ash_value random_node(struct room *r, ash_value a, ash_value b, ash_dim pos) {
    static make_update *const makes[] = {by_write, by_column,    by_scatter, by_scatter_add,
                                         shifted,  by_condition, turned,     by_anything};
    ash_graph *g = r->g;
    switch (pick(r, 12)) {
    case 0: return ash_add(g, a, b);
    case 1: return ash_mul(g, a, b);
    case 2: return ash_max(g, a, b);
    case 3: return ash_neg(g, a);
    default: return makes[pick(r, ASH_COUNT(makes))](g, a, b, pos);
    }
}

static void make_random(struct room *r, uint64_t seed) {
    enum { MOST = 40 };
    ash_value values[MOST], states[3];
    unsigned count = 0, n_states;
    fresh_graph(r);
    r->random = seed * 0x9e3779b97f4a7c15ULL + 12345;
    for (int i = 0; i < 4; i++) pick(r, 2);
    ash_dim pos = ash_graph_var(r->g, "pos", 0, N - 1);
    n_states = 1 + pick(r, 3);
    values[count++] = square_input(r->g, "x");
    for (unsigned i = 0; i < n_states; i++) {
        char name[] = {'s', (char)('0' + i), 0};
        values[count++] = states[i] = zero_state(r->g, name);
    }
    for (unsigned nodes = 2 + pick(r, 26); nodes; nodes--) {
        ash_value a = values[pick(r, count)], b = values[pick(r, count)];
        values[count++] = random_node(r, a, b, pos);
    }
    for (unsigned i = 0; i < n_states; i++)
        if (pick(r, 6))
            ash_graph_update(r->g, states[i], values[pick(r, 2) ? count - 1 - pick(r, 3) : pick(r, count)]);
    ash_graph_output(r->g, "x", values[pick(r, count)]);
    ash_graph_output(r->g, "y", values[pick(r, count)]);
    ash_graph_output(r->g, "z", values[count - 1]);
}

static void random_graphs(void **state) {
    struct room *r = *state;
    unsigned in_place = 0, copied = 0;
    for (uint64_t seed = 0; seed < 40; seed++) {
        make_random(r, seed);
        for (int way = 0; way < 3; way++) {
            ash_plan_options options = ash_plan_options_default();
            options.mode = (ash_mode)way;
            options.streams = way == ASH_MODE_MULTI_STREAM ? 1 + (unsigned)seed % 4 : 1;
            options.poison = way != ASH_MODE_GRAPH;
            options.no_fuse = !(seed % 3 != 0);
            options.no_optimize = !(seed % 4 != 0);
            options.order = seed % 5 ? ASH_PLAN_ORDER_OFF : ASH_PLAN_ORDER_ON;
            options.memory.mode = (ash_memory_mode)((seed + (uint64_t)way) % 3);
            options.threads = 1 + (unsigned)(seed / 2) % 2;
            prepare(r, &options);
            follow(r, r->plan);
            in_place += ash_plan_describe(r->plan).states_in_place;
            copied += ash_plan_describe(r->plan).states_copied;
        }
    }
    assert_true(in_place > 40 && copied > 40);
}

/* Two products of the old value on two streams: the new value, in the same bytes, must wait for one of
 * them, and without that wait some order shows. */
static void the_new_value_waits_for_readers(void **state) {
    struct room *r = *state;
    int32_t inputs[1][CELLS], states[1][CELLS], want[2][CELLS], have[2][CELLS];
    fresh_graph(r);
    ash_dim pos = ash_graph_var(r->g, "pos", 0, N - 1);
    (void)pos;
    ash_value s = zero_state(r->g, "s"), x = square_input(r->g, "x");
    ash_graph_output(r->g, "a", ash_matmul(r->g, s, x));
    ash_graph_output(r->g, "b", ash_matmul(r->g, x, s));
    ash_graph_update(r->g, s, ash_add(r->g, s, x));
    prepare_reordered(r, 2);
    assert_places(r, 1, 0);
    assert_int_equal(ash_plan_describe(r->plan).waits, 1);
    for (int i = 0; i < CELLS; i++) inputs[0][i] = i % 7 - 3;
    assert_ok(ash_plan_set_input(r->plan, 0, NULL, inputs[0], sizeof inputs[0], &diag));
    for (uint32_t drop = 0; drop < 2; drop++) {
        unsigned wrong = 0;
        reorder.drop = drop ? 0 : UINT32_MAX;
        for (reorder.seed = 0; reorder.seed < 100; reorder.seed++) {
            for (int i = 0; i < CELLS; i++) states[0][i] = i % 5;
            assert_ok(ash_plan_set_state(r->plan, 0, NULL, states[0], sizeof states[0], &diag));
            reference_step(r, inputs, states, 0, want);
            assert_ok(ash_plan_execute(r->plan, &diag));
            for (size_t o = 0; o < 2; o++) read_output(r->plan, o, have[o]);
            wrong += memcmp(have, want, sizeof have) != 0;
        }
        reorder.drop = UINT32_MAX;
        assert_true(drop ? wrong > 0 : wrong == 0);
    }
}

static void reordering_changes_nothing(void **state) {
    struct room *r = *state;
    unsigned waits = 0;
    for (uint64_t seed = 100; seed < 120; seed++) {
        make_random(r, seed);
        prepare_reordered(r, 2 + (unsigned)seed % 3);
        waits += ash_plan_describe(r->plan).waits;
        for (reorder.seed = 0; reorder.seed < 5; reorder.seed++) follow(r, r->plan);
    }
    assert_true(waits > 20);
}

int main(void) {
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(a_counter_counts_in_place),
        TEST(each_kind_of_update),
        TEST(a_row_costs_a_row),
        TEST(layouts_end_at_states),
        TEST(kept_values_are_old_values),
        TEST(states_change_places),
        TEST(random_graphs),
        TEST(the_new_value_waits_for_readers),
        TEST(reordering_changes_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
