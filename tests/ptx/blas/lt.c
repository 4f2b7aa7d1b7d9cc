/* SPDX-License-Identifier: MIT */
/* See lt.h. A way to multiply (cublasLtMatmulAlgo_t) is good for what it was asked for, and nothing else:
 * that is written into it, with the alignments that were promised. */
#include "lt.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ptx.h"

typedef enum lt_call {
#define FUNCTION(name, result, params) CALL_##name,
#include "lt.def"
#undef FUNCTION
    N_CALLS
} lt_call;

static const char *const names[] = {
#define FUNCTION(name, result, params) #name,
#include "lt.def"
#undef FUNCTION
};

struct cublasLtContext {
    int magic;
};
struct lt_desc {
    int compute;
    int32_t transposed[2];
};
struct lt_layout {
    int type;
    uint64_t rows, columns;
    int64_t apart, batch;
    int32_t batches;
};
struct lt_preference {
    uint64_t workspace;
    uint32_t align[4];
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static uint64_t calls[N_CALLS], all_calls, fail_at, live;
static int fail_status, last_compute;
static const char *failed;
static char refusal[160];
static size_t version = 130000;

enum { MAGIC = 0x6c74, ENDS = 4096 /* bytes of a workspace that are written at either end */ };

void lt_reset(void) {
    memset(calls, 0, sizeof calls);
    all_calls = fail_at = live = 0;
    failed = NULL;
    refusal[0] = 0;
    version = 130000;
}

void lt_set_version(size_t to) {
    version = to;
}

void lt_fail_at(uint64_t n, int status) {
    fail_at = n ? all_calls + n : 0;
    fail_status = status;
}

const char *lt_failed(void) {
    return failed;
}

uint64_t lt_calls(const char *function) {
    if (!function) return all_calls;
    for (int i = 0; i < N_CALLS; i++)
        if (!strcmp(names[i], function)) return calls[i];
    return 0;
}

uint64_t lt_live(void) {
    return live;
}

int lt_compute(void) {
    return __atomic_load_n(&last_compute, __ATOMIC_RELAXED);
}

const char *lt_refusal(void) {
    return refusal;
}

/* Counts a call; what it is to answer, if it is to fail. */
static int enter(lt_call call) {
    pthread_mutex_lock(&lock);
    calls[call]++;
    int status = ++all_calls == fail_at ? fail_status : CUBLAS_STATUS_SUCCESS;
    if (status) failed = names[call];
    pthread_mutex_unlock(&lock);
    return status;
}

static int refuse(int status, const char *why) {
    snprintf(refusal, sizeof refusal, "%s", why);
    return status;
}

#define ENTER(function)                                                                                    \
    const int entered_ = enter(CALL_##function);                                                           \
    if (entered_) return entered_
#define REFUSE_IF(condition, why)                                                                          \
    if (condition) return refuse(CUBLAS_STATUS_INVALID_VALUE, why)

static void *make(size_t size) {
    void *made = calloc(1, size);
    if (!made) abort();
    __atomic_fetch_add(&live, 1, __ATOMIC_RELAXED);
    return made;
}

/* It is gone, also where the answer is that something went wrong. */
static int destroy(void *made, lt_call call) {
    __atomic_fetch_sub(&live, 1, __ATOMIC_RELAXED);
    free(made);
    return enter(call);
}

/* --- handles and descriptions ---------------------------------------------------------------------- */

size_t cublasLtGetVersion(void) {
    calls[CALL_cublasLtGetVersion]++;
    return version;
}

const char *cublasLtGetStatusString(cublasStatus_t status) {
#define NUMBER(name, value)                                                                                \
    if (!strncmp(#name, "CUBLAS_STATUS", 13) && status == value) return #name;
    LT_NUMBERS(NUMBER)
#undef NUMBER
    return "unknown";
}

cublasStatus_t cublasLtCreate(cublasLtHandle_t *handle) {
    ENTER(cublasLtCreate);
    if (!ptx_has_context()) return refuse(CUBLAS_STATUS_NOT_INITIALIZED, "there is no context");
    *handle = make(sizeof **handle);
    (*handle)->magic = MAGIC;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtDestroy(cublasLtHandle_t handle) {
    return destroy(handle, CALL_cublasLtDestroy);
}

cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t *desc, cublasComputeType_t compute,
                                        cudaDataType_t scale) {
    ENTER(cublasLtMatmulDescCreate);
    REFUSE_IF(scale != CUDA_R_32F, "factors are no f32");
    *desc = make(sizeof **desc);
    (*desc)->compute = compute;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t desc) {
    return destroy(desc, CALL_cublasLtMatmulDescDestroy);
}

cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t desc,
                                              cublasLtMatmulDescAttributes_t attribute, const void *value,
                                              size_t bytes) {
    ENTER(cublasLtMatmulDescSetAttribute);
    REFUSE_IF(attribute != CUBLASLT_MATMUL_DESC_TRANSA && attribute != CUBLASLT_MATMUL_DESC_TRANSB,
              "an attribute of a description");
    REFUSE_IF(bytes != sizeof(int32_t), "the bytes of an attribute");
    memcpy(&desc->transposed[attribute - CUBLASLT_MATMUL_DESC_TRANSA], value, bytes);
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t *layout, cudaDataType_t type,
                                          uint64_t rows, uint64_t columns, int64_t apart) {
    ENTER(cublasLtMatrixLayoutCreate);
    REFUSE_IF(!rows || !columns || apart < (int64_t)rows, "columns of a matrix that overlap");
    *layout = make(sizeof **layout);
    **layout =
        (struct lt_layout){.type = type, .rows = rows, .columns = columns, .apart = apart, .batches = 1};
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t layout) {
    return destroy(layout, CALL_cublasLtMatrixLayoutDestroy);
}

cublasStatus_t cublasLtMatrixLayoutSetAttribute(cublasLtMatrixLayout_t layout,
                                                cublasLtMatrixLayoutAttribute_t attribute,
                                                const void *value, size_t bytes) {
    ENTER(cublasLtMatrixLayoutSetAttribute);
    const bool count = attribute == CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT;
    REFUSE_IF(!count && attribute != CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET,
              "an attribute of a layout");
    REFUSE_IF(bytes != (count ? sizeof layout->batches : sizeof layout->batch),
              "the bytes of an attribute");
    memcpy(count ? (void *)&layout->batches : (void *)&layout->batch, value, bytes);
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t *preference) {
    ENTER(cublasLtMatmulPreferenceCreate);
    *preference = make(sizeof **preference);
    **preference = (struct lt_preference){.align = {256, 256, 256, 256}};
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t preference) {
    return destroy(preference, CALL_cublasLtMatmulPreferenceDestroy);
}

cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t preference,
                                                    cublasLtMatmulPreferenceAttributes_t attribute,
                                                    const void *value, size_t bytes) {
    ENTER(cublasLtMatmulPreferenceSetAttribute);
    const bool room = attribute == CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES;
    const int which = attribute - CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES;
    REFUSE_IF(!room && (which < 0 || which > 3), "an attribute of a preference");
    REFUSE_IF(bytes != (room ? sizeof preference->workspace : sizeof *preference->align),
              "the bytes of an attribute");
    memcpy(room ? (void *)&preference->workspace : (void *)&preference->align[which], value, bytes);
    return CUBLAS_STATUS_SUCCESS;
}

/* --- products -------------------------------------------------------------------------------------- */

/* What a product is, as the description and the layouts say it. */
typedef struct shape {
    uint64_t rows, columns, terms;
    int compute, type;
    int32_t batches;
    bool turned_a, turned_b;
} shape;

static uint64_t element(int type) {
    return type == CUDA_R_32F ? 4 : 2;
}

static const char *read_shape(const struct lt_desc *desc, const struct lt_layout *a,
                              const struct lt_layout *b, const struct lt_layout *c,
                              const struct lt_layout *d, shape *out) {
    *out = (shape){.rows = d->rows,
                   .columns = d->columns,
                   .compute = desc->compute,
                   .type = d->type,
                   .batches = d->batches,
                   .turned_a = desc->transposed[0] == CUBLAS_OP_T,
                   .turned_b = desc->transposed[1] == CUBLAS_OP_T};
    out->terms = out->turned_a ? a->rows : a->columns;
    if (a->type != d->type || b->type != d->type || c->type != d->type) return "types that differ";
    if (d->type != CUDA_R_32F && d->type != CUDA_R_16F && d->type != CUDA_R_16BF) return "a type";
    if (d->type != CUDA_R_32F && desc->compute != CUBLAS_COMPUTE_32F) return "sums of half floats";
    if (desc->compute != CUBLAS_COMPUTE_32F && desc->compute != CUBLAS_COMPUTE_32F_PEDANTIC &&
        desc->compute != CUBLAS_COMPUTE_32F_FAST_TF32)
        return "a way to sum";
    if ((out->turned_a ? a->columns : a->rows) != d->rows ||
        (out->turned_b ? b->rows : b->columns) != d->columns ||
        (out->turned_b ? b->columns : b->rows) != out->terms || c->rows != d->rows ||
        c->columns != d->columns)
        return "matrices that do not fit";
    if (a->batches != d->batches || b->batches != d->batches || c->batches != d->batches || d->batches < 1)
        return "batches that differ";
    if (d->batches > 1 && d->batch < (int64_t)d->rows) return "results that overlap";
    return NULL;
}

static void write_way(const shape *s, const struct lt_preference *with, cublasLtMatmulAlgo_t *way) {
    const uint32_t *align = with->align;
    *way = (cublasLtMatmulAlgo_t){
        {MAGIC, with->workspace, s->rows << 32 | s->columns, s->terms << 32 | (uint32_t)s->batches,
         (uint64_t)align[0] << 32 | align[1], (uint64_t)align[2] << 32 | align[3],
         (uint64_t)s->compute << 32 | (uint32_t)s->type, (uint64_t)s->turned_a << 1 | s->turned_b}};
}

cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t handle, cublasLtMatmulDesc_t desc,
                                              cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                              cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                              cublasLtMatmulPreference_t preference, int most,
                                              cublasLtMatmulHeuristicResult_t results[], int *found) {
    ENTER(cublasLtMatmulAlgoGetHeuristic);
    shape s;
    REFUSE_IF(!handle || handle->magic != MAGIC, "no handle");
    const char *why = read_shape(desc, a, b, c, d, &s);
    REFUSE_IF(why, why);
    REFUSE_IF(most < 1, "no room for an answer");
    *found = 1;
    results[0] = (cublasLtMatmulHeuristicResult_t){.workspaceSize = preference->workspace};
    write_way(&s, preference, &results[0].algo);
    return CUBLAS_STATUS_SUCCESS;
}

/* What the work is told. */
typedef struct product {
    shape s;
    struct lt_layout a, b, d;
    float alpha;
    uint64_t workspace;
} product;

static double from_half(uint16_t h) {
    _Float16 f;
    memcpy(&f, &h, sizeof f);
    return (double)f;
}

static double read_number(const product *p, const unsigned char *at) {
    uint32_t word = 0;
    uint16_t half;
    float f;
    if (p->s.type == CUDA_R_32F) {
        memcpy(&word, at, sizeof word);
        if (p->s.compute == CUBLAS_COMPUTE_32F_FAST_TF32) word = (word + 0x1000) & ~UINT32_C(0x1fff);
    } else {
        memcpy(&half, at, sizeof half);
        if (p->s.type == CUDA_R_16F) return from_half(half);
        word = (uint32_t)half << 16;
    }
    memcpy(&f, &word, sizeof f);
    return f;
}

static void write_number(const product *p, unsigned char *at, double value) {
    float f = (float)value;
    uint32_t word;
    if (p->s.type == CUDA_R_32F) {
        memcpy(at, &f, sizeof f);
    } else if (p->s.type == CUDA_R_16F) {
        _Float16 h = (_Float16)f;
        memcpy(at, &h, sizeof h);
    } else { /* to nearest, ties to even */
        memcpy(&word, &f, sizeof word);
        uint16_t half = (uint16_t)((word + 0x7fff + (word >> 16 & 1)) >> 16);
        memcpy(at, &half, sizeof half);
    }
}

/* A matrix as [terms][lines], in double precision. */
static double *unpack(const product *p, const struct lt_layout *l, const unsigned char *at,
                      bool along_rows) {
    double *to = malloc((l->rows * l->columns + 1) * sizeof *to);
    if (!to) abort();
    for (uint64_t c = 0; c < l->columns; c++)
        for (uint64_t r = 0; r < l->rows; r++)
            to[along_rows ? c * l->rows + r : r * l->columns + c] =
                read_number(p, at + (c * (uint64_t)l->apart + r) * element(l->type));
    return to;
}

static void multiply(const product *p, const unsigned char *a, const unsigned char *b, unsigned char *d) {
    const shape *s = &p->s;
    double *x = unpack(p, &p->a, a, !s->turned_a), *y = unpack(p, &p->b, b, s->turned_b),
           *sums = malloc((s->rows + 1) * sizeof *sums);
    if (!sums) abort();
    for (uint64_t j = 0; j < s->columns; j++) {
        memset(sums, 0, s->rows * sizeof *sums);
        for (uint64_t t = 0; t < s->terms; t++)
            for (uint64_t i = 0; i < s->rows; i++) sums[i] += x[t * s->rows + i] * y[t * s->columns + j];
        for (uint64_t i = 0; i < s->rows; i++)
            write_number(p, d + (j * (uint64_t)p->d.apart + i) * element(s->type), p->alpha * sums[i]);
    }
    free(x);
    free(y);
    free(sums);
}

/* What the library leaves in its workspace is nothing that anybody can use. */
static void run(const void *arg, unsigned char *const *memory) {
    const product *p = arg;
    const uint64_t size = element(p->s.type), ends = p->workspace < ENDS ? p->workspace : ENDS;
    if (ends) {
        memset(memory[3], 0xff, ends);
        memset(memory[3] + p->workspace - ends, 0xff, ends);
    }
    for (int64_t k = 0; k < p->s.batches; k++)
        multiply(p, memory[0] + (uint64_t)(k * p->a.batch) * size,
                 memory[1] + (uint64_t)(k * p->b.batch) * size,
                 memory[2] + (uint64_t)(k * p->d.batch) * size);
}

static ptx_region region(const struct lt_layout *l, const void *at, bool writes) {
    const uint64_t size = element(l->type);
    return (ptx_region){.address = (uint64_t)(uintptr_t)at,
                        .bytes = l->rows * size,
                        .runs = l->columns,
                        .apart = (uint64_t)l->apart * size,
                        .times = l->batch ? (uint64_t)l->batches : 1,
                        .further = (uint64_t)l->batch * size,
                        .writes = writes};
}

static bool is_aligned(const void *at, uint64_t align) {
    return align && (uintptr_t)at % align == 0;
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t handle, cublasLtMatmulDesc_t desc, const void *alpha,
                              const void *a, cublasLtMatrixLayout_t a_layout, const void *b,
                              cublasLtMatrixLayout_t b_layout, const void *beta, const void *c,
                              cublasLtMatrixLayout_t c_layout, void *d, cublasLtMatrixLayout_t d_layout,
                              const cublasLtMatmulAlgo_t *way, void *workspace, size_t bytes,
                              cudaStream_t stream) {
    ENTER(cublasLtMatmul);
    product p = {.a = *a_layout, .b = *b_layout, .d = *d_layout};
    float factor;
    cublasLtMatmulAlgo_t wanted;
    REFUSE_IF(!handle || handle->magic != MAGIC, "no handle");
    const char *why = read_shape(desc, a_layout, b_layout, c_layout, d_layout, &p.s);
    REFUSE_IF(why, why);
    REFUSE_IF(!a || !b || !d || !way || way->data[0] != MAGIC, "an operand that is nowhere, or no way");
    memcpy(&factor, beta, sizeof factor);
    REFUSE_IF(factor != 0 || c != d, "a summand"); /* it is not used */
    memcpy(&p.alpha, alpha, sizeof p.alpha);
    const struct lt_preference with = {way->data[1],
                                       {(uint32_t)(way->data[4] >> 32), (uint32_t)way->data[4],
                                        (uint32_t)(way->data[5] >> 32), (uint32_t)way->data[5]}};
    write_way(&p.s, &with, &wanted);
    REFUSE_IF(memcmp(&wanted, way, sizeof wanted) != 0, "a way to do something else");
    REFUSE_IF(bytes < with.workspace || (with.workspace && !is_aligned(workspace, 16)), "a workspace");
    REFUSE_IF(!is_aligned(a, with.align[0]) || !is_aligned(b, with.align[1]) ||
                  !is_aligned(c, with.align[2]) || !is_aligned(d, with.align[3]),
              "an address that is less aligned than was said");
    __atomic_store_n(&last_compute, p.s.compute, __ATOMIC_RELAXED);
    p.workspace = with.workspace;
    ptx_work work = {
        .name = "matmul",
        .run = run,
        .arg = &p,
        .arg_bytes = sizeof p,
        .regions = {region(a_layout, a, false), region(b_layout, b, false), region(d_layout, d, true)},
        .n_regions = 3};
    const uint64_t ends = p.workspace < ENDS ? p.workspace : ENDS;
    if (ends)
        work.regions[work.n_regions++] = (ptx_region){.address = (uint64_t)(uintptr_t)workspace,
                                                      .bytes = ends,
                                                      .runs = 2,
                                                      .apart = p.workspace - ends,
                                                      .times = 1,
                                                      .writes = true};
    return ptx_launch_work(stream, &work) ? CUBLAS_STATUS_EXECUTION_FAILED : CUBLAS_STATUS_SUCCESS;
}
