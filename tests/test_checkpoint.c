/* SPDX-License-Identifier: MIT */
/* Checkpoints: a plan that goes on from a file has the bits of one that never stopped; a file with any
 * byte changed, cut anywhere, or made to mislead is refused with its offset, and leaves the states as they
 * are. */
#include "ir_fixture.h"

#include <sys/stat.h>
#include <unistd.h>

#include "ashlar/plan.h"
#include "ashlar/train.h"
#include "base/arena.h"
#include "runtime/safetensors.h"

static ash_diag diag;

enum { STEPS = 4, MOST = 1 << 14 };

static char path[64];
static uint8_t file[MOST];
static size_t file_size;

/* A step with states of several types, one of them empty and one with a name that needs escapes. */
static ash_plan *make_plan(fixture *f, int64_t width) {
    ash_graph *g = fresh(f);
    const ash_type type = TYPE(F32, 3, width), flag = SCALAR(BOOL), empty = TYPE(I16, 0, 2);
    ash_value w = ash_graph_state(g, "w \"\\\n\xc3\xa9", &type, NULL, 0, ASH_DATA_COPY), grad;
    ash_value odd = ash_graph_state(g, "odd", &flag, NULL, 0, ASH_DATA_COPY);
    ash_graph_state(g, "empty", &empty, NULL, 0, ASH_DATA_COPY);
    ash_graph_update(g, odd, ash_not(g, odd));
    ash_value x = add_input(g, "x", type), away = ash_sub(g, w, x);
    ash_value loss = ash_reduce_sum(g, ash_mul(g, away, away), (const int64_t[]){0, 1}, 2, false);
    const ash_optimizer_options adam = {.size = sizeof adam, .kind = ASH_OPTIMIZER_ADAM};
    assert_ok(ash_graph_gradients(g, &loss, NULL, 1, &w, 1, NULL, &grad, &diag));
    assert_ok(ash_graph_optimize(g, &w, &grad, 1, ash_scalar(g, ASH_F32, 0.1), &adam, &diag));
    ash_plan *plan;
    assert_ok(ash_plan_prepare(f->context, g, NULL, &plan, &diag));
    return plan;
}

static void run(ash_plan *plan, int first) {
    for (int step = first; step < first + STEPS; step++) {
        float x[6];
        for (int i = 0; i < 6; i++) x[i] = (float)(step * step % 7 - i);
        assert_ok(ash_plan_set_input(plan, 0, NULL, x, sizeof x, &diag));
        assert_ok(ash_plan_execute(plan, &diag));
    }
}

static size_t states_of(ash_plan *plan, uint8_t *out) {
    size_t size = 0;
    for (size_t i = 0; i < ash_plan_state_count(plan); i++) {
        const ash_view *view;
        assert_ok(ash_plan_state(plan, i, &view, &diag));
        assert_ok(ash_view_copy_out(view, out + size, ash_view_bytes(view), &diag));
        size += ash_view_bytes(view);
    }
    return size;
}

static void read_file(void) {
    FILE *in = fopen(path, "rb");
    assert_non_null(in);
    file_size = fread(file, 1, MOST, in);
    assert_in_range(file_size, 1, MOST - 1);
    fclose(in);
}

static void write_file(const void *data, size_t size) {
    FILE *out = fopen(path, "wb");
    assert_non_null(out);
    assert_int_equal(fwrite(data, 1, size, out), size);
    fclose(out);
}

static void going_on_has_the_same_bits(void **state) {
    fixture *f = *state;
    uint8_t straight[256], resumed[256];
    char note[32];
    ash_plan *plan = make_plan(f, 2);
    run(plan, 0);
    assert_ok(ash_plan_save_states(plan, path, "epoch \"3\"\t\xe2\x82\xac", &diag));
    run(plan, STEPS);
    size_t size = states_of(plan, straight);
    ash_plan_destroy(plan);
    plan = make_plan(f, 2);
    assert_ok(ash_plan_load_states(plan, path, note, sizeof note, &diag));
    assert_string_equal(note, "epoch \"3\"\t\xe2\x82\xac");
    run(plan, STEPS);
    assert_int_equal(states_of(plan, resumed), size);
    assert_memory_equal(straight, resumed, size);
    assert_status(ash_plan_load_states(plan, path, note, 12, &diag), ASH_ERROR_OUT_OF_RANGE);
    assert_ok(ash_plan_load_states(plan, path, NULL, 0, &diag));
    struct stat part;
    char name[96];
    snprintf(name, sizeof name, "%s.part", path);
    assert_int_equal(stat(name, &part), -1);
    ash_plan_destroy(plan);
}

