/* SPDX-License-Identifier: MIT */
/* Lowering of large graphs, of hostile sizes, and without memory. */
#include <pthread.h>
#include <time.h>

#include "code/code.h"
#include "ir/ir.h"
#include "kernel/program.h"
#include "test_graphs.h"

static ash_target target;

static int setup(void **state) {
    (void)state;
    if (ash_target__named("x86-64-v4", &target, NULL) != ASH_OK) return 1;
    return open_context(1);
}

/* --- shapes of graphs: each of about n nodes ------------------------------------------------------ */

static ash_value chain(ash_graph *g, int n) {
    ash_value x = input(g, "x", ASH_F32, 2, (ash_dim[]){8, 33});
    for (int i = 0; i < n; i++) x = i % 2 ? ash_neg(g, x) : ash_tanh(g, x);
    return x;
}

/* Every node reads the one before it twice, at the same index and at another one. */
static ash_value braid(ash_graph *g, int n) {
    ash_value x = input(g, "x", ASH_F32, 2, (ash_dim[]){12, 12});
    for (int i = 0; i < n / 2; i++)
        x = i % 3 ? ash_add(g, x, ash_neg(g, x)) : ash_add(g, x, ash_transpose(g, x, (int64_t[]){1, 0}));
    return x;
}

static ash_value fan(ash_graph *g, int n) {
    ash_value x = input(g, "x", ASH_F32, 2, (ash_dim[]){4, 16}), *parts = malloc((size_t)n * sizeof *parts);
    for (int i = 0; i < n; i++) parts[i] = i % 2 ? ash_neg(g, x) : x;
    ash_value y = ash_concat(g, parts, (size_t)n, 0);
    free(parts);
    return y;
}

/* Down and up again, with a connection across at each level. */
static ash_value skips(ash_graph *g, int n) {
    ash_value x = input(g, "x", ASH_F32, 2, (ash_dim[]){4, 64}), *held = malloc((size_t)n * sizeof *held);
    int levels = n / 4;
    for (int i = 0; i < levels; i++) held[i] = x = i % 5 ? ash_sigmoid(g, x) : ash_softmax(g, x, -1);
    for (int i = levels; i-- > 0;) x = ash_mul(g, ash_add(g, x, held[i]), held[i]);
    free(held);
    return x;
}

static ash_value reshapes(ash_graph *g, int n) {
    static const ash_dim shapes[][4] = {{6, 10, 14, 3}, {4, 9, 35, 2}, {7, 5, 8, 9}, {21, 2, 12, 5}};
    ash_value x = input(g, "x", ASH_F32, 4, shapes[0]);
    for (int i = 1; i < n / 2; i++) {
        x = ash_transpose(g, x, (int64_t[]){2, 0, 3, 1});
        x = ash_reshape(g, x, shapes[i % 4], 4);
    }
    return ash_neg(g, x);
}

/* The same with as many dims as there can be. */
static ash_value ranks(ash_graph *g, int n) {
    static const ash_dim shapes[][10] = {
        {2, 3, 2, 3, 2, 3, 2, 3, 2, 2}, {3, 2, 2, 3, 2, 2, 3, 2, 3, 2}, {4, 3, 3, 2, 1, 6, 1, 3, 4, 1}};
    static const int64_t perms[][10] = {
        {9, 1, 7, 3, 5, 0, 2, 4, 6, 8}, {1, 0, 3, 2, 5, 4, 7, 6, 9, 8}, {4, 9, 0, 5, 1, 6, 2, 7, 3, 8}};
    ash_value x = input(g, "x", ASH_F32, 10, shapes[0]);
    for (int i = 1; i < n / 8; i++)
        x = ash_reshape(g, ash_transpose(g, x, perms[i % 3]), shapes[i % 3], 10);
    return ash_neg(g, x);
}

