/* SPDX-License-Identifier: MIT */
/* Pairs: a forward and a backward plan that are made together. Against one plan of the same graph, bit for
 * bit, whatever the modes, threads and planners of the two; the proof that nothing overwrites what is
 * handed over, from what the public interface says; with less memory and without; and what is refused.
 * Their states: test_runtime_pair_state. */
#include "apart.h"
#include "pair_room.h"

#include <math.h>

#include "runtime/plan.h"

/* --- running ------------------------------------------------------------------------------------------ */

static size_t add_view(const ash_view *view, uint8_t *out, size_t used) {
    uint64_t bytes = ash_view_bytes(view);
    assert_true(used + bytes <= NUMBERS * sizeof(float));
    assert_ok(ash_view_copy_out(view, out + used, bytes, &diag));
    return used + bytes;
}

static size_t add_outputs(ash_plan *plan, uint8_t *out, size_t used) {
    const ash_view *view;
    for (size_t i = 0; i < ash_plan_output_count(plan); i++) {
        assert_ok(ash_plan_output(plan, i, &view, &diag));
        used = add_view(view, out, used);
    }
    return used;
}

static size_t add_states(ash_plan *plan, uint8_t *out, size_t used) {
    const ash_view *view;
    for (size_t i = 0; i < ash_plan_state_count(plan); i++) {
        assert_ok(ash_plan_state(plan, i, &view, &diag));
        used = add_view(view, out, used);
    }
    return used;
}

static const int64_t rows_of[STEPS] = {ROWS, 5, ROWS - 1};

static void set_rows(ash_plan *plan, int64_t rows) {
    assert_ok(ash_plan_set_vars(plan, &(ash_var_binding){"rows", rows}, 1, &diag));
}

/* What the pair's two give, in that order: logits and loss, then gradients. The plan stays, so that pairs
 * find its kernels. */
static size_t run_one(fixture *f, const ash_plan_options *options, uint8_t *out, uint64_t *arena) {
    ash_plan *plan, *before = f->plan;
    size_t used = 0, loss;
    const ash_view *view;
    assert_ok(ash_plan_prepare(f->context, f->g, options, &plan, &diag));
    *arena = ash_plan_arena_size(plan);
    for (int i = 0; i < STEPS; i++) {
        set_rows(plan, rows_of[i]);
        give_all(plan, rows_of[i], 0.5f + (float)i);
        assert_ok(ash_plan_execute(plan, &diag));
        assert_ok(ash_plan_output_position(plan, "loss", &loss, &diag));
        for (size_t k = 0; k < 2; k++) {
            assert_ok(ash_plan_output(plan, k ? loss : 0, &view, &diag));
            used = add_view(view, out, used);
        }
        for (size_t k = 1; k < loss; k++) {
            assert_ok(ash_plan_output(plan, k, &view, &diag));
            used = add_view(view, out, used);
        }
    }
    ash_plan_destroy(before);
    f->plan = plan;
    return add_states(plan, out, used);
}

static unsigned most_streams; /* of the two plans of any pair together */

static size_t run_pair(const fixture *f, const step *s, const ash_plan_options *options,
                       const ash_plan_options *second, uint8_t *out, uint64_t *arena) {
    pair p = prepare(f, s, options, second);
    size_t used = 0;
    unsigned streams = ash_plan_describe(p.first).streams + ash_plan_describe(p.second).streams;
    if (streams > most_streams) most_streams = streams;
    *arena = ash_plan_arena_size(p.first);
    assert_int_equal(ash_plan_arena_size(p.second), *arena);
    assert_int_equal(ash_plan_input_count(p.first) + ash_plan_input_count(p.second), 4);
    assert_int_equal(ash_plan_output_count(p.first), 2);
    assert_int_equal(ash_plan_output_count(p.second), s->n);
    for (int i = 0; i < STEPS; i++) {
        set_rows(i % 2 ? p.first : p.second, rows_of[i]);
        give_all(p.first, rows_of[i], 0);
        if (i % 2) give_all(p.second, rows_of[i], 0.5f + (float)i); /* sooner or later */
        assert_ok(ash_plan_execute(p.first, &diag));
        used = add_outputs(p.first, out, used);
        if (i % 2 == 0) give_all(p.second, rows_of[i], 0.5f + (float)i);
        assert_ok(ash_plan_execute(p.second, &diag));
        uint8_t again[ROWS * OUT * sizeof(float) + sizeof(float)];
        size_t size = (size_t)rows_of[i] * OUT * sizeof(float) + sizeof(float);
        assert_int_equal(add_outputs(p.first, again, 0), size); /* they stay */
        assert_memory_equal(again, out + used - size, size);
        used = add_outputs(p.second, out, used);
    }
    used = add_states(p.second, out, used);
    destroy(&p);
    return used;
}

