/* SPDX-License-Identifier: MIT */
/* States of pairs: the first plan computes a new value while the second is still to read the old one, and
 * plans of other graphs share the states of a pair, or of one plan. */
#include "device/device.h"
#include "pair_room.h"

/* --- states that change, sizes that depend on data --------------------------------------------------- */

/* The first part computes a state's new value, which has to wait until the second has read the old one; a
 * size that the first finds is one of the second's. */
static void what_the_second_reads_of_states(void **state) {
    fixture *f = *state;
    for (int mode = 0; mode < ASH_MODE_COUNT; mode++) {
        ash_graph *g = fresh(f);
        ash_type eight = TYPE(F32, 8);
        ash_value x = INPUT(g, "x", F32, 8), late = INPUT(g, "late", F32, 8), count;
        ash_value sum = ash_graph_state(g, "sum", &eight, NULL, 0, ASH_DATA_COPY);
        ash_value next = ash_add(g, sum, x);
        ash_graph_update(g, sum, next);
        ash_value where = ash_nonzero(g, ash_gt(g, x, ash_scalar(g, ASH_F32, 0)), &count);
        ash_dim n = ash_settle(g, "n", count, 8);
        where = ash_slice_axis(g, where, 0, 0, n);
        ash_graph_output(g, "twice", ash_mul(g, next, ash_scalar(g, ASH_F32, 2)));
        ash_graph_output(g, "late", ash_mul(g, late, sum));
        ash_graph_output(g, "taken", ash_gather(g, ash_add(g, late, x), where, 0));
        assert_ok(ash_graph_status(g, &diag));
        ash_plan_options options = in_mode(mode);
        options.threads = 2; /* all that there are */
        step s = {.seed = late};
        pair p = prepare(f, &s, &options, NULL);
        assert_int_equal(ash_plan_output_count(p.second), 2);
        float old[8] = {0}, got[8];
        for (int turn = 0; turn < 3; turn++) {
            float a[8], b[8], want[8];
            const ash_view *view;
            size_t taken = 0;
            for (int k = 0; k < 8; k++) {
                a[k] = (float)((k * 3 + turn) % 5 - 2);
                b[k] = (float)(k + 1);
                if (a[k] > 0) want[taken++] = a[k] + b[k];
            }
            assert_ok(ash_plan_set_input(p.first, 0, NULL, a, sizeof a, &diag));
            assert_ok(ash_plan_set_input(p.second, 0, NULL, b, sizeof b, &diag));
            assert_ok(ash_plan_execute(p.first, &diag));
            assert_ok(ash_plan_output(p.first, 0, &view, &diag));
            assert_ok(ash_view_copy_out(view, got, sizeof got, &diag));
            for (int k = 0; k < 8; k++) assert_true(got[k] == 2 * (old[k] + a[k]));
            assert_ok(ash_plan_execute(p.second, &diag));
            assert_ok(ash_plan_output(p.second, 0, &view, &diag));
            assert_ok(ash_view_copy_out(view, got, sizeof got, &diag));
            for (int k = 0; k < 8; k++) assert_true(got[k] == b[k] * old[k]);
            assert_ok(ash_plan_output(p.second, 1, &view, &diag));
            assert_int_equal(ash_view_bytes(view), taken * sizeof *got);
            assert_ok(ash_view_copy_out(view, got, taken * sizeof *got, &diag));
            assert_memory_equal(got, want, taken * sizeof *got);
            for (int k = 0; k < 8; k++) old[k] += a[k];
        }
        destroy(&p);
    }
}

/* --- shared states ----------------------------------------------------------------------------------- */

