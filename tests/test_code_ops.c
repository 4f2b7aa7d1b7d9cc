/* SPDX-License-Identifier: MIT */
/* Every elementwise operator on every dtype and number of lanes, at every level, against plain C. The
 * reference computes in double (or 64-bit integers) and rounds once, by arithmetic of its own. */
#include <math.h>

#include "test_code_nest.h"

enum {
    SPECIALS = 40,
    RANDOM = 184,
    COUNT = 1824 /* a multiple of all lanes: specials crossed, then random pairs */
};

/* --- numbers ----------------------------------------------------------------------------------------- */

/* A number of any dtype: `f` for floating point, `i` for integers (u64: its bits) and bool. */
typedef struct num {
    double f;
    int64_t i;
} num;

/* x with `bits` of significand, exponents from `low`, at most `max`: to nearest, ties to even. */
static double round_to(double x, int bits, int low, double max) {
    int exponent;
    if (x == 0 || isnan(x) || isinf(x)) return x;
    frexp(x, &exponent);
    int unit = exponent - bits < low ? low : exponent - bits;
    double r = ldexp(nearbyint(ldexp(x, -unit)), unit);
    return fabs(r) > max ? copysign(INFINITY, x) : r;
}

static double round_float(ash_dtype dtype, double x) {
    if (dtype == ASH_F32) return (float)x;
    if (dtype == ASH_F16) return round_to(x, 11, -24, 65504);
    if (dtype == ASH_BF16) return round_to(x, 8, -133, 0x1.fep127);
    return x;
}

static double decode_half(ash_dtype dtype, uint16_t bits) {
    int mantissa = dtype == ASH_F16 ? 10 : 7, bias = dtype == ASH_F16 ? 15 : 127,
        top = dtype == ASH_F16 ? 31 : 255;
    int exponent = (bits & 0x7fff) >> mantissa, low = bits & ((1 << mantissa) - 1);
    double size = exponent == top ? (low ? NAN : INFINITY)
                  : exponent      ? ldexp(low + (1 << mantissa), exponent - bias - mantissa)
                                  : ldexp(low, 1 - bias - mantissa);
    return copysign(size, bits & 0x8000 ? -1.0 : 1.0);
}

static int64_t wrap(ash_dtype dtype, uint64_t bits) {
    switch (dtype) {
    case ASH_I8: return (int8_t)bits;
    case ASH_I16: return (int16_t)bits;
    case ASH_I32: return (int32_t)bits;
    case ASH_U8: return (uint8_t)bits;
    case ASH_U16: return (uint16_t)bits;
    case ASH_U32: return (uint32_t)bits;
    case ASH_BOOL: return (int64_t)(bits & 1);
    default: return (int64_t)bits;
    }
}

static num get(ash_dtype dtype, const unsigned char *data, size_t at) {
    num n = {0, 0};
    uint64_t bits = 0;
    size_t bytes = ash_dtype_size(dtype);
    memcpy(&bits, data + at * bytes, bytes);
    float single;
    memcpy(&single, &bits, sizeof single);
    switch (dtype) {
    case ASH_F32: n.f = single; break;
    case ASH_F64: memcpy(&n.f, &bits, sizeof n.f); break;
    case ASH_F16:
    case ASH_BF16: n.f = decode_half(dtype, (uint16_t)bits); break;
    default: n.i = wrap(dtype, bits);
    }
    return n;
}

/* --- inputs ------------------------------------------------------------------------------------------ */

static uint64_t special_bits(ash_dtype dtype, size_t k) {
    static const double floats[SPECIALS] = {
        0,    -0.0,  1,    -1,      2,       -2,    3,          -3,       0.5,       -0.5,
        1.5,  -1.5,  2.5,  -2.5,    3.5,     0.1,   -0.1,       7.75,     -7.75,     100,
        -100, 1e4,   -1e4, 65504,   -65520,  1e9,   -1e9,       4e9,      1e19,      -1e19,
        1e30, 2e-40, 5e-8, -1.2e-7, 0x1p-14, 127.5, 0x1p23 + 1, INFINITY, -INFINITY, NAN};
    static const int64_t ints[SPECIALS] = {
        0,          1,         -1,        2,          -2,        3,         -3,        4,
        5,          7,         8,         -8,         10,        -10,       15,        16,
        17,         31,        32,        33,         63,        64,        65,        100,
        -100,       127,       -128,      255,        256,       -129,      INT16_MAX, INT16_MIN,
        UINT16_MAX, INT32_MAX, INT32_MIN, UINT32_MAX, INT64_MAX, INT64_MIN, -12345,    98765};
    uint64_t bits = 0;
    float single = (float)floats[k];
    uint32_t word;
    memcpy(&word, &single, sizeof word);
    switch (dtype) {
    case ASH_F32: return word;
    case ASH_F64: memcpy(&bits, &floats[k], sizeof bits); return bits;
    case ASH_BF16: return word >> 16;
    case ASH_F16: /* near enough: the first half float that is not below */
        if (isnan(floats[k])) return 0x7e01;
        while (decode_half(ASH_F16, (uint16_t)bits) < fabs(single)) bits++;
        return bits | (signbit(single) ? 0x8000 : 0);
    case ASH_BOOL: return k & 1;
    default: return (uint64_t)ints[k];
    }
}

