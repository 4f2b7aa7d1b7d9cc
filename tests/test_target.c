/* SPDX-License-Identifier: MIT */
/* Targets: what follows from their names, that a program keeps the one it was lowered for, and that choices
 * are made from the numbers of the target that was handed in and from nothing else. */
#include "code/code.h"
#include "kernel/program.h"
#include "opt_testing.h"

/* --- the tables ----------------------------------------------------------------------------------- */

/* Every row says what it counts, where it comes from, and is a number that means something. */
static void costs_have_units_and_origins(void **state) {
    (void)state;
    const struct {
        const char *name, *unit, *origin;
        double value;
    } rows[] = {
#define COST(type, field, cpu, text, source) {#field, text, source, (double)ash_costs__cpu.field},
#include "base/costs.def"
#undef COST
    };
    static const char *const origins[] = {"architecture", "derived", "measured", "tuned", "chosen"};
    for (size_t i = 0; i < ASH_COUNT(rows); i++) {
        size_t o = 0, word = strcspn(rows[i].origin, ":");
        while (o < ASH_COUNT(origins) &&
               (strlen(origins[o]) != word || strncmp(origins[o], rows[i].origin, word) != 0))
            o++;
        if (o == ASH_COUNT(origins) || !rows[i].unit[0] || !(rows[i].value > 0))
            fail_msg("%s: %g %s (%s)", rows[i].name, rows[i].value, rows[i].unit, rows[i].origin);
    }
}

static void numbers_follow_from_names(void **state) {
    (void)state;
    static const struct {
        const char *triple, *features;
        unsigned vector_bytes, vector_registers, chains, dot4, masks;
        bool fma, tiles;
    } cases[] = {
        {"x86_64-pc-linux-gnu", "", 16, 16, 8, 3, 0, false, false},
        {"x86_64-pc-linux-gnu", "+avx2", 32, 16, 8, 3, 4, false, false},
        {"x86_64-pc-linux-gnu", "+avx2,-fma", 32, 16, 8, 3, 4, false, false},
        {"x86_64-pc-linux-gnu", "+avx2,+fma4", 32, 16, 8, 3, 4, false, false},
        {"x86_64-pc-linux-gnu", "+avx,+fma,+avx2,+avx512f", 32, 16, 8, 3, 4, true, false},
        {"x86_64-pc-linux-gnu", "+avx512f,+avx512bw,+avx512dq,+avx512vl,+fma", 64, 32, 4, 3, 1, true,
         false},
        {"x86_64-pc-linux-gnu", "+avx512f,+avx512bw,+avx512dq,+avx512vl,+avx512vnni,+fma", 64, 32, 4, 1, 1,
         true, false},
        {"x86_64-pc-linux-gnu",
         "+avx512f,+avx512bw,+avx512dq,+avx512vl,+avx512vnni,+avx512vbmi,+amx-tile,+amx-int8", 64, 32, 4, 1,
         1, false, true},
        {"x86_64-pc-linux-gnu",
         "+avx512f,+avx512bw,+avx512dq,+avx512vl,+avx512vnni,+avx512vbmi,+amx-tile,-amx-int8", 64, 32, 4, 1,
         1, false, false},
        {"x86_64-pc-linux-gnu", "+avx2,+avxvnni,+fma", 32, 16, 8, 1, 4, true, false},
        {"aarch64-unknown-linux-gnu", "+neon", 16, 32, 8, 0, 0, true, false},
        {"riscv64-unknown-linux-gnu", "", 16, 32, 8, 0, 0, false, false},
    };
    for (size_t i = 0; i < ASH_COUNT(cases); i++) {
        ash_target t = {0};
        snprintf(t.triple, sizeof t.triple, "%s", cases[i].triple);
        snprintf(t.features, sizeof t.features, "%s", cases[i].features);
        ash_target__fill(&t);
        assert_int_equal(t.kind, ASH_TARGET_CPU);
        assert_int_equal(t.vector_bytes, cases[i].vector_bytes);
        assert_int_equal(t.vector_registers, cases[i].vector_registers);
        assert_int_equal(t.chains, cases[i].chains);
        assert_int_equal(t.dot4, cases[i].dot4);
        assert_true(!t.lookup == !t.dot4);
        assert_int_equal(t.masks, cases[i].masks);
        assert_int_equal(t.fma, cases[i].fma);
        assert_int_equal(t.tiles, cases[i].tiles);
        assert_true(t.l1_bytes > 0 && t.l2_bytes > 0);
        ash_costs costs = ash_costs__cpu;
        if (t.vector_bytes == 64) costs.gather_loads = 5;
        assert_memory_equal(&t.costs, &costs, sizeof costs);
        assert_true(t.dot2 == 0 && !t.tiles_of_pairs && !t.pairs);
    }
    /* what is a make's own */
    ash_target zen = {.triple = "x86_64-pc-linux-gnu",
                      .cpu = "znver4",
                      .features = "+avx512f,+avx512bw,+avx512dq,+avx512vl,+avx512bf16,+fma"};
    ash_target__fill(&zen);
    assert_int_equal(zen.costs.bits_asks, 3);
    assert_int_equal(zen.costs.gather_loads, ash_costs__cpu.gather_loads);
    assert_int_equal(zen.dot2, 1);
    snprintf(zen.cpu, sizeof zen.cpu, "cooperlake");
    ash_target__fill(&zen);
    assert_int_equal(zen.costs.bits_asks, ash_costs__cpu.bits_asks);
    assert_int_equal(zen.dot2, 4);
}

