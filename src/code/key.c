/* SPDX-License-Identifier: MIT */
/* Alone in its file, so that a test can put a worse one in its place. */
#define XXH_INLINE_ALL
#include <xxhash.h>

#include "cache.h"

ash_key ash_key__of(const ash_text *identity) {
    XXH128_hash_t hash = XXH3_128bits(identity->at, identity->len);
    return (ash_key){hash.high64, hash.low64};
}