/* Pairs (a, b): all of the specials, then random bits, half of them with a small b. */
static void fill(ash_dtype dtype, unsigned char *a, unsigned char *b) {
    uint64_t seed = (uint64_t)dtype + 1;
    size_t bytes = ash_dtype_size(dtype);
    for (size_t k = 0; k < COUNT; k++) {
        bool crossed = k < (size_t)SPECIALS * SPECIALS;
        uint64_t x = crossed ? special_bits(dtype, k % SPECIALS) : test_random(&seed);
        uint64_t y = crossed ? special_bits(dtype, k / SPECIALS) : test_random(&seed);
        if (!crossed && k % 2) y = special_bits(dtype, y % SPECIALS);
        if (dtype == ASH_BOOL) x &= 1, y &= 1;
        memcpy(a + k * bytes, &x, bytes);
        memcpy(b + k * bytes, &y, bytes);
    }
}

/* --- the reference ----------------------------------------------------------------------------------- */

static double sigmoid(double x) {
    return x < 0 ? exp(x) / (1 + exp(x)) : 1 / (1 + exp(-x));
}

static double reference_float(ash_op op, double a, double b) {
    double r;
    switch (op) {
    case ASH_OP_NEG: return -a;
    case ASH_OP_ABS: return fabs(a);
    case ASH_OP_SIGN: return a > 0 ? 1 : a < 0 ? -1 : a;
    case ASH_OP_FLOOR: return floor(a);
    case ASH_OP_CEIL: return ceil(a);
    case ASH_OP_TRUNC: return trunc(a);
    case ASH_OP_ROUND: return nearbyint(a);
    case ASH_OP_SQRT: return sqrt(a);
    case ASH_OP_ADD: return a + b;
    case ASH_OP_SUB: return a - b;
    case ASH_OP_MUL: return a * b;
    case ASH_OP_DIV: return a / b;
    case ASH_OP_REM: return fmod(a, b);
    case ASH_OP_MOD: r = fmod(a, b); return r != 0 && (r < 0) != (b < 0) ? r + b : r;
    case ASH_OP_MIN: return isnan(a) || isnan(b) ? NAN : a < b ? a : b;
    case ASH_OP_MAX: return isnan(a) || isnan(b) ? NAN : a > b ? a : b;
    case ASH_OP_EXP: return exp(a);
    case ASH_OP_LOG: return log(a);
    case ASH_OP_SIN: return sin(a);
    case ASH_OP_COS: return cos(a);
    case ASH_OP_TAN: return tan(a);
    case ASH_OP_ASIN: return asin(a);
    case ASH_OP_ACOS: return acos(a);
    case ASH_OP_ATAN: return atan(a);
    case ASH_OP_SINH: return sinh(a);
    case ASH_OP_COSH: return cosh(a);
    case ASH_OP_TANH: return tanh(a);
    case ASH_OP_ASINH: return asinh(a);
    case ASH_OP_ACOSH: return acosh(a);
    case ASH_OP_ATANH: return atanh(a);
    case ASH_OP_ERF: return erf(a);
    case ASH_OP_SIGMOID: return sigmoid(a);
    case ASH_OP_POW: return pow(a, b);
    default: fail_msg("no reference for %s", ash_op_name(op)); return 0;
    }
}

static bool is_signed(ash_dtype dtype) {
    return ash_dtype_kind(dtype) == ASH_KIND_SIGNED;
}

static bool below(ash_dtype dtype, int64_t a, int64_t b) {
    return is_signed(dtype) ? a < b : (uint64_t)a < (uint64_t)b;
}

static int64_t divide(ash_dtype dtype, int64_t a, int64_t b) {
    if (b == 0) return 0;
    if (!is_signed(dtype)) return (int64_t)((uint64_t)a / (uint64_t)b);
    return b == -1 ? (int64_t)(0 - (uint64_t)a) : a / b;
}

static int64_t power(ash_dtype dtype, int64_t a, int64_t n) {
    if (is_signed(dtype) && n < 0) return a == 1 ? 1 : a == -1 ? (n & 1 ? -1 : 1) : 0;
    uint64_t out = 1, base = (uint64_t)a;
    for (uint64_t left = (uint64_t)n; left; left >>= 1, base *= base)
        if (left & 1) out *= base;
    return (int64_t)out;
}

static int64_t reference_int(ash_op op, ash_dtype dtype, int64_t a, int64_t b) {
    uint64_t x = (uint64_t)a, y = (uint64_t)b, width = 8 * ash_dtype_size(dtype);
    int64_t r = b ? (int64_t)(x - (uint64_t)divide(dtype, a, b) * y) : 0;
    switch (op) {
    case ASH_OP_NEG: return (int64_t)(0 - x);
    case ASH_OP_ABS: return is_signed(dtype) && a < 0 ? (int64_t)(0 - x) : a;
    case ASH_OP_SIGN: return a == 0 ? 0 : is_signed(dtype) && a < 0 ? -1 : 1;
    case ASH_OP_NOT: return (int64_t)~x;
    case ASH_OP_ADD: return (int64_t)(x + y);
    case ASH_OP_SUB: return (int64_t)(x - y);
    case ASH_OP_MUL: return (int64_t)(x * y);
    case ASH_OP_DIV: return divide(dtype, a, b);
    case ASH_OP_REM: return wrap(dtype, (uint64_t)r);
    case ASH_OP_MOD:
        r = wrap(dtype, (uint64_t)r);
        return is_signed(dtype) && r && (r < 0) != (b < 0) ? r + b : r;
    case ASH_OP_POW: return power(dtype, a, b);
    case ASH_OP_MIN: return below(dtype, a, b) ? a : b;
    case ASH_OP_MAX: return below(dtype, a, b) ? b : a;
    case ASH_OP_AND: return a & b;
    case ASH_OP_OR: return a | b;
    case ASH_OP_XOR: return a ^ b;
    case ASH_OP_SHL: return y < width ? (int64_t)(x << y) : 0;
    case ASH_OP_SHR: return y < width ? (int64_t)(x >> y) : 0;
    default: fail_msg("no reference for %s", ash_op_name(op)); return 0;
    }
}

