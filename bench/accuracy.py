#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Errors of ashlar and of onnxruntime against double precision, by class of operators.

usage: accuracy.py [--ashlar PROGRAM] [CASE ...]

Each case is a small model in f32. The truth is the same computed by numpy in double from the same f32 inputs. What is
printed is the largest error over all elements, relative to the largest element of the truth; for functions of one
element, the largest error in units in the last place of the true value. The status is 1 where ashlar is beyond the bound
of the case's class and beyond twice onnxruntime's error. Needs the Python packages onnx, numpy and onnxruntime.
"""
import argparse
import os
import subprocess
import sys
import tempfile

import numpy as np
import onnx
import onnxruntime
from numpy.lib.stride_tricks import sliding_window_view
from onnx import TensorProto, helper, numpy_helper

RANDOM = np.random.default_rng(1)
SUM, PRODUCT, ULP = 1e-6, 3e-6, 4.0  # bounds: sums of any length, products and what contains them, functions


def normal(*shape, mean=0.0):
    return (RANDOM.standard_normal(shape) + mean).astype(np.float32)


def positive(*shape):
    return np.abs(normal(*shape))


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def softmax(x, axis=-1):
    e = np.exp(x - x.max(axis, keepdims=True))
    return e / e.sum(axis, keepdims=True)


def convolve(x, w, stride=1, groups=1):
    """Valid convolution, NCHW."""
    windows = sliding_window_view(x, w.shape[2:], axis=(2, 3))[:, :, ::stride, ::stride]
    parts = [np.einsum("nchwij,ocij->nohw", p, v, optimize=True)
             for p, v in zip(np.split(windows, groups, 1), np.split(w, groups, 0))]
    return np.concatenate(parts, 1)


def normalise(x, axes, epsilon=1e-5):
    return (x - x.mean(axes, keepdims=True)) / np.sqrt(x.var(axes, keepdims=True) + epsilon)


def lstm(x, w, r, b):
    """One direction, gates in the order i o f c, the last hidden state."""
    size = r.shape[2]
    h = c = np.zeros((x.shape[1], size))
    for step in x:
        i, o, f, g = np.split(step @ w[0].T + h @ r[0].T + b[0, : 4 * size] + b[0, 4 * size :], 4, 1)
        c = sigmoid(f) * c + sigmoid(i) * np.tanh(g)
        h = sigmoid(o) * np.tanh(c)
    return h[None]


class Case:
    """Nodes (operator, inputs, outputs, attributes) from inputs to y; `truth` has the inputs and constants in double."""

    def __init__(self, name, bound, nodes, inputs, truth, constants=None):
        self.name, self.bound, self.inputs, self.truth = name, bound, inputs, truth
        self.constants = constants or {}
        graph = helper.make_graph(
            [helper.make_node(op, ins, outs, **attrs) for op, ins, outs, attrs in nodes], "case",
            [helper.make_tensor_value_info(n, TensorProto.FLOAT, v.shape) for n, v in inputs.items()],
            [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
            [numpy_helper.from_array(v, n) for n, v in self.constants.items()])
        self.model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)

    def true(self):
        double = {n: v.astype(float) if v.dtype == np.float32 else v for n, v in {**self.inputs, **self.constants}.items()}
        return self.truth(double)


def reduction(op, truth, data, axis, suffix):
    attrs, constants, ins = {"axes": [axis]}, {}, ["x"]
    if op == "ReduceSum":
        attrs, constants, ins = {}, {"axes": np.array([axis])}, ["x", "axes"]
    return Case(f"{op} {suffix}", SUM, [(op, ins, ["y"], attrs)], {"x": data}, lambda v: truth(v["x"], axis), constants)


def function(op, truth, data):
    return Case(op, ULP, [(op, ["x"], ["y"], {})], {"x": data}, lambda v: truth(v["x"]))


def sums():
    long, tall = positive(4, 1000000), positive(1000000, 4)
    keep = dict(keepdims=True)
    yield reduction("ReduceSum", lambda x, a: x.sum(a, **keep), long, 1, "of 10^6 in a row")
    yield reduction("ReduceSum", lambda x, a: x.sum(a, **keep), tall, 0, "of 10^6 apart")
    yield reduction("ReduceMean", lambda x, a: x.mean(a, **keep), long, 1, "of 10^6")
    yield reduction("ReduceL2", lambda x, a: np.sqrt((x * x).sum(a, **keep)), long, 1, "of 10^6")
    yield reduction("ReduceLogSumExp", lambda x, a: np.log(np.exp(x).sum(a, **keep)), long, 1, "of 10^6")
    yield Case("CumSum of 10^6", SUM, [("CumSum", ["x", "axis"], ["y"], {})], {"x": long},
               lambda v: np.cumsum(v["x"], 1), {"axis": np.array(1)})
    yield Case("Softmax of 10^6", SUM, [("Softmax", ["x"], ["y"], {"axis": 1})], {"x": long}, lambda v: softmax(v["x"]))
    yield Case("GlobalAveragePool 112x112", SUM, [("GlobalAveragePool", ["x"], ["y"], {})],
               {"x": positive(1, 64, 112, 112)}, lambda v: v["x"].mean((2, 3), keepdims=True))
    yield Case("Conv, Relu, ReduceMean fused", SUM,
               [("Conv", ["x", "w"], ["c"], {}), ("Relu", ["c"], ["r"], {}), ("ReduceMean", ["r"], ["y"], {"axes": [2, 3]})],
               {"x": normal(1, 64, 112, 112)},
               lambda v: np.maximum(convolve(v["x"], v["w"]), 0).mean((2, 3), keepdims=True),
               {"w": normal(64, 64, 1, 1) / 8})
    yield Case("LayerNormalization of 65536, mean 5", SUM, [("LayerNormalization", ["x", "g", "b"], ["y"], {"axis": 1})],
               {"x": normal(4, 65536, mean=5)}, lambda v: normalise(v["x"], 1),
               {"g": np.ones(65536, np.float32), "b": np.zeros(65536, np.float32)})
    yield Case("InstanceNormalization 224x224", SUM, [("InstanceNormalization", ["x", "g", "b"], ["y"], {})],
               {"x": normal(1, 4, 224, 224, mean=3)}, lambda v: normalise(v["x"], (2, 3)),
               {"g": np.ones(4, np.float32), "b": np.zeros(4, np.float32)})


def products():
    for k in (256, 65536):
        yield Case(f"MatMul k = {k}", PRODUCT, [("MatMul", ["x", "w"], ["y"], {})], {"x": positive(16, k)},
                   lambda v: v["x"] @ v["w"], {"w": positive(k, 16)})
    for name, shape, weights, attrs in (
            ("Conv 3x3, 512 channels", (1, 512, 16, 16), (64, 512, 3, 3), {}),
            ("Conv 3x3, stride 2", (1, 64, 57, 57), (64, 64, 3, 3), {"strides": [2, 2]}),
            ("Conv 3x3, depthwise", (1, 64, 58, 58), (64, 1, 3, 3), {"group": 64})):
        yield Case(name, PRODUCT, [("Conv", ["x", "w"], ["y"], attrs)], {"x": normal(*shape)},
                   lambda v, a=attrs: convolve(v["x"], v["w"], a.get("strides", [1])[0], a.get("group", 1)),
                   {"w": normal(*weights)})
    q, k, u = normal(1, 128, 64), normal(1, 128, 64), normal(1, 128, 64)
    yield Case("attention, 128 x 64", PRODUCT,
               [("Transpose", ["k"], ["t"], {"perm": [0, 2, 1]}), ("MatMul", ["q", "t"], ["s"], {}),
                ("Mul", ["s", "scale"], ["z"], {}), ("Softmax", ["z"], ["p"], {"axis": -1}), ("MatMul", ["p", "u"], ["y"], {})],
               {"q": q, "k": k, "u": u},
               lambda v: softmax(v["q"] @ v["k"].transpose(0, 2, 1) * v["scale"]) @ v["u"],
               {"scale": np.array(0.125, np.float32)})
    yield Case("LSTM, 100 steps", PRODUCT, [("LSTM", ["x", "w", "r", "b"], ["", "y"], {"hidden_size": 64})],
               {"x": normal(100, 2, 32)}, lambda v: lstm(v["x"], v["w"], v["r"], v["b"]),
               {"w": normal(1, 256, 32) / 6, "r": normal(1, 256, 64) / 8, "b": normal(1, 512) / 4})


def functions():
    wide, near = normal(1 << 18) * 15, normal(1 << 18)
    yield function("Exp", np.exp, wide)
    yield function("Log", np.log, positive(1 << 18) * 20)
    yield function("Sqrt", np.sqrt, positive(1 << 18) * 20)
    yield function("Tanh", np.tanh, near * 3)
    yield function("Sigmoid", sigmoid, wide)
    yield function("Sin", np.sin, wide * 50)
    yield function("Cos", np.cos, wide * 50)
    yield function("Tan", np.tan, near)
    yield function("Atan", np.arctan, wide)
    yield function("Asinh", np.arcsinh, wide)
    yield function("Softplus", lambda x: np.logaddexp(0, x), wide)
    yield Case("Pow", ULP, [("Pow", ["x", "e"], ["y"], {})], {"x": positive(1 << 18) + np.float32(0.1), "e": near * 4},
               lambda v: v["x"] ** v["e"])


def error(case, result, truth):
    truth = np.where(np.abs(truth) > np.finfo(np.float32).max, np.sign(truth) * np.inf, truth)
    result = result.astype(float)
    apart = np.where(result == truth, 0, np.abs(result - np.where(np.isinf(truth), 0, truth)))
    truth = np.where(np.isinf(truth), 1, truth)
    if case.bound == ULP:
        return (apart / np.spacing(np.abs(truth).astype(np.float32))).max()
    return apart.max() / np.abs(truth).max()


def run_ashlar(program, case, folder):
    path = os.path.join(folder, "model.onnx")
    onnx.save(case.model, path)
    command = [program, "run", path, "--repeat", "1", "--output-dir", folder]
    for name, data in case.inputs.items():
        np.save(os.path.join(folder, name + ".npy"), data)
        command += ["--input", f"{name}={folder}/{name}.npy"]
    subprocess.run(command, check=True, capture_output=True)
    return np.load(os.path.join(folder, "output_0.npy"))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--ashlar", default="build/ashlar")
    parser.add_argument("names", nargs="*", metavar="CASE")
    options = parser.parse_args()
    failed = False
    for case in [*sums(), *products(), *functions()]:
        if options.names and not any(n in case.name for n in options.names):
            continue
        truth = case.true()
        session = onnxruntime.InferenceSession(case.model.SerializeToString(), providers=["CPUExecutionProvider"])
        theirs = error(case, session.run(None, case.inputs)[0], truth)
        with tempfile.TemporaryDirectory() as folder:
            ours = error(case, run_ashlar(options.ashlar, case, folder), truth)
        beyond = ours > case.bound and ours > 2 * theirs
        failed |= bool(beyond)
        digits = ".2f" if case.bound == ULP else ".1e"
        print(f"| {case.name} | {ours:{digits}} | {theirs:{digits}} |{' beyond ' + str(case.bound) if beyond else ''}", flush=True)
    sys.exit(int(failed))


if __name__ == "__main__":
    main()
