/* SPDX-License-Identifier: MIT */
/* Broken files: truncated anywhere, bytes flipped, memory refused. An import or a read gives an error or a
 * graph that verifies; it never crashes, never hangs, and never asks for much more memory than the file is
 * long. The sanitized build runs this too. */
#include "testing.h"

#include <dirent.h>
#include <unistd.h>

#include "ashlar/onnx.h"
#include "base/base.h"
#include "random.h"

enum { LARGEST = 64 << 20 /* bytes of one allocation */, FLIPS = 2000, CUTS = 200 };

static const char *const fixtures[] = {
    "resnet_like", "inception_like", "mobilenet_like", "bert_like",    "shapes",    "typed_data",
    "recurrent",   "upsampler",      "einsum",         "mlp_external", "functions", "attention",
    "group_query", "few_bits",       "quantized_more", "newer",        "decoder",   "blocks"};

/* An allocator that remembers the largest request and what is live. */
typedef struct watcher {
    test_memory memory;
    size_t largest;
} watcher;

static void *watch_alloc(void *user, size_t size, size_t align) {
    watcher *w = user;
    if (size > w->largest) w->largest = size;
    return size > LARGEST ? NULL : test_memory_alloc(&w->memory, size, align);
}

static void watch_free(void *user, void *ptr, size_t size) {
    test_memory_free(&((watcher *)user)->memory, ptr, size);
}

static ash_context *watched(watcher *w) {
    ash_context *context;
    const ash_context_options options = {.allocator = {watch_alloc, watch_free, w}};
    assert_int_equal(ash_context_create(&options, &context, NULL), ASH_OK);
    return context;
}

static uint8_t *load(const char *fixture, const char *file, size_t *size) {
    char path[256];
    snprintf(path, sizeof path, "%s/tests/data/onnx/%s/%s", ASH_SOURCE_DIR, fixture, file);
    FILE *f = fopen(path, "rb");
    assert_non_null(f);
    fseek(f, 0, SEEK_END);
    *size = (size_t)ftell(f);
    rewind(f);
    uint8_t *data = malloc(*size);
    assert_int_equal(fread(data, 1, *size, f), *size);
    fclose(f);
    return data;
}

/* Imports bytes of exactly this length (so that a sanitizer sees the first byte read behind them). */
static ash_status try_import(ash_context *context, const uint8_t *data, size_t size) {
    ash_graph *graph = NULL;
    ash_diag diag;
    uint8_t *exact = malloc(size ? size : 1);
    memcpy(exact, data, size);
    ash_onnx_options bounded = {.var_min = 1, .var_max = 4096};
    if (ash_onnx_parse(context, exact, size, NULL, &graph, &diag) == ASH_OK) /* maybe with open dims */
        assert_ok(ash_graph_verify(graph, &diag));
    ash_graph_destroy(graph);
    graph = NULL;
    ash_status status = ash_onnx_parse(context, exact, size, &bounded, &graph, &diag);
    if (status == ASH_OK) {
        assert_ok(ash_graph_verify(graph, &diag));
        ash_graph_destroy(graph);
    } else {
        assert_null(graph);
        assert_int_equal(diag.code, status);
        assert_true(diag.message[0]);
        assert_int_not_equal(status, ASH_ERROR_INTERNAL);
    }
    free(exact);
    return status;
}

static void test_truncated_models(void **state) {
    (void)state;
    watcher w = {0};
    ash_context *context = watched(&w);
    for (size_t f = 0; f < ASH_COUNT(fixtures); f++) {
        size_t size;
        uint64_t seed = 88172645463325252u + f;
        uint8_t *data = load(fixtures[f], "model.onnx", &size);
        for (size_t i = 0; i < CUTS; i++) try_import(context, data, test_xorshift(&seed) % size);
        for (size_t len = 0; len < 64; len++) try_import(context, data, len);
        free(data);
    }
    ash_context_destroy(context);
    assert_int_equal(w.memory.live, 0);
    assert_true(w.largest <= LARGEST);
}

