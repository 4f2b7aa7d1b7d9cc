/* SPDX-License-Identifier: MIT */
/* Dim expressions inside kernels: what lowering makes of one has the value that ash_dims_eval gives it, for
 * every kind of expression, also where what is divided is negative; and slices whose sizes are such
 * expressions. */
#include "ashlar/builder.h"
#include "differential.h"
#include "kernel/kern.h"
#include "nest_interp.h"
#include "one_context.h"

enum { VARS = 3, EXPRESSIONS = 48, ROUNDS = 60, SAMPLES = 16, COMPILED_EVERY = 6 };

/* --- expressions ---------------------------------------------------------------------------------- */

typedef struct pool {
    ash_dims *dims;
    ash_dim at[VARS + EXPRESSIONS]; /* the variables, then what was made of them */
    unsigned n;
    uint64_t state;
} pool;

static const int64_t least[VARS] = {0, 1, 3};

/* Small numbers often, so that bounds decide sometimes, and large ones. */
static ash_dim operand(pool *p) {
    static const int64_t numbers[] = {0, 1, 2, 3, 5, 8, 13, 57, 100, 4096, 1 << 20};
    if (test_congruent(&p->state) % 3 == 0) return numbers[test_congruent(&p->state) % ASH_COUNT(numbers)];
    return p->at[test_congruent(&p->state) % p->n];
}

/* a, and what a rest is: a - b * floor(a / b). */
static bool remainder_of(pool *p, ash_dim a, ash_dim b, ash_dim *out) {
    ash_dim q;
    return ash_dims_combine(p->dims, ASH_DIM_DIV, a, b, &q, NULL) == ASH_OK &&
           ash_dims_combine(p->dims, ASH_DIM_MUL, q, b, &q, NULL) == ASH_OK &&
           ash_dims_combine(p->dims, ASH_DIM_SUB, a, q, out, NULL) == ASH_OK;
}

/* Fills the pool; an expression that is refused (it divides by what may be 0, or is too large) is drawn
 * again. */
static void fill_pool(pool *p, uint64_t seed, int64_t most) {
    static const char *const names[VARS] = {"a", "b", "c"};
    ash_diag diag;
    *p = (pool){.n = VARS, .state = seed};
    assert_ok(ash_dims_create(&ash_allocator__libc, &p->dims, &diag));
    for (unsigned i = 0; i < VARS; i++)
        assert_ok(ash_dims_add_var(p->dims, names[i], least[i], most, &p->at[i], &diag));
    for (unsigned tries = 0; p->n < ASH_COUNT(p->at); tries++) {
        unsigned op = (unsigned)(test_congruent(&p->state) % 7);
        ash_dim a = operand(p), b = operand(p), out;
        bool made = op == 6 ? remainder_of(p, a, b, &out)
                            : ash_dims_combine(p->dims, (ash_dim_op)op, a, b, &out, NULL) == ASH_OK;
        if (made) p->at[p->n++] = out;
        assert_true(tries < 100000);
    }
}

/* A kernel that stores the value of every expression. */
static void lower_all(const pool *p, ash_nest *out) {
    ash_diag diag;
    ash_target target;
    ash_program program = {.allocator = &ash_allocator__libc, .dims = p->dims};
    ash_lowering low = {.target = &target, .allocator = &ash_allocator__libc, .program = &program};
    ash_kern k;
    assert_ok(ash_target__named("x86-64", &target, &diag));
    assert_true(ash_vec_push(&ash_allocator__libc, &low.fusion.groups, (ash_group){.n_nodes = 0}));
    ash_kern_init(&k, &low, 0);
    ash_nest *n = &k.nest;
    uint16_t to = ash_nest_buffer_add(n, (ash_nest_buffer){ASH_I64, 8, 0, true});
    ash_nest_loop(n, ash_nest_arg(n, ASH_NEST_BEGIN_ARG), ash_nest_arg(n, ASH_NEST_END_ARG), 1, 1);
    for (unsigned i = 0; i < p->n; i++)
        ash_nest_store(n, to, ash_nest_index(n, i), ash_kern_dim(&k, p->at[i]), ASH_NO_REF);
    ash_nest_end(n);
    assert_ok(ash_nest_verify(n, &diag));
    *out = *n;
    ash_nest_init(n, &ash_allocator__libc);
    ash_kern_free(&k);
    ash_vec_free(&ash_allocator__libc, &low.fusion.groups);
}