/* --- programs ------------------------------------------------------------------------------------- */

static ash_target level(const char *name) {
    ash_target target;
    ash_diag diag;
    assert_ok(ash_target__named(name, &target, &diag));
    target.l1_bytes = 32 << 10;
    target.l2_bytes = 512 << 10;
    return target;
}

/* Lowers the graph, optimised, for a target. */
static ash_program *lower(fixture *f, const ash_target *target) {
    ash_program *program;
    ash_diag diag;
    assert_ok(optimise(f, NULL, target, (ash_opt_options){0}, &diag));
    assert_ok(ash_program__lower(f->out, target, NULL, &program, &diag));
    return program;
}

/* Of all its kernels. */
static int64_t chunks_of(fixture *f, const ash_target *target) {
    ash_program *p = lower(f, target);
    int64_t chunks = 0;
    for (size_t i = 0; i < p->steps.len; i++) chunks += p->steps.at[i].chunks;
    ash_program__free(p);
    return chunks;
}

static void programs_keep_their_target(void **state) {
    fixture *f = *state;
    static const char *const names[] = {"x86-64", "x86-64-v3", "x86-64-v4"};
    ash_graph_output(f->g, "y", ash_exp(f->g, INPUT(f, "x", ASH_F32, 1 << 20)));
    for (size_t i = 0; i < ASH_COUNT(names); i++) {
        ash_target target = level(names[i]);
        ash_program *p = lower(f, &target);
        assert_string_equal(p->target.cpu, names[i]);
        target.vector_bytes = 0; /* it is a copy */
        assert_int_equal(p->target.vector_bytes, 16 << i);
        ash_program__free(p);
    }
}

static void choices_follow_from_costs(void **state) {
    fixture *f = *state;
    ash_target target = level("x86-64-v3"), other = target;
    ash_graph_output(f->g, "y", ash_exp(f->g, INPUT(f, "x", ASH_F32, 1 << 20)));
    int64_t chunks = chunks_of(f, &target);
    other.costs.chunk_elements *= 2;
    assert_true(chunks > 1);
    assert_int_equal(chunks_of(f, &other), chunks / 2);
    assert_int_equal(chunks_of(f, &target), chunks);
    restart(f);
    ash_graph_output(f->g, "y",
                     ash_conv2d(f->g, INPUT(f, "x", ASH_F32, 1, 64, 56, 56),
                                CONSTANT(f, ASH_F32, 64, 64, 3, 3), 1, 1, 1));
    ash_program__free(lower(f, &target));
    assert_non_null(find_op(f->out, ASH_OP_WINOGRAD, 0));
    other = target;
    other.costs.wino_worth = 1e-9;
    ash_program__free(lower(f, &other));
    assert_null(find_op(f->out, ASH_OP_WINOGRAD, 0));
    chunks = chunks_of(f, &other);
    other.costs.chunk_count = 2;
    other.costs.chunk_most_flops = INT64_C(1) << 40;
    assert_true(chunks_of(f, &other) < chunks);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(costs_have_units_and_origins),
        cmocka_unit_test(numbers_follow_from_names),
        cmocka_unit_test_setup_teardown(programs_keep_their_target, setup, teardown),
        cmocka_unit_test_setup_teardown(choices_follow_from_costs, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
