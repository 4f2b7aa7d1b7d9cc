/* SPDX-License-Identifier: MIT */
/* Random graphs: what they compute is the same after every pass.
 *
 * Two kinds. Exact ones hold whatever is defined bit for bit, are run at ASH_OPT_EXACT, evaluated with
 * every result rounded to its dtype, on inputs with infinities, NaN and zeros of both signs, and compared
 * bit for bit. Smooth ones hold what has no jumps, and convolutions, windows and products, are run through
 * every pass but fold, which rounds, and compared in double precision. */
#include "opt_testing.h"

enum { POOL = 24, MAX_COUNT = 600 };

typedef struct generator {
    fixture *f;
    ash_graph *g;
    uint64_t random;
    bool exact;
    ash_value pool[POOL];
} generator;

static unsigned pick(generator *r, unsigned n) {
    return below(&r->random, n);
}
static ash_type type_at(const generator *r, ash_value v) {
    return *ash_graph__type(r->g, v);
}
static int64_t count_at(const generator *r, ash_value v) {
    int64_t count;
    ash_type type = type_at(r, v);
    assert_true(ash_type_static_count(&type, &count));
    return count;
}
static ash_value any(generator *r) {
    return r->pool[pick(r, POOL)];
}
static ash_value any_float(generator *r) {
    for (;;) {
        ash_value v = any(r);
        if (type_at(r, v).dtype == ASH_F32) return v;
    }
}

static ash_type random_type(generator *r) {
    static const ash_dim sizes[] = {1, 1, 2, 3, 4, 6};
    ash_type type = {.dtype = ASH_F32, .rank = pick(r, 5)};
    for (unsigned d = 0; d < type.rank; d++) type.dims[d] = sizes[pick(r, ASH_COUNT(sizes))];
    return type;
}

static ash_value number(generator *r, ash_value like) {
    static const double numbers[] = {0.0, -0.0, 1, -1, 2, 0.5, 3, -4, 1e30};
    ash_type type = type_at(r, like);
    double x = numbers[pick(r, r->exact ? ASH_COUNT(numbers) : 8)];
    return ash_broadcast_to(r->g, ash_scalar(r->g, type.dtype, x), type.dims, type.rank);
}

/* A value that can stand beside x in an elementwise node. */
static ash_value mate(generator *r, ash_value x) {
    ash_type type = type_at(r, x), small = type;
    if (pick(r, 3) == 0) return number(r, x);
    for (int i = 0; i < 8; i++) {
        ash_value v = any(r);
        ash_type of = type_at(r, v);
        if (ash_type_equal(&of, &type)) return v;
    }
    unsigned drop = type.rank ? pick(r, type.rank + 1) : 0;
    small.rank -= drop;
    memmove(small.dims, small.dims + drop, small.rank * sizeof *small.dims);
    for (unsigned d = 0; d < small.rank; d++)
        if (pick(r, 2)) small.dims[d] = 1;
    return ash_broadcast_to(r->g, random_leaf(r->f, NULL, small), type.dims, type.rank);
}

static ash_value random_unary(generator *r) {
    static const ash_op smooth[] = {ASH_OP_NEG,     ASH_OP_ABS, ASH_OP_TANH,
                                    ASH_OP_SIGMOID, ASH_OP_ERF, ASH_OP_SIN};
    static const ash_op exact[] = {ASH_OP_NEG,   ASH_OP_ABS,  ASH_OP_SIGN, ASH_OP_FLOOR,
                                   ASH_OP_ROUND, ASH_OP_SQRT, ASH_OP_EXP};
    ash_value x = any_float(r);
    ash_op op = r->exact ? exact[pick(r, ASH_COUNT(exact))] : smooth[pick(r, ASH_COUNT(smooth))];
    return ash_build(r->g, op, &x, 1, NULL, 0);
}

