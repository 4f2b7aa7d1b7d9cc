/* SPDX-License-Identifier: MIT */
/* What a lowering function sees of its node: operands, attributes, results. */
#include <math.h>
#include <stdio.h>

#include "late.h"
#include "ops.h"

ash_value ash_import__fail(ash_import *im, ash_status code, const char *fmt, ...) {
    if (!ash_import__ok(im)) return ASH_NO_VALUE;
    char message[sizeof im->diag.message];
    va_list args;
    va_start(args, fmt);
    vsnprintf(message, sizeof message, fmt, args);
    va_end(args);
    im->status = ash_fail(&im->diag, code, "%s", message);
    return ASH_NO_VALUE;
}

void *ash_import__keep(ash_import *im, size_t count, size_t size) {
    void *room = ash_arena_alloc(&im->arena, count, size);
    im->kept += count * size;
    if (!room) ash_import__fail(im, ASH_ERROR_OUT_OF_MEMORY, "out of memory");
    return room;
}

/* --- names ---------------------------------------------------------------------------------------- */

static bool in_scope(const ash_import_scope *scope, ash_span name, uint64_t *index) {
    return ash_strmap_get(&scope->names, (const char *)name.at, name.len, index) ||
           (scope->constants && ash_strmap_get(scope->constants, (const char *)name.at, name.len, index));
}

/* What an entry from outside is within a gate. What is known at import, and what the model holds, stays
 * as it is. */
static size_t pass_gate(ash_import *im, ash_import_scope *scope, ash_span name, size_t index) {
    const ash_import_value *entry = &im->values.at[index];
    if (entry->value == ASH_NO_VALUE || entry->list || entry->tensor || entry->absent || entry->sequence ||
        ash_import__fold(im, entry->value) != ASH_NO_VALUE)
        return index;
    const ash_value outer = im->values.at[index].value;
    const ash_type type = ash_import__type(im, outer);
    const ash_import_value inside = {.type = type, .value = ash_build__argument(im->graph, &type)};
    if (inside.value == ASH_NO_VALUE) return index;
    bool kept = ash_vec_push(im->allocator, &im->values, inside) &&
                ash_vec_push(im->allocator, &scope->gate->arguments, inside.value) &&
                ash_vec_push(im->allocator, &scope->gate->outer, outer) &&
                ash_strmap_put(&scope->names, (const char *)name.at, name.len, im->values.len - 1);
    if (!kept) im->status = ASH_NO_MEMORY(&im->diag);
    return im->values.len - 1;
}

static size_t find_in(ash_import *im, ash_import_scope *scope, ash_span name) {
    uint64_t index;
    if (in_scope(scope, name, &index)) return (size_t)index;
    size_t found = scope->parent ? find_in(im, scope->parent, name) : SIZE_MAX;
    return found != SIZE_MAX && scope->gate ? pass_gate(im, scope, name, found) : found;
}

size_t ash_import__find_name(ash_import *im, ash_span name) {
    return name.len ? find_in(im, im->scope, name) : SIZE_MAX;
}

void ash_import__alias(ash_import *im, ash_span name, size_t index) {
    uint64_t other;
    if (!ash_import__ok(im)) return;
    if (name.len == 0)
        ash_import__fail(im, ASH_ERROR_FORMAT, "a value without a name");
    else if (in_scope(im->scope, name, &other))
        ash_import__fail(im, ASH_ERROR_FORMAT, "the name '%.*s' is defined twice", ASH_SPAN_ARG(name));
    else if (!ash_strmap_put(&im->scope->names, (const char *)name.at, name.len, index))
        im->status = ASH_NO_MEMORY(&im->diag);
}

void ash_import__declare(ash_import *im, ash_span name, const ash_import_value *value) {
    const ash_import_value copy = *value; /* it may lie in the array that grows */
    if (!ash_import__ok(im)) return;
    im->has_absent |= copy.absent;
    if (ash_vec_push(im->allocator, &im->values, copy))
        ash_import__alias(im, name, im->values.len - 1);
    else
        im->status = ASH_NO_MEMORY(&im->diag);
}

size_t ash_import__entry(ash_import *im, const ash_import_value *value) {
    if (ash_vec_push(im->allocator, &im->values, *value)) return im->values.len - 1;
    ash_import__fail(im, ASH_ERROR_OUT_OF_MEMORY, "out of memory");
    return 0;
}

size_t ash_import__tensor_entry(ash_import *im, ash_value value) {
    if (value == ASH_NO_VALUE) return 0;
    return ash_import__entry(im, &(ash_import_value){.type = ash_import__type(im, value), .value = value});
}

