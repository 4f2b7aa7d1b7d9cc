/* SPDX-License-Identifier: MIT */
/* Half floats in kernels: between operators they keep the bits of f32, and what a cast shows of them is
 * rounded, however many operators became one kernel. */
#include "state_testing.h"

enum { COUNT = 200 };

/* A value that nobody else uses, so that it is computed where it is cast. */
static ash_value made(ash_graph *g, ash_value x, int which) {
    ash_value y = ash_mul(g, x, ash_scalar_like(g, x, 0.7 + which * 0.11));
    return ash_add(g, ash_mul(g, y, y), ash_scalar_like(g, x, 0.1));
}

/* Casts of something computed: as it is, moved, and before more is computed from them that is exact. */
static void build(struct room *r, ash_dtype half) {
    fresh_graph(r);
    ash_type type = {.dtype = half, .rank = 2, .dims = {COUNT / 10, 10}};
    ash_value x = ash_graph_input(r->g, "x", &type);
    ash_value turned = ash_transpose(r->g, made(r->g, x, 0), (int64_t[]){1, 0});
    ash_graph_output(r->g, "f32", ash_cast(r->g, made(r->g, x, 1), ASH_F32));
    ash_graph_output(r->g, "f64", ash_cast(r->g, turned, ASH_F64));
    ash_graph_output(r->g, "negated", ash_neg(r->g, ash_cast(r->g, made(r->g, x, 2), ASH_F32)));
    ash_value most =
        ash_reduce_max(r->g, ash_cast(r->g, made(r->g, x, 3), ASH_F64), (int64_t[]){1}, 1, true);
    ash_graph_output(r->g, "most", ash_broadcast_to(r->g, most, type.dims, 2));
    ash_value bits = ash_bitcast(r->g, made(r->g, x, 4), ASH_U16); /* those of what it is rounded to */
    bits = ash_bitcast(r->g, ash_xor(r->g, bits, ash_scalar(r->g, ASH_U16, 1)), half);
    ash_graph_output(r->g, "bits", ash_cast(r->g, bits, ASH_F64));
    bits = ash_bitcast(r->g, ash_cast(r->g, made(r->g, x, 5), ASH_F32), ASH_I32);
    ash_graph_output(r->g, "again", ash_bitcast(r->g, ash_neg(r->g, ash_neg(r->g, bits)), ASH_F32));
}

static void execute(struct room *r) {
    ash_plan_options options = ash_plan_options_default();
    uint16_t data[COUNT];
    for (int i = 0; i < COUNT; i++) data[i] = (uint16_t)(0x3c00 + i * 5); /* from 1 on in both formats */
    prepare(r, &options);
    assert_ok(ash_plan_set_input(r->plan, 0, NULL, data, sizeof data, &diag));
    assert_ok(ash_plan_execute(r->plan, &diag));
}

/* Output `o`, whose elements are of 4 or 8 bytes: each is one of a half float's numbers. */
static void assert_halves(struct room *r, ash_dtype half, size_t o) {
    const ash_view *view;
    const void *bytes;
    assert_ok(ash_plan_output(r->plan, o, &view, &diag));
    assert_ok(ash_view_data(view, &bytes, &diag));
    bool wide = ash_view_type(view)->dtype == ASH_F64;
    for (int i = 0; i < COUNT; i++) {
        double have = wide ? ((const double *)bytes)[i] : ((const float *)bytes)[i], y = have;
        ash_wide element = {.dtype = half, .count = 1, .f = &y};
        uint16_t bits;
        ash_wide_store(&element, &bits);
        ash_wide_load(&element, &bits);
        if (y != have) fail_msg("output %zu, element %d: %.17g is no half", o, i, have);
    }
}

static void a_cast_shows_rounded_numbers(void **state) {
    struct room *r = *state;
    static const ash_dtype halves[] = {ASH_F16, ASH_BF16};
    for (size_t h = 0; h < ASH_COUNT(halves); h++) {
        build(r, halves[h]);
        execute(r);
        for (size_t o = 0; o < ash_plan_output_count(r->plan); o++) assert_halves(r, halves[h], o);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_cast_shows_rounded_numbers, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
