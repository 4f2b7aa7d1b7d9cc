/* SPDX-License-Identifier: MIT */
/* Stopping what is one long piece: a sum over one row, a sort, a scatter. Kernels look on their way whether
 * they are to stop, those that are short do not, and looking changes no result. */
#include "plan_room.h"

#include <math.h>
#include <pthread.h>
#include <time.h>

#include "ashlar/builder.h"
#include "base/clock.h"
#include "code/code.h"
#include "test_code_nest.h"

static ash_diag diag;

static int setup(void **state) {
    return room_open(state, 2);
}

/* One chunk of each takes seconds, or years; inputs are zeros. */
static const struct model {
    const char *name, *text;
} models[] = {
    {"one sum", "%0: f32[1] = input \"x\"\n"
                "%1: f32[137438953472] = broadcast(%0) dims=[137438953472]\n"
                "%2: f32[] = reduce_sum(%1) axes=[0]\n"
                "output \"y\" = %2\n"},
    {"one hot, then a sum", "%0: i64[1, 1] = input \"x\"\n"
                            "%1: i64[1, 68719476736] = iota() axis=1 dims=[1, 68719476736] dtype=i64\n"
                            "%2: i64[1, 68719476736] = broadcast(%0) dims=[1, 68719476736]\n"
                            "%3: bool[1, 68719476736] = eq(%1, %2)\n"
                            "%4: f32[1, 68719476736] = cast(%3) dtype=f32\n"
                            "%5: f32[1] = reduce_sum(%4) axes=[1]\n"
                            "output \"y\" = %5\n"},
    {"rows of sums", "%0: f32[3, 1] = input \"x\"\n"
                     "%1: f32[3, 34359738368] = broadcast(%0) dims=[3, 34359738368]\n"
                     "%2: f32[3, 34359738368] = exp(%1)\n"
                     "%3: f32[3] = reduce_sum(%2) axes=[1]\n"
                     "output \"y\" = %3\n"},
    {"extremum", "%0: f32[1] = input \"x\"\n"
                 "%1: f32[17179869184] = broadcast(%0) dims=[17179869184]\n"
                 "%2: i64[] = argmax(%1) axis=0 last=0\n"
                 "output \"y\" = %2\n"},
    {"running sums", "%0: f32[1] = input \"x\"\n"
                     "%1: f32[33554432] = broadcast(%0) dims=[33554432]\n"
                     "%2: f32[33554432] = cumsum(%1) axis=0 exclusive=0 reverse=0\n"
                     "%3: f32[33554432] = cumsum(%2) axis=0 exclusive=0 reverse=0\n"
                     "%4: f32[33554432] = cumsum(%3) axis=0 exclusive=0 reverse=1\n"
                     "%5: f32[33554432] = cumsum(%4) axis=0 exclusive=1 reverse=0\n"
                     "%6: f32[33554432] = cumsum(%5) axis=0 exclusive=0 reverse=0\n"
                     "%7: f32[33554432] = cumsum(%6) axis=0 exclusive=0 reverse=0\n"
                     "%8: f32[] = reduce_max(%7) axes=[0]\n"
                     "output \"y\" = %8\n"},
    {"product", "%0: f32[1, 1] = input \"x\"\n"
                "%1: f32[4, 68719476736] = broadcast(%0) dims=[4, 68719476736]\n"
                "%2: f32[68719476736, 4] = broadcast(%0) dims=[68719476736, 4]\n"
                "%3: f32[4, 4] = matmul(%1, %2) n=0 b_block=0\n"
                "output \"y\" = %3\n"},
    {"window", "%0: f32[1] = input \"x\"\n"
               "%1: f32[1, 1, 2147483648] = broadcast(%0) dims=[1, 1, 2147483648]\n"
               "%2: f32[1, 1, 5] = pool_sum(%1) axes=[2] before=[0] after=[0] kernel=[2147483644] "
               "strides=[1] dilations=[1]\n"
               "output \"y\" = %2\n"},
    {"sort", "%0: f32[1] = input \"x\"\n"
             "%1: f32[4194304] = broadcast(%0) dims=[4194304]\n"
             "%2: f32[4194304] = iota() axis=0 dims=[4194304] dtype=f32\n"
             "%3: f32[4194304] = add(%1, %2)\n"
             "%4: f32[4194304] = sin(%3)\n"
             "%5: f32[262144], %6: i64[262144] = topk(%4) axis=0 k=262144 largest=1\n"
             "output \"y\" = %5\n"},
    {"the best few", "%0: f32[1] = input \"x\"\n"
                     "%1: f32[17179869184] = broadcast(%0) dims=[17179869184]\n"
                     "%2: f32[3], %3: i64[3] = topk(%1) axis=0 k=3 largest=1\n"
                     "output \"y\" = %2\n"},
    {"scatter", "%0: f32[1] = input \"x\"\n"
                "%1: i64[1] = input \"i\"\n"
                "%2: f32[8] = input \"d\"\n"
                "%3: f32[17179869184] = broadcast(%0) dims=[17179869184]\n"
                "%4: i64[17179869184, 1] = broadcast(%1) dims=[17179869184, 1]\n"
                "%5: f32[8] = scatter_nd(%2, %4, %3) mode=1\n"
                "output \"y\" = %5\n"},
    {"true elements", "%0: f32[1] = input \"x\"\n"
                      "%1: i64[33554432] = iota() axis=0 dims=[33554432] dtype=i64\n"
                      "%2: i64[] = constant {7}\n"
                      "%3: i64[33554432] = broadcast(%2) dims=[33554432]\n"
                      "%4: i64[1] = cast(%0) dtype=i64\n"
                      "%5: i64[33554432] = broadcast(%4) dims=[33554432]\n"
                      "%6: i64[33554432] = add(%1, %5)\n"
                      "%7: i64[33554432] = mod(%6, %3)\n"
                      "%8: bool[33554432] = lt(%7, %5)\n"
                      "%9: i64[33554432], %10: i64[] = nonzero(%8)\n"
                      "%11: i64[] = mul(%10, %2)\n"
                      "%12: bool[33554432] = le(%9, %5)\n"
                      "%13: i64[33554432], %14: i64[] = nonzero(%12)\n"
                      "output \"y\" = %14\n"},
    {"boxes", "%0: f32[1, 100000, 4] = input \"b\"\n"
              "%1: f32[1, 1, 100000] = input \"s\"\n"
              "%2: f32[] = input \"t\"\n"
              "%3: f32[] = constant {-1}\n"
              "%4: i64[1, 1, 100000], %5: i64[1, 1] = nms(%0, %1, %2, %3) k=100000\n"
              "output \"y\" = %5\n"},
    {"softmax", "%0: f32[1] = input \"x\"\n"
                "%1: f32[68719476736] = broadcast(%0) dims=[68719476736]\n"
                "%2: f32[] = reduce_max(%1) axes=[0]\n"
                "%3: f32[1] = reshape(%2) dims=[1]\n"
                "%4: f32[68719476736] = broadcast(%3) dims=[68719476736]\n"
                "%5: f32[68719476736] = sub(%1, %4)\n"
                "%6: f32[68719476736] = exp(%5)\n"
                "%7: f32[] = reduce_sum(%6) axes=[0]\n"
                "output \"y\" = %7\n"},
    {"gathered rows", "%0: f32[8, 8] = input \"x\"\n"
                      "%1: i64[1] = input \"i\"\n"
                      "%2: i64[1048576] = broadcast(%1) dims=[1048576]\n"
                      "%3: f32[1048576, 8] = gather(%0, %2) axis=0\n"
                      "%4: f32[1048576, 1048576] = gather(%3, %2) axis=1\n"
                      "%5: f32[] = reduce_sum(%4) axes=[0, 1]\n"
                      "output \"y\" = %5\n"},
};

