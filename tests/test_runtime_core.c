/* SPDX-License-Identifier: MIT */
/* The core of a plan: the same text wherever it is made, one for all replicas, and read-only. */
#include "reorder_plan.h"

#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "ashlar/builder.h"
#include "ashlar/function.h"

static ash_diag diag;

enum { WIDTH = 32, ROWS = 16, PAGE = 4096, STREAMS = 6 /* among the ways */ };

/* --- pages -------------------------------------------------------------------------------------- */

/* Blocks of arenas have whole pages to themselves. */
static size_t rounded(size_t size) {
    return size < PAGE ? size : ash_align_up(size, (size_t)PAGE);
}

static void *page_alloc(void *user, size_t size, size_t align) {
    (void)user;
    void *ptr = NULL;
    size_t at_least = size < PAGE ? sizeof(void *) : PAGE;
    return posix_memalign(&ptr, ASH_MAX(align, at_least), rounded(size)) == 0 ? ptr : NULL;
}

static void protect(void *block, size_t size, int how) {
    assert_int_equal((uintptr_t)block % PAGE, 0);
    assert_int_equal(mprotect(block, rounded(size), how), 0);
}

static void page_free(void *user, void *ptr, size_t size) {
    (void)user;
    if (size >= PAGE) protect(ptr, size, PROT_READ | PROT_WRITE);
    free(ptr);
}

static void seal(const ash_plan *plan) {
    for (ash_arena_block *block = plan->core->arena.blocks, *next; block; block = next) {
        next = block->next;
        protect(block, block->bytes, PROT_READ);
    }
}

/* --- a graph with some of everything ---------------------------------------------------------------- */

struct room {
    ash_allocator allocator;
    ash_context *context;
    ash_graph *g;
};

static ash_status twice(void *user, const ash_call *call, ash_diag *why) {
    const float *x = call->ins[0];
    float *y = call->outs[0];
    int64_t count = call->in_types[0].dims[0] * WIDTH;
    (void)user, (void)why;
    for (int64_t i = 0; i < count && call->begin == 0; i++) y[i] = 2 * x[i];
    return ASH_OK;
}

static void open_room(struct room *r, unsigned threads) {
    r->allocator = (ash_allocator){page_alloc, page_free, NULL};
    ash_context_options options = {.allocator = r->allocator, .threads = threads};
    assert_ok(ash_context_create(&options, &r->context, &diag));
    const ash_function function = {.name = "twice", .run = twice};
    assert_ok(ash_context_add_function(r->context, &function, &diag));
    ash_graph *g;
    assert_ok(ash_graph_create(r->context, "all", &g, &diag));
    ash_dim batch = ash_graph_var(g, "batch", 1, ROWS);
    float data[WIDTH * WIDTH];
    for (int i = 0; i < WIDTH * WIDTH; i++) data[i] = (float)(i * 7 % 23 - 11) / 16;
    ash_type rows = {.dtype = ASH_F32, .rank = 2, .dims = {batch, WIDTH}};
    ash_type square = {.dtype = ASH_F32, .rank = 2, .dims = {WIDTH, WIDTH}};
    ash_type line = {.dtype = ASH_F32, .rank = 1, .dims = {WIDTH}};
    ash_value x = ash_graph_input(g, "x", &rows), called;
    ash_value w = ash_graph_parameter(g, "w", &square, data, sizeof data, ASH_DATA_COPY);
    ash_value c = ash_graph_constant(g, &square, data, sizeof data, ASH_DATA_COPY);
    ash_value sum = ash_graph_state(g, "sum", &line, data, sizeof data / WIDTH, ASH_DATA_COPY);
    ash_value last = ash_graph_state(g, "last", &line, NULL, 0, ASH_DATA_COPY);
    ash_value a = ash_tanh(g, ash_matmul(g, ash_add(g, x, sum), ash_exp(g, w)));
    ash_value b = ash_softmax(g, ash_matmul(g, x, c), 1);
    assert_int_equal(ash_custom(g, "twice", &b, 1, &rows, 1, NULL, &called), ASH_OK);
    ash_value y = ash_add(g, ash_sigmoid(g, ash_matmul(g, a, c)), called), count;
    ash_value at = ash_nonzero(g, ash_lt(g, ash_scalar(g, ASH_F32, 0), x), &count);
    ash_dim found = ash_settle(g, "found", count, ash_graph_type(g, at)->dims[0]);
    const int64_t first[] = {0};
    at = ash_slice_axis(g, at, 0, 0, found);
    ash_graph_update(g, sum, ash_add(g, sum, ash_reduce(g, ASH_OP_REDUCE_SUM, x, first, 1, false)));
    ash_graph_update(g, last, ash_reduce(g, ASH_OP_REDUCE_MAX, y, first, 1, false));
    ash_graph_output(g, "y", y);
    ash_graph_output(g, "at", at);
    ash_graph_output(g, "count", count);
    ash_graph_output(g, "last", last);
    assert_ok(ash_graph_status(g, &diag));
    r->g = g;
}

