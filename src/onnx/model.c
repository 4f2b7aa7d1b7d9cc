/* SPDX-License-Identifier: MIT */
/* Field numbers are those of onnx.proto; each reader names the ones it takes. */
#include "model.h"

static const struct {
    const char *name;
    int core; /* an ash_dtype, or -1 */
} dtypes[] = {
    {"undefined", -1},      {"float", ASH_F32},  {"uint8", ASH_U8},    {"int8", ASH_I8},
    {"uint16", ASH_U16},    {"int16", ASH_I16},  {"int32", ASH_I32},   {"int64", ASH_I64},
    {"string", -1},         {"bool", ASH_BOOL},  {"float16", ASH_F16}, {"double", ASH_F64},
    {"uint32", ASH_U32},    {"uint64", ASH_U64}, {"complex64", -1},    {"complex128", -1},
    {"bfloat16", ASH_BF16},
};

/* The numbers that follow. */
static const ash_narrow narrows[] = {
    ASH_NARROW_F8E4M3FN, ASH_NARROW_F8E4M3FNUZ, ASH_NARROW_F8E5M2, ASH_NARROW_F8E5M2FNUZ,
    ASH_NARROW_U4,       ASH_NARROW_I4,         ASH_NARROW_F4E2M1, ASH_NARROW_F8E8M0,
    ASH_NARROW_U2,       ASH_NARROW_I2,         ASH_NARROW_F6E2M3, ASH_NARROW_F6E3M2,
};

static ash_narrow narrow_of(int64_t onnx) {
    uint64_t at = (uint64_t)onnx - ASH_COUNT(dtypes);
    return onnx >= 0 && at < ASH_COUNT(narrows) ? narrows[at] : ASH_NARROW_NONE;
}

bool ash_onnx__element(int64_t onnx, ash_onnx_element *out) {
    ash_narrow narrow = narrow_of(onnx);
    *out = (ash_onnx_element){ash_narrow_dtype(narrow), narrow};
    return narrow != ASH_NARROW_NONE || ash_onnx__dtype(onnx, &out->dtype);
}

int64_t ash_onnx__element_of(ash_onnx_element element) {
    for (size_t i = 0; i < ASH_COUNT(narrows) && element.narrow != ASH_NARROW_NONE; i++)
        if (narrows[i] == element.narrow) return (int64_t)(ASH_COUNT(dtypes) + i);
    return ash_onnx__dtype_of(element.dtype);
}

bool ash_onnx__dtype(int64_t onnx, ash_dtype *out) {
    if (onnx < 0 || (uint64_t)onnx >= ASH_COUNT(dtypes) || dtypes[onnx].core < 0) return false;
    *out = (ash_dtype)dtypes[onnx].core;
    return true;
}

ash_onnx_dtype ash_onnx__dtype_of(ash_dtype dtype) {
    for (size_t i = 0; i < ASH_COUNT(dtypes); i++)
        if (dtypes[i].core == (int)dtype) return (ash_onnx_dtype)i;
    return ONNX_UNDEFINED;
}

const char *ash_onnx__dtype_name(int64_t onnx) {
    ash_narrow narrow = narrow_of(onnx);
    if (narrow != ASH_NARROW_NONE) return ash_narrow_name(narrow);
    return onnx >= 0 && (uint64_t)onnx < ASH_COUNT(dtypes) ? dtypes[onnx].name : "?";
}

/* --- TensorProto ---------------------------------------------------------------------------------- */

/* A decimal number of an external_data entry: digits alone, no sign. */
static ash_status decimal(const ash_wire *wire, const ash_field *field, ash_span text, int64_t *out) {
    int64_t value = 0;
    bool good = text.len > 0;
    for (size_t i = 0; i < text.len && good; i++)
        good = text.at[i] >= '0' && text.at[i] <= '9' && ash_mul_i64(value, 10, &value) &&
               ash_add_i64(value, text.at[i] - '0', &value);
    if (!good)
        return ash_fail_at(wire->diag, ASH_ERROR_FORMAT, field->offset,
                           "a malformed number in external data");
    *out = value;
    return ASH_OK;
}

