/* SPDX-License-Identifier: MIT */
/* Kernels that are right (tests/data/ptx), and the same with one line changed: the stand-in finds each
 * defect, and says which check did. A line is known by the mark at its end. */
#include <math.h>

#include "ptx_room.h"

/* The text of a kernel; the line marked //@mark is replaced ("" leaves it out), NULL: as it is. */
static char *kernel_text(const char *name, const char *mark, const char *line) {
    char path[256], at[32];
    snprintf(path, sizeof path, "%s/tests/data/ptx/%s.ptx", ASH_SOURCE_DIR, name);
    FILE *file = fopen(path, "rb");
    assert_non_null(file);
    char *text = calloc(1, 65536);
    assert_non_null(text);
    size_t len = fread(text, 1, 65535, file);
    fclose(file);
    assert_true(len > 0 && len < 65000);
    if (!mark) return text;
    snprintf(at, sizeof at, "//@%s\n", mark);
    char *end = strstr(text, at), *begin = end;
    if (!end) fail_msg("%s has no line //@%s", path, mark);
    while (begin[-1] != '\n') begin--;
    end += strlen(at) - 1;
    memmove(begin + strlen(line), end, strlen(end) + 1);
    memcpy(begin, line, strlen(line));
    return text;
}

static CUfunction load(ptx_room *room, uint64_t seed, const char *name, const char *mark,
                       const char *line) {
    ptx_room_open(room, seed);
    char *text = kernel_text(name, mark, line);
    ptx_room_load(room, text);
    free(text);
    return ptx_room_function(room, name);
}

static void fill(float *data, size_t n, unsigned seed) {
    for (size_t i = 0; i < n; i++) {
        seed = seed * 1664525u + 1013904223u;
        data[i] = (float)(int)(seed >> 16) / 32768.0f - 1;
    }
}

static void found(ptx_check check, CUresult code) {
    if (ptx_finding_check() != check || code == CUDA_SUCCESS)
        fail_msg("expected %s, found \"%s\" (%d)", ptx_check_name(check), ptx_finding(), code);
    ptx_reset(NULL, 0);
}

/* --- product -------------------------------------------------------------------------------------- */

enum { M = 64, N = 96, K = 80 };

static CUresult product(CUfunction f, unsigned more_blocks, float *c) {
    static float a[K * M], b[K * N];
    fill(a, K * M, 1);
    fill(b, K * N, 2);
    CUdeviceptr da = ptx_room_memory(a, sizeof a), db = ptx_room_memory(b, sizeof b),
                dc = ptx_room_memory(NULL, 4 * M * N);
    unsigned m = M, n = N, k = K;
    void *params[] = {&da, &db, &dc, &m, &n, &k};
    CUresult code = cuLaunchKernel(f, N / 32 + more_blocks, M / 32, 1, 64, 1, 1, 0, NULL, params, NULL);
    if (!code) code = cuCtxSynchronize();
    if (code) return code;
    assert_cu(cuMemcpyDtoH_v2(c, dc, 4 * M * N));
    for (int i = 0; i < M; i++) {
        for (int j = 0; j < N; j++) {
            double sum = 0;
            for (int l = 0; l < K; l++) sum += (double)a[l * M + i] * b[l * N + j];
            assert_true(fabs(sum - c[i * N + j]) < 1e-5);
        }
    }
    return code;
}

static void test_product(void **state) {
    (void)state;
    static float c[2][M * N];
    for (uint64_t seed = 0; seed < 2; seed++) {
        ptx_room room;
        assert_cu(product(load(&room, seed, "gemm", NULL, NULL), 0, c[seed]));
        ptx_counters n;
        ptx_counters_read("gemm", &n);
        assert_int_equal(n.launches, 1);
        assert_int_equal(n.blocks, M / 32 * (N / 32));
        assert_int_equal(n.multiply_adds, M * N * K);
        assert_int_equal(n.shared_load.conflicts, 0);
        assert_int_equal(n.shared_store.conflicts, 0);
        assert_int_equal(n.global_load.sectors * 32, n.global_load.bytes);
        assert_int_equal(n.global_store.sectors * 32, n.global_store.bytes);
        assert_int_equal(n.global_load.bytes, n.blocks * K * (32 + 32) * 4);
        assert_int_equal(n.barriers, n.blocks * (K / 16) * 2);
    }
    assert_memory_equal(c[0], c[1], sizeof c[0]);
    ptx_reset(NULL, 0);
}