static ash_graph *parse(struct room *r, const char *text) {
    char whole[4096];
    ash_graph *g;
    snprintf(whole, sizeof whole, "graph \"long\"\n%s", text);
    assert_ok(ash_graph_parse(r->context, whole, strlen(whole), &g, &diag));
    return g;
}

static void give_zeros(ash_plan *plan) {
    static const char zeros[1 << 21];
    for (size_t i = 0; i < ash_plan_input_count(plan); i++) {
        ash_view *view;
        void *data;
        if (ash_plan_input(plan, i, &view, &diag) == ASH_OK && ash_view_bytes(view) <= sizeof zeros &&
            ash_view_data_mut(view, &data, &diag) == ASH_OK)
            assert_ok(ash_plan_set_input(plan, i, NULL, zeros, ash_view_bytes(view), &diag));
        else
            fail_msg("input %zu", i);
    }
}

/* --- stopping ---------------------------------------------------------------------------------------- */

static struct {
    ash_cancel *cancel;
    int64_t pressed; /* when the switch went on */
} button;

static void *press(void *arg) {
    struct timespec wait = {.tv_nsec = 30000000};
    nanosleep(&wait, NULL);
    button.pressed = ash_clock__now();
    ash_cancel_set(arg, true);
    return NULL;
}

/* Presses after a while; the call must then end soon. The machine may be busy with other things, and what
 * is stopped gives memory back: milliseconds are promised, half a second is demanded. */
