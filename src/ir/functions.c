/* SPDX-License-Identifier: MIT */
/* Functions of the caller: the context's registry, and calling one. */
#include <pthread.h>

#include "base/sized.h"
#include "ir.h"

struct functions {
    const ash_allocator *allocator;
    pthread_mutex_t lock;
    ASH_VEC(ash_function *) all; /* by number; each stays where it is */
    ash_strmap numbers;          /* by name */
};

static ash_status create(ash_context *context, void **out, ash_diag *diag) {
    const ash_allocator *a = ash_context__allocator(context);
    struct functions *f = ash_mem_calloc(a, 1, sizeof *f);
    if (!f) return ASH_NO_MEMORY(diag);
    f->allocator = a;
    pthread_mutex_init(&f->lock, NULL);
    ash_strmap_init(&f->numbers, a);
    *out = f;
    return ASH_OK;
}

static void free_function(const ash_allocator *a, ash_function *function) {
    if (!function) return;
    ash_mem_free(a, (char *)function->name, function->name ? strlen(function->name) + 1 : 0, 1);
    ash_mem_free(a, function, 1, sizeof *function);
}

static void destroy(void *object) {
    struct functions *f = object;
    for (size_t i = f->all.len; i-- > 0;) {
        if (f->all.at[i]->release) f->all.at[i]->release(f->all.at[i]->user);
        free_function(f->allocator, f->all.at[i]);
    }
    ash_vec_free(f->allocator, &f->all);
    ash_strmap_free(&f->numbers);
    pthread_mutex_destroy(&f->lock);
    ash_mem_free(f->allocator, f, 1, sizeof *f);
}

static ash_status registry(ash_context *context, struct functions **out, ash_diag *diag) {
    void *object = NULL;
    ASH_TRY(ash_context__slot(context, ASH_SLOT_FUNCTIONS, create, destroy, &object, diag));
    *out = object;
    return ASH_OK;
}

static ash_function *copy_function(const ash_allocator *a, const ash_function *from) {
    size_t size = strlen(from->name) + 1;
    ash_function *function = ash_mem_calloc(a, 1, sizeof *function);
    char *name = ash_mem_alloc(a, size, 1);
    if (!function || !name) {
        ash_mem_free(a, name, size, 1);
        ash_mem_free(a, function, 1, sizeof *function);
        return NULL;
    }
    memcpy(name, from->name, size);
    *function = *from;
    function->name = name;
    return function;
}

/* Under the lock. */
static ash_status append(struct functions *f, const ash_function *given, ash_diag *diag) {
    uint64_t number;
    size_t len = strlen(given->name);
    ASH_FAIL_IF(ash_strmap_get(&f->numbers, given->name, len, &number), diag, ASH_ERROR_INVALID_ARGUMENT,
                "the context has a function \"%.100s\" already", given->name);
    if (!ash_vec_reserve(f->allocator, &f->all, 1)) return ASH_NO_MEMORY(diag);
    ash_function *function = copy_function(f->allocator, given);
    if (!function || !ash_strmap_put(&f->numbers, function->name, len, f->all.len)) {
        free_function(f->allocator, function);
        return ASH_NO_MEMORY(diag);
    }
    f->all.at[f->all.len++] = function;
    return ASH_OK;
}

ASH_SIZED(ash_function, gradient);

ash_status ash_context_add_function(ash_context *context, const ash_function *function, ash_diag *diag) {
    struct functions *f;
    ash_function own;
    ASH_NEED(diag, context, function);
    ASH_TRY(ASH_TAKE(ash_function, function, &own, diag));
    function = &own;
    ASH_FAIL_IF(!function->run || !function->name || !function->name[0], diag, ASH_ERROR_INVALID_ARGUMENT,
                "a function has a name and something to run");
    ASH_TRY(registry(context, &f, diag));
    pthread_mutex_lock(&f->lock);
    ash_status status = append(f, function, diag);
    pthread_mutex_unlock(&f->lock);
    return status;
}

int64_t ash_context_find_function(ash_context *context, const char *name) {
    struct functions *f;
    uint64_t number;
    if (!context || !name || registry(context, &f, NULL) != ASH_OK) return -1;
    pthread_mutex_lock(&f->lock);
    bool found = ash_strmap_get(&f->numbers, name, strlen(name), &number);
    pthread_mutex_unlock(&f->lock);
    return found ? (int64_t)number : -1;
}

const ash_function *ash_function__at(ash_context *context, int64_t number) {
    struct functions *f;
    if (registry(context, &f, NULL) != ASH_OK) return NULL;
    pthread_mutex_lock(&f->lock);
    const ash_function *found = number >= 0 && (size_t)number < f->all.len ? f->all.at[number] : NULL;
    pthread_mutex_unlock(&f->lock);
    return found;
}

ash_status ash_function__run(const ash_function *function, const ash_call *call, ash_diag *diag) {
    ash_diag own;
    ash_diag_clear(&own);
    ash_status status = function->run(function->user, call, &own);
    if (status == ASH_OK) return ASH_OK;
    ASH_FAIL_IF((unsigned)status >= ASH_STATUS_COUNT, diag, ASH_ERROR_INVALID_ARGUMENT,
                "function %.100s returned %d, which is no status", function->name, (int)status);
    own.message[sizeof own.message - 1] = 0;
    if (!own.message[0]) return ash_fail(diag, status, "function %.100s failed", function->name);
    return ash_fail(diag, status, "%s", own.message);
}

const ash_function *ash_node__function(const ash_graph *graph, const ash_node *node) {
    return ash_function__at(graph->context, ash_node_int(node, ASH_ATTR_FUNCTION));
}

bool ash_node__is_pure(const ash_graph *graph, const ash_node *node) {
    if (node->op == ASH_OP_SETTLE || node->op == ASH_OP_ARGUMENT || node->op == ASH_OP_LOOP ||
        node->op == ASH_OP_STACK)
        return false;
    if (ash_op_infos[node->op].class != ASH_CLASS_CUSTOM) return true;
    const ash_function *function = ash_node__function(graph, node);
    return function && function->pure;
}