static void broken_product(ptx_check check, const char *mark, const char *line) {
    static float c[M * N];
    for (uint64_t seed = 0; seed < 3; seed++) {
        ptx_room room;
        found(check, product(load(&room, seed, "gemm", mark, line), 0, c));
    }
}

static void test_product_without_its_first_barrier(void **state) {
    (void)state;
    broken_product(PTX_SHARED_RACE, "arrived", "");
}

static void test_product_without_its_second_barrier(void **state) {
    (void)state;
    broken_product(PTX_SHARED_RACE, "read", "");
}

static void test_product_that_waits_too_little(void **state) {
    (void)state;
    broken_product(PTX_ASYNC, "wait", "cp.async.wait_group 2;");
    broken_product(PTX_ASYNC, "wait", "");
}

static void test_product_with_a_pitch_off_by_one(void **state) {
    (void)state;
    broken_product(PTX_ALIGNMENT, "pitch", "add.u32 %pn, %n, 1; shl.b32 %pn, %pn, 2;");
    broken_product(PTX_BOUNDS, "pitch", "add.u32 %pn, %n, 4; shl.b32 %pn, %pn, 2;");
}

static void test_product_on_a_grid_too_wide(void **state) {
    (void)state;
    static float c[M * N];
    for (uint64_t seed = 0; seed < 3; seed++) {
        ptx_room room;
        CUresult code = product(load(&room, seed, "gemm", NULL, NULL), 1, c);
        /* Its columns are the next row's: it writes what others write, or reads past the end, whichever
         * comes first. */
        assert_true(ptx_finding_check() == PTX_BOUNDS || ptx_finding_check() == PTX_BLOCK_RACE);
        found(ptx_finding_check(), code);
    }
}

static void test_product_with_a_barrier_in_a_branch(void **state) {
    (void)state;
    broken_product(PTX_BARRIER, "read", "setp.lt.u32 %p, %t, 5; @%p ret; bar.sync 0;");
    broken_product(PTX_BARRIER, "read", "setp.lt.u32 %p, %t, 5; @%p bar.sync 0; @!%p bar.sync 0;");
}

/* --- transpose ------------------------------------------------------------------------------------ */

enum { WIDTH = 96, HEIGHT = 64 };

static CUresult transpose(CUfunction f, unsigned wider) {
    static float in[WIDTH * HEIGHT], out[WIDTH * HEIGHT];
    fill(in, WIDTH * HEIGHT, 3);
    CUdeviceptr from = ptx_room_memory(in, sizeof in), to = ptx_room_memory(NULL, sizeof out);
    unsigned width = WIDTH, height = HEIGHT;
    void *params[] = {&from, &to, &width, &height};
    CUresult code = cuLaunchKernel(f, WIDTH / 32, HEIGHT / 32 + wider, 1, 256, 1, 1, 0, NULL, params, NULL);
    if (!code) code = cuCtxSynchronize();
    if (code) return code;
    code = cuMemcpyDtoH_v2(out, to, sizeof out);
    if (code) return code;
    for (int y = 0; y < HEIGHT; y++)
        for (int x = 0; x < WIDTH; x++) assert_true(out[x * HEIGHT + y] == in[y * WIDTH + x]);
    return code;
}

static void test_transpose(void **state) {
    (void)state;
    ptx_room room;
    assert_cu(transpose(load(&room, 1, "transpose", NULL, NULL), 0));
    ptx_counters n;
    ptx_counters_read("transpose", &n);
    assert_int_equal(n.shared_load.conflicts + n.shared_store.conflicts, 0);
    assert_int_equal(n.global_load.sectors, 4 * n.global_load.requests);
    assert_int_equal(n.global_store.sectors, 4 * n.global_store.requests);
    assert_int_equal(n.global_store.requests, WIDTH * HEIGHT / 32);
    ptx_reset(NULL, 0);
}

