/* SPDX-License-Identifier: MIT */
/* The stand-in for the CUDA driver: what it refuses, what it finds in kernels, errors that stay,
 * failures on demand. */
#include "ptx_room.h"

/* A kernel `k` with a parameter p, and some registers. */
#define KERNEL(body)                                                                                       \
    PTX_HEAD ".visible .entry k(.param .u64 p) {\n"                                                        \
             ".reg .pred q<4>; .reg .b16 h<8>; .reg .b32 r<16>; .reg .b64 d<16>; .reg .f32 f<8>;\n"        \
             "ld.param.u64 d0, [p]; mov.u32 r0, %tid.x; mov.u32 r1, %ctaid.x; mul.wide.u32 d1, r0, 4; "    \
             "add.u64 d1, d0, d1;\n" body "\nret; }\n"

/* --- reading -------------------------------------------------------------------------------------- */

static void test_refusals(void **state) {
    (void)state;
    static const struct {
        const char *text, *why;
    } cases[] = {
        {"", "line 1: .version expected"},
        {PTX_HEAD "nonsense", "line 4: not known: nonsense"},
        {KERNEL("frobnicate.u32 r1, r2;"), "no such instruction: frobnicate.u32"},
        {KERNEL("add.ftz.f32 f0, f1, f2;"), "add with .ftz"},
        {KERNEL("add.b32 r1, r2, r3;"), "add of type b32"},
        {KERNEL("add.u32 r1, r2;"), "an operand is missing"},
        {KERNEL("add.u32 r1, r2, r3, r4;"), "; expected before \",\""},
        {KERNEL("add.u32 d1, r2, r3;"), "d1 has 8 bytes, not 4"},
        {KERNEL("add.u32 r99, r2, r3;"), "no register: r99"},
        {KERNEL("add.u32 r1, r2, other;"), "not declared: other"},
        {KERNEL("add.u32 5, r2, r3;"), "a number is written"},
        {KERNEL("bra NOWHERE;"), "no label NOWHERE"},
        {KERNEL("ld.global.v2.f32 f0, [d0];"), "a vector of 1"},
        {KERNEL("bar.sync 0, 32;"), "a barrier for a part of the block"},
        {KERNEL("call.uni f, ();"), "a call of f"},
        {KERNEL("{ mov.u32 r1, 0;"), "the text ends in the midst of a function"},
        {PTX_HEAD ".extern .global .b32 x;", "x is extern"},
        {PTX_HEAD ".global .b32 x[2] = {1, 2, 3};", "more values than x has room for"},
        {PTX_HEAD ".func f() { call.uni f, (); ret; } .entry k() { call.uni f, (); ret; }",
         "f calls itself"},
        {PTX_HEAD ".func f(); .entry k() { call.uni f, (); ret; }", "f has no body"},
        {".version 9.9\n.target sm_80\n.address_size 64\n", "PTX 9.9 is newer than the driver"},
        {".version 7.8\n.target sm_100\n.address_size 64\n", "sm_100 is newer than the device"},
    };
    ptx_room room;
    ptx_room_open(&room, 1);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char log[256] = "";
        CUjit_option options[] = {CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES};
        void *values[] = {log, (void *)sizeof log};
        CUresult code = cuModuleLoadDataEx(&room.module, cases[i].text, 2, options, values);
        assert_int_not_equal(code, CUDA_SUCCESS);
        if (!strstr(ptx_refusal(), cases[i].why))
            fail_msg("%zu: \"%s\", not \"%s\"", i, ptx_refusal(), cases[i].why);
        assert_non_null(strstr(log, cases[i].why));
        assert_int_equal((size_t)values[1], strlen(log));
    }
    assert_cu_is(cuModuleLoadData(&room.module, "\177ELF"), CUDA_ERROR_NO_BINARY_FOR_GPU);
    ptx_reset(NULL, 0);
}

