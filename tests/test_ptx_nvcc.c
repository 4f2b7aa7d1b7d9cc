/* SPDX-License-Identifier: MIT */
/* Nests as CUDA C (nvcc/cuda_c.h): what nvcc makes of a nest computes, on the stand-in, the bits of what we
 * make of it. Where nvcc is not installed the text is made all the same. */
#include <unistd.h>

#include "code/code.h"
#include "differential.h"
#include "gpu_here.h"
#include "ir/build.h"
#include "nvcc/cuda_c.h"
#include "one_graph.h"
#include "opt/opt.h"
#include "ptx_steps.h"
#include "toolkit.h"

static ash_diag diag;

static const char *nvcc(void) {
    static char path[256];
    return path[0] ? path : find_tool("NVCC", "nvcc", path);
}

static void our_text(const ash_target *target, const ash_nest *nest, ash_text *out) {
    assert_ok(ash_code__assembly(target, nest, out, &diag));
}

static void put_file(const char *path, const ash_text *text) {
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    assert_int_equal(fwrite(text->at, 1, text->len, file), text->len);
    assert_int_equal(fclose(file), 0);
}

static void append_file(const char *path, ash_text *out) {
    char piece[4096];
    size_t n;
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    while ((n = fread(piece, 1, sizeof piece, file)) > 0) ash_text_add_bytes(out, piece, n);
    fclose(file);
}

static void text_of_nvcc(const ash_target *target, const ash_nest *nest, ash_text *out) {
    char folder[] = "/tmp/ashlar_nvcc_XXXXXX", source[64], ptx[64], command[1024];
    ash_text text;
    assert_non_null(mkdtemp(folder));
    snprintf(source, sizeof source, "%s/k.cu", folder);
    snprintf(ptx, sizeof ptx, "%s/k.ptx", folder);
    ash_text_init(&text, &ash_allocator__libc);
    assert_ok(cuda_c_print(nest, &text, &diag));
    put_file(source, &text);
    ash_text_free(&text);
    snprintf(command, sizeof command, "'%s' -ptx -O3 --fmad=false -w -arch=%s -I '%s/tests/nvcc' -o %s %s",
             nvcc(), target->cpu, ASH_SOURCE_DIR, ptx, source);
    if (system(command) != 0) fail_msg("%s", command);
    append_file(ptx, out);
    unlink(source);
    unlink(ptx);
    rmdir(folder);
}

/* One product or convolution; with a window of 0, of matrices, the first rows by inner by columns. */
typedef struct form {
    int64_t m, k, n, window, stride;
    unsigned turned;
} form;

static void make(const form *c) {
    enum { MOST = 64 * 64 * 9 };
    static float numbers[MOST];
    ash_graph *g = next_graph();
    ash_value y;
    if (c->window) {
        const ash_type of = {.dtype = ASH_F32, .rank = 4, .dims = {c->m, c->k, c->window, c->window}};
        const size_t count = (size_t)(c->m * c->k * c->window * c->window);
        assert_true(count <= MOST);
        for (size_t i = 0; i < count; i++) numbers[i] = (float)((int)(i * 37 % 15) - 7) / 8;
        ash_value w = ash_graph_constant(g, &of, numbers, count * sizeof *numbers, ASH_DATA_COPY);
        y = ash_conv2d(g, INPUT(g, "x", 1, c->k, c->n, c->n), w, c->stride, c->window / 2, 1);
    } else {
        y = ash_add(g, product_of(g, ASH_F32, c->m, c->k, c->n, c->turned), INPUT(g, "bias", c->n));
    }
    ash_graph_output(g, "y", ash_relu(g, y));
}

static ash_program *lower(const char *kind) {
    ash_target target;
    ash_program *p;
    ash_graph *fast;
    assert_ok(ash_target__named(kind, &target, &diag));
    assert_ok(ash_opt__run(graph, &target, NULL, &fast, &diag));
    assert_ok(ash_program__lower(fast, &target, NULL, &p, &diag));
    ash_graph_destroy(fast);
    return p;
}