static void close_room(struct room *r) {
    ash_graph_destroy(r->g);
    ash_context_destroy(r->context);
}

static const ash_plan_options ways[] = {
    {.mode = ASH_MODE_STREAM, .threads = 1},
    {.mode = ASH_MODE_STREAM, .threads = 2, .poison = true},
    {.mode = ASH_MODE_STREAM, .threads = 2, .no_fuse = true, .memory = {.mode = ASH_MEMORY_DISABLED}},
    {.mode = ASH_MODE_GRAPH, .threads = 1},
    {.mode = ASH_MODE_GRAPH, .threads = 2, .poison = true},
    {.mode = ASH_MODE_MULTI_STREAM, .streams = 3, .threads = 2},
    [STREAMS] =
        {.mode = ASH_MODE_MULTI_STREAM, .streams = 2, .threads = 2, .poison = true, .no_fuse = true},
    {.mode = ASH_MODE_GRAPH, .threads = 1, .late_capture = true},
    {.mode = ASH_MODE_STREAM, .threads = 2, .poison = true, .reuse_inputs = true},
};

/* --- text --------------------------------------------------------------------------------------------- */

static char *text_of(struct room *r, const ash_plan_options *options) {
    ash_plan *plan;
    char *text;
    uint64_t len;
    assert_ok(ash_plan_prepare(r->context, r->g, options, &plan, &diag));
    assert_ok(ash_plan_print(plan, &text, &len, &diag));
    assert_int_equal(strlen(text), len);
    char *copy = strdup(text);
    ash_context_free_text(plan->context, text, len);
    ash_plan_destroy(plan);
    return copy;
}

static void same_plans_are_the_same_text(void **state) {
    char *texts[ASH_COUNT(ways)];
    (void)state;
    for (size_t i = 0; i < ASH_COUNT(ways); i++) {
        struct room here = {0}, there = {0};
        open_room(&here, 2);
        char *before = text_of(&here, &ways[i]);
        open_room(&there, 3); /* elsewhere, among other things */
        char *apart = text_of(&there, &ways[i]), *again = text_of(&here, &ways[i]);
        assert_string_equal(before, apart);
        assert_string_equal(before, again);
        free(apart);
        free(again);
        close_room(&there);
        close_room(&here);
        texts[i] = before;
        for (size_t k = 0; k < i; k++) assert_string_not_equal(texts[k], before);
    }
    for (size_t i = 0; i < ASH_COUNT(ways); i++) free(texts[i]);
}

/* Each thing that the text is said to have is there, as often as in the plan. */
static void all_of_it_is_said(void **state) {
    struct room r = {0};
    ash_plan *plan;
    char *text, name[32];
    uint64_t len;
    (void)state;
    open_room(&r, 2);
    plan = reorder_prepare(r.context, r.g, &ways[STREAMS]); /* with steps that are worth several streams */
    assert_ok(ash_plan_print(plan, &text, &len, &diag));
    const ash_plan_core *core = plan->core;
    size_t lines[8] = {0};
    static const char *const begins[] = {"\n  %", "\n  #",        "\n      read ", "\n      write ",
                                         "\n  k", "\n  launch #", "\n  fill %",    "\n  wait "};
    for (size_t i = 0; i < ASH_COUNT(begins); i++)
        for (const char *at = text; (at = strstr(at, begins[i])); at++) lines[i]++;
    size_t reads = 0, writes = 0, launches = 0, waits = 0, roots = 0;
    for (size_t s = 0; s < core->program.steps.len; s++) {
        const ash_step *step = &core->program.steps.at[s];
        for (uint32_t i = 0; i < step->n_accesses; i++) *(step->accesses[i].write ? &writes : &reads) += 1;
        launches += s >= core->program.prologue && step->kind == ASH_STEP_KERNEL;
    }
    for (uint32_t i = 0; i < core->n_commands; i++) waits += core->commands[i].kind == ASH_COMMAND_WAIT;
    for (uint32_t b = 0; b < core->n_buffers; b++) roots += core->first_entry[b] < core->first_entry[b + 1];
    assert_int_equal(lines[0], core->n_buffers + roots);
    assert_int_equal(lines[1], core->program.steps.len);
    assert_int_equal(lines[2], reads);
    assert_int_equal(lines[3], writes);
    assert_int_equal(lines[4], core->program.nests.len);
    assert_int_equal(lines[5], launches);
    assert_int_equal(lines[6], core->n_fills);
    assert_int_equal(lines[7], waits);
    assert_true(waits == plan->schedule->n_waits && waits > 0 && core->n_fills > 0 && core->n_settled == 1);
    for (uint32_t b = 0; b < core->n_buffers; b++) {
        const ash_place *place = &core->layout.places[b];
        if (place->home != ASH_HOME_MAIN) continue;
        snprintf(name, sizeof name, ": main %u + %llu", place->arena, (unsigned long long)place->offset);
        assert_non_null(strstr(text, name));
    }
    ash_context_free_text(plan->context, text, len);
    ash_plan_destroy(plan);
    close_room(&r);
}