static ash_value random_binary(generator *r) {
    static const ash_op ops[] = {ASH_OP_ADD, ASH_OP_SUB, ASH_OP_MUL, ASH_OP_MIN,
                                 ASH_OP_MAX, ASH_OP_DIV, ASH_OP_POW};
    static const double exponents[] = {0, 1, 2, 0.5, -1};
    ash_value x = any_float(r), y = mate(r, x);
    ash_op op = ops[pick(r, r->exact ? 7 : 5)];
    if (op == ASH_OP_POW) {
        ash_type type = type_at(r, x);
        ash_value e = ash_scalar(r->g, ASH_F32, exponents[pick(r, ASH_COUNT(exponents))]);
        return ash_pow(r->g, x, ash_broadcast_to(r->g, e, type.dims, type.rank));
    }
    ash_value ins[] = {x, y};
    if (pick(r, 2)) ins[0] = y, ins[1] = x;
    return ash_build(r->g, op, ins, 2, NULL, 0);
}

static ash_value random_choice(generator *r) {
    ash_value x = any_float(r), y = mate(r, x), condition = ash_lt(r->g, x, mate(r, x));
    if (pick(r, 2)) condition = ash_not(r->g, condition);
    if (pick(r, 4) == 0) return ash_cast(r->g, ash_cast(r->g, condition, ASH_I32), ASH_F32);
    return ash_select(r->g, condition, x, y);
}

/* Splits or joins dims. */
static ash_value random_reshape(generator *r) {
    ash_value x = any_float(r);
    ash_type type = type_at(r, x), to = {.rank = 0};
    for (unsigned d = 0; d < type.rank && to.rank < 5; d++) {
        int64_t dim = type.dims[d];
        if (d + 1 < type.rank && pick(r, 3) == 0) dim *= type.dims[++d];
        int64_t cut = dim % 2 == 0 && pick(r, 2) ? 2 : dim % 3 == 0 && pick(r, 2) ? 3 : 1;
        if (pick(r, 4) == 0) to.dims[to.rank++] = 1;
        if (cut > 1) to.dims[to.rank++] = cut;
        to.dims[to.rank++] = dim / cut;
    }
    int64_t count = 1;
    for (unsigned d = 0; d < to.rank; d++) count *= to.dims[d];
    return count == count_at(r, x) ? ash_reshape(r->g, x, to.dims, to.rank) : x;
}

static ash_value random_transpose(generator *r) {
    ash_value x = any_float(r);
    int64_t perm[ASH_MAX_RANK];
    unsigned rank = type_at(r, x).rank;
    for (unsigned d = 0; d < rank; d++) {
        unsigned at = pick(r, d + 1);
        perm[d] = perm[at];
        perm[at] = d;
    }
    return ash_transpose(r->g, x, perm);
}

static ash_value random_broadcast(generator *r) {
    ash_value x = any_float(r);
    ash_type type = type_at(r, x);
    for (unsigned d = 0; d < type.rank; d++)
        if (type.dims[d] == 1 && pick(r, 2)) type.dims[d] = 2;
    if (type.rank < 4 && pick(r, 2)) {
        memmove(type.dims + 1, type.dims, type.rank * sizeof *type.dims);
        type.dims[0] = 1 + pick(r, 3);
        type.rank++;
    }
    return ash_broadcast_to(r->g, x, type.dims, type.rank);
}

static ash_value random_slice(generator *r) {
    ash_value x = any_float(r);
    ash_type type = type_at(r, x);
    int64_t starts[ASH_MAX_RANK] = {0}, steps[ASH_MAX_RANK] = {0};
    ash_dim dims[ASH_MAX_RANK] = {0};
    for (unsigned d = 0; d < type.rank; d++) {
        int64_t n = type.dims[d], a = pick(r, (unsigned)n), b = pick(r, (unsigned)n);
        steps[d] = a > b ? -1 - (int64_t)pick(r, 2) : 1 + (int64_t)pick(r, 2);
        starts[d] = a;
        dims[d] = llabs(b - a) / llabs(steps[d]) + 1;
        if (pick(r, 2)) starts[d] = 0, steps[d] = 1, dims[d] = n;
    }
    return ash_slice(r->g, x, starts, steps, dims);
}

