#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Time of single operators, ashlar against onnxruntime.

usage: operators.py [--ashlar PROGRAM] [--threads N] [--rounds N] [--above RATIO] [CASE ...]

Each case is a model of one operator, or of a few that belong together, at a size that real models have. Both sides take
turns; what is printed is the median over the rounds of each side's median, and their ratio (below 1: ashlar is faster),
slowest first. --above leaves out what is below a ratio. Needs the Python packages onnx, numpy and onnxruntime.
"""
import argparse
import os
import statistics
import subprocess
import tempfile
import time

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

RANDOM = np.random.default_rng(1)
CASES = []


def normal(*shape):
    return RANDOM.standard_normal(shape).astype(np.float32)


def case(name, nodes, inputs, constants=None, outputs=("y",)):
    """Nodes are (operator, inputs, outputs, attributes)."""
    CASES.append((name, nodes, inputs, constants or {}, outputs))


def one(name, op, inputs, constants=None, outputs=("y",), **attrs):
    case(name, [(op, [*inputs, *(constants or {})], list(outputs), attrs)], inputs, constants, outputs)


def conv(name, x, w, **attrs):
    one("Conv " + name, "Conv", {"x": normal(*x)}, {"w": normal(*w), "b": normal(w[0])}, **attrs)


def transposed(name, x, w, **attrs):
    one("ConvTranspose " + name, "ConvTranspose", {"x": normal(*x)}, {"w": normal(*w)}, **attrs)


def convolutions():
    conv("1 channel, 3x3, 256x256", (1, 1, 256, 256), (32, 1, 3, 3), pads=[1] * 4)
    conv("3 channels, 7x7, stride 2", (1, 3, 224, 224), (64, 3, 7, 7), pads=[3] * 4, strides=[2, 2])
    conv("3 channels, 3x3, stride 2", (1, 3, 224, 224), (32, 3, 3, 3), pads=[1] * 4, strides=[2, 2])
    conv("3 channels, 16x16, stride 16", (1, 3, 224, 224), (384, 3, 16, 16), strides=[16, 16])
    conv("to 1 channel, 3x3, 256x256", (1, 32, 256, 256), (1, 32, 3, 3), pads=[1] * 4)
    conv("1-D, 1 channel, length 400", (1, 1, 16000), (64, 1, 400), strides=[160])
    conv("1-D, 80 channels, 3", (1, 80, 3000), (384, 80, 3), pads=[1, 1])
    conv("1-D, 512 channels, 10, stride 5", (1, 1, 16000), (512, 1, 10), strides=[5])
    conv("1-D, positions of speech, 128, 16 groups", (1, 768, 200), (768, 48, 128), pads=[64, 64], group=16)
    conv("1-D, 1 channel, 251, padded", (1, 1, 16000), (80, 1, 251), pads=[125, 125])
    conv("1-D, depthwise 31", (1, 256, 1000), (256, 1, 31), group=256, pads=[15, 15])
    conv("1x7 and wide", (1, 128, 17, 17), (192, 128, 1, 7), pads=[0, 3, 0, 3])
    conv("1x1 on 7x7", (1, 512, 7, 7), (2048, 512, 1, 1))
    conv("1x1 with stride 2", (1, 256, 56, 56), (512, 256, 1, 1), strides=[2, 2])
    conv("grouped 1x1, 8 groups", (1, 256, 28, 28), (256, 32, 1, 1), group=8)
    conv("grouped 3x3, 32 groups", (1, 128, 56, 56), (128, 4, 3, 3), group=32, pads=[1] * 4)
    conv("depthwise 3x3", (1, 96, 112, 112), (96, 1, 3, 3), group=96, pads=[1] * 4)
    conv("depthwise 3x3, stride 2", (1, 72, 56, 56), (72, 1, 3, 3), group=72, pads=[1] * 4, strides=[2, 2])
    conv("depthwise 5x5", (1, 120, 28, 28), (120, 1, 5, 5), group=120, pads=[2] * 4)
    conv("depthwise 7x7", (1, 96, 56, 56), (96, 1, 7, 7), group=96, pads=[3] * 4)
    conv("dilated 3x3", (1, 64, 64, 64), (64, 64, 3, 3), pads=[4] * 4, dilations=[4, 4])
    conv("3-D 3x3x3", (1, 16, 16, 32, 32), (32, 16, 3, 3, 3), pads=[1] * 6)
    conv("12 channels, 3x3", (1, 12, 64, 64), (12, 12, 3, 3), pads=[1] * 4)
    conv("grouped 1x1, 4 channels a group", (1, 240, 28, 28), (240, 4, 1, 1), group=60)
    for channels in (40, 36):  # blocks of 8 and of 4
        case(f"HardSwish behind a 1x1 Conv to {channels} channels",
             [("Conv", ["x", "w"], ["c"], {}), ("HardSwish", ["c"], ["h"], {}), ("GlobalAveragePool", ["h"], ["m"], {}),
              ("Sigmoid", ["m"], ["s"], {}), ("Mul", ["h", "s"], ["y"], {})],
             {"x": normal(1, 16, 112, 112)}, {"w": normal(channels, 16, 1, 1)})
    transposed("4x4, stride 2", (1, 128, 16, 16), (128, 64, 4, 4), strides=[2, 2], pads=[1] * 4)
    transposed("2x2, stride 2", (1, 64, 64, 64), (64, 32, 2, 2), strides=[2, 2])
    transposed("1-D 16, stride 8", (1, 256, 100), (256, 128, 16), strides=[8], pads=[4, 4])


def ordering():
    x = normal(1, 100000)
    for k in (1, 100, 5000, 99999):
        one(f"TopK {k} of 100000", "TopK", {"x": x}, {"k": np.array([k])}, ("y", "i"))
    one("TopK 5 of 64 x 1000", "TopK", {"x": normal(64, 1000)}, {"k": np.array([5])}, ("y", "i"))
    one("ArgMax 64 x 1000", "ArgMax", {"x": normal(64, 1000)}, axis=1)
    boxes = np.sort(RANDOM.random((1, 1000, 2, 2)).astype(np.float32), axis=2).reshape(1, 1000, 4)
    one("NonMaxSuppression 1000 x 8", "NonMaxSuppression", {"boxes": boxes, "scores": RANDOM.random((1, 8, 1000)).astype(np.float32)},
        {"most": np.array([100]), "overlap": np.array([0.5], np.float32), "least": np.array([0.3], np.float32)})


def planes():
    x = normal(1, 64, 112, 112)
    one("MaxPool 3x3, stride 2", "MaxPool", {"x": x}, kernel_shape=[3, 3], strides=[2, 2], pads=[1] * 4)
    one("MaxPool 2x2, stride 2", "MaxPool", {"x": x}, kernel_shape=[2, 2], strides=[2, 2])
    one("MaxPool 5x5, stride 1", "MaxPool", {"x": normal(1, 128, 20, 20)}, kernel_shape=[5, 5], pads=[2] * 4)
    one("MaxPool 5x5, stride 1, 640 x 20 x 20", "MaxPool", {"x": normal(1, 640, 20, 20)}, kernel_shape=[5, 5], pads=[2] * 4)
    one("AveragePool 3x3", "AveragePool", {"x": x}, kernel_shape=[3, 3], pads=[1] * 4)
    one("GlobalAveragePool", "GlobalAveragePool", {"x": x})
    nothing = {"roi": np.zeros(0, np.float32)}
    double = {**nothing, "scales": np.array([1, 1, 2, 2], np.float32)}
    one("Resize nearest x2", "Resize", {"x": normal(1, 64, 56, 56)}, double, mode="nearest",
        coordinate_transformation_mode="asymmetric", nearest_mode="floor")
    one("Resize linear x2", "Resize", {"x": normal(1, 64, 56, 56)}, double, mode="linear")
    one("Resize cubic x2", "Resize", {"x": normal(1, 16, 56, 56)}, double, mode="cubic")
    one("Pad reflect", "Pad", {"x": x}, {"p": np.array([0, 0, 3, 3, 0, 0, 3, 3])}, mode="reflect")
    case("Resize nearest x2 between convolutions",
         [("Conv", ["x", "w"], ["a"], {}), ("Resize", ["a", "roi", "scales"], ["b"], {"mode": "nearest"}), ("Conv", ["b", "w"], ["y"], {})],
         {"x": normal(1, 64, 40, 40)}, {"w": normal(64, 64, 1, 1), **double})
    one("Pad constant", "Pad", {"x": x}, {"p": np.array([0, 0, 1, 1, 0, 0, 1, 1])})
    one("DepthToSpace", "DepthToSpace", {"x": x}, blocksize=2)
    one("GridSample", "GridSample", {"x": normal(1, 32, 64, 64), "g": np.tanh(normal(1, 64, 64, 2))})
    rois = np.sort(RANDOM.random((100, 2, 2)) * 50, axis=1).reshape(100, 4).astype(np.float32)
    one("RoiAlign", "RoiAlign", {"x": normal(1, 256, 56, 56), "r": rois}, {"b": np.zeros(100, np.int64)}, output_height=7,
        output_width=7, sampling_ratio=2)
    one("InstanceNormalization", "InstanceNormalization", {"x": x}, {"s": normal(64), "b": normal(64)})
    one("LRN", "LRN", {"x": normal(1, 64, 56, 56)}, size=5)


def movement():
    one("Transpose 0213", "Transpose", {"x": normal(8, 128, 12, 64)}, perm=[0, 2, 1, 3])
    one("Transpose NCHW to NHWC", "Transpose", {"x": normal(1, 64, 112, 112)}, perm=[0, 2, 3, 1])
    one("Concat on axis 1", "Concat", {"a": normal(1, 64, 56, 56), "b": normal(1, 64, 56, 56)}, axis=1)
    one("Gather rows", "Gather", {"x": normal(30000, 256), "i": RANDOM.integers(0, 30000, 512)})
    one("GatherElements", "GatherElements", {"x": normal(512, 512), "i": RANDOM.integers(0, 512, (512, 512))}, axis=1)
    one("ScatterElements add", "ScatterElements",
        {"x": normal(512, 512), "i": RANDOM.integers(0, 512, (512, 512)), "u": normal(512, 512)}, axis=1, reduction="add")
    one("ScatterND", "ScatterND", {"x": normal(1000, 64), "i": RANDOM.integers(0, 1000, (256, 1)), "u": normal(256, 64)})
    one("Expand", "Expand", {"x": normal(1, 128, 1)}, {"s": np.array([64, 128, 128])})
    one("Slice with a step", "Slice", {"x": normal(64, 512, 64)}, {"s": np.array([0]), "e": np.array([512]), "a": np.array([1]), "t": np.array([2])})
    one("Where", "Where", {"c": normal(512, 512) > 0, "x": normal(512, 512), "z": normal(512, 512)})
    one("CumSum", "CumSum", {"x": normal(64, 4096)}, {"a": np.array(1)})


def rows():
    for op in ("Erf", "Tanh", "Sigmoid", "Exp", "Log", "Softplus", "Mish", "HardSwish", "Elu"):
        one(f"{op} 1 M", op, {"x": np.abs(normal(1024, 1024)) if op == "Log" else normal(1024, 1024)})
    one("Softmax 1024 x 1024", "Softmax", {"x": normal(1024, 1024)})
    one("Softmax 12 x 128 x 128", "Softmax", {"x": normal(12, 128, 128)})
    one("LayerNormalization 512 x 768", "LayerNormalization", {"x": normal(512, 768)}, {"g": normal(768), "b": normal(768)})
    one("ReduceSum last", "ReduceSum", {"x": normal(1024, 1024)}, {"a": np.array([1])})
    one("ReduceMean first", "ReduceMean", {"x": normal(1024, 1024)}, axes=[0])
    one("ReduceMax middle", "ReduceMax", {"x": normal(64, 128, 128)}, axes=[1])
    one("Add with broadcast", "Add", {"a": normal(64, 128, 128), "b": normal(128, 1)})


def products():
    one("MatMul 128 x 768 x 768", "MatMul", {"x": normal(128, 768)}, {"w": normal(768, 768)})
    one("MatMul 1 x 1024 x 4096", "MatMul", {"x": normal(1, 1024)}, {"w": normal(1024, 4096)})
    one("MatMul two inputs, 12 x 128 x 64 x 128", "MatMul", {"a": normal(12, 128, 64), "b": normal(12, 64, 128)})
    case("MatMul of gathered experts",
         [("Gather", ["experts", "i"], ["w"], {}), ("MatMul", ["x", "w"], ["y"], {})],
         {"x": normal(2, 1, 512), "i": np.array([3, 6])}, {"experts": normal(8, 512, 1024)})
    case("attention, 12 heads of 64",
         [*[node for n in "qkv" for node in (("Reshape", [n, "s"], [n + "r"], {}),
                                             ("Transpose", [n + "r"], [n + "t"], {"perm": [0, 2, 3, 1] if n == "k" else [0, 2, 1, 3]}))],
          ("MatMul", ["qt", "kt"], ["m"], {}), ("Softmax", ["m"], ["p"], {}), ("MatMul", ["p", "vt"], ["o"], {}),
          ("Transpose", ["o"], ["ot"], {"perm": [0, 2, 1, 3]}), ("Reshape", ["ot", "z"], ["y"], {})],
         {n: normal(1, 128, 768) for n in "qkv"}, {"s": np.array([1, 128, 12, 64]), "z": np.array([1, 128, 768])})
    one("Gemm with transposed B", "Gemm", {"x": normal(64, 512)}, {"w": normal(512, 512), "c": normal(512)}, transB=1)
    case("MatMul behind Reshape and Transpose",
         [("Reshape", ["x", "s"], ["r"], {}), ("Transpose", ["r"], ["t"], {"perm": [0, 2, 1, 3]}), ("MatMul", ["t", "k"], ["y"], {})],
         {"x": normal(1, 128, 768), "k": normal(1, 12, 64, 128)}, {"s": np.array([1, 128, 12, 64])})
    one("Einsum bhqd,bhkd->bhqk", "Einsum", {"a": normal(1, 12, 128, 64), "b": normal(1, 12, 128, 64)}, equation="bhqd,bhkd->bhqk")
    one("LSTM 50 steps", "LSTM", {"x": normal(50, 1, 128)}, {"w": 0.1 * normal(1, 512, 128), "r": 0.1 * normal(1, 512, 128)}, ("y",), hidden_size=128)
    one("GRU 50 steps", "GRU", {"x": normal(50, 1, 128)}, {"w": 0.1 * normal(1, 384, 128), "r": 0.1 * normal(1, 384, 128)}, ("y",), hidden_size=128)


def model_of(nodes, inputs, constants, outputs):
    kinds = {np.dtype(np.float32): TensorProto.FLOAT, np.dtype(np.int64): TensorProto.INT64, np.dtype(bool): TensorProto.BOOL}
    graph = helper.make_graph(
        [helper.make_node(op, ins, outs, **attrs) for op, ins, outs, attrs in nodes], "case",
        [helper.make_tensor_value_info(n, kinds[v.dtype], v.shape) for n, v in inputs.items()],
        [helper.make_empty_tensor_value_info(n) for n in outputs],
        [numpy_helper.from_array(v, n) for n, v in constants.items()])
    opset = 18 if any(op in ("Mish",) or attrs.get("reduction") for op, _, _, attrs in nodes) else 17
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset), helper.make_opsetid("com.microsoft", 1)],
                              ir_version=9)
    return onnx.shape_inference.infer_shapes(model)


def measure(options, folder, name, nodes, inputs, constants, outputs):
    path = os.path.join(folder, "model.onnx")
    onnx.save(model_of(nodes, inputs, constants, outputs), path)
    settings = onnxruntime.SessionOptions()
    settings.intra_op_num_threads = options.threads
    settings.log_severity_level = 3
    session = onnxruntime.InferenceSession(path, settings, providers=["CPUExecutionProvider"])
    command = [options.ashlar, "bench", path, "--csv", "--threads", str(options.threads)]
    for n, data in inputs.items():
        np.save(os.path.join(folder, n + ".npy"), data)
        command += ["--input", f"{n}={folder}/{n}.npy"]
    start = time.perf_counter()
    session.run(None, inputs)
    repeat = int(min(max(0.05 / (time.perf_counter() - start), 5), 2000))
    ours, theirs = [], []
    for _ in range(options.rounds):
        times = []
        for _ in range(repeat):
            start = time.perf_counter()
            session.run(None, inputs)
            times.append(time.perf_counter() - start)
        theirs.append(statistics.median(times))
        done = subprocess.run([*command, "--repeat", str(repeat)], capture_output=True, text=True)
        if done.returncode:
            return None, theirs[0], done.stderr.strip().splitlines()[-1:]
        ours.append(int(done.stdout.strip().splitlines()[-1].split(",")[2]) * 1e-9)
    return statistics.median(ours), statistics.median(theirs), ""


def few_bits():
    """Weights of 4 and 8 bits with a scale for blocks of 32, for a step of a decoder and for a prompt."""
    k, n, block = 2048, 8192, 32
    for bits in (4, 8):
        b = RANDOM.integers(0, 256, (n, k // block, block * bits // 8), dtype=np.uint8)
        scales = (RANDOM.random((n, k // block)) / 100 + 0.01).astype(np.float32)
        zeros = RANDOM.integers(0, 256, (n, k // block * bits // 8), dtype=np.uint8)
        for rows in (1, 4, 128):
            for name, more in (("", {}), (", zero points", {"z": zeros})):
                case(f"MatMulNBits {bits} bits, {rows} rows{name}",
                     [("MatMulNBits", ["x", "b", "s", *more], ["y"],
                       {"K": k, "N": n, "bits": bits, "block_size": block, "domain": "com.microsoft"})],
                     {"x": normal(1, rows, k)}, {"b": b, "s": scales, **more})


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--ashlar", default="build/ashlar")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--above", type=float, default=0)
    parser.add_argument("names", nargs="*", metavar="CASE")
    options = parser.parse_args()
    for group in (convolutions, ordering, planes, movement, rows, products, few_bits):
        group()
    lines = []
    for name, *rest in CASES:
        if options.names and not any(n in name for n in options.names):
            continue
        with tempfile.TemporaryDirectory() as folder:
            ours, theirs, why = measure(options, folder, name, *rest)
        if ours is None:
            print(f"| {name} | refused: {why} |", flush=True)
            continue
        lines.append((ours / theirs, f"| {name} | {ours * 1e6:.1f} | {theirs * 1e6:.1f} | {ours / theirs:.2f} |"))
    for ratio, line in sorted(lines, reverse=True):
        if ratio >= options.above:
            print(line)


if __name__ == "__main__":
    main()
