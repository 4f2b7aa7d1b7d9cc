#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Writes the small ONNX models that the tests import: tests/data/onnx/NAME/model.onnx with test_data_set_*.

usage: onnx_fixtures.py OUTDIR [NAME...]        (the results are committed; onnx, numpy and onnxruntime are needed only here)

Inputs are seeded; expected outputs come from onnxruntime, or from ONNX's reference where a name ends in _spec. The folder
layout is that of the ONNX backend tests, so the program `conformance` runs them. Models are small cousins of real
architectures, of several operator sets, and a few with what the backend tests lack: variable dims, computed shapes, external
data, typed data fields.
"""
import math
import os
import sys
import zlib

import ml_dtypes
import numpy as np
import onnx
import onnx.parser
import onnx.reference
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

F32, I64, F16 = TensorProto.FLOAT, TensorProto.INT64, TensorProto.FLOAT16
U8, I8, I32 = np.uint8, np.int8, np.int32
MS = "com.microsoft"


class Net:
    """Adds nodes and seeded weights, and returns value names."""

    def __init__(self, name, opset):
        self.name, self.opset = name, opset
        self.nodes, self.inits, self.inputs, self.outputs = [], [], [], []
        self.rng = np.random.default_rng(zlib.crc32(name.encode()))
        self.count = 0

    def op(self, kind, *ins, outs=1, **attrs):
        self.count += 1
        names = [f"{kind.lower()}_{self.count}" + (f"_{i}" if outs > 1 else "") for i in range(outs)]
        self.nodes.append(helper.make_node(kind, list(ins), names, name=f"n{self.count}_{kind}", **attrs))
        return names[0] if outs == 1 else names

    def const(self, array):
        self.count += 1
        name = f"c_{self.count}"
        self.inits.append(numpy_helper.from_array(np.asarray(array, order="C"), name))
        return name

    def ints(self, *values):
        return self.const(np.array(values, np.int64))

    def weight(self, *shape, scale=1.0, base=0.0):
        fan = int(np.prod(shape[1:])) or 1
        return self.const((base + self.rng.standard_normal(shape) * scale / np.sqrt(fan)).astype(np.float32))

    def input(self, name, shape, dtype=F32):
        self.inputs.append(helper.make_tensor_value_info(name, dtype, shape))
        return name

    def output(self, name, shape=None, dtype=F32):
        self.outputs.append(helper.make_tensor_value_info(name, dtype, shape))

    def model(self):
        graph = helper.make_graph(self.nodes, self.name, self.inputs, self.outputs, self.inits)
        sets = [helper.make_opsetid("", self.opset)]
        if any(node.domain == MS for node in self.nodes):
            sets.append(helper.make_opsetid(MS, 1))
        model = helper.make_model(graph, opset_imports=sets, producer_name="fixtures")
        model.ir_version = 8
        return model

    def conv(self, x, cin, cout, k, **attrs):
        groups = attrs.get("group", 1)
        return self.op("Conv", x, self.weight(cout, cin // groups, k, k), self.weight(cout, scale=0.1),
                       kernel_shape=[k, k], **attrs)


def resnet_like():
    """Opset 9: batch normalisation, Sum, pooling, Reshape with a constant, Gemm, the older Softmax."""
    n = Net("resnet_like", 9)

    def bn(x, c):
        var = n.const((0.5 + n.rng.random(c)).astype(np.float32))
        return n.op("BatchNormalization", x, n.weight(c, base=1.0, scale=0.2), n.weight(c, scale=0.1), n.weight(c, scale=0.1),
                    var, epsilon=1e-5)

    x = n.input("x", [1, 3, 17, 17])
    x = n.op("Relu", bn(n.conv(x, 3, 8, 3, pads=[1, 1, 1, 1], strides=[2, 2]), 8))
    x = n.op("MaxPool", x, kernel_shape=[3, 3], strides=[2, 2], pads=[0, 0, 1, 1])
    y = n.op("Relu", bn(n.conv(x, 8, 8, 3, pads=[1, 1, 1, 1]), 8))
    x = n.op("Sum", x, bn(n.conv(y, 8, 8, 1), 8))
    x = n.op("AveragePool", x, kernel_shape=[2, 2], strides=[2, 2])
    x = n.op("Reshape", x, n.ints(1, -1))
    x = n.op("Gemm", x, n.weight(10, 32), n.weight(10), transB=1)
    n.output(x), n.output(n.op("Softmax", x))
    return n.model(), [{"x": (1, 3, 17, 17)}]


def inception_like():
    """Opset 9: LRN, Concat of branches, grouped convolution, auto_pad, Dropout."""
    n = Net("inception_like", 9)
    x = n.input("x", [2, 4, 9, 9])
    x = n.op("LRN", x, size=3, alpha=1e-2, beta=0.75, bias=1.5)
    a = n.conv(x, 4, 6, 1)
    b = n.conv(x, 4, 4, 3, auto_pad="SAME_UPPER", group=2)
    c = n.op("MaxPool", x, kernel_shape=[3, 3], strides=[1, 1], pads=[1, 1, 1, 1])
    x = n.op("Concat", a, b, c, axis=1)
    x = n.op("AveragePool", x, kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1])
    x = n.op("Dropout", x, ratio=0.4)
    n.output(n.op("GlobalAveragePool", x))
    return n.model(), [{"x": (2, 4, 9, 9)}]


def mobilenet_like():
    """Opset 17: depthwise convolutions and Clip, with a variable batch."""
    n = Net("mobilenet_like", 17)
    low, high = n.const(np.float32(0)), n.const(np.float32(6))
    x = n.input("image", ["batch", 3, 12, 12])
    x = n.op("Clip", n.conv(x, 3, 8, 3, pads=[1, 1, 1, 1], strides=[2, 2]), low, high)
    y = n.op("Clip", n.conv(x, 8, 8, 3, pads=[1, 1, 1, 1], group=8), low, high)
    x = n.op("Add", x, n.conv(y, 8, 8, 1))
    x = n.op("Flatten", n.op("GlobalAveragePool", x))
    n.output(n.op("Gemm", x, n.weight(5, 8), n.weight(5), transB=1))
    return n.model(), [{"image": (1, 3, 12, 12)}, {"image": (3, 3, 12, 12)}]


def bert_like():
    """Opset 13: attention with variable batch and length, whose reshapes are computed from Shape."""
    n = Net("bert_like", 13)
    d, heads = 16, 4
    ids = n.input("ids", ["batch", "seq"], I64)
    x = n.op("Gather", n.weight(32, d), ids)
    batch = n.op("Gather", n.op("Shape", x), n.const(np.int64(0)), axis=0)
    seq = n.op("Gather", n.op("Shape", x), n.const(np.int64(1)), axis=0)
    axis = n.ints(0)

    def vector(v):
        return n.op("Unsqueeze", v, axis)

    split = n.op("Concat", vector(batch), vector(seq), n.ints(heads), n.ints(d // heads), axis=0)
    merged = n.op("Concat", vector(batch), vector(seq), n.ints(-1), axis=0)

    def linear(v, rows, columns):
        return n.op("Add", n.op("MatMul", v, n.weight(rows, columns, scale=2)), n.weight(columns, scale=0.1))

    def norm(v):
        mean = n.op("ReduceMean", v, axes=[-1], keepdims=1)
        diff = n.op("Sub", v, mean)
        var = n.op("ReduceMean", n.op("Pow", diff, n.const(np.float32(2))), axes=[-1], keepdims=1)
        return n.op("Div", diff, n.op("Sqrt", n.op("Add", var, n.const(np.float32(1e-5)))))

    q, k, v = (n.op("Transpose", n.op("Reshape", linear(x, d, d), split), perm=p)
               for p in ([0, 2, 1, 3], [0, 2, 3, 1], [0, 2, 1, 3]))
    score = n.op("Softmax", n.op("Div", n.op("MatMul", q, k), n.const(np.float32(2))), axis=-1)
    y = n.op("Reshape", n.op("Transpose", n.op("MatMul", score, v), perm=[0, 2, 1, 3]), merged)
    x = norm(n.op("Add", x, linear(y, d, d)))
    h = linear(x, d, 2 * d)
    h = n.op("Mul", h, n.op("Add", n.op("Erf", n.op("Div", h, n.const(np.float32(np.sqrt(2))))), n.const(np.float32(1))))
    n.output(norm(n.op("Add", x, linear(h, 2 * d, d))))
    return n.model(), [{"ids": (1, 5)}, {"ids": (3, 8)}]


def shapes():
    """Opset 13: slices, padding, expansion and ranges by dims that are not numbers."""
    n = Net("shapes", 13)
    x = n.input("x", ["n", 6])
    shape = n.op("Shape", x)
    rows = n.op("Slice", shape, n.ints(0), n.ints(1))
    last = n.op("Slice", x, n.ints(-1), n.ints(2 ** 62), n.ints(0))
    n.output(last)
    n.output(n.op("Slice", x, n.ints(1, 1), n.ints(-1, 5), n.ints(0, 1), n.ints(1, 2)))
    twice = n.op("Concat", n.op("Mul", rows, n.ints(2)), n.ints(3), axis=0)
    n.output(n.op("Reshape", x, twice))
    n.output(n.op("Expand", last, shape))
    n.output(n.op("Reshape", n.op("Concat", x, x, axis=1), n.ints(-1, 3)))
    n.output(n.op("Mul", x, n.op("Cast", n.op("Gather", shape, n.const(np.int64(0))), to=F32)))
    n.output(n.op("Tile", x, n.ints(2, 3)))
    n.output(n.op("Pad", x, n.ints(1, 0, 0, 2)))
    return n.model(), [{"x": (2, 6)}, {"x": (5, 6)}]


def mlp_external():
    """Opset 17: weights in a file of their own."""
    n = Net("mlp_external", 17)
    x = n.input("x", [2, 32])
    for _ in range(2):
        x = n.op("Relu", n.op("Add", n.op("MatMul", x, n.weight(32, 32)), n.weight(32)))
    n.output(x)
    return n.model(), [{"x": (2, 32)}]


def typed_data():
    """Opset 13: initializers in float_data, int64_data, int32_data and double_data instead of raw_data."""
    n = Net("typed_data", 13)
    x = n.input("x", [2, 3])
    make = helper.make_tensor
    n.inits = [make("f", F32, [3], [0.5, -1.25, 3e-5]), make("i", I64, [2], [3, -2]),
               make("h", TensorProto.FLOAT16, [1], [1.5]), make("d", TensorProto.DOUBLE, [1], [1e-3]),
               make("b", TensorProto.BOOL, [3], [True, False, True]), make("s", TensorProto.INT8, [3], [-7, 0, 100])]
    y = n.op("Add", x, "f")
    y = n.op("Mul", y, n.op("Cast", "h", to=F32))
    y = n.op("Add", y, n.op("Cast", "d", to=F32))
    y = n.op("Where", "b", y, n.op("Cast", "s", to=F32))
    n.output(n.op("Reshape", y, n.op("Abs", "i")))
    return n.model(), [{"x": (2, 3)}]


def recurrent():
    """Opset 14: a bidirectional LSTM and a GRU."""
    n = Net("recurrent", 14)
    x = n.input("x", [5, 2, 3])
    y, h, c = n.op("LSTM", x, n.weight(2, 16, 3), n.weight(2, 16, 4), n.weight(2, 32), outs=3, hidden_size=4,
                   direction="bidirectional")
    z, last = n.op("GRU", x, n.weight(1, 12, 3), n.weight(1, 12, 4), n.weight(1, 24), outs=2, hidden_size=4,
                   direction="reverse", linear_before_reset=1)
    for v in (y, h, c, z, last):
        n.output(v)
    return n.model(), [{"x": (5, 2, 3)}]


def upsampler():
    """Opset 13: transposed convolution, Resize with computed sizes, InstanceNormalization, PRelu."""
    n = Net("upsampler", 13)
    x = n.input("x", [1, 4, 5, 6])
    y = n.op("ConvTranspose", x, n.weight(4, 3, 3, 3), n.weight(3), strides=[2, 2], pads=[1, 1, 1, 1], output_padding=[1, 1])
    y = n.op("PRelu", n.op("InstanceNormalization", y, n.weight(3, base=1), n.weight(3)), n.weight(3, 1, 1))
    half = n.op("Slice", n.op("Shape", y), n.ints(2), n.ints(4))
    sizes = n.op("Concat", n.ints(1, 3), n.op("Add", half, n.ints(3)), axis=0)
    n.output(n.op("Resize", y, "", "", sizes, mode="linear", coordinate_transformation_mode="half_pixel"))
    n.output(n.op("Resize", y, "", n.const(np.array([1, 1, 2, 2], np.float32)), mode="nearest",
                  coordinate_transformation_mode="asymmetric", nearest_mode="floor"))
    return n.model(), [{"x": (1, 4, 5, 6)}]


def einsum():
    """Opset 12: contractions that the backend tests lack."""
    n = Net("einsum", 12)
    a, b, c = n.input("a", [2, 3, 4]), n.input("b", [4, 3, 5]), n.input("c", [5, 6])
    n.output(n.op("Einsum", a, b, equation="bij,jik->bk"))
    n.output(n.op("Einsum", a, b, c, equation="bij,jik,kl->bl"))
    n.output(n.op("Einsum", a, a, equation="...ij,...kj->...ik"))
    n.output(n.op("Einsum", a, b, equation="bij, jik -> ikbj"))
    return n.model(), [{"a": (2, 3, 4), "b": (4, 3, 5), "c": (5, 6)}]


def fused():
    """Opset 17 and com.microsoft: what onnxruntime's optimiser writes."""
    n = Net("fused", 17)
    x, y = n.input("x", [2, 3, 8]), n.input("y", [2, 3, 8])
    image, ids = n.input("image", [1, 2, 6, 5]), n.input("ids", [2, 3], I64)
    ids = n.op("Cast", ids, to=TensorProto.INT32)
    bias, scale, shift = n.weight(8), n.weight(8, base=1), n.weight(8)
    n.output(n.op("BiasGelu", x, bias, domain=MS))
    n.output(n.op("FastGelu", x, bias, domain=MS))
    n.output(n.op("FastGelu", x, domain=MS))
    n.output(n.op("Gelu", x, domain=MS))
    n.output(n.op("QuickGelu", x, alpha=1.5, domain=MS))
    for kind, params in (("Relu", None), ("Clip", [-0.5, 0.75]), ("LeakyRelu", [0.25]), ("HardSigmoid", [0.2, 0.5]),
                         ("Tanh", None), ("Sigmoid", None)):
        attrs = {"activation_params": params} if params else {}
        n.output(n.op("FusedConv", image, n.weight(3, 2, 3, 3), n.weight(3), pads=[1, 1, 1, 1], kernel_shape=[3, 3],
                      activation=kind, domain=MS, **attrs))
    n.output(n.op("FusedConv", image, n.weight(2, 2, 1, 1), n.weight(2), image, kernel_shape=[1, 1], activation="Relu",
                  domain=MS))
    rows = n.op("Reshape", x, n.ints(6, 8))
    n.output(n.op("FusedGemm", rows, n.weight(5, 8), n.weight(5), transB=1, activation="Relu", domain=MS))
    n.output(n.op("FusedGemm", rows, n.weight(5, 8), n.weight(5), transB=1, alpha=0.5, activation="LeakyRelu",
                  activation_alpha=0.125, domain=MS))
    n.output(n.op("FusedMatMul", x, y, transB=1, alpha=0.25, domain=MS))
    n.output(n.op("FusedMatMul", x, y, transA=1, domain=MS))
    four, other = n.op("Reshape", x, n.ints(2, 3, 2, 4)), n.op("Reshape", y, n.ints(2, 3, 2, 4))
    n.output(n.op("FusedMatMul", four, other, transBatchA=1, transBatchB=1, transB=1, domain=MS))
    for out in n.op("SkipLayerNormalization", x, y, scale, shift, bias, outs=4, epsilon=1e-3, domain=MS)[::3]:
        n.output(out)
    n.output(n.op("SkipLayerNormalization", x, y, scale, epsilon=1e-3, domain=MS))
    outs = n.op("SkipSimplifiedLayerNormalization", x, y, scale, bias, outs=4, epsilon=1e-3, domain=MS)
    n.nodes[-1].output[1] = n.nodes[-1].output[2] = ""
    n.output(outs[0]), n.output(outs[3])
    n.output(n.op("SimplifiedLayerNormalization", x, scale, axis=-1, epsilon=1e-3))
    words, places, kinds = n.weight(32, 8), n.weight(4, 8), n.weight(32, 8)
    mask = n.op("Cast", n.op("Greater", ids, n.const(np.array(9, I32))), to=TensorProto.INT32)
    normal, count, total = n.op("EmbedLayerNormalization", ids, ids, words, places, kinds, scale, shift, mask, outs=3,
                                epsilon=1e-3, domain=MS)
    n.output(normal), n.output(count, dtype=TensorProto.INT32), n.output(total)
    return n.model(), [{"x": (2, 3, 8), "y": (2, 3, 8), "image": (1, 2, 6, 5), "ids": (2, 3)}]


