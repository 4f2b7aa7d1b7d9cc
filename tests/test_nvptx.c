/* SPDX-License-Identifier: MIT */
/* Kernels for GPUs, as text: what every one of them must look like, and, where the CUDA toolkit's
 * assembler is installed, that it takes them. What they compute is seen on the stand-in for the driver
 * (the tests *_cuda). */
#include <unistd.h>

#include "ashlar/plan.h"
#include "base/text.h"
#include "code/nvptx/nvptx.h"
#include "every_kernel.h"
#include "gpu_here.h"
#include "kernel/program.h"
#include "toolkit.h"

static ash_diag diag;

/* --- graphs --------------------------------------------------------------------------------------- */

/* And bytes, and functions of f64. */
static void everything(fixture *f) {
    ash_graph *g = f->g;
    ash_value bytes = INPUT(f, "bytes", ASH_U8, 5, 67), wide = INPUT(f, "wide", ASH_F64, 30);
    every_kernel(f);
    ash_graph_output(g, "bytes", ash_max(g, bytes, ash_transpose(g, bytes, (int64_t[]){0, 1})));
    ash_graph_output(g, "moved", ash_transpose(g, bytes, (int64_t[]){1, 0}));
    ash_graph_output(g, "modulus", ash_mod(g, wide, ash_sqrt(g, wide)));
    ash_graph_output(g, "power", ash_pow(g, wide, ash_sin(g, ash_tan(g, ash_cos(g, wide)))));
    ash_graph_output(g, "arcs", ash_asin(g, ash_acos(g, ash_atan(g, ash_erf(g, wide)))));
    ash_graph_output(g, "hyperbolic", ash_sinh(g, ash_cosh(g, ash_tanh(g, wide))));
    ash_graph_output(g, "areas", ash_asinh(g, ash_acosh(g, ash_atanh(g, wide))));
}

static ash_program *lower(fixture *f, const ash_target *target) {
    ash_program *p;
    assert_ok(optimise(f, NULL, target, (ash_opt_options){0}, &diag));
    assert_ok(ash_program__lower(f->out, target, NULL, &p, &diag));
    return p;
}

/* --- what every kernel must look like ------------------------------------------------------------- */

/* An instruction that the hardware would round otherwise, or the assembler contract. */
static void check_arithmetic(const char *ptx) {
    static const char *const bad[] = {"\tmul.f",    "\tadd.f",    "\tsub.f",     ".ftz",
                                      "div.full",   "div.approx", "sqrt.approx", "rsqrt",
                                      "ex2.approx", "lg2.approx", "sin.approx",  "\tmad.f"};
    for (size_t i = 0; i < ASH_COUNT(bad); i++)
        if (strstr(ptx, bad[i])) fail_msg("%s in\n%s", bad[i], ptx);
}

/* No load of 16 single bytes at once: LLVM makes one of them whatever the address is a multiple of. A
 * nest that has none of its own has buffers of bytes that are multiples of a byte. */
static void check_bytes(const ash_nest *nest, const char *ptx) {
    for (size_t i = 0; i < nest->buffers.len; i++)
        if (ash_dtype_size(nest->buffers.at[i].dtype) != 1) return;
    static const char *const wide[] = {".v4.u32", ".v2.u32", ".v4.b32", ".v2.u64", ".v2.b64"};
    for (size_t i = 0; i < ASH_COUNT(wide); i++)
        if (strstr(ptx, wide[i])) fail_msg("%s in\n%s", wide[i], ptx);
}

/* Functions that compute with integers of 64 bits. */
static bool is_long(const ash_inst *inst) {
    static const ash_op ops[] = {ASH_OP_SIN, ASH_OP_COS, ASH_OP_TAN, ASH_OP_REM, ASH_OP_MOD};
    for (size_t i = 0; i < ASH_COUNT(ops); i++)
        if (inst->op == ASH_NEST_COMPUTE && inst->i == ops[i]) return true;
    return false;
}

/* Whether all indices of a nest are known to fit 32 bits, and nothing else has 64. */
static bool is_narrow(const ash_nest *nest) {
    for (size_t i = 0; i < nest->code.len; i++) {
        const ash_inst *inst = &nest->code.at[i];
        if (is_long(inst)) return false;
        if (!inst->lanes || ash_dtype_size((ash_dtype)inst->dtype) < 8) continue;
        if (inst->dtype != ASH_I64 || inst->width != ASH_NEST_NARROW_SUMS) return false;
    }
    return true;
}

/* Of such a nest nothing but an address has 64 bits: a base, and what is added to it, which was narrow
 * before it was multiplied by bytes. */
static void check_indices(const char *ptx) {
    static const char *const fine[] = {"ld.",       "mov.u64",  "cvta.",     "add.s64",
                                       "shl.b64",   "mul.wide", "cvt.u64.u", "cvt.s64.s",
                                       "cp.async.", "or.b64" /* of bits that are apart: a sum */};
    for (const char *line = ptx; line; line = strchr(line, '\n')) {
        char name[32], last[32];
        const char *type;
        line += strspn(line, "\n");
        if (sscanf(line, " %31[a-z0-9_.]", name) != 1 || name[0] == '.') continue;
        if (!(type = strstr(name, "64")) || !strchr("sub", type[-1])) continue;
        bool good = false;
        for (size_t i = 0; i < ASH_COUNT(fine); i++) good |= !strncmp(name, fine[i], strlen(fine[i]));
        if (!strcmp(name, "shl.b64") || !strcmp(name, "mul.lo.s64")) /* by a number */
            good = sscanf(line, " %*s %*[^,], %*[^,], %31[-0-9]", last) == 1;
        if (!good) fail_msg("%.60s in\n%s", line, ptx);
    }
}

static const char *ptxas(void) {
    static char path[256];
    return path[0] ? path : find_tool("PTXAS", "ptxas", path);
}

static const char *nvdisasm(void) {
    static char path[256];
    return path[0] ? path : find_tool("NVDISASM", "nvdisasm", path);
}

enum { MOST_CODE = 1 << 16, MOST_LABELS = 1 << 10 };

