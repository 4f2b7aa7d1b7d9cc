/* SPDX-License-Identifier: MIT */
/* The safetensors format: 8 bytes that say how long the header is, the header, a JSON object, and the
 * tensors' bytes, one behind the other without gaps:
 *
  * {"__metadata__": {KEY: TEXT, ...}, NAME: {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]},
  * ...}
 *
 * What is read may come from anybody: every number is checked against the file's size before it is used,
 * and a defect is ASH_ERROR_FORMAT with its offset in the file. */
#ifndef ASH_SAFETENSORS_H
#define ASH_SAFETENSORS_H

#include "base/arena.h"
#include "ir/ir.h"

typedef struct ash_safetensor {
    const char *name; /* UTF-8, as it stands in the file, escapes resolved; NUL at its end */
    ash_type type;
    uint64_t begin, end; /* bytes, from the beginning of the file */
} ash_safetensor;

typedef struct ash_safetext {
    const char *key, *text;
    uint64_t at; /* offset in the file of the text's first byte */
} ash_safetext;

typedef struct ash_safetensors {
    uint64_t header;         /* bytes of the file before the first tensor's */
    ash_safetensor *tensors; /* in the order of their bytes */
    size_t n_tensors;
    ash_safetext *texts; /* of "__metadata__" */
    size_t n_texts;
} ash_safetensors;

/* Reads a header; everything lies in `arena`. Names and keys may occur twice. */
ash_status ash_safetensors__read(const void *data, uint64_t size, ash_arena *arena, ash_safetensors *out,
                                 ash_diag *diag);

/* The dtype's name in this format, or NULL. */
const char *ash_safetensors__dtype(ash_dtype dtype);

#endif