/* --- the same bits ----------------------------------------------------------------------------------- */

static uint8_t one[NUMBERS * sizeof(float)], two[NUMBERS * sizeof(float)];

static void in_every_mode(void **state) {
    fixture *f = *state;
    uint64_t arena, other;
    step s;
    most_streams = 0;
    for (int update = 0; update < 2; update++) {
        add_step(fresh(f), &s, update);
        ash_plan_options options = in_mode(0);
        size_t used = run_one(f, &options, one, &arena);
        int last = ASH_MODE_COUNT * ASH_MODE_COUNT * 4; /* the stand-in is slow: poisoned, on threads */
        for (int i = cuda_is_wished() ? last * 3 / 4 : 0; i < last; i++) {
            options = in_mode(i % ASH_MODE_COUNT);
            ash_plan_options second = in_mode(i / ASH_MODE_COUNT % ASH_MODE_COUNT);
            options.threads = 1 + (unsigned)i / (ASH_MODE_COUNT * ASH_MODE_COUNT) % 2;
            options.poison = i / (ASH_MODE_COUNT * ASH_MODE_COUNT) / 2;
            second.memory = ash_memory_options_backward_activations_only();
            memset(two, 0, sizeof two);
            assert_int_equal(run_pair(f, &s, &options, &second, two, &other), used);
            assert_memory_equal(one, two, used);
        }
    }
    if (!cuda_is_wished()) assert_true(most_streams > 3); /* both have several */
}

/* No planner takes more than it takes for one plan. */
static void by_every_planner(void **state) {
    fixture *f = *state;
    uint64_t arena, other;
    step s;
    add_step(fresh(f), &s, true);
    for (int i = 0; i < 2 * 8; i++) {
        ash_plan_options options = in_mode(i % 2 ? ASH_MODE_MULTI_STREAM : ASH_MODE_STREAM);
        if (i / 2 < ASH_MEMORY_STRATEGY_COUNT) options.memory.strategy = (ash_memory_strategy)(i / 2);
        if (i / 2 == 4) options.memory.mode = ASH_MEMORY_REMAP;
        if (i / 2 == 5) options.memory.mode = ASH_MEMORY_DISABLED;
        options.reuse_inputs = i / 2 == 6;
        options.order = i / 2 == 7 ? ASH_PLAN_ORDER_ON : ASH_PLAN_ORDER_AUTO;
        options.no_fuse = i / 2 == 3;
        options.poison = true;
        options.memory.node_budget = 2000;
        size_t used = run_one(f, &options, one, &arena);
        memset(two, 0, sizeof two);
        assert_int_equal(run_pair(f, &s, &options, NULL, two, &other), used);
        assert_memory_equal(one, two, used);
        if (i % 2 == 0 && other > arena)
            fail_msg("%d: %llu bytes, one plan takes %llu", i, (unsigned long long)other,
                     (unsigned long long)arena);
    }
}

/* --- nothing is overwritten -------------------------------------------------------------------------- */

/* Whose each byte of the arenas is, by root; replayed over the accesses of plans in an order. Returns how
 * many accesses read another's bytes. */
typedef struct replay {
    uint32_t *owners[MOST];
    uint64_t sizes[MOST];
    size_t reads, saved, wrong;
} replay;

