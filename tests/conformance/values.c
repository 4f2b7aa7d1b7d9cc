/* SPDX-License-Identifier: MIT */
/* Files of TensorProto, SequenceProto and OptionalProto. Which of them a file has is the model's to say;
 * only of an optional one that is a tensor, both a tensor and an optional may be there. */
#include "values.h"

#include <stdio.h>
#include <string.h>

#include "onnx/tensor.h"

enum { MODEL_GRAPH = 7, GRAPH_INPUT = 11, GRAPH_OUTPUT = 12, TENSOR_NAME = 8 };
enum { SEQUENCE_TENSOR = 3, OPTIONAL_TENSOR = 3, OPTIONAL_SEQUENCE = 5 };

void free_tensors(tensors *t) {
    for (size_t i = 0; i < t->n; i++) ash_tensor_destroy(t->at[i]);
    t->n = 0;
}

/* The type of the input or output at a position; what is none is a tensor. */
static ash_status info_at(const ash_file *model, bool input, size_t position, ash_onnx_info *out,
                          ash_diag *diag) {
    ash_wire wire = ash_wire__open(model->data, model->size, diag), graph, message;
    bool more;
    *out = (ash_onnx_info){.tensor = true};
    ASH_TRY(ash_wire__enter_next(&wire, MODEL_GRAPH, &graph, &more));
    for (size_t i = 0; more; i++) {
        ASH_TRY(ash_wire__enter_next(&graph, input ? GRAPH_INPUT : GRAPH_OUTPUT, &message, &more));
        if (more && i == position) return ash_onnx__info_read(message, out);
    }
    return ASH_OK;
}

static ash_status add_tensor(ash_context *context, ash_file *file, ash_wire message, const char *name,
                             tensors *out, ash_diag *diag) {
    ash_onnx_tensor tensor;
    ash_onnx_element element;
    ash_type type;
    ash_blob *blob;
    ash_onnx_source source = {.context = context,
                              .allocator = ash_context__allocator(context),
                              .file = file,
                              .copy_bytes = SIZE_MAX};
    ASH_FAIL_IF(out->n == MAX_TENSORS, diag, ASH_ERROR_UNSUPPORTED, "more than %d tensors", MAX_TENSORS);
    ASH_TRY(ash_onnx__tensor_read(message, &tensor));
    ASH_TRY(ash_onnx__tensor_data(&source, &tensor, &type, &blob));
    ASH_TRY(ash_tensor__make(context, name, strlen(name), &type, blob, &out->at[out->n], diag));
    ash_onnx__element(tensor.dtype, &element);
    return ash_tensor_set_narrow(out->at[out->n++], element.narrow, diag);
}

/* The tensors of a SequenceProto, and what the import is told of them. */
static ash_status add_sequence(ash_context *context, ash_file *file, ash_wire message,
                               ash_onnx_sequence *given, tensors *out, ash_diag *diag) {
    size_t first = out->n;
    given->types = &out->types[first];
    for (;; given->length++) {
        char name[160];
        ash_wire sub;
        bool more;
        ASH_TRY(ash_wire__enter_next(&message, SEQUENCE_TENSOR, &sub, &more));
        if (!more) return ASH_OK;
        snprintf(name, sizeof name, "%s.%zu", given->input, given->length);
        ASH_TRY(add_tensor(context, file, sub, name, out, diag));
        out->types[out->n - 1] = *ash_tensor_type(out->at[out->n - 1]);
    }
}

static bool has_field(ash_wire message, uint32_t number) {
    ash_field field;
    for (bool more = true; more;)
        if (ash_wire__next(&message, &field, &more) != ASH_OK || (more && field.number == number))
            return true;
    return false;
}

/* A value that is more than a tensor. */
static ash_status add_value(ash_context *context, ash_file *file, const ash_onnx_info *info, tensors *out,
                            ash_diag *diag) {
    ash_wire message = ash_wire__open(file->data, file->size, diag), sub;
    ASH_FAIL_IF(out->n_sequences == MAX_TENSORS, diag, ASH_ERROR_UNSUPPORTED, "more than %d sequences",
                MAX_TENSORS);
    char *name = out->names[out->n_sequences];
    ash_onnx_sequence *given = &out->sequences[out->n_sequences];
    bool more = false;
    snprintf(name, sizeof out->names[0], "%.*s", ASH_SPAN_ARG(info->name));
    *given = (ash_onnx_sequence){.input = name};
    if (!info->optional) {
        out->n_sequences++;
        return add_sequence(context, file, message, given, out, diag);
    }
    if (!info->sequence && has_field(message, TENSOR_NAME))
        return add_tensor(context, file, message, name, out, diag);
    ASH_TRY(
        ash_wire__enter_next(&message, info->sequence ? OPTIONAL_SEQUENCE : OPTIONAL_TENSOR, &sub, &more));
    if (more && !info->sequence) return add_tensor(context, file, sub, name, out, diag);
    out->n_sequences++;
    given->absent = !more;
    return more ? add_sequence(context, file, sub, given, out, diag) : ASH_OK;
}

static ash_status read_value(ash_context *context, const ash_file *model, const char *path, bool input,
                             size_t position, tensors *out, ash_diag *diag) {
    ash_onnx_info info;
    ASH_TRY(info_at(model, input, position, &info, diag));
    if (!info.sequence && !info.optional) {
        ASH_FAIL_IF(out->n == MAX_TENSORS, diag, ASH_ERROR_UNSUPPORTED, "more than %d tensors",
                    MAX_TENSORS);
        ASH_TRY(ash_tensor_read(context, path, &out->at[out->n], diag));
        out->n++;
        return ASH_OK;
    }
    ash_file *file;
    ASH_TRY(ash_file_map(context, path, &file, diag));
    ash_status status = add_value(context, file, &info, out, diag);
    ash_file_release(file);
    return status;
}

ash_status read_tensors(ash_context *context, const char *model, const char *folder, bool inputs,
                        tensors *out, ash_diag *diag) {
    char path[4096];
    ash_file *file;
    ash_status status = ash_file_map(context, model, &file, diag);
    out->n = out->n_sequences = 0;
    if (status != ASH_OK) return status;
    for (size_t i = 0; status == ASH_OK; i++) {
        snprintf(path, sizeof path, "%s/%s_%zu.pb", folder, inputs ? "input" : "output", i);
        FILE *there = fopen(path, "rb");
        if (!there) break;
        fclose(there);
        status = read_value(context, file, path, inputs, i, out, diag);
    }
    ash_file_release(file);
    return status;
}
