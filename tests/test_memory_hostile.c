/* SPDX-License-Identifier: MIT */
/* Problems that nobody would pose: numbers at the borders of 64 bits, lives that end before they begin,
 * alignments that are none, roots and pins at random, as text and as structs. Whatever comes in is refused
 * with a reason or packed, reported and verified; what the sanitizers say of it counts as much.
 *
 *   test_memory_hostile [SECONDS [SEED]]
 */
#include <time.h>

#include "ashlar/memory_report.h"
#include "ashlar/memory_schedule.h"
#include "random.h"
#include "testing.h"

static ash_diag diag;
static ash_context *context;
static test_memory memory;
static uint64_t seed = 1;
static double seconds;

static bool chance(uint64_t of) {
    return test_below(&seed, of) == 0;
}

/* Beside a power of two, or anything. */
static uint64_t hostile(void) {
    uint64_t near = UINT64_C(1) << test_below(&seed, 64);
    switch (test_below(&seed, 6)) {
    case 0: return near;
    case 1: return near - 1 - test_below(&seed, 3);
    case 2: return near + 1 + test_below(&seed, 3);
    case 3: return (uint64_t)0 - test_below(&seed, 5);
    case 4: return seed;
    default: return test_below(&seed, 40);
    }
}

/* A number that a problem may have, but once in `wild` times. */
static uint64_t number(uint64_t wild, unsigned most_bits) {
    if (chance(wild)) return hostile();
    uint64_t top = UINT64_C(1) << test_below(&seed, most_bits + 1);
    return chance(3) ? top - test_below(&seed, top < 4 ? top : 4) : test_below(&seed, chance(4) ? top : 50);
}

/* --- what has to hold --------------------------------------------------------------------------- */

static void refused(ash_status status) {
    bool known = status == ASH_ERROR_INVALID_ARGUMENT || status == ASH_ERROR_OUT_OF_RANGE ||
                 status == ASH_ERROR_FORMAT || status == ASH_ERROR_BUDGET;
    if (!known || !diag.message[0]) fail_msg("status %s: %s", ash_status_text(status), diag.message);
}

/* Sums that were made without wrapping. */
static void check_sums(const ash_memory_plan *plan, bool arena_mode) {
    size_t count;
    const ash_memory_arena *arenas = ash_memory_plan_arenas(plan, &count);
    ash_memory_summary s = ash_memory_plan_summary(plan);
    uint64_t left = s.size, unshared = s.unshared;
    for (uint32_t i = 0; i < count; i++) {
        assert_true(arenas[i].used <= arenas[i].size && arenas[i].load <= arenas[i].lower_bound);
        if (arena_mode) assert_true(arenas[i].lower_bound <= arenas[i].size);
        assert_true(arenas[i].size <= left && arenas[i].unshared <= unshared);
        left -= arenas[i].size, unshared -= arenas[i].unshared;
    }
    assert_true(left == 0 && unshared == 0);
}

static void check_reports(const ash_memory_problem *problem, const ash_memory_plan *plan) {
    for (int f = 0; f < ASH_MEMORY_FORMAT_COUNT; f++) {
        char *text;
        uint64_t size;
        ash_status status =
            ash_memory_report(context, problem, plan, (ash_memory_format)f, &text, &size, &diag);
        if (status != ASH_OK) assert_true(status == ASH_ERROR_UNSUPPORTED && problem->streams);
        if (status == ASH_OK && f == ASH_MEMORY_SOLUTION && !problem->streams) {
            ash_memory_csv *csv;
            assert_ok(ash_memory_csv_read(context, text, size, &csv,
                                          &diag)); /* our own text, whatever is in it */
            ash_memory_csv_destroy(csv);
        }
        if (status == ASH_OK) ash_context_free_text(context, text, size);
    }
}

