/* SPDX-License-Identifier: MIT */
#include "wire.h"

ash_wire ash_wire__open(const void *data, size_t size, ash_diag *diag) {
    return (ash_wire){data, data, (const uint8_t *)data + size, ASH_WIRE_DEPTH, diag};
}

static ash_status malformed(const ash_wire *wire, const uint8_t *at, const char *what) {
    return ash_fail_at(wire->diag, ASH_ERROR_FORMAT, (uint64_t)(at - wire->base), "%s", what);
}

/* At most ten bytes, seven bits each, least significant first; the tenth holds one bit. */
static ash_status varint(ash_wire *wire, uint64_t *out) {
    const uint8_t *start = wire->at;
    uint64_t value = 0;
    for (unsigned shift = 0; shift < 64; shift += 7) {
        if (wire->at == wire->end) return malformed(wire, start, "the data end inside a number");
        uint8_t byte = *wire->at++;
        if (shift == 63 && byte > 1) break;
        value |= (uint64_t)(byte & 0x7f) << shift;
        if (!(byte & 0x80)) {
            *out = value;
            return ASH_OK;
        }
    }
    return malformed(wire, start, "a number of more than 64 bits");
}

static ash_status fixed(ash_wire *wire, unsigned bytes, uint64_t *out) {
    if ((size_t)(wire->end - wire->at) < bytes)
        return malformed(wire, wire->at, "the data end inside a number");
    uint64_t value = 0;
    for (unsigned i = 0; i < bytes; i++) value |= (uint64_t)wire->at[i] << (8 * i);
    wire->at += bytes;
    *out = value;
    return ASH_OK;
}

ash_status ash_wire__next(ash_wire *wire, ash_field *field, bool *more) {
    *more = wire->at < wire->end;
    if (!*more) return ASH_OK;
    const uint8_t *start = wire->at;
    uint64_t tag, len;
    ASH_TRY(varint(wire, &tag));
    if (tag >> 3 == 0 || tag >> 3 > (1u << 29) - 1)
        return malformed(wire, start, "a field number that cannot be");
    *field = (ash_field){
        .number = (uint32_t)(tag >> 3), .type = tag & 7, .offset = (uint64_t)(start - wire->base)};
    switch (field->type) {
    case ASH_WIRE_VARINT: return varint(wire, &field->value);
    case ASH_WIRE_FIXED64: return fixed(wire, 8, &field->value);
    case ASH_WIRE_FIXED32: return fixed(wire, 4, &field->value);
    case ASH_WIRE_BYTES:
        ASH_TRY(varint(wire, &len));
        if (len > (uint64_t)(wire->end - wire->at))
            return malformed(wire, start, "a field that is longer than what contains it");
        field->bytes = (ash_span){wire->at, (size_t)len};
        wire->at += len;
        return ASH_OK;
    }
    return malformed(wire, start, "a field of an unknown wire type");
}

static ash_status want(const ash_wire *wire, const ash_field *field, ash_wire_type type) {
    if (field->type == type) return ASH_OK;
    return ash_fail_at(wire->diag, ASH_ERROR_FORMAT, field->offset, "field %u has wire type %u, not %u",
                       (unsigned)field->number, (unsigned)field->type, (unsigned)type);
}

ash_status ash_wire__enter_next(ash_wire *wire, uint32_t number, ash_wire *sub, bool *more) {
    ash_field field;
    do {
        ASH_TRY(ash_wire__next(wire, &field, more));
        if (!*more) return ASH_OK;
    } while (field.number != number);
    return ash_wire__enter(wire, &field, sub);
}

ash_status ash_wire__enter(const ash_wire *wire, const ash_field *field, ash_wire *sub) {
    ASH_TRY(want(wire, field, ASH_WIRE_BYTES));
    if (wire->depth == 0)
        return ash_fail_at(wire->diag, ASH_ERROR_FORMAT, field->offset, "messages nest more than %d deep",
                           ASH_WIRE_DEPTH);
    *sub = (ash_wire){wire->base, field->bytes.at, field->bytes.at + field->bytes.len, wire->depth - 1,
                      wire->diag};
    return ASH_OK;
}

ash_status ash_wire__bytes(const ash_wire *wire, const ash_field *field, ash_span *out) {
    ASH_TRY(want(wire, field, ASH_WIRE_BYTES));
    *out = field->bytes;
    return ASH_OK;
}

ash_status ash_wire__int(const ash_wire *wire, const ash_field *field, int64_t *out) {
    ASH_TRY(want(wire, field, ASH_WIRE_VARINT));
    *out = (int64_t)field->value;
    return ASH_OK;
}

ash_status ash_wire__float(const ash_wire *wire, const ash_field *field, float *out) {
    ASH_TRY(want(wire, field, ASH_WIRE_FIXED32));
    uint32_t bits = (uint32_t)field->value;
    memcpy(out, &bits, sizeof bits);
    return ASH_OK;
}

ash_status ash_wire__packed(const ash_wire *wire, const ash_field *field, ash_wire_type type,
                            ash_packed *out) {
    *out = (ash_packed){.wire = *wire, .type = type};
    if (field->type == type) {
        out->single = field->value;
        out->has_single = true;
        out->wire.at = out->wire.end;
        return ASH_OK;
    }
    ASH_TRY(want(wire, field, ASH_WIRE_BYTES));
    out->wire.at = field->bytes.at;
    out->wire.end = field->bytes.at + field->bytes.len;
    return ASH_OK;
}

ash_status ash_packed__next(ash_packed *packed, uint64_t *value, bool *more) {
    *more = packed->has_single || packed->wire.at < packed->wire.end;
    if (!*more) return ASH_OK;
    if (packed->has_single) {
        *value = packed->single;
        packed->has_single = false;
        return ASH_OK;
    }
    switch (packed->type) {
    case ASH_WIRE_FIXED32: return fixed(&packed->wire, 4, value);
    case ASH_WIRE_FIXED64: return fixed(&packed->wire, 8, value);
    default: return varint(&packed->wire, value);
    }
}
