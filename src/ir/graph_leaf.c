/* SPDX-License-Identifier: MIT */
/* Values that no node produces: blobs, inputs, constants, parameters; and the outputs. */
#include "base/file.h"
#include "inside.h"

/* --- blobs ---------------------------------------------------------------------------------------- */

enum { BLOB_ALIGN = 64 };

ash_status ash_blob_create(const ash_allocator *a, const ash_blob *like, ash_blob **out, ash_diag *diag) {
    *out = ash_mem_alloc(a, 1, sizeof **out);
    if (!*out) return ASH_NO_MEMORY(diag);
    **out = *like;
    (*out)->allocator = a;
    (*out)->refs = 1;
    return ASH_OK;
}

static void release_file(void *owner, const void *data, size_t size) {
    (void)data, (void)size;
    ash_file_release(owner);
}

ash_status ash_blob_create_mapped(const ash_allocator *a, ash_file *file, const void *data, size_t size,
                                  ash_blob **out, ash_diag *diag) {
    const ash_blob like = {
        .data = data, .size = size, .mapped = true, .release = release_file, .owner = file, .file = file};
    ash_status status = ash_blob_create(a, &like, out, diag);
    if (status != ASH_OK) ash_file_release(file);
    return status;
}

static void free_owned(void *owner, const void *data, size_t size) {
    const ash_allocator *a = owner;
    a->free(a->user, (void *)data, size ? size : 1);
}

ash_status ash_blob_create_owned(const ash_allocator *a, size_t size, ash_blob **out, ash_diag *diag) {
    *out = NULL;
    void *data = a->alloc(a->user, size ? size : 1, BLOB_ALIGN);
    if (!data) return ASH_NO_MEMORY(diag);
    memset(data, 0, size);
    const ash_blob like = {.data = data, .size = size, .release = free_owned, .owner = (void *)a};
    ash_status status = ash_blob_create(a, &like, out, diag);
    if (status != ASH_OK) free_owned((void *)a, data, size);
    return status;
}

ash_blob *ash_blob_retain(ash_blob *blob) {
    __atomic_add_fetch(&blob->refs, 1, __ATOMIC_RELAXED);
    return blob;
}

void ash_blob_release(ash_blob *blob) {
    if (!blob || __atomic_sub_fetch(&blob->refs, 1, __ATOMIC_ACQ_REL) > 0) return;
    if (blob->release) blob->release(blob->owner, blob->data, blob->size);
    ash_mem_free(blob->allocator, blob, 1, sizeof *blob);
}

/* --- leaves --------------------------------------------------------------------------------------- */

/* A type as it is kept: what lies past the rank is zero, so that types can be compared as bytes. */
static ash_type trimmed(const ash_type *type) {
    ash_type kept = {.dtype = type->dtype, .rank = type->rank};
    memcpy(kept.dims, type->dims, type->rank * sizeof *type->dims);
    return kept;
}

static ash_status check_name(const ash_graph *graph, const char *name, ash_diag *diag) {
    uint64_t found;
    ASH_NEED(diag, name);
    ASH_FAIL_IF(!*name, diag, ASH_ERROR_INVALID_ARGUMENT, "an input, parameter or state needs a name");
    ASH_FAIL_IF(ash_strmap_get(&graph->names, name, strlen(name), &found), diag, ASH_ERROR_INVALID_ARGUMENT,
                "there is an input, parameter or state of this name already");
    return ASH_OK;
}

/* Appends a leaf, checked by the caller; takes the reference to `info->blob` on success alone. */
static ash_status append(ash_graph *graph, const ash_value_info *info, ash_value *out, ash_diag *diag) {
    ash_value_info leaf = *info;
    ash_value value = (ash_value)graph->values.len;
    leaf.type = trimmed(&info->type);
    leaf.node = UINT32_MAX;
    if (!graph->derived) leaf.origin = value;
    ASH_TRY(ash_graph__check_closed(graph, diag));
    ASH_FAIL_IF(graph->values.len >= ASH_NO_VALUE, diag, ASH_ERROR_OUT_OF_RANGE,
                "a graph has at most 2^32 - 1 values");
    if (!ash_vec_reserve(graph->allocator, &graph->values, 1) ||
        !ash_vec_reserve(graph->allocator, &graph->inputs, 1) ||
        !ash_vec_reserve(graph->allocator, &graph->states, 1))
        return ASH_NO_MEMORY(diag);
    if (info->name) {
        leaf.name = ash_arena_strdup(&graph->arena, info->name);
        if (!leaf.name || !ash_strmap_put(&graph->names, leaf.name, strlen(leaf.name), value))
            return ASH_NO_MEMORY(diag);
    }
    graph->values.at[graph->values.len++] = leaf;
    if (leaf.kind == ASH_VALUE_INPUT) graph->inputs.at[graph->inputs.len++] = value;
    if (leaf.kind == ASH_VALUE_STATE)
        graph->states.at[graph->states.len++] = (ash_state){value, ASH_NO_VALUE};
    *out = value;
    return ASH_OK;
}