/* Machine code: what multiplies, summed up, and where labels are. */
typedef struct listing {
    unsigned n, n_labels, works[MOST_CODE + 1];
    struct {
        char name[32];
        unsigned at;
    } labels[MOST_LABELS];
} listing;

/* The number of multiply-adds (of matrices, if there are any) and of instructions of the loop that has the
 * largest share of them, which is the main loop; false: there is none. */
static bool main_loop(const char *cubin, unsigned *works, unsigned *size) {
    static listing l;
    char command[512], line[1024];
    bool matrices = false;
    for (int pass = 0; pass < 2; pass++) { /* the first looks for matrices */
        snprintf(command, sizeof command, "'%s' -c %s", nvdisasm(), cubin);
        FILE *out = popen(command, "r");
        assert_non_null(out);
        l.n = l.n_labels = *works = *size = 0;
        while (fgets(line, sizeof line, out)) {
            char name[32], *code = strstr(line, "*/"), *to = strstr(line, "`(");
            if (sscanf(line, " %31[^: ]:", name) == 1 && name[0] == '.' && l.n_labels < MOST_LABELS) {
                snprintf(l.labels[l.n_labels].name, sizeof name, "%s", name);
                l.labels[l.n_labels++].at = l.n;
                continue;
            }
            if (!code || !strstr(code, ";") || l.n == MOST_CODE) continue;
            bool matrix = strstr(code, " HMMA") || strstr(code, " IMMA");
            matrices |= matrix;
            l.works[l.n + 1] = l.works[l.n] + (pass && matrices ? matrix : strstr(code, " FFMA") != NULL);
            l.n++;
            if (!strstr(code, " BRA") || !to) continue;
            snprintf(name, sizeof name, "%.*s", (int)strcspn(to + 2, ")"), to + 2);
            for (unsigned i = 0; i < l.n_labels; i++) {
                if (strcmp(l.labels[i].name, name) != 0) continue;
                unsigned has = l.works[l.n] - l.works[l.labels[i].at], of = l.n - l.labels[i].at;
                if (has >= 8 && (!*size || (uint64_t)has * *size > (uint64_t)*works * of))
                    *works = has, *size = of;
            }
        }
        pclose(out);
    }
    return *size > 0;
}

/* Bytes of a thread's stack, where registers are that spill, and vectors that are indexed by a variable;
 * -1: it was refused. *share (if not NULL): of multiply-adds in its main loop, 0 where nvdisasm is not
 * installed. */
static int assemble(const char *ptx, const char *sm, double *share) {
    char name[] = "/tmp/ashlar_ptx_XXXXXX", cubin[] = "/tmp/ashlar_cubin_XXXXXX", command[512], line[512];
    int fd = mkstemp(name), most = 0;
    assert_true(fd >= 0);
    assert_int_equal(write(fd, ptx, strlen(ptx)), (ssize_t)strlen(ptx));
    close(fd);
    int made = mkstemp(cubin);
    assert_true(made >= 0);
    close(made);
    snprintf(command, sizeof command, "'%s' -v -arch=%s -o %s %s 2>&1", ptxas(), sm, cubin, name);
    FILE *out = popen(command, "r");
    assert_non_null(out);
    while (fgets(line, sizeof line, out)) {
        int frame, spilled;
        if (sscanf(line, " %d bytes stack frame, %d", &frame, &spilled) == 2)
            most = ASH_MAX(most, ASH_MAX(frame, spilled));
        if (strstr(line, "error") || strstr(line, "fatal")) print_message("%s", line);
    }
    bool good = pclose(out) == 0;
    unsigned works, size;
    if (share) *share = good && nvdisasm() && main_loop(cubin, &works, &size) ? (double)works / size : 0;
    unlink(name);
    unlink(cubin);
    return good ? most : -1;
}

static void make_every_shape(fixture *f, bool assembler) {
    static const char *const kinds[] = {"sm_70", "sm_80", "sm_90"};
    for (size_t k = 0; k < ASH_COUNT(kinds); k++) {
        ash_target target;
        size_t polls = 0, vars = 0, narrow = 0;
        char header[64];
        restart(f);
        everything(f);
        assert_ok(ash_target__named(kinds[k], &target, &diag));
        ash_program *p = lower(f, &target);
        snprintf(header, sizeof header, ".target %s\n", kinds[k]);
        assert_true(p->nests.len >= 10);
        for (size_t i = 0; i < p->nests.len; i++) {
            ash_text text;
            ash_text_init(&text, &ash_allocator__libc);
            assert_ok(ash_code__assembly(&target, &p->nests.at[i], &text, &diag));
            ash_text_add_bytes(&text, "", 1);
            assert_non_null(strstr(text.at, header));
            assert_non_null(strstr(text.at, ".visible .entry kernel("));
            uint32_t threads = p->nests.at[i].threads;
            char most[32];
            snprintf(most, sizeof most, ".maxntid %u", threads ? threads : ASH_CUDA_BLOCK);
            assert_non_null(strstr(text.at, most));
            check_arithmetic(text.at);
            check_bytes(&p->nests.at[i], text.at);
            if (is_narrow(&p->nests.at[i])) check_indices(text.at), narrow++;
            polls += p->nests.at[i].polls;
            for (size_t c = 0; c < p->nests.at[i].code.len; c++)
                vars += p->nests.at[i].code.at[c].op == ASH_NEST_VAR;
            int bytes = assembler && k ? assemble(text.at, kinds[k], NULL) : 0;
            if (bytes < 0) fail_msg("ptxas refuses\n%s", text.at);
            if (bytes > 0) fail_msg("a stack of %d bytes\n%s", bytes, text.at);
            ash_text_free(&text);
        }
        assert_true(polls > 0 && vars > 0 && narrow > 0);
        print_message("%s: %zu kernels, %zu with narrow indices alone, %s\n", kinds[k], p->nests.len,
                      narrow, assembler && k ? "assembled, none has a stack" : "not assembled");
        ash_program__free(p);
    }
}

/* Sizes as numbers and as variables with bounds: no kernel has an index of 64 bits. That of the convolution
 * has places of its window in so many bits. */
