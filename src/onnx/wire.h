/* SPDX-License-Identifier: MIT */
/* Reading of the protocol buffer wire format (protobuf.dev, "Encoding"), bounded in every step.
 *
 * A message is a range of bytes; its fields are visited in order, and a field that is itself a message
 * becomes another range. Nothing is copied and nothing is built: callers pick the fields that they know and
 * skip the rest. Every length is compared with the range that contains it, so no read leaves the outermost
 * range, and nesting is bounded. Offsets in diagnostics count from `base`, the first byte of the file. */
#ifndef ASH_WIRE_H
#define ASH_WIRE_H

#include "base/base.h"

/* Text or bytes that lie in the file: not terminated. */
typedef struct ash_span {
    const uint8_t *at;
    size_t len;
} ash_span;

/* A message of which the fields before `at` have been read. */
typedef struct ash_wire {
    const uint8_t *base; /* offset 0 of the file */
    const uint8_t *at, *end;
    unsigned depth; /* how deep messages may still nest below this one */
    ash_diag *diag;
} ash_wire;

typedef enum ash_wire_type {
    ASH_WIRE_VARINT = 0,
    ASH_WIRE_FIXED64 = 1,
    ASH_WIRE_BYTES = 2,
    ASH_WIRE_FIXED32 = 5
} ash_wire_type;

typedef struct ash_field {
    uint32_t number;
    ash_wire_type type;
    uint64_t offset; /* of its tag, bytes from the start of the file */
    uint64_t value;  /* VARINT, FIXED32 and FIXED64 */
    ash_span bytes;  /* BYTES */
} ash_field;

enum { ASH_WIRE_DEPTH = 64 };

/* The outermost message: `size` bytes at `data`, which is also where offsets count from. */
ash_wire ash_wire__open(const void *data, size_t size, ash_diag *diag);
/* Reads the next field into *field, or sets *more to false at the end. */
ash_status ash_wire__next(ash_wire *wire, ash_field *field, bool *more);
/* Opens a field that is a message. */
ash_status ash_wire__enter(const ash_wire *wire, const ash_field *field, ash_wire *sub);
/* Both: opens the next field of that number, passing over others, or sets *more to false at the end. */
ash_status ash_wire__enter_next(ash_wire *wire, uint32_t number, ash_wire *sub, bool *more);

/* The value of a field of a given type; a field of another wire type is an error. */
ash_status ash_wire__bytes(const ash_wire *wire, const ash_field *field, ash_span *out);
ash_status ash_wire__int(const ash_wire *wire, const ash_field *field, int64_t *out);
ash_status ash_wire__float(const ash_wire *wire, const ash_field *field, float *out);

/* Repeated numbers come packed (one BYTES field) or one a field: a cursor over either. `type` is the wire
 * type of one element. */
typedef struct ash_packed {
    ash_wire wire;
    ash_wire_type type;
    uint64_t single; /* the only element of an unpacked field */
    bool has_single;
} ash_packed;

ash_status ash_wire__packed(const ash_wire *wire, const ash_field *field, ash_wire_type type,
                            ash_packed *out);
/* Reads the next element's bits, or sets *more to false. */
ash_status ash_packed__next(ash_packed *packed, uint64_t *value, bool *more);

static inline uint64_t ash_wire__offset(const ash_wire *wire) {
    return (uint64_t)(wire->at - wire->base);
}
static inline bool ash_span_is(ash_span span, const char *text) {
    return span.len == strlen(text) && (span.len == 0 || memcmp(span.at, text, span.len) == 0);
}
static inline bool ash_span_equal(ash_span a, ash_span b) {
    return a.len == b.len && (a.len == 0 || memcmp(a.at, b.at, a.len) == 0);
}
/* For "%.*s": a length that fits, cut where a diagnostic would cut it anyway. */
#define ASH_SPAN_ARG(s) (int)ASH_MIN((s).len, (size_t)256), (s).len ? (const char *)(s).at : ""

#endif