def quantized():
    """Opset 13 and com.microsoft: quantised operators. The sums of the convolutions pass 2^24."""
    n = Net("quantized", 13)
    x, image = n.input("x", [3, 8]), n.input("image", [1, 48, 5, 5])
    one = lambda value, dtype: n.const(np.array(value, dtype))
    scale, zero, wide = one(0.03, np.float32), one(120, U8), one(0.5, np.float32)
    q = n.op("QuantizeLinear", x, scale, zero)
    r = n.op("QuantizeLinear", x, one(0.02, np.float32), one(0, U8))
    second = (r, one(0.02, np.float32), one(0, U8))
    out = lambda value, dtype=TensorProto.UINT8: n.output(value, dtype=dtype)
    out(n.op("QLinearAdd", q, scale, zero, *second, one(0.05, np.float32), one(100, U8), domain=MS))
    out(n.op("QLinearMul", q, scale, zero, *second, one(0.05, np.float32), one(100, U8), domain=MS))
    out(n.op("QLinearSigmoid", q, scale, zero, one(0.004, np.float32), one(3, U8), domain=MS))
    out(n.op("QLinearLeakyRelu", q, scale, zero, one(0.04, np.float32), one(30, U8), alpha=0.125, domain=MS))
    out(n.op("QLinearSoftmax", q, scale, zero, one(1 / 256, np.float32), one(0, U8), axis=-1, opset=13, domain=MS))
    out(n.op("QLinearConcat", one(0.04, np.float32), one(90, U8), q, scale, zero, *second, axis=1, domain=MS))
    pixels = n.op("QuantizeLinear", image, scale, zero)
    out(n.op("QLinearGlobalAveragePool", pixels, scale, zero, one(0.01, np.float32), one(99, U8), domain=MS))
    out(n.op("QLinearAveragePool", pixels, scale, zero, one(0.0173, np.float32), one(99, U8), kernel_shape=[2, 2],
             strides=[2, 2], domain=MS))
    bytes_of = lambda dtype, low, high, *shape: n.const(n.rng.integers(low, high, shape).astype(dtype))
    w8, w3 = bytes_of(I8, -128, 128, 40, 48, 3, 3), bytes_of(U8, 0, 256, 3, 24, 3, 3)
    out(n.op("ConvInteger", pixels, w8, zero, pads=[1, 1, 1, 1]), TensorProto.INT32)
    out(n.op("ConvInteger", n.op("Slice", pixels, n.ints(0), n.ints(24), n.ints(1)), w3, zero, one(7, U8)),
        TensorProto.INT32)
    out(n.op("QLinearConv", pixels, scale, zero, w8, one(0.01, np.float32), one(0, I8), one(9.0, np.float32),
             one(128, U8), bytes_of(I32, -4000, 4000, 40)))
    b, columns = bytes_of(I8, -128, 128, 8, 5), n.const(np.linspace(0.01, 0.03, 5).astype(np.float32))
    n.output(n.op("MatMulIntegerToFloat", q, b, scale, columns, zero, one(3, I8), n.weight(5), domain=MS))
    n.output(n.op("DynamicQuantizeMatMul", x, b, columns, n.const(np.arange(5).astype(I8)), n.weight(5), domain=MS))
    out(n.op("QGemm", q, scale, zero, n.op("Transpose", b, perm=[1, 0]), wide, one(2, I8), bytes_of(I32, -99, 99, 5),
             one(20.0, np.float32), one(128, U8), transB=1, domain=MS))
    return n.model(), [{"x": (3, 8), "image": (1, 48, 5, 5)}]


def half():
    """Opset 17: f16 convolutions and products, of numbers whose sums are exact whatever the order and width."""
    n = Net("half", 17)
    narrow = lambda value: n.op("Cast", n.op("Round", value), to=F16)
    weight = lambda *shape: n.const((n.rng.integers(-4, 5, shape) / 4).astype(np.float16))
    image, x = narrow(n.input("image", [2, 5, 9, 7])), narrow(n.input("x", [2, 6, 10]))
    half = lambda value: n.output(value, dtype=F16)
    half(n.op("Relu", n.op("Conv", image, weight(20, 5, 3, 3), pads=[1, 1, 1, 1])))
    half(n.op("Conv", image, weight(10, 1, 3, 3), group=5, strides=[2, 2]))
    half(n.op("Conv", image, weight(7, 5, 1, 1)))
    half(n.op("MatMul", x, weight(10, 16)))
    half(n.op("MatMul", x, n.op("Transpose", x, perm=[0, 2, 1])))
    return n.model(), [{"image": (2, 5, 9, 7), "x": (2, 6, 10)}]


def bfloat_spec():
    """Opset 18: products and convolutions of bfloat16, of numbers whose sums are exact whatever the order and width."""
    n = Net("bfloat_spec", 18)
    x, image = n.input("x", ["t", 12]), n.input("image", [1, 4, 6, 7])
    whole = lambda *shape: n.const(n.rng.integers(-2, 3, shape).astype(ml_dtypes.bfloat16))
    sign = lambda v: n.op("Cast", n.op("Sign", v), to=TensorProto.BFLOAT16)
    out = lambda v: n.output(n.op("Cast", v, to=F32))
    rows, pixels = sign(x), sign(image)
    y = n.op("MatMul", rows, whole(12, 9))
    out(y)
    out(n.op("Relu", n.op("Gemm", rows, whole(5, 12), whole(5), transB=1)))
    z = n.op("Conv", pixels, whole(6, 4, 3, 3), whole(6), kernel_shape=[3, 3], pads=[1, 1, 1, 1])
    out(z)
    out(n.op("MaxPool", n.op("Relu", z), kernel_shape=[2, 2], strides=[2, 2]))
    out(n.op("Conv", pixels, whole(4, 1, 3, 3), kernel_shape=[3, 3], group=4, strides=[2, 2]))
    wide = [n.const(n.rng.integers(-2, 3, shape).astype(np.float32)) for shape in ((3, 4, 1, 1), (3,))]
    out(n.op("Conv", pixels, *wide, kernel_shape=[1, 1]))  # as torch leaves it where it folds a normalisation
    out(n.op("Add", y, n.const(np.array(300.5, ml_dtypes.bfloat16))))  # rounded to a multiple of 2
    return n.model(), [{"x": (t, 12), "image": (1, 4, 6, 7)} for t in (5, 33)]


def written_rows():
    """Opset 17: rows of a table that are written from a computed start to a computed end, as Paddle writes set_value."""
    n = Net("written_rows", 17)
    x, at, row = n.input("x", [2, 9, 4]), n.input("at", [3], I64), n.input("row", [2, 4])
    zero, one = n.ints(0), n.ints(1)
    start, stop = (n.op("Mod", n.op(kind, at, keepdims=1), n.ints(12)) for kind in ("ReduceMin", "ReduceMax"))
    length = n.op("Gather", n.op("Shape", x), one)
    end, begin = n.op("Min", length, stop), n.op("Min", length, start)
    shape = n.op("Shape", n.op("Slice", x, begin, end, one, one))
    new = n.op("Expand", n.op("Unsqueeze", row, one), shape)
    places = n.op("Range", n.op("Squeeze", begin), n.op("Squeeze", end), n.const(np.int64(1)))
    n.output(places, dtype=I64)
    ends = n.op("Concat", n.op("Slice", shape, zero, one, zero), one, n.op("Slice", shape, n.ints(2), n.ints(3), zero), axis=0)
    n.output(n.op("ScatterElements", x, n.op("Tile", n.op("Reshape", places, n.ints(1, -1, 1)), ends), new, axis=1))
    sets = [np.array(v, np.int64) for v in ([3, 5, 4], [2, 11, 7], [6, 6, 6], [0, 1, 0])]
    return n.model(), [{"x": (2, 9, 4), "at": v, "row": (2, 4)} for v in sets]


def unsorted():
    """Opset 13: nodes in the reverse of their order, as some converters write them; branches use them."""
    n = Net("unsorted", 13)
    x = n.input("x", [2, 3])
    a = n.op("Relu", x)
    b = n.op("Exp", a)
    flag = n.const(np.array(True))
    bodies = []
    for sign in ("Add", "Sub"):
        nodes = [helper.make_node(sign, [a, b], ["mid" + sign]), helper.make_node("Neg", ["mid" + sign], ["out" + sign])]
        bodies.append(helper.make_graph(nodes, sign, [], [helper.make_tensor_value_info("out" + sign, F32, [2, 3])]))
    n.output(n.op("Mul", n.op("If", flag, then_branch=bodies[0], else_branch=bodies[1]), b))
    n.nodes.reverse()
    return n.model(), [{"x": (2, 3)}]


def ties():
    """Opset 13: quotients that lie at a step, or one float from it: a reciprocal would end on the other side."""
    n = Net("ties", 13)
    number = lambda value: n.const(np.array(value, np.float32))
    x = n.input("x", [32, 48])
    whole = n.op("Round", n.op("Mul", x, number(40)))
    scale, half = number(0.0123), n.op("Add", whole, number(0.5))
    middle = n.op("Mul", half, scale)
    n.output(n.op("QuantizeLinear", middle, scale, n.const(np.array(3, I8))), dtype=TensorProto.INT8)
    n.output(n.op("Floor", n.op("Div", n.op("Mul", whole, number(41)), number(41))))
    quotient = n.op("Div", n.op("Mul", whole, number(0.7)), number(0.7))
    n.output(n.op("Cast", quotient, to=TensorProto.INT32), dtype=TensorProto.INT32)
    top = n.op("Clip", n.op("Div", middle, number(0.0123)), number(-90), number(90))
    n.output(n.op("Round", n.op("Reshape", top, n.ints(48, 32))))
    for k in range(0, 32, 4):
        y, step, zero = n.op("DynamicQuantizeLinear", n.op("Slice", x, n.ints(k), n.ints(k + 4)), outs=3)
        n.output(y, dtype=TensorProto.UINT8)
        n.output(n.op("Cast", n.op("Mul", step, number(2 ** 30)), to=TensorProto.INT32), dtype=TensorProto.INT32)  # all its bits
    return n.model(), [{"x": (32, 48)}]


def functions():
    """Opset 18: functions of the model, nested, with attributes by reference and operands left out."""
    model = onnx.parser.parse_model("""
    <ir_version: 10, opset_import: ["" : 18, "net" : 1]>
    agraph (float[n, 8] x, float[8, 8] w, float[8] b) => (float[n, 8] y, float[n, 8] z, float[n, 1] mean, float[n,8] u, float[n,8] v, float[n,8] p) {
      h = net.Block <slope = 0.25> (x, w, b)
      y = net.Block (h, w)
      z = net.Leaky <slope = 0.5> (y)
      mean = net.Mean (z)
      u = net.Power <k = 3> (z)
      v = net.Power (z)
      p = net.Block (x, w)
    }
    <domain: "net", opset_import: ["" : 18, "net" : 1]>
    Block <slope: float = 0.125> (x, w, b) => (h) {
      y = net.Linear (x, w, b)
      h = net.Leaky <slope: float = @slope> (y)
    }
    <domain: "net", opset_import: ["" : 13]>
    Linear (x, w, b) => (y) {
      y = Gemm <transB = 1> (x, w, b)
    }
    <domain: "net", opset_import: ["" : 18]>
    Leaky <slope> (x) => (y) {
      s = Constant <value_float: float = @slope> ()
      t = CastLike (s, x)
      c = Constant <value_float = 0.0> ()
      zero = CastLike (c, x)
      neg = Less (x, zero)
      low = Mul (x, t)
      y = Where (neg, low, x)
    }
    <domain: "net", opset_import: ["" : 18]>
    Mean (x) => (y) {
      a = Constant <value_ints = [1]> ()
      y = ReduceMean <keepdims = 1> (x, a)
    }
    <domain: "net", opset_import: ["" : 18]>
    Power <k: int = 2> (x) => (y) {
      k = Constant <value_int: int = @k> ()
      two = Constant <value_int = 2> ()
      big = Greater (k, two)
      y = If (big) <
         then_branch = then () => (t) { e = Constant <value_int: int = @k> () 
           f = CastLike (e, x) 
           t = Pow (x, f) },
         else_branch = other () => (t) { t = Mul (x, x) } >
    }
    """)
    return model, [{"x": (n, 8), "w": (8, 8), "b": (8,)} for n in (1, 5)]


def attention():
    """Opset 17 and com.microsoft: the attention that onnxruntime's optimiser and model builder write."""
    n = Net("attention", 17)
    x, y = n.input("x", [2, 3, 16]), n.input("y", [2, 5, 16])
    ids = n.input("ids", [2, 3], I64)
    weight, bias = n.weight(16, 48), n.weight(48)
    ints = lambda *values: n.const(np.array(values, I32))
    keep = n.op("Cast", n.op("Greater", ids, n.const(np.int64(9))), to=TensorProto.INT32)
    heads = lambda value, length: n.op("Transpose", n.op("Reshape", value, n.ints(2, length, 2, 8)), perm=[0, 2, 1, 3])
    past, old = heads(y, 5), n.op("Unsqueeze", heads(y, 5), n.ints(0))
    attend = lambda *ins, outs=1, **attrs: n.op("Attention", x, weight, bias, *ins, outs=outs, num_heads=2, domain=MS, **attrs)
    n.output(attend(keep))
    n.output(attend(ints(2, 3), unidirectional=1, mask_filter_value=-50.0, scale=0.25))
    n.output(attend(ints(3, 3, 0, 1)))
    n.output(attend("", "", n.weight(1, 2, 3, 3)))
    for out in attend("", n.op("Concat", old, old, axis=0), outs=2, unidirectional=1):
        n.output(out)
    n.output(n.op("Attention", x, n.weight(16, 40), n.weight(40), num_heads=2, qkv_hidden_sizes=[16, 16, 8], domain=MS))
    many = lambda *ins, outs=1, **attrs: n.op("MultiHeadAttention", *ins, outs=outs, num_heads=2, domain=MS, **attrs)
    n.output(many(x, y, y, bias, ints(4, 5)))
    n.output(many(x, past, past))
    n.output(many(x, x, x, "", n.op("Expand", n.op("Unsqueeze", keep, n.ints(1)), n.ints(2, 3, 3))))
    for out in many(x, x, x, bias, "", n.weight(2, 1, 3, 8), past, past, outs=3, unidirectional=1, scale=0.5):
        n.output(out)
    cosines, sines = n.weight(32, 4), n.weight(32, 4)
    n.output(n.op("RotaryEmbedding", x, ids, cosines, sines, domain=MS))
    n.output(n.op("RotaryEmbedding", heads(y, 5), n.ints(3), cosines, sines, interleaved=1, domain=MS))
    n.output(n.op("RotaryEmbedding", x, ids, n.weight(32, 2), n.weight(32, 2), num_heads=2, rotary_embedding_dim=4, domain=MS))
    scale, zero = n.const(np.float32(0.03)), n.const(np.array(120, U8))
    eight = n.const(n.rng.integers(-64, 64, (16, 48)).astype(I8))
    scales = n.const(np.linspace(0.002, 0.01, 48).astype(np.float32))
    n.output(n.op("QAttention", n.op("QuantizeLinear", x, scale, zero), eight, bias, scale, scales, keep, zero,
                  n.const(np.arange(48).astype(I8)), num_heads=2, domain=MS))
    return n.model(), [{"x": (2, 3, 16), "y": (2, 5, 16), "ids": (2, 3)}]