static void test_flipped_bytes(void **state) {
    (void)state;
    watcher w = {0};
    ash_context *context = watched(&w);
    for (size_t f = 0; f < ASH_COUNT(fixtures); f++) {
        size_t size;
        uint64_t seed = 2463534242u + f;
        uint8_t *data = load(fixtures[f], "model.onnx", &size);
        for (size_t i = 0; i < (TEST_SANITIZED ? FLIPS / 2 : FLIPS); i++) {
            /* Half of the flips in the first kilobyte of nodes, where structure is; weights make up the
             * rest. */
            size_t at = test_xorshift(&seed) % (i & 1 && size > 2048 ? 2048 : size);
            uint8_t old = data[at];
            data[at] = i % 4 < 2 ? (uint8_t)(old ^ (1u << (i / 4 % 8))) : (uint8_t)test_xorshift(&seed);
            try_import(context, data, size);
            data[at] = old;
        }
        free(data);
    }
    ash_context_destroy(context);
    assert_int_equal(w.memory.live, 0);
    assert_true(w.largest <= LARGEST);
}

/* Flips in the models of the ONNX backend tests: every operator that there is. */
static void flip_below(ash_context *context, const char *folder, uint64_t *seed, size_t flips,
                       size_t *models) {
    char path[4096];
    DIR *dir = opendir(folder);
    if (!dir) return;
    for (struct dirent *entry; (entry = readdir(dir));) {
        if (entry->d_name[0] == '.') continue;
        snprintf(path, sizeof path, "%s/%s", folder, entry->d_name);
        if (strcmp(entry->d_name, "model.onnx") != 0) {
            flip_below(context, path, seed, flips, models);
            continue;
        }
        static uint8_t data[1 << 20];
        FILE *f = fopen(path, "rb");
        size_t size = f ? fread(data, 1, sizeof data, f) : 0;
        if (f) fclose(f);
        for (size_t i = 0; i < flips && size; i++) {
            size_t at = test_xorshift(seed) % size;
            uint8_t old = data[at];
            data[at] = i & 1 ? (uint8_t)test_xorshift(seed) : (uint8_t)(old ^ (1u << (i / 2 % 8)));
            try_import(context, data, i % 10 == 9 ? at : size);
            data[at] = old;
        }
        ++*models;
    }
    closedir(dir);
}

static void test_flipped_backend_tests(void **state) {
    (void)state;
    watcher w = {0};
    ash_context *context = watched(&w);
    uint64_t seed = 123456789;
    size_t models = 0;
    const char *more = getenv("ASHLAR_TEST_FLIPS"); /* flips per model, for longer runs */
    flip_below(context, ASHLAR_ONNX_TESTDATA, &seed, more ? strtoul(more, NULL, 10) : 20, &models);
    ash_context_destroy(context);
    assert_int_equal(w.memory.live, 0);
    if (!models) {
        print_message("skipped: no ONNX backend tests in " ASHLAR_ONNX_TESTDATA "\n");
        skip();
    }
}

static void test_flipped_tensor_files(void **state) {
    (void)state;
    watcher w = {0};
    ash_context *context = watched(&w);
    char path[] = "/tmp/ashlar_robust_XXXXXX";
    const ash_type type = {.dtype = ASH_F32, .rank = 2, .dims = {3, 4}};
    float numbers[12] = {1};
    char npy[64];
    int fd = mkstemp(path);
    snprintf(npy, sizeof npy, "%s.npy", path);
    ash_tensor *tensor;
    ash_diag diag;
    assert_ok(ash_tensor_create(context, "t", &type, numbers, sizeof numbers, &tensor, &diag));
    assert_ok(ash_tensor_write(tensor, npy, &diag));
    ash_tensor_destroy(tensor);
    uint8_t data[512];
    FILE *f = fopen(npy, "rb");
    size_t size = fread(data, 1, sizeof data, f);
    fclose(f);
    uint64_t seed = 1;
    for (size_t i = 0; i < FLIPS; i++) {
        size_t at = test_xorshift(&seed) % size, len = i % 8 ? size : test_xorshift(&seed) % size;
        uint8_t old = data[at];
        data[at] = (uint8_t)test_xorshift(&seed);
        assert_int_equal(pwrite(fd, data, len, 0), len);
        assert_int_equal(ftruncate(fd, (off_t)len), 0);
        if (ash_tensor_read(context, path, &tensor, &diag) == ASH_OK) ash_tensor_destroy(tensor);
        data[at] = old;
    }
    close(fd);
    unlink(path);
    unlink(npy);
    ash_context_destroy(context);
    assert_int_equal(w.memory.live, 0);
}

