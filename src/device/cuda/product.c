/* SPDX-License-Identifier: MIT */
/* Kernels that are products of cuBLASLt. How one is done is asked once, when it is loaded, for what is
 * known of its addresses and the memory that the plan has for it; so it is the same in every mode and at
 * every execution. The library counts in columns: what lies row by row is to it the transposed matrix, and
 * of
 *
 *     out = a b    it computes    out' = b' a'
 *
 * so that its first operand is b, and its second one a. */
#include "ashlar/graph.h"
#include "cuda.h"

#include <stdio.h>

struct cuda_product {
    ash_product of;
    cu_blas_desc desc;
    cu_blas_layout a, b, out;
    cu_blas_way way;
};

ash_status ash_cuda__need_products(ash_device *device, ash_diag *diag) {
    cuda_device *d = ash_cuda__of(device);
    ASH_TRY(ash_cuda__enter(d, diag));
    pthread_mutex_lock(&d->lock);
    ash_status status = ASH_OK;
    if (!d->products) {
        status = ash_cu_blas__open(&d->blas, diag);
        if (status == ASH_OK)
            status = ash_cu_blas__check(&d->blas, d->blas.create(&d->products), "its handle", diag);
        if (status != ASH_OK) d->products = NULL;
    }
    pthread_mutex_unlock(&d->lock);
    ash_cuda__leave(d);
    return status;
}

/* --- descriptions ------------------------------------------------------------------------------------ */

#define CALL(call)                                                                                         \
    do {                                                                                                   \
        int result_ = (call);                                                                              \
        if (result_ != BLAS_OK) return result_;                                                            \
    } while (0)

static int type_of(const ash_product *p) {
    return p->dtype == ASH_F16 ? BLAS_F16 : p->dtype == ASH_BF16 ? BLAS_BF16 : BLAS_F32;
}

static int sums_of(const ash_product *p) {
    return p->dtype != ASH_F32 ? BLAS_SUMS_F32 : p->tf32 ? BLAS_SUMS_TF32 : BLAS_SUMS_PEDANTIC;
}

/* Of [rows, columns] as they lie. */
static int make_layout(const cu_blas *f, const ash_product *p, const ash_product_matrix *m, int64_t rows,
                       int64_t columns, cu_blas_layout *out) {
    const int64_t run = m->turned ? rows : columns, runs = m->turned ? columns : rows;
    const int32_t batches = (int32_t)p->batches;
    CALL(f->layout_create(out, type_of(p), (uint64_t)run, (uint64_t)runs, m->apart));
    CALL(f->layout_set(*out, BLAS_BATCHES, &batches, sizeof batches));
    return f->layout_set(*out, BLAS_BATCH_APART, &m->batch, sizeof m->batch);
}

static int describe(const cu_blas *f, cuda_product *product) {
    const ash_product *p = &product->of;
    const int32_t transposed = BLAS_TRANSPOSED;
    CALL(f->desc_create(&product->desc, sums_of(p), BLAS_F32));
    if (p->b.turned) CALL(f->desc_set(product->desc, BLAS_TRANSPOSE_A, &transposed, sizeof transposed));
    if (p->a.turned) CALL(f->desc_set(product->desc, BLAS_TRANSPOSE_B, &transposed, sizeof transposed));
    CALL(make_layout(f, p, &p->b, p->terms, p->columns, &product->b));
    CALL(make_layout(f, p, &p->a, p->rows, p->terms, &product->a));
    return make_layout(f, p, &p->out, p->rows, p->columns, &product->out);
}

static int wish(const cu_blas *f, const ash_product *p, cu_blas_wish to) {
    const uint64_t room = (uint64_t)p->room_bytes;
    const uint32_t a = (uint32_t)p->a.align, b = (uint32_t)p->b.align, out = (uint32_t)p->out.align;
    CALL(f->wish_set(to, BLAS_WORKSPACE, &room, sizeof room));
    CALL(f->wish_set(to, BLAS_ALIGN_A, &b, sizeof b));
    CALL(f->wish_set(to, BLAS_ALIGN_B, &a, sizeof a));
    CALL(f->wish_set(to, BLAS_ALIGN_C, &out, sizeof out));
    return f->wish_set(to, BLAS_ALIGN_D, &out, sizeof out);
}

/* The way that the library takes for the best. */
static int choose(const cuda_device *d, cuda_product *product) {
    const cu_blas *f = &d->blas;
    cu_blas_wish with;
    cu_blas_choice choice = {.status = BLAS_OK};
    int found = 0;
    CALL(f->wish_create(&with));
    int result = wish(f, &product->of, with);
    if (result == BLAS_OK)
        result = f->choose(d->products, product->desc, product->b, product->a, product->out, product->out,
                           with, 1, &choice, &found);
    f->wish_destroy(with);
    if (result != BLAS_OK) return result;
    product->way = choice.way;
    return found ? choice.status : BLAS_UNSUPPORTED;
}

ash_status ash_cuda_product__load(ash_device *device, const ash_product *of, cuda_product **out,
                                  ash_diag *diag) {
    cuda_device *d = ash_cuda__of(device);
    char what[96];
    cuda_product *product = ash_mem_calloc(ash_device__allocator(device), 1, sizeof *product);
    if (!product) return ASH_NO_MEMORY(diag);
    product->of = *of;
    snprintf(what, sizeof what, "a product of %lld x %lld x %lld", (long long)of->rows,
             (long long)of->terms, (long long)of->columns);
    int result = describe(&d->blas, product);
    if (result == BLAS_OK) result = choose(d, product);
    if (result != BLAS_OK) {
        ash_cuda_product__unload(device, product);
        return ash_cu_blas__check(&d->blas, result, what, diag);
    }
    *out = product;
    return ASH_OK;
}

void ash_cuda_product__unload(ash_device *device, cuda_product *product) {
    const cu_blas *f = &ash_cuda__of(device)->blas;
    if (product->desc) f->desc_destroy(product->desc);
    if (product->a) f->layout_destroy(product->a);
    if (product->b) f->layout_destroy(product->b);
    if (product->out) f->layout_destroy(product->out);
    ash_mem_free(ash_device__allocator(device), product, 1, sizeof *product);
}

/* --- launches ---------------------------------------------------------------------------------------- */

static void *place(const cu_address *table, const ash_product_matrix *m) {
    return (void *)(uintptr_t)(table[m->entry] + (uint64_t)m->first);
}

ash_status ash_cuda_product__issue(cuda_device *d, const cuda_product *product, const cu_address *table,
                                   cu_stream stream, ash_diag *diag) {
    const ash_product *p = &product->of;
    const float one = 1, zero = 0;
    void *out = place(table, &p->out);
    int result =
        d->blas.multiply(d->products, product->desc, &one, place(table, &p->b), product->b,
                         place(table, &p->a), product->a, &zero, out, product->out, out, product->out,
                         &product->way, (void *)(uintptr_t)table[p->room], (size_t)p->room_bytes, stream);
    return ash_cu_blas__check(&d->blas, result, "a product", diag);
}
