/* SPDX-License-Identifier: MIT */
/* Streams, events and graphs on the stand-in: what is not ordered is found on every seed, what is
 * ordered gives one result in many orders. */
#include "ptx_room.h"

enum { SEEDS = 12, N = 256 };

/* add: to[i] += from[i]; twice: to[i] = 2 * from[i]; one thread each. */
static const char text[] = PTX_HEAD
    ".visible .entry add(.param .u64 to, .param .u64 from) {\n"
    ".reg .b32 r<4>; .reg .b64 d<4>;\n"
    "ld.param.u64 d0, [to]; ld.param.u64 d1, [from]; mov.u32 r0, %ctaid.x; mad.lo.u32 r0, r0, 64, %tid.x;\n"
    "mul.wide.u32 d2, r0, 4; add.u64 d0, d0, d2; add.u64 d1, d1, d2;\n"
    "ld.global.u32 r1, [d0]; ld.global.u32 r2, [d1]; add.u32 r1, r1, r2; st.global.u32 [d0], r1; ret; }\n"
    ".visible .entry twice(.param .u64 to, .param .u64 from) {\n"
    ".reg .b32 r<4>; .reg .b64 d<4>;\n"
    "ld.param.u64 d0, [to]; ld.param.u64 d1, [from]; mov.u32 r0, %ctaid.x; mad.lo.u32 r0, r0, 64, %tid.x;\n"
    "mul.wide.u32 d2, r0, 4; add.u64 d0, d0, d2; add.u64 d1, d1, d2;\n"
    "ld.global.u32 r1, [d1]; add.u32 r1, r1, r1; st.global.u32 [d0], r1; ret; }\n"
    ".visible .entry watch(.param .u64 word, .param .u64 to) {\n"
    ".reg .b32 r; .reg .b64 d<2>;\n"
    "ld.param.u64 d0, [word]; ld.param.u64 d1, [to]; ld.volatile.global.u32 r, [d0]; st.global.u32 [d1], "
    "r; ret; }\n";

typedef struct streams_room {
    ptx_room room;
    CUfunction add, twice, watch;
    CUstream s[3];
    CUevent e[3];
    CUdeviceptr x, y, z, w; /* N numbers; x: 1, 2, 3, ..., the others 0 */
} streams_room;

static void open_room(streams_room *r, uint64_t seed) {
    ptx_room_open(&r->room, seed);
    ptx_room_load(&r->room, text);
    r->add = ptx_room_function(&r->room, "add");
    r->twice = ptx_room_function(&r->room, "twice");
    r->watch = ptx_room_function(&r->room, "watch");
    uint32_t numbers[N], zeros[N] = {0};
    for (uint32_t i = 0; i < N; i++) numbers[i] = i + 1;
    r->x = ptx_room_memory(numbers, sizeof numbers);
    r->y = ptx_room_memory(zeros, sizeof zeros);
    r->z = ptx_room_memory(zeros, sizeof zeros);
    r->w = ptx_room_memory(zeros, sizeof zeros);
    for (int i = 0; i < 3; i++) {
        assert_cu(cuStreamCreate(&r->s[i], CU_STREAM_NON_BLOCKING));
        assert_cu(cuEventCreate(&r->e[i], CU_EVENT_DISABLE_TIMING));
    }
}

static CUresult launch(CUfunction f, CUstream s, CUdeviceptr to, CUdeviceptr from) {
    void *params[] = {&to, &from};
    return cuLaunchKernel(f, N / 64, 1, 1, 64, 1, 1, 0, s, params, NULL);
}

static void expect(CUdeviceptr at, uint32_t factor) {
    uint32_t out[N];
    assert_cu(cuMemcpyDtoH_v2(out, at, sizeof out));
    for (uint32_t i = 0; i < N; i++) assert_int_equal(out[i], factor * (i + 1));
}

static void expect_race(CUresult code) {
    if (!code) code = cuCtxSynchronize();
    if (!code || ptx_finding_check() != PTX_STREAM_RACE)
        fail_msg("no race: \"%s\" (%d)", ptx_finding(), code);
    assert_non_null(strstr(ptx_finding(), "nothing orders that and"));
}