/* Allocation 1, 2, 3, ... fails until the import succeeds; of models whose loops are imported again and
 * again, every 23rd. */
static void test_refused_memory(void **state) {
    (void)state;
    static const char *const some[] = {"bert_like", "upsampler", "typed_data",
                                       "computed",  "uneven",    "survivors"};
    for (size_t f = 0; f < 2 * ASH_COUNT(some); f++) {
        size_t size;
        bool open = f < ASH_COUNT(some);
        const long step = f % ASH_COUNT(some) < 4 ? 1 : 23;
        uint8_t *data = load(some[f % ASH_COUNT(some)], "model.onnx", &size);
        for (long n = 1;; n += step) {
            test_memory memory = {0};
            ash_allocator allocator = test_memory_allocator(&memory);
            ash_context *context;
            ash_graph *graph = NULL;
            ash_diag diag;
            assert_int_equal(
                ash_context_create(&(ash_context_options){.allocator = allocator}, &context, &diag),
                ASH_OK);
            memory.fail_at = memory.count + n;
            const ash_onnx_options bounded = {.var_min = 1, .var_max = 64};
            ash_status status = ash_onnx_parse(context, data, size, open ? NULL : &bounded, &graph, &diag);
            bool failed = memory.count >= memory.fail_at;
            memory.fail_at = 0;
            ash_graph_destroy(graph);
            ash_context_destroy(context);
            assert_int_equal(memory.live, 0);
            assert_int_equal(status, failed ? ASH_ERROR_OUT_OF_MEMORY : ASH_OK);
            if (!failed) break;
        }
        free(data);
    }
}

/* The same for writing models, with variable dims, one with loops, and for reading tensors. */
static void test_refused_memory_of_files(void **state) {
    (void)state;
    char model[256], tensor[256], path[] = "/tmp/ashlar_robust_XXXXXX";
    snprintf(tensor, sizeof tensor, "%s/tests/data/onnx/bert_like/test_data_set_1/output_0.pb",
             ASH_SOURCE_DIR);
    const ash_onnx_options bounded = {.var_min = 1, .var_max = 64};
    close(mkstemp(path));
    for (int kind = 0; kind < 4; kind++) {
        snprintf(model, sizeof model, "%s/tests/data/onnx/%s/model.onnx", ASH_SOURCE_DIR,
                 kind == 3 ? "loops" : "bert_like");
        for (long n = 1;; n++) {
            test_memory memory = {0};
            ash_allocator allocator = test_memory_allocator(&memory);
            ash_context *context;
            ash_graph *graph = NULL;
            ash_tensor *read = NULL;
            ash_diag diag;
            assert_int_equal(
                ash_context_create(&(ash_context_options){.allocator = allocator}, &context, &diag),
                ASH_OK);
            bool writes = kind == 0 || kind == 3;
            if (writes) assert_ok(ash_onnx_read(context, model, &bounded, &graph, &diag));
            memory.fail_at = memory.count + n;
            ash_status status = writes      ? ash_onnx_write(graph, path, NULL, &diag)
                                : kind == 1 ? ash_onnx_read(context, model, &bounded, &graph, &diag)
                                            : ash_tensor_read(context, tensor, &read, &diag);
            bool failed = memory.count >= memory.fail_at;
            memory.fail_at = 0;
            ash_tensor_destroy(read);
            ash_graph_destroy(graph);
            ash_context_destroy(context);
            assert_int_equal(memory.live, 0);
            assert_int_equal(status, failed ? ASH_ERROR_OUT_OF_MEMORY : ASH_OK);
            if (!failed) break;
        }
    }
    unlink(path);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_truncated_models),      cmocka_unit_test(test_flipped_bytes),
        cmocka_unit_test(test_flipped_backend_tests), cmocka_unit_test(test_flipped_tensor_files),
        cmocka_unit_test(test_refused_memory),        cmocka_unit_test(test_refused_memory_of_files),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