/* A plan lays its work out as the core says: that is how captured entries find it. */
static void work_lies_at_its_distance(void **state) {
    (void)state;
    for (size_t i = 0; i < ASH_COUNT(ways); i++) {
        struct room r = {0};
        ash_plan *plan;
        open_room(&r, 2);
        assert_ok(ash_plan_prepare(r.context, r.g, &ways[i], &plan, &diag));
        const void *first = ash_command__first(plan->commands, plan->n_commands);
        for (size_t c = 0; c < plan->n_commands; c++) {
            if (!ash_command__works(&plan->commands[c])) continue;
            uint64_t distance = (uint64_t)((uintptr_t)plan->commands[c].work - (uintptr_t)first);
            assert_int_equal(distance, ash_plan_core__distance(plan->core, &plan->core->commands[c]));
        }
        ash_plan_destroy(plan);
        close_room(&r);
    }
}

/* --- reading ahead ------------------------------------------------------------------------------------ */

/* Two products whose weights are large; a small one between. */
static ash_plan *products(struct room *r, unsigned threads) {
    enum { WIDE = 1024, SMALL = 32 };
    static float data[WIDE * WIDE];
    ash_dim dims[] = {1, WIDE, SMALL, WIDE, WIDE};
    ash_graph *g;
    ash_plan *plan;
    for (int i = 0; i < WIDE * WIDE; i++) data[i] = (float)(i % 7 - 3);
    assert_ok(ash_graph_create(r->context, "products", &g, &diag));
    ash_type type = {.dtype = ASH_F32, .rank = 2, .dims = {1, WIDE}};
    ash_value x = ash_graph_input(g, "x", &type);
    static const unsigned order[][2] = {{1, 3}, {3, 2}, {2, 4}, {3, 4}};
    for (size_t i = 0; i < ASH_COUNT(order); i++) {
        ash_type w = {.dtype = ASH_F32, .rank = 2, .dims = {dims[order[i][0]], dims[order[i][1]]}};
        int64_t count = w.dims[0] * w.dims[1];
        x = ash_matmul(g, x, ash_graph_constant(g, &w, data, (size_t)count * sizeof *data, ASH_DATA_COPY));
    }
    ash_graph_output(g, "y", x);
    const ash_plan_options options = {.threads = threads};
    assert_ok(ash_plan_prepare(r->context, g, &options, &plan, &diag));
    ash_graph_destroy(g);
    return plan;
}

/* Threads that wait read the weights of the next product that has many, where there are several. */
static void weights_are_read_ahead(void **state) {
    struct room r = {0};
    (void)state;
    open_room(&r, 2);
    for (unsigned threads = 1; threads <= 2; threads++) {
        ash_plan *plan = products(&r, threads);
        const ash_launch *last = &plan->steps[plan->n_steps - 1].work.launch;
        unsigned ahead = 0;
        for (size_t i = 0; i < plan->n_steps; i++) {
            const ash_launch *launch = &plan->steps[i].work.launch;
            if (!launch->ahead.buffer) continue;
            ahead++;
            assert_true(launch->chunks.parallel && launch != last);
            assert_int_equal(launch->ahead.bytes, 4 << 20);
            assert_true(launch->ahead.buffer >= last->buffers &&
                        launch->ahead.buffer < last->buffers + last->count);
        }
        assert_true(threads == 1 ? ahead == 0 : ahead > 0);
        ash_plan_destroy(plan);
    }
    close_room(&r);
}

/* --- read-only ---------------------------------------------------------------------------------------- */