static void visit(replay *r, ash_plan *plan, uint32_t op, size_t access, bool later) {
    ash_op_access a = ASH_INIT(ash_op_access);
    ash_buffer_info b = ASH_INIT(ash_buffer_info);
    assert_ok(ash_plan_op_access(plan, op, access, &a, &diag));
    assert_ok(ash_plan_buffer_at(plan, a.buffer, &b, &diag));
    if (b.arena == UINT32_MAX) return;
    assert_true(b.arena < MOST && b.offset + a.end <= r->sizes[b.arena]);
    bool right = true, first = false;
    for (uint64_t k = b.offset + a.begin; k < b.offset + a.end; k++) {
        uint32_t *owner = &r->owners[b.arena][k];
        if (a.write)
            *owner = b.root | (later ? 0 : UINT32_C(1) << 31);
        else if (b.role != ASH_ROLE_INPUT && b.role != ASH_ROLE_STATE) {
            right &= (*owner & ~(UINT32_C(1) << 31)) == b.root;
            first |= *owner >> 31;
        }
    }
    r->reads += !a.write;
    r->saved += later && first;
    r->wrong += !right;
}

static replay replay_all(const pair *p, bool swapped) {
    replay r = {0};
    size_t arenas;
    const ash_memory_arena *arena = ash_memory_plan_arenas(ash_plan_memory(p->first), &arenas);
    for (size_t i = 0; i < arenas; i++) {
        r.sizes[i] = arena[i].size;
        r.owners[i] = malloc(arena[i].size * sizeof(uint32_t));
        memset(r.owners[i], 0x7f, arena[i].size * sizeof(uint32_t));
    }
    for (int turn = 0; turn < 2; turn++) {
        bool later = swapped ? !turn : turn;
        ash_plan *plan = later ? p->second : p->first;
        for (uint32_t op = 0; op < ash_plan_op_count(plan); op++)
            for (int write = 0; write < 2; write++)
                for (size_t i = 0; i < ash_plan_op_access_count(plan, op); i++) {
                    ash_op_access a = ASH_INIT(ash_op_access);
                    assert_ok(ash_plan_op_access(plan, op, i, &a, &diag));
                    if (a.write == (write != 0)) visit(&r, plan, op, i, later);
                }
    }
    for (size_t i = 0; i < arenas; i++) free(r.owners[i]);
    return r;
}

static void what_is_saved_stays(void **state) {
    fixture *f = *state;
    step s;
    add_step(f->g, &s, true);
    ash_plan_options options = in_mode(ASH_MODE_STREAM);
    pair p = prepare(f, &s, &options, NULL);
    replay r = replay_all(&p, false);
    assert_int_equal(r.wrong, 0);
    assert_true(r.reads > 20 &&
                r.saved >= 2 * BRANCHES);        /* each branch leaves what its weights' gradients read */
    assert_true(replay_all(&p, true).wrong > 0); /* the other way round there is nothing to read */
    ash_plan_report report = ash_plan_describe(p.second);
    assert_int_equal(report.ops, ash_plan_op_count(p.second));
    assert_true(report.replay.accesses > r.reads); /* of both: the checkers have seen the one schedule */
    assert_int_equal(report.weights, ash_plan_describe(p.first).weights);
    destroy(&p);
}

/* --- with less memory -------------------------------------------------------------------------------- */

/* Branches of elementwise operators, each of which leaves a value that is cheap to compute again. */
static void add_branches(ash_graph *g, step *s) {
    enum { TALL = 128, HERE = 6 };
    *s = (step){0};
    ash_value x = INPUT(g, "x", F32, TALL, WIDE), sum = ASH_NO_VALUE;
    s->seed = INPUT(g, "seed", F32, TALL, WIDE);
    for (int i = 0; i < HERE; i++) {
        ash_value h = ash_tanh(g, ash_mul(g, x, add_weight(g, s, TYPE(F32, WIDE))));
        sum = sum == ASH_NO_VALUE ? h : ash_mul(g, sum, h);
    }
    assert_ok(ash_graph_gradients(g, &sum, &s->seed, 1, s->weights, s->n, NULL, s->grads, &diag));
    ash_graph_output(g, "y", sum);
    for (size_t i = 0; i < s->n; i++) {
        const char name[] = {'d', (char)('0' + i), 0};
        ash_graph_output(g, name, s->grads[i]);
    }
}