/* Every prefix of a text, and the text with each byte changed: read or refused, and nothing else. */
static void test_broken_texts(void **state) {
    (void)state;
    static const char whole[] = PTX_HEAD
        ".const .align 4 .b8 table[8] = {1, 2, 3};\n.func (.param .b32 r) f(.param .b32 x) {\n.reg .b32 "
        "%a<3>;\n"
        "ld.param.b32 %a1, [x+0];\nadd.s32 %a2, %a1, -1;\nst.param.b32 [r], %a2;\nret; }\n"
        ".visible .entry k(.param .u64 p)\n.maxntid 32, 1, 1 {\n.reg .pred q;\n.reg .b32 %r<4>; .reg .b64 "
        "d;\n"
        "{ .param .b32 x; st.param.b32 [x], 0x11; .param .b32 r; call.uni (r), f, (x);\nld.param.b32 %r1, "
        "[r]; }\n"
        "mov.u64 d, table; setp.lt.s32 q, %r1, 4;\n@!q bra END;\nmov.b32 {h, _}, %r2; // c\nEND: ret; }\n";
    ptx_room room;
    ptx_room_open(&room, 1);
    char *text = malloc(sizeof whole);
    assert_non_null(text);
    for (size_t i = 0; i < sizeof whole - 1; i++) {
        memcpy(text, whole, i);
        text[i] = 0;
        if (!cuModuleLoadData(&room.module, text)) assert_cu(cuModuleUnload(room.module));
        for (const char *byte = "0{;[.-"; *byte; byte++) {
            memcpy(text, whole, sizeof whole);
            text[i] = *byte;
            if (!cuModuleLoadData(&room.module, text)) assert_cu(cuModuleUnload(room.module));
        }
    }
    free(text);
    ptx_reset(NULL, 0);
}

/* --- what kernels may do -------------------------------------------------------------------------- */

