/* SPDX-License-Identifier: MIT */
/* The life of a program: it is made of lists that grow; where it is to stay, it is moved into one arena. */
#include "program.h"

void ash_program__free(ash_program *p) {
    if (!p) return;
    for (size_t i = 0; i < p->buffers.len; i++) ash_blob_release(p->buffers.at[i].blob);
    for (size_t i = 0; i < p->nests.len; i++) ash_nest_free(&p->nests.at[i]);
    for (size_t i = 0; i < p->loops.len; i++) ash_program__free(p->loops.at[i].body);
    ash_vec_free(p->allocator, &p->loops);
    ash_vec_free(p->allocator, &p->calls);
    ash_vec_free(p->allocator, &p->buffers);
    ash_vec_free(p->allocator, &p->steps);
    ash_vec_free(p->allocator, &p->nests);
    ash_vec_free(p->allocator, &p->inputs);
    ash_vec_free(p->allocator, &p->states);
    ash_vec_free(p->allocator, &p->outputs);
    ash_vec_free(p->allocator, &p->output_names);
    ash_vec_free(p->allocator, &p->others);
    ash_arena_free(&p->arena);
    ash_dims_release(p->dims);
    ash_mem_free(p->allocator, p, 1, sizeof *p);
}

/* A list's elements lie in the arena from now on; false: no memory. */
#define KEEP(arena, list)                                                                                  \
    (((list)->at = ash_arena_copy((arena), (list)->at, (list)->len, sizeof *(list)->at)) != NULL &&        \
     ((list)->cap = (list)->len, true))

static bool keep_nest(ash_nest *nest, ash_arena *arena, const ash_allocator *inside) {
    nest->allocator = inside;
    return KEEP(arena, &nest->code) && KEEP(arena, &nest->buffers) && KEEP(arena, &nest->shuffles) &&
           KEEP(arena, &nest->shared);
}

static bool keep_lists(ash_program *out, ash_arena *arena, const ash_allocator *inside);

/* A body has no nests of its own, and the dims of the program around it. */
static bool keep_loop(ash_program_loop *loop, ash_dims *dims, ash_arena *arena,
                      const ash_allocator *inside) {
    ash_program *body = ash_arena_copy(arena, loop->body, 1, sizeof *body);
    if (!body) return false;
    loop->body = body;
    body->dims = dims;
    return keep_lists(body, arena, inside);
}

/* The program's lists, which are another's, become copies. */
static bool keep_lists(ash_program *out, ash_arena *arena, const ash_allocator *inside) {
    out->allocator = inside;
    out->arena = (ash_arena){.allocator = inside};
    bool kept = KEEP(arena, &out->buffers) && KEEP(arena, &out->steps) && KEEP(arena, &out->nests) &&
                KEEP(arena, &out->calls) && KEEP(arena, &out->loops) && KEEP(arena, &out->inputs) &&
                KEEP(arena, &out->states) && KEEP(arena, &out->outputs) &&
                KEEP(arena, &out->output_names) && KEEP(arena, &out->others);
    for (size_t i = 0; kept && i < out->nests.len; i++) kept = keep_nest(&out->nests.at[i], arena, inside);
    for (size_t b = 0; kept && b < out->buffers.len; b++) out->buffers.at[b].blob = NULL;
    for (size_t i = 0; kept && i < out->loops.len; i++)
        kept = keep_loop(&out->loops.at[i], out->dims, arena, inside);
    return kept;
}

ash_status ash_program__keep(const ash_program *p, ash_arena *arena, const ash_allocator *inside,
                             ash_program *out, ash_diag *diag) {
    *out = *p;
    out->dims = NULL;
    ASH_TRY(ash_dims_copy(p->dims, inside, &out->dims, diag));
    return keep_lists(out, arena, inside) ? ASH_OK : ASH_NO_MEMORY(diag);
}
