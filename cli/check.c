/* SPDX-License-Identifier: MIT */
/* Comparing with expected outputs, in the folder layout of the ONNX backend tests:
 *
 *     DIR/model.onnx   DIR/test_data_set_0/input_0.pb ...   DIR/test_data_set_0/output_0.pb ...
 *
 * dtype and shape must be equal, floating point results within a relative error in the 2-norm, all others
 * exactly. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli.h"

static double tolerance(ash_dtype dtype) {
    switch (dtype) {
    case ASH_F64:
    case ASH_F32: return 1e-4;
    case ASH_F16: return 2e-3;
    case ASH_BF16: return 2e-2;
    default: return 0;
    }
}

static bool is_float(ash_dtype dtype) {
    return dtype == ASH_F64 || dtype == ASH_F32 || dtype == ASH_F16 || dtype == ASH_BF16;
}

/* |a - b| / |b| over all elements; infinite when a NaN or an infinity stands where there is none. */
static double distance(ash_dtype dtype, const void *a, const void *b, uint64_t count) {
    double apart = 0, size = 0;
    for (uint64_t i = 0; i < count; i++) {
        double x = element(dtype, a, i), y = element(dtype, b, i);
        if (x == y || (isnan(x) && isnan(y))) {
            if (isfinite(y)) size += y * y;
            continue;
        }
        if (!isfinite(x) || !isfinite(y)) return (double)INFINITY;
        apart += (x - y) * (x - y);
        size += y * y;
    }
    return apart == 0 ? 0 : size == 0 ? (double)INFINITY : sqrt(apart / size);
}

static bool compare(struct session *s, size_t position, const ash_tensor *want) {
    struct output output;
    if (!session_output(s, position, &output)) return false;
    const char *name = output.name;
    const void *data = output.data;
    const ash_type *have = &output.type, *type = ash_tensor_type(want);
    bool same = have->dtype == type->dtype && have->rank == type->rank;
    for (unsigned i = 0; same && i < type->rank; i++) same = have->dims[i] == type->dims[i];
    if (!same) {
        printf("  output %s is %s, expected %s\n", name, show_type(have).text, show_type(type).text);
        return false;
    }
    uint64_t count = output.bytes / ash_dtype_size(type->dtype);
    bool exact = !is_float(type->dtype);
    double error = distance(type->dtype, data, ash_tensor_data(want), count);
    if (exact) error = memcmp(data, ash_tensor_data(want), ash_tensor_size(want)) ? (double)INFINITY : 0;
    bool good = error <= tolerance(type->dtype);
    printf("  output %s %s: %s, relative error %.2e\n", name, show_type(type).text,
           good ? "agrees" : "DIFFERS", error);
    return good;
}

/* Reads `folder/kind_index.pb` when it is there; NULL when it is not. */
static bool read_numbered(struct session *s, const char *folder, const char *kind, size_t index,
                          ash_tensor **out) {
    char path[1200];
    *out = NULL;
    snprintf(path, sizeof path, "%s/%s_%zu.pb", folder, kind, index);
    if (access(path, F_OK) != 0) return true;
    if (ash_tensor_read(s->context, path, out, &s->diag) != ASH_OK) return session_failed(s, path);
    return true;
}

/* An input that `--bind` has made a constant. */
static bool is_bound(const struct session *s, const char *name) {
    size_t len = strlen(name);
    for (size_t i = 0; len && i < s->binds.count; i++)
        if (!strncmp(s->binds.at[i], name, len) && s->binds.at[i][len] == '=') return true;
    return false;
}

/* Reads the inputs of a set into `tensors`, an entry per input of the graph. */
static bool read_inputs(struct session *s, const char *folder, ash_tensor **tensors) {
    size_t count = ash_graph_input_count(s->graph), given = 0;
    for (size_t i = 0;; i++) {
        ash_tensor *tensor;
        if (!read_numbered(s, folder, "input", i, &tensor)) return false;
        if (!tensor) break;
        size_t position = i;
        session_find_input(s, ash_tensor_name(tensor), &position);
        if (is_bound(s, ash_tensor_name(tensor))) {
            ash_tensor_destroy(tensor);
            continue;
        }
        if (position >= count || tensors[position]) {
            fprintf(stderr, "ashlar: %s has more inputs than the model\n", folder);
            ash_tensor_destroy(tensor);
            return false;
        }
        tensors[position] = tensor;
        given++;
    }
    if (given == count) return true;
    fprintf(stderr, "ashlar: %s has %zu inputs, the model %zu\n", folder, given, count);
    return false;
}

