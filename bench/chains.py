#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Random chains of operators with variable sizes, ashlar against onnxruntime.

usage: chains.py [--ashlar PROGRAM] [--first SEED] [--count N] [--out FOLDER] [--device NAME]

As other processors with build-release/tests/ashlar_as and ASHLAR_TEST_MACHINE, in caches so small that all is large for them, too:
x86-64-v3,2,8 (tests/machine.c).

Each seed is a model: images [n, c, h, w] or sequences [n, l, d] through one to four operators, or a few elementwise ones with
sums between them, over sizes that are variables and reach from 1 or 2 to some dozens, or thousands in one dim. It is prepared once and run
on six sizes by `ashlar run --check`, in a mode and with options that the seed chooses. What differs from onnxruntime by more
than rounding, is refused, or ends otherwise is printed, and stays in FOLDER/SEED (default build/chains). Status 1 if anything did.

Left out is what the two do differently on purpose: windows that are larger than their image, means of nothing, ties of values
that are rounded. Needs the Python packages onnx, numpy and onnxruntime (bench/setup.sh).
"""
import argparse
import os
import re
import shutil
import subprocess
import sys

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

MS = "com.microsoft"
OPTIONS = ([], ["--poison"], ["--mode", "graph"], ["--mode", "multi_stream=2"], ["--no-fuse", "--poison"], ["--no-optimize"])


class Chain:
    """A model that grows; values are names. What is random comes from the seed."""

    def __init__(self, seed):
        self.rng = np.random.default_rng(seed)
        self.nodes, self.constants, self.inputs, self.log = [], [], {}, []
        self.bound = self.pick(6, 12, 20, 40)
        self.least = self.pick(1, 2, 2, 4)

    def pick(self, *of):
        return of[self.rng.integers(len(of))]

    def chance(self, share):
        return self.rng.random() < share

    def input(self, *dims, integers=0):
        name = f"x{len(self.inputs)}"
        self.inputs[name] = dims, integers
        return name

    def op(self, kind, *ins, outs=1, **attrs):
        names = [f"{kind}_{len(self.nodes)}_{i}" for i in range(outs)]
        self.nodes.append(helper.make_node(kind, list(ins), names, name=names[0], **attrs))
        self.log.append(kind)
        return names[0] if outs == 1 else names

    def const(self, array):
        self.constants.append(numpy_helper.from_array(np.asarray(array), f"c{len(self.constants)}"))
        return self.constants[-1].name

    def ints(self, *values):
        return self.const(np.array(values, np.int64))

    def float(self, value):
        return self.const(np.float32(value))

    def weight(self, *shape):
        return self.const((self.rng.standard_normal(shape) / np.sqrt(max(np.prod(shape[1:]), 1))).astype(np.float32))

    def size(self, x, axis):
        return self.op("Shape", x, start=axis, end=axis + 1)

    def number(self, x, axis):
        """The size as a scalar."""
        return self.op("Squeeze", self.size(x, axis), self.ints(0))


# --- images: x is [n, channels, h, w]; results are the value and its channels ------------------------------------------------


def conv(c, x, channels):
    high, wide, groups = c.pick(1, 3, 3, 5), c.pick(1, 2, 3, 4), c.pick(1, 1, 1, channels)
    out = channels if groups > 1 else c.pick(1, 3, 8, 16, 17)
    attrs = dict(kernel_shape=[high, wide], strides=[c.pick(1, 1, 2), c.pick(1, 1, 2, 3)], group=groups)
    if c.chance(0.3):
        attrs["auto_pad"] = c.pick("SAME_UPPER", "SAME_LOWER")
    else:
        attrs["pads"] = [high // 2, wide // 2] * 2
    bias = [c.weight(out)] if c.chance(0.6) else []
    y = c.op("Conv", x, c.weight(out, channels // groups, high, wide), *bias, **attrs)
    return c.op(c.pick("Relu", "Sigmoid", "HardSwish", "Tanh"), y) if c.chance(0.5) else y, out


def conv_transpose(c, x, channels):
    stride, out = c.pick(1, 2, 2, 3), c.pick(1, 2, 4, 9)
    side = stride + c.pick(0, 1, 2)
    return c.op("ConvTranspose", x, c.weight(channels, out, side, side), strides=[stride, stride], pads=[(side - stride) // 2] * 4), out


def pool(c, x, channels):
    side = c.pick(2, 3)
    attrs = dict(kernel_shape=[side, side], strides=[c.pick(1, 2)] * 2, pads=[side - 1] * 4, ceil_mode=c.pick(0, 1))
    kind = c.pick("MaxPool", "AveragePool")
    if kind == "AveragePool":
        attrs.update(count_include_pad=c.pick(0, 1), pads=[side // 2] * 4, ceil_mode=0, strides=[1, 1])
    return c.op(kind, x, **attrs), channels


def resize(c, x, channels):
    mode = c.pick("nearest", "linear", "cubic")
    attrs = dict(mode=mode, coordinate_transformation_mode="asymmetric" if mode == "nearest" else c.pick("half_pixel", "asymmetric", "align_corners"))
    if mode == "nearest":
        attrs["nearest_mode"] = c.pick("floor", "ceil")
    if mode == "nearest" or c.chance(0.5):  # in f32 a neighbour by sizes is another one now and then
        scales = c.const(np.array([1, 1, c.pick(1, 2, 3), c.pick(1, 2, 4)], np.float32))
        return c.op("Resize", x, "", scales, **attrs), channels
    kept = c.op("Shape", x, end=2)
    wanted = c.ints(7, 5) if c.chance(0.4) else c.op("Mul", c.op("Shape", x, start=2), c.ints(2, 3))
    return c.op("Resize", x, "", "", c.op("Concat", kept, wanted, axis=0), **attrs), channels


def pad(c, x, channels):
    mode = c.pick("constant", "edge", "reflect", "wrap")
    most = 3 if mode == "constant" or mode == "edge" else c.least
    before, after = (c.rng.integers(0, most, 2) for _ in range(2))
    return c.op("Pad", x, c.ints(0, 0, *before, 0, 0, *after), mode=mode), channels


def padded(c, x, by):
    """With zeros behind the rows and columns, to multiples of a number."""
    more = c.op("Mod", c.op("Neg", c.op("Shape", x, start=2)), c.ints(by))
    return c.op("Pad", x, c.op("Concat", c.ints(0, 0, 0, 0, 0, 0), more, axis=0))


def pad_to_multiple(c, x, channels):
    return padded(c, x, c.pick(2, 4, 8)), channels


def windows(c, x, channels):
    """To windows of 4 x 4 and back, as attention in windows does."""
    x = padded(c, x, 4)
    n, h, w = (c.size(x, a) for a in (0, 2, 3))
    four = c.ints(4)
    parts = c.op("Concat", n, c.ints(channels), c.op("Div", h, four), four, c.op("Div", w, four), four, axis=0)
    y = c.op("Transpose", c.op("Reshape", x, parts), perm=[0, 2, 4, 3, 5, 1])
    y = c.op("Reshape", y, c.ints(-1, 16, channels))
    y = c.op("Add", y, c.op("Softmax", y, axis=c.pick(1, 2)))
    back = c.op("Concat", n, c.op("Div", h, four), c.op("Div", w, four), four, four, c.ints(channels), axis=0)
    y = c.op("Transpose", c.op("Reshape", y, back), perm=[0, 5, 1, 3, 2, 4])
    return c.op("Reshape", y, c.op("Concat", n, c.ints(channels), h, w, axis=0)), channels


def cut(c, x, channels):
    axis, step = c.pick(2, 3), c.pick(1, 1, 2, -1)
    if step < 0:
        return c.op("Slice", x, c.ints(-1), c.ints(-2**62), c.ints(axis), c.ints(-1)), channels
    start = c.op("Div", c.size(x, axis), c.ints(2)) if c.chance(0.4) else c.ints(0)
    return c.op("Slice", x, start, c.ints(2**62), c.ints(axis), c.ints(step)), channels


def join(c, x, channels):
    axis = c.pick(1, 2, 3)
    return c.op("Concat", x, c.op("Neg", x), axis=axis), channels * (2 if axis == 1 else 1)


def roll(c, x, channels):
    axis = c.pick(2, 3)
    parts = [c.op("Slice", x, c.ints(-1), c.ints(2**62), c.ints(axis)), c.op("Slice", x, c.ints(0), c.ints(-1), c.ints(axis))]
    return c.op("Concat", *parts, axis=axis), channels


def swap(c, x, channels):
    return c.op("Transpose", x, perm=[0, 1, 3, 2]), channels


def squeeze_excite(c, x, channels):
    y = c.op(c.pick("GlobalAveragePool", "GlobalMaxPool"), x)
    return c.op("Mul", x, c.op("Sigmoid", c.op("Conv", y, c.weight(channels, channels, 1, 1)))), channels


def channels_last(c, x, channels):
    y = c.op("Transpose", x, perm=[0, 2, 3, 1])
    hidden = c.op("Gelu", c.op("MatMul", y, c.weight(channels, 12)))
    y = c.op("Add", y, c.op("MatMul", hidden, c.weight(12, channels)))
    return c.op("Transpose", y, perm=[0, 3, 1, 2]), channels


def image_norm(c, x, channels):
    """Over channels, which are more than one number whatever the sizes are."""
    if channels % 4:
        return c.op("BatchNormalization", x, *(c.weight(channels) for _ in range(3)), c.const(np.full(channels, 0.7, np.float32))), channels
    return c.op("GroupNormalization", x, c.weight(channels), c.weight(channels), num_groups=channels // 4), channels


def flattened(c, x, channels):
    shape = c.op("Shape", x)
    y = c.op("Softmax", c.op("Reshape", x, c.ints(0, 0, -1)), axis=c.pick(1, 2))
    return c.op("Reshape", y, shape), channels


def space_to_depth(c, x, channels):
    return c.op("SpaceToDepth", padded(c, x, 2), blocksize=2), 4 * channels


def grid(c, x, channels):
    theta = c.const(np.array([[[0.9, 0.1, 0.05], [-0.1, 0.8, 0.0]]], np.float32))
    theta = c.op("Expand", theta, c.op("Concat", c.size(x, 0), c.ints(1, 1), axis=0))
    places = c.op("AffineGrid", theta, c.op("Shape", x), align_corners=0)
    return c.op("GridSample", x, places, mode="linear", padding_mode=c.pick("zeros", "border"), align_corners=0), channels


def conv_more(c, x, channels):
    """Groups of several channels, dilations, uneven padding, as many results of each channel."""
    groups = c.pick(*(g for g in (1, 2, 4, channels) if channels % g == 0))
    out, side, apart = groups * c.pick(1, 2, 3), c.pick(2, 3), c.pick(1, 2, 3)
    before = [c.pick(0, apart, (side - 1) * apart) for _ in range(2)]
    attrs = dict(kernel_shape=[side, side], dilations=[apart] * 2, group=groups, strides=[c.pick(1, 2)] * 2,
                 pads=before + [(side - 1) * apart - b for b in before])
    y = c.op("Conv", x, c.weight(out, channels // groups, side, side), c.weight(out), **attrs)
    return c.op("PRelu", y, c.weight(out, 1, 1)) if c.chance(0.3) else y, out


def along_one_axis(c, x, channels):
    """Means, maxima or sums of rows or columns, put beside each of them again."""
    axis = c.pick(1, 2, 3)
    y = c.op(c.pick("ReduceMean", "ReduceMax", "ReduceSum", "ReduceL2", "ReduceLogSumExp"), x, c.ints(axis), keepdims=1)
    return c.op(c.pick("Add", "Sub", "Max"), x, c.op("Tanh", y)), channels


def skip(c, x, channels):
    """Half the size and back, beside what it was: padded to an even size first, as U-Nets are fed."""
    x = padded(c, x, 2)
    low = c.op("MaxPool", x, kernel_shape=[2, 2], strides=[2, 2])
    low = c.op("Conv", low, c.weight(6, channels, 3, 3), pads=[1] * 4)
    if c.chance(0.5):
        up = c.op("ConvTranspose", low, c.weight(6, 4, 2, 2), strides=[2, 2])
    else:
        up = c.op("DepthToSpace", c.op("Conv", low, c.weight(16, 6, 1, 1)), blocksize=2, mode=c.pick("DCR", "CRD"))
    return c.op("Concat", x, up, axis=1), channels + 4


def like_the_first(c, x, channels):
    """Brought to the sizes of another input, whose values are added."""
    other = c.input(1, channels, "h", "w")
    sizes = c.op("Concat", c.op("Shape", x, end=2), c.op("Shape", other, start=2), axis=0)
    y = c.op("Resize", x, "", "", sizes, mode="nearest", coordinate_transformation_mode="asymmetric", nearest_mode="floor") \
        if c.chance(0.5) else c.op("Resize", x, "", "", sizes, mode="linear")
    return c.op("Add", y, other), channels


def places(c, x, channels):
    """Each pixel's row and column as further channels."""
    n, h, w = (c.number(x, a) for a in (0, 2, 3))
    parts = [x]
    for length, at in ((h, [0, 1, 3]), (w, [0, 1, 2])):
        row = c.op("Range", c.const(np.int64(0)), length, c.const(np.int64(1)))
        row = c.op("Div", c.op("Cast", row, to=TensorProto.FLOAT), c.op("Cast", length, to=TensorProto.FLOAT))
        shape = c.op("Concat", c.op("Unsqueeze", n, c.ints(0)), c.ints(1), c.op("Shape", x, start=2), axis=0)
        parts.append(c.op("Expand", c.op("Unsqueeze", row, c.ints(*at)), shape))
    return c.op("Concat", *parts, axis=1), channels + 2


