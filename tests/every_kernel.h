/* SPDX-License-Identifier: MIT */
/* A graph that lowers to kernels of every shape: for tests of what machines make of nests. */
#ifndef ASH_TESTS_EVERY_KERNEL_H
#define ASH_TESTS_EVERY_KERNEL_H

#include "opt_testing.h"

/* A tile with its epilogue, a convolution, rows, a gather, a transpose, half floats, remainders, a sum
 * that is long enough to look at the switch, sizes that are variables. */
static inline void every_kernel(fixture *f) {
    ash_graph *g = f->g;
    ash_dim n = ash_graph_var(g, "n", 1, 40), huge = INT64_C(1) << 34;
    ash_value x = INPUT(f, "x", ASH_F32, n, 24), image = INPUT(f, "image", ASH_F32, 1, 16, 9, 9);
    ash_value i = INPUT(f, "i", ASH_I64, 7), half = INPUT(f, "half", ASH_F16, 33);
    ash_value long_one = INPUT(f, "long", ASH_F32, huge);
    ash_value w = CONSTANT(f, ASH_F32, 24, 17), filter = CONSTANT(f, ASH_F32, 8, 16, 3, 3);
    ash_graph_output(g, "tile", ash_relu(g, ash_matmul(g, x, w)));
    ash_graph_output(g, "conv", ash_tanh(g, ash_conv2d(g, image, filter, 1, 1, 1)));
    ash_graph_output(g, "rows", ash_softmax(g, x, 1));
    ash_graph_output(g, "gather", ash_gather(g, w, i, 0));
    ash_graph_output(g, "turned", ash_floor(g, ash_transpose(g, x, (int64_t[]){1, 0})));
    ash_graph_output(g, "half", ash_sin(g, half));
    ash_graph_output(g, "rest", ash_rem(g, x, ash_exp(g, x)));
    ash_graph_output(g, "sum", ash_reduce_sum(g, long_one, (int64_t[]){0}, 1, false));
}

#endif
