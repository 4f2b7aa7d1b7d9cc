/* SPDX-License-Identifier: MIT */
/* What goes into a session's executions and what comes out: by its plan, or in mode eager by tensors that
 * every call is given and gives back. */
#include <stdlib.h>
#include <string.h>

#include "cli.h"

static bool no_memory(void) {
    fprintf(stderr, "ashlar: out of memory\n");
    return false;
}

static const char *input_name(const struct session *s, size_t position) {
    const char *name = NULL;
    ash_graph_input_at(s->graph, position, &name);
    return name;
}

/* With the present values of the variables; in mode eager, which has none between its calls, with their
 * maxima. */
static ash_type input_type(struct session *s, size_t position) {
    ash_type type = *ash_graph_type(s->graph, ash_graph_input_at(s->graph, position, NULL));
    if (s->plan && ash_plan_input_type(s->plan, position, &type, NULL) == ASH_OK) return type;
    for (unsigned i = 0; i < type.rank; i++) {
        int64_t least;
        ash_graph_dim_bounds(s->graph, type.dims[i], &least, &type.dims[i]);
    }
    return type;
}

/* --- making an execution possible --------------------------------------------------------------- */

bool session_ready(struct session *s) {
    if (!s->execution.eager) return session_prepare(s);
    s->given = calloc(ash_graph_input_count(s->graph) + 1, sizeof(ash_tensor *));
    s->results = calloc(ash_graph_output_count(s->graph) + 1, sizeof(ash_tensor *));
    return (s->given && s->results) || no_memory();
}

static void drop_results(struct session *s) {
    for (size_t i = 0; s->results && i < ash_graph_output_count(s->graph); i++) {
        ash_tensor_destroy(s->results[i]);
        s->results[i] = NULL;
    }
}

static size_t value_count(const struct session *s) {
    return ash_graph_input_count(s->graph) + ash_graph_output_count(s->graph);
}

void session_drop_values(struct session *s) {
    drop_results(s);
    for (size_t i = 0; s->fetched && i < value_count(s); i++) free(s->fetched[i]);
    free(s->fetched);
    s->fetched = NULL;
    for (size_t i = 0; s->given && i < ash_graph_input_count(s->graph); i++)
        ash_tensor_destroy(s->given[i]);
    free(s->given);
    free(s->results);
    free(s->sizes);
    s->given = s->results = NULL;
    s->sizes = NULL;
    s->n_sizes = 0;
}

bool session_execute(struct session *s) {
    ash_status status;
    if (s->execution.eager) {
        drop_results(s);
        const ash_eager_call call = {.size = sizeof call,
                                     .vars = s->sizes,
                                     .var_count = s->n_sizes,
                                     .inputs = (const ash_tensor *const *)s->given,
                                     .input_count = ash_graph_input_count(s->graph),
                                     .outputs = s->results,
                                     .output_count = ash_graph_output_count(s->graph),
                                     .report = &s->report};
        status = ash_eager(s->context, s->graph, &s->plan_options, &call, &s->diag);
    } else {
        status = ash_plan_execute(s->plan, &s->diag);
    }
    return status == ASH_OK || session_failed(s, s->execution.eager ? "eager" : "execute");
}

/* --- inputs ----------------------------------------------------------------------------------- */

/* Keeps a tensor for the eager calls, and takes it over. */
static bool keep_given(struct session *s, size_t position, ash_tensor *tensor) {
    ash_tensor_destroy(s->given[position]);
    s->given[position] = tensor;
    return true;
}

static ash_status copy_tensor(struct session *s, const ash_tensor *tensor, ash_tensor **copy) {
    ash_status status = ash_tensor_create(s->context, ash_tensor_name(tensor), ash_tensor_type(tensor),
                                          ash_tensor_data(tensor), ash_tensor_size(tensor), copy, &s->diag);
    return status == ASH_OK ? ash_tensor_set_narrow(*copy, ash_tensor_narrow(tensor), &s->diag) : status;
}

static bool give(struct session *s, size_t position, const ash_tensor *tensor) {
    const void *data = ash_tensor_data(tensor);
    size_t size = ash_tensor_size(tensor);
    ash_tensor *copy;
    ash_status status = s->execution.eager ? copy_tensor(s, tensor, &copy)
                                           : ash_plan_set_input(s->plan, position, ash_tensor_type(tensor),
                                                                data, size, &s->diag);
    if (status != ASH_OK) return session_failed(s, input_name(s, position));
    return !s->execution.eager || keep_given(s, position, copy);
}

bool session_fits(const struct session *s, size_t position, const ash_tensor *tensor) {
    const ash_type *want = ash_graph_type(s->graph, ash_graph_input_at(s->graph, position, NULL));
    const ash_type *have = ash_tensor_type(tensor);
    bool same = want->dtype == have->dtype && want->rank == have->rank &&
                ash_tensor_narrow(tensor) == ash_graph_input_narrow(s->graph, position);
    for (unsigned i = 0; same && i < want->rank; i++) {
        int64_t least, most;
        ash_graph_dim_bounds(s->graph, want->dims[i], &least, &most);
        same = have->dims[i] >= least && have->dims[i] <= most;
    }
    return same;
}

