/* SPDX-License-Identifier: MIT */
/* Kernels for processors: functions with the contract of ash_kernel_fn, which a thread calls.
 *
 *     void kernel(void *const *buffers, const int64_t *vars, int64_t begin, int64_t end, int64_t worker)
 *
 * Behind the buffers' addresses the table has that of the ash_stop, for kernels that look at it.
 * Instructions are x86's; of other processors LLVM knows what there is. */
#include "code/code_target.h"

#include <stdio.h>

#include <llvm-c/Target.h>

#include "base/progress.h"
#include "bytes.h"
#include "code/emit_ops.h"

enum { BUFFERS, VARS, BEGIN, END, WORKER, PARAMS };

/* The nest is the schedule already: what is left is to turn cells into registers, to find equal addresses
 * and values, and to move what is invariant out of loops. */
static const char passes[] = "function(sroa,early-cse,loop-mssa(licm),early-cse<memssa>)";

static bool init(void) {
    return !LLVMInitializeNativeTarget() && !LLVMInitializeNativeAsmPrinter() &&
           !LLVMInitializeNativeAsmParser();
}

enum {
    ROUND = 1,  /* rounding to integral values is one instruction: SSE4.1, or not x86 */
    F16 = 2,    /* f16 <-> f32 conversion instructions */
    SCALE = 4,  /* AVX-512: x * 2^n with every corner case */
    X86 = 8,    /* pairs of products of 16 bits, in every x86-64 */
    VNNI = 16,  /* four products of bytes, in registers of every length that there is */
    VBMI = 32,  /* bytes picked from two registers */
    BF16 = 64,  /* pairs of bf16, summed in f32 */
    PACKS = 128 /* two registers of integers narrowed to one */
};

static bool has(const ash_target *target, const char *name) {
    return ash_target__has(target, name, strlen(name));
}

static unsigned features(const ash_target *target) {
    if (!ash_target__is(target, "x86_64")) return ROUND;
    bool round = has(target, "sse4.1") || has(target, "avx"), f16 = has(target, "f16c");
    bool scale = has(target, "avx512f") && has(target, "avx512vl");
    return X86 | (round ? ROUND : 0u) | (f16 ? F16 : 0u) | (scale ? SCALE : 0u) |
           (target->dot4 == 1 ? VNNI : 0u) | (has(target, "avx512vbmi") ? VBMI : 0u) |
           (has(target, target->vector_bytes == 64 ? "avx512bw" : "avx2") && target->vector_bytes >= 32
                ? PACKS
                : 0u) |
           (has(target, "avx512bf16") && has(target, "avx512vl") ? BF16 : 0u);
}

/* --- the boundary ------------------------------------------------------------------------------------ */

static void add_attribute(ash_emit *e, LLVMAttributeIndex at, const char *name, uint64_t value) {
    unsigned kind = LLVMGetEnumAttributeKindForName(name, strlen(name));
    LLVMAddAttributeAtIndex(e->fn, at, LLVMCreateEnumAttribute(e->ctx, kind, value));
}

static void add_text_attribute(ash_emit *e, const char *name, const char *value) {
    LLVMAddAttributeAtIndex(
        e->fn, LLVMAttributeFunctionIndex,
        LLVMCreateStringAttribute(e->ctx, name, (unsigned)strlen(name), value, (unsigned)strlen(value)));
}

/* Whether vectors may have to leave their registers: cells take more than half of them, or there is much to
 * compute. */
static bool may_spill(const ash_emit *e) {
    enum { MUCH = 128 }; /* instructions */
    const ash_nest *n = e->nest;
    uint64_t bytes = 0, registers = e->target->vector_registers;
    for (ash_ref i = 0; i < n->code.len; i++) {
        const ash_inst *inst = ash_nest_at(n, i);
        if (inst->op == ASH_NEST_CELL && inst->lanes > 1)
            bytes += (uint64_t)inst->lanes * ash_dtype_size(inst->dtype);
    }
    return n->code.len > MUCH || bytes > registers / 2 * e->target->vector_bytes;
}

