#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""A step of a decoder whose weights have four bits, beside llama.cpp's Q4_0 of the same shapes.

usage: llama_compare.py --work FOLDER [--prepare | --measure] [--ashlar PROGRAM] [--bandwidth PROGRAM]
                        [--threads N ...] [--past N] [--rounds N] [--layers N] [--jobs N]

--prepare fetches llama-cpp-python's sources and the package gguf from PyPI into FOLDER, builds llama.cpp with all that this
processor has (its own defaults) and llama_step.cpp upon it, and writes the two models, of random weights: bench/decoder.py's, with scales
that half floats have, as Q4_0's are, and the same shapes as GGUF. --measure runs both in turns, after reading memory as
bench_bandwidth does; what is printed is the median over the rounds of each side's step. Neither: both. The caches hold
f32 on both sides. Needs the Python packages onnx and numpy, cmake, ninja and a C++ compiler.
"""
import argparse
import glob
import os
import statistics
import subprocess
import sys
import tarfile

import numpy as np

import decoder
from decoder import BLOCK, HEADS, HIDDEN, INNER, LENGTH, SHARED, SIZE, TOKENS

OFF = ("LLAMA_CURL", "LLAMA_OPENSSL", "BUILD_SHARED_LIBS", "LLAMA_BUILD_TESTS", "LLAMA_BUILD_SERVER", "LLAMA_BUILD_EXAMPLES",
       "LLAMA_BUILD_APP", "GGML_CCACHE")


def fetch(work):
    """llama.cpp's sources, as the sdist on PyPI has them."""
    found = glob.glob(os.path.join(work, "llama_cpp_python-*", "vendor", "llama.cpp"))
    if found:
        return found[0]
    if not glob.glob(os.path.join(work, "llama_cpp_python-*.tar.gz")):
        pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "-d", work]
        subprocess.run([*pip, "--no-binary", "llama-cpp-python", "llama-cpp-python"], check=True)
    with tarfile.open(glob.glob(os.path.join(work, "llama_cpp_python-*.tar.gz"))[0]) as archive:
        archive.extractall(work, filter="data")
    return fetch(work)


def build(work, jobs):
    source, folder = fetch(work), os.path.join(work, "llama-build")
    flags = [f"-D{name}=OFF" for name in OFF] + ["-DCMAKE_BUILD_TYPE=Release", "-DGGML_NATIVE=ON"]
    subprocess.run(["cmake", "-S", source, "-B", folder, "-G", "Ninja", *flags], check=True, stdout=subprocess.DEVNULL)
    subprocess.run(["ninja", "-C", folder, f"-j{jobs}", "llama"], check=True, stdout=subprocess.DEVNULL)
    libraries = [os.path.join(folder, path) for path in
                 ("src/libllama.a", "ggml/src/libggml.a", "ggml/src/libggml-cpu.a", "ggml/src/libggml-base.a")]
    headers = [f"-I{os.path.join(source, path)}" for path in ("include", "ggml/include")]
    step = os.path.join(os.path.dirname(os.path.abspath(__file__)), "llama_step.cpp")
    subprocess.run(["c++", "-O2", "-std=c++17", *headers, step, "-o", os.path.join(work, "llama_step"), *libraries, "-fopenmp",
                    "-lpthread", "-ldl"], check=True)


def write_gguf(work, layers):
    packages = os.path.join(work, "packages")
    if not os.path.isdir(os.path.join(packages, "gguf")):
        subprocess.run([sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", packages, "gguf"], check=True)
    sys.path.insert(0, packages)
    import gguf
    w = gguf.GGUFWriter(os.path.join(work, "model.gguf"), "llama")
    w.add_block_count(layers)
    w.add_context_length(LENGTH)
    w.add_embedding_length(HIDDEN)
    w.add_feed_forward_length(INNER)
    w.add_head_count(HEADS)
    w.add_head_count_kv(SHARED)
    w.add_rope_dimension_count(SIZE)
    w.add_rope_freq_base(10000.0)
    w.add_layer_norm_rms_eps(1e-5)
    w.add_vocab_size(TOKENS)
    w.add_tokenizer_model("no_vocab")
    w.add_file_type(gguf.LlamaFileType.MOSTLY_Q4_0)

    def packed(name, n, k):  # blocks of 32: a half float, and 16 bytes
        data = decoder.RANDOM.integers(0, 256, (n, k // BLOCK, 2 + BLOCK // 2), np.uint8)
        data[:, :, :2] = decoder.scales_of(n, k).astype(np.float16)[:, :, None].view(np.uint8)
        w.add_tensor(name, data.reshape(n, -1), raw_dtype=gguf.GGMLQuantizationType.Q4_0)

    def norm(name):
        w.add_tensor(name, 1 + decoder.RANDOM.standard_normal(HIDDEN).astype(np.float32) / 10)

    packed("token_embd.weight", TOKENS, HIDDEN)
    packed("output.weight", TOKENS, HIDDEN)
    norm("output_norm.weight")
    for layer in range(layers):
        at = f"blk.{layer}."
        norm(at + "attn_norm.weight")
        norm(at + "ffn_norm.weight")
        for name, n, k in (("attn_q", HIDDEN, HIDDEN), ("attn_k", SHARED * SIZE, HIDDEN), ("attn_v", SHARED * SIZE, HIDDEN),
                           ("attn_output", HIDDEN, HIDDEN), ("ffn_gate", INNER, HIDDEN), ("ffn_up", INNER, HIDDEN),
                           ("ffn_down", HIDDEN, INNER)):
            packed(f"{at}{name}.weight", n, k)
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()


def time_theirs(work, threads, past, steps):
    """Milliseconds of a step."""
    return float(decoder.run([os.path.join(work, "llama_step"), os.path.join(work, "model.gguf"), str(threads), str(past), str(steps)]))


def median(values):
    return statistics.median(values)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--work", required=True)
    parser.add_argument("--prepare", action="store_true")
    parser.add_argument("--measure", action="store_true")
    parser.add_argument("--ashlar", default="build/ashlar")
    parser.add_argument("--bandwidth", default="build/bench_bandwidth")
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--layers", type=int, default=16)
    parser.add_argument("--past", type=int, default=128)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--jobs", type=int, default=1)
    o = parser.parse_args()
    if o.prepare or not o.measure:
        os.makedirs(o.work, exist_ok=True)
        build(o.work, o.jobs)
        write_gguf(o.work, o.layers)
        decoder.write_case(o.work, o.layers, 1, o.past, True)
    if o.prepare and not o.measure:
        return
    n_bytes, command = decoder.read_case(o.work)
    for threads in o.threads:
        floors, ours, theirs = [], [], []
        for _ in range(o.rounds):
            floors.append(decoder.time_reading(o.bandwidth, threads, n_bytes))
            ours.append(decoder.time_step(o.ashlar, command, threads, o.steps) * 1e3)
            theirs.append(time_theirs(o.work, threads, o.past, o.steps))
        rate = n_bytes / median(ours) * 1e-6
        print(f"{threads} threads: {median(floors):.1f} GB/s can be read; ashlar {median(ours):.1f} ms a step, {rate:.1f} GB/s, "
              f"{rate / median(floors) * 100:.0f} %; llama.cpp {median(theirs):.1f} ms; ratio {median(ours) / median(theirs):.2f}")


if __name__ == "__main__":
    main()
