/* SPDX-License-Identifier: MIT */
/* Kernels: PTX that the driver compiles, and three of our own: copies and fills whose number of bytes is
 * known when they run, and one that stores a number. */
#include "cuda.h"

#include <stdio.h>

enum { LOG = 4096 }; /* bytes that the driver may say about a module */

/* The first two look at the words, as every kernel does (src/code/nvptx).
 *
 *   copy(to, from, words, record)   record: i64 bytes
 *   fill(to, words, record)         record: i64 bytes, i64 value, i64 address of an i32 or 0
 *   store(to, value)
 *
 * With an address there is one block, which takes one away from the number there, and fills if it was 1.
 * Whatever came before the fills that took theirs away comes before that: the number releases and
 * acquires.
 *
 * What is between two multiples of 16 goes in vectors of so many bytes, neighbours to neighbours; of copies
 * between addresses that are not at the same distance from one, in words of 4, or, where that is no
 * multiple of 4 either, all in bytes. What is in front of the first multiple, and behind the last one, are
 * bytes. */

/* %d0: to; %d4: bytes; %d5: the thread's number; %d7: of how many. */
#define THREAD_OF_ALL                                                                                      \
    "  mov.u32 %r2, %ctaid.x;\n  mov.u32 %r3, %ntid.x;\n  mov.u32 %r4, %tid.x;\n"                          \
    "  mov.u32 %r5, %nctaid.x;\n  mul.wide.u32 %d5, %r2, %r3;\n  cvt.u64.u32 %d6, %r4;\n"                  \
    "  add.s64 %d5, %d5, %d6;\n  mul.wide.u32 %d7, %r5, %r3;\n"
/* %d9: bytes in front of the first multiple of 1 << shift; %d10: units from there on. Then each unit, whose
 * distance from there is %d14, is moved; %d10 is bytes in the end, and the ends are left. */
#define UNITS(name, shift, mask, begin, move)                                                              \
    "  neg.s64 %d9, %d0;\n  and.b64 %d9, %d9, " mask ";\n  min.s64 %d9, %d9, %d4;\n"                       \
    "  sub.s64 %d10, %d4, %d9;\n  shr.s64 %d10, %d10, " shift ";\n"                                        \
    "  add.s64 %d11, %d0, %d9;\n" begin "  mov.u64 %d13, %d5;\n" name ":\n"                                \
    "  setp.ge.s64 %p1, %d13, %d10;\n  @%p1 bra " name "_END;\n  shl.b64 %d14, %d13, " shift ";\n" move    \
    "  add.s64 %d13, %d13, %d7;\n  bra " name ";\n" name "_END:\n  shl.b64 %d10, %d10, " shift ";\n"
/* The bytes but %d10 of them from the place %d9 on; the distance of each from `to` is %d13. */
#define ENDS(move)                                                                                         \
    "ENDS:\n  sub.s64 %d11, %d4, %d10;\n"                                                                  \
    "NEXT:\n  setp.ge.s64 %p1, %d5, %d11;\n  @%p1 bra DONE;\n"                                             \
    "  setp.lt.s64 %p1, %d5, %d9;\n  add.s64 %d13, %d5, %d10;\n"                                           \
    "  selp.b64 %d13, %d5, %d13, %p1;\n  add.s64 %d14, %d0, %d13;\n" move                                  \
    "  add.s64 %d5, %d5, %d7;\n  bra NEXT;\n"