#define STOPS(name, call)                                                                                  \
    do {                                                                                                   \
        pthread_t presser;                                                                                 \
        assert_int_equal(pthread_create(&presser, NULL, press, &r->cancel), 0);                            \
        ash_status status_ = (call);                                                                       \
        int64_t ended_ = ash_clock__now();                                                                 \
        pthread_join(presser, NULL);                                                                       \
        if (status_ != ASH_ERROR_CANCELLED)                                                                \
            fail_msg("%s: %d instead of a cancellation", name, (int)status_);                              \
        if (ended_ - button.pressed > 500000000)                                                           \
            fail_msg("%s: stopped after %.3f s", name, (double)(ended_ - button.pressed) * 1e-9);          \
        ash_cancel_set(&r->cancel, false);                                                                 \
    } while (0)

static const struct way {
    ash_mode mode;
    unsigned streams, threads;
} ways[] = {{ASH_MODE_STREAM, 1, 1},
            {ASH_MODE_STREAM, 1, 2},
            {ASH_MODE_GRAPH, 1, 1},
            {ASH_MODE_MULTI_STREAM, 2, 2}};

static void executions_stop(void **state) {
    struct room *r = *state;
    for (size_t m = 0; m < ASH_COUNT(models); m++)
        for (size_t w = 0; w < ASH_COUNT(ways); w++) {
            ash_graph *g = parse(r, models[m].text);
            ash_plan_options options = ash_plan_options_default();
            options.mode = ways[w].mode;
            options.streams = ways[w].streams;
            options.threads = ways[w].threads;
            options.progress.cancel = &r->cancel;
            assert_ok(ash_plan_prepare(r->context, g, &options, &r->plan, &diag));
            ash_graph_destroy(g);
            give_zeros(r->plan);
            STOPS(models[m].name, ash_plan_execute(r->plan, &diag));
            uint64_t done, total;
            const ash_view *view;
            static char bytes[1 << 23];
            ash_plan_progress(r->plan, &done, &total);
            assert_true(done < total);
            assert_ok(ash_plan_output(r->plan, 0, &view, &diag));
            assert_true(ash_view_bytes(view) <= sizeof bytes);
            assert_status(ash_view_copy_out(view, bytes, ash_view_bytes(view), NULL), ASH_ERROR_STATE);
            ash_plan_destroy(r->plan);
            r->plan = NULL;
        }
}

/* What depends on constants alone is computed while the plan is prepared. */
static void preparing_stops(void **state) {
    struct room *r = *state;
    ash_graph *g = parse(r, "%0: f32[2] = constant {1, 2}\n"
                            "%1: f32[1, 2] = reshape(%0) dims=[1, 2]\n"
                            "%2: f32[137438953472, 2] = broadcast(%1) dims=[137438953472, 2]\n"
                            "%3: f32[2] = reduce_max(%2) axes=[0]\n"
                            "%4: f32[137438953472, 2] = iota() axis=0 dims=[137438953472, 2] dtype=f32\n"
                            "%5: f32[137438953472, 2] = mul(%2, %4)\n"
                            "%6: f32[2] = reduce_sum(%5) axes=[0]\n"
                            "%7: f32[2] = input \"x\"\n"
                            "%8: f32[2] = add(%6, %7)\n"
                            "output \"y\" = %8\n");
    ash_plan_options options = ash_plan_options_default();
    options.progress.cancel = &r->cancel;
    STOPS("prologue", ash_plan_prepare(r->context, g, &options, &r->plan, &diag));
    assert_null(r->plan);
    ash_graph_destroy(g);
}

