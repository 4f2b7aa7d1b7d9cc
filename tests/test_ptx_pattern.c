/* SPDX-License-Identifier: MIT */
/* What the stand-in does for a warp at once is what it does thread by thread: random kernels of
 * loads, stores and copies, with addresses of all kinds, right ones and wrong ones, are run both
 * ways. Memory, counters and what is found are the same to the letter. */
#include <stdarg.h>
#include <stdlib.h>

#include "ptx_room.h"
#include "random.h"

enum { ROUNDS = 12, BLOCKS = 3, THREADS = 128, FIELD = BLOCKS * THREADS * 16, TEXT = 16384 };

typedef enum kind { LOAD, STORE, SHARED_LOAD, SHARED_STORE, COPY, N_KINDS } kind;

typedef struct program {
    char text[TEXT];
    size_t len;
    unsigned threads;
    bool tame; /* nothing in it is wrong */
    /* of each round and thread: two offsets in bytes, and how much a copy reads */
    uint32_t offsets[ROUNDS][BLOCKS * THREADS][2], reads[ROUNDS][BLOCKS * THREADS];
} program;

static uint64_t seed;

static unsigned below(unsigned n) {
    return (unsigned)(test_random(&seed) % n);
}

static void add(program *p, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static void add(program *p, const char *fmt, ...) {
    va_list args;
    va_start(args, fmt);
    p->len += (size_t)vsnprintf(p->text + p->len, TEXT - p->len, fmt, args);
    va_end(args);
    assert_true(p->len < TEXT);
}

/* Offsets of all threads, multiples of `bytes` within a field of so many for each block (0: one for
 * all), but for some that are wrong. */
static void choose_offsets(program *p, unsigned round, unsigned which, unsigned bytes, bool writes,
                           unsigned apart) {
    unsigned way = p->tame && writes ? 5 * below(2) : below(8), places = p->threads * 16 / bytes,
             base = below(places), stride = 1 + below(9), wrong = p->tame ? 2 : below(40);
    for (unsigned i = 0; i < BLOCKS * p->threads; i++) {
        unsigned block = i / p->threads, t = i % p->threads, at;
        switch (way) {
        case 0:
        case 1: at = t; break;
        case 2: at = base; break;
        case 3: at = base + stride * t; break;
        case 4: at = (t / 4 % 8) + 8 * (t / 32 % 2); break;
        case 5: at = places - 1 - t % places; break;
        case 6: at = base + t + (t % 14 > 11 ? 7 : 0); break;
        default: at = below(places); break;
        }
        uint32_t offset = at % places * bytes + block * apart;
        if (wrong == 0 && below(100) == 0) offset += 1 + below(bytes);
        if (wrong == 1 && below(100) == 0) offset += FIELD;
        p->offsets[round][i][which] = offset;
    }
}

static void round_of(program *p, unsigned round) {
    static const char *const vectors[] = {"", "", ".v2", "", ".v4"}, *const registers[] = {
                                                                         "", "f0", "{f0, f1}", "",
                                                                         "{f0, f1, f2, f3}"};
    static const unsigned widths[] = {1, 1, 2, 4, 4};
    unsigned n = widths[below(5)], bytes = 4 * n, own = p->threads * 16;
    kind what = (kind)below(N_KINDS);
    bool shared = what == SHARED_LOAD || what == SHARED_STORE || what == COPY,
         narrow = what != COPY && !below(12), astray = !p->tame && !below(20);
    if (narrow) n = 1, bytes = 2;
    /* A block has a place of its own in global memory, more often than not. */
    choose_offsets(p, round, 0, bytes, what != LOAD && what != SHARED_LOAD, shared || astray ? 0 : own);
    if (what == COPY) choose_offsets(p, round, 1, bytes, false, p->tame ? own : 0);
    for (unsigned i = 0, all = below(3), cut = below(p->threads); i < BLOCKS * p->threads; i++)
        p->reads[round][i] = all ? bytes : i % p->threads < cut ? 0 : below(30) ? bytes : below(bytes);
    add(p,
        "ld.global.u32 o0, [w]; ld.global.u32 o1, [w+4]; ld.global.u32 o2, [v]; add.u64 w, w, %u; "
        "add.u64 v, v, %u;\n",
        BLOCKS * THREADS * 8, BLOCKS * THREADS * 4);
    add(p, "cvt.u64.u32 g, o0; add.u64 g, data, g; cvt.u64.u32 h, o1; add.u64 h, data, h; add.u32 s, base, "
           "o0;\n");
    if (!below(6)) add(p, "setp.lt.u32 p, t, %u; @p bra L%u;\n", below(p->threads), round);
    const char *guard = below(8) ? "" : "@q ";
    const char *space = shared ? "shared" : "global", *at = shared ? "s" : "g";
    if (what == COPY) {
        add(p, "%scp.async.ca.shared.global [s], [h], %u, o2;\n", guard, bytes);
        if (below(4)) add(p, "cp.async.commit_group;\n");
        if (p->tame || below(3))
            add(p, "cp.async.wait_all;\n");
        else
            add(p, "cp.async.wait_group %u;\n", below(2));
    } else if (narrow && (what == LOAD || what == SHARED_LOAD)) {
        add(p, "%sld.%s.s16 o0, [%s]; cvt.rn.f32.s32 f0, o0;\n", guard, space, at);
    } else if (narrow) {
        add(p, "%sst.%s.u16 [%s], o1;\n", guard, space, at);
    } else if (what == LOAD || what == SHARED_LOAD) {
        add(p, "%sld.%s%s.f32 %s, [%s];\n", guard, space, vectors[n], registers[n], at);
    } else {
        add(p, "%sst.%s%s.f32 [%s], %s;\n", guard, space, vectors[n], at, registers[n]);
    }
    add(p, "L%u: add.f32 sum, sum, f0; add.f32 f1, f1, f3;\n", round);
    if (p->tame || below(4)) add(p, "bar.sync 0;\n");
}

static void write_program(program *p) {
    static const unsigned sizes[] = {32, 64, 96, 100, 128};
    p->len = 0;
    p->tame = below(2);
    p->threads = sizes[below(5)];
    add(p,
        PTX_HEAD
        ".visible .entry k(.param .u64 data_, .param .u64 where, .param .u64 reads, .param .u64 out) {\n"
        ".shared .align 16 .b8 memory[%u];\n"
        ".reg .pred p, q; .reg .b32 t, o<4>, s, base, c; .reg .b64 data, w, v, g, h, to; .reg .f32 f<4>, "
        "sum;\n"
        "ld.param.u64 data, [data_]; ld.param.u64 w, [where]; ld.param.u64 v, [reads]; ld.param.u64 to, "
        "[out];\n"
        "mov.u32 t, %%tid.x; mov.u32 c, %%ctaid.x; mad.lo.u32 c, c, %u, t; setp.ge.u32 q, t, %u;\n"
        "mul.wide.u32 g, c, 8; add.u64 w, w, g; mul.wide.u32 g, c, 4; add.u64 v, v, g; add.u64 to, to, g;\n"
        "mov.u32 base, memory; shl.b32 s, t, 4; add.u32 s, s, base; mov.f32 sum, 0f00000000;\n"
        "cvt.rn.f32.u32 f0, c; mov.f32 f1, f0; mov.f32 f2, f0; mov.f32 f3, f0;\n"
        "st.shared.v4.f32 [s], {f0, f1, f2, f3}; bar.sync 0;\n",
        THREADS * 16, p->threads, below(p->threads));
    for (unsigned i = 0; i < ROUNDS; i++) round_of(p, i);
    add(p, "st.global.f32 [to], sum; ret; }\n");
}

typedef struct outcome {
    char finding[800];
    ptx_counters counters;
    unsigned char data[FIELD], out[BLOCKS * THREADS * 4];
} outcome;

static void run(const program *p, uint64_t order, bool one_by_one, outcome *o) {
    static float data[FIELD / 4];
    ptx_room room;
    ptx_room_open(&room, order);
    if (one_by_one) ptx_one_by_one();
    for (unsigned i = 0; i < FIELD / 4; i++) data[i] = (float)(i % 251);
    CUdeviceptr at = ptx_room_memory(data, sizeof data),
                where = ptx_room_memory(p->offsets, sizeof p->offsets),
                reads = ptx_room_memory(p->reads, sizeof p->reads),
                out = ptx_room_memory(NULL, sizeof o->out);
    assert_cu(cuMemsetD8_v2(out, 0, sizeof o->out));
    void *params[] = {&at, &where, &reads, &out};
    CUresult code = ptx_room_run(ptx_room_load(&room, p->text), BLOCKS, p->threads, 0, params);
    assert_int_equal(code != CUDA_SUCCESS, ptx_finding_check() != PTX_N_CHECKS);
    snprintf(o->finding, sizeof o->finding, "%s", ptx_finding());
    for (char *x = o->finding; (x = strstr(x, "0x")) != NULL; x += 2) { /* no address comes twice */
        size_t digits = strspn(x + 2, "0123456789abcdef");
        memmove(x + 2, x + 2 + digits, strlen(x + 2 + digits) + 1);
    }
    ptx_counters_read(NULL, &o->counters);
    memcpy(o->data, ptx_memory(at, FIELD), FIELD);
    memcpy(o->out, ptx_memory(out, sizeof o->out), sizeof o->out);
}

static void both_ways(void **state) {
    (void)state;
    static program p;
    static outcome fast, slow;
    unsigned clean = 0, kinds[PTX_N_CHECKS + 1] = {0};
    for (unsigned i = 0; i < 1500; i++) {
        seed = i + 1;
        write_program(&p);
        run(&p, i % 3, false, &fast);
        kinds[ptx_finding_check()]++;
        if (p.tame && ptx_finding()[0]) fail_msg("%u: \"%s\"\n%s", i, ptx_finding(), p.text);
        clean += !ptx_finding()[0];
        run(&p, i % 3, true, &slow);
        if (strcmp(fast.finding, slow.finding) != 0)
            fail_msg("%u: \"%s\", one by one \"%s\"\n%s", i, fast.finding, slow.finding, p.text);
        if (memcmp(&fast.counters, &slow.counters, sizeof fast.counters) != 0)
            fail_msg("%u: counters\n%s", i, p.text);
        assert_memory_equal(fast.data, slow.data, sizeof fast.data);
        assert_memory_equal(fast.out, slow.out, sizeof fast.out);
    }
    for (unsigned k = 0; k <= PTX_N_CHECKS; k++)
        if (kinds[k]) print_message("%s: %u\n", ptx_check_name((ptx_check)k), kinds[k]);
    /* Some are right, and what can be wrong with addresses is. */
    assert_true(clean > 100);
    assert_true(kinds[PTX_BOUNDS] && kinds[PTX_ALIGNMENT] && kinds[PTX_SHARED_RACE] &&
                kinds[PTX_BLOCK_RACE] && kinds[PTX_ASYNC]);
    ptx_reset(NULL, 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(both_ways)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
