/* SPDX-License-Identifier: MIT */
/* Weights of 2, 4 and 8 bits: that products read them packed however files spell them, and what they
 * compute, against the same graph in double precision, for every making of x86-64; and that all else is
 * left alone. */
#include "differential.h"
#include "interpreted.h"
#include "ir/build.h"
#include "opt_testing.h"

/* Those that multiply bytes, with vectors of 16 and of 8, and with tiles. */
static const char *const byte_makings[] = {
    "+avx512f,+avx512bw,+avx512dq,+avx512vl,+avx512vnni,+fma", "+avx2,+avxvnni,+fma",
    "+avx512f,+avx512bw,+avx512dq,+avx512vl,+avx512vnni,+avx512vbmi,+amx-tile,+amx-int8,+fma"};
enum { NARROW = 1, WITH_TILES = 2 /* of these */ };
static const char *const makings[] = {"+avx512f,+avx512bw,+avx512dq,+avx512vl,+fma", "+avx2,+fma", ""};

/* How a file spells a weight [k, n]. */
typedef enum spelling {
    ROWS_IN_BLOCKS, /* MatMulNBits: [n, blocks, block] packed along the rows, behind them a transpose */
    BLOCKS,         /* DequantizeLinear by blocks along k, [k, n]; numbers are bytes */
    BLOCKS_TURNED,  /* the same of [n, k], and a transpose */
    COLUMNS,        /* DequantizeLinear with a scale per column */
    ONE_SCALE,
    SIGNED_ROWS, /* BLOCKS_TURNED of packed numbers that have a sign, as int4 of files comes */
    SPELLINGS
} spelling;

typedef enum zero { NO_ZERO, ZERO_BYTES, ZERO_REAL, ZERO_MIDDLE, ZEROS } zero;

typedef struct weight {
    ash_dim k, n;
    int64_t bits, block;
    spelling spelling;
    zero zero;
    ash_dtype dtype; /* of the numbers: u8, or i8 (not packed) */
} weight;

static ash_value numbers(fixture *f, ash_dtype dtype, int64_t low, int64_t high, ash_type type) {
    int64_t count, *all;
    type.dtype = dtype;
    assert_true(ash_type_static_count(&type, &count));
    all = calloc((size_t)count + 1, sizeof *all);
    for (int64_t i = 0; i < count; i++) all[i] = low + (int64_t)below(&f->random, (unsigned)(high - low));
    ash_value v = ash_build__ints(f->g, &type, all);
    free(all);
    return v;
}

/* Between 0.5 and 1.5, so that no sum is made of nothing. */
static ash_value scales(fixture *f, ash_type type) {
    type.dtype = ASH_F32;
    ash_value noise = random_leaf(f, NULL, type);
    return ash_build__with(f->g, ASH_OP_ADD, ash_build__with(f->g, ASH_OP_MUL, noise, 0.5), 1);
}

static int64_t lowest(const weight *w) {
    return w->dtype == ASH_I8 ? -((int64_t)1 << (w->bits - 1)) : 0;
}

static ash_value zeros(fixture *f, const weight *w, ash_type type) {
    int64_t low = lowest(w), range = (int64_t)1 << w->bits;
    ash_value z = numbers(f, w->dtype, low, low + range, type);
    if (w->zero != ZERO_REAL) return ash_cast(f->g, z, ASH_F32);
    return ash_add(f->g, ash_cast(f->g, z, ASH_F32), scales(f, type));
}

static ash_value minus_zero(fixture *f, const weight *w, ash_value x, ash_value z) {
    if (w->zero == NO_ZERO) return x;
    if (w->zero != ZERO_MIDDLE) return ash_sub(f->g, x, z);
    return ash_build__with(f->g, ASH_OP_SUB, x, (double)(lowest(w) + ((int64_t)1 << (w->bits - 1))));
}

/* Numbers of few bits along the last axis of bytes. */
static ash_value unpacked(ash_graph *g, ash_value x, int64_t bits) {
    ash_type t = *ash_graph_type(g, x);
    ash_dim per = 8 / bits;
    if (per == 1) return x;
    ash_value shift = ash_build__with(g, ASH_OP_MUL, ash_iota(g, ASH_U8, &per, 1, 0), (double)bits);
    x = ash_shr(g, ash_build__insert_axis(g, x, t.rank), shift);
    x = ash_build__with(g, ASH_OP_AND, x, (double)((1 << bits) - 1));
    t.dims[t.rank - 1] *= per;
    return ash_reshape(g, x, t.dims, t.rank);
}

