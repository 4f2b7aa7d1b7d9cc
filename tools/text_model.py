#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Writes a small transformer that predicts the next character, and the project's own documents as its text:

    tools/text_model.py FOLDER [LAYERS WIDTH LENGTH]

makes FOLDER/text.onnx (tokens i64 [batch, length] to logits f32 [batch, length, 128]; weights that a generator of
numpy's draws, the batch is open) and FOLDER/text.npz (windows of the text, and the characters that come after each
of theirs), for

    ashlar train FOLDER/text.onnx --data FOLDER/text.npz -o FOLDER/trained.onnx --lr 2e-3 --clip 1 --warmup 50

Needs onnx. It is what exporters make of such a network: layer normalisation, attention with a causal mask as matrix
products, GELU by erf.
"""
import math
import pathlib
import sys

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

CHARACTERS, HEADS = 128, 4


class Model:
    """Nodes and weights as they are added."""

    def __init__(self):
        self.nodes, self.weights, self.random = [], [], np.random.default_rng(1)

    def weight(self, name, *shape, deviation=None, value=0.0):
        data = self.random.normal(0, deviation, shape) if deviation else np.full(shape, value)
        self.weights.append(numpy_helper.from_array(data.astype(np.float32), name))
        return name

    def constant(self, value):
        return self.add("Constant", value=numpy_helper.from_array(np.asarray(value)))

    def add(self, op, *inputs, **attributes):
        name = f"v{len(self.nodes)}"
        self.nodes.append(helper.make_node(op, list(inputs), [name], **attributes))
        return name

    def linear(self, x, name, rows, columns):
        w = self.weight(name + ".weight", rows, columns, deviation=1 / math.sqrt(rows))
        return self.add("Add", self.add("MatMul", x, w), self.weight(name + ".bias", columns))

    def norm(self, x, name, width):
        return self.add("LayerNormalization", x, self.weight(name + ".weight", width, value=1.0),
                        self.weight(name + ".bias", width), axis=-1)

    def attention(self, x, name, width, length):
        split = self.constant(np.array([0, length, HEADS, width // HEADS]))
        q, k, v = (self.add("Transpose", self.add("Reshape", self.linear(x, f"{name}.{part}", width, width), split),
                            perm=[0, 2, 3, 1] if part == "k" else [0, 2, 1, 3]) for part in "qkv")
        scores = self.add("Mul", self.add("MatMul", q, k), self.constant(np.float32(math.sqrt(HEADS / width))))
        mask = np.triu(np.full((length, length), -1e9, np.float32), 1)
        parts = self.add("Softmax", self.add("Add", scores, self.constant(mask)), axis=-1)
        joined = self.add("Transpose", self.add("MatMul", parts, v), perm=[0, 2, 1, 3])
        joined = self.add("Reshape", joined, self.constant(np.array([0, length, width])))
        return self.linear(joined, f"{name}.out", width, width)

    def mlp(self, x, name, width):
        h = self.linear(x, f"{name}.up", width, 4 * width)
        erf = self.add("Erf", self.add("Mul", h, self.constant(np.float32(math.sqrt(0.5)))))
        h = self.add("Mul", self.add("Mul", h, self.constant(np.float32(0.5))),
                     self.add("Add", erf, self.constant(np.float32(1))))
        return self.linear(h, f"{name}.down", 4 * width, width)


def network(layers, width, length):
    m = Model()
    x = m.add("Gather", m.weight("characters", CHARACTERS, width, deviation=0.1), "tokens")
    x = m.add("Add", x, m.weight("positions", length, width, deviation=0.1))
    for i in range(layers):
        x = m.add("Add", x, m.attention(m.norm(x, f"{i}.norm1", width), f"{i}.attention", width, length))
        x = m.add("Add", x, m.mlp(m.norm(x, f"{i}.norm2", width), f"{i}.mlp", width))
    m.linear(m.norm(x, "norm", width), "out", width, CHARACTERS)
    m.nodes[-1].output[0] = "logits"
    tokens = helper.make_tensor_value_info("tokens", TensorProto.INT64, ["batch", length])
    logits = helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["batch", length, CHARACTERS])
    graph = helper.make_graph(m.nodes, "text", [tokens], [logits], m.weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)


def main():
    if len(sys.argv) not in (2, 5):
        sys.exit(__doc__)
    folder = pathlib.Path(sys.argv[1])
    layers, width, length = map(int, sys.argv[2:]) if len(sys.argv) == 5 else (2, 64, 64)
    folder.mkdir(parents=True, exist_ok=True)
    docs = pathlib.Path(__file__).resolve().parent.parent / "docs"
    text = "".join(path.read_text() for path in sorted(docs.glob("*.md")))
    codes = np.array([min(ord(c), CHARACTERS - 1) for c in text], np.uint8)
    count = (len(codes) - 1) // length
    np.savez_compressed(folder / "text.npz", tokens=codes[:count * length].reshape(count, length),
                        labels=codes[1:count * length + 1].reshape(count, length))
    model = network(layers, width, length)
    onnx.checker.check_model(model)
    onnx.save(model, folder / "text.onnx")


main()
