#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Compares the latency of ashlar and onnxruntime, model by model.

usage: compare.py [--ashlar PROGRAM] [--threads N] [--rounds N] FOLDER [NAME ...]

FOLDER/NAME/model.onnx with test_data_set_0/input_*.pb are the models; no NAME: all of them. Both sides take turns on the
same machine in the same minute, several rounds, a fresh ashlar process each; what is printed is the median over the
rounds of each side's median, and their ratio (below 1: ashlar is faster). Needs the Python packages onnx, numpy and
onnxruntime; bench/setup.sh makes an environment that has them.
"""
import argparse
import glob
import math
import os
import statistics
import subprocess
import tempfile
import time

import onnx
import onnxruntime
from onnx import numpy_helper


def feeds(folder, session):
    result = {}
    for k, info in enumerate(session.get_inputs()):
        tensor = onnx.TensorProto()
        with open(os.path.join(folder, "test_data_set_0", f"input_{k}.pb"), "rb") as f:
            tensor.ParseFromString(f.read())
        result[info.name] = numpy_helper.to_array(tensor)
    return result


def make_session(folder, threads):
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    return onnxruntime.InferenceSession(os.path.join(folder, "model.onnx"), options)


def time_theirs(session, inputs, repeat):
    times = []
    for _ in range(repeat):
        start = time.perf_counter()
        session.run(None, inputs)
        times.append(time.perf_counter() - start)
    return statistics.median(times)


def time_ours(program, folder, threads, repeat):
    command = [program, "bench", os.path.join(folder, "model.onnx"), "--csv", "--threads", str(threads), "--repeat",
               str(repeat)]
    for k, path in enumerate(sorted(glob.glob(os.path.join(folder, "test_data_set_0", "input_*.pb")))):
        tensor = onnx.TensorProto()
        with open(path, "rb") as f:
            tensor.ParseFromString(f.read())
        command += ["--input", f"{tensor.name}={path}"]
    lines = subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip().splitlines()
    return int(lines[-1].split(",")[2]) * 1e-9


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder")
    parser.add_argument("names", nargs="*")
    parser.add_argument("--ashlar", default=os.path.join(os.path.dirname(__file__), "..", "build", "ashlar"))
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=5)
    args = parser.parse_args()
    names = args.names or sorted(d for d in os.listdir(args.folder)
                                 if os.path.exists(os.path.join(args.folder, d, "model.onnx")))
    print(f"{args.threads} thread(s), onnxruntime {onnxruntime.__version__}, medians of {args.rounds} rounds")
    print(f"{'model':16} {'ashlar ms':>11} {'onnxruntime ms':>15} {'ratio':>7}   ratio by round")
    logs = []
    kernels = tempfile.TemporaryDirectory()  # not the user's
    os.environ["ASHLAR_CACHE_DIR"] = kernels.name
    for name in names:
        folder = os.path.join(args.folder, name)
        session = make_session(folder, args.threads)
        inputs = feeds(folder, session)
        once = time_theirs(session, inputs, 2)
        repeat = max(5, min(200, int(0.5 / once)))
        time_ours(args.ashlar, folder, args.threads, 2)  # fills the kernel cache
        ours, theirs = [], []
        for _ in range(args.rounds):
            ours.append(time_ours(args.ashlar, folder, args.threads, repeat))
            theirs.append(time_theirs(session, inputs, repeat))
        ratio = statistics.median(ours) / statistics.median(theirs)
        logs.append(math.log(ratio))
        rounds = " ".join(f"{a / b:.2f}" for a, b in zip(ours, theirs))
        print(f"{name:16} {statistics.median(ours) * 1e3:11.3f} {statistics.median(theirs) * 1e3:15.3f} {ratio:7.2f}   "
              f"{rounds}", flush=True)
    print(f"{'geometric mean':16} {'':11} {'':15} {math.exp(sum(logs) / len(logs)):7.2f}")


if __name__ == "__main__":
    main()