/* [.., blocks, ..] as [.., rows, ..] along an axis, each as often as its block is long. */
static ash_value spread(ash_graph *g, ash_value v, unsigned axis, int64_t block, ash_dim rows) {
    ash_type t = *ash_graph_type(g, v), wide = t;
    wide.rank = 3;
    wide.dims[2] = t.dims[1];
    wide.dims[axis + 1] = block;
    if (axis == 1) wide.dims[1] = t.dims[1];
    v = ash_broadcast_to(g, ash_build__insert_axis(g, v, axis + 1), wide.dims, 3);
    t.dims[axis] *= block;
    return ash_slice_axis(g, ash_reshape(g, v, t.dims, 2), axis, 0, rows);
}

static ash_value build_weight(fixture *f, const weight *w) {
    ash_graph *g = f->g;
    ash_dim blocks = ash_ceil_div(w->k, w->block);
    int64_t low = lowest(w), range = (int64_t)1 << w->bits;
    bool turned = w->spelling == BLOCKS_TURNED || w->spelling == SIGNED_ROWS;
    if (w->spelling == ROWS_IN_BLOCKS) {
        const ash_dim flat[] = {w->n, blocks * w->block};
        ash_type each = TYPE(ASH_F32, w->n, blocks, 1);
        ash_value x = numbers(f, ASH_U8, 0, 256, TYPE(ASH_U8, w->n, blocks, w->block * w->bits / 8));
        x = ash_cast(g, unpacked(g, x, w->bits), ASH_F32);
        x = minus_zero(f, w, x, w->zero == ZERO_BYTES || w->zero == ZERO_REAL ? zeros(f, w, each) : x);
        x = ash_reshape(g, ash_mul(g, x, scales(f, each)), flat, 2);
        return ash_build__swap(g, ash_slice_axis(g, x, 1, 0, w->k), 0, 1);
    }
    ash_type type = turned ? TYPE(ASH_U8, w->n, w->k) : TYPE(ASH_U8, w->k, w->n), one = {0};
    ash_type some = turned ? TYPE(ASH_U8, w->n, blocks) : TYPE(ASH_U8, blocks, w->n);
    if (w->spelling == COLUMNS) some = TYPE(ASH_U8, 1, w->n);
    if (w->spelling == ONE_SCALE) some = one;
    ash_value scale = scales(f, some);
    ash_value z = w->zero == ZERO_BYTES || w->zero == ZERO_REAL ? zeros(f, w, some) : scale;
    if (w->spelling == BLOCKS || turned) {
        scale = spread(g, scale, turned, w->block, w->k);
        z = spread(g, z, turned, w->block, w->k);
    }
    ash_value x;
    if (w->spelling == SIGNED_ROWS) {
        double half = (double)range / 2;
        x = unpacked(g, numbers(f, ASH_U8, 0, 256, TYPE(ASH_U8, w->n, w->k * w->bits / 8)), w->bits);
        x = ash_bitcast(g, ash_build__with(g, ASH_OP_XOR, x, half), ASH_I8);
        x = ash_build__with(g, ASH_OP_SUB, x, half);
    } else {
        x = numbers(f, w->dtype, low, low + range, type);
    }
    x = ash_cast(g, x, ASH_F32);
    x = ash_mul(g, minus_zero(f, w, x, z), scale);
    return turned ? ash_build__swap(g, x, 0, 1) : x;
}

static unsigned count_packed(const ash_graph *g) {
    unsigned n = 0;
    for (size_t i = 0; i < g->nodes.len; i++) n += g->nodes.at[i].op == ASH_OP_MATMUL_BITS;
    return n;
}

/* `rows` are those of the first operand, a dim, at most 40; with a bias and a minimum behind the product.
 * */
static void build(fixture *f, const weight *w, ash_dim rows) {
    ash_graph *g = f->g;
    ash_type type = TYPE(ASH_F32, rows, w->k);
    ash_value y = ash_matmul(g, ash_graph_input(g, "x", &type), build_weight(f, w));
    y = ash_add(g, y, CONSTANT(f, ASH_F32, w->n));
    ash_graph_output(g, "y", ash_build__with(g, ASH_OP_MAX, y, -1));
}

