/* What a lowering function sees of its node: operands, attributes, results. */
#include <stdio.h>

#include "import.h"
#include "lower.h"

ash_value ash_import__fail(ash_import *im, ash_status code, const char *fmt, ...) {
    if (im->status != ASH_OK) return ASH_NO_VALUE;
    char message[sizeof im->diag.message];
    va_list args;
    va_start(args, fmt);
    vsnprintf(message, sizeof message, fmt, args);
    va_end(args);
    im->status = ash_fail(&im->diag, code, "%s", message);
    return ASH_NO_VALUE;
}

/* --- names ---------------------------------------------------------------------------------------- */

size_t ash_import__find_name(const ash_import *im, ash_span name) {
    uint64_t index;
    if (name.len == 0) return SIZE_MAX;
    for (const ash_import_scope *scope = im->scope; scope; scope = scope->parent)
        if (ash_strmap_get(&scope->names, (const char *)name.at, name.len, &index)) return (size_t)index;
    return SIZE_MAX;
}

void ash_import__alias(ash_import *im, ash_span name, size_t index) {
    uint64_t other;
    if (!ash_import__ok(im)) return;
    if (name.len == 0)
        ash_import__fail(im, ASH_ERROR_FORMAT, "a value without a name");
    else if (ash_strmap_get(&im->scope->names, (const char *)name.at, name.len, &other))
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

/* --- values --------------------------------------------------------------------------------------- */

/* A tensor of the graph from an initializer. Integers stay constants also when parameters are asked for:
 * they are shapes and indices, on which attributes depend. */
static void read_initializer(ash_import *im, ash_import_value *entry) {
    const ash_onnx_tensor *tensor = entry->tensor;
    ash_blob *blob;
    char *name = NULL;
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
    bool dims = false;
    for (size_t i = 0; i < entry->count; i++) dims |= entry->list[i].dim;
    if (!dims) {
        int64_t *numbers = ash_arena_alloc(im->scratch, entry->count, sizeof *numbers);
        if (!numbers) return ash_import__fail(im, ASH_ERROR_OUT_OF_MEMORY, "out of memory");
        for (size_t i = 0; i < entry->count; i++) numbers[i] = entry->list[i].v;
        return ash_lower__ints(im, &entry->type, numbers);
    }
    ash_value *parts = ash_arena_alloc(im->scratch, entry->count, sizeof *parts);
    if (!parts) return ash_import__fail(im, ASH_ERROR_OUT_OF_MEMORY, "out of memory");
    const ash_dim one[] = {1};
    for (size_t i = 0; i < entry->count; i++) {
        ash_import_int e = entry->list[i];
        ash_value scalar = e.dim ? ash_lower__cast(im, ash_lower__dim(im, e.v), entry->type.dtype)
                                 : ash_lower__scalar(im, entry->type.dtype, (double)e.v);
        parts[i] = ash_lower__reshape(im, scalar, one, 1);
    }
    ash_value joined = ash_lower__concat(im, parts, entry->count, 0);
    return ash_lower__reshape(im, joined, entry->type.dims, entry->type.rank);
}

ash_value ash_import__materialize(ash_import *im, size_t index) {
    if (!ash_import__ok(im)) return ASH_NO_VALUE;
    ash_import_value *entry = &im->values.at[index];
    if (entry->absent) return ash_import__fail(im, ASH_ERROR_FORMAT, "an operand that the call leaves out");
    if (entry->tensor && ash_onnx__is_nibble(entry->tensor->dtype) &&
        !(im->node && ash_span_is(im->node->op, "DequantizeLinear")))
        return ash_import__fail(im, ASH_ERROR_UNSUPPORTED,
                                "data of type %s, which DequantizeLinear alone reads",
                                ash_onnx__dtype_name(entry->tensor->dtype));
    if (entry->sequence)
        return ash_import__fail(im, ASH_ERROR_UNSUPPORTED, "a sequence where a tensor belongs");
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
    return entry ? entry->type : (ash_type){.dtype = ASH_F32};
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

static bool is_tracked(ash_dtype dtype) {
    return dtype == ASH_I64 || dtype == ASH_I32 || dtype == ASH_BOOL;
}

bool ash_import__try_list(ash_import *im, size_t k, const ash_import_int **list, size_t *count) {
    *list = NULL, *count = 0;
    ash_import_value *entry = ash_import__has(im, k) ? operand(im, k) : NULL;
    if (!entry) return false;
    if (entry->sequence) return false;
    if (!entry->list && is_tracked(entry->type.dtype)) {
        size_t index = (size_t)(entry - im->values.at), n;
        const ash_blob *blob = known(im, k, ASH_IMPORT_LIST, &n);
        if (!blob) return false;
        ash_import_int *fresh = ash_arena_alloc(&im->arena, n, sizeof *fresh);
        if (!fresh) return ash_import__fail(im, ASH_ERROR_OUT_OF_MEMORY, "out of memory"), false;
        entry = &im->values.at[index];
        for (size_t i = 0; i < n; i++) fresh[i].v = ash_lower__int_at(blob, entry->type.dtype, i);
        entry->list = fresh;
        entry->count = n;
    }
    *list = entry->list;
    *count = entry->count;
    return entry->list != NULL;
}

bool ash_import__try_ints(ash_import *im, size_t k, const int64_t **out, size_t *count) {
    const ash_import_int *list;
    *out = NULL;
    if (!ash_import__try_list(im, k, &list, count)) return false;
    int64_t *numbers = ash_arena_alloc(im->scratch, *count, sizeof *numbers);
    if (!numbers) return ash_import__fail(im, ASH_ERROR_OUT_OF_MEMORY, "out of memory"), false;
    for (size_t i = 0; i < *count; i++) {
        if (list[i].dim) return false;
        numbers[i] = list[i].v;
    }
    *out = numbers;
    return true;
}

bool ash_import__try_floats(ash_import *im, size_t k, const double **out, size_t *count) {
    *out = NULL, *count = 0;
    if (!ash_import__has(im, k)) return false;
    ash_dtype dtype = ash_import__in_type(im, k).dtype;
    const ash_blob *blob = known(im, k, 1 << 20, count);
    if (!blob) return false;
    double *numbers = ash_arena_alloc(im->scratch, *count, sizeof *numbers);
    if (!numbers) return ash_import__fail(im, ASH_ERROR_OUT_OF_MEMORY, "out of memory"), false;
    for (size_t i = 0; i < *count; i++) numbers[i] = ash_lower__float_at(blob, dtype, i);
    *out = numbers;
    return true;
}

static bool not_known(ash_import *im, size_t k) {
    if (!ash_import__has(im, k))
        ash_import__fail(im, ASH_ERROR_FORMAT, "operand %zu is missing", k);
    else
        ash_import__fail(
            im, ASH_ERROR_UNSUPPORTED,
            "operand %zu, '%.*s', must be known at import; if it comes from a graph input, bind that input",
            k, ASH_SPAN_ARG(im->node->ins[k]));
    return false;
}

bool ash_import__list(ash_import *im, size_t k, const ash_import_int **list, size_t *count) {
    return ash_import__try_list(im, k, list, count) || not_known(im, k);
}

bool ash_import__ints(ash_import *im, size_t k, const int64_t **list, size_t *count) {
    return ash_import__try_ints(im, k, list, count) || not_known(im, k);
}

bool ash_import__floats(ash_import *im, size_t k, const double **list, size_t *count) {
    return ash_import__try_floats(im, k, list, count) || not_known(im, k);
}

/* --- results -------------------------------------------------------------------------------------- */

bool ash_import__wants(const ash_import *im, size_t k) {
    return k < im->node->n_outs && im->node->outs[k].len > 0;
}

void ash_import__out(ash_import *im, size_t k, ash_value value) {
    if (!ash_import__wants(im, k) || value == ASH_NO_VALUE) return;
    ash_import_value entry = {.type = ash_import__type(im, value), .value = value};
    ash_import__declare(im, im->node->outs[k], &entry);
}

void ash_import__out_list(ash_import *im, size_t k, const ash_type *type, const ash_import_int *list) {
    int64_t count;
    if (!ash_import__wants(im, k) || !ash_type_static_count(type, &count)) return;
    ash_import_int *copy = ash_arena_copy(&im->arena, list, (size_t)count, sizeof *list);
    if (!copy) {
        ash_import__fail(im, ASH_ERROR_OUT_OF_MEMORY, "out of memory");
        return;
    }
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

bool ash_import__attr_is(ash_import *im, const char *name, const char *text, const char *absent) {
    const ash_onnx_attr *attr = ash_import__attr(im, name, ONNX_ATTR_STRING);
    return attr ? ash_span_is(attr->s, text) : strcmp(text, absent) == 0;
}

bool ash_import__attr_tensor(ash_import *im, const char *name, ash_type *type, ash_value *value) {
    const ash_onnx_attr *attr = ash_import__attr(im, name, ONNX_ATTR_TENSOR);
    ash_onnx_tensor tensor;
    ash_blob *blob;
    if (!attr || !ash_import__ok(im)) return false;
    im->status = ash_onnx__tensor_read(attr->message, &tensor);
    if (im->status == ASH_OK && ash_onnx__is_nibble(tensor.dtype))
        ash_import__fail(im, ASH_ERROR_UNSUPPORTED, "attribute '%s' of type %s", name,
                         ash_onnx__dtype_name(tensor.dtype));
    if (im->status == ASH_OK) im->status = ash_onnx__tensor_data(&im->source, &tensor, type, &blob);
    if (im->status != ASH_OK) return false;
    *value = ash_graph__constant_blob(im->graph, type, blob);
    return *value != ASH_NO_VALUE;
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