/* Right, but the counters tell. */
static void test_transpose_with_bank_conflicts(void **state) {
    (void)state;
    ptx_room room;
    char *one = kernel_text("transpose", "pitch", "shl.b32 %s, %x, 7;"), *at;
    /* Rows of 32: the three lines that know of 33. */
    assert_non_null(at = strstr(one, "mul.lo.u32 %s, %y, 132;"));
    memcpy(at, "mul.lo.u32 %s, %y, 128;", 23);
    assert_non_null(at = strstr(one, "add.u32 %s, %s, 1056;"));
    memcpy(at, "add.u32 %s, %s, 1024;", 21);
    ptx_room_open(&room, 1);
    ptx_room_load(&room, one);
    free(one);
    assert_cu(transpose(ptx_room_function(&room, "transpose"), 0));
    ptx_counters n;
    ptx_counters_read("transpose", &n);
    assert_int_equal(n.shared_store.conflicts, 0);
    assert_int_equal(n.shared_load.wavefronts, 32 * n.shared_load.requests);
    assert_int_equal(n.shared_load.conflicts, 31 * n.shared_load.requests);
    ptx_reset(NULL, 0);
}

static void broken_transpose(ptx_check check, const char *mark, const char *line) {
    for (uint64_t seed = 0; seed < 3; seed++) {
        ptx_room room;
        found(check, transpose(load(&room, seed, "transpose", mark, line), 0));
    }
}

static void test_broken_transposes(void **state) {
    (void)state;
    broken_transpose(PTX_SHARED_RACE, "barrier", "");
    broken_transpose(PTX_UNINITIALISED, "pitch", "mul.lo.u32 %s, %x, 136;");
    broken_transpose(PTX_BOUNDS, "step", "add.u32 %s, %s, 1120;");
    ptx_room room;
    CUresult code = transpose(load(&room, 1, "transpose", NULL, NULL), 1);
    assert_true(ptx_finding_check() == PTX_BOUNDS || ptx_finding_check() == PTX_BLOCK_RACE);
    found(ptx_finding_check(), code);
}

/* --- sum ------------------------------------------------------------------------------------------ */

enum { ROWS = 5, COLUMNS = 1000 };

static CUresult sums(CUfunction f) {
    static float in[ROWS * COLUMNS], out[ROWS];
    fill(in, ROWS * COLUMNS, 4);
    CUdeviceptr from = ptx_room_memory(in, sizeof in), to = ptx_room_memory(NULL, sizeof out);
    unsigned n = COLUMNS;
    void *params[] = {&from, &to, &n};
    CUresult code = ptx_room_run(f, ROWS, 256, 0, params);
    if (code) return code;
    assert_cu(cuMemcpyDtoH_v2(out, to, sizeof out));
    for (int r = 0; r < ROWS; r++) {
        double sum = 0;
        for (int i = 0; i < COLUMNS; i++) sum += in[r * COLUMNS + i];
        assert_true(fabs(sum - out[r]) < 1e-4);
    }
    return code;
}

static void test_sum(void **state) {
    (void)state;
    ptx_room room;
    assert_cu(sums(load(&room, 1, "sum", NULL, NULL)));
    ptx_reset(NULL, 0);
}

static void test_broken_sums(void **state) {
    (void)state;
    static const struct {
        const char *mark, *line;
        ptx_check check;
    } defects[] = {
        {"barrier", "", PTX_SHARED_RACE},
        {"bound", "setp.gt.u32 %p, %i, %n;", PTX_BOUNDS},
        {"whole", "setp.ge.u32 %p, %t, 8;", PTX_CONVERGENCE},
    };
    for (size_t i = 0; i < sizeof defects / sizeof *defects; i++) {
        ptx_room room;
        CUresult code = sums(load(&room, i, "sum", defects[i].mark, defects[i].line));
        found(defects[i].check, code);
    }
}

/* --- matrices of a warp --------------------------------------------------------------------------- */

static uint16_t half_of(int value) { /* of small numbers: exact */
    uint16_t sign = value < 0 ? 0x8000 : 0;
    unsigned m = (unsigned)abs(value), e = 0;
    if (!m) return 0;
    while (m >> (e + 1)) e++;
    return (uint16_t)(sign | (e + 15) << 10 | (m << (10 - e) & 0x3ff));
}

