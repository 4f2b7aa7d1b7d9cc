#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""A step of a decoder whose weights have four bits: how much of the memory's bandwidth it reaches.

usage: decoder.py [--ashlar PROGRAM] [--bandwidth PROGRAM] [--threads N] [--layers N] [--past N] [--rows N] [--halves]
                  [--bits N] [--block N] [--zeros] [--check] [--beside LEVEL...] [--keep FOLDER]

Writes a model of GroupQueryAttention and MatMulNBits, with random weights, as onnxruntime's model builder does (hidden
size 2048, 32 heads over 8, 16 layers and 32,000 tokens make a billion parameters), runs a step of it, and compares the bytes of its
weights over the time with what bench_bandwidth reads. --halves: scales are numbers that half floats have, as those of
Q4_0 are; then they count two bytes. --bits, --block, --zeros: of the products' weights; zero points count as in the file.
--keep: the model is written to a folder, and is read there when it is there already. --check compares the results with
onnxruntime's, which a few layers are enough for. --beside times onnxruntime in turns, with accuracy_level as given. Needs the
Python packages onnx, numpy and onnxruntime.
"""
import argparse
import json
import os
import subprocess
import tempfile
import time

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

MS = "com.microsoft"
HIDDEN, HEADS, SHARED, SIZE, INNER, TOKENS, LENGTH, BLOCK, BITS = 2048, 32, 8, 64, 8192, 32000, 2048, 32, 4
RANDOM = np.random.default_rng(1)


def scales_of(n, k, block=BLOCK, bits=BITS):
    return (RANDOM.random((n, k // block), np.float32) + 0.5) * np.float32(3.2 / 2**bits / np.sqrt(k))


class Net:
    def __init__(self, halves, bits=BITS, block=BLOCK, zeros=False):
        self.halves, self.bits, self.block, self.zeros = halves, bits, block, zeros
        self.nodes, self.constants, self.bytes, self.weights = [], [], 0, 0

    def const(self, array):
        self.constants.append(numpy_helper.from_array(np.asarray(array), f"c{len(self.constants)}"))
        return self.constants[-1].name

    def op(self, kind, *ins, outs=1, domain="", **attrs):
        names = [f"v{len(self.nodes)}_{i}" for i in range(outs)]
        self.nodes.append(helper.make_node(kind, ins, names, domain=domain, **attrs))
        return names[0] if outs == 1 else names

    def packed(self, n, k, bits, block):
        blocks = k // block
        self.bytes += n * k * bits // 8 + n * blocks * (2 if self.halves else 4)
        self.weights += n * k
        scales = scales_of(n, k, block, bits)
        if self.halves:
            scales = scales.astype(np.float16).astype(np.float32)
        return RANDOM.integers(0, 256, (n, blocks, block * bits // 8), np.uint8), scales

    def linear(self, x, k, n):
        b, scales = self.packed(n, k, self.bits, self.block)
        ins = [x, self.const(b), self.const(scales)]
        if self.zeros:
            zeros = RANDOM.integers(0, 256, (n, -(-(k // self.block) * self.bits // 8)), np.uint8)
            self.bytes += zeros.size
            ins.append(self.const(zeros))
        return self.op("MatMulNBits", *ins, K=k, N=n, bits=self.bits, block_size=self.block, domain=MS)

    def norm(self):
        return self.const(1 + RANDOM.standard_normal(HIDDEN).astype(np.float32) / 10)


def model_of(layers, halves, **weights):
    n = Net(halves, **weights)
    cache = ["batch", SHARED, "past", SIZE]
    inputs = [helper.make_tensor_value_info("ids", TensorProto.INT64, ["batch", "seq"]),
              helper.make_tensor_value_info("mask", TensorProto.INT64, ["batch", "past + seq"])]
    rows, scales = n.packed(TOKENS, HIDDEN, BITS, BLOCK)
    n.bytes = 0  # a step reads one row of them
    x = n.op("GatherBlockQuantized", n.const(rows.reshape(TOKENS, -1)), "ids", n.const(scales), bits=BITS, block_size=BLOCK,
             quantize_axis=1, gather_axis=0, domain=MS)
    count = n.op("ReduceSum", "mask", n.const(np.array([1])), keepdims=0)
    ends = n.op("Cast", n.op("Sub", count, n.const(np.array(1))), to=TensorProto.INT32)
    total = n.op("Cast", n.op("Gather", n.op("Shape", "mask"), n.const(np.array(1))), to=TensorProto.INT32)
    angles = np.arange(LENGTH)[:, None] * 10000.0 ** (-np.arange(0, SIZE, 2) / SIZE)
    turns = [n.const(f(angles).astype(np.float32)) for f in (np.cos, np.sin)]
    outputs = []
    y = n.op("SimplifiedLayerNormalization", x, n.norm(), epsilon=1e-5, axis=-1)
    for layer in range(layers):
        q, k, v = (n.linear(y, HIDDEN, size) for size in (HIDDEN, SHARED * SIZE, SHARED * SIZE))
        pasts = [f"past_{layer}_{kind}" for kind in ("key", "value")]
        inputs += [helper.make_tensor_value_info(p, TensorProto.FLOAT, cache) for p in pasts]
        a, *present = n.op("GroupQueryAttention", q, k, v, *pasts, ends, total, *turns, outs=3, num_heads=HEADS,
                           kv_num_heads=SHARED, do_rotary=1, domain=MS)
        outputs += present
        add = lambda y: n.op("SkipSimplifiedLayerNormalization", x, y, n.norm(), outs=4, epsilon=1e-5, domain=MS)
        y, _, _, x = add(n.linear(a, HIDDEN, HIDDEN))
        gate, up = n.linear(y, HIDDEN, INNER), n.linear(y, HIDDEN, INNER)
        gate = n.op("Mul", n.op("Mul", gate, n.op("Sigmoid", gate)), up)
        y, _, _, x = add(n.linear(gate, INNER, HIDDEN))
    outputs = [n.linear(y, HIDDEN, TOKENS)] + outputs
    for node in n.nodes:  # results that nobody reads have no names
        if node.op_type == "SkipSimplifiedLayerNormalization":
            node.output[1] = node.output[2] = ""
    graph = helper.make_graph(n.nodes, "decoder", inputs, [helper.make_tensor_value_info(o, TensorProto.FLOAT, None) for o in outputs],
                              n.constants)
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid(MS, 1)]
    return n, helper.make_model(graph, opset_imports=opsets, ir_version=9)


def run(command):
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(done.stderr)
    return done.stdout.strip()


def write_case(folder, layers, seq, past, halves, **weights):
    """The model and its inputs, and what of them a measurement wants to know."""
    n, model = model_of(layers, halves, **weights)
    path = os.path.join(folder, "model.onnx")
    for old in (path, os.path.join(folder, "weights.bin")):
        if os.path.exists(old):
            os.remove(old)
    onnx.save(model, path, save_as_external_data=True, location="weights.bin", size_threshold=1024)
    feeds = {"ids": RANDOM.integers(0, TOKENS, (1, seq)), "mask": np.ones((1, past + seq), np.int64)}
    for i in model.graph.input[2:]:
        feeds[i.name] = RANDOM.standard_normal((1, SHARED, past, SIZE), np.float32)
    for name, data in feeds.items():
        np.save(os.path.join(folder, name + ".npy"), data)
    with open(os.path.join(folder, "case.json"), "w") as file:
        json.dump({"bytes": n.bytes, "weights": n.weights, "inputs": list(feeds)}, file)


def read_case(folder):
    """The bytes that a step reads, and the command's model and inputs."""
    with open(os.path.join(folder, "case.json")) as file:
        case = json.load(file)
    print(f"{case['weights'] / 1e6:.0f} million weights, {case['bytes'] / 1e6:.0f} MB read by a step")
    command = [os.path.join(folder, "model.onnx")]
    for name in case["inputs"]:
        command += ["--input", f"{name}={folder}/{name}.npy"]
    return case["bytes"], command