static bool plan_and_judge(const ash_memory_problem *problem) {
    ash_memory_options o = ash_memory_options_inference();
    if (!chance(3)) o.strategy = (ash_memory_strategy)test_below(&seed, ASH_MEMORY_STRATEGY_COUNT);
    if (chance(4)) o.mode = (ash_memory_mode)test_below(&seed, ASH_MEMORY_MODE_COUNT);
    o.node_budget = 1 + test_below(&seed, 300);
    o.capacity = chance(4) ? number(4, 62) : 0;
    o.arena_no_reuse = chance(8), o.pin_output_ancestors = chance(8);
    o.omit_params = chance(4), o.omit_inputs = chance(4), o.omit_constants = chance(4);
    ash_memory_plan *plan;
    ash_status status = ash_memory_plan_create(context, problem, &o, &plan, &diag);
    if (status != ASH_OK) {
        refused(status);
        assert_null(plan);
        return false;
    }
    check_sums(plan, o.mode == ASH_MEMORY_ARENA);
    check_reports(problem, plan);
    ash_memory_plan_destroy(plan);
    return true;
}

/* --- as text ------------------------------------------------------------------------------------ */

enum { TEXT = 1 << 16 };

static char text[TEXT];
static size_t length;

static void add(const char *format, ...) {
    va_list args;
    va_start(args, format);
    int n = vsnprintf(text + length, TEXT - length, format, args);
    va_end(args);
    length += (size_t)n < TEXT - length ? (size_t)n : 0;
}

static void add_field(int column, uint64_t row, uint64_t rows, uint64_t wild) {
    static const char *const kinds[] = {"intermediate", "parameter", "input",   "constant",
                                        "output",       "state",     "nothing", ""};
    static const char *const junk[] = {
        "", " ", "-", "+1", "0x10", "1e3", "--1", "99999999999999999999", "1 2", "\"", "\t3\t"};
    if (chance(wild * 4)) {
        add("%s", junk[test_below(&seed, sizeof junk / sizeof *junk)]);
        return;
    }
    uint64_t near = 4611686018427387904u; /* 2^62 */
    switch (column) {
    case 0:
        if (chance(3)) add("b");
        add("%llu", (unsigned long long)test_below(&seed, rows + 1));
        break;
    case 1:
        add("%lld", (long long)(chance(6) ? (int64_t)(test_below(&seed, 3) - near)
                                          : (int64_t)(number(wild, 5) - 4)));
        break;
    case 2:
        add("%lld", (long long)(chance(6) ? (int64_t)(near - test_below(&seed, 3))
                                          : (int64_t)(number(wild, 6) + 4)));
        break;
    case 3: add("%lld", (long long)number(wild, chance(5) ? 62 : 12)); break;
    case 4:
        add("%llu",
            (unsigned long long)(chance(wild) ? hostile()
                                              : UINT64_C(1) << test_below(&seed, chance(8) ? 33 : 7)));
        break;
    case 5:
    case 6:
        if (chance(column == 5 ? 12 : 2)) break;
        add("%llu", (unsigned long long)(chance(3) ? number(wild, 62) : test_below(&seed, 20) * 64));
        break;
    case 7: add("%lld", (long long)(chance(3) ? number(wild, 32) : test_below(&seed, 2))); break;
    case 8: add("%s", kinds[test_below(&seed, chance(wild) ? 8 : 6)]); break;
    case 9:
        if (chance(4)) add("%lld", (long long)(chance(wild) ? hostile() : test_below(&seed, row + 1)));
        break;
    case 10:
        if (chance(2)) add("%lld", (long long)(chance(2) ? 0 : number(wild, 10)));
        break;
    default: add("%lld", (long long)hostile());
    }
}

/* A table with the columns that are needed, and some of the others, in any order; then, now and then, bytes
 * are changed. */