/* Each step of a long chain of movement is read by somebody. */
static ash_value comb(ash_graph *g, int n) {
    ash_value x = input(g, "x", ASH_F32, 2, (ash_dim[]){6, 10}), sum = x;
    for (int i = 0; i < n / 3; i++) {
        x = ash_reshape(g, ash_transpose(g, x, (int64_t[]){1, 0}), (ash_dim[]){6, 10}, 2);
        sum = ash_add(g, sum, x);
    }
    return sum;
}

typedef struct shape {
    const char *name;
    ash_value (*build)(ash_graph *g, int n);
} shape;

static const shape shapes[] = {{"chain", chain},       {"braid", braid}, {"fan", fan},  {"skips", skips},
                               {"reshapes", reshapes}, {"ranks", ranks}, {"comb", comb}};

/* --- time and stack ------------------------------------------------------------------------------- */

typedef struct task {
    const ash_graph *g;
    bool fuse;
    ash_status status;
    ash_diag diag;
    double seconds;
    size_t steps, instructions;
} task;

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static void *lower(void *arg) {
    task *t = arg;
    ash_program *p = NULL;
    double start = now();
    ash_diag_clear(&t->diag);
    t->status = ash_program__lower(t->g, &target, &(ash_lower_options){.fuse = t->fuse}, &p, &t->diag);
    t->seconds = now() - start;
    for (size_t i = 0; p && i < p->nests.len; i++) t->instructions += p->nests.at[i].code.len;
    if (p) t->steps = p->steps.len;
    ash_program__free(p);
    return NULL;
}

/* On a thread with a small stack. */
static void lower_small(task *t) {
    pthread_attr_t attr;
    pthread_t thread;
    pthread_attr_init(&attr);
    size_t stack = TEST_WATCHED ? 4 << 20 : 256 << 10; /* watched frames are several times as large */
    assert_int_equal(pthread_attr_setstacksize(&attr, stack), 0);
    assert_int_equal(pthread_create(&thread, &attr, lower, t), 0);
    assert_int_equal(pthread_join(thread, NULL), 0);
    pthread_attr_destroy(&attr);
}

/* Lowers a shape of so many nodes; the time of the thread. */
static double seconds_of(size_t k, int nodes, bool fuse) {
    ash_diag diag;
    ash_graph *g = new_graph();
    ash_graph_output(g, "y", shapes[k].build(g, nodes));
    assert_ok(ash_graph_status(g, &diag));
    task t = {.g = g, .fuse = fuse};
    lower_small(&t);
    if (t.status != ASH_OK) fail_msg("%s of %d: %s", shapes[k].name, nodes, t.diag.message);
    print_message("%s, %d nodes, %s: %.3f s, %zu steps, %zu instructions\n", shapes[k].name, nodes,
                  fuse ? "fused" : "not fused", t.seconds, t.steps, t.instructions);
    ash_graph_destroy(g);
    return t.seconds;
}

/* Twenty times the nodes may take no more than some forty times the time: in one of three turns, as others
 * on the machine take caches and memory. */
static void test_growth(void **state) {
    (void)state;
    for (size_t i = 0; i < ASH_COUNT(shapes); i++)
        for (int fuse = 0; fuse < 2; fuse++) {
            enum { FEW = 1000, MANY = 20000, TURNS = 3 };
            double few = 0, many = 0;
            bool grows = true;
            seconds_of(i, 10, fuse);
            for (int turn = 0; turn < TURNS && grows; turn++) {
                few = seconds_of(i, FEW, fuse), many = seconds_of(i, MANY, fuse);
                grows = many > 40 * few + 0.05;
            }
            if (grows)
                fail_msg("%s: %.3f s for %d nodes, %.3f s for %d", shapes[i].name, few, FEW, many, MANY);
        }
}