/* Optimised for a target, interpreted or compiled, against the graph as it was. */
static void check(fixture *f, const ash_target *target, unsigned packed, const int64_t *vars,
                  bool compiled) {
    ash_diag diag;
    ash_lower_options options = {.fuse = true};
    assert_ok(optimise(f, NULL, target, (ash_opt_options){0}, &diag));
    assert_int_equal(count_packed(f->out), packed);
    ash_wide *inputs = test_inputs(f->g, vars), *expected = test_expected(f->g, inputs, vars);
    if (compiled) {
        test_differential_for(f->context, target, f->out, &options, vars, inputs, 2e-6);
    } else {
        test_interpreted(f->out, target, &options, vars, inputs, expected, 2e-6);
    }
    ash_wide *again = test_expected(f->out, inputs, vars); /* the evaluator, from words */
    double most = 0, apart = 0;
    for (int64_t i = 0; i < expected[0].count; i++) {
        most = fmax(most, fabs(expected[0].f[i]));
        apart = fmax(apart, fabs(again[0].f[i] - expected[0].f[i]));
    }
    assert_true(apart <= 1e-5 * most);
    test_free_expected(f->out, again);
    test_free_expected(f->g, expected);
    test_free_inputs(f->g, inputs);
}

static const int64_t every_bits[] = {2, 4, 8};

enum { VARIANTS = SPELLINGS * ZEROS * ASH_COUNT(every_bits) };

/* Every spelling with every zero point and width, of about 37 to 85 terms and `more`. */
static weight variant(unsigned s, ash_dim more, ash_dim n) {
    weight w = {.k = 37 + (ash_dim)(s % 4) * 16 + more,
                .n = n,
                .bits = every_bits[s / ZEROS % ASH_COUNT(every_bits)],
                .block = 16 << s % 2,
                .spelling = (spelling)(s / ZEROS / ASH_COUNT(every_bits)),
                .zero = (zero)(s % ZEROS),
                .dtype = s % 3 ? ASH_U8 : ASH_I8};
    if (w.spelling == ROWS_IN_BLOCKS) w.dtype = ASH_U8;
    if (w.spelling == SIGNED_ROWS) w.dtype = ASH_I8, w.k += 3; /* whole bytes */
    return w;
}

/* Sizes that leave something over everywhere: of words, of blocks, of vectors, of tiles. */
static void spellings(void **state) {
    fixture *f = *state;
    for (size_t t = 0; t < ASH_COUNT(makings); t++) {
        ash_target target = made(makings[t]);
        for (unsigned s = 0; s < VARIANTS; s++) {
            const weight w = variant(s, 0, 21);
            restart(f);
            build(f, &w, 1 + (s + t) % 7);
            check(f, &target, 1, NULL, false);
        }
    }
}

/* On GPUs: few rows, and a number of them; else weights are numbers. */
static void gpus(void **state) {
    fixture *f = *state;
    ash_target target;
    assert_true(ash_target__gpu(80, &target));
    for (unsigned s = 0; s < VARIANTS; s++) {
        const weight w = variant(s, s % 5 * 300, 21 + s % 3 * 11);
        restart(f);
        build(f, &w, 1 + s % 16);
        check(f, &target, 1, NULL, false);
    }
    weight w = {70, 37, 4, 32, ROWS_IN_BLOCKS, ZERO_BYTES, ASH_U8};
    restart(f);
    build(f, &w, 17);
    check(f, &target, 0, NULL, false);
    const int64_t m = 3;
    restart(f);
    build(f, &w, ash_graph_var(f->g, "rows", 0, 16));
    check(f, &target, 0, &m, false);
}

/* Few and many rows of one kernel, which only an execution knows, and each number of its own. */
static void rows(void **state) {
    fixture *f = *state;
    for (size_t t = 0; t < ASH_COUNT(makings); t++) {
        ash_target target = made(makings[t]);
        for (unsigned z = 0; z < 2; z++) {
            weight w = {70, 37, 4, 32, ROWS_IN_BLOCKS, z ? ZERO_BYTES : ZERO_MIDDLE, ASH_U8};
            for (int64_t m = 1; m <= 40; m += m < 6 ? 1 : 17) {
                restart(f);
                build(f, &w, m);
                check(f, &target, 1, NULL, false);
                restart(f);
                build(f, &w, ash_graph_var(f->g, "rows", 0, 100));
                check(f, &target, 1, &m, false);
            }
        }
    }
}