static void make_text(void) {
    static const char *const names[] = {"id",     "lower", "upper", "size", "alignment",   "offset",
                                        "pinned", "lane",  "kind",  "root", "root_offset", "hint"};
    int columns[16], count = 0;
    uint64_t wild = chance(3) ? 8 : 400, rows = test_below(&seed, chance(8) ? 200 : 12);
    for (int c = 0; c < 12; c++)
        if (c < 4 ? !chance(200) : chance(c == 6 ? 12 : 3)) columns[count++] = c;
    for (int c = 0; c + 1 < count && chance(2); c++) {
        int to = (int)test_below(&seed, (uint64_t)count), moved = columns[c];
        columns[c] = columns[to], columns[to] = moved;
    }
    length = 0;
    if (chance(10)) add("\xef\xbb\xbf");
    for (int c = 0; c < count; c++) add("%s%s", c ? "," : "", names[columns[c]]);
    add("\n");
    for (uint64_t row = 0; row < rows; row++) {
        for (int c = 0; c < count; c++) {
            if (c) add(",");
            add_field(columns[c], row, rows, wild);
        }
        add(chance(20) ? "\r\n\n" : row + 1 == rows && chance(3) ? "" : "\n");
    }
    for (uint64_t n = chance(4) ? test_below(&seed, 6) : 0; n && length; n--) {
        size_t at = (size_t)test_below(&seed, length);
        if (chance(3))
            length = at;
        else
            text[at] = (char)test_below(&seed, chance(2) ? 256 : 64);
    }
}

static bool try_text(void) {
    ash_memory_csv *csv;
    make_text();
    char *copy = malloc(length ? length : 1); /* so that a read past its end is seen */
    assert_non_null(copy);
    memcpy(copy, text, length);
    ash_status status = ash_memory_csv_read(context, copy, length, &csv, &diag);
    free(copy);
    if (status != ASH_OK) {
        refused(status);
        assert_null(csv);
        return false;
    }
    size_t arenas;
    const ash_memory_arena *arena = ash_memory_csv_arenas(csv, &arenas);
    const ash_memory_place *places = ash_memory_csv_places(csv);
    const ash_memory_problem *problem = ash_memory_csv_problem(csv);
    if (places) ash_memory_check(context, problem, places, arena, arenas, NULL, &diag);
    bool packed = plan_and_judge(problem);
    ash_memory_csv_destroy(csv);
    return packed;
}

/* --- as structs --------------------------------------------------------------------------------- */

enum { MOST = 24, STREAMS = 3 };

