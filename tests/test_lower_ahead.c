/* SPDX-License-Identifier: MIT */
/* What kernels ask for ahead, so that it is in a cache when it is read: the next columns of a packed
 * operand, a tile's own lines, and a softmax's next row. Counted in the nests, which are interpreted as
 * well: asking changes no result. */
#include "interpreted.h"
#include "test_graphs.h"

static ash_target targets[2]; /* vectors of 8 and 16 */

static int setup(void **state) {
    (void)state;
    for (size_t i = 0; i < ASH_COUNT(targets); i++)
        if (ash_target__named(i ? "x86-64-v4" : "x86-64-v3", &targets[i], NULL) != ASH_OK) return 1;
    return open_context(1);
}

/* What the first-level cache is asked for. */
static unsigned count_near(const ash_program *p) {
    unsigned found = 0;
    for (size_t i = 0; i < p->nests.len; i++)
        for (ash_ref k = 0; k < p->nests.at[i].code.len; k++) {
            const ash_inst *inst = &p->nests.at[i].code.at[k];
            found += inst->op == ASH_NEST_PREFETCH && inst->i == 0;
        }
    return found;
}

/* A product of some rows, or of at most so many, by packed columns, which are no multiple of a vector. */
static ash_graph *packed_product(int64_t rows, bool open) {
    const int64_t terms = 96, blocks = 12, n = blocks * 16 - 3;
    const ash_attr attrs[] = {ASH_ATTR_I(N, n), ASH_ATTR_I(B_BLOCK, 16)};
    ash_graph *g = new_graph();
    const ash_dim m = open ? ash_graph_var(g, "m", 1, rows) : rows;
    ash_value ins[] = {INPUT(g, "a", m, terms), INPUT(g, "b", blocks, terms, 16)}, y;
    g->internal = true;
    ash_graph_add(g, ASH_OP_MATMUL, ins, 2, attrs, 2, &y);
    ash_graph_output(g, "y", y);
    return g;
}

/* What its kernels ask for, with lines asked for so many times from so many bytes on; *near, if not NULL,
 * of these the first-level cache. */
static unsigned count_asked(int64_t rows, ash_target target, int64_t asks, int64_t ahead, unsigned *near) {
    const int64_t vars[8] = {0};
    ash_graph *g = packed_product(rows, false);
    ash_diag diag;
    ash_program *p;
    target.costs.stream_asks = asks;
    target.costs.stream_ahead = ahead;
    test_interpreted_as(g, g, &target, vars, 1e-6);
    assert_ok(ash_program__lower(g, &target, NULL, &p, &diag));
    unsigned found = test_count(p, ASH_NEST_PREFETCH);
    if (near) *near = count_near(p);
    ash_program__free(p);
    ash_graph_destroy(g);
    return found;
}

/* Where there may be rows enough their tiles ask for the next columns, low ones too, unless fewer are
 * there; and all of them for their own, which others may not have asked for. */
static void test_open_rows_ask(void **state) {
    (void)state;
    const int64_t bounds[] = {20, 40, 64};
    for (size_t i = 0; i < ASH_COUNT(bounds); i++) {
        ash_target target = targets[1];
        ash_graph *g = packed_product(bounds[i], true);
        unsigned found[2];
        for (int64_t asks = 0; asks < 2; asks++) {
            ash_diag diag;
            ash_program *p;
            target.costs.stream_asks = asks;
            assert_ok(ash_program__lower(g, &target, NULL, &p, &diag));
            found[asks] = test_count(p, ASH_NEST_PREFETCH);
            ash_program__free(p);
        }
        if (bounds[i] < 24)
            assert_int_equal(found[0], 0);
        else
            assert_true(found[0] > 4); /* of tiles of several heights */
        assert_true(found[1] > found[0]);
        for (int64_t rows = 1; rows <= bounds[i]; rows += rows < 16 ? 3 : 13)
            test_interpreted_as(g, g, &target, &rows, 1e-6);
        ash_graph_destroy(g);
    }
}