static bool set_inputs(struct session *s, const char *folder) {
    size_t count = ash_graph_input_count(s->graph);
    ash_tensor **tensors = calloc(count + 1, sizeof(ash_tensor *));
    if (!tensors) {
        fprintf(stderr, "ashlar: out of memory\n");
        return false;
    }
    bool good = read_inputs(s, folder, tensors) && session_set_inputs(s, tensors);
    for (size_t i = 0; i < count; i++) ash_tensor_destroy(tensors[i]);
    free(tensors);
    return good;
}

/* --- the reference evaluator ------------------------------------------------------------------ */

/* Single precision, and a bit for each level of a deep network. */
static const double REFERENCE_TOLERANCE = 1e-5;

static bool compare_reference(struct session *s, size_t position, const ash_reference *reference) {
    struct output output;
    size_t count;
    const double *want = ash_reference_output(reference, position, NULL, &count);
    if (!session_output(s, position, &output)) return false;
    const ash_type *type = &output.type;
    double apart = 0, size = 0;
    for (uint64_t i = 0; i < count; i++) {
        double x = element(type->dtype, output.data, i), y = want[i];
        if (x == y || (isnan(x) && isnan(y))) {
            if (isfinite(y)) size += y * y;
            continue;
        }
        apart += (x - y) * (x - y);
        size += y * y;
    }
    double error = apart == 0 ? 0 : sqrt(apart / size);
    bool good =
        error <= (is_float(type->dtype) ? fmax(REFERENCE_TOLERANCE, tolerance(type->dtype) / 10) : 0);
    printf("  output %s %s the reference evaluator, relative error %.2e\n", output.name,
           good ? "agrees with" : "DIFFERS from", error);
    return good;
}

int check_reference(struct session *s) {
    const void *inputs[256];
    size_t count = ash_graph_input_count(s->graph);
    ash_reference *reference;
    int differ = 0;
    if (count > COUNT(inputs)) {
        fprintf(stderr, "ashlar: too many inputs for --reference\n");
        return -1;
    }
    for (size_t i = 0; i < count; i++)
        if (!session_input(s, i, &inputs[i])) return -1;
    const char *names[LIST_ROOM];
    int64_t values[LIST_ROOM];
    if (s->n_sizes > LIST_ROOM) {
        fprintf(stderr, "ashlar: too many variables for --reference\n");
        return -1;
    }
    for (size_t i = 0; i < s->n_sizes; i++) names[i] = s->sizes[i].name, values[i] = s->sizes[i].value;
    if (ash_reference_run(s->graph, inputs, count, names, values, s->n_sizes, &reference, &s->diag) !=
        ASH_OK) {
        session_failed(s, "the reference evaluator");
        return -1;
    }
    for (size_t i = 0; i < ash_graph_output_count(s->graph); i++)
        differ += !compare_reference(s, i, reference);
    ash_reference_destroy(reference);
    return differ;
}

/* Whether the inputs of a set have shapes that the session's graph takes. */
static bool set_fits(struct session *s, const char *folder, bool *fits) {
    ash_tensor *tensor;
    *fits = true;
    for (size_t i = 0;; i++) {
        if (!read_numbered(s, folder, "input", i, &tensor)) return false;
        if (!tensor) return true;
        size_t position = i;
        session_find_input(s, ash_tensor_name(tensor), &position);
        if (!is_bound(s, ash_tensor_name(tensor)) && position < ash_graph_input_count(s->graph))
            *fits = *fits && session_fits(s, position, tensor);
        ash_tensor_destroy(tensor);
    }
}

static int check_set(struct session *s, const char *folder) {
    int differ = 0;
    size_t compared = 0;
    if (!set_inputs(s, folder) || !session_execute(s)) return -1;
    for (size_t i = 0; i < ash_graph_output_count(s->graph); i++) {
        ash_tensor *want;
        if (!read_numbered(s, folder, "output", i, &want)) return -1;
        if (!want) continue;
        differ += !compare(s, i, want);
        compared++;
        ash_tensor_destroy(want);
    }
    if (compared == 0) {
        fprintf(stderr, "ashlar: %s has no expected outputs\n", folder);
        return -1;
    }
    return differ;
}

int check_folder(struct session *s, const char *folder) {
    int differ = 0;
    for (int set = 0;; set++) {
        char path[1024];
        snprintf(path, sizeof path, "%s/test_data_set_%d", folder, set);
        if (access(path, F_OK) != 0) {
            if (set > 0) return differ;
            fprintf(stderr, "ashlar: %s has no test_data_set_0\n", folder);
            return -1;
        }
        bool fits;
        if (!set_fits(s, path, &fits) || (!fits && set > 0 && !session_reopen(s, set))) return -1;
        int more = check_set(s, path);
        if (more < 0) return -1;
        differ += more;
    }
}