static bool reference_compare(ash_op op, ash_dtype dtype, num a, num b) {
    if (ash_dtype_is_float(dtype))
        return op == ASH_OP_EQ ? a.f == b.f : op == ASH_OP_LT ? a.f < b.f : a.f <= b.f;
    if (op == ASH_OP_EQ) return a.i == b.i;
    return op == ASH_OP_LT ? below(dtype, a.i, b.i) : !below(dtype, b.i, a.i);
}

static num reference_cast(ash_dtype from, ash_dtype to, num a) {
    num r = {0, 0};
    bool from_float = ash_dtype_is_float(from);
    if (to == ASH_BOOL) {
        r.i = from_float ? a.f != 0 : a.i != 0;
    } else if (ash_dtype_is_float(to)) {
        if (to == ASH_F32 && !from_float)
            r.f = from == ASH_U64 ? (float)(uint64_t)a.i : (float)a.i;
        else
            r.f = round_float(to, from_float ? a.f : from == ASH_U64 ? (double)(uint64_t)a.i : (double)a.i);
    } else if (!from_float) {
        r.i = wrap(to, (uint64_t)a.i);
    } else if (!isnan(a.f)) {
        int width = 8 * (int)ash_dtype_size(to);
        double t = trunc(a.f), top = ldexp(1, is_signed(to) ? width - 1 : width);
        double bottom = is_signed(to) ? -top : 0;
        uint64_t most = is_signed(to) ? (UINT64_C(1) << (width - 1)) - 1 : UINT64_MAX >> (64 - width);
        if (t >= top)
            r.i = (int64_t)most;
        else if (t < bottom)
            r.i = is_signed(to) ? wrap(to, UINT64_C(1) << (width - 1)) : 0;
        else
            r.i = t < 0 ? (int64_t)t : (int64_t)(uint64_t)t;
    }
    return r;
}

/* --- comparing --------------------------------------------------------------------------------------- */

static bool is_math(ash_op op) {
    return (ash_op_infos[op].class == ASH_CLASS_UNARY && op >= ASH_OP_EXP) || op == ASH_OP_POW;
}

/* Functions may differ by 2 units in the last place, all else is exact; zeros compare without sign. */
static bool same_float(ash_dtype dtype, bool loose, double got, double exact) {
    double want = round_float(dtype, exact);
    if (isnan(want) || isnan(got)) return isnan(want) && isnan(got);
    if (got == want) return true;
    if (!loose) return false;
    int bits = dtype == ASH_F64 ? 53 : dtype == ASH_F32 ? 24 : dtype == ASH_F16 ? 11 : 8, exponent;
    int low = dtype == ASH_F64 ? -1074 : dtype == ASH_F32 ? -149 : dtype == ASH_F16 ? -24 : -133;
    frexp(exact, &exponent);
    double unit = ldexp(1, exponent - bits < low ? low : exponent - bits);
    if (isinf(got) || isinf(want))
        return fabs(isinf(got) ? want : got) >= round_float(dtype, 0x1.fffp1023) - 3 * unit;
    return fabs(got - exact) <= 2 * unit;
}

/* --- one nest for all operators of a dtype ----------------------------------------------------------- */

enum { OUTPUTS = 64 };

struct plan {
    ash_dtype dtype;
    unsigned lanes;
    size_t count;
    ash_op ops[OUTPUTS];   /* the operator of each output */
    ash_dtype to[OUTPUTS]; /* its dtype */
};

static bool applies(ash_op op, ash_dtype dtype) {
    ash_kind kind = ash_dtype_kind(dtype);
    bool number = kind != ASH_KIND_BOOL;
    switch (op) {
    case ASH_OP_NEG:
    case ASH_OP_ABS:
    case ASH_OP_SIGN:
    case ASH_OP_ADD:
    case ASH_OP_SUB:
    case ASH_OP_MUL:
    case ASH_OP_DIV:
    case ASH_OP_MOD:
    case ASH_OP_REM:
    case ASH_OP_POW: return number;
    case ASH_OP_NOT:
    case ASH_OP_AND:
    case ASH_OP_OR:
    case ASH_OP_XOR: return kind != ASH_KIND_FLOAT;
    case ASH_OP_SHL:
    case ASH_OP_SHR: return kind == ASH_KIND_UNSIGNED;
    case ASH_OP_MIN:
    case ASH_OP_MAX:
    case ASH_OP_EQ:
    case ASH_OP_LT:
    case ASH_OP_LE:
    case ASH_OP_SELECT: return true;
    default: return ash_op_infos[op].class == ASH_CLASS_UNARY && kind == ASH_KIND_FLOAT;
    }
}

static ash_ref apply(ash_nest *n, ash_op op, ash_dtype to, ash_ref a, ash_ref b) {
    if (op == ASH_OP_CAST) return ash_nest_cast(n, to, a);
    if (op == ASH_OP_SELECT) return ash_nest_select(n, ash_nest_binary(n, ASH_OP_LT, a, b), b, a);
    return ash_op_infos[op].class == ASH_CLASS_UNARY ? ash_nest_unary(n, op, a)
                                                     : ash_nest_binary(n, op, a, b);
}