static void indices_have_32_bits(void **state) {
    fixture *f = *state;
    static const char *const kinds[] = {"sm_70", "sm_90"};
    static const int64_t orders[][3] = {{0, 2, 1}, {1, 0, 2}}, axes[] = {2, 3};
    const ash_window window = {3, 2, 1, 1, 1}, windows[] = {window, window};
    for (unsigned i = 0; i < 2 * ASH_COUNT(kinds); i++) {
        ash_target target;
        restart(f);
        ash_graph *g = f->g;
        const ash_dim a = i % 2 ? ash_graph_var(g, "a", 1, 64) : 33,
                      b = i % 2 ? ash_graph_var(g, "b", 1, 96) : 65;
        ash_value x = INPUT(f, "x", ASH_F32, a, b, 24), image = INPUT(f, "image", ASH_F32, a, 8, 17, 17);
        ash_graph_output(g, "map", ash_relu(g, ash_add(g, x, INPUT(f, "y", ASH_F32, b, 1))));
        for (unsigned k = 0; k < 2; k++) ash_graph_output(g, k ? "u" : "t", ash_transpose(g, x, orders[k]));
        ash_graph_output(g, "rows", ash_softmax(g, INPUT(f, "lines", ASH_F32, a, 100), 1));
        ash_graph_output(g, "pool", ash_pool_max(g, image, axes, windows, 2));
        ash_graph_output(g, "conv", ash_conv2d(g, image, CONSTANT(f, ASH_F32, 32, 8, 3, 3), 1, 1, 1));
        ash_graph_output(g, "product", ash_matmul(g, x, CONSTANT(f, ASH_F32, 24, 40)));
        assert_ok(ash_target__named(kinds[i / 2], &target, &diag));
        ash_program *p = lower(f, &target);
        size_t narrow = 0;
        assert_true(p->nests.len >= 7);
        for (size_t k = 0; k < p->nests.len; k++) {
            ash_text text;
            ash_text_init(&text, &ash_allocator__libc);
            assert_ok(ash_code__assembly(&target, &p->nests.at[k], &text, &diag));
            ash_text_add_bytes(&text, "", 1);
            bool all = is_narrow(&p->nests.at[k]);
            if (all) check_indices(text.at);
            narrow += all;
            ash_text_free(&text);
        }
        assert_int_equal(narrow + 1, p->nests.len);
        ash_program__free(p);
    }
}

static void kernels_of_every_shape(void **state) {
    make_every_shape(*state, false);
}

static void every_shape_is_assembled(void **state) {
    NEED_TOOL(ptxas, "PTXAS");
    make_every_shape(*state, true);
}

/* No kernel of the present graph, for one kind of GPU, has a stack. */
static void expect_no_stack(fixture *f, const char *kind, const char *what) {
    ash_target target;
    assert_ok(ash_target__named(kind, &target, &diag));
    ash_program *p = lower(f, &target);
    for (size_t j = 0; j < p->nests.len; j++) {
        ash_text text;
        ash_text_init(&text, &ash_allocator__libc);
        assert_ok(ash_code__assembly(&target, &p->nests.at[j], &text, &diag));
        ash_text_add_bytes(&text, "", 1);
        int bytes = assemble(text.at, kind, NULL);
        if (bytes) fail_msg("%s, %s: a stack of %d bytes", what, kind, bytes);
        ash_text_free(&text);
    }
    ash_program__free(p);
}

/* The assembler has registers for tiles of every shape, for one k-tile and for many. */
static void tiles_do_not_spill(void **state) {
    fixture *f = *state;
    static const char *const kinds[] = {"sm_80", "sm_90"};
    static const int64_t sizes[][2] = {{2048, 2048}, {1536, 896}, {896, 768}, {896, 384}, {256, 128}},
                         terms[] = {16, 32, 256};
    NEED_TOOL(ptxas, "PTXAS");
    for (size_t k = 0; k < ASH_COUNT(kinds); k++) {
        for (size_t i = 0; i < ASH_COUNT(sizes) * ASH_COUNT(terms); i++) {
            const int64_t m = sizes[i % ASH_COUNT(sizes)][0], n = sizes[i % ASH_COUNT(sizes)][1],
                          c = terms[i / ASH_COUNT(sizes)];
            restart(f);
            ash_value y = ash_matmul(f->g, INPUT(f, "a", ASH_F32, m, c), INPUT(f, "b", ASH_F32, c, n));
            ash_graph_output(f->g, "y", ash_relu(f->g, ash_add(f->g, y, INPUT(f, "bias", ASH_F32, n))));
            ash_value image = INPUT(f, "image", ASH_F32, 1, c, n / 32, 32),
                      filter = INPUT(f, "filter", ASH_F32, m, c, 3, 3);
            ash_graph_output(f->g, "z", ash_relu(f->g, ash_conv2d(f->g, image, filter, 1, 1, 1)));
            ash_value h = ash_matmul(f->g, INPUT(f, "ha", ASH_F16, m, c), INPUT(f, "hb", ASH_F16, c, n));
            ash_graph_output(f->g, "half", ash_relu(f->g, h));
            if (c >= 256) { /* both operands' terms lie side by side */
                ash_value turned =
                    ash_transpose(f->g, INPUT(f, "turned", ASH_F32, n, c), (int64_t[]){1, 0});
                ash_graph_output(f->g, "t", ash_matmul(f->g, INPUT(f, "ta", ASH_F32, m, c), turned));
            }
            char what[64];
            snprintf(what, sizeof what, "%d x %d x %d", (int)m, (int)c, (int)n);
            expect_no_stack(f, kinds[k], what);
        }
    }
}

/* One product or convolution, or attention. */
typedef struct form {
    const char *name;
    ash_value (*add)(fixture *f, const struct form *c);
    double least; /* share in the main loop, of every kind of GPU */
    ash_dtype dtype;
    ash_gpu_math singles;
    int64_t m, k,
        n; /* of a convolution m filters, k channels, n positions to a side; of attention m queries
                        and n keys of k numbers, in each of 12 heads */
    int64_t window, stride, bits;
    bool zeros;          /* of few bits: zero points of their own */
    bool each, residual; /* quantised: a scale to a filter or column; its input, or another one, is added */
    bool masked, open, biased; /* queries see the keys before them; their numbers are variables; a number is
                                  added to each score, and heads lie between positions */
} form;

