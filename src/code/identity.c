/* SPDX-License-Identifier: MIT */
/* A nest and its target as bytes, so that two of them can be compared for being the same kernel, also
 * across processes. Numbers are written in groups of seven bits, lowest first, the last one without its top
 * bit; lists begin with their length and texts end with a zero. So nothing can be read in two ways, and
 * different nests have different bytes. Operands are distances, which are small: a nest takes a third of
 * what it takes in memory. */
#include <llvm-c/Core.h>

#include "cache.h"
#include "code.h"
#include "code_version.h"

enum {
    NUMBERS = 10, /* of one instruction */
    LONGEST = 10  /* bytes of a number */
};

static uint8_t *put(uint8_t *at, uint64_t number) {
    for (; number >= 0x80; number >>= 7) *at++ = (uint8_t)(number | 0x80);
    *at++ = (uint8_t)number;
    return at;
}

static void add(ash_text *out, const uint64_t *numbers, size_t count) {
    uint8_t room[NUMBERS * LONGEST], *at = room;
    for (size_t i = 0; i < count; i++) at = put(at, numbers[i]);
    ash_text_add_bytes(out, room, (size_t)(at - room));
}

static void add_text(ash_text *out, const char *text) {
    ash_text_add_bytes(out, text, strlen(text) + 1);
}

/* Small numbers of either sign become small ones. */
static uint64_t fold_sign(int64_t i) {
    return (uint64_t)i << 1 ^ (uint64_t)(i >> 63);
}

/* How far back an operand lies, 0 for none. */
static uint64_t distance(ash_ref at, ash_ref operand) {
    return operand == ASH_NO_REF ? 0 : fold_sign((int64_t)at - operand) + 1;
}

static void add_instruction(ash_text *out, ash_ref at, const ash_inst *inst) {
    const uint64_t numbers[] = {
        inst->op,     inst->lanes,           inst->dtype,           inst->width,
        inst->buf,    distance(at, inst->a), distance(at, inst->b), distance(at, inst->c),
        inst->unroll, fold_sign(inst->i)}; /* the bits of `f` as well */
    add(out, numbers, ASH_COUNT(numbers));
}

void ash_identity__write(const ash_target *target, const ash_nest *nest, ash_text *out) {
    unsigned llvm[3];
    LLVMGetVersion(&llvm[0], &llvm[1], &llvm[2]);
    add_text(out, ASH_CODE_VERSION);
    add_text(out, target->triple);
    add_text(out, target->cpu);
    add_text(out, target->features);
    const uint64_t facts[] = {
        llvm[0],      llvm[1],     llvm[2],        target->vector_bytes, target->vector_registers,
        target->dot4, target->fma, nest->code.len, nest->buffers.len,    nest->shuffles.len};
    add(out, facts, ASH_COUNT(facts));
    for (ash_ref i = 0; i < nest->code.len; i++) add_instruction(out, i, &nest->code.at[i]);
    for (size_t i = 0; i < nest->buffers.len; i++) {
        const ash_nest_buffer *b = &nest->buffers.at[i];
        const uint64_t numbers[] = {b->dtype, b->align, b->group, b->written};
        add(out, numbers, ASH_COUNT(numbers));
    }
    if (nest->threads || nest->shared.len)
        add(out, (const uint64_t[]){nest->threads, nest->resident, nest->shared.len}, 3);
    for (size_t i = 0; i < nest->shared.len; i++)
        add(out, (const uint64_t[]){nest->shared.at[i].dtype, nest->shared.at[i].count}, 2);
    for (size_t i = 0; i < nest->shuffles.len; i++)
        add(out, (const uint64_t[]){fold_sign(nest->shuffles.at[i])}, 1);
}

ash_status ash_code__print_key(const ash_target *target, const ash_nest *nest, ash_text *out,
                               ash_diag *diag) {
    char key[ASH_KEY_TEXT];
    ash_text identity;
    ash_text_init(&identity, out->allocator);
    ash_identity__write(target, nest, &identity);
    ash_status status = ash_text_status(&identity, diag);
    if (status == ASH_OK) {
        ash_key__format(ash_key__of(&identity), key);
        ash_text_add(out, "%s", key);
    }
    ash_text_free(&identity);
    return status;
}