/* A scale for more terms than one accumulator takes, sums of sums, and more rows than a chunk. */
static void long_sums(void **state) {
    fixture *f = *state;
    ash_target target = made(makings[0]);
    static const weight cases[] = {{1100, 18, 8, 0, COLUMNS, ZERO_BYTES, ASH_U8},
                                   {2080, 17, 4, 512, BLOCKS, NO_ZERO, ASH_U8},
                                   {13000, 16, 2, 16, BLOCKS_TURNED, ZERO_MIDDLE, ASH_U8}};
    for (size_t i = 0; i < ASH_COUNT(cases); i++) {
        weight w = cases[i];
        if (!w.block) w.block = 16; /* of no account */
        restart(f);
        build(f, &w, 2);
        check(f, &target, 1, NULL, false);
    }
    weight w = {24, 9, 4, 16, ROWS_IN_BLOCKS, ZERO_BYTES, ASH_U8};
    restart(f);
    build(f, &w, 300);
    target.costs.chunk_most_flops = 1, target.costs.bits_lines = 7;
    check(f, &target, 1, NULL, false);
}

/* The same compiled, for every level that this machine runs; half floats beside. */
static void compiled(void **state) {
    fixture *f = *state;
    for (size_t t = 0; t < ASH_COUNT(compiled_levels); t++) {
        ash_target target;
        if (!runs_here(f->context, compiled_levels[t], &target)) continue;
        for (unsigned s = 0; s < 2 * ASH_COUNT(every_bits); s++) {
            weight w = {208,   75, every_bits[s / 2], 32, ROWS_IN_BLOCKS, s % 2 ? ZERO_BYTES : ZERO_REAL,
                        ASH_U8};
            for (int64_t m = 1; m < 40; m += m < 6 ? 1 : 31) {
                restart(f);
                build(f, &w, m);
                check(f, &target, 1, NULL, true);
            }
        }
    }
}

/* --- digits --------------------------------------------------------------------------------------- */

/* Steps that make digits, of the graph as it was optimised. */
static unsigned count_digits(const fixture *f, const ash_target *target) {
    ash_lower_options options = {.fuse = true};
    ash_diag diag;
    ash_program *p;
    unsigned n = 0;
    assert_ok(ash_program__lower(f->out, target, &options, &p, &diag));
    for (size_t i = 0; i < p->steps.len; i++) n += !strcmp(p->steps.at[i].name, "digits");
    ash_program__free(p);
    return n;
}

/* Few rows where bytes are multiplied: every number of them, spans that leave a part over, blocks of one
 * and of several vectors. More rows, and terms that fill no vector, are left to f32. */
static void digits(void **state) {
    fixture *f = *state;
    static const ash_dim columns[] = {5, 64, 75};
    for (size_t t = 0; t < ASH_COUNT(byte_makings); t++) {
        ash_target target = made(byte_makings[t]);
        for (unsigned i = 0; i < 5 * ZEROS * ASH_COUNT(every_bits) * ASH_COUNT(columns); i++) {
            static const int64_t some[] = {1, 2, 3, 4, 5, 7, 11, 17, 33, 65};
            weight w = {.k = i % 4 == 3 ? 92 : 80 + 32 * (ash_dim)(i % 4),
                        .n = columns[i % 3],
                        .bits = every_bits[i / 3 % 3],
                        .block = 16 << i / 2 % 3,
                        .spelling = i % 2 ? ROWS_IN_BLOCKS : COLUMNS,
                        .zero = (zero)(i / 9 % ZEROS),
                        .dtype = ASH_U8};
            int64_t rows = some[i % ASH_COUNT(some)];
            bool whole = w.k % (t == NARROW ? 8 : 16) == 0 && (t != NARROW || w.bits > 2);
            bool any = target.tiles && w.bits < 8;
            restart(f);
            build(f, &w, rows);
            check(f, &target, 1, NULL, false);
            assert_int_equal(count_digits(f, &target),
                             whole && (any || rows <= target.costs.bits_digit_rows));
            if (i % 7) continue;
            restart(f);
            build(f, &w, ash_graph_var(f->g, "rows", 0, 80));
            check(f, &target, 1, &rows, false);
            assert_int_equal(count_digits(f, &target), whole);
        }
    }
}