static void declare(ash_emit *e, const char *symbol) {
    LLVMTypeRef i64 = LLVMInt64TypeInContext(e->ctx), ptr = LLVMPointerTypeInContext(e->ctx, 0);
    LLVMTypeRef params[PARAMS] = {ptr, ptr, i64, i64, i64};
    e->fn = LLVMAddFunction(e->module, symbol,
                            LLVMFunctionType(LLVMVoidTypeInContext(e->ctx), params, PARAMS, false));
    add_attribute(e, LLVMAttributeFunctionIndex, "nounwind", 0);
    for (unsigned i = BUFFERS; i <= VARS; i++) {
        add_attribute(e, i + 1, "noalias", 0);
        add_attribute(e, i + 1, "nocapture", 0);
        add_attribute(e, i + 1, "readonly", 0);
    }
    char bits[16];
    snprintf(bits, sizeof bits, "%u", e->target->vector_bytes * 8);
    add_text_attribute(e, "prefer-vector-width", bits);
    add_text_attribute(e, "min-legal-vector-width", bits);
    add_text_attribute(e, "no-trapping-math", "true");
    if (may_spill(e))
        add_text_attribute(e, "stackrealign", ""); /* or what is spilled lies across two lines */
}

static LLVMValueRef special(ash_emit *e, LLVMBuilderRef b, ash_nest_op op, bool narrow) {
    (void)b, (void)narrow;
    return LLVMGetParam(e->fn, op == ASH_NEST_BEGIN_ARG ? BEGIN : op == ASH_NEST_END_ARG ? END : WORKER);
}

/* Element `index` of the table that a parameter is. */
static LLVMValueRef entry_of(ash_emit *e, unsigned param, LLVMTypeRef type, int64_t index) {
    LLVMValueRef at = LLVMConstInt(LLVMInt64TypeInContext(e->ctx), (uint64_t)index, true);
    LLVMValueRef slot = LLVMBuildGEP2(e->at_entry, type, LLVMGetParam(e->fn, param), &at, 1, "");
    return LLVMBuildLoad2(e->at_entry, type, slot, "");
}

static LLVMValueRef constant_entry_of(ash_emit *e, unsigned param, LLVMTypeRef type, int64_t index) {
    LLVMValueRef value = entry_of(e, param, type, index);
    LLVMSetMetadata(value, e->kind_invariant,
                    LLVMMetadataAsValue(e->ctx, LLVMMDNodeInContext2(e->ctx, NULL, 0)));
    return value;
}

static LLVMValueRef variable(ash_emit *e, int64_t index, bool narrow) {
    (void)narrow;
    return constant_entry_of(e, VARS, LLVMInt64TypeInContext(e->ctx), index);
}

static LLVMValueRef buffer(ash_emit *e, uint16_t buf) {
    return constant_entry_of(e, BUFFERS, LLVMPointerTypeInContext(e->ctx, 0), buf);
}

/* On the stack. Its address goes nowhere, so LLVM knows by itself that it overlaps no buffer. */
static val shared(ash_emit *e, uint16_t number) {
    const ash_nest_shared *s = &e->nest->shared.at[number];
    uint64_t bytes = (uint64_t)s->count * ash_dtype_size(s->dtype);
    val memory = LLVMBuildAlloca(e->at_entry, LLVMArrayType2(LLVMInt8TypeInContext(e->ctx), bytes), "");
    LLVMSetAlignment(memory, e->target->vector_bytes);
    return memory;
}

static void stop(ash_emit *e) {
    _Static_assert(sizeof(int) == 4 && offsetof(ash_stop, asked) == 0 && offsetof(ash_cancel, on) == 0,
                   "what a look reads");
    LLVMTypeRef ptr = LLVMPointerTypeInContext(e->ctx, 0), byte = LLVMInt8TypeInContext(e->ctx);
    LLVMValueRef distance =
        LLVMConstInt(LLVMInt64TypeInContext(e->ctx), offsetof(ash_stop, left_out), true);
    LLVMValueRef words = entry_of(e, BUFFERS, ptr, (int64_t)e->nest->buffers.len);
    e->asked = LLVMBuildLoad2(e->at_entry, ptr, words, "");
    e->left_out = LLVMBuildGEP2(e->at_entry, byte, words, &distance, 1, "");
}

/* --- instructions ------------------------------------------------------------------------------------ */

static val round_to(ash_emit *e, ash_op op, val a) {
    return e->features & ROUND ? ash_emit__round_by_instruction(e, op, a) : NULL;
}