/* A network without dropout, whose weights are those of a pair. */
static void evaluation(void **state) {
    fixture *f = *state;
    step s, t = {0};
    float first[ROWS * OUT], again[ROWS * OUT];
    const ash_view *view, *weight;
    add_step(f->g, &s, true);
    ash_plan_options options = in_mode(ASH_MODE_STREAM);
    pair p = prepare(f, &s, &options, NULL);
    ash_graph *g = fresh(f);
    ash_dim rows = ash_graph_var(g, "rows", 1, ROWS);
    ash_value x = INPUT(g, "x", F32, rows, IN);
    ash_value own = add_stream(g);
    ash_graph_output(g, "y", ash_add(g, add_network(g, &t, x, ASH_NO_VALUE), ash_cast(g, own, ASH_F32)));
    ash_plan *plan;
    size_t shared, at;
    options.device = ash_plan_device(p.first);
    assert_ok(ash_plan_prepare(f->context, g, &options, &plan, &diag));
    assert_ok(ash_plan_share_states(plan, p.second, &shared, &diag));
    assert_int_equal(shared, s.n + 1); /* the stream, too */
    refused(ash_plan_share_states(plan, p.first, NULL, &diag), ASH_ERROR_STATE, "shares states already");
    for (int epoch = 0; epoch < 3; epoch++) {
        give_all(plan, ROWS, 0);
        assert_ok(ash_plan_execute(plan, &diag));
        assert_ok(ash_plan_output(plan, 0, &view, &diag));
        assert_ok(ash_view_copy_out(view, epoch ? again : first, sizeof first, &diag));
        if (epoch) assert_memory_not_equal(first, again, sizeof first); /* other weights */
        give_all(p.first, ROWS, 0);
        give_all(p.second, ROWS, 1);
        assert_ok(ash_plan_execute(p.first, &diag));
        assert_ok(ash_plan_execute(plan, &diag)); /* it counts the stream on */
        cannot_go_on(&p, "shares its states");
        assert_ok(ash_plan_execute(p.first, &diag));
        assert_ok(ash_plan_execute(p.second, &diag));
    }
    /* one state, wherever one looks; what the second lost is lost for all */
    assert_ok(ash_plan_state_position(plan, "w0", &at, &diag));
    assert_ok(ash_plan_state(plan, at, &view, &diag));
    assert_ok(ash_plan_state_position(p.first, "w0", &at, &diag));
    assert_ok(ash_plan_state(p.first, at, &weight, &diag));
    assert_int_equal(ash_storage_id(ash_view_storage(view)), ash_storage_id(ash_view_storage(weight)));
    assert_int_equal(ash_view_offset(view), ash_view_offset(weight));
    uint64_t bytes;
    assert_ok(ash_plan_release_all(p.first, &bytes, &diag)); /* the weights begin anew, for both */
    give_all(plan, ROWS, 0);
    assert_ok(ash_plan_execute(plan, &diag));
    assert_ok(ash_plan_output(plan, 0, &view, &diag));
    assert_ok(ash_view_copy_out(view, again, sizeof again, &diag));
    assert_memory_equal(first, again, sizeof first);
    destroy(&p); /* the states stay */
    assert_ok(ash_plan_execute(plan, &diag));
    assert_ok(ash_plan_output(plan, 0, &view, &diag));
    assert_ok(ash_view_copy_out(view, again, sizeof again, &diag));
    assert_memory_not_equal(first, again, sizeof first); /* the stream went on */
    ash_plan_destroy(plan);
}

static ash_plan *plan_with_state(fixture *f, const char *name, ash_type type) {
    ash_graph *g = fresh(f);
    ash_plan *plan;
    ash_plan_options options = in_mode(ASH_MODE_STREAM);
    options.device = f->device;
    ash_graph_output(g, "y", ash_neg(g, ash_graph_state(g, name, &type, NULL, 0, ASH_DATA_COPY)));
    assert_ok(ash_plan_prepare(f->context, g, &options, &plan, &diag));
    return plan;
}

static void sharing_is_refused(void **state) {
    fixture *f = *state;
    assert_ok(ash_device__default(f->context, &f->device, &diag));
    ash_plan *a = plan_with_state(f, "s", TYPE(F32, 4)), *b = plan_with_state(f, "t", TYPE(F32, 4));
    ash_plan *c = plan_with_state(f, "s", TYPE(F32, 5)), *d = plan_with_state(f, "s", TYPE(F32, 4));
    size_t shared = 9;
    refused(ash_plan_share_states(b, a, &shared, &diag), ASH_ERROR_NOT_FOUND, "no state");
    assert_int_equal(shared, 0);
    refused(ash_plan_share_states(c, a, &shared, &diag), ASH_ERROR_TYPE, "different types");
    refused(ash_plan_share_states(a, a, &shared, &diag), ASH_ERROR_STATE, "already");
    assert_ok(ash_plan_share_states(d, a, &shared, &diag));
    refused(ash_plan_share_states(a, d, &shared, &diag), ASH_ERROR_STATE, "already"); /* no rings */
    ash_plan_destroy(a);
    ash_plan_destroy(b);
    ash_plan_destroy(c);
    ash_plan_destroy(d);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        PAIR_TEST(what_the_second_reads_of_states),
        PAIR_TEST(evaluation),
        PAIR_TEST(sharing_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