static void build(struct plan *p, ash_nest *n) {
    *n = test_nest();
    p->count = 0;
    for (int op = 0; op < ASH_OP_COUNT; op++)
        if (ash_op_is_elementwise((ash_op)op) && op != ASH_OP_CAST && applies((ash_op)op, p->dtype)) {
            p->to[p->count] = ash_op_infos[op].class == ASH_CLASS_COMPARE ? ASH_BOOL : p->dtype;
            p->ops[p->count++] = (ash_op)op;
        }
    for (int to = 0; to < ASH_DTYPE_COUNT; to++)
        if (to != (int)p->dtype) {
            p->to[p->count] = (ash_dtype)to;
            p->ops[p->count++] = ASH_OP_CAST;
        }
    assert_true(p->count <= OUTPUTS);
    uint16_t a = test_buffer(n, p->dtype, false), b = test_buffer(n, p->dtype, false);
    for (size_t k = 0; k < p->count; k++) test_buffer(n, p->to[k], true);
    ash_ref i = ash_nest_loop(n, ash_nest_index(n, 0), ash_nest_index(n, COUNT), p->lanes, 0);
    ash_ref x = ash_nest_load(n, a, i, p->lanes, ASH_NO_REF),
            y = ash_nest_load(n, b, i, p->lanes, ASH_NO_REF);
    for (size_t k = 0; k < p->count; k++)
        ash_nest_store(n, (uint16_t)(2 + k), i, apply(n, p->ops[k], p->to[k], x, y), ASH_NO_REF);
    ash_nest_end(n);
}

static num expected(ash_op op, ash_dtype dtype, ash_dtype to, num a, num b) {
    num want = {0, 0};
    if (op == ASH_OP_CAST) return reference_cast(dtype, to, a);
    if (op == ASH_OP_SELECT) return reference_compare(ASH_OP_LT, dtype, a, b) ? b : a;
    if (ash_op_infos[op].class == ASH_CLASS_COMPARE)
        want.i = reference_compare(op, dtype, a, b);
    else if (ash_dtype_is_float(dtype))
        want.f = reference_float(op, a.f, b.f);
    else
        want.i = wrap(dtype, (uint64_t)reference_int(op, dtype, a.i, b.i));
    return want;
}

static void check(const char *level, const struct plan *p, ash_kernel_fn fn) {
    static _Alignas(64) unsigned char a[COUNT * 8], b[COUNT * 8], out[OUTPUTS][COUNT * 8];
    void *buffers[OUTPUTS + 2] = {a, b};
    for (size_t k = 0; k < p->count; k++) buffers[2 + k] = out[k];
    fill(p->dtype, a, b);
    fn(buffers, NULL, 0, 1, 0);
    for (size_t k = 0; k < p->count; k++)
        for (size_t i = 0; i < COUNT; i++) {
            num x = get(p->dtype, a, i), y = get(p->dtype, b, i), got = get(p->to[k], out[k], i);
            num want = expected(p->ops[k], p->dtype, p->to[k], x, y);
            bool same = ash_dtype_is_float(p->to[k])
                            ? same_float(p->to[k], is_math(p->ops[k]), got.f, want.f)
                            : got.i == want.i;
            if (!same)
                fail_msg("%s: %s %s of %a/%lld and %a/%lld to %s in %u lanes: %a/%lld, not %a/%lld", level,
                         ash_op_name(p->ops[k]), ash_dtype_name(p->dtype), x.f, (long long)x.i, y.f,
                         (long long)y.i, ash_dtype_name(p->to[k]), p->lanes, got.f, (long long)got.i,
                         want.f, (long long)want.i);
        }
}

/* All numbers of lanes on the host's own target; on the others one odd number, their own, and scalars. */
static bool wants(test_code *t, unsigned lanes) {
    if (strcmp(t->level, "host") == 0) return true;
    bool large = t->target.vector_bytes == 64; /* the host's, most likely */
    return lanes == 3 || lanes == ash_target_lanes(&t->target, 4) || (lanes == 1 && !large);
}

static void check_level(test_code *t, const char *level) {
    static const unsigned some[] = {1, 3, 4, 8, 16};
    enum { MOST = ASH_DTYPE_COUNT * 5 };
    static struct plan plans[MOST];
    static ash_nest nests[MOST];
    const ash_nest *pointers[MOST];
    ash_kernel_fn fns[MOST];
    size_t count = 0;
    ash_code *code;
    ash_diag diag;
    for (int dtype = 0; dtype < ASH_DTYPE_COUNT; dtype++)
        for (size_t k = 0; k < ASH_COUNT(some); k++) {
            if (!wants(t, some[k])) continue;
            plans[count] = (struct plan){.dtype = (ash_dtype)dtype, .lanes = some[k]};
            build(&plans[count], &nests[count]);
            pointers[count] = &nests[count];
            count++;
        }
    assert_ok(ash_code__compile(
        t->compiler, &(ash_code_job){.target = &t->target, .nests = pointers, .count = count, .fns = fns},
        &code, &diag));
    for (size_t k = 0; k < count; k++) {
        check(level, &plans[k], fns[k]);
        ash_nest_free(&nests[k]);
    }
    ash_code__release(code);
}

static void test_elementwise(void **state) {
    (void)state;
    test_code t;
    test_code_open(&t, NULL);
    for (size_t i = 0; i < ASH_COUNT(test_levels); i++)
        if (test_code_level(&t, test_levels[i])) check_level(&t, test_levels[i]);
    test_code_close(&t);
}

