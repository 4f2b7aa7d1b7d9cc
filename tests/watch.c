/* SPDX-License-Identifier: MIT */
/* In every test program: the core of a plan is the same, bit for bit, when it is freed as when it was made.
 * Programs are linked with --wrap for the two calls; see CMakeLists.txt. A write that is undone before is
 * what test_runtime_core looks for, with pages that cannot be written to. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/map.h"
#include "runtime/core.h"

ash_status __real_ash_plan_core__create(const ash_plan_parts *parts, ash_plan_core **out, ash_diag *diag);
void __real_ash_plan_core__free(ash_plan_core *core);
ash_status __wrap_ash_plan_core__create(const ash_plan_parts *parts, ash_plan_core **out, ash_diag *diag);
void __wrap_ash_plan_core__free(ash_plan_core *core);

struct seal {
    const ash_plan_core *core;
    uint64_t hash;
    struct seal *next;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct seal *seals;

static uint64_t hash(const ash_plan_core *core) {
    uint64_t hash = 0;
    for (const ash_arena_block *block = core->arena.blocks; block; block = block->next)
        hash = ash_hash(block, block->bytes, hash);
    return hash;
}

ash_status __wrap_ash_plan_core__create(const ash_plan_parts *parts, ash_plan_core **out, ash_diag *diag) {
    ash_status status = __real_ash_plan_core__create(parts, out, diag);
    if (status != ASH_OK) return status;
    struct seal *seal = malloc(sizeof *seal);
    if (!seal) abort();
    pthread_mutex_lock(&lock);
    *seal = (struct seal){*out, hash(*out), seals};
    seals = seal;
    pthread_mutex_unlock(&lock);
    return ASH_OK;
}

void __wrap_ash_plan_core__free(ash_plan_core *core) {
    struct seal *found = NULL;
    pthread_mutex_lock(&lock);
    for (struct seal **at = &seals; core && *at && !found; at = &(*at)->next)
        if ((*at)->core == core) {
            found = *at;
            *at = found->next;
            break;
        }
    pthread_mutex_unlock(&lock);
    if (found && found->hash != hash(core)) {
        fprintf(stderr, "FAIL: somebody has written to the core of a plan\n");
        abort();
    }
    free(found);
    __real_ash_plan_core__free(core);
}
