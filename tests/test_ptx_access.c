/* SPDX-License-Identifier: MIT */
/* How the kernels of whole models touch memory, on the stand-in for the driver: each kernel of SqueezeNet,
 * MobileNet v2 and BERT mini asks for whole sectors and for different banks, but for those on a list, each
 * with its reason. (Of single operators: `conformance -a`.) And a plan for such a GPU that is not there
 * reports the same weights. */
#include "cuda_room.h"
#include "gpu_here.h"
#include "nets_run.h"

static ash_diag diag;

/* Operations by their name, or the beginning of it, and how many sectors in a hundred may be scattered. */
static const struct {
    const char *model, *name;
    unsigned percent;
    const char *reason;
} excused[] = {
    {"SqueezeNet", "conv", 65,
     "images of 31, 15, 7 and 3 positions a side: vectors of results begin anywhere"},
    {"SqueezeNet", "pool_max", 70, "windows with a step of two"},
    {"SqueezeNet", "add+max+reduce_sum", 81, "rows of nine elements, each a thread's"},
    {"SqueezeNet", "pad+transpose", 70, "weights that are packed when the plan is prepared, once"},
    {"MobileNet v2", "conv", 66, "windows with a step of two, and lines of 8, 4 and 2 positions"},
    {"MobileNet v2", "add+max+min+reduce_sum", 80, "rows of four elements, each a thread's"},
    {"MobileNet v2", "pad+transpose", 71, "weights that are packed when the plan is prepared, once"},
};

static unsigned percent_of(const char *model, const char *name) {
    for (size_t i = 0; i < ASH_COUNT(excused); i++)
        if (!strcmp(model, excused[i].model) && !strncmp(name, excused[i].name, strlen(excused[i].name)))
            return excused[i].percent;
    return 0;
}

/* What a kernel of the plan did, whose text (ash_plan_print) has the names of their code. */
static ptx_counters counters_of(const char *text, uint32_t kernel) {
    ptx_counters c;
    char row[32], name[80] = "ash_";
    snprintf(row, sizeof row, "\n  k%u ", kernel);
    const char *at = strstr(strstr(text, "\nkernels\n"), row);
    assert_non_null(at);
    assert_int_equal(sscanf(at + strlen(row), "%70[^:]", name + 4), 1);
    ptx_counters_read(name, &c);
    assert_true(c.launches > 0);
    return c;
}

static unsigned check_op(const char *text, const char *model, const ash_prepared_op *op) {
    if (op->kind != ASH_PREPARED_KERNEL) return 0;
    const ptx_counters c = counters_of(text, op->kernel);
    const unsigned long long scattered = c.global_load.scattered + c.global_store.scattered,
                             sectors = c.global_load.sectors + c.global_store.sectors,
                             conflicts = c.shared_load.conflicts + c.shared_store.conflicts +
                                         c.matrix_load.conflicts;
    bool right = 100 * scattered <= percent_of(model, op->name) * sectors && !conflicts;
    if (!right)
        print_message("%s, %s: %llu of %llu sectors scattered, %llu conflicts\n", model, op->name,
                      scattered, sectors, conflicts);
    return !right;
}

/* What a plan says of its weights where no GPU is. */
static void same_on_paper(const net_room *room, const ash_plan *plan) {
    ash_plan *paper = cuda_room_paper(room->context, room->n.g);
    const ash_plan_report is = ash_plan_describe(plan), said = ash_plan_describe(paper);
    assert_true(is.weights > 1 << 20);
    assert_int_equal(said.weights, is.weights);
    assert_int_equal(said.staging, is.staging);
    assert_int_equal(said.constants, is.constants);
    assert_int_equal(said.mapped, is.mapped);
    assert_int_equal(said.released, is.released);
    ash_plan_destroy(paper);
}

static void whole_sectors(void **state) {
    net_room room;
    ash_plan_options options = ash_plan_options_default();
    ash_plan *plan;
    unsigned wrong = 0;
    uint64_t size;
    char *text;
    cuda_room_driver(1);
    net_open(&room, *state);
    assert_ok(ash_device_open(room.context, "CUDA:0", &options.device, &diag));
    assert_ok(ash_plan_prepare(room.context, room.n.g, &options, &plan, &diag));
    assert_ok(cuda_room_fill(plan, &diag));
    assert_ok(ash_plan_execute(plan, &diag));
    assert_ok(ash_plan_print(plan, &text, &size, &diag));
    for (size_t i = 0; i < ash_plan_op_count(plan); i++) {
        ash_prepared_op op = ASH_INIT(ash_prepared_op);
        assert_ok(ash_plan_op_at(plan, i, &op, &diag));
        wrong += check_op(text, room.name, &op);
    }
    for (size_t i = 0; i < ash_plan_prologue_count(plan); i++) {
        ash_prepared_op op = ASH_INIT(ash_prepared_op);
        assert_ok(ash_plan_prologue_at(plan, i, &op, &diag));
        wrong += check_op(text, room.name, &op);
    }
    ash_context_free_text(room.context, text, size);
    assert_int_equal(wrong, 0);
    same_on_paper(&room, plan);
    ash_plan_destroy(plan);
    ash_device_close(options.device);
    net_close(&room);
}

int main(void) {
    return gpu_is_compiled_for() ? nets_run(whole_sectors) : GPU_SKIPPED;
}