static ash_value random_pad(generator *r) {
    ash_value x = any_float(r), ins[2] = {x};
    unsigned rank = type_at(r, x).rank;
    int64_t lists[3][ASH_MAX_RANK] = {{0}};
    for (unsigned d = 0; d < rank; d++)
        if (pick(r, 2)) {
            const unsigned which = pick(r, 3);
            lists[which][d] = pick(r, 3);
        }
    ins[1] = ash_scalar(r->g, ASH_F32, pick(r, 2) ? 0 : -3);
    ash_attr attrs[] = {ASH_ATTR_LIST(BEFORE, lists[0], rank), ASH_ATTR_LIST(AFTER, lists[1], rank),
                        ASH_ATTR_LIST(INTERIOR, lists[2], rank)};
    return ash_build(r->g, ASH_OP_PAD, ins, 2, attrs, 3);
}

static ash_value random_concat(generator *r) {
    ash_value x = any_float(r), parts[3] = {x, mate(r, x), mate(r, x)};
    unsigned rank = type_at(r, x).rank, count = 1 + pick(r, 3);
    return rank ? ash_concat(r->g, parts, count, pick(r, rank)) : x;
}

/* Sums of one element or none are left out of the exact kind: the sign of their zeros is not defined. */
static ash_value random_reduce(generator *r) {
    static const ash_op ops[] = {ASH_OP_REDUCE_MAX, ASH_OP_REDUCE_MIN, ASH_OP_REDUCE_SUM};
    ash_value x = any_float(r);
    ash_type type = type_at(r, x);
    int64_t axes[ASH_MAX_RANK], reduced = 1;
    unsigned n = 0;
    for (unsigned d = 0; d < type.rank; d++)
        if (pick(r, 2)) axes[n++] = d, reduced *= type.dims[d];
    ash_op op = ops[pick(r, r->exact && reduced < 2 ? 2 : 3)];
    return ash_reduce(r->g, op, x, axes, n, pick(r, 2));
}

static ash_value random_gather(generator *r) {
    ash_value x = any_float(r);
    unsigned rank = type_at(r, x).rank;
    if (!rank) return x;
    ash_value index = random_leaf(r->f, NULL, type_of(ASH_I64, pick(r, 2), (ash_dim[]){1}));
    return ash_gather(r->g, x, index, pick(r, rank));
}

/* A scale or a shift per channel. */
static ash_value affine_step(generator *r, ash_value x, unsigned axis) {
    ash_type small = type_at(r, x);
    for (unsigned d = 0; d < small.rank; d++)
        if (d != axis || pick(r, 4) == 0) small.dims[d] = 1;
    ash_value c = random_leaf(r->f, NULL, small);
    switch (pick(r, 5)) {
    case 0: return ash_sub(r->g, c, x);
    case 1: return ash_sub(r->g, x, c);
    case 2: return ash_div(r->g, x, ash_add(r->g, ash_abs(r->g, c), ash_scalar(r->g, ASH_F32, 1)));
    case 3: return ash_mul(r->g, c, x);
    default: return ash_add(r->g, x, c);
    }
}

/* None to four of them. */
static ash_value affine_steps(generator *r, ash_value x, unsigned axis) {
    for (unsigned n = pick(r, 5); n > 0; n--) x = affine_step(r, x, axis);
    return x;
}

static ash_value random_product(generator *r) {
    ash_value x = any_float(r);
    ash_type type = type_at(r, x), w;
    if (type.rank < 2) return x;
    w = pick(r, 2) ? type : type_of(ASH_F32, 2, (ash_dim[]){0, 0});
    w.dims[w.rank - 2] = type.dims[type.rank - 1];
    w.dims[w.rank - 1] = 1 + pick(r, 9);
    x = ash_matmul(r->g, x, random_leaf(r->f, NULL, w));
    return affine_steps(r, x, type_at(r, x).rank - 1);
}

/* A tensor with 4 dims, from any. */
static ash_value image(generator *r) {
    ash_value x = any_float(r);
    ash_type type = type_at(r, x);
    if (type.rank == 4) return x;
    int64_t count = count_at(r, x), c = count % 8 == 0 ? 8 : count % 4 == 0 ? 4 : count % 3 == 0 ? 3 : 1;
    return ash_reshape(r->g, x, (ash_dim[]){1, c, 1, count / c}, 4);
}