def group_query():
    """Opset 17 and com.microsoft: GroupQueryAttention, whose sequences are of different lengths."""
    n = Net("group_query", 17)
    q, k, v = n.input("q", [2, 1, 64]), n.input("k", [2, 1, 32]), n.input("v", [2, 1, 32])
    cache = n.input("past_k", [2, 2, 6, 16]), n.input("past_v", [2, 2, 6, 16])
    first, packed = n.input("first", [2, 3, 64]), n.input("packed", [2, 3, 128])
    tables = n.weight(16, 8), n.weight(16, 8)
    total = lambda value: n.const(np.array(value, I32))
    lens, full = n.const(np.array([4, 2], I32)), n.const(np.array([2, 2], I32))
    query = lambda *ins, **attrs: n.op("GroupQueryAttention", *ins, outs=3, num_heads=4, kv_num_heads=2, domain=MS, **attrs)
    n.output(query(q, k, v, *cache, lens, total(5))[0])
    n.output(query(q, k, v, *cache, lens, total(5), *tables, do_rotary=1, local_window_size=2, softcap=1.5)[0])
    n.output(query(q, k, v, *cache, lens, total(5), *tables, n.const(np.array([[7], [2]])), do_rotary=1,
                   rotary_interleaved=1, smooth_softmax=1)[0])
    n.output(query(q, k, v, *cache, lens, total(5), "", "", "", n.weight(2, 4, 1, 5), n.weight(4), scale=0.5)[0])
    for out in query(q, k, v, *cache, n.const(np.array([6, 6], I32)), total(7)):
        n.output(out)
    for out in query(packed, "", "", "", "", full, total(3), *tables, do_rotary=1):
        n.output(out)
    n.output(query(packed, "", "", "", "", full, total(3), *tables, n.const(np.full((2, 3), 4)), do_rotary=1)[0])
    short = n.op("Slice", first, n.ints(0), n.ints(32), n.ints(2))
    n.output(query(first, short, short, "", "", full, total(3), causal=0)[0])
    return n.model(), [{"q": (2, 1, 64), "k": (2, 1, 32), "v": (2, 1, 32), "past_k": (2, 2, 6, 16), "past_v": (2, 2, 6, 16),
                        "first": (2, 3, 64), "packed": (2, 3, 128)}]


