#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""What models are on GPUs, as a table for docs/cuda.md: forecasts for an A100 and an H100, and what the stand-in for the
driver found.

    tools/gpu_table.py [--run SECONDS] ASHLAR [STAND_IN] FOLDER...
    tools/gpu_table.py --precisions ASHLAR FOLDER...

The second has forecasts in mode graph for each way to multiply f32. FOLDER has model.onnx, and for --run a test_data_set_0 of inputs and expected outputs. With --run and STAND_IN
(libptx_driver.so) each model is executed there, unless that takes longer: the error against the expected outputs, and
instructions of threads in one execution (the difference between two runs that differ by one execution). Registers
are ptxas's where that is found."""
import os, re, subprocess, sys


def run(command, seconds=None, **environment):
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=seconds,
                              env=dict(os.environ, **environment))
    except subprocess.TimeoutExpired:
        return None


def forecast(ashlar, model, sm, precision="ieee"):
    """(operations, kernels, microseconds in mode stream, in mode graph, bytes that spill)"""
    made = run([ashlar, "plan", model, "--device", "CUDA:" + sm, "--explain", "--precision", precision])
    if made.returncode:
        sys.exit(made.stderr)
    last = re.search(r": (\d+) operations, .*?, ([\d.]+) us in mode stream, ([\d.]+) us in mode graph\n.*?(\d+) bytes spilled",
                     made.stdout, re.S)
    nests = run([ashlar, "inspect", "kernels", model, "--device", "CUDA:" + sm]).stdout
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


def main(words):
    seconds = None
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
        found = execute(ashlar, folder, driver, seconds) if driver and seconds else None
        error, instructions = ("", "") if not found else ("bits" if found[0] == 0 else f"{found[0]:.1e}",
                                                          f"{found[1] / 1e9:.2f}")
        print(f"| {os.path.basename(folder.rstrip('/'))} | {new[0]} | {new[1]} | {error} | {instructions} | {old[2]:.0f} | "
              f"{old[3]:.0f} | {new[2]:.0f} | {new[3]:.0f} |", flush=True)


main(sys.argv[1:])
