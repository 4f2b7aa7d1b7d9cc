#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""How exact training is: gradients and losses, here and in PyTorch, against PyTorch in double precision.

    bench/train_models.py FOLDER
    bench/train_exact.py ASHLAR FOLDER [NAME...] [--rate R...] [--momentum M] [--decay D] [--warmup N] [--steps N]

All begin with the weights of the model's file and see the same batch; SGD. PyTorch in f32 is there more than once: as it is, with
two threads, with channels last, and compiled (losses alone, with --compile), which is how far one and the same library is from
itself.

Gradients: of the first step, for each parameter the norm of what is off by the norm of what is right; shown are the median over
the parameters, the largest, and the largest quotient of ours and PyTorch's. Losses: of all steps, for each rate, the largest
relative difference from f64, and ours from PyTorch's. Needs torch, onnx.
"""
import argparse
import json
import pathlib
import statistics
import struct
import subprocess
import tempfile

import numpy as np
import torch

from train_compare import Network

HUGE = 2.0**30  # a rate at which a weight after the step is the gradient, and what it was before is lost
LAST = torch.channels_last
WAYS = {"PyTorch": {}, "2 threads": {"threads": 2}, "channels last": {"memory_format": LAST}}


def read_states(path):
    """A safetensors file of f32, f64 and i64 as arrays."""
    data = path.read_bytes()
    size = struct.unpack("<Q", data[:8])[0]
    kinds = {"F32": np.float32, "F64": np.float64, "I64": np.int64}
    out = {}
    for name, what in json.loads(data[8:8 + size]).items():
        if name != "__metadata__":
            first, last = (8 + size + at for at in what["data_offsets"])
            out[name] = np.frombuffer(data[first:last], kinds[what["dtype"]]).reshape(what["shape"])
    return out


def train_here(args, name, rows, steps, *options):
    """Losses and states after so many steps of one batch."""
    files = pathlib.Path(args.folder)
    with tempfile.TemporaryDirectory() as folder:
        out, curve = pathlib.Path(folder) / "out.onnx", pathlib.Path(folder) / "curve.csv"
        subprocess.run([args.ashlar, "train", files / f"{name}.onnx", "--data", files / f"{name}.npz", "-o", out, "--batch",
                        str(rows), "--hold-out", "0", "--epochs", str(steps), "--optimizer", "sgd", "--freeze", "*running_*",
                        "--threads", "1", "--curve", curve, *map(str, options)], check=True, stdout=subprocess.DEVNULL)
        lines = curve.read_text().splitlines()
        at = lines[0].split(",").index("loss")
        return [float(line.split(",")[at]) for line in lines[1:]], read_states(pathlib.Path(f"{out}.safetensors"))


def gradients(network):
    network.loss().backward()
    return {name: w.grad.double().numpy() for name, w in zip(network.names, network.weights)}


def off(found, right):
    return {name: np.linalg.norm(found[name] - g) / max(np.linalg.norm(g), 1e-300) for name, g in right.items()}


def compare_gradients(args, path, data, name):
    torch.set_num_threads(1)
    network = Network(path, data, torch.float64)
    right, before = gradients(network), {n: w.detach().numpy() for n, w in zip(network.names, network.weights)}
    _, states = train_here(args, name, len(data["labels"]), 1, "--lr", HUGE)
    errors = {"ashlar": off({n: (before[n] - states[n]) / HUGE for n in right}, right)}
    for way, options in WAYS.items():
        torch.set_num_threads(options.get("threads", 1))
        errors[way] = off(gradients(Network(path, data, **{k: v for k, v in options.items() if k != "threads"})), right)
    for way, error in errors.items():
        worst = max(error, key=error.get)
        ratios = {n: errors["ashlar"][n] / max(error[n], 1e-300) for n in right}
        at = max(ratios, key=ratios.get)
        print(f"| {name} | {way} | {statistics.median(error.values()):.1e} | {error[worst]:.1e} ({worst}) | "
              f"{statistics.median(ratios.values()):.2f} | {ratios[at]:.2f} ({at}) |", flush=True)
        if args.all:
            for n in right:
                print(f"    {n:20} {errors['ashlar'][n]:.2e} {error[n]:.2e} {ratios[n]:.2f}")


def apart(a, b):
    return max(abs(x - y) / abs(y) for x, y in zip(a, b))


def train_there(args, path, data, rate, threads=1, dtype=torch.float32, compiled=False, **options):
    torch.set_num_threads(threads)
    network = Network(path, data, dtype, momentum=args.momentum, weight_decay=args.decay, **options)
    if compiled:
        network.loss = torch.compile(network.loss)
    losses = []
    for step in range(args.steps):
        network.optimizer.param_groups[0]["lr"] = rate * min(1, (step + 1) / max(args.warmup, 1))
        losses.append(network.step())
    return losses


def compare_losses(args, path, data, name, rate):
    right = train_there(args, path, data, rate, dtype=torch.float64)
    ours, _ = train_here(args, name, len(data["labels"]), args.steps, "--lr", rate, "--momentum", args.momentum,
                         "--weight-decay", args.decay, "--warmup", args.warmup)
    ways = WAYS | ({"compiled": {"compiled": True}} if args.compile else {})
    theirs = {way: train_there(args, path, data, rate, **options) for way, options in ways.items()}
    found = " | ".join(f"{apart(losses, right):.1e}" for losses in (ours, *theirs.values()))
    print(f"| {name} | {rate:g} | {right[0]:.4f}, {right[-1]:.4f} | {found} | {apart(ours, theirs['PyTorch']):.1e} |", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("ashlar")
    parser.add_argument("folder")
    parser.add_argument("--rate", type=float, nargs="+", default=[3.9e-3])
    parser.add_argument("--momentum", type=float, default=0.9)
    parser.add_argument("--decay", type=float, default=2e-5)
    parser.add_argument("--warmup", type=int, default=5000)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--all", action="store_true", help="every parameter's gradient")
    parser.add_argument("--no-gradients", action="store_true")
    parser.add_argument("--no-losses", action="store_true")
    parser.add_argument("--compile", action="store_true", help="losses by torch.compile too")
    parser.add_argument("names", nargs="*", default=["mlp", "transformer", "mobilenet_v2", "resnet18"])
    args = parser.parse_args()
    files = [(f"{args.folder}/{name}.onnx", np.load(f"{args.folder}/{name}.npz"), name) for name in args.names]
    if not args.no_gradients:
        print("| model | gradients of | median error | largest | ours by it, median | largest |\n|---|---|---|---|---|---|")
        for file in files:
            compare_gradients(args, *file)
    if not args.no_losses:
        ways = [*WAYS] + ["compiled"] * args.compile
        print(f"| model | rate | losses, first and last | ashlar from f64 | {' | '.join(ways)} | ashlar from PyTorch |\n"
              f"|{'---|' * (len(ways) + 5)}")
        for file in files:
            for rate in args.rate:
                compare_losses(args, *file, rate)


main()