static ash_value random_conv(generator *r) {
    ash_value x = image(r);
    int64_t c = type_at(r, x).dims[1], groups = pick(r, 3) ? 1 : c,
            o = groups * (1 + pick(r, groups > 1 ? 2 : 12));
    ash_window w = {0, 1 + pick(r, 2), 1 + pick(r, 2), 1, 2}, windows[] = {w, w};
    ash_value weights =
        random_leaf(r->f, NULL, type_of(ASH_F32, 4, (ash_dim[]){o, c / groups, 1, 1 + pick(r, 2)}));
    return affine_steps(r, ash_conv(r->g, x, weights, windows, 2, groups), 1);
}

static ash_value random_pool(generator *r) {
    ash_value x = image(r);
    ash_window w = {1 + pick(r, 2), 1 + pick(r, 2), 1, 1, 1}, windows[] = {w, w};
    return ash_pool(r->g, pick(r, 2) ? ASH_OP_POOL_MAX : ASH_OP_POOL_SUM, x, (int64_t[]){2, 3}, windows, 2);
}

/* A node that is there, again, with its operands the other way round where there are two. */
static ash_value random_again(generator *r) {
    if (!r->g->nodes.len) return any(r);
    ash_node node = r->g->nodes.at[pick(r, (unsigned)r->g->nodes.len)];
    ash_value ins[2] = {node.n_ins > 1 ? node.ins[1] : 0, node.n_ins ? node.ins[0] : 0};
    bool jumps = node.op == ASH_OP_DIV && !r->exact; /* x / 0 shows the sign of the 0 */
    bool swaps = ash_op_infos[node.op].class == ASH_CLASS_BINARY && !jumps && pick(r, 2);
    ash_value v = ash_build(r->g, node.op, swaps ? ins : node.ins, node.n_ins, node.attrs, node.n_attrs);
    return type_at(r, v).dtype == ASH_F32 ? v : any(r);
}

/* A part of a value along one axis; of a concat, if there is one. */
static ash_value random_cut(generator *r) {
    ash_value x = any_float(r);
    for (unsigned i = 0; i < POOL; i++) {
        const ash_value_info *info = ash_graph__value(r->g, r->pool[i]);
        if (info->kind == ASH_VALUE_NODE && r->g->nodes.at[info->node].op == ASH_OP_CONCAT) x = r->pool[i];
    }
    ash_type type = type_at(r, x);
    if (!type.rank) return x;
    unsigned axis = pick(r, type.rank), n = (unsigned)type.dims[axis], start = pick(r, n);
    return ash_slice_axis(r->g, x, axis, start, 1 + pick(r, n - start));
}

static ash_value random_node(generator *r) {
    switch (pick(r, r->exact ? 15 : 17)) {
    case 0: return random_unary(r);
    case 1:
    case 2: return random_binary(r);
    case 3: return random_reshape(r);
    case 4: return random_transpose(r);
    case 5: return random_broadcast(r);
    case 6: return random_slice(r);
    case 7: return random_pad(r);
    case 8: return random_concat(r);
    case 9: return random_reduce(r);
    case 10: return random_gather(r);
    case 11: return r->exact ? random_choice(r) : random_product(r);
    case 12:
    case 13: return r->exact ? random_cut(r) : random_conv(r);
    case 14: return r->exact ? random_again(r) : random_pool(r);
    case 15: return random_again(r);
    default: return random_cut(r);
    }
}

static void generate(generator *r, unsigned nodes) {
    ash_diag diag;
    for (unsigned i = 0; i < POOL; i++) {
        char name[16];
        snprintf(name, sizeof name, "x%u", i);
        ash_type type = random_type(r);
        r->pool[i] =
            i < 4 ? ash_graph_input(r->g, name, &type) : random_leaf(r->f, i < 8 ? name : NULL, type);
    }
    for (unsigned i = 0; i < nodes; i++) {
        ash_value v = random_node(r);
        assert_ok(ash_graph_status(r->g, &diag));
        int64_t count = count_at(r, v);
        if (count > 0 && count <= MAX_COUNT && type_at(r, v).rank <= 5) r->pool[pick(r, POOL)] = v;
    }
    for (unsigned i = 0; i < 6; i++) {
        char name[16];
        snprintf(name, sizeof name, "y%u", i);
        ash_graph_output(r->g, name, any(r));
    }
}