static void give(ash_plan *plan, int64_t batch) {
    float x[ROWS * WIDTH];
    for (int i = 0; i < ROWS * WIDTH; i++) x[i] = (float)(i % 13 - 6) / 8;
    const ash_var_binding var = {"batch", batch};
    assert_ok(ash_plan_set_vars(plan, &var, 1, &diag));
    assert_ok(ash_plan_set_input(plan, 0, NULL, x, (size_t)batch * WIDTH * sizeof *x, &diag));
}

static void execute(ash_plan *plan, int64_t batch) {
    const ash_view *view;
    give(plan, batch);
    assert_ok(ash_plan_execute(plan, &diag));
    for (size_t i = 0; i < ash_plan_output_count(plan); i++) {
        char bytes[ROWS * WIDTH * 16];
        assert_ok(ash_plan_output(plan, i, &view, &diag));
        assert_ok(ash_view_copy_out(view, bytes, ash_view_bytes(view), &diag));
    }
}

static void use(ash_plan *plan, const ash_plan_options *options) {
    static const float w[WIDTH * WIDTH] = {1};
    ash_profile profile[64];
    uint64_t released;
    char *text;
    uint64_t len;
    for (int64_t batch = ROWS; batch > 0; batch /= 3) execute(plan, batch);
    assert_ok(ash_plan_reset_states(plan, &diag));
    assert_ok(ash_plan_set_state(plan, 0, NULL, w, WIDTH * sizeof *w, &diag));
    assert_ok(ash_plan_set_parameter(plan, "w", NULL, w, sizeof w, &diag));
    execute(plan, 4);
    give(plan, 4);
    if (options->mode != ASH_MODE_GRAPH)
        assert_ok(ash_plan_execute_profiled(plan, profile, ASH_COUNT(profile), &diag));
    assert_ok(ash_plan_release_intermediates(plan, &released, &diag));
    execute(plan, 2);
    assert_ok(ash_plan_release_all(plan, &released, &diag));
    execute(plan, 7);
    assert_int_equal(ash_plan_describe(plan).ops, plan->core->n_steps);
    assert_ok(ash_plan_print(plan, &text, &len, &diag));
    ash_context_free_text(plan->context, text, len);
    assert_ok(ash_plan_kernel_source(plan, 0, ASH_SOURCE_IR, &text, &len, &diag));
    ash_context_free_text(plan->context, text, len);
}

static void nobody_writes_to_it(void **state) {
    (void)state;
    for (size_t i = 0; i <= ASH_COUNT(ways); i++) {
        struct room r = {0};
        ash_plan *plan, *twins[2];
        uint64_t released;
        const ash_plan_options *way = &ways[i < ASH_COUNT(ways) ? i : STREAMS];
        open_room(&r, 2);
        if (i < ASH_COUNT(ways))
            assert_ok(ash_plan_prepare(r.context, r.g, way, &plan, &diag));
        else /* really on several streams */
            plan = reorder_prepare(r.context, r.g, way);
        seal(plan);
        use(plan, way);
        for (size_t t = 0; t < ASH_COUNT(twins); t++) {
            assert_ok(ash_plan_replicate(plan, &twins[t], &diag));
            assert_ptr_equal(twins[t]->core, plan->core);
            assert_true(twins[t]->program == plan->program && twins[t]->layout == plan->layout &&
                        twins[t]->schedule == plan->schedule);
            use(twins[t], way);
        }
        use(plan, way);
        for (size_t t = 0; t < ASH_COUNT(twins); t++) ash_plan_destroy(twins[t]);
        execute(plan, 3);
        assert_ok(ash_plan_release_originals(plan, &released, &diag));
        assert_true(released > 0);
        execute(plan, 5);
        ash_plan_destroy(plan);
        close_room(&r);
    }
}

/* The test above could fail: a process that writes there does not live on. */
static void who_writes_is_seen(void **state) {
    struct room r = {0};
    ash_plan *plan;
    (void)state;
    open_room(&r, 1);
    assert_ok(ash_plan_prepare(r.context, r.g, &ways[0], &plan, &diag));
    seal(plan);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        signal(SIGSEGV, SIG_DFL);
        ((ash_plan_core *)plan->core)->layout.places[0].offset++;
        _exit(0);
    }
    int how;
    assert_int_equal(waitpid(child, &how, 0), child);
    assert_false(WIFEXITED(how) && WEXITSTATUS(how) == 0);
    ash_plan_destroy(plan);
    close_room(&r);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(same_plans_are_the_same_text), cmocka_unit_test(all_of_it_is_said),
        cmocka_unit_test(work_lies_at_its_distance),    cmocka_unit_test(nobody_writes_to_it),
        cmocka_unit_test(who_writes_is_seen),           cmocka_unit_test(weights_are_read_ahead),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
