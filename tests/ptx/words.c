/* SPDX-License-Identifier: MIT */
/* The words of PTX: types, modifiers, instructions and special registers, by name. */
#include "machine.h"

#define M(group) (UINT64_C(1) << G_##group)
static const ptx_op ops[] = {
#define OP(name, shape, groups, kinds, types, control, run)                                                \
    {name, shape, groups, run, control, types, kinds},
#include "ops.def"
#undef OP
};

static bool is(const char *word, size_t len, const char *name) {
    return strlen(name) == len && !memcmp(word, name, len);
}

const ptx_op *ptx_op_find(const char *name, size_t len, size_t *used) {
    const ptx_op *best = NULL;
    *used = 0;
    for (size_t i = 0; i < sizeof ops / sizeof *ops; i++) {
        size_t n = strlen(ops[i].name);
        if (n <= len && n > *used && !memcmp(name, ops[i].name, n) && (n == len || name[n] == '.')) {
            best = &ops[i];
            *used = n;
        }
    }
    return best;
}

/* The words of each group in the order of their numbers. */
static const char *const words[N_GROUPS] = {
    [G_ROUND] = "rn rz rm rp rni rzi rmi rpi rna",
    [G_SAT] = "sat",
    [G_PART] = "lo hi wide",
    [G_COMPARE] = "eq ne lt le gt ge equ neu ltu leu gtu geu num nan",
    [G_LOGIC] = "and or xor",
    [G_SPACE] = "const global local param shared",
    [G_CACHE] = "ca cg cs cv lu wb wt nc L1 L2",
    [G_ORDER] = "volatile relaxed acquire release weak acq_rel sc",
    [G_SCOPE] = "cta gpu sys gl cluster",
    [G_VECTOR] = "v2 v4",
    [G_NAN] = "NaN",
    [G_WAY] = "up down bfly idx all any uni ballot to l r",
    [G_CLAMP] = "clamp wrap",
    [G_ATOM] = "add min max and or xor exch cas inc dec",
    [G_SHAPE] = "m8n8 m16n8k4 m16n8k8 m16n8k16 m16n8k32",
    [G_LAYOUT] = "row col",
    [G_COUNT] = "x1 x2 x4",
    [G_TRANS] = "trans",
    [G_APPROX] = "approx full",
    [G_PERMUTE] = "f4e b4e rc8 ecl ecr rc16",
    [G_SIGN] = "relu satfinite",
    [G_SYNC] = "sync aligned uni",
};

/* Words with more than one name. */
static const struct {
    const char *name, *means;
} others[] = {{"lo", "lt"},
              {"ls", "le"},
              {"hi", "gt"},
              {"hs", "ge"},
              {"shared::cta", "shared"},
              {"param::entry", "param"},
              {"param::func", "param"}};

static int number_in(const char *list, const char *word, size_t len) {
    int number = 1;
    for (const char *at = list; *at; number++) {
        size_t n = strcspn(at, " ");
        if (n == len && !memcmp(at, word, n)) return number;
        at += n + (at[n] == ' ');
    }
    return 0;
}

int ptx_word_find(const char *word, size_t len, uint64_t groups, ptx_group *group) {
    if (len > 4 && !memcmp(word, "L1::", 4)) len = 2;
    if (len > 4 && !memcmp(word, "L2::", 4)) len = 2;
    for (int g = 0; g < N_GROUPS; g++) {
        if (!(groups >> g & 1)) continue;
        *group = (ptx_group)g;
        int number = number_in(words[g], word, len);
        for (size_t i = 0; !number && i < sizeof others / sizeof *others; i++) {
            if (is(word, len, others[i].name))
                number = number_in(words[g], others[i].means, strlen(others[i].means));
        }
        if (number) return number;
    }
    return 0;
}

static const char *const types[] = {
#define TYPE(name, text, bytes, kind) text,
    PTX_TYPES(TYPE)
#undef TYPE
};

ptx_type ptx_type_find(const char *word, size_t len) {
    for (size_t i = 1; i < sizeof types / sizeof *types; i++)
        if (is(word, len, types[i])) return (ptx_type)i;
    return NO_TYPE;
}

static const struct {
    const char *name;
    unsigned bytes;
} specials[N_SPECIALS] = {
    [TID_X] = {"%tid.x", 4},
    [TID_Y] = {"%tid.y", 4},
    [TID_Z] = {"%tid.z", 4},
    [NTID_X] = {"%ntid.x", 4},
    [NTID_Y] = {"%ntid.y", 4},
    [NTID_Z] = {"%ntid.z", 4},
    [CTAID_X] = {"%ctaid.x", 4},
    [CTAID_Y] = {"%ctaid.y", 4},
    [CTAID_Z] = {"%ctaid.z", 4},
    [NCTAID_X] = {"%nctaid.x", 4},
    [NCTAID_Y] = {"%nctaid.y", 4},
    [NCTAID_Z] = {"%nctaid.z", 4},
    [LANEID] = {"%laneid", 4},
    [WARPID] = {"%warpid", 4},
    [NWARPID] = {"%nwarpid", 4},
    [SMID] = {"%smid", 4},
    [NSMID] = {"%nsmid", 4},
    [GRIDID] = {"%gridid", 8},
    [CLOCK] = {"%clock", 4},
    [CLOCK64] = {"%clock64", 8},
    [GLOBALTIMER] = {"%globaltimer", 8},
    [LANEMASK_EQ] = {"%lanemask_eq", 4},
    [LANEMASK_LE] = {"%lanemask_le", 4},
    [LANEMASK_LT] = {"%lanemask_lt", 4},
    [LANEMASK_GE] = {"%lanemask_ge", 4},
    [LANEMASK_GT] = {"%lanemask_gt", 4},
    [DYNAMIC_SMEM] = {"%dynamic_smem_size", 4},
    [TOTAL_SMEM] = {"%total_smem_size", 4},
};

ptx_special ptx_special_find(const char *name, size_t len, unsigned *bytes) {
    for (int i = 0; i < N_SPECIALS; i++) {
        if (!is(name, len, specials[i].name)) continue;
        *bytes = specials[i].bytes;
        return (ptx_special)i;
    }
    return N_SPECIALS;
}