static void test_language(void **state) {
    (void)state;
    static const char text[] = PTX_HEAD
        ".const .align 4 .b32 table[4] = {10, 20, 30, 40};\n"
        ".global .align 8 .u64 where = table+4;\n"
        ".extern .shared .align 16 .b8 more[];\n"
        ".func (.param .b32 result) twice(.param .b32 x) { .reg .b32 %a; .reg .pred %p; ld.param.b32 %a, "
        "[x];\n"
        "  setp.eq.u32 %p, %a, 0; @%p bra ZERO; shl.b32 %a, %a, 1; st.param.b32 [result], %a; ret;\n"
        "  ZERO: st.param.b32 [result], 77; ret; }\n"
        ".visible .entry k(.param .u64 p) {\n"
        "  .local .align 4 .b8 stack[16]; .shared .align 4 .b8 fixed[128];\n"
        "  .reg .pred q; .reg .b32 r<16>; .reg .b64 d<16>; .reg .b64 %SP, %SPL;\n"
        "  ld.param.u64 d0, [p]; mov.u32 r0, %tid.x; mul.wide.u32 d1, r0, 32; add.u64 d1, d0, d1;\n"
        /* a branch by a table, and what threads have in common again behind it */
        "  and.b32 r1, r0, 3; brx.idx r1, TABLE; TABLE: .branchtargets A, B, A, C;\n"
        "  A: mov.u32 r2, 100; bra.uni JOIN; B: mov.u32 r2, 200; bra.uni JOIN; C: mov.u32 r2, 300;\n"
        "  JOIN: activemask.b32 r3; st.global.u32 [d1], r2; st.global.u32 [d1+4], r3;\n"
        /* constants, and an address that another variable has */
        "  mov.u64 d2, table; mul.wide.u32 d3, r1, 4; add.u64 d2, d2, d3; ld.const.u32 r4, [d2];\n"
        "  ld.global.u64 d4, [where]; ld.u32 r5, [d4]; add.u32 r4, r4, r5; st.global.u32 [d1+8], r4;\n"
        /* a function */
        "  { .param .b32 x; st.param.b32 [x+0], r0; .param .b32 y; call.uni (y), twice, (x); ld.param.b32 "
        "r6, [y+0]; }\n"
        "  st.global.u32 [d1+12], r6;\n"
        /* memory of the thread, by a generic address */
        "  mov.u64 %SPL, stack; cvta.local.u64 %SP, %SPL; mul.wide.u32 d5, r1, 4; add.u64 d5, %SP, d5; "
        "st.u32 [d5], r0;\n"
        "  mul.wide.u32 d6, r1, 4; add.u64 d6, %SPL, d6; ld.local.u32 r7, [d6]; st.global.u32 [d1+16], "
        "r7;\n"
        /* shared memory, of a fixed size and what the launch adds, which lies behind */
        "  mov.u32 r8, fixed; mad.lo.u32 r8, r0, 4, r8; st.shared.u32 [r8], r0; bar.sync 0;\n"
        "  xor.b32 r9, r0, 31; mul.wide.u32 d7, r9, 4; mov.u64 d8, fixed; cvta.shared.u64 d8, d8; add.u64 "
        "d8, d8, d7;\n"
        "  ld.u32 r10, [d8]; mov.u64 d9, more; add.u64 d9, d9, d7; st.shared.u32 [d9], r10; bar.sync 0;\n"
        "  mul.wide.u32 d7, r0, 4; mov.u64 d9, more; add.u64 d9, d9, d7; ld.shared.u32 r11, [d9]; "
        "st.global.u32 [d1+20], r11;\n"
        "  mov.u32 r12, %dynamic_smem_size; mov.u32 r13, more; mov.u32 r14, %laneid; add.u32 r12, r12, "
        "r13;\n"
        "  st.global.v2.u32 [d1+24], {r12, r14}; ret; }\n";
    ptx_room room;
    ptx_room_open(&room, 3);
    CUfunction f = ptx_room_load(&room, text);
    uint32_t out[32][8] = {{0}};
    CUdeviceptr p = ptx_room_memory(out, sizeof out);
    void *params[] = {&p};
    assert_cu_is(cuLaunchKernel(f, 1, 1, 1, 32, 1, 1, 64 * 1024, NULL, params, NULL),
                 CUDA_ERROR_INVALID_VALUE);
    assert_cu(cuFuncSetAttribute(f, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, 64 * 1024));
    assert_cu(ptx_room_run(f, 1, 32, 64 * 1024, params));
    assert_cu(cuMemcpyDtoH_v2(out, p, sizeof out));
    for (unsigned t = 0; t < 32; t++) {
        const unsigned marks[] = {100, 200, 100, 300};
        assert_int_equal(out[t][0], marks[t % 4]);
        assert_int_equal(out[t][1], UINT32_MAX);
        assert_int_equal(out[t][2], 10 * (t % 4 + 1) + 20);
        assert_int_equal(out[t][3], t ? 2 * t : 77);
        assert_int_equal(out[t][4], t);
        assert_int_equal(out[t][5], t);
        assert_int_equal(out[t][6], 64 * 1024 + 128);
        assert_int_equal(out[t][7], t);
    }
    CUdeviceptr table;
    size_t bytes;
    assert_cu(cuModuleGetGlobal_v2(&table, &bytes, room.module, "table"));
    assert_int_equal(bytes, 16);
    assert_cu_is(cuModuleGetGlobal_v2(&table, &bytes, room.module, "tables"), CUDA_ERROR_NOT_FOUND);
    ptx_reset(NULL, 0);
}

/* Each lane's own number, moved by every kind of shuffle: what comes, and whether it came from inside
 * of the part. */