/* On `blocks` times 16 channels of `rows` x 9. */
static ash_value winograd(ash_graph *g, ash_dim blocks, ash_dim rows) {
    static const int64_t one[] = {1, 1};
    ash_attr attrs[] = {ASH_ATTR_LIST(BEFORE, one, 2), ASH_ATTR_LIST(AFTER, one, 2), ASH_ATTR_I(O, 16),
                        ASH_ATTR_I(Y_BLOCK, 16), ASH_ATTR_I(TILE, 4)};
    ash_value ins[] = {input(g, "tiled", ASH_F32, 5, (ash_dim[]){1, blocks, rows, 9, 16}),
                       input(g, "windows", ASH_F32, 7, (ash_dim[]){1, 1, blocks, 3, 3, 16, 16})},
              y;
    g->internal = true;
    ash_graph_add(g, ASH_OP_WINOGRAD, ins, 2, attrs, 5, &y);
    return y;
}

/* --- hostile sizes -------------------------------------------------------------------------------- */

/* Lowers to a program, or is refused with a reason that is not a lack of memory. */
static void check_large(ash_graph *g, ash_value y) {
    ash_diag diag;
    ash_graph_output(g, "y", y);
    ash_status built = ash_graph_status(g, &diag);
    if (built != ASH_OK && built != ASH_ERROR_OUT_OF_RANGE)
        fail_msg("status %d: %s", (int)built, diag.message);
    if (built == ASH_OK) {
        for (int fuse = 0; fuse < 2; fuse++) {
            task t = {.g = g, .fuse = fuse};
            lower(&t);
            if (t.status != ASH_OK && t.status != ASH_ERROR_OUT_OF_RANGE)
                fail_msg("status %d: %s", (int)t.status, t.diag.message);
        }
    }
    ash_graph_destroy(g);
}

static void test_large(void **state) {
    (void)state;
    const ash_dim big = INT64_C(1) << 30, huge = INT64_C(9) << 57; /* bytes: 9 << 59 */
    for (int i = 0; i < 20; i++) {
        ash_graph *g = new_graph();
        ash_value x = input(g, "x", ASH_F32, 2, (ash_dim[]){big, big}),
                  line = input(g, "line", ASH_F32, 1, (ash_dim[]){huge});
        ash_value none = input(g, "none", ASH_F32, 3, (ash_dim[]){0, huge, huge}), y = ASH_NO_VALUE;
        ash_dim var = ash_graph_var(g, "v", 0, big);
        ash_type type = {ASH_F32, 2, {var, var}};
        ash_value open = ash_graph_input(g, "open", &type);
        switch (i) {
        case 0: y = ash_neg(g, ash_transpose(g, x, (int64_t[]){1, 0})); break;
        case 1: y = ash_reduce_sum(g, x, (int64_t[]){0, 1}, 2, false); break;
        case 2: y = ash_softmax(g, x, 0); break;
        case 3: y = ash_matmul(g, x, x); break;
        case 4:
            y = ash_add(g,
                        ash_slice(g, line, (ash_dim[]){huge - 1}, (int64_t[]){-3}, (ash_dim[]){huge / 4}),
                        ash_scalar(g, ASH_F32, 1));
            break;
        case 5:
            y = ash_neg(
                g,
                ash_reshape(g, line, (ash_dim[]){INT64_C(9) << 17, INT64_C(1) << 20, INT64_C(1) << 20}, 3));
            break;
        case 6: y = ash_neg(g, none); break;
        case 7: y = ash_reduce_sum(g, none, (int64_t[]){0}, 1, false); break;
        case 8: y = ash_cumsum(g, x, 0, false, true); break;
        case 9: y = ash_matmul(g, open, open); break;
        case 10:
            y = ash_softmax(g, ash_reshape(g, open, (ash_dim[]){ash_graph_dim_mul(g, var, var)}, 1), 0);
            break;
        case 11: {
            ash_window w = {1, 1, 1, huge / 2, huge / 2};
            y = ash_pool(g, ASH_OP_POOL_MAX, ash_neg(g, line), (int64_t[]){0}, &w, 1);
            break;
        }
        case 12:
            y = ash_matmul(g, ash_reshape(g, line, (ash_dim[]){4, huge / 4}, 2),
                           ash_reshape(g, line, (ash_dim[]){huge / 4, 4}, 2));
            break;
        case 13: {
            ash_value rows = ash_reshape(g, line, (ash_dim[]){4, huge / 4}, 2);
            y = ash_matmul(g, rows, ash_transpose(g, rows, (int64_t[]){1, 0}));
            break;
        }
        case 14:
            y = ash_matmul(g, ash_reshape(g, line, (ash_dim[]){huge / 16, 16}, 2),
                           input(g, "b", ASH_F32, 2, (ash_dim[]){16, 4}));
            break;
        case 15:
            y = ash_conv2d(g, ash_reshape(g, line, (ash_dim[]){1, huge / 9, 3, 3}, 4),
                           input(g, "w", ASH_F32, 4, (ash_dim[]){1, huge / 9, 3, 3}), 1, 1, 1);
            break;
        case 16: {
            static const int64_t one[] = {1, 1};
            ash_attr attrs[] = {ASH_ATTR_LIST(BEFORE, one, 2),  ASH_ATTR_LIST(AFTER, one, 2),
                                ASH_ATTR_LIST(STRIDES, one, 2), ASH_ATTR_LIST(DILATIONS, one, 2),
                                ASH_ATTR_I(GROUPS, 1),          ASH_ATTR_I(O, 16),
                                ASH_ATTR_I(X_BLOCK, 16),        ASH_ATTR_I(Y_BLOCK, 16),
                                ASH_ATTR_I(W_BLOCK, 16)};
            ash_dim blocks = huge >> 12;
            ash_value ins[] = {input(g, "blocks", ASH_F32, 5, (ash_dim[]){1, blocks, 9, 9, 16}),
                               input(g, "w", ASH_F32, 7, (ash_dim[]){1, 1, blocks, 3, 3, 16, 16})};
            g->internal = true;
            ash_graph_add(g, ASH_OP_CONV, ins, 2, attrs, 9, &y);
            break;
        }
        case 17: y = winograd(g, huge >> 14, 9); break;
        case 18: y = winograd(g, 1, huge >> 20); break;
        default: {
            ash_value parts[] = {ash_neg(g, x), x, ash_neg(g, x)};
            y = ash_concat(g, parts, 3, 1);
        }
        }
        check_large(g, y);
    }
}

