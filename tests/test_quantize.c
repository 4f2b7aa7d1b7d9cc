/* SPDX-License-Identifier: MIT */
/* Random quantised networks, as files spell them, before and after the passes for a machine that multiplies
 * bytes. Scales are powers of two and inputs are bytes, so that double precision is exact wherever the
 * products are: every byte and every number must be the same. What becomes of products, of movement and of
 * quantisation is asserted on small networks. */
#include "ir/build.h"
#include "opt_testing.h"

enum { CHANNELS = 8 };

typedef struct network {
    fixture *f;
    uint64_t seed;
    ash_graph *g;
    uint64_t random;
    double scale; /* of what was dequantised last */
    int zero;
    ash_dtype dtype;
} network;

static unsigned pick(network *n, unsigned below_this) {
    return below(&n->random, below_this);
}
static ash_type type_at(const network *n, ash_value v) {
    return *ash_graph__type(n->g, v);
}
static double power(network *n) {
    return ldexp(1, (int)pick(n, 4) - 4);
}
static ash_value scalar_of(network *n, ash_dtype dtype, double number) {
    return ash_scalar(n->g, dtype, number);
}

/* --- spelling ------------------------------------------------------------------------------------- */

static ash_value dequantise(network *n, ash_value q) {
    ash_value x = ash_cast(n->g, q, ASH_I32);
    if (n->zero) x = ash_sub(n->g, x, ash_cast(n->g, scalar_of(n, n->dtype, n->zero), ASH_I32));
    return ash_mul(n->g, ash_cast(n->g, x, ASH_F32), scalar_of(n, ASH_F32, n->scale));
}

static ash_value quantise(network *n, ash_value x) {
    x = ash_round(n->g, ash_div(n->g, x, scalar_of(n, ASH_F32, n->scale)));
    if (n->zero) x = ash_add(n->g, x, ash_cast(n->g, scalar_of(n, n->dtype, n->zero), ASH_F32));
    return ash_cast(n->g, x, n->dtype);
}

static void choose_scale(network *n) {
    n->dtype = pick(n, 2) ? ASH_U8 : ASH_I8;
    n->scale = power(n);
    n->zero = n->dtype == ASH_U8 ? (int)pick(n, 3) * 64 : (int)pick(n, 3) * 5 - 5;
}

/* Weights with a scale per number of dim 0, and what their bias is dequantised by. */
static ash_value weights(network *n, ash_type type, bool last, ash_value *scales) {
    ash_dtype dtype = pick(n, 3) ? ASH_I8 : ASH_U8;
    ash_dim channels = type.dims[last ? type.rank - 1 : 0], dims[ASH_MAX_RANK];
    double numbers[64];
    type.dtype = dtype;
    for (ash_dim c = 0; c < channels; c++) numbers[c] = power(n);
    ash_type list = TYPE(ASH_F32, channels);
    *scales = ash_build__floats(n->g, &list, numbers);
    for (unsigned d = 0; d < type.rank; d++) dims[d] = (last ? d == type.rank - 1 : d == 0) ? channels : 1;
    ash_value w = ash_cast(n->g, random_leaf(n->f, NULL, type), ASH_I32);
    if (dtype == ASH_U8 || pick(n, 3) == 0)
        w = ash_sub(n->g, w, ash_cast(n->g, scalar_of(n, dtype, dtype == ASH_U8 ? 130 : 3), ASH_I32));
    return ash_mul(n->g, ash_cast(n->g, w, ASH_F32), ash_reshape(n->g, *scales, dims, type.rank));
}

static ash_value bias(network *n, ash_value scales, double x_scale, unsigned trailing) {
    ash_type type = type_at(n, scales);
    type.dtype = ASH_I32;
    if (pick(n, 4) == 0) x_scale *= 2; /* another scale than that of the products */
    ash_value b = ash_cast(n->g, random_leaf(n->f, NULL, type), ASH_F32);
    b = ash_mul(n->g, b, ash_mul(n->g, scales, scalar_of(n, ASH_F32, x_scale)));
    return ash_build__channels(n->g, b, trailing);
}

/* --- layers --------------------------------------------------------------------------------------- */

static ash_value convolve(network *n, ash_value x) {
    int64_t c = type_at(n, x).dims[1], groups = pick(n, 3) ? 1 : pick(n, 2) ? 2 : c;
    unsigned k = 1 + 2 * pick(n, 2);
    double x_scale = n->scale;
    ash_window w = {0, 1, 1, k / 2, k / 2}, windows[] = {w, w};
    ash_value scales, y, by;
    by = weights(n, TYPE(ASH_I8, CHANNELS, c / groups, k, k), false, &scales);
    y = ash_conv(n->g, x, by, windows, 2, groups);
    return pick(n, 3) ? ash_add(n->g, y, bias(n, scales, x_scale, 2)) : y;
}

/* The last dim as rows of a product. */
static ash_value multiply(network *n, ash_value x) {
    int64_t k = type_at(n, x).dims[3];
    double x_scale = n->scale;
    ash_value scales, by = weights(n, TYPE(ASH_I8, k, k), true, &scales), y = ash_matmul(n->g, x, by);
    return pick(n, 3) ? ash_add(n->g, y, bias(n, scales, x_scale, 0)) : y;
}