/* Keeps the failure, with the leaf's name. */
static ash_value stick(ash_graph *graph, ash_diag *diag, const char *name) {
    ash_diag__add_node(diag, name, NULL, ASH_NO_OFFSET);
    ash_graph__stick(graph, diag);
    return ASH_NO_VALUE;
}

static ash_status need(ash_diag *diag, const char *name, const ash_type *type) {
    ASH_NEED(diag, name, type);
    return ASH_OK;
}

static ash_status add_input(ash_graph *graph, const char *name, const ash_type *type, ash_value *out,
                            ash_diag *diag) {
    ASH_NEED(diag, name, type);
    ASH_TRY(check_name(graph, name, diag));
    ASH_TRY(ash_graph__check_leaf_type(graph, type, diag));
    ash_value_info info = {.type = *type, .kind = ASH_VALUE_INPUT, .origin = ASH_NO_VALUE, .name = name};
    return append(graph, &info, out, diag);
}

ash_value ash_graph_input(ash_graph *graph, const char *name, const ash_type *type) {
    ash_diag diag;
    ash_value value;
    if (!graph) return ASH_NO_VALUE;
    return add_input(graph, name, type, &value, &diag) == ASH_OK ? value : stick(graph, &diag, name);
}

/* The bytes that the data of a constant must have. */
static ash_status constant_size(const ash_graph *graph, const ash_type *type, int64_t *bytes,
                                ash_diag *diag) {
    ASH_TRY(ash_type__check(graph->dims, type, diag));
    ASH_FAIL_IF(!ash_type_static_count(type, bytes), diag, ASH_ERROR_SHAPE,
                "a constant whose shape depends on variables");
    *bytes *= (int64_t)ash_dtype_size(type->dtype);
    return ASH_OK;
}

/* A bool is a byte of 0 or 1 wherever one is kept: code relies on it. */
static ash_status check_bools(const ash_blob *blob, ash_diag *diag) {
    const unsigned char *bytes = blob->data;
    for (size_t i = 0; i < blob->size; i++)
        ASH_FAIL_IF(bytes[i] > 1, diag, ASH_ERROR_INVALID_ARGUMENT,
                    "bool element %zu is %d, neither 0 nor 1", i, bytes[i]);
    return ASH_OK;
}

ash_status ash_graph__check_data(const ash_graph *graph, const ash_type *type, const ash_blob *blob,
                                 ash_diag *diag) {
    int64_t bytes;
    ASH_TRY(constant_size(graph, type, &bytes, diag));
    ASH_FAIL_IF(blob->size != (uint64_t)bytes, diag, ASH_ERROR_INVALID_ARGUMENT,
                "%zu bytes of data for %lld", blob->size, (long long)bytes);
    ASH_FAIL_IF(bytes && !blob->data, diag, ASH_ERROR_INVALID_ARGUMENT, "the data of a constant is NULL");
    return type->dtype == ASH_BOOL ? check_bools(blob, diag) : ASH_OK;
}

/* Takes the reference to `blob` on success alone. */
static ash_status add_blob(ash_graph *graph, const char *name, const ash_type *type, ash_blob *blob,
                           ash_value *out, ash_diag *diag) {
    ASH_TRY(ash_graph__check_data(graph, type, blob, diag));
    if (name) ASH_TRY(check_name(graph, name, diag));
    ash_value_info info = {.type = *type,
                           .kind = name ? ASH_VALUE_PARAMETER : ASH_VALUE_CONSTANT,
                           .origin = ASH_NO_VALUE,
                           .name = name,
                           .blob = blob};
    return append(graph, &info, out, diag);
}

ash_value ash_graph__leaf_blob(ash_graph *graph, const char *name, const ash_type *type, ash_blob *blob) {
    ash_diag diag;
    ash_value value;
    if (add_blob(graph, name, type, blob, &value, &diag) == ASH_OK) return value;
    ash_blob_release(blob);
    return stick(graph, &diag, name);
}

