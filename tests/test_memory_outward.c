/* SPDX-License-Identifier: MIT */
/* Graphs of the shape that training has, at sizes at which no search would end: the placement outward from
 * the heaviest moment packs them to their load. */
#include "ashlar/memory.h"
#include "random.h"
#include "testing.h"

static ash_diag diag;
static ash_context *context;
static uint64_t seed;

static int64_t below(int64_t n) {
    return (int64_t)test_below(&seed, (uint64_t)n);
}

/* Sizes repeat in real graphs: 12 of them, some odd. */
static uint64_t any_size(void) {
    const uint64_t size = (uint64_t)(below(12) + 1) * 4097;
    return size << below(8);
}

/* Every layer leaves a result for its backward step, and both need workspace meanwhile: 5 buffers each. */
static uint32_t nest(ash_memory_buffer *b, int64_t layers) {
    uint32_t n = 0;
    for (int64_t layer = 0; layer < layers; layer++) {
        int64_t forward = 2 * layer, backward = 4 * layers - 2 * layer;
        uint64_t result = any_size();
        b[n++] = ash_memory_buffer_init(result, 1, forward, backward + 1);
        b[n++] = ash_memory_buffer_init(any_size(), 1, forward, forward + 1);
        b[n++] = ash_memory_buffer_init(any_size() / 2 + 1, 1, forward + 1, backward);
        b[n++] = ash_memory_buffer_init(result, 1, backward - 2, backward + 1);
        b[n++] = ash_memory_buffer_init(any_size(), 1, backward, backward + 1);
    }
    return n;
}

/* `calm` buffers that live for long, and within a few operations some that come and go and are as large as
 * all of those together. Each of them must find a place between the others: a stack at one moment does not
 * see the next. */
static uint32_t knot(ash_memory_buffer *b, uint32_t calm) {
    static const struct {
        int64_t begin, end;
        uint64_t size;
    } hot[] = {{0, 6, 30},   {4, 9, 20},   {6, 14, 30}, {9, 16, 20}, {14, 20, 25},
               {16, 22, 24}, {20, 27, 26}, {2, 22, 10}, {22, 30, 34}};
    int64_t middle = 2 * (int64_t)calm;
    uint64_t unit = 0;
    uint32_t n = 0;
    for (; n < calm; n++) {
        uint64_t size = any_size();
        int64_t before = below(middle), after = below(middle);
        b[n] = ash_memory_buffer_init(size, 1, middle - 1 - before, middle + 40 + after);
        unit += b[n].size;
    }
    for (size_t k = 0; k < sizeof hot / sizeof hot[0]; k++)
        b[n++] =
            ash_memory_buffer_init(unit / 50 * hot[k].size, 1, middle + hot[k].begin, middle + hot[k].end);
    return n;
}

static void packs_to_the_load(ash_memory_buffer *b, uint32_t count, ash_memory_strategy strategy) {
    ash_memory_problem problem = {.buffers = b, .buffer_count = count};
    ash_memory_options options = ash_memory_options_inference();
    ash_memory_plan *plan;
    options.strategy = strategy;
    assert_ok(ash_memory_plan_create(context, &problem, &options, &plan, &diag));
    ash_memory_summary s = ash_memory_plan_summary(plan);
    print_message("%7u buffers: %.5f of the bound, %llu nodes\n", count,
                  (double)s.size / (double)s.lower_bound,
                  (unsigned long long)ash_memory_plan_arenas(plan, NULL)[0].nodes);
    assert_int_equal(s.size, s.lower_bound);
    assert_int_equal(s.certificate, ASH_MEMORY_OPTIMAL_BY_LOAD);
    ash_memory_plan_destroy(plan);
}

static void nests_of_any_size(void **state) {
    (void)state;
    enum { LAYERS = 20000 };
    ash_memory_buffer *b = malloc(5 * LAYERS * sizeof *b);
    assert_non_null(b);
    for (int64_t layers = 20; layers <= LAYERS; layers *= 10)
        for (uint64_t turn = 1; turn <= 5; turn++) {
            seed = turn;
            packs_to_the_load(b, nest(b, layers), ASH_MEMORY_AUTO);
        }
    free(b);
}

static void knots_of_heavy_moments(void **state) {
    (void)state;
    enum { CALM = 20000 };
    ash_memory_buffer *b = malloc((CALM + 16) * sizeof *b);
    assert_non_null(b);
    for (uint32_t calm = 20; calm <= CALM; calm *= 10)
        for (uint64_t turn = 1; turn <= 5; turn++) {
            seed = turn;
            packs_to_the_load(b, knot(b, calm), ASH_MEMORY_SEARCH);
        }
    free(b);
}

static int create_context(void **state) {
    (void)state;
    ash_context_options options = {.threads = 1};
    return ash_context_create(&options, &context, &diag) != ASH_OK;
}

static int destroy_context(void **state) {
    (void)state;
    ash_context_destroy(context);
    return 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nests_of_any_size),
        cmocka_unit_test(knots_of_heavy_moments),
    };
    return cmocka_run_group_tests(tests, create_context, destroy_context);
}