/* s0 makes y, s1 and s2 read it, s0 writes it again: each of the four waits can be left out. */
static CUresult three_streams(streams_room *r, int left_out) {
    CUresult code = launch(r->twice, r->s[0], r->y, r->x);
    if (!code) code = cuEventRecord(r->e[0], r->s[0]);
    for (int i = 1; i < 3 && !code; i++) {
        if (left_out != i) code = cuStreamWaitEvent(r->s[i], r->e[0], 0);
        if (!code) code = launch(r->twice, r->s[i], i == 1 ? r->z : r->w, r->y);
        if (!code) code = cuEventRecord(r->e[i], r->s[i]);
    }
    for (int i = 1; i < 3 && !code; i++)
        if (left_out != 2 + i) code = cuStreamWaitEvent(r->s[0], r->e[i], 0);
    if (!code) code = launch(r->add, r->s[0], r->y, r->x);
    return code;
}

static void test_streams(void **state) {
    (void)state;
    for (uint64_t seed = 0; seed < SEEDS; seed++) {
        streams_room r;
        open_room(&r, seed);
        for (int i = 0; i < 3; i++) {
            assert_cu(three_streams(&r, 0));
            assert_cu(cuStreamSynchronize(r.s[0]));
        }
        expect(r.z, 4);
        expect(r.w, 4);
        expect(r.y, 3);
    }
    ptx_reset(NULL, 0);
}

static void test_a_wait_left_out(void **state) {
    (void)state;
    for (uint64_t seed = 0; seed < SEEDS; seed++) {
        for (int left_out = 1; left_out <= 4; left_out++) {
            streams_room r;
            open_room(&r, seed);
            expect_race(three_streams(&r, left_out));
        }
    }
    ptx_reset(NULL, 0);
}

/* The host's waiting orders, too, for all that comes after; copies and fills are commands like others. */
static void test_host_waits(void **state) {
    (void)state;
    for (uint64_t seed = 0; seed < SEEDS; seed++) {
        for (int waits = 0; waits < 3; waits++) {
            streams_room r;
            open_room(&r, seed);
            CUresult code = launch(r.twice, r.s[0], r.y, r.x);
            if (!code) code = cuEventRecord(r.e[0], r.s[0]);
            if (waits == 1) assert_cu(cuEventSynchronize(r.e[0]));
            for (int i = 0; waits == 2 && i < 1000; i++) {
                code = cuEventQuery(r.e[0]);
                if (!code) break;
                assert_int_equal(code, CUDA_ERROR_NOT_READY);
            }
            if (!code) code = cuMemcpyDtoDAsync_v2(r.z, r.y, 4 * N, r.s[1]);
            if (!waits) {
                expect_race(code);
                continue;
            }
            assert_cu(cuStreamSynchronize(r.s[1]));
            expect(r.z, 2);
        }
        streams_room r;
        open_room(&r, seed);
        CUresult code = cuMemsetD32Async(r.y, 7, N, r.s[0]);
        if (!code) code = launch(r.add, r.s[1], r.y, r.x);
        expect_race(code);
    }
    ptx_reset(NULL, 0);
}

/* The null stream and streams that are not NON_BLOCKING wait for each other; volatile reads are in no
 * race. */
static void test_null_stream_and_volatile(void **state) {
    (void)state;
    for (uint64_t seed = 0; seed < SEEDS; seed++) {
        streams_room r;
        open_room(&r, seed);
        CUstream blocking;
        assert_cu(cuStreamCreate(&blocking, CU_STREAM_DEFAULT));
        assert_cu(launch(r.twice, NULL, r.y, r.x));
        assert_cu(launch(r.twice, blocking, r.z, r.y));
        assert_cu(launch(r.add, NULL, r.z, r.x));
        assert_cu(cuCtxSynchronize());
        expect(r.z, 5);
        assert_cu(cuMemsetD32Async(r.y, 1, 1, r.s[0]));
        void *params[] = {&r.y, &r.w};
        assert_cu(cuLaunchKernel(r.watch, 1, 1, 1, 1, 1, 1, 0, r.s[1], params, NULL));
        assert_cu(cuCtxSynchronize());
        CUresult code = launch(r.add, r.s[0], r.w, r.x);
        if (!code) code = launch(r.add, r.s[1], r.w, r.x);
        expect_race(code);
    }
    ptx_reset(NULL, 0);
}