struct teller {
    unsigned calls[ASH_STAGE_COUNT];
};

static bool tell(void *user, ash_stage stage, uint64_t done, uint64_t total) {
    struct teller *t = user;
    t->calls[stage]++;
    return done <= total;
}

/* Nodes that are evaluated while the graph is optimised, and kernels that are lowered, are each a moment to
 * stop at. */
static void preparing_tells_of_each_piece(void **state) {
    struct room *r = *state;
    enum { EACH = 40, SIZE = 30000 };
    static float numbers[SIZE];
    struct teller t = {{0}};
    ash_graph *g;
    ash_plan_options options = ash_plan_options_default();
    ash_type type = {.dtype = ASH_F32, .rank = 1, .dims = {SIZE}};
    options.progress = (ash_progress){.report = tell, .user = &t};
    options.no_fuse = true;
    assert_ok(ash_graph_create(r->context, "g", &g, &diag));
    ash_value x = ash_graph_input(g, "x", &type);
    for (int i = 0; i < EACH; i++) {
        for (int k = 0; k < SIZE; k++) numbers[k] = (float)(i + k);
        ash_value c = ash_graph_constant(g, &type, numbers, sizeof numbers, ASH_DATA_COPY);
        x = ash_tanh(g, ash_add(g, x, ash_tanh(g, c)));
    }
    ash_graph_output(g, "y", x);
    assert_ok(ash_plan_prepare(r->context, g, &options, &r->plan, &diag));
    assert_true(t.calls[ASH_STAGE_OPTIMIZE] >= EACH);
    assert_true(t.calls[ASH_STAGE_LOWER] >= 2 * EACH);
    ash_graph_destroy(g);
}

/* A window that lies in padding but for a few elements is as long as these. */
static void padding_takes_no_time(void **state) {
    struct room *r = *state;
    static const char *const forms[] = {
        "%%0: f32[1, 1, 16] = input \"x\"\n"
        "%%1: f32[1, 1, 9] = %s(%%0) axes=[2] before=[1073741816] after=[0] kernel=[1073741824] "
        "strides=[1] "
        "dilations=[1]\noutput \"y\" = %%1\n",
        "%%0: f32[1, 16, 40] = input \"x\"\n"
        "%%1: f32[1, 9, 40] = %s(%%0) axes=[1] before=[1073741816] after=[0] kernel=[1073741824] "
        "strides=[1] "
        "dilations=[1]\noutput \"y\" = %%1\n",
    };
    static const char *const ops[] = {"pool_max", "pool_sum"};
    for (int i = 0; i < 4; i++) {
        char text[512];
        float x[640], y[360];
        const ash_view *view;
        snprintf(text, sizeof text, forms[i / 2], ops[i % 2]);
        ash_graph *g = parse(r, text);
        int along = i / 2 ? 40 : 1;
        for (int k = 0; k < 16 * along; k++) x[k] = (float)((k * 7) % 13);
        int64_t start = ash_clock__now();
        assert_ok(ash_plan_prepare(r->context, g, NULL, &r->plan, &diag));
        assert_ok(ash_plan_set_input(r->plan, 0, NULL, x, (size_t)along * 64, &diag));
        assert_ok(ash_plan_execute(r->plan, &diag));
        assert_true(ash_clock__now() - start < INT64_C(5000000000));
        assert_ok(ash_plan_output(r->plan, 0, &view, &diag));
        assert_ok(ash_view_copy_out(view, y, (size_t)along * 36, &diag));
        for (int o = 0; o < 9; o++) /* the window ends at element 7 + o */
            for (int c = 0; c < along; c++) {
                float want = i % 2 ? 0 : -1;
                for (int k = 0; k < 8 + o; k++)
                    want = i % 2 ? want + x[k * along + c] : fmaxf(want, x[k * along + c]);
                assert_true(y[o * along + c] == want);
            }
        ash_plan_destroy(r->plan);
        r->plan = NULL;
        ash_graph_destroy(g);
    }
}

/* --- kernels ----------------------------------------------------------------------------------------- */