/* Refused with an offset, and nothing has changed. */
static void refuses(ash_plan *plan, const void *data, size_t size, const char *what, size_t at) {
    static uint8_t before[256], after[256];
    char note[64] = "as it was";
    size_t n = states_of(plan, before);
    write_file(data, size);
    ash_diag_clear(&diag);
    ash_status status = ash_plan_load_states(plan, path, note, sizeof note, &diag);
    if (status != ASH_ERROR_FORMAT) fail_msg("%s at %zu: %s", what, at, ash_status_text(status));
    if (size >= 8 && (diag.file_offset == ASH_NO_OFFSET || diag.file_offset > size) &&
        !strstr(diag.message, "no checkpoint"))
        fail_msg("%s at %zu: no offset in \"%s\"", what, at, diag.message);
    assert_string_equal(note, "as it was");
    assert_int_equal(states_of(plan, after), n);
    assert_memory_equal(before, after, n);
}

static void any_damage_is_found(void **state) {
    fixture *f = *state;
    static uint8_t broken[MOST];
    ash_plan *plan = make_plan(f, 2);
    run(plan, 0);
    assert_ok(ash_plan_save_states(plan, path, "note", &diag));
    read_file();
    run(plan, 1);
    for (size_t i = 0; i < file_size; i++)
        for (int bit = 0; bit < 8; bit += 3) {
            memcpy(broken, file, file_size);
            broken[i] ^= (uint8_t)(1 << bit);
            refuses(plan, broken, file_size, "a changed byte", i);
        }
    for (size_t i = 0; i < file_size; i += i < 16 ? 1 : 5) refuses(plan, file, i, "cut", i);
    memcpy(broken, file, file_size);
    broken[file_size] = 0;
    refuses(plan, broken, file_size + 1, "a byte more", file_size);
    write_file(file, file_size);
    assert_ok(ash_plan_load_states(plan, path, NULL, 0, &diag)); /* the file itself is sound */
    ash_plan_destroy(plan);
}

static void other_states_are_refused(void **state) {
    fixture *f = *state;
    ash_plan *plan = make_plan(f, 2);
    assert_ok(ash_plan_save_states(plan, path, NULL, &diag));
    ash_plan_destroy(plan);
    plan = make_plan(f, 1);
    assert_status(ash_plan_load_states(plan, path, NULL, 0, &diag), ASH_ERROR_TYPE);
    assert_non_null(strstr(diag.message, "another type"));
    ash_plan_destroy(plan);
    ash_graph *g = fresh(f);
    const ash_type flag = SCALAR(BOOL);
    ash_graph_output(g, "y", ash_not(g, ash_graph_state(g, "odd", &flag, NULL, 0, ASH_DATA_COPY)));
    assert_ok(ash_plan_prepare(f->context, g, NULL, &plan, &diag));
    assert_status(ash_plan_load_states(plan, path, NULL, 0, &diag), ASH_ERROR_TYPE);
    assert_non_null(strstr(diag.message, "is no state of the plan"));
    assert_ok(ash_plan_save_states(plan, path, NULL, &diag));
    ash_plan_destroy(plan);
    plan = make_plan(f, 2);
    assert_status(ash_plan_load_states(plan, path, NULL, 0, &diag), ASH_ERROR_TYPE);
    assert_non_null(strstr(diag.message, "lacks"));
    assert_status(ash_plan_load_states(plan, "/nonexistent/x", NULL, 0, &diag), ASH_ERROR_NOT_FOUND);
    assert_status(ash_plan_save_states(plan, "/nonexistent/x", NULL, &diag), ASH_ERROR_NOT_FOUND);
    ash_plan_destroy(plan);
}