static void interpret(const ash_nest *nest, const int64_t *vars, int64_t *out) {
    enum { BYTES = sizeof(int64_t) * (VARS + EXPRESSIONS) };
    static bool undefined[BYTES];
    static int32_t writer[BYTES], reader[BYTES];
    const ash_access access = {.buffer = 0, .write = true, .end = BYTES};
    interp_memory memory = {(unsigned char *)out, undefined, writer, reader, BYTES, 0};
    const interp_buffer buffer = {.memory = &memory, .accesses = &access, .n_accesses = 1};
    char error[256];
    interp_run(nest, &buffer, vars, 0, 1, 0, error);
    assert_string_equal(error, "");
    for (size_t i = 0; i < BYTES; i++) assert_false(undefined[i]);
}

static void test_expressions(void **state) {
    (void)state;
    ash_compiler *compiler;
    ash_diag diag;
    long negative = 0, compiled = 0;
    assert_ok(ash_compiler__get(context, &compiler, &diag));
    for (uint64_t round = 0; round < ROUNDS; round++) {
        static const int64_t most[] = {7, 33, 4096};
        pool p;
        ash_nest nest;
        ash_code *code = NULL;
        ash_kernel_fn fn = NULL;
        fill_pool(&p, round + 1, most[round % ASH_COUNT(most)]);
        lower_all(&p, &nest);
        if (round % COMPILED_EVERY == 0) {
            const ash_nest *one = &nest;
            assert_ok(ash_code__compile(
                compiler,
                &(ash_code_job){
                    .target = ash_compiler__target(compiler), .nests = &one, .count = 1, .fns = &fn},
                &code, &diag));
        }
        for (unsigned s = 0; s < SAMPLES; s++) {
            int64_t vars[VARS], got[2][VARS + EXPRESSIONS] = {{0}};
            for (unsigned i = 0; i < VARS; i++) {
                int64_t count = most[round % ASH_COUNT(most)] - least[i] + 1;
                vars[i] = least[i] + (s == 0   ? 0
                                      : s == 1 ? count - 1
                                               : (int64_t)(test_congruent(&p.state) % (uint64_t)count));
            }
            interpret(&nest, vars, got[0]);
            if (fn) fn((void *[]){got[1]}, vars, 0, 1, 0);
            for (unsigned i = 0; i < p.n; i++) {
                int64_t want = ash_dims_eval(p.dims, p.at[i], vars);
                assert_int_equal(got[0][i], want);
                if (fn) assert_int_equal(got[1][i], want);
                negative += want < 0;
                compiled += fn != NULL;
            }
        }
        ash_code__release(code);
        ash_nest_free(&nest);
        ash_dims_release(p.dims);
    }
    assert_true(negative > 1000 && compiled > 1000);
}

/* --- slices --------------------------------------------------------------------------------------- */

/* x[rows, S] as one row, from element `start` on with a step: the size is that of the specification,
 * ceil((n - min(start, n)) / step), whose numerators can be negative once the division is split. */
static void slices(int64_t rows, int64_t start, int64_t step, int64_t most) {
    ash_graph *g;
    ash_diag diag;
    assert_ok(ash_graph_create(context, "test", &g, &diag));
    ash_dim s = ash_graph_var(g, "S", 1, most), n = ash_graph_dim_mul(g, s, rows);
    ash_value x = ash_graph_input(g, "x", &(ash_type){.dtype = ASH_F32, .rank = 2, .dims = {rows, s}});
    ash_dim from = ash_graph_dim_min(g, start, n);
    ash_dim size =
        ash_graph_dim_div(g, ash_graph_dim_add(g, ash_graph_dim_sub(g, n, from), step - 1), step);
    ash_value flat = ash_reshape(g, x, &n, 1), y = ash_slice(g, flat, &from, &step, &size);
    ash_graph_output(g, "y", y);
    ash_graph_output(g, "z", ash_exp(g, y));
    ash_graph_output(g, "sum", ash_reduce(g, ASH_OP_REDUCE_SUM, y, (int64_t[]){0}, 1, false));
    for (int64_t v = 1; v <= most; v += 1 + (v > 12) * 4) test_differential(context, g, &v, 1e-5);
    ash_graph_destroy(g);
}

static void test_slices(void **state) {
    (void)state;
    slices(9, 57, 3, 33);
    slices(8, 57, 2, 33);
    slices(1, 20, 7, 33);
    slices(3, 5, 16, 17);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_expressions),
        cmocka_unit_test(test_slices),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