ash_value ash_graph__constant_blob(ash_graph *graph, const ash_type *type, ash_blob *blob) {
    return ash_graph__leaf_blob(graph, NULL, type, blob);
}

/* Bytes of the caller's, which may lie in a mapped file: then the blob holds it. */
static ash_status borrow(const ash_graph *graph, const void *data, size_t size, ash_blob **out,
                         ash_diag *diag) {
    ash_file *file = ash_file_at(graph->context, data, size);
    if (!file) return ash_blob_create(graph->allocator, &(ash_blob){.data = data, .size = size}, out, diag);
    ash_status status = ash_file_check_bytes(file, data, size, diag);
    if (status == ASH_OK) return ash_blob_create_mapped(graph->allocator, file, data, size, out, diag);
    ash_file_release(file);
    return status;
}

static ash_status make_blob(const ash_graph *graph, const ash_type *type, const void *data, size_t size,
                            ash_data_mode mode, ash_blob **out, ash_diag *diag) {
    int64_t bytes;
    ASH_NEED(diag, type);
    if (size) ASH_NEED(diag, data);
    ASH_TRY(constant_size(graph, type, &bytes, diag));
    ASH_FAIL_IF(size != (uint64_t)bytes, diag, ASH_ERROR_INVALID_ARGUMENT, "%zu bytes of data for %lld",
                size, (long long)bytes);
    if (mode == ASH_DATA_BORROW) return borrow(graph, data, size, out, diag);
    ASH_TRY(ash_file_check_given(graph->context, data, size, diag));
    ASH_TRY(ash_blob_create_owned(graph->allocator, size, out, diag));
    if (size) memcpy((void *)(*out)->data, data, size);
    return ASH_OK;
}

static ash_value add_data(ash_graph *graph, const char *name, const ash_type *type, const void *data,
                          size_t size, ash_data_mode mode) {
    ash_diag diag;
    ash_blob *blob;
    if (!graph) return ASH_NO_VALUE;
    if (make_blob(graph, type, data, size, mode, &blob, &diag) != ASH_OK) return stick(graph, &diag, name);
    return ash_graph__leaf_blob(graph, name, type, blob);
}

ash_value ash_graph_constant(ash_graph *graph, const ash_type *type, const void *data, uint64_t size,
                             ash_data_mode mode) {
    return add_data(graph, NULL, type, data, size, mode);
}

ash_value ash_graph_parameter(ash_graph *graph, const char *name, const ash_type *type, const void *data,
                              uint64_t size, ash_data_mode mode) {
    ash_diag diag;
    if (!graph) return ASH_NO_VALUE;
    if (need(&diag, name, type) != ASH_OK) return stick(graph, &diag, name);
    return add_data(graph, name, type, data, size, mode);
}

ash_status ash_graph__check_files(const ash_graph *graph, ash_diag *diag) {
    const ash_file *last = NULL;
    for (size_t v = 0; v < graph->values.len; v++) {
        const ash_blob *blob = graph->values.at[v].blob;
        if (!blob || !blob->file || blob->file == last) continue;
        last = blob->file;
        ASH_TRY(ash_file_check(last, diag));
    }
    return ASH_OK;
}

/* --- states --------------------------------------------------------------------------------------- */

/* Takes the reference to `blob` on success alone. */
static ash_status add_state(ash_graph *graph, const char *name, const ash_type *type, ash_blob *blob,
                            ash_value *out, ash_diag *diag) {
    ASH_TRY(check_name(graph, name, diag));
    ASH_TRY(ash_graph__check_leaf_type(graph, type, diag));
    if (blob) ASH_TRY(ash_graph__check_data(graph, type, blob, diag));
    ash_value_info info = {.type = *type,
                           .kind = ASH_VALUE_STATE,
                           .origin = ASH_NO_VALUE,
                           .name = name,
                           .phase = graph->phase,
                           .blob = blob};
    return append(graph, &info, out, diag);
}

ash_value ash_graph__state_blob(ash_graph *graph, const char *name, const ash_type *type, ash_blob *blob) {
    ash_diag diag;
    ash_value value;
    if (add_state(graph, name, type, blob, &value, &diag) == ASH_OK) return value;
    ash_blob_release(blob);
    return stick(graph, &diag, name);
}

ash_value ash_graph_state(ash_graph *graph, const char *name, const ash_type *type, const void *data,
                          uint64_t size, ash_data_mode mode) {
    ash_diag diag;
    ash_blob *blob = NULL;
    if (!graph) return ASH_NO_VALUE;
    if (need(&diag, name, type) != ASH_OK) return stick(graph, &diag, name);
    if ((data || size) && make_blob(graph, type, data, size, mode, &blob, &diag) != ASH_OK)
        return stick(graph, &diag, name);
    return ash_graph__state_blob(graph, name, type, blob);
}

