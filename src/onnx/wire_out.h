/* SPDX-License-Identifier: MIT */
/* Writing of the protocol buffer wire format to a file, or to memory.
 *
 * A message is preceded by its length, so its writer runs twice over the same data: first on an output
 * without a sink, which only counts, then on the file. Weights are written straight from where they lie. */
#ifndef ASH_WIRE_OUT_H
#define ASH_WIRE_OUT_H

#include "ashlar/narrow.h"
#include "base/file.h"
#include "base/text.h"

typedef struct ash_wire_out {
    ash_sink *sink;    /* with `text` NULL, too: counts only */
    uint64_t position; /* bytes from the start of the file */
    ash_text *text;    /* what is written in memory, or NULL */
} ash_wire_out;

void ash_wire_out__int(ash_wire_out *out, uint32_t field, int64_t value);
void ash_wire_out__float(ash_wire_out *out, uint32_t field, float value);
/* Tag and length of a field of `len` bytes, which the caller writes next. */
void ash_wire_out__head(ash_wire_out *out, uint32_t field, uint64_t len);
void ash_wire_out__bytes(ash_wire_out *out, uint32_t field, const void *bytes, size_t len);
void ash_wire_out__text(ash_wire_out *out, uint32_t field, const char *text);

/* A field that is a message: counted, then written. The body must not depend on its position in the
 * file. */
void ash_wire_out__message(ash_wire_out *out, uint32_t field,
                           void (*body)(ash_wire_out *out, const void *data), const void *data);

/* A TensorProto. */
typedef struct ash_onnx_tensor_out {
    const char *name;
    const ash_type *type; /* dims are numbers */
    ash_narrow narrow;    /* what the elements are, already packed, or ASH_NARROW_NONE */
    const void *data;
    size_t size;          /* bytes */
    size_t align;         /* the data start at a multiple of this in the file; 1: anywhere */
    const char *external; /* location of the file that holds the data, or NULL: they are in the message */
    uint64_t offset;      /* in that file, bytes */
} ash_onnx_tensor_out;

/* As a field, or, with field 0, as the whole file. */
void ash_wire_out__tensor(ash_wire_out *out, uint32_t field, const ash_onnx_tensor_out *tensor);

#endif