static unsigned looking(struct room *r, const char *text) {
    ash_compiler *compiler;
    ash_program *p;
    unsigned count = 0;
    ash_graph *g = parse(r, text);
    ash_lower_options options = {.fuse = true};
    assert_ok(ash_compiler__get(r->context, &compiler, &diag));
    assert_ok(ash_program__lower(g, ash_compiler__target(compiler), &options, &p, &diag));
    for (size_t i = 0; i < p->nests.len; i++) count += p->nests.at[i].polls;
    ash_program__free(p);
    ash_graph_destroy(g);
    return count;
}

/* Chunks of bounded work do not look, however many there are. */
static void short_ones_do_not_look(void **state) {
    struct room *r = *state;
    static const char *const texts[] = {
        "%0: f32[1000000007] = input \"x\"\n%1: f32[1000000007] = tanh(%0)\noutput \"y\" = %1\n",
        "var n 1 100000\n%0: f32[n, 1, 1, 999] = input \"x\"\n%1: f32[n, 999] = reshape(%0) dims=[n, "
        "999]\n"
        "%2: f32[n] = reduce_sum(%1) axes=[1]\noutput \"y\" = %2\n",
        "%0: f32[5000, 4096] = input \"x\"\n%1: f32[4096, 5001] = input \"w\"\n"
        "%2: f32[5000, 5001] = matmul(%0, %1) n=0 b_block=0\noutput \"y\" = %2\n",
        "%0: f32[7000, 9001] = input \"x\"\n%1: f32[9001, 7000] = transpose(%0) perm=[1, 0]\n"
        "output \"y\" = %1\n",
        "%0: f32[64, 64, 113, 113] = input \"x\"\n%1: f32[64, 64, 56, 56] = pool_max(%0) axes=[2, 3] "
        "before=[0, 0] after=[0, 0] kernel=[3, 3] strides=[2, 2] dilations=[1, 1]\noutput \"y\" = %1\n",
        "%0: f32[100, 1001] = input \"x\"\n%1: f32[100, 5], %2: i64[100, 5] = topk(%0) axis=1 k=5 "
        "largest=1\noutput \"y\" = %1\n",
        "%0: f32[50000] = input \"x\"\n%1: bool[50000] = cast(%0) dtype=bool\n"
        "%2: i64[50000], %3: i64[] = nonzero(%1)\noutput \"y\" = %3\n",
    };
    for (size_t i = 0; i < ASH_COUNT(texts); i++)
        if (looking(r, texts[i])) fail_msg("text %zu looks", i);
    for (size_t i = 0; i < ASH_COUNT(models); i++)
        if (!looking(r, models[i].text)) fail_msg("%s does not look", models[i].name);
}

/* y[i] = x[i], which looks before each element. */
static void a_kernel_leaves(void **state) {
    (void)state;
    test_code t;
    ash_code *code;
    ash_nest n = test_nest();
    int32_t x[4] = {1, 2, 3, 4}, y[4] = {0};
    ash_cancel cancel = {0};
    ash_stop stop = {&cancel, 0};
    void *table[] = {x, y, &stop};
    uint16_t from = test_buffer(&n, ASH_I32, false), to = test_buffer(&n, ASH_I32, true);
    ash_ref i = test_chunks(&n);
    ash_nest_poll(&n);
    ash_nest_store(&n, to, i, ash_nest_load(&n, from, i, 1, ASH_NO_REF), ASH_NO_REF);
    ash_nest_end(&n);
    test_code_open(&t, NULL);
    ash_kernel_fn fn = test_code_compile(&t, &n, &code);
    fn(table, NULL, 0, 2, 0);
    assert_true(y[0] == 1 && y[1] == 2 && stop.left_out == 0);
    ash_cancel_set(&cancel, true);
    fn(table, NULL, 2, 3, 0);
    assert_true(y[2] == 0 && stop.left_out == 1);
    ash_cancel_set(&cancel, false); /* what another one left out is enough */
    fn(table, NULL, 3, 4, 0);
    assert_true(y[3] == 0);
    stop.left_out = 0;
    fn(table, NULL, 2, 4, 0);
    assert_true(y[2] == 3 && y[3] == 4 && stop.left_out == 0);
    ash_code__release(code);
    test_code_close(&t);
}

int main(void) {
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(executions_stop),       TEST(preparing_stops),        TEST(preparing_tells_of_each_piece),
        TEST(padding_takes_no_time), TEST(short_ones_do_not_look), cmocka_unit_test(a_kernel_leaves),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