/* Few graphs have more than some dozens. */
ash_state *ash_graph__find_state(const ash_graph *graph, ash_value value) {
    for (size_t i = 0; i < graph->states.len; i++)
        if (graph->states.at[i].value == value) return &graph->states.at[i];
    return NULL;
}

static ash_status update(ash_graph *graph, ash_value state, ash_value value, ash_diag *diag) {
    ash_state *found = ash_graph__find_state(graph, state);
    ASH_FAIL_IF(!found, diag, ASH_ERROR_INVALID_ARGUMENT, "an update of a value that is no state");
    ASH_FAIL_IF(found->update != ASH_NO_VALUE, diag, ASH_ERROR_INVALID_ARGUMENT,
                "the state has an update already");
    ASH_FAIL_IF(value >= graph->values.len, diag, ASH_ERROR_INVALID_ARGUMENT,
                "an update that is no value of the graph");
    ASH_FAIL_IF(!ash_type_equal(ash_graph__type(graph, state), ash_graph__type(graph, value)), diag,
                ASH_ERROR_TYPE, "the update has another type than the state");
    found->update = value;
    return ASH_OK;
}

void ash_graph_update(ash_graph *graph, ash_value state, ash_value value) {
    ash_diag diag;
    if (!graph) return;
    if ((state == ASH_NO_VALUE || value == ASH_NO_VALUE) && graph->status != ASH_OK) return;
    if (update(graph, state, value, &diag) != ASH_OK)
        stick(graph, &diag, state < graph->values.len ? graph->values.at[state].name : NULL);
}

ash_status ash_graph__copy_leaf(ash_graph *to, const ash_graph *from, ash_value value, ash_value *out) {
    ash_diag diag;
    const ash_value_info *info = ash_graph__value(from, value);
    *out = ASH_NO_VALUE;
    ash_status status = info->name ? check_name(to, info->name, &diag) : ASH_OK;
    if (status == ASH_OK) status = append(to, info, out, &diag);
    if (status != ASH_OK) {
        stick(to, &diag, info->name);
        return status;
    }
    if (info->blob) ash_blob_retain(info->blob);
    return ASH_OK;
}

/* --- outputs -------------------------------------------------------------------------------------- */

void ash_graph__copy_ends(ash_graph *to, const ash_graph *from, const ash_value *image) {
    ash_graph_name_next(to, NULL);
    for (size_t i = 0; i < from->states.len; i++) {
        const ash_state *state = &from->states.at[i];
        if (state->update == ASH_NO_VALUE) continue;
        ash_graph_update(to, image ? image[state->value] : state->value,
                         image ? image[state->update] : state->update);
    }
    for (size_t i = 0; i < from->outputs.len; i++) {
        const ash_output *output = &from->outputs.at[i];
        ash_graph_output(to, output->name, image ? image[output->value] : output->value);
    }
}

static ash_status add_output(ash_graph *graph, const char *name, ash_value value, ash_diag *diag) {
    ASH_TRY(ash_graph__check_closed(graph, diag));
    uint64_t found;
    ASH_NEED(diag, name);
    ASH_FAIL_IF(!*name, diag, ASH_ERROR_INVALID_ARGUMENT, "an output needs a name");
    ASH_FAIL_IF(value >= graph->values.len, diag, ASH_ERROR_INVALID_ARGUMENT,
                "an output that is no value of the graph");
    ASH_FAIL_IF(ash_strmap_get(&graph->output_names, name, strlen(name), &found), diag,
                ASH_ERROR_INVALID_ARGUMENT, "there is an output of this name already");
    const char *copy = ash_arena_strdup(&graph->arena, name);
    if (!copy || !ash_vec_reserve(graph->allocator, &graph->outputs, 1) ||
        !ash_strmap_put(&graph->output_names, copy, strlen(copy), graph->outputs.len))
        return ASH_NO_MEMORY(diag);
    graph->outputs.at[graph->outputs.len++] = (ash_output){copy, value, 0};
    return ASH_OK;
}

void ash_graph_output(ash_graph *graph, const char *name, ash_value value) {
    ash_diag diag;
    if (!graph) return;
    if (value == ASH_NO_VALUE && graph->status != ASH_OK) return;
    if (add_output(graph, name, value, &diag) != ASH_OK) stick(graph, &diag, name);
}