/* --- failing allocations -------------------------------------------------------------------------- */

/* A bit of everything. */
static void build_mixed(ash_graph *g) {
    ash_dim batch = ash_graph_var(g, "batch", 0, 9);
    ash_value x = input(g, "x", ASH_F32, 3, (ash_dim[]){batch, 6, 20});
    float data[20 * 24] = {0};
    ash_type wt = {ASH_F32, 2, {20, 24}}, it = {ASH_I64, 1, {3}};
    ash_value w = ash_graph_parameter(g, "w", &wt, data, sizeof data, ASH_DATA_COPY);
    ash_value y =
        ash_relu(g, ash_matmul(g, ash_reshape(g, x, (ash_dim[]){ash_graph_dim_mul(g, batch, 6), 20}, 2),
                               ash_neg(g, w)));
    y = ash_reshape(g, y, (ash_dim[]){batch, 6, 24}, 3);
    ash_graph_output(g, "softmax", ash_softmax(g, y, 1));
    ash_value i = ash_graph_input(g, "i", &it), at;
    ash_graph_output(g, "values", ash_topk(g, y, 2, 3, true, &at));
    ash_graph_output(g, "at", at);
    ash_graph_output(g, "gather", ash_gather(g, y, i, 0));
    ash_value parts[] = {ash_neg(g, y), y, ash_exp(g, y)};
    ash_graph_output(g, "concat",
                     ash_reshape(g, ash_concat(g, parts, 3, 1), (ash_dim[]){batch, 36, 12}, 3));
    ash_window window = {2, 2, 1, 1, 0};
    ash_graph_output(g, "pool", ash_pool(g, ASH_OP_POOL_MAX, y, (int64_t[]){1}, &window, 1));
    ash_value image = input(g, "image", ASH_F32, 4, (ash_dim[]){1, 4, 9, 9}),
              filter = input(g, "filter", ASH_F32, 4, (ash_dim[]){6, 4, 3, 3});
    ash_graph_output(g, "conv", ash_relu(g, ash_conv2d(g, image, filter, 1, 1, 1)));
    static const int64_t one[] = {1, 1};
    ash_attr attrs[] = {
        ASH_ATTR_LIST(BEFORE, one, 2),    ASH_ATTR_LIST(AFTER, one, 2), ASH_ATTR_LIST(STRIDES, one, 2),
        ASH_ATTR_LIST(DILATIONS, one, 2), ASH_ATTR_I(GROUPS, 1),        ASH_ATTR_I(O, 16),
        ASH_ATTR_I(X_BLOCK, 16),          ASH_ATTR_I(Y_BLOCK, 16),      ASH_ATTR_I(W_BLOCK, 16)};
    ash_value ins[] = {input(g, "blocks", ASH_F32, 5, (ash_dim[]){1, 1, 9, 9, 16}),
                       input(g, "packed", ASH_F32, 7, (ash_dim[]){1, 1, 1, 3, 3, 16, 16})};
    ash_value blocked;
    g->internal = true;
    ash_graph_add(g, ASH_OP_CONV, ins, 2, attrs, 9, &blocked);
    ash_graph_output(g, "blocked", ash_tanh(g, blocked));
    ash_graph_output(g, "winograd", ash_relu(g, winograd(g, 1, 9)));
    ash_graph_output(g, "sum", ash_cumsum(g, y, 1, false, false));
    ash_graph_output(g, "argmax", ash_argmax(g, y, 1, false));
    ash_value updates = input(g, "updates", ASH_F32, 3, (ash_dim[]){3, 6, 24}),
              rows = ash_reshape(g, i, (ash_dim[]){3, 1}, 2);
    ash_graph_output(g, "scatter", ash_scatter_nd(g, y, rows, updates, ASH_SCATTER_ADD));
    ash_graph_output(g, "pad",
                     ash_pad(g, y, ash_scalar(g, ASH_F32, 1), (ash_dim[]){0, 1, 2}, (ash_dim[]){1, 0, 3}));
}