static bool set_input(struct session *s, size_t position, const ash_tensor *tensor) {
    if (session_fits(s, position, tensor)) return give(s, position, tensor);
    ash_type want = input_type(s, position);
    const ash_type *have = ash_tensor_type(tensor);
    ash_narrow wanted = ash_graph_input_narrow(s->graph, position), given = ash_tensor_narrow(tensor);
    if (wanted != given)
        fprintf(stderr,
                "ashlar: input %s has elements of type %s, those of the file are %s; a .pb file says it\n",
                input_name(s, position), ash_narrow_name(wanted), ash_narrow_name(given));
    else
        fprintf(stderr, "ashlar: input %s is %s, the file has %s; --var sets the size of a dynamic dim\n",
                input_name(s, position), show_type(&want).text, show_type(have).text);
    return false;
}

/* Variables take the values that the shapes of tensors say; what does not fit is told when it is set. */
static bool set_sizes(struct session *s, ash_tensor *const *tensors) {
    size_t count = ash_graph_input_count(s->graph), vars = ash_graph_var_count(s->graph);
    const ash_type **types = calloc(count + 1, sizeof *types);
    if (!s->sizes) s->sizes = calloc(vars + 1, sizeof *s->sizes);
    bool good = (types && s->sizes) || no_memory();
    for (size_t i = 0; good && i < count; i++)
        types[i] = tensors[i] && session_fits(s, i, tensors[i]) ? ash_tensor_type(tensors[i]) : NULL;
    if (good && ash_graph_learn_vars(s->graph, types, count, s->sizes, &s->n_sizes, &s->diag) != ASH_OK)
        good = session_failed(s, "the sizes of the inputs");
    if (good && s->plan && ash_plan_set_vars(s->plan, s->sizes, s->n_sizes, &s->diag) != ASH_OK)
        good = session_failed(s, "the sizes of the inputs");
    free(types);
    return good;
}

bool session_set_inputs(struct session *s, ash_tensor **tensors) {
    bool good = set_sizes(s, tensors);
    for (size_t i = 0; i < ash_graph_input_count(s->graph); i++) {
        good = good && (!tensors[i] || set_input(s, i, tensors[i]));
        ash_tensor_destroy(tensors[i]);
        tensors[i] = NULL;
    }
    return good;
}

bool session_find_input(const struct session *s, const char *name, size_t *out) {
    for (size_t i = 0; i < ash_graph_input_count(s->graph); i++) {
        if (strcmp(input_name(s, i), name) != 0) continue;
        *out = i;
        return true;
    }
    return false;
}

/* The bytes of a view: where they lie, or, on a device that the host has no addresses on, a copy that is
 * the session's until it is closed or the value with the same number is looked at again. */
static ash_status look(struct session *s, const ash_view *view, size_t number, const void **data) {
    ash_status status = ash_view_data(view, data, &s->diag);
    if (status != ASH_ERROR_DEVICE) return status;
    uint64_t bytes = ash_view_bytes(view);
    void *copy = malloc(bytes ? (size_t)bytes : 1);
    if (!s->fetched) s->fetched = calloc(value_count(s), sizeof *s->fetched);
    if (!copy || !s->fetched) {
        free(copy);
        return s->diag.code = ASH_ERROR_OUT_OF_MEMORY;
    }
    free(s->fetched[number]);
    *data = s->fetched[number] = copy;
    return ash_view_copy_out(view, copy, bytes, &s->diag);
}

bool session_input(struct session *s, size_t position, const void **data) {
    ash_view *view;
    if (s->execution.eager) {
        *data = ash_tensor_data(s->given[position]);
        return true;
    }
    if (ash_plan_input(s->plan, position, &view, &s->diag) == ASH_OK &&
        look(s, view, position, data) == ASH_OK)
        return true;
    return session_failed(s, input_name(s, position));
}

static bool read_input(struct session *s, const char *text, ash_tensor **tensors) {
    char name[512];
    size_t position = 0;
    const char *file = split_option("--input", text, name, sizeof name);
    if (!file) return false;
    if (!session_find_input(s, name, &position)) {
        fprintf(stderr, "ashlar: --input %s: the model has no input \"%s\"; it has ", text, name);
        tell_inputs(s, s->graph);
        return false;
    }
    ash_tensor *tensor;
    if (read_tensor(s->context, file, name, &tensor, &s->diag) != ASH_OK) return session_failed(s, file);
    ash_tensor_destroy(tensors[position]); /* the last one counts */
    tensors[position] = tensor;
    return true;
}