/* vscalefps, whose registers have 16, 8 or 4 lanes; longer vectors take several. */
static val scale(ash_emit *e, val q, val n) {
    enum { LANES = 16, PARTS = 16 }; /* of one instruction; of the longest vectors */
    enum { PRESENT_ROUNDING = 4 };
    unsigned lanes = ash_emit__lanes(q);
    if (!(e->features & SCALE) || !is_single(q)) return NULL;
    if (lanes > LANES && lanes % LANES == 0 && lanes / LANES <= PARTS) {
        val parts[PARTS];
        for (unsigned i = 0; i < lanes / LANES; i++)
            parts[i] =
                scale(e, ash_emit__part(e, q, i * LANES, LANES), ash_emit__part(e, n, i * LANES, LANES));
        return ash_emit__join(e, parts, lanes / LANES);
    }
    if (lanes != LANES && lanes != 8 && lanes != 4) return NULL;
    const char *name = lanes == 16  ? "llvm.x86.avx512.mask.scalef.ps.512"
                       : lanes == 8 ? "llvm.x86.avx512.mask.scalef.ps.256"
                                    : "llvm.x86.avx512.mask.scalef.ps.128";
    LLVMTypeRef mask = LLVMIntTypeInContext(e->ctx, ASH_MAX(lanes, 8u));
    val x = f_add(e, q, f_const(q, 1)),
        args[] = {x, n, x, LLVMConstAllOnes(mask),
                  LLVMConstInt(LLVMInt32TypeInContext(e->ctx), PRESENT_ROUNDING, false)};
    return ash_emit__intrinsic(e, name, NULL, 0, args, lanes == 16 ? 5 : 4);
}

/* A comparison is a NaN where it holds. Where masks have registers of their own, a choice under one is as
 * quick. */
static val or_nan(ash_emit *e, val a, val b) {
    const unsigned lanes = ash_emit__lanes(a);
    if (!(e->features & X86) || e->target->masks == 1 || lanes == 1) return NULL;
    LLVMTypeRef words = ash_emit__type(e, is_single(a) ? ASH_I32 : ASH_I64, lanes);
    val broken = LLVMBuildSExt(e->b, LLVMBuildFCmp(e->b, LLVMRealUNO, b, b, ""), words, "");
    val out = LLVMBuildOr(e->b, LLVMBuildBitCast(e->b, a, words, ""), broken, "");
    return LLVMBuildBitCast(e->b, out, LLVMTypeOf(a), "");
}

static val from_f16(ash_emit *e, val a) {
    return e->features & F16 ? ash_emit__from_f16(e, a) : NULL;
}

static val to_f16(ash_emit *e, val a) {
    return e->features & F16 ? ash_emit__to_f16(e, a) : NULL;
}

/* A call whose operands are brought to the types that this LLVM declares. */
static val call_on_bits(ash_emit *e, const char *name, val *args, unsigned n) {
    unsigned id = LLVMLookupIntrinsicID(name, strlen(name));
    LLVMTypeRef type = LLVMIntrinsicGetType(e->ctx, id, NULL, 0), params[3];
    LLVMGetParamTypes(type, params);
    for (unsigned i = 0; i < n; i++) args[i] = LLVMBuildBitCast(e->b, args[i], params[i], "");
    return ash_emit__intrinsic(e, name, NULL, 0, args, n);
}

/* A vector of `lanes` that begins with this one; the others are anything. */
static val widened(ash_emit *e, val v, unsigned lanes) {
    LLVMTypeRef i32 = LLVMInt32TypeInContext(e->ctx);
    unsigned have = ash_emit__lanes(v);
    if (have == lanes) return v;
    val pick = ash_emit__numbers(i32, 0, have, lanes);
    return LLVMBuildShuffleVector(e->b, v, LLVMGetPoison(LLVMTypeOf(v)), pick, "");
}

/* The even and the odd bytes apart, as 16 bits: a pair of their products never leaves 32 (pmaddubsw, which
 * takes the bytes as they are, saturates at 16). */
static val pairs(ash_emit *e, const char *name, val a, val b, bool odd) {
    LLVMTypeRef halves = LLVMVectorType(LLVMInt16TypeInContext(e->ctx), 2 * ash_emit__lanes(a));
    a = LLVMBuildBitCast(e->b, a, halves, "");
    b = LLVMBuildBitCast(e->b, b, halves, "");
    a = odd ? i_shr(e, a, 8) : i_and(e, a, 255);
    b = i_sar(e, odd ? b : i_shl(e, b, 8), 8);
    return call_on_bits(e, name, (val[]){a, b}, 2);
}

/* A sum over words of terms, `each` a register of them: of longer vectors part by part; NULL: there is no
 * instruction of so many lanes. */
