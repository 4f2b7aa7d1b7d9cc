#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""ResNet-50 whole on the stand-in for the CUDA driver, with every check on, against onnxruntime.

    tests/models/resnet50.py ASHLAR EXAMPLE_RESNET50 STAND_IN [SEED...]

The example writes the model; results must be within 1e-4 of onnxruntime's, in mode stream with the first seed, graph
with the second. Exit status 77 where python has no onnxruntime. Minutes: `make test-models`."""
import os, re, subprocess, sys, tempfile

TOLERANCE = 1e-4
FLOAT = 1  # of TensorProto.DataType


def varint(n):
    out = b""
    while n > 127:
        out += bytes([n & 127 | 128])
        n >>= 7
    return out + bytes([n])


def field(number, data):
    return varint(number << 3 | 2) + varint(len(data)) + data


def write_tensor(path, name, array):
    """A TensorProto: dims, data_type, name, raw_data."""
    text = b"".join(varint(1 << 3) + varint(d) for d in array.shape) + varint(2 << 3) + varint(FLOAT)
    with open(path, "wb") as f:
        f.write(text + field(8, name.encode()) + field(9, array.astype("<f4").tobytes()))


def main(ashlar, example, driver, *seeds):
    try:
        import numpy
        import onnxruntime
    except ImportError as why:
        print(f"SKIP: {why}")
        return 77
    with tempfile.TemporaryDirectory() as folder:
        model, data = os.path.join(folder, "model.onnx"), os.path.join(folder, "test_data_set_0")
        os.mkdir(data)
        subprocess.run([example, model], check=True)
        session = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
        random = numpy.random.default_rng(1)
        feed = {i.name: random.standard_normal([d if isinstance(d, int) else 1 for d in i.shape], dtype="float32")
                for i in session.get_inputs()}
        for i, (name, array) in enumerate(feed.items()):
            write_tensor(os.path.join(data, f"input_{i}.pb"), name, array)
        for i, (output, array) in enumerate(zip(session.get_outputs(), session.run(None, feed))):
            write_tensor(os.path.join(data, f"output_{i}.pb"), output.name, array)
        failed = 0
        for seed, mode in zip(seeds or "01", ("stream", "graph")):
            done = subprocess.run([ashlar, "run", "--check", folder, "--device", "CUDA:0", "--mode", mode, "--repeat", "1"],
                                  capture_output=True, text=True,
                                  env=dict(os.environ, ASHLAR_CUDA_DRIVER=driver, PTX_REPORT="1", PTX_SEED=seed))
            errors = [float(e) for e in re.findall(r"relative error ([\d.e+-]+)", done.stdout)]
            count = re.search(r"(\d+) instructions of threads", done.stderr)
            good = done.returncode == 0 and errors and count and max(errors) < TOLERANCE
            print(f"mode {mode}, seed {seed}: error {max(errors, default=float('nan')):.1e}, "
                  f"{int(count[1]) / 1e9 if count else 0:.2f} G instructions")
            if not good:
                print(done.stdout, done.stderr)
            failed += not good
        print(f"{2 - failed} passed, {failed} failed, 0 skipped")
        return failed != 0


sys.exit(main(*sys.argv[1:]))