static void test_shuffles(void **state) {
    (void)state;
    static const struct {
        const char *way;
        unsigned by, control;
    } cases[] = {{"up", 1, 0},    {"up", 5, 0x1000},    {"down", 1, 31},    {"down", 3, 0x101f},
                 {"bfly", 1, 31}, {"bfly", 16, 0x101f}, {"idx", 7, 0x181f}, {"idx", 0, 31},
                 {"idx", 31, 31}, {"bfly", 2, 0x1c1f}};
    ptx_room room;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        static const char frame[] =
            KERNEL("HERE selp.u32 r3, 1, 0, q0; st.global.u32 [d1], r2; st.global.u32 [d1+128], r3;");
        const char *here = strstr(frame, "HERE");
        char text[1024];
        uint32_t out[64];
        snprintf(text, sizeof text, "%.*sshfl.sync.%s.b32 r2|q0, r0, %u, %u, -1;%s", (int)(here - frame),
                 frame, cases[i].way, cases[i].by, cases[i].control, here + 4);
        ptx_room_open(&room, i);
        CUfunction f = ptx_room_load(&room, text);
        CUdeviceptr p = ptx_room_memory(NULL, sizeof out);
        void *params[] = {&p};
        assert_cu(ptx_room_run(f, 1, 32, 0, params));
        assert_cu(cuMemcpyDtoH_v2(out, p, sizeof out));
        for (int lane = 0; lane < 32; lane++) {
            /* The part of the warp that the lane is in: those with the same bits under the mask. */
            int mask = (int)(cases[i].control >> 8 & 31), size = 32 - mask, first = lane & mask,
                by = (int)cases[i].by;
            int from = *cases[i].way == 'u'   ? lane - by
                       : *cases[i].way == 'd' ? lane + by
                       : *cases[i].way == 'b' ? lane ^ by
                                              : first + by % size;
            bool inside = from >= first && from < first + size;
            if (*cases[i].way == 'b') inside = from < first + size; /* down to other parts it may go */
            assert_int_equal(out[lane], inside ? from : lane);
            assert_int_equal(out[32 + lane], inside);
        }
    }
    ptx_reset(NULL, 0);
}

static void test_votes(void **state) {
    (void)state;
    ptx_room room;
    ptx_room_open(&room, 1);
    CUfunction f = ptx_room_load(
        &room,
        KERNEL(
            "setp.lt.u32 q0, r0, 12; vote.sync.ballot.b32 r2, q0, -1; vote.sync.any.pred q1, q0, -1;"
            "vote.sync.all.pred q2, q0, -1; vote.sync.all.pred q3, !q0, -1; selp.u32 r3, 1, 0, q1; "
            "selp.u32 r4, 2, 0, q2;"
            "selp.u32 r5, 4, 0, q3; add.u32 r3, r3, r4; add.u32 r3, r3, r5; redux.sync.add.u32 r6, r0, -1;"
            "redux.sync.max.s32 r7, r0, -1; shl.b32 r7, r7, 8; add.u32 r3, r3, r7; shl.b32 r6, r6, 16; "
            "add.u32 r3, r3, r6;"
            "st.global.u32 [d1], r2; st.global.u32 [d1+256], r3;"));
    uint32_t out[128];
    CUdeviceptr p = ptx_room_memory(NULL, sizeof out);
    void *params[] = {&p};
    assert_cu(ptx_room_run(f, 1, 64, 0, params));
    assert_cu(cuMemcpyDtoH_v2(out, p, sizeof out));
    assert_int_equal(out[5], 0xfff);
    assert_int_equal(out[40], 0);
    assert_int_equal(out[64 + 5], 1 | 31 << 8 | 496 << 16);
    assert_int_equal(out[64 + 40], 4 | 63 << 8 | (496 + 1024) << 16);
    ptx_reset(NULL, 0);
}