/* StringStringEntryProto: key = 1, value = 2. */
static ash_status read_external(const ash_wire *wire, const ash_field *entry, ash_onnx_tensor *out) {
    ash_wire sub;
    ash_span key = {0}, value = {0};
    ash_field field;
    bool more;
    ASH_TRY(ash_wire__enter(wire, entry, &sub));
    for (;;) {
        ASH_TRY(ash_wire__next(&sub, &field, &more));
        if (!more) break;
        if (field.number == 1) ASH_TRY(ash_wire__bytes(&sub, &field, &key));
        if (field.number == 2) ASH_TRY(ash_wire__bytes(&sub, &field, &value));
    }
    if (ash_span_is(key, "location")) out->location = value;
    if (ash_span_is(key, "offset")) return decimal(wire, entry, value, &out->ext_offset);
    if (ash_span_is(key, "length")) return decimal(wire, entry, value, &out->ext_length);
    return ASH_OK;
}

static ash_status read_dims(const ash_wire *wire, const ash_field *field, ash_onnx_tensor *out) {
    ash_packed packed;
    ASH_TRY(ash_wire__packed(wire, field, ASH_WIRE_VARINT, &packed));
    for (;;) {
        uint64_t dim;
        bool more;
        ASH_TRY(ash_packed__next(&packed, &dim, &more));
        if (!more) return ASH_OK;
        if (dim > INT64_MAX)
            return ash_fail_at(wire->diag, ASH_ERROR_FORMAT, field->offset, "a tensor with a negative dim");
        if (out->rank == ASH_MAX_RANK)
            return ash_fail_at(wire->diag, ASH_ERROR_UNSUPPORTED, field->offset,
                               "a tensor of more than %d dims", ASH_MAX_RANK);
        out->dims[out->rank++] = (int64_t)dim;
    }
}

/* dims = 1, data_type = 2, name = 8, raw_data = 9, external_data = 13, data_location = 14. */
ash_status ash_onnx__tensor_read(ash_wire message, ash_onnx_tensor *out) {
    *out = (ash_onnx_tensor){.body = message, .ext_length = -1, .offset = ash_wire__offset(&message)};
    for (;;) {
        ash_field field;
        bool more;
        int64_t location;
        ASH_TRY(ash_wire__next(&message, &field, &more));
        if (!more) return ASH_OK;
        switch (field.number) {
        case 1: ASH_TRY(read_dims(&message, &field, out)); break;
        case 2: ASH_TRY(ash_wire__int(&message, &field, &out->dtype)); break;
        case 8: ASH_TRY(ash_wire__bytes(&message, &field, &out->name)); break;
        case 9:
            ASH_TRY(ash_wire__bytes(&message, &field, &out->raw));
            out->has_raw = true;
            break;
        case 13: ASH_TRY(read_external(&message, &field, out)); break;
        case 14:
            ASH_TRY(ash_wire__int(&message, &field, &location));
            out->external = location == 1;
            break;
        default: break;
        }
    }
}

/* --- AttributeProto ------------------------------------------------------------------------------- */

/* Elements of repeated number fields with this number, in a message. */
static ash_status count_packed(ash_wire message, uint32_t number, ash_wire_type type, size_t *count) {
    *count = 0;
    for (;;) {
        ash_field field;
        bool more;
        ASH_TRY(ash_wire__next(&message, &field, &more));
        if (!more) return ASH_OK;
        if (field.number != number) continue;
        ash_packed packed;
        ASH_TRY(ash_wire__packed(&message, &field, type, &packed));
        for (uint64_t bits;; ++*count) {
            ASH_TRY(ash_packed__next(&packed, &bits, &more));
            if (!more) break;
        }
    }
}

/* The same elements as 64-bit patterns, in the arena. */
static ash_status read_packed(ash_wire message, uint32_t number, ash_wire_type type, ash_arena *arena,
                              uint64_t **out, size_t *count) {
    ASH_TRY(count_packed(message, number, type, count));
    *out = ash_arena_alloc(arena, *count, sizeof **out);
    if (!*out) return ASH_NO_MEMORY(message.diag);
    for (size_t i = 0;;) {
        ash_field field;
        bool more;
        ASH_TRY(ash_wire__next(&message, &field, &more));
        if (!more) return ASH_OK;
        if (field.number != number) continue;
        ash_packed packed;
        ASH_TRY(ash_wire__packed(&message, &field, type, &packed));
        for (;; i++) {
            uint64_t bits;
            ASH_TRY(ash_packed__next(&packed, &bits, &more));
            if (!more) break;
            (*out)[i] = bits;
        }
    }
}

static ash_status read_floats(ash_wire message, ash_arena *arena, ash_onnx_attr *out) {
    uint64_t *bits;
    ASH_TRY(read_packed(message, 7, ASH_WIRE_FIXED32, arena, &bits, &out->n));
    float *floats = ash_arena_alloc(arena, out->n, sizeof *floats);
    if (!floats) return ASH_NO_MEMORY(message.diag);
    for (size_t i = 0; i < out->n; i++) {
        uint32_t word = (uint32_t)bits[i];
        memcpy(&floats[i], &word, sizeof word);
    }
    out->floats = floats;
    return ASH_OK;
}