/* --- values --------------------------------------------------------------------------------------- */

enum { KEEP_PACKED = 4096 /* elements from which on it is worth it */ };

/* Numbers of 2 or 4 bits as the file has them, unpacked by the graph: so they take no more memory than
 * there. */
static bool read_packed(ash_import *im, ash_import_value *entry) {
    ash_graph *g = im->graph;
    int64_t bits = ash_narrow_bits(entry->narrow);
    ash_blob *blob = NULL;
    if (!ash_onnx__is_narrow_int(entry->narrow)) return false;
    im->status = ash_onnx__packed_data(&im->source, entry->tensor, KEEP_PACKED, &entry->type, &blob);
    if (im->status != ASH_OK || !blob) return im->status != ASH_OK;
    ash_type bytes = entry->type;
    bytes.dtype = ASH_U8;
    bytes.dims[bytes.rank - 1] = bytes.dims[bytes.rank - 1] * bits / 8;
    ash_value x = ash_onnx__unpack(im, ash_graph__constant_blob(g, &bytes, blob), bits);
    if (entry->type.dtype == ASH_I8) {
        double half = (double)(1 << (bits - 1));
        x = ash_bitcast(g, ash_build__with(g, ASH_OP_XOR, x, half), ASH_I8);
        x = ash_build__with(g, ASH_OP_SUB, x, half);
    }
    entry->value = x;
    return true;
}

/* A tensor of the graph from an initializer. Integers stay constants also when parameters are asked for:
 * they are shapes and indices, on which attributes depend. */
static void read_initializer(ash_import *im, ash_import_value *entry) {
    const ash_onnx_tensor *tensor = entry->tensor;
    ash_blob *blob;
    char *name = NULL;
    if (read_packed(im, entry)) return;
    im->status = ash_onnx__tensor_data(&im->source, tensor, &entry->type, &blob);
    if (im->status != ASH_OK) return;
    if (im->options->parameters && ash_dtype_is_float(entry->type.dtype)) {
        name = ash_arena_strndup(&im->arena, (const char *)tensor->name.at, tensor->name.len);
        if (!name) {
            ash_blob_release(blob);
            im->status = ASH_NO_MEMORY(&im->diag);
            return;
        }
    }
    entry->value = name ? ash_graph__leaf_blob(im->graph, name, &entry->type, blob)
                        : ash_graph__constant_blob(im->graph, &entry->type, blob);
}

/* A tensor of the graph from a tracked list: a constant, or, where dims are in it, a concatenation. */
static ash_value tensor_of_list(ash_import *im, const ash_import_value *entry) {
    bool dims = ash_dtype_is_float(entry->type.dtype); /* lists of these are for their dims */
    for (size_t i = 0; i < entry->count; i++) dims |= entry->list[i].dim;
    if (!dims) {
        int64_t *numbers = ash_arena_alloc(im->scratch, entry->count, sizeof *numbers);
        if (!numbers) return ash_import__fail(im, ASH_ERROR_OUT_OF_MEMORY, "out of memory");
        for (size_t i = 0; i < entry->count; i++) numbers[i] = entry->list[i].v;
        return ash_build__ints(im->graph, &entry->type, numbers);
    }
    ash_value *parts = ash_arena_alloc(im->scratch, entry->count, sizeof *parts);
    if (!parts) return ash_import__fail(im, ASH_ERROR_OUT_OF_MEMORY, "out of memory");
    const ash_dim one[] = {1};
    const ash_type number = {.dtype = entry->type.dtype};
    for (size_t i = 0; i < entry->count; i++) {
        ash_import_int e = entry->list[i];
        ash_value scalar;
        if (e.dim)
            scalar = ash_cast(im->graph, ash_build__dim(im->graph, e.v), entry->type.dtype);
        else if (ash_dtype_is_float(entry->type.dtype))
            scalar = ash_scalar(im->graph, entry->type.dtype, (double)e.v);
        else
            scalar = ash_build__ints(im->graph, &number, &e.v);
        parts[i] = ash_reshape(im->graph, scalar, one, 1);
    }
    ash_value joined = ash_concat(im->graph, parts, entry->count, 0);
    return ash_reshape(im->graph, joined, entry->type.dims, entry->type.rank);
}