/* A tile of all rows asks for its own lines where it computes much with each, as often as the costs say. */
static void test_streams_are_asked_for(void **state) {
    (void)state;
    const ash_target *wide = &targets[1], *narrow = &targets[0];
    unsigned once = count_asked(8, *wide, 1, 4096, NULL);
    assert_true(once >= 1);
    assert_int_equal(count_asked(8, *wide, 3, 4096, NULL), 3 * once);
    for (int64_t near = 0; near < 4; near++) {
        ash_target other = *wide;
        other.costs.stream_near = near;
        unsigned found;
        assert_int_equal(count_asked(8, other, 3, 4096, &found), 3 * once);
        assert_int_equal(found, (int64_t)once * near);
        assert_int_equal(count_asked(8, other, 3, wide->costs.line_bytes, &found), once);
        assert_int_equal(found, near ? once : 0); /* the others are too near */
    }
    assert_int_equal(count_asked(8, *wide, 0, 4096, NULL), 0);
    assert_int_equal(count_asked(1, *wide, 2, 4096, NULL), 0);
    ash_target eager = *wide;
    eager.costs.stream_work = 1;
    assert_true(count_asked(1, eager, 2, 4096, NULL) >= 2);
    eager.l1_bytes = 1 << 20; /* what stays in the first-level cache is not asked for */
    assert_int_equal(count_asked(1, eager, 2, 4096, NULL), 0);
    once = count_asked(6, *narrow, 1, 4096, NULL); /* two vectors to a line */
    assert_true(once >= 1);
    assert_int_equal(count_asked(6, *narrow, 2, 4096, NULL), once);
}

/* What a softmax of rows, of a number of columns or of at most so many, asks for; *near as above. */
static unsigned count_of_rows(int64_t rows, int64_t columns, bool open, const ash_target *target,
                              unsigned *near) {
    ash_graph *g = new_graph();
    ash_diag diag;
    ash_program *p;
    ash_value x = INPUT(g, "x", rows, open ? ash_graph_var(g, "n", 1, columns) : columns);
    ash_graph_output(g, "y", ash_softmax(g, x, 1));
    const int64_t some[] = {columns, 100, 3};
    for (size_t i = 0; i < (open ? ASH_COUNT(some) : 1); i++)
        test_interpreted_as(g, g, target, &some[i], 1e-6);
    assert_ok(ash_program__lower(g, target, NULL, &p, &diag));
    unsigned found = test_count(p, ASH_NEST_PREFETCH);
    *near = count_near(p);
    ash_program__free(p);
    ash_graph_destroy(g);
    return found;
}

/* The second loop over a row asks for the lines of the next one, unless all rows are near. */
static void test_next_row_is_asked_for(void **state) {
    (void)state;
    for (size_t i = 0; i < ASH_COUNT(targets); i++) {
        ash_target target = targets[i];
        const unsigned lines = 4 * target.vector_bytes / 64; /* of a step of four registers */
        unsigned near;
        target.l1_bytes = 8 << 10;
        assert_int_equal(count_of_rows(20, 256, false, &target, &near), lines);
        assert_int_equal(near, lines);
        assert_int_equal(count_of_rows(20, 256, true, &target, &near), lines);
        assert_int_equal(near, lines);
        assert_int_equal(count_of_rows(4, 1280, false, &target, &near), lines);
        assert_int_equal(near, 0); /* it would drive out the present row */
        assert_int_equal(count_of_rows(7, 256, false, &target, &near), 0);
        assert_int_equal(count_of_rows(1, 2560, false, &target, &near), 0); /* there is none */
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_streams_are_asked_for),
        cmocka_unit_test(test_next_row_is_asked_for),
        cmocka_unit_test(test_open_rows_ask),
    };
    return cmocka_run_group_tests(tests, setup, tear_down);
}
