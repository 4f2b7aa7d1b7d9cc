/* SPDX-License-Identifier: MIT */
/* The tables that ops.def, attrs.def and dtypes.def spell out. */
#include "ir.h"

#define A(KEY) (UINT64_C(1) << ASH_ATTR_##KEY)

const ash_op_info ash_op_infos[ASH_OP_COUNT] = {
#define OP(ID, text, CLASS, imin, imax, n_outs, keys) {#text, ASH_CLASS_##CLASS, imin, imax, n_outs, keys},
#include "ashlar/ops.def"
#undef OP
};

const ash_attr_info ash_attr_infos[ASH_ATTR_COUNT] = {
#define ATTR(KEY, text, TYPE) {text, ASH_ATTR_TYPE_##TYPE},
#include "ashlar/attrs.def"
#undef ATTR
};

_Static_assert(ASH_ATTR_COUNT <= 64, "a set of attributes is a 64-bit mask");
_Static_assert(ASH_CLASS_UNARY == 0 && ASH_CLASS_CAST == 4, "ash_op_is_elementwise compares classes");

static const struct {
    const char *name;
    ash_kind kind;
    size_t bytes;
} dtypes[ASH_DTYPE_COUNT] = {
#define DTYPE(ID, text, KIND, size) {text, ASH_KIND_##KIND, size},
#include "ashlar/dtypes.def"
#undef DTYPE
};

const char *ash_phase_text(ash_phase phase) {
    static const char *const names[ASH_PHASE_COUNT] = {
        [ASH_PHASE_FORWARD] = "forward", [ASH_PHASE_BACKWARD] = "backward", [ASH_PHASE_UPDATE] = "update"};
    return (unsigned)phase < ASH_PHASE_COUNT ? names[phase] : "?";
}

const char *ash_op_name(ash_op op) {
    return (unsigned)op < ASH_OP_COUNT ? ash_op_infos[op].name : "?";
}

const char *ash_dtype_name(ash_dtype dtype) {
    return (unsigned)dtype < ASH_DTYPE_COUNT ? dtypes[dtype].name : "?";
}

uint64_t ash_dtype_size(ash_dtype dtype) {
    return (unsigned)dtype < ASH_DTYPE_COUNT ? dtypes[dtype].bytes : 0;
}

ash_kind ash_dtype_kind(ash_dtype dtype) {
    return dtypes[dtype].kind;
}
