/* SPDX-License-Identifier: MIT */
/* Shape inference: what each operator accepts, what it gives, and what it says when it refuses. A row is
 * one node in the text form, with its operands' types in the place of values; variables a from 0, b
 * from 1, n from 8, to 100. */
#include "ir_fixture.h"

#include "base/text.h"

typedef struct row {
    const char *op, *operands, *attrs;
    const char *result; /* types, or what the message contains */
    ash_status status;
} row;

static const row rows[] = {
    /* unary */
    {"neg", "i8[3]", "", "i8[3]", 0},
    {"neg", "u32[a, b]", "", "u32[a, b]", 0},
    {"neg", "bool[3]", "", "operand 0 must be a number; operands bool[3]", ASH_ERROR_TYPE},
    {"abs", "f16[]", "", "f16[]", 0},
    {"sign", "i64[0]", "", "i64[0]", 0},
    {"not", "bool[2]", "", "bool[2]", 0},
    {"not", "u8[2]", "", "u8[2]", 0},
    {"not", "f32[2]", "", "operand 0 must be an integer or bool", ASH_ERROR_TYPE},
    {"exp", "bf16[2]", "", "bf16[2]", 0},
    {"exp", "i32[2]", "", "operand 0 must be floating point; operands i32[2]", ASH_ERROR_TYPE},
    {"exp", "f32[2] f32[2]", "", "exp takes 1 operand, not 2", ASH_ERROR_INVALID_ARGUMENT},
    {"exp", "f32[2]", "axis=0", "exp takes no attribute axis", ASH_ERROR_INVALID_ARGUMENT},
    /* binary, comparison, select, cast */
    {"add", "f32[a, 3] f32[a, 3]", "", "f32[a, 3]", 0},
    {"add", "f32[a, 3] f32[b, 3]", "", "operands 0 and 1 differ in shape; operands f32[a, 3], f32[b, 3]",
     ASH_ERROR_SHAPE},
    {"add", "f32[3] f32[3, 1]", "", "operands 0 and 1 differ in shape", ASH_ERROR_SHAPE},
    {"add", "f32[3] f64[3]", "", "operands 0 and 1 differ in dtype", ASH_ERROR_TYPE},
    {"add", "bool[3] bool[3]", "", "must be a number", ASH_ERROR_TYPE},
    {"add", "f32[(a + b)] f32[(b + a)]", "", "f32[(a + b)]", 0},
    {"pow", "i32[3] i32[3]", "", "i32[3]", 0},
    {"and", "bool[3] bool[3]", "", "bool[3]", 0},
    {"xor", "i8[3] i8[3]", "", "i8[3]", 0},
    {"or", "f32[3] f32[3]", "", "must be an integer or bool", ASH_ERROR_TYPE},
    {"shl", "u8[3] u8[3]", "", "u8[3]", 0},
    {"shr", "i8[3] i8[3]", "", "must be an unsigned integer", ASH_ERROR_TYPE},
    {"eq", "bool[3] bool[3]", "", "bool[3]", 0},
    {"lt", "f32[a] f32[a]", "", "bool[a]", 0},
    {"lt", "bool[3] bool[3]", "", "must be a number", ASH_ERROR_TYPE},
    {"select", "bool[3] i8[3] i8[3]", "", "i8[3]", 0},
    {"select", "f32[3] i8[3] i8[3]", "", "operand 0 must be bool", ASH_ERROR_TYPE},
    {"select", "bool[3] i8[3] u8[3]", "", "operands 1 and 2 differ in dtype", ASH_ERROR_TYPE},
    {"select", "bool[] i8[3] i8[3]", "", "operands 0 and 1 differ in shape", ASH_ERROR_SHAPE},
    {"cast", "f32[a]", "dtype=bool", "bool[a]", 0},
    {"cast", "f32[a]", "", "attribute dtype is missing", ASH_ERROR_INVALID_ARGUMENT},
    {"bitcast", "f32[a]", "dtype=i32", "i32[a]", 0},
    {"bitcast", "bf16[2, a]", "dtype=u16", "u16[2, a]", 0},
    {"bitcast", "f32[a]", "dtype=f64", "the bits of f32 as f64", ASH_ERROR_TYPE},
    {"bitcast", "bool[a]", "dtype=u8", "the bits of bool as u8", ASH_ERROR_TYPE},
    /* movement */
    {"reshape", "f32[a, 6]", "dims=[3, (2*a)]", "f32[3, (2*a)]", 0},
    {"reshape", "f32[2, 3]", "dims=[]", "another number of elements than []; operands f32[2, 3]",
     ASH_ERROR_SHAPE},
    {"reshape", "f32[a, 6]", "dims=[b, 6]", "another number of elements than [b, 6]", ASH_ERROR_SHAPE},
    {"reshape", "f32[0, 6]", "dims=[9223372036854775807, 0]", "can exceed 2^63 bytes",
     ASH_ERROR_OUT_OF_RANGE},
    {"reshape", "f32[a]", "dims=[a, 9223372036854775807]", "can exceed 2^63 bytes", ASH_ERROR_OUT_OF_RANGE},
    {"transpose", "f32[a, 2, 3]", "perm=[2, 0, 1]", "f32[3, a, 2]", 0},
    {"transpose", "f32[2, 3]", "perm=[0, 0]", "perm is no permutation of 2 dims", ASH_ERROR_SHAPE},
    {"transpose", "f32[2, 3]", "perm=[0]", "perm has 1 entries, not 2", ASH_ERROR_SHAPE},
    {"transpose", "f32[2, 3]", "perm=[-1, 0]", "perm has the entry -1", ASH_ERROR_INVALID_ARGUMENT},
    {"broadcast", "f32[1, 3]", "dims=[a, 2, 3]", "f32[a, 2, 3]", 0},
    {"broadcast", "f32[2, 3]", "dims=[2, 6]", "cannot be broadcast to [2, 6]; operands f32[2, 3]",
     ASH_ERROR_SHAPE},
    {"broadcast", "f32[2, 3]", "dims=[3]", "the rank exceeds that of [3]", ASH_ERROR_SHAPE},
    {"slice", "f32[10]", "starts=[1] steps=[3] dims=[3]", "f32[3]", 0},
    {"slice", "f32[10]", "starts=[1] steps=[3] dims=[4]", "the slice can leave dim 0", ASH_ERROR_SHAPE},
    {"slice", "f32[10]", "starts=[9] steps=[-3] dims=[4]", "f32[4]", 0},
    {"slice", "f32[10]", "starts=[10] steps=[-3] dims=[4]", "the slice can leave dim 0", ASH_ERROR_SHAPE},
    {"slice", "f32[10]", "starts=[8] steps=[-3] dims=[4]", "the slice can leave dim 0", ASH_ERROR_SHAPE},
    {"slice", "f32[10]", "starts=[0] steps=[0] dims=[4]", "step 0 along dim 0", ASH_ERROR_INVALID_ARGUMENT},
    {"slice", "f32[10]", "starts=[-1] steps=[1] dims=[1]", "expected a dim", ASH_ERROR_FORMAT},
    {"slice", "f32[a]", "starts=[0] steps=[1] dims=[min(a, 10)]", "f32[min(10, a)]", 0},
    {"slice", "f32[a]", "starts=[0] steps=[2] dims=[div((a + 1), 2)]", "f32[div((a + 1), 2)]", 0},
    {"slice", "f32[a]", "starts=[0] steps=[2] dims=[(div(a, 2) + 1)]", "the slice can leave dim 0",
     ASH_ERROR_SHAPE},
    {"slice", "f32[b]", "starts=[(b - 1)] steps=[-1] dims=[b]", "f32[b]", 0},
    {"slice", "f32[a]", "starts=[(a - 1)] steps=[-1] dims=[a]", "attribute starts can be -1",
     ASH_ERROR_SHAPE},
    {"slice", "f32[n]", "starts=[div(n, 2)] steps=[1] dims=[(n - div(n, 2))]", "f32[div((n + 1), 2)]", 0},
    {"pad", "f32[4, a] f32[]", "before=[1, b] after=[0, 2] interior=[2, 0]", "f32[11, (a + b + 2)]", 0},
    {"pad", "f32[a, b] f32[]", "before=[0, 0] after=[0, 0] interior=[1, 1]",
     "f32[(a + max(0, (a - 1))), (2*b - 1)]", 0},
    {"pad", "f32[4] f32[1]", "before=[1] after=[0] interior=[0]", "the padding value must be a scalar",
     ASH_ERROR_SHAPE},
    {"pad", "f32[4] i32[]", "before=[1] after=[0] interior=[0]", "differ in dtype", ASH_ERROR_TYPE},
    {"pad", "f32[4] f32[]", "before=[9223372036854775807] after=[0] interior=[0]", "",
     ASH_ERROR_OUT_OF_RANGE},
    {"concat", "f32[2, a] f32[2, b] f32[2, 1]", "axis=1", "f32[2, (a + b + 1)]", 0},
    {"concat", "f32[2]", "axis=0", "f32[2]", 0},
    {"concat", "f32[2, 3] f32[3, 3]", "axis=1", "operands 0 and 1 differ outside axis 1", ASH_ERROR_SHAPE},
    {"concat", "f32[2, 3] f32[2]", "axis=0", "operands 0 and 1 differ outside axis 0", ASH_ERROR_SHAPE},
    {"concat", "f32[2] i8[2]", "axis=0", "differ in dtype", ASH_ERROR_TYPE},
    {"concat", "", "axis=0", "concat takes at least 1 operand, not 0", ASH_ERROR_INVALID_ARGUMENT},
    {"concat", "f32[]", "axis=0", "axis 0 in rank 0", ASH_ERROR_SHAPE},
    {"iota", "", "dtype=i32 dims=[a, 4] axis=1", "i32[a, 4]", 0},
    {"iota", "", "dtype=i32 dims=[] axis=0", "axis 0 in rank 0", ASH_ERROR_SHAPE},
    {"iota", "", "dtype=bool dims=[2] axis=0", "an index is no bool", ASH_ERROR_TYPE},
    /* reductions and scans */
    {"reduce_sum", "f32[a, 2, 3]", "axes=[0, 2]", "f32[2]", 0},
    {"reduce_sum", "f32[2]", "axes=[]", "f32[2]", 0},
    {"reduce_sums", "f32[a, 2, 3] f32[a, 2, 3]", "axes=[0, 2] sums=2", "f32[2] f32[2]", 0},
    {"reduce_sums", "f32[a, 2, 3] f32[a, 2, 3]", "axes=[0, 2] sums=3", "has 3 outputs, not 2",
     ASH_ERROR_FORMAT},
    {"reduce_sums", "f32[a, 2] f32[a, 2] f32[a, 2]", "axes=[0] sums=2", "2 sums of 3 operands",
     ASH_ERROR_INVALID_ARGUMENT},
    {"reduce_sums", "f32[a, 2, 3] f32[a, 3, 2]", "axes=[0] sums=2", "operand 1 is of another type",
     ASH_ERROR_SHAPE},
    {"reduce_sum", "bool[2]", "axes=[0]", "must be a number", ASH_ERROR_TYPE},
    {"reduce_max", "bool[2]", "axes=[0]", "bool[]", 0},
    {"reduce_prod", "i64[2, 3]", "axes=[1]", "i64[2]", 0},
    {"reduce_min", "f32[2, 3]", "axes=[1, 0]", "axes are not ascending", ASH_ERROR_INVALID_ARGUMENT},
    {"reduce_min", "f32[2, 3]", "axes=[2]", "axis 2 in rank 2", ASH_ERROR_SHAPE},
    {"argmax", "f32[2, a]", "axis=0 last=0", "i64[a]", 0},
    {"argmax", "f32[2, a]", "axis=0 last=2", "attribute last is 2, neither 0 nor 1",
     ASH_ERROR_INVALID_ARGUMENT},
    {"argmin", "f32[2, 0]", "axis=1 last=0", "no element along axis 1", ASH_ERROR_SHAPE},
    {"cumsum", "i32[a]", "axis=0 exclusive=1 reverse=0", "i32[a]", 0},
    {"cumsum", "bool[a]", "axis=0 exclusive=1 reverse=0", "must be a number", ASH_ERROR_TYPE},
    {"cumsum", "i32[a]", "axis=1 exclusive=1 reverse=0", "axis 1 in rank 1", ASH_ERROR_SHAPE},
    /* matrix products */
    {"matmul", "f32[a, 3] f32[3, 4]", "b_block=0 n=0", "f32[a, 4]", 0},
    {"matmul", "i8[b, 2, a, 3] i8[b, 2, 3, n]", "b_block=0 n=0", "i8[b, 2, a, n]", 0},
    {"matmul", "f32[2, 3] f32[4, 5]", "b_block=0 n=0", "inner dims differ; operands f32[2, 3], f32[4, 5]",
     ASH_ERROR_SHAPE},
    {"matmul", "f32[2, 2, 3] f32[3, 3, 5]", "b_block=0 n=0", "batch dim 0 differs", ASH_ERROR_SHAPE},
    {"matmul", "f32[3] f32[3]", "b_block=0 n=0", "no matrices of equal batch rank", ASH_ERROR_SHAPE},
    {"matmul", "f32[2, 3] f32[3, 4]", "b_block=0 n=4", "n belongs to a blocked operand 1",
     ASH_ERROR_INVALID_ARGUMENT},
    {"matmul", "bool[2, 3] bool[3, 4]", "b_block=0 n=0", "must be a number", ASH_ERROR_TYPE},
    {"matmul", "f32[2, 3] f64[3, 4]", "b_block=0 n=0", "differ in dtype", ASH_ERROR_TYPE},
    {"matmul", "f32[a, 3] f32[2, 3, 16]", "b_block=16 n=30", "f32[a, 30]", 0},
    {"matmul", "f32[5, a, 3] f32[5, 2, 3, 16]", "b_block=16 n=32", "f32[5, a, 32]", 0},
    {"matmul", "f32[a, 3] f32[2, 3, 16]", "b_block=16 n=33", "not n columns in blocks of 16",
     ASH_ERROR_SHAPE},
    {"matmul", "f32[a, 3] f32[2, 3, 8]", "b_block=16 n=30", "not n columns in blocks of 16",
     ASH_ERROR_SHAPE},
    {"matmul", "f32[a, 3] f32[3, 16]", "b_block=16 n=30", "with operand 1 blocked", ASH_ERROR_SHAPE},
    {"matmul", "f32[1, 1] f32[1, 1]", "b_block=-1 n=0", "b_block is -1", ASH_ERROR_INVALID_ARGUMENT},
    {"matmul", "u8[a, 5] i8[2, 2, 64]", "b_block=16 n=30", "i32[a, 30]", 0}, /* of bytes */
    {"matmul", "u8[5, 7, n] i8[5, 1, div((n + 3), 4), 16]", "b_block=4 n=3", "i32[5, 7, 3]", 0},
    {"matmul", "u8[a, 5] i8[2, 5, 64]", "b_block=16 n=30", "inner dims differ", ASH_ERROR_SHAPE},
    {"matmul", "u8[a, 5] i8[2, 2, 66]", "b_block=16 n=30", "not n columns in blocks of 16",
     ASH_ERROR_SHAPE},
    {"matmul", "u8[a, 5] i8[5, 4]", "b_block=0 n=0", "i32[a, 4]", 0},
    {"matmul", "i8[a, 5] u8[5, 4]", "b_block=0 n=0", "differ in dtype", ASH_ERROR_TYPE},
    {"matmul", "i8[a, 5] u8[2, 2, 64]", "b_block=16 n=30", "differ in dtype", ASH_ERROR_TYPE},
    {"matmul_wide", "f16[a, 3] f16[3, 4]", "b_block=0 n=0", "f32[a, 4]", 0},
    {"matmul_wide", "f32[a, 3] f32[3, 4]", "b_block=0 n=0", "operand 0 is no half float", ASH_ERROR_TYPE},
    {"matmul_wide", "f16[a, 3] bf16[3, 4]", "b_block=0 n=0", "differ in dtype", ASH_ERROR_TYPE},
    {"matmul_library", "f32[a, 3] f32[3, 4]", "b_block=0 n=0 library=2", "f32[a, 4]", 0},
    {"matmul_library", "f16[2, a, 3] f16[2, 3, 4]", "b_block=0 n=0 library=1", "f16[2, a, 4]", 0},
    {"matmul_library", "bf16[a, 3] bf16[3, 4]", "b_block=0 n=0 library=2", "library is 2",
     ASH_ERROR_INVALID_ARGUMENT},
    {"matmul_library", "f32[a, 3] f32[3, 4]", "b_block=0 n=0 library=0", "library is 0",
     ASH_ERROR_INVALID_ARGUMENT},
    {"matmul_library", "f32[a, 5] f32[2, 5, 32]", "b_block=32 n=60 library=1", "b_block is 32",
     ASH_ERROR_INVALID_ARGUMENT},
    {"matmul_library", "f64[a, 3] f64[3, 4]", "b_block=0 n=0 library=1", "operand 0 is no f32, f16 or bf16",
     ASH_ERROR_TYPE},
    {"matmul_pairs", "bf16[a, 5] bf16[2, 3, 32]", "b_block=16 n=30", "f32[a, 30]", 0},
    {"matmul_pairs", "bf16[5, 7, n] bf16[5, 1, div((n + 1), 2), 8]", "b_block=4 n=3", "f32[5, 7, 3]", 0},
    {"matmul_pairs", "bf16[a, 5] bf16[2, 5, 16]", "b_block=16 n=30", "inner dims differ", ASH_ERROR_SHAPE},
    {"matmul_pairs", "bf16[a, 5] bf16[5, 4]", "b_block=0 n=0", "pairs are of bf16, in blocks",
     ASH_ERROR_TYPE},
    {"matmul_pairs", "f16[a, 5] f16[2, 3, 32]", "b_block=16 n=30", "pairs are of bf16", ASH_ERROR_TYPE},
#define CONV(strides, pads, groups, blocks)                                                                \
    "strides=" strides " dilations=[1, 1] before=" pads " after=" pads " groups=" groups " " blocks
#define PLAIN "x_block=0 y_block=0 w_block=0 o=0"
    /* convolutions */
    {"conv", "u8[b, 2, 8, 8, 16] i8[1, 1, 2, 3, 3, 4, 64]",
     CONV("[1, 1]", "[1, 1]", "1", "x_block=16 y_block=16 w_block=16 o=16"), "i32[b, 1, 8, 8, 16]", 0},
    {"conv", "u8[b, 1, 8, 8, 16] i8[1, 3, 3, 16]",
     CONV("[1, 1]", "[1, 1]", "16", "x_block=16 y_block=16 w_block=16 o=16"), "i32[b, 1, 8, 8, 16]", 0},
    {"conv", "u8[b, 4, 8, 8, 2] i8[1, 1, 4, 3, 3, 2, 16]",
     CONV("[1, 1]", "[1, 1]", "1", "x_block=2 y_block=16 w_block=16 o=16"), "channels in blocks of 2",
     ASH_ERROR_SHAPE},
    {"conv", "u8[b, 2, 8, 8, 16] i8[1, 1, 2, 3, 3, 16, 16]",
     CONV("[1, 1]", "[1, 1]", "1", "x_block=16 y_block=16 w_block=16 o=16"), "the weights are not",
     ASH_ERROR_SHAPE},
    {"conv", "u8[b, 3, 8, 8] i8[4, 3, 3, 3]", CONV("[1, 1]", "[1, 1]", "1", PLAIN), "i32[b, 4, 8, 8]", 0},
    {"conv", "u8[b, 3, 8, 8] i8[1, 1, 3, 3, 3, 1, 4]",
     CONV("[1, 1]", "[1, 1]", "1", "x_block=0 y_block=0 w_block=4 o=4"), "i32[b, 4, 8, 8]", 0},
    {"conv", "i8[b, 3, 8, 8] u8[4, 3, 3, 3]", CONV("[1, 1]", "[1, 1]", "1", PLAIN), "differ in dtype",
     ASH_ERROR_TYPE},
    {"conv", "f32[b, 3, 224, 224] f32[64, 3, 7, 7]", CONV("[2, 2]", "[3, 3]", "1", PLAIN),
     "f32[b, 64, 112, 112]", 0},
    {"conv", "f32[1, 3, n, n] f32[4, 3, 3, 3]", CONV("[2, 2]", "[1, 1]", "1", PLAIN),
     "f32[1, 4, div((n + 1), 2), div((n + 1), 2)]", 0},
    {"conv", "f32[1, 3, a, 9] f32[4, 3, 3, 3]", CONV("[1, 1]", "[0, 0]", "1", PLAIN),
     "f32[1, 4, max(0, (a - 2)), 7]", 0},
    {"conv", "f32[1, 32, 9, 9] f32[32, 1, 3, 3]", CONV("[1, 1]", "[1, 1]", "32", PLAIN), "f32[1, 32, 9, 9]",
     0},
    {"conv", "f32[1, 3, 9, 9] f32[4, 2, 3, 3]", CONV("[1, 1]", "[0, 0]", "1", PLAIN),
     "are not the operand's channels", ASH_ERROR_SHAPE},
    {"conv", "f32[1, 4, 9, 9] f32[3, 2, 3, 3]", CONV("[1, 1]", "[0, 0]", "2", PLAIN),
     "2 groups do not divide", ASH_ERROR_SHAPE},
    {"conv", "f32[1, 4, 9, 9] f32[3, 2, 3, 3]", CONV("[1, 1]", "[0, 0]", "0", PLAIN), "0 groups",
     ASH_ERROR_INVALID_ARGUMENT},
    {"conv", "f32[1, 3, 2, 2] f32[4, 3, 3, 3]", CONV("[1, 1]", "[0, 0]", "1", PLAIN),
     "a window of 3 elements exceeds the padded operand along dim 2; operands f32[1, 3, 2, 2], f32[4, 3, "
     "3, 3]",
     ASH_ERROR_SHAPE},
    {"conv", "f32[1, 3, 9, 9] f32[4, 3, 3, 3]", CONV("[0, 1]", "[0, 0]", "1", PLAIN),
     "strides has the entry 0, below 1", ASH_ERROR_INVALID_ARGUMENT},
    {"conv", "f32[1, 3, 9, 9] f32[4, 3, 3, 3]", CONV("[1]", "[0, 0]", "1", PLAIN),
     "strides has 1 entries, not 2", ASH_ERROR_SHAPE},
    {"conv", "f32[1, 3, 9] f32[4, 3, 3, 3]", CONV("[1]", "[0]", "1", PLAIN),
     "the weights are not [o, c/groups, kernel...]", ASH_ERROR_SHAPE},
    {"conv", "f32[1, 3] f32[4, 3]", CONV("[]", "[]", "1", PLAIN), "operand 0 has no spatial dim",
     ASH_ERROR_SHAPE},
    {"conv", "f32[1, 3, 9, 9] f32[4, 3, 3, b]", CONV("[1, 1]", "[0, 0]", "1", PLAIN),
     "must be numbers of at least 1", ASH_ERROR_SHAPE},
    {"conv", "f32[1, 3, 9, 9] f32[3, 1, 3, 3, 1, 16]",
     CONV("[1, 1]", "[0, 0]", "1", "x_block=0 y_block=0 w_block=16 o=48"), "the weights are not [groups",
     ASH_ERROR_SHAPE},
    {"conv", "f32[1, 3, 9, 9] f32[1, 3, 3, 3, 3, 1, 16]",
     CONV("[1, 1]", "[0, 0]", "1", "x_block=0 y_block=16 w_block=16 o=48"), "f32[1, 3, 7, 7, 16]", 0},
    {"conv", "f32[1, 2, 9, 9, 16] f32[1, 2, 2, 3, 3, 16, 16]",
     CONV("[1, 1]", "[1, 1]", "1", "x_block=16 y_block=0 w_block=16 o=20"), "f32[1, 20, 9, 9]", 0},
    {"conv", "f32[1, 2, 9, 9, 16] f32[2, 1, 1, 3, 3, 16, 16]",
     CONV("[1, 1]", "[1, 1]", "2", "x_block=16 y_block=8 w_block=16 o=16"), "f32[1, 2, 9, 9, 8]", 0},
    {"conv", "f32[1, 2, 9, 9, 16] f32[2, 3, 3, 16]",
     CONV("[2, 2]", "[1, 1]", "32", "x_block=16 y_block=16 w_block=16 o=32"), "f32[1, 2, 5, 5, 16]", 0},
    {"conv", "f32[1, 2, 9, 9, 16] f32[32, 1, 3, 3]",
     CONV("[2, 2]", "[1, 1]", "32", "x_block=16 y_block=16 w_block=0 o=0"), "f32[1, 2, 5, 5, 16]", 0},
    {"conv", "f32[1, 2, 9, 9, 8] f32[32, 1, 3, 3]",
     CONV("[2, 2]", "[1, 1]", "32", "x_block=16 y_block=16 w_block=0 o=0"), "not in channel blocks of 16",
     ASH_ERROR_SHAPE},
    {"conv", "f32[1, 3, 9, 9] f32[20, 3, 3, 3]",
     CONV("[1, 1]", "[0, 0]", "1", "x_block=0 y_block=16 w_block=0 o=0"),
     "blocks of 16 do not divide the filters", ASH_ERROR_SHAPE},
    {"conv", "f32[1, 3, 9, 9] f32[20, 3, 3, 3]",
     CONV("[1, 1]", "[0, 0]", "1", "x_block=0 y_block=0 w_block=0 o=20"), "o is 20, and w_block is 0",
     ASH_ERROR_INVALID_ARGUMENT},
    {"conv_wide", "bf16[b, 2, 9, 9, 8] bf16[1, 2, 2, 3, 3, 8, 16]",
     CONV("[1, 1]", "[1, 1]", "1", "x_block=8 y_block=0 w_block=16 o=20"), "f32[b, 20, 9, 9]", 0},
    {"conv_pairs", "bf16[b, 2, 9, 9, 8] bf16[1, 2, 2, 3, 3, 4, 32]",
     CONV("[1, 1]", "[1, 1]", "1", "x_block=8 y_block=0 w_block=16 o=20"), "f32[b, 20, 9, 9]", 0},
    {"conv_pairs", "bf16[1, 4, 9, 9] bf16[4, 4, 3, 3]", CONV("[1, 1]", "[0, 0]", "1", PLAIN),
     "pairs are of bf16, in blocks", ASH_ERROR_TYPE},
    {"conv_pairs", "bf16[b, 2, 9, 9, 3] bf16[1, 1, 2, 3, 3, 1, 32]",
     CONV("[1, 1]", "[1, 1]", "1", "x_block=3 y_block=0 w_block=16 o=16"),
     "neighbours are to lie side by side", ASH_ERROR_SHAPE},
    {"conv_wide", "i8[1, 3, 9, 9] i8[4, 3, 3, 3]", CONV("[1, 1]", "[0, 0]", "1", PLAIN),
     "operand 0 is no half float", ASH_ERROR_TYPE},
    {"attend", "f32[b, 3, n] f32[b, n, 5]", "keys=16 empty=0", "f32[b, 3, 5]", 0},
    {"attend", "f32[n, b] f32[b, 5]", "keys=16 empty=1", "f32[n, 5]", 0},
    {"attend", "f32[3, 4] f32[4, 5]", "keys=0 empty=0", "keys is 0, empty is 0",
     ASH_ERROR_INVALID_ARGUMENT},
    {"attend", "f32[3, 4] f32[4, 5]", "keys=16 empty=2", "keys is 16, empty is 2",
     ASH_ERROR_INVALID_ARGUMENT},
    {"attend", "f32[3, 4] f16[4, 5]", "keys=16 empty=0", "scores and values are no f32", ASH_ERROR_TYPE},
    {"attend", "f32[2, 3, 4] f32[4, 5]", "keys=16 empty=0", "no matrices of equal batch rank",
     ASH_ERROR_SHAPE},
    {"attend", "f32[2, 3, 4] f32[1, 4, 5]", "keys=16 empty=0", "batch dim 0 differs", ASH_ERROR_SHAPE},
    {"attend", "f32[3, 4] f32[3, 5]", "keys=16 empty=0", "inner dims differ", ASH_ERROR_SHAPE},
    {"attend", "f32[3, 4] f32[4, n]", "keys=16 empty=0", "columns are no number", ASH_ERROR_SHAPE},
#define BITS(block, n, bits, span) "b_block=" block " n=" n " bits=" bits " span=" span
    {"matmul_bits", "f32[b, 40] u32[2, 5, 16] f16[2, 2, 16]", BITS("16", "20", "4", "32"), "f32[b, 20]", 0},
    {"matmul_bits", "f32[b, 41] u32[2, 11, 16] f32[2, 6, 16] u8[2, 6, 16]", BITS("16", "20", "8", "8"),
     "f32[b, 20]", 0},
    {"matmul_bits", "f32[b, 40] u32[2, 5, 16] f32[2, 2, 16]", BITS("16", "20", "3", "32"), "bits is 3",
     ASH_ERROR_INVALID_ARGUMENT},
    {"matmul_bits", "f32[b, 40] u32[2, 5, 16] f32[2, 4, 16]", BITS("16", "20", "4", "12"),
     "b_block is 16, span is 12", ASH_ERROR_INVALID_ARGUMENT},
    {"matmul_bits", "f32[b, 40] u8[2, 5, 16] f32[2, 2, 16]", BITS("16", "20", "4", "32"),
     "no matrix of f32 and words", ASH_ERROR_TYPE},
    {"matmul_bits", "f32[2, n] u32[2, 5, 16] f32[2, 2, 16]", BITS("16", "20", "4", "32"),
     "inner dim and columns are no numbers", ASH_ERROR_SHAPE},
    {"matmul_bits", "f32[b, 40] u32[2, 6, 16] f32[2, 2, 16]", BITS("16", "20", "4", "32"),
     "operand 1 is not 20 columns of 5 in blocks of 16", ASH_ERROR_SHAPE},
    {"matmul_bits", "f32[b, 40] u32[2, 5, 16] f32[2, 1, 16]", BITS("16", "20", "4", "32"),
     "operand 2 is not 20 columns of 2 in blocks of 16", ASH_ERROR_SHAPE},
    {"matmul_bits", "f32[b, 40] u32[2, 5, 16] i32[2, 2, 16]", BITS("16", "20", "4", "32"), "floating point",
     ASH_ERROR_TYPE},
    {"matmul_bits", "f32[b, 40] u32[2, 5, 16] f32[2, 2, 16] i8[2, 2, 16]", BITS("16", "20", "4", "32"),
     "zero points that are neither bytes nor floating point", ASH_ERROR_TYPE},
    {"matmul_bits", "f32[b, 40] u32[2, 5, 16] f32[2, 2, 16] u8[2, 2, 8]", BITS("16", "20", "4", "32"),
     "operand 3 is not 20 columns of 2 in blocks of 16", ASH_ERROR_SHAPE},
#define WINOGRAD(pads, block, o, tile) "before=" pads " after=" pads " y_block=" block " o=" o " tile=" tile
    {"winograd", "f32[b, 2, 9, n, 16] f32[1, 2, 2, 3, 3, 16, 16]", WINOGRAD("[1, 1]", "4", "20", "4"),
     "f32[b, 5, 9, n, 4]", 0},
    {"winograd", "f32[1, 2, 9, 9, 16] f32[1, 2, 2, 3, 3, 16, 16]", WINOGRAD("[0, 0]", "3", "20", "4"),
     "blocks of 3 do not divide 20 filters", ASH_ERROR_SHAPE},
    {"winograd", "f32[1, 2, 9, 9, 16] f32[1, 2, 2, 3, 3, 16, 16]", WINOGRAD("[0, 0]", "1", "20", "4"),
     "blocks of 1 do not divide 20 filters", ASH_ERROR_SHAPE},
    {"winograd", "f32[1, 2, 9, 9, 16] f32[1, 2, 2, 3, 3, 16, 16]", WINOGRAD("[0, 0]", "5", "20", "4"),
     "blocks of 5 do not divide those of the weights", ASH_ERROR_SHAPE},
    {"winograd", "f32[1, 2, 9, 9, 16] f32[1, 2, 2, 3, 3, 16, 16]", WINOGRAD("[0, 0]", "4", "20", "3"),
     "tiles of 3 rows", ASH_ERROR_INVALID_ARGUMENT},
    {"winograd", "f32[1, 2, 9, 9, 16] f32[1, 2, 3, 3, 3, 16, 16]", WINOGRAD("[0, 0]", "4", "20", "4"),
     "the weights are not [1, ceil(o/B), c/I, 3, 3, I, B]", ASH_ERROR_SHAPE},
    {"winograd", "f32[1, 1, 9, 9, 65] f32[1, 2, 1, 3, 3, 65, 16]", WINOGRAD("[0, 0]", "4", "20", "4"),
     "operand 0 is not [n, c/I, h, w, I]", ASH_ERROR_SHAPE},
    {"winograd", "f32[1, 2, 9, 9, 16] f32[1, 1, 2, 3, 3, 16, 80]", WINOGRAD("[0, 0]", "4", "20", "4"),
     "the weights are not [1, ceil(o/B), c/I, 3, 3, I, B]", ASH_ERROR_SHAPE},
    {"winograd", "f32[1, 32, 9, 9] f32[1, 2, 2, 3, 3, 16, 16]", WINOGRAD("[0, 0]", "4", "20", "4"),
     "operand 0 is not [n, c/I, h, w, I]", ASH_ERROR_SHAPE},
    {"winograd", "f64[1, 2, 9, 9, 16] f64[1, 2, 2, 3, 3, 16, 16]", WINOGRAD("[0, 0]", "4", "20", "4"),
     "operand 0 is not f32", ASH_ERROR_TYPE},
    {"winograd", "f32[1, 2, 2, 9, 16] f32[1, 2, 2, 3, 3, 16, 16]", WINOGRAD("[0, 0]", "4", "20", "4"),
     "a window of 3 elements", ASH_ERROR_SHAPE},
#define WEIGHTS(lists, x, y)                                                                               \
    "strides=" lists " dilations=" lists " before=" lists " kernel=[3, 2] x_block=" x " y_block=" y
    {"conv_weights", "f32[a, 2, 9, 8, 16] f32[a, 3, 5, 6, 8]", WEIGHTS("[2, 1]", "16", "8"),
     "f32[3, 2, 32, 24]", 0},
    {"conv_weights", "f32[a, 3, 9, 8] f32[a, 3, 5, 6, 8]", WEIGHTS("[1, 1]", "0", "8"), "f32[3, 2, 3, 24]",
     0},
    {"conv_weights", "f32[a, 3, 9, 8] f32[a, 3, 5, 6, 8]", WEIGHTS("[1, 1]", "0", "4"),
     "operand 1 is not [n, o/B, space..., B]", ASH_ERROR_SHAPE},
    {"conv_weights", "f32[b, 3, 9, 8] f32[a, 3, 5, 6, 8]", WEIGHTS("[1, 1]", "0", "8"),
     "operand 0 is not [n, c/I, space..., I]", ASH_ERROR_SHAPE},
    {"conv_weights", "f32[a, 3, 9, n] f32[a, 3, 5, 6, 8]", WEIGHTS("[1, 1]", "0", "8"),
     "the spatial dims must be numbers", ASH_ERROR_SHAPE},
    {"conv_weights", "f64[a, 3, 9, 8] f64[a, 3, 5, 6, 8]", WEIGHTS("[1, 1]", "0", "8"),
     "operand 0 is not f32", ASH_ERROR_TYPE},
/* pools */
#define POOL(axes, kernel, pads)                                                                           \
    "axes=" axes " kernel=" kernel " strides=[2, 2] dilations=[1, 1] before=" pads " after=" pads
    {"pool_max", "f32[b, 64, 112, 112]", POOL("[2, 3]", "[3, 3]", "[1, 1]"), "f32[b, 64, 56, 56]", 0},
    {"pool_sum", "f32[b, 4, 9, 9, 16]", POOL("[2, 3]", "[3, 3]", "[0, 0]"), "f32[b, 4, 4, 4, 16]", 0},
    {"pool_max", "f32[b, 4, 9, 9]", POOL("[2, 3]", "[3, 0]", "[0, 0]"), "kernel has the entry 0",
     ASH_ERROR_INVALID_ARGUMENT},
    {"pool_max", "f32[b, 4, 2, 9]", POOL("[2, 3]", "[3, 3]", "[0, 0]"), "a window of 3 elements",
     ASH_ERROR_SHAPE},
    {"pool_max", "f32[b, 4, 9, 9]", POOL("[2, 3]", "[3]", "[0, 0]"), "kernel has 1 entries, not 2",
     ASH_ERROR_SHAPE},
    {"pool_max", "bool[b, 4, 9, 9]", POOL("[2, 3]", "[3, 3]", "[0, 0]"), "must be a number",
     ASH_ERROR_TYPE},
    /* indexed access */
    {"gather", "f32[30000, 768] i64[b, 128]", "axis=0", "f32[b, 128, 768]", 0},
    {"gather", "f32[2, 3] i32[]", "axis=1", "f32[2]", 0},
    {"gather", "f32[2, 3] u8[4]", "axis=1", "indices must be i32 or i64", ASH_ERROR_TYPE},
    {"gather", "f32[2, 0] i32[4]", "axis=1", "no element along axis 1 to index", ASH_ERROR_SHAPE},
    {"gather", "f32[2, 0] i32[0]", "axis=1", "f32[2, 0]", 0},
    {"gather", "f32[1, 1, 1, 1, 1, 1, 1, 1] i32[1, 1, 1, 1]", "axis=0", "the result's rank exceeds 10",
     ASH_ERROR_SHAPE},
    {"gather_elements", "f32[5, 4] i32[3, 9]", "axis=1", "f32[3, 9]", 0},
    {"gather_elements", "f32[5, 4] i32[6, 9]", "axis=1", "the indices can exceed the operand along dim 0",
     ASH_ERROR_SHAPE},
    {"gather_elements", "f32[5, 4] i32[3]", "axis=0", "operands 0 and 1 differ in rank", ASH_ERROR_SHAPE},
    {"gather_nd", "f32[a, 4, 5] i64[7, 2]", "batch=0", "f32[7, 5]", 0},
    {"gather_nd", "f32[b, 4, 5] i64[b, 7, 1]", "batch=1", "f32[b, 7, 5]", 0},
    {"gather_nd", "f32[b, 4, 5] i64[b, 7, 3]", "batch=1", "must be a number from 1 to 2: coordinates",
     ASH_ERROR_SHAPE},
    {"gather_nd", "f32[b, 4, 5] i64[n, 7, 1]", "batch=1", "batch dim 0 differs", ASH_ERROR_SHAPE},
    {"gather_nd", "f32[4] i64[4]", "batch=1", "1 batch dims are too many", ASH_ERROR_SHAPE},
    {"scatter_elements", "f32[5, 4] i32[3, 4] f32[3, 4]", "axis=0 mode=1", "f32[5, 4]", 0},
    {"scatter_elements", "f32[5, 4] i32[3, 4] f32[3, 5]", "axis=0 mode=1",
     "the updates' shape does not follow", ASH_ERROR_SHAPE},
    {"scatter_elements", "f32[5, 4] i32[3, 4] f16[3, 4]", "axis=0 mode=1",
     "operands 0 and 2 differ in dtype", ASH_ERROR_TYPE},
    {"scatter_elements", "f32[5] i32[3] f32[3]", "axis=0 mode=5", "no scatter mode has the number 5",
     ASH_ERROR_INVALID_ARGUMENT},
    {"scatter_elements", "bool[5] i32[3] bool[3]", "axis=0 mode=0", "bool[5]", 0},
    {"scatter_elements", "bool[5] i32[3] bool[3]", "axis=0 mode=1", "must be a number", ASH_ERROR_TYPE},
    {"scatter_nd", "f32[a, 4, 5] i64[7, 2] f32[7, 5]", "mode=0", "f32[a, 4, 5]", 0},
    {"scatter_nd", "f32[a, 4, 5] i64[7, 2] f32[7]", "mode=0", "the updates' shape does not follow",
     ASH_ERROR_SHAPE},
    {"scatter_nd", "f32[a, 4, 5] i64[] f32[7]", "mode=0", "the indices have no last dim", ASH_ERROR_SHAPE},
    {"topk", "f32[b, 9]", "axis=1 k=3 largest=1", "f32[b, 3] i64[b, 3]", 0},
    {"topk", "f32[n, 9]", "axis=0 k=min(b, 8) largest=1", "f32[min(8, b), 9] i64[min(8, b), 9]", 0},
    {"topk", "f32[n, 9]", "axis=0 k=9 largest=1",
     "k can exceed the elements along axis 0; operands f32[n, 9]", ASH_ERROR_SHAPE},
    {"nonzero", "bool[a, 3]", "", "i64[(3*a)] i64[]", 0},
    {"nonzero", "bool[]", "", "i64[1] i64[]", 0},
    {"nonzero", "f32[3]", "", "operand 0 must be bool", ASH_ERROR_TYPE},
    {"nms", "f32[a, n, 4] f32[a, 3, n] f32[] f32[]", "k=8", "i64[a, 3, 8] i64[a, 3]", 0},
    {"nms", "f32[1, 7, 4] f32[1, 3, 7] f32[] f32[]", "k=8", "k can exceed the number of boxes",
     ASH_ERROR_SHAPE},
    {"nms", "f32[1, 9, 4] f32[1, 3, 7] f32[] f32[]", "k=5", "boxes must be [b, n, 4]", ASH_ERROR_SHAPE},
    {"nms", "f32[1, 9, 4] f32[1, 3, 9] f32[1] f32[]", "k=5", "operands 2 and 3 must be scalars",
     ASH_ERROR_SHAPE},
    {"nms", "f32[1, 9, 4] f32[1, 3, 9] f64[] f32[]", "k=5", "differ in dtype", ASH_ERROR_TYPE},
    {"nms", "i32[1, 9, 4] i32[1, 3, 9] i32[] i32[]", "k=5", "floating point", ASH_ERROR_TYPE},
    /* sizes */
    {"iota", "", "dtype=f32 dims=[4294967296, 1073741824] axis=0",
     "can exceed 2^63 bytes: f32[4294967296, 1073741824]", ASH_ERROR_OUT_OF_RANGE},
    {"iota", "", "dtype=u8 dims=[4294967296, 1073741824] axis=0", "u8[4294967296, 1073741824]", 0},
    {"iota", "", "dtype=u8 dims=[(a - b)] axis=0", "attribute dims can be -100", ASH_ERROR_SHAPE},
    {"iota", "", "dtype=u8 dims=[1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1] axis=0", "a list of more than 10",
     ASH_ERROR_FORMAT},
};