static bool try_structs(void) {
    ash_memory_buffer b[MOST];
    ash_memory_hole holes[3];
    ash_memory_place places[MOST];
    ash_memory_arena arenas[3];
    int64_t acquire[MOST * STREAMS], release[MOST * STREAMS];
    uint64_t wild = chance(3) ? 10 : 2000;
    bool lanes = chance(10);
    uint32_t count = (uint32_t)test_below(&seed, MOST) + 1,
             streams = chance(2) ? 0 : 1 + (uint32_t)test_below(&seed, STREAMS);
    for (uint32_t i = 0; i < count; i++) {
        int64_t begin = (int64_t)number(wild, 4), end = begin;
        if (chance(wild))
            end = (int64_t)hostile();
        else if (begin < INT64_MAX - 64)
            end += (int64_t)test_below(&seed, 12);
        uint64_t size = number(wild, chance(4) ? 62 : 10);
        uint64_t align = chance(wild) ? hostile() : UINT64_C(1) << test_below(&seed, chance(9) ? 32 : 6);
        b[i] = ash_memory_buffer_init(size, align, begin, end);
        b[i].kind = (ash_memory_kind)(chance(wild) ? hostile() : test_below(&seed, ASH_MEMORY_KIND_COUNT));
        b[i].lane = lanes ? i : chance(6) ? (uint32_t)number(wild, 31) : 0;
        if (chance(lanes ? 2 : 12)) b[i].pinned = number(wild, 62);
        if (chance(5)) b[i].root = (uint32_t)(chance(wild) ? hostile() : test_below(&seed, i + 1));
        if (b[i].root != ASH_MEMORY_NONE && !chance(wild) && b[i].root < i) {
            const ash_memory_buffer *root = &b[b[i].root];
            b[i].lane = root->lane, b[i].align = 1;
            b[i].root_offset = root->size ? test_below(&seed, root->size) : 0;
            b[i].size = test_below(&seed, root->size - b[i].root_offset + 1);
        }
        if (chance(wild)) b[i].root_offset = hostile();
        places[i] = (ash_memory_place){.offset = number(wild, 62), .arena = (uint32_t)number(wild, 1)};
        for (uint32_t s = 0; s < streams; s++) {
            acquire[i * streams + s] = (int64_t)number(wild, 47);
            release[i * streams + s] = chance(3) ? acquire[i * streams + s] : (int64_t)number(wild, 47);
        }
    }
    for (int h = 0; h < 3; h++)
        holes[h] = (ash_memory_hole){0, number(wild, 62), number(wild, 62), (int64_t)number(wild, 3),
                                     (int64_t)(number(wild, 6) + 8)};
    for (int a = 0; a < 3; a++)
        arenas[a] = (ash_memory_arena){
            .lane = (uint32_t)(a / 2), .size = hostile(), .align = UINT64_C(1) << test_below(&seed, 33)};
    ash_memory_problem problem = {.buffers = b,
                                  .buffer_count = count,
                                  .holes = holes,
                                  .hole_count = chance(3) ? (uint32_t)test_below(&seed, 4) : 0,
                                  .streams = streams,
                                  .acquire = acquire,
                                  .release = release};
    ash_memory_check(context, &problem, places, arenas, 3, NULL, &diag); /* whoever made them */
    return plan_and_judge(&problem);
}

/* --- as schedules ------------------------------------------------------------------------------- */

static uint32_t index_below(uint32_t count, uint64_t wild) {
    return (uint32_t)(chance(wild) ? hostile() : test_below(&seed, count));
}

