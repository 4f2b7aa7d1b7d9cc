/* SPDX-License-Identifier: MIT */
/* Element types of few bits: what their codes stand for. */
#include "narrow.h"

#include <math.h>

#include "ir.h"

static const struct {
    const char *name;
    unsigned bits;
    ash_dtype dtype;
} types[ASH_NARROW_COUNT] = {
    [ASH_NARROW_NONE] = {"none", 0, ASH_U8},
    [ASH_NARROW_U4] = {"uint4", 4, ASH_U8},
    [ASH_NARROW_I4] = {"int4", 4, ASH_I8},
    [ASH_NARROW_U2] = {"uint2", 2, ASH_U8},
    [ASH_NARROW_I2] = {"int2", 2, ASH_I8},
    [ASH_NARROW_F4E2M1] = {"float4e2m1", 4, ASH_U8},
    [ASH_NARROW_F6E2M3] = {"float6e2m3", 6, ASH_U8},
    [ASH_NARROW_F6E3M2] = {"float6e3m2", 6, ASH_U8},
    [ASH_NARROW_F8E4M3FN] = {"float8e4m3fn", 8, ASH_U8},
    [ASH_NARROW_F8E4M3FNUZ] = {"float8e4m3fnuz", 8, ASH_U8},
    [ASH_NARROW_F8E5M2] = {"float8e5m2", 8, ASH_U8},
    [ASH_NARROW_F8E5M2FNUZ] = {"float8e5m2fnuz", 8, ASH_U8},
    [ASH_NARROW_F8E8M0] = {"float8e8m0", 8, ASH_U8},
};

/* What has no NaN turns one into -0, as ml_dtypes does. */
static const ash_narrow_float floats[ASH_NARROW_COUNT] = {
    [ASH_NARROW_F4E2M1] = {4, 1, 1, 0x07, 0x07, 0x08, false},
    [ASH_NARROW_F6E2M3] = {6, 3, 1, 0x1f, 0x1f, 0x20, false},
    [ASH_NARROW_F6E3M2] = {6, 2, 3, 0x1f, 0x1f, 0x20, false},
    [ASH_NARROW_F8E4M3FN] = {8, 3, 7, 0x7e, 0x7f, 0x7f, false},
    [ASH_NARROW_F8E4M3FNUZ] = {8, 3, 8, 0x7f, 0x80, 0x80, true},
    [ASH_NARROW_F8E5M2] = {8, 2, 15, 0x7b, 0x7c, 0x7e, false},
    [ASH_NARROW_F8E5M2FNUZ] = {8, 2, 16, 0x7f, 0x80, 0x80, true},
};

static bool is_one(ash_narrow narrow) {
    return (unsigned)narrow < ASH_NARROW_COUNT;
}

const char *ash_narrow_name(ash_narrow narrow) {
    return is_one(narrow) ? types[narrow].name : "?";
}

ash_dtype ash_narrow_dtype(ash_narrow narrow) {
    return is_one(narrow) ? types[narrow].dtype : ASH_U8;
}

unsigned ash_narrow_bits(ash_narrow narrow) {
    return is_one(narrow) ? types[narrow].bits : 0;
}

const ash_narrow_float *ash_narrow__float(ash_narrow narrow) {
    return is_one(narrow) && floats[narrow].bits ? &floats[narrow] : NULL;
}

static double float_value(const ash_narrow_float *f, uint8_t byte) {
    unsigned sign = 1u << (f->bits - 1), code = byte & (sign - 1), low = code & ((1u << f->mantissa) - 1);
    int exponent = (int)(code >> f->mantissa);
    double value = ldexp(exponent ? low + (1u << f->mantissa) : low,
                         (exponent ? exponent : 1) - f->bias - f->mantissa);
    if (f->unsigned_zero && (byte & (2 * sign - 1)) == sign) return (double)NAN;
    if (code > f->largest)
        value = f->overflow != f->nan && code == f->overflow ? (double)INFINITY : (double)NAN;
    return byte & sign ? -value : value;
}

double ash_narrow_value(ash_narrow narrow, uint8_t byte) {
    const ash_narrow_float *f = ash_narrow__float(narrow);
    if (f) return float_value(f, byte);
    if (narrow == ASH_NARROW_F8E8M0) return byte == 0xff ? (double)NAN : ldexp(1, byte - 127);
    unsigned bits = ash_narrow_bits(narrow);
    if (!bits) return byte;
    int number = byte & ((1 << bits) - 1);
    if (ash_narrow_dtype(narrow) == ASH_I8 && number >> (bits - 1)) number -= 1 << bits;
    return number;
}

/* --- of graphs ------------------------------------------------------------------------------------ */

void ash_graph__mark_input(ash_graph *graph, ash_value input, ash_narrow narrow) {
    if (input < graph->values.len) graph->values.at[input].narrow = (uint8_t)narrow;
}

void ash_graph__mark_output(ash_graph *graph, size_t position, ash_narrow narrow) {
    if (position < graph->outputs.len) graph->outputs.at[position].narrow = (uint8_t)narrow;
}

ash_narrow ash_graph_input_narrow(const ash_graph *graph, size_t position) {
    if (!graph || position >= graph->inputs.len) return ASH_NARROW_NONE;
    return (ash_narrow)graph->values.at[graph->inputs.at[position]].narrow;
}

ash_narrow ash_graph_output_narrow(const ash_graph *graph, size_t position) {
    if (!graph || position >= graph->outputs.len) return ASH_NARROW_NONE;
    return (ash_narrow)graph->outputs.at[position].narrow;
}
