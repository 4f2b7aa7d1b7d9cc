/* SPDX-License-Identifier: MIT */
/* Statuses and diagnostics: every failure of the library is a value.
 *
 * A function that can fail returns an ash_status. Those that take an ash_diag also say, when they fail,
 * where and why: the node, the operator, the byte offset in the file, and a sentence. The diagnostic
 * belongs to the caller, holds no pointers, and may be NULL. The library keeps no last error, prints
 * nothing, and never ends the process.
 *
 * NULL for an argument, in all headers:
 *  - a function that returns a status fails with ASH_ERROR_INVALID_ARGUMENT, and the diagnostic names the
 *    argument. A list of which 0 elements are given may be NULL, and so may what is described as optional:
 *    `diag` and `options` always;
 *  - a function that builds a graph keeps that failure in the graph (ash_graph_status);
 *  - any other returns what says nothing: NULL, 0, false, ASH_NO_VALUE, a struct of zeros; a place for a
 *    further result may be NULL, and is not written then;
 *  - what destroys, closes, releases, frees or clears does nothing. */
#ifndef ASHLAR_STATUS_H
#define ASHLAR_STATUS_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define ASH_API                __attribute__((visibility("default")))
#define ASH_PRINTF(fmt, first) __attribute__((format(printf, fmt, first)))
#else
#define ASH_API
#define ASH_PRINTF(fmt, first)
#endif

typedef enum ash_status {
    ASH_OK = 0,
    ASH_ERROR_OUT_OF_MEMORY,    /* an allocation failed */
    ASH_ERROR_INVALID_ARGUMENT, /* the call itself is wrong: null, unknown enumerator, wrong length */
    ASH_ERROR_NOT_FOUND,        /* no such name, index, file or device */
    ASH_ERROR_OUT_OF_RANGE, /* a variable outside [min, max], a view outside its storage, arithmetic past 64
                               bits */
    ASH_ERROR_SHAPE,        /* operands whose shapes do not fit the operator */
    ASH_ERROR_TYPE,         /* operands whose dtypes do not fit the operator */
    ASH_ERROR_FORMAT,       /* a file or text that is malformed */
    ASH_ERROR_IO,           /* the operating system refused a file operation */
    ASH_ERROR_UNSUPPORTED,  /* well-formed, but not implemented; the diagnostic names it */
    ASH_ERROR_DEVICE,       /* a device is missing or failed */
    ASH_ERROR_STATE,        /* the object is not in a state that allows the call */
    ASH_ERROR_BUDGET,       /* a memory, time or node budget cannot be met */
    ASH_ERROR_CANCELLED,    /* the caller asked to stop */
    ASH_ERROR_INTERNAL,     /* a self-check failed: a defect of the library */
    ASH_STATUS_COUNT
} ash_status;

/* Structs that grow. Options, which a caller fills, and reports, which it receives, get new fields at their
 * end. Their first field says how many bytes of them the caller knows, so that programs and libraries of
 * different versions understand each other:
 *
 *     ash_plan_options options = ASH_INIT(ash_plan_options);     or  {.size = sizeof options, .threads = 2}
 *
 * Everything else is 0 then, which is the default. `size` may be 0, too, in a zeroed struct: it means the
 * struct as it was in its first release, and fields that it got later, which their comments say, are passed
 * over. Options that have something set which the library does not know are ASH_ERROR_UNSUPPORTED; of a
 * report nothing past `size` is written. docs/decisions.md has the policy. */
#ifdef __cplusplus
#define ASH_INIT(T)                                                                                        \
    ([] {                                                                                                  \
        T sized_ = T();                                                                                    \
        sized_.size = sizeof(T);                                                                           \
        return sized_;                                                                                     \
    }())
#else
#define ASH_INIT(T) {.size = sizeof(T)}
#endif

#define ASH_NO_OFFSET UINT64_MAX

/* Where and why a call failed. Strings are always terminated; longer ones are cut. */
typedef struct ash_diag {
    ash_status code;
    uint64_t file_offset; /* bytes from the start of the input file or text, or ASH_NO_OFFSET */
    char node[96];        /* name of the node or value, or "" */
    char op[48];          /* operator with its domain and opset where there is one, or "" */
    char message[384];    /* one sentence, without the parts above */
} ash_diag;

/* The status as a short lower-case phrase; "unknown status" for a value outside the enumeration. */
ASH_API const char *ash_status_text(ash_status status);

/* Sets `diag` to "no error". NULL is allowed. */
ASH_API void ash_diag_clear(ash_diag *diag);

/* Writes the whole diagnostic as one line into `out` (at most `size` bytes with the terminator) and returns
 * the length that the whole line has, as snprintf does. */
ASH_API int ash_diag_format(const ash_diag *diag, char *out, uint64_t size);

#ifdef __cplusplus
}
#endif
#endif