/* Memory that is not pinned may be changed as soon as the call is back; pinned memory may not. */
static void test_host_memory(void **state) {
    (void)state;
    int stale = 0;
    for (uint64_t seed = 0; seed < 4 * SEEDS; seed++) {
        streams_room r;
        open_room(&r, seed);
        uint32_t plain[N], *pinned, out[N];
        for (uint32_t i = 0; i < N; i++) plain[i] = i + 1;
        assert_cu(cuMemAllocHost_v2((void **)&pinned, sizeof plain));
        memcpy(pinned, plain, sizeof plain);
        assert_cu(cuMemcpyHtoDAsync_v2(r.y, plain, sizeof plain, r.s[0]));
        memset(plain, 0, sizeof plain);
        assert_cu(cuMemcpyDtoHAsync_v2(out, r.y, sizeof out, r.s[0])); /* not pinned: it waits */
        assert_int_equal(out[N - 1], N);
        memset(pinned, 0, 4);
        assert_cu(launch(r.twice, r.s[0], r.y, r.x));
        assert_cu(cuMemcpyDtoHAsync_v2(pinned, r.y, sizeof plain, r.s[0]));
        stale += pinned[N - 1] == N;
        assert_cu(cuStreamSynchronize(r.s[0]));
        assert_int_equal(pinned[N - 1], 2 * N);
        assert_cu(cuMemFreeHost(pinned));
    }
    assert_true(stale > 0 && stale < 4 * SEEDS);
    ptx_reset(NULL, 0);
}

/* Two streams without anything in common: several orders, one of which is the second first. */
static void test_orders_differ(void **state) {
    (void)state;
    int second_first = 0;
    for (uint64_t seed = 0; seed < 40; seed++) {
        streams_room r;
        open_room(&r, seed);
        assert_cu(launch(r.twice, r.s[0], r.y, r.x));
        assert_cu(launch(r.twice, r.s[1], r.z, r.x));
        assert_cu(cuCtxSynchronize());
        int stream = 0, first = 0;
        const char *name;
        for (uint64_t i = 0; (name = ptx_history(i, &stream)); i++)
            if (!first && !strcmp(name, "kernel twice")) first = stream;
        assert_true(first == 1 || first == 2);
        second_first += first == 2;
    }
    assert_true(second_first > 0 && second_first < 30);
    ptx_reset(NULL, 0);
}

/* --- graphs --------------------------------------------------------------------------------------- */

static CUDA_KERNEL_NODE_PARAMS node_params(CUfunction f, void **params) {
    return (CUDA_KERNEL_NODE_PARAMS){.func = f,
                                     .gridDimX = N / 64,
                                     .gridDimY = 1,
                                     .gridDimZ = 1,
                                     .blockDimX = 64,
                                     .blockDimY = 1,
                                     .blockDimZ = 1,
                                     .kernelParams = params};
}

/* y = 2 x; z = 2 y beside w = 2 y; y += x behind both. The edge with this number is left out. */
static CUgraphExec diamond(streams_room *r, int left_out, CUgraphNode *nodes) {
    CUgraph g;
    CUgraphExec exec;
    assert_cu(cuGraphCreate(&g, 0));
    CUdeviceptr *memory[4][2] = {{&r->y, &r->x}, {&r->z, &r->y}, {&r->w, &r->y}, {&r->y, &r->x}};
    for (int i = 0; i < 4; i++) {
        void *params[] = {memory[i][0], memory[i][1]};
        CUDA_KERNEL_NODE_PARAMS p = node_params(i == 3 ? r->add : r->twice, params);
        CUgraphNode after[2];
        size_t n = 0;
        if ((i == 1 || i == 2) && left_out != i) after[n++] = nodes[0];
        for (int j = 1; i == 3 && j < 3; j++)
            if (left_out != 2 + j) after[n++] = nodes[j];
        assert_cu(cuGraphAddKernelNode_v2(&nodes[i], g, after, n, &p));
    }
    assert_cu(cuGraphInstantiateWithFlags(&exec, g, 0));
    assert_cu(cuGraphDestroy(g));
    return exec;
}

