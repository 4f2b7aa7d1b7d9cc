/* SPDX-License-Identifier: MIT */
/* Between the files that read PTX: read.c has tokens and modules, names.c what names stand for, body.c
 * instructions. */
#ifndef PTX_READ_H
#define PTX_READ_H

#include <setjmp.h>
#include <stdlib.h>

#include "machine.h"

typedef enum ptx_token_kind {
    T_END,
    T_NAME,
    T_INTEGER,
    T_FLOAT32,
    T_FLOAT64,
    T_STRING,
    T_SIGN
} ptx_token_kind;

typedef struct ptx_token {
    ptx_token_kind kind;
    const char *at; /* in the text; names have their dots */
    size_t len;
    uint64_t value; /* of a number: its bits */
    uint32_t line;
} ptx_token;

typedef enum ptx_symbol_kind {
    IS_REGISTER,
    IS_REGISTERS, /* %r<9>: `slots` of %r0 to %r8 */
    IS_GLOBAL,    /* an address */
    IS_SHARED,    /* an offset */
    IS_LOCAL,     /* an offset into the memory of the thread, parameters of functions among it */
    IS_PARAM,     /* an offset into the parameters of the kernel */
    IS_FUNCTION,
    IS_TABLE, /* of branch targets: a place in the text */
} ptx_symbol_kind;

typedef struct ptx_symbol {
    const char *name;
    size_t len;
    ptx_symbol_kind kind;
    uint64_t value, bytes; /* for registers: bytes of one, and `value` of them */
    uint32_t align;
    uint32_t *slots; /* where they lie; PTX_NONE: not used yet */
    bool dynamic;    /* shared memory whose size the launch decides */
    const struct ptx_function *function;
    struct ptx_symbol *below; /* of the same hash, declared before */
} ptx_symbol;

/* A function or kernel in the text: where its parameters and its body begin. */
typedef struct ptx_function {
    const char *name;
    size_t len;
    const char *returns, *params, *body; /* NULL: it has none */
    uint32_t returns_line, params_line, body_line;
    bool entry;
    uint32_t most_threads, required[3];
} ptx_function;

enum { PTX_BUCKETS = 4096, PTX_CALLS = 32 };

typedef struct ptx_reader {
    ptx_module *module;
    const char *at;
    uint32_t line;
    ptx_token token; /* the present one */
    jmp_buf failed;
    int device;

    ptx_symbol **symbols; /* in the order of their declaration: a stack */
    size_t n_symbols;
    ptx_symbol *buckets[PTX_BUCKETS];
    ptx_function *functions;
    size_t n_functions;

    ptx_kernel *kernel;                 /* the one that is read */
    ptx_operand operands[PTX_OPERANDS]; /* of the instruction that is read */
    unsigned depth;                     /* of calls */
} ptx_reader;

/* read.c */
_Noreturn void ptx_fail(ptx_reader *r, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void ptx_next(ptx_reader *r); /* reads the next token */
bool ptx_at(const ptx_reader *r, const char *text);
bool ptx_accept(ptx_reader *r, const char *text);
void ptx_expect(ptx_reader *r, const char *text);
void ptx_seek(ptx_reader *r, const char *at, uint32_t line); /* the token there is the present one */
uint64_t ptx_expect_number(ptx_reader *r);
/* Room for one more element behind the `n` of an array that began as NULL and lives as long as the
 * module. */
void *ptx_grow(ptx_module *module, void *array, size_t n, size_t size);
/* Zeroed memory that lives as long as the module. */
void *ptx_keep(ptx_module *module, size_t bytes);
/* A declaration from its alignment on: .align 16 .b8 name[4][8]. */
typedef struct ptx_declared {
    const char *name;
    size_t len;
    ptx_type type;
    uint32_t align;
    uint64_t bytes;
    bool sized; /* no [] */
} ptx_declared;
ptx_declared ptx_declaration(ptx_reader *r);

/* names.c */
ptx_symbol *ptx_declare(ptx_reader *r, const char *name, size_t len, ptx_symbol_kind kind);
ptx_symbol *ptx_look_up(ptx_reader *r, const char *name, size_t len);
void ptx_forget(ptx_reader *r, size_t n_symbols); /* those declared after the first n */
uint32_t ptx_slot(ptx_reader *r, unsigned bytes); /* of a new row */
/* The row of a register; slot PTX_NONE when the name is none. */
ptx_operand ptx_register(ptx_reader *r, const char *name, size_t len);
ptx_operand ptx_constant_row(ptx_reader *r, uint64_t value, unsigned bytes, ptx_special special,
                             bool dynamic);
uint64_t ptx_place(uint32_t *used, uint64_t bytes,
                   uint32_t align); /* in a memory of which `used` bytes are taken */

/* body.c: a kernel from its text. */
void ptx_read_kernel(ptx_reader *r, const ptx_function *f);

#endif