/* Integers by atomics from all blocks: no race, and the sum. */
static void test_atomics(void **state) {
    (void)state;
    ptx_room room;
    for (uint64_t seed = 0; seed < 4; seed++) {
        ptx_room_open(&room, seed);
        CUfunction f = ptx_room_load(
            &room,
            KERNEL("mad.lo.u32 r2, r1, 64, r0; red.global.add.u32 [d0], 3; red.global.max.s32 [d0+4], r2;"
                   "atom.global.inc.u32 r3, [d0+8], 1000; mul.wide.u32 d2, r3, 4; add.u64 d2, d2, d0; "
                   "st.global.u32 [d2+32], r2;"
                   "atom.global.add.f32 f0, [d0+12], 0f3F800000; atom.global.cas.b32 r4, [d0+16], 0, r2;"));
        static uint32_t out[8 + 5 * 64];
        memset(out, 0, sizeof out);
        CUdeviceptr p = ptx_room_memory(out, sizeof out);
        void *params[] = {&p};
        assert_cu(ptx_room_run(f, 5, 64, 0, params));
        assert_cu(cuMemcpyDtoH_v2(out, p, sizeof out));
        assert_int_equal(out[0], 3 * 320);
        assert_int_equal(out[1], 319);
        assert_int_equal(out[2], 320);
        assert_int_equal(out[3], 0x43a00000); /* 320 */
        bool seen[320] = {false};
        for (int i = 0; i < 320; i++) seen[out[8 + i]] = true;
        for (int i = 0; i < 320; i++) assert_true(seen[i]);
    }
    ptx_reset(NULL, 0);
}

/* --- what kernels may not do ---------------------------------------------------------------------- */

static void test_findings(void **state) {
    (void)state;
    static const struct {
        const char *text;
        unsigned grid, threads;
        ptx_check check;
        const char *why; /* in the finding */
    } cases[] = {
        {KERNEL("st.global.f32 [d1], f0;"), 1, 129, PTX_BOUNDS, "thread (128, 0, 0): 4 bytes at"},
        {KERNEL("st.global.f32 [d1+-4], f0;"), 1, 1, PTX_BOUNDS, "before an allocation"},
        {KERNEL("ld.global.v4.f32 {f0, f1, f2, f3}, [d0+248];"), 1, 1, PTX_ALIGNMENT, "16 bytes at"},
        {KERNEL("ld.global.u16 h0, [d0+255];"), 1, 1, PTX_ALIGNMENT, "2 bytes at"},
        {KERNEL("ld.global.v2.f32 {f0, f1}, [d0+252];"), 1, 1, PTX_ALIGNMENT, "8 bytes"},
        {KERNEL("ld.global.f32 f0, [8];"), 1, 1, PTX_BOUNDS, "far from every allocation"},
        {KERNEL("st.global.u32 [d0+512], r0;"), 1, 1, PTX_BOUNDS, "byte 512 of an allocation of 512"},
        {KERNEL("ld.global.f32 f0, [d0+256];"), 1, 1, PTX_UNINITIALISED, "which nobody wrote"},
        {KERNEL("st.global.u8 [d0+257], r0; ld.global.u8 r1, [d0+257]; ld.global.u16 h0, [d0+256];"), 1, 1,
         PTX_UNINITIALISED, "ld.global.u16"},
        {KERNEL("st.global.u32 [d0], r1;"), 2, 1, PTX_BLOCK_RACE, "touches, too"},
        {KERNEL("ld.global.u32 r2, [d0]; st.global.u32 [d0], r2;"), 2, 1, PTX_BLOCK_RACE, "touch"},
        {KERNEL("red.global.add.u32 [d0], 1; ld.global.u32 r2, [d0];"), 2, 1, PTX_BLOCK_RACE,
         "atomics of other blocks"},
        {KERNEL("st.param.u32 [p], r0;"), 1, 1, PTX_READ_ONLY, "parameters"},
        {KERNEL("{ .shared .align 4 .b8 s[64]; mov.u32 r2, s; mad.lo.u32 r2, r0, 4, r2; st.shared.u32 "
                "[r2], r0; }"),
         1, 17, PTX_BOUNDS, "at 64 of 64 of shared memory"},
        {KERNEL("{ .shared .align 4 .b8 s[64]; ld.shared.u32 r2, [s]; }"), 1, 1, PTX_UNINITIALISED,
         "shared byte 0"},
        {KERNEL("{ .shared .align 4 .b8 s[64]; st.shared.u32 [s], r0; }"), 1, 2, PTX_SHARED_RACE,
         "which thread 0 wrote"},
        {KERNEL("{ .shared .align 4 .b8 s[64]; setp.eq.u32 q0, r0, 0; @q0 st.shared.u32 [s], r0; bar.sync "
                "0; ld.shared.u32 r2, [s];"
                "@q0 st.shared.u32 [s], r0; }"),
         1, 40, PTX_SHARED_RACE, "several warps read"},
        {KERNEL("{ .local .align 4 .b8 s[16]; mov.u64 d2, s; add.u64 d2, d2, 16; st.local.u32 [d2], r0; }"),
         1, 1, PTX_BOUNDS, "of local memory"},
        {KERNEL("setp.eq.u32 q0, r0, 3; @q0 ret; bar.sync 0;"), 1, 32, PTX_BARRIER, "thread 3 has left"},
        {KERNEL("setp.eq.u32 q0, r0, 3; @q0 ret; shfl.sync.bfly.b32 r2, r0, 1, 31, -1;"), 1, 32,
         PTX_CONVERGENCE, "0xfffffff7"},
        {KERNEL("shfl.sync.bfly.b32 r2, r0, 1, 31, 1;"), 1, 32, PTX_CONVERGENCE, "not in its own mask"},
        {KERNEL("trap;"), 1, 1, PTX_TRAP, "trap"},
        {KERNEL("AGAIN: bra AGAIN;"), 1, 1, PTX_ENDLESS, "no end"},
        {KERNEL("setp.ne.u32 q0, r0, 1; @q0 bra OUT; st.global.u32 [d0+600], r0; OUT:"), 1, 32, PTX_BOUNDS,
         "line 7: setp.ne.u32 q0, r0, 1; @q0 bra OUT; st.global.u32 [d0+600], r0; OUT:: block (0, 0, 0) "
         "thread (1, 0, 0)"},
    };
    const ptx_machine machine = {1, 90, 12080, 1 << 20, 4, 1000000, false};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        ptx_room room;
        ptx_room_open(&room, i);
        ptx_reset(&machine, i);
        assert_cu(cuInit(0));
        assert_cu(cuDevicePrimaryCtxRetain(&room.context, 0));
        assert_cu(cuCtxSetCurrent(room.context));
        CUfunction f = ptx_room_load(&room, cases[i].text);
        CUdeviceptr p = ptx_room_memory(NULL, 512); /* half of it written */
        assert_cu(cuMemsetD32_v2(p, 0, 64));
        void *params[] = {&p};
        CUresult code = ptx_room_run(f, cases[i].grid, cases[i].threads, 0, params);
        if (ptx_finding_check() != cases[i].check || !code || !strstr(ptx_finding(), cases[i].why))
            fail_msg("%zu: expected %s, \"%s\", found \"%s\" (%d)", i, ptx_check_name(cases[i].check),
                     cases[i].why, ptx_finding(), code);
    }
    ptx_reset(NULL, 0);
}