static size_t run_branches(const pair *p, uint8_t *out) {
    static float x[128 * WIDE];
    for (size_t k = 0; k < ASH_COUNT(x); k++) x[k] = made(3, k);
    give(p->first, "x", x, sizeof x);
    give(p->second, "seed", x, sizeof x);
    assert_ok(ash_plan_execute(p->first, &diag));
    size_t used = add_outputs(p->first, out, 0);
    assert_ok(ash_plan_execute(p->second, &diag));
    return add_outputs(p->second, out, used);
}

/* A capacity is the pair's: orders and recomputation see both parts, and what is computed again is
 * computed by the second. */
static void within_a_capacity(void **state) {
    fixture *f = *state;
    step s;
    add_branches(f->g, &s);
    ash_plan_options options = in_mode(ASH_MODE_STREAM);
    options.memory.node_budget = 2000;
    options.poison = true;
    pair whole = prepare(f, &s, &options, NULL), p;
    size_t used = run_branches(&whole, one), most_again = 0, met = 0;
    uint64_t arena = ash_plan_arena_size(whole.first);
    ash_status status = ASH_OK;
    for (uint64_t capacity = arena; status == ASH_OK; capacity -= arena / 32) {
        options.memory.capacity = capacity;
        status = try_to_prepare(f, s.seed, &options, NULL, &p);
        if (status != ASH_OK) break;
        assert_true(ash_plan_arena_size(p.first) <= capacity);
        assert_int_equal(replay_all(&p, false).wrong, 0);
        size_t again = ash_plan_describe(p.first).order.recomputed;
        assert_int_equal(run_branches(&p, two), used);
        assert_memory_equal(one, two, used);
        if (again > most_again) most_again = again;
        assert_true(ash_plan_op_count(p.second) >= ash_plan_op_count(whole.second));
        destroy(&p);
        met++;
    }
    destroy(&whole);
    assert_int_equal(status, ASH_ERROR_BUDGET);
    assert_true(met > 4 && most_again > 1);
}

/* Every allocation fails once, until preparing succeeds; then those of the first executions. */
static void without_memory(void **state) {
    fixture *f = *state;
    step s = {0};
    ash_graph *g = f->g;
    pair p;
    ash_value x = INPUT(g, "x", F32, 4, 4), late = INPUT(g, "late", F32, 4, 4), w;
    w = add_weight(g, &s, TYPE(F32, 4, 4));
    ash_value y = ash_tanh(g, ash_matmul(g, x, w)), grad;
    assert_ok(ash_graph_gradients(g, &y, &late, 1, &w, 1, NULL, &grad, &diag));
    ash_graph_output(g, "y", y);
    ash_graph_output(g, "dw", grad);
    s.seed = late;
    ash_plan_options options = in_mode(ASH_MODE_MULTI_STREAM);
    f->plan = prepare(f, &s, &options, NULL).second; /* keeps the kernels */
    ash_plan *kept = ash_plan__memory(f->plan);
    ash_status status = ASH_ERROR_OUT_OF_MEMORY;
    for (long n = 1; status != ASH_OK; n++) {
        long long before = f->memory.live;
        f->memory.count = 0;
        f->memory.fail_at = n;
        status = try_to_prepare(f, late, &options, NULL, &p);
        f->memory.fail_at = 0;
        if (status == ASH_OK) break;
        assert_int_equal(status, ASH_ERROR_OUT_OF_MEMORY);
        assert_int_equal(f->memory.live, before);
    }
    const float ones[16] = {1, 1, 1, 1};
    for (long n = 1, more = 1; more; n++) {
        more = 0;
        for (int turn = 0; turn < 4; turn++) {
            f->memory.count = 0;
            f->memory.fail_at = n;
            status = turn < 2
                         ? ash_plan_set_input(turn ? p.second : p.first, 0, NULL, ones, sizeof ones, &diag)
                         : ash_plan_execute(turn == 3 ? p.second : p.first, &diag);
            f->memory.fail_at = 0;
            if (status == ASH_OK) continue;
            assert_true(status == ASH_ERROR_OUT_OF_MEMORY || status == ASH_ERROR_STATE);
            more = 1;
        }
        assert_ok(ash_plan_release_all(p.second, NULL, &diag));
    }
    destroy(&p);
    ash_plan_destroy(kept);
}

