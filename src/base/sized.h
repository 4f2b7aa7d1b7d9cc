/* SPDX-License-Identifier: MIT */
/* Public structs that grow at their end: options, which callers fill, and reports, which they receive.
 * Their first field is the bytes that the caller knows (ASH_INIT, ashlar/status.h); 0 are those of the
 * first release. At the library's door they are copied as far as both sides know them, so that what lies
 * behind it has the struct as this library knows it:
 *
 *     options   what an older caller lacks is zero, which is the default; what a newer one has set and the
 *               library does not know is refused, since it would be passed over
 *     reports   nothing is written past the caller's bytes
 *
 * docs/decisions.md says what may change in the public interface, and how. */
#ifndef ASH_SIZED_H
#define ASH_SIZED_H

#include "ashlar/version.h"
#include "base.h"

typedef struct ash_sized {
    const char *name;
    size_t first, known; /* bytes in the first release, and in this library */
} ash_sized;

/* In the file that copies the struct T: `last` is the last field that T had in the first release. Behind it
 * is no padding, where a later field could lie within the bytes of callers that do not know it. */
#define ASH_SIZED(T, last)                                                                                 \
    _Static_assert(offsetof(T, size) == 0, #T " begins with its size");                                    \
    _Static_assert(ASH_SIZED_FIRST(T, last) % _Alignof(T) == 0, #T " had padding at its end");             \
    _Static_assert(ASH_VERSION_NUMBER > ASH_VERSION_OF(0, 1, 0) || ASH_SIZED_FIRST(T, last) == sizeof(T),  \
                   #T ": " #last " is not its last field in the first release");                           \
    static const ash_sized sized_##T = {#T, ASH_SIZED_FIRST(T, last), sizeof(T)}

/* NOLINTNEXTLINE(bugprone-sizeof-expression): the size of a pointer is meant, where the field is one */
#define ASH_SIZED_FIRST(T, last) (offsetof(T, last) + sizeof((T){0}.last))

/* From options, or NULL, which are the defaults, to the library's own. */
#define ASH_TAKE(T, given, own, diag)                                                                      \
    ash_sized__take(&sized_##T, 1 ? (given) : (const T *)0, 1 ? (own) : (T *)0, (diag))
/* From the library's own to a report. */
#define ASH_GIVE(T, own, given, diag)                                                                      \
    ash_sized__give(&sized_##T, 1 ? (own) : (const T *)0, 1 ? (given) : (T *)0, (diag))

/* For the macros above. INVALID_ARGUMENT for a size that no version can have, UNSUPPORTED for options that
 * this one does not know. */
ash_status ash_sized__take(const ash_sized *of, const void *given, void *own, ash_diag *diag);
ash_status ash_sized__give(const ash_sized *of, const void *own, void *given, ash_diag *diag);

#endif