def norms(c, x, channels):
    if c.chance(0.5):
        return c.op("LRN", x, size=c.pick(1, 3, 5), alpha=0.1, beta=0.75, bias=1.0), channels
    return c.op("LpNormalization", c.op("Add", x, c.float(0.1)), axis=1, p=c.pick(1, 2)) if channels > 1 else x, channels


def gated(c, x, channels):
    """Halves of the channels, one a gate."""
    y = c.op("Conv", x, c.weight(2 * channels, channels, 1, 1))
    a, b = c.op("Split", y, outs=2, axis=1, num_outputs=2)
    return c.op("Mul", a, c.op(c.pick("Sigmoid", "Softplus", "Mish", "HardSigmoid", "Elu", "Softsign"), b)), channels


def picked(c, x, channels):
    """The largest channels of each pixel, or of each column."""
    axis = 1 if c.chance(0.5) else c.pick(2, 3)
    k = c.pick(1, channels) if axis == 1 else 1
    values, at = c.op("TopK", x, c.ints(k), outs=2, axis=axis, largest=c.pick(0, 1))
    if "Resize" in c.log:  # whose values may be equal but for rounding
        return values, k if axis == 1 else channels
    return c.op("Add", values, c.op("Mul", c.op("Cast", at, to=TensorProto.FLOAT), c.float(0.1))), k if axis == 1 else channels


