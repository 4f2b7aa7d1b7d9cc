/* SPDX-License-Identifier: MIT */
/* Element types of few bits, which files have and graphs do not compute in.
 *
 * A graph has a byte for each such element. For integers it is the number, in an i8 or u8; for floating
 * point numbers the code, in a u8. What the bytes mean belongs to the graph's input or output
 * (ash_graph_input_narrow) and to the tensor (ash_tensor_narrow); in files of tensors elements of less than
 * eight bits are packed. */
#ifndef ASHLAR_NARROW_H
#define ASHLAR_NARROW_H

#include "graph.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum ash_narrow {
    ASH_NARROW_NONE, /* elements are what their dtype says */
    ASH_NARROW_U4,
    ASH_NARROW_I4,
    ASH_NARROW_U2,
    ASH_NARROW_I2,
    ASH_NARROW_F4E2M1,     /* OCP microscaling: neither infinity nor NaN */
    ASH_NARROW_F6E2M3,     /* the same */
    ASH_NARROW_F6E3M2,     /* the same */
    ASH_NARROW_F8E4M3FN,   /* no infinity; all ones is NaN */
    ASH_NARROW_F8E4M3FNUZ, /* neither infinity nor -0, whose code is NaN */
    ASH_NARROW_F8E5M2,     /* as IEEE 754 */
    ASH_NARROW_F8E5M2FNUZ, /* neither infinity nor -0, whose code is NaN */
    ASH_NARROW_F8E8M0,     /* powers of two, 2^(code - 127); all ones is NaN */
    ASH_NARROW_COUNT
} ash_narrow;

/* "float8e4m3fn", "int4", ...; "none"; "?" outside the enumeration. */
ASH_API const char *ash_narrow_name(ash_narrow narrow);
/* ASH_I8 for the signed integers, else ASH_U8. */
ASH_API ash_dtype ash_narrow_dtype(ash_narrow narrow);
/* Bits of an element in files; 0 outside the enumeration and for ASH_NARROW_NONE. */
ASH_API unsigned ash_narrow_bits(ash_narrow narrow);
/* What a byte of a graph stands for. Bits past the type's own do not count; ASH_NARROW_NONE: the byte. */
ASH_API double ash_narrow_value(ash_narrow narrow, uint8_t byte);

/* What the elements of an input or output are; ASH_NARROW_NONE past the end, and for the outputs of an
 * open graph, of which only the names are known. */
ASH_API ash_narrow ash_graph_input_narrow(const ash_graph *graph, size_t position);
ASH_API ash_narrow ash_graph_output_narrow(const ash_graph *graph, size_t position);

#ifdef __cplusplus
}
#endif
#endif