/* Headers by hand, around `bytes` zeros. */
static void misleading_headers(void **state) {
    fixture *f = *state;
    const ash_allocator a = test_memory_allocator(&f->memory);
    static const struct {
        const char *header;
        size_t bytes;
        const char *says; /* NULL: read */
    } cases[] = {
        {"{}", 0, NULL},
        {" { } \n", 0, NULL},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]}}", 8, NULL},
        {"{\"a\" : {\"data_offsets\" : [ 8 , 8 ], \"shape\" : [0], \"dtype\" : \"F64\"},"
         "\"\\ud83d\\ude00\":{\"dtype\":\"BOOL\",\"shape\":[8],\"data_offsets\":[0,8]}}",
         8, NULL},
        {"{\"__metadata__\":{\"k\":\"v\",\"l\":\"\"}}", 0, NULL},
        {"", 0, "no '{'"},
        {"{", 0, "no '\"'"},
        {"[]", 0, "no '{'"},
        {"{}}", 0, "behind"},
        {"{\"a\":1}", 0, "no '{'"},
        {"{\"a", 0, "without an end"},
        {"{\"a\\\"}", 0, "without an end"},
        {"{\"\\x\":{}}", 0, "escape"},
        {"{\"\\u12g4\":{}}", 0, "escape"},
        {"{\"\\u0000\":{}}", 0, "escape"},
        {"{\"\\ud83d\":{}}", 0, "escape"},
        {"{\"\\udc00\":{}}", 0, "escape"},
        {"{\"a\n\":{}}", 0, "control"},
        {"{\"a\":{}}", 0, "without dtype"},
        {"{\"a\":{\"dtype\":\"F31\"}}", 0, "unknown dtype"},
        {"{\"a\":{\"dtype\":\"F32\",\"dtype\":\"F32\"}}", 0, "twice"},
        {"{\"a\":{\"stride\":[1]}}", 0, "unknown field"},
        {"{\"a\":{\"shape\":[1,1,1,1,1,1,1,1,1,1,1]}}", 0, "too long"},
        {"{\"a\":{\"shape\":[-1]}}", 0, "no number"},
        {"{\"a\":{\"shape\":[1e3]}}", 0, "no ','"},
        {"{\"a\":{\"shape\":[99999999999999999999]}}", 0, "too large"},
        {"{\"a\":{\"shape\":[1,]}}", 0, "no number"},
        {"{\"a\":{\"data_offsets\":[1]}}", 0, "two offsets"},
        {"{\"a\":{\"data_offsets\":[1,2,3]}}", 0, "too long"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]}}", 4, "past the end"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[8,0]}}", 8, "past the end"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,4]}}", 4, "not those of its shape"},
        {"{\"a\":{\"dtype\":\"F64\",\"shape\":[2305843009213693952],\"data_offsets\":[0,0]}}", 0, "shape"},
        {"{\"a\":{\"dtype\":\"U8\",\"shape\":[4294967296,4294967296],\"data_offsets\":[0,0]}}", 0, "shape"},
        {"{\"a\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[0,2]},"
         "\"b\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[1,3]}}",
         3, "overlap"},
        {"{\"a\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[1,3]}}", 3, "overlap"},
        {"{\"a\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[0,2]}}", 3, "leave bytes over"},
        {"{\"__metadata__\":{\"k\":1}}", 0, "no '\"'"},
    };
    for (size_t i = 0; i < ASH_COUNT(cases); i++) {
        static uint8_t data[MOST];
        const size_t length = strlen(cases[i].header), size = 8 + length + cases[i].bytes;
        ash_safetensors out;
        ash_arena arena;
        memset(data, 0, sizeof data);
        data[0] = (uint8_t)length;
        memcpy(data + 8, cases[i].header, length);
        uint8_t *exact = malloc(size); /* so that sanitizers see what is read past it */
        memcpy(exact, data, size);
        ash_arena_init(&arena, &a);
        ash_diag_clear(&diag);
        ash_status status = ash_safetensors__read(exact, size, &arena, &out, &diag);
        if (status != (cases[i].says ? ASH_ERROR_FORMAT : ASH_OK) ||
            (cases[i].says && (!strstr(diag.message, cases[i].says) || diag.file_offset > size)))
            fail_msg("%s: %s (%s)", cases[i].header, ash_status_text(status), diag.message);
        ash_arena_free(&arena);
        free(exact);
    }
    static const uint8_t lengths[][8] = {
        {255, 255, 255, 255, 255, 255, 255, 255}, {1}, {0, 0, 0, 0, 0, 0, 0, 128}};
    for (size_t i = 0; i < ASH_COUNT(lengths); i++) {
        ash_safetensors out;
        ash_arena arena;
        ash_arena_init(&arena, &a);
        assert_status(ash_safetensors__read(lengths[i], 8, &arena, &out, &diag), ASH_ERROR_FORMAT);
        ash_arena_free(&arena);
    }
}

/* Allocation 1, 2, 3, ... fails; what was there before stays, whole. */
static void failing_allocations(void **state) {
    fixture *f = *state;
    ash_plan *plan = make_plan(f, 2);
    run(plan, 0);
    assert_ok(ash_plan_save_states(plan, path, "first", &diag));
    for (int loads = 0; loads < 2; loads++) {
        ash_status status;
        long n = 0;
        do {
            char note[16];
            f->memory.count = 0, f->memory.fail_at = ++n;
            status = loads ? ash_plan_load_states(plan, path, note, sizeof note, &diag)
                           : ash_plan_save_states(plan, path, "second", &diag);
            f->memory.fail_at = 0;
            if (status != ASH_OK) assert_int_equal(status, ASH_ERROR_OUT_OF_MEMORY);
            assert_ok(ash_plan_load_states(plan, path, note, sizeof note, &diag));
            assert_string_equal(note, !loads && status != ASH_OK ? "first" : "second");
            assert_true(n < 200);
        } while (status != ASH_OK);
        assert_true(n > 2);
    }
    ash_plan_destroy(plan);
}

static int make_folder(void **state) {
    (void)state;
    strcpy(path, "/tmp/ashlar-checkpoint-XXXXXX");
    assert_non_null(mkdtemp(path));
    strcat(path, "/c");
    return 0;
}

static int remove_folder(void **state) {
    (void)state;
    unlink(path);
    path[strlen(path) - 2] = 0;
    return rmdir(path);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        IR_TEST(going_on_has_the_same_bits), IR_TEST(any_damage_is_found),
        IR_TEST(other_states_are_refused),   IR_TEST(misleading_headers),
        IR_TEST(failing_allocations),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
