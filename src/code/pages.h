/* SPDX-License-Identifier: MIT */
/* What LLVM leaves behind in memory. */
#ifndef ASH_PAGES_H
#define ASH_PAGES_H

#include <stdatomic.h>

#include "base/base.h"

typedef struct ash_pages {
    _Atomic int64_t worked; /* nanoseconds that LLVM has worked since its pages were dropped */
    atomic_bool given;      /* whether they ever were */
} ash_pages;

void ash_pages__init(ash_pages *pages);
/* After LLVM has worked so many nanoseconds, and before what stays is allocated. */
void ash_pages__give_back(ash_pages *pages, int64_t worked);
/* After so many nanoseconds of preparing without LLVM. */
void ash_pages__give_back_once(ash_pages *pages, int64_t prepared);

#endif