typedef struct watch {
    const generator *r;
    uint64_t seed;
    unsigned lanes;
} watch;

static void compare(void *user, const char *pass, const ash_graph *graph) {
    watch *w = user;
    const ash_graph *before = w->r->g;
    bool exact = w->r->exact;
    if (!same_boundary(before, graph) ||
        !same_results(before, graph, exact ? ASH_EVAL_DTYPE : ASH_EVAL_DOUBLE, exact, exact ? 0 : 1e-11,
                      NULL))
        fail_msg("seed %llu, %u lanes, after %s", (unsigned long long)w->seed, w->lanes, pass);
}

static void run_seeds(fixture *f, bool exact, unsigned seeds, unsigned nodes) {
    const char *only = getenv("ASHLAR_SEED"), *const off[] = {"fold"};
    for (uint64_t seed = only ? strtoull(only, NULL, 10) : 0; seed < (only ? ~0ull : seeds); seed++) {
        ash_diag diag;
        restart(f);
        f->random = seed * 1000003;
        generator r = {.f = f, .g = f->g, .random = seed * 7919 + 1, .exact = exact};
        generate(&r, nodes);
        watch w = {&r, seed, 4u << seed % 3};
        ash_target target = target_of(w.lanes);
        ash_opt_options options = {exact ? ASH_OPT_EXACT : ASH_OPT_FULL, .dump = compare, .dump_user = &w};
        if (!exact) options.off = off, options.n_off = 1;
        assert_ok(ash_opt__run(f->g, &target, &options, &f->out, &diag));
        if (only) break;
    }
}

static void exact_passes_keep_every_bit(void **state) {
    run_seeds(*state, true, 400, 60);
}

static void all_passes_keep_the_numbers(void **state) {
    run_seeds(*state, false, 400, 50);
}

/* A second run finds nothing that the first has left: rules do not depend on the order in which they are
 * met. */
static void a_second_run_changes_nothing(void **state) {
    fixture *f = *state;
    for (uint64_t seed = 0; seed < 300; seed++) {
        ash_diag diag;
        ash_opt_options options = {.level = ASH_OPT_EXACT};
        ash_graph *again;
        restart(f);
        f->random = seed;
        generator r = {.f = f, .g = f->g, .random = seed * 7919 + 1, .exact = seed % 2};
        generate(&r, 60);
        assert_ok(ash_opt__run(f->g, NULL, &options, &f->out, &diag));
        assert_ok(ash_opt__run(f->out, NULL, &options, &again, &diag));
        size_t before = f->out->nodes.len, after = again->nodes.len;
        ash_graph_destroy(again);
        assert_int_equal(before, after);
    }
}

/* Fails the n-th allocation and all after it, for growing n, until the run succeeds. */
static void failed_allocations_leave_nothing(void **state) {
    fixture *f = *state;
    for (uint64_t seed = 0; seed < 12; seed++) {
        ash_diag diag;
        restart(f);
        f->random = seed;
        generator r = {.f = f, .g = f->g, .random = seed * 104729 + 1};
        generate(&r, 40);
        ash_target target = target_of(4);
        assert_ok(optimise(f, NULL, &target, (ash_opt_options){0},
                           &diag)); /* dims that rules make are there now */
        ash_graph_destroy(f->out);
        f->out = NULL;
        long long before = f->memory.live;
        ash_status status = ASH_ERROR_OUT_OF_MEMORY;
        for (long n = 1; status != ASH_OK; n += 1 + n / 16) {
            f->memory.count = 0;
            f->memory.fail_at = n;
            status = ash_opt__run(f->g, &target, NULL, &f->out, &diag);
            f->memory.fail_at = 0;
            if (status == ASH_OK) break;
            assert_int_equal(status, ASH_ERROR_OUT_OF_MEMORY);
            assert_null(f->out);
            assert_int_equal(f->memory.live, before);
        }
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(exact_passes_keep_every_bit, setup, teardown),
        cmocka_unit_test_setup_teardown(all_passes_keep_the_numbers, setup, teardown),
        cmocka_unit_test_setup_teardown(a_second_run_changes_nothing, setup, teardown),
        cmocka_unit_test_setup_teardown(failed_allocations_leave_nothing, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
