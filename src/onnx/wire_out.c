/* SPDX-License-Identifier: MIT */
#include "wire_out.h"

#include <stdio.h>

#include "model.h"
#include "wire.h"

static void put(ash_wire_out *out, const void *bytes, size_t len) {
    if (out->sink) ash_sink_write(out->sink, bytes, len);
    if (out->text) ash_text_add_bytes(out->text, bytes, len);
    out->position += len;
}

static void varint(ash_wire_out *out, uint64_t value) {
    uint8_t bytes[10];
    size_t n = 0;
    for (; value >= 0x80; value >>= 7) bytes[n++] = (uint8_t)(value | 0x80);
    bytes[n++] = (uint8_t)value;
    put(out, bytes, n);
}

static unsigned varint_size(uint64_t value) {
    unsigned n = 1;
    while (value >>= 7) n++;
    return n;
}

static void tag(ash_wire_out *out, uint32_t field, ash_wire_type type) {
    varint(out, (uint64_t)field << 3 | type);
}

void ash_wire_out__int(ash_wire_out *out, uint32_t field, int64_t value) {
    tag(out, field, ASH_WIRE_VARINT);
    varint(out, (uint64_t)value);
}

void ash_wire_out__float(ash_wire_out *out, uint32_t field, float value) {
    tag(out, field, ASH_WIRE_FIXED32);
    put(out, &value, sizeof value);
}

void ash_wire_out__head(ash_wire_out *out, uint32_t field, uint64_t len) {
    tag(out, field, ASH_WIRE_BYTES);
    varint(out, len);
}

void ash_wire_out__bytes(ash_wire_out *out, uint32_t field, const void *bytes, size_t len) {
    ash_wire_out__head(out, field, len);
    put(out, bytes, len);
}

void ash_wire_out__text(ash_wire_out *out, uint32_t field, const char *text) {
    ash_wire_out__bytes(out, field, text, strlen(text));
}

void ash_wire_out__message(ash_wire_out *out, uint32_t field,
                           void (*body)(ash_wire_out *out, const void *data), const void *data) {
    ash_wire_out count = {0};
    body(&count, data);
    ash_wire_out__head(out, field, count.position);
    body(out, data);
}

/* --- TensorProto ---------------------------------------------------------------------------------- */

typedef struct wire_entry {
    const char *key, *value;
} wire_entry;

static void entry_body(ash_wire_out *out, const void *data) {
    const wire_entry *e = data;
    ash_wire_out__text(out, 1, e->key);
    ash_wire_out__text(out, 2, e->value);
}

static void external_fields(ash_wire_out *out, const ash_onnx_tensor_out *tensor) {
    char number[32];
    ash_wire_out__message(out, 13, entry_body, &(wire_entry){"location", tensor->external});
    snprintf(number, sizeof number, "%llu", (unsigned long long)tensor->offset);
    ash_wire_out__message(out, 13, entry_body, &(wire_entry){"offset", number});
    snprintf(number, sizeof number, "%zu", tensor->size);
    ash_wire_out__message(out, 13, entry_body, &(wire_entry){"length", number});
    ash_wire_out__int(out, 14, 1);
}

/* All fields but the data: dims = 1, data_type = 2, name = 8, external_data = 13, data_location = 14. */
static void tensor_fields(ash_wire_out *out, const ash_onnx_tensor_out *tensor) {
    for (unsigned i = 0; i < tensor->type->rank; i++) ash_wire_out__int(out, 1, tensor->type->dims[i]);
    ash_wire_out__int(out, 2,
                      ash_onnx__element_of((ash_onnx_element){tensor->type->dtype, tensor->narrow}));
    if (tensor->name[0]) ash_wire_out__text(out, 8, tensor->name);
    if (tensor->external) external_fields(out, tensor);
}

enum { DOC_STRING = 12, RAW_DATA = 9, MAX_ALIGN = 64 };

/* Length of the doc_string that makes the data start at a multiple of `align`, when what precedes it ends
 * at `position`; 0: none is needed. A doc_string takes two bytes beside its text. */
static size_t padding(uint64_t position, const ash_onnx_tensor_out *tensor) {
    uint64_t start = position + 1 + varint_size(tensor->size);
    size_t gap = (size_t)(ash_align_up(start, tensor->align) - start);
    if (gap == 0) return 0;
    return gap > 2 ? gap - 2 : gap + tensor->align - 2;
}

void ash_wire_out__tensor(ash_wire_out *out, uint32_t field, const ash_onnx_tensor_out *tensor) {
    char spaces[2 * MAX_ALIGN];
    memset(spaces, ' ', sizeof spaces);
    ash_wire_out count = {0};
    tensor_fields(&count, tensor);
    uint64_t fields = count.position,
             data = tensor->external ? 0 : 1 + varint_size(tensor->size) + tensor->size;
    size_t pad = 0;
    /* The header's length depends on the padding and the padding on the header's length; it grows by a byte
     * at most. */
    for (unsigned head = field ? 2 : 0;; head++) {
        pad = tensor->external || tensor->align <= 1 ? 0 : padding(out->position + head + fields, tensor);
        uint64_t len = fields + data + (pad ? pad + 2 : 0);
        if (!field) break;
        if (head < 1 + varint_size(len)) continue;
        ash_wire_out__head(out, field, len);
        break;
    }
    tensor_fields(out, tensor);
    if (pad) ash_wire_out__bytes(out, DOC_STRING, spaces, pad);
    if (!tensor->external) ash_wire_out__bytes(out, RAW_DATA, tensor->data, tensor->size);
}