static ash_value product(fixture *f, const form *c) {
    ash_value a = INPUT(f, "a", c->dtype, c->m, c->k), b = INPUT(f, "b", c->dtype, c->k, c->n);
    if (c->dtype != ASH_U8) return ash_relu(f->g, ash_matmul(f->g, a, b));
    return ash_matmul(f->g, ash_cast(f->g, a, ASH_I32), ash_cast(f->g, b, ASH_I32));
}

static ash_value convolution(fixture *f, const form *c) {
    ash_value w = CONSTANT(f, c->dtype, c->m, c->k, c->window, c->window),
              x = INPUT(f, "x", c->dtype, 1, c->k, c->n, c->n);
    return ash_relu(f->g, ash_conv2d(f->g, x, w, c->stride, c->window / 2, 1));
}

/* Weights in blocks of 32 with a scale. */
static ash_value few_bits(fixture *f, const form *c) {
    enum { SPAN = 32 };
    ash_graph *g = f->g;
    const ash_dim spread[] = {c->k / SPAN, SPAN, c->n}, flat[] = {c->k, c->n};
    const ash_type type = TYPE(ASH_U8, c->k, c->n);
    size_t count = (size_t)(c->k * c->n);
    uint8_t *numbers = malloc(count);
    for (size_t i = 0; i < count; i++)
        numbers[i] = (uint8_t)(i * 2654435761u >> 16 & ((1u << c->bits) - 1));
    ash_value q = ash_graph_constant(g, &type, numbers, count, ASH_DATA_COPY),
              zero = ash_scalar(g, ASH_F32, 1 << (c->bits - 1)),
              s = CONSTANT(f, ASH_F32, c->k / SPAN, 1, c->n);
    if (c->zeros) {
        const ash_type each = TYPE(ASH_U8, c->k / SPAN, 1, c->n);
        zero = ash_graph_constant(g, &each, numbers, count / SPAN, ASH_DATA_COPY);
        zero = ash_reshape(g, ash_broadcast_to(g, ash_cast(g, zero, ASH_F32), spread, 3), flat, 2);
    }
    free(numbers);
    s = ash_reshape(g, ash_broadcast_to(g, s, spread, 3), flat, 2);
    q = ash_mul(g, ash_sub(g, ash_cast(g, q, ASH_F32), zero), s);
    return ash_relu(g, ash_matmul(g, INPUT(f, "a", ASH_F32, c->m, c->k), q));
}

enum { HEADS = 12 };

static ash_value heads(fixture *f, const char *name, const form *c, ash_dim length) {
    if (!c->biased) return INPUT(f, name, ASH_F32, HEADS, length, c->k);
    return ash_transpose(f->g, INPUT(f, name, ASH_F32, length, HEADS, c->k), (int64_t[]){1, 0, 2});
}

static ash_value scores(fixture *f, const form *c) {
    const int64_t turned[] = {0, 2, 1};
    return ash_matmul(f->g, heads(f, "q", c, c->m), ash_transpose(f->g, heads(f, "k", c, c->n), turned));
}

static ash_value attention(fixture *f, const form *c) {
    ash_graph *g = f->g;
    const int64_t turned[] = {0, 2, 1};
    const ash_dim rows = c->open ? ash_graph_var(g, "rows", 1, c->m) : c->m,
                  keys = c->open ? ash_graph_var(g, "keys", 1, c->n) : c->n, dims[] = {rows, keys};
    ash_value q = heads(f, "q", c, rows), k = heads(f, "k", c, keys), v = heads(f, "v", c, keys);
    ash_value scores = ash_matmul(g, q, ash_transpose(g, k, turned));
    scores = ash_mul(g, scores, ash_scalar(g, ASH_F32, 0.125));
    if (c->biased) scores = ash_add(g, scores, INPUT(f, "bias", ASH_F32, rows, keys));
    ash_value sees = ash_le(g, ash_iota(g, ASH_I64, dims, 2, 1), ash_iota(g, ASH_I64, dims, 2, 0));
    if (c->masked) scores = ash_select(g, sees, scores, ash_scalar(g, ASH_F32, -INFINITY));
    return ash_matmul(g, ash_softmax(g, scores, 2), v);
}

static ash_value function(fixture *f, const form *c) {
    ash_value x = INPUT(f, "x", c->dtype, c->m, c->n);
    return ash_mul(f->g, ash_sin(f->g, x), ash_add(f->g, ash_cos(f->g, x), ash_tan(f->g, x)));
}

static ash_value dequantise(fixture *f, ash_value q, double zero, ash_value scale) {
    ash_graph *g = f->g;
    q = ash_sub(g, ash_cast(g, q, ASH_I32), ash_scalar(g, ASH_I32, zero));
    return ash_mul(g, ash_cast(g, q, ASH_F32), scale);
}

static ash_value quantise(fixture *f, ash_value x) {
    ash_graph *g = f->g;
    x = ash_round(g, ash_div(g, x, ash_scalar(g, ASH_F32, 0.05)));
    return ash_cast(g, ash_add(g, x, ash_scalar(g, ASH_F32, 120)), ASH_U8);
}

static ash_value scale_of(fixture *f, const form *c, unsigned trailing) {
    const ash_dim dims[] = {c->m, 1, 1};
    if (!c->each) return ash_scalar(f->g, ASH_F32, 0.01);
    return trailing ? ash_reshape(f->g, CONSTANT(f, ASH_F32, c->m), dims, 3) : CONSTANT(f, ASH_F32, c->n);
}

