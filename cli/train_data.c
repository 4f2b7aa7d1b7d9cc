/* SPDX-License-Identifier: MIT */
/* Examples: rows of arrays in a .npz file, in an order that a seed and the number of the epoch make. */
#include <stdlib.h>
#include <string.h>

#include "train.h"

/* A permutation of what is there (Fisher and Yates), with xorshift64*. */
static void shuffle(uint32_t *order, size_t count, uint64_t seed) {
    uint64_t state = (seed + 1) * 0x9E3779B97F4A7C15ULL;
    for (size_t i = count; i > 1; i--) {
        state ^= state >> 12;
        state ^= state << 25;
        state ^= state >> 27;
        const size_t k = (size_t)((state * 2685821657736338717ULL >> 32) % i);
        const uint32_t swapped = order[i - 1];
        order[i - 1] = order[k];
        order[k] = swapped;
    }
}

static bool read_array(struct session *s, struct data *d, const char *file, const char *name) {
    struct examples *e = &d->at[d->count];
    if (d->count == LIST_ROOM) {
        fprintf(stderr, "ashlar: a model with more than %d inputs\n", LIST_ROOM - 1);
        return false;
    }
    if (read_tensor(s->context, file, name, &e->tensor, &s->diag) != ASH_OK) return session_failed(s, file);
    const ash_type *type = ash_tensor_type(e->tensor);
    e->name = name;
    d->count++;
    if (type->rank == 0 || type->dims[0] > UINT32_MAX ||
        (d->count > 1 && type->dims[0] != (ash_dim)d->rows)) {
        fprintf(stderr, "ashlar: %s: array %s is %s, and not of as many examples as the others\n", file,
                name, show_type(type).text);
        return false;
    }
    d->rows = (size_t)type->dims[0];
    return true;
}

bool data_read(struct session *s, struct data *d, const ash_graph *graph, const char *file,
               const char *labels) {
    for (size_t i = 0; i < ash_graph_input_count(graph); i++) {
        const char *name;
        ash_graph_input_at(graph, i, &name);
        if (!read_array(s, d, file, name)) return false;
    }
    d->labels = d->count;
    return read_array(s, d, file, labels);
}

bool data_split(struct data *d, double part, unsigned seed) {
    d->held = (size_t)(part * (double)d->rows + 0.5);
    if (part >= 1 || d->held >= d->rows) {
        fprintf(stderr, "ashlar: nothing of %zu examples is left to train on\n", d->rows);
        return false;
    }
    d->order = malloc((d->rows + 1) * sizeof *d->order);
    if (!d->order) return fprintf(stderr, "ashlar: out of memory\n"), false;
    for (size_t i = 0; i < d->rows; i++) d->order[i] = (uint32_t)i;
    shuffle(d->order, d->rows, seed);
    return true;
}

static int by_number(const void *a, const void *b) {
    const uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return x < y ? -1 : x > y;
}

/* From one order, whatever the last epoch's was, so that an epoch can be gone on with. */
void data_shuffle(struct data *d, unsigned seed, unsigned epoch) {
    uint32_t *trained = d->order + d->held;
    qsort(trained, d->rows - d->held, sizeof *trained, by_number);
    shuffle(trained, d->rows - d->held, (uint64_t)seed << 32 | (epoch + 1));
}

/* What the numbers of examples can become, where their type is another. */
static bool converts(ash_dtype to) {
    return to == ASH_F32 || to == ASH_F64 || to == ASH_I32 || to == ASH_I64;
}

bool data_expect(struct data *d, size_t i, const ash_type *what) {
    struct examples *e = &d->at[i];
    const ash_type *have = ash_tensor_type(e->tensor);
    bool same = have->rank == what->rank && (have->dtype == what->dtype || converts(what->dtype));
    for (unsigned k = 1; same && k < what->rank; k++) same = have->dims[k] == what->dims[k];
    if (!same) {
        ash_type wanted = *what;
        wanted.dims[0] = (ash_dim)d->rows;
        fprintf(stderr, "ashlar: array %s is %s, and the model wants %s\n", e->name, show_type(have).text,
                show_type(&wanted).text);
        return false;
    }
    e->row = (ash_type){.dtype = what->dtype, .rank = what->rank - 1};
    e->elements = 1;
    for (unsigned k = 1; k < what->rank; k++) {
        e->row.dims[k - 1] = what->dims[k];
        e->elements *= (size_t)what->dims[k];
    }
    e->batch = malloc(e->elements * (size_t)what->dims[0] * ash_dtype_size(what->dtype) + 1);
    return e->batch || (fprintf(stderr, "ashlar: out of memory\n"), false);
}

uint64_t data_bytes(const struct data *d, size_t i, size_t batch) {
    return (uint64_t)d->at[i].elements * batch * ash_dtype_size(d->at[i].row.dtype);
}

/* One number, from any type to one that `converts` knows. */
static void put(ash_dtype dtype, void *to, size_t at, double value) {
    switch (dtype) {
    case ASH_F32: ((float *)to)[at] = (float)value; break;
    case ASH_F64: ((double *)to)[at] = value; break;
    case ASH_I32: ((int32_t *)to)[at] = (int32_t)value; break;
    default: ((int64_t *)to)[at] = (int64_t)value;
    }
}

void data_gather(struct data *d, size_t i, size_t first, size_t count, size_t batch) {
    struct examples *e = &d->at[i];
    const ash_dtype dtype = ash_tensor_type(e->tensor)->dtype;
    const size_t size = ash_dtype_size(dtype) * e->elements;
    for (size_t k = 0; k < batch; k++) {
        const size_t row = d->order[first + (k < count ? k : count - 1)];
        const char *from = (const char *)ash_tensor_data(e->tensor) + row * size;
        if (dtype == e->row.dtype)
            memcpy((char *)e->batch + k * size, from, size);
        else
            for (size_t n = 0; n < e->elements; n++)
                put(e->row.dtype, e->batch, k * e->elements + n, element(dtype, from, n));
    }
}

void data_free(struct data *d) {
    for (size_t i = 0; i < d->count; i++) {
        ash_tensor_destroy(d->at[i].tensor);
        free(d->at[i].batch);
    }
    free(d->order);
}
