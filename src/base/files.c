/* SPDX-License-Identifier: MIT */
/* The mapped files of a context, by address. */
#include "file.h"

void ash_files__init(ash_files *files) {
    *files = (ash_files){0};
    pthread_mutex_init(&files->lock, NULL);
}

void ash_files__free(ash_files *files, const ash_allocator *a) {
    ash_mem_free(a, files->at, files->room, sizeof(ash_file *));
    pthread_mutex_destroy(&files->lock);
}

/* The first file that ends past an address. */
static size_t find(const ash_files *files, uintptr_t address) {
    size_t low = 0, high = files->count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        const ash_file *file = files->at[middle];
        if ((uintptr_t)file->data + file->size <= address)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

ash_status ash_files__add(ash_files *files, ash_file *file, ash_diag *diag) {
    const ash_allocator *a = ash_context__allocator(file->context);
    ash_status status = ASH_OK;
    pthread_mutex_lock(&files->lock);
    if (ash_vec__grow(a, (void **)&files->at, &files->room, files->count, 1, sizeof(ash_file *))) {
        size_t at = find(files, (uintptr_t)file->data);
        memmove(files->at + at + 1, files->at + at, (files->count - at) * sizeof(ash_file *));
        files->at[at] = file;
        files->count++;
    } else {
        status = ASH_NO_MEMORY(diag);
    }
    pthread_mutex_unlock(&files->lock);
    return status;
}

void ash_files__remove(ash_files *files, const ash_file *file) {
    pthread_mutex_lock(&files->lock);
    size_t at = find(files, (uintptr_t)file->data);
    files->count--;
    memmove(files->at + at, files->at + at + 1, (files->count - at) * sizeof(ash_file *));
    if (files->count == 0) {
        ash_mem_free(ash_context__allocator(file->context), files->at, files->room, sizeof(ash_file *));
        files->at = NULL;
        files->room = 0;
    }
    pthread_mutex_unlock(&files->lock);
}

/* Holds a file unless it is about to go. */
static bool hold(ash_file *file) {
    long refs = __atomic_load_n(&file->refs, __ATOMIC_RELAXED);
    while (refs > 0)
        if (__atomic_compare_exchange_n(&file->refs, &refs, refs + 1, true, __ATOMIC_RELAXED,
                                        __ATOMIC_RELAXED))
            return true;
    return false;
}

ash_file *ash_file_at(ash_context *context, const void *data, uint64_t size) {
    ash_files *files = ash_context__files(context);
    uintptr_t begin = (uintptr_t)data;
    ash_file *found = NULL;
    if (size == 0) return NULL;
    pthread_mutex_lock(&files->lock);
    size_t at = find(files, begin);
    if (at < files->count) {
        ash_file *file = files->at[at];
        uintptr_t start = (uintptr_t)file->data;
        if ((start <= begin || start - begin < size) && hold(file)) found = file;
    }
    pthread_mutex_unlock(&files->lock);
    return found;
}

ash_status ash_file_check_given(ash_context *context, const void *data, uint64_t size, ash_diag *diag) {
    ash_file *file = ash_file_at(context, data, size);
    if (!file) return ASH_OK;
    ash_status status = ash_file_check_bytes(file, data, size, diag);
    ash_file_release(file);
    return status;
}