static val in_registers(ash_emit *e, val (*each)(ash_emit *e, val a, val b, val c), val a, val b, val c) {
    enum { PARTS = 16 };
    unsigned lanes = ash_emit__lanes(c), most = ash_target_lanes(e->target, 4);
    if (lanes <= most) return lanes == 4 || lanes == 8 || lanes == 16 ? each(e, a, b, c) : NULL;
    if (!ash_is_pow2(lanes) || lanes / most > PARTS) return NULL;
    val parts[PARTS];
    for (unsigned i = 0; i < lanes / most; i++)
        parts[i] = in_registers(e, each, ash_emit__part(e, a, i * most, most),
                                ash_emit__part(e, b, i * most, most), ash_emit__part(e, c, i * most, most));
    return ash_emit__join(e, parts, lanes / most);
}

/* vpdpbusd, or two pmaddwd. */
static val add_bytes(ash_emit *e, val a, val b, val c) {
    static const char *const one[] = {"llvm.x86.avx512.vpdpbusd.128", "llvm.x86.avx512.vpdpbusd.256",
                                      "llvm.x86.avx512.vpdpbusd.512"};
    static const char *const two[] = {"llvm.x86.sse2.pmadd.wd", "llvm.x86.avx2.pmadd.wd",
                                      "llvm.x86.avx512.pmaddw.d.512"};
    const unsigned lanes = ash_emit__lanes(c);
    if (e->features & VNNI) return call_on_bits(e, one[lanes / 8], (val[]){c, a, b}, 3);
    val even = pairs(e, two[lanes / 8], a, b, false), odd = pairs(e, two[lanes / 8], a, b, true);
    return i_add(e, i_add(e, c, even), odd);
}

static val dot4(ash_emit *e, val a, val b, val c) {
    return e->features & X86 ? in_registers(e, add_bytes, a, b, c) : NULL;
}

/* vpdpbf16ps. */
static val add_pairs(ash_emit *e, val a, val b, val c) {
    static const char *const names[] = {"llvm.x86.avx512bf16.dpbf16ps.128",
                                        "llvm.x86.avx512bf16.dpbf16ps.256",
                                        "llvm.x86.avx512bf16.dpbf16ps.512"};
    return call_on_bits(e, names[ash_emit__lanes(c) / 8], (val[]){c, a, b}, 3);
}

static val dot2(ash_emit *e, val a, val b, val c) {
    return e->features & BF16 ? in_registers(e, add_pairs, a, b, c) : NULL;
}

static val to_bytes(ash_emit *e, val x, const ash_bytes_out *how) {
    return e->features & PACKS ? ash_host__to_bytes(e, x, how) : NULL;
}

/* vpermps. */
static val permute(ash_emit *e, val a, val places) {
    const unsigned lanes = ash_emit__lanes(a);
    const char *name = lanes == 16 ? "llvm.x86.avx512.permvar.sf.512" : "llvm.x86.avx2.permps";
    if (!(e->features & X86) || lanes != ash_target_lanes(e->target, 4) || lanes < 8) return NULL;
    return LLVMBuildBitCast(e->b, call_on_bits(e, name, (val[]){a, places}, 2), LLVMTypeOf(a), "");
}

/* vpermi2b picks from two registers by the lower seven bits of a number; the eighth chooses between two of
 * them. */
static val lookup(ash_emit *e, val table, val bytes) {
    enum { LANES = 64, PARTS = 4 };
    static const char name[] = "llvm.x86.avx512.vpermi2var.qi.512";
    unsigned lanes = ash_emit__lanes(bytes);
    if (!(e->features & VBMI) || lanes == 1 || lanes > PARTS * LANES) return NULL;
    if (lanes > LANES) {
        if (lanes % LANES) return NULL;
        val parts[PARTS];
        for (unsigned i = 0; i < lanes / LANES; i++)
            parts[i] = lookup(e, table, ash_emit__part(e, bytes, i * LANES, LANES));
        return ash_emit__join(e, parts, lanes / LANES);
    }
    val quarters[PARTS], whole = widened(e, bytes, LANES);
    for (unsigned i = 0; i < PARTS; i++) quarters[i] = ash_emit__part(e, table, i * LANES, LANES);
    val low = call_on_bits(e, name, (val[]){quarters[0], whole, quarters[1]}, 3);
    val high = call_on_bits(e, name, (val[]){quarters[2], whole, quarters[3]}, 3);
    val upper = LLVMBuildICmp(e->b, LLVMIntSLT, whole, LLVMConstNull(LLVMTypeOf(whole)), "");
    return ash_emit__part(e, LLVMBuildSelect(e->b, upper, high, low, ""), 0, lanes);
}