def patches(c, x, channels):
    """Windows of two rows and two columns, gathered (im2col by indices)."""
    h, w = c.number(x, 2), c.number(x, 3)
    step, one, zero = c.const(np.int64(1)), c.const(np.int64(1)), c.const(np.int64(0))
    rows = c.op("Unsqueeze", c.op("Range", zero, c.op("Sub", h, one), step), c.ints(1))
    columns = c.op("Unsqueeze", c.op("Range", zero, c.op("Sub", w, one), step), c.ints(1))
    pair = c.const(np.array([[0, 1]], np.int64))
    y = c.op("Gather", x, c.op("Add", rows, pair), axis=2)
    y = c.op("Gather", y, c.op("Add", columns, pair), axis=4)
    return c.op("ReduceMax", y, c.ints(3, 5), keepdims=0), channels


def masked(c, x, channels):
    """Lower triangles, or where something is larger than the mean."""
    if c.chance(0.5):
        return c.op("Trilu", x, c.const(np.int64(c.pick(-1, 0, 2))), upper=c.pick(0, 1)), channels
    mean = c.op("ReduceMean", x, c.ints(2, 3), keepdims=1)
    return c.op("Where", c.op("Greater", x, mean), x, mean), channels


def sampled(c, x, channels):
    """Pooled boxes of the first image: as many images as boxes."""
    boxes = c.const(np.array([[0, 0, 3, 2], [1, 1, 4, 5], [0, 2, 2, 2.5]], np.float32))
    y = c.op("RoiAlign", x, boxes, c.ints(0, 0, 0), output_height=c.pick(1, 3), output_width=2, sampling_ratio=c.pick(0, 2),
             mode=c.pick("avg", "avg", "max"), coordinate_transformation_mode=c.pick("half_pixel", "output_half_pixel"))
    return y, channels


