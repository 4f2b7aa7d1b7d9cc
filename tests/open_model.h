/* SPDX-License-Identifier: MIT */
/* Small ONNX models with open dims. */
#ifndef ASH_OPEN_MODEL_H
#define ASH_OPEN_MODEL_H

#include <stdlib.h>

#include "onnx_bytes.h"

/* ValueInfoProto of an f32 tensor; dims separated by ';' in the text: a number is a value, "" says nothing,
 * all else is a parameter. */
static inline bytes open_info(const char *name, const char *dims) {
    bytes shape = {.len = 0};
    for (const char *at = dims;; at++) {
        bytes dim = {.len = 0};
        size_t len = strcspn(at, ";");
        char *end;
        long long value = strtoll(at, &end, 10);
        if (len && end == at + len)
            put_int(&dim, 1, value);
        else if (len)
            put_bytes(&dim, 2, at, len);
        put_message(&shape, 1, &dim);
        at += len;
        if (!*at) break;
    }
    return shaped_info(name, &shape);
}

/* y = Concat(past, x) * mask and z = y * scale, for the caches of a decoder. */
static inline bytes cache_model(void) {
    bytes graph = {.len = 0}, axis = {.len = 0}, join = make_node("join", "Concat", "past", "x", "c"),
          mask = make_node("mask", "Mul", "c", "m", "y"), scale = make_node("scale", "Mul", "y", "s", "z");
    bytes infos[] = {open_info("x", "b;seq"), open_info("m", "b;past + seq"), open_info("past", "b;past"),
                     open_info("s", "1")},
          outs[] = {open_info("y", "b"), open_info("z", "b")};
    put_text(&axis, 1, "axis");
    put_int(&axis, 3, 1);
    put_int(&axis, 20, 2);
    put_message(&join, 5, &axis);
    put_message(&graph, 1, &join);
    put_message(&graph, 1, &mask);
    put_message(&graph, 1, &scale);
    for (size_t i = 0; i < sizeof infos / sizeof *infos; i++) put_message(&graph, 11, &infos[i]);
    for (size_t i = 0; i < sizeof outs / sizeof *outs; i++) put_message(&graph, 12, &outs[i]);
    return make_model(&graph, 13);
}

/* y = Relu(x). */
static inline bytes relu_model(const char *dims) {
    bytes graph = {.len = 0}, node = make_node("relu", "Relu", "x", NULL, "y"), x = open_info("x", dims),
          y = open_info("y", dims);
    put_message(&graph, 1, &node);
    put_message(&graph, 11, &x);
    put_message(&graph, 12, &y);
    return make_model(&graph, 13);
}

#endif