/* Of two zeros the first operand is the greatest and the least, also where it is a constant. */
static void test_zeros(void **state) {
    (void)state;
    enum { LANES = 4 };
    static const double zeros[] = {0.0, -0.0};
    static const ash_op ops[] = {ASH_OP_MAX, ASH_OP_MIN};
    test_code t;
    test_code_open(&t, NULL);
    for (size_t level = 0; level < ASH_COUNT(test_levels); level++)
        for (size_t k = 0; k < ASH_COUNT(ops) * ASH_COUNT(zeros); k++) {
            if (!test_code_level(&t, test_levels[level])) continue;
            const double first = zeros[k & 1];
            float a[LANES], b[LANES], read[LANES], constant[LANES];
            for (unsigned i = 0; i < LANES; i++) a[i] = (float)first, b[i] = (float)zeros[!(k & 1)];
            ash_nest n = test_nest();
            uint16_t of_a = test_buffer(&n, ASH_F32, false), of_b = test_buffer(&n, ASH_F32, false),
                     of_read = test_buffer(&n, ASH_F32, true), of_constant = test_buffer(&n, ASH_F32, true);
            ash_ref at = ash_nest_index(&n, 0), x = ash_nest_load(&n, of_a, at, LANES, ASH_NO_REF),
                    y = ash_nest_load(&n, of_b, at, LANES, ASH_NO_REF),
                    c = ash_nest_splat(&n, ash_nest_float(&n, ASH_F32, first), LANES);
            ash_nest_store(&n, of_read, at, ash_nest_binary(&n, ops[k >> 1], x, y), ASH_NO_REF);
            ash_nest_store(&n, of_constant, at, ash_nest_binary(&n, ops[k >> 1], c, y), ASH_NO_REF);
            ash_code *code;
            ash_kernel_fn fn = test_code_compile(&t, &n, &code);
            fn((void *[]){a, b, read, constant}, NULL, 0, 1, 0);
            assert_memory_equal(read, a, sizeof a);
            assert_memory_equal(constant, a, sizeof a);
            ash_code__release(code);
        }
    test_code_close(&t);
}

/* --- what is not elementwise ------------------------------------------------------------------------- */

/* Horizontal reductions, in the order that nest.h fixes: a float sum shows it. */
static void check_reduce(test_code *t, unsigned lanes) {
    static const ash_op ops[] = {ASH_OP_ADD, ASH_OP_MUL, ASH_OP_MIN, ASH_OP_MAX};
    ash_nest n = test_nest();
    uint16_t x = test_buffer(&n, ASH_F32, false), y = test_buffer(&n, ASH_F32, true);
    ash_ref v = ash_nest_load(&n, x, ash_nest_index(&n, 0), lanes, ASH_NO_REF);
    for (size_t k = 0; k < ASH_COUNT(ops); k++)
        ash_nest_store(&n, y, ash_nest_index(&n, (int64_t)k), ash_nest_hreduce(&n, ops[k], v), ASH_NO_REF);
    ash_code *code;
    ash_kernel_fn fn = test_code_compile(t, &n, &code);
    float in[64], out[ASH_COUNT(ops)];
    for (unsigned i = 0; i < lanes; i++) in[i] = 1.0f + (float)(i * 37 % 19) / 7;
    fn((void *[]){in, out}, NULL, 0, 1, 0);
    for (size_t k = 0; k < ASH_COUNT(ops); k++) {
        float work[64];
        memcpy(work, in, sizeof work);
        for (unsigned left = lanes; left > 1; left = (left + 1) / 2)
            for (unsigned i = 0; i < left / 2; i++)
                work[i] = (float)reference_float(ops[k], work[i], work[(left + 1) / 2 + i]);
        assert_true(out[k] == work[0]);
    }
    ash_code__release(code);
}

/* Whether any, and whether all lanes hold. */
static void check_bools(test_code *t, unsigned lanes) {
    ash_nest n = test_nest();
    uint16_t x = test_buffer(&n, ASH_I32, false), y = test_buffer(&n, ASH_BOOL, true);
    ash_ref v = ash_nest_load(&n, x, ash_nest_index(&n, 0), lanes, ASH_NO_REF);
    v = ash_nest_binary(&n, ASH_OP_LT, ash_nest_splat(&n, ash_nest_int(&n, ASH_I32, 0), lanes), v);
    ash_nest_store(&n, y, ash_nest_index(&n, 0), ash_nest_hreduce(&n, ASH_OP_OR, v), ASH_NO_REF);
    ash_nest_store(&n, y, ash_nest_index(&n, 1), ash_nest_hreduce(&n, ASH_OP_AND, v), ASH_NO_REF);
    ash_code *code;
    ash_kernel_fn fn = test_code_compile(t, &n, &code);
    for (unsigned holds = 0; holds <= lanes; holds++) {
        int32_t in[64] = {0};
        uint8_t out[2];
        for (unsigned i = 0; i < holds; i++) in[(i + lanes / 2) % lanes] = 1;
        fn((void *[]){in, out}, NULL, 0, 1, 0);
        assert_int_equal(out[0], holds > 0);
        assert_int_equal(out[1], holds == lanes);
    }
    ash_code__release(code);
}

/* Places count modulo the lanes; and the lower halves of i64 are what a cast leaves. */
static void check_permute(test_code *t, ash_dtype dtype, unsigned lanes) {
    ash_nest n = test_nest();
    uint16_t x = test_buffer(&n, dtype, false), at = test_buffer(&n, ASH_I64, false),
             y = test_buffer(&n, dtype, true);
    ash_ref zero = ash_nest_index(&n, 0), v = ash_nest_load(&n, x, zero, lanes, ASH_NO_REF);
    ash_ref places = ash_nest_cast(&n, ASH_I32, ash_nest_load(&n, at, zero, lanes, ASH_NO_REF));
    ash_nest_store(&n, y, zero, ash_nest_permute(&n, v, places), ASH_NO_REF);
    ash_code *code;
    ash_kernel_fn fn = test_code_compile(t, &n, &code);
    int64_t from[64];
    int32_t in[64], out[64];
    for (int i = 0; i < 64; i++)
        in[i] = 0x3f800000 + i, from[i] = (INT64_C(1) << 33) * (i - 9) + i * 37 - 90;
    fn((void *[]){in, from, out}, NULL, 0, 1, 0);
    for (unsigned i = 0; i < lanes; i++) assert_int_equal(out[i], in[from[i] & (lanes - 1)]);
    ash_code__release(code);
}