/* clang-format off */
static const char builtin[] =
    ".version 6.0\n.target sm_70\n.address_size 64\n"
    ".visible .entry ash_copy(.param .u64 to, .param .u64 from, .param .u64 words, .param .u64 record)\n"
    "{\n"
    "  .reg .pred %p<4>;\n  .reg .b32 %r<12>;\n  .reg .b64 %d<17>;\n"
    "  ld.param.u64 %d0, [to];\n  ld.param.u64 %d1, [from];\n"
    "  ld.param.u64 %d2, [words];\n  ld.param.u64 %d3, [record];\n"
    "  ld.relaxed.sys.global.u32 %r0, [%d2];\n  ld.relaxed.sys.global.u32 %r1, [%d2+4];\n"
    "  or.b32 %r0, %r0, %r1;\n  setp.ne.s32 %p0, %r0, 0;\n  @%p0 bra STOPPED;\n"
    "  ld.global.u64 %d4, [%d3];\n"
    THREAD_OF_ALL
    "  xor.b64 %d8, %d0, %d1;\n  and.b64 %d12, %d8, 15;\n  setp.ne.s64 %p1, %d12, 0;\n"
    "  @%p1 bra UNEVEN;\n"
    UNITS("VECTORS", "4", "15", "  add.s64 %d12, %d1, %d9;\n",
          "  add.s64 %d15, %d12, %d14;\n  add.s64 %d16, %d11, %d14;\n"
          "  ld.global.v4.u32 {%r6, %r7, %r8, %r9}, [%d15];\n"
          "  st.global.v4.u32 [%d16], {%r6, %r7, %r8, %r9};\n")
    "  bra ENDS;\n"
    "UNEVEN:\n  mov.u64 %d9, 0;\n  mov.u64 %d10, 0;\n"
    "  and.b64 %d12, %d8, 3;\n  setp.ne.s64 %p1, %d12, 0;\n  @%p1 bra ENDS;\n"
    UNITS("WORDS", "2", "3", "  add.s64 %d12, %d1, %d9;\n",
          "  add.s64 %d15, %d12, %d14;\n  add.s64 %d16, %d11, %d14;\n"
          "  ld.global.u32 %r6, [%d15];\n  st.global.u32 [%d16], %r6;\n")
    ENDS("  add.s64 %d15, %d1, %d13;\n  ld.global.u8 %r6, [%d15];\n  st.global.u8 [%d14], %r6;\n")
    "STOPPED:\n  mov.u32 %r7, 1;\n  st.relaxed.sys.global.u32 [%d2+4], %r7;\n"
    "DONE:\n  ret;\n}\n"
    ".visible .entry ash_fill(.param .u64 to, .param .u64 words, .param .u64 record)\n"
    "{\n"
    "  .reg .pred %p<4>;\n  .reg .b32 %r<12>;\n  .reg .b64 %d<17>;\n  .shared .align 4 .b32 last;\n"
    "  ld.param.u64 %d0, [to];\n  ld.param.u64 %d2, [words];\n  ld.param.u64 %d3, [record];\n"
    "  ld.relaxed.sys.global.u32 %r0, [%d2];\n  ld.relaxed.sys.global.u32 %r1, [%d2+4];\n"
    "  or.b32 %r0, %r0, %r1;\n  setp.ne.s32 %p0, %r0, 0;\n  @%p0 bra STOPPED;\n"
    "  ld.global.u64 %d4, [%d3];\n  ld.global.u64 %d8, [%d3+8];\n  ld.global.u64 %d15, [%d3+16];\n"
    "  cvt.u32.u64 %r6, %d8;\n  and.b32 %r6, %r6, 255;\n  mul.lo.u32 %r7, %r6, 16843009;\n"
    THREAD_OF_ALL
    "  setp.eq.s64 %p1, %d15, 0;\n  @%p1 bra FILL;\n"
    "  setp.ne.s32 %p2, %r4, 0;\n  @%p2 bra TOGETHER;\n"
    "  atom.acq_rel.gpu.global.add.u32 %r8, [%d15], -1;\n  st.shared.u32 [last], %r8;\n"
    "TOGETHER:\n  bar.sync 0;\n  ld.shared.u32 %r9, [last];\n"
    "  setp.ne.s32 %p3, %r9, 1;\n  @%p3 bra DONE;\n"
    "FILL:\n"
    UNITS("VECTORS", "4", "15", "",
          "  add.s64 %d16, %d11, %d14;\n  st.global.v4.u32 [%d16], {%r7, %r7, %r7, %r7};\n")
    ENDS("  st.global.u8 [%d14], %r6;\n")
    "STOPPED:\n  mov.u32 %r7, 1;\n  st.relaxed.sys.global.u32 [%d2+4], %r7;\n"
    "DONE:\n  ret;\n}\n"
    ".visible .entry ash_store(.param .u64 to, .param .u64 value)\n"
    "{\n"
    "  .reg .b64 %d<2>;\n"
    "  ld.param.u64 %d0, [to];\n  ld.param.u64 %d1, [value];\n"
    "  st.global.u64 [%d0], %d1;\n  ret;\n}\n";
