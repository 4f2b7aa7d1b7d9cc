/* SPDX-License-Identifier: MIT */
/* Random programs at volume: operations on random streams with random events over plain buffers, results in
 * place, parts of concatenations, scratch, lanes, alignments, boundary kinds, pinned offsets and holes,
 * under random options. Every plan must be sound for both checkers, and offsets that somebody moved must
 * never pass the one that knows lifetimes when the bytes say otherwise.
 *
 *   test_memory_volume [ROUNDS]
 */
#include "ashlar/memory_schedule.h"
#include "one_context.h"
#include "random.h"

static ash_diag diag;
static uint64_t seed = 20261120;

static long rounds = TEST_WATCHED ? 1000 : 20000;

enum { OPS = 40, BUFFERS = 64, STREAMS = 4, ACCESSES = 8 * OPS, WAITS = 2048, PARTS = 3 };

typedef struct program {
    ash_memory_buffer b[BUFFERS];
    uint32_t count, streams;
    uint32_t op_streams[OPS];
    ash_memory_wait waits[WAITS];
    ash_memory_access accesses[ACCESSES];
    uint64_t touched[BUFFERS]; /* operations that have touched its bytes, as bits */
    bool dead[BUFFERS];        /* something else stands in its bytes now, or not all of it is written */
    int64_t acquire[BUFFERS * STREAMS], release[BUFFERS * STREAMS];
    ash_memory_hole holes[2];
    ash_memory_schedule form;
    ash_memory_problem problem;
} program;

static uint32_t root_of(const program *p, uint32_t b) {
    return p->b[b].root == ASH_MEMORY_NONE ? b : p->b[b].root;
}

static uint32_t add_buffer(program *p, uint64_t size, uint64_t align, uint32_t lane) {
    assert_true(p->count < BUFFERS);
    p->b[p->count] = ash_memory_buffer_init(size, align, 0, 0);
    p->b[p->count].lane = lane;
    p->b[p->count].key = test_below(&seed, 2);
    return p->count++;
}

/* Operation `op` begins after everything that has touched these bytes, and touches them. */
static void touch(program *p, uint32_t op, uint32_t buffer, ash_memory_access_kind kind) {
    uint32_t root = root_of(p, buffer);
    for (uint32_t o = 0; o < op; o++)
        if (p->touched[root] >> o & 1 && p->form.wait_count < WAITS)
            p->waits[p->form.wait_count++] = (ash_memory_wait){op, o};
    p->touched[root] |= UINT64_C(1) << op;
    assert_true(p->form.access_count < ACCESSES);
    p->accesses[p->form.access_count++] =
        (ash_memory_access){.op = op, .buffer = buffer, .kind = kind, .size = ASH_MEMORY_WHOLE};
}

/* A buffer that can be read now, or NONE. */
static uint32_t pick(const program *p) {
    for (int tries = 0; tries < 8 && p->count; tries++) {
        uint32_t b = p->count - 1 - (uint32_t)test_below(&seed, p->count < 10 ? p->count : 10);
        if (!p->dead[b]) return b;
    }
    return ASH_MEMORY_NONE;
}

static uint64_t random_align(void) {
    return test_below(&seed, 3) ? 1 : UINT64_C(1) << test_below(&seed, 7);
}

/* Parts that tile a root, each written by an operation of its own. Returns the next operation. */
static uint32_t add_concatenation(program *p, uint32_t op) {
    uint64_t align = random_align(), sizes[PARTS], sum = 0;
    for (int k = 0; k < PARTS; k++) sum += sizes[k] = (test_below(&seed, 20) + 1) * align;
    uint32_t root = add_buffer(p, sum, align, (uint32_t)test_below(&seed, 2));
    sum = 0;
    for (int k = 0; k < PARTS; k++) {
        uint32_t part = add_buffer(p, sizes[k], align, p->b[root].lane);
        p->b[part].root = root;
        p->b[part].root_offset = sum;
        sum += sizes[k];
        touch(p, op++, part, ASH_MEMORY_WRITE);
    }
    return op;
}

/* A result in the bytes of an operand that is not read any more. */
static void add_in_place(program *p, uint32_t op, uint32_t operand) {
    uint32_t root = root_of(p, operand), result;
    touch(p, op, operand, ASH_MEMORY_READ_EARLY);
    result = add_buffer(p, p->b[operand].size, p->b[operand].align, p->b[operand].lane);
    p->b[result].root = root;
    p->b[result].root_offset = p->b[operand].root_offset;
    p->b[result].key = p->b[root].key;
    touch(p, op, result, ASH_MEMORY_WRITE);
    for (uint32_t b = 0; b < result; b++)
        if (root_of(p, b) == root) p->dead[b] = true;
}