/* What a check finds is let through when it is off, and found again when it is on. */
static void test_checks_off(void **state) {
    (void)state;
    for (int on = 0; on < 2; on++) {
        ptx_room room;
        ptx_room_open(&room, 1);
        ptx_check_set(PTX_UNINITIALISED, on);
        ptx_check_set(PTX_BLOCK_RACE, on);
        ptx_check_set(PTX_BOUNDS, false); /* stays on */
        CUfunction f = ptx_room_load(&room, KERNEL("ld.global.f32 f0, [d1]; st.global.u32 [d0], r1;"));
        CUdeviceptr p = ptx_room_memory(NULL, 256);
        void *params[] = {&p};
        assert_cu_is(ptx_room_run(f, 2, 64, 0, params), on ? CUDA_ERROR_LAUNCH_FAILED : CUDA_SUCCESS);
        if (!on) ptx_room_finds(PTX_BOUNDS, f, 1, 65, params);
    }
    ptx_reset(NULL, 0);
}

/* --- the driver ----------------------------------------------------------------------------------- */

/* An error stays until the context is given back; then there is a new one. */
static void test_lost_context(void **state) {
    (void)state;
    ptx_room room;
    ptx_room_open(&room, 1);
    CUdeviceptr p = ptx_room_memory(NULL, 256), other;
    void *params[] = {&p};
    ptx_room_finds(PTX_BOUNDS, ptx_room_load(&room, KERNEL("st.global.u32 [d0+256], r0;")), 1, 1, params);
    assert_cu_is(cuMemAlloc_v2(&other, 4), CUDA_ERROR_ILLEGAL_ADDRESS);
    assert_cu_is(cuMemFree_v2(p), CUDA_ERROR_ILLEGAL_ADDRESS);
    assert_cu(cuDevicePrimaryCtxRelease_v2(0));
    assert_int_equal(ptx_live(), 0);
    assert_string_equal(ptx_finding(), "");
    assert_cu(cuDevicePrimaryCtxRetain(&room.context, 0));
    assert_cu(cuCtxSetCurrent(room.context));
    assert_cu(cuMemAlloc_v2(&other, 4));
    assert_true(other != p);
    ptx_reset(NULL, 0);
}

