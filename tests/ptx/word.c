/* SPDX-License-Identifier: MIT */
/* Order that atomics make: a word of memory by which commands tell each other what is over.
 *
 * A release leaves in the word the clock of its command, that is what came before all of it: not what the
 * command itself has done up to then. An acquire gives what is there to the block, to all threads of it, as
 * they meet at a barrier before they rely on it (or race in shared memory, which is found). Streams and
 * events know nothing of it: what comes behind the command is ordered by them alone. */
#include <stdlib.h>

#include "queue.h"

typedef struct ptx_word {
    struct ptx_word *next;
    uint64_t offset; /* in its allocation */
    ptx_clock over;
} ptx_word;

static ptx_word *word_at(ptx_allocation *a, uint64_t offset) {
    for (ptx_word *w = a->words; w; w = w->next)
        if (w->offset == offset) return w;
    ptx_word *w = ptx_alloc(1, sizeof *w);
    w->offset = offset;
    w->next = a->words;
    return a->words = w;
}

void ptx_word_order(ptx_block *b, ptx_allocation *a, uint64_t offset, bool releases, bool acquires) {
    ptx_word *w = word_at(a, offset);
    if (acquires) {
        if (!b->learnt) b->learnt = ptx_alloc(1, sizeof *b->learnt);
        ptx_clock_join(b->learnt, &w->over);
        b->who.learnt = b->learnt;
    }
    if (!releases) return;
    ptx_clock_join(&w->over, ptx_clock_present());
    if (b->learnt) ptx_clock_join(&w->over, b->learnt);
}

void ptx_word_unlearn(ptx_block *b) {
    if (b->learnt) free(b->learnt->over);
    free(b->learnt);
    b->learnt = NULL;
    b->who.learnt = NULL;
}

void ptx_words_forget(ptx_allocation *a, uint64_t offset, uint64_t bytes) {
    for (ptx_word **at = &a->words, *w = *at; w; w = *at) {
        if (w->offset < offset || w->offset - offset >= bytes) {
            at = &w->next;
            continue;
        }
        *at = w->next;
        free(w->over.over);
        free(w);
    }
}