static uint32_t add_random(program *p) {
    uint64_t size = test_below(&seed, 60), align = random_align();
    return add_buffer(p, size, align, (uint32_t)test_below(&seed, 2));
}

static void add_boundary(program *p) {
    static const ash_memory_kind kinds[] = {ASH_MEMORY_PARAMETER, ASH_MEMORY_INPUT, ASH_MEMORY_CONSTANT};
    for (uint64_t n = test_below(&seed, 4); n; n--) {
        uint32_t b = add_random(p);
        p->b[b].kind = kinds[test_below(&seed, 3)];
    }
}

static void random_program(program *p) {
    memset(p, 0, sizeof *p);
    p->streams = (uint32_t)test_below(&seed, STREAMS) + 1;
    add_boundary(p);
    uint32_t boundary = p->count;
    for (uint32_t op = 0; op < OPS; op++) p->op_streams[op] = (uint32_t)test_below(&seed, p->streams);
    for (uint32_t op = 0; op + PARTS <= OPS && p->count + PARTS + 2 < BUFFERS; op++) {
        uint32_t operand = pick(p);
        uint64_t shape = test_below(&seed, 10);
        if (shape == 0) {
            op = add_concatenation(p, op) - 1;
            continue;
        }
        if (shape == 1 && operand != ASH_MEMORY_NONE && operand >= boundary) {
            add_in_place(p, op, operand);
            continue;
        }
        for (uint64_t reads = test_below(&seed, 3); reads && operand != ASH_MEMORY_NONE; reads--) {
            touch(p, op, operand, test_below(&seed, 2) ? ASH_MEMORY_READ : ASH_MEMORY_READ_EARLY);
            operand = pick(p);
        }
        if (shape == 2) {
            uint64_t size = test_below(&seed, 30);
            touch(p, op, add_buffer(p, size, random_align(), 0), ASH_MEMORY_SCRATCH);
            p->dead[p->count - 1] = true;
        }
        touch(p, op, add_random(p), ASH_MEMORY_WRITE);
    }
    for (uint32_t b = boundary; b < p->count; b++)
        if (!p->dead[b] && test_below(&seed, 10) == 0) p->b[b].kind = ASH_MEMORY_OUTPUT;
    p->form.op_count = OPS;
    p->form.streams = p->streams;
    p->form.op_streams = p->op_streams;
    p->form.waits = p->waits;
    p->form.accesses = p->accesses;
}

/* Lifetimes in one of the two forms; sometimes something is pinned, and bytes are taken. */
static void make_problem(program *p) {
    bool clocks = p->streams > 1 || test_below(&seed, 2);
    assert_ok(ash_memory_schedule_ancestors(context, &p->form, p->b, p->count, &diag));
    if (clocks)
        assert_ok(ash_memory_schedule_clocks(context, &p->form, p->count, p->acquire, p->release, &diag));
    else
        assert_ok(ash_memory_schedule_lifetimes(&p->form, p->b, p->count, &diag));
    p->problem = (ash_memory_problem){.buffers = p->b, .buffer_count = p->count};
    if (clocks) {
        p->problem.streams = p->streams;
        p->problem.acquire = p->acquire;
        p->problem.release = p->release;
    }
    if (test_below(&seed, 4) == 0) {
        uint32_t b = (uint32_t)test_below(&seed, p->count);
        if (p->b[b].root == ASH_MEMORY_NONE) p->b[b].pinned = test_below(&seed, 8) * 64;
    }
    p->problem.holes = p->holes;
    p->problem.hole_count = test_below(&seed, 4) ? 0 : (uint32_t)test_below(&seed, 3);
    for (uint32_t h = 0; h < p->problem.hole_count; h++) {
        int64_t begin = (int64_t)test_below(&seed, 2 * OPS);
        p->holes[h] =
            (ash_memory_hole){(uint32_t)test_below(&seed, 2), test_below(&seed, 200), test_below(&seed, 40),
                              begin, begin + (int64_t)test_below(&seed, 30)};
    }
}

static bool is_special(const program *p) {
    for (uint32_t b = 0; b < p->count; b++)
        if (p->b[b].pinned != ASH_MEMORY_UNPINNED) return true;
    return p->problem.hole_count > 0;
}

