/* SPDX-License-Identifier: MIT */
/* Where external data may lie: links and detours inside the model's folder are followed, and nothing
 * outside of it is read. */
#include "testing.h"

#include <sys/stat.h>
#include <unistd.h>

#include "ashlar/onnx.h"
#include "base/base.h"
#include "onnx_bytes.h"

static ash_diag diag;
static ash_context *context;
static char root[] = "/tmp/ashlar_external_XXXXXX";

/* What lies in the folder, in the order of making; a `to` of NULL is a folder, "" a file of 16 bytes, and
 * "model LOCATION" a model with its weight there. */
static const struct entry {
    const char *path, *to;
} entries[] = {
    {"m", NULL},
    {"m/sub", NULL},
    {"out", NULL},
    {"m2", NULL},
    {"m/w.bin", ""},
    {"m/sub/w.bin", ""},
    {"out/w.bin", ""},
    {"m2/w.bin", ""},
    {"m/in.bin", "w.bin"},
    {"m/out.bin", "../out/w.bin"},
    {"m/indir", "sub"},
    {"m/outdir", "../out"},
    {"m/dangling", "nowhere"},
    {"m/round", "round"},
    {"blobs", NULL},
    {"snapshots", NULL},
    {"snapshots/1", NULL},
    {"blobs/abc", "model model.onnx_data"},
    {"blobs/def", ""},
    {"snapshots/1/model.onnx", "../../blobs/abc"},
    {"snapshots/1/model.onnx_data", "../../blobs/def"},
    {"blobs/thief", "model passwords"},
    {"snapshots/1/thief.onnx", "../../blobs/thief"},
    {"snapshots/1/passwords", "../../out/w.bin"},
    {"link", "m"},
};

static bytes model_at(const char *location) {
    static const int64_t four[] = {4};
    bytes graph = {.len = 0}, node = make_node("n", "Neg", "w", NULL, "y"), t = {.len = 0},
          place = {.len = 0}, y = make_info("y", four, 1);
    put_text(&place, 1, "location");
    put_text(&place, 2, location);
    put_int(&t, 1, 4);
    put_int(&t, 2, 1);
    put_text(&t, 8, "w");
    put_message(&t, 13, &place);
    put_int(&t, 14, 1);
    put_message(&graph, 1, &node);
    put_message(&graph, 5, &t);
    put_message(&graph, 12, &y);
    return make_model(&graph, 13);
}

static void write_file(const char *path, const void *data, size_t size) {
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(data, 1, size, f), size);
    fclose(f);
}

static int set_up(void **state) {
    (void)state;
    static const float weight[4] = {1, 2, 3, 4};
    if (!mkdtemp(root) || chdir(root) != 0) return 1;
    for (size_t i = 0; i < ASH_COUNT(entries); i++) {
        const struct entry *e = &entries[i];
        if (!e->to) {
            if (mkdir(e->path, 0700) != 0) return 1;
        } else if (strncmp(e->to, "model ", 6) == 0) {
            bytes model = model_at(e->to + 6);
            write_file(e->path, model.at, model.len);
        } else if (!*e->to) {
            write_file(e->path, weight, sizeof weight);
        } else if (symlink(e->to, e->path) != 0) {
            return 1;
        }
    }
    return ash_context_create(NULL, &context, &diag) != ASH_OK;
}

static int tear_down(void **state) {
    (void)state;
    ash_context_destroy(context);
    for (size_t i = ASH_COUNT(entries); i-- > 0;)
        if (entries[i].to)
            unlink(entries[i].path);
        else
            rmdir(entries[i].path);
    return chdir("/") != 0 || rmdir(root) != 0;
}

static ash_status read_model(const char *path) {
    ash_graph *graph = NULL;
    ash_status status = ash_onnx_read(context, path, NULL, &graph, &diag);
    ash_graph_destroy(graph);
    return status;
}

static void test_locations(void **state) {
    (void)state;
    static const struct {
        const char *location;
        ash_status status;
    } cases[] = {
        {"w.bin", ASH_OK},
        {"./w.bin", ASH_OK},
        {"sub/w.bin", ASH_OK},
        {"sub/../w.bin", ASH_OK},
        {"sub//./w.bin", ASH_OK},
        {"in.bin", ASH_OK},
        {"indir/w.bin", ASH_OK},
        {"outdir/../m/w.bin", ASH_OK}, /* a detour that ends inside */
        {"out.bin", ASH_ERROR_FORMAT},
        {"outdir/w.bin", ASH_ERROR_FORMAT},
        {"outdir/../m2/w.bin", ASH_ERROR_FORMAT}, /* a folder whose name begins alike */
        {"../m/w.bin", ASH_ERROR_FORMAT},
        {"../out/w.bin", ASH_ERROR_FORMAT},
        {"sub/../../out/w.bin", ASH_ERROR_FORMAT},
        {"/etc/passwd", ASH_ERROR_FORMAT},
        {"sub", ASH_ERROR_IO},
        {"w.bin/..", ASH_ERROR_FORMAT},
        {"dangling", ASH_ERROR_NOT_FOUND},
        {"w.bin/x", ASH_ERROR_NOT_FOUND},
        {"round", ASH_ERROR_IO},
    };
    for (size_t i = 0; i < ASH_COUNT(cases); i++) {
        bytes model = model_at(cases[i].location);
        write_file("m/model.onnx", model.at, model.len);
        static const char *const paths[] = {"m/model.onnx", "./m/../m/model.onnx", "link/model.onnx"};
        for (size_t k = 0; k < ASH_COUNT(paths); k++) {
            ash_status status = read_model(paths[k]);
            if (status != cases[i].status)
                fail_msg("'%s' of %s is %s, not %s: %s", cases[i].location, paths[k],
                         ash_status_text(status), ash_status_text(cases[i].status), diag.message);
        }
        assert_int_equal(chdir("m"), 0);
        assert_int_equal(read_model("model.onnx"), cases[i].status);
        assert_int_equal(chdir(".."), 0);
    }
    unlink("m/model.onnx");
}

/* Model and data are links to files that lie beside each other under other names. */
static void test_caches_of_models(void **state) {
    (void)state;
    assert_ok(read_model("snapshots/1/model.onnx"));
    assert_status(read_model("snapshots/1/thief.onnx"), ASH_ERROR_FORMAT);
    assert_non_null(strstr(diag.message, "leads out of the model's folder"));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_locations),
        cmocka_unit_test(test_caches_of_models),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
