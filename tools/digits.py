#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Writes examples/digits: the images that scikit-learn ships, as digits.npz, and a small convolutional network with
weights that a generator of numpy's draws, as digits.onnx, whose batch is open.

    tools/digits.py

Needs scikit-learn and onnx. The images (1,797 of 8 x 8 grey levels from 0 to 16, each with its digit) are the test
set of Alpaydin and Kaynak, Optical Recognition of Handwritten Digits (UCI Machine Learning Repository, 1998,
doi:10.24432/C50P49), under CC BY 4.0.
"""
import pathlib

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper
from sklearn.datasets import load_digits

CHANNELS, HIDDEN, CLASSES = (16, 32), 64, 10


def weights():
    """He's initialisation, biases of zero."""
    random = np.random.default_rng(1)
    flat = CHANNELS[1] * 4 * 4
    shapes = {"conv1.weight": (CHANNELS[0], 1, 3, 3), "conv2.weight": (CHANNELS[1], CHANNELS[0], 3, 3),
              "hidden.weight": (flat, HIDDEN), "out.weight": (HIDDEN, CLASSES)}
    fan_in = {"conv1.weight": 9, "conv2.weight": 9 * CHANNELS[0], "hidden.weight": flat, "out.weight": HIDDEN}
    made = {name: random.normal(0, np.sqrt(2 / fan_in[name]), shape) for name, shape in shapes.items()}
    made |= {"conv1.bias": np.zeros(CHANNELS[0]), "conv2.bias": np.zeros(CHANNELS[1]),
             "hidden.bias": np.zeros(HIDDEN), "out.bias": np.zeros(CLASSES)}
    return [numpy_helper.from_array(value.astype(np.float32), name) for name, value in made.items()]


def network():
    nodes = [
        helper.make_node("Constant", [], ["levels"], value_float=16.0),
        helper.make_node("Div", ["images", "levels"], ["x"]),
        helper.make_node("Conv", ["x", "conv1.weight", "conv1.bias"], ["c1"], pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["c1"], ["r1"]),
        helper.make_node("Conv", ["r1", "conv2.weight", "conv2.bias"], ["c2"], pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["c2"], ["r2"]),
        helper.make_node("MaxPool", ["r2"], ["p"], kernel_shape=[2, 2], strides=[2, 2]),
        helper.make_node("Flatten", ["p"], ["f"]),
        helper.make_node("Gemm", ["f", "hidden.weight", "hidden.bias"], ["h"]),
        helper.make_node("Relu", ["h"], ["r3"]),
        helper.make_node("Gemm", ["r3", "out.weight", "out.bias"], ["logits"]),
    ]
    images = helper.make_tensor_value_info("images", TensorProto.FLOAT, ["batch", 1, 8, 8])
    logits = helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["batch", CLASSES])
    graph = helper.make_graph(nodes, "digits", [images], [logits], weights())
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)


def main():
    folder = pathlib.Path(__file__).resolve().parent.parent / "examples" / "digits"
    folder.mkdir(exist_ok=True)
    digits = load_digits()
    images = digits.images.astype(np.uint8).reshape(-1, 1, 8, 8)
    np.savez_compressed(folder / "digits.npz", images=images, labels=digits.target.astype(np.uint8))
    model = network()
    onnx.checker.check_model(model)
    onnx.save(model, folder / "digits.onnx")


main()