/* Products of one operand share its digits, where their weights have parts of one length. */
static void shared_digits(void **state) {
    fixture *f = *state;
    ash_target target = made(byte_makings[0]);
    static const int64_t blocks[] = {32, 32, 64, 64};
    ash_value x = INPUT(f, "x", ASH_F32, 2, 128);
    for (size_t i = 0; i < ASH_COUNT(blocks); i++) {
        char name[] = {'y', (char)('0' + i), 0};
        weight w = {128, 20 + (ash_dim)i, 4, blocks[i], ROWS_IN_BLOCKS, NO_ZERO, ASH_U8};
        ash_graph_output(f->g, name, ash_matmul(f->g, x, build_weight(f, &w)));
    }
    check(f, &target, 4, NULL, false);
    assert_int_equal(count_digits(f, &target), 2);
}

enum { TERMS = 64, RESULTS = 16 };

/* Weights of so many bits. `extreme`: columns of the least number and of the largest, in turns. */
typedef struct sample {
    int64_t bits;
    bool extreme;
} sample;

/* What rows of TERMS numbers make of some weights with a scale for each of RESULTS columns, read by the
 * interpreter. `fixed`: the number of rows is one, and not a variable. */
static void compute(fixture *f, const ash_target *target, sample s, const double *terms, int64_t rows,
                    bool fixed, float *out) {
    enum { K = TERMS, N = RESULTS };
    ash_graph *g = f->g;
    ash_lower_options options = {.fuse = true};
    ash_diag diag;
    int64_t all[K * N];
    for (size_t i = 0; i < ASH_COUNT(all); i++)
        all[i] = (int64_t)(s.extreme ? -(i % 2) : i * 2654435761 >> 7) & ((1 << s.bits) - 1);
    ash_type q = TYPE(ASH_U8, K, N),
             type = TYPE(ASH_F32, fixed ? rows : ash_graph_var(g, "rows", 1, 50), K);
    ash_value x = ash_graph_input(g, "x", &type), w = ash_cast(g, ash_build__ints(g, &q, all), ASH_F32);
    double scale[N];
    for (unsigned i = 0; i < N; i++) scale[i] = 0.7 + 0.31 * i;
    ash_type line = TYPE(ASH_F32, 1, N);
    w = ash_mul(g, w, ash_broadcast_to(g, ash_build__floats(g, &line, scale), q.dims, 2));
    ash_graph_output(g, "y", ash_matmul(g, x, w));
    ash_graph_output(g, "scale", CONSTANT(f, ASH_F32, 1));
    assert_ok(optimise(f, NULL, target, (ash_opt_options){0}, &diag));
    assert_int_equal(count_digits(f, target), 1);
    const int64_t *vars = fixed ? NULL : &rows;
    ash_wide *inputs = test_inputs(g, vars);
    memcpy(inputs[0].f, terms, (size_t)(rows * K) * sizeof *terms);
    ash_program *p;
    assert_ok(ash_program__lower(f->out, target, &options, &p, &diag));
    void **memory = calloc(p->buffers.len + 1, sizeof *memory);
    test_interpret_program(p, inputs, vars, memory);
    memcpy(out, memory[p->outputs.at[0]], (size_t)(rows * N) * sizeof *out);
    for (size_t i = 0; i < p->buffers.len; i++) free(memory[i]);
    free(memory);
    ash_program__free(p);
    test_free_inputs(g, inputs);
}

/* Zeros are exact, also beside large numbers of another part; what is no finite number makes results that
 * are none, in its own row alone; and nothing is too small or too large. */