/* As files spell QLinearConv and QLinearMatMul, the first of which may be followed by what adds another. */
static ash_value quantised_convolution(fixture *f, const form *c) {
    const ash_dim dims[] = {c->m, 1, 1, 1};
    ash_graph *g = f->g;
    ash_value x = INPUT(f, "x", ASH_U8, 1, c->k, c->n, c->n),
              w = CONSTANT(f, ASH_I8, c->m, c->k, c->window, c->window), scale = scale_of(f, c, 2),
              bias = ash_reshape(g, CONSTANT(f, ASH_I32, c->m), dims, 3);
    x = dequantise(f, x, 127, ash_scalar(g, ASH_F32, 0.02));
    w = dequantise(f, w, 0, c->each ? ash_reshape(g, scale, dims, 4) : scale);
    ash_value y = ash_conv2d(g, x, w, c->stride, c->window / 2, 1);
    y = ash_add(g, y,
                ash_mul(g, ash_cast(g, bias, ASH_F32), ash_mul(g, scale, ash_scalar(g, ASH_F32, 0.02))));
    if (!c->residual) return quantise(f, ash_relu(g, y));
    y = dequantise(f, quantise(f, y), 120, ash_scalar(g, ASH_F32, 0.05));
    ash_value other = INPUT(f, "other", ASH_U8, 1, c->m, c->n / c->stride, c->n / c->stride);
    y = ash_add(g, y, dequantise(f, other, 127, ash_scalar(g, ASH_F32, 0.02)));
    return quantise(f, ash_mul(g, y, ash_sigmoid(g, y)));
}

static ash_value quantised_product(fixture *f, const form *c) {
    ash_graph *g = f->g;
    ash_value x = INPUT(f, "x", ASH_U8, c->m, c->k), w = CONSTANT(f, ASH_I8, c->k, c->n);
    x = dequantise(f, x, 127, ash_scalar(g, ASH_F32, 0.02));
    ash_value y = ash_matmul(g, x, dequantise(f, w, 0, scale_of(f, c, 0)));
    if (!c->residual) return quantise(f, y);
    ash_value other = INPUT(f, "other", ASH_U8, c->m, c->n);
    return quantise(f, ash_add(g, y, dequantise(f, other, 127, ash_scalar(g, ASH_F32, 0.02))));
}

/* What has no main loop, or is quantised: a thread has registers alone. */
/* Elements of k buffers whose places data say, and their sum. */
static ash_value places(fixture *f, const form *c) {
    ash_value x = INPUT(f, "x", ASH_F32, c->m), y = INPUT(f, "y", ASH_F32, c->m, c->n);
    for (int64_t i = 0; i < c->k; i++) {
        char name[16];
        snprintf(name, sizeof name, "at%d", (int)i);
        y = ash_add(f->g, y, ash_gather(f->g, x, INPUT(f, name, ASH_I64, c->m, c->n), 0));
    }
    return y;
}

/* Products of rows by each other, by threads. */
static ash_value rows_by_rows(fixture *f, const form *c) {
    ash_value x = INPUT(f, "x", c->dtype, c->m, c->k);
    return ash_matmul(f->g, x, ash_transpose(f->g, x, (int64_t[]){1, 0}));
}

static void threads_have_no_stack(void **state) {
    fixture *f = *state;
    static const char *const kinds[] = {"sm_80", "sm_90", "sm_120"};
    static const form forms[] = {
        {"sines, f32", function, .m = 64, .n = 1024},
        {"sines, f32, by elements", function, .m = 64, .n = 1023},
        {"sines, f64", function, .dtype = ASH_F64, .m = 64, .n = 1024},
        {"sines, f16", function, .dtype = ASH_F16, .m = 64, .n = 1024},
        {"bytes, 3 x 3 on 28 x 28", quantised_convolution, .m = 128, .k = 128, .n = 28, .window = 3,
         .stride = 1},
        {"bytes, a scale to a filter", quantised_convolution, .m = 128, .k = 128, .n = 28, .window = 3,
         .stride = 1, .each = true},
        {"bytes, residual", quantised_convolution, .m = 128, .k = 128, .n = 28, .window = 3, .stride = 1,
         .each = true, .residual = true},
        {"bytes, 3 x 3 on 20 x 20", quantised_convolution, .m = 64, .k = 128, .n = 20, .window = 3,
         .stride = 1, .residual = true},
        {"bytes, 3 x 3 on 7 x 7", quantised_convolution, .m = 512, .k = 512, .n = 7, .window = 3,
         .stride = 1, .each = true, .residual = true},
        {"bytes, 1 x 1 on 13 x 13", quantised_convolution, .m = 96, .k = 64, .n = 13, .window = 1,
         .stride = 1, .each = true},
        {"bytes, 1 x 1 on 13 x 13, residual", quantised_convolution, .m = 96, .k = 64, .n = 13, .window = 1,
         .stride = 1, .residual = true},
        {"bytes, 3 x 3 in steps", quantised_convolution, .m = 128, .k = 64, .n = 56, .window = 3,
         .stride = 2},
        {"bytes, product", quantised_product, .m = 128, .k = 256, .n = 256},
        {"bytes, product, each column", quantised_product, .m = 128, .k = 256, .n = 256, .each = true},
        {"bytes, product, residual", quantised_product, .m = 128, .k = 256, .n = 256, .residual = true},
        {"bytes, product, odd columns", quantised_product, .m = 127, .k = 256, .n = 251, .residual = true},
        {"bytes, product, odd terms", quantised_product, .m = 127, .k = 250, .n = 256, .residual = true},
        {"bytes, product, odd terms and columns", quantised_product, .m = 127, .k = 250, .n = 251,
         .residual = true},
        {"83 rounds", rows_by_rows, .dtype = ASH_I32, .m = 3, .k = 332},
        {"64 buffers", places, .m = 90, .k = 64, .n = 3},
    };
    NEED_TOOL(ptxas, "PTXAS");
    for (size_t i = 0; i < ASH_COUNT(kinds) * ASH_COUNT(forms); i++) {
        const form *c = &forms[i / ASH_COUNT(kinds)];
        const char *kind = kinds[i % ASH_COUNT(kinds)];
        if (c->add == places && !strcmp(kind, "sm_80")) continue; /* ptxas has all loads there at once */
        restart(f);
        ash_graph_output(f->g, "y", c->add(f, c));
        expect_no_stack(f, kind, c->name);
    }
}

/* Main loops that were looked into, those with too few multiply-adds, and the first of them. */
static int n_loops, n_poor;
static char poor[256];

/* f32, TF32, bytes, half floats, first layers, products of few rows, with weights of few bits as well, and
 * attention: no spills, and as many multiply-adds in the main loop
 * as its schedule has. */