/* --- misuse ------------------------------------------------------------------------------------------ */

static void turns(void **state) {
    fixture *f = *state;
    step s;
    add_step(f->g, &s, true);
    ash_plan_options options = in_mode(ASH_MODE_STREAM);
    pair p = prepare(f, &s, &options, NULL);
    const ash_view *view;
    float zero[WIDE * IN] = {0};
    size_t at;
    give_all(p.first, ROWS, 1);
    give_all(p.second, ROWS, 1);
    cannot_go_on(&p, "it has not been");
    assert_ok(ash_plan_execute(p.first, &diag));
    assert_ok(ash_plan_execute(p.first, &diag)); /* twice is allowed */
    assert_ok(ash_plan_execute(p.second, &diag));
    assert_ok(ash_plan_output(p.second, 0, &view, &diag));
    assert_true(ash_view_bytes(view) && ash_view_storage(view));
    cannot_go_on(&p, "used up");

    assert_ok(ash_plan_execute(p.first, &diag)); /* ends the gradients */
    assert_status(ash_view_copy_out(view, zero, ash_view_bytes(view), &diag), ASH_ERROR_STATE);
    set_rows(p.second, 3);
    cannot_go_on(&p, "\"rows\" = 24, which is 3 now");
    refused(ash_plan_execute_vars(p.second, &(ash_var_binding){"rows", 4}, 1, &diag), ASH_ERROR_STATE,
            "which is 4 now");
    set_rows(p.first, ROWS); /* back again */
    assert_ok(ash_plan_execute(p.second, &diag));

    assert_ok(ash_plan_execute(p.first, &diag));
    give_all(p.second, ROWS, 2); /* the seed is the second's own */
    give_all(p.first, ROWS, 2);
    cannot_go_on(&p, "an input of it");
    assert_ok(ash_plan_execute(p.first, &diag));
    assert_ok(ash_plan_state_position(p.second, "w0", &at, &diag));
    assert_ok(ash_plan_set_state(p.second, at, NULL, zero, IN * WIDE * sizeof *zero, &diag));
    cannot_go_on(&p, "a state was set");
    assert_ok(ash_plan_execute(p.first, &diag));
    assert_ok(ash_plan_reset_states(p.first, &diag));
    cannot_go_on(&p, "a state was reset");

    assert_ok(ash_plan_execute(p.first, &diag));
    uint64_t bytes, size = ash_plan_arena_size(p.second);
    assert_ok(ash_plan_release_intermediates(p.second, &bytes, &diag));
    assert_true(bytes > 0 && bytes < size);
    cannot_go_on(&p, "arena");
    assert_ok(ash_plan_output_position(p.first, "loss", &at, &diag)); /* it was kept */
    assert_ok(ash_plan_output(p.first, at, &view, &diag));
    assert_ok(ash_view_copy_out(view, zero, sizeof *zero, &diag));
    assert_true(zero[0] > 0);
    assert_ok(ash_plan_release_all(p.first, &bytes, &diag));
    cannot_go_on(&p, "to be executed before");

    void *block = aligned_alloc(4096, (size + 4095) / 4096 * 4096);
    ash_status bound = ash_plan_bind_arena(p.second, block, size, &diag); /* either way, for both */
    if (bound != ASH_ERROR_DEVICE) {
        assert_ok(bound);
        give_all(p.first, ROWS, 1);
        give_all(p.second, ROWS, 1);
        assert_ok(ash_plan_execute(p.first, &diag));
        refused(ash_plan_bind_arena(p.first, NULL, 0, &diag), ASH_ERROR_STATE, "in use");
        assert_ok(ash_plan_execute(p.second, &diag));
        assert_ok(ash_plan_output(p.second, 0, &view, &diag));
        const void *data;
        assert_ok(ash_view_data(view, &data, &diag));
        assert_true((const char *)data >= (char *)block && (const char *)data < (char *)block + size);
        refused(ash_plan_bind_input(p.second, 0, NULL, block, sizeof(float), &diag),
                ASH_ERROR_INVALID_ARGUMENT, "overlaps");
    }
    ash_plan *replica;
    refused(ash_plan_replicate(p.second, &replica, &diag), ASH_ERROR_UNSUPPORTED, "pair");
    refused(ash_plan_replicate(p.first, &replica, &diag), ASH_ERROR_UNSUPPORTED, "pair");
    give_all(p.first, ROWS, 1);
    give_all(p.second, ROWS, 1);
    assert_ok(ash_plan_execute(p.first, &diag));
    ash_plan_destroy(p.first);
    cannot_go_on(&p, "destroyed");
    ash_plan_destroy(p.second);
    free(block);
}

