/* SPDX-License-Identifier: MIT */
/* What every floor may use: allocation through the context's hooks, failure in two lines, checked
 * arithmetic. */
#ifndef ASH_BASE_H
#define ASH_BASE_H

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "ashlar/context.h"
#include "ashlar/status.h"

#define ASH_COUNT(a)  (sizeof(a) / sizeof((a)[0]))
#define ASH_MIN(a, b) ((a) < (b) ? (a) : (b))
#define ASH_MAX(a, b) ((a) > (b) ? (a) : (b))

/* Forwards a failure: the lowest layer has written the diagnostic. */
#define ASH_TRY(expr)                                                                                      \
    do {                                                                                                   \
        ash_status ash_try_ = (expr);                                                                      \
        if (ash_try_ != ASH_OK) return ash_try_;                                                           \
    } while (0)

/* The same for functions that clean up at the label `done` and return the variable `status`. */
#define ASH_TRY_DONE(expr)                                                                                 \
    do {                                                                                                   \
        status = (expr);                                                                                   \
        if (status != ASH_OK) goto done;                                                                   \
    } while (0)

/* The check, its reason and the return in one place. */
#define ASH_FAIL_IF(cond, diag, code, ...)                                                                 \
    do {                                                                                                   \
        if (cond) return ash_fail((diag), (code), __VA_ARGS__);                                            \
    } while (0)

#define ASH_FAIL_IF_DONE(cond, diag, code, ...)                                                            \
    do {                                                                                                   \
        if (cond) {                                                                                        \
            status = ash_fail((diag), (code), __VA_ARGS__);                                                \
            goto done;                                                                                     \
        }                                                                                                  \
    } while (0)

/* How a public function that returns a status begins: INVALID_ARGUMENT, and the first argument that is NULL
 * is named. Lists are plain names, between commas. */