/* All fields with this number, which are strings or messages. */
static ash_status read_spans(ash_wire message, uint32_t number, ash_arena *arena, ash_span **out,
                             size_t *n) {
    ash_wire again = message;
    ash_field field;
    bool more;
    for (*n = 0;;) {
        ASH_TRY(ash_wire__next(&message, &field, &more));
        if (!more) break;
        *n += field.number == number;
    }
    ash_span *spans = ash_arena_alloc(arena, *n, sizeof *spans);
    if (!spans) return ASH_NO_MEMORY(message.diag);
    for (size_t i = 0; i < *n;) {
        ASH_TRY(ash_wire__next(&again, &field, &more));
        if (field.number == number) ASH_TRY(ash_wire__bytes(&again, &field, &spans[i++]));
    }
    *out = spans;
    return ASH_OK;
}

static ash_status read_attr_list(ash_wire message, ash_arena *arena, ash_onnx_attr *out) {
    uint64_t *bits;
    ash_span *strings;
    switch (out->type) {
    case ONNX_ATTR_FLOATS: return read_floats(message, arena, out);
    case ONNX_ATTR_INTS:
        ASH_TRY(read_packed(message, 8, ASH_WIRE_VARINT, arena, &bits, &out->n));
        out->ints = (const int64_t *)bits;
        return ASH_OK;
    case ONNX_ATTR_STRINGS:
        ASH_TRY(read_spans(message, 9, arena, &strings, &out->n));
        out->strings = strings;
        return ASH_OK;
    default: return ASH_OK;
    }
}

/* name = 1, f = 2, i = 3, s = 4, t = 5, g = 6, floats = 7, ints = 8, strings = 9, type = 20, ref_attr_name
 * = 21. */
static ash_status read_attr(ash_wire message, ash_arena *arena, ash_onnx_attr *out) {
    ash_wire start = message;
    int64_t seen = ONNX_ATTR_NONE;
    *out = (ash_onnx_attr){.offset = ash_wire__offset(&message)};
    for (;;) {
        ash_field field;
        bool more;
        ASH_TRY(ash_wire__next(&message, &field, &more));
        if (!more) break;
        if (field.number >= 2 && field.number <= 9) seen = field.number - 1;
        switch (field.number) {
        case 1: ASH_TRY(ash_wire__bytes(&message, &field, &out->name)); break;
        case 2: ASH_TRY(ash_wire__float(&message, &field, &out->f)); break;
        case 3: ASH_TRY(ash_wire__int(&message, &field, &out->i)); break;
        case 4: ASH_TRY(ash_wire__bytes(&message, &field, &out->s)); break;
        case 5:
        case 6: ASH_TRY(ash_wire__enter(&message, &field, &out->message)); break;
        case 20: ASH_TRY(ash_wire__int(&message, &field, &out->type)); break;
        case 21: ASH_TRY(ash_wire__bytes(&message, &field, &out->ref)); break;
        default: break;
        }
    }
    if (out->type == ONNX_ATTR_NONE) out->type = seen;
    bool is_message = out->type == ONNX_ATTR_TENSOR || out->type == ONNX_ATTR_GRAPH;
    if (is_message && !out->message.base && !out->ref.len)
        return ash_fail_at(message.diag, ASH_ERROR_FORMAT, out->offset, "attribute '%.*s' has no value",
                           ASH_SPAN_ARG(out->name));
    return read_attr_list(start, arena, out);
}

/* --- NodeProto ------------------------------------------------------------------------------------ */

/* The `n` attributes in fields with this number. */
static ash_status read_attrs(ash_wire message, uint32_t number, ash_arena *arena, size_t n,
                             ash_onnx_attr **out) {
    ash_onnx_attr *attrs = ash_arena_alloc(arena, n, sizeof *attrs);
    if (!attrs) return ASH_NO_MEMORY(message.diag);
    for (size_t i = 0; i < n; i++) {
        bool more;
        ash_wire sub;
        ASH_TRY(ash_wire__enter_next(&message, number, &sub, &more));
        ASH_TRY(read_attr(sub, arena, &attrs[i]));
    }
    *out = attrs;
    return ASH_OK;
}