# --- sequences: x is [n, l, width]; results are the value and its width ------------------------------------------------------


def dense(c, x, width):
    out = c.pick(4, 8, 16)
    return c.op("Add", c.op("MatMul", x, c.weight(width, out)), c.weight(out)), out


def attention(c, x, width):
    heads, size = c.pick(1, 2, 4), c.pick(4, 8)

    def split():
        y = c.op("Reshape", c.op("MatMul", x, c.weight(width, heads * size)), c.ints(0, -1, heads, size))
        return c.op("Transpose", y, perm=[0, 2, 1, 3])

    q, k, v = split(), split(), split()
    scores = c.op("Mul", c.op("MatMul", q, c.op("Transpose", k, perm=[0, 1, 3, 2])), c.float(size ** -0.5))
    if c.chance(0.5):
        length = c.number(x, 1)
        places = c.op("Range", c.const(np.int64(0)), length, c.const(np.int64(1)))
        seen = c.op("LessOrEqual", c.op("Unsqueeze", places, c.ints(0)), c.op("Unsqueeze", places, c.ints(1)))
        scores = c.op("Where", seen, scores, c.float(-1e9))
    y = c.op("MatMul", c.op("Softmax", scores, axis=-1), v)
    return c.op("Reshape", c.op("Transpose", y, perm=[0, 2, 1, 3]), c.ints(0, -1, heads * size)), heads * size


def row_norm(c, x, width):
    if c.chance(0.5):
        return c.op("LayerNormalization", x, c.weight(width), c.weight(width), axis=-1), width
    return c.op("RMSNormalization", x, c.weight(width), axis=-1), width