static void special_terms(void **state) {
    enum { K = TERMS, N = RESULTS, ROWS = 5 };
    for (unsigned t = 0; t <= WITH_TILES; t += WITH_TILES) {
        ash_target target = made(byte_makings[t]);
        double terms[ROWS * K] = {0};
        float out[ROWS * N];
        terms[K + 40] = INFINITY;
        for (unsigned i = 0; i < K; i++)
            terms[2 * K + i] = i % 2 ? 1e-40 : 0, terms[3 * K + i] = i ? 1 : 1e30;
        restart(*state);
        compute(*state, &target, (sample){4, false}, terms, ROWS, true, out);
        for (unsigned i = 0; i < N; i++) {
            assert_true(out[i] == 0);
            assert_true(!isfinite(out[N + i]));
            assert_true(fabsf(out[2 * N + i]) < 1e-35f);
            assert_true(isfinite(out[3 * N + i]) && (out[3 * N + i] == 0 || fabsf(out[3 * N + i]) > 1e25f));
            assert_true(out[4 * N + i] == 0);
        }
    }
}

/* The largest sums that there are: all terms as large as their unit has them, by numbers at either end. */
static void largest_sums(void **state) {
    enum { K = TERMS, N = RESULTS, ROWS = 6 };
    const double largest = 0x1.fffffep-1;
    double terms[ROWS * K];
    float out[ROWS * N];
    for (unsigned i = 0; i < ROWS * K; i++) terms[i] = i / K % 2 ? largest : -largest;
    for (size_t t = 0; t < ASH_COUNT(byte_makings); t++) {
        ash_target target = made(byte_makings[t]);
        for (int64_t bits = 2; bits <= 8; bits *= 2)
            for (int64_t rows = 1; rows <= ROWS; rows += ROWS - 1) {
                if (t == NARROW && bits == 2) continue;
                restart(*state);
                compute(*state, &target, (sample){bits, true}, terms, rows, true, out);
                for (int64_t i = 0; i < rows * N; i++) {
                    double true_sum = (i % 2 ? (1 << bits) - 1 : 0) * terms[i / N * K] * K *
                                      (0.7 + 0.31 * (double)(i % N));
                    assert_true(fabs((double)out[i] - true_sum) <= 2e-6 * fabs(true_sum));
                }
            }
    }
}

/* A row has the same bits alone and among any number of others, which is known or not; in tiles and
 * without. */
static void rows_have_their_bits(void **state) {
    enum { K = TERMS, N = RESULTS, ROWS = 37 };
    fixture *f = *state;
    static const int64_t some[] = {2, 4, 5, 8, 9, 33, ROWS};
    double terms[ROWS * K];
    float alone[ROWS * N], out[ROWS * N];
    for (unsigned i = 0; i < ROWS * K; i++) /* of all sizes */
        terms[i] = ldexp((double)below(&f->random, 2000001) - 1e6, -(int)below(&f->random, 30));
    for (size_t t = 0; t < ASH_COUNT(byte_makings); t++) {
        ash_target target = made(byte_makings[t]);
        for (int64_t bits = 2; bits <= 8; bits *= 2) {
            if (t == NARROW && bits == 2) continue;
            for (unsigned r = 0; r < ROWS; r++) {
                restart(f);
                compute(f, &target, (sample){bits, false}, terms + r * K, 1, true, alone + r * N);
            }
            for (size_t i = 0; i < 2 * ASH_COUNT(some); i++) {
                size_t rows = (size_t)some[i / 2];
                restart(f);
                compute(f, &target, (sample){bits, false}, terms, (int64_t)rows, i % 2, out);
                assert_memory_equal(out, alone, rows * N * sizeof *out);
            }
        }
    }
}

/* Scales are half floats where these have all of them. */
static void half_scales(void **state) {
    fixture *f = *state;
    ash_target target = made(byte_makings[0]);
    static const struct {
        double scale;
        bool half;
    } cases[] = {{0, true},
                 {1, true},
                 {-0.375, true},
                 {1 + 0x1p-10, true},
                 {1 + 0x1p-11, false},
                 {65504, true},
                 {65520, false},
                 {0x1p-14, true},
                 {0x1.8p-24, false},
                 {0x1p-24, true},
                 {0x1p-25, false},
                 {0x1.004p-14, true},
                 {0x1.ffcp-15, false},
                 {0x1.ff8p-15, true},
                 {0x1p100, false}};
    for (size_t i = 0; i < ASH_COUNT(cases); i++) {
        restart(f);
        ash_graph *g = f->g;
        double all[16];
        for (unsigned k = 0; k < 16; k++) all[k] = k == 7 ? cases[i].scale : 0.5;
        ash_type one = TYPE(ASH_F32, 1, 16), q = TYPE(ASH_U8, 32, 16);
        ash_value w = ash_cast(g, numbers(f, ASH_U8, 0, 16, q), ASH_F32);
        w = ash_mul(g, w, ash_broadcast_to(g, ash_build__floats(g, &one, all), q.dims, 2));
        ash_graph_output(g, "y", ash_matmul(g, INPUT(f, "x", ASH_F32, 1, 32), w));
        check(f, &target, 1, NULL, false);
        for (size_t n = 0; n < f->out->nodes.len; n++) {
            const ash_node *node = &f->out->nodes.at[n];
            if (node->op != ASH_OP_MATMUL_BITS) continue;
            ash_dtype dtype = ash_graph_type(f->out, node->ins[2])->dtype;
            assert_int_equal(dtype, cases[i].half ? ASH_F16 : ASH_F32);
        }
    }
}