static void check_index_division(test_code *t, unsigned lanes) {
    ash_nest n = test_nest();
    uint16_t x = test_buffer(&n, ASH_I64, false), q = test_buffer(&n, ASH_I64, true);
    uint16_t r = test_buffer(&n, ASH_I64, true);
    ash_ref zero = ash_nest_index(&n, 0), v = ash_nest_load(&n, x, zero, lanes, ASH_NO_REF);
    ash_ref by = ash_nest_splat(&n, ash_nest_var(&n, 0), lanes),
            seven = ash_nest_splat(&n, ash_nest_index(&n, 7), lanes);
    ash_nest_store(&n, q, zero, ash_nest_idiv(&n, v, by), ASH_NO_REF);
    ash_nest_store(&n, r, zero, ash_nest_imod(&n, v, seven), ASH_NO_REF);
    ash_code *code;
    ash_kernel_fn fn = test_code_compile(t, &n, &code);
    int64_t in[16], quotient[16], rest[16], var = 13;
    for (int i = 0; i < 16; i++) in[i] = INT64_C(1) << (4 * i % 60) | i;
    fn((void *[]){in, quotient, rest}, &var, 0, 1, 0);
    for (unsigned i = 0; i < lanes; i++) {
        assert_int_equal(quotient[i], in[i] / 13);
        assert_int_equal(rest[i], in[i] % 7);
    }
    ash_code__release(code);
}

/* Vectors of numbers of 32 bits, next to multiples of a divisor that is a variable. */
static void check_narrow_division(test_code *t, unsigned lanes) {
    static const int64_t divisors[] = {1, 2, 3, 7, 13, 46341, 65537, INT32_MAX - 1, INT32_MAX};
    ash_nest n = test_nest();
    uint16_t x = test_buffer(&n, ASH_I64, false), q = test_buffer(&n, ASH_I64, true);
    uint16_t r = test_buffer(&n, ASH_I64, true);
    ash_ref zero = ash_nest_index(&n, 0), v = ash_nest_load(&n, x, zero, lanes, ASH_NO_REF);
    ash_ref by = ash_nest_splat(&n, ash_nest_var(&n, 0), lanes);
    ash_ref div = ash_nest_idiv(&n, v, by), mod = ash_nest_imod(&n, v, by);
    n.code.at[v].width = n.code.at[by].width = ASH_NEST_NARROW;
    ash_nest_store(&n, q, zero, div, ASH_NO_REF);
    ash_nest_store(&n, r, zero, mod, ASH_NO_REF);
    ash_code *code;
    ash_kernel_fn fn = test_code_compile(t, &n, &code);
    for (size_t d = 0; d < ASH_COUNT(divisors); d++)
        for (int64_t part = 0; part < 64; part++) {
            int64_t in[16], quotient[16], rest[16], var = divisors[d];
            for (int64_t i = 0; i < 16; i++) {
                int64_t near = INT32_MAX / var * (part * 16 + i) / 1023 * var + i % 3 - 1;
                in[i] = ASH_MIN(ASH_MAX(near, 0), INT32_MAX);
            }
            fn((void *[]){in, quotient, rest}, &var, 0, 1, 0);
            for (unsigned i = 0; i < lanes; i++) {
                assert_int_equal(quotient[i], in[i] / var);
                assert_int_equal(rest[i], in[i] % var);
            }
        }
    ash_code__release(code);
}

/* On numbers whose product and sum are exact, fused or not. */
static void check_fma(test_code *t, ash_dtype dtype, unsigned lanes) {
    ash_nest n = test_nest();
    uint16_t x = test_buffer(&n, ASH_F32, false), y = test_buffer(&n, ASH_F32, true);
    ash_ref v = ash_nest_cast(&n, dtype, ash_nest_load(&n, x, ash_nest_index(&n, 0), lanes, ASH_NO_REF));
    ash_ref c = ash_nest_splat(&n, ash_nest_float(&n, dtype, -1.5), lanes);
    ash_nest_store(&n, y, ash_nest_index(&n, 0), ash_nest_cast(&n, ASH_F32, ash_nest_fma(&n, v, v, c)),
                   ASH_NO_REF);
    ash_code *code;
    ash_kernel_fn fn = test_code_compile(t, &n, &code);
    float in[16], out[16];
    for (int i = 0; i < 16; i++) in[i] = (float)i - 6;
    fn((void *[]){in, out}, NULL, 0, 1, 0);
    for (unsigned i = 0; i < lanes; i++) assert_true(out[i] == in[i] * in[i] - 1.5f);
    ash_code__release(code);
}

/* Products of bytes at both ends of their ranges and at random: a form that saturates would be wrong. Four
 * bytes of one operand may count for every lane. */