static void test_graph(void **state) {
    (void)state;
    for (uint64_t seed = 0; seed < SEEDS; seed++) {
        streams_room r;
        open_room(&r, seed);
        CUgraphNode nodes[4], from[8], to[8];
        CUgraphExec exec = diamond(&r, 0, nodes);
        assert_cu(cuGraphUpload(exec, r.s[0]));
        for (int i = 0; i < 3; i++) assert_cu(cuGraphLaunch(exec, r.s[i % 2]));
        assert_cu(cuCtxSynchronize());
        expect(r.y, 3);
        expect(r.z, 4);
        expect(r.w, 4);
        size_t n = 8;
        assert_cu(cuGraphGetEdges(ptx_exec_graph(exec), from, to, &n));
        assert_int_equal(n, 4);
        assert_true(from[0] == from[1] && to[2] == to[3] && from[2] == to[0] && from[3] == to[1]);
        n = 0;
        assert_cu(cuGraphGetNodes(ptx_exec_graph(exec), NULL, &n));
        assert_int_equal(n, 4);
        CUgraphNodeType type;
        assert_cu(cuGraphNodeGetType(from[0], &type));
        assert_int_equal(type, CU_GRAPH_NODE_TYPE_KERNEL);
        /* With other parameters: the second node reads x. */
        void *params[] = {&r.z, &r.x};
        CUDA_KERNEL_NODE_PARAMS p = node_params(r.twice, params);
        assert_cu(cuGraphExecKernelNodeSetParams_v2(exec, nodes[1], &p));
        assert_cu(cuGraphLaunch(exec, r.s[0]));
        assert_cu(cuStreamSynchronize(r.s[0]));
        expect(r.z, 2);
        expect(r.w, 4);
        assert_cu(cuGraphExecDestroy(exec));
        assert_cu_is(cuGraphLaunch(exec, r.s[0]), CUDA_ERROR_INVALID_HANDLE);
    }
    ptx_reset(NULL, 0);
}

static void test_an_edge_left_out(void **state) {
    (void)state;
    for (uint64_t seed = 0; seed < SEEDS; seed++) {
        for (int left_out = 1; left_out <= 4; left_out++) {
            streams_room r;
            open_room(&r, seed);
            CUgraphNode nodes[4];
            expect_race(cuGraphLaunch(diamond(&r, left_out, nodes), r.s[0]));
        }
    }
    ptx_reset(NULL, 0);
}

/* --- words ---------------------------------------------------------------------------------------- */

/* Takes one away from the word; a block that took the last one writes 7s. */
#define LAST(name, order)                                                                                  \
    ".visible .entry " name "(.param .u64 word, .param .u64 to) {\n"                                       \
    ".reg .pred p<2>; .reg .b32 r<6>; .reg .b64 d<4>; .shared .align 4 .b32 was;\n"                        \
    "ld.param.u64 d0, [word]; ld.param.u64 d1, [to]; mov.u32 r0, %tid.x; mov.u32 r3, 7;\n"                 \
    "setp.ne.u32 p0, r0, 0; @p0 bra TOGETHER;\n"                                                           \
    "atom" order ".global.add.u32 r1, [d0], -1; st.shared.u32 [was], r1;\n"                                \
    "TOGETHER: bar.sync 0; ld.shared.u32 r2, [was]; setp.ne.u32 p1, r2, 1; @p1 bra DONE;\n"                \
    "mul.wide.u32 d2, r0, 4; add.u64 d1, d1, d2; st.global.u32 [d1], r3;\n"                                \
    "DONE: ret; }\n"

static const char word_text[] =
    PTX_HEAD LAST("both", ".acq_rel.gpu") LAST("plain", "") LAST("relaxed", ".relaxed.gpu")
        LAST("near", ".acq_rel.cta") LAST("release", ".release.gpu") LAST("acquire", ".acquire.gpu");

/* s0 makes y, and so does s1 z, each followed by the kernel, which fills y; nothing else orders them.
 * Whether s1 was the last. */
static bool fill_last(streams_room *r, const char *name, CUdeviceptr word, CUresult *code) {
    CUfunction f = ptx_room_function(&r->room, name);
    void *params[] = {&word, &r->y};
    int stream = 0, last = 0;
    const char *ran;
    char kernel[32];
    *code = launch(r->twice, r->s[0], r->y, r->x);
    if (!*code) *code = launch(r->twice, r->s[1], r->z, r->x);
    for (int i = 0; i < 2 && !*code; i++) {
        *code = cuLaunchKernel(f, 1, 1, 1, 64, 1, 1, 0, r->s[i], params, NULL);
        if (!*code) *code = cuEventRecord(r->e[i], r->s[i]);
    }
    if (!*code) *code = cuCtxSynchronize();
    snprintf(kernel, sizeof kernel, "kernel %s", name);
    for (uint64_t i = 0; (ran = ptx_history(i, &stream)); i++)
        if (!strcmp(ran, kernel)) last = stream;
    return last == 2;
}

