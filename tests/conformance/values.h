/* SPDX-License-Identifier: MIT */
/* The values of a test, as the files of its data sets have them. */
#ifndef ASH_CONFORMANCE_VALUES_H
#define ASH_CONFORMANCE_VALUES_H

#include "ashlar/onnx.h"

enum { MAX_TENSORS = 64 };

/* Tensors in the order of files; those of a sequence follow each other, under the names NAME.0, NAME.1,
 * ... */
typedef struct tensors {
    ash_tensor *at[MAX_TENSORS];
    size_t n;
    ash_onnx_sequence
        sequences[MAX_TENSORS]; /* of inputs, those of optional ones that have nothing as well */
    char names[MAX_TENSORS][128];
    ash_type types[MAX_TENSORS];
    size_t n_sequences;
} tensors;

/* Reads folder/PREFIX_0.pb, folder/PREFIX_1.pb, ...: values of the inputs, or else of the outputs, of a
 * model. */
ash_status read_tensors(ash_context *context, const char *model, const char *folder, bool inputs,
                        tensors *out, ash_diag *diag);
void free_tensors(tensors *t);

#endif