static CUresult matrices(CUfunction f) {
    uint16_t a[16][16], b[16][8];
    float c[16][8];
    int ia[16][16], ib[16][8];
    for (int i = 0; i < 16; i++) {
        for (int j = 0; j < 16; j++) a[i][j] = half_of(ia[i][j] = (i * 7 + j * 13) % 31 - 15);
        for (int j = 0; j < 8; j++) b[i][j] = half_of(ib[i][j] = (i * 11 + j * 5) % 29 - 14);
    }
    CUdeviceptr da = ptx_room_memory(a, sizeof a), db = ptx_room_memory(b, sizeof b),
                dc = ptx_room_memory(NULL, sizeof c);
    void *params[] = {&da, &db, &dc};
    CUresult code = ptx_room_run(f, 1, 32, 0, params);
    if (code) return code;
    assert_cu(cuMemcpyDtoH_v2(c, dc, sizeof c));
    for (int i = 0; i < 16; i++) {
        for (int j = 0; j < 8; j++) {
            int sum = 0;
            for (int k = 0; k < 16; k++) sum += ia[i][k] * ib[k][j];
            assert_int_equal((int)c[i][j], sum);
        }
    }
    return code;
}

static void test_matrices(void **state) {
    (void)state;
    ptx_room room;
    assert_cu(matrices(load(&room, 1, "mma", NULL, NULL)));
    ptx_counters n;
    ptx_counters_read("mma", &n);
    assert_int_equal(n.matrix, 1);
    assert_int_equal(n.matrix_load.requests, 2);
    assert_int_equal(n.matrix_load.wavefronts, 6);
    assert_int_equal(n.matrix_load.conflicts, 0);
    found(PTX_SHARED_RACE, matrices(load(&room, 1, "mma", "warp", "")));
    found(PTX_CONVERGENCE,
          matrices(load(&room, 1, "mma", "mma",
                        "@%p mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%c0, %c1, %c2, %c3}, "
                        "{%a0, %a1, %a2, %a3}, {%b0, %b1}, {%c0, %c1, %c2, %c3};")));
}

/* --- hazards of what plans are made of -------------------------------------------------------------- */

/* What meets is bytes, wherever it begins: a fill of 64 bytes, and one of 8 on another stream. */
static CUresult two_fills(uint64_t seed, unsigned at) {
    ptx_room room;
    CUstream s[2];
    ptx_room_open(&room, seed);
    const CUdeviceptr memory = ptx_room_memory(NULL, 128);
    for (int i = 0; i < 2; i++) assert_cu(cuStreamCreate(&s[i], CU_STREAM_NON_BLOCKING));
    CUresult code = cuMemsetD8Async(memory, 1, 64, s[0]);
    if (!code) code = cuMemsetD8Async(memory + at, 2, 8, s[1]);
    return code ? code : cuCtxSynchronize();
}

static void test_ranges_that_meet(void **state) {
    (void)state;
    for (uint64_t seed = 0; seed < 4; seed++) {
        for (unsigned at = 57; at < 64; at++) found(PTX_STREAM_RACE, two_fills(seed, at));
        assert_cu(two_fills(seed, 64));
    }
    ptx_reset(NULL, 0);
}

/* No memory of a device has an address of 32 bits. */
static void test_an_address_that_is_cut(void **state) {
    (void)state;
    static const char *const texts[] = {
        PTX_HEAD
        ".visible .entry k(.param .u64 a) { .reg .b64 d; ld.param.u64 d, [a]; st.global.u32 [d], 1; }",
        PTX_HEAD ".visible .entry k(.param .u64 a) { .reg .b64 d; .reg .b32 r; ld.param.u64 d, [a]; "
                 "cvt.u32.u64 r, d; cvt.u64.u32 d, r; st.global.u32 [d], 1; }"};
    for (size_t i = 0; i < 2; i++) {
        ptx_room room;
        ptx_room_open(&room, 1);
        const CUfunction f = ptx_room_load(&room, texts[i]);
        CUdeviceptr to = ptx_room_memory(NULL, 4);
        void *params[] = {&to};
        const CUresult code = ptx_room_run(f, 1, 1, 0, params);
        if (i)
            found(PTX_BOUNDS, code);
        else
            assert_cu(code);
    }
}

