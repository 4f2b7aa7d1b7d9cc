/* SPDX-License-Identifier: MIT */
/* Shape inference from inside: one node under inspection, and what the files infer*.c share. */
#ifndef ASH_IR_INFER_H
#define ASH_IR_INFER_H

#include "inside.h"

typedef struct ash_inference {
    ash_dims *dims;
    ash_op op;
    const ash_type *ins;
    size_t n_ins;
    const ash_attr *attrs; /* checked: the operator's row, ascending, each with a valid value of its type */
    size_t n_attrs;
    ash_type *outs;
    ash_diag *diag;
} ash_inference;

/* The failure, followed by the operands' types. */
ash_status ash_infer__fail(const ash_inference *c, ash_status code, const char *fmt, ...) ASH_PRINTF(3, 4);
#define ASH_INFER_FAIL_IF(cond, c, code, ...)                                                              \
    do {                                                                                                   \
        if (cond) return ash_infer__fail((c), (code), __VA_ARGS__);                                        \
    } while (0)

const ash_attr *ash_infer__attr(const ash_inference *c, ash_attr_key key);
/* An axis within operand 0. */
ash_status ash_infer__axis(const ash_inference *c, unsigned *axis);
/* Strictly ascending axes within operand 0, as a set of bits. */
ash_status ash_infer__axes(const ash_inference *c, uint32_t *set);
/* A list of `count` numbers, each at least `min`. */
ash_status ash_infer__list(const ash_inference *c, ash_attr_key key, size_t count, int64_t min,
                           const int64_t **list);
/* The dim a `op` b. */
ash_status ash_infer__dim(const ash_inference *c, ash_dim_op op, ash_dim a, ash_dim b, ash_dim *out);
/* Whether a >= b for all values of the variables, as far as can be shown. */
ash_status ash_infer__at_least(const ash_inference *c, ash_dim a, ash_dim b, bool *yes);
/* Whether the operand is of one of the kinds in `kinds`, bits 1 << ash_kind; `what` names them. */
ash_status ash_infer__kind(const ash_inference *c, size_t operand, unsigned kinds, const char *what);
/* Whether all operands from `first` to `last` are of one dtype. */
ash_status ash_infer__same_dtype(const ash_inference *c, size_t first, size_t last);

enum {
    ASH_KINDS_FLOAT = 1 << ASH_KIND_FLOAT,
    ASH_KINDS_INT = 1 << ASH_KIND_SIGNED | 1 << ASH_KIND_UNSIGNED,
    ASH_KINDS_NUMBER = ASH_KINDS_FLOAT | ASH_KINDS_INT,
    ASH_KINDS_BOOL = 1 << ASH_KIND_BOOL
};

/* One class of operators each; they write outs but leave the check of sizes to the caller. */
ash_status ash_infer__move(const ash_inference *c);     /* infer_move.c */
ash_status ash_infer__gather(const ash_inference *c);   /* infer_index.c */
ash_status ash_infer__scatter(const ash_inference *c);  /* infer_index.c */
ash_status ash_infer__topk(const ash_inference *c);     /* infer_index.c */
ash_status ash_infer__nms(const ash_inference *c);      /* infer_index.c */
ash_status ash_infer__matmul(const ash_inference *c);   /* infer_window.c */
ash_status ash_infer__bits(const ash_inference *c);     /* infer_window.c */
ash_status ash_infer__attend(const ash_inference *c);   /* infer_window.c */
ash_status ash_infer__conv(const ash_inference *c);     /* infer_window.c */
ash_status ash_infer__pool(const ash_inference *c);     /* infer_window.c */
ash_status ash_infer__custom(const ash_inference *c);   /* custom.c */
ash_status ash_infer__argument(const ash_inference *c); /* infer_loop.c */
ash_status ash_infer__loop(const ash_inference *c);     /* infer_loop.c */
ash_status ash_infer__stack(const ash_inference *c);
ash_status ash_infer__winograd(const ash_inference *c); /* infer_window.c */
ash_status ash_infer__conv_weights(const ash_inference *c);

#endif
