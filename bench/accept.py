#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""What every model must pass: right results, the same bits in every planner and execution mode, memory and preparation within bounds.

usage: accept.py [--ashlar PROGRAM] FOLDER [NAME ...]

FOLDER/NAME/model.onnx with test_data_set_0/{input,output}_*.pb. For each model: `ashlar run --check`, for small ones
against the reference evaluator too; then the outputs in
the planner modes disabled, remap and arena (tlsf, best_fit, search) and the execution modes stream, graph, eager and
multi_stream, each with 1 and 2 threads, compared byte for byte;
processor seconds of `ashlar plan`, all threads together, with an empty kernel cache and again; peak resident memory
against weights and arena. Exits 1 when anything fails. Needs no Python packages.
"""
import argparse
import filecmp
import glob
import os
import resource
import subprocess
import sys
import tempfile

# Planner modes and strategies; then the modes of execution, all with arena planning.
MODES = [["--planner", "disabled"], ["--planner", "remap"], ["--planner", "arena", "--strategy", "tlsf"],
         ["--planner", "arena", "--strategy", "best_fit"], ["--planner", "arena", "--strategy", "search"],
         ["--mode", "stream", "--planner", "arena"], ["--mode", "graph", "--planner", "arena"],
         ["--mode", "eager", "--planner", "arena"], ["--mode", "multi_stream=2", "--planner", "arena"],
         ["--mode", "multi_stream=4", "--planner", "arena", "--poison"]]


def run(command):
    return subprocess.run(command, capture_output=True, text=True)


def inputs_of(program, folder):
    """The inputs by name, as arguments: the name is read from the tensor file's field 8."""
    arguments = []
    for path in sorted(glob.glob(os.path.join(folder, "test_data_set_0", "input_*.pb"))):
        arguments += ["--input", f"{tensor_name(path)}={path}"]
    return arguments


def tensor_name(path):
    with open(path, "rb") as f:
        data = f.read()
    at = 0

    def varint():
        nonlocal at
        value = shift = 0
        while True:
            byte = data[at]
            at += 1
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return value

    while at < len(data):
        key = varint()
        if key & 7 == 2:
            size = varint()
            if key >> 3 == 8:
                return data[at:at + size].decode()
            at += size
        elif key & 7 == 0:
            varint()
        else:
            at += 8 if key & 7 == 1 else 4
    return ""


def bits(program, folder, cache):
    """Differences between the modes' outputs, as text; empty when there is none."""
    first, wrong = None, []
    with tempfile.TemporaryDirectory() as scratch:
        for threads in ("1", "2"):
            for k, mode in enumerate(MODES):
                out = os.path.join(scratch, f"{threads}_{k}")
                os.mkdir(out)
                done = run([program, "run", os.path.join(folder, "model.onnx"), "--repeat", "1", "--output-dir", out,
                            "--threads", threads, "--cache", cache, *mode, *inputs_of(program, folder)])
                if done.returncode:
                    wrong.append(f"{' '.join(mode)}, {threads} threads: {done.stderr.strip()}")
                    continue
                files = sorted(os.listdir(out))
                if first is None:
                    first = out, files
                elif files != first[1] or filecmp.cmpfiles(first[0], out, files, shallow=False)[0] != files:
                    wrong.append(f"{' '.join(mode)}, {threads} threads: other bits")
    return wrong


def bench(program, folder, cache, threads):
    done = run([program, "bench", os.path.join(folder, "model.onnx"), "--csv", "--repeat", "3", "--threads",
                str(threads), "--cache", cache])
    if done.returncode:
        return None
    fields = done.stdout.strip().splitlines()[-1].split(",")
    return [int(f) for f in fields[1:]]


def processor_seconds(program, folder, cache):
    """What a process takes that reads the model, prepares a plan, and prints it."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = run([program, "plan", os.path.join(folder, "model.onnx"), "--cache", cache])
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode:
        return None
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder")
    parser.add_argument("names", nargs="*")
    parser.add_argument("--ashlar", default=os.path.join(os.path.dirname(__file__), "..", "build", "ashlar"))
    args = parser.parse_args()
    names = args.names or sorted(d for d in os.listdir(args.folder)
                                 if os.path.exists(os.path.join(args.folder, d, "model.onnx")))
    failures = 0
    print(f"{'model':16} {'check':8} {'modes':8} {'cold s':>7} {'warm s':>7} {'weights MB':>11} {'arena MB':>9} "
          f"{'peak MB':>8} {'over MB':>8}")
    for name in names:
        folder = os.path.join(args.folder, name)
        with tempfile.TemporaryDirectory() as cache:
            cold = processor_seconds(args.ashlar, folder, cache)
            warm = processor_seconds(args.ashlar, folder, cache)
            sizes = bench(args.ashlar, folder, cache, 2)
            small = os.path.getsize(os.path.join(folder, "model.onnx")) < 16e6
            checked = run([args.ashlar, "run", "--check", folder, "--cache", cache] + ["--reference"] * small)
            wrong = bits(args.ashlar, folder, cache)
        ok = checked.returncode == 0
        failures += (not ok) + bool(wrong) + (sizes is None)
        if sizes is None:
            print(f"{name:16} cannot be measured")
            continue
        weights, arena, peak = (v / 1e6 for v in sizes[5:8])
        print(f"{name:16} {'ok' if ok else 'FAILED':8} {'same' if not wrong else 'DIFFER':8} {cold:7.2f} "
              f"{warm:7.2f} {weights:11.1f} {arena:9.2f} {peak:8.1f} {peak - weights - arena:8.1f}", flush=True)
        for line in wrong:
            print(f"    {line}")
        if not ok:
            print("    " + "\n    ".join((checked.stdout + checked.stderr).strip().splitlines()[-6:]))
    sys.exit(1 if failures else 0)


if __name__ == "__main__":
    main()