/* xorshift64*: the same numbers everywhere. */
static uint64_t next_random(uint64_t *state) {
    *state ^= *state >> 12, *state ^= *state << 25, *state ^= *state >> 27;
    return *state * 0x2545f4914f6cdd1dULL;
}

/* Floating point numbers within [-1, 1), whole ones and truth values from 0 to 1: valid as indices, masks
 * and lengths. */
static void put_random(ash_dtype dtype, void *data, uint64_t i, uint64_t bits) {
    double unit = (double)(bits >> 11) / (double)(1ULL << 53) * 2 - 1;
    float single = (float)unit;
    uint32_t raw;
    memcpy(&raw, &single, sizeof raw);
    uint32_t exponent = (raw >> 23 & 0xff);
    uint16_t half = exponent < 113
                        ? 0
                        : (uint16_t)((raw >> 16 & 0x8000) | ((exponent - 112) << 10) | (raw >> 13 & 0x3ff));
    switch (dtype) {
    case ASH_F64: ((double *)data)[i] = unit; break;
    case ASH_F32: ((float *)data)[i] = single; break;
    case ASH_F16: ((uint16_t *)data)[i] = half; break;
    case ASH_BF16: ((uint16_t *)data)[i] = (uint16_t)(raw >> 16); break;
    default: {
        size_t size = ash_dtype_size(dtype);
        uint64_t value = bits >> 63;
        memcpy((char *)data + i * size, &value, size); /* little endian, as every target is */
    }
    }
}

static void fill_random(const ash_type *type, void *data, uint64_t bytes, uint64_t *state) {
    uint64_t count = bytes / ash_dtype_size(type->dtype);
    for (uint64_t i = 0; i < count; i++) put_random(type->dtype, data, i, next_random(state));
}

static bool give_random(struct session *s, size_t position, uint64_t *state) {
    ash_type type = input_type(s, position);
    size_t bytes = ash_dtype_size(type.dtype);
    for (unsigned i = 0; i < type.rank; i++) bytes *= (size_t)type.dims[i];
    void *data = malloc(bytes ? bytes : 1);
    ash_tensor *tensor;
    if (!data) return no_memory();
    fill_random(&type, data, bytes, state);
    ash_status status =
        ash_tensor_create(s->context, input_name(s, position), &type, data, bytes, &tensor, &s->diag);
    free(data);
    if (status == ASH_OK)
        status = ash_tensor_set_narrow(tensor, ash_graph_input_narrow(s->graph, position), &s->diag);
    if (status != ASH_OK) return session_failed(s, input_name(s, position));
    return keep_given(s, position, tensor);
}

static bool set_random(struct session *s, size_t position, uint64_t *state) {
    ash_view *view;
    void *data;
    if (s->execution.eager) return give_random(s, position, state);
    if (ash_plan_input(s->plan, position, &view, &s->diag) != ASH_OK)
        return session_failed(s, input_name(s, position));
    uint64_t bytes = ash_view_bytes(view);
    if (!(data = malloc(bytes ? (size_t)bytes : 1))) return no_memory();
    fill_random(ash_view_type(view), data, bytes, state);
    ash_status status = ash_view_copy_in(view, data, bytes, &s->diag);
    free(data);
    return status == ASH_OK || session_failed(s, input_name(s, position));
}

bool session_fill_inputs(struct session *s) {
    size_t count = ash_graph_input_count(s->graph);
    bool *set = calloc(count + 1, sizeof *set);
    ash_tensor **tensors = calloc(count + 1, sizeof(ash_tensor *));
    bool good = (set && tensors) || no_memory();
    uint64_t state = 0x9e3779b97f4a7c15ULL * (s->seed + 1ULL);
    for (size_t i = 0; good && i < s->inputs.count; i++) good = read_input(s, s->inputs.at[i], tensors);
    for (size_t i = 0; good && i < count; i++) set[i] = tensors[i] != NULL;
    if (tensors) good = session_set_inputs(s, tensors) && good;
    for (size_t i = 0; good && i < count; i++)
        if (!set[i]) good = set_random(s, i, &state);
    free(tensors);
    free(set);
    return good;
}

/* --- outputs ---------------------------------------------------------------------------------- */

bool session_output(struct session *s, size_t position, struct output *out) {
    const ash_view *view;
    ash_graph_output_at(s->graph, position, &out->name);
    if (s->execution.eager) {
        const ash_tensor *tensor = s->results[position];
        out->type = *ash_tensor_type(tensor);
        out->data = ash_tensor_data(tensor);
        out->bytes = ash_tensor_size(tensor);
        return true;
    }
    if (ash_plan_output(s->plan, position, &view, &s->diag) != ASH_OK ||
        look(s, view, ash_graph_input_count(s->graph) + position, &out->data) != ASH_OK)
        return session_failed(s, out->name);
    out->type = *ash_view_type(view);
    out->bytes = ash_view_bytes(view);
    return true;
}
