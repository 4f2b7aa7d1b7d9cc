#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""What models are on GPUs, as a table for docs/cuda.md: forecasts for an A100 and an H100, and what the stand-in for the
driver found.

    tools/gpu_table.py [--run SECONDS] ASHLAR [STAND_IN] FOLDER...
    tools/gpu_table.py --precisions ASHLAR FOLDER...
    tools/gpu_table.py --layers ASHLAR sm_90 MODEL.onnx [OPTIONS of ashlar plan]

FOLDER has model.onnx, and for --run a test_data_set_0 of inputs and expected outputs. With --run and STAND_IN
(libptx_driver.so) each model is executed there, unless that takes longer: the error against the expected outputs, and
instructions of threads in one execution (the difference between two runs that differ by one execution). Registers
are ptxas's where that is found. The second has forecasts in mode graph for each way to multiply f32.

The third has the roofline of each operation, the longer of its multiply-adds at the GPU's peak and its bytes at the rate of
its memory, and what its forecast has beyond that: what a launch takes and what lies between two of them in mode graph; that
blocks do not come out even, so that multiprocessors wait for the fullest; all else, which are instructions that do not
multiply, latencies, and copies. Operations that are alike in all numbers are one row; rows of less than a
fiftieth of the whole are one in the end."""
import collections, os, re, subprocess, sys

import explained

LAUNCH, GAP = 1.5, 0.5  # microseconds: as in src/runtime/explain.c


def run(command, seconds=None, **environment):
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=seconds,
                              env=dict(os.environ, **environment))
    except subprocess.TimeoutExpired:
        return None


def forecast(ashlar, model, sm, precision="ieee"):
    """(operations, kernels, microseconds in mode stream, in mode graph, bytes that spill)"""
    text = explained.plan(ashlar, model, sm, () if precision == "ieee" else ("--precision", precision))
    last = re.search(r": (\d+) operations, .*?, ([\d.]+) us in mode stream, ([\d.]+) us in mode graph\n.*?(\d+) bytes spilled",
                     text, re.S)
    nests = explained.said(ashlar, "inspect", "kernels", model, "--device", "CUDA:" + sm)
    kernels = len(set(re.findall(r", kernel (\d+),", nests)))
    return int(last[1]), kernels, float(last[2]), float(last[3]), int(last[4])


def execute(ashlar, folder, driver, seconds):
    """(largest error, instructions of one execution), or None"""
    counted = []
    for repeat in "12":
        done = run([ashlar, "run", "--check", folder, "--device", "CUDA:0", "--repeat", repeat], seconds,
                   ASHLAR_CUDA_DRIVER=driver, PTX_REPORT="1")
        if not done:
            return None
        if done.returncode:
            sys.exit(f"{folder}: {done.stdout}{done.stderr}")
        counted.append(int(re.search(r"(\d+) instructions of threads", done.stderr)[1]))
    errors = [float(e) for e in re.findall(r"relative error ([\d.e+-]+)", done.stdout)]
    return max(errors, default=0.0), counted[1] - counted[0]


def precisions(ashlar, folders):
    ways = "ieee", "tf32x3", "tf32"
    print("| model | " + " | ".join(f"{gpu}, us: {way}" for gpu in ("A100", "H100") for way in ways) + " |")
    print("|---|" + 6 * "---:|")
    for folder in folders:
        model = os.path.join(folder, "model.onnx")
        times = [forecast(ashlar, model, sm, way)[3] for sm in ("sm_80", "sm_90") for way in ways]
        print(f"| {os.path.basename(folder.rstrip('/'))} | " + " | ".join(f"{t:.0f}" for t in times) + " |", flush=True)


def gpu_of(sm):
    """(multiprocessors, operations a microsecond of f32, bytes a microsecond of memory) of the usual GPU of the kind"""
    with open(os.path.join(os.path.dirname(__file__), "..", "src", "base", "gpus.def")) as f:
        for row in re.findall(r"^GPU\((.*)\)$", f.read(), re.M):
            words = [w.strip() for w in row.split(",")]
            if words[0] == sm.removeprefix("sm_"):
                return int(words[2]), 2 * int(words[2]) * int(words[3]) * int(words[8]), 1e3 * float(words[-1])
    sys.exit("no usual GPU of the kind " + sm)


def layers(ashlar, sm, model, options):
    processors, peak, rate = gpu_of(sm)
    found, sums = explained.operations(ashlar, model, sm, options)
    rows, whole = collections.defaultdict(list), 0.0
    for op in found:
        us, roof = op.us + GAP, max(op.flop / peak, op.bytes / rate)
        even = op.flop / peak * (-(-op.blocks // processors) * processors / op.blocks - 1) if op.bound == "issue" else 0
        rows[op.layer or op.name, op.tile, op.split or "", op.blocks, op.bound, us].append(
            (roof, LAUNCH + GAP, even, us - roof - LAUNCH - GAP - even))
        whole += us
    rest = [0, 0.0, 0.0, 0.0, 0.0, 0.0]
    all_of = [0, 0.0, 0.0, 0.0, 0.0, 0.0]
    print("| layer, or operation | so many | tile | split | blocks | bound | us | roofline | launches | uneven | all else |")
    print("|---|---:|---|---:|---:|---|---:|---:|---:|---:|---:|")
    for (name, tile, split, blocks, bound, us), parts in sorted(rows.items(), key=lambda r: -r[0][5] * len(r[1])):
        row = [len(parts), us * len(parts), *(sum(p) for p in zip(*parts))]
        all_of = [a + b for a, b in zip(all_of, row)]
        if row[1] < whole / 50:
            rest = [a + b for a, b in zip(rest, row)]
            continue
        print(f"| {name} | {row[0]} | {tile} | {split} | {blocks} | {bound} | " + " | ".join(f"{v:.1f}" for v in row[1:]) + " |")
    for name, row in ("the rest", rest), ("all", all_of):
        print(f"| {name} | {row[0]} |  |  |  |  | " + " | ".join(f"{v:.1f}" for v in row[1:]) + " |")
    print(f"\n{all_of[1]:.0f} us, {all_of[1] / all_of[2]:.2f} times the roofline of {all_of[2]:.0f}; launches and what lies "
          f"between them {all_of[3]:.0f}, uneven blocks {all_of[4]:.0f}, all else {all_of[5]:.0f}.")


def main(words):
    seconds = None
    if words[0] == "--layers":
        return layers(words[1], words[2], words[3], words[4:])
    if words[0] == "--precisions":
        return precisions(words[1], words[2:])
    if words[0] == "--run":
        seconds, words = float(words[1]), words[2:]
    ashlar, words = words[0], words[1:]
    driver = None
    if words[0].endswith(".so"):
        driver, words = os.path.abspath(words[0]), words[1:]
    print("| model | operations | kernels | error | G instructions | A100, us: stream | graph | H100, us: stream | graph |")
    print("|---|---:|---:|---:|---:|---:|---:|---:|---:|")
    for folder in words:
        model = os.path.join(folder, "model.onnx")
        old, new = forecast(ashlar, model, "sm_80"), forecast(ashlar, model, "sm_90")
        found = explained.kept((*(os.stat(f).st_mtime_ns for f in (ashlar, driver)), folder), lambda: execute(
            ashlar, folder, driver, seconds)) if driver and seconds else None
        error, instructions = ("", "") if not found else ("bits" if found[0] == 0 else f"{found[0]:.1e}",
                                                          f"{found[1] / 1e9:.2f}")
        print(f"| {os.path.basename(folder.rstrip('/'))} | {new[0]} | {new[1]} | {error} | {instructions} | {old[2]:.0f} | "
              f"{old[3]:.0f} | {new[2]:.0f} | {new[3]:.0f} |", flush=True)


main(sys.argv[1:])
