/* SPDX-License-Identifier: MIT */
/* Zeroed options are the defaults: they make the same, byte for byte, as NULL and as what the functions for
 * defaults say. */
#include "testing.h"

#include <unistd.h>

#include "ashlar/builder.h"
#include "ashlar/memory.h"
#include "ashlar/onnx.h"
#include "ashlar/plan.h"

static ash_diag diag;

enum { ROOM = 1 << 22 }; /* bytes, more than a model of these has */

/* Every padding byte of these is zero: they are static. */
static const ash_plan_options zero_plan;
static const ash_memory_options zero_memory;
static const ash_onnx_options zero_onnx;
static const ash_onnx_write_options zero_write;
static const ash_context_options zero_context;

static ash_graph *make_graph(ash_context *context) {
    ash_graph *g;
    static float weights[64 * 64 * 9];
    const ash_type image = {ASH_F32, 4, {1, 64, 28, 28}}, window = {ASH_F32, 4, {64, 64, 3, 3}};
    const ash_window w = {.before = 1, .after = 1}, both[] = {w, w};
    for (size_t i = 0; i < sizeof weights / sizeof *weights; i++) weights[i] = (float)(i % 7) - 3;
    assert_ok(ash_graph_create(context, "g", &g, &diag));
    ash_value x = ash_graph_input(g, "x", &image);
    ash_value k = ash_graph_constant(g, &window, weights, sizeof weights, ASH_DATA_COPY);
    for (int i = 0; i < 2; i++) x = ash_relu(g, ash_conv(g, x, k, both, 2, 1));
    ash_graph_output(g, "y", ash_softmax(g, x, 1));
    assert_ok(ash_graph_status(g, &diag));
    return g;
}

/* Everything that a plan tells of itself, as one text. */
static char *describe(const ash_context *context, ash_plan *plan) {
    size_t size = 1 << 20, at = 0;
    char *text = malloc(size);
#define SAY(...) at += (size_t)snprintf(text + at, size - at, __VA_ARGS__), assert_true(at < size)
    ash_plan_report r = ash_plan_describe(plan);
    SAY("%llu %llu %zu %zu %u %u\n", (unsigned long long)ash_plan_arena_size(plan),
        (unsigned long long)r.weights, r.ops, r.kernels, r.threads, r.mode);
    for (uint32_t i = 0; i < ash_plan_buffer_count(plan); i++) {
        ash_buffer_info b = ASH_INIT(ash_buffer_info);
        assert_ok(ash_plan_buffer_at(plan, i, &b, &diag));
        SAY("%d %llu %u %u %llu\n", (int)b.role, (unsigned long long)b.bytes, b.root, b.arena,
            (unsigned long long)b.offset);
    }
    for (uint32_t i = 0; i < ash_plan_kernel_count(plan); i++) {
        char *nest;
        size_t len;
        assert_ok(ash_plan_kernel_source(plan, i, ASH_SOURCE_NEST, &nest, &len, &diag));
        SAY("%s", nest);
        ash_context_free_text(context, nest, len);
    }
#undef SAY
    return text;
}

static char *prepared(ash_context *context, const ash_plan_options *options) {
    ash_graph *g = make_graph(context);
    ash_plan *plan;
    assert_ok(ash_plan_prepare(context, g, options, &plan, &diag));
    char *text = describe(context, plan);
    ash_plan_destroy(plan);
    ash_graph_destroy(g);
    return text;
}

static void plans(void **state) {
    ash_context *context;
    (void)state;
    assert_ok(ash_context_create(&zero_context, &context, &diag));
    ash_plan_options defaults = ash_plan_options_default(), other = {.no_fuse = true}, unsized = defaults;
    unsized.size = 0;
    assert_memory_equal(&unsized, &zero_plan, sizeof unsized);
    char *texts[] = {prepared(context, NULL), prepared(context, &zero_plan), prepared(context, &defaults),
                     prepared(context, &other)};
    assert_string_equal(texts[0], texts[1]);
    assert_string_equal(texts[0], texts[2]);
    assert_string_not_equal(texts[0], texts[3]);
    for (int way = 0; way < 2; way++) { /* each is off by saying so */
        ash_plan_options off = {.no_optimize = way == 0, .no_winograd = way == 1};
        char *text = prepared(context, &off);
        assert_string_not_equal(text, texts[0]);
        free(text);
    }
    for (size_t i = 0; i < 4; i++) free(texts[i]);
    ash_context_destroy(context);
}

