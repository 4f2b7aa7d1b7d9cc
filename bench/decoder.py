#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""A step of a decoder whose weights have four bits: how much of the memory's bandwidth it reaches.

usage: decoder.py [--ashlar PROGRAM] [--bandwidth PROGRAM] [--threads N] [--layers N] [--past N] [--rows N] [--check]
                  [--keep FOLDER]

Writes a model of GroupQueryAttention and MatMulNBits, with random weights, as onnxruntime's model builder does (hidden
size 2048, 32 heads over 8, 16 layers and 32,000 tokens make a billion parameters), runs a step of it, and compares the bytes of its
weights over the time with what bench_bandwidth reads. --check compares the results with onnxruntime's, which a few
layers are enough for. Needs the Python packages onnx, numpy and onnxruntime.
"""
import argparse
import os
import subprocess
import tempfile


import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

MS = "com.microsoft"
HIDDEN, HEADS, SHARED, SIZE, INNER, TOKENS, LENGTH, BLOCK = 2048, 32, 8, 64, 8192, 32000, 2048, 32
RANDOM = np.random.default_rng(1)


class Net:
    def __init__(self):
        self.nodes, self.constants, self.bytes, self.weights = [], [], 0, 0

    def const(self, array):
        self.constants.append(numpy_helper.from_array(np.asarray(array), f"c{len(self.constants)}"))
        return self.constants[-1].name

    def op(self, kind, *ins, outs=1, domain="", **attrs):
        names = [f"v{len(self.nodes)}_{i}" for i in range(outs)]
        self.nodes.append(helper.make_node(kind, ins, names, domain=domain, **attrs))
        return names[0] if outs == 1 else names

    def packed(self, n, k):
        self.bytes += n * k // 2 + n * k // BLOCK * 4
        self.weights += n * k
        scales = (RANDOM.random((n, k // BLOCK), np.float32) + 0.5) * np.float32(0.2 / np.sqrt(k))
        return RANDOM.integers(0, 256, (n, k // BLOCK, BLOCK // 2), np.uint8), scales

    def linear(self, x, k, n):
        b, scales = self.packed(n, k)
        return self.op("MatMulNBits", x, self.const(b), self.const(scales), K=k, N=n, bits=4, block_size=BLOCK, domain=MS)

    def norm(self):
        return self.const(1 + RANDOM.standard_normal(HIDDEN).astype(np.float32) / 10)


def model_of(layers):
    n = Net()
    cache = ["batch", SHARED, "past", SIZE]
    inputs = [helper.make_tensor_value_info("ids", TensorProto.INT64, ["batch", "seq"]),
              helper.make_tensor_value_info("mask", TensorProto.INT64, ["batch", "past + seq"])]
    rows, scales = n.packed(TOKENS, HIDDEN)
    n.bytes -= n.weights // 2 + n.weights // BLOCK * 4  # a step reads one row of them
    x = n.op("GatherBlockQuantized", n.const(rows.reshape(TOKENS, -1)), "ids", n.const(scales), bits=4, block_size=BLOCK,
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


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--ashlar", default="build/ashlar")
    parser.add_argument("--bandwidth", default="build/bench_bandwidth")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--layers", type=int, default=16)
    parser.add_argument("--past", type=int, default=128)
    parser.add_argument("--rows", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--keep", metavar="FOLDER")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = options.keep or temporary
        path = os.path.join(folder, "model.onnx")
        n, model = model_of(options.layers)
        os.makedirs(folder, exist_ok=True)
        onnx.save(model, path, save_as_external_data=True, location="weights.bin", size_threshold=1024)
        seq, past = options.rows, options.past
        feeds = {"ids": RANDOM.integers(0, TOKENS, (1, seq)), "mask": np.ones((1, past + seq), np.int64)}
        for i in model.graph.input[2:]:
            feeds[i.name] = RANDOM.standard_normal((1, SHARED, past, SIZE), np.float32)
        command = [path, "--threads", str(options.threads)]
        for name, data in feeds.items():
            np.save(os.path.join(folder, name + ".npy"), data)
            command += ["--input", f"{name}={folder}/{name}.npy"]
        print(f"{n.weights / 1e6:.0f} million weights, {n.bytes / 1e6:.0f} MB read by a step")
        if options.check:
            import onnxruntime
            run([options.ashlar, "run", *command, "--repeat", "1", "--output-dir", folder])
            session = onnxruntime.InferenceSession(path)
            for k, theirs in enumerate(session.run(None, feeds)):
                ours = np.load(os.path.join(folder, f"output_{k}.npy"))
                print(f"output {k}: {abs(ours - theirs).max() / abs(theirs).max():.2e}")
            return
        floors, steps = [], []
        for _ in range(options.rounds):
            floors.append(float(run([options.bandwidth, str(options.threads)]).split()[0]))
            steps.append(int(run([options.ashlar, "bench", *command, "--csv", "--repeat", "20"]).splitlines()[-1].split(",")[2]))
        floor, step = sorted(floors)[len(floors) // 2], sorted(steps)[len(steps) // 2] * 1e-9
        print(f"{floor:.1f} GB/s can be read; a step takes {step * 1e3:.1f} ms, {n.bytes / step * 1e-9:.1f} GB/s: "
              f"{n.bytes / step * 1e-9 / floor * 100:.0f} %")


if __name__ == "__main__":
    main()