static void main_loops(void **state) {
    fixture *f = *state;
    static const char *const kinds[] = {"sm_80", "sm_90", "sm_120"};
    static const form forms[] = {
        {"f32, 4096 x 4096", product, 0.93, .m = 4096, .k = 256, .n = 4096},
        {"f32, 896 x 768", product, 0.91, .m = 896, .k = 256, .n = 768},
        {"f32, 896 x 384", product, 0.9, .m = 896, .k = 256, .n = 384},
        {"f32, 128 x 768", product, 0.91, .m = 128, .k = 768, .n = 768},
        {"f32, scores", scores, 0.93, .m = 128, .k = 64, .n = 128},
        {"f32, 32 rows", product, 0.9, .m = 32, .k = 4096, .n = 4096},
        {"f32, 1 x 1", convolution, 0.91, .m = 256, .k = 256, .n = 28, .window = 1, .stride = 1},
        {"f32, 1 x 1 on 7 x 7", convolution, 0.92, .m = 512, .k = 512, .n = 7, .window = 1, .stride = 1},
        {"f32, 1 x 1 of 160 on 7 x 7", convolution, 0.91, .m = 960, .k = 160, .n = 7, .window = 1,
         .stride = 1},
        {"f32, 3 x 3 on 13 x 13", convolution, 0.9, .m = 320, .k = 160, .n = 13, .window = 3, .stride = 1},
        {"f32, 1 x 1 in steps to 14 x 14", convolution, 0.9, .m = 1024, .k = 512, .n = 28, .window = 1,
         .stride = 2},
        {"f32, 1 x 1 in steps", convolution, 0.9, .m = 512, .k = 256, .n = 56, .window = 1, .stride = 2},
        {"f32, 3 x 3 on 112 x 112", convolution, 0.9, .m = 128, .k = 128, .n = 112, .window = 3,
         .stride = 1},
        {"f32, 3 x 3 on 56 x 56", convolution, 0.9, .m = 64, .k = 64, .n = 56, .window = 3, .stride = 1},
        {"f32, 3 x 3 on 28 x 28", convolution, 0.91, .m = 128, .k = 128, .n = 28, .window = 3, .stride = 1},
        {"f32, 3 x 3 on 14 x 14", convolution, 0.9, .m = 256, .k = 256, .n = 14, .window = 3, .stride = 1},
        {"f32, 3 x 3 on 7 x 7", convolution, 0.9, .m = 512, .k = 512, .n = 7, .window = 3, .stride = 1},
        {"f32, 3 x 3 in steps", convolution, 0.9, .m = 128, .k = 128, .n = 56, .window = 3, .stride = 2},
        {"f32, 5 x 5 on 28 x 28", convolution, 0.9, .m = 96, .k = 32, .n = 28, .window = 5, .stride = 1},
        {"tf32, 128 x 128", product, 0.15, .singles = ASH_GPU_TF32, .m = 4096, .k = 256, .n = 4096},
        {"tf32, 64 x 64", product, 0.12, .singles = ASH_GPU_TF32, .m = 896, .k = 256, .n = 768},
        {"tf32, convolution", convolution, 0.09, .singles = ASH_GPU_TF32, .m = 256, .k = 64, .n = 56,
         .window = 3, .stride = 1},
        {"tf32x3, 64 x 128", product, 0.14, .singles = ASH_GPU_TF32X3, .m = 4096, .k = 1024, .n = 4096},
        {"tf32x3, 64 x 64", product, 0.14, .singles = ASH_GPU_TF32X3, .m = 896, .k = 256, .n = 768},
        {"bytes, 128 x 128", product, 0.1, .dtype = ASH_U8, .m = 4096, .k = 256, .n = 4096},
        {"halves, 128 x 128", product, 0.3, .dtype = ASH_F16, .m = 4096, .k = 256, .n = 4096},
        {"halves, in parts", product, 0.26, .dtype = ASH_F16, .m = 128, .k = 8192, .n = 256},
        {"halves, 3 x 3", convolution, 0.12, .dtype = ASH_BF16, .m = 256, .k = 64, .n = 56, .window = 3,
         .stride = 1},
        {"halves, 3 x 3 in parts", convolution, 0.15, .dtype = ASH_F16, .m = 512, .k = 512, .n = 7,
         .window = 3, .stride = 1},
        {"first layer, 7 x 7", convolution, 0.9, .m = 64, .k = 3, .n = 224, .window = 7, .stride = 2},
        {"first layer, 3 x 3", convolution, 0.91, .m = 64, .k = 3, .n = 224, .window = 3, .stride = 1},
        {"one row", product, 0.3, .m = 1, .k = 4096, .n = 4096},
        {"three rows", product, 0.3, .m = 3, .k = 4096, .n = 4096},
        {"eight rows", product, 0.5, .m = 8, .k = 4096, .n = 4096},
        {"16 rows", product, 0.5, .m = 16, .k = 4096, .n = 4096},
        {"16 columns", product, 0.5, .m = 4096, .k = 4096, .n = 16},
        {"one column", product, 0.2, .m = 4096, .k = 4096, .n = 1},
        {"4 bits, 1 row", few_bits, 0.2, .bits = 4, .m = 1, .k = 4096, .n = 4096},
        {"4 bits, 4 rows", few_bits, 0.5, .bits = 4, .m = 4, .k = 4096, .n = 4096},
        {"4 bits, 13 rows", few_bits, 0.7, .bits = 4, .m = 13, .k = 4096, .n = 4096},
        {"4 bits, 16 rows", few_bits, 0.7, .bits = 4, .m = 16, .k = 4096, .n = 4096},
        {"4 bits, 16 rows, zero points", few_bits, 0.7, .bits = 4, .m = 16, .k = 4000, .n = 4096,
         .zeros = true},
        {"2 bits, 1 row", few_bits, 0.2, .bits = 2, .m = 1, .k = 4096, .n = 4096},
        {"2 bits, 16 rows, zero points", few_bits, 0.7, .bits = 2, .m = 16, .k = 4000, .n = 4096,
         .zeros = true},
        {"8 bits, 16 rows", few_bits, 0.7, .bits = 8, .m = 16, .k = 4096, .n = 4096},
        {"8 bits, 5 rows, zero points", few_bits, 0.4, .bits = 8, .m = 5, .k = 4000, .n = 4096,
         .zeros = true},
        {"attention, 16 columns, masked", attention, 0.85, .m = 1500, .k = 16, .n = 1500, .masked = true},
        {"attention, 64 columns, masked", attention, 0.85, .m = 2048, .k = 64, .n = 2048, .masked = true},
        {"attention, 64 columns, open", attention, 0.85, .m = 2000, .k = 64, .n = 2000, .masked = true,
         .open = true},
        {"attention, 64 columns, biased", attention, 0.85, .m = 2048, .k = 64, .n = 2048, .biased = true},
        {"attention, 100 columns, masked", attention, 0.85, .m = 2000, .k = 100, .n = 2000, .masked = true},
        {"attention, 100 columns, open", attention, 0.85, .m = 2000, .k = 100, .n = 2000, .masked = true,
         .open = true},
        {"attention, 128 columns", attention, 0.85, .m = 2048, .k = 128, .n = 2048},
        {"attention, 128 columns, masked", attention, 0.85, .m = 2048, .k = 128, .n = 2048, .masked = true},
        {"attention, 128 columns, open", attention, 0.85, .m = 2000, .k = 128, .n = 2000, .masked = true,
         .open = true},
        {"attention, 128 columns, biased", attention, 0.85, .m = 2048, .k = 128, .n = 2048, .biased = true},
    };
    NEED_TOOL(ptxas, "PTXAS");
    for (size_t i = 0; i < ASH_COUNT(kinds) * ASH_COUNT(forms); i++) {
        const form *c = &forms[i / ASH_COUNT(kinds)];
        const char *kind = kinds[i % ASH_COUNT(kinds)];
        ash_target target;
        double most = 0;
        assert_ok(ash_target__named(kind, &target, &diag));
        target.singles = c->singles;
        restart(f);
        ash_graph_output(f->g, "y", c->add(f, c));
        ash_program *p = lower(f, &target);
        for (size_t j = 0; j < p->nests.len; j++) {
            ash_text text;
            double share;
            if (!p->nests.at[j].threads) continue;
            ash_text_init(&text, &ash_allocator__libc);
            assert_ok(ash_code__assembly(&target, &p->nests.at[j], &text, &diag));
            ash_text_add_bytes(&text, "", 1);
            int bytes = assemble(text.at, kind, &share);
            if (bytes) fail_msg("%s, %s: %d bytes", c->name, kind, bytes);
            most = ASH_MAX(most, share);
            ash_text_free(&text);
        }
        ash_program__free(p);
        if (!nvdisasm()) continue;
        print_message("%s, %s: %.1f %%\n", c->name, kind, 100 * most);
        if (most < c->least && !n_poor++)
            snprintf(poor, sizeof poor, "%s, %s: %g of the loop multiply, not %g", c->name, kind, most,
                     c->least);
        n_loops++;
    }
}