ash_value ash_import__materialize(ash_import *im, size_t index) {
    if (!ash_import__ok(im)) return ASH_NO_VALUE;
    ash_import_value *entry = &im->values.at[index];
    if (entry->absent) return ash_import__fail(im, ASH_ERROR_FORMAT, "an operand that the call leaves out");
    if (entry->narrow != ASH_NARROW_NONE && im->node && im->row && !ash_import__takes_narrow(im->row))
        return ash_import__fail(im, ASH_ERROR_UNSUPPORTED,
                                "an operand of type %s, which Cast or DequantizeLinear must convert first",
                                ash_narrow_name(entry->narrow));
    if (entry->sequence)
        return ash_import__fail(im, ASH_ERROR_UNSUPPORTED, "a sequence where a tensor belongs");
    if (entry->late && entry->value == ASH_NO_VALUE) return ash_late__settled(im, index);
    if (entry->value == ASH_NO_VALUE && entry->list)
        entry->value = tensor_of_list(im, entry);
    else if (entry->value == ASH_NO_VALUE && entry->tensor)
        read_initializer(im, entry);
    return entry->value;
}

/* --- operands ------------------------------------------------------------------------------------- */

bool ash_import__has(const ash_import *im, size_t k) {
    return k < im->node->n_ins && im->node->ins[k].len > 0;
}

/* The entry of operand k; NULL after a failure. */
static ash_import_value *operand(ash_import *im, size_t k) {
    if (!ash_import__has(im, k)) {
        ash_import__fail(im, ASH_ERROR_FORMAT, "operand %zu is missing", k);
        return NULL;
    }
    size_t index = ash_import__find_name(im, im->node->ins[k]);
    if (index == SIZE_MAX) {
        ash_import__fail(im, ASH_ERROR_FORMAT, "operand %zu, '%.*s', is not defined before its use", k,
                         ASH_SPAN_ARG(im->node->ins[k]));
        return NULL;
    }
    ash_import_value *entry = &im->values.at[index];
    if (entry->tensor && !entry->list) ash_import__materialize(im, index);
    return ash_import__ok(im) ? entry : NULL;
}

ash_value ash_import__in(ash_import *im, size_t k) {
    ash_import_value *entry = operand(im, k);
    return entry ? ash_import__materialize(im, (size_t)(entry - im->values.at)) : ASH_NO_VALUE;
}

ash_type ash_import__in_type(ash_import *im, size_t k) {
    ash_import_value *entry = operand(im, k);
    if (entry && entry->late) return ash_import__type(im, ash_import__in(im, k));
    return entry ? entry->type : (ash_type){.dtype = ASH_F32};
}

ash_narrow ash_import__in_narrow(ash_import *im, size_t k) {
    size_t index = ash_import__has(im, k) ? ash_import__find_name(im, im->node->ins[k]) : SIZE_MAX;
    return index == SIZE_MAX ? ASH_NARROW_NONE : im->values.at[index].narrow;
}

ash_type ash_import__type(const ash_import *im, ash_value value) {
    const ash_type *type = ash_graph_type(im->graph, value);
    return type ? *type : (ash_type){.dtype = ASH_F32};
}

/* --- elements of operands ------------------------------------------------------------------------- */

/* The constant with operand k's elements, at most `limit` of them; NULL when they are not known. */
static const ash_blob *known(ash_import *im, size_t k, int64_t limit, size_t *count) {
    ash_value value = ash_import__fold(im, ash_import__in(im, k));
    if (value == ASH_NO_VALUE) return NULL;
    const ash_value_info *info = ash_graph__value(im->graph, value);
    int64_t n;
    if (!info->blob || !ash_type_static_count(&info->type, &n) || n > limit) return NULL;
    *count = (size_t)n;
    return info->blob;
}

enum { LONGEST = 1 << 20 }; /* list that a node asks for */

static bool is_tracked(ash_dtype dtype) {
    return dtype == ASH_I64 || dtype == ASH_I32 || dtype == ASH_BOOL;
}

/* The elements of a constant, made once for each value. NULL after a failure. */
static const ash_import_int *list_of(ash_import *im, ash_value value, const ash_blob *blob, ash_dtype dtype,
                                     size_t n) {
    uint64_t known_at;
    if (ash_map_get(&im->lists, value, &known_at)) return (const ash_import_int *)(uintptr_t)known_at;
    ash_import_int *list = ash_import__keep(im, n, sizeof *list);
    if (!list) return NULL;
    for (size_t i = 0; i < n; i++) list[i].v = ash_import__int_at(blob, dtype, i);
    if (!ash_map_put(&im->lists, value, (uintptr_t)list)) {
        ash_import__fail(im, ASH_ERROR_OUT_OF_MEMORY, "out of memory");
        return NULL;
    }
    return list;
}