def decoder():
    """Opset 17: one layer of a decoder as exporters write it, past and new lengths variable, the mask computed from them."""
    n = Net("decoder", 17)
    size, heads, shared, d = 32, 4, 2, 8
    ids, mask = n.input("ids", ["batch", "seq"], I64), n.input("mask", ["batch", "past + seq"], I64)
    pasts = [n.input(name, ["batch", shared, "past", d]) for name in ("past_key", "past_value")]
    one = lambda value: n.const(np.array(value, np.int64))
    dim = lambda value, axis: n.op("Gather", n.op("Shape", value), one(axis))
    vector = lambda value: n.op("Unsqueeze", value, n.ints(0))
    batch, seq, past = dim(ids, 0), dim(ids, 1), dim(pasts[0], 2)
    total = n.op("Add", past, seq)
    x = n.op("Gather", n.weight(32, size, scale=3), ids)
    rows, columns = n.op("Range", past, total, one(1)), n.op("Range", one(0), total, one(1))
    low = n.op("ConstantOfShape", n.op("Concat", vector(seq), vector(total), axis=0),
               value=helper.make_tensor("low", F32, [1], [np.finfo(np.float32).min]))
    causal = n.op("Mul", low, n.op("Cast", n.op("Greater", columns, n.op("Reshape", rows, n.ints(-1, 1))), to=F32))

    def expand(value, *dims):
        """torch's expand: -1 keeps a dim."""
        shape = n.op("Concat", *dims, axis=0)
        ones = n.op("ConstantOfShape", n.ints(len(dims)), value=helper.make_tensor("one", I64, [1], [1]))
        return n.op("Expand", value, n.op("Where", n.op("Equal", shape, n.op("Mul", ones, one(-1))), ones, shape))

    causal = expand(n.op("Unsqueeze", causal, n.ints(0, 1)), vector(batch), n.ints(1), vector(seq), vector(total))
    padding = n.op("Slice", n.op("Unsqueeze", mask, n.ints(1, 2)), n.ints(0), vector(total), n.ints(3))
    padding = n.op("Expand", n.op("Equal", n.op("Cast", padding, to=F32), n.const(np.float32(0))), n.op("Shape", causal))
    causal = n.op("Where", padding, n.const(np.finfo(np.float32).min), causal)
    angles = n.op("MatMul", n.const((100.0 ** (-np.arange(0, d, 2) / d)).astype(np.float32).reshape(1, -1, 1)),
                  n.op("Cast", n.op("Unsqueeze", rows, n.ints(0, 1)), to=F32))
    angles = n.op("Transpose", angles, perm=[0, 2, 1])
    angles = n.op("Unsqueeze", n.op("Concat", angles, angles, axis=-1), n.ints(1))
    cosines, sines = n.op("Cos", angles), n.op("Sin", angles)

    def split(value, count):
        shape = n.op("Concat", vector(batch), vector(seq), n.ints(count), n.ints(d), axis=0)
        return n.op("Transpose", n.op("Reshape", value, shape), perm=[0, 2, 1, 3])

    def rotate(value):
        a = n.op("Slice", value, n.ints(0), n.ints(d // 2), n.ints(3))
        b = n.op("Slice", value, n.ints(d // 2), n.ints(2 ** 63 - 1), n.ints(3))
        turned = n.op("Concat", n.op("Neg", b), a, axis=-1)
        return n.op("Add", n.op("Mul", value, cosines), n.op("Mul", turned, sines))

    def repeat(value):
        wide = expand(n.op("Unsqueeze", value, n.ints(2)), vector(dim(value, 0)), n.ints(shared), n.ints(heads // shared),
                      vector(dim(value, 2)), n.ints(d))
        return n.op("Reshape", wide, n.op("Concat", vector(batch), n.ints(heads), vector(dim(value, 2)), n.ints(d), axis=0))

    q = rotate(split(n.op("MatMul", x, n.weight(size, heads * d)), heads))
    k = rotate(split(n.op("MatMul", x, n.weight(size, shared * d)), shared))
    v = split(n.op("MatMul", x, n.weight(size, shared * d)), shared)
    k, v = n.op("Concat", pasts[0], k, axis=2), n.op("Concat", pasts[1], v, axis=2)
    scores = n.op("Div", n.op("MatMul", q, n.op("Transpose", repeat(k), perm=[0, 1, 3, 2])), n.const(np.float32(np.sqrt(d))))
    scores = n.op("Softmax", n.op("Add", scores, causal), axis=-1)
    y = n.op("Transpose", n.op("MatMul", scores, repeat(v)), perm=[0, 2, 1, 3])
    y = n.op("Reshape", y, n.op("Concat", vector(batch), vector(seq), n.ints(size), axis=0))
    n.output(n.op("Add", x, n.op("MatMul", y, n.weight(size, size)))), n.output(k), n.output(v)
    # The same cache with lengths that the mask says, as onnxruntime's model builder writes it.
    count = n.op("ReduceSum", n.op("Cast", n.op("GreaterOrEqual", mask, one(0)), to=I64), n.ints(1), keepdims=0)
    ends = n.op("Cast", n.op("Sub", count, n.ints(1)), to=TensorProto.INT32)
    whole = n.op("Cast", dim(mask, 1), to=TensorProto.INT32)
    double = [n.op("Concat", p, p, axis=-1) for p in pasts]
    outs = n.op("GroupQueryAttention", n.op("MatMul", x, n.weight(size, 2 * (heads + 2 * shared) * d)), "", "", *double, ends,
                whole, n.weight(64, d), n.weight(64, d), outs=3, num_heads=heads, kv_num_heads=shared, do_rotary=1, domain=MS)
    for out in outs:
        n.output(out)
    sizes = lambda b, s, p: {"ids": (b, s), "mask": (b, p + s), "past_key": (b, shared, p, d), "past_value": (b, shared, p, d)}
    return n.model(), [sizes(2, 1, 5), sizes(1, 3, 2)]


def few_bits():
    """Opset 17 and com.microsoft: weights of 2, 4 and 8 bits with scales for blocks of them."""
    n = Net("few_bits", 17)
    x, ids = n.input("x", [2, 3, 40]), n.input("ids", [2, 3], I64)

    def pack(numbers, bits):
        per = 8 // bits
        numbers = np.pad(numbers, [(0, 0)] * (numbers.ndim - 1) + [(0, -numbers.shape[-1] % per)])
        numbers = numbers.reshape(*numbers.shape[:-1], -1, per).astype(np.uint32)
        return (numbers << (np.arange(per) * bits)).sum(-1).astype(U8)

    for bits, zero in ((4, None), (4, "packed"), (4, "float"), (8, "packed"), (8, None), (2, "packed")):
        blocks = 3
        b = n.const(pack(n.rng.integers(0, 1 << bits, (7, blocks, 16)), bits))
        scales = n.const((0.01 + 0.1 * n.rng.random((7, blocks))).astype(np.float32))
        zeros = n.rng.integers(0, 1 << bits, (7, blocks))
        extra = {None: [], "packed": [n.const(pack(zeros, bits))], "float": [n.const(zeros.astype(np.float32))]}[zero]
        n.output(n.op("MatMulNBits", x, b, scales, *extra, K=40, N=7, bits=bits, block_size=16, domain=MS))
    n.output(n.op("MatMulNBits", x, b, scales, "", "", n.weight(7), K=40, N=7, bits=2, block_size=16, domain=MS))
    for bits in (4, 8):
        rows = n.const(pack(n.rng.integers(0, 1 << bits, (32, 48)), bits))
        scales = n.const((0.01 + 0.1 * n.rng.random((32, 3))).astype(np.float32))
        zeros = n.const(pack(n.rng.integers(0, 1 << bits, (32, 3)), bits))
        attrs = {"bits": bits, "block_size": 16, "quantize_axis": 1, "gather_axis": 0, "domain": MS}
        n.output(n.op("GatherBlockQuantized", rows, ids, scales, **attrs))
        n.output(n.op("GatherBlockQuantized", rows, ids, scales, zeros, **attrs))
    return n.model(), [{"x": (2, 3, 40), "ids": (2, 3)}]


def nibble_rows():
    """Opset 21 and com.microsoft: rows of int4 and uint4 that are gathered, with scales for blocks of them."""
    n = Net("nibble_rows", 21)
    ids = n.input("ids", ["b", 3], I64)

    def nibbles(dtype, rows, columns):
        n.count += 1
        numbers = n.rng.integers(0, 16, rows * columns)
        n.inits.append(helper.make_tensor(f"w_{n.count}", dtype, (rows, columns), bytes((numbers[0::2] | numbers[1::2] << 4).astype(U8)), raw=True))
        return n.inits[-1].name

    for dtype in (TensorProto.INT4, TensorProto.UINT4):
        for columns, blocks in ((48, 3), (40, 3)):  # the last block is whole, or has 8
            rows, zeros = nibbles(dtype, 32, columns), nibbles(dtype, 32, blocks)
            scales = n.const((0.01 + 0.1 * n.rng.random((32, blocks))).astype(np.float32))
            attrs = {"block_size": 16, "quantize_axis": 1, "gather_axis": 0, "domain": MS}
            n.output(n.op("GatherBlockQuantized", rows, ids, scales, **attrs))
            n.output(n.op("GatherBlockQuantized", rows, ids, scales, zeros, **attrs))
    return n.model(), [{"ids": (2, 3)}, {"ids": (1, 3)}]


def quantized_more():
    """Opset 17 and com.microsoft: quantised operators with channels last, of 16 bits, and a recurrent one."""
    n = Net("quantized_more", 17)
    x, image, series = n.input("x", [3, 8]), n.input("image", [1, 6, 5, 4]), n.input("series", [4, 1, 5])
    one = lambda value, dtype: n.const(np.array(value, dtype))
    scale, zero = one(0.03, np.float32), one(120, U8)
    out = lambda value, dtype=TensorProto.UINT8: n.output(value, dtype=dtype)
    pixels = n.op("QuantizeLinear", image, scale, zero)
    out(n.op("NhwcMaxPool", pixels, kernel_shape=[3, 2], strides=[2, 1], pads=[1, 0, 1, 1], domain=MS))
    w = n.const(n.rng.integers(-64, 64, (8, 2, 3, 3)).astype(I8))
    out(n.op("QLinearConv", pixels, scale, zero, w, one(0.01, np.float32), one(0, I8), one(0.31, np.float32), one(128, U8),
             n.const(n.rng.integers(-999, 999, 8).astype(I32)), channels_last=1, group=2, pads=[1, 1, 1, 1], domain=MS))
    for kind, attrs in (("QLinearAveragePool", {"kernel_shape": [2, 2]}), ("QLinearGlobalAveragePool", {})):
        out(n.op(kind, pixels, scale, zero, one(0.0173, np.float32), one(99, U8), channels_last=1, domain=MS, **attrs))
    wide = n.op("QuantizeLinear", x, one(0.0003, np.float32), one(30000, np.uint16), domain=MS)
    out(wide, TensorProto.UINT16)
    n.output(n.op("DequantizeLinear", wide, one(0.0003, np.float32), one(30000, np.uint16), domain=MS))
    other = n.op("QuantizeLinear", x, one(0.02, np.float32), one(7, U8))
    first = n.op("QuantizeLinear", x, scale, zero)
    out(n.op("QLinearWhere", n.op("Greater", x, one(0.2, np.float32)), first, scale, zero, other, one(0.02, np.float32),
             one(7, U8), one(0.0271, np.float32), one(50, U8), domain=MS))
    eight = lambda *shape: n.const(n.rng.integers(-64, 64, shape).astype(I8))
    scales = lambda *shape: n.const((0.004 + 0.004 * n.rng.random(shape)).astype(np.float32))
    zeros = lambda *shape: n.const(np.zeros(shape, I8))
    for direction, d, columns in (("bidirectional", 2, (2, 16)), ("reverse", 1, (1,))):
        for result in n.op("DynamicQuantizeLSTM", series, eight(d, 5, 16), eight(d, 4, 16), n.weight(d, 32), "", "", "", "",
                           scales(*columns), zeros(*columns), scales(*columns), zeros(*columns), outs=3, hidden_size=4,
                           direction=direction, domain=MS):
            n.output(result)
    return n.model(), [{"x": (3, 8), "image": (1, 6, 5, 4), "series": (4, 1, 5)}]


def quantized_ties():
    """Opset 17 and com.microsoft: scales that are powers of two, so that many results lie on a tie, and odd zero points."""
    n = Net("quantized_ties", 17)
    x, y, image = n.input("x", ["n", 24]), n.input("y", ["n", 24]), n.input("image", [1, 4, 6, "w"])
    one = lambda value, dtype: n.const(np.array(value, dtype))
    power = lambda exponent: one(2.0**exponent, np.float32)
    for dtype, kind, zeros in ((U8, TensorProto.UINT8, (7, 101)), (I8, TensorProto.INT8, (-3, 37))):
        out = lambda value: n.output(value, dtype=kind)
        zero, other = (one(value, dtype) for value in zeros)
        p, q, pixels = (n.op("QuantizeLinear", value, power(-4), zero) for value in (x, y, image))
        for op in ("QLinearAdd", "QLinearMul"):
            out(n.op(op, p, power(-3), zero, q, power(-4), zero, power(-1), other, domain=MS))
        for attrs in ({"strides": [2, 2]}, {"channels_last": 1}):
            out(n.op("QLinearAveragePool", pixels, power(-3), zero, power(-2), other, kernel_shape=[2, 2], domain=MS, **attrs))
        out(n.op("QLinearGlobalAveragePool", pixels, power(-3), zero, power(-6), other, domain=MS))
        out(n.op("QLinearLeakyRelu", p, power(-3), zero, power(-2), other, alpha=0.25, domain=MS))
        out(n.op("QLinearConcat", power(-2), other, p, power(-3), zero, q, power(-4), zero, axis=1, domain=MS))
        w = n.const(n.rng.integers(-64, 64, (24, 16)).astype(I8))
        out(n.op("QLinearMatMul", p, power(-3), zero, w, power(-5), one(0, I8), power(0), other))
        real = n.op("MatMul", n.op("DequantizeLinear", p, power(-3), zero), n.op("DequantizeLinear", w, power(-5), one(0, I8)))
        out(n.op("QuantizeLinear", real, power(0), other))
    return n.model(), [{"x": (5, 24), "y": (5, 24), "image": (1, 4, 6, 8)}, {"x": (3, 24), "y": (3, 24), "image": (1, 4, 6, 5)}]


def blocks():
    """Opset 21: scales for blocks of elements, and weights of four bits."""
    n = Net("blocks", 21)
    x = n.input("x", [3, 20])
    scales = lambda *shape: n.const((0.01 + 0.05 * n.rng.random(shape)).astype(np.float32))

    def nibbles(dtype, *shape):
        n.count += 1
        low = -8 if dtype == TensorProto.INT4 else 0
        numbers = n.rng.integers(low, low + 16, int(np.prod(shape))) & 15
        numbers = np.append(numbers, [0] * (len(numbers) % 2)).astype(U8)
        n.inits.append(helper.make_tensor(f"w_{n.count}", dtype, shape, bytes(numbers[0::2] | numbers[1::2] << 4), raw=True))
        return n.inits[-1].name

    for axis, shape in ((1, (3, 5)), (0, (2, 20))):
        zeros = n.const(n.rng.integers(100, 140, shape).astype(U8))
        steps = scales(*shape)
        q = n.op("QuantizeLinear", x, steps, zeros, axis=axis, block_size=4 if axis else 2)
        n.output(q, dtype=TensorProto.UINT8)
        n.output(n.op("DequantizeLinear", q, steps, zeros, axis=axis, block_size=4 if axis else 2))
    for dtype in (TensorProto.INT4, TensorProto.UINT4):
        for rows in ((20, 3), (20, 5)):
            w = n.op("DequantizeLinear", nibbles(dtype, *rows), scales(2, rows[1]), nibbles(dtype, 2, rows[1]), axis=0, block_size=16)
            n.output(n.op("Neg", w))
    n.output(n.op("DequantizeLinear", nibbles(TensorProto.INT4, 20, 3), scales(3), axis=1))
    return n.model(), [{"x": (3, 20)}]


def packed_spec():
    """Opset 21: weights of four bits that stay packed, behind products and as rows of a table."""
    n = Net("packed_spec", 21)
    x, ids = n.input("x", [3, 64]), n.input("ids", [2, 3], I64)

    def weight(dtype, shape, blocks, axis):
        low = -8 if dtype == TensorProto.INT4 else 0
        names = []
        for part in (shape, blocks):
            n.count += 1
            numbers = (n.rng.integers(low, low + 16, int(np.prod(part))) & 15).astype(U8)
            n.inits.append(helper.make_tensor(f"w_{n.count}", dtype, part, bytes(numbers[0::2] | numbers[1::2] << 4), raw=True))
            names.append(n.inits[-1].name)
        scales = n.const((0.01 + 0.05 * n.rng.random(blocks)).astype(np.float32))
        return n.op("DequantizeLinear", names[0], scales, names[1], axis=axis, block_size=16)

    for dtype in (TensorProto.INT4, TensorProto.UINT4):
        turned = n.op("Transpose", weight(dtype, (80, 64), (80, 4), 1), perm=[1, 0])
        n.output(n.op("MatMul", x, turned))
        n.output(n.op("MatMul", x, weight(dtype, (64, 70), (4, 70), 0)))
        n.output(n.op("Gather", weight(dtype, (64, 80), (64, 5), 1), ids, axis=0))
    return n.model(), [{"x": (3, 64), "ids": (2, 3)}]


def newer():
    """Opset 24: operators that the installed backend tests are too old for."""
    n = Net("newer", 24)
    theta, space = n.input("theta", [2, 2, 3]), n.input("space", [2, 3, 4])
    blocks, cache, new = n.input("blocks", [2, 12, 12]), n.input("cache", [2, 3, 6, 4]), n.input("new", [2, 3, 2, 4])
    for align in (0, 1):
        n.output(n.op("AffineGrid", theta, n.ints(2, 1, 4, 5), align_corners=align))
        n.output(n.op("AffineGrid", space, n.ints(2, 1, 2, 4, 3), align_corners=align))
    n.output(n.op("Col2Im", blocks, n.ints(5, 4), n.ints(2, 2)))
    n.output(n.op("Col2Im", blocks, n.ints(6, 7), n.ints(2, 2), strides=[2, 1], pads=[1, 0, 0, 0], dilations=[1, 3]))
    n.output(n.op("TensorScatter", cache, new))
    n.output(n.op("TensorScatter", cache, new, n.ints(4, 1)))
    n.output(n.op("TensorScatter", cache, new, n.ints(5, 3), mode="circular"))
    gift = n.op("Optional", theta)
    n.output(n.op("OptionalHasElement", gift), dtype=TensorProto.BOOL)
    n.output(n.op("OptionalHasElement"), dtype=TensorProto.BOOL)
    n.output(n.op("Neg", n.op("OptionalGetElement", gift)))
    return n.model(), [{"theta": (2, 2, 3), "space": (2, 3, 4), "blocks": (2, 12, 12), "cache": (2, 3, 6, 4),
                        "new": (2, 3, 2, 4)}]


def newest_spec():
    """Opset 28: what onnxruntime lacks or gets wrong (Col2Im of one dim with dilations); expected by ONNX's own reference."""
    n = Net("newest_spec", 28)
    a, b, blocks = n.input("a", [2, 5]), n.input("b", [2, 5]), n.input("blocks", [1, 6, 4])
    n.output(n.op("SwiGLU", a, b))
    n.output(n.op("SwiGLU", a, b, alpha=0.5))
    n.output(n.op("Col2Im", blocks, n.ints(6), n.ints(2), dilations=[2]))
    return n.model(), [{"a": (2, 5), "b": (2, 5), "blocks": (1, 6, 4)}]


NARROW = [TensorProto.FLOAT8E4M3FN, TensorProto.FLOAT8E4M3FNUZ, TensorProto.FLOAT8E5M2, TensorProto.FLOAT8E5M2FNUZ]
TINY = [TensorProto.FLOAT4E2M1, TensorProto.FLOAT6E2M3, TensorProto.FLOAT6E3M2]
FEW = [TensorProto.INT4, TensorProto.UINT4, TensorProto.INT2, TensorProto.UINT2]


def narrow_edges():
    """What is representable in one of the types, halfway between neighbours, beside that, and past the ends."""
    numbers = {0.0, 1e-30, 3.4e38, np.inf, np.nan}
    for name, bits in (("float8_e4m3fn", 8), ("float8_e4m3fnuz", 8), ("float8_e5m2", 8), ("float8_e5m2fnuz", 8),
                       ("float4_e2m1fn", 4), ("float6_e2m3fn", 6), ("float6_e3m2fn", 6)):
        have = np.arange(1 << (bits - 1), dtype=np.uint8).view(getattr(ml_dtypes, name)).astype(np.float64)
        have = [*have[np.isfinite(have)]]
        have.append(2 * have[-1] - have[-2])
        for low, high in list(zip(have, have[1:]))[:: 1 if bits < 8 else 5] + [(have[-2], have[-1]), (have[-3], have[-2])]:
            middle = (low + high) / 2
            numbers |= {low, middle, float(np.nextafter(np.float32(middle), np.float32(0))),
                        float(np.nextafter(np.float32(middle), np.float32(np.inf)))}
    numbers = sorted(v for v in numbers if not np.isnan(v))
    return np.array([*(-v for v in numbers[::-1]), *numbers, np.nan], np.float32)


def narrow_spec():
    """Opset 28: conversions between the types of few bits and others, in both directions; expected by ONNX's own reference."""
    n = Net("narrow_spec", 28)
    x, wide, half = n.input("x", ["n"]), n.input("wide", ["n"], TensorProto.DOUBLE), n.input("half", [40], F16)
    count, power = n.input("count", [9], TensorProto.INT32), n.input("power", [12])
    for dtype in NARROW + TINY:
        for saturate in (0, 1) if dtype in NARROW else (1,):
            more = {} if saturate else {"saturate": 0}
            n.output(n.op("Cast", x, to=dtype, **more), dtype=dtype)
            n.output(n.op("Cast", wide, to=dtype, **more), dtype=dtype)
        n.output(n.op("Cast", n.op("Transpose", n.op("Cast", half, to=dtype)), to=F16), dtype=F16)
        n.output(n.op("Cast", count, to=dtype), dtype=dtype)
    for dtype in FEW:
        few = n.op("Cast", count, to=dtype)
        n.output(few, dtype=dtype)
        n.output(n.op("Cast", n.op("Reshape", few, n.ints(3, 3)), to=F32))
    for mode in ("up", "down", "nearest"):
        exponent = n.op("Cast", power, to=TensorProto.FLOAT8E8M0, round_mode=mode)
        n.output(exponent, dtype=TensorProto.FLOAT8E8M0)
        n.output(n.op("Cast", exponent, to=F32))
    wide_values = narrow_edges()
    return n.model(), [{"x": wide_values, "wide": wide_values.astype(np.float64) * (1 + 2.0**-20),
                        "half": np.linspace(-9, 9, 40).astype(np.float16),
                        "count": np.array([0, 1, -1, 7, 8, -9, 240, -300, 70000], np.int32),
                        "power": np.array([1, 1.1, 1.4999, 1.5, 1.75, 2, 3, 3e38, 1.2e-38, 5.9e20, 448, np.nan], np.float32)}]


def narrow_codes_spec():
    """Opset 28: every code of every type as a number; what quantisation makes of them. Expected by ONNX's own reference."""
    n = Net("narrow_codes_spec", 28)
    x = n.input("x", [4, 6])
    scale, steps = n.const(np.float32(0.37)), n.const((0.2 + n.rng.random(4)).astype(np.float32))
    sets = {"x": (4, 6)}
    for i, dtype in enumerate(NARROW + TINY + [TensorProto.FLOAT8E8M0]):
        kind = helper.tensor_dtype_to_np_dtype(dtype)
        codes = np.arange(256 if dtype in NARROW or i == 7 else 16 if dtype == TINY[0] else 64, dtype=np.uint8).view(kind)
        name = n.input(f"codes_{i}", [len(codes)], dtype)
        sets[name] = codes
        n.output(n.op("Cast", name, to=F32))
        n.output(n.op("Concat", name, n.op("Slice", name, n.ints(3), n.ints(9)), axis=0), dtype=dtype)
        if dtype in NARROW + TINY[:1]:
            q = n.op("QuantizeLinear", x, steps, axis=0, output_dtype=dtype)
            n.output(q, dtype=dtype)
            n.output(n.op("DequantizeLinear", q, steps, axis=0))
            n.output(n.op("DequantizeLinear", name, scale))
    for dtype in FEW:
        kind = helper.tensor_dtype_to_np_dtype(dtype)
        zeros = n.const(np.array([0, 1, 0, 1]).astype(kind))
        q = n.op("QuantizeLinear", x, steps, zeros, axis=0)
        n.output(q, dtype=dtype)
        n.output(n.op("DequantizeLinear", q, steps, zeros, axis=0))
    return n.model(), [sets]


def bits_spec():
    """Opset 26: the same bits as another type; one-sided spectra back to signals. Expected by ONNX's own reference."""
    n = Net("bits_spec", 26)
    x, k, spectrum = n.input("x", [3, 4]), n.input("k", [5], I64), n.input("spectrum", [2, 5, 3, 2])
    whole = n.op("BitCast", n.op("Mul", x, x), to=TensorProto.INT32)
    n.output(whole, dtype=TensorProto.INT32)
    n.output(n.op("BitCast", whole, to=TensorProto.UINT32), dtype=TensorProto.UINT32)
    n.output(n.op("BitCast", n.op("Add", whole, n.const(np.int32(1 << 22))), to=F32))
    n.output(n.op("BitCast", k, to=TensorProto.DOUBLE), dtype=TensorProto.DOUBLE)
    half = n.op("Cast", x, to=F16)
    n.output(n.op("BitCast", n.op("Neg", half), to=TensorProto.UINT16), dtype=TensorProto.UINT16)
    n.output(n.op("BitCast", n.op("BitCast", half, to=TensorProto.INT16), to=TensorProto.BFLOAT16), dtype=TensorProto.BFLOAT16)
    for length in (8, 9, 6, 12):
        n.output(n.op("DFT", spectrum, n.const(np.int64(length)), n.const(np.int64(1)), inverse=1, onesided=1))
    n.output(n.op("DFT", spectrum, "", n.const(np.int64(2)), inverse=1, onesided=1))
    return n.model(), [{"x": (3, 4), "k": (5,), "spectrum": (2, 5, 3, 2)}]


def resized():
    """Opset 18: images whose sizes are variables, to sizes that are computed, and by scales."""
    n = Net("resized", 18)
    x, y, line = n.input("x", [1, 2, "h", "w"]), n.input("y", [1, 3, "p", "q"]), n.input("line", ["h", 3])
    space = n.op("Shape", y, start=2)
    both = n.op("Concat", n.op("Shape", x, end=2), space, axis=0)
    for more in ({"mode": "nearest"}, {"mode": "linear"}, {"mode": "cubic"},
                 {"mode": "linear", "coordinate_transformation_mode": "align_corners"},
                 {"mode": "linear", "coordinate_transformation_mode": "asymmetric"},
                 {"mode": "cubic", "coordinate_transformation_mode": "pytorch_half_pixel", "exclude_outside": 1},
                 {"mode": "linear", "coordinate_transformation_mode": "half_pixel_symmetric"},
                 {"mode": "nearest", "coordinate_transformation_mode": "tf_half_pixel_for_nn", "nearest_mode": "floor"},
                 {"mode": "nearest", "coordinate_transformation_mode": "asymmetric", "nearest_mode": "ceil"},
                 {"mode": "nearest", "nearest_mode": "round_prefer_ceil"}):
        n.output(n.op("Add", n.op("Resize", x, "", "", both, **more), n.const(np.float32(4))))  # far from 0
    twice = n.op("Mul", n.op("Shape", x, start=2), n.ints(2))
    n.output(n.op("Resize", x, "", "", n.op("Concat", n.op("Shape", x, end=2), twice, axis=0), mode="linear"))
    for scale in (2, 1.5, 0.75):
        scales = n.const(np.array([1, 1, scale, 1], np.float32))
        n.output(n.op("Resize", x, "", scales, mode="linear", coordinate_transformation_mode="asymmetric"))
    grown = n.op("Cast", n.op("Floor", n.op("Mul", n.op("Cast", n.op("Shape", x, start=2), to=F32), n.const(np.float32(3)))), to=I64)
    n.output(n.op("Resize", x, "", "", n.op("Concat", n.op("Shape", x, end=2), grown, axis=0), mode="nearest"))
    height = n.op("Cast", n.op("Squeeze", n.op("Shape", x, start=2, end=3)), to=F32)
    n.output(n.op("Range", n.const(np.float32(0)), height, n.const(np.float32(2))))
    n.output(n.op("Range", height, n.const(np.float32(-1)), n.const(np.float32(-1))))
    n.output(n.op("Resize", line, "", "", n.op("Concat", n.op("Shape", y, start=2, end=3), n.ints(3), axis=0), mode="linear"))
    n.output(n.op("Tile", line, n.op("Shape", y, start=2)))
    n.output(n.op("Pad", line, n.op("Concat", n.ints(0, 0), space, axis=0)))
    for scale, more in ((2, {"mode": "cubic"}), (3, {"mode": "linear"}), (2, {"mode": "nearest", "nearest_mode": "floor"}),
                        (4, {"mode": "linear", "coordinate_transformation_mode": "pytorch_half_pixel"})):
        scales = n.const(np.array([1, 1, scale, scale], np.float32))
        n.output(n.op("Add", n.op("Resize", x, "", scales, **more), n.const(np.float32(4))))
    for op, k, pads in (("MaxPool", 3, [1, 1, 1, 1]), ("AveragePool", 3, [1, 1, 1, 1]), ("MaxPool", 2, [0, 0, 1, 1])):
        n.output(n.op(op, x, kernel_shape=[k, k], strides=[2, 2], pads=pads, ceil_mode=1))
    n.output(n.op("Cast", n.op("ArgMax", n.op("Reshape", x, n.ints(2, -1)), axis=1), to=F32))
    return n.model(), [{"x": (1, 2, h, w), "y": (1, 3, p, q), "line": (h, 3)}
                       for h, w, p, q in ((5, 6, 9, 7), (8, 3, 4, 3), (1, 4, 6, 1), (16, 16, 16, 16))]


def odd_sizes():
    """Opset 17: images of any size, in windows and halves that they are filled up to, and levels of a pyramid."""
    n = Net("odd_sizes", 17)
    x, y, z = n.input("x", [1, 4, "h", "w"]), n.input("y", [1, 3, "p", "q"]), n.input("z", [1, 4, "r", "s"])

    def size(of, axis):
        return n.op("Gather", n.op("Shape", of), n.const(np.int64(axis)), axis=0)

    def filled(image, below, right):
        """Pads as torch writes them: a list of numbers from the last dim on, in pairs, turned around."""
        one_by_one = n.op("Concat", n.ints(0, 0, 0), n.op("Unsqueeze", right, n.ints(0)), n.ints(0),
                          n.op("Unsqueeze", below, n.ints(0)), n.ints(0, 0), axis=0)
        pairs = n.op("Slice", n.op("Reshape", one_by_one, n.ints(-1, 2)), n.ints(-1), n.ints(-2**63 + 1), n.ints(0), n.ints(-1))
        return n.op("Pad", image, n.op("Reshape", n.op("Transpose", pairs, perm=[1, 0]), n.ints(-1)))

    def lists(*parts):
        return n.op("Concat", *(n.op("Unsqueeze", p, n.ints(0)) if isinstance(p, str) else n.ints(p) for p in parts), axis=0)

    rows = n.op("Transpose", x, perm=[0, 2, 3, 1])  # [1, h, w, 4]
    three = n.const(np.int64(3))
    more = [n.op("Mod", n.op("Sub", three, n.op("Mod", size(rows, axis), three)), three) for axis in (1, 2)]
    whole = filled(rows, *more)
    high, wide = (n.op("Div", n.op("Shape", whole, start=axis, end=axis + 1), n.ints(3)) for axis in (1, 2))
    windows = n.op("Reshape", whole, n.op("Concat", n.ints(1), high, n.ints(3), wide, n.ints(3, 4), axis=0))
    windows = n.op("Transpose", windows, perm=[0, 1, 3, 2, 4, 5])
    n.output(n.op("Softmax", n.op("Reshape", windows, n.op("Concat", n.op("Mul", high, wide), n.ints(9, 4), axis=0)), axis=1))
    for _ in range(2):  # neighbours become channels, as Swin does it
        even = filled(rows, *(n.op("Mod", size(rows, axis), n.const(np.int64(2))) for axis in (1, 2)))
        parts = []
        for a, b in ((0, 0), (1, 0), (0, 1), (1, 1)):
            line = n.op("Slice", even, n.ints(a), n.ints(2**63 - 1), n.ints(1), n.ints(2))
            parts.append(n.op("Slice", line, n.ints(b), n.ints(2**63 - 1), n.ints(2), n.ints(2)))
        rows = n.op("MatMul", n.op("Concat", *parts, axis=3), n.weight(16, 4))
        flat = n.op("Reshape", rows, lists(1, n.op("Mul", size(rows, 1), size(rows, 2)), 4))
        n.output(n.op("Softmax", flat, axis=1))
    pads, half = [], n.const(np.float32(2))
    for axis in (3, 2):  # padding so that there are ceil(size / 2) results, in floating point numbers, as timm computes it
        length = n.op("Cast", size(x, axis), to=F32)
        reach = n.op("Mul", n.op("Sub", n.op("Ceil", n.op("Div", length, half)), n.const(np.float32(1))), half)
        over = n.op("Clip", n.op("Sub", n.op("Add", reach, n.const(np.float32(3))), length), n.const(np.float32(0)))
        front = n.op("Cast", n.op("Cast", n.op("Div", over, half), to=I64), to=F32)
        pads += [n.op("Unsqueeze", front, n.ints(0)), n.op("Unsqueeze", n.op("Sub", over, front), n.ints(0))]
    pads = n.op("Concat", n.op("Cast", n.op("Concat", *pads, axis=0), to=I64), n.op("ConstantOfShape", n.ints(4), value=numpy_helper.from_array(np.array([0], np.int64))), axis=0)
    pads = n.op("Slice", n.op("Reshape", pads, n.ints(-1, 2)), n.ints(-1), n.ints(-2**63 + 1), n.ints(0), n.ints(-1))
    same = n.op("Pad", x, n.op("Reshape", n.op("Transpose", pads, perm=[1, 0]), n.ints(-1)))
    n.output(n.op("Softmax", n.op("Reshape", n.op("Conv", same, n.weight(3, 4, 3, 3), strides=[2, 2]), n.ints(0, 0, -1)), axis=2))
    inside = n.op("Relu", n.op("Conv", y, n.weight(4, 3, 3, 3)))  # without padding
    n.output(n.op("Softmax", n.op("Reshape", inside, n.ints(0, 4, -1)), axis=2))
    levels = [z]
    for _ in range(3):
        levels.append(n.op("Conv", levels[-1], n.weight(4, 4, 3, 3), strides=[2, 2], pads=[1] * 4))
    up = [levels[1]] + [n.op("Resize", level, "", n.const(np.array([1, 1, 2 ** i, 2 ** i], np.float32)), mode="nearest")
                        for i, level in enumerate(levels[2:], 1)]
    n.output(n.op("Concat", *reversed(up), axis=1))
    for op, k, stride in (("MaxPool", 3, 2), ("AveragePool", 5, 3)):
        n.output(n.op(op, x, kernel_shape=[k, k], strides=[stride] * 2, ceil_mode=1))
    return n.model(), [{"x": (1, 4, h, w), "y": (1, 3, p, q), "z": (1, 4, r, s)}
                       for h, w, p, q, r, s in ((3, 4, 3, 5, 8, 16), (7, 9, 4, 4, 24, 8), (5, 6, 19, 3, 7, 15), (13, 18, 9, 17, 16, 31))]


def levels():
    """Opset 17 and com.microsoft: levels of a pyramid of any size, which are as large as each other: joined, added and compared as
    bytes, and by what else takes two operands."""
    n = Net("levels", 17)
    z = n.input("z", [1, 4, "r", "s"])
    scale, zero, out = n.const(np.float32(0.03)), n.const(np.uint8(127)), n.const(np.float32(0.05))
    level = n.op("Conv", z, n.weight(4, 4, 3, 3), strides=[2, 2], pads=[1] * 4)
    below = n.op("Conv", level, n.weight(4, 4, 3, 3), strides=[2, 2], pads=[1] * 4)
    above = n.op("Resize", below, "", n.const(np.array([1, 1, 2, 2], np.float32)), mode="nearest")
    a, b = ((n.op("QuantizeLinear", x, scale, zero), scale, zero) for x in (level, above))
    y = [n.op("QLinearConcat", out, zero, *b, *a, axis=1, domain=MS)]
    y += [n.op(op, *a, *b, out, zero, domain=MS) for op in ("QLinearAdd", "QLinearMul")]
    y.append(n.op("QLinearWhere", n.op("Greater", level, above), *a, *b, out, zero, domain=MS))
    for result in y:
        n.output(n.op("DequantizeLinear", result, out, zero))
    more = []
    more.append(n.op("Pow", n.op("Abs", above), level))
    more.append(n.op("FusedConv", level, n.weight(4, 4, 1, 1), n.weight(4), above, activation="Relu", domain=MS))
    more.append(n.op("PRelu", level, above))
    for equation in ("abcd,abcd->abc", "abcd,abed->abce"):
        more.append(n.op("Einsum", level, above, equation=equation))
    more.append(n.op("MatMul", n.op("Transpose", level, perm=[2, 3, 0, 1]), n.op("Transpose", above, perm=[2, 3, 1, 0])))
    nowhere = n.op("Mul", n.op("Cast", above, to=I64), n.const(np.int64(0)))
    more.append(n.op("GatherElements", level, nowhere, axis=1))
    more.append(n.op("Reshape", n.op("Add", above, above), n.op("Shape", level)))
    more.append(n.op("Expand", n.op("ReduceMax", above, axes=[1]), n.op("Shape", level)))
    rows = [n.op("Reshape", x, n.ints(-1, 4)) for x in (level, above)]
    more.append(n.op("Gemm", *rows, transA=1))
    more.append(n.op("Gemm", rows[0], n.weight(4, 4), rows[1]))
    rows = [n.op("Reshape", x, n.ints(1, -1, 4)) for x in (level, above)]
    more.append(n.op("SkipLayerNormalization", *rows, n.weight(4, base=1.0), n.weight(4), domain=MS))
    for result in more:  # none is near 0
        n.output(n.op("Add", result, n.const(np.float32(4))))
    return n.model(), [{"z": (1, 4, r, s)} for r, s in ((8, 16), (7, 15), (24, 4), (3, 31))]


def windows():
    """Opset 17: images of any size that windows fill, cut into them and put together again, as exporters spell it; halves of any
    number of channels that change places; and as many of the largest as there must be."""
    n = Net("windows", 17)
    x, c = n.input("x", ["n", "h", "w", 4]), n.input("c", ["m", "channels", "h", "w"])
    images, high, wide = (n.op("Shape", x, start=a, end=a + 1) for a in range(3))
    rows, columns = (n.op("Div", size, n.ints(2)) for size in (high, wide))
    parts = n.op("Reshape", x, n.op("Concat", images, rows, n.ints(2), columns, n.ints(2, 4), axis=0))
    parts = n.op("Reshape", n.op("Transpose", parts, perm=[0, 1, 3, 2, 4, 5]), n.ints(-1, 4, 4))
    parts = n.op("Softmax", parts, axis=1)
    for first, shape in ((images, [n.op("Shape", x)]), (n.ints(-1), [n.ints(-1), high, wide, n.ints(4)]), (images, [images, high, wide, n.ints(-1)])):
        whole = n.op("Reshape", parts, n.op("Concat", first, rows, columns, n.ints(2, 2, 4), axis=0))
        whole = n.op("Transpose", whole, perm=[0, 1, 3, 2, 4, 5])
        n.output(n.op("Add", n.op("Reshape", whole, n.op("Concat", *shape, axis=0)), x))
    size = n.op("Shape", c)
    halves = n.op("Div", n.op("Shape", c, start=1, end=2), n.ints(2))
    halves = n.op("Reshape", c, n.op("Concat", n.op("Shape", c, end=1), n.ints(2), halves, n.op("Shape", c, start=2), axis=0))
    n.output(n.op("Reshape", n.op("Transpose", halves, perm=[0, 2, 1, 3, 4]), size))
    best, _ = n.op("TopK", n.op("Reshape", c, n.ints(0, -1)), n.ints(12), outs=2, axis=1)
    n.output(n.op("Reshape", n.op("Softmax", best, axis=1), n.ints(-1, 3, 4)))
    return n.model(), [{"x": (k, h, w, 4), "c": (m, channels, h, w)}
                       for k, m, channels, h, w in ((1, 2, 4, 4, 6), (2, 1, 6, 2, 2), (3, 3, 2, 8, 2))]


def two_names():
    """Opset 17 and com.microsoft: dims of two names, or of one name and two others together, that are one size where they meet."""
    n = Net("two_names", 17)
    x, y = n.input("x", ["b", "n", 8]), n.input("y", ["c", "k", 8])
    n.output(n.op("Add", x, y))
    n.output(n.op("Concat", x, y, axis=2))
    n.output(n.op("Add", n.op("MatMul", n.op("Transpose", x, perm=[0, 2, 1]), y), n.const(np.float32(9))))
    keys, values = n.input("past_k", ["b", 2, "past", 4]), n.input("past_v", ["b", 2, "past", 4])
    bias, mask = n.input("bias", ["b", 2, "n", "total"]), n.input("mask", ["b", "total"], I64)
    n.output(n.op("GatherElements", n.op("ReduceMax", y, axes=[1], keepdims=0), n.op("Mod", mask, n.const(np.int64(8))), axis=1))
    n.output(n.op("MultiHeadAttention", x, x, y, num_heads=2, domain=MS))
    mask = n.op("Cast", n.op("Less", mask, n.const(np.int64(24))), to=TensorProto.INT32)
    for hidden, added in (("", bias), (mask, "")):
        attend = n.op("MultiHeadAttention", x, x, x, "", hidden, added, keys, values, num_heads=2, outs=3, domain=MS)
        n.output(n.op("Add", attend[0], n.const(np.float32(9))))
        n.output(attend[1])
    return n.model(), [{"x": (b, k, 8), "y": (b, k, 8), "past_k": (b, 2, past, 4), "past_v": (b, 2, past, 4), "bias": (b, 2, k, k + past), "mask": (b, k + past)}
                       for b, k, past in ((1, 3, 4), (2, 1, 7), (2, 6, 1))]


def small_sizes():
    """Opset 18: what operators do with sizes from 1 on: antialiasing, fractions of sizes, windows that are smaller than their
    steps, slices from behind, and of slices, transforms."""
    n = Net("small_sizes", 18)
    x = n.input("x", [1, 2, "h", "w"])
    for mode, scales, sizes, more in (("linear", None, [4, 5], {}), ("cubic", [0.7, 0.3], None, {"exclude_outside": 1}),
                                      ("linear", [0.5, 1.5], None, {"coordinate_transformation_mode": "asymmetric"})):
        n.output(n.op("Resize", x, "", n.const(np.array([1, 1] + scales, np.float32)) if scales else "", *([] if scales else [n.ints(1, 2, *sizes)]),
                      mode=mode, antialias=1, **more))
    kept = n.op("Slice", n.op("Shape", x), n.ints(0), n.ints(2))
    half = n.op("Div", n.op("Add", n.op("Shape", x, start=2), n.ints(1, 1)), n.ints(2, 2))
    n.output(n.op("Resize", x, "", "", n.op("Concat", kept, half, axis=0), mode="cubic", antialias=1))
    n.output(n.op("Resize", x, "", n.const(np.array([1, 1, 0.7, 0.3], np.float32)), mode="nearest", nearest_mode="floor"))
    n.output(n.op("Conv", x, n.weight(3, 2, 1, 2), strides=[1, 4], auto_pad="SAME_UPPER"))
    n.output(n.op("ConvTranspose", x, n.weight(2, 3, 3, 4), strides=[2, 3], auto_pad="SAME_UPPER"))
    n.output(n.op("Slice", x, n.ints(-2), n.ints(-2**62), n.ints(3), n.ints(-1)))
    rows = n.op("Slice", x, n.op("Div", n.op("Shape", x, start=2, end=3), n.ints(2)), n.ints(2**63 - 1), n.ints(2))
    first, _ = n.op("Split", rows, outs=2, axis=2, num_outputs=2)
    n.output(n.op("Concat", n.op("Slice", first, n.ints(2), n.ints(2**63 - 1), n.ints(2)), n.op("Slice", first, n.ints(0), n.ints(2), n.ints(2)), axis=2))
    signal = n.op("Unsqueeze", x, n.ints(4))
    n.output(n.op("Add", n.op("DFT", n.op("DFT", signal, axis=2), axis=3, inverse=1), n.const(np.float32(3))))
    n.output(n.op("Add", n.op("DFT", signal, axis=3, onesided=1), n.const(np.float32(3))))
    return n.model(), [{"x": (1, 2, h, w)} for h, w in ((4, 7), (1, 1), (9, 10), (2, 3))]


def weighted_means():
    """Opset 17: two sums of one kernel, whose terms are gathered: less than a vector, more than a block of partial sums, and what
    is left of either; sizes that are variables, and numbers."""
    n = Net("weighted_means", 17)
    x, ids = n.input("x", ["n", 8, "h"]), n.input("ids", ["n", 8, "h"], I64)
    table = n.const(np.arange(1, 33, dtype=np.float32) / 8)

    def both(how, x, ids):
        weights = n.op("Gather", table, ids)
        n.output(n.op(how, n.op("ReduceSum", n.op("Mul", x, weights), keepdims=0), n.op("ReduceSum", weights, keepdims=0)))

    both("Div", x, ids)
    count = n.op("ReduceProd", n.op("Shape", x), keepdims=0)
    for length in (n.const(np.int64(3007)), n.op("Mul", count, n.const(np.int64(5)))):
        places = n.op("Range", n.const(np.int64(0)), length, n.const(np.int64(1)))
        waves = n.op("Add", n.op("Cos", n.op("Cast", places, to=F32)), n.const(np.float32(2)))
        both("Mul", waves, n.op("Mod", places, n.const(np.int64(29))))
    return n.model(), [{"x": (a, 8, b), "ids": (a, 8, b)} for a, b in ((1, 1), (3, 3), (11, 11), (4, 6))]


def small_deviations():
    """Opset 17 and com.microsoft: norms of rows that hardly differ, by each operator's own epsilon."""
    n = Net("small_deviations", 17)
    x, ids = n.input("x", ["b", 5, 16]), n.input("ids", ["b", 5], I64)
    small, scale, shift = n.op("Mul", x, n.const(np.float32(1e-3))), n.weight(16, base=1.0), n.weight(16)
    n.output(n.op("LayerNormalization", small, scale, shift))
    n.output(n.op("SkipLayerNormalization", small, small, scale, shift, domain=MS))
    n.output(n.op("SkipSimplifiedLayerNormalization", small, small, scale, domain=MS))
    n.output(n.op("GatedRMSNorm", small, n.weight(8, base=1.0), x, domain=MS))
    n.output(n.op("BranchwiseRMSNorm", small, num_branches=2, domain=MS))
    ids = n.op("Cast", ids, to=TensorProto.INT32)
    tables = [n.weight(32, 16, scale=1e-3), n.weight(32, 16, scale=1e-3), n.weight(32, 16, scale=1e-3)]
    normal, count = n.op("EmbedLayerNormalization", ids, ids, *tables, scale, shift, outs=2, domain=MS)
    n.output(normal), n.output(count, dtype=TensorProto.INT32)
    return n.model(), [{"x": (b, 5, 16), "ids": (b, 5)} for b in (1, 3)]


def neighbours():
    """Opset 10: nearest neighbours before there were ways to choose them, by scales that f32 has rounded; sizes that vary and not."""
    n = Net("neighbours", 10)
    x, known = n.input("x", [1, 2, "h", "w"]), n.input("known", [1, 2, 33, 21])
    for scales in ((0.7, 2), (0.6, 0.5), (1.5, 0.3)):
        for image in (x, known):
            n.output(n.op("Resize", image, n.const(np.array((1, 1) + scales, np.float32)), mode="nearest"))
    return n.model(), [{"x": (1, 2, h, w), "known": (1, 2, 33, 21)} for h, w in ((2, 4), (33, 21), (10, 7))]


def long_transforms_spec():
    """Opset 20: Fourier transforms of more elements than a matrix has rows, of all of a signal, back, and of a real one."""
    n = Net("long_transforms_spec", 20)
    x, step, axis, length = n.input("x", [1, 2100, 1]), n.const(np.int64(1)), n.const(np.int64(1)), n.const(np.int64(2100))
    half = n.op("DFT", x, "", axis, onesided=1)
    for y in (half, n.op("DFT", n.op("DFT", x, "", axis), "", axis, inverse=1), n.op("DFT", half, length, axis, inverse=1, onesided=1),
              n.op("STFT", x, step, n.const(np.hanning(2100).astype(np.float32)))):
        n.output(n.op("Add", y, n.const(np.float32(30))))  # far from 0
    return n.model(), [{"x": (1, 2100, 1)}]


def shrunk():
    """Opset 19: images whose sizes are variables, by scales below one, and with reflected, repeated and wrapped ends."""
    n = Net("shrunk", 19)
    x, y = n.input("x", [1, 3, "h", "w"]), n.input("y", [1, 2, "p", "q"])
    pytorch, symmetric = ({"coordinate_transformation_mode": c} for c in ("pytorch_half_pixel", "half_pixel_symmetric"))
    for scale, more in ((0.5, {"mode": "linear", **pytorch}), (0.5, {"mode": "cubic"}), (0.5, {"mode": "linear", **symmetric}),
                        (0.25, {"mode": "cubic", **pytorch}), (0.25, {"mode": "cubic", "exclude_outside": 1}),
                        (0.25, {"mode": "nearest", "nearest_mode": "round_prefer_ceil"})):
        scales = n.const(np.array([1, 1, scale, scale], np.float32))
        n.output(n.op("Add", n.op("Resize", x, "", scales, **more), n.const(np.float32(4))))  # far from 0
    for scales, more in (((1, 1, 0.5, 0.5), {}), ((1, 1, 0.5, 0.75), {}), ((1, 1, 1, 0.5), pytorch)):  # means of neighbours
        n.output(n.op("Add", n.op("Resize", x, "", n.const(np.array(scales, np.float32)), mode="linear", **more), n.const(np.float32(4))))
    wider = n.op("Pad", x, n.ints(0, 0, 3, 4, 0, 0, 2, 0))  # never without a result
    for scales in ((1, 1, 0.25, 0.125), (1, 1, 0.25, 0.5)):
        n.output(n.op("Add", n.op("Resize", wider, "", n.const(np.array(scales, np.float32)), mode="linear"), n.const(np.float32(4))))
    third = n.const(np.array([1, 1, 1 / 3, 0.75], np.float32))
    n.output(n.op("Add", n.op("Resize", x, "", third, mode="linear"), n.const(np.float32(4))))
    doubled = n.op("Concat", y, y, axis=3)  # an extent that is seen to be even
    to = n.op("Concat", n.op("Shape", x, end=1), n.ints(2), n.op("Shape", y, start=2), axis=0)
    for mode in ("linear", "nearest"):
        n.output(n.op("Add", n.op("Resize", doubled, "", "", to, mode=mode), n.const(np.float32(4))))
    wide = n.op("Pad", x, n.ints(0, 0, 2, 1, 0, 0, 1, 3))  # so that there are some
    for mode, pads in (("reflect", (1, 1, 1, 1)), ("reflect", (3, 0, 2, 4)), ("edge", (1, 2, 3, 0)), ("wrap", (2, 1, 3, 1))):
        n.output(n.op("Pad", wide, n.ints(0, 0, *pads[:2], 0, 0, *pads[2:]), mode=mode))
        n.output(n.op("Pad", x, n.ints(0, 0, *(min(p, 1) for p in pads[:2]), 0, 0, *(min(p, 1) for p in pads[2:])), mode=mode))
    return n.model(), [{"x": (1, 3, h, w), "y": (1, 2, p, q)}
                       for h, w, p, q in ((5, 6, 3, 4), (17, 33, 1, 1), (4, 9, 8, 17), (7, 35, 2, 31))]


def inner_names():
    """Opset 18: bodies whose names are those of later nodes around them."""
    n = Net("inner_names", 18)
    x, info = n.input("x", [3]), helper.make_tensor_value_info
    node = helper.make_node
    then = helper.make_graph([node("Neg", ["x"], ["t"]), node("Exp", ["t"], ["u"])], "then", [], [info("u", F32, [3])])
    other = helper.make_graph([node("Exp", ["x"], ["t"]), node("Neg", ["t"], ["u"])], "other", [], [info("u", F32, [3])])
    body = helper.make_graph(
        [node("Identity", ["on"], ["go"]), node("Add", ["s", "x"], ["t"]), node("Identity", ["t"], ["u"]), node("Neg", ["t"], ["w"])],
        "body", [info("i", I64, []), info("on", TensorProto.BOOL, []), info("s", F32, [3])],
        [info("go", TensorProto.BOOL, []), info("u", F32, [3]), info("w", F32, [3])])
    first = n.op("If", n.const(np.array(True)), then_branch=then, else_branch=other)
    last, seen = n.op("Loop", n.const(np.array(2, np.int64)), "", first, outs=2, body=body)
    n.nodes += [node("Sin", [first], ["t"]), node("Cos", [last], ["s"]), node("Add", ["s", "t"], ["u"])]
    n.output("u")
    n.output(seen)
    return n.model(), [{"x": (3,)}]


def sampled():
    """Opset 20: images and volumes that are read between their elements."""
    n = Net("sampled", 20)
    image, volume = n.input("image", [2, 4, 7, 6]), n.input("volume", [2, 3, 4, 5, 6])
    grid, rois = n.input("grid", [2, 2, 3, 4, 3]), n.input("rois", [3, 4])
    for mode in ("linear", "nearest"):
        for padding in ("zeros", "border", "reflection"):
            n.output(n.op("GridSample", volume, grid, mode=mode, padding_mode=padding, align_corners=int(padding == "border")))
    which = n.ints(1, 0, 1)
    for mode in ("max", "avg"):
        n.output(n.op("RoiAlign", image, rois, which, mode=mode, output_height=3, output_width=2, sampling_ratio=2))
    return n.model(), [{"image": (2, 4, 7, 6), "volume": (2, 3, 4, 5, 6), "grid": (2, 2, 3, 4, 3),
                        "rois": np.array([[0, 0, 4, 5], [1, 1.5, 5, 3], [-2, 3, 9, 9]], np.float32)}]


def deformed_spec():
    """Opset 22: windows whose elements have positions of their own; expected by ONNX's own reference."""
    n = Net("deformed_spec", 22)
    x = n.input("x", [2, 4, 7, 6])
    first, second = n.input("first", [2, 18, 7, 6]), n.input("second", [2, 24, 3, 3])
    mask = n.input("mask", [2, 12, 3, 3])
    n.output(n.op("DeformConv", x, n.weight(5, 4, 3, 3), first, kernel_shape=[3, 3], pads=[1, 1, 1, 1]))
    n.output(n.op("DeformConv", x, n.weight(6, 2, 3, 2), second, n.weight(6), mask, kernel_shape=[3, 2], strides=[2, 2],
                  pads=[0, 1, 1, 0], dilations=[1, 1], group=2, offset_group=2))
    return n.model(), [{"x": (2, 4, 7, 6), "first": (2, 18, 7, 6), "second": (2, 24, 3, 3), "mask": (2, 12, 3, 3)}]


def batch_scan():
    """Opset 8: Scan over the second dim, with a batch before it."""
    n = Net("batch_scan", 8)
    start, x, y = n.input("start", [2, 3]), n.input("x", [2, 4, 3]), n.input("y", [2, 4, 3])
    info = helper.make_tensor_value_info
    body = helper.make_graph(
        [helper.make_node("Mul", ["state", "b"], ["scaled"]), helper.make_node("Add", ["scaled", "a"], ["next"]),
         helper.make_node("Neg", ["next"], ["seen"])],
        "body", [info("state", F32, [3]), info("a", F32, [3]), info("b", F32, [3])],
        [info("next", F32, [3]), info("seen", F32, [3])])
    last, seen = n.op("Scan", "", start, x, y, outs=2, num_scan_inputs=2, body=body, directions=[0, 1])
    n.output(last, [2, 3])
    n.output(seen, [2, 4, 3])
    return n.model(), [{"start": (2, 3), "x": (2, 4, 3), "y": (2, 4, 3)}]


def sequences():
    """Opset 17: sequences that come in and go out."""
    n = Net("sequences", 17)
    n.inputs.append(helper.make_tensor_sequence_value_info("parts", F32, ["rows", 3]))
    x, info = n.input("x", [4, 3]), helper.make_tensor_value_info
    body = helper.make_graph(
        [helper.make_node("MatMul", ["part", "w"], ["product"]), helper.make_node("Shape", ["part"], ["size"])],
        "body", [info("part", F32, ["rows", 3]), info("w", F32, [3, 2])],
        [info("product", F32, ["rows", 2]), info("size", I64, [2])])
    products, sizes = n.op("SequenceMap", "parts", n.weight(3, 2), outs=2, body=body)
    longer = n.op("SequenceInsert", "parts", x, n.const(np.int64(1)))
    n.output(n.op("ConcatFromSequence", longer, axis=0))
    n.output(n.op("SequenceLength", longer), [], I64)
    for name, dtype in ((longer, F32), (products, F32), (sizes, I64)):
        n.outputs.append(helper.make_tensor_sequence_value_info(name, dtype, None))
    pieces = n.op("SplitToSequence", x, axis=0, keepdims=0)
    n.outputs.append(helper.make_tensor_sequence_value_info(pieces, F32, None))
    parts = [n.rng.standard_normal((rows, 3)).astype(np.float32) for rows in (2, 1, 5)]
    return n.model(), [{"parts": parts, "x": (4, 3)}, {"parts": parts[:1], "x": (4, 3)}]


def found():
    """Opset 13: what is above a limit, and what models do with it."""
    n = Net("found", 13)
    x, limit = n.input("x", ["n", 6]), n.input("limit", [])
    above = n.op("Greater", x, limit)
    places = n.op("NonZero", above)
    n.output(places, dtype=I64)
    rows = n.op("Transpose", places)
    picked = n.op("GatherND", x, rows)
    n.output(picked)
    size = n.op("Shape", picked)
    n.output(size, dtype=I64)
    n.output(n.op("Add", n.op("Mul", picked, picked), n.op("Expand", limit, size)))
    n.output(n.op("ScatterND", n.op("Mul", x, n.const(np.float32(0))), rows, picked))
    n.output(n.op("ReduceSum", picked, keepdims=0))
    few = n.op("Min", size, n.ints(3))
    n.output(n.op("Slice", picked, n.ints(0), n.ints(3)))
    best, which = n.op("TopK", picked, few, outs=2)
    n.output(best)
    n.output(which, dtype=I64)
    n.output(n.op("Range", n.const(np.int64(0)), n.op("Squeeze", size), n.const(np.int64(1))), dtype=I64)
    n.output(n.op("Compress", picked, n.op("Greater", picked, n.const(np.float32(0.5))), axis=0))  # of what was found
    line = n.op("Greater", n.op("ReduceMax", x, axes=[1], keepdims=0), n.op("Add", limit, n.const(np.float32(1))))
    lines = n.op("Compress", x, line, axis=0)
    n.output(n.op("Softmax", n.op("MatMul", lines, n.weight(6, 5)), axis=-1))
    same = n.op("Gather", x, n.op("Squeeze", n.op("NonZero", line), n.ints(0)), axis=0)
    n.output(n.op("Concat", lines, n.op("Neg", same), axis=1))
    n.output(n.op("Concat", x, lines, n.op("Unsqueeze", n.op("ReduceMean", x, axes=[0], keepdims=0), n.ints(0)), axis=0))
    n.output(n.op("Compress", x, n.op("Reshape", above, n.ints(-1))))
    n.output(n.op("NonZero", n.op("ConstantOfShape", n.op("Shape", picked), value=numpy_helper.from_array(np.ones(1, np.int64)))), dtype=I64)
    return n.model(), [{"x": (rows, 6), "limit": np.array(limit, np.float32)}
                       for rows, limit in ((5, 0.3), (9, -0.5), (9, 9), (2, -9), (64, 0.8), (1, 0))]


def detector():
    """Opset 17: the end of a detector, from boxes and scores to a table of what is there."""
    n = Net("detector", 17)
    raw, logits, least = n.input("raw", [2, "m", 4]), n.input("logits", [2, 3, "m"]), n.input("least", [1])
    scores = n.op("Sigmoid", logits)
    center, size = n.op("Split", n.op("Sigmoid", raw), n.ints(2, 2), outs=2, axis=2)
    half = n.op("Mul", size, n.const(np.float32(0.4)))
    boxes = n.op("Concat", n.op("Sub", center, half), n.op("Add", center, half), axis=2)
    chosen = n.op("NonMaxSuppression", boxes, scores, n.ints(6), n.const(np.array([0.4], np.float32)), least)
    n.output(chosen, dtype=I64)
    batch, kind, box = n.op("Split", chosen, n.ints(1, 1, 1), outs=3, axis=1)
    score = n.op("Unsqueeze", n.op("GatherND", scores, chosen), n.ints(1))
    corner = n.op("GatherND", boxes, n.op("Concat", batch, box, axis=1))
    table = n.op("Concat", n.op("Cast", n.op("Concat", batch, kind, axis=1), to=F32), score, corner, axis=1)
    n.output(table)
    flat = n.op("Squeeze", score, n.ints(1))
    _, order = n.op("TopK", flat, n.op("Min", n.op("Shape", flat), n.ints(5)), outs=2)
    n.output(n.op("Gather", table, order, axis=0))
    n.output(n.op("NonMaxSuppression", boxes, scores, n.ints(0)), dtype=I64)  # none
    return n.model(), [{"raw": (2, m, 4), "logits": (2, 3, m), "least": np.array([least], np.float32)}
                       for m, least in ((40, 0.6), (40, 0.999), (200, 0.3), (7, 0), (1, 0.5))]


def proposals():
    """Opset 17, as PyTorch exports detectors: of what is likely the best few, a branch for when there is nothing, and
    many classes in one list."""
    n = Net("proposals", 17)
    raw, logits = n.input("raw", ["m", 4]), n.input("logits", ["m"])
    found = n.op("Squeeze", n.op("NonZero", n.op("Greater", logits, n.const(np.float32(0)))), n.ints(0))
    boxes, scores = n.op("Gather", raw, found), n.op("Gather", logits, found)
    few = n.op("ReduceMin", n.op("Concat", n.ints(7), n.op("Shape", scores), axis=0), keepdims=0)
    scores, order = n.op("TopK", scores, n.op("Unsqueeze", few, n.ints(0)), outs=2)
    boxes = n.op("Gather", boxes, order)
    none = n.op("Equal", n.op("ReduceProd", n.op("Shape", boxes), keepdims=0), n.const(np.int64(0)))
    empty = helper.make_graph([helper.make_node("Constant", [], ["nothing"], value=numpy_helper.from_array(np.zeros(0, np.int64)))],
                              "then", [], [helper.make_tensor_value_info("nothing", I64, [0])])
    kept = Net("kept", 17)
    corner, size = kept.op("Split", kept.op("Sigmoid", boxes), kept.ints(2, 2), outs=2, axis=1)
    lists = kept.op("Unsqueeze", kept.op("Concat", corner, kept.op("Add", corner, size), axis=1), kept.ints(0))
    chosen = kept.op("NonMaxSuppression", lists, kept.op("Unsqueeze", scores, kept.ints(0, 1)), kept.ints(100),
                     kept.const(np.array([0.4], np.float32)))
    kept.op("Squeeze", kept.op("Slice", chosen, kept.ints(2), kept.ints(3), kept.ints(1)), kept.ints(1))
    kept.nodes[-1].output[0] = "kept_boxes"
    for node in kept.nodes:
        for names in (node.input, node.output):
            for k, name in enumerate(names):
                if name not in (boxes, scores) and name != "kept_boxes":
                    names[k] = "inner_" + name
    for constant in kept.inits:
        constant.name = "inner_" + constant.name
    body = helper.make_graph(kept.nodes, "else", [], [helper.make_tensor_value_info("kept_boxes", I64, None)], kept.inits)
    keep = n.op("If", none, then_branch=empty, else_branch=body)
    n.output(n.op("Gather", boxes, keep))
    n.output(keep, dtype=I64)
    rows = []
    for k in range(40):  # more sizes than the terms of an ordinary expression
        rows.append(n.op("Gather", logits, n.op("Squeeze", n.op(
            "NonZero", n.op("Greater", logits, n.const(np.float32(k / 20)))), n.ints(0))))
    n.output(n.op("Concat", *rows, axis=0))
    return n.model(), [{"raw": (m, 4), "logits": low + np.random.default_rng(m).standard_normal(m).astype(np.float32)}
                       for m, low in ((40, 0), (40, -9), (9, 1), (1, 2))]


def uniques():
    """Opset 13: which values there are."""
    n = Net("uniques", 13)
    x, y = n.input("x", ["n"], I64), n.input("y", ["m", 3])
    for kept in (1, 0):
        for out, dtype in zip(n.op("Unique", x, outs=4, sorted=kept), (I64, I64, I64, I64)):
            n.output(out, dtype=dtype)
        for out, dtype in zip(n.op("Unique", n.op("Round", y), outs=4, sorted=kept, axis=0), (F32, I64, I64, I64)):
            n.output(out, dtype=dtype)
    n.output(n.op("Unique", n.op("Round", y)))
    return n.model(), [{"x": (k,), "y": (m, 3)} for k, m in ((20, 12), (200, 50), (1, 1), (33, 7))]


def transposed():
    """Transposed convolutions: strides that divide the kernel and not, dilated, grouped, padded on both sides, 1 to 3 dims."""
    n = Net("transposed", 17)
    image, line, room = n.input("image", [2, 4, "h", "w"]), n.input("line", [1, 3, "h"]), n.input("room", [1, 2, 3, 2, 4])
    for groups, kernel, attrs in ((1, (4, 4), {"strides": [2, 2], "pads": [1, 1, 1, 1]}), (1, (2, 2), {"strides": [2, 2]}),
                                  (2, (3, 5), {"strides": [2, 3], "pads": [1, 0, 0, 2], "output_padding": [1, 2]}),
                                  (4, (3, 3), {"strides": [2, 1], "dilations": [1, 2]}),
                                  (1, (1, 2), {"strides": [3, 4]}), (1, (2, 3), {"strides": [2, 2], "dilations": [3, 1]}),
                                  (2, (5, 3), {"strides": [1, 2], "pads": [3, 2, 2, 2]})):
        n.output(n.op("ConvTranspose", image, n.weight(4, 3, *kernel), n.weight(3 * groups), group=groups, **attrs))
    n.output(n.op("ConvTranspose", line, n.weight(3, 2, 16), strides=[8], pads=[4, 4]))
    n.output(n.op("ConvTranspose", line, n.weight(3, 2, 7), strides=[2], pads=[5, 0], output_padding=[1]))
    n.output(n.op("ConvTranspose", room, n.weight(2, 3, 2, 3, 4), strides=[2, 1, 2], pads=[0, 1, 1, 0, 1, 2]))
    return n.model(), [{"image": (2, 4, h, w), "line": (1, 3, h), "room": (1, 2, 3, 2, 4)} for h, w in ((5, 4), (9, 2), (3, 7))]


def tails():
    """Functions where their results are tiny: the logarithm shows relative errors."""
    n = Net("tails", 17)
    x = n.input("x", ["n"])
    down = n.op("Neg", n.op("Abs", n.op("Mul", x, n.const(np.float32(30)))))
    n.output(n.op("Log", n.op("Softplus", down)))
    return n.model(), [{"x": (64,)}]


def fused_more():
    """Opset 17 and com.microsoft: codes of bitsandbytes, distances, an embedding in bytes; squares beyond what a half float holds."""
    n = Net("fused_more", 17)
    x, ids, image = n.input("x", ["n", 45]), n.input("ids", ["b", 5], I64), n.input("image", [1, 4, 3, 3])
    rng = n.rng

    def bytes_of(*shape):
        return n.const(rng.integers(0, 256, shape).astype(U8))

    for kind in (0, 1):
        n.output(n.op("MatMulBnb4", x, bytes_of((45 * 7 + 1) // 2), n.const(rng.random(10).astype(np.float32)), K=45, N=7, block_size=32,
                      quant_type=kind, domain=MS))
    n.output(n.op("CDist", x, n.weight(4, 45), metric="euclidean", domain=MS))
    n.output(n.op("CDist", n.weight(4, 45), x, metric="sqeuclidean", domain=MS))
    ids = n.op("Cast", ids, to=TensorProto.INT32)
    mask = n.op("Cast", n.op("Greater", ids, n.const(np.array(9, I32))), to=TensorProto.INT32)
    tables = [bytes_of(32, 8), bytes_of(16, 8), bytes_of(32, 8), bytes_of(8), bytes_of(8)]
    scales = [n.const(np.float32(0.01 * (k + 1))) for k in range(5)]
    zeros = [n.const(np.array(100 + 9 * k, U8)) for k in range(5)]
    normal, count = n.op("QEmbedLayerNormalization", ids, ids, *tables, mask, *scales, *zeros, outs=2, epsilon=1e-3, domain=MS)
    n.output(normal), n.output(count, dtype=TensorProto.INT32)
    half = n.op("Cast", n.op("Mul", image, n.const(np.float32(300))), to=F16)
    n.output(n.op("Cast", n.op("LRN", half, size=3), to=F32))
    return n.model(), [{"x": (rows, 45), "ids": (b, 5), "image": (1, 4, 3, 3)} for rows, b in ((3, 2), (1, 1))]


def recurrences_fused():
    """Opset 17 and com.microsoft: layers that carry a state, over few positions, many, and as many as there are."""
    n = Net("recurrences_fused", 17)
    sizes = {"q": 24, "k": 12, "v": 10, "decay": 2, "wide": 12, "beta": 2, "x": 6}
    x = {name: n.input(name, ["b", "t", size] if name != "x" else ["b", size, "t"]) for name, size in sizes.items()}
    state = n.input("state", ["b", 2, 6, 5])
    few = {name: n.op("Slice", x[name], n.ints(0), n.ints(4), n.ints(1)) for name in sizes}
    down = lambda of, name: n.op("Neg", n.op("Abs", of[name]))
    for of in (x, few):
        for rule, decay, beta in (("linear", "", ""), ("gated", "decay", ""), ("gated", "wide", ""), ("delta", "", "beta"),
                                  ("gated_delta", "decay", "beta"), ("gated_delta", "wide", "beta")):
            ins = [of["q"], n.op("Mul", of["k"], n.const(np.float32(0.25))), of["v"], state, down(of, decay) if decay else "",
                   n.op("Sigmoid", of["beta"]) if beta else ""]
            for out in n.op("LinearAttention", *ins, outs=2, update_rule=rule, q_num_heads=4, kv_num_heads=2, domain=MS):
                n.output(out)
    for dilation in (1, 2):
        past = n.op("Expand", n.weight(1, 6, 3 * dilation), n.op("Concat", n.op("Shape", state, start=0, end=1), n.ints(1, 1), axis=0))
        attrs = {"dilation": dilation} if dilation > 1 else {}
        for out in n.op("CausalConvWithState", x["x"], n.weight(6, 1, 4), n.weight(6), past, outs=2, activation="silu", domain=MS, **attrs):
            n.output(out)
    shape = lambda name, b, t: (b, t, sizes[name]) if name != "x" else (b, 6, t)
    return n.model(), [{**{name: shape(name, b, t) for name in sizes}, "state": (b, 2, 6, 5)} for b, t in ((2, 13), (1, 4))]


class Microsoft:
    """What onnxruntime's optimiser writes for GPUs alone, as its documents say: ONNX's reference evaluator takes these."""

    class GroupNorm(onnx.reference.op_run.OpRun):
        op_domain = MS

        def _run(self, x, scale, shift, skip=None, bias=None, groups=None, epsilon=1e-5, activation=0, channels_last=1):
            t = x if channels_last else np.moveaxis(x, 1, -1)
            if skip is not None:
                skip = skip[:, None, None] if skip.ndim == 2 else skip if channels_last else np.moveaxis(skip, 1, -1)
                t = t + skip + (0 if bias is None else bias)
            parts = t.reshape(*t.shape[:-1], groups, -1).astype(np.float64)
            mean, spread = parts.mean((1, 2, 4), keepdims=True), parts.var((1, 2, 4), keepdims=True)
            y = ((parts - mean) / np.sqrt(spread + epsilon)).reshape(t.shape) * scale + shift
            y = y / (1 + np.exp(-y)) if activation else y
            return tuple((v if channels_last else np.moveaxis(v, -1, 1)).astype(x.dtype) for v in ((y,) if skip is None else (y, t)))

    class SkipGroupNorm(GroupNorm):
        pass

    class NhwcFusedConv(onnx.reference.op_run.OpRun):
        op_domain = MS

        def _run(self, x, w, bias=None, other=None, pads=None, strides=None, activation=None, activation_params=None, group=1, kernel_shape=None):
            return (self.of(x, w, bias, other, pads, strides, activation, group),)

        def of(self, x, w, bias, other, pads, strides, activation, group):
            x = np.pad(x, ((0, 0), (pads[0], pads[2]), (pads[1], pads[3]), (0, 0)))
            windows = np.lib.stride_tricks.sliding_window_view(x, w.shape[2:], axis=(1, 2))[:, ::strides[0], ::strides[1]]
            each = zip(np.split(windows, group, 3), np.split(w, group, 0))
            y = np.concatenate([np.einsum("nhwcij,ocij->nhwo", a, b) for a, b in each], -1)
            y = y + (0 if bias is None else bias) + (0 if other is None else other)
            return np.maximum(y, 0) if activation == "Relu" else y

    class NhwcConv(NhwcFusedConv):
        def _run(self, x, w, bias=None, pads=None, strides=None, group=1, kernel_shape=None):
            return (self.of(x, np.moveaxis(w, -1, 1), bias, None, pads, strides, None, group),)

    class BiasAdd(onnx.reference.op_run.OpRun):
        op_domain = MS

        def _run(self, x, bias, skip):
            return (x + bias + skip,)

    class BiasSplitGelu(onnx.reference.op_run.OpRun):
        op_domain = MS

        def _run(self, x, bias):
            a, b = np.split(x + bias, 2, -1)
            erf = np.vectorize(math.erf)
            return ((a * b * 0.5 * (1 + erf(b / np.sqrt(2)))).astype(x.dtype),)

    class GemmFastGelu(onnx.reference.op_run.OpRun):
        op_domain = MS

        def _run(self, x, w, bias=0):
            y = x @ w + bias
            return ((y * 0.5 * (1 + np.tanh(np.sqrt(2 / np.pi) * (y + 0.044715 * y ** 3)))).astype(x.dtype),)

    class BiasSoftmax(onnx.reference.op_run.OpRun):
        op_domain = MS

        def _run(self, x, bias, axis=1, is_inner_broadcast=0):
            e = (x + bias).reshape(*x.shape[:axis], -1)
            e = np.exp(e - e.max(-1, keepdims=True))
            return ((e / e.sum(-1, keepdims=True)).reshape(x.shape),)

    class MultiHeadAttention(onnx.reference.op_run.OpRun):
        op_domain = MS

        def _run(self, q, k=None, v=None, bias=None, num_heads=None):
            parts = np.moveaxis(q, 3, 0) if k is None else [q.reshape(*q.shape[:2], num_heads, -1), *np.moveaxis(k, 3, 0)]
            bias = np.zeros((3, 1)) if bias is None else bias.reshape(3, num_heads, -1)
            q, k, v = (np.swapaxes(part + b, 1, 2) for part, b in zip(parts, bias))
            e = np.exp(q @ np.swapaxes(k, 2, 3) / np.sqrt(q.shape[-1]))
            y = np.swapaxes(e / e.sum(-1, keepdims=True) @ v, 1, 2)
            return (y.reshape(*y.shape[:2], -1).astype(np.float32),)

    class MoE(onnx.reference.op_run.OpRun):
        op_domain = MS

        def _run(self, x, scores, w1, b1=None, w2=None, b2=None, w3=None, b3=None, k=None, activation_type=None, activation_alpha=1.0,
                 activation_beta=0.0, swiglu_limit=None, swiglu_fusion=0, swiglu_limit_after_activation=0, normalize_routing_weights=0):
            rows, limit = x.reshape(-1, x.shape[-1]).astype(np.float64), np.inf if swiglu_limit is None else swiglu_limit
            shares = np.exp(scores - scores.max(-1, keepdims=True))
            shares /= shares.sum(-1, keepdims=True)
            y = np.zeros_like(rows)
            for t, (row, share) in enumerate(zip(rows, shares)):
                best = np.argsort(-share, kind="stable")[:k]
                for e in best:
                    h = w1[e] @ row + (0 if b1 is None else b1[e])
                    gate, value = (h[0::2], h[1::2]) if swiglu_fusion == 1 else np.split(h, 2) if swiglu_fusion else (h, None)
                    if w3 is not None:
                        value = w3[e] @ row + (0 if b3 is None else b3[e])
                    if activation_type == "swiglu":
                        held = gate if swiglu_limit_after_activation else np.minimum(gate, limit)
                        held = held / (1 + np.exp(-activation_alpha * held))
                        held = np.minimum(held, limit) if swiglu_limit_after_activation else held
                        h = held * (np.clip(value, -limit, limit) + activation_beta)
                    else:
                        h = {"silu": lambda: gate / (1 + np.exp(-gate)), "relu2": lambda: np.maximum(gate, 0) ** 2,
                             "geglu": lambda: gate * 0.5 * (1 + np.tanh(np.sqrt(2 / np.pi) * (gate + 0.044715 * gate ** 3)))}[activation_type]()
                        h = h if value is None else h * value
                    weight = share[e] / (share[best].sum() if normalize_routing_weights else 1)
                    y[t] += weight * (w2[e] @ h + (0 if b2 is None else b2[e]))
            return (y.reshape(x.shape).astype(np.float32),)


def experts():
    """Opset 17 and com.microsoft: mixtures of experts, in floating point and of few bits, over as many rows as there are."""
    n = Net("experts", 17)
    x, scores, shares = n.input("x", ["b", "t", 32]), n.input("scores", ["rows", 5]), n.input("shares", ["rows", 5])
    shares = n.op("Abs", shares)

    def bits_of(bits, columns, terms, block, zeros):
        scales = 0.01 + 0.05 * n.rng.random((5, columns, terms // block) if block else (5, columns))
        packed = (5, columns, (terms // block * bits + 7) // 8) if block else (5, (columns * bits + 7) // 8)
        return [n.const(n.rng.integers(0, 256, (5, columns, terms * bits // 8)).astype(U8)), n.const(scales.astype(np.float32)),
                n.const(n.rng.integers(0, 256, packed).astype(U8)) if zeros else ""]

    swiglu = {"activation_alpha": 1.702, "activation_beta": 1.0, "swiglu_limit": 0.7, "swiglu_fusion": 1}
    for kind, k, bias, norm, attrs in (("relu", 1, True, 0, {}), ("gelu", 2, False, 0, {}), ("silu", 5, True, 1, {}), ("identity", 2, True, 0, {}),
                                       ("swiglu", 2, True, 1, swiglu)):
        wide = 32 if kind == "swiglu" else 16
        ins = [n.weight(5, wide, 32), n.weight(5, wide) if bias else "", n.weight(5, 32, 16), n.weight(5, 32) if bias else ""]
        n.output(n.op("MoE", x, scores, *ins, k=k, activation_type=kind, normalize_routing_weights=norm, domain=MS, **attrs))
    for kind, bits, block, zeros, bias, last, attrs in (("relu", 4, 16, False, True, [], {}), ("silu", 4, 16, True, False, [], {}),
                                                        ("gelu", 8, 0, True, True, [], {}), ("silu", 4, 0, True, True, [], {}),
                                                        ("silu", 2, 16, True, True, [shares], {"normalize_routing_weights": 1}),
                                                        ("swiglu", 4, 16, False, True, [shares], swiglu)):
        wide = 32 if kind == "swiglu" else 16
        w1, s1, z1 = bits_of(bits, wide, 32, block, zeros)
        w2, s2, z2 = bits_of(bits, 32, 16, block, zeros)
        b1, b2 = (n.weight(5, wide), n.weight(5, 32)) if bias else ("", "")
        attrs = {**attrs, **({"block_size": block} if block else {})}
        n.output(n.op("QMoE", x, scores, w1, s1, b1, w2, s2, b2, "", "", "", z1, z2, "", *last, k=2, activation_type=kind, expert_weight_bits=bits,
                      weights_prepacked=0, domain=MS, **attrs))
    return n.model(), [{"x": (b, t, 32), "scores": (b * t, 5), "shares": (b * t, 5)} for b, t in ((2, 9), (1, 1), (3, 20))]


def experts_spec():
    """Opset 17 and com.microsoft: mixtures of experts as GPUs have them: three layers, halves side by side, other activations."""
    n = Net("experts_spec", 17)
    x, scores = n.input("x", ["t", 8]), n.input("scores", ["t", 4])
    swiglu = {"activation_alpha": 1.5, "activation_beta": 0.5, "swiglu_limit": 0.6}
    for kind, fusion, third, attrs in (("swiglu", 2, False, swiglu), ("swiglu", 0, True, {}), ("silu", 0, True, {}), ("geglu", 1, False, {}),
                                       ("geglu", 2, False, {}), ("relu2", 0, False, {}), ("swiglu", 1, False, {**swiglu, "swiglu_limit_after_activation": 1})):
        wide = 12 if fusion else 6
        ins = [n.weight(4, wide, 8, scale=3), n.weight(4, wide), n.weight(4, 8, 6), n.weight(4, 8)] + ([n.weight(4, 6, 8), n.weight(4, 6)] if third else [])
        n.output(n.op("MoE", x, scores, *ins, k=2, activation_type=kind, swiglu_fusion=fusion, domain=MS, **attrs))
    return n.model(), [{"x": (t, 8), "scores": (t, 4)} for t in (7, 1)]


def diffusion_spec():
    """Opset 17 and com.microsoft: what onnxruntime's optimiser makes of diffusion models, encoders and decoders for GPUs."""
    n = Net("diffusion_spec", 17)
    image, x = n.input("image", ["b", "h", "w", 8]), n.input("x", ["b", "t", 16])
    q, packed, two = n.input("q", ["b", "t", 8]), n.input("packed", ["b", "t", 2, 3, 4]), n.input("two", ["b", "s", 2, 2, 4])
    scale, shift, bias = n.weight(8, base=1), n.weight(8), n.weight(8)
    first = n.op("Transpose", image, perm=[0, 3, 1, 2])
    n.output(n.op("GroupNorm", image, scale, shift, groups=4, activation=1, epsilon=1e-3, domain=MS))
    n.output(n.op("GroupNorm", first, scale, shift, groups=2, activation=0, channels_last=0, domain=MS))
    rows = n.op("ReduceMean", image, axes=[1, 2], keepdims=0)
    for ins in ((image, bias), (rows, bias), (rows,)):
        for out in n.op("SkipGroupNorm", image, scale, shift, *ins, outs=2, groups=4, activation=1, domain=MS):
            n.output(out)
    for out in n.op("SkipGroupNorm", first, scale, shift, rows, bias, outs=2, groups=4, activation=0, channels_last=0, domain=MS):
        n.output(out)
    window = {"kernel_shape": [3, 2], "pads": [1, 0, 1, 1], "domain": MS}
    n.output(n.op("NhwcConv", image, n.weight(6, 3, 2, 8), n.weight(6), strides=[2, 1], **window))
    n.output(n.op("NhwcConv", image, n.weight(8, 3, 2, 4), strides=[1, 1], group=2, **window))
    n.output(n.op("NhwcFusedConv", image, n.weight(8, 8, 3, 2), n.weight(8), image, strides=[1, 1], activation="Relu", **window))
    n.output(n.op("BiasAdd", image, bias, image, domain=MS))
    n.output(n.op("BiasSplitGelu", x, n.weight(16), domain=MS))
    n.output(n.op("GemmFastGelu", x, n.weight(16, 5), n.weight(5), domain=MS))
    n.output(n.op("GemmFastGelu", x, n.weight(16, 5), domain=MS))
    n.output(n.op("BiasSoftmax", x, n.weight(16), axis=2, is_inner_broadcast=0, domain=MS))
    n.output(n.op("BiasSoftmax", x, n.weight(16), axis=1, is_inner_broadcast=0, domain=MS))
    n.output(n.op("MultiHeadAttention", packed, num_heads=2, domain=MS))
    n.output(n.op("MultiHeadAttention", packed, "", "", n.weight(24), num_heads=2, domain=MS))
    n.output(n.op("MultiHeadAttention", q, two, "", n.weight(24), num_heads=2, domain=MS))
    sets = [{"image": (b, h, w, 8), "x": (b, t, 16), "q": (b, t, 8), "packed": (b, t, 2, 3, 4), "two": (b, s, 2, 2, 4)}
            for b, h, w, t, s in ((2, 5, 4, 3, 6), (1, 3, 7, 5, 5))]
    return n.model(), sets


def edges():
    """Opset 18: bounds that are computed and of either sign, and what lies at the edge of an operator's meaning."""
    n = Net("edges", 18)
    x, t, k, image = n.input("x", ["p", 4]), n.input("t", ["t"]), n.input("k", [5], I64), n.input("image", [1, 2, 5, 6])
    zero, axis = n.ints(0), n.ints(0)
    length, rows = n.op("Shape", t), n.op("Slice", n.op("Shape", x), n.ints(0), n.ints(1))
    minus = n.op("Sub", zero, length)
    difference = n.op("Sub", rows, length)
    end = n.ints(2 ** 62)
    n.output(n.op("Slice", x, minus, end, axis))  # x[-t:]
    n.output(n.op("Slice", x, zero, minus, axis))  # x[:-t]
    n.output(n.op("Slice", x, zero, difference, axis))  # x[:p - t], where t may be the larger
    n.output(n.op("Slice", x, difference, n.ints(-2 ** 62), axis, n.ints(-2)))
    n.output(n.op("Slice", x, n.op("Neg", rows), minus, axis, n.ints(-1)))
    n.output(n.op("Slice", x, n.ints(-100), n.ints(-101), n.ints(1), n.ints(-1)))  # a start below -4 is 0
    n.output(n.op("Pad", x, n.op("Concat", length, zero, zero, n.ints(1), axis=0)))
    n.output(n.op("Pad", x, n.op("Concat", n.ints(1), zero, length, zero, axis=0), mode="edge"))
    n.output(n.op("Pad", x, n.op("Concat", length, zero, n.ints(2), zero, axis=0), mode="wrap"))

    def scalar(v):
        return n.op("Squeeze", v, zero)

    n.output(n.op("Range", scalar(minus), scalar(rows), n.const(np.int64(3))), dtype=I64)
    n.output(n.op("Range", scalar(rows), scalar(minus), n.const(np.int64(-2))), dtype=I64)
    n.output(n.op("Neg", t))
    n.output(n.op("Compress", x, n.const(np.array([1, 0, 1, 1, 0, 1, 1], bool)), axis=0))
    n.output(n.op("Pow", k, n.const(np.float32(11))), dtype=I64)
    n.output(n.op("Pow", k, n.const(np.float32(0.5))), dtype=I64)
    n.output(n.op("ReduceL2", k, keepdims=0), dtype=I64)
    n.output(n.op("ReduceLogSumExp", k, keepdims=0), dtype=I64)
    for shape, pad in (([14, 12], "NOTSET"), ([13, 11], "SAME_UPPER"), ([14, 11], "SAME_LOWER")):
        n.output(n.op("ConvTranspose", image, n.weight(2, 1, 5, 4), strides=[3, 2], output_shape=shape, auto_pad=pad))
    return n.model(), [{"x": (p, 4), "t": (t,), "k": (5,), "image": (1, 2, 5, 6)} for p, t in ((7, 2), (2, 5), (3, 3), (9, 1))]


def sizes_of_inputs():
    """Opset 18: sizes, bounds, counts and scales that are inputs of the graph, and such as are computed of inputs."""
    n = Net("sizes_of_inputs", 18)
    x, image, flat = n.input("x", ["p", 6]), n.input("image", [1, 2, 5, "w"]), n.input("flat", [24])
    size, scale, k = n.input("size", [1], I64), n.input("scale", [1]), n.input("k", [1], I64)
    start, end, step = (n.input(name, [], I64) for name in ("start", "end", "step"))
    pads, rows = n.input("pads", [2], I64), n.input("rows", [2], I64)
    one, zero = n.ints(1), n.ints(0)
    whole = n.op("Cast", n.op("Mul", scale, n.const(np.float32(4))), to=I64)
    first = n.op("Unsqueeze", start, zero)
    for mode in ("linear", "nearest", "cubic"):
        n.output(n.op("Resize", image, "", "", n.op("Concat", n.ints(1, 2, 4), whole, axis=0), mode=mode))
        n.output(n.op("Resize", image, "", n.op("Concat", n.const(np.float32([1, 1, 1])), scale, axis=0), mode=mode))
    n.output(n.op("Resize", image, "", "", n.op("Concat", n.ints(1), n.op("Slice", rows, zero, one), n.ints(5), size, axis=0), mode="linear", antialias=1))
    n.output(n.op("Tile", flat, size))
    n.output(n.op("Expand", n.op("Unsqueeze", flat, n.ints(1)), n.op("Concat", one, size, axis=0)))
    n.output(n.op("ConstantOfShape", size))
    n.output(n.op("Reshape", flat, n.op("Concat", n.ints(-1), k, axis=0)))
    n.output(n.op("Reshape", flat, n.op("Concat", n.op("Div", n.ints(24), k), k, axis=0)))
    n.output(n.op("Pad", flat, pads))
    n.output(n.op("Pad", flat, pads, mode="edge"))
    n.output(n.op("Slice", x, first, n.op("Unsqueeze", end, zero), one))
    n.output(n.op("Slice", x, rows, n.ints(2 ** 62, -1)))
    left, right = n.op("Split", n.op("Transpose", x, perm=[1, 0]), n.op("Concat", k, n.op("Sub", n.ints(6), k), axis=0), axis=0, outs=2)
    n.output(left)
    n.output(right)
    values, indices = n.op("TopK", x, k, outs=2)
    n.output(values)
    n.output(indices, dtype=I64)
    values, indices = n.op("TopK", x, n.op("Min", n.op("Shape", x, end=1), k), axis=0, largest=0, outs=2)
    n.output(values)
    n.output(indices, dtype=I64)
    n.output(n.op("OneHot", rows, n.op("Squeeze", size), n.const(np.float32([-1, 2]))))
    n.output(n.op("Range", start, end, step), dtype=I64)
    half = n.op("Mul", n.op("Cast", start, to=F32), n.const(np.float32(0.5)))
    n.output(n.op("Range", half, n.op("Cast", end, to=F32), n.const(np.float32(0.25))))
    n.output(n.op("Trilu", x, start, upper=0))
    return n.model(), [
        {"x": (p, 6), "image": (1, 2, 5, w), "flat": (24,), "size": np.int64([size]), "scale": np.float32([scale]), "k": np.int64([k]),
         "start": np.array(start), "end": np.array(end), "step": np.array(step), "pads": np.int64(pads), "rows": np.int64(rows)}
        for p, w, size, scale, k, start, end, step, pads, rows in (
            (5, 6, 9, 2, 3, 0, 5, 1, [2, 0], [2, 4]), (7, 4, 3, 0.75, 2, -3, -1, 1, [0, 3], [2, 1]),
            (4, 8, 1, 1, 4, 1, 10, 4, [0, 0], [2, 5]), (6, 16, 40, 2.5, 1, 4, -9, -2, [5, 4], [2, 0]))]


def gates():
    """Opset 17 and com.microsoft: norms by groups and gates beside linear attention, positions in three streams; f32 and f16."""
    n = Net("gates", 17)
    x, gate, a = n.input("x", ["b", "t", 24]), n.input("gate", ["b", "t", 24]), n.input("a", ["b", "t", 6])
    half = lambda v: n.op("Cast", v, to=F16)
    one = n.op("Slice", gate, n.ints(0), n.ints(1), n.ints(2))
    for cast, kind in ((lambda v: v, F32), (half, F16)):
        n.output(n.op("GatedRMSNorm", cast(x), cast(n.weight(6, base=1.0)), cast(gate), epsilon=1e-5, domain=MS), dtype=kind)
        n.output(n.op("GatedRMSNorm", cast(x), cast(n.weight(24, base=1.0)), cast(gate), activation="sigmoid", domain=MS), dtype=kind)
        n.output(n.op("ScaledSiLU", cast(x), domain=MS, alpha=0.7), dtype=kind)
        for out in n.op("LinearAttentionGate", cast(a), n.weight(6), n.weight(6), cast(a), outs=2, domain=MS):
            n.output(out, dtype=kind)
    n.output(n.op("GatedAdd", x, gate, one, domain=MS))
    n.output(n.op("ScaledSiLU", x, n.const(np.float32(1.5)), domain=MS))
    n.output(n.op("ScaledSiLU", x, domain=MS))
    n.output(n.op("LinearAttentionGate", a, n.weight(6), n.weight(6), domain=MS))
    for scale in ([], [n.weight(8, base=1.0)], [n.weight(3, 8, base=1.0)], [n.weight(24, base=1.0)]):
        n.output(n.op("BranchwiseRMSNorm", x, *scale, num_branches=3, epsilon=1e-3, domain=MS))
    n.output(n.op("BranchwiseRMSNorm", n.op("Reshape", x, n.ints(0, 0, 4, 6)), n.weight(6), domain=MS))
    at = n.input("at", [3, "b", "t"], I64)
    tables = n.weight(32, 6), n.weight(32, 6)
    heads = n.op("Transpose", n.op("Reshape", x, n.ints(0, 0, 2, 12)), perm=[0, 2, 1, 3])
    for attrs in (dict(mrope_section=[1, 3, 2]), dict(mrope_section=[2, 2, 2], mrope_layout=1), dict(mrope_section=[4, 1, 1], mrope_layout=1, interleaved=1)):
        n.output(n.op("MRotaryEmbedding", x, at, *tables, num_heads=2, domain=MS, **attrs))
        n.output(n.op("MRotaryEmbedding", heads, at, *tables, domain=MS, **attrs))
    narrow = n.weight(32, 3), n.weight(32, 3)
    n.output(n.op("MRotaryEmbedding", x, at, *narrow, num_heads=2, rotary_embedding_dim=6, mrope_section=[1, 1, 1], domain=MS))
    return n.model(), [{"x": (b, t, 24), "gate": (b, t, 24), "a": (b, t, 6), "at": (3, b, t)} for b, t in ((2, 5), (1, 1))]


FIXTURES = [resnet_like, inception_like, mobilenet_like, bert_like, shapes, mlp_external, typed_data, recurrent, upsampler,
            einsum, fused, quantized, half, bfloat_spec, written_rows, unsorted, ties, functions,
            attention, group_query, decoder, few_bits, nibble_rows, packed_spec, quantized_more, quantized_ties, blocks, newer, newest_spec, found, detector, proposals, uniques,
            edges, transposed, tails, narrow_spec, narrow_codes_spec, bits_spec, sampled, deformed_spec, batch_scan, sequences, resized, odd_sizes, levels, windows, two_names, small_sizes, weighted_means,
            small_deviations, neighbours, long_transforms_spec,
            shrunk, inner_names, fused_more, recurrences_fused, experts, experts_spec, diffusion_spec, sizes_of_inputs, gates]


def feed(net, info, shape, rng):
    """Random numbers of a shape, or an array as it is."""
    if isinstance(shape, (np.ndarray, list)):
        return shape
    if info.type.tensor_type.elem_type == I64:
        return rng.integers(0, 32, shape, dtype=np.int64)
    return rng.standard_normal(shape).astype(np.float32)


def write(out, fixture):
    model, sets = fixture()
    name = fixture.__name__
    folder = os.path.join(out, name)
    os.makedirs(folder, exist_ok=True)
    path = os.path.join(folder, "model.onnx")
    if name.endswith("_external"):
        onnx.save(model, path, save_as_external_data=True, location="weights.bin", size_threshold=256)
    else:
        onnx.save(model, path)
    own = [op for op in vars(Microsoft).values() if isinstance(op, type)]
    run = onnx.reference.ReferenceEvaluator(model, new_ops=own).run if name.endswith("_spec") else onnxruntime.InferenceSession(path).run
    rng = np.random.default_rng(zlib.crc32((name + "/feed").encode()))
    for k, shapes_ in enumerate(sets):
        data = os.path.join(folder, f"test_data_set_{k}")
        os.makedirs(data, exist_ok=True)
        feeds = {i.name: feed(name, i, shapes_[i.name], rng) for i in model.graph.input}
        names = [o.name for o in model.graph.output]
        for kind, items in (("input", feeds.items()), ("output", zip(names, run(names, feeds)))):
            for i, (tensor, array) in enumerate(items):
                with open(os.path.join(data, f"{kind}_{i}.pb"), "wb") as f:
                    make = numpy_helper.from_list if isinstance(array, list) else numpy_helper.from_array
                    f.write(make(array, tensor).SerializeToString())


def main():
    if len(sys.argv) < 2 or sys.argv[1] in ("-h", "--help"):
        sys.exit(__doc__)
    for fixture in FIXTURES:
        if len(sys.argv) == 2 or fixture.__name__ in sys.argv[2:]:
            write(sys.argv[1], fixture)


if __name__ == "__main__":
    main()