static void memory_plans(void **state) {
    ash_context *context;
    ash_memory_plan *plans_[3];
    enum { N = 40 };
    ash_memory_buffer b[N];
    (void)state;
    assert_ok(ash_context_create(NULL, &context, &diag));
    ash_memory_options defaults = ash_memory_options_inference();
    assert_memory_equal(&defaults, &zero_memory, sizeof defaults);
    for (int i = 0; i < N; i++) {
        b[i] = ash_memory_buffer_init((uint64_t)(64 + i * 7919 % 640), 16, i, i + 1 + i % 9);
        b[i].kind = (ash_memory_kind)(i % ASH_MEMORY_STATE); /* inputs, parameters, constants too */
    }
    const ash_memory_problem problem = {.buffers = b, .buffer_count = N};
    const ash_memory_options *const ways[] = {NULL, &zero_memory, &defaults};
    for (int i = 0; i < 3; i++)
        assert_ok(ash_memory_plan_create(context, &problem, ways[i], &plans_[i], &diag));
    for (uint32_t i = 0; i < N; i++) {
        ash_memory_place first = ash_memory_plan_places(plans_[0], NULL)[i];
        assert_int_equal(first.reason, ASH_MEMORY_PLACED);
        for (int k = 1; k < 3; k++) {
            ash_memory_place place = ash_memory_plan_places(plans_[k], NULL)[i];
            assert_memory_equal(&first, &place, sizeof first);
        }
    }
    for (int i = 0; i < 3; i++) ash_memory_plan_destroy(plans_[i]);
    ash_context_destroy(context);
}

static char *read_file(const char *path, size_t *size) {
    FILE *f = fopen(path, "rb");
    assert_non_null(f);
    char *data = malloc(ROOM);
    *size = fread(data, 1, ROOM, f);
    fclose(f);
    return data;
}

static void models(void **state) {
    ash_context *context;
    char folder[] = "/tmp/ashlar_options_XXXXXX", path[2][64], *data[2], *text[2];
    size_t size[2], len[2];
    (void)state;
    assert_non_null(mkdtemp(folder));
    assert_ok(ash_context_create(NULL, &context, &diag));
    ash_graph *g = make_graph(context);
    for (int i = 0; i < 2; i++) {
        ash_graph *back;
        snprintf(path[i], sizeof path[i], "%s/%d.onnx", folder, i);
        assert_ok(ash_onnx_write(g, path[i], i ? &zero_write : NULL, &diag));
        data[i] = read_file(path[i], &size[i]);
        assert_ok(ash_onnx_read(context, path[i], i ? &zero_onnx : NULL, &back, &diag));
        assert_ok(ash_graph_print(back, true, &text[i], &len[i], &diag));
        ash_graph_destroy(back);
        unlink(path[i]);
    }
    assert_int_equal(size[0], size[1]);
    assert_memory_equal(data[0], data[1], size[0]);
    assert_string_equal(text[0], text[1]);
    for (int i = 0; i < 2; i++) {
        free(data[i]);
        ash_context_free_text(context, text[i], len[i]);
    }
    ash_graph_destroy(g);
    ash_context_destroy(context);
    assert_int_equal(rmdir(folder), 0);
}

static void contexts(void **state) {
    ash_context *context[2];
    (void)state;
    for (int i = 0; i < 2; i++) assert_ok(ash_context_create(i ? &zero_context : NULL, &context[i], &diag));
    assert_int_equal(ash_context_threads(context[0]), ash_context_threads(context[1]));
    for (int i = 0; i < 2; i++) ash_context_destroy(context[i]);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(plans),
        cmocka_unit_test(memory_plans),
        cmocka_unit_test(models),
        cmocka_unit_test(contexts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