static void check_dot4(test_code *t, unsigned lanes, bool a_shared, bool b_shared) {
    ash_nest n = test_nest();
    uint16_t x = test_buffer(&n, ASH_U8, false), w = test_buffer(&n, ASH_I8, false);
    uint16_t s = test_buffer(&n, ASH_I32, false), y = test_buffer(&n, ASH_I32, true);
    ash_ref zero = ash_nest_index(&n, 0),
            a = ash_nest_load(&n, x, zero, a_shared ? 4 : 4 * lanes, ASH_NO_REF);
    ash_ref b = ash_nest_load(&n, w, zero, b_shared ? 4 : 4 * lanes, ASH_NO_REF);
    ash_ref c = ash_nest_load(&n, s, zero, lanes, ASH_NO_REF);
    ash_nest_store(&n, y, zero, ash_nest_dot4(&n, a, b, c), ASH_NO_REF);
    ash_code *code;
    ash_kernel_fn fn = test_code_compile(t, &n, &code);
    uint8_t in[128];
    int8_t by[128];
    int32_t sums[32], out[32];
    uint64_t seed = lanes;
    for (unsigned round = 0; round < 6; round++) {
        for (unsigned i = 0; i < 128; i++) {
            uint64_t r = test_random(&seed);
            in[i] = round < 4 ? 255 : (uint8_t)(r >> 8);
            by[i] = round == 0 ? -128 : round == 1 ? 127 : (int8_t)r;
            sums[i / 4] = (int32_t)(r >> 16);
        }
        fn((void *[]){in, by, sums, out}, NULL, 0, 1, 0);
        for (unsigned j = 0; j < lanes; j++) {
            int64_t sum = sums[j];
            for (unsigned i = 0; i < 4; i++)
                sum += in[a_shared ? i : 4 * j + i] * by[b_shared ? i : 4 * j + i];
            assert_int_equal(out[j], (int32_t)sum);
        }
    }
    ash_code__release(code);
}

/* Products of tiles, in two instructions of so many terms, with or without sign. */
typedef struct tile_case {
    uint8_t terms[2], height, tall, wide;
    unsigned apart;
    ash_dtype x, y;
} tile_case;

enum { TILE_MOST = 2 * ASH_NEST_TILE_TERMS, TILE_ROOM = 4 * 16 * (TILE_MOST + 40) };

static int32_t byte_at(ash_dtype dtype, const uint8_t *bytes, unsigned at) {
    return dtype == ASH_I8 ? (int8_t)bytes[at] : bytes[at];
}

static void write_tiles(ash_nest *n, const tile_case *c) {
    uint16_t x = test_buffer(n, c->x, false), y = test_buffer(n, c->y, false);
    uint16_t z = test_buffer(n, ASH_I32, true);
    ash_nest_tiles t = {x, y, c->apart, 0, c->height, c->tall, c->wide};
    ash_ref far = ash_nest_index(n, TILE_MOST * 16);
    ash_nest_tile_zero(n, t);
    for (unsigned i = 0, from = 0; i < 2; from += c->terms[i++]) {
        t.terms = c->terms[i];
        if (t.terms)
            ash_nest_tile_dot(n, t, ash_nest_index(n, 3 + from), ash_nest_index(n, 5 + from * 16), far);
    }
    ash_nest_tile_put(n, t, z, ash_nest_index(n, 1));
}

/* At both ends of the ranges, and at random. */
static void check_tiles(test_code *t, const tile_case *c) {
    enum { LANES = 16, SUMS = ASH_NEST_TILES * ASH_NEST_TILE_LINES * LANES };
    ash_nest n = test_nest();
    write_tiles(&n, c);
    ash_code *code;
    ash_kernel_fn fn = test_code_compile(t, &n, &code);
    static uint8_t in[TILE_ROOM], by[TILE_ROOM];
    static int32_t out[SUMS + 2];
    const unsigned lines = c->tall * c->height, terms = c->terms[0] + c->terms[1];
    uint64_t seed = terms;
    for (unsigned round = 0; round < 4; round++) {
        for (unsigned i = 0; i < TILE_ROOM; i++) {
            uint64_t r = test_random(&seed);
            in[i] = round == 0 ? 128 : round == 1 ? 255 : (uint8_t)(r >> 8);
            by[i] = round < 2 ? 128 : (uint8_t)r;
        }
        out[0] = 0, out[1 + c->wide * lines * LANES] = 77;
        fn((void *[]){in, by, out}, NULL, 0, 1, 0);
        assert_true(out[0] == 0 && out[1 + c->wide * lines * LANES] == 77);
        for (unsigned i = 0; i < c->wide * lines * LANES; i++) {
            unsigned v = i / LANES / lines, line = i / LANES % lines, column = i % LANES;
            int64_t sum = 0;
            for (unsigned k = 0; k < terms; k++)
                sum += byte_at(c->x, in, 3 + line * c->apart + k) *
                       byte_at(c->y, by, 5 + v * TILE_MOST * 16 + (k / 4 * LANES + column) * 4 + k % 4);
            assert_int_equal(out[i + 1], (int32_t)sum);
        }
    }
    ash_code__release(code);
}

/* Where this machine has registers for tiles, and may use them. */
static void test_tiles(void **state) {
    (void)state;
    test_code t;
    test_code_open(&t, NULL);
    if (!t.target.tiles) {
        test_code_close(&t);
        skip();
    }
    static const tile_case cases[] = {
        {{64, 64}, 16, 1, 1, 128, ASH_I8, ASH_I8}, {{4, 0}, 16, 1, 1, 44, ASH_I8, ASH_I8},
        {{64, 60}, 16, 2, 2, 130, ASH_U8, ASH_I8}, {{48, 48}, 14, 2, 2, 16, ASH_U8, ASH_I8},
        {{64, 4}, 5, 1, 4, 68, ASH_U8, ASH_U8},    {{28, 28}, 1, 1, 3, 8, ASH_I8, ASH_U8},
        {{64, 64}, 16, 4, 1, 168, ASH_U8, ASH_I8}, {{32, 16}, 7, 2, 1, 100, ASH_I8, ASH_I8},
    };
    for (size_t i = 0; i < ASH_COUNT(cases); i++) check_tiles(&t, &cases[i]);
    test_code_close(&t);
}

/* Rounding and casting to an integer of at most 16 bits is one step in the code: ties, both ends of the
 * range, specials and what lies around them are as by two. */