static bool has_two_results(const char *op) {
    for (unsigned i = 0; i < ASH_OP_COUNT; i++)
        if (!strcmp(ash_op_infos[i].name, op)) return ash_op_infos[i].outs == 2 || i == ASH_OP_REDUCE_SUMS;
    return false;
}

/* The row as a graph; returns the number of operands. */
static int write_row(const row *r, ash_text *text) {
    int n = 0;
    ash_text_add(text, "graph \"t\" internal\nvar a 0 100\nvar b 1 100\nvar n 8 100\n");
    for (const char *at = r->operands; *at; n++) {
        const char *end = strchr(at, ']') + 1;
        ash_text_add(text, "%%%d: %.*s = input \"x%d\"\n", n, (int)(end - at), at, n);
        at = *end ? end + 1 : end;
    }
    ash_text_add(text, "%s = %s(", has_two_results(r->op) ? "%y, %z" : "%y", r->op);
    for (int i = 0; i < n; i++) ash_text_add(text, "%s%%%d", i ? ", " : "", i);
    ash_text_add(text, ") %s\n", r->attrs);
    return n;
}

static void check_row(fixture *f, const row *r) {
    ash_diag diag = {0};
    ash_graph *g;
    ash_text text, types;
    ash_text_init(&text, &ash_allocator__libc);
    ash_text_init(&types, &ash_allocator__libc);
    int n = write_row(r, &text);
    ash_status status = ash_graph_parse(f->context, text.at, text.len, &g, &diag);
    if (status != r->status) fail_msg("%s(%s) %s: %s", r->op, r->operands, r->attrs, diag.message);
    if (status == ASH_OK) {
        const char *line = r->result;
        for (size_t v = (size_t)n; v < ash_graph_value_count(g); v++) {
            const ash_type *type = ash_graph_type(g, (ash_value)v);
            if (types.len) ash_text_add(&types, " ");
            ash_text_add(&types, "%s[", ash_dtype_name(type->dtype));
            for (unsigned i = 0; i < type->rank; i++) {
                if (i) ash_text_add(&types, ", ");
                ash_dims_print(g->dims, type->dims[i], &types);
            }
            ash_text_add(&types, "]");
        }
        assert_string_equal(types.at, line);
        assert_ok(ash_graph_verify(g, &diag));
        ash_graph_destroy(g);
    } else {
        if (!strstr(diag.message, r->result))
            fail_msg("%s(%s) %s: %s", r->op, r->operands, r->attrs, diag.message);
        assert_true(diag.file_offset < text.len);
        if (status != ASH_ERROR_FORMAT) assert_string_equal(diag.op, r->op);
    }
    ash_text_free(&text);
    ash_text_free(&types);
}