/* A small program; every call of it fails once. */
static CUresult program(void) {
    CUcontext context;
    CUmodule module = NULL;
    CUfunction f;
    CUdeviceptr p = 0;
    CUstream s = NULL;
    uint32_t out[32];
    CUresult code = cuInit(0);
    if (code) return code;
    code = cuDevicePrimaryCtxRetain(&context, 0);
    if (code) return code;
    code = cuCtxPushCurrent_v2(context);
    if (!code) {
        if (!code) code = cuStreamCreate(&s, CU_STREAM_NON_BLOCKING);
        if (!code) code = cuMemAlloc_v2(&p, sizeof out);
        if (!code) code = cuModuleLoadData(&module, KERNEL("st.global.u32 [d1], r0;"));
        if (!code) code = cuModuleGetFunction(&f, module, "k");
        void *params[] = {&p};
        if (!code) code = cuLaunchKernel(f, 1, 1, 1, 32, 1, 1, 0, s, params, NULL);
        if (!code) code = cuMemcpyDtoHAsync_v2(out, p, sizeof out, s);
        if (!code) code = cuStreamSynchronize(s);
        if (!code) assert_int_equal(out[31], 31);
        ptx_fail_at(0, 0);
        if (module) assert_cu(cuModuleUnload(module));
        if (p) assert_cu(cuMemFree_v2(p));
        if (s) assert_cu(cuStreamDestroy_v2(s));
        assert_cu(cuCtxPopCurrent_v2(&context));
    }
    assert_cu(cuDevicePrimaryCtxRelease_v2(0));
    return code;
}

static void test_every_call_fails_once(void **state) {
    (void)state;
    uint64_t n = 1;
    for (;; n++) {
        ptx_reset(NULL, n);
        ptx_fail_at(n, CUDA_ERROR_OUT_OF_MEMORY);
        CUresult code = program();
        assert_int_equal(ptx_live(), 0);
        if (!code) break;
        assert_int_equal(code, CUDA_ERROR_OUT_OF_MEMORY);
    }
    assert_int_equal(n, 11);
    ptx_reset(NULL, 0);
}

