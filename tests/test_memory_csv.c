/* SPDX-License-Identifier: MIT */
/* CSV in, solutions and reports out. */
#include "ashlar/memory_report.h"
#include "testing.h"

static ash_diag diag;
static ash_context *context;
static test_memory memory;

static ash_status read_text(const char *text, ash_memory_csv **csv) {
    return ash_memory_csv_read(context, text, strlen(text), csv, &diag);
}

static void reads_columns_in_any_order(void **state) {
    (void)state;
    ash_memory_csv *csv;
    assert_ok(read_text("\xef\xbb\xbfsize, upper,lower,id,hint,alignment,lane,offset\r\n8,5,-3,x "
                        "y,9,4,2,16\r\n\r\n7,1,0,b,,1,0,3",
                        &csv));
    const ash_memory_problem *p = ash_memory_csv_problem(csv);
    assert_int_equal(p->buffer_count, 2);
    assert_string_equal(p->buffers[0].name, "x y");
    assert_int_equal(p->buffers[0].begin, -3);
    assert_int_equal(p->buffers[0].end, 5);
    assert_int_equal(p->buffers[0].align, 4);
    assert_int_equal(p->buffers[0].lane, 2);
    const ash_memory_place *places = ash_memory_csv_places(csv);
    assert_int_equal(places[0].offset, 16);
    size_t arenas;
    const ash_memory_arena *a = ash_memory_csv_arenas(csv, &arenas);
    assert_int_equal(arenas, 2);
    assert_int_equal(a[0].used, 24);
    assert_int_equal(a[1].used, 10);
    assert_ok(ash_memory_check(context, p, places, a, arenas, NULL, &diag));
    ash_memory_csv_destroy(csv);
}

