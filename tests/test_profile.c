/* SPDX-License-Identifier: MIT */
/* What the command line shows of a plan's time and memory: the profile's table, the memory timeline, the
 * buffers with who writes and reads them, and traces, held against the trace event format. */
#include "cli_fixture.h"
#include "trace_format.h"

static int setup(void **state) {
    (void)state;
    make_folder();
    return 0;
}

#define BERT     ASH_SOURCE_DIR "/tests/data/onnx/bert_like/model.onnx"
#define BRANCHES ASH_SOURCE_DIR "/tests/data/onnx/ml_classifiers/model.onnx"
#define NET      ASH_SOURCE_DIR "/tests/data/onnx/resnet_like/model.onnx"

/* The number in a line of room.out that begins with `start`, after `before`. */
static double number_after(const char *start, const char *before) {
    const char *at = strstr(room.out, start);
    if (!at || !(at = strstr(at, before)))
        fail_msg("\"%s ... %s\" is missing in:\n%s", start, before, room.out);
    return strtod(at + strlen(before), NULL);
}

/* --- traces ------------------------------------------------------------------------------------- */

/* The checker of this test finds what it is there for. */
static void broken_traces_are_found(void **state) {
    (void)state;
#define NAMES                                                                                              \
    "{\"ph\":\"M\",\"pid\":1,\"tid\":0,\"name\":\"process_name\",\"args\":{\"name\":\"p\"}},"              \
    "{\"ph\":\"M\",\"pid\":1,\"tid\":1,\"name\":\"thread_name\",\"args\":{\"name\":\"s\"}}"
#define TRACE(events) "{\"traceEvents\":[" NAMES events "]}"
#define X(rest)       ",{\"ph\":\"X\",\"pid\":1,\"name\":\"op\"," rest "}"
#define C(rest)       ",{\"ph\":\"C\",\"pid\":1,\"tid\":0,\"name\":\"c\",\"ts\":1," rest "}"
    static const struct {
        const char *text, *wrong; /* NULL: nothing is */
    } cases[] = {
        {TRACE(""), NULL},
        {TRACE(X("\"tid\":1,\"ts\":0.5,\"dur\":2") X("\"tid\":1,\"ts\":2.5,\"dur\":1")), NULL},
        {TRACE(X("\"tid\":1,\"ts\":0,\"dur\":9") X("\"tid\":1,\"ts\":1,\"dur\":8")), NULL},
        {TRACE(C("\"args\":{\"bytes\":5}")), NULL},
        {"{\"traceEvents\": [" NAMES "], \"more\": [1.5e-3, true, null, \"\\u00e9\\n\"]}", NULL},
        {"{\"traceEvents\":[" NAMES ",]}", "no JSON"},
        {"{\"traceEvents\":[" NAMES "]", "no JSON"},
        {"{\"traceEvents\":[" NAMES "]} x", "no JSON"},
        {"{\"traceEvents\":[" NAMES "], \"a\": 01}", "no JSON"},
        {"{\"traceEvents\":[" NAMES "], \"a\": \"tab\there\"}", "no JSON"},
        {"{\"traceEvents\":[" NAMES "], \"a\": \"\\x\"}", "no JSON"},
        {"[]", "no list"},
        {"{\"traceEvents\":{}}", "no list"},
        {"{\"traceEvents\":[], \"displayTimeUnit\": \"s\"}", "unit"},
        {"{\"traceEvents\":[]}", "process without a name"},
        {TRACE(",3"), "no object"},
        {TRACE(X("\"tid\":1,\"dur\":2")), "without a time"},
        {TRACE(X("\"tid\":1,\"ts\":\"3\",\"dur\":2")), "without a time"},
        {TRACE(X("\"tid\":1,\"ts\":3")), "without a duration"},
        {TRACE(X("\"ts\":3,\"dur\":1")), "process and track"},
        {TRACE(X("\"tid\":1.5,\"ts\":3,\"dur\":1")), "process and track"},
        {TRACE(X("\"tid\":2,\"ts\":3,\"dur\":1")), "track without a name"},
        {TRACE(X("\"tid\":1,\"ts\":3,\"dur\":1") X("\"tid\":1,\"ts\":2,\"dur\":1")),
         "order of their times"},
        {TRACE(X("\"tid\":1,\"ts\":3,\"dur\":2") X("\"tid\":1,\"ts\":4,\"dur\":2")), "overlap"},
        {TRACE(C("\"args\":{}")), "without values"},
        {TRACE(C("\"args\":{\"bytes\":\"5\"}")), "no amount"},
        {TRACE(C("\"args\":{\"bytes\":-5}")), "no amount"},
        {TRACE(",{\"ph\":\"Q\",\"pid\":1,\"tid\":1,\"name\":\"a\",\"ts\":1}"), "unknown phase"},
        {TRACE(",{\"ph\":\"M\",\"pid\":1,\"tid\":1,\"name\":\"thread_name\",\"args\":{\"name\":\"t\"}}"),
         "two names"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        trace_seen seen;
        const char *wrong = trace_check(cases[i].text, &seen);
        if (!wrong != !cases[i].wrong || (wrong && !strstr(wrong, cases[i].wrong)))
            fail_msg("%s: %s", cases[i].text, wrong ? wrong : "nothing is found");
    }
}

/* Runs `ashlar profile`, and holds its trace against the format and against what it said. */
static trace_seen profile(const char *model, const char *options) {
    char words[512];
    trace_seen seen;
    snprintf(words, sizeof words, "profile %s --no-cache --repeat 2 --top 0 --trace %%s/trace.json %s",
             model, options);
    if (ashlar(words) != 0) fail_msg("%s", room.out);
    double ops = number_after("live bytes over", "live bytes over ");
    char *table = strdup(room.out);
    read_back("trace.json");
    const char *wrong = trace_check(room.out, &seen), *offence;
    if (wrong) fail_msg("%s: %s", words, wrong);
    assert_int_equal(seen.complete, (int)ops);
    assert_int_equal(seen.deepest, 1);
    json *trace = json_read(room.out, &offence);
    double arena = json_double(json_member(trace, "otherData"), "arena bytes", -1);
    /* one stream: the live bytes reach the bound, which the arena is; with several they may come to less */
    assert_true(seen.counters >= 2 && seen.most > 0 && seen.most <= arena);
    for (const json *e = json_member(trace, "traceEvents")->first; e; e = e->next) {
        if (strcmp(json_text(e, "ph"), "X") != 0) continue;
        const json *args = json_member(e, "args");
        assert_true(json_double(args, "operation", -1) >= 0 && json_double(args, "threads", 0) >= 1);
        assert_true(json_double(args, "bytes", -1) >= 0 && json_double(args, "kernel", -1) >= 0);
        assert_non_null(json_text(e, "cat"));
        char name[45];
        snprintf(name, sizeof name, "%s", json_text(e, "name"));
        if (!strstr(table, name)) fail_msg("%s is not in the table", name);
    }
    json_free(trace);
    strcpy(room.out, table);
    free(table);
    return seen;
}

static void traces(void **state) {
    (void)state;
    trace_seen one = profile(BERT, "--threads 2");
    assert_true(one.complete > 5 && one.names == 1);
    trace_seen two = profile(BRANCHES, "--no-fuse --mode multi_stream=2 --threads 2");
    assert_true(two.complete > 100 && two.names == 2);
    assert_int_equal(__builtin_popcountll(two.tracks), 2);
    profile(NET, "--planner disabled");
    profile(NET, "--planner remap --poison --threads 1");
    assert_int_equal(ashlar("profile " NET " --no-cache --trace %s/no/trace.json"), 1);
    says("cannot write the trace");
}

/* Of a network that is used: 57 operations, and an arena that is as large as its live bytes. */
static void trace_of_resnet50(void **state) {
    (void)state;
    char command[512];
    snprintf(command, sizeof command, "%s %s", ASH_EXAMPLE_RESNET50, path_of("resnet50.onnx"));
    assert_int_equal(shell(command), 0);
    trace_seen seen = profile(path_of("resnet50.onnx"), "--threads 2");
    assert_true(seen.complete > 50 && seen.names == 1 && seen.counters > 50);
    assert_true(seen.most > 5e6 && seen.final < seen.most);
    says("arena │");
    says("at the peak");
    assert_false(said("bound │")); /* the arena is at its bound */
}

/* --- the table ---------------------------------------------------------------------------------- */

/* The place of a line's first column of that name: where the header's word ends. */
static void columns_are_aligned(void) {
    const char *line = strstr(room.out, "      time  share");
    assert_non_null(line);
    size_t width = strcspn(strstr(line, "stream"), " ") + (size_t)(strstr(line, "stream") - line);
    int rows = 0;
    for (line = strchr(line, '\n') + 1; strstr(line, "  all ") && *line != '\n';
         line = strchr(line, '\n') + 1) {
        size_t columns = 0, bytes = 0;
        while (columns < width) columns += ((unsigned char)line[bytes++] & 0xc0) != 0x80;
        while (((unsigned char)line[bytes] & 0xc0) == 0x80) bytes++;
        if (line[bytes] != ' ') fail_msg("not aligned: %.100s", line);
        rows++;
    }
    assert_true(rows > 2);
}

/* The values of one column, row by row, up to `count`; as they are printed. */
static int read_column(int column, char values[][32], int count) {
    const char *line = strchr(strstr(room.out, "      time  share"), '\n') + 1;
    int rows = 0;
    while (rows < count && strchr(line, '#') && strchr(line, '#') < strchr(line, '\n')) {
        char text[6][32];
        /* "1.2 ms 3.4% 5.6 7.8 9 kB 1 0 #0": time and bytes have their units */
        char time_unit[8], bytes_unit[8];
        assert_int_equal(sscanf(line, "%31s %7s %31s %31s %31s %31s %7s %*s %*s %31s", text[0], time_unit,
                                text[1], text[2], text[3], text[4], bytes_unit, text[5]),
                         8);
        snprintf(values[rows++], 32, "%s", text[column]);
        line = strchr(line, '\n') + 1;
    }
    return rows;
}

static void sorting(void **state) {
    (void)state;
    static char values[64][32];
    enum { SHARE = 1, FLOP_RATE, BYTE_RATE, BYTES, OP };
    static const struct {
        const char *key;
        int column;
    } keys[] = {{"time", SHARE}, {"GFLOP/s", FLOP_RATE}, {"GB/s", BYTE_RATE}};
    for (size_t k = 0; k < 3; k++) {
        char words[256];
        snprintf(words, sizeof words, "profile %s --no-cache --repeat 1 --top 0 --sort %s", BERT,
                 keys[k].key);
        assert_int_equal(ashlar(words), 0);
        int rows = read_column(keys[k].column, values, 64);
        assert_true(rows > 5);
        for (int i = 1; i < rows; i++)
            if (strtod(values[i - 1], NULL) < strtod(values[i], NULL)) fail_msg("%s", room.out);
        columns_are_aligned();
    }
    assert_int_equal(ashlar("profile " BERT " --no-cache --repeat 1 --top 0 --sort order"), 0);
    int rows = read_column(OP, values, 64);
    for (int i = 0; i < rows; i++) assert_int_equal(atoi(values[i] + 1), i);
    says("from first to last");
    assert_int_equal(ashlar("profile " BERT " --no-cache --repeat 1 --top 3"), 0);
    char more[32];
    snprintf(more, sizeof more, "  %d more", rows - 3);
    says(more);
    says("100.0%");
    assert_int_equal(ashlar("profile " BERT " --sort colour"), 2);
    says("--sort knows");
    assert_int_equal(ashlar("profile " BERT " --repeat 0"), 2);
    assert_int_equal(ashlar("profile " BERT " --no-cache --mode graph"), 1);
    says("mode graph");
    says("profile in mode stream");
}

/* --- memory ------------------------------------------------------------------------------------- */

static void timeline(void **state) {
    (void)state;
    assert_int_equal(ashlar("plan " NET " --no-cache --timeline"), 0);
    says("live bytes over 8 operations");
    says("arena │");
    /* the pool reads the first convolution's result; the input keeps its place */
    says("peak, at operation #1 of 0 to 7");
    says("3 buffers, 6.57 kB");
    says("buffer 0: input \"x\"");
    says("result of #0 conv+add+max");
    assert_int_equal(ashlar("plan " BERT " --no-cache --timeline --planner disabled"), 0);
    says("bound │");
    assert_int_equal(ashlar("plan " BRANCHES " --no-cache --timeline --mode multi_stream=2 --no-fuse"), 0);
    says("in the order of issue");
    assert_int_equal(ashlar("plan " NET " --no-cache"), 0);
    assert_false(said("live bytes"));
}

static void buffers(void **state) {
    (void)state;
    for (int i = 0; i < 2; i++) {
        assert_int_equal(
            ashlar(i ? "inspect buffers " NET " --no-cache" : "plan " NET " --no-cache --buffers"), 0);
        says("written by");
        /* the input lives throughout, is read by the first operation and written by none */
        says("input     f32[1, 3, 17, 17]              3.47 kB  arena 0 at 0              start-end   -    "
             "      "
             "         #0                        x");
        says("#7-end      #7                  -                         softmax_35"); /* an output */
        says("p3                  #6");    /* a weight of the prologue */
        says(", in 21    #1-#4       #3"); /* in place of what operation 1 made, and 2 and 3 read */
        says("#1                  #2 #3");
    }
}

int main(void) {
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(broken_traces_are_found),
        TEST(traces),
        TEST(trace_of_resnet50),
        TEST(sorting),
        TEST(timeline),
        TEST(buffers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