/* A list of at most `limit` elements. */
static bool list_up_to(ash_import *im, size_t k, int64_t limit, const ash_import_int **list,
                       size_t *count) {
    *list = NULL, *count = 0;
    ash_import_value *entry = ash_import__has(im, k) ? operand(im, k) : NULL;
    if (!entry) return false;
    if (entry->sequence || entry->late) return false;
    if (!entry->list && is_tracked(entry->type.dtype)) {
        size_t index = (size_t)(entry - im->values.at), n;
        const ash_blob *blob = known(im, k, limit, &n);
        if (!blob) return false;
        entry = &im->values.at[index];
        entry->list = list_of(im, entry->value, blob, entry->type.dtype, n);
        if (!entry->list) return false;
        entry->count = n;
    }
    *list = entry->list;
    *count = entry->count;
    return entry->list != NULL;
}

bool ash_import__try_list(ash_import *im, size_t k, const ash_import_int **list, size_t *count) {
    return list_up_to(im, k, ASH_IMPORT_LIST, list, count);
}

static bool ints_up_to(ash_import *im, size_t k, int64_t limit, const int64_t **out, size_t *count) {
    const ash_import_int *list;
    *out = NULL;
    if (!list_up_to(im, k, limit, &list, count)) return false;
    int64_t *numbers = ash_arena_alloc(im->scratch, *count, sizeof *numbers);
    if (!numbers) return ash_import__fail(im, ASH_ERROR_OUT_OF_MEMORY, "out of memory"), false;
    for (size_t i = 0; i < *count; i++) {
        if (list[i].dim) return false;
        numbers[i] = list[i].v;
    }
    *out = numbers;
    return true;
}

bool ash_import__try_ints(ash_import *im, size_t k, const int64_t **out, size_t *count) {
    return ints_up_to(im, k, ASH_IMPORT_LIST, out, count);
}

bool ash_import__try_floats(ash_import *im, size_t k, const double **out, size_t *count) {
    *out = NULL, *count = 0;
    if (!ash_import__has(im, k)) return false;
    ash_dtype dtype = ash_import__in_type(im, k).dtype;
    const ash_blob *blob = known(im, k, LONGEST, count);
    if (!blob) return false;
    double *numbers = ash_arena_alloc(im->scratch, *count, sizeof *numbers);
    if (!numbers) return ash_import__fail(im, ASH_ERROR_OUT_OF_MEMORY, "out of memory"), false;
    for (size_t i = 0; i < *count; i++) numbers[i] = ash_import__float_at(blob, dtype, i);
    *out = numbers;
    return true;
}

bool ash_import__try_whole(ash_import *im, size_t k, const ash_import_int **list, size_t *count) {
    const double *numbers;
    if (ash_import__try_list(im, k, list, count)) return true;
    if (!ash_import__has(im, k) || !ash_dtype_is_float(ash_import__in_type(im, k).dtype) ||
        !ash_import__try_floats(im, k, &numbers, count) || *count > ASH_IMPORT_LIST)
        return false;
    ash_import_int *whole = ash_arena_alloc(im->scratch, *count, sizeof *whole);
    for (size_t i = 0; whole && i < *count; i++) {
        if (!(fabs(numbers[i]) <= 0x1p24) || numbers[i] != trunc(numbers[i])) return false;
        whole[i] = (ash_import_int){(int64_t)numbers[i], false};
    }
    *list = whole;
    return whole != NULL;
}

/* Says why operand k is not known, and which graph inputs to bind where that is what it takes. */
static bool not_known(ash_import *im, size_t k) {
    enum { MOST = 3 };
    const ash_import_int *list;
    ash_value inputs[MOST], value = ash_import__has(im, k) ? ash_import__in(im, k) : ASH_NO_VALUE;
    size_t count;
    char names[192] = "";
    if (!ash_import__has(im, k)) {
        ash_import__fail(im, ASH_ERROR_FORMAT, "operand %zu is missing", k);
        return false;
    }
    const ash_span name = im->node->ins[k];
    if (ash_import__try_list(im, k, &list, &count)) {
        ash_import__fail(im, ASH_ERROR_UNSUPPORTED,
                         "operand %zu, '%.*s', must be known at import, but depends on dims that are "
                         "variables: give them sizes",
                         k, ASH_SPAN_ARG(name));
        return false;
    }
    if (!ash_import__inputs_of(im, value, inputs, MOST, &count)) {
        ash_import__fail(
            im, ASH_ERROR_UNSUPPORTED,
            "operand %zu, '%.*s', must be known at import, but is computed when the graph runs", k,
            ASH_SPAN_ARG(name));
        return false;
    }
    for (size_t i = 0, len = 0; i < count && len < sizeof names; i++)
        len += (size_t)snprintf(names + len, sizeof names - len, "%s'%s'", i ? ", " : "",
                                ash_graph__value(im->graph, inputs[i])->name);
    bool direct = count == 1 && inputs[0] == value;
    ash_import__fail(im, ASH_ERROR_UNSUPPORTED,
                     "operand %zu, '%.*s', must be known at import; %s %s: bind %s", k, ASH_SPAN_ARG(name),
                     direct ? "it is the graph input" : "it is computed from", names,
                     count == 1 ? "that input" : "those inputs");
    return false;
}