static bool try_schedules(void) {
    enum { OPS = 12, ACCESSES = 40, WAITS = 8 };
    ash_memory_buffer b[MOST];
    ash_memory_place places[MOST];
    ash_memory_access accesses[ACCESSES];
    ash_memory_wait waits[WAITS];
    uint32_t op_streams[OPS], order[OPS];
    int64_t acquire[MOST * STREAMS], release[MOST * STREAMS];
    uint64_t wild = chance(3) ? 20 : 5000;
    uint32_t count = (uint32_t)test_below(&seed, MOST) + 1, ops = (uint32_t)test_below(&seed, OPS) + 1;
    for (uint32_t i = 0; i < count; i++) {
        b[i] = ash_memory_buffer_init(number(wild, chance(4) ? 62 : 6), 1, 0, 0);
        if (chance(4)) b[i].kind = (ash_memory_kind)test_below(&seed, ASH_MEMORY_KIND_COUNT);
        if (i && chance(6)) b[i].root = index_below(i, wild);
        if (i && b[i].root < i && b[b[i].root].root != ASH_MEMORY_NONE && !chance(wild))
            b[i].root = ASH_MEMORY_NONE;
        if (b[i].root < i) b[i].size = test_below(&seed, b[b[i].root].size + 1);
        places[i] =
            (ash_memory_place){.offset = number(wild, chance(4) ? 62 : 5), .arena = index_below(2, wild)};
    }
    for (uint32_t o = 0; o < ops; o++) op_streams[o] = index_below(STREAMS, wild);
    for (int w = 0; w < WAITS; w++) {
        waits[w].op = index_below(ops, wild);
        waits[w].after = waits[w].op && !chance(wild) ? index_below(waits[w].op, wild) : 0;
    }
    for (int a = 0; a < ACCESSES; a++) {
        uint32_t buffer = index_below(count, wild * ACCESSES);
        uint64_t size = buffer < count ? b[buffer].size : 0,
                 offset = chance(3) ? test_below(&seed, size + 1) : 0;
        accesses[a] = (ash_memory_access){
            index_below(ops, wild * ACCESSES), buffer,
            (ash_memory_access_kind)index_below(ASH_MEMORY_ACCESS_KIND_COUNT, wild * ACCESSES), offset,
            size - offset};
        if (chance(4)) accesses[a].offset = 0, accesses[a].size = ASH_MEMORY_WHOLE;
        if (chance(wild)) accesses[a].size = hostile();
        if (chance(wild)) accesses[a].offset = hostile();
    }
    ash_memory_schedule s = {.op_count = ops,
                             .streams = chance(2) ? 0 : STREAMS,
                             .op_streams = op_streams,
                             .waits = waits,
                             .wait_count = (uint32_t)test_below(&seed, WAITS + 1),
                             .accesses = accesses,
                             .access_count = (uint32_t)test_below(&seed, ACCESSES + 1)};
    if (s.streams == 0) s.op_streams = NULL;
    if (s.wait_count && waits[0].op == 0) s.wait_count = 0; /* the first operation waits for nothing */
    for (uint32_t w = 0; w < s.wait_count; w++)
        if (!waits[w].op && !chance(wild)) waits[w] = waits[0];
    bool good = ash_memory_schedule_check(context, &s, b, count, places, 2, NULL, &diag) !=
                ASH_ERROR_INVALID_ARGUMENT;
    if (ash_memory_schedule_ancestors(context, &s, b, count, &diag) != ASH_OK) return false;
    if (!s.streams)
        ash_memory_order_search(context, &s, b, count, (uint32_t)test_below(&seed, 4), NULL, order, NULL,
                                &diag);
    ash_memory_problem problem = {.buffers = b, .buffer_count = count};
    if (s.streams) {
        if (ash_memory_schedule_clocks(context, &s, count, acquire, release, &diag) != ASH_OK) return false;
        problem.streams = s.streams, problem.acquire = acquire, problem.release = release;
    } else if (ash_memory_schedule_lifetimes(&s, b, count, &diag) != ASH_OK) {
        return false;
    }
    return plan_and_judge(&problem) && good;
}

/* --- volume ------------------------------------------------------------------------------------- */

static void run(bool (*try)(void), long rounds, const char *what) {
    double end = (double)time(NULL) + seconds / 3;
    long packed = 0, done = 0;
    for (; seconds > 0 ? (double)time(NULL) < end : done < rounds; done++) {
        long long live = memory.live;
        uint64_t began = seed;
        packed += try();
        if (memory.live != live)
            fail_msg("%s: bytes are left behind; seed %llu", what, (unsigned long long)began);
    }
    print_message("%ld problems as %s, %ld of them packed\n", done, what, packed);
    assert_true(packed > done / 20);
}

static void texts(void **state) {
    (void)state;
    run(try_text, 4000, "text");
}

static void structs(void **state) {
    (void)state;
    run(try_structs, 4000, "structs");
}

static void schedules(void **state) {
    (void)state;
    run(try_schedules, 4000, "schedules");
}

static int create_context(void **state) {
    (void)state;
    ash_context_options options = {.allocator = test_memory_allocator(&memory), .threads = 1};
    return ash_context_create(&options, &context, &diag) != ASH_OK;
}

static int destroy_context(void **state) {
    (void)state;
    ash_context_destroy(context);
    return memory.live != 0;
}

int main(int argc, char **argv) {
    if (argc > 1) seconds = atof(argv[1]);
    if (argc > 2) seed = strtoull(argv[2], NULL, 10) | 1;
    const struct CMUnitTest tests[] = {cmocka_unit_test(texts), cmocka_unit_test(structs),
                                       cmocka_unit_test(schedules)};
    return cmocka_run_group_tests(tests, create_context, destroy_context);
}