/* What came before a release comes before what follows the acquire that reads it, and only that. */
static void test_atomics_order(void **state) {
    (void)state;
    static const char *const names[] = {"both", "plain", "relaxed", "near", "release", "acquire"};
    const uint32_t two = 2;
    for (size_t k = 0; k < sizeof names / sizeof *names; k++) {
        int other = 0;
        for (uint64_t seed = 0; seed < 2 * SEEDS; seed++) {
            streams_room r;
            uint32_t y[N];
            CUresult code;
            open_room(&r, seed);
            ptx_room_load(&r.room, word_text);
            CUdeviceptr word = ptx_room_memory(&two, sizeof two);
            bool crossed = fill_last(&r, names[k], word, &code);
            other += crossed;
            if (crossed && k) {
                expect_race(code);
                continue;
            }
            assert_cu(code);
            assert_cu(cuMemcpyDtoH_v2(y, r.y, sizeof y));
            assert_true(y[0] == 7 && y[63] == 7 && y[64] == 130);
        }
        assert_true(other > 0 && other < 2 * SEEDS);
    }
    ptx_reset(NULL, 0);
}

/* Atomics of several streams on one word are no race; what is no atomic comes after all of them. */
static void test_atomics_and_others(void **state) {
    (void)state;
    const uint32_t many = 100;
    for (uint64_t seed = 0; seed < SEEDS; seed++) {
        for (int waits = 0; waits < 8; waits++) { /* for s0, for s1; writes, or reads */
            streams_room r;
            open_room(&r, seed);
            ptx_room_load(&r.room, word_text);
            CUfunction f = ptx_room_function(&r.room, "relaxed");
            CUdeviceptr word = ptx_room_memory(&many, sizeof many);
            void *params[] = {&word, &r.y};
            CUresult code = CUDA_SUCCESS;
            for (int i = 0; i < 2 && !code; i++) {
                code = cuLaunchKernel(f, 1, 1, 1, 64, 1, 1, 0, r.s[i], params, NULL);
                if (!code) code = cuEventRecord(r.e[i], r.s[i]);
                if (!code && waits & 1 << i) code = cuStreamWaitEvent(r.s[2], r.e[i], 0);
            }
            if (!code && waits & 4) code = cuMemsetD32Async(word, 1, 1, r.s[2]);
            if (!code && !(waits & 4)) code = cuMemcpyDtoDAsync_v2(r.z, word, 4, r.s[2]);
            if (!code) code = cuCtxSynchronize();
            if ((waits & 3) == 3)
                assert_cu(code);
            else
                assert_true(code && ptx_finding_check() == PTX_STREAM_RACE);
        }
    }
    ptx_reset(NULL, 0);
}

/* -------------------------------------------------------------------------------------------------- */

static int calls;

static void host_function(void *user) {
    *(uint32_t *)user = 5;
    calls++;
}

static void bad_host_function(void *user) {
    (void)user;
    CUdeviceptr p;
    assert_cu_is(cuMemAlloc_v2(&p, 4), CUDA_ERROR_NOT_PERMITTED);
}