/* --- tiles ------------------------------------------------------------------------------------------- */

/* AMX: eight registers for tiles of at most 16 lines of 64 bytes, whose shapes are set once for a kernel.
 * The first ones have the sums. The others are shared out evenly among the numbers of terms that its
 * instructions take: of each one for x, the rest for y. LLVM's intrinsics for registers by number touch
 * memory as they like, so nothing passes them. */
enum { TILE_BYTES = 64, TILE_REGISTERS = 8, TILE_SHAPES = 3, TILE_FOUR = 4 };
/* Where shapes lie in 64 bytes; widths are two bytes each. */
enum { TILE_WIDTHS = 16, TILE_HEIGHTS = 48 };

/* Of a kernel. */
struct tile_plan {
    unsigned sums, height;       /* registers with sums; lines of a tile */
    unsigned n, each;            /* numbers of terms; registers of each */
    unsigned bytes[TILE_SHAPES]; /* of so many terms */
    bool fits;
};

static unsigned tile_bytes(const ash_nest *nest, ash_nest_tiles t) {
    return t.terms * (unsigned)ash_dtype_size(ash_nest_dtype(nest, t.x));
}

static struct tile_plan plan_tiles(const ash_nest *nest) {
    struct tile_plan p = {.fits = true};
    for (size_t i = 0; i < nest->code.len; i++) {
        if (!ash_nest_is_tile(&nest->code.at[i])) continue;
        const ash_nest_tiles t = ash_nest_tiles_of(&nest->code.at[i]);
        p.sums = ASH_MAX(p.sums, (unsigned)t.tall * t.wide);
        p.fits &= !p.height || p.height == t.height;
        p.height = t.height;
        if (nest->code.at[i].op != ASH_NEST_TILE_DOT) continue;
        const unsigned bytes = tile_bytes(nest, t);
        unsigned s = 0;
        while (s < p.n && p.bytes[s] != bytes) s++;
        if (s < p.n) continue;
        p.fits &= p.n < TILE_SHAPES;
        if (p.n < TILE_SHAPES) p.bytes[p.n++] = bytes;
    }
    p.each = (TILE_REGISTERS - p.sums) / ASH_MAX(p.n, 1u);
    p.fits &= p.each >= 2;
    return p;
}

static val bytes_behind(ash_emit *e, val at, int64_t bytes) {
    val by = LLVMConstInt(LLVMInt64TypeInContext(e->ctx), (uint64_t)bytes, true);
    return bytes ? LLVMBuildGEP2(e->b, LLVMInt8TypeInContext(e->ctx), at, &by, 1, "") : at;
}

/* Whether the processor multiplies tiles of pairs, or of bytes, where the nest has any. */
static bool has_tiles(const ash_emit *e, bool pairs) {
    for (size_t i = 0; i < e->nest->code.len; i++) {
        const ash_inst *inst = &e->nest->code.at[i];
        if (inst->op == ASH_NEST_TILE_DOT &&
            (ash_nest_dtype(e->nest, ash_nest_tiles_of(inst).x) == ASH_BF16) == pairs)
            return has(e->target, pairs ? "amx-bf16" : "amx-int8");
    }
    return true;
}

static void tiles_open(ash_emit *e) {
    const struct tile_plan p = plan_tiles(e->nest);
    int32_t shape[TILE_BYTES] = {[0] = 1};
    if (!p.fits || !(has_tiles(e, false) && has_tiles(e, true))) {
        e->lacks = p.fits ? "products of tiles" : "tiles of so many shapes";
        return;
    }
    for (unsigned r = 0; r < p.sums; r++)
        shape[TILE_WIDTHS + 2 * r] = TILE_BYTES, shape[TILE_HEIGHTS + r] = (int32_t)p.height;
    for (unsigned s = 0; s < p.n; s++)
        for (unsigned i = 0; i < p.each; i++) {
            unsigned r = p.sums + s * p.each + i, bytes = p.bytes[s];
            shape[TILE_WIDTHS + 2 * r] = (int32_t)(i ? TILE_BYTES : bytes);
            shape[TILE_HEIGHTS + r] = (int32_t)(i ? bytes / TILE_FOUR : p.height);
        }
    val all = ash_emit__const_vector(LLVMInt8TypeInContext(e->ctx), shape, TILE_BYTES);
    e->tiles = LLVMBuildAlloca(e->at_entry, LLVMTypeOf(all), "");
    LLVMBuildStore(e->b, all, e->tiles);
    ash_emit__intrinsic(e, "llvm.x86.ldtilecfg", NULL, 0, &e->tiles, 1);
}