static void test_machines(void **state) {
    (void)state;
    ptx_machine machine = {0, 75, 11040, 1 << 20, 4, 1 << 20, false};
    ptx_reset(&machine, 1);
    int n, version;
    assert_cu_is(cuDeviceGetCount(&n), CUDA_ERROR_NOT_INITIALIZED);
    assert_cu_is(cuInit(0), CUDA_ERROR_NO_DEVICE);
    assert_cu(cuDriverGetVersion(&version));
    assert_int_equal(version, 11040);
    machine.devices = 2;
    ptx_reset(&machine, 1);
    assert_cu(cuInit(0));
    CUcontext context[2];
    CUdeviceptr p;
    for (int i = 0; i < 2; i++) assert_cu(cuDevicePrimaryCtxRetain(&context[i], i));
    assert_cu_is(cuMemAlloc_v2(&p, 4), CUDA_ERROR_INVALID_CONTEXT);
    assert_cu(cuCtxPushCurrent_v2(context[1]));
    assert_cu_is(cuMemAlloc_v2(&p, (1 << 20) + 1), CUDA_ERROR_OUT_OF_MEMORY);
    assert_cu(cuMemAlloc_v2(&p, 1 << 19));
    assert_cu_is(cuMemAlloc_v2(&p, (1 << 19) + 1), CUDA_ERROR_OUT_OF_MEMORY);
    size_t left, total;
    assert_cu(cuMemGetInfo_v2(&left, &total));
    assert_int_equal(left, 1 << 19);
    CUmodule module;
    assert_cu_is(cuModuleLoadData(&module, PTX_HEAD), CUDA_ERROR_NO_BINARY_FOR_GPU);
    assert_cu_is(cuModuleLoadData(&module, ".version 7.5\n.target sm_70\n.address_size 64\n"),
                 CUDA_ERROR_UNSUPPORTED_PTX_VERSION);
    void *function;
    int found;
    assert_cu(cuGetProcAddress_v2("cuMemAlloc", &function, 11040, 0, &found));
    CUresult (*alloc)(CUdeviceptr *, size_t) = cuMemAlloc_v2;
    assert_memory_equal(&function, &alloc, sizeof function);
    assert_cu_is(cuGetProcAddress_v2("cuGraphAddKernelNode", &function, 11040, 0, &found),
                 CUDA_ERROR_NOT_FOUND);
    const char *text;
    assert_cu(cuGetErrorName(CUDA_ERROR_ILLEGAL_ADDRESS, &text));
    assert_string_equal(text, "CUDA_ERROR_ILLEGAL_ADDRESS");
    assert_cu(cuGetErrorString(CUDA_ERROR_ILLEGAL_ADDRESS, &text));
    assert_string_equal(text, "illegal address");
    assert_cu_is(cuGetErrorName(12345, &text), CUDA_ERROR_INVALID_VALUE);
    ptx_reset(NULL, 0);
}

/* What the linker makes can be loaded. */
static void test_linker(void **state) {
    (void)state;
    ptx_room room;
    ptx_room_open(&room, 1);
    CUlinkState link;
    static char text[] = KERNEL("st.global.u32 [d1], r0;"), bad[] = PTX_HEAD "?";
    void *cubin;
    size_t bytes;
    assert_cu(cuLinkCreate_v2(0, NULL, NULL, &link));
    assert_cu_is(cuLinkComplete(link, &cubin, &bytes), CUDA_ERROR_INVALID_VALUE);
    assert_cu_is(cuLinkAddData_v2(link, CU_JIT_INPUT_PTX, bad, sizeof bad, "bad", 0, NULL, NULL),
                 CUDA_ERROR_INVALID_PTX);
    assert_cu(cuLinkAddData_v2(link, CU_JIT_INPUT_PTX, text, sizeof text, "k", 0, NULL, NULL));
    assert_cu(cuLinkComplete(link, &cubin, &bytes));
    assert_true(bytes > sizeof text);
    char *copy = malloc(bytes);
    assert_non_null(copy);
    memcpy(copy, cubin, bytes);
    assert_cu(cuLinkDestroy(link));
    assert_cu_is(cuLinkDestroy(link), CUDA_ERROR_INVALID_HANDLE);
    CUdeviceptr p = ptx_room_memory(NULL, 128);
    void *params[] = {&p};
    assert_cu(ptx_room_run(ptx_room_load(&room, copy), 1, 32, 0, params));
    free(copy);
    ptx_reset(NULL, 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_refusals),     cmocka_unit_test(test_broken_texts),
        cmocka_unit_test(test_language),     cmocka_unit_test(test_shuffles),
        cmocka_unit_test(test_votes),        cmocka_unit_test(test_atomics),
        cmocka_unit_test(test_findings),     cmocka_unit_test(test_checks_off),
        cmocka_unit_test(test_lost_context), cmocka_unit_test(test_every_call_fails_once),
        cmocka_unit_test(test_machines),     cmocka_unit_test(test_linker),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
