#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Random ONNX models against onnxruntime: what importing makes of computed shapes, odd bounds, empty dims, all types.

usage: fuzz_onnx.py CONFORMANCE OUT [--seconds N] [--seed N] [--batch N]

Each model is run with the sizes of its inputs as numbers, and with variables (where a model holds for some sizes only, which
is refused then, as is what holds only if a size that depends on data equals another). Each model is a chain of nodes whose operands are inputs, constants, earlier results, and shapes computed from these; dims of
inputs are numbers, names or unknown. Expected outputs come from onnxruntime without optimisations. CONFORMANCE
(build/tests/conformance) runs a batch of models with the reference evaluator and with compiled plans; where it differs,
ONNX's reference implementation is asked, and a model on which it agrees with onnxruntime is kept in OUT and counted as failed.
The last line is "N passed, N failed, N skipped": skipped are refusals, listed by reason, and disputes of the two oracles.
Needs the Python packages onnx, onnxruntime and numpy.
"""
import argparse
import collections
import os
import re
import shutil
import subprocess
import time
import warnings

import numpy as np
import onnx
import onnxruntime as ort
from onnx import helper, numpy_helper
from onnx.reference import ReferenceEvaluator

warnings.simplefilter("ignore")
OPSET = 18
FLOATS = (np.float32, np.float64)
NUMBERS = FLOATS + (np.int32, np.int64)
SIZES = [0, 1, 1, 1, 2, 2, 3, 3, 4, 5, 7, 8, 9, 15, 16, 17, 31, 33]
MOST = 20000  # elements of a value


# Results that are rounded, and operators that turn a difference in the last place into a whole one.
ROUNDED = {"Sigmoid", "Tanh", "Exp", "Erf", "Sqrt", "Softplus", "Div", "Softmax", "LogSoftmax", "LayerNormalization", "Resize",
           "AveragePool", "GlobalAveragePool", "ReduceMean", "ReduceL2", "ReduceLogSumExp", "MatMul", "Gemm", "Conv", "ConvTranspose"}
STEPS = {"Floor", "Ceil", "Round", "Sign", "Less", "Greater", "Equal", "LessOrEqual", "ArgMax", "ArgMin", "TopK", "Cast", "QuantizeLinear",
         "Mod", "NonZero", "Compress"}


class Refused(Exception):
    """This node cannot be; another is tried."""


class Model:
    def __init__(self, seed):
        self.rng = np.random.default_rng(seed)
        self.nodes, self.inits, self.inputs = [], [], []
        self.values = {}  # name: array
        self.dims = {}  # name of a dim: its size
        self.used = set()
        self.rounded = set()  # names of values that may differ in the last place
        self.n = 0

    # --- chance
    def pick(self, items):
        return items[int(self.rng.integers(len(items)))]

    def chance(self, percent):
        return self.rng.integers(100) < percent

    def number(self, low, high):
        return int(self.rng.integers(low, high + 1))

    def data(self, shape, dtype):
        if dtype == np.bool_:
            return self.rng.integers(0, 2, shape).astype(bool)
        if dtype in FLOATS or dtype == np.float16:
            return (self.rng.integers(-16, 17, shape) / 4).astype(dtype)
        return self.rng.integers(0 if dtype == np.uint8 else -9, 10, shape).astype(dtype)

    # --- values
    def name(self):
        self.n += 1
        return f"v{self.n}"

    def const(self, value, dtype=None):
        name = self.name()
        value = np.asarray(value, dtype) if dtype is not None else np.asarray(value)
        self.inits.append(numpy_helper.from_array(value, name))
        self.values[name] = value
        return name

    def input(self, dtype=None):
        dtype = dtype or self.pick([np.float32] * 6 + [np.float64, np.int64, np.int32, np.uint8, np.bool_])
        shape, dims = [], []
        for _ in range(self.number(0, 4)):
            size, kind = self.pick(SIZES), self.number(0, 9)
            if kind < 2 and size:
                name = self.pick(["n", "m", "seq"])
                size = self.dims.setdefault(name, size)
                dims.append(name)
            else:
                dims.append(None if kind == 2 and size else size)
            shape.append(size)
        if np.prod(shape, dtype=np.int64) > MOST // 4:
            raise Refused
        name = f"x{len(self.inputs)}"
        self.inputs.append((name, helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(np.dtype(dtype)), dims)))
        self.values[name] = self.data(shape, dtype)
        return name

    def some(self, accept=lambda v: True):
        names = [k for k in self.values if k not in self.hidden() and accept(self.values[k])]
        if not names or self.chance(8):
            name = self.input()
            if not accept(self.values[name]):
                raise Refused
            return name
        return names[-1 - min(int(self.rng.exponential(3)), len(names) - 1)] if self.chance(70) else self.pick(names)

    def hidden(self):
        return {t.name for t in self.inits}

    def floats(self):
        return self.some(lambda v: v.dtype in FLOATS)

    def like(self, a):
        """An operand that broadcasts with a, of its type."""
        v = self.values[a]
        if self.chance(40):
            fit = [k for k in self.values if self.values[k].dtype == v.dtype and broadcasts(self.values[k].shape, v.shape)]
            if fit:
                return self.pick(fit)
        shape = [1 if self.chance(40) else s for s in v.shape][self.number(0, v.ndim):] if v.ndim else []
        return self.const(self.data(shape, v.dtype.type))

    def add(self, kind, *ins, outs=1, opset_domain="", **attrs):
        rounded = any(k in self.rounded for k in ins)
        if kind in STEPS and rounded:
            raise Refused
        names = [self.name() for _ in range(outs)]
        node = helper.make_node(kind, list(ins), names, domain=opset_domain, **attrs)
        feeds = {k: self.values[k] for k in ins if k}
        infos = [helper.make_tensor_value_info(k, helper.np_dtype_to_tensor_dtype(v.dtype), v.shape) for k, v in feeds.items()]
        graph = helper.make_graph([node], "g", infos, [onnx.ValueInfoProto(name=k) for k in names])
        try:
            got = ReferenceEvaluator(helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)])).run(None, feeds)
        except Exception as e:
            raise Refused from e
        got = [np.asarray(g) for g in got]
        for g in got:
            if g.size > MOST or g.dtype.kind not in "fiub" or g.ndim > 6:
                raise Refused
            if g.dtype.kind == "f" and g.size and not np.all(np.abs(g[np.isfinite(g)]) < 1e5):
                raise Refused
        self.nodes.append(node)
        self.rounded.update(k for k, g in zip(names, got) if g.dtype.kind == "f" and (rounded or kind in ROUNDED))
        self.used.update(k for k in ins if k)
        for k, g in zip(names, got):
            self.values[k] = g
        return names[0] if outs == 1 else names

    # --- shapes
    def size_of(self, of=None):
        """A scalar in a list of one: a number, or one computed from some shape."""
        if self.chance(40):
            return self.const([self.number(-3, 9)], np.int64)
        x = of or self.some(lambda v: v.ndim > 0)
        s = self.add("Gather", self.add("Shape", x), self.const([self.number(0, max(self.values[x].ndim - 1, 0))], np.int64))
        how = self.number(0, 6)
        if how == 0:
            return self.add("Neg", s)
        if how == 1:
            return self.add("Sub", s, self.const([self.number(0, 6)], np.int64))
        if how == 2:
            return self.add("Div", s, self.const([self.number(1, 3)], np.int64))
        if how == 3:
            return self.add("Mul", s, self.const([self.number(1, 2)], np.int64))
        return s

    def shape_list(self, sizes, of=None):
        """These sizes as a constant, or in part taken from shapes that have them."""
        parts, dynamic = [], self.chance(50)
        for s in sizes:
            found = None
            for k, v in self.values.items():
                if dynamic and v.ndim and s in v.shape and k not in self.hidden() and self.chance(60):
                    found = self.add("Gather", self.add("Shape", k), self.const([v.shape.index(s)], np.int64))
                    break
            parts.append(found or self.const([s], np.int64))
        if not dynamic or not parts:
            return self.const(sizes, np.int64)
        return self.add("Concat", *parts, axis=0)


def broadcasts(a, b):
    return all(x == y or x == 1 or y == 1 for x, y in zip(reversed(a), reversed(b)))


# --- kinds of nodes


def unary(m):
    m.add(m.pick(["Neg", "Abs", "Relu", "Sigmoid", "Tanh", "Exp", "Floor", "Ceil", "Round", "Sign", "Erf", "Sqrt", "Softplus"]), m.floats())


def binary(m):
    a = m.some(lambda v: v.dtype in NUMBERS)
    m.add(m.pick(["Add", "Sub", "Mul", "Min", "Max", "Div"]), *([a, m.like(a)] if m.chance(60) else [m.like(a), a]))


def compare(m):
    a = m.some(lambda v: v.dtype in NUMBERS)
    c = m.add(m.pick(["Less", "Greater", "Equal", "LessOrEqual"]), a, m.like(a))
    if m.chance(60):
        b = m.like(a)
        m.add("Where", c, a, b)


def cast(m):
    m.add("Cast", m.some(), to=m.pick([1, 11, 6, 7, 9, 1, 7]))


def clip(m):
    a = m.some(lambda v: v.dtype in NUMBERS)
    t = m.values[a].dtype
    m.add("Clip", a, m.const(np.asarray(-2, t)) if m.chance(70) else "", m.const(np.asarray(3, t)) if m.chance(70) else "")


def reshape(m):
    a = m.some()
    v = m.values[a]
    sizes = list(v.shape)
    m.rng.shuffle(sizes)
    if len(sizes) > 1 and m.chance(50):
        sizes = [sizes[0] * sizes[1]] + sizes[2:]
    elif m.chance(30):
        sizes = [1] + sizes
    if sizes and m.chance(40):
        sizes[m.number(0, len(sizes) - 1)] = -1
    m.add("Reshape", a, m.shape_list([int(s) for s in sizes]), **({"allowzero": 1} if 0 in sizes else {}))


def transpose(m):
    a = m.some(lambda v: v.ndim > 0)
    m.add("Transpose", a, perm=[int(i) for i in m.rng.permutation(m.values[a].ndim)])


def expand(m):
    a = m.some()
    sizes = [m.pick(SIZES) if s == 1 else s for s in m.values[a].shape]
    if m.chance(30):
        sizes = [m.number(1, 3)] + sizes
    m.add("Expand", a, m.shape_list([int(s) for s in sizes]))


def slice_(m):
    a = m.some(lambda v: v.ndim > 0)
    v = m.values[a]
    axis = m.number(0, v.ndim - 1)
    odd = [0, 1, 2, -1, -2, -3, 5, 40, -40, 2**31 - 1, -(2**31), 2**63 - 1, -(2**63)]
    start = m.const([m.pick(odd)], np.int64) if m.chance(50) else m.size_of(a)
    end = m.const([m.pick(odd)], np.int64) if m.chance(50) else m.size_of(a)
    step = m.const([m.pick([1, 1, 1, 2, 3, -1, -2])], np.int64)
    m.add("Slice", a, start, end, m.const([axis - (v.ndim if m.chance(30) else 0)], np.int64), step)


def pad(m):
    a = m.some(lambda v: v.dtype in NUMBERS and v.ndim > 0)
    v = m.values[a]
    mode = m.pick(["constant", "constant", "reflect", "edge"])
    pads = [m.number(-1, 3) if m.chance(50) else 0 for _ in range(2 * v.ndim)]
    if mode == "reflect":
        pads = [min(p, s - 1) for p, s in zip(pads, v.shape * 2)]
    ins = [a, m.const(pads, np.int64)]
    if mode == "constant" and m.chance(50):
        ins.append(m.const(np.asarray(2, v.dtype)))
    m.add("Pad", *ins, mode=mode)


def concat(m):
    a = m.some(lambda v: v.ndim > 0)
    v = m.values[a]
    axis = m.number(0, v.ndim - 1)
    fits = [k for k, w in m.values.items() if w.dtype == v.dtype and w.ndim == v.ndim
            and all(x == y for i, (x, y) in enumerate(zip(w.shape, v.shape)) if i != axis)]
    m.add("Concat", *[m.pick(fits) for _ in range(m.number(1, 4))], axis=axis - (v.ndim if m.chance(30) else 0))


def split(m):
    a = m.some(lambda v: v.ndim > 0)
    v = m.values[a]
    axis = m.number(0, v.ndim - 1)
    cut = m.number(0, v.shape[axis])
    m.add("Split", a, m.const([cut, v.shape[axis] - cut], np.int64), outs=2, axis=axis)


def gather(m):
    a = m.some(lambda v: v.ndim > 0 and v.size)
    v = m.values[a]
    axis = m.number(0, v.ndim - 1)
    size = v.shape[axis]
    ids = m.rng.integers(-size, size, [m.number(1, 4) for _ in range(m.number(0, 2))])
    m.add("Gather", a, m.const(ids, m.pick([np.int64, np.int32])), axis=axis)


def gather_elements(m):
    a = m.some(lambda v: v.ndim > 0 and v.size)
    v = m.values[a]
    axis = m.number(0, v.ndim - 1)
    shape = [m.number(1, s) for s in v.shape]
    m.add("GatherElements", a, m.const(m.rng.integers(-v.shape[axis], v.shape[axis], shape), np.int64), axis=axis)


def scatter(m):
    a = m.some(lambda v: v.ndim > 0 and v.size and v.dtype in NUMBERS)
    v = m.values[a]
    axis = m.number(0, v.ndim - 1)
    shape = list(v.shape)
    shape[axis] = m.number(1, shape[axis])
    ids = np.stack([m.rng.permutation(v.shape[axis])[: shape[axis]] for _ in range(1)])
    ids = np.broadcast_to(ids.reshape([shape[axis] if i == axis else 1 for i in range(v.ndim)]), shape)
    m.add("ScatterElements", a, m.const(ids, np.int64), m.const(m.data(shape, v.dtype.type)), axis=axis,
          reduction=m.pick(["none", "add", "max"]))


def squeeze(m):
    a = m.some()
    v = m.values[a]
    ones = [i for i, s in enumerate(v.shape) if s == 1]
    if ones and m.chance(50):
        m.add("Squeeze", a, m.const([m.pick(ones)], np.int64))
    else:
        m.add("Unsqueeze", a, m.const([m.number(0, v.ndim)], np.int64))


def tile(m):
    a = m.some(lambda v: v.ndim > 0)
    m.add("Tile", a, m.const([m.number(0, 3) if m.chance(50) else 1 for _ in m.values[a].shape], np.int64))


def range_(m):
    end = m.add("Squeeze", m.size_of())
    m.add("Range", m.const(np.int64(m.number(-2, 3))), end, m.const(np.int64(m.pick([1, 1, 2, -1]))))


def reduce(m):
    a = m.some(lambda v: v.dtype in NUMBERS)
    v = m.values[a]
    axes = [i for i in range(v.ndim) if m.chance(50)]
    kind = m.pick(["ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin", "ReduceL1", "ReduceL2", "ReduceSumSquare", "ReduceLogSumExp"])
    if 0 in v.shape and kind in ("ReduceMax", "ReduceMin", "ReduceMean"):
        raise Refused
    m.add(kind, *([a, m.const(axes, np.int64)] if axes else [a]), keepdims=m.number(0, 1))


def rows(m):
    a = m.floats()
    v = m.values[a]
    if not v.ndim or 0 in v.shape:
        raise Refused
    axis = m.number(-v.ndim, v.ndim - 1)
    how = m.number(0, 5)
    if how == 0:
        m.add("Softmax", a, axis=axis)
    elif how == 1:
        m.add("LogSoftmax", a, axis=axis)
    elif how == 2:
        m.add("LayerNormalization", a, m.const(m.data(v.shape[axis:], v.dtype.type)), axis=axis)
    elif how == 3:
        m.add(m.pick(["ArgMax", "ArgMin"]), a, axis=axis, keepdims=m.number(0, 1), select_last_index=m.number(0, 1))
    elif how == 4:
        m.add("CumSum", a, m.const(np.int64(axis)), exclusive=m.number(0, 1), reverse=m.number(0, 1))
    else:
        m.add("TopK", a, m.const([m.number(1, v.shape[axis])], np.int64), outs=2, axis=axis, largest=m.number(0, 1))


def matmul(m):
    a = m.some(lambda v: v.dtype in FLOATS and v.ndim > 0)
    v = m.values[a]
    k = v.shape[-1]
    shape = [k, m.pick(SIZES)] if m.chance(80) else [k]
    if v.ndim > 2 and m.chance(30):
        shape = [m.pick([1, s]) for s in v.shape[:-2]] + [k, m.pick(SIZES)]
    m.add("MatMul", a, m.const(m.data(shape, v.dtype.type)))


def gemm(m):
    a = m.some(lambda v: v.dtype == np.float32 and v.ndim == 2)
    v = m.values[a]
    ta, tb = m.number(0, 1), m.number(0, 1)
    k, n = v.shape[0 if ta else 1], m.pick(SIZES[1:])
    c = [m.const(m.data(m.pick([[n], [1], [], [1, n]]), np.float32))] if m.chance(60) else []
    m.add("Gemm", a, m.const(m.data([n, k] if tb else [k, n], np.float32)), *c, transA=ta, transB=tb, alpha=0.5, beta=2.0)


def image(m):
    """An operand with spatial dims."""
    if m.chance(50):
        return m.some(lambda v: v.dtype == np.float32 and 3 <= v.ndim <= 4 and min(v.shape) > 0)
    name = f"x{len(m.inputs)}"
    space = m.number(1, 2)
    shape = [m.number(1, 2), m.pick([1, 2, 4, 6, 16]), *[m.number(3, 12) for _ in range(space)]]
    dims = [s if m.chance(80) else f"d{m.n}_{i}" for i, s in enumerate(shape)]
    dims[1] = shape[1]
    m.inputs.append((name, helper.make_tensor_value_info(name, 1, dims)))
    m.values[name] = m.data(shape, np.float32)
    return name


def conv(m):
    a = image(m)
    v = m.values[a]
    space, c = v.ndim - 2, v.shape[1]
    groups = m.pick([g for g in (1, 1, 2, c) if c % g == 0])
    out = groups * m.number(1, 4)
    kernel = [m.number(1, 3) for _ in range(space)]
    attrs = dict(strides=[m.number(1, 2) for _ in range(space)], dilations=[m.number(1, 2) for _ in range(space)],
                 pads=[m.number(0, 2) for _ in range(2 * space)], group=groups)
    b = [m.const(m.data([out], np.float32))] if m.chance(50) else []
    if m.chance(75):
        m.add("Conv", a, m.const(m.data([out, c // groups, *kernel], np.float32)), *b, **attrs)
    else:
        m.add("ConvTranspose", a, m.const(m.data([c, m.number(1, 3), *kernel], np.float32)), strides=attrs["strides"], pads=[0, 1] * space)


def pool(m):
    a = image(m)
    sizes = m.values[a].shape[2:]
    space = len(sizes)
    how = m.number(0, 4)
    if how == 0:
        m.add(m.pick(["GlobalAveragePool", "GlobalMaxPool"]), a)
        return
    attrs = dict(kernel_shape=[m.number(2, 3) for _ in range(space)], strides=[m.number(1, 3) for _ in range(space)],
                 pads=[m.number(0, 1) for _ in range(2 * space)], ceil_mode=0)
    dilations = [m.number(1, 2) if how < 3 else 1 for _ in range(space)]
    # A window beyond all of the padded operand: the specification's size is 0 or less, while onnxruntime's division cuts it to 1.
    for d, size in enumerate(sizes):
        if (attrs["kernel_shape"][d] - 1) * dilations[d] + 1 > size + attrs["pads"][d] + attrs["pads"][space + d]:
            raise Refused
    if how < 3:
        m.add("MaxPool", a, dilations=dilations, **attrs)
    else:
        m.add("AveragePool", a, count_include_pad=m.number(0, 1), **attrs)


def resize(m):
    a = image(m)
    v = m.values[a]
    space = v.ndim - 2
    mode = m.pick(["nearest", "linear"])
    attrs = dict(mode=mode, coordinate_transformation_mode=m.pick(["asymmetric", "half_pixel", "align_corners"]))
    if mode == "nearest":
        attrs["nearest_mode"] = "floor"
    sizes = [int(s) for s in v.shape[:2]] + [m.number(1, 14) for _ in range(space)]
    m.add("Resize", a, "", "", m.shape_list(sizes), **attrs)


def choose(m):
    a = m.some(lambda v: v.ndim > 0)
    how = m.number(0, 3)
    if how == 0:
        m.add("NonZero", a)
    elif how == 1:
        v = m.values[a]
        axis = m.number(0, v.ndim - 1)
        c = [k for k, w in m.values.items() if w.dtype == np.bool_ and w.ndim == 1]
        c = m.pick(c) if c and m.chance(60) else m.const(m.data([v.shape[axis]], np.bool_))
        m.add("Compress", a, c, axis=axis)
    elif how == 2:
        m.add("ConstantOfShape", m.add("Shape", a), value=helper.make_tensor("v", 1, [1], [1.5]))
    else:
        m.add("Trilu", m.some(lambda v: v.ndim >= 2), m.const(np.int64(m.number(-2, 2))), upper=m.number(0, 1))


def misc(m):
    how = m.number(0, 4)
    if how == 0:
        a = m.some(lambda v: v.dtype in (np.int32, np.int64))
        m.add("OneHot", a, m.const(np.int64(m.number(1, 8))), m.const(np.asarray([0, 1], np.float32)), axis=-1)
    elif how == 1:
        a = m.some(lambda v: v.dtype in NUMBERS)
        m.add("Mod", a, m.like(a), fmod=1 if m.values[a].dtype in FLOATS else m.number(0, 1))
    elif how == 2:
        a = m.some(lambda v: v.dtype == np.float32)
        q = m.add("QuantizeLinear", a, m.const(np.float32(0.25)), m.const(np.uint8(m.number(0, 200))))
        m.add("DequantizeLinear", q, m.const(np.float32(0.25)), m.const(np.uint8(3)))
    elif how == 3:
        m.add("Flatten", m.some(), axis=m.number(0, 1))
    else:
        a = m.some(lambda v: v.dtype in (np.int64, np.int32))
        m.add("Pow", a, m.const(np.asarray(m.number(0, 3), m.pick([np.float32, np.int64]))))


KINDS = [(unary, 6), (binary, 12), (compare, 6), (cast, 4), (clip, 3), (reshape, 10), (transpose, 6), (expand, 7), (slice_, 14), (pad, 8),
         (concat, 10), (split, 4), (gather, 6), (gather_elements, 3), (scatter, 4), (squeeze, 4), (tile, 4), (range_, 3), (reduce, 8),
         (rows, 7), (matmul, 6), (gemm, 3), (conv, 6), (pool, 4), (resize, 4), (choose, 5), (misc, 5)]


def generate(seed):
    m = Model(seed)
    weights = np.array([w for _, w in KINDS], float)
    want, tries = m.number(1, 4) if m.chance(40) else m.number(5, 40), 0
    while len(m.nodes) < want and tries < 4 * want:
        tries += 1
        kind = KINDS[int(m.rng.choice(len(KINDS), p=weights / weights.sum()))][0]
        try:
            kind(m)
        except (Refused, ValueError):
            pass
    outs = [o for n in m.nodes for o in n.output if o not in m.used or m.chance(10)]
    if not outs:
        return None
    infos = [helper.make_tensor_value_info(k, helper.np_dtype_to_tensor_dtype(m.values[k].dtype), [None] * m.values[k].ndim) for k in outs]
    graph = helper.make_graph(m.nodes, f"seed{seed}", [i for _, i in m.inputs], infos, m.inits)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=9)
    return model, {k: m.values[k] for k, _ in m.inputs}


def write(folder, model, feeds, expected):
    data = os.path.join(folder, "test_data_set_0")
    os.makedirs(data)
    onnx.save(model, os.path.join(folder, "model.onnx"))
    for i, info in enumerate(model.graph.input):
        save(numpy_helper.from_array(feeds[info.name], info.name), f"{data}/input_{i}.pb")
    for i, info in enumerate(model.graph.output):
        save(numpy_helper.from_array(expected[i], info.name), f"{data}/output_{i}.pb")


def save(tensor, path):
    with open(path, "wb") as f:
        f.write(tensor.SerializeToString())


def runtime(model, feeds):
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level, options.intra_op_num_threads = 4, 1
    return ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"]).run(None, feeds)


def agree(a, b):
    return all(x.shape == y.shape and x.dtype == y.dtype and np.allclose(x, y, 1e-3, 1e-6, equal_nan=True) for x, y in zip(a, b))


def main():
    p = argparse.ArgumentParser()
    p.add_argument("conformance")
    p.add_argument("out")
    p.add_argument("--seconds", type=int, default=600)
    p.add_argument("--seed", type=int, default=int(time.time()) * 1000)
    p.add_argument("--batch", type=int, default=40)
    o = p.parse_args()
    end, seed, passed, failed, disputed = time.time() + o.seconds, o.seed, 0, 0, 0
    reasons = collections.Counter()
    os.makedirs(o.out, exist_ok=True)
    batch = os.path.join(o.out, "batch")
    while time.time() < end:
        shutil.rmtree(batch, ignore_errors=True)
        made = {}
        while len(made) < o.batch:
            seed += 1
            got = generate(seed)
            try:
                if got is None:
                    continue
                model, feeds = got
                expected = runtime(model, feeds)
            except Exception:  # onnxruntime refuses: no oracle
                continue
            write(f"{batch}/s{seed}", model, feeds, expected)
            made[f"s{seed}"] = (model, feeds, expected)
        bad = {}
        for how in (["-g", "-e", "reference"], ["-g", "-e", "plan"], ["-e", "plan"]):
            run = subprocess.run([o.conformance, "-v", "-n", "1e-4", *how, batch], capture_output=True, text=True, errors="replace")
            for line in run.stdout.splitlines():
                found = re.match(r"(\w+) +\S*/(s\d+):? *(.*)", line)
                if not found:
                    continue
                # with variables, or sizes that depend on data, a model may hold for some sizes only
                partial = "-g" not in how or any(n.op_type in ("NonZero", "Compress") for n in made[found[2]][0].graph.node)
                if found[1] == "FAIL" and partial and re.search("shape mismatch|out of range", line):
                    reasons["holds for some sizes only"] += how == ["-g", "-e", "plan"]
                elif found[1] == "FAIL":
                    bad.setdefault(found[2], f"{' '.join(how)}: {found[3]}")
                elif found[1] == "SKIP":
                    reasons[re.sub(r"[\d\"]+", "#", found[3])[:100]] += how == ["-g", "-e", "plan"]
            if run.returncode < 0 or run.returncode > 1:
                shutil.copytree(batch, f"{o.out}/crash{seed}", dirs_exist_ok=True)
                print(f"crash{seed}: {' '.join(how)}: status {run.returncode}", flush=True)
                failed += 1
        for name, why in bad.items():
            model, feeds, expected = made[name]
            try:
                judged = agree(expected, [np.asarray(v) for v in ReferenceEvaluator(model).run(None, feeds)])
            except Exception:
                judged = False
            if not judged:
                disputed += 1
                continue
            failed += 1
            shutil.copytree(f"{batch}/{name}", f"{o.out}/{name}", dirs_exist_ok=True)
            print(f"{name}: {why}", flush=True)
        passed += len(made) - len(bad)
    shutil.rmtree(batch, ignore_errors=True)
    for why, count in reasons.most_common(30):
        print(f"  {count:5} refused: {why}")
    skipped = sum(reasons.values()) + disputed
    print(f"{disputed} disputed by the oracles\n{passed - sum(reasons.values())} passed, {failed} failed, {skipped} skipped")
    return failed > 0


if __name__ == "__main__":
    raise SystemExit(main())