/* The same with as many lines of sums and of x, where they are fewer. */
static void tile_lines_are(ash_emit *e, val lines) {
    const struct tile_plan p = plan_tiles(e->nest);
    LLVMTypeRef byte = LLVMInt8TypeInContext(e->ctx);
    val most = LLVMConstInt(LLVMTypeOf(lines), p.height, false);
    if (!p.fits) return;
    lines = LLVMBuildSelect(e->b, LLVMBuildICmp(e->b, LLVMIntSLT, lines, most, ""), lines, most, "");
    lines = LLVMBuildTrunc(e->b, lines, byte, "");
    for (unsigned r = 0; r < p.sums + p.n; r++) {
        unsigned number = r < p.sums ? r : p.sums + (r - p.sums) * p.each;
        LLVMBuildStore(e->b, lines, bytes_behind(e, e->tiles, TILE_HEIGHTS + number));
    }
    ash_emit__intrinsic(e, "llvm.x86.ldtilecfg", NULL, 0, &e->tiles, 1);
}

static void tiles_close(ash_emit *e) {
    ash_emit__intrinsic(e, "llvm.x86.tilerelease", NULL, 0, NULL, 0);
}

static val tile_register(ash_emit *e, unsigned number) {
    return LLVMConstInt(LLVMInt8TypeInContext(e->ctx), number, false);
}

static void move_tile(ash_emit *e, const char *name, unsigned number, val at, int64_t apart) {
    val args[] = {tile_register(e, number), at,
                  LLVMConstInt(LLVMInt64TypeInContext(e->ctx), (uint64_t)apart, true)};
    ash_emit__intrinsic(e, name, NULL, 0, args, ASH_COUNT(args));
}

static void tile_zero(ash_emit *e, ash_nest_tiles t) {
    for (unsigned i = 0; i < (unsigned)t.tall * t.wide; i++) {
        val sums = tile_register(e, i);
        ash_emit__intrinsic(e, "llvm.x86.tilezero", NULL, 0, &sums, 1);
    }
}

/* Tiles of y that all have a register are loaded once. */
static void tile_dot(ash_emit *e, ash_nest_tiles t, val x, val y, int64_t far) {
    static const char load[] = "llvm.x86.tileloadd64";
    static const char *const products[2][2] = {{"llvm.x86.tdpbssd", "llvm.x86.tdpbsud"},
                                               {"llvm.x86.tdpbusd", "llvm.x86.tdpbuud"}};
    const ash_dtype of = ash_nest_dtype(e->nest, t.x);
    const char *product = of == ASH_BF16 ? "llvm.x86.tdpbf16ps"
                                         : products[of == ASH_U8][ash_nest_dtype(e->nest, t.y) == ASH_U8];
    const struct tile_plan p = plan_tiles(e->nest);
    const unsigned bytes = tile_bytes(e->nest, t);
    unsigned s = 0;
    if (!p.fits) return;
    while (p.bytes[s] != bytes) s++;
    far *= (int64_t)ash_dtype_size(of);
    const int64_t apart = t.apart * (int64_t)ash_dtype_size(of);
    const unsigned of_x = p.sums + s * p.each, of_y = of_x + 1;
    const bool stay = t.wide < p.each;
    for (unsigned v = 0; stay && v < t.wide; v++)
        move_tile(e, load, of_y + v, bytes_behind(e, y, v * far), TILE_BYTES);
    for (unsigned i = 0; i < (unsigned)t.tall * t.wide; i++) {
        unsigned v = stay ? i % t.wide : i / t.tall, r = stay ? i / t.wide : i % t.tall;
        unsigned in = of_y + v % (p.each - 1);
        if (!stay && r == 0) move_tile(e, load, in, bytes_behind(e, y, v * far), TILE_BYTES);
        if (v == 0 || (!stay && t.tall > 1))
            move_tile(e, load, of_x, bytes_behind(e, x, (int64_t)r * t.height * apart), apart);
        val args[] = {tile_register(e, r * t.wide + v), tile_register(e, of_x), tile_register(e, in)};
        ash_emit__intrinsic(e, product, NULL, 0, args, ASH_COUNT(args));
    }
}