static void refuses_malformed_text(void **state) {
    (void)state;
    static const char *const bad[][2] = {
        {"", "empty"},
        {"id,lower,upper\n", "no column size"},
        {"id,lower,upper,size,size\n", "two columns"},
        {"id,lower,upper,size\na,0,1\n", "line 2 has 3 fields"},
        {"id,lower,upper,size\na,0,1,2,3\n", "line 2 has 5 fields"},
        {"id,lower,upper,size\na,0,1,x\n", "\"x\" is no number"},
        {"id,lower,upper,size\na,0,1,\n", "no number"},
        {"id,lower,upper,size\na,0,1,-4\n", "negative"},
        {"id,lower,upper,size\na,0,1,9223372036854775808\n", "no number of 64 bits"},
        {"id,lower,upper,size\na,0,1,4\nb,7,6,4\n", "line 3: the lifetime [7, 6)"},
        {"id,lower,upper,size,alignment\na,0,1,4,3\n", "power of two"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        ash_memory_csv *csv;
        assert_status(read_text(bad[i][0], &csv), ASH_ERROR_FORMAT);
        assert_null(csv);
        if (!strstr(diag.message, bad[i][1])) fail_msg("\"%s\" lacks \"%s\"", diag.message, bad[i][1]);
        assert_true(diag.file_offset != ASH_NO_OFFSET);
    }
}

static void solutions_read_back(void **state) {
    (void)state;
    ash_memory_csv *csv, *solved;
    ash_memory_plan *plan;
    char *text;
    uint64_t size;
    assert_ok(read_text(
        "id,lower,upper,size,alignment\nb1,0,3,4,4\nb2,3,9,4,1\nb3,0,9,4,2\nb4,9,21,4,1\nb5,0,21,4,4\n",
        &csv));
    assert_ok(ash_memory_plan_create(context, ash_memory_csv_problem(csv), NULL, &plan, &diag));
    assert_ok(ash_memory_report(context, ash_memory_csv_problem(csv), plan, ASH_MEMORY_SOLUTION, &text,
                                &size, &diag));
    assert_int_equal(strlen(text), size);
    assert_int_equal(strncmp(text, "id,lower,upper,size,alignment,offset\nb1,0,3,4,4,", 47), 0);
    assert_ok(read_text(text, &solved));
    size_t arenas;
    const ash_memory_arena *a = ash_memory_csv_arenas(solved, &arenas);
    assert_int_equal(a->used, 12);
    assert_ok(ash_memory_check(context, ash_memory_csv_problem(solved), ash_memory_csv_places(solved), a,
                               arenas, NULL, &diag));
    ash_memory_csv_destroy(solved);
    ash_context_free_text(context, text, size);
    static const char *const needles[] = {"12 bytes (bound 12", "b5,0,21", "<svg", "arenas.push"};
    for (int f = 0; f < ASH_MEMORY_FORMAT_COUNT; f++) {
        assert_ok(ash_memory_report(context, ash_memory_csv_problem(csv), plan, (ash_memory_format)f, &text,
                                    &size, &diag));
        assert_non_null(strstr(text, needles[f]));
        ash_context_free_text(context, text, size);
    }
    ash_memory_plan_destroy(plan);
    ash_memory_csv_destroy(csv);
}

/* Names cannot leave their place in a page. */
static void names_are_escaped(void **state) {
    (void)state;
    ash_memory_csv *csv;
    ash_memory_plan *plan;
    char *text;
    uint64_t size;
    assert_ok(read_text("id,lower,upper,size\n</script><b>\"x,0,1,4\n", &csv));
    assert_ok(ash_memory_plan_create(context, ash_memory_csv_problem(csv), NULL, &plan, &diag));
    for (int f = ASH_MEMORY_SVG; f <= ASH_MEMORY_HTML; f++) {
        assert_ok(ash_memory_report(context, ash_memory_csv_problem(csv), plan, (ash_memory_format)f, &text,
                                    &size, &diag));
        assert_null(strstr(text, "</script><b>"));
        ash_context_free_text(context, text, size);
    }
    ash_memory_plan_destroy(plan);
    ash_memory_csv_destroy(csv);
}

static void survives_failing_allocations(void **state) {
    (void)state;
    static const char text[] = "id,lower,upper,size,lane\na,0,1,4,0\nb,0,5,4,1\nc,1,2,3,0\n";
    for (int f = 0; f < ASH_MEMORY_FORMAT_COUNT; f++)
        for (long n = 1;; n++) {
            long long live = memory.live;
            ash_memory_csv *csv = NULL;
            ash_memory_plan *plan = NULL;
            char *out = NULL;
            uint64_t size = 0;
            memory.count = 0;
            memory.fail_at = n;
            ash_status status = read_text(text, &csv);
            if (status == ASH_OK)
                status = ash_memory_plan_create(context, ash_memory_csv_problem(csv), NULL, &plan, &diag);
            if (status == ASH_OK)
                status = ash_memory_report(context, ash_memory_csv_problem(csv), plan, (ash_memory_format)f,
                                           &out, &size, &diag);
            memory.fail_at = 0;
            ash_context_free_text(context, out, size);
            ash_memory_plan_destroy(plan);
            ash_memory_csv_destroy(csv);
            assert_true(memory.live == live);
            if (status == ASH_OK) break;
            assert_status(status, ASH_ERROR_OUT_OF_MEMORY);
        }
}

static int create_context(void **state) {
    (void)state;
    ash_context_options options = {.allocator = test_memory_allocator(&memory)};
    return ash_context_create(&options, &context, &diag) != ASH_OK;
}

static int destroy_context(void **state) {
    (void)state;
    ash_context_destroy(context);
    return memory.live != 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reads_columns_in_any_order),   cmocka_unit_test(refuses_malformed_text),
        cmocka_unit_test(solutions_read_back),          cmocka_unit_test(names_are_escaped),
        cmocka_unit_test(survives_failing_allocations),
    };
    return cmocka_run_group_tests(tests, create_context, destroy_context);
}
