/* SPDX-License-Identifier: MIT */
/* Serialised ONNX messages made by hand. */
#ifndef ASH_ONNX_BYTES_H
#define ASH_ONNX_BYTES_H

#include <stdint.h>
#include <string.h>

typedef struct bytes {
    uint8_t at[1 << 14];
    size_t len;
} bytes;

static inline void put(bytes *b, const void *data, size_t len) {
    if (len <= sizeof b->at - b->len) {
        memcpy(b->at + b->len, data, len);
        b->len += len;
    }
}

static inline void put_varint(bytes *b, uint64_t value) {
    for (; value >= 0x80; value >>= 7) put(b, &(uint8_t){(uint8_t)(value | 0x80)}, 1);
    put(b, &(uint8_t){(uint8_t)value}, 1);
}

static inline void put_int(bytes *b, uint32_t field, int64_t value) {
    put_varint(b, (uint64_t)field << 3);
    put_varint(b, (uint64_t)value);
}

static inline void put_bytes(bytes *b, uint32_t field, const void *data, size_t len) {
    put_varint(b, (uint64_t)field << 3 | 2);
    put_varint(b, len);
    put(b, data, len);
}

static inline void put_text(bytes *b, uint32_t field, const char *text) {
    put_bytes(b, field, text, strlen(text));
}

static inline void put_message(bytes *b, uint32_t field, const bytes *message) {
    put_bytes(b, field, message->at, message->len);
}

/* NodeProto with up to two operands and one result; NULL: none. */
static inline bytes make_node(const char *name, const char *op, const char *a, const char *b,
                              const char *out) {
    bytes n = {.len = 0};
    if (a) put_text(&n, 1, a);
    if (b) put_text(&n, 1, b);
    if (out) put_text(&n, 2, out);
    if (name) put_text(&n, 3, name);
    put_text(&n, 4, op);
    return n;
}

enum { ONNX_F32 = 1, ONNX_I64 = 7 }; /* TensorProto.DataType */

/* ValueInfoProto of a tensor of this type with this TensorShapeProto. */
static inline bytes typed_info(const char *name, int dtype, const bytes *shape) {
    bytes tensor = {.len = 0}, type = {.len = 0}, info = {.len = 0};
    put_int(&tensor, 1, dtype);
    put_message(&tensor, 2, shape);
    put_message(&type, 1, &tensor);
    put_text(&info, 1, name);
    put_message(&info, 2, &type);
    return info;
}

static inline bytes shaped_info(const char *name, const bytes *shape) {
    return typed_info(name, ONNX_F32, shape);
}

/* The same; a dim of -1 is the parameter "n", and one of -2 "m". */
static inline bytes make_info(const char *name, const int64_t *dims, size_t rank) {
    bytes shape = {.len = 0};
    for (size_t i = 0; i < rank; i++) {
        bytes dim = {.len = 0};
        if (dims[i] >= 0)
            put_int(&dim, 1, dims[i]);
        else
            put_text(&dim, 2, dims[i] == -1 ? "n" : "m");
        put_message(&shape, 1, &dim);
    }
    return shaped_info(name, &shape);
}

/* TensorProto with raw data. */
static inline bytes make_tensor(const char *name, int dtype, const int64_t *dims, size_t rank,
                                const void *data, size_t size) {
    bytes t = {.len = 0};
    for (size_t i = 0; i < rank; i++) put_int(&t, 1, dims[i]);
    put_int(&t, 2, dtype);
    if (name) put_text(&t, 8, name);
    put_bytes(&t, 9, data, size);
    return t;
}

/* ModelProto around a graph, of one operator set of the default domain. */
static inline bytes make_model(const bytes *graph, int opset) {
    bytes model = {.len = 0}, set = {.len = 0};
    put_int(&set, 2, opset);
    put_int(&model, 1, 8);
    put_message(&model, 7, graph);
    put_message(&model, 8, &set);
    return model;
}

/* A graph of one node: x f32[dims] -> op -> y. */
static inline bytes make_unary(const char *name, const char *op, const int64_t *dims, size_t rank,
                               int opset) {
    bytes graph = {.len = 0}, node = make_node(name, op, "x", NULL, "y"), x = make_info("x", dims, rank);
    bytes y = make_info("y", dims, 0);
    put_message(&graph, 1, &node);
    put_message(&graph, 11, &x);
    put_message(&graph, 12, &y);
    return make_model(&graph, opset);
}

#endif