bool ash_import__list(ash_import *im, size_t k, const ash_import_int **list, size_t *count) {
    return list_up_to(im, k, LONGEST, list, count) || not_known(im, k);
}

bool ash_import__ints(ash_import *im, size_t k, const int64_t **list, size_t *count) {
    return ints_up_to(im, k, LONGEST, list, count) || not_known(im, k);
}

bool ash_import__floats(ash_import *im, size_t k, const double **list, size_t *count) {
    return ash_import__try_floats(im, k, list, count) || not_known(im, k);
}

double ash_import__float_at(const ash_blob *blob, ash_dtype dtype, size_t i) {
    double f = 0;
    int64_t n = 0;
    ash_wide one = {.dtype = dtype, .count = 1};
    if (ash_dtype_is_float(dtype))
        one.f = &f;
    else
        one.i = &n;
    ash_wide_load(&one, (const uint8_t *)blob->data + i * ash_dtype_size(dtype));
    if (ash_dtype_is_float(dtype)) return f;
    return dtype == ASH_U64 ? (double)(uint64_t)n : (double)n;
}

int64_t ash_import__int_at(const ash_blob *blob, ash_dtype dtype, size_t i) {
    int64_t n = 0;
    ash_wide one = {.dtype = dtype, .count = 1, .i = &n};
    ash_wide_load(&one, (const uint8_t *)blob->data + i * ash_dtype_size(dtype));
    return n;
}

/* --- results -------------------------------------------------------------------------------------- */

bool ash_import__wants(const ash_import *im, size_t k) {
    return k < im->node->n_outs && im->node->outs[k].len > 0;
}

void ash_import__out(ash_import *im, size_t k, ash_value value) {
    ash_import__out_narrow(im, k, value, ash_import__moved_narrow(im));
}

void ash_import__out_narrow(ash_import *im, size_t k, ash_value value, ash_narrow narrow) {
    if (!ash_import__wants(im, k) || value == ASH_NO_VALUE) return;
    ash_import_value entry = {.type = ash_import__type(im, value), .value = value, .narrow = narrow};
    ash_import__declare(im, im->node->outs[k], &entry);
}

void ash_import__out_list(ash_import *im, size_t k, const ash_type *type, const ash_import_int *list) {
    int64_t count;
    if (!ash_import__wants(im, k) || !ash_type_static_count(type, &count)) return;
    ash_import_int *copy = ash_import__keep(im, (size_t)count, sizeof *list);
    if (!copy) return;
    if (count) memcpy(copy, list, (size_t)count * sizeof *list);
    ash_import_value entry = {.type = *type, .value = ASH_NO_VALUE, .list = copy, .count = (size_t)count};
    ash_import__declare(im, im->node->outs[k], &entry);
}

/* --- attributes ----------------------------------------------------------------------------------- */

const ash_onnx_attr *ash_import__attr(ash_import *im, const char *name, ash_onnx_attr_type type) {
    for (size_t i = 0; i < im->node->n_attrs; i++) {
        const ash_onnx_attr *attr = &im->node->attrs[i];
        if (!ash_span_is(attr->name, name)) continue;
        if (attr->type == (int64_t)type) return attr;
        ash_import__fail(im, ASH_ERROR_FORMAT, "attribute '%s' has type %lld, not %d", name,
                         (long long)attr->type, (int)type);
        return NULL;
    }
    return NULL;
}

int64_t ash_import__attr_int(ash_import *im, const char *name, int64_t absent) {
    const ash_onnx_attr *attr = ash_import__attr(im, name, ONNX_ATTR_INT);
    return attr ? attr->i : absent;
}

