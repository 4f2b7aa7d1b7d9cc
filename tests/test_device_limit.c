/* SPDX-License-Identifier: MIT */
/* Memory that the process can never have is refused when it is asked for, not when it is touched; what
 * control groups grant is read from made-up folders. */
#include "testing.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "ashlar/builder.h"
#include "ashlar/plan.h"
#include "base/base.h"
#include "device/limit.h"

static ash_diag diag;

#define GIB ((uint64_t)1 << 30)

/* --- control groups ----------------------------------------------------------------------------- */

struct tree {
    char root[64], groups[96];
};

static void put_text(const char *path, const char *text) {
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    fputs(text, file);
    assert_int_equal(fclose(file), 0);
}

/* A file below the root, with the folders on the way. */
static void put(const struct tree *tree, const char *name, const char *text) {
    char path[256];
    snprintf(path, sizeof path, "%s/%s", tree->root, name);
    for (char *at = path + strlen(tree->root) + 1; (at = strchr(at, '/')); at++) {
        *at = '\0';
        mkdir(path, 0777);
        *at = '/';
    }
    put_text(path, text);
}

static void make_tree(struct tree *tree, const char *groups) {
    strcpy(tree->root, "/tmp/ashlar_limit_XXXXXX");
    assert_non_null(mkdtemp(tree->root));
    snprintf(tree->groups, sizeof tree->groups, "%s/groups", tree->root);
    put_text(tree->groups, groups);
}

static uint64_t limit(const struct tree *tree) {
    return ash_limit__groups(tree->groups, tree->root, 16 * GIB, 4 * GIB);
}

static void drop_tree(const struct tree *tree) {
    char command[128];
    snprintf(command, sizeof command, "rm -r '%s'", tree->root);
    assert_int_equal(system(command), 0);
}

static void groups_of_the_second_version(void **state) {
    (void)state;
    struct tree tree;
    make_tree(&tree, "0::/a/b\n");
    assert_int_equal(limit(&tree), 20 * GIB); /* nothing is known of it */
    put(&tree, "a/b/memory.max", "max\n");
    assert_int_equal(limit(&tree), 20 * GIB);
    put(&tree, "a/b/memory.max", "8589934592\n");
    assert_int_equal(limit(&tree), 12 * GIB);
    put(&tree, "a/b/memory.swap.max", "1073741824\n");
    assert_int_equal(limit(&tree), 9 * GIB);
    put(&tree, "a/memory.max", "2147483648\n"); /* the group around it */
    assert_int_equal(limit(&tree), 6 * GIB);
    put(&tree, "a/memory.swap.max", "0\n");
    assert_int_equal(limit(&tree), 2 * GIB);
    put(&tree, "memory.max", "1073741824\n"); /* and the root, as a container sees it */
    put(&tree, "memory.swap.max", "0\n");
    assert_int_equal(limit(&tree), GIB);
    drop_tree(&tree);
}

static void groups_of_the_first_version(void **state) {
    (void)state;
    struct tree tree;
    make_tree(&tree, "5:cpu,cpuacct:/x\n4:memory:/a/b\n0::/\n");
    put(&tree, "memory/a/b/memory.limit_in_bytes", "9223372036854771712\n");
    put(&tree, "memory/memory.limit_in_bytes", "9223372036854771712\n");
    assert_int_equal(limit(&tree), 20 * GIB);
    put(&tree, "memory/a/memory.limit_in_bytes", "3221225472\n");
    assert_int_equal(limit(&tree), 7 * GIB);
    put(&tree, "memory/a/memory.memsw.limit_in_bytes", "4294967296\n");
    assert_int_equal(limit(&tree), 4 * GIB);
    drop_tree(&tree);
}

static void files_that_are_none(void **state) {
    (void)state;
    static const char *const texts[] = {
        "", "\n\n", "0:", "::", "memory", "0::", "7:memory:", "0::/../../\n:::::\n"};
    for (size_t i = 0; i < ASH_COUNT(texts); i++) {
        struct tree tree;
        make_tree(&tree, texts[i]);
        put(&tree, "memory/memory.limit_in_bytes", "none\n");
        assert_int_equal(limit(&tree), 20 * GIB);
        drop_tree(&tree);
    }
    assert_int_equal(ash_limit__groups("/nowhere", "/nowhere", 16 * GIB, 0), 16 * GIB);
    assert_int_equal(ash_limit__groups("/nowhere", "/nowhere", UINT64_MAX, 5), UINT64_MAX);
}

/* --- storage ------------------------------------------------------------------------------------ */

static void more_than_there_is(void **state) {
    (void)state;
    ash_context *context;
    ash_device *cpu;
    ash_storage *all[3];
    char number[32];
    uint64_t most = ash_limit__memory();
    assert_ok(ash_context_create(NULL, &context, &diag));
    assert_ok(ash_device_open(context, "CPU", &cpu, &diag));
    assert_ok(ash_storage_create(cpu, (uint64_t)3 << 40, 0, &all[0], &diag));
    assert_status(ash_storage_allocate(all[0], &diag), ASH_ERROR_OUT_OF_MEMORY);
    assert_non_null(strstr(diag.message, "3298534883328 bytes asked for"));
    snprintf(number, sizeof number, "%llu", (unsigned long long)most);
    assert_non_null(strstr(diag.message, number));
    ash_storage_release(all[0]);
    /* What is out counts, and what was given back does not. */
    for (int round = 0; round < 3; round++) {
        for (int i = 0; i < 3; i++) {
            assert_ok(ash_storage_create(cpu, most / 10 * 4, 0, &all[i], &diag));
            assert_int_equal(ash_storage_allocate(all[i], &diag), i < 2 ? ASH_OK : ASH_ERROR_OUT_OF_MEMORY);
        }
        for (int i = 0; i < 3; i++) ash_storage_release(all[i]);
    }
    ash_device_close(cpu);
    ash_context_destroy(context);
}

/* The arena of a plan: its size is known before, and it is refused when it is needed. */
static void an_arena_that_is_too_large(void **state) {
    (void)state;
    ash_context *context;
    ash_graph *g;
    ash_plan *plan;
    assert_ok(ash_context_create(NULL, &context, &diag));
    assert_ok(ash_graph_create(context, "g", &g, &diag));
    ash_type type = {.dtype = ASH_F32, .rank = 1, .dims = {(int64_t)3 << 38}};
    ash_graph_output(g, "y", ash_neg(g, ash_graph_input(g, "x", &type)));
    assert_ok(ash_plan_prepare(context, g, NULL, &plan, &diag));
    assert_true(ash_plan_arena_size(plan) >= (uint64_t)3 << 40);
    ash_view *view;
    assert_status(ash_plan_input(plan, 0, &view, &diag), ASH_ERROR_OUT_OF_MEMORY);
    assert_status(ash_plan_execute(plan, &diag), ASH_ERROR_STATE);
    ash_plan_destroy(plan);
    ash_graph_destroy(g);
    ash_context_destroy(context);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(groups_of_the_second_version), cmocka_unit_test(groups_of_the_first_version),
        cmocka_unit_test(files_that_are_none),          cmocka_unit_test(more_than_there_is),
        cmocka_unit_test(an_arena_that_is_too_large),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
