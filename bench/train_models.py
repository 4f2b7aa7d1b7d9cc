#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Writes the networks whose training is measured, and examples for them that a generator of numpy's draws:

    bench/train_models.py FOLDER [NAME...]

makes FOLDER/NAME.onnx and FOLDER/NAME.npz of resnet18, mobilenet_v2, transformer and mlp, as torchvision has the first
two (batch normalisation by the batch's own statistics), and one batch of examples. Weights begin as torchvision and
torch.nn.Linear have them begin.
Needs onnx. `ashlar train FOLDER/NAME.onnx --data FOLDER/NAME.npz` takes them; bench/train_compare.py compares.
"""
import math
import pathlib
import sys

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

CLASSES, SIDE, WIDTH, LENGTH, HEADS, CHARACTERS = 1000, 224, 256, 128, 4, 128
BATCHES = {"resnet18": 8, "mobilenet_v2": 8, "transformer": 4, "mlp": 128}


class Model:
    """Nodes and weights as they are added."""

    def __init__(self):
        self.nodes, self.weights, self.random = [], [], np.random.default_rng(1)

    def weight(self, *shape, deviation=0.0, bound=0.0, value=0.0, kind="weight"):
        data = np.full(shape, value)
        if deviation:
            data = self.random.normal(0, deviation, shape)
        elif bound:
            data = self.random.uniform(-bound, bound, shape)
        name = f"{len(self.weights)}.{kind}"
        self.weights.append(numpy_helper.from_array(data.astype(np.float32), name))
        return name

    def constant(self, value):
        return self.add("Constant", value=numpy_helper.from_array(np.asarray(value)))

    def add(self, op, *inputs, outputs=1, **attributes):
        names = [f"v{len(self.nodes)}" + (f".{k}" if k else "") for k in range(outputs)]
        self.nodes.append(helper.make_node(op, list(inputs), names, **attributes))
        return names[0]

    def conv(self, x, ins, outs, kernel, stride=1, groups=1):
        w = self.weight(outs, ins // groups, kernel, kernel, deviation=math.sqrt(2 / (outs * kernel * kernel)))
        return self.add("Conv", x, w, kernel_shape=[kernel] * 2, strides=[stride] * 2, pads=[kernel // 2] * 4,
                        group=groups)

    def batch_norm(self, x, channels):
        w = [self.weight(channels, value=1.0), self.weight(channels, kind="bias"),
             self.weight(channels, kind="running_mean"), self.weight(channels, value=1.0, kind="running_var")]
        return self.add("BatchNormalization", x, *w, outputs=3, training_mode=1)

    def linear(self, x, ins, outs, deviation=0.0):
        """Uniform numbers, as torch.nn.Linear; with a deviation normal ones, and a bias of zeros."""
        bound = 0 if deviation else 1 / math.sqrt(ins)
        w = self.weight(ins, outs, deviation=deviation, bound=bound)
        return self.add("Add", self.add("MatMul", x, w), self.weight(outs, bound=bound, kind="bias"))

    def layer_norm(self, x):
        return self.add("LayerNormalization", x, self.weight(WIDTH, value=1.0), self.weight(WIDTH, kind="bias"), axis=-1)

    def classifier(self, x, channels, deviation=0.0):
        return self.linear(self.add("Flatten", self.add("GlobalAveragePool", x)), channels, CLASSES, deviation)


def resnet18(m):
    def block(x, ins, outs, stride):
        y = m.add("Relu", m.batch_norm(m.conv(x, ins, outs, 3, stride), outs))
        y = m.batch_norm(m.conv(y, outs, outs, 3), outs)
        if stride > 1:
            x = m.batch_norm(m.conv(x, ins, outs, 1, stride), outs)
        return m.add("Relu", m.add("Add", x, y))

    x = m.add("Relu", m.batch_norm(m.conv("x", 3, 64, 7, 2), 64))
    x = m.add("MaxPool", x, kernel_shape=[3, 3], strides=[2, 2], pads=[1] * 4)
    ins = 64
    for outs in (64, 128, 256, 512):
        for k in range(2):
            x = block(x, ins, outs, 2 if outs > 64 and k == 0 else 1)
            ins = outs
    m.classifier(x, ins)


def mobilenet_v2(m):
    low, high = m.constant(np.float32(0)), m.constant(np.float32(6))

    def layer(x, ins, outs, kernel=1, stride=1, groups=1):
        return m.add("Clip", m.batch_norm(m.conv(x, ins, outs, kernel, stride, groups), outs), low, high)

    x, ins = layer("x", 3, 32, 3, 2), 32
    for times, outs, count, first in ((1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1),
                                      (6, 160, 3, 2), (6, 320, 1, 1)):
        for k in range(count):
            stride, wide = first if k == 0 else 1, ins * times
            y = layer(x, ins, wide) if times > 1 else x
            y = layer(y, wide, wide, 3, stride, wide)
            y = m.batch_norm(m.conv(y, wide, outs, 1), outs)
            x = m.add("Add", x, y) if stride == 1 and ins == outs else y
            ins = outs
    m.classifier(layer(x, ins, 1280), 1280, 0.01)


def transformer(m):
    half, one, root = (m.constant(np.float32(v)) for v in (0.5, 1, math.sqrt(0.5)))
    scale, mask = m.constant(np.float32(math.sqrt(HEADS / WIDTH))), m.constant(
        np.triu(np.full((LENGTH, LENGTH), -1e9, np.float32), 1))
    split, join = m.constant(np.array([0, LENGTH, HEADS, WIDTH // HEADS])), m.constant(np.array([0, LENGTH, WIDTH]))
    x = m.add("Add", m.add("Gather", m.weight(CHARACTERS, WIDTH, deviation=0.1), "x"),
              m.weight(LENGTH, WIDTH, deviation=0.1))
    for _ in range(6):
        y = m.layer_norm(x)
        q, k, v = (m.add("Transpose", m.add("Reshape", m.linear(y, WIDTH, WIDTH), split), perm=perm)
                   for perm in ([0, 2, 1, 3], [0, 2, 3, 1], [0, 2, 1, 3]))
        scores = m.add("Add", m.add("Mul", m.add("MatMul", q, k), scale), mask)
        y = m.add("Transpose", m.add("MatMul", m.add("Softmax", scores, axis=-1), v), perm=[0, 2, 1, 3])
        x = m.add("Add", x, m.linear(m.add("Reshape", y, join), WIDTH, WIDTH))
        y = m.linear(m.layer_norm(x), WIDTH, 4 * WIDTH)
        y = m.add("Mul", m.add("Mul", y, half), m.add("Add", m.add("Erf", m.add("Mul", y, root)), one))
        x = m.add("Add", x, m.linear(y, 4 * WIDTH, WIDTH))
    m.linear(m.layer_norm(x), WIDTH, CHARACTERS)


def mlp(m):
    x = "x"
    for ins, outs in ((784, 512), (512, 512)):
        x = m.add("Relu", m.linear(x, ins, outs))
    m.linear(x, 512, 10)


def write(folder, name):
    m, random, batch = Model(), np.random.default_rng(2), BATCHES[name]
    globals()[name](m)
    m.nodes[-1].output[0] = "logits"
    shape = {"transformer": [LENGTH], "mlp": [784]}.get(name, [3, SIDE, SIDE])
    kind, out = TensorProto.FLOAT, {"transformer": [LENGTH, CHARACTERS], "mlp": [10]}.get(name, [CLASSES])
    x = random.normal(0, 1, [batch] + shape).astype(np.float32)
    if name == "transformer":
        kind, x = TensorProto.INT64, random.integers(0, CHARACTERS, [batch] + shape)
    labels = random.integers(0, out[-1], [batch] + out[:-1])
    graph = helper.make_graph(m.nodes, name, [helper.make_tensor_value_info("x", kind, ["batch"] + shape)],
                              [helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["batch"] + out)], m.weights)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)
    onnx.checker.check_model(model)
    onnx.save(model, folder / f"{name}.onnx")
    np.savez(folder / f"{name}.npz", x=x, labels=labels)


def main():
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    folder = pathlib.Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    for name in sys.argv[2:] or BATCHES:
        write(folder, name)


if __name__ == "__main__":
    main()