def recurrence(c, x, width):
    kind = c.pick("LSTM", "GRU", "RNN")
    hidden, gates = c.pick(3, 8), dict(LSTM=4, GRU=3, RNN=1)[kind]
    direction = c.pick("forward", "reverse", "bidirectional")
    ways = 2 if direction == "bidirectional" else 1
    outs = c.op(kind, c.op("Transpose", x, perm=[1, 0, 2]), c.weight(ways, gates * hidden, width), c.weight(ways, gates * hidden, hidden),
                c.weight(ways, 2 * gates * hidden), outs=3 if kind == "LSTM" else 2, hidden_size=hidden, direction=direction)
    y = c.op("Transpose", outs[0], perm=[2, 0, 1, 3])
    return c.op("Reshape", y, c.ints(0, 0, ways * hidden)), ways * hidden


def conv_along(c, x, width):
    side, groups = c.pick(1, 3, 7), c.pick(1, width)
    y = c.op("Transpose", x, perm=[0, 2, 1])
    y = c.op("Conv", y, c.weight(width, width // groups, side), kernel_shape=[side], pads=[side - 1, 0], group=groups)
    return c.op("Transpose", y, perm=[0, 2, 1]), width


def running(c, x, width):
    return c.op("Mul", c.op("CumSum", x, c.const(np.int64(1)), reverse=c.pick(0, 1)), c.float(0.1)), width


def last_ones(c, x, width):
    if c.chance(0.5):
        return c.op("Slice", x, c.ints(-2), c.ints(2**62), c.ints(1)), width
    return c.op("ReduceMean", x, c.ints(1), keepdims=1), width


def masked_mean(c, x, width):
    mask = c.op("Cast", c.op("Greater", c.op("ReduceSum", x, c.ints(2), keepdims=1), c.float(0)), to=TensorProto.FLOAT)
    total = c.op("Add", c.op("ReduceSum", mask, c.ints(1), keepdims=1), c.float(1e-3))
    return c.op("Add", x, c.op("Div", c.op("ReduceSum", c.op("Mul", x, mask), c.ints(1), keepdims=1), total)), width


def true_ones(c, x, width):
    """Rows of the first sequence whose sum is positive: a size that data decide; their mean is added."""
    first = c.op("Squeeze", c.op("Slice", x, c.ints(0), c.ints(1), c.ints(0)), c.ints(0))
    keep = c.op("Greater", c.op("ReduceSum", first, c.ints(1), keepdims=0), c.float(0))
    rows = c.op("Compress", first, keep, axis=0)
    return c.op("Add", x, c.op("ReduceSum", rows, c.ints(0), keepdims=1)), width


def scanned(c, x, width):
    value = helper.make_tensor_value_info
    body = helper.make_graph(
        [helper.make_node("Mul", ["s", "factor"], ["t"]), helper.make_node("Add", ["t", "xi"], ["next"]),
         helper.make_node("Identity", ["next"], ["out"])], "body",
        [value("s", TensorProto.FLOAT, None), value("xi", TensorProto.FLOAT, None)],
        [value("next", TensorProto.FLOAT, None), value("out", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(np.float32(0.7), "factor")])
    y = c.op("Transpose", x, perm=[1, 0, 2])
    start = c.op("ReduceMean", y, c.ints(0), keepdims=0)
    outs = c.op("Scan", start, y, outs=2, body=body, num_scan_inputs=1)
    return c.op("Transpose", outs[1], perm=[1, 0, 2]), width


def rotated(c, x, width):
    """Positions as rotations of pairs (RoPE), from a table or computed."""
    length, half = c.number(x, 1), width // 2
    at = c.op("Range", c.const(np.int64(0)), length, c.const(np.int64(1)))
    if c.chance(0.5):
        angles = c.op("Gather", c.const((np.outer(np.arange(64), 0.5 ** np.arange(half))).astype(np.float32)), at)
    else:
        angles = c.op("Mul", c.op("Unsqueeze", c.op("Cast", at, to=TensorProto.FLOAT), c.ints(1)), c.const((0.5 ** np.arange(half)).astype(np.float32)))
    cos, sin = (c.op("Concat", *[c.op(f, angles)] * 2, axis=1) for f in ("Cos", "Sin"))
    a, b = c.op("Split", x, outs=2, axis=2, num_outputs=2)
    turned = c.op("Concat", c.op("Neg", b), a, axis=2)
    return c.op("Add", c.op("Mul", x, cos), c.op("Mul", turned, sin)), width


def behind_past(c, x, width):
    """Rows of a cache come before."""
    return c.op("Concat", c.input(1, "past", width), c.op("ReduceMean", x, c.ints(0), keepdims=1), axis=1), width


def near(c, x, width):
    """Attention to neighbours alone, with a bias for how far away they are."""
    length = c.number(x, 1)
    at = c.op("Range", c.const(np.int64(0)), length, c.const(np.int64(1)))
    apart = c.op("Sub", c.op("Unsqueeze", at, c.ints(0)), c.op("Unsqueeze", at, c.ints(1)))
    bias = c.op("Gather", c.weight(9), c.op("Add", c.op("Clip", apart, c.const(np.int64(-4)), c.const(np.int64(4))), c.const(np.int64(4))))
    seen = c.op("LessOrEqual", c.op("Abs", apart), c.const(np.int64(c.pick(1, 3))))
    scores = c.op("Where", seen, c.op("Add", c.op("Einsum", x, x, equation="nld,nmd->nlm"), bias), c.float(-1e30))
    return c.op("Einsum", c.op("Softmax", scores, axis=2), x, equation="nlm,nmd->nld"), width


def grouped_heads(c, x, width):
    """Four heads of queries, two of keys and values, repeated; by the operator or by hand."""
    size = 4
    q, k, v = (c.op("MatMul", x, c.weight(width, n * size)) for n in (4, 2, 2))
    if c.chance(0.5):
        return c.op("Attention", q, k, v, q_num_heads=4, kv_num_heads=2, is_causal=c.pick(0, 1)), 4 * size
    q, k, v = (c.op("Transpose", c.op("Reshape", y, c.ints(0, 0, n, size)), perm=[0, 2, 1, 3]) for y, n in ((q, 4), (k, 2), (v, 2)))

    def repeat(y):
        shape = c.op("Concat", c.op("Shape", y, end=2), c.ints(2), c.op("Shape", y, start=2), axis=0)
        y = c.op("Expand", c.op("Unsqueeze", y, c.ints(2)), shape)
        return c.op("Reshape", y, c.ints(0, 4, -1, size))

    scores = c.op("MatMul", q, c.op("Transpose", repeat(k), perm=[0, 1, 3, 2]))
    y = c.op("MatMul", c.op("Softmax", scores, axis=-1), repeat(v))
    return c.op("Reshape", c.op("Transpose", y, perm=[0, 2, 1, 3]), c.ints(0, 0, 4 * size)), 4 * size


def experts(c, x, width):
    """The two best of four experts of each row, dense, with their shares scattered."""
    scores = c.op("MatMul", x, c.weight(width, 4))
    best, at = c.op("TopK", scores, c.ints(2), outs=2, axis=-1)
    shares = c.op("ScatterElements", c.op("Mul", scores, c.float(0)), at, c.op("Softmax", best, axis=-1), axis=2)
    hidden = c.op("MatMul", c.op("Unsqueeze", x, c.ints(1)), c.weight(4, width, width))
    return c.op("Einsum", hidden, shares, equation="neld,nle->nld"), width


def strided(c, x, width):
    """Every second row of a convolution along, or means of pairs of rows; and back by repeating."""
    y = c.op("Transpose", x, perm=[0, 2, 1])
    if c.chance(0.5):
        y = c.op("Conv", y, c.weight(width, width, 3), pads=[1, 1], strides=[2])
    else:
        y = c.op("AveragePool", y, kernel_shape=[2], strides=[2], pads=[0, 1], count_include_pad=c.pick(0, 1))
    if c.chance(0.5):
        y = c.op("Resize", y, "", c.const(np.array([1, 1, 2], np.float32)), mode=c.pick("nearest", "linear"),
                 coordinate_transformation_mode="asymmetric", nearest_mode="floor")
    return c.op("Transpose", y, perm=[0, 2, 1]), width


def places_added(c, x, width):
    """The first rows of a table, as many as there are."""
    table = c.op("Slice", c.weight(64, width), c.ints(0), c.size(x, 1), c.ints(0))
    return c.op("Add", x, table), width


def sorted_rows(c, x, width):
    """Rows in the order of their first numbers, of which among many some are equal but for rounding."""
    if c.bound > 40:
        return x, width
    keys = c.op("Gather", x, c.const(np.int64(0)), axis=2)
    _, at = c.op("TopK", keys, c.size(x, 1), outs=2, axis=1, largest=c.pick(0, 1))
    shape = c.op("Shape", x)
    return c.op("GatherElements", x, c.op("Expand", c.op("Unsqueeze", at, c.ints(2)), shape), axis=1), width


def reversed_rows(c, x, width):
    if c.chance(0.5):
        return c.op("Slice", x, c.ints(-1), c.ints(-2**62), c.ints(1), c.ints(-1)), width
    lengths = c.op("Expand", c.size(x, 1), c.size(x, 0))
    return c.op("ReverseSequence", x, lengths, batch_axis=0, time_axis=1), width


def coded(c, x, width):
    """Each row's largest number as a code, one-hot, through a table; repetitions are marked."""
    codes = c.op("ArgMax", x, axis=2, keepdims=0)
    y = c.op("OneHot", codes, c.const(np.int64(width)), c.const(np.array([-0.5, 1], np.float32)), axis=-1)
    before = c.op("Concat", c.op("Slice", codes, c.ints(0), c.ints(1), c.ints(1)), c.op("Slice", codes, c.ints(0), c.ints(-1), c.ints(1)), axis=1)
    same = c.op("Cast", c.op("Equal", codes, before), to=TensorProto.FLOAT)
    return c.op("Add", c.op("MatMul", y, c.weight(width, width)), c.op("Unsqueeze", same, c.ints(2))), width


def chunked(c, x, width):
    """In pieces of four rows, filled up with zeros, each with sums of its own, and cut again."""
    length = c.size(x, 1)
    more = c.op("Mod", c.op("Neg", length), c.ints(4))
    y = c.op("Pad", x, c.op("Concat", c.ints(0, 0, 0, 0), more, c.ints(0), axis=0))
    y = c.op("Reshape", y, c.ints(0, -1, 4, width))
    y = c.op("Add", y, c.op(c.pick("ReduceSum", "ReduceMax"), y, c.ints(2), keepdims=1))
    y = c.op("Reshape", y, c.ints(0, -1, width))
    return c.op("Slice", y, c.ints(0), length, c.ints(1)), width


def updated(c, x, width):
    """Some rows written anew, at places that are computed."""
    length = c.size(x, 1)
    at = c.op("Unsqueeze", c.op("Mod", c.op("Mul", c.const(np.array([1, 2, 5], np.int64)), c.ints(3)), length), c.ints(1))
    y = c.op("ScatterND", c.op("Transpose", x, perm=[1, 0, 2]), at,
             c.op("Expand", c.weight(1, 1, width), c.op("Concat", c.ints(3), c.size(x, 0), c.ints(width), axis=0)), reduction=c.pick("add", "max"))
    return c.op("Transpose", y, perm=[1, 0, 2]), width


IMAGES = (conv, conv, conv, conv_transpose, pool, pool, resize, resize, pad, pad_to_multiple, windows, cut, join, roll, swap, squeeze_excite,
          channels_last, image_norm, flattened, space_to_depth, grid, conv_more, along_one_axis, skip, like_the_first, places, norms, gated,
          picked, patches, masked, sampled)
SEQUENCES = (dense, attention, attention, row_norm, recurrence, conv_along, running, last_ones, masked_mean, true_ones, scanned, rotated,
             behind_past, near, grouped_heads, experts, strided, places_added, sorted_rows, reversed_rows, coded, chunked, updated)


def image_chain(c):
    channels = c.pick(1, 3, 4, 8, 16, 17)
    x = c.input(c.pick("n", 1), channels, "h", "w")
    for _ in range(c.pick(1, 2, 3, 4)):
        x, channels = c.pick(*IMAGES)(c, x, channels)
        if channels > 128:
            break
    return x


def sequence_chain(c):
    width = c.pick(4, 8, 16)
    if c.chance(0.25):  # where scores are not stored
        c.bound = c.pick(90, 200, 500)
    x = c.input(c.pick("n", 1), "l", width)
    for _ in range(c.pick(1, 2, 3, 4)):
        x, width = c.pick(*SEQUENCES)(c, x, width)
    return x


def expression(c):
    """Elementwise operators, gathers and sums, over up to thousands in one dim."""
    long = c.chance(0.5)
    if long:
        c.bound, c.least = c.pick(300, 5000, 20000), 1
    shape = ("l",) if long else ("n", "l")
    values = [c.input(*shape), c.input(*shape)]
    codes = c.input(*shape, integers=9)
    values.append(c.op("Gather", c.const(np.arange(9, dtype=np.float32) / 4 - 1), codes))
    axis = c.ints(len(shape) - 1) if c.chance(0.5) else c.ints(*range(len(shape)))
    for _ in range(c.pick(2, 4, 8)):
        a, b = c.pick(*values[-4:]), c.pick(*values[-4:])
        kind = c.pick("Add", "Sub", "Mul", "Max", "Tanh", "Sigmoid", "ReduceMean", "ReduceMax", "mean", "Softmax", "f64")
        if kind in ("Tanh", "Sigmoid"):
            values.append(c.op(kind, a))
        elif kind in ("ReduceMean", "ReduceMax"):
            values.append(c.op("Add", b, c.op(kind, a, axis, keepdims=1)))
        elif kind == "Softmax":
            values.append(c.op("Add", b, c.op("Softmax", a, axis=-1)))
        elif kind == "f64":
            values.append(c.op("Cast", c.op("Sin", c.op("Cast", a, to=TensorProto.DOUBLE)), to=TensorProto.FLOAT))
        elif kind == "mean":  # weighted
            weights = c.op("Sigmoid", b)
            values.append(c.op("Add", a, c.op("Div", c.op("ReduceSum", c.op("Mul", a, weights), axis, keepdims=1),
                                              c.op("ReduceSum", weights, axis, keepdims=1))))
        else:
            values.append(c.op("Tanh", c.op(kind, a, b)))
    return c.op("Add", values[-1], c.float(9))  # far from 0, where errors are compared with


def sizes_of(c):
    names = sorted({d for dims, _ in c.inputs.values() for d in dims if isinstance(d, str)})
    some = [{n: int(c.rng.integers(c.least, c.bound + 1)) for n in names} for _ in range(4)]
    return names, some + [{n: c.least for n in names}, {n: c.bound for n in names}]


def write(seed, folder):
    """The model and its data, some seeds at one of the sizes alone; options that say the sizes or their bounds, what it is made of,
    and what onnxruntime has against it."""
    c = Chain(seed)
    numbers = c.chance(0.35)
    y = c.pick(image_chain, sequence_chain, expression)(c)
    c.nodes.append(helper.make_node("Identity", [y], ["y"]))
    inputs = [helper.make_tensor_value_info(name, TensorProto.INT64 if integers else TensorProto.FLOAT, dims)
              for name, (dims, integers) in c.inputs.items()]
    graph = helper.make_graph(c.nodes, "chain", inputs, [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)], c.constants)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 23)], ir_version=10)
    shutil.rmtree(folder, ignore_errors=True)
    os.makedirs(folder)
    onnx.save(model, f"{folder}/model.onnx")
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads = 1
    names, sizes = sizes_of(c)
    try:
        session = onnxruntime.InferenceSession(f"{folder}/model.onnx", options, providers=["CPUExecutionProvider"])
    except Exception as error:  # a class of its own for each status
        return [], c, str(error)
    n, bounds = 0, {name: f"{c.least}..{c.bound}" for name in names}
    for size in sizes:
        feeds = {name: c.rng.integers(0, integers, [size.get(d, d) for d in dims]) if integers
                 else c.rng.standard_normal([size.get(d, d) for d in dims]).astype(np.float32) for name, (dims, integers) in c.inputs.items()}
        try:
            result = session.run(None, feeds)[0]
        except Exception:
            continue
        if not result.size or not np.isfinite(result).all():
            continue
        os.makedirs(f"{folder}/test_data_set_{n}")
        for i, (name, array) in enumerate([*feeds.items(), ("y", result)]):
            kind, at = ("input", i) if name != "y" else ("output", 0)
            with open(f"{folder}/test_data_set_{n}/{kind}_{at}.pb", "wb") as out:
                out.write(numpy_helper.from_array(array, name).SerializeToString())
        n += 1
        if numbers:  # the first that works: they are in no order
            bounds = size
            break
    return [o for name in names if n for o in ("--var", f"{name}={bounds[name]}")], c, "" if n else "no result"


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--ashlar", default="build/ashlar")
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--out", default="build/chains")
    parser.add_argument("--device", default="CPU")
    args = parser.parse_args()
    onnxruntime.set_default_logger_severity(4)
    passed = failed = skipped = 0
    for seed in range(args.first, args.first + args.count):
        folder = f"{args.out}/{seed}"
        options, c, unable = write(seed, folder)
        if unable:
            skipped += 1
            shutil.rmtree(folder)
            continue
        options += c.pick(*OPTIONS)
        command = [args.ashlar, "run", "--check", folder, "--repeat", "1", "--no-cache", "--device", args.device, *options]
        try:
            run = subprocess.run(command, capture_output=True, text=True, timeout=120)
            said = run.stderr if run.returncode else ""
            differs = re.findall(r"DIFFERS.*", run.stdout)
            said = differs[0] if differs else said.strip() or f"status {run.returncode}" * bool(run.returncode)
        except subprocess.TimeoutExpired:
            said = "no end"
        if said:
            failed += 1
            print(f"FAIL {seed}: {' '.join(dict.fromkeys(c.log))}\n     {said[:300]}\n     {' '.join(command)}", flush=True)
        else:
            passed += 1
            shutil.rmtree(folder)
    print(f"{passed} passed, {failed} failed, {skipped} skipped (onnxruntime does not run them)")
    return failed > 0


if __name__ == "__main__":
    sys.exit(main())