static ash_value move(network *n, ash_value x) {
    static const int64_t perm[] = {0, 1, 3, 2};
    static const ash_dim before[] = {0, 0, 1, 0}, after[] = {0, 0, 0, 1};
    ash_window two = {2, 1, 1, 1, 0}, windows[] = {two, two};
    ash_type type = type_at(n, x);
    switch (pick(n, 6)) {
    case 0: return ash_transpose(n->g, x, perm);
    case 1: return ash_pool(n->g, ASH_OP_POOL_MAX, x, (int64_t[]){2, 3}, windows, 2);
    case 2: return ash_slice_axis(n->g, x, 2, 0, type.dims[2] - (type.dims[2] > 2));
    case 3: {
        ash_value y = ash_pad(n->g, x, scalar_of(n, ASH_F32, 0), before, after);
        return type.dims[2] < 6 && type.dims[3] < 6 ? y : x;
    }
    case 4: {
        ash_value half = ash_slice_axis(n->g, x, 1, 0, CHANNELS / 2);
        return ash_concat(n->g, (ash_value[]){half, half}, 2, 1);
    }
    default: {
        ash_type index = TYPE(ASH_I32, type.dims[3]);
        return ash_gather(n->g, x, ash_build__ints(n->g, &index, (int64_t[]){1, 0, 1, 1, 0, 1, 1, 0}), 3);
    }
    }
}

static void generate(network *n, unsigned layers) {
    choose_scale(n);
    ash_type type = TYPE(n->dtype, 1, CHANNELS, 4, 4);
    ash_value q = ash_graph_input(n->g, "x", &type), x = dequantise(n, q), before = x;
    for (unsigned i = 0; i < layers; i++) {
        unsigned kind = pick(n, 5);
        x = kind < 2 ? convolve(n, x) : kind == 2 ? multiply(n, x) : move(n, x);
        if (pick(n, 2)) x = ash_relu(n->g, x);
        if (pick(n, 3) == 0 && ash_type_equal(ash_graph__type(n->g, x), ash_graph__type(n->g, before)))
            x = ash_add(n->g, x, before);
        if (kind < 3 || pick(n, 2)) choose_scale(n);
        before = x = dequantise(n, q = quantise(n, x));
    }
    ash_graph_output(n->g, "bytes", q);
    ash_graph_output(n->g, "numbers", x);
}

/* --- the tests ------------------------------------------------------------------------------------ */

static void same_numbers(void *user, const char *pass, const ash_graph *graph) {
    network *n = user;
    if (!same_boundary(n->g, graph) || !same_results(n->g, graph, ASH_EVAL_DOUBLE, false, 1e-15, NULL))
        fail_msg("seed %llu, after %s", (unsigned long long)n->seed, pass);
}

static void networks_keep_every_byte(void **state) {
    fixture *f = *state;
    for (uint64_t seed = 0; seed < 150; seed++) {
        ash_diag diag;
        restart(f);
        f->random = seed * 31 + 5;
        network n = {.f = f, .seed = seed, .g = f->g, .random = seed * 7919 + 1};
        generate(&n, 1 + (unsigned)seed % 6);
        assert_ok(ash_graph_status(f->g, &diag));
        ash_target target = target_of(4u << seed % 3);
        target.dot4 = 1;
        ash_opt_options options = {.dump = same_numbers, .dump_user = &n};
        assert_ok(ash_opt__run(f->g, &target, &options, &f->out, &diag));
    }
}

/* How many products of real numbers a network has after the passes that come first. */
static size_t real_products(const ash_graph *g) {
    size_t real = 0;
    for (size_t i = 0; i < g->nodes.len; i++) {
        const ash_node *node = &g->nodes.at[i];
        bool multiplies = node->op == ASH_OP_CONV || node->op == ASH_OP_MATMUL;
        real += multiplies && ash_graph__type(g, node->out)->dtype == ASH_F32;
    }
    return real;
}

static void all_products_are_in_integers(void **state) {
    fixture *f = *state;
    size_t before = 0;
    for (uint64_t seed = 0; seed < 50; seed++) {
        ash_diag diag;
        restart(f);
        network n = {.f = f, .g = f->g, .random = seed * 104729 + 3};
        generate(&n, 5);
        ash_target target = target_of(8);
        target.dot4 = 1;
        before += real_products(f->g);
        assert_ok(optimise(f, "quantize fold cse simplify dce", &target, (ash_opt_options){0}, &diag));
        assert_int_equal(real_products(f->out), 0);
    }
    assert_true(before > 100);
}

/* A machine without such kernels keeps products of real numbers, for which it has some. */
static void other_machines_keep_real_numbers(void **state) {
    fixture *f = *state;
    ash_diag diag;
    network n = {.f = f, .g = f->g, .random = 3};
    while (real_products(f->g) == 0) restart(f), n.g = f->g, generate(&n, 5);
    ash_target target = target_of(8);
    size_t before = real_products(f->g);
    assert_ok(optimise(f, "quantize fold cse simplify dce", &target, (ash_opt_options){0}, &diag));
    assert_int_equal(real_products(f->out), before);
}

static void failed_allocations_leave_nothing(void **state) {
    fixture *f = *state;
    ash_diag diag;
    network n = {.f = f, .g = f->g, .random = 77};
    generate(&n, 5);
    ash_target target = target_of(8);
    target.dot4 = 1;
    long long before = f->memory.live;
    ash_status status = ASH_ERROR_OUT_OF_MEMORY;
    for (long at = 1; status != ASH_OK; at++) {
        f->memory.count = 0;
        f->memory.fail_at = at;
        status = optimise(f, "quantize", &target, (ash_opt_options){0}, &diag);
        f->memory.fail_at = 0;
        if (status == ASH_OK) break;
        assert_int_equal(status, ASH_ERROR_OUT_OF_MEMORY);
        assert_null(f->out);
        assert_int_equal(f->memory.live, before);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(networks_keep_every_byte, setup, teardown),
        cmocka_unit_test_setup_teardown(all_products_are_in_integers, setup, teardown),
        cmocka_unit_test_setup_teardown(other_machines_keep_real_numbers, setup, teardown),
        cmocka_unit_test_setup_teardown(failed_allocations_leave_nothing, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