/* A copy out, a function of the host, a copy in, a fill; events of other streams within. */
static void test_other_nodes(void **state) {
    (void)state;
    for (uint64_t seed = 0; seed < SEEDS; seed++) {
        streams_room r;
        open_room(&r, seed);
        uint32_t *pinned, out[N];
        assert_cu(cuMemHostAlloc((void **)&pinned, sizeof out, 0));
        CUgraph g;
        CUgraphNode last, node;
        CUgraphExec exec;
        assert_cu(cuGraphCreate(&g, 0));
        CUDA_MEMSET_NODE_PARAMS fill = {.dst = r.y, .value = 9, .elementSize = 4, .width = N, .height = 1};
        assert_cu(cuGraphAddMemsetNode(&last, g, NULL, 0, &fill, r.room.context));
        CUDA_MEMCPY3D copy = {.srcMemoryType = CU_MEMORYTYPE_DEVICE,
                              .srcDevice = r.y,
                              .dstMemoryType = CU_MEMORYTYPE_HOST,
                              .dstHost = pinned,
                              .WidthInBytes = sizeof out,
                              .Height = 1,
                              .Depth = 1};
        assert_cu(cuGraphAddMemcpyNode(&node, g, &last, 1, &copy, r.room.context));
        CUDA_HOST_NODE_PARAMS host = {host_function, pinned};
        assert_cu(cuGraphAddHostNode(&last, g, &node, 1, &host));
        CUDA_MEMCPY3D back = {.srcMemoryType = CU_MEMORYTYPE_HOST,
                              .srcHost = pinned,
                              .dstMemoryType = CU_MEMORYTYPE_DEVICE,
                              .dstDevice = r.z,
                              .WidthInBytes = sizeof out,
                              .Height = 1,
                              .Depth = 1};
        assert_cu(cuGraphAddMemcpyNode(&node, g, &last, 1, &back, r.room.context));
        assert_cu(cuGraphAddEmptyNode(&last, g, &node, 1));
        assert_cu(cuGraphAddEventRecordNode(&node, g, &last, 1, r.e[0]));
        assert_cu_is(cuGraphAddDependencies(g, &node, &node, 1), CUDA_ERROR_INVALID_VALUE);
        assert_cu(cuGraphInstantiateWithFlags(&exec, g, 0));
        calls = 0;
        assert_cu(cuGraphLaunch(exec, r.s[0]));
        assert_cu(cuStreamWaitEvent(r.s[1], r.e[0], 0));
        assert_cu(launch(r.twice, r.s[1], r.w, r.z));
        assert_cu(cuCtxSynchronize());
        assert_int_equal(calls, 1);
        assert_cu(cuMemcpyDtoH_v2(out, r.w, sizeof out));
        assert_int_equal(out[0], 10);
        assert_int_equal(out[1], 18);
        /* Nodes that wait for each other are no graph. */
        CUgraphNode first;
        size_t n = 1;
        assert_cu(cuGraphGetNodes(g, &first, &n));
        assert_cu(cuGraphAddDependencies(g, &node, &first, 1));
        CUgraphExec none;
        assert_cu_is(cuGraphInstantiateWithFlags(&none, g, 0), CUDA_ERROR_INVALID_VALUE);
        assert_cu(cuLaunchHostFunc(r.s[2], host_function, pinned));
        CUresult code = cuLaunchHostFunc(r.s[2], bad_host_function, NULL);
        if (!code) code = cuStreamSynchronize(r.s[2]);
        assert_int_equal(code, CUDA_ERROR_LAUNCH_FAILED);
        assert_int_equal(ptx_finding_check(), PTX_HOST_FUNCTION);
    }
    ptx_reset(NULL, 0);
}

static void test_event_times(void **state) {
    (void)state;
    streams_room r;
    open_room(&r, 1);
    CUevent begin, end;
    float ms = 0;
    assert_cu(cuEventCreate(&begin, CU_EVENT_DEFAULT));
    assert_cu(cuEventCreate(&end, CU_EVENT_DEFAULT));
    assert_cu(cuEventRecord(begin, r.s[0]));
    assert_cu(launch(r.twice, r.s[0], r.y, r.x));
    assert_cu(cuEventRecord(end, r.s[0]));
    assert_cu(cuEventSynchronize(end));
    assert_cu(cuEventElapsedTime(&ms, begin, end));
    assert_true(ms > 0 && ms < 1);
    assert_cu_is(cuEventElapsedTime(&ms, begin, r.e[0]), CUDA_ERROR_INVALID_HANDLE);
    assert_int_equal(ptx_calls("cuEventRecord"), 2);
    ptx_reset(NULL, 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_streams),       cmocka_unit_test(test_a_wait_left_out),
        cmocka_unit_test(test_host_waits),    cmocka_unit_test(test_null_stream_and_volatile),
        cmocka_unit_test(test_host_memory),   cmocka_unit_test(test_orders_differ),
        cmocka_unit_test(test_graph),         cmocka_unit_test(test_an_edge_left_out),
        cmocka_unit_test(test_other_nodes),   cmocka_unit_test(test_event_times),
        cmocka_unit_test(test_atomics_order), cmocka_unit_test(test_atomics_and_others),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
