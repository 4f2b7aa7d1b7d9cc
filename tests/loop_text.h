/* SPDX-License-Identifier: MIT */
/* Texts of graphs with loops that several tests read, with holes for what differs. */
#ifndef ASH_LOOP_TEXT_H
#define ASH_LOOP_TEXT_H

#include <stdio.h>

#include "testing.h"

/* The text with the next of the parts in the place of each "$". Good until the next call. */
static inline const char *loop_text(const char *text, const char *const *parts) {
    static char out[8192];
    size_t len = 0;
    for (; *text; text++) {
        const char *next = *text == '$' ? *parts++ : NULL;
        int n = next ? snprintf(out + len, sizeof out - len, "%s", next)
                     : snprintf(out + len, sizeof out - len, "%c", *text);
        len += (size_t)n;
        assert_true(len < sizeof out);
    }
    return out;
}

#define LOOP_NUMBER        "%i: i64[] = argument() dtype=i64 dims=[]\n"
#define LOOP_CARRIED(name) "%" #name ": i32[4] = argument() dtype=i32 dims=[4]\n"

/* A sum over slices and the iteration's number. What is missing at its end: bits of `backward` (the slices,
 * what is stacked), the body, outputs. Inputs have names that the writer of ONNX makes as well. */
static const char loop_cumulate[] =
    "graph \"cumulate\"\n"
    "var n 0 9\n"
    "%x: i32[n, 4] = input \"t0\"\n"
    "%k: i32[4] = input \"v7\"\n"
    "%zero: i32[4] = constant {0, 1, 2, 3}\n" LOOP_NUMBER LOOP_CARRIED(c) LOOP_CARRIED(
        s) "%j: i32[] = cast(%i) dtype=i32\n"
           "%b: i32[4] = broadcast(%j) dims=[4]\n"
           "%n: i32[4] = neg(%k)\n"
           "%m: i32[4] = mul(%s, %n)\n"
           "%d: i32[4] = add(%c, %m)\n"
           "%y: i32[4] = add(%c, %b)\n"
           "%last: i32[4], %all: i32[n, 4], %back: i32[n, 4] = loop(%i, %c, %s, %zero, %x, %d, %d, %y)"
           " trips=n carried=1 scanned=1 given=0 until=0 backward=";

/* A loop in a loop, both over values of the other and of the outside; with `until` the inner one ends where
 * a sum is large enough. */
static inline const char *loop_nested(bool until) {
    static const char text[] =
        "graph \"nested\"\n"
        "var n 0 5\n"
        "%x: i32[n, 3] = input \"x\"\n"
        "%w: i32[20, 3] = input \"w\"\n"
        "%zero: i32[3] = constant {0, 1, 0}\n"
        "%most: i32[] = constant {40}\n"
        "%yes: bool[] = constant {1}\n"
        "%wide: i32[20, 3] = neg(%w)\n" LOOP_NUMBER "%c: i32[3] = argument() dtype=i32 dims=[3]\n"
        "%s: i32[3] = argument() dtype=i32 dims=[3]\n"
        "%q: i32[3] = mul(%s, %s)\n"
        "%j: i64[] = argument() dtype=i64 dims=[]\n"
        "%d: i32[3] = argument() dtype=i32 dims=[3]\n"
        "%v: i32[3] = argument() dtype=i32 dims=[3]\n"
        "%ij: i64[] = add(%i, %j)\n"
        "%k: i32[] = cast(%ij) dtype=i32\n"
        "%kb: i32[3] = broadcast(%k) dims=[3]\n"
        "%e: i32[3] = mul(%v, %q)\n"
        "%f: i32[3] = add(%d, %e)\n"
        "%h: i32[3] = add(%f, %kb)\n"
        "%sum: i32[] = reduce_sum(%h) axes=[0]\n"
        "%on: bool[] = lt(%sum, %most)\n"
        "$%end: i32[3], %rows: i32[20, 3] = loop(%j, %d, %v, $%c, %wide, $%h, %h)"
        " trips=20 carried=1 scanned=1 given=0 until=$ backward=2 body=0\n"
        "%part: i32[3] = reduce_sum(%rows) axes=[0]\n"
        "%last: i32[3], %ends: i32[n, 3], %sums: i32[n, 3], %all: i32[n, 20, 3] ="
        " loop(%i, %c, %s, %zero, %x, %end, %end, %part, %rows)"
        " trips=n carried=1 scanned=1 given=0 until=0 backward=0 body=0\n"
        "output \"last\" = %last\noutput \"ends\" = %ends\noutput \"sums\" = %sums\n"
        "output \"all\" = %all\n";
    const char *const parts[] = {until ? "%count: i64[], " : "", until ? "%yes, " : "",
                                 until ? "%on, " : "", until ? "1" : "0"};
    return loop_text(text, parts);
}

#endif