/* input = 1, output = 2, name = 3, op_type = 4, attribute = 5, domain = 7, overload = 8. */
ash_status ash_onnx__node_read(ash_wire message, ash_arena *arena, ash_onnx_node *out) {
    ash_wire start = message;
    *out = (ash_onnx_node){.offset = ash_wire__offset(&message)};
    for (;;) {
        ash_field field;
        bool more;
        ASH_TRY(ash_wire__next(&message, &field, &more));
        if (!more) break;
        switch (field.number) {
        case 3: ASH_TRY(ash_wire__bytes(&message, &field, &out->name)); break;
        case 4: ASH_TRY(ash_wire__bytes(&message, &field, &out->op)); break;
        case 5: out->n_attrs++; break;
        case 7: ASH_TRY(ash_wire__bytes(&message, &field, &out->domain)); break;
        case 8: ASH_TRY(ash_wire__bytes(&message, &field, &out->overload)); break;
        default: break;
        }
    }
    ash_span *outs;
    ASH_TRY(read_spans(start, 1, arena, &out->ins, &out->n_ins));
    ASH_TRY(read_spans(start, 2, arena, &outs, &out->n_outs));
    out->outs = outs;
    return read_attrs(start, 5, arena, out->n_attrs, &out->attrs);
}

/* --- ValueInfoProto ------------------------------------------------------------------------------- */

/* TensorShapeProto.Dimension: dim_value = 1, dim_param = 2. */
static ash_status read_dim(ash_wire message, int64_t *value, ash_span *param) {
    *value = -1;
    *param = (ash_span){0};
    for (;;) {
        ash_field field;
        bool more;
        ASH_TRY(ash_wire__next(&message, &field, &more));
        if (!more) return ASH_OK;
        if (field.number == 1) {
            ASH_TRY(ash_wire__int(&message, &field, value));
            if (*value < -1)
                return ash_fail_at(message.diag, ASH_ERROR_FORMAT, field.offset,
                                   "a negative dim in a shape");
        }
        if (field.number == 2) ASH_TRY(ash_wire__bytes(&message, &field, param));
    }
}

/* TensorShapeProto: dim = 1. */
static ash_status read_shape(ash_wire message, ash_onnx_info *out) {
    out->has_shape = true;
    out->rank = 0;
    for (;;) {
        bool more;
        ash_wire sub;
        ASH_TRY(ash_wire__enter_next(&message, 1, &sub, &more));
        if (!more) return ASH_OK;
        size_t i = out->rank++;
        if (i < ASH_MAX_RANK) ASH_TRY(read_dim(sub, &out->dims[i].value, &out->dims[i].param));
    }
}

/* TypeProto.Tensor: elem_type = 1, shape = 2. */
static ash_status read_tensor_type(ash_wire tensor, ash_onnx_info *out) {
    ash_field field;
    bool more;
    ash_wire sub;
    out->tensor = true;
    for (;;) {
        ASH_TRY(ash_wire__next(&tensor, &field, &more));
        if (!more) return ASH_OK;
        if (field.number == 1) ASH_TRY(ash_wire__int(&tensor, &field, &out->dtype));
        if (field.number != 2) continue;
        ASH_TRY(ash_wire__enter(&tensor, &field, &sub));
        ASH_TRY(read_shape(sub, out));
    }
}

/* TypeProto: tensor_type = 1, sequence_type = 4, optional_type = 9, of which the element's type is field
 * 1. */
static ash_status read_type(ash_wire message, ash_onnx_info *out) {
    enum { TENSOR = 1, SEQUENCE = 4, OPTIONAL = 9 };
    ash_field field;
    bool more;
    for (;;) {
        ash_wire sub, element;
        ASH_TRY(ash_wire__next(&message, &field, &more));
        if (!more) return ASH_OK;
        bool sequence = field.number == SEQUENCE && !out->sequence;
        bool optional = field.number == OPTIONAL && !out->sequence && !out->optional;
        if (field.number != TENSOR && !sequence && !optional) continue;
        ASH_TRY(ash_wire__enter(&message, &field, &sub));
        if (field.number == TENSOR) {
            ASH_TRY(read_tensor_type(sub, out));
            continue;
        }
        out->sequence |= sequence, out->optional |= optional;
        ASH_TRY(ash_wire__enter_next(&sub, 1, &element, &more));
        if (more) ASH_TRY(read_type(element, out)); /* at most twice, by what is there already */
    }
}

/* name = 1, type = 2. */
ash_status ash_onnx__info_read(ash_wire message, ash_onnx_info *out) {
    *out = (ash_onnx_info){.offset = ash_wire__offset(&message)};
    for (;;) {
        ash_field field;
        bool more;
        ash_wire sub;
        ASH_TRY(ash_wire__next(&message, &field, &more));
        if (!more) return ASH_OK;
        if (field.number == 1) ASH_TRY(ash_wire__bytes(&message, &field, &out->name));
        if (field.number != 2) continue;
        ASH_TRY(ash_wire__enter(&message, &field, &sub));
        ASH_TRY(read_type(sub, out));
    }
}