/* Of what the last test has seen. */
static void main_loops_multiply(void **state) {
    (void)state;
    NEED_TOOL(ptxas, "PTXAS");
    NEED_TOOL(nvdisasm, "NVDISASM");
    assert_true(n_loops > 0);
    if (n_poor) fail_msg("%d of %d, the first: %s", n_poor, n_loops, poor);
}

/* Sixteen bytes from an address that is a multiple of nothing. */
static void bytes_from_anywhere(void **state) {
    (void)state;
    ash_target target;
    ash_text text;
    ash_nest n;
    assert_ok(ash_target__named("sm_80", &target, &diag));
    for (unsigned lanes = 4; lanes <= 32; lanes *= 2) {
        ash_nest_init(&n, &ash_allocator__libc);
        uint16_t from = ash_nest_buffer_add(&n, (ash_nest_buffer){ASH_U8, 1, 0, false}),
                 to = ash_nest_buffer_add(&n, (ash_nest_buffer){ASH_U8, 1, 1, true});
        ash_ref c = ash_nest_loop(&n, ash_nest_arg(&n, ASH_NEST_BEGIN_ARG),
                                  ash_nest_arg(&n, ASH_NEST_END_ARG), 1, 0);
        ash_ref at = ash_nest_binary(&n, ASH_OP_MUL, c, ash_nest_index(&n, 33));
        ash_ref x = ash_nest_load(&n, from, at, lanes, ASH_NO_REF);
        ash_nest_store(&n, to, at, ash_nest_binary(&n, ASH_OP_ADD, x, x), ASH_NO_REF);
        ash_nest_end(&n);
        ash_text_init(&text, &ash_allocator__libc);
        assert_ok(ash_code__assembly(&target, &n, &text, &diag));
        ash_text_add_bytes(&text, "", 1);
        check_bytes(&n, text.at);
        ash_text_free(&text);
        ash_nest_free(&n);
    }
}

/* --- kinds ---------------------------------------------------------------------------------------- */

static void kinds_of_gpus(void **state) {
    (void)state;
    ash_target t;
    assert_ok(ash_target__named("sm_80", &t, &diag));
    assert_int_equal(t.kind, ASH_TARGET_GPU);
    assert_string_equal(t.cpu, "sm_80");
    assert_string_equal(t.features, "+ptx70");
    assert_int_equal(t.vector_bytes, 16);
    assert_ok(ash_target__named("sm_120", &t, &diag)); /* newer than LLVM */
    assert_string_equal(t.cpu, "sm_90");
    assert_ok(ash_target__named("sm_88", &t, &diag)); /* between two */
    assert_string_equal(t.cpu, "sm_87");
    static const char *const none[] = {"sm_35", "sm_", "sm_8", "sm_80x", "sm_800000"};
    for (size_t i = 0; i < ASH_COUNT(none); i++)
        assert_status(ash_target__named(none[i], &t, &diag), ASH_ERROR_NOT_FOUND);
}

/* --- a device of paper ---------------------------------------------------------------------------- */

