#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Compares training with PyTorch's: the losses of 20 steps, and the time of a step.

    bench/train_models.py FOLDER
    bench/train_compare.py ASHLAR FOLDER [NAME...] [--threads N] [--turns N] [--steps N] [--compile]

Both begin with the weights of the model's file and see the same batch; SGD, a rate of 0.001. PyTorch executes the nodes of
the file, with its own batch and layer normalisation, eagerly or, with --compile, by torch.compile. Times are medians of
steps, in turns of 5. Memory: ours is the arena and the states that the command tells; PyTorch's is the peak of what is
resident less what was before the network was made, so it is right for the first name of a call alone. With --steps below 20
fewer losses are compared (0: none). Needs torch, onnx.
"""
import argparse
import csv
import pathlib
import re
import resource
import statistics
import subprocess
import tempfile
import time

import numpy as np
import onnx
import torch
from onnx import numpy_helper
from torch.nn import functional as F

TURN, RATE = 5, 0.001
SIMPLE = {"Add": torch.add, "Mul": torch.mul, "MatMul": torch.matmul, "Relu": torch.relu, "Erf": torch.erf}


class Network:
    """A model's file as PyTorch computes it, floating point numbers as `dtype`, images in `memory_format`."""

    def __init__(self, path, data, dtype=torch.float32, memory_format=torch.contiguous_format, **sgd):
        self.graph = onnx.load(path).graph

        def take(array):
            value = torch.from_numpy(array.copy())
            value = value.to(dtype) if value.is_floating_point() else value
            return value.contiguous(memory_format=memory_format) if value.dim() == 4 else value

        self.values = {t.name: take(numpy_helper.to_array(t)) for t in self.graph.initializer}
        for node in self.graph.node:
            if node.op_type == "Constant":
                self.values[node.output[0]] = take(numpy_helper.to_array(node.attribute[0].t))
        self.names = [t.name for t in self.graph.initializer if "running_" not in t.name]
        self.weights = [self.values[name].requires_grad_() for name in self.names]
        self.x, self.labels = take(data["x"]), torch.from_numpy(data["labels"])
        self.optimizer = torch.optim.SGD(self.weights, **({"lr": RATE} | sgd))

    def node(self, node, v):
        a = {x.name: onnx.helper.get_attribute_value(x) for x in node.attribute}
        x, *rest = [v[name] for name in node.input]
        match node.op_type:
            case "Conv":
                return F.conv2d(x, rest[0], None, a["strides"], a["pads"][:2], 1, a["group"])
            case "BatchNormalization":
                return F.batch_norm(x, None, None, rest[0], rest[1], True)
            case "LayerNormalization":
                return F.layer_norm(x, x.shape[-1:], *rest)
            case "MaxPool":
                return F.max_pool2d(x, a["kernel_shape"], a["strides"], a["pads"][:2])
            case "GlobalAveragePool":
                return x.mean((2, 3), keepdim=True)
            case "Flatten":
                return x.flatten(1)
            case "Clip":
                return F.hardtanh(x, rest[0].item(), rest[1].item())
            case "Gather":
                return F.embedding(rest[0], x)
            case "Reshape":
                return x.reshape([x.shape[i] if n == 0 else n for i, n in enumerate(rest[0].tolist())])
            case "Transpose":
                return x.permute(a["perm"])
            case "Softmax":
                return x.softmax(-1)
        return SIMPLE[node.op_type](x, *rest)

    def loss(self):
        values = dict(self.values, x=self.x)
        for node in self.graph.node:
            if node.op_type != "Constant":
                values[node.output[0]] = self.node(node, values)
        return F.cross_entropy(values["logits"].flatten(0, -2), self.labels.flatten())

    def step(self):
        loss = self.loss()
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return loss.item()


def resident():
    """Bytes of this process that are resident now."""
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * resource.getpagesize()


def ashlar_steps(args, name, rows, steps, folder):
    """Losses, seconds, and bytes of arena and states: an epoch is one batch."""
    curve = pathlib.Path(folder) / "curve.csv"
    files = pathlib.Path(args.folder)
    told = subprocess.run([args.ashlar, "train", files / f"{name}.onnx", "--data", files / f"{name}.npz", "-o", curve.with_suffix(".onnx"),
                    "--batch", str(rows), "--hold-out", "0", "--epochs", str(steps), "--optimizer", "sgd", "--lr", str(RATE),
                    "--freeze", "*running_*", "--threads", str(args.threads), "--curve", curve], check=True,
                   stdout=subprocess.PIPE, text=True).stdout
    scale = {"k": 1e3, "M": 1e6, "G": 1e9, "": 1}
    size = sum(float(n) * scale[unit] for n, unit in re.findall(r"([\d.]+) (\w?)B of (?:arena|states)", told))
    with open(curve, newline="") as file:
        lines = list(csv.DictReader(file))
    return [float(line["loss"]) for line in lines], [float(line["seconds"]) for line in lines], size


def compare(args, name):
    path = pathlib.Path(args.folder) / name
    before = resident()
    network = Network(f"{path}.onnx", np.load(f"{path}.npz"))
    if args.compile:
        network.loss = torch.compile(network.loss)
    steps = max(args.steps, 1)  # the first one is not timed
    wanted, theirs, ours = [], [], []
    with tempfile.TemporaryDirectory() as folder:
        losses, _, own = ashlar_steps(args, name, len(network.labels), steps, folder)
        while len(wanted) < steps:
            wanted.append(network.step())
        for _ in range(args.turns):
            for _ in range(TURN):
                begun = time.perf_counter()
                network.step()
                theirs.append(time.perf_counter() - begun)
            ours += ashlar_steps(args, name, len(network.labels), TURN + 1, folder)[1][1:]
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 - before
    apart = max(abs(a - b) / abs(b) for a, b in zip(losses, wanted))
    times = [statistics.median(t) * 1e3 if t else float("nan") for t in (ours, theirs)]
    print(f"| {name} | {wanted[0]:.6f} | {wanted[-1]:.6f} | {apart:.1e} | {times[0]:.1f} | {times[1]:.1f} | "
          f"{times[1] / times[0]:.2f} | {own / 1e6:.0f} | {peak / 1e6:.0f} |", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("ashlar")
    parser.add_argument("folder")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--compile", action="store_true")
    parser.add_argument("names", nargs="*", default=["mlp", "transformer", "mobilenet_v2", "resnet18"])
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    print("| model | first loss | last loss | apart by | ashlar, ms | PyTorch, ms | times as fast "
          "| ashlar, MB | PyTorch, MB |\n|---|---|---|---|---|---|---|---|---|")
    for name in args.names:
        compare(args, name)


if __name__ == "__main__":
    main()