/* --- ModelProto ----------------------------------------------------------------------------------- */

/* OperatorSetIdProto: domain = 1, version = 2. */
static ash_status read_opset(ash_wire message, ash_onnx_opset *out) {
    *out = (ash_onnx_opset){0};
    for (;;) {
        ash_field field;
        bool more;
        ASH_TRY(ash_wire__next(&message, &field, &more));
        if (!more) return ASH_OK;
        if (field.number == 1) ASH_TRY(ash_wire__bytes(&message, &field, &out->domain));
        if (field.number == 2) ASH_TRY(ash_wire__int(&message, &field, &out->version));
    }
}

/* The `n` operator sets in fields with this number. */
static ash_status read_opsets(ash_wire message, uint32_t number, ash_arena *arena, size_t n,
                              ash_onnx_opsets *out) {
    ash_onnx_opset *opsets = ash_arena_alloc(arena, n, sizeof *opsets);
    if (!opsets) return ASH_NO_MEMORY(message.diag);
    for (size_t i = 0; i < n; i++) {
        bool more;
        ash_wire sub;
        ASH_TRY(ash_wire__enter_next(&message, number, &sub, &more));
        ASH_TRY(read_opset(sub, &opsets[i]));
    }
    *out = (ash_onnx_opsets){opsets, n};
    return ASH_OK;
}

/* name = 1, input = 4, output = 5, opset_import = 9, domain = 10, attribute_proto = 11, overload = 13. */
static ash_status read_function(ash_wire message, ash_arena *arena, ash_onnx_function *out) {
    size_t n_opsets = 0;
    ash_span *names;
    ash_onnx_attr *attrs;
    *out = (ash_onnx_function){.body = message};
    for (;;) {
        ash_field field;
        bool more;
        ASH_TRY(ash_wire__next(&message, &field, &more));
        if (!more) break;
        switch (field.number) {
        case 1: ASH_TRY(ash_wire__bytes(&message, &field, &out->name)); break;
        case 9: n_opsets++; break;
        case 10: ASH_TRY(ash_wire__bytes(&message, &field, &out->domain)); break;
        case 11: out->n_attrs++; break;
        case 13: ASH_TRY(ash_wire__bytes(&message, &field, &out->overload)); break;
        default: break;
        }
    }
    ASH_TRY(read_spans(out->body, 4, arena, &names, &out->n_ins));
    out->ins = names;
    ASH_TRY(read_spans(out->body, 5, arena, &names, &out->n_outs));
    out->outs = names;
    ASH_TRY(read_attrs(out->body, 11, arena, out->n_attrs, &attrs));
    out->attrs = attrs;
    return read_opsets(out->body, 9, arena, n_opsets, &out->opsets);
}

static ash_status read_functions(ash_wire message, ash_arena *arena, ash_onnx_model *out) {
    ash_onnx_function *functions = ash_arena_alloc(arena, out->n_functions, sizeof *functions);
    if (!functions) return ASH_NO_MEMORY(message.diag);
    for (size_t i = 0; i < out->n_functions; i++) {
        bool more;
        ash_wire sub;
        ASH_TRY(ash_wire__enter_next(&message, 25, &sub, &more));
        ASH_TRY(read_function(sub, arena, &functions[i]));
    }
    out->functions = functions;
    return ASH_OK;
}

/* ir_version = 1, graph = 7, opset_import = 8, functions = 25. */
ash_status ash_onnx__model_read(ash_wire message, ash_arena *arena, ash_onnx_model *out) {
    ash_wire start = message;
    size_t n_opsets = 0;
    *out = (ash_onnx_model){0};
    for (;;) {
        ash_field field;
        bool more;
        ASH_TRY(ash_wire__next(&message, &field, &more));
        if (!more) break;
        switch (field.number) {
        case 1: ASH_TRY(ash_wire__int(&message, &field, &out->ir_version)); break;
        case 7:
            ASH_TRY(ash_wire__enter(&message, &field, &out->graph));
            out->has_graph = true;
            break;
        case 8: n_opsets++; break;
        case 25: out->n_functions++; break;
        default: break;
        }
    }
    ASH_TRY(read_opsets(start, 8, arena, n_opsets, &out->opsets));
    return read_functions(start, arena, out);
}