static void operators_infer(void **state) {
    for (size_t i = 0; i < ASH_COUNT(rows); i++) check_row(*state, &rows[i]);
}

/* Every row of the operator table is tested, or is of a class whose operators are alike. */
static void every_class_is_tested(void **state) {
    (void)state;
    for (unsigned op = 0; op < ASH_OP_COUNT; op++) {
        bool tested = ash_op_infos[op].class <= ASH_CLASS_COMPARE || op == ASH_OP_CUSTOM ||
                      op == ASH_OP_SETTLE || op == ASH_OP_ARGUMENT || op == ASH_OP_LOOP ||
                      op == ASH_OP_STACK; /* test_function, test_ir_settled, test_loop */
        for (size_t i = 0; i < ASH_COUNT(rows); i++)
            tested = tested || !strcmp(rows[i].op, ash_op_infos[op].name);
        if (!tested) fail_msg("%s has no row", ash_op_infos[op].name);
    }
}

/* What the text form cannot say: keys twice, wrong counts, NULL lists, dims of no graph. */
static void bad_calls_are_refused(void **state) {
    fixture *f = *state;
    ash_diag diag;
    int64_t list[11] = {0};
    const ash_attr bad[][2] = {
        {ASH_ATTR_I(AXIS, 0), ASH_ATTR_I(AXIS, 0)},
        {ASH_ATTR_I(AXIS, 0), {.key = (ash_attr_key)77}},
        {ASH_ATTR_I(AXIS, 0), ASH_ATTR_LIST(AXES, NULL, 1)},
        {ASH_ATTR_LIST(DIMS, list, 11), ASH_ATTR_I(AXIS, 0)},
    };
    const ash_op ops[] = {ASH_OP_ARGMAX, ASH_OP_ARGMAX, ASH_OP_REDUCE_SUM, ASH_OP_RESHAPE};
    for (size_t i = 0; i < ASH_COUNT(bad); i++) {
        ash_graph *g = fresh(f);
        ash_value x = INPUT(g, "x", F32, 2, 3), y = 0;
        assert_status(ash_graph_add(g, ops[i], &x, 1, bad[i], 2, &y), ASH_ERROR_INVALID_ARGUMENT);
        assert_int_equal(y, ASH_NO_VALUE);
        assert_int_equal(ash_graph_node_count(g), 0);
    }
    ash_graph *g = fresh(f);
    ash_value x = INPUT(g, "x", F32, 2, 3), y;
    assert_int_equal(ash_reshape(g, x, (ash_dim[]){-9}, 1), ASH_NO_VALUE);
    assert_status(ash_graph_status(g, &diag), ASH_ERROR_INVALID_ARGUMENT);
    g = fresh(f);
    assert_int_equal(INPUT(g, "x", F32, -1), ASH_NO_VALUE);
    g = fresh(f);
    assert_int_equal(ash_graph_add(g, ASH_OP_COUNT, NULL, 0, NULL, 0, &y), ASH_ERROR_INVALID_ARGUMENT);
    g = fresh(f);
    x = 5;
    assert_int_equal(ash_graph_add(g, ASH_OP_EXP, &x, 1, NULL, 0, &y), ASH_ERROR_INVALID_ARGUMENT);
    ash_type type = {.dtype = ASH_DTYPE_COUNT};
    assert_int_equal(ash_graph_input(fresh(f), "x", &type), ASH_NO_VALUE);
    type = (ash_type){.dtype = ASH_F32, .rank = 11};
    assert_int_equal(ash_graph_input(fresh(f), "x", &type), ASH_NO_VALUE);
}

int main(void) {
    const struct CMUnitTest tests[] = {IR_TEST(operators_infer), cmocka_unit_test(every_class_is_tested),
                                       IR_TEST(bad_calls_are_refused)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
