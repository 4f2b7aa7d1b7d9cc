/* SPDX-License-Identifier: MIT */
/* Cases of a switch over types: instructions that compute each element of a row from those of its
 * operands. */
#ifndef PTX_FORMS_H
#define PTX_FORMS_H

#include "number.h"

/* d[l] = expr of x, y, z in a row's type. */
#define UNARY(T, expr)                                                                                     \
    {                                                                                                      \
        T *d = ptx_row(b, in->op[0]);                                                                      \
        const T *p = ptx_row(b, in->op[1]);                                                                \
        PTX_LANES(b, l, T x = p[l]; d[l] = (T)(expr));                                                     \
        break;                                                                                             \
    }
#define BINARY(T, expr)                                                                                    \
    {                                                                                                      \
        T *d = ptx_row(b, in->op[0]);                                                                      \
        const T *p = ptx_row(b, in->op[1]), *q = ptx_row(b, in->op[2]);                                    \
        PTX_LANES(b, l, T x = p[l]; T y = q[l]; d[l] = (T)(expr));                                         \
        break;                                                                                             \
    }
#define TERNARY(T, expr)                                                                                   \
    {                                                                                                      \
        T *d = ptx_row(b, in->op[0]);                                                                      \
        const T *p = ptx_row(b, in->op[1]), *q = ptx_row(b, in->op[2]), *s = ptx_row(b, in->op[3]);        \
        PTX_LANES(b, l, T x = p[l]; T y = q[l]; T z = s[l]; d[l] = (T)(expr));                             \
        break;                                                                                             \
    }

#endif