/* A block is as wide as the vectors of few rows, unless too much of the last one would be padding. */
static void blocks_of_columns(void **state) {
    fixture *f = *state;
    ash_target target = made(byte_makings[0]);
    static const struct {
        ash_dim n;
        int64_t block;
    } cases[] = {{16, 16}, {21, 32}, {33, 16}, {64, 64}, {80, 16}, {500, 64}, {520, 64}, {2048, 64}};
    for (size_t i = 0; i < ASH_COUNT(cases); i++) {
        weight w = {32, cases[i].n, 4, 16, COLUMNS, NO_ZERO, ASH_U8};
        restart(f);
        build(f, &w, 1);
        check(f, &target, 1, NULL, false);
        for (size_t n = 0; n < f->out->nodes.len; n++)
            if (f->out->nodes.at[n].op == ASH_OP_MATMUL_BITS)
                assert_int_equal(ash_node_int(&f->out->nodes.at[n], ASH_ATTR_B_BLOCK), cases[i].block);
    }
}

/* What kernels ask for ahead, with words asked for so many times from so many bytes on. */
static unsigned count_asked(const fixture *f, ash_target target, int64_t asks, int64_t ahead) {
    target.costs.bits_asks = asks;
    target.costs.bits_ahead = ahead;
    ash_lower_options options = {.fuse = true};
    ash_diag diag;
    ash_program *p;
    unsigned n = 0;
    assert_ok(ash_program__lower(f->out, &target, &options, &p, &diag));
    for (size_t i = 0; i < p->nests.len; i++)
        for (size_t k = 0; k < p->nests.at[i].code.len; k++)
            n += p->nests.at[i].code.at[k].op == ASH_NEST_PREFETCH;
    ash_program__free(p);
    return n;
}

/* Words and scales are asked for as often as the costs say, but not nearer than a line. */
static void asked_for_again(void **state) {
    fixture *f = *state;
    const char *const some[] = {byte_makings[0], makings[0], makings[1]};
    for (unsigned i = 0; i < ASH_COUNT(some) * ASH_COUNT(every_bits); i++) {
        ash_target target = made(some[i % 3]);
        weight w = {64, 64, every_bits[i / 3], 32, ROWS_IN_BLOCKS, NO_ZERO, ASH_U8};
        restart(f);
        build(f, &w, 1);
        check(f, &target, 1, NULL, false);
        unsigned once = count_asked(f, target, 1, 1 << 16);
        assert_true(once >= 2);
        assert_int_equal(count_asked(f, target, 3, 1 << 16), 3 * once);
        assert_int_equal(count_asked(f, target, 3, target.costs.line_bytes), once);
        assert_int_equal(count_asked(f, target, 0, 1 << 16), 0);
    }
}