/* Sums whose order nobody says have other bits on other seeds, those of integers the same. */
static uint32_t sum_by_atomics(uint64_t seed, const char *type) {
    char text[600];
    ptx_room room;
    uint32_t data[256], out = 0;
    snprintf(text, sizeof text,
             PTX_HEAD
             ".visible .entry k(.param .u64 to, .param .u64 from) { .reg .b64 d<3>; .reg .b32 r<2>;"
             "ld.param.u64 d0, [to]; ld.param.u64 d1, [from]; mov.u32 r0, %%ctaid.x;"
             "mad.lo.u32 r0, r0, 32, %%tid.x; mul.wide.u32 d2, r0, 4; add.u64 d1, d1, d2;"
             "ld.global.u32 r1, [d1]; red.global.add.%s [d0], r1; }",
             type);
    ptx_room_open(&room, seed);
    const CUfunction f = ptx_room_load(&room, text);
    for (unsigned i = 0; i < 256; i++) {
        const float part = 1 / (float)(i + 1); /* of a sum that is rounded */
        memcpy(&data[i], &part, sizeof part);
    }
    CUdeviceptr to = ptx_room_memory(&out, 4), from = ptx_room_memory(data, sizeof data);
    void *params[] = {&to, &from};
    assert_cu(ptx_room_run(f, 8, 32, 0, params));
    assert_cu(cuMemcpyDtoH_v2(&out, to, 4));
    return out;
}

static void test_sums_in_any_order(void **state) {
    (void)state;
    unsigned others = 0;
    for (uint64_t seed = 1; seed < 8; seed++) {
        others += sum_by_atomics(seed, "f32") != sum_by_atomics(0, "f32");
        assert_int_equal(sum_by_atomics(seed, "u32"), sum_by_atomics(0, "u32"));
    }
    assert_true(others > 0);
    ptx_reset(NULL, 0);
}

/* An instruction whose results are wrong, each or one of them: what it gives is seen, and no other. */
static void test_wrong_results(void **state) {
    (void)state;
    static const char text[] = PTX_HEAD
        ".visible .entry k(.param .u64 to) {\n.reg .b64 %to; .reg .b32 %r<3>;\nld.param.u64 %to, [to];\n"
        "mov.u32 %r0, %tid.x; add.u32 %r1, %r0, 6; mul.lo.u32 %r2, %r1, 4;\n"
        "mad.wide.u32 %to, %r0, 4, %to; st.global.u32 [%to], %r2; ret; }\n";
    for (unsigned n = 0; n < 3; n++) {
        ptx_room room;
        ptx_room_open(&room, 0);
        ptx_wrong(n == 2 ? "fma" : "mul", n);
        CUfunction f = ptx_room_load(&room, text);
        for (unsigned run = 0; run < 2; run++) {
            uint32_t got[2];
            CUdeviceptr to = ptx_room_memory(NULL, sizeof got);
            void *params[] = {&to};
            assert_cu(ptx_room_run(f, 1, 2, 0, params));
            assert_cu(cuMemcpyDtoH_v2(got, to, sizeof got));
            assert_int_equal(got[0], n == 0 || (n == 1 && run == 0) ? 25 : 24);
            assert_int_equal(got[1], 28);
            assert_cu(cuMemFree_v2(to));
        }
    }
    ptx_reset(NULL, 0);
}

/* What is right takes ptxas, where there is one. */
static void test_ptxas_takes_the_kernels(void **state) {
    (void)state;
    if (system("command -v ptxas >/dev/null 2>&1") != 0) skip();
    static const char *const names[] = {"gemm", "transpose", "sum", "mma"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        for (int sm = 80; sm <= 90; sm += 10) {
            char command[512];
            snprintf(command, sizeof command, "ptxas -arch=sm_%d -o /dev/null %s/tests/data/ptx/%s.ptx", sm,
                     ASH_SOURCE_DIR, names[i]);
            assert_int_equal(system(command), 0);
        }
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_product),
        cmocka_unit_test(test_product_without_its_first_barrier),
        cmocka_unit_test(test_product_without_its_second_barrier),
        cmocka_unit_test(test_product_that_waits_too_little),
        cmocka_unit_test(test_product_with_a_pitch_off_by_one),
        cmocka_unit_test(test_product_on_a_grid_too_wide),
        cmocka_unit_test(test_product_with_a_barrier_in_a_branch),
        cmocka_unit_test(test_transpose),
        cmocka_unit_test(test_transpose_with_bank_conflicts),
        cmocka_unit_test(test_broken_transposes),
        cmocka_unit_test(test_sum),
        cmocka_unit_test(test_broken_sums),
        cmocka_unit_test(test_matrices),
        cmocka_unit_test(test_ranges_that_meet),
        cmocka_unit_test(test_an_address_that_is_cut),
        cmocka_unit_test(test_sums_in_any_order),
        cmocka_unit_test(test_wrong_results),
        cmocka_unit_test(test_ptxas_takes_the_kernels),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