static void tile_put(ash_emit *e, ash_nest_tiles t, val to) {
    for (unsigned i = 0; i < (unsigned)t.tall * t.wide; i++) {
        int64_t line = (int64_t)(i % t.wide * t.tall + i / t.wide) * t.height;
        move_tile(e, "llvm.x86.tilestored64", i, bytes_behind(e, to, line * TILE_BYTES), TILE_BYTES);
    }
}

/* --- the C library ----------------------------------------------------------------------------------- */

/* Its functions are correct to about one unit in the last place, one lane at a time. The linker has their
 * addresses (link.c). */
static const char *symbol_of(ash_op op, ash_dtype dtype) {
    static const char *const names[ASH_OP_COUNT] = {
        [ASH_OP_SIN] = "sin",     [ASH_OP_COS] = "cos",     [ASH_OP_TAN] = "tan",
        [ASH_OP_ASIN] = "asin",   [ASH_OP_ACOS] = "acos",   [ASH_OP_ATAN] = "atan",
        [ASH_OP_SINH] = "sinh",   [ASH_OP_COSH] = "cosh",   [ASH_OP_TANH] = "tanh",
        [ASH_OP_ASINH] = "asinh", [ASH_OP_ACOSH] = "acosh", [ASH_OP_ATANH] = "atanh",
        [ASH_OP_ERF] = "erf",     [ASH_OP_POW] = "pow",     [ASH_OP_REM] = "fmod",
    };
    return op == ASH_OP_REM && dtype == ASH_F32 ? "fmodf" : names[op];
}

static val library(ash_emit *e, ash_op op, ash_dtype dtype, val a, val b) {
    const char *symbol = symbol_of(op, dtype);
    LLVMTypeRef element = ash_emit__element(LLVMTypeOf(a)), params[] = {element, element};
    unsigned n = b ? 2 : 1, lanes = ash_emit__lanes(a);
    LLVMTypeRef type = LLVMFunctionType(element, params, n, false);
    val fn = LLVMGetNamedFunction(e->module, symbol);
    if (!fn) {
        /* memory(none) is the value 0; nobuiltin, or LLVM would make a sincos of two calls */
        static const char *const facts[] = {"nounwind", "willreturn", "nobuiltin", "memory"};
        fn = LLVMAddFunction(e->module, symbol, type);
        for (size_t i = 0; i < ASH_COUNT(facts); i++) {
            unsigned kind = LLVMGetEnumAttributeKindForName(facts[i], strlen(facts[i]));
            LLVMAddAttributeAtIndex(fn, LLVMAttributeFunctionIndex,
                                    LLVMCreateEnumAttribute(e->ctx, kind, 0));
        }
    }
    if (lanes == 1) return LLVMBuildCall2(e->b, type, fn, (val[]){a, b}, n, "");
    val out = LLVMGetPoison(LLVMTypeOf(a));
    for (unsigned i = 0; i < lanes; i++) {
        val at = LLVMConstInt(LLVMInt32TypeInContext(e->ctx), i, false);
        val args[] = {LLVMBuildExtractElement(e->b, a, at, ""),
                      b ? LLVMBuildExtractElement(e->b, b, at, "") : NULL};
        out = LLVMBuildInsertElement(e->b, out, LLVMBuildCall2(e->b, type, fn, args, n, ""), at, "");
    }
    return out;
}

const ash_code_target ash_code__host = {
    .init = init,
    .part = "the host's processor",
    .passes = passes,
    .features = features,
    .declare = declare,
    .special = special,
    .variable = variable,
    .buffer = buffer,
    .shared = shared,
    .same_register = "=r,0",
    .same_vector = "=x,0",
    .stop = stop,
    .round = round_to,
    .scale = scale,
    .or_nan = or_nan,
    .from_f16 = from_f16,
    .to_f16 = to_f16,
    .to_bytes = to_bytes,
    .dot4 = dot4,
    .dot2 = dot2,
    .lookup = lookup,
    .permute = permute,
    .tile_lines_are = tile_lines_are,
    .tile_zero = tile_zero,
    .tile_dot = tile_dot,
    .tile_put = tile_put,
    .tiles_open = tiles_open,
    .tiles_close = tiles_close,
    .library = library,
};