static void preparing(void **state) {
    fixture *f = *state;
    step s;
    add_step(f->g, &s, false);
    pair p;
    ash_plan_options options = in_mode(ASH_MODE_STREAM), second = in_mode(ASH_MODE_GRAPH);
    refused(try_to_prepare(f, s.loss, &options, NULL, &p), ASH_ERROR_INVALID_ARGUMENT, "is no input");
    refused(try_to_prepare(f, ASH_NO_VALUE, &options, NULL, &p), ASH_ERROR_INVALID_ARGUMENT,
            "second plan of the pair has nothing to do");
    assert_null(p.first);
    assert_null(p.second);
    second.threads = 1;
    refused(try_to_prepare(f, s.seed, &options, &second, &p), ASH_ERROR_INVALID_ARGUMENT, "planned as one");
    ash_graph *g = fresh(f);
    ash_value x = INPUT(g, "x", F32, 4);
    ash_graph_output(g, "y", ash_exp(g, x));
    refused(try_to_prepare(f, x, NULL, NULL, &p), ASH_ERROR_INVALID_ARGUMENT,
            "first plan of the pair has nothing to do");
}

/* --- what both see ----------------------------------------------------------------------------------- */

/* Values that are between the two, and what is told of memory that is given back. */
static void count_released(void *user, const ash_release *what) {
    (void)what;
    ++*(int *)user;
}