#define ASH_NEED(diag, ...)                                                                                \
    do {                                                                                                   \
        const void *const need_[] = {__VA_ARGS__};                                                         \
        for (size_t at_ = 0; at_ < ASH_COUNT(need_); at_++)                                                \
            if (!need_[at_]) {                                                                             \
                ash_fail_null((diag), #__VA_ARGS__, at_);                                                  \
                return ASH_ERROR_INVALID_ARGUMENT;                                                         \
            }                                                                                              \
    } while (0)

#define ASH_NO_MEMORY(diag) ash_fail((diag), ASH_ERROR_OUT_OF_MEMORY, "out of memory")

/* Writes code and message into `diag` (NULL is allowed), clears its other fields, and returns `code`. */
ash_status ash_fail(ash_diag *diag, ash_status code, const char *fmt, ...) ASH_PRINTF(3, 4);
/* The analyser cannot see that a failure is never ASH_OK, and would follow roads that do not exist. */
#ifdef __clang_analyzer__
#define ash_fail(diag, code, ...) (ash_fail((diag), (code), __VA_ARGS__), (code))
#endif
/* The same with the byte offset in the file. */
ash_status ash_fail_at(ash_diag *diag, ash_status code, uint64_t offset, const char *fmt, ...)
    ASH_PRINTF(4, 5);
/* For ASH_NEED: the argument at `position` of a list of names is NULL. */
void ash_fail_null(ash_diag *diag, const char *names, size_t position);
/* Adds the node, the operator or the offset to a diagnostic that a lower layer wrote, where it has none
 * yet. NULL or
 * "" leaves a part as it is, as does ASH_NO_OFFSET. */
void ash_diag__add_node(ash_diag *diag, const char *node, const char *op, uint64_t offset);

/* --- memory --------------------------------------------------------------------------------------- */

/* The C library's allocator behind the hooks. */
extern const ash_allocator ash_allocator__libc;

/* `count` elements of `size` bytes, aligned for any object; NULL when there is no memory or the product
 * overflows. A product of 0 gives a pointer that may be freed. Contents are undefined, or zero for
 * ash_mem_calloc. */
void *ash_mem_alloc(const ash_allocator *a, size_t count, size_t size);
void *ash_mem_calloc(const ash_allocator *a, size_t count, size_t size);
/* `count` and `size` as they were given to ash_mem_alloc. NULL is allowed. */
void ash_mem_free(const ash_allocator *a, void *ptr, size_t count, size_t size);

/* Gives what the C library's allocator keeps of freed memory back to the system, where it can. After work
 * that took much more than it left. */
void ash_mem_trim(void);

/* A growable array: `ASH_VEC(int) v = {0};`. Freed with ash_vec_free. */
#define ASH_VEC(T)                                                                                         \
    struct {                                                                                               \
        T *at;                                                                                             \
        size_t len, cap;                                                                                   \
    }

/* Makes room for `n` elements more; false when there is no memory (the array is then as it was). */
#define ash_vec_reserve(a, v, n)                                                                           \
    ((size_t)(n) <= (v)->cap - (v)->len ||                                                                 \
     ash_vec__grow((a), (void **)&(v)->at, &(v)->cap, (v)->len, (n), sizeof *(v)->at))
/* Appends a value; false when there is no memory. */
#define ash_vec_push(a, v, ...)                                                                            \
    (ash_vec_reserve((a), (v), 1) && ((v)->at[(v)->len++] = (__VA_ARGS__), true))
#define ash_vec_free(a, v)                                                                                 \
    (ash_mem_free((a), (v)->at, (v)->cap, sizeof *(v)->at), (v)->at = NULL, (v)->len = (v)->cap = 0)

bool ash_vec__grow(const ash_allocator *a, void **at, size_t *cap, size_t len, size_t more, size_t size);

/* --- checked arithmetic: false on overflow, and *out is then undefined ---------------------------- */

static inline bool ash_mul_i64(int64_t a, int64_t b, int64_t *out) {
    return !__builtin_mul_overflow(a, b, out);
}
static inline bool ash_add_i64(int64_t a, int64_t b, int64_t *out) {
    return !__builtin_add_overflow(a, b, out);
}
static inline bool ash_mul_u64(uint64_t a, uint64_t b, uint64_t *out) {
    return !__builtin_mul_overflow(a, b, out);
}
static inline bool ash_add_u64(uint64_t a, uint64_t b, uint64_t *out) {
    return !__builtin_add_overflow(a, b, out);
}
/* `value` rounded up to a multiple of `align`, a power of two. The caller knows that it does not
 * overflow. */
static inline uint64_t ash_align_up(uint64_t value, uint64_t align) {
    return (value + align - 1) & ~(align - 1);
}
static inline bool ash_is_pow2(uint64_t value) {
    return value != 0 && (value & (value - 1)) == 0;
}
static inline int64_t ash_ceil_div(int64_t a, int64_t b) {
    return (a + b - 1) / b;
}

/* --- context -------------------------------------------------------------------------------------- */

/* Higher floors hang what they own on the context: created at first use, destroyed with it, in reverse
 * order. */
typedef enum ash_slot {
    ASH_SLOT_POOL,
    ASH_SLOT_DEVICES,
    ASH_SLOT_COMPILER,
    ASH_SLOT_FUNCTIONS,
    ASH_SLOT_COUNT
} ash_slot;

/* The slot's object; when there is none yet, `create` makes it, exactly once also under racing threads. */
ash_status ash_context__slot(ash_context *context, ash_slot slot,
                             ash_status (*create)(ash_context *context, void **out, ash_diag *diag),
                             void (*destroy)(void *object), void **out, ash_diag *diag);

const ash_allocator *ash_context__allocator(const ash_context *context);
uint64_t ash_context__keep_bytes(const ash_context *context);  /* see ash_context_options */
uint64_t ash_context__cache_bytes(const ash_context *context); /* the same */
bool ash_context__keeps_heap(const ash_context *context);      /* the same */
/* A variable of the environment, as every floor asks for it: NULL when there is none, and in a process that
 * has rights which its caller has not (setuid programs). */
const char *ash_environment__get(const char *name);
const char *ash_context__cache_dir(const ash_context *context); /* NULL: no cache */
void ash_context__log(const ash_context *context, ash_log_level level, const char *fmt, ...)
    ASH_PRINTF(3, 4);

#endif
