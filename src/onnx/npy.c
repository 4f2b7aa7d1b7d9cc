/* SPDX-License-Identifier: MIT */
/* NumPy's .npy format (numpy.lib.format): a magic string, a version, the length of a header, the header (a
 * Python dict with descr, fortran_order and shape), and the elements. */
#include <stdio.h>

#include "base/text.h"
#include "tensor.h"

static const uint8_t magic[] = {0x93, 'N', 'U', 'M', 'P', 'Y'};

static const struct {
    char kind;
    unsigned size; /* bytes of an element */
    ash_dtype dtype;
    const char *descr; /* as written */
} types[] = {
    {'f', 4, ASH_F32, "<f4"}, {'f', 8, ASH_F64, "<f8"}, {'f', 2, ASH_F16, "<f2"}, {'i', 1, ASH_I8, "|i1"},
    {'i', 2, ASH_I16, "<i2"}, {'i', 4, ASH_I32, "<i4"}, {'i', 8, ASH_I64, "<i8"}, {'u', 1, ASH_U8, "|u1"},
    {'u', 2, ASH_U16, "<u2"}, {'u', 4, ASH_U32, "<u4"}, {'u', 8, ASH_U64, "<u8"}, {'b', 1, ASH_BOOL, "|b1"},
};

const char *ash_npy__descr(ash_dtype dtype) {
    for (size_t i = 0; i < ASH_COUNT(types); i++)
        if (types[i].dtype == dtype) return types[i].descr;
    return NULL;
}

bool ash_npy__is(const ash_file *file) {
    return file->size >= sizeof magic && memcmp(file->data, magic, sizeof magic) == 0;
}

/* --- the header: a dict literal ------------------------------------------------------------------- */

typedef struct header {
    const uint8_t *base, *at, *end;
    ash_diag *diag;
    ash_type type;
    bool swap, fortran; /* big-endian elements; first dim fastest */
    bool has_descr, has_order, has_shape;
} header;

static ash_status malformed(const header *h, const char *what) {
    return ash_fail_at(h->diag, ASH_ERROR_FORMAT, (uint64_t)(h->at - h->base),
                       "%s in the header of a .npy file", what);
}

static void skip_space(header *h) {
    while (h->at < h->end && (*h->at == ' ' || *h->at == '\n' || *h->at == '\t' || *h->at == '\r')) h->at++;
}

static bool take(header *h, char c) {
    skip_space(h);
    if (h->at == h->end || *h->at != (uint8_t)c) return false;
    h->at++;
    return true;
}

static ash_status text(header *h, ash_span *out) {
    skip_space(h);
    uint8_t quote = h->at < h->end ? *h->at : 0;
    if (quote != '\'' && quote != '"') return malformed(h, "no string where one belongs");
    const uint8_t *start = ++h->at;
    while (h->at < h->end && *h->at != quote) h->at++;
    if (h->at == h->end) return malformed(h, "an unfinished string");
    *out = (ash_span){start, (size_t)(h->at++ - start)};
    return ASH_OK;
}

static ash_status descr(header *h) {
    ash_span s = {0};
    ASH_TRY(text(h, &s));
    unsigned size = 0;
    for (size_t i = 2; i < s.len && i < 5; i++) size = size * 10 + (unsigned)(s.at[i] - '0');
    for (size_t i = 0; i < ASH_COUNT(types) && s.len >= 3; i++) {
        if (s.at[1] != (uint8_t)types[i].kind || size != types[i].size) continue;
        h->type.dtype = types[i].dtype;
        h->swap = s.at[0] == '>' && size > 1;
        h->has_descr = true;
        return ASH_OK;
    }
    return ash_fail_at(h->diag, ASH_ERROR_UNSUPPORTED, (uint64_t)(h->at - h->base),
                       "a .npy file of type '%.*s'", ASH_SPAN_ARG(s));
}

static ash_status order(header *h) {
    static const char *const words[] = {"False", "True"};
    skip_space(h);
    for (int i = 0; i < 2; i++) {
        size_t len = strlen(words[i]);
        if ((size_t)(h->end - h->at) < len || memcmp(h->at, words[i], len) != 0) continue;
        h->at += len;
        h->fortran = i == 1;
        h->has_order = true;
        return ASH_OK;
    }
    return malformed(h, "neither True nor False");
}

static ash_status shape(header *h) {
    if (!take(h, '(')) return malformed(h, "no tuple where one belongs");
    while (!take(h, ')')) {
        int64_t dim = 0;
        skip_space(h);
        const uint8_t *start = h->at;
        for (; h->at < h->end && *h->at >= '0' && *h->at <= '9'; h->at++)
            if (!ash_mul_i64(dim, 10, &dim) || !ash_add_i64(dim, *h->at - '0', &dim))
                return malformed(h, "a dim too large");
        if (h->at == start) return malformed(h, "no number where one belongs");
        if (h->at < h->end && *h->at == 'L') h->at++; /* Python 2's long integers */
        if (h->type.rank == ASH_MAX_RANK) return malformed(h, "too many dims");
        h->type.dims[h->type.rank++] = dim;
        if (!take(h, ',')) {
            if (take(h, ')')) break;
            return malformed(h, "an unfinished tuple");
        }
    }
    h->has_shape = true;
    return ASH_OK;
}