double ash_import__attr_float(ash_import *im, const char *name, double absent) {
    const ash_onnx_attr *attr = ash_import__attr(im, name, ONNX_ATTR_FLOAT);
    return attr ? (double)attr->f : absent;
}

bool ash_import__attr_ints(ash_import *im, const char *name, const int64_t **list, size_t *count) {
    const ash_onnx_attr *attr = ash_import__attr(im, name, ONNX_ATTR_INTS);
    *list = attr ? attr->ints : NULL;
    *count = attr ? attr->n : 0;
    return attr != NULL;
}

unsigned ash_import__attr_choice(ash_import *im, const char *name, const char *const *choices, size_t n) {
    const ash_onnx_attr *attr = ash_import__attr(im, name, ONNX_ATTR_STRING);
    char all[160] = "";
    if (!attr) return 0;
    for (size_t i = 0; i < n; i++)
        if (ash_span_is(attr->s, choices[i])) return (unsigned)i;
    for (size_t i = 0, len = 0; i < n && len < sizeof all; i++)
        len += (size_t)snprintf(all + len, sizeof all - len, "%s%s", i ? ", " : "", choices[i]);
    ash_import__fail(im, ASH_ERROR_UNSUPPORTED, "attribute '%s' is '%.*s', which is none of %s", name,
                     (int)ASH_MIN(attr->s.len, (size_t)40), attr->s.len ? (const char *)attr->s.at : "",
                     all);
    return 0;
}

ash_value ash_import__constant_of(const ash_import *im, const ash_onnx_attr *attr) {
    uint64_t value;
    return ash_map_get(&im->constants, attr->offset, &value) ? (ash_value)value : ASH_NO_VALUE;
}

ash_value ash_import__note_constant(ash_import *im, const ash_onnx_attr *attr, ash_value value) {
    if (value == ASH_NO_VALUE || ash_map_put(&im->constants, attr->offset, value)) return value;
    return ash_import__fail(im, ASH_ERROR_OUT_OF_MEMORY, "out of memory");
}

bool ash_import__attr_tensor(ash_import *im, const char *name, ash_type *type, ash_value *value) {
    const ash_onnx_attr *attr = ash_import__attr(im, name, ONNX_ATTR_TENSOR);
    ash_onnx_tensor tensor;
    ash_blob *blob;
    if (!attr || !ash_import__ok(im)) return false;
    *value = ash_import__constant_of(im, attr);
    if (*value != ASH_NO_VALUE) {
        *type = ash_import__type(im, *value);
        return true;
    }
    im->status = ash_onnx__tensor_read(attr->message, &tensor);
    if (im->status == ASH_OK && ash_import__of_tensor(&tensor).narrow && !ash_import__takes_narrow(im->row))
        ash_import__fail(im, ASH_ERROR_UNSUPPORTED, "attribute '%s' of type %s", name,
                         ash_onnx__dtype_name(tensor.dtype));
    if (im->status == ASH_OK) im->status = ash_onnx__tensor_data(&im->source, &tensor, type, &blob);
    if (im->status != ASH_OK) return false;
    *value = ash_import__note_constant(im, attr, ash_graph__constant_blob(im->graph, type, blob));
    return *value != ASH_NO_VALUE;
}

ash_narrow ash_import__attr_narrow(ash_import *im, const char *name) {
    const ash_onnx_attr *attr = ash_import__attr(im, name, ONNX_ATTR_TENSOR);
    ash_onnx_tensor tensor;
    if (!attr || !ash_import__ok(im)) return ASH_NARROW_NONE;
    im->status = ash_onnx__tensor_read(attr->message, &tensor);
    return im->status == ASH_OK ? ash_import__of_tensor(&tensor).narrow : ASH_NARROW_NONE;
}

bool ash_import__ints_of(ash_import *im, const char *attr, size_t k, int64_t from, const int64_t **list,
                         size_t *count) {
    *list = NULL, *count = 0;
    if (im->opset < from) return ash_import__attr_ints(im, attr, list, count);
    return ash_import__has(im, k) && ash_import__ints(im, k, list, count);
}

unsigned ash_import__axis(ash_import *im, int64_t axis, unsigned rank) {
    if (axis >= -(int64_t)rank && axis < (int64_t)rank) return (unsigned)(axis < 0 ? axis + rank : axis);
    ash_import__fail(im, ASH_ERROR_SHAPE, "axis %lld of a tensor of rank %u", (long long)axis, rank);
    return 0;
}
