/* SPDX-License-Identifier: MIT */
/* The messages of an ONNX file (onnx.proto), as far as a compiler needs them. Each is read on its own, when
 * its turn comes: names and weights stay in the file, lists go to an arena that the caller frees when it
 * has done with the message. A whole model is never held as a tree, and so a hostile file cannot make a
 * small input large in memory. */
#ifndef ASH_ONNX_MODEL_H
#define ASH_ONNX_MODEL_H

#include "ashlar/narrow.h"
#include "base/arena.h"
#include "wire.h"

/* TensorProto.DataType */
typedef enum ash_onnx_dtype {
    ONNX_UNDEFINED = 0,
    ONNX_FLOAT = 1,
    ONNX_UINT8 = 2,
    ONNX_INT8 = 3,
    ONNX_UINT16 = 4,
    ONNX_INT16 = 5,
    ONNX_INT32 = 6,
    ONNX_INT64 = 7,
    ONNX_STRING = 8,
    ONNX_BOOL = 9,
    ONNX_FLOAT16 = 10,
    ONNX_DOUBLE = 11,
    ONNX_UINT32 = 12,
    ONNX_UINT64 = 13,
    ONNX_BFLOAT16 = 16
} ash_onnx_dtype;

/* The core dtype of an ONNX one; false when there is none. */
bool ash_onnx__dtype(int64_t onnx, ash_dtype *out);
/* The same, and where the core has bytes for it also what these stand for. */
typedef struct ash_onnx_element {
    ash_dtype dtype;
    ash_narrow narrow;
} ash_onnx_element;
bool ash_onnx__element(int64_t onnx, ash_onnx_element *out);
int64_t ash_onnx__element_of(ash_onnx_element element);
/* And back: every core dtype has one. */
ash_onnx_dtype ash_onnx__dtype_of(ash_dtype dtype);
/* "float16", "complex64", ...; "?" for an unknown number. */
const char *ash_onnx__dtype_name(int64_t onnx);

/* TensorProto: the header; data.c reads the elements. */
typedef struct ash_onnx_tensor {
    ash_wire body; /* the whole message */
    ash_span name, raw, location;
    int64_t dtype; /* an ash_onnx_dtype, unchecked */
    unsigned rank;
    int64_t dims[ASH_MAX_RANK]; /* not negative */
    bool has_raw, external;
    int64_t ext_offset, ext_length; /* bytes in the external file; a length of -1: to its end */
    uint64_t offset;                /* of the message in the file */
} ash_onnx_tensor;

/* AttributeProto.AttributeType */
typedef enum ash_onnx_attr_type {
    ONNX_ATTR_NONE = 0,
    ONNX_ATTR_FLOAT = 1,
    ONNX_ATTR_INT = 2,
    ONNX_ATTR_STRING = 3,
    ONNX_ATTR_TENSOR = 4,
    ONNX_ATTR_GRAPH = 5,
    ONNX_ATTR_FLOATS = 6,
    ONNX_ATTR_INTS = 7,
    ONNX_ATTR_STRINGS = 8
} ash_onnx_attr_type;

typedef struct ash_onnx_attr {
    ash_span name;
    int64_t type; /* an ash_onnx_attr_type, unchecked; derived from the fields when the file has none (IR
                     version 1) */
    int64_t i;
    float f;
    ash_span s, ref;  /* ref: the attribute of the surrounding function that gives the value */
    ash_wire message; /* of a tensor or graph */
    size_t n;         /* elements of the list that is there */
    const int64_t *ints;
    const float *floats;
    const ash_span *strings;
    uint64_t offset;
} ash_onnx_attr;

typedef struct ash_onnx_node {
    ash_span name, op, domain, overload;
    size_t n_ins, n_outs, n_attrs;
    ash_span *ins;
    const ash_span *outs;
    ash_onnx_attr *attrs;
    uint64_t offset; /* of the message in the file */
} ash_onnx_node;

/* ValueInfoProto, for graph inputs. */
typedef struct ash_onnx_info {
    ash_span name;
    bool tensor, has_shape;  /* tensors, of which the rest tells; not a map, a sparse tensor or sequences of
                               sequences */
    bool sequence, optional; /* of tensors; an optional may be one of a sequence */
    int64_t dtype;           /* an ash_onnx_dtype, unchecked */
    size_t rank;             /* may exceed ASH_MAX_RANK: then `dims` has the first of them */
    struct {
        int64_t value; /* elements, or -1 when it is not known */
        ash_span param;
    } dims[ASH_MAX_RANK];
    uint64_t offset;
} ash_onnx_info;

ash_status ash_onnx__tensor_read(ash_wire message, ash_onnx_tensor *out);
ash_status ash_onnx__node_read(ash_wire message, ash_arena *arena, ash_onnx_node *out);
ash_status ash_onnx__info_read(ash_wire message, ash_onnx_info *out);

typedef struct ash_onnx_opset {
    ash_span domain;
    int64_t version;
} ash_onnx_opset;

typedef struct ash_onnx_opsets {
    const ash_onnx_opset *at;
    size_t n;
} ash_onnx_opsets;

/* FunctionProto: an operator that the model defines by nodes. */
typedef struct ash_onnx_function {
    ash_span name, domain, overload;
    size_t n_ins, n_outs, n_attrs;
    const ash_span *ins, *outs;
    const ash_onnx_attr *attrs; /* those with a default value */
    ash_onnx_opsets opsets;
    ash_wire body; /* the whole message, of which ONNX_FUNCTION_NODE are the nodes */
} ash_onnx_function;

/* Fields of GraphProto and FunctionProto. */
enum { ONNX_GRAPH_NODE = 1, ONNX_FUNCTION_NODE = 7 };

typedef struct ash_onnx_model {
    int64_t ir_version;
    ash_wire graph;
    bool has_graph;
    ash_onnx_opsets opsets;
    size_t n_functions;
    const ash_onnx_function *functions;
} ash_onnx_model;

ash_status ash_onnx__model_read(ash_wire message, ash_arena *arena, ash_onnx_model *out);

/* The default domain is written as "" and as "ai.onnx". */
static inline bool ash_onnx__is_default_domain(ash_span domain) {
    return domain.len == 0 || ash_span_is(domain, "ai.onnx");
}

#endif
