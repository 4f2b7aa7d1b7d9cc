#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Writes architectures that people use, small, with random weights and dims that stay variable.

usage: architectures.py OUT [NAME ...]

OUT/NAME/model.onnx, and for several sizes of its variables OUT/NAME/test_data_set_K/input_*.pb and output_*.pb, where the
outputs are onnxruntime's. `ashlar run --check OUT/NAME` compares. Needs onnx, numpy and onnxruntime (bench/setup.sh).
"""
import math
import os
import sys

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

F32, I64, BOOL = TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL


class Net:
    """A graph under construction: calls append nodes and return the name of their first result."""

    def __init__(self, seed=0, parent=None):
        self.nodes, self.constants, self.inputs, self.outputs = [], [], [], []
        self.random = np.random.default_rng(seed) if parent is None else parent.random
        self.root = self if parent is None else parent.root
        if parent is None:
            self.count = 0

    def name(self, base="v"):
        self.root.count += 1
        return f"{base}{self.root.count}"

    def op(self, kind, *ins, outs=1, domain="", **attributes):
        names = [self.name(kind.lower()) for _ in range(outs)]
        ins = [self.constant(i) if not isinstance(i, str) else i for i in ins]
        self.nodes.append(helper.make_node(kind, ins, names, domain=domain, **attributes))
        return names[0] if outs == 1 else names

    def constant(self, value):
        if isinstance(value, float):
            value = np.float32(value)
        name = self.name("c")
        value = np.asarray(value)
        if value.dtype == np.float64:
            value = value.astype(np.float32)
        self.root.constants.append(numpy_helper.from_array(value, name))
        return name

    def weight(self, *shape, scale=None):
        scale = scale if scale is not None else 1 / math.sqrt(max(1, int(np.prod(shape[1:] if len(shape) > 2 else shape[:1]))))
        return self.constant((self.random.standard_normal(shape) * scale).astype(np.float32))

    def input(self, name, dtype, *dims):
        self.inputs.append(helper.make_tensor_value_info(name, dtype, dims))
        return name

    def output(self, value, name, dtype=F32, dims=None):
        self.nodes.append(helper.make_node("Identity", [value], [name]))
        self.outputs.append(helper.make_tensor_value_info(name, dtype, dims))

    def body(self):
        return Net(parent=self)

    def graph(self, name):
        return helper.make_graph(self.nodes, name, self.inputs, self.outputs, self.constants if self.root is self else [])

    # What several architectures share.

    def linear(self, x, n_in, n_out, bias=True):
        y = self.op("MatMul", x, self.weight(n_in, n_out))
        return self.op("Add", y, self.weight(n_out, scale=0.1)) if bias else y

    def silu(self, x):
        return self.op("Mul", x, self.op("Sigmoid", x))

    def gelu(self, x):
        e = self.op("Erf", self.op("Div", x, math.sqrt(2.0)))
        return self.op("Mul", self.op("Mul", x, self.op("Add", e, 1.0)), 0.5)

    def layer_norm(self, x, n):
        return self.op("LayerNormalization", x, np.ones(n, np.float32), self.weight(n, scale=0.1), epsilon=1e-5)

    def rms_norm(self, x, n):
        mean = self.op("ReduceMean", self.op("Pow", x, 2.0), np.array([-1]), keepdims=1)
        y = self.op("Mul", x, self.op("Reciprocal", self.op("Sqrt", self.op("Add", mean, 1e-6))))
        return self.op("Mul", y, self.constant(1 + 0.1 * self.random.standard_normal(n)))

    def dim(self, x, axis):
        return self.op("Gather", self.op("Shape", x), np.array([axis]), axis=0)

    def join(self, *parts):
        return self.op("Concat", *[np.array([p]) if isinstance(p, int) else p for p in parts], axis=0)

    def heads(self, x, heads, size):
        shape = self.join(self.dim(x, 0), self.dim(x, 1), heads, size)
        return self.op("Transpose", self.op("Reshape", x, shape), perm=[0, 2, 1, 3])

    def unite(self, x, width):
        y = self.op("Transpose", x, perm=[0, 2, 1, 3])
        return self.op("Reshape", y, self.join(self.dim(y, 0), self.dim(y, 1), width))

    def attend(self, q, k, v, size, mask=None):
        scores = self.op("Mul", self.op("MatMul", q, self.op("Transpose", k, perm=[0, 1, 3, 2])), 1 / math.sqrt(size))
        scores = self.op("Add", scores, mask) if mask else scores
        return self.op("MatMul", self.op("Softmax", scores, axis=-1), v)

    def attention(self, x, memory, width, heads, inner=None):
        size = width // heads
        q = self.heads(self.linear(x, width, width), heads, size)
        k = self.heads(self.linear(memory, inner or width, width, False), heads, size)
        v = self.heads(self.linear(memory, inner or width, width), heads, size)
        return self.linear(self.unite(self.attend(q, k, v, size), width), width, width)


def save(net, folder, cases, name):
    model = helper.make_model(net.graph(name), opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    for info, value in zip(model.graph.output, session.run(None, cases[0])):
        if not info.type.tensor_type.HasField("shape"):
            info.CopyFrom(helper.make_tensor_value_info(info.name, info.type.tensor_type.elem_type, [None] * value.ndim))
    onnx.checker.check_model(model)
    path = os.path.join(folder, name)
    os.makedirs(path, exist_ok=True)
    onnx.save(model, os.path.join(path, "model.onnx"))
    for k, feeds in enumerate(cases):
        data = os.path.join(path, f"test_data_set_{k}")
        os.makedirs(data, exist_ok=True)
        results = session.run(None, feeds)
        for kind, named in (("input", feeds.items()), ("output", zip([o.name for o in session.get_outputs()], results))):
            for i, (key, value) in enumerate(named):
                with open(os.path.join(data, f"{kind}_{i}.pb"), "wb") as f:
                    f.write(numpy_helper.from_array(np.asarray(value), key).SerializeToString())


def normal(seed, *shape):
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


# --- the architectures --------------------------------------------------------------------------------------


def llama(folder, name):
    """Rotary embeddings, grouped heads, a cache; past and sequence variable."""
    width, heads, groups, size, layers, words, most = 256, 8, 2, 32, 2, 500, 512
    n = Net(1)
    ids = n.input("ids", I64, "batch", "seq")
    positions = n.input("positions", I64, "batch", "seq")
    mask = n.input("mask", F32, "batch", 1, "seq", "total")
    angles = np.outer(np.arange(most), 1 / 10000 ** (np.arange(0, size, 2) / size))
    angles = np.concatenate([angles, angles], 1)
    cos = n.op("Unsqueeze", n.op("Gather", n.constant(np.cos(angles)), positions), np.array([1]))
    sin = n.op("Unsqueeze", n.op("Gather", n.constant(np.sin(angles)), positions), np.array([1]))

    def rotate(x):
        half = size // 2
        low = n.op("Slice", x, np.array([0]), np.array([half]), np.array([3]))
        high = n.op("Slice", x, np.array([half]), np.array([size]), np.array([3]))
        turned = n.op("Concat", n.op("Neg", high), low, axis=-1)
        return n.op("Add", n.op("Mul", x, cos), n.op("Mul", turned, sin))

    def repeat(x):
        shape = n.join(n.dim(x, 0), groups, heads // groups, n.dim(x, 2), size)
        y = n.op("Expand", n.op("Unsqueeze", x, np.array([2])), shape)
        return n.op("Reshape", y, n.join(n.dim(x, 0), heads, n.dim(x, 2), size))

    x = n.op("Gather", n.weight(words, width, scale=0.5), ids)
    for layer in range(layers):
        past = [n.input(f"past_{c}{layer}", F32, "batch", groups, "past", size) for c in "kv"]
        y = n.rms_norm(x, width)
        q = rotate(n.heads(n.linear(y, width, heads * size, False), heads, size))
        k = rotate(n.heads(n.linear(y, width, groups * size, False), groups, size))
        v = n.heads(n.linear(y, width, groups * size, False), groups, size)
        k, v = n.op("Concat", past[0], k, axis=2), n.op("Concat", past[1], v, axis=2)
        n.output(k, f"present_k{layer}", dims=("batch", groups, "total", size))
        n.output(v, f"present_v{layer}", dims=("batch", groups, "total", size))
        a = n.unite(n.attend(q, repeat(k), repeat(v), size, mask), width)
        x = n.op("Add", x, n.linear(a, width, width, False))
        y = n.rms_norm(x, width)
        gate, up = n.silu(n.linear(y, width, 688, False)), n.linear(y, width, 688, False)
        x = n.op("Add", x, n.linear(n.op("Mul", gate, up), 688, width, False))
    n.output(n.linear(n.rms_norm(x, width), width, words, False), "logits", dims=("batch", "seq", words))

    def case(seed, batch, past, seq):
        total = past + seq
        allowed = np.arange(total)[None, :] <= past + np.arange(seq)[:, None]
        feeds = {"ids": np.random.default_rng(seed).integers(0, words, (batch, seq)),
                 "positions": np.tile(np.arange(past, total), (batch, 1)),
                 "mask": np.tile(np.where(allowed, 0, -1e9).astype(np.float32), (batch, 1, 1, 1))}
        for layer in range(layers):
            for c in "kv":
                feeds[f"past_{c}{layer}"] = normal(seed + layer, batch, groups, past, size)
        return feeds

    save(n, folder, [case(1, 1, 37, 1), case(2, 1, 0, 19), case(3, 2, 5, 8), case(4, 1, 200, 1)], name)


def whisper_encoder(folder, name):
    width, heads = 192, 6
    n = Net(2)
    mel = n.input("mel", F32, "batch", 80, "frames")
    x = n.gelu(n.op("Conv", mel, n.weight(width, 80, 3), n.weight(width, scale=0.1), pads=[1, 1]))
    x = n.gelu(n.op("Conv", x, n.weight(width, width, 3), n.weight(width, scale=0.1), pads=[1, 1], strides=[2]))
    x = n.op("Transpose", x, perm=[0, 2, 1])
    places = n.op("Slice", n.weight(1500, width, scale=0.1), np.array([0]), n.dim(x, 1), np.array([0]))
    x = n.op("Add", x, places)
    for _ in range(2):
        y = n.layer_norm(x, width)
        x = n.op("Add", x, n.attention(y, y, width, heads))
        y = n.gelu(n.linear(n.layer_norm(x, width), width, 4 * width))
        x = n.op("Add", x, n.linear(y, 4 * width, width))
    n.output(n.layer_norm(x, width), "states")
    save(n, folder, [{"mel": normal(s, b, 80, f)} for s, b, f in ((1, 1, 300), (2, 1, 77), (3, 2, 64))], name)


def whisper_decoder(folder, name):
    width, heads, words = 192, 6, 700
    n = Net(3)
    ids = n.input("ids", I64, "batch", "seq")
    states = n.input("states", F32, "batch", "frames", width)
    past = [[n.input(f"past_{c}{k}", F32, "batch", heads, "past", width // heads) for c in "kv"] for k in range(2)]
    begin = n.dim(past[0][0], 2)
    end = n.op("Add", begin, n.dim(ids, 1))
    x = n.op("Add", n.op("Gather", n.weight(words, width, scale=0.5), ids),
             n.op("Slice", n.weight(448, width, scale=0.1), begin, end, np.array([0])))
    row = n.op("Range", n.op("Squeeze", begin), n.op("Squeeze", end), np.array(1))
    column = n.op("Range", np.array(0), n.op("Squeeze", end), np.array(1))
    hidden = n.op("Greater", n.op("Unsqueeze", column, np.array([0])), n.op("Unsqueeze", row, np.array([1])))
    mask = n.op("Mul", n.op("Cast", hidden, to=F32), -1e9)
    for k in range(2):
        y = n.layer_norm(x, width)
        q = n.heads(n.linear(y, width, width), heads, width // heads)
        new = [n.heads(n.linear(y, width, width), heads, width // heads) for _ in "kv"]
        keys, values = [n.op("Concat", past[k][c], new[c], axis=2) for c in range(2)]
        n.output(keys, f"present_k{k}")
        n.output(values, f"present_v{k}")
        a = n.unite(n.attend(q, keys, values, width // heads, mask), width)
        x = n.op("Add", x, n.linear(a, width, width))
        x = n.op("Add", x, n.attention(n.layer_norm(x, width), states, width, heads))
        y = n.gelu(n.linear(n.layer_norm(x, width), width, 4 * width))
        x = n.op("Add", x, n.linear(y, 4 * width, width))
    n.output(n.linear(n.layer_norm(x, width), width, words, False), "logits")

    def case(seed, batch, past, seq, frames):
        feeds = {"ids": np.random.default_rng(seed).integers(0, words, (batch, seq)),
                 "states": normal(seed, batch, frames, width)}
        for k in range(2):
            for c in "kv":
                feeds[f"past_{c}{k}"] = normal(seed + k, batch, heads, past, width // heads)
        return feeds

    save(n, folder, [case(1, 1, 12, 1, 150), case(2, 1, 0, 4, 33), case(3, 2, 3, 2, 50)], name)


def unet(folder, name):
    """A level of a diffusion network: residual blocks with a time embedding, self and cross attention, down and up."""
    width, text = 64, 96
    n = Net(4)
    image = n.input("image", F32, "batch", 4, "height", "width")
    time = n.input("time", F32, "batch")
    context = n.input("context", F32, "batch", "tokens", text)
    rate = np.exp(-math.log(10000) * np.arange(32) / 32)
    angle = n.op("Mul", n.op("Unsqueeze", time, np.array([1])), rate[None, :])
    embedding = n.op("Concat", n.op("Cos", angle), n.op("Sin", angle), axis=1)
    embedding = n.linear(n.silu(n.linear(embedding, 64, 128)), 128, 128)

    def conv(x, n_in, n_out, k=3, stride=1):
        return n.op("Conv", x, n.weight(n_out, n_in, k, k), n.weight(n_out, scale=0.1), strides=[stride] * 2,
                    pads=[k // 2] * 4)

    def group_norm(x, channels, groups=16):
        y = n.op("InstanceNormalization", n.op("Reshape", x, np.array([0, groups, -1])), np.ones(groups, np.float32),
                 np.zeros(groups, np.float32), epsilon=1e-5)
        y = n.op("Reshape", y, n.op("Shape", x))
        return n.op("Add", n.op("Mul", y, n.weight(channels, 1, 1, scale=1.0)), n.weight(channels, 1, 1, scale=0.1))

    def residual(x, n_in, n_out):
        y = conv(n.silu(group_norm(x, n_in)), n_in, n_out)
        t = n.linear(n.silu(embedding), 128, n_out)
        y = n.op("Add", y, n.op("Unsqueeze", t, np.array([2, 3])))
        y = conv(n.silu(group_norm(y, n_out)), n_out, n_out)
        return n.op("Add", y, conv(x, n_in, n_out, 1) if n_in != n_out else x)

    def transformer(x, c):
        y = conv(group_norm(x, c), c, c, 1)
        y = n.op("Transpose", n.op("Reshape", y, np.array([0, c, -1])), perm=[0, 2, 1])
        z = n.layer_norm(y, c)
        y = n.op("Add", y, n.attention(z, z, c, 4))
        y = n.op("Add", y, n.attention(n.layer_norm(y, c), context, c, 4, text))
        z = n.linear(n.layer_norm(y, c), c, 8 * c)
        a, b = n.op("Split", z, axis=-1, outs=2, num_outputs=2)
        y = n.op("Add", y, n.linear(n.op("Mul", a, n.gelu(b)), 4 * c, c))
        y = n.op("Reshape", n.op("Transpose", y, perm=[0, 2, 1]), n.op("Shape", x))
        return n.op("Add", conv(y, c, c, 1), x)

    first = conv(image, 4, width)
    one = transformer(residual(first, width, width), width)
    down = conv(one, width, width, 3, 2)
    middle = transformer(residual(down, width, 2 * width), 2 * width)
    up = n.op("Resize", middle, "", np.array([1, 1, 2, 2], np.float32), mode="nearest",
              coordinate_transformation_mode="asymmetric", nearest_mode="floor")
    up = conv(up, 2 * width, 2 * width)
    y = residual(n.op("Concat", up, one, axis=1), 3 * width, width)
    n.output(conv(n.silu(group_norm(y, width)), width, 4), "noise")
    save(n, folder, [{"image": normal(s, b, 4, h, w), "time": np.full(b, 17.0 * s, np.float32),
                      "context": normal(s + 9, b, t, text)}
                     for s, b, h, w, t in ((1, 1, 32, 32, 77), (2, 1, 16, 24, 7), (3, 2, 8, 8, 5))], name)


def mamba(folder, name):
    width, inner, state, rank = 96, 192, 16, 8
    n = Net(5)
    x = n.input("x", F32, "batch", "length", width)
    for _ in range(2):
        a, gate = n.op("Split", n.linear(n.rms_norm(x, width), width, 2 * inner, False), axis=-1, outs=2, num_outputs=2)
        a = n.op("Transpose", a, perm=[0, 2, 1])
        a = n.op("Conv", a, n.weight(inner, 1, 4), n.weight(inner, scale=0.1), pads=[3, 0], group=inner)
        a = n.silu(n.op("Transpose", a, perm=[0, 2, 1]))
        mixed = n.linear(a, inner, rank + 2 * state, False)
        step, b, c = n.op("Split", mixed, np.array([rank, state, state]), axis=-1, outs=3)
        step = n.op("Softplus", n.linear(step, rank, inner))
        decay = n.constant(-np.tile(np.arange(1.0, state + 1), (inner, 1)))
        body = n.body()
        h = body.input("h", F32, "batch", inner, state)
        xs = [body.input(k, F32, "batch", d) for k, d in (("xt", inner), ("dt", inner), ("bt", state), ("ct", state))]
        last = np.array([-1])
        dt = body.op("Unsqueeze", xs[1], last)
        h2 = body.op("Mul", h, body.op("Exp", body.op("Mul", dt, decay)))
        db = body.op("Mul", dt, body.op("Unsqueeze", xs[2], np.array([1])))
        h2 = body.op("Add", h2, body.op("Mul", db, body.op("Unsqueeze", xs[0], last)))
        y = body.op("Squeeze", body.op("MatMul", h2, body.op("Unsqueeze", xs[3], last)), last)
        for value, key, dims in ((h2, "h2", ("batch", inner, state)), (y, "yt", ("batch", inner))):
            body.output(value, n.name(key), F32, dims)
        zero = n.op("ConstantOfShape", n.join(n.dim(x, 0), inner, state),
                    value=numpy_helper.from_array(np.zeros(1, np.float32)))
        _, y = n.op("Scan", zero, a, step, b, c, outs=2, body=body.graph(n.name("scan")), num_scan_inputs=4,
                    scan_input_axes=[1] * 4, scan_output_axes=[1])
        y = n.op("Add", y, n.op("Mul", a, n.weight(inner, scale=1.0)))
        x = n.op("Add", x, n.linear(n.op("Mul", y, n.silu(gate)), inner, width, False))
    n.output(n.rms_norm(x, width), "y")
    save(n, folder, [{"x": normal(s, b, l, width)} for s, b, l in ((1, 1, 64), (2, 2, 13), (3, 1, 300))], name)


def experts(kind):
    """A mixture of experts in one of four spellings."""
    width, hidden, count, chosen = 64, 128, 8, 2

    def build(folder, name):
        n = Net(6)
        x = n.input("x", F32, "tokens", width)
        gates, which = n.op("TopK", n.op("Softmax", n.linear(x, width, count, False), axis=-1), np.array([chosen]),
                            axis=-1, outs=2)
        up, down = n.weight(count, width, hidden), n.weight(count, hidden, width)
        if kind == "gathered":
            rows = n.op("Unsqueeze", n.op("Unsqueeze", x, np.array([1])), np.array([1]))  # tokens, 1, 1, width
            y = n.op("MatMul", n.silu(n.op("MatMul", rows, n.op("Gather", up, which))), n.op("Gather", down, which))
            y = n.op("Mul", n.op("Squeeze", y, np.array([2])), n.op("Unsqueeze", gates, np.array([2])))
            n.output(n.op("ReduceSum", y, np.array([1]), keepdims=0), "y")
        elif kind == "dense":
            mask = n.op("OneHot", which, np.array(count), np.array([0, 1], np.float32), axis=-1)
            weights = n.op("ReduceSum", n.op("Mul", mask, n.op("Unsqueeze", gates, np.array([2]))), np.array([1]),
                           keepdims=0)  # tokens, experts
            y = n.op("MatMul", n.silu(n.op("MatMul", n.op("Unsqueeze", x, np.array([0])), up)), down)
            y = n.op("Mul", y, n.op("Unsqueeze", n.op("Transpose", weights, perm=[1, 0]), np.array([2])))
            n.output(n.op("ReduceSum", y, np.array([0]), keepdims=0), "y")
        else:
            y = n.op("Mul", x, 0.0)
            for e in range(count):
                a, b = [n.constant(n.random.standard_normal(s) / 8) for s in ((width, hidden), (hidden, width))]
                hit = n.op("Cast", n.op("Equal", which, np.array(e)), to=F32)
                weight = n.op("ReduceSum", n.op("Mul", hit, gates), np.array([1]), keepdims=1)  # tokens, 1
                if kind == "scatter":
                    place = n.op("NonZero", n.op("ReduceSum", hit, np.array([1]), keepdims=0))
                    place = n.op("Transpose", place, perm=[1, 0])  # hits, 1
                    z = n.op("MatMul", n.silu(n.op("MatMul", n.op("GatherND", x, place), a)), b)
                    z = n.op("Mul", z, n.op("GatherND", weight, place))
                    y = n.op("ScatterND", y, place, z, reduction="add")
                else:
                    yes, no = n.body(), n.body()
                    z = yes.op("MatMul", yes.silu(yes.op("MatMul", x, a)), b)
                    yes.output(yes.op("Add", y, yes.op("Mul", z, weight)), n.name("yes"))
                    no.output(y, n.name("no"))
                    any_hit = n.op("Greater", n.op("ReduceMax", hit, keepdims=0), 0.0)
                    y = n.op("If", any_hit, then_branch=yes.graph(n.name("then")), else_branch=no.graph(n.name("else")))
            n.output(y, "y")
        save(n, folder, [{"x": normal(s, t, width)} for s, t in ((1, 1), (2, 17), (3, 64))], name)

    return build


def dcgan(folder, name):
    n = Net(7)
    x = n.input("noise", F32, "batch", 100, 1, 1)
    sizes = [100, 256, 128, 64, 32, 3]
    for k in range(5):
        pads, strides = ([0] * 4, [1, 1]) if k == 0 else ([1] * 4, [2, 2])
        w = n.weight(sizes[k], sizes[k + 1], 4, 4, scale=1 / math.sqrt(4 * sizes[k]))
        x = n.op("ConvTranspose", x, w, pads=pads, strides=strides)
        if k < 4:
            c = sizes[k + 1]
            x = n.op("BatchNormalization", x, n.constant(1 + 0.1 * n.random.standard_normal(c)),
                     n.weight(c, scale=0.1), n.weight(c, scale=0.1), n.constant(1 + n.random.random(c)))
            x = n.op("Relu", x)
    n.output(n.op("Tanh", x), "image")
    save(n, folder, [{"noise": normal(s, b, 100, 1, 1)} for s, b in ((1, 1), (2, 3))], name)


def conv3d(folder, name):
    n = Net(8)
    x = n.input("clip", F32, "batch", 3, "frames", "height", "width")
    sizes = [3, 16, 32, 64]
    for k in range(3):
        c = sizes[k + 1]
        x = n.op("Conv", x, n.weight(c, sizes[k], 3, 3, 3), n.weight(c, scale=0.1), pads=[1] * 6)
        x = n.op("BatchNormalization", x, n.constant(1 + 0.1 * n.random.standard_normal(c)), n.weight(c, scale=0.1),
                 n.weight(c, scale=0.1), n.constant(1 + n.random.random(c)))
        x = n.op("MaxPool", n.op("Relu", x), kernel_shape=[1 + (k > 0), 2, 2], strides=[1 + (k > 0), 2, 2])
    n.output(n.linear(n.op("Flatten", n.op("GlobalAveragePool", x)), 64, 10), "classes")
    save(n, folder, [{"clip": normal(s, b, 3, f, h, w)} for s, b, f, h, w in ((1, 1, 8, 32, 32), (2, 1, 5, 17, 24), (3, 2, 4, 16, 16))],
         name)


def bilstm(folder, name):
    n_in, hidden = 40, 64
    n = Net(9)
    x = n.input("x", F32, "length", "batch", n_in)
    lengths = n.input("lengths", TensorProto.INT32, "batch")
    for k in range(2):
        size = n_in if k == 0 else 2 * hidden
        y, h, _ = n.op("LSTM", x, n.weight(2, 4 * hidden, size, scale=0.1), n.weight(2, 4 * hidden, hidden, scale=0.1),
                       n.weight(2, 8 * hidden, scale=0.1), lengths, hidden_size=hidden, direction="bidirectional", outs=3)
        x = n.op("Reshape", n.op("Transpose", y, perm=[0, 2, 1, 3]), np.array([0, 0, 2 * hidden]))
    n.output(n.op("LogSoftmax", n.linear(x, 2 * hidden, 29), axis=-1), "labels")
    n.output(h, "last")
    save(n, folder, [{"x": normal(s, l, b, n_in), "lengths": np.array(at, np.int32)}
                     for s, l, b, at in ((1, 50, 1, [50]), (2, 13, 3, [13, 4, 9]), (3, 120, 2, [77, 120]))], name)


def greedy(folder, name):
    """Decoding in a loop until a word ends it: a recurrent step, the likeliest word, and what was said so far."""
    width, words = 64, 50
    n = Net(10)
    state = n.input("state", F32, "batch", width)
    table, mix, keep, out = n.weight(words, width, scale=1.0), n.weight(width, width), n.weight(width, width), n.weight(width, words, scale=1.0)
    body = n.body()
    body.input("i", I64)
    body.input("going", BOOL)
    word = body.input("word", I64, "batch")
    h = body.input("h", F32, "batch", width)
    e = body.op("Gather", table, word)
    h2 = body.op("Tanh", body.op("Add", body.op("MatMul", e, mix), body.op("MatMul", h, keep)))
    logits = body.op("MatMul", h2, out)
    word2 = body.op("ArgMax", logits, axis=-1, keepdims=0)
    ended = body.op("ReduceMax", body.op("Cast", body.op("Equal", word2, np.array(3)), to=F32), keepdims=0)
    body.output(body.op("Less", ended, 0.5), "going2", BOOL, ())
    body.output(word2, "word2", I64, ("batch",))
    body.output(h2, "h2", F32, ("batch", width))
    body.output(word2, "said", I64, ("batch",))
    start = n.op("Cast", n.op("Mul", n.op("ReduceSum", state, np.array([1]), keepdims=0), 0.0), to=I64)
    word, h, said = n.op("Loop", np.array(200), np.array(True), start, state, outs=3, body=body.graph("step"))
    n.output(said, "words", I64)
    n.output(h, "end")
    save(n, folder, [{"state": normal(s, b, width)} for s, b in ((1, 1), (2, 2), (5, 1), (7, 4))], name)


ALL = {"llama": llama, "whisper_encoder": whisper_encoder, "whisper_decoder": whisper_decoder, "unet": unet, "mamba": mamba,
       **{f"experts_{k}": experts(k) for k in ("dense", "gathered", "scatter", "if")}, "dcgan": dcgan, "conv3d": conv3d,
       "bilstm": bilstm, "greedy": greedy}


def main():
    if len(sys.argv) < 2 or set(sys.argv[2:]) - set(ALL):
        sys.exit(__doc__)
    for name in sys.argv[2:] or ALL:
        ALL[name](sys.argv[1], name)
        print(name, flush=True)


main()
