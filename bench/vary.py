#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Compares sizes that are variables with the same sizes as numbers: ashlar against itself.

usage: vary.py [--ashlar PROGRAM] [--threads N[,N]] [--rounds N] [--bounds N[,N]] [--above RATIO] [--sizes N,...] CASE ...

A CASE is a name of those below (a part of it is enough, `all` takes all of them), or a model:

FOLDER:NAME=SIZE,...    the dims NAME of its inputs (several with '+': height+width) take the sizes
FOLDER:2,3=SIZE,...     these axes of its first input, which may be numbers, become variables
FOLDER:@K               all its named dims are as in test_data_set_K

For each size and each bound (that many times the size) a line: the time with numbers, and the ratio of the time with
variables to it, of the medians over the rounds of medians; the sides take turns, a fresh process each. --above prints larger
ratios alone. Needs onnx and numpy.
"""
import argparse
import os
import statistics
import subprocess
import sys
import tempfile

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

F32 = TensorProto.FLOAT
RANDOM = np.random.default_rng(1)


def weight(name, *shape):
    return numpy_helper.from_array((RANDOM.standard_normal(shape) / np.sqrt(np.prod(shape[1:]))).astype(np.float32), name)


def model(nodes, inputs, weights):
    """`inputs`: name to dims; the result is called y."""
    graph = helper.make_graph(nodes, "case", [helper.make_tensor_value_info(k, F32, d) for k, d in inputs.items()],
                              [helper.make_tensor_value_info("y", F32, None)], weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def conv(c, o, k, stride=1, groups=1, dims=("h", "w"), **attributes):
    """A convolution, a bias and a relu; padded so that sizes stay, unless attributes say otherwise."""
    if not any(a in attributes for a in ("pads", "auto_pad")):
        attributes["pads"] = [k // 2] * 4
    nodes = [helper.make_node("Conv", ["x", "w", "b"], ["z"], kernel_shape=[k, k], strides=[stride] * 2, group=groups,
                              **attributes), helper.make_node("Relu", ["z"], ["y"])]
    return model(nodes, {"x": [1, c, *dims]}, [weight("w", o, c // groups, k, k), weight("b", o)])


def padded(c, o, k, to):
    """An image filled up behind to a multiple of `to`, and then a convolution without padding, as detectors do."""
    number = lambda name, *v: numpy_helper.from_array(np.array(v, np.int64), name)
    nodes = [helper.make_node("Shape", ["x"], ["s"]), helper.make_node("Slice", ["s", "two", "four"], ["hw"]),
             helper.make_node("Neg", ["hw"], ["less"]), helper.make_node("Mod", ["less", "to"], ["more"]),
             helper.make_node("Concat", ["none", "more"], ["pads"], axis=0), helper.make_node("Pad", ["x", "pads"], ["p"]),
             helper.make_node("Conv", ["p", "w"], ["y"], kernel_shape=[k, k])]
    return model(nodes, {"x": [1, c, "h", "w"]}, [weight("w", o, c, k, k), number("two", 2), number("four", 4),
                                                  number("to", to), number("none", 0, 0, 0, 0, 0, 0)])


def pool(kind, k, stride, **attributes):
    node = helper.make_node(kind, ["x"], ["y"], kernel_shape=[k, k], strides=[stride] * 2, **attributes)
    return model([node], {"x": [1, 64, "h", "w"]}, [])


def attention(heads, size):
    """Scores, softmax, values: keys and values as they lie in a cache."""
    nodes = [helper.make_node("Transpose", ["k"], ["kt"], perm=[0, 1, 3, 2]), helper.make_node("MatMul", ["q", "kt"], ["s"]),
             helper.make_node("Mul", ["s", "scale"], ["t"]), helper.make_node("Softmax", ["t"], ["p"], axis=-1),
             helper.make_node("MatMul", ["p", "v"], ["y"])]
    scale = numpy_helper.from_array(np.float32(size ** -0.5), "scale")
    return model(nodes, {"q": [1, heads, "q", size], "k": [1, heads, "keys", size], "v": [1, heads, "keys", size]}, [scale])


def one(op, dims, *weights, version=17, **attributes):
    """A model of one operator: x of these dims, and weights: arrays, numbers, or None for those that are left out."""
    given, names = [], ["x"]
    for i, w in enumerate(weights):
        names.append("" if w is None else f"w{i}")
        if w is not None:
            given.append(numpy_helper.from_array(np.asarray(w), f"w{i}"))
    made = model([helper.make_node(op, names, ["y"], **attributes)], {"x": list(dims)}, given)
    made.opset_import[0].version = version
    return made


def normal(*shape):
    return (RANDOM.standard_normal(shape) / np.sqrt(np.prod(shape[1:]))).astype(np.float32)


def chain(x, steps, *inputs):
    """Operators one behind the other: (op, further operands, attributes); arrays are weights."""
    nodes, given, at = [], [], "x"
    for i, (op, operands, attributes) in enumerate(steps):
        names = [at]
        for k, w in enumerate(operands):
            if isinstance(w, str):  # "": left out
                names.append(w)
                continue
            given.append(numpy_helper.from_array(np.asarray(w), f"w{i}_{k}"))
            names.append(f"w{i}_{k}")
        at = "y" if i + 1 == len(steps) else f"z{i}"
        nodes.append(helper.make_node(op, names, [at], **attributes))
    return model(nodes, {"x": list(x), **dict(inputs)}, given)


def between(step):
    """A step between two convolutions of one column and row, which have channels in blocks."""
    return chain([1, 64, "h", "w"], [("Conv", [normal(64, 64, 1, 1)], {}), step, ("Conv", [normal(64, 64, 1, 1)], {})])


def line(c, o, k, stride=1, groups=1, dims=("n",), **attributes):
    """A convolution along one axis, as for sound."""
    attributes.setdefault("pads", [k // 2] * 2)
    return one("Conv", [1, c, *dims], normal(o, c // groups, k), normal(o), kernel_shape=[k], strides=[stride],
               group=groups, **attributes)


def transposed(c, k, stride, **attributes):
    return one("ConvTranspose", [1, c, "h", "w"], normal(c, c, k, k), kernel_shape=[k, k], strides=[stride] * 2, **attributes)


def resized(mode, scale, **attributes):
    return one("Resize", [1, 64, "h", "w"], None, np.array([1, 1, scale, scale], np.float32), mode=mode, **attributes)


def cached(heads, groups, size):
    """Attention behind a cache, whose result is the longer cache: keys and values of fewer heads."""
    nodes = [helper.make_node("Concat", ["past_k", "k"], ["keys"], axis=2),
             helper.make_node("Concat", ["past_v", "v"], ["values"], axis=2),
             helper.make_node("Attention", ["q", "keys", "values"], ["y"])]
    graph = helper.make_graph(
        nodes, "case", [helper.make_tensor_value_info(n, F32, d) for n, d in {
            "q": [1, heads, "seq", size], "k": [1, groups, "seq", size], "v": [1, groups, "seq", size],
            "past_k": [1, groups, "past", size], "past_v": [1, groups, "past", size]}.items()],
        [helper.make_tensor_value_info(n, F32, None) for n in ("y", "keys", "values")])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 23)], ir_version=10)


def focus(c, o, k):
    """Every second row and column, four times, one behind the other as channels, and a convolution (YOLOv5)."""
    number = lambda name, *v: numpy_helper.from_array(np.array(v, np.int64), name)
    nodes = []
    for i in range(4):
        nodes.append(helper.make_node("Slice", ["x", f"from{i % 2}{i // 2}", "ends", "axes", "steps"], [f"part{i}"]))
    nodes += [helper.make_node("Concat", [f"part{i}" for i in range(4)], ["all"], axis=1),
              helper.make_node("Conv", ["all", "w"], ["y"], kernel_shape=[k, k], pads=[k // 2] * 4)]
    return model(nodes, {"x": [1, c, "h", "w"]}, [
        weight("w", o, 4 * c, k, k), number("ends", 2 ** 40, 2 ** 40), number("axes", 2, 3), number("steps", 2, 2),
        *[number(f"from{a}{b}", a, b) for a in range(2) for b in range(2)]])


def shuffled(c, groups):
    """Channels of groups taken in turn (ShuffleNet), between two convolutions."""
    number = lambda name, *v: numpy_helper.from_array(np.array(v, np.int64), name)
    nodes = [helper.make_node("Conv", ["x", "w0"], ["a"]), helper.make_node("Shape", ["a"], ["hw"], start=2),
             helper.make_node("Concat", ["apart", "hw"], ["to"], axis=0), helper.make_node("Reshape", ["a", "to"], ["b"]),
             helper.make_node("Transpose", ["b"], ["t"], perm=[0, 2, 1, 3, 4]),
             helper.make_node("Concat", ["joined", "hw"], ["back"], axis=0),
             helper.make_node("Reshape", ["t", "back"], ["s"]), helper.make_node("Conv", ["s", "w1"], ["y"])]
    return model(nodes, {"x": [1, c, "h", "w"]}, [weight("w0", c, c, 1, 1), weight("w1", c, c, 1, 1),
                                                  number("apart", 1, groups, c // groups), number("joined", 1, c)])


def recurrent(op, gates, width, directions=1):
    return one(op, ["n", 1, width], normal(directions, gates * width, width), normal(directions, gates * width, width),
               hidden_size=width, direction="bidirectional" if directions == 2 else "forward")


def layers(count, dims, *steps):
    """A network of so many times these steps, whose weights do not stay in a core's caches from one run to the next."""
    return chain(dims, [step() for _ in range(count) for step in steps])