/* clang-format on */

static ash_status load(cuda_device *d, const char *text, const char *name, cu_module *out, ash_diag *diag) {
    char log[LOG] = "";
    int options[] = {CU_LOG, CU_LOG_BYTES};
    void *values[] = {log, (void *)(uintptr_t)sizeof log};
    int result = d->driver.module_load(out, text, 2, options, values);
    if (result == CU_OK) return ASH_OK;
    char what[LOG + 128];
    log[sizeof log - 1] = 0;
    snprintf(what, sizeof what, "the CUDA driver refuses kernel %.60s%s%.200s", name, *log ? ": " : "",
             log);
    return ash_cuda__check(d, result, what, diag);
}

static ash_status find(cuda_device *d, cu_module module, const char *name, cu_function *out,
                       ash_diag *diag) {
    return ash_cuda__check(d, d->driver.module_function(out, module, name), name, diag);
}

/* For as much shared memory as its launches give. */
static ash_status ask(cuda_device *d, const ash_kernel *kernel, ash_diag *diag) {
    int result = d->driver.function_set(kernel->function, CU_MOST_DYNAMIC, (int)kernel->shared);
    return ash_cuda__check(d, result, "shared memory of a block", diag);
}

static ash_status load_code(cuda_device *d, const ash_kernel_image *image, ash_kernel *kernel,
                            ash_diag *diag) {
    ASH_TRY(load(d, image->blob, image->symbol, &kernel->module, diag));
    ASH_TRY(find(d, kernel->module, image->symbol, &kernel->function, diag));
    return kernel->shared ? ask(d, kernel, diag) : ASH_OK;
}

ash_status ash_cuda__load_builtin(cuda_device *d, ash_diag *diag) {
    ASH_TRY(load(d, builtin, "copy", &d->builtin, diag));
    ASH_TRY(find(d, d->builtin, "ash_copy", &d->copy_kernel, diag));
    ASH_TRY(find(d, d->builtin, "ash_fill", &d->fill_kernel, diag));
    return find(d, d->builtin, "ash_store", &d->store_kernel, diag);
}

ash_status ash_cuda__load(ash_device *device, const ash_kernel_image *image, ash_kernel **out,
                          ash_diag *diag) {
    cuda_device *d = ash_cuda__of(device);
    ASH_FAIL_IF(!image->blob && !image->product, diag, ASH_ERROR_UNSUPPORTED,
                "%.100s cannot run code for processors", device->name);
    ash_kernel *kernel = ash_mem_calloc(ash_device__allocator(device), 1, sizeof *kernel);
    if (!kernel) return ASH_NO_MEMORY(diag);
    kernel->vars = image->vars;
    kernel->by_worker = image->by_worker;
    kernel->threads = image->threads;
    kernel->shared = image->shared;
    ash_status status = ash_cuda__enter(d, diag);
    if (status == ASH_OK) {
        status = image->product ? ash_cuda_product__load(device, image->product, &kernel->product, diag)
                                : load_code(d, image, kernel, diag);
        ash_cuda__leave(d);
    }
    if (status != ASH_OK) {
        ash_cuda__unload(device, kernel);
        return status;
    }
    *out = kernel;
    return ASH_OK;
}

void ash_cuda__unload(ash_device *device, ash_kernel *kernel) {
    cuda_device *d = ash_cuda__of(device);
    bool entered = ash_cuda__enter_last(d);
    if (kernel->module) d->driver.module_unload(kernel->module);
    if (kernel->product) ash_cuda_product__unload(device, kernel->product);
    if (entered) ash_cuda__leave(d);
    ash_mem_free(ash_device__allocator(device), kernel, 1, sizeof *kernel);
}