static ash_memory_options random_options(const program *p) {
    ash_memory_options o = test_below(&seed, 4) ? ash_memory_options_inference()
                                                : ash_memory_options_backward_activations_only();
    if (test_below(&seed, 2)) {
        o.omit_params = !(test_below(&seed, 2));
        o.omit_inputs = !(test_below(&seed, 2));
        o.omit_constants = !(test_below(&seed, 2));
    }
    o.arena_no_reuse = test_below(&seed, 8) == 0;
    o.pin_output_ancestors = test_below(&seed, 4) == 0;
    o.mode = is_special(p) ? ASH_MEMORY_ARENA : (ash_memory_mode)test_below(&seed, ASH_MEMORY_MODE_COUNT);
    o.strategy = (ash_memory_strategy)test_below(&seed, ASH_MEMORY_STRATEGY_COUNT);
    o.node_budget = 300;
    return o;
}

/* Moves an alias class; lifetimes that allow it must not contradict the bytes. */
static void move_one(const program *p, const ash_memory_plan *plan, long *caught, long *passed) {
    ash_memory_place places[BUFFERS];
    size_t arena_count;
    uint32_t b = root_of(p, (uint32_t)test_below(&seed, p->count));
    const ash_memory_arena *arenas = ash_memory_plan_arenas(plan, &arena_count);
    memcpy(places, ash_memory_plan_places(plan, NULL), p->count * sizeof *places);
    if (places[b].arena == ASH_MEMORY_NONE) return;
    uint64_t size = arenas[places[b].arena].size, to = test_below(&seed, size + 1);
    if (test_below(&seed, 2))
        to = places[b].offset + (test_below(&seed, 2) ? 1 : (uint64_t)-1); /* by one byte */
    for (uint32_t m = 0; m < p->count; m++)
        if (root_of(p, m) == b) places[m].offset = to + p->b[m].root_offset;
    bool sound = ash_memory_check(context, &p->problem, places, arenas, arena_count, NULL, &diag) == ASH_OK;
    if (!sound) {
        ++*caught;
        return;
    }
    ++*passed;
    if (ash_memory_schedule_check(context, &p->form, p->b, p->count, places, arena_count, NULL, &diag))
        fail_msg("the checker passed what the replay refuses: %s", diag.message);
}

static void random_programs(void **state) {
    (void)state;
    static program p;
    long shared = 0, refused = 0, caught = 0, passed = 0, streams = 0, aliases = 0;
    for (long round = 0; round < rounds; round++) {
        random_program(&p);
        make_problem(&p);
        ash_memory_options o = random_options(&p);
        ash_memory_plan *plan, *again;
        ash_memory_check_report report;
        ash_status status = ash_memory_plan_create(context, &p.problem, &o, &plan, &diag);
        if (status == ASH_ERROR_INVALID_ARGUMENT && is_special(&p) && strstr(diag.message, "pinned")) {
            refused++;
            continue;
        }
        if (status != ASH_OK) fail_msg("round %ld: %s", round, diag.message);
        size_t arena_count;
        const ash_memory_arena *arenas = ash_memory_plan_arenas(plan, &arena_count);
        const ash_memory_place *places = ash_memory_plan_places(plan, NULL);
        ash_memory_summary s = ash_memory_plan_summary(plan);
        assert_true(s.lower_bound <= s.size);
        status = ash_memory_check(context, &p.problem, places, arenas, arena_count, &report, &diag);
        if (status == ASH_OK)
            status =
                ash_memory_schedule_check(context, &p.form, p.b, p.count, places, arena_count, NULL, &diag);
        if (status != ASH_OK) fail_msg("round %ld: %s", round, diag.message);
        shared += s.size < s.unshared;
        streams += p.problem.streams > 1;
        aliases += report.aliases > 0;
        for (int moves = 0; moves < 4; moves++) move_one(&p, plan, &caught, &passed);
        if (round % 8 == 0) {
            assert_ok(ash_memory_plan_create(context, &p.problem, &o, &again, &diag));
            assert_memory_equal(places, ash_memory_plan_places(again, NULL), p.count * sizeof *places);
            ash_memory_plan_destroy(again);
        }
        ash_memory_plan_destroy(plan);
    }
    print_message(
        "%ld programs, %ld over streams, %ld with aliases: %ld shared bytes, %ld pins refused; of "
        "the moves %ld caught, %ld sound\n",
        rounds, streams, aliases, shared, refused, caught, passed);
    assert_true(shared > rounds / 3 && streams > rounds / 3 && aliases > rounds / 3);
    assert_true(refused < rounds / 4 && caught > rounds / 2 && passed > rounds / 20);
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(random_programs)};
    if (argc > 1) rounds = strtol(argv[1], NULL, 10);
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