static const form forms[] = {
    {.m = 128, .k = 64, .n = 128},
    {.m = 128, .k = 64, .n = 128, .turned = 3},
    {.m = 61, .k = 300, .n = 53, .turned = 1},
    {.m = 1024, .k = 32, .n = 1024},
    {.m = 64, .k = 64, .n = 28, .window = 1, .stride = 1},
    {.m = 64, .k = 64, .n = 17, .window = 1, .stride = 2},
    {.m = 64, .k = 64, .n = 28, .window = 3, .stride = 1},
    {.m = 32, .k = 64, .n = 15, .window = 3, .stride = 2},
    {.m = 64, .k = 3, .n = 56, .window = 7, .stride = 2},
};

/* There is C for all kernels of products and convolutions of f32, and for none that multiplies matrices. */
static void all_have_text(void **state) {
    (void)state;
    static const char *const kinds[] = {"sm_80", "sm_90"};
    for (size_t i = 0; i < ASH_COUNT(forms) * ASH_COUNT(kinds); i++) {
        make(&forms[i / ASH_COUNT(kinds)]);
        ash_program *p = lower(kinds[i % ASH_COUNT(kinds)]);
        for (size_t k = 0; k < p->nests.len; k++) {
            ash_text text;
            int depth = 0;
            ash_text_init(&text, &ash_allocator__libc);
            assert_ok(cuda_c_print(&p->nests.at[k], &text, &diag));
            for (size_t at = 0; at < text.len; at++) depth += (text.at[at] == '{') - (text.at[at] == '}');
            assert_int_equal(depth, 0);
            assert_int_equal(!p->nests.at[k].threads, !strstr(text.at, "true>(record)"));
            ash_text_free(&text);
        }
        ash_program__free(p);
    }
    ash_graph *g = next_graph();
    ash_graph_output(g, "y", product_of(g, ASH_F16, 64, 64, 64, 0));
    ash_program *p = lower("sm_80");
    ash_text text;
    ash_text_init(&text, &ash_allocator__libc);
    assert_status(cuda_c_print(&p->nests.at[p->nests.len - 1], &text, &diag), ASH_ERROR_UNSUPPORTED);
    ash_text_free(&text);
    ash_program__free(p);
}

static void the_same_bits(void **state) {
    (void)state;
    NEED_TOOL(nvcc, "NVCC");
    for (size_t i = 0; i < ASH_COUNT(forms); i++) {
        ptx_counters ours, theirs;
        make(&forms[i]);
        ash_program *p = lower("sm_80");
        ash_wide *inputs = test_inputs(graph, NULL), *expected = test_expected(graph, inputs, NULL);
        void **mine = ptx_steps_run(p, inputs, i, 1, our_text, &ours),
             **other = ptx_steps_run(p, inputs, i, 1, text_of_nvcc, &theirs);
        test_compare_outputs(p, mine, expected, 1e-5);
        for (size_t b = 0; b < p->outputs.len; b++) {
            const uint32_t y = p->outputs.at[b];
            assert_memory_equal(mine[y], other[y], (size_t)p->buffers.at[y].bytes);
        }
        assert_int_equal(ours.multiply_adds, theirs.multiply_adds);
        assert_int_equal(ours.barriers, theirs.barriers);
        assert_int_equal(ours.global_store.bytes, theirs.global_store.bytes);
        ptx_steps_free(p, mine);
        ptx_steps_free(p, other);
        ash_program__free(p);
        test_free_expected(graph, expected);
        test_free_inputs(graph, inputs);
    }
}

int main(void) {
    if (!gpu_is_compiled_for()) return GPU_SKIPPED;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(all_have_text, drop_graph),
        cmocka_unit_test_teardown(the_same_bits, drop_graph),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