/* More nests that differ in numbers alone than stay apart. */
static void build_alike(ash_graph *g) {
    ash_value x = input(g, "x", ASH_F32, 2, (ash_dim[]){3, 400}), parts[20];
    for (int k = 0; k < 20; k++)
        parts[k] = ash_mul(g, ash_slice_axis(g, x, 1, k * 16, 40), ash_scalar(g, ASH_F32, k + 2));
    ash_graph_output(g, "y", ash_concat(g, parts, 20, 0));
}

static void no_memory(void (*build)(ash_graph *g)) {
    test_memory memory = {0};
    ash_context *limited;
    ash_diag diag;
    assert_ok(ash_context_create(
        &(ash_context_options){.threads = 1, .allocator = test_memory_allocator(&memory)}, &limited,
        &diag));
    ash_graph *g;
    assert_ok(ash_graph_create(limited, "growth", &g, &diag));
    build(g);
    assert_ok(ash_graph_status(g, &diag));
    for (int fuse = 0; fuse < 2; fuse++) {
        for (long at = 1;; at++) {
            ash_program *p = NULL;
            memory.count = 0;
            memory.fail_at = at;
            ash_status status =
                ash_program__lower(g, &target, &(ash_lower_options){.fuse = fuse}, &p, &diag);
            memory.fail_at = 0;
            ash_program__free(p);
            if (status == ASH_OK) break;
            assert_status(status, ASH_ERROR_OUT_OF_MEMORY);
            assert_null(p);
        }
    }
    ash_graph_destroy(g);
    ash_context_destroy(limited);
    assert_int_equal(memory.live, 0);
}

static void test_no_memory(void **state) {
    (void)state;
    no_memory(build_mixed);
    no_memory(build_alike);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_growth), cmocka_unit_test(test_large),
                                       cmocka_unit_test(test_no_memory)};
    return cmocka_run_group_tests(tests, setup, tear_down);
}