static void what_is_in_between(void **state) {
    fixture *f = *state;
    step s = {0};
    ash_graph *g = f->g;
    ash_value x = INPUT(g, "x", F32, 8), late = INPUT(g, "late", F32, 8),
              w = add_weight(g, &s, TYPE(F32, 8));
    ash_value h = ash_tanh(g, ash_mul(g, x, w)), y = ash_reduce_sum(g, h, (const int64_t[]){0}, 1, false);
    ash_value product = ash_mul(g, h, late), last = ash_exp(g, product);
    ash_graph_output(g, "y", y);
    ash_graph_output(g, "last", ash_reduce_sum(g, last, (const int64_t[]){0}, 1, false));
    s.seed = late;
    ash_plan_options options = in_mode(ASH_MODE_STREAM);
    options.keep = (const ash_value[]){h, last};
    options.keep_count = 2;
    pair p = prepare(f, &s, &options, NULL);
    float a[8], b[8], got[8];
    const ash_view *view;
    int first = 0, second = 0;
    for (int k = 0; k < 8; k++) a[k] = b[k] = (float)k / 8;
    assert_ok(ash_plan_on_release(p.first, &(ash_release_hook){count_released, &first}, &diag));
    assert_ok(ash_plan_on_release(p.second, &(ash_release_hook){count_released, &second}, &diag));
    assert_ok(ash_plan_set_input(p.first, 0, NULL, a, sizeof a, &diag));
    assert_ok(ash_plan_set_input(p.second, 0, NULL, b, sizeof b, &diag));
    assert_ok(ash_plan_execute(p.first, &diag));
    refused(ash_plan_buffer(p.first, last, &view, &diag), ASH_ERROR_STATE, "second plan of the pair");
    assert_ok(ash_plan_execute(p.second, &diag));
    for (int turn = 0; turn < 2; turn++) { /* kept, so it can be read of both */
        assert_ok(ash_plan_buffer(turn ? p.second : p.first, h, &view, &diag));
        assert_ok(ash_view_copy_out(view, got, sizeof got, &diag));
        for (int k = 0; k < 8; k++)
            assert_true(fabsf(got[k] - tanhf(a[k] * 0.2f * made(0, (size_t)k))) < 1e-6f);
    }
    float values[8];
    assert_ok(ash_plan_buffer(p.second, last, &view, &diag));
    assert_ok(ash_view_copy_out(view, values, sizeof values, &diag));
    for (int k = 0; k < 8; k++) assert_true(fabsf(values[k] - expf(got[k] * b[k])) < 1e-5f);
    for (int turn = 0; turn < 2; turn++) { /* the other's input, and a weight */
        assert_ok(ash_plan_buffer(turn ? p.second : p.first, x, &view, &diag));
        assert_ok(ash_view_copy_out(view, got, sizeof got, &diag));
        assert_memory_equal(got, a, sizeof a);
        assert_ok(ash_plan_buffer(turn ? p.second : p.first, w, &view, &diag));
        assert_ok(ash_view_copy_out(view, got, sizeof got, &diag));
        assert_true(got[3] == 0.2f * made(0, 3));
    }
    assert_ok(ash_plan_release_all(p.second, NULL, &diag));
    assert_true(first > 3 && second == 0); /* the memory is the first's */
    destroy(&p);
}

/* Bytes that are bound are read by both where they lie. */
static void bound_inputs(void **state) {
    fixture *f = *state;
    static _Alignas(64) float x[ROWS * IN];
    _Alignas(64) float seed = 0.5f;
    uint64_t arena;
    step s;
    add_step(f->g, &s, true);
    ash_plan_options options = in_mode(ASH_MODE_STREAM);
    options.memory.omit_inputs = getenv("ASHLAR_TEST_DEVICE") == NULL;
    size_t used = run_one(f, &(ash_plan_options){0}, one, &arena), n = 0;
    pair p = prepare(f, &s, &options, NULL);
    _Alignas(64) const float rate = 0.01f;
    for (size_t k = 0; k < ASH_COUNT(x); k++) x[k] = made(99, k);
    assert_ok(ash_plan_bind_input(p.second, 0, NULL, &rate, sizeof rate, &diag));
    assert_ok(ash_plan_bind_input(p.second, 1, NULL, &seed, sizeof seed, &diag));
    for (int i = 0; i < STEPS; i++) {
        set_rows(p.first, rows_of[i]);
        assert_ok(ash_plan_bind_input(p.first, 0, NULL, x, (uint64_t)rows_of[i] * IN * sizeof *x, &diag));
        assert_ok(
            ash_plan_bind_input(p.first, 1, NULL, labels, (uint64_t)rows_of[i] * sizeof *labels, &diag));
        assert_ok(ash_plan_execute(p.first, &diag));
        n = add_outputs(p.first, two, n);
        seed = 0.5f + (float)i;
        assert_ok(ash_plan_execute(p.second, &diag));
        n = add_outputs(p.second, two, n);
    }
    n = add_states(p.first, two, n);
    assert_int_equal(n, used);
    assert_memory_equal(one, two, used);
    destroy(&p);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        PAIR_TEST(in_every_mode),  PAIR_TEST(by_every_planner),   PAIR_TEST(what_is_saved_stays),
        PAIR_TEST(turns),          PAIR_TEST(preparing),          PAIR_TEST(within_a_capacity),
        PAIR_TEST(without_memory), PAIR_TEST(what_is_in_between), PAIR_TEST(bound_inputs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