static void check_rounded_cast(test_code *t, ash_dtype to, unsigned lanes) {
    ash_nest n = test_nest();
    uint16_t x = test_buffer(&n, ASH_F32, false), y = test_buffer(&n, to, true);
    ash_ref zero = ash_nest_index(&n, 0), v = ash_nest_load(&n, x, zero, lanes, ASH_NO_REF);
    ash_nest_store(&n, y, zero, ash_nest_cast(&n, to, ash_nest_unary(&n, ASH_OP_ROUND, v)), ASH_NO_REF);
    ash_code *code;
    ash_kernel_fn fn = test_code_compile(t, &n, &code);
    static const double ends[] = {0, 127, -128, 255, 32767, -32768, 65535};
    float in[16];
    unsigned char out[32];
    uint64_t seed = to;
    for (unsigned round = 0; round < 600; round++) {
        for (unsigned i = 0; i < lanes; i++) {
            uint64_t r = test_random(&seed), bits = special_bits(ASH_F32, r % SPECIALS);
            float halves = (float)(ends[round % ASH_COUNT(ends)] + (double)((int)(r >> 8 & 15) - 8) / 2);
            in[i] = round % 3 == 0 ? halves : round % 3 == 1 ? nextafterf(halves, r & 1 ? 1e6f : -1e6f) : 0;
            uint32_t word = (uint32_t)bits;
            if (round % 3 == 2) memcpy(&in[i], &word, sizeof word);
        }
        fn((void *[]){in, out}, NULL, 0, 1, 0);
        for (unsigned i = 0; i < lanes; i++) {
            num rounded = {.f = nearbyint(in[i])}, want = reference_cast(ASH_F32, to, rounded);
            assert_int_equal(get(to, out, i).i, want.i);
        }
    }
    ash_code__release(code);
}

/* Floats to integers at powers of two of both signs, and the next numbers on either side; of f16, any. */
static void check_cast_limits(test_code *t, ash_dtype from, unsigned lanes) {
    static const ash_dtype to[] = {ASH_I32, ASH_U32, ASH_I64, ASH_U64};
    enum { LEAST = 29, POWERS = 37, AROUND = 5, TO = ASH_COUNT(to) };
    ash_nest n = test_nest();
    uint16_t x = test_buffer(&n, from, false), y[TO];
    for (size_t k = 0; k < TO; k++) y[k] = test_buffer(&n, to[k], true);
    ash_ref zero = ash_nest_index(&n, 0), v = ash_nest_load(&n, x, zero, lanes, ASH_NO_REF);
    for (size_t k = 0; k < TO; k++) ash_nest_store(&n, y[k], zero, ash_nest_cast(&n, to[k], v), ASH_NO_REF);
    ash_code *code;
    ash_kernel_fn fn = test_code_compile(t, &n, &code);
    unsigned char in[16 * 8], out[TO][16 * 8];
    for (unsigned first = 0; first < 2 * POWERS * AROUND; first += lanes) {
        for (unsigned i = 0; i < lanes; i++) {
            const unsigned at = first + i;
            const double wide = ldexp(at % 2 ? -1 : 1, LEAST + (int)(at / 2 % POWERS));
            const float single = (float)wide;
            uint64_t bits = 0;
            memcpy(&bits, from == ASH_F64 ? (const void *)&wide : &single, from == ASH_F64 ? 8 : 4);
            bits = from == ASH_F16 ? at * 177 : from == ASH_BF16 ? bits >> 16 : bits;
            bits += at / (2 * POWERS) % AROUND - AROUND / 2;
            memcpy(in + i * ash_dtype_size(from), &bits, ash_dtype_size(from));
        }
        fn((void *[]){in, out[0], out[1], out[2], out[3]}, NULL, 0, 1, 0);
        for (unsigned i = 0; i < lanes * TO; i++)
            assert_int_equal(get(to[i % TO], out[i % TO], i / TO).i,
                             reference_cast(from, to[i % TO], get(from, in, i / TO)).i);
    }
    ash_code__release(code);
}

static void test_others(void **state) {
    (void)state;
    static const unsigned lanes[] = {1, 2, 3, 4, 7, 8, 16};
    test_code t;
    test_code_open(&t, NULL);
    for (size_t l = 0; l < ASH_COUNT(test_levels); l++) {
        if (!test_code_level(&t, test_levels[l])) continue;
        for (size_t k = 0; k < ASH_COUNT(lanes); k++) {
            check_reduce(&t, lanes[k]);
            check_bools(&t, lanes[k]);
            if (lanes[k] > 1 && ash_is_pow2(lanes[k])) {
                check_permute(&t, ASH_F32, lanes[k]);
                check_permute(&t, ASH_I32, lanes[k]);
            }
            check_index_division(&t, lanes[k]);
            if (lanes[k] > 1) check_narrow_division(&t, lanes[k]);
            static const ash_dtype small[] = {ASH_U8, ASH_I8, ASH_U16, ASH_I16};
            for (size_t d = 0; d < ASH_COUNT(small); d++) check_rounded_cast(&t, small[d], lanes[k]);
            if (lanes[k] > 1) check_dot4(&t, lanes[k], true, false), check_dot4(&t, lanes[k], false, true);
            check_dot4(&t, 2 * lanes[k], false, false);
            for (int dtype = ASH_F32; dtype <= ASH_BF16; dtype++) check_fma(&t, (ash_dtype)dtype, lanes[k]);
            for (int dtype = ASH_F32; dtype <= ASH_BF16; dtype++)
                check_cast_limits(&t, (ash_dtype)dtype, lanes[k]);
        }
    }
    test_code_close(&t);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_elementwise), cmocka_unit_test(test_zeros),
                                       cmocka_unit_test(test_tiles), cmocka_unit_test(test_others)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