def square(c, k):
    return lambda: ("Conv", [normal(c, c, k, k)], {"pads": [k // 2] * 4})


def narrow(c, o):
    return lambda: ("Conv", [normal(o, c, 1, 1)], {})


def relu():
    return "Relu", [], {}


IMAGES = (7, 13, 14, 28, 31, 56)
SPACE = ("h", "w")
CASES = {  # name: model, variables, sizes
    "conv3x3_64": (lambda: conv(64, 64, 3), SPACE, IMAGES),
    "conv3x3_128": (lambda: conv(128, 128, 3), SPACE, IMAGES),
    "conv3x3_256": (lambda: conv(256, 256, 3), SPACE, IMAGES[:5]),
    "conv3x3_512": (lambda: conv(512, 512, 3), SPACE, IMAGES[:4]),
    "conv3x3_s2_128": (lambda: conv(128, 128, 3, 2), SPACE, IMAGES),
    "conv1x1_256": (lambda: conv(256, 256, 1), SPACE, IMAGES),
    "conv5x5_64": (lambda: conv(64, 64, 5), SPACE, IMAGES),
    "layers3x3_512": (lambda: layers(12, [1, 512, "h", "w"], square(512, 3), relu), SPACE, (3, 5, 7, 10, 14)),
    "layers3x3_256": (lambda: layers(16, [1, 256, "h", "w"], square(256, 3), relu), SPACE, (7, 10, 14, 20)),
    "layers_narrow_512": (lambda: layers(6, [1, 2048, "h", "w"], narrow(2048, 512), relu, square(512, 3), relu,
                                         narrow(512, 2048)), SPACE, (4, 7, 10)),
    "layers_narrow_256": (lambda: layers(8, [1, 1024, "h", "w"], narrow(1024, 256), relu, square(256, 3), relu,
                                         narrow(256, 1024)), SPACE, (7, 10, 14)),
    "layers_rows_1024": (lambda: layers(24, ["n", 1024], lambda: ("MatMul", [normal(1024, 1024)], {}), relu), ("n",),
                         (1, 3, 7, 16, 33, 64)),
    "depthwise_128": (lambda: conv(128, 128, 3, groups=128), SPACE, IMAGES),
    "same_128": (lambda: conv(128, 128, 3, auto_pad="SAME_UPPER"), SPACE, IMAGES),
    "same_s2_64": (lambda: conv(64, 64, 3, 2, auto_pad="SAME_UPPER"), SPACE, IMAGES),
    "same_s2_lower_64": (lambda: conv(64, 64, 5, 2, auto_pad="SAME_LOWER"), SPACE, IMAGES),
    "same_s2_depthwise": (lambda: conv(128, 128, 3, 2, 128, auto_pad="SAME_UPPER"), SPACE, IMAGES),
    "pad_to_8": (lambda: padded(64, 64, 3, 8), SPACE, IMAGES),
    "pad_to_32": (lambda: padded(64, 64, 3, 32), SPACE, IMAGES),
    "pool_same_s2": (lambda: pool("MaxPool", 3, 2, auto_pad="SAME_UPPER"), SPACE, IMAGES),
    "pool_s2": (lambda: pool("MaxPool", 3, 2, pads=[1, 1, 1, 1]), SPACE, IMAGES),
    "attention_q16": (lambda: attention(12, 64), {"q": (16, 64), "keys": (1024, 1024)}, (16,)),
    "attention_q37": (lambda: attention(12, 64), {"q": (37, 64), "keys": (300, 1024)}, (37,)),
    "attention_cache_q1": (lambda: cached(16, 4, 64), {"seq": (1, 16), "past": (200, 256)}, (1,)),
    "attention_few_q1": (lambda: cached(16, 4, 64), {"seq": (1, 16), "past": (37, 64)}, (1,)),
    "attention_few_q2": (lambda: cached(16, 4, 64), {"seq": (2, 16), "past": (36, 64)}, (2,)),
    "attention_few_q4": (lambda: cached(16, 4, 64), {"seq": (4, 16), "past": (34, 64)}, (4,)),
    "attention_cache_q5": (lambda: cached(16, 4, 64), {"seq": (5, 16), "past": (33, 64)}, (5,)),
    "wide5x5_16": (lambda: conv(16, 16, 5), SPACE, IMAGES),
    "wide7x7_32": (lambda: conv(32, 32, 7), SPACE, IMAGES),
    "first7x7_s2": (lambda: conv(3, 64, 7, 2), SPACE, (28, 56, 112)),
    "first3x3_s2": (lambda: conv(3, 32, 3, 2), SPACE, (28, 56, 112)),
    "last3x3": (lambda: conv(64, 3, 3), SPACE, IMAGES),
    "without_padding": (lambda: conv(64, 64, 3, pads=[0] * 4), SPACE, IMAGES),
    "dilated2_64": (lambda: conv(64, 64, 3, dilations=[2, 2], pads=[2] * 4), SPACE, IMAGES),
    "dilated6_64": (lambda: conv(64, 64, 3, dilations=[6, 6], pads=[6] * 4), SPACE, IMAGES),
    "conv1x1_s2_128": (lambda: conv(128, 128, 1, 2), SPACE, IMAGES),
    "conv1x1_64": (lambda: conv(64, 64, 1), SPACE, IMAGES),
    "groups32_128": (lambda: conv(128, 128, 3, groups=32), SPACE, IMAGES),
    "groups4_64": (lambda: conv(64, 64, 3, groups=4), SPACE, IMAGES),
    "depth5x5_96": (lambda: conv(96, 96, 5, groups=96), SPACE, IMAGES),
    "depth7x7_96": (lambda: conv(96, 96, 7, groups=96), SPACE, IMAGES),
    "depth_s2_128": (lambda: conv(128, 128, 3, 2, 128), SPACE, IMAGES),
    "line3_64": (lambda: line(64, 64, 3), ("n",), (25, 100, 333)),
    "line5_s2_64": (lambda: line(64, 64, 5, 2), ("n",), (25, 100, 333)),
    "line10_s5_sound": (lambda: line(1, 64, 10, 5, pads=[0, 0]), ("n",), (400, 1600)),
    "line15_depth": (lambda: line(64, 64, 15, groups=64), ("n",), (25, 100, 333)),
    "line4_causal": (lambda: line(192, 192, 4, groups=192, pads=[3, 0]), ("n",), (13, 64, 300)),
    "pool2_s2": (lambda: pool("MaxPool", 2, 2), SPACE, IMAGES),
    "pool3_s2_ceil": (lambda: pool("MaxPool", 3, 2, ceil_mode=1), SPACE, IMAGES),
    "pool3_s1": (lambda: pool("MaxPool", 3, 1, pads=[1] * 4), SPACE, IMAGES),
    "mean2_s2": (lambda: pool("AveragePool", 2, 2), SPACE, IMAGES),
    "mean3_s1": (lambda: pool("AveragePool", 3, 1, pads=[1] * 4), SPACE, IMAGES),
    "mean3_s2_ceil": (lambda: pool("AveragePool", 3, 2, ceil_mode=1), SPACE, IMAGES),
    "mean_of_all": (lambda: one("GlobalAveragePool", [1, 64, "h", "w"]), SPACE, IMAGES),
    "pool_blocked": (lambda: chain([1, 64, "h", "w"], [("Conv", [normal(64, 64, 1, 1)], {}), ("MaxPool", [], {
        "kernel_shape": [3, 3], "strides": [2, 2], "pads": [1] * 4}), ("Conv", [normal(64, 64, 1, 1)], {})]), SPACE, IMAGES),
    "resize_nearest2": (lambda: resized("nearest", 2, coordinate_transformation_mode="asymmetric", nearest_mode="floor"),
                        SPACE, IMAGES),
    "resize_linear2": (lambda: resized("linear", 2), SPACE, IMAGES),
    "resize_corners2": (lambda: resized("linear", 2, coordinate_transformation_mode="align_corners"), SPACE, IMAGES),
    "resize_cubic2": (lambda: resized("cubic", 2), SPACE, IMAGES[:5]),
    "resize_half": (lambda: resized("linear", 0.5), SPACE, IMAGES),
    "mean3_blocked": (lambda: between(("AveragePool", [], {"kernel_shape": [3, 3], "pads": [1] * 4})), SPACE, IMAGES[:5]),
    "mean3_s2_blocked": (lambda: between(("AveragePool", [], {"kernel_shape": [3, 3], "strides": [2, 2], "ceil_mode": 1})),
                         SPACE, IMAGES[:5]),
    "instances_blocked": (lambda: between(("InstanceNormalization", [normal(64), normal(64)], {})), SPACE, IMAGES[:5]),
    "corners_blocked": (lambda: between(("Resize", ["", np.array([1, 1, 2, 2], np.float32)], {
        "mode": "linear", "coordinate_transformation_mode": "align_corners"})), SPACE, IMAGES[:5]),
    "half_blocked": (lambda: between(("Resize", ["", np.array([1, 1, 0.5, 0.5], np.float32)], {"mode": "linear"})), SPACE,
                     IMAGES[:5]),
    "nearest_blocked": (lambda: between(("Resize", ["", np.array([1, 1, 2, 2], np.float32)], {
        "mode": "nearest", "coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"})), SPACE, IMAGES[:5]),
    "resize_blocked": (lambda: between(("Resize", ["", np.array([1, 1, 2, 2], np.float32)], {"mode": "linear"})), SPACE,
                       IMAGES[:5]),
    "transposed2_s2": (lambda: transposed(64, 2, 2), SPACE, IMAGES),
    "transposed3_s2": (lambda: transposed(64, 3, 2, pads=[1] * 4, output_padding=[1, 1]), SPACE, IMAGES),
    "transposed4_s2": (lambda: transposed(64, 4, 2, pads=[1] * 4), SPACE, IMAGES),
    "normalise_instances": (lambda: one("InstanceNormalization", [1, 64, "h", "w"], normal(64), normal(64)), SPACE, IMAGES),
    "normalise_groups": (lambda: one("GroupNormalization", [1, 64, "h", "w"], normal(64), normal(64), version=21,
                                     num_groups=16), SPACE, IMAGES),
    "normalise_layer": (lambda: one("LayerNormalization", [1, "n", 256], normal(256), normal(256)), ("n",), (1, 7, 50)),
    "normalise_channels": (lambda: chain([1, 96, "h", "w"], [
        ("Transpose", [], {"perm": [0, 2, 3, 1]}), ("LayerNormalization", [normal(96), normal(96)], {}),
        ("Transpose", [], {"perm": [0, 3, 1, 2]})]), SPACE, IMAGES),
    "softmax_length": (lambda: one("Softmax", [12, 16, "n"], axis=-1), ("n",), (7, 13, 50, 200)),
    "softmax_rows": (lambda: one("Softmax", ["n", 64], axis=-1), ("n",), (7, 50, 200)),
    "softmax_channels": (lambda: one("Softmax", [1, 21, "h", "w"], axis=1), SPACE, IMAGES),
    "sum_length": (lambda: one("ReduceSum", [64, "n"], np.array([1])), ("n",), (7, 50, 333)),
    "sum_rows": (lambda: one("ReduceSum", ["n", 64], np.array([0])), ("n",), (7, 50, 333)),
    "argmax_length": (lambda: chain([64, "n"], [("ArgMax", [], {"axis": 1}), ("Cast", [], {"to": F32})]), ("n",), (7, 50, 333)),
    "running_sum": (lambda: one("CumSum", [16, "n"], np.array(1)), ("n",), (7, 50, 333)),
    "to_last": (lambda: one("Transpose", [1, 64, "h", "w"], perm=[0, 2, 3, 1]), SPACE, IMAGES),
    "to_first": (lambda: one("Transpose", [1, "h", "w", 64], perm=[0, 3, 1, 2]), SPACE, IMAGES),
    "to_first3": (lambda: one("Transpose", [1, "h", "w", 3], perm=[0, 3, 1, 2]), SPACE, IMAGES),
    "to_heads": (lambda: one("Transpose", [1, "n", 12, 64], perm=[0, 2, 1, 3]), ("n",), (7, 50)),
    "turned": (lambda: one("Transpose", ["h", "w"], perm=[1, 0]), SPACE, IMAGES),
    "reflected": (lambda: one("Pad", [1, 64, "h", "w"], np.array([0, 0, 1, 1, 0, 0, 1, 1]), mode="reflect"), SPACE, IMAGES),
    "reflected_blocked": (lambda: between(("Pad", [np.array([0, 0, 1, 1, 0, 0, 1, 1])], {"mode": "reflect"})), SPACE,
                          IMAGES[:5]),
    "padded": (lambda: one("Pad", [1, 64, "h", "w"], np.array([0, 0, 1, 1, 0, 0, 1, 1])), SPACE, IMAGES),
    "repeated": (lambda: one("Tile", [64, "n"], np.array([1, 3])), ("n",), (7, 50)),
    "cut": (lambda: one("Slice", [64, "n"], np.array([1]), np.array([-1]), np.array([1])), ("n",), (9, 50)),
    "space_to_depth": (lambda: one("SpaceToDepth", [1, 16, "h", "w"], blocksize=2), SPACE, (14, 28, 56)),
    "shuffled_channels": (lambda: shuffled(64, 2), SPACE, IMAGES[:5]),
    "focus": (lambda: focus(3, 32, 3), SPACE, (28, 56, 112)),
    "depth_to_space": (lambda: one("DepthToSpace", [1, 64, "h", "w"], blocksize=2), SPACE, IMAGES),
    "scaled": (lambda: chain([1, 64, "h", "w"], [("Mul", [normal(64, 1, 1)], {}), ("Add", [normal(64, 1, 1)], {}),
                                                 ("Relu", [], {})]), SPACE, IMAGES),
    "scaled_columns": (lambda: chain([16, "n"], [("Mul", ["row"], {}), ("Tanh", [], {})], ("row", ["n"])), ("n",),
                       (7, 50, 333)),
    "squeeze_excite": (lambda: chain([1, 64, "h", "w"], [
        ("GlobalAveragePool", [], {}), ("Conv", [normal(16, 64, 1, 1)], {}), ("Relu", [], {}),
        ("Conv", [normal(64, 16, 1, 1)], {}), ("Sigmoid", [], {}), ("Mul", ["x"], {})]), SPACE, IMAGES),
    "batch_products": (lambda: chain(["n", 256], [("MatMul", [normal(256, 256)], {}), ("Relu", [], {}),
                                                  ("MatMul", [normal(256, 10)], {})]), ("n",), (1, 2, 3, 5, 8, 16, 33)),
    "batch_conv": (lambda: one("Conv", ["n", 64, 14, 14], normal(64, 64, 3, 3), pads=[1] * 4), ("n",), (1, 2, 5)),
    "batch_depth": (lambda: one("Conv", ["n", 64, 14, 14], normal(64, 1, 3, 3), pads=[1] * 4, group=64), ("n",), (1, 2, 5)),
    "batch_softmax": (lambda: one("Softmax", ["n", 100]), ("n",), (1, 4)),
    "rows_times_rows": (lambda: chain([8, "n", 64], [("MatMul", ["k"], {})], ("k", [8, 64, "n"])), ("n",), (7, 13, 50, 128)),
    "lstm_64": (lambda: recurrent("LSTM", 4, 64), ("n",), (1, 7, 50)),
    "lstm_128_both": (lambda: recurrent("LSTM", 4, 128, 2), ("n",), (7, 50)),
    "gru_64": (lambda: recurrent("GRU", 3, 64), ("n",), (7, 50)),
}


class Case:
    """A model in a file, what varies, and the sizes at which it is looked at."""

    def __init__(self, name, text, variables, sizes, folder):
        self.name, self.variables, self.sizes, self.folder, self.given = name, variables, sizes, folder, None
        self.path = os.path.join(folder, name + ".onnx")
        onnx.save(text, self.path)
        self.inputs = {i.name: i.type.tensor_type for i in text.graph.input
                       if i.name not in {w.name for w in text.graph.initializer}}

    def values(self, size, times):
        """Each variable's value and its bound."""
        if isinstance(self.variables, dict):
            return {v: (n, max(n, b) * max(times, 1)) for v, (n, b) in self.variables.items()}
        return {v: (size, size * times) for v in self.variables}

    def files(self, size):
        """An input file for each input, at a size; dims that do not vary and have no number are 1."""
        if self.given:
            return self.given
        out = []
        for name, kind in self.inputs.items():
            values = {v: n for v, (n, _) in self.values(size, 1).items()}
            dims = [d.dim_value if d.HasField("dim_value") else values.get(d.dim_param, 1) for d in kind.shape.dim]
            path = os.path.join(self.folder, f"{self.name}_{name.replace('/', '_')}_{size}.npy")
            if kind.elem_type == F32:
                np.save(path, RANDOM.standard_normal(dims).astype(np.float32))
            else:
                np.save(path, np.zeros(dims, helper.tensor_dtype_to_np_dtype(kind.elem_type)))
            out.append(f"{name}={path}")
        return out

    @staticmethod
    def of_set(label, folder, k, temporary):
        """A model with the inputs of one of its test sets."""
        case = Case(label, onnx.load(os.path.join(folder, "model.onnx")), {}, [k], temporary)
        case.given = []
        for i, (name, kind) in enumerate(case.inputs.items()):
            path = os.path.join(folder, f"test_data_set_{k}", f"input_{i}.pb")
            tensor = onnx.TensorProto()
            with open(path, "rb") as f:
                tensor.ParseFromString(f.read())
            case.given.append(f"{name}={path}")
            for dim, size in zip(kind.shape.dim, tensor.dims):
                if dim.dim_param.isidentifier():
                    case.variables[dim.dim_param] = (size, max(size, 1))
        return case

    def command(self, program, threads, repeat, size, times, extra=()):
        command = [program, "bench", self.path, "--csv", "--threads", str(threads), "--repeat", str(repeat), *extra]
        for file in self.files(size):
            command += ["--input", file]
        for v, (n, bound) in self.values(size, times).items() if times else ():
            command += ["--var", f"{v}={min(n, 1)}..{bound}"]
        return command


def named(path, axes):
    """A model whose first input's axes become variables; shapes that follow from the old ones are dropped."""
    text = onnx.load(path)
    given = {w.name for w in text.graph.initializer}
    dims = next(i for i in text.graph.input if i.name not in given).type.tensor_type.shape.dim
    for axis in axes:
        dims[axis].ClearField("dim_value")
        dims[axis].dim_param = f"d{axis}"
    del text.graph.value_info[:]
    for out in text.graph.output:
        out.type.tensor_type.ClearField("shape")
    return text


def find_cases(names, folder):
    for name in names:
        if ":" not in name:
            for key in CASES:
                if name in key or name == "all":
                    make, variables, sizes = CASES[key]
                    yield Case(key, make(), variables, sizes, folder)
            continue
        path, what = name.split(":")
        if what.startswith("@"):
            yield Case.of_set(os.path.basename(os.path.normpath(path)), path, int(what[1:]), folder)
            continue
        variables, sizes = what.split("=")
        sizes = [int(s) for s in sizes.split(",")]
        at = os.path.join(path, "model.onnx")
        label = os.path.basename(os.path.normpath(path))
        if variables.replace(",", "").isdigit():
            axes = [int(a) for a in variables.split(",")]
            yield Case(label, named(at, axes), [f"d{a}" for a in axes], sizes, folder)
        else:
            yield Case(label, onnx.load(at), variables.split("+"), sizes, folder)


def time_of(command):
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(done.stderr.strip().splitlines()[-1] if done.stderr.strip() else str(done.returncode))
    return int(done.stdout.strip().splitlines()[-1].split(",")[2])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cases", nargs="+")
    parser.add_argument("--ashlar", default=os.path.join(os.path.dirname(__file__), "..", "build", "ashlar"))
    parser.add_argument("--threads", default="1")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--bounds", default="1,2,4")
    parser.add_argument("--above", type=float, default=0)
    parser.add_argument("--sizes", default="")
    parser.add_argument("--prepare", action="store_true", help="only fill the cache of kernels")
    parser.add_argument("--list", action="store_true", help="print the commands of the cases")
    args = parser.parse_args()
    bounds = [int(b) for b in args.bounds.split(",")]
    with tempfile.TemporaryDirectory() as folder:
        if not os.environ.get("ASHLAR_CACHE_DIR"):
            os.environ["ASHLAR_CACHE_DIR"] = os.path.join(folder, "kernels")
        for case in find_cases(args.cases, folder):
            for size in [int(s) for s in args.sizes.split(",")] if args.sizes else case.sizes:
                for threads in [int(t) for t in args.threads.split(",")]:
                    measure(args, case, size, threads, bounds)


def measure(args, case, size, threads, bounds):
    ways = [0, *bounds]
    try:
        for times in ways:  # fills the kernel cache
            time_of(case.command(args.ashlar, threads, 1, size, times))
        if args.prepare:
            return
        once = time_of(case.command(args.ashlar, threads, 3, size, 0))
        repeat = max(5, min(300, int(3e7 / once)))
        times = {w: [] for w in ways}
        for _ in range(args.rounds):
            for w in ways:
                times[w].append(time_of(case.command(args.ashlar, threads, repeat, size, w)))
    except RuntimeError as error:
        print(f"{case.name:20} {size:4} {threads}: {error}", flush=True)
        return
    middle = {w: statistics.median(t) for w, t in times.items()}
    ratios = [middle[w] / middle[0] for w in bounds]
    if max(ratios) >= args.above:
        print(f"{case.name:20} {size:4} {threads} thread(s) {middle[0] * 1e-3:10.1f} us  " +
              "  ".join(f"x{w} {r:5.2f}" for w, r in zip(bounds, ratios)), flush=True)


if __name__ == "__main__":
    sys.exit(main())