/* Scales that differ within a block, weights that are no constants, targets without vectors. */
static void others_are_left_alone(void **state) {
    fixture *f = *state;
    ash_target target = made(makings[0]), narrow = target_of(1);
    weight w = {64, 16, 4, 16, BLOCKS, NO_ZERO, ASH_U8};
    restart(f);
    build(f, &w, 2);
    ash_diag diag;
    assert_ok(optimise(f, NULL, &narrow, (ash_opt_options){0}, &diag));
    assert_int_equal(count_packed(f->out), 0);
    assert_ok(optimise(f, NULL, NULL, (ash_opt_options){0}, &diag));
    assert_int_equal(count_packed(f->out), 0);
    assert_ok(optimise(f, NULL, &target, (ash_opt_options){.level = ASH_OPT_EXACT}, &diag));
    assert_int_equal(count_packed(f->out), 0);
    for (unsigned i = 0; i < 4; i++) {
        restart(f);
        ash_graph *g = f->g;
        ash_value x = INPUT(f, "x", ASH_F32, 2, 64), q = numbers(f, ASH_U8, 0, 16, TYPE(ASH_U8, 64, 16));
        if (i == 0) q = INPUT(f, "q", ASH_U8, 64, 16);
        ash_value b = ash_cast(g, q, ASH_F32);
        if (i == 1) b = ash_mul(g, b, CONSTANT(f, ASH_F32, 64, 16)); /* a scale each */
        if (i == 2) b = ash_mul(g, b, ash_reshape(g, CONSTANT(f, ASH_F32, 64), (ash_dim[]){64, 1}, 2));
        if (i == 3) b = ash_add(g, b, CONSTANT(f, ASH_F32, 16));
        ash_graph_output(g, "y", ash_matmul(g, x, b));
        check(f, &target, 0, NULL, false);
    }
}

/* Rows of a table are gathered from its numbers, scales and zero points; of one that is small they are
 * not. */
static void tables(void **state) {
    fixture *f = *state;
    ash_target target = made(makings[0]);
    static const spelling turned[] = {BLOCKS_TURNED, SIGNED_ROWS, ONE_SCALE};
    for (unsigned i = 0; i < 2 * ASH_COUNT(turned) * ASH_COUNT(every_bits); i++) {
        weight w = {40, 50, every_bits[i / 2 % 3], 16, turned[i / 6], i & 1 ? ZERO_BYTES : NO_ZERO, ASH_I8};
        if (w.spelling == ONE_SCALE) w.k = 50, w.n = 40; /* [k, n] */
        restart(f);
        ash_graph *g = f->g;
        ash_value table = build_weight(f, &w), ids = INPUT(f, "ids", ASH_I32, 3, 5);
        if (w.spelling != ONE_SCALE)
            table = g->nodes.at[ash_graph__value(g, table)->node].ins[0]; /* before it is turned */
        ash_graph_output(g, "y", ash_neg(g, ash_gather(g, table, ids, 0)));
        for (unsigned small = 0; small < 2; small++) {
            ash_diag diag;
            target.costs.pack_bytes = small ? 40 * 50 * 4 : 0;
            check(f, &target, 0, NULL, false);
            assert_ok(optimise(f, "few_bits", &target, (ash_opt_options){0}, &diag));
            for (size_t n = 0; n < f->out->nodes.len; n++) {
                const ash_node *node = &f->out->nodes.at[n];
                if (node->op != ASH_OP_GATHER) continue;
                ash_dtype dtype = ash_graph_type(f->out, node->ins[0])->dtype;
                const ash_value_info *from = ash_graph__value(f->out, node->ins[0]);
                assert_true(small ? dtype == ASH_F32 && from->kind == ASH_VALUE_NODE
                                  : from->kind == ASH_VALUE_CONSTANT);
            }
        }
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(gpus, begin, teardown),
        cmocka_unit_test_setup_teardown(spellings, begin, teardown),
        cmocka_unit_test_setup_teardown(rows, begin, teardown),
        cmocka_unit_test_setup_teardown(long_sums, begin, teardown),
        cmocka_unit_test_setup_teardown(compiled, begin, teardown),
        cmocka_unit_test_setup_teardown(digits, begin, teardown),
        cmocka_unit_test_setup_teardown(shared_digits, begin, teardown),
        cmocka_unit_test_setup_teardown(special_terms, begin, teardown),
        cmocka_unit_test_setup_teardown(largest_sums, begin, teardown),
        cmocka_unit_test_setup_teardown(rows_have_their_bits, begin, teardown),
        cmocka_unit_test_setup_teardown(half_scales, begin, teardown),
        cmocka_unit_test_setup_teardown(blocks_of_columns, begin, teardown),
        cmocka_unit_test_setup_teardown(asked_for_again, begin, teardown),
        cmocka_unit_test_setup_teardown(tables, begin, teardown),
        cmocka_unit_test_setup_teardown(others_are_left_alone, begin, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