static void plans_for_gpus_that_are_not_there(void **state) {
    fixture *f = *state;
    ash_plan_options options = ash_plan_options_default();
    ash_plan *plan;
    char *text;
    uint64_t len;
    ash_value x = INPUT(f, "x", ASH_F32, 3, 24), w = CONSTANT(f, ASH_F32, 24, 17);
    ash_graph_output(
        f->g, "y",
        ash_relu(f->g, ash_matmul(f->g, x,
                                  ash_transpose(f->g, ash_transpose(f->g, w, (int64_t[]){1, 0}),
                                                (int64_t[]){1, 0}))));
    assert_status(ash_device_open(f->context, "CUDA:sm_20", &options.device, &diag), ASH_ERROR_DEVICE);
    assert_ok(ash_device_open(f->context, "CUDA:sm_90", &options.device, &diag));
    for (int mode = ASH_MODE_STREAM; mode <= ASH_MODE_GRAPH; mode++) {
        options.mode = (ash_mode)mode;
        assert_ok(ash_plan_prepare(f->context, f->g, &options, &plan, &diag));
        assert_ok(ash_plan_kernel_source(plan, 0, ASH_SOURCE_ASSEMBLY, &text, &len, &diag));
        assert_non_null(strstr(text, ".target sm_90"));
        ash_context_free_text(f->context, text, len);
        float data[3 * 24] = {0};
        assert_ok(ash_plan_set_input(plan, 0, &(ash_type){.dtype = ASH_F32, .rank = 2, .dims = {3, 24}},
                                     data, sizeof data, &diag));
        assert_status(ash_plan_execute(plan, &diag), ASH_ERROR_DEVICE);
        assert_non_null(strstr(diag.message, "a kind of GPU"));
        ash_plan_destroy(plan);
    }
    ash_device_close(options.device);
}

/* Precisions: what kernels multiply with, and where there is none but IEEE. */
static void precisions(void **state) {
    fixture *f = *state;
    static const struct {
        ash_precision precision;
        const char *has, *lacks;
    } cases[] = {{ASH_PRECISION_IEEE, "fma.rn.f32", "mma.sync"},
                 {ASH_PRECISION_TF32, "tf32.tf32", "sub.rn.f32"},
                 {ASH_PRECISION_TF32X3, "sub.rn.f32", "f16.f16"}};
    ash_plan *plan;
    char *text;
    uint64_t len;
    ash_value product = ash_matmul(f->g, INPUT(f, "a", ASH_F32, 64, 64), INPUT(f, "b", ASH_F32, 64, 64));
    ash_graph_output(f->g, "y", product);
    for (size_t i = 0; i < ASH_COUNT(cases); i++) {
        ash_plan_options options = ash_plan_options_default();
        options.precision = cases[i].precision;
        bool ieee = cases[i].precision == ASH_PRECISION_IEEE;
        ash_status status = ash_plan_prepare(f->context, f->g, &options, &plan, &diag); /* the processor */
        assert_int_equal(status, ieee ? ASH_OK : ASH_ERROR_UNSUPPORTED);
        if (!ieee) assert_non_null(strstr(diag.message, ash_precision_text(options.precision)));
        ash_plan_destroy(plan);
        assert_ok(ash_device_open(f->context, "CUDA:sm_75", &options.device, &diag));
        status = ash_plan_prepare(f->context, f->g, &options, &plan, &diag);
        assert_int_equal(status, ieee ? ASH_OK : ASH_ERROR_UNSUPPORTED);
        ash_plan_destroy(plan);
        ash_device_close(options.device);
        assert_ok(ash_device_open(f->context, "CUDA:sm_80", &options.device, &diag));
        assert_ok(ash_plan_prepare(f->context, f->g, &options, &plan, &diag));
        assert_ok(ash_plan_kernel_source(plan, 0, ASH_SOURCE_ASSEMBLY, &text, &len, &diag));
        assert_non_null(strstr(text, cases[i].has));
        assert_null(strstr(text, cases[i].lacks));
        ash_context_free_text(f->context, text, len);
        ash_plan_destroy(plan);
        options.precision = ASH_PRECISION_COUNT;
        assert_status(ash_plan_prepare(f->context, f->g, &options, &plan, &diag),
                      ASH_ERROR_INVALID_ARGUMENT);
        ash_device_close(options.device);
    }
    assert_string_equal(ash_precision_text(ASH_PRECISION_COUNT), "?");
}

/* --- the driver ----------------------------------------------------------------------------------- */

static void drivers_that_are_not_there(void **state) {
    fixture *f = *state;
    static const char stub[] = "/usr/local/cuda/lib64/stubs/libcuda.so";
    ash_device *device;
    setenv("ASHLAR_CUDA_DRIVER", "/no/such/library.so", 1);
    assert_status(ash_device_open(f->context, "CUDA:0", &device, &diag), ASH_ERROR_DEVICE);
    assert_non_null(strstr(diag.message, "no CUDA driver: /no/such/library.so"));
    setenv("ASHLAR_CUDA_DRIVER", "libc.so.6", 1);
    assert_status(ash_device_open(f->context, "CUDA:0", &device, &diag), ASH_ERROR_DEVICE);
    assert_non_null(strstr(diag.message, "it has no cuInit"));
    if (access(stub, R_OK) == 0) { /* the toolkit has one to link with */
        setenv("ASHLAR_CUDA_DRIVER", stub, 1);
        assert_status(ash_device_open(f->context, "CUDA:0", &device, &diag), ASH_ERROR_DEVICE);
        assert_non_null(strstr(diag.message, "is a stub"));
    }
    unsetenv("ASHLAR_CUDA_DRIVER");
    assert_null(device);
}

int main(void) {
    if (!gpu_is_compiled_for()) return GPU_SKIPPED;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(kernels_of_every_shape, setup, teardown),
        cmocka_unit_test_setup_teardown(indices_have_32_bits, setup, teardown),
        cmocka_unit_test_setup_teardown(every_shape_is_assembled, setup, teardown),
        cmocka_unit_test_setup_teardown(tiles_do_not_spill, setup, teardown),
        cmocka_unit_test_setup_teardown(threads_have_no_stack, setup, teardown),
        cmocka_unit_test_setup_teardown(main_loops, setup, teardown),
        cmocka_unit_test(main_loops_multiply),
        cmocka_unit_test(bytes_from_anywhere),
        cmocka_unit_test(kinds_of_gpus),
        cmocka_unit_test_setup_teardown(plans_for_gpus_that_are_not_there, setup, teardown),
        cmocka_unit_test_setup_teardown(precisions, setup, teardown),
        cmocka_unit_test_setup_teardown(drivers_that_are_not_there, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