static ash_status parse(header *h) {
    if (!take(h, '{')) return malformed(h, "no dict");
    while (!take(h, '}')) {
        ash_span key = {0};
        ASH_TRY(text(h, &key));
        if (!take(h, ':')) return malformed(h, "no colon");
        if (ash_span_is(key, "descr") && !h->has_descr)
            ASH_TRY(descr(h));
        else if (ash_span_is(key, "fortran_order") && !h->has_order)
            ASH_TRY(order(h));
        else if (ash_span_is(key, "shape") && !h->has_shape)
            ASH_TRY(shape(h));
        else
            return malformed(h, "an unknown or repeated key");
        take(h, ',');
    }
    return h->has_descr && h->has_order && h->has_shape ? ASH_OK : malformed(h, "a missing key");
}

/* --- elements ------------------------------------------------------------------------------------- */

/* Copies in row-major order and in this machine's byte order. */
static void convert(const header *h, const uint8_t *from, uint8_t *to, int64_t count) {
    size_t size = ash_dtype_size(h->type.dtype);
    const ash_type *t = &h->type;
    for (int64_t i = 0; i < count; i++) {
        int64_t rest = i, at = 0, step = 1;
        int64_t index[ASH_MAX_RANK];
        for (unsigned d = t->rank; d-- > 0; rest /= t->dims[d]) index[d] = rest % t->dims[d];
        for (unsigned d = 0; d < t->rank; step *= t->dims[d++]) at += index[d] * step;
        const uint8_t *source = from + (size_t)(h->fortran ? at : i) * size;
        uint8_t *element = to + (size_t)i * size;
        for (size_t b = 0; b < size; b++) element[b] = source[h->swap ? size - 1 - b : b];
        if (t->dtype == ASH_BOOL) *element = *element != 0;
    }
}

ash_status ash_npy__read(ash_context *context, ash_file *file, ash_tensor **out, ash_diag *diag) {
    const ash_allocator *a = ash_context__allocator(context);
    ASH_FAIL_IF(file->size < 10, diag, ASH_ERROR_FORMAT, "a .npy file that ends in its first bytes");
    unsigned version = file->data[6], width = version == 1 ? 2 : 4;
    ASH_FAIL_IF(version < 1 || version > 3, diag, ASH_ERROR_UNSUPPORTED, "version %u of the .npy format",
                version);
    ASH_FAIL_IF(file->size < 8 + width, diag, ASH_ERROR_FORMAT, "a .npy file that ends in its first bytes");
    size_t len = 0, start = 8 + width, bytes;
    for (unsigned i = 0; i < width; i++) len |= (size_t)file->data[8 + i] << (8 * i);
    ASH_FAIL_IF(len > file->size - start, diag, ASH_ERROR_FORMAT, "a .npy file that ends in its header");
    header h = {
        .base = file->data, .at = file->data + start, .end = file->data + start + len, .diag = diag};
    ASH_TRY(parse(&h));
    ASH_TRY(ash_tensor__bytes(&h.type, &bytes, diag));
    size_t have = file->size - start - len;
    ASH_FAIL_IF(have != bytes, diag, ASH_ERROR_FORMAT, "%zu bytes of data, but the dims say %zu", have,
                bytes);
    size_t size = ash_dtype_size(h.type.dtype);
    ash_blob *blob;
    if (!h.swap && !h.fortran && h.type.dtype != ASH_BOOL) {
        const ash_onnx_bytes at = {
            .file = file, .span = {h.end, bytes}, .align = size, .copy_bytes = SIZE_MAX};
        ASH_TRY(ash_onnx__blob_at(a, &at, &blob, diag));
    } else {
        ASH_TRY(ash_blob_create_owned(a, bytes, &blob, diag));
        convert(&h, h.end, (uint8_t *)blob->data, (int64_t)(bytes / size));
    }
    return ash_tensor__make(context, NULL, 0, &h.type, blob, out, diag);
}

/* Version 1: the header is padded with spaces so that the elements start at a multiple of 64. */
void ash_npy__write(ash_sink *sink, const char *name, const ash_tensor *tensor) {
    char dict[512];
    const ash_type *type = ash_tensor_type(tensor);
    int n = snprintf(dict, sizeof dict, "{'descr': '%s', 'fortran_order': False, 'shape': (", name);
    for (unsigned i = 0; i < type->rank; i++)
        n += snprintf(dict + n, sizeof dict - (size_t)n, "%lld,%s", (long long)type->dims[i],
                      i + 1 < type->rank ? " " : "");
    n += snprintf(dict + n, sizeof dict - (size_t)n, "), }");
    size_t total = (size_t)ash_align_up(10 + (uint64_t)n + 1, 64);
    const uint8_t prefix[] = {1, 0, (uint8_t)(total - 10), (uint8_t)((total - 10) >> 8)};
    ash_sink_write(sink, magic, sizeof magic);
    ash_sink_write(sink, prefix, sizeof prefix);
    ash_sink_write(sink, dict, (size_t)n);
    ash_sink_fill(sink, ' ', total - 10 - (size_t)n - 1);
    ash_sink_fill(sink, '\n', 1);
    ash_sink_write(sink, ash_tensor_data(tensor), ash_tensor_size(tensor));
}