def time_reading(program, threads, n_bytes):
    """Gigabytes a second, of as many bytes as a step reads: a part of fewer may be in a cache."""
    return float(run([program, str(threads), str(n_bytes >> 20)]).split()[0])


def time_step(program, command, threads, repeat):
    """Seconds."""
    line = run([program, "bench", *command, "--threads", str(threads), "--csv", "--repeat", str(repeat)]).splitlines()[-1]
    return int(line.split(",")[2]) * 1e-9


def session_of(folder, path, threads, level):
    """onnxruntime's session, and the inputs."""
    import onnxruntime
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    if level:
        model = onnx.load(path, load_external_data=False)
        for node in model.graph.node:
            if node.op_type == "MatMulNBits":
                node.attribute.append(helper.make_attribute("accuracy_level", level))
        path = os.path.join(folder, f"level{level}.onnx")
        onnx.save(model, path)
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    return session, {i.name: np.load(os.path.join(folder, i.name + ".npy")) for i in session.get_inputs()}


def time_theirs(session, feeds, repeat):
    """Seconds, the median."""
    times = []
    for _ in range(repeat):
        begin = time.perf_counter()
        session.run(None, feeds)
        times.append(time.perf_counter() - begin)
    return sorted(times)[repeat // 2]


def check(program, folder, command):
    run([program, "run", *command, "--repeat", "1", "--output-dir", folder])
    session, feeds = session_of(folder, command[0], 0, 0)
    for k, theirs in enumerate(session.run(None, feeds)):
        ours = np.load(os.path.join(folder, f"output_{k}.npy"))
        print(f"output {k}: {abs(ours - theirs).max() / abs(theirs).max():.2e}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--ashlar", default="build/ashlar")
    parser.add_argument("--bandwidth", default="build/bench_bandwidth")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--layers", type=int, default=16)
    parser.add_argument("--past", type=int, default=128)
    parser.add_argument("--rows", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--halves", action="store_true")
    parser.add_argument("--bits", type=int, default=BITS)
    parser.add_argument("--block", type=int, default=BLOCK)
    parser.add_argument("--zeros", action="store_true")
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--beside", type=int, nargs="+", default=[], metavar="LEVEL")
    parser.add_argument("--keep", metavar="FOLDER")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = options.keep or temporary
        os.makedirs(folder, exist_ok=True)
        if not os.path.exists(os.path.join(folder, "case.json")):
            write_case(folder, options.layers, options.rows, options.past, options.halves, bits=options.bits,
                       block=options.block, zeros=options.zeros)
        n_bytes, command = read_case(folder)
        if options.check:
            check(options.ashlar, folder, command)
            return
        floors, steps, theirs = [], [], {level: [] for level in options.beside}
        sessions = {level: session_of(folder, command[0], options.threads, level) for level in options.beside}
        for _ in range(options.rounds):
            floors.append(time_reading(options.bandwidth, options.threads, n_bytes))
            steps.append(time_step(options.ashlar, command, options.threads, 20))
            for level, session in sessions.items():
                theirs[level].append(time_theirs(*session, 10))
        floor, step = sorted(floors)[len(floors) // 2], sorted(steps)[len(steps) // 2]
        print(f"{floor:.1f} GB/s can be read; a step takes {step * 1e3:.1f} ms, {n_bytes / step * 1e-9:.1f} GB/s: "
              f"{n_bytes / step * 1e-9 / floor * 100:.0f} %")
        for level, times in theirs.items():
            middle = sorted(times)[len(times) // 2]
            print(f"onnxruntime, accuracy_level {level}: {middle * 1e3:.1f} ms, ratio {step / middle:.2f}")


if __name__ == "__main__":
    main()
